"""`tf.train.Example` and its kin, records, and tensors as text: what TensorFlow writes to files.

A message of Protocol Buffers is a sequence of fields; each begins with its number and a kind of coding.  Only what the
messages of `tf.train.Example` and of tensors need is written and read.

Source: Protocol Buffers, "Encoding"; example.proto, feature.proto and tensor.proto of TensorFlow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from refdist import errors
from refdist.array.convert import HoldsArray, to_numpy
from refdist.data import TFRecordWriter as _Writer
from refdist.missing import NO_PROTOS, lacks
from refdist.tf.conversion import tensor
from refdist.tf.dtypes import as_dtype
from refdist.tf.texts import TextTensor, array_of, is_text, numbers

_VARINT, _BYTES, _FLOAT = 0, 2, 5
# The numbers that dtypes have in the message of a tensor.
_CODES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "string": 7, "complex64": 8,
          "int64": 9, "bool": 10, "uint16": 17, "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23}


def varint(number: int) -> bytes:
    """An integer as messages have it, seven bits to a byte."""
    number &= 2**64 - 1
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


def field(number: int, content: bytes) -> bytes:
    """A field that holds bytes: a text, a message, packed numbers."""
    return varint(number << 3 | _BYTES) + varint(len(content)) + content


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place


def _fields(data: bytes, attempted: str) -> Iterator[tuple[int, int, Any]]:
    # The number, the kind and the content of each field.
    place = 0
    try:
        while place < len(data):
            key, place = _read_varint(data, place)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                content: Any
                content, place = _read_varint(data, place)
            elif kind == _BYTES:
                size, place = _read_varint(data, place)
                content, place = data[place:place + size], place + size
                if len(content) < size:
                    raise IndexError
            elif kind == _FLOAT:
                content, place = data[place:place + 4], place + 4
            else:
                raise IndexError
            yield number, kind, content
    except IndexError as error:
        raise errors.error("RD34", attempted, "the bytes are no such message",
                           "Pass what `SerializeToString` returned.", kind=errors.InvalidArgumentError) from error


@lacks({
    "ClearExtension DESCRIPTOR Extensions FindInitializationErrors HasExtension IsInitialized ListFields SetInParent "
    "UnknownFields DiscardUnknownFields FeatureEntry": NO_PROTOS,
    "Clear ClearField": "Make a new message.",
    "CopyFrom MergeFrom": "Write `ParseFromString(other.SerializeToString())`, or use the other message.",
    "MergeFromString SerializePartialToString": "Write `ParseFromString` or `SerializeToString`.",
    "ByteSize": "Write `len(message.SerializeToString())`.",
    "HasField": "Write `feature.WhichOneof(\"kind\")`.",
    "WhichOneof": "It is a method of `tf.train.Feature` alone.",
})
class _Message:
    # What is written to files, and read.

    def _written(self) -> bytes:
        raise NotImplementedError

    def _take(self, data: bytes, attempted: str) -> None:
        # Adds what the bytes say to a message that is empty.
        raise NotImplementedError

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The message as bytes."""
        return self._written()

    def ParseFromString(self, serialized: bytes) -> int:  # noqa: N802
        """Becomes the message that bytes say, and returns how many there are.

        Args:
            serialized: what `SerializeToString` returned.

        Raises:
            RD25: no bytes.  RD34: the bytes are no such message.
        """
        attempted = f"tf.train.{type(self).__name__}.ParseFromString"
        if not isinstance(serialized, bytes):
            raise errors.error("RD25", attempted, f"got {errors.type_of(serialized)}",
                               "Pass bytes: of a tensor of text `x.numpy()`.", kind=errors.InvalidTypeError)
        read = type(self)()
        read._take(serialized, attempted)
        vars(self).update(vars(read))
        return len(serialized)

    @classmethod
    def FromString(cls, s: bytes) -> Self:  # noqa: N802
        """The message that bytes say.

        Args:
            s: what `SerializeToString` returned.

        Raises:
            RD25: no bytes.  RD34: the bytes are no such message.
        """
        message = cls()
        message.ParseFromString(s)
        return message


