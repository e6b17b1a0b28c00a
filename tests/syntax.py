"""The source of refdist as syntax trees, and what names in it mean."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = {"refdist": "refdist", "backends": "refdist.backends", "conformance": "refdist.conformance"}

Modules = dict[str, ast.Module]


def sources(*folders: str) -> Modules:
    """The modules of these folders of the checkout, by their full names."""
    found = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join([FOLDERS[folder], *parts]).removesuffix(".__init__")
            found[name] = ast.parse(path.read_text())
    return found


def imported(module: ast.Module) -> Iterator[tuple[str, str]]:
    """(name here, full name) of everything that a module imports, wherever in it."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield (one.asname, one.name) if one.asname else (one.name.split(".")[0], one.name.split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                yield one.asname or one.name, f"{node.module}.{one.name}"


def full_name(node: ast.expr, module: str, names: dict[str, str]) -> str:
    """What a name or a dotted name means: "typing.Any"; "" for other expressions."""
    if isinstance(node, ast.Name):
        return names.get(node.id, f"{module}.{node.id}")
    if isinstance(node, ast.Attribute):
        return f"{full_name(node.value, module, names)}.{node.attr}"
    return ""
