"""The advice at the end of each error, followed to the letter: the program then runs, with the right numbers.

A row is a broken program, the words of the advice in its error, the program with that advice carried out and nothing
else changed, and what it has to come to, worked out by hand.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import refdist
from refdist import VariableAggregation, VariableSynchronization, errors, nest
from refdist.core.rules import advice
from refdist.data import Dataset, TFRecordDataset
from refdist.data.experimental import AutoShardPolicy
from refdist.train import Checkpoint

TWO = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
SUM, MEAN, FIRST = VariableAggregation.SUM, VariableAggregation.MEAN, VariableAggregation.ONLY_FIRST_REPLICA
ON_READ = VariableSynchronization.ON_READ


class Advice(NamedTuple):
    code: str
    text: str
    broken: Callable[[], Any]
    followed: Callable[[], Any]
    wanted: Any


def context() -> Any:
    return refdist.get_replica_context()


def rank() -> int:
    return int(context().replica_id_in_sync_group)


def number() -> float:
    return float(1 + 2 * rank())  # 1 on replica 0, 3 on replica 1


def run(step: Callable[..., Any], *args: Any) -> list[Any]:
    return list(TWO.experimental_local_results(TWO.run(step, args)))


def total(value: Any) -> Any:
    return context().all_reduce("SUM", value)


def per_replica() -> Any:
    return TWO.run(lambda: refdist.constant(number()))


def rows() -> Any:
    return TWO.run(lambda: np.arange(1.0, rank() + 2))  # [1] and [1, 2]


def made(value: Any = 0.0, **kwargs: Any) -> Any:
    with TWO.scope():
        return refdist.Variable(value, **kwargs)


def after(v: Any, write: Callable[[Any], Any]) -> Any:
    """The value of a variable after a write in replicas."""
    TWO.run(lambda: write(v))
    return v.read_value()


def swapped() -> Any:
    first, second = (lambda: total(number())), (lambda: total(10 * number()))
    return (first(), second()) if rank() else (second(), first())


def on_workers(policy: AutoShardPolicy) -> Any:
    def worker() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        options = refdist.data.Options()
        options.experimental_distribute.auto_shard_policy = policy
        dataset = Dataset.range(4).batch(2).with_options(options)
        return sum(float(np.sum(strategy.reduce("SUM", x, axis=0)))
                   for x in strategy.experimental_distribute_dataset(dataset))

    return refdist.simulate_workers(worker, 2)[0]


def clustered(text: str) -> Any:
    before = os.environ.get("TF_CONFIG")
    os.environ["TF_CONFIG"] = text
    try:
        return refdist.cluster_resolver.TFConfigClusterResolver().task_id
    finally:
        os.environ.pop("TF_CONFIG") if before is None else os.environ.update(TF_CONFIG=before)


def coordinated() -> tuple[Any, Any]:
    spec = refdist.train.ClusterSpec({"worker": ["w:1"], "ps": ["p:1"]})
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
    return strategy, refdist.coordinator.ClusterCoordinator(strategy)


def dropped(again: bool) -> Any:
    _, coordinator = coordinated()

    def fail() -> None:
        raise KeyError

    coordinator.schedule(fail)
    late = coordinator.schedule(lambda: refdist.constant(2.0))
    with pytest.raises(KeyError):
        coordinator.join()
    if again:
        late = coordinator.schedule(lambda: refdist.constant(2.0))
    return late.fetch()


def server(folder: Path, again: bool) -> Any:
    strategy, _ = coordinated()
    with strategy.scope():
        v = refdist.Variable(3.0)
    path = Checkpoint(v=v).write(folder / "model")
    strategy.extended.lost.add(0)
    if again:
        strategy, _ = coordinated()
        with strategy.scope():
            v = refdist.Variable(0.0)
        Checkpoint(v=v).read(path).assert_consumed()
    return v.read_value()


def caught(kind: type[BaseException]) -> Any:
    seen: list[str] = []

    def step() -> None:
        if rank():
            raise KeyError
        try:
            total(1.0)
        except kind:
            try:
                total(1.0)
            except errors.RefdistError as error:
                seen.append(str(error))
                raise

    with pytest.raises(KeyError):
        TWO.run(step)
    if seen:
        raise errors.InvalidContextError(seen[0], "RD22")
    return len(seen)


def records(folder: Path, cut: bool) -> Any:
    path = folder / "rows"
    with refdist.data.TFRecordWriter(str(path)) as writer:
        for text in (b"abc", b"de"):
            writer.write(text)
    if cut:
        os.truncate(path, 25)
    return [len(bytes(np.asarray(row).item())) for row in TFRecordDataset(str(path))]


def restored(folder: Path, name: str) -> Any:
    path = Checkpoint(w=refdist.Variable(3.0)).write(folder / "model")
    v = refdist.Variable(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Checkpoint(**{name: v}).read(path).assert_consumed()
    return v.read_value()


def last_of(dataset: Any) -> Any:
    iterator = iter(TWO.experimental_distribute_dataset(dataset))
    iterator.get_next()
    return TWO.reduce("SUM", iterator.get_next(), axis=0)


def foreign(strategy: Any) -> Any:
    with TWO.scope():
        return strategy.reduce("SUM", strategy.run(number), axis=None)


def updated(values: Callable[[Any], Any]) -> Any:
    v, value = made(), per_replica()
    TWO.extended.update(v, lambda copy, x: copy.assign(x), (values(value),))
    return v.read_value()


def split_in_time(in_branch: bool) -> Any:
    if in_branch:
        return total(10 * number()) if rank() else total(number())
    return total(10 * number() if rank() else number())


def batches() -> Any:
    return iter(TWO.experimental_distribute_dataset(Dataset.range(4).batch(4)))


def scoped(function: Callable[[], Any]) -> Callable[[], Any]:
    def within() -> Any:
        with TWO.scope():
            return function()

    return within


def doubled(write: Callable[[Any], Any]) -> Any:
    v = made(3.0)
    TWO.extended.update(v, write)
    return v.read_value()


def colocated() -> Any:
    with TWO.extended.colocate_vars_with(made(3.0)):
        return refdist.Variable(3.0).read_value()


def kept_context() -> Any:
    contexts: list[Any] = []
    TWO.run(lambda: contexts.append(context()))
    return contexts[0]


def central(aggregation: VariableAggregation, value: Callable[[Any], Any] = lambda x: x) -> Any:
    strategy = refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
    with strategy.scope():
        v = refdist.Variable(0.0, aggregation=aggregation)
    strategy.run(lambda: v.assign_add(value(number())))
    return v.read_value()


def slices(value: float) -> Any:
    return refdist.IndexedSlices(np.array([value], np.float32), np.array([1]))


ADVICE = [
    Advice("RD01", "Move the call out of the branch", lambda: run(lambda: total(number()) if rank() else None),
           lambda: run(lambda: total(number())), [4, 4]),
    Advice("RD02", "Make the same sequence of calls on every replica",
           lambda: run(lambda: total(number()) if rank() else context().all_gather(np.ones(1), 0)),
           lambda: run(lambda: (total(number()), context().all_gather(np.ones(1), 0))), [4, [1, 1], 4, [1, 1]]),
    Advice("RD03", "Pass the same reduce op", lambda: run(
        lambda: context().all_reduce("MEAN" if rank() else "SUM", number())),
        lambda: run(lambda: context().all_reduce("MEAN", number())), [2, 2]),
    Advice("RD04", "reduce over the batch first (`axis=0` in `strategy.reduce`)",
           lambda: TWO.reduce("SUM", rows(), axis=None), lambda: TWO.reduce("SUM", rows(), axis=0), 4),
    Advice("RD04", "or gather instead", lambda: TWO.reduce("SUM", rows(), axis=None),
           lambda: TWO.gather(rows(), axis=0), [1, 1, 2]),
    Advice("RD05", "Cast explicitly: `.astype('int32')`", lambda: made(1).assign_add(np.float32(2.5)),
           lambda: made(1).assign_add(np.float32(2.5).astype("int32")), 3),
    Advice("RD05", "Cast explicitly: `np.asarray(x).astype('int32')`", lambda: made(1).assign_add(2.5),
           lambda: made(1).assign_add(np.asarray(2.5).astype("int32")), 3),
    Advice("RD05", "Choose a part of it: `.real.astype('float32')`", lambda: made(1.0).assign(np.complex64(2 + 1j)),
           lambda: made(1.0).assign(np.complex64(2 + 1j).real.astype("float32")), 2),
    Advice("RD05", "Choose a part of it: `np.asarray(x).real.astype('float32')`", lambda: made(1.0).assign(2 + 1j),
           lambda: made(1.0).assign(np.asarray(2 + 1j).real.astype("float32")), 2),
    Advice("RD05", "Pass numbers; text is not read as a number", lambda: made(1.0).assign("2"),
           lambda: made(1.0).assign(2), 2),
    Advice("RD05", "`.astype(...)` before the call", lambda: run(
        lambda: total(np.array([number()], [np.float32, np.int32][rank()]))),
        lambda: run(lambda: total(np.array([number()], [np.float32, np.int32][rank()]).astype(np.float32))), [[4],
           [4]]),
    Advice("RD06", "Where every replica comes to both lines, make the calls in the same order on all",
           lambda: run(swapped), lambda: run(lambda: (total(number()), total(10 * number()))), [4, 40, 4, 40]),
    Advice("RD06", "write the call once, outside the branch, and let its argument depend on the replica",
           lambda: run(split_in_time, True), lambda: run(split_in_time, False), [31, 31]),
    Advice("RD07", "gather along the axis that differs",
           lambda: TWO.gather(TWO.run(lambda: np.full((1, 1 + rank()), number())), axis=0),
           lambda: TWO.gather(TWO.run(lambda: np.full((1, 1 + rank()), number())), axis=1), [[1, 3, 3]]),
    Advice("RD07", "Pad or slice the other dimensions",
           lambda: TWO.gather(TWO.run(lambda: np.full((1, 1 + rank()), number())), axis=0),
           lambda: TWO.gather(TWO.run(lambda: np.full((1, 1 + rank()), number())[:, :1]), axis=0), [[1], [3]]),
    Advice("RD08", "Add a dimension to scalars first: `x[np.newaxis]`", lambda: TWO.gather(per_replica(), axis=0),
           lambda: TWO.gather(TWO.run(lambda x: x[np.newaxis], (per_replica(),)), axis=0), [1, 3]),
    Advice("RD09", "In a replica use `get_replica_context().all_reduce(reduce_op, value)`",
           lambda: run(lambda: TWO.reduce("SUM", number(), axis=None)),
           lambda: run(lambda: context().all_reduce("SUM", number())), [4, 4]),
    Advice("RD09", "Call the function itself here", lambda: run(lambda: TWO.run(number)), lambda: run(number), [1, 3]),
    Advice("RD09", "leave the replicas first, with `get_replica_context().merge_call(...)`",
           lambda: run(lambda: TWO.run(number)),
           lambda: run(lambda: context().merge_call(lambda s: s.run(number))), [1, 3]),
    Advice("RD09", "or the update, by returning from its function",
           lambda: TWO.extended.update(made(), lambda copy: TWO.run(number)),
           lambda: (TWO.extended.update(made(), lambda copy: None), TWO.run(number).values)[1], [1, 3]),
    Advice("RD09", "In a replica use `get_replica_context().all_gather(value, axis)`",
           lambda: run(lambda: TWO.gather(np.array([number()]), 0)),
           lambda: run(lambda: context().all_gather(np.array([number()]), 0)), [[1, 3], [1, 3]]),
    Advice("RD09", "Take the element outside and pass it on: `strategy.run(fn, args=(element,))`",
           lambda: run(lambda: next(batches())), lambda: run(lambda x: x, next(batches())),
           [[0, 1], [2, 3]]),
    Advice("RD09", "Enter the scope outside `strategy.run` and `strategy.extended.update`", lambda: run(scoped(number)),
           scoped(lambda: run(number)), [1, 3]),
    Advice("RD09", "Call the function itself here", lambda: run(lambda: TWO.extended.call_for_each_replica(number)),
           lambda: run(number), [1, 3]),
    Advice("RD09", "In a replica use `get_replica_context().all_reduce(reduce_op, value)`, or make this call in",
           lambda: run(lambda: TWO.extended.reduce_to("SUM", number(), "CPU:0")),
           lambda: run(lambda: context().all_reduce("SUM", number())), [4, 4]),
    Advice("RD09", "or make this call in `get_replica_context().merge_call(...)`",
           lambda: run(lambda: TWO.extended.reduce_to("SUM", number(), "CPU:0")),
           lambda: run(lambda: context().merge_call(
               lambda s, x: s.extended.reduce_to("SUM", x, "CPU:0"), (number(),))), [4, 4]),
    Advice("RD09", "its function writes to the copy that it is given, with `assign`",
           lambda: doubled(lambda copy: TWO.extended.update(copy, lambda v: v.assign(6.0))),
           lambda: doubled(lambda copy: copy.assign(6.0)), 6),
    Advice("RD09", "Enter `with strategy.scope():` first", lambda: colocated(), scoped(lambda: colocated()), 3),
    Advice("RD09", "Call `get_replica_context()` inside the function given to `strategy.run`",
           lambda: kept_context().merge_call(lambda s: 1), lambda: run(lambda: context().merge_call(lambda s: 1)), [1]),
    Advice("RD10", "Create one strategy and use it everywhere",
           lambda: foreign(refdist.MirroredStrategy(["CPU:0", "CPU:1"])), lambda: foreign(TWO), 4),
    Advice("RD11", "Create the variable inside `with strategy.scope():`",
           lambda: after(refdist.Variable(0.0), lambda v: v.assign_add(total(number()))),
           lambda: after(made(), lambda v: v.assign_add(total(number()))), 4),
    Advice("RD12", "Reduce the value first: `get_replica_context().all_reduce(\"SUM\", value)`",
           lambda: after(made(), lambda v: v.assign(number())),
           lambda: after(made(), lambda v: v.assign(context().all_reduce("SUM", number()))), 4),
    *[Advice("RD12", "give the variable an aggregation, SUM or MEAN",
             lambda: after(made(), lambda v: v.assign(number())),
             lambda kind=kind: after(made(aggregation=kind), lambda v: v.assign(number())), wanted)
      for kind, wanted in ((SUM, 4), (MEAN, 2))],
    Advice("RD12", "Reduce the value first: `strategy.reduce(\"SUM\", value, axis=None)`",
           lambda: made().assign(per_replica()),
           lambda: made().assign(TWO.reduce("SUM", per_replica(), axis=None)), 4),
    Advice("RD12", "reduce per-replica values before it: `strategy.reduce(\"MEAN\", value, axis=None)`",
           lambda: updated(lambda value: value),
           lambda: updated(lambda value: TWO.reduce("MEAN", value, axis=None)), 2),
    Advice("RD12", "Write to the variable itself", lambda: made().values[0].assign(3.0),
           lambda: made().assign(3.0), 3),
    *[Advice("RD13", "Create the variable with `aggregation=VariableAggregation.SUM` or MEAN",
             lambda: after(made(synchronization=ON_READ), lambda v: v.assign_add(number())),
             lambda kind=kind: after(made(synchronization=ON_READ, aggregation=kind), lambda v: v.assign_add(number())),
             wanted) for kind, wanted in ((SUM, 4), (MEAN, 2))],
    Advice("RD13", "ONLY_FIRST_REPLICA if the value is the same on all replicas, as after `all_reduce`",
           lambda: after(made(synchronization=ON_READ), lambda v: v.assign_add(total(number()))),
           lambda: after(made(synchronization=ON_READ, aggregation=FIRST), lambda v: v.assign_add(total(number()))), 4),
    *[Advice("RD13", f"Create the variable with an aggregation: {text}", lambda: central(VariableAggregation.NONE),
             lambda kind=kind: central(kind), wanted) for text, kind, wanted in (
                 ("SUM or MEAN", SUM, 4), ("SUM or MEAN where every replica contributes a part", MEAN, 2))],
    Advice("RD13", "ONLY_FIRST_REPLICA where all contribute the same value, as after `all_reduce`",
           lambda: central(VariableAggregation.NONE, total), lambda: central(FIRST, total), 4),
    Advice("RD14", "Update it inside `strategy.run`",
           lambda: made(synchronization=ON_READ, aggregation=SUM).assign_add(3.0),
           lambda: after(made(synchronization=ON_READ, aggregation=SUM), lambda v: v.assign_add(3.0)), 6),
    Advice("RD14", "or assign the whole value", lambda: made(synchronization=ON_READ, aggregation=SUM).assign_add(3.0),
           lambda: made(synchronization=ON_READ, aggregation=SUM).assign(3.0), 3),
    Advice("RD15", "Batch the dataset: `dataset.batch(global_batch_size)`",
           lambda: [*TWO.experimental_distribute_dataset(Dataset.range(4))],
           lambda: [TWO.reduce("SUM", x,
           axis=0) for x in TWO.experimental_distribute_dataset(Dataset.range(4).batch(4))],
           [6]),
    Advice("RD16", "Return an array from each replica", lambda: TWO.reduce("SUM", 3.0, axis=None),
           lambda: TWO.reduce("SUM", TWO.run(lambda: refdist.constant(3.0)), axis=None), 6),
    Advice("RD16", "or multiply by `num_replicas_in_sync` yourself", lambda: TWO.reduce("SUM", 3.0, axis=None),
           lambda: 3.0 * TWO.num_replicas_in_sync, 6),
    Advice("RD17", "Use double quotes",
           lambda: clustered("{'cluster': {'worker': ['a:1']}, 'task': {'type': 'worker', 'index': 0}}"),
           lambda: clustered('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'), 0),
    Advice("RD18", "Use AutoShardPolicy.DATA", lambda: on_workers(AutoShardPolicy.FILE),
           lambda: on_workers(AutoShardPolicy.DATA), 6),
    Advice("RD19", "Use `strategy.reduce`", lambda: per_replica() + 1,
           lambda: TWO.reduce("SUM", per_replica(), axis=None) + 1, 5),
    Advice("RD19", "`strategy.experimental_local_results`", lambda: per_replica() + 1,
           lambda: [part + 1 for part in TWO.experimental_local_results(per_replica())], [2, 4]),
    Advice("RD20", "Use `assign`", lambda: np.add(1.0, 2.0, out=made()),
           lambda: made().assign(np.add(1.0, 2.0)), 3),
    Advice("RD20", "Assign the whole value instead",
           lambda: after(made([0.0, 0.0], synchronization=ON_READ, aggregation=SUM),
           lambda v: v.scatter_add(slices(5.0))),
           lambda: after(made([0.0, 0.0], synchronization=ON_READ, aggregation=SUM), lambda v: v.assign([0.0, 5.0])),
           [0, 10]),
    Advice("RD20", "Use aggregation NONE or ONLY_FIRST_REPLICA",
           lambda: after(made([0.0, 0.0], aggregation=SUM), lambda v: v.scatter_update(slices(number()))),
           lambda: after(made([0.0, 0.0], aggregation=FIRST), lambda v: v.scatter_update(slices(number()))), [0, 1]),
    Advice("RD20", "or assign the whole value",
           lambda: after(made([0.0, 0.0], aggregation=SUM), lambda v: v.scatter_update(slices(5.0))),
           lambda: after(made([0.0, 0.0], aggregation=SUM), lambda v: v.assign([0.0, 2.5])), [0, 5]),
    Advice("RD20", "Use `scatter_update`", lambda: made([0.0, 0.0]).batch_scatter_update(slices(5.0)),
           lambda: made([0.0, 0.0]).scatter_update(slices(5.0)), [0, 5]),
    Advice("RD20", "`cache()`", lambda: [*Dataset.range(3).cache("rows")],
           lambda: [*Dataset.range(3).cache()], [0, 1, 2]),
    Advice("RD21", "Use the same nesting of lists, tuples and dicts, with the same keys, on every replica",
           lambda: run(lambda: {"a": number()} if rank() else [number()]),
           lambda: run(lambda: {"a": number()}), [1, 3]),
    Advice("RD22", "Do not catch BaseException around collective calls and accesses to variables",
           lambda: caught(BaseException), lambda: caught(Exception), 0),
    Advice("RD23", "Cast to a numeric dtype first, for example `.astype(np.int32)`",
           lambda: run(lambda: total(np.array([True]))), lambda: run(lambda: total(np.array([True]).astype(np.int32))),
           [[2], [2]]),
    Advice("RD24", "Write TYPE:INDEX with a type of CPU, GPU or TPU",
           lambda: refdist.MirroredStrategy(["NPU:0"]), lambda: refdist.MirroredStrategy(["CPU:0"]).run(rank), 0),
    Advice("RD25", "Pass a function", lambda: run(3), lambda: run(rank), [0, 1]),  # type: ignore[arg-type]
    Advice("RD34", "Pass an index from 0 to num_shards - 1", lambda: [*Dataset.range(4).shard(2, 2)],
           lambda: [*Dataset.range(4).shard(2, 1)], [1, 3]),
    Advice("RD26", "or use `padded_batch`", lambda: [*Dataset.from_generator(lambda: iter([[1], [2, 3]])).batch(2)],
           lambda: [*Dataset.from_generator(lambda: iter([[1], [2, 3]])).padded_batch(2)], [[[1, 0], [2, 3]]]),
    Advice("RD29", "or `dataset.repeat()`", lambda: last_of(Dataset.range(4).batch(4)),
           lambda: last_of(Dataset.range(4).batch(4).repeat()), 6),
    Advice("RD32", "Schedule the function again", lambda: dropped(False), lambda: dropped(True), 2),
]
# What needs a folder.
IN_FOLDER = [
    ("RD30", "Write the file again", lambda folder: records(folder, True),
           lambda folder: records(folder, False), [3, 2]),
    ("RD31", "Use the names of attributes under which the variables were saved", lambda folder: restored(folder, "v"),
     lambda folder: restored(folder, "w"), 3),
    ("RD33", "Make the strategy again and restore the latest checkpoint", lambda folder: server(folder, False),
     lambda folder: server(folder, True), 3),
]
# Nothing that a program can write: install a package, and restart after a device has failed.
OUTSIDE = {"RD27", "RD28"}
# What only warns: test_replica_types.py and test_keras.py follow it.
WARNINGS = {code for code, row in errors.CATALOGUE.items() if issubclass(row.error, Warning)}


def plain(value: Any) -> Any:
    leaves = [np.asarray(leaf).tolist() for leaf in nest.flatten(value)]
    return leaves if isinstance(value, (list, tuple, dict)) else leaves[0]


def check(row: Advice) -> None:
    with pytest.raises(Exception) as raised:
        row.broken()
    assert getattr(raised.value, "code", None) == row.code, raised.value
    assert row.text in str(raised.value)
    assert plain(row.followed()) == row.wanted


@pytest.mark.parametrize("row", ADVICE, ids=[f"{row.code} {row.text[:40]}" for row in ADVICE])
def test_advice_that_is_followed_gives_the_right_numbers(row: Advice) -> None:
    check(row)


@pytest.mark.parametrize("row", IN_FOLDER, ids=[row[0] for row in IN_FOLDER])
def test_advice_about_files_that_is_followed_gives_the_right_numbers(row: Any, tmp_path: Path) -> None:
    code, text, broken, followed, wanted = row
    (tmp_path / "broken").mkdir()
    (tmp_path / "followed").mkdir()
    check(Advice(code, text, lambda: broken(tmp_path / "broken"), lambda: followed(tmp_path / "followed"), wanted))


def test_every_code_has_an_advice_that_was_followed() -> None:
    assert {row.code for row in ADVICE} | {row[0] for row in IN_FOLDER} | OUTSIDE | WARNINGS == {*errors.CATALOGUE}


def test_every_advice_of_a_table_was_followed() -> None:
    texts = {text for text in (*advice.INSTEAD.values(), *advice.ADVICE.values()) if "logical devices" not in text}
    assert [text for text in texts if not any(row.text and row.text in text for row in ADVICE)] == []


@pytest.mark.parametrize("wrong", [
    Advice("RD12", "give the variable an aggregation", lambda: after(made(), lambda v: v.assign(number())),
           lambda: after(made(aggregation=SUM), lambda v: v.assign(number())), 2),
    Advice("RD16", "multiply by 3", lambda: TWO.reduce("SUM", 3.0, axis=None), lambda: 9.0, 9),
    Advice("RD01", "", lambda: run(number), lambda: run(number), [1, 3])], ids=["number", "text", "no error"])
def test_an_advice_with_a_wrong_result_or_other_words_is_noticed(wrong: Advice) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(wrong)
