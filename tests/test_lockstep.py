"""Where replicas stand on the C stack, and that they are used again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stacks

import refdist
from refdist.core import lockstep


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="walks up the stack by glibc's backtrace")
@pytest.mark.parametrize(("which", "walks"), [("many", 1209), ("few", 1209), ("torch", 1335)])
def test_the_stack_of_a_replica_can_be_walked_to_the_bottom_of_the_thread(which: str, walks: int) -> None:
    if which == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed; `make interop` installs it")
    done = subprocess.run([sys.executable, "-X", "faulthandler", Path(__file__).with_name("stacks.py"), which],
                          capture_output=True, text=True, timeout=300,
                          env=os.environ | {"TORCH_SHOW_CPP_STACKTRACES": "1"})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == walks  # fewer where one was lost with its replica


@pytest.mark.parametrize("program", [stacks.plain, stacks.one_fails, stacks.nested, stacks.workers, stacks.generators])
def test_replicas_are_used_again(program: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Counted(lockstep.greenlet):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            started.append(1)
            super().__init__(*args)

    monkeypatch.setattr(stacks, "look", lambda: None)
    monkeypatch.setattr(lockstep, "greenlet", Counted)
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
