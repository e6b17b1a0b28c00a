"""CuPy arrays on the GPUs of this process, and NumPy arrays on its CPU.

Work is issued and not waited for.  All replicas of a process share a thread, so what one of them waits for, all of them
wait for, and their GPUs stand idle.  Nothing here copies to the host or synchronizes but `to_numpy`, `put` on a CPU
and `synchronize`, whose callers ask for it.  From that follows:

* Errors of a GPU may appear at a later call than the one that caused them.
* Whether copies hold equal values (`expect_equal`) is computed on the GPU and copied to pinned memory; the error is
  raised by the first later `to_numpy`, `put_all` or `synchronize` that finds the copy done, with a note that says so.
  With CUDA_LAUNCH_BLOCKING=1, by which CUDA's users find what failed, it is waited for at once.
* A copy between GPUs is ordered by events, both ways: the target's stream waits for what computes the array, and the
  source's stream for the copy, because CuPy's pool hands freed memory out again in the order of one stream only.

Where a result is: on the GPU of the first argument that is on one; arguments that are elsewhere are copied there.  What
is on the host altogether is left to the simulated backend, which is a part of this one and not its base class.

Replicas on one GPU: one kernel reads all contributions (`kernels`).  Several GPUs: NCCL (`nccl`), else copies to the
first GPU and back.  Several processes: `transport`.  The sum is taken left to right in all of them.

One result is shared by all replicas of a GPU.  CuPy's arrays cannot be read-only; a subclass of them refuses what an
array itself is asked to do (`readonly`).
"""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import ModuleType, TracebackType
from typing import Any, TypeGuard

import numpy as np

from refdist import errors
from refdist.array.backend import Backend
from refdist.array.convert import frozen, nbytes
from refdist.array.types import Array
from refdist.backends.gpu import nccl, readonly
from refdist.backends.gpu.cupy_types import Cupy, DeviceArray, DType, Event, Exporter, HostArray
from refdist.backends.gpu.devices import Current, Devices, library
from refdist.backends.gpu.kernels import Job, Programs, contiguous, on_device, stored
from refdist.backends.gpu.transport import DeviceTransport
from refdist.backends.simulated.backend import Simulated
from refdist.core import context_stack
from refdist.core.states import State
from refdist.workers.transport import Transport


