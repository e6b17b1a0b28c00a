"""What a library says of arguments that it cannot use, as an error that names the operation and shows them.

PyTorch raises RuntimeError, JAX TypeError, Keras ValueError for one mistake, such as shapes that do not fit together;
TensorFlow InvalidArgumentError, ValueError or TypeError.  So the error here is of all of TensorFlow's classes, and has
the library's as its cause.
"""

from __future__ import annotations

import functools
import inspect
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from refdist import errors
from refdist.array.convert import short
from refdist.tf.own import is_own

# What libraries raise about arguments.
FAILURES = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError, RuntimeError, struct.error, zlib.error)
# The classes of RuntimeError that are about arguments; others are about memory, a device, or a program without end.
_ABOUT_ARGUMENTS = ("RuntimeError", "NotImplementedError", "LinAlgError", "_LinAlgError")
# In what PyTorch says where the processor's memory is full, by a plain RuntimeError.
_MEMORY = "DefaultCPUAllocator"
# How many tensors of a list are shown, and how many characters of what a library says.
_SHOWN, _LONGEST = 4, 400


def refuse(path: str, failure: Exception, arguments: Mapping[str, Any]) -> None:
    """Raises the error for arguments that a library could not use; returns where the failure says something else.

    That is where the program's own code failed, a generator for example, or the memory is full.

    Args:
        path: the operation, such as "tf.matmul".
        failure: what the library raised.
        arguments: those of the call, by the names of parameters.

    Raises:
        RD34: the failure is about arguments.
    """
    call = ", ".join(f"{name}={shown(value)}" for name, value in arguments.items())
    refuse_call(f"{path}({call})", failure)


def refuse_call(call: str, failure: Exception) -> None:
    """Raises the error as `refuse` does.

    Args:
        call: the operation with its arguments.
        failure: what the library raised.

    Raises:
        RD34: the failure is about arguments.
    """
    if isinstance(failure, errors.RefdistError) or _is_about_more(failure) or _is_the_program_s(failure):
        return
    fix = "Pass arguments whose shapes, dtypes and values fit together."
    if type(failure).__module__.partition(".")[0] == "jax":
        fix = "JAX traces the function, and has no numbers yet: make the call outside `jax.jit`."
    raise errors.error("RD34", call, _said(failure), fix, kind=errors.MisfitError) from failure


def checked(value: Any, path: str) -> Any:
    """A function whose errors about its arguments name it; a class whose constructor's do.

    Args:
        value: a function that calls none of the program's, or a class.
        path: its place, such as "tf.strings.lower".
    """
    if isinstance(value, type):
        value.__init__ = checked(value.__init__, path)  # type: ignore[misc]
        return value

    @functools.wraps(value)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return value(*args, **kwargs)
        except FAILURES as failure:
            refuse(path, failure, _named(value, args, kwargs))
            raise
    return call


def shown(value: Any) -> str:
    """An argument in messages: a tensor by its dtype and shape, as `float32[2, 3]`, anything else as it is written."""
    if isinstance(value, (list, tuple)) and any(hasattr(item, "dtype") for item in value):
        items = [shown(item) for item in value[:_SHOWN]] + ["..."] * (len(value) > _SHOWN)
        return f"[{', '.join(items)}]"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or not isinstance(shape, (tuple, list)):
        return short(value)
    return f"{getattr(dtype, 'name', str(dtype).removeprefix('torch.'))}{list(shape)}"


def _named(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        named = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    except TypeError:  # which the call said
        return {}
    return {name: value for name, value in named.items() if name != "self"}


def _is_about_more(failure: Exception) -> bool:
    return isinstance(failure, RuntimeError) and (
        type(failure).__name__ not in _ABOUT_ARGUMENTS or _MEMORY in str(failure))


def _is_the_program_s(failure: Exception) -> bool:
    # Whether code of the program failed that the operation called: a generator, `__array__`.
    trace = failure.__traceback__
    while trace is not None and not is_own(trace.tb_frame.f_globals):
        trace = trace.tb_next
    return trace is not None


def _said(failure: Exception) -> str:
    # What the library says, in a line; Keras puts the text of another library between codes for bold letters.
    text = str(failure) or type(failure).__name__
    bold = re.search("\x1b\\[1m(.*?)\x1b\\[0m", text, re.DOTALL)
    paragraph = (bold[1] if bold else text).strip().partition("\n\n")[0]
    said = " ".join(paragraph.split()).rstrip(".")
    return said if len(said) <= _LONGEST else said[:_LONGEST - 3] + "..."
