"""Slips in writing variables."""

from __future__ import annotations

import copy
import functools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import refdist
from mutants.slips import instead, slip
from refdist import AggregatingVariable, IndexedSlices, MirroredVariable, SyncOnReadVariable, Variable

_ASSIGN = ("assign", "assign_add", "assign_sub")
_ADD = ("assign_add", "assign_sub")
_ARITHMETIC = {"scatter_add": np.add, "scatter_sub": np.subtract, "scatter_mul": np.multiply, "scatter_div": np.divide}
_PICK = {"scatter_min": np.minimum, "scatter_max": np.maximum}
_REPLACE = ("scatter_update", "batch_scatter_update")
_SCATTER = (*_ARITHMETIC, *_PICK, *_REPLACE)

# What writes a variable as it should be written: it is called with the variable and the value.
_Right = Callable[[Any, Any], Any]
_Write = Callable[[_Right, Any, Any], Any]


# --- Where a variable is written -----------------------------------------------------------------------------

def _anywhere(variable: Any) -> bool:
    return True


def _in_a_replica(variable: Any) -> bool:
    """Whether a replica of the strategy that made the variable is running."""
    context = refdist.get_replica_context()
    return context is not None and refdist.has_strategy() and context.strategy is variable.distribute_strategy


def _in_a_foreign_replica(variable: Any) -> bool:
    """Whether a replica of another strategy is running, or the variable was made outside of every scope."""
    return (refdist.has_strategy() and refdist.get_replica_context() is not None
            and refdist.get_strategy() is not variable.distribute_strategy)


def _across_replicas(variable: Any) -> bool:
    """Whether the code runs outside of replicas, in the scope or in merge_call, and not in an update."""
    if getattr(_updates, "depth", 0):
        return False
    return not refdist.has_strategy() or (refdist.in_cross_replica_context()
                                          and refdist.get_strategy() is variable.distribute_strategy)


# How many updates the thread is in: no public function tells an update from a scope.
_updates = threading.local()


