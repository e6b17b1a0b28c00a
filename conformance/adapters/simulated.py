"""refdist on simulated devices and simulated workers."""

from __future__ import annotations

import warnings
from typing import Any

import refdist
import refdist.tf
from refdist.array.convert import is_array, to_numpy
from refdist.conformance import results
from refdist.conformance.adapter import Adapter
from refdist.conformance.examples import Answer, Program, ended, raised
from refdist.conformance.programs import size
from refdist.conformance.results import Result

DEVICES = 16
# The meshes of TPUs, by the number of cores.
MESHES = {1: "1x1x1x1", 2: "1x1x1x2", 4: "2x1x1x2", 8: "2x2x1x2"}


class Simulated(Adapter):
    """refdist's reference world."""

    name = "refdist (simulated)"
    version = refdist.__version__
    tf: Any = refdist.tf

    def __init__(self) -> None:
        refdist.config.set_simulated_devices(cpu=DEVICES, gpu=DEVICES)

    def strategy(self, kind: str) -> Any:
        name, _, count = kind.partition(" ")
        devices = [f"GPU:{i}" for i in range(int(count) if count.isdigit() else 0)]
        if name == "Default":
            return refdist.get_strategy()
        if name == "OneDevice":
            return refdist.OneDeviceStrategy("GPU:0")
        if name == "Central":
            return refdist.CentralStorageStrategy(devices, "CPU:0")
        if name == "TPU":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the TPU of another case is lost
                return refdist.TPUStrategy(refdist.cluster_resolver.TPUClusterResolver.connect(""))
        return refdist.MirroredStrategy(devices) if name == "Mirrored" else refdist.MultiWorkerMirroredStrategy()

    def run(self, program: Program) -> list[Answer]:
        workers, replicas = size(program.strategy)
        if program.strategy.startswith("TPU"):
            with refdist.config.temporary_devices(cpu=DEVICES, gpu=DEVICES, tpu=MESHES[replicas]):
                return [self.execute(program, {})]
        if not program.strategy.startswith("MultiWorker"):
            return [self.execute(program, {})]
        answers: list[Answer] = [{} for _ in range(workers)]

        def worker() -> None:
            self.execute(program, answers[refdist.cluster_resolver.TFConfigClusterResolver().task_id or 0])

        try:
            refdist.simulate_workers(worker, workers, replicas)
        except Exception as error:
            # The run ends where a worker waits for one that does not come any more.
            for answer in answers:
                ended(program, answer, raised(self, error))
        return answers

    def observe(self, value: object) -> Result:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float)) and not is_array(value):
            return results.number(value)
        if isinstance(value, refdist.Variable):
            return self.observe(value.read_value())
        if isinstance(value, refdist.DistributedValues):
            return {"per_replica": [self.observe(part) for part in value.values]}
        if isinstance(value, refdist.IndexedSlices):
            return {"slices": {"values": self.observe(value.values), "indices": self.observe(value.indices),
                               "dense_shape": self.observe(value.dense_shape)}}
        if isinstance(value, refdist.TensorSpec) and value.shape is not None:
            return results.spec(_dtype_name(value.dtype), value.shape)
        if is_array(value):
            array = to_numpy(value)
            return results.array(_dtype_name(array.dtype), array.shape, array.ravel().tolist())
        if isinstance(value, dict):
            return {"dict": {str(key): self.observe(item) for key, item in value.items()}}
        if isinstance(value, (list, tuple)):
            return {"list" if isinstance(value, list) else "tuple": [self.observe(item) for item in value]}
        return {"object": str(value)}

    def kind_of(self, error: BaseException) -> str:
        return "end" if isinstance(error, refdist.errors.OutOfRangeError) else super().kind_of(error)


def _dtype_name(dtype: Any) -> str:
    return "string" if dtype.kind in "OSU" else str(dtype)
