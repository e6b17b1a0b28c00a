"""Layers that turn text and classes into numbers, which Keras 3 leaves to TensorFlow.

They are layers of models as there: a model that begins with `tf.keras.Input(shape=(1,), dtype=tf.string)` takes text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras.src import api_export
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.models.functional import Functional

from refdist import errors
from refdist.array.convert import HoldsArray, to_numpy
from refdist.tf.fingerprints import fingerprint
from refdist.tf.keras.seams import replace
from refdist.tf.texts import TextTensor, array_of, is_text, numbers

_MODES = ("int", "one_hot", "multi_hot", "count")
_PUNCTUATION = re.compile(rb"[!\"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']")


def connect() -> None:
    """From now on Keras has these layers, its models take text, and files of models name the layers as Keras does."""
    for kind in (StringLookup, IntegerLookup, TextVectorization, Hashing):
        setattr(keras.layers, kind.__name__, kind)
        api_export.register_internal_serializable(f"keras.layers.{kind.__name__}", kind)
    replace(Functional, "_convert_inputs_to_tensors", _with_text)


def _with_text(original: Any) -> Any:
    def converted(self: Any, flat_inputs: Any) -> Any:
        texts = [_arranged(value, spec) if spec.dtype == "string" and value is not None else None
                 for value, spec in zip(flat_inputs, self._inputs, strict=False)]
        others = [number for number, each in enumerate(texts) if each is None]
        tensors = iter(original(SimpleNamespace(_inputs=[self._inputs[number] for number in others]),
                                [flat_inputs[number] for number in others]))
        return [next(tensors) if each is None else each for each in texts]
    return converted


def _arranged(value: Any, spec: Any) -> Any:
    # A dimension of length 1 at the end may be left out, or be there.
    if isinstance(value, keras.KerasTensor):
        return value
    array, rank = array_of(value), len(spec.shape)
    if array.ndim == rank + 1 and array.shape[-1] == 1:
        array = array[..., 0]
    elif array.ndim == rank - 1 and spec.shape[-1] == 1:
        array = array[..., None]
    return TextTensor(array)


class _Encoding(keras.layers.Layer):  # type: ignore[misc]
    # Numbers of classes, as they are or as rows of zeros and ones.

    def __init__(self, output_mode: str, name: str | None, attempted: str, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        if output_mode not in _MODES:
            kind = "RD20" if output_mode in ("tf_idf", "tf-idf") else "RD34"
            raise errors.error(kind, attempted, f"output_mode is {output_mode!r}", f"Pass one of {', '.join(_MODES)}.")
        self.output_mode = output_mode

    _of_text = True

    @property
    def compute_dtype(self) -> str:
        """The dtype of what it takes, which a `Sequential` that begins with it takes, too."""
        return "string" if self._of_text else "int64"

    @property
    def variable_dtype(self) -> str:
        """As `compute_dtype`."""
        return self.compute_dtype

    @property
    def _depth(self) -> int:
        raise NotImplementedError

    def _encoded(self, places: Any) -> Any:
        if self.output_mode == "int":
            return numbers(places, "int64")
        if self.output_mode == "one_hot" and not (places.ndim > 1 and places.shape[-1] == 1):
            places = places[..., None]
        counts = np.zeros((*places.shape[:-1], self._depth), np.int64)
        for place in np.ndindex(places.shape):
            row = place[:-1]
            if 0 <= places[place] < self._depth:
                counts[(*row, places[place])] += 1
        return numbers(counts if self.output_mode == "count" else counts > 0, "int64")

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of what comes out."""
        if self.output_mode == "int":
            return tuple(input_shape)
        shape = tuple(input_shape)
        if self.output_mode == "one_hot" and not (len(shape) > 1 and shape[-1] == 1):
            return (*shape, self._depth)
        return (*shape[:-1], self._depth)

    def compute_output_spec(self, inputs: Any) -> Any:
        """What comes out of a model that is built."""
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), "int64")


def _read(data: Any) -> Any:
    return array_of(data) if is_text(data) else to_numpy(data._read() if isinstance(data, HoldsArray) else data)


class _Held:
    # What a vocabulary has: Keras wraps lists and dicts that are a layer's own attributes.

    def __init__(self) -> None:
        self.counts: Counter[Any] = Counter()
        self.tokens: list[Any] = []
        self.numbers: dict[Any, int] = {}


