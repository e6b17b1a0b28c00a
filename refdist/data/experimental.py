"""What TensorFlow keeps under `tf.data.experimental`."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from refdist import errors
from refdist.core.integers import integer
from refdist.core.rules.options import AutoShardPolicy
from refdist.data.dataset import Dataset
from refdist.data.facts import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Reading
from refdist.data.options import DistributeOptions
from refdist.data.threads import AUTOTUNE

__all__ = ["AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "AutoShardPolicy", "DistributeOptions",
           "assert_cardinality", "cardinality"]

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


def _differs(expected: int, number: str) -> Exception:
    stated = "no end" if expected == INFINITE_CARDINALITY else errors.counted(expected, "element")
    return errors.error("RD34", "assert_cardinality", f"the dataset was stated to have {stated}, and has {number}",
                        "State how many elements it has where this is applied.")
