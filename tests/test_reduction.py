"""One way for every reduction of a strategy: contributions, plan, backend, transport between workers."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worlds

import refdist
from refdist.array import collectives
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.chapters import Chapter, cases, load
from refdist.conformance.examples import program
from refdist.core import devices
from refdist.insight.events import checked
from refdist.strategies.plans import Plan

GPUS = ["GPU:0", "GPU:1", "GPU:2"]
FULL = tuple(devices.canonical(name) for name in GPUS)
HOME = (devices.canonical("CPU:0"),)
SUM = refdist.ReduceOp.SUM
# Left to right 0.1 + 0.2 + 0.3 is not 0.1 + (0.2 + 0.3), and a third of it is not the sum of the thirds.
NUMBERS = np.float64([0.1, 0.2, 0.3])


def rc() -> Any:
    return refdist.get_replica_context()


def contribution() -> Any:
    return np.full(2, NUMBERS[rc().replica_id_in_sync_group])


def last(strategy: Any, value: Any) -> Any:
    return strategy.experimental_local_results(value)[-1]


def variable(strategy: Any, op: str, **kwargs: Any) -> Any:
    with strategy.scope():
        return refdist.Variable(np.zeros(2), aggregation=refdist.VariableAggregation[op], **kwargs)


def aggregation(strategy: Any, op: str = "SUM") -> Any:
    v = variable(strategy, op)
    strategy.run(lambda: v.assign_add(contribution()))
    assert len({part.numpy().tobytes() for part in v.values}) == 1
    return v.numpy()


def read(strategy: Any, op: str = "SUM") -> Any:
    v = variable(strategy, op, synchronization=refdist.VariableSynchronization.ON_READ)
    strategy.run(lambda: v.assign_add(contribution()))
    return v.read_value()


def to_all(strategy: Any, op: str = "SUM") -> Any:
    value = strategy.run(contribution)
    reduced = strategy.extended.reduce_to(op, value, value)
    assert isinstance(reduced, refdist.Mirrored) == (strategy.num_replicas_in_sync > 1)
    return last(strategy, reduced)


def batch(strategy: Any, op: str = "SUM") -> Any:
    value = strategy.run(contribution)
    [reduced] = strategy.extended.batch_reduce_to(op, [(value, value)])
    return last(strategy, reduced)


def before_a_step(strategy: Any, op: str = "SUM") -> Any:
    reduced: list[Any] = []

    def on_replica() -> None:
        rc()._reduce_then(refdist.ReduceOp[op], {"a": contribution()}, lambda _, results: reduced.append(results["a"]))
    strategy.run(on_replica)
    [result] = reduced
    return result


# What it does, where the result goes, and the hook that a program's own CrossDeviceOps is asked through.
ENTRIES: dict[str, tuple[Callable[..., Any], tuple[str, ...], str]] = {
    "all_reduce": (lambda s, op="SUM": last(s, s.run(lambda: rc().all_reduce(op, contribution()))), FULL, "batch"),
    "all_reduce and a step across replicas": (before_a_step, FULL, "batch"),
    "assign_add": (aggregation, FULL, "one"),
    "ON_READ": (read, HOME, "one"),
    "reduce": (lambda s, op="SUM": s.reduce(op, s.run(contribution), axis=None), HOME, "one"),
    "reduce along": (lambda s, op="SUM": s.reduce(op, s.run(lambda: contribution()[None]), axis=0), HOME, "one"),
    "reduce_to": (to_all, FULL, "one"),
    "batch_reduce_to": (batch, FULL, "batch"),
}
PLANS: dict[str, Callable[[], Plan]] = {
    "one device": refdist.ReductionToOneDevice,
    "another device": lambda: refdist.ReductionToOneDevice("GPU:1"),
    "ring": refdist.NcclAllReduce,
    "hierarchy": refdist.HierarchicalCopyAllReduce,
}


def mirrored(ops: Any) -> Any:
    return refdist.MirroredStrategy(GPUS, cross_device_ops=ops)


@pytest.fixture(params=ENTRIES)
def entry(request: Any) -> Any:
    return ENTRIES[request.param]


@pytest.mark.parametrize("plan", PLANS)
def test_every_way_in_gives_the_bits_of_the_sum_from_left_to_right(entry: Any, plan: str) -> None:
    call, _, _ = entry
    total = (NUMBERS[0] + NUMBERS[1]) + NUMBERS[2]
    for op, expected in ("SUM", total), ("MEAN", total / 3):
        assert call(mirrored(PLANS[plan]()), op).tobytes() == np.full(2, expected).tobytes()
    assert total / 3 != (NUMBERS[0] / 3 + NUMBERS[1] / 3) + NUMBERS[2] / 3


@pytest.mark.parametrize("plan", PLANS)
def test_every_array_of_a_nest_is_reduced_as_one_alone_is(plan: str) -> None:
    strategy = mirrored(PLANS[plan]())
    for op in ("SUM", "MEAN"):
        alone = strategy.run(lambda op=op: rc().all_reduce(op, contribution()))
        nest = strategy.run(lambda op=op: rc().all_reduce(op, {"a": contribution(), "b": [contribution()]}))
        assert {last(strategy, total).tobytes() for total in (alone, nest["a"], nest["b"][0])} == {
            last(strategy, alone).tobytes()}
        assert ENTRIES["reduce"][0](strategy, op).tobytes() == last(strategy, alone).tobytes()


def slices() -> Any:
    return slices_of(rc().replica_id_in_sync_group)


def slices_of(i: int) -> Any:
    return refdist.IndexedSlices(np.full((1, 2), NUMBERS[i]), [0], (1, 2))


def scattered(strategy: Any) -> Any:
    with strategy.scope():
        v = refdist.Variable(np.zeros((1, 2)), aggregation=refdist.VariableAggregation.SUM)
    strategy.run(lambda: v.scatter_add(slices()))
    return v


OF_SLICES: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "all_reduce": (lambda s: last(s, s.run(lambda: rc().all_reduce("SUM", slices()))), FULL),
    "scatter_add": (scattered, FULL),
    "reduce": (lambda s: s.reduce("SUM", s.run(slices), axis=None), HOME),
    "reduce_to": (lambda s: s.extended.reduce_to("SUM", s.run(slices), "CPU:0"), HOME),
    "batch_reduce_to": (lambda s: s.extended.batch_reduce_to("SUM", [(s.run(slices), "CPU:0")])[0], HOME),
}


Moved = dict[str, tuple[int, int]]


def moved(recording: refdist.insight.Recording) -> Moved:
    """What travelled where: how many bytes, in how many pieces."""
    transfers: Moved = {}
    for event in recording.events:
        if event.kind == "transfer":
            way = f"{event['source']} -> {event['destination']}"
            nbytes, times = transfers.get(way, (0, 0))
            transfers[way] = nbytes + event["bytes"], times + event["times"]
    return transfers


def together(moves: Any) -> Moved:
    """The same of (way, bytes) pairs, or of the transfers of a plan."""
    transfers: Moved = {}
    for move in moves:
        way, nbytes = move if len(move) == 2 else (
            f"{devices.short(move.source)} -> {devices.short(move.destination)}", move.nbytes)
        source, _, destination = way.partition(" -> ")
        if nbytes and source != destination:
            before = transfers.get(way, (0, 0))
            transfers[way] = before[0] + nbytes, before[1] + 1
    return transfers


@pytest.mark.parametrize("name", OF_SLICES)
@pytest.mark.parametrize("plan", PLANS)
def test_slices_are_put_one_after_another_by_the_plan(name: str, plan: str) -> None:
    call, destinations = OF_SLICES[name]
    ops = PLANS[plan]()
    with refdist.record() as recording:
        reduced = call(mirrored(ops))
    if isinstance(reduced, refdist.IndexedSlices):
        assert reduced.values.tolist() == [[number] * 2 for number in NUMBERS] and reduced.indices.tolist() == [0, 0, 0]
    else:
        assert reduced.numpy().tolist() == [[(NUMBERS[0] + NUMBERS[1]) + NUMBERS[2]] * 2]
    expected = together(ops.transfers(FULL, destinations, collectives.nbytes(slices_of(0))))
    assert moved(recording) == expected != {}


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("plan", PLANS)
def test_every_way_in_makes_the_transfers_of_the_plan(entry: Any, plan: str, op: str) -> None:
    call, destinations, _ = entry
    ops = PLANS[plan]()
    with refdist.record() as recording:
        call(mirrored(ops), op)
    assert moved(recording) == together(ops.transfers(FULL, destinations, 16)) != {}


# The plan, how many GPUs, and the transfers of 16 bytes between them.
TRANSFERS: list[tuple[Plan, int, list[tuple[str, int]]]] = [
    (refdist.ReductionToOneDevice(), 2, [("GPU:1 -> GPU:0", 16), ("GPU:0 -> GPU:1", 16)]),
    (refdist.ReductionToOneDevice("CPU:0"), 2, [("GPU:0 -> CPU:0", 16), ("GPU:1 -> CPU:0", 16),
                                                ("CPU:0 -> GPU:0", 16), ("CPU:0 -> GPU:1", 16)]),
    (refdist.NcclAllReduce(), 2, [("GPU:0 -> GPU:1", 8), ("GPU:1 -> GPU:0", 8),
                                  ("GPU:0 -> GPU:1", 8), ("GPU:1 -> GPU:0", 8)]),
    (refdist.NcclAllReduce(), 4, [("GPU:0 -> GPU:1", 4), ("GPU:1 -> GPU:2", 4),
                                  ("GPU:2 -> GPU:3", 4), ("GPU:3 -> GPU:0", 4)] * 6),
    (refdist.HierarchicalCopyAllReduce(), 4, [("GPU:1 -> GPU:0", 16), ("GPU:3 -> GPU:2", 16), ("GPU:0 -> GPU:2", 16),
                                              ("GPU:2 -> GPU:0", 16), ("GPU:0 -> GPU:1", 16), ("GPU:2 -> GPU:3", 16)]),
]


@pytest.mark.parametrize(("plan", "count", "expected"), TRANSFERS)
def test_the_transfers_of_the_plans(plan: Plan, count: int, expected: list[tuple[str, int]]) -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)], cross_device_ops=plan)
    with refdist.record() as recording:
        strategy.run(lambda: rc().all_reduce("SUM", np.ones(4, np.float32)))
    assert moved(recording) == together(expected)


def test_every_way_in_accumulates_as_the_plan_was_told(entry: Any) -> None:
    call, _, _ = entry
    ops = refdist.ReductionToOneDevice(accumulation_fn=lambda parts: 100 * sum(parts))
    assert call(mirrored(ops)).tolist() == pytest.approx([60.0, 60.0])
    assert call(mirrored(ops), "MEAN").tolist() == pytest.approx([20.0, 20.0])


def test_every_way_in_gives_the_same_when_it_is_recorded(entry: Any) -> None:
    call, _, _ = entry
    for make in (*PLANS.values(), Own):
        plain = call(mirrored(make()))
        with refdist.record():
            assert call(mirrored(make())).tobytes() == plain.tobytes()


def test_a_value_goes_to_some_devices_only_by_way_of_the_first_one() -> None:
    """A ring has no end: what only one device wants is not passed round."""
    for ops in (refdist.NcclAllReduce(), refdist.HierarchicalCopyAllReduce()):
        assert ops.transfers(FULL, FULL[:1], 8) == refdist.ReductionToOneDevice().transfers(FULL, FULL[:1], 8)


def test_several_values_that_go_everywhere_travel_in_packs() -> None:
    strategy = mirrored(refdist.HierarchicalCopyAllReduce(num_packs=1))
    with refdist.record() as packed:
        strategy.run(lambda: rc().all_reduce("SUM", [contribution(), contribution()]))
    value = strategy.run(contribution)
    with refdist.record() as other:
        strategy.extended.batch_reduce_to("SUM", [(value, value), (value, value)])
    with refdist.record() as direct:
        strategy.extended.reduction.ops.batch_reduce("SUM", [(value, value), (value, value)])

    assert moved(packed) == moved(other) == moved(direct)
    assert set(moved(packed).values()) == {(32, 1)}


def test_what_an_accumulation_function_returns_belongs_to_nobody_else() -> None:
    part = np.zeros(2)
    ops = refdist.ReductionToOneDevice(accumulation_fn=lambda parts: parts[0])
    strategy = mirrored(ops)
    total = strategy.run(lambda: rc().all_reduce("SUM", part)).values[0]
    part += 1
    assert total.tolist() == [0.0, 0.0] and not total.flags.writeable


@pytest.mark.worlds
@pytest.mark.parametrize("chapter", load(), ids=lambda chapter: chapter.name)
def test_recording_changes_no_case_of_the_specification(chapter: Chapter, tmp_path: Path) -> None:
    some = [case for case in worlds.some(cases((chapter,))) if not case.example.parameters]
    with refdist.config.temporary_devices():
        adapter = Simulated()
        plain = [adapter.run(program(case)) for case in some]
        with refdist.insight.record_to(tmp_path / "a"), refdist.record() as recording:
            recorded = [adapter.run(program(case)) for case in some]
    # What a message may name and what is another one each time: the port of a server, and a folder for files.
    varying = rf"127.0.0.1:\d+|{tempfile.gettempdir()}/\w+"
    assert re.sub(varying, "", repr(recorded)) == re.sub(varying, "", repr(plain))
    assert refdist.insight.load(tmp_path / "a").events == [*map(checked, recording.events)]
    for event in recording.events:
        assert json.dumps(event.as_json(), allow_nan=False)


# --- A program's own CrossDeviceOps ----------------------------------------------------------------------------

class Own(refdist.CrossDeviceOps):
    """Adds 1000 to what it is asked for, and says how it was asked."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def reduce_implementation(self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any) -> Any:
        self.calls.append(("one", reduce_op, type(per_replica_value).__name__, options.bytes_per_pack))
        total = refdist.ReductionToOneDevice().reduce(reduce_op, per_replica_value, "CPU:0")
        return total + 1000

    def batch_reduce_implementation(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        results = [self.reduce_implementation(reduce_op, value, destinations, options)
                   for value, destinations in value_destination_pairs]
        self.calls.append(("batch", len(results)))
        return results


def test_a_strategy_reduces_by_the_hooks_of_a_program_s_own_class_wherever_it_reduces(entry: Any) -> None:
    call, _, hook = entry
    ops = Own()
    total = call(mirrored(ops))
    assert total.tolist() == pytest.approx([1000.6, 1000.6])
    asked = [("one", SUM, "PerReplica", 0)]
    assert ops.calls == (asked if hook == "one" else [*asked, ("batch", 1)])
    assert not total.flags.writeable


def test_the_public_methods_check_and_call_the_hooks() -> None:
    value = mirrored(None).run(lambda: refdist.constant(1.0))
    ops = Own()
    assert ops.reduce("sum", value, "CPU:0") == 1003.0
    assert ops.batch_reduce("SUM", [(value, "CPU:0"), (value, value)]) == [1003.0, 1003.0]
    assert ops.reduce("SUM", np.float32(1), "CPU:0") == 1001.0
    assert [call[:3] for call in ops.calls if call[0] == "one"] == [("one", SUM, "PerReplica")] * 4
    before = len(ops.calls)
    for wrong in (lambda: ops.reduce("MAX", value, "CPU:0"), lambda: ops.reduce("SUM", value, 5),
                  lambda: ops.reduce("SUM", mirrored(None).run(lambda: np.ones(1 + rc().replica_id_in_sync_group)),
                                     "CPU:0"),
                  lambda: ops.batch_reduce("SUM", [(value, 5)]), lambda: ops.batch_reduce("SUM", 5)):
        with pytest.raises(refdist.errors.RefdistError):
            wrong()
    assert len(ops.calls) == before


def test_broadcast_has_a_hook_too() -> None:
    class Elsewhere(Own):
        def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
            return super().broadcast_implementation(tensor + 1, destinations)

    assert float(mirrored(Elsewhere()).extended.broadcast_to(1.0, "CPU:0")) == 2.0
    assert float(Elsewhere().broadcast(1.0, "CPU:0")) == 2.0


def test_the_base_class_reduces_nothing_but_broadcasts(entry: Any) -> None:
    call, _, _ = entry
    value = mirrored(None).run(contribution)
    for attempt in (lambda: call(mirrored(refdist.CrossDeviceOps())),
                    lambda: refdist.CrossDeviceOps().reduce("SUM", value, value),
                    lambda: refdist.CrossDeviceOps().batch_reduce("SUM", [(value, value)])):
        with pytest.raises(NotImplementedError, match=r"RD20.*CrossDeviceOps.*implementation"):
            attempt()
    assert float(refdist.CrossDeviceOps().broadcast(1.0, "CPU:0")) == 1.0


@pytest.mark.parametrize("base", [refdist.ReductionToOneDevice, refdist.NcclAllReduce,
                                  refdist.HierarchicalCopyAllReduce])
def test_a_hook_that_replaces_one_of_a_plan_is_asked(base: Any, entry: Any) -> None:
    class Twice(base):  # type: ignore[misc]
        def reduce_implementation(self, *args: Any) -> Any:
            return 2 * self.of(super().reduce_implementation(*args))

        def batch_reduce_implementation(self, *args: Any) -> Any:
            return [2 * self.of(result) for result in refdist.ReductionToOneDevice().batch_reduce(*args)]

        @staticmethod
        def of(result: Any) -> Any:
            return result.values[0] if isinstance(result, refdist.Mirrored) else result

    call, _, _ = entry
    assert call(mirrored(Twice())).tolist() == pytest.approx([1.2, 1.2])


def test_options_reach_the_hooks() -> None:
    ops = Own()
    options = refdist.experimental.CommunicationOptions(bytes_per_pack=7)
    strategy = mirrored(ops)
    strategy.run(lambda: rc().all_reduce("SUM", {"a": contribution()}, options=options))
    value = strategy.run(contribution)
    strategy.extended.reduce_to("SUM", value, "CPU:0", options)
    strategy.extended.batch_reduce_to("SUM", [(value, "CPU:0"), (value, value)], options)
    assert [call[3] for call in ops.calls if call[0] == "one"] == [7] * 4
    assert [call for call in ops.calls if call[0] == "batch"] == [("batch", 1), ("batch", 2)]


@pytest.mark.parametrize("returned", [None, [], [1, 2], [refdist.Mirrored([np.ones(2)] * 2)]])
def test_results_of_hooks_that_do_not_fit_are_refused(returned: Any) -> None:
    class Wrong(Own):
        def batch_reduce_implementation(self, *_: Any) -> Any:
            return returned

    with pytest.raises(ValueError, match=r"RD34.*Wrong.batch_reduce"):
        mirrored(Wrong()).run(lambda: rc().all_reduce("SUM", contribution()))


def test_the_array_that_a_hook_returns_is_copied_unless_nobody_can_change_it() -> None:
    kept = np.zeros(2)

    class Same(Own):
        def batch_reduce_implementation(self, *_: Any) -> Any:
            return [kept]

    total = mirrored(Same()).run(lambda: rc().all_reduce("SUM", contribution())).values[0]
    kept += 1
    assert total.tolist() == [0.0, 0.0]


# --- Values that are the same on all replicas ------------------------------------------------------------------

STRATEGIES: dict[str, Callable[[], Any]] = {
    "default": refdist.get_strategy,
    "one device": lambda: refdist.OneDeviceStrategy("CPU:0"),
    "mirrored 1": lambda: refdist.MirroredStrategy(["CPU:0"]),
    "mirrored 3": lambda: refdist.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"]),
    "central 1": lambda: refdist.experimental.CentralStorageStrategy(["CPU:0"]),
    "central 2": lambda: refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"]),
    "multi-worker": refdist.MultiWorkerMirroredStrategy,
}
MEANS = {"int8": "float32", "uint16": "float32", "int32": "float64", "uint64": "float64", "float16": "float16",
         "float32": "float32", "float64": "float64", "complex64": "complex64"}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("dtype", MEANS)
def test_the_dtype_of_a_mean_depends_on_nothing_but_the_dtype(name: str, dtype: str) -> None:
    strategy = STRATEGIES[name]()
    with strategy.scope():
        v = refdist.Variable(np.array([1, 2], dtype))
    def make(*_: Any) -> Any:
        return np.array([1, 2], dtype)

    values = {"plain": make(), "variable": v, "replicas": strategy.run(make),
              "distributed": strategy.experimental_distribute_values_from_function(make)}
    for kind, value in values.items():
        mean = strategy.reduce("MEAN", value, axis=None)
        # That of OneDeviceStrategy is the value itself.
        expected = dtype if name == "one device" else MEANS[dtype]
        assert (mean.dtype, mean.tolist()) == (expected, [1, 2]), kind
        along = strategy.reduce("MEAN", value, axis=0)
        assert (along.dtype, along.tolist()) == (MEANS[dtype], 1.5), kind
        assert not mean.flags.writeable
        assert strategy.extended.reduce_to("MEAN", value, "CPU:0").dtype == MEANS[dtype], kind
    [on_replica, *_] = strategy.experimental_local_results(strategy.run(
        lambda: rc().all_reduce("MEAN", np.array([1, 2], dtype))))
    assert on_replica.dtype == MEANS[dtype]


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("dtype", [">f4", ">i8", ">c16"])
@pytest.mark.parametrize("shape", [(1,), (2, 3)])
def test_a_reduction_has_the_byte_order_of_the_machine(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    strategy = STRATEGIES[name]()

    def make() -> Any:
        return np.ones(shape, dtype)

    value = strategy.run(make)
    [on_replica, *_] = strategy.experimental_local_results(strategy.run(lambda: rc().all_reduce("SUM", make())))
    reduced = [on_replica, strategy.reduce("SUM", value, axis=None), strategy.reduce("SUM", value, axis=0),
               strategy.reduce("MEAN", value, axis=None), strategy.reduce("MEAN", make(), axis=0)]
    assert all(array.dtype.isnative for array in reduced)
    assert [array.flat[0] for array in reduced] == [strategy.num_replicas_in_sync] * 2 + [
        strategy.num_replicas_in_sync * shape[0], 1, 1]


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("value", [None, "text", np.array([True]), {"a": "b"}, object()])
def test_what_is_not_a_number_has_no_mean_on_any_strategy(name: str, value: Any) -> None:
    with pytest.raises(ValueError if value is None else TypeError, match=r"RD(34|23|25)"):
        STRATEGIES[name]().reduce("MEAN", value, axis=None)


def every_worker(program: Callable[[Any, int], Any], workers: int, replicas: int) -> list[Any]:
    def body() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        return program(strategy, strategy.extended.transport.rank)
    return refdist.simulate_workers(body, workers, replicas)


WORLDS = [(2, 1), (2, 2), (3, 2), (2, 3)]


@pytest.mark.parametrize(("workers", "replicas"), WORLDS)
def test_the_mean_of_a_plain_value_is_the_mean_over_the_workers(workers: int, replicas: int) -> None:
    for axis in (None, 0):
        means = every_worker(lambda s, i, axis=axis: s.reduce("MEAN", np.float64([i, 10.0 * i]), axis=axis),
                             workers, replicas)
        mean = np.mean([[i, 10.0 * i] for i in range(workers)], axis=None if axis == 0 else 0)
        assert [each.tolist() for each in means] == [mean.tolist()] * workers
    assert [str(each.dtype) for each in every_worker(lambda s, i: s.reduce("MEAN", np.int32(i), axis=None),
                                                     workers, replicas)] == ["float64"] * workers


@pytest.mark.parametrize(("workers", "replicas"), WORLDS)
def test_the_sum_of_a_plain_value_is_never_taken_of_one_worker(workers: int, replicas: int) -> None:
    def program(s: Any, i: int) -> Any:
        return s.reduce("SUM", np.float64(i + 1), axis=None)
    if replicas > 1:
        with pytest.raises(ValueError, match="RD16"):
            every_worker(program, workers, replicas)
    else:
        assert every_worker(program, workers, replicas) == [sum(range(workers + 1))] * workers
    along = every_worker(lambda s, i: s.reduce("SUM", np.float64([i + 1]), axis=0), workers, replicas)
    assert along == [sum(range(workers + 1)) * replicas] * workers


@pytest.mark.parametrize(("workers", "replicas"), WORLDS)
def test_gather_of_a_plain_value(workers: int, replicas: int) -> None:
    """It is one contribution of each worker, however many replicas share it; also in a nest, and of a variable."""
    def program(strategy: Any, worker: int) -> Any:
        gathered = strategy.gather({"lengths": np.arange(worker), "same": (np.array([[7, 8]]),)}, axis=-1)
        variable = strategy.gather(refdist.Variable([worker]), axis=0)
        return gathered["lengths"].tolist(), gathered["same"][0].tolist(), variable.tolist()

    lengths = [number for worker in range(workers) for number in range(worker)]
    assert every_worker(program, workers, replicas) == [(lengths, [[7, 8] * workers], [*range(workers)])] * workers
    with pytest.raises(ValueError, match=r"RD07.*Strategy.gather"):
        every_worker(lambda s, i: s.gather(np.ones((1 + i, 2)), axis=1), workers, replicas)


def test_texts_of_any_length_are_gathered() -> None:
    strategy = mirrored(None)
    def text() -> Any:
        return np.array(["ab" * rc().replica_id_in_sync_group])
    assert strategy.gather(strategy.run(text), axis=0).tolist() == ["", "ab", "abab"]
    assert last(strategy, strategy.run(lambda: rc().all_gather(text(), axis=0))).tolist() == ["", "ab", "abab"]
    gathered = every_worker(lambda s, i: s.gather(s.run(text), axis=0).tolist(), 2, 2)
    assert gathered == [["", "ab", "abab", "ababab"]] * 2
    with pytest.raises(ValueError, match=r"RD05.*<U2.*S2"):
        mixed = refdist.PerReplica([np.array(["ab"]), np.array([b"ab"])])
        refdist.MirroredStrategy(GPUS[:2]).gather(mixed, axis=0)


@pytest.mark.parametrize(("workers", "replicas"), WORLDS)
def test_a_mirrored_value_that_differs_between_workers_has_no_mean(workers: int, replicas: int) -> None:
    def program(s: Any, i: int) -> Any:
        with s.scope():
            v = refdist.Variable(0.0)
        value = s.extended.broadcast_to(np.float32(i), v)
        return s.reduce("MEAN", value, axis=None)
    if replicas == 1:  # a single copy is a plain array
        assert every_worker(program, workers, replicas) == [(workers - 1) / 2] * workers
    else:
        with pytest.raises(ValueError, match="RD12"):
            every_worker(program, workers, replicas)
    assert every_worker(lambda s, i: program(s, 5), workers, replicas) == [5.0] * workers


def test_recorded_workers_say_which_replicas_met_and_how_many_bytes_they_contributed() -> None:
    def program(s: Any, i: int) -> Any:
        return s.run(lambda: rc().all_reduce("SUM", [np.float64(i), np.ones(2, np.float32)]))
    with refdist.record() as two_by_two:
        every_worker(program, 2, 2)
    assert met(two_by_two) == [("meet", 0, 0, 16), ("meet", 0, 1, 16), ("exchange", 0, None, 32),
                               ("meet", 1, 2, 16), ("meet", 1, 3, 16), ("exchange", 1, None, 32)]
    with refdist.record() as three_by_one:
        every_worker(program, 3, 1)
    assert met(three_by_one) == [(kind, i, i, 16) for i in range(3) for kind in ("meet", "exchange")]


def met(recording: refdist.insight.Recording) -> list[tuple[str, int, int | None, int]]:
    """Kind, worker, replica and bytes of everything that waits for others."""
    return [(event.kind, event.worker, event.replica, event["bytes"]) for event in recording.events
            if event.kind in ("meet", "exchange")]


@pytest.mark.parametrize(("workers", "replicas"), WORLDS)
def test_workers_make_the_transfers_of_the_plan_among_their_own_devices(workers: int, replicas: int) -> None:
    with refdist.record() as recording:
        every_worker(lambda s, i: s.run(lambda: rc().all_reduce("SUM", np.float64(i))), workers, replicas)
    transfers = moved(recording)
    assert len(transfers) == workers * 2 * (replicas - 1)
    assert set(transfers.values()) <= {(8, 1)}


def test_an_axis_may_be_a_number_of_numpy() -> None:
    strategy = mirrored(None)
    for axis in (np.int64(0), np.array(0)):
        assert strategy.reduce("SUM", strategy.run(contribution), axis=axis) == pytest.approx(1.2)
        assert strategy.reduce("MEAN", strategy.run(contribution), axis=axis) == pytest.approx(0.2)
        assert strategy.gather(strategy.run(contribution), axis=axis).shape == (6,)


# --- Nests -----------------------------------------------------------------------------------------------------

def test_reduce_to_reduces_every_array_of_a_nest() -> None:
    strategy = mirrored(None)
    value = strategy.run(lambda: {"a": contribution(), "b": [contribution()[:1]]})
    reduced = strategy.extended.reduce_to("MEAN", value, "CPU:0")
    assert reduced["a"].tolist() == pytest.approx([0.2, 0.2]) and reduced["b"][0].tolist() == pytest.approx([0.2])
    everywhere = strategy.extended.reduce_to("SUM", value, value["a"])
    assert [type(leaf).__name__ for leaf in (everywhere["a"], everywhere["b"][0])] == ["Mirrored", "Mirrored"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_nest_in_a_batch_is_refused(name: str) -> None:
    strategy = STRATEGIES[name]()
    value = strategy.run(lambda: np.float32(1))
    for nest in ([value, value], {"a": value}, (value,)):
        with pytest.raises(ValueError, match=r"RD34.*batch_reduce_to"):
            strategy.extended.batch_reduce_to("MEAN", [(nest, "CPU:0")])


def test_one_replica_reduces_like_several(entry: Any) -> None:
    call, _, _ = entry
    ops = refdist.ReductionToOneDevice(accumulation_fn=lambda parts: 100 * sum(parts))
    assert call(refdist.MirroredStrategy(GPUS[:1], cross_device_ops=ops)).tolist() == pytest.approx([10.0, 10.0])
    own = Own()
    assert call(refdist.MirroredStrategy(GPUS[:1], cross_device_ops=own)).tolist() == pytest.approx([1000.1, 1000.1])
    assert own.calls
