"""MultiWorkerMirroredStrategy: what it needs, what it refuses, and the command that simulates its workers.

Numbers are behaviours of TensorFlow 2.21.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_workers import mpiexec

import refdist
from refdist.backends.simulated.workers import SimulatedWorker
from refdist.data import Dataset
from refdist.experimental import CommunicationImplementation, CommunicationOptions
from refdist.workers import connection

ROOT = Path(__file__).parents[1]
resolvers = refdist.cluster_resolver


def configure(monkeypatch: Any, cluster: Any, job: str, index: Any) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}))


def test_alone_it_is_one_worker_with_one_replica() -> None:
    strategy = refdist.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 1
    assert strategy.extended.worker_devices == ("/job:localhost/replica:0/task:0/device:CPU:0",)
    assert isinstance(strategy.cluster_resolver, resolvers.TFConfigClusterResolver)
    assert strategy.cluster_resolver.cluster_spec().as_dict() == {}
    assert strategy.extended.should_checkpoint and strategy.extended.experimental_between_graph
    with strategy.scope():
        v = refdist.Variable(1.0)
    assert type(v) is refdist.MirroredVariable
    assert strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 2.0)) == 2.0


def test_the_older_name_takes_communication_first_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="use MultiWorkerMirroredStrategy"):
        older = refdist.experimental.MultiWorkerMirroredStrategy(CommunicationImplementation.RING)
    assert isinstance(older, refdist.MultiWorkerMirroredStrategy)
    with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match="RD34"):
        refdist.experimental.MultiWorkerMirroredStrategy(communication="foo")


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"RD34.*cluster_resolver is 5"):
        refdist.MultiWorkerMirroredStrategy(cluster_resolver=5)
    with pytest.raises(ValueError, match=r"RD34.*communication_options is 5"):
        refdist.MultiWorkerMirroredStrategy(communication_options=5)


@pytest.mark.parametrize(("cluster", "job", "index", "says"), [
    ({"worker": ["a:1"]}, None, None, "the task is not"),
    ({"ps": ["a:1"]}, "ps", 0, "a parameter server does not train"),
    ({"foo": ["a:1"]}, "foo", 0, "'foo' is not a type of task"),
    ({"worker": ["a:1"]}, "worker", 3, r"It has indices \[0\]"),
    ({"worker": ["a:1"]}, "worker", -1, "the task index is -1"),
    ({"worker": ["a:1"]}, "worker", "0", "the task index is '0'"),
    ({}, "worker", -1, "the task index is -1"),
    ({"worker": ["a:1"]}, "chief", 0, r"It has jobs \['worker'\]"),
    ({"chief": ["a:1", "b:1"], "worker": ["c:1"]}, "chief", 0, "2 chiefs"),
    ({"worker": ["a:1"], "evaluator": ["b:1", "c:1"]}, "worker", 0, "there are 2 evaluators"),
    ({"worker": ["a:1"], "evaluator": ["b:1"]}, "evaluator", 1, r"It has indices \[0\]"),
    ({"worker": ["a:1", "b:1"]}, "worker", 1, "this is worker 1 of 2, and the other workers were not started.*"
     "`pip install mpi4py mpich`.*`mpiexec -n 2 python ...`.*TF_CONFIG.*`python -m refdist run --workers 2 ...`"),
])
def test_clusters_that_cannot_be(cluster: Any, job: Any, index: Any, says: str) -> None:
    resolver = resolvers.SimpleClusterResolver(refdist.train.ClusterSpec(cluster), task_type=job, task_id=index)
    with pytest.raises((ValueError, RuntimeError), match=f"RD17.*{says}"):
        refdist.MultiWorkerMirroredStrategy(resolver)


def test_a_cluster_of_one_and_an_evaluator_are_alone(monkeypatch: Any) -> None:
    configure(monkeypatch, {"worker": ["a:1"]}, "worker", 0)
    alone = refdist.MultiWorkerMirroredStrategy()
    assert alone.extended.worker_devices == ("/job:worker/replica:0/task:0/device:CPU:0",)
    configure(monkeypatch, {"worker": ["a:1", "b:2"], "evaluator": ["c:3"]}, "evaluator", 0)
    assert refdist.MultiWorkerMirroredStrategy().num_replicas_in_sync == 1
    # It need not be in the cluster, which is that of those who train; TensorFlow says so and fails with a KeyError.
    configure(monkeypatch, {"chief": ["a:1"], "worker": ["b:2"]}, "evaluator", 0)
    assert refdist.MultiWorkerMirroredStrategy().extended.worker_devices == (
        "/job:evaluator/replica:0/task:0/device:CPU:0",)
    simple = resolvers.SimpleClusterResolver(refdist.train.ClusterSpec({}))
    assert refdist.MultiWorkerMirroredStrategy(simple).cluster_resolver is simple


def test_all_gpus_of_a_worker_are_used() -> None:
    with refdist.config.temporary_devices(gpu=3):
        assert refdist.MultiWorkerMirroredStrategy().num_replicas_in_sync == 3


def test_a_resolver_counts_the_gpus_that_are_used() -> None:
    spec = refdist.train.ClusterSpec({"worker": ["a:1"]})
    with refdist.config.temporary_devices(gpu=3):
        for counted, devices in (({"GPU": 2}, ["GPU:0", "GPU:1"]), ({}, ["CPU:0"])):
            resolver = resolvers.SimpleClusterResolver(spec, task_type="worker", task_id=0, num_accelerators=counted)
            assert refdist.MultiWorkerMirroredStrategy(resolver).extended.worker_devices == tuple(
                f"/job:worker/replica:0/task:0/device:{device}" for device in devices)
        resolver = resolvers.SimpleClusterResolver(spec, task_type="worker", task_id=0, num_accelerators={"GPU": 4})
        with pytest.raises(LookupError, match=r"RD24\] device 'GPU:3': the machine has CPU:0, GPU:0"):
            refdist.MultiWorkerMirroredStrategy(resolver)


def test_simulated_workers_are_told_apart_by_tf_config(monkeypatch: Any) -> None:
    monkeypatch.setenv("TF_CONFIG", "kept")

    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        config = json.loads(os.environ["TF_CONFIG"])
        values = strategy.experimental_distribute_values_from_function(
            lambda c: (c.replica_id_in_sync_group, c.num_replicas_in_sync))
        return (config["task"]["index"], len(config["cluster"]["worker"]), strategy.cluster_resolver.task_id,
                values[0].values, values[1].values)

    assert refdist.simulate_workers(program, 2, 2) == [(0, 2, 0, (0, 1), (4, 4)), (1, 2, 1, (2, 3), (4, 4))]
    assert os.environ["TF_CONFIG"] == "kept"


def test_a_simulated_worker_keeps_the_tf_config_that_its_program_writes(monkeypatch: Any) -> None:
    """A chief and two workers."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}

    def program() -> Any:
        number = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        job, index = ("chief", 0) if number == 0 else ("worker", number - 1)
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        strategy = refdist.MultiWorkerMirroredStrategy()
        total = float(strategy.reduce("SUM", 1.0 + number, axis=None))
        if number == 2:
            del os.environ["TF_CONFIG"]
        strategy.reduce("SUM", 1.0, axis=None)
        resolver = strategy.cluster_resolver
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return total, "TF_CONFIG" in os.environ, resolver.task_type, resolver.task_id

    assert refdist.simulate_workers(program, 3) == [(6.0, True, "chief", 0), (6.0, True, "worker", 0),
                                                    (6.0, False, None, None)]
    assert "TF_CONFIG" not in os.environ


