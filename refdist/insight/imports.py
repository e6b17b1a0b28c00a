"""What is done with a module of another library as soon as it is imported, in a process that does nothing else."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def when_imported(name: str, do: Callable[[ModuleType], None]) -> None:
    """Calls `do` with a module: now, where it has been imported, or else when that is done."""
    if name in sys.modules:
        do(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, do))


class _Finder(importlib.abc.MetaPathFinder):
    """Hands on a module when it has been imported."""

    def __init__(self, name: str, do: Callable[[ModuleType], None]) -> None:
        self._name, self._do = name, do

    def find_spec(self, name: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def then_do(module: ModuleType) -> None:
                execute(module)
                self._do(module)

            spec.loader.exec_module = then_do  # type: ignore[method-assign]
        return spec
