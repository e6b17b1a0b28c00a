"""Simulated devices and workers: NumPy arrays in one process, where every run is the same."""

from refdist.backends.simulated.backend import Simulated

__all__ = ["Simulated"]
