"""Slips in all_reduce and all_gather, and in how replicas meet."""

from __future__ import annotations

from mutants.slips import Slip

_AGREEMENT = "refdist/core/agreement.py"
_CALLS = "refdist/core/rules/calls.py"
_COLLECTIVES = "refdist/array/collectives.py"
_INTEGERS = "refdist/core/integers.py"
_CONTEXT = "refdist/strategies/replica_context.py"
_CONVERT = "refdist/array/convert.py"
_LOCKSTEP = "refdist/core/lockstep.py"
_NEST = "refdist/nest.py"
_OPTIONS = "refdist/core/rules/options.py"
_PLANS = "refdist/strategies/plans.py"
_REDUCTION = "refdist/strategies/reduction.py"
_SLICES = "refdist/array/indexed_slices.py"
_SUM = "refdist/array/ordered_sum.py"
_VALUES = "refdist/variables/values.py"
_OF_VALUES = "refdist/core/rules/values.py"

# Where ordered_sum adds the first two arrays, and where it adds scalars.
_ADD = "        total = np.asarray(np.add(first, arrays[1], out=out))\n"
_SCALARS = """\
        scalar: Any = first[()]
        for array in arrays[1:]:
            scalar = scalar + array[()]
        total: npt.NDArray[np.generic] = np.asarray(scalar)
"""
_GATHERED = '        leaves = [_contribution(leaf, "all_gather") for leaf in nest.flatten(value)]\n'

_SUMS = (
    Slip("SUM leaves out the last replica", "all_reduce.sum", _SUM,
         "        for array in arrays[2:]:", "        for array in arrays[2:-1]:"),
    Slip("MEAN divides by one replica too many", "all_reduce.mean", _COLLECTIVES,
         "    return current_backend().divide(total, count,", "    return current_backend().divide(total, count + 1,"),
    Slip("the mean of ints is float32 whatever the ints are", "all_reduce.mean-of-ints", _OF_VALUES,
         '"int32": "float64"', '"int32": "float32"'),
    Slip("the mean of ints of 8 bits is float64", "all_reduce.mean-of-small-and-unsigned-ints", _OF_VALUES,
         '"int8": "float32"', '"int8": "float64"'),
    Slip("with one replica the mean of ints stays an int", "all_reduce.mean-of-ints-on-one-replica", _COLLECTIVES,
         "    return current_backend().divide(total, count,",
         "    return total if count == 1 else current_backend().divide(total, count,"),
    Slip("ints become floats before they are added for a mean", "all_reduce.mean-of-large-ints", _PLANS,
         "else _means(total, len(contributions)))",
         "else [collectives.divide(sum(part * 1.0 for part in contributions), len(contributions))] * len(total))"),
    Slip("MEAN divides each value before they are added", "all_reduce.overflow-of-floats", _PLANS,
         "else _means(total, len(contributions)))",
         "else [sum(collectives.divide(part, len(contributions)) for part in contributions)] * len(total))"),
    Slip("the sum is taken from the last replica to the first", "all_reduce.order-of-addition", _SUM,
         "        scalar: Any = first[()]\n        for array in arrays[1:]:",
         "        scalar: Any = arrays[-1][()]\n        for array in arrays[-2::-1]:"),
    Slip("floats are added in float64 and rounded at the end", "all_reduce.order-of-addition", _SUM,
         _SCALARS, """\
        total: Any = np.asarray(sum(float(array) for array in arrays), first.dtype)
"""),
    Slip("the sum starts from zero", "all_reduce.negative-zero", _SUM,
         "        scalar: Any = first[()]\n", "        scalar: Any = first.dtype.type(0) + first[()]\n"),
    Slip("sums of ints of 8 bits are widened", "all_reduce.sums-of-small-ints-wrap", _SUM,
         _ADD, "        total = np.add(first, arrays[1], dtype=np.int32 if first.dtype.itemsize == 1 else None)\n"),
    Slip("a sum of ints that is too large is the largest int", "all_reduce.sums-of-ints-wrap", _SUM,
         _ADD, """\
        total = np.add(first, arrays[1])
        if first.dtype == np.int32:
            total = np.clip(np.add(first, arrays[1], dtype=np.int64), -2**31, 2**31 - 1).astype(np.int32)
"""),
    Slip("ints are added as floats of 64 bits", "all_reduce.large-ints-are-exact", _SUM,
         _ADD, """\
        total = np.add(first, arrays[1], dtype=np.float64 if first.dtype.kind == "i" else None).astype(first.dtype)
"""),
    Slip("NaN is left out of a sum", "all_reduce.nan-and-infinity", _SUM,
         _ADD, "        total = np.nansum([first, arrays[1]], 0, first.dtype)\n"),
    Slip("subnormal numbers are taken for zero", "all_reduce.subnormal-numbers", _SUM,
         _ADD, """\
        total = np.add(first, arrays[1])
        if first.dtype.kind == "f":
            total[np.abs(total) < np.finfo(first.dtype).tiny] = 0
"""),
    Slip("the sum is written into the array of the first replica", "all_reduce.contribution-is-unchanged", _SUM,
         _ADD, """\
        first.setflags(write=True)
        total = np.add(first, arrays[1], out=first)
"""),
    Slip("an array without elements loses its shape", "all_reduce.empty-arrays", _SUM,
         "    first = arrays[0]\n",
         "    first = arrays[0]\n    if not first.size:\n        return np.zeros(0, first.dtype)\n"),
    Slip("an array that all replicas share is reduced to itself", "all_reduce.shared-array", _REDUCTION,
         "        leaves = [[*map(contribution_of, calls)]] if single else _leaves(calls)\n", """\
        if single and len(calls) > 1 and all(call.contribution is calls[0].contribution for call in calls):
            return [calls[0].contribution] * len(calls)
        leaves = [[*map(contribution_of, calls)]] if single else _leaves(calls)
"""),
    Slip("the leaves of nests are added from the last replica on", "all_reduce.every-leaf-as-if-alone", _REDUCTION,
         "    return [[call.contribution[i] for call in calls]",
         "    return [[call.contribution[i] for call in calls[::-1]]"),
)

