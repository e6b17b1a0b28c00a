"""Where TensorFlow's names are found: in refdist, in the table of operations, or nowhere, with what to write instead.

Nothing is imported for a name before a program asks for it: Keras and PyTorch take seconds.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from refdist import errors, missing
from refdist.tf import operations, tensors

# What Keras has by the same name.
_KERAS = ("constraints", "initializers", "losses", "metrics", "optimizers", "regularizers")
# What makes the values of variables, by the names that Keras has for it.
_INITIALIZERS = {"zeros_initializer": "Zeros", "ones_initializer": "Ones", "constant_initializer": "Constant",
                 "random_normal_initializer": "RandomNormal", "random_uniform_initializer": "RandomUniform"}
# Whose operations are given what comes from files, so that errors about it name the operation.
_CHECKED = ("image",)
_OF_TAPES = ("GradientTape", "UnconnectedGradients", "custom_gradient")
_OF_FLOW = ("TensorArray", "control_dependencies", "init_scope", "name_scope")
# The names of `tf` that are found when they are asked for.
LATER = {"keras", "Module", "Tensor", *_KERAS, *_INITIALIZERS, *_OF_FLOW, *_OF_TAPES,
         *(path for path in operations.OPERATIONS if "." not in path)}


class Namespace(ModuleType):
    """A module of TensorFlow's: what refdist has for it, names of its own, and operations of the table.

    Args:
        path: its place below `tf`.
        base: the module of refdist that it stands for.
        own: names of its own.
    """

    def __init__(self, path: str, base: ModuleType | None = None, own: Mapping[str, object] | None = None) -> None:
        super().__init__(f"refdist.tf.{path}", base.__doc__ if base else None)
        self._path = path
        self._base = base
        vars(self).update(own or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        is_refdists = self._base is not None and name in vars(self._base)
        try:
            operation = operations.find(f"{self._path}.{name}")
        except errors.MissingPackageError:  # without Keras there are refdist's variables, and no tensors
            if not is_refdists:
                raise
            operation = None
        if operation is None:
            return vars(self._base)[name] if is_refdists else _refuse(self, name, self._path)
        if self._path in _CHECKED:
            operation = checked(operation, f"tf.{self._path}.{name}")
        setattr(self, name, operation)
        return operation

    def __dir__(self) -> list[str]:
        below = {path.rpartition(".")[2] for path in operations.OPERATIONS if path.rpartition(".")[0] == self._path}
        return sorted({*(name for name in vars(self) if name[0] != "_"), *(dir(self._base) if self._base else ()),
                       *below})


def checked(value: Any, path: str) -> Any:
    """A function whose errors about its arguments name it; a class whose constructor's do.

    What computes raises whatever Python, NumPy or a library of tensors says of an argument that it cannot use.

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
        except errors.RefdistError:
            raise
        except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError, RuntimeError, struct.error,
                zlib.error) as error:
            code = "RD25" if isinstance(error, (TypeError, AttributeError)) else "RD34"
            raise errors.error(code, path, f"{type(error).__name__}: {error}", f"Pass what `help({path})` names.",
                               kind=errors.InvalidTypeError if code == "RD25" else errors.InvalidArgumentError
                               ) from error
    return call


def _refuse(module: ModuleType, name: str, path: str) -> object:
    # A name of which nothing is known may be TensorFlow's: what there is, is said.
    place = f"tf.{path}".rstrip(".")
    try:
        return missing.refuse(module, name)
    except errors.MissingNameError:
        raise
    except AttributeError as error:
        if name.startswith("_"):
            raise
        raise errors.error("RD20", f"{place}.{name}", f"refdist has no {name}",
                           f"Compute it of what `dir({place})` lists, or, without gradients, in `tf.numpy_function`.",
                           kind=errors.MissingNameError) from error


def later(face: ModuleType, name: str) -> Any:
    """A name of `tf` that is found when it is asked for: Keras or a part of it, the tape, an operation."""
    if name in _OF_TAPES:
        from refdist.tf import tape
        value = getattr(tape, name)
    elif name in _OF_FLOW:
        from refdist.tf import flow
        value = getattr(flow, name)
    elif name == "Module":
        from refdist.tf.module import Module
        value = Module
    elif name in _INITIALIZERS:
        value = getattr(tensors.keras().initializers, _INITIALIZERS[name])
    elif name == "keras" or name in _KERAS:
        library = tensors.keras()
        value = library if name == "keras" else getattr(library, name)
    else:
        value = tensors.kind() if name == "Tensor" else operations.find(name)
    if value is None:
        return _refuse(face, name, "")
    setattr(face, name, value)
    return value
