"""The statements of random programs: every operation of tf.distribute, in ways that a person could have written.

A program is a few operations, one after another, on one strategy or two. Each operation writes the statements it needs
and says what it is, such as "all_reduce of slices": under that name differences are counted (`comparison.py`),
so what decides how an operation behaves (what is contributed, the aggregation of a variable, where it is written)
belongs into the name, and numbers and shapes do not. Every statement is observed, assignments too, so that an error on
purpose is a result like any other and the program goes on.

Choices are drawn from Hypothesis, simple ones first, because a program is shrunk towards them. An operation that needs
what an implementation lacks is left out of the program after it has been written: what a program needs is read off its
text (`capabilities.py`), and no table here can forget it. What is unusual, or an error, is drawn less often; and where
TensorFlow's workers would wait for each other until the limit of a case, it is not drawn for several workers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TypeVar

from hypothesis import strategies as st

from refdist.conformance.capabilities import needs
from refdist.conformance.examples import Code, Program
from refdist.conformance.programs import size

# What programs are preceded by, in parts: what stands in programs that need one, and the part.
PARTS = (
    ("", '''def replica():
    return tf.distribute.get_replica_context()

def rank():
    return int(replica().replica_id_in_sync_group)

def slices(values, indices, shape):
    return tf.IndexedSlices(values, tf.constant(indices, tf.int32), tf.constant(shape))'''),
    ("collections|Named|Attributed", "import collections"),
    ("numpy", "import numpy"),
    ("Named", 'Named = collections.namedtuple("Named", "x y")'),
    ("Data", '''import dataclasses

Data = dataclasses.make_dataclass("Data", ["x", "y"], repr=False, namespace={"__repr__": lambda self: "Data"})'''),
    ("Attributed", '''Field = collections.namedtuple("Field", "name")

class Attributed:
    __attrs_attrs__ = (Field("x"), Field("y"))

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __repr__(self):
        return "Attributed"'''),
    ("path", '''import os
import tempfile

def path():
    return os.path.join(tempfile.mkdtemp(), "ckpt")'''),
    ("function", '''def function(fn):
    return getattr(tf, "function", lambda fn: fn)(fn)'''),
    ("servers", '''SERVERS = []

def address():
    SERVERS.append(tf.distribute.Server.create_local_server())
    return SERVERS[-1].target[len("grpc://"):]

def servers(count):
    jobs = {"worker": [address()], "ps": [address() for _ in range(count)]}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(jobs), rpc_layer="grpc")
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(count)
    return tf.distribute.ParameterServerStrategy(resolver, partitioner)'''),
)
PREAMBLE = "\n\n".join(part for _, part in PARTS)
STRATEGIES = ("Mirrored 2", "Mirrored 2", "Mirrored 1", "Mirrored 3", "Mirrored 5", "Mirrored 8", "Central 2",
              "Central 1", "Central 3", "OneDevice", "Default", "Default", "MultiWorker 2x1", "MultiWorker 2x2")
SERVERS = "Servers"  # the kind of a strategy of parameter servers
STEPS = (1, 2, 2, 3, 3, 4, 5, 8)  # operations of a program, at most
OPS = ('"SUM"', '"MEAN"', '"sum"', "tf.distribute.ReduceOp.SUM", "tf.distribute.ReduceOp.MEAN")
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (2,), (2, 2), (3, 1))
DTYPES = ("float32", "float64", "int32", "int64")
RARE = ("complex64", "float16", "int8", "uint8")  # dtypes that implementations may treat otherwise
AGGREGATIONS = ("SUM", "MEAN", "ONLY_FIRST_REPLICA", "NONE")
ASSIGNS = ("assign", "assign_add", "assign_sub")
SCATTERS = ("scatter_add", "scatter_sub", "scatter_update", "scatter_mul", "scatter_div", "scatter_min", "scatter_max",
            "batch_scatter_update")


def first_line(preamble: str) -> int:
    """The line in which a program begins after its preamble."""
    return preamble.count("\n") + 3


def is_definition(source: str) -> bool:
    """Whether a statement defines a function, which has no result."""
    return source.startswith("def ")


@dataclass(frozen=True)
class RandomProgram:
    """A program: a strategy, and statements, each with the name of the operation that it belongs to.

    A name ends in ` @ Mirrored` if the operation is on another strategy of the program, of this kind.
    """

    strategy: str
    statements: tuple[tuple[str, str], ...]

    @cached_property
    def source(self) -> str:
        return "\n".join(source for source, _ in self.statements)

    @cached_property
    def preamble(self) -> str:
        """What it uses of `PARTS`, so that no language needs what it does not."""
        return "\n\n".join(part for used, part in PARTS if not used or re.search(rf"\b({used})\b", self.source))

    def program(self) -> Program:
        """As an implementation runs it: every statement is observed, but for definitions of functions."""
        preamble = self.preamble
        observe = tuple(i for i, (source, _) in enumerate(self.statements) if not is_definition(source))
        return Program(self.strategy, "random.md", Code(preamble, 1), Code(self.source, first_line(preamble)), observe)


Row = TypeVar("Row", bound=tuple[str, ...])


@dataclass(frozen=True)
class Variable:
    """A variable of the program; `kind` is its aggregation and synchronization, as names of operations have them."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str


