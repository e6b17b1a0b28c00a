"""Where replicas stand on the C stack, that they are used again, and what each has of the state of its thread."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stacks
from limits import HANG

import refdist
from refdist.core import lockstep, pytorch


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="walks up the stack by glibc's backtrace")
@pytest.mark.parametrize(("which", "walks"), [("many", 1209), ("few", 1209), ("torch", 1335)])
def test_the_stack_of_a_replica_can_be_walked_to_the_bottom_of_the_thread(which: str, walks: int) -> None:
    if which == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed; `make interop` installs it")
    done = subprocess.run([sys.executable, "-X", "faulthandler", Path(__file__).with_name("stacks.py"), which],
                          capture_output=True, text=True, timeout=HANG,
                          env=os.environ | {"TORCH_SHOW_CPP_STACKTRACES": "1"})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == walks  # fewer where one was lost with its replica


@pytest.mark.parametrize("program", [stacks.plain, stacks.one_fails, stacks.nested, stacks.workers, stacks.generators])
def test_replicas_are_used_again(program: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def counted(kind: Any) -> None:
        init = kind.__init__
        monkeypatch.setattr(kind, "__init__", lambda self, *args: (started.append(1), init(self, *args))[1])

    class Probe(lockstep.greenlet):  # type: ignore[misc]
        pass

    monkeypatch.setattr(stacks, "look", lambda: None)
    monkeypatch.setattr(lockstep, "greenlet", Probe)
    counted(Probe)
    counted(lockstep.Unit)
    for _ in range(40):  # CPython specializes calls meanwhile, and so moves the address that they are made from
        program()
    started.clear()
    for _ in range(10):
        program()
    assert not started


def test_parked_replicas_keep_nothing_of_a_run_alive() -> None:
    """Neither of the run that started them nor of a later one."""
    alive: list[list[bool]] = []

    def program() -> None:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        arrays: list[weakref.ref[Any]] = []

        def step() -> Any:
            context = refdist.get_replica_context()
            assert context is not None
            array = np.zeros(2)
            arrays.append(weakref.ref(array))
            context.all_reduce("SUM", array)
            return array

        for _ in range(2):
            arrays.clear()
            strategy.run(step)
            alive.append([array() is not None for array in arrays])

    # No replicas are parked in a new thread.
    thread = threading.Thread(target=program)
    thread.start()
    thread.join()
    assert alive == [[False, False], [False, False]]


def test_replicas_run_one_after_another_from_rendezvous_to_rendezvous() -> None:
    """In the thread of the caller, so that its thread-local values are there, and debuggers work."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(3)])
    log: list[str] = []
    local = threading.local()
    local.value = "of the caller"

    def step() -> None:
        replica = refdist.get_replica_context()
        log.append(f"before {replica.replica_id_in_sync_group} {local.value}")
        replica.merge_call(lambda strategy: log.append(f"merged {local.value}"))
        log.append(f"after {replica.replica_id_in_sync_group}")
        assert threading.current_thread() is caller

    caller = threading.current_thread()
    strategy.run(step)
    assert log == [*(f"before {i} of the caller" for i in range(3)), "merged of the caller",
                   *(f"after {i}" for i in range(3))]


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed; `make interop` installs it")


MODES = ["no_grad", "enable_grad", "inference_mode", "bfloat16", "float16", "uncached", "nothing"]


def entered(torch: Any, mode: str) -> Any:
    if mode == "uncached":
        return torch.autocast("cpu", cache_enabled=False)
    if mode.startswith(("float", "bfloat")):
        return torch.autocast("cpu", dtype=getattr(torch, mode))
    return contextlib.nullcontext() if mode == "nothing" else getattr(torch, mode)()


def computed(torch: Any) -> tuple[object, ...]:
    """What computations show of the mode that they are made in, and what the next `autocast` will find."""
    weight = torch.ones(2, 2, requires_grad=True)
    product = weight @ weight
    return (product.requires_grad, product.is_inference(), product.dtype, torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("outside", MODES)
@pytest.mark.parametrize("mode", MODES)
def test_modes_of_torch_belong_to_a_replica(torch: Any, mode: str, outside: str, order: tuple[int, ...],
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refdist.config.order", lambda count: order)
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(3)])
    begun, own, after = [], [], []

    def step(fails: bool) -> None:
        replica = refdist.get_replica_context()
        assert replica is not None
        number = replica.replica_id_in_sync_group
        begun.append(computed(torch))
        with contextlib.ExitStack() as blocks:
            for turn in range(4):  # replica 2 leaves its blocks first
                if turn < 3 - number:
                    blocks.enter_context(entered(torch, (mode, "no_grad", "bfloat16")[turn]))
                else:
                    blocks.close()
                    after.append(computed(torch))
                if fails and turn == 2 and number == 1:
                    raise ValueError("on purpose")
                result = computed(torch)
                replica.all_reduce("SUM", 1.0)
                own.append(computed(torch) == result)

    plain = computed(torch)
    with entered(torch, outside):
        before = computed(torch)
        for fails in (False, True, False):
            with pytest.raises(ValueError, match="on purpose") if fails else contextlib.nullcontext():
                strategy.run(step, args=(fails,))
            assert computed(torch) == before
    assert computed(torch) == plain
    assert set(begun) == set(after) == {before} and all(own)


