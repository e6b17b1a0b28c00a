"""Imports point down: a file may import only from rows below its own."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Highest row first; files of one row do not import each other.
LAYERS = [
    "strategies.default strategies.mirrored strategies.one_device strategies.central_storage strategies.multi_worker",
    "strategies.extended",
    "strategies.updates",
    "strategies.reduction",
    "strategies.base",
    "strategies.deprecated strategies.alone",
    "datasets",
    "sharding",
    "nn random",
    "context",
    "plans",
    "cross_device_ops preemption",
    "checkpoint_manager",
    "checkpoint",
    "checkpoint_objects",
    "variable_creation",
    "distributed_variables",
    "variables",
    "updates variable_access",
    "random_state",
    "values",
    "workers",
    "collectives",
    "cluster_resolver.cloud cluster_resolver.slurm cluster_resolver.tfconfig cluster_resolver.launcher",
    "cluster_resolver.base",
    "cluster",
    "backends.gpu",
    "backends.simulated backends.mpi backends.simulated_workers",
    "backends.gpu_workers",
    "backends.gpu_rings",
    "backends.gpu_arrays backends.gpu_devices backends.gpu_kernels",
    "backends.mpi_sums backends.mpi_watch",
    "backend",
    "transport",
    "lockstep",
    "data.dataset",
    "data.functions",
    "data.transformations data.mixing",
    "data.threads data.generator",
    "data.origin",
    "data.iterators data.split data.iterator",
    "data.elements data.files inputs",
    "data.facts",
    "data.spec data.options data.explanation",
    "checkpoint_reader",
    "checkpoint_files",
    "journal rules config creators indexed_slices communication",
    "arrays nest devices current missing tracebacks philox",
    "call_site",
    "errors",
]
FACES = {"__init__", "__main__", "experimental", "train", "strategies.__init__", "backends.__init__", "data.__init__",
         "data.experimental", "cluster_resolver.__init__", "compat.__init__", "compat.v1.__init__",
         "compat.v1.distribute", "compat.v1.experimental", "compat.v1.strategies"}
RANK = {name: i for i, row in enumerate(LAYERS) for name in row.split()}


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


def test_every_file_has_a_place() -> None:
    stray = [name for name in modules() if name not in RANK and name not in FACES]
    assert not stray, f"{stray} have no place in LAYERS; add each to the layer it belongs to"
    gone = [name for name in RANK if name not in modules()]
    assert not gone


def test_imports_point_down() -> None:
    known = set(RANK) | FACES
    wrong = []
    for name, path in modules().items():
        if name in FACES:
            continue
        for line, imported in imports(path):
            target = target_of(imported, known)
            if not target or target in FACES or RANK[target] <= RANK[name]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {imported}, which stands above or beside "
                             f"{name}; move what both need into a layer below")
    assert not wrong, "\n".join(wrong)


def test_no_file_is_longer_than_it_should_be() -> None:
    long = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert {name: count for name, count in long.items() if count > 420} == {}