@dataclass
class Place:
    """A strategy of the program, and what has been made under it.

    Attributes:
        name: of the variable that holds it.
        kind: such as "Mirrored".
        count: how many replicas it has.
        variables: of the program.
        values: arrays, distributed: name and rank.
    """

    name: str
    kind: str
    count: int
    variables: list[Variable] = field(default_factory=list)
    values: list[tuple[str, int]] = field(default_factory=list)


def _literal(shape: tuple[int, ...], dtype: str, numbers: Iterator[int], fraction: str = "0") -> str:
    if shape:
        return "[" + ", ".join(_literal(shape[1:], dtype, numbers, fraction) for _ in range(shape[0])) + "]"
    number = next(numbers)
    return {"bool": str(number > 0), "complex64": f"{number}.{fraction} + 1.{fraction}j"}.get(
        dtype, str(abs(number) if dtype == "uint8" else number) if "int" in dtype else f"{number}.{fraction}")


class Writer:
    """The statements of a program, made one after another.

    Attributes:
        several: whether there are several workers.
        places: the strategies of the program; the first is the one that the implementation is asked for.
        place: that of the operation that is being written, which calls it `strategy`.
        current: what the statements do that are being written.
    """

    def __init__(self, draw: st.DrawFn, strategy: str) -> None:
        self._draw = draw
        self.strategy = strategy
        workers, replicas = size(strategy)
        self.several = workers > 1
        self.place = Place("strategy", strategy.partition(" ")[0], workers * replicas)
        self.places = [self.place]
        self._statements: list[tuple[str, str]] = []
        # Where numbers begin, so that no program of a pack has a name that an earlier one has defined.
        self._names = draw(st.integers(0, 10 ** 6))
        self.current = ""

    @property
    def kind(self) -> str:
        """Of the strategy, such as "Mirrored"."""
        return self.place.kind

    @property
    def count(self) -> int:
        """How many replicas there are."""
        return self.place.count

    @property
    def variables(self) -> list[Variable]:
        return self.place.variables

    @property
    def values(self) -> list[tuple[str, int]]:
        return self.place.values

    # Choosing.

    def pick(self, *options: object) -> str:
        return str(self._draw(st.sampled_from(options)))

    def chance(self, one_in: int) -> bool:
        return self._draw(st.integers(1, one_in)) == one_in

    def number(self, least: int = -4, most: int = 4) -> int:
        return self._draw(st.integers(least, most))

    def shape(self) -> tuple[int, ...]:
        return self._draw(st.sampled_from(SHAPES))

    def choose(self, rows: Sequence[Row]) -> Row:
        """A row of a table."""
        return self._draw(st.sampled_from(rows))

    def variable(self) -> Variable:
        return self._draw(st.sampled_from(self.variables))

    def variable_with_rows(self) -> Variable | None:
        """A variable that is no scalar, if there is one."""
        with_rows = [v for v in self.variables if v.shape]
        return self._draw(st.sampled_from(with_rows)) if with_rows else None

    # Writing.

    def operation(self, name: str) -> None:
        """Says what the statements that follow do."""
        self.current = name

    def say(self, *statements: str) -> None:
        self._statements += [(source, self.current) for source in statements]

    def name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def function(self, *lines: str, arguments: str = "", kind: str = "step_") -> str:
        name = self.name(kind)
        body = "\n".join(f"    {line}" for line in lines)
        self.say(f"def {name}({arguments}):\n{body}\n")
        return name

    def run(self, *lines: str, arguments: str = "", passed: str = "") -> str:
        """A call of `run` with a new function, and what is passed to it."""
        return f"strategy.run({self.function(*lines, arguments=arguments)}{passed})"

    def array(self, shape: tuple[int, ...], dtype: str = "float32") -> str:
        """An array as a literal. One choice stands for all of its numbers, which differ."""
        first = self.number(0, 8)
        numbers = ((first + 5 * i) % 9 - 4 for i in count())
        return _literal(shape, dtype, numbers, "37" if self.chance(3) else "0")

    def constant(self, shape: tuple[int, ...], dtype: str) -> str:
        """An array of a dtype, as an expression."""
        return f"tf.constant({self.array(shape, dtype)}, tf.{dtype})"

    def each(self, shape: tuple[int, ...] | None = None, dtype: str = "float32") -> str:
        """An array that each replica makes by itself."""
        parts = self.array((self.count, *(self.shape() if shape is None else shape)), dtype)
        return f"tf.constant({parts}[rank()]{'' if dtype == 'float32' else f', tf.{dtype}'})"

    def per_rank(self, *parts: object) -> str:
        """An expression that has another value in each replica."""
        return f"{[parts[i % len(parts)] for i in range(self.count)]!r}[rank()]"

    # Operations that an implementation may lack.

    def write(self, operation: Callable[[Writer], None], lacks: frozenset[str]) -> None:
        """Writes an operation, on the strategy that is the place; not if it needs what is in `lacks`."""
        first, before = len(self._statements), [replace(place, variables=[*place.variables], values=[*place.values])
                                                for place in self.places]
        on = self.places.index(self.place)
        operation(self)
        if self.place.name != "strategy":
            self._statements[first:] = [(re.sub(r"\bstrategy\b", self.place.name, source), f"{name} @ {self.kind}")
                                        for source, name in self._statements[first:]]
        added = "\n".join(source for source, _ in self._statements[first:])
        if lacks and needs(Program(self.strategy, "", Code(PREAMBLE, 1), Code(added, 1), ())) & lacks:
            del self._statements[first:]
            self.places = before
            self.place = before[on]

    def program(self) -> RandomProgram:
        return RandomProgram(self.strategy, tuple(self._statements))


