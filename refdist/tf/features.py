"""`tf.io`'s parsers: features of rows that are written as `tf.train.Example` or `SequenceExample`, as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refdist import errors
from refdist.missing import lacks
from refdist.tf.dtypes import as_dtype
from refdist.tf.records import Example, Feature, SequenceExample
from refdist.tf.shapes import sizes
from refdist.tf.sparse import SparseTensor
from refdist.tf.texts import TextTensor, array_of, numbers

# The list of a feature that has values of a dtype.
_KINDS = {"string": "bytes_list", "float32": "float_list", "int64": "int64_list"}


@lacks({"count index": "Leave it out: it is no tuple."})
class FixedLenFeature:
    """A feature of as many values as a shape has.

    Args:
        shape: a list of ints.
        dtype: tf.float32, tf.int64 or tf.string.
        default_value: for rows without it; None where that is an error.

    Raises:
        RD25: the shape is none.

    Source: tf.io.FixedLenFeature.
    """

    def __init__(self, shape: Any, dtype: Any, default_value: Any = None) -> None:
        self.shape, self.dtype, self.default_value = sizes(shape), as_dtype(dtype), default_value


@lacks({"count index": "Leave it out: it is no tuple."})
class FixedLenSequenceFeature:
    """A feature of any number of steps, each of as many values as a shape has.

    Args:
        shape: of a step, a list of ints.
        dtype: tf.float32, tf.int64 or tf.string.
        allow_missing: whether a row without it has no steps; else that is an error.
        default_value: what follows the steps of rows that have fewer than others; by default 0 or "".

    Raises:
        RD25: the shape is none.

    Source: tf.io.FixedLenSequenceFeature.
    """

    def __init__(self, shape: Any, dtype: Any, allow_missing: bool = False, default_value: Any = None) -> None:
        self.shape, self.dtype, self.default_value = sizes(shape), as_dtype(dtype), default_value
        self.allow_missing = allow_missing


@lacks({"count index": "Leave it out: it is no tuple."})
class VarLenFeature:
    """A feature of any number of values, parsed as a `tf.sparse.SparseTensor`.

    Args:
        dtype: tf.float32, tf.int64 or tf.string.

    Source: tf.io.VarLenFeature.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = as_dtype(dtype)


_Spec = FixedLenFeature | FixedLenSequenceFeature | VarLenFeature
_Specs = Mapping[str, Any]


def parse_single_example(serialized: Any, features: _Specs, example_names: object = None,
                         name: str | None = None) -> dict[str, Any]:
    """The features of a row, as tensors.

    Args:
        serialized: a text without dimensions, or bytes.
        features: what each feature is.
        example_names, name: without effect.

    Raises:
        RD20: a feature that is no FixedLenFeature, FixedLenSequenceFeature or VarLenFeature.  RD34: a row that lacks
            one, or has more or fewer values, or of another dtype.

    Source: tf.io.parse_single_example.
    """
    attempted = "tf.io.parse_single_example"
    _check(features, attempted)
    row = Example.FromString(bytes(array_of(serialized)[()])).features.feature
    return {key: _single(_values(key, row.get(key), spec, attempted), spec) for key, spec in sorted(features.items())}


def parse_example(serialized: Any, features: _Specs, example_names: object = None,
                  name: str | None = None) -> dict[str, Any]:
    """The features of several rows, as tensors with a row for each.

    Args:
        serialized: text of shape [n].
        features: what each feature is.
        example_names, name: without effect.

    Raises:
        RD20, RD34: as `parse_single_example`.

    Source: tf.io.parse_example.
    """
    attempted = "tf.io.parse_example"
    _check(features, attempted)
    if not array_of(serialized).ndim:
        return parse_single_example(serialized, features)
    rows = [Example.FromString(bytes(row)).features.feature for row in array_of(serialized)]
    return {key: _together([_values(key, row.get(key), spec, attempted) for row in rows], spec)
            for key, spec in sorted(features.items())}


