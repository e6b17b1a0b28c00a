"""Which cases reach a place: a mutant can only be killed by a case that comes to where it differs.

All cases are run once, on a refdist that takes note of the cells that are looked up, or of the lines that are run; a
mutant is then tried with the cases that reach it. A survivor costs a run of few cases, not of all.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FrameType
from typing import Any

from mutants.forks import CHECKOUT, Fork, outcomes, with_source

Reach = dict[str, list[str]]
Line = tuple[str, int]

_TABLE = "refdist/core/rules/table.py"
# What is added to that file: a row knows its line, and notes what is looked up.
_NOTING = """

READ = set()


class Row(dict):
    def __getitem__(self, key):
        READ.add(f"{self.line}, {word(key)}")
        return super().__getitem__(key)

    def get(self, key, default=None):
        return self[key] if key in self else default


def _noting(self, title, *args, init=Table.__init__, **kwargs):
    init(self, title, *args, **kwargs)
    for line, keys in self.lines.items():
        for key in keys:
            self[key] = Row(self[key])
            self[key].line = f"{title}: {line}"


Table.__init__ = _noting
"""


def of_cells(names: Sequence[str]) -> Reach:
    """The cases that look each cell up, by `Cell.place`."""
    mutate = with_source(_TABLE, (CHECKOUT / _TABLE).read_text() + _NOTING)
    return _answer(Fork(mutate, names, _cells))


def of_lines(names: Sequence[str], lines: Collection[Line]) -> Reach:
    """The cases that run each of these lines, by "file:line"."""
    def work(mutate: Callable[[], None], names: Sequence[str]) -> Any:
        return _lines(mutate, names, {(str(CHECKOUT / file), line): f"{file}:{line}" for file, line in lines})

    return _answer(Fork(lambda: None, names, work))


def _answer(fork: Fork) -> Reach:
    answer = fork.answer()
    if not isinstance(answer, dict):
        raise RuntimeError(f"The cases do not pass without a mutant: {answer}.")
    return answer


def _cells(mutate: Callable[[], None], names: Sequence[str]) -> Any:
    mutate()
    from refdist.core.rules import table

    return _by_place(names, table.READ)  # type: ignore[attr-defined]


def _lines(mutate: Callable[[], None], names: Sequence[str], wanted: Mapping[Line, str]) -> Any:
    mutate()
    paths = {path for path, _ in wanted}
    run: set[str] = set()
    followed: dict[int, bool] = {}

    def on_line(frame: FrameType, event: str, argument: object) -> Any:
        place = wanted.get((frame.f_code.co_filename, frame.f_lineno))
        if place:
            run.add(place)
        return on_line

    def on_call(frame: FrameType, event: str, argument: object) -> Any:
        # Only functions with such a line are followed, because following one costs more than what it does.
        code = frame.f_code
        if code.co_filename not in paths:
            return None
        if id(code) not in followed:
            followed[id(code)] = any((code.co_filename, line) in wanted for _, _, line in code.co_lines())
        return on_line if followed[id(code)] else None

    threading.settrace(on_call)
    sys.settrace(on_call)
    names_of = _by_place(names, run)
    sys.settrace(None)
    return names_of


def _by_place(names: Sequence[str], noted: set[Any]) -> Any:
    # The cases that pass, by what they leave in `noted`; or the name of one that does not pass.
    by_place: dict[Any, list[str]] = defaultdict(list)
    for name, outcome in outcomes(names):
        if outcome != "passed":
            return name
        for place in list(noted):
            by_place[place].append(name)
        noted.clear()
    return by_place
