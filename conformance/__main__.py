"""The command: tests an implementation of tf.distribute with the specification, or does what `COMMANDS` says."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from .distribution import COMMAND, PACKAGE, VERSION, WHOLE
from .readers import may_go


class Command(NamedTuple):
    """What the first argument may be.

    Attributes:
        module: whose `main` takes the other arguments.
        arguments: what they look like.
        about: what it does.
        apart: whether it is in the distribution, too, that refdist is not in.
    """

    module: str
    arguments: str
    about: str
    apart: bool = False


COMMANDS = {
    "dump": Command("recording.dump", "FILE", "writes the cases as data for other languages"),
    "random": Command("random_programs.command", "--against ADAPTER", "compares two on random programs"),
    "compare": Command("compare", "A B --report FOLDER", "puts several reports on one page", apart=True),
    "changes": Command("changes", "OLD.jsonl", "what is asked otherwise since older cases", apart=True),
    "promises": Command("promises", "--find WORDS", "what becomes of a sentence of the documents", apart=True),
    "new": Command("new", "--language js FOLDER", "writes a testee to begin with; also python, lua, go", apart=True),
    "trainers": Command("trainers.command", "--command COMMAND", "tests a program that trains on several replicas",
                        apart=True),
    "versions": Command("adapters.versions", "FOLDER", "TensorFlow 2.12 to 2.21, and what changed between them"),
}
NEEDS = ("pytest", "hypothesis")
TO_DUMP = (*NEEDS, "safetensors")  # without which programs with checkpoints could not be recorded
WITHOUT_THEM = {"changes", "new", "promises", "trainers"}
EXIT_STATUSES = """\
Exit status:
    0  every case passed, failed as expected, or was skipped
    1  a case failed, errored or is unsupported, or was expected to fail and did not
    2  interrupted
    3  the suite itself broke, or a report could not be written after the run
    4  wrong usage, or an implementation that cannot be started
    5  no case was selected, or not one could be judged
"""


def about() -> str:
    """What the command does, for `--help`."""
    rows = [(f"{COMMAND} [OPTION ...]",
             "tests an implementation, refdist itself if none is named" if WHOLE else "tests a testee")]
    rows += [(f"{COMMAND} {name} {command.arguments}", command.about) for name, command in COMMANDS.items()
             if WHOLE or command.apart]
    width = max(len(usage) for usage, _ in rows)
    return "\n".join(["Tests an implementation of tf.distribute with the specification, or does one of these:", "",
                      *(f"    {usage:{width}}  {what}" for usage, what in rows), "", EXIT_STATUSES])


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    with may_go():
        return _main(sys.argv[1:] if arguments is None else arguments)


def _main(arguments: list[str]) -> int:
    command = COMMANDS.get(arguments[0]) if arguments else None
    if arguments == ["--version"]:
        print(f"{COMMAND.rpartition(' ')[2]} {VERSION}")
        return 0
    if command is None and arguments and re.fullmatch(r"\w+", arguments[0]):
        names = [name for name, known in COMMANDS.items() if WHOLE or known.apart]
        print(f"ERROR: {arguments[0]} is none of {', '.join(names)}; what is tested is named by --adapter, and "
              f"`{COMMAND} --help` has all options", file=sys.stderr)
        return 4
    if command is None and {"-h", "--help"} & set(arguments):
        from .options import help_text

        print(help_text(about()))
        return 0
    if WHOLE and not WITHOUT_THEM.intersection(arguments[:1]):
        _demand(TO_DUMP if arguments[:1] == ["dump"] else NEEDS)
    if command and not (WHOLE or command.apart):
        print(f"ERROR: {arguments[0]} needs refdist: `pip install '.[conformance]'` in a clone of it, and then "
              f"`python -m refdist.conformance {arguments[0]} {command.arguments}`", file=sys.stderr)
        return 4
    if command:
        return int(import_module(f"{PACKAGE}.{command.module}").main(arguments[1:]))
    import pytest

    from .options import memory

    folder = Path(__file__).parent
    return int(pytest.main([str(folder / "suite.py"), "-p", f"{PACKAGE}.plugin", "--import-mode=importlib",
                            "-c", str(folder / "pytest.ini"), f"--rootdir={folder}", "-o",
                            f"cache_dir={memory(arguments)}", "-q", "-rN", "--no-header", *arguments]))


def _demand(packages: Sequence[str]) -> None:
    if missing := [name for name in packages if find_spec(name) is None]:
        from refdist import errors

        raise errors.error("RD27", PACKAGE, f"{' and '.join(missing)} is not installed",
                           f"Run `pip install {' '.join(packages)}`.")


if __name__ == "__main__":
    sys.exit(main())
