"""Slips in run, in merge_call and in losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import refdist
from mutants.slips import instead, slip
from refdist import Mirrored, PerReplica, ReplicaContext, Strategy, nest


class _Sealed:
    """An object in which nobody looks for distributed values."""

    def __init__(self, content: Any) -> None:
        self.content = content


def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function of the program; that it does not take the arguments is the program's mistake."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        # The traceback ends in what the program calls, or else in this `raise`.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        raise error


def _is_distributed(value: object) -> bool:
    return isinstance(value, (PerReplica, Mirrored))


# --- run -----------------------------------------------------------------------------------------------------


def _results(change: Callable[[list[Any], Any], Any]) -> None:
    """At each place of the structure that `run` returns there is what `change` makes of what the replicas returned
    there, and of the right result."""
    @instead(Strategy, "run")
    def run(right: Any, self: Any, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        returned: dict[int, Any] = {}

        def step(*args: Any, **kwargs: Any) -> Any:
            result = _called(fn, *args, **kwargs)
            returned[refdist.get_replica_context().replica_id_in_sync_group] = result
            return result

        result = right(self, step if callable(fn) else fn, args, kwargs, options)
        columns = zip(*[nest.flatten(returned[number]) for number in sorted(returned)], strict=True)
        return nest.pack_sequence_as(result, [change([*parts], leaf) for parts, leaf in
                                              zip(columns, nest.flatten(result), strict=True)])


def _all_the_same(parts: list[Any]) -> bool:
    return len(parts) > 1 and all(part is parts[0] for part in parts)


def _are_arrays(parts: list[Any]) -> bool:
    return all(isinstance(part, (np.ndarray, np.generic)) for part in parts)


@slip("with one replica run returns a distributed value of one part", "run.one-replica-returns-its-value")
def _() -> None:
    _results(lambda parts, leaf: PerReplica(parts) if len(parts) == 1 else leaf)


@slip("equal results come back once", "run.results")
def _() -> None:
    _results(lambda parts, leaf:
             parts[0] if _are_arrays(parts) and all(np.array_equal(part, parts[0]) for part in parts) else leaf)


@slip("an array that all replicas return comes back alone", "run.one-array-for-all")
def _() -> None:
    _results(lambda parts, leaf: parts[0] if _are_arrays(parts) and _all_the_same(parts) else leaf)


@slip("replicas must return arrays of equal shapes", "run.shapes-may-differ")
def _() -> None:
    def checked(parts: list[Any], leaf: Any) -> Any:
        if _are_arrays(parts) and len({part.shape for part in parts}) > 1:
            raise ValueError("the shapes differ")
        return leaf

    _results(checked)


@slip("None of one replica is None of all", "run.none-of-some-replicas")
def _() -> None:
    _results(lambda parts, leaf: None if any(part is None for part in parts) else leaf)


@slip("an object that all replicas return comes back once for each", "run.one-object-for-all")
def _() -> None:
    def once_for_each(parts: list[Any], leaf: Any) -> Any:
        # A distributed value, a variable and None come back alone all the same.
        alone = leaf is None or isinstance(leaf, (refdist.DistributedValues, refdist.Variable))
        return PerReplica(parts) if _all_the_same(parts) and not alone else leaf

    _results(once_for_each)


@slip("copies of a variable come back one by one", "run.copies-of-a-variable")
def _() -> None:
    _results(lambda parts, leaf:
             PerReplica(parts) if isinstance(leaf, refdist.Variable) and not any(part is leaf for part in parts)
             else leaf)


@slip("structures agree if they have equally many leaves", "run.structures-must-agree")
def _() -> None:
    @instead(Strategy, "run")
    def run(right: Any, self: Any, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        returned: dict[int, Any] = {}

        def leaves(*args: Any, **kwargs: Any) -> list[Any]:
            result = _called(fn, *args, **kwargs)
            returned[refdist.get_replica_context().replica_id_in_sync_group] = result
            return nest.flatten(result)

        result = right(self, leaves if callable(fn) else fn, args, kwargs, options)
        return nest.pack_sequence_as(returned[min(returned)], result)


def _handed_on(arguments: Callable[[Any], bool], keyword_arguments: Callable[[Any], bool]) -> None:
    """`run` hands the arguments of which this holds to the function as they are."""
    @instead(Strategy, "run")
    def run(right: Any, self: Any, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        def opened(value: Any) -> Any:
            return value.content if isinstance(value, _Sealed) else value

        def step(*args: Any, **kwargs: Any) -> Any:
            return _called(fn, *map(opened, args), **{name: opened(value) for name, value in kwargs.items()})

        if isinstance(args, (list, tuple)):
            args = [_Sealed(value) if arguments(value) else value for value in args]
        if isinstance(kwargs, dict):
            kwargs = {name: _Sealed(value) if keyword_arguments(value) else value for name, value in kwargs.items()}
        return right(self, step if callable(fn) else fn, args, kwargs, options)


def _has_parts(value: Any) -> bool:
    return any(map(_is_distributed, nest.flatten(value)))


@slip("a mirrored argument arrives whole", "run.mirrored-arguments")
def _() -> None:
    def is_mirrored(value: Any) -> bool:
        return isinstance(value, Mirrored)

    _handed_on(is_mirrored, is_mirrored)


@slip("only arguments are taken apart, and not what is in them", "run.nested-arguments")
def _() -> None:
    def is_structure_with_parts(value: Any) -> bool:
        return nest.is_nested(value) and _has_parts(value)

    _handed_on(is_structure_with_parts, is_structure_with_parts)


@slip("keyword arguments are not taken apart", "run.distributed-arguments")
def _() -> None:
    _handed_on(lambda value: False, _has_parts)


@slip("every replica is handed the caller's own lists", "run.containers-are-copied")
def _() -> None:
    def is_structure_without_parts(value: Any) -> bool:
        return nest.is_nested(value) and not _has_parts(value)

    _handed_on(is_structure_without_parts, is_structure_without_parts)


@slip("a named tuple comes back as a tuple", "run.named-tuples")
def _() -> None:
    def without_names(value: Any) -> Any:
        value = nest.map_items(without_names, value)
        return tuple(value) if isinstance(value, tuple) else value

    @instead(Strategy, "run")
    def run(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        return without_names(right(self, *args, **kwargs))


@slip("a captured value is the replica's own part", "run.captured-values-are-not-taken-apart")
def _() -> None:
    def takes_the_part(name: str) -> None:
        @instead(PerReplica, name)
        def compute(right: Any, self: Any, other: Any) -> Any:
            # In a replica, np.asarray is its part.
            return right(self, other) if refdist.in_cross_replica_context() else getattr(np.asarray(self), name)(other)

    for name in ("__add__", "__sub__", "__mul__", "__truediv__"):
        takes_the_part(name)


@slip("arguments are a tuple and never a list", "run.arguments-in-a-list")
def _() -> None:
    @instead(Strategy, "run")
    def run(right: Any, self: Any, fn: Any, args: Any = (), *others: Any, **kwargs: Any) -> Any:
        if isinstance(args, list):
            raise ValueError("args is a list")
        return right(self, fn, args, *others, **kwargs)


@slip("a single argument needs no tuple", "run.arguments-not-in-a-list")
def _() -> None:
    @instead(Strategy, "run")
    def run(right: Any, self: Any, fn: Any, args: Any = (), *others: Any, **kwargs: Any) -> Any:
        return right(self, fn, args if isinstance(args, (list, tuple)) else (args,), *others, **kwargs)


@slip("of a value with too many parts each replica gets its own", "run.values-of-another-number-of-replicas")
def _() -> None:
    @instead(Strategy, "run")
    def run(right: Any, self: Any, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        def fitting(value: Any) -> Any:
            count = self.num_replicas_in_sync
            return PerReplica(value.values[:count]) if _is_distributed(value) and len(value.values) > count else value

        return right(self, fn, nest.map_structure(fitting, args), kwargs, options)


@slip("with one replica the function is called a second time to trace it", "run.once-per-replica")
def _() -> None:
    @instead(Strategy, "run")
    def run(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.num_replicas_in_sync == 1:
            right(self, *args, **kwargs)
        return right(self, *args, **kwargs)


@slip("batches of any size have to be asked for", "run.default-options")
def _() -> None:
    @instead(refdist.RunOptions, "__new__")
    def new(right: Any, cls: Any, experimental_enable_dynamic_batch_size: Any = False, *others: Any, **options: Any
            ) -> Any:
        return right(cls, experimental_enable_dynamic_batch_size, *others, **options)


# --- merge_call ----------------------------------------------------------------------------------------------


class _InPlaceOf:
    """A merge function that passes for the program's one, and calls it as `call(merge_fn, strategy, args, kwargs)`."""

    def __init__(self, merge_fn: Any, call: Callable[..., Any]) -> None:
        self.merge_fn = merge_fn
        self.call = call

    def __call__(self, strategy: Any, *args: Any, **kwargs: Any) -> Any:
        def merge_fn(*args: Any, **kwargs: Any) -> Any:
            return _called(self.merge_fn, *args, **kwargs)

        return self.call(merge_fn, strategy, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.merge_fn, name)


