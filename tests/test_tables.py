"""Every cell of the tables in `refdist/core/rules`, changed, changes what a program sees.

The tables of calls and of variables have their own tests.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import REFUSED, changed, outcome, seen, survivors

import refdist
from refdist.core import context_stack, rules
from refdist.data import AutoShardPolicy, Dataset, Options, TextLineDataset, UnevenEnd
from refdist.errors import CATALOGUE
from refdist.strategies import replica_context


def any_other(*values: str) -> Callable[[Any, str], Iterable[str]]:
    """A cell is changed to each of these values, and to a code."""
    return lambda cell, value: (*values, REFUSED)


def on_workers(program: Callable[[], Any], workers: int, replicas: int) -> Any:
    """What the program returns on each worker, and the warnings of all."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if workers == 1:
            with refdist.config.temporary_devices(gpu=replicas):
                results = [program()]
        else:
            results = refdist.simulate_workers(program, workers, replicas)
    return results, [str(one.message) for one in caught]


def what_is_read(distribute: Callable[[Any], Any]) -> Any:
    """The elements, the spec and the explanation of a distributed dataset."""
    made = distribute(refdist.MultiWorkerMirroredStrategy())
    return [seen(element) for element in made], str(made.element_spec), str(made.explain())


def with_policy(dataset: Dataset, policy: AutoShardPolicy) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    names = [str(tmp_path / f"part-{i}") for i in range(2)]
    for name in names:
        Path(name).write_text("".join(f"{name[-1]}:{line}\n" for line in range(5)))
    return names


FILES_OF = {"one, no files": (1, 0), "one, files": (1, 2), "several, no files": (2, 0), "several, fewer files": (2, 1),
            "several, enough files": (2, 2)}


def test_what_a_worker_reads(files: list[str]) -> None:
    def observe(cell: tuple[str, str]) -> Any:
        policy, (workers, count) = AutoShardPolicy[cell[0]], FILES_OF[cell[1]]
        rows = TextLineDataset(files[:count]) if count else Dataset.range(10)
        dataset = with_policy(rows.batch(5), policy)
        return on_workers(lambda: what_is_read(lambda s: s.experimental_distribute_dataset(dataset)), workers, 2)

    def others(cell: tuple[str, str], value: str) -> Iterable[str]:
        # One worker's files are all rows.
        own = {rules.ITS_FILES, rules.ALL_ROWS}
        same = own if FILES_OF[cell[1]][0] == 1 and value in own else set()
        return [one for one in (*own, rules.ITS_SHARE, REFUSED) if one not in same]

    assert survivors(rules.SHARDING, observe, others) == []


def test_how_batches_are_cut(files: list[str]) -> None:
    def observe(cell: tuple[str, str]) -> Any:
        reads, column = cell
        policy = {rules.ITS_SHARE: AutoShardPolicy.DATA, rules.ITS_FILES: AutoShardPolicy.FILE,
                  rules.ALL_ROWS: AutoShardPolicy.OFF}[reads]
        dataset = TextLineDataset(files).batch(5)
        if column == "size unknown":
            dataset = dataset.filter(lambda batch: True).map(lambda batch: batch[:3])
        dataset = with_policy(dataset, policy)
        workers, replicas = (1, 1) if column == "one replica" else (2, 2)
        return on_workers(lambda: what_is_read(lambda s: s.experimental_distribute_dataset(dataset)), workers, replicas)

    assert survivors(rules.CUTS, observe, any_other(rules.WHOLE, rules.EACH_BATCH, rules.ROW_STREAM)) == []


def read_with(uneven: str, split: bool, full: bool = False) -> Any:
    """A stream of seven rows that is split, or batches that a function made; three of two rows with `full`."""
    options = refdist.InputOptions(uneven_end=UnevenEnd[uneven])
    if full:
        # What `map` makes is known after reading, so that an empty array can replace a batch.
        batches = Dataset.range(6).batch(2, drop_remainder=True).map(lambda x: x)
    else:
        batches = with_policy(Dataset.range(7).batch(5), AutoShardPolicy.OFF)

    def distribute(strategy: Any) -> Any:
        if split:
            return strategy.experimental_distribute_dataset(batches, options)
        return strategy.distribute_datasets_from_function(lambda _: batches, options)

    return on_workers(lambda: what_is_read(distribute), 1, 2)


