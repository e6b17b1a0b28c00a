"""Finds programs in which each replica trains weights of its own, and no gradient is ever reduced.

While the check of types is on, it is noted where a replica subtracts from an array, in place, a value that is computed
of its rows, where it subtracts one from what it has made at that place in the step before (`w = w - rate * gradient`),
and where it updates a parameter of PyTorch whose gradient is such a value.  A sum (`w + update`) may be a metric, or
gradients that are accumulated: it counts where a gradient of JAX's took part in what is added, and the replica has
computed of its rows with what it is added to.  At the end of an epoch the weights of all replicas are compared: a
program that averages them by other means, outside replicas, has equal ones.
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

OWN = (Of.SUM, Of.MEAN, Of.BOTH, Of.DIFFERS)
_KEPT = 10_000  # arrays
_STEPS = 2  # an epoch of one step tells nothing


_Place = tuple[int, int]


class _Writes:
    # What the replicas have written at one place of the program.
    __slots__ = ("code", "count", "kind", "targets")

    def __init__(self, code: CodeType, kind: ReplicaType) -> None:
        self.code = code
        self.count = 0
        self.kind = kind
        self.targets: dict[int, weakref.ref[Any]] = {}


class _Made:
    # An array that was not changed in place, but made of another one.
    __slots__ = ("array", "computed_with", "place")

    def __init__(self, array: Any, place: _Place) -> None:
        self.array = weakref.ref(array)
        self.place = place
        self.computed_with = False


_writes: Field[dict[_Place, _Writes]] = Field("where replicas have written weights of their own", dict)
_made: Field[dict[int, _Made]] = Field("the weights of their own that replicas have made, by their ids", dict)


def note(frame: Frame, target: Any, kind: ReplicaType, before: Any = None, is_difference: bool = True) -> None:
    """Notes that a replica has changed an array by a value with this type.

    Args:
        frame: of the program.
        target: the array or tensor.
        kind: of what changed it.
        before: what it was made of, where it was not changed in place.
        is_difference: whether the value was subtracted; otherwise it counts where `before` was computed with.
    """
    replica = context_stack.frame().replica
    if (is_difference and kind.of not in OWN) or replica is None or journal.history.value:
        return
    here = id(frame.f_code), frame.f_lasti
    writes = _writes.value.get(here) or _writes.value.setdefault(here, _Writes(frame.f_code, kind))
    if before is not None:
        made = _made.value
        if len(made) >= _KEPT:
            made.clear()
        last = made.pop(id(before), None)
        made[id(target)] = _Made(target, here)
        if last is None or last.place != here or last.array() is not before or not (
                is_difference or last.computed_with):
            return
        writes.count += 1  # that of the step before
    writes.count += 1
    writes.targets[replica.replica_id_in_sync_group] = weakref.ref(target)


def computed_with(array: Any) -> None:
    """Notes that a replica computes with an array and its rows."""
    made = _made.value.get(id(array)) if _made.value else None
    if made is not None and made.array() is array:
        made.computed_with = True


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
        meaning = writes.kind.meaning if writes.kind.of in OWN else "what it computes of its rows"
        remarks.make(
            "RD52", (place,), "training", f"each of {replicas} replicas changes weights of its own, by "
            f"{meaning}, and they differ by now: no replica has met another, so nothing was ever reduced. "
            f"{' -> '.join([*writes.kind.chain(), f'a write ({place})'])}")
    _writes.value.clear()
    _made.value.clear()


own_write.value = note
