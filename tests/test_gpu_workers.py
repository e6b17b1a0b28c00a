"""The GPU backend on a stand-in for CuPy: what fails and what is said then, workers, the simulator's own tests.

No GPU code runs here; see `gpu_world`.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worlds
from gpu_world import SUM, device_of, host, mirrored, number, program, replica, stand_in

import refdist
from refdist.array.backend import current_backend, made
from refdist.backends.gpu import devices
from refdist.backends.gpu.nccl import Communicator, among, wait

pytestmark = pytest.mark.slow

# --- What fails ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("environment", "message"), [
    ({"STAND_IN_DRIVER": "0"}, r"there is no NVIDIA driver\. Install one"),
    ({"STAND_IN_GPUS": "0"}, r"there is no GPU\. Look at CUDA_VISIBLE_DEVICES"),
    ({"STAND_IN_BROKEN": "cudaErrorUnknown: no luck"}, r"CUDA does not start: cudaErrorUnknown"),
])
def test_what_is_missing_is_named(two: Any, monkeypatch: Any, environment: Any, message: str) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(made.value, "gpu")
    with pytest.raises(LookupError, match=rf"\[RD27\] backend 'gpu': {message}"):
        refdist.set_backend("gpu")
    monkeypatch.undo()
    assert refdist.array_module() is two, "the backend in use stays in use"


def test_without_cupy_the_error_says_how_to_install_it(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    for driver, package in ((None, "cupy-cuda12x.*cupy-cuda13x"), (570, "cupy-cuda12x"), (580, "cupy-cuda13x")):
        monkeypatch.setattr(devices, "_driver", lambda driver=driver: driver)
        with pytest.raises(LookupError, match=rf"\[RD27\].*CuPy cannot be imported.*pip install '{package}"):
            refdist.set_backend("gpu")
    assert refdist.array_module() is np


def test_the_driver_is_read_from_where_linux_says_it(monkeypatch: Any, tmp_path: Any) -> None:
    path = tmp_path / "version"
    monkeypatch.setattr(devices, "_DRIVER", path)
    assert devices._driver() is None
    path.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Wed Jan 22\nGCC version: 13")
    assert devices._driver() == 570
    path.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build")
    assert devices._driver() == 580


def test_importing_refdist_does_not_import_cupy() -> None:
    done = program(sys.executable, "-c", "import sys, refdist, refdist.backends.gpu; assert 'cupy' not in sys.modules",
                   PYTHONPATH="tests/stand_in:.")
    assert done.returncode == 0, done.stderr


def test_the_environment_chooses_the_backend() -> None:
    look = "import refdist; print(refdist.array_module().__name__, refdist.MirroredStrategy().num_replicas_in_sync)"
    assert program(sys.executable, "-c", look, gpus=3).stdout.split() == ["cupy", "3"]
    done = program(sys.executable, "-c", look, REFDIST_BACKEND="guess")
    assert "[RD27] backend 'guess'" in done.stderr


@pytest.mark.parametrize("bad", [None, 3, b"gpu"])
def test_set_backend_takes_a_name(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"\[RD25\] set_backend"):
        refdist.set_backend(bad)


def test_set_backend_belongs_outside_every_scope() -> None:
    with mirrored(2).scope(), pytest.raises(RuntimeError, match=r"\[RD09\] set_backend"):
        refdist.set_backend("simulated")


def test_an_error_of_nccl_is_said_and_the_program_goes_on(two: Any) -> None:
    from cupy.cuda import nccl

    strategy = mirrored(2)

    def step() -> Any:
        return replica().all_reduce("SUM", refdist.constant([1.0]))

    nccl.failures.append("NCCL_ERROR_SYSTEM_ERROR: cable")
    with pytest.raises(RuntimeError, match=r"\[RD28\] all_reduce in order over 2 GPUs: NCCL says NCCL_ERROR_SYSTEM"):
        strategy.run(step)
    assert nccl._group["depth"] == 0
    assert host(strategy.run(step).values[1]).tolist() == [2]


def test_without_nccl_gpus_copy_to_each_other() -> None:
    with stand_in(2, STAND_IN_NCCL="missing"):
        total = mirrored(2).run(lambda: replica().all_reduce("SUM", refdist.constant([number() + 1.0])))
        assert [device_of(part) for part in total.values] == [0, 1]
        assert host(total.values[1]).tolist() == [3]


def test_an_unknown_way_of_connecting_is_refused() -> None:
    with stand_in(2), pytest.raises(ValueError, match=r"\[RD34\] environment variable REFDIST_NCCL='quick'"):  # noqa: SIM117
        with stand_in(2, REFDIST_NCCL="quick"):
            pass


def test_connecting_processes_says_what_nccl_says_or_that_somebody_is_missing(two: Any, monkeypatch: Any) -> None:
    from cupy.cuda import nccl

    class Comm:
        def __init__(self, size: int, unique_id: bytes, rank: int) -> None:
            if rank == 3:
                raise nccl.NcclError("NCCL_ERROR_INVALID_USAGE: two ranks on one GPU")
            if rank == 4:
                arrived.wait(30)

    arrived = threading.Event()
    monkeypatch.setattr(nccl, "NcclCommunicator", Comm)
    assert among(two, [(0, 0), (1, 1)], 4, bytes(128), 30).here == [(0, 0), (1, 1)]
    with pytest.raises(RuntimeError, match=r"\[RD28\] connecting 4 GPUs as rank 2: it failed with NCCL_ERROR_INVALID"):
        among(two, [(2, 0), (3, 1)], 4, bytes(128), 30)
    assert nccl._group["depth"] == 0
    with pytest.raises(RuntimeError, match=r"\[RD28\] connecting 5 GPUs as rank 4: not all ranks connected within 0 s"):
        among(two, [(4, 0)], 5, bytes(128), 0.0)
    arrived.set()


def test_a_wait_with_other_processes_has_a_limit(two: Any) -> None:
    class Comm:
        aborted = False

        def check_async_error(self) -> None:
            raise KeyError(7)  # what CuPy makes of "in progress"

        def abort(self) -> None:
            self.aborted = True

    comm = Comm()
    communicator = Communicator(two, [(0, 0)], 2, [comm], limit=0.0)
    two.cuda.held.append("somebody who does not come")
    with pytest.raises(RuntimeError, match=r"\[RD28\] waiting for a collective on GPU 0: it did not end within 0 s"):
        wait(two, [communicator], 0)
    two.cuda.held.clear()
    assert comm.aborted
    assert communicator.broken
    with pytest.raises(RuntimeError, match="given up"):
        communicator.group(lambda *_: None, "all_reduce")


# --- Workers -------------------------------------------------------------------------------------------------

PROGRAM = """
import numpy as np, refdist
strategy = refdist.MultiWorkerMirroredStrategy()
with strategy.scope():
    v = refdist.Variable(np.float32([1, 2]), aggregation=refdist.VariableAggregation.SUM)
