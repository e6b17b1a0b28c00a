"""Seeing what a program does: recordings, and what is made of them.

Processes start more often than they are looked at: what is here is imported when a program first asks for it.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from refdist import missing
from refdist.insight.environment import VARIABLE

if TYPE_CHECKING:
    from refdist.insight.comparison import Comparison, Difference, compare
    from refdist.insight.debugger import breakpoint
    from refdist.insight.events import Event
    from refdist.insight.explorer import explore
    from refdist.insight.recording import Recording, load, record, record_to, start
    from refdist.insight.report import Finding, Report
else:
    def __getattr__(name: str) -> object:
        for file, names in _NAMES.items():
            if name in names.split():
                return getattr(import_module(f"{__name__}.{file}"), name)
        return missing.refuse(sys.modules[__name__], name)

__all__ = ["VARIABLE", "Comparison", "Difference", "Event", "Finding", "Recording", "Report", "breakpoint", "compare",
           "explore", "load", "record", "record_to", "start"]
# File -> the public names that it defines.
_NAMES = {
    "comparison": "Comparison Difference compare",
    "debugger": "breakpoint",
    "events": "Event",
    "explorer": "explore",
    "recording": "Recording load record record_to start",
    "report": "Finding Report",
}
