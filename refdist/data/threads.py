"""Threads for datasets: elements read ahead, and functions applied to several elements at once.

A thread lives as long as the iterator that started it: it ends when the iterator has ended or is garbage collected, and
at the end of the program.  An exception in a thread is raised to the reader, in place of the element that caused it.
The functions of a program have the reader's state (`inherited`), outside of every scope, and keep to themselves what
they set.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from refdist.core import context_stack, inherited
from refdist.data.elements import count_of
from refdist.data.iterators import noted

AUTOTUNE = -1
_PATIENCE = 5.0  # seconds for which the end of the program waits for threads that read ahead
_END = object()
_Item = tuple[object, BaseException | None]  # an element; or _END, and the exception that ended the reading
_T = TypeVar("_T")
_U = TypeVar("_U")


def count_of_calls(method: str, num_parallel_calls: int | None) -> int | None:
    """How many threads call a function at once; None for no thread."""
    if num_parallel_calls is None:
        return None
    if num_parallel_calls == AUTOTUNE:
        return os.cpu_count() or 1
    return count_of(method, "num_parallel_calls", num_parallel_calls, 1)


class ReadAhead:
    """An iterator whose elements another thread reads, up to `count` of them ahead."""

    def __init__(self, read: Callable[[], Iterable[object]], count: int) -> None:
        # Opened here, so that several iterators draw the orders of their shuffles in turn.
        self._reader = _Reader(read(), count)
        self._over = False
        weakref.finalize(self, self._reader.stop).atexit = False
        self._reader.start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        element, error = self._reader.elements.get()
        if element is _END:
            self._over = True
            if error is not None:
                raise error
            raise StopIteration
        self._reader.taken.put(None)
        return element


class _Reader(threading.Thread):
    # Has no reference to the `ReadAhead` that it reads for, which can then be garbage collected; that stops the thread.

    def __init__(self, stream: Iterable[object], count: int) -> None:
        super().__init__(target=_snapshot().call, args=(self._read, stream, count), name="refdist prefetch",
                         daemon=True)
        # Queues that a finalizer or a signal handler may use while the same thread is in the middle of them.
        self.elements: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self.taken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopped = False

    def stop(self) -> None:
        """Ends the thread once it has read the current element; whoever waits for the next one gets SystemExit."""
        self._stopped = True
        self.taken.put(None)

    def _read(self, stream: Iterable[object], count: int) -> None:
        error: BaseException | None = None
        try:
            for number, element in enumerate(stream):
                if number >= count:
                    self.taken.get()
                if self._stopped:
                    error = SystemExit("a dataset is read no further, because the program ends")
                    break
                self.elements.put((element, None))
        except BaseException as raised:
            error = raised
        self.elements.put((_END, error))


@atexit.register
def _end() -> None:
    # Python ends a thread that returns from a library's code while the interpreter is taken down, and a library in C++
    # then ends the process with SIGABRT.  Those that are stuck in a function of the program are left behind.
    readers = [thread for thread in threading.enumerate() if isinstance(thread, _Reader)]
    for reader in readers:
        reader.stop()
    deadline = time.monotonic() + _PATIENCE
    with contextlib.suppress(KeyboardInterrupt):
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))


def _snapshot() -> inherited.Snapshot:
    with context_stack.pushed(context_stack.BOTTOM):
        return inherited.Snapshot()


def map_in_threads(make: Callable[[_T], _U], stream: Iterable[_T], threads: int) -> Iterator[_U]:
    """Yields `make(element)` for every element, in order, with up to `threads` calls at once.

    Raises:
        What the function raises, with a note that names the element.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="refdist map") as pool:
        elements = iter(stream)
        snapshot = _snapshot()

        def started(count: int) -> Iterator[Future[_U]]:
            return (pool.submit(snapshot.call, make, element) for element in itertools.islice(elements, count))

        waiting = deque(started(threads))
        number = 0
        try:
            while waiting:
                future = waiting.popleft()
                try:
                    result = future.result()
                except Exception as error:
                    raise noted(error, "map", number) from None
                waiting.extend(started(1))
                yield result
                number += 1
        finally:
            for future in waiting:
                future.cancel()