def test_a_mode_set_without_a_block_ends_with_the_run(torch: Any) -> None:
    def program(strategy: Any) -> tuple[object, ...]:
        begun: list[bool] = []

        def step() -> None:
            begun.append(torch.is_grad_enabled())
            refdist.get_replica_context().all_reduce("SUM", 1.0)
            torch.set_grad_enabled(False)

        strategy.run(step)
        return (*begun, torch.is_grad_enabled())

    def worker() -> bool:
        assert program(refdist.MultiWorkerMirroredStrategy()) == (True, True)
        return other_worker()

    def other_worker() -> bool:
        begun = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        return bool(begun)

    assert program(refdist.MirroredStrategy(["GPU:0", "GPU:1"])) == (True, True, True)
    assert program(refdist.MirroredStrategy(["GPU:0"])) == (True, True)
    for on_worker in (worker, other_worker):
        assert refdist.simulate_workers(on_worker, workers=2) == [True, True]
        assert torch.is_grad_enabled()


def test_whatever_runs_between_two_replicas_leaves_no_mode_behind(torch: Any) -> None:
    """That is a function of merge_call, or the rest of a replica that returns or raises while the others wait."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(3)])
    seen: list[tuple[str, int, bool]] = []

    def step(how: str) -> None:
        replica = refdist.get_replica_context()
        assert replica is not None
        number = replica.replica_id_in_sync_group
        seen.append(("begins", number, torch.is_grad_enabled()))
        try:
            if how == "merges":
                replica.merge_call(lambda strategy: torch.set_grad_enabled(False))
            elif number != 1:
                replica.all_reduce("SUM", 1.0)
            else:
                torch.set_grad_enabled(False)
                if how == "raises":
                    raise ValueError("on purpose")
        finally:
            if how == "merges" or number != 1:
                seen.append(("ends", number, torch.is_grad_enabled()))

    strategy.run(step, args=("merges",))
    for how in ("returns", "raises"):
        with pytest.raises((RuntimeError, ValueError), match=r"already returned|on purpose"):
            strategy.run(step, args=(how,))
    assert torch.is_grad_enabled() and all(recorded for _, _, recorded in seen)
    assert [(when, number) for when, number, _ in seen] == [
        ("begins", 0), ("begins", 1), ("begins", 2), ("ends", 0), ("ends", 1), ("ends", 2),
        ("begins", 0), ("begins", 1), ("begins", 2), ("ends", 0), ("ends", 2), ("begins", 0), ("begins", 1),
        ("ends", 0)]


def test_the_mode_is_read_once_where_a_replica_waits(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And once where they go on, since anything may have run at the rendezvous: reading it takes microseconds."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(8)])
    read = torch.is_grad_enabled
    reads = []

    def counted() -> bool:
        reads.append(1)
        return bool(read())

    def step(times: int) -> None:
        for _ in range(times):
            refdist.get_replica_context().all_reduce("SUM", 1.0)

    def count(times: int) -> int:
        reads.clear()
        strategy.run(step, args=(times,))
        return len(reads)

    monkeypatch.setattr(torch, "is_grad_enabled", counted)
    monkeypatch.setattr("refdist.core.pytorch._reader", pytorch._reader.__wrapped__)
    assert count(3) - count(2) == 8 + 1


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps", "xpu"])
def test_autocast_set_without_a_block_belongs_to_a_replica(torch: Any, device: str) -> None:
    if not torch.amp.is_autocast_available(device):
        pytest.skip(f"PyTorch {torch.__version__} has no autocast on {device}")
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    settings = [(False, torch.float64), (True, torch.get_autocast_dtype(device))]
    seen: list[tuple[bool, Any]] = []

    def now() -> tuple[bool, Any]:
        return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def step() -> None:
        replica = refdist.get_replica_context()
        assert replica is not None
        enabled, dtype = settings[replica.replica_id_in_sync_group]
        seen.append(now())
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
        replica.all_reduce("SUM", 1.0)
        seen.append(now())

    before = now()
    strategy.run(step)
    assert seen == [before, before, *settings] and now() == before


@pytest.mark.parametrize("ends", [False, True])
def test_a_replica_does_not_see_copies_of_weights_of_another(torch: Any, ends: bool) -> None:
    """Also where autocast is switched on without a block, and switched off again."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    weight = torch.ones(2, 2, requires_grad=True)
    seen = []

    def step() -> None:
        torch.set_autocast_enabled("cpu", True)
        seen.append(float((weight @ weight).detach()[0, 0]))
        with torch.no_grad():
            weight.fill_(3.0)
        if ends:
            torch.set_autocast_enabled("cpu", False)
        refdist.get_replica_context().all_reduce("SUM", 1.0)

    strategy.run(step)
    assert seen == [2.0, 18.0]


