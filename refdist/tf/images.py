"""What `tf.image` does with images, [..., height, width, channels], for which one expression is not enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refdist import errors
from refdist.tf.computed import ints, kept, name_of, resized, scaled
from refdist.tf.tensors import keras, tensor

ops = keras().ops

# Of one kind of colours to another: a row for each channel of an image, a column for each of the result.
_COLOURS = {
    "rgb_to_yuv": [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512],
                   [0.114, 0.43601035, -0.10001026]],
    "yuv_to_rgb": [[1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0]],
    "rgb_to_yiq": [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617],
                   [0.114, -0.32134392, 0.31119955]],
    "yiq_to_rgb": [[1, 1, 1], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]],
}


def required(image: Any) -> Any:
    """What is an image, or a batch of them, as a tensor.

    Raises:
        RD34: it has fewer than three dimensions.
    """
    image = tensor(image)
    if len(image.shape) < 3:
        raise errors.error("RD34", "an operation on an image", f"its shape is {tuple(image.shape)}",
                           "Pass [height, width, channels], or a batch of such.")
    return image


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of the image.

    Raises:
        RD34: the part is not inside.
    """
    if top < 0 or left < 0 or top + height > image.shape[-3] or left + width > image.shape[-2]:
        raise errors.error("RD34", "tf.image.crop_to_bounding_box", f"{height} by {width} pixels from ({top}, {left}) "
                           f"are not inside an image of {image.shape[-3]} by {image.shape[-2]}", "Crop less.")
    return image[..., top:top + height, left:left + width, :]


