"""Random programs find what is wrong, once, and leave alone what is right or lacking."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
import refdist.tf
from refdist.checkpoints import checkpoint
from refdist.conformance import chapters, session
from refdist.conformance.adapter.session import InProcess
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.capabilities import TABLE, needs
from refdist.conformance.chapters import Case
from refdist.conformance.examples import Program
from refdist.conformance.judging import judge
from refdist.conformance.random_programs import (
    checkpoints,
    command,
    datasets,
    generators,
    nests,
    operations,
    servers,
    values,
    variables,
)
from refdist.conformance.random_programs.command import clause_of, known_classes, page
from refdist.conformance.random_programs.comparison import Comparison, Kind, case_of, first_difference
from refdist.conformance.random_programs.operations import Family
from refdist.conformance.random_programs.writer import RandomProgram, Writer
from refdist.conformance.results import Result
from refdist.conformance.session import Reply

WORKED = Path(chapters.__file__).parent / "testees" / "worked.py"
FILE = Path(__file__).parent.parent / "conformance" / "expected" / "tensorflow_random.txt"
PROGRAMS = 300  # in which every operation occurs
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")]


@pytest.fixture(autouse=True)
def devices() -> Iterator[None]:
    with refdist.config.temporary_devices():
        yield


class Liar(InProcess):
    """refdist, but some of its attributes are others while it is asked."""

    def __init__(self, *lies: tuple[type, str, Callable[[Any], Any]]) -> None:
        super().__init__(Simulated())
        self.name, self._lies = "liar", lies

    def ask(self, program: Program, case: Case | None = None) -> Reply:
        with pytest.MonkeyPatch.context() as patch:
            for owner, name, lie in self._lies:
                patch.setattr(owner, name, lie(getattr(owner, name)))
            return super().ask(program, case)


def test_a_difference_of_the_last_bit_counts_where_all_bits_do() -> None:
    program = RandomProgram("Default", (("tf.constant(0.1)", "a constant"),))
    exact, next_to_it = (Reply([{0: {"dtype": "float32", "shape": [], "data": [number]}}])
                         for number in (0.10000000149011612, 0.10000000894069672))
    assert first_difference(program, exact, next_to_it, range(1)) is None
    difference = first_difference(program, exact, next_to_it, range(1), bitwise=True)
    assert difference is not None and str(difference.kind) == "a constant @ Default 1: another array"
    assert first_difference(program, exact, exact, range(1), bitwise=True) is None


def reversed_gather(right: Callable[..., Any]) -> Callable[..., Any]:
    def all_gather(*args: Any, **kwargs: Any) -> Any:
        return refdist.nest.map_structure(lambda gathered: gathered[::-1], right(*args, **kwargs))
    return all_gather


def double_mean(right: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(self: Any, op: Any, value: Any, axis: Any = None) -> Any:
        reduced = right(self, op, value, axis=axis)
        return refdist.nest.map_structure(lambda array: array.astype("float64"), reduced) if op == "MEAN" else reduced
    return reduce


def of_another_kind(right: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return right(*args, **kwargs)
        except ValueError as error:
            raise KeyError(str(error)) from error
    return run


def without_scatter(right: Callable[..., Any]) -> Callable[..., Any]:
    def scatter(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("scatter")
    return scatter


GATHER = (refdist.ReplicaContext, "all_gather", reversed_gather)
REDUCE = (refdist.Strategy, "reduce", double_mean)
LIED_ABOUT = (values.all_gather, values.cross, values.cross_of_a_value)


def compared(other: session.Tester, count: int, start: int = 0, shrink: Callable[[Kind], bool] = lambda kind: False
             ) -> Comparison:
    comparison = Comparison(InProcess(Simulated()), other, bitwise=True)
    comparison.run(count, start, shrink)
    return comparison


def one_each(*words: str) -> Callable[[Kind], bool]:
    """Whether a class is the first one with a word in its name."""
    left = list(words)

    def shrink(kind: Kind) -> bool:
        match = next((word for word in left if word in str(kind)), None)
        if match:
            left.remove(match)
        return match is not None

    return shrink


@functools.cache
def drawn(count: int, lacks: frozenset[str] = frozenset()) -> list[RandomProgram]:
    honest = InProcess(Simulated())
    honest.lacks = lacks
    comparison = Comparison(honest, honest)
    return [program for number in range(count) for program in comparison._drawn(f"0 {number}")]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has programs drawn of some operations alone."""
    def restrict(*chosen: Callable[[Writer], None], servers: bool = False) -> None:
        families = (Family(chosen, (servers,), variables=True), Family((variables.created,), (False, True)))
        monkeypatch.setattr(operations, "FAMILIES", families)
        if servers:
            monkeypatch.setattr(operations, "STRATEGIES", ("Default",))
    return restrict


