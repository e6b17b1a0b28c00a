"""Files that a run leaves behind: what cannot be written is refused before the run, and what is there is not lost.

A file is written beside its place and put there whole, and several only when all of them are written, so that a disk
that is full costs the new ones and not the old ones.  What is no file of a disk, as `/dev/stdout`, is written to in
place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from errno import EACCES, EISDIR
from pathlib import Path


class NotWritten(ValueError):
    """A file cannot be written; the text has the option that names it."""


@contextmanager
def naming(option: str, path: Path) -> Iterator[None]:
    """Raises NotWritten for an OSError in the `with` block, in which a file is written that an option names."""
    try:
        yield
    except OSError as error:
        exists = isinstance(error, FileExistsError)  # in the place of a folder
        why = f"{error.filename} is not a folder" if exists else error.strerror or str(error)
        raise NotWritten(f"{option}: {path} cannot be written: {why}") from None


def check(option: str, paths: Iterable[Path]) -> None:
    """Makes the folders of files that a run is to write, and sees whether each file can be written.

    Raises:
        NotWritten: one cannot be.
    """
    for path in paths:
        with naming(option, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise OSError(EISDIR, "it is a folder")
            if path.exists() and not os.access(path, os.W_OK):
                raise OSError(EACCES, os.strerror(EACCES))
            if _is_replaced(path):
                tried = _beside(path)
                tried.touch()
                tried.unlink()


def write(option: str, contents: Mapping[Path, str]) -> None:
    """Writes files, all of them or none.

    Args:
        option: that names them.
        contents: the text of each.

    Raises:
        NotWritten: one cannot be written; those that were there before are as they were.
    """
    beside = {path: _beside(path) for path in contents if _is_replaced(path)}
    try:
        for path, text in contents.items():
            with naming(option, path):
                beside.get(path, path).write_text(text, encoding="utf-8")
        for path, written in beside.items():
            with naming(option, path):
                written.replace(path.resolve())
    finally:
        for written in beside.values():
            written.unlink(missing_ok=True)


@contextmanager
def kept(path: Path) -> Iterator[None]:
    """Puts a file back as it was where the `with` block, in which another one takes its place, fails."""
    aside = _beside(path)
    if path.is_file():
        path.resolve().rename(aside)
    try:
        yield
    except BaseException:
        if aside.exists():
            aside.replace(path.resolve())
        raise
    aside.unlink(missing_ok=True)


def _is_replaced(path: Path) -> bool:
    return path.is_file() or not path.exists()


def _beside(path: Path) -> Path:
    """The name of a file of this process, in the folder of another file."""
    return path.resolve().with_name(f".{path.name}.{os.getpid()}")
