"""The state of a process is in declared fields, and a block can have fresh ones."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

import pytest
from syntax import Modules, full_name, imported, sources

import refdist
from refdist.array.backend import chosen
from refdist.runtime import process

# What changes and is not a field of `process`, with the reason.
ELSEWHERE = {
    "refdist.core.context_stack.state": "belongs to a thread",
    "refdist.core.lockstep._pool": "belongs to a thread",
    "refdist.coordinator.cluster._mine": "belongs to a thread",
    "refdist.core.pytorch._entered": "belongs to a thread",
    "refdist.coordinator.rpc._servers": "a field, to whose object servers are added",
    "refdist.coordinator.strands._parked": "threads that are used again",
    "refdist.variables.served.here": "belongs to a thread",
    "refdist.backends.mpi.supervised._supervisor": "a process has one supervisor, or none",
    "refdist.backends.mpi.supervised._several_hosts": "a process is started once",
    "refdist.backends.mpi.reports._claims": "names that a process keeps until it ends",
    "refdist.core.call_site._interned": "a cache",
    "refdist.core.call_site._known": "a cache",
    "refdist.insight.stream._sites": "sites by their ids, which are kept anyway",
}
# Functions that remember what they have returned, which is the same every time.
CACHED = {
    "refdist.array.ordered_sum._keeps_first", "refdist.array.summaries._type_of", "refdist.insight.lines._device",
    "refdist.array.convert._standard_name", "refdist.array.convert.kind_of", "refdist.core.agreement.signature_of",
    "refdist.core.devices._canonical", "refdist.core.devices.parse", "refdist.core.devices.short",
    "refdist.coordinator.steady._names", "refdist.core.pytorch._reader",
    "refdist.strategies.replica_context._checked_signature",
    "refdist.backends.gpu.kernels.on_device", "refdist.backends.gpu.kernels.stored",
    "refdist.backends.mpi.shared_memory._pagemap",
}
CHANGES = {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "add", "discard", "popitem",
           "__setitem__", "__setattr__", "sort", "reverse", "appendleft", "popleft", "rotate", "move_to_end", "fill",
           "set", "reset", "put", "send"}

# Functions that change their first argument.
GIVEN = {".next", ".setattr", ".delattr", "heapq.heappush", "heapq.heappop", "random.shuffle"}


def of_modules(modules: Modules) -> set[str]:
    """Full names of what modules keep: all they assign outside functions, and their functions and classes."""
    return {f"{module}.{name}" for module, tree in modules.items() for name in kept(tree)}


def kept(tree: ast.Module | ast.ClassDef) -> Iterator[str]:
    """What the body of a module or class assigns or defines; of a class in it by a dotted name."""
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name
            if isinstance(statement, ast.ClassDef):
                yield from (f"{statement.name}.{name}" for name in kept(statement))
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def functions(tree: ast.AST, around: str = "") -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Every function, with the dotted name of the innermost class that it is in, or ""."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node, around
        yield from functions(node, f"{around}.{node.name}".lstrip(".") if isinstance(node, ast.ClassDef) else around)


def changed(modules: Modules) -> Iterator[str]:
    """Full names of what functions assign to, or call a method of that changes it."""
    for module, tree in modules.items():
        names = dict(imported(tree))
        for function, around in functions(tree):
            here = names | other_names(function, module, names, around)
            for node in ast.walk(function):
                if isinstance(node, ast.Global):
                    yield from (f"{module}.{name}" for name in node.names)
                elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
                    yield full_name(of_class(node.value), module, here)
                    yield full_name(node, module, here)
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
                    yield full_name(of_class(node.func.value), module, here)
                elif isinstance(node, ast.Call) and node.args and full_name(node.func, "", here) in GIVEN:
                    yield full_name(of_class(node.args[0]), module, here)


def of_class(node: ast.expr) -> ast.expr:
    """`type(self)` and `self.__class__` as the name `cls`."""
    if isinstance(node, ast.Attribute):
        if node.attr == "__class__":
            return ast.Name("cls")
        return ast.Attribute(of_class(node.value), node.attr)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
        return ast.Name("cls")
    return node


def other_names(function: ast.FunctionDef | ast.AsyncFunctionDef, module: str, names: dict[str, str],
                around: str) -> dict[str, str]:
    """What the names in a function mean that are not the module's: its own, and those that `mine = theirs` makes."""
    outside = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    found = dict.fromkeys(own - outside, "")
    found |= {"cls": f"{module}.{around}"} if around else {}
    return found | {target.id: full_name(node.value, module, names | {"self": ""}) for node in ast.walk(function)
                    if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute))
                    for target in node.targets if isinstance(target, ast.Name)}


