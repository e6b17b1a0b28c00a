"""refdist on PyTorch's and JAX's arrays, as adapters for the suite."""

from __future__ import annotations

from refdist.conformance.adapters.arrays import Arrays


class OnTorch(Arrays):
    """Variables, inputs and results are tensors."""

    name, backend = "refdist on PyTorch", "torch"


class OnJax(Arrays):
    """Variables, inputs and results are JAX's arrays."""

    name, backend = "refdist on JAX", "jax"

    def __init__(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        super().__init__()
