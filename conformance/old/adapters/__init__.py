"""Adapters that come with the suite."""
