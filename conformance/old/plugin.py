"""The pytest plugin: options, one test per case, expected failures, and the table at the end."""

from __future__ import annotations

import importlib
import json
import traceback
from collections import Counter
from pathlib import Path

import pytest

from refdist.conformance.old import report
from refdist.conformance.old.case import Case, Implementation, Verdict, verdict_of
from refdist.conformance.old.cases import load

verdicts: pytest.StashKey[list[Verdict]] = pytest.StashKey()
implementation: pytest.StashKey[Implementation] = pytest.StashKey()
expected: pytest.StashKey[dict[str, tuple[str, str]]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite's own options."""
    group = parser.getgroup("refdist conformance")
    group.addoption("--adapter", default="refdist.conformance.old.adapters.simulated:Simulated",
                    help="package.module:Class, or the command of a testee after `testee:`")
    group.addoption("--expected-failures",
                    help="a file with a line `case | part of the message | reason` for each case expected to fail")
    group.addoption("--bitwise", action="store_true", help="floats must agree to the bit")
    group.addoption("--report", help="a folder for report.json, report.md and report.html")


def make_adapter(text: str) -> Implementation:
    """The adapter that an option names.

    Raises:
        pytest.UsageError: it does not exist or cannot be made.
    """
    if text.startswith("testee:"):
        from refdist.conformance.old.testee import Testee

        return Testee(text.partition(":")[2])
    module, _, name = text.partition(":")
    try:
        made: Implementation = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"--adapter {text}: {error}; write package.module:Class") from error
    return made


def read_expected(path: str | None, names: set[str]) -> dict[str, tuple[str, str]]:
    """The cases that must fail, with a part of the message and the reason.

    Raises:
        pytest.UsageError: a line does not name a case, or lacks the message or the reason.
    """
    found: dict[str, tuple[str, str]] = {}
    for line in Path(path).read_text().splitlines() if path else []:
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 3 or parts[0] not in names or not all(parts):
            raise pytest.UsageError(f"{path}: {line!r} is not `case | part of the message | reason`, of a case")
        found[parts[0]] = (parts[1], parts[2])
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Makes the adapter and reads the file of expected failures."""
    config.stash[verdicts] = []
    config.stash[implementation] = make_adapter(config.getoption("--adapter"))
    config.stash[expected] = read_expected(config.getoption("--expected-failures"), {case.name for case in load()})


@pytest.fixture(scope="session")
def adapter(request: pytest.FixtureRequest) -> Implementation:
    """The implementation under test."""
    return request.config.stash[implementation]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per case."""
    if "conformance_case" in metafunc.fixturenames:
        cases = load()
        metafunc.parametrize("conformance_case", cases, ids=[case.name for case in cases])


def check(case: Case, adapter: Implementation, config: pytest.Config) -> None:
    """Runs a case, and passes, skips, xfails or fails the test."""
    verdict = verdict_of(case, adapter, config.getoption("--bitwise"))
    message, reason = config.stash[expected].get(case.name, ("", ""))
    if reason and verdict.outcome == "passed":
        verdict = Verdict(case, "failed", f"passes, but is expected to fail ({reason}); remove it from the file")
        reason = ""
    if message not in verdict.message:
        reason = ""
    config.stash[verdicts].append(verdict)
    if verdict.outcome == "skipped":
        pytest.skip(verdict.message)
    if verdict.outcome in ("failed", "errored"):
        if reason:
            verdict.outcome = "expected failure"
            pytest.xfail(reason)
        shown = verdict.error is not None and config.getoption("tbstyle") == "long"
        lines = traceback.format_exception(verdict.error) if shown else []
        pytest.fail(f"{''.join(lines)}{verdict.message}\n  source: {case.source}\n  strategy: {case.strategy}\n"
                    f"  program: {json.dumps(case.program)}", pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line per concept, and the report's files."""
    found = config.stash[verdicts]
    if not found:
        return
    terminalreporter.section(f"conformance of {config.getoption('--adapter')}")
    counts: dict[str, Counter[str]] = {}
    for verdict in found:
        counts.setdefault(verdict.case.concept, Counter())[verdict.outcome] += 1
    for concept, counter in counts.items():
        terminalreporter.write_line(f"{concept:18} " + ", ".join(f"{n} {name}" for name, n in sorted(counter.items())))
    folder = config.getoption("--report")
    if folder:
        report.write(Path(folder), config.getoption("--adapter"), found)
        terminalreporter.write_line(f"report: {Path(folder) / 'report.html'}")
