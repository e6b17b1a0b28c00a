"""Whether a program divides or multiplies what it reduces by the number of replicas: read from its text.

A sum of means that is divided by the number of replicas later is right, and what happens later is not known when it is
made.  So the check `types` says nothing of a sum where the text divides by that number what the sum may have become, or
a factor that may have met it, such as the learning rate.  A division of anything else tells nothing of the sum.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from refdist import notebook
from refdist.core import call_site
from refdist.core.bindings import FUNCTIONS, Key, Part, Program, Text, name_of
from refdist.core.flow import Flow

_COUNTS = re.compile(r"_*(n|num|number_of|count|total)?_*(replica|worker|device|gpu|rank)s?(_in_sync|_count)?"
                     r"|world_?size", re.IGNORECASE)
DIVIDING = frozenset(("divide", "true_divide", "truediv", "div"))  # functions and methods that divide
_SIZES = re.compile(r"batch|step|epoch|row|sample|example|size|len\(|buffer|warmup", re.IGNORECASE)
_RATES = re.compile(r"lr|rate|loss|scale|weight|grad|factor", re.IGNORECASE)
_ONE = frozenset(("replica", "worker", "device", "gpu", "rank"))
_TELLING = frozenset(("print", "info", "format", "write"))
_CONVERTING = {"float", "int", "float16", "float32", "float64", "asarray", "array", "constant"}


def unread(files: Iterable[str], site: call_site.Site) -> str:
    """The first file that may divide what was reduced, whose text is not known or not what runs; "" if there is none.

    A file whose functions only called those that reduce is left out, unless what was reduced is returned to it.

    Args:
        files, site: as for `by_replicas`.
    """
    own = [*takewhile(lambda place: not place.file.startswith(call_site.INSTALLED), site)]
    names = [file for file in dict.fromkeys([*(place.file for place in own), *sorted(files)])
             if not file.startswith(call_site.INSTALLED)]
    parts = tuple(Part(names.index(place.file), *place[1:]) for place in own)
    at = _unread(tuple(map(text_of, names)), parts)
    return "" if at is None else names[at]


@functools.lru_cache(maxsize=64)
def _unread(texts: Sequence[Text], parts: Sequence[Part]) -> int | None:
    unknown = [file for file, text in enumerate(texts)
               if not _has(text, tuple(part for part in parts if part.file == file))]
    callers = {part.file for part in parts[1:]} - {part.file for part in parts[:1]}
    program = Program([Text("") if file in unknown else text for file, text in enumerate(texts)])
    calls = [program.at(part) for part in parts]
    flow = Flow(program, [call for call in calls[:1] if call is not None], [call for call in calls if call is not None])
    returned = [outer.file for call, outer in zip(calls, parts[1:], strict=False)
                if call is not None and flow.returns(next(program.around(call), None))]
    return next((file for file in unknown if file not in callers or file in returned), None)


def _has(text: Text, parts: Sequence[Part]) -> bool:
    try:
        return bool(text.source) and all(part.column is None or _of_one(text).has(part._replace(file=0))
                                         for part in parts)
    except (SyntaxError, ValueError):
        return False


def by_replicas(files: Iterable[str], site: call_site.Site, count: int, multiplied: bool) -> bool:
    """Whether what was reduced at a place may be divided by the number of replicas, before or afterwards.

    Args:
        files: names, or those of a notebook's cells, where it may be; Python's and those of installed packages are left
            out.
        site: where it is reduced, and what led there.
        count: how many replicas there are.
        multiplied: whether to multiply by it counts, too.
    """
    names = [file for file in dict.fromkeys([*(place.file for place in site), *sorted(files)])
             if not file.startswith(call_site.INSTALLED)]
    parts = tuple(Part(names.index(place.file), *place[1:]) for place in site if place.file in names)
    return bool(names) and _scales(tuple(map(text_of, names)), parts, count, multiplied)


def text_of(file: str) -> Text:
    """The text of a file, or of a cell of a notebook."""
    return Text("".join(linecache.getlines(file)), "cells" if notebook.is_cell(file) else file)


@functools.lru_cache(maxsize=64)
def _scales(texts: Sequence[Text], parts: Sequence[Part], count: int, multiplied: bool) -> bool:
    try:
        program = Program(texts)
    except (SyntaxError, ValueError):
        return True  # nothing is known
    outwards = [call for part in parts if (call := program.at(part)) is not None]
    if not parts or not outwards or outwards[0] is not program.at(parts[0]):
        return True
    counts = _Counts(program, count)
    reduced = Flow(program, outwards[:1], outwards)
    if any(reduced.reaches(left) and counts.may_be(right) for left, right in _quotients(program.nodes())):
        return True
    products = list(_products(program.nodes()))
    if multiplied and any(reduced.reaches(left) and counts.is_computed(right) for left, right in products):
        return True
    together = list(_together(program))
    if any(any(map(reduced.reaches, values)) and any(map(counts.is_named, values)) for values in together):
        return True  # `averaged(total, replicas)`, of a function elsewhere
    # What is divided by it elsewhere, such as a learning rate, may meet the result, or be in what is reduced.
    shares = list(_shares(program, counts, reduced, multiplied))
    if any(isinstance(share, (ast.Attribute, ast.Subscript)) for share in shares):
        return True  # it belongs to an object of which nothing is known
    scaled = Flow(program, shares)
    return bool(shares) and (
        any(map(scaled.reaches, _arguments(outwards[0])))
        or any((reduced.reaches(left) and scaled.reaches(right)) or (reduced.reaches(right) and scaled.reaches(left))
               for left, right in (*_quotients(program.nodes()), *products))
        or any(any(map(reduced.reaches, values)) and any(map(scaled.reaches, values)) for values in together)
        or any(name_of(node.func) == "step" and scaled.reaches(node.func) for node in program.nodes()
               if isinstance(node, ast.Call)))


def _shares(program: Program, counts: _Counts, reduced: Flow, multiplied: bool) -> Iterator[ast.expr]:
    # What is divided by the number of replicas, and is neither what was reduced nor a number of rows or steps.
    for node in program.nodes():
        if isinstance(node, ast.BinOp) and not reduced.reaches(node.left) and not _is_of_a_size(
                node, program.parent(node)):
            if isinstance(node.op, ast.Div):
                if counts.may_be(node.right):
                    yield node
            elif multiplied and isinstance(node.op, ast.Mult) and any(
                    counts.is_computed(factor) and not isinstance(other, ast.Constant)
                    for factor, other in ((node.left, node.right), (node.right, node.left))):
                yield node
        elif isinstance(node, ast.AugAssign) and not reduced.reaches(node.target) and (
                (isinstance(node.op, ast.Div) and counts.may_be(node.value))
                or (multiplied and isinstance(node.op, ast.Mult) and counts.is_computed(node.value))):
            yield node.target


def _arguments(call: ast.expr) -> Iterator[ast.expr]:
    if isinstance(call, ast.Call):
        yield from call.args
        yield from (keyword.value for keyword in call.keywords)


def _together(program: Program) -> Iterator[list[ast.expr]]:
    # Of each call its arguments, and the object whose method it calls.
    for node in program.nodes():
        if isinstance(node, ast.Call) and name_of(node.func) not in _TELLING:
            yield [*_arguments(node), *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]


def _is_of_a_size(node: ast.BinOp, parent: ast.AST | None) -> bool:
    # Whether it is a number of rows or steps that is shared out.
    texts = [ast.unparse(node.left), *([ast.unparse(node.right)] if isinstance(node.op, ast.Mult) else []),
             *(map(ast.unparse, parent.targets) if isinstance(parent, ast.Assign) else [])]
    return any(map(_SIZES.search, texts)) and not any(map(_RATES.search, texts))


class _Counts:
    # Which expressions may be the number of replicas.

    def __init__(self, program: Program, count: int) -> None:
        self._program = program
        self._count = count
        # `mean, one = replica.all_reduce("SUM", [x.mean(), 1.0])`
        self._keys: set[Key | None] = {key for key, value in program.assigned if _counts(value)}
        named = [*program.assigned, *program.passes()]
        before = -1
        while len(self._keys) > before:
            before = len(self._keys)
            self._keys |= {key for key, value in named if self.is_computed(value)}

    def may_be(self, expression: ast.expr) -> bool:
        """Whether it may be; of a function's parameter nothing is known."""
        if self.is_computed(expression) or _counts(expression):
            return True
        if not isinstance(expression, ast.Name):
            return False
        function, name = self._program.key(expression.id, expression)
        if not isinstance(function, FUNCTIONS) or name not in self._program.parameters(function):
            return False
        passed = self._program.passed(function, name)
        return passed is None or any(
            self.is_computed(value) or not isinstance(value, (ast.Constant, ast.BinOp, ast.Call)) for value in passed)

    def is_named(self, expression: ast.expr) -> bool:
        """Whether its text says that it is."""
        return (isinstance(expression, (ast.Name, ast.Attribute)) and self.is_computed(expression)
                and name_of(expression) not in _ONE)

    def is_computed(self, expression: ast.expr) -> bool:
        """Whether it is, or is computed from, a name or number that may be it."""
        return any((isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == self._count)
                   or (isinstance(node, (ast.Name, ast.Attribute)) and (
                       self._program.key_of(node) in self._keys or _COUNTS.fullmatch(name_of(node)) is not None))
                   for node in _numeric(expression))


