"""Cases as data: complete, well-formed, and sensitive to what an implementation does wrong."""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import worlds
from schemas import fault

import refdist
from refdist.conformance import kept
from refdist.conformance.adapter.properties import drawn
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.chapters import Case, Chapter, cases, load, read
from refdist.conformance.judging import Verdict, judge
from refdist.conformance.recording import dump, trace
from refdist.conformance.recording.record import record
from refdist.conformance.recording.replay import Replaying

pytestmark = [pytest.mark.worlds, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")]

SCHEMA = json.loads((kept.FILE.parent / "cases.schema.json").read_text(encoding="utf-8"))
# What other languages cannot run; a program is added here only with a reason that holds for every language.
ONLY_PYTHON = {"it imports threading", "it imports types", "it derives a class", "it imports inspect",
               "it looks into an exception", "it imports sys", "it imports pathlib",
               "it has a class that flattens itself", "an object of dict_values is passed",
               "an object of type is passed"}


class Replayed(Replaying, Simulated):
    """refdist, carrying out records."""


@pytest.fixture(scope="module", autouse=True)
def devices() -> Iterator[None]:
    with refdist.config.temporary_devices():
        yield


@functools.cache
def in_the_file() -> dict[str, list[dict[str, Any]]]:
    """The lines of the file of cases, by chapter."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, kept.FILE.read_text(encoding="utf-8").splitlines()):
        lines.setdefault((line.get("clause") or line["chapter"]).split(".")[0], []).append(line)
    return lines


def each_in_the_file(chapter: Chapter) -> dict[str, dict[str, Any]]:
    return {case["name"]: case for case in cases_of(map(json.dumps, in_the_file()[chapter.name]))}


def cases_of(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for example in kept.examples(lines):
        yield from kept.cases_in(example)


def replayed(case: Case, recorded: dict[str, Any], adapter: type[Replaying] = Replayed) -> Verdict:
    return judge(case, adapter().replay(json.loads(json.dumps(recorded))))


# All chapters.

chapters = pytest.mark.parametrize("chapter", load(), ids=[chapter.name for chapter in load()])


@chapters
def test_refdist_passes_every_record_which_is_that_of_the_file(chapter: Chapter) -> None:
    """Those of a property are recorded with its kept values: what Hypothesis draws depends on what is imported."""
    taken = worlds.some(cases((chapter,)))
    known = {each.name: each for case in taken
             for each in ((kept.draws(case) or drawn(case, dump.DRAWS)) if case.example.parameters else [case])}
    plain = {case.name for case in taken if not case.example.parameters}
    there, done = each_in_the_file(chapter), set()
    for recorded in cases_of(dump.lines(taken)):
        name = recorded["name"]
        done.add(name)
        assert name not in plain or there.get(name) == recorded, f"{name}: run `make cases`"
        if "programs" in recorded:
            verdict = replayed(known[name], recorded)
            assert verdict.outcome == "passed", f"{name}: {verdict.message}"
    assert done == set(known)


@chapters
def test_every_case_is_in_the_file_and_no_other(chapter: Chapter) -> None:
    plain, properties = [], set()
    for case in cases((chapter,)):
        if case.example.parameters:
            properties.add(case.clause.name)
        else:
            plain.append(case.name)
    there = each_in_the_file(chapter)
    assert [name for name in plain if name not in there] == [], "run `make cases`"
    assert {case["clause"] for name, case in there.items() if name not in set(plain)} <= properties, "run `make cases`"


def test_every_chapter_is_in_the_file_and_no_other() -> None:
    assert set(in_the_file()) == {chapter.name for chapter in load()}, "run `make cases`"


@chapters
def test_few_programs_are_for_python_only(chapter: Chapter) -> None:
    reasons = [case["only_python"] for case in each_in_the_file(chapter).values() if "only_python" in case]
    assert set(reasons) <= ONLY_PYTHON
    # What functions look like only Python can answer; clients of services are objects of it, and so are its signals.
    own = ("names", "cluster_resolvers", "preemption")
    assert chapter.name in own or len(reasons) <= 0.1 * sum(1 for _ in cases((chapter,)))


@chapters
def test_lines_are_as_the_schema_says(chapter: Chapter) -> None:
    for line in in_the_file()[chapter.name]:
        assert fault(line, SCHEMA) is None, str(line)[:100]


def test_the_schema_refuses_what_is_not_a_line() -> None:
    chapter, good = in_the_file()["contexts"][:2]
    assert fault(chapter, SCHEMA) is None and fault(good, SCHEMA) is None
    for bad in ({**chapter, "preamble": "x = 1"}, {**chapter, "schema": 1}, {**good, "schema": 1}, {**chapter, **good}):
        assert fault(bad, SCHEMA) is not None
    for path, value in ((("level",), "MAY"), (("observe",), "1"), (("cases", 0, "strategy", "kind"), "Many"),
                        (("programs", 0, 0, 0, "steps"), [{"operator": "?"}]), (("more",), 1),
                        (("cases", 0, "expected"), [{"statement": 0, "results": [{"int": None}]}])):
        bad = copy.deepcopy(good)
        place = bad
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        assert fault(bad, SCHEMA) is not None, path


# Programs of every kind.

def example(tmp_path: Path, source: str, strategy: str = "Mirrored 2") -> Case:
    text = textwrap.indent(textwrap.dedent(source).strip(), "    ")
    path = tmp_path / "names.md"
    path.write_text(f'# names\n\n## names.one\n\n**It is so.** MUST. Page, "section". The page is right. On {strategy}.'
                    f'\n\n{text}\n')
    return next(cases((read(path),)))


RANK = "int(tf.distribute.get_replica_context().replica_id_in_sync_group)"
PROGRAMS = {
    "a value is carried out of a replica": ("""
        seen = []
        def step(x):
            seen.append(tf.constant(1.0) + x)
        strategy.run(step, args=(tf.constant(2.0),))
        seen
        # [3.0 float32, 3.0 float32]
        """, '"keep"'),
    "an argument is carried out of a replica": ("""
        seen = []
        strategy.run(lambda x: seen.append(x), args=(tf.constant(2.0),))
        seen[1] + 1.0
        # 3.0 float32
        """, '"keep"'),
    "a method of a list is passed": ("""
        seen = []
        strategy.run(seen.append, args=(tf.constant(2.0),))
        seen[1] + 1.0
        # 3.0 float32
        """, '"name":"append"'),
    "an exception is caught": ("""
        def step():
            try:
                return tf.distribute.get_replica_context().all_reduce("PRODUCT", tf.constant(1.0))
            except ValueError:
                return tf.constant(7.0)
        strategy.run(step)
        # 7.0 | 7.0  float32
        """, '"raises":"value"'),
    "a scope is left by an exception": ("""
        with strategy.scope():
            raise KeyError("mine")
        # raises lookup
        tf.distribute.in_cross_replica_context()
        # False
        """, '"raise":"lookup"'),
    "an exception comes out of an inner scope": ("""
        with strategy.scope():
            try:
                with strategy.scope():
                    strategy.run(3)
            except Exception:
                pass
            inside = tf.distribute.in_cross_replica_context()
        inside
        # True
        """, '"raises"'),
    "None is asked for": ("""
        with strategy.scope():
            context = tf.distribute.get_replica_context()
        context is None, context is not None, not context
        # (True, False, True)
        """, '"operator":"is"'),
    "a branch depends on a result": ("""
        total = strategy.reduce("SUM", strategy.run(lambda: tf.constant(2.0)), axis=None)
        "four" if float(total) == 4 else "another"
        # "four"
        """, '"is":true'),
    "calls are counted": ("""
        calls = []
        def merge(strategy):
            calls.append("called")
        strategy.run(lambda: tf.distribute.get_replica_context().merge_call(merge))
        len(calls)
        # 1
        """, '"by":2'),
    "a text has a number in it": (f"""
        strategy.run(lambda: f"replica {{{RANK}}}")
        # "replica 0" | "replica 1"
        """, '"operator":"text"'),
    "a generator is passed": ("""
        def numbers():
            yield 1
            yield 2
        [int(x) for x in tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64))]
        # [1, 2]
        """, '"yield"'),
    "an object of the program's own is passed": ("""
        class Box:
            def __init__(self, content):
                self.content = content
        strategy.run(lambda box: box.content + 1.0, args=(Box(tf.constant(1.0)),))
        # 2.0 | 2.0  float32
        """, '"object":"Box"'),
    "the environment is changed": ("""
        import os
        os.environ["TF_CONFIG"] = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
        tf.distribute.cluster_resolver.TFConfigClusterResolver().task_type
        # "worker"
        """, '"operator":"environment"'),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_recorded(name: str, tmp_path: Path) -> None:
    source, sign = PROGRAMS[name]
    case = example(tmp_path, source)
    recorded = record(case)
    assert "programs" in recorded, recorded["only_python"]
    assert sign in json.dumps(recorded["programs"], separators=(",", ":"))
    assert replayed(case, recorded).outcome == "passed"


@pytest.mark.parametrize(("source", "reason"), [
    ("import inspect\ninspect.signature(strategy.run) is None\n# False", "it imports inspect"),
    ("try:\n    strategy.run(3)\nexcept Exception as error:\n    text = str(error)\nlen(text) > 0\n# True",
     "it looks into an exception"),
    ("class Mine(tf.distribute.Strategy):\n    pass\nMine is None\n# False", "it derives a class"),
    ("len([tf])\n# 2", "it goes another way when it is recorded: found 1, expected 2"),
])
def test_a_program_for_python_only_is_not_recorded(source: str, reason: str, tmp_path: Path) -> None:
    recorded = record(example(tmp_path, source))
    assert recorded["only_python"] == reason and "programs" not in recorded


def test_replicas_that_were_not_started_are_recorded(tmp_path: Path) -> None:
    case = example(tmp_path, f"""
        def step():
            if {RANK} == 0:
                raise ValueError
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0) + {RANK})
        strategy.run(step)
        # raises value
        """, "Mirrored 3")
    bodies = record(case)["programs"][0][0]["steps"][0]["args"][1]["function"]["bodies"]
    assert [body["replica"] for body in bodies] == [0, 1, 2]
    assert [body["steps"][-1].get("method", "raise") for body in bodies] == ["raise", "all_reduce", "all_reduce"]
    assert [body["steps"][3].get("is") for body in bodies] == [True, False, False]


def test_a_function_of_which_one_copy_is_called_is_the_same_on_all_replicas(tmp_path: Path) -> None:
    case = example(tmp_path, f"""
        def step():
            number = {RANK}
            return tf.distribute.get_replica_context().merge_call(lambda strategy: tf.constant(10.0) + number) * 1.0
        strategy.run(step)
        # 10.0 | 10.0  float32
        """)
    body, = record(case)["programs"][0][0]["steps"][0]["args"][1]["function"]["bodies"]
    assert body["steps"][-2]["method"] == "merge_call" and len(body["steps"][-2]["args"][1]["function"]["bodies"]) == 1


def test_a_function_that_changes_nothing_of_the_program_is_not_counted(tmp_path: Path) -> None:
    case = example(tmp_path, f"""
        seen = [1]
        def merge(strategy):
            return len(seen)
        def step():
            merged = tf.distribute.get_replica_context().merge_call(merge)
            return [{RANK}, merged]
        strategy.run(step)
        # [0 | 1, 1]
        """)
    text = json.dumps(record(case)["programs"])
    assert '"by"' not in text and text.count('"bodies"') == 2


def test_what_is_not_the_program_s_own_does_not_count_as_changed(tmp_path: Path) -> None:
    case = example(tmp_path, """
        import tempfile
        def same(rows):
            return rows
        distributed = strategy.experimental_distribute_dataset(tf.data.Dataset.range(6).batch(4).map(same))
        list(distributed)
        # [[0, 1] | [2, 3] int64, [4] | [5] int64]
        """)
    assert '"by"' not in json.dumps(record(case)["programs"])


def test_a_strategy_that_cannot_be_made_is_an_answer(tmp_path: Path) -> None:
    class Few(Replayed):
        def strategy(self, kind: str) -> Any:
            raise NotImplementedError("no strategies")

    case = example(tmp_path, "strategy.num_replicas_in_sync\n# 2")
    assert replayed(case, record(case), Few).outcome == "unsupported"


# A recorder that is wrong, and records that are, do not pass.

CLAUSES = ("all_reduce.sum", "reduce.", "merge_call.", "run.results", "variables.mirrored-read", "contexts.")


@functools.cache
def sample() -> list[tuple[Case, dict[str, Any]]]:
    chosen = [case for case in cases() if case.name.startswith(CLAUSES) and not case.example.parameters
              and case.strategy in ("Mirrored 2", "MultiWorker 2x1")]
    return [(case, recorded) for case in chosen[::3] if "programs" in (recorded := record(case))]


def steps(tree: Any) -> Iterator[list[Any]]:
    """All lists of steps in a record."""
    if isinstance(tree, dict):
        if "steps" in tree:
            yield tree["steps"]
        tree = list(tree.values())
    if isinstance(tree, list):
        for item in tree:
            yield from steps(item)


def test_a_record_without_one_of_its_steps_does_not_pass() -> None:
    lost = kept = 0
    for case, recorded in sample()[:40]:
        for number, steps_of_body in enumerate(steps(recorded["programs"])):
            for i in range(len(steps_of_body)):
                if not {"id", "is", "raises"} & steps_of_body[i].keys():
                    continue
                broken = copy.deepcopy(recorded)
                del list(steps(broken["programs"]))[number][i]
                if replayed(case, broken).outcome == "passed":
                    kept += 1
                else:
                    lost += 1
    assert lost > 200
    # A step with `is` or `raises` and nothing else only watches.
    assert kept < lost / 5


@pytest.mark.parametrize("wrong", ["all bodies are one", "no arguments by name", "no scopes", "no operators"])
def test_a_recorder_that_forgets_something_is_noticed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if wrong == "all bodies are one":
        real = trace._Emission._function

        def merged(self: Any, function: trace.Function) -> dict[str, Any]:
            done = real(self, function)
            return {**done, "bodies": [{key: body[key] for key in body.keys() - {"replica", "by"}}
                                       for body in done["bodies"][:1]]}

        monkeypatch.setattr(trace._Emission, "_function", merged)
    else:
        step = trace._Emission.step

        def forgetful(self: Any, recorder: Any, body: Any) -> dict[str, object]:
            done = step(self, recorder, body)
            if wrong == "no arguments by name":
                done.pop("kwargs", None)
            elif wrong == "no scopes" and "with" in done:
                done["with"] = {"name": "no_scope"}
            elif wrong == "no operators" and done.get("operator") in ("+", "[]", "is"):
                done["operator"] = "same"
            return done

        monkeypatch.setattr(builtins, "no_scope", contextlib.nullcontext(), raising=False)
        monkeypatch.setattr(trace._Emission, "step", forgetful)
    noticed = [case.name for case, _ in sample() if replayed(case, record(case)).outcome != "passed"]
    assert len(noticed) >= 3


# Implementations that are wrong.

class _Liar(Replayed):
    """Calls what it is given twice in every replica."""

    def strategy(self, kind: str) -> Any:
        strategy = super().strategy(kind)
        real = strategy.run
        strategy.run = lambda fn, *args, **kwargs: real(lambda *a, **k: (fn(*a, **k), fn(*a, **k))[1], *args, **kwargs)
        return strategy


def test_a_function_that_is_called_twice_is_noticed(tmp_path: Path) -> None:
    case = example(tmp_path, """
        calls = []
        def step():
            calls.append(1)
            return tf.constant(1.0)
        strategy.run(step)
        # 1.0 | 1.0  float32
        len(calls)
        # 2
        """)
    recorded = record(case)
    assert replayed(case, recorded).outcome == "passed"
    verdict = replayed(case, recorded, _Liar)
    assert verdict.outcome == "failed" and "called once more than expected, in replica 0" in verdict.message


def test_a_function_that_is_not_called_is_noticed(tmp_path: Path) -> None:
    case = example(tmp_path, """
        calls = []
        strategy.run(lambda: calls.append(1))
        calls
        # [1, 1]
        """)
    recorded = json.loads(json.dumps(record(case)).replace('"run"', '"experimental_local_results"'))
    verdict = replayed(case, recorded)
    assert verdict.outcome == "failed" and "called 2 times less than expected" in verdict.message


def test_a_value_on_which_the_program_relied_is_compared(tmp_path: Path) -> None:
    case = example(tmp_path, f"""
        strategy.run(lambda: tf.constant([5.0, 6.0][{RANK}]))
        # 5.0 | 6.0  float32
        """)
    recorded = record(case)
    lie = json.loads(re.sub(r'"is": \{"int": 1\}', '"is": {"int": 2}', json.dumps(recorded)))
    assert lie != recorded
    verdict = replayed(case, lie)
    assert verdict.outcome == "failed" and "found 1, expected 2" in verdict.message


# The command.

def test_dump_writes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                              capsys: pytest.CaptureFixture[str]) -> None:
    few = list(cases((load()[0],)))[:5]
    monkeypatch.setattr(dump, "cases", lambda: iter(few))
    assert dump.main([str(tmp_path / "cases.jsonl")]) == 0
    written = cases_of((tmp_path / "cases.jsonl").read_text().splitlines())
    assert [case["name"] for case in written] == [case.name for case in few]
    assert "5 cases" in capsys.readouterr().out
    assert dump.main([]) == 4



def test_an_error_of_a_statement_that_is_not_observed_is_the_verdict() -> None:
    """Functions that are called outside every scope are called in the replica of the default strategy."""
    case = next(case for case in cases() if case.name == "values.arguments-of-run @ Mirrored 2")
    recorded = json.loads(json.dumps(record(case)))
    [made] = [step for step in recorded["programs"][0] if "value_fn" in json.dumps(step)]
    assert made["statement"] not in recorded["observe"]
    bodies = made["steps"][0]["args"][1]["function"]["bodies"]
    assert [body["replica"] for body in bodies] == [0, 0] and replayed(case, recorded).outcome == "passed"
    for body in bodies:
        body["replica"] = None
    verdict = replayed(case, recorded)
    assert (verdict.outcome, verdict.line) == ("failed", case.example.statements[made["statement"]].line)
    assert "a function is called once more than expected, in replica 0), and must not" in verdict.message
