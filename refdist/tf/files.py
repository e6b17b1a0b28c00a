"""`tf.io.gfile` for the files of this machine: Python's own functions by TensorFlow's names."""

from __future__ import annotations

import glob as globbing
import os
import shutil
from collections.abc import Iterator
from typing import Any

from refdist import errors

exists, isdir, listdir, stat = os.path.exists, os.path.isdir, os.listdir, os.stat
mkdir, remove, join = os.mkdir, os.remove, os.path.join
rmtree = shutil.rmtree


def makedirs(path: str) -> None:
    """Makes a folder and those above it, unless they are there.

    Source: tf.io.gfile.makedirs.
    """
    os.makedirs(path, exist_ok=True)


def glob(pattern: str | list[str]) -> list[str]:
    """The files whose names match a pattern, or one of several, sorted.

    Source: tf.io.gfile.glob.
    """
    patterns = [pattern] if isinstance(pattern, str) else pattern
    return sorted(path for one in patterns for path in globbing.glob(one))


def _free(path: str, overwrite: bool, attempted: str) -> None:
    if not overwrite and os.path.exists(path):
        raise errors.error("RD34", attempted, f"there is a file {path} already", "Pass overwrite=True.",
                           kind=errors.DuplicateKeyError)


def rename(src: str, dst: str, overwrite: bool = False) -> None:
    """Renames a file, or moves it.

    Raises:
        RD34: there is a file of the new name.

    Source: tf.io.gfile.rename.
    """
    _free(dst, overwrite, "tf.io.gfile.rename")
    os.replace(src, dst)


def copy(src: str, dst: str, overwrite: bool = False) -> None:
    """Copies a file.

    Raises:
        RD34: there is a file of the new name.

    Source: tf.io.gfile.copy.
    """
    _free(dst, overwrite, "tf.io.gfile.copy")
    shutil.copyfile(src, dst)


def walk(top: str, topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """The folders below a folder: each, the folders in it, and its files.

    Source: tf.io.gfile.walk.
    """
    return os.walk(top, topdown)


def GFile(name: str, mode: str = "r") -> Any:  # noqa: N802
    """A file, open for reading or writing.

    Source: tf.io.gfile.GFile.
    """
    return open(name, mode, encoding=None if "b" in mode else "utf-8")
