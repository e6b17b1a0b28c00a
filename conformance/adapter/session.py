"""Sessions with an adapter: in a process of its own, of this Python or of another one, or in this process."""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path

from refdist.conformance import protocol
from refdist.conformance.adapter import Adapter, Unusable, load
from refdist.conformance.chapters import Case
from refdist.conformance.examples import Program
from refdist.conformance.notation import on_one_line
from refdist.conformance.session import Folder, Reply, Session, Tester, read_reply

START = str(Path(__file__).with_name("start.py"))


class InProcess(Tester):
    """An adapter in this process."""

    def __init__(self, adapter: Adapter) -> None:
        self.name, self.version, self.lacks, self.outside, self.profile = protocol.claimed(
            adapter.name, adapter.version, adapter.lacks, adapter.profile)
        self._adapter = adapter
        self._folder = Folder(self)

    def ask(self, program: Program, case: Case | None = None) -> Reply:
        """Runs a program here; whatever the adapter raises costs the case."""
        before, tempfile.tempdir = tempfile.tempdir, self._folder.path
        try:
            return read_reply({"answers": protocol.answers_message(self._adapter.run(program))}, program, "")
        except Exception as error:
            return Reply([], "errored", on_one_line(f"{type(error).__name__}: {error}"), traceback.format_exc())
        finally:
            tempfile.tempdir = before

    def close(self) -> None:
        """Removes the temporary files of the cases; nothing has to be ended."""
        self._folder.remove()


def tester_of_adapter(text: str, limit: float, in_process: bool, python: str, strategy: str) -> Tester:
    """The implementation that "package.module:Class" or a short name stands for.

    Args:
        text, limit, in_process, python, strategy: as for `session.tester`.

    Raises:
        Unusable: it cannot be tested at all.
    """
    if in_process and python:
        raise Unusable("--in-process is this Python, and --python is another one")
    named = [text, strategy] if strategy else [text]
    if in_process:
        return InProcess(load(*named))
    start = [python, START] if python else [sys.executable, "-m", "refdist.conformance.adapter.child"]
    return Session([*start, *named], limit)
