"""What a program written for TensorFlow finds: operations, the tape, `tf.function`, and `import tensorflow` itself.

The operations stand in `tables/tensorflow_operations.txt` with what NumPy computes.  Where TensorFlow is installed, it
is asked the same: what is expected here is what it computes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from face import on_torch
from limits import HANG

import refdist
import refdist.tf
from refdist.runtime import process
from refdist.tf import notebooks
from refdist.tf.names import INSTEAD, Namespace
from refdist.tf.operations import OPERATIONS, find

_INSTALLED = {name for name in ("keras", "torch", "tensorflow") if importlib.util.find_spec(name)}
needs_keras = pytest.mark.skipif(not {"keras", "torch"} <= _INSTALLED, reason="Keras or PyTorch is not installed")
needs_tensorflow = pytest.mark.skipif("tensorflow" not in _INSTALLED, reason="TensorFlow is not installed")
F32, F64, I32 = np.float32, np.float64, np.int32

_TABLE = Path(__file__).parent / "tables" / "tensorflow_operations.txt"
_NAMES = _TABLE.with_name("tensorflow_names.txt")
CALLS = [tuple(line.split(" : ")) for line in _TABLE.read_text().splitlines() if line and not line.startswith("#")]
NAMES: dict[str, Any] = {
    "np": np, "math": math, "F": lambda value: np.array(value, F32), "I": lambda value: np.array(value, I32),
    "f": np.array([[-1.5, 0.25, 1.0], [0.5, 1.0, 2.5]], F32), "g": np.array([[1, 2, 0.5], [4, 0.25, 3]], F32),
    "i": np.array([[1, -2, 3], [4, 2, 7]], I32), "b": np.array([[True, False, True], [False, False, True]]),
    "s": np.array([[4, 1], [1, 3]], F32)}


@pytest.fixture
def tf() -> Iterator[Any]:
    with on_torch() as face:
        face.texts.connect()
        yield face


@needs_keras
def test_keras_is_the_module_though_a_folder_has_its_name(tf: Any) -> None:
    from refdist.tf.keras import connect

    assert tf.keras is connect() is tf.compat.v2.keras and tf.keras.__name__ == "keras"



def alike(found: Any, expected: Any) -> None:
    """Whether a value of either library is the one that NumPy computes, with its dtype."""
    if expected is None:
        return
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for part, wanted in zip(found, expected, strict=True):
            alike(part, wanted) if not isinstance(wanted, (int, type(None))) else None
        return
    array = np.asarray(found.numpy() if hasattr(found, "numpy") else found)
    assert (array.shape, array.dtype) == (np.shape(expected), np.asarray(expected).dtype)
    np.testing.assert_allclose(array, expected, rtol=2e-6, atol=1e-6)


@needs_keras
@pytest.mark.parametrize(("call", "expected"), CALLS, ids=[call for call, _ in CALLS])
def test_an_operation_computes_what_numpy_computes(tf: Any, call: str, expected: str) -> None:
    alike(eval(call, {"tf": tf, **NAMES}), eval(expected, NAMES))


@needs_tensorflow
@pytest.mark.parametrize(("call", "expected"), CALLS, ids=[call for call, _ in CALLS])
def test_tensorflow_computes_what_is_expected_of_an_operation(call: str, expected: str) -> None:
    import tensorflow

    alike(eval(call, {"tf": tensorflow, **NAMES}), eval(expected, NAMES))


def test_every_operation_of_the_table_has_a_call() -> None:
    text = "\n".join(call for call, _ in CALLS)
    assert [operation.paths for operation in OPERATIONS.values()
            if not any(f"tf.{path}(" in text for path in operation.paths)] == []


def _texts() -> list[tuple[str, str]]:
    lines = (Path(__file__).parent / "tables" / "tensorflow_texts.txt").read_text().splitlines()
    return [(call, (text.replace("\\n", "\n") if text[0] == "<" else text).replace("↵", "\n")) for call, _, text in
            (line.partition(" : ") for line in lines if not line.startswith("#"))]


TEXTS = _texts()


def printed(tf: Any, *values: object, **options: Any) -> str:
    """What tf.print writes."""
    with tempfile.NamedTemporaryFile() as file:
        tf.print(*values, output_stream=f"file://{file.name}", **options)
        return Path(file.name).read_text()


def adapted(layer: Any, data: list[str]) -> list[str]:
    """The vocabulary that a layer makes of data."""
    layer.adapt(data)
    return list(map(str, layer.get_vocabulary()))


def row(tf: Any) -> bytes:
    """A row of a file of records."""
    feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 2.0])),
               "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[-3])),
               "s": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"text"]))}
    serialized: bytes = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    return serialized


def feature(tf: Any, values: list[Any]) -> Any:
    """A feature that has these values; of none, a feature without a list."""
    if not values:
        return tf.train.Feature()
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def features(tf: Any, **values: list[Any]) -> Any:
    """Features by their names."""
    return tf.train.Features(feature={name: feature(tf, each) for name, each in values.items()})


def lists(tf: Any) -> list[bytes]:
    """Rows with lists of different lengths, and without some of them."""
    rows = [features(tf, a=[1, 2], b=[0.5], c=[b"x", b"yy"], s=[1.0, 2.0, 3.0, 4.0]),
            features(tf, a=[3, 4], b=[], s=[5.0, 6.0]), features(tf, a=[5, 6], c=[b"z"])]
    return [tf.train.Example(features=each).SerializeToString() for each in rows]


def LISTS(tf: Any) -> dict[str, Any]:  # noqa: N802
    """What the features of `lists` are."""
    return {"a": tf.io.FixedLenFeature([2], tf.int64), "b": tf.io.FixedLenFeature([], tf.float32, default_value=-1.0),
            "c": tf.io.VarLenFeature(tf.string),
            "s": tf.io.FixedLenSequenceFeature([2], tf.float32, allow_missing=True)}


def steps(tf: Any) -> list[bytes]:
    """Two rows with sequences."""
    def of_steps(**values: list[list[Any]]) -> Any:
        return tf.train.FeatureLists(feature_list={
            name: tf.train.FeatureList(feature=[feature(tf, step) for step in each]) for name, each in values.items()})

    rows = [(features(tf, label=[1], name=[b"n"]), of_steps(
                tok=[[1], [2], [3]], vec=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], var=[[b"a"], [b"b", b"c"], []])),
            (features(tf, label=[0]), of_steps(tok=[[9]], vec=[[7.0, 8.0]], var=[[b"q"]]))]
    return [tf.train.SequenceExample(context=context, feature_lists=each).SerializeToString() for context, each in rows]


def STEPS(tf: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: N802
    """What the features of `steps` are: those of the whole row, and those of steps."""
    return ({"label": tf.io.FixedLenFeature([], tf.int64), "name": tf.io.VarLenFeature(tf.string)},
            {"tok": tf.io.FixedLenSequenceFeature([], tf.int64),
             "vec": tf.io.FixedLenSequenceFeature([2], tf.float32), "var": tf.io.VarLenFeature(tf.string)})


def parts(parsed: Any) -> Any:
    """What was parsed as numbers and text; of a sparse tensor its indices, its values and the shape of the whole."""
    if isinstance(parsed, dict):
        return {name: parts(each) for name, each in sorted(parsed.items())}
    if isinstance(parsed, tuple):
        return [parts(each) for each in parsed]
    if hasattr(parsed, "dense_shape"):
        return tuple(parts(each) for each in (parsed.indices, parsed.values, parsed.dense_shape))
    return np.asarray(parsed.numpy()).tolist()


# A picture with opacity in which every row has another filter.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d494844520000000400000005080600000062ad4ddb0000006049444154789c015500aaff004420823cfde6"
    "f1c26b30f90ec7dd01e401887534a28796d962b463cb0aae7225690228013c498500c82f9c29659c67819e1a03a78ed980b36461c44e0d"
    "a45f6ec3660504fb46df2121ba6740b9473a9698aaeb756f8a263c6abc827a0000000049454e44ae426082")
HELPERS = {"np": np, "printed": printed, "adapted": adapted, "row": row, "PNG": PNG, "lists": lists, "LISTS": LISTS,
           "steps": steps, "STEPS": STEPS, "parts": parts}


@needs_keras
@pytest.mark.parametrize(("call", "text"), TEXTS, ids=[call for call, _ in TEXTS])
def test_a_program_prints_what_it_prints_on_tensorflow(tf: Any, call: str, text: str) -> None:
    assert repr(eval(call, {"tf": tf, **HELPERS})) == text


@needs_tensorflow
@pytest.mark.parametrize(("call", "text"), TEXTS, ids=[call for call, _ in TEXTS])
def test_tensorflow_prints_it(call: str, text: str) -> None:
    import tensorflow

    assert repr(eval(call, {"tf": tensorflow, **HELPERS})) == text


@needs_keras
def test_values_of_replicas_are_printed_as_tensors(tf: Any) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = tf.Variable(1.0, name="v")
    each = strategy.run(lambda: tf.identity(2.0))
    assert str(each) == """PerReplica:{
  0: tf.Tensor(2.0, shape=(), dtype=float32),
  1: tf.Tensor(2.0, shape=(), dtype=float32)
}"""
    assert repr(each).splitlines()[1] == "  0: <tf.Tensor: shape=(), dtype=float32, numpy=2.0>,"
    assert str(variable) == repr(variable) == """MirroredVariable:{
  0: <tf.Variable 'v:0' shape=() dtype=float32, numpy=1.0>,
  1: <tf.Variable 'v/replica_1:0' shape=() dtype=float32, numpy=1.0>
}"""
    assert repr(tf.data.Dataset.range(2).batch(2)) == \
        "<Dataset element_spec=TensorSpec(shape=(None,), dtype=tf.int64, name=None)>"


@needs_keras
def test_a_replica_s_number_is_a_tensor_and_its_device_that_of_its_tensors(tf: Any) -> None:
    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
    seen = strategy.run(lambda: (str(tf.distribute.get_replica_context().replica_id_in_sync_group),
                                 tf.constant(1.0).device[-5:]))
    assert [part.values for part in seen] == [
        ("tf.Tensor(0, shape=(), dtype=int32)", "tf.Tensor(1, shape=(), dtype=int32)"), ("GPU:0", "GPU:1")]
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2))
    assert str(data.element_spec) == repr(data.element_spec) == (
        "PerReplicaSpec(TensorSpec(shape=(None,), dtype=tf.int64, name=None), "
        "TensorSpec(shape=(None,), dtype=tf.int64, name=None))")


@needs_keras
@pytest.mark.parametrize(("call", "text"), [
    (lambda tf: tf.image.central_crop(1.0, 0.5), r"RD34.*\(\)"),
    (lambda tf: tf.image.resize(tf.ones([2, 2, 1]), [2]), r"RD34.*size is \(2,\)"),
    (lambda tf: tf.image.random_crop(tf.ones([2, 2, 1]), [1, 1]), r"RD34.*size is \(1, 1\)"),
    (lambda tf: tf.random.categorical(tf.ones([3]), 2), r"RD34.*expand_dims"),
    (lambda tf: tf.random.stateless_categorical(tf.ones([3]), 2, [1, 2]), r"RD34.*expand_dims"),
    (lambda tf: tf.add(tf.constant("a"), 1.0), "RD25.*Pass text"), (lambda tf: tf.exp("a"), "RD25.*tf.strings"),
    (lambda tf: tf.strings.lower(1), "RD25.*tf.string"), (lambda tf: tf.strings.split(["a b", "c"]), "RD20.*padded"),
    (lambda tf: tf.strings.to_number("x"), "RD34.*'x' is no float32"), (lambda tf: tf.cast("1", tf.int32), "RD05"),
    (lambda tf: tf.strings.substr("ab", 3, 1), "RD34.*pos is 3"), (lambda tf: tf.strings.format("{}", []), "RD34"),
    (lambda tf: tf.strings.length("a", "UTF8"), "RD34.*UTF8_CHAR"), (lambda tf: tf.constant(["a", ["b"]]), "RD34"),
    (lambda tf: tf.lookup.KeyValueTensorInitializer(["a"], [1, 2]), "RD34"),
    (lambda tf: tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "a"], [1, 2]), 0), "RD34.*'a'"),
    (lambda tf: tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0)[[1]], "RD25"),
    (lambda tf: tf.lookup.TextFileInitializer("/none", tf.string, -2, tf.int64, -1), "RD30"),
    (lambda tf: tf.image.ssim(tf.ones((2, 2, 1)), tf.ones((2, 2, 1)), 1.0), "RD34.*smaller filter_size"),
    (lambda tf: tf.image.psnr(tf.ones((2, 2, 1)), tf.ones((2, 2, 1), tf.float64), 1.0), "RD05.*one dtype"),
    (lambda tf: tf.io.read_file("/none"), "RD30"), (lambda tf: tf.io.decode_png("a"), "RD34.*no PNG"),
    (lambda tf: tf.io.write_file("", "a"), "RD30"), (lambda tf: tf.io.write_file("a", ["b", "c"]), r"RD34.*\(2,\)"),
    (lambda tf: tf.io.encode_jpeg(tf.ones([2, 2, 3])), "RD34.*float32"),
    (lambda tf: tf.io.decode_raw(["abc"], tf.int32), "RD34"), (lambda tf: tf.io.decode_csv("a", [0]), "RD34.*'a'"),
    (lambda tf: tf.io.decode_csv("1,2", [0]), "RD34.*2 columns"), (lambda tf: tf.io.parse_tensor("a", "int32"), "RD34"),
    (lambda tf: tf.io.parse_single_example(row(tf), {"y": tf.io.FixedLenFeature([2], tf.int64)}), "RD34.*1 value"),
    (lambda tf: tf.io.parse_single_example(row(tf), {"y": tf.io.FixedLenFeature([], tf.string)}), "RD34.*int64_list"),
    (lambda tf: tf.io.parse_single_example(row(tf), {"y": None}), "RD20.*FixedLenFeature"),
    (lambda tf: tf.io.parse_single_example(lists(tf)[0], {"a": tf.io.VarLenFeature(tf.float32)}), "RD34.*int64_list"),
    (lambda tf: tf.io.parse_example(lists(tf), {"a": tf.io.VarLenFeature(tf.int32)}), "RD34.*int32"),
    (lambda tf: tf.io.parse_example(lists(tf), {"s": tf.io.FixedLenSequenceFeature([2], tf.float32)}),
     "RD34.*allow_missing=True"),
    (lambda tf: tf.io.parse_example(lists(tf), {"s": tf.io.FixedLenSequenceFeature([3], tf.float32, True)}),
     r"RD34.*4 values.*\(3,\)"),
    (lambda tf: tf.io.parse_single_sequence_example(steps(tf)[0], None, {
        "no": tf.io.FixedLenSequenceFeature([], tf.int64)}), "RD34.*'no'"),
    (lambda tf: tf.io.parse_single_sequence_example(steps(tf)[0], None, {
        "vec": tf.io.FixedLenSequenceFeature([3], tf.float32)}), "RD34.*2 values"),
    (lambda tf: tf.io.parse_single_sequence_example(steps(tf)[0], None, {
        "tok": tf.io.FixedLenFeature([], tf.int64)}), "RD20.*FixedLenSequenceFeature"),
    (lambda tf: tf.io.parse_sequence_example(steps(tf), None, {
        "tok": tf.io.FixedLenSequenceFeature([], tf.int64, default_value=5)}), "RD34.*default_value 5"),
    (lambda tf: tf.sparse.to_dense([1]), "RD25.*VarLenFeature"), (lambda tf: tf.sparse.reorder([1]), "RD20.*one_hot"),
    (lambda tf: tf.sparse.to_dense(tf.SparseTensor([[1, 0], [0, 1]], [1, 2], [2, 2])), "RD34.*ascending"),
    (lambda tf: tf.sparse.to_dense(tf.SparseTensor([[0, 1], [0, 1]], [1, 2], [2, 2])), "RD34.*once"),
    (lambda tf: tf.sparse.to_dense(tf.SparseTensor([[0, 5]], [1], [2, 2])), "RD34.*below"),
    (lambda tf: tf.sparse.to_dense(tf.SparseTensor([[0]], [1], [2]), default_value=0.5), "RD05"),
    (lambda tf: tf.SparseTensor([[0, 1]], [1, 2], [2, 2]), r"RD34.*\(1, 2\)"),
    (lambda tf: list(tf.data.Dataset.range(1).map(lambda x: tf.sparse.from_dense([x]))), "RD20.*to_dense"),
    (lambda tf: tf.train.BytesList(value=[tf.constant(["a"])]), "RD25"),
    (lambda tf: tf.train.Example.FromString(tf.constant("a")), r"RD25.*x.numpy\(\)"),
    (lambda tf: tf.train.ExponentialMovingAverage(0.5).apply(tf.Variable(1.0)), "RD25.*Pass a list of variables"),
    (lambda tf: tf.train.ExponentialMovingAverage(0.5).apply([1.0]), "RD25.*tensors have no average"),
    (lambda tf: tf.train.ExponentialMovingAverage([]).apply([]), "RD25.*decay is .*Pass a number"),
    (lambda tf: tf.train.ExponentialMovingAverage(0.5, "x").apply([]), "RD25.*num_updates is 'x'"),
    (lambda tf: tf.train.BytesList(value=["a"]), "RD25.*encode"), (lambda tf: tf.train.Int64List(value=[0.5]), "RD25"),
    (lambda tf: tf.keras.layers.StringLookup(output_mode="tf_idf"), "RD20"),
    (lambda tf: tf.keras.layers.StringLookup()(["a"]), "RD29.*adapt"),
    (lambda tf: tf.keras.layers.StringLookup(["a"]), "RD25.*vocabulary="),
    (lambda tf: tf.keras.layers.StringLookup(vocabulary=["a", "a"]), "RD34"),
    (lambda tf: tf.keras.layers.Hashing(num_bins=0), "RD34"),
])
def test_text_images_and_rows_that_cannot_be_are_errors(tf: Any, call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(refdist.errors.RefdistError, match=text):
        call(tf)


@needs_keras
@pytest.mark.parametrize(("call", "text"), [
    ("tf.math.segment_max(f, [1, 0])", r"segment_ids are \[1, 0\].*unsorted_segment_max"),
    ("tf.math.segment_sum(f, [-1, 0])", r"segment_ids are \[-1, 0\]"),
    ("tf.math.segment_min(f, [0])", r"shape \(2, 3\).*groups \(1,\)"),
    ("tf.math.segment_sum(f, [0.0, 1.0])", "float32.*tf.cast"), ("tf.math.segment_prod(f, [[0, 1]])", "a vector"),
    ("tf.math.unsorted_segment_sum(f, [0, 5], 3)", r"num_segments is 3.*\[0, 5\]"),
    ("tf.math.unsorted_segment_max(f, [0, 0], -1)", "num_segments is -1"),
    ("tf.math.unsorted_segment_mean(f, [[0, 1], [0, 1]], 2)", r"\(2, 2\)"),
    ("tf.dynamic_partition(f, [0, 3], 3)", r"\[0, 3\].*below num_partitions"),
    ("tf.dynamic_partition(f, [0, -1], 3)", r"\[0, -1\]"), ("tf.dynamic_partition(f, [0], 3)", r"\(1,\)"),
    ("tf.dynamic_stitch([[0, -1]], [[1, 2]])", r"\[0, -1\]"),
    ("tf.dynamic_stitch([[0, 1]], [[1, 2, 3]])", r"shape \(3,\)"),
    ("tf.dynamic_stitch([[0, 1], [2]], [f, [[1.0]]])", r"\[\(3,\), \(1,\)\]"),
    ("tf.math.bincount([-1, 1])", "0 or more"), ("tf.math.bincount([0, 1], weights=[1.0])", r"weights are \[1.0\]"),
    ("tf.math.confusion_matrix([0, 5], [0, 1], 3)", r"labels are \[0, 5\].*3 classes"),
    ("tf.math.confusion_matrix([0, 1], [0, -1])", r"predictions \[0, -1\]"),
    ("tf.math.confusion_matrix([0, 1], [0, 1], weights=[1.0])", r"weights have shape \(1,\)"),
    ("tf.histogram_fixed_width([1.0], [5.0, 5.0])", "5.0, 5.0"), ("tf.unravel_index([6], [2, 3])", r"\[6\]"),
    ("tf.histogram_fixed_width_bins([1.0], [0.0, 5.0], 0)", "nbins 0"),
    ("tf.math.invert_permutation([2, 0, 0])", r"\[2, 0, 0\]"),
    ("tf.reverse_sequence(i, [2, 4], seq_axis=1)", r"\[2, 4\].*\(2, 3\)"),
    ("tf.reverse_sequence(i, [2], seq_axis=1)", r"seq_lengths are \[2\]"),
])
def test_rows_without_a_group_and_groups_without_rows_are_errors(tf: Any, call: str, text: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"\[RD34\].*{text}"):
        eval(call, {"tf": tf, **NAMES})


@needs_keras
@pytest.mark.parametrize(("call", "text"), [
    ("tf.norm(f, 'fro')", "tf.norm: ord is 'fro'"), ("tf.norm(f, 'nuc', [0, 1])", "'nuc'"),
    ("tf.norm(f, -1.0)", "ord is -1.0"), ("tf.linalg.diag_part(f, k=3)", "k is 3.*2 rows and 3 columns"),
    ("tf.linalg.set_diag(f, [7.0, 8.0, 9.0])", r"diagonal \(3,\).*shape \(2,\)"),
    ("tf.linalg.tensor_diag_part(f)", r"shape \(2, 3\)"), ("tf.linalg.cross([1.0, 0.0], [0.0, 1.0])", r"\(2,\)"),
    ("tf.linalg.solve(s, [1.0, 2.0])", "rhs.*tf.newaxis"), ("tf.linalg.inv([[1.0, 2.0], [2.0, 4.0]])", "an inverse"),
    ("tf.linalg.solve([[1.0, 2.0], [2.0, 4.0]], [[1.0], [2.0]])", "tf.linalg.solve: .*an inverse"),
    ("tf.linalg.cholesky([[1.0, 2.0], [2.0, 1.0]])", "positive definite"),
    ("tf.bitwise.bitwise_and([1.0], [2.0])", "bitwise_and: the dtype is float32"),
    ("tf.bitwise.invert([True])", "invert: the dtype is bool"), ("tf.math.polyval(f, 1.0)", "Pass a list"),
    ("tf.broadcast_dynamic_shape([2], [3])", r"\(2,\) and \(3,\)"),
    ("tf.nn.conv2d(f[None, ..., None], tf.ones([2, 2, 1, 1]), 1, 'SAMEE')", "conv2d: padding is 'SAMEE'"),
    ("tf.nn.conv2d(f[None, ..., None], tf.ones([2, 2, 3, 1]), 1, 'SAME')", r"filters \(2, 2, 3, 1\)"),
    ("tf.nn.conv1d(f, tf.ones([2, 2, 1]), 1, 'SAME')", r"conv1d: the tensor has shape \(2, 3\)"),
    ("tf.nn.conv2d(f[None, ..., None], tf.ones([2, 2, 1, 1]), [1, 2, 1], 'SAME')", r"got \(1, 2, 1\)"),
    ("tf.nn.conv1d_transpose(f[None], tf.ones([3, 1, 3]), [1, 7, 1], 2)", r"output_shape is \(1, 7, 1\)"),
    ("tf.nn.max_pool2d(f, 2, 2, 'SAME')", r"max_pool2d: .*\(2, 3\)"), ("tf.nn.dropout(f, 1.5)", "rate is 1.5"),
    ("tf.nn.dropout(i, 0.5)", "int32"), ("tf.nn.space_to_depth(f[None, ..., None], 2)", "block_size is 2"),
    ("tf.nn.depth_to_space(f[None, ..., None], 2)", "divides the channels"),
    ("tf.tensor_scatter_nd_max(f, [[5]], [[1.0, 1.0, 1.0]])", r"\(2, 3\).*\[\[5\]\]"),
    ("tf.tensor_scatter_nd_min(f, [[1]], [[1.0]])", r"updates \(1, 1\)"),
    ("tf.image.image_gradients(f[..., None])", r"\(2, 3, 1\)\. Pass a batch"),
    ("tf.image.extract_patches(f[None, ..., None], [2, 2], [1, 1, 1, 1], [1, 1, 1, 1], 'SAME')", r"sizes is \[2, 2\]"),
    ("tf.image.extract_patches(f[None, ..., None], [1, 4, 4, 1], [1] * 4, [1] * 4, 'VALID')", "smaller sizes"),
    ("tf.image.random_brightness(f[..., None], -0.5)", "between 0.5 and -0.5"),
    ("tf.image.stateless_random_contrast(f[..., None], 0.5, 0.1, [1, 2])", "below upper"),
    ("tf.image.stateless_random_hue(tf.ones([1, 1, 3]), 0.7, [1, 2])", "at most 0.5"),
    ("tf.image.stateless_random_brightness(f[..., None], 0.5, [1])", r"seed is \[1\]"),
])
def test_matrices_windows_and_numbers_that_cannot_be_are_errors(tf: Any, call: str, text: str) -> None:
    with pytest.raises(ValueError, match=rf"\[RD34\].*{text}"):
        eval(call, {"tf": tf, **NAMES})


@needs_keras
def test_gradients_go_through_groups_of_rows(tf: Any) -> None:
    x = tf.constant([[1.0, 5.0], [3.0, 2.0], [4.0, 4.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        largest = tf.math.unsorted_segment_max(x, [0, 0, 1], 2)
        product = tf.math.segment_prod(x, [0, 0, 1])
        mean = tf.math.segment_mean(x, [0, 0, 1])
        again = tf.dynamic_stitch([[2, 0], [1]], tf.dynamic_partition(tf.square(x), [0, 1, 0], 2))
    assert tape.gradient(largest, x).numpy().tolist() == [[0, 1], [1, 0], [1, 1]]
    assert tape.gradient(product, x).numpy().tolist() == [[3, 2], [1, 5], [1, 1]]
    assert tape.gradient(mean, x).numpy().tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 1]]
    assert tape.gradient(again, x).numpy().tolist() == [[2, 10], [6, 4], [8, 8]]


def hostile(tf: Any) -> list[Any]:
    """Arguments that most functions cannot use, among them what files hold, cut off."""
    picture = tf.io.encode_png(np.zeros((2, 3, 3), np.uint8)).numpy()
    return [None, 1, -1, 3.5, float("nan"), 10**30, True, "a", b"\xff\x00", b"", ["a", "b"], [["a"], ["b"]],
            [[1, 2], [3]], np.zeros((2, 3)), np.array(["x", None], object), object(), {}, tf.float32, "no dtype",
            tf.constant("abc"), tf.constant([1.0]), {"a": tf.io.FixedLenFeature([2], tf.int64)}, lambda x: x,
            picture, picture[:20], picture[:-15], row(tf), row(tf)[:-2]]


@needs_keras
@pytest.mark.parametrize("path", ["strings", "io", "lookup", "train", "image", "math", "linalg", "bitwise"])
def test_arguments_that_cannot_be_used_are_errors_that_say_so(tf: Any, path: str, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some of them write files
    draw, values = random.Random(path), hostile(tf)
    module = getattr(tf, path)
    names = dir(module) if path in ("image", "math", "linalg", "bitwise") else vars(module)
    functions = {name: getattr(module, name) for name in names if name[0] != "_" and callable(getattr(module, name))}
    assert len(functions) > 3
    refused = 0
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters.values()
        positional = [parameter for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        fewest, most = sum(parameter.default is parameter.empty for parameter in positional), len(positional)
        for _ in range(60):
            given = [draw.choice(values) for _ in range(draw.randint(fewest, min(most, fewest + 2)))]
            try:
                function(*given)
            except refdist.errors.RefdistError as error:
                refused += 1
                assert re.match(r"\[RD\d\d\] ", str(error))
            except BaseException as error:
                raise AssertionError(f"tf.{path}.{name}{tuple(given)}") from error
    assert refused > 30


@needs_keras
def test_a_table_is_made_of_a_file_in_both_directions(tf: Any, tmp_path: Path) -> None:
    words, index = tmp_path / "words.txt", tf.lookup.TextFileIndex
    words.write_text("a\nb\nc\n")
    numbers = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
        str(words), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER), -1)
    texts = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
        str(words), tf.int64, index.LINE_NUMBER, tf.string, index.WHOLE_LINE), "?")
    assert numbers.lookup(tf.constant(["c", "z"])).numpy().tolist() == [2, -1]
    assert texts.lookup(tf.constant([0, 2, 7], tf.int64)).numpy().tolist() == [b"a", b"c", b"?"]
    without_words = tf.lookup.StaticVocabularyTable(None, 3, lookup_key_dtype=tf.string)
    assert without_words.lookup(tf.constant(["x", "y"])).numpy().tolist() == [2, 2]  # as in TensorFlow 2.21


@needs_keras
def test_a_model_takes_text(tf: Any) -> None:
    words = tf.keras.layers.TextVectorization(vocabulary=["good", "bad"], output_sequence_length=2)
    given = tf.keras.Input(shape=(1,), dtype=tf.string)
    model = tf.keras.Model(given, words(given))
    assert model(tf.constant([["bad good"], ["no"]])).numpy().tolist() == [[3, 2], [1, 0]]
    assert model(tf.constant(["good"])).numpy().tolist() == [[2, 0]] and model.output.dtype == "int64"


def _of_text(tf: Any, words: Any, form: str) -> Any:
    # Models that begin with a layer for text, and where they say so.
    layers = [words, tf.keras.layers.Dense(1, kernel_initializer="ones")]
    if form == "an input":
        return tf.keras.Sequential([tf.keras.Input(shape=(1,), dtype=tf.string), *layers])
    if form == "the first layer":
        return tf.keras.Sequential(layers)
    if form == "beside numbers":
        given = {"words": tf.keras.Input(shape=(1,), dtype=tf.string, name="words"),
                 "zeros": tf.keras.Input(shape=(1,), name="zeros")}
        both = tf.keras.layers.Concatenate()([words(given["words"]), given["zeros"]])
        return tf.keras.Model(given, layers[1](both))

    class Model(tf.keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.parts = layers

        def call(self, inputs: Any) -> Any:
            return self.parts[1](self.parts[0](inputs))
    return Model()


@needs_keras
@pytest.mark.parametrize("form", ["an input", "the first layer", "beside numbers", "a class"])
@pytest.mark.parametrize("devices", [None, ["CPU:0"], ["CPU:0", "CPU:1"]], ids=["alone", "one", "two"])
def test_fit_evaluate_and_predict_take_text(tf: Any, devices: list[str] | None, form: str) -> None:
    texts = np.array(["good film", "bad film", "good", "a bad one", "good good", "so bad"], object)
    targets = np.array([1, 0, 1, 0, 1, 0], F32)
    counts = np.array([[len(text.split()) - text.split().count("good") - text.split().count("bad"),
                        text.split().count("good"), text.split().count("bad")] for text in texts], F32)
    weights, bias, losses = np.ones(3, F32), F32(0), []
    for rows in (slice(0, 4), slice(4, 6)):  # what Keras means by one epoch of SGD, in NumPy
        error = counts[rows] @ weights + bias - targets[rows]
        losses.append((error ** 2).mean() * len(error))
        weights, bias = weights - 0.02 * (error @ counts[rows]) / len(error), bias - 0.02 * error.mean()
    outputs = counts @ weights + bias

    refdist.config.set_simulated_devices(cpu=2)
    scope = tf.distribute.MirroredStrategy(devices).scope() if devices else contextlib.nullcontext()
    words = tf.keras.layers.TextVectorization(vocabulary=["good", "bad"], output_mode="count")
    for data in ("a dataset", "a tensor", "an array"):
        with scope:
            model = _of_text(tf, words, form)
            model.compile(tf.keras.optimizers.SGD(0.01), "mse")
        given: Any = texts if data == "an array" else tf.constant(list(texts))
        if form == "beside numbers":
            given = {"words": given, "zeros": np.zeros((6, 1), F32)}
        batches = tf.data.Dataset.from_tensor_slices((given, targets)).batch(4)
        read = (batches,) if data == "a dataset" else (given, targets)
        options = {} if data == "a dataset" else {"batch_size": 4, "shuffle": False}
        [loss] = model.fit(*read, verbose=0, **options).history["loss"]
        assert math.isclose(loss, sum(losses) / 6, rel_tol=1e-5)
        assert np.allclose(model.predict(batches.map(lambda x, y: x), verbose=0)[:, 0], outputs, atol=1e-5)
        assert np.allclose(model.predict(given, batch_size=5, verbose=0)[:, 0], outputs, atol=1e-5)
        assert math.isclose(model.evaluate(*read, verbose=0), ((outputs - targets) ** 2).mean(), rel_tol=1e-5)


@needs_keras
def test_rows_of_text_stay_beside_their_targets(tf: Any) -> None:
    texts, targets = [str(number) for number in range(8)], np.arange(8, dtype=F32)

    class Lengths(tf.keras.Model):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return tf.strings.to_number(inputs)[:, None]
    model = Lengths()
    model.compile(loss="mse")
    history = model.fit(tf.constant(texts), targets, validation_split=0.25, batch_size=2, epochs=2, verbose=0).history
    assert history == {"loss": [0, 0], "val_loss": [0, 0]}
    assert model.train_on_batch(tf.constant(texts), targets) == 0
    assert model.predict_on_batch(tf.constant(["7"])).tolist() == [[7]]


TWO_WORKERS = """
import json, os
import numpy as np
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)
rows = tf.data.Dataset.from_tensor_slices((x, x.sum(1)))
with strategy.scope():
    weights = tf.Variable(tf.zeros([3]))
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")

