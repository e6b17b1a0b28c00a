"""Runs the programs of tensorflow-faults.md on the TensorFlow that is installed; it needs nothing else.

    python docs/run_faults.py

Each program runs in a process of its own: a fork of one that has imported TensorFlow and not used it. What it prints,
and how it ends, is compared with the block that follows it on the page, in which `...` stands for the rest of a line.
One line is printed for each program: whether the fault is there. The exit status is 1 if one differs from the page,
which says of each fault in which versions it was seen. A program that prints something else is run again, up to three
times in all: with two workers it matters which one is faster, and a fault that is seen once is there.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).parent / "tensorflow-faults.md"
ATTEMPTS = 3  # of a program that does not print what the page says
LIMIT = 60.0  # seconds after which a program does not end any more; the slowest of the others takes a few
SECTION = re.compile(r"^## (?P<title>.+?)$(?P<text>.*?)^```py\n(?P<program>.*?)^```\n\n```text\n(?P<printed>.*?)^```\n"
                     r"(?P<after>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ABORTED, HANGS = "(the process is aborted)", "(it does not end)"


def faults() -> list[dict[str, str]]:
    """The faults of the page: title, text, program, what is printed, and what comes after."""
    return [section.groupdict() for section in SECTION.finditer(PAGE.read_text(encoding="utf-8"))]


def outcome(program: str) -> str:
    """What a program prints, with its last line: the error, or how the process ended otherwise."""
    with tempfile.TemporaryFile("w+") as printed:
        child = os.fork()
        if child == 0:
            os.dup2(printed.fileno(), 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            sys.stdout = os.fdopen(1, "w")
            first = os.getpid()
            try:
                exec(compile(program, "program", "exec"), {"__name__": "__main__"})
            except Exception as error:
                # A second worker may still wait when the first one has ended.
                if os.getpid() == first:
                    print(f"{type(error).__name__}: {error}".partition("\n")[0].strip())
            finally:
                sys.stdout.flush()
                os._exit(0)
        # Here and not there, so that there is a group to be killed, however early.
        os.setpgid(child, child)
        end = _end(child)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # a second worker, of a program that has two
        printed.seek(0)
        return printed.read() + end


def _end(child: int) -> str:
    for _ in range(int(LIMIT * 20)):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return f"{ABORTED}\n" if os.WIFSIGNALED(status) else ""
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"{HANGS}\n"


def same(expected: str, printed: str) -> bool:
    """Whether a program printed what the page says, in which `...` stands for the rest of a line."""
    pattern = re.escape(expected.strip()).replace(re.escape("..."), "[^\n]*")
    return re.fullmatch(pattern, printed.strip()) is not None


def seen(fault: dict[str, str]) -> tuple[bool, str]:
    """Whether one of ATTEMPTS runs of a fault's program prints what the page says, and what the last one printed."""
    printed = ""
    for _ in range(ATTEMPTS):
        printed = outcome(fault["program"])
        if same(fault["printed"], printed):
            return True, printed
    return False, printed


def main() -> int:
    """The command."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow

    version, wrong = tensorflow.__version__, 0
    for fault in faults():
        there, printed = seen(fault)
        expected = version in fault["after"].rpartition("Seen in")[2].replace(".\n", " ").replace(",", " ").split()
        verdict = "there" if there else "not there"
        if there != expected:
            wrong += 1
            verdict += f", and the page does not say so; it printed:\n{printed}"
        print(f"{version}: {fault['title']}: {verdict}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
