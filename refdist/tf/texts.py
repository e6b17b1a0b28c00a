"""Tensors of text: `tf.constant("a")`, lines of files, keys of tables.

No library below Keras has text, so such a tensor is a class of its own over NumPy's array of bytes.  It shows what
TensorFlow's shows, and operations that only move elements, or compare them, take it (`FUNCTIONS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from refdist import errors, nest
from refdist.array import texts
from refdist.array.convert import HoldsArray
from refdist.missing import NO_GRAPHS, lacks
from refdist.tf.dtypes import DTYPES, DType, as_dtype
from refdist.tf.shapes import TensorShape, set_shape
from refdist.variables.variable import Reference

# What TensorFlow's tensors have, and what to write instead.
OF_TENSORS = {
    "eval": "Write `x.numpy()`.",
    "experimental_ref": "Write `x.ref()`.",
    "backing_device": "Write `x.device`.",
    "gpu": "Write `with tf.device(\"GPU:0\"): y = tf.identity(x)`.",
    "consumers graph op value_index": NO_GRAPHS,
    "is_packed OVERLOADABLE_OPERATORS": "Leave it out: tensors are those of another library.",
}


@lacks(OF_TENSORS)
class TextTensor(HoldsArray):
    """A tensor of text, which cannot change.

    Args:
        value: bytes or a str, a nested list or an array of them.

    >>> import refdist.tf as tf
    >>> tf.strings.lower(["A", "B"])                                                                # doctest: +SKIP
    <tf.Tensor: shape=(2,), dtype=string, numpy=array([b'a', b'b'], dtype=object)>

    Source: tf.Tensor of dtype tf.string.
    """

    __slots__ = ("_array",)
    __array_ufunc__ = None
    _array: Any

    def __init__(self, value: Any) -> None:
        self._array = array_of(value)

    def _read(self) -> Any:
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._array.copy() if copy else self._array

    def numpy(self) -> Any:
        """The text: bytes, or an array of them."""
        return self._array.copy()[()]

    def cpu(self) -> TextTensor:
        """The tensor itself: text lies on no other device."""
        return self

    def ref(self) -> Reference:
        """The tensor as a key of a dict, compared by identity."""
        return Reference(self)

    set_shape = set_shape

    @property
    def dtype(self) -> DType:
        """`tf.string`."""
        return DTYPES["string"]

    @property
    def shape(self) -> TensorShape:
        """The shape."""
        return TensorShape(self._array.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self._array.ndim)

    @property
    def device(self) -> str:
        """The name of the device: text lies in the host's memory."""
        return "/job:localhost/replica:0/task:0/device:CPU:0"

    def get_shape(self) -> TensorShape:
        """The shape."""
        return self.shape

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return map(TextTensor, self._array)

    def __getitem__(self, key: Any) -> TextTensor:
        return TextTensor(self._array[nest.map_structure(_place, key)])

    def __bool__(self) -> bool:
        return bool(self._array)

    def __add__(self, other: Any) -> TextTensor:
        return TextTensor(self._array + array_of(other))

    def __radd__(self, other: Any) -> TextTensor:
        return TextTensor(array_of(other) + self._array)

    def __eq__(self, other: Any) -> Any:
        return equal(self, other)

    def __ne__(self, other: Any) -> Any:
        return numbers(self._array != array_of(other), "bool")

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        text = str(self._array)
        return f"tf.Tensor({self._rows(text)}, shape={tuple(self.shape)}, dtype=string)"

    def __repr__(self) -> str:
        return (f"<tf.Tensor: shape={tuple(self.shape)}, dtype=string, "
                f"numpy={self._rows(repr(self._array[()]))}>")

    def __format__(self, spec: str) -> str:
        return format(str(self._array[()]), spec)

    @staticmethod
    def _rows(text: str) -> str:
        return f"\n{text}" if "\n" in text else text


class Unique(NamedTuple):
    """The different values, and where each item is among them."""

    y: Any
    idx: Any


def _place(index: Any) -> Any:
    return index if isinstance(index, (int, slice, type(None), type(...), np.ndarray)) else np.asarray(index)


