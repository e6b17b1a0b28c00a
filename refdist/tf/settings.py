"""Settings of TensorFlow's runtime, with which many programs begin; they have no effect here.

They are about the memory and threads of devices, compilation, graphs and logs of a runtime that is not there; functions
run eagerly and deterministically anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from refdist import compat, errors
from refdist import config as physical
from refdist.runtime import Field
from refdist.tf.names import Namespace

# The paths of what does nothing, and its parameters.
_WITHOUT_EFFECT = """
config.run_functions_eagerly run_eagerly
config.experimental_run_functions_eagerly run_eagerly
config.experimental.enable_op_determinism
config.experimental.reset_memory_stats device
config.optimizer.set_jit enabled
config.optimizer.set_experimental_options options
autograph.set_verbosity level alsologtostdout=False
autograph.experimental.set_loop_options parallel_iterations=None swap_memory=None maximum_iterations=None \
    shape_invariants=None
debugging.disable_traceback_filtering
debugging.enable_traceback_filtering
compat.v1.enable_eager_execution config=None device_policy=None execution_mode=None
compat.v1.enable_resource_variables
compat.v1.enable_v2_behavior
compat.v1.enable_v2_tensorshape
"""
# What can be read again, by its paths, and what it is where a program sets nothing; of some, for each device.
_KEPT = (
    ("config.set_soft_device_placement", "config.get_soft_device_placement", "enabled", True),
    ("config.experimental.set_memory_growth", "config.experimental.get_memory_growth", "device enable", False),
    ("config.experimental.enable_tensor_float_32_execution", "config.experimental.tensor_float_32_execution_enabled",
     "enabled", True),
    ("config.experimental.set_synchronous_execution", "config.experimental.get_synchronous_execution",
     "enable", True),
    ("config.experimental.set_device_policy", "config.experimental.get_device_policy", "device_policy", "silent"),
    ("config.threading.set_intra_op_parallelism_threads", "config.threading.get_intra_op_parallelism_threads",
     "num_threads", 0),
    ("config.threading.set_inter_op_parallelism_threads", "config.threading.get_inter_op_parallelism_threads",
     "num_threads", 0),
    ("debugging.set_log_device_placement", "debugging.get_log_device_placement", "enabled", False),
)
_values: Field[dict[tuple[object, ...], Any]] = Field("what a program has set of TensorFlow's runtime", dict)


def _nothing(path: str, parameters: list[str]) -> Callable[..., None]:
    call: Callable[..., None] = eval(f"lambda {', '.join(parameters)}: None")
    call.__name__ = call.__qualname__ = path.rpartition(".")[2]
    call.__module__ = __name__
    call.__doc__ = f"`tf.{path}`: without effect."
    return call


def _kept(setter: str, getter: str, parameters: str, default: Any) -> dict[str, Callable[..., Any]]:
    *place, value = parameters.split()

    def keep(*arguments: Any) -> None:
        _values.value[getter, *arguments[:-1]] = arguments[-1]

    def read(*arguments: Any) -> Any:
        return _values.value.get((getter, *arguments), default)
    calls = {}
    for path, names, function in ((setter, [*place, value], keep), (getter, place, read)):
        call: Callable[..., Any] = eval(f"lambda {', '.join(names)}: function({', '.join(names)})",
                                        {"function": function})
        call.__name__ = call.__qualname__ = path.rpartition(".")[2]
        call.__module__ = __name__
        call.__doc__ = f"`tf.{path}`: without effect on what is computed."
        calls[path] = call
    return calls


_calls = {
    **{path: _nothing(path, parameters)
       for path, *parameters in (line.split() for line in _WITHOUT_EFFECT.split("\n") if line)},
    **{path: call for row in _KEPT for path, call in _kept(*row).items()}}


def _below(place: str) -> dict[str, Any]:
    # What has no effect right below a module of TensorFlow's, by name.
    return {path.rpartition(".")[2]: call for path, call in _calls.items() if path.rpartition(".")[0] == place}


def functions_run_eagerly() -> bool:
    """Whether functions run eagerly, which they do.

    Source: tf.config.functions_run_eagerly.
    """
    return True


def executing_eagerly() -> bool:
    """Whether operations are carried out at once, which they are.

    Source: tf.compat.v1.executing_eagerly.
    """
    return True


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Does nothing where the devices are all that there are.

    Args:
        devices: a physical device, or a list of them.
        device_type: "CPU" or "GPU"; None for both.

    Raises:
        RD20: some of the devices that there are would be left out.  RD34: a device that there is not, or of another
            type.

    Source: tf.config.set_visible_devices.
    """
    visible = list(devices) if isinstance(devices, list) else [devices]
    present = physical.list_physical_devices(device_type)
    for device in visible:
        if device not in present:
            raise errors.error("RD34", "tf.config.set_visible_devices", f"{device!r} is none of the devices {present}",
                               f"Pass devices of `tf.config.list_physical_devices({device_type!r})`.")
    if len(set(visible)) < len(present):
        raise errors.error("RD20", "tf.config.set_visible_devices", f"{errors.counted(len(set(visible)), 'device')} of "
                           f"{len(present)} would be seen", "State the devices with REFDIST_DEVICES, such as "
                           "REFDIST_DEVICES=CPU:1.")


