"""Classes that are found by name: built-in ones, and those that installed packages offer through entry points.

Backends and transports are found alike.  Looking for names imports nothing of a package's; `importlib.metadata`, which
takes as long to import as a seventh of the rest, waits until a name is asked for that is not built in.  A package
cannot replace a built-in class, and of two packages that offer one name neither is taken: what a program computes must
not depend on which was installed first.  Whatever is wrong with a class is said when it is looked for, with the name of
its package, and not when it is first used.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from refdist import errors

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Plugins(Generic[T]):
    """The classes of one kind.

    Args:
        noun: what one is called in messages; packages offer theirs in the entry point group "refdist." and its plural.
        base: the class that all of them inherit from.
        built_in: "module:class" by name.
        advice: what to do about missing methods.
    """

    def __init__(self, noun: str, base: type[T], built_in: Mapping[str, str], advice: str) -> None:
        self._noun = noun
        self._base = base
        self._built_in = built_in
        self._advice = advice
        self.group = f"refdist.{noun}s"

    def names(self) -> list[str]:
        """Names of the built-in classes and of those that installed packages offer."""
        return sorted({*self._built_in, *(point.name for point in self._offered())})

    def find(self, name: str) -> type[T]:
        """The class with this name.

        Raises:
            RD27: there is none, two packages offer it, it cannot be imported, or lacks methods.
        """
        noun = self._noun
        if name in self._built_in:
            attempted = f"{noun} {name!r}"
            return self._checked(attempted, _load(attempted, self._built_in[name]))
        points = [point for point in self._offered() if point.name == name]
        if not points:
            raise errors.error("RD27", f"{noun} {name!r}", f"no {noun} has this name",
                               f"The {noun}s here are {', '.join(self.names())}.")
        if len(points) > 1:
            offers = ", ".join(sorted(map(_package, points)))
            raise errors.error("RD27", f"{noun} {name!r}", f"{len(points)} packages offer it: {offers}",
                               "Uninstall all but one.")
        attempted = f"{noun} {name!r} of {_package(points[0])}"
        return self._checked(attempted, _load(attempted, points[0].value))

    def _offered(self) -> Iterable[EntryPoint]:
        from importlib.metadata import entry_points

        return entry_points(group=self.group)

    def _checked(self, attempted: str, loaded: object) -> type[T]:
        base = self._base
        if not (isinstance(loaded, type) and issubclass(loaded, base)):
            raise errors.error("RD27", attempted,
                               f"{loaded!r} is not a subclass of {base.__module__}.{base.__qualname__}",
                               f"Name the class itself in the entry point, as docs/writing-a-{self._noun}.md shows.")
        missing = sorted(getattr(loaded, "__abstractmethods__", ()))
        if missing:
            raise errors.error("RD27", attempted, f"{loaded.__name__} lacks the methods {', '.join(missing)}",
                               self._advice)
        return loaded


def _load(attempted: str, place: str) -> object:
    try:
        loaded: object = pkgutil.resolve_name(place)
    except ImportError as error:
        raise errors.error("RD27", attempted, f"it cannot be imported: {error}") from error
    except AttributeError as error:
        raise errors.error("RD27", attempted, f"it cannot be imported: {error}",
                           f"Correct its entry point, {place}, or that module.") from error
    return loaded


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "?"
