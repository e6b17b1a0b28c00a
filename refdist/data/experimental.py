"""What TensorFlow keeps under `tf.data.experimental`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy.typing as npt

from refdist import errors
from refdist.core.integers import integer
from refdist.core.rules.options import AutoShardPolicy
from refdist.data.dataset import Dataset
from refdist.data.facts import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Reading
from refdist.data.options import DistributeOptions
from refdist.data.threads import AUTOTUNE

__all__ = ["AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "AutoShardPolicy", "DistributeOptions",
           "assert_cardinality", "bucket_by_sequence_length", "cardinality", "enable_debug_mode", "rejection_resample",
           "unique"]

_T = TypeVar("_T")


def cardinality(dataset: Dataset) -> Any:
    """The number of elements of a dataset, or INFINITE_CARDINALITY (-1) or UNKNOWN_CARDINALITY (-2).

    >>> import refdist
    >>> refdist.data.experimental.cardinality(refdist.data.Dataset.range(3))
    np.int64(3)

    Source: tf.data.experimental.cardinality.
    """
    return dataset.cardinality()


def assert_cardinality(expected_cardinality: int) -> Callable[[Dataset], Dataset]:
    """States the number of elements of a dataset whose number is not known; for `Dataset.apply`.

    Args:
        expected_cardinality: how many elements it has; INFINITE_CARDINALITY (-1) for no end.

    >>> import refdist
    >>> odd = refdist.data.Dataset.range(6).filter(lambda n: n % 2 == 1)
    >>> odd.apply(refdist.data.experimental.assert_cardinality(3)).cardinality()
    np.int64(3)

    Raises:
        RD25: not an integer.  RD34: below -1; or, when elements are read, the dataset has more or fewer of them.

    Source: tf.data.experimental.assert_cardinality.
    """
    expected = integer(expected_cardinality, "expected_cardinality", "assert_cardinality")
    if expected < INFINITE_CARDINALITY:
        raise errors.error("RD34", "assert_cardinality", f"expected_cardinality is {expected}",
                           "Pass a number of elements, or tf.data.experimental.INFINITE_CARDINALITY.")

    def counted(read: Callable[[Reading], Iterable[_T]], reading: Reading) -> Iterator[_T]:
        count = 0
        for element in read(reading):
            if count == expected:
                raise _differs(expected, "more")
            yield element
            count += 1
        if count != expected:
            raise _differs(expected, f"only {count}")

    return lambda dataset: dataset._after(dataset._pipeline.select(counted, cardinality=expected))


def bucket_by_sequence_length(element_length_func: Callable[..., object], bucket_boundaries: Sequence[int],
                              bucket_batch_sizes: Sequence[int], padded_shapes: object = None,
                              padding_values: object = None, pad_to_bucket_boundary: bool = False,
                              no_padding: bool = False, drop_remainder: bool = False) -> Callable[[Dataset], Dataset]:
    """`Dataset.bucket_by_sequence_length`, for `Dataset.apply`.

    Args:
        element_length_func, bucket_boundaries, bucket_batch_sizes, padded_shapes, padding_values: as there.
        pad_to_bucket_boundary, no_padding, drop_remainder: as there.

    Raises:
        What the method raises, where it is applied.

    Source: tf.data.experimental.bucket_by_sequence_length.
    """
    return lambda dataset: dataset.bucket_by_sequence_length(
        element_length_func, bucket_boundaries, bucket_batch_sizes, padded_shapes, padding_values,
        pad_to_bucket_boundary, no_padding, drop_remainder)


def enable_debug_mode() -> None:
    """Does nothing: functions of datasets are called as they are, which TensorFlow does after this.

    Source: tf.data.experimental.enable_debug_mode.
    """


def rejection_resample(class_func: Callable[..., object], target_dist: npt.ArrayLike,
                       initial_dist: npt.ArrayLike | None = None, seed: int | None = None) -> Callable[
                           [Dataset], Dataset]:
    """`Dataset.rejection_resample`, for `Dataset.apply`.

    Args:
        class_func, target_dist, initial_dist, seed: as there.

    Raises:
        What the method raises, where it is applied.

    Source: tf.data.experimental.rejection_resample.
    """
    return lambda dataset: dataset.rejection_resample(class_func, target_dist, initial_dist, seed)


def unique() -> Callable[[Dataset], Dataset]:
    """`Dataset.unique`, for `Dataset.apply`.

    Raises:
        What the method raises, where it is applied.

    Source: tf.data.experimental.unique.
    """
    return lambda dataset: dataset.unique()


def _differs(expected: int, number: str) -> Exception:
    stated = "no end" if expected == INFINITE_CARDINALITY else errors.counted(expected, "element")
    return errors.error("RD34", "assert_cardinality", f"the dataset was stated to have {stated}, and has {number}",
                        "State how many elements it has where this is applied.")
