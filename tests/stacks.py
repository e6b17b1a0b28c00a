"""Replicas at many places of the C stack, with code in them that walks up the stack; run by test_lockstep.py.

Prints how many walks were made.  Where a walk leaves the frames that are alive, the process ends here, which is why
this is a process of its own.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import refdist
from refdist.core import lockstep

LARGE = np.ones(1 << 15, np.float64)  # 256 KiB: NumPy walks up the stack for temporary arrays of this size
BOTTOM = 6  # frames at the bottom of a thread's stack that are the same for every walk
FRAMES = 1000
_libc = ctypes.CDLL(None)
_addresses = (ctypes.c_void_p * FRAMES)()
_bottom: list[Any] = []
walks = 0


def walk() -> list[Any]:
    """The return addresses on the stack, innermost first."""
    return _addresses[:_libc.backtrace(_addresses, FRAMES)]


def look() -> None:
    """Walks up the stack as NumPy does, and as an error with a backtrace does; all walks end at the thread's bottom."""
    global walks
    total = (LARGE + 1) * 2 - (LARGE * 3 - LARGE / (LARGE + 4))
    assert abs(total[0] - 1.2) < 1e-9
    assert walk()[-BOTTOM:] == _bottom
    walks += 1


def deeper(frames: int, call: Callable[[], Any]) -> Any:
    """Calls from a deeper Python frame."""
    return deeper(frames - 1, call) if frames else call()


def in_map(call: Callable[[], Any]) -> Any:
    """Calls from C frames, as the next ones do with others of other sizes."""
    return next(map(lambda _: call(), (0,)))  # noqa: C417


def in_sort(call: Callable[[], Any]) -> Any:
    results = []
    sorted([0], key=lambda item: results.append(call()) or item)
    return results[0]


def in_repr(call: Callable[[], Any]) -> Any:
    results = []

    class Shown:
        def __repr__(self) -> str:
            results.append(call())
            return ""

    repr([Shown()])
    return results[0]


def in_reduce(call: Callable[[], Any]) -> Any:
    return functools.reduce(lambda _, __: call(), (0, 0))


def in_partial(call: Callable[[], Any]) -> Any:
    return functools.partial(call)()


C_FRAMES = [in_map, in_sort, in_repr, in_reduce, in_partial]


def through(way: Callable[[Callable[[], Any]], Any], times: int, call: Callable[[], Any]) -> Any:
    return way(lambda: through(way, times - 1, call)) if times else call()


def replica() -> refdist.ReplicaContext:
    context = refdist.get_replica_context()
    assert context is not None
    return context


STRATEGY = refdist.MirroredStrategy([f"GPU:{i}" for i in range(3)])


def plain() -> None:
    def step() -> None:
        for frames in range(3):
            deeper(frames, look)
            replica().all_reduce("SUM", 1.0)
        look()

    STRATEGY.run(step)


def one_fails() -> None:
    def step() -> None:
        try:
            if replica().replica_id_in_sync_group == 2:
                raise KeyError("on purpose")
            replica().all_reduce("SUM", 1.0)
        finally:
            look()

    try:
        STRATEGY.run(step)
    except KeyError:
        look()


def generators() -> None:
    def sums() -> Iterator[Any]:
        for _ in range(2):
            look()
            yield replica().all_reduce("SUM", 1.0)
            look()

    def cubes() -> Iterator[Any]:
        yield from sums()

    STRATEGY.run(lambda: len(list(cubes())))


def nested() -> None:
    inner = refdist.MirroredStrategy(["CPU:0"])

    def merged(strategy: Any) -> None:
        look()
        strategy.run(look)
        look()

    def step() -> None:
        replica().merge_call(merged)
        look()

    STRATEGY.run(step)
    inner.run(look)


def workers() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()

        def step() -> None:
            look()
            replica().all_reduce("SUM", 1.0)
            look()

        for way in (in_map, in_sort):
            through(way, 1, lambda: strategy.run(step))
            look()

    refdist.simulate_workers(program, 2, 2)


def other_thread() -> None:
    import threading

    def target() -> None:
        global _bottom
        kept, _bottom = _bottom, walk()[-BOTTOM:]
        try:
            plain()
        finally:
            _bottom = kept

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()


def errors_of_torch() -> None:
    import torch

    def step() -> None:
        for _ in range(2):
            try:  # the message has a backtrace, of up to 64 frames
                torch.ones(2) + torch.ones(3)
            except RuntimeError:
                look()
            replica().all_reduce("SUM", 1.0)

    STRATEGY.run(step)


def main() -> None:
    global _bottom
    _bottom = walk()[-BOTTOM:]
    programs = [plain, one_fails, generators, nested, workers]
    if "few" in sys.argv:
        lockstep._PLACES = 1  # so that replicas are let go all the time
    if "torch" in sys.argv:
        programs.append(errors_of_torch)
    for way in C_FRAMES:
        for times in (0, 1, 2, 5):
            for program in programs:
                through(way, times, program)
    for program in programs:  # and back where the first replicas were parked
        program()
    other_thread()
    print(walks)


if __name__ == "__main__":
    main()
