"""Whether a program asks if what it reduces is finite, and so leaves such steps out itself: read from its text.

It does where it asks of what the reduction has given, or, before that, where a replica asks of what it has computed.
Where it only asks of its data, of its weights or of another number, it does not.  A program that scales its loss meets
infinity on purpose, wherever that is.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence

from refdist.core import call_site
from refdist.core.bindings import FUNCTIONS, Function, Key, Part, Program, Text, name_of
from refdist.core.divisors import text_of
from refdist.core.flow import Flow

# Names of functions: `isfinite`, `all_finite`, `has_nan`.
_ASKING = re.compile(r"(\w*_)?(is|all|are|any|not|non|has)?_?(finite|nan|inf)|nan_to_num")
_SCALING = re.compile(r"GradScaler|LossScaleOptimizer|mixed_float16|apply_if_finite")


def is_asked(site: call_site.Site, outside: bool) -> bool:
    """Whether the files of a site ask whether what is reduced there is finite, or scale a loss.

    Args:
        site: of the reduction, innermost first.
        outside: whether that is outside of replicas.
    """
    files = [file for file in dict.fromkeys(place.file for place in site) if not file.startswith(call_site.INSTALLED)]
    parts = tuple(Part(files.index(place.file), *place[1:]) for place in site if place.file in files)
    return _is_asked(tuple(map(text_of, files)), parts, outside)


@functools.lru_cache(maxsize=64)
def _is_asked(texts: Sequence[Text], parts: Sequence[Part], outside: bool) -> bool:
    try:
        program = Program(texts)
    except (SyntaxError, ValueError):
        return any(_SCALING.search(text.source) or "finite" in text.source for text in texts)
    # By a name or a word on its own; what is written in a comment or a sentence scales nothing.
    words = [getattr(node, field, None) for node in program.nodes() for field in ("id", "attr", "name", "value")]
    if any(isinstance(word, str) and _SCALING.fullmatch(word) for word in words):
        return True
    asked = list(_asked(program))
    outwards = [call for part in parts if (call := program.at(part)) is not None]
    if not asked or not outwards:
        return bool(asked)
    if any(map(Flow(program, [outwards[0], *_named(program, outwards[0], outside)], outwards).reaches, asked)):
        return True
    around = {function: outer for call, outer in zip(outwards, [*outwards[1:], None], strict=True)
              for function in program.around(call)}
    replicas = _with_what_they_call(program, {*_run(program)} if outside else {*around})
    return any(next(program.around(expression), None) in replicas and _is_computed(program, expression, around)
               for expression in asked)


def _named(program: Program, call: ast.expr, outside: bool) -> Iterator[ast.Name]:
    # Outside of replicas: where the program names what is reduced.
    arguments = program.arguments(call) if isinstance(call, ast.Call) and outside else []
    keys = {program.key(node.id, node) for argument in arguments for node in ast.walk(argument)
            if isinstance(node, ast.Name)}
    return (node for node in program.nodes() if isinstance(node, ast.Name) and program.key(node.id, node) in keys)


def _asked(program: Program) -> Iterator[ast.expr]:
    # Of what the program asks whether it is finite: `isfinite(g)`, `g.isnan()`, `map(isfinite, gs)`.
    for node in program.nodes():
        if isinstance(node, ast.Call):
            arguments = program.arguments(node)
            if _asks(node.func):
                yield from arguments
                if not arguments and isinstance(node.func, ast.Attribute):
                    yield node.func.value
            elif any(map(_asks, arguments)):
                yield from (argument for argument in arguments if not _asks(argument))


def _asks(function: ast.expr) -> bool:
    return isinstance(function, (ast.Name, ast.Attribute)) and _ASKING.fullmatch(name_of(function)) is not None


def _run(program: Program) -> Iterator[Function]:
    # The functions that are passed to `run`.
    for node in program.nodes():
        if isinstance(node, ast.Call) and name_of(node.func) == "run":
            for argument in node.args[:1]:
                yield from program.called(argument)


def _with_what_they_call(program: Program, functions: set[Function]) -> set[Function]:
    waiting, reached = list(functions), set(functions)
    while waiting:
        inside = list(ast.walk(waiting.pop()))
        for node in inside:
            called: Sequence[Function] = [node] if isinstance(node, FUNCTIONS) else (
                program.called(node) if isinstance(node, (ast.Name, ast.Attribute)) else ())
            waiting += [function for function in called if function not in reached]
            reached.update(called)
    return reached


def _is_computed(program: Program, expression: ast.AST, around: Mapping[Function, ast.expr | None],
                 seen: frozenset[Key] = frozenset()) -> bool:
    # Whether a replica has computed it: a name of its own in it is no argument of the function that a replica runs.
    return any(isinstance(node, ast.Name) and _is_own(program, node, around, seen) for node in ast.walk(expression))


def _is_own(program: Program, name: ast.Name, around: Mapping[Function, ast.expr | None], seen: frozenset[Key]) -> bool:
    function, text = key = program.key(name.id, name)
    if key in seen or not isinstance(function, FUNCTIONS):
        return False
    if text in program.parameters(function):
        passed = program.passed(function, text)
        if passed is None and function in around:
            outer = around[function]
            passed = [] if not isinstance(outer, ast.Call) else [*outer.args]
        return passed is None or any(_is_computed(program, argument, around, seen | {key}) for argument in passed)
    # What only takes an argument to pieces, `x, y = batch`, computes nothing.
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == text
        for assigned in node.targets for target in ast.walk(assigned))]
    return not values or any(not isinstance(value, (ast.Name, ast.Subscript, ast.Attribute))
                             or _is_computed(program, value, around, seen | {key}) for value in values)
