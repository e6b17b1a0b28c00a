"""Operations of random programs on random generators: where they are made, and where they are drawn from."""

from __future__ import annotations

from refdist.conformance.random_programs.writer import Writer

DRAWS = (
    ("uniform", "uniform([{n}])"),
    ("uniform of float64", "uniform([2], dtype=tf.float64)"),
    ("uniform between", "uniform([{n}], minval=-3, maxval={n} + 5, dtype=tf.int32)"),
    ("uniform of int64", "uniform([2], minval=0, maxval=10 ** 12, dtype=tf.int64)"),
    ("uniform_full_int", "uniform_full_int([{n}], tf.{dtype})"),
    ("normal", "normal([{n}], mean=1.0)"),
    ("truncated_normal", "truncated_normal([{n}])"),
    ("make_seeds", "make_seeds({n})"),
    ("key", "key"),
    ("state", "state.read_value()"),
)
MAKERS = (
    ("from_seed", "from_seed({n})"),
    ("from_state", 'from_state([{n}, 2, 3], alg="philox")'),
    ("from_key_counter", "from_key_counter({n}, [1, {n}], alg=1)"),
    ("from the state of another", "from_state({other}.state, alg=1)"),
    ("from the state of another, read", "from_state({other}.state.read_value(), alg=1)"),
)


def _draw(w: Writer, generator: str, where: str) -> None:
    what, source = w.choose(DRAWS)
    call = f"{generator}." + source.format(n=w.number(1, 5), dtype=w.pick("int32", "uint32", "int64", "uint64"))
    in_replicas = w.chance(2)
    w.operation(f"{what} {'in' if in_replicas else 'outside'} replicas of a generator {where}")
    w.say(w.run(f"return {call}") if in_replicas else call)


def drawn(w: Writer) -> None:
    """A generator, which may share its state with another one that was made elsewhere."""
    other, inside = w.name("g"), w.chance(2)
    w.operation("a generator")
    w.say(_in_scope(inside, f"{other} = tf.random.Generator.from_seed({w.number(0, 9)})"))
    what, source = w.choose(MAKERS)
    name, scope = w.name("g"), w.chance(2)
    where = f"{what}{f' {_place(inside)}' if 'another' in what else ''}, made {_place(scope)}"
    w.operation(f"a generator {where}")
    w.say(_in_scope(scope, f"{name} = tf.random.Generator.{source.format(n=w.number(0, 9), other=other)}"))
    for _ in range(w.number(1, 3)):
        _draw(w, name, where)
    if w.chance(2):
        move = w.pick("reset_from_seed", "skip")
        w.operation(f"{move} of a generator {where}")
        w.say(f"_ = {name}.{move}({w.number(0, 9)})")
        _draw(w, name, where)
    if "another" not in what and w.chance(3):
        w.operation(f"split of a generator {where}")
        w.say(f"[part.uniform([2]) for part in {name}.split(2)]")


def _place(scope: bool) -> str:
    return "in the scope" if scope else "outside of the scope"


def _in_scope(scope: bool, statement: str) -> str:
    return f"with strategy.scope():\n    {statement}\n" if scope else statement


OPERATIONS = (drawn, drawn)