def test_a_timeout_of_zero_leaves_that_of_the_transport(monkeypatch: Any) -> None:
    asked, connect = [], SimulatedWorker.connect

    def note(timeout: float | None) -> Any:
        asked.append(timeout)
        return connect(timeout)

    monkeypatch.setattr(SimulatedWorker, "connect", note)

    def program() -> float:
        for seconds in (0, 5.0, 0):
            options = CommunicationOptions(timeout_seconds=seconds)
            refdist.MultiWorkerMirroredStrategy(communication_options=options)
        return connection.connected.value.timeout

    assert refdist.simulate_workers(program, 2) == [5.0, 5.0] and asked == [None, None]


def test_each_worker_has_its_own_random_numbers() -> None:
    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        np.random.seed(3)
        random.seed(3)
        drawn = []
        for _ in range(3):
            drawn.append((np.random.random(), random.random()))
            strategy.reduce("SUM", 1.0, axis=None)
        return drawn

    first, second = refdist.simulate_workers(program, 2)
    assert first == second and len(set(first)) == 3


def test_a_worker_that_returns_early_is_named_with_the_line_of_those_who_wait() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        if strategy.extended.transport.rank != 1:
            strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))

    with pytest.raises(RuntimeError, match=r"RD01.*workers 0, 2 at all_reduce \(.*test_multi_worker.py:\d+\), but "
                                           "worker 1 already returned"):
        refdist.simulate_workers(program, 3)


