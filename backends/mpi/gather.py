"""Workers that nobody has started together: each finds the others by TF_CONFIG, as TensorFlow's do.

N shells run the same script, each with its own TF_CONFIG.  MPI's processes cannot connect to each other by addresses
that were agreed on before; they need a launcher that passes on theirs.  The first worker starts one (`pmi`) at the
address that TF_CONFIG gives it, and every worker connects there.  When all have come, the environment of each says what
mpiexec would have said (PMI_FD, PMI_RANK, PMI_SIZE), and all goes on as under plain mpiexec: a supervisor for each
worker, which reports in the shell of its own.

Who may connect: where all workers are on one host, processes of the same user, which Linux says of a Unix socket.
Otherwise those that know the token, REFDIST_TOKEN in the environment of every worker; each side proves that it does,
and it is not sent.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from refdist import errors
from refdist.backends.mpi import alone, pmi, processes
from refdist.backends.mpi.launch import is_openmpi, mpiexec
from refdist.workers.launcher import Task, prefixed

TOKEN_VARIABLE = "REFDIST_TOKEN"
_AGAIN = 0.1  # seconds between two tries to connect
_SPEAK = 5.0  # seconds after which a worker says whom it waits for
_ATTEMPTED = "starting with TF_CONFIG"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def gather(rank: int, tasks: Mapping[Task, str], seconds: float) -> None:
    """Meets the other workers of a cluster, and makes this process one of their job, as mpiexec does.

    Args:
        rank: the number of this worker; the chief, or else worker 0, has 0.
        tasks: the chief, if any, and the workers, in the order of their numbers, and the address of each.
        seconds: how long it waits for the others.

    Raises:
        RD01: not all came in time.  RD17: an address of the first worker that cannot be used, another cluster in
        another worker, two processes with one task, or no token.  RD27: the MPI library is OpenMPI.
    """
    addresses = list(tasks.values())
    if (program := mpiexec()) is not None and is_openmpi(program):
        raise errors.error("RD27", _ATTEMPTED, "the MPI library is OpenMPI, whose processes only its mpiexec can start",
                           f"Run `{command(program, addresses)}` once, without TF_CONFIG, or `pip install mpich` "
                           "in place of openmpi.")
    address = place(addresses)
    shown = addresses[0]
    token = os.environ.get(TOKEN_VARIABLE, "")
    if len(address) > 1 and not token:
        raise errors.error("RD17", _ATTEMPTED, f"workers are on several hosts, and {TOKEN_VARIABLE} is not set, so "
                           f"whoever reaches {shown} could join the job", f"Set {TOKEN_VARIABLE} to one secret text on "
                           "all of them, for example what `openssl rand -hex 16` prints.")
    cluster = {str(task): address for task, address in tasks.items()}
    if rank == 0:
        _serve(address, token, cluster, shown)
    hello = {"rank": rank, "task": list(cluster)[rank], "cluster": cluster, "host": socket.gethostname(),
             "place": " ".join(processes.place()), "process": os.getpid()}
    joined = _joined(address, token, hello, shown, seconds)
    # MPI says as the last thing of all that this process ends, when Python has closed its own files.
    os.environ.update(PMI_FD=str(joined.detach()), PMI_RANK=str(rank), PMI_SIZE=str(len(tasks)))


def command(program: str, addresses: Sequence[str]) -> str:
    """What starts this script with OpenMPI on the hosts of these addresses."""
    hosts = [_parts(address)[0] for address in addresses]
    counts = [f"{host}:{hosts.count(host)}" for host in dict.fromkeys(hosts)]
    where = [] if set(hosts) <= set(_LOOPBACK) else ["--host", ",".join(counts)]
    words = [os.path.basename(program), "--with-ft", "ulfm", "-n", str(len(addresses)), *where, "python", *sys.argv]
    return shlex.join(words)


def place(addresses: Sequence[str]) -> list[Any]:
    """Where the first of these workers listens: the name of a Unix socket if all are on one host, or a host and port.

    >>> place(["one:2222", "two:2222"])
    ['one', 2222]
    >>> len(place(["localhost:12345", "localhost:23456"]))
    1

    Raises:
        RD17: the first address has no port.
    """
    host, port = _parts(addresses[0])
    hosts = {_parts(address)[0] for address in addresses}
    if len(hosts) == 1 or hosts <= set(_LOOPBACK):
        digest = hashlib.blake2b(f"{os.getuid()} {addresses[0]}".encode(), digest_size=12)
        return [f"refdist.start.{digest.hexdigest()}"]
    if not port:
        raise errors.error("RD17", _ATTEMPTED, f"the first worker's address is {addresses[0]!r}, at which nothing can "
                           "listen", 'Write host:port, with a port that is free there, for example "host:2222".')
    return [host, port]


def _parts(address: str) -> tuple[str, int]:
    # The port is 0 where there is none.
    host, _, port = address.rpartition("://")[2].rpartition(":")
    return host.strip("[]") or port, int(port) if host and port.isdecimal() else 0


def _serve(address: list[Any], token: str, cluster: Mapping[str, str], shown: str) -> None:
    described = json.dumps({"address": address, "cluster": cluster})
    done = subprocess.run([sys.executable, "-I", "-S", alone.__file__, "serve", described], input=token + "\n",
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise errors.error("RD17", _ATTEMPTED, f"this is {next(iter(cluster))}, and it cannot listen at {shown}: "
                           f"{done.stdout.strip()}", "Give each process a task of its own, by the index in its "
                           "TF_CONFIG, and the first worker a free port of its own host.")


def _joined(address: list[Any], token: str, hello: Mapping[str, Any], shown: str, seconds: float) -> socket.socket:
    until, speak_at = time.monotonic() + seconds, time.monotonic() + _SPEAK
    first = next(iter(hello["cluster"]))
    missing, why = [first], ""
    line: pmi.Line | None = None
    while time.monotonic() < until:
        if line is None:
            try:
                line, why = _connected(address, token, hello, shown), ""
            except OSError as error:
                why = f": {error.strerror or error}"
        if time.monotonic() > speak_at:
            speak_at = until
            sys.stderr.write(prefixed(hello["task"], f"waits for {', '.join(missing)} at {shown}{why}"))
        if line is None:
            time.sleep(_AGAIN)
            continue
        line.socket.settimeout(max(min(until, speak_at) - time.monotonic(), 0.01))
        try:
            reply = line.receive()
        except TimeoutError:
            continue
        except OSError:
            reply = ""
        if not reply:  # the first worker has ended, and may be started again
            line.socket.close()
            line, missing = None, [first]
            time.sleep(_AGAIN)
            continue
        answer = json.loads(reply)
        if "wrong" in answer:
            raise errors.error("RD17", _ATTEMPTED, answer["wrong"], "Give all workers the same cluster in TF_CONFIG, "
                               "and each a task of its own.")
        if "go" in answer:
            line.socket.settimeout(None)
            return line.socket
        missing = answer["missing"]
    raise errors.error("RD01", _ATTEMPTED, f"not all workers arrived within {seconds:g} s; {hello['task']} has waited "
                       f"for {', '.join(missing)} at {shown}{why}", "Start the script once for each task of the "
                       "cluster, with the index of that task in TF_CONFIG; to wait longer, set REFDIST_TIMEOUT.")


def _connected(address: list[Any], token: str, hello: Mapping[str, Any], shown: str) -> pmi.Line:
    if len(address) == 1:
        source = socket.socket(socket.AF_UNIX)
        source.connect("\0" + address[0])
        known = pmi.same_user(source)
    else:
        source = socket.create_connection((address[0], address[1]), pmi.HANDSHAKE_SECONDS)
        source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        known = True
    source.settimeout(pmi.HANDSHAKE_SECONDS)
    line, challenge, greeting = pmi.Line(source), secrets.token_hex(16), json.dumps(hello)
    theirs = line.receive()
    for text in (challenge, greeting, pmi.proof(token, "worker", theirs, challenge, greeting)):
        line.send(text)
    answer = line.receive()
    if not known or answer != pmi.proof(token, "server", theirs, challenge):
        source.close()
        raise errors.error("RD17", _ATTEMPTED, f"what listens at {shown} does not know the token of this worker",
                           f"Set {TOKEN_VARIABLE} to the same text for all workers, and give the first one a port that "
                           "no other program has.")
    return line
