"""The main loops of workers and parameter servers in a job of processes: they serve until the coordinator ends.

A worker carries out one function after another, in the strategy's scope, and sends back what came of it.  A thread
listens to the second channel from the coordinator: it notes that a function is to stop, which happens at the function's
next access to a variable, as in the simulation; and when the coordinator is gone, it ends the process a moment later,
whatever the function does.  A parameter server has a thread for each process that uses it.

Both are lost without an end of the job (`Peers.spare`).
"""

from __future__ import annotations

import functools
import math
import os
import pickle
import sys
import threading
import time
import traceback
from typing import NoReturn

from refdist.array import pickles
from refdist.cluster_resolver import server
from refdist.cluster_resolver.base import SimpleClusterResolver
from refdist.cluster_resolver.cluster_spec import ClusterSpec
from refdist.coordinator.closures import Stopped, carried_out, name_of
from refdist.coordinator.parcels import Incoming, by_value
from refdist.coordinator.processes import DONE, FAILED, STOPPED
from refdist.core import context_stack, inherited, tracebacks
from refdist.strategies.job import Job, met
from refdist.strategies.parameter_server import ParameterServerExtended, ParameterServerStrategy
from refdist.variables.remote import Store
from refdist.variables.served import Access, here
from refdist.workers.channels import Channel, Gone
from refdist.workers.launcher import CHIEF, WORKER, Task

GRACE_SECONDS = 2.0  # how long a function may go on when the coordinator has ended
_CHIEF = Task(CHIEF, 0)


def serve(cluster: ClusterSpec, task_type: str, task_id: int) -> None:
    """Runs this worker or parameter server until the coordinator ends; returns at once if tasks are simulated.

    Raises:
        SystemExit: the coordinator has ended.
        RD17: the processes are not the tasks of the cluster.
    """
    job = met(Task(task_type, task_id), cluster)
    if job is None:
        return
    job.peers.spare()
    if task_type == WORKER:
        _Worker(job).work()
    else:
        _serve_variables(job)
    sys.exit()


server.serve.value = serve


def _serve_variables(job: Job) -> None:
    store = Store()
    for task, channels in job.peers.channels.items():
        if task != _CHIEF:
            threading.Thread(target=store.serve, args=channels, name=f"refdist {task}", daemon=True).start()
    job.peers.listen(lambda task, channels: store.serve(*channels))
    store.serve(job.peers.channels[_CHIEF][0])


class _Worker:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._channel, control = job.peers.channels[_CHIEF]
        # For each strategy of the coordinator's process one here, and what its functions begin with.
        self._strategies: list[tuple[ParameterServerStrategy, inherited.Snapshot]] = []
        self._incoming = Incoming(self._strategy, job.task.number)
        self._function = 0  # the number of the function that runs
        self._stopped = 0.0  # the number of the last function that is to stop
        threading.Thread(target=self._listen, args=(control,), name="refdist control", daemon=True).start()

    def _strategy(self, number: int) -> ParameterServerStrategy:
        while len(self._strategies) <= number:
            strategy = ParameterServerStrategy(SimpleClusterResolver(
                self._job.cluster, task_type=WORKER, task_id=self._job.task.number))
            extended = strategy.extended
            assert isinstance(extended, ParameterServerExtended)
            extended.pause = self._pause
            with context_stack.pushed(extended._scope_frame(context_stack.BOTTOM)):
                self._strategies.append((strategy, inherited.Snapshot()))
        return self._strategies[number][0]

    def work(self) -> None:
        """Carries out functions until the coordinator is gone."""
        here.worker = self._job.task.number
        while True:
            try:
                function, definitions, strategy, number, call = pickle.loads(self._channel.receive())
                self._function = function
                self._incoming.define(definitions)
                self._channel.send(self._carried_out(strategy, number, call))
            except Gone:
                return

    def _carried_out(self, strategy: int, number: int, call: bytes) -> bytes:
        self._strategy(strategy)
        try:
            return self._strategies[strategy][1].call(self._result, number, call)
        except Stopped:
            return _packed((STOPPED, None))
        except BaseException as error:
            return _packed((FAILED, _sendable(error, self._job.task)))

    def _result(self, number: int, call: bytes) -> bytes:
        fn, args, kwargs = self._incoming.unpacked(call)
        call_it = functools.partial(fn, *args, **kwargs)
        return _packed((DONE, carried_out(call_it, name_of(fn), number, self._job.task.number)))

    def _pause(self, access: Access) -> None:
        if self._function <= self._stopped:
            raise Stopped

    def _listen(self, control: Channel) -> NoReturn:
        try:
            while True:
                self._stopped = pickle.loads(control.receive())
        except Gone:
            self._stopped = math.inf
        time.sleep(GRACE_SECONDS)
        self._job.peers.finish()
        os._exit(0)


def _packed(value: object) -> bytes:
    try:
        return pickles.dumps(value)
    except Exception:
        return by_value(value)


def _sendable(error: BaseException, task: Task) -> BaseException:
    # A note with the traceback's lines, because tracebacks cannot be pickled.
    lines = "".join(traceback.format_tb(tracebacks.cut(error).__traceback__)).rstrip("\n")
    try:
        sent: BaseException = pickle.loads(_packed(error))
    except Exception:
        sent = RuntimeError(f"{type(error).__name__}: {error}")
    sent.add_note(f"on {task}:\n{lines}" if lines else f"on {task}")
    return sent
