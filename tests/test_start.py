"""Adapters in another Python, in which refdist is not installed."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from refdist.conformance import session
from refdist.conformance.adapter import start
from refdist.conformance.adapters.tensorflow import CRASHED, TensorFlow
from refdist.conformance.examples import Answer, Code, Program
from refdist.conformance.protocol import Unusable

ALONE = '''
import sys
from types import SimpleNamespace
from refdist.conformance.adapter import Adapter
from refdist.conformance.adapters import tensorflow
from refdist.conformance.results import number


class Alone(Adapter):
    name, tf = "alone", SimpleNamespace()

    def strategy(self, kind):
        return None

    def observe(self, value):
        return value if isinstance(value, str) else number(value)


class Whole(Alone):
    def __init__(self):
        import refdist.core.lockstep
'''


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An interpreter without any package, and a folder to be in with an adapter."""
    path = tmp_path / "bare-python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    path.chmod(0o755)
    (tmp_path / "own.py").write_text(ALONE)
    monkeypatch.chdir(tmp_path)
    return str(path)


def test_the_process_of_an_adapter_needs_the_standard_library_only(python: str) -> None:
    implementation = session.tester("own:Alone", python=python)
    source = "import sys\n' '.join(set(sys.modules) - sys.stdlib_module_names)\nsys.path[0]"
    [answer] = implementation.ask(Program("Default", "example", None, Code(source, 1), (1, 2))).answers
    implementation.close()
    imported = str(answer[1]).split()
    assert {"refdist.conformance.adapter.child", "refdist.conformance.adapters.tensorflow", "own"} < set(imported)
    known = re.compile(r"(refdist|refdist\.conformance|own|__main__|" + "|".join(sys.stdlib_module_names) + r")(\..+)?")
    assert [name for name in imported if not known.fullmatch(name)] == []
    assert answer[2] == str(Path.cwd())


def test_the_modules_of_the_suite_hide_none_of_the_standard_library(python: str) -> None:
    implementation = session.tester("own:Alone", python=python)
    source = "import trace, types\ntrace.__file__"
    reply = implementation.ask(Program("Default", "example", None, Code(source, 1), (1,)))
    implementation.close()
    assert "conformance" not in str(reply.answers[0][1])


@pytest.mark.parametrize(("adapter", "options", "message"), [
    ("tensorflow", {}, "No module named 'tensorflow'"),
    ("own:Whole", {}, "No module named 'refdist.core'"),
    ("own:Nothing", {}, "has no attribute 'Nothing'"),
    ("own:Alone", {"python": "nowhere/python"}, "it cannot be started: .*nowhere/python"),
    ("own:Alone", {"strategy": "own:Alone"}, "Alone cannot take another author's strategy"),
    ("own:Alone", {"strategy": "theirs:make"}, "theirs:make: ModuleNotFoundError: No module named 'theirs'"),
    ("own:Alone", {"strategy": "own:make"}, "own:make: AttributeError: module 'own' has no attribute 'make'"),
    ("own:Alone", {"strategy": "own"}, "'own' is not package.module:name"),
    ("nothing", {}, "not package.module:Class, and not one of refdist, gpu, tensorflow, tensorflow-2x2, torch, jax"),
    ("own:Alone", {"in_process": True}, "--in-process is this Python, and --python is another one"),
    ("testee:own", {}, "--python and --strategy are for adapters"),
])
def test_what_cannot_be_started_says_why(python: str, adapter: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(Unusable, match=message):
        session.tester(adapter, **{"python": python, **options})


def test_an_old_python_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "OLDEST", (4, 2))
    with pytest.raises(SystemExit, match=r"is Python 3\.\d+; an adapter needs 4\.2 or later"):
        start.main()


@pytest.mark.parametrize(("source", "crashes", "runs"), [
    ("tf.distribute.Server.create_local_server()", 1, 2), ("tf.distribute.Server.create_local_server()", 9, 2),
    ("tf.distribute.Server.create_local_server()", 0, 1), ("tf.Variable(1)", 1, 1)])
def test_tensorflow_runs_a_program_with_servers_again_after_a_crash(tmp_path: Path, source: str, crashes: int,
                                                                    runs: int) -> None:
    log = tmp_path / "runs"
    adapter = object.__new__(TensorFlow)

    def here(program: Program) -> dict[int, object]:
        with log.open("a") as file:
            file.write("x")
        if log.stat().st_size <= crashes:
            os.kill(os.getpid(), signal.SIGKILL)
        return {0: 7}

    adapter._here = here
    [answer] = adapter.run(Program("Default", "own.md", Code(source, 1), Code("1", 2), (0,)))
    assert (log.read_text(), answer) == (
        "x" * runs, {0: 7} if runs > crashes else {0: {"error": "crash", "message": CRASHED}})


class _Logging(TensorFlow):
    """The adapter's processes, which write down their numbers, and fail at some values."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def _here(self, program: Program) -> Answer:
        with self.log.open("a") as file:
            print(os.getpid(), file=file)
        if program.example.source == "rows = 13":
            return {0: {"error": "value", "message": "ValueError: 13"}}
        if program.example.source == "rows = 14":
            os._exit(1)
        return {0: 7}

    def processes(self, *sources: str, strategy: str = "Mirrored 2", line: int = 1) -> list[str]:
        """Runs these programs, and returns the process of each run since the last call."""
        for source in sources:
            self.answers = self.run(Program(strategy, "own.md", None, Code(source, line), (0,)))
        ran = self.log.read_text().split()
        self.log.unlink()
        return ran


def test_the_values_of_a_property_share_a_process_and_other_programs_do_not(tmp_path: Path) -> None:
    adapter = _Logging(tmp_path / "processes")
    shared = adapter.processes("rows = 1", "rows = 2", "rows = []", "rows = '3'")
    assert len(shared) == 4 and len(set(shared)) == 1
    others = adapter.processes("lines = 1", "rows = range(1)", "rows = range(2)", "rows = 1")
    others += adapter.processes("rows = 1", line=2) + adapter.processes("rows = 1", strategy="Mirrored 3")
    assert len({*shared, *others}) == 7
    # Workers never do: the strategy of each is connected to those of the others.
    assert len(set(adapter.processes("rows = 1", "rows = 2", strategy="MultiWorker 2x1"))) == 4


@pytest.mark.parametrize(("value", "error"), [
    (13, {"error": "value", "message": "ValueError: 13"}), (14, {"error": "crash", "message": CRASHED})])
def test_what_fails_beside_other_values_is_run_again_alone(tmp_path: Path, value: int, error: dict[str, str]) -> None:
    adapter = _Logging(tmp_path / "processes")
    first, beside, alone = adapter.processes("rows = 1", f"rows = {value}")
    assert first == beside != alone and adapter.answers == [{0: error}]
    # Nor does what comes after it share a process with it.
    assert adapter.processes("rows = 2")[0] not in (first, alone)