class _List(_Message):
    """Base of the lists of values in a feature.

    Args:
        value: the values.
    """

    def __init__(self, value: Iterable[Any] = ()) -> None:
        self.value = [self._checked(item) for item in value]

    def _checked(self, item: Any) -> Any:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "".join(f"value: {item!r}\n" for item in self.value)


class BytesList(_List):
    """Values that are bytes.

    Args:
        value: a list of bytes, or of texts without dimensions.  TensorFlow refuses the texts, so programs ask whether a
            value is of `type(tf.constant(0))`, to which texts do not belong here.

    Raises:
        RD25: something else.

    Source: tf.train.BytesList.
    """

    def _checked(self, item: Any) -> bytes:
        if isinstance(item, TextTensor) and not array_of(item).ndim:
            return bytes(item.numpy())
        if not isinstance(item, bytes):
            raise errors.error("RD25", "tf.train.BytesList", f"got {errors.type_of(item)}",
                               "Pass bytes: of a str `text.encode()`, of a tensor of text `x.numpy()`.")
        return item

    def _written(self) -> bytes:
        return b"".join(field(1, item) for item in self.value)

    def _take(self, data: bytes, attempted: str) -> None:
        self.value += [content for number, _, content in _fields(data, attempted) if number == 1]


class FloatList(_List):
    """Values that are float32.

    Args:
        value: a list of numbers.

    Source: tf.train.FloatList.
    """

    def _checked(self, item: Any) -> float:
        return float(np.float32(item))

    def _written(self) -> bytes:
        return field(1, struct.pack(f"<{len(self.value)}f", *self.value)) if self.value else b""

    def _take(self, data: bytes, attempted: str) -> None:
        for _, _, content in _fields(data, attempted):
            self.value += np.frombuffer(content, "<f4").tolist()


class Int64List(_List):
    """Values that are int64.

    Args:
        value: a list of ints.

    Raises:
        RD25: something else.

    Source: tf.train.Int64List.
    """

    def _checked(self, item: Any) -> int:
        try:
            return int(item.__index__())
        except (AttributeError, TypeError) as error:
            raise errors.error("RD25", "tf.train.Int64List", f"got {errors.type_of(item)}", "Pass ints.") from error

    def _written(self) -> bytes:
        return field(1, b"".join(map(varint, self.value))) if self.value else b""

    def _take(self, data: bytes, attempted: str) -> None:
        for _, kind, content in _fields(data, attempted):
            packed = [content] if kind == _VARINT else []
            place = 0
            while kind == _BYTES and place < len(content):
                number, place = _read_varint(content, place)
                packed.append(number)
            self.value += [number - 2**64 if number >= 2**63 else number for number in packed]


_LISTS = {"bytes_list": (1, BytesList), "float_list": (2, FloatList), "int64_list": (3, Int64List)}


class Feature(_Message):
    """One list of values.

    Args:
        bytes_list, float_list, int64_list: the list; one of them.

    Source: tf.train.Feature.
    """

    def __init__(self, bytes_list: BytesList | None = None, float_list: FloatList | None = None,
                 int64_list: Int64List | None = None) -> None:
        lists = {"bytes_list": bytes_list, "float_list": float_list, "int64_list": int64_list}
        self._given: dict[str, Any] = {name: given for name, given in lists.items() if given is not None}

    def _written(self) -> bytes:
        return b"".join(field(_LISTS[name][0], items._written()) for name, items in self._given.items())

    def _take(self, data: bytes, attempted: str) -> None:
        for number, _, content in _fields(data, attempted):
            for name, (own, kind) in _LISTS.items():
                if own == number:
                    self._given[name] = kind()
                    self._given[name]._take(content, attempted)

    @property
    def bytes_list(self) -> BytesList:
        """Its values, if they are bytes."""
        return self._given.get("bytes_list") or BytesList()

    @property
    def float_list(self) -> FloatList:
        """Its values, if they are float32."""
        return self._given.get("float_list") or FloatList()

    @property
    def int64_list(self) -> Int64List:
        """Its values, if they are int64."""
        return self._given.get("int64_list") or Int64List()

    def WhichOneof(self, oneof_group: str) -> str | None:  # noqa: N802
        """The name of the list that it has; None without one.

        Args:
            oneof_group: "kind".
        """
        return next(iter(self._given), None)

    def __repr__(self) -> str:
        return "".join(_block(name, repr(given)) for name, given in self._given.items())


