"""Keras's variables: those made in a scope hold a variable of the strategy.

A strategy's Keras variable is a subclass of Keras's own, which Keras makes where a strategy's scope is open.  `value`
in a replica is a tensor of that replica alone; what it is, the library says with which Keras computes (`engine`).

Keras says of few variables what becomes of the copies, so who makes them decides (`_POLICIES`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import get_stateless_scope, in_stateless_scope
from keras.src.utils.naming import auto_name

from refdist import errors
from refdist.core import context_stack
from refdist.core.rules.options import VariableAggregation as Aggregation
from refdist.core.rules.options import VariableSynchronization as Synchronization
from refdist.core.rules.variables import Kind
from refdist.strategies.replica_context import has_strategy
from refdist.tf.keras.engine import library
from refdist.tf.keras.seams import replace
from refdist.variables.creation import for_all_replicas
from refdist.variables.sharded import ShardedVariable
from refdist.variables.variable import Variable

# Of variables that Keras makes AUTO and NONE and that no optimizer updates, by who makes them.  On TensorFlow each
# replica writes its own copy of such a variable, and all other code sees the first: that is ONLY_FIRST_REPLICA.
_POLICIES: dict[str, tuple[Synchronization, Aggregation]] = {
    "a layer's statistics": (Synchronization.ON_READ, Aggregation.ONLY_FIRST_REPLICA),
    "a generator of seeds": (Synchronization.ON_READ, Aggregation.ONLY_FIRST_REPLICA),
    "anything else": (Synchronization.AUTO, Aggregation.NONE),
}


class StrategyVariable(library.Reads, keras.Variable):  # type: ignore[misc]
    """A Keras variable whose value is in a variable of a strategy.

    Attributes:
        dropped: whether the statistics of the batch do not count, because it has no rows; asked at each write.
    """

    dropped: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Keras may make the value later, when the maker's scope is no longer open.
        names = global_state.get_global_attribute("name_scope_stack") or [None]
        self._maker = getattr(names[-1], "caller", None)
        super().__init__(*args, **{**kwargs, "name": kwargs.get("name") or auto_name("Variable")})

    def _initialize_with_initializer(self, initializer: Callable[..., Any]) -> None:
        self._initialize(lambda: self._convert_to_tensor(initializer(self._shape, dtype=self._dtype)))

    def _initialize(self, value: Any) -> None:
        if library.is_foreign(value):
            raise errors.error("RD20", f"Keras variable {self.path!r}", "it is a parameter of a PyTorch module, which "
                               "reads and writes its own tensor", "Use layers of Keras in the scope of a strategy.")
        synchronization, aggregation = _policy(self)
        with _made_for_all():
            self._hold(Variable(
                value if callable(value) else library.detached(value), trainable=self._trainable, name=self.path,
                synchronization=synchronization, aggregation=aggregation))

    def _hold(self, variable: Any) -> None:
        self._value: Any = variable
        self._is_sharded = isinstance(variable, ShardedVariable)
        self._has_parts = not self._is_sharded and self._value._kind is Kind.ON_READ  # a part of each replica's own
        self._is_statistic = self._has_parts and isinstance(self._maker, keras.Layer)
        self._begin()

    @property
    def value(self) -> Any:
        """The value for the code that reads: in a replica, a tensor of this replica's own."""
        if self._value is None or (
                in_stateless_scope() and get_stateless_scope().get_current_value(self) is not None):
            return super().value
        symbolic = self._symbolic()
        return self._maybe_autocast(self._current() if symbolic is None else symbolic)

    def _direct_assign(self, value: Any) -> None:
        if not (self._is_statistic and self.dropped()):
            self._value.assign(library.detached(value), read_value=False)

    def assign_add(self, value: Any) -> Any:
        """Adds to the value: of what several replicas add, the aggregation is added once."""
        self.change("assign_add", value)
        return self.value

    def assign_sub(self, value: Any) -> Any:
        """Subtracts from the value, as `assign_add` adds."""
        self.change("assign_sub", value)
        return self.value

    def change(self, operation: str, value: Any) -> None:
        """Adds or subtracts, by the name of the method, and reads nothing afterwards."""
        if in_stateless_scope() or self._value is None or self._has_parts:
            getattr(super(), operation)(value)
            return
        if not library.is_of(value, self._dtype):
            value = self._convert_to_tensor(value, dtype=self._dtype)
        change = library.detached(value)
        if not change.ndim:
            change = library.stretched(change, self._shape)
        getattr(self._value, operation)(change, read_value=False)

    @property
    def trainable(self) -> bool:
        """Whether optimizers update it."""
        return bool(self._trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        if self._value is not None:
            self._begin()


class HeldVariable(StrategyVariable):
    """A variable of refdist, which a program gives to an optimizer of Keras.

    Its name is that which Keras on TensorFlow uses for the slots: `Variable_0` for `Variable:0`.
    """

    def __init__(self, variable: Variable) -> None:
        self._held = variable
        super().__init__(keras.initializers.Zeros(), shape=tuple(variable.shape), dtype=variable.dtype.name,
                         trainable=variable.trainable, name=variable.name.replace("/", "_").replace(":", "_"))

    def _initialize_with_initializer(self, initializer: Callable[..., Any]) -> None:
        self._hold(self._held)


class _made_for_all:  # noqa: N801 - written like a function
    # In a replica, a `with` block in which a variable is made across replicas.  A layer is built by the first replica
    # that calls it: the others find it built, so they cannot be waited for.

    def __enter__(self) -> None:
        frame = context_stack.frame()
        if frame.kind == context_stack.REPLICA:
            creators = tuple(creator for creator in frame.creators if creator is not for_all_replicas)
            frame = context_stack.Frame(frame, frame.strategy, context_stack.CROSS, device=frame.device,
                                        creators=creators)
        self._pushed = context_stack.pushed(frame)
        self._pushed.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._pushed.__exit__(*error)


def of_strategy(variable: object) -> Any:
    """The strategy whose variable a Keras variable holds; None where it is Keras's own."""
    if not isinstance(variable, StrategyVariable):
        return None
    return (variable._value.variables[0] if variable._is_sharded else variable._value).distribute_strategy


def _policy(variable: Any) -> tuple[Synchronization, Aggregation]:
    asked = Synchronization[variable.synchronization.upper()], Aggregation[variable.aggregation.upper()]
    if asked != _POLICIES["anything else"] or variable._trainable:
        return asked
    if isinstance(variable._maker, keras.random.SeedGenerator):
        return _POLICIES["a generator of seeds"]
    if isinstance(variable._maker, keras.Layer) and "float" in variable._dtype:
        return _POLICIES["a layer's statistics"]
    return asked


def _new(cls: type, *args: object, **kwargs: object) -> Any:
    return object.__new__(StrategyVariable if cls is keras.Variable and has_strategy() else cls)


def _assign_in_replica(original: Callable[..., Any]) -> Callable[..., Any]:
    def assign(self: Any, value: Any) -> None:
        replica: Any = context_stack.frame().replica
        # A generator of seeds that is everybody's draws on.
        if replica is not None and replica.num_replicas_in_sync > 1 and self.name != "seed_generator_state":
            raise errors.error("RD11", f"assign to Keras variable {self.path!r} {context_stack.describe()}",
                               "it was made outside the scope of the strategy, and has one copy")
        original(self, value)
    return assign


def connect() -> None:
    """From now on Keras makes variables of the strategy in whose scope it makes them."""
    keras.Variable.__new__ = staticmethod(_new)
    replace(keras.Variable, "_direct_assign", _assign_in_replica)
    library.connect_variables()