def test_a_call_of_all_workers_in_replicas_of_one_of_them_is_refused() -> None:
    def program() -> list[float]:
        strategy, own = refdist.MultiWorkerMirroredStrategy(), refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        with strategy.scope():
            v = refdist.Variable(1.0, synchronization=refdist.VariableSynchronization.ON_READ,
                                 aggregation=refdist.VariableAggregation.SUM)
        refused = r"RD09.*all workers.*replica 0 of 2 of MirroredStrategy.*this worker only"
        with pytest.raises(RuntimeError, match=refused):
            own.run(v.read_value)
        total = v.read_value()
        return [float(part) for part in own.run(lambda: total).values]

    assert refdist.simulate_workers(program, 2, replicas_per_worker=2) == [[4.0, 4.0]] * 2


def test_what_a_worker_raises_comes_out_with_its_number() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        if strategy.extended.transport.rank == 1:
            raise KeyError("May")
        strategy.reduce("SUM", 1.0, axis=None)

    with pytest.raises(KeyError, match="May") as caught:
        refdist.simulate_workers(program, 2)
    assert caught.value.__notes__ == ["raised in worker 1 of 2 during simulate_workers"]
    assert refdist.simulate_workers(lambda: 1, 2) == [1, 1]


def test_a_cross_replica_write_that_differs_between_workers_changes_nothing() -> None:
    """In TensorFlow the copies drift apart."""
    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        with strategy.scope():
            v = refdist.Variable(1.0)
        with pytest.raises(ValueError, match=r"RD12.*worker 0 has 0.0, worker 1 has 5.0"):
            v.assign(5.0 * strategy.extended.transport.rank)
        v.assign(3.0)
        return float(v)

    assert refdist.simulate_workers(program, 2) == [3.0, 3.0]


def test_only_the_first_replica_of_the_first_worker_counts() -> None:
    """In TensorFlow the first replica of each worker."""
    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        with strategy.scope():
            v = refdist.Variable(0.0, aggregation=refdist.VariableAggregation.ONLY_FIRST_REPLICA)
        strategy.run(lambda: v.assign(1.0 + refdist.get_replica_context().replica_id_in_sync_group))
        return float(v)

    assert refdist.simulate_workers(program, 2, 2) == [1.0, 1.0]


def test_a_worker_without_rows_goes_on_until_all_are_done() -> None:
    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        dataset = strategy.distribute_datasets_from_function(
            lambda context: Dataset.range(2 + 2 * context.input_pipeline_id).batch(1))
        return [element.tolist() for element in dataset]

    assert refdist.simulate_workers(program, 2) == [[[0], [1], [], []], [[0], [1], [2], [3]]]


@pytest.mark.parametrize(("fn", "workers", "replicas"), [(5, 2, 1), (print, 0, 1), (print, "2", 1), (print, 2, 0)])
def test_bad_simulations(fn: Any, workers: Any, replicas: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"RD(25|34)"):
        refdist.simulate_workers(fn, workers, replicas)