_ARGUMENTS = (
    Slip("names of ops are in capital letters only", "all_reduce.name-of-the-op-in-lower-case", _OPTIONS,
         "        op = _OPS.get(value) or _OPS.get(value.upper())\n", "        op = _OPS.get(value)\n"),
    Slip("an aggregation is taken for the op of its name", "all_reduce.what-is-not-an-op", _OPTIONS,
         "    if isinstance(value, str):\n",
         '    value = getattr(value, "name", value)\n    if isinstance(value, str):\n'),
    Slip("an unknown name of an op is SUM", "all_reduce.unknown-names-of-ops", _OPTIONS,
         "        if op is not None:\n            return op\n", "        return op or ReduceOp.SUM\n"),
    Slip("the op of ONLY_FIRST_REPLICA is MEAN", "all_reduce.op-of-an-aggregation", _OPTIONS,
         "        if aggregation in (VariableAggregation.SUM, VariableAggregation.MEAN):\n", """\
        if aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            return ReduceOp.MEAN
        if aggregation in (VariableAggregation.SUM, VariableAggregation.MEAN):
"""),
    Slip("all_reduce takes its arguments by position only", "all_reduce.arguments-by-name", _CONTEXT,
         "reduce_op: rules.ReduceOp | str, value: object,\n", "reduce_op: rules.ReduceOp | str, value: object, /,\n"),
    Slip("all_reduce does not look at its options", "all_reduce.what-is-not-options", _CONTEXT,
         '            check_options(options, "all_reduce")\n', ""),
    Slip("booleans are added as numbers", "all_reduce.only-numbers", _OF_VALUES,
         "        summed     RD23 ", "        summed     ok   "),
    Slip("of a nest only the first leaf is looked at", "all_reduce.only-numbers", _CONTEXT,
         '            for leaf in leaves:\n                collectives.reducible(leaf, "all_reduce")',
         '            for leaf in leaves[:1]:\n                collectives.reducible(leaf, "all_reduce")'),
    Slip("complex numbers are not added", "all_reduce.complex-numbers", _OF_VALUES,
         "        summed     RD23    ok    ok    ok    ok  ", "        summed     RD23    ok    ok    ok    RD23"),
    Slip("only ints of 32 and 64 bits are added", "all_reduce.sum-of-any-number", _COLLECTIVES,
         '    if _SUMMED.get(dtype.kind) == "ok":\n',
         '    if dtype.kind in "iu" and dtype.itemsize < 4:\n        raise TypeError\n'
         '    if _SUMMED.get(dtype.kind) == "ok":\n'),
    Slip("a float of Python has 64 bits", "all_reduce.numbers-of-the-language", _CONVERT,
         "            return np.array(value, _FLOAT32)\n", "            return np.array(value)\n"),
    Slip("None is an object of a wrong type", "all_reduce.none-is-not-a-value", _CONTEXT,
         "    if leaf is None:\n", "    if leaf is None:\n        raise TypeError\n    if leaf is None:\n"),
    Slip("outside of run there is nothing to reduce", "all_reduce.outside-of-run", _CALLS,
         "    ReplicaContext.all_reduce                     RD09     ok ",
         "    ReplicaContext.all_reduce                     RD09     RD09 "),
    Slip("all_reduce is allowed in a merge function", "all_reduce.only-in-a-replica", _CALLS,
         "    ReplicaContext.all_reduce                     RD09     ok       RD09 ",
         "    ReplicaContext.all_reduce                     RD09     ok       ok   "),
)

