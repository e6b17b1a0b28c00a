"""The trainers that live: programs, verdicts, findings and the page agree; nothing of theirs is installed or run."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from refdist.conformance.trainers.runner import Result

ROOT = Path(__file__).parent.parent
EVIDENCE = ROOT / "conformance" / "trainers" / "evidence"


def printing() -> Any:
    spec = importlib.util.spec_from_file_location("print_trainers", ROOT / "docs" / "print_trainers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PRINTING = printing()
DONE = [name for name in PRINTING.TRAINERS if (PRINTING.FOLDER / f"{name}.json").exists()]


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor comments, docstrings or imports."""
    tree, text = ast.parse(path.read_text(encoding="utf-8")), path.read_text(encoding="utf-8").splitlines()
    prose = {number for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef))
             if ast.get_docstring(node) is not None
             for number in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    prose |= {number for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
              for number in range(node.lineno, (node.end_lineno or 0) + 1)}
    return sum(bool(line.strip()) and not line.strip().startswith("#") and number not in prose
               for number, line in enumerate(text, 1))


@pytest.mark.parametrize("name", PRINTING.TRAINERS)
def test_a_trainer_is_a_short_program_of_files_that_are_there(name: str) -> None:
    trainer, testees = PRINTING.TRAINERS[name], PRINTING.ROOM / "testees"
    assert trainer.environment in PRINTING.ENVIRONMENTS and PRINTING.versions(trainer)
    for shared in trainer.shared:
        ast.parse((testees / f"{shared}.py").read_text(encoding="utf-8"))
    assert lines_of_code(testees / f"{name}.py") <= 60
    for loop in (shared for shared in trainer.shared if not shared.endswith("_model")):
        assert lines_of_code(testees / f"{loop}.py") <= 60
    imported = {node.module for path in (name, *trainer.shared)
                for node in ast.walk(ast.parse((testees / f"{path}.py").read_text(encoding="utf-8")))
                if isinstance(node, ast.ImportFrom) and (testees / f"{node.module}.py").exists()}
    assert imported == {PRINTING.SHARED, *trainer.shared}


@pytest.mark.parametrize(("file", "before", "after", "changed"), [
    ("testees/ddp.py", "", "# of all replicas", set()),
    ("testees/ddp.py", "mean = sum", "mean = max", {"ddp"}),
    ("testees/caveats.py", "def mean(): 'sum'; return 0", "def mean(): 'max'; return 0", set()),
    ("testees/mpi_model.py", "def mean(): 'sum'; return 0", "def mean(): 'sum'; return 1", {"mpi_by_hand"}),
    ("testees/refdist_step.py", "mean = sum", "mean = max", {"refdist_numpy", "refdist_jax"}),
    ("checks.py", "mean = sum", "mean = max", set(PRINTING.TRAINERS))])
def test_verdicts_are_made_anew_where_a_program_does_something_else(
        file: str, before: str, after: str, changed: set[str], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    room = shutil.copytree(PRINTING.ROOM, tmp_path / "trainers", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(PRINTING, "ROOM", room)
    source = (room / file).read_text(encoding="utf-8")
    digests = []
    for addition in (before, after):
        (room / file).write_text(f"{source}\n{addition}\n", encoding="utf-8")
        digests.append({name: PRINTING.digest(name) for name in PRINTING.TRAINERS})
    assert {name for name in PRINTING.TRAINERS if digests[0][name] != digests[1][name]} == changed


def test_a_trainer_is_run_again_on_those_clauses_alone_that_have_changed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[set[str]] = []

    def run(command: str, jobs: Any, limit: float) -> dict[int, Result]:
        runs.append({job["clause"] for job in jobs})
        return {job["id"]: Result(unsupported="for a test") for job in jobs}

    for name in ("PATH", "OMP_NUM_THREADS"):  # which are set where a trainer is run
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    monkeypatch.setattr(PRINTING, "FOLDER", tmp_path)
    monkeypatch.setattr(PRINTING, "environment", lambda name: tmp_path)
    monkeypatch.setattr(PRINTING.runner, "run", run)
    first, *others = PRINTING.clauses.CLAUSES
    for changed in (first, first, dataclasses.replace(first, jobs=first.jobs[:1]), dataclasses.replace(first, rule="")):
        monkeypatch.setattr(PRINTING.clauses, "CLAUSES", (changed, *others))
        PRINTING.judge("ddp")
    assert runs == [{first.name, *(clause.name for clause in others)}, {first.name}, {first.name}]
    assert list(PRINTING.verdicts_of("ddp")) == [first.name, *(clause.name for clause in others)]
    PRINTING.judge("ddp", anew=True)
    assert runs.pop() == {first.name, *(clause.name for clause in others)}
    for present in (others, others[::-1]):  # a clause is gone, and those that are left have moved
        monkeypatch.setattr(PRINTING.clauses, "CLAUSES", present)
        PRINTING.judge("ddp")
        assert list(PRINTING.verdicts_of("ddp")) == [clause.name for clause in present] and len(runs) == 3


def test_the_page_is_that_of_the_verdicts() -> None:
    assert PRINTING.PAGE.read_text(encoding="utf-8") == PRINTING.page() + "\n", "run `make trainers`"


def test_the_page_says_which_verdicts_are_of_an_older_program(monkeypatch: pytest.MonkeyPatch) -> None:
    of_program, of_clause, told = PRINTING.digest, PRINTING.digest_of_clause, "These verdicts on "
    assert told not in PRINTING.page()
    monkeypatch.setattr(PRINTING, "digest", lambda name: "new" if name == "ddp" else of_program(name))
    assert f"\n{told}PyTorch DDP are of an older program, job or check: all.\n" in PRINTING.page()
    monkeypatch.setattr(PRINTING, "digest", of_program)
    monkeypatch.setattr(PRINTING, "digest_of_clause",
                        lambda clause: "new" if clause.name == "early-stop" else of_clause(clause))
    assert PRINTING.page().count(" are of an older program, job or check: `early-stop`.\n") == len(DONE)


def test_at_least_ten_trainers_have_a_verdict_on_every_clause() -> None:
    names = [clause.name for clause in PRINTING.clauses.CLAUSES]
    assert len(DONE) >= 10
    for name in DONE:
        assert list(PRINTING.verdicts_of(name)) == names


def test_every_red_cell_has_been_read_and_every_finding_is_of_a_red_cell() -> None:
    read = [(name, clause) for finding in PRINTING.findings() for name in finding["trainers"]
            for clause in finding["clauses"] if clause in PRINTING.red(name)]
    assert sorted(read) == sorted((name, clause) for name in DONE for clause in PRINTING.red(name))
    for finding in PRINTING.findings():
        assert all(any(clause in PRINTING.red(name) for clause in finding["clauses"]) for name in finding["trainers"])
        assert all(any(clause in PRINTING.red(name) for name in finding["trainers"]) for clause in finding["clauses"])


def test_the_programs_that_show_a_finding_know_nothing_of_refdist() -> None:
    shown = {file for kind in ("finding", "met") for finding in PRINTING.findings(kind) for file in finding["evidence"]}
    programs = {path.name: path.read_text(encoding="utf-8") for path in EVIDENCE.glob("*.py")}
    assert shown == {name for name in programs if not name.endswith("_model.py")}
    for program in programs.values():
        ast.parse(program)
        assert "refdist" not in program
