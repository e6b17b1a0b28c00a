"""`RawModule` for the CPU: the same source, compiled by g++, one thread after another.

What a GPU does with it, its speed and its compiler's roundings are not seen here.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from . import cuda
from .cuda import memory

PRELUDE = r"""
#include <cstring>
#define __global__
#define DEVICE static inline
#define PARAMETER
struct Index { unsigned int x, y, z; };
static Index blockIdx, blockDim, gridDim, threadIdx;
DEVICE float add_f(float a, float b) { return a + b; }
DEVICE float sub_f(float a, float b) { return a - b; }
DEVICE float mul_f(float a, float b) { return a * b; }
DEVICE float div_f(float a, float b) { return a / b; }
DEVICE float half_up(unsigned short h) { _Float16 f; memcpy(&f, &h, 2); return f; }
DEVICE unsigned short half_down(float f) { _Float16 g = f; unsigned short h; memcpy(&h, &g, 2); return h; }
DEVICE float of_bits(unsigned int u) { float f; memcpy(&f, &u, 4); return f; }
DEVICE unsigned int bits_of(float f) { unsigned int u; memcpy(&u, &f, 4); return u; }
"""
LAUNCH = """
extern "C" void run_{name}(const unsigned int* shape, void** a) {{
    gridDim = {{shape[0], shape[1], 1}}; blockDim = {{shape[2], 1, 1}};
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)
                {name}({arguments});
}}
"""


# Without reassociation and contraction, as the GPU's instructions are.
OPTIONS = ["-O1", "-shared", "-fPIC", "-std=c++17", "-ffp-contract=off", "-fwrapv", "-w"]
# The libraries, by their sources: a dozen, which a hundred processes of the tests need.
FOLDER = Path(__file__).with_name("__pycache__")


@functools.cache
def compiled(code):
    """The library that g++ makes of CUDA source, or has made in another process."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise RuntimeError("g++ is needed to run the kernels on the CPU")
    launches = []
    for name, parameters in re.findall(r'extern "C" __global__ void (\w+)\(([^)]*)\)', code):
        kinds = [re.sub(r"\bPARAMETER\b|\bconst\b(?! STORED\*| long long\*)", "", item).rsplit(None, 1)[0].strip()
                 for item in parameters.replace("\n", " ").split(",")]
        launches.append(LAUNCH.format(name=name, arguments=", ".join(
            f"*({kind}*)a[{i}]" for i, kind in enumerate(kinds))))
    source = PRELUDE + code + "".join(launches)
    key = "\n".join([platform.machine(), *OPTIONS, source])
    library = FOLDER / f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        FOLDER.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            Path(folder, "kernels.cpp").write_text(source)
            done = subprocess.run([compiler, *OPTIONS, "-o", f"{folder}/kernels.so", f"{folder}/kernels.cpp"],
                                  capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr[:2000])
            Path(folder, "kernels.so").replace(library)
    return ctypes.CDLL(str(library))


class RawModule:
    def __init__(self, code, options=()):
        self._code = code

    def get_function(self, name):
        return functools.partial(_launch, self._code, name)


launched: list[str] = []


def _launch(code, name, grid, block, args):
    held, pointers = [], []
    launched.append(name)
    itemsize = _itemsize(code)
    for value in args:
        if hasattr(value, "data") and hasattr(value.data, "mem"):
            cell = ctypes.c_uint64(value.data.ptr)
        else:
            cell = ctypes.create_string_buffer(np.asarray(value).tobytes())
        held.append(cell)
        pointers.append(ctypes.addressof(cell))
    reads, writes = _touched(name, args, itemsize)
    for mem in [*reads, *writes]:
        assert mem.device_id == cuda.runtime.getDevice(), "a kernel was given memory of another device"
    cuda.used(cuda.get_current_stream(), reads, writes)
    shape = (ctypes.c_uint * 3)(grid[0], grid[1] if len(grid) > 1 else 1, block[0])
    with cuda.runtime.lock:  # a library is compiled once, and its kernels have static variables
        getattr(compiled(code), f"run_{name}")(shape, (ctypes.c_void_p * len(pointers))(*pointers))


def _itemsize(code):
    kind = re.search(r"#define STORED (.*)", code)[1]
    sizes = {"char": 1, "short": 2, "int": 4, "float": 4, "long": 8, "double": 8}
    return sizes[kind.split()[-1]]


def _touched(name, args, itemsize):
    # The memory a kernel reads and writes, by what its arguments mean.
    if name != "combine":
        arrays = [value.data.mem for value in args if hasattr(value, "data") and hasattr(value.data, "mem")]
        return arrays, arrays[:1]
    words, k = args[0]["word"][0].tolist(), int(args[1])
    reads, writes = [], []
    for job in range(len(words) // (k + 2)):
        length, result, *sources = words[job * (k + 2):(job + 1) * (k + 2)]
        if length:
            writes.append(memory.owner(result, length * itemsize))
            reads += [memory.owner(source, length * itemsize) for source in sources]
    return reads, writes
