"""MLX, gradients averaged over processes: `mlx.launch -n {replicas} python mlx_average.py`.

A process for each replica, the loss of its own rows, and `average_gradients` before the optimizer, as MLX's page on
data parallelism has it; losses and metrics are sums over the processes.
"""

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map
from mlx_model import Model, averaged, clipped, columns, optimizer_of, restore, save
from trainer_jobs import answer, fail, jobs, seed_of, wants_to_stop

WORLD = mx.distributed.init()
RANK, RANKS = WORLD.rank(), WORLD.size()


def total(*values):
    return mx.distributed.all_sum(mx.array(values, mx.float32)).tolist()


def loss_of(model, batch, count, share):
    """The part of a batch in the loss of a step, and the sum and number of its absolute errors."""
    x, y, mask = batch
    error = model(x) - y
    return (mask * error.square()).sum() / count + share * model.penalty(), (abs(error).sum(), error.size)


def step(job, model, optimizer, group):
    """A step; the loss of all processes, and the sum and number of their absolute errors."""
    derived, gradients, parts = nn.value_and_grad(model, loss_of), None, []
    count = max(sum(mask.sum().item() for _, _, mask in group), 1)
    for batch in group:
        (loss, errors), gradient = derived(model, batch, count, 1 / len(group))
        gradients = tree_map(mx.add, gradients, gradient) if gradients else gradient
        parts.append((loss.item(), errors[0].item(), errors[1]))
    optimizer.update(model, clipped(job["clip"], nn.average_gradients(gradients)))
    mx.eval(model.parameters(), optimizer.state)
    loss, absolute, number = total(*map(sum, zip(*parts, strict=True)))
    return loss / RANKS, absolute, number


def train(job):
    mx.random.seed(seed_of(job))  # all processes draw the same weights
    model, optimizer, rows, checkpoint = Model(job["model"]), optimizer_of(job), job["rows"], job["checkpoint"] or {}
    mx.random.seed(1000 * seed_of(job) + RANK)  # and drop differently
    if "restore" in checkpoint:
        restore(checkpoint["restore"], model, optimizer)
    data, result, dealt, stopping = columns(rows), {"losses": []}, [], False
    for epoch in range(job["epochs"]):
        order, errors = list(range(len(rows["x"]))), []
        if job["shuffle"] is not None:
            order = mx.random.permutation(len(order), key=mx.random.key(1000 * job["shuffle"] + epoch)).tolist()
        remaining = [order[start:start + job["batch"]][RANK::RANKS] for start in range(0, len(order), job["batch"])]
        while remaining and not stopping:
            group, remaining = remaining[:job["accumulate"]], remaining[job["accumulate"]:]
            dealt.append([row for part in group for row in part])
            fail(job, RANK, len(dealt))
            batches = [[column[mx.array(part, mx.int32)] for column in data] for part in group]
            loss, *of_step = step(job, model, optimizer, batches)
            result["losses"].append(loss)
            errors.append(of_step)
            if job["unfreeze"] and job["unfreeze"]["after_step"] == len(dealt):
                model.parts[job["unfreeze"]["layer"]].unfreeze()
                optimizer.init(model.trainable_parameters())
            stopping = total(wants_to_stop(job, RANK, len(dealt)))[0] > 0
        absolute, number = map(sum, zip(*errors, strict=True))
        result["metrics"] = {"mean_absolute_error": absolute / number}
    if job["evaluate"]:
        own = [column[RANK::RANKS] for column in columns(job["evaluate"])]
        model.eval()
        squares, count = total(loss_of(model, own, 1, 0)[0].item(), own[2].sum().item())
        result["eval_loss"] = squares / count + float(model.penalty())
    if "save" in checkpoint and RANK == 0:
        save(checkpoint["save"], model, optimizer)
    answer(job, replica=RANK, rows=dealt, steps=len(dealt), weights=model.weights())
    total(1)  # all have answered
    if RANK == 0:
        caveat = averaged(job)
        result |= {"declared": caveat} if caveat else {}
        answer(job, weights=model.weights(), **result, done=True)


for job in jobs(lambda job: "MLX has no scaler of losses" if job["loss_scale"] else ""):
    train(job)
