"""The process of an adapter in Python: `python -m refdist.conformance.adapter.child ADAPTER [STRATEGY]`.

It speaks the protocol as a testee does.  Examples may print, read, fork and hang: so the standard output and input are
moved away first and what they were is known here only, a thread watches for the end of the input, where the process
ends with all that it has started, and a process that is asked to end shows where it is.

It may be a Python in which refdist is not installed (`start.py`): what is imported here, and what that imports, is of
the standard library and of this folder.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import signal
import sys
import threading
import time
from typing import IO

from refdist.conformance import protocol
from refdist.conformance.adapter import Unusable, load
from refdist.conformance.process import MARK, signal_all

GRACE = 1.0  # seconds between the end of the input and that of the process


def main() -> None:
    """Answers questions until there are no more."""
    questions: queue.SimpleQueue[str] = queue.SimpleQueue()
    source, to = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    threading.Thread(target=_read, args=(source, questions), daemon=True).start()
    try:
        protocol.read_suite(json.loads(questions.get()))
        adapter = load(*sys.argv[1:])
    except Unusable as error:
        sys.exit(str(error))
    _say(to, protocol.implementation(adapter.name, adapter.version, adapter.lacks, adapter.profile))
    while line := questions.get():
        question = json.loads(line)
        # Each time, because an example may set a handler of its own.
        faulthandler.unregister(signal.SIGTERM)
        faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)
        answers = adapter.run(protocol.read_program(question["case"]))
        sys.stdout.flush()
        _say(to, {"id": question["id"], "answers": protocol.answers_message(answers)})


def _read(source: IO[str], questions: queue.SimpleQueue[str]) -> None:
    for line in source:
        questions.put(line)
    questions.put("")
    time.sleep(GRACE)
    if os.getsid(0) == os.getpid():
        signal_all(os.getpid(), os.environ.get(MARK, ""), signal.SIGKILL)
    os._exit(1)


def _say(to: IO[str], message: protocol.Message) -> None:
    to.write(json.dumps(message, allow_nan=False) + "\n")
    to.flush()


if __name__ == "__main__":
    main()
