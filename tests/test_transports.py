"""Transports: their contract, the lone worker's, and those that packages offer, found through their entry points."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import packages
import pytest
import toy_transport
import worlds
from packages import Offer

import refdist
from refdist.conformance.adapters import workers
from refdist.core.rules.options import ReduceOp
from refdist.workers import connection, transport
from refdist.workers.transport import LoneWorker, Transport

ROOT = Path(__file__).parents[1]
TOY = Path(toy_transport.__file__).read_text()
GROUP = connection.TRANSPORTS.group


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Installs a package that offers transports: its name, its module's source, and its entry points."""
    yield from packages.offering(GROUP, tmp_path, monkeypatch)


def launched_by_mpiexec(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_FD", "9")):
        monkeypatch.setenv(name, value)


# Found and chosen.

def test_a_transport_of_a_package_is_found_and_asked_only_where_it_is_named(offer: Offer,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection.TRANSPORTS.names() == ["mpi", "simulated"] and connection.launcher() is None
    offer("refdist-toy", TOY, toy="Toy")
    monkeypatch.setenv("TOY_RANK", "1")
    monkeypatch.setenv("TOY_SIZE", "3")
    assert connection.TRANSPORTS.names() == ["mpi", "simulated", "toy"]
    assert connection.launcher() is None and "refdist_toy" not in sys.modules
    monkeypatch.setenv(connection.VARIABLE, "toy")
    chosen = connection.launcher()
    assert chosen is not None and chosen.__name__ == "Toy" and chosen.group() == (1, 3, "toy processes")
    assert {kind.__name__ for kind in refdist.simulate_workers(connection.launcher, 2)} == {"SimulatedWorker"}


@pytest.mark.parametrize("name", ["mpi", "simulated", "toy"])
def test_a_transport_that_is_named_has_to_have_started_the_process(offer: Offer, monkeypatch: pytest.MonkeyPatch,
                                                                 name: str) -> None:
    offer("refdist-toy", TOY, toy="Toy")
    monkeypatch.setenv(connection.VARIABLE, name)
    if name != "mpi":
        launched_by_mpiexec(monkeypatch)
    for make in (refdist.MirroredStrategy, refdist.MultiWorkerMirroredStrategy):
        with pytest.raises(LookupError, match=rf"\[RD27\] REFDIST_TRANSPORT={name}: this process was not started by "
                           r".*unset REFDIST_TRANSPORT"):
            make()


@pytest.mark.parametrize(("variable", "expected"), [("PMI_FD", "MPITransport"), ("", None)])
def test_the_launcher_of_a_process_is_known_from_its_environment(monkeypatch: pytest.MonkeyPatch, variable: str,
                                                                 expected: str | None) -> None:
    launched_by_mpiexec(monkeypatch)
    if variable != "PMI_FD":
        monkeypatch.delenv("PMI_FD")
    chosen = connection.launcher()
    assert getattr(chosen, "__name__", None) == expected
    if chosen is not None:
        assert chosen.group() == (1, 2, "processes") and not connection.joined()


def test_an_evaluator_among_simulated_workers_is_alone() -> None:
    def program() -> Any:
        if refdist.cluster_resolver.TFConfigClusterResolver().task_id == 1:
            os.environ["TF_CONFIG"] = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}'
            return type(refdist.MultiWorkerMirroredStrategy().extended.transport)
        return "worker"

    assert refdist.simulate_workers(program, 2) == ["worker", LoneWorker]


# What is said of a package that is wrong.

def test_two_packages_that_offer_one_name_are_both_named(offer: Offer) -> None:
    offer("refdist-toy", TOY, toy="Toy")
    offer("other-toy", TOY, toy="Toy", second="Toy")
    with pytest.raises(LookupError, match=r"\[RD27\] transport 'toy': 2 packages offer it: other-toy, refdist-toy\. "
                       r"Uninstall all but one"):
        connection.TRANSPORTS.find("toy")
    assert connection.TRANSPORTS.find("second").__module__ == "other_toy"


CONTRACT = ("from refdist.workers.connection import ConnectableTransport\n"
            "from refdist.workers.transport import Transport\n")


@pytest.mark.parametrize(("source", "point", "message"), [
    ("import refdist_that_is_nowhere", "Toy", r"it cannot be imported: No module named 'refdist_that_is_nowhere'"),
    (TOY, "Tyo", r"it cannot be imported: module 'refdist_toy' has no attribute 'Tyo'\. Correct its entry point, "
     r"refdist_toy:Tyo, or that module\.$"),
    ("Toy = 3", "Toy", r"3 is not a subclass of refdist\.workers\.connection\.ConnectableTransport\. Name the class "
     r"itself in the entry point, as docs/writing-a-transport\.md shows"),
    (TOY + "\nmade = Toy(0, 1, [])", "made", r"<refdist_toy\.Toy object at .*> is not a subclass"),
    (f"{CONTRACT}class Toy(Transport): pass", "Toy", r"<class 'refdist_toy\.Toy'> is not a subclass"),
    (f"{CONTRACT}class Toy(ConnectableTransport): pass", "Toy",
     r"Toy lacks the methods all_gather_object, connect, group\. Implement them"),
])
def test_a_transport_that_cannot_be_used_is_named_with_its_package(
        offer: Offer, monkeypatch: pytest.MonkeyPatch, source: str, point: str, message: str) -> None:
    offer("refdist-toy", source, toy=point)
    monkeypatch.setenv(connection.VARIABLE, "toy")
    with pytest.raises(LookupError, match=rf"\[RD27\] transport 'toy' of refdist-toy: {message}"):
        refdist.MultiWorkerMirroredStrategy()
    assert refdist.simulate_workers(lambda: refdist.MultiWorkerMirroredStrategy().num_replicas_in_sync, 2) == [2, 2]


def test_a_name_that_no_package_offers_is_said_with_those_there_are(offer: Offer,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    offer("refdist-toy", TOY, toy="Toy")
    monkeypatch.setenv(connection.VARIABLE, "tyo")
    with pytest.raises(LookupError, match=r"\[RD27\] transport 'tyo': no transport has this name\. The transports here "
                       r"are mpi, simulated, toy"):
        refdist.MultiWorkerMirroredStrategy()


def test_a_built_in_transport_cannot_be_replaced(offer: Offer) -> None:
    offer("refdist-toy", TOY, simulated="Toy", mpi="Toy")
    assert connection.TRANSPORTS.names() == ["mpi", "simulated"]
    for name in connection.BUILT_IN:
        assert connection.TRANSPORTS.find(name).__module__.startswith("refdist.backends.")


# One that is not refdist's own.

@pytest.mark.slow
@pytest.mark.worlds
@pytest.mark.xdist_group("machine")
def test_a_toy_transport_conforms(offer: Offer) -> None:
    assert len(TOY.splitlines()) <= 150
    site = offer("refdist-toy", TOY, toy="Toy")
    for count in (2, 3):
        done = toy_transport.launch(
            count, "-W", "ignore", "-m", "refdist.conformance.adapters.workers", *worlds.clauses("MultiWorker"),
            PYTHONPATH=os.pathsep.join([str(site), str(ROOT)]))
        assert [process.returncode for process in done] == [0] * count, [process.stderr for process in done]
        words = done[0].stdout.split()
        assert words[:2] == [str(count), "processes:"] and "failed" not in words, done[0]
        assert int(words[words.index("passed") - 1]) >= 4, done[0]


def test_the_suite_fails_where_it_has_no_case_for_the_workers(monkeypatch: pytest.MonkeyPatch,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["workers"])
    for count in (5, 6):
        assert refdist.simulate_workers(workers.main, count) == [1] * count
        printed = capsys.readouterr()
        assert f"no case has {count} workers" in printed.err and ", with the launcher" in printed.err
        assert not printed.out


@pytest.mark.parametrize(("returned", "message"), [
    ("None", "None"), ("object.__new__(cls)", "worker 0 of 1"), ("cls(0, 2, [])", "worker 0 of 2"),
    ("cls(1, 3, [])", "worker 1 of 3"),
])
def test_a_transport_has_to_be_for_the_workers_of_its_group(offer: Offer, monkeypatch: pytest.MonkeyPatch,
                                                            returned: str, message: str) -> None:
    offer("refdist-toy", f"{TOY}\nToy.connect = classmethod(lambda cls, timeout: {returned})\n", toy="Toy")
    for name, value in (("TOY_RANK", "1"), ("TOY_SIZE", "2"), (connection.VARIABLE, "toy")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=rf"\[RD27\] Toy\.connect: it returned {message}, and group\(\) worker 1 of 2"
                       r"\. Return a transport with the rank and size of the group\."):
        refdist.MultiWorkerMirroredStrategy()
    assert not connection.joined()


@pytest.mark.slow
@pytest.mark.parametrize(("program", "code"), [
    ("me().all_reduce('SUM', 1.0) if rank else me().all_gather(np.zeros(1, np.float32), 0)", "RD02"),
    ("me().all_reduce('SUM', np.zeros(rank, np.float32))", "RD04"),
    ("me().all_reduce('SUM', 1.0) if rank else me().all_reduce('SUM', 1.0)", "RD06"),
    ("me().all_reduce('SUM', 1.0) if rank else None", "RD01"),
])
def test_workers_of_a_toy_transport_that_do_not_meet_are_told(offer: Offer, program: str, code: str) -> None:
    site = offer("refdist-toy", TOY, toy="Toy")
    source = ("import numpy as np, refdist\nme = refdist.get_replica_context\n"
              "s = refdist.MultiWorkerMirroredStrategy()\nrank = s.extended.transport.rank\n"
              f"s.run(lambda: {program})\n")
    first, second = toy_transport.launch(2, "-c", source, PYTHONPATH=os.pathsep.join([str(site), str(ROOT)]))
    assert f"[{code}]" in second.stderr
    assert code == "RD01" or f"[{code}]" in first.stderr


def test_a_program_that_trains_a_model_in_every_process_is_warned(offer: Offer,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    offer("refdist-toy", TOY, toy="Toy")
    for name, value in (("TOY_RANK", "0"), ("TOY_SIZE", "2"), (connection.VARIABLE, "toy")):
        monkeypatch.setenv(name, value)
    with pytest.warns(UserWarning, match="^2 toy processes train 2 models"):
        refdist.MirroredStrategy(["GPU:0", "GPU:1"])


@pytest.mark.slow
def test_a_program_that_has_connected_is_not_warned(offer: Offer) -> None:
    site = offer("refdist-toy", TOY, toy="Toy")
    source = "import refdist; refdist.MultiWorkerMirroredStrategy(); refdist.MirroredStrategy(['GPU:0', 'GPU:1'])"
    for done in toy_transport.launch(2, "-W", "error::UserWarning", "-c", source,
                                     PYTHONPATH=os.pathsep.join([str(site), str(ROOT)])):
        assert done.returncode == 0, done.stderr


# The contract.

class Pair(Transport):
    """Two workers of which this one plays both: what the verbs are defined as."""

    rank, size = 0, 2

    def __init__(self, *others: Any) -> None:
        self._others = list(others)

    def all_gather_object(self, call: Any, value: Any) -> list[Any]:
        return [value, self._others.pop(0)]


def test_the_verbs_are_defined_by_all_gather_object() -> None:
    first, second = np.float32([1e8, 2]), np.float32([1, 2])
    call = Pair().call("a call")
    [total] = Pair([[-first]]).all_reduce(call, [[first, second]])
    assert total.tolist() == [0, 2] and not total.flags.writeable
    [joined] = Pair([[first[:1]]]).all_gather(call, [[first, second]], 0)
    assert joined.tolist() == [1e8, 2, 1, 2, 1e8] and not joined.flags.writeable
    assert not Pair(second).broadcast(call, first.copy()).flags.writeable
    pair = Pair(second)
    assert pair.broadcast(call, first.copy()).tolist() == first.tolist()
    with pytest.raises(ValueError, match=r"\[RD12\] a call \(.*\): worker 0 has one, worker 1 has another"):
        Pair(([0], "another")).check_same_bits(call, first, lambda value: "one")


def test_slices_travel_as_their_two_leaves() -> None:
    def slices(row: float, index: int) -> Any:
        return refdist.IndexedSlices([[row]], [index], [4, 1])

    call = Pair().call("a call")
    pair = Pair([[np.float32([7])]], [[np.float32([[6]])], [np.int32([2])]])
    dense, sparse = transport.reduce(pair, call, ReduceOp.MEAN, [[np.float32([1])], [slices(2.0, 3)]], 2)
    assert dense.tolist() == [4]
    assert (sparse.values.tolist(), sparse.indices.tolist()) == ([[1], [3]], [3, 2])

    def program(row: int, index: int) -> None:
        together = refdist.MultiWorkerMirroredStrategy().extended.transport
        own = slices(2.0 + row * together.rank, 3 - index * together.rank)
        together.check_same_bits(together.call("a call", like=own), own, str)

    refdist.simulate_workers(lambda: program(0, 0), 2)
    for differs in ((1, 0), (0, 1)):
        with pytest.raises(ValueError, match=r"\[RD12\] a call .*: worker 0 has IndexedSlices.*, worker 1 has"):
            refdist.simulate_workers(lambda differs=differs: program(*differs), 2)


def test_a_lone_worker_compares_nothing_and_leaves_its_arrays_to_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, arrays = LoneWorker(), [np.float32([1]), np.float32([2])]
    monkeypatch.setattr("refdist.core.call_site.of", lambda frame: pytest.fail("looked for the line of a call"))
    call = alone.call("a call", "v", ReduceOp.SUM, like=arrays[0])
    backend = refdist.array.backend.current_backend()
    monkeypatch.setattr(backend, "sum", lambda column: ("sum", column), raising=False)
    monkeypatch.setattr(backend, "concatenate", lambda column, axis: ("concatenate", column, axis), raising=False)
    assert alone.all_reduce(call, [arrays]) == [("sum", arrays)]
    assert alone.all_gather(call, [arrays], 0) == [("concatenate", arrays, 0)]
    assert alone.broadcast(call, arrays[0]) is arrays[0]
    assert alone.check_same_bits(call, arrays[0], lambda value: pytest.fail("made a text")) is None
    assert alone.layout(["CPU:0"] * 3).total == 3


def test_with_one_worker_callers_go_through_the_lone_worker_s_verbs(monkeypatch: pytest.MonkeyPatch,
                                                                    tmp_path: Path) -> None:
    names = ("all_gather_object", "all_reduce", "all_gather", "broadcast", "check_same_bits", "call")
    used: set[str] = set()

    def watched(name: str, verb: Any) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            used.add(name)
            return verb(*args, **kwargs)
        return noted

    for name in names:
        monkeypatch.setattr(LoneWorker, name, watched(name, getattr(LoneWorker, name)))
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        v = refdist.Variable(1.0)
    assert used == {"call", "broadcast"}
    v.assign(2.0)
    assert used == {"call", "broadcast", "check_same_bits"}
    assert strategy.reduce("MEAN", 1.0, axis=None) == 1
    assert strategy.gather(strategy.run(lambda: np.zeros(2)), 0).tolist() == [0, 0, 0, 0]
    next(iter(strategy.experimental_distribute_dataset(refdist.data.Dataset.range(2).batch(2))))
    refdist.train.Checkpoint(v=v).write(str(tmp_path / "it"))
    assert used == set(names)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_recording_has_the_transfers_inside_each_worker(workers: int) -> None:
    def gather(strategy: Any) -> None:
        strategy.gather(strategy.run(lambda: np.zeros(2, np.float32)), 0)

    def all_reduce(strategy: Any) -> None:
        strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.float32([1])))

    for act, nbytes in ((gather, 8), (all_reduce, 4)):
        with refdist.record() as recording:
            refdist.simulate_workers(lambda act=act: act(refdist.MultiWorkerMirroredStrategy()), workers, 2)
        transfers = sorted((event.worker, event["source"], event["destination"], event["bytes"])
                           for event in recording.events if event.kind == "transfer")
        assert transfers == [(worker, f"worker:{worker} GPU:{gpu}", f"worker:{worker} GPU:{1 - gpu}", nbytes)
                             for worker in range(workers) for gpu in range(2)]
