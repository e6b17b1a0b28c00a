"""refdist's MultiWorkerMirroredStrategy with PyTorch: `python -m refdist launch -n {replicas} refdist_torch.py`.

Every worker has a model and an optimizer of PyTorch's; refdist deals the rows, and adds up the gradients.
"""

from itertools import islice

import torch
from torch_model import Model, Rows, optimizer_of, squares, step, unfreeze
from trainer_jobs import answer, fail, jobs, seed_of, wants_to_stop

import refdist

strategy = refdist.MultiWorkerMirroredStrategy()
RANK = strategy.cluster_resolver.task_id


def batches(job, rows):
    """The batches of rows, distributed: x, y, the mask of y, and numbers of rows."""
    rows = Rows(rows)
    data = refdist.data.Dataset.from_tensor_slices((rows.x, rows.y, rows.mask, torch.arange(len(rows))))
    if job["shuffle"] is not None:
        data = data.shuffle(len(rows), seed=job["shuffle"])
    return strategy.experimental_distribute_dataset(data.batch(job["batch"]))


def total(values):
    return refdist.get_replica_context().all_reduce("SUM", values)


def training_step(job, model, optimizer, group, number):
    """A step of a worker: the loss, the sum and number of the absolute errors, whether a worker stops, its rows."""
    fail(job, RANK, number)
    x, y, mask, rows = (torch.cat(parts) for parts in zip(*group, strict=True))
    error = model(x) - y if len(x) else y  # a worker without rows takes part in what is added up
    loss = squares(error, mask) / total(mask.sum()) + model.penalty() / strategy.num_replicas_in_sync
    scaled = optimizer[-1].scale(loss)
    if scaled.requires_grad:
        scaled.backward()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    own = [torch.zeros_like(part) if part.grad is None else part.grad for part in parameters]
    for parameter, gradient in zip(parameters, total(own), strict=True):
        parameter.grad = gradient
    for statistic in model.buffers():
        if statistic.is_floating_point():
            statistic.copy_(total(statistic) / strategy.num_replicas_in_sync)
    step(job, model, *optimizer)
    unfreeze(job, model, number)
    stop = wants_to_stop(job, RANK, number)
    sums = [loss.detach(), error.detach().abs().sum(), torch.tensor(float(error.numel())), torch.tensor(float(stop))]
    return (*map(float, total(sums)), rows.tolist())


def validation(model, batch):
    """The sum of the squared errors of a batch, and how many there are."""
    x, y, mask, _ = batch
    return [part.item() for part in total([squares(model(x) - y, mask).detach(), mask.sum()])]


for job in jobs():
    torch.manual_seed(0)  # the same weights on every worker
    model, checkpoint, steps, result = Model(job["model"]), job["checkpoint"] or {}, [], {}
    optimizer, data = optimizer_of(job, model), batches(job, job["rows"])  # with its schedule, and a scaler
    torch.manual_seed(1000 * seed_of(job) + RANK)
    if "restore" in checkpoint:
        for part, state in zip((model, *optimizer), torch.load(checkpoint["restore"]), strict=True):
            part.load_state_dict(state)
    for _ in range(job["epochs"]):
        remaining, first = iter(data), len(steps)
        while (group := list(islice(remaining, job["accumulate"]))) and not (steps and steps[-1][3]):
            steps.append(strategy.run(training_step, args=(job, model, optimizer, group, len(steps) + 1)))
        error_sum, count = (sum(step[part] for step in steps[first:]) for part in (1, 2))
        result["metrics"] = {"mean_absolute_error": error_sum / count}
    if job["evaluate"]:
        parts = [strategy.run(validation, args=(model, batch)) for batch in batches(job, job["evaluate"])]
        error_sum, count = map(sum, zip(*parts, strict=True))
        result["eval_loss"] = error_sum / count + float(model.penalty())
    if "save" in checkpoint and RANK == 0:
        torch.save([part.state_dict() for part in (model, *optimizer)], checkpoint["save"])
    answer(job, replica=RANK, steps=len(steps), rows=[step[-1] for step in steps], weights=model.weights())
    if RANK == 0:
        answer(job, **result, losses=[step[0] for step in steps], weights=model.weights(),
               scale=optimizer[-1].get_scale(), done=True)
