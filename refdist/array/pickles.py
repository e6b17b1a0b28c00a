"""Pickles of messages, most of which have a number or a few: small arrays of NumPy take a third of NumPy's own time."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

_SMALL = 1024  # bytes; larger arrays would be copied once more


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray or value.nbytes > _SMALL:
            return NotImplemented
        dtype, flags = value.dtype, value.flags
        if dtype.isbuiltin != 1 or dtype.kind not in "biufc" or not flags.c_contiguous:
            return NotImplemented
        numbers = value.tobytes()
        return np.ndarray, (value.shape, dtype.str, bytearray(numbers) if flags.writeable else numbers)


def dumps(value: object) -> bytes:
    """Pickles a value, for `pickle.loads`; an array that cannot be written to stays one.

    Raises:
        Whatever `pickle.dumps` raises.
    """
    file = io.BytesIO()
    _Pickler(file, 5).dump(value)
    return file.getvalue()
