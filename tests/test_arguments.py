"""A wrong argument is named: the message has the parameter's own name, whatever its value."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import refdist
from refdist.errors import RefdistError
from refdist.variables.partitioners import row_counts


class Odd:
    """What no parameter takes; it cannot be turned into a number, an array or a list."""

    def __repr__(self) -> str:
        return "Odd()"

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("an Odd is not an array")


DEFAULT = refdist.get_strategy()
STRATEGY = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
with STRATEGY.scope():
    VARIABLE = refdist.Variable([[1.0, 2.0], [3.0, 4.0]])
VALUE = STRATEGY.run(lambda: refdist.constant([1.0]))
SLICES = refdist.IndexedSlices(np.ones((1, 2), np.float32), np.array([0]), [2, 2])
BATCHES = refdist.data.Dataset.range(4).batch(2)


def in_replica(method: str) -> Callable[..., Any]:
    """A method of the replica context, called in every replica."""
    def call(**arguments: Any) -> Any:
        return STRATEGY.run(lambda: getattr(refdist.get_replica_context(), method)(**arguments))
    return call


def in_scope(call: Callable[..., Any]) -> Callable[..., Any]:
    def within(**arguments: Any) -> Any:
        with STRATEGY.scope():
            return call(**arguments)
    return within


def entered(call: Callable[..., Any]) -> Callable[..., Any]:
    def within(**arguments: Any) -> Any:
        with call(**arguments):
            return None
    return within


def ones(context: Any) -> Any:
    return np.ones(1)


EXTENDED = STRATEGY.extended
# A call with arguments that it takes, each of which is then replaced by an Odd.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "ReplicaContext": (refdist.ReplicaContext, {"strategy": STRATEGY, "replica_id_in_sync_group": 0}),
    "MirroredStrategy": (refdist.MirroredStrategy, {"devices": ["CPU:0"],
                                                    "cross_device_ops": refdist.ReductionToOneDevice()}),
    "OneDeviceStrategy": (refdist.OneDeviceStrategy, {"device": "CPU:0"}),
    "CentralStorageStrategy": (refdist.experimental.CentralStorageStrategy,
                               {"compute_devices": ["CPU:0"], "parameter_device": "CPU:0"}),
    "Strategy.run": (STRATEGY.run, {"fn": lambda: 1, "args": (), "kwargs": {}, "options": None}),
    "Strategy.reduce": (STRATEGY.reduce, {"reduce_op": "SUM", "value": VALUE, "axis": 0}),
    "Strategy.gather": (STRATEGY.gather, {"value": VALUE, "axis": 0}),
    "experimental_distribute_dataset": (STRATEGY.experimental_distribute_dataset,
                                        {"dataset": BATCHES, "options": None}),
    "distribute_datasets_from_function": (STRATEGY.distribute_datasets_from_function,
                                          {"dataset_fn": lambda context: BATCHES.shard(1, context.input_pipeline_id),
                                           "options": None}),
    "experimental_distribute_values_from_function": (STRATEGY.experimental_distribute_values_from_function,
                                                     {"value_fn": ones}),
    "ReplicaContext.merge_call": (in_replica("merge_call"), {"merge_fn": lambda strategy: 1, "args": (), "kwargs": {}}),
    "ReplicaContext.all_reduce": (in_replica("all_reduce"), {"reduce_op": "SUM", "value": 1.0, "options": None}),
    "ReplicaContext.all_gather": (in_replica("all_gather"), {"value": np.ones(1), "axis": 0, "options": None}),
    "extended.reduce_to": (EXTENDED.reduce_to, {"reduce_op": "SUM", "value": VALUE, "destinations": "CPU:0",
                                                "options": None}),
    "extended.batch_reduce_to": (EXTENDED.batch_reduce_to, {"reduce_op": "SUM",
                                                            "value_destination_pairs": [(VALUE, "CPU:0")],
                                                            "options": None}),
    "extended.broadcast_to": (EXTENDED.broadcast_to, {"tensor": np.ones(1), "destinations": "CPU:0"}),
    "extended.update": (EXTENDED.update, {"var": VARIABLE, "fn": lambda v: None, "args": (), "kwargs": {}}),
    "extended.update_non_slot": (EXTENDED.update_non_slot, {"colocate_with": ["CPU:0"], "fn": lambda: None, "args": (),
                                                            "kwargs": {}}),
    "extended.variable_created_in_scope": (EXTENDED.variable_created_in_scope, {"v": VARIABLE}),
    "extended.read_var": (EXTENDED.read_var, {"v": VARIABLE}),
    "extended.colocate_vars_with": (in_scope(EXTENDED.colocate_vars_with), {"colocate_with_variable": VARIABLE}),
    "ReductionToOneDevice.reduce": (refdist.ReductionToOneDevice().reduce,
                                    {"reduce_op": "SUM", "per_replica_value": VALUE, "destinations": "CPU:0"}),
    "ReductionToOneDevice": (refdist.ReductionToOneDevice, {"reduce_to_device": "CPU:0", "accumulation_fn": None}),
    "NcclAllReduce": (refdist.NcclAllReduce, {"num_packs": 1}),
    "HierarchicalCopyAllReduce": (refdist.HierarchicalCopyAllReduce, {"num_packs": 1}),
    "Variable": (refdist.Variable, {"initial_value": 1.0, "name": "v", "dtype": np.float32,
                                    "synchronization": refdist.VariableSynchronization.AUTO,
                                    "aggregation": refdist.VariableAggregation.NONE, "shape": ()}),
    "Variable.assign": (VARIABLE.assign, {"value": np.ones((2, 2))}),
    "Variable.scatter_add": (VARIABLE.scatter_add, {"sparse_delta": SLICES}),
    "Variable.gather_nd": (VARIABLE.gather_nd, {"indices": [[0]]}),
    "Variable.sparse_read": (VARIABLE.sparse_read, {"indices": [0]}),
    "IndexedSlices": (refdist.IndexedSlices, {"values": np.ones((1, 2)), "indices": np.array([0]),
                                              "dense_shape": [2, 2]}),
    "ReduceOp.from_variable_aggregation": (refdist.ReduceOp.from_variable_aggregation,
                                           {"aggregation": refdist.VariableAggregation.SUM}),
    "device": (entered(refdist.device), {"device_name": "CPU:0"}),
    "variable_creator_scope": (entered(refdist.variable_creator_scope), {"variable_creator": lambda n, **k: n(**k)}),
    "experimental_set_strategy": (refdist.experimental_set_strategy, {"strategy": None}),
    "set_backend": (refdist.set_backend, {"name": "simulated"}),
    "CommunicationOptions": (refdist.experimental.CommunicationOptions,
                             {"bytes_per_pack": 0, "timeout_seconds": 3.0,
                              "implementation": refdist.experimental.CommunicationImplementation.AUTO}),
    "InputContext.get_per_replica_batch_size": (refdist.InputContext().get_per_replica_batch_size,
                                                {"global_batch_size": 4}),
    "config.replica_order": (entered(refdist.config.replica_order), {"seed": 1}),
}
# Any object is a value there: it is refused because it is not distributed.
ANY = {("extended.reduce_to", "value"), ("ReductionToOneDevice.reduce", "per_replica_value")}
ROWS = [(name, parameter) for name, (_, arguments) in CALLS.items() for parameter in arguments
        if (name, parameter) not in ANY]


@pytest.mark.parametrize("name", CALLS)
def test_the_arguments_of_the_table_are_right(name: str) -> None:
    call, arguments = CALLS[name]
    call(**arguments)


@pytest.mark.parametrize(("name", "parameter"), ROWS)
def test_a_wrong_argument_is_named(name: str, parameter: str) -> None:
    call, arguments = CALLS[name]
    with pytest.raises(RefdistError) as caught:
        call(**{**arguments, parameter: Odd()})
    assert parameter in str(caught.value)
    assert "Odd" in str(caught.value)


@pytest.mark.parametrize("number", [-1, 2, True, 1.0])
def test_a_replica_that_there_is_not_has_no_context(number: Any) -> None:
    with pytest.raises(RefdistError, match=rf"\[RD(25|34)\] ReplicaContext: replica_id_in_sync_group is {number}"):
        refdist.ReplicaContext(STRATEGY, number)
    assert refdist.ReplicaContext(STRATEGY, np.int64(1)).replica_id_in_sync_group == 1




def devices_of(**arguments: Any) -> list[str]:
    with refdist.config.temporary_devices(**arguments):
        return [device.name for device in refdist.config.list_logical_devices()]


def divided(memory_limit: Any) -> Any:
    with refdist.config.temporary_devices(gpu=1):
        refdist.config.set_logical_device_configuration(
            "GPU:0", [refdist.config.LogicalDeviceConfiguration(memory_limit)])
        return refdist.config.get_logical_device_configuration("GPU:0")


def orders(seed: Any) -> list[Any]:
    ran: list[Any] = []
    with refdist.config.replica_order(seed):
        for _ in range(3):
            STRATEGY.run(lambda: ran.append(refdist.get_replica_context().replica_id_in_sync_group))
    return ran


THREE = refdist.train.ClusterSpec({"worker": ["a:1", "b:1", "c:1"], "ps": ["d:1"]})


def scheduled(choices: Any, task_id: Any = 2, after: Any = 0) -> Any:
    """The workers on which functions run, some of which begin again after a worker was lost."""
    coordinator = refdist.coordinator.ClusterCoordinator(
        refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(THREE)))
    with coordinator.strategy.scope():
        v = refdist.Variable(0.0)
    ran: list[int] = []

    def work() -> None:
        ran.append(int(refdist.coordinator.experimental_get_current_worker_index()))
        v.assign_add(1.0)

    with refdist.coordinator.interleaving(choices):
        refdist.coordinator.stop_task(coordinator, "worker", task_id, after)
        for _ in range(8):
            coordinator.schedule(work)
        coordinator.join()
        if after == 0:
            refdist.coordinator.restart_task(coordinator, "worker", task_id)
    return ran


def replicas_of_workers(workers: Any, replicas_per_worker: Any) -> Any:
    return refdist.simulate_workers(lambda: refdist.MultiWorkerMirroredStrategy().num_replicas_in_sync, workers,
                                    replicas_per_worker)


DATASET = refdist.data.Dataset.range(8)
# What is made of a number that is 2.
OF_TWO: dict[str, Callable[[Any], Any]] = {
    "CommunicationOptions.bytes_per_pack":
        lambda two: refdist.experimental.CommunicationOptions(bytes_per_pack=two).bytes_per_pack,
    "CommunicationOptions.timeout_seconds":
        lambda two: refdist.experimental.CommunicationOptions(timeout_seconds=two).timeout_seconds,
    "num_packs": lambda two: refdist.NcclAllReduce(two)._num_packs,
    "get_per_replica_batch_size": lambda two: refdist.InputContext(2, 0, 2).get_per_replica_batch_size(two),
    "explain": lambda two: str(STRATEGY.experimental_distribute_dataset(BATCHES).explain(two)),
    "all_gather.axis": lambda two: STRATEGY.run(
        lambda: refdist.get_replica_context().all_gather(np.ones((1, 1, 1)), two)).values[0].shape,
    "FixedShardsPartitioner": lambda two: refdist.experimental.partitioners.FixedShardsPartitioner(two)((4,), "int8"),
    "MinSizePartitioner": lambda two: refdist.experimental.partitioners.MinSizePartitioner(two, two)((4,), "int8"),
    "MaxSizePartitioner": lambda two: refdist.experimental.partitioners.MaxSizePartitioner(two, two)((4,), "int8"),
    "the shape of a partitioner":
        lambda two: refdist.experimental.partitioners.FixedShardsPartitioner(4)((3, two), "int8", two - 1),
    "what a partitioner returns": lambda two: row_counts([two, two // two], 5, ""),
    "DeviceAssignment.build": lambda two: refdist.tpu.experimental.DeviceAssignment.build(
        refdist.tpu.experimental.Topology(mesh_shape=[2, 1, 1, 1], device_coordinates=[[[0] * 4, [1, 0, 0, 0]]]),
        num_replicas=two).core_assignment.tolist(),
    "set_simulated_devices": lambda two: devices_of(cpu=two, gpu=two, tpu=two),
    "tpu_hosts": lambda two: devices_of(tpu=8, tpu_hosts=two),
    "memory_limit": divided,
    "replica_order": orders,
    "interleaving": scheduled,
    "the choices of interleaving": lambda two: scheduled([two // two, two - two, two // two, two - two, two // two]),
    "stop_task": lambda two: scheduled([], two, two),
    "restart_task": lambda two: scheduled([], two),
    "simulate_workers": lambda two: replicas_of_workers(two, two),
    "task_address": lambda two: THREE.task_address("worker", two),
    "TFConfigClusterResolver": lambda two: refdist.cluster_resolver.TFConfigClusterResolver("worker", two).task_id,
    "create_rng_state": lambda two: refdist.random.create_rng_state(1, two // two).tolist(),
    "the shape of padded_batch": lambda two: [
        element.tolist() for element in refdist.data.Dataset.from_tensor_slices([[1], [2]]).padded_batch(2, [two])],
    "checkpoint_number": lambda two: refdist.train.CheckpointManager(refdist.train.Checkpoint(), "there", 1).save(two),
    "task_id": lambda two: refdist.cluster_resolver.SimpleClusterResolver(
        refdist.train.ClusterSpec({"worker": ["a:1", "b:1", "c:1"]}), task_type="worker", task_id=two).task_id,
    "max_to_keep": lambda two: refdist.train.CheckpointManager(refdist.train.Checkpoint(), "nowhere", two)._keep,
    **{f"Dataset.{name}": lambda two, call=call: [np.asarray(row).tolist() for row in call(two)] for name, call in {
        "batch": DATASET.batch, "padded_batch": DATASET.padded_batch, "take": DATASET.take, "skip": DATASET.skip,
        "repeat": DATASET.repeat, "prefetch": DATASET.prefetch, "range": refdist.data.Dataset.range,
        "rebatch": DATASET.batch(3).rebatch, "shard": lambda two: DATASET.shard(two, two - 1),
        "shuffle": lambda two: DATASET.shuffle(two, two), "enumerate": DATASET.enumerate,
        "window": lambda two: DATASET.window(two, two, two).flat_map(lambda window: window),
        "map": lambda two: DATASET.map(lambda x: x, num_parallel_calls=two),
        "interleave": lambda two: DATASET.interleave(lambda x: DATASET, two, two),
        "sample_from_datasets":
            lambda two: refdist.data.Dataset.sample_from_datasets([DATASET, DATASET], seed=two)}.items()},
}


@pytest.mark.parametrize("name", OF_TWO)
@pytest.mark.parametrize("two", [np.int64(2), np.uint8(2), np.array(2), refdist.constant(2)], ids=lambda x: repr(x))
def test_a_number_may_be_numpy_s_or_an_array_without_dimensions(name: str, two: Any, tmp_path: Any,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "CommunicationOptions.timeout_seconds" and isinstance(two, np.ndarray):
        pytest.skip("seconds are a float")
    assert OF_TWO[name](two) == OF_TWO[name](2)


def test_seconds_may_be_a_numpy_float_and_not_nan() -> None:
    assert refdist.experimental.CommunicationOptions(timeout_seconds=np.float32(2)).timeout_seconds == 2
    with pytest.raises(RefdistError, match=r"\[RD34\] CommunicationOptions: timeout_seconds is nan"):
        refdist.experimental.CommunicationOptions(timeout_seconds=float("nan"))


def of_four_replicas() -> Any:
    with refdist.MirroredStrategy([f"CPU:{i}" for i in range(4)]).scope():
        return refdist.Variable(1.0)


def of_one_replica() -> Any:
    with refdist.OneDeviceStrategy("CPU:0").scope():
        return refdist.Variable(1.0)


def slices_beside_an_array() -> Any:
    replica = refdist.get_replica_context()
    return replica.all_reduce("SUM", np.ones(2, np.float32) if replica.replica_id_in_sync_group else SLICES)


def lists_of_different_lengths() -> Any:
    replica = refdist.get_replica_context()
    return replica.merge_call(lambda strategy, x: None, args=([1] * (replica.replica_id_in_sync_group + 1),))


MESSAGES: dict[str, tuple[Callable[[], Any], str]] = {
    "another strategy of this class": (
        in_scope(lambda: refdist.MirroredStrategy(["CPU:0"]).run(ones)), "MirroredStrategy, on another Mirrored"),
    "a strategy of another class": (
        in_scope(lambda: refdist.OneDeviceStrategy("CPU:0").run(ones)), "MirroredStrategy, on a OneDeviceStrategy. "),
    "the default strategy": (
        in_scope(lambda: DEFAULT.run(ones)), "MirroredStrategy, on a DefaultStrategy. "),
    "structures of arguments": (
        lambda: STRATEGY.run(lists_of_different_lengths), " Use the same nesting of lists, tuples and dicts"),
    "one replica": (
        lambda: refdist.MirroredStrategy(["CPU:0"]).reduce("SUM", VALUE, axis=None),
        "a PerReplica has 2 values and the strategy 1 replica. Distribute"),
    "None for an array": (
        lambda: STRATEGY.run(lambda: refdist.get_replica_context().all_reduce("SUM", None)), " Use an array on every"),
    "an axis of arrays": (
        lambda: STRATEGY.reduce("SUM", VALUE, axis=3), "axis is 3 and the value has rank 1. The axis lies in [-1, 1)."),
    "an axis that has a shape and no dtype": (
        lambda: STRATEGY.reduce("SUM", VALUE, axis=SimpleNamespace(shape=())), "a SimpleNamespace. Pass an int."),
    "an axis of scalars": (
        lambda: STRATEGY.reduce("SUM", STRATEGY.run(lambda: np.float32(1)), axis=0), "rank 0. Use `axis=None` for"),
    "slices beside an array": (
        lambda: STRATEGY.run(slices_beside_an_array),
        "0 with shape (2,) in each row of IndexedSlices of an array of shape (2, 2); replica 1 with shape (2,)"),
    "an index": (lambda: VARIABLE[5], "is out of bounds for axis 0 with size 2. Use an index that the array has."),
    "an operand": (lambda: VARIABLE + "a", " Pass operands whose shapes and dtypes fit together."),
    "an empty name": (
        lambda: STRATEGY.extended.reduce_to("SUM", VALUE, ""), "device name: destinations is an empty string."),
    "a number that is too large": (
        lambda: refdist.Variable(1, dtype=np.uint8).assign(300), "0: 300 does not fit into uint8."),
    "a negative number": (
        lambda: refdist.Variable(1, dtype=np.uint8).assign(np.int32(-1)), "(-1, dtype=int32) does not fit into uint8"),
    "another dtype": (
        lambda: refdist.Variable(1, dtype=np.uint8).assign(np.int32(1)), "value has dtype int32, not uint8. Cast"),
    "a variable of one replica": (
        lambda: STRATEGY.extended.update(of_one_replica(), ones), "a OneDeviceStrategy of 1 replica (made at"),
    "a variable of others": (
        lambda: STRATEGY.extended.update(of_four_replicas(), ones),
        "update of variable Variable:0 by a MirroredStrategy of 2 replicas: the variable belongs to a MirroredStrategy "
        "of 4 replicas"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_says_what_was_found_and_what_to_write(name: str) -> None:
    call, text = MESSAGES[name]
    with pytest.raises(RefdistError) as caught:
        call()
    assert text in str(caught.value)


def test_an_argument_that_variables_do_not_have_is_one_of_variable() -> None:
    with pytest.raises(TypeError, match=r"^Variable\(\) got an unexpected keyword argument 'shapes'"):
        refdist.Variable(1.0, shapes=[2])  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [[1, "a"], ["a", 2.0], [[True], ["a"]], ("a", b"b", 1j), [np.float32(1), "a"],
                                   [np.array(["a"]), [1]]])
def test_numbers_do_not_become_text(value: Any) -> None:
    with pytest.raises(refdist.errors.InvalidValueError, match=r"RD34\] constant: value is .*numbers beside text"):
        refdist.constant(value)
    with pytest.raises(refdist.errors.InvalidValueError, match=r"RD34\] assign of variable .*: value is "):
        refdist.Variable(["a"]).assign(value)
    assert refdist.constant(["a", np.str_("b"), np.array("c")]).tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(("value", "dtype"), [
    ([np.float32(1), 2.0], "float32"), ([np.float32(1), 2], "float32"), ([np.float16(1), 2.5], "float16"),
    ([np.float64(1), 2.0], "float64"), ([np.int64(1), 2], "int64"), ([np.int8(1), 2], "int8"),
    ([np.int8(1), 300], "int32"), ([np.uint8(1), -2], "int32"), ([np.int32(1), 2**40], "int64"),
    ([np.int64(1), 2.5], "float32"), ([np.int32(1), True], "int32"), ([np.bool_(True), 2], "int32"),
    ([np.float32(1), 1j], "complex128"), ([[np.zeros(2, np.float32)], [[1, 2.0]]], "float32"),
    ((refdist.Variable(1.0), 2.0), "float32"), ([np.float32(1), np.float64(2), 3.0], "float64"),
    ([np.array("a"), "bb"], "<U2"), ([np.datetime64(1, "s"), np.datetime64(2, "s")], "<M8[s]")])
def test_numbers_of_python_s_beside_arrays_have_no_dtype_of_their_own(value: Any, dtype: str) -> None:
    array = refdist.constant(value)
    assert array.dtype == dtype and array.tolist() == np.asarray(value).tolist()


@pytest.mark.parametrize(("asked", "message"), [
    (lambda v: len(refdist.Variable(1.0)), r"the length of .* of shape \(\).*A scalar has no rows"),
    (lambda v: v[2], r"an item of .* of shape \(2, 2\).*Use an index that the array has"),
    (lambda v: bool(v), r"bool of .* of shape \(2, 2\).*Choose one element"),
    (lambda v: v + np.ones(3), "numpy.add of .*Pass operands whose shapes and dtypes fit together"),
    (lambda v: refdist.Variable(1, dtype="int8").assign(300), "assign of variable .*: 300 does not fit into int8"),
])
def test_what_an_array_cannot_be_asked_for(asked: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(RefdistError, match=message):
        asked(VARIABLE)


def test_a_variable_of_a_complex_number_is_that_number() -> None:
    """As tf.Variable, whose `__complex__` is that of the array."""
    with refdist.MirroredStrategy(["GPU:0", "GPU:1"]).scope():
        v, w = refdist.Variable(1 + 2j), refdist.Variable([1.0, 2.0])
    assert complex(v) == 1 + 2j and complex(refdist.Variable(3)) == 3
    assert refdist.constant([v, v]).tolist() == [1 + 2j, 1 + 2j]
    with pytest.raises(TypeError, match=r"RD25.*complex of .* of shape \(2,\).*Choose one element"):
        complex(w)
