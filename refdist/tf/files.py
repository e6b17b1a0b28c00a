"""`tf.io.gfile` for the files of this machine: Python's own functions by TensorFlow's names."""

from __future__ import annotations

import glob as globbing
import os
import shutil
from collections.abc import Iterator
from typing import Any, Self

from refdist import disk, errors
from refdist.tf.texts import TextTensor, array_of

exists, isdir, listdir, stat = os.path.exists, os.path.isdir, os.listdir, os.stat
mkdir, remove, join = os.mkdir, os.remove, os.path.join
rmtree = shutil.rmtree


def text_of(path: Any) -> Any:
    """A path as Python has it, from a text or a path."""
    name = path.numpy() if isinstance(path, TextTensor) else path
    return os.fsdecode(name) if isinstance(name, bytes) else name


def makedirs(path: str) -> None:
    """Makes a folder and those above it, unless they are there.

    Args:
        path: of the folder.

    Raises:
        OSError: it cannot be made.

    Source: tf.io.gfile.makedirs.
    """
    os.makedirs(path, exist_ok=True)


def glob(pattern: str | list[str]) -> list[str]:
    """The files whose names match a pattern, or one of several, sorted.

    Args:
        pattern: a pattern such as "logs/*.txt", or a list of them.

    Source: tf.io.gfile.glob.
    """
    patterns = [pattern] if isinstance(pattern, str) else pattern
    return sorted(path for single in patterns for path in globbing.glob(single))


def _free(path: str, overwrite: bool, attempted: str) -> None:
    if not overwrite and os.path.exists(path):
        raise errors.error("RD34", attempted, f"there is a file {path} already", "Pass overwrite=True.",
                           kind=errors.DuplicateKeyError)


def rename(src: str, dst: str, overwrite: bool = False) -> None:
    """Renames a file, or moves it.

    Args:
        src: the path that it has.
        dst: the path that it gets.
        overwrite: whether a file there is replaced.

    Raises:
        RD34: there is a file of the new name.

    Source: tf.io.gfile.rename.
    """
    _free(dst, overwrite, "tf.io.gfile.rename")
    os.replace(src, dst)


def copy(src: str, dst: str, overwrite: bool = False) -> None:
    """Copies a file.

    Args:
        src: the path of the file.
        dst: the path of the copy.
        overwrite: whether a file there is replaced.

    Raises:
        RD34: there is a file of the new name.

    Source: tf.io.gfile.copy.
    """
    _free(dst, overwrite, "tf.io.gfile.copy")
    shutil.copyfile(src, dst)


def walk(top: str, topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """The folders below a folder: each, the folders in it, and its files.

    Args:
        top: the path of the folder.
        topdown: whether a folder comes before those in it.

    Source: tf.io.gfile.walk.
    """
    return os.walk(top, topdown)


class GFile:
    """A file, open for reading or writing: Python's, with `size`.

    Args:
        name: the path.
        mode: as that of Python's `open`; text is UTF-8.

    Raises:
        OSError: it cannot be opened.

    Source: tf.io.gfile.GFile.
    """

    def __init__(self, name: str, mode: str = "r") -> None:
        self._file = open(name, mode, encoding=None if "b" in mode else "utf-8")  # noqa: SIM115 - the caller closes it

    def size(self) -> int:
        """How many bytes the file has."""
        return os.path.getsize(self._file.name)

    def next(self) -> Any:
        """The next line."""
        return next(self._file)

    def __getattr__(self, name: str) -> Any:
        if name == "_file":  # it was not opened
            raise AttributeError(name)
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __next__(self) -> Any:
        return next(self._file)


def read_file(filename: Any, name: str | None = None) -> Any:
    """What a file holds, as a text without dimensions.

    Args:
        filename: the path.
        name: without effect.

    Raises:
        RD30: it cannot be read.

    Source: tf.io.read_file.
    """
    path = text_of(filename)
    try:
        with disk.opened(path) as file:
            return TextTensor(file.read())
    except OSError as error:
        raise errors.error("RD30", "tf.io.read_file", f"{path} cannot be opened: {error.strerror}",
                           kind=errors.NotFoundError) from error


def write_file(filename: Any, contents: Any, name: str | None = None) -> None:
    """Writes a text to a file, and makes the folders above it.

    Args:
        filename: the path.
        contents: a text without dimensions.
        name: without effect.

    Raises:
        RD25: `contents` is no text.  RD30: the file cannot be written.  RD34: `contents` has dimensions.

    Source: tf.io.write_file.
    """
    path, text = text_of(filename), array_of(contents, "tf.io.write_file")
    if text.ndim:
        raise errors.error("RD34", "tf.io.write_file", f"contents has shape {text.shape}", "Pass one text.",
                           kind=errors.InvalidArgumentError)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as file:
            file.write(text[()])
    except OSError as error:
        raise errors.error("RD30", "tf.io.write_file", f"{path} cannot be written: {error.strerror}",
                           kind=errors.NotFoundError) from error


def matching_files(pattern: Any, name: str | None = None) -> Any:
    """The files whose names match a pattern, as a tensor of text, sorted.

    Args:
        pattern: a pattern such as "logs/*.txt".
        name: without effect.

    Source: tf.io.matching_files.
    """
    return TextTensor(sorted(globbing.glob(text_of(pattern))))
