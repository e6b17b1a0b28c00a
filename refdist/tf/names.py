"""Where TensorFlow's names are found: in refdist, in the table of operations, or nowhere, with what to write instead.

Nothing is imported for a name before a program asks for it: Keras and PyTorch take seconds.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from refdist import data, errors, missing
from refdist.tf import operations, tensors

# What Keras has by the same name.
_KERAS = ("constraints", "initializers", "losses", "metrics", "optimizers", "regularizers")
# What makes the values of variables, by the names that Keras has for it.
_INITIALIZERS = {"zeros_initializer": "Zeros", "ones_initializer": "Ones", "constant_initializer": "Constant",
                 "random_normal_initializer": "RandomNormal", "random_uniform_initializer": "RandomUniform"}
_OF_TAPES = ("GradientTape", "UnconnectedGradients", "custom_gradient")
_OF_FLOW = ("TensorArray", "control_dependencies", "init_scope")
_ROWS = "Read the lines with `tf.data.TextLineDataset(path).skip(1)`, and `map` them with `tf.io.decode_csv`."
_EXAMPLES = "Write `tf.data.TFRecordDataset(paths).batch(n).map(lambda x: tf.io.parse_example(x, features))`."
# What to write instead of a path below `tf`, in the words of a program of TensorFlow's.
INSTEAD = {
    "saved_model": missing.NO_SAVED_MODELS,
    "summary.audio": "Leave it out: refdist writes no sounds.",
    "summary.graph": missing.NO_GRAPHS,
    "ragged": "Make the rows as long as the longest: `dataset.padded_batch`, `tf.keras.utils.pad_sequences`.",
    "RaggedTensor": "Make the rows as long as the longest: `dataset.padded_batch`, `tf.keras.utils.pad_sequences`.",
    "sparse": "Write the whole tensor: `tf.sparse.to_dense`, `tf.one_hot`, `tf.scatter_nd`.",
    "feature_column": "Write layers: `tf.keras.layers.StringLookup`, `CategoryEncoding`, `Normalization`.",
    "data.experimental.Counter": "Write `tf.data.Dataset.range(start, 2**62, step)`.",
    "data.experimental.CsvDataset": _ROWS,
    "data.experimental.make_csv_dataset": _ROWS,
    "data.experimental.make_batched_features_dataset": _EXAMPLES,
    "data.experimental.parse_example_dataset": _EXAMPLES,
    "data.experimental.map_and_batch": "Write `dataset.map(function).batch(size)`.",
    "data.experimental.shuffle_and_repeat": "Write `dataset.shuffle(buffer_size).repeat(count)`.",
    "data.experimental.enumerate_dataset": "Write `dataset.enumerate(start)`.",
    "data.experimental.parallel_interleave": "Write `dataset.interleave(function, cycle_length)`.",
    "data.experimental.prefetch_to_device": "Write `dataset.prefetch(tf.data.AUTOTUNE)`.",
    "data.experimental.copy_to_device": "Leave it out: strategies put each replica's part on its device.",
    "data.experimental.get_structure": "Write `dataset.element_spec`.",
    "data.experimental.get_next_as_optional": "Write `iterator.get_next_as_optional()`.",
    "data.experimental.SqlDataset": "Read the rows in a generator, for `tf.data.Dataset.from_generator`.",
}
# The modules whose names are no computations.
_OTHERS = ("compat", "config", "data", "errors", "saved_model", "tpu", "train", "version")
# The names of `tf` that are found when they are asked for.
LATER = {"keras", "name_scope", "Module", "Tensor", *_KERAS, *_INITIALIZERS, *_OF_FLOW, *_OF_TAPES,
         *(path for path in operations.OPERATIONS if "." not in path)}


class Namespace(ModuleType):
    """A module of TensorFlow's: what refdist has for it, names of its own, and operations of the table.

    Args:
        path: its place below `tf`.
        base: the module of refdist that it stands for.
        own: names of its own.
        later: names that are imported when they are asked for, by the modules that have them.
    """

    def __init__(self, path: str, base: ModuleType | None = None, own: Mapping[str, object] | None = None,
                 later: Mapping[str, str] | None = None) -> None:
        super().__init__(f"refdist.tf.{path}", base.__doc__ if base else None)
        self._path = path
        self._base = base
        self._later = later or {}
        vars(self).update(own or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._later:
            vars(self)[name] = getattr(_imported(self._later[name]), name)
            return vars(self)[name]
        is_refdists = self._base is not None and name in dir(self._base)
        try:
            operation = operations.find(f"{self._path}.{name}")
        except errors.MissingPackageError:  # without Keras there are refdist's variables, and no tensors
            if not is_refdists:
                raise
            operation = None
        if operation is None:
            return vars(self._base)[name] if is_refdists else _refuse(self, name, self._path)
        setattr(self, name, operation)
        return operation

    def __dir__(self) -> list[str]:
        below = {path.rpartition(".")[2] for path in operations.OPERATIONS if path.rpartition(".")[0] == self._path}
        return sorted({*(name for name in vars(self) if name[0] != "_"), *(dir(self._base) if self._base else ()),
                       *below, *self._later})


def _imported(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise errors.error("RD27", f"import {module}", f"the package {error.name} is not installed",
                           "It comes with Keras: `pip install keras`.", kind=errors.MissingPackageError) from error


def _refuse(module: ModuleType, name: str, path: str) -> object:
    # A name of which nothing is known may be TensorFlow's: what there is, is said.
    place, whole = f"tf.{path}".rstrip("."), f"{path}.{name}".lstrip(".")
    advice = INSTEAD.get(whole) or INSTEAD.get(path) or (INSTEAD.get(name) if path == "compat.v1" else None)
    if advice is None and path == "data.experimental" and name in vars(data.Dataset):
        getattr(data.Dataset, name)  # says what to write where it is missing, too
        advice = f"Write `tf.data.Dataset.{name}`."
    if advice:
        raise _missing(whole, advice)
    if path == "compat.v1" and name in _names_of_tf():
        raise _missing(whole, f"Write `tf.{name}`, as TensorFlow 2 has it.")
    try:
        return missing.refuse(module, name)
    except errors.MissingNameError:
        raise
    except AttributeError as error:
        if name.startswith("_"):
            raise
        advice = f"Use what `dir({place})` lists" if path.partition(".")[0] in _OTHERS else (
            f"Compute it of what `dir({place})` lists, or, without gradients, in `tf.numpy_function`")
        near = difflib.get_close_matches(name, dir(module), 1, 0.8)
        advice += f"; the nearest name is `{place}.{near[0]}`." if near else "."
        raise _missing(whole, advice) from error


def _missing(path: str, advice: str) -> errors.RefdistError:
    return errors.error("RD20", f"tf.{path}", f"refdist has no {path.rpartition('.')[2]}", advice,
                        kind=errors.MissingNameError)


@functools.cache
def _names_of_tf() -> frozenset[str]:
    from refdist import tf
    return frozenset(dir(tf))


def later(face: ModuleType, name: str) -> Any:
    """A name of `tf` that is found when it is asked for: Keras or a part of it, the tape, an operation."""
    if name in _OF_TAPES:
        from refdist.tf import tape
        value = getattr(tape, name)
    elif name in _OF_FLOW:
        from refdist.tf import flow
        value = getattr(flow, name)
    elif name == "name_scope":
        from refdist.tf.scopes import name_scope
        value = name_scope
    elif name == "Module":
        from refdist.tf.module import Module
        value = Module
    elif name in _INITIALIZERS:
        value = getattr(tensors.keras().initializers, _INITIALIZERS[name])
    elif name == "keras" or name in _KERAS:
        library = tensors.keras()
        value = library if name == "keras" else getattr(library, name)
    else:
        value = tensors.kind() if name == "Tensor" else operations.find(name)
    if value is None:
        return _refuse(face, name, "")
    setattr(face, name, value)
    return value