def kept_and_changed(modules: Modules) -> set[str]:
    """What modules keep and functions change, fields apart."""
    # What is changed may be in something that is kept: `mine.field.append(1)`.
    found = {name[:i] for name in set(changed(modules)) for i in range(len(name) + 1) if name[i:i + 1] in ("", ".")}
    return of_modules(modules) & found - set(declared(modules))


def declared(modules: Modules) -> Iterator[str]:
    """Full names of the fields of the process, and of what higher layers set at import."""
    yield "refdist.runtime.process"
    for module, tree in modules.items():
        names = dict(imported(tree))
        yield from (f"{module}.{node.target.id}" for node in tree.body
                    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
                    and isinstance(node.value, ast.Call)
                    and full_name(node.value.func, "", names) in ("refdist.runtime.Field", "refdist.runtime.Late"))


def test_what_changes_is_in_one_object() -> None:
    assert kept_and_changed(sources("refdist", "backends")) == set(ELSEWHERE)


def lasting(modules: Modules) -> Iterator[str]:
    """What else outlives a call: caches, default arguments and attributes of classes that can change, closures."""
    for module, tree in modules.items():
        names = dict(imported(tree))
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from (f"{module}.{node.name}" for one in node.decorator_list if full_name(
                    one.func if isinstance(one, ast.Call) else one, module, names) in REMEMBER)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                yield from (f"{module}:{one.lineno} default" for one in (*node.args.defaults, *node.args.kw_defaults)
                            if one is not None and can_change(one, module, names))
            elif isinstance(node, ast.Nonlocal):
                yield f"{module}:{node.lineno} nonlocal"
            elif isinstance(node, ast.ClassDef):
                yield from (f"{module}.{node.name} attribute" for one in node.body
                            if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None
                            and can_change(one.value, module, names))


REMEMBER = {"functools.cache", "functools.lru_cache"}


def can_change(value: ast.expr, module: str, names: dict[str, str]) -> bool:
    """Whether an expression makes a list, a dict or a set, or calls what may make an object that changes."""
    if isinstance(value, ast.Call):
        return full_name(value.func, "", names) not in ("dataclasses.field", ".frozenset", ".object")
    return isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp))


def test_functions_and_classes_keep_nothing() -> None:
    assert set(lasting(sources("refdist", "backends"))) == CACHED


@pytest.mark.parametrize("source", [
    "import functools\n@functools.cache\ndef f(): ...", "from functools import lru_cache as c\n@c(1)\ndef f(): ...",
    "def f(x=[]): ...", "def f(*, x={}): ...", "f = lambda x=set(): 1", "class A:\n    x = []",
    "class A:\n    x: dict[int, int] = {}", "class A:\n    x = dict()",
    "def f():\n    x = 0\n    def g():\n        nonlocal x\n        x = 1\n    return g",
])
def test_every_way_to_keep_something_counts(source: str) -> None:
    assert len(set(lasting({"refdist.mine": ast.parse(source)}))) == 1


