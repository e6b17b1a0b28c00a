"""Running cases on a mutant: in a fork, until the first one that does not pass."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

CHECKOUT = Path(__file__).parents[2]
# Seconds for a case and for a property. A mutant that hangs ends by itself, and a busy machine kills none.
LIMIT, LIMIT_OF_PROPERTY = 30, 120
# The parts of the package in a checkout.
FOLDERS = ("refdist", "backends")
# What reads the chapters imports nothing of refdist, and what it has read holds for every mutant.
READERS = {f"refdist.conformance.{name}" for name in ("chapters", "programs", "notation", "results")}

# What went wrong in a mutant itself, and not in what it makes of refdist; such a mutant is not killed.
DOES_NOT_WORK = "the mutant does not work"
FAULTS: list[str] = []


class _Patched(importlib.machinery.SourceFileLoader):
    """Loads a module from another source; nothing is cached."""

    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source.encode()

    def get_data(self, path: str) -> bytes:
        return self._source

    def path_stats(self, path: str) -> dict[str, float]:
        raise OSError


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None
                  ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Patched(fullname, str(self._path), self._source)
        package = self._path.name == "__init__.py"
        return importlib.util.spec_from_file_location(
            fullname, self._path, loader=loader,
            submodule_search_locations=[str(self._path.parent)] if package else None)


def with_source(file: str, source: str) -> Callable[[], None]:
    """What makes a fork import a file of the checkout (`refdist/nest.py`) with another source."""
    path = CHECKOUT / file
    parts = Path(file).with_suffix("").parts
    name = ".".join(("refdist", *parts[parts[0] == "refdist":])).removesuffix(".__init__")

    def mutate() -> None:
        for known in [known for known in sys.modules if known == "refdist" or known.startswith("refdist.")]:
            if known not in READERS:
                del sys.modules[known]
        sys.meta_path.insert(0, _Finder(name, path, source))

    return mutate


class Fork:
    """A process in which cases are run on a mutant.

    Args:
        mutate: makes the mutant, in the fork.
        names: of the cases, in the order in which they are tried; or of clauses.
        work: what is done there; returns what JSON can carry.
    """

    def __init__(self, mutate: Callable[[], None], names: Sequence[str],
                 work: Callable[[Callable[[], None], Sequence[str]], object] | None = None) -> None:
        self._from, writer = os.pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.setpgid(0, 0)
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                os.dup2(quiet, 2)
                with os.fdopen(writer, "w") as stream:
                    json.dump((work or _first_failure)(mutate, names), stream)
            finally:
                os._exit(0)
        os.close(writer)

    def fileno(self) -> int:
        """What becomes readable when it ends."""
        return self._from

    def answer(self) -> Any:
        """What the work returned, once it has ended; "a hang or a crash" if it did not return."""
        with os.fdopen(self._from) as stream:
            text = stream.read()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        return json.loads(text) if text else "a hang or a crash"

    def killer(self) -> str | None:
        """The name of the first case that did not pass, or what else killed the mutant; None if it survives."""
        name: str | None = self.answer()
        return name


def _first_failure(mutate: Callable[[], None], names: Sequence[str]) -> str | None:
    mutate()
    try:
        from refdist.conformance.adapters import simulated  # noqa: F401
    except Exception as error:
        return f"importing it: {type(error).__name__}"
    killer = next((name for name, outcome in outcomes(names) if outcome != "passed"), None)
    return f"{DOES_NOT_WORK}: {FAULTS[0]}" if FAULTS else killer


def outcomes(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Runs cases on the refdist that is imported here: (name, outcome) of each."""
    from refdist.conformance.adapter import properties
    from refdist.conformance.adapters.simulated import Simulated
    from refdist.conformance.chapters import Case, cases
    from refdist.conformance.examples import program
    from refdist.conformance.judging import Verdict, judge

    warnings.simplefilter("ignore")
    adapter = Simulated()

    def run(case: Case) -> Verdict:
        return judge(case, adapter.run(program(case)))

    known = {case.name: case for case in cases()}
    selected = [known[name] for name in names if name in known] or [
        case for name in names for case in known.values() if case.clause.name == name]
    if names and not selected:
        raise ValueError(f"{names} names no case")
    for case in selected:
        signal.alarm(LIMIT_OF_PROPERTY if case.example.parameters else LIMIT)
        verdict = properties.examine(case, run) if case.example.parameters else run(case)
        yield case.name, verdict.outcome
    signal.alarm(0)
