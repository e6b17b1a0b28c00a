"""`tf.random`'s numbers that come of one seed for the process: PyTorch's or JAX's, and not TensorFlow's.

An operation that has a seed of its own draws its own sequence, which begins again with `set_seed`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refdist import errors
from refdist.runtime import Field
from refdist.tf.tensors import keras, library, torch

_seed: Field[int] = Field("the seed of `tf.random.set_seed`", lambda: 0)
_sequences: Field[dict[int | None, Any]] = Field("the generators of operations with a seed of their own", dict)


def set_seed(seed: object) -> None:
    """Begins the random numbers of Keras and of `tf.random` again; NumPy's go on.

    Keras draws the seeds of layers from Python's own generator, which begins again, too.

    Raises:
        RD25: not an int.
    """
    if not isinstance(seed, int):
        raise errors.error("RD25", "tf.random.set_seed", f"got {errors.type_of(seed)}", "Pass an int.")
    before = np.random.get_state()
    keras().utils.set_random_seed(seed)
    np.random.set_state(before)
    _seed.value = seed
    _sequences.value = {}


class _PyTorch:
    # Drawn by PyTorch's generators: its own, or one for each seed.

    def __init__(self, seed: Any) -> None:
        self._library: Any = torch("tf.random")
        self._generator = None
        if seed is not None:
            if seed not in _sequences.value:
                _sequences.value[seed] = self._library.Generator().manual_seed(_mixed(seed))
            self._generator = _sequences.value[seed]

    def integers(self, shape: Any, low: int, high: int, dtype: str) -> Any:
        return self._library.randint(low, high, shape, generator=self._generator, dtype=getattr(self._library, dtype))

    def uniform(self, shape: Any, dtype: str) -> Any:
        return self._library.rand(shape, generator=self._generator, dtype=getattr(self._library, dtype))

    def normal(self, shape: Any, dtype: str) -> Any:
        return self._library.randn(shape, generator=self._generator, dtype=getattr(self._library, dtype))

    def truncated_normal(self, shape: Any, dtype: str) -> Any:
        drawn = self._library.empty(shape, dtype=getattr(self._library, dtype))
        return self._library.nn.init.trunc_normal_(drawn, 0.0, 1.0, -2.0, 2.0, self._generator)

    def order(self, count: int) -> Any:
        return self._library.randperm(count, generator=self._generator)

    def categorical(self, logits: Any, count: int) -> Any:
        return self._library.multinomial(self._library.softmax(logits, -1), count, True, generator=self._generator)


class _Jax:
    # Drawn by a key of JAX's for each call: those of one seed follow each other.

    def __init__(self, seed: Any) -> None:
        import jax

        self._random = jax.random
        calls = _sequences.value.get(seed, 0)
        _sequences.value[seed] = calls + 1
        self._key = jax.random.fold_in(jax.random.key(_mixed(seed) % 2**32), calls)

    def integers(self, shape: Any, low: int, high: int, dtype: str) -> Any:
        return self._random.randint(self._key, shape, low, high, dtype)

    def uniform(self, shape: Any, dtype: str) -> Any:
        return self._random.uniform(self._key, shape, dtype)

    def normal(self, shape: Any, dtype: str) -> Any:
        return self._random.normal(self._key, shape, dtype)

    def truncated_normal(self, shape: Any, dtype: str) -> Any:
        return self._random.truncated_normal(self._key, -2.0, 2.0, shape, dtype)

    def order(self, count: int) -> Any:
        return self._random.permutation(self._key, count)

    def categorical(self, logits: Any, count: int) -> Any:
        return self._random.categorical(self._key, logits, -1, shape=(count, len(logits))).T


def _mixed(seed: Any) -> int:
    # None has the same hash in every process from Python 3.12 on only.
    return hash((_seed.value, -1 if seed is None else int(seed))) % 2**63


def _drawing(seed: Any) -> Any:
    return (_Jax if library() == "jax" else _PyTorch)(seed)


def uniform(shape: Any, low: Any, high: Any, dtype: Any, seed: Any) -> Any:
    """Numbers from low, and below high."""
    if dtype.startswith("int"):
        if high is None:
            raise errors.error("RD34", "tf.random.uniform", f"dtype is {dtype}, and maxval is None", "Pass maxval.")
        return _drawing(seed).integers(_sizes(shape), int(low), int(high), dtype)
    return _drawing(seed).uniform(_sizes(shape), dtype) * ((1 if high is None else high) - low) + low


def normal(shape: Any, mean: Any, stddev: Any, dtype: Any, seed: Any) -> Any:
    """Numbers of a normal distribution."""
    return _drawing(seed).normal(_sizes(shape), dtype) * stddev + mean


def truncated_normal(shape: Any, mean: Any, stddev: Any, dtype: Any, seed: Any) -> Any:
    """Numbers of a normal distribution that are at most two standard deviations from the mean."""
    return _drawing(seed).truncated_normal(_sizes(shape), dtype) * stddev + mean


def shuffle(value: Any, seed: Any) -> Any:
    """The rows in another order."""
    return value[_drawing(seed).order(len(value))]


def categorical(logits: Any, count: int, seed: Any) -> Any:
    """For each row of logits so many classes."""
    return _drawing(seed).categorical(logits, count)


def _sizes(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
