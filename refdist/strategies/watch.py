"""Warnings about suspicious numbers in contributions, which are always on: each once for a line.

A sum that is finite had finite parts.  So only the sum is looked at, which is one pass over one array where the sum
itself was one over those of all replicas; who contributed what, and whether any row was behind it, is found out
afterwards.  Integers are added a second time in 64 bits, or in floats where they have 64 themselves.

Floats that overflow while they are added, NumPy warns of (`array/float_errors`), and where a program ignores that, with
`np.errstate(over="ignore")`, nothing is said of infinity here; nor of NaN where it ignores what is invalid.  Tensors
of PyTorch and arrays of JAX are looked at where they lie in the memory of the host, as NumPy's.  What lies on a device
that computes beside the program is not: the program would have to wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from refdist import journal
from refdist.array import replica_checks
from refdist.array.convert import kind_of, on_host, to_numpy
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.replica_types import UNKNOWN, type_of_contribution
from refdist.core import call_site, checks, finite, remarks
from refdist.core.agreement import CollectiveCall
from refdist.core.rules.options import ReduceOp

_INFINITE = 0x7c00 << 1  # the bits of float16's infinity, without the sign


def look(leaves: Sequence[Sequence[Any]], results: Sequence[Sequence[Any]], call: CollectiveCall, first: int,
         replicas: int) -> None:
    """Warns of numbers that are infinite or NaN, and of integers that have overflowed.

    Where the check `watch` is on, also of one array that all replicas add.

    Args:
        leaves: for every leaf the contributions of this worker's replicas.
        results: for every leaf its copies.
        call: what led here.
        first: the number of the first replica.
        replicas: how many there are.
    """
    if checks.watch.value and call.signature.op is ReduceOp.SUM:
        for parts in leaves:
            if type_of_contribution(parts[0]) is UNKNOWN:  # otherwise the check of types says more
                replica_checks.check_shared(parts, _attempted(call), replicas)
    for parts, copies in zip(leaves, results, strict=True):
        total = copies[0]
        if type(total) is not np.ndarray:
            total = on_host(total)
            if total is None:
                continue
        kind = total.dtype.kind
        if kind == "f":
            if not (math.isfinite(total.item()) if total.size == 1 else _finite(total)):
                _not_finite(parts, call, first)
        elif kind in "iu" and total.size:
            _overflow(parts, call)
        elif kind == "V" and kind_of(total.dtype) == "f" and not np.isfinite(total).all():
            _not_finite(parts, call, first)


def _finite(array: Any) -> bool:
    flat = array.reshape(-1)
    if flat.dtype == np.float16:  # whose dot products NumPy computes one element at a time, slowly
        return int((flat.view(np.uint16) << 1).max(initial=0)) < _INFINITE
    # Squares may overflow although the items are finite.
    return math.isfinite(np.vdot(flat, flat)) or bool(np.isfinite(flat).all())


def _not_finite(parts: Sequence[Any], call: CollectiveCall, first: int) -> None:
    dense = [to_numpy(part.values if isinstance(part, IndexedSlices) else part) for part in parts]
    having = [i for i, part in enumerate(dense) if not np.isfinite(part).all()]
    if not having:
        return  # either the sum has overflowed, and NumPy warns, or another worker contributes it
    part = dense[having[0]]
    nan = bool(np.isnan(part).any())
    if np.geterr()["invalid" if nan else "over"] == "ignore" or finite.is_asked(
            call_site.that_led_here(), not call.call_site):
        return
    index = [int(i) for i in np.argwhere(np.isnan(part) if nan else ~np.isfinite(part))[0]]
    where = f", the first at {index} of replica {first + having[0]}'s array" if index else ""
    rows = journal.rows.value
    # A batch without rows explains NaN, because the mean of no rows is NaN; other numbers of rows explain nothing.
    no_rows = "; the last batch gave it no rows" if len(rows) == len(parts) and not rows[having[0]] else ""
    who = f"replica{'s' if len(having) > 1 else ''} {', '.join(str(first + i) for i in having)}"
    others = "" if len(having) == len(parts) else "; what the other replicas contribute is finite"
    _remark("RD42", call, f"{who} {'contributes' if len(having) == 1 else 'contribute'} {'NaN' if nan else 'infinity'}"
                          f"{where}{no_rows}{others}")


def _overflow(parts: Sequence[Any], call: CollectiveCall) -> None:
    parts = [part if type(part) is np.ndarray else on_host(part) for part in parts]
    if any(part is None for part in parts):
        return
    dtype = parts[0].dtype
    limits = np.iinfo(dtype)
    if dtype.itemsize < 8:
        exact: Any = parts[0].astype(np.int64)
        for part in parts[1:]:
            exact = exact + part
        low, high = int(exact.min()), int(exact.max())
    else:
        # A sum that has overflowed differs by the whole range of its dtype, which float64 is precise enough to show.
        near = np.sum([part.astype(np.float64) for part in parts], axis=0)
        low, high = int(near.min()), int(near.max())
    slack = 0 if dtype.itemsize < 8 else 2 ** 12
    if low < limits.min - slack or high > limits.max + slack:
        _remark("RD43", call, f"the sum is {high if high > limits.max else low}, and {dtype} ends at "
                              f"{limits.max if high > limits.max else limits.min}")


def _remark(code: str, call: CollectiveCall, found: str) -> None:
    remarks.make(code, call_site.that_led_here(), _attempted(call), found)


def _attempted(call: CollectiveCall) -> str:
    # A single worker makes one call, without a site, for all its reductions outside replicas.
    return call.kind if call.call_site else "a reduction outside replicas"