def is_text(value: Any) -> bool:
    """Whether it is text: a tensor of it, bytes, a str, or a list or an array of them."""
    if isinstance(value, TextTensor):
        return True
    if isinstance(value, (list, tuple)):
        return bool(value) and is_text(value[0])
    return texts.is_text(value) and not (isinstance(value, np.ndarray) and value.dtype.kind == "O" and not value.size)


def array_of(value: Any, attempted: str = "a tensor of text") -> Any:
    """Text as a read-only array of bytes.

    Raises:
        RD25: it is no text.
    """
    if isinstance(value, TextTensor):
        return value._array
    if isinstance(value, HoldsArray):
        value = value._read()
    if isinstance(value, (list, tuple)):
        value = [array_of(item, attempted) for item in value]
        array = np.empty((len(value), *(value[0].shape if value else ())), object)
        for number, row in enumerate(value):
            if row.shape != array.shape[1:]:
                raise errors.error("RD34", attempted, f"rows have the shapes {array.shape[1:]} and {row.shape}",
                                   "Give all rows one shape.")
            array[number] = row if row.ndim else row[()]
    else:
        objects = np.asarray(value, None if isinstance(value, np.ndarray) else object)
        if objects.dtype.kind not in "USO" or not all(isinstance(item, (bytes, str)) for item in objects.flat):
            raise errors.error("RD25", attempted, f"got {errors.type_of(value)}", "Pass text: a str, bytes, a list of "
                               "them, or a tensor of dtype tf.string.")
        array = np.empty(objects.shape, object)
        for place in np.ndindex(objects.shape):
            item: Any = objects[place]
            array[place] = item.encode() if isinstance(item, str) else bytes(item)
    array.flags.writeable = False
    return array


def text(value: Any) -> TextTensor:
    """The value as a tensor of text.

    Raises:
        RD25: it is no text.
    """
    return value if isinstance(value, TextTensor) else TextTensor(value)


def each(function: Callable[[bytes], Any], value: Any) -> Any:
    """What a function makes of each text, an array of objects in their shape."""
    array = array_of(value)
    result = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        result[place] = function(array[place])
    return result


def numbers(array: Any, dtype: str) -> Any:
    """An array of numbers as a tensor."""
    from refdist.tf.conversion import tensor

    return tensor(np.asarray(array).astype(dtype), dtype)


def as_bytes(bytes_or_text: bytes | bytearray | str, encoding: str = "utf-8") -> bytes:
    """The text as bytes.

    Args:
        bytes_or_text: bytes, which stay what they are, or a str.
        encoding: of the bytes.

    Raises:
        RD25: something else.

    Source: tf.compat.as_bytes.
    """
    return bytes_or_text.encode(encoding) if isinstance(bytes_or_text, str) else bytes(_bytes(bytes_or_text))


def as_text(bytes_or_text: bytes | bytearray | str, encoding: str = "utf-8") -> str:
    """The text as a str.

    Args:
        bytes_or_text: bytes, or a str, which stays what it is.
        encoding: of the bytes.

    Raises:
        RD25: something else.

    Source: tf.compat.as_text.
    """
    return bytes_or_text if isinstance(bytes_or_text, str) else _bytes(bytes_or_text).decode(encoding)


def _bytes(value: bytes | bytearray) -> bytes | bytearray:
    if not isinstance(value, (bytes, bytearray)):
        raise errors.error("RD25", "tf.compat", f"got {errors.type_of(value)}", "Pass bytes or a str; of a tensor of "
                           "text its `.numpy()`.")
    return value


def connect() -> None:
    """From now on text is a tensor, where everything is."""
    texts.make.value = TextTensor


def equal(x: Any, y: Any) -> Any:
    """Whether texts are the same, element by element."""
    return numbers(array_of(x) == array_of(y), "bool")


def _ints(value: Any) -> Any:
    if value is None or isinstance(value, int):
        return value
    array = np.asarray(value)
    return int(array) if not array.ndim else tuple(map(int, array))


def _split(value: Any, num_or_size_splits: Any, axis: int = 0, name: str | None = None) -> list[TextTensor]:
    sizes = _ints(num_or_size_splits)
    where: Any = sizes if isinstance(sizes, int) else np.cumsum(sizes)[:-1]
    return list(map(TextTensor, np.split(array_of(value), where, axis)))


