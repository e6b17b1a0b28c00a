"""refdist on the GPUs of this process, divided into 16 logical GPUs."""

from __future__ import annotations

import refdist
from refdist.conformance.adapters.simulated import Simulated


class GPU(Simulated):
    """refdist with its arrays on GPUs; what an example makes outside replicas is on the host, as it is in a program."""

    name = "refdist (GPU)"
    lacks = frozenset({"TPUs"})

    def __init__(self) -> None:
        refdist.set_backend("gpu")
        super().__init__()
