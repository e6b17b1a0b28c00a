"""An array that is sent in a message arrives as NumPy's own pickle would bring it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from refdist.array import pickles

DTYPES = ("?", "i1", "u8", "q", "f2", "f4", "f8", "g", "c8", ">f4", "M8[ns]", "m8", "m8[s]", "U3", "S3", "V4",
          "i4,f8", "O", np.dtype("f4", metadata={"unit": "m"}))


def _facts(array: Any) -> tuple[object, ...]:
    flags = array.flags
    return (type(array), array.dtype, array.dtype.metadata, array.shape, array.strides, array.tolist(),
            flags.writeable, flags.aligned)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 3), (2, 3), (40, 40)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_is_the_one_that_numpy_s_own_pickle_has(dtype: Any, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype)
    if array.dtype.kind in "iufc":
        array[...] = np.arange(array.size).reshape(shape)
    fixed = array.copy()
    fixed.flags.writeable = False
    for value in (array, fixed, np.asfortranarray(array), array.T, array[..., ::2] if shape else array, fixed[None],
                  np.broadcast_to(array, (2, *shape)), array.view(np.recarray)):
        first, second = pickle.loads(pickles.dumps([value, value]))
        assert first is second
        assert _facts(first) == _facts(pickle.loads(pickle.dumps(value, 5)))


def test_what_is_no_array_is_pickled_as_ever() -> None:
    values = [1, "a", np.float32(2), {"a": (None, 1.5)}, ValueError("wrong")]
    assert repr(pickle.loads(pickles.dumps(values))) == repr(values)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickles.dumps(lambda: None)
