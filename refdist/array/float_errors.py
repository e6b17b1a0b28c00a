"""Reports floating-point errors of refdist's own arithmetic as the program's `np.errstate` asks.

NumPy would warn at the line of refdist that adds, or raise there, in the middle of a sum that other workers go on with.
So the errors are only noted while refdist adds, and when all of it is done they are reported: a warning names the line
of the program, and an exception comes before anything is written.  Workers that each add a part tell each other what
they noted, so that all of them report the same.

Additions on a GPU note nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import Context
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from refdist.core import call_site

T = TypeVar("T")

# NumPy's bits and names, by the words of `np.errstate`.
_ERRORS = {"divide": (1, "divide by zero"), "over": (2, "overflow"), "under": (4, "underflow"),
           "invalid": (8, "invalid value")}


class _Errors:
    # The object that NumPy calls; not `Noted` itself, which would make a reference cycle.
    __slots__ = ("bits",)

    def __init__(self) -> None:
        self.bits = 0

    def __call__(self, error: str, bits: int) -> None:
        self.bits |= bits


class Noted:
    """Notes the errors of the arithmetic in a `with` block."""

    __slots__ = ("_errors", "_state")

    def __init__(self) -> None:
        self._errors = errors = _Errors()
        self._state = np.errstate(all="call", call=errors)

    @property
    def bits(self) -> int:
        """The errors noted so far, as a bit mask."""
        return self._errors.bits

    def __enter__(self) -> Noted:
        self._state.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._state.__exit__(kind, error, trace)


class Reported(Noted):
    """Notes the errors of the arithmetic in a `with` block, and reports them at its end."""

    __slots__ = ("_operation",)

    def __init__(self, operation: str) -> None:
        super().__init__()
        self._operation = operation

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._state.__exit__(kind, error, trace)
        if self._errors.bits and error is None:
            report(self._errors.bits, self._operation)


_raising = Context()  # in which NumPy raises; to run in a copy of it costs less than `np.errstate`
_raising.run(np.seterr, all="raise")


def reporting(operation: str, compute: Callable[..., T]) -> Callable[..., T]:
    """Wraps `compute`, which must change nothing and not ask for the context, so that its errors are reported.

    There hardly ever are any, and to note them costs more than a small sum: NumPy raises at the first, and only then
    is the result computed again, with notes.
    """
    def reported(*arguments: object) -> T:
        try:
            return _raising.copy().run(compute, *arguments)
        except FloatingPointError:
            with Reported(operation):
                return compute(*arguments)

    return reported


def report(bits: int, operation: str) -> None:
    """Reports these errors as `np.errstate` asks, in NumPy's words.

    Raises:
        FloatingPointError: where it asks for that.
    """
    if not bits:
        return
    asked = np.geterr()
    for name, (bit, error) in _ERRORS.items():
        how = asked[name]  # type: ignore[literal-required]
        if not bits & bit or how == "ignore":
            continue
        text = f"{error} encountered in {operation}"
        if how == "raise":
            raise call_site.noted(FloatingPointError(text))
        if how == "warn":
            call_site.warn(text, RuntimeWarning)
        elif how == "print":
            print(f"Warning: {text}", file=sys.stderr)
        else:
            handler: Any = np.geterrcall()  # an object with `write` for "log", a function for "call"
            handler.write(f"Warning: {text}\n") if how == "log" else handler(error, bits)
