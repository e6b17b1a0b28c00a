"""Cluster resolvers and ClusterSpec.  Numbers are behaviours of TensorFlow 2.21."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refdist
from refdist import cluster_resolver as resolvers
from refdist.cluster_resolver.cluster_spec import check_cluster
from refdist.cluster_resolver.slurm import expand_hostlist, expand_tasks_per_node
from refdist.train import ClusterSpec

Simple, Union = resolvers.SimpleClusterResolver, resolvers.UnionResolver
TWO = ClusterSpec({"worker": ["h0:1", "h1:2"]})


def simple(cluster: Any, **more: Any) -> Any:
    return Simple(ClusterSpec(cluster), **more)


def test_the_base_class_is_abstract_and_its_defaults_say_nothing() -> None:
    with pytest.raises(TypeError):
        resolvers.ClusterResolver()  # type: ignore[abstract]

    class Mine(resolvers.ClusterResolver):
        def cluster_spec(self) -> ClusterSpec:
            return ClusterSpec({})

        def master(self, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> str:
            return ""

    resolver = Mine()
    assert (resolver.environment, resolver.task_type, resolver.task_id) == ("", None, None)
    assert resolver.num_accelerators() == {}


def test_a_simple_resolver_says_what_it_was_told() -> None:
    bare = Simple(TWO)
    assert (bare.task_type, bare.task_id, bare.environment, bare.rpc_layer, bare.master()) == (None, None, "", None, "")
    resolver = Simple(TWO, master="m:9", task_type="worker", task_id=1, rpc_layer="grpc")
    assert [resolver.master(), resolver.master("worker", 0), resolver.master("worker", 0, rpc_layer="http"),
            resolver.master("worker")] == ["grpc://m:9", "grpc://h0:1", "http://h0:1", "grpc://m:9"]
    for task in (("worker", 7), ("ps", 0)):
        with pytest.raises(ValueError, match="RD17"):
            resolver.master(*task)
    assert Simple(TWO, task_type="worker", task_id=1).master() == ""
    bare.task_type, bare.task_id, bare.rpc_layer = "ps", 3, "grpc"
    assert (bare.task_type, bare.task_id, bare.rpc_layer) == ("ps", 3, "grpc")
    with pytest.raises(AttributeError):
        bare.environment = "x"
    assert Simple(TWO, num_accelerators={"GPU": 2}).num_accelerators("worker", 5) == {"GPU": 2}


def test_a_simple_resolver_takes_a_cluster_spec() -> None:
    with pytest.raises(TypeError, match="RD25"):
        Simple({"worker": ["h:1"]})
    with pytest.raises(TypeError, match="RD25"):
        Simple(TWO, master=5)  # type: ignore[arg-type]


FULL = {"cluster": {"chief": ["c:1"], "worker": ["w0:2", "w1:3"], "ps": ["p:4"]},
        "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"}


def test_tf_config_is_read(monkeypatch: Any) -> None:
    """As TensorFlow 2.21, but for what it ignores and is an error here."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    nothing = resolvers.TFConfigClusterResolver()
    assert [nothing.cluster_spec().as_dict(), nothing.task_type, nothing.task_id, nothing.rpc_layer,
            nothing.environment, nothing.master(), nothing.num_accelerators()] == [{}, None, None, None, None, "", {}]

    def of(config: Any, **arguments: Any) -> Any:
        monkeypatch.setenv("TF_CONFIG", config if isinstance(config, str) else json.dumps(config))
        return resolvers.TFConfigClusterResolver(**arguments)

    full = of(FULL)
    assert [full.cluster_spec().as_dict(), full.task_type, full.task_id, full.rpc_layer, full.master(),
            full.master("ps", 0), full.master("worker", 0, "http"), full.master(task_id=0)] == [
        FULL["cluster"], "worker", 1, "grpc", "grpc://w1:3", "grpc://p:4", "http://w0:2", "grpc://w0:2"]
    single = {"cluster": {"worker": ["w0:2"]}, "task": {"type": "worker", "index": 0}, "rpc_layer": "grpc"}
    assert of(single).master() == ""
    assert of({**FULL, "session_master": "foo:1"}).master("worker", 1, "grpc") == "foo:1"
    given_ = of(FULL, task_type="worker", task_id="0", rpc_layer="http", environment="x")
    assert (given_.task_id, given_.environment, given_.master()) == (0, "x", "http://w0:2")
    assert of({**FULL, "task": {"type": "worker", "index": "1"}}).task_id == 1
    without = of({"task": {"type": "worker", "index": 0}})
    assert [without.cluster_spec().as_dict(), without.task_type, without.task_id] == [{}, "worker", 0]


