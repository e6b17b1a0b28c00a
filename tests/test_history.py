"""What led to an error: the last rendezvous, remembered without a recording."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refdist
from refdist import journal
from refdist.core.history import Rendezvous
from refdist.runtime import process


def rc() -> Any:
    return refdist.get_replica_context()


def failing(rounds: int = 2) -> Any:
    """A program whose replicas meet, and then do not."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2"])

    def step() -> None:
        for _ in range(rounds):
            rc().all_reduce("SUM", np.float32([1, 2]))
        rc().all_gather(np.zeros(3 if rc().replica_id_in_sync_group else 4, np.int32), 0)
        rc().all_reduce("MEAN", np.zeros(2 if rc().replica_id_in_sync_group == 1 else 3))

    strategy.run(step)


@pytest.fixture(autouse=True)
def fresh() -> Any:
    with process.fresh():
        yield


def line(offset: int) -> str:
    return f"{__file__}:{failing.__code__.co_firstlineno + offset}"


def test_an_error_knows_the_rendezvous_before_it_and_what_did_not_meet() -> None:
    with pytest.raises(ValueError, match="RD04") as caught:
        failing()
    assert caught.value.history == [  # type: ignore[attr-defined]
        *[Rendezvous("3 replicas", "all_reduce", "SUM", "float32", "(2,)", line(6))] * 2,
        Rendezvous("3 replicas", "all_gather", "", "(dtype('int32'),)", "((None,),)", line(7)),
        Rendezvous("replicas 0, 2", "all_reduce", "MEAN", "float64", "(3,)", line(8)),
        Rendezvous("replica 1", "all_reduce", "MEAN", "float64", "(2,)", line(8))]
    assert not hasattr(caught.value, "__notes__"), "shown only when asked for"


def test_it_is_shown_under_the_message_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFDIST_HISTORY", "3")
    with pytest.raises(ValueError, match="RD04") as caught:
        failing()
    [note] = caught.value.__notes__
    assert note.splitlines()[0] == "The last rendezvous:" and len(note.splitlines()) == 5
    assert note.splitlines()[-1].split() == ["replica", "1", "all_reduce", "MEAN", "float64", "(2,)", line(8)]


@pytest.mark.parametrize("wanted", ["", "0", "many"])
def test_it_is_not_shown_otherwise(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("REFDIST_HISTORY", wanted)
    with pytest.raises(ValueError, match="RD04") as caught:
        failing()
    assert not hasattr(caught.value, "__notes__")


def test_the_last_64_are_kept_and_no_array() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    for i in range(100):
        strategy.run(lambda i=i: rc().all_reduce("SUM", np.zeros(i + 1)))  # type: ignore[misc]
    assert [entry[2].shapes for entry in journal.history.value] == [(i + 1,) for i in range(36, 100)]
    assert not any(isinstance(part, np.ndarray) for entry in journal.history.value for part in entry)


def test_a_replica_that_is_missing_leaves_those_that_wait() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2"])
    with pytest.raises(RuntimeError, match="RD01") as caught:
        strategy.run(lambda: rc().all_reduce("SUM", 1.0) if rc().replica_id_in_sync_group != 1 else None)
    assert [entry.who for entry in caught.value.history] == ["replicas 0, 2"]  # type: ignore[attr-defined]


def test_each_simulated_worker_has_a_history_of_its_own() -> None:
    histories: list[Any] = []

    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        worker = strategy.cluster_resolver.task_id
        for _ in range(worker + 1):
            strategy.run(lambda: None)
        strategy.run(lambda: rc().all_reduce("SUM", 1.0))
        try:
            strategy.run(lambda: rc().all_reduce("SUM", np.zeros(2 + worker)))
        except ValueError as error:
            histories.append(error.history)  # type: ignore[attr-defined]

    refdist.simulate_workers(program, 2)
    assert [[entry.shape for entry in history] for history in histories] == [["()", "(2,)"], ["()", "(3,)"]]
    assert [{entry.who for entry in history} for history in histories] == [{"worker 0"}, {"worker 1"}]


def test_an_error_that_passes_two_runs_has_one_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFDIST_HISTORY", "4")

    def program() -> None:
        refdist.MultiWorkerMirroredStrategy().run(
            lambda: rc().all_reduce("SUM", np.zeros(2 + rc().replica_id_in_sync_group)))

    with pytest.raises(ValueError, match="RD04") as caught:
        refdist.simulate_workers(program, 1, 2)
    assert sum(note.startswith("The last rendezvous:") for note in caught.value.__notes__) == 1
    assert [entry.who for entry in caught.value.history] == ["replica 0", "replica 1"]  # type: ignore[attr-defined]
