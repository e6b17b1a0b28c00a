"""Starts a trainer, and gathers its answers.

A trainer is started once for all jobs, because a start may take seconds: of a launcher, a compiler, a cluster.
Whatever it does costs one job: when it ends, or is silent for too long, the first job that is not answered is the one
that it was doing, and it is started again with those after that one.  `process.py` sees to it that nothing is waited
for without a limit, and that all that was started ends.

Answers are lines of JSON with the number of a job; whatever else is printed (progress, warnings, dictionaries of other
libraries) is kept as output.  Several processes may say parts of one answer, in any order: the lines of a job are
merged, and the job is over when a line has `"done": true` or says that it is unsupported.
"""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ..process import Broken, Process
from ..protocol import Unusable
from . import jobs
from .jobs import Job

LIMIT = 60.0  # seconds that a job may take
START_LIMIT = 120.0  # seconds that a start may take in addition
STARTS = 3  # starts in a row without an answer, after which a trainer is given up
PRINTED = 64_000  # bytes of what a trainer prints that are kept: a launcher adds pages to the message of an exception
AFTERWARDS = 5.0  # seconds in which all processes end after the first one has
PLACE = "{replicas}"  # in a command, stands for the number of replicas of the jobs in its file


@dataclass
class Result:
    """What a trainer answered to a job.

    Attributes:
        whole: what holds for all replicas.
        each: what holds for one replica, by its number.
        unsupported: why it cannot do the job, or "".
        declared: a caveat that its documentation has, with its page.
        broken: how the conversation ended during this job, or "".
        silent: whether it was silent for too long.
        status: the exit status, where the trainer ended during this job.
        left_over: how many of its processes there were after that.
        output: what it printed.
    """

    whole: dict[str, Any] = field(default_factory=dict)
    each: dict[int, dict[str, Any]] = field(default_factory=dict)
    unsupported: str = ""
    declared: dict[str, Any] | None = None
    broken: str = ""
    silent: bool = False
    status: int | None = None
    left_over: int = 0
    output: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more will be said of the job."""
        return bool(self.unsupported or self.broken or self.whole.get("done"))

    def take(self, line: dict[str, Any]) -> None:
        """Merges a line of an answer.

        Args:
            line: the JSON object; its fields replace earlier ones of the same names.
        """
        fields = {name: value for name, value in line.items()
                  if name not in ("id", "replica", "unsupported", "declared")}
        if "unsupported" in line:
            self.unsupported = str(line["unsupported"]) or "without a reason"
        if isinstance(line.get("declared"), dict):
            self.declared = line["declared"]
        if isinstance(line.get("replica"), int):
            if "done" in fields:
                self.whole["done"] = fields.pop("done")
            self.each.setdefault(line["replica"], {}).update(fields)
        else:
            self.whole.update(fields)


def run(command: str, all_jobs: Sequence[Job], limit: float = LIMIT,
        tell: Callable[[Job], None] = lambda job: None) -> dict[int, Result]:
    """Gives jobs to a trainer; returns its answer to each, by number.

    Args:
        command: what starts it; the file of jobs is its last argument.  Where it has `{replicas}`, it is started for
            each number of replicas, with the jobs of that number.
        all_jobs: the jobs, with different numbers.
        limit: seconds that a job may take.
        tell: is called with every job that is over.

    Raises:
        Unusable: the command cannot be started.
    """
    if not shlex.split(command):
        raise Unusable("--command: there is none; write --command \"python trainer.py\"")
    results = {job["id"]: Result() for job in all_jobs}
    with tempfile.TemporaryDirectory(prefix="refdist-trainer-") as folder:
        placed = [in_folder(job, folder) for job in all_jobs]
        ordered = sorted(placed, key=lambda job: job["replicas"]) if PLACE in command else placed
        if PLACE in command:  # checkpoints are written by two replicas, and read by others
            ordered.sort(key=lambda job: job["replicas"] != 2)
        for replicas, group in groupby(ordered, lambda job: job["replicas"] if PLACE in command else 0):
            started = [part.replace(PLACE, str(replicas)) for part in shlex.split(command)]
            _run(started, list(group), results, limit, tell, Path(folder))
    return results


def in_folder(job: Job, folder: str) -> Job:
    """A job whose checkpoint is in a folder."""
    checkpoint = job["checkpoint"] and {verb: f"{folder}/{name}" for verb, name in job["checkpoint"].items()}
    return {**job, "checkpoint": checkpoint}


def answers(line: bytes) -> Iterator[dict[str, Any]]:
    """The answer that a printed line is, if it is one: a JSON object with the number of a job.

    >>> list(answers(b'50 % \\r{"id": 7, "done": true}')), list(answers(b"{'loss': 0.5}"))
    ([{'id': 7, 'done': True}], [])
    """
    text = line.decode(errors="replace").strip().rpartition("\r")[2]
    if text.startswith("{"):
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            return
        if type(answer.get("id")) is int:
            yield answer


def _run(command: list[str], todo: list[Job], results: dict[int, Result], limit: float,
         tell: Callable[[Job], None], folder: Path) -> None:
    """Starts the command until no job is left, or it never answers, or is silent again and again."""
    starts, silent, answered = 0, 0, False
    while todo:
        file = folder / "jobs.jsonl"
        jobs.write(file, todo)
        try:
            process = Process([*command, str(file)], PRINTED)
        except (OSError, ValueError) as error:
            raise Unusable(f"{command[0]} cannot be started: {error}") from None
        count = len(todo)
        try:
            broken = _listen(process, todo, results, limit, tell)
        finally:
            process.end(now=True)
        current = results[todo[0]["id"]] if broken else Result()
        if broken:
            # Its last errors may have been read before its last answers, and be in the output of an earlier job.
            printed, errors = process.printed(), process.errors()
            current.output = printed if errors in printed else f"{printed}\n{errors}".strip()
            while todo and results[todo[0]["id"]].over:
                tell(todo.pop(0))
        any_answer = len(todo) < count - 1
        answered, starts = answered or any_answer, starts + 1
        silent = silent + 1 if current.silent and not any_answer else 0
        if silent == STARTS or (starts == STARTS and not answered):
            for job in todo:
                results[job["id"]].broken = f"it was started {STARTS} times in a row and answered nothing: {broken}"
                tell(job)
            return


def _listen(process: Process, todo: list[Job], results: dict[int, Result], limit: float,
            tell: Callable[[Job], None]) -> str:
    """Hears a process until its jobs are done, or one is not; takes those that are done from the list.

    Returns:
        How the conversation broke during the first job of the list, or "".
    """
    deadline = time.monotonic() + START_LIMIT + limit
    while todo:
        current = results[todo[0]["id"]]
        try:
            line = process.line(deadline, f"no answer within {limit:g} s")
        except Broken as error:
            current.broken, current.status = str(error), process.status()
            current.silent = current.status is None
            if not current.silent:
                until = time.monotonic() + AFTERWARDS
                while (remaining := process.left_over()) and time.monotonic() < until:
                    time.sleep(0.05)
                current.left_over = remaining
            return current.broken
        is_answer = False
        for answer in answers(line):
            if is_answer := answer["id"] in results:
                results[answer["id"]].take(answer)
        if not is_answer:
            process.keep(line)
        while todo and results[todo[0]["id"]].over:
            results[todo[0]["id"]].output = process.printed()
            tell(todo.pop(0))
            deadline = time.monotonic() + limit
    # Lines of other processes may arrive after the last "done".
    try:
        while True:
            for answer in answers(process.line(time.monotonic() + AFTERWARDS, "")):
                if answer["id"] in results:
                    results[answer["id"]].take(answer)
    except Broken:
        return ""
