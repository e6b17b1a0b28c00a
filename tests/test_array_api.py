"""A backend needs no more of its arrays than the array API standard: one over array_api_strict passes the suite."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import array_api_strict as xp
import numpy as np
import pytest
import strict_world
import worlds

import refdist
from refdist.array.backend import Backend, made
from refdist.array.convert import to_numpy
from refdist.backends.simulated import Simulated
from refdist.conformance.chapters import cases
from refdist.conformance.examples import program
from refdist.conformance.judging import judge
from refdist.runtime import process
from refdist.workers.staging import through_host
from refdist.workers.transport import Transport

ROOT = Path(__file__).parents[1]
SUM = refdist.VariableAggregation.SUM
ON_READ = refdist.VariableSynchronization.ON_READ


@pytest.fixture
def two() -> Iterator[Any]:
    """A MirroredStrategy over two devices that do not share memory."""
    with process.fresh():
        made.value["apart"] = strict_world.Apart()
        refdist.set_backend("apart")
        yield refdist.MirroredStrategy(["GPU:0", "GPU:1"])


def number() -> int:
    return int(refdist.get_replica_context().replica_id_in_sync_group)


def all_reduce(value: Any) -> Any:
    return refdist.get_replica_context().all_reduce("SUM", value)


def host(value: Any) -> Any:
    """Of an array of the backend the values as nested lists, of several a list."""
    if isinstance(value, refdist.PerReplica):
        return [host(part) for part in value.values]
    assert isinstance(value, strict_world.Strict.array_types), type(value)
    return to_numpy(value).tolist()


@pytest.mark.worlds
@pytest.mark.parametrize(("name", "adapter"), [("strict", "Adapter"), ("apart", "ApartAdapter")])
def test_a_backend_over_array_api_strict_passes_the_suite(tmp_path: Path, name: str, adapter: str) -> None:
    info = tmp_path / "refdist_strict-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: refdist-strict\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[refdist.backends]\nstrict = strict_world:Strict\napart = strict_world:Apart\n")
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "tests", ROOT)))
    done = subprocess.run([sys.executable, "-m", "refdist.conformance", "--adapter", f"strict_world:{adapter}",
                           "--expected-failures", str(ROOT / "tests" / "expected" / f"{name}.txt"), *worlds.OPTIONS],
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    count = worlds.counts(done.stdout)
    assert count["passed"] > 15 * count["xfailed"] and count["passed"] > 500, done.stdout


class Liar(strict_world.Strict):
    """Its arrays are NumPy's."""

    def put(self, array: Any, device: str) -> Any:
        return array


@pytest.mark.parametrize(("backend", "outcomes"), [(strict_world.Strict, {"passed"}), (Liar, {"failed"})])
def test_a_backend_whose_arrays_are_numpy_s_does_not_pass(backend: type[Backend], outcomes: set[str]) -> None:
    about = [case for case in cases() if case.clause.name == "all_reduce.sum" and case.example.number == 1
             and case.strategy.startswith(("Mirrored", "Central"))]
    with process.fresh():
        made.value["strict"] = backend()
        adapter = strict_world.Adapter()
        verdicts = {judge(case, adapter.run(program(case))).outcome for case in about}
        assert len(about) >= 3 and verdicts == outcomes


def test_the_backend_is_small_and_declares_everything_refdist_asks_for() -> None:
    source = (ROOT / "tests" / "strict_world.py").read_text()
    assert len(source.splitlines()) <= 150
    assert Backend.__abstractmethods__ == {"xp", "put", "to_numpy", "freeze"}
    assert not [name for name in re.findall(r"^from (refdist\S*)", source, re.M) if "convert" in name]


def test_the_guide_describes_every_method_of_a_backend_and_no_other() -> None:
    page = (ROOT / "docs" / "writing-a-backend.md").read_text()
    described = re.findall(r"^\* `(\w+)(?:\((.*?)\))?`", page, re.M)
    methods = {name: member for name, member in vars(Backend).items() if not name.startswith("_")}
    assert sorted(name for name, _ in described) == sorted(methods)
    for name, arguments in described:
        parameters = inspect.signature(methods[name]).parameters if callable(methods[name]) else {}
        names = [argument.partition("=")[0] for argument in arguments.split(", ") if argument]
        assert names == [parameter for parameter in parameters if parameter != "self"], name


