"""`Strategy`: the calls that users make, each checked against the table of contexts and passed on.

What differs between strategies is in their `extended` (see `extended.py` and the files of the strategies).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from refdist import errors, nest, notebook
from refdist.array import collectives, replica_checks
from refdist.array.replica_types import type_of_contribution
from refdist.core import call_site, checks, context_stack, devices
from refdist.core.callers import require
from refdist.core.integers import integer
from refdist.core.rules.calls import Call
from refdist.core.rules.options import InputReplicationMode, ReduceOp, reduce_op_of
from refdist.core.scaled import counted
from refdist.data.dataset import Dataset
from refdist.data.iterator import Iterator
from refdist.input import distributed as datasets
from refdist.input.options import InputContext, InputOptions
from refdist.missing import Missing
from refdist.strategies.deprecated import Calls, InputIterator
from refdist.strategies.reduction import recorded
from refdist.strategies.replica_context import call_arguments
from refdist.variables.values import PerReplica

if TYPE_CHECKING:
    from refdist.strategies.extended import StrategyExtended

_RUN = Call.RUN  # looked up once: members of an Enum are slow to look up


class RunOptions(NamedTuple):
    """Options of `Strategy.run`; they concern compilers and have no effect here.

    Source: tf.distribute.RunOptions.
    """

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: object = None


class ValueContext:
    """Says for which replica a `value_fn` makes a value.

    Args:
        replica_id_in_sync_group: the number of the replica, from 0.
        num_replicas_in_sync: how many replicas there are.

    Source: tf.distribute.experimental.ValueContext.
    """

    __slots__ = ("_count", "_id")

    def __init__(self, replica_id_in_sync_group: int = 0, num_replicas_in_sync: int = 1) -> None:
        self._id = replica_id_in_sync_group
        self._count = num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> int:
        """The replica, from 0."""
        return self._id

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        return self._count

    def __str__(self) -> str:
        return f"tf.distribute.ValueContext(replica id {self._id},  total replicas in sync: {self._count})"


class OneOfAKind:
    """Base of a strategy and its `extended`: variables belong to one object, which is not copied by accident.

    A deep copy is a strategy of its own, as in TensorFlow.  A shallow one would share the original's devices and
    variables, and a pickled one would be loaded in a process that has neither.
    """

    def __copy__(self) -> Any:
        raise errors.error("RD10", f"copy.copy of a {type(self).__name__}", "the copy would be another strategy on the "
                           "original's devices and variables", "Pass the strategy itself around.")

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        new = memo[id(self)] = object.__new__(type(self))
        vars(new).update(copy.deepcopy(vars(self), memo))
        return new

    def __reduce_ex__(self, protocol: object) -> Any:
        raise errors.error("RD20", f"pickling a {type(self).__name__}", "its devices and variables belong to this "
                           "process", "Create a strategy in each process.", kind=errors.InvalidTypeError)


class Strategy(OneOfAKind):
    """How one program runs on several devices.

    Args:
        extended: the implementation; users take a subclass such as MirroredStrategy.

    Source: tf.distribute.Strategy.
    """

    def __init__(self, extended: StrategyExtended) -> None:
        self._extended = extended

    @property
    def extended(self) -> StrategyExtended:
        """The StrategyExtended with the less common methods."""
        return self._extended

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas over which gradients are aggregated."""
        return counted(self._extended.layout.total)

    @property
    def cluster_resolver(self) -> Any:
        """The cluster resolver of a strategy with several workers, otherwise None."""
        return None

    def __repr__(self) -> str:
        layout = self._extended.layout
        names = notebook.shortened([(devices.short(name),) for name in layout.devices])
        return f"<{type(self).__name__}: {self._size()}, {', '.join(name for name, *_ in names)}>"

    def _size(self) -> str:
        """On how many replicas and tasks it runs, in words."""
        return str(self._extended.layout)

    def _repr_html_(self) -> str:
        return notebook.drawing(self)

    def scope(self) -> Scope:
        """A context manager that makes the strategy current and lets it create the variables.

        >>> import refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> with strategy.scope():
        ...     v = refdist.Variable(1.0)
        >>> type(v).__name__, refdist.has_strategy()
        ('MirroredVariable', False)

        Raises:
            RD09: in a replica.  RD10: in the scope of another strategy.

        Source: tf.distribute.Strategy.scope.
        """
        return Scope(self)

    def run(self, fn: Callable[..., object], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None,
            options: RunOptions | None = None) -> Any:
        """Calls `fn` on every replica and puts the results together.

        Args:
            fn: called once per replica.
            args, kwargs: passed on; of a PerReplica or Mirrored each replica gets its own component.
            options: RunOptions or None.

        Returns:
            A nest like the one `fn` returns: arrays as PerReplica, other objects bare when all replicas
            return the same object.  With one replica everything is bare.

        >>> import refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> strategy.run(lambda x: refdist.constant(x) * 2, args=(21,)).values
        (np.int32(42), np.int32(42))

        Raises:
            RD01 ... RD06: replicas that do not make the same calls.  RD09, RD10: wrong context.
            RD21: results of different structure.  RD25, RD34: bad arguments.
            Whatever `fn` raises, with a note that names the replica.

        Source: tf.distribute.Strategy.run.
        """
        require(self, _RUN)
        if not callable(fn):
            raise errors.error("RD25", "Strategy.run", f"fn is {fn!r}", "Pass a function.")
        if type(args) is not tuple or kwargs is not None:
            args, kwargs = call_arguments(args, kwargs, "Strategy.run")
        if options is not None and not isinstance(options, RunOptions):
            raise errors.error("RD25", "Strategy.run", f"options is {options!r}", "Pass RunOptions or None.")
        return self._extended._run(fn, args, kwargs or {})

    def reduce(self, reduce_op: ReduceOp | str, value: object, axis: int | Sequence[int] | None) -> Any:
        """One value from the values of all replicas.

        Args:
            reduce_op: ReduceOp.SUM or ReduceOp.MEAN, or the name in any case.
            value: a PerReplica of arrays or IndexedSlices, of numbers of one dtype, and of one shape but for the
                dimensions in `axis`; or a nest of them.  A value that is not distributed is the contribution of the
                replica where each worker has one replica.  Otherwise all replicas share it: its MEAN is the value
                itself (the mean over the workers where there are several), its SUM without an axis is an error,
                and along an axis it counts once per replica.
            axis: None to reduce across replicas only; an int or a tuple to reduce each replica's array along
                those dimensions too.  MEAN divides by the true number of elements, so a last partial batch
                is weighted correctly.

        Returns:
            A read-only array of that shape without the dimensions in `axis`, or a nest of them.  SUM keeps the dtype;
            MEAN of integers is a float.

        >>> import numpy as np, refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> parts = strategy.run(lambda: np.ones(4 - 2 * refdist.get_replica_context().replica_id_in_sync_group))
        >>> strategy.reduce("SUM", parts, axis=0)
        array(6.)

        Raises:
            RD04, RD05: shapes (with axis=None) or dtypes differ.  RD08: no such axis.
            RD09, RD10: wrong context.  RD12: a Mirrored differs between workers.
            RD16: SUM of a value that all replicas share.
            RD23: a dtype that is not a number's.  RD25, RD34: bad arguments.

        Source: tf.distribute.Strategy.reduce.
        """
        require(self, Call.REDUCE)
        op = reduce_op_of(reduce_op, "Strategy.reduce")
        axes = None if axis is None else collectives.reduction_axes(axis, "Strategy.reduce")

        def reduced() -> Any:
            if not nest.is_nested(value):
                return self._reduce_leaf(op, value, axes)
            return nest.map_structure(lambda leaf: self._reduce_leaf(op, leaf, axes), value)

        return recorded("Strategy.reduce", op, axis, value, reduced)

    def _reduce_leaf(self, op: ReduceOp, value: object, axes: tuple[int, ...] | None) -> Any:
        reduction = self._extended.reduction
        if axes is None:
            if checks.types.value and isinstance(value, PerReplica):
                kinds = [type_of_contribution(part) for part in value.values]
                replica_checks.check(replica_checks.reducing_of(op), kinds, f"Strategy.reduce {op.name}",
                                     self.num_replicas_in_sync)
            return reduction.reduce_value(op, value, reduction.here(), "Strategy.reduce")
        return reduction.reduce_along(op, value, axes, "Strategy.reduce")

    def gather(self, value: object, axis: int) -> Any:
        """The values of all replicas one after another along `axis`.

        Args:
            value: a PerReplica of arrays of rank 1 or more and of one dtype, or a nest of them; only the length along
                `axis` may differ.  A value that is not distributed is one contribution of each worker, whose replicas
                share it; on one worker it is returned as it is.
            axis: an int in [-rank, rank).

        Returns:
            A read-only array of that dtype and rank, or a nest of them; replica 0's part comes first.

        Raises:
            RD05, RD07: dtypes or other dimensions differ.  RD08: no such axis.
            RD09, RD10: wrong context.  RD20: IndexedSlices.  RD25, RD34: bad arguments.

        Source: tf.distribute.Strategy.gather.
        """
        require(self, Call.GATHER)
        axis = integer(axis, "axis", "Strategy.gather")
        gather = self._extended.reduction.gather_value
        return recorded("Strategy.gather", None, axis, value, lambda: nest.map_structure(
            lambda leaf: gather(leaf, axis, "Strategy.gather"), value))

    def experimental_local_results(self, value: object) -> tuple[Any, ...]:
        """The components of `value` on this worker; of a nest, one nest per replica.

        Args:
            value: of any kind: a PerReplica, Mirrored or variable, an array, or a nest of them.

        Source: tf.distribute.Strategy.experimental_local_results.
        """
        require(self, Call.LOCAL_RESULTS)
        return self._extended._local_results(value)

    def experimental_distribute_values_from_function(self, value_fn: Callable[[ValueContext], object]) -> Any:
        """A PerReplica of what `value_fn` returns for each replica.

        Args:
            value_fn: called once for each replica with a ValueContext; it returns one object of any kind.

        >>> import refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> strategy.experimental_distribute_values_from_function(
        ...     lambda ctx: ctx.num_replicas_in_sync).values
        (2, 2)

        Raises:
            RD25: `value_fn` is not a function.

        Source: tf.distribute.Strategy.experimental_distribute_values_from_function.
        """
        require(self, Call.VALUES_FROM_FUNCTION)
        if not callable(value_fn):
            raise errors.error("RD25", "experimental_distribute_values_from_function", f"value_fn is {value_fn!r}",
                               "Pass a function of a ValueContext.")
        return self._extended._values_from_function(value_fn)

    def experimental_distribute_dataset(self, dataset: Iterable[object], options: InputOptions | None = None) -> Any:
        """A dataset whose global batches are split over the replicas.

        Args:
            dataset: a refdist.data.Dataset, or anything else that can be iterated more than once; its elements
                are global batches.
            options: an InputOptions, or None.

        Returns:
            A DistributedDataset; its elements are PerReplica values.

        Raises:
            RD15: elements without a batch dimension.

        Source: tf.distribute.Strategy.experimental_distribute_dataset.
        """
        require(self, Call.DISTRIBUTE_DATASET)
        return datasets.distribute(self, dataset, options)

    def distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Iterable[object]],
                                          options: InputOptions | None = None) -> Any:
        """A dataset from a function that makes one for each worker; nothing is split or sharded.

        Args:
            dataset_fn: called with an InputContext; its dataset has batches for one replica, and in every
                step each replica takes the next one.
            options: an InputOptions, or None; with PER_REPLICA the function is called once per replica.

        Returns:
            A DistributedDataset.  Replicas for which the last step has no batch get empty arrays.

        >>> import refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> def dataset_fn(ctx):
        ...     return refdist.data.Dataset.range(6).batch(ctx.get_per_replica_batch_size(4))
        >>> for x in strategy.distribute_datasets_from_function(dataset_fn):
        ...     print(*x.values)
        [0 1] [2 3]
        [4 5] []

        Raises:
            RD25, RD34: bad arguments.

        Source: tf.distribute.Strategy.distribute_datasets_from_function.
        """
        require(self, Call.DATASETS_FROM_FUNCTION)
        return datasets.distribute_from_function(self, dataset_fn, options)

    # Methods that older versions of tf.distribute had; each works, warns, and names its successor.  Those on the
    # logical devices of a replica are errors where a replica has one device; TPUStrategy overrides them.

    def experimental_run_v2(self, fn: Callable[..., object], args: Sequence[object] = (),
                            kwargs: Mapping[str, object] | None = None) -> Any:
        """`run` under its name of TensorFlow 2.0.

        Args:
            fn, args, kwargs: as in `run`.

        Source: tf.distribute.experimental.CentralStorageStrategy (TensorFlow 2.0).
        """
        _warn("experimental_run_v2", "run")
        return self.run(fn, args, kwargs)

    def experimental_run(self, fn: Callable[..., object],
                         input_iterator: Iterator | InputIterator | None = None) -> Any:
        """`run` with the next element of an iterator as the only argument, or with none.

        Args:
            fn: called in each replica.
            input_iterator: a distributed iterator; None to call `fn` without arguments.
        """
        _warn("experimental_run", "run")
        return self.run(fn) if input_iterator is None else self.run(fn, args=(input_iterator.get_next(),))

    def experimental_distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Iterable[object]],
                                                       options: InputOptions | None = None) -> Any:
        """`distribute_datasets_from_function` under its older name.

        Args:
            dataset_fn, options: as in `distribute_datasets_from_function`.
        """
        _warn("experimental_distribute_datasets_from_function", "distribute_datasets_from_function")
        return self.distribute_datasets_from_function(dataset_fn, options)

    def experimental_make_numpy_dataset(self, numpy_input: object, session: object = None) -> Dataset:
        """A dataset of the rows of arrays; a list of arrays is stacked.

        Args:
            numpy_input: an array of shape [n, ...] and any dtype, or a nest of them with the same n.
            session: without effect.

        Source: tf.distribute.experimental.CentralStorageStrategy (TensorFlow 2.0).
        """
        _warn("experimental_make_numpy_dataset", "refdist.data.Dataset.from_tensor_slices")
        return self.extended.experimental_make_numpy_dataset(numpy_input, session)

    def make_dataset_iterator(self, dataset: Iterable[object]) -> InputIterator:
        """An iterator over a dataset whose batches are split over the replicas.

        Args:
            dataset: as `experimental_distribute_dataset` takes it.
        """
        _warn("make_dataset_iterator", "experimental_distribute_dataset")
        return InputIterator(self.experimental_distribute_dataset(dataset))

    # Documented for another language only.
    make_dataset_iterator_dyn = Missing()
    make_input_fn_iterator_dyn = Missing()

    def make_input_fn_iterator(self, input_fn: Callable[[InputContext], object],
                               replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
                               ) -> InputIterator:
        """An iterator over the dataset that `input_fn(input_context)` returns, called in the strategy's scope.

        Where it returns a function, that is called without arguments for each replica's element.

        Args:
            input_fn: called once for each worker, with its InputContext.
            replication_mode: PER_WORKER.

        Raises:
            RD25, RD34: no function; a replication mode other than PER_WORKER, or a function that returns neither a
                dataset nor a function (both ValueError).
        """
        _warn("make_input_fn_iterator", "distribute_datasets_from_function")
        if replication_mode is not InputReplicationMode.PER_WORKER:
            raise errors.error("RD34", "make_input_fn_iterator", f"replication_mode is {replication_mode!r}",
                               "Use PER_WORKER, or `distribute_datasets_from_function`.")

        if not callable(input_fn):
            raise errors.error("RD25", "make_input_fn_iterator", f"input_fn is {input_fn!r}",
                               "Pass a function of an InputContext.")

        def dataset_fn(context: InputContext) -> Any:
            dataset = input_fn(context)
            if callable(dataset):
                return Calls(dataset)
            if not hasattr(dataset, "__iter__"):
                raise errors.error("RD34", "make_input_fn_iterator", f"input_fn returned {dataset!r}",
                                   "Return a refdist.data.Dataset, or a function.")
            return dataset

        with self.scope():
            return InputIterator(self.distribute_datasets_from_function(dataset_fn))

    def unwrap(self, value: object) -> tuple[Any, ...]:
        """`experimental_local_results` under its older name.

        Args:
            value: of any kind, most often a result of `run`.
        """
        _warn("unwrap", "experimental_local_results")
        return self.experimental_local_results(value)

    def group(self, value: object, name: str | None = None) -> Any:
        """Waits for a value; there is nothing to wait for.

        Args:
            value: of any kind, most often a result of `run`.
            name: without effect but for what is returned.

        Returns:
            The only leaf of the local results, where there is one and no name is given; else None.
        """
        _warn("group", "nothing: values are there when they are returned")
        leaves = nest.flatten(self.experimental_local_results(value))
        return leaves[0] if len(leaves) == 1 and name is None else None

    def configure(self, session_config: object = None, cluster_spec: object = None, task_type: str | None = None,
                  task_id: int | None = None) -> None:
        """Does nothing: there are no sessions to configure.

        Args:
            session_config, cluster_spec, task_type, task_id: without effect.
        """
        _warn("configure", "nothing: there are no sessions")

    def update_config_proto(self, config_proto: object) -> object:
        """Returns `config_proto` as it is: there are no sessions to configure.

        Args:
            config_proto: of any kind.
        """
        _warn("update_config_proto", "nothing: there are no sessions")
        return config_proto

    def colocate_vars_with(self, colocate_with_variable: object) -> AbstractContextManager[Any]:
        """`extended.colocate_vars_with`.

        Args:
            colocate_with_variable: a variable of this strategy.
        """
        _warn("colocate_vars_with", "extended.colocate_vars_with")
        return self.extended.colocate_vars_with(colocate_with_variable)

    def experimental_assign_to_logical_device(self, tensor: object, logical_device_id: int) -> Any:
        """TPUStrategy's: computes with `tensor` on one of a replica's devices.

        Args:
            tensor: an array in a replica, of any shape and dtype.
            logical_device_id: the number of the device among the replica's, from 0.

        Raises:
            RD20: a replica has one device.
        """
        raise self._one_device("experimental_assign_to_logical_device")

    def experimental_split_to_logical_devices(self, tensor: object, partition_dimensions: Sequence[int]) -> Any:
        """TPUStrategy's: splits `tensor` over a replica's devices.

        Args:
            tensor: an array in a replica, of any shape and dtype.
            partition_dimensions: into how many parts each of its dimensions is split.

        Raises:
            RD20: a replica has one device.
        """
        raise self._one_device("experimental_split_to_logical_devices")

    def experimental_replicate_to_logical_devices(self, tensor: object) -> Any:
        """TPUStrategy's: copies `tensor` to all of a replica's devices.

        Args:
            tensor: an array in a replica, of any shape and dtype.

        Raises:
            RD20: a replica has one device.
        """
        raise self._one_device("experimental_replicate_to_logical_devices")

    def _one_device(self, method: str) -> errors.RefdistError:
        return errors.error("RD20", f"{type(self).__name__}.{method}", "a replica has one device; only TPUStrategy "
                            "gives it several", "Leave the call out, which changes no "
                            "value; to use more devices give the strategy more replicas.")



class Scope(context_stack.Scope):
    """The context manager that `Strategy.scope` returns."""

    def __init__(self, strategy: Strategy) -> None:
        super().__init__()
        self._strategy = strategy

    def __enter__(self) -> Strategy:
        strategy = self._strategy
        require(strategy, Call.SCOPE)
        self._push(strategy.extended._scope_frame(context_stack.frame()))
        return strategy

    def _described(self) -> str:
        return "strategy.scope()"


def _warn(old: str, new: str) -> None:
    call_site.warn(f"Strategy.{old} is deprecated; use {new}", DeprecationWarning)
