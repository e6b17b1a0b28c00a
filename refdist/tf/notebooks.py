"""A notebook as a program: its cells of code, one after another, in one module.

Lines for the shell and for IPython are no Python.  `%%writefile` writes its file, because other cells import it; all
others are left out, and each is named on stderr.
"""

from __future__ import annotations

import json
import linecache
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from refdist import errors

_LINE = re.compile(r"^(\s*)(?:[\w, ]+=\s*)?[!%].*$")
_WRITE = re.compile(r"%%writefile\s+(?:(-a)\s+)?(\S+)")


class Cell(NamedTuple):
    """A cell of code.

    Attributes:
        number: its place among the cells of code, from 1.
        file: what it is called in tracebacks and messages.
        source: what is executed: Python.
        left_out: the lines that are not.
        writes: the file that it writes, and whether it appends; () for none.
    """

    number: int
    file: str
    source: str
    left_out: tuple[str, ...] = ()
    writes: tuple[str, bool] | tuple[()] = ()


def is_notebook(path: Path) -> bool:
    """Whether the file is a notebook, by its name."""
    return path.suffix == ".ipynb"


def cells(path: Path) -> list[Cell]:
    """The cells of code of a notebook.

    Raises:
        RD30: the file is not a notebook.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        sources = ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
    except (ValueError, LookupError, TypeError) as error:
        raise errors.error("RD30", f"the notebook {path}", f"it is not one: {error!r}",
                           "Save it again as a notebook of format 4.") from error
    return [_cell(number, f"{path.name} cell {number}", source) for number, source in enumerate(sources, 1)]


def _cell(number: int, file: str, source: str) -> Cell:
    first, _, rest = source.lstrip("\n").partition("\n")
    if match := _WRITE.match(first):
        return Cell(number, file, rest, (), (match[2], match[1] is not None))
    if first.startswith("%%"):
        return Cell(number, file, "", (first,))
    lines, left_out = [], []
    for line in source.split("\n"):
        if (match := _LINE.match(line)) and not line.lstrip().startswith(("%=", "!=")):
            left_out.append(line.strip())
            line = f"{match[1]}pass"
        lines.append(line)
    return Cell(number, file, "\n".join(lines), tuple(left_out))


def execute(cell: Cell, names: dict[str, Any]) -> None:
    """Executes a cell with the names of those before it, and says on stderr what is left out."""
    for line in cell.left_out:
        print(f"{cell.file}: left out: {line}", file=sys.stderr)
    if cell.writes:
        file, appends = cell.writes
        with open(file, "a" if appends else "w", encoding="utf-8") as written:
            written.write(cell.source)
        return
    linecache.cache[cell.file] = (len(cell.source), None, cell.source.splitlines(True), cell.file)
    exec(compile(cell.source, cell.file, "exec"), names)
