"""Overflow in additions of refdist's own: what `np.errstate` asks for happens, at the line of the program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refdist

LARGE = np.full(3, 60000, np.float16)
STRATEGY = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
SUM = refdist.VariableAggregation.SUM


def me() -> Any:
    return refdist.get_replica_context()


def variable(**options: Any) -> Any:
    with STRATEGY.scope():
        return refdist.Variable(LARGE, **options)


SYNCED = variable(aggregation=SUM)
READ = variable(synchronization=refdist.VariableSynchronization.ON_READ, aggregation=SUM)
ALONE = refdist.Variable(LARGE)
VARIABLES = SYNCED, READ, ALONE
ROWS = refdist.IndexedSlices(LARGE[:1], [0])

# Each overflows, on the line on which it stands.
ADDITIONS: list[Callable[[], object]] = [
    lambda: STRATEGY.run(lambda: me().all_reduce("SUM", LARGE)),
    lambda: STRATEGY.run(lambda: me().all_reduce("MEAN", {"a": 1.0, "b": LARGE[0]})),
    lambda: STRATEGY.run(lambda: me().merge_call(lambda s, x: s.reduce("SUM", x, axis=None), args=(LARGE,))),
    lambda: STRATEGY.run(lambda: SYNCED.assign_add(LARGE)),
    lambda: STRATEGY.run(lambda: SYNCED.assign_sub(-LARGE)),
    lambda: STRATEGY.run(lambda: SYNCED.scatter_add(ROWS)),
    lambda: STRATEGY.run(lambda: READ.assign_add(LARGE)),
    lambda: STRATEGY.extended.update(SYNCED, lambda copy: copy.assign_add(LARGE)),
    lambda: STRATEGY.reduce("SUM", refdist.PerReplica([LARGE, LARGE]), axis=None),
    lambda: STRATEGY.reduce("SUM", refdist.PerReplica([LARGE, LARGE]), axis=0),
    lambda: READ.read_value(),
    lambda: ALONE.assign_add(LARGE),
    lambda: ALONE.scatter_mul(ROWS),
    lambda: refdist.nn.compute_average_loss(np.full(3, 3e38, np.float32)),
]


def values() -> list[bytes]:
    return [copy.numpy().tobytes() for v in VARIABLES for copy in getattr(v, "values", [v])]


def restore() -> None:
    STRATEGY.run(lambda: READ.assign(LARGE))
    SYNCED.assign(LARGE)
    ALONE.assign(LARGE)


@pytest.mark.parametrize("add", ADDITIONS, ids=[str(i) for i in range(len(ADDITIONS))])
def test_an_overflow_is_what_the_program_asks_for(add: Callable[[], object]) -> None:
    before = values()
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match=r"^overflow encountered in"):
        add()
    assert values() == before
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        add()
    restore()
    with pytest.warns(RuntimeWarning, match=r"^overflow encountered in") as caught:
        add()
    # What earlier tests have left open is told of wherever Python collects it: not these warnings.
    assert {(warning.filename, warning.lineno) for warning in caught if warning.category is RuntimeWarning} == {
        (__file__, add.__code__.co_firstlineno)}
    restore()


@pytest.mark.parametrize("around", [True, False])
def test_no_replica_goes_on_after_an_overflow_and_the_error_names_the_line(around: bool) -> None:
    went_on = []

    def step() -> None:
        with np.errstate(over=np.geterr()["over"] if around else "raise"):
            me().all_reduce("SUM", LARGE)
        went_on.append(1)

    with np.errstate(over="raise" if around else "warn"), pytest.raises(FloatingPointError) as caught:
        STRATEGY.run(step)
    assert caught.value.__notes__ == [
        f"in the call of all replicas at {__file__}:{step.__code__.co_firstlineno + 2}"]
    assert went_on == []
    assert STRATEGY.run(lambda: me().all_reduce("SUM", 1.0)).values[1] == 2.0


def test_a_warning_comes_once_for_a_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            STRATEGY.run(lambda: me().all_reduce("SUM", LARGE))
    assert [warning.category for warning in caught if warning.category is not ResourceWarning] == [RuntimeWarning]


def test_printing_logging_and_calling_are_numpy_s(capfd: pytest.CaptureFixture[str]) -> None:
    class Log:
        written = ""

        def write(self, text: str) -> None:
            self.written += text

    called: list[tuple[str, int]] = []
    log = Log()

    def numpy_s() -> None:
        np.add(LARGE, LARGE)

    def refdist_s() -> None:
        STRATEGY.run(lambda: me().all_reduce("SUM", LARGE))

    for add in (numpy_s, refdist_s):
        with np.errstate(over="print"):
            add()
        with np.errstate(over="log", call=log):
            add()
        with np.errstate(over="call", call=lambda error, bits: called.append((error, bits))):
            add()
    printed = "".join(capfd.readouterr())
    assert printed == log.written == "Warning: overflow encountered in add\n" * 2
    assert called == [("overflow", 2)] * 2


def test_infinities_that_cancel_are_invalid() -> None:
    opposite = refdist.PerReplica([np.float32(np.inf), np.float32(-np.inf)])
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError, match="invalid value encountered in add"):
        STRATEGY.reduce("SUM", opposite, axis=None)
    with np.errstate(invalid="raise"):
        assert np.isnan(STRATEGY.reduce("SUM", refdist.PerReplica([np.float32(np.nan), np.float32(1)]), axis=None))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_sum_whose_square_is_too_large_is_no_error(dtype: Any) -> None:
    half = dtype(np.finfo(dtype).max / 2)
    for value in (half, np.full(3, half), np.full((5, 30), half), np.full(3, np.finfo(dtype).tiny)):
        with np.errstate(all="raise"):
            total = STRATEGY.reduce("SUM", refdist.PerReplica([value, value]), axis=None)
        assert np.all(total == value + value)
