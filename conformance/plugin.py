"""The pytest plugin: which cases are run, on what, which failures are expected, and the table at the end.

A verdict travels with the report of its test, so that it reaches the process that writes the table also where several
processes run the cases (`pytest-xdist`); each of them has an implementation of its own.
"""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from refdist.conformance import expected_failures, properties, report
from refdist.conformance.adapter import Unusable
from refdist.conformance.adapters import ROWS
from refdist.conformance.chapters import LEVELS, Case, cases
from refdist.conformance.judging import Verdict
from refdist.conformance.report import Row
from refdist.conformance.session import LIMIT, Tester, tester

DEFAULT = "refdist"
FAILURES = ("failed", "errored", "unsupported")

_rows: pytest.StashKey[list[Row]] = pytest.StashKey()
_cases: pytest.StashKey[list[Case]] = pytest.StashKey()
_expected: pytest.StashKey[dict[str, expected_failures.Expected]] = pytest.StashKey()
_tester: pytest.StashKey[Tester] = pytest.StashKey()
_restarts: pytest.StashKey[int] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite's own options."""
    group = parser.getgroup("refdist conformance")
    group.addoption("--adapter", default=DEFAULT,
                    help=f"package.module:Class; {', '.join(f'{name} ({what})' for name, _, what in ROWS)}; or the "
                         f"command of a testee after `testee:` (%(default)s)")
    group.addoption("--python", metavar="PYTHON", default="",
                    help="the interpreter that the adapter is run with, of an environment in which refdist need not be "
                         "installed")
    group.addoption("--strategy", metavar="package.module:make", default="",
                    help="another author's strategy, tested inside the implementation: make(devices) makes it, with a "
                         "replica on each device")
    group.addoption("--in-process", action="store_true",
                    help="run the adapter in this process: faster, and a crash or a hang ends everything")
    group.addoption("--limit", type=_seconds, default=LIMIT, help="seconds that a case may take (%(default)s)")
    group.addoption("--level", choices=[level.lower() for level in LEVELS], help="only clauses of this level")
    group.addoption("--clause", action="append", metavar="PREFIX",
                    help="only this clause, or the clauses whose name begins so: all_reduce.sum is one clause, and "
                         "all_reduce a chapter; may be repeated")
    group.addoption("--expected-failures", metavar="FILE",
                    help="lines `case | part of the message | why` for cases that are known to fail; * in the name of "
                         "a case stands for anything")
    group.addoption("--bitwise", action="store_true", help="floats must agree to the bit")
    group.addoption("--report", metavar="FOLDER", help="write report.json, report.md and report.html there")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return seconds


