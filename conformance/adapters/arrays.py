"""refdist with the arrays of a backend.

What an example makes outside replicas is on GPU:0 too, and every array that comes back is looked at.

A backend that handed NumPy's arrays through would otherwise pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import refdist
import refdist.tf
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.results import Result
from refdist.core import devices


class Leak(Exception):
    """A result that is not an array of the backend; its kind is one that no clause expects."""


class Placed:
    """The namespace `tf`, whose arrays are of the backend also outside replicas."""

    def __getattr__(self, name: str) -> Any:
        return getattr(refdist.tf, name)

    def constant(self, *args: Any, **kwargs: Any) -> Any:
        """`tf.constant`, on GPU:0 outside replicas."""
        array = refdist.constant(*args, **kwargs)
        outside = refdist.get_replica_context() is None or not refdist.has_strategy()
        return refdist.get_strategy().extended.backend.put(array, devices.canonical("GPU:0")) if outside else array


class Arrays(Simulated):
    """refdist on a backend.

    Attributes:
        backend: its name, as `refdist.set_backend` takes it.
    """

    backend = ""

    def __init__(self) -> None:
        super().__init__()
        refdist.set_backend(self.backend)
        self.tf = Placed()

    def observe(self, value: object) -> Result:
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
            raise Leak(f"an array of NumPy's instead of one of the backend's: {value}")
        return super().observe(value)
