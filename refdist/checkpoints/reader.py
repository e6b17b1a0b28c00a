"""Reads checkpoints without the variables that they were saved from."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from refdist import errors
from refdist.array.convert import frozen
from refdist.checkpoints import files
from refdist.checkpoints.files import State, file_of, path_of

# Seconds between two looks at the folder.
_PAUSE = 1.0


class CheckpointReader:
    """The arrays of a checkpoint by name; `load_checkpoint` returns it.

    Args:
        path: what `save` returned.

    Source: tf.train.load_checkpoint, "Returns".
    """

    def __init__(self, path: str) -> None:
        self._path = path
        values = files.read(file_of(path))
        self._arrays = {name: frozen(value) for name, value in sorted(values.items()) if not isinstance(value, State)}
        # Further names of an array come after the one under which it was written.
        written = {id(value): name for name, value in reversed(values.items())}
        self._written = {name: array for name, array in self._arrays.items() if written[id(values[name])] == name}

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shape of every array, by the name under which it was written."""
        return {name: list(array.shape) for name, array in self._written.items()}

    def get_variable_to_dtype_map(self) -> dict[str, np.dtype[Any]]:
        """The dtype of every array, by the name under which it was written."""
        return {name: array.dtype for name, array in self._written.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether there is an array of this name.

        Args:
            tensor_str: the name.
        """
        return tensor_str in self._arrays

    def get_tensor(self, tensor_str: str) -> Any:
        """The array of this name, read-only.

        Args:
            tensor_str: the name; the array has the shape and dtype that the two maps say.

        Raises:
            RD31: the checkpoint has no array of this name.
        """
        if tensor_str not in self._arrays:
            there = ", ".join(map(errors.shown, self._arrays)) or "none at all"
            raise errors.error("RD31", "get_tensor", f"{self._path} has no value for {tensor_str}; it has {there}",
                               "Use one of these names.", kind=errors.NotFoundError)
        return self._arrays[tensor_str]


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None) -> str | None:
    """The path of the newest checkpoint of a folder, None if there is none.

    Args:
        checkpoint_dir: the folder.
        latest_filename: the name of the index file; None for "checkpoint".

    Raises:
        RD31: the index is damaged, or names something that is not a file in the folder.

    Source: tf.train.latest_checkpoint.
    """
    folder = path_of(checkpoint_dir, "latest_checkpoint")
    name = files.index(folder, latest_filename).get("latest")
    if name is None or not files.exists(os.path.join(folder, name)):
        return None
    return os.path.join(folder, name)


def checkpoints_iterator(checkpoint_dir: str | os.PathLike[str], min_interval_secs: float = 0,
                         timeout: float | None = None,
                         timeout_fn: Callable[[], bool] | None = None) -> Iterator[str]:
    """Yields the path of the newest checkpoint of a folder, and waits for later ones, as an evaluator does.

    Args:
        checkpoint_dir: the folder to which another program saves.
        min_interval_secs: the least number of seconds between two paths.
        timeout: seconds to wait for the next one; None waits forever.
        timeout_fn: called after that time; True ends the iteration, False waits again.  None ends it.

    Source: tf.train.checkpoints_iterator.
    """
    previous: str | None = None
    while True:
        until = None if timeout is None else time.monotonic() + timeout
        while (path := latest_checkpoint(checkpoint_dir)) in (None, previous):
            if until is not None and time.monotonic() + _PAUSE > until:
                if timeout_fn is None or timeout_fn():
                    return
                until = time.monotonic() + (timeout or 0.0)
            time.sleep(_PAUSE)
        began, previous = time.monotonic(), path
        assert path is not None
        yield path
        time.sleep(max(0.0, began + min_interval_secs - time.monotonic()))


def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Opens a checkpoint, or the newest one of a folder.

    Args:
        ckpt_dir_or_file: the folder, or what `save` returned.

    >>> import os, tempfile, refdist
    >>> path = refdist.train.Checkpoint(v=refdist.Variable([1.0, 2.0])).save(os.path.join(tempfile.mkdtemp(), "run"))
    >>> reader = refdist.train.load_checkpoint(os.path.dirname(path))
    >>> reader.get_variable_to_shape_map(), reader.get_tensor("v")
    ({'save_counter': [], 'v': [2]}, array([1., 2.], dtype=float32))

    Raises:
        RD27: the package safetensors is not installed.
        RD31: a folder without a checkpoint, or a file that cannot be read.

    Source: tf.train.load_checkpoint.
    """
    path = path_of(ckpt_dir_or_file, "load_checkpoint")
    if os.path.isdir(path) and not os.path.exists(file_of(path)):
        latest = latest_checkpoint(path)
        if latest is None:
            raise errors.error("RD31", "reading a checkpoint", f"{path} is a folder without a checkpoint",
                               "Pass the path that `save` returned, or its folder.", kind=errors.InvalidValueError)
        path = latest
    return CheckpointReader(path)


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """(name, shape) of every array in a checkpoint.

    Args:
        ckpt_dir_or_file: the folder of a checkpoint, or what `save` returned.

    Raises:
        RD27, RD31: as `load_checkpoint`.

    Source: tf.train.list_variables.
    """
    return list(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())