class Features(_Message):
    """Features by their names.

    Args:
        feature: a dict of them.

    Source: tf.train.Features.
    """

    def __init__(self, feature: Mapping[str, Feature] | None = None) -> None:
        self.feature: dict[str, Feature] = dict(feature or {})

    def _written(self) -> bytes:
        return _entries_written(self.feature)

    def _take(self, data: bytes, attempted: str) -> None:
        _take_entries(self.feature, Feature, data, attempted)

    def __repr__(self) -> str:
        return _entries_shown("feature", self.feature)


class Example(_Message):
    """A row of a file of records.

    Args:
        features: its features.

    >>> import refdist.tf as tf
    >>> row = tf.train.Example(features=tf.train.Features(
    ...     feature={"y": tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))}))
    >>> tf.train.Example.FromString(row.SerializeToString()).features.feature["y"].int64_list.value
    [3]

    Source: tf.train.Example.
    """

    def __init__(self, features: Features | None = None) -> None:
        self.features = features or Features()

    def _written(self) -> bytes:
        return field(1, self.features._written())

    def _take(self, data: bytes, attempted: str) -> None:
        for _, _, content in _fields(data, attempted):
            self.features._take(content, attempted)

    def __repr__(self) -> str:
        return _block("features", repr(self.features))


class FeatureList(_Message):
    """The features of a sequence, one for each of its steps.

    Args:
        feature: a list of them.

    Source: tf.train.FeatureList.
    """

    def __init__(self, feature: Iterable[Feature] = ()) -> None:
        self.feature = list(feature)

    def _written(self) -> bytes:
        return b"".join(field(1, feature._written()) for feature in self.feature)

    def _take(self, data: bytes, attempted: str) -> None:
        for _, _, content in _fields(data, attempted):
            self.feature.append(Feature())
            self.feature[-1]._take(content, attempted)

    def __repr__(self) -> str:
        return "".join(_block("feature", repr(feature)) for feature in self.feature)


class FeatureLists(_Message):
    """Lists of features by their names.

    Args:
        feature_list: a dict of them.

    Source: tf.train.FeatureLists.
    """

    def __init__(self, feature_list: Mapping[str, FeatureList] | None = None) -> None:
        self.feature_list: dict[str, FeatureList] = dict(feature_list or {})

    def _written(self) -> bytes:
        return _entries_written(self.feature_list)

    def _take(self, data: bytes, attempted: str) -> None:
        _take_entries(self.feature_list, FeatureList, data, attempted)

    def __repr__(self) -> str:
        return _entries_shown("feature_list", self.feature_list)


class SequenceExample(_Message):
    """A row of a file of records that has a sequence, such as the words of a text.

    Args:
        context: features of the whole row.
        feature_lists: features of each step.

    >>> import refdist.tf as tf
    >>> steps = [tf.train.Feature(int64_list=tf.train.Int64List(value=[step])) for step in (3, 1)]
    >>> row = tf.train.SequenceExample(feature_lists=tf.train.FeatureLists(
    ...     feature_list={"x": tf.train.FeatureList(feature=steps)}))
    >>> read = tf.train.SequenceExample.FromString(row.SerializeToString())
    >>> [step.int64_list.value for step in read.feature_lists.feature_list["x"].feature]
    [[3], [1]]

    Source: tf.train.SequenceExample.
    """

    def __init__(self, context: Features | None = None, feature_lists: FeatureLists | None = None) -> None:
        self.context, self.feature_lists = context or Features(), feature_lists or FeatureLists()

    def _written(self) -> bytes:
        return field(1, self.context._written()) + field(2, self.feature_lists._written())

    def _take(self, data: bytes, attempted: str) -> None:
        for number, _, content in _fields(data, attempted):
            if number in (1, 2):
                (self.context if number == 1 else self.feature_lists)._take(content, attempted)

    def __repr__(self) -> str:
        return _block("context", repr(self.context)) + _block("feature_lists", repr(self.feature_lists))


def _entries_written(entries: Mapping[str, _Message]) -> bytes:
    return b"".join(field(1, field(1, key.encode()) + field(2, entry._written())) for key, entry in entries.items())


