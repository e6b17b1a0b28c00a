"""The command `python -m refdist.conformance`, used as the author of an implementation uses it."""

from __future__ import annotations

import datetime
import gc
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

import pytest
from schemas import fault

import refdist
from refdist.conformance import page, report
from refdist.conformance.__main__ import main
from refdist.conformance.capabilities import PROFILES, needs
from refdist.conformance.chapters import SPEC, cases
from refdist.conformance.examples import program
from refdist.conformance.judging import Verdict
from refdist.conformance.options import OPTIONS, select

pytestmark = pytest.mark.slow

ADAPTERS = '''
from refdist import tf
from refdist.conformance.adapters.simulated import Simulated


class Wrong(Simulated):
    """Sums where a mean was asked for."""

    name, version = "wrong", "1"

    def __init__(self):
        super().__init__()
        right = tf.distribute.ReplicaContext.all_reduce
        tf.distribute.ReplicaContext.all_reduce = lambda self, op, value, options=None: right(self, "SUM", value)


class Unfinished(Simulated):
    """Does not do all_reduce yet."""

    name = "unfinished"

    def __init__(self):
        super().__init__()

        def all_reduce(self, op, value, options=None):
            raise NotImplementedError("all_reduce")

        tf.distribute.ReplicaContext.all_reduce = all_reduce


class Ending(Simulated):
    """Ends its process where it is asked for a mean."""

    name = "ending"

    def __init__(self):
        super().__init__()
        right = tf.distribute.ReplicaContext.all_reduce

        def all_reduce(self, op, value, options=None):
            if op == "MEAN":
                import os
                os._exit(3)
            return right(self, op, value, options)

        tf.distribute.ReplicaContext.all_reduce = all_reduce


class Crashing(Simulated):
    """Ends its process in every case."""

    name = "crashing"

    def run(self, program):
        import os
        os._exit(3)


class Interrupting(Simulated):
    """Sends what Ctrl-C sends to the suite, once."""

    name = "interrupting"

    def run(self, program):
        import os, signal
        os.kill(os.getpid(), signal.SIGINT)
        return super().run(program)


class StartedOnce(Simulated):
    """Cannot be started where several processes run the cases."""

    name = "started once"

    def __init__(self):
        import os
        if "PYTEST_XDIST_WORKER" in os.environ:
            raise OSError("the device is busy")
        super().__init__()


class Lying(Simulated):
    """Gives one wrong answer in twelve, whatever it is asked."""

    name, asked = "lying", 0

    def observe(self, value):
        Lying.asked += 1
        return "wrong" if Lying.asked % 12 == 0 else super().observe(value)


class Lacking(Simulated):
    name, lacks = "lacking", frozenset({"all_reduce"})


class Partial(Simulated):
    name, lacks = "partial", frozenset({"IndexedSlices", "dtypes", "workers", "variables"})


class Collective(Simulated):
    name, profile, lacks = "collective", "collectives", frozenset({"dtypes"})


class Without(Simulated):
    tf = property()
'''
CASES = list(cases())
MEAN = ("--clause", "all_reduce.mean", "--in-process")
# What cases of two chapters need that the adapter Partial lacks.
SKIPPED = [missing for case in select(CASES, ["all_reduce", "run"], [], None)
           if (missing := needs(program(case)) & {"IndexedSlices", "dtypes", "workers", "variables"})]
WITH_WRONG = ("--adapter", "own:Wrong", *MEAN)
needs_xdist = pytest.mark.skipif(find_spec("xdist") is None, reason="pytest-xdist is not installed")


# What Hypothesis prints where the garbage collector runs while a process ends.
NOISE = re.compile(r"Exception ignored in: <function gc_\S+gc_callback at .*>\n\s*Traceback .*\n(  .*\n)+.*\n")


