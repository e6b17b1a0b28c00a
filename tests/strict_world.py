"""Backends over array_api_strict, and the adapters with which the conformance suite runs on them.

The arrays have what the array API standard demands and nothing else: no method of NumPy's, and NumPy's functions do not
take those of a device other than the CPU.  Every GPU is such a device; those of two devices do not mix.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

import array_api_strict as xp
import numpy as np

from refdist.array.backend import Backend
from refdist.conformance.adapters.arrays import Arrays
from refdist.core import devices

CPU = xp.Device("CPU_DEVICE")


class Strict(Backend):
    """Arrays of array_api_strict; all GPUs share one memory."""

    array_types = (type(xp.asarray(0)),)
    gpus = (xp.Device("device1"),)

    def __init__(self) -> None:
        self._frozen: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def xp(self, device: str = "") -> ModuleType:
        return xp

    def memory_space(self, device: str) -> Hashable:
        return self.gpus[devices.index(device) % len(self.gpus)] if devices.device_type(device) == "GPU" else CPU

    def put(self, array: Any, device: str) -> Any:
        place = self.memory_space(device)
        host = isinstance(array, (np.ndarray, np.generic))
        return xp.asarray(array, device=place) if host else array.to_device(place)

    def to_numpy(self, array: Any) -> Any:
        return np.array(array.to_device(CPU)) if isinstance(array, self.array_types) else array

    def freeze(self, array: Any) -> Any:
        if self._frozen.get(id(array)) is array:
            return array
        values = self.to_numpy(array)
        values.flags.writeable = False
        frozen = xp.asarray(values, device=array.device, copy=False)
        self._frozen[id(frozen)] = frozen
        return frozen


class Apart(Strict):
    """GPUs take turns in having one of two memories."""

    gpus = (xp.Device("device1"), xp.Device("device2"))


class Adapter(Arrays):
    """refdist with arrays of array_api_strict."""

    name = "refdist (array_api_strict)"
    backend = "strict"


class ApartAdapter(Adapter):
    """The same with two memories."""

    backend = "apart"
