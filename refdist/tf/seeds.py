"""What Keras draws from a seed is what it draws on TensorFlow: initial weights, masks of Dropout, shuffled rows.

Keras asks each library for its own numbers.  Two integers decide them, so they can be computed (`stateless`), and a
program with `tf.keras.utils.set_random_seed` begins with the weights that it has on TensorFlow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from refdist.tf import drawn, stateless
from refdist.tf.conversion import dtype_name, tensor

# Keras keeps seeds on TensorFlow as int64, and draws with int32.
_SEEDS, _LIMIT = "int64", 2**31 - 2


def connect(module: Any) -> None:
    """From now on Keras on PyTorch draws TensorFlow's numbers, and its seed is that of `tf.random`, too."""
    module.utils.set_random_seed = _also_of_tensorflow(module.utils.set_random_seed)
    if module.backend.backend() != "torch":
        return
    from keras.src import backend
    from keras.src.backend.torch import random

    for owner in (backend, backend.torch, backend.torch.core):
        owner.random_seed_dtype = lambda: _SEEDS
    for draw in (normal, uniform, truncated_normal, categorical, randint, dropout, shuffle):
        setattr(random, draw.__name__, _with_numbers(getattr(random, draw.__name__), draw))


def _keras() -> Any:
    import keras

    return keras


def _with_numbers(original: Callable[..., Any], draw: Callable[..., Any]) -> Callable[..., Any]:
    # While Keras infers shapes there are no numbers.
    from keras.src.backend.torch.core import get_device

    @functools.wraps(original)
    def numbers(*args: Any, **kwargs: Any) -> Any:
        return (original if get_device() == "meta" else draw)(*args, **kwargs)
    return numbers


def _also_of_tensorflow(original: Callable[[int], None]) -> Callable[[int], None]:
    @functools.wraps(original)
    def set_random_seed(seed: int) -> None:
        original(seed)
        drawn.begin_again(seed)
    return set_random_seed


def _seed(seed: Any) -> Any:
    return np.asarray(_keras().src.random.seed_generator.draw_seed(seed)).astype(np.int64) % _LIMIT


def _name(dtype: Any) -> str:
    return str(dtype_name(dtype) or _keras().backend.floatx())


def normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
    """Numbers of a normal distribution."""
    return stateless.normal(tuple(shape), _seed(seed), mean, stddev, _name(dtype))


def truncated_normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
    """Numbers of a normal distribution that are at most two standard deviations from the mean."""
    return stateless.truncated_normal(tuple(shape), _seed(seed), mean, stddev, _name(dtype))


def uniform(shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
    """Numbers from minval, and below maxval."""
    return stateless.uniform(tuple(shape), _seed(seed), minval, maxval, _name(dtype))


def randint(shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", seed: Any = None) -> Any:
    """Integers from minval, and below maxval."""
    name = _name(dtype)
    wide = name if name in ("int32", "int64") else "int64"
    return _keras().ops.cast(stateless.uniform(tuple(shape), _seed(seed), minval, maxval, wide), name)


def categorical(logits: Any, num_samples: Any, dtype: Any = "int32", seed: Any = None) -> Any:
    """For each row of logits so many classes."""
    return stateless.categorical(tensor(logits), int(num_samples), _seed(seed), _name(dtype))


def dropout(inputs: Any, rate: Any, noise_shape: Any = None, seed: Any = None) -> Any:
    """The inputs, with some numbers 0 and the others as much larger."""
    if not 0.0 < rate < 1.0:
        return inputs if rate == 0.0 else inputs * 0
    shape = tuple(inputs.shape) if noise_shape is None else tuple(
        length if kept is None else kept for kept, length in zip(noise_shape, inputs.shape, strict=True))
    dtype = _keras().backend.standardize_dtype(inputs.dtype)
    import torch

    kept = stateless.fractions(shape, _seed(seed), dtype) >= rate
    return torch.where(kept, inputs * tensor(1 / (1 - rate), dtype), 0)


def shuffle(x: Any, axis: int = 0, seed: Any = None) -> Any:
    """The slices along an axis in another order."""
    x = tensor(x)
    places = np.asarray(stateless.uniform((x.shape[axis],), _seed(seed), 0, 1, "float32"))
    return _keras().ops.take(x, tensor(np.argsort(places, kind="stable")), axis)
