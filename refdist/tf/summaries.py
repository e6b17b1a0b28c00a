"""`tf.summary`: numbers, texts, pictures and histograms in files that TensorBoard shows.

A file has the frames of TFRecord; each record is an Event of Protocol Buffers with a time, a step and a Summary of one
value, which is a tensor with a name and with what shows it.  In replicas only the first one writes, as on TensorFlow.

Source: event.proto and summary.proto of TensorFlow; the plugins of TensorBoard.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any, NamedTuple, NoReturn

import numpy as np

from refdist import errors
from refdist.array.convert import short
from refdist.core.context_stack import frame
from refdist.data import TFRecordWriter
from refdist.tf import pictures, scopes
from refdist.tf.records import field, serialize_tensor, varint
from refdist.tf.tensors import keras, tensor
from refdist.tf.texts import TextTensor, array_of, is_text

_VERSION = field(3, b"brain.Event:2") + field(10, field(1, b"tensorflow.core.util.events_writer"))
_BUCKETS = 30
_numbers = count()


class _State(NamedTuple):
    # What holds for the code that runs; replicas begin with what holds for the code that runs them.
    writer: SummaryWriter | None = None
    step: Any = None
    condition: Any = True


_BEGINNING = _State()
_state: ContextVar[_State] = ContextVar("where summaries are written", default=_BEGINNING)
_is_traced: ContextVar[bool] = ContextVar("whether trace_on was called", default=False)


class _Default:
    # The block of `as_default`.
    def __init__(self, writer: SummaryWriter, step: Any) -> None:
        self._writer, self._step = writer, step

    def __enter__(self) -> SummaryWriter:
        self._before = _state.get()
        step = self._before.step if self._step is None else self._step
        _state.set(self._before._replace(writer=self._writer, step=step))
        return self._writer

    def __exit__(self, *error: object) -> None:
        self._writer.flush()
        step = _state.get().step if self._step is None else self._before.step
        _state.set(_state.get()._replace(writer=self._before.writer, step=step))


class SummaryWriter:
    """What writes summaries; `create_file_writer` makes one.

    Source: tf.summary.SummaryWriter.
    """

    def as_default(self, step: Any = None) -> Any:
        """A block whose summaries go to this writer, which is flushed at its end.

        Args:
            step: that of summaries which have none of their own; None for what it was before.

        Raises:
            RD09: the writer is closed.
        """
        return _Default(self, step)

    def set_as_default(self, step: Any = None) -> None:
        """From now on summaries go to this writer.

        Args:
            step: that of summaries which have none of their own; None for what it was before.

        Raises:
            RD09: the writer is closed.
        """
        self.as_default(step).__enter__()

    def init(self) -> None:
        """Nothing: a writer is ready when it is made."""

    def flush(self) -> None:
        """Hands what was written to the operating system."""

    def close(self) -> None:
        """Ends the file."""

    def _write(self, step: int, summary: bytes) -> None:
        pass


class _NoWriter(SummaryWriter):
    @contextmanager
    def as_default(self, step: Any = None) -> Iterator[None]:
        yield

    def set_as_default(self, step: Any = None) -> None:
        pass


class _FileWriter(SummaryWriter):
    def __init__(self, path: str, longest: int, millis: int) -> None:
        self._path, self._longest, self._seconds = path, longest, millis / 1000
        self._file: TFRecordWriter | None = TFRecordWriter(path)
        self._file.write(_event(0, _VERSION))
        self.flush()

    def as_default(self, step: Any = None) -> Any:
        if self._file is None:
            self._refuse("as_default", errors.InvalidContextError)
        return super().as_default(step)

    def init(self) -> None:
        if self._file is None:
            self._refuse("init", errors.InvalidContextError)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()
            self._waiting, self._flushed = 0, time.monotonic()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, step: int, summary: bytes) -> None:
        if self._file is None:
            self._refuse("write", errors.NotFoundError)
        self._file.write(_event(step, field(5, summary)))
        self._waiting += 1
        if self._waiting > self._longest or time.monotonic() - self._flushed > self._seconds:
            self.flush()

    def _refuse(self, method: str, kind: type[errors.RefdistError]) -> NoReturn:
        raise errors.error("RD09", f"SummaryWriter.{method}", f"the writer of {errors.shown(self._path)} is closed",
                           "Close it after the last summary.", kind=kind)


def _event(step: int, content: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", time.time()) + (b"\x10" + varint(step) if step else b"") + content


def create_file_writer(logdir: Any, max_queue: int | None = None, flush_millis: int | None = None,
                       filename_suffix: str | None = None, name: str | None = None,
                       experimental_trackable: bool = False, experimental_mesh: object = None) -> SummaryWriter:
    """A writer of a new file in a folder, which is made.

    Args:
        logdir: the folder.
        max_queue: how many summaries at most wait for being handed to the operating system; 10.
        flush_millis: how long they do at most; two minutes.
        filename_suffix: how the name of the file ends, ".v2".
        name, experimental_trackable, experimental_mesh: without effect.

    >>> import os, tempfile, refdist.tf as tf
    >>> folder = tempfile.mkdtemp()
    >>> with tf.summary.create_file_writer(folder).as_default():                                    # doctest: +SKIP
    ...     written = tf.summary.scalar("loss", 0.25, step=1)
    >>> len(os.listdir(folder))                                                                     # doctest: +SKIP
    1

    Raises:
        RD25: the folder is no path.  RD27: the package `google-crc32c` is not installed.  RD30: it cannot be made, or
            the file cannot.

    Source: tf.summary.create_file_writer.
    """
    attempted = "tf.summary.create_file_writer"
    if is_text(logdir):
        logdir = bytes(array_of(logdir)[()])
    if not isinstance(logdir, (str, bytes, os.PathLike)):
        raise errors.error("RD25", attempted, f"logdir is {short(logdir)}", "Pass the path of a folder.",
                           kind=errors.MisfitError)
    folder = os.fsdecode(logdir)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise errors.error("RD30", attempted, f"the folder {errors.shown(folder)} cannot be made: {error.strerror}",
                           "Pass the path of a folder, or of none yet.", kind=errors.FailedPreconditionError) from error
    file = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
    return _FileWriter(os.path.join(folder, file + (".v2" if filename_suffix is None else filename_suffix)),
                       10 if max_queue is None else int(max_queue),
                       120_000 if flush_millis is None else int(flush_millis))


def create_noop_writer() -> SummaryWriter:
    """A writer that writes nothing.

    Source: tf.summary.create_noop_writer.
    """
    return _NoWriter()


def flush(writer: SummaryWriter | None = None, name: str | None = None) -> None:
    """Hands what was written to the operating system.

    Args:
        writer: None for the one that summaries go to.
        name: without effect.

    Source: tf.summary.flush.
    """
    writer = writer or _state.get().writer
    if writer is not None:
        writer.flush()


@contextmanager
def record_if(condition: Any) -> Iterator[None]:
    """A block whose summaries are written on a condition only.

    Args:
        condition: a bool, or a function that is asked at each summary.

    Source: tf.summary.record_if.
    """
    before = _state.get().condition
    _state.set(_state.get()._replace(condition=condition))
    try:
        yield
    finally:
        _state.set(_state.get()._replace(condition=before))


def should_record_summaries() -> Any:
    """Whether a summary would be written here: there is a writer, `record_if` allows it, and no replica comes before.

    Source: tf.summary.should_record_summaries.
    """
    return tensor(_is_recording())


def _is_recording() -> bool:
    state, replica = _state.get(), frame().replica
    if state.writer is None or (replica is not None and replica.replica_id_in_sync_group):
        return False
    return bool(state.condition() if callable(state.condition) else state.condition)


def get_step() -> Any:
    """The step of summaries that have none of their own, or None.

    Source: tf.summary.experimental.get_step.
    """
    return _state.get().step


def set_step(step: Any) -> None:
    """Sets the step of summaries that have none of their own.

    Args:
        step: an int, a tensor, or a variable, which is read at each summary; None for no step.

    Source: tf.summary.experimental.set_step.
    """
    _state.set(_state.get()._replace(step=step))


@contextmanager
def summary_scope(name: str, default_name: str = "summary", values: object = None) -> Iterator[tuple[str, str]]:
    """A block of that name, for what writes a summary with `write`: its tag, and the path of the scope.

    Args:
        name: the summary's.
        default_name: used where the name is empty.
        values: without effect.

    Source: tf.summary.experimental.summary_scope.
    """
    tag = scopes.joined(scopes.current(), name or default_name)
    with scopes.name_scope(name or default_name) as path:
        yield tag, path


def write(tag: str, tensor: Any, step: Any = None, metadata: Any = None, name: str | None = None) -> Any:
    """Writes a tensor.

    Args:
        tag: its whole name.
        tensor: what is written, or a function that returns it and is called only where it is.
        step: an int; None for that of `set_step`.
        metadata: bytes of a SummaryMetadata, or what has `SerializeToString`.
        name: without effect.

    Returns:
        A bool: whether it was written.

    Raises:
        RD25: the step is no integer, or the tag no text.  RD34: there is no step.

    Source: tf.summary.write.
    """
    content = metadata.SerializeToString() if hasattr(metadata, "SerializeToString") else metadata or b""
    return _write("tf.summary.write", tag, tensor if callable(tensor) else lambda: tensor, step, content)


def _write(attempted: str, tag: str, value: Callable[[], Any], step: Any, metadata: bytes) -> Any:
    if not isinstance(tag, str):
        raise errors.error("RD25", attempted, f"the name is {short(tag)}", "Pass a str.",
                           kind=errors.MisfitError)
    is_written = _is_recording()
    if is_written:
        state = _state.get()
        number = _step(attempted, state.step if step is None else step)
        read = value()
        content = serialize_tensor(read if is_text(read) else _array(read)).numpy()
        summary = field(1, tag.encode()) + field(8, content) + (field(9, metadata) if metadata else b"")
        assert state.writer is not None
        state.writer._write(number, field(1, summary))
    return tensor(is_written)


def _step(attempted: str, step: Any) -> int:
    if step is None:
        raise errors.error("RD34", attempted, "there is no step", "Pass `step=`, or set one for all: "
                           "`tf.summary.experimental.set_step(step)`.", kind=errors.InvalidArgumentError)
    number = step if is_text(step) else _array(step)
    if is_text(step) or number.dtype.kind not in "iu" or number.ndim:
        raise errors.error("RD25", attempted, f"the step is {short(step)}", "Pass an int.",
                           kind=errors.MisfitError)
    return int(number)


def _array(value: Any) -> Any:
    return keras().ops.convert_to_numpy(tensor(value))


def _shown_by(plugin: str, description: str | None) -> bytes:
    return field(1, field(1, plugin.encode())) + (field(3, description.encode()) if description else b"")


def _named(name: str) -> Any:
    return scopes.joined(scopes.current(), name) if isinstance(name, str) else name


def scalar(name: str, data: Any, step: Any = None, description: str | None = None) -> Any:
    """Writes a number.

    Args:
        name: what it is called; `tf.name_scope` around it and layers come before it.
        data: a number, or a tensor without dimensions.
        step: an int; None for that of `set_step`.
        description: a text that TensorBoard shows beside it.

    Returns:
        A bool: whether it was written, which it is where there is a writer, in replicas by the first of them.

    Raises:
        RD25: text, or the step is no integer.  RD34: the tensor has dimensions, or there is no step.

    Source: tf.summary.scalar.
    """
    number = tensor(data)
    if number.ndim:
        raise errors.error("RD34", "tf.summary.scalar", f"the data has shape {tuple(number.shape)}",
                           "Pass one number: `tf.reduce_mean(x)`.", kind=errors.InvalidArgumentError)
    return _write("tf.summary.scalar", _named(name), lambda: _array(number).astype(np.float32), step,
                  _shown_by("scalars", description))


def histogram(name: str, data: Any, step: Any = None, buckets: int | None = None,
              description: str | None = None) -> Any:
    """Writes how many elements of a tensor are about how large.

    Args:
        name: what it is called; `tf.name_scope` around it and layers come before it.
        data: a tensor of numbers.
        step: an int; None for that of `set_step`.
        buckets: how many parts there are between the smallest and the largest element; 30.
        description: a text that TensorBoard shows beside it.

    Returns:
        A bool: whether it was written.

    Raises:
        RD25: text, or the step is no integer.  RD34: there is no step.

    Source: tf.summary.histogram.
    """
    values = tensor(data)
    return _write("tf.summary.histogram", _named(name),
                  lambda: _counted(_array(values), _BUCKETS if buckets is None else max(0, int(buckets))), step,
                  _shown_by("histograms", description))


def _counted(values: Any, buckets: int) -> Any:
    # The left and the right end of each part, and how many elements are in it.
    values = values.reshape(-1).astype(np.float64)
    if not values.size or not buckets:
        return np.zeros((buckets, 3))
    smallest, largest = values.min(), values.max()
    counts = np.zeros(buckets)
    if smallest == largest:
        edges, counts[-1] = np.full(buckets + 1, largest), values.size
    else:
        width = (largest - smallest) / buckets
        with np.errstate(invalid="ignore"):  # of NaN and infinite elements, which are in no part
            places = np.minimum(np.floor((values - smallest) / width).astype(np.int64), buckets - 1)
            edges = np.append(smallest + width * np.arange(buckets), largest)
        counts = np.bincount(places[places >= 0], minlength=buckets).astype(np.float64)
    return np.stack([edges[:-1], edges[1:], counts], axis=1)


def image(name: str, data: Any, step: Any = None, max_outputs: int = 3, description: str | None = None) -> Any:
    """Writes pictures.

    Args:
        name: what they are called; `tf.name_scope` around it and layers come before it.
        data: [count, height, width, channels]: floats from 0 to 1, or integers, of which the largest is white.
        step: an int; None for that of `set_step`.
        max_outputs: how many of them at most.
        description: a text that TensorBoard shows beside them.

    Returns:
        A bool: whether they were written.

    Raises:
        RD25: text, or the step is no integer.  RD34: another shape, or there is no step.

    Source: tf.summary.image.
    """
    def encoded() -> Any:
        from refdist.tf import computed  # which imports Keras

        pixels = tensor(data)
        if pixels.ndim != 4 or int(max_outputs) < 0:
            raise errors.error("RD34", "tf.summary.image", f"the data has shape {tuple(pixels.shape)}, and max_outputs "
                               f"is {int(max_outputs)}", "Pass [count, height, width, channels], and 0 or more.",
                               kind=errors.InvalidArgumentError)
        _, height, width, _ = pixels.shape
        parts = _array(computed.scaled(pixels[:int(max_outputs)], "uint8", True))
        return TextTensor([str(width).encode(), str(height).encode(),
                           *(pictures.encode_png(part).numpy() for part in parts)])
    return _write("tf.summary.image", _named(name), encoded, step, _shown_by("images", description))


def text(name: str, data: Any, step: Any = None, description: str | None = None) -> Any:
    """Writes a text, which TensorBoard shows as Markdown.

    Args:
        name: what it is called; `tf.name_scope` around it and layers come before it.
        data: a text; one with dimensions is shown as a table.
        step: an int; None for that of `set_step`.
        description: a text that TensorBoard shows beside it.

    Returns:
        A bool: whether it was written.

    Raises:
        RD25: no text, or the step is no integer.  RD34: there is no step.

    Source: tf.summary.text.
    """
    if not is_text(data):
        raise errors.error("RD25", "tf.summary.text", f"got {errors.type_of(data)}",
                           "Pass text: of a tensor `tf.strings.as_string(x)`.", kind=errors.MisfitError)
    return _write("tf.summary.text", _named(name), lambda: TextTensor(data), step, _shown_by("text", description))


def trace_on(graph: bool = True, profiler: bool = False, profiler_outdir: str | None = None) -> None:
    """Nothing is traced: functions are called, and there is no graph to show.

    Args:
        graph, profiler, profiler_outdir: without effect.

    Source: tf.summary.trace_on.
    """
    _is_traced.set(True)


def trace_off() -> None:
    """Ends what `trace_on` began.

    Source: tf.summary.trace_off.
    """
    _is_traced.set(False)


def trace_export(name: str, step: Any = None, profiler_outdir: str | None = None) -> None:
    """Ends what `trace_on` began; there is nothing to write.

    Args:
        name, step, profiler_outdir: without effect.

    Raises:
        RD09: `trace_on` was not called.

    Source: tf.summary.trace_export.
    """
    if not _is_traced.get():
        raise errors.error("RD09", "tf.summary.trace_export", "`trace_on` was not called", "Call it first.",
                           kind=errors.InvalidArgumentError)
    trace_off()
