"""Operations of random programs on nests: tf.nest itself, and containers of all kinds that replicas return."""

from __future__ import annotations

from refdist.conformance.random_programs.writer import CONTAINERS, Writer

# A container with two parts, as an expression.
KINDS = {
    "a list": "[{}, {}]", "a tuple": "({}, {})", "a dict": '{{"b": {}, "a": {}}}', "a named tuple": "Named({}, {})",
    "an attrs object": "Attributed({}, {})", "a dataclass": "Data({}, {})", "None": "[{}, None, {}]",
    "an ordered dict": 'collections.OrderedDict([("z", {}), ("y", {})])',
}
CALLS = {
    "flatten": "tf.nest.flatten({a})",
    "flatten with composites": "tf.nest.flatten({a}, expand_composites=True)",
    "map_structure": "tf.nest.flatten(tf.nest.map_structure(lambda x, y: (x, y), {a}, {b}))",
    "map_structure without types":
        "tf.nest.flatten(tf.nest.map_structure(lambda x, y: x + y, {a}, {b}, check_types=False))",
    "map_structure keeps": "tf.nest.map_structure(lambda x: x, {a})",
    "assert_same_structure": "tf.nest.assert_same_structure({a}, {b})",
    "assert_same_structure without types": "tf.nest.assert_same_structure({a}, {b}, check_types=False)",
    "pack_sequence_as": "tf.nest.pack_sequence_as({a}, {n})",
    "is_nested": "tf.nest.is_nested({a})",
}


def _nest(w: Writer, depth: int = 1) -> tuple[str, str]:
    """What a nest is, and its expression; its leaves are numbers."""
    what = w.pick(*KINDS)
    inner = _nest(w, depth - 1)[1] if depth and w.chance(3) else str(w.number())
    return what, KINDS[what].format(inner, w.number())


def called(w: Writer) -> None:
    """A function of tf.nest."""
    (what, first), call = _nest(w), w.pick(*CALLS)
    other, second = (what, first) if w.chance(2) else _nest(w)
    w.operation(f"nest.{call} of {what}" + (f" and {other}" if "{b}" in CALLS[call] else ""))
    w.say(CALLS[call].format(a=first, b=second, n=[w.number() for _ in range(w.number(1, 3))]))


def returned(w: Writer) -> None:
    """Containers that replicas return, and that come to replicas as arguments."""
    what = w.pick(*CONTAINERS)
    container, name = CONTAINERS[what], w.name("r")
    w.operation(f"run returns {what}")
    w.say(f"{name} = {w.run(f'return {container}({w.each()}, {w.each(())})')}", name)
    w.operation(f"local results of {what}")
    w.say(f"[(pair.x, pair.y) for pair in strategy.experimental_local_results({name})]")
    w.operation(f"run with {what}")
    w.say(w.run("return pair.x, pair.y", arguments="pair", passed=f", args=({name},)"))
    value = w.pick(*(value for value, _ in w.values))
    w.say(w.run("return pair.y", arguments="pair", passed=f", args=({container}({value}, 2.0),)"))


OPERATIONS = (called, called, returned)