class _Vocabulary(_Encoding):
    # Numbers go to the mask first, then to tokens outside the vocabulary, and then to those in it.

    def __init__(self, attempted: str, vocabulary: Any, max_tokens: int | None, num_oov_indices: int,
                 mask_token: Any, oov_token: Any, invert: bool, output_mode: str, pad_to_max_tokens: bool,
                 name: str | None, **kwargs: Any) -> None:
        super().__init__(output_mode, name, attempted, **kwargs)
        if max_tokens is not None and not isinstance(max_tokens, int):
            raise errors.error("RD25", attempted, f"max_tokens is {errors.type_of(max_tokens)}",
                               "Pass an int, and the vocabulary as `vocabulary=`.")
        if not isinstance(num_oov_indices, int) or num_oov_indices < 0:
            raise errors.error("RD34", attempted, f"num_oov_indices is {num_oov_indices!r}", "Pass 0 or more.")
        self._attempted = attempted
        self.max_tokens, self.num_oov_indices, self.pad_to_max_tokens = max_tokens, num_oov_indices, pad_to_max_tokens
        self.mask_token, self.oov_token, self.invert = mask_token, oov_token, invert
        self._held = _Held()
        if vocabulary is not None:
            self.set_vocabulary(vocabulary)

    def _token(self, item: Any) -> Any:
        if not self._of_text:
            return np.int64(item)
        return np.str_(item.decode(errors="replace") if isinstance(item, bytes) else item)

    @property
    def _first(self) -> list[Any]:
        mask = [self.mask_token] if self.mask_token is not None and self.output_mode == "int" else []
        return [*mask, *[self.oov_token] * self.num_oov_indices]

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Replaces the vocabulary.

        Args:
            vocabulary: a list, or the name of a file with one on each line.
            idf_weights: None.

        Raises:
            RD34: the same more than once, or more than max_tokens.  RD30: there is no such file.
        """
        if isinstance(vocabulary, str):
            try:
                with open(vocabulary, "rb") as file:
                    vocabulary = file.read().splitlines()
            except OSError as error:
                raise errors.error("RD30", self._attempted, f"{vocabulary} cannot be opened: {error.strerror}",
                                   "Pass a list of what is in the vocabulary, or the name of a file.",
                                   kind=errors.NotFoundError) from error
        tokens = [self._token(item) for item in _read(vocabulary).reshape(-1).tolist()] if len(vocabulary) else []
        if tokens[:len(self._first)] == self._first and self._first:
            tokens = tokens[len(self._first):]
        if len(set(tokens)) < len(tokens):
            raise errors.error("RD34", self._attempted, f"the vocabulary is {vocabulary!r}",
                               "Pass each of it once.")
        if self.max_tokens is not None and len(tokens) + len(self._first) > self.max_tokens:
            raise errors.error("RD34", self._attempted, f"the vocabulary has {len(tokens)} tokens beside "
                               f"{len(self._first)}, and max_tokens is {self.max_tokens}", "Pass fewer.")
        self._held.tokens = tokens
        self._held.numbers = {token: number for number, token in enumerate(tokens, len(self._first))}

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """All of it, by its numbers.

        Args:
            include_special_tokens: whether with the mask, and what stands for all others.

        Source: tf.keras.layers.StringLookup.get_vocabulary.
        """
        return [*(self._first if include_special_tokens else []), *self._held.tokens]

    def vocabulary_size(self) -> int:
        """How many numbers there are.

        Source: tf.keras.layers.StringLookup.vocabulary_size.
        """
        return len(self._first) + len(self._held.tokens)

    @property
    def _depth(self) -> int:
        return self.max_tokens if self.pad_to_max_tokens and self.max_tokens else self.vocabulary_size()

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Makes the vocabulary of data: what is most frequent first.

        Args:
            data: a dataset of batches, or an array.
            batch_size: without effect.
            steps: how many batches of a dataset are read; None for all.

        Source: tf.keras.layers.StringLookup.adapt.
        """
        self.reset_state()
        batches: Iterable[Any] = [data]
        if hasattr(data, "as_numpy_iterator"):
            batches = data if steps is None else data.take(steps)
        for batch in batches:
            self.update_state(batch)
        self.finalize_state()

    def reset_state(self) -> None:
        """Forgets what was counted."""
        self._held.counts = Counter()

    def update_state(self, data: Any) -> None:
        """Counts what is in data.

        Args:
            data: an array.
        """
        self._held.counts.update(map(self._token, _read(data).reshape(-1).tolist()))

    def finalize_state(self) -> None:
        """Makes the vocabulary of what was counted."""
        for special in (self.mask_token, self.oov_token):
            self._held.counts.pop(special, None)
        tokens = sorted(self._held.counts, key=lambda token: (self._held.counts[token], token), reverse=True)
        room = None if self.max_tokens is None else self.max_tokens - len(self._first)
        self._held.tokens = tokens[:room]
        self._held.numbers = {token: number for number, token in enumerate(self._held.tokens, len(self._first))}

    def _number(self, token: Any) -> int:
        number = self._held.numbers.get(token)
        if number is not None:
            return number
        if self.output_mode == "int" and self.mask_token is not None and token == self.mask_token:
            return 0
        start = len(self._first) - self.num_oov_indices
        if not self.num_oov_indices and in_symbolic_scope():  # Keras infers shapes: the tokens are made up
            return start
        if not self.num_oov_indices:
            raise errors.error("RD34", self._attempted, f"{token.item()!r} is not in the vocabulary, and "
                               "num_oov_indices is 0", "Add it, or pass num_oov_indices=1.",
                               kind=errors.InvalidArgumentError)
        if self.num_oov_indices == 1:
            return start
        return start + (fingerprint(token.encode()) if self._of_text else int(token)) % self.num_oov_indices

    def _places(self, array: Any) -> Any:
        if not self._held.tokens:
            raise errors.error("RD29", self._attempted, "it has no vocabulary", "Call `adapt(data)`, or pass one.",
                               kind=errors.FailedPreconditionError)
        places = np.empty(array.shape, np.int64)
        for place in np.ndindex(array.shape):
            places[place] = self._number(self._token(array[place]))
        return places

    def call(self, inputs: Any) -> Any:
        """The numbers, in the shape of what is looked up; or what has these numbers."""
        array = _read(inputs)
        if self.invert:
            names = self.get_vocabulary()
            kept = [names[number] if 0 <= number < len(names) else self.oov_token for number in array.reshape(-1)]
            if not self._of_text:
                return numbers(np.array(kept).reshape(array.shape), "int64")
            return TextTensor(array_of(kept).reshape(array.shape))
        if self._of_text != (array.dtype == object):
            raise errors.error("RD25", self._attempted, f"got an array of dtype {array.dtype}",
                               "Pass texts." if self._of_text else "Pass integers.")
        return self._encoded(self._places(array))

    def compute_output_spec(self, inputs: Any) -> Any:
        """What comes out of a model that is built."""
        kind = "string" if self.invert and self._of_text else "int64"
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), kind)

    def get_config(self) -> dict[str, Any]:
        """What makes such a layer again.

        Source: tf.keras.layers.Layer.get_config.
        """
        names = ("max_tokens", "num_oov_indices", "mask_token", "oov_token", "invert", "output_mode",
                 "pad_to_max_tokens")
        vocabulary = [str(item) if self._of_text else int(item) for item in self._held.tokens]
        return {"name": self.name, "vocabulary": vocabulary or None, **{name: getattr(self, name) for name in names}}


