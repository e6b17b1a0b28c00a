"""A command that starts: which one it is, and Ctrl-C, which ends it at once and without a traceback of imports.

Imports take a second on a busy machine, and in Python an interrupt of them is an exception.  A command that is ended by
the signal itself looks the same to its shell: 130.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path


def is_command() -> bool:
    """Whether this process begins as `python -m refdist` or `refdist`; with -m it has no other name yet."""
    return bool(sys.argv) and Path(sys.argv[0]).name in ("-m", "refdist")


def is_launch() -> bool:
    """Whether it is `python -m refdist launch`, which starts others, and computes nothing itself."""
    words = sys.orig_argv[-len(sys.argv):]  # with the name of the module that -m runs
    return is_command() and Path(words[0]).name == "refdist" and words[1:2] == ["launch"]


def end() -> None:
    """From now on an interrupt ends this process, if nothing else was arranged."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def are_raised() -> None:
    """From now on an interrupt is a `KeyboardInterrupt` again, as programs expect."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
