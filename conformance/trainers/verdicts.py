"""Verdicts on a trainer: one on each job, and one on each clause, the worst of its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import reference
from .checks import CHECKS, Incomplete
from .clauses import Clause
from .jobs import Job
from .runner import Result

# The worst first.
OUTCOMES = ("WRONG", "errored", "stale", "documented", "right", "unsupported")
BAD = ("WRONG", "errored", "stale")


@dataclass(frozen=True)
class Verdict:
    """The result of a job, or of a clause.

    Attributes:
        clause: its clause.
        outcome: `right`, `WRONG`, `documented` (wrong, and a page of the trainer's says so), `stale` (right, although a
            page is named that says otherwise), `errored` (no answer that can be judged) or `unsupported`.
        message: why.
        output: what was printed meanwhile, where that helps.
    """

    clause: str
    outcome: str
    message: str = ""
    output: str = ""


def judge(clauses: Sequence[Clause], jobs: Sequence[Job], results: Mapping[int, Result]) -> list[Verdict]:
    """A verdict on each clause.

    Args:
        clauses: those that are judged.
        jobs: all jobs that were done, in order.
        results: what came of each, by number.
    """
    states: dict[str, reference.State] = {}
    of_clauses: dict[str, list[Verdict]] = {clause.name: [] for clause in clauses}
    by_name = {clause.name: clause for clause in clauses}
    for job in jobs:
        checkpoint = job["checkpoint"] or {}
        expected = reference.answer(job, states.get(checkpoint.get("restore", "")))
        if "save" in checkpoint and expected.state:
            states[checkpoint["save"]] = expected.state
        clause = by_name[job["clause"]]
        verdict = of_job(clause, job, expected, results[job["id"]])
        # A clause of failing replicas has a job without a failure, too, which alone says nothing of the clause.
        if clause.check != "failed" or job["fail"] or verdict.outcome != "right":
            of_clauses[clause.name].append(verdict)
    return [of_clause(name, of_jobs) for name, of_jobs in of_clauses.items()]


def of_job(clause: Clause, job: Job, expected: reference.Answer, result: Result) -> Verdict:
    """The verdict on a job."""
    if result.unsupported:
        return Verdict(clause.name, "unsupported", result.unsupported)
    if result.broken and not job["fail"]:
        outcome = "WRONG" if clause.hang and result.silent else "errored"
        return Verdict(clause.name, outcome, result.broken, result.output)
    try:
        message = CHECKS[clause.check](job, expected, result)
    except Incomplete as error:
        return Verdict(clause.name, "errored", str(error), result.output)
    replicas = f"on {job['replicas']} replica{'s' * (job['replicas'] != 1)}: "
    if result.declared:
        page = str(result.declared.get("page", ""))
        if not page:
            return Verdict(clause.name, "errored", "a declared caveat names no page", result.output)
        if not message:
            return Verdict(clause.name, "stale", f"{replicas}it does what is right; {page} says otherwise")
        return Verdict(clause.name, "documented", f"{replicas}{message} ({page})")
    return Verdict(clause.name, "WRONG" if message else "right", message and replicas + message, result.output)


def of_clause(name: str, of_jobs: Sequence[Verdict]) -> Verdict:
    """The verdict on a clause: the worst of those on its jobs."""
    worst = min(of_jobs, key=lambda verdict: OUTCOMES.index(verdict.outcome))
    judged = [verdict for verdict in of_jobs if verdict.outcome != "unsupported"]
    if worst.outcome == "right" and len(judged) < len(of_jobs):
        reason = next(verdict.message for verdict in of_jobs if verdict.outcome == "unsupported")
        return Verdict(name, "right", f"{len(judged)} of {len(of_jobs)} jobs; {reason}")
    return worst


def exit_status(judged: Sequence[Verdict]) -> int:
    """0 where nothing is wrong, 1 where something is, 5 where nothing could be judged."""
    if any(verdict.outcome in BAD for verdict in judged):
        return 1
    return 0 if any(verdict.outcome != "unsupported" for verdict in judged) else 5
