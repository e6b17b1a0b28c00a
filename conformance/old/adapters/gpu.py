"""refdist on the GPUs of this process, divided into 16 logical GPUs."""

from __future__ import annotations

from typing import Any

import refdist
from refdist.conformance.old.adapters.simulated import Simulated
from refdist.core.devices import canonical


class GPU(Simulated):
    """refdist with its arrays on GPUs."""

    name = "refdist (GPU)"

    def __init__(self) -> None:
        refdist.set_backend("gpu")
        refdist.config.set_simulated_devices(gpu=16)

    def array(self, value: object, dtype: str | None) -> object:
        array: Any = super().array(value, dtype)
        if refdist.get_replica_context() is None or not refdist.has_strategy():
            array = refdist.get_strategy().extended.backend.put(array, canonical("GPU:0"))
        return array if dtype is None else refdist.constant(array)
