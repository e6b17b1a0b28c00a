"""What functions share beside variables: Python objects that the names in them lead to, and states of the process.

A function of replicas, or one that was scheduled, is followed: the globals that its code names, those of the program's
other modules too, the variables of functions around it, its arguments, what is in these containers and objects, the
functions of the program that it may call, and those that the datasets call that it reads.  What is found is written
down as text, number or digest for each path, such as `history[3]` or `trainer.steps`.  Two such pictures, taken before
and after a turn, show what was changed in it.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import datetime
import decimal
import dis
import fractions
import functools
import gc
import importlib.util
import io
import itertools
import logging
import os
import pathlib
import random
import re
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from refdist.array.convert import is_array, to_numpy
from refdist.core import call_site, seeds
from refdist.core.call_site import Place
from refdist.data import Dataset
from refdist.data import Iterator as DatasetIterator
from refdist.data.pipeline import Pipeline
from refdist.data.position import Seeds
from refdist.random import Generator

ENTRIES = 100_000  # the most paths of a picture
LARGE = 1 << 16  # bytes of an array that takes long
PYTHON_S, NUMPY_S, OURS = "the state of `random`", "the state of `numpy.random`", "the state of `tf.random`"
RANDOM = (PYTHON_S, NUMPY_S, OURS)
ENVIRONMENT = "`os.environ`"
Picture = dict[str, object]
"""What was found at each path."""

_BUILT_IN = frozenset(sys.builtin_module_names)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), range, slice)
_EXACTLY_PLAIN = frozenset(_PLAIN)
# What nobody changes, or what is there to be written only.
_OPAQUE_AND_EQUAL = (
    np.dtype, np.ufunc, re.Pattern, pathlib.PurePath, decimal.Decimal, fractions.Fraction, datetime.date, datetime.time,
    datetime.timedelta, datetime.tzinfo, logging.Logger, logging.LoggerAdapter, GetSetDescriptorType,
    MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType)
_CACHED = type(functools.lru_cache(lambda: None))
_MADE_OF_OTHERS = (zip, map, filter, itertools.chain, itertools.starmap, itertools.islice)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
LOCKS = tuple(f"_thread.{kind.__name__}" for kind in _LOCKS)


class Look:
    """A look at what functions share.

    Args:
        whole: whether large arrays are looked at, too.

    Attributes:
        left_out: whether one was not.
        picture: what was found.
        unseen: the types of objects that it could not look into, and whether a library that is installed has made them.
        codes: the code of functions of the program.
        held: locks that somebody has.
    """

    def __init__(self, whole: bool = True) -> None:
        self.left_out = False
        self._whole = whole
        self.picture: Picture = {}
        self.unseen: dict[str, bool] = {}
        self.codes: dict[CodeType, None] = {}
        self.held: dict[str, None] = {}
        self._seen: dict[int, str] = {}  # id -> path
        self._times: dict[str, int] = {}  # how many objects are at a path, where there are several
        self._kept: list[object] = []  # so that no id is used twice

    def states(self) -> None:
        """Looks at what all share: the states of random numbers, and the variables of the environment."""
        self.picture[PYTHON_S] = hash(random.getstate())
        self.picture[NUMPY_S] = _state_of_numpy(np.random.mtrand._rand)
        seed = seeds.of_the_process.value
        self.picture[OURS] = hash((seed.number, seed.calls.getstate(), tuple(seed.used.items())))
        self.picture[ENVIRONMENT] = hash(frozenset(os.environ._data.items()))  # type: ignore[attr-defined]

    def at(self, path: str, value: object) -> None:
        """Looks at a value, and at what it leads to."""
        waiting = deque([(path, value)])
        while waiting and len(self.picture) < ENTRIES:
            path, value = waiting.popleft()
            if path in self.picture:  # of another object, such as a variable of that name of another function
                times = self._times[path] = self._times.get(path, 1) + 1
                path = f"{path}, number {times}"
            if type(value) in _EXACTLY_PLAIN:
                self.picture[path] = value if not isinstance(value, float) or value == value else "nan"
                continue
            if id(value) in self._seen:
                self.picture[path] = f"the same as {self._seen[id(value)]}"
                continue
            self._seen[id(value)] = path
            self._kept.append(value)
            waiting += self._inside(path, value)
        if waiting:
            self.unseen[f"more than {ENTRIES} objects"] = False

    def _inside(self, path: str, value: Any) -> Iterator[tuple[str, object]]:
        kind = type(value)
        self.picture[path] = kind.__name__
        if kind is FunctionType:
            yield from self._of_function(path, value)
            return
        if of_the_program(kind.__module__) and not isinstance(value, type):  # of a list with attributes, these too
            yield from ((f"{path}.{name}", item) for name, item in _attributes(value))
            yield kind.__name__, kind
        if isinstance(value, DatasetIterator):
            self.picture[path] = kind.__name__, value._count
            yield from self._of_reader(path, value)
        elif isinstance(value, Dataset):  # each reading draws the seeds of shuffles
            self.picture[path] = kind.__name__, str([sorted(source._next.values())
                                                     for source in value._pipeline.sources
                                                     if isinstance(source, Seeds)])
            yield from self._of_reader(path, value._pipeline)
        elif isinstance(value, Generator):
            if value._state._strategy is None:  # replicas have one state among them
                yield path, value._state._primary._array
        elif call_site.is_ours(kind.__module__) or kind is object or isinstance(value, _OPAQUE_AND_EQUAL):
            pass  # variables are compared in the end, and those of replicas are not shared
        elif isinstance(value, BuiltinFunctionType):
            if not isinstance(value.__self__, ModuleType):  # a method, such as `rows.append`
                yield f"{path}.__self__", value.__self__
        elif isinstance(value, _PLAIN):  # a class of it
            self.picture[path] = kind.__name__, next(base for base in kind.__mro__ if base in _EXACTLY_PLAIN)(value)
        elif isinstance(value, ModuleType):
            if of_the_program(value.__name__):
                yield from ((f"{path}.{name}", item) for name, item in list(vars(value).items())
                            if not name.startswith("__"))
        elif is_array(value):
            content = np.asarray(to_numpy(value))
            if content.nbytes > LARGE and not self._whole:
                self.left_out = True
                return
            self.picture[path] = str(content.dtype), content.shape, _digest(
                repr(content.tolist()).encode() if content.dtype.hasobject else content.tobytes())
        elif isinstance(value, (dict, Mapping)):
            items = [(repr(key), item) for key, item in list(value.items())]
            self.picture[path] = kind.__name__, [key for key, _ in items]
            yield from ((f"{path}[{key}]", item) for key, item in items)
            yield from _objects(f"{path}[key", value)
        elif isinstance(value, (list, tuple, deque)):
            self.picture[path] = kind.__name__, len(value)
            yield from ((f"{path}[{i}]", item) for i, item in enumerate(list(value)))
        elif isinstance(value, (set, frozenset, bytearray)):
            self.picture[path] = kind.__name__, repr(sorted(map(repr, value)))
            yield from _objects(f"{path}[item", value)
        elif isinstance(value, random.Random):
            self.picture[path] = _digest(repr(value.getstate()).encode())
        elif isinstance(value, (np.random.RandomState, np.random.Generator)):
            self.picture[path] = _state_of_numpy(value)
        elif isinstance(value, (array.array, memoryview)):
            self.picture[path] = kind.__name__, _digest(value.tobytes())
        elif isinstance(value, io.IOBase):
            self.picture[path] = "file", _name(value), _position(value)
        elif isinstance(value, MethodType):
            yield f"{path}.__self__", value.__self__
            yield path + ".__func__", value.__func__
        elif isinstance(value, functools.partial):
            yield from ((path, part) for part in (value.func, *value.args))
            yield from ((f"{path}'s {name}", item) for name, item in value.keywords.items())
        elif isinstance(value, _CACHED):
            self.picture[path] = kind.__name__, value.cache_info()
            yield from ((path, part) for part in _cached(value))
        elif isinstance(value, _MADE_OF_OTHERS):
            yield from ((path, part) for part in gc.get_referents(value))
        elif isinstance(value, _LOCKS):
            self.unseen[f"_thread.{kind.__name__}"] = False
            if repr(value).startswith("<locked"):
                self.held[path] = None
        elif isinstance(value, GeneratorType):
            frame = value.gi_frame
            self.picture[path] = kind.__name__, -1 if frame is None else frame.f_lasti
            if frame is not None:
                yield from ((f"{path}, which is gone through, {name}", item) for name, item in frame.f_locals.items())
                yield from self._of_code(frame.f_code, frame.f_globals)
        elif isinstance(value, weakref.ref):
            yield path, value()
        elif isinstance(value, (SimpleNamespace, argparse.Namespace)):
            yield from ((f"{path}.{name}", item) for name, item in list(vars(value).items()))
        elif isinstance(value, type):
            if of_the_program(getattr(value, "__module__", "")):
                yield from ((f"{path}.{name}", item) for name, item in vars(value).items()
                            if not name.startswith(("__", "_abc_")) or isinstance(item, FunctionType))
                yield from ((base.__name__, base) for base in value.__bases__)
        elif isinstance(value, (staticmethod, classmethod)):
            yield path, value.__func__
        elif isinstance(value, property):
            yield from ((path, part) for part in (value.fget, value.fset) if part is not None)
        elif of_the_program(kind.__module__):
            pass  # its attributes are all that it has
        elif (state := _of_iterator(value)) is not None:
            yield f"{path}, which is gone through,", state
        else:
            name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
            self.unseen[name] = kind.__module__.partition(".")[0] not in sys.stdlib_module_names | {"builtins"}

    def _of_reader(self, path: str, reader: object) -> Iterator[tuple[str, object]]:
        # The functions of the program that a dataset calls are in the closures of refdist's own.
        waiting: deque[Any] = deque([reader])
        entered: set[int] = set()
        while waiting:
            part = waiting.popleft()
            if id(part) in entered:
                continue
            entered.add(id(part))
            if isinstance(part, functools.partial):
                waiting += [part.func, *part.args, *part.keywords.values()]
            elif isinstance(part, MethodType) and call_site.is_ours(type(part.__self__).__module__):
                waiting += [part.__self__, part.__func__]
            elif isinstance(part, FunctionType) and call_site.is_ours(part.__module__):
                for cell in part.__closure__ or ():
                    with contextlib.suppress(ValueError):
                        waiting.append(cell.cell_contents)
            elif isinstance(part, (list, tuple)):
                waiting += part
            elif isinstance(part, (Pipeline, Dataset, DatasetIterator)):
                waiting += [item for _, item in _attributes(part)]
            elif callable(part) and not isinstance(part, (type, BuiltinFunctionType)) and not call_site.is_ours(
                    type(part).__module__):
                yield f"{path}'s {getattr(part, '__name__', 'function')}", part

    def _of_function(self, path: str, function: FunctionType) -> Iterator[tuple[str, object]]:
        if not of_the_program(function.__module__):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # it has no value yet
                yield name, cell.cell_contents
        for name, item in (function.__kwdefaults__ or {}).items():
            yield f"{path}'s {name}", item
        for i, item in enumerate(function.__defaults__ or ()):
            yield f"{path}'s default {i}", item
        yield from ((f"{path}.{name}", item) for name, item in vars(function).items())
        yield from self._of_code(function.__code__, function.__globals__)

    def code(self, code: CodeType, names: dict[str, Any]) -> None:
        """Looks at the globals that code uses, of a module with these names."""
        for name, value in self._of_code(code, names):
            self.at(name, value)

    def _of_code(self, code: CodeType, names: dict[str, Any]) -> Iterator[tuple[str, object]]:
        for part in _codes(code):
            self.codes[part] = None
            yield from _named(part, names)


def can_be_shared(value: object) -> bool:
    """Whether what functions are called with may be changed by one of them, and seen by others.

    Arrays are copied where a function is scheduled, and accesses to variables are followed otherwise.
    """
    if call_site.is_ours(type(value).__module__):
        return isinstance(value, (Dataset, DatasetIterator, Generator))
    return type(value) not in _EXACTLY_PLAIN and not is_array(value)


def changed(before: Picture, after: Picture) -> set[str]:
    """The names of what differs between two pictures: paths without what follows the first bracket."""
    differs = {path for path in before.keys() | after.keys() if before.get(path, before) != after.get(path, after)}
    return {path if path in RANDOM else path.partition("[")[0].partition(",")[0] for path in differs}


def _named(code: CodeType, names: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The globals that code uses, which are `names`; of modules of the program, what it may use of them."""
    used = code.co_names
    waiting: list[tuple[str, Mapping[str, Any]]] = [("", names)]
    modules = {name: module for name in _imported(code, names.get("__package__"))
               if (module := sys.modules.get(name)) is not None and of_the_program(name)}
    waiting += ((f"{name}.", vars(module)) for name, module in modules.items())
    entered = {id(module) for module in modules.values()}
    for prefix, namespace in waiting:
        for name in used:
            value = namespace.get(name)
            if isinstance(value, ModuleType) and of_the_program(value.__name__):
                if id(value) not in entered:
                    entered.add(id(value))
                    waiting.append((f"{prefix}{name}.", vars(value)))
            elif name in namespace:
                yield prefix + name, value


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


