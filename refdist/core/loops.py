"""A program, read from its text: whether a loop ends, how its variables are called, what is written as a number."""

from __future__ import annotations

import ast
import functools
import linecache

from refdist.core.call_site import INSTALLED, Place, Site

_LOOPS = (ast.For, ast.AsyncFor)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
# Functions that iterate over all of their argument, so that a loop over them ends when it does.
_WHOLE = {"enumerate", "iter", "tqdm"}
_DISTRIBUTING = {"experimental_distribute_dataset", "distribute_datasets_from_function"}
_ENDING = {"exit", "_exit", "quit", "abort", "kill"}


def never_ends(site: Site) -> bool:
    """Whether a `for` statement goes on as long as what it goes over: it has no `break`, and no error ends it.

    A file that catches errors may end a loop from anywhere inside it, also where it only calls what has the loop.

    Args:
        site: of the instruction that takes the next item; its columns are those of the loop, or of what it goes over.
    """
    trees = [_parsed(file) for file in {place.file for place in site} if not file.startswith(INSTALLED)]
    if any(tree is None or any(map(_catches, ast.walk(tree))) for tree in trees):
        return False
    place, tree = site[0], _parsed(site[0].file)
    assert tree is not None
    return any(place[2:6] in (_span(loop), _span(loop.iter)) and _is_whole(loop.iter)
               and not any(map(_may_end, loop.body)) for loop in ast.walk(tree) if isinstance(loop, _LOOPS))


@functools.lru_cache(maxsize=256)
def variables(place: Place) -> tuple[str, ...]:
    """The loop variables at a place: names that the loops around it assign, in its function and those around that."""
    tree = _parsed(place.file)
    if tree is None:
        return ()
    names = []
    for node in ast.walk(tree):
        targets = ([node.target] if isinstance(node, _LOOPS) and node.body[0].lineno <= place.line <= _end(node)
                   else [generator.target for generator in node.generators]
                   if isinstance(node, _COMPREHENSIONS) and node.lineno <= place.line <= _end(node) else [])
        names += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return tuple(dict.fromkeys(names))


def uses_in_a_loop(place: Place) -> bool:
    """Whether what the statement at a place gives a name to is used in a loop further down in the same function."""
    tree = _parsed(place.file)
    if tree is None:
        return False
    around = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, *_FUNCTIONS))
              and getattr(node, "lineno", 0) <= place.line <= (_end(node) or place.line)]
    function = max(around, key=lambda node: getattr(node, "lineno", 0))
    assigned = {name.id for node in ast.walk(function)
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno <= place.line <= _end(node)
                for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                for name in ast.walk(target) if isinstance(name, ast.Name)}
    return any(isinstance(used, ast.Name) and used.id in assigned
               for node in ast.walk(function) if isinstance(node, (*_LOOPS, ast.While)) and node.lineno > place.line
               for used in ast.walk(node))


def passes_a_number(place: Place, method: str, position: int, name: str) -> bool:
    """Whether the source of a call passes a literal for an argument, which is then the same in every process.

    Args:
        place: where the call is in the source.
        method: the name of the method that is called.
        position, name: of the argument.
    """
    tree = _parsed(place.file)
    calls = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.Call)
                                     and _called(node) == method and place[2:6] == _span(node)]
    arguments = [*(call.args[position] for call in calls if len(call.args) > position),
                 *(keyword.value for call in calls for keyword in call.keywords if keyword.arg == name)]
    return bool(arguments) and all(isinstance(argument, ast.Constant) for argument in arguments)


def _end(node: ast.AST) -> int:
    return int(getattr(node, "end_lineno", 0) or 0)


@functools.lru_cache(maxsize=64)
def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _parsed(file: str) -> ast.Module | None:
    source = "".join(linecache.getlines(file))
    return _tree(source) if source else None


def _span(node: ast.stmt | ast.expr) -> tuple[int, int | None, int | None, int | None]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _catches(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        return not (isinstance(node.type, ast.Name) and node.type.id in ("ImportError", "ModuleNotFoundError"))
    return isinstance(node, ast.Call) and _called(node) in ("suppress", "raises")


def _is_whole(over: ast.expr) -> bool:
    # Whether the loop goes over the whole dataset, and not over what another function takes from it.
    if isinstance(over, (ast.Name, ast.Attribute)):
        return True
    if not isinstance(over, ast.Call) or not over.args:
        return False
    return _called(over) in _DISTRIBUTING or (_called(over) in _WHOLE and _is_whole(over.args[0]))


def _may_end(node: ast.AST, inner: bool = False) -> bool:
    # Whether a statement may end the loop that it stands in; `inner` inside another loop, whose `break` is its own.
    if isinstance(node, _FUNCTIONS):
        return False
    if isinstance(node, (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await, ast.Assert)):
        return True
    if isinstance(node, ast.Break):
        return not inner
    if isinstance(node, ast.Call) and _called(node) in _ENDING:
        return True
    inside = inner or isinstance(node, (*_LOOPS, ast.While))
    return any(_may_end(child, inside) for child in ast.iter_child_nodes(node))


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) \
        else ""
