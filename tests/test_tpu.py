"""TPUStrategy: replicas on the cores of a simulated TPU, and on several of them."""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import refdist
from refdist import config
from refdist.cluster_resolver import TPUClusterResolver, tpu_system
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.chapters import cases
from refdist.conformance.examples import program
from refdist.conformance.judging import judge
from refdist.data import Dataset
from refdist.strategies import placement
from refdist.tpu import placements
from refdist.tpu_experimental import DeviceAssignment, initialize_tpu_system, shutdown_tpu_system

build = DeviceAssignment.build


@pytest.fixture(autouse=True)
def tpu() -> Iterator[None]:
    with config.temporary_devices(cpu=16, gpu=16, tpu="2x2x1x2"):
        initialize_tpu_system()
        yield
        if tpu_system.topology() is not None:
            shutdown_tpu_system()


def on(shape: Any = None, replicas: int = 1, **options: Any) -> refdist.TPUStrategy:
    """A strategy whose replicas have the cores of a block of that shape."""
    topology = tpu_system.topology()
    assert topology is not None
    return refdist.TPUStrategy(None, build(topology, shape, num_replicas=replicas), **options)


def numbers(names: Any) -> Any:
    return [int(name.rpartition(":")[2]) for name in names]


def context() -> Any:
    return refdist.get_replica_context()


# --- Replicas, devices, hosts ----------------------------------------------------------------------------------

def test_without_an_assignment_every_core_is_a_replica() -> None:
    strategy = refdist.TPUStrategy()
    assert strategy.num_replicas_in_sync == 8
    devices = strategy.extended.worker_devices
    assert devices == tuple(f"/job:localhost/replica:0/task:0/device:TPU:{i}" for i in range(8))
    assert (strategy.extended.num_hosts, strategy.extended.num_replicas_per_host) == (1, 8)
    assert strategy.extended.parameter_devices == devices
    assert strategy.extended.non_slot_devices(None) == ("/job:localhost/replica:0/task:0/device:CPU:0",)


def test_the_devices_of_a_tpu_with_several_hosts() -> None:
    with config.temporary_devices(tpu="2x2x1x2", tpu_hosts=2):
        topology = initialize_tpu_system()
        every = refdist.TPUStrategy()
        assert every.extended.worker_devices[-1] == "/job:worker/replica:0/task:1/device:TPU:3"
        assert (every.num_replicas_in_sync, every.extended.num_hosts, every.extended.num_replicas_per_host) == (8, 2, 4)
        assert every.extended.non_slot_devices(None) == ("/job:worker/replica:0/task:0/device:CPU:0",)
        strategy = refdist.TPUStrategy(TPUClusterResolver(""), build(topology, [1, 1, 1, 2], num_replicas=4))
        names = [[name.removeprefix("/job:worker/replica:0/task:") for name in replica]
                 for replica in strategy.extended.logical_devices]
        assert names == [["0/device:TPU:0", "0/device:TPU:1"], ["0/device:TPU:2", "0/device:TPU:3"],
                         ["1/device:TPU:2", "1/device:TPU:3"], ["1/device:TPU:0", "1/device:TPU:1"]]
        assert (strategy.extended.num_hosts, strategy.extended.num_replicas_per_host) == (2, 2)
        assert strategy.reduce("SUM", strategy.run(lambda: 1.0), axis=None) == 4.0


@pytest.mark.parametrize(("shape", "replicas", "devices", "per_host"), [
    ((1, 1, 1, 1), 8, [[0], [1], [2], [3], [4], [5], [6], [7]], 8),
    ((1, 1, 1, 2), 4, [[0, 1], [2, 3], [6, 7], [4, 5]], 4), ((1, 2, 1, 2), 2, [[0, 1, 4, 5], [2, 3, 6, 7]], 2),
    ((2, 2, 1, 2), 1, [[0, 1, 2, 3, 6, 7, 4, 5]], 1), ((1, 1, 1, 2), 1, [[0, 1]], 1), ((1, 1, 1, 1), 2, [[0], [1]], 2)])
def test_replicas_and_logical_devices_of_an_assignment(shape: Any, replicas: int, devices: Any, per_host: int) -> None:
    strategy = on(shape, replicas)
    assert strategy.num_replicas_in_sync == replicas
    assert [numbers(of_replica) for of_replica in strategy.extended.logical_devices] == devices
    assert numbers(strategy.extended.worker_devices) == [of_replica[0] for of_replica in devices]
    assert (strategy.extended.num_hosts, strategy.extended.num_replicas_per_host) == (1, per_host)