@pytest.mark.parametrize(("column", "split"), [
    ("rows of a batch", True), ("uneven step", True), ("uneven step", False), ("where all batches are full", False)])
def test_uneven_ends(column: str, split: bool) -> None:
    values = [rules.EVERY_ROW, rules.EQUAL_SHARES] if column == "rows of a batch" else [
        rules.KEEP, rules.DROP, rules.PAD, REFUSED]
    assert survivors(rules.UNEVEN, lambda cell: read_with(cell[0], split, column == "where all batches are full"),
                     lambda cell, value: values, column) == []


def test_for_whom_an_input_function_is_called() -> None:
    def observe(cell: tuple[str, str]) -> Any:
        call, mode = cell
        options = refdist.InputOptions(experimental_replication_mode=refdist.InputReplicationMode[mode])

        def distribute(strategy: Any) -> Any:
            if call == "experimental_distribute_dataset":
                return strategy.experimental_distribute_dataset(Dataset.range(4).batch(2), options)
            return strategy.distribute_datasets_from_function(
                lambda ctx: Dataset.range(4).batch(2).shard(ctx.num_input_pipelines, ctx.input_pipeline_id), options)

        return on_workers(lambda: what_is_read(distribute), 2 if "several" in call else 1, 2)

    assert survivors(rules.MODES, observe, any_other("ok")) == []


def value_of(kind: str, strategy: Any) -> Any:
    """A value of that kind in REDUCE, of which every worker and, where it can, every replica has another one."""
    layout = strategy.extended.layout
    mine = [np.float32([layout.first + i + 1, 1]) for i in range(layout.count)]
    if kind == rules.NOT_DISTRIBUTED:
        # The sum over workers fits into the dtype, the sum over all replicas does not.
        return np.float16([15_000 * (layout.first + 1), 1])
    if kind == rules.PER_REPLICA:
        return refdist.PerReplica(mine, layout.devices)
    if kind == rules.MIRRORED_VALUE:
        return refdist.Mirrored([mine[0]] * layout.count, layout.devices)
    on_read = kind == "on read variable"
    synchronization = refdist.VariableSynchronization.ON_READ if on_read else refdist.VariableSynchronization.AUTO
    with strategy.scope():
        variable = refdist.Variable(np.zeros(2, np.float32), name="v", synchronization=synchronization,
                                    aggregation=refdist.VariableAggregation.ONLY_FIRST_REPLICA)
    # An update is the worker's own business, so the workers can drift apart.
    strategy.extended.update(variable, lambda copy, new: copy.assign(new), args=(
        refdist.PerReplica(mine, layout.devices) if on_read else mine[0],))
    return variable


WORLDS = {"one": (1, 1), "one per worker": (2, 1), "several": (2, 2)}
REDUCERS: dict[str, Callable[[Any, str, Any], Any]] = {
    "reduce": lambda s, op, value: s.reduce(op, value, axis=None),
    "reduce_to": lambda s, op, value: s.extended.reduce_to(op, value, "CPU:0"),
    "batch_reduce_to": lambda s, op, value: s.extended.batch_reduce_to(op, [(value, "CPU:0")]),
    "batch_reduce_to of two": lambda s, op, value: s.extended.batch_reduce_to(op, [
        (value, value if isinstance(value, refdist.DistributedValues) else "CPU:0")] * 2)}


