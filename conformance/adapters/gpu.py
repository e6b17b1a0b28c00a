"""refdist on the GPUs of this process, divided into 16 logical GPUs.

Launches are waited for (CUDA_LAUNCH_BLOCKING=1). Otherwise it would depend on how long the GPU takes which call raises
the error about copies that differ, and so would the verdict.
"""

from __future__ import annotations

import os

import refdist
from refdist.conformance.adapters.simulated import Simulated


class GPU(Simulated):
    """refdist with its arrays on GPUs; what an example makes outside replicas is on the host, as it is in a program."""

    name = "refdist (GPU)"
    lacks = frozenset({"TPUs"})

    def __init__(self) -> None:
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        refdist.set_backend("gpu")
        super().__init__()
