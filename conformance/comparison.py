"""Comparing a result with what was expected.

**Comparison** is strict wherever an implementation could differ without noticing: kind, dtype and shape always count,
and nothing is cast.  Only floats may differ, by `ULPS` units in the last place, because the order of a sum is promised
nowhere; with `bitwise` not even those.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from .notation import shown
from .results import COMPLEX, FLOATS, INTS, Result, integer, kinds_of, real, unit

ULPS = 2


def differences(expected: Result, actual: Result, bitwise: bool = False) -> Iterator[str]:
    """The places where a result differs from what was expected, as sentences: where it is, what is there."""
    for path, wanted, found in places(expected, actual, bitwise):
        observed = shown(found) if isinstance(found, dict) and "error" in found else f"found {shown(found)}"
        yield f"{path}{': ' if path else ''}{observed}, expected {shown(wanted)}"


def places(expected: Result, actual: Result, bitwise: bool = False, path: str = ""
           ) -> Iterator[tuple[str, Result, Result]]:
    """The places where a result differs from what was expected: where it is, and the two parts that are there."""
    wanted, found = _parts(expected), _parts(actual)
    if wanted and found and wanted[0] == found[0] and set(wanted[1]) == set(found[1]):
        for name, part in wanted[1].items():
            separator = ", " if path and (wanted[0] == "per_replica" or not path.endswith("]")) else ""
            yield from places(part, found[1][name], bitwise, path + separator + name)
    elif not _same(expected, actual, bitwise):
        yield path, expected, actual


def _parts(result: Result) -> tuple[str, dict[str, Result]] | None:
    """The kind of a result that has parts, and these by what they are called in a message."""
    if not isinstance(result, dict) or len(result) != 1:
        return None
    [(kind, value)] = result.items()
    if kind in ("dict", "slices") and isinstance(value, dict):
        return kind, {f"[{name!r}]": item for name, item in value.items()}
    if kind in ("per_replica", "list", "tuple") and isinstance(value, list):
        return kind, {f"replica {i}" if kind == "per_replica" else f"[{i}]": item for i, item in enumerate(value)}
    return None


def _same(expected: Result, actual: Result, bitwise: bool) -> bool:
    if isinstance(expected, dict) and isinstance(actual, dict) and "error" in expected and "error" in actual:
        return set(kinds_of(actual)) <= set(kinds_of(expected))
    if not isinstance(expected, dict) or not isinstance(actual, dict) or set(expected) != set(actual):
        return type(expected) is type(actual) and expected == actual
    if "int" in expected:
        return integer(expected["int"]) == integer(actual["int"])
    if "float" in expected:
        return _close(expected["float"], actual["float"], "float64", bitwise)
    if "dtype" not in expected:
        return expected == actual
    dtype = str(expected["dtype"])
    if dtype != actual["dtype"] or expected["shape"] != actual["shape"]:
        return False
    wanted, data = expected["data"], actual["data"]
    assert isinstance(wanted, list) and isinstance(data, list)
    if dtype in COMPLEX:
        return all(_close(a, b, COMPLEX[dtype], bitwise) for x, y in zip(wanted, data, strict=True)
                   if isinstance(x, list) and isinstance(y, list) for a, b in zip(x, y, strict=True))
    if dtype in FLOATS:
        return all(_close(x, y, dtype, bitwise) for x, y in zip(wanted, data, strict=True))
    if dtype in INTS:
        return [integer(x) for x in wanted] == [integer(y) for y in data]
    return wanted == data


def _close(expected: Result, actual: Result, dtype: str, bitwise: bool) -> bool:
    a, b = real(expected), real(actual)
    if a is None or b is None:
        return False
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == b:
        # A zero that is written with its sign must have it.
        return a != 0 or not (bitwise or expected == "-0.0") or math.copysign(1, a) == math.copysign(1, b)
    return not bitwise and math.isfinite(a) and math.isfinite(b) and abs(a - b) <= ULPS * unit(a, dtype)
