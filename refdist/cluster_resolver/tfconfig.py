"""`TFConfigClusterResolver`: the cluster that the environment variable TF_CONFIG describes."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from refdist import errors
from refdist.cluster_resolver.base import ClusterResolver, with_layer
from refdist.cluster_resolver.cluster_spec import ClusterSpec, integer
from refdist.core import call_site

VARIABLE = "TF_CONFIG"


class TFConfigClusterResolver(ClusterResolver):
    """Reads TF_CONFIG whenever it is asked; the arguments given here override it.

    Args:
        task_type, task_id, rpc_layer, environment: None for what TF_CONFIG says.

    >>> import os
    >>> os.environ["TF_CONFIG"] = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'
    >>> resolver = TFConfigClusterResolver()
    >>> resolver.task_id, resolver.master()
    (1, 'b:2')
    >>> del os.environ["TF_CONFIG"]

    Raises (when it is asked):
        RD17: TF_CONFIG is malformed; the message names the place in it.

    Source: tf.distribute.cluster_resolver.TFConfigClusterResolver.
    """

    def __init__(self, task_type: str | None = None, task_id: int | str | None = None, rpc_layer: str | None = None,
                 environment: str | None = None) -> None:
        self._task_type = task_type
        self._task_id = None
        if task_id is not None:
            self._task_id = integer(task_id)
            if self._task_id is None or self._task_id < 0:
                raise errors.error("RD17", "TFConfigClusterResolver", f"task_id is {task_id!r}",
                                   "Pass a number of 0 or more, or None for that of TF_CONFIG.",
                                   kind=errors.InvalidValueError)
        self._rpc_layer = rpc_layer
        self._environment = environment
        self._first = os.environ.get(VARIABLE)

    def cluster_spec(self) -> ClusterSpec:
        """The tasks in TF_CONFIG; empty if it has no "cluster" or is not set."""
        jobs = self._read().get("cluster", {})
        try:
            spec = ClusterSpec(jobs)
        except errors.RefdistError as error:
            raise _malformed('at "cluster"', str(error).partition(": ")[2].rstrip(".")) from error
        _check_addresses(spec)
        return spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task; "" if the cluster has only one; "session_master" in TF_CONFIG overrides both.

        Args:
            task_type, task_id: the task; None for this one.
            rpc_layer: the protocol in front of the address; None for the resolver's own.

        Raises:
            RD17: no such task, or neither the arguments nor TF_CONFIG say which one.

        Source: tf.distribute.cluster_resolver.TFConfigClusterResolver.master.
        """
        stated = self._read().get("session_master")
        if stated is not None:
            return str(stated)
        spec = self.cluster_spec()
        if not spec or sum(map(spec.num_tasks, spec.jobs)) == 1:
            return ""
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        if task_type is None or task_id is None:
            raise errors.error("RD17", "TFConfigClusterResolver.master", f"{VARIABLE} does not say which task this is",
                               'Write "task": {"type": "worker", "index": 0}, or pass task_type and task_id.',
                               kind=errors.InvalidContextError)
        return with_layer(spec.task_address(task_type, task_id), rpc_layer or self.rpc_layer)

    @property
    def task_type(self) -> str | None:
        """The type of this task."""
        if self._task_type is not None:
            return self._task_type
        stated = self._task().get("type")
        return None if stated is None else str(stated)

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this task within its type."""
        if self._task_id is not None:
            return self._task_id
        stated = self._task().get("index")
        return None if stated is None else _int(stated, 'at "task", "index"')

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol between tasks."""
        if self._rpc_layer is not None:
            return self._rpc_layer
        stated = self._read().get("rpc_layer")
        return None if stated is None else str(stated)

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def _task(self) -> dict[str, Any]:
        task = self._read().get("task", {})
        if not isinstance(task, dict):
            raise _malformed('at "task"', f"{task!r} is not an object", 'Write "task": {"type": "worker", "index": 0}.')
        _check_keys(task, ("type", "index"), 'at "task"')
        return task

    def _read(self) -> dict[str, Any]:
        text = os.environ.get(VARIABLE)
        if text != self._first:
            call_site.warn(f"{VARIABLE} has changed since this resolver was made; strategies keep what they read")
            self._first = text
        if text is None:
            return {}
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            near = text[max(error.pos - 12, 0):error.pos + 12]
            fix = "Use double quotes." if "'" in near else ""
            raise _malformed(f"line {error.lineno} column {error.colno}, near {near!r}", error.msg, fix) from error
        except RecursionError as error:
            raise _malformed("line 1 column 1", "it is nested too deeply") from error
        if not isinstance(content, dict):
            raise _malformed("line 1 column 1", f"it is {errors.type_of(content)}, not an object",
                             'Write {"cluster": ..., "task": ...}.')
        _check_keys(content, ("cluster", "task"), "line 1 column 1")
        return content


def _malformed(place: str, found: str, fix: str = "") -> errors.RefdistError:
    return errors.error("RD17", f"environment variable {VARIABLE}, {place}", found, fix or
                        'Write JSON such as {"cluster": {"worker": ["host:port", "host:port"]}, '
                        '"task": {"type": "worker", "index": 0}}.')


def _check_keys(present: Iterable[str], keys: Sequence[str], place: str) -> None:
    # Other keys are ignored, except one that can only be a misspelling of a key that is missing.
    for key in keys:
        others = {other.lower(): other for other in present if other not in keys}
        meant = get_close_matches(key, others, 1, 0.75)
        if key not in present and meant:
            raise _malformed(place, f'it has no "{key}", and {others[meant[0]]!r} is not read', f'Write "{key}".')


def _int(value: object, place: str) -> int:
    fix = 'Write a number of 0 or more, for example "index": 0.'
    number = integer(value)
    if number is None:
        raise _malformed(place, f"{value!r} is not an int", fix)
    if number < 0:
        raise _malformed(place, f"{value!r} is below 0", fix)
    return number


def _check_addresses(spec: ClusterSpec) -> None:
    for job in spec.jobs:
        for i in spec.task_indices(job):
            address = spec.task_address(job, i)
            _, colon, port = address.rpartition(":")
            if colon and not address.endswith("]") and not (port.isdecimal() and int(port) < 1 << 16):
                raise _malformed(f'at "cluster", "{job}", {i}', f"the port of {address!r} is {port!r}",
                                 'Write a number below 65536, for example "host:2222".')
    addresses = [address for job in spec.jobs for address in spec.job_tasks(job) if address]
    hosts = {address.rpartition(":")[0] for address in addresses}
    loopback = sorted(host for host in hosts if _is_loopback(host))
    if loopback and len(loopback) < len(hosts):
        call_site.warn(f"{VARIABLE} names {loopback[0]}, which on every host means that host itself, "
                       "beside other hosts; write the address at which the other hosts reach it")
    strange = [address for address in addresses if ":" not in address]
    if strange:
        call_site.warn(f"{VARIABLE} has the address {strange[0]}, which has no port")
    twice = sorted(address for address in set(addresses) if addresses.count(address) > 1)
    if twice:
        call_site.warn(f"{VARIABLE} has the address {twice[0]} for several tasks")
    closed = [address for address in addresses if re.search(r":0+$", address)]
    if closed:
        call_site.warn(f"{VARIABLE} has the address {closed[0]}; no connection can be made to port 0")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