def test_a_weight_changed_after_autocast_is_read_again(torch: Any) -> None:
    """By the same replica while another one waits in its `autocast`, and by another replica."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    weight = torch.ones(2, 2, requires_grad=True)

    def product() -> float:
        return float((weight @ weight).detach()[0, 0])

    def step() -> list[float]:
        replica = refdist.get_replica_context()
        assert replica is not None
        number = replica.replica_id_in_sync_group
        if number == 1:
            with torch.no_grad():
                weight.fill_(3.0)
        with torch.autocast("cpu"):
            seen = [product()]
            replica.all_reduce("SUM", 1.0)
            seen.append(product())
        with torch.no_grad():
            weight.fill_(4.0 if number else 2.0)
        with torch.autocast("cpu"):
            return [*seen, product()]

    seen: list[list[float]] = []
    strategy.run(lambda: seen.append(step()))
    assert seen == [[2.0, 18.0, 8.0], [18.0, 8.0, 32.0]]


@pytest.mark.parametrize("workers", [False, True])
def test_torch_may_be_imported_in_a_replica(torch: Any, workers: bool) -> None:
    program = f"""
import sys
import refdist

def of_a_replica():
    replica = refdist.get_replica_context()
    number = replica.replica_id_in_sync_group
    all_reduce = lambda: replica.all_reduce("SUM", 1.0)
    all_reduce()
    if number == 1:
        import torch
        torch.set_grad_enabled(False)
        block = torch.inference_mode()  # left when it is dropped
        block.__enter__()
    all_reduce()
    torch = sys.modules["torch"]
    assert torch.is_grad_enabled() is (number != 1) and torch.is_inference_mode_enabled() is (number == 1), number
    all_reduce()

def of_a_worker():
    strategy = refdist.MultiWorkerMirroredStrategy()
    strategy.run(of_a_replica)

if {workers}:
    refdist.simulate_workers(of_a_worker, workers=3)
else:
    refdist.MirroredStrategy([f"GPU:{{i}}" for i in range(3)]).run(of_a_replica)
torch = sys.modules["torch"]
assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr


def test_where_and_in_what_dtype_torch_makes_tensors_belongs_to_a_replica(torch: Any) -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(3)])
    seen: dict[int, list[str]] = {}

    def now() -> str:
        new = torch.ones(1)
        assert new.device.type == torch.get_default_device().type
        return f"{new.device.type} {str(new.dtype)[-2:]}"

    def step() -> None:
        replica = refdist.get_replica_context()
        number = replica.replica_id_in_sync_group
        seen[number] = [now()]
        block = torch.device("meta")
        for turn in range(3):
            if number == 0 and turn == 0:
                block.__enter__()
            elif number == 1 and turn == 0:
                torch.set_default_device("meta")
                torch.set_default_dtype(torch.float64)
            elif number == 2 and turn == 1:
                torch.set_default_dtype(torch.float16)
                block.__enter__()
            elif (number, turn) in ((0, 1), (2, 2)):
                block.__exit__(None, None, None)
            replica.all_reduce("SUM", 1.0)
            seen[number].append(now())

    for _ in range(2):
        strategy.run(step)
        assert seen == {0: ["cpu 32", "meta 32", "cpu 32", "cpu 32"], 1: ["cpu 32", "meta 64", "meta 64", "meta 64"],
                        2: ["cpu 32", "cpu 32", "meta 16", "cpu 16"]}
        assert now() == "cpu 32"
        torch.set_default_device("cpu")  # finds what it has put there itself, and not what a replica has
    torch.set_default_device(None)


