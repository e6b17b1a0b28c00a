"""The devices of the machine, and the order in which replicas run.

Physical devices are those that the backend finds.  A program names logical devices, numbered by type over all physical
ones.  There are three ways from one to the other:

* Nothing is stated: every physical device is one logical device.  The simulated backend finds one CPU and takes every
  other name too, as on a machine with as many devices as a program asks for.
* The number is stated, by REFDIST_DEVICES=GPU:4 or `set_simulated_devices`: so many logical devices are dealt out to
  the physical ones in turn, so that a program for four GPUs runs on two.  Other names are errors from then on.
* A physical device is divided by `set_logical_device_configuration`.  That overrides the number for its type.

How names are written is in `core/devices`; what was stated is part of `runtime.process`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

from refdist import errors
from refdist.core import checks as asked_checks
from refdist.core import context_stack, devices
from refdist.core.integers import as_integer, integer
from refdist.core.scaled import scale
from refdist.missing import lacks
from refdist.runtime import Field, Late

SEED_VARIABLE = "REFDIST_REPLICA_SEED"
_PHYSICAL = "/physical_device:"
_machine: Field[devices.Machine] = Field("the devices of the machine, as they were stated", devices.Machine)
# Asks the backend for its devices.
count_devices: Late[Callable[[], dict[str, int] | None]] = Late()


class LogicalDevice(NamedTuple):
    """A device that a program can name.

    Source: tf.config.LogicalDevice.
    """

    name: str
    device_type: str


class PhysicalDevice(NamedTuple):
    """A device of the machine, which may be divided into logical ones.

    Source: tf.config.PhysicalDevice.
    """

    name: str
    device_type: str


@lacks({"experimental_device_ordinal experimental_priority": "Leave it out: all devices are alike."})
class LogicalDeviceConfiguration(NamedTuple):
    """One logical device of a physical one.

    Args:
        memory_limit: in MiB; None shares what there is.  Devices of the simulated machine have no limit.

    Source: tf.config.LogicalDeviceConfiguration.
    """

    memory_limit: int | None = None


def when_changed(call: Callable[[], None]) -> None:
    """Registers a function that is called whenever the machine is sized or divided.

    Args:
        call: the function.
    """
    _machine.value.watchers.append(call)


def _changed() -> None:
    _machine.value.parts = {}
    for call in _machine.value.watchers:
        call()


def _stated() -> None:
    if not _machine.value.asked:
        text = os.environ.get(devices.VARIABLE)
        _machine.value.counts, _machine.value.tpu = devices.read_counts(text) if text else (None, None)
        _machine.value.asked = True


def tpu_mesh() -> devices.Mesh | None:
    """The cores of the TPU that was stated; None where none was."""
    _stated()
    return _machine.value.tpu


def _counts() -> dict[str, int] | None:
    _stated()
    counted = count_devices.value()
    counts = counted if _machine.value.counts is None else _machine.value.counts
    if scale.value is not None and counts is not None:
        counts = {kind: count and max(count, scale.value.replicas) for kind, count in counts.items()}
    if not _machine.value.divided:
        return counts
    there = _physical_counts()
    divided = {kind: len(logical_parts(kind, there[kind])) for kind, _ in _machine.value.divided}
    return {**(counts or there), **divided}


def _physical_counts() -> dict[str, int]:
    # What was divided is numbered over the devices there are, whatever number was stated.
    _stated()
    there = {**(count_devices.value() or _machine.value.counts or {"CPU": 1})}
    for kind, i in _machine.value.divided:
        there[kind] = max(there.get(kind, 0), i + 1)
    return there


def logical_parts(kind: str, physical: int) -> list[devices.LogicalPart]:
    """The logical devices of a type on `physical` devices, in order.

    A stated number (REFDIST_DEVICES, set_simulated_devices) is dealt out to the physical devices in turn.

    Args:
        kind: the type, as "GPU".
        physical: how many devices of this type there are.
    """
    _stated()
    if (kind, physical) not in _machine.value.parts:
        divided = {i: limits for (of, i), limits in _machine.value.divided.items() if of == kind}
        if divided or _machine.value.counts is None:
            count = max(physical, 1 + max(divided, default=-1))
            parts = [devices.LogicalPart(i, limit) for i in range(count) for limit in divided.get(i, (None,))]
        else:
            parts = [devices.LogicalPart(i % max(physical, 1), None) for i in range(_machine.value.counts.get(kind, 0))]
        _machine.value.parts[kind, physical] = parts
    return _machine.value.parts[kind, physical]


def set_logical_device_configuration(device: PhysicalDevice | str,
                                     logical_devices: Sequence[LogicalDeviceConfiguration]) -> None:
    """Divides a physical device into logical ones, which are numbered over all physical devices of the type.

    Args:
        device: one of `list_physical_devices()`, or a name.
        logical_devices: one configuration for each.

    >>> import refdist
    >>> cpu = refdist.config.list_physical_devices("CPU")[0]
    >>> refdist.config.set_logical_device_configuration(cpu, [refdist.config.LogicalDeviceConfiguration()] * 2)
    >>> [found.name for found in refdist.config.list_logical_devices("CPU")]
    ['/device:CPU:0', '/device:CPU:1']
    >>> refdist.config.reset_simulated_devices()

    Raises:
        RD24: no such device.  RD25, RD34: not a list of LogicalDeviceConfiguration, a limit that is not a number of
        MiB, or a limit of a CPU.

    Source: tf.config.set_logical_device_configuration.
    """
    attempted = "set_logical_device_configuration"
    kind, i = _physical(attempted, device)
    if not isinstance(logical_devices, (list, tuple)) or not logical_devices or not all(
            isinstance(item, LogicalDeviceConfiguration) for item in logical_devices):
        raise errors.error("RD25", attempted, f"logical_devices is {logical_devices!r}",
                           "Pass a list of LogicalDeviceConfiguration(memory_limit=...).")
    limits = [as_integer(item.memory_limit) for item in logical_devices]
    for limit, (stated,) in zip(limits, logical_devices, strict=True):
        if stated is not None and (limit is None or limit < 1):
            raise errors.error("RD25", attempted, f"memory_limit is {stated!r}", "Pass a number of MiB, at least 1.")
        if limit is not None and kind == "CPU":
            raise errors.error("RD34", attempted, f"the memory_limit of a CPU is {limit!r}", "Leave it out.")
    _machine.value.divided[kind, i] = tuple(limits)
    _changed()


def get_logical_device_configuration(device: PhysicalDevice | str) -> list[LogicalDeviceConfiguration] | None:
    """Into what a physical device was divided, None when it was not divided.

    Args:
        device: a PhysicalDevice, or the name of a device, as "GPU:0".

    Raises:
        RD24: no such device.

    Source: tf.config.get_logical_device_configuration.
    """
    limits = _machine.value.divided.get(_physical("get_logical_device_configuration", device))
    return None if limits is None else [LogicalDeviceConfiguration(limit) for limit in limits]


def _physical(attempted: str, device: PhysicalDevice | str) -> tuple[str, int]:
    # Type and number of a physical device.
    if isinstance(device, PhysicalDevice):
        there = list_physical_devices()
        if device not in there:
            raise errors.error("RD24", attempted, f"the machine has no {device!r}",
                               f"Pass one of list_physical_devices(): {', '.join(known.name for known in there)}.",
                               kind=errors.InvalidValueError)
        device = device.name.removeprefix(_PHYSICAL)
    name = devices.canonical(device)
    return devices.device_type(name), devices.index(name)


def set_simulated_devices(*, cpu: int = 1, gpu: int = 0, tpu: int | str = 0, tpu_hosts: int = 1) -> None:
    """Sizes the simulated machine; from then on other devices are errors.

    Args:
        cpu, gpu: how many there are.
        tpu: how many cores the TPU has, or its mesh: the lengths of the axes x, y, z and core, such as "2x2x1x2".
        tpu_hosts: among how many hosts its cores are divided; the devices named are those of the first.

    >>> import refdist
    >>> refdist.config.set_simulated_devices(gpu=2)
    >>> refdist.MirroredStrategy().num_replicas_in_sync
    2
    >>> refdist.config.reset_simulated_devices()

    Raises:
        RD25, RD34: a count that is not an int of at least 0 (1 for CPUs), or a mesh that is not one.
    """
    attempted = "set_simulated_devices"
    stated = as_integer(tpu)
    mesh = None if stated is not None and stated <= 0 else devices.mesh(tpu, tpu_hosts, attempted)
    cores = stated if mesh is None else mesh.cores_per_host
    counts = {name: integer(count, name, attempted) for name, count in (("cpu", cpu), ("gpu", gpu), ("tpu", cores))}
    for name, count in counts.items():
        least = 1 if name == "cpu" else 0
        if count < least:
            raise errors.error("RD34", attempted, f"{name} is {count}", f"Pass {least} or more.")
    _machine.value.counts = {name.upper(): count for name, count in counts.items()}
    _machine.value.tpu = mesh
    _machine.value.advice = ""
    _machine.value.asked = True
    _machine.value.divided = {}
    _changed()


def reset_simulated_devices() -> None:
    """Forgets the devices that a program has set: there are those of REFDIST_DEVICES again, or any that are named."""
    _machine.value.asked = False
    _machine.value.divided = {}
    _changed()


@contextmanager
def temporary_devices(*, cpu: int = 1, gpu: int = 0, tpu: int | str = 0, tpu_hosts: int = 1,
                      advice: str = "") -> Iterator[None]:
    """`set_simulated_devices` for the length of a `with` block; `advice` is added to the error for any other device.

    Args:
        cpu, gpu, tpu, tpu_hosts: as `set_simulated_devices` takes them.
        advice: the end of a message.

    Raises:
        RD25, RD34: as `set_simulated_devices`.
    """
    with devices_kept():
        set_simulated_devices(cpu=cpu, gpu=gpu, tpu=tpu, tpu_hosts=tpu_hosts)
        _machine.value.advice = advice
        yield


@contextmanager
def devices_kept() -> Iterator[None]:
    """After a `with` block the machine is again what it was before, whatever was stated in the block."""
    now = _machine.value
    before = now.counts, now.tpu, now.asked, {**now.divided}, now.advice
    try:
        yield
    finally:
        now.counts, now.tpu, now.asked, now.divided, now.advice = before
        _changed()


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """The devices of the machine, of one type or of all.

    Args:
        device_type: "CPU", "GPU" or "TPU"; None for all.

    >>> list_logical_devices("CPU")
    [LogicalDevice(name='/device:CPU:0', device_type='CPU')]

    Source: tf.config.list_logical_devices.
    """
    counts = _counts() or {"CPU": 1}
    return [LogicalDevice(f"/device:{kind}:{i}", kind) for kind, count in counts.items()
            if device_type is None or kind == device_type for i in range(count)]


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The devices of the machine before they were divided, of one type or of all.

    Args:
        device_type: "CPU", "GPU" or "TPU"; None for all.

    >>> list_physical_devices()
    [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]

    Source: tf.config.list_physical_devices.
    """
    return [PhysicalDevice(f"{_PHYSICAL}{kind}:{i}", kind) for kind, count in _physical_counts().items()
            if device_type is None or kind == device_type for i in range(count)]