def _counts(value: ast.expr) -> bool:
    # Whether it is a sum of ones over the replicas.
    if isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Call) and name_of(value.func) in ("all_reduce", "reduce") and any(
        isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == 1
        for argument in value.args[1:] for node in ast.walk(argument))


def _numeric(expression: ast.expr) -> Iterator[ast.expr]:
    # What the value of an arithmetic expression is computed from; not the arguments of a method, or an index.
    yield expression
    if isinstance(expression, ast.BinOp):
        yield from _numeric(expression.left)
        yield from _numeric(expression.right)
    elif isinstance(expression, ast.UnaryOp):
        yield from _numeric(expression.operand)
    elif isinstance(expression, ast.Call) and len(expression.args) == 1 and name_of(expression.func) in _CONVERTING:
        yield from _numeric(expression.args[0])


def _quotients(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    # What is divided, and by what.
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.left, node.right
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            yield node.target, node.value
        elif isinstance(node, ast.Call) and name_of(node.func).rstrip("_") in DIVIDING:
            if len(node.args) > 1:
                yield node.args[0], node.args[1]
            elif node.args and isinstance(node.func, ast.Attribute):
                yield node.func.value, node.args[0]


def _products(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    # Both ways round.
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield node.left, node.right
            yield node.right, node.left
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult):
            yield node.target, node.value
        elif isinstance(node, ast.Call) and name_of(node.func).rstrip("_") in ("multiply", "mul"):
            yield from zip(node.args[:1], node.args[1:], strict=False)
            if len(node.args) == 1 and isinstance(node.func, ast.Attribute):
                yield node.func.value, node.args[0]


def multiplied_by_replicas(file: str, line: int, call: str) -> int | None:
    """The line on which what a call is given, or a factor of it, is multiplied by the number of replicas.

    A number of rows or steps does not count: what is divided by it is not multiplied.

    Args:
        file, line: where the call is.
        call: the name of what is called.

    Returns:
        None where the text has no such product, or it does not come to the call.
    """
    return _multiplication(text_of(file), line, call)


@functools.lru_cache(maxsize=64)
def _multiplication(text: Text, line: int, call: str) -> int | None:
    try:
        program = _of_one(text)
    except (SyntaxError, ValueError):
        return None
    given = [argument for node in program.nodes() if isinstance(node, ast.Call) and name_of(node.func) == call
             and node.lineno <= line <= (node.end_lineno or 0) for argument in _arguments(node)]
    counts = _Counts(program, 0)
    for node in program.nodes() if given else ():
        match node:
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                product: ast.expr = node
                factors = [(left, right), (right, left)]
                size = _is_of_a_size(node, program.parent(node))
            case ast.AugAssign(target=product, op=ast.Mult(), value=value):
                factors, size = [(product, value)], False
            case _:
                continue
        if not size and any(counts.is_named(by) and _is_a_factor(other, program.parent(product))
                            for other, by in factors) and any(map(Flow(program, [product]).reaches, given)):
            return product.lineno
    return None


def _is_a_factor(node: ast.expr, parent: ast.AST | None) -> bool:
    # Whether its text, or that of what is assigned, says that it scales a gradient: `0.1 * n`, `rate * n`.
    if any(isinstance(part, ast.Constant) and isinstance(part.value, float) for part in ast.walk(node)):
        return True
    targets: Iterable[str] = map(ast.unparse, parent.targets) if isinstance(parent, ast.Assign) else ()
    return any(map(_RATES.search, (ast.unparse(node), *targets)))


def is_by_length(place: call_site.Place) -> bool:
    """Whether the expression at a place divides by a length: `x / len(y)`, `x / y.shape[0]`, or a name for one."""
    return place.column is not None and _is_by(text_of(place.file), Part(0, *place[1:]), _is_length)


def is_by_size(place: call_site.Place) -> bool:
    """Whether the expression at a place divides by how many items an array has: `x / y.size`, or a name for that."""
    return place.column is not None and _is_by(text_of(place.file), Part(0, *place[1:]), _is_size)


@functools.lru_cache(maxsize=16)
def _of_one(text: Text) -> Program:
    return Program([text])


@functools.lru_cache(maxsize=256)
def _is_by(text: Text, part: Part, is_wanted: Callable[[ast.expr, Program], bool]) -> bool:
    try:
        program = _of_one(text)
    except (SyntaxError, ValueError):
        return False
    node = program.at(part)
    return node is not None and any(is_wanted(divisor, program) for _, divisor in _quotients([node]))


def _is_size(node: ast.expr, program: Program) -> bool:
    match node:
        case ast.Name():
            values = program.values(node)
            return bool(values) and all(not isinstance(value, ast.Name) and _is_size(value, program)
                                        for value in values)
        case ast.Call(func=function, args=[converted]):
            return name_of(function) in _CONVERTING and _is_size(converted, program)
        case ast.Attribute(attr="size") | ast.Call(func=ast.Attribute(attr="numel"), args=[]):
            return True
    return False


def is_share(place: call_site.Place, rows: int, number: float, *names: Mapping[str, object]) -> bool:
    """Whether a factor at a place is one over a number of rows, times something: `2 / n * g`, `lr / len(x) * g`.

    Args:
        place: of the product.
        rows: how many there are.
        number: the factor.
        names: what the names are there, in order.
    """
    if place.column is None or place.file.startswith(call_site.INSTALLED):
        return False
    quotients = _shares_by_length(text_of(place.file), Part(0, *place[1:]))
    return any(_is_near(number * rows, divided) if divided is not None else _number_of(divisor, names) == rows
               for divided, divisor in quotients)


@functools.lru_cache(maxsize=256)
def _shares_by_length(text: Text, part: Part) -> Sequence[tuple[float | None, ast.expr]]:
    # The factors of a product that divide by a length: the number that is divided, None where it is not known, and the
    # divisor.
    try:
        program = _of_one(text)
    except (SyntaxError, ValueError):
        return ()
    node = program.at(part)
    factors = [] if node is None else [factor for product in _products([node]) for factor in product]
    assigned = [value for factor in factors if isinstance(factor, ast.Name) for value in program.values(factor)]
    return [(_number_of(divided, ()), divisor)
            for divided, divisor in _quotients([*factors, *assigned])
            if _is_length(divisor, program) and not _is_length(divided, program)]


def _is_near(number: float, other: float) -> bool:
    return abs(number - other) <= 1e-5 * abs(other)


def _number_of(node: ast.expr, names: Sequence[Mapping[str, object]]) -> float | None:
    # A number, or what a name or the length of what has a name is; None for anything else.
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _number_of(operand, names)
            return None if number is None else -number
        case ast.Name():
            known = _called(node, names)
            return float(known) if isinstance(known, (int, float)) else None
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name() as argument]) | ast.Subscript(
                value=ast.Attribute(value=ast.Name() as argument, attr="shape"), slice=ast.Constant(value=0)):
            shape = getattr(_called(argument, names), "shape", ())
            return float(shape[0]) if shape else None
        case ast.Call(func=function, args=[argument]) if name_of(function) in _CONVERTING:
            return _number_of(argument, names)
    return None


