"""Whatever is given to a variable: it takes it, or says why not by an error of the catalogue and stays as it was."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import IndexedSlices, errors
from refdist import VariableAggregation as Agg
from refdist import VariableSynchronization as Sync

TWO = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
CENTRAL = refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
PLACE = refdist.OneDeviceStrategy("CPU:0")

INITIAL = [1.0, [1.0, 2.0], np.zeros((0, 3)), [True, False], np.int8([100, -100]), [1j], ["a", "bb"],
           np.array([(1, 2.0)], [("a", int), ("b", float)])]
VALUES = [*INITIAL, np.ones((2, 3)), True, [3, 4], np.uint8([1, 2]), b"x", np.array([1], "m8[s]"), None, {}, set(),
          object(), len, float("nan"), 10**30, -1, 256, [1, [2]], [None], np.array([None, 1]), 2.5, np.int64(2**40),
          refdist.PerReplica([1.0, 2.0]), refdist.PerReplica(["a", 1]), refdist.PerReplica([np.ones(2), np.ones(3)]),
          refdist.Mirrored([1.0]), *itertools.starmap(IndexedSlices, [
              ([1.0], [0]), (np.ones((1, 3)), [1]), ([1.0], [5]), ([1.0], [-1]), ([1], [0]), ([True], [0]),
              (["q"], [0]), ([0], [0]), ([1, 2], [0, 0]), ([1j], [0]), ([1.0], [7], [2]), ([1.0], [0], [2, 3])])]
METHODS = ["assign", "assign_add", "assign_sub", "scatter_add", "scatter_sub", "scatter_mul", "scatter_div",
           "scatter_min", "scatter_max", "scatter_update", "batch_scatter_update", "gather_nd", "sparse_read"]
OPERATORS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.pow, operator.matmul, operator.lt,
             operator.and_, operator.lshift, operator.getitem]
ALONE: list[Callable[[Any], Any]] = [float, int, complex, bool, len, list, operator.index, operator.neg,
                                     operator.invert, abs, hash]


def state(v: Any) -> list[Any]:
    copies = v._copies if hasattr(v, "_copies") else [v]
    return [(copy._array.dtype, copy._array.shape, copy._array.tobytes()) for copy in copies]


Call = tuple[str, Any, Callable[[Any], Any]]


def outcome(call: Callable[[], Any], strategy: Any, where: str) -> BaseException | None:
    try:
        if where == "replicas":
            strategy.run(lambda: [call(), None][1])
        else:
            call()
    except Exception as error:
        return error
    return None


def check(v: Any, calls: Sequence[Call], strategy: Any, where: str) -> Sequence[Call]:
    """Makes the calls up to the first that changes `v`, and returns the rest; every error is in the catalogue."""
    before = state(v)
    for i, (name, value, act) in enumerate(calls):
        error = outcome(functools.partial(act, v), strategy, where)
        description = f"{name} of {v!r} with {value!r}: {error!r}"
        assert error is None or (isinstance(error, errors.RefdistError) and error.code in errors.CATALOGUE), description
        if state(v) != before:
            # What replicas do alone, to copies that may differ, was done before another one failed.
            assert error is None or (where == "replicas" and v.synchronization is Sync.ON_READ), description
            return calls[i + 1:]
    return []


def made(strategy: Any, initial: Any, options: dict[str, Any]) -> Any:
    with strategy.scope():
        return refdist.Variable(initial, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("where", "strategy", "options"), [
    ("outside", TWO, {}), ("outside", CENTRAL, {"aggregation": Agg.MEAN}), ("outside", PLACE, {}),
    ("outside", TWO, {"aggregation": Agg.SUM, "synchronization": Sync.ON_READ}),
    ("replicas", TWO, {"aggregation": Agg.SUM}), ("replicas", CENTRAL, {"aggregation": Agg.MEAN}),
    ("replicas", TWO, {"aggregation": Agg.SUM, "synchronization": Sync.ON_READ})])
def test_every_update_with_every_value(where: str, strategy: Any, options: dict[str, Any]) -> None:
    for initial in INITIAL:
        rest: Sequence[Call] = [(name, value, operator.methodcaller(name, value)) for name in METHODS
                                for value in VALUES]
        while rest:
            rest = check(made(strategy, initial, options), rest, strategy, where)


@pytest.mark.filterwarnings("ignore")
def test_every_operator_with_every_value() -> None:
    for initial in [*INITIAL, [np.ones((1, 1))]]:
        calls: list[Call] = [(act.__name__, value, lambda v, act=act, value=value: act(v, value))
                             for act in OPERATORS for value in VALUES]
        calls += [(act.__name__, None, act) for act in ALONE]
        assert check(made(TWO, initial, {}), calls, TWO, "outside") == []


@pytest.mark.parametrize("options", [{"dtype": "foo"}, {"dtype": 5}, {"dtype": object}, {"shape": 5}, {"shape": "x"},
                                     {"shape": (2, "a")}, {"name": 5}])
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="RD25"):
        refdist.Variable([1.0], **options)


def test_scatter_follows_the_dtype() -> None:
    def after(method: str, initial: Any, *slices: Any) -> Any:
        v = refdist.Variable(initial)
        getattr(v, method)(IndexedSlices(*slices))
        return v.numpy().tolist()

    rows = np.array([2, -2, 3])
    assert after("scatter_div", [-7, 7, -8], rows, [0, 1, 2]) == [-3, -3, -2]
    assert after("scatter_div", np.int8([-7, 7, -8]), rows.astype(np.int8), [0, 1, 2]) == [-3, -3, -2]
    assert after("scatter_div", [7.0], [2.0], [0]) == [3.5]
    for zero in ([0.0], [0]):
        with pytest.raises(ValueError, match=r"RD34.*divided by zero"):
            after("scatter_div", np.array(zero) + 1, np.array(zero), [0])
    for method in ("scatter_add", "scatter_sub", "scatter_mul", "scatter_div", "scatter_min", "scatter_max"):
        with pytest.raises(TypeError, match=r"RD23.*bool"):
            after(method, [True], [True], [0])
    assert after("scatter_update", [True], [False], [0]) == [False]
    for method in ("scatter_min", "scatter_max"):
        with pytest.raises(TypeError, match=r"RD23.*no order"):
            after(method, [1j], [1j], [0])
    # The mean of integers is a float, which no integer variable takes.
    v = made(CENTRAL, [1, 2], {"aggregation": Agg.MEAN})
    with pytest.raises(ValueError, match="RD05"):
        CENTRAL.run(lambda: v.scatter_add(IndexedSlices([1], [0])))


@pytest.mark.parametrize("strategy", [TWO, CENTRAL, PLACE])
def test_slices_that_know_the_whole_shape_are_arrays(strategy: Any) -> None:
    rows = IndexedSlices([[1.0, 2.0], [1.0, 2.0]], [1, 1], [2, 2])
    with strategy.scope():
        v = refdist.Variable(rows, aggregation=Agg.SUM)
    assert v.numpy().tolist() == [[0.0, 0.0], [2.0, 4.0]]
    v.assign_add(rows)
    assert v.numpy().tolist() == [[0.0, 0.0], [4.0, 8.0]]
    strategy.run(lambda: v.assign(rows))
    assert v.numpy()[1].tolist() == [2.0 * strategy.num_replicas_in_sync, 4.0 * strategy.num_replicas_in_sync]
    same = strategy.extended.broadcast_to(rows, v)
    v.assign(same)
    assert v.numpy().tolist() == [[0.0, 0.0], [2.0, 4.0]]
    with pytest.raises(ValueError, match=r"RD34.*no dense_shape"):
        v.assign(IndexedSlices([[1.0, 2.0]], [1]))


def test_a_variable_is_not_a_key() -> None:
    v = refdist.Variable(1.0)
    with pytest.raises(TypeError, match=r"RD25.*ref\(\)"):
        hash(v)
    assert {v.ref(): 1}[v.ref()] == 1


# --- What the messages say ---------------------------------------------------------------------------------------

FOUR = refdist.MirroredStrategy([f"CPU:{i}" for i in range(4)])


def message(code: str, call: Callable[[], Any]) -> str:
    with pytest.raises(errors.RefdistError) as info:
        call()
    assert info.value.code == code
    return str(info.value)


def here(lines: int) -> str:
    return f"{__file__}:{inspect.currentframe().f_back.f_lineno + lines}"  # type: ignore[union-attr]


def replica_id() -> int:
    number: int = refdist.get_replica_context().replica_id_in_sync_group
    return number


def test_a_foreign_variable_is_told_where_it_was_made() -> None:
    outside, at = refdist.Variable(1.0), here(0)
    for call in (lambda: TWO.run(lambda: outside.assign(2.0)),
                 lambda: TWO.extended.update(outside, lambda x: x.assign(2.0))):
        text = message("RD11", call)
        assert f"made outside any scope at {at} and the code runs" in text and "with strategy.scope():" in text

    with FOUR.scope():
        other, at = refdist.Variable(1.0), here(0)
    calls = [lambda: TWO.run(lambda: other.assign(2.0)), lambda: TWO.extended.update(other, lambda x: x.assign(2.0))]
    with TWO.scope():
        calls.append(lambda: TWO.extended.colocate_vars_with(other))
        texts = [message("RD11", call) for call in calls[2:]]
    for text in texts + [message("RD11", call) for call in calls[:2]]:
        assert f"belongs to a MirroredStrategy of 4 replicas (made at {at}) and the code runs" in text
        assert "one strategy object" in text and "inside `with" not in text
    with TWO.scope():
        assert f"of 4 replicas (made at {at})" in message("RD10", lambda: other.assign(2.0))

    def made_by_a_creator(next_creator: Any, **kwargs: Any) -> Any:
        return next_creator(**kwargs)

    with refdist.variable_creator_scope(made_by_a_creator), FOUR.scope():
        created, at = refdist.Variable(1.0), here(0)
    assert at in message("RD11", lambda: TWO.run(lambda: created.assign(2.0)))
    assert at in message("RD11", lambda: TWO.run(lambda: copy.deepcopy(created).assign(2.0)))


def test_drifting_copies_are_told_what_helps_there() -> None:
    v, value = made(TWO, 1.0, {}), refdist.PerReplica([1.0, 2.0])
    text = message("RD12", lambda: TWO.run(lambda: v.assign(float(replica_id()))))
    assert "get_replica_context().all_reduce" in text and "aggregation" in text
    for call in (lambda: v.assign(value), lambda: TWO.extended.update(v, lambda x, a: x.assign(a), args=(value,))):
        text = message("RD12", call)
        assert "strategy.reduce(" in text and "aggregation" not in text
    # The advice works.
    TWO.run(lambda: v.assign(refdist.get_replica_context().all_reduce("MEAN", 1.0 + 2 * replica_id())))
    assert float(v) == 2.0
    v.assign(TWO.reduce("MEAN", value, axis=None))
    assert float(v) == 1.5


def test_a_missing_aggregation_is_told_which_one_does_what() -> None:
    v = made(CENTRAL, 1.0, {})
    assert "ONLY_FIRST_REPLICA where all contribute the same value, as after `all_reduce`" in message(
        "RD13", lambda: CENTRAL.run(lambda: v.assign(1.0)))


@pytest.mark.parametrize("strategy", [TWO, CENTRAL])
def test_replicas_that_write_different_variables_are_told_which(strategy: Any) -> None:
    both = [made(strategy, [1.0], {"aggregation": Agg.SUM}) for _ in range(2)]
    at = both[0].values[0]._made if strategy is TWO else both[0]._primary._made
    for write in (lambda v: v.assign_add([1.0]), lambda v: v.scatter_add(IndexedSlices([1.0], [0]))):
        text = message("RD02", lambda write=write: strategy.run(lambda: write(both[replica_id()])))
        assert text.count("Variable:0") == 3 and str(at) in text
        assert [v.numpy().tolist() for v in both] == [[1.0], [1.0]]
    strategy.run(lambda: both[0].assign_add([1.0]))
    assert both[0].numpy().tolist() == [3.0]


def test_a_part_of_another_shape_than_the_variable_is_said_to_be_one() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        v = refdist.Variable(np.zeros(3), name="v")
    scalars = strategy.run(lambda: np.float64(1))
    with pytest.raises(ValueError, match=r"RD04\] assign of variable v:0, to replica 0's part of a PerReplica: the "
                                         r"value has shape \(\), the variable \(3,\)"):
        v.assign(scalars)
    assert v.numpy().tolist() == [0, 0, 0]
