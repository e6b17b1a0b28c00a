"""What the names of a program stand for, read from its text: what a call may call, and what is assigned to a name.

Two functions called `step` have nothing to do with each other: one may be nested in `train` and the other in `test`,
or be a method of another class.  So a name is looked up as Python does it, in the functions around it and then in the
file, and a code object is found by its place and its `co_qualname`.  Where Python decides while it runs, all that it
may be is taken: of an attribute of an unknown object the methods of that name, of a name that is bound several times
all of its functions, of a decorated function also those that its decorator is made of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Key = tuple[ast.AST | str | None, str]  # a function, a class or a namespace, or None for an attribute; and the name

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*FUNCTIONS, ast.ClassDef)
_NO_SCOPES = frozenset(("", "<module>", "<locals>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))


class Text(NamedTuple):
    """The text of a file, and the namespace of its global names, which all cells of a notebook have in common."""

    source: str
    namespace: str = ""


class Part(NamedTuple):
    """A part of a file, as `ast` has it: lines count from 1, columns from 0, in bytes.

    Attributes:
        function: `co_qualname` of the code object that it belongs to; "" where that is not known.
    """

    file: int
    function: str
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
        texts: of each.

    Raises:
        SyntaxError, ValueError: a text is not Python's.
    """

    def __init__(self, texts: Sequence[Text]) -> None:
        self.trees = [ast.parse(text.source) for text in texts]
        self._nodes = [[*ast.walk(tree)] for tree in self.trees]
        self._parents: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, ast.AST] = {}
        self._bound: dict[ast.AST, set[str]] = {}
        self._namespaces: dict[ast.AST, str] = dict(zip(self.trees, (text.namespace for text in texts), strict=True))
        self._called: dict[ast.AST, list[Function]] = {}
        for tree in self.trees:
            self._read(tree)
        # What a name stands for: definitions, what is assigned, and imports.
        self._meant: dict[Key, list[ast.AST]] = {}
        self._methods: dict[str, list[Function]] = {}
        self._classes: dict[str, list[ast.ClassDef]] = {}
        for node in self.nodes():
            self._define(node)
        # What is assigned to names and attributes, item by item.
        self.assigned: list[tuple[Key, ast.expr]] = [*self._assignments()]
        for key, value in self.assigned:
            self._meant.setdefault(key, []).append(value)

    def nodes(self) -> Iterator[ast.AST]:
        """The nodes of all files."""
        for nodes in self._nodes:
            yield from nodes

    def at(self, part: Part) -> ast.expr | None:
        """The expression that is this part of a file; None if there is none, or it belongs to another function."""
        for node in self._nodes[part.file]:
            if isinstance(node, ast.expr) and (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == (
                    part[2:]) and self._is_named(self._scopes[node], part.function):
                return node
        return None

    def function_at(self, part: Part) -> Function | None:
        """The innermost function around a part of a file, which need not be an expression."""
        around = [node for node in self._nodes[part.file] if isinstance(node, FUNCTIONS) and (
            (node.lineno, node.col_offset) <= (part.line, part.column or 0)
            and (part.end_line or part.line, part.end_column or 0) <= (node.end_lineno or 0, node.end_col_offset or 0))]
        return max(around, key=lambda node: (node.lineno, node.col_offset), default=None)

    def has(self, part: Part) -> bool:
        """Whether a part of a file is in the function that it is said to be in: otherwise another text runs."""
        inner = self.function_at(part)
        scopes = [self.trees[part.file], *(() if inner is None else (inner, *self.around(inner)))]
        return any(self._is_named(scope, part.function) for scope in scopes)

    def _is_named(self, scope: ast.AST, qualname: str) -> bool:
        # Comprehensions have code objects of their own, and are no scopes here.  The qualname of a function whose name
        # is declared `global` is that name alone, so only the innermost names are compared.
        names = [name for name in qualname.split(".") if name not in _NO_SCOPES]
        around: list[str] = []
        while isinstance(scope, _SCOPES):
            around.insert(0, getattr(scope, "name", "<lambda>"))
            scope = self._scopes[scope]
        return not qualname or (around[-len(names):] == names if names else not around)

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What a node is a part of."""
        return self._parents.get(node)

    def around(self, node: ast.AST) -> Iterator[Function]:
        """The functions around a node, innermost first; a decorator or a default is outside of its function."""
        while node in self._scopes and node is not self._scopes[node]:
            node = self._scopes[node]
            if isinstance(node, FUNCTIONS):
                yield node

    def parameters(self, function: Function) -> list[str]:
        """The names of a function's parameters."""
        arguments = function.args
        starred = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
        return [argument.arg for argument in (
            *arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *starred)]

    def positional(self, function: Function, call: ast.Call) -> list[str]:
        """The parameters that a call's positional arguments are passed for, in order; `self` is left out.

        The list is empty where `partial` has passed some of them before, because it is not known which.
        """
        if any(isinstance(value, ast.Call) and name_of(value.func) == "partial" for value in self.values(call.func)):
            return []
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        decorators = {name_of(decorator) for decorator in getattr(function, "decorator_list", ())}
        static = "staticmethod" in decorators
        by_class = isinstance(call.func, ast.Attribute) and self._of_class(call.func.value) is not None and (
            "classmethod" not in decorators)
        return names[1:] if isinstance(self._scopes[function], ast.ClassDef) and not static and not by_class else names

    def passed(self, function: Function, parameter: str) -> list[ast.expr] | None:
        """What calls of a function pass for a parameter; None where that is not known."""
        passed: list[ast.expr] = []
        for node in self.nodes():
            if isinstance(node, ast.Call) and function in self.called(node.func):
                by_name = dict(zip(self.positional(function, node), node.args, strict=False)) | {
                    keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
                if parameter not in by_name or any(isinstance(argument, ast.Starred) for argument in node.args):
                    return None
                passed.append(by_name[parameter])
            elif isinstance(node, (ast.Name, ast.Attribute)) and function in self.called(node) and not isinstance(
                    self._parents[node], (ast.Call, ast.Assign)):
                return None  # it is kept somewhere
            elif isinstance(node, ast.Call) and any(
                    function in self.called(argument) for argument in self.arguments(node)):
                return None  # it is passed to another, which may call it
        return passed or None

    def passes(self) -> Iterator[tuple[Key, ast.expr]]:
        """What all calls of the program's functions pass, and for which parameter."""
        for node in self.nodes():
            if isinstance(node, ast.Call):
                for function in self.called(node.func):
                    yield from (((function, name), value) for name, value in zip(
                        self.positional(function, node), node.args, strict=False))
                    yield from (((function, keyword.arg), keyword.value) for keyword in node.keywords
                                if keyword.arg is not None)

    def arguments(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of a call."""
        return [*call.args, *(keyword.value for keyword in call.keywords)]

    def key(self, name: str, node: ast.AST) -> Key:
        """The key of a name where a node stands: of the innermost function that binds it, or of the file."""
        scope = self._scopes[node]
        while isinstance(scope, _SCOPES):
            # The names of a class are not known in its methods.
            if name in self._bound[scope] and not (isinstance(scope, ast.ClassDef) and self._scopes[node] is not scope):
                return scope, name
            scope = self._scopes[scope]
        return self._namespaces[scope], name

    def key_of(self, node: ast.expr) -> Key | None:
        """The key of a name, or of an attribute, which all objects share; None for any other expression."""
        match node:
            case ast.Name(id=name):
                return self.key(name, node)
            case ast.Attribute(attr=attr):
                return None, attr
        return None

    def values(self, node: ast.expr) -> list[ast.expr]:
        """What is assigned to a name or an attribute anywhere."""
        key = self.key_of(node)
        return [] if key is None else [value for value in self._meant.get(key, ()) if isinstance(value, ast.expr)]

    # --- Functions ---

    def called(self, function: ast.expr) -> list[Function]:
        """The functions of the program that an expression may stand for."""
        if function not in self._called:
            self._called[function] = []  # ends the search in `step = jit(step)`
            self._called[function] = [*dict.fromkeys(self._functions(function))]
        return self._called[function]

    def is_known(self, function: ast.expr) -> bool:
        """Whether a name is bound to functions of the program alone, so that their text says what a call returns."""
        if not isinstance(function, ast.Name):
            return False
        owner, name = key = self.key(function.id, function)
        meant = self._meant.get(key, ())
        return bool(meant) and all(isinstance(node, FUNCTIONS) for node in meant) and not (
            isinstance(owner, FUNCTIONS) and name in self.parameters(owner))

    def decorating(self, function: Function) -> list[Function]:
        """The functions of the program that decorate a function, and the functions inside these."""
        decorators = [called for expression in getattr(function, "decorator_list", ())
                      for called in self.called(expression.func if isinstance(expression, ast.Call) else expression)]
        return [*decorators, *(node for decorator in decorators for node in ast.walk(decorator)
                               if isinstance(node, FUNCTIONS) and node is not decorator)]

    def _functions(self, function: ast.expr) -> Iterator[Function]:
        match function:
            case ast.Lambda():
                yield function
            case ast.Name(id=name):
                key = self.key(name, function)
                for meant in self._visible(self._meant.get(key, ()), function):
                    yield from self._functions_of(meant)
                if key not in self._meant and not isinstance(key[0], FUNCTIONS):  # from helpers import *
                    yield from self._of_modules(name)
            case ast.Attribute(value=value, attr=attr):
                yield from self._of_attribute(value, attr)
            case ast.Call(func=func, args=args):  # A()(x), partial(step, 1), jit(step)
                instantiated = self._of_class(func)
                if instantiated is not None:
                    yield from self._methods_of(instantiated, "__call__")
                for argument in args:
                    if isinstance(argument, (ast.Name, ast.Attribute, ast.Lambda)):
                        yield from self.called(argument)

    def _functions_of(self, meant: ast.AST) -> Iterator[Function]:
        match meant:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield meant
                yield from self.decorating(meant)
            case ast.ClassDef():
                yield from self._methods_of(meant, "__init__")
            case ast.alias(name=name):
                yield from self._of_modules(name)
            case ast.expr():
                yield from self.called(meant)

    def _of_attribute(self, value: ast.expr, attr: str) -> Iterator[Function]:
        kind = self._of_class(value) or self._of_object(value)
        methods = self._methods.get(attr, ()) if kind is None else [*self._methods_of(kind, attr)]
        yield from methods
        for method in methods:
            yield from self.decorating(method)
        if not methods or kind is None:
            for assigned in self._meant.get((None, attr), ()):
                if isinstance(assigned, (ast.Name, ast.Lambda, ast.Call)):
                    yield from self.called(assigned)
            if isinstance(value, ast.Name) and any(
                    isinstance(meant, ast.alias) for meant in self._meant.get(self.key(value.id, value), ())):
                yield from self._of_modules(attr)

    def _of_modules(self, name: str) -> Iterator[Function]:
        # What a file may import under this name from another.
        for tree in self.trees:
            for meant in self._meant.get((self._namespaces[tree], name), ()):
                if not isinstance(meant, ast.alias):
                    yield from self._functions_of(meant)

    def _of_class(self, node: ast.expr) -> ast.ClassDef | None:
        # The class that a name stands for; None where it may stand for anything else.
        meant = self._meant.get(self.key(node.id, node), ()) if isinstance(node, ast.Name) else ()
        return meant[0] if len(meant) == 1 and isinstance(meant[0], ast.ClassDef) else None

    def _of_object(self, node: ast.expr) -> ast.ClassDef | None:
        # The class of `self`, of `A()`, and of a name to which only such calls are assigned.
        if isinstance(node, ast.Call):
            return self._of_class(node.func)
        if not isinstance(node, ast.Name):
            return None
        owner, name = self.key(node.id, node)
        if isinstance(owner, FUNCTIONS) and isinstance(self._scopes[owner], ast.ClassDef) and (
                self.parameters(owner)[:1] == [name] and not self._meant.get((owner, name))):
            kind = self._scopes[owner]
            assert isinstance(kind, ast.ClassDef)
            return kind
        kinds = [self._of_class(assigned.func) if isinstance(assigned, ast.Call) else None
                 for assigned in self._meant.get((owner, name), ())]
        bound = isinstance(owner, FUNCTIONS) and name in self.parameters(owner)
        return kinds[0] if len({*kinds}) == 1 and not bound else None

    def _methods_of(self, kind: ast.ClassDef, name: str) -> Iterator[Function]:
        # Of the class, of those that it is derived from, and of those that are derived from it.
        for relative in self._family(kind):
            yield from (method for method in self._methods.get(name, ()) if self._scopes[method] is relative)

    def _family(self, kind: ast.ClassDef) -> list[ast.ClassDef]:
        family = [kind]
        for member in family:
            above = [other for base in member.bases for other in self._classes.get(name_of(base), ())]
            below = [other for others in self._classes.values() for other in others
                     if any(name_of(base) == member.name for base in other.bases)]
            family += [other for other in (*above, *below) if other not in family]
        return family

    def _visible(self, meant: Sequence[ast.AST], use: ast.expr) -> Sequence[ast.AST]:
        # Where one block defines a name several times, as functions, and uses it: the last definition before the use.
        scope = self._scopes[use]
        body = getattr(scope, "body", ())
        if len(meant) < 2 or not isinstance(body, list) or not all(
                isinstance(node, _NAMED) and self._scopes[node] is scope and node in body for node in meant):
            return meant
        statement: ast.AST = use
        while self._parents[statement] is not scope:
            statement = self._parents[statement]
        before = [node for node in meant if body.index(node) < body.index(statement)] if statement in body else []
        return before[-1:] or meant

    # --- Reading ---

    def _read(self, tree: ast.Module) -> None:
        waiting: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
        while waiting:
            node, scope = waiting.pop()
            self._scopes[node] = scope
            inside: Sequence[ast.AST] = ()
            if isinstance(node, _SCOPES):
                inside = [node.body] if isinstance(node, ast.Lambda) else node.body
                self._bound[node] = {*self.parameters(node)} if isinstance(node, FUNCTIONS) else set()
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
                waiting.append((child, node if child in inside else scope))
        elsewhere: dict[ast.AST, set[str]] = {}
        for node, scope in self._scopes.items():
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                elsewhere.setdefault(scope, set()).update(node.names)
            elif scope in self._bound:
                self._bound[scope] |= {*_names_bound(node)}
        for scope, names in elsewhere.items():
            if scope in self._bound:
                self._bound[scope] -= names

    def _define(self, node: ast.AST) -> None:
        for name in _names_bound(node) if isinstance(node, (*_NAMED, ast.ClassDef)) else ():
            self._meant.setdefault(self.key(name, node), []).append(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for imported in node.names:
                name = imported.asname or imported.name.partition(".")[0]
                self._meant.setdefault(self.key(name, node), []).append(imported)
        if isinstance(node, _NAMED) and isinstance(self._scopes[node], ast.ClassDef):
            self._methods.setdefault(node.name, []).append(node)
        if isinstance(node, ast.ClassDef):
            self._classes.setdefault(node.name, []).append(node)

    def _assignments(self) -> Iterator[tuple[Key, ast.expr]]:
        for node in self.nodes():
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    yield from self._assignment(target, node.value)
            elif isinstance(node, ast.Match):
                yield from self.captures(node)
            elif isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg is not None:  # which may be an attribute, as of a dataclass
                        yield (None, keyword.arg), keyword.value

    def _assignment(self, target: ast.expr, value: ast.expr) -> Iterator[tuple[Key, ast.expr]]:
        if isinstance(target, (ast.Tuple, ast.List)):
            values: Sequence[ast.expr] = [
                ast.Subscript(value, ast.Constant(i), ast.Load()) for i in range(len(target.elts))]
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                values = value.elts
            for part, item in zip(target.elts, values, strict=True):
                yield from self._assignment(part, item)
        elif (key := self.key_of(target)) is not None:
            yield key, value


    def captures(self, node: ast.Match) -> Iterator[tuple[Key, ast.expr]]:
        """What the patterns of a `match` statement assign to their names."""
        for case in node.cases:
            yield from self._captures(case.pattern, node.subject)

    def _captures(self, pattern: ast.pattern, value: ast.expr) -> Iterator[tuple[Key, ast.expr]]:
        match pattern:
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)) | ast.MatchAs(name=str(name)):
                yield self.key(name, pattern), value
        match pattern:
            case ast.MatchAs(pattern=ast.pattern() as inner):
                yield from self._captures(inner, value)
            case ast.MatchOr(patterns=patterns):
                for inner in patterns:
                    yield from self._captures(inner, value)
            case ast.MatchSequence(patterns=patterns):
                same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(patterns) and not any(
                    isinstance(inner, ast.MatchStar) for inner in patterns)
                for i, inner in enumerate(patterns):
                    item = value.elts[i] if same and isinstance(value, (ast.Tuple, ast.List)) else ast.Subscript(
                        value, ast.Constant(i), ast.Load())
                    yield from self._captures(inner, item)
            case ast.MatchMapping(keys=keys, patterns=patterns):
                for key, inner in zip(keys, patterns, strict=True):
                    yield from self._captures(inner, ast.Subscript(value, key, ast.Load()))
            case ast.MatchClass(patterns=patterns, kwd_attrs=attributes, kwd_patterns=named):
                for inner in patterns:
                    yield from self._captures(inner, value)
                for attribute, inner in zip(attributes, named, strict=True):
                    yield from self._captures(inner, ast.Attribute(value, attribute, ast.Load()))


def _names_bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (imported.asname or imported.name.partition(".")[0] for imported in names)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | (
                ast.MatchMapping(rest=str(name))):
            yield name
