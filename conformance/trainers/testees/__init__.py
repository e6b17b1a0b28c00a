"""Trainers, each in its library's own idiom, that do the jobs of the level `trainer`."""
