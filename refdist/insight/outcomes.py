"""The outcome of a run, in a form that can be compared with the outcome of another run."""

from __future__ import annotations

import argparse
import array
from collections import Counter
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from refdist import nest
from refdist.array.convert import HoldsArray, is_array, kind_of, to_array, to_numpy
from refdist.coordinator.values import RemoteValue
from refdist.core.call_site import is_ours
from refdist.insight.commuting import Effect
from refdist.insight.names import of_python, of_the_program
from refdist.insight.schedules import Run
from refdist.insight.shared import EQUAL, attributes, exactly

REORDERED = (Effect.ADD, Effect.MULTIPLY)  # what commutes, but for its rounding
COMPUTED = 64  # the roundings that are allowed to what is computed from a sum: a difference, say, makes one larger
REPLICA = "/replica_"  # in the names of all copies of a variable but the first
_PLAIN = (bool, int, float, complex, str, bytes, np.generic)


class Rounding(NamedTuple):
    """By which part of themselves floats may differ, because sums have their terms in another order.

    Attributes:
        part: this part.
        least: how many roundings in their own dtype it is at least.
    """

    part: float = 0.0
    least: int = 0

    def near(self, dtype: np.dtype[Any]) -> float:
        return max(self.part, self.least * _unit(dtype))


class Outcome(NamedTuple):
    """The outcome of a run.

    Attributes:
        returned: what the program returned.
        value: the same, with arrays for whatever holds one, and `Parts` for objects.
        finals: what its variables held at the end, those of replicas by their copies.
        names: those of these variables.
        unseen: the names of classes of what it returned that cannot be looked into.
        error: what it raised instead.
        rounding: that of `value`.
        finals_rounding: that of `finals`.
    """

    returned: Any
    value: Any
    finals: tuple[Any, ...]
    names: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    error: BaseException | None = None
    rounding: Rounding = Rounding()
    finals_rounding: Rounding = Rounding()

    def __str__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {str(self.error).splitlines()[0] if str(self.error) else ''}"
        return text(self.value) if self.value is not None else self.variables or "None"

    @property
    def variables(self) -> str:
        """What the variables held at the end, as text."""
        shown: dict[str, str] = {}
        for name, value in zip(self.names, self.finals, strict=True):
            if shown.get(name.partition(REPLICA)[0]) != text(value):  # most copies hold what the first one does
                shown[name] = text(value)
        return ", ".join(f"{name} = {value}" for name, value in shown.items())


class Parts(NamedTuple):
    """What a value is made of that is neither plain nor an array, a list or a tuple.

    Attributes:
        kind: the full name of its class, which may be another class in each run.
        labels: what is written before each of its parts.
        items: these.
    """

    kind: str
    labels: tuple[str, ...] = ()
    items: tuple[Any, ...] = ()


def outcome(run: Run, returned: Any) -> Outcome:
    """The outcome of a run whose program returned `returned`."""
    returned = nest.map_structure(lambda leaf: leaf.fetch() if isinstance(leaf, RemoteValue) else leaf, returned)
    unseen: dict[str, None] = {}
    value = _comparable(returned, unseen)
    # Variables of a lost parameter server have no final value; the program has made others in their place.
    cells = [cell for cell in (*run.cells, *run.copies) if not run.is_gone(cell)]
    finals = tuple(np.array(to_numpy(cell._primary._array)) for cell in cells)
    return Outcome(returned, value, finals, tuple(cell.name.removesuffix(":0") for cell in cells), tuple(unseen), None,
                   *_roundings(run))


def _roundings(run: Run) -> tuple[Rounding, Rounding]:
    """How much another order of additions, and of multiplications, can change of a result, and of what variables hold.

    That is one rounding for each, and more where the program has computed with the sum; a variable that is changed once
    in this way has one order, and a program that only assigns comes to the same bits.  What functions, or replicas,
    change of Python objects may be sums, too.
    """
    touches = [step.touch for step in run.steps if step.touch]
    changes = Counter(touch.cell for touch in touches if touch.effect in REORDERED)
    units = {cell: _unit(run.cells[cell].dtype) for cell, count in changes.items() if count > 1}
    shares = run.orders is not None or len([step for step in run.steps if step.changes]) > 1
    if not shares and not any(units.values()):
        return Rounding(), Rounding()
    summed = Rounding(sum(changes[cell] * unit for cell, unit in units.items()), 1)
    computed = Rounding(max([summed.part, *(COMPUTED * unit for unit in units.values())]), COMPUTED)
    reads = [number for number, touch in enumerate(touches) if touch.cell in units and touch.observes]
    uses = shares or (reads and any(touch.writes for touch in touches[reads[0] + 1:]))
    return computed, computed if uses else summed


