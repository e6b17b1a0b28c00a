"""JAX's arrays: as guests on simulated devices, and as a backend (`REFDIST_BACKEND=jax`)."""