def test_a_simulation_is_started_outside_of_everything() -> None:
    with refdist.MirroredStrategy(["CPU:0"]).scope(), pytest.raises(RuntimeError, match="RD09"):
        refdist.simulate_workers(lambda: 1, 2)
    with pytest.raises(RuntimeError, match="RD09"):
        refdist.simulate_workers(lambda: refdist.simulate_workers(lambda: 1, 2), 2)


SCRIPT = """
import sys
import refdist
from refdist.workers import connection
from refdist.backends.simulated.workers import SimulatedWorker

strategy = refdist.MultiWorkerMirroredStrategy()
total = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
print("worker", strategy.cluster_resolver.task_id, sys.argv[1:], strategy.experimental_local_results(total))
sys.exit(int(sys.argv[1]) if strategy.cluster_resolver.task_id == 1 else 0)
"""


def refdist_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "refdist", "run", *arguments], capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_the_command_says_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "refdist", "--version"], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout.strip() == f"refdist {refdist.__version__}"


@pytest.mark.slow
def test_the_command_runs_a_script_once_per_worker(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    done = refdist_run("--workers", "3", str(script), "0", "x")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"worker {i} ['0', 'x'] (array(3., dtype=float32),)" for i in range(3)]
    assert refdist_run("--workers", "2", "--replicas-per-worker", "2", str(script), "7").returncode == 7
    assert refdist_run(str(tmp_path / "gone.py")).returncode == 2
    script.write_text("raise KeyError('May')")
    failed = refdist_run(str(script))
    assert failed.returncode == 1 and "raised in worker 0 of 2" in failed.stderr