@pytest.mark.parametrize(("text", "says"), [
    ('{"cluster": ', r"line 1 column 13, near .*Expecting value.*Write JSON"),
    ("{'cluster': 1}", r"line 1 column 2.*Use double quotes"),
    ("", "line 1 column 1"),
    ("[" * 100_000, "nested too deep"),
    ("[1, 2]", "it is a list, not an object"),
    ('{"cluster": {"worker": "w0:2"}}', """at "cluster".*tasks of job 'worker' are 'w0:2'"""),
    ('{"cluster": 5}', 'at "cluster".*got 5'),
    ('{"cluster": {"worker": [1]}}', "address of task 0 of job 'worker' is 1"),
    ('{"cluster": {"worker": ["a:1"]}, "task": 5}', 'at "task".*5 is not an object'),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "x"}}',
     """at "task", "index".*'x' is not an int"""),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1.5}}', "1.5 is not an int"),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}',
     'at "task", "index": -1 is below 0'),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "-1"}}', "'-1' is below 0"),
    ('{"Cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
     """line 1 column 1: it has no "cluster", and 'Cluster' is not read.*Write "cluster\""""),
    ('{"clusters": {"worker": ["a:1"]}}', "'clusters' is not read"),
    ('{"cluster": {"worker": ["a:1"]}, "tasks": {"type": "worker", "index": 0}}', "'tasks' is not read"),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"Type": "worker", "index": 0}}',
     """at "task": it has no "type", and 'Type' is not read"""),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "idx": 0}}', "'idx' is not read"),
    ('{"cluster": {"worker": ["a:1", "b:x1"]}}', """at "cluster", "worker", 1: the port of 'b:x1' is 'x1'"""),
    ('{"cluster": {"worker": {"7": "b:65536"}}}', """at "cluster", "worker", 7: the port of 'b:65536'"""),
    ('{"cluster": {"worker": {"1": "a:1", "x": "b:1"}}}', "has the task index 'x'"),
])
def test_a_malformed_tf_config_is_an_error_that_names_the_place(monkeypatch: Any, text: str, says: str) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    resolver = resolvers.TFConfigClusterResolver()
    with pytest.raises(ValueError, match=rf"RD17.*environment variable TF_CONFIG.*{says}"):
        (resolver.cluster_spec(), resolver.task_type, resolver.task_id)


@pytest.mark.parametrize("more", [
    {"environment": "cloud", "job": {"trial": 1}, "model_dir": "/m", "cloud": "x"}, {"Cluster": 1, "Task": 2}])
def test_other_keys_of_tf_config_are_let_be(monkeypatch: Any, more: Any) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({**FULL, **more}))
    resolver = resolvers.TFConfigClusterResolver()
    assert (resolver.cluster_spec().as_dict(), resolver.task_id) == (FULL["cluster"], 1)


def test_an_address_may_have_no_port_or_an_ipv6_host(monkeypatch: Any) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["[2001:db8::1]:2222", "grpc://b:2"]}}))
    assert resolvers.TFConfigClusterResolver().cluster_spec().num_tasks("worker") == 2


