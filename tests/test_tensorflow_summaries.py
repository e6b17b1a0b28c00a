"""What `tf.summary` writes: the bytes that TensorFlow 2.21 writes with TensorBoard 2.21, but for the time of each."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from face import on_torch

from refdist.data.files import records

pytestmark = pytest.mark.skipif(not all(map(importlib.util.find_spec, ("keras", "torch", "google_crc32c"))),
                                reason="Keras, PyTorch or google-crc32c is not installed")
_VERSION = "1a0d627261696e2e4576656e743a3252240a2274656e736f72666c6f772e636f72652e7574696c2e6576656e74735f777269746572"


@pytest.fixture
def tf() -> Iterator[Any]:
    with on_torch() as face:
        yield face


def _events(folder: Path) -> list[bytes]:
    # The events in the only file of a folder, without their times.
    (path,) = (path for path in folder.iterdir() if path.name.startswith("events.out.tfevents."))
    events = list(records(str(path), None))
    assert all(event[0] == 9 and struct.unpack("<d", event[1:9])[0] > 1.7e9 for event in events)
    assert events[0][9:].hex() == _VERSION
    return [event[9:] for event in events[1:]]


def _written(tf: Any, folder: Path, program: Callable[[], object]) -> list[bytes]:
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        program()
    writer.close()
    return _events(folder)


def _number(data: bytes) -> tuple[int, bytes]:
    # A number of Protocol Buffers, and what comes after it.
    number = shift = 0
    for place, byte in enumerate(data):
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, data[place + 1:]
    raise AssertionError(data)


def _tags(events: list[bytes]) -> list[tuple[int, str]]:
    # The step and the tag of each event.
    tags = []
    for event in events:
        step, rest = _number(event[1:]) if event[0] == 0x10 else (0, event)
        for _ in range(2):  # the summary, and its value
            _, rest = _number(rest[1:])
        length, rest = _number(rest[1:])
        tags.append((step, rest[:length].decode()))
    return tags


@pytest.mark.parametrize(("call", "event"), [
    (lambda tf: tf.summary.scalar("loss", 0.5, step=3),
     "10032a210a1f0a046c6f7373420a0801120022040000003f4a0b0a090a077363616c617273"),
    (lambda tf: tf.summary.scalar("loss64", tf.constant(0.25, tf.float64), tf.constant(4, tf.int64), "of *it*"),
     "10042a2c0a2a0a066c6f73733634420a0801120022040000803e4a140a090a077363616c6172731a076f66202a69742a"),
    (lambda tf: tf.summary.scalar("var", tf.Variable(2.5), step=tf.Variable(6, dtype=tf.int64)),
     "10062a200a1e0a03766172420a080112002204000020404a0b0a090a077363616c617273"),
    (lambda tf: tf.summary.scalar("even", 0, step=0),
     "2a210a1f0a046576656e420a080112002204000000004a0b0a090a077363616c617273"),
    (lambda tf: tf.summary.scalar("neg", True, step=np.int32(-1)),
     "10ffffffffffffffffff012a200a1e0a036e6567420a0801120022040000803f4a0b0a090a077363616c617273"),
    (lambda tf: tf.summary.scalar("nan", float("nan"), step=2**40),
     "108080808080202a200a1e0a036e616e420a0801120022040000c07f4a0b0a090a077363616c617273"),
    (lambda tf: tf.summary.text("t", "hello", step=1),
     "10012a1c0a1a0a0174420b08071200420568656c6c6f4a080a060a0474657874"),
    (lambda tf: tf.summary.text("t2", tf.constant([["a", "b"]]), step=1, description="d"),
     "10012a270a250a02743242120807120812020801120208024201614201624a0b0a060a04746578741a0164"),
    (lambda tf: tf.summary.histogram("h5", np.arange(10), step=1, buckets=5),
     "10012aa0010a9d010a02683542860108021208120208051202080322780000000000000000cdccccccccccfc3f0000000000000040cdcc"
     "ccccccccfc3fcdcccccccccc0c400000000000000040cdcccccccccc0c409a9999999999154000000000000000409a9999999999154"
     "0cdcccccccccc1c400000000000000040cdcccccccccc1c40000000000000224000000000000000404a0e0a0c0a0a686973746f6772"
     "616d73"),
    (lambda tf: tf.summary.histogram("none", tf.ones([3]), step=1, buckets=0),
     "10012a240a220a046e6f6e65420a080212061200120208034a0e0a0c0a0a686973746f6772616d73"),
    (lambda tf: tf.summary.write("w", tf.constant([1, 2]), step=1),
     "10012a190a170a01774212080312041202080222080100000002000000"),
    (lambda tf: tf.summary.write("w", lambda: tf.constant([1, 2], tf.float16), step=1),
     "10012a150a130a0177420e08131204120208022204003c0040"),
])
def test_a_summary_has_the_bytes_that_tensorflow_writes(
        tf: Any, tmp_path: Path, call: Callable[[Any], Any], event: str) -> None:
    assert [written.hex() for written in _written(tf, tmp_path, lambda: call(tf))] == [event]
    assert call(tf).numpy() is np.False_ or not call(tf).numpy()  # no writer


def test_a_histogram_has_thirty_parts_and_one_number_alone_is_in_the_last(tf: Any, tmp_path: Path) -> None:
    def parts(event: bytes) -> Any:
        return np.frombuffer(event[event.index(b"\x22\xd0\x05") + 3:][:720]).reshape(30, 3)
    several, single = _written(tf, tmp_path, lambda: (
        tf.summary.histogram("h", tf.constant([[1.0, 2.0], [2.5, 4.0]]), step=1),
        tf.summary.histogram("same", tf.ones([3]), step=1)))
    assert np.flatnonzero(parts(several)[:, 2]).tolist() == [0, 10, 15, 29]
    assert parts(several)[0, 0] == 1 and parts(several)[-1, 1] == 4 and parts(several)[10, 0] == 2
    assert parts(single).tolist() == [[1.0, 1.0, 0.0]] * 29 + [[1.0, 1.0, 3.0]]


@pytest.mark.parametrize(("pixels", "shown"), [
    (np.linspace(-0.1, 1.1, 12).reshape(1, 2, 2, 3).astype(np.float32),
     [0, 2, 30, 58, 85, 113, 141, 169, 197, 225, 253, 255]),
    (np.arange(4, dtype=np.uint8).reshape(1, 2, 2, 1), [0, 1, 2, 3]),
    (np.arange(4, dtype=np.int32).reshape(1, 2, 2, 1) * 2**26, [0, 8, 16, 24]),
])
def test_a_picture_has_the_pixels_that_tensorflow_writes(
        tf: Any, tmp_path: Path, pixels: Any, shown: list[int]) -> None:
    (event,) = _written(tf, tmp_path, lambda: tf.summary.image("i", np.repeat(pixels, 5, 0), step=1, max_outputs=2))
    before, *pictures = event.split(b"\x89PNG")
    assert before.endswith(b"B\x012B\x012B" + before[-1:]) and len(pictures) == 2
    for picture in pictures:
        assert np.asarray(tf.io.decode_png(b"\x89PNG" + picture)).ravel().tolist() == shown


def test_names_have_scopes_and_layers_before_them(tf: Any, tmp_path: Path) -> None:
    class Layer(tf.keras.layers.Layer):  # type: ignore[misc, name-defined]
        def call(self, x: Any) -> Any:
            tf.summary.histogram("x", x)
            with tf.name_scope("deep"):
                tf.summary.scalar("sum", tf.reduce_sum(x))
            return x

    class Model(tf.keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(name="model")
            self.inner = Layer(name="layer")

        def call(self, x: Any) -> Any:
            tf.summary.scalar("m", 1.0)
            return self.inner(x)

    @tf.function
    def function() -> None:
        with tf.name_scope("inside"):
            tf.summary.scalar("f", 1.0)

    def program() -> None:
        tf.summary.experimental.set_step(1)
        with tf.name_scope("outer") as outer:
            with tf.name_scope("inner"):
                tf.summary.scalar("scoped", 1.0)
                with tf.name_scope(outer):
                    tf.summary.scalar("a b:c", 1.0)
            function()
            with tf.summary.experimental.summary_scope("of_mine") as (tag, scope):
                tf.summary.write(tag, 1.0)
                assert scope == "outer/of_mine/"
        with tf.name_scope("top"):
            model(tf.ones([1, 2]))
        tf.summary.experimental.set_step(None)
    model = Model()
    model(tf.ones([1, 2]))
    assert [tag for _, tag in _tags(_written(tf, tmp_path, program))] == [
        "outer/inner/scoped", "outer/a b:c", "inside/f", "outer/of_mine", "top/model/m", "top/model/layer/x",
        "top/model/layer/deep/sum"]


def test_a_step_and_a_condition_hold_in_their_block(tf: Any, tmp_path: Path) -> None:
    def program() -> None:
        tf.summary.experimental.set_step(11)
        tf.summary.scalar("a", 1.0)
        with tf.summary.create_noop_writer().as_default():
            tf.summary.scalar("b", 1.0)
        with other.as_default(step=12):
            tf.summary.scalar("of the other", 1.0)
            assert tf.summary.experimental.get_step() == 12
        with tf.summary.record_if(False):
            assert not tf.summary.scalar("left out", 1.0).numpy()
            assert not tf.summary.should_record_summaries().numpy()
        for number in range(4):
            with tf.summary.record_if(lambda: tf.equal(number % 2, 0)):  # noqa: B023 - asked in the loop
                tf.summary.scalar("even", 1.0, step=number)
        assert tf.summary.should_record_summaries().numpy() and tf.summary.experimental.get_step() == 11
        tf.summary.experimental.set_step(None)
    other = tf.summary.create_file_writer(str(tmp_path / "other"), filename_suffix=".end")
    assert _tags(_written(tf, tmp_path, program)) == [(11, "a"), (11, "b"), (0, "even"), (2, "even")]
    assert _tags(_events(tmp_path / "other")) == [(12, "of the other")]
    assert next((tmp_path / "other").iterdir()).name.endswith(".end")
    assert tf.summary.experimental.get_step() is None and not tf.summary.should_record_summaries().numpy()


@pytest.mark.parametrize("is_traced", [False, True])
def test_the_first_replica_writes(tf: Any, tmp_path: Path, is_traced: bool) -> None:
    def step() -> Any:
        replica = tf.distribute.get_replica_context()
        written = tf.summary.scalar("in_replica", float(replica.replica_id_in_sync_group + 1), step=9)
        replica.all_reduce("SUM", tf.constant(1.0))
        with tf.summary.record_if(True):
            tf.summary.scalar("once_more", float(replica.replica_id_in_sync_group + 1), step=9)
        return written

    def program() -> None:
        run = tf.function(strategy.run) if is_traced else strategy.run
        assert [bool(written) for written in run(step).values] == [True, False]
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    events = _written(tf, tmp_path, program)
    assert _tags(events) == [(9, "in_replica"), (9, "once_more")]
    assert all(struct.pack("<f", 1.0) in event for event in events)


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda tf: tf.summary.scalar("x", 1.0), ValueError, r"\[RD34\] tf.summary.scalar: there is no step.*set_step"),
    (lambda tf: tf.summary.scalar("x", [1.0, 2.0], step=1), ValueError, r"\[RD34\].*shape \(2,\).*reduce_mean"),
    (lambda tf: tf.summary.scalar("x", "a", step=1), TypeError, r"\[RD25\].*text"),
    (lambda tf: tf.summary.scalar("x", 1.0, step=1.5), TypeError, r"\[RD25\] tf.summary.scalar: the step is 1.5"),
    (lambda tf: tf.summary.scalar("x", 1.0, step="a"), TypeError, r"\[RD25\].*the step is 'a'"),
    (lambda tf: tf.summary.scalar(5, 1.0, step=1), TypeError, r"\[RD25\].*the name is 5"),
    (lambda tf: tf.summary.image("x", [1.0], step=1), ValueError, r"\[RD34\].*shape \(1,\)"),
    (lambda tf: tf.summary.image("x", np.zeros((1, 2, 2, 1)), 1, -1), ValueError, r"\[RD34\].*max_outputs is -1"),
    (lambda tf: tf.summary.text("x", 1.0, step=1), TypeError, r"\[RD25\] tf.summary.text: got a float"),
    (lambda tf: tf.summary.create_file_writer(None), ValueError, r"\[RD25\].*logdir is None"),
    (lambda tf: tf.summary.create_file_writer(__file__ + "/x"), RuntimeError, r"\[RD30\].*cannot be made"),
    (lambda tf: tf.summary.trace_export("g", step=1), ValueError, r"\[RD09\].*trace_on"),
    (lambda tf: tf.summary.audio("x", [[1.0]], 44100), AttributeError, r"\[RD20\].*sounds"),
])
def test_what_tensorflow_refuses_is_refused_and_nothing_is_written(
        tf: Any, tmp_path: Path, call: Callable[[Any], Any], kind: type[Exception], text: str) -> None:
    def program() -> None:
        with pytest.raises(kind, match=text):
            call(tf)
    assert _written(tf, tmp_path, program) == []


def test_a_closed_writer_is_refused(tf: Any, tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        writer.close()
        with pytest.raises(tf.errors.NotFoundError, match=r"\[RD09\] SummaryWriter.write: .* is closed"):
            tf.summary.scalar("x", 1.0, step=1)
    for call in writer.as_default, writer.set_as_default, writer.init:
        with pytest.raises(RuntimeError, match=r"\[RD09\].* is closed"):
            call()
    writer.flush()
    writer.close()


def test_others_read_what_was_flushed(tf: Any, tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path), max_queue=2)
    writer.set_as_default(step=1)
    counts = [len(_events(tmp_path))]
    for _ in range(4):
        tf.summary.scalar("x", 1.0)
        counts.append(len(_events(tmp_path)))
    tf.summary.flush()
    assert [*counts, len(_events(tmp_path))] == [0, 0, 0, 3, 3, 4]
    tf.summary.create_noop_writer().set_as_default()  # which does nothing, as on TensorFlow
    writer.close()


def test_a_trace_is_left_out(tf: Any, tmp_path: Path) -> None:
    def program() -> None:
        tf.summary.trace_on(graph=True, profiler=True)
        tf.summary.trace_export("graph", step=0)
        tf.summary.trace_on()
        tf.summary.trace_off()
    assert _written(tf, tmp_path, program) == []


def test_fit_writes_for_tensorboard_what_it_writes_on_tensorflow(tf: Any, tmp_path: Path) -> None:
    x = np.linspace(0, 1, 96).reshape(16, 6).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = tf.keras.Sequential([
            tf.keras.Input((6,)), tf.keras.layers.Dense(4, kernel_initializer="ones", name="a"),
            tf.keras.layers.Dense(1, kernel_initializer="ones", name="b")], name="net")
        model.compile(tf.keras.optimizers.SGD(0.001), "mse", metrics=["mae"])
    board = tf.keras.callbacks.TensorBoard(
        str(tmp_path), histogram_freq=1, write_images=True, update_freq=2, profile_batch="2,3")
    model.fit(x, y, batch_size=4, epochs=1, validation_data=(x, y), callbacks=[board], verbose=0, shuffle=False)
    train = _events(tmp_path / "train")
    assert _tags(train) == [
        (0, "keras"), (2, "batch_loss"), (2, "batch_mae"), (4, "batch_loss"), (4, "batch_mae"), (0, "epoch_loss"),
        (0, "epoch_mae"), (0, "epoch_learning_rate"),
        *((0, f"net/{weight}/{kind}") for weight in ("a/kernel", "a/bias", "b/kernel")
          for kind in ("histogram", "image")), (0, "net/b/bias/histogram")]
    assert b"graph_keras_model\x12\x011" in train[0] and b'"class_name": "Sequential"' in train[0]
    values = [struct.unpack("<f", event[event.index(b"\x12\x00\x22\x04") + 4:][:4])[0] for event in train[1:8]]
    np.testing.assert_allclose(
        values, [26.15798, 4.41958, 83.12154, 8.07261, 83.12154, 8.07261, 0.001], rtol=1e-5)
    assert _tags(_events(tmp_path / "validation")) == [
        (4, "evaluation_loss_vs_iterations"), (4, "evaluation_mae_vs_iterations"), (0, "epoch_loss"), (0, "epoch_mae")]
    with pytest.raises(NotImplementedError, match=r"\[RD20\].*embeddings_freq is 1.*ModelCheckpoint"):
        tf.keras.callbacks.TensorBoard(str(tmp_path), embeddings_freq=1)


@pytest.mark.parametrize(("numbers", "dtype", "saturated"), [
    ([[-0.5, 0.5, 2.0]], "uint8", [0, 127, 255]), ([[-5, 2**30]], "uint8", [0, 128])])
def test_an_image_is_cut_to_what_a_dtype_holds(tf: Any, numbers: Any, dtype: str, saturated: list[int]) -> None:
    assert tf.image.convert_image_dtype([numbers], dtype, saturate=True).numpy().ravel().tolist() == saturated


@pytest.mark.parametrize(("odd", "counts"), [(np.nan, [0.0, 0.0]), (np.inf, [2.0, 0.0])])
def test_what_is_not_finite_is_in_no_part_of_a_histogram(tf: Any, tmp_path: Path, odd: float,
                                                         counts: list[float]) -> None:
    """Weights of a training that has gone wrong are what somebody looks at."""
    (event,) = _written(tf, tmp_path, lambda: tf.summary.histogram("h", [1.0, odd, 3.0], step=1, buckets=2))
    assert np.frombuffer(event[event.index(b"\x22\x30") + 2:][:48]).reshape(2, 3)[:, 2].tolist() == counts
