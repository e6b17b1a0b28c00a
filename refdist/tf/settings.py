"""Settings of TensorFlow's runtime, with which many programs begin; they have no effect here.

They are about the memory and threads of devices, compilation, graphs and logs of a runtime that is not there; functions
run eagerly and deterministically anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from refdist import config as devices
from refdist.tf.names import Namespace

# The paths of what does nothing, and its parameters.
_WITHOUT_EFFECT = """
config.run_functions_eagerly run_eagerly
config.set_soft_device_placement enabled
config.experimental.set_memory_growth device enable
config.experimental.enable_op_determinism
config.experimental.enable_tensor_float_32_execution enabled
config.experimental.set_synchronous_execution enable
config.optimizer.set_jit enabled
config.optimizer.set_experimental_options options
config.threading.set_intra_op_parallelism_threads num_threads
config.threading.set_inter_op_parallelism_threads num_threads
autograph.set_verbosity level alsologtostdout=False
debugging.set_log_device_placement enabled
"""


def _nothing(path: str, parameters: list[str]) -> Callable[..., None]:
    call: Callable[..., None] = eval(f"lambda {', '.join(parameters)}: None")
    call.__name__ = call.__qualname__ = path.rpartition(".")[2]
    call.__module__ = __name__
    call.__doc__ = f"`tf.{path}`: without effect."
    return call


def _below(place: str) -> dict[str, Any]:
    # What does nothing right below a module of TensorFlow's, by name.
    lines = [line.split() for line in _WITHOUT_EFFECT.split("\n") if line]
    return {path.rpartition(".")[2]: _nothing(path, parameters) for path, *parameters in lines
            if path.rpartition(".")[0] == place}


def functions_run_eagerly() -> bool:
    """Whether functions run eagerly, which they do.

    Source: tf.config.functions_run_eagerly.
    """
    return True


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: object = None) -> bool:
    """Whether there is a GPU, by the devices that the program may use.

    Args:
        cuda_only, min_cuda_compute_capability: without effect.

    Source: tf.test.is_gpu_available.
    """
    return bool(devices.list_physical_devices("GPU"))


def gpu_device_name() -> str:
    """The name of the first GPU; empty where there is none.

    Source: tf.test.gpu_device_name.
    """
    return "/device:GPU:0" if is_gpu_available() else ""


def is_built_with_cuda() -> bool:
    """False: devices are simulated, or those of a backend.

    Source: tf.test.is_built_with_cuda.
    """
    return False


def get_logger() -> logging.Logger:
    """The logger of the name "tensorflow", to which nothing is written here.

    Source: tf.get_logger.
    """
    return logging.getLogger("tensorflow")


def do_not_convert(func: Callable[..., Any] | None = None) -> Any:
    """The function as it is.

    Source: tf.autograph.experimental.do_not_convert.
    """
    return do_not_convert if func is None else func


config = Namespace("config", devices, {
    **_below("config"), "functions_run_eagerly": functions_run_eagerly,
    "experimental": Namespace("config.experimental", own={
        **_below("config.experimental"), "list_physical_devices": devices.list_physical_devices,
        "list_logical_devices": devices.list_logical_devices}),
    "optimizer": Namespace("config.optimizer", own=_below("config.optimizer")),
    "threading": Namespace("config.threading", own=_below("config.threading"))})
autograph = Namespace("autograph", own={
    **_below("autograph"), "experimental": Namespace("autograph.experimental", own={"do_not_convert": do_not_convert})})
debugging = Namespace("debugging", own=_below("debugging"))
test = Namespace("test", own={
    "is_gpu_available": is_gpu_available, "gpu_device_name": gpu_device_name, "is_built_with_cuda": is_built_with_cuda,
    "is_built_with_gpu_support": is_built_with_cuda})