def test_a_sparse_cluster_in_tf_config(monkeypatch: Any) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": {"1": "h:1", "3": "h:3"}},
                                                "task": {"type": "worker", "index": 3}}))
    resolver = resolvers.TFConfigClusterResolver()
    assert (resolver.cluster_spec().as_dict(), resolver.master()) == ({"worker": {1: "h:1", 3: "h:3"}}, "h:3")


def test_accelerators_are_those_of_the_machine_and_of_tasks_that_there_are(monkeypatch: Any) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps(FULL))
    resolver = resolvers.TFConfigClusterResolver()
    tpu = resolvers.TPUClusterResolver("local")
    assert (resolver.num_accelerators(), tpu.num_accelerators()) == ({}, {"TPU": 0})
    assert resolver.num_accelerators()["GPU"] == 0
    with refdist.config.temporary_devices(cpu=2, gpu=3, tpu=4):
        assert resolver.num_accelerators() == resolver.num_accelerators("worker", 0) == {"GPU": 3, "TPU": 4}
        assert tpu.num_accelerators() == {"TPU": 4}
        for task in (("worker", 7), ("foo", 0)):
            with pytest.raises(ValueError, match="RD17"):
                resolver.num_accelerators(*task)
    assert Simple(TWO).num_accelerators() == {}


def test_a_task_that_is_not_there_is_found_when_its_address_is_asked_for(monkeypatch: Any) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({**FULL, "task": {"type": "foo", "index": 0}}))
    resolver = resolvers.TFConfigClusterResolver()
    assert resolver.task_type == "foo"
    with pytest.raises(ValueError, match=r"RD17.*job 'foo' does not exist"):
        resolver.master()


def test_what_is_probably_wrong_is_warned_of(monkeypatch: Any) -> None:
    """Also addresses that cannot be reached."""
    monkeypatch.setenv("TF_CONFIG", json.dumps(FULL))
    resolver = resolvers.TFConfigClusterResolver()
    monkeypatch.setenv("TF_CONFIG", json.dumps({**FULL, "task": {"type": "ps", "index": 0}}))
    with pytest.warns(UserWarning, match="TF_CONFIG has changed"):
        assert resolver.task_type == "ps"
    for addresses, says in ((["localhost:1", "far:2"], "names localhost"), (["127.0.0.1:1", "far:2"], "127.0.0.1"),
                            (["a:0", "b:2"], "a:0; no connection can be made to port 0"),
                            (["localhost:0000", "localhost:1"], "localhost:0000; no connection can be made to port 0"),
                            (["a", "b:2"], "a, which has no port"),
                            (["a:1", "a:1"], "has the address a:1 for several tasks")):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": addresses}}))
        with pytest.warns(UserWarning, match=says):
            resolvers.TFConfigClusterResolver().cluster_spec()


def test_without_a_task_in_tf_config_there_is_no_address_of_this_task(monkeypatch: Any) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": FULL["cluster"]}))
    resolver = resolvers.TFConfigClusterResolver()
    for which in ({}, {"task_type": "worker"}):
        with pytest.raises(RuntimeError, match=r"RD17.*does not say which task this is"):
            resolver.master(**which)
    assert resolver.master("worker", 0) == "w0:2"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(
    inner, max_size=3) | st.dictionaries(st.sampled_from(["cluster", "task", "type", "index", "worker", "0"]), inner)))
