"""Records what is printed and warned of as events; it is shown as usual, too."""

from __future__ import annotations

import sys
import warnings
from typing import Any, TextIO

from refdist import journal, notebook
from refdist.core import context_stack
from refdist.journal import Sink


class _Watched:
    """A text stream that passes on each line written to it."""

    def __init__(self, sink: Sink, name: str, stream: TextIO) -> None:
        self._sink = sink
        self._name = name
        self._stream = stream
        # Who prints -> the unfinished line: replicas take turns, and each may be in the middle of a line.
        self._begun: dict[object, str] = {}
        self.silent = False

    def write(self, text: str) -> int:
        if not self.silent:
            here = journal.worker.value, context_stack.frame().replica
            *lines, rest = (self._begun.pop(here, "") + text).split("\n")
            for line in lines:
                self._sink.write("print", text=line, stream=self._name)
            if rest:
                self._begun[here] = rest
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Console:
    """Passes what is printed and warned of on to a sink, from now on."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._before = sys.stdout, sys.stderr, warnings.showwarning
        self._out, self._err = _Watched(sink, "stdout", sys.stdout), _Watched(sink, "stderr", sys.stderr)
        self._show = self._shown
        sys.stdout, sys.stderr = self._out, self._err
        warnings.showwarning = self._show

    def _shown(self, message: Warning | str, category: type[Warning], filename: str, lineno: int,
               file: TextIO | None = None, line: str | None = None) -> None:
        self._sink.write("warning", text=str(message), category=category.__name__,
                         site=(notebook.place(filename, lineno),))
        self._err.silent = True
        try:
            self._before[2](message, category, filename, lineno, file, line)
        finally:
            self._err.silent = False

    def leave(self) -> None:
        """Ends this; streams that the program has installed meanwhile stay."""
        out, err, show = self._before
        if sys.stdout is self._out:
            sys.stdout = out
        if sys.stderr is self._err:
            sys.stderr = err
        if warnings.showwarning == self._show:
            warnings.showwarning = show
