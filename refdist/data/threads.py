"""Threads for datasets: elements read ahead, and functions applied to several elements at once.

A thread lives as long as the iterator that started it: it ends when the iterator has ended or is garbage collected.
An exception in a thread is raised to the reader, in place of the element that caused it.  The functions of a program
have the reader's state (`inherited`), outside of every scope, and keep to themselves what they set.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from refdist.core import context_stack, inherited
from refdist.data.elements import count_of
from refdist.data.iterators import noted

AUTOTUNE = -1
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
        self._queue: queue.Queue[_Item] = queue.Queue(count)
        self._over = False
        stop = threading.Event()
        # The thread holds the queue and the event, never this object: so it can be collected, which ends the thread.
        weakref.finalize(self, _finish, self._queue, stop)
        # Opened here, so that several iterators draw the orders of their shuffles in turn.
        threading.Thread(target=_snapshot().call, args=(_read, read(), self._queue, stop), daemon=True,
                         name="refdist prefetch").start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        element, error = self._queue.get()
        if element is _END:
            self._over = True
            if error is not None:
                raise error
            raise StopIteration
        return element


def _snapshot() -> inherited.Snapshot:
    with context_stack.pushed(context_stack.BOTTOM):
        return inherited.Snapshot()


def _read(stream: Iterable[object], elements: queue.Queue[_Item], stop: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for element in stream:
            elements.put((element, None))
            if stop.is_set():
                return
    except BaseException as raised:
        error = raised
    elements.put((_END, error))


def _finish(elements: queue.Queue[_Item], stop: threading.Event) -> None:
    stop.set()
    # Makes room for a thread that waits in `put`; it puts at most one more element and then sees the event.
    while True:
        try:
            elements.get_nowait()
        except queue.Empty:
            return


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
