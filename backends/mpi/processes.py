"""Processes as Linux knows them: what /proc says of one, who is above and below it, and how its end is noticed.

Three things of Linux make it possible that nothing stays behind.  A file descriptor of a process becomes readable when
that ends, also in a process that is not its parent.  A process can ask for a signal when its parent dies.  And one that
adopts orphans becomes the parent of all descendants that lose theirs, so that it can wait for them and kill them.

Standard library only: supervisors and the launch command import nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import os
import resource
import select
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # signals that end a job
OVER = b"over"  # see `outlived`
_PF_EXITING = 0x4  # include/linux/sched.h; proc_pid_stat(5), field 9
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SHARED = "/dev/shm"
_ENOUGH = 64  # MB of it; MPICH takes some for each process
_FILES, _FILES_EACH = 64, 8  # that a process may need to have open, and for each worker
# The same, without which MPICH 5.0.2 does not start: measured were 34 for two workers, 38 for four, 48 for eight.
_FILES_AT_LEAST, _FILES_AT_LEAST_EACH = 32, 5
_SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface

_came: set[int] = set()  # signals

_KILL_SECONDS = 5.0  # Linux may need time for a process that waits for a device

# Names of the processes of launchers, of which Linux shows the first 15 characters.
_LAUNCHERS = ("mpiexec", "mpirun", "hydra_", "prte", "orte", "srun", "slurmstepd")
_OPENMPI = ("mpiexec", "mpirun", "prte", "orte")  # those that start workers; MPICH's mpiexec never does it itself


class Facts(NamedTuple):
    """A line of /proc/PID/stat.

    Attributes:
        name: the first 15 characters of the program's name.
        state: one letter: T is stopped, Z and X are dead.
        parent: the id of its parent.
        started: when, in ticks since the machine started; with the id it names a process for good.
        ends: whether it is ending, which takes a moment, in which others may see it gone, or has ended.
        killed_by: the signal that it is ending of, or has; 0 for none.
    """

    name: str
    state: str
    parent: int
    started: int
    ends: bool
    killed_by: int


def facts(pid: int) -> Facts | None:
    """What /proc says about a process, or a thread; None where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            before, _, after = file.read().rpartition(")")
    except OSError:
        return None
    words = after.split()
    return Facts(before.partition("(")[2], words[0], int(words[1]), int(words[19]), bool(int(words[6]) & _PF_EXITING),
                 int(words[49]) & 0x7F)


def alive(pid: int) -> bool:
    """Whether a process runs, or is stopped."""
    known = facts(pid)
    return known is not None and known.state not in "ZX"


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores this signal."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, bits = line.partition(":")
            if name == "SigIgn":
                return bool(int(bits, 16) >> number - 1 & 1)
    return False