def test_whatever_tf_config_holds_only_our_errors_come_out(config: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CONFIG", json.dumps(config))
        resolver = resolvers.TFConfigClusterResolver()
        for question in (resolver.cluster_spec, resolver.master, lambda: resolver.task_type, lambda: resolver.task_id):
            try:
                question()
            except refdist.errors.RefdistError as error:
                assert error.code == "RD17"


def test_a_union_puts_jobs_together_and_takes_the_first_word() -> None:
    """As TensorFlow 2.21, which ignores a task_id of 0."""
    both = Union(simple({"worker": ["a:1"]}, task_type="worker", task_id=0, environment="e1", rpc_layer="grpc",
                        master="m1"), simple({"worker": ["b:2"], "ps": ["c:3"]}, task_type="ps", task_id=5))
    assert [both.cluster_spec().as_dict(), both.task_type, both.task_id, both.environment, both.rpc_layer,
            both.master(), both.num_accelerators()] == [
        {"worker": ["a:1", "b:2"], "ps": ["c:3"]}, "worker", 0, "e1", "grpc", "grpc://m1", {}]
    assert both.master("worker", 1) == "grpc://b:2"
    stated = Union(simple({"worker": ["a:1"]}, task_type="worker", task_id=3), task_type="ps", task_id=0,
                   rpc_layer="http")
    assert [stated.task_type, stated.task_id, stated.rpc_layer, stated.master("worker", 0)] == [
        "ps", 0, "http", "http://a:1"]
    sparse = Union(simple({"worker": {1: "a:1"}}), simple({"worker": ["b:2"]}))
    assert sparse.cluster_spec().as_dict() == {"worker": ["b:2", "a:1"]}
    for clusters in ([{0: "a:1", 5: "z:1"}, ["b:2"]], [["a:1"], ["b:2"], {5: "c:3"}]):
        with pytest.raises(KeyError, match=r"^\[RD17\] .*task 0 of job 'worker'"):
            Union(*(simple({"worker": tasks}) for tasks in clusters)).cluster_spec()
    assert Union(simple({"worker": ["a:1"]}, num_accelerators={"GPU": 1})).num_accelerators() == {"GPU": 1}
    assert Union(simple({})).master() == ""


def test_a_union_of_nothing_or_of_something_else() -> None:
    for call, code in ((Union, "RD34"), (lambda: Union(5), "RD25"), (lambda: Union(simple({}), foo=1), "RD34")):
        with pytest.raises((TypeError, ValueError), match=code):
            call()


SLURM = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "n[1-2]",
         "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "CUDA_VISIBLE_DEVICES": "0,1"}


def slurm(monkeypatch: Any, changes: dict[str, str] | None = None, **arguments: Any) -> Any:
    for name, value in {**SLURM, **(changes or {})}.items():
        monkeypatch.setenv(name, value)
    return resolvers.SlurmClusterResolver(**arguments)


def test_slurm(monkeypatch: Any) -> None:
    """As TensorFlow 2.21, but for one row that is an error there."""
    step = slurm(monkeypatch)
    assert [step.task_type, step.task_id, step.get_task_info(), step.master()] == [None, None, (None, None), ""]
    assert step.cluster_spec().as_dict() == {"worker": ["n1:8888", "n1:8889", "n2:8888", "n2:8889"]}
    assert [step.task_type, step.task_id, step.get_task_info(), step.rpc_layer, step.environment, step.master(),
            step.master("worker", 3), step.num_accelerators()] == [
        "worker", 1, ("worker", 1), "grpc", "", "grpc://n1:8889", "grpc://n2:8889", {"GPU": 1}]
    three = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NODELIST": "a,b,c",
             "SLURM_STEP_TASKS_PER_NODE": "1(x3)"}
    jobs = slurm(monkeypatch, three, jobs={"worker": 2, "ps": 1}, gpus_per_node=1, auto_set_gpu=False)
    assert jobs.cluster_spec().as_dict() == {"ps": ["a:8888"], "worker": ["b:8888", "c:8888"]}
    assert jobs.get_task_info() == ("ps", 0)
    none = slurm(monkeypatch, three, gpus_per_node=0)
    assert none.cluster_spec().as_dict() == {"worker": ["a:8888", "b:8888", "c:8888"]}
    four = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "a,b", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    assert slurm(monkeypatch, four, tasks_per_node=2, gpus_per_node=2, auto_set_gpu=False).cluster_spec().as_dict() == {
        "worker": ["a:8888", "a:8889", "b:8888", "b:8889"]}
    assert slurm(monkeypatch, four, tasks_per_node={"b": 3, "a": 1}, gpus_per_node=3).cluster_spec().as_dict() == {
        "worker": ["a:8888", "b:8888", "b:8889", "b:8890"]}


