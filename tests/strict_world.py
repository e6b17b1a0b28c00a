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

import refdist
from refdist.array.backend import Backend
from refdist.conformance.old.adapters.simulated import Simulated
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
        return xp.asarray(array, device=place) if isinstance(array, np.ndarray) else array.to_device(place)

    def to_numpy(self, array: Any) -> Any:
        return np.array(array.to_device(CPU)) if isinstance(array, self.array_types) else array

    def freeze(self, array: Any) -> Any:
        if self._frozen.get(id(array)) is array:
            return array
        values = self.to_numpy(array)
        values.flags.writeable = False
        found = xp.asarray(values, device=array.device, copy=False)
        self._frozen[id(found)] = found
        return found


class Apart(Strict):
    """GPUs take turns in having one of two memories."""

    gpus = (xp.Device("device1"), xp.Device("device2"))


class Leak(Exception):
    """A result that is not an array of the backend; no case expects it."""


class Shown(np.ndarray[Any, Any]):
    """A result that was looked at before it was shown."""


class Adapter(Simulated):
    """refdist with arrays of array_api_strict."""

    name = "refdist (array_api_strict)"
    backend = "strict"

    def __init__(self) -> None:
        refdist.set_backend(self.backend)

    def array(self, value: Any, dtype: str | None) -> Any:
        array = super().array(value, dtype)
        if refdist.get_replica_context() is None or not refdist.has_strategy():
            array = refdist.get_strategy().extended.backend.put(array, devices.canonical("GPU:0"))
        return array if dtype is None else refdist.constant(array)

    def to_numpy(self, value: Any) -> Any:
        array = value.read_value() if isinstance(value, refdist.Variable) else value
        if type(array) not in (*Strict.array_types, Shown, int):
            raise Leak(f"{type(array).__name__} instead of an array of the backend")
        return super().to_numpy(value).view(Shown) if type(array) in Strict.array_types else value


class ApartAdapter(Adapter):
    """The same with two memories."""

    backend = "apart"
