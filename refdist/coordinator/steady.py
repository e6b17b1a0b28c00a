"""Functions that need not be sent again with every call, because what they refer to cannot change.

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
    """The objects that determine what the function does; None if one of them can change."""
    collected: list[object] = []
    return tuple(collected) if _add(fn, collected, []) else None


def _add(part: object, collected: list[object], seen: list[FunctionType]) -> bool:
    if type(part) in _PLAIN or isinstance(part, _STEADY) or _is_constant(part) or _is_found_by_name(part):
        collected.append(part)
        return True
    if isinstance(part, MethodType):
        return _add(part.__self__, collected, seen) and _add(part.__func__, collected, seen)
    if not isinstance(part, FunctionType) or part.__dict__:
        return False
    for number, other in enumerate(seen):
        if part is other:  # a function that refers to itself, or is referred to twice
            collected.append(number)
            return True
    names = _names(part.__code__)
    if names is None:
        return False
    collected.append(part.__code__)
    seen.append(part)
    scope = part.__globals__
    try:
        inside = [cell.cell_contents for cell in part.__closure__ or ()]
    except ValueError:  # a cell of the closure is empty
        return False
    inside += part.__defaults__ or ()
    inside += (part.__kwdefaults__ or {}).values()
    return all(_add(part, collected, seen) for part in inside) and all(
        _add(scope[name], collected, seen) for name in names if name in scope)


def _is_constant(value: object) -> bool:
    return isinstance(value, np.ndarray) and not value.flags.writeable and value.base is None


def _is_found_by_name(value: object) -> bool:
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    return isinstance(name, str) and module != "__main__" and getattr(sys.modules.get(str(module)), name, None) is value


@functools.lru_cache(maxsize=1000)
def _names(code: CodeType) -> tuple[str, ...] | None:
    # The global names that the code may look up; None if it writes to global or nonlocal names.
    names: dict[str, None] = {}
    for nested in _nested(code):
        for instruction in dis.get_instructions(nested):
            if instruction.opname in _WRITES or (
                    instruction.opname in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in code.co_freevars):
                return None
        names.update(dict.fromkeys(nested.co_names))
    return tuple(names)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
