"""Comparing two implementations on random programs: what differs, how often, and the shortest program that shows it.

**Classes.** Many programs show one difference, and a program may show several. So a difference has a class: the
operation, the kind of strategy, and how the results differ (a refusal, another dtype, other numbers). Every class is
reported once, with how often it was seen, and with one program. Only the first difference of a program counts, because
what comes after it may be its consequence; programs are short, so that no class hides others for long. One cause should
be few classes: that an implementation refuses what the other one does counts, and not what the other one had instead,
nor, of two refusals, which error each is. The errors that a program raises by itself count as they are.

**Packs.** What costs most is to begin: a process for each program, in some implementations. So several programs for one
strategy are asked as one long program, in which every statement has its result. A program whose results are equal
there is done, and so is one that differs in a way that is known. One that differs in a new way is asked alone, and that
answer counts; if it does not differ alone, the programs before it have left something behind, which is one class for
all operations. A pack without an answer is divided in two, down to single programs; what follows a crash, or something
left behind, is asked again.

**Where a program crashes** is known only if the implementation says so before it ends; most cannot. So the beginnings
of such a program are asked, until it is known with which operation the crash comes.

**Shrinking** is Hypothesis's, which draws every program by a seed of its own: among a hundred of one seed there are
many that hardly differ. For a new class the program is drawn again by its seed, with a test that fails at programs of
that class. Attempts at shorter ones are limited by number, not by time, so that the same seed prints the same. At last
whole operations are left out, because Hypothesis may not have come to that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from refdist.conformance.chapters import Case, Chapter, Clause
from refdist.conformance.comparison import places
from refdist.conformance.examples import BEFORE, Answer
from refdist.conformance.examples import program as program_of
from refdist.conformance.judging import comparable
from refdist.conformance.notation import NotAResult, on_one_line, parsed, shown
from refdist.conformance.programs import read, size
from refdist.conformance.random_programs.operations import programs
from refdist.conformance.random_programs.writer import RandomProgram, first_line, is_definition
from refdist.conformance.results import Result
from refdist.conformance.session import Reply, Tester

BATCH = 250  # programs that are drawn together
PACK = 8  # programs that are asked together
SHRINKS = 60  # programs that are asked to find a shorter one
NOTHING: Result = {"object": "nothing"}  # where there is no result
UNSUPPORTED = "unsupported"
REFUSED, ANOTHER_REFUSAL = "a refusal instead of a result", "another refusal"
MEETING = ("Mirrored", "MultiWorker")  # strategies whose replicas meet; a refusal may disturb their order
COLLECTIVE = re.compile(r"\b(all_reduce|all_gather|reduce|gather|reduce_to|batch_reduce_to)\b")  # of operations
REFUSALS = ("value", "type", "lookup", "context", "unsupported")  # the errors with which a call is refused
ON_PURPOSE = "on purpose"  # what the errors say that a program raises by itself


class _Shows(Exception):
    """A program shows the difference that is looked for."""


class _Enough(BaseException):
    """As many programs were asked as are asked to find a shorter one; not an error, which Hypothesis would examine."""


@dataclass(frozen=True)
class Kind:
    """A class of differences.

    Attributes:
        operation: what the statement does.
        strategy: the kind of strategy, with " 1" if it has one replica.
        difference: how the results differ.
    """

    operation: str
    strategy: str
    difference: str

    def __str__(self) -> str:
        return f"{self.operation} @ {self.strategy}: {self.difference}"

    def after_others(self) -> Kind:
        """The class of what differs only where other programs have been run before, whatever the operation is."""
        return replace(self, operation="anything after other programs")


@dataclass(frozen=True)
class Difference:
    """A difference: its class, the program up to the statement that shows it, and what was observed there."""

    kind: Kind
    example: RandomProgram
    text: str


@dataclass
class Found:
    """A class that was seen: how often, and its shortest example."""

    count: int
    difference: Difference


class Comparison:
    """Compares two implementations.

    Args:
        first, second: the implementations.
        known: which classes are only counted: they are neither asked alone nor made as short as possible.
        bitwise: whether floats must be equal to the bit.

    Attributes:
        done: how many programs were compared.
        left_out: how many more one of the two does not run.
        found: the classes of differences.
    """

    def __init__(self, first: Tester, second: Tester, known: Callable[[Kind], bool] = lambda kind: False,
                 bitwise: bool = False) -> None:
        self.first, self.second = first, second
        self._known = known
        self._bitwise = bitwise
        self.done = self.left_out = 0
        self.found: dict[Kind, Found] = {}
        # Of the programs of a batch, and what they are shrunk to.
        self._differences: dict[RandomProgram, Difference | None] = {}
        self._not_run: set[RandomProgram] = set()
        self._alike: set[Kind] = set()  # seen in a program that was asked alone

    def run(self, count: int, start: int = 0, shrink: Callable[[Kind], bool] = lambda kind: True) -> None:
        """Compares on `count` programs, those that the number `start` stands for.

        Args:
            count: how many.
            start: which ones.
            shrink: which of the classes that are not known to make as short as possible.
        """
        for first in range(0, count, BATCH):
            self._batch([f"{start} {number}" for number in range(first, min(first + BATCH, count))], shrink)

    def _batch(self, seeds: Sequence[str], shrink: Callable[[Kind], bool]) -> None:
        drawn = {program: which for which in seeds for program in self._drawn(which)}
        self._differences, self._not_run = {}, set()
        by_strategy: dict[str, list[RandomProgram]] = {}
        for program in drawn:
            by_strategy.setdefault(program.strategy, []).append(program)
        for alike in by_strategy.values():
            waiting = iter(alike)
            while pack := list(islice(waiting, PACK)):
                self._ask(pack)
        new: dict[Kind, str] = {}
        for program, which in drawn.items():
            self.left_out += program in self._not_run
            self.done += program not in self._not_run
            if difference := self._differences[program]:
                if difference.kind not in self.found:
                    self.found[difference.kind] = Found(0, difference)
                    new[difference.kind] = which
                self.found[difference.kind].count += 1
        for kind in new:
            if not self._known(kind) and shrink(kind):
                self._shrink(kind, new[kind])

    def _drawn(self, which: str) -> list[RandomProgram]:
        """The program of a seed; it comes after the simplest one of all, with which Hypothesis begins."""
        drawn: list[RandomProgram] = []
        self._draw(which, drawn.append)
        return drawn[1:]

    def _draw(self, which: str, test: Callable[[RandomProgram], None]) -> None:
        """Draws the simplest program and that of a seed, and shorter ones where the test fails."""
        @seed(which)
        @settings(max_examples=2, deadline=None, database=None, print_blob=False,
                  phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck))
        @given(programs(self.second.lacks))
        def run(program: RandomProgram) -> None:
            test(program)

        run()

    def _shrink(self, kind: Kind, which: str) -> None:
        shown_by, attempts = self.found[kind], 0

        def test(program: RandomProgram) -> None:
            nonlocal attempts
            if program not in self._differences:
                attempts += 1
                if attempts > SHRINKS:
                    raise _Enough
                self._differences[program] = self._alone(program)
            difference = self._differences[program]
            if difference and difference.kind == kind:
                shown_by.difference = difference
                raise _Shows

        try:
            self._draw(which, test)
        except (_Shows, _Enough):
            self._leave_out(shown_by)

    def _leave_out(self, shown_by: Found) -> None:
        """Leaves out operations that are not needed to show a difference, the last ones first."""
        operations = dict.fromkeys(operation for _, operation in shown_by.difference.example.statements)
        for operation in [*operations][-2::-1]:
            example = shown_by.difference.example
            kept = tuple(statement for statement in example.statements if statement[1] != operation)
            shorter = replace(example, statements=kept)
            difference = self._alone(shorter)
            if difference and difference.kind == shown_by.difference.kind:
                shown_by.difference = difference

    def _ask(self, pack: list[RandomProgram]) -> None:
        """Asks both implementations programs for one strategy, and notes what differs."""
        statements = tuple(statement for program in pack for statement in program.statements)
        joined = RandomProgram(pack[0].strategy, statements)
        expected, replied = self._replies(joined) if len(pack) > 1 else (None, None)
        if expected is None or replied is None or _lost(expected, joined) or _lost(replied, joined):
            if len(pack) == 1:
                self._differences[pack[0]] = self._alone(pack[0])
            else:
                self._ask(pack[:len(pack) // 2])
                self._ask(pack[len(pack) // 2:])
            return
        end = 0
        for number, program in enumerate(pack, 1):
            start, end = end, end + len(program.statements)
            difference = first_difference(joined, expected, replied, range(start, end), self._bitwise)
            left_behind = False
            if difference and difference.kind not in self._alike and not self._known(difference.kind):
                alone = self._alone(program)
                left_behind = alone is None
                difference = alone or replace(difference, kind=difference.kind.after_others())
            self._differences[program] = difference
            if difference and (left_behind or "crash" in difference.kind.difference) and number < len(pack):
                # Nothing says that the implementation is still in order.
                self._ask(pack[number:])
                return

    def _alone(self, program: RandomProgram) -> Difference | None:
        """How two implementations differ on a program; None if they do not, or one of them does not run it."""
        difference = self._difference(program)
        if difference:
            self._alike.add(difference.kind)
        return difference

    def _difference(self, program: RandomProgram) -> Difference | None:
        expected, replied = self._replies(program)
        if {"skipped", "unsupported"} & {expected.outcome, replied.outcome}:
            self._not_run.add(program)
            return None
        if _lost(replied, program) and not _lost(expected, program):
            expected, replied = self._replies(program)  # On a busy machine a limit may have been reached once.
        if expected.outcome or (_lost(replied, program) and not _lost(expected, program)):
            return self._crash(program, 0 if expected.outcome else 1)
        return first_difference(program, expected, replied, range(BEFORE, len(program.statements)), self._bitwise)

    def _crash(self, program: RandomProgram, which: int) -> Difference:
        """The first operation with which one of the two, the first or the second, has no answer any more."""
        operations = [operation for _, operation in program.statements]
        ends = [i for i in range(1, len(operations)) if operations[i - 1] != operations[i]] + [len(operations)]
        least, most = 0, len(ends) - 1
        while least < most:
            middle = (least + most) // 2
            beginning = replace(program, statements=program.statements[:ends[middle]])
            least, most = (least, middle) if _lost(self._replies(beginning)[which], beginning) else (middle + 1, most)
        example = replace(program, statements=program.statements[:ends[least]])
        replies = self._replies(example)
        why = _lost(replies[which], example) or "sometimes no answer"
        kind = _class_of(program, operations[ends[least] - 1], f"{self.first.name}: {why}" if which == 0 else why)
        return Difference(kind, example, why)

    def _replies(self, asked: RandomProgram) -> tuple[Reply, Reply]:
        expected = self.first.ask(asked.program())
        if expected.outcome:
            return expected, Reply()
        case = case_of(asked, expected)
        return expected, self.second.ask(program_of(case), case)


def _lost(reply: Reply, program: RandomProgram) -> str:
    """Why a reply lacks a result that was asked for; nothing if it has all of them."""
    if reply.outcome:
        return on_one_line(re.sub(r"\d+", "N", reply.message), 60)
    observed = sum(not is_definition(source) for source, _ in program.statements)
    for answer in reply.answers:
        for result in answer.values() if len(answer) < observed else ():
            if isinstance(result, dict) and result.get("error") == "crash":
                return on_one_line(str(result.get("message")), 60)
    return "" if len(reply.answers) == size(program.strategy)[0] else "another number of answers"


def first_difference(program: RandomProgram, reference: Reply, replied: Reply, statements: range,
                     bitwise: bool = False) -> Difference | None:
    """The first of some statements on which two answers differ; none if the other one does not do it.

    What follows another refusal is not its consequence, and counts before it.  But a collective that is refused where
    one has been refused before is of a class of its own where several replicas meet: an implementation may have lost
    its order, and what the collective is does not matter.
    """
    refusal: Difference | None = None
    broken, meeting = False, _place(program.strategy) in MEETING
    pairs = [[comparable(answer, program.strategy) for answer in answers]
             for answers in zip(reference.answers, replied.answers, strict=True)]
    for i in statements:
        operation = program.statements[i][1] if i != BEFORE else "making the strategy"
        collective = COLLECTIVE.search(operation) is not None
        for worker, (expected, actual) in enumerate(pairs):
            if i not in expected and i not in actual:
                continue
            how = _how(expected.get(i, NOTHING), actual.get(i, NOTHING), bitwise)
            if how == REFUSED and collective and broken:
                operation = "a collective after one that was refused"
            if how == UNSUPPORTED:
                return refusal
            if not how or (how == ANOTHER_REFUSAL and refusal):
                continue
            result = (f"worker {worker}: " if len(pairs) > 1 else "") + shown(actual.get(i, NOTHING))
            beginning = replace(program, statements=program.statements[:i + 1])
            difference = Difference(_class_of(program, operation, how), beginning, result)
            if how != ANOTHER_REFUSAL:
                return difference
            refusal = difference
        broken |= meeting and collective and any(_error(actual.get(i, NOTHING)) for _, actual in pairs)
    return refusal


def _place(strategy: str) -> str:
    workers, replicas = size(strategy)
    return strategy.partition(" ")[0] + (" 1" if workers * replicas == 1 else "")


def _class_of(program: RandomProgram, operation: str, difference: str) -> Kind:
    """The class of a difference; the strategy is that of the operation, which may not be that of the program."""
    name, _, place = operation.partition(" @ ")
    return Kind(name, place or _place(program.strategy), difference)


def _how(expected: Result, actual: Result, bitwise: bool) -> str:
    """How two results differ, in a few words without their numbers; nothing if they do not."""
    for _, wanted, part in places(expected, actual, bitwise):
        errors = _error(wanted), _error(part)
        if errors[1] == "raises unsupported":
            return UNSUPPORTED
        if any(errors):
            return f"{errors[1] or 'a result'} instead of {errors[0] or 'a result'}" if errors[0] != errors[1] \
                else ANOTHER_REFUSAL
        kinds = _kind(wanted), _kind(part)
        if kinds[0] != kinds[1]:
            return f"{kinds[1]} instead of {kinds[0]}"
        if isinstance(wanted, dict) and isinstance(part, dict) and wanted.get("dtype") != part.get("dtype"):
            return f"dtype {part['dtype']} instead of {wanted['dtype']}"
        if isinstance(wanted, dict) and isinstance(part, dict) and wanted.get("shape") != part.get("shape"):
            return "another shape"
        return f"another {kinds[0]}"
    return ""


def _error(result: Result) -> str:
    """What error a result is; nothing if it is none."""
    if not isinstance(result, dict) or "error" not in result:
        return ""
    by_itself = ON_PURPOSE in str(result.get("message"))
    return "a refusal" if result["error"] in REFUSALS and not by_itself else f"raises {result['error']}"


def _kind(result: Result) -> str:
    """What a result is, without its numbers."""
    if not isinstance(result, dict):
        return "None" if result is None else type(result).__name__
    return "array" if "dtype" in result else next(iter(result))


# A random program as a case of the chapters.

def chapter(program: RandomProgram) -> Chapter:
    """The chapter of a random program, without clauses."""
    return Chapter("random", "", read(program.preamble, 1, 0), (), Path("random.md"))


def text(program: RandomProgram, answers: Sequence[Answer], all_results: bool = False) -> str:
    """A program with the results of its statements, as it stands in a chapter.

    Args:
        program: what was asked.
        answers: the results, of each worker.
        all_results: whether that of an assignment, None, is written as well.
    """
    lines = []
    for i, (source, _) in enumerate(program.statements):
        lines.append(source.rstrip())
        for worker, answer in enumerate(comparable(answer, program.strategy) for answer in answers):
            if i in answer and (all_results or answer[i] is not None or _is_expression(source)):
                lines.append(f"# {f'worker {worker}: ' if len(answers) > 1 else ''}{_written(answer[i])}")
        if source.endswith("\n"):
            lines.append("")
    return "\n".join(lines)


def case_of(program: RandomProgram, reply: Reply) -> Case:
    """A program as a case, whose results are those of a reply."""
    example = read(text(program, reply.answers, all_results=True), first_line(program.preamble))
    clause = Clause("random.program", "", "SHOULD", "", "", "silent", "", (program.strategy,), "", "", (example,), 1)
    return Case(chapter(program), clause, example, program.strategy)


def _is_expression(source: str) -> bool:
    return isinstance(ast.parse(source).body[0], ast.Expr)


def _written(result: Result) -> str:
    """A result in the notation; that anything will do where it is none that the notation has."""
    if isinstance(result, dict) and "error" in result:
        return f"raises {result['error']}"
    written = shown(result, limit=10 ** 6)
    try:
        return written if parsed(written) == result else "holds True"
    except NotAResult:
        return "holds True"