def experimental_connect_to_cluster(cluster_spec_or_resolver: object, job_name: str = "localhost", task_index: int = 0,
                                    protocol: str | None = None, make_master_device_default: bool = True,
                                    cluster_device_filters: object = None) -> None:
    """Would connect to the tasks of a cluster; the hosts of a simulated TPU are in this process.

    Args:
        cluster_spec_or_resolver: a ClusterSpec or ClusterResolver.
        job_name, task_index, protocol, make_master_device_default, cluster_device_filters: without effect.

    Raises:
        RD34: neither a ClusterResolver nor a ClusterSpec.

    Source: tf.config.experimental_connect_to_cluster.
    """
    if not (hasattr(cluster_spec_or_resolver, "cluster_spec") or hasattr(cluster_spec_or_resolver, "task_address")):
        raise errors.error("RD34", "experimental_connect_to_cluster", f"got {cluster_spec_or_resolver!r}",
                           "Pass a refdist.cluster_resolver.ClusterResolver or a refdist.train.ClusterSpec.")


def check_device(device: str | LogicalDevice, argument: str = "device") -> str:
    """The canonical name of a device that exists.

    Args:
        device: a name, as "GPU:0", or a LogicalDevice.
        argument: what the caller calls it, for messages.

    Raises:
        RD24: not a device name, or the machine was sized and does not have it.
    """
    name = device.name if isinstance(device, LogicalDevice) else device
    full = devices.canonical(name, argument)
    # The one device that every machine has is not looked up: that would choose a backend.
    counts = None if full == devices.CPU else _counts()
    if counts is None:
        return full
    spec = devices.parse(full)
    local = spec.job == "localhost" and spec.task == 0
    if local and (spec.device_index or 0) >= counts.get(spec.device_type or "CPU", 0):
        there = ", ".join(devices.short(logical.name) for logical in list_logical_devices())
        raise errors.error("RD24", f"device {name!r}", f"the machine has {there}", _machine.value.advice)
    return full