class GPU(Backend):
    """The GPUs of this process; sums have the bits of the simulated world.

    Raises:
        RD27: CuPy, the driver or a GPU is missing.

    Every call raises:
        RD28: out of memory (ResourceExhaustedError), or a device or NCCL failed (DeviceError).
    """

    name = "gpu"

    def __init__(self) -> None:
        self._cupy = library()
        self._module = sys.modules["cupy"]
        self._devices = Devices(self._cupy)
        self._programs = Programs(self._cupy)
        self._read_only = readonly.read_only(self._cupy)
        self.array_types = (self._cupy.ndarray, self._read_only)
        # Arrays on the CPU are NumPy's.
        self._host = Simulated()
        self._communicators: dict[tuple[int, ...], nccl.Communicator | None] = {}
        # With other processes, by the GPUs of all of them.
        self._between: dict[nccl.Places, nccl.Communicator] = {}
        # Comparisons that a GPU may still be at: (done, outcome, the error).
        self._unsure: deque[tuple[Event, HostArray, Callable[[], Exception]]] = deque()
        self.ordered = nccl.way() != "fastest"
        self._blocking = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"

    def xp(self, device: str = "") -> ModuleType:
        return np if device and self._devices.of(device) is None else self._module

    def counts(self) -> dict[str, int] | None:
        return {"CPU": 1, "GPU": len(self._devices.used)}

    def memory_space(self, device: str) -> Hashable:
        return self._devices.of(device)

    def use(self, device: str) -> None:
        self._devices.use(device)

    def thread_state(self) -> State | None:
        return Current(self._cupy, self._devices)

    def device(self, where: str | Array) -> AbstractContextManager[object]:
        gpu = self._devices.of(where) if isinstance(where, str) else self._gpu(where)
        return nullcontext() if gpu is None else self._cupy.cuda.Device(gpu)

    def _is_on_gpu(self, array: Array) -> TypeGuard[DeviceArray]:
        return isinstance(array, self._cupy.ndarray)

    def _gpu(self, array: Array) -> int | None:
        # Where an array is; None for the host.
        return array.data.device_id if self._is_on_gpu(array) else None

    def on(self, gpu: int, what: str) -> device_errors:
        """Makes a GPU current for a `with` block, and raises its errors as RD28; `what` is done there."""
        return device_errors(self._cupy, gpu, what)

    # Moving.

    def to_numpy(self, array: Array) -> Any:
        if not self._is_on_gpu(array):
            return np.asarray(array)
        gpu = array.data.device_id
        with self.on(gpu, "copy to the host"):
            nccl.wait(self._cupy, self._between.values(), gpu)
            copied = array.get()
        self._settle()
        return copied

    def put(self, array: Array, device: str) -> Any:
        gpu = self._devices.of(device)
        if self._is_on_gpu(array):
            if gpu is None:
                return self.to_numpy(array)
            return array if array.data.device_id == gpu else self._across(array, gpu)
        if gpu is None or not isinstance(array, (np.ndarray, np.generic)) or not on_device(array.dtype):
            return array
        return self._from_host(array, gpu)

    def _from_host(self, array: Any, gpu: int) -> DeviceArray:
        with self.on(gpu, f"{nbytes(array)} bytes to the device"):
            # CuPy fills a scalar of value zero with zero bytes, and so makes 0.0 of -0.0.
            if np.ndim(array) == 0:
                return self._cupy.asarray(np.reshape(array, 1)).reshape(())
            return self._cupy.asarray(array)

    def freeze(self, array: Array) -> Any:
        return readonly.freeze(array, self._read_only) if self._is_on_gpu(array) else self._host.freeze(array)

    def adopt(self, value: object) -> DeviceArray | None:
        # Arrays of PyTorch, JAX ... on a GPU, without a copy.
        if isinstance(value, Exporter) and value.__dlpack_device__()[0] == readonly.CUDA:
            return self._cupy.from_dlpack(value)
        return None

    def put_all(self, arrays: Sequence[Array], devices: Sequence[str]) -> Sequence[Any]:
        self._settle()
        return [self.put(array, device) for array, device in zip(arrays, devices, strict=True)]

    def _across(self, array: DeviceArray, gpu: int) -> DeviceArray:
        # The copy waits for the source's stream, and the source's stream for the copy.
        cuda, source = self._cupy.cuda, array.data.device_id
        with self.on(source, f"{array.nbytes} bytes to GPU {gpu}"):
            array = contiguous(array)
            ready = cuda.get_current_stream().record()
        with self.on(gpu, f"{array.nbytes} bytes from GPU {source}"):
            stream = cuda.get_current_stream()
            stream.wait_event(ready)
            moved = array.copy()
            done = stream.record()
        with self.on(source, "waiting for a copy"):
            cuda.get_current_stream().wait_event(done)
        return moved

    def _gathered(self, *arrays: Array) -> tuple[int, list[DeviceArray]] | None:
        # Copies all arrays to the GPU of the first one that is on a GPU; None if all are on the host.
        gpu = next((array.data.device_id for array in arrays if self._is_on_gpu(array)), None)
        return None if gpu is None else (gpu, [self._onto(array, gpu) for array in arrays])

    def _onto(self, array: Array, gpu: int) -> DeviceArray:
        if self._is_on_gpu(array):
            return array if array.data.device_id == gpu else self._across(array, gpu)
        return self._from_host(array, gpu)

    # Computing.

    def astype(self, array: Array, dtype: DType) -> Any:
        if not self._is_on_gpu(array):
            return self._host.astype(array, dtype)
        with self.device(array):
            return array.astype(dtype)

    def zeros(self, shape: tuple[int, ...], like: Array) -> Any:
        if not self._is_on_gpu(like):
            return self._host.zeros(shape, like)
        with self.device(like):
            return self._cupy.zeros(shape, like.dtype)

    def sum(self, arrays: Sequence[Array]) -> Any:
        gathered = self._gathered(*arrays)
        if gathered is None:
            return self._host.sum(arrays)
        gpu, parts = gathered
        return self.sums([parts], gpu)[0]

    def sums(self, columns: Sequence[Sequence[DeviceArray]], gpu: int, operation: str = "add") -> list[DeviceArray]:
        """The sum ("sub": the difference) of each column of arrays on one GPU, in as few launches as they fit into."""
        cupy = self._cupy
        results, kept = [], []
        jobs: dict[tuple[str, int], list[Job]] = {}
        with self.on(gpu, "sum"):
            for column in columns:
                # Kept until the kernel is issued; the pool reuses memory in the order of the stream.
                parts = [contiguous(array) for array in column]
                result = cupy.empty(parts[0].shape, parts[0].dtype)
                kept.append(parts)
                results.append(result)
                name, each = stored(result.dtype)
                jobs.setdefault((name, len(parts)), []).append(
                    Job(result.data.ptr, result.size * each, [part.data.ptr for part in parts]))
            for (name, _), group in jobs.items():
                self._programs.combine(name, operation, group)
        return [frozen(result) for result in results]

    def combine(self, dtype: str, jobs: Sequence[Job]) -> None:
        """Adds up arrays on the current GPU, given by their addresses."""
        self._programs.combine(dtype, "add", jobs)

    def all_reduce(self, columns: Sequence[Sequence[Array]], devices: Sequence[str]) -> list[list[Any]]:
        columns = [self.put_all(column, devices) for column in columns]
        places = [self._devices.of(device) for device in devices]
        gpus = tuple(dict.fromkeys(place for place in places if place is not None))
        here = [[array for array in column if self._is_on_gpu(array)] for column in columns]
        if None in places or list(map(len, here)) != list(map(len, columns)):
            return super().all_reduce(columns, devices)
        if len(gpus) == 1:
            return [[total] * len(devices) for total in self.sums(here, gpus[0])]
        communicator = self._communicator(gpus) if columns else None
        if communicator is None:
            return super().all_reduce(columns, devices)
        owners = [gpus.index(place) for place in places if place is not None]
        return [[*column] for column in nccl.all_reduce(self, communicator, here, owners, owners, self.ordered)]

    def _communicator(self, gpus: tuple[int, ...]) -> nccl.Communicator | None:
        communicator = self._communicators.get(gpus)
        if gpus not in self._communicators or (communicator is not None and communicator.broken):
            communicator = self._communicators[gpus] = nccl.alone(self._cupy, gpus)
        return communicator

    def concatenate(self, arrays: Sequence[Array], axis: int) -> Any:
        gathered = self._gathered(*arrays)
        if gathered is None:
            return self._host.concatenate(arrays, axis)
        gpu, parts = gathered
        with self.on(gpu, "concatenate"):
            return frozen(self._cupy.concatenate(parts, axis=axis))

    def scatter(self, operation: str, array: Array, indices: Array, values: Array) -> Any:
        gathered = self._gathered(array, indices, values)
        if gathered is None:
            return self._host.scatter(operation, array, indices, values)
        gpu, (array, indices, values) = gathered
        if array.dtype.kind == "c" and operation not in ("add", "sub", "update"):
            raise errors.error("RD20", f"scatter_{operation}", f"the dtype is {array.dtype} and the array is on a GPU",
                               "Compute the whole array and assign it.")
        cupy = self._cupy
        name, each = stored(array.dtype)
        with self.on(gpu, f"scatter_{operation}"):
            changed = array.view(cupy.ndarray).copy()
            if indices.size and changed.size:
                rows = indices.astype(np.int64)
                order = cupy.argsort(rows)
                width = math.prod(array.shape[1:]) * each
                self._programs.scatter(name, operation, changed, contiguous(values), rows[order], order,
                                       width)
        return frozen(changed)

    def difference(self, array: Array, other: Array) -> Any:
        gathered = self._gathered(array, other)
        if gathered is None:
            return self._host.difference(array, other)
        gpu, parts = gathered
        return self.sums([parts], gpu, "sub")[0]

    def divide(self, total: Array, count: float, dtype: str | None = None) -> Any:
        if not self._is_on_gpu(total):
            return self._host.divide(total, count, dtype)
        with self.on(total.data.device_id, "mean"):
            total = contiguous(total).astype(dtype or total.dtype, copy=False)
            mean = self._cupy.empty(total.shape, total.dtype)
            name, each = stored(mean.dtype)
            if mean.size:
                self._programs.divide(name, mean, total, mean.size * each, float(count), each == 2)
        return frozen(mean)

    # Waiting.

    def expect_equal(self, first: Array, other: Array, complain: Callable[[], Exception]) -> None:
        if first is other:
            return
        if first.shape != other.shape or first.dtype != other.dtype:
            raise complain()
        gathered = self._gathered(first, other)
        if gathered is None:
            self._host.expect_equal(first, other, complain)
            return
        gpu, (left, right) = gathered
        with self.on(gpu, "comparing copies"):
            differs = left != right
            if left.dtype.kind in "fcV":  # V is bfloat16
                differs = differs & ((left == left) | (right == right))
            pinned = self._cupy.cuda.alloc_pinned_memory(1)
            outcome = np.frombuffer(pinned, np.bool_, 1).reshape(())
            differs.any().get(out=outcome, blocking=False)
            self._unsure.append((self._cupy.cuda.get_current_stream().record(), outcome, complain))
        if self._blocking:
            self.synchronize()

    def _settle(self) -> None:
        # Raises for comparisons that are done; waits for none.
        while self._unsure and self._unsure[0][0].done:
            _, differs, complain = self._unsure.popleft()
            if differs:
                error = complain()
                error.add_note("found after the call, because GPUs compute asynchronously; "
                               "`strategy.extended.backend.synchronize()` right after a call finds it there")
                raise error

    def synchronize(self) -> None:
        for gpu in self._devices.used:
            with self.on(gpu, "synchronize"):
                nccl.wait(self._cupy, self._between.values(), gpu)
                self._cupy.cuda.Device(gpu).synchronize()
        self._settle()

    def between_workers(self, transport: Transport, devices: Sequence[str]) -> Transport:
        return DeviceTransport(self, transport, devices)

    def connected(self, places: nccl.Places) -> nccl.Communicator | None:
        """The communicator over these GPUs, if one is connected and in use."""
        communicator = self._between.get(tuple(places))
        return None if communicator is None or communicator.broken else communicator

    def connect(self, places: nccl.Places, here: Sequence[tuple[int, int]], unique_id: bytes,
                limit: float) -> nccl.Communicator:
        """A communicator with other processes (`nccl.among`); its errors are raised wherever a GPU is waited for.

        Args:
            places: the GPU of every rank, as (host, PCI bus).
            here: (rank, GPU) for every rank of this process.
            unique_id: NCCL's id of the communicator, which all ranks have to pass.
            limit: seconds after which waiting for another rank is an error.
        """
        if not self._between:
            atexit.register(self._disconnect)
        communicator = nccl.among(self._cupy, here, len(places), unique_id, limit)
        self._between[tuple(places)] = communicator
        return communicator

    def _disconnect(self) -> None:
        # Python would free communicators in any order at exit, and freeing one may wait until other ranks free it, too.
        for communicator in self._between.values():
            with suppress(errors.RefdistError):
                for _, gpu in communicator.here:
                    with self.on(gpu, "exit"):
                        nccl.wait(self._cupy, [communicator], gpu)
                with self.on(communicator.here[0][1], "exit"):
                    communicator.close()

    def pci_bus_id(self, gpu: int) -> str:
        """The PCI bus id of a GPU, which is the same in all processes of its host."""
        return self._cupy.cuda.Device(gpu).pci_bus_id

    def gpu_of(self, device: str) -> int | None:
        """The GPU of a device; None for the host."""
        return self._devices.of(device)


