"""The outcome of a run, in a form that can be compared with the outcome of another run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from refdist import nest
from refdist.array.convert import HoldsArray, is_array, to_array, to_numpy
from refdist.coordinator.values import RemoteValue
from refdist.insight.schedules import Run

# Sums of floats may differ by the order of their terms.
ROUNDINGS = 64
REPLICA = "/replica_"  # in the names of all copies of a variable but the first


class Outcome(NamedTuple):
    """The outcome of a run.

    Attributes:
        returned: what the program returned.
        value: the same, with arrays and numbers for whatever holds one.
        finals: what its variables held at the end, those of replicas by their copies.
        names: those of these variables.
        error: what it raised instead.
    """

    returned: Any
    value: Any
    finals: tuple[Any, ...]
    names: tuple[str, ...] = ()
    error: BaseException | None = None

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


def outcome(run: Run, returned: Any) -> Outcome:
    """The outcome of a run whose program returned `returned`."""
    returned = nest.map_structure(lambda leaf: leaf.fetch() if isinstance(leaf, RemoteValue) else leaf, returned)
    value = nest.map_structure(_leaf, returned)
    # Variables of a lost parameter server have no final value; the program has made others in their place.
    cells = [cell for cell in (*run.cells, *run.copies) if not run.is_gone(cell)]
    finals = tuple(np.array(to_numpy(cell._primary._array)) for cell in cells)
    return Outcome(returned, value, finals, tuple(cell.name.removesuffix(":0") for cell in cells))


def _leaf(leaf: Any) -> Any:
    if isinstance(leaf, HoldsArray) or is_array(leaf):
        return np.array(to_numpy(to_array(leaf)))
    # Objects that compare by identity differ in each run, so only their type is compared.
    plain = leaf is None or isinstance(leaf, (bool, int, float, complex, str, bytes, np.generic))
    return leaf if plain else type(leaf)


def same(first: Outcome, second: Outcome) -> bool:
    """Whether two outcomes are equal, except for the rounding of sums."""
    if first.error is not None or second.error is not None:
        return type(first.error) is type(second.error) and str(first) == str(second)
    return _alike((first.value, first.finals), (second.value, second.finals))


def _alike(first: Any, second: Any) -> bool:
    if nest.is_nested(first) or nest.is_nested(second):
        if type(first) is not type(second):
            return False
        if isinstance(first, dict) and list(first) != list(second):
            return False
        ones, others = nest.flatten(first), nest.flatten(second)
        return len(ones) == len(others) and all(map(_alike, ones, others))
    if isinstance(first, type) or first is None or isinstance(first, (str, bytes)):
        return bool(first == second)
    array, other = np.asarray(first), np.asarray(second)
    if array.dtype != other.dtype or array.shape != other.shape:
        return False
    if array.dtype.kind not in "fc" or np.array_equal(array, other):
        return bool(np.array_equal(array, other))
    near = ROUNDINGS * float(np.finfo(array.dtype).eps)
    largest = float(np.max(np.abs(array[np.isfinite(array)]), initial=0.0))
    return bool(np.allclose(array, other, rtol=near, atol=near * largest, equal_nan=True))


def text(value: Any) -> str:
    """A value as text on one line."""
    if nest.is_nested(value):
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {text(item)}" for key, item in value.items()) + "}"
        parts = ", ".join(map(text, value))
        return f"[{parts}]" if isinstance(value, list) else f"({parts}{',' * (len(value) == 1)})"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        shown = repr(value.item()) if value.ndim == 0 else np.array2string(value, threshold=8, separator=", ")
        return " ".join(shown.split())
    return repr(value)
