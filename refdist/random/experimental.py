"""The generators at their first place, `tf.random.experimental`."""

from refdist.random.generator import Generator, get_global_generator, set_global_generator
from refdist.random.state import Algorithm, create_rng_state

__all__ = ["Algorithm", "Generator", "create_rng_state", "get_global_generator", "set_global_generator"]