def test_facts() -> None:
    strategy = on(replicas=2)
    with strategy.scope():
        assert refdist.get_strategy() is strategy and refdist.in_cross_replica_context()
    extended = strategy.extended
    assert (extended.experimental_between_graph, extended.should_checkpoint, extended.should_save_summary,
            extended.experimental_should_init, extended.steps_per_run, extended.experimental_require_static_shapes) == (
        False, True, True, True, 1, True)
    assert strategy.experimental_local_results(3) == (3,)
    resolver = TPUClusterResolver("")
    assert refdist.TPUStrategy(resolver).cluster_resolver is resolver
    assert isinstance(refdist.TPUStrategy().cluster_resolver, TPUClusterResolver)


def test_three_classes() -> None:
    """Their arguments are told by test_api.py."""
    v1 = refdist.compat.v1.distribute.experimental.TPUStrategy
    with pytest.warns(DeprecationWarning, match="use TPUStrategy"):
        older = refdist.experimental.TPUStrategy(device_assignment=on().extended._assignment)
    first = v1(steps_per_run=3)
    assert (older.num_replicas_in_sync, first.num_replicas_in_sync, first.steps_per_run) == (1, 8, 3)
    assert first.reduce("SUM", first.run(lambda: 1.0)) == 8.0  # the axis may be left out
    classes = (refdist.TPUStrategy, refdist.experimental.TPUStrategy, v1)
    assert not any(issubclass(a, b) for a, b in itertools.permutations(classes, 2))
    assert list(inspect.signature(v1).parameters) == ["tpu_cluster_resolver", "steps_per_run", "device_assignment"]
    with pytest.raises(NotImplementedError, match=r"RD20.*only TPUStrategy gives it several"):
        older.run(lambda: older.experimental_replicate_to_logical_devices(1.0))


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match=r"RD25\] TPUStrategy: tpu_cluster_resolver is 'x'"):
        refdist.TPUStrategy("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"RD25\] TPUStrategy: the device assignment is 'x'"):
        refdist.TPUStrategy(None, "x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"RD34.*has no replica"):
        on(replicas=0)
    with config.temporary_devices(tpu=8):
        assignment = build(initialize_tpu_system())
        shutdown_tpu_system()
    initialize_tpu_system()
    with pytest.raises(ValueError, match=r"RD34.*for a mesh of shape \[8, 1, 1, 1\] .* and the TPU .*\[2, 2, 1, 2\]"):
        refdist.TPUStrategy(None, assignment)


def test_a_tpu_is_initialized_before_it_is_used() -> None:
    strategy = on(replicas=2)
    twin = copy.deepcopy(strategy)
    with strategy.scope():
        v = refdist.Variable(1.0)
    assert twin.run(lambda: 1.0).values == (1.0, 1.0)
    shutdown_tpu_system()
    with pytest.raises(RuntimeError, match=r"RD27\] TPUStrategy: .*not been initialized. Call .*initialize_tpu_system"):
        refdist.TPUStrategy()
    calls = (lambda: strategy.run(lambda: 1), lambda: v.assign(2.0), lambda: twin.run(lambda: 1),
             lambda: strategy.reduce("SUM", refdist.PerReplica([1.0, 2.0]), axis=None))
    with config.temporary_devices(tpu=8):
        initialize_tpu_system()
        for call in calls:  # on another TPU
            with pytest.raises(RuntimeError, match=r"RD27.*shut down, or is another one"):
                call()
    for call in calls:
        with pytest.raises(RuntimeError, match=r"RD27.*shut down, or is another one"):
            call()
    initialize_tpu_system()
    assert on(replicas=2).run(lambda: 1.0).values == strategy.run(lambda: 1.0).values == (1.0, 1.0)


def test_a_strategy_and_its_variables_go_on_when_the_tpu_is_initialized_again() -> None:
    strategy = on(replicas=2)
    with strategy.scope():
        before = refdist.Variable(1.0, aggregation=refdist.VariableAggregation.SUM)
    with pytest.warns(UserWarning, match="initialized before: on a real TPU variables made since then may be lost"):
        initialize_tpu_system()
    assert strategy.run(lambda: before.assign_add(1.0)).values == (3.0, 3.0)
    with strategy.scope():
        after = refdist.Variable(1.0)
    assert float(after.assign(2.0)) == 2.0


def test_what_the_error_advises_for_gathers_on_tpus_works() -> None:
    strategy = on(replicas=2)

    def rows() -> Any:
        return np.arange(3.0)[:refdist.get_replica_context().replica_id_in_sync_group + 1]

    with pytest.raises(ValueError, match=r"RD07\] all_gather .*shape \(1,\).*shape \(2,\). On a TPU replicas gather "
                       "arrays of one shape: pad or slice them to it; or return them from `run` and gather them with "
                       "`strategy.gather`."):
        strategy.run(lambda: refdist.get_replica_context().all_gather([rows()], axis=0))
    assert strategy.gather(strategy.run(rows), axis=0).tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(ValueError, match=r"RD05\] all_gather "):
        strategy.run(lambda: refdist.get_replica_context().all_gather(rows().astype(
            ["f4", "f8"][refdist.get_replica_context().replica_id_in_sync_group]), axis=0))


def test_arrays_are_assigned_to_no_logical_device_under_spmd_wherever_the_call_is_made() -> None:
    """TensorFlow looks at the strategy first, and so it is a ValueError outside replicas, too."""
    spmd = refdist.TPUStrategy(None, None, True)
    for call in (lambda: spmd.experimental_assign_to_logical_device(1.0, 0),
                 lambda: spmd.run(lambda: spmd.experimental_assign_to_logical_device(1.0, 0))):
        with pytest.raises(ValueError, match=r"RD20.*experimental_spmd_xla_partitioning"):
            call()
    with pytest.raises(RuntimeError, match="RD09"):
        refdist.TPUStrategy().experimental_assign_to_logical_device(1.0, 0)
    with config.temporary_devices(), pytest.raises(LookupError, match=r"RD24.*no TPU"):
        refdist.TPUStrategy()
    with config.temporary_devices(tpu=8), pytest.raises(RuntimeError, match="RD27"):
        refdist.TPUStrategy()


# --- run and collectives ---------------------------------------------------------------------------------------

def test_results_of_run_are_arrays() -> None:
    strategy = on(replicas=2)
    with strategy.scope():
        v = refdist.Variable([1.0])
        r = refdist.Variable(0.0, synchronization=refdist.VariableSynchronization.ON_READ)

    def step() -> Any:
        i = context().replica_id_in_sync_group
        r.assign(float(i))
        return {"id": i, "three": 3, "none": [None], "v": v, "r": r, "text": "s", "empty": [],
                "rows": refdist.IndexedSlices(np.ones(1), np.array([i]))}

    results = strategy.run(step)
    assert [array.dtype for array in results["id"].values] == ["int32", "int32"]
    assert results["id"].values == (0, 1) and results["three"].values == (3, 3)
    assert results["none"] == [None] and results["empty"] == []
    assert [array.tolist() for array in results["v"].values] == [[1.0], [1.0]]
    assert results["r"].values == (0.0, 1.0)
    assert [str(array) for array in results["text"].values] == ["s", "s"]
    assert [rows.indices.tolist() for rows in results["rows"].values] == [[0], [1]]
    single = on().run(lambda: (3, None, np.ones(2)))
    assert isinstance(single[0], np.ndarray) and single[0] == 3 and single[1] is None and single[2].tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"RD25.*the result of strategy.run is <object"):
        strategy.run(lambda: object())


