"""Slips in checkpoints and in random numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

import refdist
from mutants.slips import instead, slip
from refdist import SyncOnReadVariable, Variable, VariableAggregation
from refdist.random import Generator
from refdist.train import Checkpoint, CheckpointManager, load_checkpoint


def _in_replica() -> bool:
    """Whether one of a strategy's replicas runs, and not the code around them."""
    return refdist.has_strategy() and refdist.get_replica_context() is not None


# --- Checkpoint ----------------------------------------------------------------------------------------------


def _attributes(checkpoint: Any, kind: type) -> dict[str, Any]:
    """The attributes of a checkpoint that are of this kind."""
    return {name: value for name, value in vars(checkpoint).items() if name[0] != "_" and isinstance(value, kind)}


def _first_copy_is_saved(aggregation: VariableAggregation) -> None:
    """Of a variable that is synchronized on read with this aggregation the first copy is written."""
    @instead(Checkpoint, "write")
    def write(right: Any, self: Any, file_prefix: Any, options: Any = None) -> Any:
        first = {name: Variable(variable.values[0].read_value())
                 for name, variable in _attributes(self, SyncOnReadVariable).items()
                 if variable.aggregation is aggregation}
        saved = Checkpoint(**{**_attributes(self, object), **first}) if first else self
        return right(saved, file_prefix, options)


@slip("a variable that is made later keeps its initial value", "checkpoints.made-later")
def _() -> None:
    were_read: WeakSet[Any] = WeakSet()

    @instead(Checkpoint, "read")
    def read(right: Any, self: Any, save_path: Any, options: Any = None) -> Any:
        were_read.add(self)
        return right(self, save_path, options)

    @instead(Checkpoint, "__setattr__")
    def set_attribute(right: Any, self: Any, name: str, value: Any) -> None:
        is_late = isinstance(value, Variable) and self in were_read
        initial = value.read_value() if is_late else None
        right(self, name, value)
        if is_late:
            value.assign(initial)


@slip("the number of saves has to be in the file", "checkpoints.the-number-is-not-asserted")
def _() -> None:
    @instead(refdist.train.Checkpoint, "read")
    def read(right: Any, self: Any, path: Any, *args: Any) -> Any:
        status = right(self, path, *args)
        if "save_counter" not in dict(refdist.train.list_variables(path)):
            status.assert_consumed = status.assert_existing_objects_matched = _unmatched
        return status


def _unmatched() -> None:
    raise AssertionError("save_counter")


@slip("values of replicas are left out", "checkpoints.values-of-replicas-are-not-lost")
def _() -> None:
    @instead(Checkpoint, "__init__")
    def init(right: Any, self: Any, root: Any = None, **kwargs: Any) -> None:
        lost = refdist.PerReplica, np.ndarray
        right(self, root, **{name: value for name, value in kwargs.items() if not isinstance(value, lost)})


def _without_iterators(*kinds: type) -> None:
    """Iterators of these kinds are left out of checkpoints."""
    @instead(Checkpoint, "__init__")
    def init(right: Any, self: Any, root: Any = None, **kwargs: Any) -> None:
        right(self, root, **{name: value for name, value in kwargs.items() if type(value) not in kinds})


@slip("the iterator of a dataset is left out", "checkpoints.iterators")
def _() -> None:
    _without_iterators(refdist.data.Iterator)


@slip("iterators begin again when a checkpoint is read", "checkpoints.iterators-read-each-row-once")
def _() -> None:
    _without_iterators(refdist.data.Iterator)


@slip("the iterator of a distributed dataset is left out", "checkpoints.iterators-of-distributed-datasets")
def _() -> None:
    _without_iterators(refdist.DistributedIterator)


@slip("the iterator of a generator is saved without its position", "checkpoints.iterators-of-generators")
def _() -> None:
    _without_iterators(refdist.data.Iterator)


