"""What a worker prints, with its name before each line, and in files: `refdist launch --label` and `--log-dir`.

The worker writes into pipes, which its supervisor reads: it passes on what comes, and adds it to the files.  So a
worker that is killed has everything in its files that it has written, and the supervisor adds what it reports itself.
Without these options there are no pipes, and nobody stands between a worker and the launcher.

Standard library only, as supervisors.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from functools import partial

from refdist.backends.mpi import pipes, processes
from refdist.workers.launcher import Task, prefixed

FOLDER_VARIABLE = "REFDIST_LOG_DIR"  # of this start of the job
LABEL_VARIABLE = "REFDIST_LABEL"  # set where lines get labels
_NAMES = {1: "stdout.log", 2: "stderr.log"}
_AT_ONCE = 1 << 16  # bytes that are read, and the longest line that is waited for
_DRAINED = 64  # reads at the end, since a child of the worker may print without end


class Printed:
    """The two streams of a worker.

    Args:
        task: the worker.
        folder: that of the files of all workers; "" for no files.
        label: whether lines get the name of the task.

    Raises:
        OSError: a file cannot be written.
    """

    def __init__(self, task: Task, folder: str, label: bool) -> None:
        self._task = str(task)
        self._label = label
        self._files: dict[int, int] = {}
        if folder:
            own = os.path.join(folder, self._task.replace(" ", "-"))
            os.makedirs(own, exist_ok=True)
            for stream, name in _NAMES.items():
                self._files[stream] = os.open(os.path.join(own, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._pipes = {stream: os.pipe() for stream in _NAMES}
        self._line = dict.fromkeys(_NAMES, b"")  # what has come of a line that has not ended

    def become(self) -> None:
        """From now on what this process prints goes into the pipes; called in the worker."""
        for stream, (_, there) in self._pipes.items():
            os.dup2(there, stream)

    def sources(self) -> dict[int, Callable[[], bytes | None]]:
        """What becomes readable, and what then passes it on, once; called in the supervisor.

        That returns b"" when no more will come.
        """
        for here, there in self._pipes.values():
            os.close(there)
            os.set_blocking(here, False)
        return {here: partial(self._passed, stream) for stream, (here, _) in self._pipes.items()}

    def drain(self) -> None:
        """Passes on all that there is."""
        for stream in _NAMES:
            for _ in range(_DRAINED):
                if not self._passed(stream):
                    break
            self._show(stream, b"", whole=False)

    def keep(self, text: str) -> None:
        """Adds a report to the file of errors."""
        self._write(2, prefixed(self._task, text).encode(errors="replace"))

    def pass_on(self, data: bytes) -> None:
        """Passes on errors that have come another way."""
        self._write(2, data)
        self._show(2, data)

    def _passed(self, stream: int) -> bytes | None:
        # What came; b"" at the end, None where there is nothing now.
        try:
            data = os.read(self._pipes[stream][0], _AT_ONCE)
        except BlockingIOError:
            return None
        self._write(stream, data)
        self._show(stream, data)
        return data

    def _show(self, stream: int, data: bytes, whole: bool = True) -> None:
        if self._label:
            data = self._line[stream] + data
            end = data.rfind(b"\n") + 1 if whole and len(data) < _AT_ONCE else len(data)
            data, self._line[stream] = data[:end], data[end:]
            data = b"".join(b"[%s] %s\n" % (self._task.encode(), line) for line in data.splitlines())
        with contextlib.suppress(OSError):  # the launcher is gone
            pipes.put(stream, data, processes.told_to_end)

    def _write(self, stream: int, data: bytes) -> None:
        if stream in self._files and data:
            try:
                while data:
                    data = data[os.write(self._files[stream], data):]
            except OSError as error:
                del self._files[stream]
                self._show(2, f"{_NAMES[stream]} ends here: {error.strerror}\n".encode())


def printed(task: Task, environment: Mapping[str, str]) -> Printed | None:
    """What passes on what this worker prints; None where nobody has asked for it.

    Raises:
        OSError: a file cannot be written.
    """
    folder, label = environment.get(FOLDER_VARIABLE, ""), LABEL_VARIABLE in environment
    return Printed(task, folder, label) if folder or label else None


def attempt(folder: str) -> str:
    """Makes the folder of the next start of the job: `attempt_0`, `attempt_1` and so on.

    Raises:
        OSError: that is not possible.
    """
    os.makedirs(folder, exist_ok=True)
    started = [int(name[8:]) for name in os.listdir(folder) if name.startswith("attempt_") and name[8:].isdecimal()]
    path = os.path.join(folder, f"attempt_{max(started, default=-1) + 1}")
    os.mkdir(path)
    return path
