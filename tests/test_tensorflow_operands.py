"""What may stand beside a tensor or a variable in a program written for TensorFlow, and what comes out.

The rule is one: what is no tensor is taken in the dtype of the tensor; NumPy's arrays whatever comes out, what Python
has only where it keeps its kind.  So NumPy says what is expected.  Where TensorFlow is installed, it is asked the same.
"""

from __future__ import annotations

import importlib.util
import operator
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from face import on_torch

import refdist
import refdist.tf

_INSTALLED = {name for name in ("keras", "torch", "tensorflow") if importlib.util.find_spec(name)}
KINDS = ["float32", "float64", "float16", "int32", "int64"]
# What stands beside the tensor, and whether integers take it.
OPERANDS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "ints": (lambda tf: [1, 2], True), "floats": (lambda tf: [1.5, 2.0], False), "tuple": (lambda tf: (1, 2), True),
    "tuple of floats": (lambda tf: (1.5, 2.0), False), "one": (lambda tf: [2], True),
    "rows": (lambda tf: [[1, 2], [3, 4]], True), "both": (lambda tf: [1, 2.5], False),
    "bools": (lambda tf: [True, True], True), "scalars": (lambda tf: [np.int64(1), np.int64(2)], True),
    "tensors": (lambda tf: [tf.constant(1), tf.constant(2)], True), "True": (lambda tf: True, True),
    "int": (lambda tf: 2, True), "float32": (lambda tf: np.float32(1.5), True),
    "float64": (lambda tf: np.float64(1.5), True), "int64": (lambda tf: np.int64(2), True),
    "bool": (lambda tf: np.bool_(True), True), "array of float64": (lambda tf: np.array([1.5, 2.5]), True),
    "array of int64": (lambda tf: np.array([1, 2]), True), "no dimension": (lambda tf: np.array(2.0), True),
    "array of bool": (lambda tf: np.array([True, True]), True)}
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
             "%": operator.mod, "**": operator.pow, "<": operator.lt, "<=": operator.le, ">": operator.gt,
             ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "&": operator.and_, "|": operator.or_,
             "^": operator.xor}
BITS = "&|^"


@pytest.fixture(params=["refdist", "tensorflow"])
def tf(request: Any) -> Iterator[Any]:
    """`refdist.tf` with tensors, or TensorFlow."""
    if not ({"keras", "torch"} if request.param == "refdist" else {"tensorflow"}) <= _INSTALLED:
        pytest.skip("it is not installed")
    if request.param == "tensorflow":
        import tensorflow
        yield tensorflow
        return
    with on_torch() as face:
        yield face


def expected(sign: str, left: Any, right: Any) -> Any:
    """What NumPy computes of two arrays of one dtype."""
    if sign == "/" and left.dtype.kind == "i":
        left, right = left.astype("float64"), right.astype("float64")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OPERATORS[sign](left, right)


def refused(tf: Any, message: str = "RD05.*int.*tf.cast") -> Any:
    """Expects the error of either library."""
    if tf is refdist.tf:
        return pytest.raises(TypeError, match=message)
    return pytest.raises((TypeError, ValueError, AttributeError, tf.errors.InvalidArgumentError))


def array_of(value: Any) -> Any:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


@pytest.mark.parametrize("what", OPERANDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", ["constant", "Variable"])
def test_an_operand_is_taken_in_the_dtype_of_the_tensor(tf: Any, made: str, kind: str, what: str) -> None:
    make, by_integers = OPERANDS[what]
    start = np.array([2, 3], kind)
    plain = make(types.SimpleNamespace(constant=np.int32))
    for sign, operate in OPERATORS.items():
        if sign in BITS and kind.startswith("float"):
            continue
        other = np.asarray(plain).astype(kind)
        for way in ("tensor first", "tensor last"):
            tensor = getattr(tf, made)(start)
            arguments, arrays = (tensor, make(tf)), (start, other)
            if way == "tensor last":
                arguments, arrays = arguments[::-1], arrays[::-1]
            if not by_integers and kind.startswith("int"):
                with refused(tf):
                    operate(*arguments)
                continue
            found, wanted = array_of(operate(*arguments)), expected(sign, *arrays)
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), (sign, way)
            np.testing.assert_allclose(found, wanted, rtol=2e-3 if kind == "float16" else 1e-6, err_msg=f"{sign} {way}")


FUNCTIONS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "equal": "==", "less": "<"}


