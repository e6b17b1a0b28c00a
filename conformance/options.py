"""The options of the suite, as a table: pytest takes them beside its own, and `--help` prints them without those.

The table and what it selects are kept apart from the plugin, because `--help` is often the first thing that is asked,
also where pytest is not installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from .capabilities import PROFILES, TABLE, needs
from .chapters import LEVELS, Case
from .distribution import COMMAND, WHOLE
from .examples import program
from .session import LIMIT

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


Option: TypeAlias = tuple[str, dict[str, Any]]


def _of_what_is_tested() -> tuple[Option, ...]:
    if not WHOLE:
        return (("--adapter", {
            "default": "", "metavar": "testee:COMMAND",
            "help": "what is tested: the command of a testee after `testee:`"}),)
    from .adapters import ROWS

    return (
        ("--adapter", {
            "default": DEFAULT, "metavar": "ADAPTER",
            "help": f"what is tested: package.module:Class; {', '.join(f'{name} ({what})' for name, _, what in ROWS)}; "
                    "or the command of a testee after `testee:`"}),
        ("--python", {
            "default": "", "metavar": "PYTHON",
            "help": "the interpreter that the adapter is run with, of an environment in which refdist need not be "
                    "installed"}),
        ("--strategy", {
            "default": "", "metavar": "package.module:make",
            "help": "another author's strategy, tested inside the implementation: make(devices) makes it, with a "
                    "replica on each device"}),
        ("--in-process", {
            "action": "store_true",
            "help": "run the adapter in this process: faster, and a crash or a hang ends everything"}),
    )


# Each with what argparse is told of it.
OPTIONS: tuple[Option, ...] = (
    *_of_what_is_tested(),
    ("--limit", {
        "type": _seconds, "default": LIMIT, "metavar": "SECONDS", "help": "that a case may take (%(default)g)"}),
    ("--level", {
        "choices": [level.lower() for level in LEVELS],
        "help": "only clauses of this level: `must` is what a document promises, `should` what none does"}),
    ("--clause", {
        "action": "append", "default": [], "metavar": "PREFIX",
        "help": "only this clause, or the clauses whose name begins so: all_reduce.sum is one clause, and all_reduce "
                "a chapter; may be repeated"}),
    ("--profile", {
        "choices": list(PROFILES), "metavar": "NAME",
        "help": f"only cases that need no more than this profile has: {', '.join(PROFILES)}"}),
    ("--concept", {
        "action": "append", "default": [], "type": _concept, "metavar": "NAME",
        "help": "only cases that need this capability (docs/capabilities.md); may be repeated"}),
    ("--expected-failures", {
        "metavar": "FILE",
        "help": "lines `case | part of the message | why`; * stands for anything; "
                "a line that is not true is an error"}),
    ("--bitwise", {"action": "store_true", "help": "floats must agree to the bit"}),
    ("--report", {"metavar": "FOLDER", "help": "write report.json, report.md, report.html and badge.json there"}),
)


# The options that say what is tested, and those that can change a verdict.
TESTED = ("--adapter", "--python", "--strategy")
JUDGED = ("--in-process", "--limit", "--bitwise", "--expected-failures")


def quoted(text: str) -> str:
    """A text as a word of a shell, in double quotes where these will do: testees are commands with quotes of their own.

    >>> print(quoted("refdist"), quoted("testee:node 'my testee.js'"), quoted('testee:node "a b.js"'))
    refdist "testee:node 'my testee.js'" 'testee:node "a b.js"'
    """
    word = shlex.quote(text)
    return f'"{text}"' if word != text and not set('"$`\\!') & set(text) else word


def repeated(names: Sequence[str], value: Callable[[str], Any]) -> str:
    """The options of these names that were given, each after a space, as a shell reads them.

    Args:
        names: of options of the table.
        value: the value of an option.
    """
    text = ""
    for name, settings in OPTIONS:
        default = settings.get("default", False if settings.get("action") == "store_true" else None)
        if name in names and value(name) != default:
            text += f" {name}" if value(name) is True else f" {name} {quoted(str(value(name)))}"
    return text


def command(names: Sequence[str], value: Callable[[str], Any]) -> str:
    """The command that runs the suite with the options of these names that were given.

    >>> command(TESTED, {"--adapter": "testee:./mine", "--python": "", "--strategy": ""}.get)
    'python -m refdist.conformance --adapter testee:./mine'
    """
    return f"{COMMAND}{repeated(names, value)}"


def memory_of(tested: Mapping[str, Any]) -> Path:
    """The folder that says what failed last, for `--last-failed`: one in the current folder for each tested thing.

    Args:
        tested: the options that say what it is.
    """
    digest = hashlib.sha256(json.dumps(tested, sort_keys=True).encode()).hexdigest()
    return Path.cwd() / ".refdist-conformance" / digest[:12]


def memory(arguments: Sequence[str]) -> Path:
    """The folder with the cases that failed last on what is tested.

    Args:
        arguments: those of the command.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name, settings in OPTIONS:
        if name in TESTED:
            parser.add_argument(name, **settings)
    try:
        tested = vars(parser.parse_known_args(arguments)[0])
    except argparse.ArgumentError:  # pytest, which reads them next, says what is wrong
        tested = {}
    return memory_of(tested)


def help_text(about: str) -> str:
    """What `--help` prints.

    Args:
        about: the commands and the exit statuses.
    """
    parser = argparse.ArgumentParser(COMMAND, usage="%(prog)s [OPTION ...]", add_help=False,
                                     description=about.strip(), formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="The options of pytest work, too (-k WORDS, -x, --last-failed, --junitxml "
                                            "FILE, with\npytest-xdist -n 2); `python -m pytest --help` lists them.")
    group = parser.add_argument_group("options")
    for name, settings in OPTIONS:
        group.add_argument(name, **settings)
    return parser.format_help()


def select(cases: Iterable[Case], clauses: Sequence[str], concepts: Sequence[str], level: str | None,
           profile: str | None = None) -> list[Case]:
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
         lambda case: not needs(program(case)).isdisjoint(concepts)),
        (profile, f"--profile {profile}: every such case needs more",
         lambda case: profile is not None and needs(program(case)) <= PROFILES[profile][1])]
    for asked, otherwise, keep in filters:
        selected = [case for case in selected if keep(case)] if asked else selected
        if not selected:
            raise ValueError(otherwise)
    return selected
