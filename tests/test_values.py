"""Containers: what a person reads, and what they refuse."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
import pprint
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import nest

STRATEGY = refdist.MirroredStrategy([f"GPU:{i}" for i in range(12)])


def test_many_replicas_are_shortened_and_equal_copies_are_one_line() -> None:
    value = STRATEGY.run(lambda: np.arange(100) + refdist.get_replica_context().replica_id_in_sync_group)
    lines = repr(value).splitlines()
    assert lines[0] == "PerReplica:{"
    assert lines[1] == "  0 GPU:0: int64 100 [ 0,  1, ..., 98, 99]"
    assert lines[5] == "  ...: 6 more"
    assert len(lines) == 9
    equal = STRATEGY.extended.broadcast_to(np.float32(2), value)
    assert repr(equal) == "Mirrored:{\n  0..11 GPU:0 .. GPU:11: float32 scalar 2.\n}"
    with STRATEGY.scope():
        v = refdist.Variable([1.0, 2.0], name="v")
    assert repr(v) == ("MirroredVariable 'v:0' shape=(2,) dtype=float32: {\n"
                       "  0..11 GPU:0 .. GPU:11: float32 2 [1., 2.]\n}")


def test_a_per_replica_value_is_no_array_outside_replicas_and_the_own_part_inside() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    value = strategy.run(lambda: np.ones(2) * refdist.get_replica_context().replica_id_in_sync_group)
    with pytest.raises(ValueError, match=r"RD19.*2 values.*outside any scope"):
        np.asarray(value)
    inside = strategy.run(lambda: np.asarray(value) + 1)
    assert [part.tolist() for part in inside.values] == [[1.0, 1.0], [2.0, 2.0]]


def test_results_of_collectives_and_reads_are_read_only() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        v = refdist.Variable([1.0])
    reduced = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.ones(2)))
    gathered = strategy.run(lambda: refdist.get_replica_context().all_gather(np.ones(2), axis=0))
    for array in (*reduced.values, *gathered.values, v.read_value(), strategy.reduce("MEAN", reduced, axis=0)):
        assert not array.flags.writeable


def test_arguments_of_a_reduction_are_not_frozen_or_shared() -> None:
    array = np.ones(2)
    for count in (1, 2):
        strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])
        result = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", array))
        array[0] = 5.0
        assert all(part[0] == count for part in strategy.experimental_local_results(result))
        array[0] = 1.0


def test_a_value_needs_a_component() -> None:
    with pytest.raises(ValueError, match="RD34"):
        refdist.PerReplica([])


def test_constants_are_narrowed_as_tensorflow_does_and_arrays_keep_their_dtype() -> None:
    for value, dtype in ((1, "int32"), (1.5, "float32"), (True, "bool"), (1j, "complex128")):
        assert refdist.constant(value).dtype == dtype
    assert refdist.constant([1, 2]).dtype == refdist.constant(range(3)).dtype == "int32"
    for large in (2**31, -2**31 - 1, [1, 2**40]):
        assert refdist.constant(large).dtype == "int64" and np.array_equal(refdist.constant(large), large)
    assert refdist.constant([np.float64(1), 2]).dtype == "float64"
    assert refdist.constant(np.int64(1)).dtype == "int64"
    assert refdist.constant([1, 2], np.float16).dtype == "float16"
    for dtype in ("bool", "int8", "uint64", "float16", "complex64", "U1"):
        assert refdist.constant([], dtype).dtype == dtype and refdist.constant([[], []], dtype).shape == (2, 0)
    with pytest.raises(ValueError, match="RD05"):
        refdist.constant(np.zeros(0), "int32")
    for bad in (2**63, 2**64, [2**64], [1, "a"], [["a"], [1.0]], None, {1: 2}, [[1], [1, 2]], len):
        with pytest.raises((ValueError, TypeError), match=r"RD(25|34)"):
            refdist.constant(bad)


def test_a_context_of_values_shows_what_it_says_and_checks_nothing() -> None:
    for context, text in ((refdist.experimental.ValueContext(), "replica id 0,  total replicas in sync: 1"),
                          (refdist.experimental.ValueContext(9, 2), "replica id 9,  total replicas in sync: 2")):
        assert str(context) == f"tf.distribute.ValueContext({text})"
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    texts = strategy.experimental_distribute_values_from_function(str)
    assert texts.values[1] == "tf.distribute.ValueContext(replica id 1,  total replicas in sync: 2)"


def test_values_can_be_made_of_a_function_in_a_replica() -> None:
    """As in TensorFlow: each replica gets the values of all."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    results = strategy.run(lambda: strategy.experimental_distribute_values_from_function(
        lambda context: context.replica_id_in_sync_group))
    assert [value.values for value in results.values] == [(0, 1), (0, 1)]


