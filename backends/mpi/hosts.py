"""On which hosts a job is started: read from a list, a file or Slurm, and asked which of them are there.

mpiexec gets the hosts by its own option, with a number of processes for each, so workers are numbered host by host.
Before a job is started again each other host is asked to run `true`, by the same launcher that is about to start
workers on it: what cannot do that is taken to be gone, and its processes go to hosts that have room, or are left out.

Standard library only, as the launch command.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

ASK_SECONDS = 15.0  # in which a host has to run a command
_SLURM_NODES, _SLURM_TASKS = "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"
_OF_MPICH = re.compile(r"(?P<name>[^\s:]+)(:(?P<count>\d+))?$")
_OF_OPENMPI = re.compile(r"(?P<name>[^\s:]+)\s+(.*\s)?slots\s*=\s*(?P<count>\d+)(\s.*)?$")
_RUN = re.compile(r"(\d+)(?:\(x(\d+)\))?$")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?$")


class Host(NamedTuple):
    """A host, and how many processes it has room for.

    >>> print(Host("one", 4))
    one:4
    """

    name: str
    room: int

    def __str__(self) -> str:
        return f"{self.name}:{self.room}"


def of_list(text: str) -> list[Host]:
    """The hosts of a list with commas; a host without a number has room for one process.

    >>> of_list("one:4,two")
    [Host(name='one', room=4), Host(name='two', room=1)]

    Raises:
        ValueError: the text is no such list, or names a host twice.
    """
    return _different(_of_line(part.strip()) for part in text.split(","))


def of_file(text: str) -> list[Host]:
    """The hosts of a file as MPICH's mpiexec takes it (`one:4`), or OpenMPI's (`one slots=4`), a line for each.

    >>> of_file("# rack 3\\none:4\\ntwo slots=2  # the old one\\n\\n")
    [Host(name='one', room=4), Host(name='two', room=2)]

    Raises:
        ValueError: a line is neither, or names a host for the second time; or there is none.
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return _different(_of_line(line) for line in lines if line)


def of_slurm(environment: Mapping[str, str]) -> list[Host]:
    """The hosts of a job of Slurm; none where there is no such job, or it has only one.

    >>> of_slurm({"SLURM_JOB_NODELIST": "tux[1-2,08],gpu3", "SLURM_TASKS_PER_NODE": "2(x3),1"})
    [Host(name='tux1', room=2), Host(name='tux2', room=2), Host(name='tux08', room=2), Host(name='gpu3', room=1)]

    Raises:
        ValueError: the variables do not have Slurm's form.
    """
    text = environment.get(_SLURM_NODES, "")
    names = [name for part in _outside_brackets(text) for name in _expanded(part)] if text else []
    if len(names) < 2:
        return []
    counts = []
    for part in environment.get(_SLURM_TASKS, f"1(x{len(names)})").split(","):
        run = _RUN.match(part.strip())
        if run is None:
            raise ValueError(f"{_SLURM_TASKS} has {part!r}; Slurm writes it as 2(x3),1")
        counts += [int(run[1])] * int(run[2] or 1)
    if len(counts) != len(names):
        raise ValueError(f"{_SLURM_NODES} has {len(names)} hosts, and {_SLURM_TASKS} numbers for {len(counts)}")
    return [Host(name, count) for name, count in zip(names, counts, strict=True) if count]


def placed(hosts: Sequence[Host], size: int) -> list[Host]:
    """Where so many processes are started, or as many of them as there is room for: the first hosts are filled first.

    >>> [str(host) for host in placed([Host("one", 2), Host("two", 2), Host("three", 2)], 3)]
    ['one:2', 'two:1']
    """
    chosen = list[Host]()
    for host in hosts:
        count = min(host.room, size - sum(each.room for each in chosen))
        if count > 0:
            chosen.append(Host(host.name, count))
    return chosen


