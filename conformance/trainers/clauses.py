"""What a trainer must do: clauses, each with its sources, the jobs that test it, and the check of their answers.

Rows are chosen so that a mistake shows as a factor.  In a *ledger*, row i is the i-th row of the identity matrix, and
the target is 1: weight i is moved by row i alone, as often as the row counts.  With a batch of 2 on two replicas, each
has one row, however rows are dealt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from . import sources
from .jobs import Job, Layer, Matrix, Rows, dense, job, rows, sgd
from .sources import Source


@dataclass(frozen=True)
class Clause:
    """What a trainer must do.

    Attributes:
        name: identifier, which never changes.
        level: MUST where a page promises it, SHOULD where none does, or not of several replicas.
        rule: what it must do.
        mistake: how people got it wrong.
        sources: who promises it, or comes closest.
        caveats: pages that say otherwise.
        check: the name of the comparison.
        jobs: what a trainer is told to do.
        hang: whether to be silent for too long is a wrong answer, and not a missing one.
    """

    name: str
    level: Literal["MUST", "SHOULD"]
    rule: str
    mistake: str
    sources: tuple[Source, ...]
    check: str
    jobs: tuple[Job, ...]
    caveats: tuple[Source, ...] = ()
    hang: bool = False


def ledger(count: int) -> Rows:
    """Rows of which each moves a weight of its own."""
    identity: Matrix = [[float(i == j) for j in range(count)] for i in range(count)]
    return rows(identity, [[1.0]] * count)


def zeros(count: int) -> Matrix:
    """A kernel that says 0 to every row."""
    return [[0.0]] * count


def line(*pairs: tuple[float, float]) -> Rows:
    """Rows of one number and its target."""
    return rows([[x] for x, _ in pairs], [[y] for _, y in pairs])


def failing(how: str, *replicas: int) -> tuple[Job, ...]:
    """Jobs of which all but the first say which replica fails: only who can do the first one has failed for that."""
    failures = ({"replica": replica, "at_step": 2, "how": how, "message": f"replica {replica} was told to fail"}
                for replica in replicas)
    return tuple(job(LINE, [dense([[1.0]])], ["weights"], batch=2, optimizer=sgd(0.02), fail=failure)
                 for failure in (None, *failures))


ONES = rows([[1.0] * 64] * 2, [[1.0]] * 2)
DROPPING: tuple[Layer, ...] = ({"kind": "dropout", "name": "dropout", "rate": 0.5, "seed": 7}, dense(zeros(64)))
LINE = line((1, 2), (2, 3), (-1, 1), (3, 9), (0, 0), (-2, -5), (4, 7), (1, 8))
PAIR = line((1, 2), (2, -3))
POWERS = line(*((0, 2.0 ** i) for i in range(8)))
MASKED = rows([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0, 1.0], [3.0, 9.0, 9.0]], [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
NORMALIZED: tuple[Layer, ...] = ({"kind": "batch_norm", "name": "batch_norm", "features": 1, "momentum": 0.5,
                                  "epsilon": 1e-3}, dense([[1.0]]))

CLAUSES: tuple[Clause, ...] = (
    Clause("same-loss", "MUST",
           rule="The loss of a step is that of all rows of the global batch, for any number of replicas.",
           mistake="The loss of the first replica is reported, or the sum over the replicas.",
           sources=(sources.LOSS_OF_A_STEP, sources.GLOBAL_BATCH, sources.AVERAGE_LOSS),
           check="losses",
           jobs=tuple(job(LINE, [dense([[1.0]], bias=[0.5])], ["losses"], replicas=replicas, optimizer=sgd(0.02))
                      for replicas in (1, 2, 4))),
    Clause("same-weights", "MUST",
           rule="A step moves the weights by the gradient of all rows of the global batch, for any number of "
                "replicas.",
           mistake="Gradients are added where their mean was meant, or not combined at all.",
           sources=(sources.GLOBAL_BATCH, sources.MIRRORED, sources.AVERAGED),
           check="weights",
           jobs=tuple(job(LINE, [dense([[1.0]], bias=[0.5])], replicas=replicas, epochs=3,
                          optimizer=sgd(0.02, momentum=0.5)) for replicas in (1, 2, 4))),
    Clause("weights-equal", "MUST",
           rule="All replicas have the same weights, after every step and from the first one on.",
           mistake="Each replica draws its own initial weights.",
           sources=(sources.IN_SYNC, sources.SAME_STATE),
           check="equal",
           jobs=(job(LINE, [dense(None, shape=[1, 1])], [], ask_each=["weights"], batch=4, optimizer=sgd(0.02)),)),
    Clause("is-distributed", "MUST",
           rule="Each replica trains on a part of the rows of a step, and no two on the same row.",
           mistake="Nothing is distributed: every process trains on all rows.",
           sources=(sources.SHARDING, sources.EXCLUSIVE),
           check="distributed",
           jobs=(job(ledger(8), [dense(zeros(8))], [], ask_each=["rows"], batch=4),)),
    Clause("rows-once", "MUST",
           rule="A row that is in a full batch is trained on once.",
           mistake="Rows from the beginning are repeated, until all replicas have the same number.",
           sources=(sources.EVERY_EXAMPLE_ONCE, sources.BATCHING),
           check="full-batches",
           jobs=(job(ledger(11), [dense(zeros(11))], batch=8),),
           caveats=(sources.EXTRA_INDICES, sources.EVEN_BATCHES)),
    Clause("undivided-batch", "SHOULD",
           rule="A batch that cannot be shared out evenly is trained on as a whole, and each of its rows counts once.",
           mistake="Each replica takes as many rows as all of them can, and the rest is dropped, or waits for the next "
                   "step.",
           sources=(sources.BATCHING, sources.GLOBAL_BATCH),
           check="full-batches",
           jobs=(job(ledger(12), [dense(zeros(12))], replicas=4, batch=6),),
           caveats=(sources.MEANS_OF_REPLICAS, sources.EXTRA_INDICES)),
    Clause("uneven-end", "SHOULD",
           rule="A last, smaller batch is a step by the mean of its rows, however many of them each replica has.",
           mistake="The means of replicas that have different numbers of rows are averaged, or the sum is divided by "
                   "the size of a full batch.",
           sources=(sources.GLOBAL_BATCH, sources.AVERAGE_LOSS),
           check="last-batch",
           jobs=tuple(job(ledger(count), [dense(zeros(count))], batch=8) for count in (10, 11)),
           caveats=(sources.MEANS_OF_REPLICAS, sources.EXTRA_INDICES, sources.EVEN_BATCHES)),
    Clause("empty-part", "MUST",
           rule="A replica that has no row of the last batch takes part in its step with nothing.",
           mistake="The mean of no rows is not a number, or the mean over replicas counts the empty one.",
           sources=(sources.PARTIAL_BATCHES, sources.BATCHING),
           check="last-batch",
           jobs=tuple(job(ledger(9), [dense(zeros(9))], batch=8, replicas=replicas) for replicas in (2, 4)),
           caveats=(sources.MEANS_OF_REPLICAS, sources.EXTRA_INDICES, sources.EVEN_BATCHES),
           hang=True),
    Clause("shuffled-rows-once", "MUST",
           rule="Shuffled, every row is still read once in an epoch, with its own target.",
           mistake="Each replica shuffles by a seed of its own and takes its part, so that some rows are read twice "
                   "and some never; or rows and targets are shuffled apart.",
           sources=(sources.EXCLUSIVE, sources.SHARDING),
           check="full-batches",
           jobs=(job(rows(ledger(16)["x"], [[1.0 + row] for row in range(16)]), [dense(zeros(16))], batch=2,
                     shuffle=1),)),
    Clause("shuffles-differ-by-epoch", "MUST",
           rule="The order is drawn anew for every epoch.",
           mistake="The seed is the same in every epoch, because the sampler is not told which one it is.",
           sources=(sources.RESHUFFLE, sources.SET_EPOCH),
           check="orders",
           jobs=(job(POWERS, [dense([[0.0]])], ["losses"], batch=2, epochs=4, shuffle=2, optimizer=sgd(0.0)),),
           caveats=(sources.WITHOUT_SET_EPOCH,)),
    Clause("validation-rows-once", "MUST",
           rule="The loss of validation is that of all its rows, each counted once.",
           mistake="Rows are repeated until all replicas have the same number, the last batch is dropped, or the means "
                   "of batches are averaged.",
           sources=(sources.EVERY_EXAMPLE_ONCE, sources.GATHERED),
           check="eval-loss",
           jobs=tuple(job(ledger(count), [dense(zeros(count))], ["eval_loss"], epochs=0, batch=8,
                          evaluate=rows(ledger(count)["x"], [[0.0]] * (count - 1) + [[3.0]])) for count in (9, 10)),
           caveats=(sources.EXTRA_INDICES, sources.EVEN_BATCHES)),
    Clause("validation-masked-rows", "MUST",
           rule="The loss of validation is a mean over what the mask lets pass, on all replicas.",
           mistake="The mask is left out where no gradient is computed, or the means of replicas are averaged.",
           sources=(sources.EVALUATED, sources.ALL_TOKENS),
           check="eval-loss",
           jobs=(job(MASKED, [dense([[0.0] * 3] * 2)], ["eval_loss"], epochs=0, loss="masked_mse", evaluate=MASKED),),
           caveats=(sources.MEANS_OF_REPLICAS,)),
    Clause("metrics-of-all-rows", "MUST",
           rule="A metric of an epoch is that of all its rows, on whichever replica they were.",
           mistake="The metric of the first replica is reported, or the mean of those of the batches.",
           sources=(sources.METRICS, sources.TORCHMETRICS),
           check="metrics",
           jobs=tuple(job(rows(ledger(count)["x"], [[0.0]] * (count - 1) + [[9.0]]), [dense(zeros(count))], ["metrics"],
                          batch=8, metrics=["mean_absolute_error"]) for count in (10, 11)),
           caveats=(sources.EXTRA_INDICES, sources.EVEN_BATCHES)),
    Clause("metrics-of-an-epoch", "MUST",
           rule="A metric is that of the rows of its epoch, and not of earlier ones.",
           mistake="It is not reset between epochs.",
           sources=(sources.RESET,),
           check="metrics",
           jobs=(job(ledger(8), [dense(zeros(8))], ["metrics"], epochs=2, metrics=["mean_absolute_error"],
                     optimizer=sgd(2.0)),)),
    Clause("regularizer-once", "MUST",
           rule="A regularizer is added once, and not once for each replica.",
           mistake="The loss of every replica has it in full, and the gradients are added.",
           sources=(sources.SCALED_REGULARIZATION, sources.GLOBAL_BATCH),
           check="weights",
           jobs=(job(rows([[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]]), [dense([[1.0], [2.0]], l2=0.1)]),)),
    Clause("masked-rows", "MUST",
           rule="The mean over what a mask lets pass is one over the global batch.",
           mistake="Each replica divides by its own number of tokens, and the results are averaged.",
           sources=(sources.ALL_TOKENS,),
           check="weights",
           jobs=(job(rows([[1.0, 0.0], [0.0, 1.0]], [[1.0] * 3] * 2, [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
                     [dense([[0.0] * 3] * 2)], loss="masked_mse"),),
           caveats=(sources.MEANS_OF_REPLICAS,)),
    Clause("loss-matches-gradient", "MUST",
           rule="The loss that is reported of a step is the one whose gradient moves the weights: a mean over what "
                "counts on all replicas, with the regularizers once.",
           mistake="The mean of the replicas' losses is reported, though the gradient weighs what they have; or the "
                   "sum of their regularizers.",
           sources=(sources.LOSS_OF_A_STEP, sources.ALL_TOKENS, sources.SCALED_REGULARIZATION),
           check="losses",
           jobs=(job(MASKED, [dense([[0.0] * 3] * 2)], ["losses"], loss="masked_mse"),
                 job(rows([[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]]), [dense([[1.0], [2.0]], l2=0.1)], ["losses"])),
           caveats=(sources.MEANS_OF_REPLICAS,)),
    Clause("accumulation", "MUST",
           rule="Accumulated batches are one step, by the gradient of all their rows.",
           mistake="The gradients are added and not averaged, or are not reset after the step.",
           sources=(sources.EFFECTIVE_BATCH, sources.ACCUMULATED),
           check="weights",
           jobs=(job(ledger(16), [dense(zeros(16))], batch=4, accumulate=2),)),
    Clause("accumulation-short-group", "MUST",
           rule="Where an epoch ends before enough batches are accumulated, those that there are make a step, by the "
                "gradient of all their rows.",
           mistake="The sum is divided by the number of batches that were expected, or the rest is dropped "
                   "(lightning#19987, transformers#39659).",
           sources=(sources.STEP_AT_THE_END, sources.ALL_TOKENS),
           check="weights",
           jobs=(job(ledger(8), [dense(zeros(8))], batch=4, accumulate=4),)),
    Clause("accumulation-unequal-parts", "MUST",
           rule="Every row of accumulated batches of different sizes has the same weight.",
           mistake="The means of the batches are averaged.",
           sources=(sources.ALL_TOKENS,),
           check="weights",
           jobs=(job(ledger(6), [dense(zeros(6))], batch=4, accumulate=2),),
           caveats=(sources.ACCUMULATED,)),
    Clause("accumulation-masked-rows", "MUST",
           rule="The mean over what a mask lets pass is one over all accumulated batches.",
           mistake="Each batch divides by its own number of tokens, and the results are averaged (transformers#34191).",
           sources=(sources.ALL_TOKENS,),
           check="weights",
           jobs=(job(rows(ledger(4)["x"], [[1.0] * 3] * 4, [[1.0, 1.0, 1.0]] * 2 + [[1.0, 0.0, 0.0]] * 2),
                     [dense([[0.0] * 3] * 4)], batch=2, accumulate=2, loss="masked_mse"),),
           caveats=(sources.ACCUMULATED,)),
    Clause("clip-by-norm", "MUST",
           rule="A limit of the norm of the gradient is one of the gradient of the global batch, its regularizers "
                "included, and leaves a gradient alone that is shorter.",
           mistake="Each replica clips its own gradient before they are added (tensorflow#33929), or each weight's "
                   "gradient is clipped by itself; every gradient is brought to this norm; or a decay of the weights "
                   "is added afterwards.",
           sources=(sources.GLOBAL_BATCH, sources.CLIPPING, sources.CLIP_NORM),
           check="weights",
           jobs=(*(job(rows([[1.0, 0.0], [0.0, 1.0]], [[2.0], [2.0]]),
                       [dense([[1.0], [0.0]], "first"), dense([[1.0]], "second")], clip={"by": "norm", "limit": limit})
                   for limit in (1.0, 100.0)),
                 job(line((1, 3)), [dense([[1.0]], l2=1.0)], replicas=1, clip={"by": "norm", "limit": 1.0}))),
    Clause("clip-by-value", "MUST",
           rule="A limit of the numbers of the gradient is one of the gradient of the global batch.",
           mistake="Each replica clips its own gradient before they are added (tensorflow#33929).",
           sources=(sources.GLOBAL_BATCH, sources.CLIPPING),
           check="weights",
           jobs=(job(line((1, 4), (1, -2)), [dense([[0.0]])], clip={"by": "value", "limit": 1.0}),)),
    Clause("clip-after-accumulation", "MUST",
           rule="The gradient that is clipped is that of all accumulated batches.",
           mistake="Each batch's gradient is clipped before it is added.",
           sources=(sources.CLIP_LAST,),
           check="weights",
           jobs=(job(line((1, 4), (1, 4), (1, -2), (1, -2)), [dense([[0.0]])], batch=2, accumulate=2,
                     clip={"by": "norm", "limit": 1.0}),)),
    Clause("regularizer-after-accumulation", "MUST",
           rule="Accumulated batches are one step, in which a regularizer is added once.",
           mistake="The loss of every batch has it in full, and their gradients are added.",
           sources=(sources.EFFECTIVE_BATCH, sources.ACCUMULATED),
           check="weights",
           jobs=(job(rows([[1.0, 0.0], [0.0, 1.0]] * 2, [[1.0], [2.0]] * 2), [dense([[1.0], [2.0]], l2=0.1)],
                     replicas=1, batch=2, accumulate=2),)),
    Clause("schedule-after-accumulation", "MUST",
           rule="Accumulated batches are one step of the schedule of the learning rate.",
           mistake="Every batch moves the schedule on.",
           sources=(sources.SCHEDULE, sources.ACCUMULATED, sources.EFFECTIVE_BATCH),
           check="weights",
           jobs=(job(ledger(8), [dense(zeros(8))], replicas=1, batch=2, accumulate=2,
                     optimizer=sgd(0.5, decay=0.5)),)),
    Clause("batch-norm-statistics", "SHOULD",
           rule="The moving mean of a batch normalization is that of the rows of all replicas.",
           mistake="The statistics of the first replica are kept, and those of the others are lost.",
           sources=(sources.SYNCHRONIZED, sources.SYNC_BATCH_NORM),
           check="moving-mean",
           jobs=(job(line((0, 0), (1, 0), (4, 0), (11, 0)), NORMALIZED, optimizer=sgd(0.01)),),
           caveats=(sources.LOCAL_STATISTICS, sources.FIRST_BUFFERS)),
    Clause("dropout-differs", "MUST",
           rule="Replicas drop different numbers.",
           mistake="All replicas have the same seed, so that they drop the same ones.",
           sources=(sources.STREAMS,),
           check="dropped",
           jobs=(job(ONES, DROPPING),),
           caveats=(sources.SAME_SEED,)),
    Clause("dropout-differs-by-step", "MUST",
           rule="Other numbers are dropped in every step.",
           mistake="A key is used again, or a seed is set in the step, so that all steps drop the same ones.",
           sources=(sources.AT_EACH_STEP,),
           check="dropped",
           jobs=(job(ONES, DROPPING, replicas=1, batch=1, optimizer=sgd(2.0 ** -24)),)),
    Clause("dropout-differs-by-batch", "MUST",
           rule="Other numbers are dropped in each of the batches that are accumulated.",
           mistake="A key is drawn once for a step, and used for all of its batches.",
           sources=(sources.AT_EACH_STEP,),
           check="dropped",
           jobs=(job(ONES, DROPPING, replicas=1, batch=1, accumulate=2),)),
    Clause("unused-parameters", "MUST",
           rule="A weight that only some replicas use, or none, moves by the gradient of the global batch.",
           mistake="Training hangs, or the mean is one over the replicas that used it.",
           sources=(sources.UNUSED, sources.GLOBAL_BATCH),
           check="weights",
           jobs=tuple(job(rows([[0.0, 1.0], [float(second), 1.0]], [[1.0]] * 2),
                          [{"kind": "experts", "name": "experts", "kernels": [[[0.0]], [[0.0]]]}])
                      for second in (1, 0)),
           hang=True),
    Clause("embedding-rows", "MUST",
           rule="A row of an embedding moves by the gradient of the global batch, whichever replicas used it.",
           mistake="The mean is one over the replicas that used it, or repeated rows overwrite each other.",
           sources=(sources.GLOBAL_BATCH, sources.REPEATED),
           check="weights",
           jobs=(job(rows([[0.0], [1.0], [2.0], [2.0]], [[1.0]] * 4),
                     [{"kind": "embedding", "name": "embedding", "table": [[0.0]] * 3}], batch=2),)),
    Clause("frozen-layers", "MUST",
           rule="A frozen layer does not move, and the others move as if it were not: its gradient is not in the norm "
                "that is clipped.",
           mistake="It is wrapped before it is frozen, and moved nevertheless; or the optimizer does not know it, and "
                   "what clips does.",
           sources=(sources.FROZEN,),
           check="weights",
           jobs=(job(LINE, [dense([[1.0]], "first", frozen=True, bias=[0.5]), dense([[1.0]], "second")], batch=4,
                     optimizer=sgd(0.02, momentum=0.5)),
                 job(line((1, 3)), [dense([[1.0]], "first", frozen=True), dense([[1.0]], "second")], replicas=1,
                     clip={"by": "norm", "limit": 1.0}))),
    Clause("unfrozen-layers", "SHOULD",
           rule="A layer that is trained from some step on moves on all replicas alike.",
           mistake="It was frozen when the model was wrapped, and its gradients are not combined.",
           sources=(sources.FINE_TUNING, sources.SAME_STATE),
           check="weights",
           jobs=(job(LINE, [dense([[1.0]], "first", frozen=True), dense([[1.0]], "second")], batch=4, epochs=2,
                     unfreeze={"layer": "first", "after_step": 1}, optimizer=sgd(0.01)),),
           caveats=(sources.WRAPPED,)),
    Clause("tied-weights", "SHOULD",
           rule="A kernel that two layers share moves by the sum of both gradients.",
           mistake="Two copies of it drift apart, or one of the gradients is lost.",
           sources=(sources.SHARED_LAYERS, sources.GLOBAL_BATCH),
           check="weights",
           jobs=(job(PAIR, [dense([[0.5]], "first"), dense(None, "second", shape=[1, 1], tied="first")],
                     optimizer=sgd(0.1)),)),
    Clause("schedule-by-steps", "MUST",
           rule="The learning rate changes by steps, and not by replicas or epochs.",
           mistake="Each process moves the schedule on, so that it ends too early, or every epoch begins it anew.",
           sources=(sources.SCHEDULE,),
           check="weights",
           jobs=(job(ledger(8), [dense(zeros(8))], batch=4, epochs=2, optimizer=sgd(0.5, decay=0.5)),),
           caveats=(sources.STEPS_OF_PROCESSES,)),
    Clause("loss-scale", "MUST",
           rule="A gradient that is not finite on one replica leaves out the step on all, and all have the same "
                "scale.",
           mistake="The replica leaves it out alone.",
           sources=(sources.LOSS_SCALE, sources.SKIPPED, sources.EFFECTIVE_BATCH),
           check="scaled",
           jobs=(job(line((1, 2), (2, 3), (1e25, 0), (1, 1), (1, 3), (-1, 1)), [dense([[1.0]])], ["weights", "scale"],
                     ask_each=["weights"], batch=2, loss_scale=1024.0, optimizer=sgd(0.1)),)),
    Clause("clip-after-unscaling", "MUST",
           rule="The gradient that is clipped is the one without the scale of the loss.",
           mistake="It is clipped before it is divided by the scale (Pytorch-UNet#470).",
           sources=(sources.UNSCALED,),
           check="weights",
           jobs=(job(line((1, 4), (1, -2)), [dense([[0.0]])], replicas=1, loss_scale=1024.0,
                     clip={"by": "norm", "limit": 1.0}),)),
    Clause("checkpoint-n-to-m", "MUST",
           rule="A checkpoint of two replicas goes on, on any number, as if nothing had happened.",
           mistake="The momentum or the step of the schedule is not in it, or the rows or the learning rate are "
                   "divided anew.",
           sources=(sources.RESTORE, sources.SLOTS, sources.SCHEDULE),
           check="weights",
           # A schedule and a momentum together are no job: libraries multiply by the learning rate before, or after.
           jobs=tuple(job(LINE, [dense([[1.0]])], batch=4, checkpoint={verb: name}, replicas=replicas,
                          optimizer=optimizer)
                      for name, optimizer in (("first", sgd(0.02, momentum=0.5)), ("second", sgd(0.02, decay=0.5)))
                      for verb, replicas in (("save", 2), ("restore", 1), ("restore", 4)))),
    Clause("checkpoint-statistics", "MUST",
           rule="A checkpoint has the moving statistics of a batch normalization.",
           mistake="What is saved are the trainable weights, and the statistics begin anew.",
           sources=(sources.STATE_DICT,),
           check="moving-mean",
           jobs=tuple(job(line((0, 0), (4, 0), (4, 0), (0, 0)), NORMALIZED, checkpoint={verb: "statistics"},
                          optimizer=sgd(0.01)) for verb in ("save", "restore"))),
    Clause("early-stop", "MUST",
           rule="Where one replica finds that training should stop, all stop after the same step.",
           mistake="It stops alone, and the others wait for it, or go on.",
           sources=(sources.TRIGGER,),
           check="stopped",
           jobs=tuple(job(ledger(8), [dense(zeros(8))], ask_each=["steps"], batch=2,
                          stop={"replica": replica, "after_step": 2}) for replica in (1, 0)),
           hang=True),
    Clause("exception-ends-all", "MUST",
           rule="An exception on one replica ends the whole program, with an exit status that is not 0, and its "
                "message is printed.",
           mistake="The other replicas wait for ever, or the program ends as if all were well.",
           sources=(sources.WORKER_FAILURE, sources.FIRST_ERROR),
           check="failed",
           jobs=failing("exception", 1, 0),
           hang=True),
    Clause("death-ends-all", "MUST",
           rule="The death of the process of one replica ends the whole program, with an exit status that is not 0.",
           mistake="The other replicas wait for ever.",
           sources=(sources.WORKER_FAILURE, sources.OTHERS_FAIL),
           check="failed",
           jobs=failing("death", 1),
           hang=True),
)


def jobs() -> list[Job]:
    """The jobs of all clauses, numbered from 1, in the order in which a trainer is to do them."""
    pairs = [(clause, job) for clause in CLAUSES for job in clause.jobs]
    return [{**job, "id": number, "clause": clause.name} for number, (clause, job) in enumerate(pairs, 1)]


def chosen(names: Sequence[str]) -> list[Clause]:
    """The clauses of these names, all if there are none.

    Raises:
        ValueError: there is no clause of a name.
    """
    if unknown := set(names) - {clause.name for clause in CLAUSES}:
        raise ValueError(f"--clause: there is no {', '.join(sorted(unknown))}; there are "
                         f"{', '.join(clause.name for clause in CLAUSES)}")
    return [clause for clause in CLAUSES if not names or clause.name in names]