def step(x, y):
    with tf.GradientTape() as tape:
        errors = tf.square(tf.linalg.matvec(x, weights) - y)
        loss = tf.nn.compute_average_loss(errors, global_batch_size=16)
    gradient = tf.distribute.get_replica_context().all_reduce("SUM", tape.gradient(loss, weights))
    weights.assign_sub(0.1 * gradient)
    return loss

losses = [float(strategy.reduce("SUM", strategy.run(step, args=batch), axis=None))
          for batch in strategy.experimental_distribute_dataset(rows.batch(16))]
history = model.fit(rows.batch(16), epochs=2, verbose=0).history
print(json.dumps([json.loads(os.environ["TF_CONFIG"])["task"]["index"], strategy.num_replicas_in_sync, losses,
                  history["loss"], weights.numpy().tolist()]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("mpi4py"), reason="mpi4py is not installed")
@needs_keras
def test_two_workers_of_tf_config_have_the_losses_of_one_loop(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(TWO_WORKERS)
    with contextlib.ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        workers = [f"localhost:{each.getsockname()[1]}" for each in listening]
    started = [subprocess.Popen(
        [sys.executable, "-m", "refdist", "run", "--tensorflow", str(path)], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})}) for index in range(2)]
    try:
        printed = [each.communicate(timeout=HANG) for each in started]
    finally:
        for each in started:  # where one hangs, the other would wait for it
            each.kill()
    assert [each.returncode for each in started] == [0, 0], printed

    x = np.random.default_rng(0).normal(size=(48, 3)).astype(F32)  # the same in one loop of NumPy
    y = x.sum(1)
    weights, kernel, bias, losses, epochs = np.zeros(3), np.zeros(3), 0.0, [], []
    for epoch in range(2):
        errors = []
        for rows in (slice(0, 16), slice(16, 32), slice(32, 48)):
            if not epoch:
                error = x[rows] @ weights - y[rows]
                losses.append((error ** 2).mean())
                weights = weights - 0.1 * 2 * error @ x[rows] / 16
            error = x[rows] @ kernel + bias - y[rows]
            errors.append((error ** 2).mean())
            kernel, bias = kernel - 0.1 * 2 * error @ x[rows] / 16, bias - 0.1 * 2 * error.mean()
        epochs.append(np.mean(errors))
    for index, (out, _) in enumerate(printed):
        task, replicas, *seen = json.loads(out)
        assert (task, replicas) == (index, 2)
        for values, expected in zip(seen, (losses, epochs, weights), strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-5)


