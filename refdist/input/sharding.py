"""How the rows of a dataset are divided among workers and replicas: which policy applies, and what each worker reads.

The arithmetic of a split is in `input/split.py`; PerReplica values are made in `input/distributed.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refdist import errors, nest
from refdist.array.convert import is_text, to_array
from refdist.core import devices
from refdist.core.interfaces import Layout
from refdist.core.rules.input import (
    CUTS,
    FULL_BATCHES,
    ROWS_OF_A_BATCH,
    SHARDING,
    UNEVEN_STEP,
    Cut,
    Files,
    Readers,
    Reads,
    Shared,
    Size,
    Source,
    Step,
)
from refdist.core.rules.options import AutoShardPolicy, UnevenEnd
from refdist.core.rules.table import Refusal
from refdist.data import position
from refdist.data.dataset import Dataset
from refdist.data.facts import INFINITE_CARDINALITY, WHOLE, Facts, Reading
from refdist.data.position import Tape
from refdist.data.spec import TensorSpec, with_rows
from refdist.input.split import even_out, piece_sizes, split_batch, split_stream
from refdist.variables.interfaces import Extended


class Problem(NamedTuple):
    """A warning about how a dataset is distributed: its code, what was found, and what to do instead."""

    code: str
    found: str
    fix: str

    def __str__(self) -> str:
        return f"{self.found}; {self.fix}"


@dataclass(kw_only=True)
class Split:
    """Turns the pipelines of a worker into steps.

    Attributes:
        pipelines: what is read; one for each worker, for each of its hosts, or for each replica.
        layout: of the replicas.
        policy: in words, and why it was chosen.
        problems: what is lost, seen twice, or missing on a replica.
        readings: for each pipeline which part of the files is read, and the seed that the workers agreed upon.
        uneven: what becomes of a step in which replicas have different numbers of rows, a cell of UNEVEN.
        rows: to how many rows each element of such a step is padded; None for the longest of the step.
        waits: whether a worker may get empty elements, because others have rows left.
    """

    pipelines: Sequence[Iterable[object]]
    layout: Layout
    policy: str
    problems: list[Problem]
    readings: Sequence[Reading]
    uneven: Step | Refusal
    rows: int | None
    waits: bool

    @property
    def cuts(self) -> bool:
        """Whether elements are cut into pieces, or go to replicas whole."""
        return False

    @property
    def others(self) -> bool:
        """Whether this worker's pipelines determine the steps of other workers."""
        return False

    @property
    def covers(self) -> str:
        """What one step covers, in words, if that is the same for any number of replicas; else ""."""
        return ""

    def tapes(self) -> list[Tape]:
        """A tape for each pipeline, which notes the draws of its reading."""
        return [Tape(_sources(pipeline), reading.seed)
                for pipeline, reading in zip(self.pipelines, self.readings, strict=True)]

    def open(self, tapes: Sequence[Tape] = (), *, peek: bool = False) -> list[Iterable[Any]]:
        """Begins to read every pipeline, from its first element.

        Args:
            tapes: one for each pipeline, which says what it draws; () where the pipelines draw anew.
            peek: whether only the first elements are looked at, so that nothing counts as read.
        """
        readings = [reading._replace(tape=tape, seed=tape.seed)
                    for reading, tape in zip(self.readings, tapes, strict=True)] if tapes else self.readings
        return [dataset._pipeline.read(reading._replace(peek=peek)) if isinstance(dataset, Dataset) else dataset
                for dataset, reading in zip(self.pipelines, readings, strict=True)]

    def steps(self, pipelines: list[Iterable[object]], worker: int) -> Iterator[list[Any]]:
        """The steps of a worker, each a list with the element of every replica of that worker."""
        raise errors.InternalError("abstract")

    def spec(self, of_pipeline: object) -> Any:
        """The spec of one replica's element from the spec of a pipeline's."""
        if self.uneven is Step.PAD:
            return with_rows(of_pipeline, self.rows), TensorSpec((self.rows,), np.bool_)
        return self._spec(of_pipeline)

    def _spec(self, of_pipeline: object) -> Any:
        raise errors.InternalError("abstract")