def test_tf_config_and_the_launcher_must_agree(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import refdist; refdist.MultiWorkerMirroredStrategy()")
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    code = ("import os, json, subprocess, sys; "
            f"os.environ['TF_CONFIG'] = {json.dumps(config)!r}; exec(open({str(script)!r}).read())")
    wrong = mpiexec(2, "-c", code)
    assert wrong.returncode != 0
    assert "[RD17]" in wrong.stderr and "the launcher that it is worker 1 of 2" in wrong.stderr


OFFICIAL = """
import json, os
import refdist
from refdist.workers import connection
from refdist.backends.simulated.workers import SimulatedWorker

per_worker_batch_size = 4
num_workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
strategy = refdist.MultiWorkerMirroredStrategy()
task = json.loads(os.environ["TF_CONFIG"])["task"]
data = refdist.data.Dataset.range(48).batch(per_worker_batch_size * num_workers)
rows = [strategy.gather(batch, 0).size for batch in strategy.experimental_distribute_dataset(data)]
resolver = strategy.cluster_resolver
# In one piece, so that it is not mixed with what others print.
print(f"worker {resolver.task_id} {task} {rows} {type(resolver).__name__}\\n", end="")
"""


@pytest.mark.slow
def test_a_script_that_counts_its_workers_in_tf_config_finds_them_in_every_world(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(OFFICIAL)
    real = mpiexec(3, str(script))
    assert real.returncode == 0, real.stderr
    simulated = refdist_run("--workers", "3", str(script))
    expected = [f"worker {i} {{'type': 'worker', 'index': {i}}} [12, 12, 12, 12] TFConfigClusterResolver"
                for i in range(3)]
    assert sorted(real.stdout.splitlines()) == simulated.stdout.splitlines() == expected
    assert real.stderr == ""
    alone = mpiexec(1, str(script))
    assert alone.stdout.splitlines() == refdist_run("--workers", "1", str(script)).stdout.splitlines()


LAUNCHED = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}


def after_import(**environment: str) -> str:
    bare = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return subprocess.run([sys.executable, "-c", "import refdist, os; print(os.environ.get('TF_CONFIG'))"], check=True,
                          env={**bare, "PYTHONPATH": str(ROOT), **environment}, capture_output=True,
                          text=True).stdout.strip()


@pytest.mark.slow
def test_tf_config_is_set_under_a_launcher_only_and_where_it_is_missing() -> None:
    assert after_import() == "None"
    assert [after_import(**LAUNCHED, TF_CONFIG=text) for text in ("mine", "")] == ["mine", ""]
    config = json.loads(after_import(**{**LAUNCHED, "OMPI_COMM_WORLD_RANK": "2"}))
    assert (len(config["cluster"]["worker"]), config["task"]) == (3, {"type": "worker", "index": 2})


def alone(name: str) -> Any:
    return {"mirrored": lambda: refdist.MirroredStrategy(["CPU:0"]), "one": lambda: refdist.OneDeviceStrategy("CPU:0"),
            "central": refdist.CentralStorageStrategy}[name]()


@pytest.mark.parametrize("name", ["mirrored", "one", "central"])
def test_several_processes_that_each_train_a_model_are_warned(monkeypatch: Any, name: str) -> None:
    for variable, value in LAUNCHED.items():
        monkeypatch.setenv(variable, value)
    says = (r"^3 processes train 3 models: \w+Strategy uses the devices of one process.*MultiWorkerMirroredStrategy\(\)"
            r".*warnings.filterwarnings\('ignore', '\.\*train 3 models'\)$")
    with pytest.warns(UserWarning, match=says) as caught:
        alone(name)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*train 3 models")
        alone(name)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    silent(name)


def silent(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone(name)


@pytest.mark.parametrize("name", ["mirrored", "one", "central"])
def test_who_trains_alone_by_intention_is_not_warned(monkeypatch: Any, name: str) -> None:
    silent(name)
    for variable, value in {**LAUNCHED, "OMPI_COMM_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(variable, value)
    silent(name)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    configure(monkeypatch, {"worker": ["a:1", "b:2"], "evaluator": ["c:3"]}, "evaluator", 0)
    silent(name)
    monkeypatch.setenv("TF_CONFIG", "malformed")
    with pytest.warns(UserWarning, match="3 models"):
        alone(name)


def test_simulated_workers_that_each_train_a_model_are_warned() -> None:
    with pytest.warns(UserWarning, match=r"^2 simulated workers train 2 models.*--workers 1") as caught:
        refdist.simulate_workers(lambda: alone("mirrored"), 2)
    assert [warning.category for warning in caught if warning.category is not ResourceWarning] == [UserWarning]
    refdist.simulate_workers(lambda: silent("mirrored"), 1)

    def program() -> None:
        refdist.MultiWorkerMirroredStrategy()
        silent("one")

    refdist.simulate_workers(program, 2)
    with pytest.warns(UserWarning, match="2 models"):
        refdist.simulate_workers(lambda: alone("central"), 2)


@pytest.mark.slow
def test_workers_under_mpi_that_each_train_a_model_are_warned_once() -> None:
    code = "import refdist\nfor _ in range(2):\n    refdist.MirroredStrategy(['CPU:0'])\n"
    assert mpiexec(2, "-c", code).stderr.count("2 processes train 2 models") == 1
    code = "import refdist; refdist.MultiWorkerMirroredStrategy(); refdist.OneDeviceStrategy('CPU:0')"
    assert "models" not in mpiexec(2, "-c", code).stderr


def test_a_device_that_a_simulated_worker_has_not_names_the_option() -> None:
    for replicas, there in ((1, "CPU:0, GPU:0"), (2, "CPU:0, GPU:0, GPU:1")):
        with pytest.raises(LookupError, match=rf"RD24.*machine has {there}\. Use MultiWorkerMirroredStrategy\(\), and "
                                              "`--replicas-per-worker N`, or `replicas_per_worker=N`"):
            refdist.simulate_workers(lambda: refdist.MirroredStrategy(["GPU:7"]), 2, replicas)
    with refdist.config.temporary_devices(gpu=1), pytest.raises(LookupError, match="set_simulated_devices"):
        refdist.MirroredStrategy(["GPU:7"])


def on_one_gpu() -> Any:
    """A worker's program that asks for one GPU, as on TensorFlow's clusters."""
    own = resolvers.TFConfigClusterResolver()
    resolver = resolvers.SimpleClusterResolver(own.cluster_spec(), task_type=own.task_type, task_id=own.task_id,
                                               num_accelerators={"GPU": 1})
    strategy = refdist.MultiWorkerMirroredStrategy(resolver)
    return strategy.num_replicas_in_sync, strategy.extended.worker_devices[0][-5:]


def test_each_simulated_worker_may_have_one_gpu() -> None:
    assert refdist.simulate_workers(on_one_gpu, 2, 1) == [(2, "GPU:0")] * 2
    assert refdist.simulate_workers(on_one_gpu, 2) == [(2, "GPU:0")] * 2
    with refdist.config.temporary_devices(gpu=1):
        assert refdist.simulate_workers(on_one_gpu, 2) == [(2, "GPU:0")] * 2


def test_simulated_workers_have_the_machine_that_was_stated(monkeypatch: Any) -> None:
    """As processes have that find REFDIST_DEVICES in their environment."""
    def replicas() -> int:
        return refdist.MultiWorkerMirroredStrategy().num_replicas_in_sync

    assert refdist.simulate_workers(replicas, 2) == [2, 2]
    with refdist.config.temporary_devices(gpu=3):
        assert refdist.simulate_workers(replicas, 2) == [6, 6]
        assert refdist.simulate_workers(replicas, 2, 1) == [2, 2]
        with pytest.raises(LookupError, match=r"RD24.*machine has CPU:0, GPU:0, GPU:1, GPU:2"):
            refdist.simulate_workers(lambda: refdist.MirroredStrategy(["GPU:7"]), 2)
    monkeypatch.setenv("REFDIST_DEVICES", "GPU:2")
    refdist.config.reset_simulated_devices()
    try:
        assert refdist.simulate_workers(replicas, 2) == [4, 4]
        assert refdist.simulate_workers(lambda: refdist.config.set_simulated_devices(gpu=9), 2) == [None, None]
        assert refdist.simulate_workers(replicas, 2) == [4, 4], "what a worker states ends with it"
    finally:
        monkeypatch.undo()
        refdist.config.reset_simulated_devices()


def test_a_script_runs_on_simulated_workers_as_it_does_in_processes() -> None:
    """Where no devices are stated, a program has those that it names, and is warned of several models."""
    with pytest.warns(UserWarning, match="2 simulated workers train 2 models"):
        assert refdist.simulate_workers(
            lambda: refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2", "GPU:3"]).num_replicas_in_sync, 2) == [4, 4]


def test_without_mpi4py_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('no such library')")
    wrong = mpiexec(2, "-c", "import refdist; refdist.MultiWorkerMirroredStrategy()",
                    PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert wrong.returncode != 0
    assert "[RD27]" in wrong.stderr and "`pip install mpi4py mpich`" in wrong.stderr


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["REFDIST_CHECKS", "REFDIST_SUMS", "REFDIST_TIMEOUT"])
def test_settings_that_are_none_are_refused(variable: str) -> None:
    wrong = mpiexec(2, "-c", "import refdist; refdist.MultiWorkerMirroredStrategy()", **{variable: "much"})
    assert wrong.returncode != 0
    assert f"[RD34] environment variable {variable}='much'" in wrong.stderr


def test_any_order_can_be_asked_for() -> None:
    """The sum of small integers does not depend on the order."""
    code = ("import refdist, numpy as np; from refdist.experimental import CommunicationOptions as O\n"
            "s = refdist.MultiWorkerMirroredStrategy(communication_options=O(implementation='RING'))\n"
            "for size in (1, 100, 100_000):\n"
            "    t = s.run(lambda: refdist.get_replica_context().all_reduce('SUM', np.full(size, 1.0)))\n"
            "    assert t.tolist() == [2.0] * size")
    for way in ("shared", "sent"):
        done = mpiexec(2, "-c", code, REFDIST_SUMS=way)
        assert done.returncode == 0, done.stderr
    assert CommunicationOptions(implementation="ring").implementation is CommunicationImplementation.RING
