"""The contract of a backend: devices of this process and arrays on them; and how one is found and chosen.

refdist computes little itself: it decides which arrays are combined, in which order, and where the results go.  The
rest is a backend's.  A backend knows no replicas; it gets one array per device, in replica order, and returns arrays.
Its verbs are those of MPI and NCCL.

What is asked of arrays is divided in two.  What the array API standard has is used directly, by the functions of the
array's own module.  What it does not have is a method here: moving an array between devices, making it read-only,
telling NumPy its values, and sums in an order that is promised.  Nothing else is known of a library, so that a
backend over array_api_strict, which has nothing else, passes the conformance suite.

Invariants:

* Sums go from left to right over the list (`ordered_sum` says why); a default that is written in the standard and a
  backend's own kernel have the same bits.
* Arguments are never changed and results are read-only.  Replicas and copies of variables share arrays because of it.
* `freeze` returns an array that it has frozen before as the same object: `is_immutable` asks nothing else.
* NumPy's arrays are at home everywhere.  A program may pass one to any backend, and it becomes the backend's own when
  it is put on a device; so every method takes them.

Tried: nineteen methods of which fourteen were abstract, with the types of arrays in tables beside them.  Each backend
then inherited from the simulated one to have its NumPy code for arrays on the host.  With the defaults in the
standard four methods are abstract, and a backend for devices asks a simulated one for what happens on the host.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refdist import config, errors
from refdist.array import convert
from refdist.array.convert import (
    as_array,
    astype,
    copied,
    declare,
    dtype_of,
    frozen,
    kind_of,
    native,
    to_array,
    to_numpy,
    xp_of,
)
from refdist.array.types import Array
from refdist.core import context_stack
from refdist.core.states import MODES, State, States
from refdist.plugins import Plugins
from refdist.runtime import Field

BUILT_IN = {"gpu": "refdist.backends.gpu.backend:GPU", "jax": "refdist.backends.jax.backend:Jax",
            "simulated": "refdist.backends.simulated:Simulated", "torch": "refdist.backends.torch.backend:Torch"}
VARIABLE = "REFDIST_BACKEND"
_FLOAT32 = np.dtype(np.float32)


class Backend(ABC):
    """Devices of one process, the arrays on them, and the collectives between them.

    Four methods say what the standard has no words for, and every backend writes them: `xp`, `put`, `to_numpy` and
    `freeze`.  All others have a default, written in the standard; a backend overrides those that its library does
    faster or in another way, and those about devices where it has several memories or works asynchronously.

    All arrays passed together are on one device and have one dtype, unless a method says otherwise.  They are NumPy's
    or of `array_types`: what a program hands in is a NumPy array until it is put on a device.  Arguments are never
    changed; results are read-only, because several receivers may share them.

    Attributes:
        name: what it was chosen by.
        array_types: the types of its arrays, but for NumPy's.
        states: what each replica has of its own beside its context variables; refdist sets it, as the name.
        takes_guests: whether it also computes with the arrays of PyTorch and JAX, as what they are.
        makes_all: whether what a program makes or reads outside any device is an array of its own, too, not NumPy's.
    """

    name: str = ""
    array_types: tuple[type, ...] = ()
    states: States
    takes_guests: bool = False
    makes_all: bool = False

    def __deepcopy__(self, memo: dict[int, object]) -> Backend:
        return self  # a backend is not copied, because the devices of a process exist once

    # What every backend writes.

    @abstractmethod
    def xp(self, device: str = "") -> ModuleType:
        """The module for arrays on `device`, or on most devices: numpy, cupy."""

    @abstractmethod
    def put(self, array: Array, device: str) -> Any:
        """The array on `device` (a canonical name); the same object when it is there already.

        Args:
            array: of any shape and dtype, of this backend or NumPy's.
            device: a canonical name.
        """

    @abstractmethod
    def to_numpy(self, array: Array) -> Any:
        """The array as a numpy.ndarray; waits for it.

        Args:
            array: of any shape and dtype, which the result has, too.
        """

    @abstractmethod
    def freeze(self, array: Array) -> Any:
        """The values of `array` as an array that cannot be written to; itself where that is so already.

        `array` stays as writable as it was.

        Args:
            array: of any shape and dtype.
        """

    # Libraries without read-only arrays, or with another arithmetic than NumPy's.

    def functions(self) -> ModuleType:
        """An object with the standard's functions, as refdist calls them on arrays of this backend."""
        return self.xp()

    def lend(self, array: Array) -> Any:
        """For a receiver that must not change `array`: itself if it cannot be written to, else a copy.

        Args:
            array: of any shape and dtype.
        """
        return self.freeze(array)

    def item(self, array: Array, key: Any) -> Any:
        """What `array[key]` is: integers, slices, `...`, None and whatever else the library takes between brackets.

        Args:
            array: of any shape and dtype.
            key: what a program writes; the steps of its slices may be negative.
        """
        return array[key]

    def take(self, array: NDArray[np.generic], device: str) -> Any:
        """As `put`, for an array that nobody else holds, whose memory may be reused.

        Args:
            array: NumPy's, of any shape and dtype.
            device: a canonical name.
        """
        return self.put(array, device)

    def is_immutable(self, array: Array) -> bool:
        """Whether nobody can write to the array, so that it may be stored without a copy.

        Args:
            array: of any shape and dtype.
        """
        return self.freeze(array) is array

    # Devices.

    def counts(self) -> dict[str, int] | None:
        """How many devices of each type there are; None where every device exists that a program names."""
        return None

    def memory_space(self, device: str) -> Hashable:
        """The memory that `device` uses; devices with the same memory share arrays.

        Args:
            device: a canonical name.
        """
        return None

    def default_result_device(self, device: str) -> str:
        """The device of a result computed from values on `device`, where the caller names none."""
        return device

    def device(self, where: str | Array) -> AbstractContextManager[object]:
        """Makes a device, or that of an array, the current one of this thread for a `with` block."""
        return nullcontext()

    def put_all(self, arrays: Sequence[Array], devices: Sequence[str]) -> Sequence[Any]:
        """Puts each array on the device at the same index.

        Args:
            arrays: of any shapes and dtypes.
            devices: names, as many as arrays.
        """
        return [self.put(array, device) for array, device in zip(arrays, devices, strict=True)]

    def adopt(self, value: object) -> Any:
        """An array of another library, which has `__dlpack__`, as one of this backend; None leaves it to NumPy."""
        return None

    def refusal(self, value: object) -> str:
        """What to write instead of a value of the library that is not an array; "" for an array, or where not known."""
        return ""

    def use(self, device: str) -> None:  # noqa: B027 - for libraries with a current device
        """Makes a device the current one for a replica that begins."""

    def thread_state(self) -> State | None:
        """The state that the library keeps for a thread, and each replica has of its own; None without any."""
        return None

    def synchronize(self) -> None:  # noqa: B027 - nothing to wait for, unless a backend says otherwise
        """Waits until all work issued to the devices is done."""

    def between_workers(self, transport: Any, devices: Sequence[str]) -> Any:
        """The transport for arrays of this backend, given one that takes them through the host.

        Both are a `refdist.workers.transport.Transport`.  `devices` are this worker's, one for each of its replicas.
        """
        return transport

    # Arithmetic.

    def astype(self, array: Array, dtype: np.dtype[np.generic]) -> Any:
        """A new array with the values in another dtype, or a copy in the same one; it may be written to.

        Args:
            array: of any shape and dtype.
            dtype: that of the result.
        """
        return self.xp().astype(array, native(dtype, array))

    def zeros(self, shape: tuple[int, ...], like: Array) -> Any:
        """Zeros of the dtype of an array, on its device; they may be written to.

        Args:
            shape: of the zeros.
            like: an array of any shape, whose dtype and device they have.
        """
        array: Any = like
        return xp_of(like).zeros(shape, dtype=like.dtype, device=array.device)

    def sum(self, arrays: Sequence[Array]) -> Any:
        """Element-wise sum, left to right, on the first array's device; all of one shape and dtype.

        Args:
            arrays: at least one, of numbers.
        """
        total, *others = _together(arrays)
        for array in others:
            total = total + array
        return frozen(copied(total) if len(arrays) == 1 else total)

    def difference(self, array: Array, other: Array) -> Any:
        """`array - other`, of one shape, dtype and device.

        Args:
            array, other: of numbers.
        """
        array, other = _together([array, other])
        return frozen(array - other)

    def divide(self, total: Array, count: float, dtype: str | None = None) -> Any:
        """Divides `total` by a count, in a float or complex dtype; None means the dtype of `total`.

        Args:
            total: an array of any shape, of numbers.
            count: the number of things.
            dtype: the name of that of the result, or None.
        """
        total = total if dtype is None else astype(total, np.dtype(dtype))
        own = dtype_of(total)
        if own.itemsize >= 4:
            return frozen(total / float(count))
        # Dtypes narrower than float32 cannot represent every count.
        return frozen(astype(as_array(astype(total, _FLOAT32) / float(count)), own))

    def concatenate(self, arrays: Sequence[Array], axis: int) -> Any:
        """The arrays one after another along `axis`, on the first array's device.

        Args:
            arrays: at least one, of rank 1 or more, of one dtype and of one shape but for the length along `axis`.
            axis: an int in [-rank, rank).
        """
        return frozen(xp_of(arrays[0]).concat(_together(arrays), axis=axis))

    def broadcast(self, array: Array, devices: Sequence[str]) -> list[Any]:
        """The array on every device; devices of one memory share it.

        Args:
            array: of any shape and dtype.
            devices: canonical names.
        """
        copies: dict[Hashable, Any] = {}
        spaces = [self.memory_space(device) for device in devices]
        for space, device in zip(spaces, devices, strict=True):
            if space not in copies:
                copies[space] = frozen(self.put(array, device))
        return [copies[space] for space in spaces]

    def all_reduce(self, columns: Sequence[Sequence[Array]], devices: Sequence[str]) -> list[list[Any]]:
        """The sum of each column on every one of `devices`, where its arrays are put first.

        Args:
            columns: for each result one array for each of `devices`, of numbers of one shape and dtype.
            devices: canonical names, as many as arrays in a column.
        """
        results = []
        for arrays in columns:
            results.append(self.broadcast(self.sum(self.put_all(arrays, devices)), devices))
        return results

    def scatter(self, operation: str, array: Array, indices: Array, values: Array) -> Any:
        """A new array: `array` with rows changed one after another in the order of `indices`.

        Args:
            operation: "add", "sub", "mul", "div" (integers towards zero), "min", "max" or "update".
            array: shape [rows, ...].
            indices: integers of shape [n], each a row of `array`; they may repeat.
            values: shape [n, ...] and the array's dtype, on the same device.
        """
        xp, changed = xp_of(array), copied(array)
        array, indices, values = _together([array, indices, values])
        for i in range(indices.shape[0]):
            row = int(indices[i])
            changed[row, ...] = _row(xp, operation, changed[row, ...], values[i, ...])
        return frozen(changed)

    def expect_equal(self, first: Array, other: Array, complain: Callable[[], Exception]) -> None:
        """Raises `complain()` unless two arrays hold the same values, NaN beside NaN.

        A backend whose devices work on their own may raise it at a later call instead of waiting for them.

        Args:
            first, other: of any shapes and dtypes; other ones are other values.
            complain: makes the error.
        """
        if first is other:
            return
        same = other.shape == first.shape and other.dtype == first.dtype
        if same:
            first, other = _together([first, other])
            equal = first == other
            if kind_of(dtype_of(first)) in "fc":
                equal = equal | ((first != first) & (other != other))
            same = bool(xp_of(first).all(equal))
        if not same:
            raise complain()


