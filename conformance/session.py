"""What runs cases on an implementation."""

from __future__ import annotations

import importlib
from typing import Protocol

from refdist.conformance.adapter import Adapter
from refdist.conformance.chapters import Case
from refdist.conformance.examples import program
from refdist.conformance.judging import Verdict, judge

LIMIT = 10.0  # seconds that a case may take


class Unusable(Exception):
    """The implementation cannot be started."""


class Tester(Protocol):
    """An implementation that cases are run on."""

    name: str

    def run(self, case: Case, bitwise: bool) -> Verdict:
        """The verdict on a case."""

    def close(self) -> None:
        """Ends it."""


class InProcess:
    """An adapter in this process."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.name = adapter.name

    def run(self, case: Case, bitwise: bool) -> Verdict:
        """The verdict on a case."""
        return judge(case, self._adapter.run(program(case)), bitwise)

    def close(self) -> None:
        """Does nothing."""


def tester(text: str, limit: float, in_process: bool) -> Tester:
    """What `--adapter` names.

    Raises:
        Unusable: it cannot be started.
    """
    module, _, name = text.partition(":")
    try:
        return InProcess(getattr(importlib.import_module(module), name)())
    except Exception as error:
        raise Unusable(f"{type(error).__name__}: {error}") from error
