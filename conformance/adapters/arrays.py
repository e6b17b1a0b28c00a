"""refdist with the arrays of a backend.

What an example makes outside replicas is on GPU:0 too, and an array that comes back from a device has to be one of the
backend's: one that hands NumPy's arrays through does not pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import refdist
import refdist.tf
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.examples import Answer, Program
from refdist.conformance.programs import size
from refdist.conformance.results import Result
from refdist.core import devices
from refdist.tf.texts import TextTensor

# The chapters whose results are on devices.  Other results may be on the host: rows of datasets that were not
# distributed, numbers drawn outside replicas, and all on workers without GPUs, which have one replica.
ON_DEVICES = {f"{chapter}.md" for chapter in ("all_reduce", "all_gather", "reduce", "gather", "run", "merge_call")}


class Leak(Exception):
    """A result that is not an array of the backend; its kind is one that no clause expects."""


class Placed:
    """The namespace `tf`, whose arrays are of the backend also outside replicas."""

    def __getattr__(self, name: str) -> Any:
        return getattr(refdist.tf, name)

    def constant(self, *args: object, **kwargs: object) -> Any:
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

    def run(self, program: Program) -> list[Answer]:
        on_devices = program.strategy.startswith(("Mirrored", "Central")) or size(program.strategy)[1] > 1
        self._looked_at = on_devices and program.file in ON_DEVICES
        return super().run(program)

    def observe(self, value: object) -> Result:
        if isinstance(value, TextTensor):
            return self.observe(value.numpy())
        if self._looked_at and isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
            raise Leak(f"an array of NumPy's instead of one of the backend's: {value}")
        return super().observe(value)