@pytest.mark.parametrize("what", [what for what in OPERANDS if what != "True"])
def test_functions_take_what_operators_take(tf: Any, what: str) -> None:
    make, by_integers = OPERANDS[what]
    for kind in ("float32", "float64", "int64"):
        start = np.array([2, 3], kind)
        other = np.asarray(make(types.SimpleNamespace(constant=np.int32))).astype(kind)
        for name, sign in FUNCTIONS.items():
            if not by_integers and kind == "int64":
                with refused(tf):
                    getattr(tf, name)(tf.constant(start), make(tf))
                continue
            found, wanted = array_of(getattr(tf, name)(tf.constant(start), make(tf))), expected(sign, start, other)
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
            np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(("number", "other", "message"), [
    (1, [0.5, 1.0], r"RD05\] an operation on a tensor and a list: the tensor has dtype int32, beside it is \[0.5, 1"),
    (1.0, (1j, 2j), "RD05.*a tuple.*float32"), (True, [1, 2], "RD05.*bool"),
    (1.0, ["a", "b"], "RD05"), (1.0, [[1.0], [1.0, 2.0]], "RD25"), (1.0, [None], "RD25")])
def test_a_list_that_does_not_become_the_dtype_of_the_tensor_is_refused(
        tf: Any, number: Any, other: Any, message: str) -> None:
    for operands in ((tf.constant([number] * 2), other), (other, tf.constant([number] * 2))):
        with refused(tf, message):
            operator.add(*operands)


@pytest.mark.skipif(not {"keras", "torch"} <= _INSTALLED, reason="Keras or PyTorch is not installed")
def test_a_list_of_integers_that_are_too_large_is_refused_where_tensorflow_lets_them_wrap() -> None:
    with pytest.raises(TypeError, match=r"RD05.*\[1099511627776, 1\] does not fit into the tensor's dtype, int32"):
        operator.add(refdist.tf.convert_to_tensor([1, 2]), [2**40, 1])


def test_a_list_times_a_number_is_no_longer_list(tf: Any) -> None:
    assert array_of(tf.constant(2) * [1, 2]).tolist() == array_of([1, 2] * tf.constant(2)).tolist() == [2, 4]


