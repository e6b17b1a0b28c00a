"""Distributed datasets: which replica gets which rows of every batch.

How the rows are divided is chosen in `sharding.py`; elements become PerReplica values here.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from collections.abc import Iterator as PythonIterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from opcode import opmap
from typing import Any, TypeVar

import numpy as np

from refdist import errors, journal, nest, notebook
from refdist.array import own_writes, replica_checks, texts
from refdist.array.backend import scalar
from refdist.array.convert import has_dtype
from refdist.core import call_site, checks, devices, loops, remarks
from refdist.core.callers import require
from refdist.core.integers import as_integer
from refdist.core.rules.calls import Call
from refdist.core.rules.input import MODES, Distributing
from refdist.core.rules.options import InputReplicationMode, UnevenEnd
from refdist.core.rules.table import Refusal
from refdist.core.rules.values import Result
from refdist.data import elements
from refdist.data.dataset import Dataset
from refdist.data.facts import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from refdist.data.iterator import BUSY, Iterator
from refdist.data.origin import Origin
from refdist.data.position import Tape
from refdist.data.spec import TensorSpec, common, spec_of, with_rows
from refdist.input import dealing, sharding
from refdist.input.explanation import Explanation, pairs
from refdist.input.options import InputContext, InputOptions
from refdist.missing import lacks
from refdist.variables.interfaces import Strategy
from refdist.variables.values import PerReplica, regroup
from refdist.workers.transport import Transport

_State = TypeVar("_State")
_Element = TypeVar("_Element")
# The epochs of an endless dataset after which a loop over it is checked for an end.
_EPOCHS = 10
# How many iterators may give one element each without a warning.
_BEGUN = 2
# The most calls of `run` that count as one step.
_RUNS_OF_A_STEP = 3


class DistributedIterator(Iterator):
    """Reads a distributed dataset once, from its beginning.

    Source: tf.distribute.DistributedIterator.
    """

    _dataset: DistributedDataset

    def __init__(self, dataset: DistributedDataset) -> None:
        self._strategy = dataset._strategy
        extended = dataset._strategy.extended
        self._devices = extended.layout.devices
        self._fetches = dataset._options.experimental_fetch_to_device
        self._numbers: PythonIterator[list[Any]] | None = None
        super().__init__(dataset, self._read_steps, dataset._split.tapes())
        self._like: object = None  # the spec of elements without rows, once a worker needs one
        self._given = 0
        self._first: list[Any] = []  # the first step, for the check of repeated iterators
        # The line that has iterated to the end.
        self._went: call_site.Site = ()
        self._ended = False
        # The step at which the loop is checked for an end; -1 for never.
        self._long = _EPOCHS * dataset._epoch() or -1

    def _read_steps(self, tapes: Sequence[Tape]) -> PythonIterator[list[Any]]:
        # Row numbers are opened before the rows, because opening the rows draws the order of a shuffle.
        self._numbers = None if journal.recording.value is None else self._dataset._numbers(tapes)
        return self._dataset._steps(tapes)

    def _position(self) -> dict[str, Any]:
        return {**super()._position(), "replicas": self._strategy.extended.layout.total,
                "step": self._dataset._split.covers}

    def _place(self) -> dict[str, Any]:
        # A collective of all workers, which save together.
        transport = self._strategy.extended.transport
        return {"workers": transport.all_gather_object(transport.call("saving an iterator's position"),
                                                       self._position())}

    def _here(self, positions: Sequence[Any]) -> Any:
        layout = self._strategy.extended.layout
        first = positions[0]
        if len(positions) == layout.workers and first["replicas"] == layout.total:
            return positions[layout.worker]
        # Step n has the same rows on any number of replicas if all workers read alike.
        if first["step"] and first["step"] == self._dataset._split.covers:
            return first
        raise ValueError(f"{first['replicas']} replicas on {len(positions)} workers have read, here are {layout.total} "
                         f"on {layout.workers}, and steps are not whole batches of one dataset on both")

    def _read_again(self, position: Any) -> Callable[[], None]:
        numbers = self._numbers
        try:
            back = super()._read_again(position)
        except BaseException:
            self._numbers = numbers
            raise
        self._ended = False
        if self._numbers is not None:
            deque(islice(self._numbers, position["read"]), maxlen=0)

        def back_with_numbers() -> None:
            back()
            self._numbers = numbers
        return back_with_numbers

    def __next__(self) -> Any:
        require(self._strategy, Call.GET_NEXT)
        extended = self._strategy.extended
        put = extended.backend.put if self._fetches else None
        with self._turn:
            try:
                numbers = None if self._numbers is None else next(self._numbers, None)
                step = self._next_of_all(extended.transport)
                self._count += 1
            except StopIteration:
                if not self._count:
                    self._remark_on_no_step()
                self._ended = True
                if checks.types.value:
                    own_writes.remark(len(self._devices))
                raise
            except ValueError as error:
                if str(error) != BUSY:
                    raise
                raise self._busy() from error
            self._given += 1
            if self._given == 1 and checks.watch.value:
                self._first = step
            if self._given == self._long:
                self._remark_on_no_end()
            journal.rows.value = counts = list(map(_count, step))
            if journal.recording.value is not None:
                journal.recording.value.write(
                    "step", counts=counts,
                    rows=None if numbers is None else [pairs(_rows_of(part)) for part in numbers])
        if put is not None:
            step = [_on_device(put, element, device) for element, device in zip(step, self._devices, strict=True)]
        elif extended.backend.makes_all:
            step = list(map(elements.as_the_backend_s, step))
        step = list(map(elements.handed, step))
        if checks.types.value and extended.layout.total > 1:
            step = replica_checks.element(step)
        return regroup(step, self._devices, "dataset element", Result.ELEMENT, extended.value_container)

    def __iter__(self) -> PythonIterator[Any]:
        caller = sys._getframe(1)
        if caller.f_code.co_code[caller.f_lasti] == opmap["GET_ITER"] and not call_site.is_ours(
                caller.f_globals.get("__name__", "")):
            site = call_site.that_led_here()
            if self._ended and self._went == site:
                remarks.make("RD45", site, "iterating over a distributed dataset",
                             "this line has come to the end of this iterator before, so there is no step")
            self._went = site
        return self

    def _remark_on_no_step(self) -> None:
        # What `take` and `skip` leave may be nothing: of an epoch that a checkpoint has the end of.
        split = self._dataset._split
        asked = any(isinstance(dataset, Dataset) and dataset._pipeline.facts.part for dataset in split.pipelines)
        if not asked and not any(problem.code == "RD45" for problem in split.problems):
            remarks.make("RD45", call_site.that_led_here(), "iterating over a distributed dataset",
                         "it has no element, so there is no step")

    def _remark_on_no_end(self) -> None:
        site = call_site.that_led_here()
        if site and loops.never_ends(site):
            remarks.make("RD47", site, "iterating over a distributed dataset",
                         f"this is step {self._given}, an epoch has about {self._given // _EPOCHS}, the dataset "
                         "repeats without end, and nothing else ends the loop")

    def _next_of_all(self, transport: Transport) -> list[Any]:
        # A worker that has read all its rows returns empty elements until every worker has.  Their lengths are those of
        # another worker's element, because it may have had none itself, and no spec tells what a function returns.
        step: list[Any] | None = next(self._elements, None)
        left = transport.all_gather_object(transport.call("next element of a distributed dataset"), step is not None)
        if not any(left):
            raise StopIteration
        if self._like is None and not all(left):
            call = transport.call("element of a distributed dataset, for workers without one")
            specs = transport.all_gather_object(call, None if step is None else spec_of(step[0]))
            self._like = specs[left.index(True)]
        if step is None:
            step = [sharding.empty_of(self._like)] * len(self._devices)
        return step


@lacks({"auto_shard build": "Leave it out: the dataset is divided when it is read."})
class DistributedDataset:
    """One element per replica and step; can be read again and again.

    Source: tf.distribute.DistributedDataset.
    """

    def __init__(self, strategy: Strategy, split: sharding.Split, options: InputOptions) -> None:
        self._strategy = strategy
        self._split = split
        self._options = options
        self._begun: dict[call_site.Site, list[tuple[DistributedIterator, int]]] = {}
        site = call_site.that_led_here()
        for code, found, fix in split.problems:
            remarks.make(code, site, "a distributed dataset", found, f"{fix[0].upper()}{fix[1:]}.")

    def _steps(self, tapes: Sequence[Tape]) -> PythonIterator[list[Any]]:
        return dealing.dealt(self._split.steps(self._split.open(tapes), self._strategy.extended.layout.worker))

    def _numbers(self, tapes: Sequence[Tape]) -> PythonIterator[list[Any]] | None:
        # The numbers of the rows of each step; None where reading them would call functions of the program once more,
        # or they cannot be followed.
        origins = self._origins()
        numbers: list[Iterable[Any]] = [
            map(np.asarray, origin.read(reading._replace(peek=True, seed=tape.seed, tape=tape.played())))
            for origin, reading, tape in zip(origins, self._split.readings, tapes, strict=True)
            if origin and not origin.calls]
        if len(numbers) < len(origins):
            return None
        return _until_error(dealing.dealt(self._split.steps(numbers, self._strategy.extended.layout.worker)))

    def _epoch(self) -> int:
        # The steps in one epoch of a dataset that repeats without end; 0 if that is not known.
        known = [dataset._pipeline.facts for dataset in self._split.pipelines if isinstance(dataset, Dataset)]
        return max((facts.epoch for facts in known if facts.cardinality == INFINITE_CARDINALITY), default=0)

    def __iter__(self) -> DistributedIterator:
        self._strategy.extended.check_reader("iterating over a distributed dataset")
        iterator = DistributedIterator(self)
        if checks.watch.value:
            self._remark_on_another(iterator)
        return iterator

    def _remark_on_another(self, iterator: DistributedIterator) -> None:
        # Whether this line has begun the dataset again and again, each time for one step, and that the same one; a
        # look at it once in an epoch is no mistake.
        site, runs = call_site.that_led_here(), self._strategy.extended.runs
        before = self._begun.setdefault(site, [])
        before.append((iterator, runs))
        if len(before) > _BEGUN and all(
                previous._given == 1 and not previous._ended and _equal(previous._first, before[0][0]._first)
                and later - earlier <= _RUNS_OF_A_STEP
                for (previous, earlier), (_, later) in itertools.pairwise(before)):
            remarks.make("RD49", site, "iterating over a distributed dataset",
                         "this line makes a new iterator in every step: each earlier one has given a single element, "
                         "the same one each time")
        del before[:-_BEGUN]

    def reduce(self, initial_state: _State, reduce_func: Callable[..., _State]) -> _State:
        """`reduce_func(state, element)` over all elements, beginning with `initial_state`.

        Args:
            initial_state: of any kind, what `reduce_func` is called with first.
            reduce_func: takes a state and an element, which holds one nest of arrays for each replica, and returns the
                next state.

        Raises:
            What the function raises.
        """
        state = initial_state
        for element in self:
            state = reduce_func(state, element)
        return state

    @property
    def cardinality(self) -> Any:
        """The number of elements of the dataset that was distributed; -1 infinite, -2 unknown."""
        source = self._split.pipelines[0]
        if isinstance(source, Dataset):
            return source.cardinality()
        return scalar(np.int64(len(source) if isinstance(source, Sized) else UNKNOWN_CARDINALITY))

    @property
    def element_spec(self) -> Any:
        """A nest of PerReplica values with a TensorSpec for each replica; bare with one replica.

        >>> import refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> batches = refdist.data.Dataset.range(7).batch(4, drop_remainder=True)
        >>> strategy.experimental_distribute_dataset(batches).element_spec.values[0]
        TensorSpec(shape=(2,), dtype=int64)

        Source: tf.distribute.DistributedDataset.element_spec.
        """
        devices = self._strategy.extended.layout.devices
        spec = self._split.spec(_spec_of(self._split.pipelines[0]))
        return spec if len(devices) == 1 else nest.map_structure(
            lambda component: PerReplica([component] * len(devices), devices), spec)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self._strategy!r}>"

    def _repr_html_(self) -> str:
        return notebook.drawing(self)

    def _origins(self) -> list[Origin | None]:
        # The origins of the row numbers of each pipeline; None without numbers.
        return [_origin(pipeline, self._split.cuts) for pipeline in self._split.pipelines]

    def explain(self, steps: int = 3) -> Explanation:
        """Who gets which rows: the policy and why, and the numbers of the rows in the first steps.

        The first elements are read for it.  Rows of `range` and `from_tensor_slices` keep their numbers when they are
        shuffled, chosen, filtered, mapped one by one and batched; else their positions are counted, and it says so.

        Args:
            steps: how many, 1 or more.

        >>> import refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> print(strategy.experimental_distribute_dataset(refdist.data.Dataset.range(7).batch(4)).explain())
        MirroredStrategy: 2 replicas on 1 worker
        AUTO: every batch is cut into pieces of the same rounded-up size, as no files are read
        <BLANKLINE>
                   step 0  step 1
        replica 0  0-1     4-5
        replica 1  2-3     6

        Raises:
            RD15: what is read cannot be split.  RD25: `steps` is not an int.
        """
        count = as_integer(steps)
        if count is None or count < 1:
            raise errors.error("RD25", "DistributedDataset.explain", f"steps is {steps!r}", "Pass an int of 1 or more.")
        layout = self._strategy.extended.layout
        local, total = layout.count, layout.workers
        shares: list[tuple[str, list[Any]]] = []
        origins = self._origins()
        for worker in range(total) if self._split.others else [layout.worker]:
            numbered: list[Iterable[Any]] = (
                [*map(_numbered, self._split.open(peek=True))] if None in origins
                else [map(np.asarray, origin.read(reading._replace(peek=True)))
                      for origin, reading in zip(origins, self._split.readings, strict=True) if origin])
            read = list(islice(self._split.steps(numbered, worker), count))
            of = f" of worker {worker}" if total > 1 else ""
            shares += [(f"replica {worker * local + i}{of}", [_rows_of(step[i]) for step in read])
                       for i in range(local)]
        explanation = Explanation(f"{type(self._strategy).__name__}: {layout}", self._split.policy, shares,
                                  list(map(str, self._split.problems)))
        if None in origins and any(isinstance(pipeline, Dataset) for pipeline in self._split.pipelines):
            positions = "positions in the stream that is shared out, as its rows cannot be followed from their source"
            return explanation._replace(numbers=positions)
        return explanation


class LateDataset(DistributedDataset):
    """A distributed dataset that each worker makes when it reads it.

    Args:
        strategy: whose dataset it is.
        make: makes it.
    """

    def __init__(self, strategy: Strategy, make: Callable[[], DistributedDataset]) -> None:
        self._strategy = strategy
        self._make = make

    def __call__(self) -> DistributedDataset:
        return self._make()

    @cached_property
    def _split(self) -> sharding.Split:  # type: ignore[override]
        # What is asked without reading, such as `element_spec`, one made here tells.
        return self._make()._split

    def __iter__(self) -> DistributedIterator:
        self._strategy.extended.check_reader("iterating over a distributed dataset")
        return iter(self._make())


def check(dataset: object, options: object, attempted: str) -> InputOptions:
    """Checks the arguments for distributing a dataset; returns the options, with defaults for None.

    Raises:
        RD25, RD34: an array, a dataset that cannot be iterated again, or bad options.
    """
    if has_dtype(dataset):
        raise errors.error("RD25", attempted, f"got {errors.type_of(dataset)}, whose rows are not batches",
                           "Pass `refdist.data.Dataset.from_tensor_slices(array).batch(global_batch_size)`.")
    if isinstance(dataset, (str, bytes, dict, PerReplica, DistributedDataset)) or not hasattr(dataset, "__iter__") \
            or hasattr(dataset, "__next__"):
        raise errors.error("RD25", attempted, f"got {errors.type_of(dataset)}",
                           "Pass a refdist.data.Dataset, or a list of batches; an iterator can be read only once.")
    if isinstance(dataset, Dataset) and not callable(dataset._pipeline.facts.spec):
        _check_arrays(dataset.element_spec, attempted)
    return _check_options(options, attempted)


def distribute(strategy: Strategy, dataset: Iterable[object], options: object) -> Any:
    """What `Strategy.experimental_distribute_dataset` returns.

    Raises:
        RD18: the files or rows cannot be shared out.  RD20: the mode PER_REPLICA.
        RD25, RD34: a dataset that cannot be iterated again, or bad options.
    """
    attempted = "experimental_distribute_dataset"
    options = check(dataset, options, attempted)
    mode = options.experimental_replication_mode
    cell = MODES[Distributing.DATASET][mode]
    if isinstance(cell, Refusal):
        raise errors.error(cell.code, attempted, f"the replication mode is {mode.value}",
                           "PER_WORKER is the only mode for a dataset.")
    return DistributedDataset(strategy, sharding.of_dataset(strategy.extended, dataset, options.uneven_end), options)


def check_function(strategy: Strategy, dataset_fn: object, options: object) -> InputOptions:
    """Checks the arguments for distributing from a function; returns the options, with defaults for None.

    Raises:
        RD20: a mode that the strategy does not have.  RD25, RD34: bad arguments.
    """
    attempted = "distribute_datasets_from_function"
    if not callable(dataset_fn):
        raise errors.error("RD25", attempted, f"dataset_fn is {dataset_fn!r}", "Pass a function of an InputContext.")
    options = _check_options(options, attempted)
    mode = options.experimental_replication_mode
    per_replica = mode is InputReplicationMode.PER_REPLICA
    if options.experimental_place_dataset_on_device and not (
            per_replica and not options.experimental_fetch_to_device):
        obstacle = ("experimental_fetch_to_device is True too" if per_replica
                 else "the replication mode is PER_WORKER")
        raise errors.error("RD34", attempted, f"experimental_place_dataset_on_device is True, and {obstacle}",
                           "Set experimental_place_dataset_on_device only with PER_REPLICA, and "
                           "experimental_fetch_to_device=False with it.")
    alone = strategy.extended.layout.workers == 1
    cell = MODES[Distributing.FUNCTION_ONE_WORKER if alone else Distributing.FUNCTION_SEVERAL_WORKERS][mode]
    if isinstance(cell, Refusal):
        where = "one worker" if alone else "several workers"
        raise errors.error(cell.code, attempted, f"the replication mode is {mode.value} on {where}", "Use PER_WORKER.")
    return options


def distribute_from_function(strategy: Strategy, dataset_fn: Callable[[InputContext], Iterable[object]],
                             options: object) -> DistributedDataset:
    """What `Strategy.distribute_datasets_from_function` returns.

    Raises:
        RD20, RD25: as `check_function`.  RD25: a dataset that cannot be iterated again.
    """
    attempted = "distribute_datasets_from_function"
    options = check_function(strategy, dataset_fn, options)
    extended = strategy.extended
    local, workers = extended.layout.count, extended.layout.workers
    per_replica_mode = options.experimental_replication_mode is InputReplicationMode.PER_REPLICA
    # One pipeline for each replica, or for each host: a TPU may have several in one process.
    hosts = list(map(devices.host, extended.layout.devices))
    feeds = list(range(local)) if per_replica_mode else list(map([*dict.fromkeys(hosts)].index, hosts))
    here = 1 + max(feeds)
    pipelines, first = (local, 0) if per_replica_mode else (workers * here, extended.layout.worker * here)
    contexts = [InputContext(pipelines, first + i, workers * local) for i in range(here)]
    datasets = [dataset_fn(context) for context in contexts]
    for dataset in datasets:
        check(dataset, options, f"the dataset_fn of {attempted}")
    split = sharding.of_pipelines(extended, datasets, feeds, options.uneven_end)
    if pipelines > 1 and not any(context._asked for context in contexts):
        split.problems.append(sharding.Problem(
            "RD50", f"dataset_fn did not ask for input_pipeline_id, so all {pipelines} pipelines may read the same "
            "rows",
            "use `dataset.shard(context.num_input_pipelines, context.input_pipeline_id)`"))
    return DistributedDataset(strategy, split, options)


def _on_device(put: Callable[..., object], element: object, device: str) -> Any:
    # None in an element stays None.
    def on_device(leaf: object) -> object:
        return leaf if leaf is None else texts.read(put(leaf, device))

    return on_device(element) if not nest.is_nested(element) else nest.map_structure(on_device, element)


def _origin(dataset: object, cuts: bool) -> Origin | None:
    # A single row that is cut, such as a vector, has no row numbers for its parts.
    origin = dataset._pipeline.origin if isinstance(dataset, Dataset) else None
    return None if origin is None or (cuts and origin.single) else origin


def _numbered(pipeline: Iterable[object]) -> PythonIterator[Any]:
    # The split is run over row numbers instead of rows, to see which replica gets which.
    start = 0
    for element in pipeline:
        leaf, count = nest.flatten(element)[0], _count(element)
        yield np.arange(start, start + count) if np.ndim(leaf) else np.asarray(start)
        start += count


def _rows_of(element: object) -> Any:
    if isinstance(element, tuple):
        rows, mask = element
        return rows[mask]
    return element


def _equal(step: list[Any], other: list[Any]) -> bool:
    # Whether two steps have equal arrays; arrays on a GPU are not compared, as that would wait for it.
    arrays, others = nest.flatten(step), nest.flatten(other)
    return len(arrays) == len(others) and all(
        isinstance(array, np.ndarray) and np.array_equal(array, its) for array, its in zip(arrays, others, strict=True))


def _until_error(steps: PythonIterator[list[_Element]]) -> PythonIterator[list[_Element]]:
    # Errors of the rows are raised by the step itself.
    with suppress(errors.RefdistError):
        yield from steps


def _count(element: object) -> int:
    leaves = nest.flatten(element)
    shape = np.shape(leaves[0]) if leaves else ()
    return int(shape[0]) if shape else 1


def _spec_of(source: Iterable[object]) -> Any:
    if isinstance(source, Dataset):
        _check_arrays(source.element_spec, "DistributedDataset.element_spec")
        return source.element_spec
    # What was read from the first element says nothing of the number of rows of the others.
    specs = [spec_of(element) for element in (source if isinstance(source, (list, tuple)) else islice(source, 1))]
    if specs:
        return with_rows(common(specs if nest.compare(specs) is None else specs[:1]), None)
    raise errors.error("RD29", "DistributedDataset.element_spec", "the dataset has no element to take the spec from",
                       "Pass a dataset with at least one element.")


def _check_arrays(spec: object, attempted: str) -> None:
    for component in nest.flatten(spec):
        if not isinstance(component, TensorSpec):
            what = "None" if component is None else "a dataset"
            raise errors.error("RD25", attempted, f"a component of the elements is {what}, not an array",
                               "Leave it out, for example `dataset.map(lambda x, _: x)`.")


def _check_options(options: object, attempted: str) -> InputOptions:
    if options is None:
        return InputOptions()
    if not isinstance(options, InputOptions):
        raise errors.error("RD25", attempted, f"options is {options!r}", "Pass InputOptions or None.")
    if not isinstance(options.uneven_end, UnevenEnd):
        raise errors.error("RD25", attempted, f"uneven_end is {options.uneven_end!r}", "Pass a refdist.data.UnevenEnd.")
    return options
