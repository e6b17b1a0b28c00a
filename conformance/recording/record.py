"""Recording: a case as data, which an implementation in any language can run.

The example is run on refdist's simulated world, where every step is written down (`recorder.py`), once for each worker.
A replica that the reference did not start, because one before it had raised, would run in an implementation whose
replicas run at once. What such a replica does is recorded in another run of the whole example, in which it is the only
one that does anything, and which ends there; beyond its first collective there is nothing to record, because it cannot
come back from that.

What was observed meanwhile is judged as the answers of any implementation are: a program that went another way because
it was watched is not recorded.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Any

from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.chapters import Case
from refdist.conformance.examples import BEFORE, Answer, Program, nothing_left, program, raised, worker
from refdist.conformance.judging import judge, wanted_of
from refdist.conformance.programs import size
from refdist.conformance.protocol import case_message
from refdist.conformance.recording.proxies import Named
from refdist.conformance.recording.recorder import Recorder, Refused, Stop
from refdist.conformance.recording.rewriting import names, rewritten
from refdist.conformance.recording.trace import NOTHING, Tree, emitted


class NotRecorded(ValueError):
    """Only Python can run this program; the text says why."""


class _Recording(Simulated):
    """refdist, with everything that a program does written down."""

    def __init__(self, only: tuple[int, int, int] | None = None) -> None:
        super().__init__()
        self._only = only
        self.workers: dict[int, tuple[Recorder, list[tuple[int, int, Tree]]]] = {}

    def execute(self, program: Program, answer: Answer) -> Answer:
        number = worker() if program.strategy.startswith("MultiWorker") else 0
        only = self._only[1:] if self._only is not None and self._only[0] == number else None
        recorder = Recorder(self, only)
        statements: list[tuple[int, int, Tree]] = []
        self.workers[number] = recorder, statements
        own, remove = names(recorder)
        recorder.names = own | {"__name__": "example", "tf": Named(recorder, self.tf, "tf")}
        try:
            with nothing_left(self):
                self._run(program, recorder, statements, answer)
        finally:
            remove()
        return answer

    def _run(self, program: Program, recorder: Recorder, statements: list[tuple[int, int, Tree]],
             answer: Answer) -> None:
        body = recorder.program
        blocks = [program.preamble] if program.preamble else []
        for name, kind in _strategies(program).items():
            recorder.names[name] = Named(recorder, self.strategy(kind), name)
        for block in blocks:
            tree = ast.increment_lineno(rewritten(ast.parse(block.source), recorder), block.line - 1)
            exec(compile(tree, program.file, "exec"), recorder.names)
        statements.append((BEFORE, len(body.steps), NOTHING))
        example = program.example
        for i, statement in enumerate(ast.parse(example.source).body):
            recorder.statement = i
            value: Tree = NOTHING
            tree = ast.increment_lineno(rewritten(ast.Module([statement], []), recorder), example.line - 1)
            try:
                if i in program.observe and isinstance(tree.body[0], ast.Expr):
                    result = eval(compile(ast.Expression(tree.body[0].value), program.file, "eval"), recorder.names)
                    value, real = recorder.unwrapped(result)
                    answer[i] = self.observe(real)
                else:
                    exec(compile(tree, program.file, "exec"), recorder.names)
                    if i in program.observe:
                        answer[i] = value = None
                body.settle()
            except Exception as error:
                answer[i] = raised(self, error)
                body.ended(error, self.kind_of(error))
                body.failed = None
            finally:
                # Also where the run ends, because another worker does not come any more.
                statements.append((i, len(body.steps), value))
            if len(body.blocks) > 1:
                recorder.refuse("a scope is open at the end of a statement")
            if i in answer and i not in program.observe:
                break


def _strategies(program: Program) -> dict[str, str]:
    """The strategies that a program finds, by their names."""
    blocks = [program.preamble, program.example] if program.preamble else [program.example]
    used = {node.id for block in blocks for node in ast.walk(ast.parse(block.source)) if isinstance(node, ast.Name)}
    return {"strategy": program.strategy} | ({"other": "Mirrored 2"} if "other" in used else {})


def recorded(case: Case) -> list[list[dict[str, object]]]:
    """The program of a case as steps: of each worker, or one for all if they are the same.

    Raises:
        NotRecorded: only Python can run it.
    """
    wanted = program(case)
    first = _Recording()
    try:
        answers = first.run(wanted)
    except Refused as error:
        raise NotRecorded(str(error)) from None
    for recorder, _ in first.workers.values():
        if recorder.refusal is not None:
            raise NotRecorded(recorder.refusal)
    verdict = judge(case, answers)
    if verdict.outcome != "passed":
        raise NotRecorded(f"it goes another way when it is recorded: {verdict.message}")
    for number, (recorder, _) in first.workers.items():
        for run, replica in recorder.missing:
            _add(first, wanted, number, run, replica)
    programs = [emitted(recorder.program, statements) for _, (recorder, statements) in sorted(first.workers.items())]
    return programs[:1] if all(steps == programs[0] for steps in programs) else programs


def _add(first: _Recording, program: Program, number: int, run: int, replica: int) -> None:
    """Adds what a replica does that was not started, from a run in which it is alone."""
    second = _Recording((number, run, replica))
    with suppress(Stop):
        second.run(program)
    function, alone = first.workers[number][0].runs[run], second.workers[number][0].runs[run]
    assert function is not None and alone is not None
    for body in alone.bodies:
        body.statement = None
    function.bodies += alone.bodies
    function.bodies.sort(key=lambda body: -1 if body.replica is None else body.replica)


def question(case: Case) -> dict[str, Any]:
    """A case as an implementation in another language is asked it: with its steps, or why there are none."""
    try:
        return case_message(case, programs=recorded(case))
    except NotRecorded as error:
        return case_message(case, only_python=str(error))


def record(case: Case) -> dict[str, Any]:
    """A case as data: the question, and the results that are expected."""
    done = question(case)
    return done | {"expected": [_expected(case, i) for i in done["observe"]]}


def _expected(case: Case, i: int) -> dict[str, object]:
    statement = case.example.statements[i]
    expectations = statement.expected(case.strategy)
    assert expectations is not None
    wanted = [wanted_of(expectations, number, case.strategy) for number in range(size(case.strategy)[0])]
    if wanted[0].holds:
        return {"statement": i, "holds": wanted[0].holds}
    return {"statement": i, "results": [expectation.result for expectation in wanted]}
