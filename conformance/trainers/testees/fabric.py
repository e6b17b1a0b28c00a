"""Lightning's Fabric around a loop of one's own: `torchrun --nproc-per-node {replicas} fabric.py`."""

from itertools import islice

import torch
from caveats import averaged, padded, undivided, wrapped
from lightning.fabric import Fabric
from torch.utils.data import DataLoader
from torch_model import Model, Rows, clip, optimizer_of, squares, unfreeze
from trainer_jobs import answer, fail, jobs, seed_of, wants_to_stop


def train(job, fabric, model, parallel, optimizer, schedule, batches, result):
    errors, remaining = [], iter(batches)
    while group := list(islice(remaining, job["accumulate"])):
        result["rows"].append([])
        fail(job, fabric.global_rank, step_number := len(result["rows"]))
        for number, (x, y, mask, rows) in enumerate(group, 1):
            with fabric.no_backward_sync(parallel, enabled=number < len(group)):
                error = parallel(x) - y
                loss = squares(error, mask) / mask.sum() + model.penalty()
                fabric.backward(loss * mask.sum() / sum(mask.sum() for _, _, mask, _ in group))
            errors.append(error.detach().abs())
            result["rows"][-1] += rows.tolist()
        clip(job, None, lambda _, limit: fabric.clip_gradients(parallel, optimizer, max_norm=limit),
             lambda _, limit: fabric.clip_gradients(parallel, optimizer, clip_val=limit))
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        unfreeze(job, model, step_number)
        result["losses"].append(fabric.all_reduce(loss.detach(), reduce_op="mean").item())
        if fabric.strategy.reduce_boolean_decision(wants_to_stop(job, fabric.global_rank, step_number), all=False):
            return True
    errors = sum(map(sum, errors)).sum(), torch.tensor(float(sum(map(len, errors))))
    errors, count = fabric.all_reduce(errors, reduce_op="sum")
    result["metrics"] = {"mean_absolute_error": (errors / count).item()}


NO_SCALE = "its loss scaling (precision=\"16-mixed\") needs a GPU"

for job in jobs(lambda job: NO_SCALE if job["loss_scale"] else undivided(job)):
    fabric = Fabric(accelerator="cpu", devices=job["replicas"], strategy="ddp_find_unused_parameters_true")
    fabric.launch()
    fabric.seed_everything(seed_of(job), verbose=False)
    torch.manual_seed(1000 * seed_of(job) + fabric.global_rank)  # each process has a stream of its own
    result, checkpoint = {"losses": [], "rows": []}, job["checkpoint"]
    model, size = Model(job["model"]), job["batch"] // job["replicas"]
    optimizer, schedule, _ = optimizer_of(job, model)
    parallel, optimizer = fabric.setup(model, optimizer)
    batches = fabric.setup_dataloaders(DataLoader(Rows(job["rows"]), size, shuffle=job["shuffle"] is not None))
    state = {"model": parallel, "optimizer": optimizer, "schedule": schedule}
    if checkpoint and "restore" in checkpoint:
        fabric.load(checkpoint["restore"], state)
    for _ in range(job["epochs"]):
        if train(job, fabric, model, parallel, optimizer, schedule, batches, result):
            break
    if job["evaluate"]:
        model.eval()
        sums = [(squares(parallel(x) - y, mask), mask.sum())
                for x, y, mask, _ in fabric.setup_dataloaders(DataLoader(Rows(job["evaluate"]), size))]
        errors, count = fabric.all_reduce(tuple(map(sum, zip(*sums, strict=True))), reduce_op="sum")
        result["eval_loss"] = (errors / count + model.penalty()).item()
    if checkpoint and "save" in checkpoint:
        fabric.save(checkpoint["save"], state)
    if declared := padded(job) or wrapped(job) or averaged(job):
        result["declared"] = declared
    answer(job, replica=fabric.global_rank, rows=result.pop("rows"), steps=len(result["losses"]),
           weights=model.weights())
    fabric.barrier()
    if fabric.is_global_zero:
        answer(job, weights=model.weights(), **result, done=True)
