"""Files of checkpoints: safetensors, written so that a kill at any moment leaves the old file or the new one.

Variables are not known here, only arrays by name.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from refdist import errors

SUFFIX = ".safetensors"
INDEX = "checkpoint"
# What a file can hold as it is; other numbers are written as bytes, with a note.
_PLAIN = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64"}


def packed(arrays: dict[str, Any], aliases: dict[str, str]) -> bytes:
    """The content of a file.

    Args:
        arrays: by name.
        aliases: other names of some of them.
    """
    raw = {key: [str(array.dtype), list(array.shape)] for key, array in arrays.items()
           if array.dtype.name not in _PLAIN}
    plain = {key: np.frombuffer(array.tobytes(), np.uint8) if key in raw else np.asarray(array, order="C")
             for key, array in arrays.items()}
    note = json.dumps({"format": 1, "aliases": aliases, "raw": raw})
    content: bytes = _library().save(plain, {"refdist": note})
    return content


def read(path: str) -> dict[str, Any]:
    """The arrays of a file by name.

    Raises:
        RD27: the package safetensors is not installed.  RD31: the file is not there, or damaged.
    """
    library = _library()
    try:
        with open(path, "rb") as file:
            data = file.read()
        arrays = library.load(data)
        length = int.from_bytes(data[:8], "little")
        note = json.loads(json.loads(data[8:8 + length]).get("__metadata__", {}).get("refdist", "{}"))
        for key, (dtype, shape) in note.get("raw", {}).items():
            arrays[key] = arrays[key].view(dtype).reshape(shape)
        arrays.update({key: arrays[name] for key, name in note.get("aliases", {}).items()})
    except OSError as error:
        raise errors.error("RD31", "reading a checkpoint", f"{path} cannot be opened: {error.strerror}",
                           "Give the path that `save` returned.", kind=errors.NotFoundError) from error
    except Exception as error:
        raise errors.error("RD31", "reading a checkpoint", f"{path} is damaged: {error}",
                           "Restore an older one.") from error
    return dict(arrays)


def write(path: str, data: bytes) -> None:
    """Writes a file that is complete or not there, whatever happens meanwhile.

    Raises:
        RD31: it cannot be written.
    """
    folder = os.path.dirname(path) or "."
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
                           "Give a folder that exists and has room.") from error


def index(folder: str) -> dict[str, Any]:
    """What a folder promises: "latest" and "all", names of checkpoints; empty when it promises nothing."""
    try:
        found = json.loads(Path(folder, INDEX).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_index(folder: str, promised: dict[str, Any]) -> None:
    """Replaces what a folder promises."""
    write(os.path.join(folder or ".", INDEX), json.dumps(promised).encode())


def _library() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise errors.error("RD27", "checkpoints", "the package safetensors is not installed",
                           "Run `pip install refdist[checkpoint]`.") from error
    return safetensors.numpy
