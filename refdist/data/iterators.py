"""The work of the transformations: generators over streams of elements.  They know nothing of datasets."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from refdist import errors, nest
from refdist.array import philox
from refdist.array.convert import to_array, to_numpy
from refdist.data import elements
from refdist.data.position import stream_of
from refdist.data.spec import TensorSpec, spec_of

_T = TypeVar("_T")
_U = TypeVar("_U")
_END = object()


def noted(error: Exception, method: str, number: int) -> Exception:
    """The exception, with a note that names the method and the element for which it was raised."""
    error.add_note(f"raised in Dataset.{method} at element {number}")
    errors.explain_read_only(error)
    return error


def part(stream: Iterable[_T], start: int, stop: int | None, step: int = 1) -> Iterable[_T]:
    """Every `step`-th element from `start` to before `stop`; a part of a `range` is a `range`."""
    if isinstance(stream, range):
        return stream[start:stop:step]  # type: ignore[return-value]  # of ints, which _T then is
    return itertools.islice(iter(stream), start, stop, step)


def shuffle(stream: Iterable[_T], buffer_size: int, seed: int) -> Iterator[_T]:
    """Yields elements drawn at random from a buffer that is refilled from the stream, in TensorFlow's order."""
    words = philox.words(*stream_of(seed))
    source = iter(stream)
    ring = list(itertools.islice(source, buffer_size))
    count, first = len(ring), 0  # the elements lie one after another in the ring, from this one on
    following: object = None
    while count == buffer_size and following is not _END:
        place = (first + next(words) % count) % count
        yield ring[place]
        ring[place] = ring[first]
        following = next(source, _END)
        ring[first] = following  # type: ignore[assignment]  # of type _T, but at the end
        first = (first + 1) % count
    waiting = ring[first:] + ring[:first]
    if following is _END:
        waiting.pop()
    for start, word in zip(range(len(waiting)), words, strict=False):
        place = start + word % (len(waiting) - start)
        yield waiting[place]
        waiting[place] = waiting[start]


def repeat(read: Callable[[], Iterable[_T]], times: int | None, once_more: bool) -> Iterator[_T]:
    """Reads `times` times, None for without end; an empty reading ends it.

    The first reading is opened at once, and with `once_more` another one at the end, so that the transformations before
    draw their seeds when they do on TensorFlow.
    """
    return iter(()) if times == 0 else _repeated(read(), read, times, once_more)


def _repeated(stream: Iterable[_T], read: Callable[[], Iterable[_T]], times: int | None,
              once_more: bool) -> Iterator[_T]:
    for number in itertools.count(1):
        empty = True
        for element in stream:
            empty = False
            yield element
        if empty or (number == times and not once_more):
            return
        stream = read()
        if number == times:
            return


def batch(stream: Iterable[_T], size: int, drop_remainder: bool, stack: Callable[[list[_T], int], _U]) -> Iterator[_U]:
    """Yields `stack(rows, number of the first row)` for every `size` elements."""
    rows = iter(stream)
    start = 0
    while chunk := list(itertools.islice(rows, size)):
        if len(chunk) == size or not drop_remainder:
            yield stack(chunk, start)
        start += len(chunk)


def batch_rows(rows: elements.Rows | elements.Numbers, indices: Iterable[int], size: int,
               drop_remainder: bool) -> Iterator[object]:
    """Yields batches of the rows that have these numbers, without fetching single rows."""
    if isinstance(indices, range):
        stop = len(indices) - len(indices) % size if drop_remainder else len(indices)
        for start in range(0, stop, size):
            yield rows.batch(indices[start:min(start + size, stop)])
        return
    numbers = iter(indices)
    while chunk := list(itertools.islice(numbers, size)):
        if len(chunk) == size or not drop_remainder:
            yield rows.batch(chunk)


def unbatch(stream: Iterable[object]) -> Iterator[object]:
    """The rows of every element.

    Raises:
        RD15: a scalar.  RD26: components with different numbers of rows.
    """
    for i, element in enumerate(stream):
        leaves = nest.flatten(element)
        count = elements.count_rows(leaves, f"Dataset.unbatch of element {i}")
        for row in range(count):
            yield nest.pack_sequence_as(element, [elements.rows_of(leaf, row) for leaf in leaves])


def rebatch(stream: Iterable[object], sizes: list[int], drop_remainder: bool) -> Iterator[object]:
    """Yields batches of the given sizes in turn, cut out of batches of any size.

    Raises:
        RD15: a scalar.  RD26: batches that do not fit together.
    """
    parts: deque[object] = deque()
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


