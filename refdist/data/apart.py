"""Rows and labels that are shuffled apart, for the check `watch`: each in an order of its own, and then paired.

Two datasets of equally many elements that are zipped have been shuffled by seeds that differ; or two arrays of
equally many rows, which are made one dataset, are each in an order that the same generator drew for it alone, by the
text of the program.  Where both have arrays of one dtype and shape they are left alone: two pictures may be paired at
random on purpose, and labelled rows with others.  Of a dataset that a function maps, the arrays count that it is given.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence

from refdist.core import call_site, remarks
from refdist.core.bindings import Part, Program, Text, name_of
from refdist.core.divisors import text_of
from refdist.data.pipeline import Pipeline
from refdist.data.position import Seeds
from refdist.data.spec import TensorSpec

_CODE = "RD53"
_DRAWING = frozenset(("permutation", "shuffle", "randperm", "permuted"))
_SEEDING = frozenset(("seed", "manual_seed", "set_seed", "set_state", "setstate", "set_rng_state", "set_random_seed",
                      "default_rng", "RandomState", "Generator", "Random"))
_SEEDS = frozenset(("seed", "random_state", "generator"))
_CONVERTING = frozenset(("array", "asarray", "tensor", "as_tensor", "constant", "convert_to_tensor", "astype"))


def look_at_zip(pipelines: Sequence[Pipeline]) -> None:
    """Warns where `Dataset.zip` pairs the elements of datasets that were shuffled apart."""
    for i, first in enumerate(pipelines):
        for second in pipelines[i + 1:]:
            own, others = ([source for source in pipeline.sources if isinstance(source, Seeds)]
                            for pipeline in (first, second))
            if not own or not others or {*map(id, own)} & {*map(id, others)}:
                continue
            seeds = [[source.text() for source in sources] for sources in (own, others)]
            alike = {*seeds[0]} == {*seeds[1]} and all(source.chosen for source in own)
            count = first.facts.cardinality
            if alike or count < 2 or count != second.facts.cardinality or not _are_of_two_kinds(
                    *(pipeline.facts.arrays or pipeline.facts.mapped for pipeline in (first, second))):
                continue
            remarks.make(_CODE, call_site.that_led_here(), "Dataset.zip",
                         f"two datasets of {count} elements are paired that are shuffled apart, with {seeds[0][-1]} "
                         f"and with {seeds[1][-1]}: each row gets what belongs to another", "Zip them first, and "
                         "shuffle the pairs: `Dataset.zip(x, y).shuffle(n)`.")
            return


def look_at_slices(specs: Sequence[TensorSpec]) -> None:
    """Warns where `Dataset.from_tensor_slices` is given arrays that the program has brought into two orders.

    Args:
        specs: of the arrays.
    """
    site = call_site.that_led_here()
    if len(specs) != 2 or not _are_of_two_kinds(specs[:1], specs[1:]) or not site or (
            site[0].file.startswith(call_site.INSTALLED)):
        return
    drawn = _drawn(text_of(site[0].file), Part(0, *site[0][1:]))
    if drawn:
        file = site[0].file
        places = [call_site.Place(file, "", line, None, None, None) for line in drawn]
        remarks.make(_CODE, site, "Dataset.from_tensor_slices",
                     f"the rows of one array are in the order that is drawn at {places[0]}, those of the other in that "
                     f"of {places[1]}: each row gets what belongs to another", "Draw one order for both: `order = "
                     "rng.permutation(len(x)); x, y = x[order], y[order]`; or shuffle the dataset of pairs.")


def _are_of_two_kinds(first: Sequence[TensorSpec], second: Sequence[TensorSpec]) -> bool:
    kinds = [{(spec.dtype, spec.shape) for spec in specs} for specs in (first, second)]
    return all(kinds) and kinds[0].isdisjoint(kinds[1])


@functools.lru_cache(maxsize=64)
def _drawn(text: Text, part: Part) -> tuple[int, int] | None:
    # The lines in which the orders of the two arrays of a call are drawn, where these are two orders for certain.
    try:
        program = Program([text])
    except (SyntaxError, ValueError):
        return None
    call = program.at(part)
    if not isinstance(call, ast.Call) or not call.args:
        return None
    match call.args[0]:
        case ast.Tuple(elts=items) | ast.Dict(values=items):
            pass
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            items = [keyword.value for keyword in keywords]
        case _:
            return None
    drawn = [[*dict.fromkeys(_orders(program, item))] for item in items]
    if len(drawn) != 2 or any(len(calls) != 1 for calls in drawn) or drawn[0] == drawn[1]:
        return None
    first, second = sorted((calls[0] for calls in drawn), key=lambda node: node.lineno)
    # Of one generator, so that the second is another order, unless that is seeded in between; a second argument may be
    # a seed, or the first one a key.
    texts = {ast.unparse(node.func) for node in (first, second)}
    between = [node for node in program.nodes() if isinstance(node, ast.Call) and name_of(node.func) in _SEEDING
               and first.lineno <= node.lineno <= second.lineno]
    seeded = any(len(node.args) > 1 or any(keyword.arg in _SEEDS for keyword in node.keywords)
                 for node in (first, second))
    fresh = any(isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)
                for node in (first, second))
    return None if len(texts) > 1 or between or seeded or fresh else (first.lineno, second.lineno)


def _orders(program: Program, item: ast.expr, depth: int = 4) -> Iterator[ast.Call]:
    # The calls that have drawn the order of an array: `x[rng.permutation(n)]`, `rng.permutation(x)`, `rng.shuffle(x)`.
    if not depth:
        return
    match item:
        case ast.Name():
            for value in program.values(item):
                yield from _orders(program, value, depth - 1)
            for node in program.nodes():
                call = node.value if isinstance(node, ast.Expr) else None
                if isinstance(call, ast.Call) and _draws(program, call) and any(
                        isinstance(name, ast.Name) and program.key(name.id, name) == program.key(item.id, item)
                        for name in call.args):
                    yield call
        case ast.Subscript(slice=ast.Call() as order) if _draws(program, order):
            yield order
        case ast.Subscript(slice=ast.Name() as order):
            yield from (value for value in program.values(order)
                        if isinstance(value, ast.Call) and _draws(program, value))
        case ast.Call() if _draws(program, item):
            if not any(_is_number(argument) for name in item.args for argument in (name, *program.values(name))):
                yield item
        case ast.Call(func=ast.Attribute(value=value, attr="astype")):
            yield from _orders(program, value, depth - 1)
        case ast.Call(args=[value, *_]) if name_of(item.func) in _CONVERTING:
            yield from _orders(program, value, depth - 1)


def _draws(program: Program, call: ast.Call) -> bool:
    # A function of the program may be called so, too, and seed a generator of its own.
    return name_of(call.func) in _DRAWING and not program.called(call.func)


def _is_number(argument: ast.expr) -> bool:
    # Of which a permutation is no array of the program in another order, but new numbers.
    return isinstance(argument, ast.Constant) or (isinstance(argument, ast.Call) and name_of(argument.func) == "len")
