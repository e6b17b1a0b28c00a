"""The rows, the model and the optimizer of a job for the testee whose library is MLX."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map, tree_unflatten

# What MLX's documentation says, and some clauses say otherwise.
AVERAGED = {"what": "gradients are averaged over the processes, however many rows each has",
            "page": "https://ml-explore.github.io/mlx/build/html/python/_autosummary/mlx.nn.average_gradients.html"}


def averaged(job):
    """What averaged gradients are where processes have different numbers of rows, or of what a mask lets pass."""
    last = len(job["rows"]["x"]) % job["batch"] or job["batch"]
    uneven = job["clause"] in ("undivided-batch", "uneven-end", "empty-part") and last % job["replicas"]
    masked = job["rows"]["mask"] and job["epochs"] and job["accumulate"] == 1
    return AVERAGED if uneven or masked else None


class Experts(nn.Module):
    """A linear layer for each value of the first column."""

    def __init__(self, kernels):
        super().__init__()
        self.kernels = [mx.array(kernel, mx.float32) for kernel in kernels]

    def __call__(self, x):
        return sum(mx.where(x[:, :1] == number, x[:, 1:] @ kernel, 0.0) for number, kernel in enumerate(self.kernels))


class Model(nn.Module):
    """The layers of a job, one after the other."""

    def __init__(self, layers):
        super().__init__()
        self._layers, self.parts = layers, {layer["name"]: part(**layer) for layer in layers if not layer.get("tied")}
        for layer in layers:
            if layer.get("frozen"):
                self.parts[layer["name"]].freeze()

    def __call__(self, x):
        for layer in self._layers:
            module = self.parts[layer.get("tied") or layer["name"]]
            x = module(x[:, 0].astype(mx.int32) if layer["kind"] == "embedding" else x)
            x = nn.relu(x) if layer.get("activation") else x
        return x

    def penalty(self):
        """The regularizers."""
        return sum(layer["l2"] * self.parts[layer.get("tied") or layer["name"]].weight.square().sum()
                   for layer in self._layers if layer.get("l2"))

    def weights(self):
        """The weights under Keras's names, in Keras's layout."""
        named = {}
        for name, module in self.parts.items():
            if isinstance(module, nn.Linear):
                named |= {f"{name}/kernel": module.weight.T}
                named |= {f"{name}/bias": module.bias} if "bias" in module else {}
            elif isinstance(module, nn.BatchNorm):
                named |= {f"{name}/gamma": module.weight, f"{name}/beta": module.bias,
                          f"{name}/moving_mean": module.running_mean, f"{name}/moving_variance": module.running_var}
            elif isinstance(module, nn.Embedding):
                named[f"{name}/table"] = module.weight
            elif isinstance(module, Experts):
                named |= {f"{name}/{number}/kernel": kernel for number, kernel in enumerate(module.kernels)}
        return {key: value.tolist() for key, value in named.items()}


def part(kind, name, **layer):
    """The module of a layer."""
    if kind == "dropout":
        return nn.Dropout(layer["rate"])
    if kind == "experts":
        return Experts(layer["kernels"])
    if kind == "batch_norm":
        return nn.BatchNorm(layer["features"], layer["epsilon"], 1 - layer["momentum"])
    if kind == "embedding":
        table = nn.Embedding(len(layer["table"]), len(layer["table"][0]))
        return table.update({"weight": mx.array(layer["table"], mx.float32)})
    dense = nn.Linear(*layer["shape"], bias=layer["bias"] is not None)
    given = {"weight": layer["kernel"] and mx.array(layer["kernel"], mx.float32).T,
             "bias": layer["bias"] and mx.array(layer["bias"], mx.float32)}
    return dense.update({key: value for key, value in given.items() if value is not None})


def columns(rows):
    """Rows of a job: x, y, and which targets count."""
    x, y = (mx.array(rows[key], mx.float32) for key in ("x", "y"))
    return x, y, mx.array(rows["mask"], mx.float32) if rows["mask"] else mx.ones(y.shape)


def optimizer_of(job):
    """Descent, and the schedule of its learning rate."""
    chosen = job["optimizer"]
    return optim.SGD(optim.exponential_decay(chosen["learning_rate"], chosen["decay"]), chosen["momentum"])


def clipped(clip, gradients):
    """Gradients, clipped as a job says."""
    if not clip:
        return gradients
    if clip["by"] == "norm":
        return optim.clip_grad_norm(gradients, clip["limit"])[0]
    return tree_map(lambda gradient: mx.clip(gradient, -clip["limit"], clip["limit"]), gradients)


def save(path, model, optimizer):
    """Writes a model and its optimizer, as MLX's documentation does."""
    mx.save_safetensors(f"{path}.safetensors", dict(tree_flatten([model.parameters(), optimizer.state])))


def restore(path, model, optimizer):
    """Reads them."""
    weights, optimizer.state = tree_unflatten(list(mx.load(f"{path}.safetensors").items()))
    model.update(weights)
