"""Testees to begin with, which `python -m refdist.conformance new` writes; each needs its language alone."""