def _merging(call: Callable[[Any, Any, Any, Any], Any], after: Callable[[Any], Any] = lambda result: result) -> None:
    """merge_call returns to each replica what `after` makes of its part of `call(merge_fn, strategy, args, kwargs)`."""
    @instead(ReplicaContext, "merge_call")
    def merge_call(right: Any, self: Any, merge_fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        return after(right(self, _InPlaceOf(merge_fn, call) if callable(merge_fn) else merge_fn, args, kwargs))


@slip("the merge function is called for each replica", "merge_call.once")
def _() -> None:
    def call(merge_fn: Any, strategy: Any, args: Any, kwargs: Any) -> Any:
        results = [merge_fn(strategy, *args, **kwargs) for _ in range(strategy.num_replicas_in_sync)]
        return results[0]

    _merging(call)


@slip("the merge function is not passed the strategy", "merge_call.strategy")
def _() -> None:
    _merging(lambda merge_fn, strategy, args, kwargs: merge_fn(*args, **kwargs))


@slip("the merge function is called in the context of a replica", "merge_call.cross-replica-context")
def _() -> None:
    def call(merge_fn: Any, strategy: Any, args: Any, kwargs: Any) -> Any:
        with ReplicaContext(strategy, 0):
            return merge_fn(strategy, *args, **kwargs)

    _merging(call)


@slip("the merge function gets the arguments of replica 0", "merge_call.arguments")
def _() -> None:
    def first(arguments: Any) -> Any:
        return nest.map_structure(lambda leaf: leaf.values[0] if _is_distributed(leaf) else leaf, arguments)

    _merging(lambda merge_fn, strategy, args, kwargs: merge_fn(strategy, *first(args), **first(kwargs)))


@slip("the merge function gets no keyword arguments", "merge_call.keyword-arguments")
def _() -> None:
    _merging(lambda merge_fn, strategy, args, kwargs: merge_fn(strategy, *args))


@slip("every replica gets the whole result of the merge function", "merge_call.distributed-results")
def _() -> None:
    _merging(lambda merge_fn, strategy, args, kwargs: _Sealed(merge_fn(strategy, *args, **kwargs)),
             lambda result: result.content)


def _merging_functions(call: Callable[[Any, Any, Any, Any], Any]) -> None:
    """merge_call calls `call(functions, strategy, args, kwargs)`; the functions of the replicas arrive as their
    arguments do, and have been compared."""
    @instead(ReplicaContext, "merge_call")
    def merge_call(right: Any, self: Any, merge_fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not callable(merge_fn):
            return right(self, merge_fn, args, kwargs)
        merge = _InPlaceOf(merge_fn, lambda _, strategy, args, kwargs: call(args[0], strategy, args[1:], kwargs))
        return right(self, merge, (merge_fn, *args), kwargs)


@slip("the function of replica 0 is called whatever the others pass", "merge_call.functions-must-agree")
def _() -> None:
    @instead(ReplicaContext, "merge_call")
    def merge_call(right: Any, self: Any, merge_fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        # The same function on every replica, whichever function of the program it captures.
        def merge(strategy: Any, *args: Any, **kwargs: Any) -> Any:
            return _called(merge_fn, strategy, *args, **kwargs)

        return right(self, merge if callable(merge_fn) else merge_fn, args, kwargs)


@slip("all replicas must pass the same function object", "merge_call.function-of-the-first-replica")
def _() -> None:
    def call(functions: Any, strategy: Any, args: Any, kwargs: Any) -> Any:
        if _is_distributed(functions):
            raise RuntimeError("the replicas pass different functions")
        return _called(functions, strategy, *args, **kwargs)

    _merging_functions(call)


@slip("the function of the last replica is called", "merge_call.function-of-the-first-replica")
def _() -> None:
    _merging_functions(lambda functions, strategy, args, kwargs:
                       _called(strategy.experimental_local_results(functions)[-1], strategy, *args, **kwargs))


@slip("a result of too few parts ends in the replica that has none", "merge_call.results-must-fit")
def _() -> None:
    no_part = object()

    def padded(merge_fn: Any, strategy: Any, args: Any, kwargs: Any) -> Any:
        # The default strategy does not tell its devices.
        count = strategy.num_replicas_in_sync
        count = len(strategy.extended.worker_devices) if count > 1 else count
        return nest.map_structure(
            lambda leaf: PerReplica([*leaf.values, *[no_part] * (count - len(leaf.values))])
            if _is_distributed(leaf) and len(leaf.values) < count else leaf, merge_fn(strategy, *args, **kwargs))

    def checked(result: Any) -> Any:
        if any(leaf is no_part for leaf in nest.flatten(result)):
            raise IndexError("tuple index out of range")
        return result

    _merging(padded, checked)


@slip("outside of run there is nothing to merge", "merge_call.default-context")
def _() -> None:
    outside = refdist.get_replica_context()

    @instead(ReplicaContext, "merge_call")
    def merge_call(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if self is outside:
            raise RuntimeError("no replicas run")
        return right(self, *args, **kwargs)


@slip("the argument of the only replica arrives as a distributed value", "merge_call.one-replica")
def _() -> None:
    def distributed(strategy: Any, arguments: Any) -> Any:
        if strategy.num_replicas_in_sync > 1:
            return arguments
        return nest.map_structure(lambda leaf: PerReplica([leaf]), arguments)

    _merging(lambda merge_fn, strategy, args, kwargs:
             merge_fn(strategy, *distributed(strategy, args), **distributed(strategy, kwargs)))


# --- Losses --------------------------------------------------------------------------------------------------


def _average(compute: Callable[[Any, Any, Any, Any], Any]) -> None:
    """compute_average_loss is `compute(right, losses, weights, size)`."""
    @instead(refdist.nn, "compute_average_loss")
    def compute_average_loss(right: Any, per_example_loss: Any, sample_weight: Any = None,
                             global_batch_size: Any = None) -> Any:
        return compute(right, per_example_loss, sample_weight, global_batch_size)


def _default_size(count: Callable[[Any], int]) -> None:
    """The global batch size is `count(losses)` in a replica that passes none."""
    def average(right: Any, losses: Any, weights: Any, size: Any) -> Any:
        if size is None and not refdist.in_cross_replica_context():
            size = count(losses)
        return right(losses, weights, size)

    _average(average)


def _rows(losses: Any) -> int:
    return np.shape(losses)[0] if np.ndim(losses) else 0


def _replicas() -> int:
    return refdist.get_strategy().num_replicas_in_sync


def _is_int(size: Any) -> bool:
    return isinstance(size, (int, np.integer)) and not isinstance(size, bool)


@slip("the average divides by the rows of this replica", "losses.default-size")
def _() -> None:
    _default_size(_rows)


@slip("a global batch size is taken for that of a replica", "losses.average")
def _() -> None:
    _average(lambda right, losses, weights, size: right(losses, weights, size * _replicas() if _is_int(size) else size))


@slip("every number of a row counts as a row", "losses.further-dimensions")
def _() -> None:
    _default_size(lambda losses: int(np.size(losses)) * _replicas())


@slip("the average divides by the sum of the weights", "losses.weights")
def _() -> None:
    def average(right: Any, losses: Any, weights: Any, size: Any) -> Any:
        result = right(losses, weights, size)
        return result if weights is None else result / result.dtype.type(np.mean(weights))

    _average(average)


@slip("weights of rows are broadcast along the last dimension", "losses.weights")
def _() -> None:
    def average(right: Any, losses: Any, weights: Any, size: Any) -> Any:
        if weights is not None and 0 < np.ndim(weights) < np.ndim(losses):
            weights = np.broadcast_to(weights, np.shape(losses))
        return right(losses, weights, size)

    _average(average)


@slip("weights lose their imaginary parts", "losses.complex-weights")
def _() -> None:
    _average(lambda right, losses, weights, size:
             right(losses, np.real(weights) if np.iscomplexobj(weights) and np.isrealobj(losses) else weights, size))


@slip("nothing divided by zero is nan", "losses.size-of-zero")
def _() -> None:
    def average(right: Any, losses: Any, weights: Any, size: Any) -> Any:
        result = right(losses, weights, size)
        divisor = _rows(losses) if size is None else size
        if not _is_int(divisor) or divisor:
            return result
        with np.errstate(all="ignore"):
            return right(losses, weights, 1) / result.dtype.type(0)

    _average(average)


@slip("small ints are added in their own dtype", "losses.small-ints")
def _() -> None:
    def average(right: Any, losses: Any, weights: Any, size: Any) -> Any:
        if isinstance(losses, np.ndarray) and losses.dtype.kind in "iu" and losses.size:
            total = np.zeros_like(losses)
            total.flat[0] = np.sum(losses, dtype=losses.dtype)
            losses = total
        return right(losses, weights, size)

    _average(average)


@slip("losses are weighted in float32", "losses.weights-of-doubles")
def _() -> None:
    def average(right: Any, losses: Any, weights: Any, size: Any) -> Any:
        if weights is not None and getattr(losses, "dtype", None) == np.float64:
            return right(losses.astype(np.float32), weights, size).astype(np.float64)
        return right(losses, weights, size)

    _average(average)


@slip("a scalar is the loss of one row", "losses.scalars")
def _() -> None:
    _average(lambda right, losses, weights, size:
             right(losses[np.newaxis] if isinstance(losses, (np.ndarray, np.generic)) and not losses.ndim else losses,
                   weights, size))


@slip("across replicas the number of replicas is taken all the same", "losses.average-across-replicas")
def _() -> None:
    def average(right: Any, losses: Any, weights: Any, size: Any) -> Any:
        if size is None and refdist.in_cross_replica_context():
            size = _rows(losses) * _replicas()
        return right(losses, weights, size)

    _average(average)


@slip("a batch size may be below zero", "losses.negative-size")
def _() -> None:
    _average(lambda right, losses, weights, size:
             -right(losses, weights, -size) if _is_int(size) and size < 0 else right(losses, weights, size))


@slip("True is a batch size of one", "losses.size-must-be-an-int")
def _() -> None:
    _average(lambda right, losses, weights, size: right(losses, weights, int(size) if isinstance(size, bool) else size))


@slip("a regularization loss is added up and not divided", "losses.regularization")
def _() -> None:
    @instead(refdist.nn, "scale_regularization_loss")
    def scale_regularization_loss(right: Any, regularization_loss: Any) -> Any:
        return right(regularization_loss) * _replicas()


@slip("a regularization loss keeps its shape", "losses.regularization-of-a-scalar")
def _() -> None:
    @instead(refdist.nn, "scale_regularization_loss")
    def scale_regularization_loss(right: Any, regularization_loss: Any) -> Any:
        result = right(regularization_loss)
        return np.asarray(regularization_loss, result.dtype) / result.dtype.type(_replicas())


@slip("an object of attrs is a part", "run.results-in-attrs-objects")
def _() -> None:
    @instead(Strategy, "run")
    def run(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        result = right(self, *args, **kwargs)
        return [result] if hasattr(type(result), "__attrs_attrs__") else result


@slip("subclasses of list and tuple become lists and tuples", "run.results-keep-their-classes")
def _() -> None:
    @instead(Strategy, "run")
    def run(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        def plain(value: Any) -> Any:
            kind = next((kind for kind in (list, tuple) if isinstance(value, kind)), None)
            return value if kind is None or hasattr(value, "_fields") else kind(map(plain, value))

        return plain(right(self, *args, **kwargs))