def _take_entries(entries: dict[str, Any], kind: type[_Message], data: bytes, attempted: str) -> None:
    for _, _, entry in _fields(data, attempted):
        parts = {number: content for number, _, content in _fields(entry, attempted)}
        message = entries[parts.get(1, b"").decode()] = kind()
        message._take(parts.get(2, b""), attempted)


def _entries_shown(name: str, entries: Mapping[str, _Message]) -> str:
    return "".join(_block(name, f"key: \"{key}\"\n{_block('value', repr(entry))}")
                   for key, entry in sorted(entries.items()))


def _block(name: str, content: str) -> str:
    inner = "".join(f"  {line}\n" for line in content.splitlines())
    return f"{name} {{\n{inner}}}\n"


class TFRecordWriter(_Writer):
    """Writes records that `tf.data.TFRecordDataset` reads.

    Args:
        path: the file, which is replaced.
        options: None, "", "GZIP" or TFRecordOptions.

    Raises:
        RD34: another compression.  RD27: the package `google-crc32c` is not installed.  RD30: the file cannot be
            written.

    Source: tf.io.TFRecordWriter.
    """

    def __init__(self, path: Any, options: Any = None) -> None:
        super().__init__(path, getattr(options, "compression_type", options))

    def write(self, record: Any) -> None:
        """Appends a record.

        Args:
            record: bytes, or a text without dimensions.

        Raises:
            RD25: something else.
        """
        super().write(bytes(array_of(record)[()]) if isinstance(record, TextTensor) else record)


@lacks({
    "compression_level compression_method compression_strategy compression_type_map flush_mode "
    "get_compression_type_string input_buffer_size mem_level output_buffer_size window_bits":
        "Leave it out: there is `compression_type` alone.",
})
class TFRecordOptions:
    """How records are written.

    Args:
        compression_type: None, "" or "GZIP".

    Source: tf.io.TFRecordOptions.
    """

    def __init__(self, compression_type: str | None = None) -> None:
        self.compression_type = compression_type


def serialize_tensor(tensor: Any, name: str | None = None) -> Any:
    """A tensor as one text.

    Args:
        tensor: of any shape and dtype.
        name: without effect.

    Source: tf.io.serialize_tensor.
    """
    if is_text(tensor):
        array = array_of(tensor)
        content = b"".join(field(8, item) for item in array.reshape(-1))
        kind = "string"
    else:
        array = to_numpy(tensor._read() if isinstance(tensor, HoldsArray) else tensor)
        content, kind = field(4, np.ascontiguousarray(array).tobytes()) if array.size else b"", array.dtype.name
    shape = b"".join(field(2, varint(1 << 3) + varint(length) if length else b"") for length in array.shape)
    return TextTensor(varint(1 << 3) + varint(_CODES[kind]) + field(2, shape) + content)


def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Any:
    """The tensor that a text says.

    Args:
        serialized: what `serialize_tensor` returned.
        out_type: the dtype of the tensor.
        name: without effect.

    Raises:
        RD34: the text is no tensor, or one of another dtype.

    Source: tf.io.parse_tensor.
    """
    attempted, dtype = "tf.io.parse_tensor", as_dtype(out_type).name
    code, shape, content, texts = 0, [], b"", []
    for number, _, part in _fields(bytes(array_of(serialized)[()]), attempted):
        if number == 1:
            code = part
        elif number == 2:
            shape = [next((length for _, _, length in _fields(dimension, attempted)), 0)
                     for _, _, dimension in _fields(part, attempted)]
        elif number == 4:
            content = part
        elif number == 8:
            texts.append(part)
    if code != _CODES.get(dtype):
        own = next((name for name, number in _CODES.items() if number == code), "another dtype")
        raise errors.error("RD34", attempted, f"the tensor has dtype {own}, and {dtype} is asked for",
                           "Pass the dtype of the tensor that was written.", kind=errors.InvalidArgumentError)
    if dtype == "string":
        return TextTensor(array_of(texts or np.empty(0, object)).reshape(shape))
    return numbers(np.frombuffer(content, as_dtype(dtype).dtype).reshape(shape), dtype)


