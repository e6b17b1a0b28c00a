"""Writing down what a program does with an implementation.

The recorder is asked by proxies (`proxies.py`), which are in the place of all values of the implementation that the
program sees. A step is written into the trace first and carried out then, so that a step that never comes back (its
replica waits for one that has raised) is there. What goes into the implementation is unwrapped, so it never meets a
proxy; functions are wrapped, so that what they do is written down as well. Which body a step belongs to is known from
the context of the running code: replicas and workers are greenlets, and each has a context of its own.

What cannot be said as data (a class derived from one of the implementation's, the text of an exception) makes the
program one that only Python can run; `Recorder.refusal` says why.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

import numpy as np

from refdist.conformance import results
from refdist.conformance.adapter import Adapter
from refdist.conformance.examples import worker
from refdist.conformance.recording.proxies import Proxy
from refdist.conformance.recording.trace import Body, Function, Reference, Step, Tree

_BODY: ContextVar[Body] = ContextVar("body")


class Stop(BaseException):
    """The only replica that was wanted has done its part."""


class Refused(Exception):
    """Only Python can run the program."""


class Recorder:
    """Writes down what the program of one worker does.

    Attributes:
        program: the body of the program.
        statement: which one it is at.
        names: the program's.
        refusal: why only Python can run the program, None if others can.
        runs: the function of each call of `strategy.run`, in their order.
        missing: the replicas that a run did not start, as (number of the run, replica).
    """

    def __init__(self, adapter: Adapter, only: tuple[int, int] | None = None) -> None:
        """Records on `adapter`; with `only`, that run calls its function in that replica alone and ends the program."""
        self.adapter = adapter
        self.program = Body(())
        self.statement = -1
        self.names: dict[str, Any] = {}
        self.refusal: str | None = None
        self.runs: list[Function | None] = []
        self.missing: list[tuple[int, int]] = []
        self._objects: dict[int, Reference] = {}
        self._codes: dict[CodeType, str] = {}
        self._only = only
        _BODY.set(self.program)

    def refuse(self, reason: str) -> NoReturn:
        """Only Python can run the program, so there is nothing to record."""
        self.refusal = self.refusal or reason
        raise Refused(reason)

    # Steps.

    def do(self, kind: str, what: Tree, args: Sequence[object], act: Callable[..., object],
           kwargs: Mapping[str, object] | None = None) -> Proxy:
        """Writes down a step, and carries it out with the values underneath."""
        unwrapped = [self.unwrapped(value) for value in args]
        named = {name: self.unwrapped(value) for name, value in (kwargs or {}).items()}
        step = _BODY.get().append({kind: what, "args": [tree for tree, _ in unwrapped],
                                   "kwargs": {name: tree for name, (tree, _) in named.items()}})
        return Proxy(self, self.attempt(step, lambda: act(*(real for _, real in unwrapped),
                                                          **{name: real for name, (_, real) in named.items()})),
                     step.reference, step)

    def operate(self, name: str, act: Callable[..., object], *args: object) -> Proxy:
        """A step that is an operator."""
        return self.do("operator", name, args, act)

    def attempt(self, step: Step, act: Callable[[], object]) -> Any:
        """Carries out what a step says."""
        body = _BODY.get()
        try:
            return act()
        except Exception as error:
            body.failed = step, error, self.adapter.kind_of(error)
            raise

    def concrete(self, proxy: Proxy, name: str, convert: Callable[..., object]) -> Any:
        """A value that Python itself needs."""
        value, step = proxy._value, proxy._step
        if step is None or type(value) not in (int, float, bool, str):
            proxy = self.operate(name, convert, proxy)
            value, step = proxy._value, proxy._step
        assert step is not None
        step.seen = self.adapter.observe(value)
        return convert(value)

    # Values on their way into the implementation.

    def unwrapped(self, value: object) -> tuple[Tree, Any]:
        """A value of the program as data, and as the implementation gets it."""
        if isinstance(value, Proxy):
            return value._tree(), value._value
        if value is None or isinstance(value, (bool, str)):
            return value, value
        if isinstance(value, (np.ndarray, np.generic)):
            dtype = "string" if value.dtype.kind in "OSU" else str(value.dtype)
            return results.array(dtype, value.shape, value.ravel().tolist()), value
        if isinstance(value, (int, float)) and type(value) in (int, float):
            return results.number(value), value
        if type(value) is complex:
            return {"complex": [results.to_real(value.real), results.to_real(value.imag)]}, value
        if isinstance(value, (list, tuple, set, dict)):
            return self._unwrapped_container(value)
        if isinstance(value, slice):
            items = [self.unwrapped(end) for end in (value.start, value.stop, value.step)]
            return {"slice": [tree for tree, _ in items]}, slice(*(real for _, real in items))
        if isinstance(value, (FunctionType, functools.partial, MethodType, BuiltinMethodType)):
            recorded = _BODY.get().function(self._name(value))
            return recorded, self._wrapped(value, recorded)
        if isinstance(value, type) and value.__module__ == "builtins":
            return {"name": value.__name__}, getattr(value, "python", value)
        if type(value).__module__ == self.names["__name__"]:
            return self._object(value), value
        self.refuse(f"an object of {type(value).__name__} is passed")
        return None, value

    def _unwrapped_container(self, value: Any) -> tuple[Tree, Any]:
        kind = type(value)
        if kind is list and (numbers := _numbers(value)):
            return numbers, list(value)
        if isinstance(value, dict):
            keys, items = zip(*map(self.unwrapped, value), strict=True) if value else ((), ())
            trees, reals = zip(*map(self.unwrapped, value.values()), strict=True) if value else ((), ())
            if kind is not dict:
                self.refuse(f"an object of {kind.__name__} is passed")
            named = all(isinstance(key, str) for key in keys)
            return ({"dict": dict(zip(keys, trees, strict=True))} if named else
                    {"pairs": [list(pair) for pair in zip(keys, trees, strict=True)]},
                    dict(zip(items, reals, strict=True)))
        trees, reals = zip(*map(self.unwrapped, value), strict=True) if value else ((), ())
        if hasattr(value, "_fields"):
            return {"named": kind.__name__, "fields": dict(zip(value._fields, trees, strict=True))}, kind(*reals)
        if kind not in (list, tuple, set):
            self.refuse(f"an object of {kind.__name__} is passed")
        return {kind.__name__: list(trees)}, kind(reals)

    def _object(self, value: object) -> Reference:
        """An object of a class of the program's own, which to the implementation is no more than an object."""
        if id(value) not in self._objects:
            proxy = self.do("object", type(value).__name__, [], lambda **_: value, vars(value))
            self._objects[id(value)] = proxy._reference
        return self._objects[id(value)]

    def _wrapped(self, function: Callable[..., object], recorded: Function) -> Callable[..., Any]:
        def called(*args: object, **kwargs: object) -> object:
            replica = self.replica()
            nth = sum(body.replica == replica for body in recorded.bodies)
            body = Body((*recorded.key, replica, nth), replica, statement=self.statement)
            recorded.bodies.append(body)
            parameters = [Proxy(self, value, body.reference()) for value in args]
            named = {name: Proxy(self, value, body.reference()) for name, value in kwargs.items()}
            body.parameters = [parameter._reference for parameter in parameters]
            body.keywords = {name: parameter._reference for name, parameter in named.items()}
            before = state(function, self.names)
            token = _BODY.set(body)
            try:
                returned = function(*parameters, **named)
                if inspect.isgenerator(returned):
                    return self._generated(returned, body)
                body.settle()
                body.returns, real = self.unwrapped(returned)
                return real
            except Exception as error:
                body.ended(error, self.adapter.kind_of(error))
                raise
            finally:
                _BODY.reset(token)
                recorded.exact = recorded.exact or state(function, self.names) != before

        called.__name__ = called.__qualname__ = recorded.name
        return called

    def _generated(self, generator: Iterator[object], body: Body) -> Iterator[object]:
        """What a generator of the program yields."""
        while True:
            token = _BODY.set(body)
            try:
                tree, real = self.unwrapped(next(generator))
                body.append({"yield": tree})
            except StopIteration:
                body.settle()
                return
            except Exception as error:
                body.ended(error, self.adapter.kind_of(error))
                raise
            finally:
                _BODY.reset(token)
            yield real

    def _name(self, function: object) -> str:
        """The name of a function, of its own among those of the program's text."""
        if isinstance(function, BuiltinMethodType):
            return function.__name__
        while isinstance(function, (MethodType, functools.partial)):
            function = function.__func__ if isinstance(function, MethodType) else function.func
        assert isinstance(function, FunctionType)
        code = function.__code__
        if code not in self._codes:
            same = sum(known.co_name == code.co_name for known in self._codes)
            self._codes[code] = code.co_name + (f" {same + 1}" if same else "")
        return self._codes[code]

    def replica(self) -> int | None:
        """In which replica the program is."""
        context = self.adapter.tf.distribute.get_replica_context()
        return None if context is None else int(context.replica_id_in_sync_group)

    # Calls.

    def call(self, kind: str, what: Tree, function: Callable[..., object], args: Sequence[object],
             kwargs: Mapping[str, object], bound: Sequence[object] = ()) -> Proxy:
        """A call of a function of the implementation; `bound` is the object of a method."""
        strategy = getattr(function, "__self__", None)
        if getattr(function, "__name__", "") == "run" and isinstance(strategy, self.adapter.tf.distribute.Strategy):
            return self._run(strategy, [*bound, *args], kwargs)
        if bound:
            return self.do(kind, what, [*bound, *args], lambda _, *rest, **named: function(*rest, **named), kwargs)
        return self.do(kind, what, args, function, kwargs)

    def _run(self, strategy: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Proxy:
        number, body = len(self.runs), _BODY.get()
        self.runs.append(None)
        only = self._only[1] if self._only is not None and self._only[0] == number else None

        def act(_: object, *rest: object, **named: object) -> object:
            step = body.blocks[-1][-1]
            self.runs[number] = next(_functions(step.what), None)
            if only is None:
                return strategy.run(*rest, **named)
            function: Any
            function, *more = rest or [named.pop("fn")]
            try:
                strategy.run(lambda *a, **k: function(*a, **k) if self.replica() == only else None, *more, **named)
            except Exception:  # the others do not come to its collectives
                raise Stop from None
            raise Stop

        try:
            return self.do("method", "run", args, act, kwargs)
        finally:
            if (function := self.runs[number]) is not None and only is None:
                recorded = {body.replica for body in function.bodies}
                self.missing += [(number, replica) for replica in _replicas(strategy) if replica not in recorded]

    # Blocks of `with`.

    def enter(self, proxy: Proxy) -> Proxy:
        """The beginning of a `with`."""
        body = _BODY.get()
        tree, real = self.unwrapped(proxy)
        step = body.append({"with": tree})
        entered = Proxy(self, self.attempt(step, lambda: type(real).__enter__(real)), step.reference, step)
        step.inner = []
        body.blocks.append(step.inner)
        return entered

    def leave(self, proxy: Proxy, error: BaseException | None) -> bool:
        """The end of a `with`; whether the exception goes no further."""
        body = _BODY.get()
        real = proxy._value
        if len(body.blocks) < 2:
            self.refuse("a scope is left in another function than it was entered")
            return bool(type(real).__exit__(real, type(error) if error else None, error, None))
        if isinstance(error, Exception):
            body.ended(error, self.adapter.kind_of(error))
        elif error is None:
            body.settle()
        body.blocks.pop()
        step = body.blocks[-1][-1]
        if isinstance(error, Exception):
            body.failed = step, error, self.adapter.kind_of(error)
        swallowed = bool(self.attempt(step, lambda: type(real).__exit__(
            real, type(error) if error else None, error, error.__traceback__ if error else None)))
        if swallowed:
            body.failed = None
        return swallowed


def _functions(tree: Tree) -> Iterator[Function]:
    if isinstance(tree, Function):
        yield tree
    elif isinstance(tree, (dict, list)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _functions(item)


def _numbers(value: list[int] | list[float]) -> Tree:
    """A list of numbers of one type, in short; None if it is not one."""
    kind = type(value[0]) if value else None
    if kind not in (int, float) or any(type(number) is not kind for number in value):
        return None
    written = [results.to_integer(number) if isinstance(number, int) else results.to_real(number) for number in value]
    if len(value) > 16 and not any(isinstance(number, str) for number in written):
        step = value[1] - value[0]
        if all(value[0] + i * step == number for i, number in enumerate(value)):
            return {"range": [results.number(value[0]), results.number(step), len(value)]}
    return {"ints" if kind is int else "floats": written}


def _replicas(strategy: Any) -> list[int]:
    """The numbers of the replicas of this worker."""
    if strategy.num_replicas_in_sync == 1:
        return [0]
    here = len(strategy.extended.worker_devices)
    first = worker() * here if here < strategy.num_replicas_in_sync else 0
    return list(range(first, first + here))


def state(function: object, names: Mapping[str, object]) -> list[object]:
    """What a function could change in objects of the program's own, as their ids; none of an object made here."""
    ids: list[object] = []
    seen: set[int] = set()

    def look(value: object) -> None:
        ids.append(id(value))
        if id(value) in seen or isinstance(value, (Proxy, ModuleType, type)):
            return
        seen.add(id(value))
        if isinstance(value, (list, tuple, set, dict)):
            ids.append(len(value))
            for item in [*value.keys(), *value.values()] if isinstance(value, dict) else value:
                look(item)
        elif isinstance(value, functools.partial):
            look(value.func)
            look(value.args)
            look(value.keywords)
        elif isinstance(value, MethodType):
            look(value.__func__)
            look(value.__self__)
        elif isinstance(value, BuiltinMethodType):
            look(value.__self__)
        elif isinstance(value, FunctionType):
            for cell in value.__closure__ or ():
                try:
                    look(cell.cell_contents)
                except ValueError:  # it has no value yet
                    continue
        elif type(value).__module__ == names["__name__"]:
            look(vars(value))

    for name, value in names.items():
        if not name.startswith("__"):
            ids.append(id(name))
            look(value)
    look(function)
    return ids
