"""TensorFlow's operations that programs about distribution use: one table, a line for each.

A line has the paths of an operation below `tf`, its parameters as TensorFlow calls them, and what computes it: an
expression of Keras's operations (`ops`), PyTorch's (`torch`), NumPy's (`np`) or Python's own.  Keras's come first where
they do the same, because they also take what Keras passes through a model while it is built, and are those of JAX too.
Operations are somebody else's; what is decided here is names, parameters, defaults and dtypes.

In an expression `T(x)` is x as a tensor, `D(x)` the name of a dtype, `kept(x, result)` a result in the dtype of x,
which TensorFlow's operations keep where Keras's widen it, `ints(x)` a shape or a list of axes as Python's ints.  Every
operation also takes `name`, which says nothing here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from refdist.array.convert import HoldsArray
from refdist.tf import tensors

_TABLE = """
# Arithmetic.
abs math.abs (x) : ops.abs(T(x))
negative math.negative (x) : ops.negative(T(x))
sign math.sign (x) : ops.sign(T(x))
round math.round (x) : ops.round(T(x))
floor math.floor (x) : ops.floor(T(x))
math.ceil (x) : ops.ceil(T(x))
square math.square (x) : ops.square(T(x))
sqrt math.sqrt (x) : ops.sqrt(T(x))
math.rsqrt (x) : ops.rsqrt(T(x))
math.reciprocal (x) : ops.reciprocal(T(x))
exp math.exp (x) : ops.exp(T(x))
math.expm1 (x) : ops.expm1(T(x))
math.log (x) : ops.log(T(x))
math.log1p (x) : ops.log1p(T(x))
sin math.sin (x) : ops.sin(T(x))
cos math.cos (x) : ops.cos(T(x))
tan math.tan (x) : ops.tan(T(x))
tanh math.tanh nn.tanh (x) : ops.tanh(T(x))
sigmoid math.sigmoid nn.sigmoid (x) : ops.sigmoid(T(x))
math.erf (x) : ops.erf(T(x))
add math.add (x, y) : ops.add(*pair(x, y))
subtract math.subtract (x, y) : ops.subtract(*pair(x, y))
multiply math.multiply (x, y) : ops.multiply(*pair(x, y))
divide math.divide truediv math.truediv (x, y) : quotient(*pair(x, y))
math.divide_no_nan (x, y) : ops.divide_no_nan(*pair(x, y))
math.floordiv (x, y) : ops.floor_divide(*pair(x, y))
math.mod math.floormod (x, y) : ops.mod(*pair(x, y))
pow math.pow (x, y) : ops.power(*pair(x, y))
maximum math.maximum (x, y) : ops.maximum(*pair(x, y))
minimum math.minimum (x, y) : ops.minimum(*pair(x, y))
math.squared_difference (x, y) : ops.square(ops.subtract(*pair(x, y)))
add_n math.add_n (inputs) : functools.reduce(ops.add, map(T, inputs))
clip_by_value (t, clip_value_min, clip_value_max) : kept(t, ops.clip(T(t), clip_value_min, clip_value_max))
clip_by_norm (t, clip_norm, axes=None) : clipped(T(t), clip_norm, axes)
linalg.global_norm (t_list) : global_norm(t_list)
clip_by_global_norm (t_list, clip_norm, use_norm=None) : clipped_together(t_list, clip_norm, use_norm)
cumsum math.cumsum (x, axis=0) : kept(x, ops.cumsum(T(x), axis))
math.cumprod (x, axis=0) : kept(x, ops.cumprod(T(x), axis))

# Comparison and logic.
equal math.equal (x, y) : ops.equal(*pair(x, y))
not_equal math.not_equal (x, y) : ops.not_equal(*pair(x, y))
less math.less (x, y) : ops.less(*pair(x, y))
less_equal math.less_equal (x, y) : ops.less_equal(*pair(x, y))
greater math.greater (x, y) : ops.greater(*pair(x, y))
greater_equal math.greater_equal (x, y) : ops.greater_equal(*pair(x, y))
logical_and math.logical_and (x, y) : ops.logical_and(T(x), T(y))
logical_or math.logical_or (x, y) : ops.logical_or(T(x), T(y))
logical_not math.logical_not (x) : ops.logical_not(T(x))
math.logical_xor (x, y) : ops.logical_xor(T(x), T(y))
math.is_nan (x) : ops.isnan(T(x))
math.is_inf (x) : ops.isinf(T(x))
math.is_finite (x) : ops.isfinite(T(x))
where (condition, x=None, y=None) : places(T(condition)) if x is None else ops.where(T(condition), *pair(x, y))

