"""How a program is read so that it can be recorded.

A proxy can stand for None and for False. Python lets no object say what `is`, `not` and `in` mean for it, nor keep an
f-string from becoming a text, so these become calls when the program is read. `int`, `len`, `isinstance` and their
like are, in a recorded program, functions of the same names that answer a proxy for a proxy, so that `int(x)` is a step
and not a constant. Programs change the environment and make folders through stand-ins for `os` and `tempfile`, because
a path of this machine means nothing on another.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

from refdist.conformance.recording.proxies import Proxy
from refdist.conformance.recording.recorder import Recorder

# Modules that a program may import as they are: they see values of Python's own, and concrete ones of others.
MODULES = {"collections", "contextlib", "functools", "itertools", "json", "math", "numpy", "operator"}


class _Rewriter(ast.NodeTransformer):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @staticmethod
    def _call(name: str, node: ast.AST, *args: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(args), []), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        names = {ast.Is: "__is__", ast.IsNot: "__is_not__", ast.In: "__in__", ast.NotIn: "__not_in__"}
        name = names.get(type(node.ops[0]))
        if name is None or len(node.ops) > 1:
            return node
        return self._call(name, node, node.left, node.comparators[0])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("__not__", node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        parts = [part.value if isinstance(part, ast.FormattedValue) and part.format_spec is None
                 and part.conversion == -1 else part if isinstance(part, ast.Constant)
                 else ast.copy_location(ast.JoinedStr([part]), node) for part in node.values]
        return self._call("__text__", node, *parts)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        if node.name and any(isinstance(child, ast.Name) and child.id == node.name and isinstance(child.ctx, ast.Load)
                             for child in ast.walk(node)):
            self._recorder.refuse("it looks into an exception")
        if node.type is not None:
            node.type = self._call("__classes__", node.type, node.type)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if node.bases:
            self._recorder.refuse("it derives a class")
        if any(isinstance(member, ast.FunctionDef) and member.name == "__tf_flatten__" for member in node.body):
            self._recorder.refuse("it has a class that flattens itself")
        self.generic_visit(node)
        return node


def rewritten(tree: ast.Module, recorder: Recorder) -> ast.Module:
    """A program, with calls in place of what Python does not leave to objects."""
    module: ast.Module = _Rewriter(recorder).visit(tree)
    return ast.fix_missing_locations(module)


def names(recorder: Recorder) -> tuple[dict[str, Any], Callable[[], None]]:
    """What a recorded program finds under Python's own names, and what removes the folders that it made."""
    environment = _Environment(recorder)

    def passing(name: str, act: Callable[..., object]) -> Callable[..., Any]:
        def function(*args: object) -> object:
            if any(isinstance(arg, Proxy) for arg in args):
                return recorder.operate(name, act, *args)
            return act(*args)
        return function

    def conversion(kind: type, name: str) -> type:
        # Still a class, because programs pass it on and ask about it.
        class Meta(type):
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, kind)

            def __call__(cls, *args: object, **kwargs: object) -> object:
                if args and isinstance(args[0], Proxy) and not kwargs:
                    return recorder.operate(name, kind, *args)
                return kind(*args, **kwargs)

        return Meta(kind.__name__, (kind,) if kind is not bool else (), {"__module__": "builtins", "python": kind})

    def plain(kind: object) -> Any:
        return tuple(map(plain, kind)) if isinstance(kind, tuple) else getattr(kind, "python", kind)

    def is_instance(value: object, kinds: object) -> Any:
        if isinstance(value, Proxy) or isinstance(kinds, Proxy):
            return recorder.operate("instance", isinstance, value, plain(kinds))
        return isinstance(value, plain(kinds))

    def classes(kinds: object) -> object:
        return tuple(map(classes, kinds)) if isinstance(kinds, tuple) else getattr(kinds, "_value", kinds)

    def has(value: object, name: str) -> Any:
        return recorder.operate("has", hasattr, value, name) if isinstance(value, Proxy) else hasattr(value, name)

    def text(*parts: object) -> object:
        if any(isinstance(part, Proxy) for part in parts):
            return recorder.operate("text", lambda *real: "".join(map(str, real)), *parts)
        return "".join(map(str, parts))

    def is_in(value: object, container: Container[object]) -> object:
        if isinstance(container, Proxy):
            return recorder.operate("in", lambda element, elements: element in elements, value, container)
        return value in container

    def is_(value: object, other: object) -> object:
        if isinstance(value, Proxy) or isinstance(other, Proxy):
            return recorder.operate("is", lambda a, b: a is b, value, other)
        return value is other

    def is_not(value: object) -> object:
        return recorder.operate("not", lambda real: not real, value) if isinstance(value, Proxy) else not value

    def imported(name: str, globals: Mapping[str, object] | None = None, locals: Mapping[str, object] | None = None,
                 fromlist: tuple[str, ...] = (), level: int = 0) -> Any:
        if name == "os":
            return environment.os
        if name == "tempfile":
            return environment.tempfile
        if name == "copy":
            return SimpleNamespace(copy=passing("copy", copy.copy), deepcopy=passing("deep copy", copy.deepcopy))
        if name.partition(".")[0] not in MODULES:
            recorder.refuse(f"it imports {name}")
        return importlib.__import__(name, globals, locals, fromlist, level)

    names = {**vars(builtins), "__import__": imported, "isinstance": is_instance, "hasattr": has,
             "len": passing("length", len), "callable": passing("callable", callable), "type": passing("type", type),
             "round": passing("round", round), "open": environment.open,
             **{kind.__name__: conversion(kind, name)
                for kind, name in ((int, "int"), (float, "float"), (str, "text"), (list, "list"), (tuple, "tuple"))},
             "bool": conversion(bool, "bool"),
             "__is__": is_, "__is_not__": lambda value, other: is_not(is_(value, other)), "__in__": is_in,
             "__not_in__": lambda value, many: is_not(is_in(value, many)), "__not__": is_not, "__text__": text,
             "__classes__": classes}
    return {"__builtins__": names}, environment.remove


