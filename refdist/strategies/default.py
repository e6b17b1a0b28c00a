"""The default strategy, current outside any scope: one replica, plain variables, no scope of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from refdist import config, errors
from refdist.array.backend import current_backend
from refdist.core import context_stack
from refdist.core.callers import default_strategy, require
from refdist.core.rules.calls import Call
from refdist.core.rules.variables import Keeps
from refdist.data.dataset import Dataset
from refdist.input import distributed as datasets
from refdist.input.options import InputContext, InputOptions
from refdist.strategies.base import Scope, Strategy
from refdist.strategies.extended import StrategyExtended
from refdist.strategies.replica_context import ReplicaContext, default_replica
from refdist.variables.variable import as_variable


class DefaultStrategy(Strategy):
    """One replica and nothing distributed.

    >>> import refdist
    >>> refdist.get_strategy().run(lambda x: x + 1, args=(1,))
    2

    Source: tf.distribute.get_strategy.
    """

    def __init__(self) -> None:
        super().__init__(DefaultExtended(self))

    def scope(self) -> Scope:
        """A context manager that changes nothing, and refuses to hide another strategy.

        Raises:
            RD10: in the scope of another strategy.
        """
        return _NoScope(self)

    def experimental_distribute_dataset(self, dataset: Iterable[object], options: InputOptions | None = None) -> Any:
        """The dataset itself; a list of batches becomes a DistributedDataset, whose iterators have `get_next`.

        Raises:
            RD25, RD34: an array, a dataset that cannot be iterated again, or bad options.
        """
        require(self, Call.DISTRIBUTE_DATASET)
        datasets.check(dataset, options, "experimental_distribute_dataset")
        return dataset if isinstance(dataset, Dataset) else super().experimental_distribute_dataset(dataset, options)

    def distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Iterable[object]],
                                          options: InputOptions | None = None) -> Any:
        """The dataset that the function makes for the only pipeline there is.

        Raises:
            RD25, RD34: no function, bad options, or a dataset that cannot be iterated again.
        """
        require(self, Call.DATASETS_FROM_FUNCTION)
        if not callable(dataset_fn):
            raise errors.error("RD25", "distribute_datasets_from_function", f"dataset_fn is {dataset_fn!r}",
                               "Pass a function of an InputContext.")
        dataset = dataset_fn(InputContext())
        datasets.check(dataset, options, "the dataset_fn of distribute_datasets_from_function")
        if isinstance(dataset, Dataset):
            return dataset
        return super().distribute_datasets_from_function(lambda _: dataset, options)

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        raise errors.error("RD10", "copy of the default strategy", "there is only one",
                           "Ask `refdist.get_strategy()` outside any scope.")


class _NoScope(Scope):
    def __enter__(self) -> Strategy:
        require(self._strategy, Call.SCOPE)
        self._push(context_stack.frame().with_device(context_stack.frame().device))
        return self._strategy


class DefaultExtended(StrategyExtended):
    """The default strategy's methods."""

    _keeps = Keeps.DEFAULT
    _keeps_backend = False

    def __init__(self, container_strategy: Strategy) -> None:
        super().__init__(container_strategy)

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The default strategy does not say where it runs.

        Raises:
            RD20: always.
        """
        raise self._nowhere("worker_devices")

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The default strategy does not say where variables are.

        Raises:
            RD20: always.
        """
        raise self._nowhere("parameter_devices")

    def _nowhere(self, name: str) -> errors.RefdistError:
        return errors.error("RD20", f"extended.{name}", "the default strategy does not choose devices",
                            "Use OneDeviceStrategy to choose one.", kind=errors.InvalidContextError)

    def _scope_frame(self, top: context_stack.Frame) -> context_stack.Frame:
        return context_stack.Frame(top, self._strategy, context_stack.CROSS, device=top.device, creators=top.creators)

    def colocate_vars_with(self, colocate_with_variable: object) -> AbstractContextManager[Any]:
        """A scope whose new variables are on the device of the given one, whichever strategy made it.

        Raises:
            RD10: in the scope of another strategy.  RD25: not a variable.
        """
        require(self._strategy, Call.COLOCATE_VARS_WITH)
        return config.device(as_variable(colocate_with_variable, "colocate_vars_with", "colocate_with_variable").device)

    def variable_created_in_scope(self, v: object) -> bool:
        """Whether `v` was created outside any scope."""
        return as_variable(v, "variable_created_in_scope", "v")._strategy in (None, self._strategy)


_default = DefaultStrategy()
default_strategy.value, default_replica.value = _default, ReplicaContext(_default, 0)
# Below the frame of the strategy that `experimental_set_strategy` sets.
_BELOW_SET = context_stack.Frame(context_stack.BOTTOM, None, context_stack.OUTSIDE)


def experimental_set_strategy(strategy: Strategy | None) -> None:
    """Makes `strategy` current in this thread until another one is set; None goes back to the default one.

    Args:
        strategy: the strategy, or None.

    Raises:
        RD09: inside the scope of a strategy.  RD25: not a strategy.

    Source: tf.distribute.experimental_set_strategy.
    """
    if not (strategy is None or isinstance(strategy, Strategy)):
        raise errors.error("RD25", "experimental_set_strategy", f"got {strategy!r}", "Pass a strategy or None.")
    top = context_stack.frame()
    if top is not context_stack.BOTTOM and top.parent is not _BELOW_SET:
        raise errors.error("RD09", "experimental_set_strategy", f"it was called {context_stack.describe()}",
                           "Call it outside any `with strategy.scope():`.")
    top = context_stack.BOTTOM
    if strategy is not None and not isinstance(strategy, DefaultStrategy):
        with context_stack.pushed(_BELOW_SET):
            strategy.scope().__enter__()
            top = context_stack.frame()
    context_stack.top.set(top)


def array_module() -> Any:
    """The module that arrays of the current device belong to: numpy, or cupy on a GPU.

    >>> import refdist
    >>> refdist.array_module().__name__
    'numpy'
    """
    return current_backend().xp(context_stack.frame().device)
