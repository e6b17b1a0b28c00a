"""Whether a program divides or multiplies by the number of replicas somewhere: read from its text.

A sum of means that is divided by the number of replicas later is right, and what happens later is not known when it is
made.  So the check `types` says nothing about a factor of that number in a file that has it.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
import sysconfig
from collections.abc import Iterable, Iterator

_COUNTS = re.compile(r"_*(n|num|number_of|count|total)?_*(replica|worker|device|gpu|rank)s?(_in_sync|_count)?"
                     r"|world_?size", re.IGNORECASE)
_DIVIDING = {"divide", "true_divide", "truediv", "div"}
# The folders of Python and of installed packages, which are no part of the program.
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_CONVERTING = {"float", "int", "float16", "float32", "float64", "asarray", "array", "constant"}


def by_replicas(files: Iterable[str], count: int, multiplied: bool) -> bool:
    """Whether one of the files divides by what may be the number of replicas.

    Args:
        files: names, or those of a notebook's cells; Python's and those of installed packages are left out.
        count: how many replicas there are.
        multiplied: whether to multiply by it counts, too.
    """
    return any(_scales("".join(linecache.getlines(file)), count, multiplied) for file in files
               if not file.startswith(INSTALLED))


@functools.lru_cache(maxsize=64)
def _scales(source: str, count: int, multiplied: bool) -> bool:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return True  # nothing is known
    counts = _names_of_counts(tree, count)
    return any(_is_count(divisor, counts, count) for divisor in _divisors(tree)) or (multiplied and any(
        _is_count(factor, counts, count) for factor in _factors(tree))) or _divides_by_argument(tree, frozenset())


def _divides_by_argument(tree: ast.AST, arguments: frozenset[str]) -> bool:
    # Whether a function divides by a number that it is passed, of which nothing is known.
    for node in ast.iter_child_nodes(tree):
        inner = arguments
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            inner |= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        divisor = (node.right if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) else
                   node.value if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) else None)
        if (isinstance(divisor, ast.Name) and divisor.id in arguments) or _divides_by_argument(node, inner):
            return True
    return False


def _names_of_counts(tree: ast.AST, count: int) -> frozenset[str]:
    names: set[str] = set()
    assigned = [(target.id, node.value) for node in ast.walk(tree)
                if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None
                for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                if isinstance(target, ast.Name)]
    before = -1
    while len(names) > before:
        before = len(names)
        names |= {name for name, value in assigned if _is_count(value, frozenset(names), count)}
    return frozenset(names)


def _is_count(expression: ast.expr, names: frozenset[str], count: int) -> bool:
    # Whether it is, or is computed from, what may be the number of replicas.
    return any((isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == count)
               or (isinstance(node, ast.Name) and (node.id in names or _COUNTS.fullmatch(node.id) is not None))
               or (isinstance(node, ast.Attribute) and _COUNTS.fullmatch(node.attr) is not None)
               for node in _numeric(expression))


def _numeric(expression: ast.expr) -> Iterator[ast.expr]:
    # What the value of an arithmetic expression is computed from; not the arguments of a method, or an index.
    yield expression
    if isinstance(expression, ast.BinOp):
        yield from _numeric(expression.left)
        yield from _numeric(expression.right)
    elif isinstance(expression, ast.UnaryOp):
        yield from _numeric(expression.operand)
    elif isinstance(expression, ast.Call) and len(expression.args) == 1 and _name_of(expression.func) in _CONVERTING:
        yield from _numeric(expression.args[0])


def _name_of(function: ast.expr) -> str:
    return str(getattr(function, "attr", None) or getattr(function, "id", ""))


def _divisors(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.right
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            yield node.value
        elif isinstance(node, ast.Call) and len(node.args) > 1 and _name_of(node.func) in _DIVIDING:
            yield node.args[1]


def _factors(tree: ast.AST) -> Iterator[ast.expr]:
    # Of products that are not those of a batch size.
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for factor, other in ((node.left, node.right), (node.right, node.left)):
                if not (isinstance(other, ast.Constant) or "batch" in ast.unparse(other).lower()):
                    yield factor
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult):
            yield node.value


def is_by_length(file: str, line: int, end_line: int | None, column: int | None, end_column: int | None) -> bool:
    """Whether the expression at a place divides by a length: `x / len(y)`, `x / y.shape[0]`, or a name for one."""
    lines = linecache.getlines(file)[line - 1:end_line]
    if not lines or column is None or end_column is None:
        return False
    encoded = [text.encode() for text in lines]
    encoded[-1] = encoded[-1][:end_column]
    encoded[0] = encoded[0][column:]
    try:
        [node] = ast.parse(b"(" + b"".join(encoded) + b")").body
    except (SyntaxError, ValueError):
        return False
    value = getattr(node, "value", None)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        return _is_length(value.right, "".join(linecache.getlines(file)))
    return False


def divides_by_length(file: str, line: int) -> bool:
    """Whether the innermost function around a line divides by a length anywhere."""
    if file.startswith(INSTALLED):
        return False
    return _divides_by_length("".join(linecache.getlines(file)), line)


@functools.lru_cache(maxsize=64)
def _divides_by_length(source: str, line: int) -> bool:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return True  # nothing is known
    around = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))
              and node.lineno <= line <= (node.end_lineno or node.lineno)]
    if not around:
        return False
    inner = min(around, key=lambda node: (node.end_lineno or node.lineno) - node.lineno)
    return any(_is_length(divisor, source) for divisor in _divisors(inner))


def _is_length(node: ast.expr, source: str) -> bool:
    if isinstance(node, ast.Name):
        assigned = [statement.value for statement in ast.walk(ast.parse(source)) if isinstance(statement, ast.Assign)
                    and any(isinstance(target, ast.Name) and target.id == node.id for target in statement.targets)]
        return len(assigned) == 1 and not isinstance(assigned[0], ast.Name) and _is_length(assigned[0], source)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and (
            node.func.id == "len" or (node.func.id in ("float", "int") and len(node.args) == 1
                                      and _is_length(node.args[0], source)))
    return (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
            and isinstance(node.slice, ast.Constant) and node.slice.value == 0)
