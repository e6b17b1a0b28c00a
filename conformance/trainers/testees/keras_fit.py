"""A job as a model of Keras, and `fit`, for the testees whose library is Keras.

Which replica a row is on is told from within the model, by a function of x and the
numbers of its rows that each testee has, and that returns x.
"""

import json
import os
import pickle
import sys
from contextlib import nullcontext

import keras
import numpy as np
from keras import layers, ops

LOCAL = {"what": "without synchronized=True, each replica uses its own local batch statistics",
         "page": "https://keras.io/api/layers/normalization_layers/batch_normalization/"}
ACCUMULATED = {"what": "variables are updated every so many steps, by the average of the gradients since",
               "page": "https://keras.io/api/optimizers/"}


def caveat(job):
    """What Keras's documentation says about a job, on any backend, if anything."""
    whole = job["batch"] * job["accumulate"]
    return ACCUMULATED if job["accumulate"] > 1 and len(job["rows"]["x"]) % whole else None


class Table(layers.Embedding):
    """An embedding of the first column."""

    def call(self, x):
        return super().call(ops.cast(x[:, 0], "int32"))


class Record(layers.Layer):
    """Lets x pass, and tells the numbers of the rows on every replica."""

    def __init__(self, tell):
        super().__init__()
        self.tell = tell

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs[0].shape, inputs[0].dtype)

    def call(self, inputs):
        return self.tell(*inputs)


class Experts(layers.Layer):
    """A kernel for each value of the first column."""

    def __init__(self, kernels, name):
        super().__init__(name=name)
        self.kernels = [self.add_weight(shape=np.shape(kernel), initializer=constant(kernel)) for kernel in kernels]

    def call(self, x):
        return sum(ops.where(x[:, :1] == number, x[:, 1:] @ kernel, 0.0) for number, kernel in enumerate(self.kernels))


def constant(value):
    """An initializer of given numbers."""
    return lambda shape, dtype=None: ops.convert_to_tensor(np.array(value, "float32").reshape(shape))


def note(rows, replica, numbers):
    """Appends the numbers of rows of a step."""
    rows[int(replica)].append(np.array(numbers).astype(int).ravel().tolist())


def layer_of(kind, name, **given):
    """A layer of a job."""
    if kind == "dropout":
        return layers.Dropout(given["rate"], seed=given["seed"])
    if kind == "batch_norm":
        return layers.BatchNormalization(momentum=given["momentum"], epsilon=given["epsilon"], name=name)
    if kind == "embedding":
        return Table(*np.shape(given["table"]), embeddings_initializer=constant(given["table"]), name=name)
    if kind == "experts":
        return Experts(given["kernels"], name)
    return layers.Dense(
        given["shape"][1], given["activation"], use_bias=given["bias"] is not None, name=name,
        kernel_initializer=constant(given["kernel"]) if given["kernel"] else "glorot_uniform",
        bias_initializer=constant(given["bias"]) if given["bias"] is not None else "zeros",
        kernel_regularizer=keras.regularizers.L2(given["l2"]) if given["l2"] else None, trainable=not given["frozen"])


def model_of(job, record):
    """A compiled model with inputs x and the number of the row; a tied layer is the same layer, applied again."""
    x, row = keras.Input([len(job["rows"]["x"][0])]), keras.Input([1])
    made, y = {}, record([x, row])
    for layer in job["model"]:
        made[layer["name"]] = made[layer["tied"]] if layer.get("tied") else layer_of(**layer)
        y = made[layer["name"]](y)
    model, chosen, clip = keras.Model([x, row], ops.expand_dims(y, -1)), job["optimizer"], job["clip"] or {}
    rate = keras.optimizers.schedules.ExponentialDecay(chosen["learning_rate"], 1, chosen["decay"])
    accumulate = {"gradient_accumulation_steps": job["accumulate"]} if job["accumulate"] > 1 else {}
    by = {"norm": "global_clipnorm", "value": "clipvalue"}
    optimizer = keras.optimizers.SGD(rate, chosen["momentum"], **accumulate,
                                     **({by[clip["by"]]: clip["limit"]} if clip else {}))
    if job["loss_scale"]:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, job["loss_scale"])
    loss = keras.losses.MeanSquaredError("mean_with_sample_weight" if job["rows"]["mask"] else "sum_over_batch_size")
    model.compile(optimizer, loss, metrics=[keras.metrics.MeanAbsoluteError()] if job["metrics"] else [])
    return model