def step():
    context = refdist.get_replica_context()
    i = context.replica_id_in_sync_group
    big = refdist.constant(np.random.default_rng(i).standard_normal(70_001).astype(np.float32))
    total, small = context.all_reduce("SUM", [big, refdist.constant(np.int16([i]))])
    rows = context.all_gather(refdist.constant(np.full((i + 1, 2), i, np.float64)), 0)
    v.assign_add(total[:2])
    mean = context.all_reduce("MEAN", refdist.constant(np.float16([i + 0.5])))
    return total, small, rows, mean
out = strategy.run(step)
import pathlib, sys, zlib
from refdist.array.convert import to_numpy
parts = [to_numpy(strategy.experimental_local_results(leaf)[0]) for leaf in out]
# To a file of its own, because what workers print mixes.
pathlib.Path(sys.argv[1], f"{refdist.array_module().__name__} {strategy.cluster_resolver.task_id}").write_text(str([
    [part.dtype.name for part in parts], [zlib.crc32(part.tobytes()) for part in parts], v.numpy().tolist(),
    parts[2].shape]))
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[str]]:
    """What both simulated workers write, by their number of replicas; PROGRAM runs once for each."""
    @functools.cache
    def written(replicas: int) -> list[str]:
        folder = tmp_path_factory.mktemp("simulated")
        (folder / "program.py").write_text(PROGRAM)
        done = program(sys.executable, "-m", "refdist", "run", "--workers", "2", "--replicas-per-worker", str(replicas),
                       str(folder / "program.py"), str(folder))
        assert done.returncode == 0, done.stderr[-2000:]
        return [(folder / f"numpy {task}").read_text() for task in (0, 1)]

    return written