class _Environment:
    """Stand-ins for `os` and `tempfile`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._folders: list[str] = []
        self.tempfile = SimpleNamespace(mkdtemp=self._folder)
        paths = SimpleNamespace(join=self._join, basename=self._basename)
        # The number of a process tells programs apart that run at the same time; what is recorded is the same always.
        self.os = SimpleNamespace(environ=_Variables(recorder), path=paths, getpid=lambda: 1)

    def _folder(self) -> Proxy:
        folder = tempfile.mkdtemp()
        self._folders.append(folder)
        return self._recorder.operate("folder", lambda: folder)

    def _join(self, *parts: object) -> object:
        if any(isinstance(part, Proxy) for part in parts):
            return self._recorder.operate("path", os.path.join, *parts)
        return os.path.join(*map(str, parts))

    def _basename(self, path: object) -> object:
        if isinstance(path, Proxy):
            return self._recorder.operate("base name", os.path.basename, path)
        return os.path.basename(str(path))

    def open(self, path: object, mode: str = "r") -> _File:
        if isinstance(path, Proxy) and mode == "w":
            return _File(self._recorder, path)
        self._recorder.refuse("it opens a file")

    def remove(self) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


class _File:
    """A file that a program writes: a step when it is closed."""

    def __init__(self, recorder: Recorder, path: Proxy) -> None:
        self._recorder, self._path = recorder, path
        self._text = ""

    def write(self, text: str) -> None:
        self._text += text

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        def act(path: str, text: str) -> None:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)

        self._recorder.operate("file", act, self._path, self._text)


class _Variables:
    """`os.environ`, of which a program reads what it has set itself."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def _set(self, name: str, value: object) -> None:
        def act(name: str, value: str | None) -> None:
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

        self._recorder.operate("environment", act, name, value)

    def __setitem__(self, name: str, value: object) -> None:
        self._set(name, value)

    def __delitem__(self, name: str) -> None:
        self._set(name, None)

    def __getitem__(self, name: str) -> Any:
        return self._recorder.operate("environment value", lambda real: os.environ[real], name)

    def pop(self, name: str, default: object = None) -> Any:
        value = self._recorder.operate("environment value", os.environ.get, name)
        self._set(name, None)
        return value

    def get(self, name: str, default: object = None) -> Any:
        return self._recorder.operate("environment value", os.environ.get, name)

    def update(self, values: Mapping[str, object] = MappingProxyType({}), **more: object) -> None:
        for name, value in {**values, **more}.items():
            self._set(name, value)

    def __iter__(self) -> Iterator[str]:
        self._recorder.refuse("it lists the environment")
        return iter(os.environ)
