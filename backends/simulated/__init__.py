"""Pretend devices and workers: NumPy arrays, one process, every run the same."""

from refdist.backends.simulated.backend import Simulated

__all__ = ["Simulated"]
