"""The contract of a backend: devices of this process and arrays on them; and how one is found.

Towards backends the words are MPI's and NCCL's.  Which replica means what is not known here: a backend
gets one array per device and gives arrays back.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from refdist import errors

BUILT_IN = {"simulated": "refdist.backends.simulated:Simulated"}
GROUP = "refdist.backends"


class Backend(ABC):
    """Devices of one process, and the collectives between them.

    All arrays passed together have one dtype; sums are taken left to right in the order of the list, so that
    every backend gives the same bits.  Results may be shared by all receivers and are read-only where the
    array type can say so.  Arguments are never changed.
    """

    name: str = ""

    @property
    @abstractmethod
    def xp(self) -> ModuleType:
        """The array module: numpy, cupy."""

    @abstractmethod
    def asarray(self, value: Any, dtype: Any = None) -> Any:
        """`value` as an array of this backend; numbers and lists become int32 and float32.

        Raises:
            RD25: a value that is no array.
        """

    @abstractmethod
    def to_numpy(self, array: Any) -> Any:
        """The array as a numpy.ndarray."""

    @abstractmethod
    def put(self, array: Any, device: str) -> Any:
        """The array on `device` (a canonical name); the same object when it is there already."""

    @abstractmethod
    def device(self, name: str) -> AbstractContextManager[Any]:
        """Makes `name` the current device of this thread for a `with` block."""

    @abstractmethod
    def sum(self, arrays: Sequence[Any]) -> Any:
        """Element-wise sum, left to right, on the first array's device; all of one shape and dtype."""

    @abstractmethod
    def concatenate(self, arrays: Sequence[Any], axis: int) -> Any:
        """The arrays one after another along `axis`, on the first array's device."""

    @abstractmethod
    def broadcast(self, array: Any, devices: Sequence[str]) -> list[Any]:
        """The array on every device; copies may be shared when they are read-only."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until all work issued to the devices is done."""


def names() -> list[str]:
    """Names of the built-in backends and of those that installed packages offer."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def find(name: str) -> type[Backend]:
    """The backend class with this name; a plugin cannot replace a built-in one.

    Raises:
        RD27: no such backend, two packages offer it, or its library cannot be imported.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        found: type[Backend] = getattr(importlib.import_module(module), attribute)
        return found
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        raise errors.error("RD27", f"backend {name!r}", "no backend has this name",
                           f"The backends here are {', '.join(names())}.")
    if len(points) > 1:
        offers = ", ".join(sorted(point.dist.name if point.dist else "?" for point in points))
        raise errors.error("RD27", f"backend {name!r}", f"{len(points)} packages offer it: {offers}",
                           "Uninstall all but one.")
    try:
        loaded: type[Backend] = points[0].load()
    except ImportError as error:
        owner = points[0].dist.name if points[0].dist else "?"
        raise errors.error("RD27", f"backend {name!r} of {owner}", f"it cannot be imported: {error}") from error
    return loaded
