"""A worker that is told to end: all save after the same step and end; the next run goes on there."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
from refdist.experimental import PreemptionCheckpointHandler, PreemptionWatcher, TerminationConfig
from refdist.train import Checkpoint, CheckpointManager


class Ended(Exception):
    pass


def ended() -> None:
    raise Ended


def program(folder: Path, told_at: int, steps: int, victim: int = 1, late: bool = False) -> Any:
    """Trains for `steps` steps; worker `victim` is told to end in step `told_at`."""
    strategy = refdist.MultiWorkerMirroredStrategy()
    rank = strategy.extended.transport.rank
    with refdist.OneDeviceStrategy("CPU:0").scope():
        own = refdist.Variable(float(rank))  # comes first, and must not be asked who the workers are
    with strategy.scope():
        total = refdist.Variable(0.0, aggregation=refdist.VariableAggregation.SUM)
    handler: Any = None

    def is_preempted() -> bool:
        return rank == victim and handler.total_run_calls == told_at

    handler = PreemptionCheckpointHandler(
        strategy.cluster_resolver, Checkpoint(own=own) if late else Checkpoint(own=own, total=total), folder,
        TerminationConfig(termination_watcher_fn=is_preempted, exit_fn=ended))
    handler._manager.checkpoint.total = total
    started = handler.total_run_calls
    try:
        for _ in range(started, steps):
            handler.run(lambda: strategy.run(lambda: total.assign_add(np.float32(1))))
    except Ended:
        return "ended", started, handler.total_run_calls, float(total)
    return "done", started, handler.total_run_calls, float(total)


def test_all_workers_end_after_the_step_in_which_one_was_told(tmp_path: Path) -> None:
    assert refdist.simulate_workers(lambda: program(tmp_path, 3, 6), 3) == [("ended", 0, 3, 9.0)] * 3
    assert refdist.simulate_workers(lambda: program(tmp_path, -1, 6), 3) == [("done", 3, 6, 18.0)] * 3


def test_variables_that_are_made_after_the_handler_say_who_the_workers_are(tmp_path: Path) -> None:
    assert refdist.simulate_workers(lambda: program(tmp_path, 3, 6, late=True), 3) == [("ended", 0, 3, 9.0)] * 3
    assert refdist.simulate_workers(lambda: program(tmp_path, -1, 6, late=True), 3) == [("done", 3, 6, 18.0)] * 3


def test_a_signal_is_noted_and_the_default_end_is_an_exit(tmp_path: Path) -> None:
    v = refdist.Variable(1.0)
    before = signal.getsignal(signal.SIGTERM)
    try:
        handler = PreemptionCheckpointHandler(None, CheckpointManager(Checkpoint(v=v), tmp_path, 1))
        assert handler.run(lambda: 5) == 5
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit) as caught, handler.watch_preemption_scope():
            v.assign(2.0)
        assert caught.value.code == 42
    finally:
        signal.signal(signal.SIGTERM, before)
    w = refdist.Variable(0.0)
    Checkpoint(v=w).restore(refdist.train.latest_checkpoint(tmp_path)).expect_partial()
    assert float(w) == 2.0


def test_a_config_keeps_what_it_was_given_and_refuses_what_would_fail_at_the_end() -> None:
    empty = TerminationConfig()
    assert (empty.termination_watcher_fn, empty.exit_fn, empty.grace_period, empty.save_fn) == (None,) * 4
    assert [TerminationConfig(grace_period=n).grace_period for n in (0, 2, 2.5, np.int64(3))] == [0, 2, 2.5, 3]
    for name in ("termination_watcher_fn", "exit_fn", "save_fn"):
        with pytest.raises(TypeError, match=rf"\[RD25\] TerminationConfig: {name} is 3\. Pass a function, or None\."):
            TerminationConfig(**{name: 3})  # type: ignore[arg-type]
    for seconds in (-1, float("nan"), "soon", True):
        with pytest.raises(ValueError, match=rf"\[RD34\] TerminationConfig: grace_period is {seconds!r}\."):
            TerminationConfig(grace_period=seconds)  # type: ignore[arg-type]


def test_training_goes_on_for_the_grace_period_between_two_saves(tmp_path: Path) -> None:
    """TensorFlow 2.21 too saves at once and again at the end: the end may come earlier than was said."""
    saved: list[int] = []
    answers = iter([False, True])
    # Asked once more the iterator would raise: who was told stays told.
    config = TerminationConfig(lambda: next(answers), ended, grace_period=3600, save_fn=lambda: saved.append(1))
    handler = PreemptionCheckpointHandler(None, Checkpoint(v=refdist.Variable(1.0)), tmp_path, config)
    for expected in ([], [1], [1], [1]):
        handler.run(lambda: None)
        assert saved == expected
    config.grace_period = 0
    with pytest.raises(Ended):
        handler.run(lambda: None)
    assert saved == [1, 1]


def test_a_watcher_has_a_message_after_the_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        watcher = PreemptionWatcher()
        assert watcher.preemption_message is None
        watcher.block_until_worker_exit()
        os.kill(os.getpid(), signal.SIGTERM)
        assert "told to end" in str(watcher.preemption_message)
    finally:
        signal.signal(signal.SIGTERM, before)


class Odd(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


@pytest.mark.parametrize("meet", [False, True], ids=["alone", "while the others wait for it"])
@pytest.mark.parametrize(("make", "kind"), [(lambda: KeyError("no"), KeyError), (lambda: Odd(1, 2), RuntimeError)],
                         ids=["KeyError", "cannot be pickled"])
def test_an_error_of_one_worker_is_that_of_all(make: Any, kind: type[Exception], meet: bool, tmp_path: Path) -> None:
    """And afterwards all workers meet again."""
    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        rank = strategy.extended.transport.rank
        with strategy.scope():
            v = refdist.Variable(1.0)
        handler = PreemptionCheckpointHandler(strategy.cluster_resolver, Checkpoint(v=v), tmp_path,
                                              TerminationConfig(termination_watcher_fn=lambda: False))

        def total() -> Any:
            return strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.float32(1)))

        def step() -> Any:
            if rank == 1:
                raise make()
            return total() if meet else None

        with pytest.raises(type(make()) if rank == 1 else RuntimeError if meet else kind) as caught:
            handler.run(step)
        assert rank == 1 or meet or str(make()) in str(caught.value)
        return float(handler.run(total))

    assert refdist.simulate_workers(program, 3) == [3.0] * 3


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"RD34.*checkpoint_dir"):
        PreemptionCheckpointHandler(None, Checkpoint())
    with pytest.raises(TypeError, match="RD25"):
        PreemptionCheckpointHandler(None, 5, tmp_path)
