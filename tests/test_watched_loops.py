"""What is remarked on in a training loop: variables of one step, no steps, no end; swaps and iterators, where asked."""

from __future__ import annotations

import contextvars
import functools
import subprocess
import sys
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from endless_loops import ENDING, ENDLESS
from greenlet import greenlet

import refdist
from refdist import errors
from refdist.data import Dataset
from refdist.runtime import process

STRATEGY: Any = None
FILES = [__file__, str(Path(__file__).with_name("conftest.py"))]


def rows(count: int = 4, batch: int = 2) -> Dataset:
    return Dataset.range(count).map(np.float32).batch(batch)


def distributed(dataset: Any) -> Any:
    return STRATEGY.experimental_distribute_dataset(dataset)


def add(value: Any) -> Any:
    return refdist.get_replica_context().all_reduce("SUM", value)


def rank() -> int:
    return int(refdist.get_replica_context().replica_id_in_sync_group)


def remarks(program: Callable[[], object], watch: bool = False) -> list[tuple[str, str]]:
    """The warnings with a code, each with its line, of a program in a process of its own."""
    global STRATEGY
    with process.fresh(), refdist.config.checks(watch=watch), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        STRATEGY = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        program()
    return [(str(warning.message), Path(warning.filename).read_text().splitlines()[warning.lineno - 1].strip())
            for warning in given if issubclass(warning.category, errors.DifferenceWarning)]


def codes(program: Callable[[], object], watch: bool = False) -> list[str]:
    return [message[1:5] for message, _ in remarks(program, watch)]


# --- Wrong -----------------------------------------------------------------------------------------------------


def variable_in_a_step() -> None:
    def step() -> Any:
        return refdist.Variable(0.0).assign_add(1.0)

    for _ in range(5):
        STRATEGY.run(step)


def variable_in_a_step_of_one_replica() -> None:
    strategy = refdist.OneDeviceStrategy("CPU:0")
    for _ in range(5):
        strategy.run(lambda: refdist.Variable(0.0))


def all_of_a_batch_dropped() -> None:
    batches = distributed(Dataset.range(3).batch(4, drop_remainder=True))
    for _ in batches:
        pass


def nothing_left() -> None:
    for _ in distributed(rows().filter(lambda x: False)):
        pass


def generator_read_before() -> None:
    numbers = (np.float32([i, i]) for i in range(4))
    batches = distributed(Dataset.from_generator(lambda: numbers, output_signature=refdist.TensorSpec((2,))))
    for _ in range(3):
        for _ in batches:
            pass


def iterator_at_its_end() -> None:
    iterator = iter(distributed(rows()))
    for _ in range(3):
        for _ in iterator:
            pass


def too_few_rows() -> None:
    batches = distributed(rows(1, 1))
    list(batches)


def sharded_twice() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        dataset = Dataset.range(8).shard(2, strategy.cluster_resolver.task_id).batch(4)
        strategy.experimental_distribute_dataset(dataset)

    refdist.simulate_workers(program, 2, 1)


def swapped() -> None:
    def step() -> None:
        parts = {"loss": np.float32(1), "accuracy": np.float32(10)}
        for name in sorted(parts, reverse=bool(rank())):
            add(parts[name])

    STRATEGY.run(step)


def swapped_in_a_helper() -> None:
    def step() -> Any:
        parts = [("loss", 1), ("accuracy", 10)]
        return [add(np.float32(value)) for name, value in (parts if rank() else parts[::-1])]

    STRATEGY.run(step)


def iterator_in_every_step() -> None:
    batches = distributed(rows())
    for _ in range(4):
        STRATEGY.run(add, (next(iter(batches)),))


def shared_array_added() -> None:
    shared = np.float32([2, 3])
    STRATEGY.run(lambda: add(shared))


