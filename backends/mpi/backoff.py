"""How long what was lost is left alone before it is started again.

Standard library only, as supervisors.
"""

from __future__ import annotations

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0


def backoff(restarts: int) -> float:
    """The seconds before something is started again that was so often before.

    >>> [backoff(restarts) for restarts in (0, 1, 2, 6, 2000)]
    [1.0, 2.0, 4.0, 60.0, 60.0]
    """
    return LONGEST_SECONDS if restarts > LONGEST_SECONDS else min(FIRST_SECONDS * 2**restarts, LONGEST_SECONDS)
