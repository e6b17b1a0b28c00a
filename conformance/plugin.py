"""The pytest plugin: which cases are run, on what, which failures are expected, and the table at the end.

A verdict travels with the report of its test, so that it reaches the process that writes the table also where several
processes run the cases (`pytest-xdist`); each of them has an implementation of its own.  The process that runs none
starts the implementation once, too: what cannot be started is wrong usage, and is said once, before the first case.

A test that fails without a verdict is a mistake of the suite, and no success or failure of the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from . import expected_failures, files, options, page, report
from .chapters import Case, cases, having
from .distribution import VERSION
from .examples import Code
from .judging import Verdict, heaviest
from .notation import on_one_line
from .protocol import Unusable
from .report import Row
from .session import Tester, tester

FAILURES = ("failed", "errored", "unsupported")
JUNIT = "--junitxml"  # an option of pytest, which writes the file


@dataclass
class Run:
    """What is known of a run.

    Attributes:
        everything: all cases, where expected failures or a report need them, and `cases`, those that the options
            select.
        expected: by the name of a case.
        report: what is in the folder of the report.
        tester: the implementation, and `name`, what it says that it is, and the `profile` that it claims.
        unusable: why it cannot be started.
        rows: the verdicts.
        outside: how many cases need more than the profile that the implementation claims.
        restarts: of the implementation, in all processes.
        broken: how many cases the suite could not judge because of a mistake of its own.
        page: of the report that was written, and `unwritten`, why one was not.
    """

    everything: list[Case]
    cases: list[Case]
    expected: dict[str, expected_failures.Expected]
    report: report.Report
    tester: Tester | None = None
    name: str = ""
    profile: str = ""
    unusable: str = ""
    rows: list[Row] = field(default_factory=list)
    outside: int = 0
    restarts: int = 0
    broken: int = 0
    page: str = ""
    unwritten: str = ""


_run: pytest.StashKey[Run] = pytest.StashKey()
# What the report of a test carries: the verdict, and how often the implementation was started again for it.
_judged: pytest.StashKey[tuple[Row, int]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite's own options."""
    group = parser.getgroup("refdist conformance")
    for name, settings in options.OPTIONS:
        group.addoption(name, **settings)


