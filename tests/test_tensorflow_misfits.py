"""Calls of operations that cannot be: a program catches what TensorFlow raises, and the text shows the call.

The calls stand in `tables/tensorflow_misfits.txt`.  Where TensorFlow is installed, it is asked whether it raises that.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from face import on_torch

import refdist
import refdist.tf
from refdist import errors
from refdist.tf import misfits

_INSTALLED = {name for name in ("keras", "torch", "tensorflow") if importlib.util.find_spec(name)}
_LINES = (Path(__file__).parent / "tables" / "tensorflow_misfits.txt").read_text().splitlines()
# Calls with dtypes that TensorFlow does not take together, or at all.
_MADE = {"i": "tf.constant([[1, 2], [3, 4]])", "l": "tf.constant([[1, 2], [3, 4]], tf.int64)", "f": "tf.ones([2, 2])",
         "d": "tf.ones([2, 2], tf.float64)", "b": "tf.constant([[True, False]])", "v": "tf.Variable(tf.ones([2, 2]))"}
DTYPES = [
    "i + f", "f - d", "i * l", "i / f", "i // l", "f % d", "f ** d", "f @ d", "i == f", "f < d", "i & l",
    "v * i", "i + 0.5", "0.5 * i", "i / 0.5", "2.5 - i", "i > 0.5", "tf.sqrt(i)", "tf.exp([1, 2])", "tf.math.log(b)",
    "tf.sigmoid(4)", "tf.norm(i)", "tf.reduce_logsumexp(i)", "tf.math.reduce_variance(i)", "tf.math.is_nan(l)",
    "tf.reduce_sum(tf.equal(f, 1.0))", "tf.reduce_mean(b)", "tf.abs(b)", "tf.sort(b)",
    "tf.reduce_any(i)", "tf.logical_and(b, i)", "tf.logical_not(f)", "tf.matmul(f, d)", "tf.linalg.matvec(f, d[0])",
    "tf.tensordot(i, f, 1)", "tf.einsum('ij,jk->ik', f, d)", "tf.concat([i, f], 0)", "tf.stack([f, d])",
    "tf.add_n([f, d])", "tf.nn.bias_add(f, d[0])", "tf.tensor_scatter_nd_update(f, [[0]], d[:1])", "tf.where(b, f, d)",
    "tf.nn.sigmoid_cross_entropy_with_logits(labels=i, logits=f)", "tf.linalg.triangular_solve(f, d)"]
CALLS = [tuple(line.rsplit(" : ", 1)) for line in _LINES if not line.startswith("#")]


def values(tf: Any) -> dict[str, Any]:
    """What the calls of DTYPES speak of."""
    return {"tf": tf, **{name: eval(made, {"tf": tf}) for name, made in _MADE.items()}}


def kind_of(name: str, tf: Any) -> Any:
    """A class of errors by its name: Python's, or TensorFlow's."""
    return {"ValueError": ValueError, "TypeError": TypeError}.get(name) or getattr(tf.errors, name)


@pytest.fixture
def tf() -> Iterator[Any]:
    """`refdist.tf` with tensors of PyTorch."""
    if not {"keras", "torch"} <= _INSTALLED:
        pytest.skip("Keras or PyTorch is not installed")
    with on_torch() as face:
        yield face


def asserts_what_is_said(tf: Any, call: str, kind: str) -> None:
    """The error has the class, the code, the operation's name, and what the library said as its cause."""
    with pytest.raises(kind_of(kind, tf), match=rf"^\[RD34\] {re.escape(call.partition('(')[0])}\(.+\): .+\. Pass .+\.$"
                       ) as caught:
        eval(call, {"tf": tf})
    assert caught.value.__cause__ is not None and not isinstance(caught.value.__cause__, refdist.errors.RefdistError)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


@pytest.mark.parametrize(("call", "kind"), CALLS, ids=[call for call, _ in CALLS])
def test_a_call_that_cannot_be_raises_what_tensorflow_raises_and_names_the_operation(
        tf: Any, call: str, kind: str) -> None:
    asserts_what_is_said(tf, call, kind)


@pytest.mark.skipif("tensorflow" not in _INSTALLED, reason="TensorFlow is not installed")
@pytest.mark.parametrize(("call", "kind"), CALLS, ids=[call for call, _ in CALLS])
def test_tensorflow_raises_it(call: str, kind: str) -> None:
    import tensorflow

    with pytest.raises(kind_of(kind, tensorflow)):
        eval(call, {"tf": tensorflow})


@pytest.mark.parametrize("call", DTYPES)
def test_dtypes_that_do_not_belong_together_are_refused(tf: Any, call: str) -> None:
    for kind in (tf.errors.InvalidArgumentError, TypeError):
        with pytest.raises(kind, match=r"^\[RD05\] .*(int32|int64|float32|float64|bool).*[Cc]ast"):
            eval(call, values(tf))


@pytest.mark.skipif("tensorflow" not in _INSTALLED, reason="TensorFlow is not installed")
@pytest.mark.parametrize("call", DTYPES)
def test_tensorflow_refuses_these_dtypes(call: str) -> None:
    import tensorflow

    with pytest.raises((TypeError, ValueError, tensorflow.errors.InvalidArgumentError)):
        eval(call, values(tensorflow))


