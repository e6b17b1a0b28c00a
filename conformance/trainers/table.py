"""The table of verdicts on a trainer, as the command prints it.

Who has just begun sees a mistake of their own program here first: what was printed is shown as far as the exception,
and not the pages of a launcher after it, and what many clauses share is said once.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from .expected import EXPECTED
from .verdicts import BAD, OUTCOMES, Verdict

LINES = 12  # of what was printed
OWN = 5  # of them, where it is longer, from the beginning of a traceback: frames of the testee
TRACEBACK = "Traceback (most recent call last)"
MARKERS = re.compile(r"\s*[~^]+\s*")  # below a line of a program, those of its characters that failed


def table(judged: Sequence[Verdict], command: str = "") -> Iterator[str]:
    """Lines with the verdict on each clause, and how many there are of each.

    Args:
        judged: the verdicts.
        command: what judges the same trainer; below a clause that is not kept stands how it judges this clause alone.
    """
    width = max(len(verdict.clause) for verdict in judged) + 2
    alike = Counter((verdict.outcome, verdict.message) for verdict in judged if _without_answer(verdict))
    for verdict in judged:
        count = alike.pop((verdict.outcome, verdict.message), 0) if _without_answer(verdict) else 1
        if not count:
            continue
        others = f"; the same for {count - 1} other clause{'s' * (count > 2)}" if count > 1 else ""
        first, *more = textwrap.wrap(verdict.message + others, 118 - width - 13, break_long_words=False,
                                     break_on_hyphens=False) or [""]
        yield f"{verdict.clause:{width}}{verdict.outcome:13}{first}".rstrip()
        yield from (" " * (width + 13) + line for line in more)
        if verdict.outcome in BAD and verdict.output:
            yield from (f"{'':{width}}| {line}" for line in excerpt(verdict.output))
        if verdict.outcome in BAD and command:
            yield f"{'':{width + 13}}run alone: {command} --clause {verdict.clause}"
    counts = {outcome: sum(verdict.outcome == outcome for verdict in judged) for outcome in (*OUTCOMES, EXPECTED)}
    yield ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def excerpt(output: str) -> list[str]:
    """The first traceback in what was printed, its first and its last frames, or the end of it all.

    >>> excerpt('step 1\\nTraceback (most recent call last):\\n  File "mine.py", line 1\\nKeyError: 7\\na launcher')
    ['Traceback (most recent call last):', '  File "mine.py", line 1', 'KeyError: 7']
    """
    lines = output.splitlines()
    start = next((number for number, line in enumerate(lines) if TRACEBACK in line), None)
    if start is None:
        return lines[-LINES:]
    prefix = lines[start].partition(TRACEBACK)[0]  # a launcher may write a rank before each line
    block = [line for line in lines[start:] if line.startswith(prefix) and not MARKERS.fullmatch(line[len(prefix):])]
    end = next((number for number, line in enumerate(block) if number and not line[len(prefix):].startswith(" ")), -1)
    shown = block[:end + 1 or None]
    if len(shown) > LINES:  # those in between are a library's
        shown[OWN:OWN + 1 - LINES] = [f"{prefix}  ..."]
    return shown


def _without_answer(verdict: Verdict) -> bool:
    """Whether a trainer was not asked any more, or said nothing that a reader could learn from."""
    return verdict.outcome == "errored" and not verdict.output
