"""Arrays of a backend between workers: they travel through the memory of the host.

A transport carries NumPy arrays, and a program's arrays are its backend's.  So strategies of several workers put
`ThroughHost` around the transport: every verb takes arrays of either kind, hands NumPy's to the transport, and gives
back arrays of the backend where it was given such.  A backend that has a faster way between its devices (NCCL) puts a
transport of its own around this one, and leaves to it what cannot go that way.

Results are on the first device of this worker; the caller copies them to the devices of the other replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from refdist import nest
from refdist.array.backend import Backend
from refdist.array.convert import array_types, frozen, to_numpy
from refdist.array.transport import Columns, HostArray, Transport
from refdist.array.types import Array
from refdist.core.agreement import CollectiveCall


def through_host(backend: Backend, transport: Transport, devices: Sequence[str]) -> Transport:
    """The transport for arrays of a backend; itself where those are NumPy's.

    Args:
        backend: whose arrays a program has.
        transport: carries NumPy arrays and compares calls.
        devices: the device of each of this worker's replicas.
    """
    return ThroughHost(backend, transport, devices[0]) if backend.array_types else transport


def is_foreign(value: object) -> TypeGuard[Any]:
    """Whether a value is an array of a library other than NumPy."""
    return array_types.value.get(type(value)) is not None


@dataclass(frozen=True)
class _Staged:
    """In an object that travels: an array that another library's has become."""

    array: HostArray


class ThroughHost(Transport):
    """Carries a backend's arrays over a transport for NumPy's; `device` is where they are put."""

    def __init__(self, backend: Backend, inner: Transport, device: str) -> None:
        self._backend = backend
        self._inner = inner
        self._device = device
        self.rank, self.size, self.timeout = inner.rank, inner.size, inner.timeout

    def all_gather_object(self, call: CollectiveCall, value: object) -> list[Any]:
        def staged(leaf: object) -> object:
            return _Staged(to_numpy(leaf)) if is_foreign(leaf) else leaf

        def back(leaf: object) -> object:
            return self._put(leaf.array) if isinstance(leaf, _Staged) else leaf

        found = self._inner.all_gather_object(call, nest.map_structure(staged, value))
        return [nest.map_structure(back, one) for one in found]

    def all_reduce(self, call: CollectiveCall, columns: Columns, ordered: bool = True) -> list[Any]:
        return self._back(self._inner.all_reduce(call, _on_host(columns), ordered), columns)

    def all_gather(self, call: CollectiveCall, columns: Columns, axis: int) -> list[Any]:
        return self._back(self._inner.all_gather(call, _on_host(columns), axis), columns)

    def broadcast(self, call: CollectiveCall, array: Array) -> Any:
        found = self._inner.broadcast(call, to_numpy(array))
        return self._put(found) if is_foreign(array) else found

    def _back(self, results: Sequence[Array], columns: Columns) -> list[Any]:
        return [self._put(result) if any(map(is_foreign, column)) else result
                for result, column in zip(results, columns, strict=True)]

    def _put(self, array: Array) -> Any:
        return frozen(self._backend.put(array, self._device))


def _on_host(columns: Columns) -> list[list[Any]]:
    return [[to_numpy(part) for part in column] for column in columns]
