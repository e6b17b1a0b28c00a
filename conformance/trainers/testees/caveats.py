"""What the documentations of the libraries say of themselves where a clause says otherwise, each with its page."""

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
AVERAGED = {"what": "gradients are averaged over the processes", "page": RANK_0["page"]}


def padded(job):
    """What DistributedSampler does to a job."""
    uneven = any(len(rows["x"]) % job["replicas"] for rows in (job["epochs"] and job["rows"], job["evaluate"]) if rows)
    return PADDED if uneven else None


def wrapped(job):
    """What DistributedDataParallel does to a job."""
    if any(layer["kind"] == "batch_norm" for layer in job["model"]):
        return RANK_0
    return WRAPPED if job["unfreeze"] else None


def repeated(job):
    """What accelerate's loaders do to a job when it trains."""
    return REPEATED if "weights" in job["ask"] and job["epochs"] and len(job["rows"]["x"]) % job["batch"] else None
