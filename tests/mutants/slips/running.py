"""Slips in run, merge_call and losses, in contexts, and in making strategies and resolvers."""

from __future__ import annotations

from mutants.slips import Slip

_BASE = "refdist/strategies/base.py"
_CALLERS = "refdist/core/callers.py"
_CALLS = "refdist/core/rules/calls.py"
_CENTRAL = "refdist/strategies/central_storage.py"
_CLOUD = "refdist/cluster_resolver/cloud.py"
_CONFIG = "refdist/config.py"
_CONTEXT = "refdist/strategies/replica_context.py"
_DEFAULT = "refdist/strategies/default.py"
_EXTENDED = "refdist/strategies/extended.py"
_LOSSES = "refdist/nn.py"
_MIRRORED = "refdist/strategies/mirrored.py"
_MULTI_WORKER = "refdist/strategies/multi_worker.py"
_NEST = "refdist/nest.py"
_RESOLVER = "refdist/cluster_resolver/base.py"
_RULES = "refdist/core/rules/values.py"
_SLURM = "refdist/cluster_resolver/slurm.py"
_SPEC = "refdist/cluster_resolver/cluster_spec.py"
_STACK = "refdist/core/context_stack.py"
_TF_CONFIG = "refdist/cluster_resolver/tfconfig.py"
_VALUES = "refdist/variables/values.py"

# In regroup: where the results of all replicas are looked at together.
_TOGETHER = "    samples = dict(zip(map(type, parts), parts, strict=True))\n"

_RUN = (
    Slip("with one replica run returns a distributed value of one part", "run.one-replica-returns-its-value", _RULES,
         "        with one replica          bare       ", "        with one replica          PerReplica "),
    Slip("equal results come back once", "run.results", _VALUES,
         _TOGETHER, _TOGETHER + """\
    if all(map(is_array, parts)) and all(np.array_equal(part, first) for part in parts):
        return first
"""),
    Slip("an array that all replicas return comes back alone", "run.one-array-for-all", _VALUES,
         _TOGETHER, "    if all(part is first for part in parts):\n        return first\n" + _TOGETHER),
    Slip("replicas must return arrays of equal shapes", "run.shapes-may-differ", _VALUES,
         _TOGETHER, """\
    if len({getattr(part, "shape", ()) for part in parts}) > 1:
        raise ValueError
""" + _TOGETHER),
    Slip("None of one replica is None of all", "run.none-of-some-replicas", _VALUES,
         "    bare = first = parts[0]\n",
         "    bare = first = parts[0]\n    if any(part is None for part in parts):\n        return None\n"),
    Slip("an object that all replicas return comes back once for each", "run.one-object-for-all", _RULES,
         "        the same object           bare      ", "        the same object           PerReplica"),
    Slip("copies of a variable come back one by one", "run.copies-of-a-variable", _RULES,
         "        copies of one variable    bare      ", "        copies of one variable    PerReplica"),
    Slip("structures agree if they have equally many leaves", "run.structures-must-agree", _VALUES,
         "    if difference is not None:\n", "    if difference and len({*map(len, map(nest.flatten, parts))}) > 1:\n"),
    Slip("only arguments are taken apart, and not what is in them", "run.nested-arguments", _VALUES,
         "    return lambda i: nest.map_structure(lambda leaf: _part(leaf, i), structure)\n",
         "    return lambda i: nest.map_items(lambda leaf: _part(leaf, i), structure)\n"),
    Slip("keyword arguments are not taken apart", "run.distributed-arguments", _EXTENDED,
         "splitter(kwargs) if kwargs else None\n", "None\n"),
    Slip("every replica is handed the caller's own lists", "run.containers-are-copied", _VALUES,
         "    if not structure:\n        return lambda i: structure\n",
         "    if not any(map(is_splittable, nest.flatten(structure))):\n        return lambda i: structure\n"),
    Slip("a named tuple comes back as a tuple", "run.named-tuples", _NEST,
         "lambda x, new: type(x)(*new),", "lambda x, new: tuple(new),"),
    Slip("a captured value is the replica's own part", "run.captured-values-are-not-taken-apart", _VALUES,
         "        raise self._several(operation)\n", """\
        if context_stack.frame().replica_id is not None and operation == "x + y":
            return self._read() + args[0]
        raise self._several(operation)
"""),
    Slip("arguments are a tuple and never a list", "run.arguments-in-a-list", _CONTEXT,
         "    if not isinstance(args, (list, tuple)):\n", "    if not isinstance(args, tuple):\n"),
    Slip("a single argument needs no tuple", "run.arguments-not-in-a-list", _CONTEXT,
         "    if not isinstance(args, (list, tuple)):\n",
         "    if not isinstance(args, (list, tuple)):\n        args = (args,)\n    if not args and args != ():\n"),
    Slip("with one replica the function is called a second time to trace it", "run.once-per-replica", _EXTENDED,
         "                results = [body(0, None)]\n",
         "                results = [body(0, None), body(0, None)][1:]\n"),
    Slip("batches of any size have to be asked for", "run.default-options", _BASE,
         "experimental_enable_dynamic_batch_size: bool = True", "experimental_enable_dynamic_batch_size: bool = False"),
)

