"""Sessions: how an implementation is run, so that whatever it does costs one case.

An adapter in Python runs in a process of its own (`adapter/`), as a testee in another language does, and both speak the
same protocol (`protocol.py`); only on request does an adapter run in this process, where a crash or a hang is the end
of everything.  There is one place where results are compared (`judging`), and one form in which they come.

**What goes wrong costs the case that is being run and no other.** As soon as it is unclear where the other side is (it
has ended, says nothing in time, sends what is not JSON, not UTF-8, too much, or an answer to a question that was not
asked) it is killed with all that it has started (`process.py`), and the next case has a new process.  Numbers of
questions are never used again, so that a second answer to an old question is known for what it is, and kept as
printed.  An answer that arrives and has a wrong form costs its case, too, and needs no new process.

What cannot be started at all, or speaks another protocol, is wrong usage (`Unusable`).  What was started once and
cannot be started again, `STARTS` times in a row, is given up, and what is left is errored with the reason.
"""

from __future__ import annotations

import atexit
import json
import shlex
import shutil
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from . import kept, protocol
from .capabilities import needs
from .chapters import Case
from .distribution import COMMAND, VERSION, WHOLE
from .examples import Answer, Program, program
from .judging import NEEDS, Verdict, judge
from .notation import cut, on_one_line
from .process import Broken, Process
from .protocol import ANSWERS, Message, Unusable

LIMIT = 30.0  # seconds that a case may take
START_LIMIT = 120.0  # seconds until an implementation has said who it is
STARTS = 3  # attempts to start it again


@dataclass(frozen=True)
class Reply:
    """What came of a program: the answers of the workers, or the outcome ("skipped", "unsupported", "errored") and why.

    `output` is what was printed meanwhile.
    """

    answers: list[Answer] = field(default_factory=list)
    outcome: str = ""
    message: str = ""
    output: str = ""


class Tester(ABC):
    """An implementation that is being tested.

    Attributes:
        name, version: of the implementation.
        lacks: the capabilities that it does not have.
        outside: those of them that the profile that it claims does not have, and `profile`, its name.
        restarts: how often its process had to be started again.
    """

    name: str
    version: str
    lacks: frozenset[str]
    outside: frozenset[str]
    profile: str
    restarts = 0

    def skipped(self, case: Case) -> Verdict | None:
        """The verdict on a case that needs capabilities that it lacks; None, if it is to be run."""
        missing = self.lacks and needs(program(case)) & self.lacks
        return Verdict(case, "skipped", NEEDS + ", ".join(sorted(missing)), case.example.line) if missing else None

    def is_outside(self, case: Case) -> bool:
        """Whether a case needs more than the profile that the implementation claims."""
        return bool(self.outside) and not needs(program(case)).isdisjoint(self.outside)

    def draws(self, case: Case) -> Sequence[Case]:
        """A property with the values that the implementation is asked with; none where any values may be drawn."""
        return ()

    def run(self, case: Case, bitwise: bool = False) -> Verdict:
        """Runs a case and compares."""
        if verdict := self.skipped(case):
            return verdict
        reply = self.ask(program(case), case)
        if reply.outcome:
            return Verdict(case, reply.outcome, reply.message, case.example.line, output=reply.output)
        return judge(case, reply.answers, bitwise, reply.output)

    @abstractmethod
    def ask(self, program: Program, case: Case | None = None) -> Reply:
        """Runs a program, which may be that of a case."""

    @abstractmethod
    def close(self) -> None:
        """Ends the implementation."""


class Folder:
    """Where the temporary files of the cases go that an implementation is asked; removed with it at the latest.

    Attributes:
        path: of the folder.
        remove: removes it with all that it has.
    """

    def __init__(self, tester: Tester) -> None:
        self.path = tempfile.mkdtemp(prefix="refdist-suite-")
        self.remove = weakref.finalize(tester, shutil.rmtree, self.path, ignore_errors=True)