# Reductions.
reduce_sum math.reduce_sum (input_tensor, axis=None, keepdims=False) :
    kept(input_tensor, ops.sum(T(input_tensor), ints(axis), keepdims=keepdims))
reduce_mean math.reduce_mean (input_tensor, axis=None, keepdims=False) : mean(T(input_tensor), ints(axis), keepdims)
reduce_max math.reduce_max (input_tensor, axis=None, keepdims=False) :
    ops.max(T(input_tensor), ints(axis), keepdims=keepdims)
reduce_min math.reduce_min (input_tensor, axis=None, keepdims=False) :
    ops.min(T(input_tensor), ints(axis), keepdims=keepdims)
reduce_prod math.reduce_prod (input_tensor, axis=None, keepdims=False) :
    kept(input_tensor, ops.prod(T(input_tensor), ints(axis), keepdims=keepdims))
reduce_any math.reduce_any (input_tensor, axis=None, keepdims=False) :
    ops.any(T(input_tensor), ints(axis), keepdims=keepdims)
reduce_all math.reduce_all (input_tensor, axis=None, keepdims=False) :
    ops.all(T(input_tensor), ints(axis), keepdims=keepdims)
reduce_logsumexp math.reduce_logsumexp (input_tensor, axis=None, keepdims=False) :
    ops.logsumexp(T(input_tensor), ints(axis), keepdims=keepdims)
math.reduce_variance (input_tensor, axis=None, keepdims=False) :
    ops.var(T(input_tensor), ints(axis), keepdims=keepdims)
math.reduce_std (input_tensor, axis=None, keepdims=False) : ops.std(T(input_tensor), ints(axis), keepdims=keepdims)
argmax math.argmax (input, axis=0, output_type="int64") : ops.cast(ops.argmax(T(input), axis), D(output_type))
argmin math.argmin (input, axis=0, output_type="int64") : ops.cast(ops.argmin(T(input), axis), D(output_type))
math.count_nonzero (input, axis=None, keepdims=None, dtype="int64") :
    ops.cast(ops.sum(ops.cast(ops.not_equal(T(input), 0), "int64"), ints(axis), keepdims=bool(keepdims)), D(dtype))
math.bincount (arr, minlength=0) : ops.cast(ops.bincount(T(arr), minlength=minlength), "int32")
math.segment_sum (data, segment_ids) : ops.segment_sum(T(data), T(segment_ids), segments(T(segment_ids)), sorted=True)
math.unsorted_segment_sum (data, segment_ids, num_segments) :
    ops.segment_sum(T(data), T(segment_ids), int(num_segments))
math.confusion_matrix (labels, predictions, num_classes=None, dtype="int32") :
    confusion(T(labels), T(predictions), num_classes, D(dtype))
math.in_top_k nn.in_top_k (targets, predictions, k) : ops.in_top_k(T(targets), T(predictions), k)
math.top_k nn.top_k (input, k=1, sorted=True) : top(T(input), k, sorted)
sort (values, axis=-1, direction="ASCENDING") :
    ops.sort(T(values), axis) if direction == "ASCENDING" else ops.flip(ops.sort(T(values), axis), axis)
argsort (values, axis=-1, direction="ASCENDING") :
    ops.cast(ops.argsort(T(values) if direction == "ASCENDING" else -T(values), axis), "int32")

# Tensors from nothing, and their shapes.
convert_to_tensor (value, dtype=None) : T(value, dtype)
cast dtypes.cast (x, dtype) : ops.cast(T(x), D(dtype))
identity stop_gradient (input) : ops.copy(T(input))
zeros (shape, dtype="float32") : ops.zeros(ints(shape), D(dtype))
ones (shape, dtype="float32") : ops.ones(ints(shape), D(dtype))
zeros_like (input, dtype=None) : ops.zeros_like(T(input), D(dtype))
ones_like (input, dtype=None) : ops.ones_like(T(input), D(dtype))
fill (dims, value) : ops.full(ints(dims), T(value), dtype=T(value).dtype)
eye (num_rows, num_columns=None, dtype="float32") : ops.eye(num_rows, num_columns, dtype=D(dtype))
range (start, limit=None, delta=1, dtype=None) : count(start, limit, delta, D(dtype))
linspace (start, stop, num) : ops.linspace(T(start), T(stop), num)
one_hot (indices, depth, dtype="float32") : ops.one_hot(T(indices), depth, dtype=D(dtype))
sequence_mask (lengths, maxlen=None, dtype="bool") : mask(T(lengths), maxlen, D(dtype))
shape (input, out_type="int32") : T(list(ops.shape(T(input))), out_type)
size (input, out_type="int32") : T(math.prod(ops.shape(T(input))), out_type)
rank (input) : T(len(ops.shape(T(input))))
is_tensor (x) : ops.is_tensor(x) or holds_array(x)
ensure_shape (x, shape) : ensured(T(x), shape)

