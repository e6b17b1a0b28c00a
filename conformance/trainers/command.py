"""The command `trainers --command "torchrun --nproc-per-node {replicas} mine.py"`: tests a program that trains.

Exit status: 0 where nothing is wrong, 1 where something is, 2 interrupted, 3 where a report could not be written after
the run, 4 wrong usage or a trainer that cannot be started, 5 where not one clause could be judged.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .. import expected_failures, files, page
from .. import report as reports
from ..distribution import COMMAND
from ..notation import on_one_line
from ..options import quoted
from ..protocol import Unusable
from . import clauses, jobs
from .last_failed import LastFailed
from .runner import LIMIT, PLACE, Result, run

JUNIT = "--junitxml"
TESTEES = Path(__file__).parent / "testees"
# What is written for a testee to begin with: itself, what all testees need, what makes a model from a job, and a whole
# testee with a process for each replica.
WRITTEN = ("testee.py", "trainer_jobs.py", "numpy_model.py", "torch_model.py", "jax_model.py", "keras_model.py",
           "ddp.py", "torch_loop.py", "caveats.py")


def write_testee(folder: Path) -> None:
    """Writes a testee to begin with into a folder, and the files that it needs; makes the folder if there is none.

    Raises:
        ValueError: the folder has one of these files already; nothing is written.
        OSError: the folder cannot be written to.
    """
    if present := [name for name in WRITTEN if (folder / name).exists()]:
        raise ValueError(f"--write-testee: {', '.join(present)} in {folder} would be overwritten; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in WRITTEN:
        (folder / name).write_text((TESTEES / name).read_text(encoding="utf-8"), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Judges a trainer; returns the exit status."""
    parser = argparse.ArgumentParser(f"{COMMAND} trainers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", metavar="COMMAND", help="starts the trainer; the file of jobs becomes its last "
                        f"argument, and {PLACE} in it the number of replicas")
    parser.add_argument("--clause", action="append", default=[], metavar="NAME",
                        help="only this clause; may be repeated")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS",
                        help=f"that a job may take ({LIMIT:g}); the first one may take longer")
    parser.add_argument("--last-failed", action="store_true",
                        help="only the clauses that this command failed last, and all if it failed none")
    parser.add_argument("--expected-failures", type=Path, metavar="FILE",
                        help="lines `clause | part of the message | why`; * stands for anything; a line that is not "
                             "true is an error")
    parser.add_argument("--report", type=Path, metavar="FOLDER",
                        help="write report.json, report.md, report.html and badge.json there, as the suite does")
    parser.add_argument(JUNIT, type=Path, metavar="FILE", help="write the verdicts there as JUnit XML")
    parser.add_argument("--write-jobs", type=Path, metavar="FILE", help="only write the jobs there")
    parser.add_argument("--write-testee", type=Path, metavar="FOLDER",
                        help="only write a testee to begin with there, and what makes models from jobs")
    try:
        asked = parser.parse_args(arguments)
    except SystemExit as ended:
        return 4 if ended.code else 0
    try:
        chosen, last = clauses.chosen(asked.clause), LastFailed(asked.command or "")
        if asked.last_failed:
            chosen = last.of(chosen)
        todo = [job for job in clauses.jobs() if job["clause"] in {clause.name for clause in chosen}]
        if asked.write_jobs:
            with files.naming("--write-jobs", asked.write_jobs):
                jobs.write(asked.write_jobs, todo)
        if asked.write_testee:
            with files.naming("--write-testee", asked.write_testee):
                write_testee(asked.write_testee)
            print(f"{asked.write_testee / WRITTEN[0]} needs NumPy. To run it:", f"cd {quoted(str(asked.write_testee))}",
                  f'{COMMAND} trainers --command "python {WRITTEN[0]}"', sep="\n    ")
        if asked.write_jobs or asked.write_testee:
            return 0
        try:
            from . import expected, forms, verdicts
        except ModuleNotFoundError as error:
            raise ValueError(f"answers are judged with {error.name}, which is not installed: run `pip install "
                             f"{error.name}`") from None
        if other := [name for name in re.findall(r"(?<!\$)\{\w+\}", asked.command or "") if name != PLACE]:
            raise ValueError(f"--command has {other[0]}, and only {PLACE} stands for something: the number of replicas")
        known = expected.read(asked.expected_failures) if asked.expected_failures else {}
        if asked.report:
            page.check(asked.report)
        if asked.junitxml:
            files.check(JUNIT, [asked.junitxml])
        report = reports.begun(asked.report) if asked.report else reports.empty()
        seconds: dict[str, float] = {}
        results = run(asked.command or "", todo, asked.limit, clock(seconds))
    except (Unusable, ValueError, OSError) as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        return 2
    from .report import CHAPTER, add, junit, row
    from .table import table

    print(file=sys.stderr)
    for job in todo:
        result = results[job["id"]]
        result.broken = result.broken or forms.fault(job, result)
    judged = expected.compared([forms.shown(verdict) for verdict in verdicts.judge(chosen, todo, results)], known)
    again = f"{COMMAND} trainers --command {quoted(asked.command)}"
    again += f" --limit {asked.limit:g}" if asked.limit != LIMIT else ""
    again += f" --expected-failures {quoted(str(asked.expected_failures))}" if asked.expected_failures else ""
    print("\n".join(table(judged, again)))
    if outside := expected_failures.outside(known, {clause.name for clause in chosen}):
        print(f"{outside} lines of {asked.expected_failures} are about clauses that were not run")
    try:
        last.keep([verdict.clause for verdict in judged],
                  [verdict.clause for verdict in judged if verdict.outcome in verdicts.BAD])
    except OSError as error:
        print(f"WARNING: `--last-failed` will not know of this run: {error}", file=sys.stderr)
    name = name_of(results, asked.command)
    reasons = {clause: line.reason for clause, line in known.items()}
    add(report, name, [row(verdict, clause, seconds[clause.name], reasons.get(clause.name, ""))
                       for verdict, clause in zip(judged, chosen, strict=True)], again)
    try:
        if asked.report:
            print(f"report: {page.write_run(asked.report, report, name, CHAPTER)}")
        if asked.junitxml:
            files.write(JUNIT, {asked.junitxml: junit(report, name)})
    except files.NotWritten as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 3
    return verdicts.exit_status(judged)


def clock(seconds: dict[str, float]) -> Callable[[jobs.Job], None]:
    """What is called with every job that is over: prints a dot, and adds what the job took to that of its clause."""
    last = time.monotonic()

    def over(job: jobs.Job) -> None:
        nonlocal last
        now = time.monotonic()
        seconds[job["clause"]] = seconds.get(job["clause"], 0.0) + now - last
        last = now
        print(".", end="", file=sys.stderr, flush=True)

    return over


def name_of(results: Mapping[int, Result], command: str) -> str:
    """What a trainer says that it is (`trainer` in an answer), or else the command that starts it."""
    said = (str(result.whole["trainer"]) for result in results.values() if "trainer" in result.whole)
    return next(map(on_one_line, said), command)
