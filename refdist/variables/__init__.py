"""Distributed values and variables: how they are made, read and written."""
