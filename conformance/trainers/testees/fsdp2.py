"""PyTorch's fully_shard, known as FSDP2: `torchrun --nproc-per-node {replicas} fsdp2.py`.

Gradients are not kept back within an accumulated step: that would be a choice of speed, and needs more memory.
"""

from contextlib import nullcontext

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch_loop import main


def wrap(model):
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    parts = {layer["name"]: [model.parts[layer["name"]]] for layer in model.layers if not layer.get("tied")}
    for layer in model.layers:  # those that share a parameter are one group
        if layer.get("tied"):
            parts[layer["tied"]].append(model.parts[layer["name"]])
    for group in parts.values():
        if any(parameter.requires_grad for part in group for parameter in part.parameters()):
            fully_shard(group, mesh=mesh)
    fully_shard(model, mesh=mesh).set_reduce_scatter_unused_params(True)
    return model


def state(model, optimizer, schedule, scaler):
    weights, momentum = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": momentum, "schedule": schedule.state_dict(), "scaler": scaler.state_dict()}


def save(path, *parts):
    dcp.save(state(*parts), checkpoint_id=path)


def restore(path, model, optimizer, schedule, scaler):
    read = state(model, optimizer, schedule, scaler)
    dcp.load(read, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=read["model"], optim_state_dict=read["optimizer"])
    schedule.load_state_dict(read["schedule"])
    scaler.load_state_dict(read["scaler"])


main(wrap, lambda model: nullcontext(), save, restore, lambda job: None)
