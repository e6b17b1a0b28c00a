"""Programs of a worker, each run on simulated workers and under mpiexec; what they return must be equal to the bit.

Every public function without arguments is a program.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import refdist
from refdist.data import AutoShardPolicy, Dataset, Options

Aggregation = refdist.VariableAggregation
DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int8", "int32", "int64", "uint16")
_strategies: list[Any] = []


def strategy() -> Any:
    return refdist.MultiWorkerMirroredStrategy()


def me() -> Any:
    return refdist.get_replica_context()


def rank_of(of: Any) -> int:
    return int(of.extended.transport.rank)


def numbers(dtype: str, size: int) -> Any:
    """Numbers of this replica whose sum depends on the order."""
    draw = np.random.default_rng(me().replica_id_in_sync_group)
    if np.dtype(dtype).kind in "iu":
        return draw.integers(0, 10, size).astype(dtype)
    return (draw.standard_normal(size) * 10.0 ** draw.integers(-3, 4, size)).astype(dtype)


def plain(value: Any) -> Any:
    """Distributed values as tuples, so that results can be told to another process."""
    def of_leaf(leaf: Any) -> Any:
        return tuple(map(np.asarray, leaf.values)) if isinstance(leaf, refdist.DistributedValues) else leaf

    return refdist.nest.map_structure(of_leaf, value)


def facts() -> Any:
    s = strategy()
    return [s.num_replicas_in_sync, s.extended.worker_devices, plain(s.run(lambda: me().replica_id_in_sync_group)),
            s.extended.should_checkpoint, s.extended.should_save_summary,
            plain(s.experimental_distribute_values_from_function(
                lambda c: (c.replica_id_in_sync_group, c.num_replicas_in_sync)))]


def sums() -> Any:
    s = strategy()
    sizes = (0, 1, 1000, 40_000, 300_000)
    return [plain(s.run(lambda dtype=dtype, size=size: me().all_reduce("SUM", numbers(dtype, size))))
            for dtype in DTYPES for size in sizes]


def byte_orders() -> Any:
    """Arrays in the other byte order, small and large; results are in that of the machine."""
    s = strategy()
    results = []
    for dtype in (">f4", ">i8", ">c16"):
        for size in (3, 50_000):
            def step(dtype: str = dtype, size: int = size) -> Any:
                array = numbers(dtype, size)
                return me().all_reduce("SUM", array), me().all_gather(array, axis=0)
            total, gathered = s.run(step)
            results += [plain(total), plain(gathered), s.reduce("MEAN", s.run(lambda step=step: step()[0]), axis=None)]
    assert all(np.asarray(array).dtype.isnative for array in refdist.nest.flatten(results))
    return results


def large_sums() -> Any:
    """Several pieces of what is staged at once; earlier results stay as they were."""
    s = strategy()

    def step() -> Any:
        first = me().all_reduce("SUM", [numbers("float32", 2_500_003), numbers("int8", 7), numbers("float16", 900_001)])
        second = me().all_reduce("SUM", numbers("float64", 700_001))
        third = me().all_reduce("SUM", [-part for part in first])
        return [zlib.crc32(part.tobytes()) for part in [*first, second, *third]]
    return plain(s.run(step))


def many_large_sums() -> Any:
    s = strategy()
    kept = [s.reduce("SUM", s.run(lambda i=i: numbers("float32", 20_000) + i), axis=None) for i in range(70)]
    again = [s.reduce("SUM", s.run(lambda: numbers("float32", 30_000)), axis=None) for _ in range(2)]
    return [plain(total) for total in kept + again]


def overflows() -> Any:
    """Every worker reports the overflow of an element that one of them has added, and nothing is written."""
    s = strategy()
    reports = []
    for size in (3, 50_000, 5_000_000):
        large = np.ones(size, np.float16)
        large[-1] = 65504
        with s.scope():
            v = refdist.Variable(large, aggregation=Aggregation.SUM)
        for write in (lambda large=large: me().all_reduce("SUM", large), lambda v=v, large=large: v.assign_add(large)):
            try:
                with np.errstate(over="raise"):
                    s.run(write)
            except FloatingPointError as error:
                reports.append(str(error))
        with np.errstate(over="call", call=lambda error, bits: reports.append((error, bits))):
            s.run(lambda large=large: me().all_reduce("MEAN", large))
        reports.append(float(np.asarray(v, np.float64).max()))
    return reports


def mixed_nest() -> Any:
    s = strategy()

    def step() -> Any:
        return me().all_reduce("MEAN", {"a": numbers("float32", 70_001), "b": [numbers("int64", 3), 2.5],
                                        "c": numbers("float16", 9).reshape(3, 3).T})
    return plain(s.run(step))


def reductions() -> Any:
    s = strategy()
    values = s.run(lambda: np.arange(me().replica_id_in_sync_group + 1.0))
    equal = s.run(lambda: numbers("float32", 5))
    return [s.reduce("SUM", values, axis=0), s.reduce("MEAN", values, axis=0), s.reduce("SUM", equal, axis=None),
            s.reduce("MEAN", {"x": equal}, axis=None), plain(s.extended.reduce_to("SUM", equal, "CPU:0"))]


def gathers() -> Any:
    s = strategy()
    values = s.run(lambda: np.full((me().replica_id_in_sync_group % 3, 2), me().replica_id_in_sync_group, np.int16))
    texts = s.run(lambda: np.array(["replica" + "'" * me().replica_id_in_sync_group] * 2))
    wide = s.run(lambda: np.ones((2, me().replica_id_in_sync_group)))
    large = s.run(lambda: np.full(30_000 + me().replica_id_in_sync_group, 1.5))
    uneven = s.run(lambda: [numbers("float64", 6000 * me().replica_id_in_sync_group).reshape(shape)
                            for shape in ((-1, 1), (3, -1))])  # nothing, little, and much
    return [s.gather(uneven[0], axis=0), s.gather(uneven[1], axis=1),
            s.gather(values, axis=0), s.gather(texts, axis=0), s.gather(wide, axis=-1), s.gather(large, axis=0),
            plain(s.run(lambda: me().all_gather([np.array([me().replica_id_in_sync_group])], axis=0)))]


def slices() -> Any:
    s = strategy()

    def step() -> Any:
        i = me().replica_id_in_sync_group
        rows = refdist.IndexedSlices(np.full((i + 1, 2), i, np.float32), np.arange(i + 1), (20, 2))
        total = me().all_reduce("SUM", rows)
        return [total.values, total.indices]
    return plain(s.run(step))


def variables() -> Any:
    s = strategy()
    values = []
    for aggregation in (Aggregation.SUM, Aggregation.MEAN, Aggregation.ONLY_FIRST_REPLICA):
        with s.scope():
            v = refdist.Variable(np.float32(10 * (1 + rank_of(s))), aggregation=aggregation)
            big = refdist.Variable(np.zeros(50_000, np.float32), aggregation=aggregation)
            table = refdist.Variable(np.zeros((2, 3), np.float32), aggregation=aggregation)
        values.append(float(v))
        s.run(lambda v=v: [v.assign_add(np.float32(0.1 + me().replica_id_in_sync_group))])
        s.run(lambda big=big: [big.assign_add(numbers("float32", 50_000))])
        # Transposed: its elements do not lie in the order of its rows.
        s.run(lambda table=table: [table.assign_add(numbers("float32", 6).reshape(3, 2).T)])
        v.assign_sub(0.5)
        values += [float(v), big.numpy(), table.numpy()]
    with s.scope():
        none = refdist.Variable(1.0)
    s.run(lambda: none.assign_add(2.0) and None)
    return [*values, float(none)]


def sync_on_read() -> Any:
    s = strategy()
    with s.scope():
        v = refdist.Variable(0, synchronization=refdist.VariableSynchronization.ON_READ, aggregation=Aggregation.SUM)
    s.run(lambda: v.assign_add(me().replica_id_in_sync_group + 1) and None)
    with s.scope():
        first = refdist.Variable(0.0, synchronization=refdist.VariableSynchronization.ON_READ,
                                 aggregation=Aggregation.ONLY_FIRST_REPLICA)
    s.run(lambda: [first.assign_add(1.0 + me().replica_id_in_sync_group)])
    assert float(first.read_value()) == 1.0
    before = int(v.read_value())
    v.assign(17)
    return [before, int(v.read_value()), [int(np.asarray(part.numpy())) for part in v.values]]


def created_in_replicas() -> Any:
    s = strategy()
    made: list[Any] = []

    def step() -> Any:
        if not made:
            made.append(refdist.Variable(lambda: np.float32(7 + rank_of(s)), aggregation=Aggregation.SUM))
        return made[0].assign_add(np.float32(1))
    return plain(s.run(step))


def datasets() -> Any:
    s = strategy()

    def elements(dataset: Any) -> Any:
        return [[part.tolist() for part in s.experimental_local_results(element)]
                for element in s.experimental_distribute_dataset(dataset)]
    off = Options()
    off.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    shuffled = elements(Dataset.range(24).shuffle(24).batch(6))
    own = s.distribute_datasets_from_function(lambda c: Dataset.range(1 + c.input_pipeline_id).batch(1))
    [spec] = set(s.experimental_local_results(own.element_spec))  # the same for every replica
    assert spec.dtype == np.int64
    everything = s.gather(np.array([row for step in shuffled for part in step for row in part], np.int64), axis=0) \
        if len(s.extended.worker_devices) == 1 else np.zeros(0)
    return [elements(Dataset.range(19).batch(8)), elements(Dataset.range(9).batch(7).with_options(off)),
            [[part.tolist() for part in s.experimental_local_results(element)] for element in own],
            sorted(everything.tolist())]


def merge_call() -> Any:
    s = strategy()
    return plain(s.run(lambda: me().merge_call(
        lambda inner, x: inner.reduce("SUM", x, axis=None), args=(np.float32(me().replica_id_in_sync_group + 1),))))


def random_numbers() -> Any:
    """Streams of replicas, also of one that was ahead; numbers outside replicas; a global generator for each worker."""
    s = strategy()
    with s.scope():
        generator = refdist.random.Generator.from_seed(42)
    draw = lambda: s.run(lambda: generator.uniform([3], -5, 70, "int32"))  # noqa: E731
    drawn = [plain(draw()), generator.normal([2])]
    s.run(lambda: generator.skip(9) if me().replica_id_in_sync_group == 1 else None)
    refdist.random.set_global_generator(refdist.random.Generator.from_seed(7))
    common = refdist.random.get_global_generator().uniform([2])
    parts = [part.state.numpy() for part in generator.split(2)]
    return [*drawn, plain(draw()), generator.state.numpy(), parts, common]


def losses() -> Any:
    s = strategy()
    parts = s.run(lambda: refdist.nn.compute_average_loss(np.arange(3.0) * (1 + me().replica_id_in_sync_group))
                  + refdist.nn.scale_regularization_loss(np.float64(1)))
    return [plain(parts), s.reduce("SUM", parts, axis=None)]


def mistakes() -> Any:
    """Every worker gets the same error, and goes on."""
    s = strategy()
    texts = []

    def tried(call: Any) -> None:
        try:
            call()
            texts.append("nothing was wrong")
        except refdist.errors.RefdistError as error:
            texts.append(f"{type(error).__name__} {error}".replace(__file__, "programs.py"))

    rank = rank_of(s)
    tried(lambda: s.run(lambda: me().all_reduce("SUM", np.ones(rank + 1))))
    tried(lambda: s.run(lambda: me().all_reduce("SUM" if rank else "MEAN", 1.0)))
    tried(lambda: s.run(lambda: me().all_reduce("SUM", np.ones(2, "float32" if rank else "float64"))))
    tried(lambda: s.run(lambda: me().all_gather(np.ones((1, rank + 1)), axis=0)))
    tried(lambda: s.run(lambda: me().all_reduce("SUM", [1.0] * (rank + 1))))
    if rank == 0:
        tried(lambda: s.run(lambda: me().all_reduce("SUM", 1.0)))
    else:
        tried(lambda: s.run(lambda: me().all_gather(np.ones(1), axis=0)))
    if rank == 0:
        tried(lambda: s.run(lambda: me().all_reduce("SUM", 1.0)))
    else:
        tried(lambda: s.run(lambda: me().all_reduce("SUM", 1.0)))
    with s.scope():
        v = refdist.Variable(1.0)
    tried(lambda: v.assign(1.0 + rank))
    tried(lambda: s.run(lambda: v.assign(np.float32(rank))))
    return [texts, float(v), plain(s.run(lambda: me().all_reduce("SUM", 1.0)))]