def words(hosts: Iterable[Host], of_openmpi: bool) -> list[str]:
    """The option of mpiexec that starts processes on these hosts; none for its own choice."""
    names = ",".join(map(str, hosts))
    return [] if not names else ["--host" if of_openmpi else "-hosts", names]


def is_here(host: Host) -> bool:
    """Whether a host is this one: by its name, or by an address that a socket can have here.

    >>> is_here(Host("127.0.0.1", 1)), is_here(Host("host.invalid", 1))
    (True, False)
    """
    if host.name in (socket.gethostname(), "localhost"):
        return True
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.name, None, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as bound:
            bound.bind(address)
    except OSError:
        return False
    return True


def there(program: str, of_openmpi: bool, hosts: Sequence[Host]) -> list[Host]:
    """Those of the hosts on which mpiexec can start something now; this one is not asked.

    Args:
        program: mpiexec.
        of_openmpi: whether that is OpenMPI's.
        hosts: all of them.
    """
    asked = {host: subprocess.Popen([program, *words([Host(host.name, 1)], of_openmpi), "-n", "1", "true"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                    start_new_session=True)
             for host in hosts if not is_here(host)}
    until = time.monotonic() + ASK_SECONDS
    answered = [host for host, process in asked.items() if _ends_well(process, until)]
    return [host for host in hosts if host not in asked or host in answered]


def without_address(hosts: Iterable[Host]) -> str:
    """Why nothing was started on some of the hosts: the end of a sentence that names them; "" if all have addresses.

    Said only of a job that has not started: ssh may know names that nobody else does.

    >>> without_address([Host("localhost", 1)])
    ''
    """
    unknown = dict[str, str]()
    for host in hosts:
        try:
            socket.getaddrinfo(host.name, None)
        except OSError as error:
            unknown[host.name] = error.strerror or str(error)
    if not unknown:
        return ""
    names = ", ".join(f"{name} ({why})" for name, why in unknown.items())
    return (f": no address is known of the host{'' if len(unknown) == 1 else 's'} {names}. Write names or addresses "
            "that this host knows, in --hosts or the file of --hostfile")


def _ends_well(process: subprocess.Popen[bytes], until: float) -> bool:
    try:
        return process.wait(max(until - time.monotonic(), 0.0)) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # what reaches for the host, too
        process.wait()
        return False


def _of_line(line: str) -> Host:
    read = _OF_MPICH.match(line) or _OF_OPENMPI.match(line)
    if read is None or read["count"] == "0":
        raise ValueError(f"{line!r} is no host; write one:4 for four processes on the host one")
    return Host(read["name"], int(read["count"] or 1))


def _different(hosts: Iterable[Host]) -> list[Host]:
    listed = list(hosts)
    names = [host.name for host in listed]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the host {name} is listed {names.count(name)} times; write it once, with the number of "
                             "all its processes")
    if not listed:
        raise ValueError("no host is listed")
    return listed


def _outside_brackets(text: str) -> list[str]:
    # The parts between commas, but for those in brackets.
    if not re.fullmatch(r"([^\[\]]|\[[^\[\]]*\])*", text):
        raise ValueError(f"{_SLURM_NODES} is {text!r}; Slurm writes it as tux[1-3,07-09],login1")
    return re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text)


def _expanded(text: str) -> list[str]:
    # All names of one part, as rack[0-1]n[07-08].
    before, bracket, rest = text.partition("[")
    inside, _, after = rest.partition("]")
    if not bracket:
        return [text.strip()]
    names = []
    for part in inside.split(","):
        numbers = _RANGE.match(part.strip())
        if numbers is None:
            raise ValueError(f"{_SLURM_NODES} has {text!r}; Slurm writes it as tux[1-3,07-09]")
        first, last = numbers[1], numbers[2] or numbers[1]
        names += [f"{before.strip()}{number:0{len(first)}d}{end}" for number in range(int(first), int(last) + 1)
                  for end in _expanded(after)]
    return names
