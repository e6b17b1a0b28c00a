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
import inspect
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from refdist import errors
from refdist.array.convert import HoldsArray
from refdist.tf import misfits, tensors, texts
from refdist.tf.shapes import TensorShape, sizes

_TABLE = """
# Arithmetic.
abs math.abs (x) : ops.abs(T(x))
negative math.negative (x) : ops.negative(T(x))
sign math.sign (x) : ops.sign(T(x))
round math.round math.rint (x) : ops.round(T(x))
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
sinh math.sinh (x) : ops.sinh(T(x))
cosh math.cosh (x) : ops.cosh(T(x))
asinh math.asinh (x) : ops.arcsinh(T(x))
acosh math.acosh (x) : ops.arccosh(T(x))
atanh math.atanh (x) : ops.arctanh(T(x))
asin math.asin (x) : ops.arcsin(T(x))
acos math.acos (x) : ops.arccos(T(x))
atan math.atan (x) : ops.arctan(T(x))
atan2 math.atan2 (y, x) : ops.arctan2(*pair(y, x))
sigmoid math.sigmoid nn.sigmoid (x) : ops.sigmoid(T(x))
math.erf (x) : ops.erf(T(x))
math.erfc (x) : special("erfc", T(x))
math.erfinv (x) : special("erfinv", T(x))
math.erfcinv (x) : special("erfinv", ops.subtract(1, T(x)))
math.ndtri (x) : special("ndtri", T(x))
math.lgamma (x) : special("gammaln", T(x))
math.digamma (x) : special("digamma", T(x))
math.lbeta (x) : beta(T(x))
math.real (input) : real(T(input))
math.imag (input) : imaginary(T(input))
math.conj (x) : conjugate(T(x))
math.angle (input) : ops.arctan2(imaginary(T(input)), real(T(input)))
complex dtypes.complex (real, imag) : composed(T(real), T(imag))
math.igamma (a, x) : special("gammainc", *pair(a, x))
math.igammac (a, x) : special("gammaincc", *pair(a, x))
math.zeta (x, q) : special("zeta", *pair(x, q))
math.bessel_i0 (x) : special("i0", T(x))
math.bessel_i0e (x) : special("i0e", T(x))
math.bessel_i1 (x) : special("i1", T(x))
math.bessel_i1e (x) : special("i1e", T(x))
math.xlogy (x, y) : special("xlogy", *pair(x, y))
math.xlog1py (x, y) : special("xlog1py", *pair(x, y))
math.xdivy (x, y) :
    ops.where(ops.equal(pair(x, y)[0], 0), ops.zeros_like(pair(x, y)[0]), ops.divide(*pair(x, y)))
math.polyval (coeffs, x) : polynomial(coeffs, T(x))
add math.add (x, y) : ops.add(*pair(x, y))
subtract math.subtract (x, y) : ops.subtract(*pair(x, y))
multiply math.multiply (x, y) : ops.multiply(*pair(x, y))
divide math.divide truediv math.truediv (x, y) : quotient(*pair(x, y))
realdiv (x, y) : ops.divide(*pair(x, y))
truncatediv (x, y) : truncated(*pair(x, y))
truncatemod (x, y) : ops.subtract(pair(x, y)[0], ops.multiply(truncated(*pair(x, y)), pair(x, y)[1]))
scalar_mul math.scalar_mul (scalar, x) : ops.multiply(*pair(scalar, x))
math.reciprocal_no_nan (x) : ops.divide_no_nan(ops.ones_like(T(x)), T(x))
math.divide_no_nan (x, y) : ops.divide_no_nan(*pair(x, y))
math.multiply_no_nan (x, y) :
    ops.where(ops.equal(pair(x, y)[1], 0), ops.zeros_like(pair(x, y)[0]), ops.multiply(*pair(x, y)))
math.floordiv (x, y) : ops.floor_divide(*pair(x, y))
math.mod math.floormod (x, y) : ops.mod(*pair(x, y))
pow math.pow (x, y) : ops.power(*pair(x, y))
maximum math.maximum (x, y) : ops.maximum(*pair(x, y))
minimum math.minimum (x, y) : ops.minimum(*pair(x, y))
math.squared_difference (x, y) : ops.square(ops.subtract(*pair(x, y)))
add_n math.add_n (inputs) : functools.reduce(ops.add, alike(inputs))
math.accumulate_n (inputs, shape=None, tensor_dtype=None) : functools.reduce(ops.add, alike(inputs))
clip_by_value (t, clip_value_min, clip_value_max) : kept(t, ops.clip(T(t), clip_value_min, clip_value_max))
clip_by_norm (t, clip_norm, axes=None) : clipped(T(t), clip_norm, axes)
linalg.global_norm (t_list) : global_norm(t_list)
clip_by_global_norm (t_list, clip_norm, use_norm=None) : clipped_together(t_list, clip_norm, use_norm)
cumsum math.cumsum (x, axis=0, exclusive=False, reverse=False) :
    accumulated(T(x), ops.cumsum, 0, axis, exclusive, reverse)
math.cumulative_logsumexp (x, axis=0, exclusive=False, reverse=False) :
    accumulated(T(x), accumulated_logsumexp, -math.inf, axis, exclusive, reverse)
math.cumprod (x, axis=0, exclusive=False, reverse=False) : accumulated(T(x), ops.cumprod, 1, axis, exclusive, reverse)

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
math.is_non_decreasing (x) : rising(T(x), False)
math.is_strictly_increasing (x) : rising(T(x), True)
math.is_nan (x) : ops.isnan(T(x))
math.is_inf (x) : ops.isinf(T(x))
math.is_finite (x) : ops.isfinite(T(x))
where (condition, x=None, y=None) : places(T(condition)) if x is None else ops.where(T(condition), *pair(x, y))

# Bits of integers.
bitwise.bitwise_and (x, y) : bits("bitwise_and", x, y)
bitwise.bitwise_or (x, y) : bits("bitwise_or", x, y)
bitwise.bitwise_xor (x, y) : bits("bitwise_xor", x, y)
bitwise.invert (x) : bits("invert", x)
bitwise.left_shift (x, y) : bits("left_shift", x, y)
bitwise.right_shift (x, y) : bits("right_shift", x, y)

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
math.bincount (arr, weights=None, minlength=None, maxlength=None, dtype="int32", *, axis=None, binary_output=False) :
    groups.counts(arr, weights, minlength, maxlength, D(dtype), axis, binary_output)
math.segment_sum (data, segment_ids) : groups.segment("sum", data, segment_ids)
math.segment_mean (data, segment_ids) : groups.segment("mean", data, segment_ids)
math.segment_max (data, segment_ids) : groups.segment("max", data, segment_ids)
math.segment_min (data, segment_ids) : groups.segment("min", data, segment_ids)
math.segment_prod (data, segment_ids) : groups.segment("prod", data, segment_ids)
math.unsorted_segment_sum (data, segment_ids, num_segments) :
    groups.unsorted_segment("sum", data, segment_ids, num_segments)
math.unsorted_segment_mean (data, segment_ids, num_segments) :
    groups.unsorted_segment("mean", data, segment_ids, num_segments)
math.unsorted_segment_sqrt_n (data, segment_ids, num_segments) :
    groups.unsorted_segment("sqrt_n", data, segment_ids, num_segments)
math.unsorted_segment_max (data, segment_ids, num_segments) :
    groups.unsorted_segment("max", data, segment_ids, num_segments)
math.unsorted_segment_min (data, segment_ids, num_segments) :
    groups.unsorted_segment("min", data, segment_ids, num_segments)
math.unsorted_segment_prod (data, segment_ids, num_segments) :
    groups.unsorted_segment("prod", data, segment_ids, num_segments)
math.confusion_matrix (labels, predictions, num_classes=None, weights=None, dtype="int32") :
    groups.confusion(labels, predictions, num_classes, weights, D(dtype))
histogram_fixed_width (values, value_range, nbins=100, dtype="int32") :
    groups.histogram(values, value_range, nbins, D(dtype))
histogram_fixed_width_bins (values, value_range, nbins=100, dtype="int32") :
    groups.bins(values, value_range, nbins, D(dtype))
math.in_top_k nn.in_top_k (targets, predictions, k) : in_top_k(T(targets), T(predictions), int(k))
math.top_k nn.top_k (input, k=1, sorted=True) : TopKV2(*top(T(input), k, sorted))
math.reduce_euclidean_norm (input_tensor, axis=None, keepdims=False) :
    matrices.norm(T(input_tensor), "euclidean", ints(axis), keepdims)
nn.zero_fraction math.zero_fraction (value) : ops.mean(ops.cast(ops.equal(T(value), 0), "float32"))
searchsorted (sorted_sequence, values, side="left", out_type="int32") :
    ops.cast(ops.searchsorted(T(sorted_sequence), T(values), side), D(out_type))
sort (values, axis=-1, direction="ASCENDING") :
    ops.flip(ops.sort(T(values), axis), axis) if descends(direction) else ops.sort(T(values), axis)
argsort (values, axis=-1, direction="ASCENDING", stable=False) :
    ops.cast(ops.argsort(opposite(T(values)) if descends(direction) else T(values), axis), "int32")

# Tensors from nothing, and their shapes.
convert_to_tensor (value, dtype=None) : T(value, dtype)
cast dtypes.cast (x, dtype) : ops.cast(T(x), D(dtype))
saturate_cast dtypes.saturate_cast (value, dtype) : saturated(T(value), D(dtype))
bitcast (input, type) : T(np.asarray(T(input)).view(D(type)))
get_static_value (tensor, partial=False) : np.asarray(T(tensor))
timestamp () : T(time.time(), "float64")
identity stop_gradient (input) : ops.copy(T(input))
identity_n (input) : [ops.copy(T(part)) for part in input]
zeros (shape, dtype="float32") : ops.zeros(ints(shape), D(dtype))
ones (shape, dtype="float32") : ops.ones(ints(shape), D(dtype))
zeros_like (input, dtype=None) : ops.zeros_like(T(input), D(dtype))
ones_like (input, dtype=None) : ops.ones_like(T(input), D(dtype))
fill (dims, value) : ops.full(ints(dims), T(value), dtype=T(value).dtype)
eye linalg.eye (num_rows, num_columns=None, dtype="float32") : ops.eye(num_rows, num_columns, dtype=D(dtype))
range (start, limit=None, delta=1, dtype=None) : count(start, limit, delta, D(dtype))
linspace (start, stop, num) : ops.linspace(T(start), T(stop), num)
one_hot (indices, depth, on_value=None, off_value=None, axis=-1, dtype=None) :
    hot(T(indices), int(depth), on_value, off_value, -1 if axis is None else axis, D(dtype))
sequence_mask (lengths, maxlen=None, dtype="bool") : mask(T(lengths), maxlen, D(dtype))
shape (input, out_type="int32") : T(list(ops.shape(T(input))), out_type)
size (input, out_type="int32") : T(math.prod(ops.shape(T(input))), out_type)
rank (input) : T(len(ops.shape(T(input))))
shape_n (input, out_type="int32") : [T(list(ops.shape(T(part))), out_type) for part in input]
broadcast_dynamic_shape (shape_x, shape_y) : T(broadcast(ints(shape_x), ints(shape_y)), "int32")
broadcast_static_shape (shape_x, shape_y) : TensorShape(broadcast(shape_x, shape_y))
is_symbolic_tensor (tensor) : False
is_tensor (x) : ops.is_tensor(x) or holds_array(x)
ensure_shape (x, shape) : ensured(T(x), shape)

# Other arrangements.
reshape (tensor, shape) : ops.reshape(T(tensor), ints(shape))
transpose (a, perm=None) : ops.transpose(T(a), ints(perm))
expand_dims (input, axis) : ops.expand_dims(T(input), axis)
squeeze (input, axis=None) : squeezed(T(input), ints(axis))
concat (values, axis) : ops.concatenate(alike(values), int(axis))
stack (values, axis=0) : ops.stack(alike(values), axis)
unstack (value, num=None, axis=0) : unstacked(T(value), num, axis)
split (value, num_or_size_splits, axis=0) : parts(T(value), num_or_size_splits, axis)
tile (input, multiples) : tiled(T(input), ints(multiples))
repeat (input, repeats, axis=None) : ops.repeat(T(input), repeats if isinstance(repeats, int) else T(repeats), axis)
pad (tensor, paddings, mode="CONSTANT", constant_values=0) :
    ops.pad(T(tensor), [ints(both) for both in paddings], mode.lower(),
    **({"constant_values": constant_values} if mode == "CONSTANT" else {}))
reverse (tensor, axis) : ops.flip(T(tensor), ints(axis))
roll (input, shift, axis) : ops.roll(T(input), ints(shift), ints(axis))
broadcast_to (input, shape) : ops.broadcast_to(T(input), ints(shape))
meshgrid (*args, indexing="xy") : list(ops.meshgrid(*map(T, args), indexing=indexing))
slice (input_, begin, size) : cut(T(input_), ints(begin), ints(size))
gather (params, indices, validate_indices=None, axis=None, batch_dims=0) :
    gathered(rows(params), T(indices), axis, batch_dims)
gather_nd (params, indices) : picked(rows(params), T(indices))
boolean_mask (tensor, mask, axis=None) : masked(T(tensor), T(mask), axis or 0)
scatter_nd (indices, updates, shape) : ops.scatter(T(indices), T(updates), ints(shape))
tensor_scatter_nd_update (tensor, indices, updates) :
    ops.scatter_update(pair(tensor, updates)[0], T(indices), pair(tensor, updates)[1])
tensor_scatter_nd_add (tensor, indices, updates) : added(pair(tensor, updates)[0], T(indices), pair(tensor, updates)[1])
tensor_scatter_nd_sub (tensor, indices, updates) : added(T(tensor), T(indices), ops.negative(T(updates)))
tensor_scatter_nd_max (tensor, indices, updates) : groups.extreme("max", *pair(tensor, updates), indices)
tensor_scatter_nd_min (tensor, indices, updates) : groups.extreme("min", *pair(tensor, updates), indices)
dynamic_partition (data, partitions, num_partitions) : groups.partition(data, partitions, num_partitions)
dynamic_stitch (indices, data) : groups.stitch(indices, data)
unravel_index (indices, dims) : groups.unraveled(indices, ints(dims))
math.invert_permutation (x) : groups.inverted(x)
reverse_sequence (input, seq_lengths, seq_axis=None, batch_axis=None) :
    groups.reversed_rows(T(input), seq_lengths, seq_axis, batch_axis)
unique (x, out_idx="int32") : Unique(*distinct(T(x), D(out_idx))[:2])
unique_with_counts (x, out_idx="int32") : UniqueWithCounts(*distinct(T(x), D(out_idx)))

# Products.
matmul linalg.matmul (a, b, transpose_a=False, transpose_b=False, adjoint_a=False, adjoint_b=False) :
    matrices.product(*pair(a, b), transpose_a, transpose_b, adjoint_a, adjoint_b)
tensordot linalg.tensordot (a, b, axes) : ops.tensordot(*pair(a, b), axes)
einsum linalg.einsum (equation, *inputs) : ops.einsum(equation, *alike(inputs))
norm linalg.norm (tensor, ord="euclidean", axis=None, keepdims=False) :
    matrices.norm(T(tensor), ord, ints(axis), keepdims)
linalg.matvec (a, b, transpose_a=False, adjoint_a=False) :
    ops.squeeze(ops.matmul(matrices.turned(pair(a, b)[0], transpose_a, adjoint_a),
    ops.expand_dims(pair(a, b)[1], -1)), -1)
linalg.diag (diagonal, *, k=0) : matrices.of_diagonal(T(diagonal), int(k))
linalg.diag_part (input, *, k=0) : matrices.diagonal_part(T(input), int(k))
linalg.set_diag (input, diagonal, *, k=0) : matrices.with_diagonal(T(input), T(diagonal), int(k))
linalg.tensor_diag (diagonal) : matrices.of_tensor(T(diagonal))
linalg.tensor_diag_part (input) : matrices.diagonal_of_tensor(T(input))
linalg.band_part (input, num_lower, num_upper) : matrices.band(T(input), int(num_lower), int(num_upper))
linalg.matrix_transpose (a) : ops.swapaxes(T(a), -1, -2)
linalg.adjoint (matrix) : matrices.turned(T(matrix), False, True)
linalg.normalize (tensor, ord="euclidean", axis=None) : matrices.normed(T(tensor), ord, ints(axis))
linalg.trace (x) : ops.trace(T(x), axis1=-2, axis2=-1)
linalg.cross (a, b) : matrices.cross(T(a), T(b))
linalg.inv (input, adjoint=False) : matrices.inverse(T(input), adjoint)
linalg.pinv (a, rcond=None, validate_args=False) : matrices.pseudoinverse(T(a), rcond)
linalg.expm (input) : matrices.exponential(T(input))
linalg.det (input) : ops.det(T(input))
linalg.logdet (matrix) : matrices.log_of_determinant(T(matrix))
linalg.slogdet (input) : matrices.sign_and_logarithm(T(input))
linalg.matrix_rank (a, tol=None, validate_args=False) : matrices.rank(T(a), tol)
linalg.solve (matrix, rhs, adjoint=False) : matrices.solution(T(matrix), T(rhs), adjoint)
linalg.triangular_solve (matrix, rhs, lower=True, adjoint=False) :
    matrices.triangular_solution(*pair(matrix, rhs), lower, adjoint)
linalg.lstsq (matrix, rhs, l2_regularizer=0.0, fast=True) :
    matrices.least_squares(*pair(matrix, rhs), float(l2_regularizer), fast)
linalg.cholesky (input) : matrices.cholesky(T(input))
linalg.cholesky_solve (chol, rhs) : matrices.cholesky_solution(*pair(chol, rhs))
linalg.qr (input, full_matrices=False) : matrices.factors(T(input), full_matrices)
linalg.svd (tensor, full_matrices=False, compute_uv=True) : matrices.singular(T(tensor), full_matrices, compute_uv)
linalg.eigh (tensor) : tuple(ops.eigh(T(tensor)))
linalg.eigvalsh (tensor) : ops.eigh(T(tensor))[0]

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
nn.softmax math.softmax (logits, axis=None) : ops.softmax(T(logits), -1 if axis is None else axis)
nn.log_softmax math.log_softmax (logits, axis=None) : ops.log_softmax(T(logits), -1 if axis is None else axis)
nn.softsign math.softsign (features) : ops.softsign(T(features))
nn.weighted_cross_entropy_with_logits (labels, logits, pos_weight) : weighted_loss(T(labels), T(logits), pos_weight)
nn.bias_add (value, bias) : ops.add(*pair(value, bias))
nn.l2_loss (t) : ops.divide(ops.sum(ops.square(T(t))), 2)
nn.l2_normalize math.l2_normalize linalg.l2_normalize (x, axis=None, epsilon=1e-12) : unit(T(x), ints(axis), epsilon)
nn.moments (x, axes, shift=None, keepdims=False) : ops.moments(T(x), ints(axes), keepdims)
nn.weighted_moments (x, axes, frequency_weights, keepdims=False) :
    weighted_moments(T(x), frequency_weights, ints(axes), keepdims)
nn.lrn nn.local_response_normalization (input, depth_radius=5, bias=1, alpha=1, beta=0.5) :
    windows.among_channels(T(input), int(depth_radius), bias, alpha, beta)
nn.batch_normalization (x, mean, variance, offset, scale, variance_epsilon) :
    normalized(T(x), T(mean), T(variance), offset, scale, variance_epsilon)
nn.embedding_lookup (params, ids, max_norm=None) : looked_up(params, ids, max_norm)
nn.dropout (x, rate, noise_shape=None, seed=None) :
    windows.dropped(T(x), rate, noise_shape, lambda shape, dtype: random.uniform(shape, 0, 1, dtype, seed))
nn.experimental.stateless_dropout (x, rate, seed, rng_alg="auto_select", noise_shape=None) :
    windows.dropped(T(x), rate, noise_shape, lambda shape, dtype: stateless.uniform(shape, seed, 0, 1, dtype))
nn.convolution (input, filters, strides=1, padding="VALID", data_format=None, dilations=None) :
    windows.convolved("tf.nn.convolution", None, input, filters, strides, padding, data_format, dilations)
nn.conv1d (input, filters, stride, padding, data_format="NWC", dilations=None) :
    windows.convolved("tf.nn.conv1d", 1, input, filters, stride, padding, data_format, dilations)
nn.conv2d (input, filters, strides, padding, data_format="NHWC", dilations=None) :
    windows.convolved("tf.nn.conv2d", 2, input, filters, strides, padding, data_format, dilations)
nn.conv3d (input, filters, strides, padding, data_format="NDHWC", dilations=None) :
    windows.convolved("tf.nn.conv3d", 3, input, filters, strides, padding, data_format, dilations)
nn.conv1d_transpose (input, filters, output_shape, strides, padding="SAME", data_format="NWC") :
    windows.spread("tf.nn.conv1d_transpose", 1, T(input), T(filters), output_shape, strides, padding, data_format)
nn.conv2d_transpose (input, filters, output_shape, strides, padding="SAME", data_format="NHWC") :
    windows.spread("tf.nn.conv2d_transpose", 2, T(input), T(filters), output_shape, strides, padding, data_format)
nn.conv3d_transpose (input, filters, output_shape, strides, padding="SAME", data_format="NDHWC") :
    windows.spread("tf.nn.conv3d_transpose", 3, T(input), T(filters), output_shape, strides, padding, data_format)
nn.depthwise_conv2d (input, filter, strides, padding, data_format=None, dilations=None) :
    windows.convolved("tf.nn.depthwise_conv2d", 2, input, filter, strides, padding, data_format, dilations,
    "depthwise_conv")
nn.separable_conv2d (input, depthwise_filter, pointwise_filter, strides, padding, data_format=None, dilations=None) :
    windows.convolved("tf.nn.separable_conv2d", 2, windows.convolved("tf.nn.separable_conv2d", 2, input,
    depthwise_filter, strides, padding, data_format, dilations, "depthwise_conv"), pointwise_filter, 1, "VALID",
    data_format, None)
nn.max_pool (input, ksize, strides, padding, data_format=None) :
    windows.pooled("tf.nn.max_pool", "max", None, input, ksize, strides, padding, data_format)
nn.max_pool1d (input, ksize, strides, padding, data_format="NWC") :
    windows.pooled("tf.nn.max_pool1d", "max", 1, input, ksize, strides, padding, data_format)
nn.max_pool2d (input, ksize, strides, padding, data_format="NHWC") :
    windows.pooled("tf.nn.max_pool2d", "max", 2, input, ksize, strides, padding, data_format)
nn.max_pool3d (input, ksize, strides, padding, data_format="NDHWC") :
    windows.pooled("tf.nn.max_pool3d", "max", 3, input, ksize, strides, padding, data_format)
nn.avg_pool (input, ksize, strides, padding, data_format=None) :
    windows.pooled("tf.nn.avg_pool", "average", None, input, ksize, strides, padding, data_format)
nn.avg_pool1d (input, ksize, strides, padding, data_format="NWC") :
    windows.pooled("tf.nn.avg_pool1d", "average", 1, input, ksize, strides, padding, data_format)
nn.avg_pool2d (input, ksize, strides, padding, data_format="NHWC") :
    windows.pooled("tf.nn.avg_pool2d", "average", 2, input, ksize, strides, padding, data_format)
nn.avg_pool3d (input, ksize, strides, padding, data_format="NDHWC") :
    windows.pooled("tf.nn.avg_pool3d", "average", 3, input, ksize, strides, padding, data_format)
nn.space_to_depth (input, block_size) : windows.deeper(T(input), int(block_size))
nn.depth_to_space (input, block_size) : windows.wider(T(input), int(block_size))
nn.crelu (features, axis=-1) :
    ops.concatenate([ops.relu(T(features)), ops.relu(ops.negative(T(features)))], int(axis))
nn.sigmoid_cross_entropy_with_logits (labels, logits) : sigmoid_loss(*pair(labels, logits))
nn.softmax_cross_entropy_with_logits (labels, logits, axis=-1) :
    ops.negative(ops.sum(ops.multiply(T(labels), ops.log_softmax(T(logits), axis)), axis))
nn.sparse_softmax_cross_entropy_with_logits (labels, logits) : sparse_loss(T(labels), T(logits))

# Random numbers; a generator of `tf.random.Generator` has a stream for each replica, these have not.
random.set_seed (seed) : random.set_seed(seed)
random.uniform (shape, minval=0, maxval=None, dtype="float32", seed=None) :
    random.uniform(sizes(shape), minval, maxval, D(dtype), seed)
random.normal (shape, mean=0.0, stddev=1.0, dtype="float32", seed=None) :
    random.normal(sizes(shape), mean, stddev, D(dtype), seed)
random.truncated_normal (shape, mean=0.0, stddev=1.0, dtype="float32", seed=None) :
    random.truncated_normal(sizes(shape), mean, stddev, D(dtype), seed)
random.shuffle (value, seed=None) : random.shuffle(T(value), seed)
random.categorical (logits, num_samples, dtype=None, seed=None) :
    ops.cast(random.categorical(logits_of(T(logits)), int(num_samples), seed), D(dtype or "int64"))

# Random numbers that a seed of two integers decides: TensorFlow's.
random.stateless_uniform (shape, seed, minval=0, maxval=None, dtype="float32", alg="auto_select") :
    stateless.uniform(sizes(shape), seed, minval, maxval, D(dtype))
random.stateless_normal (shape, seed, mean=0.0, stddev=1.0, dtype="float32", alg="auto_select") :
    stateless.normal(sizes(shape), seed, mean, stddev, D(dtype))
random.stateless_truncated_normal (shape, seed, mean=0.0, stddev=1.0, dtype="float32", alg="auto_select") :
    stateless.truncated_normal(sizes(shape), seed, mean, stddev, D(dtype))
random.stateless_categorical (logits, num_samples, seed, dtype="int64") :
    stateless.categorical(logits_of(T(logits)), int(num_samples), seed, D(dtype))
random.split random.experimental.stateless_split (seed, num=2, alg="auto_select") : stateless.split(seed, int(num))
random.fold_in random.experimental.stateless_fold_in (seed, data, alg="auto_select") : stateless.fold_in(seed, data)

# Images, [..., height, width, channels].
image.resize (images, size, method="bilinear", preserve_aspect_ratio=False, antialias=False) :
    resized(I(images), ints(size), method, preserve_aspect_ratio, antialias)
image.flip_left_right (image) : ops.flip(I(image), -2)
image.flip_up_down (image) : ops.flip(I(image), -3)
image.rgb_to_grayscale (images) :
    kept(images, ops.sum(ops.multiply(I(images), T([0.2989, 0.587, 0.114])), -1, keepdims=True))
image.convert_image_dtype (image, dtype, saturate=False) : scaled(T(image), D(dtype), saturate)
image.grayscale_to_rgb (images) : ops.repeat(I(images), 3, -1)
image.transpose (image) : ops.swapaxes(I(image), -2, -3)
image.rot90 (image, k=1) : ops.rot90(I(image), int(k), (-3, -2))
image.central_crop (image, central_fraction) : pixels.central_crop(I(image), float(central_fraction))
image.crop_to_bounding_box (image, offset_height, offset_width, target_height, target_width) :
    pixels.crop(I(image), *map(int, (offset_height, offset_width, target_height, target_width)))
image.pad_to_bounding_box (image, offset_height, offset_width, target_height, target_width) :
    pixels.pad(I(image), *map(int, (offset_height, offset_width, target_height, target_width)))
image.resize_with_crop_or_pad (image, target_height, target_width) :
    pixels.crop_or_pad(I(image), int(target_height), int(target_width))
image.resize_with_pad (image, target_height, target_width, method="bilinear", antialias=False) :
    pixels.resized_and_padded(I(image), int(target_height), int(target_width), method, antialias)
image.psnr (a, b, max_val) : pixels.noise(I(a), I(b), max_val)
image.ssim (img1, img2, max_val, filter_size=11, filter_sigma=1.5, k1=0.01, k2=0.03, return_index_map=False) :
    pixels.similarity(I(img1), I(img2), max_val, int(filter_size), filter_sigma, k1, k2, return_index_map)
image.per_image_standardization (image) : pixels.standardized(I(image))
image.adjust_brightness (image, delta) : pixels.brighter(I(image), delta)
image.adjust_contrast (images, contrast_factor) : pixels.contrasted(I(images), contrast_factor)
image.adjust_gamma (image, gamma=1, gain=1) : pixels.brightened(I(image), gamma, gain)
image.rgb_to_hsv (images) : pixels.to_hsv(I(images))
image.hsv_to_rgb (images) : pixels.to_rgb(I(images))
image.rgb_to_yuv (images) : pixels.mixed(I(images), "rgb_to_yuv")
image.yuv_to_rgb (images) : pixels.mixed(I(images), "yuv_to_rgb")
image.rgb_to_yiq (images) : pixels.mixed(I(images), "rgb_to_yiq")
image.yiq_to_rgb (images) : pixels.mixed(I(images), "yiq_to_rgb")
image.image_gradients (image) : pixels.slopes(I(image))
image.total_variation (images) : pixels.variation(I(images))
image.extract_patches (images, sizes, strides, rates, padding) :
    pixels.patches(I(images), sizes, strides, rates, padding)
image.adjust_saturation (image, saturation_factor) : pixels.saturated(I(image), saturation_factor)
image.adjust_hue (image, delta) : pixels.turned(I(image), delta)
image.random_flip_left_right (image, seed=None) :
    pixels.flipped(I(image), -2, lambda shape: random.uniform(shape, 0, 1, "float32", seed))
image.random_flip_up_down (image, seed=None) :
    pixels.flipped(I(image), -3, lambda shape: random.uniform(shape, 0, 1, "float32", seed))
image.random_crop (value, size, seed=None) :
    pixels.random_crop(T(value), ints(size), lambda count: random.uniform((count,), 0, 2**31 - 1, "int32", seed))
image.random_brightness (image, max_delta, seed=None) :
    pixels.brighter(I(image), random.uniform((), *pixels.span(-max_delta, max_delta), "float32", seed))
image.random_contrast (image, lower, upper, seed=None) :
    pixels.contrasted(I(image), random.uniform((), *pixels.span(lower, upper), "float32", seed))
image.random_saturation (image, lower, upper, seed=None) :
    pixels.saturated(I(image), random.uniform((), *pixels.span(lower, upper), "float32", seed))
image.random_hue (image, max_delta, seed=None) :
    pixels.turned(I(image), random.uniform((), *pixels.span(-max_delta, max_delta, 0.5), "float32", seed))
image.stateless_random_flip_left_right (image, seed) :
    pixels.flipped(I(image), -2, lambda shape: stateless.uniform(shape, seed, 0, 1, "float32"))
image.stateless_random_flip_up_down (image, seed) :
    pixels.flipped(I(image), -3, lambda shape: stateless.uniform(shape, seed, 0, 1, "float32"))
image.stateless_random_crop (value, size, seed) :
    pixels.random_crop(T(value), ints(size), lambda count: stateless.uniform((count,), seed, 0, 2**31 - 1, "int32"))
image.stateless_random_brightness (image, max_delta, seed) :
    pixels.brighter(I(image), stateless.uniform((), seed, *pixels.span(-max_delta, max_delta), "float32"))
image.stateless_random_contrast (image, lower, upper, seed) :
    pixels.contrasted(I(image), stateless.uniform((), seed, *pixels.span(lower, upper), "float32"))
image.stateless_random_saturation (image, lower, upper, seed) :
    pixels.saturated(I(image), stateless.uniform((), seed, *pixels.span(lower, upper), "float32"))
image.stateless_random_hue (image, max_delta, seed) :
    pixels.turned(I(image), stateless.uniform((), seed, *pixels.span(-max_delta, max_delta, 0.5), "float32"))

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
py_function (func=None, inp=None, Tout=None) : flow.called(func, inp, False)
numpy_function (func=None, inp=None, Tout=None, stateful=True) : flow.called(func, inp, True)
recompute_grad (f) : f
executing_eagerly () : True
no_op () : None
group (*args) : None

# Checks.
Assert debugging.Assert (condition, data, summarize=None) : asserted(T(condition), data)
debugging.assert_less_equal (x, y, message=None, summarize=None) :
    checked("assert_less_equal", ops.all(ops.less_equal(*pair(x, y))), x, y, message)
debugging.assert_greater_equal (x, y, message=None, summarize=None) :
    checked("assert_greater_equal", ops.all(ops.greater_equal(*pair(x, y))), x, y, message)
debugging.assert_non_negative (x, message=None, summarize=None) :
    checked("assert_non_negative", ops.all(ops.greater_equal(T(x), 0)), x, 0, message)
debugging.assert_positive (x, message=None, summarize=None) :
    checked("assert_positive", ops.all(ops.greater(T(x), 0)), x, 0, message)
assert_equal debugging.assert_equal (x, y, message=None, summarize=None) :
    checked("assert_equal", ops.all(ops.equal(*pair(x, y))), x, y, message)
assert_less debugging.assert_less (x, y, message=None, summarize=None) :
    checked("assert_less", ops.all(ops.less(*pair(x, y))), x, y, message)
assert_greater debugging.assert_greater (x, y, message=None, summarize=None) :
    checked("assert_greater", ops.all(ops.greater(*pair(x, y))), x, y, message)
debugging.assert_near (x, y, rtol=None, atol=None, message=None, summarize=None) :
    checked("assert_near", near(*pair(x, y), rtol, atol), x, y, message)
debugging.assert_none_equal (x, y, summarize=None, message=None) :
    checked("assert_none_equal", ops.all(ops.not_equal(*pair(x, y))), x, y, message)
debugging.assert_negative (x, message=None, summarize=None) :
    checked("assert_negative", ops.all(ops.less(T(x), 0)), x, 0, message)
debugging.assert_non_positive (x, message=None, summarize=None) :
    checked("assert_non_positive", ops.all(ops.less_equal(T(x), 0)), x, 0, message)
assert_rank debugging.assert_rank (x, rank, message=None) :
    checked("assert_rank", T(x).ndim == int(rank), x, rank, message, errors.InvalidValueError)
debugging.assert_rank_at_least (x, rank, message=None) :
    checked("assert_rank_at_least", T(x).ndim >= int(rank), x, rank, message, errors.InvalidValueError)
debugging.assert_rank_in (x, ranks, message=None) :
    checked("assert_rank_in", T(x).ndim in ints(ranks), x, ranks, message, errors.InvalidValueError)
debugging.assert_shapes (shapes, data=None, summarize=None, message=None) : shaped(shapes, message)
debugging.assert_integer (x, message=None) :
    checked("assert_integer", "int" in name_of(T(x)), name_of(T(x)), "an integer", message, errors.InvalidTypeError)
debugging.assert_type (tensor, tf_type, message=None) :
    checked("assert_type", name_of(T(tensor)) == D(tf_type), name_of(T(tensor)), D(tf_type), message,
    errors.InvalidTypeError)
debugging.assert_scalar (tensor, message=None) :
    checked("assert_scalar", not T(tensor).ndim, tensor, "a scalar", message, errors.InvalidValueError)
debugging.is_numeric_tensor (tensor) : ops.is_tensor(tensor) and name_of(tensor) != "bool"
debugging.assert_all_finite debugging.check_numerics (x, message="") : finite(T(x), message)
"""

