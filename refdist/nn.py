"""The part of `tf.nn` that concerns distribution: losses that are divided so that their sum over replicas is right, and
rows of a variable that may be sharded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refdist import errors
from refdist.array import collectives, replica_checks
from refdist.array.backend import constant, current_backend
from refdist.array.convert import as_array, astype, dtype_of, is_recorded, native, on_device_of, to_array, xp_of
from refdist.array.float_errors import Reported
from refdist.array.types import Array
from refdist.core import checks, context_stack
from refdist.core.rules.values import MEAN_DTYPE
from refdist.strategies.replica_context import get_strategy, has_strategy, in_cross_replica_context
from refdist.variables.sharded import ShardedVariable
from refdist.variables.variable import Variable

__all__ = ["compute_average_loss", "embedding_lookup", "scale_regularization_loss"]


def compute_average_loss(per_example_loss: object, sample_weight: object = None,
                         global_batch_size: object = None) -> Any:
    """Sums the losses of this replica's examples and divides by the size of the global batch.

    The sum of the results over all replicas is the mean loss of all examples; the same holds for gradients.

    Args:
        per_example_loss: numbers of shape [batch, ...] and any dtype of numbers.
        sample_weight: a factor for each loss: a number, or an array that can be broadcast to the losses, if necessary
            after a last dimension of size 1 is added or removed; None for 1.
        global_batch_size: an int; None for the first dimension of the losses times the number of replicas, which is
            wrong where replicas have batches of different sizes.

    Returns:
        A read-only array of shape [], with the dtype of the losses; for ints the float dtype that their mean has.
        0 if `global_batch_size` is 0.

    >>> import numpy as np, refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> [rows] = strategy.experimental_distribute_dataset([np.array([1.0, 2.0, 6.0], np.float32)])
    >>> parts = strategy.run(lambda losses: refdist.nn.compute_average_loss(losses, global_batch_size=3), args=(rows,))
    >>> [float(part) for part in parts.values], float(strategy.reduce("SUM", parts, axis=None))
    ([1.0, 2.0], 3.0)

    Raises:
        RD04: weights that cannot be broadcast.  RD05: weights that are not real numbers, or weights for int losses.
        RD09: across replicas without `global_batch_size`.  RD23: losses that are not numbers.
        RD25, RD34: a loss without a batch dimension, or a `global_batch_size` that is not an int of 0 or more.

    Source: tf.nn.compute_average_loss.
    """
    attempted = "compute_average_loss"
    losses = _numbers(per_example_loss, attempted)
    if losses.ndim == 0:
        raise errors.error("RD34", attempted, "per_example_loss has rank 0", "Pass one loss for each example.")
    if sample_weight is not None:
        weights: Any = sample_weight if is_recorded(sample_weight) else constant(sample_weight)
        losses = _weighted(losses, weights, attempted)
    if global_batch_size is None:
        size = losses.shape[0] * _replicas(attempted, " or pass `global_batch_size`")
    else:
        size = _size(global_batch_size, attempted)
    average = _quotient(losses, size) if size else _quotient(losses[:0], 1)
    return replica_checks.average(average, per_example_loss, size) if checks.types.value else average


def scale_regularization_loss(regularization_loss: object) -> Any:
    """Sums a loss that is the same on every replica and divides by the number of replicas.

    So the loss counts once in the sum over all replicas.

    Args:
        regularization_loss: a number, or numbers of any shape.

    Returns:
        A read-only array of shape [], with the dtype of the loss; for an int the float dtype that its mean has.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> parts = strategy.run(lambda: refdist.nn.scale_regularization_loss([2.0, 4.0]))
    >>> [float(part) for part in parts.values]
    [3.0, 3.0]

    Raises:
        RD09: across replicas.  RD23: a loss that is not a number.

    Source: tf.nn.scale_regularization_loss.
    """
    attempted = "scale_regularization_loss"
    losses = _numbers(regularization_loss, attempted)
    return _quotient(losses, _replicas(attempted))


def embedding_lookup(params: object, ids: object) -> Any:
    """The rows of a variable at `ids`; of a sharded one only the shards are read that hold such rows.

    Args:
        params: a variable of shape [rows, ...], sharded or not, or a list of variables, which are taken for the shards
            of one.
        ids: integers of any shape, each the number of a row.

    Returns:
        A read-only array of shape `[*ids.shape, ...]`, with the dtype of the variable.

    >>> import refdist
    >>> refdist.nn.embedding_lookup(refdist.Variable([[1.0, 2.0], [3.0, 4.0]]), [1, 1])
    array([[3., 4.],
           [3., 4.]], dtype=float32)

    Raises:
        RD25, RD34: not a variable, or ids that are not integers or of rows that do not exist.

    Source: tf.distribute.ParameterServerStrategy, "Variable partitioning".
    """
    whole = ShardedVariable(params) if isinstance(params, (list, tuple)) else params
    if not isinstance(whole, (Variable, ShardedVariable)):
        raise errors.error("RD25", "embedding_lookup", f"params is {errors.type_of(params)}",
                           "Pass a variable; index an array with brackets.")
    return whole.sparse_read(ids)


def _numbers(value: object, attempted: str) -> Any:
    # A tensor of which gradients are recorded stays itself: a copy of it would have none.
    array: Any = value if is_recorded(value) else constant(value)
    collectives.reducible(array, attempted)
    return array


def _replicas(attempted: str, otherwise: str = "") -> int:
    if has_strategy() and in_cross_replica_context():
        raise errors.error("RD09", attempted, f"it was called {context_stack.describe()}",
                           f"Call it in the function given to `strategy.run`{otherwise}.")
    return get_strategy().num_replicas_in_sync


def _weighted(losses: Array, weights: Array, attempted: str) -> Any:
    dtype, other = dtype_of(losses), dtype_of(weights)
    if dtype.kind in "iu":
        raise errors.error("RD05", attempted, f"the losses have dtype {dtype} and sample_weight was passed",
                           "Cast the losses to a float: `.astype(np.float32)`.", kind=errors.InvalidTypeError)
    # float16 is multiplied in float32, so that a large weight does not overflow before the product.
    shape, wide = weights.shape, np.promote_types(dtype, np.float32)
    if not np.can_cast(other, wide, "same_kind"):
        raise errors.error("RD05", attempted, f"the weights have dtype {other}, the losses {dtype}",
                           "Pass weights that are real numbers.", kind=errors.InvalidTypeError)
    if weights.ndim == losses.ndim + 1 and shape[-1] == 1:
        weights = xp_of(weights).reshape(weights, shape[:-1])
    elif weights.ndim and weights.ndim == losses.ndim - 1:
        weights = xp_of(weights).reshape(weights, (*shape, 1))
    try:
        np.broadcast_shapes(losses.shape, weights.shape)
    except ValueError as error:
        raise errors.error("RD04", attempted, f"the losses have shape {losses.shape} and the weights {shape}",
                           "Pass one weight for each loss.") from error
    if is_recorded(losses) or is_recorded(weights):
        tensors: tuple[Any, Any] = losses, weights
        return (tensors[0] * tensors[1]).to(tensors[0].dtype)
    with on_device_of(losses):
        return astype(as_array(astype(losses, wide) * astype(weights, wide)), dtype)


def _size(value: object, attempted: str) -> int:
    size = to_array(value)
    if dtype_of(size).kind not in "iu":
        raise errors.error("RD25", attempted, f"global_batch_size is {value!r}", "Pass an int.")
    if size.ndim or size < 0:
        raise errors.error("RD34", attempted, f"global_batch_size is {value!r}", "Pass one int of 0 or more.",
                           kind=errors.InvalidArgumentError)
    return int(size)


def _quotient(losses: Array, size: int) -> Any:
    own = dtype_of(losses)
    dtype = np.dtype(MEAN_DTYPE.get(own.name, own))
    if is_recorded(losses):
        recorded: Any = losses
        return recorded.sum() / size
    with on_device_of(losses), Reported("add"):
        total = as_array(xp_of(losses).sum(losses, dtype=native(dtype, losses)))
    # The size in the dtype of the losses, which may round it.
    return current_backend().divide(total, size if dtype.kind == "c" else float(dtype.type(size)))
