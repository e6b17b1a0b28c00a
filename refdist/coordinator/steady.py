"""Functions that can be sent once: two calls of them differ in their arguments only.

Sending a function by value takes longer than most functions run.  It need not be sent again where all that it refers
to, in its closure and among the names of its module, is the same object as before and cannot change: numbers, text,
read-only arrays, modules and what is sent by its name in one, handles of variables, and functions of which the same
holds.  A function that writes to names of its module or of a function around it is sent each time, because what it has
written must be gone when it ends.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType

import numpy as np

from refdist.strategies.parameter_server import ParameterServerStrategy
from refdist.variables.remote import RemoteVariable

_PLAIN = {int, float, complex, str, bytes, bool, type(None)}
_STEADY = (np.generic, ModuleType, RemoteVariable, ParameterServerStrategy)
_WRITES = ("STORE_GLOBAL", "DELETE_GLOBAL")


def parts(fn: object) -> tuple[object, ...] | None:
    """The objects that make the function what it is; None where one of them may change."""
    found: list[object] = []
    return tuple(found) if _add(fn, found, []) else None


def _add(one: object, found: list[object], seen: list[FunctionType]) -> bool:
    if type(one) in _PLAIN or isinstance(one, _STEADY) or _is_constant(one) or _is_found_by_name(one):
        found.append(one)
        return True
    if isinstance(one, MethodType):
        return _add(one.__self__, found, seen) and _add(one.__func__, found, seen)
    if not isinstance(one, FunctionType) or one.__dict__:
        return False
    for number, other in enumerate(seen):
        if one is other:  # it refers to itself, or two things refer to it
            found.append(number)
            return True
    names = _names(one.__code__)
    if names is None:
        return False
    found.append(one.__code__)
    seen.append(one)
    scope = one.__globals__
    try:
        inside = [cell.cell_contents for cell in one.__closure__ or ()]
    except ValueError:  # not yet bound
        return False
    inside += one.__defaults__ or ()
    inside += (one.__kwdefaults__ or {}).values()
    return all(_add(part, found, seen) for part in inside) and all(
        _add(scope[name], found, seen) for name in names if name in scope)


def _is_constant(one: object) -> bool:
    return isinstance(one, np.ndarray) and not one.flags.writeable and one.base is None


def _is_found_by_name(one: object) -> bool:
    name, module = getattr(one, "__qualname__", None), getattr(one, "__module__", None)
    return isinstance(name, str) and module != "__main__" and getattr(sys.modules.get(str(module)), name, None) is one


@functools.lru_cache(maxsize=1000)
def _names(code: CodeType) -> tuple[str, ...] | None:
    # The names that it may look up in its module; None where it writes to what is outside of it.
    names: dict[str, None] = {}
    for one in _nested(code):
        for instruction in dis.get_instructions(one):
            if instruction.opname in _WRITES or (
                    instruction.opname in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in code.co_freevars):
                return None
        names.update(dict.fromkeys(one.co_names))
    return tuple(names)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
