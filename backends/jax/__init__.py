"""JAX's arrays: as guests on simulated devices, and as a backend (`REFDIST_BACKEND=jax`)."""

from refdist.backends.jax.backend import Jax

__all__ = ["Jax"]
