"""The command `python -m refdist.conformance new --language js FOLDER`: a testee to begin with, and how to run it.

What it writes are the files of `scaffolds/`. Each is a testee that is complete, in its language alone: an
implementation of `run` and `all_reduce` that is there to be replaced, and what carries out the steps of a case. It
answers what it does not know with `skip`, so that the first run fails nothing and lists what comes next.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .distribution import COMMAND

FOLDER = Path(__file__).parent / "scaffolds"
README = "README.md"


class Language(NamedTuple):
    """A language that there is a testee in.

    Attributes:
        file: the name of the testee.
        needs: what runs it.
        prepare: what has to be run before; "" if nothing.
        command: what `testee:` is followed by.
    """

    file: str
    needs: str
    prepare: str
    command: str


LANGUAGES = {
    "python": Language("testee.py", "Python 3.11 or later", "", "python testee.py"),
    "js": Language("testee.js", "node", "", "node testee.js"),
    "lua": Language("testee.lua", "Lua 5.3 or later", "", "lua testee.lua"),
    "go": Language("testee.go", "Go 1.22 or later", "go build -o testee testee.go", "./testee"),
}


class NotWritten(ValueError):
    """A testee cannot be written; the text says why, and what to do instead."""


def commands(language: Language) -> list[str]:
    """The commands that run the suite on a testee in the folder of the shell.

    >>> commands(LANGUAGES["js"])
    ['python -m refdist.conformance --adapter "testee:node testee.js" --clause all_reduce']
    """
    run = f'{COMMAND} --adapter "testee:{language.command}" --clause all_reduce'
    return [language.prepare, run] if language.prepare else [run]


def write(language: Language, folder: Path) -> None:
    """Writes a testee and its README into a folder, and makes the folder if there is none.

    Raises:
        NotWritten: one of the files is there, in which case nothing is written, or the folder cannot be written to.
    """
    if taken := [name for name in (language.file, README) if (folder / name).exists()]:
        raise NotWritten(f"{' and '.join(taken)} in {folder} would be overwritten; name another folder, or move what "
                         f"is there")
    about = (FOLDER / README).read_text(encoding="utf-8").format(
        file=language.file, needs=language.needs, commands="\n".join(f"    {line}" for line in commands(language)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ((language.file, (FOLDER / language.file).read_text(encoding="utf-8")), (README, about)):
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise NotWritten(f"{folder} cannot be written to ({error.strerror}); name a folder that can be") from error


def main(arguments: Sequence[str]) -> int:
    """Writes a testee and says how it is run; returns the exit status."""
    parser = argparse.ArgumentParser(f"{COMMAND} new", description="Writes a testee to begin with, "
                                     "and a README that says how to run it; it passes cases as it is.")
    parser.add_argument("--language", required=True, choices=LANGUAGES)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="is made if it is not there")
    try:
        asked = parser.parse_args(arguments)
    except SystemExit as ended:
        return 4 if ended.code else 0
    language = LANGUAGES[asked.language]
    try:
        write(language, asked.folder)
    except NotWritten as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 4
    print(f"{asked.folder / language.file} needs {language.needs}. To run it:", f"cd {shlex.quote(str(asked.folder))}",
          *commands(language), sep="\n    ")
    return 0
