"""What lower layers see of the objects of higher ones.

Imports point down, and the objects on the context stack come from above: strategies, the contexts of their replicas,
variables that an update has written.  Each is declared here with exactly what the layers below it ask; where arrays
are concerned, in `variables/interfaces.py`.  The classes above fit by having these members, and mypy compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Layout:
    """Which replicas of a strategy run on which worker; every worker has the same number of them.

    Attributes:
        devices: canonical names of the devices of this worker's replicas, in replica order.
        worker: the number of this worker.
        workers: how many workers there are.
        count: how many replicas run on this worker.
        first: the number of the first of them.
        total: how many replicas run on all workers.

    >>> layout = Layout(("GPU:0", "GPU:1"), worker=1, workers=3)
    >>> layout.count, layout.first, layout.total
    (2, 2, 6)
    >>> str(layout)
    '6 replicas on 3 workers'
    """

    devices: tuple[str, ...]
    worker: int = 0
    workers: int = 1
    count: int = field(init=False)
    first: int = field(init=False)
    total: int = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.devices)
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "first", self.worker * count)
        object.__setattr__(self, "total", self.workers * count)

    def __str__(self) -> str:
        return f"{self.total} replica{'s' * (self.total != 1)} on {self.workers} worker{'s' * (self.workers != 1)}"


class Strategy(Protocol):
    """The part of a strategy that this layer, which knows no arrays, uses."""

    @property
    def num_replicas_in_sync(self) -> int: ...


class Replica(Protocol):
    """The part of a ReplicaContext that this layer uses."""

    @property
    def replica_id_in_sync_group(self) -> int: ...

    def merge_call(self, merge_fn: Callable[..., object], args: Sequence[object] = (),
                   kwargs: Mapping[str, object] | None = None) -> Any: ...