def test_contexts_and_collectives() -> None:
    strategy = on([1, 1, 1, 2], 4)

    def step(x: Any) -> Any:
        assert context().devices == (strategy.extended.layout.devices[context().replica_id_in_sync_group],)
        assert not refdist.in_cross_replica_context() and context().num_replicas_in_sync == 4
        both = context().merge_call(lambda s, y: s.extended.reduce_to("SUM", y, "CPU:0"), args=(x,))
        return context().all_reduce("SUM", x), context().all_gather(x, 0), both, context().all_reduce("MEAN", x)

    total, gathered, merged, mean = strategy.run(step, args=(np.float32([1, 2, 3]),))
    assert [array.tolist() for array in total.values] == [[4, 8, 12]] * 4
    assert [array.tolist() for array in gathered.values] == [[1, 2, 3] * 4] * 4
    assert merged.values[3].tolist() == [4, 8, 12] and mean.values[0].tolist() == [1, 2, 3]
    per_replica = strategy.run(lambda: np.float32([1, context().replica_id_in_sync_group]))
    assert strategy.reduce("MEAN", per_replica, axis=0) == 1.25
    assert strategy.gather(per_replica, axis=0).tolist() == [1, 0, 1, 1, 1, 2, 1, 3]
    with pytest.raises(ValueError, match="RD34"):
        strategy.run(lambda: context().all_reduce("MAX", 1.0))
    per_id = strategy.experimental_distribute_values_from_function(lambda ctx: ctx.replica_id_in_sync_group)
    assert per_id.values == (0, 1, 2, 3)


def test_what_replicas_gather_on_a_tpu_has_one_shape() -> None:
    """ReplicaContext.all_gather; Strategy.gather asks for it too, but TensorFlow's gathers all that fit together."""
    strategy = on(replicas=2)

    def step() -> Any:
        return context().all_gather(np.ones((context().replica_id_in_sync_group + 1, 2)), 0)

    with pytest.raises(ValueError, match=r"RD07.*shape"):
        strategy.run(step)
    parts = refdist.PerReplica([np.ones((1, 2)), np.ones((2, 2))])
    with pytest.raises(ValueError, match=r"RD07\] Strategy.gather: replica 0 .*\(1, 2\), replica 1 \(2, 2\)"):
        strategy.gather(parts, 1)
    assert strategy.gather(refdist.PerReplica([np.ones((2, 2))] * 2), 0).shape == (4, 2)
    mirrored = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    for gathered in (strategy.gather(parts, 0), mirrored.gather(parts, 0), mirrored.run(step).values[0]):
        assert gathered.shape == (3, 2)


