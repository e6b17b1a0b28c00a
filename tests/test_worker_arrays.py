"""Arrays of every dtype, byte order and memory order come out of collectives with the same bits in both worlds."""

from __future__ import annotations

import re
from typing import Any

import pytest
from test_workers import HERE, load, mpiexec

import refdist

ARRAYS = load(HERE / "arrays.py")


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "replicas", "variant"), ARRAYS.WORLDS,
                         ids=["-".join([f"{workers}x{replicas}", *variant.values()])
                              for workers, replicas, variant in ARRAYS.WORLDS])
def test_random_programs_give_the_same_bits(workers: int, replicas: int, variant: dict[str, str]) -> None:
    results, different = ARRAYS.compared(mpiexec, workers, replicas, variant, 0, 60)
    assert results > 300 and different == []


# Sums of whole numbers, whose bits do not depend on the order, of dtypes that MPI adds and of those that it does not.
ANY_ORDER = """
import ml_dtypes
import numpy as np
import refdist
strategy = refdist.MultiWorkerMirroredStrategy(
    communication_options=refdist.experimental.CommunicationOptions(implementation="RING"))
size = strategy.num_replicas_in_sync
for dtype in map(np.dtype, [*"efdgFDGbBhHiIlLqQ", ml_dtypes.bfloat16]):
    part = (np.arange(70_000) % 7).astype(dtype)
    total = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", part))
    assert total.dtype == dtype and np.array_equal(total, part * dtype.type(size)), dtype
print("came through")
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["shared", "sent"])
def test_sums_in_any_order_are_of_every_dtype(way: str) -> None:
    done = mpiexec(2, "-c", ANY_ORDER, REFDIST_SUMS=way)
    assert (done.returncode, done.stdout.count("came through")) == (0, 2), done.stderr


def test_programs_are_of_every_kind() -> None:
    def names() -> list[tuple[list[str], list[str]]]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        programs = []
        for number in range(150):
            program = ARRAYS.Program(number, strategy)
            programs.append((program.run(), program.names))
        return programs

    first, again = (refdist.simulate_workers(names, 2)[0] for _ in range(2))
    assert first == again
    used = {name for _, names in first for name in names}
    for dtype in ARRAYS.NUMBERS + ARRAYS.OTHERS:
        for order in "<>" if ARRAYS.dtype_of(dtype, ">").str.startswith(">") else "=":
            wanted: Any = ARRAYS.dtype_of(dtype, order)
            wanted = wanted.name if wanted.kind == "V" else wanted.str
            assert any(name.startswith(f"{wanted} ") for name in used), wanted
    for shape in [*ARRAYS.SIZES, ARRAYS.LARGE]:
        assert any(name.endswith(f" {shape}") for name in used), shape
    seen = [text for seen, _ in first for text in seen]
    for what in ("all_reduce SUM", "all_reduce MEAN", "reduce SUM None", "reduce MEAN 0", "all_gather 1", "gather 0",
                 "create SUM ON_READ", "create ONLY_FIRST_REPLICA AUTO", "assign", "assign_add", "assign_sub", "read",
                 "slices SUM"):
        assert any(re.match(rf"{what}: [^R]", text) for text in seen), what
    assert sum("RD" in text for text in seen) < len(seen) / 4
