"""Random programs about arrays, each run on simulated workers and on processes: what comes out has the same bits.

    python tests/workers/arrays.py --programs 2000      # every world, and a table

A program is a number.  It is a few collectives, over arrays of every dtype, byte order and memory order, without
dimensions or elements, with NaNs whose bits differ, infinities, zeros with a sign and subnormal numbers; large enough
here and there to travel in each of the ways that there are.  Replicas draw what they contribute from the program's
number and their own, so nothing has to be sent to begin.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import refdist

NUMBERS = ["f2", "f4", "f8", "c8", "c16", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "bfloat16"]
OTHERS = ["?", "U3", "S2", "float8_e4m3fn", "int4"]
SIZES = [(), (0,), (1,), (7,), (3, 5), (2, 3, 4), (4, 0), (65,), (40, 50), (130, 131), (101, 1001)]
LARGE = (1201, 1000)
Aggregation = refdist.VariableAggregation
Synchronization = refdist.VariableSynchronization
AGGREGATIONS = [Aggregation.SUM, Aggregation.MEAN, Aggregation.ONLY_FIRST_REPLICA]
WORLDS: list[tuple[int, int, dict[str, str]]] = [
    (2, 1, {}), (2, 2, {}), (3, 1, {}), (4, 1, {}), (2, 2, {"REFDIST_SUMS": "sent"})]


def dtype_of(name: str, order: str) -> Any:
    if name in ("bfloat16", "float8_e4m3fn", "int4"):
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name).newbyteorder(order)


def numbers(draw: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """An array of special and ordinary values."""
    size = int(np.prod(shape))
    if dtype.kind in "US":
        return np.array(["", "ab", "x\\u00e9"] if dtype.kind == "U" else [b"", b"ab", b"x"], dtype)[
            draw.integers(0, 3, size)].reshape(shape)
    if dtype.kind in "iu":
        return draw.integers(0, 256, size * dtype.itemsize, np.uint8).view(dtype).reshape(shape)
    if dtype.kind == "?" or dtype.kind == "b":
        return (draw.random(size) < 0.5).astype(dtype).reshape(shape)
    if dtype == ml_dtypes.int4:
        return draw.integers(-8, 8, size).astype(dtype).reshape(shape)
    if draw.random() < 0.5:  # every bit pattern there is: most NaNs, all subnormal numbers
        words = draw.integers(0, 256, size * dtype.itemsize, np.uint8)
        if draw.random() < 0.5:
            real = dtype.itemsize // (2 if dtype.kind == "c" else 1)
            high = real - 1 if dtype.byteorder != ">" else 0
            words.reshape(-1, real)[draw.random(words.size // real) < 0.3, high] |= 0x7F
        return words.view(dtype).reshape(shape)
    with np.errstate(all="ignore"):
        array = (draw.standard_normal(size) * 10.0 ** draw.integers(-6, 7, size)).astype(dtype)
        for special in (np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-40):
            array[draw.random(size) < 0.05] = special
    return array.reshape(shape)


def laid_out(array: Any, way: str) -> Any:
    """The same values at other places of memory."""
    if way == "F" and array.ndim:
        return np.asfortranarray(array)
    if way == "T" and array.ndim > 1:
        return np.ascontiguousarray(array.T).T
    if way == "strided" and array.ndim:
        return np.repeat(array, 2, -1)[..., ::2]
    if way == "reversed" and array.ndim:
        return array[::-1].copy()[::-1]
    if way == "unaligned":
        room = np.empty(array.nbytes + 1, np.uint8)
        odd = room[1:].view(array.dtype).reshape(array.shape)
        odd[...] = array
        return odd
    if way == "read-only":
        array = array.copy()
        array.flags.writeable = False
    return array


WAYS = ["C", "F", "T", "strided", "reversed", "unaligned", "read-only"]


class Program:
    """One random program; what it observes is a list of texts."""

    def __init__(self, number: int, strategy: Any) -> None:
        self.draw = np.random.default_rng([number])
        self.number = number
        self.strategy = strategy
        self.rank = strategy.extended.transport.rank
        self.names: list[str] = []
        self.seen: list[str] = []

    def pick(self, options: Any) -> Any:
        return options[int(self.draw.integers(len(options)))]

    def contribution(self, names: list[str], shape: tuple[int, ...], varying: int | None = None) -> Callable[[], Any]:
        """What each replica contributes, as a function that it calls; laid out in a way of its own."""
        dtype, key = dtype_of(self.pick(names), self.pick("<>=")), int(self.draw.integers(1 << 30))
        self.names.append(f"{dtype.str if dtype.kind != 'V' else dtype.name} {shape}")

        def of_replica() -> Any:
            context = refdist.get_replica_context()
            replica = self.rank if context is None else context.replica_id_in_sync_group
            draw = np.random.default_rng([key, replica])
            length = shape
            if varying is not None:
                length = (*shape[:varying], int(draw.integers(0, 4)), *shape[varying + 1:])
            return laid_out(numbers(draw, dtype, length), WAYS[int(draw.integers(len(WAYS)))])
        return of_replica

    def shape(self) -> tuple[int, ...]:
        return LARGE if self.draw.random() < 0.02 else self.pick(SIZES)

    def see(self, what: str, call: Callable[[], Any]) -> None:
        """Notes what a call gives, or how it fails."""
        try:
            leaves = refdist.nest.flatten(call())
        except refdist.errors.RefdistError as error:
            self.seen.append(f"{what}: {error.code}")
            return
        values = [part for leaf in leaves for part in (
            leaf.values if isinstance(leaf, refdist.DistributedValues) else (leaf,))]
        self.seen.append(f"{what}: {', '.join(map(text, values))}")

    def all_reduce(self) -> None:
        op = self.pick(["SUM", "MEAN"])
        leaves = [self.contribution(NUMBERS, self.shape()) for _ in range(self.pick([1, 1, 2, 4]))]
        self.see(f"all_reduce {op}", lambda: self.strategy.run(
            lambda: refdist.get_replica_context().all_reduce(op, [leaf() for leaf in leaves])))

    def all_gather(self) -> None:
        shape = self.pick([shape for shape in SIZES if shape])
        axis = self.pick(range(len(shape)))
        leaves = [self.contribution(NUMBERS + OTHERS, shape, axis if self.draw.random() < 0.5 else None)
                  for _ in range(self.pick([1, 1, 2]))]
        self.see(f"all_gather {axis}", lambda: self.strategy.run(
            lambda: refdist.get_replica_context().all_gather([leaf() for leaf in leaves], axis=axis)))

    def reduce(self) -> None:
        op, axis = self.pick(["SUM", "MEAN"]), self.pick([None, 0])
        value = self.strategy.run(self.contribution(NUMBERS, self.shape()))
        self.see(f"reduce {op} {axis}", lambda: self.strategy.reduce(op, value, axis=axis))

    def gather(self) -> None:
        shape = self.pick([shape for shape in SIZES if shape])
        axis = self.pick(range(len(shape)))
        value = self.strategy.run(self.contribution(NUMBERS + OTHERS, shape, axis))
        self.see(f"gather {axis}", lambda: self.strategy.gather(value, axis=axis))

    def variable(self) -> None:
        """The first worker's initial value; updates in replicas; a read."""
        names, shape, aggregation = [self.pick(NUMBERS)], self.shape(), self.pick(AGGREGATIONS)
        reads = self.draw.random() < 0.3
        synchronization = Synchronization.ON_READ if reads else Synchronization.AUTO
        first = self.contribution(names, shape)
        made: list[Any] = []

        def create() -> Any:
            with self.strategy.scope():
                made.append(refdist.Variable(first(), aggregation=aggregation, synchronization=synchronization))
            return [made[0].read_value()]

        self.see(f"create {aggregation.name} {synchronization.name}", create)
        for _ in range(2):
            if made:
                how, value = self.pick(["assign", "assign_add", "assign_sub"]), self.contribution(names, shape)

                def update(how: str = how, value: Callable[[], Any] = value) -> None:
                    getattr(made[0], how)(value())

                self.see(how, lambda update=update: self.strategy.run(update))
                self.see("read", lambda: [made[0].read_value(), *(part.numpy() for part in made[0].values)])

    def slices(self) -> None:
        values = self.contribution(NUMBERS, (3, 4))
        op = self.pick(["SUM", "MEAN"])

        def step() -> Any:
            total = refdist.get_replica_context().all_reduce(
                op, refdist.IndexedSlices(values(), np.arange(3), (5, 4)))
            return [total.values, total.indices]

        self.see(f"slices {op}", lambda: self.strategy.run(step))

    def run(self) -> list[str]:
        for _ in range(self.pick([1, 2, 3])):
            self.pick([self.all_reduce, self.all_reduce, self.reduce, self.all_gather, self.gather, self.variable,
                       self.slices])()
        return self.seen


