"""The chapters of the specification: their form, their notation, and that refdist does what they say."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import refdist
from refdist.conformance.adapter import properties
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.chapters import SPEC, Case, NotAChapter, cases, having, load, read
from refdist.conformance.comparison import differences
from refdist.conformance.examples import Code, Program, program
from refdist.conformance.judging import Verdict, judge
from refdist.conformance.notation import NotAResult, parsed, shown
from refdist.conformance.results import KINDS, Result, fault

CASES = list(cases())


@pytest.fixture(scope="module", autouse=True)
def devices() -> Iterator[None]:
    with refdist.config.temporary_devices():
        yield


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_refdist_does_what_the_chapters_say(case: Case) -> None:
    def run(tried: Case) -> Verdict:
        return judge(tried, Simulated().run(program(tried)), bitwise=True)

    verdict = properties.examine(case, run) if case.example.parameters else run(case)
    assert verdict.outcome == "passed", f"{case.chapter.path.name}:{verdict.line}: {verdict.message}"


def test_every_file_of_the_specification_is_a_chapter() -> None:
    assert [chapter.path for chapter in load()] and {chapter.path for chapter in load()} == set(SPEC.glob("*.md"))


@pytest.mark.parametrize("clause", ["all_reduce.sum", "all_reduce", "variable", "run", "run.", "c", "nope", "nope.sum"])
def test_a_clause_needs_only_the_chapters_in_which_one_begins_so(clause: str) -> None:
    chapters = having([clause])
    assert [case for case in cases(chapters) if case.clause.name.startswith(clause)] == [
        case for case in CASES if case.clause.name.startswith(clause)]
    assert all(any(clause_of.name.startswith(clause) for clause_of in chapter.clauses) for chapter in chapters)
    assert having([]) == load()


def test_a_property_that_is_skipped_says_only_why() -> None:
    case = next(case for case in CASES if case.example.parameters)
    assert properties.examine(case, lambda tried: Verdict(tried, "skipped", "needs more")) == Verdict(
        case, "skipped", "needs more")


@pytest.mark.parametrize("strategy", ["Default", "MultiWorker 2x1"])
def test_environment_variables_that_an_example_sets_end_with_it(strategy: str) -> None:
    before = dict(os.environ)
    sets = Code("import os\nos.environ['TF_CONFIG'] = '{}'\nos.environ['SLURM_PROCID'] = '1'\n{}['missing']", 1)
    for answer in Simulated().run(Program(strategy, "example", None, sets, ())):
        assert answer[3] == {"error": "lookup", "message": "KeyError: 'missing'"}
    assert dict(os.environ) == before


def test_what_an_example_makes_ends_with_it() -> None:
    made: weakref.WeakSet[object] = weakref.WeakSet()

    class Keeping(Simulated):
        tf = SimpleNamespace(keep=made.add)

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        Keeping().run(Program("Default", "example", None, Code("def f(): return f\ntf.keep(f)\nf()", 1), ()))
        assert not made
    finally:
        if was_enabled:
            gc.enable()


def test_what_an_example_does_with_a_signal_ends_with_it() -> None:
    before = signal.getsignal(signal.SIGTERM)
    sets = Code("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{}['missing']", 1)
    assert Simulated().run(Program("Default", "example", None, sets, ()))[0][2]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("kind", ["OneDevice", "Mirrored 2"])
def test_the_strategy_that_an_example_sets_ends_with_it(kind: str) -> None:
    sets = Code("tf.distribute.experimental_set_strategy(strategy)\ntf.distribute.has_strategy()\n{}['missing']", 1)
    assert Simulated().run(Program(kind, "example", None, sets, (1,)))[0][1] is True
    assert not refdist.has_strategy()


WRITTEN = """2.5 | 2.5 float32
[2.0, 4.0] float32
{"a": [1.0] | [] float32, "b": None}
([1, 2], "text")
7 int64 |
empty(0, 3) float32
slices([[1.0]] float32, [0] int64, (4,))
raises value
[1.0 float32, 2 int32]
[[1, 2] | [3] int64, [4] | [] int64]
nan float32
-0.0 float64
inf | -inf float32
1.0+2.0j complex64
[1.5-2.0j, 0.0+3.0j] complex128
9223372036854775807 int64
["a", "b"] | [] string
True | False bool
1 int32 | 1.0 float32
(1.0 | 2.0 float32,)
0.1 float32
1e-45 float32
("cross", None)
[[1.0, 2.0], [3.0, 4.0]] float32
spec(None, 2) float32
spec() int64 | spec(None) int64
("spec", [1, 2])
("empty", [1, 2])
("a \\"word\\"", -3, 2.5, True, [], (), {})"""


@pytest.mark.parametrize("text", WRITTEN.splitlines())
def test_a_result_that_is_read_is_shown_as_it_was_written(text: str) -> None:
    result = parsed(text)
    assert shown(result) == text and parsed(shown(result)) == result
    assert fault(result) is None and list(differences(result, result, bitwise=True)) == []


def test_no_result_is_taken_for_another_one() -> None:
    results = [parsed(text) for text in WRITTEN.splitlines()]
    results += [parsed(text) for text in (
        "2.5 float32", "2.5 | 2.5 float64", "2.5 | 2.5", "[2, 4] int32", "[[2.0, 4.0]] float32", "[2.0, 4.0]",
        "[2.0, 4.0] float32 |", '{"a": [1.0] | [] float32}', '((1, 2), "text")', "7 int64", "7 int32 |",
        "empty(3, 0) float32", "[] float32", "0.0 float64", "raises type", "None", "False", "0", "0.0", '""',
        "True bool", "1 int8", "1.0 float16",
        "spec(2) float32", "spec(2, None) float32", "spec(None, 2) float64")]
    for i, result in enumerate(results):
        for j, other in enumerate(results):
            equal = next(differences(result, other, bitwise=True), None) is None
            assert equal == (i == j), (shown(result), shown(other))


def test_one_of_several_kinds_of_errors_is_right() -> None:
    expected = parsed("raises value or type")
    assert shown(expected) == "raises value or type"
    for kind in KINDS:
        observed: Result = {"error": kind, "message": "why"}
        expected_text = [f"raises {kind} (why), expected raises value or type"] if kind not in ("value", "type") else []
        assert list(differences(expected, observed)) == expected_text
    assert list(differences(expected, parsed("None"))) == ["found None, expected raises value or type"]


def test_unsupported_is_an_answer_where_it_is_one_of_several_kinds(tmp_path: Path) -> None:
    path = tmp_path / "name.md"
    path.write_text(GOOD.replace("# (1, 1)", "# raises unsupported or value").replace("    # Mirrored 2: 1\n", ""))
    case = next(cases((read(path),)))
    for kind, outcome in (("unsupported", "passed"), ("value", "passed"), ("type", "failed")):
        assert judge(case, [{0: {"error": kind}}]).outcome == outcome
    path.write_text(path.read_text().replace("unsupported or value", "type or value"))
    assert judge(next(cases((read(path),))), [{0: {"error": "unsupported"}}]).outcome == "unsupported"


@pytest.mark.parametrize("text", [
    "", "1.0 float33", "[1.0, [2.0]] float32", "raises", "raises anything", "raises value type", "raises value or",
    "raises value or anything", "raises or value", "raises value or value", "[raises value]",
    "1.5 int32", "2.0 float32 x", "(1", "foo", "1+2j", "{1 2}", "True float32", '"a" int32', "empty(2)", "spec(2)",
    "spec(a) int32"])
def test_what_is_not_a_result_is_refused(text: str) -> None:
    with pytest.raises(NotAResult):
        parsed(text)


GOOD = """# name

