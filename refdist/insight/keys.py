"""Keys of JAX that a program makes, derives and draws with: on which replica, at which line.

So do seeds of `tf.random.stateless_*`.

A key always gives the same numbers.  So replicas that draw with one key get the same, which nothing that is computed
from them shows.  What JAX traces is traced once for all replicas, with a key whose value is not known then: of it only
where it is drawn, and what else was done with keys, can be said.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from refdist.core import call_site, context_stack
from refdist.insight.imports import when_imported

_MAKING = ("key", "PRNGKey")
_DERIVING = ("fold_in", "split")
_MOST = 1000
SEEDS = "tf.random.stateless_"  # what their functions are called here begins with it
_OF_SEEDS = ("fractions", "normal", "truncated_normal", "uniform", "categorical")


class Key(NamedTuple):
    """A key was made, derived or drawn with.

    Attributes:
        what: the function: "key", "fold_in", "split", "bernoulli"; "tf.random.stateless_normal".
        line: of the program.
        replica: which replica does it; None for the program.
        key: the numbers of the key, as text; where it is made, the seed; None where JAX traces.
        shape: of what was drawn; of a split, how many keys; None otherwise.
    """

    what: str
    line: str
    replica: int | None
    key: str | None = None
    shape: str | None = None

    @property
    def is_made(self) -> bool:
        """Whether it was made from a seed."""
        return self.what in _MAKING

    @property
    def is_drawn(self) -> bool:
        """Whether random numbers were drawn with it."""
        return self.what not in (*_MAKING, *_DERIVING)


class Keys:
    """Watches JAX's keys from now on, or from when JAX is imported; for a process that does nothing else.

    Attributes:
        found: what happened, each once.
    """

    def __init__(self) -> None:
        self.found: dict[Key, None] = {}
        when_imported("jax.random", self._watch)
        when_imported("refdist.tf.stateless", self._watch_seeds)

    def _watch(self, module: ModuleType) -> None:
        for name in dir(module):
            function = getattr(module, name)
            if name in _MAKING or name in _DERIVING or _takes_a_key(function):
                setattr(module, name, self._watched(name, function))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            line = _line()
            if line is not None:
                key = _numbers(next(iter((*args, *kwargs.values()))))
                shape = str(result.shape[0]) if name == "split" else str(tuple(result.shape))
                self._add(Key(name, line, _replica(), key, shape))
            return result

        return call

    def _watch_seeds(self, module: ModuleType) -> None:
        for name in _OF_SEEDS:
            setattr(module, name, self._with_seeds(name, getattr(module, name)))

    def _with_seeds(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(of: Any, *args: Any) -> Any:
            result = function(of, *args)
            if sys._getframe(1).f_code.co_name not in _DERIVING:
                seed = np.asarray(args[_OF_SEEDS.index(name) == 4]).tolist()
                self._add(Key(f"{SEEDS}{name}", str(call_site.that_led_here()[0]), _replica(), str(seed),
                              str(tuple(result.shape))))
            return result

        return call

    def _add(self, key: Key) -> None:
        if len(self.found) < _MOST:
            self.found[key] = None


def _takes_a_key(function: object) -> bool:
    if not inspect.isfunction(function) or function.__name__ in ("key_data", "key_impl", "clone"):
        return False
    return next(iter(inspect.signature(function).parameters), None) == "key"


def _numbers(key: Any) -> str | None:
    # Of a key, or the seed of one.
    jax: Any = sys.modules["jax"]
    if isinstance(key, jax.core.Tracer):
        return None
    of_its_own = jax.numpy.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key)
    return str(np.asarray(jax.random.key_data(key) if of_its_own else key).tolist())


def _replica() -> int | None:
    context = context_stack.frame().replica
    return None if context is None else context.replica_id_in_sync_group


def _line() -> str | None:
    # Of the program, whatever library lies between; None where JAX or refdist does it for itself.
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(call_site.INSTALLED):
        if frame.f_globals.get("__name__", "").startswith("jax."):
            return None
        frame = frame.f_back
    if frame is None or call_site.is_ours(frame.f_globals.get("__name__", "")):
        return None
    return str(call_site.of_one(frame.f_code, frame.f_lasti))
