"""Keras's losses under a strategy: the sum over the replicas is the loss of the global batch.

Keras divides the loss of a replica by the rows of its share and by the number of replicas.  That is the mean over the
batch where all shares have the same length, and where it is called in a training loop of the program's own, it is what
Keras does on TensorFlow.  `fit` and `evaluate` know the shares: there each row of the batch counts once, however it is
divided, and so does each row that a mask leaves (`Share`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from keras.src import backend, ops
from keras.src.losses import loss as keras_losses

from refdist import errors
from refdist.array import replica_checks
from refdist.core import call_site, checks, context_stack
from refdist.core.rules.options import ReduceOp
from refdist.tf.keras.seams import replace


class Share(NamedTuple):
    """What a replica has of a batch.

    Attributes:
        rows, total: so many rows of how many.
        told: what the user of the model was warned of.
    """

    rows: int
    total: int
    told: set[str]


_DIVIDING = ("sum_over_batch_size", "mean")  # of which Keras's losses divide by the replicas

# The share of the step that runs; None in code that is not a step of `fit` or `evaluate`.
share: ContextVar[Share | None] = ContextVar("share of the batch", default=None)


def _scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(value: Any) -> Any:
        weight = _weight()
        return original(value) if weight is None else value * weight
    return scale


def _unscale(original: Callable[..., Any]) -> Callable[..., Any]:
    def unscale(value: Any) -> Any:
        weight = _weight()
        return original(value) if weight is None else value / weight if weight else value
    return unscale


def _weight() -> float | None:
    # What the loss of this replica counts in that of the batch; None outside any strategy.
    strategy = context_stack.frame().strategy
    part = share.get()
    if strategy is None:
        return None
    return 1.0 / strategy.num_replicas_in_sync if part is None else _ratio(part)


def _ratio(part: Share) -> float:
    return part.rows / part.total if part.total else 0.0


def _reduce_values(original: Callable[..., Any]) -> Callable[..., Any]:
    def reduce_values(values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size") -> Any:
        replica: Any = context_stack.frame().replica
        if replica is None or reduction in (None, "none") or not values.ndim:
            return original(values, sample_weight, reduction)
        total = ops.sum(values)
        if share.get() is not None and reduction == "mean_with_sample_weight" and sample_weight is not None:
            return ops.divide_no_nan(total, ops.cast(_of_all(ops.sum(sample_weight)), total.dtype))
        # Keras returns the losses of an empty share as they are.
        loss = original(values, sample_weight, reduction) if values.shape[0] else total
        if checks.types.value and share.get() is None and reduction in _DIVIDING:
            # Keras divides by the number of replicas, too.
            rows = values.shape[0] * replica.num_replicas_in_sync
            return replica_checks.average(loss, values, rows, "loss of Keras")
        return loss
    return reduce_values


def _apply_mask(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_mask(sample_weight: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
        part = share.get()
        if mask is None or part is None or reduction not in ("mean", "sum_over_batch_size"):
            return original(sample_weight, mask, dtype=dtype, reduction=reduction)
        # Keras weighs what the mask leaves by size / number left, and divides by size later.
        weights = original(sample_weight, mask, dtype=dtype, reduction=reduction)
        left = ops.sum(ops.cast(mask, dtype))
        replica: Any = context_stack.frame().replica
        left_of_each = replica.all_gather(left.detach().reshape(1), axis=0).tolist()
        if replica.replica_id_in_sync_group == 0:
            warn_of_weights("the mask of a batch leaves", left_of_each, part.told)
        if not part.rows or not float(left):
            return weights
        return weights * (float(left) / (sum(left_of_each) * _ratio(part)))
    return apply_mask


def _binary_crossentropy(original: Callable[..., Any]) -> Callable[..., Any]:
    # PyTorch refuses targets below 0 and above 1, such as labels to which noise was added; to Keras they are numbers.
    def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
        target, output = ops.convert_to_tensor(target), ops.convert_to_tensor(output)
        if from_logits or target.shape != output.shape:
            return original(target, output, from_logits)
        epsilon = backend.epsilon()
        output = ops.clip(output, epsilon, 1.0 - epsilon)
        return -(target * ops.log(output) + (1.0 - target) * ops.log(1.0 - output))
    return binary_crossentropy


def _sparse_categorical_crossentropy(original: Callable[..., Any]) -> Callable[..., Any]:
    # PyTorch has no gradient of the losses of pictures in whose memory the classes are the last dimension.
    def sparse_categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
        target, output = ops.convert_to_tensor(target), ops.convert_to_tensor(output)
        if from_logits or output.ndim != 4:
            return original(target, output, from_logits, axis)
        if target.ndim == 4 and target.shape[axis] == 1:
            target = ops.squeeze(target, axis)
        if target.shape != ops.moveaxis(output, axis, -1).shape[:-1]:
            return original(target, output, from_logits, axis)
        return original(target, ops.moveaxis(output, axis, 1).contiguous(), axis=1)
    return sparse_categorical_crossentropy


def _of_all(value: Any) -> Any:
    # In a step of `fit` all replicas come here.
    replica: Any = context_stack.frame().replica
    if replica is None:
        return value
    return replica.all_reduce(ReduceOp.SUM, value.detach())


def warn_of_weights(what: str, each: Sequence[float], warned: set[str]) -> None:
    """Says that TensorFlow gives what replicas have different weights, once for each of its causes.

    Args:
        what: the cause, in words: "the mask of a batch leaves".
        each: how many rows, or other losses, each replica has.
        warned: the causes that were warned of before.
    """
    if what in warned or min(each) == max(each):
        return
    warned.add(what)
    weights = sorted({len(each) * count for count in each if count}, reverse=True)
    call_site.warn(str(errors.error(
        "RD35", "training with Keras", f"{what} {', '.join(f'{count:g}' for count in each)} for the replicas; here "
        f"each has the weight 1/{sum(each):g} in the loss, under TensorFlow 2.21 "
        f"{' or '.join(f'1/{weight:g}' for weight in weights)}")), errors.DifferenceWarning)


def connect() -> None:
    """From now on Keras's losses ask refdist for the number of replicas, and take what they take on TensorFlow."""
    replace(backend.nn, "binary_crossentropy", _binary_crossentropy)
    replace(backend.nn, "sparse_categorical_crossentropy", _sparse_categorical_crossentropy)
    replace(keras_losses, "scale_loss_for_distribution", _scale)
    replace(keras_losses, "unscale_loss_for_distribution", _unscale)
    replace(keras_losses, "reduce_values", _reduce_values)
    replace(keras_losses, "apply_mask", _apply_mask)
