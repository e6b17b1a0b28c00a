"""Variables and optimizers where Keras computes with PyTorch.

The value of a variable in a replica stays the same tensor until the variable is written: the gradient is asked of the
object with which the loss was computed.  Its numbers lie where those of the variable lie, and so do those of the other
replicas' tensors: a copy for each would cost as much as the step of the optimizer.  Whoever writes into one has changed
them all, and is told so at the next read.  What code outside replicas reads is a copy.

Keras's optimizers for PyTorch write tensors in place, past the variables.  In a scope Keras makes those that it has for
all backends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from keras.src.backend.torch import core
from keras.src.backend.torch.layer import TorchLayer
from keras.src.backend.torch.optimizers.torch_optimizer import TorchOptimizer
from keras.src.backend.torch.optimizers.torch_parallel_optimizer import TorchParallelOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from refdist import errors, nest
from refdist.array.convert import HoldsArray
from refdist.array.replica_types import source, typed
from refdist.core import checks, context_stack
from refdist.core.rules.replica_types import Of
from refdist.strategies.replica_context import has_strategy
from refdist.tf.keras.seams import replace
from refdist.variables.variable import watchers

# Whether an optimizer's step runs, which reads variables and writes into none of the tensors that it gets.
in_step: ContextVar[bool] = ContextVar("in a step of an optimizer", default=False)


class Reads:
    """How a variable of a strategy is read."""

    _value: Any
    _dtype: Any
    _shape: Any
    _trainable: bool
    _is_sharded: bool
    _has_parts: bool
    path: str

    def _begin(self) -> None:
        # By the replica that reads, None outside and -1 in a step of an optimizer: the array that the variable had, the
        # tensor made of it, and how often that had been written.
        self._tensors: dict[int | None, tuple[Any, Any, int]] = {}

    def _symbolic(self) -> Any:
        # What stands for the value while Keras infers shapes; None where it does not.
        if core.get_device() != "meta":
            return None
        return self._tensor(torch.empty(self._shape, dtype=core.to_torch_dtype(self._dtype), device="meta"))

    def _current(self) -> Any:
        variable = self._value
        stored = None if self._is_sharded else variable._stored()
        replica = context_stack.frame().replica_id
        if replica is None and in_step.get():
            replica = -1
        array, tensor, written = self._tensors.get(replica, (None, None, 0))
        if tensor is not None and tensor._version != written:
            del self._tensors[replica]
            raise errors.error("RD20", f"reading Keras variable {self.path!r} {context_stack.describe()}",
                               "the tensor that an earlier read returned was written in place, and the variable does "
                               "not see that", "Call `variable.assign(value)`, or an optimizer of Keras.")
        if stored is None or array is not stored:
            array = variable._read() if stored is None else stored
            tensor = core.convert_to_tensor(array, dtype=self._dtype).detach()
            tensor = self._tensor(tensor.clone() if replica is None else tensor)
            if stored is not None:
                self._tensors[replica] = stored, tensor, tensor._version
                if checks.types.value and not self._has_parts and replica is not None and replica >= 0:
                    typed(tensor, source(Of.SAME, f"variable {self.path}"))
        this: Any = self
        for watcher in watchers.get():
            watcher(this, tensor)
        return tensor

    def _tensor(self, tensor: Any) -> Any:
        return torch.nn.Parameter(tensor, requires_grad=self._trainable)


def is_foreign(value: Any) -> bool:
    """Whether a value is somebody else's variable: a parameter of a module of PyTorch."""
    return isinstance(value, torch.nn.Parameter)


def is_of(value: Any, dtype: Any) -> bool:
    """Whether a value is a tensor of that dtype, by Keras's name."""
    return type(value) is torch.Tensor and value.dtype is core.to_torch_dtype(dtype)


def detached(tensor: Any) -> Any:
    """The tensor, of which no gradients are recorded."""
    return tensor.detach()


def stretched(tensor: Any, shape: Any) -> Any:
    """A single number as often as a shape says."""
    return tensor.expand(shape)