def decode_raw(input_bytes: Any, out_type: Any, little_endian: bool = True, fixed_length: int | None = None,
               name: str | None = None) -> Any:
    """The numbers that texts hold as bytes, with one more dimension.

    Args:
        input_bytes: text of any shape; each as long as the others.
        out_type: the dtype of the numbers.
        little_endian: whether the lowest byte comes first.
        fixed_length: None: TensorFlow cuts or fills texts to so many bytes.
        name: without effect.

    Raises:
        RD20: a fixed length.  RD34: texts of different lengths, or of parts of a number.

    Source: tf.io.decode_raw.
    """
    if fixed_length is not None:
        raise errors.error("RD20", "tf.io.decode_raw", f"fixed_length is {fixed_length}", "Cut the bytes before.")
    array, dtype = array_of(input_bytes), as_dtype(out_type)
    kind = dtype.dtype.newbyteorder("<" if little_endian else ">")
    lengths = {len(item) for item in array.flat}
    if len(lengths) > 1 or any(length % kind.itemsize for length in lengths):
        raise errors.error("RD34", "tf.io.decode_raw", f"the texts have {sorted(lengths)} bytes, a number "
                           f"{kind.itemsize}", "Pass texts of one length, each of whole numbers.",
                           kind=errors.InvalidArgumentError)
    rows = [np.frombuffer(item, kind) for item in array.flat]
    return numbers(np.array(rows).reshape(*array.shape, -1), dtype.name)


def decode_csv(records: Any, record_defaults: Iterable[Any], field_delim: str = ",", use_quote_delim: bool = True,
               na_value: str = "", select_cols: Iterable[int] | None = None, name: str | None = None) -> list[Any]:
    """The columns of lines, a tensor for each, in the shape of the lines.

    Args:
        records: text of any shape: lines.
        record_defaults: for each column its dtype, or what is taken where it is empty.
        field_delim: what stands between columns.
        use_quote_delim: whether quotes keep it together.
        na_value: what is empty, too.
        select_cols: the columns wanted; None for all.
        name: without effect.

    Raises:
        RD34: a line with more or fewer columns, a column that is no number, or is empty and has no default.

    Source: tf.io.decode_csv.
    """
    import csv

    from refdist.tf.dtypes import DType

    attempted, array, defaults = "tf.io.decode_csv", array_of(records), list(record_defaults)
    wanted = None if select_cols is None else list(select_cols)
    quoting: Any = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE
    columns: list[list[Any]] = [[] for _ in defaults]
    kinds = [default if isinstance(default, DType) else as_dtype("string") if is_text(default) else
             tensor(default).dtype for default in defaults]
    names = [as_dtype(kind).name for kind in kinds]
    for line in array.flat:
        row = next(csv.reader([line.decode()], delimiter=field_delim, quoting=quoting), [])
        row = row if wanted is None else [row[place] for place in wanted]
        if len(row) != len(defaults):
            raise errors.error("RD34", attempted, f"a line has {errors.counted(len(row), 'column')}, and there are "
                               f"{errors.counted(len(defaults), 'default')}", "Pass one for each column.",
                               kind=errors.InvalidArgumentError)
        for column, item, default, dtype in zip(columns, row, defaults, names, strict=True):
            column.append(_item(item, default, dtype, na_value, attempted))
    return [TextTensor(array_of(column).reshape(array.shape)) if dtype == "string" else
            numbers(np.array(column).reshape(array.shape), dtype)
            for column, dtype in zip(columns, names, strict=True)]


def _item(item: str, default: Any, dtype: str, na_value: str, attempted: str) -> Any:
    from refdist.tf.dtypes import DType

    if item in ("", na_value):
        items = [] if isinstance(default, DType) else array_of(default) if is_text(default) else np.asarray(default)
        if not np.size(items):
            raise errors.error("RD34", attempted, "a column is empty, and has no default", "Pass a value for it.",
                               kind=errors.InvalidArgumentError)
        return np.ravel(items)[0]
    try:
        return item if dtype == "string" else int(item) if dtype.startswith("int") else float(item)
    except ValueError as error:
        raise errors.error("RD34", attempted, f"{item!r} is no {dtype}", "Pass the dtypes of the columns.",
                           kind=errors.InvalidArgumentError) from error
