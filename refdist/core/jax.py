"""JAX's contexts, of which each replica has its own, and whether JAX compiles what runs.

JAX keeps for each thread what its context managers set (`jax.enable_x64`, `jax.default_matmul_precision`,
`jax.default_device` and so on), and what it traces at the moment.  All replicas share a thread, so a replica that waits
inside such a block, or in a function that `jax.grad` or `jax.vmap` is tracing, would leave that to the next one, and
blocks that are not left in the reverse order would leave it behind after `run`.  Therefore all of it is put back as a
whole whenever a replica goes on.

JAX is never imported here, and nothing here is called before it is loaded (`states`).  Its objects for these values are
the context managers themselves, but their methods are not in JAX's documents: what a version does not have is left out.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from sys import modules
from types import ModuleType
from typing import Any, NamedTuple

from refdist import errors

# What the module `jax` does not export itself: what `jax.disable_jit` and `jax.set_mesh` set, and what is traced.
_CONFIG = ("disable_jit", "device_context", "mesh_context_manager", "abstract_mesh_context_manager")
_CORE = ("trace_state_strong_ref", "trace_state", "axis_env_state")


class _Value(NamedTuple):
    """How a value that JAX keeps for each thread is read and written; `changed`, if any, is called with a new value."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    changed: Callable[[Any], None] | None


@lru_cache(maxsize=1)
def _values(jax: ModuleType) -> tuple[Sequence[_Value], Sequence[Callable[[], Any]], object]:
    # How each value is read and written; the reading functions alone; and the object that is read for no value.
    inner = getattr(jax, "_src", None)
    config, core = getattr(inner, "config", None), getattr(inner, "core", None)
    objects = [*vars(jax).values(), *[getattr(config, name, None) for name in _CONFIG],
               *[getattr(core, name, None) for name in _CORE]]
    values = [_Value(state.get_local, state.set_local, getattr(state, "_update_thread_local_hook", None))
              for state in objects if hasattr(state, "get_local") and hasattr(state, "set_local")]
    return values, [value.read for value in values], getattr(getattr(config, "config_ext", None), "unset", None)


def contexts() -> list[Any] | None:
    """What JAX's context managers have set in this thread; None where JAX is only being imported."""
    jax: Any = modules.get("jax")
    if not hasattr(jax, "Array"):
        return None
    return [read() for read in _values(jax)[1]]


def set_contexts(wanted: list[Any] | None, now: list[Any] | None = None) -> None:
    """Puts back what `contexts` returned.

    Args:
        wanted: what `contexts` has returned; None, from before JAX was imported, is that of a new thread.
        now: what `contexts` has just returned in this thread; None where something else may have run since.
    """
    now = now or contexts()
    if now is None:
        return
    values, _, nothing = _values(modules["jax"])
    wanted = wanted or [nothing] * len(values)
    if all(map(operator.is_, wanted, now)):
        return
    for value, before, after in zip(values, now, wanted, strict=True):
        if after is not before:
            value.write(after)
            if value.changed is not None:
                value.changed(None if after is nothing else after)


def compiles() -> bool:
    """Whether JAX compiles the function that runs: what it reads becomes a part of it, and it does not run again.

    Not where `jax.grad` or `jax.vmap` runs a function, which happens at every call.
    """
    jax: Any = modules.get("jax")
    if not hasattr(jax, "Array"):
        return False
    # The first check is fast but undocumented; the second one is documented, and makes an array.
    context = getattr(getattr(getattr(jax, "_src", None), "core", None), "trace_ctx", None)
    at_top = getattr(context, "is_top_level", None)
    return not (at_top and at_top()) and isinstance(jax.numpy.add(0, 0), jax.core.Tracer)


def is_in_callback() -> bool:
    """Whether compiled code has called what runs (`jax.pure_callback`, `jax.experimental.io_callback`).

    XLA ends the process where another replica runs compiled code meanwhile.  What tells are the frames of this replica.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "jax._src.callback":
            return True
    return False


def refuse_in_compiled(attempted: object) -> None:
    """Raises where JAX compiles what runs.

    Raises:
        RD09: it does; what was attempted would happen once, when the function is compiled.
    """
    if compiles():
        raise errors.error("RD09", str(attempted), "it was called in a function that JAX compiles, which runs only "
                           "when it is compiled",
                           "Call it outside `jax.jit`, with the arrays that the function returns.")
