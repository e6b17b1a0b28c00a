"""The CUDA kernels: sums of many arrays, means, and rows changed in the order of their indices, with NumPy's bits.

Why kernels of our own.  A sum here is taken left to right over the replica ids and rounded to the array's dtype after
every addition; these bits are the contract of every backend.  CuPy's arithmetic has others:

* CuPy compiles everything with -ftz=true, after the caller's options, so float32 arithmetic takes subnormal numbers for
  zero.  Neither -ftz=false nor `__fadd_rn` helps: the last flag wins, and the intrinsic becomes `add.rn.ftz.f32`.
  Inline PTX (`add.rn.f32`) is left as it is written.  Comparisons flush too, so minima and maxima compare bits.
* a + b + c in float16 is computed in float32 and rounded once.  Here every step is rounded.  The 24 bits of float32 are
  at least 2 p + 2 for float16 (p = 11) and bfloat16 (p = 8), so rounding its sum is rounding the exact one.
* The compiler would contract a * b + c into one instruction with one rounding: -fmad=false.

How.  `kernels.cu` is compiled for each dtype on each device when it is first used there.  Complex numbers are two of
their parts and booleans uint8.  One thread computes an element from beginning to end, so no order between threads
matters; there are no atomics and no trees.

* `combine` reads k arrays and writes one, in one pass.  Many small sums ("jobs") share a launch.  Addresses travel with
  the arguments, because CuPy passes an array of one element by value: nothing is copied to the device and nothing
  waits.  Arguments are limited to 4 KiB; more arrays than fit are added in several launches, each beginning with what
  the one before it left in the result, which is stored in the same dtype and so changes no bit.
* `scatter` is given its rows sorted by index, equal ones in their first order; the first entry of each row does all
  that happens to it.
* `divide` is a kernel for the sake of subnormal numbers and of float16.

CuPy checks nothing of a bare address: callers keep arrays alive until the launch is issued, contiguous, and on the
current device.  Devices, streams and owners of arrays are not known here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from refdist.backends.gpu.cupy_types import Cupy, DeviceArray, DType, Kernel

# 64-bit words of a launch's table, which is passed by value; all arguments together may take 4 KiB.
WORDS = 480
_TABLE = np.dtype([("word", np.uint64, (WORDS,))])  # an array of one element, which CuPy passes by value
THREADS = 256
BLOCKS = 2048  # per job; a thread takes several elements of longer arrays

# Name of the dtype: (C type of an element in memory, the struct in kernels.cu that computes with it).
TYPES = {
    "int8": ("signed char", "Integer"), "int16": ("short", "Integer"), "int32": ("int", "Integer"),
    "int64": ("long long", "Integer"), "uint8": ("unsigned char", "Integer"), "uint16": ("unsigned short", "Integer"),
    "uint32": ("unsigned int", "Integer"), "uint64": ("unsigned long long", "Integer"),
    "float16": ("unsigned short", "Half"), "bfloat16": ("unsigned short", "Brain"), "float32": ("float", "Single"),
    "float64": ("double", "Double")}
PAIRS = {"complex64": "float32", "complex128": "float64"}
OPERATIONS = {"add": 0, "sub": 1, "mul": 2, "div": 3, "min": 4, "max": 5, "update": 6}

_SOURCE = Path(__file__).with_name("kernels.cu")


@functools.cache
def stored(dtype: DType) -> tuple[str, int]:
    """How elements of a dtype lie in memory: a key of TYPES, and how many of them one element is.

    >>> stored(np.dtype("complex64"))
    ('float32', 2)
    """
    name = "uint8" if dtype == np.bool_ else dtype.name
    return (PAIRS[name], 2) if name in PAIRS else (name, 1)


@functools.cache
def on_device(dtype: DType) -> bool:
    """Whether arrays of a dtype can be on a GPU: numbers and booleans, not text and objects."""
    return stored(dtype)[0] in TYPES


def contiguous(array: DeviceArray) -> DeviceArray:
    """The array itself if it is C-contiguous, else a copy that is; of the same shape.

    CuPy's ascontiguousarray, like NumPy's, turns a scalar into an array of one element.
    """
    return array if array.flags.c_contiguous else array.copy()


def source(dtype: str) -> str:
    """The program for one dtype, a key of TYPES: kernels.cu with its three definitions."""
    stored, kind = TYPES[dtype]
    return f"#define STORED {stored}\n#define KIND {kind}\n#define WORDS {WORDS}\n" + _SOURCE.read_text()


class Job(NamedTuple):
    """One sum: address of the result, its length in elements, addresses of the arrays."""

    result: int
    length: int
    arrays: Sequence[int]


class Launch(NamedTuple):
    """One call of `combine`."""

    table: list[int]
    grid: tuple[int, int]
    arrays: int
    aligned: bool


def launches(jobs: Sequence[Job]) -> Iterator[Launch]:
    """The launches that carry out jobs over the same number of arrays, as few as the table allows.

    More arrays than a table holds are added in several launches, left to right, each beginning with what the one
    before it left in the result.

    >>> [launch.table for launch in launches([Job(900, 3, [100, 200])])]
    [[3, 900, 100, 200]]
    """
    left = [job for job in jobs if job.length]
    if not left:
        return
    most = WORDS - 2
    while left:
        k = min(len(left[0].arrays), most)
        each = WORDS // (k + 2)
        for start in range(0, len(left), each):
            part = left[start:start + each]
            table = [word for job in part for word in (job.length, job.result, *job.arrays[:k])]
            pointers = [pointer for job in part for pointer in (job.result, *job.arrays[:k])]
            longest = max(job.length for job in part)
            yield Launch(table, (min(BLOCKS, -(-longest // THREADS)), len(part)), k,
                         all(pointer % 16 == 0 for pointer in pointers))
        left = [Job(job.result, job.length, [job.result, *job.arrays[k:]]) for job in left if len(job.arrays) > k]


class Programs:
    """The kernels, compiled when a dtype is first used."""

    def __init__(self, cupy: Cupy) -> None:
        self._cupy = cupy
        self._made: dict[tuple[int, str], dict[str, Kernel]] = {}

    def _kernels(self, dtype: str) -> dict[str, Kernel]:
        # A module is loaded into the current device.
        key = self._cupy.cuda.runtime.getDevice(), dtype
        if key not in self._made:
            module = self._cupy.RawModule(code=source(dtype), options=("-fmad=false", "--std=c++17"))
            self._made[key] = {name: module.get_function(name) for name in ("combine", "divide", "scatter")}
        return self._made[key]

    def combine(self, dtype: str, operation: str, jobs: Sequence[Job]) -> None:
        """Issues `jobs` on the current device and stream; a complex number counts as two elements."""
        kernel = self._kernels(dtype)["combine"]
        for launch in launches(jobs):
            table = np.zeros(1, _TABLE)
            table["word"][0, :len(launch.table)] = launch.table
            kernel(launch.grid, (THREADS,), (table, np.int32(launch.arrays), np.int32(OPERATIONS[operation]),
                                             np.int32(launch.aligned)))

    def divide(self, dtype: str, result: DeviceArray, array: DeviceArray, length: int, divisor: float,
               parts: bool) -> None:
        """Divides the elements of a contiguous array, or the parts of its complex numbers."""
        self._kernels(dtype)["divide"]((_blocks(length),), (THREADS,), (
            result, array, np.int64(length), np.float64(divisor), np.int32(parts)))

    def scatter(self, dtype: str, operation: str, array: DeviceArray, values: DeviceArray, rows: DeviceArray,
                order: DeviceArray, width: int) -> None:
        """Changes rows of a contiguous array in place.

        Args:
            dtype: of `array` and `values`, as the kernels name it.
            operation: a key of OPERATIONS, such as "add".
            array: [number of rows, width], the array that is changed.
            values: [any number of rows, width].
            rows: int64, sorted: the row that each entry changes.
            order: int64: the row of `values` that each entry takes.
            width: elements per row.
        """
        count = order.size
        self._kernels(dtype)["scatter"]((_blocks(count * width),), (THREADS,), (
            array, values, rows, order, np.int64(count), np.int64(width), np.int32(OPERATIONS[operation])))


def _blocks(length: int) -> int:
    return max(1, min(BLOCKS, -(-length // THREADS)))