def _called(name: ast.Name, names: Sequence[Mapping[str, object]]) -> object:
    return next((known[name.id] for known in names if name.id in known), None)


def is_by_replicas(place: call_site.Place, count: int) -> bool:
    """Whether the expression at a place may divide by the number of replicas; not where it says that it is a batch."""
    return place.column is None or place.file.startswith(call_site.INSTALLED) or _is_by_replicas(
        text_of(place.file), Part(0, *place[1:]), count)


@functools.lru_cache(maxsize=256)
def _is_by_replicas(text: Text, part: Part, count: int) -> bool:
    try:
        program = _of_one(text)
    except (SyntaxError, ValueError):
        return True  # nothing is known
    node = program.at(part)
    divisors = [] if node is None else [divisor for _, divisor in _quotients([node])]
    return not divisors or not all(_is_another_number(divisor, program, count) for divisor in divisors)


def _is_another_number(node: ast.expr, program: Program, count: int) -> bool:
    # Whether it is certain not to be this count: a number that is written there, or where its name is, or a batch.
    match node:
        case ast.Constant(value=value):
            return value != count
        case ast.Call(func=function, args=[converted]):
            return name_of(function) in _CONVERTING and _is_another_number(converted, program, count)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            values = program.values(node)
            return "batch" in name.lower() or (bool(values) and all(
                isinstance(value, ast.Constant) and value.value != count for value in values))
    return False