def pad(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """The image in a larger one of zeros.

    Raises:
        RD34: it is not larger.
    """
    below, right = height - top - image.shape[-3], width - left - image.shape[-2]
    if min(top, left, below, right) < 0:
        raise errors.error("RD34", "tf.image.pad_to_bounding_box", f"an image of {image.shape[-3]} by "
                           f"{image.shape[-2]} from ({top}, {left}) is not inside {height} by {width} pixels",
                           "Pass a larger height and width.")
    return ops.pad(image, [(0, 0)] * (image.ndim - 3) + [(top, below), (left, right), (0, 0)])


def crop_or_pad(image: Any, height: int, width: int) -> Any:
    """The middle of the image, or the image in the middle."""
    rows, columns = image.shape[-3:-1]
    image = crop(image, max(rows - height, 0) // 2, max(columns - width, 0) // 2, min(rows, height),
                 min(columns, width))
    return pad(image, max(height - rows, 0) // 2, max(width - columns, 0) // 2, height, width)


def central_crop(image: Any, fraction: float) -> Any:
    """The middle of the image, as large a part of each side as the fraction says."""
    starts = [int((size - size * fraction) / 2) for size in image.shape[-3:-1]]
    lengths = [size - 2 * start for size, start in zip(image.shape[-3:-1], starts, strict=True)]
    return crop(image, *starts, *lengths)


def standardized(image: Any) -> Any:
    """The image with mean 0 and variance 1."""
    image = ops.cast(image, "float32") if not name_of(image).startswith("float") else image
    count = int(np.prod(tuple(image.shape[-3:])))
    spread = ops.maximum(ops.std(image, (-3, -2, -1), keepdims=True), 1.0 / np.sqrt(count))
    return ops.divide(ops.subtract(image, ops.mean(image, (-3, -2, -1), keepdims=True)), kept(image, spread))


def _as_float(image: Any, change: Any) -> Any:
    # What is changed in the dtype of the image, computed in floats.
    own = name_of(image)
    changed = change(image if own.startswith("float") else scaled(image, "float32"))
    if own.startswith("float"):
        return changed
    largest = np.iinfo(own).max
    return ops.cast(ops.clip(ops.multiply(changed, largest + 0.5), 0, largest), own)


def brighter(image: Any, delta: Any) -> Any:
    """The image with a number added to each pixel; of integers the largest is 1.0."""
    return _as_float(image, lambda own: ops.add(own, tensor(delta, name_of(own))))


def contrasted(image: Any, factor: Any) -> Any:
    """The image with the distances from each channel's mean multiplied."""
    def change(own: Any) -> Any:
        middle = ops.mean(own, (-3, -2), keepdims=True)
        return ops.add(ops.multiply(ops.subtract(own, middle), tensor(factor, name_of(own))), middle)
    return _as_float(image, change)


def flipped(image: Any, axis: int, draw: Callable[[tuple[int, ...]], Any]) -> Any:
    """The image, or one in two of a batch on the average, turned over; `draw` makes numbers from 0, below 1."""
    if image.ndim == 3:
        return ops.where(ops.less(draw(()), 0.5), ops.flip(image, axis), image)
    turned = ops.greater(draw((len(image),)), 0.5)  # as in TensorFlow, where a batch is turned over by other numbers
    return ops.where(ops.reshape(turned, (-1, 1, 1, 1)), ops.flip(image, axis), image)


def span(low: Any, high: Any, most: float = math.inf) -> tuple[Any, Any]:
    """Between which numbers one is drawn.

    Raises:
        RD34: there is none between, or the second is above what is possible.
    """
    if not low <= high <= most or (low == high and high):
        raise errors.error("RD34", "a random change of an image", f"numbers between {low} and {high} are asked for",
                           "Pass a lower that is below upper, a max_delta of 0 or more, and for a hue at most 0.5.")
    return low, high


def random_crop(value: Any, size: Any, draw: Callable[[int], Any]) -> Any:
    """A part of this size, from any place; `draw` makes so many integers, from 0 to their largest.

    Raises:
        RD34: the value is smaller.
    """
    if not isinstance(size, (list, tuple)) or len(size) != len(value.shape):
        raise errors.error("RD34", "tf.image.random_crop", f"the value has shape {tuple(value.shape)}, size is {size}",
                           "Pass a length for each dimension.")
    spare = [own - wanted for own, wanted in zip(value.shape, size, strict=True)]
    if min(spare) < 0:
        raise errors.error("RD34", "tf.image.random_crop", f"the value has shape {tuple(value.shape)}, size is {size}",
                           "Pass a size that is not larger.", kind=errors.InvalidArgumentError)
    starts = [int(number) % (room + 1) for number, room in zip(np.asarray(draw(len(spare))), spare, strict=True)]
    return value[tuple(slice(start, start + wanted) for start, wanted in zip(starts, size, strict=True))]


def brightened(image: Any, gamma: Any, gain: Any) -> Any:
    """The image with each pixel to the power of gamma, times a gain; of integers the largest is 1.0."""
    return _as_float(image, lambda own: ops.multiply(ops.power(own, gamma), gain))


def to_hsv(image: Any) -> Any:
    """Hue, saturation and value of red, green and blue, all from 0 to 1."""
    red, green, blue = (image[..., channel] for channel in range(3))
    largest, smallest = ops.max(image, -1), ops.min(image, -1)
    spread = ops.subtract(largest, smallest)
    factor = ops.divide_no_nan(tensor(1 / 6, name_of(image)), spread)
    hue = ops.where(ops.equal(red, largest), ops.multiply(factor, ops.subtract(green, blue)), ops.where(
        ops.equal(green, largest), ops.add(ops.multiply(factor, ops.subtract(blue, red)), 2 / 6),
        ops.add(ops.multiply(factor, ops.subtract(red, green)), 4 / 6)))
    hue = ops.where(ops.equal(spread, 0), ops.zeros_like(hue), ops.where(ops.less(hue, 0), ops.add(hue, 1), hue))
    return ops.stack([hue, ops.divide_no_nan(spread, largest), largest], -1)


def to_rgb(image: Any) -> Any:
    """Red, green and blue of hue, saturation and value."""
    angle, saturation, value = ops.multiply(image[..., 0], 6), image[..., 1], image[..., 2]
    shares = [ops.subtract(ops.abs(ops.subtract(angle, 3)), 1)] + [
        ops.subtract(2, ops.abs(ops.subtract(angle, middle))) for middle in (2, 4)]
    return ops.stack([ops.multiply(ops.add(ops.subtract(1, saturation), ops.multiply(
        saturation, ops.clip(share, 0, 1))), value) for share in shares], -1)


def mixed(image: Any, way: str) -> Any:
    """The image in other colours; `way` is "rgb_to_yuv", "yuv_to_rgb", "rgb_to_yiq" or "yiq_to_rgb"."""
    if "float" not in name_of(image):
        raise TypeError(f"the image has dtype {name_of(image)}, and the colours are fractions")
    return ops.matmul(image, tensor(_COLOURS[way], name_of(image)))


def _differences(image: Any) -> tuple[Any, Any]:
    # What each pixel has more than the one above, and than the one to the left.
    return (ops.subtract(image[..., 1:, :, :], image[..., :-1, :, :]),
            ops.subtract(image[..., 1:, :], image[..., :-1, :]))


def slopes(images: Any) -> tuple[Any, Any]:
    """How much the next pixel below, and the next to the right, is larger; 0 in the last row and the last column.

    Raises:
        RD34: no batch of images.
    """
    if images.ndim != 4:
        raise errors.error("RD34", "tf.image.image_gradients", f"the image has shape {tuple(images.shape)}",
                           "Pass a batch: `image[tf.newaxis]`.")
    down, right = _differences(images)
    return (ops.pad(down, [(0, 0), (0, 1), (0, 0), (0, 0)]), ops.pad(right, [(0, 0), (0, 0), (0, 1), (0, 0)]))


def variation(images: Any) -> Any:
    """The sum of the distances of neighboring pixels, one for each image."""
    if images.ndim not in (3, 4):
        raise ValueError(f"the images have shape {tuple(images.shape)}")
    down, right = (ops.sum(ops.abs(part), (-3, -2, -1)) for part in _differences(images))
    return ops.cast(ops.add(down, right), name_of(images))


def patches(images: Any, sizes: Any, strides: Any, rates: Any, padding: str) -> Any:
    """The pixels of each window in the channels of one.

    Args:
        images: a batch.
        sizes: of the windows, [1, rows, columns, 1], as the two that follow.
        strides: the steps.
        rates: the distances of pixels within a window.
        padding: "SAME", with zeros, or "VALID".

    Raises:
        RD34: no batch, or sizes, steps, distances or a padding that cannot be.
    """
    attempted = "tf.image.extract_patches"
    size, steps, distances = (_of_windows(value, name, attempted) for value, name in (
        (sizes, "sizes"), (strides, "strides"), (rates, "rates")))
    if images.ndim != 4 or padding not in ("SAME", "VALID"):
        raise errors.error("RD34", attempted, f"the images have shape {tuple(images.shape)}, padding is {padding!r}",
                           "Pass [batch, height, width, channels], and \"SAME\" or \"VALID\".",
                           kind=errors.InvalidArgumentError)
    spans = [(length - 1) * distance + 1 for length, distance in zip(size, distances, strict=True)]
    margins = [(0, 0)] * 4
    for axis, (span, step) in enumerate(zip(spans, steps, strict=True), 1):
        room = max((-(-images.shape[axis] // step) - 1) * step + span - images.shape[axis], 0)
        margins[axis] = (room // 2, room - room // 2) if padding == "SAME" else (0, 0)
    whole = ops.pad(images, margins)
    rows, columns = (int((whole.shape[axis] - span + step) / step) for axis, span, step in zip((1, 2), spans, steps,
                                                                                             strict=True))
    if min(rows, columns) < 0:  # without any, the result is empty
        raise errors.error("RD34", attempted, f"the images have shape {tuple(images.shape)}, sizes are {size}, and "
                           f"rates {distances}", "Pass smaller sizes.", kind=errors.InvalidArgumentError)
    windows = [whole[:, top:top + rows * steps[0]:steps[0], left:left + columns * steps[1]:steps[1]]
               for top in range(0, spans[0], distances[0]) for left in range(0, spans[1], distances[1])]
    return ops.concatenate(windows, -1)


def _of_windows(value: Any, name: str, attempted: str) -> tuple[int, int]:
    lengths = ints(value)
    if not isinstance(lengths, (list, tuple)) or len(lengths) != 4 or min(lengths) < 1 or (
            lengths[0] != 1 or lengths[3] != 1):
        raise errors.error("RD34", attempted, f"{name} is {value!r}", "Pass [1, rows, columns, 1].",
                           kind=errors.InvalidArgumentError)
    return lengths[1], lengths[2]


def saturated(image: Any, factor: Any) -> Any:
    """The image with its saturation multiplied; of integers the largest is 1.0."""
    def change(own: Any) -> Any:
        hsv = to_hsv(own)
        return to_rgb(ops.stack([hsv[..., 0], ops.clip(ops.multiply(hsv[..., 1], factor), 0, 1), hsv[..., 2]], -1))
    return _as_float(image, change)


def turned(image: Any, delta: Any) -> Any:
    """The image with a number added to its hue, which is 1 all around; of integers the largest is 1.0."""
    def change(own: Any) -> Any:
        hsv = to_hsv(own)
        return to_rgb(ops.stack([ops.mod(ops.add(hsv[..., 0], delta), 1), hsv[..., 1], hsv[..., 2]], -1))
    return _as_float(image, change)


def resized_and_padded(image: Any, height: int, width: int, method: Any, antialias: bool) -> Any:
    """The image as large as fits, in the middle of a larger one of zeros.

    Raises:
        RD20: another method than of `resized`.
    """
    sides, wanted = np.array(image.shape[-3:-1], np.float32), np.array([height, width], np.float32)
    fitting = sides / (sides / wanted).max()
    top, left = (max(int(room), 0) for room in np.floor((wanted - fitting) / 2))
    return pad(resized(image, np.floor(fitting).astype(int).tolist(), method, False, antialias), top, left, height,
               width)


def _pair(first: Any, second: Any, largest: Any) -> tuple[Any, Any, Any]:
    # Two images and the largest number in them, all as float32.
    if name_of(first) != name_of(second):
        raise errors.error("RD05", "a comparison of images", f"they have dtypes {name_of(first)} and "
                           f"{name_of(second)}", "Give both one dtype.", kind=errors.InvalidTypeError)
    return tuple(scaled(each, "float32") for each in (first, second, tensor(largest, name_of(first))))


def noise(first: Any, second: Any, largest: Any) -> Any:
    """The ratio of the largest number to the differences, in decibels, one for each image."""
    first, second, largest = _pair(first, second, largest)
    distance = ops.mean(ops.square(ops.subtract(first, second)), (-3, -2, -1))
    decibels = 10 / math.log(10)  # a number of Python, beside which JAX keeps the dtype
    return ops.subtract(ops.multiply(2 * decibels, ops.log(largest)), ops.multiply(decibels, ops.log(distance)))


def similarity(first: Any, second: Any, largest: Any, size: int, sigma: float, k1: float, k2: float,
               keeps_places: bool) -> Any:
    """How alike two images are, 1 for the same: one number for each, or one for each place.

    Raises:
        RD34: an image is smaller than the filter.

    Source: Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli: Image quality assessment (2004), as `tf.image.ssim`
        states it.
    """
    first, second, largest = _pair(first, second, largest)
    if min(first.shape[-3:-1]) < size:
        raise errors.error("RD34", "tf.image.ssim", f"the images have shape {tuple(first.shape)}, and the filter size "
                           f"{size}", "Pass a smaller filter_size.", kind=errors.InvalidArgumentError)
    places = np.arange(size) - (size - 1) / 2
    weights = np.exp(-(places[:, None] ** 2 + places ** 2) / (2 * sigma ** 2))
    channels = first.shape[-1]
    kernel = tensor(np.repeat((weights / weights.sum())[..., None, None], channels, 2), "float32")

    def smooth(image: Any) -> Any:
        stacked = ops.reshape(image, (-1, *image.shape[-3:]))
        smoothed = ops.depthwise_conv(stacked, kernel, padding="valid", data_format="channels_last")
        return ops.reshape(smoothed, (*image.shape[:-3], *smoothed.shape[1:]))

    c1, c2 = (ops.square(ops.multiply(k, largest)) for k in (k1, k2))
    means = smooth(first), smooth(second)
    product = ops.multiply(ops.multiply(*means), 2)
    squares = ops.add(ops.square(means[0]), ops.square(means[1]))
    luminance = ops.divide(ops.add(product, c1), ops.add(squares, c1))
    together = ops.multiply(smooth(ops.multiply(first, second)), 2)
    apart = smooth(ops.add(ops.square(first), ops.square(second)))
    contrast = ops.divide(ops.add(ops.subtract(together, product), c2), ops.add(ops.subtract(apart, squares), c2))
    return ops.mean(ops.multiply(luminance, contrast), -1 if keeps_places else (-3, -2, -1))
