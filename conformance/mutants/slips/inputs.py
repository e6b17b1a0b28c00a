"""Slips in datasets, in the functions that make them, in iterators, and between workers."""

from __future__ import annotations

from refdist.conformance.mutants.slips import Slip

_DISTRIBUTED = "refdist/input/distributed.py"
_ITERATOR = "refdist/data/iterator.py"
_OPTIONS = "refdist/input/options.py"
_SHARDING = "refdist/input/sharding.py"
_SPLIT = "refdist/input/split.py"
_TABLES = "refdist/core/rules/input.py"
_VARIABLES = "refdist/variables/distributed.py"
_WORKERS = "refdist/strategies/multi_worker.py"

_DATASETS = (
    Slip("every replica gets the whole batch", "datasets.parts-go-to-their-replicas", _SPLIT,
         "[leaf[i * each:(i + 1) * each]", "[leaf[:]"),
    Slip("the replicas take the rows of a batch in turn", "datasets.a-batch-is-divided", _SPLIT,
         "[leaf[i * each:(i + 1) * each]", "[leaf[i::num_replicas]"),
    Slip("batches are divided on one replica, too", "datasets.one-replica-gets-every-batch-whole", _SPLIT,
         "    if num_replicas == 1:\n", "    if num_replicas == 0:\n"),
    Slip("a remainder is dealt out row by row", "datasets.pieces-have-the-rounded-up-size", _TABLES,
         "its share    not at all     each batch    ", "its share    not at all     stream of rows"),
    Slip("rows that cannot be divided evenly are lost", "datasets.a-short-batch-is-cut-by-its-own-size", _TABLES,
         "        EMPTY    all     ", "        EMPTY    equal shares"),
    Slip("a step in which a replica has no rows is left out", "datasets.a-replica-without-rows-gets-an-empty-array",
         _TABLES,
         "        EMPTY    all                keep", "        EMPTY    all                drop"),
    Slip("a short batch is cut by the size of the first one", "datasets.batches-are-not-joined", _SHARDING,
         "        cut = (split_batch(batch, self.layout.total, i, whole) for i, batch in enumerate(batches))",
         "        batches = [*batches]\n"
         "        most = -(-len(nest.flatten(batches[0])[0]) // self.layout.total)\n"
         "        cut = ([nest.map_structure(lambda leaf: leaf[i * most:(i + 1) * most], batch)\n"
         "                for i in range(self.layout.total)] for batch in batches)"),
    Slip("all components are cut as the first one is", "datasets.components-are-cut-by-their-own-number-of-rows",
         _SPLIT,
         "    return [nest.pack_sequence_as(batch, [leaf[i * each:(i + 1) * each]",
         "    steps = steps[:1] * len(steps)\n"
         "    return [nest.pack_sequence_as(batch, [leaf[i * each:(i + 1) * each]"),
    Slip("a scalar is a wrong type", "datasets.scalars-cannot-be-divided", _SHARDING,
         'f"cannot be split over {count} replicas")',
         'f"cannot be split over {count} replicas", kind=errors.InvalidTypeError)'),
    Slip("a distributed dataset is distributed once more", "datasets.what-is-not-a-dataset-is-refused", _DISTRIBUTED,
         "(str, bytes, dict, PerReplica, DistributedDataset)", "(str, bytes, dict, PerReplica)"),
    Slip("a dataset may be read in the mode PER_REPLICA", "datasets.per-replica-mode-is-for-functions", _TABLES,
         "experimental_distribute_dataset                       ok            RD20",
         "experimental_distribute_dataset                       ok            ok"),
    Slip("the cardinality counts the parts of all replicas", "datasets.cardinality", _DISTRIBUTED,
         "            return source.cardinality()",
         "            return source.cardinality() * self._split.layout.total"),
    Slip("reduce leaves the first element out", "datasets.reduce-over-the-elements", _DISTRIBUTED,
         "        for element in self:\n            state =",
         "        for element in islice(self, 1, None):\n            state ="),
    Slip("AUTO cuts the stream of rows", "datasets.data-is-auto-without-files", _TABLES,
         "        AUTO    its share  ", "        AUTO    its files  "),
    Slip("the last replicas have the longer parts", "datasets.off-deals-out-the-remainder", _SPLIT,
         "(i < batch_size % num_replicas)", "(num_replicas - 1 - i < batch_size % num_replicas)"),
    Slip("under OFF every batch is cut for itself", "datasets.off-joins-batches", _TABLES,
         "all rows     not at all     stream of rows", "all rows     not at all     each batch    "),
    Slip("under OFF rows that do not fill a part are lost", "datasets.off-keeps-the-rows-of-a-last-step", _SPLIT,
         "    if rest is None or not (step or len(rest[0])):", "    if rest is None or len(step) < per_step:"),
    Slip("each worker takes the next pieces for all its replicas", "datasets.workers-take-pieces-in-turn", _SHARDING,
         "even[worker::self.layout.workers] if",
         "even[worker * self.layout.count:(worker + 1) * self.layout.count] if"),
    Slip("under OFF the workers share the rows", "datasets.off-every-worker-reads-all-rows", _TABLES,
         "        OFF     all rows         all rows      all rows ",
         "        OFF     all rows         all rows      its share"),
    Slip("every worker begins with the longest part", "datasets.off-a-worker-begins-with-its-own-part", _SHARDING,
         "            first = worker * count\n", "            first = 0\n"),
    Slip("without a hint a dataset is shared out as under AUTO", "datasets.hint-without-a-hint-is-off", _TABLES,
         "        HINT    all rows         all rows      all rows ",
         "        HINT    all rows         all rows      its share"),
    Slip("with too few files FILE shares rows", "datasets.file-needs-a-file-for-each-worker", _TABLES,
         "RD18                    its files", "its share               its files"),
    Slip("under AUTO every worker reads all files by rows", "datasets.files-are-dealt-to-workers", _TABLES,
         "its share            its share               its files\n        FILE",
         "its share            its share               its share\n        FILE"),
)

