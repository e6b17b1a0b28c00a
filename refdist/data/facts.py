"""What is known of a dataset before it is read: how many elements, of what shape, from which files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from refdist import nest
from refdist.data.spec import TensorSpec

if TYPE_CHECKING:
    from refdist.data.position import Tape

INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2


class Facts(NamedTuple):
    """What is known of a dataset.

    Attributes:
        cardinality: the number of elements, or one of the two constants.
        spec: a nest of TensorSpecs, or a function that returns one if that takes reading.
        batch_size: the number of rows of a full batch, if elements are batches of a known size.
        static: whether every batch is full.
        certain: whether no function since the last `batch` can have changed the number of rows of a batch, so that
            batches may be split by `batch_size`.
        files: the number of files that are read, for AutoShardPolicy.FILE, or a function that returns it if that takes
            reading.
        shards: the product of the `num_shards` of every `Dataset.shard` that was applied.
        shard: the index of the last of these; None where the text of the program has a number for it, so that every
            worker has the same, as where rows are split into some to train and some to validate.
        part: whether `take` or `skip` has left out elements, so that none may be left on purpose.
        epoch: of a dataset that repeats without end, about how many elements it has until it does; 0 where that is
            not known.
        mapped: where a function makes the elements, the specs of the arrays that it is given.
    """

    cardinality: int = UNKNOWN_CARDINALITY
    spec: object = None
    batch_size: int | None = None
    static: bool = False
    certain: bool = True
    files: int | Callable[[], int] = 0
    shards: int = 1
    shard: int | None = None
    part: bool = False
    epoch: int = 0
    mapped: Sequence[TensorSpec] = ()

    @property
    def file_count(self) -> int:
        """The number of files; finding it may take reading."""
        return self.files() if callable(self.files) else self.files

    @property
    def arrays(self) -> list[TensorSpec]:
        """The specs of the arrays of an element; empty if the spec takes reading."""
        return [] if callable(self.spec) else [spec for spec in nest.flatten(self.spec) if isinstance(spec, TensorSpec)]


class Reading(NamedTuple):
    """One pass over a dataset: which of its files are read, and the seed that all workers agreed on.

    Attributes:
        num_shards, shard: every `num_shards`-th file is read, beginning with file number `shard`.
        seed: for shuffles without a seed of their own; None lets each draw one.
        peek: whether this is only a look, after which the next reading is shuffled as if it had not happened.
        tape: notes, or says, which seeds its shuffles draw.
    """

    num_shards: int = 1
    shard: int = 0
    seed: int | None = None
    peek: bool = False
    tape: Tape | None = None

    @property
    def whole(self) -> Reading:
        """The same reading without its shard: of all files."""
        return self._replace(num_shards=1, shard=0)


WHOLE = Reading()
PEEK = Reading(peek=True)


def batches(count: int, size: int, drop_remainder: bool) -> int:
    """The number of batches of `size` that `count` elements make."""
    return count if count < 0 else count // size if drop_remainder else -(-count // size)


def windows(count: int, size: int, shift: int, stride: int, drop_remainder: bool) -> int:
    """The number of windows that `count` elements make."""
    if count < 0:
        return count
    first = (size - 1) * stride + 1 if drop_remainder else 1
    return 0 if count < first else (count - first) // shift + 1


def repeated(count: int, times: int | None) -> int:
    """The number of elements after `times` repetitions; None repeats forever."""
    if count == 0 or times == 0:
        return 0
    if times is None:
        return INFINITE_CARDINALITY
    return count if count < 0 else count * times


def taken(count: int, limit: int) -> int:
    """The number of elements after `take(limit)`; a negative limit takes all."""
    if limit < 0:
        return count
    return limit if count == INFINITE_CARDINALITY else min(count, limit) if count >= 0 else count


def skipped(count: int, number: int) -> int:
    """The number of elements after `skip(number)`; a negative number skips all."""
    if number < 0 and count != UNKNOWN_CARDINALITY:
        return 0
    return max(count - number, 0) if count >= 0 else count


def sharded(count: int, num_shards: int, index: int) -> int:
    """The number of elements in shard `index` of `num_shards`."""
    return len(range(index, count, num_shards)) if count >= 0 else count


def zipped(counts: list[int]) -> int:
    """The number of elements of several datasets side by side, until the shortest ends."""
    finite = [count for count in counts if count != INFINITE_CARDINALITY]
    if UNKNOWN_CARDINALITY in finite:
        return UNKNOWN_CARDINALITY
    return min(finite) if finite else INFINITE_CARDINALITY


def unbatched(count: int, rows: list[int | None]) -> int:
    """The number of rows in `count` batches, given the rows of each component of a batch, None where unknown."""
    size = next((number for number in rows if number), None)
    return count if count < 0 else count * size if size else UNKNOWN_CARDINALITY


def mixed(counts: list[int]) -> int:
    """The number of elements drawn or chosen from several datasets, which is known only if one is infinite."""
    return INFINITE_CARDINALITY if INFINITE_CARDINALITY in counts else UNKNOWN_CARDINALITY


def concatenated(first: int, second: int) -> int:
    """The number of elements of one dataset followed by another."""
    if INFINITE_CARDINALITY in (first, second):
        return INFINITE_CARDINALITY
    return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in (first, second) else first + second
