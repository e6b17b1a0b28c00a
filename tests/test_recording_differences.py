"""`Recording.diff`: what is a difference between two runs of a program, and what is none."""

from __future__ import annotations

import contextlib
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_workers import mpiexec

import refdist
from refdist.__main__ import main
from refdist.insight import Recording, load

PROGRAM = """import numpy as np, refdist
def step(x):
    replica = refdist.get_replica_context()
    total = replica.all_reduce("SUM", np.float32(x.sum()){extra})
    w.assign_sub(total / 8)
    return total
strategy = {strategy}
with strategy.scope():
    w = refdist.Variable(0.0, aggregation=refdist.VariableAggregation.ONLY_FIRST_REPLICA)
rows = np.arange(8, dtype=np.float32) * {scale}
for x in strategy.experimental_distribute_dataset(refdist.data.Dataset.from_tensor_slices(rows).batch(4)):
    strategy.run(step, (x,))
"""
MIRRORED = "refdist.MirroredStrategy([f'GPU:{i}' for i in range(%d)])"


def recorded(path: Path, replicas: int = 4, scale: float = 1, extra: str = "", above: str = "") -> Recording:
    path.write_text(above + PROGRAM.format(strategy=MIRRORED % replicas, scale=scale, extra=extra))
    with refdist.record() as recording:
        runpy.run_path(str(path))
    return recording


def test_where_and_when_are_no_differences(tmp_path: Path) -> None:
    first = recorded(tmp_path / "a.py")
    (tmp_path / "elsewhere").mkdir()
    moved = recorded(tmp_path / "elsewhere" / "b.py", above="# a comment\n\n")
    with refdist.config.replica_order(1):
        permuted = recorded(tmp_path / "a.py")
    assert first.diff(moved) is None and first.diff(permuted) is None


def test_workers_that_draw_another_seed_do_the_same() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        for x in strategy.experimental_distribute_dataset(refdist.data.Dataset.range(4).batch(4)):
            strategy.run(lambda x: x, args=(x,))

    both = []
    for _ in range(2):
        with refdist.record() as recording:
            refdist.simulate_workers(program, 2)
        both.append(recording)
    assert both[0].diff(both[1]) is None


@pytest.mark.slow
def test_a_simulated_program_and_one_under_mpi_do_the_same_or_the_first_value_is_named(tmp_path: Path) -> None:
    text = PROGRAM.format(strategy="refdist.MultiWorkerMirroredStrategy()", scale=1, extra="{extra}")
    both = {}
    for name, extra in (("sums", ""), ("means", " / len(x)")):
        (tmp_path / f"{name}.py").write_text(text.format(extra=extra))
        assert main(["run", "--workers", "2", "--record", str(tmp_path / name), str(tmp_path / f"{name}.py")]) == 0
        both[name] = load(tmp_path / name)
    mpiexec(2, str(tmp_path / "sums.py"), REFDIST_RECORD=str(tmp_path / "mpi"))
    real = load(tmp_path / "mpi")
    assert both["sums"].diff(real) is None and real.diff(both["sums"]) is None
    difference = both["means"].diff(real)
    assert difference is not None and difference.fields == ("contributed",)
    assert "meet all_reduce (" in str(difference) and "means.py:4)" in str(difference)


def test_the_first_value_that_differs_is_named(tmp_path: Path) -> None:
    difference = recorded(tmp_path / "a.py").diff(recorded(tmp_path / "a.py", scale=2))
    assert difference is not None and difference.mine is not None and difference.theirs is not None
    assert (difference.mine.kind, difference.mine.replica, difference.fields) == ("meet", 1, ("contributed",))
    assert (difference.mine["contributed"][0]["items"], difference.theirs["contributed"][0]["items"]) == (1.0, 2.0)
    assert "a.py:4" in str(difference)


def test_a_run_that_is_stopped_before_all_replicas_begin_is_no_other_number_of_replicas() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])

    def recording_of(step: Any) -> Recording:
        with refdist.record() as recording, contextlib.suppress(ZeroDivisionError):
            strategy.run(step)
        return recording

    difference = recording_of(lambda: 1.0).diff(recording_of(lambda: 1 / 0))
    assert difference is not None and difference.theirs is not None and difference.theirs.kind == "error"


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_another_number_of_replicas_is_no_difference_where_results_are_equal(tmp_path: Path, replicas: int) -> None:
    assert recorded(tmp_path / "a.py").diff(recorded(tmp_path / "a.py", replicas)) is None


def test_on_another_number_of_replicas_the_first_value_that_differs_is_named(tmp_path: Path) -> None:
    # A mean of each replica's rows, summed.
    wrong = {"extra": " / len(x)"}
    difference = recorded(tmp_path / "a.py", 4, **wrong).diff(recorded(tmp_path / "a.py", 2, **wrong))
    assert difference is not None and difference.mine is not None and difference.theirs is not None
    assert (difference.mine.kind, difference.mine.step, difference.fields) == ("receive", 1, ("received",))
    assert (difference.mine["received"][0]["items"], difference.theirs["received"][0]["items"]) == (6.0, 3.0)
    # Of an answer the call is said.
    assert "this: receive of all_reduce (" in str(difference) and str(difference).count("a.py:4)") == 2


def test_a_recording_that_ends_earlier_differs() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with refdist.record() as short:
        strategy.reduce("SUM", strategy.run(lambda: np.float32(1)), None)
    with refdist.record() as long:
        for _ in range(2):
            strategy.reduce("SUM", strategy.run(lambda: np.float32(1)), None)
    difference = short.diff(long)
    assert difference is not None and difference.mine is None
    assert "only the other recording has event" in str(difference)
    assert long.diff(short).theirs is None