@pytest.mark.parametrize("tasks", [[1, 3], (1, 3), {"a": 3, "b": 1}])
def test_slurm_says_the_order_of_the_hosts(monkeypatch: Any, tasks: Any) -> None:
    step = slurm(monkeypatch, {"SLURM_STEP_NODELIST": "b,a"}, tasks_per_node=tasks, gpus_per_node=3)
    assert step.cluster_spec().as_dict() == {"worker": ["b:8888", "a:8888", "a:8889", "a:8890"]}


def test_hosts_that_slurm_does_not_list_are_sorted(monkeypatch: Any) -> None:
    for listed in ("", "c"):
        step = slurm(monkeypatch, {"SLURM_STEP_NODELIST": listed}, tasks_per_node={"b": 3, "a": 1}, gpus_per_node=3)
        assert step.cluster_spec().as_dict() == {"worker": ["a:8888", "b:8888", "b:8889", "b:8890"]}


def test_slurm_sets_the_gpus_of_a_task(monkeypatch: Any) -> None:
    import os

    slurm(monkeypatch).cluster_spec()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize(("script", "expected"), [
    ("echo 'GPU 0: a'; echo '  MIG 1: b'", {"GPU": 1}), ("exit 1", "does not say which GPUs"), ("", {"GPU": 0})])
def test_slurm_asks_nvidia_smi_for_the_gpus(script: str, expected: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o700)
    for name, value in (("PROCID", "0"), ("STEP_NUM_TASKS", "1"), ("STEP_NODELIST", "a"), ("STEP_TASKS_PER_NODE", "1")):
        monkeypatch.setenv(f"SLURM_{name}", value)
    if isinstance(expected, str):
        with pytest.raises(RuntimeError, match=f"RD17.*{expected}"):
            resolvers.SlurmClusterResolver()
    else:
        assert resolvers.SlurmClusterResolver().num_accelerators() == expected


@pytest.mark.parametrize(("changes", "arguments", "kind", "says"), [
    ({"SLURM_PROCID": ""}, {}, RuntimeError, "SLURM_PROCID is not set"),
    ({"SLURM_PROCID": "x"}, {}, RuntimeError, "SLURM_PROCID is x"),
    ({"SLURM_STEP_NODELIST": ""}, {}, RuntimeError, "SLURM_STEP_NODELIST is not set"),
    ({"SLURM_STEP_TASKS_PER_NODE": ""}, {}, RuntimeError, "SLURM_STEP_TASKS_PER_NODE is not set"),
    ({}, {"jobs": {"worker": 3}}, RuntimeError, "ask for 3 tasks, and the step has 4"),
    ({}, {"gpus_per_node": 1, "gpus_per_task": 2}, RuntimeError, "2 GPUs each run on nodes with 1"),
    ({"SLURM_STEP_NODELIST": "a[1-"}, {}, ValueError, r"malformed at 'a\[1-'"),
    ({"SLURM_STEP_TASKS_PER_NODE": "x"}, {}, ValueError, "malformed at 'x'"),
    ({"SLURM_STEP_NODELIST": "a,b,c"}, {}, RuntimeError, "number of hosts is 3, and that of numbers of tasks 2"),
    ({}, {"tasks_per_node": 1}, RuntimeError, "room for 2 of 4"),
])
def test_slurm_mistakes(monkeypatch: Any, changes: Any, arguments: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=f"RD17.*{says}"):
        slurm(monkeypatch, changes, **arguments)


