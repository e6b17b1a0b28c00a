"""Ray Train's TorchTrainer around a loop of PyTorch's tutorials: `env REPLICAS={replicas} python ray_train.py`.

There is one group of workers for all jobs, because its start takes long: hence the number of replicas in the command.
What a worker prints has its name before it: answers go through a queue to the program that has started the workers.
"""

import logging
import os
from contextlib import nullcontext
from threading import Thread

import ray
import torch
import torch.distributed as dist
from caveats import padded, undivided, wrapped
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from ray.util.queue import Queue
from torch.utils.data import DataLoader
from torch_loop import epoch, total
from torch_model import Model, Rows, optimizer_of, squares
from trainer_jobs import answer, jobs, seed_of


def loader(job, rows):
    """Batches of a worker; Ray adds a DistributedSampler."""
    size = job["batch"] // job["replicas"]
    return prepare_data_loader(DataLoader(Rows(rows), size, shuffle=job["shuffle"] is not None))


def quiet(parallel):
    """A context in which gradients are not combined; Ray leaves a model alone where there is one worker."""
    return parallel.no_sync() if hasattr(parallel, "no_sync") else nullcontext()


def train(job, answers):
    """What every worker does."""
    rank = ray.train.get_context().get_world_rank()
    checkpoint, result = job["checkpoint"] or {}, {"losses": [], "rows": []}
    torch.manual_seed(0)  # the same weights on every worker
    model = Model(job["model"])
    parallel = prepare_model(model, parallel_strategy_kwargs={"find_unused_parameters": True})
    torch.manual_seed(1000 * seed_of(job) + rank)
    optimizer, batches = optimizer_of(job, model), loader(job, job["rows"])
    if "restore" in checkpoint:
        for part, state in zip((model, *optimizer), torch.load(checkpoint["restore"]), strict=True):
            part.load_state_dict(state)
    for number in range(job["epochs"]):
        if job["replicas"] > 1:
            batches.sampler.set_epoch(number)
        # The loop takes batches by islice; the iterator of Ray's loader begins anew with every iter(), a generator not.
        if epoch(job, model, parallel, quiet, optimizer, (batch for batch in batches), result):
            break
    if job["evaluate"]:
        model.eval()
        with torch.no_grad():
            sums = [(squares(parallel(x) - y, mask), mask.sum()) for x, y, mask, _ in loader(job, job["evaluate"])]
        squared, count = total(*map(sum, zip(*sums, strict=True)))
        result["eval_loss"] = squared / count + float(model.penalty())
    if "save" in checkpoint and rank == 0:
        torch.save([part.state_dict() for part in (model, *optimizer)], checkpoint["save"])
    result |= {"weights": model.weights(), "scale": optimizer[-1].get_scale()}
    rows = result.pop("rows")
    answers.put((job, {"replica": rank, "steps": len(rows), "rows": rows, **result}))
    dist.barrier()
    if rank == 0:
        caveat = padded(job) or wrapped(job)
        answers.put((job, {**result, **({"declared": caveat} if caveat else {}), "done": True}))


def train_all(config):
    for job in config["jobs"]:
        train(job, config["answers"])


def print_answers(queue):
    while True:
        job, fields = queue.get()
        answer(job, **fields)


ray.init(num_cpus=6, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
queue = Queue()
Thread(target=print_answers, args=(queue,), daemon=True).start()
TorchTrainer(train_all, train_loop_config={"jobs": list(jobs(undivided)), "answers": queue},
             scaling_config=ray.train.ScalingConfig(num_workers=int(os.environ["REPLICAS"]))).fit()