_FUNCTIONS = (
    Slip("all replicas of a worker get the same element", "dataset_functions.each-replica-takes-the-next-element",
         _SHARDING,
         "    while taken := list(itertools.islice(elements, count)):\n",
         "    while taken := list(itertools.islice(elements, 1)) * count:\n"),
    Slip("the function is called for each replica", "dataset_functions.called-once-for-each-worker", _DISTRIBUTED,
         '    per_replica_mode = mode == "PER_REPLICA"\n', "    per_replica_mode = workers == 1\n"),
    Slip("a pipeline's number is that of its first replica", "dataset_functions.a-context-shares-out-the-rows",
         _DISTRIBUTED,
         "        InputContext(workers, extended.layout.worker, count)]",
         "        InputContext(workers, extended.layout.first, count)]"),
    Slip("a pipeline tells the replicas of its own worker", "dataset_functions.batch-size-of-a-replica", _DISTRIBUTED,
         "    count = workers * local\n", "    count = local\n"),
    Slip("an InputContext is by default the second pipeline", "dataset_functions.input-context", _OPTIONS,
         "input_pipeline_id: int = 0", "input_pipeline_id: int = 1"),
    Slip("the batch size of a replica is rounded down", "dataset_functions.batch-size-must-be-divisible", _OPTIONS,
         "        if global_batch_size % self._replicas:", "        if global_batch_size < self._replicas:"),
    Slip("a step with too few elements is left out", "dataset_functions.replicas-without-an-element-get-empty-batches",
         _SHARDING,
         "            if self.uneven == rules.DROP and any", "            if any"),
    Slip("full batches are padded at the end", "dataset_functions.full-batches-are-not-padded", _TABLES,
         "        EMPTY    all                keep           drop",
         "        EMPTY    all                keep           keep"),
    Slip("a number that is missing is zero", "dataset_functions.elements-without-rows-cannot-be-made-up", _SHARDING,
         "        if fixed or not np.ndim(array):",
         "        if not np.ndim(array):\n"
         "            return array * 0\n"
         "        if fixed:"),
    Slip("the function is called in the scope of the strategy", "dataset_functions.called-where-the-strategy-is-called",
         _DISTRIBUTED,
         "    datasets = [dataset_fn(context) for context in contexts]",
         "    with strategy.scope():\n        datasets = [dataset_fn(context) for context in contexts]"),
    Slip("in the mode PER_REPLICA there is one pipeline for each worker", "dataset_functions.per-replica-mode",
         _DISTRIBUTED,
         "[InputContext(local, i, count)", "[InputContext(workers, i, count)"),
    Slip("in the mode PER_REPLICA the first dataset to end ends all", "dataset_functions.per-replica-mode-uneven-ends",
         _SHARDING,
         "itertools.zip_longest(*datasets, fillvalue=_NOTHING)", "zip(*datasets)"),
    Slip("elements are fetched to devices where the dataset is", "dataset_functions.datasets-on-devices", _DISTRIBUTED,
         "per_replica_mode and not options.experimental_fetch_to_device)", "per_replica_mode)"),
)

