"""Commands whose output nobody reads to its end, as in `python -m refdist explore train.py | head`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from limits import HANG

import refdist

PROGRAM = """\
import refdist
v = refdist.Variable(1.0)
print(float(v))
"""


def without_reader(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """The status and the errors of a command, nobody reading what it prints."""
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run([sys.executable, *command], cwd=folder, stdout=write,
                               stderr=subprocess.PIPE, text=True, timeout=HANG)
    finally:
        os.close(write)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("command", [
    "refdist explore train.py", "refdist explore train.py --choices 0",
    "refdist compare train.py --replicas 1,2", "refdist show run.jsonl", "refdist run --workers 2 train.py",
    "refdist.conformance --help", "refdist.conformance promises --find gather",
    "refdist.conformance random --against refdist.conformance.adapters.simulated:Simulated --programs 1",
    "refdist.conformance -k gather",
])
def test_a_command_ends_without_a_word_when_its_reader_has_gone(command: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    if "show" in command:
        with refdist.insight.record_to(tmp_path / "run.jsonl"):
            refdist.MirroredStrategy(["GPU:0"]).run(lambda: None)
    assert without_reader(["-m", *command.split()], tmp_path) == (-signal.SIGPIPE, "")


@pytest.mark.parametrize("output", ["", ">&-"])
def test_a_program_that_writes_to_another_pipe_is_told(output: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nread, write = os.pipe()\nos.close(read)\nos.write(write, b'a')\n")
    ended = subprocess.run(["sh", "-c", f'"$0" -m refdist run --workers 1 train.py {output}', sys.executable],
                           cwd=tmp_path, capture_output=True, text=True, timeout=HANG)
    assert ended.returncode == 1 and "BrokenPipeError" in ended.stderr and "train.py\", line 4" in ended.stderr
