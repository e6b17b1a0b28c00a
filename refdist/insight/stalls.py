"""`Watch`: shows what the main thread does while it makes no progress.

Where a program waits for an event, in C, only a signal interrupts it.  A signal handler gets its turn between any two
instructions of Python and in a wait, and not in the middle of a long computation of a library; what it raises ends the
wait, or the loop.  SIGURG is one that programs seldom use, and that does nothing where no handler is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

SECONDS = 1.0


class Watch:
    """Looks once a second, within a `with` block of the main thread; elsewhere, and on Windows, it does nothing.

    Nor does it while the signal has another handler: that of a `Watch` within the block, or the program's own.

    Args:
        position: how far the program is; None while none runs.
        look: called in the main thread, with where it is, when the position is that of a second ago; may raise.
    """

    def __init__(self, position: Callable[[], object], look: Callable[[FrameType], object]) -> None:
        self._position = position
        self._look = look
        self._asked = False  # the signal may come from elsewhere, too
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        # A handler that was there before Python's, of which `getsignal` knows nothing, could not be put back.
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_kill") and (
                signal.getsignal(signal.SIGURG) is not None):
            self._before = signal.signal(signal.SIGURG, self._handle)
            self._thread = threading.Thread(target=self._watch, args=(threading.get_ident(),), daemon=True)
            self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            signal.signal(signal.SIGURG, self._before)

    def _watch(self, main: int) -> None:
        before = None
        while not self._ended.wait(SECONDS):
            now = self._position()
            if now is not None and now == before and signal.getsignal(signal.SIGURG) == self._handle:
                self._asked = True
                signal.pthread_kill(main, signal.SIGURG)
            before = now

    def _handle(self, number: int, frame: FrameType | None) -> None:
        asked, self._asked = self._asked, False
        if asked and frame is not None and self._position() is not None:
            self._look(frame)
