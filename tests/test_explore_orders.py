"""`refdist.explore(program, orders=True)`: the order in which replicas have their turns before a rendezvous."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import HANG

import refdist
from refdist import runtime
from refdist.core import seeds
from refdist.errors import RefdistError
from refdist.insight import explorer
from refdist.insight.orders import choices_of

MEAN = refdist.VariableAggregation.MEAN
Step = Callable[[Any, int, list[int]], object]


def program(step: Step, steps: int = 2, replicas: int = 2) -> Callable[[], float]:
    """A program whose replicas call `step` with a variable, their number and a list that they share."""

    def run() -> float:
        random.seed(7)
        strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])
        with strategy.scope():
            weight = refdist.Variable(1.0, name="weight", aggregation=MEAN)
        shared: list[int] = []

        def train() -> None:
            context = refdist.get_replica_context()
            assert context is not None
            step(weight, int(context.replica_id_in_sync_group), shared)

        for _ in range(steps):
            strategy.run(train)
        return float(weight.numpy())

    return run


class Counter:
    def __init__(self) -> None:
        self.rows = 0

    def next(self) -> int:
        self.rows += 1
        return self.rows


def own(weight: Any, replica: int, shared: list[int]) -> None:
    weight.assign_add(float(replica))


def logs(weight: Any, replica: int, shared: list[int]) -> None:
    shared.append(replica)
    weight.assign_add(1.0)


def first_counts(weight: Any, replica: int, shared: list[int]) -> None:
    shared.append(replica)
    weight.assign_add(float(len(shared) * replica))


def draws(weight: Any, replica: int, shared: list[int]) -> None:
    weight.assign_add(random.random() * replica)


def after_a_meeting(weight: Any, replica: int, shared: list[int]) -> None:
    weight.assign_add(1.0)
    shared.append(replica)
    weight.assign_add(float(shared[0]))


def raises(weight: Any, replica: int, shared: list[int]) -> None:
    shared.append(replica)
    assert shared[0] == 0, "the first replica is late"
    weight.assign_add(1.0)


@pytest.mark.parametrize(("step", "title", "changed"), [
    (first_counts, "ORDER OF REPLICAS", "both change shared"), (draws, "ORDER OF REPLICAS", "the state of `random`"),
    (after_a_meeting, "ORDER OF REPLICAS", "both change shared"), (raises, "RAISED", "both change shared"),
])
def test_an_order_that_makes_a_difference_is_found_and_replayed(step: Step, title: str, changed: str) -> None:
    report = refdist.explore(program(step), orders=True)
    [finding] = report.findings
    assert finding.title == title and finding.switches == 1
    assert report.first is not None and report.first <= 10
    assert "replica 1 has its turn before replica 0" in str(finding) and changed in str(finding)
    if changed.endswith("shared"):
        assert f"shared ({__file__}:" in str(finding)
    right, shown = explorer.replay(program(step), finding.choices, orders=True)
    assert not right and shown.startswith(title) and "replica 1 has its turn before replica 0" in shown
    assert explorer.replay(program(step), [], orders=True)[0]
    assert str(report) == str(refdist.explore(program(step), orders=True))


@pytest.mark.parametrize(("step", "orders"), [(own, 1), (logs, 4)])
def test_what_comes_to_the_same_in_every_order_is_proved(step: Step, orders: int) -> None:
    report = refdist.explore(program(step), orders=True, budget="10min")
    assert report.proved and report.classes == orders, report
    assert "proved that it comes to the same in every order of replicas" in str(report)
    assert refdist.explore(program(step), lambda result: result > 0, orders=True, budget="10min").proved


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_of_python_s_in_another_order_is_no_fault(dtype: Any) -> None:
    def run() -> object:
        total = np.zeros(1, dtype)

        def sums(weight: Any, replica: int, shared: list[int]) -> None:
            total[0] += [0.1, 0.2, 0.4][replica]
            weight.assign_add(1.0)

        program(sums, steps=1, replicas=3)()
        return total[0] - dtype(0.5)

    report = refdist.explore(run, orders=True, budget="10min")
    assert report.proved and "2 results" in str(report), report


class Rows(list[int]):
    read = 0


def count_in_a_function() -> Callable[[], float]:
    def count() -> float:
        count.read += 1  # type: ignore[attr-defined]
        return float(count.read)  # type: ignore[attr-defined]

    count.read = 0  # type: ignore[attr-defined]
    return count


def count_in_a_list() -> Callable[[], float]:
    rows = Rows()

    def count() -> float:
        rows.read += 1
        return rows.read

    return count


def count_in_a_set() -> Callable[[], float]:
    counters = {Counter()}
    return lambda: next(iter(counters)).next()


def count_in_a_key() -> Callable[[], float]:
    names = {Counter(): "rows"}
    return lambda: next(iter(names)).next()


class Counting:
    rows = 0

    def count(self) -> float:
        Counting.rows += 1
        return Counting.rows


class Inheriting(Counting):
    pass


def count_in_a_base_class() -> Callable[[], float]:
    Counting.rows = 0
    counter = Inheriting()
    return lambda: counter.count() + 0.0


def read_a_dataset() -> Callable[[], float]:
    rows = iter(refdist.data.Dataset.range(9))
    return lambda: float(next(rows))


def draw_by_a_generator() -> Callable[[], float]:
    generator = refdist.random.Generator.from_seed(1)
    return lambda: float(generator.uniform(()))


def shuffle_by_the_seed() -> Callable[[], float]:
    seeds.of_the_process.value = seeds.Seed(1)
    rows = refdist.data.Dataset.range(100).shuffle(100)
    return lambda: float(next(iter(rows)))


@pytest.mark.parametrize("new_source", [count_in_a_function, count_in_a_list, count_in_a_set, count_in_a_key,
                                        count_in_a_base_class, read_a_dataset, draw_by_a_generator,
                                        shuffle_by_the_seed])
def test_what_replicas_share_is_seen_wherever_it_is_kept(new_source: Callable[[], Callable[[], float]]) -> None:
    def run() -> float:
        first = new_source()()
        source = new_source()
        # In the order of the numbers, and in reverse, it is not replica 1 that comes first.
        return program(lambda weight, replica, _: weight.assign_add(float(source() == first and replica == 1)), 1, 3)()

    with runtime.process.fresh():  # a source may set the seed of the process
        findings = refdist.explore(run, orders=True).findings
    assert [finding.title for finding in findings] == ["ORDER OF REPLICAS"]


@pytest.mark.parametrize(("imports", "inner", "count"), [
    ("import rows", "", "rows.next()"), ("import rows", "", "(rows.add() or rows.read)"),
    ("", "import rows as other", "other.next()"), ("", "from rows import next", "next()"),
    ("import folder.inside", "", "folder.inside.rows.next()"),
])
def test_other_modules_of_a_program_are_seen(imports: str, inner: str, count: str, tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text("""\
read = 0
def add():
    global read
    read += 1
