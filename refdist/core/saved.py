"""Tells the supervisor of a worker that a checkpoint is complete, so that a restart knows how far the job has come.

Without a supervisor nothing is told.
"""

from __future__ import annotations

from collections.abc import Callable

_take: Callable[[str, int | None], object] | None = None


def hand_over(take: Callable[[str, int | None], object]) -> None:
    """Sets the function that `tell` calls with each path and step."""
    global _take
    _take = take


def tell(path: str, step: int | None) -> None:
    """Announces a checkpoint that is complete, with the index, so that the next start of the program may restore it.

    Who writes the index says it at once, before it waits for others: the job may be lost meanwhile.

    Args:
        path: what it is restored by.
        step: the value of its variable "step"; None where it has none.
    """
    if _take is not None:
        _take(path, step)