def _together(arrays: Sequence[Array]) -> list[Any]:
    # Copies all arrays to the device of the first one.
    sources: list[Any] = [*arrays]
    device = sources[0].device
    return [array if array.device == device else array.to_device(device) for array in sources]


def _row(xp: ModuleType, operation: str, before: Array, value: Array) -> Any:
    # One row after an operation of `scatter`.
    old: Any = before
    new: Any = value
    if operation == "div" and kind_of(dtype_of(old)) in "iu":
        # Towards zero, as TensorFlow does; the standard's // rounds down.
        return xp.sign(old) * xp.sign(new) * (abs(old) // abs(new))
    if operation == "mul" and kind_of(dtype_of(old)) == "c":
        return xp.asarray(_product(to_numpy(old), to_numpy(new)), device=old.device)
    return {"add": lambda: old + new, "sub": lambda: old - new, "mul": lambda: old * new, "div": lambda: old / new,
            "min": lambda: xp.minimum(old, new), "max": lambda: xp.maximum(old, new),
            "update": lambda: new}[operation]()


def _product(left: NDArray[np.complexfloating], right: NDArray[np.complexfloating]) -> Any:
    # Each product of two parts is rounded, as `np.multiply.at` does; `*` fuses some with the sum, and others not.
    product = np.empty_like(left)
    product.real = left.real * right.real - left.imag * right.imag
    product.imag = left.real * right.imag + left.imag * right.real
    return product


chosen: Field[Backend | None] = Field("the backend in use; None until one is chosen or needed", lambda: None)
# Each backend is made once, so that a strategy always finds the same one.
made: Field[dict[str, Backend]] = Field("the backends made so far, by name", dict)


def current_backend() -> Backend:
    """The backend in use: the one that `set_backend` chose, else REFDIST_BACKEND, else the simulated one."""
    return chosen.value or _choose(os.environ.get(VARIABLE) or "simulated")


def named(name: str) -> Backend:
    """The backend of this name, which is made once.

    Raises:
        RD27: no such backend, or it cannot work here.
    """
    backend = made.value.get(name) or made.value.setdefault(name, find(name)())
    if not hasattr(backend, "states"):
        backend.name = name
        backend.states = States(MODES, backend.thread_state())
    return backend


def _choose(name: str) -> Backend:
    backend = named(name)
    convert.forget_guests()
    declare(backend)
    chosen.value = backend
    return backend


def set_backend(name: str) -> None:
    """Chooses where arrays live: "simulated" (pretend devices), "gpu", or one that a package offers.

    A strategy can only be used with the backend it was made with, so choose first; the default strategy follows.
    Its mirrored variables can still be read (`.numpy()`).

    Args:
        name: of the backend.

    >>> import refdist
    >>> refdist.set_backend("simulated")
    >>> refdist.array_module().__name__
    'numpy'

    Raises:
        RD09: inside a scope or a replica.  RD27: no such backend, or it cannot work here.
        RD25: not a string.
    """
    if not isinstance(name, str):
        raise errors.error("RD25", "set_backend", f"got {name!r}", "Pass a name such as \"gpu\".")
    if context_stack.frame().kind != context_stack.OUTSIDE:
        raise errors.error("RD09", "set_backend", f"it was called {context_stack.describe()}",
                           "Call it outside any scope, best at the beginning of the program.")
    _choose(name)


config.count_devices.value = lambda: current_backend().counts()


def _guest_named(name: str) -> Any:
    return named(name) if current_backend().takes_guests else None


convert.guest_named.value = _guest_named


def beside(array: Array, like: Array) -> Any:
    """`array` as one of the library of `like`, where either is a guest's; a backend's own are `put` on a device."""
    if type(array) is type(like):
        return array
    guest: Any = convert.guest_of(like)
    own: Any = convert.guest_of(array)
    if guest is own:
        return array
    backend = current_backend()
    if own is not None and own is not backend:
        array = own.to_numpy(array)
    return array if guest is None or guest is backend else guest.put(array, "")


def scalar(value: np.generic) -> Any:
    """A scalar of NumPy's, which is an array of the backend's where those are what a program reads.

    >>> scalar(np.int64(3))
    np.int64(3)
    """
    backend = current_backend()
    return backend.put(np.asarray(value), "") if backend.makes_all else value


def constant(value: object, dtype: object = None) -> Any:
    """`value` as an array, in a replica on its device; arrays keep their dtype.

    Args:
        value: a number, string, nested list, array, or an object with `__array__`; Python numbers become
            int32, or int64 if one does not fit, float32 or complex128.
        dtype: the dtype wanted, or None.

    >>> import refdist
    >>> refdist.constant([1, 2])
    array([1, 2], dtype=int32)

    Raises:
        RD25: a value that is not an array, a ragged list, one of numbers and text,
            or an int that int64 cannot hold.
        RD05: a dtype that would lose the value's kind.

    Source: tf.constant.
    """
    array = to_array(value, dtype, attempted="constant")
    device, backend = context_stack.frame().device, current_backend()
    return backend.put(array, device) if device or backend.makes_all else array


_plugins = Plugins("backend", Backend, BUILT_IN,  # type: ignore[type-abstract]
                   "Implement them, or inherit from refdist.backends.simulated.Simulated.")
GROUP = _plugins.group


def names() -> list[str]:
    """Names of the built-in backends and of those that installed packages offer."""
    return _plugins.names()


def find(name: str) -> type[Backend]:
    """The backend class with this name; a plugin cannot replace a built-in one.

    Raises:
        RD27: no such backend, two packages offer it, it cannot be imported, or is not a whole backend.
    """
    return _plugins.find(name)
