"""What a trainer must do: clauses, each with its sources, the jobs that test it, and the check of their answers.

Rows are chosen so that a mistake shows as a factor.  In a *ledger*, row i is the i-th row of the identity matrix, and
the target is 1: weight i is moved by row i alone, as often as the row counts.  With a batch of 2 on two replicas, each
has one row, however rows are dealt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refdist.conformance.trainers.jobs import Job, Matrix, Rows, dense, job, rows, sgd


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


TENSORFLOW = "https://www.tensorflow.org/"
TORCH = "https://docs.pytorch.org/docs/stable/"
KERAS = "https://keras.io/api/"
HUGGING_FACE = "https://huggingface.co/docs/"

CUSTOM_TRAINING = Source(TENSORFLOW + "tutorials/distribute/custom_training", "Define the loss function and optimizer")
MIRRORED = Source(TENSORFLOW + "tutorials/distribute/custom_training", "How does tf.distribute.MirroredStrategy work?")
INPUT = Source(TENSORFLOW + "tutorials/distribute/input", "Distributed datasets")
AVERAGE_LOSS = Source(TENSORFLOW + "api_docs/python/tf/nn/compute_average_loss", "description")
SCALE_REGULARIZATION = Source(TENSORFLOW + "api_docs/python/tf/nn/scale_regularization_loss", "description")
CHECKPOINTS = Source(TENSORFLOW + "tutorials/distribute/save_and_load", "description")
TF_SHUFFLE = Source(TENSORFLOW + "api_docs/python/tf/data/Dataset#shuffle", "reshuffle_each_iteration")
TF_RANDOM = Source(TENSORFLOW + "guide/random_numbers", "Interaction with distribution strategies")
TF_MIXED = Source(TENSORFLOW + "guide/mixed_precision", "Loss scaling")
DDP = Source(TORCH + "generated/torch.nn.parallel.DistributedDataParallel.html", "description")
DDP_UNUSED = Source(TORCH + "generated/torch.nn.parallel.DistributedDataParallel.html", "find_unused_parameters")
DDP_DESIGN = Source(TORCH + "notes/ddp.html", "Internal Design")
SAMPLER = Source(TORCH + "data.html#torch.utils.data.distributed.DistributedSampler", "description")
SET_EPOCH = Source(TORCH + "data.html#torch.utils.data.distributed.DistributedSampler", "set_epoch")
SYNC_BATCH_NORM = Source(TORCH + "generated/torch.nn.SyncBatchNorm.html", "description")
CROSS_ENTROPY = Source(TORCH + "generated/torch.nn.CrossEntropyLoss.html", "reduction, ignore_index")
CLIP_NORM = Source(TORCH + "generated/torch.nn.utils.clip_grad_norm_.html", "description")
GRAD_SCALER = Source(TORCH + "notes/amp_examples.html", "Typical Mixed Precision Training")
ACCUMULATION = Source(TORCH + "notes/amp_examples.html", "Gradient accumulation")
TORCHRUN = Source(TORCH + "elastic/run.html", "description")
KERAS_OPTIMIZER = Source(KERAS + "optimizers/", "clipvalue, global_clipnorm, gradient_accumulation_steps")
KERAS_BATCH_NORM = Source(KERAS + "layers/normalization_layers/batch_normalization/", "synchronized, moving_mean")
KERAS_TRAINABLE = Source("https://keras.io/guides/transfer_learning/", "Freezing layers: understanding the trainable "
                         "attribute")
ACCELERATE_SCHEDULER = Source(HUGGING_FACE + "accelerate/package_reference/torch_wrappers", "AcceleratedScheduler")


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


LINE = line((1, 2), (2, 3), (-1, 1), (3, 9), (0, 0), (-2, -5), (4, 7), (1, 8))
PAIR = line((1, 2), (2, -3))
POWERS = line(*((0, 2.0 ** i) for i in range(8)))
FAILED = "replica 1 was told to fail"

CLAUSES: tuple[Clause, ...] = (
    Clause("same-loss", "The loss of a step is that of all rows of the global batch, for any number of replicas.",
           "The loss of the first replica is reported, or the sum over the replicas.",
           (CUSTOM_TRAINING, AVERAGE_LOSS), "losses",
           tuple(job(LINE, [dense([[1.0]], bias=[0.5])], ["losses"], replicas=replicas, optimizer=sgd(0.02))
                 for replicas in (1, 2, 4))),
    Clause("same-weights", "A step moves the weights by the gradient of all rows of the global batch, for any number "
           "of replicas.", "Gradients are added where their mean was meant, or not combined at all.",
           (MIRRORED, DDP), "weights",
           tuple(job(LINE, [dense([[1.0]], bias=[0.5])], replicas=replicas, epochs=3,
                     optimizer=sgd(0.02, momentum=0.5)) for replicas in (1, 2, 4))),
    Clause("weights-equal", "All replicas have the same weights, after every step and from the first one on.",
           "Each replica draws its own initial weights.", (MIRRORED, DDP_DESIGN), "equal",
           (job(LINE, [dense(None, shape=[1, 1])], [], ask_each=["weights"], batch=4, optimizer=sgd(0.02)),)),
    Clause("is-distributed", "Each replica trains on a part of the rows of a step, and no two on the same row.",
           "Nothing is distributed: every process trains on all rows.", (INPUT, SAMPLER), "distributed",
           (job(ledger(8), [dense(zeros(8))], [], ask_each=["rows"], batch=4),)),
    Clause("rows-once", "A row that is in a full batch is trained on once.",
           "Rows from the beginning are repeated, until all replicas have the same number.",
           (INPUT, SAMPLER), "full-batches",
           (job(ledger(11), [dense(zeros(11))], batch=8),)),
    Clause("uneven-end", "Every row of a last batch that is smaller has the same weight in its step.",
           "The means of replicas that have different numbers of rows are averaged, or the sum is divided by the size "
           "of a full batch.", (CUSTOM_TRAINING, AVERAGE_LOSS), "last-batch",
           tuple(job(ledger(count), [dense(zeros(count))], batch=8) for count in (10, 11))),
    Clause("empty-part", "A replica that has no row of the last batch takes part in its step with nothing.",
           "The mean of no rows is not a number, or the mean over replicas counts the empty one.",
           (CUSTOM_TRAINING, INPUT), "last-batch", (job(ledger(9), [dense(zeros(9))], batch=8),), hang=True),
    Clause("shuffled-rows-once", "Shuffled, every row is still read once in an epoch.",
           "Each replica shuffles by a seed of its own and takes its part, so that some rows are read twice and some "
           "never.", (INPUT, SAMPLER), "full-batches",
           (job(ledger(16), [dense(zeros(16))], batch=2, shuffle=1),)),
    Clause("shuffles-differ-by-epoch", "The order is drawn anew for every epoch.",
           "The seed is the same in every epoch, because the sampler is not told which one it is.",
           (TF_SHUFFLE, SET_EPOCH), "orders",
           (job(POWERS, [dense([[0.0]])], ["losses"], batch=2, epochs=4, shuffle=2, optimizer=sgd(0.0)),)),
    Clause("validation-rows-once", "The loss of validation is that of all its rows, each counted once.",
           "Rows are repeated until all replicas have the same number, or the means of batches are averaged.",
           (AVERAGE_LOSS, SAMPLER), "eval-loss",
           tuple(job(ledger(count), [dense(zeros(count))], ["eval_loss"], epochs=0, batch=8,
                     evaluate=rows(ledger(count)["x"], [[0.0]] * (count - 1) + [[3.0]])) for count in (9, 10))),
    Clause("metrics-of-all-rows", "A metric of an epoch is that of all its rows, on whichever replica they were.",
           "The metric of the first replica is reported, or the mean of those of the batches.",
           (Source(TENSORFLOW + "tutorials/distribute/custom_training", "Define the metrics to track loss and "
                   "accuracy"),), "metrics",
           tuple(job(rows(ledger(count)["x"], [[0.0]] * (count - 1) + [[9.0]]), [dense(zeros(count))], ["metrics"],
                     batch=8, metrics=["mean_absolute_error"]) for count in (10, 11))),
    Clause("regularizer-once", "A regularizer is added once, and not once for each replica.",
           "The loss of every replica has it in full, and the gradients are added.",
           (SCALE_REGULARIZATION,), "weights",
           (job(rows([[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]]), [dense([[1.0], [2.0]], l2=0.1)]),)),
    Clause("masked-rows", "The mean over what a mask lets pass is one over the global batch.",
           "Each replica divides by its own number of tokens, and the results are averaged.",
           (CROSS_ENTROPY, AVERAGE_LOSS), "weights",
           (job(rows([[1.0, 0.0], [0.0, 1.0]], [[1.0] * 3] * 2, [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
                [dense([[0.0] * 3] * 2)], loss="masked_mse"),)),
    Clause("accumulation", "Accumulated batches are one step, by the gradient of all their rows.",
           "The gradients are added and not averaged, or are not reset after the step.",
           (ACCUMULATION, KERAS_OPTIMIZER), "weights", (job(ledger(16), [dense(zeros(16))], batch=4, accumulate=2),)),
    Clause("accumulation-short-group", "Where an epoch ends before enough batches are accumulated, those that there "
           "are make a step, by the gradient of all their rows.",
           "The sum is divided by the number of batches that were expected, or the rest is dropped "
           "(lightning#19987, transformers#39659).", (ACCUMULATION, KERAS_OPTIMIZER), "weights",
           (job(ledger(8), [dense(zeros(8))], batch=4, accumulate=4),)),
    Clause("accumulation-unequal-parts", "Every row of accumulated batches of different sizes has the same weight.",
           "The means of the batches are averaged.", (ACCUMULATION, KERAS_OPTIMIZER), "weights",
           (job(ledger(6), [dense(zeros(6))], batch=4, accumulate=2),)),
    Clause("clip-by-norm", "A limit of the norm of the gradient is one of the gradient of the global batch.",
           "Each replica clips its own gradient before they are added (tensorflow#33929), or each weight's gradient is "
           "clipped by itself.", (KERAS_OPTIMIZER, CLIP_NORM), "weights",
           (job(rows([[1.0, 0.0], [0.0, 1.0]], [[2.0], [2.0]]),
                [dense([[1.0], [0.0]], "first"), dense([[1.0]], "second")], clip={"by": "norm", "limit": 1.0}),)),
    Clause("clip-by-value", "A limit of the numbers of the gradient is one of the gradient of the global batch.",
           "Each replica clips its own gradient before they are added (tensorflow#33929).",
           (KERAS_OPTIMIZER,), "weights",
           (job(line((1, 4), (1, -2)), [dense([[0.0]])], clip={"by": "value", "limit": 1.0}),)),
    Clause("clip-after-accumulation", "The gradient that is clipped is that of all accumulated batches.",
           "Each batch's gradient is clipped before it is added.", (CLIP_NORM, ACCUMULATION), "weights",
           (job(line((1, 4), (1, 4), (1, -2), (1, -2)), [dense([[0.0]])], batch=2, accumulate=2,
                clip={"by": "norm", "limit": 1.0}),)),
    Clause("batch-norm-statistics", "The moving mean of a batch normalization is that of the rows of all replicas.",
           "The statistics of the first replica are kept, and those of the others are lost.",
           (KERAS_BATCH_NORM, SYNC_BATCH_NORM), "moving-mean",
           (job(line((0, 0), (1, 0), (4, 0), (11, 0)), [{"kind": "batch_norm", "name": "batch_norm", "features": 1,
                "momentum": 0.5, "epsilon": 1e-3}, dense([[1.0]])], optimizer=sgd(0.01)),)),
    Clause("dropout-differs", "Replicas drop different numbers.",
           "All replicas have the same seed, so that they drop the same ones.", (TF_RANDOM,), "dropped",
           (job(rows([[1.0] * 64] * 2, [[1.0]] * 2), [{"kind": "dropout", "name": "dropout", "rate": 0.5, "seed": 7},
                                                      dense(zeros(64))]),)),
    Clause("unused-parameters", "A weight that only some replicas use, or none, moves by the gradient of the global "
           "batch.", "Training hangs, or the mean is one over the replicas that used it.",
           (DDP_UNUSED,), "weights",
           tuple(job(rows([[0.0, 1.0], [float(second), 1.0]], [[1.0]] * 2),
                     [{"kind": "experts", "name": "experts", "kernels": [[[0.0]], [[0.0]]]}]) for second in (1, 0)),
           hang=True),
    Clause("embedding-rows", "A row of an embedding moves by the gradient of the global batch, whichever replicas "
           "used it.", "The mean is one over the replicas that used it, or repeated rows overwrite each other.",
           (MIRRORED, DDP), "weights",
           (job(rows([[0.0], [1.0], [2.0], [2.0]], [[1.0]] * 4),
                [{"kind": "embedding", "name": "embedding", "table": [[0.0]] * 3}], batch=2),)),
    Clause("frozen-layers", "A frozen layer does not move, and the others move as if it were not.",
           "It is wrapped before it is frozen, and moved nevertheless.", (KERAS_TRAINABLE,), "weights",
           (job(LINE, [dense([[1.0]], "first", frozen=True, bias=[0.5]), dense([[1.0]], "second")], batch=4,
                optimizer=sgd(0.02, momentum=0.5)),)),
    Clause("unfrozen-layers", "A layer that is trained from some step on moves on all replicas alike.",
           "It was frozen when the model was wrapped, and its gradients are not combined.",
           (KERAS_TRAINABLE, DDP_DESIGN), "weights",
           (job(LINE, [dense([[1.0]], "first", frozen=True), dense([[1.0]], "second")], batch=4, epochs=2,
                unfreeze={"layer": "first", "after_step": 1}, optimizer=sgd(0.01)),)),
    Clause("tied-weights", "A kernel that two layers share moves by the sum of both gradients.",
           "Two copies of it drift apart, or one of the gradients is lost.", (DDP_DESIGN,), "weights",
           (job(PAIR, [dense([[0.5]], "first"), dense(None, "second", shape=[1, 1], tied="first")],
                optimizer=sgd(0.1)),)),
    Clause("schedule-by-steps", "The learning rate changes by steps, and not by replicas.",
           "Each process moves the schedule on, so that it ends too early.", (ACCELERATE_SCHEDULER,), "weights",
           (job(ledger(8), [dense(zeros(8))], batch=2, optimizer=sgd(0.5, decay=0.5)),)),
    Clause("loss-scale", "A gradient that is not finite on one replica leaves out the step on all, and all have the "
           "same scale.", "The replica leaves it out alone.", (GRAD_SCALER, TF_MIXED), "scaled",
           (job(line((1, 2), (2, 3), (1e25, 0), (1, 1), (1, 3), (-1, 1)), [dense([[1.0]])], ["weights", "scale"],
                ask_each=["weights"], batch=2, loss_scale=1024.0, optimizer=sgd(0.1)),)),
    Clause("checkpoint-n-to-m", "A checkpoint of two replicas goes on, on any number, as if nothing had happened.",
           "The momentum is not in it, or the rows or the learning rate are divided anew.", (CHECKPOINTS,), "weights",
           (job(LINE, [dense([[1.0]])], batch=4, checkpoint={"save": "first"}, optimizer=sgd(0.02, momentum=0.5)),
            *(job(LINE, [dense([[1.0]])], batch=4, checkpoint={"restore": "first"}, replicas=replicas,
                  optimizer=sgd(0.02, momentum=0.5)) for replicas in (1, 4)))),
    Clause("early-stop", "Where one replica finds that training should stop, all stop after the same step.",
           "It stops alone, and the others wait for it, or go on.",
           (Source(TORCH + "distributed.algorithms.join.html", "description"),), "stopped",
           (job(ledger(8), [dense(zeros(8))], ask_each=["steps"], batch=2, stop={"replica": 1, "after_step": 2}),),
           hang=True),
    Clause("exception-ends-all", "An exception on one replica ends the whole program, with an exit status that is not "
           "0, and its message is printed.", "The other replicas wait for ever, or the program ends as if all were "
           "well.", (TORCHRUN,), "failed",
           (job(LINE, [dense([[1.0]])], [], batch=2, optimizer=sgd(0.02),
                fail={"replica": 1, "at_step": 2, "how": "exception", "message": FAILED}),), hang=True),
    Clause("death-ends-all", "The death of the process of one replica ends the whole program, with an exit status that "
           "is not 0.", "The other replicas wait for ever.", (TORCHRUN,), "failed",
           (job(LINE, [dense([[1.0]])], [], batch=2, optimizer=sgd(0.02),
                fail={"replica": 1, "at_step": 2, "how": "death", "message": FAILED}),), hang=True),
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