_NESTS = (
    Slip("a nest without leaves is an error", "all_reduce.empty-nests", _CONTEXT,
         "            if not leaves:\n                return value\n",
         "            if not leaves:\n                raise ValueError\n"),
    Slip("a dict comes back with its keys sorted", "all_reduce.keys-keep-their-order", _NEST,
         "    return new if keys == [*mapping] else {key: new[key] for key in mapping}\n", "    return new\n"),
    Slip("the values of dicts are matched in the order of insertion", "all_reduce.keys-are-matched", _NEST,
         "    return [mapping[key] for key in _sorted(mapping)]\n", "    return [*mapping.values()]\n"),
    Slip("a tuple comes back as a list", "all_reduce.nests", _NEST,
         "lambda cls: cls is tuple, lambda x: x, lambda x, new: tuple(new),",
         "lambda cls: cls is tuple, lambda x: x, lambda x, new: new,"),
    Slip("all leaves of a nest must have one dtype", "all_reduce.dtypes-of-a-nest-may-differ", _CONTEXT,
         '            call = CollectiveCall("all_reduce"',
         '            if len({str(leaf.dtype) for leaf in leaves}) > 1:\n                raise TypeError\n'
         '            call = CollectiveCall("all_reduce"'),
    Slip("the rows of IndexedSlices that have one index are added up",
         "all_reduce.indexed-slices-of-different-length", _COLLECTIVES,
         "    return with_leaves(parts[0], (values if op is ReduceOp.SUM", """\
    indices, places = np.unique(indices, return_inverse=True)
    rows, values = values, np.zeros((len(indices), *values.shape[1:]), values.dtype)
    np.add.at(values, places, rows)
    return with_leaves(parts[0], (values if op is ReduceOp.SUM"""),
    Slip("MEAN of IndexedSlices divides by the number of rows", "all_reduce.indexed-slices-mean", _COLLECTIVES,
         "else divide(values, len(parts)), indices))", "else divide(values, len(indices)), indices))"),
    Slip("the sum of IndexedSlices is the whole array", "all_reduce.indexed-slices", _COLLECTIVES,
         "    return with_leaves(parts[0], (values if op is ReduceOp.SUM",
         '    return dense(backend, IndexedSlices(values, indices, parts[0].dense_shape), "") if parts else ('
         "(values if op is ReduceOp.SUM"),
    Slip("IndexedSlices must have a dense shape", "all_reduce.indexed-slices-without-dense-shape", _SLICES,
         "indices: object, dense_shape: object = None) -> None:", "indices: object, dense_shape: object) -> None:"),
    Slip("in a nest IndexedSlices come before arrays", "all_reduce.indexed-slices-beside-arrays", _PLANS,
         "            for contributions in leaves:\n                if type(contributions[0]) is IndexedSlices:\n",
         "            for contributions in sorted(leaves, key=lambda one: type(one[0]) is not IndexedSlices):\n"
         "                if type(contributions[0]) is IndexedSlices:\n"),
)

