"""What the transformations of a dataset do to a stream of elements.  Generators; nothing here knows datasets."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from refdist import nest
from refdist.data import elements


def noted(error: Exception, method: str, number: int) -> Exception:
    """The exception with a note that says which element it concerns."""
    error.add_note(f"raised in Dataset.{method} by element {number}")
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
            yield nest.pack_sequence_as(element, [leaf[row] for leaf in leaves])


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
        count = len(nest.flatten(first)[0])
        if count > size:
            parts.appendleft(nest.map_structure(lambda leaf, n=size: leaf[n:], first))
            first = nest.map_structure(lambda leaf, n=size: leaf[:n], first)
            count = size
        taken.append(first)
        size -= count
    filled = [one for one in taken if len(nest.flatten(one)[0])]
    return elements.concatenate(filled or taken[:1], start)


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


def call(method: str, function: Callable[..., Any], stream: Iterable[Any]) -> Iterator[Any]:
    """`function` of every element.

    Raises:
        What the function raises, with a note that says which element it was.
    """
    for i, element in enumerate(stream):
        try:
            result = apply(function, element)
        except Exception as error:
            raise noted(error, method, i) from None
        yield result


def apply(function: Callable[..., Any], element: Any) -> Any:
    """`function` of an element; the parts of a tuple are its arguments."""
    return function(*element) if type(element) is tuple else function(element)
