"""The names of refdist at TensorFlow's paths, so that a program written for TensorFlow can be pasted.

    import refdist.tf as tf

    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])

It has what distribution is about: strategies, variables, datasets, checkpoints, the structure of nests, random
generators. It is not a library of operations; arrays are NumPy's, and so are the operations on them.
"""

import numpy as np

import refdist as distribute
from refdist import compat, config, data, errors, nest, nn, random, tpu, train
from refdist.array.backend import constant
from refdist.array.indexed_slices import IndexedSlices
from refdist.config import device
from refdist.core.rules.options import VariableAggregation, VariableSynchronization
from refdist.data.spec import TensorSpec
from refdist.variables.creation import variable_creator_scope
from refdist.variables.variable import Variable

bool = np.dtype("bool")
float16, float32, float64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
int8, int16, int32, int64 = np.dtype("int8"), np.dtype("int16"), np.dtype("int32"), np.dtype("int64")
uint8, uint16, uint32, uint64 = np.dtype("uint8"), np.dtype("uint16"), np.dtype("uint32"), np.dtype("uint64")
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")

__all__ = [
    "IndexedSlices", "TensorSpec", "Variable", "VariableAggregation", "VariableSynchronization", "bool", "compat",
    "complex64", "complex128", "config", "constant", "data", "device", "distribute", "errors", "float16", "float32",
    "float64", "int8", "int16", "int32", "int64", "nest", "nn", "random", "tpu", "train", "uint8", "uint16", "uint32",
    "uint64", "variable_creator_scope",
]
