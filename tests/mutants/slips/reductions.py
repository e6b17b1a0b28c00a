"""Slips in reduce and gather, in CrossDeviceOps, and in distributed values."""

from __future__ import annotations

from mutants.slips import Slip

_BASE = "refdist/strategies/base.py"
_COLLECTIVES = "refdist/array/collectives.py"
_EXTENDED = "refdist/strategies/extended.py"
_HOOKS = "refdist/strategies/cross_device_ops.py"
_INTEGERS = "refdist/core/integers.py"
_OPTIONS = "refdist/strategies/communication.py"
_PLANS = "refdist/strategies/plans.py"
_REDUCTION = "refdist/strategies/reduction.py"
_RULES = "refdist/core/rules/values.py"
_VALUES = "refdist/variables/values.py"

# In reduce_along: the sum of each replica along the axes, with the number of elements.
_SUMS_OF_REPLICAS = "        sums = [collectives.reduce_axes(part, axes, attempted) for part in parts]\n"
_LEAF = "        reduction = self._extended.reduction\n"

_ACROSS = (
    Slip("without an axis all elements are added up", "reduce.across-replicas-only", _BASE,
         'return reduction.reduce_value(op, value, reduction.here(), "Strategy.reduce")',
         'return reduction.reduce_value(op, value, reduction.here(), "Strategy.reduce").sum()'),
    Slip("the SUM of a plain array counts it once for each replica", "reduce.sum-of-an-array", _RULES,
         "        not distributed, several                RD16 ",
         "        not distributed, several                each "),
    Slip("the SUM of zero is zero before anything is looked at", "reduce.sum-of-zero", _BASE,
         _LEAF, "        if isinstance(value, int) and value == 0:\n            return 0\n" + _LEAF),
    Slip("the SUM of a mirrored value counts every copy", "reduce.mirrored-values", _RULES,
         "        Mirrored, several                       RD16 ",
         "        Mirrored, several                       each "),
    Slip("the SUM of a mirrored variable is its value", "reduce.mirrored-variables", _RULES,
         "        mirrored variable, several              RD16    itself ",
         "        mirrored variable, several              itself  itself "),
    Slip("an ON_READ variable is read before it is reduced", "reduce.on-read-variables", _REDUCTION,
         "        if isinstance(value, DistributedValues):\n            return [_read(item)",
         "        if isinstance(value, DistributedValues) and not isinstance(value, DistributedVariable):\n"
         "            return [_read(item)"),
    Slip("an array of a worker with one replica is refused as shared", "reduce.arrays-of-workers", _RULES,
         "        not distributed, one per worker         each ",
         "        not distributed, one per worker         RD16 "),
    Slip("the MEAN of a plain number is the number", "reduce.mean-of-a-plain-number", _REDUCTION,
         "        return target.wrapped(target.copies(backend, total))\n",
         "        return target.wrapped(target.copies(backend, part if self._transport.size == 1 else total))\n"),
    Slip("workers do not compare their mirrored values", "reduce.mirrored-values-of-workers", _REDUCTION,
         "            if action == rules.AGREEMENT:\n", "            if action is None:\n"),
    Slip("the mean of halves is float32", "reduce.mean-keeps-the-dtype-of-floats", _RULES,
         '    "int2": "float32",', '    "float16": "float32", "int2": "float32",'),
    Slip("a nest becomes a list of its leaves", "reduce.nests", _BASE,
         "        return nest.map_structure(lambda leaf: self._reduce_leaf(op, leaf, axes), value)\n",
         "        return [self._reduce_leaf(op, leaf, axes) for leaf in nest.flatten(value)]\n"),
    Slip("replicas that returned None are left out", "reduce.none-is-not-a-value", _VALUES,
         "    without = [i for i, value in enumerate(values) if value is None]\n",
         "    values = [value for value in values if value is not None] or [0]\n    without: list[int] = []\n"),
    Slip("parts of different dtypes are promoted", "reduce.dtypes-must-agree", _HOOKS,
         "    collectives.check_same_signature(parts, attempted)\n", ""),
    Slip("a value has as many parts as it has", "reduce.values-of-another-number-of-replicas", _REDUCTION,
         "            check_count(value, self._count, attempted)\n", ""),
)

