"""Who is told that a checkpoint is complete: what starts a job again has to know how far it has come.

Nobody, unless whoever runs workers has asked for it.
"""

from __future__ import annotations

from collections.abc import Callable

_take: Callable[[str, int | None], object] | None = None


def hand_over(take: Callable[[str, int | None], object]) -> None:
    """From now on `take` is called with each path and step that `tell` is called with."""
    global _take
    _take = take


def tell(path: str, step: int | None) -> None:
    """Says that all workers have saved a checkpoint, which the next start of the program may restore.

    Args:
        path: what it is restored by.
        step: the value of its variable "step"; None where it has none.
    """
    if _take is not None:
        _take(path, step)
