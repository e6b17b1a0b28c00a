"""`tf.GradientTape` over PyTorch's autograd.

PyTorch records what is computed from tensors that require gradients.  A tape decides which do: the variables that are
read while it records, those of Keras among them, and what is watched.  Each replica has its own tapes, as it has its
own modes of PyTorch; what it has entered is one tuple, in a context variable.

A variable is read more than once, and each read is a tensor of its own.  The tape keeps them all; the gradient of the
variable is the sum of theirs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any

from refdist import errors, nest
from refdist.array.convert import HoldsArray, dtype_of, kind_of
from refdist.tf.tensors import keras, tensor, torch
from refdist.variables.variable import Variable, watchers

_recording: ContextVar[tuple[GradientTape, ...]] = ContextVar("recording", default=())

# Whether PyTorch recorded before the first tape.
_before: ContextVar[bool] = ContextVar("before", default=False)

# What to write where a program has NumPy's arrays for tensors.
_TENSORS = ("Set REFDIST_BACKEND=torch, or call `refdist.set_backend(\"torch\")` before the first variable: then "
            "variables, constants and rows of datasets are tensors.")


class UnconnectedGradients(Enum):
    """What `gradient` returns for a source on which the target does not depend.

    Source: tf.UnconnectedGradients.
    """

    NONE = "none"
    ZERO = "zero"


class GradientTape:
    """Records what is computed inside `with`, and returns gradients of it.

    Args:
        persistent: whether `gradient` may be called more than once.
        watch_accessed_variables: whether trainable variables are watched when they are read.

    >>> import refdist.tf as tf
    >>> x = tf.convert_to_tensor(3.0)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x * x
    >>> tape.gradient(y, x).numpy()
    array(6., dtype=float32)

    Raises:
        RD20: Keras computes with JAX.
        RD27: PyTorch or Keras is not installed.

    Source: tf.GradientTape.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._torch: Any = torch("tf.GradientTape")
        self._persistent = persistent
        self._watches_all = watch_accessed_variables
        self._entered = False
        self._nested = False
        self._forget()

    def _forget(self) -> None:
        self._used = False
        self._watched: dict[int, object] = {}
        # By the id of a variable: the variable, and the tensors that were read of it.
        self._reads: dict[int, tuple[object, list[Any]]] = {}
        # By the id of a variable: the variable, and an array that was read of it and records nothing.
        self._unrecorded: dict[int, tuple[Variable, Any]] = {}

    # Recording.

    def __enter__(self) -> GradientTape:
        if self._entered:
            raise errors.error("RD09", "tf.GradientTape", "it records already", "Enter each tape once.",
                               kind=errors.InvalidValueError)
        self._start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._entered:
            self._stop()

    def _start(self) -> None:
        outer = _recording.get()
        self._entered = True
        self._nested = self._nested or bool(outer)
        for tape in outer:
            tape._nested = True
        _set((*outer, self), self._torch)

    def _stop(self) -> None:
        self._entered = False
        _set(tuple(tape for tape in _recording.get() if tape is not self), self._torch)

    def _read(self, variable: Any, array: Any) -> Any:
        # A variable has been read: what the program gets of it.
        known = id(variable) in self._watched or (self._watches_all and variable.trainable)
        if known and not isinstance(array, self._torch.Tensor):
            if kind_of(dtype_of(array)) in "fc":
                self._unrecorded[id(variable)] = variable, array
        elif known and _differentiable(array):
            self._reads.setdefault(id(variable), (variable, []))[1].append(array.requires_grad_())
        return array

    def watch(self, tensor: object) -> None:
        """Records what is computed of a tensor or variable, or of each in a nest of them, from now on.

        Raises:
            RD09: the tape does not record.
            RD34: it is neither, or has a dtype without gradients.

        Source: tf.GradientTape.watch.
        """
        if not self._entered:
            raise errors.error("RD09", "GradientTape.watch", "the tape does not record",
                               "Call it in the block of the tape's `with`.")
        leaves = nest.flatten(tensor)
        for leaf in leaves:
            if isinstance(leaf, (Variable, keras().Variable)):
                continue
            if not isinstance(leaf, self._torch.Tensor):
                raise errors.error("RD34", "GradientTape.watch", f"got {errors.type_of(leaf)}",
                                   f"Pass a tensor: `tf.convert_to_tensor(x)`. {_TENSORS}")
            if not _differentiable(leaf):
                raise errors.error("RD34", "GradientTape.watch", f"the tensor has dtype {leaf.dtype}",
                                   "Cast it to a float: `tf.cast(x, tf.float32)`.")
        for leaf in leaves:
            self._watched[id(leaf)] = leaf
            if isinstance(leaf, self._torch.Tensor):
                leaf.requires_grad_()

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """What is computed in this block is not recorded.

        Raises:
            RD09: the tape does not record.

        Source: tf.GradientTape.stop_recording.
        """
        if not self._entered:
            raise errors.error("RD09", "GradientTape.stop_recording", "the tape does not record",
                               "Call it in the block of the tape's `with`.", kind=errors.InvalidValueError)
        before = _recording.get()
        _set(tuple(tape for tape in before if tape is not self), self._torch)
        try:
            with self._torch.no_grad():
                yield
        finally:
            _set(before, self._torch)

    def reset(self) -> None:
        """Forgets what was recorded and watched.

        Source: tf.GradientTape.reset.
        """
        self._forget()

    # Gradients.

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None,
                 unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE) -> Any:
        """The gradients of the sum of the target with respect to the sources, in the structure of the sources.

        Args:
            target: a tensor, or a nest of tensors, which are added.
            sources: a variable, a watched tensor or one computed inside the tape, or a nest of them.
            output_gradients: what each target is multiplied by; None for 1.
            unconnected_gradients: what stands for a source on which the target does not depend: None or zeros.

        Raises:
            RD09: a second call, of a tape that is not persistent.
            RD20: a source is a variable whose value is no tensor of PyTorch, as with another backend than "torch".
            RD25: a target or source that is neither tensor nor variable.
            RD34: more or fewer `output_gradients` than targets.

        Source: tf.GradientTape.gradient.
        """
        attempted = "GradientTape.gradient"
        if self._used and not self._persistent:
            raise errors.error("RD09", attempted, "it was called before, and the tape is not persistent",
                               "Write `tf.GradientTape(persistent=True)`, or ask for all gradients in one call.")
        zero = UnconnectedGradients(unconnected_gradients) is UnconnectedGradients.ZERO
        leaves = [self._leaves_of(source, attempted) for source in nest.flatten(sources)]
        targets = [self._target(leaf, attempted) for leaf in nest.flatten(target)]
        seeds = [None] * len(targets) if output_gradients is None else [
            None if leaf is None else tensor(leaf) for leaf in nest.flatten(output_gradients)]
        if len(seeds) != len(targets):
            raise errors.error("RD34", attempted, f"there are {errors.counted(len(targets), 'target')} and "
                               f"{errors.counted(len(seeds), 'output gradient')}", "Pass one for each target.")
        if self._entered and not self._persistent:
            self._stop()
        self._used = True
        gradients = iter(self._gradients(targets, seeds, [leaf for group in leaves for leaf in group]))
        results = []
        for source, group in zip(nest.flatten(sources), leaves, strict=True):
            parts = [part for part in (next(gradients) for _ in group) if part is not None]
            total = sum(parts[1:], parts[0]) if parts else None
            results.append(self._torch.zeros_like(tensor(source)) if total is None and zero else total)
        if not self._persistent:
            self._reads.clear()
        return nest.pack_sequence_as(sources, results)

    def watched_variables(self) -> tuple[Any, ...]:
        """The variables that were read, or watched, in the order of their first reads.

        Source: tf.GradientTape.watched_variables.
        """
        watched = [leaf for leaf in self._watched.values() if isinstance(leaf, (Variable, keras().Variable))]
        reached = {id(variable): variable for variable in (*(read for read, _ in self._reads.values()), *watched)}
        return tuple(reached.values())

    def jacobian(self, target: Any, sources: Any,
                 unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
                 parallel_iterations: object = None, experimental_use_pfor: bool = True) -> Any:
        """The gradients of each number of the target with respect to the sources, in the structure of the sources.

        Args:
            target: a tensor.
            sources: a variable, a watched tensor or one computed inside the tape, or a nest of them.
            unconnected_gradients: what stands for a source on which the target does not depend: None or zeros.
            parallel_iterations, experimental_use_pfor: without effect.

        Returns:
            For each source a tensor whose shape is that of the target followed by that of the source.

        Raises:
            What `gradient` raises.

        Source: tf.GradientTape.jacobian.
        """
        whole = self._target(target, "GradientTape.jacobian")
        rows = self._rows(whole, sources, unconnected_gradients)
        shape = tuple(whole.shape)

        def stacked(*parts: Any) -> Any:
            return None if parts[0] is None else self._torch.stack(parts).reshape(shape + tuple(parts[0].shape))
        return nest.map_structure(stacked, *rows)

    def batch_jacobian(self, target: Any, source: Any,
                       unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
                       parallel_iterations: object = None, experimental_use_pfor: bool = True) -> Any:
        """The Jacobian of each row of the target with respect to the same row of the source.

        Args:
            target: a tensor, [rows, ...].
            source: a tensor, [rows, ...], of which each row of the target depends on its own row alone.
            unconnected_gradients: what is returned if it does not depend: None or zeros.
            parallel_iterations, experimental_use_pfor: without effect.

        Returns:
            A tensor [rows, ...], with the other dimensions of the target followed by those of the source.

        Raises:
            What `gradient` raises.

        Source: tf.GradientTape.batch_jacobian.
        """
        whole = self._target(target, "GradientTape.batch_jacobian")
        with self._torch.enable_grad():
            together = whole.reshape(len(whole), -1).sum(0)
        parts = self._rows(together, source, unconnected_gradients)
        if parts[0] is None:
            return None
        return self._torch.stack(parts, 1).reshape(tuple(whole.shape) + tuple(parts[0].shape[1:]))

    def _rows(self, target: Any, sources: Any, unconnected: UnconnectedGradients | str) -> list[Any]:
        # The gradients of each number of the target; the graph is needed until the last.
        persistent, self._persistent = self._persistent, True
        if self._used and not persistent:
            self._persistent = False
            self.gradient(target, sources)  # raises
        try:
            with self._torch.enable_grad():
                numbers = target.reshape(-1).unbind()
            return [self.gradient(number, sources, unconnected_gradients=unconnected) for number in numbers]
        finally:
            self._persistent = persistent
            if not persistent:
                if self._entered:
                    self._stop()
                self._reads.clear()

    def _leaves_of(self, source: Any, attempted: str) -> list[Any]:
        # The tensors whose gradients add up to that of the source; none where it cannot be connected.
        if isinstance(source, keras().Variable) and id(source) not in self._reads:
            known = id(source) in self._watched or (self._watches_all and source.trainable)
            return [source.value] if known and source.value.requires_grad else []
        if id(source) in self._unrecorded:
            variable, array = self._unrecorded[id(source)]
            raise errors.error(
                "RD20", attempted, f"variable {variable.name} was read as {errors.type_of(array)}, and only tensors of "
                "PyTorch record gradients", _TENSORS)
        if isinstance(source, (Variable, keras().Variable)):
            _, reads = self._reads.get(id(source), (source, []))
            return list({id(tensor): tensor for tensor in reads}.values())
        if not isinstance(source, self._torch.Tensor):
            raise errors.error("RD25", attempted, f"a source is {errors.type_of(source)}", "Pass variables, and "
                               f"tensors that were watched or computed inside the tape. {_TENSORS}")
        known = id(source) in self._watched or not source.is_leaf
        return [source] if known and source.requires_grad else []

    def _target(self, target: Any, attempted: str) -> Any:
        if isinstance(target, (self._torch.Tensor, HoldsArray, keras().Variable)):
            return tensor(target)
        raise errors.error("RD25", attempted, f"a target is {errors.type_of(target)}, and only tensors record "
                           "gradients", "Compute it of tensors and variables, with operators and functions of `tf`, "
                           f"inside the tape. {_TENSORS}")

    def _gradients(self, targets: Sequence[Any], seeds: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        connected = [(target, seed) for target, seed in zip(targets, seeds, strict=True) if target.requires_grad]
        if not connected or not leaves:
            return [None] * len(leaves)
        # An outer tape records the gradients, too.
        again = bool(_recording.get())
        gradients = self._torch.autograd.grad(
            [target for target, _ in connected], leaves,
            # Where it is one number PyTorch takes 1 by itself, and the gradient is known to be that of the target.
            [self._torch.ones_like(target) if seed is None and (target.ndim or target.is_complex()) else seed
             for target, seed in connected],
            retain_graph=again or self._persistent or self._nested, create_graph=again, allow_unused=True)
        return list(gradients)


def custom_gradient(f: Any = None) -> Any:
    """The function with gradients of the program's own.

    Args:
        f: a function of tensors that returns what it computes, and a function from the gradients of that to those of
            its arguments.

    >>> import refdist.tf as tf
    >>> @tf.custom_gradient
    ... def clipped(x):
    ...     return tf.identity(x), lambda gradient: tf.clip_by_value(gradient, -1.0, 1.0)
    >>> x = tf.convert_to_tensor(3.0)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = clipped(x) * 5.0
    >>> tape.gradient(y, x).numpy().tolist()
    1.0

    Raises:
        RD20: Keras computes with JAX; or, in a call, the function reads a trainable variable, whose gradient it would
            have to return, too.
        RD34: in a call, more or fewer gradients than arguments.

    Source: tf.custom_gradient.
    """
    library: Any = torch("tf.custom_gradient")

    @functools.wraps(f)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        tensors = [tensor(argument) for argument in args]
        shape: dict[str, Any] = {}

        class Computed(library.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(context: Any, *values: Any) -> Any:
                read: list[Any] = []
                token = watchers.set((lambda variable, array: read.append(variable),))
                try:
                    result, shape["backward"] = f(*values, **kwargs)
                finally:
                    watchers.reset(token)
                if any(variable.trainable for variable in read):
                    raise errors.error("RD20", "tf.custom_gradient", f"the function reads the variable {read[0].name}, "
                                       "and gradients are passed to arguments only", "Pass the variable's value as an "
                                       "argument: `f(x, tf.convert_to_tensor(v))`.")
                shape["result"] = result
                return tuple(tensor(leaf) for leaf in nest.flatten(result))

            @staticmethod
            def backward(context: Any, *gradients: Any) -> Any:
                returned = nest.flatten(shape["backward"](*gradients))
                if len(returned) != len(args):
                    raise errors.error("RD34", "tf.custom_gradient", f"the function has {len(args)} arguments, and "
                                       f"{errors.counted(len(returned), 'gradient')} came back", "Return one for each.")
                return tuple(None if leaf is None else tensor(leaf) for leaf in returned)

        leaves = Computed.apply(*tensors)
        return nest.pack_sequence_as(shape["result"], list(leaves))
    return decorated


def _differentiable(array: Any) -> bool:
    return bool(array.is_floating_point() or array.is_complex())


def _set(tapes: tuple[GradientTape, ...], torch: Any) -> None:
    # Which tapes record from now on, and with them PyTorch; without any, whether it does is as before the first.
    if tapes and not _recording.get():
        _before.set(torch.is_grad_enabled())
    _recording.set(tapes)
    watchers.set(tuple(tape._read for tape in tapes))
    torch.set_grad_enabled(bool(tapes) or _before.get())
