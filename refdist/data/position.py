"""The position of an iterator, as a checkpoint stores it, so that another process can go on from there.

A dataset is a function: read again, it yields the same elements, but for what reading takes from elsewhere.  So the
position of an iterator is how many elements it has read, together with what its reading has taken: the seeds that each
`shuffle` drew.  To restore it, the dataset is read again with these seeds, and as many elements are passed over.  No
buffer of rows is saved; the price is that functions of `map` are called again for the elements that are passed over.

A `shuffle` draws a seed whenever it is read: once for each iterator, and once more for each turn of a `repeat`; several
iterators draw in turn.  `Seeds` is such a source, and a `Tape` notes the draws of one iterator, by their numbers: the
same number of the same seed is the same draw.  While a tape is played, sources return what it has noted; then they go
on after the last draw that there was when the position was taken, for all iterators.

What cannot be read again in another process is an obstacle (`str`), in the place of a source: a generator, whose
position only Python knows.
"""

from __future__ import annotations

import os
import random
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from refdist.array import philox
from refdist.core import seeds

if TYPE_CHECKING:
    from refdist.data.facts import Reading

_STREAMS = 1 << 62
_KEYS = (1 << 64) - 1
_MOST = 1 << 22  # draws of one iterator; a file with more is refused, because it may be malicious
_lock = threading.Lock()  # shared by all sources, as each holds it for microseconds only


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def stream_of(seed: int) -> tuple[int, int]:
    """The key and the first counter of the stream that is a seed."""
    return seed & _KEYS, seed >> 64 << 64


