"""Arrays of a backend, or of a guest, between workers: they travel through the memory of the host.

A transport carries NumPy arrays, and a program's arrays are its backend's, or PyTorch's or JAX's.  So strategies of
several workers put `ThroughHost` around the transport: every verb takes arrays of any kind, hands NumPy's to the
transport, and gives back arrays of the kind that it was given.  Where all are NumPy's it costs a look at their types.
A library that can look at NumPy's memory, as PyTorch, takes over that of a result which no other worker holds.
A backend that has a faster way between its devices (NCCL) puts a transport of its own around this one, and leaves to it
what cannot go that way.

Results are on the first device of this worker; the caller copies them to the devices of the other replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from refdist import nest
from refdist.array.backend import named
from refdist.array.convert import Library, frozen, library_of, to_numpy
from refdist.array.types import Array
from refdist.core.agreement import CollectiveCall
from refdist.workers.transport import Columns, HostArray, Transport


def through_host(transport: Transport, devices: Sequence[str]) -> Transport:
    """The transport for arrays of any library.

    Args:
        transport: carries NumPy arrays and compares calls.
        devices: the device of each of this worker's replicas.
    """
    return ThroughHost(transport, devices[0])


def is_foreign(value: object) -> TypeGuard[Any]:
    """Whether a value is an array of a library other than NumPy."""
    return type(value) is not np.ndarray and library_of(value) is not None


def _numpy_alone(columns: Columns) -> bool:
    for column in columns:
        for part in column:
            if type(part) is not np.ndarray:
                return False
    return True


@dataclass(frozen=True)
class _Staged:
    """In an object that travels: an array that another library's has become."""

    array: HostArray
    library: str


class ThroughHost(Transport):
    """Carries arrays of other libraries over a transport for NumPy's; `device` is where they are put."""

    def __init__(self, inner: Transport, device: str) -> None:
        self._inner = inner
        self._device = device
        self.rank, self.size, self.timeout = inner.rank, inner.size, inner.timeout

    def all_gather_object(self, call: CollectiveCall, value: object) -> list[Any]:
        def staged(leaf: object) -> object:
            library = library_of(leaf)
            return leaf if library is None else _Staged(to_numpy(leaf), library.name)

        def back(leaf: object) -> object:
            return self._put(leaf.array, named(leaf.library)) if isinstance(leaf, _Staged) else leaf

        if not any(map(is_foreign, nest.flatten(value))):
            return self._inner.all_gather_object(call, value)
        gathered = self._inner.all_gather_object(call, nest.map_structure(staged, value))
        return [nest.map_structure(back, value) for value in gathered]

    def all_reduce(self, call: CollectiveCall, columns: Columns, ordered: bool = True) -> list[Any]:
        if _numpy_alone(columns):
            return self._inner.all_reduce(call, columns, ordered)
        return self._back(self._inner.all_reduce(call, _on_host(columns), ordered), columns)

    def all_gather(self, call: CollectiveCall, columns: Columns, axis: int) -> list[Any]:
        if _numpy_alone(columns):
            return self._inner.all_gather(call, columns, axis)
        return self._back(self._inner.all_gather(call, _on_host(columns), axis), columns)

    def broadcast(self, call: CollectiveCall, array: Array) -> Any:
        library = library_of(array)
        value = self._inner.broadcast(call, to_numpy(array))
        return value if library is None else self._put(value, library)

    def _back(self, results: Sequence[Array], columns: Columns) -> list[Any]:
        libraries = [next(filter(None, map(library_of, column)), None) for column in columns]
        return [result if library is None else self._taken(result, library) if self._is_own(result, column)
                else self._put(result, library)
                for result, library, column in zip(results, libraries, columns, strict=True)]

    def _is_own(self, result: Array, column: Sequence[Array]) -> bool:
        return not self._inner.shares_results and not any(
            np.may_share_memory(to_numpy(result), to_numpy(part)) for part in column)

    def _taken(self, array: Any, library: Library) -> Any:
        with suppress(ValueError):  # memory that nobody can write to is copied where a library needs that
            array.flags.writeable = True
        return frozen(library.take(array, self._device))

    def _put(self, array: Array, library: Library) -> Any:
        return frozen(library.put(array, self._device))


def _on_host(columns: Columns) -> list[list[Any]]:
    return [[to_numpy(part) for part in column] for column in columns]
