"""Imports point down: by layers of folders, and without circles inside a folder."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Highest layer first; a name is a folder with all its files, or a file of refdist/ itself.  What stands in one layer
# does not import each other.
LAYERS = [
    "experimental train compat __main__",
    "nn",
    "strategies",
    "input checkpoints random",
    "data variables cluster_resolver",
    "backends.gpu backends.mpi",
    "backends.simulated",
    "array",
    "config",
    "core",
    "nest journal missing",
    "runtime",
    "errors",
]
RANK = {name: i for i, row in enumerate(LAYERS) for name in row.split()}
# They import from everywhere, to show what users find there.
FACES = {"__init__", "backends.__init__"}


def modules() -> dict[str, Path]:
    found = {}
    for folder, prefix in (("refdist", ""), ("backends", "backends.")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            found[prefix + name] = path
    return found


def imports(path: Path) -> list[tuple[int, str]]:
    found = []
    tree = ast.parse(path.read_text())
    # Names for annotations only: a mixin may say what its methods return.
    skipped = {inner for node in ast.walk(tree)
               if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
               for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(node.lineno, name) for name in names]
    return [(line, name.removeprefix("refdist.")) for line, name in found if name.startswith("refdist")]


def target_of(name: str, known: set[str]) -> str:
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def room(name: str) -> str:
    """The folder that a module is in, or the module itself where it lies in refdist/."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "backends" else parts[0]


def arrows() -> list[tuple[str, str, str]]:
    """(where, module, module that it imports) of all imports between modules."""
    known = set(modules())
    found = []
    for name, path in modules().items():
        for line, imported in imports(path):
            target = target_of(imported, known) or target_of(f"{imported}.__init__", known)
            while imported and not target:
                imported = imported.rpartition(".")[0]
                target = target_of(f"{imported}.__init__", known)
            if target:
                found.append((f"{path.relative_to(ROOT)}:{line}", name, target))
    return found


def test_every_file_has_a_place() -> None:
    stray = {room(name) for name in modules() if name not in FACES} - set(RANK)
    assert not stray, f"{stray} have no place in LAYERS"
    assert not set(RANK) - {room(name) for name in modules()}


def test_imports_point_down() -> None:
    wrong = [f"{where} imports {target}, which stands above or beside {name}; move what both need into a layer below"
             for where, name, target in arrows()
             if name not in FACES and room(name) != room(target)
             and (target in FACES or RANK[room(target)] <= RANK[room(name)])]
    assert not wrong, "\n".join(wrong)


def test_files_of_a_folder_do_not_import_in_circles() -> None:
    inside: dict[str, set[str]] = {}
    for _, name, target in arrows():
        # A folder's __init__ shows what its files hold; the files do not look at it.
        if room(name) == room(target) and not name.endswith("__init__"):
            inside.setdefault(name, set()).add(target)
    try:
        TopologicalSorter(inside).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from error


def test_no_file_is_longer_than_it_should_be() -> None:
    long = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert {name: count for name, count in long.items() if count > 420} == {}
