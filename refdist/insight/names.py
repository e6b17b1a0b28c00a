"""What the names in functions lead to: globals, attributes of modules, and names that are computed.

A name that is written out is looked up where the function would find it; `globals()["rows"]` and
`getattr(module, "rows")` are as good as `rows` and `module.rows`.  A module may be handed on to another function, so of
each module of the program that is named anywhere, whatever attribute is named anywhere is followed.  Where a name is
computed, it is not followed: the line is noted, and nothing is called proved.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import gc
import importlib
import importlib.util
import inspect
import itertools
import operator
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from refdist.core import call_site
from refdist.core.call_site import Place

_BUILT_IN = frozenset(sys.builtin_module_names)
_USES = ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME", "STORE_NAME", "LOAD_DEREF", "STORE_DEREF", "LOAD_CLASSDEREF")
# Values in a library's module that a program may change, such as `sys.path`.
_VALUES = (type(None), bool, int, float, complex, str, bytes, list, dict, set)


class _Leads(Enum):
    """What a name leads to that may be computed."""

    GLOBAL = "a global"
    ATTRIBUTE = "an attribute"
    MODULE = "a module"
    ANYTHING = "anything"


_COMPUTING: dict[int, _Leads] = {id(value): leads for leads, values in {
    _Leads.GLOBAL: (globals,),
    _Leads.ATTRIBUTE: (vars, getattr, setattr, delattr, hasattr, operator.attrgetter, inspect.getmembers,
                       inspect.getattr_static),
    _Leads.MODULE: (__import__, importlib.import_module, sys.modules),
    _Leads.ANYTHING: (eval, exec, sys._getframe, inspect.currentframe, inspect.stack, gc.get_objects,
                      gc.get_referrers, gc.get_referents, pkgutil.resolve_name),
}.items() for value in values}  # by their ids, what takes a name that may be computed
_ATTRIBUTES = {
    "__dict__": _Leads.ATTRIBUTE, "__getattribute__": _Leads.ATTRIBUTE, "__setattr__": _Leads.ATTRIBUTE,
    "__delattr__": _Leads.ATTRIBUTE, "__globals__": _Leads.ANYTHING, "f_globals": _Leads.ANYTHING,
    "f_locals": _Leads.ANYTHING, "__builtins__": _Leads.ANYTHING, "py_object": _Leads.ANYTHING}
_HOLDERS = (builtins, operator, inspect, importlib, sys, gc, pkgutil)  # the modules with what is in _COMPUTING
_HELD = frozenset(name for module in _HOLDERS for name, value in vars(module).items() if id(value) in _COMPUTING)
_WHERE_NAME_IS = {"getattr": 1, "setattr": 1, "delattr": 1, "hasattr": 1, "getattr_static": 1, "attrgetter": 0,
                  "__getattribute__": 0, "__setattr__": 0, "__delattr__": 0, "__import__": 0, "import_module": 0}


def takes_a_name(value: object) -> bool:
    """Whether it is `getattr`, `sys.modules` or the like."""
    return id(value) in _COMPUTING


class Names:
    """What the names lead to in all code that is looked at together."""

    def __init__(self) -> None:
        self._used: dict[str, None] = {}
        self._entered: dict[int, tuple[str, ModuleType]] = {}
        self._of_the_program = False  # whether one of these is
        self._not_followed: dict[str, None] = {}
        self._of_modules: dict[str, None] = {}  # not followed if a module of the program is named
        self._of_holders: list[tuple[ModuleType, _Leads, str]] = []  # the same, if this module is

    @property
    def computed(self) -> dict[str, None]:
        """Where code asks for a name that it computes, and what that leads to is not followed."""
        for module, leads, asked in self._of_holders:
            if id(module) in self._entered:
                self._note(leads, asked)
        return self._not_followed | (self._of_modules if self._of_the_program else {})

    def of_value(self, path: str, value: Any) -> None:
        """Notes what takes a name, such as `getattr`, and is found as a value."""
        self._note(_COMPUTING[id(value)], f"{getattr(value, '__name__', 'sys.modules')}, which is {path}")

    def of_code(self, code: CodeType, names: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
        """Yields what the names in code lead to whose module has these globals."""
        imported = _imported(code, names.get("__package__"))
        # Names with "@" are not the program's: pytest adds them where it rewrites `assert`.
        written = (name for name in code.co_names if not name.startswith("@"))
        used, modules = dict.fromkeys((*written, *_matched(code))), dict.fromkeys(imported)
        for use, leads, holder in _asked(code, names, imported):
            asked = f"{use.name} ({call_site.of_one(code, use.offset)})"
            beyond = None if use.text is None else _ATTRIBUTES.get(use.text) or _COMPUTING.get(
                id(vars(builtins).get(use.text)))
            if holder is not None:
                self._of_holders.append((holder, leads, asked))
            elif use.is_own:
                modules[str(names.get("__name__"))] = None
            elif use.text is None or leads is _Leads.ANYTHING or beyond is not None or use.text.startswith("."):
                self._note(beyond or leads, asked)
            elif leads is _Leads.MODULE:
                modules |= {use.text: None, use.text.partition(".")[0]: None}
            else:
                used |= dict.fromkeys(use.text.split("."))
        new = [name for name in used if name not in self._used]
        self._used |= used
        for prefix, module in [("", builtins), *self._entered.values()]:
            yield from self._inside(prefix, module, new)
        for name in modules:
            if name in sys.modules:
                yield from self.enter(f"{name}.", sys.modules[name])
        for name in used:
            value = names.get(name)
            if isinstance(value, ModuleType):
                yield from self.enter(f"{name}.", value)
            elif name in names and id(value) not in _COMPUTING:
                yield name, value

    def enter(self, prefix: str, module: ModuleType) -> Iterator[tuple[str, object]]:
        """Yields what code may use of a module."""
        if id(module) not in self._entered:
            self._entered[id(module)] = prefix, module
            self._of_the_program = self._of_the_program or of_the_program(module.__name__)
            yield from self._inside(prefix, module, list(self._used))

    def _inside(self, prefix: str, module: ModuleType, names: Iterable[str]) -> Iterator[tuple[str, object]]:
        if call_site.is_ours(module.__name__):
            return
        namespace = vars(module)
        own = of_the_program(module.__name__)
        for name in names:
            value = namespace.get(name)
            if isinstance(value, ModuleType):
                yield from self.enter(f"{prefix}{name}.", value)
            elif name in namespace and id(value) not in _COMPUTING and (own or type(value) in _VALUES):
                yield prefix + name, value

    def _note(self, leads: _Leads, asked: str) -> None:
        (self._of_modules if leads is _Leads.ATTRIBUTE else self._not_followed)[asked] = None


class _Use(NamedTuple):
    """A place where code loads a value by its name.

    Attributes:
        name: that.
        offset: where.
        owner: for an attribute, the name of the module before it, or "" where it is none that is known; None for a
            global.
        text: the name that it is asked for, where that is written out, as an argument or in brackets.
        is_own: whether it is asked for `__name__`, in brackets.
    """

    name: str
    offset: int
    owner: str | None
    text: str | None
    is_own: bool


def _asked(code: CodeType, names: Mapping[str, Any],
           imported: Iterable[str]) -> Iterator[tuple[_Use, _Leads, ModuleType | None]]:
    """The uses in code of what takes a name; with a module, where it is that only if this module is before it."""
    for name in code.co_names:
        leads = _COMPUTING.get(id(names.get(name, vars(builtins).get(name))))
        if leads is None and name not in _ATTRIBUTES and name not in _HELD:
            continue
        for use in _uses(code)[name]:
            if use.owner is None:
                if leads is not None:
                    yield use, leads, None
            elif name in _ATTRIBUTES:
                yield use, _ATTRIBUTES[name], None
            else:
                owner = names.get(use.owner, sys.modules.get(use.owner) if use.owner in imported else None)
                for holder in (owner,) if isinstance(owner, ModuleType) else _HOLDERS:
                    held = _COMPUTING.get(id(getattr(holder, name, None)))
                    if held is not None:
                        yield use, held, None if holder is owner else holder


@functools.lru_cache(maxsize=4096)
def _uses(code: CodeType) -> dict[str, list[_Use]]:
    """The uses in code, by the names."""
    instructions = tuple(dis.get_instructions(code))
    imports = {instruction.argval for instruction in instructions if instruction.opname == "IMPORT_NAME"}
    uses: dict[str, list[_Use]] = {name: [] for name in code.co_names}
    for at, instruction in enumerate(instructions):
        owner = None
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            before = instructions[at - 1]
            known = before.opname in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME") or before.argval in imports
            owner = str(before.argval) if known else ""
        elif instruction.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
            continue
        text, following = _text(instructions, at), instructions[at + 1:at + 3]
        is_own = len(following) == 2 and following[0].argval == "__name__" and _is_bracket(following[1])
        uses[instruction.argval].append(_Use(instruction.argval, instruction.offset, owner, text, is_own))
    return uses


def _is_bracket(instruction: dis.Instruction) -> bool:
    return "SUBSCR" in instruction.opname or instruction.argrepr.startswith("[]")


def _text(instructions: Sequence[dis.Instruction], at: int) -> str | None:
    name = instructions[at].argval
    called = _call(instructions, at)
    if name in _WHERE_NAME_IS:
        several = called is not None and name == "attrgetter" and instructions[called].arg != 1
        return None if called is None or several else _argument(instructions, called, _WHERE_NAME_IS[name])
    following = [instruction for instruction in instructions[(at if called is None else called) + 1:][:6]
                 if instruction.opname not in ("CALL", "COPY")]
    if len(following) > 1 and following[0].opname.startswith("LOAD_CONST") and _is_bracket(following[1]):
        return _as_text(following[0])
    return None


def _as_text(instruction: dis.Instruction) -> str | None:
    return instruction.argval if isinstance(instruction.argval, str) else None


@functools.lru_cache(maxsize=4096)
def _matched(code: CodeType) -> tuple[str, ...]:
    """The names of attributes in the patterns of `match` statements."""
    instructions = tuple(dis.get_instructions(code))
    return tuple(name for before, instruction in itertools.pairwise(instructions)
                 if instruction.opname == "MATCH_CLASS" for name in before.argval)


def _effect(instruction: dis.Instruction) -> int:
    return dis.stack_effect(instruction.opcode, instruction.arg, jump=False)


def _call(instructions: Sequence[dis.Instruction], at: int) -> int | None:
    """The number of the instruction that calls what instruction `at` has loaded."""
    depth = 0
    # Since Python 3.13, PUSH_NULL comes after the load of a function of an imported module.
    first = at + 2 if instructions[at + 1].opname == "PUSH_NULL" else at + 1
    for i in range(first, len(instructions)):
        instruction = instructions[i]
        if instruction.opname in ("PRECALL", "CALL") and instruction.arg == depth:
            return i
        depth += _effect(instruction)
        if depth < 0 or "JUMP" in instruction.opname:
            return None
    return None


def _argument(instructions: Sequence[dis.Instruction], called: int, number: int) -> str | None:
    """The text that is an argument of a call; None where it is none, or not written out."""
    at = called - 1
    for _ in range((instructions[called].arg or 0) - 1, number, -1):
        size = 0
        while size < 1:  # an argument is the shortest end of the instructions that leaves a value
            if at < 0 or "JUMP" in instructions[at].opname:
                return None
            size += _effect(instructions[at])
            at -= 1
    if number >= (instructions[called].arg or 0) or not instructions[at].opname.startswith("LOAD_CONST"):
        return None
    return _as_text(instructions[at])


@functools.lru_cache(maxsize=4096)
def _imported(code: CodeType, package: str | None) -> tuple[str, ...]:
    """The names of the modules that code itself imports, from its package too."""
    instructions = list(dis.get_instructions(code))
    imported: list[str] = []
    for i, instruction in enumerate(instructions):
        if instruction.opname != "IMPORT_NAME":
            continue
        level = instructions[i - 2].argval if i > 1 and isinstance(instructions[i - 2].argval, int) else 0
        name = str(instruction.argval)
        if level and package:
            with contextlib.suppress(ImportError):
                name = importlib.util.resolve_name("." * level + name, package)
        imported.append(name)
        for following in instructions[i + 1:]:
            if following.opname == "IMPORT_NAME":
                break
            if following.opname == "IMPORT_FROM":
                imported.append(f"{name}.{following.argval}")
    return tuple(imported)


def of_python(module: str) -> bool:
    """Whether a module is one of Python's own."""
    return module.partition(".")[0] in sys.stdlib_module_names | {"builtins"}


def of_the_program(module: str | None) -> bool:
    """Whether a module is neither a library, nor Python's own; one without a file may be made by `exec`."""
    if not module:
        return True
    if module in _BUILT_IN or call_site.is_between(module):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] not in sys.stdlib_module_names
    return not file.startswith(call_site.INSTALLED)


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def place_of(name: str, codes: Iterable[CodeType]) -> Place | None:
    """The first place in some code where a name is used that is not its own."""
    for code in codes:
        for instruction in dis.get_instructions(code):
            if instruction.argval == name and instruction.opname in _USES:
                return call_site.of_one(code, instruction.offset)
    return None
