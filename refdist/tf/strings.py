"""`tf.strings`: what programs do with text before it becomes numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from refdist import errors
from refdist.tf.conversion import tensor
from refdist.tf.fingerprints import fingerprint
from refdist.tf.texts import DTypeName, TextTensor, array_of, each, numbers

__all__ = ["as_string", "bytes_split", "format", "join", "length", "lower", "reduce_join", "regex_full_match",
           "regex_replace", "split", "strip", "substr", "to_hash_bucket_fast", "to_number", "unicode_split", "upper"]

_UNITS = ("BYTE", "UTF8_CHAR")


def _as_text(value: Any) -> TextTensor:
    return TextTensor(value)


def _by_characters(unit: str, attempted: str) -> bool:
    if unit not in _UNITS:
        raise errors.error("RD34", attempted, f"unit is {unit!r}", 'Pass "BYTE" or "UTF8_CHAR".')
    return unit == "UTF8_CHAR"


def length(input: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """How many bytes, or characters, each text has, int32.

    Args:
        input: text of any shape.
        unit: "BYTE" or "UTF8_CHAR".
        name: without effect.

    Raises:
        RD25: no text.  RD34: another unit.

    Source: tf.strings.length.
    """
    characters = _by_characters(unit, "tf.strings.length")
    return numbers(each(lambda text: len(text.decode(errors="replace")) if characters else len(text), input), "int32")


def _cased(text: bytes, encoding: str, upper: bool) -> bytes:
    if encoding == "utf-8":
        decoded = text.decode(errors="replace")
        return (decoded.upper() if upper else decoded.lower()).encode()
    return text.upper() if upper else text.lower()


def lower(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """The texts in small letters; only ASCII's unless the encoding is "utf-8".

    Args:
        input: text of any shape.
        encoding: "" or "utf-8".
        name: without effect.

    Raises:
        RD25: no text.

    Source: tf.strings.lower.
    """
    return _as_text(each(lambda text: _cased(text, encoding, False), input))


def upper(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """The texts in capital letters; only ASCII's unless the encoding is "utf-8".

    Args:
        input: text of any shape.
        encoding: "" or "utf-8".
        name: without effect.

    Raises:
        RD25: no text.

    Source: tf.strings.upper.
    """
    return _as_text(each(lambda text: _cased(text, encoding, True), input))


def strip(input: Any, name: str | None = None) -> Any:
    """The texts without white space at their ends.

    Args:
        input: text of any shape.
        name: without effect.

    Raises:
        RD25: no text.

    Source: tf.strings.strip.
    """
    return _as_text(each(bytes.strip, input))


def split(input: Any, sep: Any = None, maxsplit: int = -1, name: str | None = None) -> Any:
    """The parts of one text.

    Args:
        input: a text without dimensions.
        sep: what stands between the parts; None for white space.
        maxsplit: how often it is split at most; -1 for everywhere.
        name: without effect.

    Raises:
        RD20: several texts, whose parts would be a ragged tensor.  RD25: no text.

    Source: tf.strings.split.
    """
    array = array_of(input)
    if array.ndim:
        raise errors.error("RD20", "tf.strings.split", f"the texts have shape {array.shape}, and their parts would be "
                           "a ragged tensor", "Split in `Dataset.map` before `batch`, and batch with `padded_batch`.")
    between = None if sep is None else bytes(array_of(sep)[()]) or None
    return _as_text(list(array[()].split(between, maxsplit)) or np.empty(0, object))


def join(inputs: Any, separator: str = "", name: str | None = None) -> Any:
    """The texts of several tensors, joined element by element.

    Args:
        inputs: a list of text; a single text stands beside those of any shape.
        separator: what is put between.
        name: without effect.

    Raises:
        RD25: no text.

    Source: tf.strings.join.
    """
    arrays = np.broadcast_arrays(*map(array_of, inputs))
    joined = np.empty(arrays[0].shape, object)
    for place in np.ndindex(joined.shape):
        parts: list[Any] = [array[place] for array in arrays]
        joined[place] = separator.encode().join(parts)
    return _as_text(joined)


def reduce_join(inputs: Any, axis: Any = None, keepdims: bool = False, separator: str = "",
                name: str | None = None) -> Any:
    """The texts along an axis as one.

    Args:
        inputs: text of any shape.
        axis: an int; None for all.
        keepdims: whether the axis stays, with length 1.
        separator: what is put between.
        name: without effect.

    Raises:
        RD25: no text.

    Source: tf.strings.reduce_join.
    """
    array = array_of(inputs)
    rows = array.reshape(-1, 1).T if axis is None else np.moveaxis(array, axis, -1)
    joined = np.empty(rows.shape[:-1], object)
    for place in np.ndindex(joined.shape):
        joined[place] = separator.encode().join(rows[place].tolist())
    if axis is None:
        return _as_text(joined.reshape((1,) * array.ndim if keepdims else ()))
    return _as_text(np.expand_dims(joined, axis) if keepdims else joined)


def _expression(pattern: Any) -> re.Pattern[bytes]:
    # RE2 writes some classes of characters with names, in brackets of their own.
    source = bytes(array_of(pattern)[()])
    for name, characters in _CLASSES.items():
        source = source.replace(b"[:" + name + b":]", characters)
    return re.compile(source)


_CLASSES = {b"punct": rb"!-/:-@\[-`{-~", b"alpha": b"A-Za-z", b"digit": b"0-9", b"alnum": b"0-9A-Za-z",
            b"space": rb"\t\n\v\f\r ", b"upper": b"A-Z", b"lower": b"a-z"}


def regex_replace(input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: str | None = None) -> Any:
    """The texts with another text where a pattern matches.

    Args:
        input: text of any shape.
        pattern: a regular expression.
        rewrite: what is put there; "\\\\1" is the first group.
        replace_global: whether everywhere, or only where it matches first.
        name: without effect.

    Raises:
        RD25: no text.

    Source: tf.strings.regex_replace.
    """
    expression, other = _expression(pattern), bytes(array_of(rewrite)[()]).replace(rb"\0", rb"\g<0>")
    return _as_text(each(lambda text: expression.sub(other, text, 0 if replace_global else 1), input))


def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Any:
    """Whether a pattern matches the whole of each text.

    Args:
        input: text of any shape.
        pattern: a regular expression.
        name: without effect.

    Raises:
        RD25: no text.

    Source: tf.strings.regex_full_match.
    """
    expression = _expression(pattern)
    return numbers(each(lambda text: expression.fullmatch(text) is not None, input), "bool")


def substr(input: Any, pos: Any, len: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """A part of each text.

    Args:
        input: text of any shape.
        pos: where it begins; negative from the end.
        len: how long it is at most.
        unit: "BYTE" or "UTF8_CHAR".
        name: without effect.

    Raises:
        RD25: no text.  RD34: another unit, or a text that ends before `pos`.

    Source: tf.strings.substr.
    """
    characters = _by_characters(unit, "tf.strings.substr")
    start, count = int(pos), int(len)

    def part(text: bytes) -> bytes:
        whole: Any = text.decode(errors="replace") if characters else text
        size = whole.__len__()
        first = start + size if start < 0 else start
        if not 0 <= first <= size:
            raise errors.error("RD34", "tf.strings.substr", f"pos is {start}, and a text has length {size}",
                               "Begin within each text.", kind=errors.InvalidArgumentError)
        taken = whole[first:first + count]
        return taken.encode() if characters else taken  # type: ignore[no-any-return]

    return _as_text(each(part, input))


def to_number(input: Any, out_type: Any = "float32", name: str | None = None) -> Any:
    """The numbers that texts say.

    Args:
        input: text of any shape.
        out_type: float32, float64, int32 or int64.
        name: without effect.

    Raises:
        RD25: no text.  RD34: a text that is no such number.

    Source: tf.strings.to_number.
    """
    dtype = DTypeName(out_type)
    read = int if dtype.startswith("int") else float

    def number(text: bytes) -> Any:
        try:
            return read(text.decode())
        except ValueError as error:
            raise errors.error("RD34", "tf.strings.to_number", f"{text.decode(errors='replace')!r} is no {dtype}",
                               "Pass texts of numbers.", kind=errors.InvalidArgumentError) from error
    return numbers(each(number, input), dtype)


def as_string(input: Any, precision: int = -1, scientific: bool = False, shortest: bool = False, width: int = -1,
              fill: str = "", name: str | None = None) -> Any:
    """Numbers as text.

    Args:
        input: numbers of any shape.
        precision: how many digits stand behind the point; -1 for six.
        scientific: whether with an exponent.
        shortest: whether in the shorter of both ways.
        width: of the text at least.
        fill: "", "0", " " or "-": what fills the width.
        name: without effect.

    Source: tf.strings.as_string.
    """
    array = np.asarray(tensor(input))
    kind = "g" if shortest else "e" if scientific else "f" if array.dtype.kind == "f" else "d"
    form = f"%{fill}{width if width > 0 else ''}{f'.{precision}' if precision >= 0 else ''}{kind}"
    texts = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        value = array[place].item()
        texts[place] = ("true" if value else "false") if array.dtype.kind == "b" else form % value
    return _as_text(texts)


def to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Any:
    """A number from 0 for each text, by its fingerprint, int64.

    Args:
        input: text of any shape.
        num_buckets: how many numbers there are.
        name: without effect.

    Raises:
        RD25: no text.

    Source: tf.strings.to_hash_bucket_fast.
    """
    return numbers(each(lambda text: fingerprint(text) % int(num_buckets), input), "int64")


def bytes_split(input: Any, name: str | None = None) -> Any:
    """The bytes of one text.

    Args:
        input: a text without dimensions.
        name: without effect.

    Raises:
        RD20: several texts, whose bytes would be a ragged tensor.  RD25: no text.

    Source: tf.strings.bytes_split.
    """
    [text] = array_of(input).reshape(-1) if not array_of(input).ndim else _ragged("bytes_split")
    return _as_text([text[place:place + 1] for place in range(len(text))] or np.empty(0, object))


def unicode_split(input: Any, input_encoding: str = "UTF-8", errors: str = "replace",
                  name: str | None = None) -> Any:
    """The characters of one text.

    Args:
        input: a text without dimensions.
        input_encoding: that of the text.
        errors: what is done about bytes that are no character: "replace", "ignore" or "strict".
        name: without effect.

    Raises:
        RD20: several texts, whose characters would be a ragged tensor.  RD25: no text.

    Source: tf.strings.unicode_split.
    """
    [text] = array_of(input).reshape(-1) if not array_of(input).ndim else _ragged("unicode_split")
    return _as_text(list(text.decode(input_encoding, errors)) or np.empty(0, object))


def _ragged(function: str) -> Any:
    raise errors.error("RD20", f"tf.strings.{function}", "several texts would be a ragged tensor",
                       "Split in `Dataset.map` before `batch`, and batch with `padded_batch`.")


def format(template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None) -> Any:
    """A text with tensors in the places of its placeholders.

    Args:
        template: the text.
        inputs: a tensor or a list of them.
        placeholder: what stands where a tensor goes.
        summarize: how many items of each end of a dimension are written; -1 for all.
        name: without effect.

    Raises:
        RD34: more or fewer tensors than placeholders.

    Source: tf.strings.format.
    """
    from refdist.tf.printing import shown

    values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    first, *rest = template.split(placeholder)
    if len(rest) != len(values):
        raise errors.error("RD34", "tf.strings.format", f"the template has {len(rest)} placeholders, and there "
                           f"are {len(values)} tensors", "Pass one for each.")
    return _as_text(first + "".join(shown(value, summarize) + part for value, part in zip(values, rest, strict=True)))
