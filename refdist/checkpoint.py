"""`Checkpoint` and `CheckpointManager`: variables in files, restored to any strategy and number of replicas.

A file is complete or not there: it is written under another name and then renamed.  On several workers all call,
the first one writes, and everybody waits for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from refdist import checkpoint_files, current, errors, lockstep
from refdist.checkpoint_files import SUFFIX
from refdist.variables import ResourceVariable, Variable

_NOTHING = (None,) * len(lockstep.FIELDS)


class Checkpoint:
    """Variables that are saved and restored together, by the names of the attributes that lead to them.

    Args:
        root: an object whose attributes are tracked; None for this object's own.
        kwargs: attributes to set: variables, other objects with variables, lists, tuples and dicts of them.

    >>> import os, tempfile, refdist
    >>> with refdist.MirroredStrategy(["GPU:0", "GPU:1"]).scope():
    ...     v = refdist.Variable(3.0)
    >>> path = refdist.train.Checkpoint(v=v).write(os.path.join(tempfile.mkdtemp(), "rows"))
    >>> w = refdist.Variable(0.0)
    >>> refdist.train.Checkpoint(v=w).read(path).assert_consumed() is not None, float(w)
    (True, 3.0)

    Source: tf.train.Checkpoint.
    """

    _pending: dict[str, Any]
    _root: Any

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        object.__setattr__(self, "_pending", {})
        object.__setattr__(self, "_root", root)
        for name, value in kwargs.items():
            if root is not None and getattr(root, name, value) is not value:
                raise errors.error("RD25", "Checkpoint", f"the root has another attribute {name!r} already",
                                   "Give it another name.", kind=errors.InvalidValueError)
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if self._pending and not name.startswith("_"):
            # What was read before this attribute existed.
            found = {key: variable for key, variable in _walk({name: value}, "", set()) if key in self._pending}
            _assign(found, {key: self._pending.pop(key) for key in found})

    def _tracked(self) -> dict[str, Variable]:
        own = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        roots = [own] if self._root is None else [self._root, own]
        found: dict[str, Variable] = {}
        for root in roots:
            found.update(_walk(root, "", set()))
        return found

    def write(self, file_prefix: str | os.PathLike[str]) -> str:
        """Writes the variables into a file and returns `file_prefix`.

        Of a mirrored variable one copy is written, of one that is synchronized on read what reading it gives.

        Raises:
            RD09: in a replica.  RD13: a variable that cannot be read outside replicas.
            RD27: the package safetensors is not installed.  RD31: a variable that is no number, or no such folder.

        Source: tf.train.Checkpoint.write.
        """
        attempted = "Checkpoint.write"
        _outside_replicas(attempted)
        variables = self._tracked()
        arrays: dict[str, Any] = {}
        aliases: dict[str, str] = {}
        names: dict[int, str] = {}
        for key, variable in variables.items():
            if id(variable) in names:
                aliases[key] = names[id(variable)]
                continue
            names[id(variable)] = key
            array = np.asarray(variable.numpy())
            if array.dtype.kind not in "biufc":
                raise errors.error("RD31", attempted, f"{key} has dtype {array.dtype}", "Keep text elsewhere.",
                                   kind=errors.InvalidTypeError)
            arrays[key] = array
        path = os.fspath(file_prefix)
        content = checkpoint_files.packed(arrays, aliases)
        _by_first_worker(variables.values(), attempted, lambda: checkpoint_files.write(path + SUFFIX, content))
        return path

    def read(self, save_path: str | os.PathLike[str]) -> LoadStatus:
        """Gives the variables the values of a file; nothing changes unless all of them fit.

        Values of attributes that are set later are given to them then.

        Raises:
            RD09: in a replica.  RD27: the package safetensors is not installed.
            RD31: the file cannot be read, or a shape or dtype differs.

        Source: tf.train.Checkpoint.read.
        """
        _outside_replicas("Checkpoint.read")
        path = os.fspath(save_path)
        values = checkpoint_files.read(path.removesuffix(SUFFIX) + SUFFIX)
        variables = self._tracked()
        _assign({key: variable for key, variable in variables.items() if key in values}, values)
        object.__setattr__(self, "_pending", {key: array for key, array in values.items() if key not in variables})
        return LoadStatus(path, self, set(variables) - set(values))

    def save(self, file_prefix: str | os.PathLike[str], options: Any = None) -> str:
        """Writes `file_prefix` with the next number behind it, and notes it as the latest of its folder.

        Source: tf.train.Checkpoint.save.
        """
        counter = self._counter()
        counter.assign_add(np.int64(1))
        path = self.write(f"{os.fspath(file_prefix)}-{int(counter.numpy())}")
        folder, name = os.path.split(path)
        kept = [one for one in checkpoint_files.index(folder).get("all", []) if one != name]
        _by_first_worker(self._tracked().values(), "Checkpoint.save",
                         lambda: checkpoint_files.write_index(folder, {"latest": name, "all": [*kept, name]}))
        return path

    def restore(self, save_path: str | os.PathLike[str] | None, options: Any = None) -> LoadStatus:
        """As `read`, with the number of saves; None does nothing, for `restore(latest_checkpoint(folder))`.

        Source: tf.train.Checkpoint.restore.
        """
        self._counter()
        return LoadStatus("", self, set()) if save_path is None else self.read(save_path)

    def _counter(self) -> Any:
        if "save_counter" not in vars(self):
            # Made like a variable of the strategy that the others have, so that all its workers make it.
            strategies = [variable._strategy for variable in self._tracked().values() if variable._strategy]
            if strategies:
                with strategies[0].scope():
                    self.save_counter = Variable(np.int64(0), trainable=False)
            else:
                self.save_counter = Variable(np.int64(0), trainable=False)
        return self.save_counter


class LoadStatus:
    """What became of a file that was read.

    Source: tf.train.Checkpoint.read, "Returns".
    """

    def __init__(self, path: str, checkpoint: Checkpoint, unmatched: set[str]) -> None:
        self._path = path
        self._checkpoint = checkpoint
        self._unmatched = unmatched - {"save_counter"}

    def assert_existing_objects_matched(self) -> LoadStatus:
        """Raises unless the file has a value for every variable.

        Raises:
            RD31: it has not.
        """
        if self._unmatched:
            raise errors.error("RD31", "assert_existing_objects_matched", f"{self._path} has no value for "
                               f"{', '.join(sorted(self._unmatched))}", "Use the same names of attributes.")
        return self

    def assert_consumed(self) -> LoadStatus:
        """Raises unless every value of the file has a variable too.

        Raises:
            RD31: one has not.
        """
        left = sorted(set(self._checkpoint._pending) - {"save_counter"})
        if left:
            raise errors.error("RD31", "assert_consumed", f"{self._path} has values for {', '.join(left)}, which no "
                               "variable takes", "Use the same names of attributes, or `expect_partial()`.")
        return self.assert_existing_objects_matched()

    def assert_nontrivial_match(self) -> LoadStatus:
        """Raises unless some variable got a value.

        Raises:
            RD31: none did.
        """
        if not set(self._checkpoint._tracked()) - self._unmatched - {"save_counter"}:
            raise errors.error("RD31", "assert_nontrivial_match", f"{self._path} has a value for no variable",
                               "Use the same names of attributes.")
        return self

    def expect_partial(self) -> LoadStatus:
        """Says that what is left over is meant to be."""
        return self


class CheckpointManager:
    """Keeps the last few checkpoints of a folder.

    Args:
        checkpoint: a Checkpoint.
        directory: the folder, which is made.
        max_to_keep: how many stay; None for all.
        keep_checkpoint_every_n_hours: one that is this much younger than the last one kept stays for good.
        checkpoint_name: the beginning of the files' names.
        step_counter: a variable with the number of the step, for `checkpoint_interval`.
        checkpoint_interval: `save(check_interval=True)` saves only after so many steps.
        init_fn: what `restore_or_initialize` calls when there is nothing to restore.

    Raises:
        RD25: bad arguments.

    Source: tf.train.CheckpointManager.
    """

    def __init__(self, checkpoint: Checkpoint, directory: str | os.PathLike[str], max_to_keep: int | None,
                 keep_checkpoint_every_n_hours: float | None = None, checkpoint_name: str = "ckpt",
                 step_counter: Any = None, checkpoint_interval: int | None = None,
                 init_fn: Callable[[], Any] | None = None) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise errors.error("RD25", "CheckpointManager", f"got {checkpoint!r}", "Pass a Checkpoint.")
        if max_to_keep is not None and (not isinstance(max_to_keep, int) or max_to_keep < 1):
            raise errors.error("RD25", "CheckpointManager", f"max_to_keep is {max_to_keep!r}",
                               "Pass an int of 1 or more, or None.", kind=errors.InvalidValueError)
        if checkpoint_interval is not None and step_counter is None:
            raise errors.error("RD25", "CheckpointManager", "checkpoint_interval is given and step_counter is not",
                               "Give both.", kind=errors.InvalidValueError)
        self._checkpoint, self._keep = checkpoint, max_to_keep
        self.directory = os.fspath(directory)
        self._prefix = os.path.join(self.directory, checkpoint_name)
        self._every = keep_checkpoint_every_n_hours
        self._counter, self.checkpoint_interval = step_counter, checkpoint_interval
        self._init = init_fn
        self._last_step: int | None = None
        self._kept_at = time.time()
        Path(self.directory).mkdir(parents=True, exist_ok=True)

    @property
    def checkpoint(self) -> Checkpoint:
        """What is saved."""
        return self._checkpoint

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the checkpoints that are kept, oldest first."""
        return [os.path.join(self.directory, name) for name in checkpoint_files.index(self.directory).get("all", [])
                if os.path.exists(os.path.join(self.directory, name) + SUFFIX)]

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest checkpoint, None when there is none."""
        return latest_checkpoint(self.directory)

    def save(self, checkpoint_number: int | None = None, check_interval: bool = True,
             options: Any = None) -> str | None:
        """Saves, and deletes what is too old.

        Args:
            checkpoint_number: behind the name; None for the next one.
            check_interval: whether to wait until `checkpoint_interval` steps have passed.

        Returns:
            The path, or None when it is too early.

        Source: tf.train.CheckpointManager.save.
        """
        if check_interval and self.checkpoint_interval is not None:
            step = int(self._counter.numpy())
            if self._last_step is not None and step < self._last_step + self.checkpoint_interval:
                return None
            self._last_step = step
        if checkpoint_number is not None:
            counter = self._checkpoint._counter()
            counter.assign(np.int64(checkpoint_number - 1))
        path = self._checkpoint.save(self._prefix)
        _by_first_worker(self._checkpoint._tracked().values(), "CheckpointManager.save", self._delete_old)
        return path

    def _delete_old(self) -> None:
        found = checkpoint_files.index(self.directory)
        names = found.get("all", [])
        too_old = names[:-self._keep] if self._keep else []
        # First it is no longer promised, then it goes.
        if too_old:
            checkpoint_files.write_index(self.directory, {**found, "all": names[len(too_old):]})
        for name in too_old:
            if self._every is not None and time.time() - self._kept_at >= self._every * 3600:
                self._kept_at = time.time()
                continue
            Path(self.directory, name + SUFFIX).unlink(missing_ok=True)

    def restore_or_initialize(self) -> str | None:
        """Restores the newest checkpoint and returns its path; calls `init_fn` when there is none.

        Source: tf.train.CheckpointManager.restore_or_initialize.
        """
        path = self.latest_checkpoint
        self._checkpoint.restore(path)
        if path is None and self._init is not None:
            self._init()
        return path


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None) -> str | None:
    """The path of the newest checkpoint of a folder, None when there is none.

    Source: tf.train.latest_checkpoint.
    """
    folder = os.fspath(checkpoint_dir)
    name = checkpoint_files.index(folder).get("latest")
    if name is None or not os.path.exists(os.path.join(folder, name) + SUFFIX):
        return None
    return os.path.join(folder, name)


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """(name, shape) of everything in a checkpoint.

    Source: tf.train.list_variables.
    """
    path = os.fspath(ckpt_dir_or_file)
    path = latest_checkpoint(path) or path
    arrays = checkpoint_files.read(path.removesuffix(SUFFIX) + SUFFIX)
    return [(name, list(array.shape)) for name, array in sorted(arrays.items())]


# --- The variables that an object leads to -------------------------------------------------------------------

def _walk(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Variable]]:
    if isinstance(value, Variable):
        if not isinstance(value, ResourceVariable) or value._owner is None:
            yield path, value
        return
    if isinstance(value, (str, bytes, np.ndarray, type)) or callable(value) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        items = ((name, item) for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_"))
    for name, item in items:
        yield from _walk(item, f"{path}/{name}" if path else str(name), seen)


def _assign(variables: dict[str, Variable], values: dict[str, Any]) -> None:
    for key, variable in variables.items():
        array = values[key]
        if array.dtype != variable.dtype or array.shape != variable.numpy().shape:
            raise errors.error("RD31", "Checkpoint.read", f"{key} has shape {array.shape} and dtype {array.dtype} in "
                               f"the file, the variable {variable.numpy().shape} and {variable.dtype}",
                               "Restore into a variable of the same shape and dtype.", kind=errors.InvalidValueError)
    for key, variable in variables.items():
        variable.assign(values[key])


def _outside_replicas(attempted: str) -> None:
    if current.frame().kind in (current.REPLICA, current.UPDATE):
        raise errors.error("RD09", attempted, f"it was called {current.describe()}", "Call it outside `strategy.run`.")


def _by_first_worker(variables: Any, attempted: str, act: Callable[[], None]) -> None:
    # All workers wait for the first one, and have its error if it has one.
    transport = next((variable._strategy.extended.transport for variable in variables if variable._strategy), None)
    if transport is None or transport.size == 1:
        act()
        return
    failed: Exception | None = None
    if transport.rank == 0:
        try:
            act()
        except Exception as error:
            failed = error
    found = transport.exchange(lockstep.Request(attempted, _NOTHING), None if failed is None else str(failed))
    if failed is not None:
        raise failed
    if found[0] is not None:
        raise errors.error("RD31", attempted, f"worker 0 could not write: {found[0]}")
