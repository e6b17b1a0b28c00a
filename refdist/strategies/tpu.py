"""`TPUStrategy`: replicas on the cores of a TPU, each on one core or on several, its logical devices.

Replicas run, reduce and keep variables as they do under MirroredStrategy; what a TPU adds is here:

* The cores of a replica come from a DeviceAssignment.  Without one, every core is a replica.  What concerns a replica
  as a whole, its results and its copies of variables, is on logical device 0.
* On a TPU a function is compiled, so what it returns are arrays: numbers become arrays, and one array for each replica
  is a PerReplica, also where all return the same object.
* `experimental_split_to_logical_devices` and its like say where an array lies, and change no value (`placement.py`).
* The TPU is initialized before a strategy is made, and a strategy ends when it is shut down
  (`cluster_resolver/tpu_system.py`).

TensorFlow needs a tf.function around `run`, and traces the function of the replicas once.  Here it is called for every
replica, with an id that is an int.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refdist import config, errors, nest
from refdist.array.backend import Backend
from refdist.array.convert import frozen, to_array
from refdist.array.indexed_slices import IndexedSlices
from refdist.cluster_resolver import tpu_system
from refdist.cluster_resolver.cloud import TPUClusterResolver
from refdist.cluster_resolver.device_assignment import DeviceAssignment
from refdist.core import call_site, context_stack
from refdist.core import devices as names
from refdist.core.callers import require
from refdist.core.integers import integer
from refdist.core.rules.calls import Call
from refdist.strategies import placement
from refdist.strategies.alone import warn_of_copies
from refdist.strategies.base import Strategy
from refdist.strategies.extended import StrategyExtended
from refdist.strategies.placement import Placement
from refdist.strategies.replica_context import ReplicaContext
from refdist.variables import creation
from refdist.variables.values import DistributedValues
from refdist.variables.variable import Variable


class OnTPU(Strategy):
    """The base of the three strategies for TPUs, which differ in name and arguments."""

    _extended: TPUExtended

    def __init__(self, resolver: TPUClusterResolver | None, assignment: DeviceAssignment | None,
                 spmd: bool = False, steps_per_run: int = 1) -> None:
        super().__init__(TPUExtended(self, resolver, assignment, spmd, steps_per_run))

    @property
    def extended(self) -> TPUExtended:
        """The StrategyExtended with the less common methods."""
        return self._extended

    @property
    def cluster_resolver(self) -> TPUClusterResolver:
        """The resolver that the strategy was given, or that of this machine's TPU."""
        return self._extended.resolver