def test_a_gradient_goes_through_a_list_of_tensors(tf: Any) -> None:
    x, v = tf.constant([2.0, 3.0]), tf.Variable(4.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum([v, 2.0] * x - [1.0, 2.0])
    dx, dv = tape.gradient(y, [x, v])
    assert (y.numpy(), array_of(dx).tolist(), array_of(dv)) == (11.0, [4.0, 2.0], 2.0)


def test_a_tensor_does_not_change_by_an_operator_that_assigns(tf: Any) -> None:
    x = y = tf.constant([1.0, 2.0])
    y += 1.0
    y *= [2.0, 3.0]
    y -= np.array([0.5, 0.5])
    y **= 2.0
    assert x.numpy().tolist() == [1.0, 2.0] and y.numpy().tolist() == [12.25, 72.25]
    sums = [total := tf.zeros(())]
    for _ in range(2):
        total += tf.constant(3.0)
        sums.append(total)
    assert [array_of(each).item() for each in sums] == [0.0, 3.0, 6.0]
    whole = tf.constant([1, 2])
    whole /= 2
    assert whole.numpy().tolist() == [0.5, 1.0]
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = x
        z += 1.0
        loss = tf.reduce_sum(z * z)
    assert array_of(tape.gradient(loss, x)).tolist() == [4.0, 6.0]


def test_functions_of_numpy_take_tensors(tf: Any) -> None:
    x, v = tf.constant([[1.0, 2.0], [3.0, 6.0]]), tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * v
        for found, wanted in ((np.sum(y), 20.0), (np.mean(y, axis=0), [2.0, 8.0]), (np.max(y), 12.0), (np.std(x), 1.87),
                              (np.argmax(y, axis=1), [1, 1]), (np.round(y)[0], [1, 4]), (np.exp(0 * x)[0], [1, 1]),
                              (np.concatenate([y, x])[3], [3, 6]), (np.allclose(y, y), True), (y.numpy()[0], [1, 4])):
            assert isinstance(found, (np.ndarray, np.generic, bool))
            np.testing.assert_allclose(found, wanted, rtol=1e-3)
    assert array_of(tape.gradient(y, v)).tolist() == [4.0, 8.0]


@pytest.mark.skipif(not {"keras", "torch"} <= _INSTALLED, reason="Keras or PyTorch is not installed")
def test_in_modules_that_import_pytorch_operators_are_pytorch_s() -> None:
    program = """
import refdist.tf as tf
tf.keras
{more}
x = y = tf.convert_to_tensor([1.0, 2.0])
y += 1.0
quotient = tf.convert_to_tensor([1, 2]) / 2
"""
    for more, first, dtype in (("", 1.0, "float64"), ("from torch import nn", 2.0, "float32")):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(program.format(more=more), names)
        assert names["x"].tolist()[0] == first and names["quotient"].dtype == dtype


def test_integers_of_64_bits_stay_so(tf: Any) -> None:
    x = tf.constant(np.array([2**40, 3]))
    for found, wanted in ((tf.maximum(x, 4), [2**40, 4]), (tf.minimum(x, x), [2**40, 3]),
                          (tf.cumsum(x), [2**40, 2**40 + 3]), (tf.math.floordiv(x, 2), [2**39, 1]),
                          (tf.reduce_prod(x), 3 * 2**40)):
        assert array_of(found).dtype == np.int64 and array_of(found).tolist() == wanted


def test_a_constant_has_the_shape_and_the_dtype_that_are_asked_for(tf: Any) -> None:
    for made, wanted in ((tf.constant(3, shape=(2, 2)), np.full((2, 2), 3, "int32")),
                         (tf.constant([1, 2, 3, 4], tf.float32, [2, 2]), np.float32([[1, 2], [3, 4]])),
                         (tf.constant([[1, 2]], shape=[2]), np.int32([1, 2])),
                         (tf.constant([1.0], shape=[3]), np.float32([1, 1, 1])),
                         (tf.constant(np.array([300, 1]), tf.uint8), np.uint8([44, 1])),
                         (tf.constant(np.array([1.5]), tf.int32), np.int32([1])),
                         (tf.constant(np.float64(1.5), tf.float32), np.float32(1.5))):
        assert array_of(made).dtype == wanted.dtype and array_of(made).tolist() == wanted.tolist()
    for value, dtype, shape in (([1, 2, 3], None, [2, 2]), ([1.5], tf.int32, None)):
        with pytest.raises((TypeError, refdist.errors.InvalidArgumentError),
                           match="RD04.*3 numbers.*4|RD05" if tf is refdist.tf else None):
            tf.constant(value, dtype, shape)


def test_a_tape_gives_jacobians_and_the_variables_that_were_read(tf: Any) -> None:
    a, b, x = tf.Variable([1.0, 2.0]), tf.Variable(3.0), tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = a * a * b, x ** 3
    assert array_of(tape.jacobian(y, a)).tolist() == [[6.0, 0.0], [0.0, 12.0]]
    by_a, by_b, by_x = tape.jacobian(y, [a, b, x])
    assert array_of(by_a)[1].tolist() == [0.0, 12.0] and array_of(by_b).tolist() == [1.0, 4.0] and by_x is None
    assert array_of(tape.batch_jacobian(z, x)).tolist() == [[[3.0, 0.0], [0.0, 12.0]], [[27.0, 0.0], [0.0, 48.0]]]
    assert [id(variable) for variable in tape.watched_variables()] == [id(a), id(b)]
    with tf.GradientTape() as tape:
        y = a * b
    assert array_of(tape.jacobian(y, b)).tolist() == [1.0, 2.0]
    with pytest.raises(RuntimeError):
        tape.jacobian(y, b)


def test_a_function_has_the_gradients_that_a_program_gives_it(tf: Any) -> None:
    @tf.custom_gradient
    def stable(x: Any) -> Any:
        power = tf.exp(x)
        return tf.math.log(1 + power), lambda upstream: upstream * (1 - 1 / (1 + power))

    @tf.custom_gradient
    def both(x: Any, y: Any) -> Any:
        return (x + y, x * y), lambda first, second: (2.0 * first + second, 3.0 * second)

    x, v = tf.constant(100.0), tf.Variable(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = stable(x)
        total, product = both(v * 5.0, x)
        outcome = total + 10.0 * product
    assert array_of(tape.gradient(y, x)).item() == 1.0
    assert [array_of(one).item() for one in tape.gradient(outcome, [v, x])] == [60.0, 30.0]


def test_several_steps_of_a_model_without_a_strategy_are_one_execution(tf: Any) -> None:
    x = np.arange(24, dtype="float32").reshape(8, 3) / 24
    histories = []
    for steps in (1, 2):
        tf.keras.utils.set_random_seed(3)
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=steps)
        history = model.fit(x, x.sum(1), batch_size=2, epochs=2, verbose=0, shuffle=False).history["loss"]
        histories.append([*history, model.evaluate(x, x.sum(1), batch_size=3, verbose=0)])
        assert model.predict(x, batch_size=3, verbose=0).shape == (8, 1)
        assert str(model.optimizer.iterations.dtype) == "int64" and int(model.optimizer.iterations) == 8
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-6)


def test_initial_values_come_from_tensorflow_s_functions(tf: Any) -> None:
    assert array_of(tf.zeros_initializer()((2,))).tolist() == [0.0, 0.0]
    assert array_of(tf.ones_initializer()((1,), dtype="int32")).tolist() == [1]
    assert array_of(tf.constant_initializer(3.0)((2,))).tolist() == [3.0, 3.0]
    drawn = tf.random_normal_initializer(seed=3)((2,))
    np.testing.assert_allclose(array_of(drawn), [-0.03357924, 0.08380252], rtol=1e-6)
    drawn = tf.random_uniform_initializer(-1.0, 1.0, seed=3)((2,), dtype=tf.float64)
    np.testing.assert_allclose(array_of(drawn), [0.13460605, -0.48359538], rtol=1e-6)
    assert tf.version.VERSION.startswith("2.21") and tf.test.gpu_device_name() == ""
