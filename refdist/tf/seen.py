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
from refdist.array.convert import cast, has_dtype, to_array, to_numpy
from refdist.core import context_stack
from refdist.core.integers import as_integer
from refdist.data.dataset import Dataset
from refdist.data.spec import TensorSpec
from refdist.missing import INSTEAD, with_advice
from refdist.strategies.replica_context import ReplicaContext
from refdist.tf.dtypes import as_dtype
from refdist.tf.own import imports, is_own
from refdist.tf.shapes import TensorShape, set_shape
from refdist.tf.texts import OF_TENSORS
from refdist.variables.distributed import DistributedVariable
from refdist.variables.sharded import ShardedVariable
from refdist.variables.values import DistributedValues
from refdist.variables.variable import Reference, ResourceVariable, Variable

_STRIDED = "torch.strided"
_MISSING = {name: advice for names, advice in OF_TENSORS.items() for name in names.split()} | {
    name: INSTEAD[name] for name in ("assign", "assign_add", "assign_sub")}


def connect(keras: Any) -> None:
    """From now on the program sees TensorFlow's dtypes, shapes and texts."""
    import torch
    from torch.utils.weak import WeakIdKeyDictionary

    for kind in (torch.Tensor, Variable, ShardedVariable, TensorSpec):
        for name, seen in (("dtype", _dtype), ("shape", TensorShape)):
            _show(kind, name, seen)
    _show(keras.Variable, "shape", TensorShape)
    _show(ReplicaContext, "replica_id_in_sync_group", lambda number: torch.tensor(number, dtype=torch.int32))
    _show(torch.Tensor, "device", _device)
    torch.Tensor.numpy = _item(torch.Tensor.numpy)
    parts = WeakIdKeyDictionary()
    torch.Tensor.__getattr__ = functools.partialmethod(_other, parts)
    torch.Tensor.set_shape = set_shape
    torch.Tensor.ref = _ref
    Variable.__getitem__ = _noting(Variable.__getitem__, parts)  # type: ignore[method-assign]
    texts: dict[type, tuple[Callable[[Any], str], Callable[[Any], str]]] = {
        torch.Tensor: (_tensor, _representation), ResourceVariable: (_variable, _variable),
        DistributedValues: (functools.partial(_of_replicas, str), functools.partial(_of_replicas, repr)),
        DistributedVariable: (functools.partial(_of_replicas, str), functools.partial(_of_replicas, repr)),
        TensorSpec: (_spec, _spec), Dataset: (_dataset, _dataset)}
    for kind, (text, representation) in texts.items():
        _say(kind, "__str__", text)
        _say(kind, "__repr__", representation)
    _say(torch.Tensor, "__format__", lambda tensor, spec: format(_numbers(tensor), spec))


def _other(tensor: Any, parts: Any, name: str) -> Any:
    # Not attributes of the class, whose attributes PyTorch goes through.
    if name == "assign" and tensor in parts:  # which parts of variables alone have: `v[0].assign(1.0)`
        return functools.partial(_assign_part, *parts[tensor])
    if name in _MISSING:
        raise with_advice(type(tensor).__name__, name, _MISSING[name])
    raise AttributeError(f"{type(tensor).__name__!r} object has no attribute {name!r}", name=name, obj=tensor)


def _noting(own: Callable[..., Any], parts: Any) -> Callable[..., Any]:
    # Notes of which variable a tensor is a part that indices and slices name.
    @functools.wraps(own)
    def getitem(self: Any, key: Any) -> Any:
        part, places = own(self, key), _places(key)
        if places is not None and hasattr(part, "requires_grad"):
            parts[part] = self, places
        return part
    return getitem


def _places(key: Any) -> tuple[Any, ...] | None:
    # The key with integers of Python; None where it chooses by masks or lists.
    places: list[Any] = []
    for place in key if isinstance(key, tuple) else (key,):
        if isinstance(place, (slice, type(None), type(...))):
            places.append(place)
        elif (number := as_integer(place)) is not None:
            places.append(number)
        else:
            return None
    return tuple(places)


def _assign_part(variable: Any, places: tuple[Any, ...], value: Any, name: str | None = None) -> Any:
    replica: Any = context_stack.frame().replica
    attempted = f"assign to a part of variable {variable.name!r}"
    if replica is not None and replica.num_replicas_in_sync > 1:
        raise errors.error("RD20", attempted, f"it is done {context_stack.describe()}, and the replicas would assign "
                           "parts of their own", "Assign to the part outside `strategy.run`, or write "
                           "`variable.scatter_nd_update(indices, updates)`.")
    array = np.array(to_numpy(variable._read()))
    new = to_numpy(cast(to_array(value, None if has_dtype(value) else array.dtype, attempted=attempted), array.dtype,
                        attempted))
    try:
        array[places] = new
    except ValueError as error:
        raise errors.error("RD04", attempted, f"the part has shape {array[places].shape}, and the value {new.shape}",
                           "Assign a value of that shape, or a number.", kind=errors.InvalidArgumentError) from error
    variable.assign(array)
    return variable


def _show(kind: Any, name: str, seen: Callable[[Any], Any]) -> None:
    own = getattr(kind, name)

    def get(self: Any) -> Any:
        value = own.__get__(self)
        program = sys._getframe(1).f_globals
        return seen(value) if is_own(program) and not imports(program, "torch") else value
    setattr(kind, name, property(get, getattr(own, "__set__", None), doc=own.__doc__))


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