def check_own_devices(strategy: str, wanted: Sequence[str | LogicalDevice], argument: str = "device") -> list[str]:
    """The canonical names of different devices of this process.

    Args:
        strategy: who asks, for messages.
        wanted: names, or LogicalDevices.
        argument: what the caller calls one of them, for messages.

    Raises:
        RD24: no such device.  RD25, RD34: a device twice, or one of another task.
    """
    full = [check_device(device, argument) for device in wanted]
    seen: set[str] = set()
    for name in full:
        if name in seen:
            raise errors.error("RD34", strategy, f"{devices.short(name)} occurs twice",
                               "Name each device once; use more simulated devices for more replicas.")
        seen.add(name)
        spec = devices.parse(name)
        if (spec.job, spec.task) != ("localhost", 0):
            raise errors.error("RD34", strategy, f"{name} belongs to another task",
                               "Use MultiWorkerMirroredStrategy for several workers.",
                               kind=errors.InvalidContextError)
    return full


def replica_devices(strategy: str, wanted: Sequence[str | LogicalDevice], argument: str = "device") -> list[str]:
    """The canonical names of the devices on which a strategy has replicas: those wanted, or as many as `scaled` says.

    Args:
        strategy: who asks, for messages.
        wanted: names, or LogicalDevices.
        argument: what the caller calls one of them, for messages.

    Raises:
        RD24: no such device.  RD25, RD34: a device twice, or one of another task.
    """
    if scale.value is None or not wanted:
        return check_own_devices(strategy, wanted, argument)
    first = wanted[0]
    kind = devices.device_type(first.name if isinstance(first, LogicalDevice) else first)
    return [devices.canonical(f"{kind}:{i}") for i in range(scale.value.replicas)]


