"""What replicas share beside variables: Python objects that the names in their function lead to, and random states.

The function of the replicas is followed: the globals that its code names, those of the program's other modules too, the
variables of functions around it, its arguments, what is in these containers and objects, and the functions of the
program that it may call.  What is found is written down as text, number or digest for each path, such as `history[3]`
or `trainer.steps`.  Two such pictures, taken before and after a replica had its turn, show what it has changed.
"""

from __future__ import annotations

import contextlib
import dis
import io
import itertools
import random
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from os import sep
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from refdist.array.convert import is_array, to_numpy
from refdist.core import call_site, seeds
from refdist.core.call_site import Place
from refdist.data import Dataset
from refdist.data import Iterator as DatasetIterator
from refdist.data.position import Seeds
from refdist.random import Generator

ENTRIES = 100_000  # the most paths of a picture
PYTHON_S, NUMPY_S, OURS = "the state of `random`", "the state of `numpy.random`", "the state of `tf.random`"
Picture = dict[str, object]
"""What was found at each path."""

_INSTALLED = tuple(f"{sysconfig.get_path(name)}{sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_BUILT_IN = frozenset(sys.builtin_module_names)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), range, slice)
_OPAQUE_AND_EQUAL = (BuiltinFunctionType, np.dtype, np.ufunc)


class Look:
    """A look at what replicas share.

    Attributes:
        picture: what was found.
        unseen: the types of objects that it could not look into.
        codes: the code of functions of the program.
    """

    def __init__(self) -> None:
        self.picture: Picture = {}
        self.unseen: dict[str, None] = {}
        self.codes: dict[CodeType, None] = {}
        self._seen: dict[int, str] = {}  # id -> path
        self._kept: list[object] = []  # so that no id is used twice

    def states(self) -> None:
        """Looks at the states of the random numbers that all share."""
        self.picture[PYTHON_S] = _digest(repr(random.getstate()).encode())
        self.picture[NUMPY_S] = _state_of_numpy(np.random.mtrand._rand)
        seed = seeds.of_the_process.value
        self.picture[OURS] = _digest(repr((seed.number, seed.calls.getstate(), list(seed.used.items()))).encode())

    def at(self, path: str, value: object) -> None:
        """Looks at a value, and at what it leads to."""
        waiting = deque([(path, value)])
        while waiting and len(self.picture) < ENTRIES:
            path, value = waiting.popleft()
            if isinstance(value, _PLAIN):
                self.picture[path] = value if not isinstance(value, float) or value == value else "nan"
                continue
            if id(value) in self._seen:
                self.picture[path] = f"the same as {self._seen[id(value)]}"
                continue
            self._seen[id(value)] = path
            self._kept.append(value)
            waiting += self._inside(path, value)
        if waiting:
            self.unseen[f"more than {ENTRIES} objects"] = None

    def _inside(self, path: str, value: Any) -> Iterator[tuple[str, object]]:
        kind = type(value)
        self.picture[path] = kind.__name__
        if of_the_program(kind.__module__) and not isinstance(value, type):  # of a list with attributes, these too
            yield from ((f"{path}.{name}", item) for name, item in _attributes(value))
            yield kind.__name__, kind
        if isinstance(value, DatasetIterator):
            self.picture[path] = kind.__name__, value._count
        elif isinstance(value, Dataset):  # each reading draws the seeds of shuffles
            self.picture[path] = kind.__name__, str([sorted(source._next.values())
                                                     for source in value._pipeline.sources
                                                     if isinstance(source, Seeds)])
        elif isinstance(value, Generator):
            if value._state._strategy is None:  # replicas have one state among them
                yield path, value._state._primary._array
        elif call_site.is_ours(kind.__module__) or isinstance(value, _OPAQUE_AND_EQUAL):
            pass  # variables are compared in the end, and those of replicas are not shared
        elif isinstance(value, ModuleType):
            if of_the_program(value.__name__):
                yield from ((f"{path}.{name}", item) for name, item in list(vars(value).items())
                            if not name.startswith("__"))
        elif is_array(value):
            array = np.asarray(to_numpy(value))
            self.picture[path] = str(array.dtype), array.shape, _digest(
                repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
        elif isinstance(value, (dict, Mapping)):
            self.picture[path] = kind.__name__, len(value)
            yield from ((f"{path}[{key!r}]", item) for key, item in list(value.items()))
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
        elif isinstance(value, io.IOBase):
            self.picture[path] = "file", _name(value), _position(value)
        elif isinstance(value, MethodType):
            yield f"{path}.__self__", value.__self__
            yield path + ".__func__", value.__func__
        elif isinstance(value, FunctionType):
            yield from self._of_function(path, value)
        elif isinstance(value, type):
            if of_the_program(getattr(value, "__module__", "")):
                yield from ((f"{path}.{name}", item) for name, item in vars(value).items()
                            if not name.startswith("__") or isinstance(item, FunctionType))
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
            self.unseen[f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")] = None

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
            yield from _named(part.co_names, names)


def changed(before: Picture, after: Picture) -> set[str]:
    """The names of what differs between two pictures: paths without what follows the first bracket."""
    differs = {path for path in before.keys() | after.keys() if before.get(path, before) != after.get(path, after)}
    return {path if path in (PYTHON_S, NUMPY_S, OURS) else path.partition("[")[0].partition(",")[0] for path in differs}


def _named(used: Sequence[str], names: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The globals that code with these names uses; of modules of the program, what it may use of them."""
    waiting: list[tuple[str, Mapping[str, Any]]] = [("", names)]
    modules = {name: module for name in used if name not in names  # imported by the code itself
               and (module := sys.modules.get(name)) is not None and of_the_program(name)}
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


def _objects(path: str, items: Iterable[object]) -> Iterator[tuple[str, object]]:
    yield from ((f"{path} {i}]", item) for i, item in enumerate(list(items)) if not isinstance(item, _PLAIN))


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()


def _state_of_numpy(source: Any) -> str:
    generator = source if isinstance(source, np.random.Generator) else source._bit_generator
    state = (generator.bit_generator if isinstance(generator, np.random.Generator) else generator).state
    return _digest(repr(sorted((key, np.asarray(value).tolist() if not isinstance(value, dict) else sorted(
        (name, np.asarray(part).tolist()) for name, part in value.items())) for key, value in state.items())).encode())


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


def of_the_program(module: str) -> bool:
    """Whether a module is neither a library, nor Python's own."""
    if not module or module in _BUILT_IN or call_site.is_between(module):
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not file.startswith(_INSTALLED) and bool(file or module == "__main__")


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