def pytest_configure(config: pytest.Config) -> None:
    """Reads the chapters and the file of expected failures, selects cases, and makes the folder of the report."""
    config.stash[_rows] = []
    config.stash[_restarts] = 0
    level, asked = config.getoption("--level"), config.getoption("--clause") or []
    path, folder = config.getoption("--expected-failures"), config.getoption("--report")
    try:
        everything = list(cases())
        config.stash[_expected] = expected_failures.read(path, everything) if path else {}
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        raise pytest.UsageError(str(error)) from None
    names = {case.clause.name for case in everything}
    single, prefixes = names & set(asked), tuple(set(asked) - names)
    found = [case for case in everything if not asked or case.clause.name in single
             or (prefixes and case.clause.name.startswith(prefixes))]
    config.stash[_cases] = [case for case in found if not level or case.clause.level == level.upper()]
    if not config.stash[_cases]:
        raise pytest.UsageError(f"--clause: no clause begins with {' or '.join(asked)}" if not found else
                                f"--clause {' '.join(asked)} --level {level}: no such clause is of this level")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each case that the options select."""
    selected = metafunc.config.stash[_cases]
    metafunc.parametrize("conformance_case", selected, ids=[case.identifier for case in selected])


def check(case: Case, request: pytest.FixtureRequest) -> None:
    """Runs a case, and passes, skips, xfails or fails the test."""
    config = request.config
    if _tester not in config.stash:
        try:
            config.stash[_tester] = tester(config.getoption("--adapter"), config.getoption("--limit"),
                                           config.getoption("--in-process"), config.getoption("--python"),
                                           config.getoption("--strategy"))
        except Unusable as error:
            pytest.exit(f"{_tested(config).strip()}: {error}", pytest.ExitCode.USAGE_ERROR)
    implementation = config.stash[_tester]
    bitwise, restarts = config.getoption("--bitwise"), implementation.restarts
    if case.example.parameters:
        verdict = properties.examine(case, lambda drawn: implementation.run(drawn, bitwise))
    else:
        verdict = implementation.run(case, bitwise)
    known = config.stash[_expected].get(case.name)
    outcome, message = verdict.outcome, verdict.message
    if known is not None:
        if outcome in FAILURES and known.message in message:
            outcome = "expected failure"
        elif outcome in ("passed", "skipped"):
            outcome, message = "failed", f"{outcome}, but is expected to fail: {known.line!r}; remove that line"
        else:
            message += f" (it is expected to fail with {known.message!r})"
    row = report.row(verdict, outcome, message, known.reason if known else "",
                     f"{implementation.name} {implementation.version}".strip())
    request.node.user_properties += [("verdict", row), ("restarts", implementation.restarts - restarts)]
    if outcome == "skipped":
        pytest.skip(message)
    if outcome == "expected failure" and known is not None:
        pytest.xfail(known.reason)
    if outcome in FAILURES:
        pytest.fail(_told(verdict, message, _tested(config)), pytrace=False)


def _tested(config: pytest.Config) -> str:
    """The options that say what is tested, as they were given."""
    given = [(option, config.getoption(option)) for option in ("--adapter", "--python", "--strategy")]
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given if value not in ("", DEFAULT))


def _told(verdict: Verdict, message: str, tested: str) -> str:
    case = verdict.case
    lines = [message, f"  clause:    {case.clause.rule} ({case.clause.level})",
             f"  source:    {case.clause.page}, {case.clause.section}; the page is {case.clause.standing}",
             f"  strategy:  {case.strategy}"]
    if verdict.expected:
        lines.append(f"  expected:  {verdict.expected}")
    if verdict.found:
        lines.append(f"  found:     {verdict.found}")
    strategy = case.strategy.replace(" ", "-")
    lines += [f"  run alone: python -m refdist.conformance{tested} --clause {case.clause.name} -k {strategy}",
              f"  program:   {case.chapter.path.name}:{case.example.line}"]
    for number, line in enumerate(case.example.source.splitlines(), case.example.line):
        lines.append(f"  {'>' if number == verdict.line else ' '} {number:4}  {line}".rstrip())
    if verdict.output:
        lines += ["  printed meanwhile:", *(f"    {line}" for line in verdict.output.splitlines())]
    return "\n".join(lines)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collects the verdicts, and how often there was a restart, from wherever the cases were run."""
    if report.when == "call" and _session is not None:
        stash, noted = _session.config.stash, dict(report.user_properties)
        if "verdict" in noted:
            stash[_rows].append(cast("Row", noted["verdict"]))
            stash[_restarts] += cast("int", noted["restarts"])


_session: pytest.Session | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remembers the session, which reports of tests do not know."""
    global _session
    _session = session


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Ends the implementation; a run that judged nothing is not a success."""
    if _tester in session.config.stash:
        session.config.stash[_tester].close()
    rows = session.config.stash[_rows]
    if exitstatus == 0 and rows and all(row["outcome"] == "skipped" for row in rows):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line for each chapter, totals, and what was not tested; writes the report."""
    rows = config.stash[_rows]
    if not rows:
        return
    name = rows[0]["implementation"]
    terminalreporter.section(f"conformance of {name}")
    for line in report.table(rows):
        terminalreporter.write_line(line)
    if config.stash[_restarts]:
        terminalreporter.write_line(f"restarts of the implementation: {config.stash[_restarts]}")
    folder = config.getoption("--report")
    if folder:
        report.write(Path(folder), name, rows)
        terminalreporter.write_line(f"report: {Path(folder) / 'report.html'}")
    reasons = Counter(row["message"] for row in rows if row["outcome"] == "skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")
