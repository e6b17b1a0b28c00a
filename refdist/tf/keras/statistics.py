"""The statistics of a batch are TensorFlow's.

Keras on PyTorch takes the variance as the mean of the squares less the square of the mean.  In float32 little is left
of the difference where the mean is large beside the spread: of numbers near 1,000 that differ by 1 it is off by some
per cent, and it may be negative.  Keras on TensorFlow takes the mean of the squared distances from the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from keras.src.backend.torch import core
from keras.src.backend.torch import nn as torch_nn

from refdist.tf.keras.seams import replace

# float16 has not the range for squares, and bfloat16 not the digits for sums.
_NARROW = torch.float16, torch.bfloat16


def _moments(original: Callable[..., Any]) -> Callable[..., Any]:
    def moments(x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False) -> Any:
        if synchronized:
            return original(x, axes, keepdims, synchronized)
        inputs = core.convert_to_tensor(x)
        numbers = inputs.float() if inputs.dtype in _NARROW else inputs
        mean = torch.mean(numbers, dim=axes, keepdim=True)
        # The gradient that goes through the mean is 0.
        variance = torch.mean(torch.square(numbers - mean.detach()), dim=axes, keepdim=True)
        if not keepdims:
            mean, variance = torch.squeeze(mean, axes), torch.squeeze(variance, axes)
        if inputs.dtype not in _NARROW:
            return mean, variance
        limits = torch.finfo(torch.float16)
        return tuple(torch.clip(moment, limits.min, limits.max).to(inputs.dtype) for moment in (mean, variance))
    return moments


def connect() -> None:
    """From now on layers that normalize compute the mean and the variance so."""
    replace(torch_nn, "moments", _moments)