def _count_updates() -> None:
    @instead(refdist.StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            _updates.depth = getattr(_updates, "depth", 0) + 1
            try:
                return fn(*args, **kwargs)
            finally:
                _updates.depth -= 1

        return right(self, var, counted if callable(fn) else fn, *args, **kwargs)


def _writes(methods: Iterable[str], where: Callable[[Any], bool] = _anywhere, kinds: Any = Variable,
            aggregations: Sequence[str] = ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"),
            ) -> Callable[[_Write], None]:
    """Decorates what is called in place of methods of variables, with what is right, the variable and the value.

    Args:
        methods: which ones.
        where: whether the variable is written wrongly where the code runs.
        kinds: the class of the variables that are, or a tuple of classes.
        aggregations: the names of theirs.
    """
    def replace(write: _Write) -> None:
        if where is _across_replicas:
            _count_updates()
        for method in methods:
            @instead(Variable, method)
            def written(right: Any, self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
                def rightly(variable: Any, value: Any) -> Any:
                    return right(variable, value, *args, **kwargs)

                if isinstance(self, kinds) and self.aggregation.name in aggregations and where(self):
                    return write(rightly, self, value)
                return rightly(self, value)

    return replace


# --- What is written -----------------------------------------------------------------------------------------

def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, IndexedSlices):
        return IndexedSlices(value.values * factor, value.indices, value.dense_shape)
    return refdist.constant(value) * factor


def _contributions(value: Any) -> list[Any]:
    """What each replica writes; called in replicas."""
    def gathered(array: Any) -> list[Any]:
        context: Any = refdist.get_replica_context()
        return [*context.all_gather(refdist.constant(array)[np.newaxis], axis=0)]

    if isinstance(value, IndexedSlices):
        return [IndexedSlices(*rows) for rows in zip(gathered(value.values), gathered(value.indices), strict=True)]
    return gathered(value)


def _same_bits(parts: Sequence[Any]) -> bool:
    """Whether arrays, or slices and their indices, are equal."""
    def bits(part: Any) -> Any:
        return (bits(part.values), bits(part.indices)) if isinstance(part, IndexedSlices) else part.tobytes()

    return len(set(map(bits, parts))) == 1


def _scattered(ufunc: Any, variable: Any, slices: Any) -> Any:
    """The value of a variable with slices applied to its rows."""
    array = np.array(variable.read_value())
    with np.errstate(all="ignore"):
        ufunc.at(array, slices.indices, slices.values)
    return array


# --- How it is written ---------------------------------------------------------------------------------------

def _merged(right: _Right, variable: Any, values: Sequence[Any]) -> Any:
    """Replicas write values together, across replicas and one after another."""
    def write(strategy: Any) -> None:
        for value in values:
            right(variable, value)

    context: Any = refdist.get_replica_context()
    context.merge_call(write)
    return variable.read_value()


def _each_copy(right: _Right, variable: Any, value: Any) -> Any:
    """Every copy is written for itself."""
    results = [right(component, value) for component in variable.values]
    return results[0]


def _first_copy(right: _Right, variable: Any, value: Any) -> Any:
    return right(variable.values[0], value)


def _one_after_another(right: _Right, variable: Any, value: Any) -> Any:
    """What every replica contributes is written."""
    return _merged(right, variable, _contributions(value))


def _replica_0_writes(right: _Right, variable: Any, value: Any) -> Any:
    """What replica 0 contributes is written."""
    return _merged(right, variable, _contributions(value)[:1])


def _copies_apart() -> dict[tuple[Any, int], Any]:
    """What copies of mirrored variables hold that is not the value of the variable.

    The keys are the reference to the variable and the number of the replica; outside of replicas the first copy is
    read.  An assignment ends it.
    """
    apart: dict[tuple[Any, int], Any] = {}

    @instead(Variable, "read_value")
    def read_value(right: Any, self: Any) -> Any:
        value = right(self)
        number = refdist.get_replica_context().replica_id_in_sync_group if _in_a_replica(self) else 0
        return apart.get((self.ref(), number), value)

    @_writes(_ASSIGN)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        result = right(variable, value)
        for key in [key for key in apart if key[0] == variable.ref()]:
            del apart[key]
        return result

    return apart


# --- assign, assign_add, assign_sub ----------------------------------------------------------------------------

@slip("the variable is subtracted from the value", "variable_updates.in-the-scope-and-in-merge-call")
def _() -> None:
    @_writes(["assign_sub"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        right(variable, value)
        negative = -refdist.constant(variable.read_value())
        if _in_a_replica(variable) and not isinstance(variable, SyncOnReadVariable):
            return _merged(Variable.assign, variable, [negative])
        return variable.assign(negative)


@slip("with MEAN the sum is written", "variable_updates.mean")
def _() -> None:
    @_writes((*_ASSIGN, *_ARITHMETIC), _in_a_replica, MirroredVariable, ["MEAN"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return right(variable, _scaled(value, variable.distribute_strategy.num_replicas_in_sync))


@slip("ONLY_FIRST_REPLICA takes the last value that arrives", "variable_updates.only-first-replica")
def _() -> None:
    @_writes((*_ASSIGN, *_SCATTER), _in_a_replica, (MirroredVariable, AggregatingVariable), ["ONLY_FIRST_REPLICA"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return right(variable, _contributions(value)[-1])


@slip("one copy for all replicas counts a step once for each", "variable_updates.step-counter")
def _() -> None:
    _writes(_ADD, _in_a_replica, AggregatingVariable, ["ONLY_FIRST_REPLICA"])(_one_after_another)


@slip("with NONE replica 0 writes for all", "variable_updates.none-refuses-different-values")
def _() -> None:
    _writes((*_ASSIGN, *_ARITHMETIC, *_PICK), _in_a_replica, MirroredVariable, ["NONE"])(_replica_0_writes)


@slip("with NONE no replica may write", "variable_updates.none-accepts-equal-values")
def _() -> None:
    @_writes((*_ASSIGN, *_SCATTER), _in_a_replica, MirroredVariable, ["NONE"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        raise ValueError("the aggregation is NONE")


@slip("with NONE replicas that agree write the only copy", "variable_updates.none-with-one-copy")
def _() -> None:
    @_writes((*_ASSIGN, *_SCATTER), _in_a_replica, AggregatingVariable, ["NONE"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        parts = _contributions(value)
        return _merged(right, variable, parts[:1]) if _same_bits(parts) else right(variable, value)


@slip("a mean is rounded to the integers of the variable", "variable_updates.mean-of-integers")
def _() -> None:
    @_writes(_ASSIGN, _in_a_replica, AggregatingVariable, ["MEAN"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.dtype.kind not in "iu" or isinstance(value, IndexedSlices):
            return right(variable, value)
        return _merged(right, variable, [np.mean(_contributions(value), axis=0).astype(variable.dtype)])


@slip("an object that replicas share counts once", "variable_updates.every-replica-counts")
def _() -> None:
    @_writes(_ASSIGN, _in_a_replica, (MirroredVariable, AggregatingVariable), ["SUM"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        shared = _same_bits(_contributions(id(value)))
        return _merged(right, variable, [value]) if shared else right(variable, value)


@slip("a write in a replica returns what was passed", "variable_updates.returned-in-replicas")
def _() -> None:
    @_writes(_ASSIGN, _in_a_replica)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        result = right(variable, value)
        return result if result is None else refdist.constant(value)


@slip("a write outside of replicas returns one array", "variable_updates.returned-outside")
def _() -> None:
    @_writes((*_ASSIGN, *_SCATTER), _across_replicas)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        result = right(variable, value)
        return result.values[0] if isinstance(result, refdist.Mirrored) else result


@slip("read_value=False is overlooked", "variable_updates.returned-nothing")
def _() -> None:
    for method in _ASSIGN:
        @instead(Variable, method)
        def write(right: Any, self: Any, value: Any, use_locking: bool = False, name: Any = None,
                  read_value: bool = True) -> Any:
            return right(self, value, use_locking, name)


@slip("read_value=False is overlooked in replicas", "variable_updates.returned-nothing")
def _() -> None:
    for method in _ASSIGN:
        @instead(Variable, method)
        def write(right: Any, self: Any, value: Any, use_locking: bool = False, name: Any = None,
                  read_value: bool = True) -> Any:
            return right(self, value, use_locking, name, read_value or _in_a_replica(self))


@slip("a distributed value is refused also if its parts are equal", "variable_updates.mirrored-value")
def _() -> None:
    @_writes((*_ASSIGN, *_SCATTER), _across_replicas)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if isinstance(value, (refdist.PerReplica, refdist.Mirrored)):
            raise ValueError("the value has several parts")
        return right(variable, value)


@slip("of a value with different parts the first is written", "variable_updates.different-value-per-replica")
def _() -> None:
    @_writes((*_ASSIGN, *_SCATTER), _across_replicas)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return right(variable, value.values[0] if isinstance(value, refdist.PerReplica) else value)


@slip("nan is not equal to nan", "variable_updates.none-accepts-equal-values")
def _() -> None:
    @_writes(_ASSIGN, _in_a_replica, MirroredVariable, ["NONE"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        first, *others = _contributions(value)
        if not all(np.array_equal(first, other) for other in others):
            raise ValueError("the values of the replicas differ")
        return right(variable, value)


@slip("what is written is summed as float", "variable_updates.integers")
def _() -> None:
    @_writes(_ASSIGN, _in_a_replica, (MirroredVariable, AggregatingVariable), ["SUM"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return right(variable, _scaled(value, 1.0))


@slip("variables of one name are taken for one variable", "variable_updates.replicas-make-the-same-write")
def _() -> None:
    @_writes(_ASSIGN, _in_a_replica, (MirroredVariable, AggregatingVariable))
    def write(right: _Right, variable: Any, value: Any) -> Any:
        def namesake(strategy: Any, variables: Any) -> Any:
            # Different variables arrive as a PerReplica.
            if isinstance(variables, refdist.PerReplica) and len({other.name for other in variables.values}) == 1:
                return variables.values[0]
            return None

        context: Any = refdist.get_replica_context()
        other = context.merge_call(namesake, (variable,))
        return right(variable if other is None else other, value)


@slip("booleans are added", "variable_updates.booleans-and-text")
def _() -> None:
    @_writes(["assign_add"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.dtype != bool:
            return right(variable, value)
        return variable.assign(np.logical_or(variable.read_value(), value))


@slip("a number fills the variable", "variable_updates.shape-is-kept")
def _() -> None:
    @_writes(_ASSIGN)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if np.isscalar(value) and None not in variable.shape:
            value = np.full(variable.shape, refdist.constant(value))
        return right(variable, value)


@slip("floats lose their fraction in a variable of integers", "variable_updates.dtype-is-kept")
def _() -> None:
    @_writes(_ASSIGN)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.dtype.kind in "iu" and isinstance(value, (float, np.ndarray)):
            value = refdist.constant(value)
            value = value.astype(variable.dtype) if value.dtype.kind == "f" else value
        return right(variable, value)


@slip("a write in replicas is stored before its shape is checked", "variable_updates.shape-is-kept-in-replicas")
def _() -> None:
    apart = _copies_apart()

    @_writes(_ASSIGN, _in_a_replica, (MirroredVariable, AggregatingVariable))
    def write(right: _Right, variable: Any, value: Any) -> Any:
        try:
            return right(variable, value)
        except ValueError:
            context: Any = refdist.get_replica_context()
            if not isinstance(value, IndexedSlices) and np.shape(value) != variable.shape:
                apart[variable.ref(), context.replica_id_in_sync_group] = refdist.constant(value)
            raise


@slip("slices are assigned as their values", "variable_updates.assign-slices")
def _() -> None:
    @_writes(_ASSIGN)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return right(variable, value.values if isinstance(value, IndexedSlices) else value)


# --- Copies ----------------------------------------------------------------------------------------------------

@slip("a replica writes the first copy", "variable_updates.own-copy")
def _() -> None:
    _writes(_ASSIGN, _in_a_replica, SyncOnReadVariable)(_first_copy)


@slip("to add to a sum is a collective", "variable_updates.own-copy-alone")
def _() -> None:
    @_writes(_ADD, _in_a_replica, SyncOnReadVariable, ["SUM"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        context: Any = refdist.get_replica_context()
        return right(variable, context.all_reduce("SUM", value))


@slip("with SUM the whole value goes to every copy", "variable_updates.on-read-sum-outside")
def _() -> None:
    _writes(["assign"], _across_replicas, SyncOnReadVariable, ["SUM"])(_each_copy)


@slip("the remainder of an integer is lost", "variable_updates.on-read-sum-of-integers")
def _() -> None:
    @_writes(["assign"], _across_replicas, SyncOnReadVariable, ["SUM"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.dtype.kind not in "iu":
            return right(variable, value)
        count = variable.distribute_strategy.num_replicas_in_sync
        return right(variable, refdist.constant(value) // count * count)


@slip("with MEAN the value is divided, too", "variable_updates.on-read-mean-outside")
def _() -> None:
    @_writes(_ASSIGN, _across_replicas, SyncOnReadVariable, ["MEAN"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return right(variable, _scaled(value, 1.0 / variable.distribute_strategy.num_replicas_in_sync))


@slip("what is added to a sum is added to every copy", "variable_updates.on-read-sum-add-outside")
def _() -> None:
    _writes(_ADD, _across_replicas, SyncOnReadVariable, ["SUM"])(_each_copy)


@slip("without aggregation every copy is written", "variable_updates.on-read-none-outside")
def _() -> None:
    _writes(_ASSIGN, _across_replicas, SyncOnReadVariable, ["NONE"])(_each_copy)


@slip("a copy of a mirrored variable is written alone", "variable_updates.one-copy-alone")
def _() -> None:
    apart = _copies_apart()
    # The variable that a copy belongs to, and the number of the copy.
    owners: dict[Any, tuple[Any, int]] = {}

    @instead(refdist.DistributedValues, "values")
    def values(right: Any, self: Any) -> Any:
        components = right(self)
        if isinstance(self, MirroredVariable):
            owners.update((component.ref(), (self.ref(), i)) for i, component in enumerate(components))
        return components

    @_writes((*_ASSIGN, *_SCATTER), _across_replicas)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.ref() not in owners:
            return right(variable, value)
        alone = copy.deepcopy(variable)
        right(alone, value)
        apart[owners[variable.ref()]] = alone.read_value()
        return alone.read_value()


@slip("ON_WRITE is synchronized on read", "variable_updates.on-write-is-mirrored")
def _() -> None:
    @instead(type(Variable), "__call__")
    def create(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if self is Variable and kwargs.get("synchronization") is refdist.VariableSynchronization.ON_WRITE:
            kwargs["synchronization"] = refdist.VariableSynchronization.ON_READ
        return right(self, *args, **kwargs)


# --- Variables of other strategies -------------------------------------------------------------------------------

@slip("every replica writes a variable from outside", "variable_updates.plain-variable-in-replicas")
def _() -> None:
    @_writes((*_ASSIGN, *_SCATTER), _in_a_foreign_replica)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        plain = variable.distribute_strategy is None
        return _one_after_another(right, variable, value) if plain else right(variable, value)


@slip("also one replica is refused a variable from outside", "variable_updates.plain-variable-in-one-replica")
def _() -> None:
    @_writes((*_ASSIGN, *_SCATTER), _in_a_foreign_replica)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.distribute_strategy is None:
            raise ValueError("the variable was made outside any scope")
        return right(variable, value)


@slip("in the scope of another strategy the first copy is written", "variable_updates.on-read-under-another-strategy")
def _() -> None:
    def in_a_foreign_scope(variable: Any) -> bool:
        return refdist.in_cross_replica_context() and refdist.get_strategy() is not variable.distribute_strategy

    _writes(_ASSIGN, in_a_foreign_scope, SyncOnReadVariable)(_first_copy)


@slip("the only replica writes the variables of other strategies",
      "variable_updates.one-replica-under-another-strategy")
def _() -> None:
    @_writes((*_ASSIGN, *_SCATTER), _in_a_foreign_replica, MirroredVariable)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if refdist.get_strategy().num_replicas_in_sync > 1:
            return right(variable, value)
        with ThreadPoolExecutor(1) as outside:  # a new thread is outside of all contexts
            return outside.submit(right, variable, value).result()


# --- Scatter methods -------------------------------------------------------------------------------------------

@slip("rows that occur twice are changed once", "variable_updates.scatter-repeated-rows")
def _() -> None:
    @_writes((*_ARITHMETIC, *_PICK))
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if isinstance(value, IndexedSlices) and len(value.indices):
            last = [*{int(row): i for i, row in enumerate(value.indices)}.values()]
            value = IndexedSlices(value.values[last], value.indices[last])
        return right(variable, value)


@slip("of slices that replace one row the first stays", "variable_updates.scatter-repeated-rows")
def _() -> None:
    @_writes(_REPLACE)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if isinstance(value, IndexedSlices):
            value = IndexedSlices(value.values[::-1], value.indices[::-1])
        return right(variable, value)


@slip("one copy for all replicas gets undivided slices", "variable_updates.scatter-mean")
def _() -> None:
    @_writes(_ARITHMETIC, _in_a_replica, AggregatingVariable, ["MEAN"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return right(variable, _scaled(value, variable.distribute_strategy.num_replicas_in_sync))


@slip("slices of equal values are equal, whatever their rows are", "variable_updates.scatter-none")
def _() -> None:
    @_writes(_SCATTER, _in_a_replica, MirroredVariable, ["NONE"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        parts = _contributions(value)
        equal = _same_bits([part.values for part in parts])
        return _merged(right, variable, parts[:1]) if equal else right(variable, value)


@slip("variables with SUM have a minimum outside of replicas", "variable_updates.scatter-sum-has-no-minimum")
def _() -> None:
    @_writes(["scatter_min"], _across_replicas, MirroredVariable, ["SUM"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return variable.assign(_scattered(np.minimum, variable, value))


@slip("replica 0 picks the minimum for all", "variable_updates.scatter-minimum-of-one-copy")
def _() -> None:
    _writes((*_PICK, *_REPLACE), _in_a_replica, AggregatingVariable, ["SUM", "MEAN"])(_replica_0_writes)


@slip("replicas scatter into their own copies", "variable_updates.scatter-on-read")
def _() -> None:
    def write(ufunc: Any, right: _Right, variable: Any, value: Any) -> Any:
        return variable.assign(_scattered(ufunc, variable, value))

    for method, ufunc in {**_ARITHMETIC, **_PICK}.items():
        _writes([method], _in_a_replica, SyncOnReadVariable)(functools.partial(write, ufunc))


@slip("a tuple of values and indices is taken for slices", "variable_updates.scatter-needs-slices")
def _() -> None:
    @_writes(_SCATTER)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return right(variable, IndexedSlices(*value) if isinstance(value, tuple) else value)


@slip("slices for missing rows are left out", "variable_updates.scatter-to-missing-rows")
def _() -> None:
    @_writes(_SCATTER)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if isinstance(value, IndexedSlices) and variable.shape:
            there = (value.indices >= 0) & (value.indices < len(variable.read_value()))
            value = IndexedSlices(value.values[there], value.indices[there])
        return right(variable, value)


@slip("integers are divided downwards", "variable_updates.scatter-division")
def _() -> None:
    @_writes(["scatter_div"], _across_replicas)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.dtype.kind not in "iu" or isinstance(variable, SyncOnReadVariable):
            return right(variable, value)
        before = variable.read_value()
        right(variable, value)  # refuses what cannot be divided
        variable.assign(before)
        return variable.assign(_scattered(np.floor_divide, variable, value))


@slip("floats are divided by zero", "variable_updates.scatter-division")
def _() -> None:
    @_writes(["scatter_div"], _across_replicas)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.dtype.kind != "f" or not isinstance(value, IndexedSlices):
            return right(variable, value)
        zeros = value.values == 0
        result = right(variable, IndexedSlices(np.where(zeros, 1, value.values), value.indices))
        if not zeros.any():
            return result
        return variable.assign(_scattered(np.divide, variable, IndexedSlices(np.where(zeros, 0, 1), value.indices)))


@slip("rows of booleans cannot be replaced", "variable_updates.scatter-booleans")
def _() -> None:
    @_writes(_REPLACE)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.dtype == bool:
            raise TypeError("the variable has no numbers")
        return right(variable, value)


@slip("text that replaces shorter text is cut", "variable_updates.scatter-booleans")
def _() -> None:
    @_writes(_REPLACE)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.dtype.kind == "U" and isinstance(value, IndexedSlices):
            value = IndexedSlices(value.values.astype(variable.dtype), value.indices)
        return right(variable, value)


@slip("complex numbers have a maximum", "variable_updates.scatter-has-no-order-of-complex-numbers")
def _() -> None:
    @_writes(["scatter_max"], _across_replicas)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if variable.dtype.kind != "c":
            return right(variable, value)
        return variable.assign(_scattered(np.maximum, variable, value))


@slip("slices go to the first copy alone", "variable_updates.scatter-every-copy")
def _() -> None:
    apart = _copies_apart()

    @_writes(_SCATTER, _across_replicas, MirroredVariable)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        before = variable.read_value()
        result = right(variable, value)
        for i in range(1, variable.distribute_strategy.num_replicas_in_sync):
            apart.setdefault((variable.ref(), i), before)
        return result


@slip("a slice that is too long is cut", "variable_updates.scatter-of-other-shapes")
def _() -> None:
    @_writes(_SCATTER)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        if isinstance(value, IndexedSlices) and value.values.ndim == len(variable.shape) == 2:
            value = IndexedSlices(value.values[:, :variable.shape[1]], value.indices)
        return right(variable, value)


@slip("in replicas one copy for all is scattered to by each", "variable_updates.batch-scatter-update-in-replicas")
def _() -> None:
    _writes(_SCATTER, _in_a_replica, AggregatingVariable, ["NONE"])(_one_after_another)


@slip("with several copies batch_scatter_update is scatter_update", "variable_updates.batch-scatter-update")
def _() -> None:
    @_writes(["batch_scatter_update"], kinds=MirroredVariable)
    def write(right: _Right, variable: Any, value: Any) -> Any:
        return variable.scatter_update(value)


@slip("in replicas the slices of different rows are one write each", "variable_updates.scatter-only-first-replica")
def _() -> None:
    _writes(_SCATTER, _in_a_replica, (MirroredVariable, AggregatingVariable), ["ONLY_FIRST_REPLICA"])(
        _one_after_another)


@slip("assign_add reads, and then writes", "variable_updates.threads-lose-no-update")
def _() -> None:
    @_writes(["assign_add"])
    def write(right: _Right, variable: Any, value: Any) -> Any:
        before = variable.read_value()
        time.sleep(1e-5)  # another thread's turn
        return variable.assign(before + value)
