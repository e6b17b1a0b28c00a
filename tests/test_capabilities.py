"""What is sent of a case, and what an implementation must have to be sent it."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize

import pytest

from refdist.conformance import capabilities, kept, protocol
from refdist.conformance.adapter.session import InProcess
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.capabilities import BASIS, needs, words
from refdist.conformance.chapters import cases
from refdist.conformance.examples import Code, Program, program
from refdist.conformance.protocol import Unusable
from refdist.conformance.recording import replay

CASES = [case for case in cases() if not case.example.parameters]


# What is sent.

def test_a_program_arrives_as_it_was_sent() -> None:
    for case in CASES:
        message = json.loads(json.dumps(protocol.case_message(case)))
        assert (message["name"], message["clause"]) == (case.name, case.clause.name)
        assert protocol.read_program(message) == program(case)


def test_a_program_is_that_of_the_chapter_without_its_results() -> None:
    for case in {id(case.example): case for case in CASES}.values():  # the same on every strategy
        preamble = case.chapter.preamble
        sent = program(case)
        for code, example in [(sent.example, case.example), *([(sent.preamble, preamble)] if preamble else [])]:
            assert code is not None and example is not None
            assert _tree(code.source) == _tree(example.source) and code.line == example.line
            comments = [token for token in tokenize.generate_tokens(io.StringIO(code.source).readline)
                        if token.type == tokenize.COMMENT]
            assert not any(token.start[1] == 0 for token in comments)


def _tree(source: str) -> str:
    return ast.dump(ast.parse(source), include_attributes=True)


def test_every_field_of_a_message_is_one_that_the_suite_writes() -> None:
    case = next(case for case in CASES if case.chapter.preamble)
    asked = protocol.case_message(case, programs=[], only_python="a reason")
    messages = {"suite": protocol.suite("1"),
                "implementation": protocol.implementation("mine", "1", frozenset(), "trainer"),
                "question": protocol.question(1, asked), "case": asked, "strategy": asked["strategy"],
                "python": asked["python"], "code": asked["python"]["preamble"]}
    for kind, message in messages.items():
        assert [*message, *["has"][:kind == "implementation"]] == list(protocol.MESSAGES[kind])
    assert messages.keys() | {"answer"} == protocol.MESSAGES.keys()
    with pytest.raises(KeyError, match="moon: not in MESSAGES"):
        protocol.written("case", moon=1)


def test_a_field_that_is_not_known_is_refused() -> None:
    with pytest.raises(Unusable, match="its first line has 'lack'; the fields of that line are protocol, name, ver"):
        protocol.read_implementation({"protocol": 1, "name": "mine", "lack": ["variables"]})


def test_the_schema_describes_every_operator() -> None:
    schema = json.loads((kept.FILE.parent / "cases.schema.json").read_text(encoding="utf-8"))
    rows = schema["$defs"]["step"]["properties"]["operator"]["anyOf"]
    assert sorted(row["const"] for row in rows) == sorted(replay.OPERATORS) and all(row["description"] for row in rows)


# What an implementation may lack.

def test_no_name_of_the_chapters_is_without_a_capability() -> None:
    patterns = [*map(re.compile, (pattern for _, _, pattern in capabilities.ROWS)), BASIS]
    for case in CASES:
        for word in words(program(case)):
            if re.fullmatch(r"tf(\.\w+)*", word):
                steps = word.split(".")
                outer = {".".join(steps[:i]) for i in range(1, len(steps) + 1)} - {"tf", "tf.distribute"}
                assert word in ("tf", "tf.distribute") or any(
                    pattern.fullmatch(name) for pattern in patterns for name in outer), f"{case.name}: {word}"


@pytest.mark.parametrize(("source", "strategy", "lacks"), [
    ("strategy.run(step)", "Mirrored 2", "Mirrored"),
    ("strategy.run(step)", "MultiWorker 2x1", "workers"),
    ("strategy.run(step)", "MultiWorker 2x3", "workers, replicas on workers"),
    ("helper()", "Default", "Default, gather"),
    ("value = tf.Variable(1.0, synchronization=tf.VariableSynchronization.ON_READ)", "OneDevice",
     "OneDevice, variables, ON_READ"),
    ("other.run(step)", "Central 2", "Central, Mirrored, two strategies"),
    ("tf.constant(1.0, tf.float16)", "Mirrored 2", "Mirrored, dtypes"),
    ("tf.constant(1.0, dtype='float64')", "Mirrored 2", "Mirrored, dtypes"),
    ("strategy.distribute_datasets_from_function(lambda context: tf.data.Dataset.range(4))", "Mirrored 2",
     "Mirrored, datasets, dataset functions"),
    ("def step():\n    raise ValueError", "Mirrored 2", "Mirrored, exceptions"),
    ("v.scatter_add(tf.IndexedSlices(1.0, 0))", "Mirrored 2", "Mirrored, scatter, IndexedSlices"),
    ("strategy.unwrap(value)", "Mirrored 2", "Mirrored, compat"),
    ("import inspect", "Mirrored 2", "Mirrored, names"),
])
def test_what_a_program_needs_is_read_off_it(source: str, strategy: str, lacks: str) -> None:
    preamble = "def helper():\n    return inner()\n\ndef inner():\n    return strategy.gather(1, 0)"
    program = Program(strategy, "some.md", Code(preamble, 1), Code(source, 10), (0,))
    assert needs(program) == set(lacks.split(", "))


def test_every_profile_has_clauses_of_its_own() -> None:
    """What is in no other profile but in those that have all of it."""
    every = [needs(program(case)) for case in CASES]
    for name, (_, has) in capabilities.PROFILES.items():
        assert has <= set(capabilities.TABLE)
        others = [other for _, other in capabilities.PROFILES.values() if not other >= has]
        assert any(needed <= has and not any(needed <= other for other in others) for needed in every), name


def test_what_an_implementation_lacks_is_skipped_with_the_reason() -> None:
    class Partial(Simulated):
        lacks = frozenset({"variables", "workers"})

    partial = InProcess(Partial())
    verdicts = {case.name: partial.run(case) for case in CASES[::10]}
    for case in CASES[::10]:
        missing = needs(program(case)) & Partial.lacks
        reason = f"needs {', '.join(sorted(missing))}" if missing else ""
        assert (verdicts[case.name].outcome, verdicts[case.name].message) == ("skipped" if reason else "passed", reason)
