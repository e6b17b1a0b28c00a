"""Finds programs in which each replica trains weights of its own, and no gradient is ever reduced.

While the check of types is on, it is noted where a replica subtracts from an array, in place, a value that is computed
of its rows, where it subtracts one from what it has made at that place in the step before (`w = w - rate * gradient`),
and where it updates a parameter of PyTorch whose gradient is such a value.  At the end of an epoch the
weights of all replicas are compared: a program that averages them by other means, outside replicas, has equal ones.
"""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Any

from refdist import journal
from refdist.array.convert import on_host
from refdist.array.replica_types import Frame, ReplicaType, own_write
from refdist.core import call_site, context_stack, remarks
from refdist.core.rules.replica_types import Of
from refdist.runtime import Field

_OWN = (Of.SUM, Of.MEAN, Of.DIFFERS)
_KEPT = 10_000  # arrays
_STEPS = 2  # an epoch of one step tells nothing


class _Writes:
    # What the replicas have written at one place of the program.
    __slots__ = ("code", "count", "kind", "made", "targets")

    def __init__(self, code: CodeType, kind: ReplicaType) -> None:
        self.code = code
        self.count = 0
        self.kind = kind
        self.targets: dict[int, weakref.ref[Any]] = {}
        self.made: dict[int, weakref.ref[Any]] = {}  # by their ids, what was not changed in place


_writes: Field[dict[tuple[int, int], _Writes]] = Field("where replicas have written weights of their own", dict)


def note(frame: Frame, target: Any, kind: ReplicaType, before: Any = None) -> None:
    """Notes that a replica has changed an array by a value with this type.

    Args:
        frame: of the program.
        target: the array or tensor.
        kind: of what changed it.
        before: what it was made of, where it was not changed in place.
    """
    replica = context_stack.frame().replica
    if kind.of not in _OWN or replica is None or journal.history.value:
        return
    here = id(frame.f_code), frame.f_lasti
    writes = _writes.value.get(here) or _writes.value.setdefault(here, _Writes(frame.f_code, kind))
    if before is not None:
        if len(writes.made) >= _KEPT:
            writes.made.clear()
        writes.made[id(target)] = weakref.ref(target)
        last = writes.made.pop(id(before), None)
        if last is None or last() is not before:
            return
        writes.count += 1  # that of the step before
    writes.count += 1
    writes.targets[replica.replica_id_in_sync_group] = weakref.ref(target)


def remark(replicas: int) -> None:
    """Warns of what was noted, where all replicas of this worker have weights that differ; at the end of an epoch."""
    if journal.history.value or not _writes.value:
        return
    for (_, at), writes in [*_writes.value.items()]:  # copies, because another thread may train meanwhile
        targets: list[Any] = [target() for target in [*writes.targets.values()]]
        if len(targets) < replicas or writes.count < _STEPS * replicas or any(target is None for target in targets):
            continue
        arrays = [on_host(target.detach() if hasattr(target, "detach") else target) for target in targets]
        if len({array.tobytes() for array in arrays if array is not None}) < replicas:
            continue
        place = call_site.of_one(writes.code, at)
        remarks.make(
            "RD52", (place,), "training", f"each of {replicas} replicas changes weights of its own, by "
            f"{writes.kind.meaning}, and they differ by now: no replica has met another, so nothing was ever reduced. "
            f"{' -> '.join([*writes.kind.chain(), f'a write ({place})'])}")
    _writes.value.clear()


own_write.value = note
