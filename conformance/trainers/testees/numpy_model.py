"""The model of a job in NumPy, for testees whose library has neither layers nor derivatives.

Weights are a dict of arrays under Keras's names.  Derivatives are taken by a complex step: where f is computed from w
by arithmetic alone, f(w + ih) is f(w) + ih f'(w) up to h squared, and its imaginary part loses no digits.
"""

import numpy as np

STEP = 1e-30


def initial(job):
    """The weights of a job by name, and the statistics of its batch normalizations; what is left open is drawn."""
    weights, statistics = {}, {}
    for layer in job["model"]:
        name = layer["name"]
        parts = {part: layer.get(part) for part in ("kernel", "bias", "table")}
        weights |= {f"{name}/{part}": value for part, value in parts.items() if value is not None}
        weights |= {f"{name}/{number}/kernel": kernel for number, kernel in enumerate(layer.get("kernels", ()))}
        if layer["kind"] == "dense" and layer["kernel"] is None and layer["tied"] is None:
            weights[f"{name}/kernel"] = np.random.standard_normal(layer["shape"])
        if layer["kind"] == "batch_norm":
            zeros, ones = np.zeros(layer["features"]), np.ones(layer["features"])
            weights |= {f"{name}/gamma": ones, f"{name}/beta": zeros}
            statistics |= {f"{name}/moving_mean": zeros, f"{name}/moving_variance": ones}
    return tuple({name: np.array(value, np.float32) for name, value in part.items()} for part in (weights, statistics))


def forward(job, weights, statistics, x, draw):
    """The outputs of at least one row in training, and the statistics after it; `draw` is a Generator of NumPy's."""
    after = {}
    for layer in job["model"]:
        name, kind = layer["name"], layer["kind"]
        if kind == "dense":
            x = x @ weights[f"{layer['tied'] or name}/kernel"] + weights.get(f"{name}/bias", 0.0)
            x = np.where(x.real > 0, x, 0.0) if layer["activation"] else x
        elif kind == "dropout":
            x = x * (draw.random(x.shape) >= layer["rate"]) / (1 - layer["rate"])
        elif kind == "embedding":
            x = weights[f"{name}/table"][x[:, 0].astype(int)]
        elif kind == "experts":
            x = np.array([row[1:] @ weights[f"{name}/{int(row[0])}/kernel"] for row in x])
        else:
            of_batch = {f"{name}/moving_mean": x.mean(0), f"{name}/moving_variance": ((x - x.mean(0)) ** 2).mean(0)}
            normal = (x - x.mean(0)) / np.sqrt(of_batch[f"{name}/moving_variance"] + layer["epsilon"])
            x = weights[f"{name}/gamma"] * normal + weights[f"{name}/beta"]
            after |= {key: statistics[key] + (1 - layer["momentum"]) * (value - statistics[key])
                      for key, value in of_batch.items()}
    return x, after


def penalty(job, weights):
    """The regularizers of a job."""
    return sum(layer["l2"] * (weights[f"{layer['tied'] or layer['name']}/kernel"] ** 2).sum()
               for layer in job["model"] if layer.get("l2"))


def gradient(function, weights):
    """The derivative of a number by each weight that is trained."""
    derivatives = {name: np.zeros(weight.shape, np.float32) for name, weight in weights.items()}
    for name, derivative in derivatives.items():
        for index in np.ndindex(derivative.shape):
            shift = np.zeros(derivative.shape, complex)
            shift[index] = STEP * 1j
            derivative[index] = np.imag(function({**weights, name: weights[name] + shift})) / STEP
    return derivatives