def alike(tensor: Any, other: Any) -> bool:
    """Whether two tensors are the same, but for rounding."""
    return bool(torch.allclose(tensor, other, rtol=1e-4))


def unrecorded() -> AbstractContextManager[object]:
    """A block in which no gradients are recorded."""
    block: AbstractContextManager[object] = torch.no_grad()
    return block


def compare_parts(optimizer: Any, variables: Any) -> None:
    """Says where TensorFlow has other squares of the gradients of embeddings."""
    from refdist.tf.keras import embeddings

    inner = getattr(optimizer, "inner_optimizer", optimizer)
    embeddings.compare(inner, inner._trainable_variables if variables is None else variables)


class step:  # noqa: N801 - written like a function
    """A block in which an optimizer takes its step, for all copies of its variables."""

    def __init__(self, optimizer: Any) -> None:
        self._grad = torch.no_grad()

    def __enter__(self) -> None:
        self._before = in_step.set(True)
        self._grad.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._grad.__exit__(*error)
        in_step.reset(self._before)  # a replica that is alone goes on in this context


def _new(original: Callable[..., Any]) -> Callable[..., Any]:
    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls) if has_strategy() else original(cls, *args, **kwargs)
    return new


_made = _new(TorchOptimizer.__new__)


def _update(original: Callable[..., Any]) -> Callable[..., Any]:
    def update_step(self: Any, grads: Any, variables: Any, learning_rate: Any) -> None:
        of_ours = any(isinstance(variable, Reads) for variable in variables)
        (BaseOptimizer._backend_update_step if of_ours else original)(self, grads, variables, learning_rate)
    return update_step


def _decay(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_weight_decay(self: Any, variables: Any) -> None:
        of_ours = any(isinstance(variable, Reads) for variable in variables)
        (BaseOptimizer._apply_weight_decay if of_ours else original)(self, variables)
    return apply_weight_decay


def _track(original: Callable[..., Any]) -> Callable[..., Any]:
    # A layer's parameters, as PyTorch asks for them, are those of the code that asks.
    def named_parameters(self: Any, prefix: str = "", *args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(variable, Reads) for variable in self.variables):
            return original(self, prefix, *args, **kwargs)
        return ((f"{prefix}.{variable.path}".lstrip("."), variable.value) for variable in self.variables)
    return named_parameters


def _register(original: Callable[..., Any]) -> Callable[..., Any]:
    def track(self: Any) -> None:
        if not any(isinstance(variable, Reads) for variable in self.variables):
            original(self)
    return track


def _converted(original: Callable[..., Any]) -> Callable[..., Any]:
    # Keras converts what it does not know by way of NumPy, where gradients end.  It may keep what it gets: a copy.
    def convert_to_tensor(x: Any, dtype: Any = None, sparse: bool | None = None, ragged: bool | None = None) -> Any:
        if isinstance(x, HoldsArray):
            array = x._read()
            x = array.clone() if isinstance(array, torch.Tensor) else np.array(array)
        elif isinstance(x, (list, tuple)) and any(isinstance(leaf, HoldsArray) for leaf in nest.flatten(x)):
            x = [convert_to_tensor(part, dtype) for part in x]
        return original(x, dtype, sparse, ragged)
    return convert_to_tensor


def connect_variables() -> None:
    """From now on layers leave variables of strategies to Keras, which takes those of `tf` for tensors."""
    replace(TorchLayer, "named_parameters", _track)
    replace(TorchLayer, "_track_variables", _register)
    own = core.convert_to_tensor
    replace(core, "convert_to_tensor", _converted)
    for name, module in list(sys.modules.items()):
        if name.startswith("keras.src.backend") and vars(module).get("convert_to_tensor") is own:
            vars(module)["convert_to_tensor"] = core.convert_to_tensor


def connect_optimizers() -> None:
    """From now on optimizers that are made in a scope are those for all backends."""
    if TorchOptimizer.__new__ is not _made:
        TorchOptimizer.__new__ = staticmethod(_made)
    replace(TorchOptimizer, "_apply_weight_decay", _decay)
    replace(TorchParallelOptimizer, "_backend_update_step", _update)