def test_options_of_run_have_no_effect() -> None:
    options = refdist.RunOptions(experimental_bucketizing_dynamic_shape=True,
                                 experimental_xla_options=refdist.tpu.XLAOptions(use_spmd_for_xla_partitioning=False))
    assert on(replicas=2).run(lambda x: x + 1, (np.float32(1),), options=options).values == (2.0, 2.0)


def test_the_input_functions_of_several_hosts() -> None:
    """One pipeline for each host, in the order of its first replica."""
    with config.temporary_devices(tpu="2x2x1x2", tpu_hosts=2):
        topology = initialize_tpu_system()
        coordinates = [topology.device_coordinates[task, i] for task, i in ((1, 0), (0, 0), (1, 1), (0, 1))]
        strategy = refdist.TPUStrategy(None, DeviceAssignment(topology, np.reshape(coordinates, (4, 1, 4))))
        asked = []

        def dataset_fn(ctx: Any) -> Any:
            asked.append((ctx.num_input_pipelines, ctx.input_pipeline_id, ctx.num_replicas_in_sync))
            return Dataset.range(10 * ctx.input_pipeline_id, 10 * ctx.input_pipeline_id + 5).batch(1)

        distributed = strategy.distribute_datasets_from_function(dataset_fn)
        assert asked == [(2, 0, 4), (2, 1, 4)]
        assert [[row.tolist() for row in step.values] for step in distributed] == [
            [[0], [10], [1], [11]], [[2], [12], [3], [13]], [[4], [14], [], []]]
        assert "the replicas of each host take its next element in turn" in str(distributed.explain())
        batches = strategy.experimental_distribute_dataset(Dataset.range(8).batch(8))
        assert [row.tolist() for row in next(iter(batches)).values] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    per_replica = refdist.InputOptions(experimental_replication_mode=refdist.InputReplicationMode.PER_REPLICA)
    initialize_tpu_system()
    strategy = on(replicas=2)
    made = strategy.distribute_datasets_from_function(lambda ctx: [np.full(1, ctx.input_pipeline_id)], per_replica)
    assert [row.tolist() for row in next(iter(made)).values] == [[0], [1]]


def lines(folder: Path, *counts: int) -> Any:
    """The lines of so many files with so many lines each."""
    names = [folder / f"{i}.txt" for i in range(len(counts))]
    for i, (name, count) in enumerate(zip(names, counts, strict=True)):
        name.write_text("\n".join(str(100 * i + j) for j in range(count)))
    return refdist.data.TextLineDataset(list(map(str, names))).map(lambda line: np.int64(line))


def off(dataset: Any) -> Any:
    options = refdist.data.Options()
    options.experimental_distribute.auto_shard_policy = refdist.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


@pytest.mark.parametrize(("make", "length", "steps"), [
    (lambda _: Dataset.range(10).batch(8), None, [[[0, 1], [4, 5], [2, 3], [6, 7]], [[8], [], [9], []]]),
    (lambda _: Dataset.range(14).batch(7), None,
     [[[0, 1], [4, 5], [2, 3], [6]], [[7, 8], [11, 12], [9, 10], [13]]]),
    (lambda _: Dataset.range(10).batch(4, drop_remainder=True), 1, [[[0], [2], [1], [3]], [[4], [6], [5], [7]]]),
    (lambda _: off(Dataset.range(8).batch(4)), None,
     [[[0], [1], [0], [1]], [[2], [3], [2], [3]], [[4], [5], [4], [5]], [[6], [7], [6], [7]]]),
    (lambda folder: lines(folder, 4, 6).batch(4), None,
     [[[0], [1], [100], [101]], [[2], [3], [102], [103]], [[], [], [104], [105]]]),
    (lambda folder: lines(folder, 4, 8).batch(4, drop_remainder=True), 1,
     [[[0], [1], [100], [101]], [[2], [3], [102], [103]]]),
    (lambda folder: lines(folder, 4).batch(4), None, [[[0], [2], [1], [3]]]),
    (lambda folder: Dataset.range(2).flat_map(lambda _: lines(folder, 4)).batch(4), None,
     [[[0], [2], [1], [3]], [[0], [2], [1], [3]]])],
    ids=["data", "odd batches", "full batches", "off", "files", "full batches of files", "one file", "opened files"])
def test_hosts_share_a_dataset_as_workers_do(make: Any, length: Any, steps: Any, tmp_path: Path) -> None:
    """Observed, TensorFlow 2.21, with the devices of two hosts replaced by CPUs; it refuses one file."""
    with config.temporary_devices(tpu="2x2x1x1", tpu_hosts=2):
        initialize_tpu_system()
        strategy = refdist.TPUStrategy()
        distributed = strategy.experimental_distribute_dataset(make(tmp_path))
        for _ in range(2):
            assert [[row.tolist() for row in step.values] for step in distributed] == steps
        assert distributed.element_spec.values[0].shape == (length,)


