"""The model, the rows and the optimizer of a job for the testees whose library is JAX.

A batch that is not shared out evenly is filled up with rows that do not count.
"""

import os

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

import jax
import jax.numpy as jnp
import numpy as np
import optax


def initial(job):
    """The weights of a job by name, and the statistics of its batch normalizations."""
    weights, statistics = {}, {}
    for layer in job["model"]:
        name, kind = layer["name"], layer["kind"]
        if kind == "dense" and not layer["tied"]:
            drawn = np.random.default_rng().standard_normal(layer["shape"])
            weights[f"{name}/kernel"] = drawn if layer["kernel"] is None else layer["kernel"]
        if layer.get("bias") is not None:
            weights[f"{name}/bias"] = layer["bias"]
        if kind == "batch_norm":
            weights |= {f"{name}/gamma": np.ones(layer["features"]), f"{name}/beta": np.zeros(layer["features"])}
            statistics |= {f"{name}/moving_mean": np.zeros(layer["features"]),
                           f"{name}/moving_variance": np.ones(layer["features"])}
        if kind == "embedding":
            weights[f"{name}/table"] = layer["table"]
        if kind == "experts":
            weights |= {f"{name}/{number}/kernel": kernel for number, kernel in enumerate(layer["kernels"])}
    return tuple({name: np.array(value, np.float32) for name, value in part.items()} for part in (weights, statistics))


def forward(job, weights, statistics, x, key, mean):
    """The outputs in training, and the statistics after it; `mean` is that of all rows."""
    after = {}
    for layer in job["model"]:
        name, kind = layer["name"], layer["kind"]
        if kind == "dense":
            x = x @ weights[f"{layer['tied'] or name}/kernel"] + weights.get(f"{name}/bias", 0.0)
            x = jax.nn.relu(x) if layer["activation"] else x
        elif kind == "dropout":
            x = jnp.where(jax.random.bernoulli(key, 1 - layer["rate"], x.shape), x / (1 - layer["rate"]), 0.0)
        elif kind == "embedding":
            x = weights[f"{name}/table"][x[:, 0].astype(int)]
        elif kind == "experts":
            x = sum(jnp.where(x[:, :1] == number, x[:, 1:] @ weights[f"{name}/{number}/kernel"], 0.0)
                    for number in range(len(layer["kernels"])))
        else:
            of_batch = {f"{name}/moving_mean": mean(x)}
            of_batch[f"{name}/moving_variance"] = mean((x - of_batch[f"{name}/moving_mean"]) ** 2)
            x = (x - of_batch[f"{name}/moving_mean"]) / jnp.sqrt(of_batch[f"{name}/moving_variance"] + layer["epsilon"])
            x = x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]
            after |= {key: statistics[key] + (1 - layer["momentum"]) * (value - statistics[key])
                      for key, value in of_batch.items()}
    return x, after


def penalty(job, weights):
    """The regularizers."""
    return sum((layer["l2"] * (weights[f"{layer['tied'] or layer['name']}/kernel"] ** 2).sum()
                for layer in job["model"] if layer.get("l2")), jnp.float32(0))


def batches(job, rows, draw, sharding):
    """The batches of an epoch: x, y, which targets count, which rows there are, and their numbers; on the devices."""
    order, size = draw.permutation(len(rows["x"])) if draw else np.arange(len(rows["x"])), job["batch"]
    y = np.array(rows["y"], np.float32)
    mask = np.ones_like(y) if rows["mask"] is None else np.array(rows["mask"], np.float32)
    columns = [np.array(rows["x"], np.float32), y, mask, np.ones_like(y), np.arange(len(y), dtype=np.float32)[:, None]]
    for start in range(0, len(order), size):
        part = [array[order[start:start + size]] for array in columns]
        missing = -len(part[0]) % job["replicas"]
        yield jax.device_put([np.pad(array, [(0, missing), (0, 0)]) for array in part], sharding)


def optimizer_of(job):
    """Clipping, descent, and the schedule of its learning rate."""
    chosen, clip = job["optimizer"], job["clip"]
    by = {"norm": optax.clip_by_global_norm, "value": optax.clip}
    rate = optax.exponential_decay(chosen["learning_rate"], 1, chosen["decay"])
    descent = optax.sgd(rate, chosen["momentum"] or None)
    return optax.chain(by[clip["by"]](clip["limit"]), descent) if clip else descent