def with_variable(variable: str) -> list[int]:
    """The processes that were started with this NAME=VALUE in their environment, and run or are stopped."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if variable.encode() in file.read().split(b"\0"):
                pids.append(int(name))
    return pids


def started_by(launcher: int) -> list[int]:
    """A process of a launcher, with all that it has started: others of its kind, and what those have started."""
    pids = [launcher]
    for pid in pids:
        here = facts(pid)
        if here is not None and here.name.startswith(_LAUNCHERS):
            pids += children(pid)
    return pids


def launchers() -> list[tuple[int, str]]:
    """The processes of a launcher above this one, nearest first, with their names."""
    above: list[tuple[int, str]] = []
    pid = os.getppid()
    while pid > 1 and (here := facts(pid)) is not None and here.name.startswith(_LAUNCHERS):
        above.append((pid, here.name))
        pid = here.parent
    return above


def parent_that_goes_on(pid: int) -> int:
    """The launcher's process above this one, if the job may go on when this one dies, as OpenMPI's does; else 0."""
    here = facts(pid)
    above = facts(here.parent) if here is not None else None
    return here.parent if here is not None and above is not None and above.name.startswith(_OPENMPI) else 0


def children(pid: int) -> list[int]:
    """The children of a process."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def opened(pid: int) -> int | None:
    """A file descriptor that becomes readable when the process ends; None where it is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Sends a signal to a process, which may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_name(number: int) -> str:
    """What a signal is called; those for programs' own use have only numbers.

    >>> signal_name(9), signal_name(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Place(NamedTuple):
    """Where a process is.

    Hosts may have one name, as containers that are copies of each other, so what Linux knows itself goes with it.

    Attributes:
        processes: equal for two processes that see each other in /proc.
        network: equal for two processes that reach each other at 127.0.0.1.
    """

    processes: str
    network: str


def machine() -> str:
    """The name of this host, and the number that Linux has given to its start, where it says one."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{socket.gethostname()} {file.read().strip()}"
    return socket.gethostname()


def place() -> Place:
    """Where this process is."""
    return Place(*(f"{machine()} {_namespace(kind)}" for kind in ("pid", "net")))


def _namespace(kind: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/ns/{kind}")
    return ""


def addresses() -> list[str]:
    """The addresses (IPv4) of this host at which other ones may reach it."""
    answers = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                answers.append(socket.inet_ntoa(answer[20:24]))  # struct ifreq: a name, a family, a port, the address
    return [address for address in answers if not address.startswith("127.")]


def begin() -> None:
    """Makes good what whoever has started this process may have left out.

    A file that is opened where a standard stream is closed gets its number, and all that is meant for the stream; and
    where SIGCHLD is ignored, Linux does not keep how children have ended.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def wait_for(child: int) -> None:
    """Waits until a child has ended, whose exit status does not matter."""
    with contextlib.suppress(ChildProcessError):  # this process ignores SIGCHLD
        os.waitpid(child, 0)


def woken_by(*numbers: int) -> socket.socket:
    """From now on these signals only wake a poll: a socket that is readable when one has come, and has its number.

    SIGHUP stays ignored where it is, as nohup wants it.
    """
    woken, waking = socket.socketpair()
    woken.setblocking(False)
    waking.setblocking(False)
    signal.set_wakeup_fd(waking.detach(), warn_on_full_buffer=False)
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda came, _: _came.add(came))
    return woken


def told_to_end() -> bool:
    """Whether a signal has come, since `woken_by`, that ends a job."""
    return not _came.isdisjoint(ENDING)


def die_with(parent: int, number: int) -> None:
    """Called in a new process: from now on Linux sends it this signal when its parent dies, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:  # it died before
        os._exit(1)


def adopt_orphans(adopts: bool = True) -> None:
    """From now on processes whose parents have died become children of this one, if it started those; or not."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


class Hears(Protocol):
    """What takes what is said to it."""

    def fileno(self) -> int: ...
    def hear(self) -> None: ...


def outlived(end: Callable[[bytes], object], hears: Hears | None = None) -> socket.socket:
    """Starts a process that outlives this one: nobody's child, in a session of its own, which nothing else reaches.

    Args:
        end: called in that process when this one has died, with what was last sent to it.
        hears: what others say something to meanwhile.

    Returns:
        A socket, for what is to be sent; after `OVER` nothing is called any more.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child:
        wait_for(child)
        far.close()
        return near
    try:
        if not os.fork():
            near.close()
            os.setsid()
            last = message = b""
            while message != OVER:
                sources = [far.fileno(), *([] if hears is None else [hears.fileno()])]
                ready = select.select(sources, [], [])[0]
                if hears is not None:
                    hears.hear()
                if far.fileno() in ready:
                    message = far.recv(1 << 16)
                    if not message:
                        break
                    last = message
            if not message:
                end(last)
    finally:
        os._exit(0)


def end_descendants(seconds: float) -> None:
    """Waits for all descendants of this process, which adopts orphans; kills those that are left after some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until + _KILL_SECONDS:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        if time.monotonic() >= until:
            for pid in _descendants(os.getpid()):
                kill(pid)
        time.sleep(0.01)


def _descendants(top: int) -> list[int]:
    parents = {pid: here.parent for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
               if (here := facts(pid)) is not None}
    pids = [top]
    for pid in pids:
        pids += [child for child, parent in parents.items() if parent == pid]
    return pids[1:]


def memory_of_mpich(job: str) -> str:
    """A pattern of the names of MPICH's files in shared memory.

    Args:
        job: the name by which MPICH's launcher knows the job, "" for none; a hash of it is part of the files' names.
    """
    if not job:
        return ""
    number = 2166136261  # FNV-1a, 32 bits
    for byte in job.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return f"mpich_*_{number:x}_*"