@pytest.mark.parametrize("column", rules.REDUCE.columns)
@pytest.mark.parametrize("reducer", REDUCERS)
def test_what_is_reduced_and_gathered(column: str, reducer: str) -> None:
    def observe(cell: tuple[str, str]) -> Any:
        kind, world = cell[0].rsplit(", ", 1)

        def program() -> Any:
            if world == "one":
                # Tells what takes part in a reduction from what is only returned.
                ops = refdist.ReductionToOneDevice(accumulation_fn=lambda parts: 100 * sum(parts))
                strategy: Any = refdist.MirroredStrategy(["GPU:0"], cross_device_ops=ops)
            else:
                strategy = refdist.MultiWorkerMirroredStrategy()
            value = value_of(kind, strategy)
            if column == rules.GATHER:
                return outcome(lambda: [(made := strategy.gather(value, axis=0)), made is value])
            if column == rules.ALONG:
                return [outcome(lambda op=op: strategy.reduce(op, value, axis=0)) for op in along]
            return outcome(lambda: REDUCERS[reducer](strategy, column, value))

        return on_workers(program, *WORLDS[world])

    along = ("MEAN",) if reducer == "reduce" else ("SUM",)

    def others(cell: tuple[str, str], value: str) -> Iterable[str]:
        if column == rules.ALONG:
            return [REFUSED]
        if column == rules.GATHER:
            # What each worker has is all that there is where one has no more than one replica.
            return [rules.EACH, rules.ITSELF, REFUSED, *[rules.OF_WORKERS] * cell[0].endswith("several")]
        if cell[0] == "not distributed, one per worker":
            # A contribution of each replica is one of each worker.
            return [rules.AGREEMENT, rules.ITSELF, REFUSED]
        return [rules.EACH, rules.AGREEMENT, rules.ITSELF, rules.OF_WORKERS, REFUSED]

    assert survivors(rules.REDUCE, observe, others, column) == []


# What replica i has of a kind in RESULTS that can be written in several ways.
ARRAYS_OF: list[Callable[[int], Any]] = [
    np.float32, lambda i: np.float32([i]), lambda i: refdist.IndexedSlices(np.float32([i]), [0])]
OBJECTS_OF: list[Callable[[int], Any]] = [lambda i: f"replica {i}", lambda i: i or None, lambda i: None if i else "0"]


def leaf_of(kind: str, i: int, variable: Any, way: int = 0) -> Any:
    """What replica i has, of that kind in RESULTS."""
    return {rules.ONE_REPLICA: ARRAYS_OF[way](i), rules.ARRAYS: ARRAYS_OF[way](i),
            rules.COPIES_OF_ONE: variable.values[i], rules.SAME_OBJECT: ("the same", 5, True)[way],
            rules.OBJECTS: OBJECTS_OF[way](i)}[kind]


def put_together(column: str, strategy: Any, variable: Any, leaf: Callable[[int], Any]) -> Any:
    """What the call of that column in RESULTS makes of the leaves."""
    def mine() -> Any:
        i = context_stack.frame().replica_id
        assert i is not None
        return leaf(i)

    def merged(s: Any, value: Any) -> Any:
        found.append(seen(value))

    if column == rules.RUN:
        return strategy.run(mine)
    if column == rules.MERGE:
        found: list[Any] = []
        strategy.run(lambda: refdist.get_replica_context().merge_call(merged, args=(mine(),)))
        return found
    if column == rules.UPDATED:
        return strategy.extended.update(variable, lambda copy: mine())
    if column == rules.ELEMENT:
        batches = [leaf(i) for i in range(strategy.num_replicas_in_sync)]
        options = refdist.InputOptions(experimental_fetch_to_device=False)
        return next(iter(strategy.distribute_datasets_from_function(lambda _: batches, options)))
    return strategy.experimental_distribute_values_from_function(lambda ctx: leaf(ctx.replica_id_in_sync_group))


@pytest.mark.parametrize("column", rules.RESULTS.columns)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("way", range(len(ARRAYS_OF)))
def test_what_replicas_return_is_put_together(column: str, nested: bool, way: int) -> None:
    def observe(cell: tuple[str, str]) -> Any:
        count = 1 if cell[0] == rules.ONE_REPLICA else 2
        strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])
        with strategy.scope():
            variable = refdist.Variable(1.0, name="v")

        def leaf(i: int) -> Any:
            mine = leaf_of(cell[0], i, variable, way)
            return [mine, mine] if nested else mine

        return put_together(column, strategy, variable, leaf)

    def others(cell: tuple[str, str], value: str) -> Iterable[str]:
        # Where replica 0's object is None, both are None.
        same = cell[0] == rules.OBJECTS and OBJECTS_OF[way](0) is None and value == rules.NOTHING
        return [rules.PER_REPLICA, rules.MIRRORED_VALUE, rules.NOTHING, *([] if same else [rules.BARE])]

    assert survivors(rules.RESULTS, observe, others, column) == []