# Other arrangements.
reshape (tensor, shape) : ops.reshape(T(tensor), ints(shape))
transpose (a, perm=None) : ops.transpose(T(a), ints(perm))
expand_dims (input, axis) : ops.expand_dims(T(input), axis)
squeeze (input, axis=None) : ops.squeeze(T(input), ints(axis))
concat (values, axis) : ops.concatenate([T(value) for value in values], int(axis))
stack (values, axis=0) : ops.stack([T(value) for value in values], axis)
unstack (value, num=None, axis=0) : ops.unstack(T(value), num, axis)
split (value, num_or_size_splits, axis=0) : parts(T(value), num_or_size_splits, axis)
tile (input, multiples) : ops.tile(T(input), ints(multiples))
repeat (input, repeats, axis=None) : ops.repeat(T(input), repeats if isinstance(repeats, int) else T(repeats), axis)
pad (tensor, paddings, mode="CONSTANT", constant_values=0) :
    ops.pad(T(tensor), [ints(both) for both in paddings], mode.lower(),
    **({"constant_values": constant_values} if mode == "CONSTANT" else {}))
reverse (tensor, axis) : ops.flip(T(tensor), ints(axis))
roll (input, shift, axis) : ops.roll(T(input), ints(shift), ints(axis))
broadcast_to (input, shape) : ops.broadcast_to(T(input), ints(shape))
meshgrid (*args, indexing="xy") : ops.meshgrid(*map(T, args), indexing=indexing)
slice (input_, begin, size) :
    ops.slice(T(input_), ints(begin), [n - b if s == -1 else s for n, b, s in zip(T(input_).shape, ints(begin),
    ints(size))])
gather (params, indices, axis=0) : ops.take(rows(params), T(indices), axis)
gather_nd (params, indices) : picked(rows(params), T(indices))
boolean_mask (tensor, mask) : T(tensor)[T(mask)]
scatter_nd (indices, updates, shape) : ops.scatter(T(indices), T(updates), ints(shape))
tensor_scatter_nd_update (tensor, indices, updates) : ops.scatter_update(T(tensor), T(indices), T(updates))
tensor_scatter_nd_add (tensor, indices, updates) : added(T(tensor), T(indices), T(updates))
tensor_scatter_nd_sub (tensor, indices, updates) : added(T(tensor), T(indices), ops.negative(T(updates)))
unique (x) : distinct(T(x))

# Products.
matmul linalg.matmul (a, b, transpose_a=False, transpose_b=False) :
    ops.matmul(turned(T(a), transpose_a), turned(T(b), transpose_b))
tensordot (a, b, axes) : ops.tensordot(T(a), T(b), axes)
einsum (equation, *inputs) : ops.einsum(equation, *map(T, inputs))
norm linalg.norm (tensor, ord="euclidean", axis=None, keepdims=False) : norm(T(tensor), ord, ints(axis), keepdims)
linalg.matvec (a, b) : ops.squeeze(ops.matmul(T(a), ops.expand_dims(T(b), -1)), -1)
linalg.diag (diagonal) :
    ops.multiply(ops.expand_dims(T(diagonal), -1), ops.eye(T(diagonal).shape[-1], dtype=T(diagonal).dtype))
linalg.diag_part (input) : ops.diagonal(T(input), axis1=-2, axis2=-1)
linalg.trace (x) : ops.trace(T(x), axis1=-2, axis2=-1)
linalg.inv (input) : ops.inv(T(input))
linalg.det (input) : ops.det(T(input))
linalg.solve (matrix, rhs) : ops.solve(T(matrix), T(rhs))
linalg.cholesky (input) : ops.cholesky(T(input))

