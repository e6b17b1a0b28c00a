"""The notation: how results are written beside an example, and in messages.

In a chapter a result is written as people read it.  Parts of a distributed value stand between bars, an array has its
dtype after it (which also holds for the parts before it), and what has no dtype is Python's:

    2.5 | 2.5  float32           (a distributed value of two scalars)
    [2.0, 4.0]  float32          (an array of shape (2,))
    {"a": [1.0] | [] float32, "b": None}
    ([1, 2], "text")             (a tuple of a list of two ints, and text)
    7 int64 |                    (a distributed value of one part)
    empty(0, 3) float32          (an array that brackets cannot show)
    slices([[1.0]] float32, [0] int64, (4,))
    spec(None, 2) float32        (a TensorSpec, whose first length is not known)
    raises value
    raises value or type         (either kind is right)
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from .results import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTS,
    KINDS,
    Result,
    kinds_of,
    real,
    rounded,
    to_integer,
    to_real,
)


class NotAResult(ValueError):
    """A text or an object does not have the form of a result."""


# Reading what stands beside an example.

_TOKEN = re.compile(r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<number>[-+]?(?:inf|nan|(?:\d+\.?\d*(?:e[-+]?\d+)?)(?:[-+]\d+\.?\d*(?:e[-+]?\d+)?j|j)?)(?![\w.]))
  | (?P<word>[A-Za-z_]\w*)
  | (?P<sign>[][(){}|,:])
)""", re.VERBOSE)


class _Number(str):
    """A number that still waits for its dtype."""