def test_an_update_that_is_not_grouped_has_a_result_for_each_copy() -> None:
    for devices in (["GPU:0"], ["GPU:0", "GPU:1"]):
        strategy = refdist.MirroredStrategy(devices)
        with strategy.scope():
            variable = refdist.Variable(1.0)
        for kind in rules.RESULTS:
            results = [leaf_of(kind, i, variable) for i in range(len(devices))]
            each = strategy.extended.update(variable, lambda copy, results=results: results[copy._index], group=False)
            assert each == tuple(results)


KEEPERS: dict[str, Callable[[], Any]] = {
    rules.COPIES: lambda: refdist.MirroredStrategy(["GPU:0", "GPU:1"]),
    rules.CENTRAL: lambda: refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"]),
    rules.LONE_CENTRAL: lambda: refdist.experimental.CentralStorageStrategy(["GPU:0"]),
    rules.ONE_DEVICE: lambda: refdist.OneDeviceStrategy("GPU:0"),
    rules.DEFAULT: refdist.get_strategy}


@pytest.mark.parametrize("nest", [lambda x: [x, 1.0], lambda x: {"a": x}, lambda x: (1.0, {"b": [x]})])
def test_what_one_device_does_not_wrap(nest: Callable[[Any], Any]) -> None:
    def observe(cell: tuple[str, str]) -> Any:
        strategy = KEEPERS[cell[1]]()
        value = refdist.PerReplica([float(i) for i in range(strategy.num_replicas_in_sync)])
        if cell[0] == rules.FROM_FUNCTION:
            return strategy.experimental_distribute_values_from_function(lambda ctx: ctx.replica_id_in_sync_group)
        return strategy.experimental_local_results(value if cell[0] == rules.LOCAL_VALUE else nest(value))

    wrapped = {rules.FROM_FUNCTION: rules.PER_REPLICA, rules.LOCAL_VALUE: rules.COMPONENTS,
               rules.LOCAL_NEST: rules.NEST_EACH}
    assert survivors(rules.LOCAL, observe, lambda cell, value: (rules.BARE, wrapped[cell[0]])) == []


OF_KIND: dict[str, Any] = {
    "b": np.ones(2, bool), "i": np.ones(2, np.int16), "u": np.ones(2, np.uint8), "f": np.ones(2, np.float16),
    "c": np.ones(2, np.complex64), "S": np.array([b"a", b"b"]), "U": np.array(["a", "b"]),
    rules.OTHER_KINDS: np.array([1, 2], "M8[s]")}
THROUGH: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda x: refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(
        lambda: refdist.get_replica_context().all_reduce("SUM", x)),
    "reduce": lambda x: refdist.MirroredStrategy(["GPU:0", "GPU:1"]).reduce(
        "SUM", refdist.PerReplica([x, x]), axis=None),
    "reduce along an axis": lambda x: refdist.MirroredStrategy(["GPU:0"]).reduce("SUM", x, axis=0),
    "assign_add": lambda x: refdist.Variable(x).assign_add(x),
    "scatter_add": lambda x: refdist.Variable(x).scatter_add(refdist.IndexedSlices(x[:1], [0]))}


@pytest.mark.parametrize("through", THROUGH)
def test_which_dtypes_are_summed(through: str) -> None:
    def observe(cell: tuple[str, str]) -> Any:
        replica_context._checked_signature.cache_clear()  # a program does not change tables
        return THROUGH[through](OF_KIND[cell[1]])

    assert survivors(rules.DTYPES, observe, row=rules.SUMMED) == []
    replica_context._checked_signature.cache_clear()


def test_which_dtypes_are_ordered() -> None:
    def observe(cell: tuple[str, str]) -> Any:
        slices = refdist.IndexedSlices(OF_KIND[cell[1]][:1], [0])
        return [outcome(lambda op=op: getattr(refdist.Variable(OF_KIND[cell[1]]), op)(slices))
                for op in ("scatter_min", "scatter_max")]

    assert survivors(rules.DTYPES, observe, row=rules.ORDERED) == []
    row = rules.DTYPES[rules.ORDERED]
    unreachable = [kind for kind in row if row[kind] == "-"]
    assert unreachable == [kind for kind, cell in rules.DTYPES[rules.SUMMED].items() if cell != "ok"]
    for kind in unreachable:
        before = observe((rules.ORDERED, kind))
        with changed(row, kind, "ok"):
            assert observe((rules.ORDERED, kind)) == before