class replica_order:  # noqa: N801 - used like a function
    """Permutes the order in which replicas run by a seed; None restores replica order.

    A program whose results depend on the order is wrong.  Takes effect at once; used as a context manager it
    is undone at the end of the block.

    Args:
        seed: an int, or None.

    >>> import refdist
    >>> with refdist.config.replica_order(1):
    ...     pass

    Raises:
        RD25: a seed that is neither an int nor None.
    """

    def __init__(self, seed: int | None) -> None:
        number = None if seed is None else integer(seed, "seed", "replica_order")
        self._before = _random()
        _machine.value.random = None if number is None else random.Random(number)

    def __enter__(self) -> replica_order:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        _machine.value.random = self._before


def _random() -> random.Random | None:
    if not _machine.value.seed_asked:
        text = os.environ.get(SEED_VARIABLE)
        if text:
            try:
                _machine.value.random = random.Random(int(text))
            except ValueError as error:
                raise errors.error("RD34", f"environment variable {SEED_VARIABLE}={text!r}", "it is not an int",
                                   f"Write {SEED_VARIABLE}=1.") from error
        _machine.value.seed_asked = True
    return _machine.value.random


class checks:  # noqa: N801 - used like a function
    """Switches checks on and off that take time; used as a context manager it is undone at the end of the block.

    Args:
        types: whether every value knows what it is to the other replicas (the same, a sum over the replica's rows, a
            mean over them), and what is reduced as if it were something else is warned of.
        watch: whether it is warned of what is rarely meant: two calls of one line that replicas make in different
            orders, an iterator for each step, one array that all replicas add.

    None leaves a check as it is.  docs/checks.md has more.

    >>> import refdist
    >>> with refdist.config.checks(types=True, watch=True):
    ...     pass

    Raises:
        RD09: a replica calls it, while others go on.
        RD25: an argument is neither a bool nor None.
    """

    def __init__(self, *, types: bool | None = None, watch: bool | None = None) -> None:
        for name, value in (("types", types), ("watch", watch)):
            if value is not None and not isinstance(value, bool):
                raise errors.error("RD25", "checks", f"{name} is {value!r}", "Pass True or False.")
        if context_stack.frame().run is not None:
            raise errors.error("RD09", f"config.checks {context_stack.describe()}", "it holds for all replicas",
                               "Call it around `strategy.run`; a comment `# refdist: ignore[RD38]` silences one line.")
        self._before = asked_checks.types.value, asked_checks.watch.value
        asked_checks.switch(types, watch)

    def __enter__(self) -> checks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        asked_checks.switch(*self._before)


def order(count: int) -> Sequence[int]:
    """The order in which `count` replicas run next: range(count), or the next permutation of the seed.

    Args:
        count: how many replicas there are.
    """
    source = _machine.value.random if _machine.value.seed_asked else _random()
    if source is None:
        return range(count)
    permuted = list(range(count))
    source.shuffle(permuted)
    return permuted


class device(context_stack.Scope):  # noqa: N801 - TensorFlow's name
    """Makes a device current for a `with` block: variables without a strategy are created there.

    Args:
        device_name: the parts that it leaves out are those of the device around the block, so that "" changes
            nothing; None leaves that device.

    >>> import refdist
    >>> with refdist.device("GPU:1"):
    ...     refdist.Variable(1.0).device
    '/job:localhost/replica:0/task:0/device:GPU:1'

    Raises:
        RD24: no such device.

    Source: tf.device.
    """

    def __init__(self, device_name: str | LogicalDevice | None) -> None:
        super().__init__()
        self._name = device_name.name if isinstance(device_name, LogicalDevice) else device_name
        self._here()  # a wrong name is an error where it is written

    def __enter__(self) -> None:
        self._push(context_stack.frame().with_device(self._here()))

    def _here(self) -> str:
        outer = context_stack.frame().device
        if not self._name:
            return "" if self._name is None else outer
        inside = devices.inside(self._name, outer) if outer and isinstance(self._name, str) else self._name
        return check_device(inside, "device_name")

    def _described(self) -> str:
        return f"device({self._name!r})"
