"""Collectives that overlap on worker 0, or that it breaks off: broken_off.py KIND, in two processes under MPI.

With the kind "early" it is interrupted before it has sent anything, and makes its call again; with the kind "moments"
at each moment, one after another, at which Python may interrupt what lets one collective begin at a time.  With
"between" a signal handler raises an error between two waits of a collective; with "late" worker 1 does not come to one
in time, and with "after" the result of one is an error.

FOLDER is a folder in which worker 1 finds out that it may arrive.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import moments
import numpy as np

import refdist
from refdist.backends.mpi import transport as transport_module

KIND, GO_ON = sys.argv[1], Path(os.environ["FOLDER"], "go on")
strategy = refdist.MultiWorkerMirroredStrategy()
transport: Any = strategy.extended.transport
assert isinstance(transport, transport_module.MPITransport)


def summed(value: float) -> float:
    values = strategy.experimental_distribute_values_from_function(lambda _: np.float32(value))
    return float(strategy.reduce("SUM", values, axis=None))


def large(value: float = 1.0, n: int = 1 << 18) -> Any:
    values = strategy.experimental_distribute_values_from_function(lambda _: np.full(n, value, np.float32))
    return strategy.reduce("SUM", values, axis=None)


def until(ready: Callable[[], object]) -> None:
    while not ready():
        time.sleep(0.001)


def when_it_waits(call: Callable[[], object]) -> None:
    looks = transport._watch.looks
    until(lambda: transport._watch.waits and transport._watch.looks > looks + 2)
    call()


def refused(*_: object) -> None:
    try:
        summed(100.0)
    except refdist.errors.RefdistError as error:
        print(error, flush=True)
    GO_ON.touch()


def sends(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


KINDS: dict[str, Callable[[], object]] = {
    "threads": refused, "handler": sends(signal.SIGUSR1), "interrupt": sends(signal.SIGINT)}


def interrupted(*_: object) -> None:
    del transport._watch.entered
    raise KeyboardInterrupt


class Unreadable:
    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return moments.time_is_up, ()


def is_between_waits(frame: FrameType) -> bool:
    return transport._count == 2 and not transport._watch.waits


def lets_begin(frame: FrameType) -> bool:
    return frame.f_code.co_name == "alone" and frame.f_code.co_filename == transport_module.__file__


signal.signal(signal.SIGUSR1, refused)
if KIND == "moments":
    for number in range(10):
        made, moment = transport._count, number if transport.rank == 0 else -1
        while transport._count == made:
            try:
                moments.interrupted(moment, lambda: summed(0.0), moments.interrupt, lets_begin)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                moment = -1
    sys.exit()
if KIND == "after":
    for n in (1, 1 << 10, 1 << 18):
        for value in (3e38, 1.0):
            try:
                with np.errstate(over="raise"):
                    print(large(value, n)[0], flush=True)
            except FloatingPointError:
                print("overflow", flush=True)
    exchanges: list[Callable[[Any], object]] = [
        lambda value: transport.all_gather_object(transport.call("exchange"), value)[0],
        lambda value: transport.all_gather(transport.call("exchange"), [[np.array([value])]], 0)[0][0]]
    for exchange in exchanges:
        for content in (Unreadable(), "2.0"):
            try:
                print(exchange(content), flush=True)
            except TimeoutError:
                print("unreadable", flush=True)
    sys.exit()
if KIND in ("between", "late"):
    large()
    if KIND == "late" and transport.rank == 0:
        transport.timeout = 0.1
    elif KIND == "late":
        until(GO_ON.exists)
    for number in range(2):
        try:
            moments.interrupted(0 if KIND == "between" and transport.rank == number == 0 else -1, large,
                                moments.time_is_up, is_between_waits)
        except Exception as error:
            print(f"worker {transport.rank}: {error!r}", flush=True)
            if "RD22" in str(error):
                GO_ON.touch()
                raise
for number in range(3):
    if number == 1 and KIND == "early":
        if transport.rank == 0:
            transport._watch.entered = interrupted
    elif number == 1 and transport.rank == 0:
        threading.Thread(target=when_it_waits, args=(KINDS[KIND],)).start()
    elif number == 1:
        until(GO_ON.exists)
    interrupts = 0
    while interrupts <= (KIND == "early"):
        try:
            assert summed(number) == 2 * number
            break
        except KeyboardInterrupt:
            interrupts += 1
    if interrupts and KIND == "early":
        print("made again", flush=True)
    elif interrupts:
        refused()
