"""What a copy of this process has not: the threads of libraries, and CUDA.

A fork copies the memory and the one thread that asks for it.  A library that has started threads goes on handing work
to them in the copy, where they are not, and waits for ever.  JAX and TensorFlow keep threads for the whole process, and
nothing starts them anew; but what does not use them goes on in a copy, such as a program of NumPy.  So a copy is told
by its state: one thread, and the kernel has it wait for another.  PyTorch's threads belong to OpenMP and are needed for
more than one thread only: in a copy it computes on one, as in the workers of its DataLoader.  The driver of CUDA
refuses a copy of a process that it was asked for in, and what uses it there raises.

Libraries are asked only where they have been imported, and nothing is started by asking.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

from refdist import errors

_CUDA = "libcuda.so.1"


def threaded() -> str | None:
    """The library whose threads a copy of this process would lack, as it has computed here; None for none."""
    return next((library for library, has_computed in _LIBRARIES if has_computed()), None)


def waits_alone(number: int) -> bool:
    """Whether a process has one thread, and that waits for another; False where the system does not say."""
    try:
        with open(f"/proc/{number}/wchan") as place:
            return place.read().startswith("futex_") and len(os.listdir(f"/proc/{number}/task")) == 1
    except OSError:
        return False


def in_a_copy() -> None:
    """To be called in a copy, before it computes: from then on PyTorch waits for no thread of its own."""
    torch = sys.modules.get("torch")
    set_threads: Callable[[int], None] | None = getattr(torch, "set_num_threads", None)
    if set_threads is not None:
        set_threads(1)


def waited(attempted: str, library: str) -> errors.RefdistError:
    """The error of a copy that waits for the threads of a library (RD20)."""
    return errors.error("RD20", attempted, f"each run of a function is a copy of this process; {library} has computed "
                        "in this process before, and the copy waits for its threads, which a copy has not", _INSTEAD)


def without_cuda(attempted: str, text: str) -> errors.RefdistError | None:
    """The error of a copy that has raised this (RD20); None where that is not because of CUDA."""
    if "cuda" not in text.lower() or not _cuda_was_asked_for():
        return None
    return errors.error("RD20", attempted, "each run of a function is a copy of this process; CUDA was asked for in "
                        f"this process before, and a copy cannot use it: {text}", _INSTEAD)


def _jax() -> bool:
    initialized: Callable[[], bool] = getattr(
        sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", lambda: False)
    return initialized()


def _tensorflow() -> bool:
    eager: Callable[[], object] = getattr(
        sys.modules.get("tensorflow.python.eager.context"), "context_safe", lambda: None)
    return bool(getattr(eager(), "_initialized", False))


def _cuda_was_asked_for() -> bool:
    try:
        driver = ctypes.CDLL(_CUDA, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return not driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))  # an error where it was not initialized


_LIBRARIES: tuple[tuple[str, Callable[[], bool]], ...] = (("JAX", _jax), ("TensorFlow", _tensorflow))
_INSTEAD = ("Write the program to a file and run `python -m refdist compare FILE`, which starts a new process for each "
            "run; or call compare first, in a process that has not computed yet: in a notebook restart the kernel.")
