"""What operations of the table need more than one expression for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from refdist import errors, nest, nn
from refdist.array.convert import HoldsArray
from refdist.tf.conversion import dtype_name
from refdist.tf.misfits import shown
from refdist.tf.operands import beside, differ, numbers
from refdist.tf.tensors import keras, library, tensor

ops = keras().ops

_WHOLE = ("int32", "int64", "uint32", "uint64")


def name_of(array: Any) -> str:
    """The name of a tensor's dtype."""
    return str(keras().backend.standardize_dtype(array.dtype))


def ints(shape: Any) -> Any:
    """A shape, or axes, as Python's ints; a single one, and None, stay what they are."""
    if shape is None or isinstance(shape, int):
        return shape
    if keras().ops.is_tensor(shape) or isinstance(shape, np.ndarray):
        return np.asarray(shape).tolist()
    return tuple(map(int, shape)) if isinstance(shape, Iterable) else int(shape)


def kept(like: Any, result: Any) -> Any:
    """A result in the dtype of what it was computed of."""
    return ops.cast(result, name_of(tensor(like)))


def pair(x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands as tensors; what is no tensor has the dtype of a tensor beside it.

    Raises:
        RD05: two tensors of different dtypes, or a list or number that does not become the dtype of the other.
    """
    strength = [_strength(x), _strength(y)]
    if strength[0] != strength[1] and max(strength):
        like = tensor((x, y)[strength[1] > strength[0]])
        return (_like(like, x), like) if strength[1] > strength[0] else (like, _like(like, y))
    x, y = tensor(x), tensor(y)
    if name_of(x) != name_of(y):
        raise differ(name_of(x), name_of(y))
    return x, y


def alike(values: Iterable[Any]) -> list[Any]:
    """Tensors of one dtype; what is not a tensor is converted to the dtype of a tensor beside it.

    Raises:
        RD05: tensors of different dtypes, or a list or number that does not become the dtype of the others.
    """
    listed = list(values)
    tensors = [tensor(value) for value in listed if _strength(value) == 2]
    names = [name_of(item) for item in tensors]
    if len(set(names)) > 1:
        raise differ(*dict.fromkeys(names))
    return [tensor(value) if not tensors or _strength(value) == 2 else _like(tensors[0], value) for value in listed]


def check_kind(path: str, kind: str, value: Any) -> None:
    """Raises where an operation takes numbers of another kind.

    Args:
        path: the operation.
        kind: "floats", "bools", which NumPy's arrays become, or "numbers", which are no bools.
        value: its argument.

    Raises:
        RD05: it has another kind.
    """
    dtype = name_of(tensor(value))
    fits, wanted = {
        "floats": ("float" in dtype or "complex" in dtype, "float32"), "numbers": (dtype != "bool", "int32"),
        "bools": (dtype == "bool" or isinstance(value, (np.ndarray, np.generic)), "bool")}[kind]
    if not fits:
        raise errors.error("RD05", f"tf.{path}", f"the tensor has dtype {dtype}",
                           f"Cast it: `tf.cast(x, tf.{wanted})`.", kind=errors.MisfitError)


def _strength(operand: Any) -> int:
    # A tensor decides about the dtype of what stands beside it, and anything does about that of a number.
    if isinstance(operand, (bool, int, float, complex)) and not isinstance(operand, np.generic):
        return 0
    library = keras()
    tensors = HoldsArray, library.Variable, library.KerasTensor
    return 2 if isinstance(operand, tensors) or ops.is_tensor(operand) else 1


def _like(like: Any, operand: Any) -> Any:
    if isinstance(like, keras().KerasTensor):
        return tensor(operand, name_of(like))
    if library() == "torch":
        return beside(like, operand)
    held = any(ops.is_tensor(leaf) or isinstance(leaf, HoldsArray) for leaf in nest.flatten(operand))
    is_array = held or isinstance(operand, (np.ndarray, np.generic))
    return tensor(operand if is_array else numbers(operand, name_of(like)), name_of(like))


def quotient(x: Any, y: Any) -> Any:
    """The quotient; of integers a float64, or a float32 where they have 16 bits or less."""
    own = name_of(x)
    if own.startswith(("int", "uint")):
        wide = "float64" if own in _WHOLE else "float32"
        x, y = ops.cast(x, wide), ops.cast(y, wide)
    return ops.divide(x, y)


def mean(x: Any, axis: Any, keepdims: bool) -> Any:
    """The mean; of integers an integer, without what the division leaves."""
    if not name_of(x).startswith(("int", "uint")):
        return ops.mean(x, axis, keepdims=keepdims)
    total = ops.sum(ops.cast(x, "int64"), axis, keepdims=keepdims)
    count = int(np.prod(x.shape)) // max(int(np.prod(total.shape)), 1)
    # Towards zero, as the division of integers in C.
    return ops.cast(ops.multiply(ops.sign(total), ops.floor_divide(ops.abs(total), count)), name_of(x))


def special(function: str, *tensors: Any) -> Any:
    """A special function of the library below Keras."""
    if library() == "torch":
        import torch

        return getattr(torch.special, function)(*tensors)
    import jax

    return getattr(jax.scipy.special, function)(*tensors)


def real(x: Any) -> Any:
    """The real part; numbers that are not complex are returned as they are."""
    return x.real if name_of(x).startswith("complex") else x


def imaginary(x: Any) -> Any:
    """The imaginary part."""
    return x.imag if name_of(x).startswith("complex") else ops.zeros_like(x)


def conjugate(x: Any) -> Any:
    """The complex conjugate."""
    return composed(x.real, ops.negative(x.imag)) if name_of(x).startswith("complex") else x


def composed(real: Any, imaginary: Any) -> Any:
    """Complex numbers, made of their real and imaginary parts.

    Raises:
        RD05: these are not both float32, or both float64.
    """
    own = name_of(real), name_of(imaginary)
    if own[0] != own[1] or own[0] not in ("float32", "float64"):
        raise errors.error("RD05", "tf.complex", f"real has dtype {own[0]}, imag {own[1]}",
                           "Cast them: `tf.cast(x, tf.float32)`.", kind=errors.InvalidTypeError)
    if library() == "torch":
        import torch

        return torch.complex(*torch.broadcast_tensors(real, imaginary))
    import jax

    return jax.lax.complex(*jax.numpy.broadcast_arrays(real, imaginary))


def beta(x: Any) -> Any:
    """The logarithm of the beta function of the last dimension."""
    return ops.subtract(ops.sum(special("gammaln", x), -1), special("gammaln", ops.sum(x, -1)))


def polynomial(coefficients: Any, x: Any) -> Any:
    """The polynomial with these coefficients, that of the highest power first.

    Raises:
        RD34: the coefficients are no list.
    """
    if not isinstance(coefficients, (list, tuple)):
        raise errors.error("RD34", "tf.math.polyval", f"coeffs are {errors.type_of(coefficients)}",
                           "Pass a list of tensors or numbers.")
    result = ops.zeros_like(x)
    for coefficient in coefficients:
        result = ops.add(ops.multiply(result, x), pair(coefficient, x)[0])
    return result


def truncated(x: Any, y: Any) -> Any:
    """The quotient, rounded toward zero."""
    return kept(x, ops.multiply(ops.multiply(ops.sign(x), ops.sign(y)), ops.floor_divide(ops.abs(x), ops.abs(y))))


def rising(x: Any, strictly: bool) -> Any:
    """Whether the flat tensor rises from each number to the next; if not `strictly`, equal numbers may follow."""
    flat = ops.reshape(x, (-1,))
    return ops.all((ops.greater if strictly else ops.greater_equal)(flat[1:], flat[:-1]))


def bits(operation: str, *operands: Any) -> Any:
    """An operation on the bits of integers; a shift is limited to between 0 and the number of bits minus one.

    Raises:
        RD34: the operands are not integers.
    """
    x, *others = pair(*operands) if len(operands) == 2 else map(tensor, operands)
    dtype = name_of(x)
    if "int" not in dtype:
        raise errors.error("RD34", f"tf.bitwise.{operation}", f"the dtype is {dtype}", "Pass integers.",
                           kind=errors.InvalidArgumentError)
    if operation.endswith("shift"):
        others = [ops.clip(others[0], 0, np.iinfo(dtype).bits - 1)]
    return kept(x, getattr(ops, operation if operation.startswith("bitwise") else f"bitwise_{operation}")(x, *others))


def places(condition: Any) -> Any:
    """The indices of what is true, a row for each."""
    return ops.cast(ops.stack(ops.nonzero(condition), -1), "int64")


def global_norm(tensors: Iterable[Any]) -> Any:
    """The norm of all tensors together; None among them is left out."""
    squares = [ops.sum(ops.square(tensor(value))) for value in tensors if value is not None]
    return ops.sqrt(sum(squares[1:], squares[0]))


def clipped(x: Any, norm: Any, axes: Any) -> Any:
    """The tensor, scaled down to a norm if its own is larger."""
    own = ops.sqrt(ops.sum(ops.square(x), ints(axes), keepdims=True))
    return ops.divide(ops.multiply(x, norm), ops.maximum(own, norm))


def clipped_together(tensors: Iterable[Any], norm: Any, own: Any) -> tuple[list[Any], Any]:
    """The tensors, scaled by one factor so that their global norm is at most `norm`; and the norm that they had."""
    listed = list(tensors)
    own = global_norm(listed) if own is None else tensor(own)
    factor = ops.divide(norm, ops.maximum(own, norm))
    return [None if value is None else ops.multiply(tensor(value), factor) for value in listed], own


def in_top_k(targets: Any, predictions: Any, k: int) -> Any:
    """Whether each target is one of the k classes with the largest predictions; False for what is not a class."""
    count = predictions.shape[-1]
    is_class = ops.logical_and(ops.greater_equal(targets, 0), ops.less(targets, count))
    return ops.logical_and(is_class, ops.in_top_k(ops.clip(targets, 0, count - 1), predictions, k))


class TopKV2(NamedTuple):
    """The largest of each row, and where they are."""

    values: Any
    indices: Any


def top(x: Any, number: Any, is_sorted: bool) -> tuple[Any, Any]:
    """The largest of each row, and where they are."""
    values, indices = ops.top_k(x, int(number), is_sorted)
    return values, ops.cast(indices, "int32")


def count(start: Any, limit: Any, delta: Any, dtype: Any) -> Any:
    """The numbers from start to limit; int32, or float32 where one is no integer."""
    first, last = (0, start) if limit is None else (start, limit)
    bounds = [tensor(value) for value in (first, last, delta)]
    dtype = dtype or next((name_of(bound) for bound in bounds if name_of(bound) not in ("int32", "bool")), "int32")
    return tensor(np.arange(*(np.asarray(bound).item() for bound in bounds)), dtype)


def mask(lengths: Any, longest: Any, dtype: Any) -> Any:
    """For each length as many times true, then false."""
    if longest is None:
        longest = max(float(ops.max(lengths)), 0) if math.prod(lengths.shape) else 0
    size = math.ceil(float(longest))
    if size < 0:
        raise ValueError(f"maxlen is {size}")
    return ops.cast(ops.less(tensor(np.arange(size), name_of(lengths)), ops.expand_dims(lengths, -1)), dtype)


def ensured(x: Any, shape: Any) -> Any:
    """The tensor, if it has the shape.

    Raises:
        RD04: it has another.
    """
    if len(x.shape) != len(shape) or any(wanted not in (None, n) for wanted, n in zip(shape, x.shape, strict=True)):
        raise errors.error("RD04", "tf.ensure_shape", f"the tensor has shape {tuple(x.shape)}, not {tuple(shape)}",
                           "Reshape it, or correct the shape.")
    return x


def parts(x: Any, sizes: Any, axis: int) -> list[Any]:
    """The pieces: as many as a number says, or of the sizes in a list."""
    sizes, length = ints(sizes), x.shape[axis]
    if isinstance(sizes, int):
        return list(ops.split(x, sizes, axis))
    if length is not None:
        rest = length - sum(size for size in sizes if size != -1)
        sizes = [rest if size == -1 else size for size in sizes]
        if sum(sizes) != length or min(sizes, default=0) < 0:
            raise ValueError(f"the sizes do not add up to {length}")
    return list(ops.split(x, np.cumsum(sizes)[:-1].tolist(), axis)) if len(sizes) > 1 else [x]


def squeezed(x: Any, axis: Any) -> Any:
    """The tensor without these dimensions of length 1, or without all of them."""
    axes = [axis] if isinstance(axis, int) else list(axis or ())
    for each in axes:
        if x.shape[each] not in (1, None):
            raise ValueError(f"dimension {each} has the length {x.shape[each]}")
    return ops.squeeze(x, tuple({each % x.ndim for each in axes}) or None)


def unstacked(x: Any, number: Any, axis: int) -> list[Any]:
    """The slices along a dimension."""
    if number not in (None, x.shape[axis]) and x.shape[axis] is not None:
        raise ValueError(f"num is {number}, and the dimension has the length {x.shape[axis]}")
    return list(ops.unstack(x, number, axis))


def tiled(x: Any, multiples: Any) -> Any:
    """The tensor, so many times along each dimension."""
    if len(multiples) != x.ndim:
        raise ValueError(f"there are {len(multiples)} multiples of {x.ndim} dimensions")
    return ops.tile(x, multiples)


def cut(x: Any, begin: Any, size: Any) -> Any:
    """The part of a tensor that begins there and has that size, of which -1 is all that is left."""
    lengths = [n - first if wanted == -1 else wanted for n, first, wanted in zip(x.shape, begin, size, strict=True)]
    for n, first, length in zip(x.shape, begin, lengths, strict=True):
        if min(first, length) < 0 or (n is not None and first + length > n):
            raise ValueError(f"{length} from {first} on, of a dimension of {n}")
    return ops.slice(x, begin, lengths)


def descends(direction: Any) -> bool:
    """Whether the largest comes first."""
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"direction is {direction!r}, neither 'ASCENDING' nor 'DESCENDING'")
    return bool(direction == "DESCENDING")


def opposite(x: Any) -> Any:
    """Numbers in the opposite order; integers have no negative one where they have no sign, and the smallest never."""
    return ops.bitwise_invert(x) if "int" in name_of(x) else ops.negative(x)


def rows(params: Any) -> Any:
    """A tensor whose rows are asked for."""
    return tensor(params)


def picked(params: Any, indices: Any) -> Any:
    """The items, or slices, at a list of indices each."""
    return params[tuple(ops.unstack(ops.cast(indices, "int64"), axis=-1))]


def added(x: Any, indices: Any, updates: Any) -> Any:
    """The tensor, with updates added at indices."""
    return ops.add(x, ops.scatter(indices, updates, tuple(x.shape)))


class UniqueWithCounts(NamedTuple):
    """The different values, where each item is among them, and how many items each is."""

    y: Any
    idx: Any
    count: Any


def distinct(x: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """The different values in the order of their first places, where each item is among them, and how often."""
    values, first, inverse, counts = np.unique(np.asarray(x), return_index=True, return_inverse=True,
                                               return_counts=True)
    order = np.argsort(first)
    return tensor(values[order]), tensor(np.argsort(order)[inverse.reshape(-1)], dtype), tensor(counts[order], dtype)


def gathered(params: Any, indices: Any, axis: Any, batched: int) -> Any:
    """The slices at indices along an axis; of each row of the first dimensions its own, where those are batched."""
    axis = batched if axis is None else int(axis)
    if not batched:
        return ops.take(params, indices, axis)
    first = [gathered(part, places, axis - 1 if axis > 0 else axis, batched - 1)
             for part, places in zip(ops.unstack(params), ops.unstack(indices), strict=True)]
    return ops.stack(first)


def masked(x: Any, mask: Any, axis: int) -> Any:
    """What a mask leaves of the dimensions from an axis on."""
    return x[(slice(None),) * int(axis) + (mask,)]


def hot(indices: Any, depth: int, on: Any, off: Any, axis: int, dtype: Any) -> Any:
    """For each index a row with one value there, and another elsewhere."""
    stated = [value for value in (on, off) if value is not None]
    dtype = dtype or (name_of(tensor(stated[0])) if stated else "float32")
    places = ops.expand_dims(ops.cast(indices, "int64"), axis)
    numbers_of_classes = [1] * places.ndim
    numbers_of_classes[axis] = depth
    chosen = ops.equal(places, tensor(np.arange(depth).reshape(numbers_of_classes)))
    return ops.where(chosen, tensor(1 if on is None else on, dtype), tensor(0 if off is None else off, dtype))


def accumulated(x: Any, accumulate: Callable[..., Any], first: int, axis: int, exclusive: bool, backwards: bool) -> Any:
    """The sums, or products, up to each item, with or without it, from either end."""
    x = ops.flip(x, axis) if backwards else x
    if exclusive:
        start = ops.full_like(ops.take(x, [0], axis), first)
        x = ops.concatenate([start, ops.take(x, list(range(x.shape[axis] - 1)), axis)], axis)
    result = kept(x, accumulate(x, axis))
    return ops.flip(result, axis) if backwards else result


def accumulated_logsumexp(x: Any, axis: int) -> Any:
    """The logarithms of the sums of exponentials up to each item."""
    if library() == "torch":
        return x.logcumsumexp(axis)
    import jax

    return jax.lax.cumlogsumexp(x, axis % x.ndim)


def broadcast(first: Any, second: Any) -> tuple[int, ...]:
    """The shape to which two shapes are broadcast.

    Raises:
        RD34: they cannot be.
    """
    try:
        return np.broadcast_shapes(tuple(first), tuple(second))
    except ValueError as error:
        raise errors.error("RD34", "a broadcast", f"the shapes are {tuple(first)} and {tuple(second)}",
                           "Pass shapes whose lengths, from the last on, are equal or 1.",
                           kind=errors.InvalidArgumentError) from error


def saturated(x: Any, dtype: Any) -> Any:
    """The tensor in another dtype, after what that cannot hold became its smallest or largest number."""
    own = name_of(x)
    if "int" in dtype:
        limits = np.iinfo(dtype)
        low, high = limits.min, limits.max
        if "int" in own:
            low, high = max(low, np.iinfo(own).min), min(high, np.iinfo(own).max)
        elif own in ("float16", "float32", "float64"):
            # The largest number of the tensor's dtype that the other one holds.
            kind = np.dtype(own).type
            with np.errstate(over="ignore"):
                top_number = min(kind(high), np.finfo(kind).max)
            high = top_number if int(top_number) <= high else np.nextafter(top_number, kind(0))
        clipped_numbers = np.clip(np.asarray(x), *np.array([low, high]).astype(own))
        return tensor(clipped_numbers.astype(dtype), dtype)
    limit = float(np.finfo(dtype).max) if dtype in ("float16", "float32", "float64") else None
    return ops.cast(x if limit is None or "int" in own else ops.clip(x, -limit, limit), dtype)


def weighted_loss(labels: Any, logits: Any, weight: Any) -> Any:
    """Cross entropy of independent classes, with a weight for those that are there."""
    factor = ops.add(1.0, ops.multiply(ops.subtract(weight, 1.0), labels))
    return ops.add(ops.multiply(ops.subtract(1.0, labels), logits),
                   ops.multiply(factor, ops.add(ops.log1p(ops.exp(ops.negative(ops.abs(logits)))),
                                                ops.relu(ops.negative(logits)))))


def unit(x: Any, axis: Any, epsilon: float) -> Any:
    """The tensor, divided by its norm."""
    return ops.multiply(x, ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis, keepdims=True), epsilon)))


def looked_up(params: Any, ids: Any, norm: Any) -> Any:
    """The rows of a variable, or of its shards, or of a tensor.

    Raises:
        RD20: a norm to which they should be cut.
        What `refdist.nn.embedding_lookup` raises.
    """
    if norm is not None:
        raise errors.error("RD20", "tf.nn.embedding_lookup", f"max_norm is {norm}", "Write `tf.clip_by_norm` of it.")
    if isinstance(params, (HoldsArray, list, tuple)):
        return nn.embedding_lookup(params, np.asarray(ids))
    return ops.take(tensor(params), tensor(ids), 0)


def normalized(x: Any, middle: Any, variance: Any, offset: Any, scale: Any, epsilon: float) -> Any:
    """What batch normalization makes of the tensor."""
    factor = ops.rsqrt(ops.add(variance, epsilon))
    if scale is not None:
        factor = ops.multiply(factor, tensor(scale))
    shift = ops.negative(ops.multiply(middle, factor))
    return ops.add(ops.multiply(x, factor), shift if offset is None else ops.add(tensor(offset), shift))


def weighted_moments(x: Any, weights: Any, axes: Any, keepdims: bool) -> tuple[Any, Any]:
    """The mean and the variance, with weights that are broadcast; of float16 computed in float32."""
    own = name_of(x)
    x, weights = pair(ops.cast(x, "float32") if own == "float16" else x, weights)
    whole = ops.sum(ops.add(weights, ops.zeros_like(x)), axes, keepdims=True)
    middle = ops.divide(ops.sum(ops.multiply(weights, x), axes, keepdims=True), whole)
    spread = ops.divide(ops.sum(ops.multiply(weights, ops.square(ops.subtract(x, middle))), axes, keepdims=True), whole)
    mean, variance = (ops.cast(moment if keepdims else ops.squeeze(moment, axes), own) for moment in (middle, spread))
    return mean, variance


def sigmoid_loss(labels: Any, logits: Any) -> Any:
    """Cross entropy of independent classes, without overflow."""
    return ops.add(ops.subtract(ops.relu(logits), ops.multiply(logits, labels)),
                   ops.log1p(ops.exp(ops.negative(ops.abs(logits)))))


def sparse_loss(labels: Any, logits: Any) -> Any:
    """Cross entropy of one class, whose number is given."""
    chosen = ops.take_along_axis(ops.log_softmax(logits, -1), ops.expand_dims(ops.cast(labels, "int64"), -1), -1)
    return ops.negative(ops.squeeze(chosen, -1))


def resized(images: Any, size: Any, method: Any, keeps_ratio: bool, antialias: bool) -> Any:
    """Images of another size, as float32; with "nearest" in their own dtype.

    Raises:
        RD20: another way to compute pixels than "bilinear", "nearest" and "bicubic".
    """
    method = str(getattr(method, "value", method))
    if method not in ("bilinear", "nearest", "bicubic"):
        raise errors.error("RD20", "tf.image.resize", f"method is {method!r}",
                           "Pass \"bilinear\", \"nearest\" or \"bicubic\".")
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise errors.error("RD34", "tf.image.resize", f"size is {size}", "Pass [height, width].")
    height, width = size
    if keeps_ratio:
        factor = min(height / images.shape[-3], width / images.shape[-2])
        height, width = (round(images.shape[axis] * factor) for axis in (-3, -2))
    if method == "nearest":
        rows, columns = (np.floor((np.arange(count) + 0.5) * (length / count)).astype(int).tolist()
                         for count, length in ((height, images.shape[-3]), (width, images.shape[-2])))
        return ops.take(ops.take(images, rows, -3), columns, -2)
    if method == "bicubic" and not antialias:  # PyTorch's is another cubic
        weights = (_cubic(count, length) for count, length in ((height, images.shape[-3]), (width, images.shape[-2])))
        return ops.einsum("hr,wc,...rcx->...hwx", *map(ops.convert_to_tensor, weights), ops.cast(images, "float32"))
    return ops.image.resize(ops.cast(images, "float32"), (height, width), method, antialias=antialias,
                            data_format="channels_last")


def _cubic(count: int, length: int) -> Any:
    # The weight of each of `length` pixels in each of `count`: of the four nearest those that are inside.
    places = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * np.float32(length / count) - np.float32(0.5)
    first = np.floor(places)
    weights = np.zeros((count, length), np.float32)
    for tap in range(-1, 3):
        distance = np.abs(np.rint((places - first) * 1024) / 1024 - tap)  # in steps, as TensorFlow's table has it
        near = (1.5 * distance - 2.5) * distance * distance + 1
        weight = np.where(distance <= 1, near, ((-0.5 * distance + 2.5) * distance - 4) * distance + 2)
        index = first.astype(int) + tap
        inside = (index >= 0) & (index < length)
        weights[np.nonzero(inside)[0], index[inside]] += weight[inside]
    return weights / weights.sum(1, keepdims=True)


def logits_of(logits: Any) -> Any:
    """Logits with a row for each draw.

    Raises:
        RD34: they have not two dimensions.
    """
    if logits.ndim != 2:
        raise errors.error("RD34", "a categorical distribution", f"the logits have shape {tuple(logits.shape)}",
                           "Pass [rows, classes]: `tf.expand_dims(logits, 0)` for a single row.",
                           kind=errors.InvalidArgumentError)
    return logits


def scaled(image: Any, dtype: Any, saturate: bool = False) -> Any:
    """An image of another dtype; of integers the largest is 1.0 as a float."""
    own = name_of(image)
    if own == dtype:
        return image
    if own.startswith("float") == str(dtype).startswith("float"):
        return ops.cast(image, dtype) if own.startswith("float") else _between_ints(image, own, dtype, saturate)
    if own.startswith("float"):
        return _as_ints(ops.multiply(image, np.iinfo(dtype).max + 0.5), dtype, saturate)
    return ops.multiply(ops.cast(image, dtype), 1.0 / np.iinfo(own).max)


def _between_ints(image: Any, own: str, dtype: str, saturate: bool) -> Any:
    largest, wanted = np.iinfo(own).max, np.iinfo(dtype).max
    if largest > wanted:
        return _as_ints(ops.floor_divide(image, (largest + 1) // (wanted + 1)), dtype, saturate)
    return ops.multiply(_as_ints(image, dtype, saturate), (wanted + 1) // (largest + 1))


def _as_ints(image: Any, dtype: str, saturate: bool) -> Any:
    return ops.cast(ops.clip(image, np.iinfo(dtype).min, np.iinfo(dtype).max) if saturate else image, dtype)


def checked(attempted: str, holds: Any, x: Any, y: Any, message: Any,
            kind: type[errors.RefdistError] = errors.InvalidArgumentError) -> None:
    """Raises unless it holds.

    Raises:
        RD34: it does not hold.
    """
    if not bool(holds):
        raise errors.error("RD34", f"tf.debugging.{attempted}", f"it does not hold for {x} and {y}",
                           message or "Correct what is checked.", kind=kind)


def shaped(shapes: Any, message: Any) -> None:
    """Raises unless tensors have their shapes, in which texts stand for lengths that are the same wherever they stand.

    Raises:
        RD34: one has not, or a shape is none.
    """
    known: dict[Any, tuple[int, str]] = {}
    for x, shape in shapes.items() if isinstance(shapes, dict) else shapes:
        if shape is None:
            continue
        value = tensor(x)
        attempted, lengths = f"tf.debugging.assert_shapes of {shown(value)}", tuple(value.shape) or (1,)
        fix = message or "Correct what is checked."
        if not isinstance(shape, Iterable):
            raise errors.error("RD34", attempted, f"the shape is {shape!r}", "Pass a tuple, such as (\"N\", 2).")
        symbols = tuple(shape)
        inner = symbols[:1] in ((...,), ("*",))
        symbols = symbols[1:] if inner else symbols
        if any(symbol in (..., "*") for symbol in symbols):
            raise errors.error("RD34", attempted, f"the shape is {shape!r}", "Let `...` or \"*\" come first.")
        symbols = symbols or (() if inner else (1,))
        if (len(lengths) < len(symbols)) if inner else len(lengths) != len(symbols):
            raise errors.error("RD34", attempted, f"the shape is {shape!r}", fix, kind=errors.InvalidValueError)
        for length, symbol in zip(lengths[len(lengths) - len(symbols):], symbols, strict=True):
            if symbol is None or symbol == ".":
                continue
            try:
                wanted, source = int(symbol), "explicitly"
            except ValueError:
                wanted, source = known.setdefault(symbol, (length, f"by {shown(value)}"))
            if wanted != length:
                raise errors.error("RD34", attempted, f"{symbol!r} of the shape {shape!r} is {wanted} {source}", fix,
                                   kind=errors.InvalidValueError)


def near(x: Any, y: Any, relative: Any, absolute: Any) -> Any:
    """Whether two tensors differ by no more than they may; TensorFlow allows ten units of the dtype."""
    own = name_of(x)
    unit = 10 * float(np.finfo(own).eps) if own in ("float16", "float32", "float64") else 0.0
    relative, absolute = (unit if limit is None else limit for limit in (relative, absolute))
    return ops.all(ops.less_equal(ops.abs(ops.subtract(x, y)), ops.add(absolute, ops.multiply(relative, ops.abs(y)))))


def asserted(condition: Any, data: Any) -> None:
    """Raises unless all conditions hold.

    Raises:
        RD34: one does not hold.
    """
    if not bool(ops.all(condition)):
        raise errors.error("RD34", "tf.Assert", f"it does not hold; the data are {data}", "Correct what is checked.",
                           kind=errors.InvalidArgumentError)


def finite(x: Any, message: str) -> Any:
    """The tensor, if all its numbers are finite.

    Raises:
        RD34: one is not.
    """
    if not bool(ops.all(ops.isfinite(x))):
        raise errors.error("RD34", "tf.debugging.check_numerics", "the tensor has a number that is not finite",
                           message or "Correct what is computed.", kind=errors.InvalidArgumentError)
    return x


def D(dtype: Any) -> str | None:  # noqa: N802
    """The name of a dtype."""
    return dtype_name(dtype)
