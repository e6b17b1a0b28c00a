"""Device names: parse, complete, shorten, compare; and what is known of a machine.  `config` asks and states it."""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Callable
from typing import NamedTuple

from refdist import errors
from refdist.core.integers import as_integer

VARIABLE = "REFDIST_DEVICES"
TYPES = ("CPU", "GPU", "TPU", "TPU_SYSTEM")


class DeviceSpec(NamedTuple):
    """The parts of a device name; None where a name leaves a part out."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    device_type: str | None = None
    device_index: int | None = None

    def to_string(self) -> str:
        """The name made of the parts that are there.

        >>> DeviceSpec(job="worker", task=1, device_type="GPU", device_index=0).to_string()
        '/job:worker/task:1/device:GPU:0'
        """
        text = "" if self.job is None else f"/job:{self.job}"
        text += "" if self.replica is None else f"/replica:{self.replica}"
        text += "" if self.task is None else f"/task:{self.task}"
        if self.device_type is not None:
            text += f"/device:{self.device_type}:{'*' if self.device_index is None else self.device_index}"
        return text


_PART = re.compile(r"(job):(\w+)|(replica|task):(\d+)|(?:device:)?([A-Za-z_]+)(?::(\d+|\*))?", re.ASCII)


@functools.lru_cache(maxsize=4096)
def parse(name: str) -> DeviceSpec:
    """The parts of a device name.

    Args:
        name: such as "GPU:0" or "/job:worker/task:1/device:CPU:0".

    >>> parse("/job:worker/task:1/gpu:0")
    DeviceSpec(job='worker', replica=None, task=1, device_type='GPU', device_index=0)

    Raises:
        RD24: not a device name (ValueError).
    """
    parts: dict[str, str | int | None] = {}
    for text in name.strip("/").split("/"):
        match = _PART.fullmatch(text)
        if match is None:
            raise _unknown(name, text)
        job, job_name, numbered, number, kind, index = match.groups()
        if job:
            part: dict[str, str | int | None] = {"job": job_name}
        elif numbered:
            part = {numbered: int(number)}
        elif kind.upper() in TYPES:
            part = {"device_type": kind.upper(),
                     "device_index": None if index in (None, "*") else int(index)}
        else:
            raise _unknown(name, text)
        if parts.keys() & part.keys():
            raise _unknown(name, f"{text} a second time")
        parts |= part
    return DeviceSpec(**parts)  # type: ignore[arg-type]


def _unknown(name: str, part: str) -> errors.RefdistError:
    return errors.error("RD24", f"device name {name!r}", f"{part!r} is not part of a device name",
                        "Write TYPE:INDEX with a type of CPU, GPU or TPU, for example \"GPU:0\".",
                        kind=errors.InvalidValueError)


@functools.lru_cache(maxsize=4096)
def _canonical(name: str) -> str:
    spec = parse(name)
    return DeviceSpec(spec.job or "localhost", spec.replica or 0, spec.task or 0, spec.device_type or "CPU",
                      spec.device_index or 0).to_string()


def canonical(name: str, argument: str = "device") -> str:
    """The complete name.

    Args:
        name: with or without job, replica and task, in any case.
        argument: what the caller calls it, for messages.

    >>> canonical("gpu:1")
    '/job:localhost/replica:0/task:0/device:GPU:1'

    Raises:
        RD24: not a device name (ValueError).  RD25: not a string (TypeError).
    """
    if not isinstance(name, str):
        raise errors.error("RD25", "device name", f"{argument} is {name!r}", "Pass a string such as \"GPU:0\".")
    if not name:
        raise errors.error("RD24", "device name", f"{argument} is an empty string",
                           "Write TYPE:INDEX, for example \"GPU:0\".", kind=errors.InvalidValueError)
    return _canonical(name)


def inside(name: str, outer: str) -> str:
    """The name with the parts that it leaves out taken from the device around it.

    Args:
        name: of a device; parts may be missing.
        outer: the complete name of the device around it.

    >>> inside("cpu", "/job:worker/replica:0/task:1/device:GPU:2")
    '/job:worker/replica:0/task:1/device:CPU:2'
    """
    stated = {part: value for part, value in parse(name)._asdict().items() if value is not None}
    return parse(outer)._replace(**stated).to_string()


CPU = canonical("CPU:0")  # the one device that every machine has


@functools.lru_cache(maxsize=4096)
def short(name: str) -> str:
    """The name for messages; job and task only where they are not the local ones.

    Args:
        name: of a device.

    >>> short("/job:localhost/replica:0/task:0/device:GPU:1")
    'GPU:1'
    """
    spec = parse(name)
    device = f"{spec.device_type or 'CPU'}:{spec.device_index or 0}"
    if spec.job in (None, "localhost") and not spec.task:
        return device
    return f"{spec.job or 'localhost'}:{spec.task or 0} {device}"


def device_type(name: str) -> str:
    """The type, for example "GPU".

    Args:
        name: of a device.

    Raises:
        RD24, RD25: as `canonical`.
    """
    return parse(canonical(name)).device_type or "CPU"


def host(name: str) -> str:
    """The job and task that a device belongs to.

    Args:
        name: of a device.

    >>> host("GPU:1")
    '/job:localhost/replica:0/task:0'
    """
    return canonical(name).partition("/device:")[0]


def index(name: str) -> int:
    """The index among the devices of its type and task.

    Args:
        name: of a device.

    Raises:
        RD24, RD25: as `canonical`.
    """
    return parse(canonical(name)).device_index or 0


def read_counts(text: str) -> tuple[dict[str, int], Mesh | None]:
    """The devices of each type that the environment variable states, and the mesh of its TPU.

    Raises:
        RD34: it has another form.
    """
    attempted = f"environment variable {VARIABLE}={text!r}"
    counts, tpu = {"CPU": 1, "GPU": 0, "TPU": 0}, None
    for item in text.split(","):
        kind, _, number = item.strip().partition(":")
        if kind.upper() == "TPU" and "x" in number:
            tpu = mesh(number, 1, attempted)
            number = str(tpu.cores_per_host)
        if kind.upper() not in counts or not number.isdecimal():
            raise errors.error("RD34", attempted, f"{item!r} is not a count",
                               f"Write counts such as {VARIABLE}=CPU:1,GPU:4.")
        counts[kind.upper()] = int(number)
    if counts["CPU"] < 1:
        raise errors.error("RD34", attempted, "there is no CPU",
                           "Every machine has at least one CPU.")
    return counts, tpu or (mesh(counts["TPU"], 1, attempted) if counts["TPU"] else None)


class LogicalPart(NamedTuple):
    """Which physical device a logical one is on, and what of its memory it may use, in MiB."""

    physical: int
    memory_limit: int | None


class Mesh(NamedTuple):
    """The cores of a TPU: how many there are along x, y and z and on each chip, and among how many hosts they are."""

    shape: tuple[int, int, int, int]
    hosts: int = 1

    @property
    def cores_per_host(self) -> int:
        """How many cores, devices of a program, each host has."""
        return math.prod(self.shape) // self.hosts


def mesh(stated: object, hosts: object, attempted: str) -> Mesh:
    """The mesh of a number of cores, or of a text such as "2x2x1x2".

    >>> mesh("2x2x1x2", 2, "here"), mesh(3, 1, "here")
    (Mesh(shape=(2, 2, 1, 2), hosts=2), Mesh(shape=(3, 1, 1, 1), hosts=1))

    Raises:
        RD25, RD34: neither of them, or cores that cannot be divided evenly among the hosts.
    """
    if isinstance(stated, str) and re.fullmatch(r"[1-9]\d*(x[1-9]\d*){3}", stated, re.ASCII):
        x, y, z, cores = map(int, stated.split("x"))
        whole = Mesh((x, y, z, cores))
    elif (number := as_integer(stated)) is not None:
        whole = Mesh((number, 1, 1, 1))
    else:
        raise errors.error("RD34" if isinstance(stated, str) else "RD25", attempted, f"tpu is {stated!r}",
                           "Pass a number of cores, or the lengths of the axes x, y, z and core: \"2x2x1x2\".")
    among = as_integer(hosts)
    if among is None or among < 1 or math.prod(whole.shape) % among:
        raise errors.error("RD34", attempted, f"tpu_hosts is {hosts!r}, and there are {math.prod(whole.shape)} cores",
                           "Pass a number of hosts that divides the number of cores.")
    return whole._replace(hosts=among)


class Machine:
    """The devices of the machine, as they were stated, and the order in which replicas run on them.

    Attributes:
        counts: how many devices of each type there are; None where that is not stated.
        tpu: the cores of its TPU; None where none was stated.
        asked: whether REFDIST_DEVICES has been read, or overruled.
        advice: what errors about devices that the machine does not have tell the user to write.
        random: draws the order in which replicas run next; None for replica order.
        seed_asked: whether REFDIST_REPLICA_SEED has been read.
        divided: by type and number of a physical device, the memory limits of the logical ones on it, in MiB.
        parts: the logical devices by type and number of physical ones; computed at first use.
        watchers: called whenever the machine is sized or divided.
    """

    __slots__ = ("advice", "asked", "counts", "divided", "parts", "random", "seed_asked", "tpu",
                 "watchers")

    def __init__(self) -> None:
        self.counts: dict[str, int] | None = None
        self.tpu: Mesh | None = None
        self.asked = False
        self.advice = ""
        self.random: random.Random | None = None
        self.seed_asked = False
        self.divided: dict[tuple[str, int], tuple[int | None, ...]] = {}
        self.parts: dict[tuple[str, int], list[LogicalPart]] = {}
        self.watchers: list[Callable[[], None]] = []