def test_slurm_s_short_forms() -> None:
    assert expand_hostlist("n1,n[2-4,7],m[08-10]") == ["n1", "n2", "n3", "n4", "n7", "m08", "m09", "m10"]
    assert expand_tasks_per_node("3(x2),2,1") == [3, 3, 2, 1]
    for text in ("n[1-]x", "n[1-]", "n[a]", "n[1", "[1]", "n[3-1]"):
        with pytest.raises(ValueError, match="RD17"):
            expand_hostlist(text)
    with pytest.raises(ValueError, match="RD17"):
        expand_tasks_per_node("a")


NUMBERS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), max_size=3)


@given(st.lists(st.tuples(st.from_regex(r"[a-z]{1,4}", fullmatch=True), NUMBERS), min_size=1, max_size=4))
def test_a_host_list_names_every_host_once_in_order(parts: list[tuple[str, list[tuple[int, int]]]]) -> None:
    short, expected = [], []
    for prefix, ranges in parts:
        if not ranges:
            short.append(prefix)
            expected.append(prefix)
            continue
        short.append(f"{prefix}[{','.join(f'{a}-{a + n}' if n else str(a) for a, n in ranges)}]")
        expected += [f"{prefix}{i}" for a, n in ranges for i in range(a, a + n + 1)]
    assert expand_hostlist(",".join(short)) == expected


LAUNCHES = [
    ({}, None),
    ({"PMI_FD": "5", "PMI_RANK": "1", "PMI_SIZE": "4"}, ("Hydra", 1, 4)),
    ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, ("OpenMPI", 2, 3)),
    ({"PMIX_NAMESPACE": "x", "PMIX_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, ("PRRTE", 2, 3)),
    ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, ("Slurm", 1, 2)),
    ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None), ({"SLURM_PROCID": "0"}, None),
    ({"PMI_FD": "5", "PMI_RANK": "x", "PMI_SIZE": "4"}, None),
]


@pytest.mark.parametrize(("environment", "expected"), LAUNCHES)
def test_who_started_this_process_is_read_from_the_environment(monkeypatch: Any, environment: Any,
                                                              expected: Any) -> None:
    for name in {name for variables, _ in LAUNCHES for name in variables}:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert resolvers.launched() == expected
    if expected is None:
        with pytest.raises(RuntimeError, match=r"RD17.*mpiexec"):
            resolvers.MPIClusterResolver()
        return
    resolver = resolvers.MPIClusterResolver()
    assert (resolver.task_type, resolver.task_id) == ("worker", expected[1])
    assert resolver.cluster_spec().num_tasks("worker") == expected[2]
    assert resolver.master() == f"mpi://rank{expected[1]}"


def test_kubernetes_pods() -> None:
    def pod(name: str, ip: str, phase: str = "Running") -> Any:
        return SimpleNamespace(metadata=SimpleNamespace(name=name), status=SimpleNamespace(host_ip=ip, phase=phase))

    pods = {"job=w": [pod("w-1", "10.0.0.2"), pod("w-0", "10.0.0.1")], "job=p": [pod("p", "10.0.0.9")]}

    def listed(label_selector: str) -> Any:
        return SimpleNamespace(items=pods[label_selector])

    client = SimpleNamespace(list_pod_for_all_namespaces=listed)
    resolver = resolvers.KubernetesClusterResolver({"worker": ["job=w"], "ps": ["job=p"]}, override_client=client)
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.1:8470", "10.0.0.2:8470"], "ps": ["10.0.0.9:8470"]}
    assert resolver.master("worker", 1) == "grpc://10.0.0.2:8470" and resolver.master() == ""
    pods["job=p"] = [pod("p", "10.0.0.9", "Pending")]
    with pytest.raises(RuntimeError, match=r"RD17.*pod p of job 'ps' is Pending"):
        resolver.cluster_spec()
    with pytest.raises(ImportError, match=r"RD27.*pip install kubernetes"):
        resolvers.KubernetesClusterResolver()
    with pytest.raises(ValueError, match=r"RD34.*executable_location is 'here'"):
        resolvers.KubernetesClusterResolver(executable_location="here")  # type: ignore[arg-type]


