"""Random numbers that a program draws from NumPy and Python: from which generator, on which replica, at which line.

Of PyTorch only the seeds are seen, and whether the global generator has another state after a replica has run, or at
the end of a program that has not seeded it.  JAX's keys are watched by `keys.py`.

refdist's own generators have a stream for each replica.  Those of NumPy and Python know no replicas: what one replica
draws, another does not get, so that the order in which replicas run decides; and generators that replicas seed alike
give all of them the same.  Neither is an error, and no recording has it.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from refdist.core import call_site, context_stack
from refdist.insight.imports import when_imported

GLOBAL = "global"
PYTORCH = "PyTorch"
_SEEDS = {"seed", "setstate", "set_state"}
_METHODS = ("random", "normal", "standard_normal", "uniform", "integers", "choice", "permutation", "shuffle",
            "permuted", "exponential", "binomial", "poisson", "beta", "gamma", "bytes")
# Of the generators that NumPy and Python had before.
_METHODS_OF_A_STATE = (*(name for name in _METHODS if name not in ("integers", "permuted")), "rand", "randn", "randint",
                       "random_sample")
# With `getrandbits`: a subclass of `random.Random` that overrides `random` alone would draw other integers.
_METHODS_OF_PYTHON = ("random", "getrandbits", "uniform", "randint", "randrange", "choice", "choices", "sample",
                      "shuffle", "gauss", "normalvariate")


class Draw(NamedTuple):
    """One use of a generator: numbers were drawn, or it was made or seeded.

    Attributes:
        made: the line at which the generator was made; GLOBAL for one of a module, PYTORCH for PyTorch's where the
            program has drawn from it and has not seeded it.
        maker: the replica that made it; None for the program.
        line: where this happens.
        replica: which replica does it; None for the program.
        seed: what it is seeded with, as text; None where numbers are drawn.
    """

    made: str
    maker: int | None
    line: str
    replica: int | None
    seed: str | None = None


class Draws:
    """Watches the generators that are made and used from now on; for a process that does nothing else.

    Attributes:
        found: what happened, each once.
    """

    def __init__(self) -> None:
        self.found: dict[Draw, None] = {}
        self._state: Any = None  # of PyTorch's global generator
        self._unseeded: Any = None  # its state when it was imported
        self._seeding: set[int | None] = set()  # replicas that seed it, of which each has a state of its own
        # Its generators that the program has made outside replicas: where, and their states.
        self._generators: dict[Any, tuple[str, Any]] = {}
        for module, owner in ((random, random._inst), (np.random, np.random.mtrand._rand)):
            for name in dir(module):
                method = getattr(module, name)
                if getattr(method, "__self__", None) is owner and not name.startswith(("_", "get")):
                    setattr(module, name, self._of_a_module(name, method))
        for name in ("seed", "sample", "ranf"):  # functions, in NumPy 2
            setattr(np.random, name, self._of_a_module(name, getattr(np.random, name)))
        make = np.random.default_rng

        @functools.wraps(make)
        def default_rng(seed: Any = None) -> np.random.Generator:
            line = _line()
            generator = make(seed)
            if line is None or isinstance(seed, np.random.Generator):
                return generator
            maker = _replica()
            self._add(Draw(line, maker, line, maker, repr(seed)))
            return _watched(generator, lambda at: self._add(Draw(line, maker, at, _replica())))

        np.random.default_rng = default_rng
        np.random.RandomState = self._of_states(  # type: ignore[misc]
            np.random.RandomState, _METHODS_OF_A_STATE)
        random.Random = self._of_states(random.Random, _METHODS_OF_PYTHON)  # type: ignore[misc]
        when_imported("torch", self._watch)

    def at_the_end(self) -> None:
        """Notes whether the program has drawn from PyTorch's generator, and has not seeded it."""
        if self._unseeded is not None and not self._seeding and not bool(
                (sys.modules["torch"].default_generator.get_state() == self._unseeded).all()):
            self._add(Draw(PYTORCH, None, "", None))

    def _of_states(self, kind: Any, names: Sequence[str]) -> Any:
        # A subclass of a class of generators that counts generators of that class as instances.
        watching = self

        def is_instance(_: Any, value: object) -> bool:
            return isinstance(value, kind)

        def init(generator: Any, seed: Any = None) -> None:
            line = _line()
            generator._made_at = None if line is None else (line, _replica())
            if line is not None:
                watching._add(Draw(line, _replica(), line, _replica(), repr(seed)))
            kind.__init__(generator, seed)

        def method(name: str) -> Callable[..., Any]:
            def call(generator: Any, *args: Any, **kwargs: Any) -> Any:
                line = _line()
                if line is not None and generator._made_at is not None:
                    place, maker = generator._made_at
                    watching._add(Draw(place, maker, line, _replica()))
                return getattr(kind, name)(generator, *args, **kwargs)

            return call

        metaclass = type("type", (type(kind),), {"__instancecheck__": is_instance})
        return metaclass(kind.__name__, (kind,), {
            "__init__": init, "__module__": kind.__module__, **{name: method(name) for name in names}})

    def _watch(self, torch: Any) -> None:
        self._unseeded = torch.default_generator.get_state()
        torch.manual_seed = self._of_a_seed(torch.manual_seed)
        torch.Generator = self._of_generators(torch.Generator)

    def of_a_run(self) -> None:
        """Notes the states of PyTorch's generators, where that is imported, before replicas run."""
        torch: Any = sys.modules.get("torch")
        if not hasattr(torch, "default_generator"):
            return
        self._state = torch.default_generator.get_state()
        for generator, (place, _) in list(self._generators.items()):  # the program may have drawn, too
            self._generators[generator] = place, generator.get_state()

    def of_a_replica(self, replica: int, line: str) -> None:
        """Checks whether a replica has drawn from PyTorch's generators, in the run that began at this line."""
        if self._state is None:
            return
        for generator, (place, before) in list(self._generators.items()):
            state = generator.get_state()
            if not bool((state == before).all()):
                self._generators[generator] = place, state
                self._add(Draw(place, None, line, replica))
        if replica in self._seeding:
            return
        state = sys.modules["torch"].default_generator.get_state()
        if not bool((state == self._state).all()):
            self._state = state
            self._add(Draw(GLOBAL, None, line, replica))

    def _of_a_seed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._seed(_line(), next(iter((*args, *kwargs.values())), None))
            self._seeding.add(_replica())
            return function(*args, **kwargs)

        return call

    def _of_generators(self, kind: Any) -> Any:
        # A subclass of PyTorch's generator that counts PyTorch's own generators as instances.
        def is_instance(_: Any, value: object) -> bool:
            return isinstance(value, kind)

        def manual_seed(generator: Any, seed: Any) -> Any:
            # Keras makes a generator for each draw.
            if not call_site.is_between(sys._getframe(1).f_globals.get("__name__", "")):
                self._seed(_line(), seed)
            return kind.manual_seed(generator, seed)

        def make(of: Any, *args: Any, **kwargs: Any) -> Any:
            generator = kind.__new__(of, *args, **kwargs)
            line = _line()
            if line is not None and _replica() is None and len(self._generators) < 1000:
                self._generators[generator] = line, generator.get_state()
            return generator

        metaclass = type("type", (type(kind),), {"__instancecheck__": is_instance})
        return metaclass("Generator", (kind,), {"__new__": make, "manual_seed": manual_seed, "__module__": "torch"})

    def _seed(self, line: str | None, seed: object) -> None:
        if line is not None and isinstance(seed, (int, np.integer)):
            self._add(Draw(line, _replica(), line, _replica(), repr(int(seed))))

    def _add(self, draw: Draw) -> None:
        if len(self.found) < 1000:
            self.found[draw] = None

    def _of_a_module(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            line = _line()
            if line is not None:
                seed = repr((*args, *kwargs.values())[0]) if name in _SEEDS and (args or kwargs) else None
                self._add(Draw(GLOBAL, None, line, _replica(), seed))
            return method(*args, **kwargs)

        return call


def _watched(generator: np.random.Generator, tell: Callable[[str], None]) -> np.random.Generator:
    # Each watched generator has a class of its own, because code in C looks methods up in the class.
    def method(name: str) -> Callable[..., Any]:
        def call(self: np.random.Generator, *args: Any, **kwargs: Any) -> Any:
            line = _line()
            if line is not None:
                tell(line)
            return getattr(np.random.Generator, name)(self, *args, **kwargs)

        return call

    kind = type("Generator", (np.random.Generator,), {name: method(name) for name in _METHODS})
    watched: np.random.Generator = kind(generator.bit_generator)
    return watched


def _replica() -> int | None:
    context = context_stack.frame().replica
    return None if context is None else context.replica_id_in_sync_group


def _line() -> str | None:
    """The program's line that makes the call, itself or through a library; None if refdist or an import makes it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_globals.get("__name__") == __name__
                                 or frame.f_code.co_filename.startswith(call_site.INSTALLED)):
        frame = frame.f_back
    if frame is None or call_site.is_ours(frame.f_globals.get("__name__", "")) or frame.f_code.co_filename.startswith(
            "<frozen importlib"):
        return None
    return str(call_site.of_one(frame.f_code, frame.f_lasti))
