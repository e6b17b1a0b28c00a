"""Distributed datasets: which replica gets which rows."""

from __future__ import annotations

from refdist.conformance.old.case import PAGE, Case, Standing
from refdist.conformance.old.language import Program, op

SOURCE = PAGE.format("Strategy.experimental_distribute_dataset")
FUNCTION = PAGE.format("Strategy.distribute_datasets_from_function")
NEEDS = frozenset({"datasets"})
AUTO = [(8, 4, 2, False), (12, 6, 4, False), (6, 4, 2, False), (7, 4, 2, False), (5, 4, 2, False), (2, 1, 2, False),
        (7, 4, 2, True), (10, 5, 2, True), (4, 4, 3, False), (9, 6, 4, False), (13, 5, 3, False), (0, 3, 2, False),
        (11, 3, 1, False), (16, 8, 4, False), (10, 10, 4, False), (3, 2, 3, False)]


def by_batch(rows: int, batch: int, replicas: int, drop: bool, repeat: int = 1) -> list[list[list[int]]]:
    """Every batch is cut by its own size into pieces of the rounded-up size."""
    steps = []
    for _ in range(repeat):
        for start in range(0, rows, batch):
            numbers = list(range(start, min(start + batch, rows)))
            if drop and len(numbers) < batch:
                continue
            each = -(-len(numbers) // replicas)
            steps.append([numbers[i * each:(i + 1) * each] for i in range(replicas)])
    return steps


def by_stream(rows: int, batch: int, replicas: int, drop: bool, repeat: int = 1) -> list[list[list[int]]]:
    """The stream is cut with the sizes of a full batch, which differ by at most one."""
    if replicas == 1:
        return by_batch(rows, batch, replicas, drop, repeat)
    kept = rows - rows % batch if drop else rows
    numbers = list(range(kept)) * repeat
    sizes = [batch // replicas + (i < batch % replicas) for i in range(replicas)]
    steps = []
    while numbers:
        step = []
        for size in sizes:
            step.append(numbers[:size])
            numbers = numbers[size:]
        steps.append(step)
    return steps


def by_turns(rows: int, batch: int, replicas: int) -> list[list[list[int]]]:
    """Each replica takes the next batch."""
    batches = [list(range(start, min(start + batch, rows))) for start in range(0, rows, batch)]
    return [(batches[i:i + replicas] + [[]] * replicas)[:replicas] for i in range(0, len(batches), replicas)]


def dataset(rows: int, batch: int, drop: bool, policy: str, repeat: int = 1) -> Program:
    return op("dataset", rows, batch, drop, policy, repeat)


def promised(batch: int, replicas: int) -> Standing:
    """What a case says of the document, which has pieces that differ by at most one row."""
    if batch % replicas == 0:
        return {}
    return {"level": "recommended", "document": "wrong: promises sizes that differ by at most one"}


def label(rows: int, batch: int, replicas: int, drop: bool) -> str:
    return f"{rows} rows in batches of {batch} on {replicas}" + ", remainder dropped" * drop


CASES = [
    *(Case(f"{policy}: {label(*sizes)}", dataset(sizes[0], sizes[1], sizes[3], policy), by_batch(*sizes),
           strategy=("mirrored", sizes[2]), source=SOURCE, needs=NEEDS, **promised(sizes[1], sizes[2]))
      for sizes in AUTO for policy in ("AUTO", "DATA")),
    *(Case(f"OFF: {label(*sizes)}", dataset(sizes[0], sizes[1], sizes[3], "OFF"), by_stream(*sizes),
           strategy=("mirrored", sizes[2]), source=SOURCE, needs=NEEDS, level="recommended", document="silent")
      for sizes in AUTO if sizes[1] >= sizes[2]),
    *(Case(f"a short batch in the middle, {policy}", dataset(7, 6, False, policy, 2),
           split(7, 6, 4, False, 2), strategy=("mirrored", 4), source=SOURCE, needs=NEEDS, level="recommended",
           document="silent") for policy, split in (("AUTO", by_batch), ("OFF", by_stream))),
    *(Case(f"central storage, AUTO: {label(*sizes)}", dataset(sizes[0], sizes[1], sizes[3], "AUTO"), by_batch(*sizes),
           strategy=("central", 2), source=SOURCE, needs=NEEDS | {"central"}, **promised(sizes[1], sizes[2]))
      for sizes in AUTO if sizes[2] == 2),
    *(Case(f"central storage, OFF: {label(*sizes)}", dataset(sizes[0], sizes[1], sizes[3], "OFF"), by_stream(*sizes),
           strategy=("central", 2), source=SOURCE, needs=NEEDS | {"central"}, level="recommended", document="silent")
      for sizes in ((8, 4, 2, False), (3, 2, 2, False), (5, 4, 2, False))),
    *(Case(f"made by a function: {rows} rows in batches of {batch} on {n}", op("dataset_fn", rows, batch, False),
           by_turns(rows, batch, n), strategy=("mirrored", n), source=FUNCTION, needs=NEEDS)
      for rows, batch, n in ((8, 2, 2), (6, 2, 2), (5, 2, 3), (9, 2, 4), (7, 3, 2), (4, 1, 4))),
]
