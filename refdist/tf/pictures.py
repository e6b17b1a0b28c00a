"""Files of pictures: PNG with NumPy and zlib, JPEG with the package Pillow.

Pillow reads PNGs, too, but those of 16 bits and three colours with 8, where TensorFlow has 16.

Source: Portable Network Graphics, W3C Recommendation of 2003, for the chunks and the five filters of rows.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from refdist import errors
from refdist.tf.conversion import tensor
from refdist.tf.dtypes import as_dtype
from refdist.tf.texts import TextTensor, array_of, numbers

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# The kind of colours, as a PNG counts them -> how many channels a pixel has; 3 is the number of a colour.
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_KINDS = {1: 0, 2: 4, 3: 2, 4: 6}
_PALETTE = 3
# What libpng takes of red, green and blue, of 2**15.
_GREY = np.array([9797, 19234, 3737])


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(_SIGNATURE)
    while place + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        yield data[place + 4:place + 8], data[place + 8:place + 8 + length]
        place += 12 + length


def _png(data: bytes, attempted: str) -> Any:
    # The pixels, [height, width, channels], of 8 or 16 bits.
    if not data.startswith(_SIGNATURE):
        raise errors.error("RD34", attempted, "the bytes are no PNG", "Pass what a file of that kind holds.",
                           kind=errors.InvalidArgumentError)
    parts: dict[bytes, bytes] = {}
    for kind, content in _chunks(data):
        parts[kind] = parts.get(kind, b"") + content
    width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    if interlaced:
        raise errors.error("RD20", attempted, "the PNG is interlaced", "Save it again without.")
    channels = _CHANNELS[colours]
    stride, step = -(-width * channels * depth // 8), max(channels * depth // 8, 1)
    raw = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, stride + 1)
    rows = np.zeros((height, stride), np.uint8)
    above = np.zeros(stride, np.uint8)
    for number in range(height):
        above = rows[number] = _unfiltered(int(raw[number, 0]), raw[number, 1:].copy(), above, step)
    if depth == 16:
        pixels: Any = rows.view(">u2").astype(np.uint16).reshape(height, width, channels)
    elif depth == 8:
        pixels = rows.reshape(height, width, channels)
    else:
        bits = np.unpackbits(rows, axis=1)[:, :width * depth].reshape(height, width, depth)
        pixels = (bits @ (1 << np.arange(depth)[::-1])).astype(np.uint8)[..., None]
        if colours != _PALETTE:
            pixels = (pixels * (255 // ((1 << depth) - 1))).astype(np.uint8)
    return np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)[pixels[..., 0]] if colours == _PALETTE else pixels


def _unfiltered(kind: int, row: Any, above: Any, step: int) -> Any:
    if kind == 2:
        return row + above
    if kind == 1:
        columns = row.reshape(-1, step)
        return np.cumsum(columns, axis=0, dtype=np.uint8).reshape(-1)
    if kind in (3, 4):
        for place in range(len(row)):
            left = int(row[place - step]) if place >= step else 0
            up = int(above[place])
            corner = int(above[place - step]) if place >= step else 0
            guess = (left + up) // 2 if kind == 3 else _nearest(left, up, corner)
            row[place] = (int(row[place]) + guess) & 255
    return row


def _nearest(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]


def _with_channels(pixels: Any, channels: int, attempted: str) -> Any:
    own = pixels.shape[-1]
    if channels in (0, own):
        return pixels
    if channels == own + 1 and own in (1, 3):  # an opaque picture
        return np.concatenate([pixels, np.full((*pixels.shape[:-1], 1), np.iinfo(pixels.dtype).max, pixels.dtype)], -1)
    colours = pixels[..., :own - 1] if own in (2, 4) else pixels
    if channels == 3:
        return np.repeat(colours, 3, -1) if colours.shape[-1] == 1 else colours
    if channels == 1:
        return colours if colours.shape[-1] == 1 else (
            colours.astype(np.int64) @ _GREY >> 15).astype(pixels.dtype)[..., None]
    raise errors.error("RD34", attempted, f"channels is {channels}, and the picture has {own}",
                       "Pass 0, 1 or 3.", kind=errors.InvalidArgumentError)


def _in_dtype(pixels: Any, dtype: Any) -> Any:
    name = as_dtype(dtype).name
    if name == "uint8" and pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    elif name == "uint16" and pixels.dtype == np.uint8:
        pixels = pixels.astype(np.uint16) * np.uint16(257)
    return numbers(pixels, name)


def _data(contents: Any, attempted: str) -> bytes:
    return bytes(array_of(contents, attempted)[()])


def decode_png(contents: Any, channels: int = 0, dtype: Any = "uint8", name: str | None = None) -> Any:
    """The pixels of a PNG, [height, width, channels].

    Args:
        contents: a text without dimensions: what the file holds.
        channels: 1 for grey, 3 for colours, 4 for colours and opacity; 0 for what the file has.
        dtype: uint8 or uint16.
        name: without effect.

    Raises:
        RD20: it is interlaced.  RD34: no PNG, or other channels.

    Source: tf.io.decode_png.
    """
    pixels = _png(_data(contents, "tf.io.decode_png"), "tf.io.decode_png")
    return _in_dtype(_with_channels(pixels, channels, "tf.io.decode_png"), dtype)


def encode_png(image: Any, compression: int = -1, name: str | None = None) -> Any:
    """A picture as a PNG, a text without dimensions.

    Args:
        image: of dtype uint8 or uint16, [height, width, channels].
        compression: 0 to 9; -1 for the usual.
        name: without effect.

    Raises:
        RD34: another shape or dtype.

    Source: tf.io.encode_png.
    """
    pixels = np.asarray(image if isinstance(image, np.ndarray) else tensor(image))
    if pixels.ndim != 3 or pixels.shape[-1] not in _KINDS or pixels.dtype.name not in ("uint8", "uint16"):
        raise errors.error("RD34", "tf.io.encode_png", f"the picture has shape {pixels.shape} and dtype {pixels.dtype}",
                           "Pass [height, width, channels] of uint8 or uint16.", kind=errors.InvalidArgumentError)
    height, width, channels = pixels.shape
    rows = pixels.astype(pixels.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
    raw = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8 * pixels.dtype.itemsize, _KINDS[channels], 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(raw, compression)), (b"IEND", b"")]
    return TextTensor(_SIGNATURE + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts))


def _pillow(attempted: str) -> Any:
    try:
        Image: Any = import_module("PIL.Image")  # noqa: N806
    except ImportError as error:
        raise errors.error("RD27", attempted, "the package Pillow is not installed", "Run `pip install pillow`, or "
                           "save pictures as PNG.", kind=errors.MissingPackageError) from error
    return Image


def decode_jpeg(contents: Any, channels: int = 0, ratio: int = 1, fancy_upscaling: bool = True,
                try_recover_truncated: bool = False, acceptable_fraction: float = 1, dct_method: str = "",
                name: str | None = None) -> Any:
    """The pixels of a JPEG, uint8, [height, width, channels]; a few differ from TensorFlow's by 1 or 2.

    Args:
        contents: a text without dimensions: what the file holds.
        channels: 1 for grey, 3 for colours; 0 for what the file has.
        ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction, dct_method: without effect.
        name: without effect.

    Raises:
        RD27: Pillow is not installed.  RD34: no JPEG, or other channels.

    Source: tf.io.decode_jpeg.
    """
    attempted = "tf.io.decode_jpeg"
    data, library = _data(contents, attempted), _pillow(attempted)
    try:
        pixels = np.array(library.open(io.BytesIO(data)))
    except OSError as error:
        raise errors.error("RD34", attempted, "the bytes are no JPEG", "Pass what a file of that kind holds.",
                           kind=errors.InvalidArgumentError) from error
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    return numbers(_with_channels(pixels, channels, attempted), "uint8")


def encode_jpeg(image: Any, format: str = "", quality: int = 95, name: str | None = None) -> Any:
    """A picture as a JPEG, a text without dimensions.

    Args:
        image: of dtype uint8, [height, width, channels].
        format: without effect.
        quality: 0 to 100.
        name: without effect.

    Raises:
        RD27: Pillow is not installed.  RD34: another shape or dtype.

    Source: tf.io.encode_jpeg.
    """
    pixels, file = np.asarray(tensor(image)), io.BytesIO()
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3) or pixels.dtype != np.uint8:
        raise errors.error("RD34", "tf.io.encode_jpeg", f"the picture has shape {pixels.shape} and dtype "
                           f"{pixels.dtype}", "Pass [height, width, 1 or 3] of uint8.",
                           kind=errors.InvalidArgumentError)
    _pillow("tf.io.encode_jpeg").fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(
        file, "JPEG", quality=quality)
    return TextTensor(file.getvalue())


def decode_image(contents: Any, channels: int = 0, dtype: Any = "uint8", name: str | None = None,
                 expand_animations: bool = True) -> Any:
    """The pixels of a PNG or a JPEG, [height, width, channels].

    Args:
        contents: a text without dimensions: what the file holds.
        channels: 1 for grey, 3 for colours; 0 for what the file has.
        dtype: uint8, uint16, or float32 for numbers from 0 to 1.
        name: without effect.
        expand_animations: without effect.

    Raises:
        RD27: a JPEG, and Pillow is not installed.  RD34: neither.

    Source: tf.io.decode_image.
    """
    is_png = _data(contents, "tf.io.decode_image").startswith(_SIGNATURE)
    is_float = as_dtype(dtype).name == "float32"
    if is_png:
        pixels = decode_png(contents, channels, "uint16" if is_float else dtype)
        return numbers(np.asarray(pixels) * np.float32(1 / 65535), "float32") if is_float else pixels
    pixels = decode_jpeg(contents, channels)
    return numbers(np.asarray(pixels) / np.float32(255), "float32") if is_float else _in_dtype(
        np.asarray(pixels), dtype)
