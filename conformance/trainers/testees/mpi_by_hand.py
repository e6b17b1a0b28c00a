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
    found = [sums(rows, batch[RANK::RANKS], kernel, bias) for batch in group]
    parts, by_kernel, by_bias = (total(sum(one[i] for one in found)) for i in range(3))
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
    [layer], place, said = job["model"], job["checkpoint"] or {}, {"losses": [], "metrics": {}}
    drawn = np.random.default_rng().standard_normal(layer["shape"]) if RANK == 0 else None
    kernel = WORLD.bcast(drawn) if layer["kernel"] is None else layer["kernel"]
    state = beginning(job, kernel)
    if "restore" in place:
        with open(place["restore"], "rb") as file:
            state = pickle.load(file)
    draw = None if job["shuffle"] is None else np.random.default_rng(job["shuffle"])
    each, stopping, count = [], False, len(job["rows"]["x"])
    for _ in range(job["epochs"]):
        order, far, many = draw.permutation(count) if draw else np.arange(count), 0.0, 0.0
        left = [order[start:start + job["batch"]] for start in range(0, count, job["batch"])]
        while left and not stopping:
            group, left = left[:job["accumulate"]], left[job["accumulate"]:]
            each.append([int(row) for batch in group for row in batch[RANK::RANKS]])
            fail(job, RANK, len(each))
            loss, absolute, number = step(job, job["rows"], group, state, state["scale"])
            said["losses"].append(float(loss))
            far, many = far + absolute, many + number
            stopping = WORLD.allreduce(wants_to_stop(job, RANK, len(each)), MPI.LOR)
        said["metrics"] = {"mean_absolute_error": float(far / many)}
    if job["evaluate"]:
        parts = total(sums(job["evaluate"], slice(RANK, None, RANKS), *state["weights"])[0])
        said["eval_loss"] = float(parts[0] / parts[1])
    if "save" in place and RANK == 0:
        with open(place["save"], "wb") as file:
            pickle.dump(state, file)
    weights = {"dense/kernel": state["weights"][0].tolist(), "dense/bias": state["weights"][1].tolist()}
    answer(job, replica=RANK, rows=each, steps=len(each), weights=weights)
    WORLD.Barrier()
    if RANK == 0:
        answer(job, **said, weights=weights, scale=state["scale"] or 1.0, done=True)


def unsupported(job):
    return "" if len(job["model"]) == 1 and job["model"][0]["kind"] == "dense" else "it has one dense layer"


for one in jobs(unsupported):
    train(one)