def _cached(function: Any) -> Iterator[object]:
    """A function that `lru_cache` has wrapped, and what it has returned."""
    waiting = deque([function])
    entered: set[int] = set()
    while waiting:
        part = waiting.popleft()
        if id(part) in entered:
            continue
        entered.add(id(part))
        if part is function or type(part).__name__ == "_lru_list_elem":
            waiting += gc.get_referents(part)
        elif type(part) is dict and part is not vars(function):
            waiting += part.values()
        elif part is not type(function):
            yield part


def _objects(path: str, items: Iterable[object]) -> Iterator[tuple[str, object]]:
    yield from ((f"{path} {i}]", item) for i, item in enumerate(list(items)) if type(item) not in _EXACTLY_PLAIN)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()


def _state_of_numpy(source: Any) -> int:
    generator = source if isinstance(source, np.random.Generator) else source._bit_generator
    return hash(_hashable((generator.bit_generator if isinstance(generator, np.random.Generator) else generator).state))


def _hashable(value: Any) -> object:
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _name(file: Any) -> str:
    return str(getattr(file, "name", ""))


def _position(file: Any) -> int:
    try:
        return int(file.tell())
    except (OSError, ValueError):
        return -1


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    yield from getattr(value, "__dict__", {}).items()
    for slots in (getattr(kind, "__slots__", ()) for kind in type(value).__mro__):
        for name in [slots] if isinstance(slots, str) else slots:
            if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
                yield name, getattr(value, name)


_ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter({})), type(iter("")), type(iter(range(0))), type(reversed([])),
    itertools.count, itertools.cycle, enumerate)


def _of_iterator(value: Any) -> object:
    # What an iterator of Python's own goes through, and how far it is; None for others, generators for example.
    if not isinstance(value, _ITERATORS):
        return None
    return list(map(repr, tuple(value.__reduce__())))


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


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def place_of(name: str, codes: Iterable[CodeType]) -> Place | None:
    """The first place in some code where a name is used that is not its own."""
    for code in codes:
        for instruction in dis.get_instructions(code):
            if instruction.argval == name and instruction.opname in _USES:
                return call_site.of_one(code, instruction.offset)
    return None


_USES = ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME", "STORE_NAME", "LOAD_DEREF", "STORE_DEREF", "LOAD_CLASSDEREF")
