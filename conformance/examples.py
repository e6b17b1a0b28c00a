"""Running an example on an implementation in this process.

The two halves never meet. The implementation's side (`run_example`, or a testee in another language) runs the
statements one by one and answers what it observed; it is given a `Program`, which says whose results are wanted and
not what they are. The suite's side (`judge`) compares. So an implementation in another process or another language is
compared exactly as one in this process is, and none of them can look up what it should have answered.

What a statement with a result raises is its result, and the example goes on; a statement without one must not raise,
and ends the example if it does.
"""

from __future__ import annotations

import ast
import functools
import json
import linecache
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias

from .chapters import Case
from .programs import Example
from .results import Result

if TYPE_CHECKING:
    from .adapter import Adapter

# What a worker observed, by the number of the statement: the results of those that have one in the chapter, and the
# error of the one that ended the example too early.
Answer: TypeAlias = dict[int, Result]
# Stands in place of a statement's number for what comes before the first: making the strategy, and the preamble.
BEFORE = -1


@dataclass(frozen=True)
class Code:
    """A block of code; `line` is that of its first line in its file."""

    source: str
    line: int


@dataclass(frozen=True)
class Program:
    """What an implementation runs: a case without its results, or a program that no chapter has.

    Attributes:
        strategy: on which one.
        file: the name that tracebacks show.
        preamble: what is run first and has no results.
        example: the program.
        observe: the numbers of its statements, from 0, whose results are wanted.
    """

    strategy: str
    file: str
    preamble: Code | None
    example: Code
    observe: tuple[int, ...]


def program(case: Case) -> Program:
    """What an implementation runs of a case."""
    preamble = case.chapter.preamble
    return Program(case.strategy, case.chapter.path.name, _code(preamble) if preamble else None, _code(case.example),
                   tuple(i for i, statement in enumerate(case.example.statements)
                         if statement.expected(case.strategy) is not None))


def _code(example: Example) -> Code:
    """The statements of an example where they stand, without the comments after them, which are the results."""
    lines: list[str] = []
    for statement in example.statements:
        blank = statement.line - example.line - len(lines)
        # Statements may share a line, which each of them has.
        lines += [""] * blank + statement.source.split("\n") if blank >= 0 else []
    return Code("\n".join(lines), example.line)


def run_example(adapter: Adapter, program: Program, answer: Answer | None = None) -> Answer:
    """Runs a program in this process and answers what was observed; into `answer` if that is given."""
    answer = {} if answer is None else answer
    names: dict[str, Any] = {}
    with nothing_left(adapter):
        try:
            _run(adapter, program, answer, names)
        finally:
            names.clear()  # a function keeps the names of its program, and they keep it
    return answer


@contextmanager
def nothing_left(adapter: Adapter) -> Iterator[None]:
    """Puts back what a program may leave to the next one: environment variables, what becomes of the signal of
    termination, and the strategy of the process."""
    before, terminated = dict(os.environ), signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if os.environ != before:
            os.environ.clear()
            os.environ.update(before)
        if signal.getsignal(signal.SIGTERM) is not terminated:
            signal.signal(signal.SIGTERM, terminated)
        # What a partial implementation lacks, no program has called.
        with suppress(Exception):
            if adapter.tf.distribute.has_strategy():
                adapter.tf.distribute.experimental_set_strategy(None)


def _run(adapter: Adapter, program: Program, answer: Answer, names: dict[str, object]) -> None:
    names.update(__name__="example", tf=adapter.tf)
    blocks = [program.preamble, program.example] if program.preamble else [program.example]
    linecache.cache[program.file] = (1, None, _page(blocks), program.file)
    try:
        names["strategy"] = adapter.strategy(program.strategy)
        if any("other" in block.source and _names_other(block) for block in blocks):
            names["other"] = adapter.strategy("Mirrored 2")
        if program.preamble:
            exec(_compiled(program.preamble, program.file), names)
    except Exception as error:
        answer[BEFORE] = raised(adapter, error)
        return
    for i, statement in enumerate(_parsed(program.example).body):
        try:
            if i in program.observe and isinstance(statement, ast.Expr):
                answer[i] = adapter.observe(eval(_compiled_statement(program.example, program.file, i, "eval"), names))
            else:
                exec(_compiled_statement(program.example, program.file, i, "exec"), names)
                if i in program.observe:
                    answer[i] = None
        except Exception as error:
            answer[i] = raised(adapter, error)
            if i not in program.observe:
                break


# One strategy after another has the same example, and one example after another the same preamble.
@functools.lru_cache(maxsize=64)
def _parsed(block: Code) -> ast.Module:
    return ast.parse("\n" * (block.line - 1) + block.source)


@functools.lru_cache(maxsize=64)
def _compiled(block: Code, file: str) -> CodeType:
    return compile(_parsed(block), file, "exec")


@functools.lru_cache(maxsize=512)
def _compiled_statement(block: Code, file: str, index: int, mode: str) -> CodeType:
    statement = _parsed(block).body[index]
    if isinstance(statement, ast.Expr) and mode == "eval":
        return compile(ast.Expression(statement.value), file, mode)
    return compile(ast.Module([statement], []), file, mode)


def _names_other(block: Code) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "other" for node in ast.walk(_parsed(block)))


def ended(program: Program, answer: Answer, error: Result) -> None:
    """Completes the answer of a worker that did not come to the end: the statement at which it was raised the error."""
    missing = [i for i in program.observe if i not in answer]
    if missing:
        answer[missing[0]] = error


def worker() -> int:
    """The number of this worker, which is in TF_CONFIG."""
    task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {})
    return int(task.get("index", 0))


def _page(blocks: Sequence[Code]) -> list[str]:
    """The chapter's lines for tracebacks: code at its line, and blank lines in place of prose."""
    lines: list[str] = []
    for block in blocks:
        lines += ["\n"] * (block.line - 1 - len(lines))
        lines += [f"{line}\n" for line in block.source.splitlines()]
    return lines


def raised(adapter: Adapter, error: BaseException) -> Result:
    """An exception as a result."""
    message = " ".join(str(error).split())
    return {"error": adapter.kind_of(error), "message": f"{type(error).__name__}: {message[:500]}"}
