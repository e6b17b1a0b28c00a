"""Printed tracebacks show only the lines of the user's program.

A message says what was attempted and where, so frames of refdist between the user's lines, and below the last of them,
only hide those.  They are left out where an uncaught exception is printed, in threads and in cells of a notebook too,
and in reports of pytest; an exception that is caught keeps them all.  They stay with REFDIST_TRACEBACK=full, and where
the exception was raised by refdist itself without a code, because then they are what a report of the fault needs.

IPython asks each frame for a local variable `__tracebackhide__`, which every function of refdist would need, and shows
the last frame in any case.  So what it formats tracebacks with is given one that is cut; a handler of `set_custom_exc`
would take the place of one that the user has set.  Above the traceback a notebook shows the error's tables, as it does
where the error is caught and shown.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from refdist import journal, notebook
from refdist.core.call_site import is_ours
from refdist.errors import InternalError, RefdistError, explain_steps

VARIABLE = "REFDIST_TRACEBACK"
# A global name of modules that compute what the program asks NumPy or PyTorch for, so that errors are the program's.
COMPUTES = "_computes_for_the_program"
_COMMAND = os.path.join(os.path.dirname(os.path.dirname(__file__)), "__main__.py")


class _Raised(Protocol):
    # pytest's ExceptionInfo.
    @property
    def value(self) -> BaseException: ...


def install(label: str = "") -> None:
    """Cuts printed tracebacks from now on; the hook that printed them before still does so.

    Args:
        label: what each line of an error that ends this process begins with, in brackets; "" for nothing.
    """
    before, before_in_threads = sys.excepthook, threading.excepthook
    if label and before is sys.__excepthook__:
        before = _labelled(label)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        journal.tell(error)
        before(kind, error, cut(error).__traceback__)

    def hook_in_threads(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            trace = cut(args.exc_value).__traceback__
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, trace, args.thread))
        before_in_threads(args)

    sys.excepthook, threading.excepthook = hook, hook_in_threads
    printer = getattr(notebook.shell(), "InteractiveTB", None)
    if printer is not None:
        _install_in(printer)
    for name, module in list(sys.modules.items()):
        if is_ours(name):
            vars(module)["__tracebackhide__"] = _hides  # what pytest asks about a frame


def _labelled(label: str) -> Callable[[type[BaseException], BaseException, TracebackType | None], object]:
    process = os.getpid()

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if os.getpid() != process or issubclass(kind, KeyboardInterrupt):  # what a process has forked has no label
            sys.__excepthook__(kind, error, trace)
        else:
            lines = "".join(traceback.format_exception(error)).splitlines()
            sys.stderr.write("".join(f"[{label}] {line}\n" for line in lines))

    return hook


def _install_in(printer: Any) -> None:
    # What formats the tracebacks of a shell of IPython.
    before = printer.structured_traceback
    shown: tuple[int, object] | None = None  # the last error, and the number of its cell: each is formatted twice

    def structured_traceback(etype: object = None, evalue: BaseException | None = None, etb: object = None,
                             *options: object, **named: object) -> Any:
        nonlocal shown
        if evalue is not None and isinstance(etb, TracebackType):
            journal.tell(evalue)
            etb = cut(evalue).__traceback__
            error = id(evalue), getattr(notebook.shell(), "execution_count", None)
            if isinstance(evalue, RefdistError) and error != shown:
                shown = error
                notebook.show(evalue)
        return before(etype, evalue, etb, *options, **named)

    printer.structured_traceback = structured_traceback


def cut(error: BaseException) -> BaseException:
    """Cuts the tracebacks of an exception and its causes to lines of the user's program; returns the exception."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        exception = waiting.pop()
        if exception is None or id(exception) in seen:
            continue
        seen.add(id(exception))
        explain_steps(exception)
        if not _is_kept(exception):
            exception.__traceback__ = _without(_frames(exception.__traceback__))
        waiting += [exception.__cause__, exception.__context__, *getattr(exception, "exceptions", ())]
    return error


def _hides(raised: _Raised) -> bool:
    return not _is_kept(raised.value)


def _is_kept(error: BaseException) -> bool:
    if os.environ.get(VARIABLE) == "full":
        return True
    frames = _frames(error.__traceback__)
    if isinstance(error, RefdistError) and not isinstance(error, InternalError):
        return all(map(_is_frame_of_ours, frames))
    while frames and COMPUTES in frames[-1].tb_frame.f_globals:
        frames.pop()
    return not frames or _is_frame_of_ours(frames[-1])


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _without(frames: list[TracebackType]) -> TracebackType | None:
    rest: TracebackType | None = None
    for frame in reversed(frames):
        if not _is_frame_of_ours(frame):
            rest = TracebackType(rest, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return rest


def _is_frame_of_ours(frame: TracebackType) -> bool:
    module = frame.tb_frame.f_globals.get("__name__", "")
    if module == "__main__":  # the command, or the script that it runs
        return frame.tb_frame.f_code.co_filename == _COMMAND
    return is_ours(module) or module == "runpy"
