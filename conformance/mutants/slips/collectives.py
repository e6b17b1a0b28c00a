"""Slips in all_reduce, all_gather, reduce and gather."""

from __future__ import annotations

from refdist.conformance.mutants.slips import Slip

_COLLECTIVES = "refdist/array/collectives.py"
_SUM = "refdist/array/ordered_sum.py"

SLIPS = (
    Slip("SUM leaves out the last replica", "all_reduce.sum", _SUM,
         "        for array in arrays[2:]:", "        for array in arrays[2:-1]:"),
    Slip("MEAN divides by one replica too many", "all_reduce.mean", _COLLECTIVES,
         "    return current_backend().divide(total, count,", "    return current_backend().divide(total, count + 1,"),
    Slip("the mean of ints is float32 whatever the ints are", "all_reduce.mean-of-ints", "refdist/core/rules/values.py",
         '"int32": "float64"', '"int32": "float32"'),
)
