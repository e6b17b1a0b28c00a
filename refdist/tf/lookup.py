"""`tf.lookup`: tables from keys to values, both text or numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from refdist import disk, errors
from refdist.array.convert import HoldsArray, to_numpy
from refdist.core.integers import integer
from refdist.missing import NO_GRAPHS, lacks
from refdist.tf.dtypes import DType, as_dtype
from refdist.tf.fingerprints import fingerprint
from refdist.tf.texts import TextTensor, array_of, is_text, numbers


class TextFileIndex:
    """What of a file is a key or a value, where it is no column: the whole line, or its number.

    Source: tf.lookup.TextFileIndex.
    """

    WHOLE_LINE = -2
    LINE_NUMBER = -1


def _array(value: Any, dtype: Any) -> Any:
    if (dtype is not None and as_dtype(dtype).name == "string") or (dtype is None and is_text(value)):
        return array_of(value)
    array = to_numpy(value._read() if isinstance(value, HoldsArray) else value)
    if dtype is not None:
        return array.astype(as_dtype(dtype).dtype)
    # A list of Python's numbers has TensorFlow's dtypes.
    own = hasattr(value, "dtype")
    return array if own else array.astype({"f": "float32", "i": "int32"}.get(array.dtype.kind, array.dtype))


def _tensor(array: Any) -> Any:
    return TextTensor(array) if array.dtype == object else numbers(array, array.dtype.name)


def _type(array: Any) -> DType:
    return as_dtype("string" if array.dtype == object else array.dtype)


def _empty(dtype: Any) -> Any:
    kind = as_dtype(dtype)
    return np.empty(0, object if kind.name == "string" else kind.dtype)


@lacks({"initialize": NO_GRAPHS})
class KeyValueTensorInitializer:
    """Keys and their values for a table.

    Args:
        keys: text or numbers of shape [n].
        values: text or numbers of shape [n].
        key_dtype, value_dtype: their dtypes; None for what they have.
        name: without effect.

    Raises:
        RD34: more keys than values, or fewer.

    Source: tf.lookup.KeyValueTensorInitializer.
    """

    def __init__(self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None,
                 name: str | None = None) -> None:
        self.keys, self.values = _array(keys, key_dtype), _array(values, value_dtype)
        self.key_dtype, self.value_dtype = _type(self.keys), _type(self.values)
        if self.keys.shape != self.values.shape:
            raise errors.error("RD34", "tf.lookup.KeyValueTensorInitializer", f"the keys have shape {self.keys.shape}, "
                               f"and the values {self.values.shape}", "Pass a value for each key.")


class TextFileInitializer(KeyValueTensorInitializer):
    """The lines of a file, or columns of them, as keys and values for a table.

    Args:
        filename: of the file.
        key_dtype: the dtype of the keys.
        key_index: a column from 0, or a `TextFileIndex`.
        value_dtype: the dtype of the values.
        value_index: a column from 0, or a `TextFileIndex`.
        vocab_size: how many lines are read; None for all.
        delimiter: what stands between columns.
        name: without effect.
        value_index_offset: what is added to numbers of lines.

    Raises:
        RD30: there is no such file.  RD34: a line without that column.

    Source: tf.lookup.TextFileInitializer.
    """

    def __init__(self, filename: str, key_dtype: Any, key_index: int, value_dtype: Any, value_index: int,
                 vocab_size: int | None = None, delimiter: str = "\t", name: str | None = None,
                 value_index_offset: int = 0) -> None:
        attempted = "tf.lookup.TextFileInitializer"
        try:
            with disk.opened(str(filename)) as file:
                lines = file.read().splitlines()[:vocab_size]
        except OSError as error:
            raise errors.error("RD30", attempted, f"{filename} cannot be opened: {error.strerror}",
                               kind=errors.NotFoundError) from error

        def column(index: int, dtype: Any) -> Any:
            kind = as_dtype(dtype)
            if index == TextFileIndex.LINE_NUMBER:
                return np.arange(len(lines)) + value_index_offset
            cells = lines
            if index != TextFileIndex.WHOLE_LINE:
                rows = [line.split(delimiter.encode()) for line in lines]
                if any(index >= len(row) for row in rows):
                    raise errors.error("RD34", attempted, f"a line of {filename} has no column {index}",
                                       "Pass the delimiter of the file.", kind=errors.InvalidArgumentError)
                cells = [row[index] for row in rows]
            array = np.array(cells, object)
            return array if kind.name == "string" else array.astype(kind.dtype)

        super().__init__(column(key_index, key_dtype), column(value_index, value_dtype), key_dtype, value_dtype)


@lacks({"resource_handle": NO_GRAPHS})
class StaticHashTable:
    """A table that does not change: the value of each key, or the default.

    Args:
        initializer: the keys and their values.
        default_value: for keys that are not there.
        name: without effect.
        experimental_is_anonymous: without effect.

    >>> import refdist.tf as tf
    >>> table = tf.lookup.StaticHashTable(
    ...     tf.lookup.KeyValueTensorInitializer(["a", "b"], [0, 1]), default_value=-1)
    >>> table.lookup(["b", "z"]).tolist()                                                           # doctest: +SKIP
    [1, -1]

    Raises:
        RD25: no initializer.  RD34: one key with two values.

    Source: tf.lookup.StaticHashTable.
    """

    def __init__(self, initializer: KeyValueTensorInitializer, default_value: Any, name: str | None = None,
                 experimental_is_anonymous: bool = False) -> None:
        if not isinstance(initializer, KeyValueTensorInitializer):
            raise errors.error("RD25", f"tf.lookup.{type(self).__name__}", f"got {errors.type_of(initializer)}",
                               "Pass a tf.lookup.KeyValueTensorInitializer or TextFileInitializer.")
        self.name = name or "hash_table"
        self._values: dict[Any, Any] = {}
        self._kinds = initializer.keys.dtype, initializer.values.dtype
        self._default = _array(default_value, _type(initializer.values))[()]
        for key, value in zip(initializer.keys.tolist(), initializer.values.tolist(), strict=True):
            if self._values.setdefault(key, value) != value:
                raise errors.error("RD34", "tf.lookup.StaticHashTable", f"the key {key!r} has the values "
                                   f"{self._values[key]!r} and {value!r}", "Pass each key once.",
                                   kind=errors.InvalidArgumentError)

    @property
    def key_dtype(self) -> DType:
        """The dtype of the keys."""
        return as_dtype(self._kinds[0])

    @property
    def value_dtype(self) -> DType:
        """The dtype of the values."""
        return as_dtype(self._kinds[1])

    @property
    def default_value(self) -> Any:
        """The value for keys that are not there."""
        return self._default

    def size(self, name: str | None = None) -> Any:
        """How many keys there are, int64.

        Source: tf.lookup.StaticHashTable.size.
        """
        return numbers(len(self._values), "int64")

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """All keys, and all values.

        Source: tf.lookup.StaticHashTable.export.
        """
        return self._exported(self._values, self._kinds[0]), self._exported(self._values.values(), self._kinds[1])

    @staticmethod
    def _exported(items: Iterable[Any], kind: Any) -> Any:
        array = np.empty(len(list(items)), kind)
        array[:] = list(items)
        return _tensor(array)

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The values of keys, in the shape of the keys.

        Args:
            keys: text or numbers of any shape, of the dtype of the keys.
            name: without effect.

        Raises:
            RD05: another dtype.

        Source: tf.lookup.StaticHashTable.lookup.
        """
        array = self._keys(keys)
        values = np.empty(array.shape, self._kinds[1])
        for place in np.ndindex(array.shape):
            key = array[place]
            values[place] = self._value(key if isinstance(key, bytes) else key.item())
        return _tensor(values)

    __getitem__ = lookup

    def _keys(self, keys: Any) -> Any:
        array = array_of(keys) if is_text(keys) else _array(keys, None if hasattr(keys, "dtype") else self.key_dtype)
        if _type(array) != self.key_dtype:
            raise errors.error("RD05", "a lookup in a table", f"the keys have dtype {_type(array).name}, those of the "
                               f"table {self.key_dtype.name}", "Pass keys of the table's dtype.",
                               kind=errors.InvalidTypeError)
        return array

    def _value(self, key: Any) -> Any:
        return self._values.get(key, self._default)


