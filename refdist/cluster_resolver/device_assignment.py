"""`DeviceAssignment`: which cores of a TPU make up each replica; `build` chooses them.

A replica computes on a block of cores, its logical devices.  `build` packs blocks of one shape into the mesh, which is
arithmetic without any choice of its own:

* Along each axis there is room for `mesh // (shape * stride) * stride` replicas: with a stride, the cores of a replica
  lie apart, and other replicas begin in the gaps.
* The replicas form a grid that is as near to a cube as the axes allow.  The axis with the least room is filled first,
  because the others can make up for it; of equal ones the core, then x, y and z, so that replicas are on few hosts.
* Replicas are numbered by core, x, y and z.  The cores of a replica are in row-major order of x, y, z and core.
* But where the replicas are blocks of whole chips and fill the mesh, both follow a ring instead, in which neighbours in
  number are neighbours in the mesh, as all-reduces on a TPU want it.

Where devices are missing, the mesh is not looked at: replicas take the devices in the order of hosts and numbers.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refdist import errors
from refdist.cluster_resolver.topology import Coordinates, Topology, integers
from refdist.core.integers import integer

_BUILD = "DeviceAssignment.build"


class DeviceOrderMode(enum.IntEnum):
    """How `DeviceAssignment.build` orders replicas and their cores.

    Source: tf.tpu.experimental.DeviceOrderMode.
    """

    AUTO = 0
    RING = 1
    MESH = 2


class DeviceAssignment:
    """The cores of every replica.

    Args:
        topology: the TPU.
        core_assignment: an array of shape [replicas, cores of a replica, 4] with the coordinates of every core.

    >>> from refdist.cluster_resolver import topology
    >>> found = DeviceAssignment.build(topology.of_mesh((2, 2, 1, 2), 1), computation_shape=[1, 1, 1, 2],
    ...                                num_replicas=4)
    >>> found.num_replicas, found.num_cores_per_replica, found.tpu_device(replica=2, logical_core=1)
    (4, 2, '/task:0/device:TPU:7')

    Raises:
        RD25, RD34: no Topology; coordinates of another shape, without a device, or of two logical cores (ValueError).

    Source: tf.tpu.experimental.DeviceAssignment.
    """

    def __init__(self, topology: Topology, core_assignment: ArrayLike) -> None:
        attempted = "DeviceAssignment"
        if not isinstance(topology, Topology):
            raise _wrong(attempted, f"topology is {errors.type_of(topology)}",
                         "Pass what `refdist.tpu.experimental.initialize_tpu_system` returns.")
        cores = integers(core_assignment, "core_assignment", attempted)
        if cores.ndim != 3 or cores.shape[2] != topology.mesh_rank:
            raise _wrong(attempted, f"core_assignment has the shape {cores.shape}",
                         "Pass an array of shape [replicas, cores of a replica, 4].")
        self._topology = topology
        self._cores = cores
        self._replicas: dict[tuple[int, int], list[int]] = {}
        taken: dict[Coordinates, tuple[int, int]] = {}
        for replica, logical in np.ndindex(*cores.shape[:2]):
            core = self.coordinates(replica, logical)
            if core in taken:
                raise _wrong(attempted, f"logical core {taken[core][1]} of replica {taken[core][0]} and {logical} of "
                             f"{replica} are both at {core}", "Give every logical core a core of its own.")
            taken[core] = replica, logical
            try:
                task = topology.task_ordinal_at_coordinates(core)
            except errors.NotFoundError as error:
                raise _wrong(attempted, f"{core} is not in the mesh of shape {topology.mesh_shape.tolist()}",
                             "Assign cores of the mesh.") from error
            if task < 0:
                raise _wrong(attempted, f"there is no device at {core}", "Assign cores that are not missing.")
            self._replicas.setdefault((task, logical), []).append(replica)

    @property
    def topology(self) -> Topology:
        """The topology of the TPU that the cores belong to."""
        return self._topology

    @property
    def num_replicas(self) -> int:
        """How many replicas there are."""
        return len(self._cores)

    @property
    def num_cores_per_replica(self) -> int:
        """How many cores, or logical devices, each replica has."""
        return int(self._cores.shape[1])

    @property
    def core_assignment(self) -> NDArray[np.int32]:
        """The coordinates of every logical core, in an array of shape [replicas, cores of a replica, 4]."""
        return self._cores

    def coordinates(self, replica: int, logical_core: int) -> Coordinates:
        """Where a logical core of a replica is in the mesh.

        Args:
            replica: a number, from 0.
            logical_core: the number of one of the replica's cores, from 0.

        Raises:
            RD24: no such replica or core.
        """
        x, y, z, core = self._cores[self._checked(replica, self.num_replicas, "replica"),
                                    self._checked(logical_core, self.num_cores_per_replica, "logical_core")].tolist()
        return x, y, z, core

    def lookup_replicas(self, task_id: int, logical_core: int) -> list[int]:
        """The replicas that have this logical core on this host, in order.

        Args:
            task_id: the number of the host.
            logical_core: the number of a core of each replica, from 0.

        Raises:
            RD34: there is none (ValueError).
        """
        replicas = self._replicas.get((task_id, logical_core))
        if replicas is None:
            raise _wrong("DeviceAssignment.lookup_replicas", f"no replica has logical core {logical_core} on host "
                         f"{task_id}", "`core_assignment` has the cores of every replica.")
        return list(replicas)

    def tpu_ordinal(self, replica: int = 0, logical_core: int = 0) -> int:
        """The number of the device of a logical core among those of its host.

        Args:
            replica: a number, from 0.
            logical_core: the number of one of the replica's cores, from 0.
        """
        return self._topology.tpu_device_ordinal_at_coordinates(self.coordinates(replica, logical_core))

    def host_device(self, replica: int = 0, logical_core: int = 0, job: str | None = None) -> str:
        """The name of the host's CPU for a logical core.

        Args:
            replica: a number, from 0.
            logical_core: the number of one of the replica's cores, from 0.
            job: that of the name; None leaves it out.

        Raises:
            RD24: no such replica or core.
        """
        return self._topology.cpu_device_name_at_coordinates(self.coordinates(replica, logical_core), job)

    def tpu_device(self, replica: int = 0, logical_core: int = 0, job: str | None = None) -> str:
        """The name of the device of a logical core.

        Args:
            replica: a number, from 0.
            logical_core: the number of one of the replica's cores, from 0.
            job: that of the name; None leaves it out.

        Raises:
            RD24: no such replica or core.
        """
        return self._topology.tpu_device_name_at_coordinates(self.coordinates(replica, logical_core), job)

    def _checked(self, number: int, count: int, what: str) -> int:
        if not 0 <= number < count:
            raise errors.error("RD24", "DeviceAssignment", f"{what} is {number}, and there are {count}",
                               "Numbers begin with 0.", kind=errors.NotFoundError)
        return number

    @classmethod
    def build(cls, topology: Topology | bytes, computation_shape: ArrayLike | None = None,
              computation_stride: ArrayLike | None = None, num_replicas: int = 1,
              device_order_mode: DeviceOrderMode = DeviceOrderMode.AUTO) -> DeviceAssignment:
        """An assignment of replicas of one shape, packed into the mesh; the head of the file says how.

        Args:
            topology: a Topology, or its serialized form.
            computation_shape: the cores of a replica along x, y, z and core; None for one core.
            computation_stride: the distance between them; None for neighbours.
            num_replicas: how many.
            device_order_mode: RING and MESH ask for one of the two orders.

        Raises:
            RD25, RD34: bad arguments, or replicas that do not fit into the mesh (ValueError).

        Source: tf.tpu.experimental.DeviceAssignment.build.
        """
        if isinstance(topology, bytes):
            topology = Topology(serialized=topology)
        if not isinstance(topology, Topology):
            raise _wrong(_BUILD, f"topology is {errors.type_of(topology)}",
                         "Pass what `refdist.tpu.experimental.initialize_tpu_system` returns.")
        shape = _positive(computation_shape, "computation_shape")
        stride = _positive(computation_stride, "computation_stride")
        num_replicas = integer(num_replicas, "num_replicas", _BUILD)
        if num_replicas < 0:
            raise _wrong(_BUILD, f"num_replicas is {num_replicas}", "Pass 0 or more.")
        if device_order_mode not in [*DeviceOrderMode]:
            raise _wrong(_BUILD, f"device_order_mode is {device_order_mode!r}", "Pass a DeviceOrderMode.")
        mesh = topology.mesh_shape
        room = mesh // (shape * stride) * stride
        most = int(np.prod(room))
        blocks = f"of shape {shape.tolist()} and stride {stride.tolist()}"
        if not most:
            raise _wrong(_BUILD, f"a replica {blocks} does not fit into the mesh of shape {mesh.tolist()}",
                         "Make the computation smaller.")
        if num_replicas > most:
            raise _wrong(_BUILD, f"{num_replicas} replicas {blocks} were asked for, and {most} fit into the mesh of "
                         f"shape {mesh.tolist()}", f"Ask for {most} or fewer, or make the computation smaller.")
        if topology.missing_devices.size:
            return cls(topology, _in_host_order(topology, num_replicas, shape, stride))
        fills = shape[3] == mesh[3] and np.prod(stride) == 1 and num_replicas == most
        if device_order_mode == DeviceOrderMode.RING and not fills:
            raise _wrong(_BUILD, "there is no ring",
                         "A ring needs replicas of whole chips, a stride of 1, and as many replicas as fit; use "
                         "DeviceOrderMode.AUTO.")
        if fills and device_order_mode != DeviceOrderMode.MESH:
            return cls(topology, _in_rings(shape, _grid(num_replicas, room)))
        return cls(topology, _in_mesh_order(num_replicas, shape, stride, _grid(num_replicas, room)))


def _wrong(attempted: str, found: str, fix: str) -> errors.RefdistError:
    return errors.error("RD34", attempted, found, fix)


def _positive(value: ArrayLike | None, argument: str) -> NDArray[np.int32]:
    lengths = np.ones(4, np.int32) if value is None else integers(value, argument, _BUILD)
    if lengths.shape != (4,) or (lengths < 1).any():
        raise _wrong(_BUILD, f"{argument} is {lengths.tolist()}", "Pass four positive ints: x, y, z and core.")
    return lengths


def _grid(replicas: int, room: NDArray[np.int32]) -> list[int]:
    # How many replicas there are along each axis.
    grid, remaining = [0] * 4, replicas
    for left, axis in zip((4, 3, 2, 1), sorted((3, 0, 1, 2), key=lambda axis: int(room[axis])), strict=True):
        grid[axis] = min(math.ceil(remaining ** (1 / left)), int(room[axis]))
        remaining = -(-remaining // max(grid[axis], 1))
    return grid


def _in_mesh_order(replicas: int, shape: NDArray[np.int32], stride: NDArray[np.int32],
                   grid: Sequence[int]) -> NDArray[np.int32]:
    x, y, z, core = grid
    zs, ys, xs, cores = np.unravel_index(np.arange(replicas), (z, y, x, core)) if replicas else [()] * 4
    places = np.stack([xs, ys, zs, cores], axis=-1).reshape(-1, 1, 4).astype(np.int32)
    starts: NDArray[np.int32] = places // stride * (shape * stride) + places % stride
    inside = np.array([*np.ndindex(*shape)], np.int32) * stride
    return starts + inside


def _in_rings(shape: NDArray[np.int32], grid: Sequence[int]) -> list[list[Coordinates]]:
    # Replicas are blocks of whole chips: a ring of blocks, and a ring of chips in each.
    x, y, z, cores = shape.tolist()
    inner = _ring(x, y, z)
    return [[(i * x + a, j * y + b, k * z + c, core) for a, b, c in inner for core in range(cores)]
            for i, j, k in _ring(*grid[:3])]


def _ring(x: int, y: int, z: int) -> list[tuple[int, int, int]]:
    """The chips of a block, each beside the one before, and the last beside the first where that is possible.

    A ring through a layer goes to and fro through all columns but the first, and back along that; through several
    layers it goes to and fro in each, from layer to layer, and back along one edge.
    """
    if [x, y, z].count(1) >= 2 or any(length > 1 and length % 2 for length in (x, y, z)):
        return [(a, b, c) for c in range(z) for b in range(y) for a in range(x)]
    if z == 1:
        return [(0, 0, 0), *((a, b, 0) for a, b in _loop(x, y))]
    if y == 1:
        return [(0, 0, 0), *((a, 0, c) for a, c in _loop(x, z))]
    if x == 1:
        return [(0, 0, 0), *((0, b, c) for b, c in _loop(y, z))]
    layers = [[(a, b, c) for a, b in _loop(x, y)[::-1 if c % 2 else 1]] for c in range(z)]
    return [(0, 0, 0), *(chip for layer in layers for chip in layer), *((0, 0, c) for c in range(z - 1, 0, -1))]


def _loop(width: int, height: int) -> list[tuple[int, int]]:
    # A ring through a layer without the corner (0, 0) in which it begins and ends.
    there = [(column, row) for row in range(height) for column in range(1, width)[::-1 if row % 2 else 1]]
    return there + [(0, row) for row in range(height - 1, 0, -1)]


def _in_host_order(topology: Topology, replicas: int, shape: NDArray[np.int32],
                   stride: NDArray[np.int32]) -> NDArray[np.int32]:
    devices = topology.device_coordinates.reshape(-1, 4)
    size = int(np.prod(shape))
    missing = len(topology.missing_devices)
    if np.prod(stride) != 1:
        raise _wrong(_BUILD, f"computation_stride is {stride.tolist()}, and {missing} devices are missing",
                     "Leave the stride out where devices are missing.")
    if replicas * size > len(devices):
        raise _wrong(_BUILD, f"{replicas} replicas of {size} cores were asked for, and there are {len(devices)} "
                     f"devices, as {missing} are missing", f"Ask for {len(devices) // size} replicas or fewer.")
    return devices[:replicas * size].reshape(replicas, size, 4)
