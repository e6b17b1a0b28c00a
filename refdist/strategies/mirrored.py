"""`MirroredStrategy`: one replica per device of this process, a copy of every variable on each."""

from __future__ import annotations

from collections.abc import Sequence

from refdist import config, errors
from refdist.core import devices as names
from refdist.strategies.alone import check_device_list, warn_of_copies
from refdist.strategies.base import Strategy
from refdist.strategies.cross_device_ops import CrossDeviceOps
from refdist.strategies.extended import StrategyExtended
from refdist.strategies.plans import NcclAllReduce, ReductionToOneDevice


class MirroredStrategy(Strategy):
    """Synchronous training on several devices of one machine.

    Args:
        devices: names such as ["GPU:0", "GPU:1"], or LogicalDevices; None or an empty list takes all GPUs of the
            machine, or all CPUs when it has no GPU: one replica where the machine was not sized.
        cross_device_ops: how values are reduced; None takes NcclAllReduce between GPUs and
            ReductionToOneDevice otherwise.

    >>> import refdist
    >>> refdist.MirroredStrategy(["GPU:0", "GPU:1"]).num_replicas_in_sync
    2

    Raises:
        RD24: no such device.  RD25, RD34: a device twice, devices of several tasks, no CrossDeviceOps.

    Source: tf.distribute.MirroredStrategy.
    """

    def __init__(self, devices: Sequence[str | config.LogicalDevice] | None = None,
                 cross_device_ops: CrossDeviceOps | None = None) -> None:
        full = _check(devices)
        warn_of_copies("MirroredStrategy")
        if cross_device_ops is not None and not isinstance(cross_device_ops, CrossDeviceOps):
            raise errors.error("RD25", "MirroredStrategy", f"cross_device_ops is {cross_device_ops!r}",
                               "Pass a CrossDeviceOps object or None.")
        if cross_device_ops is None:
            gpus = all(names.device_type(name) == "GPU" for name in full)
            cross_device_ops = NcclAllReduce() if gpus else ReductionToOneDevice()
        super().__init__(MirroredExtended(self, worker_devices=full, cross_device_ops=cross_device_ops))


class MirroredExtended(StrategyExtended):
    """MirroredStrategy's methods."""


def _check(wanted: Sequence[str | config.LogicalDevice] | None) -> list[str]:
    check_device_list("MirroredStrategy", "devices", wanted)
    if not wanted:
        wanted = config.list_logical_devices("GPU") or config.list_logical_devices("CPU")
    return config.replica_devices("MirroredStrategy", wanted)