def _unit(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of a dtype; 0 for what is not rounded."""
    if dtype.kind == "V" and kind_of(dtype) == "f":
        import ml_dtypes

        return float(ml_dtypes.finfo(dtype).eps)
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 0.0


def _comparable(value: Any, unseen: dict[str, None], around: tuple[int, ...] = ()) -> Any:
    """A value in a form that can be compared with that of another run; the names of what cannot go to `unseen`."""
    if isinstance(value, HoldsArray) or is_array(value):
        return np.array(to_numpy(to_array(value)))
    if value is None or isinstance(value, _PLAIN):
        return value
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if id(value) in around:
        return Parts(f"{name}, which is around it")

    def inside(part: Any) -> Any:
        return _comparable(part, unseen, (*around, id(value)))

    if kind in (list, tuple):
        return kind(map(inside, value))
    if isinstance(value, Mapping):
        return Parts(name, tuple(f"{text(inside(key))}: " for key in value), tuple(map(inside, value.values())))
    if isinstance(value, (set, frozenset)):
        items = sorted(map(inside, value), key=text)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        return Parts(name, tuple(f"{field}=" for field in value._fields), tuple(map(inside, value)))
    elif nest.is_nested(value):
        items = [inside(item) for item in nest.items(value)]
    elif isinstance(value, EQUAL):
        items = [str(value)]
    elif isinstance(value, (bytearray, memoryview)):
        items = [bytes(value)]
    elif isinstance(value, array.array):
        items = list(value)
    elif isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return Parts(f"{value.__module__}.{value.__qualname__}")
    elif isinstance(value, (BaseException, SimpleNamespace, argparse.Namespace)) or (
            of_the_program(kind.__module__) and not is_ours(kind.__module__)):
        named = [*(enumerate(value.args) if isinstance(value, BaseException) else ()), *attributes(value)]
        return Parts(name, tuple(f"{label}=" for label, _ in named), tuple(inside(item) for _, item in named))
    else:
        if kind is not object and of_python(kind.__module__):
            unseen[name.removeprefix("builtins.")] = None
        return Parts(name)
    return Parts(name, ("",) * len(items), tuple(items))


def same(first: Outcome, second: Outcome) -> bool:
    """Whether two outcomes are equal, except for the rounding of sums in another order."""
    if first.error is not None or second.error is not None:
        return type(first.error) is type(second.error) and str(first) == str(second)
    return _alike(first.value, second.value, max(first.rounding, second.rounding)) and _alike(
        first.finals, second.finals, max(first.finals_rounding, second.finals_rounding))


def _alike(first: Any, second: Any, rounding: Rounding) -> bool:
    if isinstance(first, (list, tuple)) or isinstance(second, (list, tuple)):
        if type(first) is not type(second) or len(first) != len(second):
            return False
        return all(_alike(*pair, rounding) for pair in zip(first, second, strict=True))
    if first is None or second is None or isinstance(first, (str, bytes)) or isinstance(second, (str, bytes)):
        return exactly(first) == exactly(second)
    values, others = np.asarray(first), np.asarray(second)
    if values.dtype != others.dtype or values.shape != others.shape:
        return False
    near = rounding.near(values.dtype)
    if values.dtype.kind == "V" and kind_of(values.dtype) == "f":
        values, others = values.astype(np.float64), others.astype(np.float64)
    if values.dtype.kind not in "fc":
        return bool(np.array_equal(values, others))
    for ours, theirs in ((values.real, others.real), (values.imag, others.imag)):
        if np.any((ours == 0) & (theirs == 0) & (np.signbit(ours) != np.signbit(theirs))):
            return False  # no order of the terms of a sum changes the sign of a zero
    largest = float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))
    return bool(np.allclose(values, others, rtol=near, atol=near * largest, equal_nan=True))


def text(value: Any) -> str:
    """A value as text on one line."""
    if isinstance(value, Parts):
        parts = ", ".join(label + text(item) for label, item in zip(value.labels, value.items, strict=True))
        if value.kind == "builtins.dict" or (value.kind == "builtins.set" and parts):
            return f"{{{parts}}}"
        name = value.kind.removeprefix("builtins.").rpartition(".")[2]
        return f"{name}({parts})" if parts else name
    if isinstance(value, (list, tuple)):
        parts = ", ".join(map(text, value))
        return f"[{parts}]" if isinstance(value, list) else f"({parts}{',' * (len(value) == 1)})"
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        shown = repr(value.item()) if value.ndim == 0 else np.array2string(value, threshold=8, separator=", ")
        return " ".join(shown.split())
    return repr(value)
