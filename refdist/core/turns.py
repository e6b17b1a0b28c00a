"""Two calls of one line that replicas make in different orders.

A line in a loop is one place, so replicas that go over the same names in different orders, as a loop over a set does,
meet there with calls that belong to different names, and nothing else tells them apart.  Their loops' own variables do:
of each replica that waits they are read from its frames.  A remark is due when they have differed, and every replica
has by then come there with the same names as the others, each as often.  Names are text: what is numbered may be a
replica's own, such as its rows in an order of their own; and so may files be that it reads.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType

from refdist.core import call_site, loops, remarks
from refdist.core.agreement import CollectiveCall, grouped

_Names = tuple[tuple[str, str | bytes], ...]
_TEXT = (str, bytes)


class Turns:
    """The loop variables that each replica of one run has come to each call with."""

    def __init__(self) -> None:
        self._loops: dict[call_site.Site, bool] = {}
        self._counts: dict[call_site.Site, list[Counter[_Names]]] = {}
        self._differing: dict[call_site.Site, list[_Names]] = {}

    def look(self, calls: Sequence[CollectiveCall], frames: Iterable[FrameType | None], first: int) -> None:
        """Warns if replicas have come to this call in different orders, and all orders are complete now.

        Args:
            calls: the call of each replica, which meet.
            frames: the innermost frame of each replica.
            first: the number of the first replica.
        """
        site = calls[0].call_site
        if site not in self._loops:
            self._loops[site] = any(map(loops.variables, site))
        if not self._loops[site]:
            return
        names = [_names(site, frame) for frame in frames]
        counts = self._counts.setdefault(site, [Counter() for _ in names])
        for count, name in zip(counts, names, strict=True):
            count[name] += 1
        if any(name != names[0] for name in names):
            self._differing.setdefault(site, names)
        if site in self._differing and all(count == counts[0] for count in counts) and not any(
                Path(os.fsdecode(text)).exists() for names in self._differing[site] for _, text in names):
            shown = [f"with {', '.join(f'{name} = {value!r}' for name, value in names)}"
                     for names in self._differing[site]]
            remarks.make("RD48", site, str(calls[0]), f"{grouped(shown, first, 'replica')}; and later each with what "
                         "the others had")


def _names(site: call_site.Site, frame: FrameType | None) -> _Names:
    # The values of the loop variables around each place of the site, from this frame outwards.
    names: dict[str, str | bytes] = {}
    places = iter(site)
    place = next(places, None)
    while frame is not None and place is not None:
        code = frame.f_code
        if (code.co_filename, code.co_qualname) == (place.file, place.function):
            variables = loops.variables(place)
            here = frame.f_locals if variables else {}
            for variable in variables:
                if isinstance(here.get(variable), _TEXT):
                    names.setdefault(variable, here[variable])
            place = next(places, None)
        frame = frame.f_back
    return tuple(names.items())