class TPUStrategy(OnTPU):
    """Synchronous training on the cores of a TPU.

    Args:
        tpu_cluster_resolver: which TPU; None for that of this machine.
        experimental_device_assignment: the cores of every replica; None makes every core a replica.
        experimental_spmd_xla_partitioning: whether every logical device has a copy of every variable.

    >>> import refdist
    >>> refdist.config.set_simulated_devices(tpu="2x2x1x2")
    >>> topology = refdist.tpu.experimental.initialize_tpu_system()
    >>> assignment = refdist.tpu.experimental.DeviceAssignment.build(
    ...     topology, computation_shape=[1, 1, 1, 2], num_replicas=4)
    >>> strategy = refdist.TPUStrategy(experimental_device_assignment=assignment)
    >>> strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0)).values
    (array(4., dtype=float32), array(4., dtype=float32), array(4., dtype=float32), array(4., dtype=float32))
    >>> refdist.tpu.experimental.shutdown_tpu_system()
    >>> refdist.config.reset_simulated_devices()

    Raises:
        RD24: there is no TPU.  RD25, RD34: bad arguments, or an assignment for another TPU.
        RD27: the TPU has not been initialized.

    Source: tf.distribute.TPUStrategy.
    """

    def __init__(self, tpu_cluster_resolver: TPUClusterResolver | None = None,
                 experimental_device_assignment: DeviceAssignment | None = None,
                 experimental_spmd_xla_partitioning: bool = False) -> None:
        super().__init__(tpu_cluster_resolver, experimental_device_assignment, experimental_spmd_xla_partitioning)

    def experimental_assign_to_logical_device(self, tensor: object, logical_device_id: int) -> Any:
        """The same array, on one of the replica's logical devices.

        Args:
            tensor: an array of any shape and dtype.
            logical_device_id: which one, from 0.

        Raises:
            RD09, RD10: not in a replica.  RD20: the strategy partitions by SPMD (ValueError).
            RD25, RD34: no such logical device, or not an array.

        Source: tf.distribute.TPUStrategy.experimental_assign_to_logical_device.
        """
        attempted = Call.ASSIGN_TO_LOGICAL_DEVICE.value
        if self._extended.spmd:
            raise errors.error("RD20", attempted, "the strategy was made with experimental_spmd_xla_partitioning, and "
                               "then all logical devices compute with every array", "Split or replicate the array.",
                               kind=errors.InvalidValueError)
        require(self, Call.ASSIGN_TO_LOGICAL_DEVICE)
        number = integer(logical_device_id, "logical_device_id", attempted)
        devices = self._extended.own_logical_devices()
        if not 0 <= number < len(devices):
            raise _wrong(attempted, f"logical_device_id is {number}, and a replica has {len(devices)} logical devices")
        return placement.assign(self._extended.backend, _array(tensor, attempted), number, devices)

    def experimental_split_to_logical_devices(self, tensor: object, partition_dimensions: Sequence[int]) -> Any:
        """The same array, with a tile on each of the replica's logical devices.

        Args:
            tensor: an array of any dtype; each length is a multiple of the number of parts there.
            partition_dimensions: into how many parts each dimension is divided; their product is the number of
                logical devices.  Tile i, in row-major order, lies on logical device i.

        Raises:
            RD09, RD10: not in a replica.
            RD25, RD34: another number of dimensions, a length that is not divisible, another product, or not an array.

        Source: tf.distribute.TPUStrategy.experimental_split_to_logical_devices.
        """
        require(self, Call.SPLIT_TO_LOGICAL_DEVICES)
        attempted = Call.SPLIT_TO_LOGICAL_DEVICES.value
        array = _array(tensor, attempted)
        if not isinstance(partition_dimensions, (list, tuple, np.ndarray)):
            raise errors.error("RD25", attempted, f"partition_dimensions is {partition_dimensions!r}",
                               "Pass a list with an int for every dimension.")
        grid = [integer(parts, "an element of partition_dimensions", attempted) for parts in partition_dimensions]
        if len(grid) != array.ndim:
            raise _wrong(attempted, f"partition_dimensions is {grid}, and the array has {array.ndim} dimensions")
        for axis, (length, parts) in enumerate(zip(array.shape, grid, strict=True)):
            if parts < 1 or length % parts:
                raise _wrong(attempted, f"partition_dimensions[{axis}] is {parts}, and the array has the length "
                             f"{length} there, which cannot be divided by it")
        devices = self._extended.own_logical_devices()
        if (product := int(np.prod(grid, dtype=int))) != len(devices):
            raise _wrong(attempted, f"partition_dimensions is {grid}, which makes {product} tiles, and a replica has "
                         f"{len(devices)} logical devices")
        return placement.split(self._extended.backend, array, grid, devices)

    def experimental_replicate_to_logical_devices(self, tensor: object) -> Any:
        """The same array, on all of the replica's logical devices.

        Args:
            tensor: an array of any shape and dtype.

        Raises:
            RD09, RD10: not in a replica.  RD25: not an array.

        Source: tf.distribute.TPUStrategy.experimental_replicate_to_logical_devices.
        """
        require(self, Call.REPLICATE_TO_LOGICAL_DEVICES)
        attempted = Call.REPLICATE_TO_LOGICAL_DEVICES.value
        return placement.replicate(self._extended.backend, _array(tensor, attempted),
                                   self._extended.own_logical_devices())


class ExperimentalTPUStrategy(OnTPU):
    """The strategy under the name that it had before TensorFlow 2.3, without logical devices.

    Args:
        tpu_cluster_resolver: a TPUClusterResolver; None for this machine's TPU.
        device_assignment: the cores of every replica, a DeviceAssignment; None makes every core a replica.

    Source: tf.distribute.experimental.TPUStrategy.
    """

    def __init__(self, tpu_cluster_resolver: TPUClusterResolver | None = None,
                 device_assignment: DeviceAssignment | None = None) -> None:
        call_site.warn("experimental.TPUStrategy is deprecated; use TPUStrategy", DeprecationWarning)
        super().__init__(tpu_cluster_resolver, device_assignment)


class TPUReplicaContext(ReplicaContext):
    """A replica on a TPU."""

    __slots__ = ()

    def experimental_logical_device(self, logical_device_id: int) -> LogicalDeviceScope:
        """Makes a logical device of the replica the current one for a `with` block.

        Raises:
            RD34: there is no such logical device.
        """
        extended: Any = self._strategy.extended
        scope: LogicalDeviceScope = extended.experimental_logical_device(logical_device_id)
        return scope


