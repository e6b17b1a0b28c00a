"""What a program of TensorFlow sees of tensors, variables and specs: their dtypes, their shapes and their texts.

They are PyTorch's and refdist's, and go on showing what those have to all other code: `x.dtype` is `torch.float32` for
Keras, and `tf.float32` for the program.  As with operators, the program are its own modules, unless they import
PyTorch; of a text the nearest of them decides, because it is often another package that asks for it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from refdist import errors
from refdist.array.convert import to_numpy
from refdist.core import context_stack
from refdist.data.dataset import Dataset
from refdist.data.spec import TensorSpec
from refdist.missing import Missing
from refdist.strategies.replica_context import ReplicaContext
from refdist.tf.dtypes import as_dtype
from refdist.tf.own import imports, is_own
from refdist.tf.shapes import TensorShape
from refdist.variables.distributed import DistributedVariable
from refdist.variables.sharded import ShardedVariable
from refdist.variables.values import DistributedValues
from refdist.variables.variable import Reference, ResourceVariable, Variable

_STRIDED = "torch.strided"


def connect(keras: Any) -> None:
    """From now on the program sees TensorFlow's dtypes, shapes and texts."""
    import torch

    for kind in (torch.Tensor, Variable, ShardedVariable, TensorSpec):
        for name, seen in (("dtype", _dtype), ("shape", TensorShape)):
            _show(kind, name, seen)
    _show(keras.Variable, "shape", TensorShape)
    _show(ReplicaContext, "replica_id_in_sync_group", lambda number: torch.tensor(number, dtype=torch.int32))
    _show(torch.Tensor, "device", _device)
    torch.Tensor.numpy = _item(torch.Tensor.numpy)
    for name in ("assign", "assign_add", "assign_sub"):
        setattr(torch.Tensor, name, missing := Missing())
        missing.__set_name__(torch.Tensor, name)
    torch.Tensor.set_shape = _set_shape
    torch.Tensor.ref = _ref
    texts: dict[type, tuple[Callable[[Any], str], Callable[[Any], str]]] = {
        torch.Tensor: (_tensor, _representation), ResourceVariable: (_variable, _variable),
        DistributedValues: (functools.partial(_of_replicas, str), functools.partial(_of_replicas, repr)),
        DistributedVariable: (functools.partial(_of_replicas, str), functools.partial(_of_replicas, repr)),
        TensorSpec: (_spec, _spec), Dataset: (_dataset, _dataset)}
    for kind, (text, representation) in texts.items():
        _say(kind, "__str__", text)
        _say(kind, "__repr__", representation)
    _say(torch.Tensor, "__format__", lambda tensor, spec: format(_numbers(tensor), spec))


def _show(kind: Any, name: str, seen: Callable[[Any], Any]) -> None:
    own = getattr(kind, name)

    def get(self: Any) -> Any:
        value = own.__get__(self)
        program = sys._getframe(1).f_globals
        return seen(value) if is_own(program) and not imports(program, "torch") else value
    setattr(kind, name, property(get, getattr(own, "__set__", None), doc=own.__doc__))


def _set_shape(tensor: Any, shape: Any) -> None:
    # Every length is known here: what the program states is checked.
    if not TensorShape(shape).is_compatible_with(tensor.shape):
        raise errors.error("RD04", "Tensor.set_shape", f"the tensor has shape {_dimensions(tensor.shape)}, and the "
                           f"program says {tuple(shape)}", "State the shape that it has, with None for what may vary.")


def _ref(tensor: Any) -> Reference:
    return Reference(tensor)


def _dtype(dtype: Any) -> Any:
    # Of what TensorFlow lacks, such as some of eight bits, PyTorch's own.
    with contextlib.suppress(errors.InvalidTypeError):
        return as_dtype(dtype)
    return dtype


def _device(device: Any) -> str:
    # Inside a replica tensors lie on its device.
    where = context_stack.frame().device or f"{device.type.upper()}:{device.index or 0}"
    return where if where.startswith("/") else f"/job:localhost/replica:0/task:0/device:{where}"


def _has_tensorflow_s_text(value: Any) -> bool:
    # Sparse tensors, and those of the device "meta", have no numbers of an array.
    is_array = str(getattr(value, "layout", _STRIDED)) == _STRIDED and not getattr(value, "is_meta", False)
    return is_array and not (hasattr(value, "layout") and _dtype(value.dtype) is value.dtype)


def _item(own: Callable[..., Any]) -> Callable[..., Any]:
    # TensorFlow's numpy() of a tensor without dimensions is a scalar.
    @functools.wraps(own)
    def numpy(self: Any, **options: Any) -> Any:
        array = own(self, **options)
        program = sys._getframe(1).f_globals
        return array[()] if not array.ndim and is_own(program) and not imports(program, "torch") else array
    return numpy


def _say(kind: Any, name: str, text: Callable[..., str]) -> None:
    own = getattr(kind, name)

    @functools.wraps(own)
    def say(self: Any, *spec: Any, **options: Any) -> str:
        is_tensorflow_s = _tensorflow_is_read() and _has_tensorflow_s_text(self)
        shown: str = text(self, *spec) if is_tensorflow_s else own(self, *spec, **options)
        return shown
    setattr(kind, name, say)


def _tensorflow_is_read() -> bool:
    frame: Any = sys._getframe(2)
    while frame is not None and not is_own(frame.f_globals):
        frame = frame.f_back
    return frame is None or not imports(frame.f_globals, "torch")


def _numbers(tensor: Any) -> Any:
    return to_numpy(tensor.detach())[()]


def _text(numbers: Any, representation: bool) -> str:
    # TensorFlow's: scalars as Python's numbers, and rows below the line.
    if representation and isinstance(numbers, np.generic):
        numbers = numbers.item()
    text = repr(numbers) if representation else str(numbers)
    return f"\n{text}" if "\n" in text else text


def _dimensions(shape: Any) -> str:
    return str(tuple(shape))


def _tensor(tensor: Any) -> str:
    return (f"tf.Tensor({_text(_numbers(tensor), False)}, shape={_dimensions(tensor.shape)}, "
            f"dtype={as_dtype(tensor.dtype).name})")


def _representation(tensor: Any) -> str:
    return (f"<tf.Tensor: shape={_dimensions(tensor.shape)}, dtype={as_dtype(tensor.dtype).name}, "
            f"numpy={_text(_numbers(tensor), True)}>")


def _variable(variable: Any) -> str:
    return (f"<tf.Variable {variable.name!r} shape={_dimensions(variable.shape)} "
            f"dtype={as_dtype(variable.dtype).name}, numpy={_text(to_numpy(variable._array)[()], True)}>")


def _of_replicas(text: Callable[[Any], str], values: Any) -> str:
    if all(isinstance(value, TensorSpec) for value in values.values):
        return f"PerReplicaSpec({', '.join(map(_spec, values.values))})"
    lines = [f"  {replica}: {text(value)}" for replica, value in enumerate(values.values)]
    return "\n".join([f"{type(values).__name__}:{{", ",\n".join(lines), "}"])


def _spec(spec: Any) -> str:
    shape = "<unknown>" if spec.shape is None else _dimensions(spec.shape)
    return f"TensorSpec(shape={shape}, dtype={as_dtype(spec.dtype)!r}, name={spec.name!r})"


def _dataset(dataset: Any) -> str:
    # Never calls a function of the program.
    spec = dataset._pipeline.facts.spec
    return "<Dataset of what a function of the program makes>" if callable(spec) else f"<Dataset element_spec={spec}>"
