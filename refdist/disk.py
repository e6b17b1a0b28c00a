"""Files in folders to which other programs, and perhaps strangers, can write.

**Reading.**  A name may lead to a pipe, on which opening waits for ever, or to a device, which never ends.  Only files
are opened, and callers read no more than a file has.

**Writing.**  A process may be killed at any moment, and that moment must not cost the last good file.  So data are
written to a temporary file in the same folder, flushed to the disk (fsync) and then renamed, which POSIX does
atomically; the folder is flushed too, because otherwise a power failure can lose the new name while the data are on the
disk.  A reader sees the old file or the complete new one.  A link in the place of the file is replaced and not
followed, and the temporary file has a name that cannot be guessed and is created, never opened, so that a file that a
link leads to is never written.

**Temporary files.**  A killed process leaves its temporary file behind.  Whether its process lives is told by a lock
(`flock`): the operating system releases it with the process, also in another container, where process numbers mean
something else, and most network file systems know it on other hosts too.  Each write to a folder first removes the
temporary files that it can lock.  Between creating a file and locking it, another process may have removed it; then
the file has no name left, and another one is created.  Where locks do not exist, nothing is removed.

**Watched.**  A process can be killed between any two of these steps.  `watch` is told of each before it is made, so
that all of these kills can be tried.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from refdist.runtime import Field

TEMPORARY = re.compile(r"\.refdist-[0-9a-f]{32}")
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
          stat.S_IFSOCK: "a socket"}

# Steps of a file that has data, or gets them.
WRITE, FLUSH, RENAME, FLUSH_FOLDER = "write", "fsync", "rename", "fsync of the folder"
REMOVE, READ = "removal", "reading"

watch: Field[Callable[[str, str, int | None], None] | None] = Field(
    "who is told of each step in which a file is written or removed, before it is made", lambda: None)


def tell(step: str, path: str, descriptor: int | None = None) -> None:
    """Tells who watches of a step.

    Args:
        step: WRITE, FLUSH, RENAME, FLUSH_FOLDER, REMOVE or READ.
        path: of the file that is to have the data, or has them.
        descriptor: of the file that is written, which is a temporary one until it is renamed; or of the folder.
    """
    if watch.value is not None:
        watch.value(step, path, descriptor)


def opened(path: str, links: bool = True) -> IO[bytes]:
    """Opens a file for reading bytes.

    Args:
        path: the path of the file.
        links: whether `path` may be a symbolic link.

    Raises:
        OSError: it cannot be opened, or is not a file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:  # a NUL, or a character that no name of a file can have
        raise OSError(errno.EINVAL, str(error)) from error
    except OSError as error:
        if error.errno == errno.ELOOP and os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a link") from error
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "it is not a file") from error
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'not a file')}")
    return os.fdopen(descriptor, "rb")


def replace(path: str, data: bytes) -> None:
    """Writes a file atomically, in a folder that exists.

    Args:
        path: of the file, which may be there.
        data: all that it has afterwards.

    Raises:
        OSError: it cannot be written; what was there before is as it was.
    """
    folder, name = os.path.split(path)
    with _folder(folder or ".") as descriptor:
        _remove_left_behind(descriptor)
        temporary, file = _created(descriptor)
        try:
            # The lock is held until the file has its own name.
            with file:
                tell(WRITE, path, file.fileno())
                file.write(data)
                file.flush()
                _flush(FLUSH, path, file.fileno())
                tell(RENAME, path, file.fileno())
                os.replace(temporary, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=descriptor)
            raise
        _flush(FLUSH_FOLDER, path, descriptor)


def _flush(step: str, path: str, descriptor: int) -> None:
    tell(step, path, descriptor)
    if watch.value is None:  # who watches removes the files soon
        os.fsync(descriptor)


def remove(path: str) -> None:
    """Removes a file.

    Raises:
        OSError: it cannot be removed, or is not there.
    """
    tell(REMOVE, path)
    os.unlink(path)


def tidy(folder: str) -> None:
    """Removes the temporary files that processes left behind in a folder when they were killed."""
    with suppress(OSError), _folder(folder) as descriptor:
        _remove_left_behind(descriptor)


@contextmanager
def _folder(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _created(folder: int) -> tuple[str, IO[bytes]]:
    """A new file, locked by this process, and its name."""
    while True:
        name = f".refdist-{os.urandom(16).hex()}"
        file = os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666,
                                 dir_fd=folder), "wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process is about to remove it
            file.close()
            continue
        except OSError:  # a file system without locks, on which no process removes it
            return name, file
        if os.fstat(file.fileno()).st_nlink:
            return name, file
        file.close()


def _remove_left_behind(folder: int) -> None:
    for name in filter(TEMPORARY.fullmatch, os.listdir(folder)):
        with suppress(OSError):
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                continue
            descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
            finally:
                os.close(descriptor)