class StringLookup(_Vocabulary):
    """The number of each text in a vocabulary: first the mask, then what is not in it, then its texts.

    Args:
        max_tokens: how many numbers there are at most; None for no limit.
        num_oov_indices: how many numbers there are for texts that are not in the vocabulary.
        mask_token: the text that has number 0; None for none.
        oov_token: what `get_vocabulary` shows for the texts that are not in it.
        vocabulary: the texts, or the name of a file; None where `adapt` makes it.
        idf_weights: None.
        invert: whether numbers are looked up, and texts returned.
        output_mode: "int"; or "one_hot", "multi_hot" or "count" for rows as long as the vocabulary.
        pad_to_max_tokens: whether these rows are as long as max_tokens.
        sparse: False.
        encoding: without effect.
        name: of the layer.

    >>> import refdist.tf as tf
    >>> tf.keras.layers.StringLookup(vocabulary=["a", "b"])(["b", "z"]).tolist()                    # doctest: +SKIP
    [2, 0]

    Raises:
        RD20: "tf_idf".  RD34: the same text more than once, more than max_tokens, or another mode.
        RD30: there is no such file.
        In a call: RD34: a text that is not in the vocabulary, where `num_oov_indices` is 0.  RD25: what is not text.
            RD29: there is no vocabulary.

    Source: tf.keras.layers.StringLookup.
    """

    def __init__(self, max_tokens: int | None = None, num_oov_indices: int = 1, mask_token: str | None = None,
                 oov_token: str = "[UNK]", vocabulary: Any = None, idf_weights: Any = None, invert: bool = False,
                 output_mode: str = "int", pad_to_max_tokens: bool = False, sparse: bool = False,
                 encoding: str = "utf-8", name: str | None = None, **kwargs: Any) -> None:
        super().__init__("StringLookup", vocabulary, max_tokens, num_oov_indices, mask_token, oov_token, invert,
                         output_mode, pad_to_max_tokens, name, **kwargs)


