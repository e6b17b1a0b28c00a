"""What the documentations of the libraries say of themselves where a clause says otherwise, each with its page.

And what cannot be done at all where every process has a loader of its own.
"""

TORCH = "https://docs.pytorch.org/docs/stable/"

PADDED = {"what": "the sampler adds rows to make their number divisible by that of the processes",
          "page": TORCH + "data.html#torch.utils.data.distributed.DistributedSampler"}
RANK_0 = {"what": "buffers, such as BatchNorm's statistics, are those of rank 0",
          "page": TORCH + "generated/torch.nn.parallel.DistributedDataParallel.html"}
WRAPPED = {"what": "parameters must not be changed after the model was wrapped", "page": RANK_0["page"]}
REPEATED = {"what": "samples from the start are duplicated to divide a batch equally (even_batches)",
            "page": "https://huggingface.co/docs/accelerate/package_reference/torch_wrappers"}
VARIABLE = {"what": "the average of the losses of batches is not that of their tokens: a loop for it is given",
            "page": "https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation"}
LOGGED = {"what": "what is logged is averaged over steps and devices",
          "page": "https://lightning.ai/docs/pytorch/stable/extensions/logging.html"}
AVERAGED = {"what": "gradients are averaged over the processes", "page": RANK_0["page"]}


def averaged(job):
    """What averaged gradients are where masks let different numbers pass on the processes."""
    return AVERAGED if job["rows"]["mask"] and job["epochs"] and job["accumulate"] == 1 else None


def padded(job):
    """What DistributedSampler does to a job."""
    uneven = any(len(rows["x"]) % job["replicas"] for rows in (job["epochs"] and job["rows"], job["evaluate"]) if rows)
    return PADDED if uneven else None


def wrapped(job):
    """What DistributedDataParallel does to a job."""
    if any(layer["kind"] == "batch_norm" for layer in job["model"]) and not job["checkpoint"]:
        return RANK_0
    return WRAPPED if job["unfreeze"] else None


def undivided(job):
    """Why a job cannot be done whose batch is no whole number of rows for every process, or ""."""
    return "a loader of each process has batches of one size" if job["batch"] % job["replicas"] else ""


def repeated(job):
    """What accelerate's loaders do to a job when it trains."""
    return REPEATED if "weights" in job["ask"] and job["epochs"] and len(job["rows"]["x"]) % job["batch"] else None