@slip("every name of a variable needs a value", "checkpoints.two-names")
def _() -> None:
    @instead(Checkpoint, "read")
    def read(right: Any, self: Any, save_path: Any, options: Any = None) -> Any:
        status = right(self, save_path, options)
        inner = {f"{name}/{own}" for name, child in _attributes(self, Checkpoint).items()
                 for own in _attributes(child, Variable)}
        if not {*_attributes(self, Variable), *inner} <= set(load_checkpoint(save_path).get_variable_to_shape_map()):
            status.assert_consumed = _fails
        return status


def _fails() -> None:
    raise AssertionError("a name has no value")


@slip("what was read waits for the next reading", "checkpoints.on-read-made-later")
def _() -> None:
    @instead(Checkpoint, "__setattr__")
    def set_attribute(right: Any, self: Any, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@slip("shapes are compared while variables are assigned", "checkpoints.shapes-must-agree")
def _() -> None:
    @instead(Checkpoint, "read")
    def read(right: Any, self: Any, save_path: Any, options: Any = None) -> Any:
        try:
            return right(self, save_path, options)
        except ValueError:
            saved = load_checkpoint(save_path)
            for name, variable in _attributes(self, Variable).items():
                if saved.has_tensor(name):
                    variable.assign(saved.get_tensor(name))  # raises where the shape is another one
            raise


@slip("a value is converted to the dtype of the variable", "checkpoints.dtypes-must-agree")
def _() -> None:
    @instead(Checkpoint, "read")
    def read(right: Any, self: Any, save_path: Any, options: Any = None) -> Any:
        saved = load_checkpoint(save_path)
        variables = _attributes(self, Variable)
        others = {name: variable for name, variable in variables.items()
                  if saved.has_tensor(name) and saved.get_tensor(name).dtype != variable.dtype}
        if not others:
            return right(self, save_path, options)
        same = {name: value for name, value in _attributes(self, object).items() if name not in others}
        status = right(Checkpoint(**same), save_path, options)
        for name, variable in others.items():
            variable.assign(saved.get_tensor(name).astype(variable.dtype))
        return status


@slip("replicas write checkpoints", "checkpoints.not-in-replicas")
def _() -> None:
    @instead(Checkpoint, "write")
    def write(right: Any, self: Any, file_prefix: Any, options: Any = None) -> Any:
        context = refdist.get_replica_context()
        if context is None or not refdist.has_strategy():
            return right(self, file_prefix, options)
        return context.merge_call(lambda strategy: right(self, file_prefix, options))


@slip("files are numbered from 0", "checkpoints.numbered")
def _() -> None:
    have_saved: WeakSet[Any] = WeakSet()

    @instead(Checkpoint, "save")
    def save(right: Any, self: Any, file_prefix: Any, options: Any = None) -> Any:
        if self not in have_saved and int(self.save_counter) == 0:
            self.save_counter.assign(-1)
        have_saved.add(self)
        return right(self, file_prefix, options)


@slip("restore goes on with the numbers from before", "checkpoints.numbered")
def _() -> None:
    @instead(Checkpoint, "restore")
    def restore(right: Any, self: Any, save_path: Any, options: Any = None) -> Any:
        number = int(self.save_counter)
        status = right(self, save_path, options)
        self.save_counter.assign(number)
        return status


@slip("saving leaves the sum in each copy", "checkpoints.saving-changes-nothing")
def _() -> None:
    @instead(Checkpoint, "write")
    def write(right: Any, self: Any, file_prefix: Any, options: Any = None) -> Any:
        path = right(self, file_prefix, options)
        for variable in _attributes(self, SyncOnReadVariable).values():
            variable.distribute_strategy.extended.update(
                variable, lambda copy, total: copy.assign(total), args=(variable.read_value(),))
        return path


@slip("of a sum the first copy is saved", "checkpoints.on-read-sum")
def _() -> None:
    _first_copy_is_saved(VariableAggregation.SUM)


@slip("without aggregation the first copy is saved", "checkpoints.on-read-none")
def _() -> None:
    _first_copy_is_saved(VariableAggregation.NONE)


# --- CheckpointManager ---------------------------------------------------------------------------------------


@slip("a manager keeps one file more than it should", "checkpoints.manager")
def _() -> None:
    @instead(CheckpointManager, "__init__")
    def made(right: Any, self: Any, checkpoint: Any, directory: Any, max_to_keep: Any, *args: Any,
             **kwargs: Any) -> None:
        most = max_to_keep + 1 if isinstance(max_to_keep, int) else max_to_keep
        right(self, checkpoint, directory, most, *args, **kwargs)


@slip("a manager that deletes spares no checkpoint, however old", "checkpoints.manager-deletes-what-it-does-not-keep")
def _() -> None:
    @instead(CheckpointManager, "__init__")
    def made(right: Any, self: Any, *args: Any, keep_checkpoint_every_n_hours: Any = None, **kwargs: Any) -> None:
        right(self, *args, **kwargs)


@slip("a manager deletes nothing", "checkpoints.manager-deletes-what-it-does-not-keep")
def _() -> None:
    @instead(CheckpointManager, "__init__")
    def made(right: Any, self: Any, *args: Any, keep_checkpoint_every_n_hours: Any = None, **kwargs: Any) -> None:
        right(self, *args, keep_checkpoint_every_n_hours=1e-12, **kwargs)


@slip("a manager saves in every interval", "checkpoints.manager-with-an-interval")
def _() -> None:
    @instead(CheckpointManager, "__init__")
    def made(right: Any, self: Any, *args: Any, step_counter: Any = None, checkpoint_interval: Any = None,
             **kwargs: Any) -> None:
        right(self, *args, **kwargs)


@slip("a manager knows only the files that it saved itself", "checkpoints.manager")
def _() -> None:
    own: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()

    @instead(CheckpointManager, "save")
    def save(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        path = right(self, *args, **kwargs)
        own.setdefault(self, []).append(path)
        return path

    @instead(CheckpointManager, "checkpoints")
    def checkpoints(right: Any, self: Any) -> Any:
        return [path for path in right(self) if path in own.get(self, [])]


@slip("a manager initializes also what it has restored", "checkpoints.manager-of-an-empty-folder")
def _() -> None:
    initialize: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @instead(CheckpointManager, "__init__")
    def made(right: Any, self: Any, *args: Any, init_fn: Any = None, **kwargs: Any) -> None:
        right(self, *args, init_fn=init_fn, **kwargs)
        if init_fn is not None:
            initialize[self] = init_fn

    @instead(CheckpointManager, "restore_or_initialize")
    def restore_or_initialize(right: Any, self: Any) -> Any:
        path = right(self)
        if path is not None and self in initialize:
            initialize[self]()
        return path


# --- Generator -----------------------------------------------------------------------------------------------


def _draws(draw: Callable[[Any, Any, str, Any, Any], Any]) -> None:
    """Each method that draws numbers does `draw(right, generator, its name, args, kwargs)`."""
    def replace(name: str) -> None:
        @instead(Generator, name)
        def method(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            return draw(right, self, name, args, kwargs)

    for name in ("normal", "truncated_normal", "uniform", "uniform_full_int"):
        replace(name)


def _states_after_draws(change: Callable[[Any, Any, int], Any]) -> None:
    """After a draw the state is what `change` makes of the one before, of the right one, and of how many numbers were
    drawn; but not in a replica that draws from a generator of no strategy, whose state it cannot replace."""
    def draw(right: Any, generator: Any, name: str, args: Any, kwargs: Any) -> Any:
        before = generator.state.read_value()
        numbers = right(generator, *args, **kwargs)
        if generator.state.distribute_strategy is not None or not _in_replica():
            generator.reset(change(before, generator.state.read_value(), np.size(numbers)))
        return numbers

    _draws(draw)


@slip("replicas draw the same numbers", "random_numbers.replicas-differ")
def _() -> None:
    # What was drawn first from a state, by a generator and by the state and the call.
    drawn: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    def draw(right: Any, generator: Any, name: str, args: Any, kwargs: Any) -> Any:
        call = f"{generator.state.read_value()} {name} {args} {kwargs}"
        numbers = right(generator, *args, **kwargs)
        return drawn.setdefault(generator, {}).setdefault(call, numbers) if _in_replica() else numbers

    _draws(draw)


@slip("the stream of a replica depends on how many there are", "random_numbers.numbers-of-replicas")
def _() -> None:
    # The replicas that have begun to draw from a generator.
    begun: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()

    def draw(right: Any, generator: Any, name: str, args: Any, kwargs: Any) -> Any:
        context = refdist.get_replica_context()
        if _in_replica() and generator.state.distribute_strategy is context.strategy:
            replicas = begun.setdefault(generator, set())
            if context.replica_id_in_sync_group not in replicas:
                generator.skip(context.num_replicas_in_sync - 1)
            replicas.add(context.replica_id_in_sync_group)
        return right(generator, *args, **kwargs)

    _draws(draw)


@slip("the state of a generator may be split", "parameter_servers.generators-are-not-split")
def _() -> None:
    @instead(Generator, "from_seed")
    def from_seed(right: Any, cls: Any, seed: Any, alg: Any = None) -> Any:
        with contextlib.suppress(NotImplementedError, ValueError):
            return right(cls, seed, alg)


@slip("of a cluster only one task evaluates", "parameter_servers.the-cluster-needs-workers-and-servers")
def _() -> None:
    @instead(refdist.ParameterServerStrategy, "__init__")
    def made(right: Any, self: Any, cluster_resolver: Any, variable_partitioner: Any = None) -> None:
        jobs = cluster_resolver.cluster_spec().as_dict()
        if len(jobs.get("evaluator", ())) > 1:
            spec = refdist.train.ClusterSpec({**jobs, "evaluator": jobs["evaluator"][:1]})
            cluster_resolver = refdist.cluster_resolver.SimpleClusterResolver(spec)
        right(self, cluster_resolver, variable_partitioner)


@slip("a strategy ends when its TPU is initialized again", "tpu.strategies-go-on-after-an-initialization")
def _() -> None:
    initialized: list[int] = []
    made: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    @instead(refdist.tpu.experimental, "initialize_tpu_system")
    def initialize(right: Any, cluster_resolver: Any = None) -> Any:
        initialized.append(1)
        return right(cluster_resolver)

    @instead(refdist.TPUStrategy, "run")
    def run(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if made.setdefault(self, 0) != len(initialized):
            raise RuntimeError("the TPU is a new one")
        return right(self, *args, **kwargs)


@slip("values of one length are gathered on TPUs", "tpu.gathered-values")
def _() -> None:
    @instead(refdist.TPUStrategy, "gather")
    def gather(right: Any, self: Any, value: Any, axis: Any) -> Any:
        if isinstance(value, refdist.PerReplica) and len({part.shape for part in value.values}) > 1:
            raise ValueError("the shapes differ")
        return right(self, value, axis)


@slip("outside of replicas the stream is replica 0's", "random_numbers.outside-of-replicas")
def _() -> None:
    def draw(right: Any, generator: Any, name: str, args: Any, kwargs: Any) -> Any:
        strategy = generator.state.distribute_strategy
        if strategy is None or _in_replica():
            return right(generator, *args, **kwargs)
        return strategy.experimental_local_results(strategy.run(lambda: right(generator, *args, **kwargs)))[0]

    _draws(draw)


@slip("a draw advances by the numbers that were drawn", "random_numbers.state")
def _() -> None:
    _states_after_draws(lambda before, after, count: before + np.array([count, 0, 0]))


@slip("the key is the first number of the state", "random_numbers.states-of-replicas")
def _() -> None:
    _states_after_draws(lambda before, after, count: after[[2, 0, 1]])


@slip("a state that is passed is copied", "random_numbers.shared-variable")
def _() -> None:
    @instead(Generator, "__init__")
    def made(right: Any, self: Any, copy_from: Any = None, state: Any = None, alg: Any = None) -> None:
        right(self, copy_from, state.read_value() if isinstance(state, Variable) else state, alg)


@slip("a generator made outside advances one copy of its state", "random_numbers.given-states-outside-of-replicas")
def _() -> None:
    @instead(Generator, "skip")
    def skip(right: Any, self: Any, delta: Any) -> Any:
        strategy = self.state.distribute_strategy
        others = [] if strategy is None or self._strategy or _in_replica() else strategy.experimental_local_results(
            self.state)[1:]
        before = [copy.read_value() for copy in others]
        skipped = right(self, delta)
        for copy, state in zip(others, before, strict=True):
            copy.assign(state)
        return skipped


@slip("a generator advances no variable from outside its scope", "random_numbers.given-variables-outside-of-replicas")
def _() -> None:
    @instead(Generator, "uniform_full_int")
    def drawn(right: Any, self: Any, *arguments: Any) -> Any:
        if self._strategy and self.state.distribute_strategy is None and not _in_replica():
            raise AssertionError
        return right(self, *arguments)


@slip("the state of a generator is one for all replicas", "random_numbers.replicas-draw-independently")
def _() -> None:
    @instead(Generator, "__init__")
    def made(right: Any, self: Any, copy_from: Any = None, state: Any = None, alg: Any = None) -> None:
        if isinstance(state, np.ndarray):
            state = Variable(state, trainable=False, aggregation=VariableAggregation.ONLY_FIRST_REPLICA)
        right(self, copy_from, state, alg)


@slip("the upper bound is drawn, too", "random_numbers.uniform")
def _() -> None:
    @instead(Generator, "uniform")
    def uniform(right: Any, self: Any, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = np.float32,
                name: Any = None) -> Any:
        high = maxval + 1 if isinstance(maxval, int) and np.dtype(dtype).kind == "i" else maxval
        return right(self, shape, minval, high, dtype, name)


@slip("a generator is split without going on", "random_numbers.split")
def _() -> None:
    @instead(Generator, "split")
    def split(right: Any, self: Any, count: Any = 1) -> Any:
        before = self.state.read_value()
        generators = right(self, count)
        self.reset(before)
        return generators


@slip("skip counts blocks of four numbers", "random_numbers.skip")
def _() -> None:
    @instead(Generator, "skip")
    def skip(right: Any, self: Any, delta: Any) -> Any:
        return right(self, -(-delta // 4) if isinstance(delta, int) else delta)


@slip("a seed of a reset is drawn from the old stream", "random_numbers.reset")
def _() -> None:
    @instead(Generator, "reset_from_seed")
    def reset_from_seed(right: Any, self: Any, seed: Any) -> None:
        before = self.state.read_value()
        right(self, seed)
        self.reset(before + self.state.read_value())


@slip("the global generator is not replaced", "random_numbers.global")
def _() -> None:
    @instead(refdist.random, "set_global_generator")
    def set_global_generator(right: Any, generator: Any) -> None:
        if isinstance(generator, Generator):
            refdist.random.get_global_generator()  # the one that there is, or else a new one
        else:
            right(generator)


@slip("an unknown algorithm is the default one", "random_numbers.unknown-algorithms")
def _() -> None:
    known = {algorithm.name.lower() for algorithm in refdist.random.Algorithm}

    @instead(Generator, "from_seed")
    def from_seed(right: Any, cls: Any, seed: Any, alg: Any = None) -> Any:
        return right(cls, seed, None if isinstance(alg, str) and alg.lower() not in known else alg)


@slip("replicas copy a variable that is given as the state", "random_numbers.streams-of-a-given-variable")
def _() -> None:
    @instead(Generator, "from_state")
    def from_state(right: Any, cls: Any, state: Any, alg: Any) -> Any:
        is_shared = isinstance(state, Variable) and refdist.has_strategy()
        return right(cls, state.numpy() if is_shared else state, alg)


@slip("a generator belongs to the central storage of its state", "random_numbers.given-variables-under-central-storage")
def _() -> None:
    @instead(Generator, "from_state")
    def from_state(right: Any, cls: Any, state: Any, alg: Any) -> Any:
        strategy = getattr(state, "distribute_strategy", None)
        with strategy.scope() if isinstance(strategy, refdist.experimental.CentralStorageStrategy) else nullcontext():
            return right(cls, state, alg)