# Neural networks.
nn.relu (features) : ops.relu(T(features))
nn.relu6 (features) : ops.relu6(T(features))
nn.leaky_relu (features, alpha=0.2) : ops.leaky_relu(T(features), alpha)
nn.elu (features) : ops.elu(T(features))
nn.selu (features) : ops.selu(T(features))
nn.gelu (features, approximate=False) : ops.gelu(T(features), approximate)
nn.silu nn.swish (features) : ops.silu(T(features))
nn.log_sigmoid math.log_sigmoid (x) : ops.log_sigmoid(T(x))
nn.softplus math.softplus (features) : ops.softplus(T(features))
nn.softmax (logits, axis=-1) : ops.softmax(T(logits), axis)
nn.log_softmax (logits, axis=-1) : ops.log_softmax(T(logits), axis)
nn.bias_add (value, bias) : ops.add(T(value), T(bias))
nn.l2_loss (t) : ops.divide(ops.sum(ops.square(T(t))), 2)
nn.l2_normalize math.l2_normalize (x, axis=None, epsilon=1e-12) : unit(T(x), ints(axis), epsilon)
nn.moments (x, axes, keepdims=False) : ops.moments(T(x), ints(axes), keepdims)
nn.batch_normalization (x, mean, variance, offset, scale, variance_epsilon) :
    normalized(T(x), T(mean), T(variance), offset, scale, variance_epsilon)
nn.embedding_lookup (params, ids, max_norm=None) : looked_up(params, ids, max_norm)
nn.dropout (x, rate) : dropped(T(x), rate)
nn.conv2d (input, filters, strides, padding, data_format="NHWC") :
    ops.conv(T(input), T(filters), window(strides), padding.lower(), LAYOUT[data_format])
nn.max_pool2d nn.max_pool (input, ksize, strides, padding) :
    ops.max_pool(T(input), window(ksize), window(strides), padding.lower())
nn.avg_pool2d nn.avg_pool (input, ksize, strides, padding) :
    ops.average_pool(T(input), window(ksize), window(strides), padding.lower())
nn.sigmoid_cross_entropy_with_logits (labels, logits) : sigmoid_loss(T(labels), T(logits))
nn.softmax_cross_entropy_with_logits (labels, logits, axis=-1) :
    ops.negative(ops.sum(ops.multiply(T(labels), ops.log_softmax(T(logits), axis)), axis))
nn.sparse_softmax_cross_entropy_with_logits (labels, logits) : sparse_loss(T(labels), T(logits))

# Random numbers; a generator of `tf.random.Generator` has a stream for each replica, these have not.
random.set_seed (seed) : random.set_seed(seed)
random.uniform (shape, minval=0, maxval=None, dtype="float32", seed=None) :
    random.uniform(ints(shape), minval, maxval, D(dtype), seed)
random.normal (shape, mean=0.0, stddev=1.0, dtype="float32", seed=None) :
    random.normal(ints(shape), mean, stddev, D(dtype), seed)
random.truncated_normal (shape, mean=0.0, stddev=1.0, dtype="float32", seed=None) :
    random.truncated_normal(ints(shape), mean, stddev, D(dtype), seed)
random.shuffle (value, seed=None) : random.shuffle(T(value), seed)

# Images, [..., height, width, channels].
image.resize (images, size) : resized(T(images), ints(size))
image.flip_left_right (image) : ops.flip(T(image), -2)
image.flip_up_down (image) : ops.flip(T(image), -3)
image.rgb_to_grayscale (images) :
    kept(images, ops.sum(ops.multiply(T(images), T([0.2989, 0.587, 0.114])), -1, keepdims=True))
image.convert_image_dtype (image, dtype) : scaled(T(image), D(dtype))

# Control flow, carried out at once.
cond (pred, true_fn=None, false_fn=None) : flow.cond(pred, true_fn, false_fn)
case (pred_fn_pairs, default=None, exclusive=False, strict=False) : flow.case(pred_fn_pairs, default, exclusive)
switch_case (branch_index, branch_fns, default=None) : flow.switch_case(branch_index, branch_fns, default)
while_loop (cond, body, loop_vars, shape_invariants=None, parallel_iterations=10, back_prop=True, swap_memory=False,
    maximum_iterations=None) :
    flow.while_loop(cond, body, loop_vars, maximum_iterations)
