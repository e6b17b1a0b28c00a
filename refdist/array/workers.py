"""Collectives over the replicas of all workers, sparse ones too.

How arrays travel is the transport's business; what a strategy wraps the results in is not known here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from refdist import errors
from refdist.array import collectives
from refdist.array.convert import to_numpy
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.transport import Transport
from refdist.core.lockstep import CollectiveCall
from refdist.core.rules import ReduceOp


def reduce(transport: Transport, call: CollectiveCall, op: ReduceOp, columns: Sequence[Sequence[Any]], count: int,
           ordered: bool = True) -> list[Any]:
    """One value per column from the parts of all replicas.

    Args:
        transport: between the workers.
        call: what led here.
        op: SUM or MEAN.
        columns: for every result the parts, arrays or IndexedSlices, of this worker's replicas.
        count: how many replicas there are on all workers, for MEAN.
        ordered: see `Transport.all_reduce`.
    """
    if not any(type(column[0]) is IndexedSlices for column in columns):
        totals = transport.all_reduce(call, columns, ordered)
        return totals if op is ReduceOp.SUM else [collectives.divide(total, count) for total in totals]
    results: list[Any] = [None] * len(columns)
    dense = [i for i, column in enumerate(columns) if not isinstance(column[0], IndexedSlices)]
    sparse = [i for i in range(len(columns)) if i not in set(dense)]
    if dense:
        totals = reduce(transport, call, op, [columns[i] for i in dense], count, ordered)
        for i, total in zip(dense, totals, strict=True):
            results[i] = total
    if sparse:
        values = transport.all_gather(call, [[part.values for part in columns[i]] for i in sparse], 0)
        indices = transport.all_gather(call, [[part.indices for part in columns[i]] for i in sparse], 0)
        for i, rows, numbers in zip(sparse, values, indices, strict=True):
            rows = rows if op is ReduceOp.SUM else collectives.divide(rows, count)
            results[i] = IndexedSlices(rows, numbers, columns[i][0].dense_shape)
    return results


def check_same_bits(transport: Transport, call: CollectiveCall, value: Any, text: str) -> None:
    """Raises unless all workers have the same bits; `text` shows this worker's value.

    Raises:
        RD12: they have not.
    """
    if transport.size == 1:
        return
    parts = [value.values, value.indices] if isinstance(value, IndexedSlices) else [value]
    # A checksum finds a drift; nobody forges one here, so a short and fast one will do.
    check = [zlib.crc32(to_numpy(part).tobytes()) for part in parts]
    found = transport.all_gather_object(call, (check, text))
    for i, (other, shown) in enumerate(found):
        if other != found[0][0]:
            raise errors.error("RD12", str(call), f"worker 0 gives {found[0][1]}, worker {i} gives {shown}",
                               "Give the same value on every worker, or reduce it first.")


def first(transport: Transport, call: CollectiveCall, part: Any) -> Any:
    """Worker 0's part, an array or IndexedSlices."""
    if transport.size == 1:
        return part
    if not isinstance(part, IndexedSlices):
        return transport.broadcast(call, part)
    values, indices, shape = transport.all_gather_object(call, (part.values, part.indices, part.dense_shape))[0]
    return IndexedSlices(values, indices, shape)
