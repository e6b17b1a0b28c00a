"""What refdist shows in a notebook: places in cells, and tables.

IPython compiles each cell under the name of a file that does not exist, such as /tmp/ipykernel_71/2391.py, and knows
which cell that was.  A reader knows only the number beside the cell; so places are said as IPython's own tracebacks say
them, "Cell In[3], line 5", in messages and in recordings.  IPython is never imported for that: where no cell has run,
it is not there.

A table is plain HTML without colors or a width of its own, as the notebook has its own, light or dark.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape
from importlib import import_module
from typing import Any

_MOST = 8  # rows of a table that are all shown
_PLACE = re.compile(r"(.*)(?::|, line )(\d+)", re.DOTALL)


def place(file: str, line: int | None) -> str:
    """A place in the program: "file:line", or "Cell In[3], line 5" where IPython compiled the file from a cell."""
    cell = _cell(file)
    return f"{file}:{line}" if cell is None else f"{cell}, line {line}"


def parts(place: str) -> tuple[str, int]:
    """The file, or the cell, and the line of a place.

    >>> parts("C:/a.py:3"), parts("Cell In[3], line 5")
    (('C:/a.py', 3), ('Cell In[3]', 5))
    """
    match = _PLACE.fullmatch(place)
    return (match[1], int(match[2])) if match else (place, 0)


def source_of(file: str) -> str:
    """The text of a file, or of a cell; "" where it is not known."""
    if file.startswith("Cell "):
        file = next((name for name in linecache.cache if _cell(name) == file), file)
    return "".join(linecache.getlines(file))


def is_cell(file: str) -> bool:
    """Whether IPython compiled this file from a cell."""
    return _cell(file) is not None


def shell() -> Any:
    """The shell of IPython in which the program runs; None where there is none."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def _cell(file: str) -> str | None:
    # "Cell In[3]", where this is the file of a cell.
    name = getattr(getattr(shell(), "compile", None), "format_code_name", None)
    words = name and name(file)
    return " ".join(words) if words else None


@singledispatch
def drawing(value: object) -> str:
    """What a notebook shows of a value, as HTML or SVG; `insight/drawings.py` has one for each class."""
    import_module("refdist.insight.drawings")  # which few programs ask for
    draw = drawing.dispatch(type(value))
    if draw is drawing.dispatch(object):
        raise TypeError(f"no drawing of {type(value).__name__}")
    return draw(value)


def show(value: object) -> None:
    """Shows the drawing of a value under the cell that runs, where there is a notebook; a terminal shows nothing."""
    publisher = getattr(shell(), "display_pub", None)
    if publisher is not None:
        publisher.publish({"text/html": drawing(value)})  # without "text/plain", which a terminal would print


def table(caption: str, rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """A table as HTML.

    Args:
        caption: "" for none.
        rows: the cells of each row, as text; the first cell of a row is its heading.
        heads: the headings of the columns; none by default.
    """
    name = f'<caption style="text-align: left; font-weight: bold">{escape(caption)}</caption>' if caption else ""
    top = f"<thead>{_row(heads, ['col'] * len(heads))}</thead>" if heads else ""
    body = "".join(_row(cells, ["row"]) for cells in rows)
    return f"<table>{name}{top}<tbody>{body}</tbody></table>"


def _row(cells: Sequence[str], scopes: Sequence[str]) -> str:
    # Paths have no place to break a line, and a window may be narrow.
    left = ' style="text-align: left; vertical-align: top; overflow-wrap: anywhere"'
    heads = [f'<th scope="{scope}"{left}>{escape(cell)}</th>' for scope, cell in zip(scopes, cells, strict=False)]
    return f"<tr>{''.join([*heads, *(f'<td{left}>{escape(cell)}</td>' for cell in cells[len(scopes):])])}</tr>"


def shortened(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """All rows; only the first and last ones where there are many."""
    if len(rows) <= _MOST:
        return list(rows)
    return [*rows[:_MOST // 2], ("...", f"{len(rows) - _MOST + 2} more"), *rows[-2:]]
