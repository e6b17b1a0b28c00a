"""The files that refdist writes in a run of a program, and their state if the program is killed.

refdist writes a file in steps (`disk`), and a program can be killed before any of them.  It is killed here by an
exception, which a program that is really killed does not see: what its handlers do with these files is undone, so that
it begins again with the files as they were at that moment.  What was written and not flushed is there by half, as a
power failure, or a kill while it is written, may leave it.

In the end the files are removed, so that each run finds what the first one found.  A program that would write a file
that was there before is stopped before anything has changed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

import numpy as np

from refdist import disk, errors
from refdist.checkpoints import files


class Files:
    """The files that a run has written so far.

    Attributes:
        overwritten: a file that was there before, and that the program would replace or remove; "" for none.
    """

    def __init__(self) -> None:
        self.overwritten = ""
        self._paths: dict[str, None] = {}  # in the order in which they were written
        self._temporary: set[int] = set()  # inodes of files that still have a temporary name
        self._unflushed: set[int] = set()
        self._before: tuple[str, int] = ("", 0)  # the step that is being made, and its file's inode
        self._kept: dict[str, bytes] = {}  # path -> content
        self._made: list[str] = []  # folders

    def note(self, step: str, path: str, descriptor: int | None) -> bool:
        """Notes a step on a file before it is made; False if it would change a file that existed before the run."""
        path = os.path.abspath(path)
        self._end_step()
        if step == disk.READ:
            return True
        if path not in self._paths and os.path.lexists(path):
            self.overwritten = path
            return False
        self._paths[path] = None
        inode = 0 if descriptor is None else os.fstat(descriptor).st_ino
        if step == disk.WRITE:
            self._temporary.add(inode)
        self._before = step, inode
        return True

    def _end_step(self) -> None:
        step, inode = self._before
        if step == disk.WRITE:
            self._unflushed.add(inode)
        elif step == disk.FLUSH:
            self._unflushed.discard(inode)
        self._before = "", 0

    def _there(self) -> list[str]:
        """The paths of files that the run has written and that still exist, temporary files last."""
        named = [path for path in self._paths if os.path.isfile(path)]
        for folder in dict.fromkeys(map(os.path.dirname, self._paths)):
            with suppress(OSError), os.scandir(folder) as entries:
                named += sorted(entry.path for entry in entries
                                if disk.TEMPORARY.fullmatch(entry.name) and entry.inode() in self._temporary)
        return named

    def keep(self) -> None:
        """Keeps a copy of the files as they are now, before the step that was noted last."""
        for path in self._there():
            with open(path, "rb") as file:
                content = file.read()
                half = os.fstat(file.fileno()).st_ino in self._unflushed
            self._kept[path] = content[:len(content) // 2] if half else content

    def put_back(self) -> None:
        """Restores the files from the copy."""
        for path in self._there():
            if path not in self._kept:
                os.unlink(path)
        for path, content in self._kept.items():
            folder = os.path.dirname(path)
            if not os.path.isdir(folder):  # the program has removed it before it ended
                os.makedirs(folder)
                self._made.append(folder)
            with open(path, "wb") as file:
                file.write(content)
                self._temporary |= {os.fstat(file.fileno()).st_ino} if disk.TEMPORARY.fullmatch(
                    os.path.basename(path)) else set()

    def remove(self) -> None:
        """Removes all files and folders that were made."""
        for path in self._there():
            os.unlink(path)
        for folder in self._made:
            with suppress(OSError):  # the program has put other files into it
                os.rmdir(folder)

    def state(self) -> object:
        """The kept files in a form that is equal for states that a program cannot distinguish by reading."""
        return tuple((path, _content(path)) for path in self._kept
                     if not disk.TEMPORARY.fullmatch(os.path.basename(path)))


def _content(path: str) -> object:
    with open(path, "rb") as file:
        content = file.read()
    try:
        if path.endswith(files.SUFFIX):
            values = files.read(path)
            return tuple((name, str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray)
                         else (name, repr(value)) for name, value in sorted(values.items()))
        index = json.loads(content)
        return index["latest"], tuple(index["all"])  # without its times
    except (errors.RefdistError, ValueError, KeyError, TypeError):
        return content
