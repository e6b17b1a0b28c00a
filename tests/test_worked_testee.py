"""The worked testees: implementations that know the suite by its JSON only, and a suite that finds their mistakes."""

from __future__ import annotations

import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import worlds

import refdist.conformance
from refdist.conformance import kept, session
from refdist.conformance.chapters import Case, cases
from refdist.conformance.judging import Verdict

FOLDER = Path(refdist.conformance.__file__).parent / "testees"
PAGE = Path(__file__).parents[1] / "docs" / "testing-your-implementation.md"
NODE = shutil.which("node")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

both = pytest.mark.parametrize("name", ["worked.js", "worked.py"])


def verdicts(source: Path, chosen: list[Case]) -> list[Verdict]:
    if source.suffix == ".js" and NODE is None:
        pytest.skip("node is not installed")
    command = [str(NODE) if source.suffix == ".js" else sys.executable, str(source)]
    testee = session.Session(command, question=kept.question)
    try:
        return [testee.run(case) for case in chosen]
    finally:
        testee.close()


def every(clause: str = "") -> list[Case]:
    chosen = [case for case in cases() if clause in ("", case.clause.name)]
    return [drawn for case in chosen for drawn in kept.draws(case) or [case]]


@pytest.fixture(autouse=True)
def devices() -> Iterator[None]:
    with refdist.config.temporary_devices():
        yield


@pytest.mark.worlds
@both
def test_it_passes_what_it_does_and_says_what_it_does_not(name: str) -> None:
    judged = verdicts(FOLDER / name, every() if worlds.EVERY else worlds.some(every()))
    wrong = [f"{verdict.case.name}: {verdict.message}" for verdict in judged
             if verdict.outcome in ("failed", "errored")]
    assert not wrong
    if not worlds.EVERY:
        return
    # What the page says of it does not become outdated. A property is one case, whatever its values.
    outcomes: defaultdict[str, set[str]] = defaultdict(set)
    for verdict in judged:
        outcomes[verdict.case.name.partition(", ")[0]].add(verdict.outcome)
    stated = dict(re.findall(r"`conformance/testees/(worked\.\w+)`[^`]*?more\s+than\s+(\d+)\s+cases", PAGE.read_text()))
    passed = sum(kinds == {"passed"} for kinds in outcomes.values())
    assert int(stated[name]) < passed <= int(stated[name]) + 100


@both
def test_it_has_the_length_that_the_page_says(name: str) -> None:
    lines = [line for line in (FOLDER / name).read_text().splitlines() if line.strip()]
    assert len(lines) <= 300 and max(map(len, lines)) <= 120


@both
def test_it_knows_nothing_of_the_suite(name: str) -> None:
    assert "refdist" not in (FOLDER / name).read_text().replace("python -m refdist.conformance", "")


# What is wrong of what a testee does, and a clause that says so.
MISTAKES = [
    ("worked.js", "elementwise((x, y) => x + y,", "elementwise((x, y) => x + x,", "all_reduce.sum"),
    ("worked.js", '/^int/.test(dtype) ? "float64" : dtype', "dtype", "all_reduce.mean-of-ints"),
    ("worked.js", "parts.flatMap((one) => piece", "[...parts].reverse().flatMap((one) => piece",
     "all_gather.order-of-replicas"),
    ("worked.js", "new PerReplica(parts) : parts[0]", "parts[0] : parts[0]", "run.results"),
    ("worked.js", "_exit: () => stack.pop()", "_exit: () => {}", "contexts.scope-makes-a-strategy-current"),
    ("worked.js", "within([{ strategy }], ", "within(stack, ", "merge_call.cross-replica-context"),
    ("worked.js", "!alike(calls.map((one) => one.argument))", "false", "all_reduce.ops-must-agree"),
    ("worked.js", "BigInt.asIntN(32, ", "BigInt.asIntN(16, ", "all_reduce.sums-of-ints-wrap"),
    ("worked.js", "calls.length < count ||", "", "all_reduce.every-replica-must-come"),
    ("worked.js", "all.slice(0, 1)", "all", "gather.arrays"),
    ("worked.py", "sum(rows[1:], rows[0])", "rows[0] * len(rows)", "all_reduce.each-replica-contributes-its-own"),
    ("worked.py", 'op == "SUM" or exact else np.float64', 'op == "SUM" else np.float64', "all_reduce.mean"),
    ("worked.py", "join(parts,", "join(parts[::-1],", "all_gather.order-of-replicas"),
    ("worked.py", "if same else PerReplica(*parts)", "", "run.results"),
    ("worked.py", "ENTERED.set(ENTERED.get()[:-1])", "None", "contexts.scope-makes-a-strategy-current"),
    ("worked.py", "ReplicaContext(self.strategy, None) as", "ReplicaContext(self.strategy, 0) as",
     "merge_call.cross-replica-context"),
    ("worked.py", "given == arguments[0] for", "True for", "all_reduce.ops-must-agree"),
    ("worked.py", "expect(all(self.calls),", "expect(True,", "all_reduce.every-replica-must-come"),
    ("worked.py", "joined(parts if distributed else parts[:1], axis)", "joined(parts, axis)", "gather.arrays"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "right", "wrong", "clause"), MISTAKES)
def test_a_mistake_is_found_and_named(name: str, right: str, wrong: str, clause: str, tmp_path: Path) -> None:
    text = (FOLDER / name).read_text()
    assert text.count(right) == 1
    (tmp_path / name).write_text(text.replace(right, wrong))
    chosen = every(clause)
    assert "passed" in {verdict.outcome for verdict in verdicts(FOLDER / name, chosen)}
    assert "failed" in {verdict.outcome for verdict in verdicts(tmp_path / name, chosen)}
