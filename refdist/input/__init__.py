"""Distributed input: which replica gets which rows of a dataset."""
