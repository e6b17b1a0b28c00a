"""Random programs, run on two implementations, which must observe the same.

    python -m refdist.conformance random --against refdist.conformance.adapters.tensorflow:TensorFlow --programs 1000

A program is made of statements that a person could have written, as in the chapters: values made in replicas,
collectives, reductions, variables of every kind and their updates, merge calls, datasets. Every result is looked at. A
program on which two implementations differ is made as short as possible by Hypothesis, and printed as an example of a
chapter, with what each of them observed.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from refdist.conformance.comparison import differences
from refdist.conformance.examples import Code, Program
from refdist.conformance.judging import comparable
from refdist.conformance.notation import shown
from refdist.conformance.programs import size
from refdist.conformance.session import LIMIT, Reply, Tester, tester

PREAMBLE = '''def replica():
    return tf.distribute.get_replica_context()

def rank():
    return int(replica().replica_id_in_sync_group)'''
STRATEGIES = ("Mirrored 1", "Mirrored 2", "Mirrored 2", "Mirrored 3", "Mirrored 4", "Central 2", "Central 3",
              "OneDevice", "MultiWorker 2x1")
OPS = st.sampled_from(['"SUM"', '"MEAN"', "tf.distribute.ReduceOp.SUM", "tf.distribute.ReduceOp.MEAN"])
NUMBERS = st.integers(-4, 4)
METHODS = st.sampled_from(["assign", "assign_add", "assign_sub"])
FLOATS = st.sampled_from(["float32", "float64"])
DTYPES = st.sampled_from(["float32", "float64", "int64"])
# The programs keep away from what the chapters say of TensorFlow: every replica makes its own arrays, variables of
# aggregation NONE, and on several workers of ONLY_FIRST_REPLICA, are written with equal values, ints are reduced on
# several replicas, no axis is wrong, and one array or nest is reduced at a time.
AGGREGATIONS = ["NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"]


class _Writer:
    """The statements of a program, made one after another."""

    def __init__(self, draw: st.DrawFn, strategy: str) -> None:
        self._draw = draw
        workers, replicas = size(strategy)
        self.count = workers * replicas
        self._kind = strategy.partition(" ")[0]
        self._lines: list[str] = []
        self._functions = 0
        self._variables: list[tuple[str, str, str]] = []
        self._values: list[tuple[str, int]] = []  # name and rank of arrays, distributed

    def source(self) -> str:
        return "\n".join(self._lines)

    def _array(self, shape: tuple[int, ...], whole: bool = False) -> str:
        if shape:
            return "[" + ", ".join(self._array(shape[1:], whole) for _ in range(shape[0])) + "]"
        number = self._draw(NUMBERS)
        return str(number) if whole else f"{number}.0"

    def _contribution(self, shape: tuple[int, ...], dtype: str = "float32") -> str:
        parts = ", ".join(self._array(shape, dtype.startswith("int")) for _ in range(self.count))
        given_dtype = "" if dtype == "float32" else f", tf.{dtype}"
        return f"tf.constant([{parts}][rank()]{given_dtype})"

    def _function(self, result: str, arguments: str = "") -> str:
        self._functions += 1
        self._lines.append(f"def step_{self._functions}({arguments}):\n    return {result}\n")
        return f"step_{self._functions}"

    def _ran(self, result: str, shape: tuple[int, ...]) -> None:
        name = f"x{len(self._values)}"
        self._lines += [f"{name} = strategy.run({self._function(result)})", name]
        self._values.append((name, len(shape)))

    def shape(self) -> tuple[int, ...]:
        return self._draw(st.sampled_from([(), (1,), (2,), (2, 2), (3, 1)]))

    def made(self) -> None:
        shape = self.shape()
        self._ran(self._contribution(shape), shape)

    def all_reduce(self) -> None:
        shape, op = self.shape(), self._draw(OPS)
        dtype = self._draw(DTYPES if self.count > 1 else FLOATS)
        self._ran(f"replica().all_reduce({op}, {self._contribution(shape, dtype)})", shape)

    def reduced_twice(self) -> None:
        shape = self.shape()
        one, other = self._draw(OPS), self._draw(OPS)
        inner = f"replica().all_reduce({one}, {self._contribution(shape)})"
        self._ran(f"replica().all_reduce({other}, {inner} * 2.0 + {self._contribution(shape)})", shape)

    def nest(self) -> None:
        parts = f'{{"b": [{self._contribution(self.shape())}], "a": ({self._contribution(self.shape())}, )}}'
        name = self._function(f"replica().all_reduce({self._draw(OPS)}, {parts})")
        self._lines.append(f"strategy.run({name})")

    def all_gather(self) -> None:
        lengths = [self._draw(st.integers(1, 3)) for _ in range(self.count)]
        parts = ", ".join(self._array((length, 2)) for length in lengths)
        self._ran(f"replica().all_gather(tf.constant([{parts}][rank()]), axis=0)", (1, 1))

    def argument(self) -> None:
        name, rank = self._draw(st.sampled_from(self._values))
        function = self._function(f"x * 2.0 - {self._draw(NUMBERS)}.0", "x")
        self._lines.append(f"strategy.run({function}, args=({name} if {rank} else {name},))")

    def reduce(self) -> None:
        name, rank = self._draw(st.sampled_from(self._values))
        axis = self._draw(st.sampled_from([None, *range(rank)]))
        self._lines.append(f"strategy.reduce({self._draw(OPS)}, {name}, axis={axis})")

    def gather(self) -> None:
        found = [name for name, rank in self._values if rank]
        if found:
            self._lines.append(f"strategy.gather({self._draw(st.sampled_from(found))}, axis=0)")

    def merge_call(self) -> None:
        if self._kind == "MultiWorker":
            return
        self._functions += 1
        merge = f"merge_{self._functions}"
        op = self._draw(OPS)
        self._lines.append(f"def {merge}(strategy, value):\n    return strategy.reduce({op}, value, axis=None) * 3.0\n")
        name = self._function(f"replica().merge_call({merge}, args=({self._contribution(self.shape())},)) + 0.0")
        self._lines.append(f"strategy.run({name})")

    def variable(self) -> None:
        name = f"v{len(self._variables)}"
        aggregation = self._draw(st.sampled_from(AGGREGATIONS))
        on_read = self._kind in ("Mirrored", "MultiWorker") and aggregation != "NONE" and self._draw(st.booleans())
        more = ", synchronization=tf.VariableSynchronization.ON_READ" if on_read else ""
        self._lines.append(f"with strategy.scope():\n    {name} = tf.Variable({self._draw(NUMBERS)}.0, "
                           f"aggregation=tf.VariableAggregation.{aggregation}{more})\n")
        self._variables.append((name, "ON_READ" if on_read else "AUTO", aggregation))
        self._read(name)

    def _read(self, name: str) -> None:
        self._lines += [f"{name}.read_value()", f"strategy.experimental_local_results({name})"]

    def write(self) -> None:
        name, synchronization, _ = self._draw(st.sampled_from(self._variables))
        method = self._draw(METHODS) if synchronization == "AUTO" else "assign"
        self._lines.append(f"_ = {name}.{method}({self._draw(NUMBERS)}.0)")
        self._read(name)

    def write_in_replicas(self) -> None:
        name, _, aggregation = self._draw(st.sampled_from(self._variables))
        equal = aggregation == "NONE" or (aggregation == "ONLY_FIRST_REPLICA" and self._kind == "MultiWorker")
        value = f"{self._draw(NUMBERS)}.0 + 0.0" if equal else None
        contribution = f"tf.constant({value})" if value else self._contribution(())
        self._functions += 1
        self._lines += [f"def step_{self._functions}():\n    {name}.{self._draw(METHODS)}({contribution})\n",
                        f"_ = strategy.run(step_{self._functions})"]
        self._read(name)

    def update(self) -> None:
        found = [name for name, synchronization, _ in self._variables if synchronization == "AUTO"]
        if found:
            name = self._draw(st.sampled_from(found))
            self._functions += 1
            self._lines += [f"def update_{self._functions}(copy, value):\n    copy.{self._draw(METHODS)}(value)\n",
                            f"_ = strategy.extended.update({name}, update_{self._functions}, "
                            f"args=(tf.constant({self._draw(NUMBERS)}.0),))"]
            self._read(name)

    def dataset(self) -> None:
        rows, batch = self._draw(st.integers(0, 20)), self._draw(st.integers(self.count, 12))
        drop, repeat = self._draw(st.booleans()), self._draw(st.integers(1, 2))
        made = f"tf.data.Dataset.range({rows}).batch({batch}, drop_remainder={drop}).repeat({repeat})"
        self._lines.append(f"list(strategy.experimental_distribute_dataset({made}))")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A strategy, and a program of up to eight steps."""
    strategy = draw(st.sampled_from(STRATEGIES))
    writer = _Writer(draw, strategy)
    writer.made()
    for _ in range(draw(st.integers(0, 2))):
        writer.variable()
    of_variables = [writer.write, writer.write_in_replicas, writer.update] if writer._variables else []
    for _ in range(draw(st.integers(1, 6))):
        draw(st.sampled_from([writer.made, writer.all_reduce, writer.reduced_twice, writer.nest, writer.all_gather,
                              writer.argument, writer.reduce, writer.gather, writer.merge_call, writer.dataset,
                              *of_variables]))()
    source = writer.source()
    observe = tuple(i for i, node in enumerate(ast.parse(source).body) if isinstance(node, ast.Expr))
    return Program(strategy, "random.md", Code(PREAMBLE, 1), Code(source, PREAMBLE.count("\n") + 3), observe)