def memory_of_openmpi(pid: int) -> str:
    """The same for OpenMPI, of whose files this process has mapped some: each ends with the number of a process."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            folder, _, name = line.strip().rpartition("/")
            if folder.endswith("/dev/shm") and name.startswith("sm_segment."):
                return name.rpartition(".")[0] + ".*"
    return ""


def folder_for_ucx(names: str, rank: int) -> str:
    """Makes a folder in shared memory for UCX, the network library of MPICH; returns its path, or "" if it has none.

    UCX makes a file there and removes its name at once, but a process may be killed in between, and that name does not
    say which job it belongs to.

    Args:
        names: a pattern of the names of MPICH's files, which fits the folder too; "" for none.
        rank: the worker.
    """
    path = f"/dev/shm/{names.replace('*', 'ucx', 1).replace('*', str(rank))}"
    if names:
        with contextlib.suppress(OSError):
            os.mkdir(path, 0o700)
            return path
    return ""


def lack_of_memory(number: int) -> str:
    """Why a signal may have killed a process: the end of a sentence, "" where that is not known.

    Memory of files is given when it is written to, and where there is none, Linux sends SIGBUS.  How much is free is
    not said: what the dead have used may be free again, and texts that several workers say alike are printed once.
    """
    if number != signal.SIGBUS:
        return ""
    try:
        disk = os.statvfs(_SHARED)
    except OSError:
        return ""
    size, free = (blocks * disk.f_frsize / 1e6 for blocks in (disk.f_blocks, disk.f_bavail))
    if free >= _ENOUGH:
        return ""
    return (f": {_SHARED}, in which MPI keeps what the processes of a host share, has {size:.0f} MB, and less than "
            f"{_ENOUGH} of them are free. Remove what fills it, or make it larger: "
            f"`mount -o remount,size=1G {_SHARED}`, or --shm-size=1g for a container")


def lack_at_start(workers: int) -> str:
    """Why MPI may have failed to start on this host: the end of a sentence, "" where that is not known.

    Said only of a job that has failed: how much MPI needs depends on its version, and on how workers are connected.

    Args:
        workers: how many start on this host.
    """
    here = f"{_SHARED} of {socket.gethostname()}, in which MPI keeps what the processes of a host share,"
    if not os.path.isdir(_SHARED):
        return (f": {here} is missing. Make it: `mkdir -p {_SHARED} && mount -t tmpfs tmpfs {_SHARED}`, or "
                f"--tmpfs {_SHARED} for a container")
    if os.statvfs(_SHARED).f_flag & os.ST_RDONLY:
        return f": {here} is read-only. Write `mount -o remount,rw {_SHARED}`, or --tmpfs {_SHARED} for a container"
    if not os.access(_SHARED, os.W_OK | os.X_OK):
        return f": {here} cannot be written to by this user. Write `chmod 1777 {_SHARED}`"
    return lack_of_files(workers)


def lack_of_files(workers: int) -> str:
    """The same, if each process may have so few files open that this may be why; else ""."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most >= (enough := _FILES + _FILES_EACH * workers):
        return ""
    return f": {_files_allowed(most)}, which may be too few. {_more_files(enough)}"


def too_few_files(workers: int) -> str:
    """The message where a process may open too few files for so many workers of this host to start; else ""."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES_AT_LEAST + _FILES_AT_LEAST_EACH * workers
    if not workers or most == resource.RLIM_INFINITY or most >= needed:
        return ""
    return (f"{_files_allowed(most)}, and to start {workers} worker{'s'[:workers - 1]} takes {needed}. "
            f"{_more_files(_FILES + _FILES_EACH * workers)}")


def too_many_open_files() -> str:
    """What follows an error of this name (EMFILE)."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{_files_allowed(most)}. {_more_files(2 * most)}"


def _more_files(enough: int) -> str:
    return f"Write `ulimit -n {max(1024, 1 << (enough - 1).bit_length())}` before the command"


def _files_allowed(most: int) -> str:
    return f"each process of {socket.gethostname()} may have {most} files and sockets open (`ulimit -n`)"


def remove_shared_memory(names: str) -> None:
    """Removes what MPI leaves in shared memory when the processes of a job are killed.

    Args:
        names: a pattern of the names of files and folders, "" for none.
    """
    for path in (*glob.glob(f"/dev/shm/{names}/*"), *glob.glob(f"/dev/shm/{names}")) if names else ():
        with contextlib.suppress(OSError):
            if os.path.isdir(path):
                os.rmdir(path)
            else:
                os.unlink(path)


def remove_file(path: str) -> None:
    """Removes a file, or a folder with all that is in it, that may be gone; nothing for ""."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(path)
