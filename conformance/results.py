"""Results as data: what an example gave, in a form that every language can write.

A result is data that JSON can hold, the same whether it was written beside an example, observed in an implementation or
sent by a program in another language:

    None, True, "text"                                          themselves
    {"int": 3}, {"float": 2.5}                                  a number of the programming language, which has no dtype
    {"dtype": "float32", "shape": [2], "data": [1.0, 2.0]}      an array; its elements in row-major order
    {"per_replica": [R, ...]}                                   a distributed value; one result for each replica
    {"list": [R, ...]}, {"tuple": [R, ...]}, {"dict": {KEY: R}}
    {"slices": {"values": R, "indices": R, "dense_shape": R}}   IndexedSlices
    {"spec": {"shape": [null, 2], "dtype": "float32"}}          a TensorSpec; null is a length that is not known
    {"error": "value", "message": "..."}                        the kind of what was raised (`KINDS`)
    {"error": ["value", "type"]}                                in what is expected: each of these kinds is right
    {"object": "..."}                                           anything else

A variable is the value that is read of it when the statement has ended: one value, not one for each replica.

JSON has no NaN, infinity or negative zero, and many of its readers hold every number as a double. So those three are
the texts "nan", "inf", "-inf" and "-0.0", integers beyond 2**53 are texts of their digits, and a complex number is a
list of two numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TypeAlias

Result: TypeAlias = "bool | int | float | str | list[Result] | dict[str, Result] | None"

# What an exception is called, and what that means for somebody who implements it.
KINDS = {
    "value": "a value, shape, structure or text that is not allowed",
    "type": "an object of a wrong type or dtype",
    "context": "a call in a context, or at a point of the program, where it is not allowed",
    "lookup": "a key, index, attribute or name that does not exist",
    "end": "the end of an iterator",
    "unsupported": "the implementation says that it does not do this",
    "crash": "anything else, and the end of the process",
}
# Significant bits and the exponent of the smallest subnormal, for every dtype of floats.
FLOATS = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149), "float64": (53, -1074)}
COMPLEX = {"complex64": "float32", "complex128": "float64"}
INTS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
DTYPES = {*FLOATS, *COMPLEX, *INTS, "bool", "string"}


# Numbers as data.

def to_real(number: float) -> Result:
    """A float as an element of an array."""
    if math.isnan(number):
        return "nan"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    return "-0.0" if number == 0 and math.copysign(1, number) < 0 else number


def to_integer(number: int) -> Result:
    """An integer as an element of an array."""
    return number if abs(number) <= 2**53 else str(number)


def unit(number: float, dtype: str) -> float:
    """The distance between a number and the next one of that dtype."""
    bits, least = FLOATS[dtype]
    exponent = math.frexp(number)[1] if number else least
    return math.ldexp(1.0, max(exponent - bits, least))


def rounded(number: float, dtype: str) -> float:
    """The nearest number of that dtype: what a literal stands for."""
    if dtype == "float64" or not math.isfinite(number) or number == 0:
        return number
    step = unit(number, dtype)
    return round(number / step) * step


def real(element: Result) -> float | None:
    """The float that an element of an array stands for; None if it is not one."""
    if isinstance(element, bool):
        return None
    if element in ("nan", "inf", "-inf", "-0.0"):
        return float(str(element))
    if isinstance(element, int) and abs(element) >= 2**1024:
        return None
    return float(element) if isinstance(element, (int, float)) else None


def integer(element: Result) -> int | None:
    """The integer that an element of an array stands for; None if it is not one."""
    if isinstance(element, bool):
        return None
    if isinstance(element, str) and re.fullmatch(r"-?[0-9]{1,40}", element):
        return int(element)
    return element if isinstance(element, int) else None


def array(dtype: str, shape: Sequence[int], elements: Sequence[object]) -> Result:
    """The result for an array with these elements, in row-major order: Python's bools, ints, floats, complex, texts."""
    data: list[Result] = []
    for element in elements:
        if isinstance(element, bool):
            data.append(element)
        elif isinstance(element, int):
            data.append(to_integer(element))
        elif isinstance(element, float):
            data.append(to_real(element))
        elif isinstance(element, complex):
            data.append([to_real(element.real), to_real(element.imag)])
        else:
            data.append(element.decode(errors="replace") if isinstance(element, bytes) else str(element))
    return {"dtype": dtype, "shape": list(shape), "data": data}


def spec(dtype: str, shape: Sequence[int | None]) -> Result:
    """The result for the spec of an array; None is a length that is not known."""
    return {"spec": {"shape": list(shape), "dtype": dtype}}


