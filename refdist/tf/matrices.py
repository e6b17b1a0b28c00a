"""What `tf.linalg` does with matrices, [..., rows, columns], for which one expression is not enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refdist import errors
from refdist.tf.computed import name_of
from refdist.tf.tensors import keras, library, tensor

ops = keras().ops


class Qr(NamedTuple):
    """Two factors: one with orthonormal columns, and one that is zero below its diagonal."""

    q: Any
    r: Any


class LogMatrixDeterminant(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Any
    log_abs_determinant: Any


def product(a: Any, b: Any, transpose_a: bool, transpose_b: bool, adjoint_a: bool, adjoint_b: bool) -> Any:
    """The product of matrices."""
    return ops.matmul(turned(a, transpose_a, adjoint_a), turned(b, transpose_b, adjoint_b))


def turned(x: Any, transposed: bool, adjoint: bool = False) -> Any:
    """A matrix, or a stack of them, transposed if asked for; the adjoint of complex numbers is conjugated, too."""
    if adjoint and name_of(x).startswith("complex"):
        x = x.conj()
    return ops.swapaxes(x, -1, -2) if transposed or adjoint else x


def norm(x: Any, order: Any, axis: Any, keepdims: bool) -> Any:
    """The norm of all numbers as one vector, or of the vectors along an axis, or of the matrices along two.

    Raises:
        RD34: an order that no such norm has.
    """
    of_matrices = isinstance(axis, (list, tuple)) and len(axis) == 2
    axis = tuple(range(x.ndim)) if axis is None else axis
    if order == "euclidean" or (order == "fro" if of_matrices else order == 2):
        return ops.sqrt(ops.sum(ops.square(x), axis, keepdims=keepdims))
    if of_matrices and order in (1, 2, np.inf):
        return ops.norm(x, order, tuple(axis), keepdims=keepdims)
    if of_matrices or isinstance(order, str) or not order > 0:
        raise errors.error("RD34", "tf.norm", f"ord is {order!r} and axis {axis}", "Pass \"euclidean\", 1, 2, np.inf; "
                           "of vectors another positive number, of matrices \"fro\" and axis=[rows, columns].")
    if order == np.inf:
        return ops.max(ops.abs(x), axis, keepdims=keepdims)
    if order == 1:
        return ops.sum(ops.abs(x), axis, keepdims=keepdims)
    return ops.power(ops.sum(ops.power(ops.abs(x), order), axis, keepdims=keepdims), 1.0 / order)


def normed(x: Any, order: Any, axis: Any) -> tuple[Any, Any]:
    """The tensor, divided by its norm, and the norm."""
    length = norm(x, order, axis, True)
    return ops.divide(x, length), length


def _diagonal_length(x: Any, offset: int, attempted: str) -> int:
    rows, columns = x.shape[-2:]
    if not -rows < offset < columns:
        raise errors.error("RD34", attempted, f"k is {offset}, and the matrix has {rows} rows and {columns} columns",
                           "Pass a k that is a diagonal's: 0, negative below, and positive above it.",
                           kind=errors.InvalidArgumentError)
    return int(min(rows + min(offset, 0), columns - max(offset, 0)))


def diagonal_part(x: Any, offset: int) -> Any:
    """A diagonal of each matrix.

    Raises:
        RD34: there is no such diagonal.
    """
    _diagonal_length(x, offset, "tf.linalg.diag_part")
    return ops.diagonal(x, offset, -2, -1)


def with_diagonal(x: Any, diagonal: Any, offset: int) -> Any:
    """A matrix, or a stack of them, with another diagonal.

    Raises:
        RD34: there is no such diagonal, or it has another length.
    """
    length = _diagonal_length(x, offset, "tf.linalg.set_diag")
    if tuple(diagonal.shape) != (*x.shape[:-2], length):
        raise errors.error("RD34", "tf.linalg.set_diag", f"the matrix has shape {tuple(x.shape)}, the diagonal "
                           f"{tuple(diagonal.shape)}", f"Pass a diagonal of shape {(*x.shape[:-2], length)}.",
                           kind=errors.InvalidArgumentError)
    rows, columns = x.shape[-2:]
    before = max(-offset, 0)
    on = np.arange(rows)[:, None] + offset == np.arange(columns)
    wide = ops.pad(diagonal, [(0, 0)] * (diagonal.ndim - 1) + [(before, rows - length - before)])
    return ops.where(tensor(on), ops.expand_dims(wide, -1), x)


def of_diagonal(diagonal: Any, offset: int) -> Any:
    """A square matrix, or a stack of them, with this diagonal, and zeros elsewhere."""
    size = diagonal.shape[-1] + abs(offset)
    return with_diagonal(ops.zeros((*diagonal.shape[:-1], size, size), dtype=name_of(diagonal)), diagonal, offset)


def of_tensor(diagonal: Any) -> Any:
    """A tensor of twice as many dimensions, with the numbers where both halves of an index are equal."""
    flat = of_diagonal(ops.reshape(diagonal, (-1,)), 0)
    return ops.reshape(flat, (*diagonal.shape, *diagonal.shape))


def diagonal_of_tensor(x: Any) -> Any:
    """The numbers of a tensor where both halves of an index are equal.

    Raises:
        RD34: the halves of the shape differ.
    """
    shape = tuple(x.shape)
    half = shape[:len(shape) // 2]
    if shape != half + half:
        raise errors.error("RD34", "tf.linalg.tensor_diag_part", f"the tensor has shape {shape}",
                           "Pass a tensor whose shape is twice the same.", kind=errors.InvalidArgumentError)
    size = math.prod(half)
    return ops.reshape(ops.diagonal(ops.reshape(x, (size, size))), half)


def band(x: Any, lower: int, upper: int) -> Any:
    """A matrix, or a stack of them, with zeros outside a band around the diagonal; negative means all of a side."""
    distance = np.arange(x.shape[-2])[:, None] - np.arange(x.shape[-1])
    inside = ((lower < 0) | (distance <= lower)) & ((upper < 0) | (-distance <= upper))
    return ops.where(tensor(inside), x, ops.zeros_like(x))


def solution(matrix: Any, rhs: Any, adjoint: bool) -> Any:
    """The solution of the equations that the matrix, or its adjoint, and the right sides make.

    Raises:
        RD34: the right sides are not a matrix, or the matrix has no inverse.
    """
    if matrix.ndim != rhs.ndim:
        raise errors.error("RD34", "tf.linalg.solve", f"matrix has shape {tuple(matrix.shape)}, rhs "
                           f"{tuple(rhs.shape)}", "Pass a column for each right side: `rhs[..., tf.newaxis]`.",
                           kind=errors.InvalidArgumentError)
    return _computed("solve", lambda: ops.solve(turned(matrix, False, adjoint), rhs))


def inverse(matrix: Any, adjoint: bool) -> Any:
    """The inverse of the matrix, or of its adjoint.

    Raises:
        RD34: it has none.
    """
    return _computed("inv", lambda: ops.inv(turned(matrix, False, adjoint)))


def cholesky(matrix: Any) -> Any:
    """The Cholesky factor.

    Raises:
        RD34: the matrix is not positive definite.
    """
    return _computed("cholesky", lambda: ops.cholesky(matrix))


def triangular_solution(matrix: Any, rhs: Any, lower: bool, adjoint: bool) -> Any:
    """The solution of the equations of a triangular matrix, or its adjoint; its other half is ignored."""
    matrix, lower = turned(matrix, False, adjoint), lower != adjoint
    if library() == "torch":
        import torch

        return torch.linalg.solve_triangular(matrix, rhs, upper=not lower)
    import jax

    return jax.scipy.linalg.solve_triangular(matrix, rhs, lower=lower)


def cholesky_solution(factor: Any, rhs: Any) -> Any:
    """The solution of the equations of the matrix that has this Cholesky factor."""
    return triangular_solution(factor, triangular_solution(factor, rhs, True, False), True, True)


def factors(x: Any, full: bool) -> Qr:
    """The QR decomposition."""
    return Qr(*ops.qr(x, "complete" if full else "reduced"))


def singular(x: Any, full: bool, with_vectors: bool) -> Any:
    """The singular values, and, if they are asked for, the left and the right vectors, a column for each."""
    if not with_vectors:
        return ops.svd(x, full, False)
    left, values, right = ops.svd(x, full)
    return values, left, turned(right, False, True)


def sign_and_logarithm(x: Any) -> LogMatrixDeterminant:
    """The sign of the determinant, and the logarithm of its absolute value."""
    return LogMatrixDeterminant(*_of_library("slogdet")(x))


def log_of_determinant(x: Any) -> Any:
    """The logarithm of the determinant of a matrix that is positive definite; nan of another."""
    sign, logarithm = sign_and_logarithm(x)
    return ops.where(ops.greater(sign, 0), logarithm, ops.full_like(logarithm, np.nan))


def exponential(x: Any) -> Any:
    """The exponential of a matrix."""
    if library() == "torch":
        return _of_library("matrix_exp")(x)
    import jax

    return jax.scipy.linalg.expm(x)


def rank(x: Any, tolerance: Any) -> Any:
    """How many singular values are above the tolerance."""
    values = ops.svd(x, False, False)
    if tolerance is None:
        unit = float(np.finfo(name_of(x)).eps) * max(x.shape[-2:])
        tolerance = ops.multiply(ops.max(values, -1, keepdims=True), unit)
    return ops.cast(ops.count_nonzero(ops.greater(values, tolerance), -1), "int32")


def pseudoinverse(x: Any, smallest: Any) -> Any:
    """The Moore-Penrose inverse; singular values below `smallest` times the largest count as zeros."""
    values, left, right = singular(x, False, True)
    if smallest is None:
        smallest = 10.0 * max(x.shape[-2:]) * float(np.finfo(name_of(x)).eps)
    limit = ops.multiply(ops.max(values, -1, keepdims=True), smallest)
    inverse = ops.where(ops.greater(values, limit), ops.reciprocal(values), ops.zeros_like(values))
    return ops.matmul(ops.multiply(right, ops.expand_dims(inverse, -2)), turned(left, False, True))


def least_squares(matrix: Any, rhs: Any, penalty: float, fast: bool) -> Any:
    """The least-squares solution; if there are several, the one with the smallest norm."""
    if not fast and not penalty:
        return ops.matmul(pseudoinverse(matrix, None), rhs)
    rows, columns = matrix.shape[-2:]
    other = turned(matrix, False, True)
    unit = ops.multiply(ops.eye(min(rows, columns), dtype=name_of(matrix)), penalty)
    if rows >= columns:
        return ops.solve(ops.add(ops.matmul(other, matrix), unit), ops.matmul(other, rhs))
    return ops.matmul(other, ops.solve(ops.add(ops.matmul(matrix, other), unit), rhs))


def cross(first: Any, second: Any) -> Any:
    """The cross products of vectors of three numbers.

    Raises:
        RD34: the vectors have another length, or are not as many.
    """
    if tuple(first.shape) != tuple(second.shape) or first.shape[-1] != 3:
        raise errors.error("RD34", "tf.linalg.cross", f"the shapes are {tuple(first.shape)} and {tuple(second.shape)}",
                           "Pass two tensors of one shape [..., 3].", kind=errors.InvalidArgumentError)
    return ops.cross(first, second, axis=-1)


def _computed(name: str, compute: Callable[[], Any]) -> Any:
    # Computes something of a matrix; the library raises where the matrix does not allow it.
    try:
        return compute()
    except (RuntimeError, ValueError) as error:
        raise errors.error("RD34", f"tf.linalg.{name}", str(error).partition("\n")[0],
                           "Pass square matrices that have an inverse, and, for cholesky, are positive definite.",
                           kind=errors.InvalidArgumentError) from error


def _of_library(name: str) -> Any:
    if library() == "torch":
        import torch

        return getattr(torch.linalg, name)
    import jax

    return getattr(jax.numpy.linalg, name)
