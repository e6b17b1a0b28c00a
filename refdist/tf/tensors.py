"""Keras and its tensors as a program written for TensorFlow expects them.

Tensors are PyTorch's, or JAX's with KERAS_BACKEND=jax.  JAX's record nothing, so there is no tape; `.numpy()` they have
as well.

Of PyTorch's tensors two things are TensorFlow's.  Gradients are recorded inside a tape and nowhere else,
so PyTorch's recording is off in the thread that first uses Keras or a tape, from then on; a tape turns it on, and puts
back what was before.  A loop of PyTorch in the same thread says `torch.enable_grad()`; one that does not is told so by
`backward`.  A tensor that is computed inside a tape is a value inside and outside it: `.numpy()` returns its numbers,
where PyTorch would ask for `detach()` first.

What else may stand beside a tensor is in `operands`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from refdist import errors
from refdist.array.convert import to_numpy
from refdist.tf import conversion
from refdist.variables.variable import watchers


@functools.cache
def keras() -> ModuleType:
    """Keras, connected to the strategies.

    Raises:
        RD20: Keras computes with another library than PyTorch and JAX.  RD27: Keras or that library is not installed.
    """
    from refdist.tf import lent, older, operands, seeds, seen, texts, tracked
    from refdist.tf.keras import connect

    module: ModuleType = connect()
    from refdist.tf import folders, vocabularies  # which import Keras

    if module.backend.backend() == "torch":
        _prepare()
        operands.connect()
        seen.connect(module)
    else:
        _prepare_jax()
    older.add_names(module)
    vocabularies.connect()
    folders.connect()
    texts.connect()
    seeds.connect(module)
    tracked.connect(module)
    lent.connect(module)
    return module


def library() -> str:
    """The name of what Keras computes with: "torch" or "jax"."""
    name: str = keras().backend.backend()
    return name


def torch(attempted: str) -> ModuleType:
    """PyTorch, with which Keras computes.

    Raises:
        RD20: Keras computes with JAX.
    """
    if library() != "torch":
        raise errors.error("RD20", attempted, "Keras computes with JAX, which differentiates functions",
                           "Write `jax.value_and_grad` of a function that calls `model.stateless_call`, or set "
                           "KERAS_BACKEND=torch.")
    import torch

    module: ModuleType = torch
    return module


@functools.cache
def kind() -> type:
    """The class of tensors, of which those of text are, too."""
    from refdist.tf.texts import TextTensor

    library_s = type(keras().ops.zeros(1))

    class OfTensors(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, (library_s, TextTensor))

        def __subclasscheck__(cls, other: type) -> bool:
            return other is cls or issubclass(other, (library_s, TextTensor))

        def __getattr__(cls, name: str) -> Any:
            return getattr(library_s, name)

    class Tensor(metaclass=OfTensors):
        """A tensor, of numbers or of text."""
    return Tensor


def tensor(value: Any, dtype: object = None) -> Any:
    """The value as a tensor: a number, a list, an array, a variable; what Keras passes through a model stays as it is.

    Raises:
        RD19: a value with a part for each replica.
    """
    keras()
    return conversion.tensor(value, dtype)


def _prepare() -> None:
    import torch

    torch.set_grad_enabled(False)
    own = torch.Tensor.numpy

    @functools.wraps(own)
    def numpy(self: Any, *, force: bool = False) -> Any:
        recorded = self.requires_grad and (not torch.is_grad_enabled() or bool(watchers.get()))
        if self.dtype is torch.bfloat16:  # which PyTorch refuses
            return to_numpy(self.detach())
        return own(self.detach() if recorded else self, force=force or self.device.type != "cpu")

    torch.Tensor.numpy = numpy
    torch.autograd.backward = _told(torch.autograd.backward)
    from keras.src.backend.torch.trainer import TorchTrainer

    TorchTrainer.train_step = _recorded(TorchTrainer.train_step)


def _prepare_jax() -> None:
    import jax

    # The class of arrays; those that JAX traces have no numbers.
    type(jax.numpy.zeros(1)).numpy = lambda array: np.array(array)


def _told(backward: Callable[..., Any]) -> Callable[..., Any]:
    # A loop of PyTorch would be told that a tensor does not require a gradient, and not why.
    @functools.wraps(backward)
    def told(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        library = torch("backward of PyTorch")
        roots = [tensors] if isinstance(tensors, library.Tensor) else list(tensors)
        if not library.is_grad_enabled() and not any(tensor.requires_grad for tensor in roots):
            raise errors.error("RD09", "backward of PyTorch", "nothing was recorded: where a program of TensorFlow "
                               "runs, PyTorch records gradients inside tapes only",
                               "Compute the loss in `with torch.enable_grad():`, or in a `tf.GradientTape()`.")
        return backward(roots, *args, **kwargs)
    return told


def _recorded(train_step: Callable[..., Any]) -> Callable[..., Any]:
    # `fit` outside any scope, where Keras takes gradients without a tape.
    @functools.wraps(train_step)
    def step(self: Any, data: Any) -> Any:
        with torch("fit").enable_grad():
            return train_step(self, data)
    return step
