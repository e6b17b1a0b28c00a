"""Warnings of several workers: each with the names of those that give it, and once.

Every worker runs the same program, so most warnings are given by all.  Whoever runs workers has what Python would print
handed over, and prints it when it knows who else says the same.  What a program records or logs, it still does.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import TextIO

from refdist.core.call_site import is_ours

_PYTHONS = ("warnings", "_py_warnings")


def hand_over(take: Callable[[str], object]) -> Callable[[], None]:
    """Hands the text of each warning to `take`, in place of printing it; returns a function that undoes this."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
             line: str | None = None) -> None:
        module = getattr(before, "__module__", "")
        if file is not None or not (module in _PYTHONS or is_ours(module)):
            before(message, category, filename, lineno, file, line)
            return
        printed = io.StringIO()
        before(message, category, filename, lineno, printed, line)
        if printed.getvalue():  # inside catch_warnings(record=True) it is kept, and not printed
            take(printed.getvalue())

    def leave() -> None:
        if warnings.showwarning is show:
            warnings.showwarning = before

    warnings.showwarning = show
    return leave
