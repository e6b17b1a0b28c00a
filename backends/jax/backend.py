"""JAX's arrays on the host.

They cannot be written to, so everybody may share them.  Without JAX_ENABLE_X64 JAX has no dtypes of 64 bits, and makes
narrower ones of them with a warning; refdist never narrows: what JAX does not have stays NumPy's array.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from refdist.array.convert import to_numpy
from refdist.array.types import Array
from refdist.backends.simulated.hosted import Hosted


class Jax(Hosted):
    """JAX's arrays, with the bits of NumPy's sums.

    >>> import jax.numpy as jnp
    >>> Jax().sum([jnp.float32([1, 2]), jnp.float32([3, 4])])
    Array([4., 6.], dtype=float32)
    """

    name = "jax"
    array_types = (type(jnp.zeros(1)),)

    def xp(self, device: str = "") -> Any:
        return jnp

    def view(self, array: Any) -> NDArray[np.generic]:
        return np.asarray(array)

    def put(self, array: Array, device: str) -> Any:
        return array if isinstance(array, self.array_types) else self.made(to_numpy(array))

    def made(self, array: NDArray[np.generic], like: Any = None) -> Any:
        dtype = array.dtype
        if dtype.kind not in "biufcV" or dtype.names is not None or jax.dtypes.canonicalize_dtype(dtype) != dtype:
            return array
        # A copy: JAX may otherwise take the memory over while NumPy can still write to it.
        result = jnp.array(array.astype(dtype.newbyteorder("="), copy=False), copy=True)
        return result if like is None else jax.device_put(result, like.sharding)

    def is_on_host(self, array: Any) -> bool:
        return all(device.platform == "cpu" for device in array.devices())

    def refusal(self, value: object) -> str:
        if isinstance(value, self.array_types):
            return ("Pass an array that was not deleted: `jax.jit` with `donate_argnums`, for example, takes the "
                    "memory of its arguments.") if value.is_deleted() else ""
        if isinstance(value, jax.core.Tracer):
            return ("JAX traces it, and a collective runs now and not in what is traced. Call it outside `jax.jit`, "
                    "`jax.grad` and `jax.vmap`, with the arrays that they return.")
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return "Pass the numbers of a key: `jax.random.key_data(x)`."
        return ""

    def freeze(self, array: Array) -> Any:
        return array