# Operations whose arguments have to be of a kind of dtypes, though the library takes others.
_KINDS = {
    "floats": """floor math.ceil sqrt math.rsqrt math.reciprocal exp math.expm1 math.log math.log1p sin cos tan
        tanh sinh cosh asinh acosh atanh asin acos atan atan2 sigmoid math.erf math.erfc math.erfinv math.erfcinv
        math.ndtri math.lgamma math.digamma math.lbeta math.zeta math.igamma math.igammac math.bessel_i0 math.bessel_i0e
        math.bessel_i1 math.bessel_i1e math.xlogy math.xlog1py math.xdivy math.reciprocal_no_nan math.multiply_no_nan
        clip_by_norm math.is_nan math.is_inf math.is_finite reduce_logsumexp math.reduce_variance math.reduce_std norm
        linalg.normalize nn.softsign nn.l2_loss nn.l2_normalize nn.sigmoid_cross_entropy_with_logits""",
    "bools": "logical_and logical_or logical_not math.logical_xor reduce_any reduce_all",
    "numbers": """abs sign square cumsum math.cumprod reduce_sum reduce_mean reduce_max reduce_min reduce_prod sort
        argsort"""}
_KIND_OF = {path: kind for kind, paths in _KINDS.items() for path in paths.split()}

# An operation as a function; where it calls none of the program's, errors of libraries are about its arguments.
_FORM = """
def call({parameters}):
    try:
        {check}return {expression}
    except {failures} as failure:
        refuse({path!r}, failure, locals())
        raise
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
    written = operation.parameters
    parameters = written if "*args" in written else f"{written}, name=None".lstrip(", ")
    scope: dict[str, Any] = {}
    failures = "()" if operation.expression.startswith("flow.") else "FAILURES"
    kind = _KIND_OF.get(operation.paths[0])
    given = [name for name in written.split(", ") if "=" not in name]
    if f"pair({', '.join(given)})" in operation.expression:
        given = [f"pair({', '.join(given)})[0]"]
    elif kind != "bools":
        del given[1:]
    check = "".join(f"check_kind({operation.paths[0]!r}, {kind!r}, {name}); " for name in given) if kind else ""
    text = _FORM.format(parameters=parameters, expression=operation.expression, failures=failures, check=check,
                        path=operation.paths[0])
    exec(compile(text, f"<tf.{operation.paths[0]}>", "exec"), _scope(), scope)
    call: Callable[..., Any] = scope["call"]
    call.__name__ = call.__qualname__ = operation.paths[0].rpartition(".")[2]
    call.__module__ = "refdist.tf"
    call.__doc__ = f"`tf.{operation.paths[0]}`: {operation.expression}"
    of_text = texts.FUNCTIONS.get(operation.paths[0])
    if of_text is None:
        return call
    function, places = of_text
    return _also_of_text(call, misfits.checked(function, f"tf.{operation.paths[0]}"), places)


def _refuse(path: str, failure: Exception, values: dict[str, Any]) -> None:
    call = find(path)
    assert call is not None
    given = {name: values[name] for name, parameter in inspect.signature(call).parameters.items()
             if values[name] is not parameter.default}
    values.clear()  # the frame keeps them, and the failure among them keeps the frame
    misfits.refuse(f"tf.{path}", failure, given)


def _also_of_text(call: Callable[..., Any], of_text: Callable[..., Any], places: tuple[int, ...]) -> Callable[..., Any]:
    names = list(inspect.signature(call).parameters)

    @functools.wraps(call)
    def either(*args: Any, **kwargs: Any) -> Any:
        has_text = any(texts.is_text(args[place] if place < len(args) else kwargs.get(names[place]))
                       for place in places)
        return (of_text if has_text else call)(*args, **kwargs)
    return either


@functools.cache
def _scope() -> dict[str, Any]:
    from refdist.tf import computed, drawn, flow, groups, images, matrices, stateless, windows

    library = tensors.keras()
    return {**vars(computed), "Unique": texts.Unique, "T": tensors.tensor, "I": images.required, "ops": library.ops,
            "random": drawn, "stateless": stateless, "flow": flow, "groups": groups, "matrices": matrices,
            "pixels": images, "windows": windows, "sizes": sizes, "TensorShape": TensorShape, "errors": errors,
            "functools": functools, "math": math, "time": time, "FAILURES": misfits.FAILURES, "refuse": _refuse,
            "holds_array": lambda value: isinstance(value, HoldsArray)}
