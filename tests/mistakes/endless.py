"""A loop without an end, in a file that catches nothing; the generator of rows ends it."""

from __future__ import annotations

from typing import Any

from silent_mistakes import replica


def train(strategy: Any, dataset: Any, steps: int = 30) -> None:
    """Raises ArithmeticError after so many steps, as a program does that is stopped from outside."""
    taken: list[int] = []

    def step(x: Any) -> Any:
        taken.append(replica().replica_id_in_sync_group)
        if len(taken) > 4 * steps:
            [][0]
        return replica().all_reduce("SUM", x.sum(axis=0))

    for x in strategy.experimental_distribute_dataset(dataset):  # here
        strategy.run(step, (x,))
