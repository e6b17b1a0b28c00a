"""Which modules are the program's own: scripts, cells and files beside them, not Python's and no installed packages."""

from __future__ import annotations

import functools
import os
import site
import sysconfig
from collections.abc import Mapping
from types import ModuleType
from typing import Any

# Keras's module of functions that computes with `refdist.tf` (`lent`), and reads what a program reads.
LENT = "keras.src.legacy.backend"


def is_own(module: Mapping[str, Any] | None) -> bool:
    """Whether a module with these globals is the program's: a script, a cell, or a file beside them."""
    return not module or _is_program(module.get("__file__"), module.get("__name__"))


def imports(module: Mapping[str, Any], package: str) -> bool:
    """Whether among the globals of a module is a package, or a module of it."""
    return any(isinstance(value, ModuleType) and value.__name__.partition(".")[0] == package
               for value in tuple(module.values()))


@functools.lru_cache(maxsize=1024)
def _is_program(file: str | None, name: object) -> bool:
    if str(name).partition(".")[0] == "refdist":
        return False
    return name == LENT or not file or not os.path.realpath(file).startswith(_libraries())


@functools.cache
def _libraries() -> tuple[str, ...]:
    # The folders of Python's own modules and of installed packages.
    python = sysconfig.get_paths()
    return tuple(os.path.realpath(folder) + os.sep for folder in (
        *(python[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(), site.getusersitepackages()))