def multiplies_by_length(place: call_site.Place) -> bool:
    """Whether the expression at a place multiplies by a length, or by what has one as a factor: `len(x) / rows * p`."""
    return place.column is not None and not place.file.startswith(call_site.INSTALLED) and _multiplies_by_length(
        text_of(place.file), Part(0, *place[1:]))


@functools.lru_cache(maxsize=256)
def _multiplies_by_length(text: Text, part: Part) -> bool:
    try:
        program = _of_one(text)
    except (SyntaxError, ValueError):
        return False
    node = program.at(part)
    factors = [] if node is None else [factor for product in _products([node]) for factor in product]
    seen: set[ast.expr] = set()  # ends the search in `share = share * 2`
    while factors:
        factor = factors.pop()
        if factor in seen:
            continue
        seen.add(factor)
        if _is_length(factor, program):
            return True
        match factor:
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                factors += [left, right]
            case ast.BinOp(left=left, op=ast.Div()):
                factors.append(left)
            case ast.Call(func=function, args=[converted]) if name_of(function) in _CONVERTING:
                factors.append(converted)
            case ast.Name():
                factors += program.values(factor) or _passed(factor, program)
    return False


def divides_by_length(place: call_site.Place) -> bool:
    """Whether the innermost function around a place divides by a length anywhere."""
    return not place.file.startswith(call_site.INSTALLED) and _divides_by_length(
        text_of(place.file), Part(0, *place[1:]))


