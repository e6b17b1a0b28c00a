"""Programs: the code of an example, with the results that stand beside its statements.

    def step():
        return all_reduce("SUM", tf.constant(1.0))

    strategy.run(step)
    # 2.0 | 2.0  float32                          the result of the statement above
    # Mirrored 3: 3.0 | 3.0 | 3.0  float32        where it is another one on some strategies
    # MultiWorker 2x1, worker 1: None             or, also without a strategy, on one of the workers

The comment that directly follows a statement is its result (`notation.py` says how one is written). It goes on in
comment lines that are indented by two more spaces. Other comments are comments.

A rule that holds for many sizes has a *property* beside its literal examples. It says which values its names take, as
strategies of Hypothesis, and what holds for the result, as an expression of Python about `result` and these names:

    # for rows in integers(0, 20)
    # for batch in integers(1, 6)
    dataset = tf.data.Dataset.range(rows).batch(batch)
    list(strategy.experimental_distribute_dataset(dataset))
    # holds sorted(numbers(result)) == list(range(rows))

A property with a value for each name is a program like any other: `drawn` writes `rows = 7` in place of the comment.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .notation import NotAResult, parsed
from .results import Result

STRATEGY = re.compile(r"Default|OneDevice|(?:Mirrored|Central) [1-9]\d*|MultiWorker [1-9]\d*x[1-9]\d*|TPU [1248]")
_FOR = re.compile(r"# for ([a-z_]\w*) in (.+)")


class NotAProgram(ValueError):
    """A text is not a program with results; `line` says where, from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class Expectation:
    """What a statement gives on some strategies, and on one worker of them.

    Attributes:
        strategies: which; none for all that no other expectation of the statement names.
        worker: which; None for all of them.
        result: the literal result; or instead
        holds: what is true of it.
    """

    strategies: tuple[str, ...]
    worker: int | None
    result: Result
    holds: str = ""


@dataclass(frozen=True)
class Statement:
    """A statement, the line it begins in, whether it is an expression, and what it gives."""

    source: str
    line: int
    value: bool
    expectations: tuple[Expectation, ...]

    def expected(self, strategy: str) -> dict[int | None, Expectation] | None:
        """What it gives on a strategy, by worker, or for all workers under None; None if that does not matter."""
        own = [expectation for expectation in self.expectations if strategy in expectation.strategies]
        applicable = own or [expectation for expectation in self.expectations if not expectation.strategies]
        return {expectation.worker: expectation for expectation in applicable} if applicable else None


@dataclass(frozen=True)
class Example:
    """A program; `number` counts those of its clause from 1, and `parameters` has the names of a property."""

    number: int
    source: str
    line: int
    statements: tuple[Statement, ...]
    parameters: Mapping[str, str]

    def drawn(self, values: Mapping[str, object]) -> Example:
        """The property with a value for each of its names."""
        lines = self.source.splitlines()
        for i, line in enumerate(lines):
            if header := _FOR.fullmatch(line):
                lines[i] = f"{header[1]} = {values[header[1]]!r}"
        return read("\n".join(lines), self.line, self.number)


def read(source: str, line: int = 1, number: int = 1) -> Example:
    """Reads a program.

    Args:
        source: its text.
        line: the number of its first line in the text that it is from.
        number: which one of its clause.

    Raises:
        NotAProgram: it is not Python, or what stands beside a statement is not a result.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise NotAProgram(line + (error.lineno or 1) - 1, f"{error.msg} in an example") from None
    lines = source.splitlines()
    statements = []
    for node in tree.body:
        assert node.end_lineno is not None
        after = node.end_lineno
        while after < len(lines) and lines[after].startswith("#"):
            after += 1
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        statements.append(Statement("\n".join(lines[first - 1:node.end_lineno]), line + first - 1,
                                    isinstance(node, ast.Expr),
                                    _expectations(line + node.end_lineno, lines[node.end_lineno:after])))
    parameters = {header[1]: header[2] for header in map(_FOR.fullmatch, lines) if header}
    return Example(number, source, line, tuple(statements), parameters)


def _expectations(line: int, comments: list[str]) -> tuple[Expectation, ...]:
    texts: list[str] = []
    for comment in comments:
        text = comment.removeprefix("#").removeprefix(" ")
        if text.startswith("  ") and texts:
            texts[-1] += " " + text.strip()
        else:
            texts.append(text.strip())
    expectations = []
    for text in texts:
        strategies, worker, result = _prefix(text)
        try:
            if result.startswith("holds "):
                ast.parse(result.removeprefix("holds "), mode="eval")
                expectations.append(Expectation(strategies, worker, None, result.removeprefix("holds ")))
            else:
                expectations.append(Expectation(strategies, worker, parsed(result)))
        except (NotAResult, SyntaxError) as error:
            raise NotAProgram(line, f"{result!r}: {error}" if isinstance(error, SyntaxError) else str(error)) from None
    return tuple(expectations)


def _prefix(text: str) -> tuple[tuple[str, ...], int | None, str]:
    """Splits `Mirrored 2, MultiWorker 2x1: result`, `MultiWorker 2x1, worker 0: result` and `worker 0: result`."""
    head, colon, result = text.partition(":")
    names = head.split(", ")
    worker = None
    if colon and (last := re.fullmatch(r"worker (\d+)", names[-1])):
        worker = int(last[1])
        names.pop()
    if colon and (names or worker is not None) and all(STRATEGY.fullmatch(name) for name in names):
        return tuple(names), worker, result.strip()
    return (), None, text


def size(strategy: str) -> tuple[int, int]:
    """How many workers a strategy of the chapters has, and how many replicas each of them."""
    kind, _, count = strategy.partition(" ")
    if kind == "MultiWorker":
        workers, _, replicas = count.partition("x")
        return int(workers), int(replicas)
    return 1, int(count or 1)
