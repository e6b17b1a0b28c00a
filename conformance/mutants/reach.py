"""Which cases reach a place: a mutant can only be killed by a case that comes to where it differs.

All cases are run once, on a refdist that takes note of the cells that are looked up, or of the lines that are run; a
mutant is then tried with the cases that reach it. A survivor costs a run of few cases, not of all.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from types import FrameType
from typing import Any

from refdist.conformance.mutants.killing import CHECKOUT, Fork, outcomes, with_source

Reach = dict[str, list[str]]

_TABLE = "refdist/core/rules/table.py"
# What is added to that file: a cell knows its place, also where rows are copied, and a row notes what is looked up.
_NOTING = """

READ = set()


class Cell(str):
    pass


class Row(dict):
    def __getitem__(self, key):
        return self.get(key) if key in self else super().__getitem__(key)

    def get(self, key, default=None):
        cell = super().get(key, default)
        READ.add(getattr(cell, "place", ""))
        return cell


def _noting(self, title, about, actions, text, init=Table.__init__):
    init(self, title, about, actions, text)
    for name, row in self.items():
        self[name] = Row({column: Cell(cell) for column, cell in row.items()})
        for column, cell in dict(self[name]).items():
            cell.place = f"{title}: {name}, {column}"


Table.__init__ = _noting
"""


def of_cells(names: Sequence[str]) -> Reach:
    """The cases that look each cell up, by `Cell.place`."""
    mutate = with_source(_TABLE, (CHECKOUT / _TABLE).read_text() + _NOTING)
    return _answer(Fork(mutate, names, _cells))


def of_lines(names: Sequence[str], files: Collection[str]) -> Reach:
    """The cases that run each line of these files, by "file:line"."""
    paths = {str(CHECKOUT / file): file for file in files}

    def work(mutate: Callable[[], None], names: Sequence[str]) -> Any:
        return _lines(mutate, names, paths)

    return _answer(Fork(lambda: None, names, work))


def _answer(fork: Fork) -> Reach:
    found = fork.answer()
    if not isinstance(found, dict):
        raise RuntimeError(f"The cases do not pass without a mutant: {found}.")
    return found


def _cells(mutate: Callable[[], None], names: Sequence[str]) -> Any:
    mutate()
    from refdist.core import rules
    from refdist.core.rules import table

    for rows in (rules.READS_OF, rules.WRITES_OF):
        rows.update({key: table.Row(row) for key, row in rows.items()})  # type: ignore[attr-defined]
    return _by_place(names, table.READ)  # type: ignore[attr-defined]


def _lines(mutate: Callable[[], None], names: Sequence[str], paths: dict[str, str]) -> Any:
    mutate()
    lines: set[tuple[str, int]] = set()

    def in_file(frame: FrameType, event: str, argument: object) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return in_file

    def on_call(frame: FrameType, event: str, argument: object) -> Any:
        return in_file if frame.f_code.co_filename in paths else None

    threading.settrace(on_call)
    sys.settrace(on_call)
    found = _by_place(names, lines)
    sys.settrace(None)
    return {f"{paths[path]}:{line}": cases for (path, line), cases in found.items()}


def _by_place(names: Sequence[str], noted: set[Any]) -> Any:
    # The cases that pass, by what they leave in `noted`; or the name of one that does not pass.
    found: dict[Any, list[str]] = defaultdict(list)
    for name, outcome in outcomes(names):
        if outcome != "passed":
            return name
        for place in list(noted):
            found[place].append(name)
        noted.clear()
    return found
