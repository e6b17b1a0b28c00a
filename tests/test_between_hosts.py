"""Sums between hosts have the bits of the ordered sum, however the workers are placed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_workers import mpiexec

from refdist.backends.mpi.between_hosts import Sequences

PROGRAM = str(Path(__file__).parent / "workers" / "pretend_hosts.py")


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "full", "adds"), [
    ("ab", "", "BetweenHostsReducer, shared"),
    ("abb", "", "BetweenHostsReducer, shared"),
    ("aab", "", "BetweenHostsReducer, shared"),
    ("abbbbc", "", "BetweenHostsReducer, shared"),
    ("aabb", "", "BetweenHostsReducer, shared"),
    ("aabbb", "", "BetweenHostsReducer, shared"),  # each host must know when the other makes new memory
    ("abb", "b", "BetweenHostsReducer, sent"),  # all hosts send when one has no memory
    ("aa", "", "SharedMemoryReducer, shared"),
    ("aba", "", "MessageReducer, sent"),  # not host by host
])
def test_sums_are_taken_from_left_to_right(hosts: str, full: str, adds: str) -> None:
    done = mpiexec(len(hosts), PROGRAM, "2", hosts, *full)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(rf"\d+ sums by {adds}", done.stdout)) == len(hosts), done.stdout


class Soon:
    """A request that is done when it has been asked so many times."""

    def __init__(self, questions: int) -> None:
        self.left = questions

    def Test(self) -> bool:  # noqa: N802 - MPI's name
        self.left -= 1
        return self.left <= 0


def test_each_sequence_goes_on_as_soon_as_its_own_request_is_done() -> None:
    order: list[str] = []
    sequences = Sequences()

    def steps(name: str, *questions: int) -> object:
        for i, left in enumerate(questions):
            yield Soon(left)
            order.append(f"{name}{i}")
            if name == "a" and i == 1:
                sequences.add(steps("c", 1, 1, 2))

    sequences.add(steps("a", 2, 1, 4))
    sequences.add(steps("b", 3, 1, 1))
    done = [sequences.Test() for _ in range(5)]
    assert order == ["a0", "a1", "c0", "c1", "c2", "b0", "b1", "b2", "a2"]
    assert done == [False, False, False, True, True]
