"""What refdist asks optree, by which Keras on JAX goes through nested structures."""

from __future__ import annotations

import sys

# Its functions that call those they are given from Python.
_FROM_PYTHON = frozenset({"tree_map_", "tree_map_with_path_", "tree_map_with_accessor_", "tree_reduce",
                          "tree_partition", "<lambda>", "tree_transpose_map", "tree_transpose_map_with_path",
                          "tree_transpose_map_with_accessor"})


def calling() -> str | None:
    """The function of optree that has called what runs from C++, such as "tree_map"; None where none has.

    pybind11, which optree is written with, has a stack of such calls for each thread, and ends the process where one
    ends that is not on top, as when another replica has made one meanwhile.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "optree.ops" and frame.f_code.co_name not in _FROM_PYTHON:
            return frame.f_code.co_name
    return None
