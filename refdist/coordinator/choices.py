"""Schedules: which of several runnable functions goes on next.  These choices make one run of an asynchronous program.

A run of such a program is decided by a few things only: which worker takes the next function, which of the functions in
flight makes the next access to a variable, when the coordinator goes on, and when a task is lost.  All of them are
choices of one kind: at a point of the program there is a list of options, and one is taken.  So a run is a list of
numbers.  With the same numbers it is the same run, to the bit; with all lists of numbers one has all runs.

Option 0 is always the quiet one: what runs goes on, and what is scheduled first runs first.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from refdist import errors
from refdist.core.integers import as_integer
from refdist.runtime import Field

if TYPE_CHECKING:
    from refdist.coordinator.cluster import Cluster
    from refdist.variables.served import Access

COORDINATOR, GO_ON, TAKE, LOSE = "coordinator", "go on", "take", "lose"


class Option(NamedTuple):
    """One thing that can happen next in a simulated cluster.

    Attributes:
        action: "coordinator": the program of the coordinator goes on; "go on": the function on the worker does;
            "take": the worker takes the next function; "lose": the task is lost.
        task: the number of the worker; for "lose" the type and number, such as "ps 0".
    """

    action: str
    task: int | str = ""


Choose = Callable[[Sequence[Option]], int]


class Scheduler(ABC):
    """Decides, within a `with` block, what goes on next, and is told of every access to a variable."""

    @abstractmethod
    def choose(self, options: Sequence[Option], cluster: Cluster) -> int:
        """Chooses one of the options and returns its index; called even if there is only one option.

        Args:
            options: what can happen next, at least one.
            cluster: where it happens.
        """

    def visit(self, cluster: Cluster, worker: int | None, access: Access | None) -> None:  # noqa: B027
        """Called before a function on a worker, or the coordinator, makes an access to a variable.

        Args:
            cluster: where it happens.
            worker: the number of the worker; None for the coordinator.
            access: the access; None if the coordinator has scheduled a function instead.
        """

    def queueing(self, cluster: Cluster) -> bool:
        """Called before the coordinator puts a function into the queue; whether `choose` is asked who goes on first.

        Args:
            cluster: where it happens.
        """
        return False

    def returning(self, cluster: Cluster, worker: int) -> None:  # noqa: B027
        """The function on a worker has made its last access; `choose` is asked who goes on, or whether it is lost now.

        Args:
            cluster: where it happens.
            worker: the number of the worker.
        """

    def ended(self, cluster: Cluster, waited: bool) -> None:  # noqa: B027
        """Called when the coordinator's `join` returns, which means that all functions have ended.

        Args:
            cluster: where it happened.
            waited: whether some functions had not ended before `join` was called.
        """

    def failed(self, cluster: Cluster) -> None:  # noqa: B027
        """Called when the function that runs has raised an error.

        Args:
            cluster: where it happened.
        """

    def stops(self, cluster: Cluster) -> None:  # noqa: B027
        """Called before the coordinator stops all functions, because one has failed.

        Args:
            cluster: where it happens.
        """

    def left(self, error: errors.RefdistError) -> None:  # noqa: B027
        """Called when a function could not be stopped, and its thread is left.

        Args:
            error: says which one.
        """

    def runs(self, frame: FrameType) -> None:  # noqa: B027
        """Called each second while the program waits for a function; what it raises ends the wait.

        Args:
            frame: where the function is that runs.
        """

    def disturbed(self, why: str) -> None:  # noqa: B027
        """Called when the run depends on something that is neither a choice nor an access, so that it may not repeat.

        Args:
            why: what it depends on, the end of a sentence.
        """

    def __enter__(self) -> Self:
        disturbed("the program chooses itself, with `interleaving`")
        self._before = current.value
        current.value = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        current.value = self._before


class interleaving(Scheduler):  # noqa: N801 - used like a function
    """Decides which of the functions of coordinators go on next, for the length of a `with` block.

    Args:
        choices: an int is the seed of a random choice at every point; a list has the number of the option to take at
            each point, and where it ends, option 0 is taken; a function is called with the options and returns the
            number of one.

    Attributes:
        taken: the numbers taken so far, at the points where there was more than one option; as `choices` they repeat
            the run.
        counts: how many options there were at each of these points.

    >>> import refdist
    >>> spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
    >>> def two_increments(choices):
    ...     strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
    ...     with strategy.scope():
    ...         v = refdist.Variable(0.0)
    ...     coordinator = refdist.coordinator.ClusterCoordinator(strategy)
    ...     with refdist.coordinator.interleaving(choices) as run:
    ...         for _ in range(2):
    ...             coordinator.schedule(lambda: v.assign(v + 1.0))
    ...         coordinator.join()
    ...     return float(v)
    >>> two_increments([]), two_increments([0, 0, 0, 0, 1])
    (2.0, 1.0)

    Raises:
        RD25, RD34: something else as `choices`; when it is asked, a number that is not an option's.
    """

    def __init__(self, choices: int | Sequence[int] | Choose) -> None:
        self.taken: list[int] = []
        self.counts: list[int] = []
        given = list(map(as_integer, choices)) if isinstance(choices, (list, tuple)) else [None]
        self._given = [choice for choice in given if choice is not None]
        seed = as_integer(choices)
        if len(self._given) == len(given):
            self._source: Choose = self._next_given
        elif seed is not None:
            generator = random.Random(seed)
            self._source = lambda options: generator.randrange(len(options))
        elif callable(choices):
            self._source = choices
        else:
            raise errors.error("RD25", "interleaving", f"choices is {choices!r}",
                               "Pass a seed, a list of ints, or a function of a list of options.")

    def _next_given(self, options: Sequence[Option]) -> int:
        at = len(self.taken)
        return self._given[at] if at < len(self._given) else 0

    def choose(self, options: Sequence[Option], cluster: Cluster) -> int:
        """Chooses one of the options and returns its index.

        Args:
            options: what can happen next, at least one.
            cluster: where it happens.

        Raises:
            RD34: there is no option of that number.
        """
        if len(options) == 1:
            return 0
        number = self._source(options)
        if type(number) is not int or not 0 <= number < len(options):
            raise errors.error("RD34", "interleaving", f"choice {len(self.taken)} is {number!r}, of {len(options)} "
                               "options", "Pass numbers from 0, below that of the options; a list of choices fits "
                               "only the program that it was made with.")
        self.taken.append(number)
        self.counts.append(len(options))
        return number


current: Field[Scheduler | None] = Field("who decides which functions go on; None for option 0", lambda: None)


def disturbed(why: str) -> None:
    """See `Scheduler.disturbed`."""
    if current.value is not None:
        current.value.disturbed(why)
