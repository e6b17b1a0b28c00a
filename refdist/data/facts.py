"""What is known of a dataset before it is read: how many elements, of what shape, from which files."""

from __future__ import annotations

from typing import Any, NamedTuple

from refdist import nest
from refdist.data.spec import TensorSpec

INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2


class Facts(NamedTuple):
    """Attributes:
        cardinality: number of elements, or one of the two constants.
        spec: a nest of TensorSpecs, or a function that makes one where that takes reading.
        batch_size: rows of a full batch, where elements are batches of a known size.
        static: every batch is full.
        certain: nothing since the last batch can have changed its number of rows, so that batches may be cut by it.
        files: the files that are read, for AutoShardPolicy.FILE.
        shards: of how many parts `Dataset.shard` has kept one.
    """

    cardinality: int = UNKNOWN_CARDINALITY
    spec: Any = None
    batch_size: int | None = None
    static: bool = False
    certain: bool = True
    files: tuple[str, ...] = ()
    shards: int = 1

    @property
    def arrays(self) -> list[TensorSpec]:
        """The specs of the arrays of an element; none where only reading tells them."""
        return [] if callable(self.spec) else [one for one in nest.flatten(self.spec) if isinstance(one, TensorSpec)]


class Reading(NamedTuple):
    """One reading of a dataset: which part of its files, and the seed that all workers agreed upon.

    Attributes:
        num_shards, shard: of the files, every `num_shards`-th from number `shard` is read.
        seed: for shuffles that were given none; None draws a new one.
        peek: looking only, so the next reading is shuffled as if this one had not been.
    """

    num_shards: int = 1
    shard: int = 0
    seed: int | None = None
    peek: bool = False


WHOLE = Reading()
PEEK = Reading(peek=True)


def batches(count: int, size: int, drop_remainder: bool) -> int:
    """How many batches of `size` come out of `count` elements."""
    return count if count < 0 else count // size if drop_remainder else -(-count // size)


def windows(count: int, size: int, shift: int, stride: int, drop_remainder: bool) -> int:
    """How many windows come out of `count` elements."""
    if count < 0:
        return count
    first = (size - 1) * stride + 1 if drop_remainder else 1
    return 0 if count < first else (count - first) // shift + 1


def repeated(count: int, times: int | None) -> int:
    """How many elements there are `times` times over; None is for ever."""
    if count == 0 or times == 0:
        return 0
    if times is None:
        return INFINITE_CARDINALITY
    return count if count < 0 else count * times


def taken(count: int, limit: int) -> int:
    """How many of `count` elements there are among the first `limit`; below 0 means all."""
    if limit < 0:
        return count
    return limit if count == INFINITE_CARDINALITY else min(count, limit) if count >= 0 else count


def skipped(count: int, number: int) -> int:
    """How many of `count` elements are left after the first `number`; below 0 means none."""
    if number < 0 and count != UNKNOWN_CARDINALITY:
        return 0
    return max(count - number, 0) if count >= 0 else count


def sharded(count: int, num_shards: int, index: int) -> int:
    """How many of `count` elements are in one of `num_shards`."""
    return len(range(index, count, num_shards)) if count >= 0 else count


def zipped(counts: list[int]) -> int:
    """How many elements there are until the shortest of several datasets ends."""
    finite = [count for count in counts if count != INFINITE_CARDINALITY]
    if UNKNOWN_CARDINALITY in finite:
        return UNKNOWN_CARDINALITY
    return min(finite) if finite else INFINITE_CARDINALITY


def unbatched(count: int, rows: list[int | None]) -> int:
    """How many rows there are in `count` batches whose components have these numbers of rows, where known."""
    size = next((number for number in rows if number), None)
    return count if count < 0 else count * size if size else UNKNOWN_CARDINALITY


def mixed(counts: list[int]) -> int:
    """How many elements come out of several datasets, when only choices tell which and when to stop."""
    return INFINITE_CARDINALITY if INFINITE_CARDINALITY in counts else UNKNOWN_CARDINALITY


def concatenated(first: int, second: int) -> int:
    """How many elements there are in one dataset and then another."""
    if INFINITE_CARDINALITY in (first, second):
        return INFINITE_CARDINALITY
    return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in (first, second) else first + second
