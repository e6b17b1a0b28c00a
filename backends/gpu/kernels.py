"""The CUDA kernels: sums of many arrays in a stated order, and rows changed in the order of their indices.

NumPy's bits come from here: every addition is rounded to the array's dtype, from left to right, and subnormal
numbers are kept, which CuPy's own arithmetic flushes to zero.  Devices, streams and who owns an array are not
known here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

# The words of a launch's table travel with its arguments, of which there may be 4 KiB.
WORDS = 480
_TABLE = np.dtype([("word", np.uint64, (WORDS,))])  # an array of one element travels by value
THREADS = 256
BLOCKS = 2048  # per job; a thread takes several elements of longer arrays

# name of the dtype: (C type it is kept as, how it is computed with, whether complex numbers are pairs of it)
TYPES = {
    "int8": ("signed char", "Integer"), "int16": ("short", "Integer"), "int32": ("int", "Integer"),
    "int64": ("long long", "Integer"), "uint8": ("unsigned char", "Integer"), "uint16": ("unsigned short", "Integer"),
    "uint32": ("unsigned int", "Integer"), "uint64": ("unsigned long long", "Integer"),
    "float16": ("unsigned short", "Half"), "bfloat16": ("unsigned short", "Brain"), "float32": ("float", "Single"),
    "float64": ("double", "Double")}
PAIRS = {"complex64": "float32", "complex128": "float64"}
OPERATIONS = {"add": 0, "sub": 1, "mul": 2, "div": 3, "min": 4, "max": 5, "update": 6}

SOURCE = r"""
#ifdef __CUDACC__
#define DEVICE static __device__ __forceinline__
// Written out, because the compiler is told to flush subnormal numbers and these instructions are not.
#define ROUNDED(name, instruction) DEVICE float name(float a, float b) { \
    float r; asm(instruction " %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
ROUNDED(add_f, "add.rn.f32")
ROUNDED(sub_f, "sub.rn.f32")
ROUNDED(mul_f, "mul.rn.f32")
ROUNDED(div_f, "div.rn.f32")
DEVICE float half_up(unsigned short h) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h)); return r; }
DEVICE unsigned short half_down(float f) {
    unsigned short r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(f)); return r; }
DEVICE float of_bits(unsigned int u) { return __uint_as_float(u); }
DEVICE unsigned int bits_of(float f) { return __float_as_uint(f); }
#endif
DEVICE bool nan_f(float f) { return (bits_of(f) & 0x7fffffffu) > 0x7f800000u; }
// By bits, because a comparison flushes subnormal numbers too.
DEVICE int rank_f(float f) { int u = (int)bits_of(f); return u < 0 ? (int)0x80000000 - u : u; }