class _LogicalFrame(context_stack.Frame):
    """A frame on the stack of contexts that makes variables on another logical device than 0."""

    __slots__ = ("logical",)
    logical: int


class LogicalDeviceScope(context_stack.Scope):
    """The context manager that `experimental_logical_device` returns."""

    def __init__(self, extended: TPUExtended, number: int) -> None:
        super().__init__()
        self._extended = extended
        self._number = number

    def __enter__(self) -> None:
        top = context_stack.frame()
        in_replica = top.kind == context_stack.REPLICA and top.strategy is self._extended._strategy
        device = self._extended.own_logical_devices()[self._number] if in_replica else top.device
        frame = _LogicalFrame(top, top.strategy, top.kind, top.replica, top.replica_id, top.run, device, top.creators,
                             top.drafts)
        frame.logical = self._number
        self._push(frame)

    def _described(self) -> str:
        return f"experimental_logical_device({self._number})"


class TPUExtended(StrategyExtended):
    """TPUStrategy's methods.

    Attributes:
        resolver: which TPU.
        logical_devices: the names of each replica's logical devices.
        spmd: whether every logical device has a copy of every variable.
        steps_per_run: what the strategy of the first version was given; without effect.
    """

    _lengths_may_differ = False
    _context = TPUReplicaContext

    def __init__(self, container_strategy: Strategy, resolver: TPUClusterResolver | None,
                 assignment: DeviceAssignment | None, spmd: bool, steps_per_run: int) -> None:
        attempted = type(container_strategy).__name__
        self.resolver = _checked_resolver(resolver, attempted)
        self._metadata = self.resolver.get_tpu_system_metadata()
        if tpu_system.topology() is None:
            raise _not_initialized(attempted, "the TPU has not been initialized")
        self._mesh = config.tpu_mesh()
        cores = [device.name for device in self._metadata.devices if device.device_type == "TPU"]
        self._assignment = _checked_assignment(assignment, attempted)
        self.logical_devices = tuple((core,) for core in cores) if assignment is None else tuple(
            tuple(names.canonical(assignment.tpu_device(replica, core, names.parse(cores[0]).job))
                  for core in range(assignment.num_cores_per_replica)) for replica in range(assignment.num_replicas))
        self.spmd = bool(spmd)
        self.steps_per_run = steps_per_run
        warn_of_copies(attempted)
        super().__init__(container_strategy, worker_devices=[first for first, *_ in self.logical_devices])

    def _current_backend(self) -> Backend:
        if tpu_system.topology() is None or config.tpu_mesh() != self._mesh:
            raise _not_initialized(type(self._strategy).__name__, "the TPU was shut down, or is another one, since the "
                                   "strategy was made")
        return super()._current_backend()

    # Facts.

    @property
    def num_hosts(self) -> int:
        """How many hosts have a replica's logical device 0."""
        if self._assignment is None:
            return self._metadata.num_hosts
        return len({self._assignment.host_device(replica) for replica in range(self._assignment.num_replicas)})

    @property
    def num_replicas_per_host(self) -> int:
        """How many replicas a host has room for, and no more than there are."""
        if self._assignment is None:
            return self._metadata.num_of_cores_per_host
        return min(self._assignment.num_replicas,
                   self._metadata.num_of_cores_per_host // self._assignment.num_cores_per_replica)

    @property
    def experimental_require_static_shapes(self) -> bool:
        """Whether shapes must be known before running: a TPU compiles, so yes; here any shape is fine."""
        return True

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """For every replica its logical device 0, or the one of `experimental_logical_device`."""
        frame: context_stack.Frame | None = context_stack.frame()
        while frame is not None and not isinstance(frame, _LogicalFrame):
            frame = frame.parent
        number = 0 if frame is None else frame.logical
        return tuple(devices[number] for devices in self.logical_devices)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The same as `worker_devices`."""
        return self.worker_devices

    def own_logical_devices(self) -> tuple[str, ...]:
        """The logical devices of the calling replica."""
        number = context_stack.frame().replica_id
        assert number is not None  # only replicas ask
        return self.logical_devices[number]

    def non_slot_devices(self, var_list: object) -> tuple[str, ...]:
        """The CPU of the host of replica 0."""
        return (f"{names.host(self.layout.devices[0])}/device:CPU:0",)

    def experimental_logical_device(self, logical_device_id: int) -> LogicalDeviceScope:
        """Places variables that are made in a `with` block on this logical device of every replica.

        Raises:
            RD34: there is no such logical device.
        """
        attempted = "experimental_logical_device"
        number = integer(logical_device_id, "logical_device_id", attempted)
        count = len(self.logical_devices[0])
        if not 0 <= number < count:
            raise _wrong(attempted, f"logical_device_id is {number}, and a replica has {count} logical devices")
        return LogicalDeviceScope(self, number)

    # Running, and variables.

    def _together(self, results: Sequence[object]) -> Any:
        def arrays(i: int, result: object) -> Any:
            return nest.map_structure(lambda leaf: _result(leaf, i), result)

        return super()._together([arrays(i, result) for i, result in enumerate(results)])

    def _create_variable(self, next_creator: Callable[..., object], **kwargs: object) -> Any:
        return creation.create(self._strategy, self._keeps, self.worker_devices, next_creator, kwargs)

    def placement_of_copy(self, copy: Variable, replica: int) -> Placement:
        """Where a replica's copy of a variable lies: on one logical device, or by SPMD on all of them."""
        devices, array = self.logical_devices[replica], copy._primary._array
        grid = (1,) * array.ndim
        if self.spmd:
            return Placement(placement.REPLICATED, devices, grid, (array,) * len(devices))
        tiles = tuple(array if device == copy.device else None for device in devices)
        return Placement(placement.ASSIGNED, devices, grid, tiles)


def placements(value: object) -> tuple[Placement | None, ...]:
    """The placement of a value's component on each replica's logical devices.

    Args:
        value: a result of `run`, an array in a replica, or a variable of a TPUStrategy.

    Returns:
        One Placement for each replica, or for the array; None for an array that was not placed: what computes with it
        is on logical device 0.

    Raises:
        RD34: a variable of another strategy.
    """
    if isinstance(value, Variable):
        strategy = value._strategy
        if not isinstance(strategy, OnTPU):
            raise _wrong("placements", f"variable {value.name} is not of a TPUStrategy")
        return tuple(strategy.extended.placement_of_copy(copy, i) for i, copy in enumerate(value._copies))
    parts = value.values if isinstance(value, DistributedValues) else (value,)
    return tuple(map(placement.placement_of, parts))


def _result(leaf: object, replica: int) -> Any:
    if isinstance(leaf, DistributedValues):
        leaf = leaf.values[replica]
    if isinstance(leaf, Variable):
        return leaf._primary._array
    if leaf is None or isinstance(leaf, IndexedSlices):
        return leaf
    return frozen(to_array(leaf, argument="the result of strategy.run"))


def _array(tensor: object, attempted: str) -> Any:
    if nest.is_nested(tensor) or tensor is None:
        raise errors.error("RD25", attempted, f"tensor is {errors.type_of(tensor)}",
                           "Pass one array; take structures apart first.")
    return to_array(tensor, argument="tensor", attempted=attempted)


def _checked_resolver(resolver: object, attempted: str) -> TPUClusterResolver:
    if resolver is None:
        return TPUClusterResolver()
    if not isinstance(resolver, TPUClusterResolver):
        raise errors.error("RD25", attempted, f"tpu_cluster_resolver is {resolver!r}",
                           "Pass a refdist.cluster_resolver.TPUClusterResolver, or None.")
    return resolver


def _checked_assignment(assignment: object, attempted: str) -> DeviceAssignment | None:
    topology = tpu_system.topology()
    if assignment is None or topology is None:
        return None
    if not isinstance(assignment, DeviceAssignment):
        raise errors.error("RD25", attempted, f"the device assignment is {assignment!r}",
                           "Pass a refdist.tpu.experimental.DeviceAssignment, or None.")
    if assignment.topology.serialized() != topology.serialized():
        raise _wrong(attempted, f"the device assignment is for a mesh of shape "
                     f"{assignment.topology.mesh_shape.tolist()} with {assignment.topology.num_tasks} hosts, and the "
                     f"TPU is one of {topology.mesh_shape.tolist()} with {topology.num_tasks}")
    if not assignment.num_replicas:
        raise _wrong(attempted, "the device assignment has no replica")
    return assignment


def _wrong(attempted: str, found: str) -> errors.RefdistError:
    return errors.error("RD34", attempted, found)


def _not_initialized(attempted: str, found: str) -> errors.RefdistError:
    return errors.error("RD27", attempted, found, "Call `refdist.tpu.experimental.initialize_tpu_system(resolver)` "
                        "once, at the beginning, and make the strategy after it.", kind=errors.InvalidContextError)
