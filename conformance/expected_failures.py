"""Files of expected failures: which cases an implementation is known to fail, and why.

A line is `case | part of the message | why`. The case may be a pattern with `*`; every case that it matches has to fail
with that message. The reason may be left out in a file of an implementation whose differences the clauses themselves
describe. A line that has become wrong is an error, whether the case passes now, fails in another way, is skipped, or
does not exist: such a file cannot become outdated. Lines about cases that a run leaves out are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from .chapters import Case


@dataclass(frozen=True)
class Expected:
    """A line of a file: part of the message of a failure, and why it is known."""

    message: str
    reason: str
    line: str


def read(path: str | Path, cases: Iterable[Case]) -> dict[str, Expected]:
    """The cases that are expected to fail, by name.

    Raises:
        ValueError: it is not a text, or a line has another form, names no case, or one that another line names.
    """
    return of_names(path, {case.name: case.clause.tensorflow for case in cases}, "case",
                    "a name is `clause @ strategy`, with `#2` after the clause for the second of several examples")


def of_names(path: str | Path, known: Mapping[str, str], kind: str, form: str) -> dict[str, Expected]:
    """What is expected to fail, by name.

    Args:
        path: of the file.
        known: the names of all that is tested, each with why its clause says that it fails, or "".
        kind: of what is tested.
        form: what its names look like.

    Raises:
        ValueError: it is not a text, or a line has another form, names nothing, or what another line names.
    """
    expected: dict[str, Expected] = {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: {error}") from None
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}: {line!r}"
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|", 2)]
        if len(parts) != 3 or not parts[0] or not parts[1]:
            raise ValueError(f"{where} is not `{kind} | part of the message | why`")
        matched = [name for name in known if fnmatchcase(name, parts[0])]
        if not matched:
            clause = parts[0].partition(" ")[0]
            alike = ([name for name in known if fnmatchcase(name.partition(" ")[0], clause)]
                     or get_close_matches(parts[0], known) or list(known))
            raise ValueError(f"{where}: there is no such {kind}; {form}, as in {', '.join(map(repr, alike[:3]))}")
        for name in matched:
            if name in expected:
                raise ValueError(f"{where}: {name} is expected to fail by another line, too: "
                                 f"{expected[name].line!r}")
            reason = parts[2] or known[name]
            if not reason:
                raise ValueError(f"{where}: it has no reason, nor has the clause; write one after the second `|`")
            expected[name] = Expected(parts[1], reason, line)
    return expected


def outside(expected: dict[str, Expected], run: set[str]) -> int:
    """How many lines name only cases that were not run, so that this run says nothing of them."""
    lines = {failure.line for failure in expected.values()}
    return len(lines - {failure.line for name, failure in expected.items() if name in run})