class IntegerLookup(_Vocabulary):
    """The number of each integer in a vocabulary: first the mask, then what is not in it, then its integers.

    Args:
        max_tokens: how many numbers there are at most; None for no limit.
        num_oov_indices: how many numbers there are for integers that are not in the vocabulary.
        mask_token: the integer that has number 0; None for none.
        oov_token: what `get_vocabulary` shows for the integers that are not in it.
        vocabulary: the integers, or the name of a file; None where `adapt` makes it.
        vocabulary_dtype: without effect.
        idf_weights: None.
        invert: whether numbers are looked up, and integers of the vocabulary returned.
        output_mode: "int"; or "one_hot", "multi_hot" or "count" for rows as long as the vocabulary.
        sparse: False.
        pad_to_max_tokens: whether these rows are as long as max_tokens.
        name: of the layer.

    Raises:
        RD20, RD25, RD29, RD30, RD34: as StringLookup.

    Source: tf.keras.layers.IntegerLookup.
    """

    _of_text = False

    def __init__(self, max_tokens: int | None = None, num_oov_indices: int = 1, mask_token: int | None = None,
                 oov_token: int = -1, vocabulary: Any = None, vocabulary_dtype: str = "int64", idf_weights: Any = None,
                 invert: bool = False, output_mode: str = "int", sparse: bool = False, pad_to_max_tokens: bool = False,
                 name: str | None = None, **kwargs: Any) -> None:
        super().__init__("IntegerLookup", vocabulary, max_tokens, num_oov_indices, mask_token, oov_token, invert,
                         output_mode, pad_to_max_tokens, name, **kwargs)


class TextVectorization(_Vocabulary):
    """The numbers of the words of each text.

    Args:
        max_tokens: how many numbers there are at most; None for no limit.
        standardize: "lower_and_strip_punctuation", "lower", "strip_punctuation", a function of text, or None.
        split: "whitespace", "character", a function of one text, or None.
        ngrams: up to how many words together are tokens, too; or a tuple of how many; None for single words.
        output_mode: "int", or "multi_hot" or "count" for rows as long as the vocabulary.
        output_sequence_length: how many words of each text are kept, where zeros fill what is missing; None for the
            longest.
        pad_to_max_tokens: whether rows are as long as max_tokens.
        vocabulary: the words, or the name of a file; None where `adapt` makes it.
        idf_weights: None.
        sparse, ragged: False.
        encoding: without effect.
        name: of the layer.

    Raises:
        RD20, RD25, RD29, RD30, RD34: as StringLookup.

    Source: tf.keras.layers.TextVectorization.
    """

    def __init__(self, max_tokens: int | None = None, standardize: Any = "lower_and_strip_punctuation",
                 split: Any = "whitespace", ngrams: Any = None, output_mode: str = "int",
                 output_sequence_length: int | None = None, pad_to_max_tokens: bool = False, vocabulary: Any = None,
                 idf_weights: Any = None, sparse: bool = False, ragged: bool = False, encoding: str = "utf-8",
                 name: str | None = None, **kwargs: Any) -> None:
        self._standardize, self._split = standardize, split
        self._lengths = (1,) if ngrams is None else tuple(range(1, ngrams + 1)) if isinstance(ngrams, int) else ngrams
        self._output_sequence_length = output_sequence_length
        self._given = {"standardize": standardize, "split": split, "ngrams": ngrams,
                       "output_sequence_length": output_sequence_length}
        super().__init__("TextVectorization", vocabulary, max_tokens, 1, "", "[UNK]", False, output_mode,
                         pad_to_max_tokens, name, **kwargs)
        if ragged or sparse:
            raise errors.error("RD20", "TextVectorization", "its output would be no plain tensor",
                               "Leave `ragged` and `sparse` out.")

    def _words(self, item: bytes) -> list[bytes]:
        way = self._standardize
        if callable(way):
            item = array_of(way(TextTensor(item)))[()]
        elif way is not None:
            item = item.lower() if "lower" in way else item
            item = _PUNCTUATION.sub(b"", item) if "punctuation" in way else item
        if callable(self._split):
            words = array_of(self._split(TextTensor(item))).reshape(-1).tolist()
        elif self._split == "character":
            words = [character.encode() for character in item.decode(errors="replace")]
        else:
            words = [item] if self._split is None else item.split()
        return [b" ".join(words[place:place + length]) for length in self._lengths
                for place in range(len(words) - length + 1)]

    def update_state(self, data: Any) -> None:
        """Counts the words of texts.

        Args:
            data: text of any shape.
        """
        for item in array_of(data, "TextVectorization.adapt").flat:
            self._held.counts.update(map(self._token, self._words(item)))

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """All words, by their numbers.

        Args:
            include_special_tokens: whether with those that stand for nothing and for all others.

        Source: tf.keras.layers.TextVectorization.get_vocabulary.
        """
        return super().get_vocabulary(include_special_tokens)

    def call(self, inputs: Any) -> Any:
        """The numbers of words, a row for each text; or whether, or how often, each word is in it."""
        array = array_of(inputs, "TextVectorization")
        rows = array[..., 0] if array.ndim > 1 and array.shape[-1] == 1 else array
        words = [self._words(item) for item in rows.flat]
        if self.output_mode != "int":
            counts = np.zeros((len(words), self._depth), np.int64)
            for row, row_words in zip(counts, words, strict=True):
                for word in row_words:
                    row[self._number(self._token(word))] += 1
            places = counts if self.output_mode == "count" else counts > 0
            return numbers(places.reshape(*rows.shape, self._depth), "int64")
        length = self._output_sequence_length
        if length is None:
            length = max(map(len, words), default=0)
        places = np.zeros((len(words), length), np.int64)
        for row, row_words in zip(places, words, strict=True):
            kept = row_words[:length]
            row[:len(kept)] = [self._number(self._token(word)) for word in kept]
        return numbers(places.reshape(*rows.shape, length), "int64")

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of what comes out."""
        last = self._output_sequence_length if self.output_mode == "int" else self._depth
        shape = tuple(input_shape)
        return (*(shape[:-1] if len(shape) > 1 and shape[-1] == 1 else shape), last)

    def get_config(self) -> dict[str, Any]:
        """What makes such a layer again.

        Source: tf.keras.layers.Layer.get_config.
        """
        own = super().get_config()
        return {**{name: own[name] for name in ("name", "vocabulary", "max_tokens", "output_mode",
                                                "pad_to_max_tokens")}, **self._given}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Such a layer, made again.

        Source: tf.keras.layers.Layer.from_config.
        """
        functions = {name: keras.saving.deserialize_keras_object(config[name]) for name in ("standardize", "split")
                     if isinstance(config[name], dict)}
        return cls(**{**config, **functions})


