"""Seeing what a program does: recordings, and what is made of them."""

from refdist.insight import drawings as _drawings  # noqa: F401 - which notebooks ask for
from refdist.insight.events import Event
from refdist.insight.recording import VARIABLE, Recording, load, record, record_to, start

__all__ = ["VARIABLE", "Event", "Recording", "load", "record", "record_to", "start"]
