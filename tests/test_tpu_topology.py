"""Topologies, device assignments, the machine's TPU and its resolver: arithmetic that needs no TPU."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import config
from refdist.cluster_resolver import TPUClusterResolver, tpu_system
from refdist.cluster_resolver.topology import of_mesh
from refdist.runtime import process
from refdist.tpu_experimental import (
    DeviceAssignment,
    DeviceOrderMode,
    Topology,
    initialize_tpu_system,
    shutdown_tpu_system,
)

TABLE = Path(__file__).parent / "tables" / "device_assignments.txt"
build = DeviceAssignment.build


def axes(text: str) -> Any:
    return None if text == "None" else tuple(map(int, text.split("x")))


def rows() -> Iterator[tuple[Any, ...]]:
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            case, _, cores = line.partition(" -> ")
            mesh, shape, stride, replicas, mode = case.split()
            yield axes(mesh), axes(shape), axes(stride), int(replicas), DeviceOrderMode[mode], cores.strip()


def written(assignment: DeviceAssignment) -> str:
    return " | ".join(" ".join("".join(map(str, core)) for core in replica) for replica in assignment.core_assignment)


@pytest.mark.parametrize(("mesh", "shape", "stride", "replicas", "mode", "cores"), [*rows()])
def test_every_row_of_the_table_of_assignments(mesh: Any, shape: Any, stride: Any, replicas: int, mode: DeviceOrderMode,
                                               cores: str) -> None:
    def built() -> DeviceAssignment:
        return build(of_mesh(mesh, 1), shape, stride, replicas, mode)

    if cores == "ValueError":
        with pytest.raises(ValueError, match=r"RD34.* 3 replicas .* and 2 fit into the mesh"):
            built()
    else:
        assert written(built()) == cores
        assert built().core_assignment.dtype == np.int32


def drawn(source: random.Random) -> dict[str, Any]:
    mesh = (*(source.choice([1, 2, 2, 3, 4]) for _ in range(3)), source.choice([1, 2]))
    hosts = source.choice([n for n in (1, 2, 4) if np.prod(mesh) % n == 0])
    topology = of_mesh(mesh, hosts)  # type: ignore[arg-type]
    coordinates, least = topology.device_coordinates, 0
    if source.random() < 0.2 and coordinates.shape[1] > 1:
        # The last device of every host is missing; no replicas are then an error there.
        coordinates, least = coordinates[:, :-1], 1
    shape = [source.choice([1, 1, length]) for length in mesh]
    stride = [source.choice([1, 1, 1, 2]) for _ in mesh]
    room = int(np.prod(np.array(mesh) // (np.array(shape) * stride) * stride))
    return {"mesh": mesh, "coordinates": coordinates.tolist(), "shape": shape, "stride": stride,
            "replicas": max(source.choice([0, 1, room // 2, room, room, room + 1]), least), "mode": source.randrange(3)}


def outcome_of(module: Any, case: dict[str, Any]) -> Any:
    """The cores that an implementation assigns, and the names of their devices; None for an error."""
    try:
        topology = module.Topology(mesh_shape=case["mesh"], device_coordinates=case["coordinates"])
        assignment = module.DeviceAssignment.build(topology, case["shape"], case["stride"], case["replicas"],
                                                   module.DeviceOrderMode(case["mode"]))
    except (ValueError, AssertionError):
        return None
    names = [[assignment.tpu_device(replica, core, "worker"), assignment.host_device(replica, core)]
             for replica in range(assignment.num_replicas) for core in range(assignment.num_cores_per_replica)]
    return assignment.core_assignment.tolist(), names, topology.serialized(), topology.missing_devices.tolist()


def test_assignments_are_those_of_tensorflow() -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    source, built = random.Random(1), 0
    for _ in range(3000):
        case = drawn(source)
        there, here = outcome_of(tensorflow.tpu.experimental, case), outcome_of(refdist.tpu.experimental, case)
        assert here == there, case
        built += here is not None
    assert built > 900, built


def test_a_topology_says_where_devices_are() -> None:
    topology = of_mesh((2, 2, 1, 2), 2)
    assert topology.mesh_shape.tolist() == [2, 2, 1, 2] and topology.mesh_rank == 4
    assert (topology.num_tasks, topology.num_tpus_per_task, topology.missing_devices.tolist()) == (2, 4, [])
    assert topology.device_coordinates.tolist() == [
        [[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 1]],
        [[0, 1, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0], [1, 1, 0, 1]]]
    assert topology.task_ordinal_at_coordinates([1, 1, 0, 1]) == 1
    assert topology.tpu_device_ordinal_at_coordinates([1, 1, 0, 1]) == 3
    assert topology.cpu_device_name_at_coordinates([0, 1, 0, 0]) == "/task:1/device:CPU:0"
    assert topology.tpu_device_name_at_coordinates([0, 1, 0, 0], job="worker") == "/job:worker/task:1/device:TPU:0"


def test_a_topology_is_the_same_after_it_was_serialized() -> None:
    topology = of_mesh((2, 2, 1, 2), 2)
    # As TensorFlow writes it.
    assert topology.serialized() == (
        b"\n\x04\x02\x02\x01\x02\x10\x02\x18\x04\" " + bytes(topology.device_coordinates.ravel().tolist()))
    again = Topology(serialized=topology.serialized())
    assert again.device_coordinates.tolist() == topology.device_coordinates.tolist()
    long = of_mesh((300, 1, 1, 1), 1)
    assert Topology(serialized=long.serialized()).device_coordinates[0, 299].tolist() == [299, 0, 0, 0]
    assert build(topology.serialized(), [1, 1, 1, 2], num_replicas=4).num_replicas == 4
    # Fields that are not known are passed over, and lists may be written int by int.
    more = b"\x28\x05\x31" + bytes(8) + b"\x3a\x02ab"
    field = b"\x08\x01\x08\x01\x08\x01\x08\x01\x10\x01\x18\x01\x22\x04" + bytes(4)
    assert Topology(serialized=more + field).num_tasks == 1


@pytest.mark.parametrize("data", [b"abc", b"\n\x04\x02", b"\x08\xff", b"\n\x04\x02\x02\x01\x02\x10\x02\x18\x04",
                                  b"\x0f", b"\n\x04\x01\x01\x01\x01" + b"\x10\x01\x18\x02\x22\x04" + bytes(4)])
def test_what_is_not_a_serialized_topology_is_refused(data: bytes) -> None:
    with pytest.raises(refdist.errors.DataLossError, match="RD30"):
        Topology(serialized=data)


@pytest.mark.parametrize(("mesh", "coordinates", "says"), [
    (None, None, "is missing"), ([1, 1, 1, 1], None, "is missing"), ([1, 1, 1], [[[0, 0, 0, 0]]], r"\[1, 1, 1\]"),
    ([1, 1, 1, 0], [[[0, 0, 0, 0]]], "four positive ints"), ([1.5, 1, 1, 1], [[[0, 0, 0, 0]]], "Pass ints"),
    ([1, 1, 1, 1], np.zeros([1, 4], int), r"\(1, 4\)"), ([1, 1, 1, 1], np.zeros([1, 1, 3], int), r"\(1, 1, 3\)"),
    ([1, 1, 1, 1], [[[0, 0, 0, 1]]], "not in the mesh"), ([1, 1, 1, 1], [[[0, 0, 0, -1]]], "not in the mesh"),
    ([1, 1, 1, 2], [[[0, 0, 0, 0], [0, 0, 0, 0]]], r"\(0, 0\) and \(0, 1\), .* are both at"),
    ("ab", [[[0, 0, 0, 0]]], "Pass ints"), ([1, 1, 1, 1], [[[0, 0, 0, 0]], []], "Pass ints")])
def test_what_is_not_a_topology_is_refused(mesh: Any, coordinates: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"RD(24|25|34)\] Topology: .*{says}"):
        Topology(mesh_shape=mesh, device_coordinates=coordinates)


def test_missing_devices() -> None:
    topology = Topology(mesh_shape=[2, 1, 1, 1], device_coordinates=[[[0, 0, 0, 0]]])
    assert topology.missing_devices.tolist() == [[1, 0, 0, 0]]
    assert topology.task_ordinal_at_coordinates([1, 0, 0, 0]) == -1
    assert topology.tpu_device_ordinal_at_coordinates([1, 0, 0, 0]) == -1
    for name in (topology.tpu_device_name_at_coordinates, topology.cpu_device_name_at_coordinates):
        with pytest.raises(LookupError, match=r"RD24.*there is no device at \(1, 0, 0, 0\)"):
            name([1, 0, 0, 0])
    for outside in ([2, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 0]):
        with pytest.raises(LookupError, match=r"RD24.*is not in the mesh of shape \[2, 1, 1, 1\]"):
            topology.task_ordinal_at_coordinates(outside)


def test_assignments_where_devices_are_missing() -> None:
    devices = of_mesh((2, 2, 1, 2), 2).device_coordinates[:, :3]
    topology = Topology(mesh_shape=[2, 2, 1, 2], device_coordinates=devices)
    assert build(topology, [1, 1, 1, 2], num_replicas=3).core_assignment.tolist() == devices.reshape(3, 2, 4).tolist()
    with pytest.raises(ValueError, match=r"RD34.*4 replicas of 2 cores .*6 devices, as 2 are missing.*3 replicas or"):
        build(topology, [1, 1, 1, 2], num_replicas=4)
    with pytest.raises(ValueError, match=r"computation_stride is \[2, 1, 1, 1\]"):
        build(topology, None, [2, 1, 1, 1])


def test_an_assignment_says_where_replicas_are() -> None:
    topology = of_mesh((2, 2, 1, 2), 2)
    assignment = DeviceAssignment(topology, [[[0, 0, 0, 0], [0, 0, 0, 1]], [[1, 1, 0, 0], [1, 1, 0, 1]]])
    assert (assignment.num_replicas, assignment.num_cores_per_replica, assignment.topology) == (2, 2, topology)
    assert assignment.coordinates(1, 0) == (1, 1, 0, 0)
    assert (assignment.lookup_replicas(0, 1), assignment.lookup_replicas(1, 0)) == ([0], [1])
    for task, core in ((0, 2), (5, 0)):
        with pytest.raises(ValueError, match=rf"RD34.*no replica has logical core {core} on host {task}"):
            assignment.lookup_replicas(task, core)
    assert (assignment.tpu_ordinal(1, 1), assignment.host_device(1)) == (3, "/task:1/device:CPU:0")
    assert assignment.tpu_device(1, 1, job="worker") == "/job:worker/task:1/device:TPU:3"
    assert assignment.tpu_device() == "/task:0/device:TPU:0"
    for replica, core in ((2, 0), (-1, 0), (0, 2)):
        with pytest.raises(LookupError, match="RD24"):
            assignment.tpu_device(replica, core)


@pytest.mark.parametrize(("mesh", "hosts", "shape", "replicas", "names"), [
    ((2, 2, 1, 2), 2, (1, 1, 1, 2), 4, ["0: 00 01", "0: 02 03", "1: 12 13", "1: 10 11"]),
    ((4, 2, 1, 2), 2, (1, 1, 1, 2), 8, ["0: 00 01", "0: 02 03", "0: 04 05"]),
    ((4, 4, 1, 2), 4, (2, 2, 1, 2), 4, ["0: 00 01 02 03 12 13 10 11", "0: 04 05 06 07 16 17 14 15",
                                        "2: 24 25 26 27 36 37 34 35"]),
    ((4, 4, 1, 2), 4, (1, 1, 1, 1), 8, ["0: 00", "0: 01", "0: 02"])])
def test_on_which_hosts_replicas_are(mesh: Any, hosts: int, shape: Any, replicas: int, names: list[str]) -> None:
    """The host, and hosts and numbers of the devices."""
    assignment = build(of_mesh(mesh, hosts), shape, num_replicas=replicas)
    for replica, wanted in enumerate(names):
        host, devices = wanted.split(": ")
        assert assignment.host_device(replica) == f"/task:{host}/device:CPU:0"
        assert [assignment.tpu_device(replica, core) for core in range(assignment.num_cores_per_replica)] == [
            f"/task:{task}/device:TPU:{number}" for task, number in devices.split()]


@pytest.mark.parametrize(("cores", "says"), [
    ([[0, 0, 0, 0]], r"\(1, 4\)"), ([[[0, 0, 0]]], r"\(1, 1, 3\)"), ([[[5, 0, 0, 0]]], r"\(5, 0, 0, 0\) is not in"),
    ([[[0, 0, 0, 0]], [[0, 0, 0, 0]]], r"0 of replica 0 and 0 of 1 are both at \(0, 0, 0, 0\)"),
    ([[[1, 1, 0, 1]]], r"no device at \(1, 1, 0, 1\)"), ([[[0.5, 0, 0, 0]]], "Pass ints")])
def test_what_is_not_an_assignment_is_refused(cores: Any, says: str) -> None:
    topology = Topology(mesh_shape=[2, 2, 1, 2], device_coordinates=of_mesh((2, 2, 1, 2), 1).device_coordinates[:, :-1])
    with pytest.raises((ValueError, TypeError), match=f"RD(25|34).*{says}"):
        DeviceAssignment(topology, cores)
    with pytest.raises(ValueError, match=r"RD34.*topology is a str"):
        DeviceAssignment("x", cores)  # type: ignore[arg-type]


@pytest.mark.parametrize(("arguments", "says"), [
    ({"topology": "x"}, "topology is a str"), ({"computation_shape": [1, 1, 1]}, r"computation_shape is \[1, 1, 1\]"),
    ({"computation_stride": [1]}, r"computation_stride is \[1\]"), ({"computation_shape": [0, 1, 1, 1]}, "positive"),
    ({"computation_stride": [1, 1, 1, 0]}, "positive"), ({"computation_shape": [3, 1, 1, 1]}, "does not fit"),
    ({"computation_shape": [2, 1, 1, 1], "computation_stride": [2, 1, 1, 1]}, r"stride \[2, 1, 1, 1\] does not fit"),
    ({"num_replicas": 9}, "9 replicas .*, and 8 fit"), ({"num_replicas": -1}, "num_replicas is -1"),
    ({"computation_shape": [1, 1, 1, 2], "num_replicas": 5}, "and 4 fit.*Ask for 4 or fewer"),
    ({"num_replicas": 8, "device_order_mode": DeviceOrderMode.RING}, "no ring"),
    ({"computation_shape": [1, 1, 1, 2], "num_replicas": 3, "device_order_mode": DeviceOrderMode.RING}, "no ring"),
    ({"num_replicas": 2.0}, "Pass an int"), ({"num_replicas": True}, "Pass an int"),
    ({"device_order_mode": 7}, "Pass a DeviceOrderMode")])
def test_what_cannot_be_built_is_refused(arguments: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"RD(25|34)\] DeviceAssignment.build: .*{says}"):
        build(**{"topology": of_mesh((2, 2, 1, 2), 1), **arguments})


def test_no_replicas_can_be_assigned() -> None:
    assert build(of_mesh((2, 2, 1, 2), 1), num_replicas=0).core_assignment.shape == (0, 1, 4)


@pytest.mark.parametrize("size", [*itertools.product((1, 2, 4), repeat=3)])
def test_neighbours_in_a_ring_are_neighbours_in_the_mesh(size: tuple[int, int, int]) -> None:
    coordinates = build(of_mesh((*size, 1), 1), num_replicas=int(np.prod(size))).core_assignment[:, 0]
    steps = np.abs(np.diff(coordinates, axis=0)).sum(axis=1)
    assert len({*map(tuple, coordinates.tolist())}) == len(coordinates)
    assert (steps == 1).all()
    if sum(length > 1 for length in size) > 1:
        assert np.abs(coordinates[0] - coordinates[-1]).sum() == 1


def test_the_machine_s_tpu_has_a_mesh() -> None:
    with config.temporary_devices(tpu="2x2x1x2", tpu_hosts=2):
        assert config.tpu_mesh() == ((2, 2, 1, 2), 2)
        assert len(config.list_logical_devices("TPU")) == 4  # those of the first host
        with config.temporary_devices():
            assert config.tpu_mesh() is None and config.list_logical_devices("TPU") == []
        assert config.tpu_mesh() == ((2, 2, 1, 2), 2)
    with config.temporary_devices(tpu=3):
        assert config.tpu_mesh() == ((3, 1, 1, 1), 1)
    for text, mesh, count in (("TPU:2x2x1x2", ((2, 2, 1, 2), 1), 8), ("TPU:3,GPU:1", ((3, 1, 1, 1), 1), 3),
                              ("GPU:1", None, 0)):
        with process.fresh(REFDIST_DEVICES=text):
            assert config.tpu_mesh() == mesh and len(config.list_logical_devices("TPU")) == count


@pytest.mark.parametrize(("arguments", "says"), [
    ({"tpu": "2x2"}, "tpu is '2x2'.*the lengths of the axes"), ({"tpu": "0x1x1x1"}, "tpu is '0x1x1x1'"),
    ({"tpu": -1}, "tpu is -1"), ({"tpu": 2.0}, "tpu is 2.0"), ({"tpu": True}, "tpu is True"),
    ({"tpu": [2, 2, 1, 2]}, r"tpu is \[2, 2, 1, 2\]"), ({"tpu": 8, "tpu_hosts": 0}, "tpu_hosts is 0"),
    ({"tpu": 8, "tpu_hosts": 3}, "tpu_hosts is 3, and there are 8 cores"),
    ({"tpu": 8, "tpu_hosts": True}, "tpu_hosts is True")])
def test_what_is_not_a_mesh_is_refused_and_changes_nothing(arguments: Any, says: str) -> None:
    with config.temporary_devices(tpu=2):
        with pytest.raises((ValueError, TypeError), match=rf"RD(25|34)\] set_simulated_devices: {says}"):
            config.set_simulated_devices(**arguments)
        assert config.tpu_mesh() == ((2, 1, 1, 1), 1)
    with process.fresh(REFDIST_DEVICES="TPU:2x2"), pytest.raises(ValueError, match=r"RD34.*REFDIST_DEVICES='TPU:2x2'"):
        config.list_logical_devices()


def test_a_resolver_knows_the_devices_of_a_tpu() -> None:
    with config.temporary_devices(tpu="2x2x1x2"):
        metadata = TPUClusterResolver("").get_tpu_system_metadata()
        assert metadata[:4] == (8, 1, 8, None)
        assert [device.name for device in metadata.devices[:2]] == [
            "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:TPU:0"]
        assert TPUClusterResolver("grpc://t:1").get_tpu_system_metadata().devices[-1] == (
            "/job:worker/replica:0/task:0/device:TPU:7", "TPU")
        with pytest.raises(ValueError, match=r"RD17.*addresses is 2, and that of the TPU.s hosts 1.*tpu_hosts=2"):
            TPUClusterResolver("grpc://t:1,grpc://u:1").get_tpu_system_metadata()
    with config.temporary_devices(tpu="2x2x1x2", tpu_hosts=2):
        metadata = TPUClusterResolver(job_name="cores").get_tpu_system_metadata()
        assert metadata[:4] == (8, 2, 4, None) and len(metadata.devices) == 10
        assert metadata.devices[-1].name == "/job:cores/replica:0/task:1/device:TPU:3"
        assert TPUClusterResolver().num_accelerators() == {"TPU": 4}
    assert TPUClusterResolver().get_coordination_service_leader() == "/job:worker/task:0"
    with config.temporary_devices(), pytest.raises(LookupError, match=r"RD24.*no TPU.*set_simulated_devices\(tpu="):
        TPUClusterResolver().get_tpu_system_metadata()


def test_a_tpu_is_initialized_once() -> None:
    with process.fresh(), config.temporary_devices(tpu="2x2x1x2", tpu_hosts=2):
        resolver = TPUClusterResolver("")
        config.experimental_connect_to_cluster(resolver)
        config.experimental_connect_to_cluster(refdist.train.ClusterSpec({}))
        assert initialize_tpu_system(resolver).num_tasks == 2
        with pytest.warns(UserWarning, match="initialized before"):
            initialize_tpu_system()
        shutdown_tpu_system(resolver)
        with pytest.warns(UserWarning, match="was not initialized"):
            shutdown_tpu_system()
        assert isinstance(TPUClusterResolver.connect(""), TPUClusterResolver)
        assert tpu_system.topology() is not None
        with config.temporary_devices(tpu=8):
            assert tpu_system.topology() is None


def test_what_is_not_a_tpu_is_not_initialized() -> None:
    with process.fresh():
        with config.temporary_devices(), pytest.raises(LookupError, match="RD24"):
            initialize_tpu_system()
        for call in (initialize_tpu_system, shutdown_tpu_system):
            with pytest.raises(TypeError, match=rf"RD25\] {call.__name__}: cluster_resolver is 'x'"):
                call("x")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"RD34.*'x'.*ClusterResolver"):
            config.experimental_connect_to_cluster("x")


def test_names_of_tf_tpu() -> None:
    assert [*DeviceOrderMode] == [0, 1, 2] and [mode.name for mode in DeviceOrderMode] == ["AUTO", "RING", "MESH"]
    assert refdist.tpu.XLAOptions() == (True, True, False)
    assert refdist.RunOptions(experimental_xla_options=refdist.tpu.XLAOptions()).experimental_xla_options
