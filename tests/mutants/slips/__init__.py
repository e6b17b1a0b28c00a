"""Slips: mistakes that somebody makes who implements the documents, each with the clause that does not let it pass.

They were written from the pages of tf.distribute, one sentence after another: what if this had been overlooked, or
understood in another way?  A slip replaces public functions of refdist by ones that make the mistake, or the adapter's
reading of an answer; it knows nothing of how refdist is written, so that a change of the code leaves it as it is.

A slip is killed for its mistake alone.  Two things are held against it (`tests/test_mutants.py`): with the same
functions replaced by ones that hand on their arguments unchanged, its clause passes; and an error that stems from the
slip's own lines, a misspelt name for example, counts as no kill.
"""

from __future__ import annotations

import dis
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from mutants.forks import FAULTS

F = TypeVar("F", bound=Callable[..., Any])

_slips: list[Slip] = []
# Whether functions are replaced by ones that hand everything on.
_harmless = False


class Slip(NamedTuple):
    """A mistake.

    Attributes:
        name: what the implementation does.
        clause: the clause that says otherwise.
        make: makes the mistake, in a process that ends afterwards.
    """

    name: str
    clause: str
    make: Callable[[], None]

    @property
    def mutate(self) -> Callable[[], None]:
        """What makes the mistake in a fork."""
        return self.make


def harmless(some: Sequence[Slip]) -> Callable[[], None]:
    """What replaces in a fork the functions that these slips replace, by ones that hand everything on."""
    def make() -> None:
        global _harmless
        _harmless = True
        for each in some:
            each.make()

    return make


def slip(name: str, clause: str) -> Callable[[Callable[[], None]], None]:
    """Decorates what makes a mistake: a function that calls `instead`."""
    def add(make: Callable[[], None]) -> None:
        _slips.append(Slip(name, clause, make))

    return add


def instead(owner: Any, name: str) -> Callable[[F], F]:
    """Replaces a public function, method or property.

    The function that is decorated is called in its place, with the one that it replaces first and the arguments
    behind it (for a method and a property, `self` is the first of these).

    Args:
        owner: a class, or a module; a function of a module is replaced wherever refdist offers it.
        name: a public name, or a special one such as `__add__`.
    """
    if name.startswith("_") and not name.startswith("__"):
        raise ValueError(f"{name} is not public")
    if isinstance(owner, type):
        static = inspect.getattr_static(owner, name)
    else:
        static = getattr(owner, name)

    def replace(function: F) -> F:
        if isinstance(static, property):
            getter = _guarded(function, static.fget)
            setattr(owner, name, property(getter, static.fset, static.fdel, static.__doc__))
        elif isinstance(static, (staticmethod, classmethod)):
            setattr(owner, name, type(static)(_guarded(function, static.__func__)))
        elif isinstance(owner, ModuleType):
            for module in [module for key, module in sys.modules.items() if key.split(".")[0] == "refdist"]:
                if module.__dict__.get(name) is static:
                    setattr(module, name, _guarded(function, static))
        else:
            setattr(owner, name, _guarded(function, static))
        return function

    return replace


def _guarded(function: Callable[..., Any], right: Any) -> Callable[..., Any]:
    # What is called in place of `right`.
    @functools.wraps(right)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _harmless:
            return right(*args, **kwargs)
        try:
            return function(right, *args, **kwargs)
        except (NameError, AttributeError, TypeError, IndexError, KeyError, ZeroDivisionError) as error:
            if _stems_from(error, function):
                FAULTS.append(f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}: {error!r}")
            raise

    return call


def _stems_from(error: BaseException, function: Callable[..., Any]) -> bool:
    # Whether it was raised, other than by `raise`, where the slips are written.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename not in (function.__code__.co_filename, __file__):
        return False
    code = trace.tb_frame.f_code.co_code
    return dis.opname[code[trace.tb_lasti]] not in ("RAISE_VARARGS", "RERAISE")


def load() -> list[Slip]:
    """All slips, of all modules of this folder."""
    if not _slips:
        for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
            importlib.import_module(f"{__name__}.{module.name}")
    return _slips
