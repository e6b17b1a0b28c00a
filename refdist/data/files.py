"""Files as sources: their names, lines of text, and records in TensorFlow's format, read and written.

A record is its length (8 bytes, little endian), the masked CRC-32C of these, the data, and the masked CRC-32C
of the data; source: tensorflow.org, "TFRecord and tf.train.Example", section "TFRecords format details".

A length is not believed because its checksum is right: before memory is taken for a record, its length is compared with
what the file can still have, of which the size of a compressed file says at most 1,032 times as much.
"""

from __future__ import annotations

import glob
import gzip
import itertools
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import IO

import numpy as np

from refdist import disk, errors, nest
from refdist.array.convert import HoldsArray
from refdist.data.facts import Reading
from refdist.data.iterators import interleave

COMPRESSIONS = {None: open, "": open, "GZIP": gzip.open}
_LENGTH = struct.Struct("<Q")
_CHECK = struct.Struct("<I")
_HEADER = _LENGTH.size + _CHECK.size
# The most bytes that one compressed byte can stand for: two bits copy 258 bytes (RFC 1951, section 3.2.5).
_DEFLATED = 258 * 4


def match(patterns: object) -> list[str]:
    """The files that match one pattern or several, sorted.

    Raises:
        RD25: a pattern is not a str, bytes or path.  RD30: no file matches.
    """
    wanted = names(patterns, "Dataset.list_files")
    matching = sorted({name for pattern in wanted for name in glob.glob(pattern)})
    if not matching:
        raise errors.error("RD30", "Dataset.list_files", f"no file matches {', '.join(wanted) or 'no pattern'}",
                           "Correct the pattern; its syntax is that of `glob.glob`.", kind=errors.InvalidArgumentError)
    return matching


def names(filenames: object, attempted: str) -> list[str]:
    """A list of file names from a name, a list, an array or a dataset of names.

    Raises:
        RD25: something is not a name.
    """
    if isinstance(filenames, HoldsArray):
        filenames = np.ravel(filenames._read()).tolist()
    if isinstance(filenames, (str, bytes, os.PathLike)):
        filenames = [filenames]
    file_names = []
    try:
        items = nest.flatten(filenames) if nest.is_nested(filenames) else list(filenames)  # type: ignore[call-overload]
    except TypeError:
        items = [filenames]
    for item in items:
        if not isinstance(item, (str, bytes, os.PathLike)):
            raise errors.error("RD25", attempted, f"got {item!r}", "Pass the name of a file, or a list of names.")
        file_names.append(os.fsdecode(item))
    return file_names


def check_compression(compression: str | None, attempted: str) -> None:
    """Raises unless files compressed this way can be read and written.

    Raises:
        RD34: they cannot.
    """
    if compression not in COMPRESSIONS:
        raise errors.error("RD34", attempted, f"compression is {compression!r}", "Pass None or \"GZIP\".")


def read_each(filenames: list[str], reading: Reading, read: Callable[[str, str | None], Iterable[bytes]],
              compression: str | None, at_once: int) -> Iterator[bytes]:
    """Yields what `read` yields for each file of this reading; `at_once` files take turns."""
    own_files = filenames[reading.shard::reading.num_shards]
    streams = (read(name, compression) for name in own_files)
    return itertools.chain.from_iterable(streams) if at_once == 1 else interleave(streams, at_once, 1)


