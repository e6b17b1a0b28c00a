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
    """Announces that all workers have saved a checkpoint, which the next start of the program may restore.

    Args:
        path: what it is restored by.
        step: the value of its variable "step"; None where it has none.
    """
    if _take is not None:
        _take(path, step)
