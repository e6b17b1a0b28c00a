"""`Pipeline`: how a dataset is read, and what is known of it before.

A pipeline is a function.  `read(reading)` starts at the beginning, however often it is called, and returns an iterable
of elements; a transformation is a new pipeline whose `read` calls the one before it.  Nothing is read before the
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

Transformations are functions from pipelines to pipelines: `transformations.py` batches and reorders, `functions.py`
calls functions of the program, `mixing.py` combines several.  `Dataset` is the class that users see: its methods
document them, and a dataset is a pipeline with options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from refdist.data.elements import Numbers, Rows
from refdist.data.facts import Facts, Reading
from refdist.data.origin import Change, Origin, Read
from refdist.data.position import Source


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
    """How the elements of a dataset are read, and what is known of them before.

    Args:
        read: the elements, from the beginning.
        known: what holds for the elements.
        numbered: the rows and numbers that `read` combines; None if the elements are not rows of arrays.
        origin: the numbers that the rows of each element have in the source; None if they cannot be followed.
        sources: what reading draws seeds from, and what keeps the position of an iterator from being saved.

    Attributes:
        shuffles: whether its last transformation is `shuffle`.
    """

    shuffles = False

    def __init__(self, read: Read, known: Facts, numbered: Numbered | None = None, origin: Origin | None = None,
                 sources: Sequence[Source] = ()) -> None:
        self.read = read
        self.facts = known
        self.numbered = numbered
        self.origin = origin
        self.sources = tuple(sources)

    def then(self, read: Read, known: Facts, origin: Origin | None = None) -> Pipeline:
        """The pipeline after a transformation that looks at elements."""
        return Pipeline(read, known, None, origin, self.sources)

    def select(self, change: Change, **known: Any) -> Pipeline:
        """The pipeline after a transformation that only chooses and reorders elements, and the facts it changes."""
        facts = self.same_facts()._replace(**known)
        origin = self.origin and self.origin.changed(change)
        if self.numbered is not None:
            numbered = self.numbered.changed(change)
            return Pipeline(numbered.read, facts, numbered, origin, self.sources)
        return Pipeline(lambda reading: change(self.read, reading), facts, None, origin, self.sources)

    def spec_after(self, change: Callable[[Any], object]) -> object:
        """The spec of a result from that of this pipeline: now if it is known, else a function that is called later."""
        spec = self.facts.spec
        return (lambda: change(self.element_spec)) if callable(spec) else change(spec)

    def same_facts(self) -> Facts:
        """The facts of a result of which the same holds; a spec that takes reading is read once for both."""
        return self.facts._replace(spec=self.spec_after(lambda spec: spec))

    @property
    def element_spec(self) -> Any:
        """The spec of the elements, for which the first one is read where that is needed."""
        if callable(self.facts.spec):
            self.facts = self.facts._replace(spec=self.facts.spec())
        return self.facts.spec


MakesDataset = Callable[[Pipeline], object]  # of a pipeline, a dataset that is itself an element


def of_rows(rows: Rows | Numbers, spec: object) -> Pipeline:
    """The pipeline of the rows of arrays, in order."""
    def numbers(_: Reading) -> range:
        return range(rows.count)

    numbered = Numbered(rows, numbers)
    return Pipeline(numbered.read, Facts(rows.count, spec), numbered, Origin(numbers))