_ALONG = (
    Slip("MEAN along an axis is the mean of the means of the replicas", "reduce.partial-batches", _REDUCTION,
         _SUMS_OF_REPLICAS, _SUMS_OF_REPLICAS + """\
        if op is ReduceOp.MEAN:
            sums = [(collectives.divide(total, count), 1) for total, count in sums]
"""),
    Slip("all replicas are taken to have as many rows as the first", "reduce.a-replica-without-rows", _REDUCTION,
         "sum(count for _, count in sums))", "sums[0][1] * len(sums))"),
    Slip("MEAN divides by the rows of this worker alone", "reduce.along-the-batch", _REDUCTION,
         "        return collectives.divide(total, sum(rows))\n",
         "        return collectives.divide(total, sum(count for _, count in sums))\n"),
    Slip("the MEAN of no rows is zero", "reduce.no-rows-at-all", _REDUCTION,
         "        return collectives.divide(total, sum(rows))\n",
         "        return collectives.divide(total, sum(rows) or 1)\n"),
    Slip("the MEAN of ints along an axis is rounded down", "reduce.mean-of-integers", _REDUCTION,
         "        return collectives.divide(total, sum(rows))\n",
         '        return total // sum(rows) if total.dtype.kind in "iu" else collectives.divide(total, sum(rows))\n'),
    Slip("reduce has no negative axes", "reduce.negative-axes", _COLLECTIVES,
         "        if not -rank <= axis < rank:\n", "        if not 0 <= axis < rank:\n"),
    Slip("of several axes the first is reduced", "reduce.several-axes", _COLLECTIVES,
         'attempted) for item in axis)', 'attempted) for item in axis[:1])'),
    Slip("an axis that is named twice counts once", "reduce.an-axis-once", _COLLECTIVES,
         "    if len(positive) != len(axes):\n", "    if not axes and positive:\n"),
    Slip("a dimension that is reduced remains with length 1", "reduce.other-axes", _COLLECTIVES,
         "axis=tuple(positive), dtype=dtype)", "axis=tuple(positive), dtype=dtype, keepdims=True)"),
    Slip("the sum of ints of 32 bits along an axis has 64 bits", "reduce.along-the-batch", _COLLECTIVES,
         "axis=tuple(positive), dtype=dtype)", "axis=tuple(positive))"),
    Slip("a scalar is one row", "reduce.scalars-have-no-axis", _COLLECTIVES,
         "    rank = part.ndim\n    for axis in axes:\n",
         "    rank = part.ndim\n    if not rank:\n        return part, 1\n    for axis in axes:\n"),
    Slip("along an axis a plain array counts once", "reduce.arrays-along-an-axis", _REDUCTION,
         "        return [_read(value)] * self._count\n", "        return [_read(value)]\n"),
    Slip("of IndexedSlices the rows are counted that are there", "reduce.slices-along-an-axis", _REDUCTION,
         "        parts = [collectives.dense(backend, item, attempted) if", "        parts = [item.values if"),
    Slip("an axis may be a list, but not an array", "reduce.axis-as-an-array", _COLLECTIVES,
         '    return (integer(axis, "axis", attempted),)\n',
         '    assert isinstance(axis, int)\n    return (integer(axis, "axis", attempted),)\n'),
)

_GATHER = (
    Slip("a plain array is gathered once for each replica", "gather.arrays", _REDUCTION,
         "        return value\n\n\ndef _leaves",
         "        return self.gather(parts, axis, call)\n\n\ndef _leaves"),
    Slip("workers that have one replica must have equal arrays", "gather.arrays-of-workers", _RULES,
         "        not distributed, one per worker         each    each          each             each\n",
         "        not distributed, one per worker         each    each          each             agreed\n"),
    Slip("each worker keeps its own plain array", "gather.arrays-that-differ-between-workers", _REDUCTION,
         "        self._transport.check_same_bits(call, parts[0], _brief)\n        return value\n",
         "        return value\n"),
    Slip("a mirrored variable is gathered once", "gather.variables", _RULES,
         "        mirrored variable, several              RD16    itself        each             each\n",
         "        mirrored variable, several              RD16    itself        each             agreed\n"),
    Slip("gather promotes different dtypes", "gather.dtypes-must-agree", _REDUCTION,
         "        collectives.check_same_signature(parts, attempted, axis, self.lengths_may_differ)\n", ""),
    Slip("an axis beyond the last counts from the first again", "gather.axis-must-exist", _COLLECTIVES,
         "    rank = part.ndim\n    if not -rank <= axis < rank:\n", "    rank = part.ndim\n    if not rank:\n"),
    Slip("no replica may be without rows", "gather.a-replica-without-rows", _COLLECTIVES,
         "    rank = part.ndim\n    if not -rank <= axis < rank:\n",
         "    rank = part.ndim\n    if not part.size:\n        raise ValueError\n    if not -rank <= axis < rank:\n"),
    Slip("the result of gather has a dimension for the replicas", "gather.rows", "refdist/array/backend.py",
         ".concat(_together(arrays), axis=axis))", ".stack(_together(arrays), axis=axis))"),
)

