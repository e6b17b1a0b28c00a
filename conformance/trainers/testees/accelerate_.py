"""Hugging Face's accelerate: `torchrun --nproc-per-node {replicas} accelerate_.py`."""

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, set_seed
from caveats import VARIABLE, repeated, undivided, wrapped
from torch.utils.data import DataLoader
from torch_model import Model, Rows, clip, optimizer_of, squares, unfreeze
from trainer_jobs import answer, fail, jobs, seed_of, wants_to_stop


def train(job, accelerator, model, parallel, optimizer, schedule, batches, result):
    errors, parts = [], []
    result["rows"].append([])
    for x, y, mask, rows in batches:
        with accelerator.accumulate(parallel):
            fail(job, accelerator.process_index, len(result["rows"]))
            result["rows"][-1] += rows.tolist()
            error = parallel(x) - y
            loss = squares(error, mask) / mask.sum() + model.penalty()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                clip(job, model.parameters(), accelerator.clip_grad_norm_, accelerator.clip_grad_value_)
            optimizer.step()
            optimizer.zero_grad()
        errors.append(accelerator.gather_for_metrics(error.detach().abs()))
        parts.append(accelerator.reduce(loss.detach(), "mean").item())
        if accelerator.sync_gradients:
            schedule.step()
            result["losses"].append(sum(parts) / len(parts))
            unfreeze(job, model, len(result["losses"]))
            if wants_to_stop(job, accelerator.process_index, len(result["losses"])):
                accelerator.set_trigger()
            if accelerator.check_trigger():
                return True
            parts = result["rows"].append([]) or []
    result["rows"].pop()
    result["metrics"] = {"mean_absolute_error": torch.cat(errors).mean().item()}


for job in jobs(lambda job: "half precision needs a GPU" if job["loss_scale"] else undivided(job)):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=job["accumulate"],
                              kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    model, size = Model(job["model"]), job["batch"] // accelerator.num_processes
    optimizer, schedule, _ = optimizer_of(job, model)
    set_seed(seed_of(job), device_specific=True)
    parallel, optimizer, batches = accelerator.prepare(
        model, optimizer, DataLoader(Rows(job["rows"]), size, shuffle=job["shuffle"] is not None))
    accelerator.register_for_checkpointing(schedule)
    result, checkpoint = {"losses": [], "rows": []}, job["checkpoint"] or {}
    if "restore" in checkpoint:
        accelerator.load_state(checkpoint["restore"])
    for _ in range(job["epochs"]):
        if train(job, accelerator, model, parallel, optimizer, schedule, batches, result):
            break
    if job["evaluate"]:
        model.eval()
        with torch.no_grad():
            batches = accelerator.prepare(DataLoader(Rows(job["evaluate"]), size))
            squared, masks = zip(*(accelerator.gather_for_metrics((mask * (parallel(x) - y) ** 2, mask))
                               for x, y, mask, _ in batches), strict=True)
            result["eval_loss"] = float(torch.cat(squared).sum() / torch.cat(masks).sum() + model.penalty())
    if "save" in checkpoint:
        accelerator.save_state(checkpoint["save"])
    if declared := repeated(job) or wrapped(job) or (VARIABLE if job["rows"]["mask"] and job["epochs"] else None):
        result["declared"] = declared
    answer(job, replica=accelerator.process_index, steps=len(result["rows"]), weights=model.weights(), **result)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        answer(job, weights=model.weights(), **result, done=True)
