"""Names of earlier versions of Keras that programs still say."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from refdist import errors


class Reduction:
    """How a loss is reduced, by the names of Keras 2; losses take the text.

    Source: tf.keras.losses.Reduction of TensorFlow 2.15.
    """

    AUTO = "sum_over_batch_size"
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"


def add_names(keras: Any) -> None:
    """Gives Keras the names that it lacks."""
    keras.losses.Reduction = Reduction
    keras.metrics.Metric.reset_states = keras.metrics.Metric.reset_state
    keras.optimizers.legacy = _Legacy("refdist.tf.keras.optimizers.legacy")
    keras.callbacks.TensorBoard = _tensorboard


class _Legacy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise errors.error("RD20", f"tf.keras.optimizers.legacy.{name}", "it is gone from Keras, and from TensorFlow",
                           f"Write `tf.keras.optimizers.{name}`.", kind=errors.MissingNameError)


def _tensorboard(*args: object, **kwargs: object) -> Any:
    raise errors.error("RD20", "tf.keras.callbacks.TensorBoard", "refdist writes no logs for TensorBoard",
                       "Leave it out, and record the program with `refdist.record()`.", kind=errors.MissingNameError)
