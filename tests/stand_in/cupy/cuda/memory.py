"""Memory with an owner, a device, a history of use, and pools with a limit."""

from __future__ import annotations

import weakref
from typing import ClassVar

import numpy as np

from . import runtime


class OutOfMemoryError(MemoryError):
    pass


class History:
    """Who last wrote and who read since; a block that is used again has the one of the block before it."""

    def __init__(self):
        self.written, self.read = None, {}


class Memory:
    living: ClassVar[weakref.WeakValueDictionary] = weakref.WeakValueDictionary()

    def __init__(self, nbytes, history):
        self.history = history
        self.device_id = runtime.getDevice()
        # Filled, so that reading what nobody wrote does not look right by chance; aligned as CUDA's is.
        whole = np.full(nbytes + 512, 0xA5, np.uint8)
        start = -whole.ctypes.data % 512
        self.bytes = whole[start:start + max(nbytes, 1)]
        self.ptr = self.bytes.ctypes.data
        self.nbytes = nbytes
        with runtime.lock:
            Memory.living[self.ptr] = self

    def used(self, stream, tick, writes):
        from . import Race

        def known(other):
            key, when = other
            return key == id(stream) or stream.clock.get(key, 0) >= when

        past = self.history
        if past.written is not None and not known(past.written):
            raise Race(f"{'written' if writes else 'read'} on a stream that did not wait for the last write")
        if writes:
            if not all(known(item) for item in past.read.items()):
                raise Race("written on a stream that did not wait for somebody who reads")
            past.written, past.read = (id(stream), tick), {}
        else:
            past.read[id(stream)] = tick


class MemoryPointer:
    def __init__(self, mem, ptr):
        self.mem, self.ptr, self.device_id = mem, ptr, mem.device_id


def owner(ptr, nbytes):
    """The living memory that holds these bytes.

    Raises:
        AssertionError: nobody's, or beyond the end.
    """
    with runtime.lock:
        living = list(Memory.living.values())
    for mem in living:
        if mem.ptr <= ptr < mem.ptr + max(mem.nbytes, 1):
            assert ptr + nbytes <= mem.ptr + mem.nbytes, "a kernel reaches beyond the end of its array"
            return mem
    raise AssertionError("a pointer to memory that is gone")


class MemoryPool:
    def __init__(self):
        self._limit, self._used, self._freed = {}, {}, {}

    def set_limit(self, size=None):
        self._limit[runtime.getDevice()] = size

    def malloc(self, nbytes):
        device, rounded = runtime.getDevice(), -(-nbytes // 512) * 512
        with runtime.lock:
            used, limit = self._used.get(device, 0), self._limit.get(device)
            if limit and used + rounded > limit:
                raise OutOfMemoryError(f"Out of memory allocating {rounded:,} bytes (allocated so far: {used:,} bytes, "
                                       f"limit set to: {limit:,} bytes).")
            self._used[device] = used + rounded
            # Freed blocks are used again by the stream that they were made for, without waiting for anybody.
            from . import get_current_stream

            kind = device, id(get_current_stream()), rounded
            history = self._freed[kind].pop() if self._freed.get(kind) else History()
        mem = Memory(nbytes, history)
        weakref.finalize(mem, self._free, kind, history)
        return MemoryPointer(mem, mem.ptr)

    def _free(self, kind, history):
        device, _, rounded = kind
        with runtime.lock:
            self._used[device] -= rounded
            self._freed.setdefault(kind, []).append(history)


_default = MemoryPool()
_allocator = [_default.malloc]


def set_allocator(allocator=None):
    _allocator[0] = allocator or _default.malloc


def alloc(nbytes):
    return _allocator[0](nbytes)


def alloc_pinned_memory(nbytes):
    return bytearray(nbytes)