def parse_single_sequence_example(serialized: Any, context_features: _Specs | None = None,
                                  sequence_features: _Specs | None = None, example_name: object = None,
                                  name: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The features of a row with a sequence: those of the whole row, and those of its steps.

    Args:
        serialized: a text without dimensions, or bytes.
        context_features: what each feature of the whole row is.
        sequence_features: what each feature of the steps is, FixedLenSequenceFeature or VarLenFeature.
        example_name, name: without effect.

    Raises:
        RD20, RD34: as `parse_single_example`.

    Source: tf.io.parse_single_sequence_example.
    """
    attempted = "tf.io.parse_single_sequence_example"
    whole, steps = _sequences([serialized], context_features, sequence_features, attempted)
    return ({key: _single(column[0], spec) for key, (spec, column) in whole.items()},
            {key: _together(column[0], spec) if isinstance(spec, VarLenFeature) else
             _tensor(_joined(column[0], spec), spec) for key, (spec, column) in steps.items()})


def parse_sequence_example(serialized: Any, context_features: _Specs | None = None,
                           sequence_features: _Specs | None = None, example_names: object = None,
                           name: str | None = None) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The features of several rows with sequences, and how many steps each feature of a row has.

    Args:
        serialized: text of shape [n].
        context_features: what each feature of the whole row is.
        sequence_features: what each feature of the steps is, FixedLenSequenceFeature or VarLenFeature.
        example_names, name: without effect.

    Raises:
        RD20, RD34: as `parse_single_example`.

    Source: tf.io.parse_sequence_example.
    """
    attempted = "tf.io.parse_sequence_example"
    whole, steps = _sequences(array_of(serialized), context_features, sequence_features, attempted)
    return ({key: _together(column, spec) for key, (spec, column) in whole.items()},
            {key: _of_steps(column, spec) if isinstance(spec, VarLenFeature) else
             _together([_joined(row, spec) for row in column], spec) for key, (spec, column) in steps.items()},
            {key: numbers([len(row) for row in column], "int64") for key, (spec, column) in steps.items()
             if not isinstance(spec, VarLenFeature)})


def _check(features: _Specs, attempted: str, *kinds: type) -> None:
    kinds = kinds or (FixedLenFeature, FixedLenSequenceFeature, VarLenFeature)
    for key, spec in features.items():
        if not isinstance(spec, kinds):
            names = " or ".join(f"`tf.io.{kind.__name__}`" for kind in kinds)
            raise errors.error("RD20", attempted, f"feature {key!r} is {errors.type_of(spec)}",
                               f"Write {names}, or parse the row by `tf.train.Example.FromString`.")
        if isinstance(spec, FixedLenSequenceFeature) and len(kinds) == 3 and not spec.allow_missing:
            raise errors.error("RD34", attempted, f"feature {key!r} is a FixedLenSequenceFeature, and its "
                               "allow_missing is False", "Pass `allow_missing=True`.")
        if isinstance(spec, FixedLenSequenceFeature) and len(kinds) == 2 and spec.default_value is not None:
            raise errors.error("RD34", attempted, f"feature {key!r} has the default_value {spec.default_value!r}",
                               "Leave it out: the lengths say which steps were filled.")


def _values(key: str, feature: Feature | None, spec: _Spec, attempted: str) -> Any:
    # What a row has of a feature: an array in the shape of the feature, or [steps, *shape], or [values].
    kind = _KINDS.get(spec.dtype.name)
    held = (feature.WhichOneof("kind") or "") if feature is not None else ""
    if not held and isinstance(spec, FixedLenFeature) and spec.default_value is not None:
        default = spec.default_value
        array: Any = array_of(default) if kind == "bytes_list" else np.asarray(default).astype(spec.dtype.name)
        return np.broadcast_to(array, spec.shape)
    if held != kind and (held or kind is None or isinstance(spec, FixedLenFeature)):
        raise errors.error("RD34", attempted, f"feature {key!r} is {held or 'not there'}, and dtype "
                           f"{spec.dtype.name} is asked for", "Ask for what was written, or pass a default_value.",
                           kind=errors.InvalidArgumentError)
    values: list[Any] = getattr(feature, held).value if held else []
    array = np.empty(len(values), object) if kind == "bytes_list" else np.asarray(values, spec.dtype.name)
    array[:] = values
    if isinstance(spec, VarLenFeature):
        return array
    size, steps = int(np.prod(spec.shape)), isinstance(spec, FixedLenSequenceFeature)
    if (size == 0 or len(values) % size) if steps else len(values) != size:
        raise errors.error("RD34", attempted, f"feature {key!r} has {errors.counted(len(values), 'value')}, and "
                           f"shape {spec.shape} {size}", "Pass the shape that was written.",
                           kind=errors.InvalidArgumentError)
    return array.reshape((-1, *spec.shape) if steps else spec.shape)


def _tensor(array: Any, spec: _Spec) -> Any:
    return TextTensor(array) if spec.dtype.name == "string" else numbers(array, spec.dtype.name)


def _single(array: Any, spec: _Spec) -> Any:
    if isinstance(spec, VarLenFeature):
        return SparseTensor(np.arange(len(array)).reshape(-1, 1), _tensor(array, spec), array.shape)
    return _tensor(array, spec)


def _together(rows: Sequence[Any], spec: _Spec) -> Any:
    # Rows as one tensor, the shorter ones filled; lists of values as a sparse one.
    if isinstance(spec, FixedLenFeature):
        return _tensor(np.stack(rows) if rows else np.empty((0, *spec.shape), object), spec)
    longest = max(map(len, rows), default=0)
    if isinstance(spec, VarLenFeature):
        places = [(number, place) for number, row in enumerate(rows) for place in range(len(row))]
        return SparseTensor(np.array(places, np.int64).reshape(-1, 2), _tensor(_concatenated(rows), spec),
                            (len(rows), longest))
    is_text = spec.dtype.name == "string"
    default = spec.default_value if spec.default_value is not None else b"" if is_text else 0
    whole = np.full((len(rows), longest, *spec.shape), array_of(default)[()] if is_text else default,
                    object if is_text else spec.dtype.name)
    for filled, row in zip(whole, rows, strict=True):
        filled[:len(row)] = row
    return _tensor(whole, spec)


def _concatenated(rows: Sequence[Any]) -> Any:
    return np.concatenate(rows) if rows else np.empty(0, object)


_Columns = dict[str, tuple[Any, list[Any]]]


def _sequences(serialized: Any, context: _Specs | None, steps: _Specs | None,
               attempted: str) -> tuple[_Columns, _Columns]:
    # For each feature what it is, and what each row has of it; of steps a list.
    context, steps = context or {}, steps or {}
    _check(context, attempted, FixedLenFeature, VarLenFeature)
    _check(steps, attempted, FixedLenSequenceFeature, VarLenFeature)
    rows = [SequenceExample.FromString(bytes(array_of(row)[()])) for row in serialized]
    return ({key: (spec, [_values(key, row.context.feature.get(key), spec, attempted) for row in rows])
             for key, spec in sorted(context.items())},
            {key: (spec, [_steps(key, row, spec, attempted) for row in rows]) for key, spec in sorted(steps.items())})


def _steps(key: str, row: SequenceExample, spec: _Spec, attempted: str) -> list[Any]:
    features = row.feature_lists.feature_list.get(key)
    if features is None and not getattr(spec, "allow_missing", True):
        raise errors.error("RD34", attempted, f"the row has no list of features {key!r}",
                           "Ask for what was written, or pass `allow_missing=True`.", kind=errors.InvalidArgumentError)
    each = FixedLenFeature(spec.shape, spec.dtype) if isinstance(spec, FixedLenSequenceFeature) else spec
    return [_values(key, feature, each, attempted) for feature in (features.feature if features else ())]


def _joined(steps: Sequence[Any], spec: Any) -> Any:
    return np.stack(steps) if steps else np.empty((0, *spec.shape), object)


def _of_steps(column: Sequence[Sequence[Any]], spec: VarLenFeature) -> SparseTensor:
    places = [(number, step, place) for number, row in enumerate(column) for step, values in enumerate(row)
              for place in range(len(values))]
    lists = [values for row in column for values in row]
    return SparseTensor(np.array(places, np.int64).reshape(-1, 3), _tensor(_concatenated(lists), spec),
                        (len(column), max(map(len, column), default=0), max(map(len, lists), default=0)))