_OPS = (
    Slip("MEAN does not divide what the accumulation function returned", "cross_device_ops.accumulation-function",
         _PLANS, "        return total if op is ReduceOp.SUM else collectives.divide(total, len(contributions))\n",
         "        return total\n"),
    Slip("the accumulation function is called with two values at a time", "cross_device_ops.accumulation-function",
         _PLANS, "        total = kept(constant(self._accumulate(list(backend.put_all(arrays, center)))))\n", """\
        running, *others = backend.put_all(arrays, center)
        for other in others:
            running = self._accumulate([running, other])
        total = kept(constant(running))
"""),
    Slip("NcclAllReduce takes any devices", "cross_device_ops.nccl-needs-gpus", _PLANS,
         '            if devices.device_type(device) != "GPU":\n', "            if not device:\n"),
    Slip("a number of packs begins at one", "cross_device_ops.packs", _PLANS,
         "packs is None or packs < 0:", "packs is None or packs < 1:"),
    Slip("all results of batch_reduce go where the first one goes", "cross_device_ops.batch-reduce", _PLANS,
         "        return [self.reduce_implementation(reduce_op, value, destinations, options)\n",
         "        return [self.reduce_implementation(reduce_op, value, value_destination_pairs[0][1], options)\n"),
    Slip("pairs of a batch may be lists", "cross_device_ops.batch-reduce-refuses", _HOOKS,
         "        if not isinstance(pair, tuple) or", "        if not isinstance(pair, (tuple, list)) or"),
    Slip("merged options prefer the first ones", "cross_device_ops.merged-options", _OPTIONS,
         "            options.bytes_per_pack or self.bytes_per_pack,\n",
         "            self.bytes_per_pack or options.bytes_per_pack,\n"),
    Slip("options are for rings if nothing else is said", "strategies.communication-options", _OPTIONS,
         "implementation: CommunicationImplementation = CommunicationImplementation.AUTO)",
         "implementation: CommunicationImplementation = CommunicationImplementation.RING)"),
    Slip("a time limit may be below zero", "strategies.timeouts-are-not-below-zero", _INTEGERS,
         "np.floating)) or not value >= 0):", "np.floating))):"),
    Slip("an implementation has no name", "cross_device_ops.implementation-by-name", _OPTIONS,
         "        if isinstance(implementation, str) and ", "        if isinstance(implementation, bytes) and "),
)

_DISTRIBUTED = (
    Slip("local results are a list", "values.local-results", _EXTENDED,
         "            return value.values if rules", "            return list(value.values) if rules"),
    Slip("the local results of an array are the array", "values.local-results-of-one-value", _EXTENDED,
         "        return (value,)\n\n    def _values_from_function",
         "        return value\n\n    def _values_from_function"),
    Slip("the local results of a nest are the nest alone", "values.local-results-of-nests", _RULES,
         "    local results of a nest                 a nest each ",
         "    local results of a nest                 bare        "),
    Slip("a OneDeviceStrategy takes values apart",
         "values.local-results-of-another-strategy-on-one-replica", _RULES,
         "components             bare        bare\n    local", "components             components  bare\n    local"),
    Slip("every worker counts its replicas from zero for a value function", "workers.values-of-a-function-are-local",
         _EXTENDED, "ValueContext(layout.first + i, layout.total)", "ValueContext(i, layout.total)"),
    Slip("a value function is told the number of the replicas of its worker",
         "workers.values-of-a-function-are-local", _EXTENDED,
         "ValueContext(layout.first + i, layout.total)", "ValueContext(layout.first + i, layout.count)"),
    Slip("the value function is called once for all", "values.from-a-function-once", _EXTENDED,
         "        values = [value_fn(ValueContext(layout.first + i, layout.total)) for i in range(layout.count)]\n",
         "        values = [value_fn(ValueContext(layout.first, layout.total))] * layout.count\n"),
    Slip("equal values from a function become one", "values.from-a-function-as-it-is", _RULES,
         "        the same object           bare          bare          bare        PerReplica ",
         "        the same object           bare          bare          bare        bare       "),
    Slip("the value of the only replica is not distributed", "values.from-a-function-on-one-replica", _RULES,
         "        with one replica          bare          bare          bare        PerReplica ",
         "        with one replica          bare          bare          bare        bare       "),
    Slip("a context that was made by hand has no replicas", "values.context-of-one-replica", _BASE,
         "num_replicas_in_sync: int = 1)", "num_replicas_in_sync: int = 0)"),
    Slip("outside the replicas a distributed value is its first part", "values.no-arithmetic", _VALUES,
         "    def method(self: PerReplica, *args: object) -> Any:\n", """\
    def method(self: PerReplica, *args: object) -> Any:
        if operation == "x + y":
            return self._values[0] + args[0]
"""),
)

SLIPS = (*_ACROSS, *_ALONG, *_GATHER, *_OPS, *_DISTRIBUTED)
