"""PyTorch Ignite's Engine and its distributed helpers: `torchrun --nproc-per-node {replicas} ignite_engine.py`."""

import logging

import ignite.distributed as idist
import torch
from caveats import averaged, padded, undivided, wrapped
from ignite.engine import Engine, Events
from ignite.metrics import Loss, MeanAbsoluteError
from torch_model import Model, Rows, clip, optimizer_of, squares, unfreeze
from trainer_jobs import answer, fail, jobs, seed_of, wants_to_stop

logging.disable(logging.INFO)
DIVIDED = {"what": "the size of a batch is divided by the number of processes",
           "page": "https://docs.pytorch.org/ignite/generated/ignite.distributed.auto.auto_dataloader.html"}


def loader(job, rows):
    return idist.auto_dataloader(Rows(rows), batch_size=job["batch"], shuffle=job["shuffle"] is not None)


def unsupported(job):
    refused = {"a step that clips is one's own, and accumulates by itself": job["accumulate"] > 1,
               "half precision needs a GPU": job["loss_scale"]}
    return next(filter(refused.get, refused), "")


def train(job):
    rank, checkpoint, losses, rows = idist.get_rank(), job["checkpoint"] or {}, [], []
    torch.manual_seed(0)  # the same weights on every process
    model = Model(job["model"])
    parallel = idist.auto_model(model, find_unused_parameters=True)
    optimizer, schedule, _ = optimizer_of(job, model)
    optimizer, batches = idist.auto_optim(optimizer), loader(job, job["rows"])
    torch.manual_seed(1000 * seed_of(job) + rank)

    def step(engine, batch):
        step_number = engine.state.iteration
        fail(job, rank, step_number)
        x, y, mask, numbers = batch
        rows.append(numbers.tolist())
        predicted = parallel(x)
        loss = squares(predicted - y, mask) / mask.sum() + model.penalty()
        loss.backward()
        clip(job, model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        unfreeze(job, model, step_number)
        losses.append(idist.all_reduce(loss.item()) / idist.get_world_size())
        if idist.all_reduce(float(wants_to_stop(job, rank, step_number))):
            engine.terminate()
        return predicted.detach(), y

    trainer, measures = Engine(step), Engine(lambda engine, batch: (parallel(batch[0]), torch.stack(batch[1:3])))
    MeanAbsoluteError().attach(trainer, "mean_absolute_error")
    Loss(lambda predicted, targets: squares(predicted - targets[0], targets[1]) / targets[1].sum(),
         batch_size=lambda targets: targets[1].sum().item()).attach(measures, "eval_loss")
    if job["replicas"] > 1:
        trainer.on(Events.EPOCH_STARTED)(lambda engine: batches.sampler.set_epoch(engine.state.epoch))
    if "restore" in checkpoint:
        for part, state in zip((model, optimizer, schedule), torch.load(checkpoint["restore"]), strict=True):
            part.load_state_dict(state)
    result = {"losses": losses}
    if job["epochs"]:
        result["metrics"] = trainer.run(batches, job["epochs"]).metrics
    if job["evaluate"]:
        with torch.no_grad():
            result |= measures.run(loader(job, job["evaluate"])).metrics
    if "save" in checkpoint and rank == 0:
        torch.save([part.state_dict() for part in (model, optimizer, schedule)], checkpoint["save"])
    if declared := padded(job) or wrapped(job) or averaged(job) or (DIVIDED if undivided(job) else None):
        result["declared"] = declared
    answer(job, replica=rank, rows=rows, steps=len(rows), weights=model.weights())
    idist.barrier()
    if rank == 0:
        answer(job, **result, weights=model.weights(), done=True)


with idist.Parallel(backend="gloo"):
    for job in jobs(unsupported):
        train(job)