class device_errors:  # noqa: N801 - written like a function, as contextlib.suppress is
    """A `with` block on one GPU; its errors become RD28 and say what was done, on which GPU, in which replica."""

    __slots__ = ("_cupy", "_device", "_gpu", "_what")

    def __init__(self, cupy: Cupy, gpu: int, what: str) -> None:
        self._cupy = cupy
        self._gpu = gpu
        self._what = what
        self._device = cupy.cuda.Device(gpu)

    def __enter__(self) -> None:
        self._device.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._device.__exit__(kind, error, trace)
        if error is None or isinstance(error, errors.RefdistError):
            return
        raised = translated(self._cupy, error, f"{self._what} on GPU {self._gpu} {context_stack.describe()}")
        if raised is not None:
            raise raised from error


def translated(cupy: Cupy, error: BaseException, attempted: str) -> errors.RefdistError | None:
    """Translates an error of CUDA or NCCL to one of refdist; None for any other error."""
    cuda = cupy.cuda
    if isinstance(error, cuda.memory.OutOfMemoryError):
        return errors.error("RD28", attempted, f"out of memory: {error}", "Use smaller batches, raise the device's "
                            "memory_limit, or free what is not needed.", kind=errors.ResourceExhaustedError)
    if isinstance(error, (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)):
        return errors.error("RD28", attempted, f"CUDA says {error}")
    if nccl.is_nccl_error(error):
        return errors.error("RD28", attempted, f"NCCL says {error}", "Set NCCL_DEBUG=INFO to see what it says before.")
    if type(error).__name__ in ("CompileException", "DynamicLibNotFoundError"):
        return errors.error("RD28", attempted, f"the kernel cannot be compiled: {str(error).splitlines()[0]}",
                            "Install CUDA's headers and NVRTC: pip install 'cupy-cuda12x[ctk]'.")
    return None
