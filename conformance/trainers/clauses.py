"""What a trainer must do: clauses, each with its sources, the jobs that test it, and the check of their answers.

Rows are chosen so that a mistake shows as a factor.  In a *ledger*, row i is the i-th row of the identity matrix, and
the target is 1: weight i is moved by row i alone, as often as the row counts.  With a batch of 2 on two replicas, each
has one row, however rows are dealt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refdist.conformance.trainers.jobs import Job, Matrix, Rows, dense, job, rows, sgd

TENSORFLOW = "https://www.tensorflow.org/"
TORCH = "https://docs.pytorch.org/docs/stable/"
KERAS = "https://keras.io/api/"


@dataclass(frozen=True)
class Source:
    """Who promises it: a page and its section."""

    page: str
    section: str


@dataclass(frozen=True)
class Clause:
    """What a trainer must do.

    Attributes:
        name: identifier, which never changes.
        rule: what it must do.
        mistake: how people got it wrong.
        sources: who promises it.
        check: the name of the comparison.
        jobs: what a trainer is told to do.
        hang: whether to be silent for too long is a wrong answer, and not a missing one.
    """

    name: str
    rule: str
    mistake: str
    sources: tuple[Source, ...]
    check: str
    jobs: tuple[Job, ...]
    hang: bool = False


CUSTOM_TRAINING = Source(TENSORFLOW + "tutorials/distribute/custom_training", "Define the loss function")
DISTRIBUTED_INPUT = Source(TENSORFLOW + "tutorials/distribute/input", "Batching")
DDP = Source(TORCH + "generated/torch.nn.parallel.DistributedDataParallel.html", "description")


def ledger(count: int) -> Rows:
    """Rows of which each moves a weight of its own."""
    identity: Matrix = [[float(i == j) for j in range(count)] for i in range(count)]
    return rows(identity, [[1.0]] * count)


def zeros(count: int) -> Matrix:
    """A kernel that says 0 to every row."""
    return [[0.0]] * count


LINE = rows([[float(x)] for x in (1, 2, -1, 3, 0, -2, 4, 1)], [[float(y)] for y in (2, 3, 1, 9, 0, -5, 7, 8)])

CLAUSES: tuple[Clause, ...] = (
    Clause("same-loss", "The loss of a step is that of all rows of the global batch, for any number of replicas.",
           "The loss of the first replica is reported, or the sum over the replicas.",
           (CUSTOM_TRAINING,), "losses",
           tuple(job(LINE, [dense([[1.0]], bias=[0.5])], ["losses"], replicas=replicas, epochs=3, optimizer=sgd(0.02))
                 for replicas in (1, 2, 4))),
    Clause("same-weights", "A step moves the weights by the gradient of all rows of the global batch, for any number "
           "of replicas.", "Gradients are added where their mean was meant, or not combined at all.",
           (CUSTOM_TRAINING, DDP), "weights",
           tuple(job(LINE, [dense([[1.0]], bias=[0.5])], replicas=replicas, epochs=3,
                     optimizer=sgd(0.02, momentum=0.5)) for replicas in (1, 2, 4))),
    Clause("uneven-end", "Every row of a last batch that is smaller has the same weight in its step.",
           "The means of replicas that have different numbers of rows are averaged, or the sum is divided by the size "
           "of a full batch.", (CUSTOM_TRAINING, DISTRIBUTED_INPUT), "weights",
           (job(ledger(11), [dense(zeros(11))], batch=8), job(ledger(10), [dense(zeros(10))], batch=8))),
    Clause("empty-part", "A replica that has no row of the last batch takes part in its step with nothing.",
           "The mean of no rows is not a number, or the mean over replicas counts the empty one.",
           (CUSTOM_TRAINING, DISTRIBUTED_INPUT), "weights", (job(ledger(9), [dense(zeros(9))], batch=8),)),
    Clause("validation-rows-once", "The loss of validation counts every row once.",
           "Rows are repeated until all replicas have the same number, or the means of batches are averaged.",
           (DISTRIBUTED_INPUT,), "eval-loss",
           tuple(job(ledger(count), [dense(zeros(count))], ["eval_loss"], epochs=0, batch=8,
                     evaluate=rows(ledger(count)["x"], [[0.0]] * (count - 1) + [[3.0]])) for count in (9, 10))),
    Clause("clip-by-norm", "A limit of the norm of the gradient is one of the gradient of the global batch.",
           "Each replica clips its own gradient before they are added.",
           (Source(KERAS + "optimizers/", "global_clipnorm"),), "weights",
           (job(rows([[1.0, 0.0], [0.0, 1.0]], [[2.0], [2.0]]), [dense(zeros(2))],
                clip={"by": "norm", "limit": 1.0}),)),
)


def jobs() -> list[Job]:
    """The jobs of all clauses, numbered from 1, in the order in which a trainer is to do them."""
    every = [(clause, job) for clause in CLAUSES for job in clause.jobs]
    return [{**job, "id": number, "clause": clause.name} for number, (clause, job) in enumerate(every, 1)]


def chosen(names: Sequence[str]) -> list[Clause]:
    """The clauses of these names, all if there are none.

    Raises:
        ValueError: there is no clause of a name.
    """
    if unknown := set(names) - {clause.name for clause in CLAUSES}:
        raise ValueError(f"--clause: there is no {', '.join(sorted(unknown))}; there are "
                         f"{', '.join(clause.name for clause in CLAUSES)}")
    return [clause for clause in CLAUSES if not names or clause.name in names]
