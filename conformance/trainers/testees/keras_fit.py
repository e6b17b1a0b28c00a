"""Keras's `fit` on a job, for the testees whose library is Keras.

Which replica a row is on is told from within the model, by a function of x and the
numbers of its rows that each testee has, and that returns x.
"""

from contextlib import nullcontext

import keras
import numpy as np
from keras import ops
from keras_model import arrays, model_of, restore, save, weights_of
from trainer_jobs import answer, fail, jobs, wants_to_stop

LOCAL = {"what": "without synchronized=True, each replica uses its own local batch statistics",
         "page": "https://keras.io/api/layers/normalization_layers/batch_normalization/"}
ACCUMULATED = {"what": "variables are updated every so many steps, by the average of the gradients since",
               "page": "https://keras.io/api/optimizers/"}
NO_UNFREEZING = "a layer becomes trainable by compile, which fit cannot do between two steps of an epoch"


def caveat(job):
    """What Keras's documentation says about a job, on any backend, if anything."""
    unequal = job["rows"]["mask"] or len(job["rows"]["x"]) % (job["batch"] * job["accumulate"])
    return ACCUMULATED if job["accumulate"] > 1 and unequal else None


class Record(keras.layers.Layer):
    """Lets x pass, and tells the numbers of the rows on every replica."""

    def __init__(self, tell):
        super().__init__()
        self.tell = tell

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs[0].shape, inputs[0].dtype)

    def call(self, inputs):
        return self.tell(*inputs)


def note(rows, replica, numbers):
    """Appends the numbers of rows of a step."""
    rows[int(replica)].append(np.array(numbers).astype(int).ravel().tolist())


class Watch(keras.callbacks.Callback):
    """Notes losses, and fails and stops as the job says; the process drives all replicas."""

    def __init__(self, job, losses):
        super().__init__()
        self.job, self.losses = job, losses

    def on_train_batch_begin(self, batch, logs=None):
        if not self.job["metrics"]:
            self.model.reset_metrics()  # the loss that is told is the mean of the batches since
        fail(self.job, None, len(self.losses) + 1)

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        if wants_to_stop(self.job, None, len(self.losses)):
            self.model.stop_training = True


def main(record, caveat, replicas, scope=lambda job: nullcontext(), unsupported=lambda job: ""):
    """Does the jobs.

    Args:
        record: of a list for each replica makes what appends to it the numbers of rows that a replica trains on.
        caveat: what the documentation says about a job, if anything.
        replicas: reads the values of a variable on all replicas.
        scope: the context in which models are made.
        unsupported: why a job cannot be done, or "".
    """
    for job in jobs(lambda job: NO_UNFREEZING if job["unfreeze"] else unsupported(job)):
        rows, losses, checkpoint = [[] for _ in range(job["replicas"])], [], job["checkpoint"] or {}
        keras.utils.set_random_seed(job["shuffle"] or 0)
        with scope(job):
            model = model_of(job, Record(record(rows)))
            if "restore" in checkpoint:
                restore(checkpoint["restore"], model)
        x, y, mask = arrays(job["rows"])
        result = {"losses": losses, "metrics": {}}
        if job["epochs"]:
            history = model.fit(x, y, job["batch"], job["epochs"], 0, [Watch(job, losses)], sample_weight=mask,
                                shuffle=job["shuffle"] is not None).history
            result["metrics"] = {name: values[-1] for name, values in history.items()}
        if job["evaluate"]:
            x, y, mask = arrays(job["evaluate"])
            result["eval_loss"] = model.evaluate(x, y, job["batch"], verbose=0, sample_weight=mask)
        if "save" in checkpoint:
            save(checkpoint["save"], model)
        if job["loss_scale"]:
            result["scale"] = float(ops.convert_to_numpy(model.optimizer.dynamic_scale))
        if declared := caveat(job):
            result["declared"] = declared
        for rank in range(job["replicas"]):
            copies = weights_of(job, model, lambda variable, rank=rank: replicas(variable)[rank])
            answer(job, replica=rank, steps=len(losses), weights=copies, rows=rows[rank] or [[]] * len(losses))
        answer(job, **result, weights=weights_of(job, model), done=True)
