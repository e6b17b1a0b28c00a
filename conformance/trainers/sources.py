"""Who promises what a clause asks of a trainer: pages, their sections, and what these say, in other words.

The pages were read for TensorFlow 2.21, Keras 3.15, PyTorch 2.14, accelerate 1.15 and torchmetrics 1.9.  Those under
*Caveats* say the opposite of a clause: a trainer that is wrong as such a page says answers with it (`declared`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A page, a section of it, and what it promises."""

    page: str
    section: str
    promise: str

    @property
    def title(self) -> str:
        """What a reader looks for: the last part of the address, and the section.

        >>> AVERAGE_LOSS.title, EXCLUSIVE.title
        ('compute_average_loss, Returns', 'DistributedSampler, description')
        """
        name = self.page.rpartition("#")[2].rstrip("/").rpartition("/")[2].removesuffix(".html").rpartition(".")[2]
        return f"{name}, {self.section}"


TENSORFLOW = "https://www.tensorflow.org/"
CUSTOM = TENSORFLOW + "tutorials/distribute/custom_training"
INPUT = TENSORFLOW + "tutorials/distribute/input"
TORCH = "https://docs.pytorch.org/docs/stable/"
DDP = TORCH + "generated/torch.nn.parallel.DistributedDataParallel.html"
AMP = TORCH + "notes/amp_examples.html"
SAMPLER = TORCH + "data.html#torch.utils.data.distributed.DistributedSampler"
TORCHRUN = TORCH + "elastic/run.html"
KERAS = "https://keras.io/"
KERAS_BATCH_NORM = KERAS + "api/layers/normalization_layers/batch_normalization/"
ACCELERATE = "https://huggingface.co/docs/accelerate/"
ACCELERATE_ACCUMULATION = ACCELERATE + "usage_guides/gradient_accumulation"

# TensorFlow

GLOBAL_BATCH = Source(CUSTOM, "Define the loss function", "Every replica's gradient is that of one computation with "
                      "the global batch size, undistributed; Model.fit does the same.")
LOSS_OF_A_STEP = Source(CUSTOM, "Things to note in the example above", "The loss of a step is aggregated across the "
                        "replicas.")
MIRRORED = Source(CUSTOM, "Create a strategy to distribute the variables and the graph", "The input is distributed "
                  "evenly, gradients are summed across the replicas, and each updates its copy alike.")
EVERY_EXAMPLE_ONCE = Source(CUSTOM, "Special cases", "Short batches are allowed so that an epoch has each example "
                            "exactly once.")
METRICS = Source(CUSTOM, "Things to note in the example above", "Metrics are updated inside the step that each replica "
                 "runs, and so see its rows.")
RESTORE = Source(CUSTOM, "Restore the latest checkpoint and test", "What was saved with a strategy can be restored "
                 "with or without one.")
IN_SYNC = Source(TENSORFLOW + "guide/distributed_training", "MirroredStrategy", "The copies of a variable are kept in "
                 "sync by identical updates.")
BATCHING = Source(INPUT, "Batching", "A global batch is split between the replicas, and the last one too; a replica "
                  "may get none of it.")
SHARDING = Source(INPUT, "Sharding", "In each step, a global batch of elements that do not overlap is processed.")
PARTIAL_BATCHES = Source(INPUT, "Partial batches", "A replica without data has batches of size 0, and goes on as long "
                         "as any replica has data.")
AVERAGE_LOSS = Source(TENSORFLOW + "api_docs/python/tf/nn/compute_average_loss", "Returns", "The sum of the losses of "
                      "the examples, divided by the size of the global batch.")
SCALED_REGULARIZATION = Source(TENSORFLOW + "api_docs/python/tf/nn/scale_regularization_loss", "description",
                               "A regularization loss is divided by the number of replicas.")
SLOTS = Source(TENSORFLOW + "guide/checkpoint", "Loading mechanics", "The state of an optimizer, as momentum, is saved "
               "with the variables.")
RESHUFFLE = Source(TENSORFLOW + "api_docs/python/tf/data/Dataset", "shuffle", "reshuffle_each_iteration, which is the "
                   "default, draws another order for each epoch.")
STREAMS = Source(TENSORFLOW + "guide/random_numbers", "Creating generators inside distribution strategies", "Each "
                 "replica has a different and independent stream of random numbers.")
LOSS_SCALE = Source(TENSORFLOW + "guide/mixed_precision", "Training the model with a custom training loop", "Gradients "
                    "are applied if all are finite; otherwise the scale is halved.")
OTHERS_FAIL = Source(TENSORFLOW + "tutorials/distribute/multi_worker_with_keras", "Fault tolerance", "Where a worker "
                     "becomes unavailable, the others fail, possibly after a timeout.")

# Keras

CLIPPING = Source(KERAS + "api/optimizers/", "Optimizer class, clipvalue and global_clipnorm", "The gradient of each "
                  "weight is at most this value; the norm of that of all weights together is at most this one.")
ACCUMULATED = Source(KERAS + "api/optimizers/", "Optimizer class, gradient_accumulation_steps", "The weights are "
                     "updated by the average of the gradients since the last update.")
SCHEDULE = Source(KERAS + "api/optimizers/learning_rate_schedules/exponential_decay/", "ExponentialDecay class",
                  "The learning rate is a function of the step of the optimizer.")
FROZEN = Source(KERAS + "guides/transfer_learning/", "Freezing layers: understanding the trainable attribute",
                "Freezing applies to all weights of a layer: training does not update them.")
