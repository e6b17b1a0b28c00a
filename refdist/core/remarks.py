"""Remarks: warnings with a code about what a program does, each once for a line.

Whoever finds something asks whether a remark is due at the line that led there, and makes it.  None is due where one
of this code was made before, or where the line has the comment `# refdist: ignore[RD38]`.
"""

from __future__ import annotations

import linecache

from refdist import errors
from refdist.core import call_site
from refdist.runtime import Field

_made: Field[set[tuple[str, str]]] = Field("the remarks that were made: code, and file:line", set, per_worker=True)


def is_due(code: str, site: call_site.Site) -> bool:
    """Whether a remark of this code may be made at the first place of `site`."""
    return (code, _line(site)) not in _made.value and not (site and _is_ignored(site[0], code))


def make(code: str, site: call_site.Site, attempted: str, found: str, fix: str = "") -> None:
    """Warns with a row of the catalogue, once for a code and line.

    Args:
        code: a key of `errors.CATALOGUE` whose class is a warning.
        site: of the program, innermost first; see `call_site.that_led_here`.
        attempted, found, fix: as for `errors.error`.
    """
    if is_due(code, site):
        _made.value.add((code, _line(site)))
        remark = errors.error(code, attempted, found, fix)
        assert isinstance(remark, Warning)
        call_site.warn(remark, place=None if site == call_site.that_led_here() else site[0])


def _line(site: call_site.Site) -> str:
    return str(site[0]) if site else ""


def _is_ignored(place: call_site.Place, code: str) -> bool:
    lines = linecache.getlines(place.file)[place.line - 1:place.end_line or place.line]
    return any(f"# refdist: ignore[{code}]" in line for line in lines)
