"""Pretend devices, streams and events.

Every stream has a clock of what it is known to come after; an operation on memory that another stream last used,
and for which nobody waited, is an error.
"""

from __future__ import annotations

import os
import threading

from . import driver, memory, runtime
from .memory import MemoryPool, alloc_pinned_memory, set_allocator

__all__ = ["MemoryPool", "alloc_pinned_memory", "driver", "memory", "runtime", "set_allocator"]

# What was waited for or copied, in order: "get", "issued", "to device", "synchronize", "setDevice".
log: list[str] = []


class Race(AssertionError):
    """Two streams use the same memory and nobody waited."""


class _BaseStream:
    # As CuPy does it: what was current before is remembered by device, and the devices by thread.
    def __enter__(self):
        device = runtime.getDevice()
        self.use()
        _thread.stacks.setdefault(device, []).append(self)
        _thread.stack_devices.append(device)
        return self

    def __exit__(self, *error):
        stack = _thread.stacks[_thread.stack_devices.pop()]
        stack.pop()
        (stack[-1] if stack else Stream.null).use()


class Stream(_BaseStream):
    _made = 0

    def __init__(self, null=False, non_blocking=False):
        Stream._made += 1
        self.ptr = 0 if null else 1000 + Stream._made
        self.device_id = runtime.getDevice()
        self.clock: dict[int, int] = {}

    def tick(self):
        self.clock[id(self)] = self.clock.get(id(self), 0) + 1
        return self.clock[id(self)]

    def record(self, event=None):
        with runtime.lock:
            self.tick()
            return Event(self)

    def wait_event(self, event):
        with runtime.lock:
            _merge(self.clock, event.clock)

    def use(self):
        if not self.ptr:  # means the default stream of whichever device is current
            _thread.current.pop(runtime.getDevice(), None)
            return self
        if self.device_id != runtime.getDevice():
            raise RuntimeError("the stream is on another device")
        _thread.current[self.device_id] = self
        return self

    def synchronize(self):
        log.append("synchronize")
        host_waits(self)


class _Null:
    """`Stream.null` means the default stream of whichever device is current."""

    def __get__(self, owner, kind=None):
        device = runtime.getDevice()
        with runtime.lock:
            if device not in _nulls:
                _nulls[device] = Stream(null=True)
            return _nulls[device]


class _Thread(threading.local):
    """What is current in a thread, and was before."""

    def __init__(self):
        self.current: dict[int, Stream] = {}
        self.stacks: dict[int, list[Stream]] = {}
        self.stack_devices: list[int] = []
        self.devices: list[int] = []


_thread = _Thread()
_nulls: dict[int, Stream] = {}
_host: dict[int, int] = {}
Stream.null = _Null()


class Event:
    def __init__(self, stream):
        self.clock = dict(stream.clock)

    @property
    def done(self):
        return not held


# While something is in it, no event is done.
held: list[str] = []


def _merge(clock, other):
    for key, tick in other.items():
        clock[key] = max(clock.get(key, 0), tick)


def get_current_stream():
    return _thread.current.get(runtime.getDevice()) or Stream.__dict__["null"].__get__(None)


def host_waits(stream):
    with runtime.lock:
        _merge(_host, stream.clock)


def operate(reads, writes, anywhere=False):
    """Notes an operation of the current stream and checks that it comes after what it depends on."""
    device, stream = runtime.getDevice(), get_current_stream()
    for array in [] if anywhere else [*reads, *writes]:
        if array.data.device_id != device:
            raise AssertionError(f"an array of device {array.data.device_id} is used while {device} is current")
    used(stream, [array.data.mem for array in reads], [array.data.mem for array in writes])


def used(stream, reads, writes):
    """Notes that an operation of a stream uses memory."""
    with runtime.lock:
        _merge(stream.clock, _host)
        tick = stream.tick()
        for mem in reads:
            mem.used(stream, tick, False)
        for mem in writes:
            mem.used(stream, tick, True)


class Device:
    def __init__(self, device=None):
        self.id = runtime.getDevice() if device is None else int(device)

    def __enter__(self):
        _thread.devices.append(runtime.getDevice())
        runtime.setDevice(self.id)
        return self

    def __exit__(self, *error):
        runtime.setDevice(_thread.devices.pop())

    def use(self):
        runtime.setDevice(self.id)

    def synchronize(self):
        log.append("synchronize")
        with self:
            host_waits(Stream.__dict__["null"].__get__(None))

    @property
    def pci_bus_id(self):
        return f"0000:{os.environ.get('STAND_IN_BUS', os.environ.get('PMI_RANK', '0'))}:{self.id}"
