"""One run of a program at some number of replicas: a process and a folder of its own.

A script is run by a new interpreter, with a hash seed.  A function is run by a copy of this process, which has what the
function captured, and the hash seed that this process has; see `forks.py` for what it has not.

The folder looks like the one in which the program would run otherwise: folders are made, small files are copied, and
large ones linked, so that what the program reads is there and what it writes is its own.  It reads nothing from its
input, so what asks gets the end of the file.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from refdist import config, missing, runtime
from refdist.backends.simulated.workers import simulate_workers
from refdist.core.devices import VARIABLE as DEVICES
from refdist.core.scaled import Deal, Scale, scale, totals
from refdist.insight import files, forks, summaries
from refdist.insight.draws import Draw, Draws
from refdist.insight.events import Event
from refdist.insight.keys import Key, Keys
from refdist.insight.recording import record_to
from refdist.insight.stream import Raw

EVENTS = 300_000  # a run is stopped after so many events, which would take minutes to read
_COPIED = 1 << 20  # the most bytes of a file that is copied
_ENTRIES = 500  # the most files and folders that are copied or linked one by one
_LEFT_OUT = ("__pycache__", "node_modules", ".")  # folders whose names begin so are left out
_RECORDED = {"program", "run", "replica", "meet", "receive", "reduce", "return", "variable", "write", "step", "print",
             "warning", "error"}
# A thread that is alone and has waited for another so often, one look after another, goes on doing so: two seconds.
_LOOKS, _PAUSE = 40, 0.05
_RECORDING, _OUTCOME, _WORK = "run.jsonl", "outcome.json", "work"
Program = str | Callable[[], object]


class Setting(NamedTuple):
    """At what a program is run.

    Attributes:
        replicas: on all workers.
        workers: how many share them, each with a TF_CONFIG; 0 runs the program as it is.
        order: the seed of the order in which replicas run; None for the order of their numbers.
        hashes: PYTHONHASHSEED of a script.
        double: whether float32 is float64.
        global_batch: see `core.scaled`.
        arguments: those of a script.
        tensorflow: whether a script, or a notebook, finds `refdist.tf` where it imports TensorFlow.
        deal: the value of the `core.scaled.Deal` by which rows are dealt otherwise; None where they are not.
        totals: whether replicas read totals; all reads are recorded then, and not only those of several copies.
    """

    replicas: int
    workers: int = 0
    order: int | None = None
    hashes: int = 0
    double: bool = False
    global_batch: int | None = None
    arguments: tuple[str, ...] = ()
    tensorflow: bool = False
    deal: str | None = None
    totals: bool = False

    def __str__(self) -> str:
        text = f"{self.replicas} replica{'s' * (self.replicas != 1)}"
        if self.workers > 1:
            text += f" of {self.workers} workers"
        if self.order is not None:
            text += f" in order {self.order}"
        return text + f" with hash seed {self.hashes}" * (self.hashes != 0) + " in float64" * self.double


class Trial(NamedTuple):
    """What came of a run.

    Attributes:
        setting: at what the program was run.
        events: what was recorded.
        ended: "returned", "raised", "limit", "events", "died" or "alone", when it waits for a thread that forks lack.
        text: what it raised, how it died, how long one that was stopped at its limit has computed, or the library
            whose thread it has waited for; "" for none of these.
        returned: summaries of the numbers that a function returned.
        draws: see `draws.py`.
        keys: see `keys.py`.
    """

    setting: Setting
    events: list[Event]
    ended: str
    text: str
    returned: list[Any]
    draws: list[Draw]
    keys: list[Key]


def run(program: Program, setting: Setting, folder: Path, limit: float) -> Trial:
    """Runs a program in a folder that does not exist yet, for at most so many seconds."""
    work = folder / _WORK
    _furnish(work)
    environment = {DEVICES: f"CPU:{setting.replicas},GPU:{setting.replicas},TPU:{setting.replicas}",
                   "PYTHONHASHSEED": str(setting.hashes)}
    if setting.order is not None:
        environment[config.SEED_VARIABLE] = str(setting.order)
    if isinstance(program, str):
        started = subprocess.Popen(
            [sys.executable, *subprocess._args_from_interpreter_flags(), "-c",  # type: ignore[attr-defined]
             ("import numpy; numpy.float32 = numpy.float64; " if setting.double else "")
             + "from refdist.insight import trial; trial.main()", json.dumps([program, setting, str(folder)])],
            cwd=work, env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        number = started.pid
    else:
        sys.stdout.flush()
        sys.stderr.flush()
        number = os.fork()
        if not number:
            _forked(program, setting, folder, environment)
    library = None if isinstance(program, str) else forks.threaded()
    ended, text = _waited(number, time.monotonic() + limit, library)
    if isinstance(program, str):
        started.returncode = 0  # it has been waited for
    return _read(setting, folder, ended, text)


def _furnish(work: Path) -> None:
    here, entries = Path.cwd(), 0
    work.mkdir(parents=True)
    for folder, folders, names in os.walk(here):
        beside = work / Path(folder).relative_to(here)
        folders[:] = [name for name in folders if not name.startswith(_LEFT_OUT) and not Path(folder, name).is_symlink()
                      and Path(folder, name) not in (work, *work.parents)]
        for name in names:
            entries += 1
            source = Path(folder, name)
            with contextlib.suppress(OSError):
                if source.is_file() and source.stat().st_size <= _COPIED:
                    shutil.copy2(source, beside / name)
                else:
                    (beside / name).symlink_to(source)
        if entries + len(folders) > _ENTRIES:
            for name in folders:
                (beside / name).symlink_to(Path(folder, name))
            folders.clear()
        for name in folders:
            entries += 1
            (beside / name).mkdir()


def _waited(number: int, end: float, library: str | None) -> tuple[str, str]:
    """How a process has ended, and its text, as a Trial has them; a process that runs until `end` is killed.

    Args:
        number: the process id.
        end: until when to wait, on the clock of `time.monotonic`.
        library: the library that has computed in this process, if that is a copy of it.
    """
    pause, alone = 0.001, 0
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(number, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return "died", f"its process ended with {code}" if code else ""
            time.sleep(pause)
            pause = min(pause * 1.5, _PAUSE)
            alone = alone + 1 if library is not None and forks.waits_alone(number) else 0
            if library is not None and alone >= _LOOKS:
                break
    except BaseException:
        _stop(number)
        raise
    computed = _stop(number)
    if library is not None and alone >= _LOOKS:
        return "alone", library
    return "limit", f"of which it computed for {computed:.1f} s"


def _stop(number: int) -> float:
    # Kills the process group, with what the program has started, and the process, which may not have made it yet.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(number, signal.SIGKILL)
    used = os.wait4(number, 0)[2]
    return used.ru_utime + used.ru_stime


def _read(setting: Setting, folder: Path, ended: str, text: str) -> Trial:
    outcome: dict[str, Any] = {"ended": ended, "text": text, "returned": [], "draws": [], "keys": []}
    with contextlib.suppress(FileNotFoundError):
        outcome |= json.loads((folder / _OUTCOME).read_text())
    recording = folder / _RECORDING
    events = files.read(recording)[0] if recording.exists() else []
    return Trial(setting, events, outcome["ended"], outcome["text"], outcome["returned"],
                 [Draw(*draw) for draw in outcome["draws"]], [Key(*key) for key in outcome["keys"]])


# --- What runs in the process of the trial ---


class _Recorder(record_to):
    """Records the events that are compared, and calls `full` when there are too many."""

    def __init__(self, path: Path, full: Callable[[], None], draws: Draws) -> None:
        super().__init__(path)
        self._full, self._draws = full, draws
        self._taken = 0
        self._line = ""  # the line of the last run

    def __enter__(self) -> None:
        self._writer = self._opened()
        self._taken_by(self._kept)

    def _kept(self, raw: Raw) -> None:
        if raw[1] == "run":
            self._draws.of_a_run()
            self._line = next(map(str, raw[4]["site"]), "")
        elif raw[1] == "end" and raw[3][1] is not None:
            self._draws.of_a_replica(raw[3][1], self._line)
        if raw[1] in _RECORDED or (raw[1] == "read" and (totals() or raw[4]["copy"] is None)):
            self._taken += 1
            if self._taken > EVENTS:
                self._full()
            assert self._writer is not None
            self._writer.take(raw)


def main() -> NoReturn:
    """Runs a script, in the process that was started for it."""
    path, setting, folder = json.loads(sys.argv[1])
    setting = Setting(*setting)
    sys.argv = [path, *setting.arguments]
    sys.path.insert(0, str(Path(path).parent))

    def script() -> None:
        if setting.tensorflow:
            import_module("refdist.tf.programs").run(Path(path))
            return
        try:
            runpy.run_path(path, run_name="__main__")
        except ModuleNotFoundError as error:
            missing.name_the_option(error)
            raise

    _run(script, setting, Path(folder))


def _forked(program: Callable[[], object], setting: Setting, folder: Path, environment: dict[str, str]) -> NoReturn:
    gc.freeze()  # finalizers of garbage may wait for threads, which a fork does not have
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.chdir(folder / _WORK)
        forks.in_a_copy()
        with runtime.process.fresh(**environment):
            _run(program, setting, folder)
    finally:
        os._exit(1)


def _run(program: Callable[[], object], setting: Setting, folder: Path) -> NoReturn:
    draws, keys = Draws(), Keys()

    def end(ended: str, text: str = "", returned: Sequence[Any] = ()) -> NoReturn:
        draws.at_the_end()
        (folder / _OUTCOME).write_text(json.dumps(
            {"ended": ended, "text": text, "returned": returned, "draws": list(draws.found),
             "keys": list(keys.found)}))
        os._exit(0)

    scale.value = Scale(setting.replicas // max(setting.workers, 1), setting.global_batch,
                        None if setting.deal is None else Deal(setting.deal), setting.totals)
    returned: Any = None
    recorder = _Recorder(folder / _RECORDING, lambda: end("events"), draws)
    try:
        with recorder:
            if setting.workers:
                returned = simulate_workers(program, setting.workers, scale.value.replicas)[0]
            else:
                returned = program()
    except SystemExit as error:
        if error.code not in (None, 0):
            end("raised", f"SystemExit: {error.code}")
    except EOFError as error:
        if "reading a line" in str(error):
            end("raised", f"it asks for input ({_where(error)}), which it cannot get here")
        end("raised", f"EOFError: {error} ({_where(error)})")
    except BaseException as error:
        end("raised", f"{type(error).__name__}: {error} ({_where(error)})")
    end("returned", returned=summaries.of(summaries.taken(returned)))


def _where(error: BaseException) -> str:
    places = [place for place in traceback.extract_tb(error.__traceback__)
              if not any(part in place.filename for part in ("/refdist/", "<frozen", "<string>", "/backends/"))]
    return f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "an unknown line"
