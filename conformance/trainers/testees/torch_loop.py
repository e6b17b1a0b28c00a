"""A loop of PyTorch's tutorials around a model that is wrapped to train on several ranks.

What a rank's loss is divided by is the loop's business, not the wrapper's: here it is the number of targets of all
ranks, so that a batch that is not shared out evenly has the mean of its rows.
"""

from contextlib import nullcontext
from itertools import islice

import torch
import torch.distributed as dist
from caveats import padded, undivided
from torch.utils.data import DataLoader, DistributedSampler
from torch_model import Model, Rows, optimizer_of, squares, step, unfreeze
from trainer_jobs import answer, fail, jobs, seed_of, wants_to_stop


def total(*numbers):
    """The sums of numbers over all ranks."""
    summed = torch.tensor([float(number) for number in numbers])
    dist.all_reduce(summed)
    return summed.tolist()


def loader(job, rows):
    """Batches of this rank's rows."""
    data = Rows(rows)
    sampler = DistributedSampler(data, shuffle=job["shuffle"] is not None, seed=job["shuffle"] or 0)
    return DataLoader(data, job["batch"] // dist.get_world_size(), sampler=sampler)


def epoch(job, model, parallel, quiet, optimizer, batches, result):
    """Trains on all batches; returns whether a rank wants to stop."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    absolute, stopping, remaining = torch.zeros(2), False, iter(batches)
    while not stopping and (group := list(islice(remaining, job["accumulate"]))):
        (count,), loss, result["rows"] = total(sum(mask.sum() for _, _, mask, _ in group)), 0.0, [*result["rows"], []]
        fail(job, rank, step_number := len(result["rows"]))
        for number, (x, y, mask, rows) in enumerate(group, 1):
            with nullcontext() if number == len(group) else quiet(parallel):
                error = parallel(x) - y  # the gradient will be the mean over the ranks: hence their number in the loss
                part = ranks * squares(error, mask) / count + model.penalty() / len(group)
                optimizer[-1].scale(part).backward()
            loss, result["rows"][-1] = loss + part.item() / ranks, result["rows"][-1] + rows.tolist()
            absolute += torch.tensor([error.detach().abs().sum(), error.numel()])
        step(job, model, *optimizer)
        unfreeze(job, model, step_number)
        loss, stopping = total(loss, wants_to_stop(job, rank, step_number))
        result["losses"].append(loss)
    error_sum, error_count = total(*absolute)
    result["metrics"] = {"mean_absolute_error": error_sum / error_count}
    return stopping


def main(wrap, quiet, save, restore, caveat):
    """Does the jobs.

    Args:
        wrap: makes of a model what trains on several ranks.
        quiet: a context in which gradients are not combined.
        save: writes a model, its optimizer, its schedule and its scaler; all ranks call it.
        restore: reads them.
        caveat: what the wrapper's documentation says about a job, if anything.
    """
    dist.init_process_group("gloo")
    for job in jobs(undivided):
        model, result, checkpoint = Model(job["model"]), {"losses": [], "rows": []}, job["checkpoint"] or {}
        parallel = wrap(model)
        torch.manual_seed(1000 * seed_of(job) + dist.get_rank())  # each rank has a stream of its own
        optimizer, batches = optimizer_of(job, model), loader(job, job["rows"])  # with its schedule, and a scaler
        if "restore" in checkpoint:
            restore(checkpoint["restore"], model, *optimizer)
        for number in range(job["epochs"]):
            batches.sampler.set_epoch(number)
            if epoch(job, model, parallel, quiet, optimizer, batches, result):
                break
        if job["evaluate"]:
            model.eval()
            with torch.no_grad():
                sums = [(squares(parallel(x) - y, mask), mask.sum()) for x, y, mask, _ in loader(job, job["evaluate"])]
            error_sum, error_count = total(*map(sum, zip(*sums, strict=True)))
            result["eval_loss"] = error_sum / error_count + float(model.penalty())
        if "save" in checkpoint:
            save(checkpoint["save"], model, *optimizer)
        result |= {"weights": model.weights(), "scale": optimizer[-1].get_scale()}
        answer(job, replica=dist.get_rank(), steps=len(result["rows"]), **result)
        if declared := padded(job) or caveat(job):
            result["declared"] = declared
        dist.barrier()
        if dist.get_rank() == 0:
            del result["rows"]
            answer(job, **result, done=True)
    dist.destroy_process_group()
