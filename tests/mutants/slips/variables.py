"""Slips in making, reading and placing variables."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import numpy as np

import refdist
from mutants.slips import instead, slip
from refdist import (
    AggregatingVariable,
    DistributedValues,
    IndexedSlices,
    MultiWorkerMirroredStrategy,
    ReplicaContext,
    Strategy,
    SyncOnReadVariable,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    constant,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
    variable_creator_scope,
)

# --- What the slips are made of ----------------------------------------------------------------------------------


def _writes(refuse: Callable[[Any], None]) -> None:
    """A variable is written as it should be, unless `refuse` raises for it."""
    for name in ("assign", "assign_add", "assign_sub"):
        @instead(Variable, name)
        def write(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            refuse(self)
            return right(self, *args, **kwargs)


def _reads(read: Callable[[Any, Any], Any]) -> None:
    """The value of a variable is what `read` makes of the right function and the variable."""
    for name in ("read_value", "value"):
        instead(Variable, name)(lambda right, self: read(right, self))


def _creator(creator: Callable[..., Any]) -> None:
    """`creator` is asked for every variable, before the creators of the program."""
    @instead(type(Variable), "__call__")
    def call(right: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is not Variable:
            return right(cls, *args, **kwargs)
        with variable_creator_scope(creator):
            return right(cls, *args, **kwargs)


def _asked_with(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """What `change` makes of the arguments for a variable takes the place of some of them."""
    _creator(lambda next_creator, **kwargs: next_creator(**{**kwargs, **change(kwargs)}))


def _creators_called(call: Callable[..., Any]) -> None:
    """A creator of the program is called as `call` does, which gets it before its arguments."""
    instead(refdist, "variable_creator_scope")(lambda right, creator: right(partial(call, creator)))


def _answers(attribute: str) -> dict[Any, Any]:
    """By their references, what variables answer instead of their attribute; others answer what it is."""
    answers: dict[Any, Any] = {}
    instead(Variable, attribute)(lambda right, self: answers.get(self.ref(), right(self)))
    return answers


def _replica() -> Any:
    """The replica that runs; None outside of replicas."""
    return get_replica_context() if has_strategy() else None


def _is_combined(variable: Any, aggregation: VariableAggregation) -> bool:
    """Whether a read combines the copies of the variable, by the aggregation."""
    replica = _replica()
    return (isinstance(variable, SyncOnReadVariable) and variable.aggregation is aggregation
            and (replica is None or replica.strategy is not variable.distribute_strategy))


def _is_copy(asked: dict[str, Any]) -> bool:
    """Whether a creator around the scope of a strategy is asked, for one copy."""
    return "distribute_strategy" in asked


def _is_later_copy(asked: dict[str, Any]) -> bool:
    """Whether it is a copy after the first."""
    return _is_copy(asked) and "/replica_" in (asked["name"] or "")


# --- Scopes and strategies -----------------------------------------------------------------------------------------


@slip("a variable is written in the scope of its strategy only", "variables.work-outside-the-scope")
def _() -> None:
    def refuse(variable: Any) -> None:
        if variable.distribute_strategy is not None and not has_strategy():
            raise RuntimeError(f"{variable.name} is written outside the scope")

    _writes(refuse)


@slip("the default strategy's replica is one of another strategy", "variable_updates.under-the-default-strategy")
def _() -> None:
    running = []

    @instead(type(get_strategy()), "run")
    def run(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        running.append(self)
        try:
            return right(self, *args, **kwargs)
        finally:
            running.pop()

    def refuse(variable: Any) -> None:
        if running and variable.distribute_strategy is not None and not has_strategy():
            raise RuntimeError(f"{variable.name} is written in a replica of the default strategy")

    _writes(refuse)


@slip("a variable with several copies is an object, and true", "variables.truth")
def _() -> None:
    @instead(Variable, "__bool__")
    def truth(right: Any, self: Any) -> bool:
        return isinstance(self, DistributedValues) or bool(right(self))


@slip("a variable says that it belongs to the strategy that is current", "variables.know-their-strategy")
def _() -> None:
    instead(Variable, "distribute_strategy")(lambda right, self: get_strategy() if has_strategy() else None)


# --- Initial values ------------------------------------------------------------------------------------------------


@slip("the function of the initial value is called for each copy", "variables.initial-value-is-computed-once")
def _() -> None:
    functions: dict[Any, Any] = {}

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        if _is_later_copy(kwargs):
            kwargs["initial_value"] = functions[kwargs["distribute_strategy"]]
        elif _is_copy(kwargs):
            functions[kwargs["distribute_strategy"]] = kwargs["initial_value"]
        return next_creator(**kwargs)

    @contextmanager
    def around(scope: Any) -> Iterator[Any]:
        with variable_creator_scope(creator), scope as entered:
            yield entered

    instead(Strategy, "scope")(lambda right, self: around(right(self)))


@slip("every worker begins with its own initial value", "variables.workers-begin-equal")
def _() -> None:
    def creator(next_creator: Any, **kwargs: Any) -> Any:
        made, strategy, value = next_creator(**kwargs), get_strategy(), kwargs["initial_value"]
        if isinstance(strategy, MultiWorkerMirroredStrategy) and in_cross_replica_context():
            own = value() if callable(value) else value
            strategy.extended.update(made, lambda copy: copy.assign(own))
        return made

    _creator(creator)


@slip("a variable without an initial value is zero", "variables.initial-value-is-demanded")
def _() -> None:
    _asked_with(lambda asked: {"initial_value": 0.0} if asked["initial_value"] is None else {})


@slip("the rows of slices are the initial value, wherever they belong", "variables.initial-value-of-slices")
def _() -> None:
    def rows(asked: dict[str, Any]) -> dict[str, Any]:
        value = asked["initial_value"]
        return {"initial_value": value.values} if isinstance(value, IndexedSlices) else {}

    _asked_with(rows)


def _parts_become(combine: Callable[[tuple[Any, ...]], Any]) -> None:
    """Of an initial value with a part for each replica, `combine` makes the initial value."""
    def parts(asked: dict[str, Any]) -> dict[str, Any]:
        value = asked["initial_value"]
        if isinstance(value, DistributedValues) and not isinstance(value, Variable):
            return {"initial_value": combine(value.values)}
        return {}

    _asked_with(parts)


@slip("of a value with several parts the first is the initial value", "variables.initial-value-per-replica")
def _() -> None:
    _parts_become(lambda parts: parts[0])


@slip("a value of the replicas is an initial value with all its parts", "variables.created-in-replicas-from-their-own")
def _() -> None:
    _parts_become(np.stack)


@slip("only the first of the copies that are summed begins with the value", "variables.on-read-initial-value")
def _() -> None:
    def creator(next_creator: Any, **kwargs: Any) -> Any:
        made = next_creator(**kwargs)
        if isinstance(made, Variable) and in_cross_replica_context() and _is_combined(made, VariableAggregation.SUM):
            for copy in made.values[1:] if made.dtype.kind in "iufc" else ():
                copy.assign_sub(copy.read_value())
        return made

    _creator(creator)


# --- Arguments -----------------------------------------------------------------------------------------------------


@slip("the second copy is replica_2", "variables.names")
def _() -> None:
    @instead(Variable, "name")
    def name(right: Any, self: Any) -> str:
        first, of_a_copy, number = right(self).removesuffix(":0").partition("/replica_")
        return sys.intern(f"{first}/replica_{int(number) + 1}:0" if of_a_copy else f"{first}:0")


@slip("the name is as it was given, without a colon and 0", "variables.names-of-variables-with-one-copy")
def _() -> None:
    # As with the right name, replicas that return it return one object.
    instead(Variable, "name")(lambda right, self: sys.intern(right(self).removesuffix(":0")))


@slip("a variable without a name is called variable", "variables.default-name")
def _() -> None:
    _asked_with(lambda asked: {"name": asked["name"] or "variable"})


@slip("the second variable of a name has a number", "variables.names-are-not-unique")
def _() -> None:
    names: Counter[Any] = Counter()

    def numbered(asked: dict[str, Any]) -> dict[str, Any]:
        name, replica = asked["name"] or "Variable", _replica()
        key = (get_strategy(), replica and replica.replica_id_in_sync_group, name)
        names[key] += 1
        return {"name": name if names[key] == 1 else f"{name}_{names[key] - 1}"}

    _asked_with(numbered)


@slip("a variable is trainable whatever its synchronization is", "variables.trainable-by-default")
def _() -> None:
    _asked_with(lambda asked: {"trainable": True} if asked["trainable"] is None else {})


@slip("what is synchronized on read is never trainable", "variables.trainable-as-asked")
def _() -> None:
    @instead(Variable, "trainable")
    def trainable(right: Any, self: Any) -> bool:
        return right(self) and self.synchronization is not VariableSynchronization.ON_READ


@slip("a variable that was asked for with AUTO says AUTO", "variables.auto-is-on-write")
def _() -> None:
    answers = _answers("synchronization")

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        made = next_creator(**kwargs)
        if isinstance(made, Variable) and kwargs["synchronization"] is VariableSynchronization.AUTO:
            answers[made.ref()] = VariableSynchronization.AUTO
        return made

    _creator(creator)


@slip("a synchronization that is missing is the default one", "variables.synchronization-none")
def _() -> None:
    missing, default = VariableSynchronization.NONE, VariableSynchronization.AUTO
    _asked_with(lambda asked: {"synchronization": default} if asked["synchronization"] is missing else {})


@slip("an aggregation may be given by its name", "variables.unknown-synchronization")
def _() -> None:
    def member(asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["aggregation"]
        return {"aggregation": VariableAggregation[name]} if name in VariableAggregation.__members__ else {}

    _asked_with(member)


@slip("a variable of integers may have a mean of copies", "variables.mean-of-integers")
def _() -> None:
    answers = _answers("aggregation")

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        try:
            return next_creator(**kwargs)
        except ValueError:
            if kwargs["aggregation"] is not VariableAggregation.MEAN:
                raise
            # Equal integers have their mean in the first.
            made = next_creator(**{**kwargs, "aggregation": VariableAggregation.ONLY_FIRST_REPLICA})
            answers[made.ref()] = VariableAggregation.MEAN
            return made

    _creator(creator)


def _refused(is_refused: Callable[[Any, dict[str, Any]], bool]) -> None:
    """A variable is refused where `is_refused`, of what would be made and of the arguments, is true."""
    def creator(next_creator: Any, **kwargs: Any) -> Any:
        made = next_creator(**kwargs)
        if isinstance(made, Variable) and is_refused(made, kwargs):
            raise ValueError(made.name)
        return made

    _creator(creator)


@slip("integers are refused a mean where there is one copy, too", "variables.one-copy-mean-of-integers")
def _() -> None:
    _refused(lambda made, asked: asked["aggregation"] is VariableAggregation.MEAN and made.dtype.kind in "iu")


@slip("one copy for all replicas cannot be synchronized on read", "variables.one-copy-has-nothing-to-synchronize")
def _() -> None:
    _refused(lambda made, asked: (isinstance(made, AggregatingVariable)
                                  and asked["synchronization"] is VariableSynchronization.ON_READ))


@slip("a dimension that is left open has to be of size None", "variables.less-defined-shape")
def _() -> None:
    _refused(lambda made, asked: None in made.shape)


@slip("a variable with an open dimension tells the size that it has now", "variables.less-defined-shape")
def _() -> None:
    @instead(Variable, "shape")
    def shape(right: Any, self: Any) -> Any:
        first = self.values[0] if isinstance(self, DistributedValues) else self
        return first.read_value().shape if None in right(self) else right(self)


@slip("of the shape that is asked for the rank alone is compared", "variables.shape-must-fit-the-initial-value")
def _() -> None:
    answers = _answers("shape")

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        shape, value = kwargs["shape"], kwargs["initial_value"]
        if shape is None or None in shape or callable(value) or np.ndim(value) != len(shape):
            return next_creator(**kwargs)
        made = next_creator(**{**kwargs, "shape": None})
        answers[made.ref()] = tuple(shape)
        return made

    _creator(creator)


@slip("an array keeps its dtype whatever is asked for", "variables.dtype-of-an-array-as-asked")
def _() -> None:
    _asked_with(lambda asked: {"dtype": None} if isinstance(asked["initial_value"], (np.ndarray, np.generic)) else {})


@slip("an array is converted to the dtype asked for as C does", "variables.numbers-that-the-dtype-does-not-have")
def _() -> None:
    def in_c(asked: dict[str, Any]) -> dict[str, Any]:
        value, dtype = asked["initial_value"], asked.get("dtype")
        with warnings.catch_warnings(action="ignore"):
            return {"initial_value": value.astype(dtype)} if dtype is not None and isinstance(value, np.ndarray) else {}

    _asked_with(in_c)


# --- Replicas and workers that make variables ------------------------------------------------------------------------


@slip("each replica that creates a variable has one of its own", "variables.replicas-create-the-same-number")
def _() -> None:
    last_creators: list[Any] = []
    with variable_creator_scope(lambda next_creator, **kwargs: last_creators.append(next_creator)):
        Variable(0.0)

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        if _replica() is None:
            return next_creator(**kwargs)
        return last_creators[0](**kwargs, distribute_strategy=get_strategy())

    _creator(creator)


def _of_replica(number: int, value: Any) -> Any:
    """What the replica of this number on the worker has as `value`; all replicas call it together."""
    def merge(strategy: Any, values: Any) -> Any:
        return strategy.experimental_local_results(values)[number]

    return get_replica_context().merge_call(merge, args=(value,))


@slip("the initial value of the last replica counts", "variables.created-in-replicas-with-one-value")
def _() -> None:
    def last(asked: dict[str, Any]) -> dict[str, Any]:
        value = asked["initial_value"]
        if _replica() is None or not isinstance(value, (int, float, list, np.ndarray, np.generic)):
            return {}
        return {"initial_value": _of_replica(-1, constant(value))}

    _asked_with(last)


@slip("every replica calls the function of the initial value", "variables.created-in-replicas-by-one-call")
def _() -> None:
    def called(asked: dict[str, Any]) -> dict[str, Any]:
        value = asked["initial_value"]
        return {"initial_value": value()} if _replica() is not None and callable(value) else {}

    _asked_with(called)


@slip("replicas create one variable under different names", "variables.replicas-agree-on-the-name")
def _() -> None:
    def name_of_the_first(asked: dict[str, Any]) -> dict[str, Any]:
        return {} if _replica() is None else {"name": _of_replica(0, asked["name"] or "Variable")}

    _asked_with(name_of_the_first)


@slip("workers create one variable with different aggregations", "variables.workers-agree-on-the-name")
def _() -> None:
    answers, members = _answers("aggregation"), [*VariableAggregation]

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        strategy, own = get_strategy(), kwargs["aggregation"]
        if not (isinstance(strategy, MultiWorkerMirroredStrategy) and in_cross_replica_context() and own in members):
            return next_creator(**kwargs)
        numbers = strategy.run(lambda: get_replica_context().all_gather(constant([members.index(own)]), axis=0))
        first = members[int(strategy.experimental_local_results(numbers)[0][0])]
        made = next_creator(**{**kwargs, "aggregation": first})
        if first is not own:
            answers[made.ref()] = own
        return made

    _creator(creator)


# --- Reading -------------------------------------------------------------------------------------------------------


@slip("each replica reads the sum of what all have written", "variables.on-read-in-replicas")
def _() -> None:
    def read(right: Any, variable: Any) -> Any:
        replica = _replica()
        if (isinstance(variable, SyncOnReadVariable) and variable.aggregation is VariableAggregation.SUM
                and replica is not None and replica.strategy is variable.distribute_strategy):
            return replica.all_reduce("SUM", right(variable))
        return right(variable)

    _reads(read)


@slip("the mean of the copies is their sum", "variables.on-read-outside-replicas")
def _() -> None:
    def read(right: Any, variable: Any) -> Any:
        value = right(variable)
        if _is_combined(variable, VariableAggregation.MEAN):
            return constant(value * variable.distribute_strategy.num_replicas_in_sync)
        return value

    _reads(read)


def _first_copy_is_read(where: Callable[[Any], bool]) -> None:
    """A variable for which `where` holds reads the first of its copies on the worker."""
    _reads(lambda right, variable: variable.values[0].read_value() if where(variable) else right(variable))


@slip("each worker reads its own first copy", "variables.on-read-outside-replicas")
def _() -> None:
    _first_copy_is_read(lambda variable: _is_combined(variable, VariableAggregation.ONLY_FIRST_REPLICA))


@slip("merge_call reads the copy of the first replica", "variables.on-read-in-merge-call")
def _() -> None:
    merging = []

    @instead(ReplicaContext, "merge_call")
    def merge_call(right: Any, self: Any, merge_fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        @wraps(merge_fn)
        def merge(*args: Any, **kwargs: Any) -> Any:
            merging.append(self.strategy)
            try:
                return merge_fn(*args, **kwargs)
            finally:
                merging.remove(self.strategy)

        return right(self, merge if callable(merge_fn) else merge_fn, args, kwargs)

    _first_copy_is_read(lambda variable: (variable.distribute_strategy in merging
                                          and _is_combined(variable, VariableAggregation.SUM)))


@slip("without aggregation the first copy is read", "variables.on-read-without-aggregation")
def _() -> None:
    _first_copy_is_read(lambda variable: _is_combined(variable, VariableAggregation.NONE))


@slip("under another strategy the first copy is read", "variables.on-read-under-another-strategy")
def _() -> None:
    _first_copy_is_read(lambda variable: (has_strategy() and get_strategy() is not variable.distribute_strategy
                                          and _is_combined(variable, VariableAggregation.SUM)))


@slip("+= writes the variable", "variables.in-place-operators")
def _() -> None:
    @instead(Variable, "__iadd__")
    def add(right: Any, self: Any, other: Any) -> Any:
        self.assign_add(other)
        return self


@slip("sparse_read counts negative rows from the end", "variables.sparse-read")
def _() -> None:
    @instead(Variable, "sparse_read")
    def sparse_read(right: Any, self: Any, indices: Any, name: Any = None) -> Any:
        rows = np.asarray(indices)
        return right(self, np.where(rows < 0, rows + self.shape[0], rows), name)


@slip("references to variables of one value are equal", "variables.references")
def _() -> None:
    reference = type(Variable(0.0).ref())

    @instead(reference, "__eq__")
    def equal(right: Any, self: Any, other: Any) -> bool:
        return isinstance(other, reference) and np.array_equal(self.deref().read_value(), other.deref().read_value())


@slip("a variable is a key by its identity", "variables.references")
def _() -> None:
    instead(Variable, "__hash__")(lambda right, self: id(self))


# --- Creators ------------------------------------------------------------------------------------------------------


@slip("the outermost creator is called first", "variable_creators.innermost-first")
def _() -> None:
    # Workers and replicas run in contexts of their own.
    of_the_context: ContextVar[Any] = ContextVar("of_the_context", default=None)

    @instead(refdist, "variable_creator_scope")
    def scope(right: Any, variable_creator: Any) -> Any:
        entered = of_the_context.get() or []
        of_the_context.set(entered)
        place = len(entered)

        def creator(next_creator: Any, **kwargs: Any) -> Any:
            # That as far from the outside as this one is from the inside.
            return entered[-1 - place](next_creator, **kwargs)

        with ExitStack() as stack:
            stack.enter_context(right(creator))
            entered.append(variable_creator)
            stack.callback(entered.pop)
            return stack.pop_all()


@slip("a creator sees only arguments that were given", "variable_creators.sees-the-call")
def _() -> None:
    def call(creator: Any, next_creator: Any, **kwargs: Any) -> Any:
        return creator(next_creator, **{name: value for name, value in kwargs.items() if value is not None})

    _creators_called(call)


@slip("creators around the scope see AUTO", "variable_creators.outside-sees-what-auto-means")
def _() -> None:
    def call(creator: Any, next_creator: Any, **kwargs: Any) -> Any:
        if not _is_copy(kwargs):
            return creator(next_creator, **kwargs)
        chosen = kwargs["synchronization"]

        def with_the_chosen_one(**changed: Any) -> Any:
            auto = changed["synchronization"] is VariableSynchronization.AUTO
            return next_creator(**{**changed, "synchronization": chosen if auto else changed["synchronization"]})

        auto = chosen is VariableSynchronization.ON_WRITE
        return creator(with_the_chosen_one,
                       **{**kwargs, "synchronization": VariableSynchronization.AUTO if auto else chosen})

    _creators_called(call)


@slip("creators around the scope see the value of the first copy", "variable_creators.outside-sees-a-callable")
def _() -> None:
    def call(creator: Any, next_creator: Any, **kwargs: Any) -> Any:
        if _is_later_copy(kwargs):
            kwargs["initial_value"] = kwargs["initial_value"]()
        return creator(next_creator, **kwargs)

    _creators_called(call)


@slip("later copies are named after what was asked for", "variable_creators.later-copies-follow-the-first")
def _() -> None:
    asked: dict[Any, Any] = {}

    def call(creator: Any, next_creator: Any, **kwargs: Any) -> Any:
        if _is_later_copy(kwargs):
            number = kwargs["name"].rpartition("/replica_")[2]
            kwargs["name"] = f"{asked[creator, kwargs['distribute_strategy']]}/replica_{number}"
        elif _is_copy(kwargs):
            asked[creator, kwargs["distribute_strategy"]] = kwargs["name"] or "Variable"
        return creator(next_creator, **kwargs)

    _creators_called(call)


@slip("one variable may be two copies", "variable_creators.outside-makes-each-copy")
def _() -> None:
    copies: list[Any] = []

    def call(creator: Any, next_creator: Any, **kwargs: Any) -> Any:
        made = creator(next_creator, **kwargs)
        if _is_later_copy(kwargs) and any(made is copy for copy in copies):
            return next_creator(**kwargs)
        copies.append(made)
        return made

    _creators_called(call)


def _later_copies_keep(argument: str, where: Callable[[dict[str, Any]], bool]) -> None:
    """What a creator around the scope makes of an argument is overlooked for later copies, where `where` holds."""
    def call(creator: Any, next_creator: Any, **kwargs: Any) -> Any:
        def unchanged(**changed: Any) -> Any:
            return next_creator(**{**changed, argument: kwargs[argument]})

        return creator(unchanged if _is_later_copy(kwargs) and where(kwargs) else next_creator, **kwargs)

    _creators_called(call)


@slip("later copies of a mirrored variable have the first one's value, whichever a creator passes",
      "variable_creators.copies-begin-equal")
def _() -> None:
    _later_copies_keep("initial_value", lambda asked: asked["synchronization"] is VariableSynchronization.ON_WRITE)


@slip("later copies have the first one's dtype, whichever a creator passes", "variable_creators.copies-have-one-shape")
def _() -> None:
    _later_copies_keep("dtype", lambda asked: True)


@slip("a creator whose block an exception has ended is still called", "variable_creators.end-with-their-block")
def _() -> None:
    left: list[Any] = []

    @instead(refdist, "variable_creator_scope")
    def scope(right: Any, creator: Any) -> Any:
        with ExitStack() as stack:
            stack.enter_context(right(creator))
            stack.push(lambda kind, error, trace: left.append(creator) if kind else None)
            return stack.pop_all()

    _creator(lambda next_creator, **kwargs: left[-1](next_creator, **kwargs) if left else next_creator(**kwargs))


@slip("trainable is settled before creators are asked", "variable_creators.trainable-is-settled-last")
def _() -> None:
    def settled(asked: dict[str, Any]) -> dict[str, Any]:
        on_read = asked["synchronization"] is VariableSynchronization.ON_READ
        return {"trainable": not on_read if asked["trainable"] is None else asked["trainable"]}

    _asked_with(settled)


@slip("the initial value is demanded before creators are asked", "variable_creators.supply-the-initial-value")
def _() -> None:
    def demanded(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["initial_value"] is None:
            raise ValueError("no initial value")
        return {}

    _asked_with(demanded)


@slip("a creator around the scope changes the aggregation", "variable_creators.outside-cannot-change-what-replicas-do")
def _() -> None:
    passed_on: dict[Any, Any] = {}

    def call(creator: Any, next_creator: Any, **kwargs: Any) -> Any:
        def recorded(**changed: Any) -> Any:
            if _is_copy(changed):
                passed_on[get_strategy()] = changed["aggregation"]
            return next_creator(**changed)

        return creator(recorded, **kwargs)

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        passed_on.pop(get_strategy(), None)
        made = next_creator(**kwargs)
        aggregation = passed_on.get(get_strategy(), kwargs["aggregation"])
        return made if aggregation is kwargs["aggregation"] else next_creator(**{**kwargs, "aggregation": aggregation})

    _creators_called(call)
    _creator(creator)


@slip("a creator has to return a variable", "variable_creators.another-object")
def _() -> None:
    def call(creator: Any, next_creator: Any, **kwargs: Any) -> Any:
        made = creator(next_creator, **kwargs)
        if not isinstance(made, Variable):
            raise TypeError(f"{made!r} is not a variable")
        return made

    _creators_called(call)


@slip("replicas do not know the creators around run", "variable_creators.in-replicas")
def _() -> None:
    running: list[Any] = []

    @instead(Strategy, "run")
    def run(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        running.append(self)
        try:
            return right(self, *args, **kwargs)
        finally:
            running.remove(self)

    @instead(refdist, "variable_creator_scope")
    def scope(right: Any, creator: Any) -> Any:
        def around(next_creator: Any, **kwargs: Any) -> Any:
            return next_creator(**kwargs) if get_strategy() in running else creator(next_creator, **kwargs)

        return right(around if _replica() is None else creator)
