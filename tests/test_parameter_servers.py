"""ParameterServerStrategy without a coordinator: clusters, placement, kinds of variables.  Facts: TensorFlow 2.21."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import VariableAggregation as Agg
from refdist import VariableSynchronization as Sync
from refdist.cluster_resolver import SimpleClusterResolver, TFConfigClusterResolver
from refdist.train import ClusterSpec
from refdist.variables.served import PerWorkerVariable, ServedVariable
from refdist.variables.sharded import ShardedVariable

Fixed = refdist.experimental.partitioners.FixedShardsPartitioner


def cluster(workers: int = 2, servers: int = 2, **more: list[str]) -> dict[str, list[str]]:
    return {"worker": [f"w{i}:1" for i in range(workers)], "ps": [f"p{i}:1" for i in range(servers)], **more}


def strategy(workers: int = 2, servers: int = 2, partitioner: Any = None, **options: Any) -> Any:
    resolver = SimpleClusterResolver(ClusterSpec(cluster(workers, servers)), **options)
    return refdist.ParameterServerStrategy(resolver, partitioner)


def server(variable: Any) -> int:
    return int(variable.device.split("/")[3].removeprefix("task:"))


def made(s: Any, value: Any, **options: Any) -> Any:
    with s.scope():
        return refdist.Variable(value, **options)


@pytest.mark.parametrize(("jobs", "task"), [
    ({"worker": ["a:1"], "ps": ["b:1"], "foo": ["c:1"]}, {}),
    ({"worker": ["a:1"], "ps": ["b:1"], "chief": ["c:1", "d:1"]}, {}), ({"worker": ["a:1"], "ps": []}, {}),
    ({"chief": ["c:1"]}, {}), ({"worker": ["a:1"], "chief": ["c:1"]}, {}), ({"ps": ["a:1"]}, {}), ({}, {}),
    (cluster(), {"task_type": "foo", "task_id": 0}), (cluster(), {"task_type": "worker", "task_id": 3}),
    (cluster(), {"task_type": "worker"})])
def test_clusters_that_are_described_wrongly(jobs: Any, task: Any) -> None:
    with pytest.raises(ValueError, match="RD17"):
        refdist.ParameterServerStrategy(SimpleClusterResolver(ClusterSpec(jobs), **task))


def test_bad_arguments() -> None:
    for resolver in (None, "cluster", ClusterSpec(cluster())):
        with pytest.raises(TypeError, match=r"RD25.*cluster_resolver"):
            refdist.ParameterServerStrategy(resolver)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"RD25.*variable_partitioner is 17"):
        strategy(partitioner=17)


def test_it_says_how_many_workers_and_servers_it_has() -> None:
    assert repr(strategy(3, 1)) == (
        "<ParameterServerStrategy: one replica on each of 3 workers, 1 parameter server, CPU:0>")
    assert "one replica on each of 1 worker, 2 parameter servers" in strategy(1)._repr_html_()


@pytest.mark.parametrize("task", [{}, {"type": "chief", "index": 0}, {"type": "worker", "index": 1}])
def test_the_cluster_of_tf_config(monkeypatch: pytest.MonkeyPatch, task: Any) -> None:
    jobs = cluster(2, 3, chief=["c:1"], evaluator=["e:1"])
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": task}))
    resolver = TFConfigClusterResolver()
    s = refdist.ParameterServerStrategy(resolver)
    assert (s.num_replicas_in_sync, s.cluster_resolver, s.extended.workers) == (1, resolver, 2)
    assert [server(made(s, 1.0)) for _ in range(4)] == [0, 1, 2, 0]
    monkeypatch.delenv("TF_CONFIG")
    with pytest.raises(ValueError, match=r"RD17.*the cluster is empty"):
        refdist.ParameterServerStrategy(TFConfigClusterResolver())


def test_variables_go_round_the_servers() -> None:
    s = strategy(1, 3)
    assert [server(made(s, np.zeros(n))) for n in (1000, 1, 1, 1000, 1)] == [0, 1, 2, 0, 1]
    with s.scope(), refdist.device("CPU:0"):
        assert server(refdist.Variable(1.0)) == 2
    assert [server(made(strategy(), 1.0)) for _ in range(2)] == [0, 0], "each strategy counts for itself"
    t = strategy(partitioner=Fixed(3))
    v, w = made(t, np.arange(4.0), name="emb"), made(t, 1.0)
    assert [server(shard) for shard in v.variables] == [0, 1, 0] and server(w) == 1
    assert [shard.name for shard in v.variables] == ["emb/part_0:0", "emb/part_1:0", "emb/part_2:0"]
    assert (v.name, made(t, [1.0, 2.0]).name) == ("emb:0", "Variable:0")


def test_colocated_variables_do_not_count_and_are_whole() -> None:
    s = strategy(partitioner=Fixed(2))
    a, b = made(s, 1.0), made(s, 1.0)
    with s.scope():
        with s.extended.colocate_vars_with(b):
            c, d = refdist.Variable(np.zeros(4)), refdist.Variable(2.0)
        e = refdist.Variable(3.0)
        with pytest.raises(ValueError, match="RD11"), s.extended.colocate_vars_with(OUTSIDE):
            pass
    assert [server(variable) for variable in (a, b, c, d, e)] == [0, 1, 1, 1, 0]


OUTSIDE = refdist.Variable(1.0)


@pytest.mark.parametrize("synchronization", [*Sync, None])
@pytest.mark.parametrize("aggregation", [*Agg, None])
def test_options_are_kept_and_have_no_effect_with_one_replica(synchronization: Any, aggregation: Any) -> None:
    s = strategy()
    v = made(s, 1.0, synchronization=synchronization, aggregation=aggregation)
    assert type(v) is ServedVariable
    assert (v.synchronization, v.aggregation) == (synchronization or Sync.AUTO, aggregation or Agg.NONE)

    def step() -> Any:
        v.assign_sub(0.5)
        return v.read_value()

    v.assign_add(2.0)
    assert float(s.run(step)) == 2.5 and float(v) == 2.5
    with s.scope():
        v.assign(4.0)
        assert float(s.extended.update(v, lambda variable, x: variable.assign_add(x), args=(1.0,))) == 5.0
    assert v.get() is v and v.trainable is (synchronization is not Sync.ON_READ)


def test_a_worker_with_several_replicas_aggregates_what_they_write() -> None:
    s = strategy(num_accelerators={"GPU": 2})
    v = made(s, 1.0, aggregation=Agg.SUM)
    w = made(s, np.zeros(2), aggregation=Agg.MEAN)
    assert (s.num_replicas_in_sync, type(v).__name__, server(v), server(w)) == (2, "ServedAggregatingVariable", 0, 1)

    def step() -> Any:
        v.assign_add(1.0)
        w.assign([float(refdist.get_replica_context().replica_id_in_sync_group)] * 2)
        return float(v)

    assert s.run(step).values == (3.0, 3.0) and w.numpy().tolist() == [0.5, 0.5]
    inside = s.run(lambda: refdist.Variable(2.0, aggregation=Agg.SUM))
    assert server(inside) == 0 and server(made(s, 1.0)) == 1, "replicas create one variable together"


def test_a_partitioner_decides_for_every_variable_that_is_not_a_scalar() -> None:
    asked: list[Any] = []

    def partition(shape: Any, dtype: Any) -> list[int]:
        asked.append((shape, np.dtype(dtype).name))
        return [2] + [1] * (len(shape) - 1)

    s = strategy(partitioner=partition)
    v, w = made(s, [1, 2, 3], dtype=np.float32), made(s, lambda: np.zeros((5, 2)))
    made(s, 1.0)
    single = made(s, [7.0])
    assert asked == [((3,), "float32"), ((5, 2), "float64"), ((1,), "float32")]
    assert isinstance(v, ShardedVariable) and (v.dtype, v.numpy().tolist()) == (np.float32, [1, 2, 3])
    assert [len(part.numpy()) for part in v] == [2, 1] and [part.shape for part in w] == [(3, 2), (2, 2)]
    assert type(single) is ServedVariable
    assert s.extended.variable_created_in_scope(v) and not s.extended.variable_created_in_scope(OUTSIDE)
    assert made(s, v).numpy().tolist() == [1, 2, 3]
    for wrong in ([], [0], [2, 2], [1, 2], 2, None):
        bad = strategy(partitioner=lambda shape, dtype, wrong=wrong: wrong)
        with pytest.raises(ValueError, match="RD34"):
            made(bad, np.zeros((4, 4)))
    with pytest.raises(ValueError, match=r"RD34.*changing size"):
        made(s, [1.0, 2.0], shape=(None,))
    assert [part.trainable for part in made(s, [1.0, 2.0], trainable=False)] == [False, False]


def test_a_checkpoint_under_another_number_of_servers(tmp_path: Path) -> None:
    path = refdist.train.Checkpoint(v=made(strategy(1, 2, Fixed(2)), np.arange(5.0))).write(tmp_path / "two")
    for n in (1, 2, 3, 5):
        w = made(strategy(2, n, Fixed(n)), np.zeros(5))
        refdist.train.Checkpoint(v=w).read(path).assert_consumed()
        assert w.numpy().tolist() == [0, 1, 2, 3, 4]


def test_each_worker_has_a_variable_of_its_own() -> None:
    s = strategy(3)
    v = made(s, 1.0, per_worker_variable=True)
    assert isinstance(v, PerWorkerVariable) and not v.trainable and v.shape == () and float(v) == 1.0
    v.assign(5.0)
    assert float(v) == 5.0 and [float(own) for own in v.read_all()] == [1.0] * 3
    assert server(made(s, 1.0)) == 0, "it is on no server"
    with pytest.raises(refdist.errors.UnsupportedError, match=r"RD20.*per_worker_variable"):
        refdist.Variable(0.0, per_worker_variable=True)
    with pytest.raises(refdist.errors.UnsupportedError, match=r"RD20.*per_worker_variable"):
        made(refdist.MirroredStrategy(["GPU:0", "GPU:1"]), 0.0, per_worker_variable=True)


def test_run_reduce_and_gather_on_the_coordinator() -> None:
    s = strategy()
    assert s.run(lambda: refdist.get_strategy() is s, options=refdist.RunOptions())
    assert not s.run(refdist.in_cross_replica_context)
    r = s.run(lambda: np.array([1.0, 2.0]))
    assert s.reduce("SUM", r, axis=None).tolist() == [1.0, 2.0] and float(s.reduce("MEAN", r, axis=0)) == 1.5
    assert s.gather(r, axis=0).tolist() == [1.0, 2.0] and s.experimental_local_results(3) == (3,)
    assert s.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0)) == 1.0
    x = s.experimental_distribute_values_from_function(lambda c: float(c.replica_id_in_sync_group))
    assert x.values == (0.0,)
    v = made(s, 1.0)
    assert s.extended.value_container(v) is v and float(s.extended.read_var(v)) == 1.0
    batches = refdist.data.Dataset.range(4).batch(4)
    for spread in (s.experimental_distribute_dataset(batches), s.distribute_datasets_from_function(lambda _: batches)):
        for read in (iter, list, lambda given: given.reduce(0, max)):
            with pytest.raises(ValueError, match=r"RD20\] iterating over a distributed dataset.*create_per_worker"):
                read(spread)
    with pytest.warns(DeprecationWarning):
        assert [batch.tolist() for batch in s.make_dataset_iterator(batches)] == [[0, 1, 2, 3]]  # as in TensorFlow


def test_servers() -> None:
    local = refdist.Server.create_local_server(start=False)
    assert local.target.startswith("grpc://localhost:") and local.server_def.job_name == "localhost"
    assert (local.start(), local.start()) == (None, None)  # type: ignore[func-returns-value]
    spec = ClusterSpec(cluster(2, 1))
    ps = refdist.Server(spec, job_name="ps")
    assert ps.server_def == (spec, "ps", 0, "grpc") and refdist.Server(ps.server_def, task_index=0).target == ps.target
    for arguments in ((spec,), (spec, "worker"), (spec, "nojob", 0), (spec, "worker", 5)):
        with pytest.raises(ValueError, match="RD17"):
            refdist.Server(*arguments)
    with pytest.raises(ValueError, match=r"RD34.*protocol"):
        refdist.Server(spec, "ps", 0, protocol="foo")
    with pytest.raises(TypeError, match="RD25"):
        refdist.Server(17)
    with pytest.raises(refdist.errors.UnsupportedError, match=r"RD20.*ps 0 would wait"):
        ps.join()


def test_the_first_version() -> None:
    first = refdist.compat.v1.distribute.experimental.ParameterServerStrategy
    assert first is not refdist.ParameterServerStrategy is refdist.experimental.ParameterServerStrategy
    s = first()
    assert (s.num_replicas_in_sync, [device[-5:] for device in s.extended.parameter_devices]) == (1, ["CPU:0"])
    resolver = SimpleClusterResolver(ClusterSpec(cluster()), "", "worker", 1, num_accelerators={"GPU": 2})
    two = first(resolver).extended
    assert [device[-30:] for device in two.worker_devices] == [f"/replica:0/task:1/device:GPU:{i}" for i in range(2)]
    assert [device[:24] for device in two.parameter_devices] == [f"/job:ps/replica:0/task:{i}" for i in range(2)]
    assert (two.experimental_between_graph, two.experimental_should_init, two.should_checkpoint,
            two.should_save_summary) == (True, False, False, False)
    for resolver in (SimpleClusterResolver(ClusterSpec({"worker": ["a:1"]}), task_type="worker", task_id=0),
                     SimpleClusterResolver(ClusterSpec(cluster()))):
        with pytest.raises(ValueError, match="RD17"):
            first(resolver)
    for call in (s.scope, lambda: s.run(int), lambda: s.experimental_distribute_dataset([]),
                 lambda: s.distribute_datasets_from_function(lambda c: [])):
        with pytest.raises(NotImplementedError, match=r"RD20.*graphs"):
            call()
    assert s.reduce("SUM", 1.0) == 1.0


@pytest.mark.parametrize("make", [
    lambda: refdist.random.Generator.from_seed(1), lambda: refdist.random.Generator.from_non_deterministic_state(),
    lambda: refdist.random.Generator(copy_from=refdist.random.Generator.from_seed(1)),
    lambda: refdist.random.get_global_generator()])
def test_a_generator_is_not_split_and_the_advice_of_the_error_works(make: Any) -> None:
    refdist.random.set_global_generator(None)

    def made(partitioner: Any) -> Any:
        servers = strategy(1, 2, partitioner)
        with servers.scope():
            return servers, make()

    partitioners = refdist.experimental.partitioners
    for splits in (partitioners.FixedShardsPartitioner(2), partitioners.MaxSizePartitioner(8)):
        with pytest.raises(ValueError, match=r"\[RD20\] Generator: the variable_partitioner of the strategy splits its "
                                             r"state into [23] parts. .*such as MinSizePartitioner\(\)"):
            made(splits)
    servers, generator = made(partitioners.MinSizePartitioner())
    assert generator.normal([3]).shape == servers.run(lambda: generator.uniform([3])).shape == (3,)
    refdist.random.set_global_generator(None)
