"""What `tf.nn` does with windows of tensors, [batch, lengths of space, channels]: convolutions and pools."""

from __future__ import annotations

import functools
from typing import Any

from refdist import errors
from refdist.tf.computed import ints, name_of
from refdist.tf.tensors import keras, tensor

ops = keras().ops


def _layout(data_format: Any) -> str:
    return "channels_first" if str(data_format or "N").startswith("NC") else "channels_last"


def _lengths(sizes: Any, dimensions: int, data_format: Any, attempted: str) -> tuple[int, ...]:
    # A window's length in each dimension of space; a list may have those of the batch and the channels, too.
    sizes = ints(sizes)
    listed = [sizes] if isinstance(sizes, int) else list(sizes)
    if len(listed) == dimensions + 2:
        listed = listed[2:] if _layout(data_format) == "channels_first" else listed[1:-1]
    if len(listed) not in (1, dimensions):
        raise errors.error("RD34", attempted, f"got {sizes} for {dimensions} dimensions of space",
                           f"Pass an int, or a list of 1, {dimensions} or {dimensions + 2}.",
                           kind=errors.InvalidArgumentError)
    return tuple(listed * dimensions if len(listed) == 1 else listed)


def _padded(x: Any, padding: Any, attempted: str) -> tuple[Any, str]:
    # The tensor, with zeros around it where a program says how many, and how Keras pads it further.
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise errors.error("RD34", attempted, f"padding is {padding!r}", "Pass \"SAME\", \"VALID\", or a list of "
                               "[before, after] for each dimension.", kind=errors.InvalidArgumentError)
        return x, padding.lower()
    return ops.pad(x, [ints(both) for both in padding]), "valid"


def convolved(attempted: str, dimensions: int | None, x: Any, filters: Any, strides: Any, padding: Any,
              data_format: Any, dilations: Any, kind: str = "conv") -> Any:
    """The convolution with filters.

    Args:
        attempted: its name.
        dimensions: how many of space; None for what the filters have.
        x: the tensor.
        filters: [lengths of space, channels of the tensor, channels of the result].
        strides: the steps.
        padding: "SAME", "VALID", or how many zeros around each dimension.
        data_format: as in TensorFlow; None for channels at the end.
        dilations: the distances within the window; None for 1.
        kind: "conv" or "depthwise_conv".

    Raises:
        RD34: the filters do not fit, or steps or a padding that cannot be.
    """
    x, filters = tensor(x), tensor(filters)
    dimensions = filters.ndim - 2 if dimensions is None else dimensions
    channels = x.shape[1 if _layout(data_format) == "channels_first" else -1]
    if x.ndim != dimensions + 2 or filters.ndim != dimensions + 2 or channels % filters.shape[-2] or (
            kind == "depthwise_conv" and channels != filters.shape[-2]):
        raise errors.error("RD34", attempted, f"the tensor has shape {tuple(x.shape)}, the filters "
                           f"{tuple(filters.shape)}", "Pass filters with the channels of the tensor in their last but "
                           "one dimension.", kind=errors.InvalidArgumentError)
    steps = _lengths(strides, dimensions, data_format, attempted)
    distances = _lengths(1 if dilations is None else dilations, dimensions, data_format, attempted)
    x, rest = _padded(x, padding, attempted)
    return getattr(ops, kind)(x, filters, steps if kind == "conv" else max(steps), rest, _layout(data_format),
                              distances)