@pytest.mark.parametrize(("call", "result"), [
    ("tf.concat([f[0], [2, 3]], 0)", [1.0, 1.0, 2.0, 3.0]), ("tf.stack([f[0, 0], 3])", [1.0, 3.0]),
    ("tf.matmul(f, [[1], [2]])", [[3.0], [3.0]]), ("tf.matmul(f, np.array([[1.0], [2.0]]))", [[3.0], [3.0]]),
    ("tf.reduce_any(np.array([0, 1]))", True), ("tf.concat([[1], [2]], 0)", [1, 2]), ("f[0] + 1", [2.0, 2.0]),
    ("tf.einsum('ij,j->i', f, np.array([1.0, 2.0]))", [3.0, 3.0]), ("tf.reduce_sum(tf.cast(b, tf.int32))", 1)])
def test_what_is_no_tensor_becomes_what_stands_beside_it(tf: Any, call: str, result: Any) -> None:
    computed = eval(call, {"np": np, **values(tf)})
    assert computed.numpy().tolist() == result
    assert computed.dtype.name in ("float32", "bool", "int32")


def test_an_operator_in_a_program_of_pytorch_promotes_as_pytorch_does(tf: Any) -> None:
    program = {"__name__": "__main__", **values(tf)}
    exec("import torch\nx = i + f, i + 0.5, f < d", program)
    assert [part.dtype for part in program["x"]] == [program["torch"].float32] * 2 + [program["torch"].bool]


@pytest.mark.parametrize(("call", "text"), [
    ("tf.matmul(x, v, transpose_b=True)", r"tf.matmul\(a=float32\[2, 3\], b=float32\[2, 4\], transpose_b=True\): "),
    ("tf.concat([x] * 5 + [v], axis=0)", r"tf.concat\(values=\[float32\[2, 3\], .*, \.\.\.\], axis=0\): "),
    ("tf.math.log(x + [1.0, 2.0])", r"float32\[2, 3\] \+ float32\[2\]|float32\[2, 3\] \+ \[1.0, 2.0\]"),
    ("x @ x", r"float32\[2, 3\] @ float32\[2, 3\]: "), ("[1.0, 2.0] - x", r"\[1.0, 2.0\] - float32\[2, 3\]: "),
    ("x < v", r"float32\[2, 3\] < float32\[2, 4\]: "), ("tf.nn.relu('a')", "RD25.*text"),
    ("tf.random.normal([-1])", r"RD25.*\[-1\]"),
    ("tf.strings.substr('ab', 'x', 1)", r"RD34\] tf.strings.substr\(input='ab', pos='x', len=1\): ")])
def test_an_error_shows_the_dtypes_and_shapes_of_the_arguments(tf: Any, call: str, text: str) -> None:
    for kind in (tf.errors.InvalidArgumentError, ValueError, TypeError):
        with pytest.raises(kind, match=text):
            eval(call, {"tf": tf, "x": tf.ones([2, 3]), "v": tf.Variable(tf.ones([2, 4]))})


def test_an_operator_in_a_program_of_pytorch_raises_pytorch_s_error(tf: Any) -> None:
    source = "import torch\nx = tf.ones([2]) + tf.ones([3])"
    with pytest.raises(RuntimeError, match="must match"):
        exec(source, {"__name__": "__main__", "tf": tf})


def test_errors_of_the_program_s_own_functions_stay_what_they_are(tf: Any) -> None:
    def fails(*_: object) -> Any:
        raise ValueError("the program's own")

    for call in (lambda: tf.map_fn(fails, tf.ones([2])), lambda: tf.cond(True, fails, fails),
                 lambda: tf.while_loop(fails, fails, [1]), lambda: tf.numpy_function(fails, [1], tf.int32)):
        with pytest.raises(ValueError, match=r"^the program's own$") as caught:
            call()
        assert type(caught.value) is ValueError


def test_errors_of_a_program_s_own_generator_stay_what_they_are() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise ValueError("the program's own")

    operation = misfits.checked(np.fromiter, "tf.f")
    with pytest.raises(ValueError, match=r"^the program's own$") as caught:
        operation(rows(), float)
    assert type(caught.value) is ValueError
    with pytest.raises(errors.MisfitError, match=r"RD34\] tf.f\(.*\): "):
        operation(["a"], float)


def test_what_a_library_says_is_cut() -> None:
    with pytest.raises(errors.MisfitError, match=r"RD34\] tf.f\(\): shapes .*\.\.\.\. Pass") as caught:
        misfits.refuse_call("tf.f()", RuntimeError("shapes " * 200))
    assert len(str(caught.value)) < 500


def test_a_full_memory_and_a_recursion_without_end_are_not_about_arguments() -> None:
    for failure in (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
                    RecursionError("maximum recursion depth exceeded")):
        misfits.refuse_call("tf.f()", failure)  # leaves it as it is


def test_what_a_library_says_of_its_memory_is_not_about_arguments(tf: Any) -> None:
    import torch

    misfits.refuse_call("tf.matmul()", torch.OutOfMemoryError("the memory is full"))
