"""Arrays on GPUs between workers: over NCCL where every rank has a GPU of its own, otherwise through the host.

The transport underneath compares the calls before anything moves, because NCCL has no limit of time: a rank that
enters a collective which another one never makes would wait without end.  Which way an array takes, and whether a new
communicator is needed after an error, is agreed on in that same exchange, so all workers decide alike.  The
communicator is connected at the first call that has arrays on GPUs; strategies over the same GPUs share it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from refdist.array.types import Array
from refdist.backends.gpu import nccl
from refdist.backends.gpu.cupy_types import DeviceArray
from refdist.core.agreement import CollectiveCall
from refdist.workers.staging import is_foreign
from refdist.workers.transport import Columns, Transport

if TYPE_CHECKING:
    from refdist.backends.gpu.backend import GPU

Shapes = list[list[tuple[int, ...]]]  # of each column, of each of a worker's replicas


class DeviceTransport(Transport):
    """Carries GPU arrays between workers over another transport.

    Args:
        backend: the GPUs of this worker.
        inner: takes arrays through the host and compares calls.
        devices: the device of each of this worker's replicas.
    """

    def __init__(self, backend: GPU, inner: Transport, devices: Sequence[str]) -> None:
        self._backend = backend
        self._inner = inner
        self._devices = list(devices)
        self.rank, self.size, self.timeout = inner.rank, inner.size, inner.timeout
        self._communicator: nccl.Communicator | None = None
        self._asked = False
        # The rank of every replica of all workers, and of those here.
        self._owners: list[int] = []
        self._mine: list[int] = []

    def all_gather_object(self, call: CollectiveCall, value: object) -> list[Any]:
        return self._inner.all_gather_object(call, value)

    def all_reduce(self, call: CollectiveCall, columns: Columns, ordered: bool = True) -> list[Any]:
        communicator, direct, _ = self._agree(call, columns, None)
        results: list[Any] = [None] * len(columns)
        staged = [number for number in range(len(columns)) if number not in direct]
        if staged:
            totals = self._inner.all_reduce(call, [columns[number] for number in staged], ordered)
            for number, total in zip(staged, totals, strict=True):
                results[number] = total
        if communicator is not None and direct:
            there = [_on_gpus(columns[number]) for number in direct]
            totals = nccl.all_reduce(self._backend, communicator, there, self._owners, self._mine,
                                     ordered and self._backend.ordered)
            for number, total in zip(direct, totals, strict=True):
                results[number] = total[0]
        return results

    def all_gather(self, call: CollectiveCall, columns: Columns, axis: int) -> list[Any]:
        own_shapes = [[part.shape for part in column] for column in columns]
        communicator, direct, shapes = self._agree(call, columns, own_shapes)
        if communicator is None or len(direct) < len(columns):
            return self._inner.all_gather(call, columns, axis)
        results = []
        for number, column in enumerate(columns):
            every = [shape for worker in shapes for shape in worker[number]]
            gathered = nccl.gather(self._backend, communicator, _on_gpus(column), self._mine, self._owners, every)
            results.append(self._backend.concatenate(gathered[self._mine[0]], axis))
        return results

    def broadcast(self, call: CollectiveCall, array: Array) -> Any:
        return self._inner.broadcast(call, array)

    # Connecting.

    def _agree(self, call: CollectiveCall, columns: Columns,
               shapes: Shapes | None) -> tuple[nccl.Communicator | None, list[int], list[Shapes]]:
        # The communicator, the columns that go over it, and what each worker says; the same on every worker.
        here = [len(column) == len(self._devices) and all(map(is_foreign, column)) for column in columns]
        usable = not self._asked or self._communicator is None or not self._communicator.broken
        answers = self._inner.all_gather_object(call, (usable, here, shapes))
        direct = [number for number in range(len(columns)) if all(flags[number] for _, flags, _ in answers)]
        if not all(usable for usable, _, _ in answers):
            if self._communicator is not None and not self._communicator.broken:
                self._communicator.give_up()
            self._asked = False
        if direct and not self._asked:
            self._communicator = self._connect(call)
            self._asked = True
        if self._communicator is None:
            return None, [], []
        return self._communicator, direct, [of_worker for _, _, of_worker in answers]

    def _connect(self, call: CollectiveCall) -> nccl.Communicator | None:
        backend = self._backend
        gpus = [backend.gpu_of(device) for device in self._devices]
        own_gpus = list(dict.fromkeys(gpus))
        library = nccl.library()
        known = None
        if library is not None and None not in own_gpus:
            host = os.environ.get("NCCL_HOSTID") or socket.gethostname()  # as NCCL tells hosts apart
            known = [(host, backend.pci_bus_id(gpu)) for gpu in own_gpus if gpu is not None]
        workers = self._inner.all_gather_object(call, (known, [own_gpus.index(gpu) for gpu in gpus]))
        places = [place for worker, _ in workers for place in worker or [None]]
        if library is None or None in places or len(set(places)) < len(places):
            return None  # NCCL refuses two ranks on one GPU
        kept = backend.connected(places)
        answers = self._inner.all_gather_object(call, (library.get_unique_id() if self.rank == 0 else None, bool(kept)))
        starts = np.cumsum([0, *(len(worker) for worker, _ in workers)]).tolist()
        self._owners = [start + i for start, (_, replicas) in zip(starts, workers, strict=False) for i in replicas]
        self._mine = [starts[self.rank] + i for i in workers[self.rank][1]]
        if all(has_kept for _, has_kept in answers):
            return kept
        here = [(starts[self.rank] + i, gpu) for i, gpu in enumerate(own_gpus) if gpu is not None]
        return backend.connect(places, here, unique_id=answers[0][0], limit=self._inner.timeout)


def _on_gpus(column: Sequence[Array]) -> list[DeviceArray]:
    # All of them, as `_agree` has found.
    return [part for part in column if is_foreign(part)]
