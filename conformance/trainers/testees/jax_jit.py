"""JAX's jit over arrays that are sharded over devices: `python jax_jit.py`.

The program is written for the whole batch; the compiler divides it.
"""

from jax_loop import main  # isort: skip
from jax_model import forward  # isort: skip
import jax


def derive(job, mesh):
    def sums(weights, statistics, batch, key):
        x, y, mask, real, _ = batch
        predicted, after = forward(job, weights, statistics, x, key, lambda values: values.mean(0))
        error = predicted - y
        return (mask * error ** 2).sum(), (mask.sum(), abs(real * error).sum(), real.sum(), after)
    return jax.jit(jax.value_and_grad(sums, has_aux=True))


main(derive)
