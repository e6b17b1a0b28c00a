"""The parts of CuPy and of its NCCL module that refdist uses, as Protocols, because CuPy is optional.

Names and arguments are theirs; addresses (`ptr`) are plain numbers.  mypy lets nothing else of CuPy be used in this
folder, and tests compare what is declared here with CuPy and with the stand-in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from refdist.array.types import Array, Key

DType = np.dtype[np.generic]
HostArray = npt.NDArray[np.generic]
Shape = int | tuple[int, ...]
A = TypeVar("A", bound="DeviceArray")


class MemoryPointer(Protocol):
    """Memory of a device."""

    @property
    def ptr(self) -> int: ...
    @property
    def device_id(self) -> int: ...


class DeviceArray(Array, Protocol):
    """cupy.ndarray, of which `ReadOnlyArray` is a subclass."""

    @property
    def data(self) -> MemoryPointer: ...
    @property
    def base(self) -> DeviceArray | None: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def flags(self) -> Any: ...  # how the array lies in memory; its type has no public name
    @property
    def __cuda_array_interface__(self) -> dict[str, object]: ...

    def get(self, *, out: HostArray | None = None, blocking: bool = True) -> HostArray: ...
    def any(self) -> DeviceArray: ...
    def astype(self, dtype: npt.DTypeLike, *, copy: bool = True) -> DeviceArray: ...
    def byteswap(self, inplace: bool = False) -> DeviceArray: ...
    def copy(self) -> DeviceArray: ...
    def reshape(self, shape: Shape) -> DeviceArray: ...
    @overload
    def view(self, kind: type[A]) -> A: ...
    @overload
    def view(self, kind: npt.DTypeLike) -> DeviceArray: ...
    def __dlpack__(self, **options: object) -> object: ...

    def __getitem__(self, key: Key | DeviceArray, /) -> DeviceArray: ...
    def __eq__(self, other: object, /) -> DeviceArray: ...  # type: ignore[override]
    def __ne__(self, other: object, /) -> DeviceArray: ...  # type: ignore[override]
    def __and__(self, other: DeviceArray, /) -> DeviceArray: ...
    def __or__(self, other: DeviceArray, /) -> DeviceArray: ...


@runtime_checkable
class Exporter(Protocol):
    """An array of any library that DLPack can hand over."""

    def __dlpack_device__(self) -> tuple[int, int]: ...


class Event(Protocol):
    """A point in the work of a stream."""

    @property
    def done(self) -> bool: ...


class DeviceStream(Protocol):
    """A queue of work of a device; `ptr` is 0 for the default one."""

    @property
    def ptr(self) -> int: ...
    def record(self) -> Event: ...
    def wait_event(self, event: Event) -> None: ...
    def use(self) -> object: ...
    def __enter__(self) -> object: ...
    def __exit__(self, *error: object) -> None: ...


class Streams(Protocol):
    """The class cupy.cuda.Stream."""

    @property
    def null(self) -> DeviceStream: ...


class CudaDevice(Protocol):
    """A GPU."""

    @property
    def pci_bus_id(self) -> str: ...
    def use(self) -> object: ...
    def synchronize(self) -> None: ...
    def __enter__(self) -> object: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...


class Pool(Protocol):
    """The memory pool of arrays."""

    def set_limit(self, *, size: int) -> None: ...
    def malloc(self, size: int) -> MemoryPointer: ...


class Runtime(Protocol):
    """The module cupy.cuda.runtime."""

    CUDARuntimeError: type[Exception]

    def driverGetVersion(self) -> int: ...
    def getDevice(self) -> int: ...
    def getDeviceCount(self) -> int: ...


class Driver(Protocol):
    """The module cupy.cuda.driver."""

    CUDADriverError: type[Exception]


class MemoryModule(Protocol):
    """The module cupy.cuda.memory."""

    OutOfMemoryError: type[Exception]


class Cuda(Protocol):
    """The module cupy.cuda."""

    runtime: Runtime
    driver: Driver
    memory: MemoryModule
    Stream: Streams
    Device: Callable[[int], CudaDevice]
    MemoryPool: Callable[[], Pool]

    def get_current_stream(self) -> DeviceStream: ...
    def set_allocator(self, allocator: Callable[[int], MemoryPointer]) -> None: ...
    def alloc_pinned_memory(self, size: int) -> memoryview: ...


# What a kernel takes: arrays, and NumPy's scalars and structures by value.
Argument = DeviceArray | np.generic | HostArray
Kernel = Callable[[tuple[int, ...], tuple[int, ...], tuple[Argument, ...]], None]


class CompiledModule(Protocol):
    """Compiled CUDA source."""

    def get_function(self, name: str) -> Kernel: ...


class RawModules(Protocol):
    """The class cupy.RawModule."""

    def __call__(self, *, code: str, options: tuple[str, ...]) -> CompiledModule: ...


class Cupy(Protocol):
    """The module cupy."""

    cuda: Cuda
    ndarray: type[DeviceArray]
    RawModule: RawModules

    def asarray(self, a: Array) -> DeviceArray: ...
    def argsort(self, a: DeviceArray) -> DeviceArray: ...
    def concatenate(self, arrays: Sequence[DeviceArray], axis: int = 0) -> DeviceArray: ...
    def empty(self, shape: Shape, dtype: npt.DTypeLike) -> DeviceArray: ...
    def zeros(self, shape: Shape, dtype: npt.DTypeLike) -> DeviceArray: ...
    def from_dlpack(self, array: Exporter) -> DeviceArray: ...


class NcclCommunicator(Protocol):
    """One rank of a communicator of NCCL."""

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None: ...
    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None: ...
    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None: ...
    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None: ...
    def check_async_error(self) -> None: ...
    def abort(self) -> None: ...
    def destroy(self) -> None: ...


class NcclCommunicators(Protocol):
    """The class cupy.cuda.nccl.NcclCommunicator."""

    def __call__(self, ndev: int, commId: bytes, rank: int) -> NcclCommunicator: ...
    def initAll(self, devices: list[int]) -> list[NcclCommunicator]: ...


class Nccl(Protocol):
    """The module cupy.cuda.nccl."""

    available: bool
    NCCL_UINT8: int
    NCCL_SUM: int
    NcclCommunicator: NcclCommunicators

    def get_unique_id(self) -> bytes: ...
    def groupStart(self) -> None: ...
    def groupEnd(self) -> None: ...
