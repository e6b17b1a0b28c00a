"""What a collective call says about itself, and whether all replicas make the same one.

Replicas compare their calls at a rendezvous in lock step, workers through their transport.  The kind of call, its
signature and its call site are compared.  If several differ, the one that explains the others is reported: a different
kind of call first, then a different place in the program, then the first field of the signature that differs.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from refdist import errors
from refdist.core import call_site
from refdist.core.rules.advice import AMONG_WORKERS, ONE_LIBRARY, ONE_SHAPE
from refdist.core.rules.calls import MISMATCH, Difference, combining

if TYPE_CHECKING:
    from refdist.core.rules.options import ReduceOp


class Signature(NamedTuple):
    """What a call says about itself, equal on all replicas; None where it says nothing.

    Attributes:
        target: the variable that is written, the function that is called.
        op: the ReduceOp.
        axis: the axis, or what else has to be the same.
        structure: of a nested value; `libraries`, `dtypes` and `shapes` are then tuples with an entry for each leaf.
        libraries: whose array it is: "NumPy", "torch".
        dtypes: of the array.
        shapes: of the array; None for a dimension that may differ.
    """

    target: object = None
    op: ReduceOp | None = None
    axis: object = None
    structure: object = None
    libraries: object = None
    dtypes: object = None
    shapes: object = None


# The fields of a signature, in the order in which differences are reported.
FIELDS = {"target": Difference.TARGET, "op": Difference.REDUCE_OP, "axis": Difference.AXIS,
          "structure": Difference.STRUCTURE, "libraries": Difference.LIBRARY, "dtypes": Difference.DTYPE,
          "shapes": Difference.SHAPE}
_OF_LEAVES = (Difference.LIBRARY, Difference.DTYPE, Difference.SHAPE)
NOTHING_TO_COMPARE = Signature()


# Of one array.  Replicas that contribute the same kind of array share one object, which is made once, compared first by
# identity, and one for the garbage collector.
@functools.lru_cache(maxsize=1024)
def signature_of(libraries: Hashable, dtypes: Hashable, shapes: Hashable) -> Signature:
    """What is compared where replicas contribute one array or IndexedSlices each."""
    return Signature(libraries=libraries, dtypes=dtypes, shapes=shapes)


def _nothing(calls: list[CollectiveCall]) -> Sequence[Any]:
    raise errors.InternalError("this call only says what is compared")


class CollectiveCall:
    """What a replica hands over at a rendezvous.

    Attributes:
        kind: what was called, for example "all_reduce".
        signature: what is compared between replicas.
        contribution: whatever `execute` needs.
        execute: called once, with the calls of all replicas in replica order; returns one answer each.
        call_site: the places in the user's program that led to the call, innermost first.
    """

    __slots__ = ("call_site", "contribution", "execute", "kind", "signature")

    def __init__(self, kind: str, signature: Signature, contribution: object = None,
                 execute: Callable[[list[CollectiveCall]], Sequence[object]] = _nothing,
                 site: call_site.Site | None = None) -> None:
        self.kind = kind
        self.signature = signature
        self.contribution: Any = contribution
        self.execute = execute
        # The site begins at the caller of the function that makes this object.
        self.call_site = call_site.of(sys._getframe(2)) if site is None else site

    @property
    def line(self) -> str:
        """The place of the call as "file:line", "" where it is not known."""
        return str(self.call_site[0]) if self.call_site else ""

    def __str__(self) -> str:
        return described(self.kind, self.line)


class Described(Protocol):
    """The part of a collective call that is compared with the other replicas' or workers' calls."""

    @property
    def kind(self) -> str: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def call_site(self) -> call_site.Site: ...


contribution_of = operator.attrgetter("contribution")


def described(kind: str, place: str) -> str:
    """A call and its place for messages: "all_reduce (a.py:3)"; the place is "" where no line is known."""
    return f"{kind} ({place})" if place else kind


def compare(calls: Sequence[Described], number: int = 0, unit_name: str = "replica") -> None:
    """Raises unless all replicas made the same kind of call, with the same signature and call site.

    Raises:
        RD02: kinds or targets differ.  RD03: reduce op or axis.  RD04: shape.  RD05: dtype.
        RD06: the same call at another source line.  RD21: structure.
    """
    first = calls[0]
    kind, signature, site = first.kind, first.signature, first.call_site
    for other in calls:
        if other.call_site != site or other.kind != kind or other.signature != signature:
            raise _difference(calls, number, unit_name)


def _difference(calls: Sequence[Described], number: int, unit_name: str) -> errors.RefdistError:
    # Different call sites are reported first, because other differences follow from them.
    kind = calls[0].kind
    sites = list(dict.fromkeys(call.call_site for call in calls))
    place_of = dict(zip(sites, call_site.tell_apart(sites), strict=True))
    places = [place_of[call.call_site] for call in calls]
    if any(call.kind != kind for call in calls):
        texts = [f"at {described(call.kind, place)}" for call, place in zip(calls, places, strict=True)]
        return mismatch(Difference.CALL, kind, f"rendezvous of all {unit_name}s", grouped(texts, number, unit_name),
                        unit_name)
    field, values = _first_field([call.signature for call in calls])
    if len(sites) > 1:
        differing = grouped([f"at {place}" for place in places], number, unit_name)
        if field is not None:
            differing += f"; the {field.value} differs too: {', '.join(dict.fromkeys(values))}"
        return mismatch(Difference.CALL_SITE, kind, kind, differing, unit_name)
    assert field is not None  # otherwise the calls would be equal
    label = "" if field is Difference.TARGET else f"{field.value} "
    differing = grouped([f"with {label}{value}" for value in values], number, unit_name)
    on_tpus = kind == "all_gather" and field is Difference.SHAPE and _is_whole(calls[0].signature.shapes)
    return mismatch(field, kind, described(kind, places[0]), differing, unit_name, ONE_SHAPE if on_tpus else "")


def _is_whole(shapes: Any) -> bool:
    # Whether all dimensions of the arrays must agree, including the one along which they are gathered.
    return not any(None in shape for shape in shapes)


def mismatch(what: Difference, kind: str, attempted: str, found: str, unit_name: str,
             fix: str = "") -> errors.RefdistError:
    """The error for replicas, or workers, that differ in `what` in a call of this kind."""
    code = MISMATCH[what][combining(kind)].code
    if what is Difference.LIBRARY:
        fix = ONE_LIBRARY
    return errors.error(code, attempted, found,
                        fix or (AMONG_WORKERS.get(code, "") if unit_name == "worker" else ""))


def _first_field(signatures: Sequence[Signature]) -> tuple[Difference | None, list[str]]:
    # The first field that differs, and its text for each call; None if all agree.
    for name, field in FIELDS.items():
        values = [getattr(signature, name) for signature in signatures]
        if any(value != values[0] for value in values):
            if field not in _OF_LEAVES or not isinstance(signatures[0].dtypes, tuple):
                return field, [shown(value) for value in values]
            leaf, column = next((i, column) for i, column in enumerate(zip(*values, strict=True))
                                if any(value != column[0] for value in column))
            of = f" in leaf {leaf}" if len(values[0]) > 1 else ""
            return field, [f"{shown(value)}{of}" for value in column]
    return None, []


def shown(value: object) -> str:
    """A field of a signature for messages."""
    return str(getattr(value, "name", value))


_GROUPS = 4


def grouped(texts: Sequence[str | None], number: int, unit_name: str) -> str:
    """For a message, groups equal texts: "replicas 0, 1 at a.py:9; replica 2 at a.py:10"; None is left out."""
    groups: dict[str, list[int]] = {}
    for i, text in enumerate(texts, number):
        if text is not None:
            groups.setdefault(text, []).append(i)
    listed = [f"{names(numbers, unit_name)} {text}" for text, numbers in groups.items()]
    more = [f"and {len(listed) - _GROUPS} more groups"] if len(listed) > _GROUPS else []
    return "; ".join(listed[:_GROUPS] + more)


def names(numbers: Sequence[int], unit_name: str) -> str:
    """For messages: "replica 3", "workers 0, 2"."""
    listed = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"{unit_name} {listed}" if len(numbers) == 1 else f"{unit_name}s {listed}"
