"""What TensorFlow keeps under `tf.random`, as far as it concerns distribution: generators with a stream per replica."""

from refdist.random import experimental
from refdist.random.generator import Generator, get_global_generator, set_global_generator
from refdist.random.state import Algorithm, create_rng_state

__all__ = ["Algorithm", "Generator", "create_rng_state", "experimental", "get_global_generator",
           "set_global_generator"]
