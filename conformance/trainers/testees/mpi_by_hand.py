"""mpi4py and NumPy, by hand: `mpiexec -n {replicas} python -m mpi4py mpi_by_hand.py`.

A linear model of one dense layer, trained by sums over the ranks of gradients and of the numbers of targets; what needs
another layer is not done.
"""

import pickle

import numpy as np
from mpi4py import MPI
from mpi_model import beginning, clipped, sums
from trainer_jobs import answer, fail, jobs, wants_to_stop

WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.Get_rank(), WORLD.Get_size()


def total(value):
    return WORLD.allreduce(value, MPI.SUM)


def step(job, rows, group, state, scale):
    """A step of all ranks; the loss, and the sum and number of the absolute errors."""
    kernel, bias = state["weights"]
    batch_sums = [sums(rows, batch[RANK::RANKS], kernel, bias) for batch in group]
    parts, by_kernel, by_bias = (total(sum(sums_of_batch[i] for sums_of_batch in batch_sums)) for i in range(3))
    l2, largest = job["model"][0]["l2"], np.finfo(np.float32).max
    gradient = [by_kernel / parts[1] + 2 * l2 * kernel, by_bias / parts[1] * (job["model"][0]["bias"] is not None)]
    if scale and not all((abs(part) * scale < largest).all() for part in gradient):
        state["scale"] /= 2
    else:
        state["velocity"] = [job["optimizer"]["momentum"] * velocity - state["rate"] * part for velocity, part in
                             zip(state["velocity"], clipped(job["clip"], gradient), strict=True)]
        state["weights"] = [weight + moved for weight, moved in zip(state["weights"], state["velocity"], strict=True)]
        state["rate"] *= job["optimizer"]["decay"]
    return parts[0] / parts[1] + l2 * (kernel ** 2).sum(), parts[2], parts[3]


def train(job):
    [layer], checkpoint, result = job["model"], job["checkpoint"] or {}, {"losses": [], "metrics": {}}
    drawn = np.random.default_rng().standard_normal(layer["shape"]) if RANK == 0 else None
    kernel = WORLD.bcast(drawn) if layer["kernel"] is None else layer["kernel"]
    state = beginning(job, kernel)
    if "restore" in checkpoint:
        with open(checkpoint["restore"], "rb") as file:
            state = pickle.load(file)
    draw = None if job["shuffle"] is None else np.random.default_rng(job["shuffle"])
    rows_of_steps, stopping, count = [], False, len(job["rows"]["x"])
    for _ in range(job["epochs"]):
        order, error_sum, error_count = draw.permutation(count) if draw else np.arange(count), 0.0, 0.0
        remaining = [order[start:start + job["batch"]] for start in range(0, count, job["batch"])]
        while remaining and not stopping:
            group, remaining = remaining[:job["accumulate"]], remaining[job["accumulate"]:]
            rows_of_steps.append([int(row) for batch in group for row in batch[RANK::RANKS]])
            fail(job, RANK, len(rows_of_steps))
            loss, absolute, number = step(job, job["rows"], group, state, state["scale"])
            result["losses"].append(float(loss))
            error_sum, error_count = error_sum + absolute, error_count + number
            stopping = WORLD.allreduce(wants_to_stop(job, RANK, len(rows_of_steps)), MPI.LOR)
        result["metrics"] = {"mean_absolute_error": float(error_sum / error_count)}
    if job["evaluate"]:
        parts = total(sums(job["evaluate"], slice(RANK, None, RANKS), *state["weights"])[0])
        result["eval_loss"] = float(parts[0] / parts[1])
    if "save" in checkpoint and RANK == 0:
        with open(checkpoint["save"], "wb") as file:
            pickle.dump(state, file)
    weights = {"dense/kernel": state["weights"][0].tolist(), "dense/bias": state["weights"][1].tolist()}
    answer(job, replica=RANK, rows=rows_of_steps, steps=len(rows_of_steps), weights=weights)
    WORLD.Barrier()
    if RANK == 0:
        answer(job, **result, weights=weights, scale=state["scale"] or 1.0, done=True)


def unsupported(job):
    return "" if len(job["model"]) == 1 and job["model"][0]["kind"] == "dense" else "it has one dense layer"


for job in jobs(unsupported):
    train(job)
