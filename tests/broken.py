"""Programs with one mistake each, and what the page of their recording says first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

import refdist


def replica() -> Any:
    """The context of this replica."""
    return refdist.get_replica_context()


def mirrored(count: int) -> Any:
    """A strategy with this many replicas."""
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])


def weights(strategy: Any) -> Any:
    """Three weights that are 1."""
    with strategy.scope():
        return refdist.Variable(np.ones(3, np.float32), name="w", aggregation=refdist.VariableAggregation.MEAN)


def shapes() -> None:
    """The last batch is smaller, and rows are not summed before they are reduced."""
    strategy = mirrored(4)

    def step(batch: Any) -> Any:
        return replica().all_reduce("SUM", np.square(batch))

    rows = np.arange(30, dtype=np.float32).reshape(10, 3)
    for batch in strategy.experimental_distribute_dataset(refdist.data.Dataset.from_tensor_slices(rows).batch(8)):
        strategy.run(step, (batch,))


def early() -> None:
    """A replica returns before the others reduce."""
    def step() -> Any:
        loss = np.float32(replica().replica_id_in_sync_group)
        if loss > 1:
            return loss
        return replica().all_reduce("MEAN", loss)

    mirrored(3).run(step)


def not_a_number() -> None:
    """The square root of a row that has a negative number."""
    strategy = mirrored(3)
    w = weights(strategy)

    def step(row: Any) -> None:
        with np.errstate(invalid="ignore"):
            gradient = np.sqrt(row[0])
        w.assign_sub(replica().all_reduce("SUM", gradient))

    rows = np.float32([[1, 1, 1]] * 4 + [[4, -1, 9]] + [[1, 1, 1]])
    for batch in strategy.experimental_distribute_dataset(refdist.data.Dataset.from_tensor_slices(rows).batch(3)):
        strategy.run(step, (batch,))


def one_copy() -> None:
    """An update that writes to the copy on one device."""
    strategy = mirrored(2)
    w = weights(strategy)

    def write(copy: Any) -> None:
        if "GPU:1" in copy.device:
            copy.assign(np.zeros(3, np.float32))

    strategy.extended.update(w, write)
    strategy.run(lambda: w.assign_add(np.ones(3, np.float32)))


def no_rows() -> None:
    """Each worker skips the rows of those before it, of which there are none."""
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        w = weights(strategy)

        def rows(context: Any) -> Any:
            rows = refdist.data.Dataset.from_tensor_slices(np.ones((6, 3), np.float32))
            return rows.skip(6 * context.input_pipeline_id).batch(3)

        def step(batch: Any) -> None:
            w.assign_add(batch.sum(axis=0))

        for batch in strategy.distribute_datasets_from_function(rows):
            strategy.run(step, (batch,))

    refdist.simulate_workers(program, 2, 1)


def raises() -> None:
    """One replica cannot look something up."""
    def step() -> Any:
        return {0: 1.0, 1: 2.0}[replica().replica_id_in_sync_group]

    mirrored(3).run(step)


def raises_on_its_way() -> None:
    """One replica cannot look something up, when two have arrived and one has not begun."""
    def step() -> Any:
        scale = [1.0, 2.0, None, 4.0][replica().replica_id_in_sync_group]
        return replica().all_reduce("SUM", scale * np.float32(3))

    mirrored(4).run(step)


def loops() -> None:
    """Each replica goes over its own rows, and one has fewer."""
    strategy = mirrored(3)
    w = weights(strategy)

    def train(rows: Any) -> None:
        for row in rows:
            total = replica().all_reduce("SUM", row)
            w.assign_sub(total * np.ones(3, np.float32))

    rows = strategy.experimental_distribute_values_from_function(
        lambda context: np.ones(2 if context.replica_id_in_sync_group == 2 else 3, np.float32))
    strategy.run(train, (rows,))


PROGRAMS: dict[Callable[[], None], list[str]] = {
    shapes: ["No rows for replica 2 in 1 of 2 steps, replica 3 in 1 of 2 steps",
             "Rendezvous 2 was not carried out. Replicas 0, 1 at broken.py:35: all_reduce SUM of float32 [1, 3]; "
             "replicas 2, 3 at broken.py:35: all_reduce SUM of float32 [0, 3]",
             "The program raises InvalidArgumentError: [RD04]"],
    early: ["Rendezvous 1 was not carried out. Replicas 0, 1 at broken.py:48: all_reduce MEAN of float32 []; "
            "replica 2 never arrives, as its function has returned",
            "The program raises InvalidContextError: [RD01]"],
    not_a_number: ["The first NaN: 1 in what replica 1 contributed to all_reduce at broken.py:61, the first at [1] of "
                   "replica 1's array; the last rows of a dataset that replica 1 got: 4; the other 2 replicas "
                   "contribute none"],
    one_copy: ["The program raises InvalidValueError: [RD12] update of variable w:0: copy 0 has [1. 1. 1.], "],
    no_rows: ["No rows for replica 1 in 2 of 2 steps"],
    raises: ["Replica 2 raises KeyError at broken.py:103: 2"],
    raises_on_its_way: [
        "Rendezvous 1 was not carried out. Replicas 0, 1 at broken.py:112: all_reduce SUM of float32 []; replica 2 "
        "never arrives, as its function has raised TypeError; replica 3 was not started",
        "Replica 2 raises TypeError at broken.py:112: "],
    loops: ["Rendezvous 5 was not carried out. Replicas 0, 1 at broken.py:124: all_reduce SUM of float32 []; replica 2 "
            "never arrives, as its function has returned; its last call was assign_sub of variable w:0 at "
            "broken.py:125", "The program raises InvalidContextError: [RD01]"],
}


def recorded(program: Callable[[], None]) -> refdist.insight.Recording:
    """The recording of a program, up to its error."""
    with contextlib.suppress(refdist.errors.RefdistError, KeyError, TypeError), refdist.record() as recording:
        program()
    return recording
