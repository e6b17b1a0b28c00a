"""What stands beside a tensor: lists, tuples, NumPy's arrays and scalars, in operators and functions.

As on TensorFlow it is taken in the dtype of the tensor.  NumPy's arrays are, whatever comes out; lists, tuples and
numbers of Python only where they keep their kind, so `tensor + [0.5]` of integers is an error.  A list may have tensors
in it.

PyTorch has no such operators: it leaves arrays to NumPy, which asks the tensor by `__array_ufunc__`, and lists to
Python, for which `tensor == [1, 2]` is False and `[1, 2] * tensor` a longer list.  So each operator of PyTorch looks at
the type of the other operand first.

Some operators mean something else in PyTorch.  `x += 1` writes into the tensor, which all its other names see, too;
TensorFlow's tensors do not change, `x` is another one afterwards.  And the quotient of integers is a float32, on
TensorFlow a float64.  PyTorch also takes two tensors of different dtypes, and integers beside 0.5, which TensorFlow
refuses.  Packages count on PyTorch's meaning, so TensorFlow's is that of the program's own modules, unless they import
PyTorch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.array.convert import HoldsArray, short, to_array
from refdist.array.operators import OPERATORS
from refdist.tf import misfits
from refdist.tf.own import imports, is_own
from refdist.tf.shapes import TensorShape

_BINARY = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
           "matmul": "@", "and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SIGNS = {**_BINARY, **_COMPARISONS}
# What PyTorch's operators do not take, or in another dtype.
_CONVERTED = frozenset({list, tuple, np.ndarray, *np.sctypeDict.values()})
# Integers whose quotient is a float64.
_WHOLE = ("torch.int32", "torch.int64", "torch.uint32", "torch.uint64")
# Functions of NumPy that only ask for attributes, and compute nothing.
_ASKING = (np.shape, np.ndim, np.size)
# Kinds of numbers, the narrowest first.
_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def connect() -> None:
    """From now on PyTorch's operators take what TensorFlow's take."""
    import keras
    import torch

    for name in (*_BINARY, *_COMPARISONS, *(f"r{name}" for name in _BINARY)):
        # A bool is a number, which PyTorch does not subtract.
        converted = _CONVERTED | {bool} if name in ("sub", "rsub") else _CONVERTED
        setattr(torch.Tensor, f"__{name}__", _taking(getattr(torch.Tensor, f"__{name}__"), converted, name))
    whole = [getattr(torch, dtype.removeprefix("torch.")) for dtype in _WHOLE]
    for name in ("truediv", "rtruediv"):
        setattr(torch.Tensor, f"__{name}__", _dividing(getattr(torch.Tensor, f"__{name}__"), whole))
    for name in _BINARY:
        in_place = getattr(torch.Tensor, f"__i{name}__", None)
        if in_place is not None:
            setattr(torch.Tensor, f"__i{name}__", _renewing(in_place, getattr(torch.Tensor, f"__{name}__")))
    torch.Tensor.__array_ufunc__ = keras.Variable.__array_ufunc__ = _array_ufunc
    torch.Tensor.__array_function__ = _array_function
    torch.Tensor.get_shape = _get_shape


def beside(tensor: Any, operand: Any) -> Any:
    """What is no tensor as one, in the dtype and on the device of the tensor beside it.

    Raises:
        RD05: a list, a tuple or a number that would not keep its kind, or does not fit.
        RD25, RD34: a list that is no array.
    """
    import torch

    if isinstance(operand, (np.ndarray, np.generic)):
        array = np.asarray(operand)
        return torch.as_tensor(array if array.flags.writeable else array.copy(), dtype=tensor.dtype,
                               device=tensor.device)
    if _has_tensor(operand):
        return torch.stack([item.to(tensor) if isinstance(item, torch.Tensor) else beside(tensor, item)
                            for item in map(_read, operand)])
    return torch.as_tensor(numbers(operand, _name(tensor.dtype)), dtype=tensor.dtype,
                           device=tensor.device)


def numbers(operand: Any, dtype: str) -> Any:
    """A list, a tuple or a number of Python as an array, if it becomes that dtype.

    Raises:
        RD05: it would not keep its kind, or does not fit.  RD25, RD34: it is no array.
    """
    attempted = f"an operation on a tensor and {errors.type_of(operand)}"
    to_array(operand, attempted=attempted)
    array = np.asarray(operand)
    kind = "b" if dtype == "bool" else "c" if dtype.startswith("complex") else "i" if "int" in dtype else "f"
    problem = ""
    if array.size and _KINDS.get(array.dtype.kind, 4) > _KINDS[kind]:
        problem = f"the tensor has dtype {dtype}, beside it is {short(operand)}"
    elif kind == "i" and array.size:
        limits = np.iinfo(dtype)
        if int(array.max()) > limits.max or int(array.min()) < limits.min:
            problem = f"{short(operand)} does not fit into the tensor's dtype, {dtype}"
    if problem:
        raise errors.error("RD05", attempted, problem, "Cast the tensor: `tf.cast(x, tf.float32)`.",
                           kind=errors.MisfitError)
    return array


def differ(first: object, second: object) -> errors.RefdistError:
    """The error for two tensors of different dtypes."""
    return errors.error("RD05", "an operation on two tensors", f"one has dtype {first}, the other {second}",
                        "Cast one of them: `tf.cast(x, y.dtype)`.", kind=errors.MisfitError)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _read(item: Any) -> Any:
    import keras

    return item._read() if isinstance(item, HoldsArray) else item.value if isinstance(item, keras.Variable) else item


def _has_tensor(operand: Any) -> bool:
    import keras
    import torch

    if not isinstance(operand, (list, tuple)):
        return isinstance(operand, (torch.Tensor, HoldsArray, keras.Variable))
    return any(map(_has_tensor, operand))


def _taking(own: Callable[..., Any], converted: frozenset[type], name: str) -> Callable[..., Any]:
    import torch

    sign, tensors = _SIGNS.get(name) or _SIGNS[name.removeprefix("r")], torch.Tensor
    dtype_of = torch._C.TensorBase.dtype.__get__
    whole = {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype) and "int" in str(dtype)}

    @functools.wraps(own)
    def operate(self: Any, other: Any) -> Any:
        operand = other
        if type(other) in converted:
            operand = beside(self, other)
        elif isinstance(other, tensors):
            if dtype_of(other) is not dtype_of(self) and _means_tensorflow():
                raise differ(_name(dtype_of(self)), _name(dtype_of(other)))
        elif type(other) is float and dtype_of(self) in whole and _means_tensorflow():
            numbers(other, _name(dtype_of(self)))
        try:
            return own(self, operand)
        except RuntimeError as failure:
            if _means_tensorflow():
                operands = (self, other) if name in _SIGNS else (other, self)
                misfits.refuse_call(f" {sign} ".join(map(misfits.shown, operands)), failure)
            raise
    return operate


def _dividing(own: Callable[..., Any], whole: Sequence[Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def operate(self: Any, other: Any) -> Any:
        if self.dtype in whole and _means_tensorflow():
            if type(other) is float:
                numbers(other, _name(self.dtype))
            other = beside(self, other) if type(other) in _CONVERTED else _read(other)
            if getattr(other, "dtype", self.dtype) is self.dtype:
                self, other = self.double(), other.double() if hasattr(other, "dtype") else other
        return own(self, other)
    return operate


def _renewing(in_place: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(in_place)
    def operate(self: Any, other: Any) -> Any:
        return (plain if _means_tensorflow() else in_place)(self, other)
    return operate


def _means_tensorflow() -> bool:
    # Whether the code with the operator is the program's own, and knows nothing of PyTorch.  Between it and PyTorch are
    # the operators of NumPy's arrays and of variables.
    frame: Any = sys._getframe(2)
    while frame.f_globals.get("__name__", "").startswith(("numpy", "refdist.array.", __name__)):
        frame = frame.f_back
    return is_own(frame.f_globals) and not imports(frame.f_globals, "torch")


def _get_shape(tensor: Any) -> TensorShape:
    return TensorShape(tensor.shape)


def _array_ufunc(_: Any, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    # NumPy's operators with a tensor are the tensor's; its other functions compute with the numbers.
    import keras
    import torch

    call = OPERATORS.get(ufunc) if method == "__call__" and not options else None
    if call is None:
        arrays = [np.asarray(item) if isinstance(item, (torch.Tensor, keras.Variable)) else item for item in inputs]
        return getattr(ufunc, method)(*arrays, **options)
    operands = [item.value if isinstance(item, keras.Variable) else item for item in inputs]
    tensor = next(item for item in operands if isinstance(item, torch.Tensor))
    return call(*[beside(tensor, item) if isinstance(item, (np.ndarray, np.generic)) else item for item in operands])


def _array_function(_: Any, function: Any, types: object, args: Any, kwargs: Any) -> Any:
    # NumPy's functions compute with the numbers, where they would call methods of the tensor that PyTorch calls alike.
    import torch

    def read(leaf: Any) -> Any:
        return leaf.numpy(force=True) if isinstance(leaf, torch.Tensor) else leaf

    if function in _ASKING:
        return function._implementation(*args, **kwargs)
    return function(*nest.map_structure(read, args), **nest.map_structure(read, kwargs))
