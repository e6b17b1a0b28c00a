"""`Dataset.rejection_resample`: elements of a dataset so that their classes have another distribution.

As on TensorFlow the dataset is read twice, or three times where the classes are counted: each element comes from one of
two readings, of which the second leaves out elements at random.  How often it is chosen, and which elements it leaves
out, follows from the distribution that is wanted and the one that there is.

Source: observed, `tf.data.Dataset.rejection_resample` of TensorFlow 2.21.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from refdist import errors
from refdist.array import philox
from refdist.array.convert import to_array, to_numpy
from refdist.data import functions, iterators
from refdist.data.elements import check_function
from refdist.data.facts import Facts, Reading
from refdist.data.pipeline import MakesDataset, Pipeline
from refdist.data.position import Seeds, stream_of, together

_METHOD = "rejection_resample"
# Where the classes are counted: as many of each are counted at the start, and so many elements at once.
_COUNTED_AT_FIRST, _COUNTED_AT_ONCE = 10, 32


class _Chances(NamedTuple):
    # With which an element of the first reading is chosen, and one of each class is kept in the second.
    first: np.float32
    kept: npt.NDArray[np.float32]


def resampled(pipeline: Pipeline, class_func: Callable[..., object], target_dist: object, initial_dist: object,
              seed_of: Seeds, dataset: MakesDataset) -> Pipeline:
    """`Dataset.rejection_resample`."""
    check_function(_METHOD, class_func)
    target = _distribution("target_dist", target_dist)
    initial = None if initial_dist is None else _distribution("initial_dist", initial_dist)
    if initial is not None and initial.shape != target.shape:
        raise errors.error("RD34", f"Dataset.{_METHOD}", f"target_dist has {len(target)} classes, and initial_dist "
                           f"{len(initial)}", "Give both one number for each class.",
                           kind=errors.InvalidArgumentError)
    label_of = partial(iterators.made, class_func)

    def labelled(reading: Reading) -> Iterator[tuple[object, object]]:
        return iterators.call(_METHOD, lambda element: (label_of(element), element), pipeline.read(reading))

    def chances(reading: Reading) -> Iterator[_Chances]:
        if initial is not None:
            return itertools.repeat(_chances(initial, target))
        return (_chances(counted, target) for counted in _counted(labelled(reading), len(target)))

    def read(reading: Reading) -> Iterator[object]:
        seed = seed_of(reading)
        first = 0 if initial is None else _chances(initial, target).first
        if first == 1:
            return labelled(reading)
        choices = iterators.draw_each(([each.first, 1 - each.first] for each in chances(reading)), seed)
        return iterators.chosen([labelled(reading), _kept(labelled(reading), chances(reading), seed)], choices, True)

    def pair(element: object) -> object:
        return label_of(element), element
    return Pipeline(lambda reading: functions.alike(pipeline, _METHOD, read(reading)),
                    Facts(spec=lambda: functions.spec_made(pipeline, _METHOD, pair, dataset)),
                    sources=together([pipeline.sources, [seed_of]]))


def _distribution(name: str, shares: Any) -> npt.NDArray[np.float32]:
    array: npt.NDArray[Any] = to_numpy(to_array(shares, None, name, f"Dataset.{_METHOD}"))
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not (array >= 0).all() or not math.isclose(
            array.sum(), 1, abs_tol=1e-3):
        raise errors.error("RD34", f"Dataset.{_METHOD}", f"{name} is {shares!r}",
                           "Pass a share for each class, which together are 1.")
    return array.astype(np.float32)


def _chances(initial: npt.NDArray[np.float32], target: npt.NDArray[np.float32]) -> _Chances:
    ratios = target / (initial + np.finfo(np.float32).tiny)
    with np.errstate(invalid="ignore"):  # of equal ratios no element of the second reading is kept
        return _Chances(ratios.min(), (ratios - ratios.min()) / (ratios.max() - ratios.min()))


def _class_of(label: object, count: int) -> int:
    number = int(iterators.as_integer(_METHOD, "class_func", label))
    if not 0 <= number < count:
        raise errors.error("RD34", f"Dataset.{_METHOD}", f"class_func returned {number}, and target_dist has {count} "
                           "classes", f"Return 0 to {count - 1}.", kind=errors.InvalidArgumentError)
    return number


def _counted(labelled: Iterable[tuple[object, object]], count: int) -> Iterator[npt.NDArray[np.float32]]:
    # For each element the distribution of all that have been counted, some of which come after it.
    seen = np.full(count, _COUNTED_AT_FIRST, np.int64)
    labels = iter(labelled)
    while batch := list(itertools.islice(labels, _COUNTED_AT_ONCE)):
        np.add.at(seen, [_class_of(label, count) for label, _ in batch], 1)
        yield from itertools.repeat((seen / seen.sum()).astype(np.float32), _COUNTED_AT_ONCE)


def _kept(labelled: Iterable[tuple[object, object]], chances: Iterable[_Chances], seed: int) -> Iterator[
        tuple[object, object]]:
    key, counter = stream_of(seed)
    for number, (pair, each) in enumerate(zip(labelled, chances, strict=False)):
        drawn = philox.uniform(key, counter + number * philox.RESERVED, 1, np.dtype(np.float32))[0]
        if drawn < each.kept[_class_of(pair[0], len(each.kept))]:
            yield pair
