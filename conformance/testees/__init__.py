"""Testees that come with the suite."""