WRONG: list[tuple[Callable[[], None], str, str, str]] = [
    (variable_in_a_step, "RD44", "each of the last 3 runs has made one", "return refdist.Variable(0.0)"),
    (variable_in_a_step_of_one_replica, "RD44", "each of the last 3 runs", "strategy.run(lambda: refdist.Variable("),
    (all_of_a_batch_dropped, "RD45", "no batch has all of its 4 rows", "STRATEGY.experimental_distribute_dataset("),
    (nothing_left, "RD45", "it has no element", "for _ in distributed(rows().filter("),
    (generator_read_before, "RD45", "it has no element", "for _ in batches:"),
    (iterator_at_its_end, "RD45", "has come to the end of this iterator before", "for _ in iterator:"),
    (too_few_rows, "RD46", "replica 1 gets no row of a full batch", "STRATEGY.experimental_distribute_dataset("),
    (sharded_twice, "RD50", "one of 2 shards already, that of this worker",
     "strategy.experimental_distribute_dataset(dataset)"),
]
ASKED: list[tuple[Callable[[], None], str, str, str]] = [
    (swapped, "RD48", "replica 0 with name = 'accuracy'; replica 1 with name = 'loss'; and later", "all_reduce("),
    (swapped_in_a_helper, "RD48", "replica 0 with name = 'accuracy'; replica 1 with name = 'loss'",
     "all_reduce("),
    (iterator_in_every_step, "RD49", "this line makes a new iterator in every step",
     "STRATEGY.run(add, (next(iter(batches)),))"),
    (shared_array_added, "RD37", "one and the same array, which is counted 2 times", "all_reduce("),
]


@pytest.mark.parametrize(("program", "code", "text", "line"), WRONG + ASKED, ids=lambda item: getattr(
    item, "__name__", ""))
def test_a_mistake_is_told_of_once_at_its_line(program: Callable[[], None], code: str, text: str, line: str) -> None:
    given = remarks(program, watch=(program, code, text, line) in ASKED)
    [(message, at)] = dict.fromkeys(given)
    assert message.startswith(f"[{code}] ") and text in message and line in at, given
    assert len(given) == (2 if program is sharded_twice else 1)  # each worker for itself


def split_by_numbers() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        for part in (Dataset.range(8).shard(2, 0), Dataset.range(8).shard(num_shards=2, index=1)):
            strategy.experimental_distribute_dataset(part.batch(4))

    refdist.simulate_workers(program, 2, 1)


def another_worker_s_shard() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        other = 1 - strategy.cluster_resolver.task_id
        strategy.experimental_distribute_dataset(Dataset.range(8).shard(2, other).batch(4))

    refdist.simulate_workers(program, 2, 1)


@pytest.mark.parametrize("program", [split_by_numbers, another_worker_s_shard], ids=lambda value: value.__name__)
def test_a_shard_that_is_not_this_worker_s_is_a_split(program: Callable[[], None]) -> None:
    assert codes(program) == []


@pytest.mark.parametrize("program", [program for program, *_ in ASKED], ids=lambda value: value.__name__)
def test_what_is_not_asked_for_is_not_told(program: Callable[[], None]) -> None:
    assert codes(program) == []


class Enough(Exception):
    """Ends a loop from outside."""


