"""Slips: mistakes that somebody makes who implements the documents, each with the clause that does not let it pass.

They were written from the pages of tf.distribute, one sentence after another: what if this had been overlooked, or
understood in another way?  A slip is a change of refdist's source, of which `old` occurs once.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

from mutants.forks import CHECKOUT, with_source


class Slip(NamedTuple):
    """A mistake.

    Attributes:
        name: what the implementation does.
        clause: the clause that says otherwise.
        file: of refdist, from the root of the checkout.
        old, new: what stands there, and what stands there with the mistake.
    """

    name: str
    clause: str
    file: str
    old: str
    new: str

    @property
    def mutate(self) -> Callable[[], None]:
        """What makes a fork import it.

        Raises:
            ValueError: `old` does not occur exactly once.
        """
        source = (CHECKOUT / self.file).read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {source.count(self.old)} times in {self.file}")
        return with_source(self.file, source.replace(self.old, self.new))


def load() -> list[Slip]:
    """All slips, of all modules of this folder."""
    found: list[Slip] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        found += importlib.import_module(f"{__name__}.{module.name}").SLIPS
    return found