map_fn (fn, elems, dtype=None, parallel_iterations=None, back_prop=True, swap_memory=False, infer_shape=True,
    fn_output_signature=None) :
    flow.map_fn(fn, elems)
vectorized_map (fn, elems, fallback_to_while_loop=True, warn=True) : flow.map_fn(fn, elems)
scan (fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, infer_shape=True,
    reverse=False) :
    flow.scan(fn, elems, initializer, reverse)
foldl (fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False) :
    flow.fold(fn, elems, initializer, False, "tf.foldl")[-1]
foldr (fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False) :
    flow.fold(fn, elems, initializer, True, "tf.foldr")[-1]
py_function (func, inp, Tout=None) : flow.called(func, inp, False)
numpy_function (func=None, inp=(), Tout=None, stateful=True) : flow.called(func, inp, True)
executing_eagerly () : True
no_op () : None
group (*args) : None

# Checks.
Assert debugging.Assert (condition, data, summarize=None) : asserted(T(condition), data)
debugging.assert_less_equal (x, y, message=None) :
    checked("assert_less_equal", ops.all(ops.less_equal(*pair(x, y))), x, y, message)
debugging.assert_greater_equal (x, y, message=None) :
    checked("assert_greater_equal", ops.all(ops.greater_equal(*pair(x, y))), x, y, message)
debugging.assert_non_negative (x, message=None) :
    checked("assert_non_negative", ops.all(ops.greater_equal(T(x), 0)), x, 0, message)
debugging.assert_positive (x, message=None) :
    checked("assert_positive", ops.all(ops.greater(T(x), 0)), x, 0, message)
debugging.assert_equal (x, y, message=None) : checked("assert_equal", ops.all(ops.equal(*pair(x, y))), x, y, message)
debugging.assert_less (x, y, message=None) : checked("assert_less", ops.all(ops.less(*pair(x, y))), x, y, message)
debugging.assert_greater (x, y, message=None) :
    checked("assert_greater", ops.all(ops.greater(*pair(x, y))), x, y, message)
debugging.assert_near (x, y, rtol=1e-6, atol=1e-6, message=None) :
    checked("assert_near", ops.all(ops.less_equal(ops.abs(ops.subtract(*pair(x, y))), ops.add(atol,
    ops.multiply(rtol, ops.abs(T(y)))))), x, y, message)
debugging.assert_all_finite debugging.check_numerics (x, message="") : finite(T(x), message)
"""



class Operation(NamedTuple):
    """A line of the table.

    Attributes:
        paths: where it is below `tf`.
        parameters: as in a `def`, without `name`.
        expression: what computes it.
    """

    paths: tuple[str, ...]
    parameters: str
    expression: str


def _parsed() -> list[Operation]:
    lines: list[str] = []
    for line in _TABLE.splitlines():
        if line.startswith(" "):
            lines[-1] += f" {line.strip()}"
        elif line and not line.startswith("#"):
            lines.append(line)
    operations = []
    for line in lines:
        left, _, expression = line.partition(" : " if " : " in line else " :")
        names, _, parameters = left.partition("(")
        operations.append(Operation(tuple(names.split()), parameters.rpartition(")")[0], expression.strip()))
    return operations


OPERATIONS = {path: operation for operation in _parsed() for path in operation.paths}


@functools.cache
def find(path: str) -> Callable[..., Any] | None:
    """The operation at a path below `tf`; None where there is none.

    Raises:
        RD27: Keras, or the library below it, is not installed.
    """
    operation = OPERATIONS.get(path)
    return None if operation is None else _compiled(operation)


@functools.cache
def _compiled(operation: Operation) -> Callable[..., Any]:
    given = operation.parameters
    parameters = given if "*args" in given else f"{given}, name=None".lstrip(", ")
    call: Callable[..., Any] = eval(f"lambda {parameters}: {operation.expression}", _scope())
    call.__name__ = call.__qualname__ = operation.paths[0].rpartition(".")[2]
    call.__module__ = "refdist.tf"
    call.__doc__ = f"`tf.{operation.paths[0]}`: {operation.expression}"
    return call


@functools.cache
def _scope() -> dict[str, Any]:
    from refdist.tf import computed, drawn, flow

    library = tensors.keras()
    return {**vars(computed), "T": tensors.tensor, "ops": library.ops, "random": drawn, "flow": flow,
            "functools": functools, "math": math, "holds_array": lambda value: isinstance(value, HoldsArray)}