def spread(attempted: str, dimensions: int, x: Any, filters: Any, output_shape: Any, strides: Any, padding: str,
           data_format: Any) -> Any:
    """The transpose of a convolution: its gradient with respect to its input, where `x` is that of its result.

    Args:
        attempted: its name.
        dimensions: how many of space.
        x: the tensor, with channels at the end.
        filters: [lengths of space, channels of the result, channels of the tensor].
        output_shape: the shape of the result, which is that of the input of the convolution.
        strides: the steps.
        padding: "SAME" or "VALID".
        data_format: as in TensorFlow; None for channels at the end.

    Raises:
        RD20: channels before the dimensions of space.  RD34: a shape from which such a convolution does not lead to
            that of `x`.
    """
    if _layout(data_format) == "channels_first":
        raise errors.error("RD20", attempted, f"data_format is {data_format!r}",
                           "Put the channels at the end: `tf.transpose`.")
    steps = _lengths(strides, dimensions, data_format, attempted)
    _padded(x, padding, attempted)
    lengths = [int(size) for size in ints(output_shape)][1:-1]
    is_same = padding.upper() == "SAME"
    sizes = list(zip(lengths, steps, filters.shape[:dimensions], x.shape[1:-1], strict=True))
    if any(-(-(wanted if is_same else wanted - width + 1) // step) != own for wanted, step, width, own in sizes):
        raise errors.error("RD34", attempted, f"output_shape is {ints(output_shape)}, and the tensor has shape "
                           f"{tuple(x.shape)}", "Pass the shape of what a convolution with these strides and this "
                           "padding takes to the shape of the tensor.", kind=errors.InvalidArgumentError)
    whole = ops.conv_transpose(x, filters, steps, "valid", data_format="channels_last")
    parts, margins = [slice(None)], [(0, 0)]
    for axis, (wanted, step, width, own) in enumerate(sizes, 1):
        before = max((own - 1) * step + width - wanted, 0) // 2 if is_same else 0
        parts.append(slice(before, before + wanted))
        margins.append((0, max(wanted - (whole.shape[axis] - before), 0)))
    return ops.pad(whole[tuple(parts)], [*margins, (0, 0)])


def pooled(attempted: str, kind: str, dimensions: int | None, x: Any, size: Any, strides: Any, padding: Any,
           data_format: Any) -> Any:
    """Max or average pooling: the largest number, or the mean, of each window.

    Args:
        attempted: its name.
        kind: "max" or "average".
        dimensions: how many of space; None for what the tensor has.
        x: the tensor.
        size: of the windows.
        strides: the steps.
        padding: "SAME" or "VALID".
        data_format: as in TensorFlow; None for channels at the end.

    Raises:
        RD34: sizes, steps or a padding that cannot be.
    """
    x = tensor(x)
    dimensions = x.ndim - 2 if dimensions is None else dimensions
    if x.ndim != dimensions + 2 or not isinstance(padding, str):
        raise errors.error("RD34", attempted, f"the tensor has shape {tuple(x.shape)}, padding is {padding!r}",
                           f"Pass a tensor of {dimensions + 2} dimensions, and \"SAME\" or \"VALID\".",
                           kind=errors.InvalidArgumentError)
    window, steps = (_lengths(sizes, dimensions, data_format, attempted) for sizes in (size, strides))
    x, padding = _padded(x, padding, attempted)
    pool = functools.partial(getattr(ops, f"{kind}_pool"), pool_size=window, strides=steps,
                             data_format=_layout(data_format))
    if kind == "max" or padding == "valid":
        return pool(x, padding=padding)
    # A mean leaves the padding out; Keras on PyTorch pads with copies of the border, and counts them.
    first = 2 if _layout(data_format) == "channels_first" else 1
    margins = [(0, 0)] * x.ndim
    for axis, (width, step) in enumerate(zip(window, steps, strict=True), first):
        room = max((-(-x.shape[axis] // step) - 1) * step + width - x.shape[axis], 0)
        margins[axis] = (room // 2, room - room // 2)
    sums, counts = (pool(ops.pad(part, margins), padding="valid") for part in (x, ops.ones_like(x)))
    return ops.divide(sums, counts)


def deeper(x: Any, block: int) -> Any:
    """The pixels of each square block in the channels of one.

    Raises:
        RD34: the image is not made of such blocks.
    """
    count, height, width, channels = x.shape
    if height % block or width % block:
        raise errors.error("RD34", "tf.nn.space_to_depth", f"block_size is {block}, and the shape {tuple(x.shape)}",
                           "Pass a block_size that divides height and width.", kind=errors.InvalidArgumentError)
    apart = ops.reshape(x, (count, height // block, block, width // block, block, channels))
    return ops.reshape(ops.transpose(apart, (0, 1, 3, 2, 4, 5)),
                       (count, height // block, width // block, block * block * channels))


def wider(x: Any, block: int) -> Any:
    """The channels of each pixel as the pixels of a square block.

    Raises:
        RD34: the channels are not as many.
    """
    count, height, width, channels = x.shape
    if channels % (block * block):
        raise errors.error("RD34", "tf.nn.depth_to_space", f"block_size is {block}, and the shape {tuple(x.shape)}",
                           "Pass a block_size whose square divides the channels.", kind=errors.InvalidArgumentError)
    apart = ops.reshape(x, (count, height, width, block, block, channels // (block * block)))
    return ops.reshape(ops.transpose(apart, (0, 1, 3, 2, 4, 5)),
                       (count, height * block, width * block, channels // (block * block)))


def dropped(x: Any, rate: Any, noise_shape: Any, draw: Any) -> Any:
    """The tensor with some numbers set to 0, and the others scaled up so that the mean stays.

    Args:
        x: the tensor.
        rate: how likely a number becomes 0.
        noise_shape: the shape of what is drawn; None for that of the tensor.
        draw: makes numbers from 0, below 1, of a shape and a dtype.

    Raises:
        RD34: a rate that is no probability below 1, or no floats.
    """
    part, dtype = float(rate), name_of(x)
    if not 0 <= part < 1 or "float" not in dtype:
        raise errors.error("RD34", "tf.nn.dropout", f"rate is {part}, and the tensor has dtype {dtype}",
                           "Pass a rate from 0, below 1, and a tensor of floats.")
    if not part:
        return x
    shape = tuple(x.shape) if noise_shape is None else tuple(
        own if size is None else int(size) for size, own in zip(noise_shape, x.shape, strict=True))
    return ops.where(ops.greater_equal(draw(shape, dtype), part), ops.multiply(x, 1 / (1 - part)), ops.zeros_like(x))


def among_channels(x: Any, radius: int, bias: Any, alpha: Any, beta: Any) -> Any:
    """Local response normalization: divides each number by a power of the sum of squares in the channels around it.

    Source: Krizhevsky, Sutskever and Hinton 2012, ImageNet Classification with Deep Convolutional Neural Networks, 3.3.
    """
    squares = ops.pad(ops.square(x), [(0, 0)] * (x.ndim - 1) + [(radius, radius)])
    window = [squares[..., start:start + x.shape[-1]] for start in range(2 * radius + 1)]
    return ops.divide(x, ops.power(ops.add(ops.multiply(functools.reduce(ops.add, window), alpha), bias), beta))
