"""Files of checkpoints: arrays and states by name in the safetensors format.  This module knows nothing of variables.

Files are written atomically, and read only where they are files (`disk.py`).

**Checked.**  The format itself does not notice a flipped bit, so the file has a CRC-32 of every array (with its dtype
and shape) and one of the note that holds them.  A damaged file is an error that says what is damaged; never a model
that is slightly wrong.  Checksums do not help against a file that was made to harm: so the lengths in it are compared
with what there is, names may occur once, and nothing is taken for a dtype or a shape that this module does not write.

**The note** is JSON in the metadata of the file: `aliases`, further names of the same object, which is stored once;
`states`, what `state_dict` returned; `raw`, dtype and shape of the arrays whose dtype safetensors does not have
(complex), stored as bytes.  All of it is optional for other readers: the arrays themselves can be loaded with
the safetensors library alone.

**The index** of a folder, a file named `checkpoint`, says which checkpoints a manager keeps and which is the latest.
It is written after a checkpoint was saved and before an old one is deleted, so that it never names a missing file.  An
index that is malformed is an error: as it is written atomically, it is not a trace of a kill, and a program that went
on without it would begin again and overwrite the checkpoints that are there.  Names in it must lead to files in the
folder, because a manager deletes what the index names; links in the folder are not followed.
"""

from __future__ import annotations

import json
import math
import os
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from refdist import disk, errors

SUFFIX = ".safetensors"
INDEX = "checkpoint"
# Bytes; an index has less than a hundred for each checkpoint.
_LARGEST_INDEX = 64 << 20
_NOTE = ("crc32", "aliases", "raw", "states")
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
    text = os.fsdecode(path)
    if not _is_path(text):
        raise errors.error("RD34", attempted, f"the path is {text!r}", "Pass characters that a file name can have.")
    return text


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
    for key in plain:
        if key == "__metadata__" or not _is_path(key):
            raise errors.error("RD31", "writing a checkpoint", f"safetensors cannot hold the name {key!r}",
                               "Save the variable under another name.", kind=errors.InvalidValueError)
    note = json.dumps({"format": 2, "aliases": aliases, "raw": raw, "states": states,
                       "crc32": {key: _checksum(array) for key, array in plain.items()}})
    content: bytes = library().save(plain, {"refdist": note, "crc32": str(zlib.crc32(note.encode()))})
    return content


def read(path: str) -> dict[str, Any]:
    """The arrays of a file, and its states as `State`, by name.

    Raises:
        RD27: the package safetensors is not installed.
        RD31: the file cannot be opened, was not written by a checkpoint, or is damaged.
    """
    safetensors, attempted = library(), "reading a checkpoint"
    disk.tell(disk.READ, path)
    try:
        with disk.opened(path) as file:
            return _unpacked(file, safetensors)
    except OSError as error:
        raise errors.error("RD31", attempted, f"{path} cannot be opened: {error.strerror}",
                           "Pass the path that `save` returned.", kind=errors.NotFoundError) from error
    except MemoryError as error:
        raise errors.error("RD31", attempted, f"{path} does not fit into memory") from error
    except Exception as error:
        raise errors.error("RD31", attempted, f"{path} is damaged: {errors.shown(str(error))}",
                           "Restore an older checkpoint.") from error


def _unpacked(file: IO[bytes], library: ModuleType) -> dict[str, Any]:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if length > size - 8:
        raise ValueError(f"its header has {length:,} bytes, and the file {size:,}")
    metadata = _table(_json(file.read(length)).get("__metadata__", {}))
    if not {"refdist", "crc32"} <= set(metadata):
        raise ValueError("it was not written by a checkpoint; `safetensors.numpy.load_file` reads such files")
    if str(zlib.crc32(metadata["refdist"].encode())) != metadata["crc32"]:
        raise ValueError("the checksum of its table of contents is wrong")
    note = _json(metadata["refdist"])
    if lacking := [part for part in _NOTE if part not in note]:
        raise ValueError(f"its table of contents lacks {', '.join(lacking)}")
    arrays, aliases, raw, states = (_table(note[part]) for part in _NOTE)
    if lacking := [name for name in (*raw, *aliases.values()) if name not in arrays and name not in states]:
        raise ValueError(f"it lacks {lacking[0]}")
    file.seek(0)
    values: dict[str, Any] = library.load(file.read(size))
    if set(arrays) != set(values):
        raise ValueError(f"it lacks {', '.join(sorted(set(arrays) - set(values))) or 'a checksum'}")
    for key, checksum in arrays.items():
        if _checksum(values[key]) != checksum:
            raise ValueError(f"the checksum of {key} is wrong")
        if values[key].dtype == np.bool_ and values[key].size and values[key].view(np.uint8).max() > 1:
            raise ValueError(f"{key} has a bool that is neither True nor False")
    for key, (dtype, shape) in raw.items():
        values[key] = _viewed(values[key], key, dtype, shape)
    if len({*values, *states, *aliases}) < len(values) + len(states) + len(aliases):
        raise ValueError("it has two values of one name")
    values.update({key: State(content) for key, content in states.items()})
    values.update({key: values[name] for key, name in aliases.items()})
    return values