class StaticVocabularyTable(StaticHashTable):
    """A table of numbers from 0; keys that are not there have numbers after the last.

    Args:
        initializer: the keys, and their numbers, int64; None for none.
        num_oov_buckets: how many numbers there are for keys that are not there, which are told apart by a hash.
        lookup_key_dtype: the dtype of the keys, where there is no initializer.
        name: without effect.
        experimental_is_anonymous: without effect.

    Raises:
        RD25: something else than an initializer or a number.  RD34: fewer than one such number.

    Source: tf.lookup.StaticVocabularyTable.
    """

    def __init__(self, initializer: KeyValueTensorInitializer | None, num_oov_buckets: int,
                 lookup_key_dtype: Any = None, name: str | None = None,
                 experimental_is_anonymous: bool = False) -> None:
        self._buckets = integer(num_oov_buckets, "num_oov_buckets", "tf.lookup.StaticVocabularyTable")
        if self._buckets < 1:
            raise errors.error("RD34", "tf.lookup.StaticVocabularyTable", f"num_oov_buckets is {num_oov_buckets}",
                               "Pass 1 or more.")
        if initializer is None:
            initializer = KeyValueTensorInitializer(_empty(lookup_key_dtype or "string"), _empty("int64"))
        super().__init__(initializer, 0, name)

    def _value(self, key: Any) -> Any:
        own = self._values.get(key)
        digest = fingerprint(key if isinstance(key, bytes) else str(key).encode())
        return len(self._values) + digest % self._buckets if own is None else own

    def size(self, name: str | None = None) -> Any:
        """How many numbers there are, int64.

        Source: tf.lookup.StaticVocabularyTable.size.
        """
        return numbers(len(self._values) + self._buckets, "int64")


