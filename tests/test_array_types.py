"""What counts as an array for the type checker is what the libraries' arrays have."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

from refdist import IndexedSlices, MirroredStrategy, Variable
from refdist.array.types import Array


@pytest.mark.parametrize("array", [np.zeros(2), np.array("text"), array_api_strict.zeros(2)])
def test_arrays_of_every_library_have_what_the_protocol_says(array: Array) -> None:
    assert isinstance(array, Array)


def test_what_holds_arrays_is_not_one() -> None:
    values = MirroredStrategy(["GPU:0", "GPU:1"]).experimental_distribute_values_from_function(lambda context: 1.0)
    assert not isinstance(IndexedSlices([1.0], [0]), Array)
    assert not isinstance(Variable([1.0]), Array)
    assert not isinstance(values, Array)
    assert not isinstance([1.0], Array)
