"""Datasets of a folder's files, by the functions of Keras, which leave the datasets to TensorFlow.

Keras finds the files, their classes and their order; the datasets of them are made here, with the specs that `map` does
not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras.src.utils import (
    audio_dataset_utils,
    dataset_utils,
    image_dataset_utils,
    text_dataset_utils,
)

import refdist.tf as tf
from refdist import errors
from refdist.data.dataset import Dataset
from refdist.data.spec import TensorSpec


def connect() -> None:
    """From now on Keras makes these datasets."""
    dataset_utils.labels_to_dataset_tf = _labels
    image_dataset_utils._paths_and_labels_to_dataset_tf = _pictures
    text_dataset_utils._paths_and_labels_to_dataset_tf = _texts
    audio_dataset_utils.paths_and_labels_to_dataset = _sounds


def _known(dataset: Dataset, spec: object) -> Dataset:
    # The dataset with a spec that its functions do not say.
    dataset._pipeline.facts = dataset._pipeline.facts._replace(spec=spec)
    return dataset


def _labels(labels: Any, label_mode: str, num_classes: int) -> Dataset:
    dataset = Dataset.from_tensor_slices(labels)
    if label_mode == "binary":
        return _known(dataset.map(lambda label: tf.cast(label, "float32")[None]), TensorSpec((1,), "float32"))
    if label_mode == "categorical":
        return _known(dataset.map(lambda label: tf.one_hot(label, num_classes)), TensorSpec((num_classes,), "float32"))
    return dataset


def _loaded(dataset: Dataset, load: Callable[[Any], Any], spec: TensorSpec, has_labels: bool) -> Dataset:
    if not has_labels:
        return _known(dataset.map(load), spec)
    return _known(dataset.map(lambda path, label: (load(path), label)), (spec, dataset.element_spec[1]))


def _paths(paths: Any, labels: Any, label_mode: Any, num_classes: int, shuffle: bool, size: int | None,
           seed: Any) -> Dataset:
    dataset = Dataset.from_tensor_slices(paths)
    if label_mode:
        dataset = Dataset.zip(dataset, _labels(labels, label_mode, num_classes))
    return dataset.shuffle(size or 1024, seed) if shuffle else dataset


def _pictures(image_paths: Any, image_size: Any, num_channels: int, labels: Any, label_mode: Any,
              num_classes: int, interpolation: str, data_format: str, crop_to_aspect_ratio: bool = False,
              pad_to_aspect_ratio: bool = False, shuffle: bool = False, shuffle_buffer_size: int | None = None,
              seed: Any = None) -> Dataset:
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise errors.error("RD34", "image_dataset_from_directory", "crop_to_aspect_ratio and pad_to_aspect_ratio "
                           "are both True", "Pass one of the two.")
    height, width = image_size

    def load(path: Any) -> Any:
        picture = tf.image.decode_image(tf.io.read_file(path), num_channels, expand_animations=False)
        if crop_to_aspect_ratio:
            picture = tf.image.resize(_cropped(picture, height, width), image_size, interpolation)
        elif pad_to_aspect_ratio:
            picture = tf.image.resize_with_pad(picture, height, width, interpolation)
        else:
            picture = tf.image.resize(picture, image_size, interpolation)
        return tf.transpose(picture, (2, 0, 1)) if data_format == "channels_first" else picture

    shape = (height, width, num_channels) if data_format == "channels_last" else (num_channels, height, width)
    paths = _paths(image_paths, labels, label_mode, num_classes, shuffle, shuffle_buffer_size, seed)
    return _loaded(paths, load, TensorSpec(shape, "uint8" if interpolation == "nearest" else "float32"),
                   bool(label_mode))


def _cropped(picture: Any, height: int, width: int) -> Any:
    # The middle of a picture, with the sides' ratio of the size.
    rows, columns = picture.shape[:2]
    kept_rows = max(min(rows, int(float(columns * height) / width)), 1)
    kept_columns = max(min(columns, int(float(rows * width) / height)), 1)
    top, left = int(float(rows - kept_rows) / 2), int(float(columns - kept_columns) / 2)
    return picture[top:top + kept_rows, left:left + kept_columns]


def _texts(file_paths: Any, labels: Any, label_mode: Any, num_classes: int, max_length: int | None,
           shuffle: bool = False, shuffle_buffer_size: int | None = None, seed: Any = None) -> Dataset:
    def load(path: Any) -> Any:
        text = tf.io.read_file(path)
        return text if max_length is None else tf.strings.substr(text, 0, max_length)

    paths = _paths(file_paths, labels, label_mode, num_classes, shuffle, shuffle_buffer_size, seed)
    return _loaded(paths, load, TensorSpec((), object), bool(label_mode))


def _sounds(*args: object, **kwargs: object) -> Any:
    raise errors.error("RD20", "tf.keras.utils.audio_dataset_from_directory", "refdist reads no sounds",
                       "Read them with a package of your choice, for `Dataset.from_generator`.",
                       kind=errors.MissingNameError)
