"""What a table is: text that can be read in the source, and the sentences that a reader needs."""

from __future__ import annotations

import re
from collections.abc import Mapping


class Table(dict[str, dict[str, str]]):
    """Rows of cells; a cell is an action, or the code of an error.

    Args:
        title: what is decided.
        about: what rows and columns are, and where the cells come from.
        actions: what each action means.
        text: lines of parts that are two or more spaces apart; the first line names the columns, and every other line
            begins with the name of a row.

    >>> table = Table("Doors", "Rows: doors.  Columns: times.", {"open": "one can pass"}, '''
    ...              by day  at night
    ...     front    open    RD31
    ... ''')
    >>> table["front"]["by day"]
    'open'
    """

    def __init__(self, title: str, about: str, actions: Mapping[str, str], text: str) -> None:
        columns, *rows = [re.split(r"\s{2,}", line.strip()) for line in text.strip().splitlines()]
        super().__init__({name: dict(zip(columns, row, strict=True)) for name, *row in rows})
        self.title = title
        self.about = about
        self.actions = actions
        self.columns = columns


def is_code(cell: str) -> bool:
    """Whether a cell is the code of an error."""
    return cell.startswith("RD")