def test_hosts_agree_on_the_order_of_rows() -> None:
    with config.temporary_devices(tpu="2x2x1x1", tpu_hosts=2):
        initialize_tpu_system()
        strategy = refdist.TPUStrategy()
        distributed = strategy.experimental_distribute_dataset(Dataset.range(64).shuffle(64).batch(16))
        for _ in range(2):
            rows = [int(row) for step in distributed for part in step.values for row in part]
            assert sorted(rows) == list(range(64)) != rows


def test_files_of_hosts_are_shuffled_apart(tmp_path: Path) -> None:
    with config.temporary_devices(tpu="2x2x1x1", tpu_hosts=2):
        initialize_tpu_system()
        strategy = refdist.TPUStrategy()
        distributed = strategy.experimental_distribute_dataset(lines(tmp_path, 40, 40).shuffle(40).batch(80))
        [step] = list(distributed)
        first, second = ([int(row) for part in step.values[i:i + 2] for row in part] for i in (0, 2))
        assert sorted(first) == list(range(40)) and [row - 100 for row in second] != first
        assert sorted(second) == list(range(100, 140)) and "2 hosts" in str(distributed.explain())


def test_uneven_shares_of_hosts(tmp_path: Path) -> None:
    with config.temporary_devices(tpu="2x2x1x1", tpu_hosts=2):
        topology = initialize_tpu_system()
        strategy = refdist.TPUStrategy()
        with pytest.warns(UserWarning, match="replicas 1, 3 get no row of a full batch"):
            distributed = strategy.experimental_distribute_dataset(Dataset.range(4).batch(2))
        assert [[row.tolist() for row in step.values] for step in distributed] == [
            [[0], [], [1], []], [[2], [], [3], []]]
        with pytest.warns(UserWarning, match="each of the 2 hosts reads all rows"):
            strategy.experimental_distribute_dataset(off(Dataset.range(4).batch(4)))
        uneven = refdist.InputOptions(uneven_end=refdist.data.UnevenEnd.PAD)
        [(rows, masks)] = strategy.experimental_distribute_dataset(Dataset.range(6).batch(8), uneven)
        valid = [part[mask].tolist() for part, mask in zip(rows.values, masks.values, strict=True)]
        assert valid == [[0, 1], [4, 5], [2, 3], []]
        files = strategy.experimental_distribute_dataset(lines(tmp_path, 2, 6).batch(4), uneven)
        assert [[mask.tolist() for mask in masks.values] for _, masks in files] == [
            [[True]] * 4, [[False], [False], [True], [True]], [[False], [False], [True], [True]]]
        coordinates = topology.device_coordinates.reshape(-1, 1, 4)[:3]
        three = refdist.TPUStrategy(None, DeviceAssignment(topology, coordinates))
        [step] = three.experimental_distribute_dataset(Dataset.range(6).batch(6))
        assert [row.tolist() for row in step.values] == [[0, 1], [2, 3], [4, 5]], "hosts of 2 and 1 replicas are one"


# What differs on TPUs from the clauses for MirroredStrategy: of a case and what is said of it, and why.
OTHERWISE = {
    r".*: found (.+?)( \| \1)* (bool|int32|float32|string), expected \1( float32)?": "results are arrays",
    r"(all_gather|gather|datasets)\..*: raises value \(InvalidArgumentError: \[RD07\].*": "arrays have one shape",
    r"extended\.(non-slot-devices|update-non-slot|update-knows-its-strategy).*": "non-slot devices are one CPU",
    r"extended\.facts.*: found True, expected False": "a TPU wants static shapes",
    r"strategies\.cluster-resolver-of-one-machine.*": "there is a cluster resolver",
}


class _OnTPU(Simulated):
    """The adapter, with a TPUStrategy in place of MirroredStrategy."""

    def strategy(self, kind: str) -> Any:
        return on(replicas=int(kind.removeprefix("Mirrored ")))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_clauses_of_mirrored_strategy_hold_on_tpus() -> None:
    adapter, failed, count = _OnTPU(), [], 0
    config.set_simulated_devices(cpu=16, gpu=16, tpu="2x2x1x2")
    for case in cases():
        if case.strategy in ("Mirrored 2", "Mirrored 3") and not case.example.parameters:
            verdict, count = judge(case, adapter.run(program(case))), count + 1
            if verdict.outcome != "passed":
                failed.append(f"{case.name}: {verdict.message}".replace("\n", " "))
    assert count > 1000
    assert [text for text in failed if not any(re.fullmatch(pattern, text) for pattern in OTHERWISE)] == []
    assert [pattern for pattern in OTHERWISE if not any(re.fullmatch(pattern, text) for text in failed)] == []