_MERGE_CALL = (
    Slip("the merge function is called for each replica", "merge_call.once", _CONTEXT,
         "            result = merge_fn(strategy, *args, **kwargs)\n",
         "            result = [merge_fn(strategy, *args, **kwargs) for _ in calls][0]\n"),
    Slip("the merge function is not passed the strategy", "merge_call.strategy", _CONTEXT,
         "            result = merge_fn(strategy, *args, **kwargs)\n",
         "            result = merge_fn(*args, **kwargs)\n"),
    Slip("the merge function is called in the context of a replica", "merge_call.cross-replica-context",
         _CONTEXT, "        with context_stack.pushed(context_stack.Frame(top, strategy, context_stack.CROSS, device",
         "        with context_stack.pushed(context_stack.Frame(top, strategy, context_stack.REPLICA, self, 0, device"),
    Slip("the merge function gets the arguments of replica 0", "merge_call.arguments", _CONTEXT,
         "call.contribution[i]) for call in calls],", "call.contribution[i]) for call in calls[:1]],"),
    Slip("the merge function gets no keyword arguments", "merge_call.keyword-arguments", _CONTEXT,
         "            result = merge_fn(strategy, *args, **kwargs)\n",
         "            result = merge_fn(strategy, *args)\n"),
    Slip("every replica gets the whole result of the merge function", "merge_call.distributed-results", _CONTEXT,
         "        return [part(i)[0] for i in range(len(calls))]\n",
         "        return [result for i in range(len(calls))]\n"),
    Slip("the function of replica 0 is called whatever the others pass", "merge_call.functions-must-agree", _CONTEXT,
         "Signature(target=_Function(merge_fn)),", "Signature(),"),
    Slip("all replicas must pass the same function object", "merge_call.function-of-the-first-replica", _CONTEXT,
         '        self.code = getattr(function, "__code__", None)\n', "        self.code = function\n"),
    Slip("the function of the last replica is called", "merge_call.function-of-the-first-replica", _CONTEXT,
         "        merge_fn = calls[0].contribution[0]\n", "        merge_fn = calls[-1].contribution[0]\n"),
    Slip("a result of too few parts ends in the replica that has none", "merge_call.results-must-fit", _CONTEXT,
         '        check_components(result, len(calls), "result of merge_fn")\n', ""),
    Slip("outside of run there is nothing to merge", "merge_call.default-context", _CALLS,
         "    ReplicaContext.merge_call                     RD09     ok ",
         "    ReplicaContext.merge_call                     RD09     RD09 "),
    Slip("the argument of the only replica arrives as a distributed value", "merge_call.one-replica", _RULES,
         "        with one replica          bare          bare      ",
         "        with one replica          bare          PerReplica"),
)

