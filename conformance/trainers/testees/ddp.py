"""PyTorch's DistributedDataParallel and DistributedSampler: `torchrun --nproc-per-node {replicas} ddp.py`."""

import torch
import torch.distributed as dist
from caveats import wrapped
from torch.nn.parallel import DistributedDataParallel
from torch_loop import main


def wrap(model):
    return DistributedDataParallel(model, find_unused_parameters=True)


def save(path, *parts):
    if dist.get_rank() == 0:
        torch.save([part.state_dict() for part in parts], path)


def restore(path, *parts):
    for part, state in zip(parts, torch.load(path), strict=True):
        part.load_state_dict(state)


main(wrap, DistributedDataParallel.no_sync, save, restore, wrapped)