struct Single {
    typedef float Wide;
    DEVICE float up(float x) { return x; }
    DEVICE float down(float x) { return x; }
};
struct Half {
    typedef float Wide;
    DEVICE float up(unsigned short x) { return half_up(x); }
    DEVICE unsigned short down(float x) { return half_down(x); }
};
struct Brain {
    typedef float Wide;
    DEVICE float up(unsigned short x) { return of_bits((unsigned int)x << 16); }
    DEVICE unsigned short down(float x) {
        unsigned int u = bits_of(x);
        if (nan_f(x)) return (unsigned short)(u >> 16) | 0x40;
        return (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
};
struct Double {
    typedef double Wide;
    DEVICE double up(double x) { return x; }
    DEVICE double down(double x) { return x; }
};
struct Integer {
    typedef STORED Wide;
    DEVICE STORED up(STORED x) { return x; }
    DEVICE STORED down(STORED x) { return x; }
};

DEVICE float compute(int op, float a, float b) {
    switch (op) {
        case 0: return add_f(a, b);
        case 1: return sub_f(a, b);
        case 2: return mul_f(a, b);
        case 3: return div_f(a, b);
        case 4: return nan_f(a) || (!nan_f(b) && rank_f(a) < rank_f(b)) ? a : b;
        case 5: return nan_f(a) || (!nan_f(b) && rank_f(a) > rank_f(b)) ? a : b;
    }
    return b;
}
DEVICE double compute(int op, double a, double b) {
    switch (op) {
        case 0: return a + b;
        case 1: return a - b;
        case 2: return a * b;
        case 3: return a / b;
        case 4: return a != a || a < b ? a : b;
        case 5: return a != a || a > b ? a : b;
    }
    return b;
}
// Wraps around as NumPy's integers do; signed numbers may not overflow in C.
template <typename T> DEVICE T compute(int op, T a, T b) {
    switch (op) {
        case 0: return (T)((unsigned long long)a + (unsigned long long)b);
        case 1: return (T)((unsigned long long)a - (unsigned long long)b);
        case 2: return (T)((unsigned long long)a * (unsigned long long)b);
        case 3: return (T)-1 < (T)0 && b == (T)-1 ? (T)(0ull - (unsigned long long)a) : a / b;
        case 4: return a < b ? a : b;
        case 5: return a > b ? a : b;
    }
    return b;
}
DEVICE STORED apply(int op, STORED a, STORED b) { return KIND::down(compute(op, KIND::up(a), KIND::up(b))); }

struct Table { unsigned long long word[WORDS]; };
struct alignas(16) Lanes { STORED lane[16 / sizeof(STORED)]; };

// Each job, one per row of the grid: length, result, k arrays.  The result may be the first array.
template <int OP> DEVICE void combine_by(const Table& table, int k, int aligned) {
    const int job = blockIdx.y * (k + 2);
    const long long length = (long long)table.word[job];
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long step = (long long)gridDim.x * blockDim.x;
    const int lanes = 16 / sizeof(STORED);
    const long long wide = aligned ? length / lanes : 0;
    for (long long i = first; i < wide; i += step) {
        Lanes total = ((const Lanes*)table.word[job + 2])[i];
        #pragma unroll 8
        for (int j = 1; j < k; ++j) {
            const Lanes next = ((const Lanes*)table.word[job + 2 + j])[i];
            #pragma unroll
            for (int l = 0; l < lanes; ++l) total.lane[l] = apply(OP, total.lane[l], next.lane[l]);
        }
        ((Lanes*)table.word[job + 1])[i] = total;
    }
    for (long long i = wide * lanes + first; i < length; i += step) {
        STORED total = ((const STORED*)table.word[job + 2])[i];
        for (int j = 1; j < k; ++j) total = apply(OP, total, ((const STORED*)table.word[job + 2 + j])[i]);
        ((STORED*)table.word[job + 1])[i] = total;
    }
}
extern "C" __global__ void combine(const PARAMETER Table table, int k, int op, int aligned) {
    if (op == 0) combine_by<0>(table, k, aligned);
    else combine_by<1>(table, k, aligned);
}

// By a divisor that the dtype holds; parts of complex numbers are multiplied by its reciprocal, as NumPy does.
extern "C" __global__ void divide(STORED* result, const STORED* array, long long length, double divisor, int parts) {
    const KIND::Wide by = parts ? compute(3, (KIND::Wide)1, (KIND::Wide)divisor) : (KIND::Wide)divisor;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < length; i += step)
        result[i] = KIND::down(compute(parts ? 2 : 3, KIND::up(array[i]), by));
}

// `rows` is sorted and `order` says which row of `values` each entry is, equal rows in their first order.  One
// thread carries out everything that happens to one element.
extern "C" __global__ void scatter(STORED* array, const STORED* values, const long long* rows, const long long* order,
                                   long long count, long long width, int op) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count * width; i += step) {
        const long long entry = i / width, column = i % width, row = rows[entry];
        if (entry > 0 && rows[entry - 1] == row) continue;
        STORED total = array[row * width + column];
        for (long long next = entry; next < count && rows[next] == row; ++next)
            total = op == 6 ? values[order[next] * width + column]
                            : apply(op, total, values[order[next] * width + column]);
        array[row * width + column] = total;
    }
}
"""


@functools.cache
def stored(dtype: Any) -> tuple[str, int]:
    """How elements of a NumPy dtype are kept: a key of TYPES, and how many of it one element is.

    >>> stored(np.dtype("complex64"))
    ('float32', 2)
    """
    name = "uint8" if dtype == np.bool_ else dtype.name
    return (PAIRS[name], 2) if name in PAIRS else (name, 1)


@functools.cache
def on_device(dtype: Any) -> bool:
    """Whether arrays of a dtype can be on a GPU: numbers and booleans, not text and objects."""
    return stored(dtype)[0] in TYPES


def source(dtype: str) -> str:
    """The program for one dtype, a key of TYPES."""
    stored, kind = TYPES[dtype]
    return (f"#define STORED {stored}\n#define KIND {kind}\n#define WORDS {WORDS}\n"
            "#ifdef __CUDACC__\n#define PARAMETER __grid_constant__\n#endif\n" + SOURCE)


class Job(NamedTuple):
    """One sum: where the result goes, how long it is in elements, and where the arrays are."""

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
    """The calls that carry out jobs over the same number of arrays, in as few as the table allows.

    More arrays than a table holds are added in several calls, left to right, each beginning with what the one
    before it has left in the result.

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
    """The kernels of one array module, compiled when a dtype is first used."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._made: dict[tuple[int, str], dict[str, Any]] = {}

    def _kernels(self, dtype: str) -> dict[str, Any]:
        # Compiled code is loaded into a device, so each has its own.
        key = self._xp.cuda.runtime.getDevice(), dtype
        if key not in self._made:
            module = self._xp.RawModule(code=source(dtype), options=("-fmad=false", "--std=c++17"))
            self._made[key] = {name: module.get_function(name) for name in ("combine", "divide", "scatter")}
        return self._made[key]

    def combine(self, dtype: str, operation: str, jobs: Sequence[Job]) -> None:
        """Carries out `jobs` on the current device and stream; complex numbers are two of their parts."""
        kernel = self._kernels(dtype)["combine"]
        for launch in launches(jobs):
            table = np.zeros(1, _TABLE)
            table["word"][0, :len(launch.table)] = launch.table
            kernel(launch.grid, (THREADS,), (table, np.int32(launch.arrays), np.int32(OPERATIONS[operation]),
                                             np.int32(launch.aligned)))

    def divide(self, dtype: str, result: Any, array: Any, length: int, divisor: float, parts: bool) -> None:
        """Divides the elements of a contiguous array, or the parts of its complex numbers."""
        self._kernels(dtype)["divide"]((_blocks(length),), (THREADS,), (
            result, array, np.int64(length), np.float64(divisor), np.int32(parts)))

    def scatter(self, dtype: str, operation: str, array: Any, values: Any, rows: Any, order: Any,
                width: int) -> None:
        """Changes rows of a contiguous array in place; `rows` are sorted, int64 like `order`."""
        count = len(order)
        self._kernels(dtype)["scatter"]((_blocks(count * width),), (THREADS,), (
            array, values, rows, order, np.int64(count), np.int64(width), np.int32(OPERATIONS[operation])))


def _blocks(length: int) -> int:
    return max(1, min(BLOCKS, -(-length // THREADS)))