_OF_LOSSES = (
    Slip("the average divides by the rows of this replica", "losses.default-size", _LOSSES,
         "        size = losses.shape[0] * _replicas(", "        size = losses.shape[0] or _replicas("),
    Slip("a global batch size is taken for that of a replica", "losses.average", _LOSSES,
         "        size = _size(global_batch_size, attempted)\n",
         "        size = _size(global_batch_size, attempted) * get_strategy().num_replicas_in_sync\n"),
    Slip("every number of a row counts as a row", "losses.further-dimensions", _LOSSES,
         "        size = losses.shape[0] * _replicas(", "        size = losses.size * _replicas("),
    Slip("the average divides by the sum of the weights", "losses.weights", _LOSSES,
         "        losses = _weighted(losses, constant(sample_weight), attempted)",
         "        losses = _weighted(losses, constant(sample_weight), attempted) / np.float32(np.mean(sample_weight))"),
    Slip("weights of rows are broadcast along the last dimension", "losses.weights", _LOSSES,
         "    elif weights.ndim and weights.ndim == losses.ndim - 1:\n", "    elif weights is None:\n"),
    Slip("weights lose their imaginary parts", "losses.complex-weights", _LOSSES,
         '    if not np.can_cast(other, wide, "same_kind"):\n', '    if other.kind in "SU":\n'),
    Slip("nothing divided by zero is nan", "losses.size-of-zero", _LOSSES,
         "    return _quotient(losses, size) if size else _quotient(losses[:0], 1)\n",
         "    return _quotient(losses, size)\n"),
    Slip("small ints are added in their own dtype", "losses.small-ints", _LOSSES,
         "sum(losses, dtype=native(dtype, losses)))", "sum(losses, dtype=losses.dtype))"),
    Slip("losses are weighted in float32", "losses.weights-of-doubles", _LOSSES,
         "np.promote_types(dtype, np.float32)\n", "np.dtype(np.float32)\n"),
    Slip("a scalar is the loss of one row", "losses.scalars", _LOSSES,
         "    if losses.ndim == 0:\n",
         "    if losses.ndim == 0:\n        losses = losses.reshape(1)\n    if losses.ndim == 0:\n"),
    Slip("a regularization loss is added up and not divided", "losses.regularization", _LOSSES,
         "    return _quotient(losses, _replicas(attempted))\n", "    return _quotient(losses, 1)\n"),
    Slip("a regularization loss keeps its shape", "losses.regularization-of-a-scalar", _LOSSES,
         "    return _quotient(losses, _replicas(attempted))\n",
         "    return current_backend().divide(losses, _replicas(attempted))\n"),
    Slip("across replicas the number of replicas is taken all the same", "losses.average-across-replicas", _LOSSES,
         "    if has_strategy() and in_cross_replica_context():\n",
         "    if not has_strategy() and in_cross_replica_context():\n"),
    Slip("a batch size may be below zero", "losses.negative-size", _LOSSES,
         "    if size.ndim or size < 0:\n", "    if size.ndim:\n"),
    Slip("True is a batch size of one", "losses.size-must-be-an-int", _LOSSES,
         '    if dtype_of(size).kind not in "iu":\n', '    if dtype_of(size).kind not in "biu":\n'),
)

