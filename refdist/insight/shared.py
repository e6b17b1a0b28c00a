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
import fractions
import functools
import gc
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
from collections import ChainMap, defaultdict, deque
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
from refdist.data import Dataset
from refdist.data import Iterator as DatasetIterator
from refdist.data.pipeline import Pipeline
from refdist.data.position import Seeds
from refdist.insight.names import Names, codes, of_python, of_the_program, takes_a_name
from refdist.random import Generator

ENTRIES = 100_000  # the most paths of a picture
LARGE = 1 << 16  # bytes of an array that takes long
PYTHON_S, NUMPY_S, OURS = "the state of `random`", "the state of `numpy.random`", "the state of `tf.random`"
RANDOM = (PYTHON_S, NUMPY_S, OURS)
ENVIRONMENT = "`os.environ`"
Picture = dict[str, object]
"""What was found at each path."""
Numbers = dict[int, tuple[int, object]]
"""A number for each of some objects, by their ids; they are kept, so that no id is used twice."""

_OF_CLASSES_OF_PYTHON = frozenset((
    "__abstractmethods__", "__annotations__", "__dataclass_fields__", "__dataclass_params__", "__orig_bases__",
    "__parameters__"))
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), range, slice)
_EXACTLY_PLAIN = frozenset(_PLAIN)
# What nobody changes; it may be replaced.
EQUAL = (
    np.dtype, np.ufunc, re.Pattern, pathlib.PurePath, decimal.Decimal, fractions.Fraction, datetime.date, datetime.time,
    datetime.timedelta, datetime.tzinfo)
_OF_CLASSES = (GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType)
_CACHED = type(functools.lru_cache(lambda: None))
_MADE_OF_OTHERS = (zip, map, filter, itertools.chain, itertools.starmap, itertools.islice)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
LOCKS = tuple(f"_thread.{kind.__name__}" for kind in _LOCKS)


