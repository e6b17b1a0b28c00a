"""What a forked copy of this process lacks: the threads of libraries, and CUDA.

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
    """The library whose threads a forked copy would lack, because it has computed here; None without one."""
    return next((library for library, has_computed in _LIBRARIES if has_computed()), None)


def waits_alone(number: int) -> bool:
    """Whether a process has a single thread, which waits; False if the system does not say."""
    try:
        with open(f"/proc/{number}/wchan") as place:
            return place.read().startswith("futex_") and len(os.listdir(f"/proc/{number}/task")) == 1
    except OSError:
        return False


def in_a_copy() -> None:
    """Called in a forked copy before it computes: makes PyTorch compute in one thread."""
    torch = sys.modules.get("torch")
    set_threads: Callable[[int], None] | None = getattr(torch, "set_num_threads", None)
    if set_threads is not None:
        set_threads(1)


def waited(attempted: str, library: str) -> errors.RefdistError:
    """The error if a forked copy waits for threads of a library that it lacks (RD20)."""
    return errors.error("RD20", attempted, f"each run of a function is a fork of this process; {library} has computed "
                        "in this process before, and the fork waits for threads of it, which a fork does not have",
                        _INSTEAD)


def without_cuda(attempted: str, text: str) -> errors.RefdistError | None:
    """The error if a forked copy failed because it used CUDA (RD20); None if `text` has another reason."""
    if "cuda" not in text.lower() or not _cuda_was_asked_for():
        return None
    return errors.error("RD20", attempted, "each run of a function is a fork of this process; CUDA was initialized in "
                        f"this process before, and a fork cannot use it: {text}", _INSTEAD)


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
    return not driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))  # fails unless CUDA is initialized


_LIBRARIES: tuple[tuple[str, Callable[[], bool]], ...] = (("JAX", _jax), ("TensorFlow", _tensorflow))
_INSTEAD = ("Write the program to a file and run `python -m refdist compare FILE`, which starts a new process for each "
            "run; or call compare first, in a process that has not computed yet: in a notebook restart the kernel.")
