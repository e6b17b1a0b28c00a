"""The options of the suite, as a table: pytest takes them beside its own, and `--help` prints them without those.

The table and what it selects are kept apart from the plugin, because `--help` is often the first thing that is asked,
also where pytest is not installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from refdist.conformance.adapters import ROWS
from refdist.conformance.capabilities import TABLE, needs
from refdist.conformance.chapters import LEVELS, Case
from refdist.conformance.examples import program
from refdist.conformance.session import LIMIT

DEFAULT = "refdist"


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return seconds


def _concept(text: str) -> str:
    if text not in TABLE:
        raise argparse.ArgumentTypeError(f"{text!r} is not a capability; there are {', '.join(TABLE)}")
    return text


# Each with what argparse is told of it.
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--adapter", {
        "default": DEFAULT, "metavar": "ADAPTER",
        "help": f"what is tested: package.module:Class; {', '.join(f'{name} ({what})' for name, _, what in ROWS)}; or "
                "the command of a testee after `testee:`"}),
    ("--python", {
        "default": "", "metavar": "PYTHON",
        "help": "the interpreter that the adapter is run with, of an environment in which refdist need not be "
                "installed"}),
    ("--strategy", {
        "default": "", "metavar": "package.module:make",
        "help": "another author's strategy, tested inside the implementation: make(devices) makes it, with a replica "
                "on each device"}),
    ("--in-process", {
        "action": "store_true",
        "help": "run the adapter in this process: faster, and a crash or a hang ends everything"}),
    ("--limit", {
        "type": _seconds, "default": LIMIT, "metavar": "SECONDS", "help": "that a case may take (%(default)g)"}),
    ("--level", {
        "choices": [level.lower() for level in LEVELS],
        "help": "only clauses of this level: `must` is what a document promises, `should` what none does"}),
    ("--clause", {
        "action": "append", "default": [], "metavar": "PREFIX",
        "help": "only this clause, or the clauses whose name begins so: all_reduce.sum is one clause, and all_reduce "
                "a chapter; may be repeated"}),
    ("--concept", {
        "action": "append", "default": [], "type": _concept, "metavar": "NAME",
        "help": "only cases, of any chapter, whose program needs this capability (docs/capabilities.md), such as "
                "ON_READ; may be repeated"}),
    ("--expected-failures", {
        "metavar": "FILE",
        "help": "lines `case | part of the message | why` for cases that are known to fail; * in the name of a case "
                "stands for anything; a line that is not true is an error"}),
    ("--bitwise", {"action": "store_true", "help": "floats must agree to the bit"}),
    ("--report", {"metavar": "FOLDER", "help": "write report.json, report.md, report.html and badge.json there"}),
)


def help_text(about: str) -> str:
    """What `--help` prints.

    Args:
        about: the commands and the exit statuses.
    """
    parser = argparse.ArgumentParser("python -m refdist.conformance", usage="%(prog)s [OPTION ...]", add_help=False,
                                     description=about.strip(), formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="The options of pytest work, too (-k WORDS, -x, --junitxml FILE, with "
                                            "pytest-xdist -n 2);\n`python -m pytest --help` lists them.")
    group = parser.add_argument_group("options")
    for name, settings in OPTIONS:
        group.add_argument(name, **settings)
    return parser.format_help()


def select(cases: Iterable[Case], clauses: Sequence[str], concepts: Sequence[str], level: str | None) -> list[Case]:
    """The cases that the options ask for.

    Raises:
        ValueError: there is none; the text names the option that left none over.
    """
    selected = list(cases)
    single = {case.clause.name for case in selected} & set(clauses)
    prefixes = tuple(set(clauses) - single)
    filters: list[tuple[object, str, Callable[[Case], bool]]] = [
        (clauses, f"--clause: no clause begins with {' or '.join(clauses)}",
         lambda case: case.clause.name in single or case.clause.name.startswith(prefixes)),
        (level, f"--level {level}: no such clause is of this level", lambda case: case.clause.level.lower() == level),
        (concepts, f"--concept: no such case needs {' or '.join(concepts)}",
         lambda case: not needs(program(case)).isdisjoint(concepts))]
    for asked, otherwise, keep in filters:
        selected = [case for case in selected if keep(case)] if asked else selected
        if not selected:
            raise ValueError(otherwise)
    return selected
