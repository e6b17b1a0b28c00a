"""A job as a model of Keras, for the testees whose library is Keras."""

import pickle

import keras
import numpy as np
from keras import layers, ops


class Table(layers.Embedding):
    """An embedding of the first column."""

    def call(self, x):
        return super().call(ops.cast(x[:, 0], "int32"))


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


def layer_of(kind, name, **fields):
    """A layer of a job."""
    if kind == "dropout":
        return layers.Dropout(fields["rate"], seed=fields["seed"])
    if kind == "batch_norm":
        return layers.BatchNormalization(momentum=fields["momentum"], epsilon=fields["epsilon"], name=name)
    if kind == "embedding":
        return Table(*np.shape(fields["table"]), embeddings_initializer=constant(fields["table"]), name=name)
    if kind == "experts":
        return Experts(fields["kernels"], name)
    return layers.Dense(
        fields["shape"][1], fields["activation"], use_bias=fields["bias"] is not None, name=name,
        kernel_initializer=constant(fields["kernel"]) if fields["kernel"] else "glorot_uniform",
        bias_initializer=constant(fields["bias"]) if fields["bias"] is not None else "zeros",
        kernel_regularizer=keras.regularizers.L2(fields["l2"]) if fields["l2"] else None,
        trainable=not fields["frozen"])


def model_of(job, record):
    """A compiled model with inputs x and the number of the row; a tied layer is the same layer, applied again."""
    x, row = keras.Input([len(job["rows"]["x"][0])]), keras.Input([1])
    layers, y = {}, record([x, row])
    for layer in job["model"]:
        layers[layer["name"]] = layers[layer["tied"]] if layer.get("tied") else layer_of(**layer)
        y = layers[layer["name"]](y)
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
                     ["table"] if layer["kind"] == "embedding" else [weight.name for weight in part.weights])
            named |= {f"{layer['name']}/{name}": np.array(read(weight)).tolist()
                      for name, weight in zip(names, part.weights, strict=True)}
    return named


def arrays(rows):
    """[x, numbers of the rows], y, and the mask as weights of samples."""
    x = [np.array(rows["x"], "float32"), np.arange(len(rows["x"]), dtype="float32")[:, None]]
    return x, np.array(rows["y"], "float32")[..., None], rows["mask"] and np.array(rows["mask"], "float32")