# --- Logical devices -------------------------------------------------------------------------------------------

def test_a_tile_lies_on_each_logical_device() -> None:
    """The documented example."""
    strategy = on([2, 2, 1, 2])
    x = np.arange(2 * 4 * 8 * 3, dtype=np.float32).reshape(2, 4, 8, 3)
    y = strategy.run(lambda t: strategy.experimental_split_to_logical_devices(t, [1, 2, 4, 1]), args=(x,))
    assert y.dtype == x.dtype and y.tolist() == x.tolist() and not y.flags.writeable
    [placed] = placements(y)
    assert placed is not None and (placed.kind, placed.grid) == ("split", (1, 2, 4, 1))
    assert numbers(placed.devices) == [0, 1, 2, 3, 6, 7, 4, 5]
    for i, j in itertools.product(range(2), range(4)):
        tile = placed.tiles[4 * i + j]
        assert tile.tolist() == x[:, 2 * i:2 * i + 2, 2 * j:2 * j + 2, :].tolist()
        assert x[placed.index_of(4 * i + j)].tolist() == tile.tolist()
        assert not np.shares_memory(tile, x) and not tile.flags.writeable


def test_what_is_returned_is_put_together_from_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = on([1, 1, 1, 2])
    cut = placement._cut
    monkeypatch.setattr(placement, "_cut", lambda array, index: cut(array, index) + 1)
    y = strategy.run(lambda: strategy.experimental_split_to_logical_devices(np.zeros((2, 2)), [1, 2]))
    assert y.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(("shape", "grid"), [
    ((8,), [8]), ((4, 8), [1, 8]), ((4, 8), (2, 4)), ((2, 4, 3), [2, 4, 1]), ((4, 8), np.array([2, 4])),
    ((0, 8), [1, 8]), ((2, 2, 2), [2, 2, 2])])
def test_arrays_that_can_be_split(shape: tuple[int, ...], grid: Any) -> None:
    x = np.arange(int(np.prod(shape))).reshape(shape)
    strategy = on([2, 2, 1, 2])
    y = strategy.run(lambda: strategy.experimental_split_to_logical_devices(x, grid))
    [placed] = placements(y)
    assert y.tolist() == x.tolist() and placed is not None and len(placed.tiles) == 8
    again = np.full(shape, -1)
    for i, tile in enumerate(placed.tiles):
        again[placed.index_of(i)] = tile
    assert again.tolist() == x.tolist()


@pytest.mark.parametrize(("shape", "grid", "says"), [
    ((4, 8), [1, 2, 4], r"\[1, 2, 4\], and the array has 2 dimensions"), ((4, 7), [2, 4], r"\[1\] is 4, .* length 7"),
    ((4, 8), [2, 2], r"\[2, 2\], which makes 4 tiles, and a replica has 8 logical devices"),
    ((4, 8), [8, 1], r"\[0\] is 8"), ((4, 8), [0, 8], r"\[0\] is 0"), ((4, 8), [-2, -4], r"\[0\] is -2"),
    ((), [], "1 tiles"), ((3, 8), [2], "has 2 dimensions"), ((3, 8), [2, 2], r"\[0\] is 2, .*length 3")])
def test_arrays_that_cannot_be_split(shape: Any, grid: Any, says: str) -> None:
    """The order is number of dimensions, divisibility, product."""
    strategy = on([2, 2, 1, 2])
    with pytest.raises(ValueError, match=rf"RD34\] experimental_split_to_logical_devices: partition_dimen.*{says}"):
        strategy.run(lambda: strategy.experimental_split_to_logical_devices(np.zeros(shape), grid))


def test_what_is_not_an_array_is_not_placed() -> None:
    strategy = on([1, 1, 1, 2])
    for tensor in ((np.ones(2), np.ones(2)), [[1.0]], None, object()):
        for call in (lambda t: strategy.experimental_split_to_logical_devices(t, [2]),
                     strategy.experimental_replicate_to_logical_devices,
                     lambda t: strategy.experimental_assign_to_logical_device(t, 0)):
            with pytest.raises(TypeError, match="RD25"):
                strategy.run(lambda call=call, tensor=tensor: call(tensor))
    for grid in (2, "2", [2.0], None, [True]):
        with pytest.raises(TypeError, match=r"RD25\] experimental_split"):
            strategy.run(lambda grid=grid: strategy.experimental_split_to_logical_devices(np.ones(2), grid))


def test_one_logical_device() -> None:
    strategy = on(replicas=2)
    y = strategy.run(lambda: strategy.experimental_split_to_logical_devices(np.ones((3, 4)), [1, 1]))
    assert [placed and len(placed.tiles) for placed in placements(y)] == [1, 1]
    with pytest.raises(ValueError, match="2 tiles, and a replica has 1 logical"):
        strategy.run(lambda: strategy.experimental_split_to_logical_devices(np.ones((3, 4)), [1, 2]))


