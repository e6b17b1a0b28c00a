"""The rows and the model of a job in JAX, and a loop around what derives the loss of rows that are on several devices.

The process drives all devices.  A batch that is not shared out evenly is filled up with rows that do not count.
"""

import json
import os
import pickle
import sys

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec


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
            now = {f"{name}/moving_mean": mean(x)}
            now[f"{name}/moving_variance"] = mean((x - now[f"{name}/moving_mean"]) ** 2)
            x = (x - now[f"{name}/moving_mean"]) / jnp.sqrt(now[f"{name}/moving_variance"] + layer["epsilon"])
            x = x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]
            after |= {key: statistics[key] + (1 - layer["momentum"]) * (value - statistics[key])
                      for key, value in now.items()}
    return x, after


def penalty(job, weights):
    """The regularizers."""
    return sum((layer["l2"] * (weights[f"{layer['tied'] or layer['name']}/kernel"] ** 2).sum()
                for layer in job["model"] if layer.get("l2")), jnp.float32(0))


def batches(job, rows, draw, place):
    """The batches of an epoch: x, y, which targets count, which rows there are, and their numbers; on the devices."""
    order, size = draw.permutation(len(rows["x"])) if draw else np.arange(len(rows["x"])), job["batch"]
    y = np.array(rows["y"], np.float32)
    mask = np.ones_like(y) if rows["mask"] is None else np.array(rows["mask"], np.float32)
    whole = [np.array(rows["x"], np.float32), y, mask, np.ones_like(y), np.arange(len(y), dtype=np.float32)[:, None]]
    for start in range(0, len(order), size):
        part = [array[order[start:start + size]] for array in whole]
        missing = -len(part[0]) % job["replicas"]
        yield jax.device_put([np.pad(array, [(0, missing), (0, 0)]) for array in part], place)


def numbers_of(batch):
    """The numbers of the rows on each device."""
    shards = zip(*(sorted(array.addressable_shards, key=lambda shard: shard.device.id) for array in batch[3:]),
                 strict=True)
    return [np.array(number.data)[np.array(real.data)[:, 0] > 0, 0].astype(int).tolist() for real, number in shards]


def optimizer_of(job):
    """Clipping, descent, and the schedule of its learning rate."""
    chosen, clip = job["optimizer"], job["clip"]
    by = {"norm": optax.clip_by_global_norm, "value": optax.clip}
    rate = optax.exponential_decay(chosen["learning_rate"], 1, chosen["decay"])
    descent = optax.sgd(rate, chosen["momentum"] or None)
    return optax.chain(by[clip["by"]](clip["limit"]), descent) if clip else descent


def frozen_at(job, step):
    """The layers that do not move in a step."""
    still = {layer["name"] for layer in job["model"] if layer.get("frozen")}
    return still - {job["unfreeze"]["layer"]} if job["unfreeze"] and step > job["unfreeze"]["after_step"] else still


def main(derive):
    """Does the jobs.

    Args:
        derive: makes, of a job and its devices, a function of weights, statistics, a batch and a key to ((the sum of
            the squared errors, (how many targets count, the sum of the absolute errors, how many there are, the
            statistics after it)), the gradient of the first), all of them over the rows of all devices.
    """
    with open(sys.argv[-1], encoding="utf-8") as file:
        todo = [json.loads(line) for line in file]
    for job in todo:
        mesh = jax.make_mesh((job["replicas"],), ("batch",), devices=jax.devices()[:job["replicas"]],
                             axis_types=(jax.sharding.AxisType.Auto,))
        whole, place = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("batch",)))
        derived, optimizer, checkpoint = derive(job, mesh), optimizer_of(job), job["checkpoint"] or {}
        (weights, statistics), scale = initial(job), job["loss_scale"]
        moments = optimizer.init(weights)
        if "restore" in checkpoint:
            with open(checkpoint["restore"], "rb") as file:
                weights, statistics, moments = pickle.load(file)
        weights, statistics, moments = jax.device_put((weights, statistics, moments), whole)
        draw = None if job["shuffle"] is None else np.random.default_rng(job["shuffle"])
        key, losses, each, metrics, stopping = jax.random.key(0), [], [[] for _ in range(job["replicas"])], {}, False
        for _ in range(job["epochs"]):
            left, far, many = list(batches(job, job["rows"], draw, place)), 0.0, 0.0
            while left and not stopping:
                group, left = left[:job["accumulate"]], left[job["accumulate"]:]
                if job["fail"] and job["fail"]["at_step"] == len(losses) + 1:
                    if job["fail"]["how"] == "death":
                        os._exit(9)
                    raise RuntimeError(job["fail"]["message"])
                for replica, parts in enumerate(zip(*map(numbers_of, group), strict=True)):
                    each[replica].append([number for part in parts for number in part])
                loss, gradient = jax.value_and_grad(penalty, 1)(job, weights)
                results = []
                for batch in group:
                    key, now = jax.random.split(key)
                    results.append(derived(weights, statistics, batch, now))
                    statistics = results[-1][0][1][3]
                count = sum(aux[0] for (_, aux), _ in results)
                loss = sum((squares / count for (squares, _), _ in results), loss)
                for _, part in results:
                    gradient = {name: one + part[name] / count for name, one in gradient.items()}
                far, many = far + sum(aux[1] for (_, aux), _ in results), many + sum(aux[2] for (_, aux), _ in results)
                losses.append(float(loss))
                still = frozen_at(job, len(losses))
                gradient = {name: one * (name.partition("/")[0] not in still) for name, one in gradient.items()}
                if scale and not all(bool(jnp.isfinite(one * scale).all()) for one in gradient.values()):
                    scale /= 2
                else:
                    moved, moments = optimizer.update(gradient, moments, weights)
                    weights = optax.apply_updates(weights, moved)
                stopping = bool(job["stop"]) and job["stop"]["after_step"] == len(losses)
            metrics = {"mean_absolute_error": float(far / many)}
        said = {"id": job["id"], "losses": losses, "metrics": metrics, "scale": scale or 1.0,
                "weights": {name: np.array(one).tolist() for name, one in (weights | statistics).items()}}
        if job["evaluate"]:
            parts = [derived(weights, statistics, batch, key)[0]
                     for batch in batches(job, job["evaluate"], None, place)]
            said["eval_loss"] = float(sum(part for part, _ in parts) / sum(aux[0] for _, aux in parts)
                                      + penalty(job, weights))
        if "save" in checkpoint:
            with open(checkpoint["save"], "wb") as file:
                pickle.dump(jax.device_get((weights, statistics, moments)), file)
        for replica, rows in enumerate(each):
            here = {name: np.array(one.addressable_shards[replica].data).tolist() for name, one in weights.items()}
            print(json.dumps({"id": job["id"], "replica": replica, "rows": rows, "steps": len(rows), "weights": here}))
        print(json.dumps({**said, "done": True}), flush=True)
