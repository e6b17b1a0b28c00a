"""The plan of a strategy with several workers: the sums are the transport's, over the replicas of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refdist.array.backend import Backend
from refdist.array.collectives import Part
from refdist.core.agreement import CollectiveCall
from refdist.core.rules.options import ReduceOp
from refdist.strategies.cross_device_ops import Destinations
from refdist.strategies.plans import ReductionToOneDevice
from refdist.workers import transport as transports
from refdist.workers.transport import Transport


class AcrossWorkers(ReductionToOneDevice):
    """Reduces over all workers; inside this one the result goes the way of ReductionToOneDevice.

    The contributions of a worker are not added up before they leave it: see `workers/transport.py`.

    Args:
        transport: between the workers.
        count: how many replicas all workers have together.
        ordered: see `Transport.all_reduce`.
    """

    def __init__(self, transport: Transport, count: int, ordered: bool) -> None:
        super().__init__()
        self._transport = transport
        self._count = count
        self._ordered = ordered

    def carry_out(self, backend: Backend, op: ReduceOp, leaves: Sequence[Sequence[Part]], sources: Sequence[str],
                  target: Destinations, call: CollectiveCall) -> list[list[Any]]:
        totals = transports.reduce(self._transport, call, op, leaves, self._count, self._ordered)
        self.record(leaves, sources, target)
        return [target.copies(backend, total) for total in totals]
