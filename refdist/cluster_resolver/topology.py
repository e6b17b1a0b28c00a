"""`Topology`: where the cores of a TPU are in its mesh, and which host each of them is attached to.

A TPU is a mesh of chips with three axes, x, y and z, and each chip has one or more cores: the fourth axis.  A host, a
"task" in the names of devices, has the cores of some chips; they are its devices TPU:0, TPU:1 and so on.  A program
names devices, and replicas are placed on neighbours in the mesh: a Topology goes from one to the other.

`serialized` is the message `tensorflow.tpu.TopologyProto`, byte for byte, because programs keep and pass it.  It has
numbers and lists of numbers only, so that writing and reading it needs no library.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refdist import errors

Coordinates = tuple[int, int, int, int]


class Topology:
    """The mesh of a TPU, and the device that each core in it is.

    Args:
        serialized: what `serialized()` returned; the other arguments are then ignored.
        mesh_shape: the lengths of the axes x, y, z and core.
        device_coordinates: an array of shape [hosts, devices of a host, 4] with the coordinates of every device.

    >>> topology = Topology(mesh_shape=[2, 1, 1, 1], device_coordinates=[[[0, 0, 0, 0]], [[1, 0, 0, 0]]])
    >>> topology.num_tasks, topology.tpu_device_name_at_coordinates([1, 0, 0, 0])
    (2, '/task:1/device:TPU:0')

    Raises:
        RD25, RD34: no mesh of four axes, coordinates of another shape, outside the mesh, or of two devices
            (ValueError).
        RD30: `serialized` is not a topology.

    Source: tf.tpu.experimental.Topology.
    """

    def __init__(self, serialized: bytes | None = None, mesh_shape: ArrayLike | None = None,
                 device_coordinates: ArrayLike | None = None) -> None:
        if serialized:
            mesh_shape, device_coordinates = _read(serialized)
        if mesh_shape is None or device_coordinates is None:
            raise errors.error("RD25", "Topology", "mesh_shape or device_coordinates is missing",
                               "Pass both, or `serialized`.")
        self._mesh = integers(mesh_shape, "mesh_shape", "Topology")
        if self._mesh.shape != (4,) or (self._mesh < 1).any():
            raise _wrong(f"mesh_shape is {self._mesh.tolist()}", "Pass four positive ints: x, y, z and core.")
        self._coordinates = integers(device_coordinates, "device_coordinates", "Topology")
        if self._coordinates.ndim != 3 or self._coordinates.shape[2] != 4:
            raise _wrong(f"device_coordinates has the shape {self._coordinates.shape}",
                         "Pass an array of shape [hosts, devices of a host, 4].")
        self._devices: dict[Coordinates, tuple[int, int]] = {}
        for task, ordinal in np.ndindex(*self._coordinates.shape[:2]):
            core = self._inside(self._coordinates[task, ordinal], "Topology", errors.InvalidValueError)
            if core in self._devices:
                raise _wrong(f"the devices {self._devices[core]} and {(task, ordinal)}, as host and number, are both "
                             f"at {core}", "Give every device coordinates of its own.")
            self._devices[core] = task, ordinal

    @property
    def mesh_shape(self) -> NDArray[np.int32]:
        """The lengths of the axes x, y, z and core."""
        return self._mesh

    @property
    def mesh_rank(self) -> int:
        """The number of axes: 4."""
        return len(self._mesh)

    @property
    def device_coordinates(self) -> NDArray[np.int32]:
        """The coordinates of every device, in an array of shape [hosts, devices of a host, 4]."""
        return self._coordinates

    @property
    def missing_devices(self) -> NDArray[np.int64]:
        """The coordinates in the mesh at which there is no device, one row for each."""
        missing = [core for core in np.ndindex(*self._mesh) if core not in self._devices]
        return np.array(missing, np.int64).reshape(-1, 4)

    @property
    def num_tasks(self) -> int:
        """How many hosts there are."""
        return len(self._coordinates)

    @property
    def num_tpus_per_task(self) -> int:
        """How many devices each host has."""
        return int(self._coordinates.shape[1])

    def task_ordinal_at_coordinates(self, device_coordinates: Iterable[int]) -> int:
        """The number of the host of the device there; -1 where there is no device.

        Args:
            device_coordinates: x, y, z and core, ints.

        Raises:
            RD24: outside the mesh.
        """
        return self._device_at(device_coordinates, "task_ordinal_at_coordinates")[0]

    def tpu_device_ordinal_at_coordinates(self, device_coordinates: Iterable[int]) -> int:
        """The number of the device there among those of its host; -1 where there is no device.

        Args:
            device_coordinates: x, y, z and core, ints.

        Raises:
            RD24: outside the mesh.
        """
        return self._device_at(device_coordinates, "tpu_device_ordinal_at_coordinates")[1]

    def cpu_device_name_at_coordinates(self, device_coordinates: Iterable[int], job: str | None = None) -> str:
        """The name of the host's CPU for the device at these coordinates.

        Args:
            device_coordinates: x, y, z and core, ints.
            job: that of the name; None leaves it out.

        Raises:
            RD24: outside the mesh, or there is no device.
        """
        task, _ = self._named(device_coordinates, "cpu_device_name_at_coordinates")
        return f"{_job(job)}/task:{task}/device:CPU:0"

    def tpu_device_name_at_coordinates(self, device_coordinates: Iterable[int], job: str | None = None) -> str:
        """The name of the device there.

        Args:
            device_coordinates: x, y, z and core, ints.
            job: that of the name; None leaves it out.

        Raises:
            RD24: outside the mesh, or there is no device.
        """
        task, ordinal = self._named(device_coordinates, "tpu_device_name_at_coordinates")
        return f"{_job(job)}/task:{task}/device:TPU:{ordinal}"

    def serialized(self) -> bytes:
        """The topology as bytes, from which `Topology(serialized=...)` makes it again."""
        return _written(self._mesh.tolist(), self.num_tasks, self.num_tpus_per_task, self._coordinates.ravel().tolist())

    def _inside(self, coordinates: Iterable[int], attempted: str, kind: type[errors.RefdistError]) -> Coordinates:
        core = tuple(map(int, coordinates))
        if len(core) != 4 or not all(0 <= place < length for place, length in zip(core, self._mesh, strict=True)):
            raise errors.error("RD24", attempted, f"{core} is not in the mesh of shape {self._mesh.tolist()}",
                               "Pass x, y, z and core, each from 0 and less than the length of its axis.", kind=kind)
        return core

    def _device_at(self, coordinates: Iterable[int], attempted: str) -> tuple[int, int]:
        return self._devices.get(self._inside(coordinates, attempted, errors.NotFoundError), (-1, -1))

    def _named(self, coordinates: Iterable[int], attempted: str) -> tuple[int, int]:
        core = self._inside(coordinates, attempted, errors.NotFoundError)
        if core not in self._devices:
            raise errors.error("RD24", attempted, f"there is no device at {core}",
                               "`missing_devices` has the coordinates of those that are missing.",
                               kind=errors.NotFoundError)
        return self._devices[core]


def of_mesh(mesh_shape: Coordinates, hosts: int) -> Topology:
    """A topology without missing devices: numbered by core, x, y and z, and divided evenly among the hosts."""
    x, y, z, cores = map(range, mesh_shape)
    coordinates = [(a, b, c, core) for c, b, a, core in itertools.product(z, y, x, cores)]
    return Topology(mesh_shape=mesh_shape, device_coordinates=np.reshape(coordinates, (hosts, -1, 4)))


def integers(value: ArrayLike, argument: str, attempted: str) -> NDArray[np.int32]:
    """An argument as an array of ints.

    Raises:
        RD25: it is not one.
    """
    try:
        array: NDArray[Any] = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "iu" and array.size:
        raise errors.error("RD25", attempted, f"{argument} is {value!r}", "Pass ints.")
    return array.astype(np.int32)


def _wrong(found: str, fix: str) -> errors.RefdistError:
    return errors.error("RD34", "Topology", found, fix)


def _job(job: str | None) -> str:
    return "" if job is None else f"/job:{job}"


# --- tensorflow.tpu.TopologyProto -----------------------------------------------------------------------------
# A message is a row of fields, each with a key: its number, and how it is written.  A list of ints is one field of
# bytes, in which they stand one after another.  An int has seven bits in each byte, the lowest first.

_MESH, _TASKS, _DEVICES, _COORDINATES = 1, 2, 3, 4
_INT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}


def _written(mesh: Sequence[int], tasks: int, devices: int, coordinates: Sequence[int]) -> bytes:
    def listed(number: int, values: Sequence[int]) -> bytes:
        packed = b"".join(map(_int_written, values))
        return _int_written(number << 3 | _BYTES) + _int_written(len(packed)) + packed if values else b""

    def single(number: int, value: int) -> bytes:
        return _int_written(number << 3 | _INT) + _int_written(value) if value else b""

    return listed(_MESH, mesh) + single(_TASKS, tasks) + single(_DEVICES, devices) + listed(_COORDINATES, coordinates)


def _int_written(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def _read(serialized: bytes) -> tuple[list[int], NDArray[np.int64]]:
    numbers: dict[int, list[int]] = {number: [] for number in (_MESH, _TASKS, _DEVICES, _COORDINATES)}
    try:
        for number, value in _fields(iter(serialized)):
            if number in numbers:
                numbers[number] += [value] if isinstance(value, int) else _ints(value)
        shape = [*numbers[_TASKS][-1:], *numbers[_DEVICES][-1:], 4]
        return numbers[_MESH], np.array(numbers[_COORDINATES], np.int64).reshape(shape)
    except (StopIteration, RuntimeError, ValueError, TypeError, OverflowError) as error:
        raise errors.error("RD30", "Topology", f"serialized is {serialized[:40]!r}, which is not a topology",
                           "Pass what `serialized()` returned.") from error


def _fields(data: Iterator[int]) -> Iterator[tuple[int, int | bytes]]:
    for first in data:
        key = _int_read(itertools.chain([first], data))
        if key & 7 == _INT:
            yield key >> 3, _int_read(data)
            continue
        size = _int_read(data) if key & 7 == _BYTES else _FIXED.get(key & 7, -1)
        value = bytes(itertools.islice(data, max(size, 0)))
        if len(value) != size:
            raise ValueError("the message ends within a field")
        yield key >> 3, value


def _ints(data: bytes) -> list[int]:
    rest = iter(data)
    return [_int_read(itertools.chain([first], rest)) for first in rest]


def _int_read(data: Iterator[int]) -> int:
    value, shift = 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value
    raise ValueError("the message ends within an int")
