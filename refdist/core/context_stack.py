"""The stack of contexts: where in a program the running code is, in a replica, a scope or an update.

Nearly every call of tf.distribute depends on whether it is made in a replica, in a scope, in an update or outside all
of these: what `assign` does, which copy of a variable is read, whether `run` is allowed.  The tables (`rules`) say how,
and the frame on top of this stack says where in a table to look.  Strategies and replica contexts push frames; the
layers below them read the top.

The stack is a linked list of frames that never change, and its top is a context variable.  Replicas take turns in one
thread, each in the middle of its own scopes: each has a `contextvars.Context` of its own (`inherited`), and so its own
stack, of which a switch needs to know nothing.  A thread that a program starts has no frames.  Code that is given a
copy of a context (`asyncio.to_thread`, `copy_context().run`) has those of the copy.

Invariants:

* The top alone answers every question of the rules.  A new frame therefore repeats what it does not change of the frame
  below: the device, the creators of variables, the drafts.  Only a scope of TPUStrategy for a logical device, which
  other strategies do not have, is looked for further down.
* Frames are left in the reverse order; leaving one that is not the top is an error (RD09).  A `with` block of one
  replica cannot end in another, which has a stack of its own.
* The bottom is one frame for all threads, without a strategy: there the default strategy is current.
* A situation is relative to a strategy: the same frame is "replica" for the strategy that runs, and "other replica" for
  all others.
* `run` is None where a replica is alone.  Its collectives are carried out at once, without a rendezvous.
* `drafts` are those of the update around the frame; there is one at most (`rules.calls.CALLS`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
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


# Also constants of this module, because looking up a member of an Enum is a call in Python 3.11.
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


top: ContextVar[Frame] = ContextVar("top of the context stack", default=BOTTOM)

# The top of the stack of the code that runs.  Nearly every call reads it, so there is no function around it.
frame: Callable[[], Frame] = top.get


class pushed:  # noqa: N801 - written like a function, as contextlib.suppress is
    """Makes a frame the top for the length of a `with` block."""

    __slots__ = ("_new", "_old")

    def __init__(self, new: Frame) -> None:
        self._new = new

    def __enter__(self) -> Frame:
        self._old = top.get()
        top.set(self._new)
        return self._new

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is not None:
            errors.explain_no_replica(error)
        top.set(self._old)


class Scope:
    """A context manager that pushes a frame; it may be entered again while it is open.

    Subclasses enter by `_push`, and say what they are.
    """

    __slots__ = ("_entered",)

    def __init__(self) -> None:
        self._entered: list[Frame] = []

    def _push(self, new: Frame) -> None:
        self._entered.append(new)
        top.set(new)

    def _described(self) -> str:
        """What messages call it."""
        raise errors.InternalError("abstract")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        errors.explain_no_replica(error)
        attempted = f"leaving {self._described()}"
        if not self._entered:
            raise errors.error("RD09", attempted, "it is not open", "Use a `with` block.")
        frame = self._entered[-1]
        if top.get() is not frame or frame.parent is None:  # an error; the scope stays open and can be left later
            raise errors.error("RD09", attempted, "a scope that was entered later is still open",
                               "Leave scopes in the reverse order, best by nested `with` blocks.")
        self._entered.pop()
        top.set(frame.parent)


def situation(strategy: Strategy | None) -> Situation:
    """Which of SITUATIONS a call on `strategy` is made in."""
    here = frame()
    if here.kind == OUTSIDE:
        return OUTSIDE
    if here.strategy is strategy:
        return here.kind
    return OTHER_REPLICA if here.kind == REPLICA else OTHER_CROSS


def describe() -> str:
    """Where we are, in words for an error message."""
    here = frame()
    if here.strategy is None:
        return "outside any scope"
    name = type(here.strategy).__name__
    if here.replica is not None:
        number = here.replica.replica_id_in_sync_group
        return f"in replica {number} of {here.strategy.num_replicas_in_sync} of {name}"
    if here.kind == UPDATE:
        return f"in an update of copy {here.replica_id} under {name}"
    return f"in the cross-replica context of {name}"
