"""What the others say when a worker is killed, stopped, raises, returns early or does not come.

Nothing waits for ever: every run ends by itself, with an error that names the worker.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_workers import mpiexec

from refdist.backends.mpi.transport import MPITransport
from refdist.backends.mpi.watch import Watch

pytestmark = pytest.mark.slow

FAULTS = str(Path(__file__).parent / "workers" / "faults.py")
LINE = r"faults\.py:\d+"

# kind: (what every survivor says of the victim, what is said once)
SAYS = {
    "kill": (r"\[RD01\] all_reduce \(.*{line}\): worker {v} died:", r"worker {v} on \S+ \(process \d+\) is dead"),
    "stop": (r"\[RD01\] all_reduce \(.*{line}\): not all workers arrived within 2 s:",
             r"worker {v} on \S+ \(process \d+\) is stopped"),
    "linger": (r"\[RD01\] all_reduce \(.*{line}\): not all workers arrived within 2 s:",
               r"worker {v} on \S+ \(process \d+\) is elsewhere in the program; its last call was 1: all_reduce"),
    "return": (r"\[RD02\] rendezvous of all workers: .*; worker {v} at the end of the program",
               r"workers? [\d, ]+ at all_reduce \({line}\); worker"),
}


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("kind", SAYS)
def test_every_survivor_names_the_worker_that_is_lost(kind: str, workers: int) -> None:
    victim = workers - 1
    done = mpiexec(workers, FAULTS, kind, str(victim), limit=60, SECONDS="2")
    assert done.returncode != 0
    assert "came through" not in done.stdout
    everyone, once = (text.format(v=victim, line=LINE) for text in SAYS[kind])
    said = {int(found[1]) for found in re.finditer(rf"\[worker (\d)\] .*{everyone}", done.stderr)}
    assert said >= set(range(workers)) - {victim}, done.stderr
    assert re.search(once, done.stderr), done.stderr
    if kind == "kill":
        assert f"[worker {victim}] was killed by SIGKILL" in done.stderr


@pytest.mark.parametrize("workers", [2, 4])
def test_an_exception_on_one_worker_ends_all_and_its_traceback_comes_first(workers: int) -> None:
    done = mpiexec(workers, FAULTS, "raise", "1", limit=60, REFDIST_TIMEOUT="30")
    assert done.returncode != 0
    first = next(line for line in done.stderr.splitlines() if line.startswith("["))
    assert first == "[worker 1] Traceback (most recent call last):"
    assert "[worker 1] KeyError: 'the rows of May are missing'" in done.stderr
    assert "came through" not in done.stdout


def test_a_worker_that_never_joins_is_not_waited_for_without_end() -> None:
    # It never starts MPI, so the others wait inside of it, where no Python runs.
    done = mpiexec(3, FAULTS, "absent", "1", limit=60, REFDIST_TIMEOUT="3")
    assert done.returncode != 0
    for survivor in (0, 2):
        assert f"[worker {survivor}] [RD01] starting: not all workers arrived within 3 s." in done.stderr
    assert "[worker 1]" not in done.stderr


def test_without_a_fault_everybody_comes_through() -> None:
    done = mpiexec(2, FAULTS, "none", "0", limit=60)
    assert (done.returncode, done.stdout.count("came through"), done.stderr) == (0, 2, "")


class Slow:
    """A request to MPI that is done after so many questions, and a clock on which each of them takes 20 ms."""

    def __init__(self, questions: int) -> None:
        self.left = questions
        self.now = 0.0

    def Test(self) -> bool:  # noqa: N802 - MPI's name
        self.left -= 1
        self.now += 0.02
        return self.left <= 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("spin", [True, False])
def test_workers_that_start_slowly_are_waited_for(monkeypatch: pytest.MonkeyPatch, spin: bool) -> None:
    transport = object.__new__(MPITransport)
    transport._watch, transport._count, transport.timeout, transport._spin = Watch(0), 0, 30.0, spin
    slow = Slow(1000)
    monkeypatch.setattr("refdist.backends.mpi.transport.time", slow)
    transport._poll(slow)
    assert slow.left == 0
    slow.left = 10**9
    with pytest.raises(RuntimeError, match=r"\[RD01\] starting: not all workers arrived within 30 s"):
        transport._poll(slow)
