"""Seeing what a program does: recordings, and what is made of them."""

from refdist.insight import drawings as _drawings  # noqa: F401 - which notebooks ask for
from refdist.insight.comparison import Comparison, Difference, compare
from refdist.insight.debugger import breakpoint
from refdist.insight.events import Event
from refdist.insight.explorer import explore
from refdist.insight.recording import VARIABLE, Recording, load, record, record_to, start
from refdist.insight.report import Finding, Report

__all__ = ["VARIABLE", "Comparison", "Difference", "Event", "Finding", "Recording", "Report", "breakpoint", "compare",
           "explore", "load", "record", "record_to", "start"]