def test_an_array_on_one_logical_device_or_on_all() -> None:
    strategy = on([1, 1, 1, 2], 4)

    def step() -> Any:
        i = context().replica_id_in_sync_group
        return (strategy.experimental_assign_to_logical_device(np.float32([i, 2]), 1),
                strategy.experimental_replicate_to_logical_devices(float(i)), np.zeros(2))

    assigned, every, bare = strategy.run(step)
    assert [array.tolist() for array in assigned.values] == [[0, 2], [1, 2], [2, 2], [3, 2]]
    assert [(placed.kind, placed.tiles[0], placed.tiles[1].tolist()) for placed in placements(assigned) if placed] == [
        ("assigned", None, [i, 2]) for i in range(4)]
    assert [numbers(placed.devices) for placed in placements(every) if placed] == [[0, 1], [2, 3], [6, 7], [4, 5]]
    assert [[float(tile) for tile in placed.tiles] for placed in placements(every) if placed] == [
        [i, i] for i in range(4)]
    assert every.values[1].dtype == np.float32 and placements(bare) == (None,) * 4
    for number in (2, -1):
        with pytest.raises(ValueError, match=rf"RD34.*logical_device_id is {number}, and a replica has 2 logical"):
            strategy.run(lambda number=number: strategy.experimental_assign_to_logical_device(1.0, number))
    spmd = on([1, 1, 1, 2], 4, experimental_spmd_xla_partitioning=True)
    with pytest.raises(ValueError, match=r"RD20.*experimental_spmd_xla_partitioning"):
        spmd.run(lambda: spmd.experimental_assign_to_logical_device(1.0, 0))


def test_a_placement_ends_with_its_array() -> None:
    strategy = on([1, 1, 1, 2])
    gc.collect()
    before = len(placement._placements.value)
    x = strategy.run(lambda: strategy.experimental_replicate_to_logical_devices(np.ones(2)))
    y = strategy.run(lambda array: strategy.experimental_assign_to_logical_device(array, 1), args=(x,))
    assert [placed.kind for array in (x, y) for placed in placements(array) if placed] == ["replicated", "assigned"]
    assert len(placement._placements.value) == before + 2
    assert placements(x + 0) == placements(x[...]) == (None,)
    del x, y
    gc.collect()
    assert len(placement._placements.value) == before


def test_pictures_of_placements() -> None:
    strategy = on([2, 2, 1, 2])
    x = np.arange(16.0).reshape(2, 8)
    y = strategy.run(lambda: strategy.experimental_split_to_logical_devices(x, [2, 4]))
    [split] = placements(y)
    assert str(split).splitlines()[:3] == ["split 2x4 over 8 logical devices", "  0  TPU:0  [0:1, 0:2]  [[0., 1.]]",
                                           "  1  TPU:1  [0:1, 2:4]  [[2., 3.]]"]
    assigned = strategy.run(lambda: strategy.experimental_assign_to_logical_device(1.0, 7))
    assert str(placements(assigned)[0]).splitlines()[-2:] == ["  6  TPU:4    -", "  7  TPU:5  []  1."]
    picture = ElementTree.fromstring(split._repr_svg_())
    boxes = [(int(box.attrib["x"]), int(box.attrib["y"])) for box in picture.iter() if box.tag.endswith("rect")]
    assert boxes == [(120 * column, 48 * row) for row in range(2) for column in range(4)]
    words = [text.text for text in picture.iter() if text.tag.endswith("text")]
    assert words[2:4] == ["1  TPU:1", "[0:1, 2:4]"]
    cube = strategy.run(lambda: strategy.experimental_split_to_logical_devices(np.zeros((2, 2, 2)), [2, 2, 2]))
    drawn = [placements(cube)[0], placements(assigned)[0]]
    corners = [[(box.attrib["x"], box.attrib["y"]) for box in ElementTree.fromstring(each._repr_svg_()).iter()
                if box.tag.endswith("rect")] for each in drawn if each]
    assert len(corners) == 2 and all(len({*places}) == 8 for places in corners)


