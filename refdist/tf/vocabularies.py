"""`tf.keras.layers.StringLookup` for arrays of text, which Keras 3 leaves to TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refdist import errors


class StringLookup:
    """The number of each text in a vocabulary: first the mask, then what is not in it, then its texts.

    It is a function of arrays, for `Dataset.map` and for the program, and not a layer of a model: a model of Keras on
    PyTorch takes no text.

    Args:
        vocabulary: the texts.
        num_oov_indices: 1, or 0 where every text is in the vocabulary.
        mask_token: the text that has number 0; None for none.
        oov_token: what `get_vocabulary` shows for the text that is not in it.
        invert: whether numbers are looked up, and texts returned.

    >>> import refdist.tf as tf
    >>> tf.keras.layers.StringLookup(vocabulary=["a", "b"])(["b", "z"]).tolist()                    # doctest: +SKIP
    [2, 0]

    Raises:
        RD34: a vocabulary that is not a list of different texts, or `num_oov_indices` other than 0 and 1.  In a call: a
            text that is not in the vocabulary, where `num_oov_indices` is 0.
        RD25: in a call, what is not text.

    Source: tf.keras.layers.StringLookup.
    """

    def __init__(self, vocabulary: Sequence[str], num_oov_indices: int = 1, mask_token: str | None = None,
                 oov_token: str = "[UNK]", invert: bool = False) -> None:
        texts = [str(text) for text in vocabulary]
        if len(set(texts)) < len(texts) or isinstance(vocabulary, str):
            raise errors.error("RD34", "StringLookup", f"the vocabulary is {vocabulary!r}",
                               "Pass a list of different texts.")
        if num_oov_indices not in (0, 1):
            raise errors.error("RD34", "StringLookup", f"num_oov_indices is {num_oov_indices!r}", "Pass 0 or 1.")
        first = [] if mask_token is None else [mask_token]
        self._texts = [*first, *[oov_token] * num_oov_indices, *texts]
        self._unknown = len(first) if num_oov_indices else None
        self._numbers = {text: number for number, text in enumerate(self._texts)}
        self._invert = invert

    def get_vocabulary(self) -> list[str]:
        """All texts, by their numbers.

        Source: tf.keras.layers.StringLookup.get_vocabulary.
        """
        return list(self._texts)

    def vocabulary_size(self) -> int:
        """How many numbers there are.

        Source: tf.keras.layers.StringLookup.vocabulary_size.
        """
        return len(self._texts)

    def __call__(self, inputs: Any) -> Any:
        """The numbers as int64, in the shape of the texts; or the texts."""
        array = np.asarray(inputs)
        if self._invert:
            return np.array([self._texts[number] for number in array.reshape(-1)], object).reshape(array.shape)
        if array.dtype.kind not in "USO":
            raise errors.error("RD25", "StringLookup", f"got an array of dtype {array.dtype}", "Pass texts.")
        import keras

        numbers = np.array([self._number(text) for text in array.reshape(-1)], np.int64)
        return keras.ops.convert_to_tensor(numbers.reshape(array.shape))

    def _number(self, text: Any) -> int:
        text = text.decode() if isinstance(text, bytes) else str(text)
        number = self._numbers.get(text, self._unknown)
        if number is None:
            raise errors.error("RD34", "StringLookup", f"{text!r} is not in the vocabulary, and num_oov_indices is 0",
                               "Add it, or pass num_oov_indices=1.", kind=errors.InvalidArgumentError)
        return number