@pytest.mark.parametrize("same", [False, True])
def test_a_replica_that_seeds_torch_draws_the_numbers_of_its_seed(torch: Any, same: bool) -> None:
    """As it does in a process of its own; whatever else draws in between."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])

    def step(number: int, meet: Callable[[], object]) -> list[float]:
        torch.manual_seed(3 if same else number)
        drawn = []
        for _ in range(3):
            drawn.append(float(torch.nn.functional.dropout(torch.ones(64)).sum()) + float(torch.rand(())))
            meet()
        return drawn

    def of_a_replica() -> Any:
        replica = refdist.get_replica_context()
        return tuple(step(replica.replica_id_in_sync_group, lambda: replica.all_reduce("SUM", torch.rand(()))))

    def alone(number: int) -> list[float]:
        return step(number, lambda: torch.rand(()))

    drawn = strategy.run(of_a_replica)
    assert [[float(result.values[i]) for result in drawn] for i in range(2)] == [alone(0), alone(1)]


def test_replicas_that_seed_nothing_do_not_all_draw_the_same(torch: Any) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    first, second = strategy.run(lambda: float(torch.rand(()))).values
    assert first != second
    assert float(torch.rand(())) not in (first, second)


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax", reason="JAX is not installed; `make interop` installs it")


@pytest.mark.parametrize("context", ["enable_x64", "default_matmul_precision", "default_device", "debug_nans",
                                     "numpy_rank_promotion", "disable_jit", "transfer_guard"])
def test_contexts_of_jax_belong_to_a_replica(jax: Any, context: str) -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(3)])
    enable = not jax.config.jax_enable_x64
    block = {"enable_x64": lambda: jax.enable_x64(enable), "debug_nans": lambda: jax.debug_nans(True),
             "default_matmul_precision": lambda: jax.default_matmul_precision("float32"),
             "default_device": lambda: jax.default_device(jax.devices("cpu")[0]),
             "numpy_rank_promotion": lambda: jax.numpy_rank_promotion("raise"), "disable_jit": jax.disable_jit,
             "transfer_guard": lambda: jax.transfer_guard("disallow")}[context]

    def shows() -> bool:
        """Whether the context holds, seen from what is computed where that is possible."""
        match context:
            case "enable_x64":
                return bool((jax.numpy.arange(1).dtype == "int64") is enable)
            case "debug_nans":
                try:
                    jax.numpy.log(-jax.numpy.ones(1)).block_until_ready()
                except FloatingPointError:
                    return True
                return False
            case "disable_jit":
                traced = []
                jax.jit(lambda x: traced.append(isinstance(x, jax.core.Tracer)))(1.0)
                return traced == [False]
            case "transfer_guard":
                try:
                    jax.numpy.ones(2) + np.ones(2, np.float32)
                except RuntimeError:
                    return True
                return False
        return getattr(jax.config, f"jax_{context}") != before[context]

    before = {name: getattr(jax.config, f"jax_{name}")
              for name in ("default_matmul_precision", "default_device", "numpy_rank_promotion")}
    seen: dict[int, list[bool]] = {}

    def step() -> None:
        replica = refdist.get_replica_context()
        number = replica.replica_id_in_sync_group
        seen[number] = [shows()]
        held = contextlib.ExitStack()
        for turn in range(3):
            if number < 2 and turn == number:
                held.enter_context(block())
            elif turn == 2 - number:  # replica 0 leaves its block after replica 1 has entered one
                held.close()
            replica.all_reduce("SUM", np.float32(1))
            seen[number].append(shows())

    strategy.run(step)
    assert seen == {0: [False, True, True, False], 1: [False, False, True, True], 2: [False] * 4}
    assert not shows()


@pytest.mark.parametrize("transform", ["grad", "vmap"])
def test_a_rendezvous_in_what_jax_traces_leaves_no_trace_behind(jax: Any, transform: str) -> None:
    """The arrays are no tracers, so the call is in order; other replicas must not trace meanwhile."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2"])

    def step() -> Any:
        replica = refdist.get_replica_context()

        def function(x: Any) -> Any:
            return (x * float(replica.all_reduce("SUM", 1.0 + replica.replica_id_in_sync_group))).sum()

        x = jax.numpy.ones(2)
        return jax.grad(function)(x) if transform == "grad" else jax.vmap(function)(x)

    for result in strategy.run(step).values:
        assert not isinstance(result, jax.core.Tracer) and result.tolist() == [6.0, 6.0]
    assert not isinstance(jax.jit(lambda x: x + 1)(jax.numpy.ones(1)), jax.core.Tracer)


