"""What `extended.update` promises: copies come out equal, or nothing has changed; and values keep their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refdist
from refdist import errors

TWO = refdist.MirroredStrategy(["CPU:0", "CPU:1"])


def mirrored(value: Any, **kwargs: Any) -> Any:
    with TWO.scope():
        return refdist.Variable(value, **kwargs)


def copies(v: Any) -> list[Any]:
    return [copy.numpy().tolist() for copy in v.values]


def test_another_mirrored_variable_does_not_drift_in_an_update() -> None:
    v, other = mirrored(1.0), mirrored(0.0)
    with pytest.raises(ValueError, match="RD12"):
        TWO.extended.update(v, lambda x, y: [x.assign(2.0), other.assign(y)], args=(refdist.PerReplica([5.0, 6.0]),))
    assert copies(other) == [0.0, 0.0] and copies(v) == [1.0, 1.0]
    TWO.extended.update(v, lambda x: other.assign(7.0))
    assert copies(other) == [7.0, 7.0]


def test_a_failed_update_restores_every_variable_it_wrote() -> None:
    v, other = mirrored(1.0), mirrored(0.0)
    own = mirrored(0.0, synchronization=refdist.VariableSynchronization.ON_READ,
                   aggregation=refdist.VariableAggregation.SUM)

    def half(x: Any) -> None:
        if x is v.values[1]:
            raise KeyError("half")
        other.assign(4.0)
        own.assign(3.0)

    with pytest.raises(KeyError, match="half"):
        TWO.extended.update(v, half)
    assert copies(other) == [0.0, 0.0] == copies(own)


def test_update_non_slot_leaves_copies_equal_too() -> None:
    v = mirrored(0.0)
    with pytest.raises(ValueError, match="RD12"):
        TWO.extended.update_non_slot("CPU:1", lambda: v.assign(3.0))
    assert copies(v) == [0.0, 0.0]
    for bad in ((), 5, None):
        with pytest.raises(ValueError, match="RD34"):
            TWO.extended.update_non_slot(bad, lambda: 1)
        with pytest.raises(ValueError, match="RD34"):
            TWO.extended.batch_reduce_to("SUM", 5 if bad == () else bad)  # type: ignore[arg-type]


def test_variables_made_in_an_update_are_those_of_the_scope() -> None:
    for strategy in (TWO, refdist.OneDeviceStrategy("CPU:0"), refdist.get_strategy()):
        with strategy.scope():
            v, made = refdist.Variable(1.0), []
        strategy.extended.update(v, lambda x, made=made: made.append(refdist.Variable(2.0)))
        assert {(type(new), new.distribute_strategy) for new in made} == {(type(v), v.distribute_strategy)}


def test_a_failed_update_restores_an_only_copy() -> None:
    v = mirrored(1.0)
    with refdist.MirroredStrategy(["CPU:0"]).scope():
        alone = refdist.Variable(1.0)
    with pytest.raises(KeyError, match="late"):
        TWO.extended.update(v, lambda x: [alone.values[0].assign(2.0), {}["late"]])
    assert float(alone) == 1.0


def test_python_numbers_have_no_width_of_their_own() -> None:
    v = mirrored(np.float64(0))
    v.assign(0.1)
    assert float(v) == 0.1
    assert float(mirrored(0.1, dtype=np.float64)) == 0.1
    assert refdist.constant([0.1], np.float64)[0] == 0.1
    wide = mirrored(np.int64(0))
    wide.assign(2**40)
    assert int(wide) == 2**40
    small = mirrored(np.uint8(1))
    small.assign(3)
    assert int(small) == 3
    for bad in (-1, 256):
        with pytest.raises(ValueError, match="RD05"):
            small.assign(bad)
    with pytest.raises(ValueError, match="RD05"):
        mirrored(1).assign(np.int64(2**40))


def test_strings_are_not_cut() -> None:
    v = mirrored("x")
    v.assign("yyy")
    assert str(v.numpy()) == "yyy"
    rows = mirrored(["a", "b"])
    rows.scatter_update(refdist.IndexedSlices(["longer"], [1]))
    TWO.run(lambda: rows.scatter_update(refdist.IndexedSlices(["the same"], [0])))
    assert [copy.numpy().tolist() for copy in rows.values] == [["the same", "longer"]] * 2


@pytest.mark.parametrize("value", [12345, np.int64(12345), 1.5, True, b"yyy", np.array(b"yyy")])
def test_only_text_becomes_text(value: Any) -> None:
    v = mirrored("x")
    with pytest.raises(ValueError, match=r"\[RD05\] assign of variable Variable:0: .*\.astype\('U'\)`"):
        v.assign(value)
    slices = refdist.IndexedSlices(np.atleast_1d(value), [0])
    rows = mirrored(["x"])
    with pytest.raises(ValueError, match=r"\[RD05\] scatter_update of variable Variable:0: "):
        rows.scatter_update(slices)
    assert str(v.numpy()) == "x" and rows.numpy().tolist() == ["x"]


def test_a_value_that_does_not_fit_is_told_where_it_was_to_go() -> None:
    with pytest.raises(ValueError, match=r"\[RD05\] assign_add of variable Variable:0: "):
        mirrored(1).assign_add([1.5])
    with pytest.raises(TypeError, match=r"\[RD25\] Variable\(name='v'\): dtype is 'float99'"):
        mirrored(1.0, name="v", dtype="float99")


def call_update(**arguments: Any) -> Any:
    return TWO.extended.update(mirrored([1.0, 2.0]), lambda v, x: v.assign(x), **arguments)


def call_update_in_replicas(**arguments: Any) -> Any:
    v = mirrored([1.0, 2.0])
    return TWO.run(lambda: TWO.extended.update(v, lambda v, x: v.assign(x), **arguments))


def call_update_non_slot(**arguments: Any) -> Any:
    return TWO.extended.update_non_slot(TWO.extended.parameter_devices, lambda x: x, **arguments)


def call_merge_call(**arguments: Any) -> Any:
    return TWO.run(lambda: refdist.get_replica_context().merge_call(lambda _, x: x, **arguments))


@pytest.mark.parametrize("call", [call_update, call_update_in_replicas, call_update_non_slot, call_merge_call,
                                  lambda **arguments: TWO.run(lambda x: x, **arguments)])
def test_arguments_that_are_no_list_or_dict_are_named(call: Any) -> None:
    for args in (3, np.ones(2), "ab", {"x": 1}):
        with pytest.raises(ValueError, match=rf"\[RD34\] .*: args is {errors.type_of(args)}"):
            call(args=args)
    for kwargs in (["x"], 3, "x"):
        with pytest.raises(TypeError, match=rf"\[RD25\] .*: kwargs is {errors.type_of(kwargs)}"):
            call(args=(np.ones(2),), kwargs=kwargs)
    call(args=[np.ones(2)], kwargs=None)
    call(kwargs={"x": np.ones(2)})


def test_slices_are_dense_before_an_axis_is_reduced() -> None:
    value = TWO.run(lambda: refdist.IndexedSlices(np.float32([[1, 2]]), [1], [3, 2]))
    assert TWO.reduce("SUM", value, axis=1).tolist() == [0.0, 6.0, 0.0]
    assert TWO.reduce("MEAN", value, axis=1).tolist() == [0.0, 1.5, 0.0]
    assert np.allclose(TWO.reduce("MEAN", value, axis=0), [1 / 3, 2 / 3])
    with pytest.raises(ValueError, match="RD34"):
        TWO.reduce("SUM", TWO.run(lambda: refdist.IndexedSlices([1.0], [0])), axis=0)
    with pytest.raises(ValueError, match="RD04"):
        TWO.reduce("SUM", refdist.PerReplica([refdist.IndexedSlices([1.0], [0], [n]) for n in (3, 4)]), axis=None)


def test_a_scalar_variable_cannot_be_iterated() -> None:
    with pytest.raises(TypeError):
        list(mirrored(1.0))
    assert [float(x) for x in mirrored([1.0, 2.0])] == [1.0, 2.0]


def test_a_replica_context_entered_in_an_update_is_alone_and_can_be_undone() -> None:
    v, other = mirrored(1.0), mirrored(0.0, aggregation=refdist.VariableAggregation.SUM)

    def across(strategy: Any) -> None:
        other.assign_add(2.0)

    def alone(x: Any) -> None:
        with refdist.ReplicaContext(TWO, 0):
            other.assign_add(2.0)
            refdist.get_replica_context().merge_call(across)

    TWO.extended.update(v, alone)
    assert copies(other) == [8.0, 8.0]

    def half(x: Any) -> None:
        alone(x)
        if x is v.values[1]:
            raise KeyError("half")

    with pytest.raises(KeyError, match="half"):
        TWO.extended.update(v, half)
    assert copies(other) == [8.0, 8.0]


# --- What an update returns --------------------------------------------------------------------------------------

ONE = refdist.MirroredStrategy(["CPU:0"])
CENTRAL = refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")


def second(x: Any) -> bool:
    return "replica_1" in x.name


def test_what_the_copies_return_becomes_one_structure() -> None:
    v = mirrored(1.0)
    rows = refdist.IndexedSlices([[1.0]], [0])
    got = TWO.extended.update(v, lambda x: {"a": x + 1.0, "b": (x, 5, None, "s"), "c": [rows, v]})
    assert type(got["a"]) is refdist.Mirrored and [float(part) for part in got["a"].values] == [2.0, 2.0]
    assert got["b"] == (v, 5, None, "s") and got["b"][0] is v
    assert type(got["c"][0]) is refdist.Mirrored and got["c"][1] is v
    # What differs and is not an array is None; the copies have it with group=False.
    apart = [0.5, 1.5]
    for group, outcome in ((True, None), (False, (0.5, 1.5))):
        assert TWO.extended.update(v, lambda x: apart[second(x)], group=group) == outcome
        assert TWO.extended.update(v, lambda x: "s" if second(x) else x + 1.0, group=group) == (
            None if group else (2.0, "s"))
    assert TWO.extended.update(v, lambda x: [x, None], group=False) == [v.values, (None, None)]
    assert TWO.extended.update(v, lambda x: [], group=True) == []


def test_one_copy_returns_what_it_returns_and_its_variable() -> None:
    for strategy in (ONE, CENTRAL):
        with strategy.scope():
            v = refdist.Variable(1.0)
        got = strategy.extended.update(v, lambda x: [x, x + 1.0, 5])
        assert got[0] is v and float(got[1]) == 2.0 and got[2] == 5
        assert strategy.extended.update(v, lambda x: [7], group=False) == [(7,)]


@pytest.mark.parametrize("strategy", [refdist.get_strategy(), refdist.OneDeviceStrategy("GPU:0"), TWO],
                         ids=lambda strategy: type(strategy).__name__)
def test_a_failed_update_restores_every_variable_that_it_wrote(strategy: refdist.Strategy) -> None:
    outside = refdist.Variable(1.0)
    with strategy.scope():
        variable = refdist.Variable(2.0)

    def fail(copy: refdist.Variable) -> None:
        copy.assign(5.0)
        copy.assign_add(1.0)
        outside.assign(6.0)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        strategy.extended.update(variable, fail)
    assert (float(variable), float(outside)) == (2.0, 1.0)


def test_results_of_different_structure_are_refused_and_undone() -> None:
    v = mirrored(1.0)
    for group in (True, False):
        for other in ([1.0], [1.0, 2.0, 3.0], {"a": 1.0}, 1.0):
            def updated(x: Any, other: Any = other) -> Any:
                x.assign(9.0)
                return other if second(x) else [1.0, 2.0]

            with pytest.raises(ValueError, match="RD21"):
                TWO.extended.update(v, updated, group=group)
            assert copies(v) == [1.0, 1.0]


def test_in_replicas_the_results_are_taken_apart_again() -> None:
    v = mirrored(1.0)
    got = TWO.run(lambda: TWO.extended.update(v, lambda x: [x, x + 1.0, 5, "s", None]))
    assert got[0] is v and type(got[1]) is refdist.PerReplica and got[2:] == [5, "s", None]


def test_replicas_update_the_same_variable() -> None:
    both = [mirrored(1.0), mirrored(2.0)]

    def step() -> None:
        number = refdist.get_replica_context().replica_id_in_sync_group
        TWO.extended.update(both[number], lambda x: x.assign(9.0))

    with pytest.raises(RuntimeError, match=r"RD02.*variable"):
        TWO.run(step)
    assert [copies(v) for v in both] == [[1.0, 1.0], [2.0, 2.0]]


# --- Slices that are the same on all replicas --------------------------------------------------------------------

@pytest.mark.parametrize("strategy", [TWO, CENTRAL])
def test_mirrored_slices_can_be_reduced_again(strategy: Any) -> None:
    value = strategy.run(lambda: refdist.IndexedSlices(
        [[1.0, 2.0]], [refdist.get_replica_context().replica_id_in_sync_group], [2, 2]))
    same = strategy.extended.reduce_to("SUM", value, value)
    assert type(same) is refdist.Mirrored
    for again in (strategy.reduce("MEAN", same, axis=None), strategy.extended.reduce_to("MEAN", same, "CPU:1"),
                  *strategy.extended.batch_reduce_to("MEAN", [(same, "CPU:0")]),
                  strategy.extended.broadcast_to(same.values[0], "CPU:1"),
                  *strategy.extended.reduce_to("MEAN", same, same).values):
        assert again.indices.tolist() == [0, 1] and again.values.tolist() == [[1.0, 2.0]] * 2
    with pytest.raises(ValueError, match="RD16"):
        strategy.reduce("SUM", same, axis=None)
    with pytest.raises(TypeError, match=r"RD25.*IndexedSlices"):
        strategy.extended.broadcast_to(same, "CPU:1")
    sums = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", same))
    assert [part.indices.tolist() for part in sums.values] == [[0, 1, 0, 1]] * 2
    with strategy.scope():
        v = refdist.Variable([[0.0, 0.0], [0.0, 0.0]], aggregation=refdist.VariableAggregation.SUM)
    v.scatter_add(same)
    strategy.run(lambda rows: v.scatter_add(rows), args=(same,))
    assert v.numpy().tolist() == [[3.0, 6.0]] * 2