_CONTEXTS = (
    Slip("outside any scope is across replicas", "contexts.outside-is-the-default-replica", _CONTEXT,
         ".kind in (context_stack.CROSS, context_stack.UPDATE)\n", ".kind != context_stack.REPLICA\n"),
    Slip("outside any scope there is no replica context", "contexts.collectives-outside", _CONTEXT,
         "        return default_replica.value\n", "        return None\n"),
    Slip("in a replica there is no strategy", "contexts.run-is-a-replica-context", _CONTEXT,
         "    return get_strategy() is not default_strategy.value\n",
         "    return get_strategy() is not default_strategy.value and in_cross_replica_context()\n"),
    Slip("the scope of a strategy with one replica is in that replica", "contexts.scope-is-across-replicas", _CONTEXT,
         "        return default_replica.value\n    return None\n", """\
        return default_replica.value
    return frame.strategy.extended._contexts[0] if frame.strategy.num_replicas_in_sync == 1 else None
"""),
    Slip("a scope binds nothing", "contexts.scope-yields-the-strategy", _BASE,
         "_scope_frame(context_stack.frame()))\n        return strategy\n",
         "_scope_frame(context_stack.frame()))\n        return None\n"),
    Slip("leaving a scope leads out of all scopes", "contexts.a-scope-nests-in-itself", _STACK,
         "        state.top = frame.parent\n", "        state.top = BOTTOM\n"),
    Slip("a scope that an exception leaves stays open", "contexts.an-exception-leaves-the-scope", _STACK,
         '        attempted = f"leaving {self._described()}"\n',
         '        if error is not None:\n            return\n        attempted = f"leaving {self._described()}"\n'),
    Slip("in a scope the scope of another strategy may be entered",
         "contexts.scopes-of-two-strategies-do-not-nest", _CALLS,
         "    Strategy.scope                                ok       ok       ok     RD09    RD09     RD10 ",
         "    Strategy.scope                                ok       ok       ok     RD09    RD09     ok   "),
    Slip("strategies of one class are the same strategy", "contexts.strategies-are-told-apart-by-identity", _CALLERS,
         "    if top.strategy is strategy:\n", "    if type(top.strategy) is type(strategy):\n"),
    Slip("a replica may call run", "contexts.run-in-a-replica-is-refused", _CALLS,
         "    Strategy.run                                  ok       ok       ok     RD09    RD09 ",
         "    Strategy.run                                  ok       ok       ok     RD09    ok   "),
    Slip("a replica may call Strategy.reduce", "contexts.reduce-in-a-replica-is-refused", _CALLS,
         "    Strategy.reduce                               ok       ok       ok     ok      RD09 ",
         "    Strategy.reduce                               ok       ok       ok     ok      ok   "),
    Slip("elements are taken in the scope of any strategy", "contexts.elements-are-taken-across-replicas", _CALLS,
         "    DistributedIterator.get_next                  ok       ok       ok     ok      RD09     RD10 ",
         "    DistributedIterator.get_next                  ok       ok       ok     ok      RD09     ok   "),
    Slip("a replica cannot ask for local results", "contexts.values-are-looked-into-everywhere", _CALLS,
         "    experimental_local_results                    ok       ok       ok     ok      ok   ",
         "    experimental_local_results                    ok       ok       ok     ok      RD09 "),
    Slip("an update is not across replicas", "contexts.update-is-across-replicas", _CONTEXT,
         ".kind in (context_stack.CROSS, context_stack.UPDATE)\n", ".kind == context_stack.CROSS\n"),
    Slip("setting no strategy changes nothing", "contexts.set-strategy", _DEFAULT,
         "    context_stack.state.top, _set_strategy.value = context_stack.BOTTOM, None\n", """\
    if strategy is None:
        return
    context_stack.state.top, _set_strategy.value = context_stack.BOTTOM, None
"""),
    Slip("a thread is in the scope in which it was started", "contexts.threads-start-outside", _STACK,
         "class _State(threading.local):\n", "class _State:\n"),
    Slip("replicas are numbered up to their number", "contexts.replica-context-of-a-replica-that-exists", _CONTEXT,
         "        if not 0 <= number < count:\n", "        if not 0 <= number <= count:\n"),
    Slip("a replica may act as another one", "contexts.calls-of-another-replica-are-refused", _CONTEXT,
         "            if frame.replica is self or", "            if frame.replica is not None or"),
    Slip("the scope of the default strategy is across replicas", "contexts.default-scope-changes-nothing", _DEFAULT,
         "        return _NoScope(self)\n", "        return Scope(self)\n"),
    Slip("a replica is told the devices of all replicas", "contexts.devices-of-a-replica-that-runs", _CONTEXT,
         "        return (layout.devices[self._id - layout.first],)\n", "        return layout.devices\n"),
    Slip("every worker numbers its replicas from zero", "contexts.replica-ids-count-from-zero", _EXTENDED,
         "self._context._of(container_strategy, layout.first + i, reduction)",
         "self._context._of(container_strategy, i, reduction)"),
)

