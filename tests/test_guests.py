"""Arrays of PyTorch and JAX: what goes in comes out, with NumPy's bits, and no replica sees another's writes.

The first part is for both libraries, on simulated devices (guests) and as the backend; `make interop` installs them.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pretend_library
import pytest
import worlds
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices
from limits import HANG

import refdist
from refdist.array import convert
from refdist.runtime import process
from refdist.variables.sharded import ShardedVariable

ROOT = Path(__file__).parents[1]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
SUM, MEAN = refdist.VariableAggregation.SUM, refdist.VariableAggregation.MEAN
ON_READ = refdist.VariableSynchronization.ON_READ


class Library:
    """One of the two libraries.

    Attributes:
        array: makes an array of NumPy's.
        kind: the type of its arrays.
    """

    def __init__(self, name: str) -> None:
        self.name = "torch" if name == "pretend" else name
        if name == "pretend":
            self.kind: type = pretend_library.Pretend
            self.array: Callable[[Any], Any] = pretend_library.Pretend
            return
        self.module = module = pytest.importorskip(name, reason="`make interop` installs it")
        pytest.importorskip("ml_dtypes")
        if name == "jax":
            module.config.update("jax_enable_x64", True)
            self.kind = module.Array
            self.array = module.numpy.array
        else:
            self.kind = module.Tensor
            self.array = lambda values: refdist.array.convert.guest_named.value("torch").put(np.array(values), "")

    def numpy(self, array: Any) -> Any:
        assert isinstance(array, self.kind), type(array)
        return convert.to_numpy(array)


@pytest.fixture(params=["pretend", "torch", "jax"])
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    with process.fresh():
        if request.param == "pretend":
            pretend_library.install()
        yield Library(request.param)


@pytest.fixture(params=["simulated", "native"])
def world(request: pytest.FixtureRequest, library: Library) -> Any:
    if request.param == "native":
        refdist.set_backend(library.name)
    return request.param


@pytest.fixture
def strategy(world: str) -> Any:
    return refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2"])


def replica() -> Any:
    return refdist.get_replica_context()


def number() -> int:
    return int(replica().replica_id_in_sync_group)


def drawn(dtype: str, shape: tuple[int, ...] = (5, 7)) -> list[Any]:
    """One array for each of three replicas, of six magnitudes, so that another order of a sum is another result."""
    import ml_dtypes

    rng = np.random.default_rng(7)
    wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        return [rng.integers(limits.min, limits.max, shape, wanted, endpoint=True) for _ in range(3)]
    parts = [rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3, shape) for _ in range(3)]
    return [part.astype(wanted) for part in parts]


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_all_reduce_gives_the_library_s_array_with_numpy_s_bits(library: Library, strategy: Any, dtype: str,
                                                                op: str) -> None:
    parts = drawn(dtype)
    results = strategy.run(lambda: replica().all_reduce(op, library.array(parts[number()]))).values
    with process.fresh():
        plain = refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2"])
        expected = plain.run(lambda: replica().all_reduce(op, parts[number()])).values
    for result, wanted in zip(results, expected, strict=True):
        array = library.numpy(result)
        assert array.dtype == wanted.dtype and bits(array) == bits(wanted)


@pytest.mark.parametrize("dtype", ["int32", "bfloat16", "float32"])
def test_every_collective_gives_the_library_s_array(library: Library, strategy: Any, dtype: str) -> None:
    parts = drawn(dtype, (2, 3))

    def contribution() -> Any:
        return library.array(parts[number()])

    gathered = strategy.run(lambda: replica().all_gather(contribution(), axis=0)).values
    assert [bits(library.numpy(part)) for part in gathered] == [bits(np.concatenate(parts))] * 3
    values = strategy.run(contribution)
    along = [part.sum(1, dtype=part.dtype) for part in parts]
    assert all(isinstance(value, library.kind) for value in values.values)
    for result, wanted in ((strategy.reduce("SUM", values, axis=None), (parts[0] + parts[1]) + parts[2]),
                           (strategy.gather(values, axis=0), np.concatenate(parts)),
                           (strategy.reduce("SUM", values, axis=1), (along[0] + along[1]) + along[2]),
                           (strategy.extended.reduce_to("SUM", values, "CPU:0"), (parts[0] + parts[1]) + parts[2])):
        assert library.numpy(result).dtype == wanted.dtype and bits(library.numpy(result)) == bits(wanted)


def test_nests_and_slices_keep_the_library_of_each_leaf(library: Library, strategy: Any) -> None:
    def step() -> Any:
        x = library.array(np.float32([1, 2])) * (number() + 1)
        slices = refdist.IndexedSlices(library.array(np.float32([[1, 2]])), library.array(np.int32([number()])), [3, 2])
        return replica().all_reduce("SUM", {"x": x, "n": np.int32(1), "s": slices})

    result = strategy.run(step)["x"], strategy.run(step)["n"], strategy.run(step)["s"]
    assert library.numpy(result[0].values[1]).tolist() == [6.0, 12.0]
    assert convert.to_numpy(result[1].values[0]) == 3
    assert library.numpy(result[2].values[0].values).tolist() == [[1.0, 2.0]] * 3
    assert library.numpy(result[2].values[0].indices).tolist() == [0, 1, 2]


@pytest.mark.parametrize("aggregation", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_a_variable_keeps_the_library_of_its_initial_value(library: Library, strategy: Any, aggregation: str) -> None:
    with strategy.scope():
        v = refdist.Variable(library.array(np.float32([1.0, 2.0])), aggregation=aggregation_of(aggregation))
    new = strategy.run(lambda: v.assign_add(library.array(np.float32([1, 2])) * (number() + 1.0)))
    factor = {"SUM": 6.0, "MEAN": 2.0, "ONLY_FIRST_REPLICA": 1.0}[aggregation]
    for array in (*new.values, v.read_value(), *strategy.run(lambda: v.read_value()).values):
        assert library.numpy(array).tolist() == [1.0 + factor, 2.0 + 2 * factor]
    v.assign([5.0, 6.0])
    v.assign_sub(np.float32([1.0, 1.0]))
    assert library.numpy(v.value()).tolist() == [4.0, 5.0]
    v.scatter_add(refdist.IndexedSlices(library.array(np.float32([2.0])), library.array(np.int32([1]))))
    assert library.numpy(v.read_value()).tolist() == [4.0, 7.0]
    assert v.numpy().tolist() == [4.0, 7.0] and v.dtype == np.float32


def aggregation_of(name: str) -> Any:
    return getattr(refdist.VariableAggregation, name)


def test_a_variable_of_numpy_s_takes_the_library_s_values(library: Library, world: str) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        v = refdist.Variable([0.0, 0.0], aggregation=SUM)
        metric = refdist.Variable(0.0, synchronization=ON_READ, aggregation=MEAN)
    strategy.run(lambda: (v.assign(library.array(np.float32([1, 2]))), metric.assign_add(library.array(np.float32(3)))))
    assert v.numpy().tolist() == [2.0, 4.0] and float(metric.read_value()) == 3.0
    assert isinstance(v.read_value(), np.ndarray) == (world == "simulated")


def test_a_replica_that_brings_another_kind_of_array_is_told(library: Library) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])

    def contribution() -> Any:
        return library.array(np.ones(2, np.float32)) if number() else np.ones(2, np.float32)

    for name, call in (("all_reduce", lambda: replica().all_reduce("SUM", contribution())),
                       ("all_gather", lambda: replica().all_gather([contribution()], axis=0))):
        with pytest.raises(refdist.errors.InvalidArgumentError) as caught:
            strategy.run(call)
        text = str(caught.value)
        assert text.startswith(f"[RD05] {name}") and "Use arrays of one library" in text
        assert f"replica 0 with library NumPy; replica 1 with library {library.name}" in text
    values = strategy.run(contribution)
    for across in (lambda: strategy.reduce("SUM", values, axis=None), lambda: strategy.gather(values, axis=0)):
        with pytest.raises(refdist.errors.InvalidArgumentError, match=r"\[RD05\].*an array of NumPy, replica 1 one of"):
            across()


def test_rows_of_a_dataset_are_the_library_s(library: Library, strategy: Any) -> None:
    x = library.array(np.arange(12, dtype=np.float32).reshape(6, 2))
    dataset = refdist.data.Dataset.from_tensor_slices((x, np.arange(6))).batch(3)
    batches = list(strategy.experimental_distribute_dataset(dataset))
    assert library.numpy(batches[1][0].values[2]).tolist() == [[10.0, 11.0]]
    assert all(isinstance(rows, library.kind) for batch in batches for rows in batch[0].values)
    elements = list(refdist.data.Dataset.from_tensor_slices(x).map(lambda row: row * 2).batch(4))
    assert library.numpy(elements[1]).tolist() == [[16.0, 18.0], [20.0, 22.0]]


def test_workers_exchange_the_library_s_arrays(library: Library, world: str) -> None:
    name = library.name if world == "native" else "simulated"

    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()

        def step() -> Any:
            x = library.array(np.float32([1, 2])) * (number() + 1.0)
            return replica().all_reduce("SUM", x), replica().all_gather(x, axis=0)

        total, rows = strategy.run(step)
        with strategy.scope():
            v = refdist.Variable(library.array(np.float32([0, 0])), aggregation=MEAN)
        strategy.run(lambda: v.assign_add(library.array(np.float32([1, 1])) * number()))
        return [library.numpy(part).tolist() for part in (strategy.experimental_local_results(total)[0],
                                                          strategy.experimental_local_results(rows)[0], v.read_value())]

    assert refdist.array.backend.current_backend().name == name
    assert refdist.simulate_workers(program, 2) == [[[3.0, 6.0], [1.0, 2.0, 2.0, 4.0], [0.5, 0.5]]] * 2


@pytest.mark.parametrize("use", [bool, float, int, range, lambda v: v[0, 0], lambda v: v + v[:1].repeat(3)])
def test_what_the_library_says_of_a_use_of_a_variable_is_an_error_with_advice(library: Library, world: str,
                                                                             use: Callable[[Any], object]) -> None:
    if library.kind is pretend_library.Pretend:
        pytest.skip("it has no words of its own")
    v = refdist.Variable(library.array(np.float32([1.0, 2.0])))
    with pytest.raises(refdist.errors.RefdistError,
                       match=rf"^\[RD(25|34)\] .* {library.name} says: .*(Choose|Pass|Use) ") as caught:
        use(v)
    assert isinstance(caught.value, TypeError if caught.value.code == "RD25" else (ValueError, IndexError))


# PyTorch: a tensor can be written to, so nobody may hold another's.

@pytest.fixture
def torch() -> Any:
    return Library("torch").module


@pytest.fixture(params=["simulated", "torch"])
def two(request: pytest.FixtureRequest, torch: Any) -> Iterator[Any]:
    with process.fresh():
        refdist.set_backend(request.param)
        yield refdist.MirroredStrategy(["GPU:0", "GPU:1"])


def slot(torch: Any, tensor: Any) -> None:
    tensor.fill_(99.0)


def view(torch: Any, tensor: Any) -> None:
    tensor[:1].reshape(-1).fill_(99.0)


def data(torch: Any, tensor: Any) -> None:
    tensor.data.mul_(0.0)


def dlpack(torch: Any, tensor: Any) -> None:
    torch.from_dlpack(tensor).fill_(99.0)


def through_numpy(torch: Any, tensor: Any) -> None:
    tensor.numpy()[...] = 99.0


def foreach(torch: Any, tensor: Any) -> None:
    torch._foreach_add_([tensor], 99.0)


def out(torch: Any, tensor: Any) -> None:
    torch.add(tensor, 1.0, out=tensor)


WRITES = [slot, view, data, dlpack, through_numpy, foreach, out]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_a_result_reaches_no_other_replica(torch: Any, two: Any, write: Callable[[Any, Any], None]) -> None:
    kept = torch.tensor([7.0, 8.0])
    with two.scope():
        v = refdist.Variable(torch.tensor([1.0, 2.0]), aggregation=SUM)

    def step(argument: Any) -> Any:
        context = replica()
        summed = context.all_reduce("SUM", torch.ones(2))
        rows = context.all_gather(torch.ones(2), axis=0)
        merged = context.merge_call(lambda strategy, x: x, args=(summed,))
        read, new = v.read_value(), v.assign_add(torch.zeros(2))
        handed = [summed, rows, merged, read, new, argument]
        if number() == 0:
            for tensor in handed:
                write(torch, tensor)
        context.all_reduce("SUM", 0.0)
        return tuple(tensor.clone() for tensor in handed) if number() == 1 else tuple(map(torch.zeros_like, handed))

    results = [part.values[1].tolist() for part in two.run(step, args=(kept,))]
    assert results == [[2.0, 2.0], [1.0] * 4, [2.0, 2.0], [1.0, 2.0], [1.0, 2.0], [7.0, 8.0]]
    assert v.numpy().tolist() == [1.0, 2.0] and kept.tolist() == [7.0, 8.0]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_what_was_given_changes_no_variable_and_no_row(torch: Any, two: Any,
                                                                 write: Callable[[Any, Any], None]) -> None:
    first, second, rows = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.arange(4.0)
    with two.scope():
        v = refdist.Variable(first)
    write(torch, first)
    assert v.numpy().tolist() == [1.0, 2.0]
    v.assign(second)
    write(torch, second)
    for copy in v.values:
        assert copy.numpy().tolist() == [3.0, 4.0]
    dataset = refdist.data.Dataset.from_tensor_slices(rows).batch(4).cache()
    for _ in range(2):
        for batch in dataset:
            assert batch.tolist() == [0.0, 1.0, 2.0, 3.0]
            write(torch, batch)


def test_a_collective_of_what_gradients_are_recorded_of_says_detach(torch: Any, two: Any) -> None:
    weight = torch.ones(2, requires_grad=True)
    for call in (lambda: replica().all_reduce("SUM", weight * 2), lambda: replica().all_gather(weight, axis=0),
                 lambda: replica().all_reduce("SUM", [torch.ones(1), weight])):
        with pytest.raises(refdist.errors.InvalidValueError, match=r"\[RD34\].*Pass `x.detach\(\)`"):
            two.run(call)
    losses = two.run(lambda: weight.sum())
    with pytest.raises(refdist.errors.InvalidValueError, match=r"\[RD34\].*Pass `x.detach\(\)`"):
        two.reduce("SUM", losses, axis=None)
    advised = two.run(lambda: replica().all_reduce("SUM", (weight * 2).detach()))
    assert advised.values[0].tolist() == [4.0, 4.0]


def test_a_collective_inside_backward_is_refused_where_replicas_share_a_thread(torch: Any) -> None:
    def step() -> Any:
        weight = torch.full((2,), 1.0 + number(), requires_grad=True)
        gradients = []
        weight.register_hook(lambda gradient: gradients.append(replica().all_reduce("SUM", gradient)))
        (weight * weight).sum().backward()
        return gradients[0]

    with process.fresh():
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        with pytest.raises(RuntimeError, match=r"\[RD09\] all_reduce.*inside PyTorch's `backward`.*Call it after"):
            strategy.run(step)
        after = strategy.run(lambda: replica().all_reduce("SUM", torch.ones(1) * (1 + number())))
        assert after.values[0].tolist() == [3.0]  # the program goes on
        alone = refdist.OneDeviceStrategy("CPU:0").run(step)
        assert alone.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("inside", ["tree_map", "tree_map_with_path", "tree_broadcast_map", "tree_leaves"])
def test_a_collective_that_optree_calls_is_refused_where_replicas_share_a_thread(two: Any, inside: str) -> None:
    """It ended the process: pybind11's calls return in the order in which they were made."""
    optree = pytest.importorskip("optree")

    def step() -> Any:
        rest = (np.ones(2),) * ("broadcast" in inside)
        if inside == "tree_leaves":
            return optree.tree_leaves([1.0], is_leaf=lambda leaf: bool(replica().all_reduce("SUM", 1.0)))
        return getattr(optree, inside)(lambda *leaves: replica().all_reduce("SUM", leaves[-1]), [np.ones(2)], *rest)

    with pytest.raises(RuntimeError, match=rf"\[RD09\] all_reduce.*`optree.{inside}`.*Pass the whole structure"):
        two.run(step)
    advised = two.run(lambda: replica().all_reduce("SUM", {"a": np.ones(2), "b": [np.ones(1)]}))
    assert advised["b"][0].values[0].tolist() == [2.0]
    looped = two.run(lambda: [replica().all_reduce("SUM", leaf) for leaf in optree.tree_leaves({"a": np.ones(1)})])
    assert looped[0].values[0].tolist() == [2.0]


