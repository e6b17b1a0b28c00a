"""`tf.test.TestCase`: a test with assertions about tensors, variables, and nests of them.

Its other assertions are those of absl, which Keras installs, as on TensorFlow.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from absl.testing import absltest

from refdist import nest
from refdist.array.convert import HoldsArray
from refdist.missing import NO_GRAPHS, lacks
from refdist.tf.dtypes import as_dtype
from refdist.tf.shapes import TensorShape
from refdist.tf.texts import array_of, is_text


@lacks({"graph session": NO_GRAPHS, "assertProtoEquals assertProtoEqualsVersion": "Write `assertEqual`.",
        "checkedThread": "Write `threading.Thread`.", "assertRaisesOpError": "Write `assertRaisesRegex`."})
class TestCase(absltest.TestCase):  # type: ignore[misc]
    """A test of a program: `unittest.TestCase` with assertions about tensors.

    Source: tf.test.TestCase.
    """

    def evaluate(self, tensors: Any) -> Any:
        """The numbers of tensors and variables, in the nest that is given.

        Args:
            tensors: a tensor, or a nest of them.

        Source: tf.test.TestCase.evaluate.
        """
        return nest.map_structure(_array, tensors)

    def get_temp_dir(self) -> str:
        """A folder of the test.

        Source: tf.test.TestCase.get_temp_dir.
        """
        return str(self.create_tempdir().full_path)

    @contextlib.contextmanager
    def cached_session(self, *args: object, **kwargs: object) -> Iterator[None]:
        """A `with` block that does nothing.

        Source: tf.test.TestCase.cached_session.
        """
        yield

    def assertAllEqual(self, a: Any, b: Any, msg: object = None) -> None:  # noqa: N802
        """Fails unless all elements are equal; NaN equals NaN.

        Args:
            a, b: tensors or arrays of one shape.
            msg: what the failure says, too.

        Source: tf.test.TestCase.assertAllEqual.
        """
        np.testing.assert_array_equal(*self._same_shapes(a, b, msg), err_msg=str(msg or ""))

    def assertNotAllEqual(self, a: Any, b: Any, msg: object = None) -> None:  # noqa: N802
        """Fails if all elements are equal.

        Source: tf.test.TestCase.assertNotAllEqual.
        """
        self._fails(lambda: self.assertAllEqual(a, b), "The two values are equal at all elements.", msg)

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6,  # noqa: N802
                       msg: object = None) -> None:
        """Fails unless all elements of two tensors, or nests of them, differ by at most `atol + rtol * abs(b)`.

        Args:
            a, b: tensors, or nests of one structure.
            rtol, atol: how far they may differ.
            msg: what the failure says, too.

        Source: tf.test.TestCase.assertAllClose.
        """
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            self.assertEqual(set(a), set(b), msg)
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, msg)
        elif _is_ragged(a) or _is_ragged(b):
            self.assertEqual(len(a), len(b), msg)
            for first, second in zip(a, b, strict=True):
                self.assertAllClose(first, second, rtol, atol, msg)
        else:
            first, second = self._same_shapes(a, b, msg)
            np.testing.assert_allclose(first.astype(_wide(first)), second.astype(_wide(second)), rtol, atol,
                                       err_msg=str(msg or ""))

    def assertNotAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6,  # noqa: N802
                          msg: object = None) -> None:
        """Fails if `assertAllClose` holds.

        Source: tf.test.TestCase.assertNotAllClose.
        """
        self._fails(lambda: self.assertAllClose(a, b, rtol, atol), "The two values are close at all elements.", msg)

    def assertAllCloseAccordingToType(  # noqa: N802
            self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, float_rtol: float = 1e-6,
            float_atol: float = 1e-6, half_rtol: float = 1e-3, half_atol: float = 1e-3, bfloat16_rtol: float = 1e-2,
            bfloat16_atol: float = 1e-2, msg: object = None) -> None:
        """As `assertAllClose`, with tolerances for float32, float16 and bfloat16.

        Source: tf.test.TestCase.assertAllCloseAccordingToType.
        """
        limits = {"float32": (float_rtol, float_atol), "float16": (half_rtol, half_atol),
                  "bfloat16": (bfloat16_rtol, bfloat16_atol)}
        for array in (_array(a), _array(b)):
            relative, absolute = limits.get(np.asarray(array).dtype.name, (0, 0))
            rtol, atol = max(rtol, relative), max(atol, absolute)
        self.assertAllClose(a, b, rtol, atol, msg)

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:  # noqa: N802
        """Fails unless all elements are greater than a number.

        Source: tf.test.TestCase.assertAllGreater.
        """
        self.assertGreater(np.min(_array(a)), comparison_target)

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:  # noqa: N802
        """Fails unless all elements are less than a number.

        Source: tf.test.TestCase.assertAllLess.
        """
        self.assertLess(np.max(_array(a)), comparison_target)

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:  # noqa: N802
        """Fails unless all elements are greater than or equal to a number.

        Source: tf.test.TestCase.assertAllGreaterEqual.
        """
        self.assertGreaterEqual(np.min(_array(a)), comparison_target)

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:  # noqa: N802
        """Fails unless all elements are less than or equal to a number.

        Source: tf.test.TestCase.assertAllLessEqual.
        """
        self.assertLessEqual(np.max(_array(a)), comparison_target)

    def assertAllInRange(self, target: Any, lower_bound: Any, upper_bound: Any,  # noqa: N802
                         open_lower_bound: bool = False, open_upper_bound: bool = False) -> None:
        """Fails unless all elements lie between two numbers; an open side leaves out its bound.

        Source: tf.test.TestCase.assertAllInRange.
        """
        array = np.asarray(_array(target))
        above = array > lower_bound if open_lower_bound else array >= lower_bound
        below = array < upper_bound if open_upper_bound else array <= upper_bound
        self.assertTrue(bool((above & below).all()), f"{array[~(above & below)]} are not in the range")

    def assertAllInSet(self, target: Any, expected_set: Any) -> None:  # noqa: N802
        """Fails unless all elements are in a set.

        Source: tf.test.TestCase.assertAllInSet.
        """
        self.assertEmpty(set(np.ravel(_array(target)).tolist()) - set(expected_set))

    def assertArrayNear(self, farray1: Any, farray2: Any, err: float, msg: object = None) -> None:  # noqa: N802
        """Fails unless the numbers of two lists differ by at most `err`, one by one.

        Source: tf.test.TestCase.assertArrayNear.
        """
        self.assertEqual(len(farray1), len(farray2), msg)
        for first, second in zip(farray1, farray2, strict=True):
            self.assertNear(float(first), float(second), err, msg)

    def assertNear(self, f1: float, f2: float, err: float, msg: object = None) -> None:  # noqa: N802
        """Fails unless two numbers differ by at most `err`.

        Source: tf.test.TestCase.assertNear.
        """
        self.assertTrue(f1 == f2 or abs(f1 - f2) <= err, f"{f1} and {f2} differ by more than {err}. {msg or ''}")

    def assertNDArrayNear(self, ndarray1: Any, ndarray2: Any, err: float, msg: object = None) -> None:  # noqa: N802
        """Fails unless the norm of the difference of two arrays is less than `err`.

        Source: tf.test.TestCase.assertNDArrayNear.
        """
        self.assertLess(float(np.linalg.norm(np.asarray(_array(ndarray1)) - np.asarray(_array(ndarray2)))), err, msg)

    def assertDTypeEqual(self, target: Any, expected_dtype: Any) -> None:  # noqa: N802
        """Fails unless a tensor has a dtype.

        Source: tf.test.TestCase.assertDTypeEqual.
        """
        array: Any = target if hasattr(target, "dtype") else np.asarray(_array(target))
        self.assertEqual(as_dtype(array.dtype).name, as_dtype(expected_dtype).name)

    def assertShapeEqual(self, input_a: Any, input_b: Any, msg: object = None) -> None:  # noqa: N802
        """Fails unless two tensors or arrays have the same shape.

        Source: tf.test.TestCase.assertShapeEqual.
        """
        self.assertEqual(tuple(input_a.shape), tuple(input_b.shape), msg)

    @contextlib.contextmanager
    def assertRaisesWithPredicateMatch(self, exception_type: Any,  # noqa: N802
                                       expected_err_re_or_predicate: Any) -> Iterator[None]:
        """Fails unless the `with` block raises an error that a pattern matches, or a function accepts.

        Source: tf.test.TestCase.assertRaisesWithPredicateMatch.
        """
        wanted = expected_err_re_or_predicate
        try:
            yield
        except exception_type as error:
            if not (wanted(error) if callable(wanted) else re.search(wanted, str(error))):
                raise AssertionError(f"Exception of type {type(error)}: {error}") from error
        else:
            self.fail(f"{exception_type.__name__} not raised")

    def _same_shapes(self, a: Any, b: Any, msg: object) -> tuple[Any, Any]:
        first, second = np.asarray(_array(a)), np.asarray(_array(b))
        self.assertEqual(first.shape, second.shape, f"Shape mismatch: expected {first.shape}, got {second.shape}. "
                                                 f"{msg or ''}")
        return first, second

    def _fails(self, check: Callable[[], object], text: str, msg: object) -> None:
        try:
            check()
        except AssertionError:
            return
        raise AssertionError(f"{text} {msg or ''}".strip())


def main(argv: Any = None) -> None:
    """Runs the tests of the program, and ends it.

    Args:
        argv: without effect; options are those of the command.

    Source: tf.test.main.
    """
    absltest.main()


def _array(value: Any) -> Any:
    if isinstance(value, (TensorShape, str, bytes)) or value is None:
        return value
    if is_text(value):
        return array_of(value)[()]
    if isinstance(value, HoldsArray):
        value = value._read()
    if isinstance(value, (list, tuple)):
        value = [_array(item) for item in value]
    numpy = getattr(value, "numpy", None)
    return numpy() if callable(numpy) else np.asarray(value)


def _is_ragged(value: Any) -> bool:
    # A list or tuple that is no array: of dicts, or of tensors of different shapes.
    if not isinstance(value, (list, tuple)):
        return False
    if any(isinstance(item, Mapping) or _is_ragged(item) for item in value):
        return True
    return len({np.shape(_array(item)) for item in value}) > 1


def _wide(array: Any) -> Any:
    return np.complex128 if array.dtype.kind == "c" else np.float64