def test_variables_are_distributed_values_and_arrays_are_not() -> None:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = refdist.Variable(1.0)
    value = strategy.run(lambda: np.ones(1))
    assert isinstance(value, refdist.DistributedValues) and isinstance(variable, refdist.DistributedValues)
    assert not isinstance(refdist.constant(1), refdist.DistributedValues)
    assert repr((value,)).splitlines()[1:3] == ["  0 CPU:0: float64 1 [1.]", "  1 CPU:1: float64 1 [1.]"]


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "bool(x)": bool, "float(x)": float, "int(x)": int, "complex(x)": complex, "index(x)": operator.index, "len(x)": len,
    "round(x)": round, "iter(x)": list, "x[...]": lambda x: x[0], "x[...] = y": lambda x: operator.setitem(x, 0, 1),
    "y in x": lambda x: 1.0 in x, "-x": operator.neg, "+x": operator.pos, "abs(x)": abs, "~x": operator.invert,
    "x < y": lambda x: x < 1, "x <= y": lambda x: x <= 1, "x > y": lambda x: x > 1, "x >= y": lambda x: x >= 1,
    "x + y": lambda x: x + 1, "y + x": lambda x: sum([x, x]), "x - y": lambda x: x - 1, "y - x": lambda x: 1.0 - x,
    "x * y": lambda x: operator.imul(x, 2), "y * x": lambda x: 2 * x, "x / y": lambda x: x / 2,
    "y / x": lambda x: 2 / x, "x // y": lambda x: x // 2, "x % y": lambda x: x % 2, "x ** y": lambda x: x ** 2,
    "y ** x": lambda x: 2 ** x,
    "x @ y": lambda x: x @ x, "x << y": lambda x: x << 1, "x & y": lambda x: x & 1, "x | y": lambda x: x | 1,
    "divmod(x, y)": lambda x: divmod(x, 2), "divmod(y, x)": lambda x: divmod(2, x),
    "del x[...]": lambda x: operator.delitem(x, 0), "x ^ y": lambda x: x ^ 1,
    "x.mean": lambda x: x.mean(), "x.shape": lambda x: x.shape, "x.dtype": lambda x: x.dtype,
    "x.numpy": lambda x: x.numpy(), "x.T": lambda x: x.T, "format(x, '.3f')": lambda x: f"{x:.3f}",
    "np.add": lambda x: np.ones(2) + x, "np.multiply": lambda x: np.float32(2) * x,
    "np.equal": lambda x: np.ones(2) == x, "np.sqrt": np.sqrt, "using a PerReplica as an array": np.mean,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_per_replica_value_has_no_operation_of_arrays_and_says_so(operation: str) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    value = strategy.run(lambda: np.ones(2))
    kind = kind_of(operation)
    text = operation if operation.startswith("using") else f"{operation} of a PerReplica"
    for where, call in (("outside any scope", lambda: OPERATIONS[operation](value)),
                        ("in the cross-replica context of Mirrored", lambda: in_scope(strategy, operation, value))):
        with pytest.raises(kind, match="RD19") as caught:
            call()
        message = str(caught.value)
        assert f"[RD19] {text}: it holds 2 values and the code runs {where}" in message
        assert "Use `strategy.reduce`" in message


def kind_of(operation: str) -> type[Exception]:
    """As in TensorFlow: the type of the error says what was tried."""
    if operation.startswith("using"):
        return ValueError
    return AttributeError if operation.startswith("x.") else TypeError


def in_scope(strategy: Any, operation: str, value: Any) -> None:
    with strategy.scope():
        OPERATIONS[operation](value)


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if not name.startswith("using")])
def test_in_a_replica_a_captured_value_is_still_several(operation: str) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    value = strategy.run(lambda: np.float32(refdist.get_replica_context().replica_id_in_sync_group))
    with pytest.raises(kind_of(operation), match=r"RD19.*in replica 0 of 2.*Pass it to the function.*np.asarray\(x\)"):
        strategy.run(lambda: OPERATIONS[operation](value))
    assert strategy.run(lambda: float(np.asarray(value) + 1)).values == (1.0, 2.0)


def test_the_base_class_of_distributed_values_has_no_objects() -> None:
    with pytest.raises(TypeError, match=r"RD25.*base class.*experimental_distribute_values_from_function"):
        refdist.DistributedValues((1, 2))


