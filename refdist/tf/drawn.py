"""`tf.random`'s numbers that come of one seed for the process: PyTorch's, and not TensorFlow's.

An operation that has a seed of its own draws its own sequence, which begins again with `set_seed`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refdist import errors
from refdist.runtime import Field
from refdist.tf.tensors import keras, torch

_seed: Field[int] = Field("the seed of `tf.random.set_seed`", lambda: 0)
_sequences: Field[dict[int, Any]] = Field("the generators of operations with a seed of their own", dict)


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


def _generator(seed: Any) -> Any:
    if seed is None:
        return None
    if seed not in _sequences.value:
        _sequences.value[seed] = torch().Generator().manual_seed(hash((_seed.value, int(seed))) % 2**63)
    return _sequences.value[seed]


def uniform(shape: Any, low: Any, high: Any, dtype: Any, seed: Any) -> Any:
    """Numbers from low, and below high."""
    library, generator = torch(), _generator(seed)
    if dtype.startswith("int"):
        if high is None:
            raise errors.error("RD34", "tf.random.uniform", f"dtype is {dtype}, and maxval is None", "Pass maxval.")
        return library.randint(int(low), int(high), _sizes(shape), generator=generator, dtype=getattr(library, dtype))
    drawn = library.rand(_sizes(shape), generator=generator, dtype=getattr(library, dtype))
    return drawn * ((1 if high is None else high) - low) + low


def normal(shape: Any, mean: Any, stddev: Any, dtype: Any, seed: Any) -> Any:
    """Numbers of a normal distribution."""
    library, generator = torch(), _generator(seed)
    return library.randn(_sizes(shape), generator=generator, dtype=getattr(library, dtype)) * stddev + mean


def truncated_normal(shape: Any, mean: Any, stddev: Any, dtype: Any, seed: Any) -> Any:
    """Numbers of a normal distribution that are at most two standard deviations from the mean."""
    library, generator = torch(), _generator(seed)
    drawn = library.empty(_sizes(shape), dtype=getattr(library, dtype))
    return library.nn.init.trunc_normal_(drawn, 0.0, 1.0, -2.0, 2.0, generator) * stddev + mean


def shuffle(value: Any, seed: Any) -> Any:
    """The rows in another order."""
    library, generator = torch(), _generator(seed)
    return value[library.randperm(len(value), generator=generator)]


def _sizes(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
