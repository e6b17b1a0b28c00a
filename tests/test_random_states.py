"""Random numbers after a restart: each worker draws what it would have drawn."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
from refdist.errors import InvalidValueError
from refdist.train import Checkpoint

VARIABLE = "REFDIST_MAX_RESTARTS"  # which the launch command sets


@pytest.fixture
def restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")


def drawn() -> list[float]:
    """Some numbers of each generator, and normal ones, of which an odd number leaves one for the next call."""
    return [random.random(), random.gauss(0, 1), float(np.random.uniform()), float(np.random.normal())]


def program(path: Path, reads: bool) -> tuple[list[float], int]:
    strategy = refdist.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id
    with strategy.scope():
        checkpoint = Checkpoint(v=refdist.Variable(1.0))
    random.seed(rank)
    np.random.seed(rank)
    if reads:
        checkpoint.read(path).assert_consumed()
    else:
        drawn()
        checkpoint.write(path)
    return drawn(), rank


@pytest.mark.parametrize("workers", [1, 3])
def test_each_worker_draws_on(workers: int, tmp_path: Path, restarts: None) -> None:
    expected = refdist.simulate_workers(lambda: program(tmp_path / "a", False), workers)
    assert refdist.simulate_workers(lambda: program(tmp_path / "a", True), workers) == expected
    assert len({tuple(numbers) for numbers, _ in expected}) == workers


def test_with_another_number_of_workers_they_draw_as_they_were_seeded(tmp_path: Path, restarts: None) -> None:
    refdist.simulate_workers(lambda: program(tmp_path / "a", False), 3)
    for numbers, rank in refdist.simulate_workers(lambda: program(tmp_path / "a", True), 2):
        random.seed(rank)
        np.random.seed(rank)
        assert numbers == drawn()


def test_elsewhere_a_checkpoint_changes_nothing_of_what_is_drawn(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    v = refdist.Variable(1.0)
    plain = Checkpoint(v=v).write(tmp_path / "plain")
    monkeypatch.setenv(VARIABLE, "3")
    path = Checkpoint(v=v).write(tmp_path / "restarted")
    Checkpoint(v=v).read(plain).assert_consumed()  # which has no states
    monkeypatch.delenv(VARIABLE)
    random.seed(1)
    expected = drawn()
    random.seed(1)
    state = np.random.get_state()
    Checkpoint(v=v).read(path).assert_consumed()
    assert drawn()[:2] == expected[:2]
    np.random.set_state(state)
    assert refdist.train.list_variables(path) == [("v", [])]


def test_a_function_of_a_dataset_that_draws_does_not_disturb_them(tmp_path: Path, restarts: None) -> None:
    def batches() -> Any:
        return iter(refdist.data.Dataset.range(9).map(lambda n: n + 0 * int(np.random.uniform())))
    iterator = batches()
    for _ in range(4):
        next(iterator)
    path = Checkpoint(iterator=iterator).write(tmp_path / "a")
    expected = drawn()
    Checkpoint(iterator=batches()).read(path)
    assert drawn() == expected


@pytest.mark.parametrize("change", [
    lambda states: states.clear(), lambda states: states.update(python=[3, [1, 2], None]),
    lambda states: states.update(python=[3, ["x"] * 625, None]), lambda states: states.update(numpy=["00", 1, 0, 0.0]),
    lambda states: states.update(numpy=["zz", 1, 0, 0.0]), lambda states: states.update(python="text")])
def test_states_that_do_not_fit_change_nothing(change: Any, tmp_path: Path, restarts: None,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    from refdist.checkpoints import random_states
    v = refdist.Variable(1.0)
    taken = random_states._taken()
    change(taken)
    with monkeypatch.context() as patched:
        patched.setattr(random_states, "_taken", lambda: taken)
        path = Checkpoint(v=v).write(tmp_path / "a")
    v.assign(2.0)
    state, numpy_state = random.getstate(), np.random.get_state()
    expected = drawn()
    random.setstate(state)
    np.random.set_state(numpy_state)
    with pytest.raises(InvalidValueError, match=r"RD31\] Checkpoint.read: the states of random number generators"):
        Checkpoint(v=v).read(path)
    assert drawn() == expected and float(v) == 2.0
