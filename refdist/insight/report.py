"""What `refdist.explore` has found, and how it is shown.

A report has no times in it, so that it is the same for the same program.
"""

from __future__ import annotations

from collections.abc import Sequence

from refdist.disk import READ, REMOVE, RENAME
from refdist.insight.anomalies import SHARED, Anomaly
from refdist.insight.commuting import QUEUEING, Effect
from refdist.insight.outcomes import Outcome, text
from refdist.insight.schedules import PROGRAM, RETURN, Step, name_of
from refdist.notebook import drawing

LIMITS = ("(of the order of accesses to refdist's variables, and of what is done between two of them with Python "
          "objects that functions share; not of files, the time, or what libraries keep to themselves)")
KILLS_LIMITS = LIMITS.replace("; not of files", ", and of kills before each step of refdist's files; not of others")
ORDERS_LIMITS = ("(of the Python objects, random states and files that replicas share; not of the time, the order of "
                 "what is printed, what libraries keep to themselves, or what an expression has computed when replicas "
                 "meet in the middle of it)")
FILES = {RENAME: "saves", REMOVE: "removes", READ: "restores"}  # steps on files that are shown, and the verbs for them
SHOWN_OBJECTS = 4
SHOWN = 40  # the most lines of a schedule, and characters of a value


class Finding:
    """Something that is wrong in a schedule.

    Attributes:
        title: "LOST UPDATE", "TORN READ", "TORN WRITE", "STALE READ" or "NOT ONE AFTER THE OTHER", where the functions
            could not have run whole; "NOT RESTART-SAFE", where one was lost and ran again; "CHECK" where the check
            fails, "RAISED" where the program does; "NOT REPEATABLE" where one schedule had two results;
            "TOO STALE" where a variable is written more than `max_staleness` updates after it was read;
            "ORDER OF REPLICAS" where the result is another in another order of replicas;
            "CANNOT BE STOPPED" where a function catches the exception that ends it, and goes on.
        why: what is wrong, with the result.
        choices: the schedule, as a list for `refdist.coordinator.interleaving`.
        switches: how many of the choices are not the quiet one.
    """

    def __init__(self, title: str, why: str, choices: Sequence[int], lines: Sequence[str],
                 anomaly: Anomaly | None = None, steps: Sequence[Step] = (), fewest: bool = False,
                 options: str = "", losses: bool = False, advice: str = "") -> None:
        self.title = title
        self.why = why
        self.choices = list(choices)
        self.switches = sum(map(bool, choices))
        self._lines = list(lines)
        self._anomaly = anomaly
        self._steps = steps
        self._fewest = fewest
        self._options = options
        self._losses = losses
        self._advice = advice

    def _head(self) -> str:
        """What is wrong with which variable at which line, and how many switches it takes."""
        head = self.title
        if self._advice:
            return f"{head}, {self.switches} switch{'es' * (self.switches != 1)}"
        if self._anomaly is not None:
            access = self._anomaly.subject(self._steps).access
            known = "" if self.title == self._anomaly.kind.title else f", with a {self._anomaly.kind.title}"
            changes = self._anomaly.subject(self._steps).changes
            if self._anomaly.kind is SHARED:
                head += f"{known} {changes[0]}" if known else f" {changes[0]}"
            else:
                head += f"{known} of {access.name} ({access.place})" if access.name else known
        if self._lines and self._steps:
            losses = sum(step.lost or step.server is not None for step in self._steps)
            kills = sum(step.killed for step in self._steps)
            notices = sum(step.told for step in self._steps)
            switches = self.switches - losses - kills - notices
            head += ", 1 kill" * kills + ", 1 notice" * notices
            head += f", {losses} loss{'es' * (losses != 1)}" * bool(losses)
            head += f", {switches} switch{'es' * (switches != 1)}" * bool(
                switches or not losses + kills + notices)
            head += " and no schedule has it with fewer" * (self._fewest and self.switches > 0)
        return head

    def _schedule(self) -> str:
        """The accesses in order, one on each line; "" if they do not matter."""
        return "\n".join(self._lines)

    def _what_to_do(self) -> list[tuple[str, str]]:
        """What to write instead, and how to repeat the schedule."""
        advice = []
        if self._anomaly is not None:
            name = self._anomaly.subject(self._steps).access.name
            advice.append(("write", self._anomaly.kind.advice.format(name=name)))
        if self._advice:
            advice.append(("write", self._advice))
        if self._steps or self._advice:
            choices = f"--choices {','.join(map(str, self.choices)) or '0'}"
            how = f"explore SCRIPT{self._options} {choices}"
            both = f"interleaving({self.choices}), or {how}"
            advice.append(("replay", how if self._losses or self._advice else both))
        return advice

    def __str__(self) -> str:
        return "\n".join([self._head(), f"  {self.why}", *(f"  {line}" for line in self._lines),
                          *(f"  {name}: {text}" for name, text in self._what_to_do())])

    def _repr_html_(self) -> str:
        return drawing(self)

    def __repr__(self) -> str:
        return f"<Finding {self.title}: {self.why}>"