class Seeds:
    """Draws a seed for each reading: always the same one, or with `fresh` a new one each time.

    A seed is a stream of Philox, as one integer: the key of 64 bits, and above it the upper half of the counter.  Drawn
    seeds are the words of the stream from which they follow, two by two.

    Args:
        seed: the program's, from which they follow; None for that of `tf.random.set_seed`, or for chance.
        fresh: whether each reading gets another one; None for whether they follow from chance.

    Source: observed, `tf.data.Dataset.shuffle` of TensorFlow 2.21.
    """

    def __init__(self, seed: int | None, fresh: bool | None) -> None:
        stream = seeds.stream(seed)
        self.chosen = stream is not None
        self._fresh = not self.chosen if fresh is None else fresh
        self._next: dict[int, int] = {}  # for each stream the number of the next draw
        self._cached: dict[int, int] = {}  # by stream, the number of the draw with which a cache was filled
        self.own = random.SystemRandom().randrange(_STREAMS) if stream is None else stream

    def __call__(self, reading: Reading) -> int:
        """The seed for this reading, which is noted on its tape or comes from there."""
        with _lock:
            if reading.tape is not None and (noted := reading.tape.due(self)) is not None:
                return noted
            # Workers that agreed on a seed draw the same order, so that each row is read by one of them.
            agreed = self.agreed(reading.seed)
            number = self._next.get(agreed, 0)
            if not reading.peek and not (reading.tape is not None and reading.tape.left):
                self._next[agreed] = number + 1
                if reading.tape is not None:
                    reading.tape.note(self, number)
        return self._draws(agreed, number, 1)[0]

    def text(self) -> str:
        """The seed as messages have it, with that of `tf.random.set_seed` where there is one."""
        return _text_of(self.own) if self.chosen else "no seed"

    def agreed(self, seed: int | None) -> int:
        """The stream that determines the draws of readings on whose seed workers have agreed, or have not."""
        return self.own if self.chosen or seed is None else seed

    def _draws(self, stream: int, first: int, count: int) -> list[int]:
        # Those with the numbers from `first` on.
        if not self._fresh:
            return [stream] * count
        key, counter = stream_of(stream)
        words = philox.blocks(key, counter + first // 2, 1 + count // 2).reshape(-1, 2)
        return [key | half << 64 for key, half in words[first % 2:][:count].tolist()]

    def next(self, seed: int | None) -> int:
        """The number of the next draw for readings with this seed; caches are filled anew in another process."""
        agreed = self.agreed(seed)
        return self._cached.get(agreed, self._next.get(agreed, 0))

    def cached(self, seed: int | None, number: int) -> None:
        """Notes that a cache holds elements that were drawn from this number on, for readings with this seed."""
        self._cached.setdefault(self.agreed(seed), number)

    def set(self, first: int, seed: int | None, number: int) -> None:
        """Sets the next draw of readings with `seed`: the one of this number, of those that follow from `first`."""
        with _lock:
            self.own = first if seed is None else self.own
            agreed = self.agreed(seed)
            self._next[agreed] = number
            self._cached.pop(agreed, None)

    def drawn(self, first: int, seed: int | None, numbers: Sequence[int]) -> list[int]:
        """The draws with these numbers for readings with `seed`, of a source whose draws follow from `first`."""
        stream = self.own if self.chosen else first if seed is None else seed
        draws = self._draws(stream, 0, max(numbers, default=-1) + 1)
        return [draws[number] for number in numbers]


Source = Seeds | str


def together(several: Iterable[Sequence[Source]]) -> tuple[Source, ...]:
    """The sources of several datasets, each once."""
    return tuple(dict.fromkeys(source for sources in several for source in sources))


class Taken(NamedTuple):
    """A draw of a seed, as it is noted on a tape."""

    source: Seeds
    number: int


class Drawn(NamedTuple):
    """The draws that some elements needed: those of the dataset's sources, and whether there were others."""

    taken: Sequence[Taken]
    stray: bool


class Mark(NamedTuple):
    """A position on a tape: how many draws of the dataset's sources were noted, and how many others."""

    taken: int
    strays: int


class Tape:
    """The draws of one reading of a dataset, in order; replaying them gives the same elements again.

    Args:
        sources: all sources of the dataset, in an order that is the same in every process.
        seed: on which workers agreed for this reading; None for none.
        noted: by source, the numbers of draws that are played first.
        first: by source, the seed from which these follow.

    Attributes:
        sources, obstacles: those of the dataset, by their kind.
        left: whether the iterator reads elsewhere now, so that what a thread still draws for this reading does not
            count.
    """

    def __init__(self, sources: Sequence[Source], seed: int | None = None,
                 noted: Sequence[Sequence[int]] = (), first: Sequence[int] = ()) -> None:
        self.sources = [source for source in sources if isinstance(source, Seeds)]
        self.obstacles = [source for source in sources if isinstance(source, str)]
        self.seed = seed
        self.left = False
        self._taken: list[Taken] = []
        self._strays = 0  # a number and no list, because a function may return datasets without end
        self._due: dict[int, deque[tuple[int, int]]] = {
            id(source): deque(zip(numbers, source.drawn(begin, seed, numbers), strict=True))
            for source, numbers, begin in zip(self.sources, noted, first, strict=bool(noted))}

    def due(self, source: Seeds) -> int | None:
        """The draw that the tape has noted next for the source; None if it has none."""
        waiting = self._due.get(id(source))
        if not waiting:
            return None
        number, drawn = waiting.popleft()
        self.note(source, number)
        return drawn

    def note(self, source: Seeds, number: int) -> None:
        """Notes a draw."""
        if any(source is known for known in self.sources):
            self._taken.append(Taken(source, number))
        # A source of a dataset that a function made: another process makes it anew, beginning with draw 0.
        elif number or not source.chosen:
            self._strays += 1

    @property
    def stray(self) -> bool:
        """Whether there was a draw that another process would not repeat."""
        return self._strays > 0

    def leave(self, left: bool = True) -> None:
        """Sets whether the reading is left."""
        with _lock:
            self.left = left

    def obstruct(self, sources: Iterable[Source]) -> None:
        """Notes the obstacles among the sources of a dataset that a function has returned."""
        self.obstacles += [source for source in sources if isinstance(source, str) and source not in self.obstacles]

    def mark(self) -> Mark:
        """The current position on the tape."""
        return Mark(len(self._taken), self._strays)

    def since(self, mark: Mark, sources: Sequence[Source]) -> Drawn:
        """The draws of some sources that were noted after a mark."""
        taken = [taken for taken in self._taken[mark.taken:] if taken.source in sources]
        return Drawn(taken, self._strays > mark.strays)

    def takes(self, drawn: Drawn) -> bool:
        """Notes draws again, for elements that were kept; False if the tape has noted others next."""
        with _lock:
            for source in {taken.source for taken in drawn.taken}:
                numbers = [taken.number for taken in drawn.taken if taken.source is source]
                waiting = self._due.get(id(source))
                if waiting and [number for number, _ in waiting][:len(numbers)] != numbers:
                    return False
            for source, number in drawn.taken:
                if self._due.get(id(source)):
                    self._due[id(source)].popleft()
                self.note(source, number)
            self._strays += drawn.stray
            return True

    def played(self) -> Tape:
        """A new tape that replays the draws that are left on this one."""
        copied = Tape(self.sources, self.seed)
        copied._due = {key: deque(waiting) for key, waiting in self._due.items()}
        return copied

    def state(self) -> dict[str, Any]:
        """The state for `played_from`, in values that JSON can hold."""
        with _lock:
            return {"seed": self.seed, "streams": [
                {"seed": source.agreed(self.seed), "next": source.next(self.seed), "drawn": _runs(
                    [taken.number for taken in self._taken if taken.source is source]
                    + [number for number, _ in self._due.get(id(source), ())])}
                for source in self.sources]}


def played_from(state: Mapping[str, Any], sources: Sequence[Source]) -> Tape:
    """The tape with this state.

    Raises:
        ValueError: the state is that of another dataset.
    """
    own = [source for source in sources if isinstance(source, Seeds)]
    saved = _saved(state)
    if len(saved) != len(own):
        raise ValueError(f"the dataset is shuffled or sampled {len(own)} times, that of the file {len(saved)} times")
    for source, shuffle in zip(own, saved, strict=True):
        if type(shuffle["seed"]) is not int or type(state["seed"]) not in (int, NoneType):
            raise ValueError(f"its shuffles have seeds {shuffle['seed']!r} and {state['seed']!r}")
        if source.chosen and shuffle["seed"] != source.own:
            raise ValueError(f"the dataset is shuffled with {source.text()}, that of the file with "
                             f"{_text_of(shuffle['seed'])}")
        if type(shuffle["next"]) is not int or not 0 <= shuffle["next"] < _MOST:
            raise ValueError(f"its shuffles draw number {shuffle['next']!r} next")
    noted = [_numbers(shuffle["drawn"]) for shuffle in saved]
    return Tape(sources, state["seed"], noted, [shuffle["seed"] for shuffle in saved])


def _saved(state: Mapping[str, Any]) -> Any:
    # What a state says of each source.
    if "shuffles" not in state:
        return state["streams"]
    if state["shuffles"]:
        raise ValueError("a version of refdist saved it that shuffled in another order than TensorFlow")
    return []


def _text_of(stream: int) -> str:
    key, own = stream_of(stream)
    return f"seed {own >> 64}" + f" after set_seed({key})" * (key != seeds.UNSET)


def go_on(state: Mapping[str, Any], sources: Sequence[Source]) -> None:
    """Sets the sources to draw what comes after the position with this state."""
    own = [source for source in sources if isinstance(source, Seeds)]
    for source, shuffle in zip(own, _saved(state), strict=True):
        source.set(shuffle["seed"], state["seed"], shuffle["next"])


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    # The first and last number of each run of consecutive numbers.
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _numbers(runs: Iterable[Sequence[int]]) -> list[int]:
    numbers: list[int] = []
    for first, last in runs:
        if not 0 <= first <= last < _MOST or len(numbers) + last - first >= _MOST:
            raise ValueError(f"its shuffles have draws {first} to {last}")
        numbers += range(first, last + 1)
    return numbers
