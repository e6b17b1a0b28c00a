"""Creation of variables: creators, what is settled when, initial values, and copies that come out equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import VariableAggregation as Agg
from refdist import VariableSynchronization as Sync

ONE = refdist.MirroredStrategy(["CPU:0"])
TWO = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
PLACE = refdist.OneDeviceStrategy("CPU:0")
CENTRAL = refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
DEFAULT = refdist.get_strategy()
ALL = [ONE, TWO, PLACE, CENTRAL, DEFAULT]


def made(strategy: Any, *args: Any, change: Callable[..., dict[str, Any]] | None = None, outside: bool = True,
         log: list[dict[str, Any]] | None = None, **kwargs: Any) -> Any:
    """A variable of `strategy`; a creator around its scope, or inside it, changes the arguments."""

    def creator(next_creator: Any, **given: Any) -> Any:
        if log is not None:
            log.append(given)
        return next_creator(**{**given, **(change(given) if change else {})})

    scopes = [refdist.variable_creator_scope(creator), strategy.scope()]
    first, second = scopes if outside else reversed(scopes)
    with first, second:
        return refdist.Variable(*(args or (1.0,)), **kwargs)


def replica_id() -> int:
    number: int = refdist.get_replica_context().replica_id_in_sync_group
    return number


# --- Trainable, synchronization and aggregation ------------------------------------------------------------------

@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("strategy", ALL)
def test_trainable_is_settled_after_the_creators(strategy: Any, outside: bool) -> None:
    log: list[dict[str, Any]] = []
    v = made(strategy, outside=outside, log=log)
    assert [given["trainable"] for given in log] == [None] * len(log) and v.trainable
    assert not made(strategy, outside=outside, change=lambda _: {"synchronization": Sync.ON_READ}).trainable
    assert made(strategy, outside=outside, trainable=True, synchronization=Sync.ON_READ).trainable
    assert not made(strategy, outside=outside, change=lambda _: {"trainable": False}).trainable


@pytest.mark.parametrize(("strategy", "settled"), [
    (ONE, Sync.ON_WRITE), (TWO, Sync.ON_WRITE), (PLACE, Sync.AUTO), (CENTRAL, Sync.AUTO), (DEFAULT, Sync.AUTO)])
def test_auto_is_on_write_where_there_are_mirrored_copies(strategy: Any, settled: Sync) -> None:
    log: list[dict[str, Any]] = []
    assert made(strategy, log=log).synchronization is settled
    assert {given["synchronization"] for given in log} == {settled}
    log.clear()
    assert made(strategy, log=log, outside=False).synchronization is settled
    assert [given["synchronization"] for given in log] == [Sync.AUTO]


@pytest.mark.parametrize("strategy", ALL)
def test_no_aggregation_is_aggregation_none(strategy: Any) -> None:
    assert made(strategy, aggregation=None).aggregation is Agg.NONE
    assert made(strategy, change=lambda _: {"aggregation": None}).aggregation is Agg.NONE
    with pytest.raises(ValueError, match=r"RD34.*aggregation is 1"):
        made(strategy, aggregation=1)
    with pytest.raises(ValueError, match=r"RD34.*aggregation is 'SUM'"):
        made(strategy, change=lambda _: {"aggregation": "SUM"}, outside=False)


def test_no_synchronization_is_auto_where_nothing_is_synchronized() -> None:
    for strategy in (PLACE, CENTRAL, DEFAULT):
        assert made(strategy, synchronization=None).synchronization is Sync.AUTO
    for strategy in (ONE, TWO):
        for outside in (True, False):
            with pytest.raises(ValueError, match=r"RD34.*synchronization is None"):
                made(strategy, synchronization=None, outside=outside)
    with pytest.raises(ValueError, match=r"RD34.*synchronization is 3"):
        made(PLACE, change=lambda _: {"synchronization": 3})


def test_a_creator_may_supply_what_the_call_lacks() -> None:
    for strategy in ALL:
        v = made(strategy, None, change=lambda given: {"initial_value": given["initial_value"] or 4.0}, name="w")
        assert float(v) == 4.0
        with pytest.raises(ValueError, match=r"RD34.*no initial value"):
            made(strategy, None)
    with TWO.scope(), refdist.variable_creator_scope(lambda next_creator, **given: next_creator(initial_value=2.0)):
        assert float(refdist.Variable(1.0, aggregation=Agg.SUM)) == 2.0


# --- Creators outside the scope ----------------------------------------------------------------------------------

def test_an_outer_creator_is_called_for_each_copy_with_its_name() -> None:
    log: list[dict[str, Any]] = []
    v = made(TWO, name="w", log=log)
    assert [given["name"] for given in log] == ["w", "w/replica_1/"]
    assert [copy.name for copy in v.values] == ["w:0", "w/replica_1:0"]
    # Later copies are named after what the first one came to be called.
    log.clear()
    v = made(TWO, name="w", log=log, change=lambda given: {"name": given["name"].replace("w", "z")})
    assert [given["name"] for given in log] == ["w", "z/replica_1/"]
    assert [copy.name for copy in v.values] == ["z:0", "z/replica_1:0"]


def test_what_replicas_do_together_is_settled_before_outer_creators() -> None:
    v = made(TWO, 0.0, aggregation=Agg.SUM, change=lambda _: {"aggregation": Agg.MEAN})
    assert v.aggregation is Agg.SUM and [copy.aggregation for copy in v.values] == [Agg.MEAN] * 2
    TWO.run(lambda: v.assign_add(1.0))
    assert float(v) == 2.0
    kept = made(TWO, change=lambda _: {"synchronization": Sync.ON_READ})
    assert type(kept).__name__ == "MirroredVariable" and kept.synchronization is Sync.ON_READ
    inner = made(TWO, 0.0, change=lambda _: {"aggregation": Agg.SUM}, outside=False)
    TWO.run(lambda: inner.assign_add(1.0))
    assert float(inner) == 2.0


@pytest.mark.parametrize(("change", "total"), [
    (lambda given: {"initial_value": 2.0 if "replica_1" in str(given["name"]) else 1.0}, 3.0),
    (lambda given: {"initial_value": lambda: 1.0 + np.asarray(_value(given["initial_value"]))}, 5.0),
])
def test_mirrored_copies_are_not_born_different(change: Callable[..., dict[str, Any]], total: float) -> None:
    with pytest.raises(ValueError, match=r"RD12.*copy 0 .*copy 1 .*initial_value"):
        made(TWO, change=change)

    with refdist.variable_creator_scope(lambda n, **given: n(**{**given, **change(given)})), \
            pytest.raises(ValueError, match="RD12"):
        TWO.run(lambda: refdist.Variable(1.0))
    # Copies that are combined on reading may differ.
    v = made(TWO, change=change, synchronization=Sync.ON_READ, aggregation=Agg.SUM)
    assert float(v) == sum(float(copy) for copy in v.values) == total


def _value(initial_value: Any) -> Any:
    return initial_value() if callable(initial_value) else initial_value


def test_copies_have_one_dtype_and_one_shape() -> None:
    def only_second(**kwargs: Any) -> Any:
        return lambda given: kwargs if "replica_1" in str(given["name"]) else {}

    for more in ({}, {"synchronization": Sync.ON_READ}):
        with pytest.raises(ValueError, match=r"RD05.*copy 0 .*float32.*copy 1 .*float64"):
            made(TWO, change=only_second(dtype="float64"), **more)
        with pytest.raises(ValueError, match=r"RD04.*copy 0 .*\(\).*copy 1 .*\(2,\)"):
            made(TWO, change=only_second(initial_value=[1.0, 1.0]), **more)
        with pytest.raises(ValueError, match=r"RD04.*copy 1 .*\(None,\)"):
            made(TWO, [1.0], change=only_second(shape=(None,)), **more)


def test_every_copy_is_a_new_variable_of_the_strategy() -> None:
    cache: list[Any] = []

    def shared(next_creator: Any, **given: Any) -> Any:
        if not cache:
            cache.append(next_creator(**given))
        return cache[0]

    plain = refdist.Variable(1.0)
    whole = made(TWO)
    for creator in (shared, lambda n, **given: plain, lambda n, **given: whole, lambda n, **given: whole.values[0]):
        with refdist.variable_creator_scope(creator), TWO.scope(), pytest.raises(TypeError, match="RD25"):
            refdist.Variable(1.0)
    assert TWO.extended.value_container(whole.values[0]) is whole


# --- Variables made in replicas ----------------------------------------------------------------------------------

@pytest.mark.parametrize("call", [False, True])
def test_the_initial_value_is_what_replica_0_reads(call: bool) -> None:
    v = made(TWO, 0.0, synchronization=Sync.ON_READ, aggregation=Agg.SUM)
    value = TWO.experimental_distribute_values_from_function(lambda ctx: 7.0 + ctx.replica_id_in_sync_group)

    def new(source: Any) -> Any:
        return refdist.Variable((lambda: source) if call else source)

    def step(part: Any) -> Any:
        v.assign(2.0 + 9 * replica_id())
        return new(v), new(value), new(part)

    copy, closed_over, given = TWO.run(step, args=(value,))
    assert [float(copy), float(closed_over), float(given)] == [2.0, 7.0, 7.0]
    assert float(v) == 13.0
    with TWO.scope():
        assert float(new(v)) == 13.0


def test_replicas_make_variables_with_one_name_and_one_kind() -> None:
    with pytest.raises(RuntimeError, match=r"RD02.*variable 'a0'.*variable 'a1'"):
        TWO.run(lambda: refdist.Variable(1.0, name=f"a{replica_id()}"))
    kinds = [{"aggregation": Agg.SUM}, {"aggregation": Agg.MEAN}]
    with pytest.raises(RuntimeError, match=r"RD02.*SUM.*MEAN"):
        TWO.run(lambda: refdist.Variable(1.0, **kinds[replica_id()]))


def test_workers_make_variables_of_one_name_and_one_kind() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        worker = strategy.extended.layout.worker
        kinds = [{"synchronization": Sync.ON_READ}, {"aggregation": Agg.SUM}]
        with strategy.scope():
            with pytest.raises(RuntimeError, match=r"RD02.*worker 0 with variable 'a0'.*worker 1 with variable 'a1'"):
                refdist.Variable(1.0, name=f"a{worker}")
            with pytest.raises(RuntimeError, match=r"RD02.*ON_READ.*NONE; worker 1 .*ON_WRITE.*SUM"):
                refdist.Variable(1.0, **kinds[worker])

    refdist.simulate_workers(program, 2)


# --- Beside another variable -------------------------------------------------------------------------------------

def test_the_default_strategy_puts_variables_beside_any_other() -> None:
    with refdist.device("CPU:1"):
        plain = refdist.Variable(1.0)
    mirrored = made(TWO)

    def device(beside: Any) -> str:
        with DEFAULT.extended.colocate_vars_with(beside):
            return str(refdist.Variable(2.0).device[-5:])

    for beside, expected in ((plain, "CPU:1"), (mirrored, "CPU:0"), (mirrored.values[1], "CPU:1")):
        assert device(beside) == DEFAULT.run(device, args=(beside,)) == expected
        with DEFAULT.scope():
            assert device(beside) == expected
        with TWO.scope(), pytest.raises(RuntimeError, match="RD10"):
            device(beside)
    assert DEFAULT.run(lambda: device(mirrored.values[1])) == "CPU:1"
    with pytest.raises(TypeError, match=r"RD25.*colocate_with_variable is 5"):
        device(5)


@pytest.mark.parametrize(("value", "dtype", "wanted"), [
    (np.array([2.5, -4.9, 0]), "int32", [2, -4, 0]), (np.array([0.5, 0]), "bool", [True, False]),
    (np.array([-0.5, 255.9]), "uint8", [0, 255]), (np.array([1 + 0j]), "float32", [1]),
    (np.array([2j]), "bool", [True]),
    (np.array([-2.0**63]), "int64", [-2**63]), (np.float16(70), "int8", 70), (lambda: np.array([2.5]), "int32", [2])])
def test_an_array_becomes_what_was_asked_for(value: Any, dtype: str, wanted: Any) -> None:
    with TWO.scope():
        v = refdist.Variable(value, dtype=dtype)
    assert v.dtype == dtype and [copy.numpy().tolist() for copy in v.values] == [wanted] * 2


@pytest.mark.parametrize(("value", "dtype"), [
    (np.array([np.nan]), "int32"), (np.array([np.inf]), "int64"), (np.array([2.0**31]), "int32"),
    (np.array([2.0**63]), "int64"), (np.array([-1.0]), "uint8"), (np.array([1 + 1j]), "float32"),
    (np.array([300]), "int8"), ([2.5], "int32"), (2.5, "int32"), ([2, 0], "bool"), (np.array(["1"]), "int32")])
def test_no_number_becomes_another_one(value: Any, dtype: str) -> None:
    with pytest.raises(ValueError, match="RD05"):
        refdist.Variable(value, dtype=dtype)
