"""The contract of messages between two tasks of a job: what a coordinator, its workers and parameter servers need.

The verbs of a `Transport` are collectives, which all workers call together.  A job with parameter servers has none:
each task sends to another one when it has something to say, and goes on when a third one is gone.  So its tasks are
connected by channels, one for each pair that has something to say, and `meet` makes all of them at once, before the
program goes on.  A channel carries messages in both directions, in order and whole, and tells when its other end is
gone; what the messages are is not known here.

`LINES` says who talks to whom.  The coordinator has two channels to each worker: on the second one it can say that the
function is to stop which the worker is carrying out.

A worker that was lost may be started again.  It finds the others where they still listen, and opens all of its channels
itself, those to the coordinator too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from refdist.workers.launcher import CHIEF, SERVER, WORKER, Task

# Who opens a channel to whom, and how many.
LINES = {(WORKER, SERVER): 1, (CHIEF, SERVER): 1, (CHIEF, WORKER): 2}


class Gone(ConnectionError):
    """The other end of a channel is gone, or did not answer in time."""


class Channel(Protocol):
    """One end of a connection between two tasks.

    An interrupt of a call, such as Ctrl-C's, leaves messages whole.  One that was to be sent is sent not at all or as a
    whole; what is missing of it then is sent by the next call of `send`, and the same object is not sent twice then.
    One that was to be received is received by the next call.
    """

    def send(self, message: bytes) -> None:
        """Sends a message.

        Raises:
            Gone: the other end is.
        """

    def receive(self) -> bytes:
        """The next message.

        Raises:
            Gone: the other end is, and so is what it had not sent before.
        """

    def answer(self) -> bytes:
        """The next message, for which it does not wait longer than the time limit.

        Raises:
            Gone: the other end is, or was silent for so long.
        """

    def fileno(self) -> int:
        """The number of the file that is readable when there is a message, or the other end is gone."""

    def close(self) -> None:
        """The other end finds this one gone."""


class Peers(Protocol):
    """What connects a task with the others of its job."""

    @property
    def channels(self) -> Mapping[Task, Sequence[Channel]]:
        """The channels to each other task, in the order in which they were opened."""

    @property
    def returns(self) -> int:
        """How often each worker may be started again when it was lost; 0 where none is."""

    @property
    def seconds(self) -> float:
        """For how long tasks wait for each other."""

    def listen(self, returned: Callable[[Task, Sequence[Channel]], object]) -> None:
        """From now on workers that were started again can connect; where none is, nothing happens.

        Args:
            returned: called in another thread with each of them, and the channels to it.
        """

    def spare(self) -> None:
        """From now on the job goes on when this task is lost."""

    def finish(self) -> None:
        """This task has done its part; it will end."""
