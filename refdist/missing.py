"""What TensorFlow has and refdist lacks: what to write instead.  The porting table is in docs/porting.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import TypeVar

import numpy as np

from refdist import errors

_NUMPY = "Use NumPy, or the framework of your choice, in the function that `strategy.run` calls."
NO_GRAPHS = "There are no graphs: make variables and call functions as they are, and leave this out."
TRACES_NOTHING = "Leave it out: functions are called, and not traced."
NO_SAVED_MODELS = ("Write `model.save(\"name.keras\")` and `tf.keras.models.load_model`; `tf.train.Checkpoint` saves "
                   "what is no model.")
NO_PROTOS = "Leave it out: it belongs to protocol buffers, of which there are none here."
# What the specs of TensorFlow's values have for the tracing of functions, and what to write.
OF_SPECS = {
    "cast experimental_from_proto experimental_type_proto flatten from_tensors placeholder_value to_tensors value_type":
        TRACES_NOTHING,
    "is_subtype_of most_specific_common_supertype most_specific_compatible_type": "Write `is_compatible_with`.",
    "experimental_as_proto": NO_PROTOS,
}
_Class = TypeVar("_Class", bound=type)
_GENERATOR = "Make a `refdist.random.Generator.from_seed(seed)` in the scope of the strategy, and call its methods."

_ADVICE = {
    "distribute": "Leave the word out: `refdist.X` is `tf.distribute.X`.",
    "function": "Call the function as it is: there are no graphs.",
    "GradientTape gradients stop_gradient custom_gradient":
        "Write the gradient, or ask JAX, PyTorch or autograd for it; sum it with `all_reduce`.",
    "keras losses ops raw_ops math linalg image signal audio estimator feature_column": _NUMPY,
    "relu softmax log_softmax sigmoid dropout conv2d max_pool avg_pool bias_add l2_loss batch_normalization "
    "softmax_cross_entropy_with_logits sparse_softmax_cross_entropy_with_logits "
    "sigmoid_cross_entropy_with_logits": _NUMPY,
    "metrics": "Use a variable with synchronization ON_READ and aggregation SUM for each sum.",
    "optimizers": "Sum the gradient with `all_reduce`, and write the step with `variable.assign_sub`.",
    "identity": "Leave it out; for an array that may be changed write `x.copy()`.",
    "range": "Write `np.arange`.",
    "cast": "Write `x.astype(dtype)`.",
    "concat": "Write `np.concatenate`.",
    "rank": "Write `np.ndim`.",
    "fill": "Write `np.full`.",
    "one_hot": "Write `np.eye(depth)[indices]`.",
    "gather gather_nd boolean_mask": "Index the array: `x[indices]`.",
    "reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_any reduce_all":
        "Write NumPy's function without `reduce_`, such as `np.sum`.",
    "Tensor": "Arrays are NumPy's, or those of the backend: write `np.ndarray`.",
    "convert_to_tensor": "Write `refdist.constant(x)`, or `np.asarray(x)`.",
    "TensorShape": "Shapes are tuples.",
    "TypeSpec": "Write `refdist.TensorSpec`, or take the `element_spec` of a dataset.",
    "dtypes DType as_dtype": "Dtypes are NumPy's: write `np.float32`, or `tf.float32` of `refdist.tf`.",
    "string": "Text is `str`: write `np.dtype(str)`.",
    "bfloat16": "Write `ml_dtypes.bfloat16`.",
    "ragged RaggedTensor RaggedTensorSpec": "Rows of different lengths are an array of dtype object.",
    "sparse SparseTensor SparseTensorSpec": "Use arrays, or `IndexedSlices` for rows of one.",
    "saved_model": "Save variables with `refdist.train.Checkpoint`.",
    "Module": "Write a class of your own: `Checkpoint` finds the variables that are attributes of an object.",
    "load_variable": "Write `load_checkpoint(path).get_tensor(name)`.",
    "get_checkpoint_state": "Write `latest_checkpoint`, or the `checkpoints` of a manager.",
    "CheckpointOptions": "Leave it out: when `save` returns, the file is written.",
    "name_scope": "Leave it out: the name of a variable is what its `name` says.",
    "set_seed normal uniform truncated_normal categorical stateless_normal stateless_uniform": _GENERATOR,
    "cond case switch_case while_loop map_fn vectorized_map scan foldl foldr autograph":
        "Write `if`, `for` or `while`: functions are called, and not traced.",
    "py_function numpy_function": "Call the function.",
    "executing_eagerly": "Leave it out: every operation is carried out at once.",
    "Graph Session InteractiveSession placeholder get_variable global_variables_initializer init_scope "
    "control_dependencies no_op disable_eager_execution disable_v2_behavior reset_default_graph": NO_GRAPHS,
    "app flags": "Write `argparse`, or the package absl-py, whose modules they are.",
    "debugging": "Write `assert`.",
    "assign assign_add assign_sub": "Write `variable.assign(value)`, and for some of its items "
                                    "`variable.scatter_nd_update(indices, updates)`.",
    "lookup": "Write a `dict`.",
    "io strings": "Use Python's own.",
    "summary profiler": "Record the program with `refdist.record()`.",
    "set_visible_devices set_memory_growth threading":
        "State the devices with `refdist.config.set_simulated_devices`, or REFDIST_DEVICES.",
    "FixedLengthRecordDataset": "Read the file in a generator, for `Dataset.from_generator`.",
    "OperatorNotAllowedInGraphError":
        "Leave it out: refdist never raises it. `refdist.errors.OpError` is any error of refdist.",
    "make_dataset_iterator_dyn make_input_fn_iterator_dyn":
        "Leave `_dyn` out: the overload belongs to a binding for another language.",
}
INSTEAD = {name: advice for names, advice in _ADVICE.items() for name in names.split()}


class Missing:
    """A class attribute that raises an AttributeError with advice; so `hasattr` is False.

    Args:
        advice: what to write instead; "" for what the table says of its name.
    """

    def __init__(self, advice: str = "") -> None:
        self._advice = advice

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> object:
        raise with_advice(owner.__name__, self._name, self._advice or INSTEAD[self._name])


def lacks(advice: Mapping[str, str]) -> Callable[[_Class], _Class]:
    """Decorates a class that lacks names which TensorFlow's has.

    Args:
        advice: what to write instead, by names, several of them in a text.
    """
    def add(owner: _Class) -> _Class:
        for names, text in advice.items():
            for name in names.split():
                missing = Missing(text)
                missing.__set_name__(owner, name)
                setattr(owner, name, missing)
        return owner
    return add


def explain(modules: Mapping[str, ModuleType]) -> None:
    """From now on refdist's modules say what to write for a name that they lack, and `dir` shows what they list."""
    package = __name__.partition(".")[0]
    for name, module in list(modules.items()):
        if name.partition(".")[0] == package:
            own = vars(module)
            own.setdefault("__getattr__", partial(refuse, module))
            if "__all__" in own:
                shown = {*own["__all__"], *(each for each in own if each.startswith("__"))}
                own.setdefault("__dir__", partial(sorted, shown))


def refuse(module: ModuleType, name: str) -> object:
    """Raises the AttributeError for a name that a module lacks.

    Raises:
        RD20: TensorFlow has the name.
    """
    advice = INSTEAD.get(name) or (f"Write `np.{name}`." if name in np.__all__ else "")
    if advice:
        raise with_advice(module.__name__, name, advice)
    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)


def name_the_option(error: ModuleNotFoundError) -> None:
    """Adds what to write to the error of a script that imports TensorFlow, where it is run without `--tensorflow`."""
    if (error.name or "").partition(".")[0] == "tensorflow":
        error.msg += "; write `--tensorflow` before the script, and the import finds refdist.tf"


def with_advice(owner: str, name: str, advice: str) -> errors.RefdistError:
    """The error for a name that is missing.

    Args:
        owner: the module or class.
        name: the name.
        advice: what to write instead.
    """
    return errors.error("RD20", f"{owner}.{name}", f"refdist has no {name}", advice, kind=errors.MissingNameError)