def difference(program: Program, one: Reply, other: Reply) -> str | None:
    """How two implementations differ on a program, None if they do not, or one of them does not run it."""
    outcomes = {reply.outcome for reply in (one, other)}
    if outcomes & {"skipped", "unsupported"}:
        return None
    if outcomes != {""}:
        return f"{one.outcome} ({one.message}) and {other.outcome} ({other.message})" if len(outcomes) == 2 else None
    statements = ast.parse(program.example.source).body
    for worker, answers in enumerate(zip(one.answers, other.answers, strict=True)):
        mine, theirs = (comparable(answer, program.strategy) for answer in answers)
        for i in sorted({*mine, *theirs}):
            if (i in mine) != (i in theirs) or next(differences(mine.get(i), theirs.get(i)), None):
                found = [shown(answer[i]) if i in answer else "nothing" for answer in (mine, theirs)]
                return f"worker {worker}, {ast.unparse(statements[i])}: {found[0]} and {found[1]}"
    return None


def compare(one: Tester, other: Tester, count: int, start: int = 0) -> tuple[int, str | None]:
    """Runs random programs on two implementations.

    Returns:
        How many were run, and a short one on which they differ with what each observed; None if there is none.
    """
    done = 0
    last = ""

    @seed(start)
    @settings(max_examples=count, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
              suppress_health_check=list(HealthCheck))
    @given(programs())
    def test(program: Program) -> None:
        nonlocal done, last
        done += 1
        found = difference(program, one.ask(program), other.ask(program))
        if found:
            last = (f"On {program.strategy}:\n\n{_indented(PREAMBLE)}\n\n{_indented(program.example.source)}\n\n"
                    f"{one.name} and {other.name} differ: {found}")
        assert not found

    try:
        test()
    except AssertionError:
        return done, last
    return done, None


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def main(arguments: Sequence[str]) -> int:
    """The command; 1 where two implementations differ."""
    parser = argparse.ArgumentParser(prog="python -m refdist.conformance random", description=__doc__)
    parser.add_argument("--adapter", default="refdist.conformance.adapters.simulated:Simulated")
    parser.add_argument("--against", required=True, help="another adapter, or testee:COMMAND")
    parser.add_argument("--programs", type=int, default=1000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (%(default)s)")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a program may take (%(default)s)")
    options = parser.parse_args(arguments)
    one, other = tester(options.adapter, options.limit), tester(options.against, options.limit)
    try:
        done, found = compare(one, other, options.programs, options.seed)
    finally:
        one.close()
        other.close()
    print(found or f"{done} programs, no difference")
    return int(found is not None)