@pytest.mark.parametrize(("gpus", "environment"), [
    (1, {}), (1, {"REFDIST_NCCL": "off"}), (1, {"STAND_IN_BUS": "7"}), (2, {}), (4, {}), (4, {"REFDIST_NCCL": "off"})],
    ids=lambda value: str(value))
def test_workers_under_mpi_have_the_simulated_workers_bits(gpus: int, environment: Any, simulated: Any,
                                                           tmp_path: Any) -> None:
    # Four GPUs on one host are two for each of two processes.
    bits = simulated(2 if gpus == 4 else 1)
    (tmp_path / "program.py").write_text(PROGRAM)
    mpiexec = str(Path(sys.executable).parent / "mpiexec")
    done = program(mpiexec, "-n", "2", sys.executable, str(tmp_path / "program.py"), str(tmp_path), gpus=gpus,
                   **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    for task in (0, 1):
        assert (tmp_path / f"cupy {task}").read_text() == bits[task]


def test_strategies_over_the_same_gpus_share_a_communicator_which_is_freed_at_exit(tmp_path: Any) -> None:
    (tmp_path / "program.py").write_text("""
import atexit, pathlib, sys
from cupy.cuda.nccl import NcclCommunicator
sums = []
atexit.register(lambda: pathlib.Path(sys.argv[1], str(task)).write_text(f"{sums} {NcclCommunicator.in_use}"))
import refdist
for _ in range(3):
    strategy = refdist.MultiWorkerMirroredStrategy()
    task = strategy.cluster_resolver.task_id
    total = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", refdist.constant([1.0])))
    sums.append((float(total), NcclCommunicator.connected, NcclCommunicator.in_use))
""")
    done = program(str(Path(sys.executable).parent / "mpiexec"), "-n", "2", sys.executable,
                   str(tmp_path / "program.py"), str(tmp_path), gpus=2)
    assert done.returncode == 0, done.stderr[-2000:]
    for task in (0, 1):
        assert (tmp_path / str(task)).read_text() == f"{[(2.0, 1, 1)] * 3} 0", done.stderr[-2000:]


@pytest.mark.worlds
@pytest.mark.parametrize("environment", [{}, {"REFDIST_NCCL": "off"}][:1 + worlds.EVERY], ids=str)
def test_the_conformance_suite_on_workers_under_mpi(environment: Any) -> None:
    done = program(str(Path(sys.executable).parent / "mpiexec"), "-n", "2", sys.executable, "-W", "ignore", "-m",
                   "refdist.conformance.adapters.workers", "--expected-failures", "tests/expected/gpu_workers.txt",
                   *worlds.clauses("MultiWorker 2"), gpus=1, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    match = re.fullmatch(r"2 processes: (?:(\d) expected failure, )?(\d+) passed", done.stdout.strip())
    assert match and int(match[2]) > (450 if worlds.EVERY else 90), done.stdout
    assert match[1] == "2" or not worlds.EVERY, done.stdout


# Tests of the simulator that look at something only NumPy has, or count devices that this machine states otherwise.
NUMPY_S_OWN = [
    "tests/test_contexts.py::test_the_cpu_is_divided_as_the_tutorials_do_it",
    "tests/test_contexts.py::test_physical_devices_are_those_of_the_machine",
    *(f"tests/test_docs.py::test_the_programs_of_a_page_run_one_after_another[{page}]" for page in (
        "porting.md", "gpus.md", "index.md", "pytorch.md", "jax.md", "keras.md", "debugging.md")),
    *(f"tests/test_docs.py::test_the_readme_s_program_runs_on_workers_with_the_change_it_names[{world}]" for world in (
        "simulated", "mpi")),
    "tests/test_docs.py::test_the_examples_of_docstrings_run[refdist.config]",
    "tests/test_docs.py::test_the_examples_of_docstrings_run[refdist.array.replica_checks]",
    "tests/test_docs.py::test_the_examples_of_docstrings_run[refdist.strategies.multi_worker]",
    # These two run no program.
    "tests/test_docs.py::test_a_printed_page_is_up_to_date",
    "tests/test_docs.py::test_links_between_pages_lead_somewhere",
]


@pytest.mark.worlds
@pytest.mark.parametrize("gpus", [1, 2] if worlds.EVERY else [2])
@pytest.mark.parametrize(("devices", "files"), [
    ("GPU:16,CPU:16", "tests/test_variable_table.py tests/test_update.py tests/test_contexts.py"),
    ("GPU:16", "tests/test_docs.py")])
def test_the_simulator_s_tests_and_the_documented_programs(gpus: int, devices: str, files: str) -> None:
    done = program(sys.executable, "-m", "pytest", "-q", *files.split(),
                   *(f"--deselect={name}" for name in NUMPY_S_OWN), gpus=gpus, REFDIST_DEVICES=devices)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_importing_refdist_chooses_no_backend() -> None:
    done = program(sys.executable, "-c", "import refdist, sys; assert 'cupy' not in sys.modules; "
                   "assert refdist.has_strategy() is False; assert refdist.OneDeviceStrategy('GPU:0') is not None",
                   gpus=1)
    assert done.returncode == 0, done.stderr


def test_the_backend_may_be_chosen_by_the_first_run() -> None:
    look = ("import refdist; s = refdist.OneDeviceStrategy('CPU:0'); s.run(lambda: 1); "
            "m = refdist.MirroredStrategy(['GPU:0', 'GPU:1']); "
            "print(m.run(lambda: refdist.get_replica_context().all_reduce('SUM', 1.0)).values[1])")
    done = program(sys.executable, "-c", look, gpus=2)
    assert done.stdout.strip() == "2.0", done.stderr


# --- One strategy, one backend -------------------------------------------------------------------------------

def test_a_strategy_is_used_with_the_backend_it_was_made_with() -> None:
    def used(strategy: Any, variable: Any, seen: Any, value: Any, iterator: Any) -> list[Any]:
        """Everything of a strategy that needs a backend."""
        def in_scope() -> Any:
            with strategy.scope():
                return refdist.Variable(1.0)

        return [lambda: strategy.run(lambda: replica().all_reduce("SUM", 1.0)), lambda: strategy.run(lambda: 1),
                lambda: strategy.reduce("SUM", value, axis=None), lambda: strategy.reduce("SUM", value, axis=0),
                lambda: strategy.gather(value, axis=0), lambda: strategy.extended.reduce_to("SUM", value, "CPU:0"),
                lambda: strategy.extended.batch_reduce_to("SUM", [(value, "CPU:0")]),
                lambda: strategy.extended.backend,
                lambda: strategy.extended.update(variable, lambda copy: copy.assign(2.0)),
                lambda: strategy.extended.update_non_slot(["GPU:0"], lambda: 1),
                lambda: next(iterator),
                lambda: next(iter(strategy.experimental_distribute_dataset([np.ones(2)]))),
                lambda: variable.assign_add(1.0), lambda: variable.assign(1.0),
                lambda: seen.read_value(), in_scope]

    def made() -> tuple[Any, ...]:
        strategy = mirrored(2)
        with strategy.scope():
            variable = refdist.Variable(1.0)
            seen = refdist.Variable(1.0, synchronization=refdist.VariableSynchronization.ON_READ, aggregation=SUM)
        value = strategy.run(lambda: refdist.constant([1.0]))
        return strategy, variable, seen, value, iter(strategy.experimental_distribute_dataset([np.ones(2)] * 3))

    before = made()
    with stand_in(2):
        for call in used(*before):
            with pytest.raises(RuntimeError, match=r'\[RD27\] MirroredStrategy: it was made with the backend '
                               r'"simulated", and "gpu" is in use now.*set_backend\("simulated"\)'):
                call()
        assert before[1].numpy() == 1
        within = made()
        for call in used(*within):
            call()
        assert refdist.get_strategy().extended.backend is current_backend() is not before[0].extended._backend
        refdist.set_backend("simulated")
        for call in used(*within):
            with pytest.raises(RuntimeError, match=r'\[RD27\].*backend "gpu", and "simulated" is in use now'):
                call()
        assert within[1].numpy() == 1
        refdist.set_backend("gpu")
        for call in used(*within):
            call()
    for call in used(*before):
        call()


def test_choosing_the_backend_in_use_changes_nothing(two: Any) -> None:
    strategy, before = mirrored(2), current_backend()
    refdist.set_backend("gpu")
    assert strategy.extended.backend is current_backend() is before
