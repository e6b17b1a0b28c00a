"""Starting a job again that has lost a worker: when, after which time, and what is said of it.

MPI cannot give a job a new process for one that died, so all processes of a job end with the one that is lost
(`supervisor`), and `refdist launch --max-restarts N` starts all of them again.  What they knew is in the checkpoints
that the program saves: it restores the last one as it begins, and the launch command needs to know only that there is a
new one.  Workers tell their supervisors, and these the desk, when a checkpoint is complete, with its index.

* Whatever ends a job with a failure is a loss: a worker that was killed or has crashed, one that was stopped or does
  not answer, an exception, a process of the launcher.  Which of them would not happen again nobody knows, so
* a loss after which no checkpoint was saved until the next one stops the job: the same happens again at the same step.
  A program that is wrong is thus started twice, and not N times.  Where checkpoints have a step, one that is not beyond
  those before does not count: a program may save as soon as it has restored.
* A job that was told to end, by a signal to the launch command, is not started again, nor in the time in which it
  waits; that is for those who told it, as schedulers do with what they preempt.
* The first restart waits a second, each one twice as long as that before, and none longer than a minute (`backoff`).

A job with parameter servers outlives its workers, which supervisors start again by themselves; what is said here is of
losses that end it.

Standard library only, as the launch command.
"""

from __future__ import annotations

import itertools
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from refdist.backends.mpi.backoff import backoff
from refdist.backends.mpi.processes import ENDING
from refdist.backends.mpi.supervisor import write
from refdist.workers.launcher import prefixed


class Saved(NamedTuple):
    """A checkpoint that is complete.

    Attributes:
        path: what it is restored by.
        step: how far the program was; None where the checkpoint has no variable "step".

    >>> print(Saved("/runs/digits/ckpt-7", 140), "and", Saved("best", None))
    /runs/digits/ckpt-7 (step 140) and best
    """

    path: str
    step: int | None

    def __str__(self) -> str:
        return self.path if self.step is None else f"{self.path} (step {self.step})"


class Ended(NamedTuple):
    """How a job ended that was started once.

    Attributes:
        status: the exit status.
        lost: the line that says who was lost first, with its label; "" for nobody.
        told: whether a signal to the launch command has ended it.
        saved: the last checkpoint that it saved.
        workers: how many processes it had; 0 if there were not enough hosts to start it.
    """

    status: int
    lost: str
    told: bool
    saved: Saved | None
    workers: int


class Loss(NamedTuple):
    """What ended one start of a job.

    Attributes:
        seconds: since the job was started for the first time.
        clock: the time of day.
        line: who was lost, in the words of the report.
        saved: the last checkpoint that there was then.
    """

    seconds: float
    clock: str
    line: str
    saved: Saved | None


def run(most: int, start: Callable[[bool], Ended], woken: socket.socket) -> int:
    """Starts a job, and again when it has lost a worker; returns the exit status, that of the last start.

    Args:
        most: how often it is started again at most; for 0 nothing is said of restarts.
        start: starts it once, for the first time or again, and returns when it has ended.
        woken: readable when a signal has come, with its number.
    """
    began, losses, last, workers, all_of_them = time.monotonic(), list[Loss](), None, 0, 0
    for restarts in itertools.count():
        ended = start(restarts > 0)
        progress = is_beyond(ended.saved, last) or ended.workers != workers
        workers = ended.workers or workers
        all_of_them = all_of_them or workers
        last = ended.saved if is_beyond(ended.saved, last) else last
        if ended.status:
            losses.append(Loss(time.monotonic() - began, time.strftime("%H:%M:%S"), ended.lost, last))
        status, why = ended.status, why_it_ends(ended, restarts, most, progress)
        if not why:
            seconds = backoff(restarts)
            _say(f"restart {restarts + 1} of {most} in {seconds:g} s, from "
                 f"{last or 'the beginning: no checkpoint was saved'}")
            if number := _signal_within(seconds, woken):
                status, why = 128 + number, f"was ended by {signal.Signals(number).name} before it was started again"
        if why:
            if losses and most:
                if workers < all_of_them:
                    why += f", with {workers} of {all_of_them} workers"
                _say(summary(why, restarts, time.monotonic() - began, losses, last))
            return status
    raise AssertionError("it ends")


def is_beyond(saved: Saved | None, last: Saved | None) -> bool:
    """Whether a start has saved what was not there before.

    >>> is_beyond(Saved("ckpt-3", 30), Saved("ckpt-2", 20)), is_beyond(Saved("ckpt-3", 20), Saved("ckpt-2", 20))
    (True, False)
    """
    if saved is None or last is None or saved.step is None or last.step is None:
        return saved is not None
    return saved.step > last.step


def why_it_ends(ended: Ended, restarts: int, most: int, progress: bool) -> str:
    """The reason why a job is not started again, as it ends a sentence about the job; "" if it is started again.

    Args:
        ended: how it has ended.
        restarts: how often it was started again before.
        most: how often it may be.
        progress: whether it has saved a checkpoint that was not there when it was started, or had another number of
            workers than before.
    """
    if not ended.status:
        return "came to its end"
    if ended.told:
        return "was told to end"
    if restarts and not progress:
        return "failed again before it had saved a checkpoint, and is not started any more"
    if restarts == most and not ended.workers:
        return f"could not be started again, as often as --max-restarts={most} allows"
    if restarts == most:
        return f"failed, and was started again as often as --max-restarts={most} allows"
    return ""


def summary(why: str, restarts: int, seconds: float, losses: list[Loss], last: Saved | None) -> str:
    """What became of the job: a line for all of it, and one for each loss.

    >>> lost = Loss(3.21, "14:03:07", "[worker 1] was killed by SIGKILL", Saved("ckpt-4", 20))
    >>> print(summary("came to its end", 1, 9.04, [lost], Saved("ckpt-8", 40)))
    after 9.0 s and 1 restart the job came to its end; last checkpoint: ckpt-8 (step 40)
    lost after 3.2 s, at 14:03:07, with ckpt-4 (step 20): [worker 1] was killed by SIGKILL
    """
    count = f"{restarts} restart{'' if restarts == 1 else 's'}"
    lines = [f"after {seconds:.1f} s and {count} the job {why}; last checkpoint: {last or 'none'}"]
    lines += [f"lost after {loss.seconds:.1f} s, at {loss.clock}, with {loss.saved or 'no checkpoint'}: {loss.line}"
              for loss in losses]
    return "\n".join(lines)


def _say(text: str) -> None:
    write(prefixed("launcher", text))


def _signal_within(seconds: float, woken: socket.socket) -> int:
    # The first signal that ends a job, or 0.
    until = time.monotonic() + seconds
    while select.select([woken], [], [], max(until - time.monotonic(), 0))[0]:
        for number in woken.recv(64):
            if number in ENDING:
                return number
    return 0
