"""Where in a program the value of an expression may be used, found by following names through its text.

What happens to a result after it was returned is not known when a check looks at it.  The text says where it may go:
to the names that it is assigned to, what is computed of these, the results of the functions that return them, the
arguments of functions that are passed them.  No order of statements is looked at, and a name of an attribute is one for
all objects, so what is found is more than what is: a value that is said to go nowhere near an expression does not.

One path is left out on purpose.  What is subtracted from something (`w.assign_sub(rate * g)`, `w -= rate * g`) is an
update of a weight, which leads to everything that is computed later, and is not what was subtracted any more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Key = tuple[ast.AST | None, str]  # a function, or a file, or None for an attribute; and the name

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# Methods that keep what they are passed in their object.
_KEEPING = frozenset((
    "append", "extend", "add", "insert", "update", "update_state", "setdefault", "put", "write", "assign", "assign_add",
    "scatter_add", "copy_", "add_", "fill_"))
# What is said of a value without being it.
_ABOUT = frozenset(("shape", "dtype", "ndim", "size", "device"))
_TELLING = frozenset(("len", "print", "type", "isinstance", "repr", "str", "format"))


class Part(NamedTuple):
    """A part of a file, as `ast` has it: lines count from 1, columns from 0, in bytes."""

    file: int
    line: int
    end_line: int | None
    column: int | None
    end_column: int | None


def name_of(function: ast.expr) -> str:
    """The name that a function is called by: of `replica.all_reduce` it is "all_reduce"."""
    return str(getattr(function, "attr", None) or getattr(function, "id", ""))


class Program:
    """The text of some files.

    Args:
        sources: the text of each.

    Raises:
        SyntaxError, ValueError: a text is not Python's.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self.trees = [ast.parse(source) for source in sources]
        self._parents: dict[ast.AST, ast.AST] = {}
        self._locals: dict[ast.AST, set[str]] = {}
        self.functions: dict[str, list[Function]] = {}
        for tree in self.trees:
            for node in ast.walk(tree):
                for child in ast.iter_child_nodes(node):
                    self._parents[child] = node
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self.functions.setdefault(node.name, []).append(node)
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                    for target in node.targets:
                        if isinstance(target, ast.Name):
                            self.functions.setdefault(target.id, []).append(node.value)

    def nodes(self) -> Iterator[ast.AST]:
        """The nodes of all files."""
        for tree in self.trees:
            yield from ast.walk(tree)

    def at(self, part: Part) -> ast.expr | None:
        """The expression that is this part of a file."""
        for node in ast.walk(self.trees[part.file]):
            if isinstance(node, ast.expr) and (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == (
                    part.line, part.end_line, part.column, part.end_column):
                return node
        return None

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What a node is a part of."""
        return self._parents.get(node)

    def around(self, node: ast.AST) -> Iterator[Function]:
        """The functions around a node, innermost first."""
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, _FUNCTIONS):
                yield node

    def parameters(self, function: Function) -> list[str]:
        """The names of a function's parameters."""
        arguments = function.args
        several = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
        return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *several)]

    def passed(self, function: Function, parameter: str) -> list[ast.expr] | None:
        """What calls of a function by its name pass for a parameter; None where that is not known."""
        names = {name for name, functions in self.functions.items() if function in functions}
        calls = [node for node in self.nodes() if isinstance(node, ast.Call) and name_of(node.func) in names]
        positional = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        positional = positional[1:] if positional[:1] == ["self"] else positional
        found: list[ast.expr] = []
        for call in calls:
            given = dict(zip(positional, call.args, strict=False)) | {
                keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
            if parameter not in given or any(isinstance(one, ast.Starred) for one in call.args):
                return None
            found.append(given[parameter])
        return found or None

    def _bound(self, function: Function) -> set[str]:
        inside = [node for node in ast.walk(function) if isinstance(node, (ast.Name, ast.Global, ast.Nonlocal))
                  and next(self.around(node), None) is function]
        elsewhere = {name for node in inside if not isinstance(node, ast.Name) for name in node.names}
        return ({*self.parameters(function)} | {node.id for node in inside if isinstance(node, ast.Name)
                                                and isinstance(node.ctx, ast.Store)}) - elsewhere

    def key(self, name: str, node: ast.AST) -> Key:
        """Whose name it is that a node has: that of the innermost function that binds it, or of the file."""
        for function in self.around(node):
            if function not in self._locals:
                self._locals[function] = self._bound(function)
            if name in self._locals[function]:
                return function, name
        while node in self._parents:
            node = self._parents[node]
        return node, name


class Flow:
    """Where the values of some expressions may go.

    Args:
        program: the text.
        seeds: the expressions.
        outwards: calls that led from one seed to the next: what the function around one returns, the next one gives.
    """

    def __init__(self, program: Program, seeds: Iterable[ast.expr], outwards: Sequence[ast.expr] = ()) -> None:
        self.program = program
        self._seeds = {*seeds}
        self._outwards = outwards
        self._keys: set[Key] = set()
        self._returns: dict[Function, set[int] | None] = {}  # the items of the tuple that it returns; None for all
        for seed in self._seeds:  # `v.assign(mean)` is v from then on, and `rate /= 4` is rate
            if isinstance(getattr(seed, "ctx", None), ast.Store):
                self._add(seed, seed)
            if isinstance(seed, ast.Call) and isinstance(seed.func, ast.Attribute) and seed.func.attr in _KEEPING:
                self._add(seed.func.value, seed)
        before = -1
        while self._size() > before:
            before = self._size()
            for node in program.nodes():
                self._pass(node)
            for inner, outer in pairwise(outwards):
                function = next(program.around(inner), None)
                if function in self._returns:
                    self._seeds.add(outer)

    def _size(self) -> int:
        return len(self._keys) + len(self._seeds) + sum(
            1000 if items is None else len(items) for items in self._returns.values())

    def reaches(self, node: ast.AST | None) -> bool:
        """Whether the value of an expression may be computed of the seeds'."""
        if node is None:
            return False
        if node in self._seeds:
            return True
        match node:
            case ast.Name(id=name):
                return self.program.key(name, node) in self._keys or any(
                    function in self._returns for function in self.program.functions.get(name, ()))
            case ast.Attribute(value=value, attr=attr):
                if attr in _ABOUT:
                    return False
                return (None, attr) in self._keys or self.reaches(value) or any(
                    function in self._returns for function in self.program.functions.get(attr, ()))
            case ast.Call(func=func, args=args, keywords=keywords):
                return self._call_reaches(func, [*args, *(keyword.value for keyword in keywords)])
            case ast.Lambda():
                return node in self._returns
            case ast.Compare() | ast.JoinedStr() | ast.Constant():
                return False
            case ast.Subscript(value=value):
                return self.reaches(value)
            case ast.IfExp(body=body, orelse=orelse):
                return self.reaches(body) or self.reaches(orelse)
            case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
                return self.reaches(item)
            case ast.DictComp(value=value):
                return self.reaches(value)
            case ast.expr() | ast.Starred():
                return any(map(self.reaches, ast.iter_child_nodes(node)))
        return False

    def _call_reaches(self, func: ast.expr, args: Sequence[ast.expr]) -> bool:
        name = name_of(func)
        known = self.program.functions.get(name, ())
        if any(function in self._returns for function in known):
            return True
        if known and isinstance(func, ast.Name):  # and so it is known what it returns
            return False
        if name in _TELLING:
            return False
        return self.reaches(func) or any(map(self.reaches, args))

    def _add(self, target: ast.AST, node: ast.AST) -> None:
        # What is assigned to.
        match target:
            case ast.Name(id=name):
                self._keys.add(self.program.key(name, target))
            case ast.Attribute(attr=attr):
                self._keys.add((None, attr))
            case ast.Subscript(value=value) | ast.Starred(value=value):
                self._add(value, node)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for one in elts:
                    self._add(one, node)
            case ast.Call(func=ast.Attribute(value=value)):  # d.setdefault("loss", []).append(...)
                self._add(value, node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for one, part in zip(target.elts, value.elts, strict=True):
                    self._assign(one, part)
                return
            items = self._items_of(value)
            if items and value not in self._seeds and max(items) < len(target.elts):
                for item in items:
                    self._add(target.elts[item], target)
                return
        if self.reaches(value) and not _is_update(target, value):
            self._add(target, target)

    def _items_of(self, value: ast.expr) -> set[int] | None:
        # Of a call of a function of the program, or one that is passed one: which items of its result.
        if not isinstance(value, ast.Call):
            return None
        names = [value.func, *value.args]
        functions = [function for one in names for function in (
            [one] if isinstance(one, ast.Lambda) else self.program.functions.get(name_of(one), ()))
            if function in self._returns]
        others = [one for one in value.args if not isinstance(one, (ast.Name, ast.Attribute, ast.Lambda))]
        if len(functions) != 1 or any(map(self.reaches, others)):
            return None
        return self._returns[functions[0]]

    def _pass(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                self._assign(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                if not isinstance(op, ast.Sub) and self.reaches(value):
                    self._add(target, target)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                self._go_over(target, value)
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                self._assign(target, value)
            case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
                function = next(self.program.around(node), None)
                if function is not None:
                    self._return(function, value)
            case ast.Lambda(body=value):
                self._return(node, value)
            case ast.Call():
                self._pass_arguments(node)

    def _go_over(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(value, ast.Call) and name_of(value.func) in ("zip", "enumerate") and isinstance(
                target, ast.Tuple) and not value.keywords:
            parts = value.args if name_of(value.func) == "zip" else [ast.Constant(0), *value.args]
            if len(parts) == len(target.elts):
                for one, part in zip(target.elts, parts, strict=True):
                    self._assign(one, part)
                return
        if self.reaches(value):
            self._add(target, target)

    def _return(self, function: Function, value: ast.expr) -> None:
        if isinstance(value, ast.Tuple) and not any(isinstance(one, ast.Starred) for one in value.elts):
            items = {i for i, one in enumerate(value.elts) if self.reaches(one)}
            before = self._returns.get(function, set())
            if items and before is not None:
                self._returns[function] = before | items
        elif self.reaches(value):
            self._returns[function] = None

    def _pass_arguments(self, call: ast.Call) -> None:
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not any(map(self.reaches, given)):
            return
        if isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPING and not any(
                _is_update(call.func.value, one) for one in given):
            self._add(call.func.value, call)
        for function in self.program.functions.get(name_of(call.func), ()):
            names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
            names = names[1:] if names[:1] == ["self"] else names
            for i, one in enumerate(call.args):
                if self.reaches(one):
                    whole = isinstance(one, ast.Starred) or i >= len(names)
                    self._keys |= {(function, name) for name in (
                        self.program.parameters(function) if whole else [names[i]])}
            for keyword in call.keywords:
                if self.reaches(keyword.value):
                    self._keys |= {(function, name) for name in (
                        self.program.parameters(function) if keyword.arg is None else [keyword.arg])}
        # A function that is passed to another may be called with what is passed beside it.
        for one in given:
            inner: Sequence[Function] = [one] if isinstance(one, ast.Lambda) else (
                self.program.functions.get(name_of(one), ()) if isinstance(one, (ast.Name, ast.Attribute)) else ())
            if inner and any(self.reaches(other) for other in given if other is not one):
                self._keys |= {(function, name) for function in inner for name in self.program.parameters(function)}


def _is_update(target: ast.AST, value: ast.expr) -> bool:
    # w.assign(w - rate * g), w = w - rate * g
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub) and ast.unparse(target) in {
        ast.unparse(node) for node in ast.walk(value.left) if isinstance(node, ast.expr)}