def kinds_of(error: dict[str, Result]) -> list[str]:
    """The kinds of an error: the one that was raised, or those that are right."""
    kinds = error["error"]
    return [str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])]


def number(value: int | float) -> Result:
    """The result for a number of Python's own."""
    return {"int": to_integer(value)} if isinstance(value, int) else {"float": to_real(value)}


# Checking what came from elsewhere.

DEPTH = 100  # of results in results; those of the chapters have less than ten
RANK = 32


def fault(value: object, path: str = "", depth: int = 0) -> str | None:
    """What is wrong with the form of a result that came from another process, None if nothing is."""
    where = path or "the result"
    if depth > DEPTH:
        return f"the result is nested more than {DEPTH} times"
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _text_fault(value, where)
    if not isinstance(value, dict):
        return f"{where} is {str(value)[:60]}; a number is {{\"int\": 3}}, a list {{\"list\": [...]}}"
    keys = set(value)
    if keys == {"dtype", "shape", "data"}:
        return _array_fault(value, where)
    if keys in ({"int"}, {"float"}):
        of = integer if keys == {"int"} else real
        return None if of(next(iter(value.values()))) is not None else f"{where}: {str(value)[:60]} is not a number"
    for key in ("per_replica", "list", "tuple"):
        if keys == {key}:
            if not isinstance(value[key], list):
                return f"{where}: {key!r} is not a list"
            return next((misfit for i, item in enumerate(value[key])
                         if (misfit := fault(item, f"{path}[{i}]", depth + 1))), None)
    for key in ("dict", "slices"):
        if keys == {key}:
            if not isinstance(value[key], dict):
                return f"{where}: {key!r} is not an object"
            if key == "slices" and set(value[key]) != {"values", "indices", "dense_shape"}:
                return f"{where}: slices have values, indices and dense_shape"
            return next((misfit for name, item in value[key].items()
                         if (misfit := _text_fault(name, where) or fault(item, f"{path}[{name!r}]", depth + 1))), None)
    if keys == {"spec"}:
        return _spec_fault(value["spec"], where)
    if keys == {"object"}:
        return _text_fault(value["object"], where)
    if keys in ({"error"}, {"error", "message"}):
        if not isinstance(value["error"], str) or value["error"] not in KINDS:
            return f"{where}: {str(value['error'])[:60]!r} is not a kind of error; they are {', '.join(KINDS)}"
        return _text_fault(value.get("message", ""), where)
    return f"{where} has the keys {str(sorted(map(str, keys)))[:60]}, which no result has"


def _text_fault(value: object, where: str) -> str | None:
    if not isinstance(value, str):
        return f"{where}: {str(value)[:60]} is not a text"
    # JSON can name halves of characters, which cannot be written anywhere.
    return f"{where}: a text is not Unicode" if any("\ud800" <= character <= "\udfff" for character in value) else None


def _is_dtype(value: object) -> bool:
    return isinstance(value, str) and value in DTYPES


def _spec_fault(value: object, where: str) -> str | None:
    if not isinstance(value, dict) or set(value) != {"shape", "dtype"}:
        return f"{where}: a spec has a shape and a dtype"
    if not _is_dtype(value["dtype"]):
        return f"{where}: {str(value['dtype'])[:60]!r} is not a dtype"
    shape = value["shape"]
    if not isinstance(shape, list) or not all(n is None or _is_size(n) for n in shape):
        return f"{where}: the shape {str(shape)[:60]} is not a list of sizes and nulls"
    return None


def _is_size(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**63


def _array_fault(value: dict[str, object], where: str) -> str | None:
    dtype, shape, data = value["dtype"], value["shape"], value["data"]
    if not _is_dtype(dtype):
        return f"{where}: {str(dtype)[:60]!r} is not a dtype"
    if not isinstance(shape, list) or len(shape) > RANK or not all(map(_is_size, shape)):
        return f"{where}: the shape {str(shape)[:60]} is not a list of sizes"
    if not isinstance(data, list) or len(data) != math.prod(shape):
        count = len(data) if isinstance(data, list) else "no"
        return f"{where}: an array of shape {shape} has {math.prod(shape)} elements, and this one has {count}"
    for element in data:
        if not _fits(element, str(dtype)):
            return f"{where}: {str(element)[:60]} is not an element of an array of {dtype}"
    return None


def _fits(element: Result, dtype: str) -> bool:
    if dtype == "bool":
        return isinstance(element, bool)
    if dtype == "string":
        return _text_fault(element, "") is None
    if dtype in COMPLEX:
        return isinstance(element, list) and len(element) == 2 and None not in map(real, element)
    return (integer if dtype in INTS else real)(element) is not None
