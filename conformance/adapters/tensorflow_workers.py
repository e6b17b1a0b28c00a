"""TensorFlow whose workers have several replicas each, on logical CPUs.

A worker without GPUs has one replica in TensorFlow, on its first CPU, however many logical CPUs there are. Here the
extended strategy is told otherwise: it takes as many logical CPUs as the worker has. Everything else is TensorFlow's.
"""

from __future__ import annotations

from typing import Any

from refdist.conformance.adapters.tensorflow import TensorFlow
from refdist.conformance.programs import size


class Workers(TensorFlow):
    """tf.distribute with several replicas on each worker."""

    name = "TensorFlow (replicas on workers)"
    lacks = TensorFlow.lacks - {"replicas on workers"}

    def __init__(self) -> None:
        super().__init__()
        from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

        def local_devices(extended: Any, cluster_resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
            [cpu] = self.tf.config.list_physical_devices("CPU")
            count = len(self.tf.config.get_logical_device_configuration(cpu))
            return tuple(f"{worker_device}/device:CPU:{i}" for i in range(count)), "CPU"

        CollectiveAllReduceExtended._initialize_local_devices = local_devices

    def devices(self, strategy: str) -> int:
        return size(strategy)[1] if strategy.startswith("MultiWorker") else super().devices(strategy)
