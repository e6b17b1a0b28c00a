"""Where a token is more than once in a batch, TensorFlow squares the parts of its row's gradient, and not their sum.

Keras's pages say that sparse gradients have the effect of dense ones, and so they have here.  An optimizer that squares
gradients then takes another step than on TensorFlow 2.21; a warning gives both numbers, once for each variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras
import torch

from refdist import errors
from refdist.core import call_site
from refdist.tf.keras.seams import replace

# Optimizers that keep squares, or greatest absolute values, of gradients.
_SQUARING = tuple(getattr(keras.optimizers, name) for name in (
    "Adam", "AdamW", "Adamax", "Nadam", "RMSprop", "Adagrad", "Adadelta", "Ftrl"))
# Steps whose parts are kept where no optimizer of Keras takes them.
_MOST = 64


def _call(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, inputs: Any) -> Any:
        outputs = original(self, inputs)
        parts = vars(self._embeddings).setdefault("_parts_by_refdist", [])
        if parts is not None and isinstance(outputs, torch.Tensor) and outputs.requires_grad:
            tokens = keras.ops.cast(inputs, "int64").reshape(-1)

            def keep(gradient: Any) -> None:
                if len(parts) < _MOST:
                    parts.append((tokens, gradient.detach().reshape(len(tokens), -1)))
            outputs.register_hook(keep)
        return outputs
    return call


def compare(optimizer: Any, variables: Iterable[Any]) -> None:
    """Says which square TensorFlow has of a gradient that is about to be applied, if it has another one."""
    for variable in variables:
        parts = vars(variable).get("_parts_by_refdist")
        if not parts:
            continue
        if isinstance(optimizer, _SQUARING):
            tokens, gradients = zip(*parts, strict=True)
            _compare(optimizer, variable, torch.cat(tokens), torch.cat(gradients))
        else:
            variable._parts_by_refdist = None
        parts.clear()


def _compare(optimizer: Any, variable: Any, tokens: Any, gradients: Any) -> None:
    rows, places, counts = torch.unique(tokens, return_inverse=True, return_counts=True)
    nothing = torch.zeros((len(rows), gradients.shape[1]), dtype=gradients.dtype)
    whole = nothing.index_add(0, places, gradients).square().sum(1)
    apart = nothing.index_add(0, places, gradients.square()).sum(1)
    different = (whole - apart).abs() > 1e-4 * apart
    if not bool(different.any()):
        return
    variable._parts_by_refdist = None
    row = int(different.nonzero()[0])
    call_site.warn(str(errors.error(
        "RD35", f"{type(optimizer).__name__}.apply", f"row {int(rows[row])} of {variable.path!r} was looked up "
        f"{errors.counted(int(counts[row]), 'time')}; its gradient is the sum of the parts, whose squares add up to "
        f"{float(whole[row]):.6g}; TensorFlow 2.21 adds the squares of the parts, {float(apart[row]):.6g}",
        "Nothing is wrong here: sparse gradients have the effect of dense ones, as Keras's pages say.")),
        errors.DifferenceWarning)


def connect() -> None:
    """From now on lookups keep the parts of their gradients until an optimizer has seen them."""
    replace(keras.layers.Embedding, "call", _call)
