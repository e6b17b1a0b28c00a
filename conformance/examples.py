"""Running an example on an implementation, and the verdict on what it answered.

The two halves never meet. The implementation's side (`run_example`, or a testee in another language) runs the
statements one by one and answers what it observed; it is given a `Program`, which says whose results are wanted and
not what they are. The suite's side (`judge`) compares. So an implementation in another process or another language is
compared exactly as one in this process is, and none of them can look up what it should have answered.

What a statement with a result raises is its result, and the example goes on; a statement without one must not raise,
and ends the example if it does.
"""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from refdist.conformance.chapters import Case, Example
from refdist.conformance.comparison import differences
from refdist.conformance.notation import shown
from refdist.conformance.results import Result

if TYPE_CHECKING:
    from refdist.conformance.adapter import Adapter

# What a worker observed, by the number of the statement: the results of those that have one in the chapter, and the
# error of the one that ended the example too early.
Answer: TypeAlias = dict[int, Result]
# The number of what is done before the first statement: making the strategy, and the preamble of the chapter.
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
    def code(example: Example) -> Code:
        return Code(example.source, example.line)

    preamble = case.chapter.preamble
    return Program(case.strategy, case.chapter.path.name, code(preamble) if preamble else None, code(case.example),
                   tuple(i for i, statement in enumerate(case.example.statements)
                         if statement.expected(case.strategy) is not None))


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case.

    Attributes:
        case: which one.
        outcome: "passed", "failed" (the implementation is wrong), "unsupported" (it says that it does not do this),
            "skipped" (a capability is missing) or "errored" (no answer that could be judged: a crash, nonsense).
        message: what differs, where.
        line: of the statement in the chapter.
        expected, found: of that statement, in the notation of the chapters.
        output: what the implementation printed meanwhile.
    """

    case: Case
    outcome: str
    message: str = ""
    line: int = 0
    expected: str = ""
    found: str = ""
    output: str = ""


def run_example(adapter: Adapter, program: Program, answer: Answer | None = None) -> Answer:
    """Runs a program in this process and answers what was observed; into `answer` if that is given."""
    answer = {} if answer is None else answer
    with _same_environment():
        _run(adapter, program, answer)
    return answer


@contextmanager
def _same_environment() -> Iterator[None]:
    """Puts back the environment variables that a program has set, so that the next one does not find them."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run(adapter: Adapter, program: Program, answer: Answer) -> None:
    names: dict[str, Any] = {"__name__": "example", "tf": adapter.tf}
    blocks = [program.preamble, program.example] if program.preamble else [program.example]
    linecache.cache[program.file] = (1, None, _page(blocks), program.file)
    trees = [ast.increment_lineno(ast.parse(block.source), block.line - 1) for block in blocks]
    example = trees.pop().body
    try:
        names["strategy"] = adapter.strategy(program.strategy)
        if any(isinstance(node, ast.Name) and node.id == "other" for part in [*trees, *example]
               for node in ast.walk(part)):
            names["other"] = adapter.strategy("Mirrored 2")
        for tree in trees:
            exec(compile(tree, program.file, "exec"), names)
    except Exception as error:
        answer[BEFORE] = raised(adapter, error)
        return
    for i, statement in enumerate(example):
        try:
            if i in program.observe and isinstance(statement, ast.Expr):
                code = compile(ast.Expression(statement.value), program.file, "eval")
                answer[i] = adapter.observe(eval(code, names))
            else:
                exec(compile(ast.Module([statement], []), program.file, "exec"), names)
                if i in program.observe:
                    answer[i] = None
        except Exception as error:
            answer[i] = raised(adapter, error)
            if i not in program.observe:
                break


def ended(program: Program, answer: Answer, error: Result) -> None:
    """Completes the answer of a worker that did not come to the end: the statement at which it was raised the error."""
    missing = [i for i in program.observe if i not in answer]
    if missing:
        answer[missing[0]] = error