def lines(name: str, compression: str | None) -> Iterator[bytes]:
    """The lines of a file, without "\\n" and "\\r\\n".

    Raises:
        RD30: no such file, or one that is not compressed as it should be.
    """
    with _open(name, "TextLineDataset") as raw:
        file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if compression else raw
        try:
            for line in file:
                yield line.rstrip(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line
        except (EOFError, OSError, zlib.error) as error:
            raise errors.error("RD30", "TextLineDataset", f"{errors.shown(name)} is damaged: {error}") from error


def records(name: str, compression: str | None) -> Iterator[bytes]:
    """The records of a file.

    Raises:
        RD27: `google-crc32c` is not installed.
        RD30: no such file, or a record that is truncated or damaged, with its number and its first byte.
    """
    checksum = _checksum("TFRecordDataset")
    number = position = 0

    def damaged(fault: str) -> errors.RefdistError:
        place = f"at byte {position:,}{' of what was compressed' if compression else ''}"
        return errors.error("RD30", "TFRecordDataset", f"record {number} of {errors.shown(name)} is damaged: {place}, "
                            f"{fault}")

    with _open(name, "TFRecordDataset") as raw:
        file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if compression else raw
        size = os.fstat(raw.fileno()).st_size * (_DEFLATED if compression else 1)
        while True:
            try:
                header = file.read(_HEADER)
                if not header:
                    return
                if len(header) < _HEADER:
                    raise damaged(f"its header has {len(header)} of {_HEADER} bytes")
                (length,) = _LENGTH.unpack_from(header)
                if checksum(header[:_LENGTH.size]) != _CHECK.unpack_from(header, _LENGTH.size)[0]:
                    raise damaged("the checksum of its length is wrong")
                left = size - position - _HEADER - _CHECK.size
                if length > left:
                    raise damaged(f"it should have {length:,} bytes, and the file has at most {max(left, 0):,}")
                data = file.read(length)
                footer = file.read(_CHECK.size)
            except (EOFError, OSError, zlib.error) as error:
                raise damaged(str(error)) from error
            except MemoryError as error:
                raise damaged(f"its {length:,} bytes do not fit into memory") from error
            if len(data) + len(footer) < length + _CHECK.size:
                raise damaged(f"it has {len(data):,} of {length:,} bytes")
            if checksum(data) != _CHECK.unpack(footer)[0]:
                raise damaged("the checksum of its data is wrong")
            yield data
            number += 1
            position += _HEADER + length + _CHECK.size


class TFRecordWriter:
    """Writes records that `TFRecordDataset`, here and in TensorFlow, reads.

    Args:
        path: the file, which is replaced.
        options: None, "", or "GZIP".

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "rows")
    >>> with TFRecordWriter(path) as writer:
    ...     writer.write(b"a row")
    >>> list(records(path, None))
    [b'a row']

    Raises:
        RD34: another compression.  RD27: the package `google-crc32c` is not installed.  RD30: the file cannot be
            written.

    Source: tf.io.TFRecordWriter.
    """

    def __init__(self, path: str | os.PathLike[str], options: str | None = None) -> None:
        check_compression(options, "TFRecordWriter")
        self._checksum = _checksum("TFRecordWriter")
        try:
            self._file: IO[bytes] = COMPRESSIONS[options](path, "wb")  # type: ignore[operator]
        except OSError as error:
            raise errors.error("RD30", "TFRecordWriter", f"{os.fsdecode(path)} cannot be written: {error.strerror}",
                               kind=errors.NotFoundError) from error

    def write(self, record: bytes) -> None:
        """Appends a record.

        Args:
            record: bytes of any length.

        Raises:
            RD25: not bytes.
        """
        if not isinstance(record, bytes):
            raise errors.error("RD25", "TFRecordWriter.write", f"got {errors.type_of(record)}", "Pass bytes.")
        length = _LENGTH.pack(len(record))
        self._file.write(length + _CHECK.pack(self._checksum(length)) + record
                         + _CHECK.pack(self._checksum(record)))

    def flush(self) -> None:
        """Hands what was written to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Ends the file."""
        self._file.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def _open(name: str, attempted: str) -> IO[bytes]:
    try:
        return disk.opened(name)
    except OSError as error:
        raise errors.error("RD30", attempted, f"{errors.shown(name)} cannot be opened: {error.strerror}",
                           kind=errors.NotFoundError) from error


def _checksum(attempted: str) -> Callable[[bytes], int]:
    try:
        import google_crc32c
    except ImportError as error:
        raise errors.error("RD27", attempted, "the package google-crc32c is not installed",
                           "Run `pip install google-crc32c`.") from error

    def masked(data: bytes) -> int:
        crc: int = google_crc32c.value(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked
