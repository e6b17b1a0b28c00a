"""`CentralStorageStrategy`: variables in one place, replicas on every GPU."""

from __future__ import annotations

from collections.abc import Sequence

from refdist import config, errors
from refdist.core.rules.variables import Keeps
from refdist.strategies.alone import check_device_list, warn_of_copies
from refdist.strategies.base import Strategy
from refdist.strategies.extended import StrategyExtended


class CentralStorageStrategy(Strategy):
    """One copy of every variable on the parameter device; replicas on the compute devices update it.

    Args:
        compute_devices: names of devices, or LogicalDevices; None takes all GPUs of the machine, or one CPU when it
            has none.
        parameter_device: a device name; None takes the CPU, or the only compute device.

    >>> import refdist
    >>> strategy = refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"], "CPU:0")
    >>> with strategy.scope():
    ...     v = refdist.Variable(0.0, aggregation=refdist.VariableAggregation.SUM)
    >>> _ = strategy.run(lambda: v.assign_add(1.0))
    >>> float(v)
    2.0

    Raises:
        RD24: no such device.  RD25, RD34: a device twice, no device, or one of another task.

    Source: tf.distribute.experimental.CentralStorageStrategy.
    """

    def __init__(self, compute_devices: Sequence[str | config.LogicalDevice] | None = None,
                 parameter_device: str | config.LogicalDevice | None = None) -> None:
        check_device_list("CentralStorageStrategy", "compute_devices", compute_devices)
        if compute_devices is None:
            compute_devices = config.list_logical_devices("GPU") or ["CPU:0"]
        full = config.replica_devices("CentralStorageStrategy", compute_devices)
        if not full:
            raise errors.error("RD34", "CentralStorageStrategy", "compute_devices is empty",
                               "Name at least one device, or pass None for those of the machine.")
        if parameter_device is None:
            parameter_device = full[0] if len(full) == 1 else "CPU:0"
        warn_of_copies("CentralStorageStrategy")
        [central] = config.check_own_devices("CentralStorageStrategy", [parameter_device], "parameter_device")
        super().__init__(CentralStorageExtended(self, worker_devices=full, parameter_devices=[central]))


class CentralStorageExtended(StrategyExtended):
    """CentralStorageStrategy's methods."""

    def __init__(self, strategy: Strategy, worker_devices: Sequence[str], parameter_devices: Sequence[str]) -> None:
        super().__init__(strategy, worker_devices=worker_devices, parameter_devices=parameter_devices)
        self._keeps = Keeps.CENTRAL if self.layout.count > 1 else Keeps.LONE_CENTRAL