def get_device_details(device: Any) -> dict[str, Any]:
    """Nothing is known of a device.

    Args:
        device: a physical device.

    Source: tf.config.experimental.get_device_details.
    """
    return {}


def set_random_seed(seed: int) -> None:
    """`tf.random.set_seed`, by its former name.

    Args:
        seed: an int.

    Raises:
        RD25: another seed.

    Source: tf.compat.v1.set_random_seed.
    """
    from refdist.tf.drawn import set_seed  # which imports Keras

    set_seed(seed)


class _Options:
    # Settings of a session, which there is not: fields that can be set and read.
    _fields: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, **settings: Any) -> None:
        for name, make in self._fields.items():
            super().__setattr__(name, make())
        for name, value in settings.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            raise errors.error("RD20", f"tf.compat.v1.{type(self).__name__}", f"there is no field {name!r} here",
                               f"Leave it out; taken, without effect, are {', '.join(self._fields)}.",
                               kind=errors.MissingNameError)
        super().__setattr__(name, value)


class GPUOptions(_Options):
    """What a session would do with the memory of GPUs; without effect.

    Raises:
        RD20: another field than those that programs set.

    Source: tf.compat.v1.GPUOptions.
    """

    _fields: ClassVar = {"allow_growth": bool, "per_process_gpu_memory_fraction": float, "visible_device_list": str,
                         "allocator_type": str}


class ConfigProto(_Options):
    """How a session would run; without effect.

    Raises:
        RD20: another field than those that programs set.

    Source: tf.compat.v1.ConfigProto.
    """

    _fields: ClassVar = {"allow_soft_placement": bool, "log_device_placement": bool, "gpu_options": GPUOptions,
                         "inter_op_parallelism_threads": int, "intra_op_parallelism_threads": int, "device_count": dict}


def _verbosity(level: int | str) -> None:
    get_logger().setLevel(level)


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: object = None) -> bool:
    """Whether there is a GPU, by the devices that the program may use.

    Args:
        cuda_only, min_cuda_compute_capability: without effect.

    Source: tf.test.is_gpu_available.
    """
    return bool(physical.list_physical_devices("GPU"))


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


config = Namespace("config", physical, {
    **_below("config"), "functions_run_eagerly": functions_run_eagerly,
    "experimental_functions_run_eagerly": functions_run_eagerly, "set_visible_devices": set_visible_devices,
    "get_visible_devices": physical.list_physical_devices,
    "experimental": Namespace("config.experimental", own={
        **_below("config.experimental"), "list_physical_devices": physical.list_physical_devices,
        "list_logical_devices": physical.list_logical_devices, "get_device_details": get_device_details,
        "set_visible_devices": set_visible_devices, "get_visible_devices": physical.list_physical_devices,
        "VirtualDeviceConfiguration": physical.LogicalDeviceConfiguration,
        "set_virtual_device_configuration": physical.set_logical_device_configuration,
        "get_virtual_device_configuration": physical.get_logical_device_configuration}),
    "optimizer": Namespace("config.optimizer", own=_below("config.optimizer")),
    "threading": Namespace("config.threading", own=_below("config.threading"))})
autograph = Namespace("autograph", own={
    **_below("autograph"), "experimental": Namespace("autograph.experimental", own={
        **_below("autograph.experimental"), "do_not_convert": do_not_convert})})
debugging = Namespace("debugging", own=_below("debugging"))
test = Namespace("test", own={
    "is_gpu_available": is_gpu_available, "gpu_device_name": gpu_device_name, "is_built_with_cuda": is_built_with_cuda,
    "is_built_with_gpu_support": is_built_with_cuda, "is_built_with_rocm": is_built_with_cuda,
    "is_built_with_xla": is_built_with_cuda}, later={"TestCase": "refdist.tf.testing", "main": "refdist.tf.testing"})
_logging = Namespace("compat.v1.logging", own={
    "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL, "set_verbosity": _verbosity, "get_verbosity": lambda: get_logger().getEffectiveLevel(),
    **{name: getattr(get_logger(), name) for name in ("debug", "info", "warning", "error", "fatal", "log")},
    "warn": get_logger().warning})
v1 = Namespace("compat.v1", compat.v1, {
    **_below("compat.v1"), "logging": _logging, "ConfigProto": ConfigProto, "GPUOptions": GPUOptions,
    "executing_eagerly": executing_eagerly, "executing_eagerly_outside_functions": executing_eagerly,
    "get_logger": get_logger, "set_random_seed": set_random_seed})