def _cut(parts: deque[object], size: int, start: int) -> object:
    # Removes `size` rows from the front; a batch that lies in one part is a view.
    taken: list[object] = []
    while size or not taken:
        first = parts.popleft()
        count = _count(first)
        if count > size:
            parts.appendleft(nest.map_structure(lambda leaf, n=size: elements.rows_of(leaf, slice(n, None)), first))
            first = nest.map_structure(lambda leaf, n=size: elements.rows_of(leaf, slice(n)), first)
            count = size
        taken.append(first)
        size -= count
    filled = [part for part in taken if _count(part)]
    return elements.concatenate(filled or taken[:1], start)


def _count(element: object) -> int:
    return next(len(leaf) for leaf in nest.flatten(element) if leaf is not None)


def windows(stream: Iterable[_T], size: int, shift: int, stride: int, drop_remainder: bool) -> Iterator[list[_T]]:
    """Yields lists of `size` elements, `stride` apart; a list begins every `shift` elements."""
    span = (size - 1) * stride + 1
    source = iter(stream)
    buffer: deque[_T] = deque()
    while True:
        buffer.extend(itertools.islice(source, span - len(buffer)))
        if not buffer or (drop_remainder and len(buffer) < span):
            return
        yield list(itertools.islice(buffer, 0, span, stride))
        for _ in range(min(shift, len(buffer))):
            buffer.popleft()
        if shift > span:
            deque(itertools.islice(source, shift - span), maxlen=0)


def interleave(streams: Iterable[Iterable[_T]], cycle_length: int, block_length: int) -> Iterator[_T]:
    """Yields up to `block_length` elements from each of `cycle_length` streams in turn."""
    source = iter(streams)
    open_streams: list[Iterator[_T] | None] = [iter(stream) for stream in itertools.islice(source, cycle_length)]
    while any(open_streams):
        for i, current in enumerate(open_streams):
            if current is None:
                continue
            block = list(itertools.islice(current, block_length))
            yield from block
            if len(block) < block_length:
                following = next(source, None)
                open_streams[i] = None if following is None else iter(following)


def group(stream: Iterable[tuple[np.int64, _T]], size_of: Callable[[np.int64], int]) -> Iterator[
        tuple[np.int64, list[_T]]]:
    """Yields elements with the same key together, so many of each key as its size, and at the end the others."""
    groups: dict[np.int64, list[_T]] = {}
    sizes: dict[np.int64, int] = {}
    for key, element in stream:
        if key not in sizes:
            sizes[key] = size_of(key)
        groups.setdefault(key, []).append(element)
        if len(groups[key]) == sizes[key]:
            yield key, groups.pop(key)
    for key in sorted(groups):
        yield key, groups[key]


def integer_of(method: str, name: str, function: Callable[..., object], argument: object) -> np.int64:
    """The integer that a function of the program returns.

    Args:
        method, name: of which the function is an argument, and its name there.
        function: takes the argument.
        argument: an element or a key.

    Raises:
        RD25, RD34: it returned something else.
    """
    return as_integer(method, name, apply(function, argument))


def as_integer(method: str, name: str, returned: object) -> np.int64:
    """What a function of the program returned, as an integer.

    Args:
        method, name: of which the function is an argument, and its name there.
        returned: by the function.

    Raises:
        RD25, RD34: it is none.
    """
    number = to_numpy(to_array(returned, None, f"what {name} returned", f"Dataset.{method}"))
    if number.dtype.kind not in "iu" or number.ndim:
        raise errors.error("RD34", f"Dataset.{method}", f"{name} returned an array of shape {number.shape} and dtype "
                           f"{number.dtype}", "Return an integer, for example `tf.cast(x % 2, tf.int64)`.")
    return np.int64(number)


def unique(stream: Iterable[_T]) -> Iterator[_T]:
    """Yields elements of one array each that have not come before.

    Raises:
        RD25: another element.
    """
    seen = set()
    for element in stream:
        leaf = the_only_array(spec_of(element), element)
        key = leaf if isinstance(leaf, (str, bytes)) else (np.shape(leaf), *np.asarray(to_numpy(leaf)).flat)
        key = key.encode() if isinstance(key, str) else key
        if key not in seen:
            seen.add(key)
            yield element


def the_only_array(spec: object, element: object) -> Any:
    """The one array of an element that has this spec, which `Dataset.unique` compares; of the spec itself, its leaf.

    Raises:
        RD25: there are several, or it has another dtype than int32, int64 and text.
    """
    leaves = nest.flatten(spec)
    fits = len(leaves) == 1 and isinstance(leaves[0], TensorSpec) and (
        leaves[0].dtype.kind in "USO" or leaves[0].dtype in (np.int32, np.int64))
    if not fits:
        raise errors.error("RD25", "Dataset.unique", f"the elements are {spec}",
                           "Let each be one array of int32, int64 or text.", kind=errors.InvalidTypeError)
    return nest.flatten(element)[0]


