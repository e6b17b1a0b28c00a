"""NCCL's calls on memory of the CPU: between devices of one process, and between processes through mpi4py.

A group whose calls do not fit together, which NCCL would wait for without end, is an error here.
"""

from __future__ import annotations

import ctypes
import os

import numpy as np

from . import _merge, get_current_stream, memory, runtime

available = os.environ.get("STAND_IN_NCCL") != "missing"

NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = 0, 1, 2, 3, 4, 5
NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_BFLOAT16 = 6, 7, 8, 9
NCCL_SUM = 0
_TYPES = {0: "int8", 1: "uint8", 2: "int32", 3: "uint32", 4: "int64", 5: "uint64", 6: "float16", 7: "float32",
          8: "float64"}
_group = {"depth": 0}
_queue: list = []
# Raised by the next group, to see what comes of it.
failures: list[str] = []


class NcclError(RuntimeError):
    pass


def get_unique_id():
    return bytes(128)


def groupStart():  # noqa: N802
    _group["depth"] += 1


def groupEnd():  # noqa: N802
    _group["depth"] -= 1
    if _group["depth"]:
        return
    calls, _queue[:] = list(_queue), []
    if failures:
        raise NcclError(failures.pop())
    if calls:
        calls[0].comm.world.carry_out(calls)


class Call:
    def __init__(self, comm, kind, send, recv, nbytes, other=None):
        self.comm, self.kind, self.send, self.recv, self.nbytes, self.other = comm, kind, send, recv, nbytes, other
        self.device, self.stream = runtime.getDevice(), get_current_stream()
        if send is not None:
            self._use(send, nbytes, False)

    def _use(self, ptr, nbytes, writes):
        mem = memory.owner(ptr, nbytes)
        assert mem.device_id == self.comm.device, "NCCL was given memory of another device"
        mem.used(self.stream, self.stream.tick(), writes)

    def data(self):
        return ctypes.string_at(self.send, self.nbytes)

    def receive(self, data):
        self._use(self.recv, len(data), True)
        ctypes.memmove(self.recv, data, len(data))


class _Local:
    """All ranks in this process."""

    def __init__(self, size):
        self.size = size

    def carry_out(self, calls):
        # Streams of a group come after each other's earlier work where data flow between them.
        streams = {id(call.stream): call.stream for call in calls}.values()
        before = [dict(stream.clock) for stream in streams]
        for stream in streams:
            for clock in before:
                _merge(stream.clock, clock)
        sends = [call for call in calls if call.kind == "send"]
        for call in calls:
            if call.kind == "recv":
                matching = [send for send in sends if send.comm.rank == call.other and send.other == call.comm.rank]
                if not matching:
                    raise AssertionError("a receive that nobody sends to would wait without end")
                sends.remove(matching[0])
                assert matching[0].nbytes == call.nbytes, "sent and received sizes differ"
                call.receive(matching[0].data())
        if sends:
            raise AssertionError("a send that nobody receives would wait without end")
        rest = [call for call in calls if call.kind not in ("send", "recv")]
        if rest:
            together(rest, self.size)


def together(calls, size):
    """Collectives with one call per rank."""
    assert sorted(call.comm.rank for call in calls) == list(range(size)), "not every rank came"
    assert len({(call.kind, call.nbytes, str(call.other)) for call in calls}) == 1, "ranks came with different calls"
    calls = sorted(calls, key=lambda call: call.comm.rank)
    parts = [call.data() for call in calls]
    for call in calls:
        call.receive(combined(call, parts))


def combined(call, parts):
    if call.kind == "allGather":
        return b"".join(parts)
    total = np.frombuffer(parts[-1], _TYPES[call.other]).copy()
    for part in reversed(parts[:-1]):  # not the order of the ranks, as NCCL's is not
        total = total + np.frombuffer(part, _TYPES[call.other])
    return total.tobytes()


class _Processes:
    """One or more ranks here, the others in other processes of MPI."""

    def __init__(self, size):
        from mpi4py import MPI

        self.size = size
        self._comm = MPI.COMM_WORLD

    def carry_out(self, calls):
        own = [(call.kind, call.comm.rank, call.other, call.data() if call.send is not None else b"", call.nbytes)
               for call in calls]
        everybody = [item for part in self._comm.allgather(own) for item in part]
        sends = [item for item in everybody if item[0] == "send"]
        for call in calls:
            if call.kind == "recv":
                match = next(item for item in sends if item[1] == call.other and item[2] == call.comm.rank)
                sends.remove(match)
                assert match[4] == call.nbytes, "sent and received sizes differ"
                call.receive(match[3])
            elif call.kind != "send":
                parts = [item[3] for item in sorted((i for i in everybody if i[0] == call.kind), key=lambda i: i[1])]
                assert len(parts) == self.size, "not every rank came"
                call.receive(combined(call, parts))


class NcclCommunicator:
    connected = 0  # communicators made in this process so far
    in_use = 0  # those of them that were neither aborted nor destroyed

    def __init__(self, ndev, commId, rank, config=None, world=None):  # noqa: N803
        if not isinstance(commId, bytes):
            raise TypeError("commId must be bytes")
        if len(commId) != 128:
            raise ValueError("commId has 128 bytes")
        self.rank, self.device = rank, runtime.getDevice()
        self.world = world or _Processes(ndev)
        self.aborted = False
        self.number = NcclCommunicator.connected
        NcclCommunicator.connected += 1
        NcclCommunicator.in_use += 1

    @staticmethod
    def initAll(devices):  # noqa: N802
        if not isinstance(devices, (int, list)):
            raise ValueError("devices must be an int or a list")
        assert len(set(devices)) == len(devices), "Duplicate GPU detected"
        world, comms, before = _Local(len(devices)), [], runtime.getDevice()
        for rank, device in enumerate(devices):
            runtime.setDevice(device)
            comms.append(NcclCommunicator(len(devices), bytes(128), rank, world=world))
        runtime.setDevice(before)
        return comms

    def _issue(self, *args):
        assert not self.aborted, "the communicator was aborted"
        assert runtime.getDevice() == self.device, "another device is current"
        call = Call(self, *args)
        if _group["depth"]:
            _queue.append(call)
        else:
            assert self.world.size == 1 or isinstance(self.world, _Processes), "a call outside a group would wait"
            self.world.carry_out([call])

    def send(self, sendbuf, count, datatype, peer, stream):
        self._issue("send", sendbuf, None, count * np.dtype(_TYPES[datatype]).itemsize, peer)

    def recv(self, recvbuf, count, datatype, peer, stream):
        self._issue("recv", None, recvbuf, count * np.dtype(_TYPES[datatype]).itemsize, peer)

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):  # noqa: N802
        assert op == NCCL_SUM
        self._issue("allReduce", sendbuf, recvbuf, count * np.dtype(_TYPES[datatype]).itemsize, datatype)

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):  # noqa: N802
        self._issue("allGather", sendbuf, recvbuf, count * np.dtype(_TYPES[datatype]).itemsize, datatype)

    def check_async_error(self):
        if self.aborted:
            raise NcclError("NCCL_ERROR_INVALID_ARGUMENT: aborted")

    def abort(self):
        self.aborted = True
        NcclCommunicator.in_use -= 1

    def destroy(self):
        if isinstance(self.world, _Processes):
            numbers = self.world._comm.allgather(self.number)
            assert len(set(numbers)) == 1, "ranks that free different communicators would wait for each other"
        self.abort()
