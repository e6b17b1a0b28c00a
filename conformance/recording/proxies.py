"""What stands for a value of the implementation in a program that is recorded.

A `Proxy` has the value itself underneath; whatever the program does with the proxy is a step, done with the value. A
`Named` is what the program finds by its name: `tf`, what is in it, `strategy`. Wherever Python itself needs a value (an
`if`, an index of a list, a format), the proxy hands it out, and the trace says that the program relied on it (`is`).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from refdist.conformance.recording.trace import Reference, Step, Tree

if TYPE_CHECKING:
    from refdist.conformance.recording.recorder import Recorder


class Proxy:
    """A value of the implementation, seen by the program."""

    __slots__ = ("_recorder", "_reference", "_step", "_value")
    __array_ufunc__ = None  # so that NumPy leaves its operators to those below

    _recorder: Recorder
    _value: Any
    _reference: Reference
    _step: Step | None

    def __init__(self, recorder: Recorder, value: object, reference: Reference, step: Step | None = None) -> None:
        object.__setattr__(self, "_recorder", recorder)
        object.__setattr__(self, "_value", value._value if isinstance(value, Proxy) else value)
        object.__setattr__(self, "_reference", reference)
        object.__setattr__(self, "_step", step)

    def _tree(self) -> Tree:
        return self._reference

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # A method is not a step until it is called, and what is not there raises in a step.
        attribute = inspect.getattr_static(self._value, name, None)
        if type(self._value).__module__ == self._recorder.names["__name__"] and inspect.isroutine(attribute):
            self._recorder.refuse("a method of the program's own is called on what an implementation returned")
        if isinstance(attribute, (FunctionType, classmethod, staticmethod)) or inspect.isroutine(attribute):
            return Method(self, name)
        return self._recorder.do("get", name, [self], lambda value: getattr(value, name))

    def __setattr__(self, name: str, to: object) -> None:
        self._recorder.do("set", name, [self, to], lambda value, real: setattr(value, name, real))

    def __call__(self, *args: object, **kwargs: object) -> Proxy:
        tree = self._tree()
        called = tree["name"] if isinstance(tree, dict) else tree
        return self._recorder.call("call", called, self._value, args, kwargs)

    def __enter__(self) -> Proxy:
        return self._recorder.enter(self)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return self._recorder.leave(self, error)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._value, (list, tuple, np.ndarray)):
            return iter([self[i] for i in range(len(self))])
        if isinstance(self._value, dict) and not all(isinstance(key, str) for key in self._value):
            return iter(self._recorder.operate("list", list, self))
        if isinstance(self._value, (dict, str)):
            items = list(self._value)
            return iter(self._recorder.concrete(self._recorder.operate("list", list, self), "same", lambda _: items))
        return self._recorder.operate("iterate", iter, self)

    def __next__(self) -> Proxy:
        return self._recorder.operate("next", next, self)

    def __getitem__(self, index: object) -> Proxy:
        return self._recorder.operate("[]", operator.getitem, self, index)

    def __setitem__(self, index: object, to: object) -> None:
        self._recorder.operate("[]=", operator.setitem, self, index, to)

    def __bool__(self) -> bool:
        return bool(self._recorder.concrete(self, "bool", bool))

    def __int__(self) -> int:
        return int(self._recorder.concrete(self, "int", int))

    def __index__(self) -> int:
        return int(self._recorder.concrete(self, "int", operator.index))

    def __float__(self) -> float:
        return float(self._recorder.concrete(self, "float", float))

    def __str__(self) -> str:
        return str(self._recorder.concrete(self, "text", str))

    def __format__(self, form: str) -> str:
        return format(self._recorder.concrete(self, "same", lambda value: value), form)

    def __len__(self) -> int:
        return int(self._recorder.concrete(self._recorder.operate("length", len, self), "int", int))

    def __array__(self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None) -> Any:
        return np.asarray(self._recorder.concrete(self, "same", lambda value: value), dtype)

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> Any:
        return self._recorder.operate("==", operator.eq, self, other)

    def __rmul__(self, other: object) -> Any:
        if isinstance(other, (list, tuple, str)):
            return other * operator.index(self)
        return self._recorder.operate("*", operator.mul, other, self)


class Named(Proxy):
    """What the program finds by its name, so that no step is needed."""

    __slots__ = ("_name",)

    _name: str

    def __init__(self, recorder: Recorder, value: object, name: str) -> None:
        super().__init__(recorder, value, Reference((), ()))
        object.__setattr__(self, "_name", name)

    def _tree(self) -> Tree:
        return {"name": self._name}

    def __getattr__(self, name: str) -> Any:
        if isinstance(self._value, (ModuleType, type)) and not name.startswith("__"):
            missing = object()
            if (attribute := getattr(self._value, name, missing)) is not missing:
                return Named(self._recorder, attribute, f"{self._name}.{name}")
        return super().__getattr__(name)


class Method(Proxy):
    """A method of a value: a step when it is called, or when the program does something else with it."""

    __slots__ = ("_name", "_of")

    _name: str
    _of: Proxy

    def __init__(self, of: Proxy, name: str) -> None:
        super().__init__(of._recorder, getattr(of._value, name), of._reference)
        object.__setattr__(self, "_of", of)
        object.__setattr__(self, "_name", name)

    def _tree(self) -> Tree:
        return self._recorder.do("get", self._name, [self._of], lambda value: getattr(value, self._name))._reference

    def __call__(self, *args: object, **kwargs: object) -> Proxy:
        return self._recorder.call("method", self._name, self._value, args, kwargs, [self._of])


OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
             "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "ne": "!=", "lt": "<",
             "le": "<=", "gt": ">", "ge": ">="}
UNARY = {"neg": "-", "pos": "+", "abs": "abs", "invert": "~"}


def _define() -> None:
    def binary(sign: str, act: Callable[..., object]) -> Callable[..., object]:
        return lambda self, other: self._recorder.operate(sign, act, self, other)

    def reflected(sign: str, act: Callable[..., object]) -> Callable[..., object]:
        return lambda self, other: self._recorder.operate(sign, act, other, self)

    def unary(sign: str, act: Callable[..., object]) -> Callable[..., object]:
        return lambda self: self._recorder.operate(sign, act, self)

    for name, sign in OPERATORS.items():
        act = getattr(operator, f"__{name}__")
        setattr(Proxy, f"__{name}__", binary(sign, act))
        if name not in ("ne", "lt", "le", "gt", "ge", "mul"):
            setattr(Proxy, f"__r{name}__", reflected(sign, act))
    for name, sign in UNARY.items():
        setattr(Proxy, f"__{name}__", unary(sign, getattr(operator, f"__{name}__")))


_define()