def call(method: str, make: Callable[[_T], _U], stream: Iterable[_T]) -> Iterator[_U]:
    """Yields `make(element)` for every element.

    Raises:
        What the function raises, with a note that names the element.
    """
    for i, element in enumerate(stream):
        try:
            result = make(element)
        except Exception as error:
            raise noted(error, method, i) from None
        yield result


def apply(function: Callable[..., _T], element: object) -> _T:
    """Calls `function` with an element; the items of a tuple become its arguments."""
    element = elements.for_function(element)
    return function(*element) if type(element) is tuple else function(element)


def made(function: Callable[..., object], element: object) -> Any:
    """What `function` returns for an element, as an element."""
    return elements.result(apply(function, element))


def scan(state: object, function: Callable[..., object], stream: Iterable[object]) -> Iterator[object]:
    """Calls `function(state, element)` for each element; it returns the next state and the element to yield.

    Args:
        state: the first state, a nest of arrays.
        function: called with the state and an element.
        stream: the elements.

    Raises:
        RD25: it does not return a pair.  RD26: a state of another structure or dtype.
        What the function raises, with a note that names the element.
    """
    first = state
    for i, element in enumerate(stream):
        try:
            pair = function(*map(elements.for_function, (state, element)))
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise errors.error("RD25", "Dataset.scan", f"the function returned {pair!r}",
                                   "Return a pair: the new state, and an element.")
            state, result = _next_state("scan", first, pair[0]), elements.made_by_function(pair[1])
        except Exception as error:
            raise noted(error, "scan", i) from None
        yield result


def reduce(state: object, function: Callable[..., object], stream: Iterable[object]) -> Any:
    """The state that the last call of `function(state, element)` returns.

    Raises:
        RD26: a state of another structure or dtype.
        What the function raises, with a note that names the element.
    """
    first = state
    for i, element in enumerate(stream):
        try:
            state = _next_state("reduce", first, function(*map(elements.for_function, (state, element))))
        except Exception as error:
            raise noted(error, "reduce", i) from None
    return state


def _next_state(method: str, first: object, returned: object) -> Any:
    state = elements.made_by_function(returned)
    difference = elements.unlike(first, state, lambda: False)
    if difference is not None:
        raise errors.error("RD26", f"Dataset.{method}", f"the new state differs from the initial one: {difference}",
                           "Return a state like the initial one.", kind=errors.InvalidTypeError)
    return state


def alike(method: str, results: Iterable[_T], ranked: Callable[[], bool]) -> Iterator[_T]:
    """Yields the results of a function while all of them have the structure and dtypes of the first.

    Raises:
        RD26: another structure or dtype, or, if `ranked()`, another rank.
    """
    first: _T
    for i, result in enumerate(results):
        if i == 0:
            first = result
        difference = elements.unlike(first, result, ranked)
        if difference is not None:
            raise errors.error("RD26", f"Dataset.{method}", f"the result for element {i} differs from the first: "
                               f"{difference}", "Return the same structure, dtypes and ranks every time.")
        yield result


def chosen(streams: list[Iterator[_T]], choices: Iterable[Any], stop: bool) -> Iterator[_T]:
    """Yields the next element of the stream that each choice names.

    A stream that has ended is skipped; if `stop`, it ends the whole.

    Raises:
        RD25: a choice that is not the number of a stream.
    """
    left = dict(enumerate(streams))
    for choice in choices:
        if not 0 <= choice < len(streams):
            raise errors.error("RD34", "Dataset.choose_from_datasets", f"dataset {choice} was chosen, and the "
                               f"datasets are 0 to {len(streams) - 1}", "Choose one of these numbers.")
        for element in left.get(int(choice), ()):
            yield element
            break
        else:
            left.pop(int(choice), None)
            if stop or not left:
                return


def words(seed: int) -> Iterator[int]:
    """Yields random ints below 2**32, those of TensorFlow."""
    return philox.words(*stream_of(seed))


def draw(weights: list[float], seed: int) -> Iterator[int]:
    """Yields indices of weights at random, each as often as its weight says, in TensorFlow's order."""
    return _drawn(itertools.repeat(_sums(weights)), seed)


def draw_each(weights: Iterable[list[Any]], seed: int) -> Iterator[int]:
    """As `draw`, with other weights for each."""
    return _drawn(map(_sums, weights), seed)


def _sums(weights: list[Any]) -> Any:
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(weights, np.float32)).astype(np.float64)
    return np.cumsum(np.exp(logits - logits.max()))


def _drawn(sums: Iterable[Any], seed: int) -> Iterator[int]:
    numbers = words(seed)
    for each in sums:
        place = philox.mixed(next(numbers), next(numbers))
        yield int(np.searchsorted(each, philox.uniform(*place, 1, np.dtype(np.float64))[0] * each[-1], "right"))
