"""Each process has its own statistics: `torchrun --nproc-per-node 2 fsdp2_batch_norm.py`."""

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

distributed.init_process_group("gloo")
rank = distributed.get_rank()
model = torch.nn.Sequential(torch.nn.BatchNorm1d(1, momentum=1.0), torch.nn.Linear(1, 1))
fully_shard(model, mesh=distributed.init_device_mesh("cpu", (2,)))
model(torch.full((4, 1), 100.0 * rank)).sum().backward()
print(f"rank {rank}: the moving mean is {model[0].running_mean.item():.4g}; that of all rows is 50\n", end="")