@pytest.mark.parametrize("inside", ["tree_map_", "tree_reduce", "tree_partition", "tree_transpose_map"])
def test_a_collective_that_optree_calls_from_python_is_made(two: Any, inside: str) -> None:
    optree = pytest.importorskip("optree")
    sums: list[Any] = []

    def summed(*leaves: Any) -> Any:
        sums.append(replica().all_reduce("SUM", leaves[-1]))
        return [sums[-1]] if "transpose" in inside else sums[-1]

    two.run(lambda: getattr(optree, inside)(summed, {"a": np.float32(1.0), "b": np.float32(2.0)}) and None)
    assert {float(part) for part in sums} <= {2.0, 4.0} and len(sums) > 1


@pytest.mark.parametrize("inside", ["a function", "a hook", "an accumulated gradient", "a module's hook",
                                    "a checkpoint", "vmap", "func.grad", "an assignment", "a merge call"])
def test_a_rendezvous_where_pytorch_keeps_a_state_for_the_thread_changes_nothing(torch: Any, two: Any,
                                                                               inside: str) -> None:
    from torch.utils.checkpoint import checkpoint

    with two.scope():
        v = refdist.Variable(torch.zeros(2), aggregation=SUM)

    def summed(*_: Any) -> Any:
        if inside == "an assignment":
            v.assign_add(torch.ones(2))
        elif inside == "a merge call":
            replica().merge_call(lambda strategy: v.assign(torch.ones(2)))
        return replica().all_reduce("SUM", torch.ones(2))

    class Synchronized(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return summed()

    def step() -> None:
        weight = torch.ones(2, requires_grad=True)
        match inside:
            case "a function":
                loss = Synchronized.apply(weight).sum()
            case "an accumulated gradient":
                weight.register_post_accumulate_grad_hook(lambda parameter: summed() and None)
                loss = weight.sum()
            case "a module's hook":
                module = torch.nn.Linear(2, 2)
                module.register_full_backward_hook(lambda *_: summed() and None)
                loss = module(weight).sum()
            case "a checkpoint":
                loss = checkpoint(lambda x: (x * summed()).sum(), weight, use_reentrant=False)
            case "vmap":
                torch.vmap(lambda x: x * summed())(torch.ones(3, 2))
            case "func.grad":
                torch.func.grad(lambda x: (x * summed()).sum())(torch.ones(2))
            case _:
                weight.register_hook(lambda gradient: summed())
                loss = weight.sum()
        loss.backward()

    # What `func.grad` makes is no tensor that can be looked at, so its value is refused first.
    with pytest.raises((RuntimeError, ValueError), match=r"\[RD(09|34)\] .*Call it (after `backward`|outside)"):
        two.run(step)
    assert v.numpy().tolist() == [0.0, 0.0]
    after = two.run(
        lambda: torch.vmap(lambda x: x * 2)(replica().all_reduce("SUM", torch.ones(2))))
    assert after.values[1].tolist() == [4.0, 4.0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_collective_parts_what_is_compiled_in_two(torch: Any, replicas: int) -> None:
    """And neither refdist's own code nor what other replicas run meanwhile is compiled."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])
    with strategy.scope():
        v = refdist.Variable(torch.ones(2), aggregation=SUM)
    compiled: list[list[str]] = []

    def backend(graph: Any, inputs: object) -> Any:
        compiled.append([str(node.target) for node in graph.graph.nodes if node.op.startswith("call")])
        return graph.forward

    def step(x: Any) -> Any:
        total = replica().all_reduce("SUM", torch.sin(x))
        v.assign_add(torch.cos(total))
        return torch.tan(total)

    first = torch.compile(step, backend=backend)

    def begun(x: Any) -> Any:  # by the second replica while the first one waits
        return torch.log(x)

    strategy.run(lambda x: torch.exp(first(begun(x))), args=(torch.ones(2),))
    words = " ".join(name for names in compiled for name in names)
    assert "sin" in words and "tan" in words and "log" not in words and "exp" not in words
    graphs = len(compiled)
    plain, parted = [strategy.experimental_local_results(strategy.run(each, args=(torch.ones(2),)))
                     for each in (step, first)]
    assert [x.tolist() for x in plain] == [x.tolist() for x in parted]
    begun(torch.ones(2))
    assert len(compiled) == graphs


def test_what_is_done_to_saved_tensors_belongs_to_a_replica(torch: Any, two: Any) -> None:
    """A block of `saved_tensors_hooks`, as checkpoints and `save_on_cpu` are."""
    packed: list[int] = []

    def step() -> Any:
        weight = torch.full((2,), 3.0, requires_grad=True)
        own = number()
        with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(own) or (own, x), lambda pair: pair[1]):
            replica().all_reduce("SUM", 0.0)
            loss = (weight ** 2).sum()
        replica().all_reduce("SUM", 0.0)
        loss.backward()
        return weight.grad

    assert [gradient.tolist() for gradient in two.run(step).values] == [[6.0, 6.0]] * 2
    assert packed == [0, 1]
    (torch.ones(2, requires_grad=True) ** 2).sum().backward()
    assert packed == [0, 1]


def test_a_tensor_without_numbers_of_an_array_is_refused_with_advice(torch: Any, two: Any) -> None:
    class Image(torch.Tensor):  # type: ignore[misc]
        pass

    for state in (torch.ones(3, dtype=torch.int64).to_sparse(), torch.ones(3, dtype=torch.int64, device="meta")):
        with pytest.raises(TypeError, match=r"(?s)\[RD25\] Generator.*Pass 64-bit ints"):
            refdist.random.Generator.from_state(state, alg=1)
    tensors = {"to_dense": torch.ones(2).to_sparse(), "that has numbers": torch.ones(2, device="meta"),
               "dequantize": torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8),
               "to_padded_tensor": torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
               "to\\(torch.complex64": torch.ones(2, dtype=torch.complex32),
               "view\\(torch.uint8": torch.empty(2, dtype=torch.bits8),
               "as_subclass": torch.ones(2).as_subclass(Image)}
    for advice, tensor in tensors.items():
        code = "RD25" if type(tensor) is Image else "RD34"
        with pytest.raises((ValueError, TypeError), match=rf"^\[{code}\] all_reduce: .*[Pp]ass .*{advice}"):
            two.run(lambda tensor=tensor: replica().all_reduce("SUM", tensor))
        with two.scope(), pytest.raises((ValueError, TypeError), match=rf"^\[{code}\] Variable.*[Pp]ass .*{advice}"):
            refdist.Variable(tensor)
        v = refdist.Variable(torch.ones(2))
        with pytest.raises((ValueError, TypeError), match=rf"^\[{code}\] assign of .*[Pp]ass .*{advice}"):
            v.assign(tensor)
        assert v.read_value().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_replica_may_return_a_tensor_without_numbers_of_an_array(torch: Any, two: Any, recorded: bool) -> None:
    with refdist.record() if recorded else contextlib.nullcontext():
        for tensor in (torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(2, dtype=torch.complex32)):
            result = two.run(lambda x: x, args=(two.run(lambda tensor=tensor: tensor),))
            assert [value.layout for value in result.values] == [tensor.layout] * 2
            assert "tensor(" in repr(result) and "tensor(" in result._repr_html_()


def test_messages_show_shapes_of_tensors_as_tuples(torch: Any, two: Any) -> None:
    with pytest.raises(ValueError, match=r"replica 0 with shape \(1, 3\); replica 1 with shape \(2, 3\)"):
        two.run(lambda: replica().all_reduce("SUM", torch.ones(1 + number(), 3)))
    v = refdist.Variable(torch.ones(2))
    assert type(v.shape) is tuple
    with pytest.raises(ValueError, match=r"the value has shape \(3,\), the variable \(2,\)"):
        v.assign(torch.ones(3))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_narrow_floats_of_pytorch_come_out_as_what_they_are(torch: Any, two: Any, dtype: str) -> None:
    gathered = two.run(lambda: replica().all_gather(torch.tensor([1.0 + number()]).to(getattr(torch, dtype)), axis=0))
    assert all(rows.dtype == getattr(torch, dtype) and rows.float().tolist() == [1.0, 2.0] for rows in gathered.values)


def test_gradients_are_taken_of_what_a_replica_reads(torch: Any, two: Any) -> None:
    with two.scope():
        v = refdist.Variable(torch.tensor([1.0, 2.0]), aggregation=SUM)

    def step(x: Any) -> Any:
        weight = v.read_value().requires_grad_()
        loss = ((weight * x) ** 2).sum()
        loss.backward()
        gradient = replica().all_reduce("SUM", weight.grad)
        with torch.no_grad():
            weight -= 0.5 * gradient
        return gradient

    gradient = two.run(step, args=(refdist.PerReplica([torch.tensor([1.0, 1.0]), torch.tensor([2.0, 0.0])]),))
    assert gradient.values[1].tolist() == [10.0, 4.0]
    assert v.numpy().tolist() == [1.0, 2.0]


def test_the_program_s_own_parameters_are_handed_on_as_they_are(torch: Any, two: Any) -> None:
    layer = torch.nn.Linear(2, 1, bias=False)

    def step(model: Any, weight: Any) -> Any:
        assert weight is layer.weight
        return torch.autograd.grad(model(torch.ones(2)).sum(), weight)[0]

    assert two.run(step, args=(layer, layer.weight)).values[1].tolist() == [[1.0, 1.0]]


def test_functions_of_pytorch_take_variables(torch: Any, two: Any) -> None:
    v, plain = refdist.Variable(torch.tensor([1.0, 2.0])), refdist.Variable([3.0, 4.0])
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    for product in (torch.dot(x, plain), (x * plain).sum(), (plain * x).sum(), torch.stack([x, x]).matmul(plain)[0]):
        assert product.item() == 7.0 and product.requires_grad
    assert torch.cat([v, plain]).tolist() == [1.0, 2.0, 3.0, 4.0]


WHOLES = {"float32": (4, 3), "bfloat16": (5,), "uint16": (3, 2, 2), "float8_e5m2": (2, 3), "bool": (0, 3),
          "int64": (1,)}


def whole_of(dtype: str) -> Any:
    import ml_dtypes

    return np.arange(np.prod(WHOLES[dtype])).reshape(WHOLES[dtype]).astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("backend", ["simulated", "torch"])
@pytest.mark.parametrize("kind", ["plain", "mirrored", "on read", "sharded"])
@given(data=st.data())
def test_an_index_of_a_variable_chooses_what_numpy_chooses(kind: str, backend: str, data: Any) -> None:
    """Also where slices go backwards, which PyTorch refuses."""
    library = Library("torch")
    whole = whole_of(data.draw(st.sampled_from(list(WHOLES))))
    key = data.draw(basic_indices(whole.shape, allow_newaxis=True))
    with process.fresh():
        refdist.set_backend(backend)
        array = library.array(whole)
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        if kind == "sharded":
            v: Any = ShardedVariable([refdist.Variable(array[:1]), refdist.Variable(array[1:])])
        elif kind == "plain":
            v = refdist.Variable(array)
        else:
            how = {"synchronization": ON_READ} if kind == "on read" else {}
            with strategy.scope():
                v = refdist.Variable(array, aggregation=aggregation_of("ONLY_FIRST_REPLICA"), **how)
        for chosen in (v[key], *strategy.run(lambda: v[key]).values):
            assert library.numpy(chosen).shape == np.shape(whole[key])
            assert bits(library.numpy(chosen)) == bits(whole[key])


@pytest.mark.slow
@pytest.mark.parametrize("line", ["step()", "two.run(step)", "threading.Thread(target=step).start()"])
def test_an_uncaught_error_of_a_tensor_s_slice_says_what_to_write(torch: Any, line: str) -> None:
    program = f"""
import threading, torch, refdist
two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
def step():
    return torch.arange(3)[::-1]
{line}
"""
    stderr = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG).stderr
    assert "ValueError: step must be greater than zero" in stderr
    assert stderr.count("`x[::-1]`; write `tf.reverse(x, [0])`, or `torch.flip(x, [0])`") == 1


MASK = np.array([[True, False, True], [False, True, True], [True] * 3, [False] * 3])


@pytest.mark.parametrize("key", [
    np.s_[::-1, [2, 0]], np.s_[[0, 3], ::-2], np.s_[None, ::-1, [True, False, True]], np.s_[::-1, np.array([1])],
    np.s_[[True, False, True, True], ..., ::-1], np.s_[MASK, ..., ::-1], np.s_[::-1, ..., [[0, 1], [1, 1]]],
    np.s_[np.int64(1), :0:-1], np.s_[2:0:-1, np.array(1)], np.s_[[[0, 1], [2, 3]], ::-1], np.s_[True, ::-1],
    np.s_[::np.int64(-3), -1], np.s_[::-1, np.array([[0], [2]])]], ids=repr)
def test_places_and_masks_stand_beside_slices_that_go_backwards(torch: Any, two: Any, key: Any) -> None:
    whole = np.arange(24).reshape(4, 3, 2)
    assert refdist.Variable(torch.tensor(whole))[key].tolist() == whole[key].tolist()


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence", "ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("index", [[True, False, True], [2, 0], [[0, 2], [1, 1]], 1, np.eye(3) > 0, [1] * 40], ids=str)
def test_variables_are_indices_of_tensors(torch: Any, two: Any, index: Any) -> None:
    x = torch.arange(9).reshape(3, 3)
    for v in (refdist.Variable(torch.tensor(index)), refdist.Variable(np.array(index))):
        assert x[v].tolist() == x.numpy()[np.array(index)].tolist()
        written, expected = x.clone(), x.numpy().copy()
        written[v] = -1
        written[v] += 5
        expected[np.array(index)] = 4
        assert written.tolist() == expected.tolist()
        assert [chosen.tolist() for chosen in two.run(lambda v=v: x[v]).values] == [x[v].tolist()] * 2
    rows = refdist.Variable(x)
    assert [row.tolist() for row in rows] == [row.tolist() for row in [*rows]] == x.tolist()


def test_variables_are_indices_of_variables(torch: Any, two: Any) -> None:
    v = refdist.Variable(torch.arange(6).reshape(2, 3))
    mask, row, places = map(refdist.Variable, ([True, False], 1, torch.tensor([1, 0])))
    assert [v[key].tolist() for key in (mask, row, places, (row, slice(None, None, -1)), (places, 0))] == [
        [[0, 1, 2]], [3, 4, 5], [[3, 4, 5], [0, 1, 2]], [5, 4, 3], [3, 0]]


def test_tensors_go_to_mpi_and_back_without_a_copy_and_have_the_simulator_s_bits(torch: Any) -> None:
    printed = []
    for how in (("run", "--workers", "2"), ("launch", "-n", "2")):
        done = subprocess.run([sys.executable, "-m", "refdist", *how, str(ROOT / "tests" / "workers" / "tensors.py")],
                              capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert (done.returncode, done.stderr) == (0, "")
        printed.append(re.findall(r"(?:float|bfloat|int)\d+ \d+: \w{12}", done.stdout))
    assert len(set(printed[0])) == 12 and sorted(printed[0]) == sorted(printed[1]) and len(printed[0]) == 24
    assert re.findall(r"copies: (\d+) (\d+)", done.stdout) == 2 * [("0", "0")]


# JAX: what is traced is computed later, and a collective now.

@pytest.fixture
def jax() -> Any:
    return Library("jax").module


def test_a_collective_under_a_transformation_says_to_call_it_outside(jax: Any) -> None:
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])

    def total(x: Any) -> Any:
        return replica().all_reduce("SUM", x * 2).sum()

    for transformed in (jax.jit(total), jax.grad(total), lambda x: jax.vmap(total)(x[None])):
        with pytest.raises(refdist.errors.InvalidTypeError, match=r"\[RD25\] all_reduce.*JAX traces.*Call it outside"):
            two.run(lambda transformed=transformed: transformed(jax.numpy.ones(2)))
    advised = two.run(lambda: replica().all_reduce("SUM", jax.grad(lambda x: (x * 2).sum())(jax.numpy.ones(2))))
    assert advised.values[0].tolist() == [4.0, 4.0]


def test_a_deleted_array_and_a_key_are_refused_with_advice(jax: Any) -> None:
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    deleted = jax.numpy.ones(2)
    deleted.delete()
    with pytest.raises(ValueError, match=r"\[RD34\] all_reduce.*Pass an array that was not deleted"):
        two.run(lambda: replica().all_reduce("SUM", deleted))
    with pytest.raises(ValueError, match=r"\[RD34\] assign of variable.*not deleted"):
        refdist.Variable(jax.numpy.ones(2)).assign(deleted)
    with pytest.raises(TypeError, match=r"\[RD25\] all_reduce.*`jax.random.key_data\(x\)`"):
        two.run(lambda: replica().all_reduce("SUM", jax.random.key(0)))


@pytest.mark.parametrize("backend", ["simulated", "jax"])
def test_functions_that_read_variables_have_gradients(jax: Any, backend: str) -> None:
    with process.fresh():
        refdist.set_backend(backend)
        v = refdist.Variable([3.0, 4.0])
        for function in (lambda x: (x * v).sum(), lambda x: (v * x).sum(), lambda x: x @ v,
                         lambda x: (x * v.read_value()).sum()):
            assert jax.grad(function)(jax.numpy.ones(2)).tolist() == [3.0, 4.0]


def test_a_function_that_jit_compiles_is_told_that_it_keeps_the_value(jax: Any) -> None:
    v = refdist.Variable(2.0)
    compiled = jax.jit(lambda x: v * x)
    with pytest.warns(UserWarning, match=r"JAX compiles a function that reads variable Variable:0") as caught:
        assert float(compiled(1.0)) == 2.0
    assert [warning.filename for warning in caught if warning.category is UserWarning] == [__file__]
    v.assign(3.0)
    assert float(compiled(1.0)) == 2.0  # what the warning says
    advised = jax.jit(lambda x, value: x * value)
    assert [float(advised(1.0, v.read_value())), float(v.assign(4.0)), float(advised(1.0, v.read_value()))] == [3, 4, 4]


@pytest.mark.parametrize("transform", ["grad", "vmap"])
def test_a_function_that_is_not_compiled_reads_variables_without_a_word(jax: Any, transform: str,
                                                                       recwarn: pytest.WarningsRecorder) -> None:
    v = refdist.Variable(2.0)
    function = jax.grad(lambda x: x * v) if transform == "grad" else lambda x: jax.vmap(lambda x: x * v)(x[None])[0]
    assert float(function(jax.numpy.array(1.0))) == 2.0
    v.assign(3.0)
    assert float(function(jax.numpy.array(1.0))) == 3.0
    assert [warning for warning in recwarn if warning.category is not ResourceWarning] == []


@pytest.mark.worlds
@pytest.mark.parametrize("adapter", ["OnTorch", "OnJax"])
def test_the_suite_passes_to_the_bit_on_the_library_s_arrays(adapter: str) -> None:
    pytest.importorskip(adapter.removeprefix("On").lower(), reason="`make interop` installs it")
    path = os.pathsep.join(map(str, (ROOT / "tests", ROOT)))
    done = subprocess.run([sys.executable, "-m", "refdist.conformance", "--bitwise", "--adapter",
                           f"guests_world:{adapter}", "--expected-failures", str(ROOT / "tests/expected/guests.txt"),
                           *worlds.OPTIONS], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    count = worlds.counts(done.stdout)
    assert count["passed"] > 100 * count["xfailed"] and count["passed"] > 500, done.stdout
