"""JAX's shard_map: `python jax_shard_map.py`.

The program is written for the rows of a device; sums over all devices are a psum within what is derived, so that the
gradient is that of all rows and needs no other sum.
"""

from functools import partial

from jax_loop import main  # isort: skip
from jax_model import forward  # isort: skip
import jax
from jax.sharding import PartitionSpec


def derive(job, mesh):
    total, mean = partial(jax.lax.psum, axis_name="batch"), partial(jax.lax.pmean, axis_name="batch")

    def sums(weights, statistics, batch, key):
        x, y, mask, real, _ = batch
        key = jax.random.fold_in(key, jax.lax.axis_index("batch"))
        predicted, after = forward(job, weights, statistics, x, key, lambda values: mean(values.mean(0)))
        error = predicted - y
        squares, *counts = total(((mask * error ** 2).sum(), mask.sum(), abs(real * error).sum(), real.sum()))
        return squares, (*counts, after)

    replicated, part = PartitionSpec(), PartitionSpec("batch")
    return jax.jit(jax.shard_map(jax.value_and_grad(sums, has_aux=True), mesh=mesh,
                                 in_specs=(replicated, replicated, part, replicated), out_specs=replicated))


main(derive)