def test_variables_compute_with_the_operators_of_their_arrays(two: Any) -> None:
    with two.scope():
        variable, counter = refdist.Variable([1.0, 2.0]), refdist.Variable([7, 8], aggregation=SUM)
    assert [host(value) for value in (variable + 1.0, 1.0 - variable, variable * variable, -variable, abs(-variable))] \
        == [[2, 3], [0, -1], [1, 4], [-1, -2], [1, 2]]
    assert [host(value) for value in (variable == variable, variable < 2.0, counter // 2, counter % 4, counter & 6)] \
        == [[True, True], [True, False], [3, 4], [3, 0], [6, 0]]
    assert len(variable) == 2 and host(variable[1]) == 2 and [host(item) for item in variable] == [1, 2]
    assert float(variable[0] + 0.5) == 1.5 and variable.numpy().tolist() == [1, 2]
    assert host(two.run(lambda: variable * refdist.constant(3.0))) == [[3, 6], [3, 6]]
    assert "float32 2 [1., 2.]" in repr(variable)


def test_every_way_of_writing_keeps_the_arrays(two: Any) -> None:
    with two.scope():
        variable, other = refdist.Variable([1.0, 2.0]), refdist.Variable([5.0, 6.0], aggregation=SUM)
        shares = refdist.Variable([7, 8], synchronization=ON_READ, aggregation=SUM)
    variable.assign(other)
    assert host(variable.read_value()) == [5, 6]
    variable.assign(refdist.IndexedSlices([1.0], [1], [2]))
    assert host(variable.read_value()) == [0, 1]
    for method, row in (("add", 3.0), ("sub", 1.0), ("mul", 4.0), ("div", 2.0), ("min", 1.5), ("max", 2.5)):
        getattr(variable, f"scatter_{method}")(refdist.IndexedSlices([row], [0]))
    assert host(variable.sparse_read([[0], [1]])) == [[2.5], [1]]
    assert host(variable.gather_nd([[1], [0]])) == [1, 2.5]
    two.run(lambda: other.assign_add([1.0, number() + 1.0]))
    assert host(other.read_value()) == [7, 9]
    shares.assign(xp.asarray([7, 8], device=strict_world.Apart.gpus[0], dtype=xp.int32))
    assert [host(part.read_value()) for part in shares.values] == [[4, 4], [3, 4]]
    assert host(shares.read_value()) == [7, 8]
    assert host(refdist.Variable(variable).read_value()) == [2.5, 1]
    assert host(refdist.Variable(xp.asarray([1, 2], dtype=xp.int8), dtype=xp.int16).read_value()) == [1, 2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64", "complex128"])
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("width", [(), (1,), (3, 8)])
def test_rows_are_changed_to_the_bits_of_the_simulated_backend(two: Any, dtype: str, operation: str,
                                                               width: tuple[int, ...]) -> None:
    """NumPy's loops do not agree whether a product of complex numbers is rounded once or twice."""
    random = np.random.default_rng(1)

    def drawn(rows: int) -> Any:
        real, imaginary = random.normal(scale=50.0, size=(2, rows, *width))
        return (real + 1j * imaginary if np.dtype(dtype).kind == "c" else 1 + abs(real)).astype(dtype)

    array, values, indices = drawn(20), drawn(90), random.integers(0, 20, 90)
    here = [xp.asarray(part) for part in (array, indices, values)]
    changed = to_numpy(made.value["apart"].scatter(operation, *here))
    assert changed.tobytes() == Simulated().scatter(operation, array, indices, values).tobytes()


def test_every_way_of_reducing_keeps_the_arrays(two: Any) -> None:
    class Own(refdist.ReductionToOneDevice):
        def reduce_implementation(self, *args: Any) -> Any:
            return super().reduce_implementation(*args)

        def batch_reduce_implementation(self, *args: Any) -> Any:
            return super().batch_reduce_implementation(*args)

    def accumulate(parts: list[Any]) -> Any:
        return parts[0] + parts[1]

    for ops in (None, Own(), refdist.ReductionToOneDevice(accumulation_fn=accumulate)):
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"], cross_device_ops=ops)
        value = strategy.run(lambda: refdist.constant([number() + 1.0]))
        plain = refdist.constant(xp.asarray([4.0], device=strict_world.Apart.gpus[0], dtype=xp.float32))
        with strategy.scope():
            variable = refdist.Variable([0.0], aggregation=SUM)
            shares = refdist.Variable([0.0], synchronization=ON_READ, aggregation=SUM)
        strategy.run(lambda v=variable, s=shares, x=value: (v.assign_add(x), s.assign_add(x)))
        results = [
            strategy.run(lambda: all_reduce(refdist.constant([number() + 1.0]))).values[1],
            variable.read_value(), shares.read_value(), strategy.reduce("SUM", value, axis=None),
            strategy.reduce("SUM", value, axis=0), strategy.extended.reduce_to("SUM", value, value).values[1],
            strategy.extended.batch_reduce_to("SUM", [(value, value)])[0].values[1]]
        assert [host(result) for result in results] == [[3], [3], [3], [3], 3, [3], [3]]
        assert host(strategy.reduce("MEAN", plain, axis=None)) == host(strategy.gather(plain, axis=0)) == [4]
        assert host(strategy.reduce("MEAN", variable, axis=None)) == [3]
        slices = strategy.run(lambda x=value: refdist.IndexedSlices(x, refdist.constant([number()]), [2]))
        assert host(strategy.reduce("SUM", slices, axis=0)) == 3
        shares.assign(plain)
        assert [host(part.read_value()) for part in shares.values] == [[2], [2]]
        assert host(strategy.gather(value, axis=0)) == [1, 2]


def test_the_arrays_among_the_arguments_of_run_come_to_the_replica_s_device(two: Any) -> None:
    first = xp.asarray([1.0, 2.0], device=strict_world.Apart.gpus[0], dtype=xp.float32)
    each = two.experimental_distribute_values_from_function(lambda context: np.float32([3.0, 4.0]))
    results = two.run(lambda x, y: x + y["of each"] + refdist.constant(1.0), args=(first, {"of each": each}))
    assert host(results) == [[5, 7], [5, 7]]
    assert [part.device for part in results.values] == list(strict_world.Apart.gpus)


def test_an_array_that_no_backend_has_declared_is_said_to_be_one() -> None:
    message = r"^\[RD25\] constant: value is .*, an? Array\. Choose the backend that has such arrays"
    with process.fresh(), pytest.raises(TypeError, match=message):
        refdist.constant(xp.asarray([1.0], device=strict_world.Apart.gpus[0]))


def test_what_a_program_can_still_write_to_is_copied(two: Any) -> None:
    array = xp.asarray([1.0, 2.0], device=strict_world.Apart.gpus[0], dtype=xp.float32)
    with two.scope():
        variable = refdist.Variable(array)
    array[0] = 9.0
    assert host(variable.read_value()) == [1, 2]
    variable.assign(array)
    array[0] = 5.0
    assert host(variable.read_value()) == [9, 2]
    with pytest.raises(ValueError, match="read-only"):
        variable.read_value()[0] = 1.0


def test_losses_slices_and_sums_over_axes(two: Any) -> None:
    def loss(dtype: str) -> Any:
        return refdist.nn.compute_average_loss(refdist.constant([1, 2], dtype), global_batch_size=4)

    assert host(two.run(lambda: loss("float32"))) == [0.75, 0.75]
    assert host(two.run(lambda: loss("int32"))) == [0.75, 0.75]
    assert host(two.run(lambda: refdist.nn.scale_regularization_loss([1.0, 2.0]))) == [1.5, 1.5]
    weighted = two.run(lambda: refdist.nn.compute_average_loss([[1.0], [2.0]], refdist.constant([1.0, 3.0])))
    assert host(weighted) == [1.75, 1.75]
    rows = two.run(lambda: refdist.constant([[1.0, 2.0], [3.0, number() * 1.0]]))
    assert host(two.reduce("MEAN", rows, axis=0)) == [2, 1.25]
    assert host(two.reduce("SUM", rows, axis=(0, 1))) == 13
    slices = two.run(lambda: all_reduce(refdist.IndexedSlices([1.0], [number()], [3])))
    assert [host(part.values) + host(part.indices) for part in slices.values] == [[1, 1, 0, 1]] * 2


def test_a_recording_counts_bytes(two: Any) -> None:
    with refdist.record() as recording:
        two.run(lambda: all_reduce(refdist.constant([1.0, 2.0, 3.0])))
    assert sum(event["bytes"] for event in recording.events if event.kind == "transfer") == 4 * 12 // 2


@pytest.mark.parametrize(("replicas", "total", "mean"), [(1, [[3.0, 4.0]], [1.5, 2.0]), (2, [[10.0, 8.0]], [2.5, 2.0])])
def test_what_comes_from_other_workers_is_the_backend_s(replicas: int, total: Any, mean: Any) -> None:
    def rows() -> Any:
        return refdist.constant([[number() + 1.0, 2.0]])

    def slices() -> Any:
        return refdist.IndexedSlices(rows(), refdist.constant([0]), refdist.constant([1, 2]))

    def program() -> list[Any]:
        refdist.set_backend("apart")
        strategy = refdist.MultiWorkerMirroredStrategy()

        def written(value: Callable[[], Any], aggregation: refdist.VariableAggregation) -> Any:
            with strategy.scope():
                variable = refdist.Variable([[0.0, 0.0]], aggregation=aggregation)
            strategy.run(lambda: variable.assign(value()))
            return variable.read_value()

        value = strategy.run(rows)
        results = [strategy.experimental_local_results(strategy.run(lambda: all_reduce(rows())))[-1],
                   strategy.reduce("SUM", value, axis=None), strategy.reduce("MEAN", value, axis=0),
                   strategy.gather(value, axis=0), strategy.reduce("SUM", strategy.run(slices), axis=None).values,
                   written(rows, SUM), written(slices, refdist.VariableAggregation.ONLY_FIRST_REPLICA)]
        return [host(result) for result in results]

    everything = [[number + 1.0, 2.0] for number in range(2 * replicas)]
    with process.fresh():
        made.value["apart"] = strict_world.Apart()
        by_worker = refdist.simulate_workers(program, 2, replicas_per_worker=replicas)
    assert by_worker == [[total, total, mean, everything, everything, total, [[1.0, 2.0]]]] * 2


def test_a_transport_is_handed_numpy_s_arrays_only() -> None:
    class Inner(Transport):
        size = 2

        def all_gather_object(self, call: Any, value: object) -> list[Any]:
            # As between processes, which know no arrays of another library.
            pickled = pickle.dumps(value)
            assert b"array_api_strict" not in pickled
            return [pickle.loads(pickled)] * 2

    with process.fresh():
        made.value["apart"] = strict_world.Apart()
        refdist.set_backend("apart")
        transport = through_host(Inner(), ["GPU:1"])
        array, call = xp.asarray([1.0, 2.0], dtype=xp.float32), transport.call("a call")
        received = [transport.broadcast(call, array), *transport.all_reduce(call, [[array]]),
                    *transport.all_gather(call, [[array, array]], 0),
                    *[part["rows"][0] for part in transport.all_gather_object(call, {"rows": (array, "text")})]]
        assert [host(array) for array in received] == [[1, 2], [2, 4], [1, 2] * 4, [1, 2], [1, 2]]
        assert {array.device for array in received} == {strict_world.Apart.gpus[1]}
        plain = np.float32([1.0, 2.0])
        assert type(transport.broadcast(call, plain)) is type(transport.all_reduce(call, [[plain]])[0]) is np.ndarray
        assert transport.all_gather_object(call, (plain, "text"))[1][1] == "text"
