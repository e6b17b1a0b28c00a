"""Names of earlier versions of Keras that programs still say."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from refdist import errors
from refdist.strategies.replica_context import get_strategy


class Reduction:
    """How a loss is reduced, by the names of Keras 2; losses take the text.

    Source: tf.keras.losses.Reduction of TensorFlow 2.15.
    """

    AUTO = "sum_over_batch_size"
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """All of them."""
        return cls.NONE, cls.SUM, cls.SUM_OVER_BATCH_SIZE

    @classmethod
    def validate(cls, key: str) -> None:
        """Raises unless the key is one of them.

        Args:
            key: a text.

        Raises:
            RD34: it is none.
        """
        if key not in cls.all():
            raise errors.error("RD34", "tf.keras.losses.Reduction.validate", f"key is {key!r}",
                               f"Pass one of {cls.all()}.")


def add_names(keras: Any) -> None:
    """Gives Keras the names that it lacks."""
    keras.losses.Reduction = Reduction
    keras.metrics.Metric.reset_states = keras.metrics.Metric.reset_state
    keras.optimizers.legacy = _Legacy("refdist.tf.keras.optimizers.legacy")
    model = keras.Model
    model.distribute_strategy = property(lambda self: vars(self).get("_distribute_strategy") or get_strategy())
    model.distribute_reduction_method, model.unrolled_steps_per_execution = "auto", 1  # without effect
    model.compiled_loss = _compiled_loss
    model.compiled_metrics = property(_CompiledMetrics)


def _compiled_loss(model: Any, y: Any, y_pred: Any, sample_weight: Any = None,
                   regularization_losses: object = None) -> Any:
    return model.compute_loss(x=None, y=y, y_pred=y_pred, sample_weight=sample_weight)


class _CompiledMetrics:
    # As Keras computes it on TensorFlow.
    def __init__(self, model: Any) -> None:
        self._model = model

    def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
        mean = type(self._model._loss_tracker)
        for metric in self._model.metrics:
            metric.update_state(*((y_pred,) if isinstance(metric, mean) else (y, y_pred)), sample_weight=sample_weight)


class _Legacy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise errors.error("RD20", f"tf.keras.optimizers.legacy.{name}", "it is gone from Keras, and from TensorFlow",
                           f"Write `tf.keras.optimizers.{name}`.", kind=errors.MissingNameError)
