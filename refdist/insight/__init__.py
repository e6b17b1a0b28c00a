"""Seeing what a program does: recordings, and what is made of them."""

from refdist.insight.events import Event
from refdist.insight.recording import Recording, load, record

__all__ = ["Event", "Recording", "load", "record"]