class Compute:
    """A compute service with two pages of machines."""

    def instanceGroups(self) -> Compute:  # noqa: N802 - the service's name
        return self

    def instances(self) -> Compute:
        return self

    def listInstances(self, **_: Any) -> Any:  # noqa: N802
        return SimpleNamespace(execute=lambda: {"items": [{"instance": "zones/z/b"}]})

    def listInstances_next(self, previous_request: Any, previous_response: Any) -> Any:  # noqa: N802
        second = {"items": [{"instance": "zones/z/a"}, {"instance": "zones/z/c"}]}
        return None if previous_response == second else SimpleNamespace(execute=lambda: second)

    def get(self, instance: str, **_: Any) -> Any:
        machine = {"status": "STOPPING" if instance == "c" else "RUNNING",
                   "networkInterfaces": [{"networkIP": f"10.0.0.{ord(instance)}"}]}
        return SimpleNamespace(execute=lambda: machine)


def test_machines_of_a_compute_engine() -> None:
    resolver = resolvers.GCEClusterResolver("p", "z", "g", 1, service=Compute())
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.97:1", "10.0.0.98:1"]}
    assert (resolver.task_type, resolver.task_id, resolver.master()) == ("worker", 0, "grpc://10.0.0.97:1")
    with pytest.raises(RuntimeError, match=r"RD34.*set to 'ps': it is the job of all machines of the group, 'worker'"):
        resolver.task_type = "ps"
    assert resolvers.GCEClusterResolver("p", "z", "g", 1, "", service=Compute()).master().endswith("97:1")
    with pytest.raises(ImportError, match=r"RD27.*google-api-python-client"):
        resolvers.GCEClusterResolver("p", "z", "g", 1)


def test_tpus_by_name() -> None:
    assert resolvers.TPUClusterResolver(tpu="local").cluster_spec() == ClusterSpec({})
    assert resolvers.TPUClusterResolver().master() == ""
    named = resolvers.TPUClusterResolver("grpc://t:1", coordinator_name="coordinator", coordinator_address="c:2")
    assert named.cluster_spec().as_dict() == {"worker": ["t:1"], "coordinator": ["c:2"]}
    assert (named.get_master(), named.get_job_name(), named.environment) == ("grpc://t:1", "worker", "")
    named.task_type = "tpu"
    assert (named.get_job_name(), named.get_coordination_service_leader()) == ("tpu", "/job:tpu/task:0")
    assert named.cluster_spec().as_dict() == {"tpu": ["t:1"], "coordinator": ["c:2"]}
    service = SimpleNamespace(get_tpu=lambda tpu, zone, project: [f"{tpu}.{zone}:1"])
    assert resolvers.TPUClusterResolver("mine", zone="z", service=service).master() == "grpc://mine.z:1"
    assert resolvers.TPUClusterResolver("mine:2", zone="z", service=service).master() == "grpc://mine:2.z:1"
    # An address with its protocol is one, of which TensorFlow does not ask the service either.
    asked = SimpleNamespace(get_tpu=None)
    assert resolvers.TPUClusterResolver("grpc://10.1.2.3:8470", service=asked).master() == "grpc://10.1.2.3:8470"
    assert resolvers.TPUClusterResolver(["grpc://t:1"]).master() == "grpc://t:1"
    with pytest.raises(LookupError, match="RD27"):
        resolvers.TPUClusterResolver("mine")
    for several in ([], ["grpc://t:1", "grpc://u:1"], [5], 5):
        with pytest.raises(ValueError, match="RD34"):
            resolvers.TPUClusterResolver(several)  # type: ignore[arg-type]