def pytest_configure(config: pytest.Config) -> None:
    """Reads the chapters and the file of expected failures, selects cases, and sees whether reports can be written."""
    path, folder = config.getoption("--expected-failures"), config.getoption("--report")
    clauses, junit = config.getoption("--clause"), config.getoption(JUNIT)
    try:
        everything = list(cases(None if path or folder else having(clauses)))
        selected = options.select(everything, clauses, config.getoption("--concept"), config.getoption("--level"),
                                  config.getoption("--profile"))
        expected = expected_failures.read(path, everything) if path else {}
        if folder:
            page.check(Path(folder))
        if junit:
            files.check(JUNIT, [Path(junit)])
        known = report.begun(Path(folder)) if folder else report.empty()
    except (ValueError, OSError) as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[_run] = Run(everything, selected, expected, known)
    config.pluginmanager.register(_Collector(config.stash[_run]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each case that the options select."""
    selected = metafunc.config.stash[_run].cases
    metafunc.parametrize("conformance_case", selected, ids=[case.identifier for case in selected])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Starts the implementation, if there is a case to run."""
    config, run = session.config, session.config.stash[_run]
    distributes = config.pluginmanager.hasplugin("dsession")
    if config.getoption("collectonly") or not (session.items or distributes):
        return
    try:
        run.tester = tester(config.getoption("--adapter"), config.getoption("--limit"),
                            config.getoption("--in-process", False), config.getoption("--python", ""),
                            config.getoption("--strategy", ""))
    except Unusable as error:
        run.unusable = f"{options.repeated(options.TESTED, config.getoption).strip() or '--adapter'}: {error}"
        if not hasattr(config, "workerinput"):
            raise pytest.UsageError(run.unusable) from None
        return
    run.name, run.profile = f"{run.tester.name} {run.tester.version}".strip(), run.tester.profile
    if distributes:
        _close(run)


def _close(run: Run) -> None:
    if run.tester:
        run.tester.close()
        run.tester = None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Reports a case at once that the implementation does not claim, without what pytest does around a test, which
    takes longer than many a case."""
    run = item.config.stash[_run]
    assert isinstance(item, pytest.Function)
    case = item.callspec.params["conformance_case"]
    assert isinstance(case, Case)
    verdict = run.tester.skipped(case) if run.tester and case.name not in run.expected else None
    if run.tester is None or verdict is None:
        return None
    _describe(item, case)
    hook, location = item.ihook, item.location
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=location)
    for when in ("setup", "teardown"):
        skipped = when == "setup"
        of_pytest = pytest.TestReport(item.nodeid, location, {}, "skipped" if skipped else "passed",
                                 (str(item.path), 0, f"Skipped: {verdict.message}") if skipped else None,
                                 when, user_properties=item.user_properties)
        if skipped:
            vars(of_pytest)["judged"] = None if run.tester.is_outside(case) else (
                report.row(verdict, verdict.outcome, verdict.message, ""), 0)
        hook.pytest_runtest_logreport(report=of_pytest)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=location)
    return True


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A case that the implementation does not claim is counted, and makes no sign while the cases are run; one that is
    unsupported is not counted as failed."""
    if "judged" not in vars(report):
        return None
    judged = vars(report)["judged"]
    if report.when == "setup":
        return ("skipped", "", "SKIPPED") if judged else ("outside the profile", "", "OUTSIDE")
    return ("unsupported", "u", "UNSUPPORTED") if judged and judged[0]["outcome"] == "unsupported" else None


def _describe(item: pytest.Item, case: Case) -> None:
    clause = case.clause
    item.user_properties += [("source", f"{clause.page}, {clause.section}"), ("level", clause.level),
                             ("clause", clause.name), ("standing", clause.standing)]


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Callable[[Case], None]:
    """Runs a case, and passes, skips, xfails or fails the test."""
    return lambda case: _check(case, request.node, request.config)


def _check(case: Case, item: pytest.Item, config: pytest.Config) -> None:
    run = config.stash[_run]
    _describe(item, case)
    before = run.tester.restarts if run.tester else 0
    verdict = _verdict(case, run, config.getoption("--bitwise"))
    restarts = run.tester.restarts - before if run.tester else 0
    known = run.expected.get(case.name)
    outcome, message = verdict.outcome, verdict.message
    if known is not None:
        if outcome in FAILURES and known.message in message:
            outcome = "expected failure"
        elif outcome in ("passed", "skipped"):
            outcome, message = "failed", f"{outcome}, but is expected to fail: {known.line!r}; remove that line"
        else:
            message += f" (it is expected to fail with {known.message!r})"
    item.stash[_judged] = report.row(verdict, outcome, message, known.reason if known else ""), restarts
    if outcome == "skipped":
        pytest.skip(message)
    if outcome == "expected failure" and known is not None:
        pytest.xfail(known.reason)
    if outcome in FAILURES:
        pytest.fail(_told(verdict, message, _alone(case, config)), pytrace=False)


def _verdict(case: Case, run: Run, bitwise: bool) -> Verdict:
    implementation = run.tester
    if implementation is None:
        return Verdict(case, "errored", run.unusable)
    if draws := case.example.parameters and implementation.draws(case):
        return heaviest(case, (implementation.run(drawn, bitwise) for drawn in draws))
    if case.example.parameters:
        from .adapter import properties

        return properties.examine(case, lambda drawn: implementation.run(drawn, bitwise))
    return implementation.run(case, bitwise)


def _alone(case: Case, config: pytest.Config) -> str:
    """The command that runs the programs of the case's clause on its strategy, and judges them as in this run."""
    strategy = case.strategy.replace(" ", "-")
    if strategy.lower() in case.clause.name.lower():
        strategy += "]"  # with which every name of a test ends
    return f"{_command(config)} --clause {case.clause.name} -k {options.quoted(strategy)}"


def _command(config: pytest.Config) -> str:
    """The command that tests the same implementation with the same options for judging it."""
    return options.command((*options.TESTED, *options.JUDGED), config.getoption)


def _told(verdict: Verdict, message: str, alone: str) -> str:
    case = verdict.case
    lines = [message, f"  clause:    {case.clause.rule} ({case.clause.level})",
             f"  source:    {case.clause.page}, {case.clause.section}; the page is {case.clause.standing}",
             f"  strategy:  {case.strategy}"]
    if verdict.expected:
        lines.append(f"  expected:  {verdict.expected}")
    if verdict.found:
        lines.append(f"  found:     {verdict.found}")
    lines += [f"  run alone: {alone}",
              f"  program:   {case.chapter.path.name}:{case.example.line}"]
    if preamble := case.chapter.preamble:
        lines += [*_numbered(Code(preamble.source, preamble.line), verdict.line), ""]
    lines += _numbered(Code(case.example.source, case.example.line), verdict.line)
    if verdict.output:
        lines += ["  printed meanwhile:", *(f"    {line}" for line in verdict.output.splitlines())]
    return "\n".join(lines)


def _numbered(code: Code, marked: int) -> list[str]:
    return [f"  {'>' if number == marked else ' '} {number:4}  {line}".rstrip()
            for number, line in enumerate(code.source.splitlines(), code.line)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Puts the verdict on the report of the test, which takes it to where the reports are collected."""
    of_pytest = yield
    if of_pytest.when == "call" and _judged in item.stash:
        row, restarts = item.stash[_judged]
        vars(of_pytest)["judged"] = {**row, "seconds": round(of_pytest.duration, 3)}, restarts
    return of_pytest


class _Collector:
    """Collects the verdicts, and how often there was a restart, from wherever the cases were run; sees to the file that
    pytest writes."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "judged" in vars(report) and vars(report)["judged"] is None:
            self._run.outside += 1
        elif "judged" in vars(report):
            row, restarts = vars(report)["judged"]
            self._run.rows.append(row)
            self._run.restarts += restarts
        elif report.failed:
            self._run.broken += 1

    @pytest.hookimpl(wrapper=True, trylast=True)  # inside of pytest's own wrapper, which prints the summary
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        path = session.config.getoption(JUNIT)
        if path is None or hasattr(session.config, "workerinput"):
            return (yield)
        try:
            with files.naming(JUNIT, Path(path)), files.kept(Path(path)):
                return (yield)
        except files.NotWritten as error:
            self._run.unwritten = str(error)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Ends the implementation, and writes the report; a run that judged nothing is not a success, and a mistake of the
    suite is none of it."""
    run, config = session.config.stash[_run], session.config
    _close(run)
    if run.broken:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    elif exitstatus == 0 and (run.rows or run.outside) and all(row["outcome"] == "skipped" for row in run.rows):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
    folder = config.getoption(page.OPTION)
    if folder and run.rows and exitstatus != pytest.ExitCode.INTERNAL_ERROR and not hasattr(config, "workerinput"):
        report.add(run.report, run.name, run.rows, run.everything, _command(config))
        try:
            run.page = str(page.write_run(Path(folder), run.report, run.name))
        except files.NotWritten as error:
            run.unwritten = str(error)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was not tested, what failed, a line for each chapter, totals, and what was written."""
    run, write_line = config.stash[_run], terminalreporter.write_line
    if run.broken:
        write_line(f"the suite itself broke in {run.broken} cases, which say nothing of the implementation")
    if run.rows or run.outside:
        _summarize(run, terminalreporter, config)
    if run.page:
        write_line(f"report: {run.page}")
    if run.unwritten:
        write_line(f"ERROR: {run.unwritten}")


def _summarize(run: Run, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    write_line = terminalreporter.write_line
    terminalreporter.section(f"conformance of {run.name} to suite {VERSION}")
    if run.outside:
        write_line(f"profile {run.profile}: {run.outside} of {len(run.rows) + run.outside} cases need more and are not "
                   f"counted")
    if not run.rows:
        return
    for line in report.skipped(run.rows):
        write_line(line)
    for row in run.rows:
        if row["outcome"] in FAILURES:
            write_line(f"{row['outcome']}: {row['case']}: {on_one_line(row['message'])}")
    for line in report.table(run.rows):
        write_line(line)
    if run.restarts:
        write_line(f"restarts of the implementation: {run.restarts} in {len(run.rows)} cases; each follows a case in "
                   f"which its process crashed, hung or broke the protocol")
    if outside := expected_failures.outside(run.expected, {row["case"] for row in run.rows}):
        write_line(f"{outside} lines of {config.getoption('--expected-failures')} are about cases that were not run")
