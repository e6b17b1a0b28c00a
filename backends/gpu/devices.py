"""The GPUs of this process: whether they can be used, logical devices, memory limits, streams.

GPUs of a process.  Every process of a host sees all its GPUs, unless CUDA_VISIBLE_DEVICES or Slurm says otherwise; the
processes that a launcher started share them out by their number on the host (`share`).

Logical devices.  "GPU:3" is a name; which part of which GPU it means is in `config`.  A part with a memory limit has a
memory pool.  CuPy has one allocator for the whole process, which picks the pool of the device that the context stack
says is current.  `cupy.cuda.using_allocator` would not do: it belongs to the thread, and so to all its replicas.

Replicas and threads.  CUDA's current device, and the stacks behind CuPy's `with device:` and `with stream:`, belong to
the thread.  Replicas are greenlets of one thread.  A switch of replicas inside such a block would let one replica pop
what another one pushed, so:

* the device of a replica is made current when it starts (`Devices.use`) and when it goes on (`Current`);
* replicas meet in default streams only; a collective in another stream is refused (RD09);
* `strategy.run` may be called inside a block, because all its replicas begin and end within it.  For its length the
  default streams are pushed on top: a replica that closes a block of its own falls back to these.  They wait for the
  block's stream, and it waits for them afterwards;
* a collective inside a `with cupy.cuda.Device(...):` block is not noticed, because CuPy does not show that stack.

What was tried before is to remember blocks by replica, by replacing `Stream.__enter__` and `__exit__`.  It changed CuPy
for the whole process, also after the backend was no longer in use.  Nothing of CuPy is replaced now.

This module knows nothing of what is computed on the devices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from refdist import config, errors
from refdist.backends.gpu.cupy_types import Cupy, DeviceStream, Pool
from refdist.core import context_stack, devices
from refdist.core.agreement import CollectiveCall
from refdist.core.states import State
from refdist.workers import launcher

_DRIVER = Path("/proc/driver/nvidia/version")
CUDA_13_DRIVER = 580  # the first driver for CUDA 13; CUDA 12 needs 525
_ATTEMPTED = "backend 'gpu'"


def library() -> Cupy:
    """The module cupy, on a machine where it can be used.

    Raises:
        RD27: CuPy, the driver or a GPU is missing; the error says which, and what to do.
    """
    try:
        import cupy
    except ImportError as error:
        raise errors.error("RD27", _ATTEMPTED, f"CuPy cannot be imported: {error}", advice(_driver())) from error
    runtime = cupy.cuda.runtime
    if not runtime.driverGetVersion():
        raise errors.error("RD27", _ATTEMPTED, "there is no NVIDIA driver",
                           "Install one, or run in a container started with its GPUs (`--gpus all`).")
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise errors.error("RD27", _ATTEMPTED, f"CUDA does not start: {error}", advice(_driver())) from error
    if not count:
        raise errors.error("RD27", _ATTEMPTED, "there is no GPU",
                           "Look at CUDA_VISIBLE_DEVICES: it names the GPUs that a process may use.")
    module: Cupy = cupy
    return module


def _driver() -> int | None:
    # The major version of the driver, read without any library; None where it cannot be read.
    try:
        version = re.search(r"Kernel Module.*?\s(\d+)\.\d", _DRIVER.read_text())
    except OSError:
        return None
    return int(version[1]) if version else None


def advice(driver: int | None) -> str:
    """Which package to install for a driver of this major version, or where no driver was found (None).

    >>> advice(570)
    "Install CuPy for this machine's driver (570): pip install 'cupy-cuda12x[ctk]'."
    """
    if driver is None:
        return ("Install CuPy on a machine with an NVIDIA driver: pip install 'cupy-cuda12x[ctk]', or "
                f"'cupy-cuda13x[ctk]' with a driver from {CUDA_13_DRIVER} on.")
    wheel = "cupy-cuda13x" if driver >= CUDA_13_DRIVER else "cupy-cuda12x"
    return f"Install CuPy for this machine's driver ({driver}): pip install '{wheel}[ctk]'."


def share(visible: int, environment: Mapping[str, str]) -> list[int]:
    """The GPUs of this process, where several processes of one host see the same ones.

    Processes share the GPUs out evenly, in order; with more processes than GPUs, several are on one.  Slurm's
    `--gpus-per-task` and a single visible GPU have settled it already.

    >>> share(4, {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"})
    [2, 3]
    """
    place = None if "SLURM_GPUS_PER_TASK" in environment else launcher.on_this_host(environment)
    if place is None:
        return list(range(visible))
    rank, processes = place
    if visible < processes:
        return [rank % visible]
    return list(range(rank * visible // processes, (rank + 1) * visible // processes))


class Devices:
    """Which GPU each logical device is on, and how much of its memory it may use.

    Attributes:
        used: CUDA's numbers of the GPUs that this process uses.
    """

    def __init__(self, cupy: Cupy) -> None:
        self._cupy = cupy
        self.used = share(cupy.cuda.runtime.getDeviceCount(), os.environ)
        # GPU 0 may belong to another process, also outside replicas.
        cupy.cuda.Device(self.used[0]).use()
        self._known: dict[str, int | None] = {}
        self._parts: list[devices.LogicalPart] = []
        self._pools: dict[str, Pool] = {}
        config.when_changed(self._known.clear)

    def of(self, name: str) -> int | None:
        """The GPU that a device name means; None for the host.

        Raises:
            RD24: no such GPU.
        """
        try:
            return self._known[name]
        except KeyError:
            gpu = self._known[name] = self._find(name)
            return gpu

    def use(self, name: str) -> None:
        """Makes the GPU that a device name means current; the host has none."""
        gpu = self.of(name)
        if gpu is not None and len(self.used) > 1:
            self._cupy.cuda.Device(gpu).use()

    def _find(self, name: str) -> int | None:
        parts = config.logical_parts("GPU", len(self.used))
        if parts is not self._parts:
            self._parts = parts
            self._limit(parts)
        kind, index = devices.device_type(name), devices.index(name)
        if kind != "GPU":
            return None
        if index >= len(self._parts):
            raise errors.error("RD24", f"device {devices.short(name)}", f"there are {len(self._parts)} logical GPUs on "
                               f"{len(self.used)} physical ones", "Use a smaller index, or divide the GPUs further: "
                               "REFDIST_DEVICES=GPU:4 or refdist.config.set_logical_device_configuration.")
        return self.used[self._parts[index].physical]

    def _limit(self, parts: list[devices.LogicalPart]) -> None:
        # One memory pool per limited logical device; the allocator picks it from the current frame, because replicas
        # share a thread.
        cuda, self._pools = self._cupy.cuda, {}
        for number, part in enumerate(parts):
            if part.memory_limit is not None:
                pool = cuda.MemoryPool()
                with cuda.Device(self.used[part.physical]):
                    pool.set_limit(size=part.memory_limit << 20)
                self._pools[f"GPU:{number}"] = pool
        if self._pools:
            common = cuda.MemoryPool()
            cuda.set_allocator(lambda size: self._pools.get(_here(), common).malloc(size))


def _here() -> str:
    device = context_stack.frame().device
    return devices.short(device) if device else ""


# The current device; and, where it is not a default stream, the current stream of each device.
Place = tuple[int, list[tuple[int, DeviceStream]]]


class Current(State):
    """The current device of each replica, which runs in the default stream."""

    def __init__(self, cupy: Cupy, known: Devices) -> None:
        self._cuda = cupy.cuda
        self._known = known

    def save(self, call: CollectiveCall | None) -> Place:
        """The current device; code that starts replicas also leaves its streams, until `restore`.

        Raises:
            RD09: a collective in a stream that is not the default one.
        """
        cuda = self._cuda
        device = cuda.runtime.getDevice()
        if call is not None:
            if cuda.get_current_stream().ptr:
                raise errors.error("RD09", f"{call.kind} ({call.line})",
                                   "a stream other than the device's default one is current "
                                   f"{context_stack.describe()}",
                                   "Close the `with stream:` block before the call, and open another one after it.")
            return device, []
        held = []
        for gpu in self._known.used if len(self._known.used) > 1 else [device]:
            with cuda.Device(gpu):
                stream = cuda.get_current_stream()
                if stream.ptr:
                    cuda.Stream.null.wait_event(stream.record())
                    cuda.Stream.null.__enter__()
                    held.append((gpu, stream))
        return device, held

    def begin(self, saved: Place, now: object) -> None:
        """Makes the caller's device current, in the default stream, whatever stream was current before."""
        self._rest()
        if len(self._known.used) > 1:
            self._cuda.Device(saved[0]).use()

    def restore(self, saved: Place, now: object) -> None:
        """Makes the device and the streams current that `save` returned."""
        self._rest()
        cuda = self._cuda
        device, held = saved
        for gpu, stream in reversed(held):
            with cuda.Device(gpu):
                cuda.Stream.null.__exit__(None, None, None)
                stream.wait_event(cuda.Stream.null.record())
                stream.use()
        if len(self._known.used) > 1:
            cuda.Device(device).use()

    def _rest(self) -> None:
        # Makes the default stream current; it waits for the stream that was current before.
        stream = self._cuda.get_current_stream()
        if stream.ptr:
            self._cuda.Stream.null.wait_event(stream.record())
            self._cuda.Stream.null.use()
