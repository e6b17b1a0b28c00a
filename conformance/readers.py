"""What reads the output of a command may go before the command ends, as in `... | head`; then it ends without a word.

Python ignores SIGPIPE, because programs write to other pipes and sockets, too, and raises BrokenPipeError.  Where that
is about the output of the command itself, the signal ends it after all, so that its shell sees what it sees of other
commands: 141.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def may_go() -> Iterator[None]:
    """Ends the process, by SIGPIPE, where a write in the `with` block finds that the reader of its output has gone."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None and not sys.stdout.closed:
                sys.stdout.flush()
    except BrokenPipeError:
        if not _is_gone():
            raise  # of another pipe
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)


def _is_gone() -> bool:
    outputs = select.poll()
    for number in (1, 2):
        outputs.register(number, 0)
    return any(state != select.POLLNVAL for _, state in outputs.poll(0))  # one that is closed had no reader
