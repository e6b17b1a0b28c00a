"""`CheckpointManager`: keeps the last few checkpoints of a folder, across restarts of the program."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from refdist import disk, errors
from refdist.checkpoints import files
from refdist.checkpoints.checkpoint import Checkpoint, by_writers
from refdist.core import saved
from refdist.core.integers import as_integer
from refdist.variables.variable import Variable


class CheckpointManager:
    """Keeps the last few checkpoints of a folder.

    It deletes only checkpoints that it saved itself, or that were in the index of the folder when it was created, and
    writes, reads and deletes only files in the folder; it does not follow links in it.

    Args:
        checkpoint: a Checkpoint.
        directory: the folder, which is created if necessary.
        max_to_keep: how many to keep; None for all.
        keep_checkpoint_every_n_hours: a checkpoint saved this long after the last preserved one is preserved too,
            which means that it is never deleted.
        checkpoint_name: the beginning of the file names.
        step_counter: a variable with the number of the step, for `checkpoint_interval`.
        checkpoint_interval: `save(check_interval=True)` saves only after so many steps.
        init_fn: called by `restore_or_initialize` if there is nothing to restore.
        last_checkpoint_step: the step at which the first interval begins; None for the step that
            `restore_or_initialize` restores, or no interval.

    Raises:
        RD25, RD34: bad arguments.  RD27: the package safetensors is not installed.  RD31: the folder cannot be
            created, or its index is damaged.

    Source: tf.train.CheckpointManager.
    """

    def __init__(self, checkpoint: Checkpoint, directory: str | os.PathLike[str], max_to_keep: int | None,
                 keep_checkpoint_every_n_hours: float | None = None, checkpoint_name: str = "ckpt",
                 step_counter: Variable | None = None, checkpoint_interval: int | None = None,
                 init_fn: Callable[[], object] | None = None, last_checkpoint_step: int | None = None) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise errors.error("RD25", "CheckpointManager", f"got {checkpoint!r}", "Pass a Checkpoint.")
        most = None if max_to_keep is None else as_integer(max_to_keep)
        if max_to_keep is not None and (most is None or most < 1):
            raise errors.error("RD34", "CheckpointManager", f"max_to_keep is {max_to_keep!r}",
                               "Pass an int of 1 or more, or None.")
        if checkpoint_interval is not None and step_counter is None:
            raise errors.error("RD34", "CheckpointManager", "checkpoint_interval was passed without step_counter",
                               "Pass both.")
        self._checkpoint, self._keep = checkpoint, most
        self._directory = files.path_of(directory, "CheckpointManager")
        if not files.is_inside(self._directory, checkpoint_name):
            raise errors.error("RD34", "CheckpointManager", f"checkpoint_name is {checkpoint_name!r}",
                               "Pass the beginning of the name of a file in the folder.")
        self._prefix = os.path.join(self._directory, checkpoint_name)
        self._every = keep_checkpoint_every_n_hours
        self._counter, self._interval = step_counter, checkpoint_interval
        self._init = init_fn
        self._last_step = last_checkpoint_step
        files.library()  # before training, and not at the first save
        files.make_folder(self._directory)
        disk.tidy(self._directory)
        now, index = time.time(), files.index(self._directory)
        self._latest: str | None = index.get("latest")
        # If the clock was set back since, the time in the index lies in the future, and nothing would be preserved.
        self._preserved_at = min(index.get("preserved_at", now), now)
        self._managed = {name: index.get("times", {}).get(name, self._preserved_at)
                         for name in index.get("all", [])}

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that is saved."""
        return self._checkpoint

    @property
    def directory(self) -> str:
        """The folder."""
        return self._directory

    @property
    def checkpoint_interval(self) -> int | None:
        """The number of steps between two saves; None saves whenever `save` is called."""
        return self._interval

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the kept checkpoints, oldest first."""
        return [path for path in map(self._path, self._managed) if files.exists(path)]

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest checkpoint, None if there is none."""
        path = None if self._latest is None else self._path(self._latest)
        return path if path is not None and files.exists(path) else None

    def save(self, checkpoint_number: int | None = None, check_interval: bool = True,
             options: object = None) -> str | None:
        """Saves a checkpoint, and deletes those beyond `max_to_keep`.

        Args:
            checkpoint_number: the number at the end of the name; None for `save_counter`, which counts this save in
                both cases.
            check_interval: whether to do nothing until `checkpoint_interval` steps have passed.
            options: without effect.

        Returns:
            The path; None if it is too early, or this step was saved already.

        Raises:
            RD25: `checkpoint_number` is not an int.  RD31: it cannot be written.

        Source: tf.train.CheckpointManager.save.
        """
        attempted = "CheckpointManager.save"
        number = as_integer(checkpoint_number)
        if checkpoint_number is not None and (number is None or not -2**63 <= number < 2**63):
            raise errors.error("RD34", attempted, f"checkpoint_number is {checkpoint_number!r}",
                               "Pass an int of at most 64 bits.")
        step = self._step()
        if self._interval is not None and step is not None and self._last_step is not None:
            if step == self._last_step or (check_interval and step < self._last_step + self._interval):
                return None
        if not files.is_inside(self._directory, os.path.relpath(self._prefix, self._directory)):
            raise errors.error("RD31", attempted, f"{self._prefix} is outside the folder, as a part of this "
                               "path is a symbolic link", "Remove that link.")
        writes, indexes = self._checkpoint._begin(self._prefix, attempted)
        counter = self._checkpoint.save_counter
        count = self._checkpoint._next_number(attempted)
        counter.assign(np.int64(count))
        path = f"{self._prefix}-{count if number is None else number}"
        saved_step = self._checkpoint._write(path, attempted, writes)
        self._last_step = step
        self._latest = os.path.relpath(path, self._directory)
        self._managed.pop(self._latest, None)
        self._managed[self._latest] = time.time()
        too_old = self._too_old()

        def write() -> None:
            self._write_index()
            saved.tell(path, saved_step)
            for name in too_old:  # later, so that the index never names a missing checkpoint
                files.delete(self._directory, name)

        by_writers(self._checkpoint._shared(), attempted, indexes, write)
        if not indexes:
            saved.tell(path, saved_step)
        return path

    def sync(self) -> None:
        """Returns at once: what was saved is in its file when `save` returns.

        Source: tf.train.CheckpointManager.sync.
        """

    def _step(self) -> int | None:
        return None if self._interval is None or self._counter is None else int(self._counter.numpy())

    def _too_old(self) -> list[str]:
        too_old = []
        while self._keep and len(self._managed) > self._keep:
            name = next(iter(self._managed))
            saved_at = self._managed.pop(name)
            if self._every is not None and saved_at - self._every * 3600 >= self._preserved_at:
                self._preserved_at = saved_at
            else:
                too_old.append(name)
        return too_old

    def _write_index(self) -> None:
        files.write_index(self._directory, {
            "latest": self._latest, "all": list(self._managed), "times": self._managed,
            "preserved_at": self._preserved_at})

    def restore_or_initialize(self) -> str | None:
        """Restores the newest checkpoint and returns its path; if there is none, calls `init_fn` and returns None.

        Source: tf.train.CheckpointManager.restore_or_initialize.
        """
        path = self.latest_checkpoint
        if path is not None:
            self._checkpoint.restore(path)
            if self._interval is not None:
                self._last_step = self._step()
        elif self._init is not None:
            self._init()
        return path
