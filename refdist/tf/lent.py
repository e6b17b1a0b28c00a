"""What Keras computes with TensorFlow's own names: some of its modules are given `refdist.tf`, the rest is refused.

Keras asks in many places whether TensorFlow is there, and is told that it is not.  The modules of `_MODULES` are about
datasets, or are functions of tensors, and their code runs on what refdist has.  And `tf.keras` has names that `keras`
has not, of Keras 2 (`tf.keras.backend.mean`, `tf.keras.preprocessing.text.Tokenizer`): they are added.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from types import ModuleType, SimpleNamespace
from typing import Any

from refdist import errors
from refdist.data import Dataset
from refdist.missing import NO_SAVED_MODELS
from refdist.tf.keras.seams import replace
from refdist.tf.own import LENT

_MODULES = ("utils.image_dataset_utils", "utils.text_dataset_utils", "utils.timeseries_dataset_utils",
            "layers.preprocessing.normalization", "layers.preprocessing.discretization", "legacy.layers")
# Where Keras keeps the names of `tf.keras`.
_NAMES = "keras._tf_keras.keras"
_SAVED = "refdist writes and reads no SavedModel", NO_SAVED_MODELS
# What is refused when it is called: why, and what to write instead.
_REFUSED = {
    "export.ExportArchive": _SAVED,
    "layers.TFSMLayer": _SAVED,
    "layers.HashedCrossing": ("Keras computes it with TensorFlow", "Write `tf.strings.join` of the features, and "
                              "`tf.keras.layers.Hashing` of that."),
    "utils.FeatureSpace": ("Keras computes it with TensorFlow", "Write a layer for each feature, `Normalization`, "
                           "`StringLookup` or `IntegerLookup`, and `tf.concat`."),
}
# Functions of `tf.keras.backend` that ask for what refdist has not, and what to write instead.
_FUNCTIONS = {
    "bias_add": "Write `tf.nn.bias_add(x, bias)`.",
    "conv1d conv2d conv3d": "Write `tf.keras.ops.conv(x, kernel, strides, padding)`.",
    "conv2d_transpose": "Write `tf.keras.ops.conv_transpose(x, kernel, strides, padding)`.",
    "ctc_batch_cost": "Write `tf.keras.ops.ctc_loss(y_true, tf.math.log(y_pred), label_length, input_length, "
                      "mask_index=classes - 1)`, with lengths of shape (batch,).",
    "ctc_decode": "Write `tf.keras.ops.ctc_decode(tf.math.log(y_pred), input_length, mask_index=classes - 1)`.",
    "ctc_label_dense_to_sparse": "Leave it out: `tf.keras.ops.ctc_loss` takes the labels as they are.",
    "depthwise_conv2d": "Write `tf.keras.ops.depthwise_conv(x, kernel, strides, padding)`.",
    "dropout": "Write `tf.nn.dropout(x, rate)`.",
    "in_top_k": "Write `tf.math.in_top_k(targets, predictions, k)`.",
    "pool2d pool3d": "Write `tf.keras.ops.max_pool(x, pool_size, strides, padding)`, or `average_pool`.",
    "random_normal_variable": "Write `tf.Variable(tf.random.normal(shape, mean, scale))`.",
    "random_uniform_variable": "Write `tf.Variable(tf.random.uniform(shape, low, high))`.",
    "resize_images": "Write `tf.image.resize(x, (height, width), \"nearest\")`.",
    "rnn": "Write the loop in Python, or `tf.keras.layers.RNN(cell)`.",
    "separable_conv2d": "Write `tf.keras.ops.separable_conv(x, depthwise_kernel, pointwise_kernel, strides, padding)`.",
}
_REFUSED.update({f"backend.{name}": ("refdist has not all that Keras asks TensorFlow for in it", advice)
                 for names, advice in _FUNCTIONS.items() for name in names.split()})
# How many rows of a dataset without batches a layer that adapts itself reads at once.
_ROWS = 128
# The formats of `Model.export` that TensorFlow writes.
_FORMATS = ("tf_saved_model", "litert")
# What TensorBoard shows a model by: a SummaryMetadata whose plugin is this, of version 1.
_MODEL = b"\n\x16\n\x11graph_keras_model\x12\x011"


def connect(keras: Any) -> None:
    """From now on these modules compute with `refdist.tf`, and Keras has the names of `tf.keras`."""
    from refdist import tf

    for name in _MODULES:
        import_module(f"keras.src.{name}").tf = tf  # type: ignore[attr-defined]
    import_module(LENT).tf = _ForFunctions("tensorflow")  # type: ignore[attr-defined]
    _add_names(import_module(_NAMES), keras)
    import_module("keras.src.utils.module_utils").tensorflow.initialize = _refuse
    boards = import_module("keras.src.callbacks.tensorboard")
    boards.keras_model_summary = _written  # type: ignore[attr-defined]
    keras.callbacks.TensorBoard.summary = property(lambda self: tf.summary)
    replace(keras.callbacks.TensorBoard, "__init__", _drawing)
    replace(keras.layers.Normalization, "adapt", _adapting)
    replace(keras.Model, "export", _exporting)
    replace(keras.utils, "split_dataset", _splitting)
    for path, (why, advice) in _REFUSED.items():
        place, _, name = path.partition(".")
        setattr(getattr(keras, place), name, _Refused(f"tf.keras.{path}", why, advice))


class _ForFunctions(ModuleType):
    # `tf` for the functions of `tf.keras.backend`: where they say `tf.compat.v1`, the operations are the same.
    SparseTensor = RaggedTensor = type("NoTensor", (), {})  # what no value is

    def __getattr__(self, name: str) -> Any:
        from refdist import tf

        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(tf, name)

    @property
    def compat(self) -> Any:
        return SimpleNamespace(v1=self, dimension_value=lambda size: size)

    @staticmethod
    def assign_add(variable: Any, value: Any) -> Any:
        return variable.assign_add(value)

    @staticmethod
    def assign_sub(variable: Any, value: Any) -> Any:
        return variable.assign_sub(value)

    @staticmethod
    def assign(variable: Any, value: Any) -> Any:
        return variable.assign(value)


def _add_names(source: ModuleType, target: ModuleType) -> None:
    for name, value in tuple(vars(source).items()):
        if name.startswith("_"):
            continue
        if not hasattr(target, name):
            setattr(target, name, value)
        elif isinstance(value, ModuleType) and value.__name__.startswith(_NAMES):
            _add_names(value, getattr(target, name))


def _refuse() -> None:
    raise errors.error("RD20", "a part of Keras that computes with TensorFlow", "TensorFlow is not here",
                       "Use another layer or function of Keras, or compute it with `tf` before the model.",
                       kind=errors.MissingPackageError)


class _Refused:
    # Not a function: programs also ask for the attributes of these classes.
    def __init__(self, path: str, why: str, advice: str) -> None:
        self._error = "RD20", path, why, advice

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise errors.error(*self._error, kind=errors.MissingNameError)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self()


def _splitting(original: Callable[..., Any]) -> Callable[..., Any]:
    def split_dataset(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(dataset, Dataset):
            raise errors.error("RD20", "tf.keras.utils.split_dataset", "Keras splits datasets with TensorFlow",
                               "Write `dataset.take(n)` and `dataset.skip(n)`.", kind=errors.MissingNameError)
        return original(dataset, *args, **kwargs)
    return split_dataset


def _written(name: str, data: Any, step: Any = None) -> Any:
    # What a model is made of, for the graph that TensorBoard draws of it; as Keras's `keras_model_summary`.
    from refdist import tf

    try:
        described = data.to_json()
    except Exception as failure:  # of layers that the program has written
        warnings.warn(f"Model failed to serialize as JSON. Ignoring... {failure}", stacklevel=2)
        return False
    with tf.summary.experimental.summary_scope(name) as (tag, _):
        return tf.summary.write(tag, described, step, _MODEL)


def _drawing(original: Callable[..., Any]) -> Callable[..., Any]:
    # Nothing is profiled: there is no runtime of TensorFlow.
    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807
        given = signature(original).bind(*args, **kwargs).arguments
        if given.get("embeddings_freq"):
            raise errors.error("RD20", "tf.keras.callbacks.TensorBoard", f"embeddings_freq is "
                               f"{given['embeddings_freq']}, and refdist describes no embeddings for TensorBoard",
                               "Leave it out, and save the weights: `tf.keras.callbacks.ModelCheckpoint`.")
        original(**{name: value for name, value in given.items() if name != "profile_batch"})
    return __init__


def _adapting(original: Callable[..., Any]) -> Callable[..., Any]:
    # The spec of a dataset may not know the lengths that the layer asks for; its batches do.
    def adapt(self: Any, data: Any) -> None:
        if isinstance(data, Dataset):
            spec = data.element_spec
            rows = spec[0] if isinstance(spec, tuple) else spec
            data = iter(data.batch(_ROWS) if len(rows.shape) == 1 else data)
        original(self, data)
    return adapt


def _exporting(original: Callable[..., Any]) -> Callable[..., Any]:
    def export(self: Any, filepath: Any, format: str = "tf_saved_model", *args: Any, **kwargs: Any) -> Any:
        if format in _FORMATS:
            raise errors.error("RD20", f"{type(self).__name__}.export", *_SAVED, kind=errors.MissingNameError)
        return original(self, filepath, format, *args, **kwargs)
    return export
