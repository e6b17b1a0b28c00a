"""The part of `tf.random` that concerns distribution: generators with a stream of numbers for each replica.

The generator is counter based: a number is a function of a key and a counter (`philox.py`), so the state is three
int64, two of counter and one of key, and drawing n numbers is computing them and adding to the counter.  There is
nothing else to keep, save or send, which decides how generators behave under a strategy:

* The state is a variable, so it is saved with a checkpoint, and the scope in which a generator is made decides which
  replicas share it.  Made outside any scope, it is one stream, from which replicas draw in turn in the order in which
  they run.  Of a variable that is passed as the state, its own scope decides who shares it, and that of the generator
  still decides whether the replicas' numbers differ.
* Made in the scope of a strategy, it is synchronized on read: every replica has a copy of the same state and advances
  it alone, without waiting for the others.  A replica that draws more than the others is not an error, because
  copies need not be equal.
* So that replicas draw different numbers from equal states, each derives its own key: the first 64 bits of the stream
  at the counter of its global replica id.  The numbers of a replica depend on the seed, its id and how many it has
  drawn, and not on the worker or device that it runs on, nor on how many replicas there are.
* Made in the scope of a CentralStorageStrategy, it has one state, which the replicas advance together: once, for all
  of them, by what replica 0 draws.
* Across replicas, `skip` and drawing advance all copies, with the key as it is: a stream that belongs to none of the
  replicas.

A draw reserves `philox.RESERVED` counters for each number, used or not, because a distribution that rejects values
needs an unknown number of them.  The numbers are TensorFlow's to the bit, except the last bits of some normal
deviates of float64.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import DTypeLike

from refdist import errors
from refdist.array import philox
from refdist.array.backend import constant, current_backend
from refdist.array.convert import to_array, to_numpy
from refdist.array.types import Array
from refdist.core import context_stack, lockstep
from refdist.core.agreement import NOTHING_TO_COMPARE, CollectiveCall, contribution_of
from refdist.core.rules.options import VariableAggregation, VariableSynchronization
from refdist.core.rules.variables import Keeps
from refdist.missing import lacks
from refdist.random import state as random_state
from refdist.random.state import Algorithm, create_rng_state
from refdist.runtime import Field
from refdist.variables.access import different
from refdist.variables.distributed import AggregatingVariable, MirroredVariable, SyncOnReadVariable
from refdist.variables.sharded import ShardedVariable
from refdist.variables.values import Mirrored
from refdist.variables.variable import ResourceVariable, Variable

__all__ = ["Algorithm", "Generator", "create_rng_state", "get_global_generator", "set_global_generator"]

_REAL = ("float16", "float32", "float64")
_RANGED = ("int32", "int64")
_WHOLE = ("int32", "int64", "uint32", "uint64")


class Draw(Protocol):
    """A function of `philox` for `count` numbers of a distribution."""

    def __call__(self, key: int, counter: int, count: int, dtype: np.dtype[np.generic], /) -> Any: ...


@lacks({"binomial": "Write `np.random.default_rng(seed).binomial(counts, probs, shape)`."})
class Generator:
    """Random numbers: the same in every run from the same seed, and different ones in each replica.

    Args:
        copy_from: a generator whose state is copied.
        state: three int64, two of counter and one of key; a variable is not copied but becomes the state.
        alg: "philox", or an Algorithm, or its number.

    `from_seed`, `from_state`, `from_key_counter` and `from_non_deterministic_state` make generators too.  If it is made
    in the scope of a strategy, every replica draws from its own stream, whichever worker it runs on, and code outside
    replicas draws from another.  If it is made outside any scope, replicas draw in turn from one stream.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> with strategy.scope():
    ...     generator = refdist.random.Generator.from_seed(1234)
    >>> strategy.run(lambda: generator.uniform([2], 0, 100, "int32")).values
    (array([24, 24], dtype=int32), array([74, 53], dtype=int32))

    Raises:
        RD20: the algorithm is ThreeFry, or a partitioner splits the state.  RD25, RD34: a state of another size, an
            unknown algorithm, or several sources.

    Source: tf.random.Generator.
    """

    def __init__(self, copy_from: Generator | None = None, state: object = None, alg: object = None) -> None:
        attempted = "Generator"
        self._strategy = cast(Any, context_stack.frame().strategy)
        # Whether all replicas advance one state at once.
        self._together = self._strategy is not None and self._strategy.extended._keeps is Keeps.CENTRAL
        if copy_from is not None:
            if state is not None or alg is not None or not isinstance(copy_from, Generator):
                raise errors.error("RD34", attempted, f"copy_from is {copy_from!r}, state {state!r}, alg {alg!r}",
                                   "Pass another generator alone, or a state and an algorithm.")
            state, self._alg = copy_from.state.numpy(), copy_from.algorithm
        else:
            self._alg = random_state.algorithm(alg, attempted)
        if isinstance(state, Variable):
            random_state.check(state.shape, state.dtype, attempted)
            self._state = state
        else:
            # Replicas write their copies independently; a checkpoint and cross-replica code see the first copy.
            self._state = Variable(random_state.state_of(state, attempted), trainable=False, name="StateVar",
                                   synchronization=VariableSynchronization.ON_READ,
                                   aggregation=VariableAggregation.ONLY_FIRST_REPLICA)
        if isinstance(self._state, ShardedVariable):
            raise errors.error("RD20", attempted, "the variable_partitioner of the strategy splits its state into "
                               f"{len(self._state.variables)} parts", "Pass the strategy a partitioner that leaves "
                               "small variables whole, such as MinSizePartitioner().", kind=errors.InvalidValueError)

    @classmethod
    def from_state(cls, state: object, alg: object) -> Generator:
        """A generator with this state.

        Args:
            state: three int64, two of counter and one of key; a variable becomes the state.
            alg: "philox", or an Algorithm, or its number.

        Source: tf.random.Generator.from_state.
        """
        return cls(alg=alg, state=state)

    @classmethod
    def from_seed(cls, seed: object, alg: object = None) -> Generator:
        """A generator whose state is computed from one int or several.

        Args:
            seed: an int, or a sequence of them.
            alg: "philox", or an Algorithm, or its number.  None is "philox".

        Source: tf.random.Generator.from_seed.
        """
        alg = random_state.algorithm(Algorithm.PHILOX if alg is None else alg, "Generator.from_seed")
        return cls(state=create_rng_state(seed, alg), alg=alg)

    @classmethod
    def from_non_deterministic_state(cls, alg: object = None) -> Generator:
        """A generator with random state from the operating system, the same for all replicas of the strategy.

        Args:
            alg: "philox", or an Algorithm, or its number.  None is "philox".

        Source: tf.random.Generator.from_non_deterministic_state.
        """
        alg = random_state.algorithm(Algorithm.PHILOX if alg is None else alg, "Generator.from_non_deterministic_state")
        return cls(state=np.frombuffer(os.urandom(8 * random_state.SIZE), np.int64), alg=alg)

    @classmethod
    def from_key_counter(cls, key: object, counter: object, alg: object) -> Generator:
        """A generator with this key, an int, and this counter, two ints.

        Args:
            key: an int.
            counter: two ints.
            alg: "philox", or an Algorithm, or its number.

        Source: tf.random.Generator.from_key_counter.
        """
        return cls(state=random_state.of_key_counter(key, counter, "Generator.from_key_counter"), alg=alg)

    def reset(self, state: object) -> None:
        """Replaces the state.

        Args:
            state: three integers of 64 bits, or an array of them of shape [3]: two for the counter, one for the key.

        Raises:
            RD25, RD34: not integers, or not three.
        """
        self._state.assign(random_state.state_of(state, "Generator.reset"))

    def reset_from_seed(self, seed: object) -> None:
        """Replaces the state with that of `from_seed`.

        Args:
            seed: an int, or a sequence of them.
        """
        self._state.assign(create_rng_state(seed, self._alg))

    def reset_from_key_counter(self, key: object, counter: object) -> None:
        """Replaces the state with that of `from_key_counter`.

        Args:
            key: an int.
            counter: two ints.
        """
        self._state.assign(random_state.of_key_counter(key, counter, "Generator.reset_from_key_counter"))

    @property
    def state(self) -> Any:
        """The state, a variable: two int64 of counter and one of key."""
        return self._state

    @property
    def algorithm(self) -> int:
        """The number of the algorithm, a value of `Algorithm`."""
        return self._alg

    @property
    def key(self) -> Any:
        """The key, an int64 scalar."""
        return self._state[-1]

    def _checkpoint_items(self) -> dict[str, Any]:
        # TensorFlow's name.
        return {"_state_var": self._state}

    def skip(self, delta: object) -> Any:
        """Advances the state by `delta` numbers and returns the previous state, int64 of shape [3].

        Outside replicas the copies of all replicas are advanced.

        Args:
            delta: an int, or an integer array of shape [].

        Raises:
            RD10: a replica or scope of another strategy.  RD25: not an int.

        Source: tf.random.Generator.skip.
        """
        steps = to_numpy(to_array(delta))
        if steps.ndim or steps.dtype.kind not in "iu":
            raise errors.error("RD25", "Generator.skip", f"delta is {delta!r}", "Pass an int.")
        return self._skip(int(steps))

    def _skip(self, count: int) -> Any:
        state, strategy = self._state, self._state._strategy
        for owner in filter(None, (self._strategy, strategy)):
            if context_stack.situation(owner) in (context_stack.OTHER_CROSS, context_stack.OTHER_REPLICA):
                raise errors.error("RD10", "drawing random numbers", f"the generator belongs to a "
                                   f"{type(owner).__name__}, and the code runs {context_stack.describe()}",
                                   "Make the generator in the scope of the strategy that uses it.")
        replica = context_stack.frame().replica if strategy is not None or self._strategy is not None else None
        if replica is not None and (self._together or isinstance(state, MirroredVariable)):
            call = CollectiveCall("drawing random numbers", NOTHING_TO_COMPARE, (state, count), _agree)
            return lockstep.rendezvous(context_stack.frame().run, call)
        if replica is None and isinstance(state, (MirroredVariable, AggregatingVariable)):
            return _advance_together(state, count)
        if strategy is None or replica is not None:
            # The replica's own state; or one for all callers, in the order of the calls.
            return _advance(state._local_copy() if isinstance(state, SyncOnReadVariable) else state._primary, count)
        return strategy.extended.update(state, _advance, (count,))

    def _stream(self, count: int) -> tuple[int, int]:
        # The key and the counter for `count` numbers, which are now reserved.
        before = self._skip(count)
        low, high, key = map(int, to_numpy(before._read() if isinstance(before, Mirrored) else before).view(np.uint64))
        replica = context_stack.frame().replica
        if self._strategy is not None and replica is not None:
            key = int(philox.bits(key, replica.replica_id_in_sync_group, 1, 8)[0])
        return key, low | high << 64

    def normal(self, shape: object, mean: object = 0.0, stddev: object = 1.0, dtype: DTypeLike = np.float32,
               name: str | None = None) -> Any:
        """Numbers of a normal distribution.

        Args:
            shape: ints.
            mean, stddev: numbers, or arrays that can be broadcast to the shape.
            dtype: float16, float32 or float64.
            name: without effect.

        Returns:
            An array of that shape and dtype, to the bit TensorFlow's on Linux; of float64 the last bits may differ.

        Raises:
            RD04: `mean` or `stddev` cannot be broadcast.  RD25, RD34: bad arguments.

        Source: tf.random.Generator.normal.
        """
        return self._scaled(philox.normal, "Generator.normal", shape, mean, stddev, dtype)

    def truncated_normal(self, shape: object, mean: object = 0.0, stddev: object = 1.0, dtype: DTypeLike = np.float32,
                         name: str | None = None) -> Any:
        """As `normal`, without numbers more than two standard deviations from the mean.

        Args:
            shape: of the result, a sequence of ints.
            mean, stddev: numbers or arrays that broadcast to `shape`.
            dtype: float16, float32 or float64.
            name: without effect.

        Source: tf.random.Generator.truncated_normal.
        """
        return self._scaled(philox.truncated_normal, "Generator.truncated_normal", shape, mean, stddev, dtype)

    def _scaled(self, draw: Draw, attempted: str, shape: object, offset: object, factor: object,
                dtype: DTypeLike) -> Any:
        sizes, dtype = _shape(shape, attempted), _dtype(dtype, _REAL, attempted)
        offset, factor = (_fitting(value, sizes, dtype, attempted) for value in (offset, factor))
        count = math.prod(sizes)
        return constant(draw(*self._stream(count), count, dtype).reshape(sizes) * factor + offset)

    def uniform(self, shape: object, minval: object = 0, maxval: object = None, dtype: DTypeLike = np.float32,
                name: str | None = None) -> Any:
        """Uniformly distributed numbers from `minval` to `maxval`, without `maxval` itself.

        Args:
            shape: ints.
            minval, maxval: numbers; for floats also arrays that can be broadcast to the shape, and `maxval` None is 1.
                Both None mean all values of an integer dtype.
            dtype: float16, float32, float64, int32 or int64; if both bounds are None also uint32 or uint64.
            name: without effect.

        Returns:
            An array of that shape and dtype, equal to TensorFlow's to the bit.

        Raises:
            RD04: the bounds cannot be broadcast.  RD25, RD34: bad arguments.

        Source: tf.random.Generator.uniform.
        """
        attempted = "Generator.uniform"
        dtype = _dtype(dtype, (*_REAL, *_WHOLE), attempted)
        if dtype.kind == "f":
            low, high = (_fitting(value, _shape(shape, attempted), dtype, attempted)
                         for value in (minval, 1 if maxval is None else maxval))
            return self._scaled(philox.uniform, attempted, shape, low, high - low, dtype)
        if minval is None and maxval is None:
            return self._bits(attempted, shape, dtype)
        _dtype(dtype, _RANGED, attempted)
        sizes = _shape(shape, attempted)
        low, high = (_bound(value, attempted) for value in (minval, maxval))
        limits = np.iinfo(dtype)
        if not limits.min <= low < high <= limits.max:
            raise errors.error("RD34", attempted, f"minval is {low} and maxval {high}, for {dtype}",
                               "Pass a minval below maxval, both in the range of the dtype.",
                               kind=errors.InvalidArgumentError)
        words = self._words(sizes, dtype)
        return constant((words % words.dtype.type(high - low) + words.dtype.type(low & 2**(8 * dtype.itemsize) - 1))
                        .view(dtype).reshape(sizes))

    def uniform_full_int(self, shape: object, dtype: DTypeLike = np.uint64, name: str | None = None) -> Any:
        """Integers from the whole range of a dtype: int32, int64, uint32 or uint64.

        Args:
            shape: of the result, a sequence of ints.
            dtype: of the result.
            name: without effect.

        Source: tf.random.Generator.uniform_full_int.
        """
        attempted = "Generator.uniform_full_int"
        return self._bits(attempted, shape, _dtype(dtype, _WHOLE, attempted))

    def _bits(self, attempted: str, shape: object, dtype: np.dtype[np.generic]) -> Any:
        sizes = _shape(shape, attempted)
        return constant(self._words(sizes, dtype).view(dtype).reshape(sizes))

    def _words(self, sizes: tuple[int, ...], dtype: np.dtype[np.generic]) -> Any:
        count = math.prod(sizes)
        return philox.bits(*self._stream(count), count, dtype.itemsize)

    def make_seeds(self, count: int = 1) -> Any:
        """Seeds for functions that take a pair of int64.

        Args:
            count: how many.

        Returns:
            int64, shape [2, count]; the second row is 0.

        Source: tf.random.Generator.make_seeds.
        """
        keys = self._bits("Generator.make_seeds", [count], np.dtype(np.int64))
        seeds = np.zeros((2, count), np.int64)
        seeds[0] = to_numpy(keys)
        return constant(seeds)

    def split(self, count: int = 1) -> list[Generator]:
        """New generators whose numbers are independent of this one's and of each other; this one is advanced.

        Args:
            count: how many.

        Source: tf.random.Generator.split.
        """
        keys = to_numpy(self._bits("Generator.split", [count], np.dtype(np.int64)))
        return [Generator(state=[0, 0, int(key)], alg=self._alg) for key in keys]


_global: Field[Generator | None] = Field("the global generator; None until one is asked for", lambda: None,
                                         per_worker=True)


def _advance(copy: ResourceVariable, count: int) -> Any:
    # In one step, so that no two threads draw the same numbers; what it was before follows from what it is.
    after = copy._change(lambda now: _after(now, count, copy._device), at_once=True)
    return random_state.advanced(after, -count)


def _advance_together(state: MirroredVariable | AggregatingVariable, count: int) -> Any:
    # As `_advance`, of all copies of a variable whose copies are equal at all times.
    after = state._change_copies(lambda first, arrays: tuple(
        [_after(array, count, state._devices[first + i]) for i, array in enumerate(arrays)]))
    before = [random_state.advanced(array, -count) for array in after]
    return Mirrored(before, state._devices) if len(before) > 1 else before[0]


def _agree(calls: list[CollectiveCall]) -> Sequence[Any]:
    # What replicas draw together from one state: equally many numbers, unless its one copy is replica 0's to update.
    attempted = calls[0].kind
    states, counts = zip(*map(contribution_of, calls), strict=True)
    state = states[0]
    if len({*map(id, states)}) > 1:
        raise different(attempted, states)
    if isinstance(state, MirroredVariable):
        if len(set(counts)) > 1:
            raise errors.error("RD12", attempted, f"replicas draw {', '.join(map(str, counts))} numbers from one state",
                               "Draw equally many on every replica, or make the generator in the strategy's scope with "
                               "`from_seed`.")
        drawn = np.array(counts[:1])
        state._strategy.extended.transport.check_same_bits(calls[0], drawn, str)
    if not isinstance(state, (MirroredVariable, AggregatingVariable)):
        return [_advance(state._primary, counts[0])] * len(calls)
    before = _advance_together(state, counts[0])
    return before.values if isinstance(before, Mirrored) else [before] * len(calls)


def _after(state: Array, count: int, device: str) -> Any:
    return current_backend().put(random_state.advanced(state, count), device)


def get_global_generator() -> Generator:
    """The generator that was set with `set_global_generator`, else one with random state.

    It is created by the first call, in the scope of that call; every simulated worker has its own.

    Source: tf.random.get_global_generator.
    """
    if _global.value is None:
        _global.value = Generator.from_non_deterministic_state()
    return _global.value


def set_global_generator(generator: Generator | None) -> None:
    """Replaces the global generator; after None the next `get_global_generator` makes a new one.

    Args:
        generator: a Generator, or None.

    Raises:
        RD25: neither a generator nor None.

    Source: tf.random.set_global_generator.
    """
    if generator is not None and not isinstance(generator, Generator):
        raise errors.error("RD25", "set_global_generator", f"got {generator!r}", "Pass a Generator.")
    _global.value = generator


def _dtype(dtype: DTypeLike, known: Sequence[str], attempted: str) -> np.dtype[Any]:
    try:
        parsed: np.dtype[Any] | None = np.dtype(dtype)
    except TypeError:
        parsed = None
    if parsed is None or parsed.name not in known:
        raise errors.error("RD25", attempted, f"dtype is {dtype!r}", f"Pass one of {', '.join(known)}.")
    return parsed


def _shape(shape: object, attempted: str) -> tuple[int, ...]:
    if isinstance(shape, (list, tuple)) and not shape:
        return ()
    sizes = to_numpy(to_array(shape))
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 0).any():
        raise errors.error("RD34", attempted, f"shape is {shape!r}", "Pass a list of ints of 0 or more.",
                           kind=errors.InvalidArgumentError)
    return tuple(map(int, sizes))


def _bound(value: object, attempted: str) -> int:
    array = None if value is None else to_numpy(to_array(value))
    if array is None or array.ndim or array.dtype.kind not in "iu":
        raise errors.error("RD34", attempted, f"minval or maxval is {value!r}",
                           "Pass two ints for an integer dtype, or None for both.")
    return int(array)


def _fitting(value: object, sizes: tuple[int, ...], dtype: np.dtype[np.generic], attempted: str) -> Any:
    array = to_numpy(to_array(value, dtype))
    try:
        np.broadcast_to(array, sizes)
    except ValueError as error:
        raise errors.error("RD04", attempted, f"{value!r} cannot be broadcast to shape {list(sizes)}",
                           "Pass a number, or an array of that shape.") from error
    return array