def _json(text: bytes | str) -> dict[str, Any]:
    try:
        return _table(json.loads(text, object_pairs_hook=_once))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("it has two values of one name")
    return fields


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"it has {errors.type_of(value)} where a table should be")
    return value


def _viewed(array: npt.NDArray[np.generic], key: str, dtype: object, shape: object) -> npt.NDArray[np.generic]:
    """Views stored bytes as an array of the stored dtype and shape."""
    if not isinstance(dtype, str) or np.dtype(dtype).kind not in "fc":
        raise ValueError(f"{key} has the dtype {dtype}")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{key} has the shape {shape}")
    return array.view(dtype).reshape(shape)


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
    """Writes a file atomically (see `disk.py`), and creates its folder if necessary.

    Args:
        path: of the file, which may be there.
        data: all that it has afterwards.

    Raises:
        RD31: it cannot be written.
    """
    make_folder(os.path.dirname(path) or ".")
    try:
        disk.replace(path, data)
    except OSError as error:
        raise errors.error("RD31", "writing a checkpoint", f"{path} cannot be written: {error.strerror}",
                           "Pass a folder that can be written to, on a disk with space left.") from error


def index(folder: str, filename: str | None = None) -> dict[str, Any]:
    """The index of a folder: "latest", a name, and "all", a list of names; {} if it is missing.

    Raises:
        RD31: it is malformed, or names a file that is not in the folder.
    """
    path = os.path.join(folder, filename or INDEX)
    try:
        with disk.opened(path, links=False) as file:
            read = _json(file.read(_LARGEST_INDEX))
        for name in [read["latest"], *read["all"]]:
            if not is_inside(folder, name):
                raise ValueError(f"it names {name!r}, which is not in this folder")
        times = [read.get("preserved_at", 0.0), *read.get("times", {}).values()]
        if not all(type(time) in (int, float) and math.isfinite(time) for time in times):
            raise ValueError("a time in it is not a number")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else errors.shown(str(error))
        raise errors.error("RD31", "reading the index of a folder", f"{path} is damaged: {reason}",
                           "Delete it, and restore a checkpoint of the folder by its path.") from error
    return read


def write_index(folder: str, content: Mapping[str, object]) -> None:
    """Replaces the index of a folder."""
    write(os.path.join(folder or ".", INDEX), json.dumps(content).encode())


def is_inside(folder: str, name: object) -> bool:
    """Whether a name is that of a file in a folder, or in a folder in it, without following links."""
    if not isinstance(name, str) or not _is_path(name) or os.path.isabs(name):
        return False
    if name != os.path.normpath(name) or name.partition("/")[0] in (".", ".."):
        return False
    if "/" not in name:
        return True
    home = os.path.realpath(folder)
    return os.path.commonpath([home, os.path.realpath(os.path.dirname(os.path.join(folder, name)))]) == home


def exists(path: str) -> bool:
    """Whether there is a checkpoint of this path, which an index names.

    Raises:
        RD31: there is a link, or something else that is not a file.
    """
    try:
        mode = os.stat(file_of(path), follow_symlinks=False).st_mode
    except OSError:
        return False
    if not stat.S_ISREG(mode):
        raise errors.error("RD31", "finding a checkpoint", f"{file_of(path)}, which the index of the folder names, is "
                           f"{'a link' if stat.S_ISLNK(mode) else 'not a file'}",
                           "Restore the checkpoint that you want by its path; that follows links.")
    return True


def delete(folder: str, name: str) -> None:
    """Deletes a checkpoint that the index of a folder named, unless a folder in it has become a link since.

    Raises:
        RD31: it cannot be deleted.
    """
    path = file_of(os.path.join(folder, name))
    if not is_inside(folder, name) or not os.path.lexists(path):
        return
    try:
        disk.remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise errors.error("RD31", "deleting an old checkpoint", f"{path} cannot be deleted: {error.strerror}",
                           "Delete it; the new one was saved.") from error


def _is_path(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _checksum(array: npt.NDArray[np.generic]) -> int:
    return zlib.crc32(array.tobytes(), zlib.crc32(f"{array.dtype.str}{array.shape}".encode()))


def library() -> ModuleType:
    """The library that writes and reads files, which is installed apart (RD27)."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise errors.error("RD27", "checkpoints", "the package safetensors is not installed",
                           "Run `pip install safetensors`.") from error
    module: ModuleType = safetensors.numpy
    return module
