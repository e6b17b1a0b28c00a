"""Files of checkpoints: arrays and states by name in the safetensors format.  This module knows nothing of variables.

**Atomic.**  A process may be killed at any moment, and that moment must not cost the last good checkpoint.  So a file
is written under a temporary name in the same folder, flushed to the disk (fsync) and then renamed, which POSIX does
atomically; the folder is flushed too, because otherwise a power failure can lose the new name while the data are on the
disk.  A reader sees the old file or the complete new one, and a temporary file that was left behind is never read.

**Checked.**  The format itself does not notice a flipped bit, so the file has a CRC-32 of every array (with its dtype
and shape) and one of the note that holds them.  A damaged file is an error that says what is damaged; never a model
that is slightly wrong.

**The note** is JSON in the metadata of the file: `aliases`, further names of the same object, which is stored once;
`states`, what `state_dict` returned; `raw`, dtype and shape of the arrays whose dtype safetensors does not have
(complex), stored as bytes.  All of it is optional for other readers: the arrays themselves can be loaded with
the safetensors library alone.

**The index** of a folder, a file named `checkpoint`, says which checkpoints a manager keeps and which is the latest.
It is written after a checkpoint was saved and before an old one is deleted, so that it never names a missing file.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from refdist import errors

SUFFIX = ".safetensors"
INDEX = "checkpoint"
# The dtypes of the format; arrays of others are written as bytes, and listed in the note.
_PLAIN = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64"}


@dataclass(frozen=True)
class State:
    """What an object's `state_dict` returned."""

    content: object


def path_of(path: object, attempted: str) -> str:
    """A path as text.

    Raises:
        RD25: it is not a path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise errors.error("RD25", attempted, f"the path is {path!r}", "Pass a str or a pathlib.Path; "
                           "`latest_checkpoint` returns None if the folder has no checkpoint yet.")
    return str(os.fspath(path))


def file_of(path: str) -> str:
    """The file name of a checkpoint, whose path may have the suffix or not."""
    return path if path.endswith(SUFFIX) else path + SUFFIX


def packed(arrays: Mapping[str, npt.NDArray[np.generic]], aliases: Mapping[str, str],
           states: Mapping[str, object]) -> bytes:
    """The content of a file, as bytes.

    Args:
        arrays: by name.
        aliases: further names of arrays and states: name to name.
        states: values that JSON can hold, by name.
    """
    raw = {key: [str(array.dtype), list(array.shape)] for key, array in arrays.items()
           if array.dtype.name not in _PLAIN}
    # The library writes the bytes as they are, and they must be little-endian.
    plain = {key: np.frombuffer(array.tobytes(), np.uint8) if key in raw
             else np.asarray(array, array.dtype.newbyteorder("<"), order="C") for key, array in arrays.items()}
    note = json.dumps({"format": 2, "aliases": aliases, "raw": raw, "states": states,
                       "crc32": {key: _checksum(array) for key, array in plain.items()}})
    content: bytes = _library().save(plain, {"refdist": note, "crc32": str(zlib.crc32(note.encode()))})
    return content


def read(path: str) -> dict[str, Any]:
    """The arrays of a file, and its states as `State`, by name.

    Raises:
        RD27: the package safetensors is not installed.  RD31: the file cannot be opened, or is damaged.
    """
    library = _library()
    try:
        with open(path, "rb") as file:
            data = file.read()
        values = library.load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8:8 + length])["__metadata__"]
        if int(metadata["crc32"]) != zlib.crc32(metadata["refdist"].encode()):
            raise ValueError("the checksum of its table of contents is wrong")
        note = json.loads(metadata["refdist"])
        if set(note["crc32"]) != set(values):
            raise ValueError(f"it lacks {', '.join(sorted(set(note['crc32']) - set(values)))}")
        for key, checksum in note["crc32"].items():
            if _checksum(values[key]) != checksum:
                raise ValueError(f"the checksum of {key} is wrong")
        for key, (dtype, shape) in note["raw"].items():
            values[key] = values[key].view(dtype).reshape(shape)
        values.update({key: State(content) for key, content in note["states"].items()})
        values.update({key: values[name] for key, name in note["aliases"].items()})
    except OSError as error:
        raise errors.error("RD31", "reading a checkpoint", f"{path} cannot be opened: {error.strerror}",
                           "Pass the path that `save` returned.", kind=errors.NotFoundError) from error
    except Exception as error:
        raise errors.error("RD31", "reading a checkpoint", f"{path} is damaged: {error}",
                           "Restore an older checkpoint.") from error
    return dict(values)


def make_folder(folder: str) -> None:
    """Creates a folder and its parents, unless they exist.

    Raises:
        RD31: it cannot be created.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise errors.error("RD31", "writing a checkpoint", f"the folder {folder} cannot be created: {error.strerror}",
                           "Pass a folder that can be written to.") from error


def write(path: str, data: bytes) -> None:
    """Writes a file atomically (see the head of this module), and creates its folder if necessary.

    Raises:
        RD31: it cannot be written.
    """
    folder = os.path.dirname(path) or "."
    make_folder(folder)
    temporary = os.path.join(folder, f".{os.path.basename(path)}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        # So that the new name survives a power failure, as the data do.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise errors.error("RD31", "writing a checkpoint", f"{path} cannot be written: {error.strerror}",
                           "Pass a folder that can be written to, on a disk with space left.") from error


def index(folder: str, filename: str | None = None) -> dict[str, Any]:
    """The index of a folder: "latest", a name, and "all", a list of names; {} if it is missing or malformed."""
    try:
        found = json.loads(Path(folder, filename or INDEX).read_text())
        fits = isinstance(found["latest"], str) and all(isinstance(name, str) for name in found["all"])
        times = [found.get("preserved_at", 0.0), *found.get("times", {}).values()]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
    return found if fits and all(isinstance(one, (int, float)) for one in times) else {}


def write_index(folder: str, content: Mapping[str, object]) -> None:
    """Replaces the index of a folder."""
    write(os.path.join(folder or ".", INDEX), json.dumps(content).encode())


def _checksum(array: npt.NDArray[np.generic]) -> int:
    return zlib.crc32(array.tobytes(), zlib.crc32(f"{array.dtype.str}{array.shape}".encode()))


def _library() -> ModuleType:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise errors.error("RD27", "checkpoints", "the package safetensors is not installed",
                           "Run `pip install safetensors`.") from error
    library: ModuleType = safetensors.numpy
    return library
