"""What the transformations of a dataset do to a stream of elements.  Generators; nothing here knows datasets."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

from refdist import errors, nest
from refdist.data import elements
from refdist.data.facts import Reading


def noted(error: Exception, method: str, number: int) -> Exception:
    """The exception with a note that says which element it concerns."""
    error.add_note(f"raised in Dataset.{method} by element {number}")
    errors.explain_read_only(error)
    return error


def part(stream: Any, start: int, stop: int | None, step: int = 1) -> Any:
    """Elements `start` to `stop`; part of a `range` is a `range`."""
    if isinstance(stream, range):
        return stream[start:stop:step]
    return itertools.islice(iter(stream), start, stop, step)


def shuffle(stream: Iterable[Any], buffer_size: int, seed: int) -> Iterator[Any]:
    """Draws from a buffer until the stream has ended."""
    draw = random.Random(seed)
    buffer: list[Any] = []
    for element in stream:
        buffer.append(element)
        if len(buffer) >= buffer_size:
            i = int(draw.random() * len(buffer))
            buffer[i], buffer[-1] = buffer[-1], buffer[i]
            yield buffer.pop()
    draw.shuffle(buffer)
    yield from buffer


def repeat(read: Callable[[], Iterable[Any]], times: int | None) -> Iterator[Any]:
    """Reads again and again; ends when a reading gives nothing."""
    for _ in itertools.count() if times is None else range(times):
        empty = True
        for element in read():
            empty = False
            yield element
        if empty:
            return


def batch(stream: Iterable[Any], size: int, drop_remainder: bool,
          stack: Callable[[list[Any], int], Any]) -> Iterator[Any]:
    """`stack(rows, number of the first row)` of every `size` elements."""
    rows = iter(stream)
    start = 0
    while chunk := list(itertools.islice(rows, size)):
        if len(chunk) == size or not drop_remainder:
            yield stack(chunk, start)
        start += len(chunk)


def batch_rows(rows: Any, indices: Any, size: int, drop_remainder: bool) -> Iterator[Any]:
    """Batches of rows that are given by their numbers; no row is looked at by itself."""
    if isinstance(indices, range):
        stop = len(indices) - len(indices) % size if drop_remainder else len(indices)
        for start in range(0, stop, size):
            yield rows.many(indices[start:min(start + size, stop)])
        return
    numbers = iter(indices)
    while chunk := list(itertools.islice(numbers, size)):
        if len(chunk) == size or not drop_remainder:
            yield rows.many(chunk)


def unbatch(stream: Iterable[Any]) -> Iterator[Any]:
    """The rows of every element.

    Raises:
        RD15: a scalar.  RD26: components with different numbers of rows.
    """
    for i, element in enumerate(stream):
        leaves = nest.flatten(element)
        count = elements.count_rows(leaves, f"Dataset.unbatch of element {i}")
        for row in range(count):
            yield nest.pack_sequence_as(element, [elements.rows_of(leaf, row) for leaf in leaves])


def rebatch(stream: Iterable[Any], sizes: list[int], drop_remainder: bool) -> Iterator[Any]:
    """Batches of the sizes given in turn, cut out of batches of any size.

    Raises:
        RD15: a scalar.  RD26: batches that do not fit together.
    """
    parts: deque[Any] = deque()
    waiting = start = 0
    turn = itertools.cycle(sizes)
    size = next(turn)
    for i, element in enumerate(stream):
        waiting += elements.count_rows(nest.flatten(element), f"Dataset.rebatch of element {i}")
        parts.append(element)
        while waiting >= size:
            yield _cut(parts, size, start)
            waiting -= size
            start += size
            size = next(turn)
    if waiting and not drop_remainder:
        yield _cut(parts, waiting, start)


def _cut(parts: deque[Any], size: int, start: int) -> Any:
    # Takes `size` rows away from the front; a batch that lies in one part is a view.
    taken: list[Any] = []
    while size or not taken:
        first = parts.popleft()
        count = _count(first)
        if count > size:
            parts.appendleft(nest.map_structure(lambda leaf, n=size: elements.rows_of(leaf, slice(n, None)), first))
            first = nest.map_structure(lambda leaf, n=size: elements.rows_of(leaf, slice(n)), first)
            count = size
        taken.append(first)
        size -= count
    filled = [one for one in taken if _count(one)]
    return elements.concatenate(filled or taken[:1], start)


def _count(element: Any) -> int:
    return next(len(leaf) for leaf in nest.flatten(element) if leaf is not None)


def windows(stream: Iterable[Any], size: int, shift: int, stride: int, drop_remainder: bool) -> Iterator[list[Any]]:
    """Lists of `size` elements, `stride` apart, that begin every `shift` elements."""
    span = (size - 1) * stride + 1
    source = iter(stream)
    buffer: deque[Any] = deque()
    while True:
        buffer.extend(itertools.islice(source, span - len(buffer)))
        if not buffer or (drop_remainder and len(buffer) < span):
            return
        yield list(itertools.islice(buffer, 0, span, stride))
        for _ in range(min(shift, len(buffer))):
            buffer.popleft()
        if shift > span:
            deque(itertools.islice(source, shift - span), maxlen=0)


def interleave(streams: Iterable[Iterable[Any]], cycle_length: int, block_length: int) -> Iterator[Any]:
    """Up to `block_length` elements from each of `cycle_length` streams in turn."""
    source = iter(streams)
    open_streams: list[Iterator[Any] | None] = [iter(one) for one in itertools.islice(source, cycle_length)]
    while any(open_streams):
        for i, current in enumerate(open_streams):
            if current is None:
                continue
            block = list(itertools.islice(current, block_length))
            yield from block
            if len(block) < block_length:
                following = next(source, None)
                open_streams[i] = None if following is None else iter(following)


def call(method: str, make: Callable[[Any], Any], stream: Iterable[Any]) -> Iterator[Any]:
    """`make` of every element.

    Raises:
        What the function raises, with a note that says which element it was.
    """
    for i, element in enumerate(stream):
        try:
            result = make(element)
        except Exception as error:
            raise noted(error, method, i) from None
        yield result


def apply(function: Callable[..., Any], element: Any) -> Any:
    """`function` of an element; the parts of a tuple are its arguments."""
    return function(*element) if type(element) is tuple else function(element)


def made(function: Callable[..., Any], element: Any) -> Any:
    """The element that `function` makes of one."""
    return elements.result(apply(function, element))


def scan(state: Any, function: Callable[..., Any], stream: Iterable[Any]) -> Iterator[Any]:
    """The second parts of the pairs that `function(state, element)` returns; the first is the next state.

    Raises:
        RD25: it does not return a pair.  RD26: a state of another structure or dtype.
        What the function raises, with a note that says which element it was.
    """
    first = state
    for i, element in enumerate(stream):
        try:
            pair = function(state, element)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise errors.error("RD25", "Dataset.scan", f"the function returned {pair!r}",
                                   "Return a pair: the new state, and an element.")
            state, result = map(elements.made_by_function, pair)
            difference = elements.unlike(first, state, lambda: False)
            if difference is not None:
                raise errors.error("RD26", "Dataset.scan", f"the new state differs from the initial one: {difference}",
                                   "Return a state like the initial one.", kind=errors.InvalidTypeError)
        except Exception as error:
            raise noted(error, "scan", i) from None
        yield result


def alike(method: str, results: Iterable[Any], ranked: Callable[[], bool]) -> Iterator[Any]:
    """What a function made, as long as all of it is of the same kind as the first.

    Raises:
        RD26: another structure or dtype, or, if `ranked()`, another rank.
    """
    first: Any = None
    for i, result in enumerate(results):
        if i == 0:
            first = result
        difference = elements.unlike(first, result, ranked)
        if difference is not None:
            raise errors.error("RD26", f"Dataset.{method}", f"the result for element {i} differs from the first: "
                               f"{difference}", "Return the same structure, dtypes and ranks every time.")
        yield result


def chosen(streams: list[Iterator[Any]], choices: Iterable[Any], stop: bool) -> Iterator[Any]:
    """The next element of the stream that each choice names; one that has ended is passed over, or ends all.

    Raises:
        RD25: a choice that is not the number of a stream.
    """
    left = dict(enumerate(streams))
    for choice in choices:
        if not 0 <= choice < len(streams):
            raise errors.error("RD25", "Dataset.choose_from_datasets", f"dataset {choice} of {len(streams)} was chosen",
                               "Choose a number below that of the datasets.", kind=errors.InvalidValueError)
        for element in left.get(int(choice), ()):
            yield element
            break
        else:
            left.pop(int(choice), None)
            if stop or not left:
                return


def seeds(seed: int | None, fresh: bool) -> Callable[[Reading], int]:
    """A seed for each reading: the same one, or, if `fresh`, one after the other."""
    sources: dict[int | None, random.Random] = {}
    fixed = random.Random(seed).randrange(1 << 62)

    def draw_seed(reading: Reading) -> int:
        # Workers that agreed upon a seed draw one order, so that each row is read by one of them.
        agreed = seed if seed is not None else reading.seed
        source = sources.setdefault(agreed, random.Random(agreed))
        if reading.peek:
            source = copy(source)
        drawn = source.randrange(1 << 62)
        if fresh:
            return drawn
        return fixed if agreed == seed else agreed or 0
    return draw_seed


def draw(weights: list[float], seed: int) -> Iterator[int]:
    """Numbers of weights at random, each as often as its weight says."""
    source = random.Random(seed)
    numbers = range(len(weights))
    while True:
        yield source.choices(numbers, weights)[0]
