"""The main job, as a user starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_workers import mpiexec

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH with the digits and the split of scikit-learn, whose import takes longer than a short training.

    The training of 40 epochs is with scikit-learn itself.
    """
    folder = tmp_path_factory.mktemp("quick")
    datasets, selection = (pytest.importorskip(f"sklearn.{name}") for name in ("datasets", "model_selection"))
    x, y = datasets.load_digits(return_X_y=True)
    options = {"test_size": 0.2, "random_state": 0}
    np.savez(folder / "digits.npz", x=x, y=y, order=np.concatenate(
        selection.train_test_split(np.arange(len(y)), **options)))
    package = folder / "sklearn"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "datasets.py").write_text(
        f"import numpy\nwith numpy.load({str(folder / 'digits.npz')!r}) as file:\n    x, y = file['x'], file['y']\n"
        "def load_digits(return_X_y):\n    return x, y\n")
    (package / "model_selection.py").write_text(
        f"import numpy\nwith numpy.load({str(folder / 'digits.npz')!r}) as file:\n    order = file['order']\n"
        "def train_test_split(x, y, **options):\n"
        f"    assert options == {options}\n"
        "    training, held_out = order[:len(y) * 4 // 5], order[len(y) * 4 // 5:]\n"
        "    return x[training], x[held_out], y[training], y[held_out]\n")
    return f"{folder}{os.pathsep}{ROOT}"


@pytest.mark.parametrize(("replicas", "epochs"), [(1, 2), (3, 2), (4, 40)])
def test_digits_gives_the_weights_of_one_device_on_any_number_of_replicas(replicas: int, epochs: int, quick: str,
                                                                          tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "digits.py"), "--replicas", str(replicas), "--epochs", str(epochs),
         "--no-progress", "--out", str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": quick if epochs == 2 else str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    differences = [float(text) for text in re.findall(r"and on one: ([\d.e+-]+)", done.stdout)]
    assert len(differences) == 2 and max(differences) <= 1e-5
    assert (tmp_path / "digits.png").stat().st_size > 10_000
    if epochs == 40:
        shares = [float(text) for text in re.findall(r"([\d.]+)% of the held-out", done.stdout)]
        assert shares[1] >= 95.0


DIGITS = str(ROOT / "examples" / "digits.py")
# Of the last batch only one replica has a row.
SHORT = ["--epochs", "2", "--batch", "359", "--no-progress"]


def weights(output: str) -> list[str]:
    printed = re.findall(r"weights (\w{12})$", output, re.MULTILINE)
    assert len(printed) == 2, output
    return printed


def test_workers_train_the_same_bits_in_every_world(tmp_path: Path, quick: str) -> None:
    """Two replicas of one process, of two simulated workers and of two real ones; and two workers of two."""
    out = [*SHORT, "--out", str(tmp_path)]

    def alone(*arguments: str) -> list[str]:
        done = subprocess.run([sys.executable, *arguments, *out], capture_output=True, text=True, cwd=ROOT, check=True,
                              env={**os.environ, "PYTHONPATH": quick})
        return weights(done.stdout)

    two = mpiexec(2, DIGITS, *out, PYTHONPATH=quick)
    assert two.returncode == 0, two.stderr
    assert weights(two.stdout) == alone(DIGITS, "--replicas", "2") == alone(
        "-m", "refdist", "run", "--workers", "2", DIGITS)
    four = mpiexec(2, DIGITS, *out, REFDIST_DEVICES="CPU:1,GPU:2", PYTHONPATH=quick)
    assert weights(four.stdout) == alone(
        "-m", "refdist", "run", "--workers", "2", "--replicas-per-worker", "2", DIGITS)


ASYNC = str(ROOT / "examples" / "async_digits.py")


def shares(done: subprocess.CompletedProcess[str]) -> float:
    assert done.returncode == 0, done.stderr
    [share] = re.findall(r"; ([\d.]+)% of the held-out images right$", done.stdout, re.MULTILINE)
    return float(share)


def test_async_digits_learns_simulated_and_in_processes(quick: str) -> None:
    env = {**os.environ, "PYTHONPATH": quick}
    steps = ["--steps", "400"]
    simulated = [subprocess.run([sys.executable, ASYNC, *steps], capture_output=True, text=True, cwd=ROOT, env=env)
                 for _ in range(2)]
    assert simulated[0].stdout == simulated[1].stdout and shares(simulated[0]) > 80.0
    job = subprocess.run([sys.executable, "-m", "refdist", "launch", "--workers", "2", "--ps", "2", ASYNC, *steps],
                         capture_output=True, text=True, cwd=ROOT, env=env)
    assert shares(job) > 80.0


def test_a_job_of_pytorch_trains_the_same_bits_in_every_world() -> None:
    pytest.importorskip("torch")
    job = str(ROOT / "examples" / "torch_digits.py")
    weights = []
    for command in (("launch", "-n", "3"), ("run", "--workers", "3")):
        done = subprocess.run([sys.executable, "-m", "refdist", *command, job, "--epochs", "2"], capture_output=True,
                              text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert (done.returncode, done.stderr) == (0, "")
        weights.append(re.findall(r"weights (\w{12})$", done.stdout, re.MULTILINE))
    assert len(weights[0]) == 3 and weights[0] == weights[1] == 3 * weights[0][:1]


def test_an_example_says_which_packages_it_needs(tmp_path: Path) -> None:
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / "__init__.py").write_text("raise ImportError('no sklearn')")
    done = subprocess.run([sys.executable, str(ROOT / "examples" / "torch_digits.py")], capture_output=True, text=True,
                          cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "this example needs `pip install torch scikit-learn`" in done.stderr


def test_a_program_of_jax_trains_the_same_bits_in_every_world() -> None:
    pytest.importorskip("jax")
    program = str(ROOT / "examples" / "jax_digits.py")
    weights = []
    for command in ((program, "--replicas", "2"), ("-m", "refdist", "launch", "-n", "2", program),
                    ("-m", "refdist", "run", "--workers", "2", program)):
        done = subprocess.run([sys.executable, *command, "--epochs", "2"], capture_output=True, text=True, cwd=ROOT,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert (done.returncode, done.stderr) == (0, "")
        weights.append(re.findall(r"weights (\w{12})$", done.stdout, re.MULTILINE))
    assert len(weights[0]) == 1 and weights[0] == weights[1] == weights[2]