@dataclass(kw_only=True)
class _OfBatches(Split):
    """The pieces of the global batches of one dataset.

    A reader is a worker or, where one program has several hosts, as on a TPU, a host.

    Attributes:
        hosts: how many readers this worker is.
        places: for each replica of this worker the number of its host, and which of the host's replicas it is.
        ends: whether there is no further step once a host has no rows left.
        reads, cut, shared: cells of SHARDING, CUTS and UNEVEN.
        size, sizes: the rows of a full batch and of its pieces, None where they are not known.
    """

    hosts: int
    places: Sequence[tuple[int, int]]
    ends: bool
    reads: Reads
    cut: Cut
    shared: Shared
    size: int | None
    sizes: list[int] | None

    @property
    def cuts(self) -> bool:
        return self.layout.total > 1

    @property
    def others(self) -> bool:
        return self.reads is not Reads.ITS_FILES

    @property
    def covers(self) -> str:
        alone = self.layout.workers * self.hosts == 1
        if self.uneven is Step.DROP or not (alone or self.reads is Reads.ITS_SHARE):
            return ""
        return f"{self.size} rows" if self.cut is Cut.ROW_STREAM else "a batch"

    def steps(self, pipelines: list[Iterable[object]], worker: int) -> Iterator[list[Any]]:
        first, readers = worker * self.hosts, self.layout.workers * self.hosts
        if self.reads is Reads.ITS_SHARE:
            for step in self._even(self._pieces(pipelines[0], first)):
                yield [step[first + host + place * readers] for host, place in self.places]
            return
        read = itertools.tee(pipelines[0], self.hosts) if len(pipelines) < self.hosts else pipelines
        yield from self._even(self._of_hosts([self._pieces(rows, first + host) for host, rows in enumerate(read)]))

    def _even(self, steps: Iterable[list[object]]) -> Iterator[list[Any]]:
        for number, step in enumerate(steps):
            even = even_out(step, self.uneven, self.rows, number)
            if even is not None:
                yield even

    def _of_hosts(self, hosts: Sequence[Iterator[list[object]]]) -> Iterator[list[Any]]:
        # The steps of all hosts as one, with empty elements for a host that has no rows left.
        for step in itertools.zip_longest(*hosts):
            if self.ends and None in step:
                return
            like = next(pieces[0] for pieces in step if pieces)
            yield [nest.map_structure(lambda leaf: to_array(leaf)[:0], like) if step[host] is None
                   else step[host][place] for host, place in self.places]

    def _pieces(self, batches: Iterable[object], reader: int) -> Iterator[list[Any]]:
        # Each step has elements for all replicas if readers read their shares, otherwise for the reader's own.
        count = self.layout.count // self.hosts
        if self.cut is Cut.ROW_STREAM and self.sizes is not None:
            first = reader * count
            return split_stream(batches, self.sizes[first:] + self.sizes[:first], count)
        whole = self.shared is Shared.EVERY_ROW
        cut = (split_batch(batch, self.layout.total, i, whole) for i, batch in enumerate(batches))
        return cut if self.reads is Reads.ITS_SHARE else _chunks(itertools.chain.from_iterable(cut), count)

    def _spec(self, of_pipeline: object) -> Any:
        return of_pipeline if self.cut is Cut.WHOLE else nest.map_structure(self._spec_of_piece, of_pipeline)

    def _spec_of_piece(self, component: TensorSpec) -> TensorSpec:
        rows, total = component.shape[0] if component.shape and not self.waits else None, self.layout.total
        if self.cut is Cut.ROW_STREAM and rows != self.size:
            rows = None
        return component.with_rows(rows // total if rows is not None and rows % total == 0 else None)


def _sources(dataset: Iterable[object]) -> tuple[position.Source, ...]:
    if isinstance(dataset, Dataset):
        return dataset._pipeline.sources
    return () if isinstance(dataset, (list, tuple)) else (
        f"{errors.type_of(dataset)}, of which nobody knows whether it yields the same again",)


def of_dataset(extended: Extended, dataset: Iterable[object], uneven: UnevenEnd) -> Split:
    """The split of one dataset of global batches.

    Raises:
        RD15: scalars.  RD18: the files, or the rows of a batch, cannot be shared out.
    """
    layout: Layout = extended.layout
    places = _places(layout)
    hosts, count = 1 + max(host for host, _ in places), layout.total
    readers, noun = layout.workers * hosts, "worker" if hosts == 1 else "host"
    known, policy = Facts(), AutoShardPolicy.AUTO
    if isinstance(dataset, Dataset):
        known, policy = dataset._pipeline.facts, dataset.options().experimental_distribute.auto_shard_policy
    if count > 1:
        _check_rows(known, count)
    # A function is asked for files only if it matters.  The hosts of one worker cannot divide what it opens: each would
    # draw another order in a shuffle.
    asked = hosts == 1 and policy in (AutoShardPolicy.AUTO, AutoShardPolicy.FILE)
    files = known.file_count if asked or not callable(known.files) else 0
    reads = _reads(policy, files, readers, noun)
    size, certain = _batch_size(known)
    cut = CUTS[reads][Size.ONE_REPLICA if count == 1 else Size.CERTAIN if certain else Size.UNKNOWN]
    readings = [WHOLE]
    if readers > 1 and reads is Reads.ITS_FILES:
        seed = extended.agreed_seed() if callable(known.files) else None
        readings = [Reading(readers, layout.worker * hosts + i, seed) for i in range(hosts)]
    elif layout.workers > 1:
        readings = [Reading(seed=extended.agreed_seed())]
    shared = ROWS_OF_A_BATCH[uneven]
    sizes = None if size is None else _sizes(size, count, cut, shared)
    problems = _problems(policy, reads, known, readers, [layout.worker * hosts + i for i in range(hosts)], noun, size)
    if size is not None and sizes is not None and cut is not Cut.WHOLE:
        owners = _owners(layout, places) if reads is Reads.ITS_SHARE else list(range(count))
        problems = _empty_shares(sizes, size, owners) + problems
    full = hosts > 1 and known.static
    return _OfBatches(
        pipelines=[dataset] * len(readings), layout=layout,
        policy=f"{policy.name}: {_HOW[cut]}, {_why(policy, files, readers, noun)}", problems=problems,
        readings=readings, uneven=UNEVEN_STEP[uneven], rows=max(sizes) if sizes else None,
        waits=readers > 1 and not full and known.cardinality != INFINITE_CARDINALITY, hosts=hosts, places=places,
        ends=full and FULL_BATCHES[uneven] is Step.DROP, reads=reads, cut=cut,
        shared=shared, size=size, sizes=sizes)


def _places(layout: Layout) -> list[tuple[int, int]]:
    # For each replica of this worker the number of its host, and which of the host's replicas it is.  Hosts with
    # different numbers of replicas read as one.
    names = list(map(devices.host, layout.devices))
    counts = dict.fromkeys(names, 0)
    numbers = {name: i for i, name in enumerate(counts)}
    places = []
    for name in names:
        places.append((numbers[name], counts[name]))
        counts[name] += 1
    return places if len(set(counts.values())) == 1 else [(0, i) for i in range(layout.count)]


def _owners(layout: Layout, places: list[tuple[int, int]]) -> list[int]:
    # For each piece of a batch, the replica that gets it, if readers read their shares.
    hosts = 1 + max(host for host, _ in places)
    numbers = {place: i for i, place in enumerate(places)}
    pieces = [divmod(piece, layout.workers * hosts) for piece in range(layout.total)]
    return [reader // hosts * layout.count + numbers[reader % hosts, place] for place, reader in pieces]


_HOW = {
    Cut.WHOLE: "the one replica gets every batch whole",
    Cut.EACH_BATCH: "every batch is cut into pieces of the same rounded-up size",
    Cut.ROW_STREAM: "the stream of rows is cut into pieces that differ by at most one row",
}


def _reads(policy: AutoShardPolicy, files: int, readers: int, noun: str) -> Reads:
    # The cell of SHARDING, where it does not refuse.
    which = Files.NONE if not files else Files.SOME if readers == 1 else (
        Files.FEWER if files < readers else Files.ENOUGH)
    reads = SHARDING[policy][Source(Readers.ONE if readers == 1 else Readers.SEVERAL, which)]
    if isinstance(reads, Refusal):
        numbers = f"there are {errors.counted(readers, noun)} and {errors.counted(files, 'file')}"
        raise errors.error(reads.code, f"AutoShardPolicy.{policy.name}", f"{numbers}, so a {noun} would have no rows",
                           f"Use AutoShardPolicy.DATA, or write at least one file for each {noun}.")
    return reads


def _why(policy: AutoShardPolicy, files: int, readers: int, noun: str) -> str:
    if policy is not AutoShardPolicy.AUTO:
        return "as the options say"
    if not files:
        return "as no files are read"
    if files >= readers:
        return f"as files are read and there are enough for {errors.counted(readers, noun)}"
    return f"as there are fewer files ({files}) than {noun}s ({readers})"


def _sizes(size: int, count: int, cut: Cut, shared: Shared) -> list[int]:
    # The rows of the pieces of a full batch.
    if shared is Shared.EQUAL_SHARES:
        return [size // count] * count
    if cut is not Cut.EACH_BATCH:
        return piece_sizes(size, count)
    each = -(-size // count)
    return [min(each, max(size - i * each, 0)) for i in range(count)]


def _problems(policy: AutoShardPolicy, reads: Reads, known: Facts, readers: int, here: list[int], noun: str,
              size: int | None) -> list[Problem]:
    # `here` are the numbers of this worker's readers.
    problems = []
    if readers > 1 and reads is Reads.ALL_ROWS:
        problems.append(Problem("RD50", f"with {policy.name} each of the {readers} {noun}s reads all rows, so every "
                                f"row is seen {readers} times", "use DATA, or shard the dataset"))
    elif readers > 1 and known.shards == readers and known.shard in here:
        problems.append(Problem("RD50", f"the dataset is one of {readers} shards already, that of this {noun}, and "
                                f"is shared out between the {noun}s once more, so rows are lost",
                                "leave out `shard`, or use AutoShardPolicy.OFF; where every worker takes this shard, "
                                "to split rows into some to train and some to validate, nothing is wrong, and a number "
                                "in place of the index says so"))
    if known.cardinality == 0 and known.static:
        problems.append(Problem("RD45", f"there is no step: no batch has all of its {size} rows, and the remainder is "
                                "dropped", "take smaller batches, or keep the remainder"))
    return problems


def _batch_size(known: Facts) -> tuple[int | None, bool]:
    # The rows of a full batch, and whether they are certain before reading: by the spec, as in TensorFlow, or by the
    # last batch, as long as nothing since can have changed it.
    rows = {array.shape[0] if array.shape else None for array in known.arrays} or {None}
    if None in rows:
        return known.batch_size, known.batch_size is not None and known.certain
    return (rows.pop(), True) if len(rows) == 1 else (None, False)


def _check_rows(known: Facts, count: int) -> None:
    if any(array.shape == () and array.dtype != object for array in known.arrays):
        raise errors.error("RD15", "experimental_distribute_dataset", "the elements have a scalar component, which "
                           f"cannot be split over {count} replicas")


def _empty_shares(sizes: list[int], size: int, owners: list[int]) -> list[Problem]:
    if not any(sizes):
        raise errors.error("RD18", "experimental_distribute_dataset", f"a batch has {size} rows, so none of the "
                           f"{len(sizes)} replicas has a row when the uneven end is dropped",
                           "Use larger batches.", kind=errors.InvalidValueError)
    empty = sorted(owner for owner, rows in zip(owners, sizes, strict=True) if not rows)
    if not empty:
        return []
    which = f"replica {empty[0]} gets" if len(empty) == 1 else f"replicas {', '.join(map(str, empty))} get"
    evenly = ", or AutoShardPolicy.OFF for pieces that differ by at most one" if size >= len(sizes) else ""
    return [Problem("RD46", f"{which} no row of a full batch: {errors.counted(size, 'row')} on {len(sizes)} replicas "
                    f"make pieces of {sizes}", f"take a multiple of {len(sizes)}{evenly}")]


@dataclass(kw_only=True)
class _OfPipelines(Split):
    """The elements of datasets that an input function made: one for each host of this worker, or for each replica.

    Attributes:
        feeds: for each replica which of the datasets it reads.
        fixed: whether elements have a fixed number of rows, so that an empty array cannot replace one that is missing.
    """

    feeds: Sequence[int]
    fixed: bool

    def steps(self, pipelines: list[Iterable[object]], worker: int) -> Iterator[list[Any]]:
        for number, step in enumerate(_in_turn(pipelines, self.feeds)):
            if self.uneven is Step.DROP and any(element is _NOTHING for element in step):
                return
            present = [element for element in step if element is not _NOTHING]
            full = [_empty(present[0], i, number, self.fixed) if element is _NOTHING else element
                    for i, element in enumerate(step)]
            even = even_out(full, self.uneven, self.rows, number)
            if even is not None:
                yield even

    def _spec(self, of_pipeline: object) -> Any:
        return with_rows(of_pipeline, None) if self.waits else of_pipeline


def of_pipelines(extended: Extended, datasets: list[Iterable[object]], feeds: Sequence[int],
                 uneven: UnevenEnd) -> Split:
    """The split of datasets that a function made; `feeds` has for each replica the index of the one that it reads."""
    layout: Layout = extended.layout
    first = datasets[0]._pipeline.facts if isinstance(datasets[0], Dataset) else Facts()
    alone = layout.workers == 1
    ends = FULL_BATCHES if first.static and alone else UNEVEN_STEP
    how = "replicas take the next element in turn" if len(datasets) == 1 else (
        "every replica reads its own dataset" if len(datasets) == layout.count
        else "the replicas of each host take its next element in turn")
    # Where the first dimension of an element is known, an empty array is not such an element.
    fixed = alone and any(array.shape and array.shape[0] for array in first.arrays)
    return _OfPipelines(
        pipelines=datasets, readings=[WHOLE] * len(datasets), layout=layout,
        policy=f"{how}, as a function made it", problems=[],
        uneven=ends[uneven], rows=first.batch_size,
        waits=not alone and first.cardinality != INFINITE_CARDINALITY, feeds=feeds, fixed=fixed)


def _in_turn(datasets: Sequence[Iterable[object]], feeds: Sequence[int]) -> Iterator[list[Any]]:
    elements = list(map(iter, datasets))
    while True:
        step = [next(elements[i], _NOTHING) for i in feeds]
        if all(element is _NOTHING for element in step):
            return
        yield step


def _chunks(pieces: Iterator[object], size: int) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(pieces, size)):
        yield chunk


_NOTHING = object()


def _empty(like: object, replica: int, step: int, fixed: bool) -> Any:
    def none_of(leaf: object) -> Any:
        if leaf is None:
            return None
        array: Any = leaf if is_text(leaf) else to_array(leaf)
        if fixed or not np.ndim(array):
            what = "a scalar" if not np.ndim(array) else f"an element of shape {array.shape}, which all have"
            raise errors.error("RD15", "reading a distributed dataset", f"replica {replica} has no element left in "
                               f"step {step}, and an empty array cannot replace {what}",
                               "Batch the dataset, make its length a multiple of the number of replicas, or choose "
                               "`InputOptions(uneven_end=UnevenEnd.DROP)`.")
        return array[:0]

    return nest.map_structure(none_of, like)


def empty_of(spec: object) -> Any:
    """An element without rows, for a replica that has none left.

    Raises:
        RD15: scalars, which an empty array cannot replace.
    """
    def none_of(leaf: TensorSpec | None) -> Any:
        if leaf is None:
            return None
        if not leaf.shape:
            raise errors.error("RD15", "reading a distributed dataset", "this worker has no element left, and an "
                               "empty array cannot replace a scalar", "Batch the dataset.")
        lengths = [length or 0 for length in leaf.shape[1:]]
        return np.empty((0, *lengths), leaf.dtype)

    return nest.map_structure(none_of, spec)
