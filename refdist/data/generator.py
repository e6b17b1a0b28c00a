"""Elements from a Python generator, each compared with the stated spec, or with the first element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from refdist import errors, nest
from refdist.data import elements
from refdist.data.iterators import noted
from refdist.data.spec import DatasetSpec, TensorSpec, made, spec_of


def signature(types: object, shapes: object, output_signature: object) -> Any:
    """The spec that a caller of `from_generator` stated for all elements; None if none was stated.

    Raises:
        RD25, RD34: the spec has other leaves than TensorSpecs, or is stated in two ways.
    """
    attempted = "Dataset.from_generator"
    if types is None and output_signature is None:
        if shapes is not None:
            raise errors.error("RD25", attempted, "output_shapes was passed without output_types",
                               "Pass an `output_signature`.")
        return None
    if output_signature is None:
        return _typed_spec(types, shapes)
    if types is not None or shapes is not None:
        raise errors.error("RD25", attempted, "both output_types and output_signature were passed",
                           "Pass the `output_signature` only.")
    for spec in nest.flatten(output_signature):
        if not isinstance(spec, TensorSpec):
            raise errors.error("RD25", attempted, f"output_signature contains {spec!r}",
                               "Pass a nest of refdist.TensorSpec.")
    return output_signature


def _typed_spec(types: Any, shapes: Any) -> Any:
    try:
        if isinstance(types, dict):
            return {key: _typed_spec(types[key], None if shapes is None else shapes[key]) for key in types}
        if isinstance(types, (tuple, list)):
            pairs = zip(types, [None] * len(types) if shapes is None else shapes, strict=True)
            return tuple(_typed_spec(dtype, shape) for dtype, shape in pairs)
        return TensorSpec(shapes, types)
    except (KeyError, TypeError, ValueError) as error:
        raise errors.error("RD25", "Dataset.from_generator", f"output_types is {types!r} and output_shapes {shapes!r}",
                           "Pass an `output_signature`.") from error


def spec_of_first(generator: Callable[..., Iterable[object]], args: tuple[object, ...]) -> Any:
    """The spec that the first element implies for all: its structure and dtypes, and any shape.

    Raises:
        RD29: there are no elements.
    """
    for element in generated(generator, args, None):
        return made(spec_of(element), ranked=False)
    raise errors.error("RD29", "Dataset.element_spec", "the generator yields no elements to find it from",
                       "Pass an `output_signature`.")


def generated(generator: Callable[..., Iterable[object]], args: tuple[object, ...], spec: object) -> Iterator[Any]:
    """Yields what `generator(*args)` yields, as elements.

    Args:
        generator: returns an iterable.
        args: its arguments.
        spec: a nest of TensorSpecs that every element must fit; None for the structure and dtypes of the first.

    Raises:
        RD26: an element that does not fit, with its number.
        What the generator raises, with a note that names the element.
    """
    number = 0
    known = spec is not None
    source = iter(generator(*args))
    while True:
        try:
            raw = next(source)
        except StopIteration:
            return
        except Exception as error:
            raise noted(error, "from_generator", number) from None
        if known:
            element = _typed(raw, spec, number)
        else:
            element = elements.made_by_function(raw)
            spec, known = made(spec_of(element), ranked=False), True
        _check(spec, element, number)
        yield element
        number += 1


def _typed(raw: object, spec: object, number: int) -> Any:
    # Python numbers and lists have no dtype of their own: they take that of the spec.
    if isinstance(spec, dict) and isinstance(raw, dict) and spec.keys() == raw.keys():
        return type(spec)((key, _typed(raw[key], spec[key], number)) for key in spec)
    if isinstance(spec, (tuple, list)) and isinstance(raw, (tuple, list)) and len(spec) == len(raw):
        items = [_typed(item, part, number) for item, part in zip(raw, spec, strict=True)]
        return type(spec)(*items) if hasattr(spec, "_fields") else type(spec)(items)
    if not isinstance(spec, TensorSpec) or spec.dtype == object:
        return elements.made_by_function(raw)
    if isinstance(raw, (np.ndarray, np.generic)):
        return elements.made_by_function(_cast(raw, spec.dtype))
    try:
        return elements.taken(raw, spec.dtype)
    except errors.RefdistError as error:
        raise _misfit(number, f"it is {raw!r}, expected {_described(spec)}") from error


def _cast(raw: npt.NDArray[np.generic] | np.generic, dtype: np.dtype[np.generic]) -> Any:
    # Casts within a kind of dtype or to a wider one, but not ints that do not fit: only digits of floats can be lost.
    ints = raw.dtype.kind in "iu" and dtype.kind in "iu"
    if raw.dtype == dtype or not (ints or np.can_cast(raw.dtype, dtype, "same_kind")):
        return raw
    cast = raw.astype(dtype)
    return raw if ints and np.any(cast != raw) else cast


def _check(spec: object, element: object, number: int) -> None:
    difference = nest.compare([spec, element])
    if difference is not None:
        raise _misfit(number, difference.between("the spec of the elements", "this one"))
    for expected, leaf in zip(nest.flatten(spec), nest.flatten(element), strict=True):
        if not (leaf is None if expected is None else expected.is_compatible_with(leaf)):
            raise _misfit(number, f"it has {_described(spec_of(leaf))}, expected {_described(expected)}")


def _described(spec: TensorSpec | DatasetSpec | None) -> str:
    if not isinstance(spec, TensorSpec):
        return str(spec)
    return f"{'any shape' if spec.shape is None else f'shape {spec.shape}'} and dtype {spec.dtype}"


def _misfit(number: int, misfit: str) -> errors.RefdistError:
    return errors.error("RD26", f"Dataset.from_generator, element {number}", misfit, "Yield elements of one structure "
                        "and dtype: those of `output_signature` if it is given, else those of the first element.")