class MutableHashTable(StaticHashTable):
    """A table whose values the program changes.

    Args:
        key_dtype, value_dtype: the dtypes.
        default_value: for keys that are not there.
        name: without effect.
        checkpoint: without effect.
        experimental_is_anonymous: without effect.

    Source: tf.lookup.experimental.MutableHashTable.
    """

    def __init__(self, key_dtype: Any, value_dtype: Any, default_value: Any, name: str = "MutableHashTable",
                 checkpoint: bool = True, experimental_is_anonymous: bool = False) -> None:
        super().__init__(KeyValueTensorInitializer(_empty(key_dtype), _empty(value_dtype)), default_value, name)

    def insert(self, keys: Any, values: Any, name: str | None = None) -> None:
        """Gives keys values.

        Args:
            keys, values: text or numbers of one shape.
            name: without effect.

        Raises:
            RD05: keys of another dtype.

        Source: tf.lookup.experimental.MutableHashTable.insert.
        """
        array = _array(values, self.value_dtype)
        self._values.update(zip(self._keys(keys).reshape(-1).tolist(), array.reshape(-1).tolist(), strict=True))

    def remove(self, keys: Any, name: str | None = None) -> None:
        """Removes keys; those that are not there are passed over.

        Args:
            keys: text or numbers of any shape.
            name: without effect.

        Raises:
            RD05: keys of another dtype.

        Source: tf.lookup.experimental.MutableHashTable.remove.
        """
        for key in self._keys(keys).reshape(-1).tolist():
            self._values.pop(key, None)
