"""Puts `refdist.tf` in TensorFlow's place, for the program's own imports.

A program says `import tensorflow as tf`, `from tensorflow import keras` or `from tensorflow.keras import layers`.
Keras and PyTorch's tools also look whether TensorFlow is there, in many places, and would use what they find; they are
told the truth.  So nothing is put into `sys.modules`, which does not know who asks, and no finder is added, which would
put it there: `import` itself is answered, by the globals of the module that imports.  A module is the program's own
unless its file is Python's or lies among the installed packages.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from refdist import errors, missing
from refdist.array.backend import set_backend
from refdist.cluster_resolver.cloud import needs_tpu
from refdist.runtime import Field
from refdist.tf.own import is_own

NAME = "tensorflow"
_installed: Field[bool] = Field("whether refdist.tf stands in TensorFlow's place", lambda: False, kept=True)
# Packages beside TensorFlow that programs import, and what to write instead.
_BESIDE = {
    "tensorflow_hub": "Load the layer or model with `tf.keras.models.load_model`.",
    "tensorflow_datasets": "Make a dataset of arrays: `tf.data.Dataset.from_tensor_slices(...)`, for example of "
                           "`tf.keras.datasets.mnist.load_data()`.",
}


def install() -> None:
    """Lets `import tensorflow` of the program find `refdist.tf`, from now on.

    Everything becomes a tensor, as in TensorFlow: what `tf.constant` makes, and the elements of datasets.  Call it at
    the top of a program or notebook, before the first `import tensorflow`.

    Raises:
        RD09: TensorFlow itself is loaded; or called inside a scope or a replica.
        RD27: Keras, or the library below it, is not installed.

    Source: refdist's own.
    """
    from refdist.tf import tensors

    if NAME in sys.modules and not _installed.value:
        raise errors.error("RD09", "refdist.tf.install", "TensorFlow itself is loaded, so the program would have both",
                           "Call it before anything imports TensorFlow, in a new process.")
    if not _installed.value:
        tensors.keras()
        set_backend(tensors.library())
        _installed.value = needs_tpu.value = True
        builtins.__import__ = _answering(builtins.__import__)


def _answering(python: Any) -> Any:
    @functools.wraps(python)
    def answer(name: str, globals: Mapping[str, Any] | None = None, locals: object = None,
               fromlist: Sequence[str] | None = (), level: int = 0) -> Any:
        package = name.partition(".")[0]
        if level or not package.startswith(NAME) or not is_own(globals):
            return python(name, globals, locals, fromlist, level)
        if package == NAME:
            return _found(name, fromlist)
        try:
            return python(name, globals, locals, fromlist, level)
        except ModuleNotFoundError as error:
            if error.name != package or package not in _BESIDE:
                raise
            raise errors.error("RD20", f"import {package}", "refdist has nothing in its place", _BESIDE[package],
                               kind=errors.MissingPackageError) from None
    return answer


def _found(name: str, fromlist: Sequence[str] | None) -> Any:
    from refdist import tf

    place: Any = tf
    for part in name.split(".")[1:]:
        place = _part(place, part, name)
    for part in fromlist or ():
        if part != "*":
            _part(place, part, name)
    return place if fromlist else tf


def _part(place: Any, part: str, name: str) -> Any:
    try:
        return getattr(place, part)
    except errors.MissingNameError as error:
        raise errors.error("RD20", f"import {name}", str(error).partition("] ")[2].partition(". ")[0],
                           missing.INSTEAD.get(part, ""), kind=errors.MissingPackageError) from error
    except AttributeError as error:
        raise ImportError(f"cannot import name {part!r} from {name!r}: refdist.tf has none", name=name) from error
