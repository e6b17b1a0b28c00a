"""Slips in StrategyExtended and in CrossDeviceOps."""

from __future__ import annotations

from refdist.conformance.mutants.slips import Slip

_COMMUNICATION = "refdist/strategies/communication.py"
_CROSS_DEVICE_OPS = "refdist/strategies/cross_device_ops.py"
_EXTENDED = "refdist/strategies/extended.py"
_PLANS = "refdist/strategies/plans.py"
_REDUCTION = "refdist/strategies/reduction.py"
_UPDATE = "refdist/strategies/update.py"
_VALUES = "refdist/core/rules/values.py"

SLIPS = (
    Slip("reduce_to a distributed value returns the array of one device", "extended.reduce-to-the-value-itself",
         _CROSS_DEVICE_OPS,
         "        return Destinations(found, len(found) > 1, given=destinations)",
         "        return Destinations(found[:1], False, given=destinations)"),
    Slip("reduce_to a variable writes it", "extended.reduce-to-a-variable", _EXTENDED,
         '        target = destinations_of(destinations, "reduce_to")\n',
         '        target = destinations_of(destinations, "reduce_to")\n'
         '        if hasattr(destinations, "assign"):\n'
         '            destinations.assign(self.reduction.reduce_value(op, value, target, "reduce_to", options))\n'),
    Slip("reduce_to takes one value and no nest", "extended.reduce-to-of-a-nest", _EXTENDED,
         "        return nest.map_structure(\n"
         '            lambda leaf: self.reduction.reduce_value(op, leaf, target, "reduce_to", options), value)',
         '        return self.reduction.reduce_value(op, value, target, "reduce_to", options)'),
    Slip("the parts of a mirrored value are summed", "extended.reduce-to-of-a-mirrored-value", _VALUES,
         "        Mirrored, several                       RD16",
         "        Mirrored, several                       each"),
    Slip("a value that is not distributed is its own sum", "extended.reduce-to-of-an-array", _VALUES,
         "        not distributed, several                RD16    of workers",
         "        not distributed, several                each    of workers"),
    Slip("a variable that is synchronized on read is reduced as one value", "extended.reduce-to-of-variables", _VALUES,
         "        on read variable, several               each    each ",
         "        on read variable, several               RD16    itself"),
    Slip("a list of devices are destinations", "extended.reduce-to-refuses-destinations", _CROSS_DEVICE_OPS,
         "    if isinstance(destinations, DistributedValues):\n        found",
         "    if isinstance(destinations, (list, tuple)):\n"
         "        return Destinations(tuple(map(devices.canonical, destinations)), True, given=destinations)\n"
         "    if isinstance(destinations, DistributedValues):\n"
         "        found"),
    Slip("all pairs go to the destinations of the first", "extended.batch-reduce-to-different-destinations", _REDUCTION,
         "        targets = [target for _, target in pairs]\n",
         "        pairs = [(value, pairs[0][1]) for value, _ in pairs]\n"
         "        targets = [target for _, target in pairs]\n"),
    Slip("a batch of no pairs is refused", "extended.batch-reduce-to-nothing", _EXTENDED,
         '        check_options(options, "batch_reduce_to")\n',
         '        check_options(options, "batch_reduce_to")\n'
         "        if not value_destination_pairs:\n"
         '            raise ValueError("no pairs")\n'),
    Slip("each copy gets all parts of a value", "extended.update-of-on-read-variables", _UPDATE,
         "lambda i: fn(copies[i], *args_of(i), **kwargs_of(i)), group)",
         "lambda i: fn(copies[i], *args, **kwargs_of(i)), group)"),
    Slip("update checks the copies of its own variable only", "extended.update-of-another-variable-that-differs",
         _UPDATE,
         "            for written in undo.values():\n                written.settle()",
         "            for written in [*undo.values()][:1]:\n                written.settle()"),
    Slip("an update that fails half-way stays half-done", "extended.update-that-fails-half-way", _UPDATE,
         "            for written in undo.values():\n                written.restore()\n", ""),
    Slip("copies that fn returns stay copies", "extended.update-returns-copies", _EXTENDED,
         "        if type(value) is ResourceVariable and value._owner is not None:",
         "        if type(value) is ResourceVariable and value._owner is None:"),
    Slip("update returns what the copies returned as one value per replica",
         "extended.update-returns-different-objects", _VALUES,
         "        other objects             PerReplica    PerReplica    None",
         "        other objects             PerReplica    PerReplica    PerReplica"),
    Slip("group=False returns a list with a nest for each copy", "extended.update-ungrouped", _UPDATE,
         "            return nest.map_structure(lambda leaf: leaf.values, each)", "            return tuple(results)"),
    Slip("in an update the variable itself is written on every device", "extended.update-through-the-variable",
         "refdist/core/rules/variables.py",
         "mirrored; NONE; assign, add, scatter, pick                every copy    every copy    own copy",
         "mirrored; NONE; assign, add, scatter, pick                every copy    every copy    every copy"),
    Slip("in replicas each replica makes the whole update", "extended.update-in-replicas", _UPDATE,
         "        if frame.replica is not None and frame.strategy is self._strategy:",
         "        if not self._strategy:"),
    Slip("replicas update the variable of the first of them", "extended.update-in-replicas-of-different-variables",
         _UPDATE,
         '    raise different("extended.update", merged.values)', "    return merged.values[0]"),
    Slip("update_non_slot hands all parts to each device", "extended.update-non-slot-takes-values-apart", _UPDATE,
         "lambda i: fn(*args_of(i), **kwargs_of(i)), group)", "lambda i: fn(*args, **kwargs), group)"),
    Slip("variables from outside are of every strategy", "extended.variable-created-in-scope", _EXTENDED,
         '        return as_variable(v, "variable_created_in_scope", "v")._strategy is self._strategy',
         '        return as_variable(v, "variable_created_in_scope", "v")._strategy in (None, self._strategy)'),
    Slip("variables are colocated with those of another strategy", "extended.colocate-refuses-other-variables",
         _EXTENDED,
         "        if not self.variable_created_in_scope(variable):", "        if variable._strategy is None:"),
    Slip("the only worker does not initialize variables", "extended.facts", _EXTENDED,
         '        """Whether this worker initializes variables: yes."""\n        return True', "        return False"),
    Slip("NcclAllReduce reduces between any devices", "cross_device_ops.nccl-needs-gpus", _PLANS,
         'if devices.device_type(device) != "GPU":', 'if devices.device_type(device) == "TPU":'),
    Slip("NcclAllReduce needs GPUs also to reduce to one device", "cross_device_ops.nccl-needs-gpus", _PLANS,
         "        results = []\n        if target.asked",
         "        results = []\n"
         "        self.check_devices(sources)\n"
         "        if target.asked"),
    Slip("no packs are refused", "cross_device_ops.packs", _PLANS,
         "num_packs < 0:", "num_packs < 1:"),
    Slip("with the mean a function that accumulates is not divided", "cross_device_ops.accumulation-function", _PLANS,
         "        return total if op is ReduceOp.SUM else collectives.divide(total, len(contributions))",
         "        return total"),
    Slip("all_reduce does not ask the function that accumulates",
         "cross_device_ops.accumulation-function-of-a-strategy", _PLANS,
         "        self._sums = accumulation_fn is None\n", ""),
    Slip("a program's own CrossDeviceOps are not asked", "cross_device_ops.own-implementation", _REDUCTION,
         "        self._plan = plan_of(self.ops)", "        self._plan = plan_of(self.ops) or ReductionToOneDevice()"),
    Slip("options that are merged keep what the first ones have", "cross_device_ops.merged-options", _COMMUNICATION,
         "            options.bytes_per_pack or self.bytes_per_pack,",
         "            self.bytes_per_pack or options.bytes_per_pack,"),
    Slip("the rows of slices are not divided for a mean", "cross_device_ops.reduce-of-slices",
         "refdist/array/collectives.py",
         "(values if op is ReduceOp.SUM else divide(values, len(parts)), indices)", "(values, indices)"),
)
