"""refdist's MirroredStrategy with JAX: `python refdist_jax.py`.

JAX compiles what a replica computes alone, and refdist adds up what replicas bring.
"""

from jax_model import forward, initial, penalty  # isort: skip
import jax
import jax.numpy as jnp
from refdist_loop import main


def on_jax(job):
    return jax.tree.map(jnp.array, initial(job))


def derive(job):
    def sums(weights, statistics, x, y, mask, seed):
        outputs, after = forward(job, weights, statistics, x, jax.random.key(seed), lambda values: values.mean(0))
        error = mask * (outputs - y)
        return (error ** 2).sum(), (abs(error).sum(), after)
    return jax.jit(jax.value_and_grad(sums, has_aux=True))


main(on_jax, derive, jax.value_and_grad(penalty, 1))
