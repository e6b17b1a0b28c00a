"""The page of TensorFlow's faults: its programs are short and need TensorFlow alone, and print what the page says."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
COMMAND = ROOT / "docs" / "run_faults.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("run_faults", COMMAND)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run_faults = load()
FAULTS = run_faults.faults()


def test_every_section_of_the_page_is_a_fault_with_a_program() -> None:
    text = run_faults.PAGE.read_text()
    assert [fault["title"] for fault in FAULTS] == [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert len(FAULTS) > 30


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["title"].replace(" ", "-"))
def test_a_program_is_short_and_needs_tensorflow_alone(fault: dict[str, str]) -> None:
    lines = fault["program"].strip().splitlines()
    assert len(lines) <= 15 and all(len(line) <= 120 for line in lines)
    imported = {alias.name for node in ast.walk(ast.parse(fault["program"])) if isinstance(node, ast.Import)
                for alias in node.names}
    assert "tensorflow" in imported and imported - {"tensorflow"} <= set(sys.stdlib_module_names)
    # A page of the documentation before the program, and the versions after it.
    assert "`tf." in fault["text"] and " Seen in 2." in fault["after"].replace("\n", " ")


def test_what_a_program_prints_and_how_it_ends_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_faults.outcome("print(1)\nprint('two words')") == "1\ntwo words\n"
    assert run_faults.outcome("print(1)\nraise ValueError('a\\nb')") == "1\nValueError: a\n"
    assert run_faults.outcome("import os\nos.kill(os.getpid(), 9)") == "(the process is aborted)\n"
    # What a second worker raises when the first one is gone is not said.
    assert run_faults.outcome("import os\nif os.fork() == 0:\n    raise ValueError\nos.wait()\nprint(1)") == "1\n"
    monkeypatch.setattr(run_faults, "LIMIT", 0.0)
    assert run_faults.outcome("while True:\n    pass") == "(it does not end)\n"
    assert run_faults.same("1.0 2.0\nValueError: a...\n", "1.0 2.0\nValueError: a and more\n")
    for found in ("1.0 3.0\nValueError: a\n", "1.0 2.0\n", "1.0 2.0\nValueError: a\nmore\n", "1x0 2.0\nValueError: a"):
        assert not run_faults.same("1.0 2.0\nValueError: a...\n", found)


def test_a_fault_is_there_if_one_of_three_runs_shows_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    # A run adds a line to the file; the fault shows in one of them.
    program = f"""with open({str(runs)!r}, "a+") as runs:
    print("run", file=runs, flush=True)
    runs.seek(0)
    print(len(runs.readlines()) == {{}})
"""
    for shown, expected in ((1, (True, "True\n")), (3, (True, "True\n")), (4, (False, "False\n"))):
        runs.unlink(missing_ok=True)
        assert run_faults.seen({"program": program.format(shown), "printed": "True\n"}) == expected
        assert runs.read_text().count("run") == min(shown, 3)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_the_programs_print_what_the_page_says() -> None:
    done = subprocess.run([sys.executable, str(COMMAND)], capture_output=True, text=True, check=False,
                          env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": there\n") + done.stdout.count(": not there\n") == len(FAULTS)
