"""`ShardedVariable`: a large variable that is a list of smaller ones, each with some of its rows.

The shards lie on different parameter servers, so that no one of them holds, or serves, all of it.  Each shard is a
variable of its own and is read and written as a whole; the list is not: between the writes of two shards another
function may read both.  Three rules follow:

* A write is checked for the whole variable before the first shard is written, so that one that fails changes nothing.
  TensorFlow writes the first shards and then fails, and cuts a value that is too long.
* A read takes only the shards that hold the rows asked for.
* Rows are counted over all shards, whatever their sizes.

A checkpoint holds one value, so it is restored into any other number of shards, or into a plain variable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from refdist import errors, notebook
from refdist.array import collectives
from refdist.array.backend import current_backend
from refdist.array.convert import (
    cast,
    dtype_of,
    frozen,
    has_dtype,
    kind_of,
    on_device_of,
    to_array,
    to_numpy,
    xp_of,
)
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.operators import ArrayOperators, item
from refdist.array.types import Array
from refdist.core.integers import as_integer
from refdist.variables.interfaces import Strategy
from refdist.variables.operations import fits
from refdist.variables.values import is_splittable
from refdist.variables.variable import Variable


class ShardedVariable(ArrayOperators):
    """A variable whose rows are divided among several variables; usable as one array.

    It is not a Variable: it has no device, and iterating over it gives the shards.

    Args:
        variables: the shards, from the first row to the last.
        name: None for the name of the first shard without "/part_0".

    Raises:
        RD25, RD34: not a list of variables, or variables of different dtypes, or of different shapes after the first
            axis.

    Source: tf.distribute.ParameterServerStrategy, "Variable partitioning".
    """

    __slots__ = ("__weakref__", "_name", "_starts", "_variables")

    def __init__(self, variables: Sequence[Variable], name: str | None = None) -> None:
        attempted = "ShardedVariable"
        if not isinstance(variables, (list, tuple)) or not variables or not all(
                isinstance(variable, Variable) for variable in variables):
            raise errors.error("RD25", attempted, f"variables is {variables!r}", "Pass a list of variables.")
        dtypes, shapes = [variable.dtype for variable in variables], [variable.shape for variable in variables]
        if len(set(dtypes)) > 1:
            raise errors.error("RD34", attempted, f"the dtypes are {', '.join(map(str, dtypes))}",
                               "Pass variables of one dtype.")
        if len({shape[1:] for shape in shapes}) > 1 or not all(shapes):
            raise errors.error("RD34", attempted, f"the shapes are {', '.join(map(str, shapes))}",
                               "Pass variables whose shapes differ in the first dimension only.")
        self._variables: list[Variable] = list(variables)
        self._name = name
        self._starts = [0, *accumulate(variable.shape[0] or 0 for variable in variables)]

    @property
    def variables(self) -> list[Variable]:
        """The shards."""
        return list(self._variables)

    @property
    def name(self) -> str:
        """The name that was asked for, with ":0"."""
        return self._name or self._variables[0].name.replace("/part_0:", ":")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the value."""
        return self._variables[0].dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of the whole."""
        return (self._starts[-1], *self._variables[0].shape[1:])

    @property
    def is_sharded_variable(self) -> bool:
        """True, for code that takes variables of both kinds."""
        return True

    @property
    def _strategy(self) -> Strategy | None:
        return self._variables[0]._strategy

    # Reading.

    def _read(self) -> Any:
        return self._joined([shard.read_value() for shard in self._variables])

    def _joined(self, parts: Sequence[Array]) -> Any:
        with on_device_of(parts[0]):
            return frozen(xp_of(parts[0]).concat(parts)) if len(parts) > 1 else parts[0]

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._variables)

    def __len__(self) -> int:
        raise errors.error("RD25", f"len of sharded variable {self.name}", "its rows and its shards are different "
                           "numbers", "Write `v.shape[0]` or `len(v.variables)`.")

    def __getitem__(self, key: object) -> Any:
        first, *others = key if isinstance(key, tuple) and key else (key,)
        chosen = range(self._starts[-1])
        try:
            if isinstance(first, slice):
                chosen = chosen[first]
                low, high = (min(chosen), max(chosen)) if chosen else (0, 0)
            elif (row := as_integer(first)) is None:
                return super().__getitem__(key)  # by an array, a bool, None or ...
            else:
                low = high = chosen[row]
        except TypeError:
            return super().__getitem__(key)  # raises, and says what is no index
        except IndexError:
            return super().__getitem__(key)  # raises, and says what the variable has
        begin, end = self._shard_of(low), self._shard_of(high) + 1
        rows = self._joined([shard.read_value() for shard in self._variables[begin:end]])
        base = self._starts[begin]
        if isinstance(first, slice):
            stop = chosen.stop - base
            index: object = slice(chosen.start - base, None if stop < 0 else stop, chosen.step) if chosen else slice(0)
        else:
            index = low - base
        try:
            return item(rows, (index, *others) if others else index)
        except IndexError:
            return super().__getitem__(key)  # raises, and says what the variable has

    def _shard_of(self, row: int) -> int:
        return min(bisect_right(self._starts, row) - 1, len(self._variables) - 1)

    def sparse_read(self, indices: object, name: str | None = None) -> Any:
        """The rows at `indices` in that order, as a read-only array; shards without such rows are not read.

        Args:
            indices: integers of any shape; the result has the shape `[*indices.shape, *self.shape[1:]]`, and the dtype
                of the variable.
            name: without effect.

        Raises:
            RD25, RD34: indices that are not integers, or of rows that do not exist.
        """
        wanted = to_numpy(to_array(indices, argument="indices"))
        flat = wanted.reshape(-1)
        self._check_rows(flat, f"sparse_read of sharded variable {self.name}")
        shard_of_row = np.searchsorted(self._starts[1:], flat, side="right")
        tail = tuple(n or 0 for n in self.shape[1:])
        parts, order = [], []
        for i, shard in enumerate(self._variables):
            [places] = np.nonzero(shard_of_row == i)
            if len(places) or (i == 0 and not flat.size):
                parts.append(shard.sparse_read(flat[places] - self._starts[i]))
                order.append(places)
        rows = self._joined(parts)
        xp = xp_of(rows)
        with on_device_of(rows):
            ordered = xp.take(rows, xp.asarray(np.argsort(np.concatenate(order), kind="stable")), axis=0)
            return frozen(xp.reshape(ordered, (*wanted.shape, *tail)))

    def _check_rows(self, rows: Array, attempted: str) -> None:
        lowest, highest = collectives.bounds(rows) if kind_of(dtype_of(rows)) in "iu" else (-1, -1)
        if lowest < 0 or highest >= self._starts[-1]:
            raise errors.error("RD34", attempted, f"indices are {rows} and the variable has shape {self.shape}",
                               "Pass integer indices of existing rows.", kind=errors.InvalidArgumentError)

    # Writing.

    def assign(self, value: object, use_locking: bool = False, name: str | None = None,
               read_value: bool = True) -> ShardedVariable | None:
        """Replaces the value; returns the variable, or None with `read_value=False`.

        Args:
            value: what it becomes: numbers or an array of shape `self.shape`, of a dtype that converts to `self.dtype`.
            use_locking, name: without effect.
            read_value: whether the variable is returned, and not None.

        Raises:
            RD04: another shape.  RD05: a dtype that cannot be converted.  Nothing is changed then.
            RD10, RD11: the variable belongs to another strategy.
        """
        return self._write("assign", value, read_value)

    def assign_add(self, delta: object, use_locking: bool = False, name: str | None = None,
                   read_value: bool = True) -> ShardedVariable | None:
        """Adds to the value; otherwise as `assign`.

        Args:
            delta: what is added: numbers or an array of shape `self.shape`, of a dtype that converts to `self.dtype`.
            use_locking, name: without effect.
            read_value: whether the variable is returned, and not None.
        """
        return self._write("assign_add", delta, read_value)

    def assign_sub(self, delta: object, use_locking: bool = False, name: str | None = None,
                   read_value: bool = True) -> ShardedVariable | None:
        """Subtracts from the value; otherwise as `assign`.

        Args:
            delta: what is subtracted: numbers or an array of shape `self.shape`, of a dtype that converts to
                `self.dtype`.
            use_locking, name: without effect.
            read_value: whether the variable is returned, and not None.
        """
        return self._write("assign_sub", delta, read_value)

    def scatter_add(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Adds slices to rows; returns the variable.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._scatter("scatter_add", sparse_delta)

    def scatter_sub(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Subtracts slices from rows.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._scatter("scatter_sub", sparse_delta)

    def scatter_mul(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Multiplies rows by slices.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._scatter("scatter_mul", sparse_delta)

    def scatter_div(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Divides rows by slices.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._scatter("scatter_div", sparse_delta)

    def scatter_min(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Replaces each row by its elementwise minimum with the slice for it.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._scatter("scatter_min", sparse_delta)

    def scatter_max(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Replaces each row by its elementwise maximum with the slice for it.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._scatter("scatter_max", sparse_delta)

    def scatter_update(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Replaces rows by slices; of slices for one row the last one stays.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._scatter("scatter_update", sparse_delta)

    def batch_scatter_update(self, sparse_delta: IndexedSlices, use_locking: bool = False,
                             name: str | None = None) -> Any:
        """Replaces rows by slices.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._scatter("batch_scatter_update", sparse_delta)

    def _write(self, operation: str, value: object, read_value: bool) -> ShardedVariable | None:
        attempted = f"{operation} of sharded variable {self.name}"
        value = value._local() if is_splittable(value) else value
        if isinstance(value, IndexedSlices):
            value = collectives.dense(current_backend(), value, attempted)
        whole = cast(to_array(value, None if has_dtype(value) else self.dtype, attempted=attempted), self.dtype,
                     attempted)
        if not fits(whole.shape, self.shape):
            raise errors.error("RD04", attempted, f"the value has shape {whole.shape}, the variable {self.shape}",
                               "Reshape the value to the variable's shape; nothing is broadcast, and no shard has been "
                               "written.")
        parts = [whole[begin:end] for begin, end in pairwise(self._starts)]
        self._write_each(operation, list(zip(self._variables, parts, strict=True)), attempted)
        return self if read_value else None

    def _scatter(self, operation: str, value: object) -> ShardedVariable:
        attempted = f"{operation} of sharded variable {self.name}"
        value = value._local() if is_splittable(value) else value
        if not isinstance(value, IndexedSlices):
            raise errors.error("RD25", attempted, f"sparse_delta is {errors.type_of(value)}",
                               "Pass a refdist.IndexedSlices.")
        indices = to_numpy(value.indices)
        self._check_rows(indices, attempted)
        shard_of_row = np.searchsorted(self._starts[1:], indices, side="right")
        writes: list[tuple[Variable, object]] = []
        for i, shard in enumerate(self._variables):
            [rows_here] = np.nonzero(shard_of_row == i)
            if len(rows_here):
                values, numbers = (current_backend().put(array, shard.device) for array in (value.values, rows_here))
                with on_device_of(values):
                    rows = xp_of(values).take(values, numbers, axis=0)
                writes.append((shard, IndexedSlices(rows, indices[rows_here] - self._starts[i])))
        self._write_each(operation, writes, attempted)
        return self

    def _write_each(self, operation: str, writes: Sequence[tuple[Variable, object]], attempted: str) -> None:
        for shard, part in writes:
            shard._primary._prepared(operation, part, attempted)  # all are checked before the first one is written
        for shard, part in writes:
            shard._write(operation, part, read_value=False)

    def __hash__(self) -> int:
        raise errors.error("RD25", f"hash of sharded variable {self.name}", "variables compare by value",
                           "Use `id(variable)` as the key.")

    def __repr__(self) -> str:
        return f"<ShardedVariable {self.name!r} shape={self.shape} dtype={self.dtype} shards={len(self._variables)}>"

    def _repr_html_(self) -> str:
        return notebook.drawing(self)