def test_cluster_specs() -> None:
    """As TensorFlow 2.21 without protocol buffers; an empty list stays one here."""
    spec = ClusterSpec({"worker": ["a:1", "b:2"], "ps": {3: "c:4"}})
    assert spec.as_dict() == {"worker": ["a:1", "b:2"], "ps": {3: "c:4"}}
    assert ClusterSpec(spec) == spec and hash(ClusterSpec(spec)) == hash(spec) and spec != 5
    assert bool(spec) and not ClusterSpec({})
    assert ClusterSpec({"w": {0: "a:1", 1: "b:2"}}).as_dict() == {"w": ["a:1", "b:2"]}
    assert [spec.jobs, spec.num_tasks("worker"), spec.num_tasks("ps"), spec.task_indices("ps"),
            spec.task_address("ps", 3), spec.job_tasks("worker"), spec.job_tasks("ps")] == [
        ["worker", "ps"], 2, 1, [3], "c:4", ["a:1", "b:2"], [None, None, None, "c:4"]]
    assert repr(ClusterSpec({"worker": [b"a:1"]})) == "ClusterSpec({'worker': ['a:1']})"
    assert ClusterSpec({"w": []}).num_tasks("w") == 0


def test_cluster_spec_mistakes() -> None:
    spec = ClusterSpec({"worker": ["a:1"]})
    for question in (lambda: spec.num_tasks("x"), lambda: spec.task_address("worker", 5), lambda: spec.job_tasks("x"),
                     lambda: spec.task_indices("x"), lambda: spec.task_address("x", 0)):
        with pytest.raises(ValueError, match="RD17"):
            question()
    for bad in (5, {"w": 5}, {"w": "abc"}, {"w": [1]}, {"w": {"x": "a:1"}}, {"w": {-1: "a:1"}}, {"w": {"-1": "a:1"}},
                {"w": {"1.0": "a:1"}}, {"w": {1.0: "a:1"}}, {"w": {True: "a:1"}}, {"w": {"": "a:1"}},
                {"w": {"1": "a:1", 1: "b:2"}}):
        with pytest.raises(TypeError, match="RD25"):
            ClusterSpec(bad)


def test_a_cluster_may_have_gaps_and_indices_as_text() -> None:
    """JSON has no other keys than text."""
    spec = ClusterSpec({"worker": {"1": "a:1", "3": "b:2"}, "ps": {"1": "d:4", "0": "c:3"}})
    assert spec.as_dict() == {"worker": {1: "a:1", 3: "b:2"}, "ps": ["c:3", "d:4"]}
    assert [spec.num_tasks("worker"), spec.task_indices("worker"), spec.task_address("worker", 3),
            spec.job_tasks("worker")] == [2, [1, 3], "b:2", [None, "a:1", None, "b:2"]]
    assert spec == ClusterSpec({"worker": {1: "a:1", 3: "b:2"}, "ps": ["c:3", "d:4"]})
    assert ClusterSpec({"w": {np.int64(2): "a:1"}}).task_indices("w") == [2]


@pytest.mark.parametrize(("job", "index", "number"), [("chief", 4, 0), ("worker", 1, 1), ("worker", 3, 2),
                                                      ("worker", 10, 3)])
def test_workers_with_gaps_are_numbered_without(job: str, index: int, number: int) -> None:
    spec = ClusterSpec({"worker": {"10": "d:4", "1": "a:1", "3": "b:2"}, "chief": {"4": "c:3"}})
    assert check_cluster(spec, job, index) == (number, 4)


@pytest.mark.parametrize("name", [5, None, ("worker",)])
def test_jobs_are_named_by_text(name: Any) -> None:
    with pytest.raises(refdist.errors.InvalidTypeError, match=r"RD25\] ClusterSpec: a job has the name "):
        ClusterSpec({name: ["a:1"]})
    assert ClusterSpec({b"worker": ["a:1"]}).as_dict() == {"worker": ["a:1"]}


@pytest.mark.parametrize("task_id", ["x", -1, 1.0, True])
def test_a_wrong_task_id_is_an_argument_of_the_resolver(task_id: Any) -> None:
    with pytest.raises(refdist.errors.InvalidValueError, match=r"RD17\] TFConfigClusterResolver: task_id is "):
        resolvers.TFConfigClusterResolver(task_id=task_id)
