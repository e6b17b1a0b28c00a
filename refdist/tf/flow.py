"""TensorFlow's control flow, carried out at once: `tf.cond`, `tf.while_loop`, `tf.map_fn`, `tf.TensorArray`.

In a graph these are operations, because Python's `if` and `for` are gone when it runs.  Nothing is traced here, so each
is the statement that it stands for; gradients go through what it calls.  What only orders or names operations of a
graph does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.missing import NO_GRAPHS, lacks
from refdist.tf.tensors import keras, tensor


def _callable(attempted: str, *functions: object) -> None:
    for function in functions:
        if not callable(function):
            raise errors.error("RD25", attempted, f"got {errors.type_of(function)}",
                               "Pass a function: `lambda: x`.")


def cond(pred: Any, true_fn: Any, false_fn: Any) -> Any:
    """What one of two functions returns.

    Raises:
        RD25: a branch that is no function.
    """
    _callable("tf.cond", true_fn, false_fn)
    return true_fn() if bool(pred) else false_fn()


def case(pairs: Any, default: Any, exclusive: bool) -> Any:
    """What the function beside the first true condition returns, or else the default.

    Raises:
        RD25: a branch that is no function.
        RD34: no condition is true, and there is no default; or several are, and they should be exclusive.
    """
    listed = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
    _callable("tf.case", *(function for _, function in listed), *([] if default is None else [default]))
    true = [function for pred, function in listed if bool(pred)]
    if len(true) > 1 and exclusive:
        raise errors.error("RD34", "tf.case", f"{len(true)} conditions are true, and exclusive=True",
                           "Let one of them be true.", kind=errors.InvalidArgumentError)
    if not true and default is None:
        raise errors.error("RD34", "tf.case", "no condition is true", "Pass `default=`.",
                           kind=errors.InvalidArgumentError)
    return (true[0] if true else default)()


def switch_case(index: Any, branches: Any, default: Any) -> Any:
    """What the branch of a number returns; the default, or else the last branch, where there is none of that number.

    Raises:
        RD25: a branch that is no function.
    """
    numbered = dict(branches.items() if isinstance(branches, Mapping) else (
        pair if isinstance(pair, tuple) else (i, pair) for i, pair in enumerate(branches)))
    _callable("tf.switch_case", *numbered.values(), *([] if default is None else [default]))
    return numbered.get(int(index), default or numbered[max(numbered)])()


def while_loop(condition: Any, body: Any, loop_vars: Any, limit: Any) -> Any:
    """What `loop_vars` are when the condition no longer holds, or after so many rounds, in the body's list or tuple.

    Raises:
        RD25: no functions, or a body that returns another structure.
    """
    _callable("tf.while_loop", condition, body)
    rounds = 0
    while bool(condition(*loop_vars)) and (limit is None or rounds < int(limit)):
        returned = body(*loop_vars)
        sequence = isinstance(returned, (list, tuple))
        new = returned if sequence else [returned]
        try:
            leaves = [leaf for result, old in zip(new, loop_vars, strict=True) for leaf in _same(result, old)]
            loop_vars = nest.pack_sequence_as(new if sequence else loop_vars, leaves)
        except (TypeError, ValueError) as error:
            raise errors.error("RD25", "tf.while_loop", f"the body returns another structure than loop_vars: {error}",
                               "Return a value for each of `loop_vars`.") from error
        rounds += 1
    return nest.map_structure(lambda leaf: leaf if isinstance(leaf, TensorArray) else tensor(leaf), loop_vars)


def _same(value: Any, like: Any) -> list[Any]:
    nest.assert_same_structure(value, like, check_types=False)
    return list(nest.flatten(value))


def _rows(attempted: str, elems: Any) -> list[Any]:
    # The elements along the first dimension, each in the structure of `elems`.
    leaves = [tensor(leaf) for leaf in nest.flatten(elems)]
    counts = {int(leaf.shape[0]) if len(leaf.shape) else -1 for leaf in leaves}
    if len(counts) != 1 or counts <= {-1, 0}:
        raise errors.error("RD34", attempted, f"the first dimensions are {sorted(counts)}",
                           "Pass tensors with the same number of rows, and at least one.")
    return [nest.pack_sequence_as(elems, [leaf[i] for leaf in leaves]) for i in range(counts.pop())]


def _stacked(values: Sequence[Any]) -> Any:
    return nest.map_structure(lambda *parts: keras().ops.stack([tensor(part) for part in parts]), *values)


def map_fn(fn: Any, elems: Any) -> Any:
    """The results of a function for each row, stacked.

    Raises:
        RD25: no function.  RD34: tensors without rows, or with different numbers of them.
    """
    _callable("tf.map_fn", fn)
    return _stacked([fn(row) for row in _rows("tf.map_fn", elems)])


def fold(fn: Any, elems: Any, initializer: Any, reverse: bool, attempted: str) -> list[Any]:
    """All values of an accumulator that a function computes of it and the next row.

    Raises:
        RD25: no function.  RD34: tensors without rows, or with different numbers of them.
    """
    _callable(attempted, fn)
    rows = _rows(attempted, elems)[::-1 if reverse else 1]
    values = [rows.pop(0)] if initializer is None else []
    last = values[0] if values else initializer
    for row in rows:
        last = fn(last, row)
        values.append(last)
    return values


def scan(fn: Any, elems: Any, initializer: Any, reverse: bool) -> Any:
    """All values of the accumulator, stacked."""
    values = fold(fn, elems, initializer, reverse, "tf.scan")
    return _stacked(values[::-1] if reverse else values)


def called(func: Any, inp: Any, to_numpy: bool) -> Any:
    """What a Python function returns, of tensors or of NumPy's arrays; without a function, a decorator of one.

    Raises:
        RD25: no function.
    """
    if func is None:
        return lambda decorated: lambda *args: called(decorated, args, to_numpy)
    _callable("tf.py_function", func)
    tensors = [tensor(value) for value in inp or ()]
    result = func(*[np.asarray(argument) for argument in tensors] if to_numpy else tensors)
    return nest.map_structure(lambda leaf: leaf if leaf is None else tensor(leaf), result)


@lacks({
    "close flow grad handle": NO_GRAPHS,
    "identity": "Leave it out: write the array itself.",
    "scatter": "Write `array = array.write(index, value)` for each.",
    "split": "Write `array.unstack(value)`, for rows of different lengths `array.write(index, rows)` for each.",
})
class TensorArray:
    """A list of tensors, each of which is written once.

    Args:
        dtype: their dtype.
        size: how many there are.
        dynamic_size: whether a write past the end makes it longer.
        clear_after_read, tensor_array_name, handle, flow, infer_shape, colocate_with_first_write_call, name: without
            effect: what was read can be read again.
        element_shape: the shape of those that were not written.

    >>> import refdist.tf as tf
    >>> array = tf.TensorArray(tf.float32, size=2).write(0, [1.0]).write(1, [2.0])                  # doctest: +SKIP
    >>> array.stack().numpy().tolist()                                                              # doctest: +SKIP
    [[1.0], [2.0]]

    Raises:
        RD34: in a read or write, an index that is not there.

    Source: tf.TensorArray.
    """

    def __init__(self, dtype: Any, size: Any = None, dynamic_size: bool | None = None,
                 clear_after_read: bool | None = None, tensor_array_name: str | None = None, handle: object = None,
                 flow: object = None, infer_shape: bool = True, element_shape: Any = None,
                 colocate_with_first_write_call: bool = True, name: str | None = None) -> None:
        self.dtype = dtype
        self.dynamic_size = bool(dynamic_size)
        self.element_shape = element_shape
        self._items: list[Any] = [None] * int(size or 0)

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Puts a value at an index; the array itself.

        Source: tf.TensorArray.write.
        """
        place = int(index)
        if self.dynamic_size and place >= len(self._items):
            self._items.extend([None] * (place + 1 - len(self._items)))
        self._check("write", place)
        self._items[place] = tensor(value, None if keras().ops.is_tensor(value) else self.dtype)
        return self

    def read(self, index: Any, name: str | None = None) -> Any:
        """The value at an index.

        Source: tf.TensorArray.read.
        """
        self._check("read", int(index))
        return self._full()[int(index)]

    def stack(self, name: str | None = None) -> Any:
        """All values as one tensor.

        Source: tf.TensorArray.stack.
        """
        return keras().ops.stack(self._full()) if self._items else keras().ops.zeros((0,), self._name)

    def concat(self, name: str | None = None) -> Any:
        """All values, one after another along the first dimension.

        Source: tf.TensorArray.concat.
        """
        return keras().ops.concatenate(self._full())

    def gather(self, indices: Any, name: str | None = None) -> Any:
        """The values at some indices as one tensor.

        Source: tf.TensorArray.gather.
        """
        return keras().ops.stack([self.read(index) for index in indices])

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Writes the rows of a tensor; the array itself.

        Source: tf.TensorArray.unstack.
        """
        self._items = list(keras().ops.unstack(tensor(value)))
        return self

    def size(self, name: str | None = None) -> Any:
        """How many values there are.

        Source: tf.TensorArray.size.
        """
        return tensor(len(self._items))

    @property
    def _name(self) -> str:
        return str(np.dtype(self.dtype))

    def _check(self, method: str, place: int) -> None:
        if not 0 <= place < len(self._items):
            raise errors.error("RD34", f"TensorArray.{method}", f"index {place} of {len(self._items)}",
                               "Make it larger: `size=`, or `dynamic_size=True`.", kind=errors.InvalidArgumentError)

    def _full(self) -> list[Any]:
        # What was not written is zero.
        written = next((item for item in self._items if item is not None), None)
        shape = written.shape if written is not None else self.element_shape
        if shape is None and self._items:
            raise errors.error("RD34", "TensorArray", "nothing was written, and no element_shape is known",
                               "Write first.", kind=errors.InvalidArgumentError)
        return [keras().ops.zeros(tuple(shape), self._name) if item is None else item for item in self._items]


@contextmanager
def control_dependencies(control_inputs: Iterable[object] | None) -> Iterator[None]:
    """A block whose operations come after others in a graph; here what stands first happens first.

    Source: tf.control_dependencies.
    """
    for dependency in control_inputs or ():
        if callable(dependency) and not keras().ops.is_tensor(dependency):
            call: Callable[[], object] = dependency
            call()
    yield


@contextmanager
def init_scope() -> Iterator[None]:
    """A block outside any graph, as everything is here.

    Source: tf.init_scope.
    """
    yield
