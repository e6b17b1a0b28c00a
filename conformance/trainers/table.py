"""The table of verdicts on a trainer, as the command prints it.

Who has just begun sees a mistake of their own program here first: what was printed is shown as far as the exception,
and not the pages of a launcher after it, and what many clauses share is said once.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from ..excerpts import excerpt
from ..notation import on_one_line
from .expected import EXPECTED
from .verdicts import BAD, OUTCOMES, Verdict

LINE = 500  # characters of a printed line that are shown


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
            yield from (f"{'':{width}}| {on_one_line(line, LINE)}" for line in excerpt(verdict.output))
        if verdict.outcome in BAD and command:
            yield f"{'':{width + 13}}run alone: {command} --clause {verdict.clause}"
    counts = {outcome: sum(verdict.outcome == outcome for verdict in judged) for outcome in (*OUTCOMES, EXPECTED)}
    yield ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def _without_answer(verdict: Verdict) -> bool:
    """Whether a trainer was not asked any more, or said nothing that a reader could learn from."""
    return verdict.outcome == "errored" and not verdict.output