class Look:
    """A look at what functions share.

    Args:
        whole: whether large arrays are looked at, too.
        numbers: by which objects that are not looked into are told apart; those of earlier looks, if there were any.

    Attributes:
        left_out: whether one was not.
        picture: what was found.
        unseen: the types of objects that it could not look into, and whether a library that is installed has made them.
        codes: the code of functions of the program.
        held: locks that somebody has.
    """

    def __init__(self, whole: bool = True, numbers: Numbers | None = None) -> None:
        self.left_out = False
        self._whole = whole
        self.picture: Picture = {}
        self.unseen: dict[str, bool] = {}
        self.codes: dict[CodeType, None] = {}
        self.held: dict[str, None] = {}
        self._seen: dict[int, str] = {}  # id -> path
        self._times: dict[str, int] = {}  # how many objects are at a path, where there are several
        self._kept: list[object] = []  # so that no id is used twice
        self._numbers = {} if numbers is None else numbers
        self._names = Names()

    @property
    def computed(self) -> dict[str, None]:
        """Where code asks for names that it computes, by which it may reach what is not followed."""
        return self._names.computed

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
                self.picture[path] = exactly(value)
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
        if takes_a_name(value):
            self._names.of_value(path.partition(",")[0], value)
        if kind is FunctionType:
            self.picture[path] = value.__module__, value.__qualname__, value.__code__
            yield from self._of_function(path, value)
            return
        if of_the_program(kind.__module__):
            if not isinstance(value, type):  # of a list with attributes, these too
                yield from ((f"{path}.{name}", item) for name, item in attributes(value))
                if (hidden := _hidden(kind)) is not None:
                    self.unseen[f"a {hidden.__name__}"] = False
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
        elif call_site.is_ours(kind.__module__) or kind is object:
            # Variables are compared in the end, and those of replicas are not shared.
            self.picture[path] = kind.__name__, self._number(value)
        elif isinstance(value, EQUAL):
            self.picture[path] = kind.__name__, repr(value)
        elif isinstance(value, _OF_CLASSES):
            self.picture[path] = kind.__name__, value.__qualname__
        elif isinstance(value, BuiltinFunctionType):
            self.picture[path] = kind.__name__, value.__qualname__
            if not isinstance(value.__self__, ModuleType):  # a method, such as `rows.append`
                yield f"{path}.__self__", value.__self__
        elif isinstance(value, _PLAIN):  # a class of it
            self.picture[path] = kind.__name__, exactly(
                next(base for base in kind.__mro__ if base in _EXACTLY_PLAIN)(value))
        elif isinstance(value, ModuleType):
            self.picture[path] = kind.__name__, value.__name__
            yield from self._names.enter(f"{path}.", value)
        elif is_array(value):
            content = np.asarray(to_numpy(value))
            if content.nbytes > LARGE and not self._whole:
                self.left_out = True
                return
            held = content.dtype.hasobject
            self.picture[path] = (str(content.dtype), content.shape, content.flags.writeable,
                                  None if held else _digest(content.tobytes()))
            if held:
                yield from ((f"{path}[{i}]", item) for i, item in enumerate(content.ravel().tolist()))
        elif value is sys.modules:
            pass  # its modules are not shared, only named
        elif isinstance(value, (dict, Mapping)):
            items = [(repr(key), item) for key, item in list(value.items())]
            self.picture[path] = kind.__name__, [key for key, _ in items]
            yield from ((f"{path}[{key}]", item) for key, item in items)
            yield from _objects(f"{path}[key", value)
            if isinstance(value, defaultdict):
                yield f"{path}.default_factory", value.default_factory
            elif isinstance(value, ChainMap):
                yield f"{path}.maps", value.maps
        elif isinstance(value, (list, tuple, deque)):
            self.picture[path] = kind.__name__, len(value)
            yield from ((f"{path}[{i}]", item) for i, item in enumerate(list(value)))
        elif isinstance(value, bytearray):
            self.picture[path] = kind.__name__, bytes(value)
        elif isinstance(value, (set, frozenset)):
            self.picture[path] = kind.__name__, repr(sorted(map(repr, value)))
            yield from _objects(f"{path}[item", value)
        elif isinstance(value, random.Random):
            self.picture[path] = _digest(repr(value.getstate()).encode())
        elif isinstance(value, (np.random.RandomState, np.random.Generator)):
            self.picture[path] = _state_of_numpy(value)
        elif isinstance(value, (array.array, memoryview)):
            with contextlib.suppress(ValueError):  # a memoryview that was released
                self.picture[path] = kind.__name__, _digest(value.tobytes())
        elif isinstance(value, io.IOBase):
            if not any(value is stream for stream in _printed_to()):
                self.picture[path] = "file", _name(value), _position(value), _in_memory(value)
        elif isinstance(value, MethodType):
            yield f"{path}.__self__", value.__self__
            yield path + ".__func__", value.__func__
        elif isinstance(value, (functools.partial, functools.partialmethod)):
            yield from ((path, part) for part in (value.func, *value.args))
            yield from ((f"{path}'s {name}", item) for name, item in value.keywords.items())
            if isinstance(value, functools.partial):
                yield from ((f"{path}.{name}", item) for name, item in vars(value).items())
        elif isinstance(value, _CACHED):
            self.picture[path] = kind.__name__, value.cache_info()
            yield from ((path, part) for part in _cached(value))
            yield from ((f"{path}.{name}", item) for name, item in vars(value).items())
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
                # What it goes through has no name.
                yield from ((f"{path}, which is gone through", part) for part in gc.get_referents(value)
                            if isinstance(part, (GeneratorType, *_MADE_OF_OTHERS, *_ITERATORS)))
        elif isinstance(value, weakref.ref):
            yield path, value()
            yield f"{path}'s callback", value.__callback__
        elif isinstance(value, (SimpleNamespace, argparse.Namespace)):
            yield from ((f"{path}.{name}", item) for name, item in list(vars(value).items()))
        elif isinstance(value, logging.Logger):
            self.picture[path] = kind.__name__, repr(value), value.disabled, value.propagate
            yield from ((f"{path}'s handler", handler) for handler in (*value.handlers, *value.filters))
            if value.propagate and value.parent is not None:
                yield value.parent.name, value.parent
        elif isinstance(value, logging.LoggerAdapter):
            yield from ((f"{path}.{name}", item) for name, item in vars(value).items())
        elif isinstance(value, logging.StreamHandler) and not isinstance(value, logging.FileHandler):
            if of_python(kind.__module__):
                yield f"{path}.stream", value.stream
        elif isinstance(value, (logging.Handler, logging.Filter)):
            pass  # files are not followed
        elif isinstance(value, type):
            self.picture[path] = kind.__name__, value.__module__, value.__qualname__
            if of_the_program(getattr(value, "__module__", "")):
                yield from ((f"{path}.{name}", item) for name, item in vars(value).items()
                            if name not in _OF_CLASSES_OF_PYTHON and not name.startswith("_abc_"))
                yield from ((base.__name__, base) for base in value.__bases__)
        elif isinstance(value, (staticmethod, classmethod)):
            yield path, value.__func__
        elif isinstance(value, property):
            yield from ((path, part) for part in (value.fget, value.fset, value.fdel) if part is not None)
        elif isinstance(value, functools.cached_property):
            yield path, value.func
        elif (state := _of_iterator(value)) is not None:
            yield f"{path}, which is gone through,", state
        elif of_the_program(kind.__module__):
            pass  # its attributes are all that it has
        else:
            self.picture[path] = kind.__name__, self._number(value)
            self.unseen[f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")] = not of_python(
                kind.__module__)

    def _number(self, value: object) -> int:
        return self._numbers.setdefault(id(value), (len(self._numbers), value))[0]

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
                waiting += [item for _, item in attributes(part)]
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
        for part in codes(code):
            self.codes[part] = None
            yield from self._names.of_code(part, names)