_STRATEGIES = (
    Slip("num_replicas_in_sync is that of this worker", "strategies.number-of-replicas", _BASE,
         "        return self._extended.layout.total\n", "        return self._extended.layout.count\n"),
    Slip("a device that is named twice has two replicas", "strategies.mirrored-devices-are-different", _CONFIG,
         "        if name in seen:\n", "        if not name:\n"),
    Slip("an empty list of devices is a MirroredStrategy without replicas", "strategies.mirrored-of-an-empty-list",
         _MIRRORED, "    if not wanted:\n", "    if wanted is None:\n"),
    Slip("a MirroredStrategy takes any object for CrossDeviceOps", "strategies.mirrored-refuses-other-ops", _MIRRORED,
         "        if cross_device_ops is not None and not isinstance(",
         "        if cross_device_ops == 0 and not isinstance("),
    Slip("variables are on the first compute device if nothing is said", "strategies.central-parameter-device",
         _CENTRAL, 'full[0] if len(full) == 1 else "CPU:0"\n', "full[0]\n"),
    Slip("a CentralStorageStrategy without devices has one", "strategies.central-without-devices", _CENTRAL,
         'config.list_logical_devices("GPU") or', 'config.list_logical_devices("GPU")[:1] or'),
    Slip("the variables of a CentralStorageStrategy are with its replicas", "strategies.central-devices", _CENTRAL,
         "worker_devices=worker_devices, parameter_devices=parameter_devices)", "worker_devices=worker_devices)"),
    Slip("a OneDeviceStrategy without a device takes the CPU", "strategies.one-device-needs-a-device",
         "refdist/strategies/one_device.py",
         "device: str | config.LogicalDevice) -> None:", 'device: str | config.LogicalDevice = "CPU:0") -> None:'),
    Slip("names of devices are in capital letters", "strategies.names-of-devices", "refdist/core/devices.py",
         "        elif kind.upper() in TYPES:\n", "        elif kind in TYPES:\n"),
    Slip("the default strategy is on the CPU", "strategies.default-has-no-devices", _DEFAULT,
         '        raise self._nowhere("worker_devices")\n', "        return self.layout.devices\n"),
    Slip("an evaluator is a worker", "strategies.evaluator-works-alone", _SPEC,
         '    if task_type == "evaluator":\n        return Member(0, 1)\n', ""),
    Slip("every worker writes checkpoints", "workers.the-first-worker-should-save", _MULTI_WORKER,
         'writes checkpoints: the first one does."""\n        return self.transport.rank == 0\n',
         'writes checkpoints: the first one does."""\n        return True\n'),
)

