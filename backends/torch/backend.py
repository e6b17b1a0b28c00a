"""PyTorch's tensors on the host.

A tensor cannot be made read-only, and nothing can be put around one that sees each write: a write through a view,
`.data`, DLPack or an optimizer's `_foreach` operation reaches the memory all the same.  So no two receivers share one:
`lend` copies, wherever NumPy would hand out a read-only view.  A tensor that is already on its way through autograd is
handed on as it is, because a copy would be another node of the graph.

Tensors on a GPU are copied to the host and back, so a program with them runs; nothing has been measured there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from refdist import errors
from refdist.array.types import Array
from refdist.backends.simulated.hosted import Hosted
from refdist.backends.torch.items import item

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

# dtypes that NumPy has from ml_dtypes and PyTorch by the same name: the bits travel as integers of the same size.
_EXTENSIONS = {np.dtype(getattr(ml_dtypes, name)): getattr(torch, name) for name in (
    "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz") if hasattr(ml_dtypes, name)}
_CARRIERS = {1: (np.uint8, torch.uint8), 2: (np.int16, torch.int16)}
# C's long long is another dtype than NumPy's int64, unknown to PyTorch.
_LONG_LONG = "qQ"
_NAMES = {extension: dtype for dtype, extension in _EXTENSIONS.items()}
_WITH_NUMPY = {*_NAMES, *(getattr(torch, name) for name in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128") if hasattr(torch, name))}
_INSTEAD = {"torch.complex32": "x.to(torch.complex64)", "torch.float8_e8m0fnu": "x.to(torch.float32)"}


class Torch(Hosted):
    """Tensors, with the bits of NumPy's sums.

    >>> import torch
    >>> Torch().sum([torch.tensor([1., 2.]), torch.tensor([3., 4.])])
    tensor([4., 6.])
    """

    name = "torch"
    array_types = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)

    def xp(self, device: str = "") -> Any:
        return torch

    def view(self, array: Any) -> NDArray[np.generic]:
        dtype = _NAMES.get(array.dtype)
        view: NDArray[np.generic]
        if dtype is None:
            view = array.numpy(force=True)
        else:
            view = array.view(_CARRIERS[dtype.itemsize][1]).numpy(force=True).view(dtype)
        view.flags.writeable = False
        return view

    def made(self, array: NDArray[np.generic], like: Any = None) -> Any:
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.writeable:
            if array.flags.owndata:
                array.flags.writeable = True  # it is nobody else's
            else:
                array = array.copy()
        if any(step < 0 for step in array.strides):
            array = array.copy()
        if array.dtype in _EXTENSIONS:
            carrier = _CARRIERS[array.dtype.itemsize][0]
            tensor = torch.from_numpy(array.view(carrier)).view(_EXTENSIONS[array.dtype])
        elif array.dtype.kind in "biufc":
            tensor = torch.from_numpy(array if array.dtype.char not in _LONG_LONG else array.view(array.dtype.name))
        else:
            return array
        return tensor if like is None or like.device.type == "cpu" else tensor.to(like.device)

    def is_on_host(self, array: Any) -> bool:
        return bool(array.device.type == "cpu")

    def freeze(self, array: Array) -> Any:
        return array

    def lend(self, array: Array) -> Any:
        tensor: Any = array
        return tensor if tensor.requires_grad else tensor.clone()

    def item(self, array: Array, key: Any) -> Any:
        return item(array, key)

    def is_immutable(self, array: Array) -> bool:
        return False

    def contribution(self, array: Array, attempted: str) -> Any:
        tensor: Any = array
        if tensor.requires_grad and not torch.is_grad_enabled():
            return tensor.detach()  # nothing is recorded here, so no gradient is lost
        if tensor.requires_grad:
            raise errors.error(
                "RD34", attempted, f"the value is a tensor of shape {tuple(tensor.shape)} of which PyTorch records "
                "gradients, and no gradient flows through a collective", "Pass `x.detach()`; reduce the gradients "
                "after `backward()`.")
        return array

    def refusal(self, value: object) -> str:
        tensor: Any = value
        if not isinstance(value, torch.Tensor):
            return ""
        if type(value) not in self.array_types:
            return "What it has beside its numbers would be lost: pass `x.as_subclass(torch.Tensor)`."
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return "Call it outside `torch.func` and `torch.vmap`, with the tensors that they return."
        if tensor.is_nested:
            return "Pass `x.to_padded_tensor(0.0)`."
        if tensor.layout is not torch.strided:
            return "Pass `x.to_dense()`, or refdist.IndexedSlices."
        if tensor.is_quantized:
            return "Pass `x.dequantize()`."
        if tensor.device.type == "meta":
            return "Pass a tensor that has numbers."
        if tensor.dtype not in _WITH_NUMPY:
            instead = _INSTEAD.get(str(tensor.dtype), "x.view(torch.uint8)")  # PyTorch converts no others
            return f"NumPy has no dtype for {tensor.dtype}: pass `{instead}`."
        return ""
