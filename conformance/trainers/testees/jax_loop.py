"""A loop around what derives the loss of rows that are on several devices of JAX; the process drives all of them."""

import pickle

from jax_model import batches, initial, optimizer_of, penalty  # isort: skip
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from trainer_jobs import answer, fail, frozen, jobs, wants_to_stop


def numbers_of(batch):
    """The numbers of the rows on each device."""
    shards = zip(*(sorted(array.addressable_shards, key=lambda shard: shard.device.id) for array in batch[3:]),
                 strict=True)
    return [np.array(number.data)[np.array(real.data)[:, 0] > 0, 0].astype(int).tolist() for real, number in shards]


def main(derive):
    """Does the jobs.

    Args:
        derive: makes, of a job and its devices, a function of weights, statistics, a batch and a key to ((the sum of
            the squared errors, (how many targets count, the sum of the absolute errors, how many there are, the
            statistics after it)), the gradient of the first), all of them over the rows of all devices.
    """
    for job in jobs():
        mesh = jax.make_mesh((job["replicas"],), ("batch",), devices=jax.devices()[:job["replicas"]],
                             axis_types=(jax.sharding.AxisType.Auto,))
        replicated, by_rows = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("batch",)))
        derived, optimizer, checkpoint = derive(job, mesh), optimizer_of(job), job["checkpoint"] or {}
        (weights, statistics), scale = initial(job), job["loss_scale"]
        moments = optimizer.init(weights)
        if "restore" in checkpoint:
            with open(checkpoint["restore"], "rb") as file:
                weights, statistics, moments = pickle.load(file)
        weights, statistics, moments = jax.device_put((weights, statistics, moments), replicated)
        draw = None if job["shuffle"] is None else np.random.default_rng(job["shuffle"])
        key, losses, dealt, metrics, stopping = jax.random.key(0), [], [[] for _ in range(job["replicas"])], {}, False
        for _ in range(job["epochs"]):
            remaining, error_sum, error_count = list(batches(job, job["rows"], draw, by_rows)), 0.0, 0.0
            while remaining and not stopping:
                group, remaining = remaining[:job["accumulate"]], remaining[job["accumulate"]:]
                fail(job, None, len(losses) + 1)
                for replica, parts in enumerate(zip(*map(numbers_of, group), strict=True)):
                    dealt[replica].append([number for part in parts for number in part])
                (loss, gradient), results = jax.value_and_grad(penalty, 1)(job, weights), []
                for batch in group:
                    key, step_key = jax.random.split(key)
                    results.append(derived(weights, statistics, batch, step_key))
                    statistics = results[-1][0][1][3]
                count = sum(aux[0] for (_, aux), _ in results)
                loss = sum((squares / count for (squares, _), _ in results), loss)
                for _, part in results:
                    gradient = {name: array + part[name] / count for name, array in gradient.items()}
                error_sum, error_count = (error_sum + sum(aux[1] for (_, aux), _ in results),
                                          error_count + sum(aux[2] for (_, aux), _ in results))
                losses.append(float(loss))
                fixed = frozen(job, len(losses))
                gradient = {name: array * (name.partition("/")[0] not in fixed) for name, array in gradient.items()}
                if scale and not all(bool(jnp.isfinite(array * scale).all()) for array in gradient.values()):
                    scale /= 2
                else:
                    moved, moments = optimizer.update(gradient, moments, weights)
                    weights = optax.apply_updates(weights, moved)
                stopping = wants_to_stop(job, None, len(losses))
            metrics = {"mean_absolute_error": float(error_sum / error_count)}
        result = {"losses": losses, "metrics": metrics, "scale": scale or 1.0,
                "weights": {name: np.array(array).tolist() for name, array in (weights | statistics).items()}}
        if job["evaluate"]:
            parts = [derived(weights, statistics, batch, key)[0]
                     for batch in batches(job, job["evaluate"], None, by_rows)]
            result["eval_loss"] = float(sum(part for part, _ in parts) / sum(aux[0] for _, aux in parts)
                                      + penalty(job, weights))
        if "save" in checkpoint:
            with open(checkpoint["save"], "wb") as file:
                pickle.dump(jax.device_get((weights, statistics, moments)), file)
        for replica, rows in enumerate(dealt):
            own = {name: np.array(array.addressable_shards[replica].data).tolist() for name, array in weights.items()}
            answer(job, replica=replica, rows=rows, steps=len(rows), weights=own)
        answer(job, **result, done=True)