_RESOLVERS = (
    Slip("jobs are in alphabetical order", "cluster_resolvers.spec-has-jobs", _SPEC,
         "        return list(self._jobs)\n", "        return sorted(self._jobs)\n"),
    Slip("job_tasks leaves gaps out", "cluster_resolvers.spec-with-gaps", _SPEC,
         "        return [tasks.get(i) for i in range(max(tasks, default=-1) + 1)]\n",
         "        return [tasks[i] for i in sorted(tasks)]\n"),
    Slip("indices that were not given in order make a dict", "cluster_resolvers.spec-without-gaps-is-a-list", _SPEC,
         "if tasks and set(tasks) == set(range(len(tasks)))\n",
         "if tasks and list(tasks) == list(range(len(tasks)))\n"),
    Slip("a job that does not exist is a KeyError", "cluster_resolvers.spec-of-a-job-that-does-not-exist", _SPEC,
         "        if name not in self._jobs:\n", "        if not name:\n"),
    Slip("an address may be alone instead of in a list", "cluster_resolvers.spec-of-something-else", _SPEC,
         "            if isinstance(tasks, (list, tuple)):\n",
         "            tasks = [tasks] if isinstance(tasks, str) else tasks\n"
         "            if isinstance(tasks, (list, tuple)):\n"),
    Slip("a cluster whose jobs have no tasks is false", "cluster_resolvers.spec-without-tasks", _SPEC,
         "        return bool(self._jobs)\n", "        return any(self._jobs.values())\n"),
    Slip("two specs are never equal", "cluster_resolvers.spec-of-a-spec", _SPEC,
         "isinstance(other, ClusterSpec) and self._jobs == other._jobs\n", "self is other\n"),
    Slip("without arguments master is the address of the resolver's task",
         "cluster_resolvers.simple-master-is-not-its-own-task", _RESOLVER,
         "        return with_layer(self._master, rpc_layer or self.rpc_layer)\n",
         "        return self._address_of(self.task_type, self.task_id, rpc_layer) or with_layer(\n"
         "            self._master, rpc_layer or self.rpc_layer)\n"),
    Slip("a protocol is put in front of no address", "cluster_resolvers.simple-master-without-an-address", _RESOLVER,
         'if rpc_layer and address else address\n', 'if rpc_layer else address\n'),
    Slip("master puts its own protocol in front, whatever is passed", "cluster_resolvers.simple-master", _RESOLVER,
         "        return with_layer(self._master, rpc_layer or self.rpc_layer)\n",
         "        return with_layer(self._master, self.rpc_layer)\n"),
    Slip("task indices are not text", "cluster_resolvers.tf-config-index-as-text", _SPEC,
         "    if not isinstance(value, str):\n        return as_integer(value)\n",
         "    if value is not None:\n        return as_integer(value)\n"),
    Slip("TF_CONFIG is read when the resolver is made", "cluster_resolvers.tf-config-is-read-when-asked", _TF_CONFIG,
         "        text = os.environ.get(VARIABLE)\n", "        text = self._first\n"),
    Slip("TF_CONFIG overrides what is passed", "cluster_resolvers.tf-config-arguments-override", _TF_CONFIG,
         "        if self._task_type is not None:\n",
         '        if self._task_type is not None and "type" not in self._task():\n'),
    Slip("a task id of 0 that is set later is taken for none", "cluster_resolvers.tf-config-can-be-changed", _TF_CONFIG,
         "        if self._task_id is not None:\n", "        if self._task_id:\n"),
    Slip("the only task of a cluster has an address", "cluster_resolvers.tf-config-master-alone", _TF_CONFIG,
         "        if not spec or sum(map(spec.num_tasks, spec.jobs)) == 1:\n", "        if not spec:\n"),
    Slip("session_master is not read", "cluster_resolvers.tf-config-session-master", _TF_CONFIG,
         "        if given is not None:\n", "        if given == 0:\n"),
    Slip("a port may be any number", "cluster_resolvers.tf-config-ports-are-numbers", _TF_CONFIG,
         "(port.isdecimal() and int(port) < 1 << 16):", "port.isdecimal():"),
    Slip("the job of a later resolver replaces that of an earlier one", "cluster_resolvers.union-merges-jobs",
         _RESOLVER, "                mine = merged.setdefault(job, {})\n", "                mine = merged[job] = {}\n"),
    Slip("of two addresses for one index the later one counts", "cluster_resolvers.union-refuses-an-index-twice",
         _RESOLVER, "                    if i in mine:\n", "                    if i is None:\n"),
    Slip("only the first resolver of a union is asked", "cluster_resolvers.union-asks-the-next", _RESOLVER,
         "next((value for value in told if value is not None), None))", "told[0])"),
    Slip("a task id of 0 is missing in a union", "cluster_resolvers.union-takes-task-id-zero", _RESOLVER,
         "            if getattr(self, name) is None:\n", "            if not getattr(self, name):\n"),
    Slip("the environment of a union is that of its last resolver", "cluster_resolvers.union-speaks-as-its-first",
         _RESOLVER, "for resolver in self._resolvers if resolver.environment",
         "for resolver in self._resolvers[::-1] if resolver.environment"),
    Slip("the hosts of a step are sorted as text", "cluster_resolvers.slurm-hosts-keep-their-order", _SLURM,
         "        return dict(zip(hosts, tasks_per_node, strict=True))\n",
         "        return dict(zip(sorted(hosts), tasks_per_node, strict=True))\n"),
    Slip("hosts lose leading zeros", "cluster_resolvers.slurm-host-lists", _SLURM,
         "str(n).zfill(len(first))", "str(n)"),
    Slip("a range of hosts ends before its last one", "cluster_resolvers.slurm-step", _SLURM,
         "range(int(first), int(last or first) + 1)]", "range(int(first), int(last or int(first) + 1))]"),
    Slip("numbers of tasks do not repeat", "cluster_resolvers.slurm-host-lists", _SLURM,
         " * int(match[2] or 1)\n", "\n"),
    Slip("the tasks of a host share one port", "cluster_resolvers.slurm-ports", _SLURM,
         "{self._port_base + i}", "{self._port_base}"),
    Slip("GPUs are numbered over all hosts", "cluster_resolvers.slurm-gpus", _SLURM,
         "        first = places[self._rank][1] * self._gpus_per_task\n",
         "        first = self._rank * self._gpus_per_task\n"),
    Slip("the tasks of a step go to jobs as these were given", "cluster_resolvers.slurm-jobs", _SLURM,
         "dict(sorted(jobs.items()))\n", "dict(jobs)\n"),
    Slip("only the first page of the machines is read", "cluster_resolvers.compute-engine", _CLOUD,
         "            request = groups.listInstances_next(previous_request=request, previous_response=answer)\n",
         "            request = None\n"),
    Slip("pods are in the order of the service's answer", "cluster_resolvers.kubernetes", _CLOUD,
         "sorted(found, key=lambda pod: pod.metadata.name)\n", "found\n"),
)

SLIPS = (*_RUN, *_MERGE_CALL, *_OF_LOSSES, *_CONTEXTS, *_STRATEGIES, *_RESOLVERS)