def _page(blocks: Sequence[Code]) -> list[str]:
    """The lines of the chapter, blank where they are not code: what a traceback shows."""
    lines: list[str] = []
    for block in blocks:
        lines += ["\n"] * (block.line - 1 - len(lines))
        lines += [f"{line}\n" for line in block.source.splitlines()]
    return lines


def raised(adapter: Adapter, error: BaseException) -> Result:
    """An exception as a result."""
    message = " ".join(str(error).split())
    return {"error": adapter.kind_of(error), "message": f"{type(error).__name__}: {message[:500]}"}


def judge(case: Case, answers: Sequence[Answer], bitwise: bool = False, output: str = "") -> Verdict:
    """Compares the answers of the workers of a case with what the chapter says.

    Args:
        case: what was run.
        answers: of each worker, well-formed (`results.fault`).
        bitwise: whether floats must be equal to the bit.
        output: what the implementation printed, for the verdict.
    """
    workers, replicas = size(case.strategy)
    if len(answers) != workers:
        return Verdict(case, "errored", f"{len(answers)} answers for {workers} workers", output=output)
    for i, statement in [(BEFORE, None), *enumerate(case.example.statements)]:
        told = statement and statement.expected(case.strategy)
        wanted = expected(told, case.strategy) if told else [None] * workers
        for worker, (answer, one) in enumerate(zip(answers, wanted, strict=True)):
            said = f"worker {worker}: " if workers > 1 else ""
            line = statement.line if statement else case.example.line
            if i not in answer:
                if not told:
                    continue
                return Verdict(case, "errored", f"{said}no result of this statement", line, shown(one), "", output)
            result = _bare(answer[i]) if workers > 1 and replicas == 1 else answer[i]
            if isinstance(result, dict) and result.get("error") == "unsupported" and one != {"error": "unsupported"}:
                return Verdict(case, "unsupported", f"{said}{result.get('message', '')}", line, shown(one), "", output)
            if not told:
                return Verdict(case, "failed", f"{said}{shown(result)}, and must not", line, "", shown(result), output)
            difference = next(differences(one, result, bitwise), None)
            if difference is not None:
                return Verdict(case, "failed", said + difference, line, shown(one), shown(result), output)
    return Verdict(case, "passed", output=output)


def size(strategy: str) -> tuple[int, int]:
    """(workers, replicas of each)."""
    kind, _, count = strategy.partition(" ")
    if kind == "MultiWorker":
        workers, _, replicas = count.partition("x")
        return int(workers), int(replicas)
    return 1, int(count or 1)


def expected(results: Mapping[int | None, Result], strategy: str) -> list[Result]:
    """What each worker must observe."""
    workers, replicas = size(strategy)
    if workers == 1:
        return [results[None]]
    return [results[worker] if worker in results else _part(results[None], worker, workers, replicas)
            for worker in range(workers)]


def _part(result: Result, worker: int, workers: int, replicas: int) -> Result:
    """What one worker sees of a value: of a distributed value the parts of its own replicas, alone if it has one."""
    if isinstance(result, list):
        return [_part(item, worker, workers, replicas) for item in result]
    if not isinstance(result, dict) or "dtype" in result:
        return result
    if "per_replica" in result:
        parts = result["per_replica"]
        assert isinstance(parts, list)
        if len(parts) == workers * replicas:
            own = parts[worker * replicas:(worker + 1) * replicas]
            return own[0] if replicas == 1 else {"per_replica": own}
    return {key: _part(item, worker, workers, replicas) for key, item in result.items()}


def _bare(result: Any) -> Any:
    """A result whose distributed values of one part are that part."""
    if isinstance(result, list):
        return [_bare(item) for item in result]
    if not isinstance(result, dict):
        return result
    if "per_replica" in result and len(result["per_replica"]) == 1:
        return _bare(result["per_replica"][0])
    return {key: _bare(item) for key, item in result.items()}