_MEETINGS = (
    Slip("shapes agree if they have the same rank", "all_reduce.shapes-are-not-broadcast", _CONTEXT,
         "    return Signature(op=op, dtypes=dtype, shapes=shape)\n",
         "    return Signature(op=op, dtypes=dtype, shapes=len(shape))\n"),
    Slip("different dtypes are promoted", "all_reduce.dtypes-must-agree", _CONTEXT,
         "    return Signature(op=op, dtypes=dtype, shapes=shape)\n", "    return Signature(op=op, shapes=shape)\n"),
    Slip("of a nest only the shape of the first leaf is compared", "all_reduce.shapes-of-all-leaves-must-agree",
         _CONTEXT, "*zip(*pairs, strict=True))", "*zip(*pairs[:1], strict=True))"),
    Slip("nests are compared by their leaves alone", "all_reduce.kinds-of-containers-must-agree", _CONTEXT,
         "    structure = nest.structure_of(value) if nest.is_nested(value) else None\n",
         '    structure = "nest" if nest.is_nested(value) else None\n'),
    Slip("the op of the first replica is taken for all", "all_reduce.ops-must-agree", _AGREEMENT,
         "or other.signature != signature:", "or other.signature._replace(op=signature.op) != signature:"),
    Slip("replicas that make different calls have passed a wrong value", "all_reduce.collectives-must-agree", _CALLS,
         "        call         RD02       RD02\n", "        call         RD04       RD04\n"),
    Slip("for a replica that has returned the value of another one counts", "all_reduce.every-replica-must-come",
         _LOCKSTEP, "            if waiting != count:\n", """\
            present = next(call for call in calls if call is not None)
            calls = [call or present for call in calls]
            order = [i for i in order if replicas[i] is not None]
            if None in calls:
"""),
    Slip("an exception is hidden by the error that its replica is missing", "all_reduce.exception-of-a-replica",
         _LOCKSTEP, """\
                if current.error is not None:
                    raise _noted(current, i, what)
        while waiting:
""", """\
                if current.error is not None and not waiting:
                    raise _noted(current, i, what)
        while waiting:
"""),
    Slip("a replica that cannot be answered goes on with None", "all_reduce.waiting-replicas-are-unwound", _LOCKSTEP,
         "        raise ReplicaStopped\n", "        return None\n"),
)

_GATHERS = (
    Slip("arrays are gathered along the first axis always", "all_gather.other-axes", _REDUCTION,
         "[parts], axis % parts[0].ndim)", "[parts], 0)"),
    Slip("arrays are gathered from the last replica on", "all_gather.order-of-replicas", _REDUCTION,
         "[parts], axis % parts[0].ndim)", "[parts[::-1]], axis % parts[0].ndim)"),
    Slip("a gather of nothing has no shape", "all_gather.only-empty-arrays", _REDUCTION,
         "        [gathered] = self._transport.all_gather(", """\
        if not any(part.size for part in parts):
            return parts[0].reshape(-1)
        [gathered] = self._transport.all_gather("""),
    Slip("all_gather has no negative axes", "all_gather.negative-axes", _COLLECTIVES,
         "    rank = part.ndim\n    if not -rank <= axis < rank:",
         "    rank = part.ndim\n    if not 0 <= axis < rank:"),
    Slip("an axis is an int of Python", "all_gather.axis-as-an-array", _INTEGERS,
         "        return operator.index(number)\n", "        return value if isinstance(value, int) else None\n"),
    Slip("a float or a text is an axis, if it can be made an int", "all_gather.axis-must-be-an-int", _INTEGERS,
         "        return operator.index(number)\n", "        return int(number)\n"),
    Slip("all_gather asks for equal shapes, as all_reduce does", "all_gather.lengths-may-differ", _COLLECTIVES,
         "    return (*shape[:axis], None, *shape[axis + 1:])\n", "    return shape\n"),
    Slip("scalars are gathered into a vector", "all_gather.scalars", _CONTEXT,
         _GATHERED,
         _GATHERED + '        leaves = [leaf if getattr(leaf, "ndim", 1) else leaf.reshape(1) for leaf in leaves]\n'),
    Slip("a list of numbers is one array", "all_gather.lists-of-numbers", _CONTEXT,
         _GATHERED, """\
        if isinstance(value, list) and value and not any(map(nest.is_nested, value)) and isinstance(value[0], float):
            value = to_array(value)
""" + _GATHERED),
    Slip("with one replica all_gather returns its value unseen", "all_gather.one-replica-checks-too", _CONTEXT,
         _GATHERED, "        if self.num_replicas_in_sync == 1:\n            return value\n" + _GATHERED),
    Slip("only what can be added can be gathered", "all_gather.every-dtype", _CONTEXT,
         '            collectives.check_gather(leaf, axis, "all_gather")\n',
         '            collectives.check_gather(leaf, axis, "all_gather")\n'
         '            collectives.reducible(leaf, "all_gather")\n'),
    Slip("texts of different length have different dtypes", "all_gather.every-dtype", _COLLECTIVES,
         "    return np.dtype(dtype.char) if axis is not None and ",
         "    return np.dtype(dtype.char) if not dtype and "),
    Slip("of IndexedSlices the values are gathered", "all_gather.slices", _CONTEXT,
         _GATHERED,
         _GATHERED + '        leaves = [getattr(leaf, "values", leaf) for leaf in leaves]\n'),
    Slip("of a captured distributed value every replica has the first part", "all_gather.distributed-values",
         _VALUES, "        return self._values[i]\n", "        return self._values[0]\n"),
)

SLIPS = (*_SUMS, *_ARGUMENTS, *_NESTS, *_MEETINGS, *_GATHERS)
