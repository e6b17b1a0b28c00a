"""The stack of contexts: where in a program the running code is, in a replica, a scope or an update.

Nearly every call of tf.distribute depends on whether it is made in a replica, in a scope, in an update or outside all
of these: what `assign` does, which copy of a variable is read, whether `run` is allowed.  The tables (`rules`) say how,
and the frame on top of this stack says where in a table to look.  Strategies and replica contexts push frames; the
layers below them read the top.

The stack is a linked list of frames that never change.  That is what makes lock step cheap: replicas take turns in
one thread, each in the middle of its own scopes, and the whole stack of a waiting replica is one reference, which
`rendezvous` keeps in a local variable and puts back.  Were the stack one list that is pushed and popped, each switch
would have to take part of it out and put another part in.

Invariants:

* The top alone answers every question.  A new frame therefore repeats what it does not change of the frame below: the
  device, the creators of variables, the drafts.
* Frames are left in the reverse order; leaving one that is not the top is an error (RD09).  A `with` block of one
  replica cannot end in another, which has a stack of its own.
* The bottom is one frame for all threads, without a strategy: there the default strategy is current.
* A situation is relative to a strategy: the same frame is "replica" for the strategy that runs, and "other replica" for
  all others.
* `run` is None where a replica is alone.  Its collectives are carried out at once, without a rendezvous.
* `drafts` are those of the innermost update, also inside the replicas and merge calls within it.

The top is a field of a thread-local object of this module and not of `runtime.process`: it belongs to a thread, and
every call reads it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from refdist import errors
from refdist.core.drafts import Drafts
from refdist.core.interfaces import Replica, Strategy
from refdist.core.rules.table import Word

if TYPE_CHECKING:
    from refdist.core import lockstep

Creator = Callable[..., object]


class Situation(Word):
    """In which of six situations a call on a strategy S is made; the columns of the tables in rules/.

    Two more are columns of some tables: DEFAULT is OUTSIDE for calls on the default strategy, which is current there;
    a LONE_REPLICA of another strategy is one that has no second one beside it.
    """

    OUTSIDE = "outside"
    CROSS = "cross"
    UPDATE = "update"
    REPLICA = "replica"
    OTHER_CROSS = "other cross"
    OTHER_REPLICA = "other replica"
    DEFAULT = "default"
    LONE_REPLICA = "lone replica"


# Also as names of this module: Python 3.11 finds the members of an Enum by a call.
OUTSIDE, CROSS, UPDATE, REPLICA, OTHER_CROSS, OTHER_REPLICA, DEFAULT, LONE_REPLICA = Situation
SITUATIONS = (OUTSIDE, CROSS, UPDATE, REPLICA, OTHER_CROSS, OTHER_REPLICA)


class Frame:
    """One entry of the stack.

    Attributes:
        strategy: the current strategy, or None for the default one.
        kind: OUTSIDE, CROSS, REPLICA or UPDATE.
        replica: the ReplicaContext when kind is REPLICA.
        replica_id: the replica (REPLICA) or the copy being updated (UPDATE).
        run: the lock step that this replica takes part in, None when it is alone.
        device: the innermost `device()` scope, canonical, or "".
        creators: variable creators, outermost first.
        drafts: what the update around this frame has written so far, None outside updates.
    """

    __slots__ = ("creators", "device", "drafts", "kind", "parent", "replica", "replica_id", "run", "strategy")

    def __init__(self, parent: Frame | None, strategy: Strategy | None, kind: Situation, replica: Replica | None = None,
                 replica_id: int | None = None, run: lockstep.LockstepRun | None = None, device: str = "",
                 creators: tuple[Creator, ...] = (), drafts: Drafts | None = None) -> None:
        self.parent = parent
        self.strategy = strategy
        self.kind = kind
        self.replica = replica
        self.replica_id = replica_id
        self.run = run
        self.device = device
        self.creators = creators
        self.drafts = drafts

    def with_device(self, device: str) -> Frame:
        return Frame(self, self.strategy, self.kind, self.replica, self.replica_id, self.run, device,
                     self.creators, self.drafts)

    def with_creator(self, creator: Creator) -> Frame:
        return Frame(self, self.strategy, self.kind, self.replica, self.replica_id, self.run, self.device,
                     (*self.creators, creator), self.drafts)


BOTTOM = Frame(None, None, OUTSIDE)


class _State(threading.local):
    top: Frame = BOTTOM


state = _State()


def frame() -> Frame:
    """The top of this thread's stack."""
    return state.top


@contextmanager
def pushed(new: Frame) -> Iterator[Frame]:
    """Makes `new` the top for the length of a `with` block."""
    old = state.top
    state.top = new
    try:
        yield new
    finally:
        state.top = old


class Scope:
    """A context manager that pushes a frame; it may be entered again while it is open.

    Subclasses enter by `_push`, and say what they are.
    """

    __slots__ = ("_entered",)

    def __init__(self) -> None:
        self._entered: list[Frame] = []

    def _push(self, new: Frame) -> None:
        self._entered.append(new)
        state.top = new

    def _described(self) -> str:
        """What messages call it."""
        raise errors.InternalError("abstract")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        attempted = f"leaving {self._described()}"
        if not self._entered:
            raise errors.error("RD09", attempted, "it is not open", "Use a `with` block.")
        frame = self._entered[-1]
        if state.top is not frame or frame.parent is None:  # it stays open, so that it can be left later
            raise errors.error("RD09", attempted, "a scope that was entered later is still open",
                               "Leave scopes in the reverse order, best by nested `with` blocks.")
        self._entered.pop()
        state.top = frame.parent


def situation(strategy: Strategy | None) -> Situation:
    """Which of SITUATIONS a call on `strategy` is made in."""
    top = state.top
    if top.kind == OUTSIDE:
        return OUTSIDE
    if top.strategy is strategy:
        return top.kind
    return OTHER_REPLICA if top.kind == REPLICA else OTHER_CROSS


def describe() -> str:
    """Where we are, in words for an error message."""
    top = state.top
    if top.strategy is None:
        return "outside any scope"
    name = type(top.strategy).__name__
    if top.replica is not None:
        number = top.replica.replica_id_in_sync_group
        return f"in replica {number} of {top.strategy.num_replicas_in_sync} of {name}"
    if top.kind == UPDATE:
        return f"in an update of copy {top.replica_id} under {name}"
    return f"in the cross-replica context of {name}"