@pytest.mark.parametrize("call", ["all_reduce", "merge_call", "assign", "assign on one device", "outside"])
def test_what_happens_once_is_refused_in_a_function_that_jax_compiles(jax: Any, call: str) -> None:
    """None of the arrays is a tracer: the call would be made while the function is compiled, and never again."""
    strategy: Any = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    if call == "assign on one device":
        strategy = refdist.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        v = refdist.Variable(1.0, aggregation=refdist.VariableAggregation.SUM)

    def function(x: Any) -> Any:
        replica = refdist.get_replica_context()
        if call == "all_reduce":
            replica.all_reduce("SUM", 1.0)
        elif call == "merge_call":
            replica.merge_call(lambda strategy: None)
        else:
            v.assign(2.0)
        return x

    compiled = jax.jit(function)
    with pytest.raises(RuntimeError, match=r"^\[RD09\] .*JAX compiles.*outside `jax.jit`"):
        compiled(1.0) if call == "outside" else strategy.run(lambda: compiled(1.0))
    assert float(v) == 1.0
    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2.0


@pytest.mark.parametrize("compiled", [False, True])
def test_a_rendezvous_in_a_callback_of_compiled_code_is_refused(jax: Any, compiled: bool) -> None:
    """XLA would end the process."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])

    def step() -> Any:
        replica = refdist.get_replica_context()

        def function(x: Any) -> Any:
            return jax.pure_callback(lambda x: np.asarray(replica.all_reduce("SUM", x)), x, x)

        # On a GPU JAX returns before it has computed.
        return jax.block_until_ready((jax.jit(function) if compiled else function)(jax.numpy.ones(2)))

    with pytest.raises(RuntimeError, match=r"\[RD09\] all_reduce.*by what JAX has compiled"):
        strategy.run(step)
    assert float(strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0)).values[0]) == 2.0
    assert refdist.OneDeviceStrategy("GPU:0").run(step).tolist() == [1.0, 1.0]


def test_workers_have_the_random_numbers_of_torch_to_themselves(torch: Any) -> None:
    def program() -> list[float]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        torch.manual_seed(strategy.cluster_resolver.task_id)
        drawn = []
        for _ in range(3):
            drawn.append(float(torch.rand(())))
            strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
        return drawn

    def alone(seed: int) -> list[float]:
        torch.manual_seed(seed)
        return [float(torch.rand(())) for _ in range(3)]

    assert refdist.simulate_workers(program, workers=3) == [alone(seed) for seed in range(3)]


@pytest.mark.parametrize("state", ["nothing", "blocked", "being imported"])
def test_programs_without_torch_are_left_alone(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if state == "nothing":
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        for name in ("mode", "set_mode"):
            monkeypatch.delattr(f"refdist.core.pytorch.{name}")  # an error wherever it is called
    else:
        monkeypatch.setitem(sys.modules, "torch", None if state == "blocked" else types.ModuleType("torch"))
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    total = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
    assert [float(part) for part in total.values] == [2.0, 2.0]
    assert state != "nothing" or "torch" not in sys.modules


@pytest.mark.parametrize("unit", ["replica", "worker"])
def test_a_replica_that_catches_its_end_is_left_where_it_was(unit: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import gc, refdist\n"
        "def total(): return refdist.get_replica_context().all_reduce('SUM', 1.0)\n"
        "def endless(call):\n"
        "    while True:\n"
        "        try:\n"
        "            call()\n"
        "        except BaseException:\n"
        "            pass\n"
        "def fails(): raise KeyError('x')\n"
        "strategy = refdist.MirroredStrategy(['GPU:0', 'GPU:1'])\n"
        "def step():\n"
        "    endless(total) if refdist.get_replica_context().replica_id_in_sync_group == 0 else fails()\n"
        "def program():\n"
        "    strategy = refdist.MultiWorkerMirroredStrategy()\n"
        "    endless(lambda: strategy.run(total)) if strategy.cluster_resolver.task_id == 0 else fails()\n"
        "for _ in range(2):\n"
        "    try:\n"
        f"        strategy.run(step) if {unit == 'replica'} else refdist.simulate_workers(program, 2, 1)\n"
        "    except KeyError as error:\n"
        "        print(error.__notes__[-1])\n"
        "    gc.collect()\n"
        "print(strategy.run(total).values)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=HANG,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    *notes, result = done.stdout.splitlines()
    assert len(notes) == 2 and result == "(array(2., dtype=float32), array(2., dtype=float32))"
    for note in notes:
        assert re.fullmatch(rf"{unit} 0 caught what ends it 1000 times, last at all_reduce \(.*script\.py:2\), and was "
                            r"left there; catch `Exception` and not `BaseException`", note)
