"""Call sites: the chain of places in the user's program that led to a call.

All replicas have to make a call at the same place of the program, so places are compared.  The instruction that a frame
executes will not do: CPython rewrites instructions while they run (3.11 and later), and a call that was made at one
offset is made at another once it has been specialized.  What never moves is where the instruction is in the source,
line and columns, so a `Place` is that, interned: equal places are one object.  So are equal chains of them, which are
found by following the places outwards from one chain to the next: a thousand replicas at a rendezvous have one site
among them, which is compared by identity and is one object for the garbage collector.

The whole chain counts, because a helper that wraps a collective is one line called from several places.  Frames of
refdist itself are left out, and those of Keras and of functions over trees, and the chain ends at the function that
runs a replica.  Where Python was told to keep no columns (`-X no_debug_ranges`), two calls on one line cannot be told
apart and count as the same place.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from itertools import islice, zip_longest
from types import CodeType, FrameType
from typing import NamedTuple, TypeVar

from greenlet import getcurrent

from refdist import notebook

_PACKAGE = __name__.partition(".")[0]
# Modules of Python and NumPy through which refdist calls itself, or a program calls refdist.
_OPERATORS = "numpy.lib.mixins"  # the module with the operators of variables and distributed values
_BETWEEN = ("contextlib", "functools", _OPERATORS)
# What stands between the program and refdist: Keras, the modules of PyTorch through which it calls itself, and what
# calls a function with each leaf of a tree.
_BETWEEN_THEM = ("keras.", "torch._dynamo.", "torch.nn.modules.", "torch.utils._pytree", "jax._src.tree", "optree.")
# The folders of Python and of installed packages, whose files are no part of the program.
INSTALLED = tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Place(NamedTuple):
    """A part of a source file, or of a notebook's cell: one call in it.  Lines count from 1, columns from 0."""

    file: str
    function: str
    line: int
    end_line: int | None
    column: int | None
    end_column: int | None

    def __str__(self) -> str:
        return notebook.place(self.file, self.line)


Site = tuple[Place, ...]
Error = TypeVar("Error", bound=BaseException)

_interned: dict[Place, Place] = {}


class _Chain:
    """A node of the tree of sites: a site, and by the id of a place those that are longer by this outer caller."""

    __slots__ = ("longer", "site")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.longer: dict[int, _Chain] = {}

    def with_caller(self, place: Place) -> _Chain:
        return self.longer.setdefault(id(place), _Chain((*self.site, place)))


_nowhere = _Chain(())
# id of a code object, because hashing one is slow -> (its places by offset, or why it has none; the code object itself,
# so that no other one gets its id).
_OURS, _ROOT = "ours", "root"
_known: dict[int, tuple[dict[int, Place] | str, CodeType]] = {}


# The site of the collective that is being carried out, () outside of any.
meeting: ContextVar[Site] = ContextVar("meeting", default=())
_carriers: set[CodeType] = set()


def is_ours(module: str) -> bool:
    """Whether a module is part of refdist."""
    return module == _PACKAGE or module.startswith(_PACKAGE + ".")


def _is_library(module: str) -> bool:
    return is_ours(module) or module.startswith(_BETWEEN_THEM)


def is_between(module: str) -> bool:
    """Whether a module is part of refdist or Keras, or one through which they or the program call refdist."""
    return module in _BETWEEN or _is_library(module)


def end_at(code: CodeType) -> None:
    """Ends call sites at frames of `code`: what has called them is not the user's program."""
    _known[id(code)] = _ROOT, code


def carry_out_in(code: CodeType) -> None:
    """Makes frames of `code` count as the call at `meeting`: what they call is shown at the line of that collective."""
    _carriers.add(code)


def of(frame: FrameType | None) -> Site:
    """The places of the user's program from `frame` outwards, innermost first."""
    chain = _nowhere
    known = _known
    while frame is not None:
        code = frame.f_code
        entry = known.get(id(code))
        if entry is None:
            module = frame.f_globals.get("__name__", "")
            entry = known[id(code)] = (_OURS if _is_library(module) or module == _OPERATORS else {}), code
        places = entry[0]
        if type(places) is dict:
            at = frame.f_lasti
            place = places.get(at) or _learn(places, code, at)
            chain = chain.longer.get(id(place)) or chain.with_caller(place)
        elif places is _ROOT:
            break
        frame = frame.f_back
    return chain.site


def that_led_here() -> Site:
    """The call site of the code that runs; while a collective is carried out, that of its call."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_between(frame.f_globals.get("__name__", "")):
        if frame.f_code in _carriers and meeting.get():
            return meeting.get()
        frame = frame.f_back
    return of(frame)


def of_one(code: CodeType, at: int) -> Place:
    """The place of the instruction at this offset."""
    return _learn({}, code, at)


def _learn(places: dict[int, Place], code: CodeType, at: int) -> Place:
    # An instruction and its inline caches are two bytes each, and all have the position of the instruction.
    line, end_line, column, end_column = next(islice(code.co_positions(), at // 2, None))
    place = Place(code.co_filename, code.co_qualname, line or code.co_firstlineno, end_line, column, end_column)
    places[at] = place = _interned.setdefault(place, place)
    return place


def warn(text: str | Warning, category: type[Warning] = UserWarning, place: Place | None = None) -> None:
    """Warns at `place`; by default at the user's line that led here, however many frames of refdist lie between."""
    level = 0
    if place is None:
        level, place = _outwards(sys._getframe(1))
    if place is None:
        warnings.warn(text, category, stacklevel=level + 1)
    else:
        warnings.warn_explicit(text, category, place.file, place.line, registry=_registries.setdefault(place.file, {}))


def noted(error: Error) -> Error:
    """Adds to an error the line of the collective that is carried out, because its traceback has no frame of it."""
    place = _outwards(sys._getframe(1))[1]
    if place is not None:
        error.add_note(f"in the call of all replicas at {place}")
    return error


# The registry of warnings given at the line of a collective, by file, as `warnings.warn_explicit` takes it.
_registries: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}


def _outwards(frame: FrameType) -> tuple[int, Place | None]:
    # How many frames out the program's own code is; or its place, if a call of all replicas is carried out.
    level = 1
    while frame.f_back is not None and is_between(frame.f_globals.get("__name__", "")):
        if frame.f_code in _carriers and meeting.get():
            return level, meeting.get()[0]
        frame, level = frame.f_back, level + 1
    if frame.f_back is None and _is_library(frame.f_globals.get("__name__", "")):
        # No frame of this replica is the program's, as in Keras's `fit`: the run's starter is looked at instead.
        outside = getcurrent().parent
        started = () if outside is None else of(outside.gr_frame)
        return level, started[0] if started else None
    return level, None


def tell_apart(sites: Sequence[Site]) -> list[str]:
    """Each site as a text that shows where it differs from the others: "a.py:3", or "a.py:3, called from b.py:7".

    The innermost lines are equal where the calls go through one helper; then a caller tells them apart, or a column.
    """
    levels = zip_longest(*sites)
    depth = next((i for i, places in enumerate(levels) if len(set(places)) > 1), 0)
    texts = []
    for site in sites:
        caller = f", called from {site[depth]}" if 0 < depth < len(site) else ""
        texts.append(f"{site[0]}{caller}" if site else "")
    if len(set(texts)) < len(sites):
        texts = [f"{text}, column {site[depth].column}" if depth < len(site) else text
                 for text, site in zip(texts, sites, strict=True)]
    return texts