def test_programs_are_those_of_every_operation() -> None:
    programs = drawn(PROGRAMS)
    names = " ".join(name for program in programs for _, name in program.statements)
    for word in ("all_reduce of", "all_gather of", "all_reduce twice", "run with", "reduce of", "gather of",
                 " reduce_to", "batch_reduce_to", "local results", "merge_call", "broadcast_to", "values from a",
                 "HierarchicalCopyAllReduce", "ReductionToOneDevice", "a dataset of", "a dataset function of",
                 "compute_average_loss", "an error in", "created in the scope", "assign_sub outside", "in replicas",
                 "scatter_", "update outside", "update in merge_call", "update_non_slot", "colocated", "ON_READ",
                 "slices", "float64", "read_var", "another strategy", "@ Mirrored", "@ Servers",
                 "schedule", "a checkpoint of variables", "a variable under two names", "a manager", "uniform",
                 "a generator from the state of another", "nest.map_structure", "nest.flatten", "an attrs object",
                 "a named tuple", "a dataclass", "a dataset of number", "of complex64", "from a NumPy array"):
        assert word in names, word
    assert max(len(program.statements) for program in programs) >= 20
    assert {program.strategy for program in programs} == set(operations.STRATEGIES)


def test_every_statement_is_one_and_has_a_result() -> None:
    honest = InProcess(Simulated())
    errors = 0
    for drawn_program in drawn(PROGRAMS)[:60]:
        program = drawn_program.program()
        body = ast.parse(program.example.source).body
        assert len(body) == len(drawn_program.statements)
        assert [i for i in range(len(body)) if not isinstance(body[i], ast.FunctionDef)] == list(program.observe)
        reply = honest.ask(program)
        assert not reply.outcome, reply
        for answer in reply.answers:
            for i, result in answer.items():
                if isinstance(result, dict) and "error" in result:
                    errors += 1
                    # What refdist does not expect is a fault of the program, or of refdist.
                    assert result["error"] != "crash" or "NameError" in str(result["message"]) \
                        or "on purpose" in str(result["message"]), (drawn_program.statements[i], result)
        if all(set(answer) == set(program.observe) for answer in reply.answers):
            verdict = judge(case_of(drawn_program, reply), reply.answers)
            assert verdict.outcome in ("passed", "unsupported"), verdict
    assert errors > 30


# Faults that other random programs have found, each put back, and the operations that show it.