def test_a_per_replica_value_can_be_compared_copied_printed_and_looked_at() -> None:
    value = refdist.PerReplica([np.ones(2), 2], ["GPU:0", "GPU:1"])
    assert value == [value][0]
    assert value != refdist.PerReplica([np.ones(2), 2]) and value != 2
    assert hash(value) == hash(value) and value in [value] and value not in [1.0, None] and {value: 1}[value] == 1
    for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(other) is refdist.PerReplica and repr(other) == repr(value)
    assert f"{value}" == str(value) == repr(value)
    for name in ("shape", "dtype", "mean", "__array_interface__", "__cuda_array_interface__", "__iter_", "anything"):
        assert not hasattr(value, name)
        assert getattr(value, name, 7) == 7
    with pytest.raises(AttributeError, match="'PerReplica' object has no attribute 'anything'"):
        value.anything  # noqa: B018
    assert pprint.pformat([value, value]).count("PerReplica") == 2
    assert inspect.getmembers(value) and not callable(value) and not nest.is_nested(value)


def test_results_of_run_are_compared_by_identity_and_arrays_are_always_per_replica() -> None:
    """Numbers that are equal only, as two computed ones or two NaNs, are two parts; a literal is one object."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    for text in ("1.5", "nan", "123456.75"):
        made = strategy.run(lambda text=text: float(text))
        assert type(made) is refdist.PerReplica and list(map(repr, made.values)) == [repr(float(text))] * 2
    assert strategy.run(lambda: int("123456789")).values == (123456789, 123456789)
    literals = strategy.run(lambda: [1.5, b"x", None, ...])
    assert literals == [1.5, b"x", None, ...]
    array = np.ones(2)
    assert all(part is array for part in strategy.run(lambda: array).values)


def test_every_replica_has_a_device_of_its_own() -> None:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
    results = strategy.run(lambda: refdist.get_replica_context().devices)
    assert [devices.values for devices in results] == [strategy.extended.worker_devices]


def test_several_values_of_one_replica_or_a_mirrored_one_are_arrays() -> None:
    mirrored = refdist.Mirrored([np.float32(2.0)] * 2)
    assert mirrored + 1 == 3 and float(mirrored) == 2.0 and bool(mirrored) and mirrored > 1
    assert refdist.MirroredStrategy(["GPU:0"]).run(lambda: np.ones(2)) + 1 == pytest.approx([2, 2])


def test_replicas_that_gave_none_are_named() -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])

    def step() -> Any:
        return np.ones(2) if refdist.get_replica_context().replica_id_in_sync_group < 2 else None

    some, none = strategy.run(step), strategy.run(lambda: None)
    for call in (lambda value: strategy.reduce("SUM", value, axis=None), lambda value: strategy.gather(value, axis=0),
                 lambda value: strategy.reduce("MEAN", value, axis=0),
                 lambda value: strategy.reduce("MEAN", value, axis=None),
                 lambda value: strategy.extended.reduce_to("SUM", value, "CPU:0"),
                 lambda value: strategy.reduce("SUM", {"loss": value}, axis=None)):
        with pytest.raises(ValueError, match=r"RD34\] \S*(reduce|gather)\S*: replicas 2, 3 contributed None. Use an"):
            call(some)
        with pytest.raises(ValueError, match=r"RD34\] \S*(reduce|gather)\S*: every replica contributed None. Use an"):
            call(none)
    alone = refdist.MirroredStrategy(["GPU:0"])
    with pytest.raises(ValueError, match=r"RD34\] Strategy.reduce: every replica contributed None"):
        alone.reduce("SUM", alone.run(lambda: None), axis=None)


@pytest.mark.parametrize("collective", [
    lambda x: refdist.get_replica_context().all_reduce("SUM", x),
    lambda x: refdist.get_replica_context().all_reduce("MEAN", {"w": 1.0, "b": x}),
    lambda x: refdist.get_replica_context().all_gather([x], axis=0)])
def test_a_collective_of_none_says_in_which_replica(collective: Callable[[Any], Any]) -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])

    def step() -> Any:
        return collective(np.ones(2) if refdist.get_replica_context().replica_id_in_sync_group < 2 else None)

    with pytest.raises(ValueError, match=r"RD34\] all_\w+ in replica 2 of 4 of Mirrored\w+: the value is None. .*grad"):
        strategy.run(step)


class Recorded:
    """A tensor of PyTorch of which gradients are recorded."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")


def test_a_tensor_with_gradients_is_to_be_detached() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        v = refdist.Variable(1.0)
    parts = strategy.run(Recorded)
    for call in (lambda: strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", Recorded())),
                 lambda: strategy.reduce("SUM", parts, axis=None), lambda: v.assign(Recorded()),
                 lambda: refdist.constant(Recorded())):
        with pytest.raises(TypeError, match=r"RD25.*Recorded.*Pass `x.detach\(\)`") as caught:
            call()
        assert isinstance(caught.value.__cause__, RuntimeError)
