"""Moving averages of variables, as `tf.train.ExponentialMovingAverage` keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np

from refdist import errors
from refdist.array.convert import short
from refdist.core.rules.options import VariableAggregation
from refdist.missing import lacks
from refdist.strategies.replica_context import in_cross_replica_context
from refdist.tf.conversion import dtype_name, tensor
from refdist.variables.variable import Variable

_FLOATS = ("bfloat16", "float16", "float32", "float64")


@lacks({"average_name variables_to_restore": "Pass `average(variable)` to `tf.train.Checkpoint`."})
class ExponentialMovingAverage:
    """Averages of variables, in which older values count less: average = decay * average + (1 - decay) * variable.

    In the replicas of a strategy the mean of the replicas' values counts.

    Args:
        decay: how much of the average each call of `apply` keeps.
        num_updates: None, or how many steps were taken; then at most (1 + steps) / (10 + steps) is kept.
        zero_debias: without effect: averages begin with the values of their variables.
        name: the end of the averages' names.

    >>> import refdist.tf as tf
    >>> x, average = tf.Variable(1.0), tf.train.ExponentialMovingAverage(0.75)                      # doctest: +SKIP
    >>> average.apply([x])                                                                          # doctest: +SKIP
    >>> x.assign(5.0); average.apply([x]); average.average(x).numpy()                               # doctest: +SKIP
    2.0

    Source: tf.train.ExponentialMovingAverage.
    """

    def __init__(self, decay: Any, num_updates: Any = None, zero_debias: bool = False,
                 name: str = "ExponentialMovingAverage") -> None:
        self.name = name
        self._decay, self._steps = decay, num_updates
        self._averages: dict[int, tuple[Any, Any]] = {}  # id -> the variable, kept so that no other one gets its id

    def apply(self, var_list: Iterable[Any] | None = None) -> None:
        """Brings the averages up to date; the first time they are made, with the values of the variables.

        Args:
            var_list: a list of variables of floating-point numbers; Keras's, too.

        Raises:
            RD20: no list.  RD25: something else than variables, or variables of other dtypes; `decay` or `num_updates`
                is not a number.

        Source: tf.train.ExponentialMovingAverage.apply.
        """
        attempted = "tf.train.ExponentialMovingAverage.apply"
        if var_list is None:
            raise errors.error("RD20", attempted, "there is no list of all variables",
                               "Pass the variables: `apply(model.trainable_variables)`.")
        if not isinstance(var_list, Iterable) or hasattr(var_list, "shape"):
            raise errors.error("RD25", attempted, f"var_list is {errors.type_of(var_list)}",
                               "Pass a list of variables.", kind=errors.InvalidTypeError)
        variables = list(var_list)
        for variable in variables:
            _check(variable, attempted)
        kept = _number(self._decay, "decay", attempted)
        if self._steps is not None:
            steps = _number(self._steps, "num_updates", attempted)
            kept = min(kept, (1 + steps) / (10 + steps))
        for variable in variables:
            if id(variable) not in self._averages:
                self._averages[id(variable)] = variable, _made(variable, self.name)
            average = self._averages[id(variable)][1]
            share = np.asarray(np.float32(1) - np.float32(kept)).astype(average.dtype)
            average.assign_sub((average - tensor(variable)) * share)

    def average(self, var: Any) -> Any:
        """The variable that is the average of another one; None where there is none yet.

        Args:
            var: the variable.

        Source: tf.train.ExponentialMovingAverage.average.
        """
        return self._averages.get(id(var), (None, None))[1]


def _number(value: Any, name: str, attempted: str) -> float:
    try:
        return float(np.asarray(tensor(value)))
    except (TypeError, ValueError) as error:
        raise errors.error("RD25", attempted, f"{name} is {short(value)}", "Pass a number.",
                           kind=errors.InvalidTypeError) from error


def _made(variable: Any, suffix: str) -> Variable:
    from refdist.tf.keras.variables import of_strategy

    name = getattr(variable, "path", variable.name)
    strategy = variable.distribute_strategy if isinstance(variable, Variable) else of_strategy(variable)
    with strategy.scope() if strategy is not None and in_cross_replica_context() else nullcontext():
        return Variable(tensor(variable), trainable=False, name=f"{name.partition(':')[0]}/{suffix}",
                        aggregation=VariableAggregation.MEAN)


def _check(variable: Any, attempted: str) -> None:
    import keras

    if not isinstance(variable, (Variable, keras.Variable)):
        raise errors.error("RD25", attempted, f"got {errors.type_of(variable)}",
                           "Pass variables: tensors have no average.", kind=errors.InvalidTypeError)
    if dtype_name(variable.dtype) not in _FLOATS:
        raise errors.error("RD25", attempted, f"variable {variable.name} has dtype {dtype_name(variable.dtype)}",
                           "Pass variables of floating-point numbers.", kind=errors.InvalidTypeError)
