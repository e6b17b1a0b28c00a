"""`OneDeviceStrategy`: everything on one device; the shortest complete strategy and the one to read first."""

from __future__ import annotations

from typing import Any

from refdist import config
from refdist.core.rules.options import ReduceOp
from refdist.core.rules.variables import Keeps
from refdist.strategies.alone import warn_of_copies
from refdist.strategies.base import Strategy
from refdist.strategies.extended import StrategyExtended


class OneDeviceStrategy(Strategy):
    """Runs one replica on one device and puts plain variables there.

    Args:
        device: a device name, for example "GPU:0", or a LogicalDevice.

    >>> import refdist
    >>> strategy = refdist.OneDeviceStrategy("GPU:0")
    >>> with strategy.scope():
    ...     refdist.Variable(1.0).device
    '/job:localhost/replica:0/task:0/device:GPU:0'

    Raises:
        RD24: no such device.

    Source: tf.distribute.OneDeviceStrategy.
    """

    def __init__(self, device: str | config.LogicalDevice) -> None:
        warn_of_copies("OneDeviceStrategy")
        super().__init__(OneDeviceExtended(self, worker_devices=[config.check_device(device)]))

    def _reduce_leaf(self, op: ReduceOp, value: object, axes: tuple[int, ...] | None) -> Any:
        # The page of OneDeviceStrategy.reduce says that without an axis the value is simply returned, so that the MEAN
        # of ints is made of ints.
        return super()._reduce_leaf(ReduceOp.SUM if axes is None else op, value, axes)


class OneDeviceExtended(StrategyExtended):
    """OneDeviceStrategy's methods."""

    _keeps = Keeps.ONE_DEVICE
