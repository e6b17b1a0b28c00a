"""Files of checkpoints: safetensors, written so that a kill at any moment leaves the old file or the new one.

Variables are not known here, only arrays by name.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refdist import errors

SUFFIX = ".safetensors"
INDEX = "checkpoint"
# What a file can hold as it is; other numbers are written as bytes, with a note.
_PLAIN = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64"}


@dataclass(frozen=True)
class State:
    """What an object's `state_dict` returned."""

    content: Any


def path_of(path: object, attempted: str) -> str:
    """A path as text.

    Raises:
        RD25: it is not a path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise errors.error("RD25", attempted, f"the path is {path!r}", "Pass text or a pathlib.Path; "
                           "`latest_checkpoint` returns None where there is no checkpoint yet.")
    return str(os.fspath(path))


def file_of(path: str) -> str:
    """The name of the file of a checkpoint, which may be given with or without its ending."""
    return path if path.endswith(SUFFIX) else path + SUFFIX


def packed(arrays: Mapping[str, NDArray[np.generic]], aliases: dict[str, str], states: dict[str, object]) -> bytes:
    """The content of a file.

    Args:
        arrays: by name.
        aliases: other names of some arrays and states.
        states: what JSON can hold, by name.
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
        RD27: the package safetensors is not installed.  RD31: the file is not there, or damaged.
    """
    library = _library()
    try:
        with open(path, "rb") as file:
            data = file.read()
        values = library.load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8:8 + length])["__metadata__"]
        if int(metadata["crc32"]) != zlib.crc32(metadata["refdist"].encode()):
            raise ValueError("the list of what is in it has another checksum")
        note = json.loads(metadata["refdist"])
        if set(note["crc32"]) != set(values):
            raise ValueError(f"it lacks {', '.join(sorted(set(note['crc32']) - set(values)))}")
        for key, checksum in note["crc32"].items():
            if _checksum(values[key]) != checksum:
                raise ValueError(f"{key} has another checksum")
        for key, (dtype, shape) in note["raw"].items():
            values[key] = values[key].view(dtype).reshape(shape)
        values.update({key: State(content) for key, content in note["states"].items()})
        values.update({key: values[name] for key, name in note["aliases"].items()})
    except OSError as error:
        raise errors.error("RD31", "reading a checkpoint", f"{path} cannot be opened: {error.strerror}",
                           "Give the path that `save` returned.", kind=errors.NotFoundError) from error
    except Exception as error:
        raise errors.error("RD31", "reading a checkpoint", f"{path} is damaged: {error}",
                           "Restore an older one.") from error
    return dict(values)


def make_folder(folder: str) -> None:
    """Makes a folder, and those it lies in, unless it is there.

    Raises:
        RD31: it cannot be made.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise errors.error("RD31", "writing a checkpoint", f"the folder {folder} cannot be made: {error.strerror}",
                           "Give a folder that can be written to.") from error


def write(path: str, data: bytes) -> None:
    """Writes a file that is complete or not there, whatever happens meanwhile; its folder is made when it is not there.

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
        # Without this the new name can be lost with the machine, though the data are on the disk.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise errors.error("RD31", "writing a checkpoint", f"{path} cannot be written: {error.strerror}",
                           "Give a folder that can be written to and has room.") from error


def index(folder: str, filename: str | None = None) -> dict[str, Any]:
    """What a folder promises: "latest" and "all", names of checkpoints; empty when it promises nothing."""
    try:
        found = json.loads(Path(folder, filename or INDEX).read_text())
        fits = isinstance(found["latest"], str) and all(isinstance(name, str) for name in found["all"])
        times = [found.get("preserved_at", 0.0), *found.get("times", {}).values()]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
    return found if fits and all(isinstance(one, (int, float)) for one in times) else {}


def write_index(folder: str, promised: dict[str, object]) -> None:
    """Replaces what a folder promises."""
    write(os.path.join(folder or ".", INDEX), json.dumps(promised).encode())


def _checksum(array: NDArray[np.generic]) -> int:
    return zlib.crc32(array.tobytes(), zlib.crc32(f"{array.dtype.str}{array.shape}".encode()))


def _library() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise errors.error("RD27", "checkpoints", "the package safetensors is not installed",
                           "Run `pip install safetensors`.") from error
    return safetensors.numpy
