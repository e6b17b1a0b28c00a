"""Rows in groups: reductions of segments, partitions and what puts them together again, and counts of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from refdist import errors
from refdist.array.convert import short
from refdist.tf.computed import kept, name_of, quotient
from refdist.tf.tensors import keras, library, tensor

ops = keras().ops


def _invalid(attempted: str, problem: str, fix: str) -> errors.RefdistError:
    return errors.error("RD34", attempted, problem, fix, kind=errors.InvalidArgumentError)


def _is_traced(value: Any) -> bool:
    # Whether JAX traces a function, and the value has no numbers that could be looked at.
    if library() != "jax":
        return False
    import jax

    return isinstance(value, jax.core.Tracer)


def _integers(value: Any, name: str, attempted: str) -> Any:
    # Integers, such as the numbers of groups, as an array of int64.
    array = np.asarray(tensor(value))
    if array.dtype.kind not in "iu" and array.size:
        raise _invalid(attempted, f"{name} has dtype {array.dtype}", f"Pass integers: `tf.cast({name}, tf.int32)`.")
    return array.astype(np.int64)


def _rows(data: Any, ids: Any, attempted: str) -> tuple[Any, Any]:
    # The data as a list of rows, and the ids as a vector, one for each row.
    data, shape = tensor(data), ids.shape
    if tuple(data.shape[:len(shape)]) != shape:
        raise _invalid(attempted, f"the data have shape {tuple(data.shape)}, the numbers of their groups {shape}",
                       "Give each row of the data the number of a group.")
    return ops.reshape(data, (math.prod(shape), *data.shape[len(shape):])), ids.reshape(-1)


def _start(kind: str, dtype: str) -> Any:
    # What each group begins with, which is the result where it has no rows.
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    limits: Any = np.iinfo(dtype) if "int" in dtype else np.finfo("float32" if dtype == "bfloat16" else dtype)
    return (int if "int" in dtype else float)(limits.min if kind == "max" else limits.max)


def _reduced(kind: str, rows: Any, ids: Any, count: int) -> Any:
    # One row for each of `count` groups; rows whose id is negative belong to none.
    start = ops.full((count + 1, *rows.shape[1:]), _start(kind, name_of(rows)), dtype=name_of(rows))
    if library() == "torch":
        import torch

        places = torch.as_tensor(np.where(ids < 0, count, ids), device=rows.device)
        index = places.reshape(-1, *(1,) * (rows.ndim - 1)).expand(rows.shape)
        way = {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin"}[kind]
        return start.scatter_reduce(0, index, rows, way)[:count]
    at = start.at[ops.where(ids < 0, count, ids)]
    return {"sum": at.add, "prod": at.multiply, "max": at.max, "min": at.min}[kind](rows)[:count]


def _sizes(rows: Any, ids: Any, count: int) -> Any:
    # How many rows each group has, and 1 where it has none; shaped to divide the sums of the groups.  Counted in int32,
    # because bfloat16 has no number between 256 and 258.
    ones = ops.ones((rows.shape[0], *(1,) * (rows.ndim - 1)), dtype="int32")
    return kept(rows, ops.maximum(_reduced("sum", ones, ids, count), 1))


def extreme(kind: str, x: Any, updates: Any, indices: Any) -> Any:
    """The tensor with the larger, or the smaller, of its own slices and of the updates at indices.

    Args:
        kind: "max" or "min".
        x: a tensor.
        updates: slices of it.
        indices: where each of them belongs.

    Raises:
        RD34: indices beyond the tensor, or updates of another shape.
    """
    attempted = f"tf.tensor_scatter_nd_{kind}"
    places, shape = _integers(indices, "indices", attempted), tuple(x.shape)
    depth = places.shape[-1] if places.ndim else 0
    lengths = shape[:depth]
    if (not 0 < depth <= len(shape) or tuple(updates.shape) != (*places.shape[:-1], *shape[depth:])
            or ((places < 0) | (places >= np.array(lengths))).any()):
        raise _invalid(attempted, f"the tensor has shape {shape}, updates {tuple(updates.shape)}, indices are "
                       f"{short(places.tolist())}", "Pass an index of the tensor for each update.")
    rows = math.prod(lengths)
    numbers = np.ravel_multi_index(tuple(np.moveaxis(places, -1, 0)), lengths).reshape(-1)
    extremes = _reduced(kind, ops.reshape(updates, (len(numbers), *shape[depth:])), numbers, rows)
    return (ops.maximum if kind == "max" else ops.minimum)(x, ops.reshape(extremes, shape))


def segment(kind: str, data: Any, segment_ids: Any) -> Any:
    """Reduces the rows of each segment to one; a segment without rows gives 0, or 1 for products.

    Args:
        kind: "sum", "mean", "max", "min" or "prod".
        data: rows.
        segment_ids: the number of each row's segment, ascending.

    Raises:
        RD34: other numbers of segments.
    """
    attempted = f"tf.math.segment_{kind}"
    ids = _integers(segment_ids, "segment_ids", attempted)
    if ids.ndim != 1 or (ids[:-1] > ids[1:]).any() or (ids < 0).any():
        raise _invalid(attempted, f"segment_ids are {short(ids.tolist())}",
                       "Pass a vector of ascending numbers from 0 on, or write "
                       f"`tf.math.unsorted_segment_{kind}`.")
    rows, ids = _rows(data, ids, attempted)
    count = int(ids[-1]) + 1 if len(ids) else 0
    if kind == "mean":
        totals = _reduced("sum", rows, ids, count)
        divide = ops.floor_divide if "int" in name_of(rows) else ops.divide
        return kept(rows, divide(totals, _sizes(rows, ids, count)))
    reduced = _reduced(kind, rows, ids, count)
    if kind in ("sum", "prod"):
        return reduced
    has_rows = np.isin(np.arange(count), ids).reshape(-1, *(1,) * (rows.ndim - 1))
    return ops.where(tensor(has_rows), reduced, ops.zeros_like(reduced))


def unsorted_segment(kind: str, data: Any, segment_ids: Any, num_segments: Any) -> Any:
    """Reduces the rows of each segment to one; a segment without rows gives the neutral element, as 0 for sums.

    Args:
        kind: "sum", "mean", "sqrt_n", "max", "min" or "prod".
        data: rows.
        segment_ids: the number of each row's segment, negative for none; of more dimensions where those of the data
            that begin them are rows.
        num_segments: how many segments there are.

    Raises:
        RD34: a number that is not below `num_segments`, or another number of them than of rows.
    """
    attempted, count = f"tf.math.unsorted_segment_{kind}", int(num_segments)
    traced = _is_traced(segment_ids)
    ids = segment_ids if traced else _integers(segment_ids, "segment_ids", attempted)
    if count < 0 or (not traced and (ids >= count).any()):
        numbers = ids if traced else short(ids.tolist())
        raise _invalid(attempted, f"num_segments is {count}, and segment_ids are {numbers}",
                       "Pass a num_segments that is not negative, and larger than each of them.")
    rows, ids = _rows(data, ids, attempted)
    if kind not in ("mean", "sqrt_n"):
        return _reduced(kind, rows, ids, count)
    sizes = _sizes(rows, ids, count)
    return quotient(_reduced("sum", rows, ids, count), sizes if kind == "mean" else ops.sqrt(sizes))


def partition(data: Any, partitions: Any, num_partitions: Any) -> list[Any]:
    """The rows of each partition, in their order.

    Args:
        data: rows.
        partitions: the number of each row's partition, of the shape with which that of the data begins.
        num_partitions: how many partitions there are.

    Raises:
        RD34: a number that is no partition's, or another number of them than of rows.
    """
    attempted, count = "tf.dynamic_partition", int(num_partitions)
    ids = _integers(partitions, "partitions", attempted)
    if ((ids < 0) | (ids >= count)).any():
        raise _invalid(attempted, f"num_partitions is {count}, and partitions are {short(ids.tolist())}",
                       "Pass numbers from 0, and below num_partitions.")
    rows, ids = _rows(data, ids, attempted)
    return [ops.take(rows, tensor(np.flatnonzero(ids == number)), 0) for number in range(count)]


def stitch(indices: Any, data: Any) -> Any:
    """Puts the rows of several tensors at their indices; the last row wins, and an index without a row gets zeros.

    Args:
        indices: for each tensor where its rows go.
        data: the tensors.

    Raises:
        RD34: a negative index, or rows of different shapes.
    """
    attempted = "tf.dynamic_stitch"
    places = [_integers(places, "indices", attempted) for places in indices]
    if len(places) != len(data) or not places:
        raise _invalid(attempted, f"there are {len(places)} tensors of indices and {len(data)} of data",
                       "Pass one for each.")
    pairs = [_rows(part, index, attempted) for part, index in zip(data, places, strict=True)]
    flat = np.concatenate([index for _, index in pairs])
    if (flat < 0).any() or len({(name_of(rows), tuple(rows.shape[1:])) for rows, _ in pairs}) > 1:
        raise _invalid(attempted, f"the indices are {short(flat.tolist())}, the rows have the shapes "
                       f"{[tuple(rows.shape[1:]) for rows, _ in pairs]}", "Pass indices from 0 on, and rows of one "
                       "shape and dtype.")
    count = int(flat.max()) + 1 if len(flat) else 0
    sources = np.full(count, len(flat))
    sources[flat] = np.arange(len(flat))
    rows = [rows for rows, _ in pairs]
    return ops.take(ops.concatenate([*rows, ops.zeros((1, *rows[0].shape[1:]), dtype=name_of(rows[0]))]),
                    tensor(sources), 0)


def counts(arr: Any, weights: Any, minlength: Any, maxlength: Any, dtype: str, axis: Any, binary: bool) -> Any:
    """Counts how often each of 0, 1, 2 and so on occurs, or adds up the weights at its places.

    Args:
        arr: integers.
        weights: what each counts, of the shape of `arr`; None for 1.
        minlength: how many numbers are counted at least.
        maxlength: how many numbers are counted at most.
        dtype: that of the counts where there are no weights.
        axis: -1 for counts of each row, None or 0 for one of all.
        binary: whether 1 is counted where a number is there at all.

    Raises:
        RD34: a negative number, weights of another shape, or another axis.
    """
    attempted = "tf.math.bincount"
    numbers = np.asarray(tensor(arr)).astype(np.int64)
    loads = None if weights is None else np.asarray(tensor(weights))
    if (numbers < 0).any() or (loads is not None and loads.shape != numbers.shape) or axis not in (None, 0, -1) or (
            loads is not None and binary):
        raise _invalid(attempted, f"arr is {short(numbers.tolist())}, weights are "
                       f"{short(None if loads is None else loads.tolist())}, axis is {axis}, binary_output {binary}",
                       "Pass numbers of 0 or more, a weight for each or none, and axis=-1 or None.")
    count = max(int(numbers.max(initial=-1)) + 1, int(minlength or 0))
    count = count if maxlength is None else min(count, int(maxlength))
    rows = numbers.reshape(-1, numbers.shape[-1]) if axis == -1 and numbers.ndim > 1 else numbers.reshape(1, -1)
    result = np.zeros((len(rows), count), dtype if loads is None else loads.dtype)
    row, place = np.nonzero(rows < count)
    np.add.at(result, (row, rows[row, place]), 1 if loads is None else loads.reshape(rows.shape)[row, place])
    result = (result > 0).astype(result.dtype) if binary else result
    return tensor(result if axis == -1 and numbers.ndim > 1 else result[0])


def confusion(labels: Any, predictions: Any, classes: Any, weights: Any, dtype: str) -> Any:
    """The confusion matrix: how often each label was predicted as each class, or the sum of those predictions' weights.

    Args:
        labels, predictions: classes, from 0 on.
        classes: how many there are; None for as many as occur.
        weights: what each prediction counts; None for 1.
        dtype: that of the result.

    Raises:
        RD34: a number that is no class, or other shapes.
    """
    attempted = "tf.math.confusion_matrix"
    pair = [_integers(value, name, attempted) for value, name in ((labels, "labels"), (predictions, "predictions"))]
    pair = [part[..., 0] if part.ndim == other.ndim + 1 and part.shape[-1] == 1 else part
            for part, other in (pair, pair[::-1])]
    size = int(max(part.max(initial=-1) for part in pair)) + 1 if classes is None else int(classes)
    load = np.ones(pair[0].shape) if weights is None else np.asarray(tensor(weights))
    if pair[0].ndim != 1 or not pair[0].shape == pair[1].shape == load.shape or any(
            ((part < 0) | (part >= size)).any() for part in pair):
        raise _invalid(attempted, f"labels are {short(pair[0].tolist())}, predictions {short(pair[1].tolist())}, "
                       f"weights have shape {load.shape}, and there are {size} classes",
                       "Pass vectors of one length, of numbers from 0, and below num_classes.")
    matrix = np.zeros((size, size), dtype)
    np.add.at(matrix, tuple(pair), load.astype(dtype))
    return tensor(matrix)


def bins(values: Any, value_range: Any, nbins: Any, dtype: str) -> Any:
    """The number of the bin of each value; bins are equally wide, and values outside belong to the first or last one.

    Args:
        values: numbers.
        value_range: where the first bin begins, and where the last one ends.
        nbins: how many bins there are.
        dtype: that of the result.

    Raises:
        RD34: no bins, or a range that ends before it begins.
    """
    numbers = np.asarray(tensor(values))
    low, high = (np.asarray(tensor(value_range)).astype(numbers.dtype)).tolist()
    count = int(nbins)
    if count < 1 or not low < high:
        raise _invalid("tf.histogram_fixed_width", f"value_range is {low}, {high}, and nbins {count}",
                       "Pass a range that ends after its beginning, and at least one bin.")
    places = np.floor(count * ((numbers - low) / (high - low)))
    return tensor(np.clip(places, 0, count - 1).astype(dtype), dtype)


def histogram(values: Any, value_range: Any, nbins: Any, dtype: str) -> Any:
    """How many values each bin has; see `bins`.

    Raises:
        RD34: what `bins` raises.
    """
    places = np.asarray(bins(values, value_range, nbins, "int64"))
    return tensor(np.bincount(places.reshape(-1), minlength=int(nbins)).astype(dtype), dtype)


def unraveled(indices: Any, dims: Sequence[int]) -> Any:
    """The coordinates, in a tensor of this shape, of flat indices: a column for each index.

    Raises:
        RD34: an index that is outside.
    """
    flat, sizes = tensor(indices), tuple(int(size) for size in dims)
    numbers = np.asarray(flat)
    if ((numbers < 0) | (numbers >= math.prod(sizes))).any():
        raise _invalid("tf.unravel_index", f"indices are {short(numbers.tolist())}, dims {list(sizes)}",
                       "Pass indices from 0, and below the product of dims.")
    return tensor(np.stack(np.unravel_index(numbers, sizes)), name_of(flat))


def inverted(permutation: Any) -> Any:
    """The inverse of a permutation of 0 to n - 1: at each number, the index that it has in the permutation.

    Raises:
        RD34: it is not a permutation.
    """
    numbers = _integers(permutation, "x", "tf.math.invert_permutation")
    if numbers.ndim != 1 or sorted(numbers.tolist()) != list(range(len(numbers))):
        raise _invalid("tf.math.invert_permutation", f"x is {short(numbers.tolist())}",
                       "Pass each number from 0 to len(x) - 1 once.")
    return tensor(np.argsort(numbers), name_of(tensor(permutation)))


def reversed_rows(x: Any, lengths: Any, seq_axis: Any, batch_axis: Any) -> Any:
    """The tensor with the first `lengths` items of each of its sequences reversed.

    Args:
        x: a tensor.
        lengths: how many items of each sequence.
        seq_axis: the axis of the items.
        batch_axis: the axis of the sequences.

    Raises:
        RD34: a length that is negative or larger than the axis, or another number of lengths than of sequences.
    """
    attempted = "tf.reverse_sequence"
    along, across = int(seq_axis or 0) % x.ndim, int(batch_axis or 0) % x.ndim
    counts = _integers(lengths, "seq_lengths", attempted)
    size = x.shape[along]
    if along == across or counts.shape != (x.shape[across],) or ((counts < 0) | (counts > size)).any():
        raise _invalid(attempted, f"seq_lengths are {short(counts.tolist())}, seq_axis is {seq_axis}, batch_axis "
                       f"{batch_axis}, and the tensor has shape {tuple(x.shape)}", "Pass a length for each place of "
                       "batch_axis, none above that of seq_axis, and two axes.")
    places = np.arange(size)
    order = np.where(places < counts[:, None], counts[:, None] - 1 - places, places)  # sequences, items
    order = order if across < along else order.T
    shape = [length if axis in (along, across) else 1 for axis, length in enumerate(x.shape)]
    return ops.take_along_axis(x, tensor(np.broadcast_to(order.reshape(shape), tuple(x.shape)).copy()), along)