Prose.

    def help():
        return 1

## name.a-rule

**A rule.** MUST. Page.method, "Args". The page is right. On Mirrored 2 and Central 2.

    strategy.run(help)
    # (1, 1)
    # Mirrored 2: 1
"""


@pytest.mark.parametrize(("old", "new", "says"), [
    ("# name\n", "# other\n", "the first line is not"), ("## name.a-rule", "## other.a-rule", "words-with-hyphens"),
    ("**A rule.**", "A rule.", "does not begin with"), ("MUST", "MAY", "the level is one of"),
    ("right", "fine", "the page is one of"), ("right", "silent", "promises nothing, so the level is SHOULD"),
    ("right", "ambiguous: it says", "promises nothing, so the level is SHOULD"),
    ("Mirrored 2 and", "Mirrored two and", "is not a strategy"),
    ("# Mirrored 2: 1", "# OneDevice: 1", "it is not run on OneDevice"),
    ("# (1, 1)\n    # Mirrored 2: 1", "# Mirrored 2: 1\n    1\n    # 1", "results on some strategies only"),
    ("# (1, 1)", "# what", "not a value"), ("strategy.run(help)", "strategy.run(help", "in an example"),
    ("    strategy.run(help)\n    # (1, 1)\n    # Mirrored 2: 1\n", "", "has no example"),
    ("    # (1, 1)\n    # Mirrored 2: 1\n", "", "no statement has a result"),
    ("# Mirrored 2: 1", "# Mirrored 2, worker 1: 1", "on some workers only"),
    ("# (1, 1)", "# worker 1: 1", "on some workers only")])
def test_what_is_not_a_chapter_is_refused_with_its_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "name.md"
    path.write_text(GOOD)
    assert [case.name for case in cases((read(path),))] == ["name.a-rule @ Mirrored 2", "name.a-rule @ Central 2"]
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(NotAChapter, match=rf"name\.md:\d+: .*{says}"):
        read(path)


def test_a_result_may_be_of_one_worker(tmp_path: Path) -> None:
    path = tmp_path / "name.md"
    path.write_text(GOOD.replace("Mirrored 2 and Central 2", "MultiWorker 2x1 and MultiWorker 3x1").replace(
        "# (1, 1)", "# worker 0: 1\n    # worker 1: 2").replace(
        "# Mirrored 2: 1", "# MultiWorker 3x1: 3\n    # MultiWorker 3x1, worker 2: 4"))
    two, three = cases((read(path),))
    ones = [{0: parsed(text)} for text in "1234"]
    assert judge(two, ones[:2]).outcome == "passed"
    assert judge(two, ones[1::-1]).message == "worker 0: found 2, expected 1"
    assert judge(three, [ones[2], ones[2], ones[3]]).outcome == "passed"
    assert judge(three, [ones[2]] * 3).message == "worker 2: found 3, expected 4"