@functools.lru_cache(maxsize=64)
def _divides_by_length(text: Text, part: Part) -> bool:
    try:
        program = _of_one(text)
    except (SyntaxError, ValueError):
        return True  # nothing is known
    inner = program.function_at(part)
    return inner is not None and any(_is_length(divisor, program) for _, divisor in _quotients(ast.walk(inner)))


def _is_length(node: ast.expr, program: Program) -> bool:
    match node:
        case ast.Name():
            assigned = program.values(node) or _passed(node, program)
            return bool(assigned) and all(not isinstance(value, ast.Name) and _is_length(value, program)
                                          for value in assigned)
        case ast.Call(func=ast.Name(id="len"), args=[_]) | ast.Call(func=ast.Attribute(attr="numel"), args=[]):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=0)]):
            return True
        case ast.Call(func=ast.Name(id="max") | ast.Attribute(attr="maximum"), args=[first, second]):
            return (isinstance(second, ast.Constant) and _is_length(first, program)) or (
                isinstance(first, ast.Constant) and _is_length(second, program))
        case ast.Call(func=function, args=[converted]):
            return name_of(function) in _CONVERTING and _is_length(converted, program)
        case ast.Subscript(value=ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="size" | "shape")),
                           slice=ast.Constant(value=0)):
            return True
        case ast.Attribute(attr="size"):
            return True
    return False


def _passed(name: ast.Name, program: Program) -> list[ast.expr]:
    # What calls pass for a name that is a parameter of a function around it; nothing where that is not known.
    function, text = program.key(name.id, name)
    if not isinstance(function, FUNCTIONS) or text not in program.parameters(function):
        return []
    return program.passed(function, text) or []
