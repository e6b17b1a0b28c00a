"""The rows, the model and the optimizer of a job for the testees whose library trains modules of PyTorch."""

import torch
from torch import nn

torch.set_num_threads(1)


def floats(values):
    """Numbers of a job, of which JSON may have written 1.0 as 1."""
    return torch.tensor(values, dtype=torch.float32)


def unfreeze(job, model, step):
    """Makes a layer trainable after a step."""
    if job["unfreeze"] and job["unfreeze"]["after_step"] == step:
        model.parts[job["unfreeze"]["layer"]].requires_grad_(True)


def optimizer_of(job, model):
    """Descent, the schedule of its learning rate, and the scaler of the loss, which does nothing without a scale."""
    chosen, scale = job["optimizer"], job["loss_scale"]
    optimizer = torch.optim.SGD(model.parameters(), chosen["learning_rate"], chosen["momentum"])
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, chosen["decay"])
    return optimizer, schedule, torch.amp.GradScaler("cpu", scale or 1.0, enabled=scale is not None)


def step(job, model, optimizer, schedule, scaler):
    """A step by the gradients that there are, in the order of PyTorch's tutorials."""
    scaler.unscale_(optimizer)
    clip(job, model.parameters())
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    schedule.step()


def clip(job, parameters, by_norm=nn.utils.clip_grad_norm_, by_value=nn.utils.clip_grad_value_):
    """Clips gradients as the job says, with the functions of a library."""
    if job["clip"]:
        (by_norm if job["clip"]["by"] == "norm" else by_value)(parameters, job["clip"]["limit"])


def squares(error, mask):
    """The sum of the squared errors that the mask lets pass."""
    return (mask * error ** 2).sum()


def full(tensor):
    """A tensor, gathered if it is sharded."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


class Rows(torch.utils.data.Dataset):
    """Rows of a job; an item is x, y, the mask of y, and its number."""

    def __init__(self, rows):
        self.x, self.y = floats(rows["x"]), floats(rows["y"])
        self.mask = floats(rows["mask"]) if rows["mask"] else torch.ones_like(self.y)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, number):
        return self.x[number], self.y[number], self.mask[number], number


class Experts(nn.Module):
    """A linear layer for each value of the first column; those that no row needs are not touched."""

    def __init__(self, kernels):
        super().__init__()
        self.kernels = nn.ParameterList(floats(kernel) for kernel in kernels)

    def forward(self, x):
        return torch.stack([row[1:] @ self.kernels[int(row[0])] for row in x])


class Model(nn.Module):
    """The layers of a job, one after the other."""

    def __init__(self, layers):
        super().__init__()
        self.layers, self.parts = layers, nn.ModuleDict()
        for layer in layers:
            self.parts[layer["name"]] = self.part(**layer)

    def part(self, kind, name, **layer):
        """The module of a layer."""
        if kind == "dropout":
            return nn.Dropout(layer["rate"])
        if kind == "experts":
            return Experts(layer["kernels"])
        if kind == "embedding":
            return nn.Embedding.from_pretrained(floats(layer["table"]), freeze=False)
        if kind == "batch_norm":
            return nn.BatchNorm1d(layer["features"], layer["epsilon"], 1 - layer["momentum"])
        dense = nn.Linear(*layer["shape"], bias=layer["bias"] is not None)
        if layer["kernel"] is not None:
            dense.weight.data.copy_(floats(layer["kernel"]).T)
        if layer["bias"] is not None:
            dense.bias.data.copy_(floats(layer["bias"]))
        if layer["tied"]:
            dense.weight = self.parts[layer["tied"]].weight
        return dense.requires_grad_(not layer["frozen"])

    def forward(self, x):
        for layer in self.layers:
            x = self.parts[layer["name"]](x[:, 0].long() if layer["kind"] == "embedding" else x)
            x = torch.relu(x) if layer.get("activation") else x
        return x

    def penalty(self):
        """The regularizers."""
        return sum(layer["l2"] * (full(self.parts[layer["name"]].weight) ** 2).sum()
                   for layer in self.layers if layer.get("l2"))

    def weights(self):
        """The weights under Keras's names, in Keras's layout; those that are sharded are gathered."""
        named = {}
        for layer in self.layers:
            name, part = layer["name"], self.parts[layer["name"]]
            if layer["kind"] == "dense":
                named |= {} if layer["tied"] else {f"{name}/kernel": part.weight.T}
                named |= {} if part.bias is None else {f"{name}/bias": part.bias}
            elif layer["kind"] == "batch_norm":
                named |= {f"{name}/gamma": part.weight, f"{name}/beta": part.bias,
                          f"{name}/moving_mean": part.running_mean, f"{name}/moving_variance": part.running_var}
            elif layer["kind"] == "embedding":
                named[f"{name}/table"] = part.weight
            elif layer["kind"] == "experts":
                named |= {f"{name}/{number}/kernel": kernel for number, kernel in enumerate(part.kernels)}
        return {key: full(value).tolist() for key, value in named.items()}
