"""`StrategyExtended`: running, reducing and creating variables, for every strategy with one replica per worker device.

Subclasses choose the devices and the kind of variable.  In which context a call is allowed is not decided here but in
the table CALLS.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, assert_never

from refdist import config, errors, journal, nest
from refdist.array import replica_checks
from refdist.array.backend import Backend, chosen, current_backend
from refdist.core import checks, context_stack, devices, inherited, lockstep
from refdist.core.callers import require
from refdist.core.chooser import chooser
from refdist.core.drafts import Drafts
from refdist.core.rules.calls import Call
from refdist.core.rules.options import ReduceOp, reduce_op_of
from refdist.core.rules.table import Refusal
from refdist.core.rules.values import FROM_FUNCTION, LOCAL_NEST, LOCAL_VALUE, Local, Result
from refdist.core.rules.variables import FOREIGN_UPDATES, Keeps, Kind
from refdist.data.dataset import Dataset
from refdist.missing import lacks
from refdist.strategies.base import OneOfAKind, Strategy, ValueContext
from refdist.strategies.communication import CommunicationOptions, check_options
from refdist.strategies.cross_device_ops import CrossDeviceOps, check_pairs, destinations_of
from refdist.strategies.reduction import Reduction, recorded
from refdist.strategies.replica_context import ReplicaContext, call_arguments, function_name
from refdist.variables import creation
from refdist.variables.access import different, foreign
from refdist.variables.distributed import KIND_CLASS
from refdist.variables.habits import Habits
from refdist.variables.values import (
    DistributedValues,
    PerReplica,
    check_components,
    check_count,
    on_device,
    regroup,
    splitter,
)
from refdist.variables.variable import ResourceVariable, Variable, as_variable
from refdist.workers.transport import LoneWorker, Transport


@lacks({
    "experimental_run_steps_on_iterator": "Write a loop.",
    "experimental_enable_get_next_as_optional": "Leave it out: iterators end where the data do.",
    "worker_devices_by_replica": "Write `worker_devices`, which has a device for each replica.",
})
class StrategyExtended(OneOfAKind):
    """The less common methods of a strategy, for those who write libraries on top of it.

    Args:
        container_strategy: the strategy this belongs to.
        worker_devices: names of the devices of this worker's replicas, at least one.
        parameter_devices: names of the devices of variables; None for those of the replicas.
        cross_device_ops: how values are reduced over devices; None for ReductionToOneDevice.
        transport: the other workers; None for no others.
        through: what reduces and gathers between the workers, where that is not `transport` itself.

    Source: tf.distribute.StrategyExtended.
    """

    # What is kept of a variable: a column of the table CREATION.
    _keeps = Keeps.COPIES
    kinds: Mapping[Kind, type] = KIND_CLASS
    _ordered = True
    # TPUs gather arrays of one shape only.
    _lengths_may_differ = True
    _context: type[ReplicaContext] = ReplicaContext
    # The default strategy follows the choice of a backend; it is made before there is one.
    _keeps_backend = True

    def __init__(self, container_strategy: Strategy, *, worker_devices: Sequence[str] = ("CPU:0",),
                 parameter_devices: Sequence[str] | None = None,
                 cross_device_ops: CrossDeviceOps | None = None, transport: Transport | None = None,
                 through: Transport | None = None) -> None:
        self._strategy = container_strategy
        devices = tuple(map(config.check_device, worker_devices))
        self._parameter_devices = (devices if parameter_devices is None
                                   else tuple(map(config.check_device, parameter_devices)))
        self._backend = current_backend() if self._keeps_backend else None
        self.transport = transport or LoneWorker()
        self.layout = layout = self.transport.layout(devices)
        # What is reduced or gathered may be a guest's arrays, which go through the memory of the host.
        self.reduction = Reduction(cross_device_ops, through or self.transport, devices, self._current_backend,
                                   self._ordered, self._lengths_may_differ)
        self.runs = 0
        self.habits = Habits()
        self._contexts = [self._context._of(container_strategy, layout.first + i, self.reduction)
                          for i in range(layout.count)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._strategy!r}>"

    # Facts.

    @property
    def backend(self) -> Backend:
        """The backend that holds the arrays: the one in use when the strategy was made.

        Raises:
            RD27: another one is in use now.
        """
        return self._current_backend()

    def _current_backend(self) -> Backend:
        if self._backend is not None and self._backend is chosen.value:  # nearly always
            return self._backend
        now = current_backend()
        if self._backend is not None and self._backend is not now:
            own, current = f'"{self._backend.name}"', f'"{now.name}"'
            raise errors.error("RD27", type(self._strategy).__name__,
                               f"it was made with the backend {own}, and {current} is in use now",
                               f"Create one after `set_backend({current})`, or go back with `set_backend({own})`.",
                               kind=errors.InvalidContextError)
        return now

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Canonical names of the devices that replicas run on, one per replica."""
        return self.layout.devices

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """Canonical names of the devices that variables are on."""
        return self._parameter_devices

    @property
    def experimental_require_static_shapes(self) -> bool:
        """Whether shapes must be known before running: never."""
        return False

    @property
    def experimental_between_graph(self) -> bool:
        """Whether every worker runs the program itself: no, there is one worker."""
        return False

    @property
    def experimental_should_init(self) -> bool:
        """Whether this worker initializes variables: yes."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this worker writes checkpoints: yes."""
        return True

    @property
    def should_save_summary(self) -> bool:
        """Whether this worker writes summaries: yes."""
        return True

    def experimental_make_numpy_dataset(self, numpy_input: object, session: object = None) -> Dataset:
        """A dataset of the rows of arrays; a list of arrays is stacked.

        Args:
            numpy_input: an array, or a nest of arrays, with equally many rows.
            session: without effect.

        Source: tf.compat.v1.distribute.StrategyExtended.experimental_make_numpy_dataset.
        """
        return Dataset.from_tensor_slices(numpy_input)

    def agreed_seed(self) -> int:
        """A random number, the same on all workers."""
        call = self.transport.call("agreeing on a seed")
        seed: int = self.transport.all_gather_object(call, random.getrandbits(62))[0]
        return seed

    def check_reader(self, attempted: str) -> None:
        """Raises if distributed datasets cannot be read where the code runs; here they always can.

        Args:
            attempted: what the program does, for messages.
        """

    # Running.

    def _scope_frame(self, top: context_stack.Frame) -> context_stack.Frame:
        creators = top.creators if top.strategy is self._strategy else (*top.creators, self._create_variable)
        return context_stack.Frame(top, self._strategy, context_stack.CROSS, device=top.device, creators=creators)

    def call_for_each_replica(self, fn: Callable[..., object], args: Sequence[object] = (),
                              kwargs: Mapping[str, object] | None = None) -> Any:
        """The same as `Strategy.run`.

        Args:
            fn, args, kwargs: as in `Strategy.run`.

        Source: tf.compat.v1.distribute.StrategyExtended.call_for_each_replica.
        """
        require(self._strategy, Call.CALL_FOR_EACH_REPLICA)
        return self._strategy.run(fn, args, kwargs)

    def _run(self, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        self.runs += 1
        strategy, contexts, layout = self._strategy, self._contexts, self.layout
        names, first = layout.devices, layout.first
        if args or kwargs:
            check_components([args, kwargs], layout.count, "Strategy.run")
        args_of, kwargs_of = splitter(args) if args else None, splitter(kwargs) if kwargs else None
        # Raises unless it is the strategy's own; chooses it now if none has been chosen.
        backend = self._current_backend()
        places = backend.array_types  # arrays of a library lie on devices
        scope = self._scope_frame(context_stack.frame())
        creators = scope.creators
        if layout.count > 1 and creators[-1] != self._create_variable:  # creators that were entered inside the scope
            creators = (*creators, creation.for_all_replicas)
        sink = journal.recording.value
        name = "" if sink is None else function_name(fn)
        event = None if sink is None else sink.begin(
            "run", function=name, strategy=type(strategy).__name__, first=first, replicas=layout.count,
            devices=[devices.short(name) for name in names])
        error: BaseException | None = None

        def body(i: int, run: lockstep.LockstepRun | None) -> Any:
            context_stack.top.set(context_stack.Frame(scope, strategy, context_stack.REPLICA, contexts[i], i, run,
                                                      names[i], creators))
            my_args = args if args_of is None else args_of(i)
            my_kwargs = kwargs if kwargs_of is None else kwargs_of(i)
            function = fn
            if checks.types.value and layout.total > 1:
                function = replica_checks.followed(fn)  # from here on, tensors of PyTorch have types
                my_args, my_kwargs = nest.map_structure(replica_checks.argument, (my_args, my_kwargs))
            if places:
                backend.use(names[i])
                my_args, my_kwargs = on_device(my_args), on_device(my_kwargs)
            if sink is None or event is None:
                # In CPython `function()` is faster than `function(*(), **{})`.
                return function(*my_args, **my_kwargs) if my_args or my_kwargs else function()
            if run is not None:
                run.event = event
            entered = sink.enter(event, name)
            try:
                result = function(*my_args, **my_kwargs)
            except BaseException as error:
                sink.leave(entered, error)
                raise
            sink.leave(entered, None, result)
            return result

        try:
            if layout.count == 1:
                results = [inherited.call(backend.states, body, 0, None)]
            elif (turns := chooser.value) is None:
                results = lockstep.run(layout.count, body, config.order(layout.count), "strategy.run", scope,
                                       backend.states, first)
            else:
                results = lockstep.run(layout.count, body, turns.order(layout.count, fn, args, kwargs),
                                       "strategy.run", scope, backend.states, first, meets=turns.meet)
                turns.ended(results)
        except BaseException as raised:
            errors.explain_read_only(raised)
            error = raised
            raise
        finally:
            if sink is not None and event is not None:
                sink.end(event, error)
        return self._together(results)

    def _together(self, results: Sequence[object]) -> Any:
        # What `run` returns.
        return regroup(results, self.layout.devices, "result of strategy.run", Result.RUN, self.value_container)

    # Reducing and broadcasting.

    def reduce_to(self, reduce_op: ReduceOp | str, value: object, destinations: object,
                  options: CommunicationOptions | None = None) -> Any:
        """Reduces a distributed value to the devices of `destinations`.

        Args:
            reduce_op: ReduceOp.SUM or ReduceOp.MEAN, or the name.
            value: a PerReplica of arrays or IndexedSlices, of numbers of one shape and dtype, or a nest of them.
            destinations: a device name, an array, a variable or a distributed value.
            options: a CommunicationOptions, or None.

        Returns:
            A Mirrored, or one read-only array for a single device, of the same shape; of a nest, a nest of them.  SUM
            keeps the dtype; MEAN of integers is a float.

        >>> import refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> value = strategy.run(lambda: refdist.constant(1.0))
        >>> strategy.extended.reduce_to("SUM", value, "GPU:1")
        array(2., dtype=float32)

        Raises:
            RD04, RD05, RD23: values that do not fit.  RD09, RD10: wrong context.
            RD16: SUM of a value that is not distributed.  RD25, RD34: bad arguments.

        Source: tf.distribute.StrategyExtended.reduce_to.
        """
        require(self._strategy, Call.REDUCE_TO)
        op = reduce_op_of(reduce_op, "reduce_to")
        check_options(options, "reduce_to")
        target = destinations_of(destinations, "reduce_to")
        return recorded("reduce_to", op, None, value, lambda: nest.map_structure(
            lambda leaf: self.reduction.reduce_value(op, leaf, target, "reduce_to", options), value))

    def batch_reduce_to(self, reduce_op: ReduceOp | str,
                        value_destination_pairs: Sequence[tuple[object, object]],
                        options: CommunicationOptions | None = None) -> list[Any]:
        """`reduce_to` for several (value, destinations) pairs at once, which are all checked first.

        Args:
            reduce_op: SUM or MEAN, or its name.
            value_destination_pairs: for each a PerReplica of arrays or IndexedSlices, of numbers of one shape and
                dtype, and where its result goes, as in `reduce_to`.
            options: hints to the implementation; None for the defaults.

        Returns:
            A list with the result of each pair, as of `reduce_to`.

        Raises:
            RD25, RD34: bad arguments; also a nest as a value: pass one pair for each array.
            What `reduce_to` raises.

        Source: tf.distribute.StrategyExtended.batch_reduce_to.
        """
        require(self._strategy, Call.BATCH_REDUCE_TO)
        op = reduce_op_of(reduce_op, "batch_reduce_to")
        check_options(options, "batch_reduce_to")
        pairs = [(value, destinations_of(destinations, "batch_reduce_to"))
                 for value, destinations in check_pairs(value_destination_pairs, "batch_reduce_to")]
        for value, _ in pairs:
            if nest.is_nested(value):
                raise errors.error("RD34", "batch_reduce_to", f"a value is {errors.type_of(value)}",
                                   "Pass one pair for each array.")
        results: list[Any] = recorded(
            "batch_reduce_to", op, None, [value for value, _ in pairs],
            lambda: self.reduction.reduce_pairs(op, pairs, "batch_reduce_to", options))
        return results

    def broadcast_to(self, tensor: object, destinations: object) -> Any:
        """An array on all devices of `destinations`.

        Args:
            tensor: an array of any shape and dtype.
            destinations: a device name, or an array, variable or distributed value, whose devices are taken.

        Source: tf.compat.v1.distribute.StrategyExtended.broadcast_to.
        """
        require(self._strategy, Call.BROADCAST_TO)
        self._current_backend()  # raises unless it is the strategy's own
        return self.reduction.ops.broadcast(tensor, destinations)

    # Variables.

    def _create_variable(self, next_creator: Callable[..., object], **kwargs: object) -> Any:
        return creation.create(self._strategy, self._keeps, self._parameter_devices, next_creator, kwargs)

    def variable_created_in_scope(self, v: object) -> bool:
        """Whether `v` was created by this strategy.

        Args:
            v: a variable.

        Raises:
            RD25: not a variable.

        Source: tf.distribute.StrategyExtended.variable_created_in_scope.
        """
        return as_variable(v, "variable_created_in_scope", "v")._strategy is self._strategy

    def value_container(self, value: object) -> Any:
        """The distributed variable that a copy belongs to; anything else is returned as it is.

        Args:
            value: of any kind, most often a copy of a distributed variable.

        Source: tf.distribute.StrategyExtended.value_container.
        """
        if type(value) is ResourceVariable and value._owner is not None:
            return value._owner
        return value

    def read_var(self, v: object) -> Any:
        """The value of a variable in the current context.

        Args:
            v: a variable.

        Source: tf.compat.v1.distribute.StrategyExtended.read_var.
        """
        return as_variable(v, "read_var", "v").read_value()

    def colocate_vars_with(self, colocate_with_variable: object) -> AbstractContextManager[Any]:
        """A scope whose new variables have copies on the same devices as the given one.

        Args:
            colocate_with_variable: a variable of this strategy.

        Raises:
            RD11: a variable of another strategy.  RD09, RD10: wrong context.  RD25: not a variable.

        Source: tf.distribute.StrategyExtended.colocate_vars_with.
        """
        require(self._strategy, Call.COLOCATE_VARS_WITH)
        variable = as_variable(colocate_with_variable, "colocate_vars_with", "colocate_with_variable")
        if not self.variable_created_in_scope(variable):
            raise foreign(f"colocate_vars_with of variable {variable.name}", variable)
        return nullcontext()

    # Values.

    def _local_results(self, value: object) -> tuple[Any, ...]:
        if isinstance(value, DistributedValues):
            match LOCAL_VALUE[self._keeps]:
                case Local.COMPONENTS:
                    return value.values
                case Local.BARE:
                    return (value,)
                case cell:
                    assert_never(cell)
        if not nest.is_nested(value):
            return (value,)
        match LOCAL_NEST[self._keeps]:
            case Local.NEST_EACH:
                leaves = nest.flatten(value)
                for leaf in leaves:
                    if isinstance(leaf, DistributedValues):
                        check_count(leaf, self.layout.count, "experimental_local_results")
                return tuple(nest.pack_sequence_as(value, [
                    leaf.values[i] if isinstance(leaf, DistributedValues) else leaf for leaf in leaves])
                    for i in range(self.layout.count))
            case Local.BARE:
                return (value,)
            case cell:
                assert_never(cell)

    def _values_from_function(self, value_fn: Callable[[ValueContext], object]) -> Any:
        layout = self.layout
        values = [value_fn(ValueContext(layout.first + i, layout.total)) for i in range(layout.count)]
        match FROM_FUNCTION[self._keeps]:
            case Local.BARE:
                return values[0]
            case Local.PER_REPLICA:
                return regroup(values, layout.devices, "experimental_distribute_values_from_function", Result.VALUES,
                               self.value_container)
            case cell:
                assert_never(cell)

    # Updates: a function called for every copy of a variable, or on every device.
    #
    # Each call is made in a context of its own, in which that copy, and no other, may be written alone.  Nothing stops
    # the function from writing other variables there, or from failing half-way, so what it writes goes to drafts
    # (`core/drafts`).  At the end the copies of every variable written must be as `COPIES_DIFFER` says; else, and on
    # any error, all drafts are dropped.  So either all copies are updated, or nothing has changed.
    #
    # In a replica the update is a `merge_call`: all replicas arrive at it, and it is carried out once.

    def update(self, var: object, fn: Callable[..., object], args: Sequence[object] = (),
               kwargs: dict[str, object] | None = None, group: bool = True) -> Any:
        """Calls `fn(copy, *args, **kwargs)` for every copy of `var`, on its device.

        Args:
            var: a variable of this strategy.
            fn: the update; afterwards all copies of a mirrored variable must be equal.
            args, kwargs: passed on; of a PerReplica or Mirrored each copy gets its own component.
            group: True puts the results together, leaf by leaf: arrays and IndexedSlices become Mirrored, the
                copies of a variable become that variable, an object that is the same for every copy stays as it
                is, and anything else becomes None.

        In a replica all replicas call it together, and the update is carried out once.

        Returns:
            The results put together; with `group=False`, a tuple with the result of each copy.

        Raises:
            RD02: replicas update different variables.
            RD11: a variable of another strategy.
            RD12: the copies would differ.  RD21: results of different structure.  Nothing is changed then.
            RD25, RD34: not a variable.

        Source: tf.distribute.StrategyExtended.update.
        """
        require(self._strategy, Call.UPDATE)
        variable = as_variable(var, "update", "var", "RD34")
        if not callable(fn):
            raise errors.error("RD25", "update", f"fn is {fn!r}", "Pass a function of a variable.")
        args, kwargs = call_arguments(args, kwargs, "update")
        cell = FOREIGN_UPDATES[variable._kind][self._keeps]
        if variable._strategy is not self._strategy and isinstance(cell, Refusal):
            by = f"{errors.type_of(self._strategy)} of {errors.counted(self.layout.count, 'replica')}"
            raise foreign(f"update of variable {variable.name} by {by}", variable, cell.code)
        frame = context_stack.frame()
        if frame.replica is not None and frame.strategy is self._strategy:
            return frame.replica.merge_call(
                lambda strategy, target, *a, **k: self._update(_the_same(target), fn, a, k, group),
                (variable, *args), kwargs)
        return self._update(variable, fn, args, kwargs, group)

    def _update(self, variable: Variable, fn: Callable[..., object], args: tuple[object, ...],
                kwargs: dict[str, object], group: bool) -> Any:
        copies = variable._copies
        # A single copy may be updated from arguments with a component for each replica.
        check_components([args, kwargs], len(copies) if len(copies) > 1 else self.layout.count, "update")
        args_of, kwargs_of = splitter(args), splitter(kwargs)
        return self._call_for_each_copy(
            [copy._device for copy in copies], lambda i: fn(copies[i], *args_of(i), **kwargs_of(i)), group)

    def _call_for_each_copy(self, names: Sequence[str], call: Callable[[int], object], group: bool) -> Any:
        top = context_stack.frame()
        drafts = Drafts()
        creators = self._scope_frame(top).creators
        results = []
        try:
            for i, name in enumerate(names):
                frame = context_stack.Frame(top, self._strategy, context_stack.UPDATE, None, i, None, name,
                                            creators, drafts)
                with context_stack.pushed(frame), self.backend.device(name), \
                        journal.span("update", copy=i):
                    results.append(call(i))
            drafts.settle()
            if group:
                together = regroup(results, names, "results of update", Result.UPDATE, self.value_container)
            else:
                each = regroup(results, names, "results of update", Result.VALUES, self.value_container)
                together = nest.map_structure(lambda leaf: leaf.values, each)
            drafts.store()
            return together
        except BaseException as error:
            drafts.put_back()
            errors.explain_read_only(error)
            raise

    def update_non_slot(self, colocate_with: object, fn: Callable[..., object], args: Sequence[object] = (),
                        kwargs: dict[str, object] | None = None, group: bool = True) -> Any:
        """Calls `fn(*args, **kwargs)` once per device of `colocate_with`.

        Args:
            colocate_with: a device name, or a list of them, as `non_slot_devices` returns them.
            fn: the update.
            args, kwargs: passed on; of a PerReplica or Mirrored each device gets its own component.
            group: as for `update`.

        Returns:
            As `update`.

        Raises:
            RD12, RD21: as `update`.  RD25, RD34: no device, or not a function.

        Source: tf.compat.v1.distribute.StrategyExtended.update_non_slot.
        """
        require(self._strategy, Call.UPDATE_NON_SLOT)
        names = (colocate_with,) if isinstance(colocate_with, str) else colocate_with
        if not isinstance(names, (list, tuple)) or not names:
            raise errors.error("RD34", "update_non_slot", f"colocate_with is {colocate_with!r}",
                               "Pass device names, as `non_slot_devices` returns them.")
        names = [config.check_device(name) for name in names]
        if not callable(fn):
            raise errors.error("RD25", "update_non_slot", f"fn is {fn!r}", "Pass a function.")
        args, kwargs = call_arguments(args, kwargs, "update_non_slot")
        check_components([args, kwargs], len(names), "update_non_slot")
        args_of, kwargs_of = splitter(args), splitter(kwargs)
        return self._call_for_each_copy(names, lambda i: fn(*args_of(i), **kwargs_of(i)), group)

    def non_slot_devices(self, var_list: object) -> tuple[str, ...]:
        """The devices for state that belongs to no variable.

        Args:
            var_list: variables; without effect.

        Source: tf.compat.v1.distribute.StrategyExtended.non_slot_devices.
        """
        return self._parameter_devices


def _the_same(merged: Variable | PerReplica) -> Variable:
    # merge_call puts one variable together again, and different ones into a PerReplica.
    if isinstance(merged, Variable):
        return merged
    raise different("extended.update", merged.values)