def each_name_by_itself(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tracked: [([name], value) for name, value in tracked.items()]


def with_its_counter(right: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, path: str, *rest: Any) -> Any:
        if int(self.save_counter) and "save_counter" not in dict(refdist.train.list_variables(path)):
            raise ValueError("no value of save_counter")
        return right(self, path, *rest)
    return read


def of_the_state(right: Callable[..., Any]) -> Callable[..., Any]:
    def from_state(state: Any, alg: Any) -> Any:
        if isinstance(state, refdist.Variable):
            with state.distribute_strategy.scope():
                return right(state, alg)
        return right(state, alg)
    return from_state


def without_defaults(right: Callable[..., Any]) -> Callable[..., Any]:
    def padded_batch(self: Any, batch_size: int, padded_shapes: Any = None, padding_values: Any = None,
                     drop_remainder: bool = False) -> Any:
        if isinstance(padding_values, tuple) and None in padding_values:
            raise TypeError("value is None")
        return right(self, batch_size, padded_shapes, padding_values, drop_remainder)
    return padded_batch


def rounded_twice(right: Callable[..., Any]) -> Callable[..., Any]:
    def scatter(self: Any, operation: str, array: Any, indices: Any, values: Any) -> Any:
        if operation != "mul" or array.dtype != "complex64":
            return right(self, operation, array, indices, values)
        product = np.array(array, "complex128")
        np.multiply.at(product, indices, values)
        return product.astype("complex64")
    return scatter


def of_no_shards(right: Callable[..., Any]) -> Callable[..., Any]:
    def reduce_to(self: Any, op: Any, value: Any, destinations: Any, *rest: Any) -> Any:
        if hasattr(destinations, "variables"):
            raise ValueError("destinations is a sharded variable")
        return right(self, op, value, destinations, *rest)
    return reduce_to


def of_no_floats(right: Any) -> Callable[..., Any]:
    def variable(value: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        if getattr(value, "dtype", np.dtype(bool)).kind == "f" and np.dtype(dtype).kind in "iu":
            raise ValueError("floats to integers")
        return right(value, *args, dtype=dtype, **kwargs)
    return variable


def without_keywords(right: Callable[..., Any]) -> Callable[..., Any]:
    def assert_same_structure(first: Any, second: Any) -> None:
        right(first, second)
    return assert_same_structure


FAULTS: dict[str, tuple[tuple[Any, str, Callable[[Any], Any]], Callable[[Writer], None], bool]] = {
    "a variable under two names": (
        (checkpoint, "_by_object", each_name_by_itself), checkpoints.written_and_read, False),
    "written and then saved": (
        (refdist.train.Checkpoint, "read", with_its_counter), checkpoints.counted, False),
    "a generator from the state of another": (
        (refdist.random.Generator, "from_state", of_the_state), generators.drawn, False),
    "padded_batch with some values": (
        (refdist.data.Dataset, "padded_batch", without_defaults), datasets.transformed, False),
    "a variable of int": ((refdist.tf, "Variable", of_no_floats), variables.converted, False),
    "nest.assert_same_structure without types": (
        (refdist.nest, "assert_same_structure", without_keywords), nests.called, False),
    "scatter_mul": (
        (refdist.get_strategy().extended.backend.__class__, "scatter", rounded_twice),
        variables.scattered_of_any_dtype, False),
    "reduce_to with a variable of the servers": (
        (refdist.StrategyExtended, "reduce_to", of_no_shards), servers.reduced_to, True),
}


@pytest.mark.parametrize("operation", FAULTS)
def test_faults_that_were_found_by_others_are_found(operation: str, only: Callable[..., None]) -> None:
    lie, drawn_operation, servers = FAULTS[operation]
    only(drawn_operation, servers=servers)
    comparison = compared(Liar(lie), 60 if servers else 40)
    assert any(operation in kind.operation for kind in comparison.found), comparison.found


def test_what_is_right_has_no_difference() -> None:
    comparison = compared(InProcess(Simulated()), 40, 7)
    assert (comparison.done, comparison.left_out, comparison.found) == (40, 0, {})


def test_two_lies_are_two_sorts_of_differences_and_what_is_printed_shows_them(tmp_path: Path,
                                                                              only: Callable[..., None]) -> None:
    only(*LIED_ABOUT)
    shrunk: list[Kind] = []
    first = one_each("all_gather", "reduce of")
    comparison = compared(Liar(GATHER, REDUCE), 40, shrink=lambda kind: first(kind) and not shrunk.append(kind))
    kinds = set(comparison.found)
    gathers = {kind for kind in kinds if "all_gather" in kind.operation}
    assert gathers and {kind.difference for kind in gathers} <= {"another array", "another list"}
    means = kinds - gathers
    assert means and all("reduce" in kind.operation for kind in means)
    assert all(kind.difference.startswith("dtype float64 instead of ") for kind in means)

    (tmp_path / "random.md").write_text(page(comparison, {}, 0), encoding="utf-8")
    read = chapters.read(tmp_path / "random.md")
    assert len(read.clauses) == len(kinds) and {clause.rule for clause in read.clauses} == set(map(str, kinds))
    honest, liar = InProcess(Simulated()), Liar(GATHER, REDUCE)
    for case in chapters.cases((read,)):
        assert honest.run(case).outcome == "passed", case.source
        assert liar.run(case).outcome == "failed", case.source
        if case.clause.rule in map(str, shrunk):
            # The values, and the operation that differs.
            assert len(case.example.statements) <= 6 and not case.strategy.endswith(("5", "8")), case.source
    assert len(shrunk) == 2


def test_the_same_seed_prints_the_same(only: Callable[..., None]) -> None:
    only(*LIED_ABOUT)

    def printed(start: int) -> str:
        return page(compared(Liar(REDUCE), 15, start, one_each("reduce")), {}, start)

    assert printed(2) == printed(2) != printed(3)


def test_errors_and_a_lost_process_are_differences(only: Callable[..., None]) -> None:
    class Crashing(InProcess):
        def ask(self, program: Program, case: Case | None = None) -> Reply:
            crashes = ".all_gather(" in program.example.source
            return Reply([], "errored", "it has ended with exit status 1") if crashes else super().ask(program, case)

    classes = compared(Crashing(Simulated()), 20, shrink=one_each("all_gather")).found
    assert classes and all(kind.difference == "it has ended with exit status N" for kind in classes)
    assert all("all_gather" in kind.operation for kind in classes)
    assert all(".all_gather(" in seen.difference.example.program().example.source for seen in classes.values())
    only(variables.scattered_of_any_dtype)
    raising = compared(Liar((refdist.Variable, "scatter_add", without_scatter)), 20).found
    assert {kind.difference for kind in raising} == {"a refusal instead of a result", "another refusal"}
    assert all(kind.operation.startswith("scatter_add") for kind in raising)


def test_what_differs_only_after_other_programs_is_reported_with_them() -> None:
    class Tired(InProcess):
        def ask(self, program: Program, case: Case | None = None) -> Reply:
            reply = super().ask(program, case)
            if len(program.observe) < 80:  # more than any program has alone
                return reply
            return Reply([{**answer, max(answer): None} for answer in reply.answers])

    classes = compared(Tired(Simulated()), 40).found
    assert classes and all(kind.operation == "anything after other programs" for kind in classes)
    assert all(len(seen.difference.example.program().observe) >= 80 for seen in classes.values())


@pytest.mark.parametrize(("operations", "refused", "operation"), [
    (("all_gather of an array", "all_reduce of bool"), True, "a collective after one that was refused"),
    (("all_gather of an array", "all_reduce of bool"), False, "all_reduce of bool"),
    (("merge_call: gather of an array", "batch_reduce_to of bool"), True, "a collective after one that was refused"),
    (("all_gather of an array", ".gather_nd of a variable"), True, ".gather_nd of a variable"),
    (("assign, a list", "all_reduce of bool"), True, "all_reduce of bool")])
@pytest.mark.parametrize("strategy", ["Mirrored 2", "MultiWorker 2x1"])
def test_a_collective_after_a_refused_one_is_of_one_class(operations: tuple[str, str], refused: bool, operation: str,
                                                          strategy: str) -> None:
    program = RandomProgram(strategy, tuple((f"{name}()", what) for name, what in zip("ab", operations, strict=True)))
    error: Result = {"error": "value", "message": ""}
    first = error if refused else 1
    workers = 2 if strategy.startswith("MultiWorker") else 1
    replies = [Reply([{0: first, 1: second}] * workers) for second in (2, error)]
    difference = first_difference(program, *replies, range(2))
    assert difference and difference.kind == Kind(operation, strategy.split()[0], "a refusal instead of a result")
    alone = first_difference(program, *replies, range(1, 2))
    assert alone and alone.kind.operation == operations[1]


@pytest.mark.parametrize("strategy", ["Central 2", "Mirrored 1", "OneDevice"])
def test_a_refused_collective_leaves_nothing_behind_where_replicas_do_not_meet(strategy: str) -> None:
    program = RandomProgram(strategy, (("a()", "all_gather of an array"), ("b()", "reduce_to of a nest")))
    error: Result = {"error": "value", "message": ""}
    difference = first_difference(program, Reply([{0: error, 1: 2}]), Reply([{0: error, 1: error}]), range(2))
    assert difference and difference.kind.operation == "reduce_to of a nest"


def test_which_refusal_it_is_counts_only_for_errors_that_a_program_raises() -> None:
    classes = compared(Liar((refdist.Strategy, "run", of_another_kind)), 40).found
    refusals = {kind for kind in classes if kind.difference == "another refusal"}
    own = set(classes) - refusals
    assert own and {kind.difference for kind in own} == {"raises lookup instead of raises value"}
    assert all(kind.operation.startswith("an error in") for kind in own)
    assert refusals and not any(kind.operation.startswith("an error in") for kind in refusals
                                if "outside of the scope" not in kind.operation and "NONE" not in kind.operation)


def test_another_refusal_hides_nothing_that_follows(only: Callable[..., None]) -> None:
    """A program that differs otherwise, too, is counted under that."""
    only(*LIED_ABOUT)
    alone = compared(Liar(REDUCE), 20).found
    both = compared(Liar(REDUCE, (refdist.Strategy, "run", of_another_kind)), 20).found
    assert {kind: seen.count for kind, seen in both.items() if kind in alone} \
        == {kind: seen.count for kind, seen in alone.items()}


def test_known_classes_are_counted_and_not_looked_at(only: Callable[..., None]) -> None:
    only(*LIED_ABOUT)
    asked: list[int] = []

    class Counting(Liar):
        def ask(self, program: Program, case: Case | None = None) -> Reply:
            asked.append(1)
            return super().ask(program, case)

    def counts(known: bool) -> tuple[dict[Kind, int], int]:
        asked.clear()
        comparison = Comparison(InProcess(Simulated()), Counting(GATHER), lambda kind: known)
        comparison.run(10)
        return {kind: seen.count for kind, seen in comparison.found.items()}, len(asked)

    (known, few), (new, many) = counts(True), counts(False)
    assert known == new and known and few <= 10 < many


@pytest.mark.parametrize("lacks", [{"all_gather", "workers", "Central"}, {"variables", "datasets", "dtypes"},
                                   {*TABLE} - {"Mirrored", "all_reduce"}])
def test_nothing_is_asked_that_is_lacking(lacks: set[str]) -> None:
    programs = drawn(20, frozenset(lacks))
    assert all(not needs(program.program()) & lacks for program in programs)
    assert any(len(program.statements) > 3 for program in programs)
    assert any(needs(program.program()) & lacks for program in drawn(PROGRAMS)[:20])


def test_what_is_not_run_is_counted_apart() -> None:
    class Partial(InProcess):
        def ask(self, program: Program, case: Case | None = None) -> Reply:
            return Reply([], "skipped", "no") if program.strategy == "Mirrored 2" else super().ask(program, case)

    comparison = compared(Partial(Simulated()), 30)
    assert comparison.left_out and comparison.done + comparison.left_out == 30 and not comparison.found


def test_a_testee_is_asked_recorded_programs(tmp_path: Path) -> None:
    """With the worked testee, and with one that adds wrongly."""
    def compared_with(source: Path) -> Comparison:
        other = session.tester(f"testee:{sys.executable} {source}")
        try:
            return compared(other, 25)
        finally:
            other.close()

    right = compared_with(WORKED)
    assert right.done > 10
    wrong = tmp_path / "wrong.py"
    sums, twice = "total = sum(rows[1:], rows[0])", "total = sum(rows[1:], rows[0] + rows[0])"
    assert sums in WORKED.read_text()
    wrong.write_text(WORKED.read_text().replace(sums, twice))
    new = set(compared_with(wrong).found) - set(right.found)
    assert new and all("reduce" in kind.operation and kind.difference.startswith("another") for kind in new)


def test_known_classes_hide_no_others(tmp_path: Path, only: Callable[..., None]) -> None:
    only(*LIED_ABOUT)
    path = tmp_path / "known.txt"
    path.write_text("# a comment\n\nall_gather of * @ Mirrored: another array | all_gather.no-such-clause\n")
    with pytest.raises(ValueError, match=r"known.txt:3: .* is not `class \| clause` with a clause"):
        known_classes(path)
    path.write_text("all_gather of * @ Mirrored: another array | all_gather.axis-must-be-an-int\n")
    known = known_classes(path)
    kind = Kind("all_gather of int32 along axis 0", "Mirrored", "another array")
    assert clause_of(kind, known) == "all_gather.axis-must-be-an-int"
    for other in (Kind(kind.operation, "Central", kind.difference), Kind(kind.operation, "Mirrored", "another shape"),
                  Kind("reduce of int32 without axis", "Mirrored", kind.difference)):
        assert clause_of(other, known) is None
    comparison = compared(Liar(GATHER, REDUCE), 40)
    text = page(comparison, {"all_gather *": "all_gather.axis-must-be-an-int"}, 0)
    assert "times all_gather" in text and "**all_gather" not in text and "**reduce" in text


def test_known_classes_of_tensorflow_are_described_by_their_clauses() -> None:
    """A clause says what TensorFlow does, or lists the kinds of errors of which TensorFlow's is one."""
    described = {clause.name for chapter in chapters.load() for clause in chapter.clauses if clause.tensorflow}
    described |= {case.clause.name for case in chapters.cases() for statement in case.example.statements
                  for expectation in statement.expectations
                  if isinstance(expectation.result, dict) and isinstance(expectation.result.get("error"), list)}
    assert set(known_classes(FILE).values()) <= described


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated = "refdist.conformance.adapters.simulated:Simulated"
    assert command.main(["--against", simulated, "--programs", "3"]) == 0
    assert "on 3 programs, seed 0: 0 classes of differences, 0 of them new." in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "says"), [
    (["--against", "nowhere:Nothing"], "ERROR: --against nowhere:Nothing: it ended"),
    (["--against", "testee:/no/such/program"], "ERROR: --against testee:/no/such/program: it cannot be started"),
    (["--against", "simulated", "--adapter", "testee:true"], "ERROR: --adapter testee:true: it "),
    (["--against", "simulated", "--programs", "0"], "ERROR: --programs is 0; make it 1 or more"),
    (["--against", "simulated", "--known", "no-such-file"], "ERROR: [Errno 2]"),
])
def test_the_command_names_what_it_cannot_run(arguments: list[str], says: str,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 4
    printed = capsys.readouterr()
    assert printed.err.startswith(says) and printed.out == "", printed.err