@pytest.fixture
def suite(tmp_path: Path):
    """Runs the command in a folder with adapters of one's own; returns its exit status and what it printed.

    A copy of this process does it, which has read the chapters already."""
    (tmp_path / "own.py").write_text(ADAPTERS)

    def run(*arguments: object) -> tuple[int, str]:
        with (tmp_path / "printed").open("w+") as printed:
            pid = os.fork()
            if pid == 0:
                _become([*map(str, arguments)], tmp_path, printed.fileno())
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            printed.seek(0)
            output = printed.read()
        output = NOISE.sub("", output)
        assert "Traceback" not in output
        return status, output

    return run


def _become(arguments: list[str], folder: Path, printed: int) -> NoReturn:
    status = 99
    gc.freeze()  # pytest collects garbage as it ends, which takes seconds where all tests have been read
    # What was started in the background may have inherited that it ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        # Options of these tests, and that one of several processes runs them, which is not the suite's.
        for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
            os.environ.pop(name, None)
        sys.path.insert(0, str(folder))
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(printed, number)
            setattr(sys, name, os.fdopen(number, "w", buffering=1, closefd=False))
        status = main(arguments)
        sys.stdout.flush()
    finally:
        os._exit(status)


def test_the_command_is_a_module_of_python(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(ADAPTERS)
    done = subprocess.run([sys.executable, "-m", "refdist.conformance", *WITH_WRONG, "-k", "Mirrored-2"], cwd=tmp_path,
                          capture_output=True, text=True)
    assert done.returncode == 1 and "conformance of wrong 1" in done.stdout and not done.stderr


def test_there_is_a_line_for_each_chapter_and_level(suite) -> None:
    status, printed = suite("--clause", "all_reduce.mean", "--clause", "reduce.mean", "--in-process")
    lines = [line.split() for line in printed.splitlines()]
    assert status == 0 and ["passed"] in lines
    assert {line[0] for line in lines if len(line) == 2 and line[1].isdigit()} >= {"all_reduce", "reduce", "MUST"}
    assert "of 2 of 2 clauses" in printed


def test_a_clause_is_itself_and_anything_else_is_how_names_begin(suite) -> None:
    assert "of 1 of 1 clauses" in suite(*MEAN, "-k", "Mirrored-2")[1]
    assert "of 1 of 1 clauses" not in suite("--clause", "all_reduce.mea", "--in-process", "-k", "Mirrored-2")[1]


def test_a_failure_says_which_rule_where_it_is_from_and_which_line(suite) -> None:
    status, printed = suite(*WITH_WRONG, "-k", "Mirrored-2")
    assert status == 1
    for line in ("replica 0: found [3.0, 30.0] float32, expected [1.5, 15.0] float32",
                 "clause:    MEAN divides the sum by the number of replicas. (MUST)",
                 "source:    ReduceOp, description; the page is right", "strategy:  Mirrored 2",
                 "run alone: python -m refdist.conformance --adapter own:Wrong --in-process "
                 "--clause all_reduce.mean -k Mirrored-2",
                 "program:   all_reduce.md:"):
        assert line in printed
    assert [line.split()[2:] for line in printed.splitlines() if line.startswith("  > ")] == [["strategy.run(step)"]]


def test_a_failure_shows_what_the_chapter_defines(suite) -> None:
    printed = suite(*WITH_WRONG, "-k", "Mirrored-2")[1]
    program = printed[printed.index("  program:   all_reduce.md:"):].splitlines()
    chapter = (SPEC / "all_reduce.md").read_text().splitlines()
    numbered = [match for line in program if (match := re.fullmatch(r"  [> ] +(\d+)  (.*)", line))]
    assert "def rank():" in [match[2] for match in numbered]
    for number, line in (match.groups() for match in numbered):
        assert chapter[int(number) - 1].removeprefix("    ") == line


def test_failures_are_listed_by_name_and_without_paths(suite) -> None:
    printed = suite(*WITH_WRONG)[1]
    assert "\nfailed: all_reduce.mean @ Mirrored 2: replica 0: found [3.0, 30.0] float32, expected [1.5" in printed
    assert "suite.py" not in printed


def test_the_report_is_four_files_and_keeps_other_implementations(suite, tmp_path: Path) -> None:
    suite(*MEAN, "--report", "told")
    assert json.loads((tmp_path / "told" / "badge.json").read_text()) == {
        "schemaVersion": 1, "label": "tf.distribute", "color": "yellow",
        "message": f"6 of {sum(case.clause.level == 'MUST' for case in CASES)} MUST"}
    suite(*WITH_WRONG, "--report", "told")
    assert json.loads((tmp_path / "told" / "badge.json").read_text())["message"].startswith("1 of ")
    merged = report.read(tmp_path / "told")
    assert fault(merged, json.loads((SPEC.parent / "report.schema.json").read_text())) is None
    assert all(sum(row["seconds"] for row in rows) > 0.0 for rows in merged["implementations"].values())
    assert [{row["outcome"] for row in rows} for rows in merged["implementations"].values()] == [
        {"passed"}, {"passed", "failed"}]
    assert list(merged["runs"]) == ["refdist (simulated) 0.1.0", "wrong 1"]
    for facts in merged["runs"].values():
        assert facts["python"] == platform.python_version() and facts["suite"] == refdist.__version__
        assert facts["date"] == datetime.date.fromisoformat(facts["date"]).isoformat()
    table = (tmp_path / "told" / "report.md").read_text()
    assert "* `all_reduce.mean @ Mirrored 2`: replica 0: found" in table
    assert ("\n  Run alone: `python -m refdist.conformance --adapter own:Wrong --in-process --clause all_reduce.mean`\n"
            in table)
    assert (tmp_path / "told" / "report.html").read_text() == page.render(merged)


@pytest.mark.parametrize("text", [
    "", "{}", "[]", '{"implementations": {}}', "\udcff",
    '{"runs": {"a": {"suite": "0"}}, "chapters": {}, "clauses": {}, "implementations": {"a": []}}'])
def test_a_report_of_another_form_is_refused_before_the_run(suite, tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text, errors="surrogateescape")
    status, printed = suite(*MEAN, "--report", ".")
    assert status == 4 and "report.json is not a report of this version of the suite" in printed
    status, printed = suite("compare", ".", "--report", "new")
    assert status == 4 and "report.json is not a report of this version of the suite" in printed


def test_several_reports_become_one(suite, tmp_path: Path) -> None:
    suite(*MEAN, "--report", "a")
    suite(*WITH_WRONG, "--report", "b")
    suite("--clause", "reduce.mean", "--in-process", "--report", "b")
    status, printed = suite("compare", "a", "b/report.json", "--report", "new")
    names = ["refdist (simulated) 0.1.0 (a)", "wrong 1", "refdist (simulated) 0.1.0 (b/report.json)"]
    assert (status, printed) == (0, f"{', '.join(names)}: new/report.html\n")
    merged = report.read(tmp_path / "new")
    assert list(merged["runs"]) == list(merged["implementations"]) == names
    assert {row["clause"] for row in merged["implementations"][names[2]]} == {"reduce.mean"}
    assert (tmp_path / "new" / "report.html").exists()
    assert suite("compare", "a", "--report", "own.py")[0] == suite("compare", "nowhere", "--report", "c")[0] == 4
    assert suite("compare")[0] == suite("compare", "a")[0] == 4


@pytest.mark.parametrize(("outcomes", "message", "color"), [
    (["passed"] * 30, "30 of 30 MUST", "brightgreen"), (["passed"] * 29, "29 of 30 MUST", "yellow"),
    (["passed"] * 29 + ["skipped"], "29 of 30 MUST", "yellow"), (["skipped"] * 30, "0 of 30 MUST", "yellow"),
    (["passed"] * 29 + ["unsupported"], "29 of 30 MUST", "yellow"),
    (["passed"] * 29 + ["failed"], "29 of 30 MUST", "orange"),
    (["passed"] * 27 + ["errored"] * 3, "27 of 30 MUST", "orange"),
    (["passed"] * 26 + ["expected failure"] * 4, "26 of 30 MUST", "red"),
])
def test_a_badge_is_green_for_the_whole_suite_only(outcomes: list[str], message: str, color: str) -> None:
    case = next(case for case in CASES if case.clause.level == "MUST")
    rows = [report.row(Verdict(case, "passed"), outcome, "", "") for outcome in outcomes]
    should = {**rows[0], "level": "SHOULD", "outcome": "failed"}
    facts = {"suite": "0", "python": "3", "date": "", "command": "", "cases": {"MUST": 30, "SHOULD": 1}}
    assert report.badge(facts, [*rows, should]) == {
        "schemaVersion": 1, "label": "tf.distribute", "message": message, "color": color}


def test_what_is_unsupported_is_listed_and_not_counted_as_failed(suite) -> None:
    status, printed = suite("--adapter", "own:Unfinished", *MEAN, "-k", "Mirrored-2")
    assert status == 1 and printed.splitlines()[-1].startswith("5 deselected, 1 unsupported in ")
    assert "FAILURES" not in printed
    assert "\nunsupported: all_reduce.mean @ Mirrored 2: NotImplementedError: all_reduce\n" in printed


def test_a_run_of_a_partial_implementation_ends_in_its_table(suite) -> None:
    status, printed = suite("--adapter", "own:Partial", "--clause", "all_reduce", "--clause", "run", "--in-process")
    lines = printed[printed.index(" conformance of partial "):].splitlines()
    assert status == 0 and lines[1].split(", which need ")[0] == f"{len(SKIPPED)} skipped"
    [end] = [i for i, line in enumerate(lines) if "cases were judged" in line]
    assert len(lines) == end + 2 and len([line for line in lines if "need" in line]) == 1
    reasons = dict(re.findall(r"(\w[\w ]*) \((\d+)\)", " ".join(lines[1:4]).partition(" need ")[2]))
    assert reasons == {name: str(sum(name in missing for missing in SKIPPED)) for name in set().union(*SKIPPED)}


def test_reasons_of_a_testee_are_listed_by_how_often_they_come() -> None:
    def listed(count: int) -> list[str]:
        return list(report.skipped([report.row(Verdict(case, "skipped", f"no {i}"), "skipped", f"no {i}", "")
                                    for i in range(count) for case in CASES[:i + 1]]))

    assert listed(11) == [f"{i + 1} skipped: no {i}" for i in range(10, -1, -1)]
    assert listed(12) == [*(f"{i + 1} skipped: no {i}" for i in range(11, 1, -1)),
                        "3 skipped for 2 other reasons; --report FOLDER has all"]


CHAPTERS = ("--clause", "all_reduce", "--clause", "names", "--clause", "all_gather")


@pytest.mark.parametrize("processes", [(), pytest.param(("-n", "2"), marks=needs_xdist)])
def test_what_a_profile_does_not_have_is_in_no_table(suite, tmp_path: Path, processes: tuple[str, ...]) -> None:
    chosen = [needs(program(case)) for case in select(CASES, ["all_reduce", "names", "all_gather"], [], None)]
    within = [needed for needed in chosen if needed <= PROFILES["collectives"][1]]
    lacking = sum("dtypes" in needed for needed in within)
    assert 0 < lacking < len(within) < len(chosen)
    status, printed = suite("--adapter", "own:Collective", *CHAPTERS, *processes, "--report", "told")
    progress, _, lines = printed.partition(" conformance of collective 0.1.0 ")
    assert status == 0 and lines.splitlines()[1:3] == [
        f"profile collectives: {len(chosen) - len(within)} of {len(chosen)} cases need more and are not counted",
        f"{lacking} skipped, which need dtypes ({lacking})"]
    assert re.search(rf"\nall +{len(within) - lacking} +{lacking}\n", lines) and "names" not in lines
    assert f"{len(chosen) - len(within)} outside the profile in " in lines
    if not processes:
        assert set(re.sub(r"\[ *\d+%\]", "", progress).rstrip("=")) <= set(". \n")
    [rows] = report.read(tmp_path / "told")["implementations"].values()
    assert len(rows) == len(within)
    assert suite("--adapter", "own:Collective", "--clause", "names", "--in-process")[0] == 5


def test_a_profile_can_be_asked_for(suite) -> None:
    within = select(CASES, ["all_reduce"], [], None, "collectives")
    status, printed = suite("--profile", "collectives", "--clause", "all_reduce", "--in-process")
    assert status == 0 and f"\n{len(within)} passed" in printed
    status, printed = suite("--profile", "datasets", "--clause", "names")
    assert status == 4 and "--profile datasets: every such case needs more" in printed


@pytest.mark.parametrize(("line", "status", "part"), [
    ("all_reduce.mean @ M* | : found [ | it sums\nall_reduce.mean @ Central 2 | replica 0 | it sums", 0,
     "expected failure"),
    ("all_reduce.mean @ Mirrored 2 | another text | it sums", 1, "it is expected to fail with 'another text'"),
    ("all_reduce.mean @ * | replica | it sums", 1, "passed, but is expected to fail"),
    ("all_reduce.mean @ Mirrored 9 | x | y", 4, "there is no such case"),
    ("all_reduce.mean @ Mirrored 2 | x | y\nall_reduce.mean @ M* | x | y", 4, "is expected to fail by another line"),
    ("all_reduce.mean @ Mirrored 2 | x |", 4, "it has no reason"), ("something else", 4, "is not `case | part"),
])
def test_expected_failures(suite, tmp_path: Path, line: str, status: int, part: str) -> None:
    (tmp_path / "known").write_text(line + "\n")
    code, printed = suite(*WITH_WRONG, "--expected-failures", "known")
    assert code == status and part in printed


def test_lines_about_cases_that_are_not_run_are_counted(suite, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("all_reduce.mean @ * | replica | it sums\nreduce.mean @ * | x | y\n"
                                    "gather.* @ Mirrored 2 | x | y\nall_reduce.sum * @ Mirrored 3 | x | y\n")
    arguments = (*WITH_WRONG, "--expected-failures", "known", "-k", "Mirrored-2")
    status, printed = suite(*arguments)
    assert status == 0 and "\n3 lines of known are about cases that were not run\n" in printed
    status, printed = suite(*arguments, "--clause", "all_reduce.sum")
    assert status == 0 and "\n3 lines of known are about" in printed
    assert "are about cases" not in suite(*WITH_WRONG)[1]


def test_expected_failures_that_are_not_a_text_are_refused_by_name(suite, tmp_path: Path) -> None:
    (tmp_path / "known").write_bytes(b"\xff\xfe")
    status, printed = suite(*MEAN, "--expected-failures", "known")
    assert status == 4 and "known is not a text in UTF-8" in printed


def test_a_case_that_is_skipped_cannot_be_expected_to_fail(suite, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("all_reduce.mean @ Mirrored 2 | x | y\n")
    arguments = ("--adapter", "own:Lacking", *MEAN, "-k", "Mirrored-2")
    status, printed = suite(*arguments)
    assert status == 5 and "\n1 skipped, which need all_reduce (1)\n" in printed
    status, printed = suite(*arguments, "--expected-failures", "known")
    assert status == 1 and "skipped, but is expected to fail" in printed


@pytest.mark.parametrize(("arguments", "part"), [
    (("--clause", "nope"), "no clause begins with nope"),
    (("--clause", "all_reduce.mean", "--level", "should"), "no such clause is of this level"),
    (("--limit", "0"), "not a number of seconds above 0"), (("--bogus",), "unrecognized arguments"),
    (("--report", "own.py", *MEAN), "own.py"), (("--expected-failures", "nowhere"), "nowhere"),
    (("--concept", "quantum"), "'quantum' is not a capability; there are Default, OneDevice"),
    (("--clause", "losses", "--concept", "all_gather"), "no such case needs all_gather"),
    (("--adapter", "own"), "not package.module:Class"), (("--adapter", "own:Nothing"), "Nothing"),
    (("--adapter", "own:Without"), "has no attribute `tf`"), (("--adapter", "testee:nowhere"), "cannot be started"),
])
def test_wrong_usage(suite, arguments: tuple[str, ...], part: str) -> None:
    status, printed = suite(*arguments)
    assert status == 4 and part in printed


def test_an_adapter_that_cannot_be_started_is_named_first(suite) -> None:
    status, printed = suite("--adapter", "own:Nothing", "--clause", "all_reduce.mean")
    assert status == 4 and "\nERROR: --adapter own:Nothing: " in printed and "_pytest" not in printed


def test_no_selected_case_is_not_a_success(suite) -> None:
    assert suite(*MEAN, "-k", "nothing_at_all")[0] == 5


def test_a_run_that_is_interrupted_says_so(suite) -> None:
    assert suite("--adapter", "own:Interrupting", *MEAN)[0] == 2


def test_a_mistake_of_the_suite_is_not_a_failure_of_the_implementation(suite, tmp_path: Path) -> None:
    (tmp_path / "mistaken.py").write_text("from refdist.conformance import session\n"
                                          "session.judge = lambda *arguments: 1 / 0\n")
    status, printed = suite(*MEAN, "-p", "mistaken")
    assert status == 3 and "the suite itself broke in 6 cases" in printed


def test_a_property_that_fails_once_has_failed(suite) -> None:
    status, printed = suite("--adapter", "own:Lying", "--clause", "all_reduce.sum", "-k", "Mirrored-2", "--in-process")
    assert status == 1 and "the suite itself broke" not in printed
    assert re.search(r'\nfailed: all_reduce.sum #2 @ Mirrored 2: found .*"wrong".*, where values = \[', printed)
    assert "2 of 2 cases were judged" in printed


# What a testee does once, for some values of a property, and what is said of it.
ONCE = {
    "lies": ("failed", r"found \"wrong\"; it does not hold that"),
    "crashes": ("errored", "it was ended by SIGABRT"),
    "exits": ("errored", "it ended with exit status 0 before it had answered"),
    "hangs": ("errored", "no answer within 8 s"),
    "answers_late": ("errored", "no answer within 8 s"),
    "sends_nonsense": ("errored", "a line that is not JSON"),
}


@pytest.mark.parametrize("way", ONCE)
def test_a_testee_that_goes_wrong_once_at_a_property_has_failed(suite, tmp_path: Path, way: str) -> None:
    (tmp_path / "once.py").write_text(f"""if True:
        import json, os, sys, time
        from pathlib import Path
        from refdist.conformance.testees import worked

        asked = 0

        def lies(right):
            return {{"answers": [[[number, "wrong"] for number, _ in right["answers"][0]]]}}

        def crashes(right):
            os.abort()

        def exits(right):
            os._exit(0)

        def hangs(right):
            time.sleep(1000)

        def answers_late(right):
            time.sleep(9)
            return right

        def sends_nonsense(right):
            print("{{", end="", flush=True)
            return right

        print(sys.stdin.readline() and json.dumps({{"protocol": 1, "name": "once", "has": worked.HAS}}), flush=True)
        for line in sys.stdin:
            question = json.loads(line)
            answer, asked = worked.answer(question["case"]), asked + 1
            if asked == 5 and not Path("done").exists():
                Path("done").touch()
                answer = {way}(answer)
            print(json.dumps({{"id": question["id"], **answer}}), flush=True)""")
    outcome, says = ONCE[way]
    status, printed = suite("--adapter", f"testee:{sys.executable} once.py", "--clause", "all_reduce.sum",
                            "-k", "Mirrored-2", "--limit", "8" if "8 s" in says else "60")
    assert status == 1 and (tmp_path / "done").exists()
    assert re.search(rf"\n{outcome}: all_reduce.sum #2 @ Mirrored 2: {says}", printed)
    assert re.search(rf"\n{says}.*, where values = \[.*\n  clause: ", printed)
    assert "2 of 2 cases were judged" in printed


def test_a_concept_is_what_programs_use_in_any_chapter(suite) -> None:
    selected = select(CASES, [], ["ON_READ", "scatter"], None)
    assert {case.chapter.name for case in selected} > {"variables", "variable_updates"}
    assert selected == [case for case in CASES if {"ON_READ", "scatter"} & needs(program(case))]
    printed = suite("--clause", "run", "--concept", "variables", "--collect-only")[1]
    assert printed.count("test_case[run.") == len(select(CASES, ["run"], ["variables"], None)) > 0


def test_help_is_of_the_suite(suite, capfd: pytest.CaptureFixture[str]) -> None:
    status, printed = suite("--help")
    assert status == 0 and printed.count("\n") < 60
    for part in (*(name for name, _ in OPTIONS), "dump FILE", "random --against", "compare A B", "versions",
                 "\n    5  ", "options of pytest"):
        assert part in printed
    with pytest.MonkeyPatch.context() as patch:
        for name in ("pytest", "_pytest", "hypothesis"):
            patch.setitem(sys.modules, name, None)
        assert main(["-h"]) == 0
    assert capfd.readouterr().out == printed
    assert "usage: python -m refdist.conformance random" in suite("random", "--help")[1]
    assert suite("dump", "--help") == (4, "usage: python -m refdist.conformance dump FILE\n")


def test_the_docs_have_every_option() -> None:
    text = (Path(__file__).parents[1] / "docs" / "testing-your-implementation.md").read_text()
    table = text[text.index("| option | does |"):].partition("\n\n")[0]
    assert set(re.findall(r"--[a-z]+[a-z-]*", table)) == {name for name, _ in OPTIONS}


def test_junit_xml_has_the_source_of_each_case(suite, tmp_path: Path) -> None:
    suite(*WITH_WRONG, "--junitxml", tmp_path / "junit.xml")
    tests = list(ElementTree.parse(tmp_path / "junit.xml").iter("testcase"))
    assert len(tests) == 6 and sum(test.find("failure") is not None for test in tests) == 5
    for test in tests:
        assert {row.get("name"): row.get("value") for row in test.iter("property")} == {
            "source": "ReduceOp, description", "level": "MUST", "clause": "all_reduce.mean", "standing": "right"}


# A testee in a file whose name has a space: what runs an adapter speaks the protocol of testees.
TESTEE = f"testee:{shlex.quote(sys.executable)} 'my testee.py' own:Wrong"


def written(folder: Path) -> None:
    (folder / "my testee.py").write_text("from refdist.conformance.adapter.child import main\nmain()\n")


def test_what_failed_is_run_again_for_the_same_testee_only(suite, tmp_path: Path) -> None:
    written(tmp_path)
    mean = ("--clause", "all_reduce.mean")
    status, printed = suite("--adapter", TESTEE, *mean)
    assert status == 1 and "5 failed, 1 passed" in printed
    status, printed = suite("--adapter", TESTEE, "--last-failed")
    assert status == 1 and re.search(r"\n5 failed, \d+ deselected", printed)
    assert "1 passed" not in printed
    assert "6 passed" in suite("--adapter", "refdist", *mean, "--last-failed")[1]
    (tmp_path / "own.py").write_text(ADAPTERS.replace('right(self, "SUM", value)', "right(self, op, value)"))
    assert suite("--adapter", TESTEE, *mean, "--last-failed")[0] == 0  # mended: nothing is left
    assert "6 passed" in suite("--adapter", TESTEE, *mean, "--last-failed")[1]


@needs_xdist
def test_several_processes_remember_what_failed(suite) -> None:
    arguments = ("--adapter", "own:Wrong", "--clause", "all_reduce.mean", "-n", "2")
    assert "5 failed, 1 passed" in suite(*arguments)[1]
    assert "\n5 failed in" in suite(*arguments, "--last-failed")[1]


def test_a_run_that_fails_nothing_leaves_no_file(suite, tmp_path: Path) -> None:
    assert suite(*MEAN)[0] == 0
    assert not list(tmp_path.glob(".*"))


def test_a_failure_says_how_its_clause_is_run_alone_on_a_testee(suite, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "expected.txt").write_text("all_reduce.sum #1 @ Mirrored 2 | a message | a reason\n")
    status, printed = suite("--adapter", TESTEE, "--clause", "all_reduce", "-k", "mean and Mirrored-2", "--limit", "25",
                            "--expected-failures", "expected.txt", "--bitwise")
    command = next(line for line in printed.splitlines() if "run alone: " in line and "all_reduce.mean " in line)
    program, *arguments = shlex.split(command.partition("run alone: ")[2])
    assert program == "python" and arguments[:2] == ["-m", "refdist.conformance"]
    assert arguments[2:4] == ["--adapter", TESTEE] and "--bitwise" in arguments
    assert arguments[arguments.index("--limit") + 1] == "25.0"
    status, alone = suite(*arguments[2:])
    assert status == 1 and "\n1 failed" in alone and command in alone


def test_the_command_for_a_clause_has_its_strategy_only(suite) -> None:
    """A name of a clause that has that of a strategy in it, too."""
    printed = suite("--adapter", "own:Crashing", "--clause", "variables.default-name")[1]
    [command] = (line for line in printed.splitlines() if "-k Default" in line.replace('"', ""))
    alone = suite(*shlex.split(command.partition("run alone: ")[2])[3:])[1]
    assert "\n1 failed, " in alone and "errored: variables.default-name @ Default: " in alone


def test_restarts_are_counted(suite) -> None:
    status, printed = suite("--adapter", "own:Ending", "--clause", "all_reduce.name-of-the-op-in-lower-case",
                            "--clause", "all_reduce.mean", "--clause", "all_reduce.sum",
                            "-k", "Mirrored-2 or Mirrored-3")
    assert status == 1 and "restarts of the implementation: 2 in " in printed


def test_a_crash_in_every_case_is_said_plainly(suite) -> None:
    status, printed = suite("--adapter", "own:Crashing", "--clause", "all_reduce.mean")
    assert status == 1
    assert "errored: all_reduce.mean @ OneDevice: it ended with exit status 3 before it had answered" in printed
    assert "restarts of the implementation: 5 in 6 cases; each follows a case in which its process" in printed


def summary(printed: str) -> list[str]:
    """The lines of the summary of a run, sorted, without the last, which has the time."""
    return sorted(printed[printed.index(" conformance of "):].splitlines()[:-1])


@needs_xdist
def test_several_processes_lose_nothing(suite, tmp_path: Path) -> None:
    arguments = ("--adapter", "own:Ending", "--clause", "all_reduce.mean", "--clause", "all_reduce.sum",
                 "--clause", "all_gather.concatenates")
    tables, reports = [], []
    for folder, more in (("one", ()), ("two", ("-n", "2"))):
        status, printed = suite(*arguments, *more, "--report", "told", "--junitxml", f"{folder}.xml")
        assert status == 1 and printed.count(" conformance of ending 0.1.0 ") == 1
        tables.append(summary(printed))
        [rows] = json.loads((tmp_path / "told" / "report.json").read_text())["implementations"].values()
        assert all(row.pop("seconds") >= 0.0 for row in rows)
        reports.append(sorted(rows, key=lambda row: row["case"]))
        assert (tmp_path / f"{folder}.xml").read_text().count('<property name="standing"') == len(rows)
    assert tables[0] == tables[1] and reports[0] == reports[1]


@needs_xdist
def test_what_cannot_be_started_is_said_once_also_in_several_processes(suite) -> None:
    status, printed = suite("--adapter", "own:Nothing", "--clause", "all_reduce.mean", "-n", "2")
    assert status == 4 and printed.count("ERROR: --adapter own:Nothing: ") == 1
    status, printed = suite("--adapter", "own:StartedOnce", "--clause", "all_reduce.mean", "-n", "2")
    assert status == 1 and printed.count("errored: all_reduce.mean @ ") == 6 and "the device is busy" in printed