class _Sizes(NamedTuple):
    """The sizes in `empty(...)` or `spec(...)`, which still wait for their dtype."""

    kind: str
    sizes: list[int | None]


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                raise NotAResult(f"{text!r}: not a result from {text[position:].strip()!r} on")
            assert token.lastgroup is not None
            self._tokens.append((token.lastgroup, token[token.lastgroup]))
            position = token.end()
        self._tokens.append(("end", ""))
        self._at = 0
        self._text = text

    def _next(self) -> tuple[str, str]:
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _accept(self, sign: str) -> bool:
        if self._tokens[self._at] == ("sign", sign):
            self._at += 1
            return True
        return False

    def _demand(self, sign: str) -> None:
        if not self._accept(sign):
            raise NotAResult(f"{self._text!r}: expected {sign!r}, found {self._peek()!r}")

    def whole(self) -> Result:
        value = self.value()
        if self._tokens[self._at][0] != "end":
            raise NotAResult(f"{self._text!r}: {self._peek()!r} is too much")
        return value

    def value(self) -> Result:
        parts: list[tuple[object, str]] = [self._part()]
        bars = 0
        while self._accept("|"):
            bars += 1
            if self._tokens[self._at][0] == "end" or self._peek() in ("]", ")", "}", ","):
                break
            parts.append(self._part())
        done: list[Result] = []
        dtype = ""
        for raw, own in reversed(parts):
            dtype = own or dtype
            done.append(_made(raw, dtype, self._text))
            if own and not (isinstance(done[-1], dict) and {"dtype", "spec"} & done[-1].keys()):
                raise NotAResult(f"{self._text!r}: {shown(done[-1])} has no dtype, and so cannot have {own}")
        done.reverse()
        return {"per_replica": done} if bars else done[0]

    def _part(self) -> tuple[object, str]:
        raw = self._atom()
        kind, word = self._tokens[self._at]
        if kind == "word" and word in DTYPES:
            self._at += 1
            return raw, word
        return raw, ""

    def _atom(self) -> object:
        kind, text = self._next()
        if kind == "number":
            return _Number(text)
        if kind == "text":
            return text[1:-1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
        if kind == "word" and text in ("None", "True", "False"):
            return {"None": None, "True": True, "False": False}[text]
        if kind == "word" and text == "empty":
            self._demand("(")
            return _Sizes("empty", [int(str(item)) for item in self._items(")")])
        if kind == "word" and text == "spec":
            self._demand("(")
            return _Sizes("spec", [None if item is None else int(str(item)) for item in self._items(")")])
        if kind == "word" and text == "slices":
            self._demand("(")
            values, indices, shape = self._values(")")
            return {"slices": {"values": values, "indices": indices, "dense_shape": shape}}
        if kind == "sign" and text == "[":
            return self._items("]")
        if kind == "sign" and text == "(":
            return tuple(self._items(")"))
        if kind == "sign" and text == "{":
            fields: dict[str, Result] = {}
            while not self._accept("}"):
                key = self._atom()
                self._demand(":")
                fields[str(key)] = self.value()
                if not self._accept(","):
                    self._demand("}")
                    break
            return {"dict": fields}
        raise NotAResult(f"{self._text!r}: {text!r} is not a value")

    def _items(self, end: str) -> list[object]:
        # Raw where a dtype may still follow the bracket, finished where it cannot.
        items: list[object] = []
        while not self._accept(end):
            start = self._at
            raw, dtype = self._part()
            if dtype or self._peek() == "|":
                self._at = start
                items.append(_Finished(self.value()))
            else:
                items.append(raw)
            if not self._accept(","):
                self._demand(end)
                break
        return items

    def _values(self, end: str) -> list[Result]:
        values = []
        while not self._accept(end):
            values.append(self.value())
            if not self._accept(","):
                self._demand(end)
                break
        return values


class _Finished:
    """A value inside brackets that has its dtype, so that the brackets are a list and not an array."""

    def __init__(self, value: Result) -> None:
        self.value = value


def _made(raw: object, dtype: str, text: str) -> Result:
    """The result of what was read, once it is known whether a dtype follows it."""
    if isinstance(raw, _Finished):
        return raw.value
    if isinstance(raw, _Sizes):
        if not dtype:
            raise NotAResult(f"{text!r}: an array needs a dtype, and so does a spec")
        sizes: list[Result] = [*raw.sizes]
        return {"spec": {"shape": sizes, "dtype": dtype}} if raw.kind == "spec" else {
            "dtype": dtype, "shape": sizes, "data": []}
    if dtype and (isinstance(raw, (_Number, list)) or (dtype == "bool" and isinstance(raw, bool))
                  or (dtype == "string" and isinstance(raw, str))):
        shape, elements = _flat(raw, text)
        return {"dtype": dtype, "shape": list(shape), "data": [_element(element, dtype, text) for element in elements]}
    if isinstance(raw, _Number):
        if "j" in raw:
            raise NotAResult(f"{text!r}: a complex number needs a dtype")
        if re.fullmatch(r"[-+]?\d+", raw):
            return {"int": to_integer(int(raw))}
        return {"float": to_real(float(raw))}
    if isinstance(raw, list):
        return {"list": [_made(item, "", text) for item in raw]}
    if isinstance(raw, tuple):
        return {"tuple": [_made(item, "", text) for item in raw]}
    if raw is None or isinstance(raw, (bool, str, dict)):
        return raw
    raise NotAResult(f"{text!r}: {raw!r}")


def _flat(raw: object, text: str) -> tuple[tuple[int, ...], list[object]]:
    if not isinstance(raw, list):
        return (), [raw]
    if not raw:
        return (0,), []
    parts = [_flat(item, text) for item in raw]
    if len({shape for shape, _ in parts}) > 1:
        raise NotAResult(f"{text!r}: the rows of an array have different lengths")
    return (len(raw), *parts[0][0]), [element for _, elements in parts for element in elements]


def _element(raw: object, dtype: str, text: str) -> Result:
    if dtype == "bool" and isinstance(raw, bool):
        return raw
    if dtype == "string" and isinstance(raw, str) and not isinstance(raw, _Number):
        return raw
    if isinstance(raw, _Number):
        if dtype in COMPLEX:
            number = complex(raw)
            return [to_real(number.real), to_real(number.imag)]
        if dtype in FLOATS and "j" not in raw:
            return to_real(rounded(float(raw), dtype))
        if dtype in INTS and re.fullmatch(r"[-+]?\d+", raw):
            return to_integer(int(raw))
    raise NotAResult(f"{text!r}: {raw!r} is not an element of an array of {dtype}")


def parsed(text: str) -> Result:
    """The result that a text beside an example stands for.

    Raises:
        NotAResult: the text is not in the notation.
    """
    words = text.split()
    if words[:1] == ["raises"]:
        kinds = " ".join(words[1:]).split(" or ")
        if not set(kinds) <= set(KINDS) or len(set(kinds)) < len(kinds):
            raise NotAResult(f"{text!r}: write `raises` and one of {', '.join(KINDS)}, or several with `or` between")
        return {"error": kinds[0] if len(kinds) == 1 else [*kinds]}
    return _Reader(text).whole()


# Showing: the notation of the chapters again.

LIMIT = 2000  # characters of a result in a message


def shown(value: Result, limit: int = LIMIT) -> str:
    """A result in the notation of the chapters, cut where it is very long; an error with its message."""
    return on_one_line(_shown(value), limit)


def cut(value: object, limit: int = 200) -> str:
    """Any value for a message, cut where it is long."""
    return on_one_line(repr(value), limit)


def on_one_line(text: str, limit: int = 200) -> str:
    """A text for a message: without ends of lines and what a terminal obeys, cut where it is long."""
    short = printable(text[:limit]).replace("\n", " ").replace("\t", " ")
    return short if len(text) <= limit else f"{short}... ({len(text):,} characters)"


def printable(text: str) -> str:
    """A text in which whatever is neither a character nor the end of a line is a question mark."""
    return "".join(character if character.isprintable() or character in "\n\t" else "?" for character in text)


def _shown(value: Result, dtype: bool = True) -> str:
    if not isinstance(value, dict):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"' \
            if isinstance(value, str) else str(value)
    for key in ("int", "float", "object"):
        if key in value:
            return str(value[key])
    if "error" in value:
        message = f" ({value['message']})" if value.get("message") else ""
        return f"raises {' or '.join(kinds_of(value))}{message}"
    if "per_replica" in value:
        parts = value["per_replica"]
        assert isinstance(parts, list)
        dtypes = [part.get("dtype") if isinstance(part, dict) else None for part in parts]
        if len(parts) > 1 and dtypes[0] is not None and len(set(map(str, dtypes))) == 1:
            return " | ".join(_shown(part, dtype=False) for part in parts) + f" {dtypes[0]}"
        return " | ".join(map(_shown, parts)) + (" |" if len(parts) == 1 else "")
    if "dtype" in value:
        return _shown_array(value) + (f" {value['dtype']}" if dtype else "")
    for key, left, right in (("list", "[", "]"), ("tuple", "(", ")")):
        if key in value:
            items = value[key]
            assert isinstance(items, list)
            comma = "," if key == "tuple" and len(items) == 1 else ""
            return left + ", ".join(map(_shown, items)) + comma + right
    if "dict" in value:
        entries = value["dict"]
        assert isinstance(entries, dict)
        return "{" + ", ".join(f'"{key}": {_shown(item)}' for key, item in entries.items()) + "}"
    if "slices" in value:
        fields = value["slices"]
        assert isinstance(fields, dict)
        return f"slices({', '.join(_shown(fields[name]) for name in ('values', 'indices', 'dense_shape'))})"
    if "spec" in value:
        fields = value["spec"]
        assert isinstance(fields, dict) and isinstance(fields["shape"], list)
        return f"spec({', '.join(map(str, fields['shape']))}) {fields['dtype']}"
    return str(value)


def _shown_array(value: dict[str, Result]) -> str:
    shape, data = value["shape"], value["data"]
    assert isinstance(shape, list) and isinstance(data, list)
    if 0 in shape and shape != [0]:
        return f"empty({', '.join(map(str, shape))})"
    texts = [_shown_element(element, str(value["dtype"])) for element in data]
    for size in reversed(shape):
        assert isinstance(size, int)
        texts = ["[" + ", ".join(texts[i:i + size]) + "]" for i in range(0, len(texts), size)] if texts else ["[]"]
    return texts[0]


def _shown_element(element: Result, dtype: str) -> str:
    if isinstance(element, list):
        a, b = real(element[0]), real(element[1])
        return f"{a}{b:+}j"
    if dtype == "string":
        return _shown(element)
    return f"{_shortest(element, dtype)}" if dtype in FLOATS else str(element)


def _shortest(element: Result, dtype: str) -> str:
    """The shortest text that stands for this float of that dtype."""
    value = real(element)
    if value is None or dtype == "float64" or not math.isfinite(value):
        return str(value if value is not None else element)
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if rounded(float(text), dtype) == value:
            return str(float(text))
    return str(value)
