"""The state of this process: what it keeps is declared where it is used, and can be put back as a whole.

A program sets what holds for all that comes after: the backend, the size of the machine, the journal that is being
recorded.  Each of these is a `Field`, declared by the module whose idea it is and typed with that module's classes, so
nothing here knows the layers above.  `process` knows all fields, and `with process.fresh():` runs its block as if
refdist had just been imported.

What lower layers ask of higher ones is a `Late`: set once, when refdist is imported.

What is neither, and why:

* the stack of contexts (`core/context_stack`), which is a context variable, and the parked replicas
  (`core/lockstep`), which belong to a thread;
* caches, which change how long something takes and not what comes out: places in source files, parsed device names,
  classes of containers, compiled kernels;
* what belongs to the interpreter: `sys.excepthook`, and the environment.  Where a launcher gives no TF_CONFIG refdist
  sets one, because programs count their workers in it.  `fresh` puts the environment back.

Tried before: one class with all fields.  Its annotations named classes of every layer, which is an import from below.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Declared(Protocol):
    """The part of a Field that does not depend on the type of its value."""

    what: str
    per_worker: bool
    kept: bool

    def reset(self) -> None: ...
    def saved(self) -> Callable[[], None]: ...


class Field(Generic[T]):
    """Something that changes while a program runs, and that the process has once.

    Args:
        what: what it is, in words.
        initial: makes the value that it has when refdist has just been imported.
        per_worker: whether each simulated worker has its own.
        kept: whether `fresh` leaves it, because it cannot be had twice.

    Attributes:
        value: the value now.
    """

    __slots__ = ("initial", "kept", "per_worker", "value", "what")

    def __init__(self, what: str, initial: Callable[[], T], per_worker: bool = False, kept: bool = False) -> None:
        self.what = what
        self.initial = initial
        self.per_worker = per_worker
        self.kept = kept
        self.value: T = initial()
        process.fields.append(self)

    def reset(self) -> None:
        """Gives the field the value that it has when refdist has just been imported."""
        self.value = self.initial()

    def saved(self) -> Callable[[], None]:
        """Returns a function that sets the field to the value that it has now."""
        value = self.value

        def put_back() -> None:
            self.value = value

        return put_back


class Late(Generic[T]):
    """Something that a lower layer asks of a higher one, which sets it when refdist is imported.

    Attributes:
        value: what was set.
    """

    __slots__ = ("value",)
    value: T


class Process:
    """All fields.

    Attributes:
        fields: in the order in which they were declared.
    """

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: list[Declared] = []

    @contextmanager
    def fresh(self, **environment: str) -> Iterator[None]:
        """A process that has just imported refdist, for the length of a `with` block outside any scope.

        Args:
            environment: variables that it finds set, beside those there are.
        """
        variables = dict(os.environ)
        os.environ.update(environment)
        fields = [field for field in self.fields if not field.kept]
        put_back = [field.saved() for field in fields]
        try:
            for field in fields:
                field.reset()
            yield
        finally:
            for restore in put_back:
                restore()
            os.environ.clear()
            os.environ.update(variables)

    def of_a_worker(self) -> list[Declared]:
        """The fields of which each simulated worker has its own."""
        return [field for field in self.fields if field.per_worker]


process = Process()