def _gather(params: Any, indices: Any, validate_indices: Any = None, axis: Any = None, batch_dims: int = 0,
            name: str | None = None) -> TextTensor:
    return TextTensor(np.take(array_of(params), np.asarray(indices), axis or 0))


def _unique(x: Any, out_idx: Any = "int32", name: str | None = None) -> Any:
    seen: dict[bytes, int] = {}
    places = [seen.setdefault(item, len(seen)) for item in array_of(x)]
    return Unique(TextTensor(list(seen)), numbers(places, DTypeName(out_idx)))


def DTypeName(dtype: Any) -> str:  # noqa: N802
    """The name of a dtype."""
    return as_dtype(dtype).name


def _cast(x: Any, dtype: Any, name: str | None = None) -> TextTensor:
    if DTypeName(dtype) != "string":
        raise errors.error("RD05", "tf.cast", f"the tensor has dtype string, and {DTypeName(dtype)} is asked for",
                           "Write `tf.strings.to_number(x, dtype)`.", kind=errors.InvalidArgumentError)
    return text(x)


def _where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> TextTensor:
    return TextTensor(np.where(np.asarray(condition), array_of(x), array_of(y)))


_OF_TEXT: dict[str, Callable[..., Any]] = {
    "convert_to_tensor": lambda value, dtype=None, dtype_hint=None, name=None: text(value),
    "identity": lambda input, name=None: text(input),
    "cast": _cast,
    "equal": lambda x, y, name=None: equal(x, y),
    "not_equal": lambda x, y, name=None: text(x) != y,
    "add": lambda x, y, name=None: text(x) + y,
    "shape": lambda input, out_type="int32", name=None: numbers(array_of(input).shape, DTypeName(out_type)),
    "size": lambda input, out_type="int32", name=None: numbers(array_of(input).size, DTypeName(out_type)),
    "rank": lambda input, name=None: numbers(array_of(input).ndim, "int32"),
    "reshape": lambda tensor, shape, name=None: TextTensor(array_of(tensor).reshape(_ints(shape))),
    "expand_dims": lambda input, axis, name=None: TextTensor(np.expand_dims(array_of(input), _ints(axis))),
    "squeeze": lambda input, axis=None, name=None: TextTensor(np.squeeze(array_of(input), _ints(axis))),
    "transpose": lambda a, perm=None, name=None: TextTensor(np.transpose(array_of(a), _ints(perm))),
    "concat": lambda values, axis, name=None: TextTensor(np.concatenate(list(map(array_of, values)), _ints(axis))),
    "stack": lambda values, axis=0, name=None: TextTensor(np.stack(list(map(array_of, values)), axis)),
    "unstack": lambda value, num=None, axis=0, name=None: [
        TextTensor(part) for part in np.moveaxis(array_of(value), axis, 0)],
    "split": _split,
    "tile": lambda input, multiples, name=None: TextTensor(np.tile(array_of(input), _ints(multiples))),
    "repeat": lambda input, repeats, axis=None, name=None: TextTensor(
        np.repeat(array_of(input), _ints(repeats), axis)),
    "reverse": lambda tensor, axis, name=None: TextTensor(np.flip(array_of(tensor), _ints(axis))),
    "broadcast_to": lambda input, shape, name=None: TextTensor(np.broadcast_to(array_of(input), _ints(shape))),
    "fill": lambda dims, value, name=None: TextTensor(np.full(_ints(dims), array_of(value)[()], object)),
    "gather": _gather,
    "boolean_mask": lambda tensor, mask, axis=None, name=None: TextTensor(
        np.compress(np.asarray(mask), array_of(tensor), axis or 0)),
    "where": _where,
    "unique": _unique,
    "zeros_like": lambda input, dtype=None, name=None: TextTensor(np.full(array_of(input).shape, b"", object)),
}
# Which of their parameters may be text, where it is not the first.
_PLACES = {"equal": (0, 1), "not_equal": (0, 1), "add": (0, 1), "fill": (1,), "where": (1, 2)}
# What operations of the table do where an argument is text, by their first paths, and the places of these arguments.
FUNCTIONS = {path: (function, _PLACES.get(path, (0,))) for path, function in _OF_TEXT.items()}
