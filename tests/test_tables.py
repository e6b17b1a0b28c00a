"""Every cell of the tables in `refdist/core/rules`, changed, changes what a program sees.

The tables of calls and of variables have their own tests.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pretend_library
import pytest
from cells import REFUSED, outcome, seen, survivors

import refdist
from refdist.core import context_stack
from refdist.core.rules import calls, input, replica_types, values, variables
from refdist.core.rules.calls import MISMATCH, Combining, Difference
from refdist.core.rules.input import (
    CUTS,
    MODES,
    SHARDING,
    UNEVEN,
    Cut,
    Distributing,
    End,
    Files,
    Readers,
    Reads,
    Shared,
    Size,
    Source,
    Step,
)
from refdist.core.rules.table import Permission, Refusal, Table
from refdist.core.rules.values import (
    DTYPES,
    LOCAL,
    MEAN_DTYPE,
    OTHER_KINDS,
    REDUCE,
    RESULTS,
    Across,
    Contributed,
    Leaves,
    Local,
    Reduced,
    Replicas,
    Result,
    Together,
    Unwrapped,
    Use,
    Value,
)
from refdist.core.rules.variables import Keeps
from refdist.data import AutoShardPolicy, Dataset, Options, TextLineDataset, UnevenEnd
from refdist.errors import InternalError
from refdist.runtime import process
from refdist.strategies import replica_context


def any_other(*values: Any) -> Callable[[Any, Any], Iterable[Any]]:
    """A cell is changed to each of these values, and to a refusal."""
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
    return results, [str(warning.message) for warning in caught if warning.category is not ResourceWarning]


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


FILES_OF = {Source(Readers.ONE, Files.NONE): (1, 0), Source(Readers.ONE, Files.SOME): (1, 2),
            Source(Readers.SEVERAL, Files.NONE): (2, 0), Source(Readers.SEVERAL, Files.FEWER): (2, 1),
            Source(Readers.SEVERAL, Files.ENOUGH): (2, 2)}


def test_what_a_worker_reads(files: list[str]) -> None:
    def observe(cell: tuple[AutoShardPolicy, Source]) -> Any:
        policy, (workers, count) = cell[0], FILES_OF[cell[1]]
        rows = TextLineDataset(files[:count]) if count else Dataset.range(10)
        dataset = with_policy(rows.batch(5), policy)
        return on_workers(lambda: what_is_read(lambda s: s.experimental_distribute_dataset(dataset)), workers, 2)

    def others(cell: tuple[AutoShardPolicy, Source], value: Any) -> Iterable[Any]:
        # One worker's files are all rows.
        own = {Reads.ITS_FILES, Reads.ALL_ROWS}
        same = own if FILES_OF[cell[1]][0] == 1 and value in own else set()
        return [cell for cell in (*own, Reads.ITS_SHARE, REFUSED) if cell not in same]

    assert survivors(SHARDING, observe, others) == []


def test_how_batches_are_cut(files: list[str]) -> None:
    def observe(cell: tuple[Reads, Size]) -> Any:
        reads, column = cell
        policy = {Reads.ITS_SHARE: AutoShardPolicy.DATA, Reads.ITS_FILES: AutoShardPolicy.FILE,
                  Reads.ALL_ROWS: AutoShardPolicy.OFF}[reads]
        dataset = TextLineDataset(files).batch(5)
        if column is Size.UNKNOWN:
            dataset = dataset.filter(lambda batch: True).map(lambda batch: batch[:3])
        dataset = with_policy(dataset, policy)
        workers, replicas = (1, 1) if column is Size.ONE_REPLICA else (2, 2)
        return on_workers(lambda: what_is_read(lambda s: s.experimental_distribute_dataset(dataset)), workers, replicas)

    assert survivors(CUTS, observe, lambda cell, value: Cut) == []


def read_with(uneven: UnevenEnd, split: bool, full: bool = False) -> Any:
    """A stream of seven rows that is split, or batches that a function made; three of two rows with `full`."""
    options = refdist.InputOptions(uneven_end=uneven)
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
    (End.ROWS_OF_A_BATCH, True), (End.UNEVEN_STEP, True), (End.UNEVEN_STEP, False), (End.FULL_BATCHES, False)])
def test_uneven_ends(column: End, split: bool) -> None:
    values: list[Any] = [*Shared] if column is End.ROWS_OF_A_BATCH else [*Step, REFUSED]
    assert survivors(UNEVEN, lambda cell: read_with(cell[0], split, column is End.FULL_BATCHES),
                     lambda cell, value: values, column) == []


def test_for_whom_an_input_function_is_called() -> None:
    def observe(cell: tuple[Distributing, refdist.InputReplicationMode]) -> Any:
        call, mode = cell
        options = refdist.InputOptions(experimental_replication_mode=mode)

        def distribute(strategy: Any) -> Any:
            if call is Distributing.DATASET:
                return strategy.experimental_distribute_dataset(Dataset.range(4).batch(2), options)
            return strategy.distribute_datasets_from_function(
                lambda ctx: Dataset.range(4).batch(2).shard(ctx.num_input_pipelines, ctx.input_pipeline_id), options)

        workers = 2 if call is Distributing.FUNCTION_SEVERAL_WORKERS else 1
        return on_workers(lambda: what_is_read(distribute), workers, 2)

    assert survivors(MODES, observe, any_other(Permission.OK)) == []


def value_of(kind: Value, strategy: Any) -> Any:
    """A value of that kind in REDUCE, of which every worker and, where it can, every replica has another one."""
    layout = strategy.extended.layout
    parts = [np.float32([layout.first + i + 1, 1]) for i in range(layout.count)]
    if kind is Value.NOT_DISTRIBUTED:
        # The sum over workers fits into the dtype, the sum over all replicas does not.
        return np.float16([15_000 * (layout.first + 1), 1])
    if kind is Value.PER_REPLICA:
        return refdist.PerReplica(parts, layout.devices)
    if kind is Value.MIRRORED:
        return refdist.Mirrored([parts[0]] * layout.count, layout.devices)
    on_read = kind is Value.ON_READ_VARIABLE
    synchronization = refdist.VariableSynchronization.ON_READ if on_read else refdist.VariableSynchronization.AUTO
    with strategy.scope():
        variable = refdist.Variable(np.zeros(2, np.float32), name="v", synchronization=synchronization,
                                    aggregation=refdist.VariableAggregation.ONLY_FIRST_REPLICA)
    # An update is the worker's own business, so the workers can drift apart.
    strategy.extended.update(variable, lambda copy, new: copy.assign(new), args=(
        refdist.PerReplica(parts, layout.devices) if on_read else parts[0],))
    return variable


WORLDS = {Replicas.ONE: (1, 1), Replicas.ONE_PER_WORKER: (2, 1), Replicas.SEVERAL: (2, 2)}
REDUCERS: dict[str, Callable[[Any, str, Any], Any]] = {
    "reduce": lambda s, op, value: s.reduce(op, value, axis=None),
    "reduce_to": lambda s, op, value: s.extended.reduce_to(op, value, "CPU:0"),
    "batch_reduce_to": lambda s, op, value: s.extended.batch_reduce_to(op, [(value, "CPU:0")]),
    "batch_reduce_to of two": lambda s, op, value: s.extended.batch_reduce_to(op, [
        (value, value if isinstance(value, refdist.DistributedValues) else "CPU:0")] * 2)}


@pytest.mark.parametrize("column", REDUCE.columns)
@pytest.mark.parametrize("reducer", REDUCERS)
def test_what_is_reduced_and_gathered(column: refdist.ReduceOp | Across, reducer: str) -> None:
    def observe(cell: tuple[Reduced, refdist.ReduceOp | Across]) -> Any:
        kind, world = cell[0]

        def program() -> Any:
            if world is Replicas.ONE:
                # Tells what takes part in a reduction from what is only returned.
                ops = refdist.ReductionToOneDevice(accumulation_fn=lambda parts: 100 * sum(parts))
                strategy: Any = refdist.MirroredStrategy(["GPU:0"], cross_device_ops=ops)
            else:
                strategy = refdist.MultiWorkerMirroredStrategy()
            value = value_of(kind, strategy)
            if column is Across.GATHER:
                return outcome(lambda: [(made := strategy.gather(value, axis=0)), made is value])
            if column is Across.ALONG_AN_AXIS:
                return [outcome(lambda op=op: strategy.reduce(op, value, axis=0)) for op in along]
            return outcome(lambda: REDUCERS[reducer](strategy, column, value))

        return on_workers(program, *WORLDS[world])

    along = ("MEAN",) if reducer == "reduce" else ("SUM",)

    def others(cell: tuple[Reduced, Any], value: Any) -> Iterable[Any]:
        if column is Across.ALONG_AN_AXIS:
            return [REFUSED]
        if column is Across.GATHER:
            # What each worker has is all that there is where one has no more than one replica.
            several = cell[0].replicas is Replicas.SEVERAL
            return [Contributed.EACH, Contributed.ITSELF, REFUSED, *[Contributed.OF_WORKERS] * several]
        if cell[0] == (Value.NOT_DISTRIBUTED, Replicas.ONE_PER_WORKER):
            # A contribution of each replica is one of each worker.
            return [Contributed.AGREED, Contributed.ITSELF, REFUSED]
        return [*Contributed, REFUSED]

    assert survivors(REDUCE, observe, others, column) == []


# What replica i has of a kind in RESULTS that can be written in several ways.
ARRAYS_OF: list[Callable[[int], Any]] = [
    np.float32, lambda i: np.float32([i]), lambda i: refdist.IndexedSlices(np.float32([i]), [0])]
OBJECTS_OF: list[Callable[[int], Any]] = [lambda i: f"replica {i}", lambda i: i or None, lambda i: None if i else "0"]


def leaf_of(kind: Leaves, i: int, variable: Any, way: int = 0) -> Any:
    """What replica i has, of that kind in RESULTS."""
    return {Leaves.ONE_REPLICA: ARRAYS_OF[way](i), Leaves.ARRAYS: ARRAYS_OF[way](i),
            Leaves.COPIES_OF_ONE_VARIABLE: variable.values[i], Leaves.SAME_OBJECT: ("the same", 5, True)[way],
            Leaves.OTHER_OBJECTS: OBJECTS_OF[way](i)}[kind]


def put_together(column: Result, strategy: Any, variable: Any, leaf: Callable[[int], Any]) -> Any:
    """What the call of that column in RESULTS makes of the leaves."""
    def leaf_here() -> Any:
        i = context_stack.frame().replica_id
        assert i is not None
        return leaf(i)

    def merged(s: Any, value: Any) -> Any:
        values.append(seen(value))

    if column is Result.RUN:
        return strategy.run(leaf_here)
    if column is Result.MERGE_CALL:
        values: list[Any] = []
        strategy.run(lambda: refdist.get_replica_context().merge_call(merged, args=(leaf_here(),)))
        return values
    if column is Result.UPDATE:
        return strategy.extended.update(variable, lambda copy: leaf_here())
    if column is Result.ELEMENT:
        batches = [leaf(i) for i in range(strategy.num_replicas_in_sync)]
        options = refdist.InputOptions(experimental_fetch_to_device=False)
        return next(iter(strategy.distribute_datasets_from_function(lambda _: batches, options)))
    return strategy.experimental_distribute_values_from_function(lambda ctx: leaf(ctx.replica_id_in_sync_group))


@pytest.mark.parametrize("column", RESULTS.columns)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("way", range(len(ARRAYS_OF)))
def test_what_replicas_return_is_put_together(column: Result, nested: bool, way: int) -> None:
    def observe(cell: tuple[Leaves, Result]) -> Any:
        count = 1 if cell[0] is Leaves.ONE_REPLICA else 2
        strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])
        with strategy.scope():
            variable = refdist.Variable(1.0, name="v")

        def leaf(i: int) -> Any:
            own_leaf = leaf_of(cell[0], i, variable, way)
            return [own_leaf, own_leaf] if nested else own_leaf

        return put_together(column, strategy, variable, leaf)

    def others(cell: tuple[Leaves, Result], value: Together) -> Iterable[Together]:
        # Where replica 0's object is None, both are None.
        same = cell[0] is Leaves.OTHER_OBJECTS and OBJECTS_OF[way](0) is None and value is Together.NOTHING
        return [other for other in Together if not (same and other is Together.BARE)]

    assert survivors(RESULTS, observe, others, column) == []


def test_an_update_that_is_not_grouped_has_a_result_for_each_copy() -> None:
    for devices in (["GPU:0"], ["GPU:0", "GPU:1"]):
        strategy = refdist.MirroredStrategy(devices)
        with strategy.scope():
            variable = refdist.Variable(1.0)
        for kind in RESULTS:
            results = [leaf_of(kind, i, variable) for i in range(len(devices))]
            each = strategy.extended.update(variable, lambda copy, results=results: results[copy._index], group=False)
            assert each == tuple(results)


KEEPERS: dict[Keeps, Callable[[], Any]] = {
    Keeps.COPIES: lambda: refdist.MirroredStrategy(["GPU:0", "GPU:1"]),
    Keeps.CENTRAL: lambda: refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"]),
    Keeps.LONE_CENTRAL: lambda: refdist.experimental.CentralStorageStrategy(["GPU:0"]),
    Keeps.ONE_DEVICE: lambda: refdist.OneDeviceStrategy("GPU:0"),
    Keeps.DEFAULT: refdist.get_strategy}


@pytest.mark.parametrize("nest", [lambda x: [x, 1.0], lambda x: {"a": x}, lambda x: (1.0, {"b": [x]})])
def test_what_one_device_does_not_wrap(nest: Callable[[Any], Any]) -> None:
    def observe(cell: tuple[Unwrapped, Keeps]) -> Any:
        strategy = KEEPERS[cell[1]]()
        value = refdist.PerReplica([float(i) for i in range(strategy.num_replicas_in_sync)])
        if cell[0] is Unwrapped.FROM_FUNCTION:
            return strategy.experimental_distribute_values_from_function(lambda ctx: ctx.replica_id_in_sync_group)
        return strategy.experimental_local_results(value if cell[0] is Unwrapped.LOCAL_VALUE else nest(value))

    wrapped = {Unwrapped.FROM_FUNCTION: Local.PER_REPLICA, Unwrapped.LOCAL_VALUE: Local.COMPONENTS,
               Unwrapped.LOCAL_NEST: Local.NEST_EACH}
    assert survivors(LOCAL, observe, lambda cell, value: (Local.BARE, wrapped[cell[0]])) == []


OF_KIND: dict[str, Any] = {
    "b": np.ones(2, bool), "i": np.ones(2, np.int16), "u": np.ones(2, np.uint8), "f": np.ones(2, np.float16),
    "c": np.ones(2, np.complex64), "S": np.array([b"a", b"b"]), "U": np.array(["a", "b"]),
    OTHER_KINDS: np.array([1, 2], "M8[s]")}
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
    def observe(cell: tuple[Use, str]) -> Any:
        replica_context._checked_signature.cache_clear()  # a program does not change tables
        return THROUGH[through](OF_KIND[cell[1]])

    assert survivors(DTYPES, observe, row=Use.SUMMED) == []
    replica_context._checked_signature.cache_clear()


def test_which_dtypes_are_ordered() -> None:
    def observe(cell: tuple[Use, str]) -> Any:
        slices = refdist.IndexedSlices(OF_KIND[cell[1]][:1], [0])
        return [outcome(lambda op=op: getattr(refdist.Variable(OF_KIND[cell[1]]), op)(slices))
                for op in ("scatter_min", "scatter_max")]

    assert survivors(DTYPES, observe, row=Use.ORDERED) == []
    row = DTYPES[Use.ORDERED]
    unreached = [kind for kind in DTYPES.columns if kind not in row]
    assert unreached == [kind for kind, cell in DTYPES[Use.SUMMED].items() if cell is not Permission.OK]
    for kind in unreached:
        assert all("[RD23]" in text for _, text in observe((Use.ORDERED, kind)))


def test_which_dtypes_are_saved(tmp_path: Path) -> None:
    def observe(cell: tuple[Use, str]) -> Any:
        return refdist.train.Checkpoint(v=refdist.Variable(OF_KIND[cell[1]])).write(str(tmp_path / "saved"))

    assert survivors(DTYPES, observe, row=Use.SAVED) == []


def test_the_dtype_of_a_mean() -> None:
    import ml_dtypes

    def observe(name: str) -> Any:
        ones = np.ones(1, getattr(ml_dtypes, name, name))
        return refdist.MirroredStrategy(["GPU:0", "GPU:1"]).reduce("MEAN", refdist.PerReplica([ones, ones]), axis=None)

    assert survivors(MEAN_DTYPE, observe, lambda cell, value: ("float16", "float32", "float64")) == []


def differing(what: Difference, gathers: bool, rank: int) -> Any:
    """The call of a replica, of which that differs in MISMATCH."""
    context = refdist.get_replica_context()
    assert context is not None
    reduce, gather = (lambda x: context.all_reduce("SUM", x)), (lambda x: context.all_gather(x, 0))
    call: Callable[[Any], Any] = gather if gathers else reduce
    if what is Difference.MISSING:
        return call([np.ones(2)]) if rank == 0 else None
    if what is Difference.CALL:
        return ((gather, reduce) if gathers else (reduce, gather))[rank](np.ones(2))
    if what is Difference.CALL_SITE:
        if rank:
            return call(np.ones(2))
        return call(np.ones(2))
    if what is Difference.TARGET:
        return context.merge_call((lambda s: 1, lambda s: 2)[rank])
    if what is Difference.REDUCE_OP:
        return context.all_reduce(("SUM", "MEAN")[rank], 1.0)
    if what is Difference.AXIS:
        return context.all_gather(np.ones((2, 2)), rank)
    return call({Difference.STRUCTURE: ([np.ones(2)], (np.ones(2),)),
                 Difference.LIBRARY: (np.ones(2), pretend_library.Pretend(np.ones(2))),
                 Difference.DTYPE: (np.ones(2), np.ones(2, np.float32)),
                 Difference.SHAPE: (np.ones((2, 2)), np.ones((2, 3)))}[what][rank])


def test_which_code_a_mismatch_has() -> None:
    def observe(cell: tuple[Difference, Combining]) -> Any:
        what, column = cell
        if what is Difference.AXIS and column is Combining.OTHER_CALLS:
            # Replicas pass an axis only to gathers; workers also reduce along one.
            def program() -> Any:
                workers = refdist.MultiWorkerMirroredStrategy()
                axis = workers.extended.layout.worker
                return outcome(lambda: workers.reduce("SUM", np.ones((2, 2)), axis=axis))

            return refdist.simulate_workers(program, 2)
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        return strategy.run(lambda: differing(what, column is Combining.GATHERS, context_stack.frame().replica_id or 0))

    with process.fresh():
        pretend_library.install()
        assert survivors(MISMATCH, observe) == []


@pytest.mark.parametrize("what", [Difference.STRUCTURE, Difference.LIBRARY, Difference.DTYPE, Difference.SHAPE])
def test_values_of_replicas_differ_as_calls_do(what: Difference) -> None:
    def observe(cell: tuple[Difference, Combining]) -> Any:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        slices = refdist.IndexedSlices(np.ones((1, 2)), [0], (2, 2))
        parts = {Difference.STRUCTURE: (np.ones((2, 2)), slices),
                 Difference.LIBRARY: (np.ones(2), pretend_library.Pretend(np.ones(2))),
                 Difference.DTYPE: (np.ones(2), np.ones(2, np.float32)),
                 Difference.SHAPE: (np.ones((2, 2)), np.ones((2, 3)))}[what]
        value = refdist.PerReplica(parts)
        return strategy.gather(value, 0) if cell[1] is Combining.GATHERS else strategy.reduce("SUM", value, axis=None)

    with process.fresh():
        pretend_library.install()
        assert survivors(MISMATCH, observe, row=what, column=Combining.OTHER_CALLS) == []
        if what is not Difference.STRUCTURE:  # slices are not gathered at all
            assert survivors(MISMATCH, observe, row=what, column=Combining.GATHERS) == []


TABLES = {name: value for module in (calls, variables, values, input, replica_types)
          for name, value in vars(module).items() if isinstance(value, Table)}


def test_every_table_is_tested() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert {name for name in TABLES if not re.search(rf"survivors\((\w+\.)?{name}\b", tests)} == set()


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.title)
def test_every_action_is_used(table: Table[Any, Any, Any]) -> None:
    used = {cell for row in table.values() for cell in row.values() if not isinstance(cell, Refusal)}
    # What types mean is said once, for all tables of types.
    assert used == {*table.actions} or (table.actions is replica_types.MEANINGS and used < {*table.actions})


# --- What does not import ----------------------------------------------------------------------------------------

TEXT = re.compile(r'"""\n((?: {4}.*\n)+?) {4}"""')


def imported(module: ModuleType, source: str) -> None:
    exec(compile(source, str(module.__file__), "exec"), {"__name__": "a_copy"})


def with_lines(change: Callable[[list[str]], Iterable[list[str]]]) -> list[Any]:
    """(module, its source with the text of a table changed), for every table and change."""
    variants = []
    for module in (calls, variables, values, input, replica_types):
        source = Path(str(module.__file__)).read_text()
        for text in TEXT.finditer(source):
            for lines in change(text[1].splitlines()):
                changed = "".join(f"{line}\n" for line in lines)
                variants.append((module, source[:text.start(1)] + changed + source[text.end(1):]))
    return variants


def misspelt(lines: list[str]) -> Iterator[list[str]]:
    """Each column, row and cell once with two letters exchanged."""
    seen = set()
    for number, line in enumerate(lines):
        for part in re.finditer(r"\S+(?: \S+)*", line):
            word, kind = part[0], (number == 0, not line[:part.start()].strip())
            if len(word) > 1 and (word, kind) not in seen and word[:2] != word[1::-1]:
                seen.add((word, kind))
                other = word[1] + word[0] + word[2:]
                yield [*lines[:number], line[:part.start()] + other + line[part.end():], *lines[number + 1:]]


def without_a_row(lines: list[str]) -> Iterator[list[str]]:
    yield from ([*lines[:i], *lines[i + 1:]] for i in range(1, len(lines)))


def with_a_row_twice(lines: list[str]) -> Iterator[list[str]]:
    yield [*lines, lines[-1]]


def without_the_last_column(lines: list[str]) -> Iterator[list[str]]:
    yield [re.sub(r"  +\S+(?: \S+)*$", "", line) for line in lines]


def with_a_short_row(lines: list[str]) -> Iterator[list[str]]:
    yield [*lines[:-1], re.sub(r"  +\S+(?: \S+)*$", "", lines[-1])]


@pytest.mark.parametrize(("change", "message"), [
    (misspelt, "is not a cell; cells are |is unknown; rows are |the columns are .* and should be "),
    (without_a_row, "rows are missing: "),
    (with_a_row_twice, "is there twice"),
    (without_the_last_column, "the columns are .* and should be "),
    (with_a_short_row, r"has \d+ cells and should have \d+"),
])
def test_what_is_misspelt_or_missing_in_a_table_does_not_import(change: Any, message: str) -> None:
    sources = with_lines(change)
    assert len({id(module) for module, _ in sources}) == 5 and len(sources) >= len(TABLES) == 23
    for module, source in sources:
        with pytest.raises(InternalError, match=rf"^table .*: .*({message})"):
            imported(module, source)


def test_a_misspelt_cell_is_named_with_its_place_and_what_can_stand_there() -> None:
    source = Path(variables.__file__).read_text()
    frist = source.replace("mirrored; any                first copy", "mirrored; any                frist copy")
    with pytest.raises(InternalError) as caught:
        imported(variables, frist)
    assert str(caught.value) == (
        "table 'Reads of variables': 'frist copy' in row 'mirrored; any', column 'outside', is not a cell; cells are "
        "'first copy', 'own copy', \"replica 0's\", 'sum', 'mean', the code of an error")


@pytest.mark.parametrize(("line", "other", "what"), [
    ("parts differ       RD12          RD19", "parts differ       RD12          ok  ", "'ok' in 'parts differ'"),
    ("EMPTY    all                keep", "EMPTY    all                all ", "'all' in 'uneven step'"),
    ("function                  PerReplica", "function                  components", "'components' in 'values from"),
])
def test_a_cell_of_another_row_or_column_does_not_import(line: str, other: str, what: str) -> None:
    [module] = [module for module in (variables, values, input) if line in Path(str(module.__file__)).read_text()]
    with pytest.raises(InternalError, match=what):
        imported(module, Path(str(module.__file__)).read_text().replace(line, other))


def test_an_action_that_is_not_explained_does_not_import() -> None:
    source = Path(variables.__file__).read_text().replace('Read.MEAN: "of the copies on all workers"', "")
    with pytest.raises(InternalError, match=r"table 'Reads of variables': the actions .* are explained and should be"):
        imported(variables, source)
