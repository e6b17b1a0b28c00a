"""Adapters that come with the suite, by their short names."""

from __future__ import annotations

# A short name, the class, and what is tested.
ROWS = (
    ("refdist", "simulated:Simulated", "refdist on simulated devices and workers"),
    ("gpu", "gpu:GPU", "refdist on the GPUs of this machine"),
    ("tensorflow", "tensorflow:TensorFlow", "TensorFlow on logical CPUs"),
    ("tensorflow-2x2", "tensorflow_workers:Workers", "TensorFlow whose workers have several replicas"),
    ("torch", "torch:Torch", "the collectives of torch.distributed"),
    ("jax", "jax:Jax", "the collectives of JAX"),
)
CLASSES = {name: f"{__name__}.{name_of_class}" for name, name_of_class, _ in ROWS}