def next():
    add()
    return read
""")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside.py").write_text("import rows")
    (tmp_path / "train.py").write_text(f"""\
import refdist
{imports}
strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2"])
with strategy.scope():
    weight = refdist.Variable(1.0, name="weight", aggregation=refdist.VariableAggregation.MEAN)
def step():
    {inner}
    replica = refdist.get_replica_context().replica_id_in_sync_group
    weight.assign_add(float({count} % 3 == 1 and replica == 1))
strategy.run(step)
""")
    ended = subprocess.run([sys.executable, "-m", "refdist", "explore", "train.py", "--orders"], capture_output=True,
                           text=True, cwd=tmp_path, timeout=HANG)
    assert ended.returncode == 1 and "both change" in ended.stdout, ended


def test_each_replica_s_own_entry_does_not_multiply_the_orders() -> None:
    def step(weight: Any, replica: int, shared: list[int]) -> None:
        entries[replica] = 1
        weight.assign_add(1.0)

    entries = [1, 1]
    assert refdist.explore(program(step, 6), orders=True).classes == 1  # nothing is changed

    def counts(weight: Any, replica: int, shared: list[int]) -> None:
        shared.append(0)
        weight.assign_add(1.0)

    assert refdist.explore(program(counts, 6), orders=True, budget="10min").classes == 1 + 6


@pytest.mark.parametrize("replicas", [3, 4])
def test_no_result_of_all_orders_is_missed(replicas: int) -> None:
    run = program(first_counts, 1, replicas)
    results = set()
    for order in itertools.permutations(range(replicas)):
        explored = explorer._Explorer(run, lambda result: True, "60s", orders=True)
        results.add(str(explored.attempt(explorer._following(choices_of(order))).came))
    report = refdist.explore(run, lambda result: True, orders=True, budget="10min")
    assert report.proved and {result for result, _ in report.results} == results and len(results) > 1


def test_replicas_that_change_nothing_have_one_order_among_them() -> None:
    def step(weight: Any, replica: int, shared: list[int]) -> None:
        if replica == 1:
            shared.append(replica)
        weight.assign_add(float(len(shared)))

    report = refdist.explore(program(step, 1, 4), lambda result: True, orders=True, budget="10min")
    assert report.proved and report.classes == 8  # each of the three others is before it or after it


def test_a_replica_that_changes_something_in_some_orders_only_does_not_commute() -> None:
    def step(weight: Any, replica: int, shared: list[int]) -> None:
        read = list(shared)
        if replica == 1 or (replica == 2 and not shared):
            shared.append(replica)
        weight.assign_add(float(replica == 0 and read == [2]))

    # Replica 2 changes nothing after replica 1, as in the order of the numbers; only [2, 0, 1] makes a difference.
    [finding] = refdist.explore(program(step, 1, 3), orders=True).findings
    assert finding.choices == [2]  # and then those that are left by their numbers


def test_files_and_objects_of_the_program_are_seen(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""\
import refdist
class Rows:
    read = 0
rows = Rows()
rows.read = 0
strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
with strategy.scope():
    weight = refdist.Variable(1.0, name="weight", aggregation=refdist.VariableAggregation.MEAN)
def step():
    replica = refdist.get_replica_context().replica_id_in_sync_group
    rows.read += 1
    weight.assign_add(float(rows.read * replica))
strategy.run(step)
""")
    command = [sys.executable, "-m", "refdist", "explore", str(script), "--orders"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert ended.returncode == 1 and f"both change rows.read ({script}:11)" in ended.stdout, ended
    assert "the result is weight = 1.5; in the order of their numbers, it is weight = 2.0" in ended.stdout
    replayed = subprocess.run([*command, "--choices", "1"], capture_output=True, text=True, timeout=HANG)
    assert replayed.returncode == 1 and "result: weight = 1.5" in replayed.stdout, replayed
    script.write_text(script.read_text().replace("rows.read += 1", 'open("log", "a").write("row")').replace(
        "rows.read *", "open('log').tell() *"))
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=HANG)
    assert ended.returncode == 0, ended
    script.write_text(script.read_text().replace("strategy.run", "open('log', 'w').close()\nstrategy.run").replace(
        "open('log').tell()", "len(open('log').read())"))
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=HANG)
    assert ended.returncode == 1 and "both change the file log" in ended.stdout, ended


def test_what_cannot_be_proved_says_why() -> None:
    lock = threading.Lock()

    def locked(weight: Any, replica: int, shared: list[int]) -> None:
        with lock:
            shared.append(0)
        weight.assign_add(1.0)

    def counts(weight: Any, replica: int, shared: list[int]) -> None:
        shared.append(replica)
        weight.assign_add(1.0)

    assert refdist.explore(program(locked), orders=True).reasons == [
        "what replicas share was not looked into: _thread.lock"]
    assert refdist.explore(lambda: 1.0, orders=True).reasons == ["no function ran on several replicas"]
    workers = refdist.explore(lambda: refdist.simulate_workers(lambda: None, 2), orders=True).reasons
    assert workers == ["no function ran on several replicas"]
    assert "the budget was used up" in refdist.explore(program(counts, 40, 4), orders=True, budget=1.0).reasons


def test_orders_are_explored_alone() -> None:
    with pytest.raises(RefdistError, match=r"RD25.*orders is 3"):
        refdist.explore(program(own), orders=3)  # type: ignore[arg-type]
    with pytest.raises(RefdistError, match=r"RD34.*orders is True, beside faults"):
        refdist.explore(program(own), orders=True, faults="any worker, once")