def text(value: Any) -> str:
    """What is observed of a value: dtype with its byte order, shape, and a hash of the bits."""
    if value is None:
        return "None"
    array = np.asarray(value)
    name = array.dtype.name if array.dtype.kind == "V" else array.dtype.str
    return f"{name} {array.shape} {hashlib.blake2b(array.tobytes(), digest_size=8).hexdigest()}"


def observed(first: int, count: int) -> list[list[str]]:
    """What programs give on this worker."""
    strategy = refdist.MultiWorkerMirroredStrategy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [Program(number, strategy).run() for number in range(first, first + count)]


def compared(launch: Callable[..., subprocess.CompletedProcess[str]], workers: int, replicas: int,
             variant: dict[str, str], first: int, count: int) -> tuple[int, list[str]]:
    """How many results there are, and those that differ between simulated workers and processes."""
    simulated = refdist.simulate_workers(lambda: observed(first, count), workers, None if replicas == 1 else replicas)
    devices = {"REFDIST_DEVICES": f"CPU:1,GPU:{replicas}"} if replicas > 1 else {}
    with tempfile.TemporaryDirectory() as folder:
        done = launch(workers, __file__, "--worker", folder, "--first", str(first), "--programs", str(count),
                      **devices, **variant)
        assert done.returncode == 0, done.stderr
        real = [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(workers)]
    results, different = 0, []
    for rank, (here, there) in enumerate(zip(simulated, real, strict=True)):
        for number, (simulated_result, other) in enumerate(zip(here, there, strict=True), first):
            results += len(simulated_result)
            different += [f"program {number}, worker {rank}: {a} is {b} under MPI"
                          for a, b in zip(simulated_result, other, strict=True) if a != b]
    return results, different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        rank = refdist.MultiWorkerMirroredStrategy().extended.transport.rank
        Path(options.worker, str(rank)).write_bytes(pickle.dumps(observed(options.first, options.programs)))
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from test_workers import mpiexec

    print("| workers | replicas each | | programs | results | differ |\n|---|---|---|---|---|---|")
    for workers, replicas, variant in WORLDS:
        results, different = compared(mpiexec, workers, replicas, variant, options.first, options.programs)
        print(f"| {workers} | {replicas} | {' '.join(variant)} | {options.programs} | {results} | {len(different)} |",
              *different[:20], sep="\n", flush=True)


if __name__ == "__main__":
    main()
