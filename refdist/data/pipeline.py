"""`Pipeline`: how a dataset is read, and what is known of it before.

A dataset is a function.  `read(reading)` starts at the beginning, however often it is called, and returns an iterable
of elements; a transformation is a new dataset whose `read` calls the one before it.  Nothing is read before the
iteration, and two iterations share no state, except what `cache` keeps and which seed a `shuffle` draws next.  A
`Reading` says which of the files this worker reads and which seed all workers agreed on; `peek` marks a look at the
first element, after which the next reading is shuffled as if it had not happened.

**Numbers before rows.**  Most datasets are rows of arrays that lie in memory.  `shuffle`, `repeat`, `take`, `skip` and
`shard` only choose and reorder elements, so as long as nothing else was applied they work on the *numbers* of the rows
(`Numbered`), and the rows are fetched at the end: one at a time, or by `batch` a whole batch at once.  A batch of
consecutive numbers is a slice, a view that copies nothing; any other is one gather.  `take`, `skip` and `shard` of a
`range` are ranges again, so a pipeline without `shuffle` never touches a single row; that is where the two orders of
magnitude in docs/performance.md come from.  The first transformation that looks at elements (`map`, `filter`, `zip`)
ends this: from there on elements are passed on one at a time.

**Facts before elements.**  The distribution must know the size of a batch, the files and the number of elements before
it reads anything, and `element_spec` must not call a function of the user before it is needed.  So each
transformation also computes the `Facts` of its result from those of its source; a spec that takes reading is kept as a
function until it is needed.

**Origin.**  Beside the elements each transformation follows the numbers that their rows have in the source, as long as
it can.  `explain()` prints them, so what it says is what is read and not a second computation of it.

The methods are spread over four files, each of which is a class derived from the one before: this one reads,
`transformations.py` batches and reorders, `functions.py` calls functions of the user, and `dataset.py` is `Dataset`
itself with the sources.  A method that returns a new dataset calls `_then` or `_select`, which make a `Dataset`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refdist import errors
from refdist.array.backend import current_backend, scalar
from refdist.data import elements, iterators
from refdist.data.elements import Numbers, Rows
from refdist.data.facts import INFINITE_CARDINALITY, WHOLE, Facts, Reading
from refdist.data.iterator import Iterator as Reader
from refdist.data.options import Options, kept, merged
from refdist.data.origin import Change, Origin, Read
from refdist.data.position import Source, Tape

if TYPE_CHECKING:
    from refdist.data.dataset import Dataset


class Numbered(NamedTuple):
    """Elements that are rows of arrays: the arrays, and a function that yields the row numbers in order."""

    rows: Rows | Numbers
    numbers: Callable[[Reading], Iterable[int]]

    def read(self, reading: Reading) -> Iterable[object]:
        """The rows themselves."""
        return map(self.rows.row, self.numbers(reading))

    def changed(self, change: Change) -> Numbered:
        """The rows after `change` chose from their numbers, or reordered them."""
        return Numbered(self.rows, lambda reading: change(self.numbers, reading))


class Pipeline:
    """The methods of `Dataset` that read it; they are documented there.

    Args:
        read: the elements, from the beginning.
        known: what holds for the elements.
        options: those of the dataset; None for the defaults.
        numbered: the rows and numbers that `read` combines; None if the elements are not rows of arrays.
        origin: the numbers that the rows of each element have in the source; None if they cannot be followed.
        sources: what reading draws seeds from, and what keeps the position of an iterator from being saved.
    """

    def __init__(self, read: Read, known: Facts, options: Options | None = None, numbered: Numbered | None = None,
                 origin: Origin | None = None, sources: Sequence[Source] = ()) -> None:
        self._read = read
        self._facts = known
        self._options = options or Options()
        self._numbered = numbered
        self._origin = origin
        self._sources = tuple(sources)

    def _of(self, read: Read, known: Facts, numbered: Numbered | None, origin: Origin | None) -> Dataset:
        # A dataset with the options of this one.
        raise NotImplementedError

    def _then(self, read: Read, known: Facts, origin: Origin | None = None) -> Dataset:
        # The result of a transformation that looks at elements.
        return self._of(read, known, None, origin)

    def _select(self, change: Change, cardinality: int) -> Dataset:
        # The result of a transformation that only chooses and reorders elements.
        known = self._same()._replace(cardinality=cardinality)
        origin = self._origin and self._origin.changed(change)
        if self._numbered is not None:
            numbered = self._numbered.changed(change)
            return self._of(numbered.read, known, numbered, origin)
        return self._of(lambda reading: change(self._read, reading), known, None, origin)

    def _spec(self, change: Callable[[Any], object]) -> object:
        # The spec of a result, given that of this dataset: now if it is known, else a function that is called later.
        spec = self._facts.spec
        return (lambda: change(self.element_spec)) if callable(spec) else change(spec)

    def _same(self) -> Facts:
        return self._facts._replace(spec=self._spec(lambda spec: spec))

    def __iter__(self) -> Iterator[Any]:
        as_the_backend_s = elements.as_the_backend_s if current_backend().makes_all else None
        return Reader(self, partial(self._opened, as_the_backend_s), [Tape(self._sources)])

    def _opened(self, convert: Callable[[Any], object] | None, tapes: Sequence[Tape]) -> Iterator[Any]:
        stream = self._read(WHOLE._replace(tape=tapes[0]))
        return iter(stream) if convert is None else map(convert, stream)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """The number of elements.

        Raises:
            RD25: the number is infinite or unknown.

        Source: tf.data.Dataset.__len__.
        """
        count = self._facts.cardinality
        if count < 0:
            which, fix = (("infinite", "Limit it first: `dataset.take(n)`.") if count == INFINITE_CARDINALITY else
                          ("not known before all are read", "Use `cardinality()`, or count while reading."))
            raise errors.error("RD25", "len(dataset)", f"the number of elements is {which}", fix)
        return count

    def as_numpy_iterator(self) -> Iterator[Any]:
        """An iterator over the elements, as NumPy arrays.

        Source: tf.data.Dataset.as_numpy_iterator.
        """
        return Reader(self, partial(self._opened, elements.as_numpy_s), [Tape(self._sources)])

    def cardinality(self) -> Any:
        """The number of elements, or INFINITE_CARDINALITY (-1) or UNKNOWN_CARDINALITY (-2).

        Source: tf.data.Dataset.cardinality.
        """
        return scalar(np.int64(self._facts.cardinality))

    @property
    def element_spec(self) -> Any:
        """A nest of TensorSpecs like an element, which holds for all elements.

        If a function or a generator without a signature makes the elements, the first one is read: all others must have
        its structure and dtypes, after a function also its ranks.  Lengths are then unknown.

        >>> import refdist
        >>> refdist.data.Dataset.range(5).batch(2).element_spec
        TensorSpec(shape=(None,), dtype=int64)

        Raises:
            RD29: the spec takes reading, and the dataset is empty.

        Source: tf.data.Dataset.element_spec.
        """
        if callable(self._facts.spec):
            self._facts = self._facts._replace(spec=self._facts.spec())
        return self._facts.spec

    def reduce(self, initial_state: object, reduce_func: Callable[[Any, Any], object], name: str | None = None) -> Any:
        """Calls `state = reduce_func(state, element)` for all elements, and returns the last state, which is an array.

        Args:
            initial_state: a nest of arrays, or of what can be made arrays, of any shapes and dtypes.
            reduce_func: takes a state and an element, and returns the next state, whose structure and dtypes are those
                of `initial_state`.
            name: without effect.

        Raises:
            RD25: not a function.  RD26: the structure or dtype of the state changes.
            What the function raises, with a note that names the element.

        Source: tf.data.Dataset.reduce.
        """
        elements.check_function("reduce", reduce_func)
        return iterators.reduce(elements.arrays(initial_state), reduce_func, self)

    def get_single_element(self, name: str | None = None) -> Any:
        """The only element.

        Args:
            name: without effect.

        >>> import refdist
        >>> refdist.data.Dataset.from_tensors([1, 2]).get_single_element()
        array([1, 2], dtype=int32)

        Raises:
            RD29: the dataset is empty, or has more than one element.

        Source: tf.data.Dataset.get_single_element.
        """
        first = list(itertools.islice(self, 2))
        if len(first) != 1:
            raise errors.error("RD29", "Dataset.get_single_element",
                               "the dataset has more than one element" if first else "the dataset is empty",
                               "Use it for datasets of one element, such as one whole batch.",
                               kind=errors.InvalidArgumentError)
        return first[0]

    def options(self) -> Options:
        """The options of this dataset, which cannot be set any more.

        Source: tf.data.Dataset.options.
        """
        return kept(self._options)

    def with_options(self, options: Options, name: str | None = None) -> Dataset:
        """The same elements with these options; options that they do not set keep their values.

        Setting the Options afterwards has no effect on the dataset.

        Args:
            options: those to be set.
            name: without effect.

        Raises:
            RD25: `options` is not an Options.

        Source: tf.data.Dataset.with_options.
        """
        if not isinstance(options, Options):
            raise errors.error("RD25", "Dataset.with_options", f"got {options!r}", "Pass a refdist.data.Options.")
        changed = self._of(self._read, self._same(), self._numbered, self._origin)
        changed._options = merged([self._options, options])
        return changed