class Report:
    """The report of an exploration; `print` shows it.

    Attributes:
        findings: what is wrong, one for each kind and line.
        classes: how many classes of schedules were run to their end.
        runs: how often the program was run in all.
        first: after how many runs a fault was first found, those of whole functions included; None where none was.
        losses: in how many runs one or two workers were lost, or a parameter server.
        kills: in how many runs the program was killed while it saved, and began again.
        notices: in how many runs it was told to end, and began again.
        results: (what the program came to, in how many classes).
        sampled: what was run of the other classes, where there were too many.
        reasons: why nothing is proved, where that is so although nothing was found.
        interrupted: whether Ctrl-C ended it.
        shared: Python objects that a function, or the coordinator meanwhile, has changed and others could see.
    """

    def __init__(self, asked: str, lost: str, limits: str = LIMITS) -> None:
        self.findings: list[Finding] = []
        self.classes = 0
        self.runs = 0
        self.first: int | None = None
        self.losses = 0
        self.kills = 0
        self.notices = 0
        self.sampled: list[str] = []
        self.reasons: list[str] = []
        self.shared: list[str] = []
        self.interrupted = False
        self._asked = asked
        self._lost = lost
        self._limited = limits
        self._results: dict[str, int] = {}

    @property
    def proved(self) -> bool:
        """Whether every schedule of accesses to refdist's variables was covered, and nothing is wrong in any."""
        return not self.findings and not self.reasons

    @property
    def results(self) -> list[tuple[str, int]]:
        return sorted(self._results.items(), key=lambda item: (-item[1], item[0]))

    def assert_ok(self) -> None:
        """For tests: nothing is wrong in what was run.  `assert report.proved` asks for all schedules.

        Raises:
            AssertionError: something is; its text is the report.
        """
        if self.findings:
            raise AssertionError(str(self))

    def _count(self, came: Outcome) -> None:
        self.classes += 1
        self._results[str(came)] = self._results.get(str(came), 0) + 1

    def _end(self, runs: int, first: int | None, reasons: Sequence[str], shared: Sequence[str]) -> None:
        self.runs = runs
        self.first = first
        self.reasons = list(reasons)
        self.shared = list(shared)

    def _head(self) -> str:
        """What was found or proved, in a sentence."""
        schedules = f"{self.classes} class{'es' * (self.classes != 1)} of schedules"
        if self.proved:
            return f"proved {self._asked}: {schedules}, all that there are"
        if self.findings:
            first = f", the first after {self.first} of {self.runs} runs" if self.first else ""
            return f"found {len(self.findings)} fault{'s' * (len(self.findings) != 1)} in {schedules}{first}"
        return f"nothing is wrong in {schedules}, and nothing is proved:"

    def _limits(self) -> str:
        """The limits of what is proved."""
        return KILLS_LIMITS if self.kills else self._limited

    def _notes(self) -> list[str]:
        """Notes: what else was run, and why nothing is proved."""
        lost = f"and with {self._lost} in {self.losses} runs"
        killed = f"and killed before each step of a file that it saves, in {self.kills} runs"
        told = f"and told to end, each time that a PreemptionCheckpointHandler asks, in {self.notices} runs"
        names = ", ".join(self.shared[:SHOWN_OBJECTS]) + ", ..." * (len(self.shared) > SHOWN_OBJECTS)
        shared = f"functions share {names}: workers on other machines do not"
        return [*[shared] * bool(self.shared), *[lost] * bool(self.losses), *[killed] * bool(self.kills),
                *[told] * bool(self.notices), *self.reasons, *self.sampled]

    def _came_to(self) -> str:
        """The results, those of most classes first; "" where there is none."""
        if not self._results:
            return ""
        shown = [f"{_short(result)}  {count} class{'es' * (count != 1)}" for result, count in self.results[:8]]
        return (f"{len(self._results)} result{'s' * (len(self._results) != 1)}: " + ";  ".join(shown)
                + " ..." * (len(self._results) > 8))

    def __str__(self) -> str:
        limits = [self._limits()] * self.proved
        results = filter(None, [self._came_to()])
        return "\n".join([self._head(), *limits, *(f"  {note}" for note in self._notes()), *results,
                          *(f"\n{finding}" for finding in self.findings)])

    def _repr_html_(self) -> str:
        return drawing(self)

    def __repr__(self) -> str:
        return f"<Report of {self.classes} classes: " + (
            "proved>" if self.proved else f"{len(self.findings)} findings, {len(self.reasons)} reasons>")


