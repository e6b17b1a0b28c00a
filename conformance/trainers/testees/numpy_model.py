"""The model of a job in NumPy, for testees whose library has neither layers nor derivatives.

Weights are a dict of arrays under Keras's names.  Derivatives are taken by a complex step: where f is computed from w
by arithmetic alone, f(w + ih) is f(w) + ih f'(w) up to h squared, and its imaginary part loses no digits.
"""

import numpy as np

STEP = 1e-30


def initial(model):
    """The weights of a model; what the job leaves open is drawn."""
    weights = {}
    for layer in model:
        name = layer["name"]
        given = {part: layer.get(part) for part in ("kernel", "bias", "table")}
        weights |= {f"{name}/{part}": value for part, value in given.items() if value is not None}
        weights |= {f"{name}/{number}/kernel": kernel for number, kernel in enumerate(layer.get("kernels", ()))}
        if layer["kind"] == "dense" and layer["kernel"] is None and layer["tied"] is None:
            weights[f"{name}/kernel"] = np.random.standard_normal(layer["shape"])
        if layer["kind"] == "batch_norm":
            zeros, ones = np.zeros(layer["features"]), np.ones(layer["features"])
            weights |= {f"{name}/gamma": ones, f"{name}/beta": zeros,
                        f"{name}/moving_mean": zeros, f"{name}/moving_variance": ones}
    return {name: np.asarray(value, np.float32) for name, value in weights.items()}


def forward(model, weights, x, replica=None):
    """The outputs of at least one row, in training on a replica or, if it is None, in validation; moving statistics."""
    moved = {}
    for layer in model:
        name, kind = layer["name"], layer["kind"]
        if kind == "dense":
            x = x @ weights[f"{layer['tied'] or name}/kernel"] + weights.get(f"{name}/bias", 0.0)
            x = np.where(x.real > 0, x, 0.0) if layer["activation"] else x
        elif kind == "batch_norm":
            mean, variance = moving = [weights[f"{name}/moving_{part}"] for part in ("mean", "variance")]
            if replica is not None:
                mean = x.mean(0)
                variance = ((x - mean) ** 2).mean(0)
                for part, old, new in zip(("mean", "variance"), moving, (mean, variance), strict=True):
                    moved[f"{name}/moving_{part}"] = layer["momentum"] * old + (1 - layer["momentum"]) * new
            normal = (x - mean) / np.sqrt(variance + layer["epsilon"])
            x = weights[f"{name}/gamma"] * normal + weights[f"{name}/beta"]
        elif kind == "dropout" and replica is not None:
            kept = np.random.default_rng((layer["seed"], replica)).random(x.shape) >= layer["rate"]
            x = x * kept / (1 - layer["rate"])
        elif kind == "embedding":
            x = weights[f"{name}/table"][x[:, 0].astype(int)]
        elif kind == "experts":
            x = np.array([row[1:] @ weights[f"{name}/{int(row[0])}/kernel"] for row in x])
    return x, moved


def penalty(model, weights):
    """The regularizers of a model."""
    return sum(layer["l2"] * (weights[f"{layer['tied'] or layer['name']}/kernel"] ** 2).sum()
               for layer in model if layer.get("l2"))


def gradient(function, weights):
    """The derivative of a number by each weight that is trained."""
    derivatives = {name: np.zeros(weight.shape) for name, weight in weights.items() if "/moving_" not in name}
    for name, derivative in derivatives.items():
        for place in np.ndindex(derivative.shape):
            away = np.zeros(derivative.shape, complex)
            away[place] = STEP * 1j
            derivative[place] = np.imag(function({**weights, name: weights[name] + away})) / STEP
    return derivatives