def can_be_shared(value: object) -> bool:
    """Whether what functions are called with may be changed by one of them, and seen by others.

    Arrays are copied where a function is scheduled, and accesses to variables are followed otherwise.
    """
    if call_site.is_ours(type(value).__module__):
        return isinstance(value, (Dataset, DatasetIterator, Generator))
    return type(value) not in _EXACTLY_PLAIN and not is_array(value)


def exactly(value: object) -> object:
    """Equal for plain values that a program cannot tell apart: 0, False, 0.0 and -0.0 are four values, and NaN is one.
    """
    return type(value).__name__, value if isinstance(value, (int, str, bytes)) else repr(value)


def changed(before: Picture, after: Picture) -> set[str]:
    """The names of what differs between two pictures: paths without what follows the first bracket."""
    differs = {path for path in before.keys() | after.keys() if before.get(path, before) != after.get(path, after)}
    return {path if path in RANDOM else path.partition("[")[0].partition(",")[0] for path in differs}


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


def _printed_to() -> tuple[object, ...]:
    return sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__


def _in_memory(file: Any) -> object:
    """The content of a file that is only in memory."""
    try:
        return file.getvalue() if isinstance(file, (io.BytesIO, io.StringIO)) else None
    except ValueError:  # it is closed
        return None


def _name(file: Any) -> str:
    return str(getattr(file, "name", ""))


def _position(file: Any) -> int:
    try:
        return int(file.tell())
    except (OSError, ValueError):
        return -1


def attributes(value: object) -> Iterator[tuple[str, object]]:
    """The attributes that an object of the program's own has, by `__slots__` too, and their names."""
    yield from list(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        if "__slots__" in vars(kind):
            for name, item in vars(kind).items():
                if isinstance(item, MemberDescriptorType):
                    with contextlib.suppress(AttributeError):  # it has no value yet
                        yield name, item.__get__(value)


def _hidden(kind: type) -> type | None:
    """A class that is not written in Python, of which a class of the program's is one, and that has a state of its own.
    """
    return next((base for base in kind.__mro__ if isinstance(vars(base).get("__new__"), BuiltinFunctionType)
                 and base is not object and not issubclass(base, _KNOWN)), None)


_ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter({})), type(iter("")), type(iter(range(0))), type(reversed([])),
    itertools.count, itertools.cycle, enumerate)


def _of_iterator(value: Any) -> object:
    # What an iterator of Python's own goes through, and how far it is; None for others, generators for example.
    if not isinstance(value, _ITERATORS):
        return None
    return list(map(repr, tuple(value.__reduce__())))


_KNOWN: tuple[type, ...] = (
    *_PLAIN, *EQUAL, *_ITERATORS, *_MADE_OF_OTHERS, list, tuple, dict, set, frozenset, deque, bytearray, BaseException,
    array.array, random.Random, np.ndarray, np.generic, io.IOBase, functools.partial, weakref.ref, SimpleNamespace,
    staticmethod, classmethod, property)