# Containers of the preamble, by what they are called.
CONTAINERS = {"a named tuple": "Named", "an attrs object": "Attributed", "a dataclass": "Data"}

# What replicas contribute: its name, and the expression of a replica.

def _nest(w: Writer) -> str:
    return f'{{"b": [{w.each()}], "a": ({w.each()},)}}'


def _slices(w: Writer) -> str:
    count = w.number(1, 3)
    indices = w.per_rank(*([w.number(0, 3) for _ in range(count)] for _ in range(2)))
    return f"slices({w.each((count, 2))}, {indices}, [4, 2])"


def _lengths(w: Writer) -> str:
    parts = ", ".join(w.array((w.number(1, 3), 2)) for _ in range(w.count))
    return f"tf.constant([{parts}][rank()])"


def _shared(w: Writer) -> str:
    name = w.name("shared")
    w.say(f"{name} = tf.constant({w.array((2,))})")
    return name


def _distributed(w: Writer) -> str:
    return f"{w.pick(*(name for name, _ in w.values))}"


def _of_variable(w: Writer) -> str:
    return w.variable().name if w.variables else w.each()


def _of_another_strategy(w: Writer) -> str:
    elsewhere = [name for place in w.places if place is not w.place for name, _ in place.values]
    return w.pick(*elsewhere) if elsewhere else w.each()


USUAL: dict[str, Callable[[Writer], str]] = {
    "an array": Writer.each,
    **{dtype: lambda w, dtype=dtype: w.each(None, dtype) for dtype in ("float64", "int32", "int64")},  # type: ignore[misc]
    "a nest": _nest,
    "arrays in a list": lambda w: f"[{w.each()}, {w.each()}]",
    "slices": _slices,
    "a distributed value": _distributed,
}
# For several workers only where none waits for another.
UNUSUAL: dict[str, Callable[[Writer], str]] = {
    "lengths that differ": _lengths,
    "a shared array": _shared,
    "a variable": _of_variable,
    "a value of another strategy": _of_another_strategy,
    "a number": lambda w: w.per_rank(2.5, -1.0, 3.0),
    "no rows": lambda w: f"{w.each((2, 2))}[:0]",
    "no rows on one replica": lambda w: f"{w.each((2, 2))}[:rank()]",
    **{dtype: lambda w, dtype=dtype: w.each(None, dtype)  # type: ignore[misc]
       for dtype in ("float16", "bool", "complex64", "int8", "uint8")},
    "slices without rows": lambda w: f"slices({w.each((1, 2))}[:0], [0][:0], [4, 2])",
    "None": lambda w: "None",
    "text": lambda w: '"text"',
    "an empty nest": lambda w: w.pick("[]", "{}", "()"),
    **{what: lambda w, name=name: f"{name}({w.each()}, {w.each(())})"  # type: ignore[misc]
       for what, name in CONTAINERS.items()},
    "None in a nest": lambda w: f"[{w.each()}, None]",
    "slices in a nest": lambda w: f"[{w.each()}, {_slices(w)}]",
}
WRONG: dict[str, Callable[[Writer], str]] = {
    "ranks that differ": lambda w: f"tf.constant({w.per_rank([1.0], [[2.0]])})",
    "shapes that differ": lambda w: f"tf.constant({w.per_rank([[1.0, 2.0]], [[1.0, 2.0, 3.0]])})",
    "dtypes that differ": lambda w: f"tf.constant({w.per_rank(1, 2)}, {w.per_rank('float32', 'float64')})",
    "structures that differ": lambda w: f"[{w.each(())}] * (1 + rank())",
    "slices on one replica": lambda w: f"{_slices(w)} if rank() else {w.each((4, 2))}",
    "slices of shapes that differ": lambda w: f"slices({w.each((1, 2))}, [0], {w.per_rank([4, 2], [5, 2])})",
}


def contribution(w: Writer) -> tuple[str, str]:
    """What a replica contributes: its name and its expression."""
    table = USUAL
    if w.chance(4):
        table = WRONG if w.chance(4) and not w.several else UNUSUAL
    name = w.pick(*table)
    return name, table[name](w)
