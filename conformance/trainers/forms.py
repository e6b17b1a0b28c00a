"""What an answer of any trainer may be, before it is judged: whatever it has in it, a run ends in its table.

An answer that has not the form of `answers.schema.json` cannot be judged, and it is said why.  What a terminal obeys,
and what no file can hold, is neither printed nor written.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from ..notation import cut, on_one_line
from .jobs import Job
from .runner import Result
from .verdicts import Verdict

LARGEST = int(sys.float_info.max)  # of the integers that can be taken for a double
DEEPEST = 32  # lists in lists
LONGEST = 2000  # characters of a message


def fault(job: Job, result: Result) -> str:
    """Why an answer cannot be judged, or "".

    Args:
        job: what was asked.
        result: what was answered; one that is unsupported or broken has been explained.
    """
    if result.unsupported or result.broken:
        return ""
    asked = [(f"the {name}", name, result.whole[name]) for name in job["ask"] if name in result.whole]
    asked += [(f"the {name} of replica {replica}", name, said[name])
              for replica, said in result.each.items() for name in job["ask_each"] if name in said]
    for what, name, value in asked:
        if unfit := _unfit(value):
            return f"{what}: {unfit}"
        if name == "losses" and not isinstance(value, list):
            return f"{what} are {cut(value)}, not a list with the loss of each step"
        if name == "rows" and not _are_rows(value):
            return f"{what} are {cut(value)}, not a list for each step of the numbers of its rows"
    return "the losses are not in the answer" if "losses" in job["ask"] and "losses" not in result.whole else ""


def _unfit(value: object) -> str:
    """What in a value cannot become an array, whatever it is for, or ""."""
    stack = [(value, 1)]
    while stack:
        part, depth = stack.pop()
        if isinstance(part, int) and abs(part) > LARGEST:
            return f"an integer of {len(str(abs(part)))} digits, more than a double can hold"
        if isinstance(part, (dict, list)):
            if depth > DEEPEST:
                return f"more than {DEEPEST} lists in each other"
            stack += ((below, depth + 1) for below in (part.values() if isinstance(part, dict) else part))
    return ""


def _are_rows(rows: object) -> bool:
    return isinstance(rows, list) and all(isinstance(step, list) and all(type(row) is int for row in step)
                                          for step in rows)


def shown(verdict: Verdict) -> Verdict:
    """A verdict as it may be printed and written."""
    return replace(verdict, message=on_one_line(verdict.message, LONGEST))
