"""What testees have in common, whatever their library: jobs are read, answers printed, and a replica fails if told to.

It needs Python alone, and is there to be copied beside a testee of your own.
"""

import json
import os
import sys

# What a job has in these fields where it is plain; a testee that is new says what else it can do, and leaves the rest.
PLAIN = {"mask": None, "bias": None, "activation": None, "l2": 0, "frozen": False, "tied": None, "momentum": 0,
         "decay": 1, "shuffle": None, "accumulate": 1, "clip": None, "loss_scale": None, "metrics": [],
         "evaluate": None, "unfreeze": None, "checkpoint": None, "stop": None, "fail": None, "ask_each": []}


def jobs(unsupported=lambda job: ""):
    """The jobs of the file that is the last argument; those that cannot be done are answered.

    Args:
        unsupported: why a job cannot be done, or "".
    """
    with open(sys.argv[-1], encoding="utf-8") as file:
        todo = [json.loads(line) for line in file]
    for job in todo:
        if why := unsupported(job):
            answer(job, unsupported=why)
        else:
            yield job


def beyond(job, *can):
    """What is not plain in a job, and not among what a testee can do, or "".

    Args:
        job: the job.
        can: fields of PLAIN, kinds of layers other than "dense", and "layers", where there may be several.
    """
    if len(job["model"]) > 1 and "layers" not in can:
        return "only one layer"
    for fields in (*job["model"], job["rows"], job["optimizer"], job):
        if fields.get("kind", "dense") not in ("dense", "sgd", *can):
            return f"no {fields['kind']}"
        for name, plain in PLAIN.items():
            if fields.get(name, plain) != plain and name not in can:
                return f"no {name}"
    return ""


def answer(job, **fields):
    """Prints a part of an answer, in one write: several processes share the output."""
    sys.stdout.write(json.dumps({"id": job["id"], **fields}) + "\n")
    sys.stdout.flush()


def fail(job, rank, step):
    """Fails, if a replica is to fail in a step; its rank is None in a process that does the work of all replicas."""
    if job["fail"] and rank in (job["fail"]["replica"], None) and job["fail"]["at_step"] == step:
        if job["fail"]["how"] == "death":
            os._exit(9)
        raise RuntimeError(job["fail"]["message"])


def wants_to_stop(job, rank, step):
    """Whether a replica wants to stop after a step; its rank is None in a process that does the work of all."""
    return bool(job["stop"]) and rank in (job["stop"]["replica"], None) and job["stop"]["after_step"] == step


def frozen(job, step):
    """The names of the layers that do not move in a step."""
    names = {layer["name"] for layer in job["model"] if layer.get("frozen")}
    return names - {job["unfreeze"]["layer"]} if job["unfreeze"] and step > job["unfreeze"]["after_step"] else names


def seed_of(job):
    """The seed of a job for what is drawn at random."""
    return next((layer["seed"] for layer in job["model"] if layer["kind"] == "dropout"), job["shuffle"] or 0)
