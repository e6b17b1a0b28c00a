"""Text in Keras's models: PyTorch has none, so it passes through layers and batches as tensors of `refdist.tf`.

Layers and models take it where they take tensors, shapes are inferred with some text of the shape, and `fit` deals out
the numbers of the rows of a text, so that texts go into the same batches as the arrays beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import torch
from keras.src import backend, tree
from keras.src.layers import layer as keras_layer
from keras.src.trainers.data_adapters import array_slicing

from refdist.tf.keras.seams import replace
from refdist.tf.texts import TextTensor, is_text


class RowsOfText(np.ndarray):
    """The numbers of the rows of a text, which Keras cuts into batches as it cuts any array.

    Attributes:
        texts: the text.
    """

    texts: Any = None

    def __array_finalize__(self, original: Any) -> None:
        self.texts = getattr(original, "texts", None)


def as_rows(structure: Any) -> Any:
    """The structure with the numbers of its rows for each text; a list of tensors is a structure, too."""
    return tree.map_structure(_as_rows, structure)


def _as_rows(leaf: Any) -> Any:
    is_array = isinstance(leaf, TextTensor) or (isinstance(leaf, np.ndarray) and leaf.dtype == object)
    if not (is_array and is_text(leaf) and leaf.ndim):
        return leaf
    rows = np.arange(len(leaf)).view(RowsOfText)
    rows.texts = TextTensor(leaf)
    return rows


class Batches:
    """Batches of text: Keras deals out the numbers of rows, and here they become the rows again, in every epoch anew.

    Args:
        make: makes the batches that Keras deals out.
        inputs: a structure like a batch, of what they are dealt out of.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], inputs: Any) -> None:
        self._make = make
        self._texts = [leaf.texts if isinstance(leaf, RowsOfText) else None for leaf in tree.flatten(inputs)]

    def __iter__(self) -> Iterator[Any]:
        for batch in self._make():
            leaves = [leaf if texts is None else texts[leaf]
                      for leaf, texts in zip(tree.flatten(batch), self._texts, strict=True)]
            yield tree.pack_sequence_as(batch, leaves)


def joined(parts: Any) -> Any:
    """Outputs of several batches as one."""
    return TextTensor(np.concatenate(parts)) if isinstance(parts[0], TextTensor) else torch.cat(parts)


def _is_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, allow_none=False: isinstance(x, TextTensor) or original(x, allow_none)


def _converted(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, x, autocast, dtype: x if isinstance(x, TextTensor) else original(self, x, autocast, dtype)


def _spec(original: Callable[..., Any]) -> Callable[..., Any]:
    def compute_output_spec(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree.map_structure(_of_digits, (args, kwargs))
        return original(fn, *args, **kwargs)
    return compute_output_spec


def _of_digits(leaf: Any) -> Any:
    # A digit is a word, and a number.
    is_known = isinstance(leaf, keras.KerasTensor) and leaf.dtype == "string" and None not in leaf.shape
    return TextTensor(np.full(leaf.shape, b"0", object)) if is_known else leaf


def _split(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda arrays, validation_split: original(as_rows(arrays), validation_split)


def connect() -> None:
    """From now on Keras's layers, models and trainer take text."""
    replace(keras_layer, "is_backend_tensor_or_symbolic", _is_tensor)
    replace(keras.DTypePolicy, "convert_input", _converted)
    replace(backend, "compute_output_spec", _spec)
    replace(array_slicing, "train_validation_split", _split)
