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
from collections.abc import Iterable, Sequence
from itertools import pairwise

from refdist.core.bindings import Function, Key, Program, name_of

# Methods that keep what they are passed in their object.
_KEEPING = frozenset((
    "append", "extend", "add", "insert", "update", "update_state", "setdefault", "put", "write", "assign", "assign_add",
    "scatter_add", "copy_", "add_", "fill_"))
# What is said of a value without being it.
_ABOUT = frozenset(("shape", "dtype", "ndim", "size", "device"))
_TELLING = frozenset(("len", "print", "type", "isinstance", "repr", "str", "format"))


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
                return self.program.key(name, node) in self._keys or self._returns_from(node)
            case ast.Attribute(value=value, attr=attr):
                if attr in _ABOUT:
                    return False
                return (None, attr) in self._keys or self.reaches(value) or self._returns_from(node)
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

    def returns(self, function: Function | None) -> bool:
        """Whether a function may return what is computed of the seeds'."""
        return function in self._returns

    def _call_reaches(self, func: ast.expr, args: Sequence[ast.expr]) -> bool:
        if self._returns_from(func):
            return True
        if self.program.is_known(func) or name_of(func) in _TELLING:
            return False
        return self.reaches(func) or any(map(self.reaches, args))

    def _returns_from(self, function: ast.expr) -> bool:
        return any(called in self._returns for called in self.program.called(function))

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
                for element in elts:
                    self._add(element, node)
            case ast.Call(func=ast.Attribute(value=value)):  # d.setdefault("loss", []).append(...)
                self._add(value, node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for element, part in zip(target.elts, value.elts, strict=True):
                    self._assign(element, part)
                return
            items = self._items_of(value)
            if items and value not in self._seeds and max(items) < len(target.elts):
                for item in items:
                    self._add(target.elts[item], target)
                return
        if self.reaches(value) and not _is_update(target, value):
            self._add(target, target)

    def _items_of(self, value: ast.expr) -> set[int] | None:
        # Of a call of a function of the program, or a call that is passed such a function: which items of its result.
        if not isinstance(value, ast.Call):
            return None
        functions = {function for expression in (value.func, *value.args)
                     for function in self.program.called(expression) if function in self._returns}
        others = [argument for argument in value.args
                  if not isinstance(argument, (ast.Name, ast.Attribute, ast.Lambda))]
        if len(functions) != 1 or any(map(self.reaches, others)):
            return None
        return self._returns[functions.pop()]

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
            case ast.Match():
                self._keys |= {key for key, value in self.program.captures(node) if self.reaches(value)}
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                self._assign(target, value)
            case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
                function = next(self.program.around(node), None)
                if function is not None:
                    self._return(function, value)
            case ast.Lambda(body=value):
                self._return(node, value)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node in self._returns:  # what decorates it may call it
                self._keys |= {(function, name) for function in self.program.decorating(node)
                               for name in self.program.parameters(function)}
            case ast.Call():
                self._pass_arguments(node)

    def _go_over(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(value, ast.Call) and name_of(value.func) in ("zip", "enumerate") and isinstance(
                target, ast.Tuple) and not value.keywords:
            parts = value.args if name_of(value.func) == "zip" else [ast.Constant(0), *value.args]
            if len(parts) == len(target.elts):
                for element, part in zip(target.elts, parts, strict=True):
                    self._assign(element, part)
                return
        if self.reaches(value):
            self._add(target, target)

    def _return(self, function: Function, value: ast.expr) -> None:
        if isinstance(value, ast.Tuple) and not any(isinstance(element, ast.Starred) for element in value.elts):
            items = {i for i, element in enumerate(value.elts) if self.reaches(element)}
            before = self._returns.get(function, set())
            if items and before is not None:
                self._returns[function] = before | items
        elif self.reaches(value):
            self._returns[function] = None

    def _pass_arguments(self, call: ast.Call) -> None:
        arguments = self.program.arguments(call)
        if not any(map(self.reaches, arguments)):
            return
        if isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPING and not any(
                _is_update(call.func.value, argument) for argument in arguments):
            self._add(call.func.value, call)
        for function in self.program.called(call.func):
            names = self.program.positional(function, call)
            for i, argument in enumerate(call.args):
                if self.reaches(argument):
                    whole = isinstance(argument, ast.Starred) or i >= len(names)
                    self._keys |= {(function, name) for name in (
                        self.program.parameters(function) if whole else [names[i]])}
            for keyword in call.keywords:
                if self.reaches(keyword.value):
                    self._keys |= {(function, name) for name in (
                        self.program.parameters(function) if keyword.arg is None else [keyword.arg])}
        # A function that is passed to another may be called with what is passed beside it.
        for argument in arguments:
            inner = self.program.called(argument)
            if inner and any(self.reaches(other) for other in arguments if other is not argument):
                self._keys |= {(function, name) for function in inner for name in self.program.parameters(function)}


def _is_update(target: ast.AST, value: ast.expr) -> bool:
    # w.assign(w - rate * g), w = w - rate * g
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub) and ast.unparse(target) in {
        ast.unparse(node) for node in ast.walk(value.left) if isinstance(node, ast.expr)}
