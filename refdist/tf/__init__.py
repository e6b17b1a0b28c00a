"""The names of TensorFlow that programs about distribution use, without TensorFlow.

    import refdist.tf as tf

    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])

Strategies, variables, datasets, checkpoints, the structure of nests and random generators are refdist's.  `tf.keras`
is Keras 3 on PyTorch, `tf.GradientTape` is over its autograd, `tf.function` calls the function, and the operations are
those of Keras, PyTorch and NumPy, by TensorFlow's names (`operations`).  They need `pip install '.[keras]'`, and are
imported when a program first asks for one of them.

A program that says `import tensorflow as tf` runs unchanged after `refdist.tf.install()`, or by

    python -m refdist run --tensorflow program.py
"""

import sys
from types import ModuleType
from typing import Any

import refdist as distribute
from refdist import compat as _compat
from refdist import data as _data
from refdist import errors, nest
from refdist import nn as _nn
from refdist import random as _random
from refdist import tpu as _tpu
from refdist import train as _train
from refdist.array.indexed_slices import IndexedSlices
from refdist.config import device
from refdist.core.rules.options import VariableAggregation, VariableSynchronization
from refdist.data.spec import TensorSpec
from refdist.tf import averages as _averages
from refdist.tf import features as _features
from refdist.tf import files as _files
from refdist.tf import lookup as _lookup
from refdist.tf import misfits as _misfits
from refdist.tf import names as _names
from refdist.tf import pictures as _pictures
from refdist.tf import records as _records
from refdist.tf import resizing as _resizing
from refdist.tf import sparse as _sparse
from refdist.tf import strings as _strings
from refdist.tf import summaries as _summaries
from refdist.tf import texts as _texts
from refdist.tf.constants import constant
from refdist.tf.dtypes import DTYPES, DType, as_dtype
from refdist.tf.function import function
from refdist.tf.names import Namespace as _Namespace
from refdist.tf.printing import print_ as print
from refdist.tf.settings import autograph, config, debugging, get_logger, test
from refdist.tf.settings import v1 as _v1
from refdist.tf.shapes import TensorShape
from refdist.tf.stand_in import install
from refdist.variables.creation import variable_creator_scope
from refdist.variables.variable import Variable

data = _Namespace("data", _data, {"experimental": _Namespace("data.experimental", _data.experimental)})
tpu = _Namespace("tpu", _tpu, {"experimental": _Namespace("tpu.experimental", _tpu.experimental)})
compat = _Namespace("compat", _compat, {
    "v1": _v1, "as_bytes": _texts.as_bytes, "as_text": _texts.as_text, "as_str": _texts.as_text})
nn = _Namespace("nn", _nn, {"experimental": _Namespace("nn.experimental")})
random = _Namespace("random", _random, {"experimental": _Namespace("random.experimental", _random.experimental)})
bitwise, math, linalg = map(_Namespace, ("bitwise", "math", "linalg"))
dtypes = _Namespace("dtypes", own={"DType": DType, "as_dtype": as_dtype, "half": DTYPES["float16"],
                                   "double": DTYPES["float64"], **DTYPES})


def _part(path: str, module: ModuleType, *names: str) -> dict[str, Any]:
    return {name: _misfits.checked(getattr(module, name), f"tf.{path}.{name}") for name in names}


_PICTURES = _part("io", _pictures, "decode_image", "decode_jpeg", "decode_png", "encode_jpeg", "encode_png")
io = _Namespace("io", own={
    "gfile": _Namespace("io.gfile", _files), **_PICTURES,
    **_part("io", _files, "matching_files", "read_file", "write_file"),
    **_part("io", _records, "TFRecordOptions", "TFRecordWriter", "decode_csv", "decode_raw", "parse_tensor",
            "serialize_tensor"),
    **_part("io", _features, "FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature", "parse_example",
            "parse_sequence_example", "parse_single_example", "parse_single_sequence_example")})
sparse = _Namespace("sparse", own=_part("sparse", _sparse, "SparseTensor", "from_dense", "to_dense"))
SparseTensor = sparse.SparseTensor
image = _Namespace("image", own={**_PICTURES, **_part("image", _resizing, "ResizeMethod")})
strings = _Namespace("strings", own=_part("strings", _strings, *_strings.__all__))
as_string = strings.as_string
summary = _Namespace("summary", own={
    **_part("summary", _summaries, "create_file_writer", "create_noop_writer", "flush", "histogram", "image",
            "scalar", "should_record_summaries", "text", "trace_export", "trace_off", "trace_on", "write"),
    "SummaryWriter": _summaries.SummaryWriter, "record_if": _summaries.record_if,
    "experimental": _Namespace("summary.experimental", own={
        name: getattr(_summaries, name) for name in ("get_step", "set_step", "summary_scope")})})
lookup = _Namespace("lookup", own={
    **_part("lookup", _lookup, "KeyValueTensorInitializer", "StaticHashTable", "StaticVocabularyTable",
            "TextFileInitializer"),
    "TextFileIndex": _lookup.TextFileIndex,
    "experimental": _Namespace(
        "lookup.experimental", own=_part("lookup.experimental", _lookup, "MutableHashTable"))})
train = _Namespace("train", _train, _part(
    "train", _records, "BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList",
    "Int64List", "SequenceExample") | _part("train", _averages, "ExponentialMovingAverage"))

bool, string, bfloat16 = DTYPES["bool"], DTYPES["string"], DTYPES["bfloat16"]
float16, float32, float64 = DTYPES["float16"], DTYPES["float32"], DTYPES["float64"]
int8, int16, int32, int64 = DTYPES["int8"], DTYPES["int16"], DTYPES["int32"], DTYPES["int64"]
uint8, uint16, uint32, uint64 = DTYPES["uint8"], DTYPES["uint16"], DTYPES["uint32"], DTYPES["uint64"]
complex64, complex128 = DTYPES["complex64"], DTYPES["complex128"]
half, double = float16, float64
newaxis = None
__version__ = "2.21.0+refdist"
version = _Namespace("version", own={"VERSION": __version__, "GIT_VERSION": "refdist", "COMPILER_VERSION": ""})

__all__ = [
    "IndexedSlices", "SparseTensor", "TensorShape", "TensorSpec", "Variable", "VariableAggregation",
    "VariableSynchronization", "as_dtype", "as_string", "autograph", "bfloat16", "bitwise", "bool", "compat",
    "complex128", "complex64", "config", "constant", "data", "debugging", "device", "distribute", "double", "dtypes",
    "errors", "float16", "float32", "float64", "function", "get_logger", "half", "image", "install", "int16", "int32",
    "int64", "int8", "io", "linalg", "lookup", "math", "nest", "newaxis", "nn", "print", "random", "sparse", "string",
    "strings", "summary", "test", "tpu", "train", "uint16", "uint32", "uint64", "uint8", "variable_creator_scope",
    "version",
]


_texts.connect()


class _Face(ModuleType):
    @property
    def keras(self) -> Any:
        """Keras, not the folder of that name, which Python sets as an attribute when it is imported."""
        from refdist.tf import tensors
        return tensors.keras()

    @keras.setter
    def keras(self, folder: object) -> None:
        pass


sys.modules[__name__].__class__ = _Face


def __getattr__(name: str) -> Any:
    return _names.later(sys.modules[__name__], name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_names.LATER, *(name for name in globals() if name.startswith("__"))})