class Session(Tester):
    """An implementation in a process of its own.

    Args:
        command: what starts it.
        limit: seconds that a case may take.
        question: a case as it is sent.
        draws: a property with the values that it is asked with; none where any may be drawn.

    Raises:
        Unusable: it cannot be started, or does not say who it is.
    """

    def __init__(self, command: Sequence[str], limit: float = LIMIT,
                 question: Callable[[Case], Message] = protocol.case_message,
                 draws: Callable[[Case], Sequence[Case]] = lambda case: ()) -> None:
        self._command, self._limit, self._question, self._draws = list(command), limit, question, draws
        self._number = 0
        self._given_up = ""
        self._folder = Folder(self)
        self._process: Process | None
        self._process, facts = self._started()
        self.name, self.version, self.lacks, self.outside, self.profile = facts
        atexit.register(self.close)

    def draws(self, case: Case) -> Sequence[Case]:
        """A property with the values that it is asked with, as the session was told."""
        return self._draws(case)

    def close(self) -> None:
        """Ends the process: by itself if it is waiting for a question, by force if it does not."""
        atexit.unregister(self.close)
        if self._process:
            self._process.end(now=False)
            self._process = None
        self._folder.remove()
        self._given_up = "the session has been closed"

    def ask(self, program: Program, case: Case | None = None) -> Reply:
        """Sends a program and reads the answer; whatever goes wrong costs this program only."""
        if self._process and not self._process.listens():
            self._process.end(now=True)
            self._process = None
        try:
            process = self._process or self._started_again()
        except Unusable as error:
            return Reply([], "errored", on_one_line(str(error), 500))
        self._number += 1
        message = self._question(case) if case else protocol.program_message(program)
        try:
            process.send(protocol.question(self._number, message))
            answer = self._answer(process)
        except BaseException as error:
            # It is not known what the process will say next, nor, after an interrupt, to which question.
            self._process = None
            process.end(now=True)
            if not isinstance(error, Broken):
                raise
            return Reply([], "errored", str(error), process.printed())
        reply = read_reply(answer, program, process.printed())
        if reply.outcome == "skipped" and "only_python" in message:
            return replace(reply, message=f"only Python can run it: {reply.message}")
        return reply

    def _answer(self, process: Process) -> Message:
        deadline = time.monotonic() + self._limit
        while True:
            message = process.receive(deadline, f"no answer within {self._limit:g} s")
            number = message.get("id")
            known = type(number) is int and 0 < number <= self._number
            if known and number == self._number:
                return message
            if not known and message.keys() & {"id", *ANSWERS}:
                raise Broken(f"an answer with the id {cut(number)} to question {self._number}: {cut(message)}")
            process.keep(json.dumps(message).encode())

    def _started(self) -> tuple[Process, protocol.Implementation]:
        try:
            process = Process(self._command, environment={"TMPDIR": self._folder.path})
        except (OSError, ValueError) as error:
            raise Unusable(f"it cannot be started: {error}") from None
        try:
            process.send(protocol.suite(VERSION))
            deadline = time.monotonic() + START_LIMIT
            while True:
                message = process.receive(deadline, f"it has not said who it is within {START_LIMIT:g} s")
                if "protocol" in message:
                    return process, protocol.read_implementation(message)
                process.keep(json.dumps(message).encode())
        except BaseException as error:
            process.end(now=True)
            if not isinstance(error, (Broken, Unusable)):
                raise
            printed = process.printed()
            raise Unusable(f"{error}; it printed:\n{printed}" if printed else str(error)) from None

    def _started_again(self) -> Process:
        for attempt in range(STARTS):
            if self._given_up:
                break
            try:
                self._process, _ = self._started()
                self.restarts += 1
                return self._process
            except Unusable as error:
                if attempt == STARTS - 1:
                    self._given_up = f"it could not be started again, {STARTS} times in a row: {error}"
        raise Unusable(self._given_up)


def read_reply(message: Message, program: Program, printed: str) -> Reply:
    """What came of a program, from the answer to its question and from what was printed meanwhile."""
    keys = [key for key in ANSWERS if key in message]
    if len(keys) != 1:
        return Reply([], "errored", f"the answer is {cut(message)}; it has one of {', '.join(ANSWERS)}", printed)
    if keys[0] == "answers":
        try:
            return Reply(protocol.read_answers(message["answers"], program), output=printed)
        except ValueError as error:
            return Reply([], "errored", on_one_line(str(error), 500), printed)
    reason = message[keys[0]]
    outcome = "skipped" if keys[0] == "skip" else "unsupported"
    if not isinstance(reason, str) or not reason.strip():
        return Reply([], "errored", f"{outcome} without a reason: {cut(reason)}", printed)
    return Reply([], outcome, on_one_line(reason), printed)


def tester(text: str, limit: float = LIMIT, in_process: bool = False, python: str = "", strategy: str = "") -> Tester:
    """The implementation that a text names: an adapter, by "package.module:Class" or its short name, or
    "testee:COMMAND".

    Args:
        text: what `--adapter` was given.
        limit: seconds that a case may take.
        in_process: whether an adapter is run in this process.
        python: the interpreter that an adapter is run with, if it is another one; refdist need not be installed there.
        strategy: "package.module:make", another author's strategy that the adapter is to take.

    Raises:
        Unusable: it cannot be tested at all.
    """
    if text.startswith("testee:"):
        if python or strategy:
            raise Unusable("--python and --strategy are for adapters; a testee is started by its own command")
        try:
            command = shlex.split(text.removeprefix("testee:"))
        except ValueError as error:
            raise Unusable(f"{text}: {error}") from None
        if not command:
            raise Unusable("write testee:COMMAND")
        return Session(command, limit, kept.question, kept.draws)
    if not WHOLE:
        raise Unusable(f"write {COMMAND} --adapter \"testee:COMMAND\", with what starts the testee; adapters in Python "
                       f"need refdist: `pip install '.[conformance]'` in a clone, and `python -m refdist.conformance`")
    from .adapter.session import tester_of_adapter

    return tester_of_adapter(text, limit, in_process, python, strategy)
