"""Imports point down: by layers of folders, and without circles inside a folder."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Highest layer first; a name is a folder with all its files, or a file of refdist/ itself.  What stands in one layer
# does not import each other.
LAYERS = [
    "tf",
    "insight tpu",
    "experimental tpu_experimental train compat",
    "nn coordinator",
    "strategies",
    "input checkpoints random",
    "data variables cluster_resolver",
    "backends.gpu backends.jax backends.mpi backends.torch",
    "backends.simulated",
    "workers",
    "array",
    "config",
    "core",
    "disk journal missing nest plugins",
    "errors runtime",
    "interrupts notebook",
]
RANK = {name: i for i, row in enumerate(LAYERS) for name in row.split()}
# They import from everywhere, to show what users find there.
FACES = {"__init__", "names", "__main__", "tf.__init__", "compat.v2", "backends.__init__"}
# Found by name when they are asked for: built-in plugins, as those of other packages are, drawings, and what runs a
# program of TensorFlow.
BUILT_IN = {("array.backend", "backends.simulated.__init__"), ("array.backend", "backends.gpu.backend"),
            ("array.backend", "backends.jax.backend"), ("array.backend", "backends.torch.backend"),
            ("workers.connection", "backends.simulated.workers"), ("workers.connection", "backends.mpi.transport"),
            ("notebook", "insight.drawings"), ("insight.trial", "tf.programs"), ("insight.keys", "tf.stateless")}


def modules() -> dict[str, Path]:
    files = {}
    for folder, prefix in (("refdist", ""), ("backends", "backends.")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            files[prefix + name] = path
    return files


def imports(tree: ast.Module, name: str, annotations: bool = True) -> list[tuple[int, str]]:
    """(line, full name) of what the module of that name imports, wherever in it and however it is written.

    Args:
        annotations: whether imports under `if TYPE_CHECKING` count.
    """
    imported = []
    skipped = {inner for node in ast.walk(tree)
               if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
               for statement in node.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        if not annotations and node in skipped:
            continue
        if isinstance(node, ast.Import):
            imported += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ["refdist", *name.split(".")][:-node.level] if node.level else []
            base += [node.module] if node.module else []
            imported += [(node.lineno, ".".join([*base, alias.name])) for alias in node.names]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"refdist(\.\w+)+(:\w+)?", str(node.value)):
            # For `import_module`, `sys.modules` and whatever else finds a module by a text.
            imported.append((node.lineno, str(node.value).partition(":")[0]))
    return [(line, module) for line, module in imported if module.partition(".")[0] == "refdist"]


def target_of(name: str, known: set[str]) -> str:
    """The module that a full name is, or is in; that of a folder is its `__init__`."""
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in known and ".".join([*parts, "__init__"]) not in known:
        parts.pop()
    module = ".".join(parts)
    return module if module in known else ".".join([*parts, "__init__"])


def room(name: str) -> str:
    """The folder that a module is in, or the module itself where it lies in refdist/."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "backends" else parts[0]


def arrows(annotations: bool = True) -> list[tuple[str, str, str]]:
    """(where, module, module that it imports) of all imports between modules."""
    known = set(modules())
    return [(f"{path.relative_to(ROOT)}:{line}", name, target_of(imported, known))
            for name, path in modules().items()
            for line, imported in imports(ast.parse(path.read_text()), name, annotations)]


def test_every_file_has_a_place() -> None:
    stray = {room(name) for name in modules() if name not in FACES} - set(RANK)
    assert not stray, f"{stray} have no place in LAYERS"
    assert not set(RANK) - {room(name) for name in modules()}


def test_imports_point_down() -> None:
    up = [(where, name, target) for where, name, target in arrows()
          if name not in FACES and room(name) != room(target)
          and (target in FACES or RANK[room(target)] <= RANK[room(name)])]
    wrong = [f"{where} imports {target}, which is above or beside {name}; move what both need into a layer below"
             for where, name, target in up if (name, target) not in BUILT_IN]
    assert not wrong, "\n".join(wrong)
    assert {(name, target) for _, name, target in up} == BUILT_IN


@pytest.mark.parametrize("written", [
    "from refdist.strategies import base", "from refdist.strategies.base import *", "import refdist.strategies.base",
    "import refdist.strategies.base as b", "def f():\n    from refdist.strategies.base import Strategy",
    "from ..strategies import base", "from ..strategies.base import Strategy", "from .. import strategies as s",
    "from importlib import import_module as get\nget('refdist.strategies.base')",
    "sys.modules['refdist.strategies.base']",
    "if TYPE_CHECKING:\n    pass\nelse:\n    from refdist.strategies import base", "import refdist",
    "from refdist import get_strategy", "import refdist as r", "from .. import get_strategy",
])
def test_every_way_to_write_an_import_counts(written: str) -> None:
    targets = [target_of(module, set(modules())) for _, module in imports(ast.parse(written), "core.lockstep")]
    assert targets[-1] in FACES or room(targets[-1]) == "strategies"


def test_imports_for_annotations_count_between_folders_only() -> None:
    tree = ast.parse("if TYPE_CHECKING:\n    from refdist.strategies import base")
    assert imports(tree, "core.lockstep") and not imports(tree, "core.lockstep", annotations=False)


def test_files_of_a_folder_do_not_import_in_circles() -> None:
    inside: dict[str, set[str]] = {}
    for _, name, target in arrows(annotations=False):
        # A folder's __init__ shows what its files hold; the files do not look at it.  Two classes of a folder may name
        # each other in annotations.
        if room(name) == room(target) and not name.endswith("__init__"):
            inside.setdefault(name, set()).add(target)
    try:
        TopologicalSorter(inside).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from error
