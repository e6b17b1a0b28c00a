"""The first thing that processes tell each other: versions of refdist, and scripts, that are not the same."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_faults import LAUNCHED, PLAIN, is_openmpi, launch
from test_workers import ROOT, mpiexec

import refdist
from refdist.backends.mpi import greeting

# Process 1 finds the refdist, or has the script, of another folder.
PROGRAM = """
import os, runpy, sys
rank = os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
if rank == "1" and sys.argv[1]:
    sys.path.insert(0, sys.argv[1])
if rank == "1" and sys.argv[2]:
    import __main__
    __main__.__file__ = sys.argv[2]
import refdist
if os.environ.get("REFDIST_PS"):
    refdist.ParameterServerStrategy(refdist.cluster_resolver.TFConfigClusterResolver())
else:
    refdist.MultiWorkerMirroredStrategy()
print("came through")
"""


def other_refdist(folder: Path, number: str) -> str:
    """A copy with another number, or another source where that is ""."""
    for name in ("refdist", "backends", "conformance"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "refdist" / ("__init__.py" if number else "nn.py")
    path.write_text(path.read_text().replace(f'__version__ = "{refdist.__version__}"', f'__version__ = "{number}"')
                    + "# changed\n")
    return str(folder)


def run(way: str, folder: Path, *arguments: str, size: int = 3, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(PROGRAM)
    started = {LAUNCHED: launch, PLAIN: mpiexec}[way]
    return started(size, str(folder / "script.py"), *arguments, REFDIST_TIMEOUT="60", **environment)


@pytest.mark.slow
@pytest.mark.parametrize("way", [LAUNCHED, PLAIN])
@pytest.mark.parametrize("number", ["9.9.9", ""])
def test_processes_with_another_refdist_are_named_at_once(way: str, number: str, tmp_path: Path) -> None:
    other = other_refdist(tmp_path / "other", number)
    done = run(way, tmp_path, other, "")
    assert done.returncode == 70 or is_openmpi(), done.stderr
    assert "came through" not in done.stdout and "not all workers arrived" not in done.stderr
    named = re.findall(r"RD17\] starting: the processes do not have the same refdist: workers 0, 2 with (.*) \((.*), "
                       r"source (\w+)\); worker 1 with (.*) \((.*), source (\w+)\)\. Install the same", done.stderr)
    assert len(named) == 1 or is_openmpi(), done.stderr
    version, place, source, version_1, place_1, source_1 = named[0]
    assert (version, version_1) == (refdist.__version__, number or refdist.__version__) and source != source_1
    assert (place.partition(":")[2], place_1.partition(":")[2]) == (str(ROOT / "refdist"), f"{other}/refdist")


@pytest.mark.slow
@pytest.mark.skipif(is_openmpi(), reason="OpenMPI ends a job at its first error")
def test_tasks_with_another_refdist_have_their_names_in_the_cluster(tmp_path: Path) -> None:
    done = run(PLAIN, tmp_path, other_refdist(tmp_path / "other", "9.9.9"), "", REFDIST_PS="1")
    assert re.search(r"RD17\].*: chief, ps 0 with .*; worker 0 with 9\.9\.9 \(", done.stderr), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", [LAUNCHED, PLAIN])
def test_another_text_of_the_script_is_warned_of_once(way: str, tmp_path: Path) -> None:
    other = tmp_path / "other" / "script.py"
    other.parent.mkdir()
    other.write_text("# another one")
    done = run(way, tmp_path, "", str(other))
    assert (done.returncode, done.stdout) == (0, "came through\n" * 3)
    assert done.stderr.count("RuntimeWarning: workers 0, 2, and worker 1 have different files script.py: they may") == 1
    assert "script.py:13: RuntimeWarning" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", [LAUNCHED, PLAIN])
def test_a_process_that_starts_mpi_and_does_not_answer_is_told_from_one_that_does_not_start(way: str, tmp_path: Path
                                                                                            ) -> None:
    """As one with a refdist that is much older, or on a host that cannot be reached."""
    script = tmp_path / "script.py"
    script.write_text("import os, time, refdist\n"
                      "if refdist.cluster_resolver.MPIClusterResolver().task_id == 1:\n"
                      "    from mpi4py import MPI\n"
                      "    time.sleep(600)\n"
                      "refdist.MultiWorkerMirroredStrategy()\n")
    done = {LAUNCHED: launch, PLAIN: mpiexec}[way](3, str(script), REFDIST_TIMEOUT="15")
    assert done.returncode == 70 or is_openmpi(), done.stderr
    if not (is_openmpi() and way == PLAIN):  # there nothing watches the start but a count of seconds
        assert re.search(r"\[workers 0, 2\] \[RD01\] starting: MPI has started in all processes, but within 15 s not "
                         r"all of them have answered\. Look whether their hosts", done.stderr), done.stderr


def test_what_an_older_version_sends_is_known_as_such() -> None:
    # Endpoints, or tasks, as they were pickled before there were greetings.
    for old in (pickle.dumps((("host", 40000, 4711), b"key")), (("chief", 0), "host", 4711, b"key")):
        with pytest.raises(ValueError, match=r"RD17.*worker 0 with 0\.1\.0 \(.*\); workers 1-2 with a version before "
                                             r"this one, which does not tell its number\. Install"):
            greeting.compare([greeting.own(), old, old], 0)


def test_scripts_of_different_names_are_no_mistake(recwarn: pytest.WarningsRecorder) -> None:
    own = greeting.own()
    coordinator, worker = (own.replace(b'"script": "', b'"script": "' + name) for name in (b"train", b"serve"))
    greeting.compare([coordinator, worker, worker], 0)
    assert [str(warning.message) for warning in recwarn if warning.category is not ResourceWarning] == []


@pytest.mark.slow
def test_an_installed_refdist_is_the_one_of_its_checkout(tmp_path: Path) -> None:
    """There backends/ and conformance/ lie inside the package."""
    shutil.copytree(ROOT / "refdist", tmp_path / "refdist", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("backends", "conformance"):
        shutil.copytree(ROOT / name, tmp_path / "refdist" / name, ignore=shutil.ignore_patterns("__pycache__"))
    program = ("import json; from refdist.backends.mpi import greeting\n"
               "print(greeting.__file__, json.loads(greeting.own())['source'])")
    lines = [subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(folder)}, check=True,
                            cwd=tmp_path.parent, capture_output=True, text=True).stdout.split()
             for folder in (ROOT, tmp_path)]
    assert lines[0][0] != lines[1][0] and lines[0][1] == lines[1][1]
