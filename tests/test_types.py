"""What mypy is told: arguments that may be anything are counted, because mypy checks nothing of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from syntax import FOLDERS, Modules, full_name, imported, sources

LIMIT = 140  # a quarter of them are events of recordings, which are JSON


def mentions(node: ast.expr, module: str, names: dict[str, str], anything: set[str]) -> bool:
    """Whether an expression for a type has one of `anything` in it; texts in it are read as types."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            try:
                read = ast.parse(inner.value, mode="eval").body
            except SyntaxError:
                continue
            if mentions(read, module, names, anything):
                return True
        elif isinstance(inner, ast.expr) and full_name(inner, module, names) in anything:
            return True
    return False


def aliases(modules: Modules) -> set[str]:
    """Full names that stand for Any or for a type with Any in it: aliases, type variables, subclasses."""
    found, before = {"typing.Any", "typing_extensions.Any"}, 0
    names = {module: dict(imported(tree)) for module, tree in modules.items()}
    candidates = [(module, *one) for module, tree in modules.items() for one in definitions(tree, f"{module}.")]
    while len(found) > before:
        before = len(found)
        for module, here in names.items():
            found |= {f"{module}.{name}" for name, full in here.items() if full in found}
        found |= {name for module, name, value in candidates if mentions(value, module, names[module], found)}
    return found


def definitions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.expr]]:
    """(full name, what it is made of) of everything that may be a type."""
    for node in ast.iter_child_nodes(tree):
        value = getattr(node, "value", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and value is not None and _is_type(value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((prefix + target.id, value) for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ClassDef):
            yield from ((prefix + node.name, base) for base in node.bases)
            yield from definitions(node, f"{prefix}{node.name}.")
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
            yield from definitions(node, prefix)  # an `if` or a `try`


def _is_type(value: ast.expr) -> bool:
    # `X = Any`, `X = list[Any]`, `X = A | B`, `X = "Any"`, `T = TypeVar("T", bound=Any)`; not tables and results.
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("TypeVar", "NewType", "TypeAliasType")
    return isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Constant))


def arguments(tree: ast.Module) -> Iterator[tuple[int, str, ast.expr]]:
    """(line, name, annotation) of arguments, also as fields of classes and by another name in the function."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            some = node.args
            given = [one for one in (*some.posonlyargs, *some.args, *some.kwonlyargs, some.vararg, some.kwarg) if one]
            yield from ((one.lineno, one.arg, one.annotation) for one in given if one.annotation is not None)
            names = {one.arg for one in given}
            # `array: Any = argument`
            yield from ((one.lineno, ast.unparse(one.target), one.annotation) for one in ast.walk(node)
                        if isinstance(one, ast.AnnAssign) and isinstance(one.value, ast.Name) and one.value.id in names)
        elif isinstance(node, ast.ClassDef):
            yield from ((one.lineno, ast.unparse(one.target), one.annotation) for one in node.body
                        if isinstance(one, ast.AnnAssign))


def of_any_type(modules: Modules) -> list[str]:
    """Every argument whose annotation mentions Any, by itself or through an alias: "module:line name"."""
    anything, found = aliases(modules), []
    for module, tree in modules.items():
        names = dict(imported(tree))
        found += [f"{module}:{line} {name}" for line, name, annotation in arguments(tree)
                  if mentions(annotation, module, names, anything)]
    return found


def test_few_arguments_may_be_anything() -> None:
    """Testees are programs of their own, for people to copy from."""
    modules = {name: tree for name, tree in sources(*FOLDERS).items() if ".testees." not in name}
    found = of_any_type(modules)
    by_module: dict[str, int] = {}
    for one in found:
        module = one.partition(":")[0]
        by_module[module] = by_module.get(module, 0) + 1
    most = sorted(by_module.items(), key=lambda item: -item[1])[:20]
    assert len(found) <= LIMIT, f"{len(found)} arguments mention Any: {most}"


@pytest.mark.parametrize(("count", "source"), [
    (1, "from typing import Any\ndef f(x: Any) -> None: ..."),
    (1, "from typing import Any\ndef f(x: dict[str, list[Any] | None]) -> None: ..."),
    (4, "from typing import Any\ndef f(x: Any, /, y: Any, *z: Any, **k: Any) -> None: ..."),
    (1, "from typing import Any\ndef f(*, y: Any) -> None: ..."),
    (1, "from typing import Any\nclass A:\n    async def f(self, x: Any) -> None: ..."),
    (1, "from typing import Any\ndef f(x: 'list[Any]') -> None: ..."),
    (1, "from typing import Any as Thing\ndef f(x: Thing) -> None: ..."),
    (1, "import typing\ndef f(x: typing.Any) -> None: ..."),
    (1, "import typing as t\ndef f(x: t.Any) -> None: ..."),
    (1, "from typing import Any\nThing = Any\ndef f(x: Thing) -> None: ..."),
    (1, "from typing import Any\nRow = list[Any]\nTable = dict[str, Row]\ndef f(x: Table) -> None: ..."),
    (1, "from typing import Any, TypeAlias\nThing: TypeAlias = 'Any'\ndef f(x: Thing) -> None: ..."),
    (1, "from typing import Any, TypeVar\nT = TypeVar('T', bound=Any)\ndef f(x: T) -> T: ..."),
    (1, "from refdist.other import Thing\ndef f(x: Thing) -> None: ..."),
    (1, "from refdist import other\ndef f(x: other.Thing) -> None: ..."),
    (1, "from refdist.other import Thing as Object\nBox = list[Object]\ndef f(x: Box) -> None: ..."),
    (1, "import refdist.other\ndef f(x: refdist.other.Thing) -> None: ..."),
    (1, "from typing import Any\nclass A:\n    Thing = Any\ndef f(x: A.Thing) -> None: ..."),
    (1, "from typing import Any\nclass Box(list[Any]): ...\ndef f(x: Box) -> None: ..."),
    (1, "from typing import Any\nif True:\n    Thing = Any\ndef f(x: Thing) -> None: ..."),
    (1, "from typing import Any, NamedTuple\nclass A(NamedTuple):\n    x: Any\n    y: int"),
    (1, "from typing import Any\n@dataclass\nclass A:\n    x: list[Any] = field()"),
    (1, "from typing import Any\ndef f(x: object) -> None:\n    y: Any = x\n    return y.z"),
    (1, "from typing import Any\ndef f(*x: object) -> None:\n    if x:\n        y: Any = x"),
    (0, "from typing import Any\ndef f(x: object) -> None:\n    y: Any = g(x)\n    z: int = x"),
    (0, "from typing import Any\ndef f(x: object) -> Any: ..."),
    (0, "from typing import Any\nTABLE: dict[str, Any] = {}\ndef f(x: int = TABLE['Any']) -> None: ..."),
    (0, "class Any: ...\ndef f(x: Any) -> None: ..."),
])
def test_every_way_to_write_it_counts(count: int, source: str) -> None:
    other = ast.parse("from typing import Any\nThing = Any")
    assert len(of_any_type({"refdist.mine": ast.parse(source), "refdist.other": other})) == count