def save(path, model):
    """Writes the weights of a model, and what its optimizer has."""
    state = {}
    model.optimizer.save_own_variables(state)
    with open(path, "wb") as file:
        pickle.dump((model.get_weights(), state), file)


def restore(path, model):
    """Reads them."""
    with open(path, "rb") as file:
        weights, state = pickle.load(file)
    model.set_weights(weights)
    model.optimizer.build(model.trainable_variables)
    model.optimizer.load_own_variables(state)


def weights_of(job, model, read=ops.convert_to_numpy):
    """The weights by name."""
    named = {}
    for layer in job["model"]:
        if layer["kind"] != "dropout" and not layer.get("tied"):
            part = model.get_layer(layer["name"])
            names = ([f"{number}/kernel" for number in range(len(part.weights))] if layer["kind"] == "experts" else
                     ["table"] if layer["kind"] == "embedding" else [one.name for one in part.weights])
            named |= {f"{layer['name']}/{name}": np.array(read(one)).tolist()
                      for name, one in zip(names, part.weights, strict=True)}
    return named


class Watch(keras.callbacks.Callback):
    """Notes losses, and fails and stops as the job says; the process drives all replicas."""

    def __init__(self, job, losses):
        super().__init__()
        self.job, self.losses = job, losses

    def on_train_batch_begin(self, batch, logs=None):
        if not self.job["metrics"]:
            self.model.reset_metrics()  # the loss that is told is the mean of the batches since
        if self.job["fail"] and self.job["fail"]["at_step"] == len(self.losses) + 1:
            if self.job["fail"]["how"] == "death":
                os._exit(9)
            raise RuntimeError(self.job["fail"]["message"])

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        if self.job["stop"] and self.job["stop"]["after_step"] == len(self.losses):
            self.model.stop_training = True


def arrays(rows):
    """[x, numbers of the rows], y, and the mask as weights of samples."""
    x = [np.array(rows["x"], "float32"), np.arange(len(rows["x"]), dtype="float32")[:, None]]
    return x, np.array(rows["y"], "float32")[..., None], rows["mask"] and np.array(rows["mask"], "float32")


def main(record, caveat, replicas, scope=lambda job: nullcontext(), unsupported=lambda job: ""):
    """Does the jobs.

    Args:
        record: of a list for each replica makes what appends to it the numbers of rows that a replica trains on.
        caveat: what the documentation says about a job, if anything.
        replicas: reads the values of a variable on all replicas.
        scope: the context in which models are made.
        unsupported: why a job cannot be done, or "".
    """
    with open(sys.argv[-1], encoding="utf-8") as file:
        todo = [json.loads(line) for line in file]
    for job in todo:
        why = ("a layer becomes trainable by compile, which fit cannot do between two steps of an epoch"
               if job["unfreeze"] else unsupported(job))
        if why:
            print(json.dumps({"id": job["id"], "unsupported": why}), flush=True)
            continue
        rows, losses, place = [[] for _ in range(job["replicas"])], [], job["checkpoint"] or {}
        keras.utils.set_random_seed(job["shuffle"] or 0)
        with scope(job):
            model = model_of(job, Record(record(rows)))
            if "restore" in place:
                restore(place["restore"], model)
        x, y, mask = arrays(job["rows"])
        said = {"id": job["id"], "losses": losses, "metrics": {}}
        if job["epochs"]:
            history = model.fit(x, y, job["batch"], job["epochs"], 0, [Watch(job, losses)], sample_weight=mask,
                                shuffle=job["shuffle"] is not None).history
            said["metrics"] = {name: values[-1] for name, values in history.items()}
        if job["evaluate"]:
            x, y, mask = arrays(job["evaluate"])
            said["eval_loss"] = model.evaluate(x, y, job["batch"], verbose=0)
        if "save" in place:
            save(place["save"], model)
        if job["loss_scale"]:
            said["scale"] = float(ops.convert_to_numpy(model.optimizer.dynamic_scale))
        if known := caveat(job):
            said["declared"] = known
        for rank in range(job["replicas"]):
            here = weights_of(job, model, lambda variable, rank=rank: replicas(variable)[rank])
            print(json.dumps({"id": job["id"], "replica": rank, "steps": len(losses), "weights": here,
                              "rows": rows[rank] or [[]] * len(losses)}))
        print(json.dumps({**said, "weights": weights_of(job, model), "done": True}), flush=True)
