"""What an implementation in Python must offer to be tested: a namespace with TensorFlow's names, and four methods.

    class Mine(Adapter):
        name, version = "mine", "1.0"
        tf = my_package

        def strategy(self, kind): ...
        def observe(self, value): ...

The examples are run as they stand, with `tf` as the namespace; nothing else of the implementation is touched.  An
implementation that has other names, or is written in another language, is a testee (`session.py`), which gets the same
examples as recorded calls.
"""

from __future__ import annotations

import importlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from refdist.conformance.adapters import CLASSES
from refdist.conformance.examples import Answer, Program, run_example
from refdist.conformance.protocol import Unusable
from refdist.conformance.results import Result

__all__ = ["EXCEPTIONS", "Adapter", "Unusable", "load"]

# What an exception is called; the first row of whose class it is an instance decides.
EXCEPTIONS: tuple[tuple[type[BaseException], str], ...] = (
    (NotImplementedError, "unsupported"), (RecursionError, "crash"), (RuntimeError, "context"), (StopIteration, "end"),
    (TypeError, "type"), (LookupError, "lookup"), (AttributeError, "lookup"), (ValueError, "value"),
    (AssertionError, "value"))


class Adapter(ABC):
    """One implementation in Python.

    Attributes:
        name, version: of the implementation, for reports.
        profile: the name of a set of capabilities (`capabilities.PROFILES`), where it claims only these; cases that
            need others are not its cases.
        lacks: the capabilities (`capabilities.py`) that it does not have; cases that need one are skipped.
        tf: the module, or any object, whose attributes are those of the module `tensorflow`.
    """

    name = ""
    version = ""
    profile = ""
    lacks: frozenset[str] = frozenset()
    tf: Any

    @abstractmethod
    def strategy(self, kind: str) -> Any:
        """A strategy: "Default", "OneDevice", "Mirrored N", "Central N" (N replicas on one worker), "MultiWorker WxR"
        (this worker's, of W workers with R replicas each) or "TPU N" (a replica on each of the N cores of a TPU, whose
        chips have two cores and are in a row or a square)."""

    def use(self, name: str, make: Callable[[list[str]], Any]) -> None:
        """Takes another author's strategy for "Mirrored N": `make(devices)` makes it, with a replica on each device.

        Raises:
            Unusable: this adapter cannot, or `make` does not make a strategy.
        """
        raise Unusable(f"{type(self).__name__} cannot take another author's strategy")

    @abstractmethod
    def observe(self, value: object) -> Result:
        """What a value of the implementation is, in the form of `results.py`."""

    def kind_of(self, error: BaseException) -> str:
        """What an exception is called (`results.KINDS`)."""
        return next((kind for known, kind in EXCEPTIONS if isinstance(error, known)), "crash")

    def run(self, program: Program) -> list[Answer]:
        """Runs a program and answers for each of its workers; for the only one, where the strategy has no workers."""
        return [self.execute(program, {})]

    def execute(self, program: Program, answer: Answer) -> Answer:
        """Runs the program of one worker in this process, and puts what was observed into `answer`."""
        return run_example(self, program, answer)


def load(text: str, strategy: str = "") -> Adapter:
    """Makes the adapter that a text names.

    Args:
        text: `package.module:Class`, or the short name of one that comes with the suite.
        strategy: `package.module:make`, another author's strategy that the adapter is to take.

    Raises:
        Unusable: a text has another form, or what it names cannot be imported, made or used.
    """
    if ":" not in text and text not in CLASSES:
        raise Unusable(f"{text!r} is not package.module:Class, and not one of {', '.join(CLASSES)}")
    with _refused(text):
        loaded = _named(CLASSES.get(text, text))()
    if not isinstance(loaded, Adapter):
        raise Unusable(f"{text} is not a {Adapter.__module__}.{Adapter.__name__}")
    if not hasattr(loaded, "tf"):
        raise Unusable(f"{text} has no attribute `tf`, the namespace with which the examples are run")
    if strategy:
        with _refused(strategy):
            make = _named(strategy)
        loaded.use(strategy, make)
    return loaded


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    if not module or not name:
        raise Unusable(f"{text!r} is not package.module:name")
    return getattr(importlib.import_module(module), name)


@contextmanager
def _refused(text: str) -> Iterator[None]:
    """Makes every exception of the `with` block an Unusable that names the line of the adapter that raised it."""
    try:
        yield
    except Unusable:
        raise
    except Exception as error:
        frames = [f" ({frame.filename}:{frame.lineno})" for frame in traceback.extract_tb(error.__traceback__)
                  if frame.filename not in (__file__, importlib.__file__) and frame.filename[:1] != "<"]
        raise Unusable(f"{text}: {type(error).__name__}: {error}{''.join(frames[-1:])}") from None