@pytest.mark.parametrize(("source", "kept"), [
    ("def f(): f.count = 1", {"f"}), ("def f():\n    def g(): f.seen[1] = 2", {"f", "f.seen"}),
    ("class A:\n    x = 0\n    def f(self): A.x += 1", {"A", "A.x"}),
    ("class A:\n    x = 0\n    @classmethod\n    def f(cls): cls.x = 1", {"A", "A.x"}),
    ("class A:\n    x = 0\n    def f(self): type(self).x = 1", {"A", "A.x"}),
    ("class A:\n    x = 0\n    def f(self): self.__class__.x = 1", {"A", "A.x"}),
    ("class A:\n    x = 0\nclass B(A):\n    def f(self): A.x.append(1)", {"A", "A.x"}),
    ("import itertools\nn = itertools.count()\ndef f(): return next(n)", {"n"}),
    ("from refdist import other\ndef f(): setattr(other, 'x', 1)", set()),
    ("n = []\ndef f(): setattr(n, 'x', 1)", {"n"}),
    ("from heapq import heappush\nn = []\ndef f(): heappush(n, 1)", {"n"}),
    ("from contextvars import ContextVar\nn = ContextVar('n')\ndef f(): n.set(1)", {"n"}),
    ("n = []\ndef f(n): n.append(1)", set()), ("n = []\ndef f():\n    n = []\n    n.append(1)", set()),
    ("class A:\n    x = 0\n    def f(self): self.x = 1", set()),
])
def test_functions_and_classes_are_kept_too(source: str, kept: set[str]) -> None:
    found = kept_and_changed({"refdist.mine": ast.parse(source)})
    assert found <= {f"refdist.mine.{name}" for name in kept} and bool(found) == bool(kept)


@pytest.mark.parametrize("change", [
    "def f(): mine[:] = [1]", "def f(): mine[0] = 1", "def f(): mine.append(1)", "def f(): del mine[0]",
    "def f(): mine.field.more.append(1)",
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
    with refdist.record() as recording, process.fresh(REFDIST_DEVICES="GPU:3", REFDIST_REPLICA_SEED="1"):
        assert len(refdist.config.list_logical_devices("GPU")) == 3
        assert refdist.config.order(8) != range(8)
        assert refdist.random.get_global_generator() is not generator
        refdist.experimental_set_strategy(strategy)
        refdist.experimental_set_strategy(None)
        assert strategy.extended is not None and chosen.value is not backend
        with pytest.raises(RuntimeError, match="RD27"):
            strategy.run(lambda: 1)
        refdist.MirroredStrategy().run(lambda: refdist.get_replica_context())
        refdist.config.set_simulated_devices(gpu=1)
        os.environ["REFDIST_LEFT_BEHIND"] = "1"
    assert recording.events == [] and "REFDIST_LEFT_BEHIND" not in os.environ and "REFDIST_DEVICES" not in os.environ
    assert refdist.random.get_global_generator() is generator and chosen.value is backend
    assert refdist.config.order(8) == range(8)
    assert strategy.run(lambda: 1) == 1
    assert refdist.MirroredStrategy(["GPU:5"]).num_replicas_in_sync == 1, "no size is stated"


def test_a_fresh_process_is_put_back_after_an_error() -> None:
    before = [field.value for field in process.fields]
    with pytest.raises(ZeroDivisionError), process.fresh():
        refdist.set_backend("simulated")
        raise ZeroDivisionError
    assert all(field.value is value for field, value in zip(process.fields, before, strict=True))


def test_every_field_is_described_once() -> None:
    words = [field.what for field in process.fields]
    assert len(words) >= 10 and all(len(what.split()) >= 4 for what in words) and len(set(words)) == len(words)


def test_each_simulated_worker_has_fields_of_its_own() -> None:
    refdist.random.set_global_generator(refdist.random.Generator.from_seed(1))
    mine = refdist.random.get_global_generator()

    def program() -> refdist.random.Generator:
        strategy = refdist.MultiWorkerMirroredStrategy()
        first = refdist.random.get_global_generator()
        strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
        assert refdist.random.get_global_generator() is first is not mine
        return first

    assert len(set(map(id, refdist.simulate_workers(program, 3)))) == 3
    assert refdist.random.get_global_generator() is mine
