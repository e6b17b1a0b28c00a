"""refdist on the GPUs of this process, divided into 16 logical GPUs."""

from __future__ import annotations

from refdist.conformance.adapters.arrays import Arrays


class GPU(Arrays):
    """refdist with its arrays on GPUs."""

    name = "refdist (GPU)"
    backend = "gpu"
