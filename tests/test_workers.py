"""Several workers, simulated in this process and real ones under mpiexec: the same programs, the same bits."""

from __future__ import annotations

import importlib.util
import inspect
import os
import pickle
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import worlds
from limits import HANG

import refdist

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "workers"
ROOT = HERE.parents[1]
WORLDS = [(2, 1), (2, 3), (3, 2), (4, 1), (8, 1)]
if worlds.EVERY:
    WORLDS += [(2, 2), (3, 1), (3, 3), (4, 2), (4, 3), (8, 2), (8, 3)]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROGRAMS = load(HERE / "programs.py")
NAMES = [name for name, function in vars(PROGRAMS).items() if inspect.isfunction(function)
         and not inspect.signature(function).parameters and name not in ("strategy", "me")]


def mpiexec(workers: int, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python program on several processes.  The launcher is the one that pip has installed."""
    launcher = Path(sysconfig.get_path("scripts")) / "mpiexec"
    assert launcher.exists(), "run `pip install mpi4py mpich`"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60", **environment}
    env.pop("TF_CONFIG", None)
    return subprocess.run([str(launcher), *options(launcher, env), "-n", str(workers), sys.executable, *arguments],
                          env=env, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=HANG)


def options(launcher: Path, env: dict[str, str]) -> list[str]:
    """What this launcher needs: OpenMPI counts cores, does not like root, and tells of dead processes when asked."""
    version = subprocess.run([str(launcher), "--version"], capture_output=True, text=True, check=True).stdout
    if "Open MPI" not in version:
        return []
    env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return ["--oversubscribe", "--with-ft", "ulfm"]


def equal(value: Any, other: Any) -> bool:
    """Equal to the bit, type and dtype."""
    if isinstance(value, (list, tuple)):
        return type(value) is type(other) and len(value) == len(other) and all(map(equal, value, other))
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(equal(value[key], other[key]) for key in value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype == other.dtype and value.shape == other.shape and value.tobytes() == other.tobytes()
    return type(value) is type(other) and value == other


# With the way through MPI alone, and the levels of checks, too.
SETTINGS: list[tuple[tuple[int, int], dict[str, str]]] = [
    *((world, {}) for world in WORLDS), ((2, 3), {"REFDIST_SUMS": "sent"}), ((3, 1), {"REFDIST_SUMS": "sent"}),
    ((2, 2), {"REFDIST_CHECKS": "first"})]


@pytest.mark.worlds
@pytest.mark.parametrize(("world", "variant"), SETTINGS,
                         ids=["-".join([f"{n}x{m}", *variant.values()]) for (n, m), variant in SETTINGS])
def test_simulated_and_real_workers_give_the_same_bits(world: tuple[int, int], variant: dict[str, str],
                                                       tmp_path: Path) -> None:
    workers, replicas = world
    devices = {"REFDIST_DEVICES": f"CPU:1,GPU:{replicas}"} if replicas > 1 else {}
    done = mpiexec(workers, str(HERE / "under_mpi.py"), str(tmp_path), *NAMES, **devices, **variant)
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        simulated = refdist.simulate_workers(getattr(PROGRAMS, name), workers, None if replicas == 1 else replicas)
        real = [pickle.loads((tmp_path / f"{name}.{rank}").read_bytes()) for rank in range(workers)]
        for rank, (result, other) in enumerate(zip(simulated, real, strict=True)):
            assert equal(result, other), f"{name}, worker {rank}: {result} and {other}"


BOUND = """
import os, refdist
rank = refdist.cluster_resolver.launched().rank
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
assert refdist.MultiWorkerMirroredStrategy().extended.transport._spin
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is only one core")
def test_processes_that_are_bound_to_a_core_each_do_not_share_cores() -> None:
    done = mpiexec(2, "-c", BOUND)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["threads", "handler"])
def test_a_second_collective_of_a_worker_is_refused_before_anything_is_sent(kind: str, tmp_path: Path) -> None:
    done = mpiexec(2, str(HERE / "broken_off.py"), kind, FOLDER=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\[RD09\] Strategy.reduce \(.*: call 2 of this worker, Strategy.reduce \(.* has not ended.*\n",
                        done.stdout)


def test_a_collective_that_is_interrupted_before_anything_is_sent_can_be_made_again(tmp_path: Path) -> None:
    done = mpiexec(2, str(HERE / "broken_off.py"), "early", FOLDER=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "made again\n", "")


def test_an_interrupt_at_any_moment_does_not_leave_a_collective_under_way(tmp_path: Path) -> None:
    done = mpiexec(2, str(HERE / "broken_off.py"), "moments", FOLDER=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert 3 <= done.stdout.count("interrupted\n") < 10


@pytest.mark.parametrize("sums", ["shared", "sent"])
def test_after_a_handler_s_error_between_two_waits_the_next_collective_is_an_error(sums: str, tmp_path: Path) -> None:
    """It went on where the others were in the middle of the one before; some got a sum of both, without a word."""
    done = mpiexec(2, str(HERE / "broken_off.py"), "between", FOLDER=str(tmp_path), REFDIST_SUMS=sums)
    assert done.returncode == 70
    assert re.match(r"worker 0: TimeoutError\(\)\nworker 0: .*\[RD22\] Strategy.reduce \(.*: TimeoutError has broken "
                    r"off call 2 of this worker, Strategy.reduce \(", done.stdout)
    assert not re.search("^worker 1", done.stdout, re.MULTILINE)


def test_after_a_collective_to_which_a_worker_came_too_late_the_next_one_is_an_error(tmp_path: Path) -> None:
    done = mpiexec(2, str(HERE / "broken_off.py"), "late", FOLDER=str(tmp_path))
    assert done.returncode == 70
    late = r"\[RD01\] Strategy.reduce \(.*: not all workers arrived within 0.1 s:"
    assert re.match(rf"worker 0: .*{late}.*\nworker 0: .*\[RD22\] Strategy.reduce \(.* has broken off call 2 of this "
                    rf"worker, Strategy.reduce \(.*\), which the other workers make:.*{late}.*[^.]\. Let the program",
                    done.stdout)


def test_after_a_collective_whose_result_is_an_error_the_next_one_is_made(tmp_path: Path) -> None:
    done = mpiexec(2, str(HERE / "broken_off.py"), "after", FOLDER=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["2.0"] * 10 + ["overflow"] * 6 + ["unreadable"] * 4


def test_after_an_interrupted_collective_the_next_one_is_an_error(tmp_path: Path) -> None:
    """The others took what it had contributed to the one that was broken off for its part of the next one."""
    done = mpiexec(2, str(HERE / "broken_off.py"), "interrupt", FOLDER=str(tmp_path))
    assert done.returncode == 70
    says = r"\[RD22\] Strategy.reduce \(.*: KeyboardInterrupt has broken off call 2 of this worker, Strategy.reduce \("
    assert re.match(says, done.stdout)
    assert re.search(r"^\[worker 0\] .*" + says, done.stderr, re.MULTILINE), done.stderr
