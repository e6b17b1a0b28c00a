"""`PreemptionCheckpointHandler`: when one worker is told to stop, all workers save and exit after the same step."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np

from refdist import errors
from refdist.checkpoints.checkpoint import Checkpoint, counter, transport_of
from refdist.checkpoints.manager import CheckpointManager
from refdist.core.integers import check_seconds
from refdist.runtime import Field

_T = TypeVar("_T")

asked: Field[Callable[[bool], bool] | None] = Field(
    "who decides, each time that a handler asks, whether its worker is told to end; is given whether that has a grace "
    "period, which is over at once", lambda: None)


class TerminationConfig:
    """How a program learns that it will be preempted, and how it ends.

    Args:
        termination_watcher_fn: returns True if this worker is to end; None waits for SIGTERM.
        exit_fn: ends the program after the checkpoint; None for `sys.exit(42)`.
        grace_period: seconds from the signal to the end, during which training continues; None for 0.  A checkpoint is
            saved at the beginning too, because the machine may be stopped earlier.
        save_fn: called instead of the `save` of the checkpoint manager.

    Raises:
        RD25, RD34: an argument that is not a function, or not a number of seconds of at least 0.

    Source: tf.distribute.experimental.TerminationConfig.
    """

    def __init__(self, termination_watcher_fn: Callable[[], bool] | None = None,
                 exit_fn: Callable[[], object] | None = None, grace_period: float | None = None,
                 save_fn: Callable[..., object] | None = None) -> None:
        # Checked here, because it is too late when they are called.
        for name, function in (("termination_watcher_fn", termination_watcher_fn), ("exit_fn", exit_fn),
                            ("save_fn", save_fn)):
            if function is not None and not callable(function):
                raise errors.error("RD25", "TerminationConfig", f"{name} is {function!r}", "Pass a function, or None.")
        check_seconds(grace_period, "grace_period", "TerminationConfig")
        self.termination_watcher_fn = termination_watcher_fn
        self.exit_fn = exit_fn
        self.grace_period = grace_period
        self.save_fn = save_fn


class PreemptionCheckpointHandler:
    """Restores the newest checkpoint when it is created, and saves one when a worker is to end.

    Args:
        cluster_resolver: the resolver of the cluster; not used, as the workers ask each other.
        checkpoint_or_checkpoint_manager: what is saved and restored.
        checkpoint_dir: the folder, if that is a Checkpoint.
        termination_config: a TerminationConfig, or None.

    Raises:
        RD25, RD34: bad arguments.

    Source: tf.distribute.experimental.PreemptionCheckpointHandler.
    """

    def __init__(self, cluster_resolver: object, checkpoint_or_checkpoint_manager: Checkpoint | CheckpointManager,
                 checkpoint_dir: str | os.PathLike[str] | None = None,
                 termination_config: TerminationConfig | None = None) -> None:
        attempted = "PreemptionCheckpointHandler"
        if isinstance(checkpoint_or_checkpoint_manager, Checkpoint):
            if checkpoint_dir is None:
                raise errors.error("RD34", attempted, "checkpoint_dir is missing", "Pass the folder to save to.")
            manager = CheckpointManager(checkpoint_or_checkpoint_manager, checkpoint_dir, max_to_keep=1)
        elif isinstance(checkpoint_or_checkpoint_manager, CheckpointManager):
            manager = checkpoint_or_checkpoint_manager
        else:
            raise errors.error("RD25", attempted, f"got {checkpoint_or_checkpoint_manager!r}",
                               "Pass a Checkpoint or a CheckpointManager.")
        self._manager = manager
        self._config = termination_config or TerminationConfig()
        self._told = threading.Event()
        self._told_at = 0.0
        self._saved_first = False
        self._counter = counter()
        manager.checkpoint.preemption_run_counter = self._counter
        if self._config.termination_watcher_fn is None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: self._note())
        manager.restore_or_initialize()

    @property
    def total_run_calls(self) -> np.int64:
        """The number of calls of `run`, including those before a restart."""
        return np.int64(self._counter.numpy())

    def run(self, distributed_train_function: Callable[..., _T], *args: object, **kwargs: object) -> _T:
        """Calls the function once; if any worker is to end, saves and ends afterwards.

        What the function raises on one worker is raised by this call on all of them.

        Args:
            distributed_train_function: the function, of one step.
            args, kwargs: what it is called with.

        Source: tf.distribute.experimental.PreemptionCheckpointHandler.run.
        """
        try:
            result = distributed_train_function(*args, **kwargs)
        except Exception as error:
            if not getattr(error, "on_every_worker", False):
                # Where the others do not ask, because they wait for this worker in the function, that is their error.
                with suppress(errors.RefdistError):
                    self._ask(error)
            raise
        self._counter.assign_add(np.int64(1))
        self.save_checkpoint_if_preempted()
        return result

    def save_checkpoint_if_preempted(self, *args: object, **kwargs: object) -> None:
        """Saves if any worker is to end, and ends if its grace period is over; the arguments are passed to `save`.

        Args:
            args, kwargs: what `save` of the manager, or `save_fn` of the TerminationConfig, is called with.

        Source: tf.distribute.experimental.PreemptionCheckpointHandler.save_checkpoint_if_preempted.
        """
        watcher = self._config.termination_watcher_fn
        if watcher is not None and not self._told.is_set() and watcher():
            self._note()
        if asked.value is not None and not self._told.is_set() and asked.value(bool(self._config.grace_period)):
            self._note()
            self._told_at = float("-inf")
        known = self._ask()
        failed = next((failure for _, _, failure in known if failure), None)
        if failed:
            raise pickle.loads(failed)
        over = any(ends for _, ends, _ in known)
        if over or (any(ends_soon for ends_soon, _, _ in known) and not self._saved_first):
            self._saved_first = True
            (self._config.save_fn or self._save)(*args, **kwargs)
        if over:
            (self._config.exit_fn or _exit)()

    def _ask(self, failure: Exception | None = None) -> list[tuple[bool, bool, bytes]]:
        """For every worker: whether it was told to end, whether its grace period is over, and the error of its step."""
        # Only the worker that received the signal knows when its grace period began.
        state = (self._told.is_set(),
                self._told.is_set() and time.monotonic() - self._told_at >= (self._config.grace_period or 0),
                _pickled(failure) if failure else b"")
        # Found each time, because variables may be created in the first step.
        transport = transport_of(self._manager.checkpoint._shared())
        return transport.all_gather_object(transport.call("asking whether a worker is to end"), state)

    def _note(self) -> None:
        if not self._told.is_set():
            self._told_at = time.monotonic()
            self._told.set()

    def _save(self, *args: Any, **kwargs: Any) -> None:
        self._manager.save(*args, **{"check_interval": False, **kwargs})

    @contextmanager
    def watch_preemption_scope(self) -> Iterator[None]:
        """A context manager that calls `save_checkpoint_if_preempted` at the end of its block.

        Source: tf.distribute.experimental.PreemptionCheckpointHandler.watch_preemption_scope.
        """
        yield
        self.save_checkpoint_if_preempted()


class PreemptionWatcher:
    """Records the signal SIGTERM, by which a worker is told to end.

    Source: tf.distribute.experimental.PreemptionWatcher.
    """

    def __init__(self) -> None:
        self._told = threading.Event()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: self._told.set())

    @property
    def preemption_message(self) -> str | None:
        """A message once the signal has come; None before."""
        return f"process {os.getpid()} was told to end" if self._told.is_set() else None

    def block_until_worker_exit(self) -> None:
        """Does nothing: the signal concerns this process alone, as there are no other workers on TPUs to wait for."""


def _pickled(error: Exception) -> bytes:
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        # Exceptions are pickled by their arguments, which those of others may not have been made for.
        return pickle.dumps(errors.InvalidContextError(f"another worker raised {type(error).__name__}: {error}"))
    return pickled


def _exit() -> None:
    sys.exit(42)