def test_which_dtypes_are_saved(tmp_path: Path) -> None:
    def observe(cell: tuple[str, str]) -> Any:
        return refdist.train.Checkpoint(v=refdist.Variable(OF_KIND[cell[1]])).write(str(tmp_path / "saved"))

    assert survivors(rules.DTYPES, observe, row=rules.SAVED) == []


def test_the_dtype_of_a_mean() -> None:
    import ml_dtypes

    def observe(name: str) -> Any:
        one = np.ones(1, getattr(ml_dtypes, name, name))
        return refdist.MirroredStrategy(["GPU:0", "GPU:1"]).reduce("MEAN", refdist.PerReplica([one, one]), axis=None)

    assert survivors(rules.MEAN_DTYPE, observe, lambda cell, value: ("float16", "float32", "float64")) == []


def differing(what: str, gathers: bool, rank: int) -> Any:
    """The call of a replica, of which that differs in MISMATCH."""
    context = refdist.get_replica_context()
    assert context is not None
    reduce, gather = (lambda x: context.all_reduce("SUM", x)), (lambda x: context.all_gather(x, 0))
    call: Callable[[Any], Any] = gather if gathers else reduce
    if what == "missing":
        return call([np.ones(2)]) if rank == 0 else None
    if what == "call":
        return ((gather, reduce) if gathers else (reduce, gather))[rank](np.ones(2))
    if what == "call site":
        if rank:
            return call(np.ones(2))
        return call(np.ones(2))
    if what == "target":
        return context.merge_call((lambda s: 1, lambda s: 2)[rank])
    if what == "reduce op":
        return context.all_reduce(("SUM", "MEAN")[rank], 1.0)
    if what == "axis":
        return context.all_gather(np.ones((2, 2)), rank)
    return call({"structure": ([np.ones(2)], (np.ones(2),)), "dtype": (np.ones(2), np.ones(2, np.float32)),
                 "shape": (np.ones((2, 2)), np.ones((2, 3)))}[what][rank])


def test_which_code_a_mismatch_has() -> None:
    def observe(cell: tuple[str, str]) -> Any:
        what, column = cell
        if what == "axis" and column == rules.OTHER_CALLS:
            # Replicas pass an axis only to gathers; workers also reduce along one.
            def program() -> Any:
                workers = refdist.MultiWorkerMirroredStrategy()
                axis = workers.extended.layout.worker
                return outcome(lambda: workers.reduce("SUM", np.ones((2, 2)), axis=axis))

            return refdist.simulate_workers(program, 2)
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        return strategy.run(lambda: differing(what, column == rules.GATHERS, context_stack.frame().replica_id or 0))

    assert survivors(rules.MISMATCH, observe) == []


@pytest.mark.parametrize("what", ["structure", "dtype", "shape"])
def test_values_of_replicas_differ_as_calls_do(what: str) -> None:
    def observe(cell: tuple[str, str]) -> Any:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        slices = refdist.IndexedSlices(np.ones((1, 2)), [0], (2, 2))
        parts = {"structure": (np.ones((2, 2)), slices), "dtype": (np.ones(2), np.ones(2, np.float32)),
                 "shape": (np.ones((2, 2)), np.ones((2, 3)))}[what]
        value = refdist.PerReplica(parts)
        return strategy.gather(value, 0) if cell[1] == rules.GATHERS else strategy.reduce("SUM", value, axis=None)

    assert survivors(rules.MISMATCH, observe, row=what, column=rules.OTHER_CALLS) == []
    if what != "structure":  # slices are not gathered at all
        assert survivors(rules.MISMATCH, observe, row=what, column=rules.GATHERS) == []


def test_every_table_is_tested() -> None:
    tables = {name for name, value in vars(rules).items() if isinstance(value, rules.Table)}
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert {name for name in tables if f"survivors(rules.{name}" not in tests} == set()


@pytest.mark.parametrize("table", [value for value in vars(rules).values() if isinstance(value, rules.Table)],
                         ids=lambda table: table.title)
def test_every_action_is_explained_and_used(table: rules.Table) -> None:
    cells = {cell for row in table.values() for cell in row.values() if not rules.is_code(cell)}
    assert cells == set(table.actions)
    assert all(cell in CATALOGUE for row in table.values() for cell in row.values() if rules.is_code(cell))