def table(steps: Sequence[Step], anomaly: Anomaly | None) -> list[str]:
    """The accesses of a run, with those that an anomaly is made of marked, and the files that it saves and restores."""
    marked = set() if anomaly is None else set(anomaly.marked)
    versions: dict[int, int] = {}
    read: dict[tuple[object, int], int] = {}
    rows: list[tuple[str, str, str, str]] = []
    for i, step in enumerate(steps):
        touch, access = step.touch, step.access
        who = "coordinator" if step.process == PROGRAM else f"worker {step.worker}  {name_of(step.process)}"
        if step.lost:
            before = ("is lost before it returns" if access is RETURN else
                      f"is lost before {access.operation} of {access.name}" if access.operation else "is lost")
            rows.append((who, before, str(access.place or ""), "<- its function begins again"))
        if step.server is not None:
            rows.append((f"ps {step.server}", "is lost", "", ""))
        elif step.failed:
            rows.append((who, f"fails at {access.operation} of {access.name}", str(access.place or ""), ""))
        if step.killed:
            rows.append((who, f"is killed before {access.operation} of {access.name}", str(access.place or ""),
                         "<- the program begins again"))
        elif access.operation in FILES:
            rows.append((who, f"{FILES[access.operation]} {access.name}", str(access.place or ""), ""))
        if step.told:
            rows.append((who, "is told to end", str(access.place or ""), "<-" * (i in marked)))
        if step.ends and not step.killed:
            error = any(other.server is not None for other in steps)
            rows.append(("coordinator", "raises UnavailableError" if error else "exits", "",
                         "<- the program begins again"))
        if step.ends:
            versions.clear()  # the restarted program has other variables
            read.clear()
        objects = [(who, f"changes {change.name}", str(change.place or ""), "<-" * (i in marked))
                   for change in step.changes]
        if touch is None or touch is QUEUEING:
            rows += objects
            continue
        version, note = versions.get(touch.cell, 0), ""
        if touch.writes:
            versions[touch.cell] = version + 1
            since = read.get((step.process, touch.cell))
            if i in marked and touch.effect is Effect.ASSIGN and since is not None and since != version:
                note = f"<- made from version {since}, overwrites version {version}"
        else:
            read[step.process, touch.cell] = version
        if i in marked:
            note = note or "<-"
        value = "" if step.value is None else _short(text(step.value))
        rows.append((who, f"{access.operation} {access.name} = {value}", str(access.place or ""), note))
        rows += objects
    widths = [max((len(row[k]) for row in rows), default=0) for k in range(3)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
             for row in rows]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"... and {len(lines) - SHOWN} more"]
    return lines


def _short(value: str) -> str:
    return value if len(value) <= SHOWN else f"{value[:SHOWN - 3]}..."
