"""Comparing a result with what was expected.

**Comparison** is strict wherever an implementation could differ without noticing: kind, dtype and shape always count,
and nothing is cast.  Only floats may differ, by `ULPS` units in the last place, because the order of a sum is promised
nowhere; with `bitwise` not even those.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeGuard

from refdist.conformance.notation import shown
from refdist.conformance.results import COMPLEX, FLOATS, INTS, Result, integer, real, unit

ULPS = 2


def differences(expected: Result, found: Result, bitwise: bool = False, path: str = "") -> Iterator[str]:
    """The places where a result differs from what was expected, as sentences."""
    where = f" at {path}" if path else ""
    if not isinstance(expected, dict) or not isinstance(found, dict) or set(expected) != set(found):
        if _error(expected) and _error(found):
            if expected["error"] != found["error"]:
                yield f"{shown(found)}, expected {shown(expected)}"
        elif _error(found):
            yield f"{shown(found)}, expected {shown(expected)}"
        elif type(expected) is not type(found) or expected != found or isinstance(expected, dict):
            yield f"gives {shown(found)}{where}, expected {shown(expected)}"
        return
    for key in ("per_replica", "list", "tuple"):
        if key in expected:
            mine, theirs = expected[key], found[key]
            assert isinstance(mine, list) and isinstance(theirs, list)
            if len(mine) != len(theirs):
                yield f"gives {shown(found)}{where}, expected {shown(expected)}"
            for i, (one, other) in enumerate(zip(mine, theirs, strict=False)):
                if len(mine) == len(theirs):
                    inner = f"replica {i}" if key == "per_replica" else f"[{i}]"
                    yield from differences(one, other, bitwise, f"{path}, {inner}" if path and key == "per_replica"
                                           else path + inner)
            return
    for key in ("dict", "slices"):
        if key in expected:
            mine, theirs = expected[key], found[key]
            assert isinstance(mine, dict) and isinstance(theirs, dict)
            if list(mine) != list(theirs):
                yield f"gives {shown(found)}{where}, expected {shown(expected)}"
            else:
                for name in mine:
                    yield from differences(mine[name], theirs[name], bitwise, f"{path}[{name!r}]")
            return
    if not _same(expected, found, bitwise):
        yield f"gives {shown(found)}{where}, expected {shown(expected)}"


def _error(value: Result) -> TypeGuard[dict[str, Result]]:
    return isinstance(value, dict) and "error" in value


def _same(expected: dict[str, Result], found: dict[str, Result], bitwise: bool) -> bool:
    if "error" in expected:
        return expected["error"] == found["error"]
    if "int" in expected:
        return integer(expected["int"]) == integer(found["int"])
    if "float" in expected:
        return _close(expected["float"], found["float"], "float64", bitwise)
    if "dtype" not in expected:
        return expected == found
    dtype = str(expected["dtype"])
    if dtype != found["dtype"] or expected["shape"] != found["shape"]:
        return False
    mine, theirs = expected["data"], found["data"]
    assert isinstance(mine, list) and isinstance(theirs, list)
    if dtype in COMPLEX:
        return all(_close(a, b, COMPLEX[dtype], bitwise) for one, other in zip(mine, theirs, strict=True)
                   if isinstance(one, list) and isinstance(other, list) for a, b in zip(one, other, strict=True))
    if dtype in FLOATS:
        return all(_close(one, other, dtype, bitwise) for one, other in zip(mine, theirs, strict=True))
    if dtype in INTS:
        return [integer(one) for one in mine] == [integer(one) for one in theirs]
    return mine == theirs


def _close(expected: Result, found: Result, dtype: str, bitwise: bool) -> bool:
    a, b = real(expected), real(found)
    if a is None or b is None:
        return False
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == b:
        # A zero that is written with its sign must have it.
        return a != 0 or not (bitwise or expected == "-0.0") or math.copysign(1, a) == math.copysign(1, b)
    return not bitwise and math.isfinite(a) and math.isfinite(b) and abs(a - b) <= ULPS * unit(a, dtype)