def steps(loop: Callable[[Any, Callable[[], None]], None], dataset: Dataset, count: int) -> list[str]:
    """The remarks on a loop that is ended after so many steps."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == count:
            raise Enough

    def program() -> None:
        # No caller of the loop catches anything.
        outermost = greenlet(functools.partial(loop, distributed(dataset), step))
        outermost.gr_context = contextvars.copy_context()
        with pytest.raises(Enough):
            outermost.switch()

    return [message for message, _ in remarks(program)]


@pytest.mark.parametrize("loop", ENDLESS, ids=lambda value: value.__name__)
def test_a_loop_that_never_ends_is_told_of_after_ten_epochs(loop: Callable[[Any, Callable[[], None]], None]) -> None:
    for dataset in (rows().repeat(), Dataset.range(4).repeat().shuffle(4).batch(2).prefetch(1),
                    rows().repeat().map(lambda x: x)):
        assert steps(loop, dataset, 19) == []
        [message] = steps(loop, dataset, 50)
        assert "[RD47]" in message and "this is step 20, an epoch has about 2" in message
    for dataset in (rows().repeat(100), rows().repeat().take(100), rows().repeat().filter(lambda x: True)):
        assert steps(loop, dataset, 50) == []


@pytest.mark.parametrize("loop", ENDING, ids=lambda value: value.__name__)
def test_a_loop_that_may_end_is_left_alone(loop: Callable[[Any, Callable[[], None]], None]) -> None:
    assert steps(loop, rows().repeat(), 50) == []


def in_a_file_that_catches_errors(batches: Any, step: Callable[[], None]) -> None:
    for _ in batches:
        step()


def called_by_a_file_that_catches_errors(batches: Any, step: Callable[[], None]) -> None:
    ENDLESS[0](batches, step)


@pytest.mark.parametrize("loop", [in_a_file_that_catches_errors, called_by_a_file_that_catches_errors])
def test_a_loop_that_an_error_may_end_is_left_alone(loop: Callable[[Any, Callable[[], None]], None]) -> None:
    assert "pytest.raises" in Path(__file__).read_text()
    assert steps(loop, rows().repeat(), 50) == []


# --- Right -----------------------------------------------------------------------------------------------------


def variables_made_once() -> None:
    made: dict[str, Any] = {}

    def step(name: str) -> None:
        if name not in made:
            made[name] = [refdist.Variable(float(i), name=name) for i in range(5)]
        made[name][0].assign_add(1.0)

    for name in ("a", "b", "c", "a", "b", "c"):
        STRATEGY.run(step, (name,))


def models_made_one_after_another() -> None:
    for _ in range(5):
        made: list[Any] = []
        STRATEGY.run(lambda made=made: made.append(refdist.Variable(0.0)))
        STRATEGY.run(lambda made=made: made[0].assign_add(1.0))


def strategies_made_one_after_another() -> None:
    for _ in range(5):
        refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(lambda: refdist.Variable(0.0))


def an_ensemble() -> None:
    models: list[Any] = []
    for _ in range(5):
        STRATEGY.run(lambda: models.append(refdist.Variable(0.0)))


def trained_in_one_run() -> None:
    def fit(rate: float) -> Any:
        w = refdist.Variable(1.0, aggregation=refdist.VariableAggregation.MEAN)
        for _ in range(3):
            w.assign_sub(rate * w.read_value())
        return w.read_value()

    for rate in (0.1, 0.2, 0.3, 0.4):
        STRATEGY.run(fit, (rate,))


def nothing_left_to_do() -> None:
    for dataset in (rows().skip(2), rows().take(0)):
        for _ in distributed(dataset):
            pass


def the_rest_of_an_iterator() -> None:
    iterator = iter(distributed(rows()))
    for _ in iterator:
        pass
    for _ in iterator:
        pass


def a_look_in_each_epoch() -> None:
    batches, held_out = distributed(rows(20)), distributed(rows())
    for _ in range(4):
        for x in batches:
            STRATEGY.run(add, (x,))
        next(iter(held_out))


def a_batch_at_random() -> None:
    batches = distributed(Dataset.range(40).map(np.float32).shuffle(40, seed=1).batch(4))
    for _ in range(4):
        STRATEGY.run(add, (next(iter(batches)),))


def rows_in_an_order_of_its_own() -> None:
    def step() -> None:
        for i in (range(3), range(2, -1, -1))[rank()]:
            add(np.float32(i))

    STRATEGY.run(step)


def files_in_an_order_of_its_own() -> None:
    def step() -> None:
        for file in (FILES, FILES[::-1])[rank()]:
            add(np.float32(len(file)))

    STRATEGY.run(step)


def a_loss_that_is_scaled() -> None:
    def step(scale: float) -> Any:
        gradient = add(np.float32(np.inf) if scale > 4 else np.float32(scale))
        return gradient if np.isfinite(gradient) else None

    for scale in (8.0, 4.0):
        STRATEGY.run(step, (scale,))


def epochs_and_a_look() -> None:
    batches = distributed(rows())
    next(iter(batches))
    for _ in range(4):
        for x in batches:
            STRATEGY.run(add, (x,))
    epochs = distributed(rows(2, 2))
    for _ in range(4):
        for x in epochs:
            STRATEGY.run(add, (x,))


def the_first_steps_of_each_epoch() -> None:
    batches = distributed(rows(6))
    for _ in range(4):
        for x in islice(batches, 2):
            STRATEGY.run(add, (x,))


def one_iterator() -> None:
    iterator = iter(distributed(rows()))
    for x in iterator:
        STRATEGY.run(add, (x,))
        break
    for x in iterator:
        STRATEGY.run(add, (x,))
    assert not iterator.get_next_as_optional().has_value()
    assert next(iterator, None) is None


def one_order() -> None:
    def step() -> None:
        parts = {"loss": np.float32(rank()), "accuracy": np.float32(10)}
        for name in sorted(parts):
            add(parts[name])
        for i in range(2):
            add(np.float32(i))

    STRATEGY.run(step)


def rows_of_each_replica() -> None:
    def step() -> None:
        for row in [[0, 1], [2, 3]][rank()]:
            add(np.float32(row))

    STRATEGY.run(step)


def counted() -> None:
    scalar, shared = np.float32(1), np.float32([2, 3])
    STRATEGY.run(lambda: [add(scalar), add(shared.copy()), refdist.get_replica_context().all_reduce("MEAN", shared)])


@pytest.mark.parametrize("program", [
    variables_made_once, models_made_one_after_another, strategies_made_one_after_another, epochs_and_a_look,
    the_first_steps_of_each_epoch, one_iterator, one_order, rows_of_each_replica, counted, an_ensemble,
    trained_in_one_run, nothing_left_to_do, the_rest_of_an_iterator, a_look_in_each_epoch, a_batch_at_random,
    rows_in_an_order_of_its_own, files_in_an_order_of_its_own, a_loss_that_is_scaled],
    ids=lambda value: value.__name__)
def test_what_is_meant_is_not_told_of(program: Callable[[], None]) -> None:
    assert codes(program, watch=True) == []


def test_a_comment_silences_a_watch() -> None:
    def step() -> Any:
        return refdist.Variable(0.0)  # refdist: ignore[RD44]

    assert codes(lambda: [STRATEGY.run(step) for _ in range(4)]) == []


@pytest.mark.parametrize("wrong", [{"watch": 1}, {"types": "yes"}])
def test_a_check_is_switched_by_a_bool(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"RD25.*{next(iter(wrong))} is"):
        refdist.config.checks(**wrong)


def test_a_check_that_is_not_named_stays_as_it_is() -> None:
    def program() -> None:
        with refdist.config.checks(types=False), refdist.config.checks():
            swapped()

    assert codes(program, watch=True) == ["RD48"]
    assert codes(program) == []


@pytest.mark.slow
def test_the_environment_asks(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import numpy as np, refdist\nx = np.float32([2, 3])\n"
                      "refdist.MirroredStrategy(['GPU:0', 'GPU:1'])"
                      ".run(lambda: refdist.get_replica_context().all_reduce('SUM', x))\n")
    codes = {}
    for asked in ("", "watch", "first,watch", "watch,types", "watched"):
        done = subprocess.run([sys.executable, str(script)], env={"REFDIST_CHECKS": asked}, capture_output=True,
                              text=True)
        codes[asked] = [code for code in ("RD37", "RD34") if code in done.stderr]
    assert codes == {"": [], "watch": ["RD37"], "first,watch": ["RD37"], "watch,types": ["RD37"], "watched": ["RD34"]}