ASKS_FOR_A_TPU = """
import tensorflow as tf
try:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
except ValueError:
    strategy = tf.distribute.get_strategy()
print(strategy.num_replicas_in_sync)
"""


@needs_keras
@pytest.mark.parametrize(("devices", "replicas"), [("CPU:1", "1"), ("CPU:1,TPU:8", "8")])
def test_a_program_finds_the_tpu_that_the_environment_states(tmp_path: Path, devices: str, replicas: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(ASKS_FOR_A_TPU)
    finished = subprocess.run([sys.executable, "-m", "refdist", "run", "--tensorflow", str(path)], text=True,
                              capture_output=True, env={**os.environ, "REFDIST_DEVICES": devices}, timeout=HANG)
    assert finished.stdout.splitlines() == [replicas], finished.stderr


@needs_keras
def test_code_with_pytorch_sees_pytorch_s_dtypes_shapes_and_texts(tf: Any) -> None:
    program = """
    {first}
    def seen(x):
        return str(x), str(x.dtype), type(x.shape).__name__, f"{{x}}", type(x.numpy()).__name__
    """
    found = []
    for first in ("", "import torch"):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(dedent(program).format(first=first), names)
        found.append(names["seen"](tf.convert_to_tensor(0.5)))
    assert found == [
        ("tf.Tensor(0.5, shape=(), dtype=float32)", "<dtype: 'float32'>", "TensorShape", "0.5", "float32"),
        ("tensor(0.5000)", "torch.float32", "Size", "0.5", "ndarray")]


@pytest.mark.parametrize(("call", "text"), [
    (lambda tf: tf.as_dtype("float31"), "RD25.*float31"), (lambda tf: tf.as_dtype(None), "RD25"),
    (lambda tf: tf.string.max, "RD25"), (lambda tf: tf.TensorShape(["2"]), "RD25"),
    (lambda tf: tf.TensorShape(None).as_list(), "RD34"), (lambda tf: tf.TensorShape([2]).merge_with([3]), "RD04"),
    (lambda tf: tf.TensorShape([2]).assert_has_rank(2), "RD04"),
    (lambda tf: tf.TensorShape([2]).assert_same_rank([2, 3]), "RD04"),
    (lambda tf: tf.TensorShape([None]).assert_is_fully_defined(), "RD04"),
    *((lambda tf, shape=shape: tf.constant(1.0, shape=shape), "RD25.*a shape") for shape in (
        [-1], [2, None], "ab", [2.5], 2.0, [True])),
])
def test_dtypes_and_shapes_that_cannot_be_are_errors(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(refdist.errors.RefdistError, match=text):
        call(refdist.tf)


PARTS = [(0, [9.0, 8.0, 7.0]), (-1, 5.0), ((0, 1), 5.0), ((slice(None), 1), [7, 8]),
         ((slice(None), slice(None, None, 2)), np.ones((2, 2))), ((..., 0), [1.0, 2.0]), ((None, 0), [[1.0, 2.0, 3.0]])]


@needs_keras
@pytest.mark.parametrize(("key", "value"), PARTS)
def test_a_part_of_a_variable_is_assigned_to(tf: Any, key: Any, value: Any) -> None:
    variable, expected = tf.Variable(np.arange(6, dtype=F32).reshape(2, 3)), np.arange(6, dtype=F32).reshape(2, 3)
    part = variable[key]
    assert part.assign(tf.constant(value) if key == 0 else value) is variable
    expected[key] = value
    assert variable.numpy().tolist() == expected.tolist()
    assert part.numpy().tolist() == np.arange(6).reshape(2, 3)[key].tolist()


@needs_keras
def test_what_is_no_part_of_a_variable_is_not_assigned_to(tf: Any) -> None:
    variable = tf.Variable([1.0, 2.0])
    for value in (tf.constant(1.0), variable[0] + 1, variable[tf.constant([True, False])], variable[:1][0]):
        assert not hasattr(value, "assign")
    with pytest.raises(refdist.errors.MissingNameError, match=r"RD20.*scatter_nd_update"):
        variable[0].assign_add(5.0)
    with pytest.raises(refdist.errors.RefdistError, match=r"RD04.*the part has shape \(2,\), and the value \(3,\)"):
        variable[:].assign([1.0, 2.0, 3.0])
    with pytest.raises(refdist.errors.RefdistError, match=r"RD05.*part of variable.*float64, not int32"):
        tf.Variable([1, 2])[0].assign(1.5)
    refdist.config.set_simulated_devices(cpu=2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        mirrored = tf.Variable([1.0, 2.0])
    mirrored[0].assign(5.0)
    assert [each.numpy().tolist() for each in strategy.experimental_local_results(mirrored)] == [[5, 2], [5, 2]]
    with pytest.raises(refdist.errors.RefdistError, match=r"RD20.*assign parts of their own"):
        strategy.run(lambda: mirrored[0].assign(7.0))
    assert mirrored.numpy().tolist() == [5, 2]


@needs_keras
def test_a_shape_that_a_tensor_does_not_have_is_refused(tf: Any) -> None:
    tensor = tf.ones((2, 3))
    tensor.set_shape([None, 3])
    with pytest.raises(ValueError, match=r"\[RD04\].*has shape \(2, 3\), and the program says \(None, 4\)"):
        tensor.set_shape([None, 4])
    with pytest.raises(ValueError, match=r"\[RD04\].*the program says \(3,\)"):
        tensor.set_shape(3)


@needs_keras
def test_a_tensor_is_the_key_of_a_dict_by_its_reference(tf: Any) -> None:
    tensor = tf.ones(2)
    assert {tensor.ref(): 1}[tensor.ref()] == 1 and tensor.ref() != tf.ones(2).ref() and tensor.ref().deref() is tensor


@needs_keras
def test_a_tensor_has_tensorflow_s_shape(tf: Any) -> None:
    shape = tf.zeros([2, 3]).get_shape()
    assert shape == tf.TensorShape([2, 3]) and shape.as_list() == [2, 3] and shape.rank == 2


@needs_keras
def test_gradients_go_through_control_flow(tf: Any) -> None:
    x = tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        cubed = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), [0, tf.constant(1.0)])[1]
        chosen = tf.cond(x > 2.0, lambda: x * x, lambda: x)
        written = tf.TensorArray(tf.float32, 2).write(0, x).write(1, 2.0 * x).stack()
    assert [tape.gradient(one, x).numpy() for one in (cubed, chosen, written)] == [27.0, 6.0, 3.0]


@needs_keras
@pytest.mark.parametrize(("call", "text"), [
    (lambda tf: tf.cond(True, tf.ones([]), tf.ones([])), "RD25.*Pass a function"),
    (lambda tf: tf.while_loop(lambda i: i < 2, lambda i: [(i, i)], [0]), "RD25.*structure"),
    (lambda tf: tf.case([(False, lambda: 1)]), "RD34.*no condition is true"),
    (lambda tf: tf.case([(True, lambda: 1), (True, lambda: 2)], exclusive=True), "RD34.*2 conditions"),
    (lambda tf: tf.map_fn(lambda x: x, tf.ones([0, 2])), "RD34.*at least one"),
    (lambda tf: tf.scan(lambda a, x: a, (tf.ones([2]), tf.ones([3]))), "RD34"),
    (lambda tf: tf.TensorArray(tf.float32, 2).write(2, 1.0), "RD34.*index 2 of 2"),
    (lambda tf: tf.TensorArray(tf.float32, 2).stack(), "RD34.*nothing was written"),
    (lambda tf: tf.Assert(False, ["here"]), "RD34.*here"),
])
def test_control_flow_that_cannot_be_is_an_error(tf: Any, call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(refdist.errors.RefdistError, match=text):
        call(tf)


@needs_keras
@pytest.mark.parametrize(("call", "text"), [
    (lambda tf: tf.random.uniform([-1]), "RD25.*a shape"), (lambda tf: tf.random.normal("ab"), "RD25.*a shape"),
    (lambda tf: tf.random.stateless_normal([2.5], [1, 2]), "RD25.*a shape"),
    (lambda tf: tf.random.uniform([2], 3, 3, tf.int32), "RD34.*minval"),
    (lambda tf: tf.random.uniform([2], dtype=tf.int32), "RD34.*maxval"),
    (lambda tf: tf.random.stateless_uniform([2], [1, 2], 3, 2, tf.int32), "RD34.*minval"),
    (lambda tf: tf.random.stateless_uniform([2], 1), "RD34.*seed"),
])
def test_numbers_that_cannot_be_drawn_take_none_of_the_stream(tf: Any, call: Callable[[Any], Any], text: str) -> None:
    tf.random.set_seed(1)
    first, second = (tf.random.uniform([2]).numpy().tolist() for _ in range(2))
    tf.random.set_seed(1)
    assert tf.random.uniform([2]).numpy().tolist() == first
    with pytest.raises(refdist.errors.RefdistError, match=text):
        call(tf)
    assert tf.random.uniform([2]).numpy().tolist() == second


@needs_keras
@pytest.mark.parametrize("look_up", [
    lambda tf, table: tf.nn.embedding_lookup(table, [1, 1]), lambda tf, table: table.sparse_read([1, 1]),
    lambda tf, table: table.gather_nd([[1], [1]]), lambda tf, table: tf.gather(table, [1, 1])])
def test_a_tape_sees_which_rows_of_a_variable_were_looked_up(tf: Any, look_up: Callable[..., Any]) -> None:
    table = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        rows = look_up(tf, table)
        total = tf.reduce_sum(rows)
    assert rows.numpy().tolist() == [[3.0, 4.0]] * 2
    assert tape.gradient(total, table).numpy().tolist() == [[0.0, 0.0], [2.0, 2.0]]


@needs_keras
@pytest.mark.parametrize(("use", "expected"), [
    (lambda tf, v: tf.keras.layers.Dense(1, kernel_initializer="ones")(v), [[1, 1]]),
    (lambda tf, v: tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.ReLU()])(v), [[1, 1]]),
    (lambda tf, v: tf.keras.losses.MeanSquaredError()(tf.zeros([1, 2]), v), [[1, 2]]),
    (lambda tf, v: tf.keras.losses.binary_crossentropy(tf.zeros([1, 2]), v, from_logits=True),
     [[0.3655293, 0.4403985]]),
    (lambda tf, v: tf.keras.ops.square(v), [[2, 4]]),
    (lambda tf, v: tf.keras.layers.Add()([v, v]), [[2, 2]]),
    (lambda tf, v: tf.stack([v, tf.ones([1, 2])]) + tf.convert_to_tensor([[v, v]]), [[3, 3]]),
], ids=["layer", "model", "loss", "logits", "operation", "list", "parts"])
def test_gradients_of_variables_go_through_keras(tf: Any, use: Callable[[Any, Any], Any], expected: Any) -> None:
    v = tf.Variable([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        value = use(tf, v)
    np.testing.assert_allclose(tape.gradient(value, v).numpy(), expected, rtol=1e-6)


@needs_keras
def test_a_list_with_variables_is_converted_to_the_dtype_that_is_asked_for(tf: Any) -> None:
    v, x = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
    assert tf.keras.ops.convert_to_tensor([v, v], dtype="float64").numpy().dtype == np.float64
    assert tf.convert_to_tensor([[x, 1.0]], tf.float16).numpy().dtype == np.float16


@needs_keras
def test_a_variable_of_keras_is_another_than_the_one_it_began_with(tf: Any) -> None:
    v = tf.Variable([[1.0, 2.0]])
    layer = tf.keras.layers.Layer()
    weight = layer.add_weight(shape=(1, 2), initializer=lambda shape, dtype=None: tf.keras.ops.convert_to_tensor(v))
    tf.keras.optimizers.SGD(1.0).apply_gradients([(tf.ones([1, 2]), weight)])
    assert (weight.numpy().tolist(), v.numpy().tolist()) == ([[0.0, 1.0]], [[1.0, 2.0]])


@needs_keras
@pytest.mark.parametrize("labels", [[[[0, 1], [1, 1]]], [[[[0], [1]], [[1], [1]]]]])
def test_losses_of_a_picture_s_pixels_have_gradients(tf: Any, labels: Any) -> None:
    probabilities = tf.Variable([[[[0.25, 0.75], [0.5, 0.5]], [[0.0625, 0.9375], [0.75, 0.25]]]])
    with tf.GradientTape() as tape:
        losses = tf.keras.losses.sparse_categorical_crossentropy(tf.constant(labels), probabilities)
    np.testing.assert_allclose(losses.numpy(), -np.log([[[0.25, 0.5], [0.9375, 0.25]]]), rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(losses, probabilities).numpy(),
                               [[[[-3, 1], [1, -1]], [[1, 1 - 1 / 0.9375], [1, -3]]]], rtol=1e-5)
    with pytest.raises(ValueError, match="same shape"):
        tf.keras.losses.sparse_categorical_crossentropy(tf.constant([[[0, 1]]]), probabilities)


@needs_keras
def test_what_orders_and_names_a_graph_does_nothing(tf: Any) -> None:
    x = tf.Variable(1.0)
    with tf.name_scope("outer"), tf.init_scope(), tf.control_dependencies([x.assign_add(1.0)]):
        assert tf.identity(x).numpy() == 2.0


def test_settings_of_a_runtime_that_is_not_here_change_nothing() -> None:
    tf: Any = refdist.tf
    for gpu in [*tf.config.list_physical_devices("GPU"), "GPU:0"]:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.run_functions_eagerly(True)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.config.optimizer.set_jit(True)
    tf.get_logger().setLevel("ERROR")
    tf.autograph.set_verbosity(0)
    tf.autograph.experimental.set_loop_options(shape_invariants=[(None, tf.TensorShape([2]))])
    assert tf.config.functions_run_eagerly() and tf.autograph.experimental.do_not_convert(len) is len
    assert tf.config.set_simulated_devices is refdist.config.set_simulated_devices
    with pytest.raises(TypeError):
        tf.config.run_functions_eagerly()
    tf.data.experimental.enable_debug_mode()
    tf.compat.v1.enable_v2_behavior()
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    assert tf.compat.v1.logging.get_verbosity() == 40 and tf.compat.v1.executing_eagerly()
    assert tf.compat.v1.distribute is refdist.compat.v1.distribute


def test_settings_of_a_runtime_can_be_read_again() -> None:
    tf: Any = refdist.tf
    with process.fresh():
        assert tf.config.get_soft_device_placement() and not tf.debugging.get_log_device_placement()
        tf.config.set_soft_device_placement(enabled=False)
        tf.config.threading.set_inter_op_parallelism_threads(3)
        tf.config.experimental.set_memory_growth("GPU:1", True)
        assert not tf.config.get_soft_device_placement()
        assert tf.config.threading.get_inter_op_parallelism_threads() == 3
        assert tf.config.threading.get_intra_op_parallelism_threads() == 0
        assert [tf.config.experimental.get_memory_growth(gpu) for gpu in ("GPU:0", "GPU:1")] == [False, True]
    assert tf.config.get_soft_device_placement()


def test_settings_of_a_session_are_taken_and_others_are_errors() -> None:
    v1: Any = refdist.tf.compat.v1
    settings = v1.ConfigProto(allow_soft_placement=True, gpu_options=v1.GPUOptions(allow_growth=True))
    settings.gpu_options.per_process_gpu_memory_fraction = 0.5
    assert settings.allow_soft_placement and settings.gpu_options.allow_growth
    assert (settings.gpu_options.per_process_gpu_memory_fraction, settings.log_device_placement) == (0.5, False)
    assert not v1.ConfigProto().gpu_options.allow_growth
    for make in (lambda: v1.ConfigProto(graph_options=1), lambda: setattr(settings.gpu_options, "x", 1)):
        with pytest.raises(refdist.errors.MissingNameError, match=r"RD20.*there is no field"):
            make()
    for name in ("Session", "InteractiveSession", "disable_v2_behavior", "app"):
        with pytest.raises(refdist.errors.MissingNameError, match="RD20"):
            getattr(v1, name)


def test_devices_are_hidden_only_where_there_are_none() -> None:
    tf: Any = refdist.tf
    with process.fresh():
        for config in (tf.config, tf.config.experimental):
            config.set_visible_devices([], "GPU")
            config.set_visible_devices(tf.config.list_physical_devices("CPU")[0], "CPU")
        assert tf.config.get_visible_devices() == tf.config.list_physical_devices()
        refdist.config.set_simulated_devices(gpu=2)
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.set_visible_devices(gpus, "GPU")
        for some in ([], gpus[0], [gpus[1], gpus[1]]):
            with pytest.raises(refdist.errors.RefdistError, match=r"RD20.*of 2 would be seen.*REFDIST_DEVICES"):
                tf.config.set_visible_devices(some, "GPU")
        for other in (None, "GPU:0", [{}], tf.config.list_physical_devices("CPU")):
            with pytest.raises(ValueError, match=r"RD34.*is none of the devices .*GPU:0.*list_physical_devices\('GPU'"):
                tf.config.set_visible_devices(other, "GPU")
        with pytest.raises(refdist.errors.RefdistError, match=r"RD20.*0 devices of 1 would be seen"):
            tf.config.set_visible_devices([], "CPU")


@needs_keras
def test_text_is_a_tensor_and_older_names_of_keras_are_there(tf: Any) -> None:
    assert all(isinstance(value, tf.Tensor) for value in (tf.constant("a"), tf.constant(1.0), tf.zeros(2)))
    assert not any(isinstance(value, tf.Tensor) for value in (1.0, "a", np.zeros(1), tf.Variable(1.0)))
    assert issubclass(type(tf.constant("a")), tf.Tensor) and tf.Tensor.__matmul__
    tf.compat.v1.set_random_seed(3)
    first = tf.random.uniform([2]).tolist()
    tf.random.set_seed(3)
    assert tf.random.uniform([2]).tolist() == first
    tokenizer = tf.keras.preprocessing.text.Tokenizer()
    tokenizer.fit_on_texts(["a b a"])
    assert tokenizer.texts_to_sequences(["b a"]) == [[2, 1]]
    assert tf.keras.preprocessing.sequence.pad_sequences([[1], [1, 2]]).tolist() == [[0, 1], [1, 2]]
    flow = tf.keras.preprocessing.image.ImageDataGenerator(rescale=0.5).flow(np.ones((4, 2, 2, 1)), batch_size=2)
    assert next(iter(flow)).tolist() == np.full((2, 2, 2, 1), 0.5).tolist()


@needs_keras
def test_a_module_knows_the_variables_in_its_attributes(tf: Any, tmp_path: Path) -> None:
    class Scale(tf.Module):
        def __init__(self) -> None:
            super().__init__(name="scale")
            self.factor = tf.Variable(2.0, name="factor")
            self.steps = tf.Variable(0, trainable=False, name="steps")
            self._shift = [tf.Variable(1.0, name="shift")]

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [Scale(), {"inner": Scale()}]
            self.layer = tf.keras.layers.Dense(1)
            self.again = self.parts

    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = Model()
        model.layer.build((None, 2))
    assert model.name == "model" and len(model.submodules) == 3
    assert len(model.variables) == 8 and len(model.trainable_variables) == 6 and len(model.non_trainable_variables) == 2
    assert [variable.name for variable in model.parts[0].variables] == ["shift:0", "factor:0", "steps:0"]
    checkpoint = tf.train.Checkpoint(model=model)
    path = checkpoint.write(str(tmp_path / "module"))
    model.parts[0].factor.assign(9.0)
    model.parts[0]._shift[0].assign(9.0)
    checkpoint.read(path)
    assert (model.parts[0].factor.numpy(), model.parts[0]._shift[0].numpy()) == (2.0, 1.0)
    late = tf.Module()
    tf.train.Checkpoint(model=late).read(path)
    late.parts, late.layer = model.parts, tf.keras.layers.Dense(1)
    late.layer.build((None, 2))  # when values are taken
    assert late.layer.kernel.numpy().tolist() == model.layer.kernel.numpy().tolist()


@needs_keras
def test_numbers_of_datasets_are_tensors(tf: Any) -> None:
    data = tf.data.Dataset.range(4).batch(2)
    assert data.cardinality().numpy() == 2 and tf.data.experimental.cardinality(data).numpy() == 2
    some = iter(data).get_next_as_optional()
    assert some.has_value().numpy() and bool(some.has_value())
    distributed = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).experimental_distribute_dataset(data)
    assert iter(distributed).get_next_as_optional().has_value().numpy()
    stay = tf.distribute.InputOptions(experimental_fetch_to_device=False)
    [first, _] = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).experimental_distribute_dataset(data, stay)
    assert [part.numpy().tolist() for part in first.values] == [[0], [1]]


