"""The clauses that a trainer failed last, kept where the suite keeps the cases that a testee failed last."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from ..options import memory_of
from .clauses import Clause


class LastFailed:
    """The clauses that the trainer of a command failed last, in the folder of the shell.

    Args:
        command: what starts the trainer.
    """

    def __init__(self, command: str) -> None:
        self._file = memory_of({"trainer": command}) / "v" / "cache" / "lastfailed"
        try:
            self._names = set(json.loads(self._file.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            self._names = set()

    def of(self, clauses: Sequence[Clause]) -> list[Clause]:
        """Those of the clauses that failed last, or all where none did."""
        return [clause for clause in clauses if clause.name in self._names] or list(clauses)

    def keep(self, judged: Collection[str], failed: Collection[str]) -> None:
        """Takes up which of the clauses that were judged now have failed; the others stay what they were.

        Raises:
            OSError: the file cannot be written.
        """
        names = self._names.difference(judged) | set(failed)
        if names != self._names:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(dict.fromkeys(sorted(names), True)), encoding="utf-8")
