"""`Case`: a documented behaviour, a program that shows it, and its expected value or error; comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypedDict, runtime_checkable

import numpy as np
import numpy.typing as npt

from refdist.conformance.old.adapter import Adapter, Strategy, Variable
from refdist.conformance.old.language import Failed, Interpreter, Program, shown

PAGE = "tf.distribute.{} (TensorFlow 2.21)"
# Floats may differ by this many units in the last place.
ULPS = 2


@dataclass
class Case:
    """One row of the suite.

    Attributes:
        name: a sentence, unique among all cases; `cases.load` puts the concept in front.
        program: see `language`.
        gives: the expected value of the program, nested lists and dicts of numbers; unless `fails` is given:
        fails: kinds of errors (`adapter.KINDS`), one of which the program must raise.
        then: a second program and its expected value, run afterwards with the same names and variables; after an
            error it shows that nothing has changed.
        strategy: (kind, number of replicas).
        source: page and section of TensorFlow's documentation.
        level: "required" (documented) or "recommended" (not documented: observed in TensorFlow 2.21, or an error
            instead of a wrong result).
        needs: capabilities without which the case is skipped.
        document: what the page says of it: "right", "wrong: ...", "ambiguous: ...", "silent" or "silent: ..."; where
            it is silent or wrong the case is only recommended.
        dtype: the expected dtype of every array in the value; None if it does not matter.
        concept: the module of `cases` that the case comes from, set by `cases.load`.
    """

    name: str
    program: Program
    gives: object = None
    fails: tuple[str, ...] = ()
    then: tuple[Program, object] | None = None
    strategy: tuple[str, int] = ("mirrored", 2)
    source: str = ""
    level: str = "required"
    needs: frozenset[str] = frozenset()
    document: str = "right"
    dtype: str | None = None
    concept: str = field(default="", init=False)


class Standing(TypedDict, total=False):
    """How binding a case is, for modules of cases."""

    level: str
    document: str


class Details(Standing, total=False):
    """The fields of a case that most cases leave at their defaults, for modules of cases."""

    fails: tuple[str, ...]
    then: tuple[Program, object]
    dtype: str | None


@dataclass
class Verdict:
    """The outcome of a case: passed, failed, errored (the adapter broke) or skipped; what was expected, and found.

    Where an exception made it fail, `error` is that one.
    """

    case: Case
    outcome: str
    message: str = ""
    expected: object = None
    found: object = None
    error: Exception | None = None


@runtime_checkable
class Judge(Protocol):
    """An implementation that is not called in this process: it runs cases and returns verdicts itself."""

    def judge(self, case: Case) -> Verdict:
        """Runs a case."""


# An adapter of any implementation: the suite does not look into its strategies and variables.
Implementation: TypeAlias = Adapter[Any, Any] | Judge


def verdict_of(case: Case, implementation: Implementation, bitwise: bool = False) -> Verdict:
    """Runs a case on an adapter, or has the implementation run it.

    Args:
        case: the case.
        implementation: an adapter, or an object with the method `judge`.
        bitwise: whether floats must be equal to the bit; an implementation that judges itself does not learn of it.
    """
    return implementation.judge(case) if isinstance(implementation, Judge) else judge(case, implementation, bitwise)


def judge(case: Case, adapter: Adapter[Strategy, Variable], bitwise: bool = False) -> Verdict:
    """Runs a case on an adapter, in this process."""
    missing = case.needs - adapter.capabilities
    if missing:
        return Verdict(case, "skipped", f"needs {', '.join(sorted(missing))}")
    wanted = f"an error: {' or '.join(case.fails)}" if case.fails else case.gives
    try:
        interpreter = Interpreter(adapter, case.strategy)
    except Exception as error:
        return Verdict(case, "errored", f"no strategy: {_text(error)}", wanted, error=error)
    try:
        found = interpreter.value(case.program)
    except Failed as error:
        return Verdict(case, "errored", str(error), wanted)
    except Exception as error:
        kind = adapter.kind_of(error)
        if kind not in case.fails:
            return Verdict(case, "failed", f"raised {_text(error)}", wanted, f"an error: {kind}", error)
    else:
        if case.fails:
            return Verdict(case, "failed", "nothing was raised", wanted, shown(found))
        difference = next(differences(case.gives, found, bitwise), None) or next(_dtypes(case.dtype, found), None)
        if difference:
            return Verdict(case, "failed", difference, wanted, shown(found))
    if case.then is not None:
        program, gives = case.then
        try:
            after = interpreter.value(program)
        except Exception as error:
            return Verdict(case, "failed", f"afterwards raised {_text(error)}", gives, error=error)
        difference = next(differences(gives, after, bitwise), None)
        if difference:
            return Verdict(case, "failed", f"afterwards {difference}", gives, shown(after))
    return Verdict(case, "passed")


def differences(expected: object, found: object, bitwise: bool, path: str = "") -> Iterator[str]:
    """The places where a result differs from what was expected, as sentences.

    Integers must be equal; floats may differ by ULPS units in the last place unless `bitwise`; NaN equals NaN.
    """
    where = f" at {path}" if path else ""
    if isinstance(found, (np.ndarray, np.generic)):
        array = np.asarray(found)
        if not _close(expected, array, bitwise):
            yield f"gives {array.tolist()}{where}, expected {expected}"
    elif isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        for key in expected:
            yield from differences(expected[key], found[key], bitwise, f"{path}[{key!r}]")
    elif isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)) and len(expected) == len(found):
        for i, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, bitwise, f"{path}[{i}]")
    elif isinstance(expected, (list, tuple, dict)) or isinstance(found, (list, tuple, dict)) or expected != found:
        yield f"gives {shown(found)}{where}, expected {expected}"


def _close(expected: object, array: npt.NDArray[np.generic], bitwise: bool) -> bool:
    try:
        wanted = np.array(expected, dtype=array.dtype)
    except (TypeError, ValueError):
        return False
    if wanted.shape != array.shape:
        return bool(wanted.size == array.size == 0 and array.ndim == wanted.ndim)
    if array.dtype.kind not in "fc" or bitwise:
        return bool(np.array_equal(wanted, array, equal_nan=array.dtype.kind in "fc"))
    spacing = np.spacing(np.abs(wanted).astype(np.float64 if array.dtype.kind == "c" else array.dtype))
    distance = np.abs(wanted.astype(np.complex128) - array.astype(np.complex128))
    return bool(np.all((distance <= ULPS * spacing) | (wanted == array) | (np.isnan(wanted) & np.isnan(array))))


def _dtypes(wanted: str | None, found: object) -> Iterator[str]:
    if wanted is None:
        return
    if isinstance(found, (np.ndarray, np.generic)):
        if str(found.dtype) != wanted:
            yield f"gives dtype {found.dtype}, expected {wanted}"
    elif isinstance(found, (list, tuple)):
        for item in found:
            yield from _dtypes(wanted, item)


def _text(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:200]}"


def mean(values: list[float]) -> float:
    """The mean as the documents define it."""
    return math.fsum(values) / len(values)
