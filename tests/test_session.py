"""Implementations that are run as processes of their own: what goes wrong costs one case."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis.errors import Flaky

from refdist.conformance import judging, protocol, session
from refdist.conformance.adapter import properties
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.capabilities import TABLE, needs
from refdist.conformance.chapters import Case, cases
from refdist.conformance.examples import Code, Program, program
from refdist.conformance.judging import Verdict
from refdist.conformance.protocol import Unusable

pytestmark = pytest.mark.slow

CASES = [case for case in cases() if not case.example.parameters]
SIMULATED = "refdist.conformance.adapters.simulated:Simulated"
TESTEE = str(Path(__file__).parent / "misbehaving.py")
AT = 100
SAMPLE = [case for case in CASES if not case.strategy.startswith("MultiWorker")][:AT + 10]
SHORT, LONG = 2.0, 120.0  # seconds; for a question at which it hangs, and for others, at which it is only slow


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    adapter = Simulated()
    return [protocol.answers_message(adapter.run(program(case))) for case in SAMPLE]


@pytest.fixture
def file(answers: list[Any], tmp_path: Path) -> Path:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(answers))
    return path


def started(file: Path, way: str, number: int = AT) -> session.Session:
    return session.Session([sys.executable, TESTEE, str(file), way, str(number)], LONG)


@contextlib.contextmanager
def in_a_hurry(testee: session.Session) -> Iterator[None]:
    """Only what is asked in this block is not waited for."""
    testee._limit = SHORT
    try:
        yield
    finally:
        testee._limit = LONG


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def verdicts_of(testee: session.Session, file: Path) -> list[Verdict]:
    """The verdicts on all cases of the sample; the processes of the testee have ended."""
    verdicts = [testee.run(case, bitwise=True) for case in SAMPLE]
    testee.close()
    for pid in map(int, file.with_suffix(".pids").read_text().split()):
        assert not is_running(pid)
    for verdict in verdicts:
        assert len(verdict.message) < 5000 and len(verdict.output) < 5000
        assert all(character.isprintable() or character in "\n\t" for character in verdict.message + verdict.output)
        verdict.output.encode()
    return verdicts


# What it does at case 100, whether its process is started again, and what the verdict on the case says.
LOSE = {
    "exits": (1, "it ended with exit status 3 before it had answered"),
    "exits_well": (1, "it ended with exit status 0 before it had answered"),
    "raises": (1, "it ended with exit status 1 before it had answered"),
    "aborts": (1, "it was ended by SIGABRT"),
    "is_killed": (1, "it was ended by SIGKILL"),
    "exits_and_leaves_a_process_with_its_pipes": (1, "it ended with exit status 5 before it had answered"),
    "closes_its_output": (1, "it has closed its standard output"),
    "sends_an_endless_line": (1, "a line of more than 8,388,608 bytes"),
    "sends_20_million_numbers": (1, "a line of more than 8,388,608 bytes"),
    "answers_the_next_one": (1, "an answer with the id 101 to question 100"),
    "answers_with_a_text_for_an_id": (1, "an answer with the id '100' to question 100"),
    "answers_with_a_float_for_an_id": (1, "an answer with the id 100.5 to question 100"),
    "answers_without_an_id": (1, "an answer with the id None to question 100"),
    "answers_with_null_for_an_id": (1, "an answer with the id None to question 100"),
    "sends_half_a_line": (1, r"a line that is not JSON \(Expecting value"),
    "sends_python": (1, r"a line that is not JSON \(Expecting property name"),
    "sends_nan": (1, "a line that is not JSON .JSON has no NaN; it is the text .nan"),
    "sends_utf_16": (1, "a line that is not UTF-8"),
    "sends_utf_16_without_a_mark": (1, "a line that is not UTF-8"),
    "sends_latin_1": (1, "a line that is not UTF-8"),
    "sends_a_tower": (1, r"a line that is not JSON \(maximum recursion"),
    "sends_an_integer_of_10_000_digits": (1, r"a line that is not JSON \(Exceeds the limit"),
    "raises_a_text_of_a_megabyte": (0, r"raises crash \(xxx"),
    "prints_control_characters": (0, r"found .*\?\[2J"),
    "says_nothing": (0, "it has one of answers, skip, unsupported"),
    "says_two_things": (0, "it has one of answers, skip, unsupported"),
    "skips_without_a_reason": (0, "skipped without a reason: ''"),
    "does_not_support_a_list": (0, r"unsupported without a reason: \['x'\]"),
    "answers_with_a_number": (0, "the answers are 3; they are a list"),
    "answers_for_no_worker": (0, "0 answers for 1 workers"),
    "answers_for_three_workers": (0, "3 answers for 1 workers"),
    "answers_with_an_object": (0, "worker 0: its answer is {'0': 1}"),
    "answers_a_statement_that_does_not_exist": (0, "statement 77: its result was not asked for"),
    "answers_a_statement_twice": (0, "a statement is a number, and has one result"),
    "answers_a_statement_named_by_a_text": (0, "statement '0': a statement is a number"),
    "answers_too_little": (0, "no result of this statement, and no error of one before it"),
    "ragged": (0, r"an array of shape \[2, 2\] has 4 elements, and this one has 3"),
    "of_an_unknown_dtype": (0, "'float31' is not a dtype"),
    "of_a_list_of_dtypes": (0, r"\['float32'\]. is not a dtype"),
    "of_a_negative_shape": (0, "is not a list of sizes"),
    "of_texts_for_numbers": (0, "one is not an element of an array of float32"),
    "too_large_for_a_float": (0, "is not a number"),
    "too_many_digits": (0, "is not a number"),
    "a_bare_number": (0, "a number is"),
    "a_bare_list": (0, "a list"),
    "an_unknown_kind": (0, "'banana' is not a kind of error"),
    "an_error_that_is_a_list": (0, r"\['value'\]. is not a kind of error"),
    "half_a_character": (0, "is not Unicode"),
    "slices_of_nothing": (0, "slices have"),
    "an_object_of_objects": (0, "is not a text"),
    "nested_deeply": (0, "nested more than 100 times"),
}


@pytest.mark.parametrize("way", LOSE)
def test_what_goes_wrong_at_a_case_costs_this_case_and_no_other(file: Path, way: str) -> None:
    restarts, says = LOSE[way]
    testee = started(file, way)
    verdicts = verdicts_of(testee, file)
    assert [i for i, verdict in enumerate(verdicts, 1) if verdict.outcome != "passed"] == [AT]
    lost = verdicts[AT - 1]
    assert lost.outcome in ("errored", "failed") and testee.restarts == restarts
    assert re.search(says, lost.message), lost.message


# What it does at case 100, and what is shown of it.
KEEP = {
    "closes_its_input": "",
    "prints_a_line": "debug: the sum is 3",
    "prints_blank_lines": "",
    "prints_json": '{"level": "info", "text": "working"}\n[1, 2]\n7',
    "prints_50_mb_on_stderr": "(50,000,000 bytes; the last 4,000:)\nxxx",
    "prints_50_mb_on_stdout": "(50,000,000 bytes; the last 4,000:)\nxxx",
    "answers_the_one_before_again": '{"id": 99, "answers"',
}


@pytest.mark.parametrize("way", KEEP)
def test_what_breaks_nothing_costs_nothing_and_is_shown(file: Path, way: str) -> None:
    verdicts = verdicts_of(started(file, way), file)
    assert {verdict.outcome for verdict in verdicts} == {"passed"}
    assert verdicts[AT - 1].output.startswith(KEEP[way]) and (KEEP[way] or not verdicts[AT - 1].output)


@pytest.mark.parametrize("way", ["answers_twice", "answers_twice_differently"])
def test_a_second_answer_is_not_taken_for_that_to_the_next_question(file: Path, way: str) -> None:
    testee = started(file, way)
    verdicts = verdicts_of(testee, file)
    assert {verdict.outcome for verdict in verdicts} == {"passed"} and testee.restarts == 0
    assert '{"id": 100, "answers"' in verdicts[AT - 1].output + verdicts[AT].output


def test_what_ends_between_two_questions_costs_at_most_one_of_them(file: Path) -> None:
    verdicts = verdicts_of(testee := started(file, "exits_after_its_answer"), file)
    assert {i for i, verdict in enumerate(verdicts, 1) if verdict.outcome != "passed"} <= {AT + 1}
    assert testee.restarts == 1


def test_what_it_wrote_last_is_shown(file: Path) -> None:
    verdicts = verdicts_of(started(file, "exits_in_the_middle_of_a_line"), file)
    assert [(i, verdict.output) for i, verdict in enumerate(verdicts, 1) if verdict.outcome != "passed"] == [
        (AT, "terminate called after")]


def test_what_stops_reading_a_question_is_not_waited_for(file: Path) -> None:
    testee = started(file, "hello_and_closes_its_input_in_the_middle_of_a_question")
    reply = testee.ask(Program("Mirrored 2", "some.md", None, Code("#" * 10**6, 1), ()))
    assert (reply.outcome, reply.message) == ("errored", "it has closed its standard input")
    testee.close()


@pytest.mark.parametrize("way", ["hangs", "hangs_and_refuses_to_end", "hangs_with_a_process", "prints_for_ever",
                                 "prints_for_ever_on_stderr"])
def test_what_takes_too_long_is_ended_and_costs_one_case(file: Path, way: str) -> None:
    testee = started(file, way, 3)
    verdicts = [testee.run(case) for case in SAMPLE[:2]]
    with in_a_hurry(testee):
        verdicts.append(testee.run(SAMPLE[2]))
    verdicts += [testee.run(case) for case in SAMPLE[3:6]]
    testee.close()
    assert [verdict.outcome for verdict in verdicts] == ["passed", "passed", "errored", *["passed"] * 3]
    assert verdicts[2].message == "no answer within 2 s" and testee.restarts == 1
    assert ("still thinking" in verdicts[2].output) == ("prints" in way)
    for pid in map(int, file.with_suffix(".pids").read_text().split()):
        assert not is_running(pid)


@pytest.mark.parametrize(("way", "says"), [
    ("hello_exits", "it ended with exit status 7 before it had answered; it printed:\nno license"),
    ("hello_of_protocol_99", "it speaks protocol 99, and this suite speaks protocol 1"),
    ("hello_without_a_name", 'write {"protocol": 1, "name": NAME'),
    ("hello_lacks_quantum", "'quantum' is not a capability; there are Default, OneDevice, "),
    ("hello_lacks_a_number", "its capabilities are 3; they are a list of names"),
    ("hello_has_and_lacks", "both what it lacks and what it has"),
    ("hello_never", "it has not said who it is within 2 s"),
])
def test_a_wrong_first_line_is_wrong_usage(file: Path, way: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "START_LIMIT", SHORT if way == "hello_never" else LONG)
    with pytest.raises(Unusable, match=re.escape(says)):
        started(file, way)
    written = file.with_suffix(".pids")  # not by what is ended before its first line
    assert not written.exists() or not any(map(is_running, map(int, written.read_text().split())))


@pytest.mark.parametrize("way", ["hello_after_a_banner", "hello_with_a_mark"])
def test_lines_before_the_first_message_do_not_matter(file: Path, way: str) -> None:
    testee = started(file, way, 0)
    assert (testee.name, testee.version, testee.lacks) == ("misbehaving", "0", frozenset())
    assert testee.run(SAMPLE[0]).outcome == "passed"
    testee.close()


def test_what_cannot_be_started_again_is_given_up(file: Path) -> None:
    verdicts = verdicts_of(started(file, "hello_only_once"), file)
    assert [verdict.outcome for verdict in verdicts[:AT - 1]] == ["passed"] * (AT - 1)
    assert verdicts[AT - 1].message == "it ended with exit status 3 before it had answered"
    for verdict in verdicts[AT:]:
        assert verdict.outcome == "errored"
        assert verdict.message.startswith("it could not be started again, 3 times in a row: ")
        assert verdict.message.endswith(
            "it ended with exit status 1 before it had answered; it printed: the license has expired")
    assert file.with_suffix(".starts").read_text() == "x" * 4


def test_a_start_that_fails_once_costs_nothing(file: Path) -> None:
    verdicts = verdicts_of(started(file, "hello_not_the_second_time"), file)
    assert [i for i, verdict in enumerate(verdicts, 1) if verdict.outcome != "passed"] == [AT]


def test_reasons_for_not_running_a_case_are_counted_apart(file: Path) -> None:
    for key, outcome in (("skip", "skipped"), ("unsupported", "unsupported")):
        testee = session.Session([sys.executable, "-c", f"""if True:
            import json, sys
            sys.stdin.readline()
            print(json.dumps({{"protocol": 1, "name": "mine", "has": ["Mirrored"]}}), flush=True)
            for line in sys.stdin:
                print(json.dumps({{"id": json.loads(line)["id"], {key!r}: "not on Tuesdays"}}), flush=True)"""])
        assert testee.lacks == frozenset(TABLE) - {"Mirrored"}
        outcomes = [(verdict.outcome, verdict.message) for verdict in map(testee.run, SAMPLE)]
        lacking = next(case for case in SAMPLE if needs(program(case)) == {"Mirrored"})
        assert outcomes[SAMPLE.index(lacking)] == (outcome, "not on Tuesdays")
        assert all(reason.startswith("needs ") for _, reason in outcomes if reason != "not on Tuesdays")
        testee.close()


# Adapters in Python, in a process of their own.

@pytest.mark.parametrize("in_process", [True, False])
def test_refdist_passes_in_this_process_and_in_another_one(in_process: bool) -> None:
    simulated = session.tester(SIMULATED, in_process=in_process)
    assert (simulated.name, simulated.lacks) == (Simulated.name, frozenset())
    assert {simulated.run(case, bitwise=True).outcome for case in CASES[::20]} == {"passed"}
    simulated.close()


@pytest.fixture(scope="module")
def simulated() -> Iterator[session.Session]:
    made = session.tester(SIMULATED, LONG)
    assert isinstance(made, session.Session)
    yield made
    made.close()


def code(source: str, *observe: int) -> Program:
    return Program("Mirrored 2", "some.md", None, Code(source, 5), observe)


@pytest.mark.parametrize(("source", "line"), [("import time\n\ntime.sleep(1000)", "7 in <module>"),
                                              ("while True:\n    pass", "")])
def test_an_example_that_hangs_is_ended_and_its_line_named(simulated: session.Session, source: str, line: str) -> None:
    assert simulated.ask(code("1", 0)).outcome == ""  # it has started
    with in_a_hurry(simulated):
        reply = simulated.ask(code(source, 0))
    assert (reply.outcome, reply.message) == ("errored", "no answer within 2 s")
    assert f'File "some.md", line {line}' in reply.output


@pytest.mark.parametrize(("source", "outcome", "message", "output"), [
    ("import os\nos._exit(3)", "errored", "it ended with exit status 3 before it had answered", ""),
    ("import sys\nsys.exit()", "errored", "it ended with exit status 0 before it had answered", ""),
    ("raise KeyboardInterrupt", "errored", "it was ended by SIGINT", "KeyboardInterrupt"),
    ("import os\nos.abort()", "errored", "it was ended by SIGABRT", ""),
    ("import os\nos.kill(os.getpid(), 11)", "errored", "it was ended by SIGSEGV", ""),
    ("import os\nos.closerange(0, 100)", "errored", "it ", ""),
    ("print('hello')\n2", "", "", "hello"),
    ("import os\nos.write(1, b'{')\n2", "", "", "{"),
    ("import subprocess\nsubprocess.run(['echo', 'hello'])\n2", "", "", "hello"),
    ("import os\nif os.fork() == 0:\n    os._exit(0)\n2", "", "", ""),
])
def test_what_an_example_does_to_its_process(simulated: session.Session, source: str, outcome: str, message: str,
                                             output: str) -> None:
    last = len(ast.parse(source).body) - 1
    reply = simulated.ask(code(source, last))
    assert (reply.outcome, message in reply.message, output in reply.output) == (outcome, True, True), reply
    if not outcome:
        assert reply.answers == [{last: {"int": 2}}]
    assert simulated.ask(code("1", 0)).answers == [{0: {"int": 1}}]


@pytest.mark.parametrize("in_process", [True, False])
def test_temporary_files_of_cases_are_removed_with_the_session(in_process: bool) -> None:
    tester, before = session.tester(SIMULATED, LONG, in_process), tempfile.gettempdir()
    makes, starts = "import subprocess, tempfile\ntempfile.mkdtemp()", "subprocess.getoutput('mktemp -d')"
    answers = tester.ask(code(makes, 1) if in_process else code(f"{makes}\n{starts}", 1, 2)).answers
    folders = [Path(folder) for answer in answers for folder in answer.values()]
    assert len(folders) == (1 if in_process else 2) and all(folder.is_dir() for folder in folders)
    tester.close()
    assert not any(folder.exists() for folder in folders)
    assert tempfile.gettempdir() == before


def test_an_example_cannot_read_the_questions(simulated: session.Session) -> None:
    [answer] = simulated.ask(code("input()", 0)).answers
    assert answer == {0: {"error": "crash", "message": "EOFError: EOF when reading a line"}}


def test_an_adapter_that_raises_costs_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text("""if True:
        from refdist.conformance.adapters.simulated import Simulated

        class Broken(Simulated):
            def run(self, program):
                if program.example.source == "1":
                    return super().run(program)
                return {"2": [{0: 3}], "3": None, "4": [{0: {1}}]}[program.example.source]

        class Unmade(Simulated):
            def __init__(self):
                raise OSError("no device")

        class Quantum(Simulated):
            lacks = frozenset({"quantum"})""")
    for in_process in (False, True):
        broken = session.tester("mine:Broken", LONG, in_process)
        assert broken.ask(code("2", 0)).message == ('worker 0, statement 0: the result is 3; a number is {"int": 3}, '
                                                    'a list {"list": [...]}')
        for source in "345":
            reply = broken.ask(code(source, 0))
            assert reply.outcome == "errored" and ("Error: " in reply.output or "the result is {1}" in reply.message)
            assert broken.ask(code("1", 0)).answers == [{0: {"int": 1}}]
        broken.close()
        with pytest.raises(Unusable, match=r"mine:Unmade: OSError: no device \(.*mine.py:12\)$"):
            session.tester("mine:Unmade", LONG, in_process)
        with pytest.raises(Unusable, match="'quantum' is not a capability; there are "):
            session.tester("mine:Quantum", LONG, in_process)


# What an adapter does once, for some values of a property, and what the verdict says.
ONCE = {
    "lies": ("failed", 'found "wrong"; it does not hold that ', 0),
    "raises": ("errored", "it ended with exit status 1 before it had answered", 1),
    "sends_nonsense": ("errored", "the result is 3; a number is", 0),
    "exits": ("errored", "it ended with exit status 3 before it had answered", 1),
    "hangs": ("errored", "no answer within 2 s", 1),
    "answers_late": ("errored", "no answer within 2 s", 1),
}


@pytest.mark.parametrize("way", ONCE)
def test_what_goes_wrong_once_at_a_property_costs_it(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(f"""if True:
        import os, time
        from pathlib import Path
        from refdist.conformance.adapters.simulated import Simulated

        class Once(Simulated):
            asked = 0

            def run(self, program):
                Once.asked += 1
                if Once.asked != 5 or Path("done").exists():
                    return super().run(program)
                Path("done").touch()
                return getattr(self, {way!r})(program)

            def lies(self, program):
                return [dict.fromkeys(answer, "wrong") for answer in super().run(program)]

            def raises(self, program):
                raise ValueError("no")

            def sends_nonsense(self, program):
                return [dict.fromkeys(answer, 3) for answer in super().run(program)]

            def exits(self, program):
                os._exit(3)

            def hangs(self, program):
                time.sleep(1000)

            def answers_late(self, program):
                time.sleep({SHORT + 1})
                return super().run(program)""")
    outcome, says, restarts = ONCE[way]
    case = next(case for case in cases() if case.name == "all_reduce.sum #2 @ Mirrored 2")
    once = session.tester("own:Once", LONG)
    asked = 0

    def run(drawn: Case) -> Verdict:
        nonlocal asked
        asked += 1
        with in_a_hurry(once) if asked == 5 and "2 s" in says else contextlib.nullcontext():
            return once.run(drawn)

    verdict = properties.examine(case, run)
    assert (verdict.outcome, verdict.case, once.restarts) == (outcome, case, restarts)
    assert says in verdict.message and ", where values = [" in verdict.message
    assert properties.examine(case, once.run).outcome == "passed"
    once.close()


def test_a_failure_counts_whatever_other_values_come_to() -> None:
    case = next(case for case in cases() if case.name == "all_reduce.sum #2 @ Mirrored 2")
    for outcomes in (["failed", "skipped"], ["errored", "unsupported"], ["unsupported", "skipped"]):
        left = ["passed", *outcomes]
        verdict = properties.examine(case, lambda drawn, left=left: Verdict(drawn, left.pop(0) if left else "passed"))
        assert verdict.outcome == outcomes[0]


@pytest.mark.parametrize(("outcomes", "heaviest", "asked"), [
    (["passed", "passed", "passed"], "passed", 3), (["skipped", "passed", "failed"], "failed", 3),
    (["passed", "errored", "failed"], "errored", 2), (["unsupported", "skipped", "unsupported"], "unsupported", 3)])
def test_of_kept_values_the_simplest_with_the_heaviest_outcome_is_the_verdict(outcomes: list[str], heaviest: str,
                                                                              asked: int) -> None:
    case = next(case for case in cases() if case.name == "all_reduce.sums-of-ints-wrap @ Mirrored 2")
    left = [Verdict(case.drawn({"b": i, "a": 2}), outcome, "why") for i, outcome in enumerate(outcomes)]
    verdict = judging.heaviest(case, (left.pop(0) for _ in outcomes))
    assert (verdict.outcome, verdict.case, len(outcomes) - len(left)) == (heaviest, case, asked)
    where = f"why, where a = 2, b = {outcomes.index(heaviest)}"
    assert verdict.message == ("" if heaviest == "passed" else where)


def test_a_mistake_of_the_suite_is_no_verdict_also_if_it_is_made_once() -> None:
    case = next(case for case in cases() if case.example.parameters)
    left = [ZeroDivisionError("a mistake")]

    def run(drawn: Case) -> Verdict:
        if left:
            raise left.pop()
        return Verdict(drawn, "passed")

    with pytest.raises(Flaky):
        properties.examine(case, run)


@pytest.mark.parametrize(("text", "says"), [
    ("nosuch", "is not package.module:Class"), ("nosuch:X", "No module named 'nosuch'"), ("os:path", "not callable"),
    ("os:nosuch", "has no attribute 'nosuch'"), ("decimal:Decimal", "is not a refdist.conformance.adapter.Adapter"),
    ("testee:", "write testee:COMMAND"), ("testee:'", "No closing quotation"), ("testee:/nosuch/it", "No such file"),
    ("testee:cat", "its first line is {'protocol': 1, 'suite'"),
    ("testee:true", "it ended with exit status 0 before it had answered"),
])
def test_what_an_option_does_not_name_is_wrong_usage(text: str, says: str) -> None:
    with pytest.raises(Unusable, match=says):
        session.tester(text, in_process=True)


# The end of the suite.

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(("what", "processes"), [("", 1), ("os.fork() or os.setpgid(0, 0)", 2)])
def test_no_process_outlives_the_suite(tmp_path: Path, number: signal.Signals, what: str,
                                       processes: int) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # All processes of the example hold the pipe open.
    source = f"import os, time\npipe = open({str(pipe)!r}, 'wb', 0)\n{what}\npipe.write(b'x')\ntime.sleep(1000)"
    # What was started in the background may have inherited that it ignores SIGINT.
    suite = subprocess.Popen([sys.executable, "-c", f"""if True:
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from refdist.conformance.examples import Code, Program
        from refdist.conformance.session import tester
        tester({SIMULATED!r}).ask(Program("Mirrored 2", "some.md", None, Code({source!r}, 1), (1,)))"""],
        stderr=subprocess.DEVNULL)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as held:
        begun, _, _ = select.select([held], [], [], 60)
        assert begun, "no process of the example has begun"
        os.set_blocking(held.fileno(), True)
        assert [held.read(1) for _ in range(processes)] == [b"x"] * processes
        suite.send_signal(number)
        assert suite.wait() != 0
        ended, _, _ = select.select([held], [], [], 30)
        assert ended and held.read() == b""
