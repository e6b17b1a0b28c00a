"""Loops over a dataset, in a file that catches nothing: what ends them from outside is raised by `step`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

Step = Callable[[], None]


def plain(batches: Any, step: Step) -> None:
    for _ in batches:
        step()


def numbered(batches: Any, step: Step) -> None:
    for _, _ in enumerate(batches):
        step()


def with_an_end_of_an_inner_loop(batches: Any, step: Step) -> None:
    for _ in batches:
        for _ in range(2):
            break
        step()


def with_break(batches: Any, step: Step) -> None:
    for batch in batches:
        step()
        if batch is None:
            break


def with_return(batches: Any, step: Step) -> None:
    for batch in batches:
        step()
        while batch is None:
            return


def with_a_yield(batches: Any, step: Step) -> Any:
    for _ in batches:
        yield step()


def with_a_limit(batches: Any, step: Step) -> None:
    for _ in islice(batches, 10 ** 6):
        step()


def by_next(batches: Any, step: Step) -> None:
    iterator = iter(batches)
    for _ in range(10 ** 6):
        next(iterator)
        step()


ENDLESS = [plain, numbered, with_an_end_of_an_inner_loop]
ENDING = [with_break, with_return, lambda batches, step: list(with_a_yield(batches, step)), with_a_limit, by_next]