_ITERATORS = (
    Slip("get_next_as_optional ends as next does", "iterators.get-next-as-optional", _ITERATOR,
         "        return Optional((), lambda: self.element_spec)", "        raise StopIteration"),
    Slip("an Optional without a value has None", "iterators.an-optional-without-a-value", _ITERATOR,
         "        if not self._values:\n",
         "        if not self._values:\n"
         "            return None\n"
         "        if self._values is None:\n"),
    Slip("get_next ends as next does", "iterators.end-of-get-next", _ITERATOR,
         "        except StopIteration:\n",
         "        except StopIteration:\n"
         "            raise\n"
         "        except RuntimeError:\n"),
    Slip("all iterators of a dataset are one", "iterators.iterators-are-independent", _DISTRIBUTED,
         "        return DistributedIterator(self)",
         '        self._read_by = getattr(self, "_read_by", None) or DistributedIterator(self)\n'
         "        return self._read_by"),
    Slip("a loop over an iterator begins again", "iterators.an-iterator-is-its-own-iterator", _ITERATOR,
         "    def __iter__(self) -> PythonIterator[Any]:\n        return self",
         "    def __iter__(self) -> PythonIterator[Any]:\n        return iter(self._dataset)"),
    Slip("the spec of an element is that of one replica", "iterators.element-spec", _DISTRIBUTED,
         "        return spec if len(devices) == 1 else nest", "        return spec if devices else nest"),
    Slip("the spec tells the rows of the whole batch", "iterators.element-spec-of-full-batches", _SHARDING,
         "one.with_rows(rows // total if rows is not None and rows % total == 0 else None)", "one.with_rows(rows)"),
    Slip("the spec of full batches is certain on workers, too", "iterators.element-spec-on-workers", _SHARDING,
         "rows, total = one.shape[0] if one.shape and not self.waits else None,",
         "rows, total = one.shape[0] if one.shape else None,"),
    Slip("a replica takes the next element of all", "iterators.elements-are-taken-outside-of-replicas", _DISTRIBUTED,
         '        require(self._strategy, "DistributedIterator.get_next")\n', ""),
    Slip("a worker ends when its own rows have ended", "iterators.workers-end-together", _DISTRIBUTED,
         "        if not any(transport.all_gather_object(call, step is not None)):",
         "        if not all(transport.all_gather_object(call, step is not None)):"),
)

_BETWEEN = (
    Slip("every worker writes checkpoints", "workers.the-first-worker-should-save", _WORKERS,
         '        """Whether this worker writes checkpoints: the first one does."""\n'
         "        return self.transport.rank == 0",
         "        return True"),
    Slip("ONLY_FIRST_REPLICA is the first replica of each worker", "workers.only-first-replica-is-of-the-first-worker",
         _VARIABLES,
         "transports.first(extended.transport, calls[0], parts[0])", "parts[0]"),
    Slip("each worker reads the sum of its own copies", "workers.on-read-variables-are-read-over-all-workers",
         _VARIABLES,
         "        return extended.reduction.onto_current(op, arrays, call)",
         "        return collectives.reduce(current_backend(), op, arrays)"),
    Slip("each worker divides a value among its own copies", "workers.on-read-variables-are-assigned-over-all-workers",
         _VARIABLES,
         "_shares(value, layout.total, attempted)[layout.first:layout.first + len(copies)]",
         "_shares(value, len(copies), attempted)"),
    Slip("workers write different values to one variable", "workers.writes-outside-of-replicas-must-agree", _VARIABLES,
         "        transport.check_same_bits(transport.call(attempted, self.name, like=value), value, _brief)",
         "        transport.call(attempted, self.name, like=value)"),
    Slip("a worker's value from a function begins at replica 0", "workers.values-of-a-function-are-local",
         "refdist/strategies/extended.py",
         "ValueContext(layout.first + i, layout.total)", "ValueContext(i, layout.total)"),
    Slip("between workers the mean is divided by the workers", "workers.reduce-is-of-all-replicas",
         "refdist/strategies/across_workers.py",
         "leaves, self._count, self._ordered)", "leaves, self._transport.size, self._ordered)"),
    Slip("the replicas of each worker are counted from 0", "workers.replicas-are-counted-over-all-workers",
         "refdist/strategies/extended.py",
         "ReplicaContext._of(container_strategy, layout.first + i, reduction)",
         "ReplicaContext._of(container_strategy, i, reduction)"),
    Slip("each worker has its own mean of a value that is not distributed",
         "workers.several-replicas-a-plain-value-must-be-the-same", "refdist/strategies/reduction.py",
         "        self._transport.check_same_bits(call, parts[0], _brief)\n        return value",
         "        return value"),
)

SLIPS = (*_DATASETS, *_FUNCTIONS, *_ITERATORS, *_BETWEEN)