FINE_TUNING = Source(KERAS + "guides/transfer_learning/", "Fine-tuning", "A frozen layer can be unfrozen, and is "
                     "trained from then on, once the model has been compiled again.")
SHARED_LAYERS = Source(KERAS + "guides/functional_api/", "Shared layers", "A layer that is used twice learns from both "
                       "paths.")
SYNCHRONIZED = Source(KERAS_BATCH_NORM, "synchronized", "With True, the statistics are those of the global batch, in "
                      "each step.")
EVALUATED = Source(KERAS + "api/models/model_training_apis/", "evaluate method, sample_weight", "Weights of samples "
                   "weigh the loss of an evaluation, too.")
AT_EACH_STEP = Source(KERAS + "api/layers/regularization_layers/dropout/", "Dropout class", "What is dropped is drawn "
                      "at each step of training.")
RESET = Source(KERAS + "api/metrics/base_metric/", "reset_state method", "The state of a metric is reset between "
               "epochs.")

# PyTorch

AVERAGED = Source(DDP, "first note on M nodes", "With a loss that is a mean, the gradient is that of one node with all "
                  "rows.")
SAME_STATE = Source(TORCH + "notes/ddp.html", "Internal Design", "Replicas start from the same state and have the same "
                    "averaged gradients in every iteration, and so stay in sync.")
UNUSED = Source(DDP, "find_unused_parameters", "A parameter without a gradient is marked as ready, so that no process "
                "waits for it.")
EXCLUSIVE = Source(SAMPLER, "description", "Each process loads a subset of the data that no other one has.")
SET_EPOCH = Source(SAMPLER, "set_epoch", "All replicas use a different order for each epoch.")
SYNC_BATCH_NORM = Source(TORCH + "generated/torch.nn.SyncBatchNorm.html", "description", "Mean and deviation are those "
                         "of the batches of all processes.")
CLIP_NORM = Source(TORCH + "generated/torch.nn.utils.clip_grad_norm_.html", "description", "The norm is that of the "
                   "gradients of all parameters, as one vector.")
CLIP_LAST = Source(AMP, "Gradient accumulation", "Gradients are clipped after all of a step have been accumulated.")
EFFECTIVE_BATCH = Source(AMP, "Gradient accumulation", "The effective batch is the batches of all iterations and all "
                         "processes; step and scale are decided for the whole.")
UNSCALED = Source(AMP, "Gradient clipping", "Gradients are unscaled before they are clipped: a limit holds for "
                  "gradients without the scale.")
SKIPPED = Source(AMP, "Typical Mixed Precision Training", "Where a gradient is not finite the optimizer's step is left "
                 "out.")
REPEATED = Source(TORCH + "sparse.html", "Uncoalesced sparse COO tensors", "Values at the same place of a sparse "
                  "gradient are summed.")
STATE_DICT = Source(TORCH + "generated/torch.nn.Module.html", "state_dict", "The state of a module has its persistent "
                    "buffers, as running averages, beside its parameters.")
WORKER_FAILURE = Source(TORCHRUN, "Failure Modes", "Where a worker fails, all are stopped.")
FIRST_ERROR = Source(TORCH + "elastic/errors.html", "description", "The first uncaught exception of a worker is "
                     "reported with its trace, where the entry point is decorated.")

# Others

ALL_TOKENS = Source(ACCELERATE_ACCUMULATION, "Gradient accumulation on training samples of variable size",
                    "The loss is the sum over all batches of a step and all processes, divided by the number of tokens "
                    "that count in them, and not a mean of means.")
STEP_AT_THE_END = Source(ACCELERATE_ACCUMULATION, "Letting Accelerate handle gradient accumulation", "At the end of "
                         "the data a step is made of what there is.")
TRIGGER = Source(ACCELERATE + "concept_guides/deferring_execution", "Applying checks such as Early Stopping",
                 "A condition that one process finds is seen by all.")
GATHERED = Source(ACCELERATE + "package_reference/accelerator", "gather_for_metrics", "Rows that were repeated in the "
                  "last batch are dropped again.")
TORCHMETRICS = Source("https://lightning.ai/docs/torchmetrics/stable/references/metric.html", "torchmetrics.Metric",
                      "The state of a metric is synchronized across processes when it is computed.")

# Caveats: pages that say otherwise.

MEANS_OF_REPLICAS = Source(CUSTOM, "Special cases", "By default and in Model.fit, a replica divides by the number of "
                           "its own rows times that of replicas; many programs divide by the size of a full batch.")
EXTRA_INDICES = Source(SAMPLER, "drop_last", "Rows are repeated until they can be divided evenly, or the tail is "
                       "dropped.")
EVEN_BATCHES = Source(ACCELERATE + "package_reference/utilities", "DataLoaderConfiguration, even_batches",
                      "Rows from the start are repeated until all workers have as many, unless it is False.")
WITHOUT_SET_EPOCH = Source(SAMPLER, "warning", "Without set_epoch, all epochs have the same order.")
LOCAL_STATISTICS = Source(KERAS_BATCH_NORM, "synchronized", "With False, the default, each replica uses the statistics "
                          "of its own rows.")
FIRST_BUFFERS = Source(DDP, "note on buffers", "The statistics of rank 0 are sent to the others in every iteration.")
WRAPPED = Source(DDP, "warning on changed parameters", "Parameters must not be changed after the model is wrapped.")
STEPS_OF_PROCESSES = Source(ACCELERATE + "concept_guides/performance", "Learning Rates", "A schedule is stepped once "
                            "for each process.")
SAME_SEED = Source(ACCELERATE + "package_reference/utilities", "set_seed, device_specific", "The seed differs between "
                   "devices only if it is True.")
