"""Memory with an owner, a device, a history of use, and pools with a limit."""

from __future__ import annotations

import weakref
from typing import ClassVar

import numpy as np

from . import runtime


class OutOfMemoryError(MemoryError):
    pass


class Memory:
    living: ClassVar[weakref.WeakValueDictionary] = weakref.WeakValueDictionary()

    def __init__(self, nbytes):
        self.device_id = runtime.getDevice()
        # Filled, so that reading what nobody wrote does not look right by chance; aligned as CUDA's is.
        whole = np.full(nbytes + 512, 0xA5, np.uint8)
        start = -whole.ctypes.data % 512
        self.bytes = whole[start:start + max(nbytes, 1)]
        self.ptr = self.bytes.ctypes.data
        self.nbytes = nbytes
        self.written = None
        self.read = {}
        Memory.living[self.ptr] = self

    def used(self, stream, tick, writes):
        from . import Race

        def known(other):
            key, when = other
            return key == id(stream) or stream.clock.get(key, 0) >= when

        if self.written is not None and not known(self.written):
            raise Race(f"{'written' if writes else 'read'} on a stream that did not wait for the last write")
        if writes:
            if not all(known(item) for item in self.read.items()):
                raise Race("written on a stream that did not wait for somebody who reads")
            self.written, self.read = (id(stream), tick), {}
        else:
            self.read[id(stream)] = tick


class MemoryPointer:
    def __init__(self, mem, ptr):
        self.mem, self.ptr, self.device_id = mem, ptr, mem.device_id


def owner(ptr, nbytes):
    """The living memory that holds these bytes.

    Raises:
        AssertionError: nobody's, or beyond the end.
    """
    for mem in list(Memory.living.values()):
        if mem.ptr <= ptr < mem.ptr + max(mem.nbytes, 1):
            assert ptr + nbytes <= mem.ptr + mem.nbytes, "a kernel reaches beyond the end of its array"
            return mem
    raise AssertionError("a pointer to memory that is gone")


class MemoryPool:
    def __init__(self):
        self._limit, self._used = {}, {}

    def set_limit(self, size=None):
        self._limit[runtime.getDevice()] = size

    def malloc(self, nbytes):
        device, rounded = runtime.getDevice(), -(-nbytes // 512) * 512
        used, limit = self._used.get(device, 0), self._limit.get(device)
        if limit and used + rounded > limit:
            raise OutOfMemoryError(f"Out of memory allocating {rounded:,} bytes (allocated so far: {used:,} bytes, "
                                   f"limit set to: {limit:,} bytes).")
        self._used[device] = used + rounded
        mem = Memory(nbytes)
        weakref.finalize(mem, self._free, device, rounded)
        return MemoryPointer(mem, mem.ptr)

    def _free(self, device, rounded):
        self._used[device] -= rounded


_default = MemoryPool()
_allocator = [_default.malloc]


def set_allocator(allocator=None):
    _allocator[0] = allocator or _default.malloc


def alloc(nbytes):
    return _allocator[0](nbytes)


def alloc_pinned_memory(nbytes):
    return bytearray(nbytes)
