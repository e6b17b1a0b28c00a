"""The state of a process is in one object, and a block can have a fresh one."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

import pytest
from syntax import Modules, full_name, imported, sources

import refdist
from refdist.runtime import Runtime, process

# What changes and is not a field of `process`, with the reason.
ELSEWHERE = {
    "refdist.core.context_stack.state": "belongs to a thread",
    "refdist.core.lockstep._pool": "belongs to a thread",
    "refdist.core.call_site._interned": "a cache",
    "refdist.core.call_site._known": "a cache",
}
CHANGES = {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "add", "discard", "popitem",
           "__setitem__", "__setattr__", "sort", "reverse", "appendleft", "popleft"}


def of_modules(modules: Modules) -> set[str]:
    """Full names of what modules keep: everything they assign outside functions and classes."""
    found = set()
    for module, tree in modules.items():
        for node in ast.walk(ast.Module([one for one in tree.body if not isinstance(
                one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))], [])):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(f"{module}.{node.id}")
    return found


def changed(modules: Modules) -> Iterator[str]:
    """Full names of what functions assign to, or call a method of that changes it."""
    for module, tree in modules.items():
        names = dict(imported(tree))
        for function in ast.walk(tree):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            here = names | other_names(function, module, names)
            for node in ast.walk(function):
                if isinstance(node, ast.Global):
                    yield from (f"{module}.{name}" for name in node.names)
                elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
                    yield full_name(node.value, module, here)
                    yield full_name(node, module, here)
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
                    yield full_name(node.func.value, module, here)


def other_names(function: ast.AST, module: str, names: dict[str, str]) -> dict[str, str]:
    """What `mine = theirs` in a function makes of the names in it."""
    return {target.id: full_name(node.value, module, names) for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute))
            for target in node.targets if isinstance(target, ast.Name)}


def kept_and_changed(modules: Modules) -> set[str]:
    """What modules keep and functions change, `process` apart."""
    return of_modules(modules) & set(changed(modules)) - {"refdist.runtime.process"}


def test_what_changes_is_in_one_object() -> None:
    assert kept_and_changed(sources("refdist", "backends")) == set(ELSEWHERE)


@pytest.mark.parametrize("change", [
    "def f(): mine[:] = [1]", "def f(): mine[0] = 1", "def f(): mine.append(1)", "def f(): del mine[0]",
    "def f():\n    global mine\n    mine = 2", "class A:\n    def f(self): mine.field = 1", "def f(): mine[0] += 1",
    "def f():\n    def g(): mine.update(a=1)", "async def f(): mine.clear()",
    "def f():\n    here = also = mine\n    also.field = 1",
])
@pytest.mark.parametrize("where", ["", "from refdist.other import mine\n", "from refdist import other\n"])
def test_every_way_to_change_it_counts(change: str, where: str) -> None:
    if "global" in change and where:
        change = "def f(): other.mine = 2" if "import other" in where else "def f(): mine.x = 2"
    if "import other" in where:
        change = change.replace("mine", "other.mine").replace("other.other", "other")
    mine = ast.parse(where + ("" if where else "mine = []\n") + change)
    other = ast.parse("try:\n    mine = []\nexcept ValueError:\n    pass")
    module = "refdist.other" if where else "refdist.mine"
    assert kept_and_changed({"refdist.mine": mine, "refdist.other": other}) == {f"{module}.mine"}


def test_a_fresh_process_has_forgotten_everything_and_the_old_one_is_put_back() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    generator, backend = refdist.random.get_global_generator(), strategy.extended.backend
    with refdist.journal.record() as events, process.fresh(REFDIST_DEVICES="GPU:3", REFDIST_REPLICA_SEED="1"):
        assert len(refdist.config.list_logical_devices("GPU")) == 3
        assert refdist.config.order(8) != range(8)
        assert refdist.random.get_global_generator() is not generator
        refdist.experimental_set_strategy(strategy)
        refdist.experimental_set_strategy(None)
        assert strategy.extended is not None and process.backend is not backend
        with pytest.raises(RuntimeError, match="RD27"):
            strategy.run(lambda: 1)
        refdist.MirroredStrategy().run(lambda: refdist.get_replica_context())
        refdist.config.set_simulated_devices(gpu=1)
        os.environ["REFDIST_LEFT_BEHIND"] = "1"
    assert events == [] and "REFDIST_LEFT_BEHIND" not in os.environ and "REFDIST_DEVICES" not in os.environ
    assert refdist.random.get_global_generator() is generator and process.backend is backend
    assert refdist.config.order(8) == range(8)
    assert strategy.run(lambda: 1) == 1
    assert refdist.MirroredStrategy(["GPU:5"]).num_replicas_in_sync == 1, "no size is stated"


def test_a_fresh_process_is_put_back_after_an_error() -> None:
    before = {name: getattr(process, name) for name in Runtime.__slots__}
    with pytest.raises(ZeroDivisionError), process.fresh():
        refdist.set_backend("simulated")
        raise ZeroDivisionError
    assert {name: getattr(process, name) for name in Runtime.__slots__} == before


def test_every_field_is_described() -> None:
    assert all(f"        {name}: " in (Runtime.__doc__ or "") for name in Runtime.__slots__)
