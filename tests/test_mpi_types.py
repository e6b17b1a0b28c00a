"""What the MPI backend declares of mpi4py is what mpi4py has: names and parameters, by its own stubs."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from refdist.backends.mpi import mpi_types

# The class of mpi4py that each protocol describes.
CLASSES = {"Request": "Request", "Prepared": "Prequest", "Group": "Group", "Communicator": "Comm"}


def methods(kind: ast.ClassDef) -> dict[str, list[str]]:
    """The parameters of each method, without the first."""
    return {node.name: [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)][1:]
            for node in kind.body if isinstance(node, ast.FunctionDef)}


def test_every_name_of_mpi4py_that_is_declared_exists() -> None:
    spec = importlib.util.find_spec("mpi4py")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("mpi4py is not installed")
    stub = ast.parse(Path(spec.submodule_search_locations[0], "MPI.pyi").read_text())
    real = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    names = {node.target.id for node in stub.body
             if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)} | set(real)
    declared = {node.name: node for node in ast.parse(Path(mpi_types.__file__).read_text()).body
                if isinstance(node, ast.ClassDef)}
    module = declared.pop("MPI")
    used = {node.target.id for node in module.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    assert {"COMM_WORLD", "IN_PLACE"} <= used
    assert used <= names
    assert set(CLASSES) == {name for name, kind in declared.items() if methods(kind)}
    for name, other in CLASSES.items():
        there = methods(real[other])
        for method, parameters in methods(declared[name]).items():
            assert method in there, f"{other}.{method}"
            assert parameters == there[method][:len(parameters)]