class Hashing(_Encoding):
    """A number from 0 for each text or integer, by its fingerprint.

    Args:
        num_bins: how many numbers there are.
        mask_value: the text or integer that has number 0; None for none.
        salt: None.
        output_mode: "int"; or "one_hot", "multi_hot" or "count" for rows of length num_bins.
        sparse: False.
        name: of the layer.

    Raises:
        RD20: a salt, or "tf_idf".  RD34: fewer than one number, or another mode.

    Source: tf.keras.layers.Hashing.
    """

    def __init__(self, num_bins: int, mask_value: Any = None, salt: Any = None, output_mode: str = "int",
                 sparse: bool = False, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(output_mode, name, "Hashing", **kwargs)
        if salt is not None:
            raise errors.error("RD20", "Hashing", f"salt is {salt!r}", "Leave it out.")
        if not isinstance(num_bins, int) or num_bins < 1:
            raise errors.error("RD34", "Hashing", f"num_bins is {num_bins!r}", "Pass 1 or more.")
        self.num_bins, self.mask_value = num_bins, mask_value

    @property
    def _depth(self) -> int:
        return self.num_bins

    def call(self, inputs: Any) -> Any:
        """The numbers, in the shape of the texts."""
        array = _read(inputs)
        keys = array if array.dtype == object else array_of(array.astype(str))
        mask = None if self.mask_value is None else str(self.mask_value).encode()
        skipped = 0 if mask is None else 1
        places = np.empty(keys.shape, np.int64)
        for place in np.ndindex(keys.shape):
            is_mask = keys[place] == mask
            places[place] = 0 if is_mask else fingerprint(keys[place]) % (self.num_bins - skipped) + skipped
        return self._encoded(places)

    def get_config(self) -> dict[str, Any]:
        """What makes such a layer again.

        Source: tf.keras.layers.Layer.get_config.
        """
        return {"name": self.name, "num_bins": self.num_bins, "mask_value": self.mask_value,
                "output_mode": self.output_mode}