def test_the_current_logical_device() -> None:
    strategy = on([1, 1, 1, 2], 4)
    assert numbers(strategy.extended.worker_devices) == [0, 2, 6, 4]
    with strategy.extended.experimental_logical_device(1):
        assert numbers(strategy.extended.worker_devices) == numbers(strategy.extended.parameter_devices) == [1, 3, 7, 5]
        with strategy.scope(), strategy.extended.experimental_logical_device(0):
            assert numbers(strategy.extended.worker_devices) == [0, 2, 6, 4]
    for number in (2, -1):
        with pytest.raises(ValueError, match=rf"RD34.*is {number}, and a replica has 2 logical devices"):
            strategy.extended.experimental_logical_device(number)
    made = []

    def step() -> Any:
        i = context().replica_id_in_sync_group
        with context().experimental_logical_device(1):
            made.append(refdist.Variable(1.0))
            context().all_reduce("SUM", 1.0)
            assert numbers(strategy.extended.worker_devices) == [1, 3, 7, 5]
            assert numbers([refdist.core.context_stack.frame().device]) == [[1, 3, 7, 5][i]]
        assert numbers(strategy.extended.worker_devices) == [0, 2, 6, 4]
        with pytest.raises(ValueError, match="RD34"):
            context().experimental_logical_device(2)

    strategy.run(step)
    assert len({*map(id, made)}) == 1 and numbers(made[0]._devices) == [1, 3, 7, 5]


# --- Variables -------------------------------------------------------------------------------------------------

AGGREGATIONS = refdist.VariableAggregation
ON_READ = refdist.VariableSynchronization.ON_READ


def test_a_variable_has_a_copy_for_each_replica() -> None:
    strategy = on(replicas=2)
    with strategy.scope():
        v = refdist.Variable(2.0, aggregation=AGGREGATIONS.SUM, name="w")
        r = refdist.Variable(2.0, synchronization=ON_READ, aggregation=AGGREGATIONS.SUM)
        assert [copy.name for copy in v.values] == ["w:0", "w/replica_1:0"]
        assert type(v.assign_add(1.0)) is refdist.Mirrored
        assert (float(v), float(r)) == (3.0, 4.0)
        r.assign(6.0)
        assert [float(copy) for copy in r.values] == [3.0, 3.0]
        with pytest.raises(ValueError, match="RD20"):
            refdist.Variable(1.0, synchronization=refdist.VariableSynchronization.NONE)
    assert (type(v), type(r)) == (refdist.MirroredVariable, refdist.SyncOnReadVariable)


def test_assignments_in_replicas() -> None:
    strategy = on(replicas=2)
    with strategy.scope():
        made = {aggregation: refdist.Variable(0.0, aggregation=aggregation) for aggregation in AGGREGATIONS}

    def step(operation: str, aggregation: Any) -> None:
        value = 5.0 if aggregation is AGGREGATIONS.NONE else 1.0 + context().replica_id_in_sync_group
        getattr(made[aggregation], operation)(value)

    for aggregation, value in zip(AGGREGATIONS, (5.0, 3.0, 1.5, 1.0), strict=True):
        strategy.run(step, args=("assign", aggregation))
        assert [float(copy) for copy in made[aggregation].values] == [value] * 2
        strategy.run(step, args=("assign_add", aggregation))
        assert [float(copy) for copy in made[aggregation].values] == [2 * value] * 2


def test_where_variables_lie() -> None:
    strategy = on([1, 1, 1, 2], 2)
    with strategy.scope():
        v = refdist.Variable([1.0, 2.0])
        with strategy.extended.experimental_logical_device(1):
            w = refdist.Variable([3.0])
    placed = [placements(variable) for variable in (v, w)]
    assert [[numbers(copy.devices) for copy in copies if copy] for copies in placed] == [[[0, 1], [2, 3]]] * 2
    assert [[tile is not None for tile in copy.tiles] for copies in placed for copy in copies if copy] == [
        [True, False]] * 2 + [[False, True]] * 2
    spmd = on([1, 1, 1, 2], 2, experimental_spmd_xla_partitioning=True)
    with spmd.scope():
        s = refdist.Variable([1.0, 2.0])
    s.assign_add([1.0, 1.0])
    assert [(copy.kind, [tile.tolist() for tile in copy.tiles]) for copy in placements(s) if copy] == [
        ("replicated", [[2.0, 3.0], [2.0, 3.0]])] * 2
    with pytest.raises(ValueError, match=r"RD34.*not of a TPUStrategy"):
        placements(refdist.Variable(1.0))


def test_a_model_trains_on_a_tpu_as_it_does_on_gpus() -> None:
    """A step whose matrix is split over the logical devices has the bits of one that is not."""
    x = np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32)

    def train(strategy: Any, split: Any) -> Any:
        with strategy.scope():
            w = refdist.Variable(np.ones((8, 4), np.float32), aggregation=AGGREGATIONS.SUM)

        def step(batch: Any) -> None:
            weights = split(np.asarray(w))
            w.assign_sub(np.float32(0.01) * (batch.T @ (batch @ weights)))

        for batch in strategy.experimental_distribute_dataset(Dataset.from_tensor_slices(x).batch(8)):
            strategy.run(step, args=(batch,))
        return w.numpy().tobytes()

    tpu_strategy = on([1, 1, 1, 2], 4)
    on_tpu = train(tpu_strategy, lambda w: tpu_strategy.experimental_split_to_logical_devices(w, [1, 2]))
    assert on_tpu == train(refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)]), lambda w: w)