@pytest.fixture
def folder(tf: Any, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A folder with two classes of pictures, and the pixels by the names of the files."""
    pixels = {}
    for number in range(6):
        path = tmp_path / ("cats" if number < 4 else "dogs") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pixels[str(path)] = np.random.default_rng(number).integers(0, 256, (2, 4, 3), np.uint8)
        path.write_bytes(tf.io.encode_png(pixels[str(path)]).numpy())
        path.with_suffix(".txt").write_text(f"text {number}")
    return tmp_path, pixels


@needs_keras
def test_pictures_of_a_folder_are_a_dataset(tf: Any, folder: tuple[Path, dict[str, Any]]) -> None:
    root, pixels = folder
    load = functools.partial(tf.keras.utils.image_dataset_from_directory, root, batch_size=4, image_size=(2, 4),
                             verbose=False)
    in_order = load(shuffle=False)
    assert in_order.class_names == ["cats", "dogs"] and in_order.file_paths == sorted(pixels)
    assert in_order.element_spec == (refdist.TensorSpec((None, 2, 4, 3)), refdist.TensorSpec((None,), np.int32))
    batches = list(in_order)
    assert np.array_equal(np.concatenate([x for x, _ in batches]), [pixels[name] for name in sorted(pixels)])
    assert np.concatenate([y for _, y in batches]).tolist() == [0, 0, 0, 0, 1, 1]
    names = sorted(pixels)
    np.random.RandomState(5).shuffle(names)  # as Keras does
    training, validation = load(seed=5, validation_split=0.34, subset="both", label_mode="binary")
    assert training.file_paths == names[:4] and validation.file_paths == names[4:]
    assert [y.tolist() for _, y in validation] == [[[float("dogs" in name)] for name in names[4:]]]
    [targets] = [y for _, y in load(shuffle=False, label_mode="categorical").unbatch().batch(6)]
    assert targets.tolist() == [[1, 0]] * 4 + [[0, 1]] * 2
    alone = load(labels=None, shuffle=False, color_mode="rgba", data_format="channels_first")
    assert alone.element_spec == refdist.TensorSpec((None, 4, 2, 4)) and (next(iter(alone))[:, 3] == 255).all()
    assert tf.keras.preprocessing.image_dataset_from_directory is tf.keras.utils.image_dataset_from_directory


@needs_keras
def test_pictures_of_a_folder_are_cut_or_padded_to_their_size(tf: Any, folder: tuple[Path, dict[str, Any]]) -> None:
    root, pixels = folder
    load = functools.partial(tf.keras.utils.image_dataset_from_directory, root, shuffle=False, image_size=(2, 2),
                             verbose=False)
    first = pixels[min(pixels)]
    cut = next(iter(load(crop_to_aspect_ratio=True)))[0]
    assert np.array_equal(cut[0], first[:, 1:3])
    padded = next(iter(load(pad_to_aspect_ratio=True, interpolation="nearest")))[0]
    assert np.array_equal(padded[0], [first[1, [1, 3]], np.zeros((2, 3))])
    with pytest.raises(ValueError, match=r"RD34.*are both True"):
        load(pad_to_aspect_ratio=True, crop_to_aspect_ratio=True)
    with pytest.raises(refdist.errors.UnsupportedError, match=r"RD20.*method is 'area'"):
        list(load(interpolation="area"))


@needs_keras
def test_texts_of_a_folder_and_time_series_are_datasets(tf: Any, folder: tuple[Path, dict[str, Any]]) -> None:
    root, _ = folder
    load = functools.partial(tf.keras.utils.text_dataset_from_directory, root, verbose=False)
    texts = load(shuffle=False, batch_size=5)
    assert texts.class_names == ["cats", "dogs"]
    assert [(x.tolist(), y.tolist()) for x, y in texts.as_numpy_iterator()] == [
        ([b"text 0", b"text 1", b"text 2", b"text 3", b"text 4"], [0, 0, 0, 0, 1]), ([b"text 5"], [1])]
    assert next(iter(load(labels=None, max_length=2, batch_size=None))).numpy() == b"te"
    windows = tf.keras.utils.timeseries_dataset_from_array(np.arange(6.0), np.arange(6), 2, sequence_stride=2)
    assert [(x.tolist(), y.tolist()) for x, y in windows] == [([[0, 1], [2, 3], [4, 5]], [0, 2, 4])]
    (root / "cats" / "a.wav").write_bytes(b"")
    with pytest.raises(refdist.errors.MissingNameError, match=r"RD20.*refdist reads no sounds"):
        tf.keras.utils.audio_dataset_from_directory(root, verbose=False)


@needs_keras
def test_text_of_datasets_is_bytes_for_numpy(tf: Any) -> None:
    texts = tf.data.Dataset.from_tensor_slices({"a": ["x", b"y", "x"], "b": [["u"], ["v"], ["w"]]})
    assert [(item["a"], item["b"].tolist()) for item in texts.as_numpy_iterator()] == [
        (b"x", [b"u"]), (b"y", [b"v"]), (b"x", [b"w"])]
    assert [*texts.map(lambda item: item["a"]).unique().as_numpy_iterator()] == [b"x", b"y"]


@needs_keras
def test_a_tape_records_again_after_an_error_in_a_block_that_is_not_recorded(tf: Any) -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(KeyError), tape.stop_recording():
            raise KeyError
        y = x * x
    assert tape.gradient(y, x).numpy() == 6.0


def test_what_stands_in_for_a_function_of_refdist_is_found_through_tf(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refdist.tf.nn.compute_average_loss is refdist.nn.compute_average_loss
    monkeypatch.setattr(refdist.nn, "compute_average_loss", "another")
    assert refdist.tf.nn.compute_average_loss == "another"


@needs_keras
def test_all_paths_of_an_operation_are_one_function(tf: Any) -> None:
    for path, operation in OPERATIONS.items():
        assert find(path) is find(operation.paths[0])
    assert tf.math.reduce_sum is tf.reduce_sum


# Errors of operations.


@needs_keras
def test_operands_of_different_dtypes_are_refused(tf: Any) -> None:
    for call in (lambda: tf.add([1, 2], [1.0, 2.0]), lambda: tf.equal(NAMES["i"], NAMES["f"])):
        with pytest.raises(ValueError, match=r"\[RD05\].*int32.*float32.*tf.cast"):
            call()
    with pytest.raises(TypeError, match=r"\[RD05\].*int32, beside it is 0.5"):
        tf.multiply([1, 2], 0.5)
    with pytest.raises(TypeError, match=r"\[RD05\] tf.complex.*float64.*float32"):
        tf.complex(tf.constant(1.0, tf.float64), tf.constant(2.0))
    with pytest.raises(TypeError, match=r"\[RD05\] tf.complex.*int32.*tf.cast"):
        tf.complex(1, 2)


@needs_keras
@pytest.mark.parametrize(("shapes", "text"), [
    ('[(f, ("N", "D")), (tf.ones([2, 5]), ("N", "D"))]',
     r"float32\[2, 5\]: 'D' of the shape \('N', 'D'\) is 3 by float32\[2, 3\]\. they differ"),
    ('[(f, ("N", "N"))]', "'N' .* is 2 by"), ('[(f, (2, "D")), (tf.ones([2, 5]), ("*", "D"))]', "'D' .* is 3 by"),
    ('[(f, ("N",))]', r"the shape is \('N',\)"), ('[(f, (4, None))]', "4 of .* is 4 explicitly"),
    ('[(1.0, ("N",)), (f, ("N", None))]', "'N' .* is 1 by"), ('[(f[0], ())]', "is 1 explicitly"),
    ('[(f, ("N", ...))]', "come first"), ("[(f, 3)]", "Pass a tuple"), ('[(f, (..., 1, "D", "E"))]', "the shape is"),
])
def test_shapes_that_are_not_as_asserted_are_named(tf: Any, shapes: str, text: str) -> None:
    with pytest.raises(ValueError, match=rf"\[RD34\] tf.debugging.assert_shapes.*{text}"):
        tf.debugging.assert_shapes(eval(shapes, {"tf": tf, **NAMES}), message="they differ")


@needs_keras
def test_a_check_that_does_not_hold_says_what_it_compared(tf: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"assert_equal.*1 and 2.*they differ"):
        tf.debugging.assert_equal(1, 2, message="they differ")
    with pytest.raises(TypeError, match=r"assert_integer.*float32.*an integer"):
        tf.debugging.assert_integer([1.0])
    with pytest.raises(ValueError, match=r"assert_rank_in.*\[1, 3\]"):
        tf.debugging.assert_rank_in([[1.0]], [1, 3])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[RD34\].*not finite"):
        tf.debugging.check_numerics([np.inf], "")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[RD04\].*\(2, 3\), not \(3, 3\)"):
        tf.ensure_shape(NAMES["f"], [3, 3])


@needs_keras
def test_names_that_are_said_to_be_missing_are_missing(tf: Any) -> None:
    for path in INSTEAD:
        place, _, name = path.rpartition(".")
        value = getattr(functools.reduce(getattr, filter(None, place.split(".")), tf), name, None)
        assert value is None or isinstance(value, Namespace), path  # of a namespace the rest is missing


@needs_keras
def test_another_name_says_what_to_write(tf: Any) -> None:
    for path, advice in (("saved_model", r"Write `model.save\("), ("gradients", "Write the gradient"),
                         ("ragged", "padded_batch"),
                         ("data.experimental.take_while", "Write `tf.data.Dataset.take_while`"),
                         ("data.experimental.save", r"Dataset.save: .*TFRecordWriter"),
                         ("data.Dataset.save", r"Dataset.save: .*TFRecordWriter"),
                         ("data.Dataset.ragged_batch", "Dataset.ragged_batch: .*padded_batch"),
                         ("data.experimental.ignore_errors", "Catch the error"),
                         ("compat.v1.ragged", r"RD20\] tf.compat.v1.ragged: .*padded_batch"),
                         ("data.Nothing", r"RD20\] tf.data.Nothing: .* Use what `dir\(tf.data\)` lists"),
                         ("compat.v1.where", "Write `tf.where`"), ("compat.v1.placeholder", "no graphs"),
                         ("tpu.experimental.embedding", "RD20"), ("strings.ngrams", r"`dir\(tf.strings\)` lists"),
                         ("GraphKeys", r"RD20\] tf.GraphKeys: .* `dir\(tf\)` lists"),
                         ("reduce_summ", "the nearest name is `tf.reduce_sum`"),
                         ("nn.ctc_loss", r"RD20\] tf.nn.ctc_loss: .* `dir\(tf.nn\)` lists.*numpy_function")):
        place = tf
        *outer, name = path.split(".")
        for part in outer:
            place = getattr(place, part)
        with pytest.raises(AttributeError, match=advice):
            getattr(place, name)
        assert not hasattr(place, name)


def without_a_code(tf: Any, but: str = "#") -> list[str]:
    """Public names of TensorFlow's modules, and attributes of its objects, whose lack says nothing.

    Args:
        but: the beginning of lines that are left out.
    """
    silent = []
    for line in _NAMES.read_text().splitlines():
        expression, _, names = line.rpartition(" : ")
        for name in () if line.startswith(("#", but)) else names.split():
            try:
                getattr(eval(expression, {"tf": tf}), name)
            except refdist.errors.RefdistError as error:
                assert error.code == "RD27" or (error.code == "RD20" and isinstance(error, AttributeError))
            except AttributeError:
                silent.append(f"{expression}.{name}")
    return silent


@needs_keras
def test_every_name_of_tensorflow_s_is_there_or_says_what_to_write(
        tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tf.keras.Sequential().distribute_strategy  # noqa: B018 - which needs what Keras is connected to
    assert without_a_code(tf) == []


@pytest.mark.skipif("keras" in _INSTALLED, reason="Keras is installed")
def test_every_name_of_tensorflow_s_says_what_to_write_without_keras(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert without_a_code(refdist.tf, "tf.constant(") == []  # which are NumPy's


def test_a_program_may_raise_errors_as_tensorflow_s_and_look_at_them() -> None:
    errors = refdist.tf.errors
    for error in (errors.UnavailableError(None, None, "gone"),
                  errors.UnavailableError(node_def=None, op=None, message="gone")):
        assert (str(error), error.message, error.op, error.node_def) == ("gone", "gone", None, None)
        assert error.error_code == errors.UNAVAILABLE == 14 and error.experimental_payloads == {}
    names = """CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
        RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS
        UNAUTHENTICATED"""
    for code, name in enumerate(names.split(), 1):
        kind = getattr(errors, f"{name.title().replace('_', '')}Error")
        assert kind(None, None, "text").error_code == getattr(errors, name) == code, name
    with pytest.raises(ValueError) as caught:
        refdist.tf.TensorShape([1]).with_rank(2)
    assert caught.value.error_code == errors.INVALID_ARGUMENT and "rank 1" in caught.value.message


def test_shapes_and_specs_have_tensorflow_s_methods() -> None:
    shape = refdist.tf.TensorShape([2, None])
    assert shape.with_rank_at_least(2) == shape.with_rank_at_most(2) == shape
    for wrong in (lambda: shape.with_rank_at_least(3), lambda: shape.with_rank_at_most(1)):
        with pytest.raises(ValueError, match=r"RD04.*has rank 2"):
            wrong()
    assert shape.most_specific_compatible_shape([3, None]) == (None, None)
    assert shape.most_specific_compatible_shape([2]).rank is None
    spec = refdist.tf.TensorSpec.from_tensor(np.zeros((2, 3), F32), name="x")
    assert (spec.shape, spec.dtype, spec.name) == ((2, 3), F32, "x")
    assert refdist.tf.TensorSpec.from_spec(spec) == spec and refdist.tf.TensorSpec.from_spec(spec).name == "x"


@needs_keras
def test_every_message_of_an_example_is_written_and_read(tf: Any) -> None:
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[3, -1]))
    features = tf.train.Features(feature={"y": feature})
    assert tf.train.Feature.FromString(feature.SerializeToString()).int64_list.value == [3, -1]
    assert tf.train.Features.FromString(features.SerializeToString()).feature["y"].int64_list.value == [3, -1]
    floats = tf.train.FloatList(value=[0.5])
    assert tf.train.FloatList.FromString(floats.SerializeToString()) == floats
    with pytest.raises(refdist.errors.InvalidArgumentError, match=r"RD34\] tf.train.Features.ParseFromString"):
        features.ParseFromString(b"\xff")
    assert features.feature["y"].int64_list.value == [3, -1]


@needs_keras
def test_pytorch_goes_through_the_attributes_of_its_tensors(tf: Any) -> None:
    from torch.overrides import get_overridable_functions

    tf.keras  # noqa: B018
    assert get_overridable_functions()
    tensor = tf.constant(1.0)
    assert not hasattr(tensor, "assign") and not hasattr(tensor, "op")
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'nothing'$"):
        tensor.nothing  # noqa: B018


@needs_keras
def test_a_model_has_what_keras_gives_it_on_tensorflow(tf: Any) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    assert model.distribute_strategy is strategy
    alone = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    assert alone.distribute_strategy is tf.distribute.get_strategy()
    alone.compile(loss="mse", metrics=["mae"])
    x, y = np.ones((2, 3), F32), np.zeros((2, 1), F32)
    alone.train_on_batch(x, y)
    predicted = tf.constant([[1.0], [3.0]])
    assert float(alone.compiled_loss(y, predicted)) == 5.0
    alone.reset_metrics()
    alone.compiled_metrics.update_state(y, predicted)
    assert float(alone.get_metrics_result()["mae"]) == 2.0


@needs_keras
def test_a_file_knows_its_size_and_its_next_line(tf: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "lines")
    with tf.io.gfile.GFile(path, "w") as file:
        file.write("one\ntwo\n")
    with tf.io.gfile.GFile(path) as file:
        assert (file.size(), file.next(), list(file)) == (8, "one\n", ["two\n"])
    assert file.closed


@needs_keras
def test_a_variable_and_a_value_of_a_replica_are_operands(tf: Any) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = tf.Variable([1.0, 2.0])
    assert tf.reduce_sum(v).numpy() == 3.0
    sums = strategy.run(lambda x: tf.reduce_sum(tf.add(v, x)), args=(refdist.PerReplica([1.0, 2.0]),))
    assert [float(part) for part in sums.values] == [5.0, 7.0]


# Random numbers.


@needs_keras
def test_a_seed_makes_random_numbers_and_layers_the_same_again(tf: Any) -> None:
    def draw() -> list[Any]:
        tf.random.set_seed(7)
        layer = tf.keras.layers.Dense(2)
        layer.build((None, 3))
        return [tf.random.uniform([3]).numpy(), tf.random.normal([3], seed=1).numpy(),
                tf.random.normal([3], seed=1).numpy(), layer.get_weights()[0]]

    np.random.seed(1)
    expected, first, again = np.random.RandomState(1).rand(2), draw(), draw()
    for one, other in zip(first, again, strict=True):
        assert one.tolist() == other.tolist()
    assert first[1].tolist() != first[2].tolist()
    assert np.random.rand(2).tolist() == expected.tolist()  # NumPy's sequence goes on


WEIGHTS_OF_SEED_3 = """
[[-0.005066871643066406, -1.1857322454452515], [0.7821148633956909, -1.0022910833358765]]
[0.0, 0.0]
[[0.8204935789108276], [0.7722691297531128]]
[0.0]
"""
OUTPUTS_OF_SEED_3 = ([1.2751257419586182, -3.379485845565796, 0.0], [1.2751257419586182, 0.0, 0.0])


@pytest.mark.parametrize("which", ["refdist", "tensorflow"])
def test_a_seed_gives_the_weights_and_masks_that_it_gives_on_tensorflow(request: Any, which: str) -> None:
    if not ({"keras", "torch"} if which == "refdist" else {"tensorflow"}) <= _INSTALLED:
        pytest.skip("it is not installed")
    tf = request.getfixturevalue("tf") if which == "refdist" else importlib.import_module("tensorflow")
    tf.keras.utils.set_random_seed(3)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Dense(2), layers.Dropout(0.5), layers.Dense(1)])
    model.build((None, 2))
    for weight, line in zip(model.weights, WEIGHTS_OF_SEED_3.split("\n")[1:], strict=False):
        np.testing.assert_allclose(weight.numpy(), eval(line), rtol=1e-6)
    for outputs in OUTPUTS_OF_SEED_3:
        np.testing.assert_allclose(model(tf.ones((3, 2)), training=True).numpy()[:, 0], outputs, rtol=1e-6)


@needs_keras
@pytest.mark.parametrize(("devices", "orders"), [(0, [1, 3, 5, 7, 9]), (1, [2, 4, 6, 9, 11]), (2, [2, 4, 6, 9, 11])])
def test_fit_reads_the_orders_of_shuffles_that_tensorflow_reads(tf: Any, devices: int, orders: list[int]) -> None:
    # The numbers of the orders were observed on TensorFlow 2.21: without a strategy, and on one and two replicas.
    tf.random.set_seed(1)
    x = np.arange(8, dtype=F32)[:, None]

    def shuffled() -> Any:
        return tf.data.Dataset.from_tensor_slices((x, 0 * x)).shuffle(8, seed=5).batch(8)

    numbered = shuffled()
    order_of = {i: np.concatenate([batch for batch, _ in numbered]).ravel().tolist() for i in range(1, max(orders) + 1)}
    seen: list[float] = []

    class Model(tf.keras.Model):  # type: ignore[misc]
        def call(self, rows: Any) -> Any:
            return rows

        def train_step(self, data: Any) -> Any:
            seen.extend(data[0].numpy().ravel().tolist())
            return {}

    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)]) if devices else None
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        model = Model()
        model.compile("sgd", "mse")
        batches = shuffled()
        for epochs in (3, 2):
            model.fit(batches, epochs=epochs, verbose=0)
    assert [seen[i:i + 8] for i in range(0, len(seen), 8)] == [order_of[number] for number in orders]


# The tape.


@needs_keras
def test_a_gradient_is_that_of_all_reads_of_a_variable(tf: Any) -> None:
    v, w = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v * v) * w + v[0]
    dv, [dw], other = tape.gradient(y, (v, [w], tf.Variable(1.0)))
    assert (dv.numpy().tolist(), dw.numpy(), other) == ([7.0, 12.0], 5.0, None)
    assert y.numpy() == 16.0 and not (y * 2).requires_grad


@needs_keras
def test_a_gradient_goes_through_a_slice_that_goes_backwards(tf: Any) -> None:
    v = tf.Variable([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v[::-1, 2:0:-1] * tf.constant([[1.0, 10.0], [100.0, 1000.0]]))
    assert y.numpy() == 6 + 50 + 300 + 2000
    assert tape.gradient(y, v).numpy().tolist() == [[0.0, 1000.0, 100.0], [0.0, 10.0, 1.0]]


@needs_keras
@pytest.mark.filterwarnings("ignore:Dynamo ")
def test_pytorch_compiles_a_step_beside_refdist_tf(tf: Any) -> None:
    torch: Any = importlib.import_module("torch")
    v = tf.Variable([1.0, 2.0, 3.0])
    graphs: list[Any] = []

    def backend(graph: Any, inputs: object) -> Any:
        graphs.append(graph)
        return graph.forward

    step = torch.compile(lambda x: tf.reduce_sum(x * v + [1.0, 1.0, 1.0]), backend=backend)
    assert step(tf.constant([2.0, 0.0, 1.0])).numpy() == 8.0
    assert graphs


# With TensorFlow 2.21's values: an array is an operand in the dtype of the tensor.
OPERANDS: dict[str, tuple[Callable[[Any], Any], list[float], list[float] | None]] = {
    "x - y": (lambda x: x - np.ones(2, F32), [1, 2], [1, 1]),
    "y - x": (lambda x: np.ones(2, F32) - x, [-1, -2], [-1, -1]),
    "x - float64": (lambda x: x - np.array([0.5, 0.25]), [1.5, 2.75], [1, 1]),
    "float64 - x": (lambda x: np.array([0.5, 0.25]) - x, [-1.5, -2.75], [-1, -1]),
    "int - x": (lambda x: np.array([1, 2]) - x, [-1, -1], [-1, -1]),
    "x - bool": (lambda x: x - np.array([True, False]), [1, 3], [1, 1]),
    "y * x": (lambda x: np.array([2, 3], F32) * x, [4, 9], [2, 3]),
    "y / x": (lambda x: np.array([2, 3], F32) / x, [1, 1], [-0.5, -1 / 3]),
    "y ** x": (lambda x: np.ones(2, F32) ** x, [1, 1], [0, 0]),
    "y % x": (lambda x: np.ones(2, F32) % x, [1, 1], [0, 0]),
    "y @ x": (lambda x: np.array([[1, 2]], F32) @ x, [8], [1, 2]),
    "a number of NumPy": (lambda x: np.float64(2) * x, [4, 6], [2, 2]),
    "y < x": (lambda x: np.array([1, 4], F32) < x, [True, False], None),
    "read-only": (lambda x: np.broadcast_to(F32(1), 2) * x, [2, 3], [1, 1])}


@needs_keras
@pytest.mark.parametrize("what", OPERANDS)
@pytest.mark.parametrize("made", ["tensor", "variable", "variable of Keras", "variable of Keras in a scope"])
def test_a_tape_records_operators_with_arrays_of_numpy(tf: Any, what: str, made: str) -> None:
    operate, wanted, gradient = OPERANDS[what]
    start = np.array([2, 3], F32)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope() if "scope" in made else contextlib.nullcontext():
        x = {"tensor": tf.constant, "variable": tf.Variable}.get(made, tf.keras.Variable)(start)
        with tf.GradientTape() as tape:
            if made == "tensor":
                tape.watch(x)
            y = operate(x)
        slope = tape.gradient(y, x)
    assert y.numpy().tolist() == wanted
    # An operator that Keras's variable has itself promotes as Keras does.
    promoted = what == "x - float64" and "Keras" in made
    assert y.numpy().dtype == (bool if gradient is None else F64 if promoted else F32)
    assert slope is None if gradient is None else slope.numpy().tolist() == pytest.approx(gradient)


@needs_keras
def test_other_functions_of_numpy_compute_with_the_numbers_of_a_tensor(tf: Any) -> None:
    x = tf.constant([4.0, 9.0])
    for found in np.sqrt(x), np.sqrt(tf.keras.Variable([4.0, 9.0])):
        assert isinstance(found, np.ndarray) and found.tolist() == [2.0, 3.0]
    assert np.add.reduce(x) == 13.0 and np.maximum(x, np.array([5, 5], F32)).tolist() == [5.0, 9.0]
    total = np.ones(2, F32)
    total += x
    assert total.tolist() == [5.0, 10.0]
    with tf.GradientTape() as tape:
        tape.watch(x)
        root = np.sqrt(x)
    with pytest.raises(TypeError, match=r"\[RD25\].*a target is an ndarray"):  # AttributeError in TensorFlow
        tape.gradient(root, x)


@needs_keras
def test_an_assignment_while_the_tape_records_keeps_both_values(tf: Any) -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * v
        v.assign(5.0)
        y = y + v * 10.0
    assert tape.gradient(y, v).numpy() == 14.0 and v.numpy() == 5.0


@needs_keras
def test_a_tape_is_used_once_unless_it_is_persistent(tf: Any) -> None:
    v = tf.Variable(2.0)
    for persistent in (False, True):
        with tf.GradientTape(persistent=persistent) as tape:
            y = v * v * v
        assert tape.gradient(y, v).numpy() == 12.0
        if persistent:
            assert tape.gradient(y, v).numpy() == 12.0
        else:
            with pytest.raises(RuntimeError, match=r"\[RD09\] GradientTape.gradient.*persistent=True"):
                tape.gradient(y, v)


@needs_keras
def test_nested_tapes_give_higher_gradients(tf: Any) -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = x * x * x
        first = inner.gradient(y, x)
    assert (first.numpy(), outer.gradient(first, x).numpy()) == (27.0, 18.0)
    v = tf.Variable(3.0)
    with tf.GradientTape() as one, tf.GradientTape() as other:
        y = v * v
    assert one.gradient(y, v).numpy() == other.gradient(y, v).numpy() == 6.0


@needs_keras
def test_what_is_not_watched_has_no_gradient(tf: Any) -> None:
    x, still, v = tf.constant(3.0), tf.Variable(2.0, trainable=False), tf.Variable(4.0)
    with tf.GradientTape(persistent=True) as tape:
        y = x * x * still * v
        with tape.stop_recording():
            z = v * v
    assert tape.gradient(y, [x, still]) == [None, None]
    assert tape.gradient(z, v) is None
    assert tape.gradient(y, x, unconnected_gradients="zero").numpy() == 0.0
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        y = x * v
    assert [None if one is None else one.numpy() for one in tape.gradient(y, [x, v])] == [4.0, None]
    with tf.GradientTape() as tape:
        y = x * v
    assert tape.gradient(y, x) is None  # an earlier tape watched it, this one does not


@needs_keras
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_gradient_of_a_variable_of_numpy_is_an_error_that_says_what_to_write(tf: Any, replicas: int) -> None:
    refdist.set_backend("simulated")
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"][:replicas])
    with strategy.scope():
        v, other, count = tf.Variable([1.0, 2.0], name="weights"), tf.Variable(3.0), tf.Variable(1)
        still = tf.Variable(2.0, trainable=False)

    def step() -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tensor = tf.reduce_sum(tf.multiply(v, still)) * tf.cast(count, tf.float32)
            array = v * v
        # None of these has a gradient in TensorFlow, either: not read, not an int, not watched.
        assert tape.gradient(tensor, [other, count, still]) == [None, None, None]
        for target in (tensor, array):
            with pytest.raises(NotImplementedError, match=r"\[RD20\] GradientTape.gradient: variable weights:0 was "
                               r"read as an ndarray.*REFDIST_BACKEND=torch.*`refdist.set_backend\(\"torch\"\)`"):
                tape.gradient(target, [other, v])
        with tf.GradientTape() as tape:
            tape.watch(still)
            y = still * 2.0
        with pytest.raises(NotImplementedError, match="RD20"):
            tape.gradient(y, still, unconnected_gradients="zero")

    strategy.run(step)


@needs_keras
def test_what_is_no_tensor_has_no_gradient_and_is_refused(tf: Any) -> None:
    v = tf.Variable([1.0, 2.0])
    for target in (np.sum([1.0]), np.ones(2), 3.0, None):  # AttributeError in TensorFlow
        with tf.GradientTape() as tape:
            v * v
        with pytest.raises(TypeError, match=r"\[RD25\] GradientTape.gradient: a target is an? \w+, and only tensors"):
            tape.gradient(target, v)
    with pytest.raises(TypeError, match=r"\[RD25\].*a source is an ndarray.*REFDIST_BACKEND=torch"):
        tape.gradient(v * v, np.ones(2))
    with tape, pytest.raises(ValueError, match=r"\[RD34\].*got an ndarray.*REFDIST_BACKEND=torch"):
        tape.watch(np.ones(2))


@needs_keras
def test_a_gradient_has_the_weights_that_the_program_gives(tf: Any) -> None:
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        y = v * v
    assert tape.gradient(y, v).numpy().tolist() == [2.0, 4.0]
    assert tape.gradient([y, y], v).numpy().tolist() == [4.0, 8.0]
    assert tape.gradient(y, v, output_gradients=tf.constant([1.0, 10.0])).numpy().tolist() == [2.0, 40.0]
    with pytest.raises(ValueError, match=r"\[RD34\].*1 target and 2 output gradients"):
        tape.gradient(y, v, output_gradients=[tf.constant(1.0), tf.constant(1.0)])


@needs_keras
def test_a_tape_says_how_it_is_misused(tf: Any) -> None:
    tape = tf.GradientTape()
    with pytest.raises(RuntimeError, match=r"\[RD09\] GradientTape.watch.*does not record"):
        tape.watch(tf.constant(1.0))
    with tape, pytest.raises(ValueError, match=r"\[RD34\] GradientTape.watch.*int32.*tf.cast"):
        tape.watch(tf.constant(1))
    with tf.GradientTape() as tape, pytest.raises(ValueError, match=r"\[RD09\].*records already"):
        tape.__enter__()
    with pytest.raises(TypeError, match=r"\[RD25\] GradientTape.gradient: a source is a str"):
        tape.gradient(tf.constant(1.0), "v")


@needs_keras
def test_each_replica_has_its_own_tape(tf: Any) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
    replica = tf.distribute.get_replica_context

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = v * x
            replica().all_reduce("SUM", tf.constant(1.0))  # the other replica goes on while this tape records
            y = y * x
        gradient = tape.gradient(y, v)
        v.assign_sub(0.5 * gradient)
        return y

    losses = strategy.run(step, args=(refdist.PerReplica([tf.constant(1.0), tf.constant(2.0)]),))
    assert strategy.reduce("SUM", losses, axis=None).numpy() == 5.0
    assert [part.numpy().item() for part in losses.values] == [1.0, 4.0] and v.numpy() == -1.5


@needs_keras
def test_an_average_loss_keeps_its_gradient(tf: Any) -> None:
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        plain = tf.nn.compute_average_loss(v * v, global_batch_size=4)
        weighted = tf.nn.compute_average_loss(v * v, sample_weight=[1.0, 0.0], global_batch_size=4)
        scaled = tf.nn.scale_regularization_loss(v * v)
    assert (plain.numpy(), weighted.numpy(), scaled.numpy()) == (1.25, 0.25, 5.0)
    assert [tape.gradient(loss, v).numpy().tolist() for loss in (plain, weighted, scaled)] == [
        [0.5, 1.0], [0.5, 0.0], [2.0, 4.0]]


@needs_keras
def test_a_model_s_gradients_are_those_of_its_variables(tf: Any) -> None:
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones")
    with tf.GradientTape() as tape:
        y = tf.reduce_mean(layer(tf.constant([[1.0, 2.0], [3.0, 4.0]])))
    kernel, bias = tape.gradient(y, layer.trainable_variables)
    assert (kernel.numpy().tolist(), bias.numpy().tolist()) == ([[2.0], [3.0]], [1.0])


@needs_keras
def test_a_checkpoint_fills_a_model_when_it_is_built(tf: Any, tmp_path: Path) -> None:
    x = tf.ones((2, 3))
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(2), tf.keras.layers.BatchNormalization()])
        expected = model(x).numpy()
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "saved"))
    restored = tf.keras.Sequential([tf.keras.layers.Dense(2), tf.keras.layers.BatchNormalization()])
    tf.train.Checkpoint(model=restored).restore(path).expect_partial()  # which nobody keeps
    assert restored(x).numpy().tolist() == expected.tolist()


@needs_keras
@pytest.mark.parametrize("devices", [None, ["CPU:0", "CPU:1"]], ids=["alone", "two"])
def test_a_part_of_a_model_is_restored_by_the_names_of_attributes(
        tf: Any, tmp_path: Path, devices: list[str] | None) -> None:
    class Scaled(tf.keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self._shift = self.add_weight(shape=(2,))
            self.scale = tf.Variable([1.0, 1.0])

        def call(self, x: Any) -> Any:
            return x * self.scale.read_value() + self._shift

    class Model(tf.keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.head = tf.keras.layers.Dense(2)
            self.scaled = Scaled()
            self.parts = tf.keras.Sequential([Scaled()])
            self.counts = tf.Module()
            self.counts.steps = tf.Variable(3)

        def call(self, x: Any) -> Any:
            return self.parts(self.scaled(self.head(x)))

    checkpoint, x = tf.train.Checkpoint, tf.ones((1, 3))
    with tf.distribute.MirroredStrategy(devices).scope() if devices else contextlib.nullcontext():
        model = Model()
        model(x)
    numbers = {"head/_kernel": model.head.kernel, "head/bias": model.head.bias, "scaled/scale": model.scaled.scale,
               "scaled/_shift": model.scaled._shift, "parts/layers/0/scale": model.parts.layers[0].scale,
               "parts/layers/0/_shift": model.parts.layers[0]._shift,
               "counts/steps": model.counts.steps}
    for number, variable in enumerate(numbers.values(), 4):
        variable.assign(np.full(tuple(variable.shape), number))
    path = checkpoint(model=model).save(str(tmp_path / "saved"))
    for number, (name, variable) in enumerate(numbers.items(), 4):
        place = taken = tf.Variable(tf.zeros(variable.shape, dtype=variable.dtype))
        for attribute in reversed(f"model/{name}".split("/")):
            place = checkpoint(**{attribute: place})
        place.restore(path).assert_existing_objects_matched()
        assert (taken.numpy() == number).all(), name

    restored = Model()
    status = checkpoint(model=restored).restore(path)
    assert restored(x).numpy().tolist() == model(x).numpy().tolist()  # built after it was restored
    assert (restored.scaled.scale.numpy().tolist(), int(restored.counts.steps)) == ([6.0, 6.0], 10)
    status.assert_consumed()


@needs_keras
@pytest.mark.parametrize("name", ["Adam", "SGD of the program's own"])
def test_a_checkpoint_fills_an_optimizer_when_it_is_built(tf: Any, tmp_path: Path, name: str) -> None:
    class Own(tf.keras.optimizers.SGD):  # type: ignore[misc]
        def build(self, variables: Any) -> None:
            super().build(variables)
            self.momentum = 0.5

    def steps(path: str, is_built: bool) -> tuple[list[float], Any]:
        variable = tf.keras.Variable([1.0, 2.0])
        optimizer = tf.keras.optimizers.Adam(0.1) if name == "Adam" else Own(0.1, momentum=0.5)
        if is_built:
            optimizer.build([variable])
        checkpoint = tf.train.Checkpoint(optimizer=optimizer)
        if path:
            checkpoint.restore(path)
        for gradient in ([1.0, -2.0], [0.5, 0.25]):
            optimizer.apply_gradients([(tf.constant(gradient), variable)])
        return [value for slot in optimizer.variables for value in np.ravel(slot.numpy())], checkpoint

    saved = steps("", True)[1].save(str(tmp_path / "optimizer"))
    assert steps(saved, False)[0] == steps(saved, True)[0] != steps("", True)[0]


@needs_keras
def test_texts_are_looked_up_in_a_vocabulary(tf: Any) -> None:
    layer = tf.keras.layers.StringLookup(vocabulary=["a", "b"])
    assert layer([["b", "z"]]).numpy().tolist() == [[2, 0]] and layer.get_vocabulary() == ["[UNK]", "a", "b"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[RD34\] StringLookup: 'z' is not in the vocabulary"):
        tf.keras.layers.StringLookup(vocabulary=["a"], num_oov_indices=0)(["z"])


@needs_keras
def test_fit_outside_a_scope_and_a_loaded_model_learn(tf: Any, tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer="sgd")
    losses = [model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0).history["loss"][0] for _ in range(2)]
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert losses[1] < losses[0] and loaded.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0).history["loss"]


# `tf.function`.


def test_a_function_is_called_as_it_is() -> None:
    function = refdist.tf.function

    @function
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    class Model:
        @function(jit_compile=True)
        def call(self, x: int) -> tuple[Any, int]:
            return self, x

    model = Model()
    assert (double(2), double.python_function(3), double.__doc__, double.__name__) == (4, 6, "Twice.", "double")
    assert model.call(1) == (model, 1) and function(lambda: 5)() == 5 and function(model.call)(2) == (model, 2)
    with pytest.raises(AttributeError, match=r"\[RD20\] get_concrete_function of.*double.*Call the function"):
        double.get_concrete_function(1)
    with pytest.raises(TypeError, match=r"\[RD25\] tf.function: got an int"):
        function(3)


def test_a_signature_is_checked_at_each_call() -> None:
    spec = refdist.TensorSpec

    @refdist.tf.function(input_signature=[spec([None, 2], F32), {"y": spec([], I32)}])
    def step(x: Any, rest: Any) -> Any:
        return len(x)

    rows = np.zeros((3, 2), F32)
    assert step(rows, {"y": 1}) == 3 and step(rest={"y": I32(1)}, x=rows) == 3
    for bad in ((rows,), (rows[0], {"y": 1}), (rows.astype(F64), {"y": 1}), (rows, 1), (rows, {"y": 1, "z": 1})):
        with pytest.raises(TypeError, match=r"\[RD25\].*step.*input_signature"):
            step(*bad)
    with pytest.raises(TypeError, match=r"\[RD25\] tf.function: input_signature is a TensorSpec"):
        refdist.tf.function(input_signature=spec([], F32))


def test_a_signature_of_a_distributed_dataset_takes_its_elements() -> None:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = strategy.experimental_distribute_dataset(refdist.data.Dataset.range(8).batch(4))

    @refdist.tf.function(input_signature=[dataset.element_spec])
    def step(x: Any) -> Any:
        return strategy.run(lambda part: part + 1, args=(x,))

    for batch in dataset:
        assert len(step(batch).values) == 2
    with pytest.raises(TypeError, match=r"\[RD25\].*input_signature"):
        step(refdist.PerReplica([1.5, 2.5]))


# What else has TensorFlow's names.


def test_values_are_printed_on_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refdist.tf.print("loss", np.arange(10), [1, "a"], sep="; ")
    assert capsys.readouterr().err == "loss; [0 1 2 ... 7 8 9]; [1, 'a']\n"
    refdist.tf.print(np.arange(10), output_stream=f"file://{tmp_path / 'log'}", summarize=-1, end="")
    assert (tmp_path / "log").read_text() == "[0 1 2 3 4 5 6 7 8 9]"


def test_files_have_tensorflow_s_names(tmp_path: Path) -> None:
    gfile = refdist.tf.io.gfile
    folder = str(tmp_path / "a" / "b")
    gfile.makedirs(folder)
    gfile.makedirs(folder)
    with gfile.GFile(gfile.join(folder, "c.txt"), "w") as file:
        file.write("text")
    gfile.copy(gfile.join(folder, "c.txt"), gfile.join(folder, "d.txt"))
    with pytest.raises(KeyError, match=r"\[RD34\].*overwrite=True"):
        gfile.copy(gfile.join(folder, "c.txt"), gfile.join(folder, "d.txt"))
    gfile.rename(gfile.join(folder, "c.txt"), gfile.join(folder, "e.txt"))
    assert [Path(path).name for path in gfile.glob(gfile.join(folder, "*.txt"))] == ["d.txt", "e.txt"]
    assert gfile.isdir(folder) and sorted(gfile.listdir(folder)) == ["d.txt", "e.txt"]
    gfile.rmtree(str(tmp_path / "a"))
    assert not gfile.exists(folder)


def test_shapes_and_dtypes_are_said_as_in_tensorflow() -> None:
    tf = refdist.tf
    shape = tf.TensorShape([None, 3])
    assert (shape.rank, shape.as_list(), shape.num_elements(), tf.TensorShape([2, 3]).num_elements()) == (
        2, [None, 3], None, 6)
    assert shape.is_compatible_with([5, 3]) and not shape.is_compatible_with([5]) and not shape.is_fully_defined()
    assert tf.TensorSpec(tf.TensorShape([4]), tf.dtypes.float32) == tf.TensorSpec([4], tf.float32)
    assert tf.dtypes.as_dtype("int64") == tf.int64 and tf.newaxis is None and tf.__version__.startswith("2.21.0")


def test_importing_the_face_loads_neither_keras_nor_pytorch() -> None:
    program = ("import sys, refdist.tf as tf\n"
               "tf.distribute.MirroredStrategy(['CPU:0']); tf.TensorShape([1]); tf.function(lambda: 1)()\n"
               "dir(tf), dir(tf.nn), dir(tf.math)\n"
               "assert not {'keras', 'torch', 'tensorflow'} & set(sys.modules)\n")
    subprocess.run([sys.executable, "-c", program], check=True)


# In TensorFlow's place.


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tf: Any) -> Any:
    """Runs lines of a program under `refdist.tf.install()`."""
    import builtins

    from refdist.tf import stand_in

    monkeypatch.setattr(builtins, "__import__", builtins.__import__)
    monkeypatch.setattr(stand_in._installed, "value", False)
    stand_in.install()

    def run(source: str, **names: Any) -> dict[str, Any]:
        module = {"__name__": "__main__", **names}
        exec(dedent(source), module)
        return module
    return run


@needs_keras
def test_a_program_that_imports_tensorflow_finds_refdist(program: Any) -> None:
    found = program("""
        import tensorflow as tf
        import tensorflow.keras.layers as more
        from tensorflow import keras, Variable
        from tensorflow.keras import layers
        from tensorflow.keras.layers import Dense
        from tensorflow.distribute import MirroredStrategy
        x = tf.constant([1.0, 2.0])
        rows = [row.numpy().item() for row in tf.data.Dataset.range(2)]
        numpy_rows = list(tf.data.Dataset.range(2).batch(2).as_numpy_iterator())
        numpy_numbers = list(tf.data.Dataset.range(2).map(lambda n: n + 1).as_numpy_iterator())
    """)
    assert found["tf"] is refdist.tf and found["layers"] is found["more"] is found["keras"].layers
    assert found["Dense"] is found["layers"].Dense and found["MirroredStrategy"] is refdist.MirroredStrategy
    assert found["x"].numpy().tolist() == [1.0, 2.0] and found["rows"] == [0, 1]
    assert type(found["numpy_rows"][0]) is np.ndarray and type(found["numpy_numbers"][0]) is np.int64


@needs_keras
@pytest.mark.skipif("tensorflow" in _INSTALLED, reason="TensorFlow is installed")
def test_nobody_else_is_told_that_tensorflow_is_there(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = sys.modules["keras"].__file__
    with pytest.raises(ModuleNotFoundError):
        program("import tensorflow", __name__="keras.src.other", __file__=library)
    with pytest.raises(ModuleNotFoundError):
        program("from tensorflow import keras", __name__="json.other", __file__=sys.modules["json"].__file__)
    assert "tensorflow" not in sys.modules and importlib.util.find_spec("tensorflow") is None
    from keras.src.utils.module_utils import tensorflow

    assert not tensorflow.available


@needs_keras
def test_what_is_missing_is_an_import_error_that_says_what_to_write(program: Any) -> None:
    with pytest.raises(ImportError, match=r"\[RD20\].*saved_model.*Checkpoint"):
        program("from tensorflow import saved_model")
    with pytest.raises(ImportError, match="no_such_name"):
        program("from tensorflow import no_such_name")
    with pytest.raises(ImportError, match=r"\[RD20\] import tensorflow_hub.*load_model"):
        program("import tensorflow_hub as hub")
    with pytest.raises(ModuleNotFoundError):
        program("import tensorflow_of_nobody")


@needs_keras
def test_tensorflow_itself_is_not_mixed_in(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    with pytest.raises(RuntimeError, match=r"\[RD09\] refdist.tf.install: TensorFlow itself is loaded"):
        tf.install()


@needs_keras
def test_names_of_keras_2_are_there_or_say_what_to_write(tf: Any) -> None:
    metric = tf.keras.metrics.Mean()
    metric.update_state(2.0)
    metric.reset_states()
    assert metric.count.numpy() == 0 and tf.metrics is tf.keras.metrics
    loss = tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.NONE)
    assert loss([[1.0], [2.0]], [[0.0], [0.0]]).numpy().tolist() == [1.0, 4.0]
    with pytest.raises(AttributeError, match=r"\[RD20\].*legacy.SGD.*Write `tf.keras.optimizers.SGD`"):
        tf.keras.optimizers.legacy.SGD()


@needs_keras
@pytest.mark.parametrize(("call", "text"), [
    (lambda tf: tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)]).export("model"),
     r"Sequential.export: .*SavedModel.*Write `model.save"),
    (lambda tf: tf.keras.export.ExportArchive(), "ExportArchive: .*Write `model.save"),
    (lambda tf: tf.keras.layers.TFSMLayer("model"), "TFSMLayer: .*load_model"),
    (lambda tf: tf.keras.layers.HashedCrossing(num_bins=2), "HashedCrossing: .*strings.join"),
    (lambda tf: tf.keras.utils.FeatureSpace.float(), "FeatureSpace: .*Normalization"),
    (lambda tf: tf.keras.utils.split_dataset(tf.data.Dataset.range(4), 0.5), "split_dataset: .*take"),
    (lambda tf: tf.keras.backend.bias_add(tf.ones((1, 2)), tf.ones(2)), "backend.bias_add: .*tf.nn.bias_add"),
    (lambda tf: tf.keras.backend.pool2d(tf.ones((1, 2, 2, 1)), (2, 2)), "backend.pool2d: .*ops.max_pool"),
    (lambda tf: tf.keras.backend.ctc_decode(tf.ones((1, 2, 3)), [2]), r"ctc_decode: .*tf.math.log\(y_pred\)"),
    (lambda tf: tf.keras.backend.in_top_k(tf.ones((1, 2)), tf.constant([1]), 1), "in_top_k: .*math.in_top_k"),
    (lambda tf: __import__("keras").src.utils.module_utils.tensorflow.constant, "computes with TensorFlow"),
])
def test_what_keras_computes_with_tensorflow_itself_says_what_to_write(
        tf: Any, call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises((AttributeError, ImportError), match=rf"\[RD20\].*{text}"):
        call(tf)


# Notebooks, and the commands.


def _notebook(path: Path, *cells: str) -> Path:
    import json

    path.write_text(json.dumps({"nbformat": 4, "cells": [
        {"cell_type": "markdown", "source": ["text"]},
        *({"cell_type": "code", "source": cell.splitlines(True)} for cell in cells)]}))
    return path


def test_lines_of_a_notebook_that_are_no_python_are_left_out_by_name(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = _notebook(tmp_path / "a.ipynb", "!pip install x\nx = 7 % 4\nif x:\n  %time x\n", "%%bash\nls\n",
                     "%%writefile new.py\ny = 5\n", "from new import y\nz = x + y\n")
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    for cell in notebooks.cells(path):
        notebooks.execute(cell, names)
    assert names["z"] == 8 and (tmp_path / "new.py").read_text() == "y = 5\n"
    assert capsys.readouterr().err.splitlines() == [
        "a.ipynb cell 1: left out: !pip install x", "a.ipynb cell 1: left out: %time x",
        "a.ipynb cell 2: left out: %%bash"]
    sys.modules.pop("new", None)


def test_an_error_in_a_notebook_names_the_cell_and_its_line(tmp_path: Path) -> None:
    cell, = notebooks.cells(_notebook(tmp_path / "a.ipynb", "x = 1\nx / 0\n"))
    with pytest.raises(ZeroDivisionError) as caught:
        notebooks.execute(cell, {})
    last = caught.traceback[-1]
    assert (last.frame.code.raw.co_filename, last.lineno + 1) == ("a.ipynb cell 1", 2)
    with pytest.raises(refdist.errors.DataLossError, match=r"\[RD30\] the notebook.*it is not one"):
        (tmp_path / "b.ipynb").write_text("x = 1")
        notebooks.cells(tmp_path / "b.ipynb")


@needs_keras
@pytest.mark.slow
@pytest.mark.parametrize("arguments", [
    ["run", "--tensorflow"], ["run", "--tensorflow", "--workers", "2"], ["launch", "--tensorflow", "-n", "2"]],
    ids=["alone", "simulated workers", "processes"])
@pytest.mark.parametrize("form", ["script", "notebook"])
def test_a_command_runs_the_program_unchanged(tmp_path: Path, arguments: list[str], form: str) -> None:
    source = dedent("""
        import sys
        import tensorflow as tf
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        ones = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
        print("total", ones.numpy(), *sys.argv[1:])
    """)
    path = tmp_path / "program.py"
    path.write_text(source)
    if form == "notebook":
        path = _notebook(tmp_path / "program.ipynb", *source.split("strategy =", 1)[:1],
                         "strategy =" + source.split("strategy =", 1)[1])
    finished = subprocess.run([sys.executable, "-m", "refdist", *arguments, str(path), "--option"], text=True,
                              capture_output=True, timeout=HANG)
    workers = 1 if arguments[-1] == "--tensorflow" else 2
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == [f"total {workers}.0 --option"] * workers


# Keras on parameter servers.


def step_of(tf: Any, model: Any, optimizer: Any) -> Any:
    x = np.arange(16, dtype=np.float32).reshape(8, 2) / 8
    y = tf.constant(x[:, :1] - 2 * x[:, 1:])

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss
    return step


def model_of(tf: Any) -> Any:
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(3), tf.keras.layers.BatchNormalization(),
                                 tf.keras.layers.Dense(1)])
    for i, weight in enumerate(model.trainable_variables):
        weight.assign(np.arange(np.prod(weight.shape)).reshape(weight.shape) % 3 / 4 + i / 8)
    return model


@needs_keras
@pytest.mark.parametrize("shards", [1, 2])
def test_scheduled_steps_train_a_keras_model_whose_weights_are_on_servers(tf: Any, shards: int) -> None:
    plain, optimizer = model_of(tf), tf.keras.optimizers.SGD(0.125, momentum=0.5)
    wanted = [float(step_of(tf, plain, optimizer)()) for _ in range(4)]
    spec = tf.train.ClusterSpec({"worker": ["a:1", "b:1"], "ps": ["c:1", "d:1"]})
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(spec),
        tf.distribute.experimental.partitioners.FixedShardsPartitioner(shards))
    with strategy.scope():
        model, optimizer, mean = model_of(tf), tf.keras.optimizers.SGD(0.125, momentum=0.5), tf.keras.metrics.Mean()
        optimizer.build(model.trainable_variables)
    coordinator, step = tf.distribute.coordinator.ClusterCoordinator(strategy), step_of(tf, model, optimizer)

    @tf.function
    def scheduled() -> Any:
        loss = strategy.run(step)
        mean.update_state(loss)
        return strategy.reduce("SUM", loss, axis=None)

    losses = []
    for _ in range(4):
        losses.append(coordinator.schedule(scheduled))
        coordinator.join()
    assert [float(loss.fetch()) for loss in losses] == pytest.approx(wanted, rel=1e-5)
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert int(optimizer.iterations) == 4 and float(mean.result()) == pytest.approx(sum(wanted) / 4, rel=1e-5)
    parts = [part for variable in [*model.variables, *optimizer.variables]
             for part in getattr(variable._value, "variables", [variable._value])]
    assert {part.device for part in parts} == {f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(2)}


# Beside a program of PyTorch.


BESIDE_PYTORCH = """
import threading
import torch
import refdist.tf as tf

def trained():
    net = torch.nn.Linear(2, 1)
    net(torch.ones(3, 2)).sum().backward()
    return net.bias.grad.tolist() == [3.0]

assert trained()  # the import changes nothing
layer = tf.keras.layers.Dense(1)
assert not layer(tf.ones((1, 2))).requires_grad
try:
    trained()
except tf.errors.RefdistError as error:
    assert error.code == "RD09" and "torch.enable_grad" in str(error), error
else:
    raise AssertionError
results = []
thread = threading.Thread(target=lambda: results.append(trained()))  # other threads are left alone
thread.start()
thread.join()
assert results == [True]
with torch.enable_grad():
    assert trained()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.ones((1, 2))))
    assert [gradient.tolist() for gradient in tape.gradient(loss, layer.trainable_variables)] == [[[1.0], [1.0]], [1.0]]
    assert trained()  # a tape puts back what was before
torch.set_grad_enabled(True)
with tf.GradientTape(), tf.GradientTape() as inner, inner.stop_recording():
    pass
assert trained()
"""


@needs_keras
@pytest.mark.slow
def test_a_loop_of_pytorch_beside_tensorflow_s_program_trains_or_is_told_what_to_write() -> None:
    subprocess.run([sys.executable, "-c", BESIDE_PYTORCH], check=True, cwd=Path(__file__).parents[1], timeout=HANG)


@needs_keras
def test_tensors_that_tensorflow_lacks_keep_pytorch_s_dtype_and_text(tf: Any) -> None:
    from torch import float8_e5m2, sparse_coo, tensor, zeros

    eight, sparse, nowhere = zeros(2, dtype=float8_e5m2), tensor([0.0, 1.0]).to_sparse(), zeros(2, device="meta")
    assert eight.dtype == float8_e5m2 and sparse.layout == sparse_coo
    assert repr(eight) == str(eight) == "tensor([0., 0.], dtype=torch.float8_e5m2)"
    assert "layout=torch.sparse_coo" in str(sparse) and "device='meta'" in f"{nowhere}"
