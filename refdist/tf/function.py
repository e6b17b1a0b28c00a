"""`tf.function`: the function itself, because nothing is traced here; its signature is checked.

What TensorFlow does once, when it traces, happens here in every call, as the Python code says.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from refdist import errors, nest
from refdist.data.spec import TensorSpec, spec_of
from refdist.missing import TRACES_NOTHING, lacks
from refdist.tf import scopes
from refdist.variables.values import PerReplica


@lacks({
    "experimental_get_compiler_ir experimental_get_tracing_count function_spec function_type "
    "get_initialization_function pretty_printed_concrete_signatures": TRACES_NOTHING,
    "name": "Write `function.__name__`.",
})
class Function:
    """What `tf.function` makes of a function: it is called as the function, and checks an `input_signature`.

    Attributes:
        python_function: the function.
        input_signature: a TensorSpec for each argument, or a nest of them; None for no check.

    Source: tf.types.experimental.PolymorphicFunction.
    """

    def __init__(self, function: Callable[..., Any], input_signature: Sequence[object] | None) -> None:
        self.python_function = function
        self.input_signature = None if input_signature is None else tuple(input_signature)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.input_signature is not None:
            self._check(self.input_signature, self.python_function, args, kwargs)
        with scopes.of_function():
            return self.python_function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else Method(self, instance)

    def __repr__(self) -> str:
        return f"<tf.function of {getattr(self.python_function, '__qualname__', self.python_function)}>"

    def get_concrete_function(self, *args: object, **kwargs: object) -> Any:
        """Not here.

        Raises:
            RD20: always.
        """
        raise errors.error("RD20", f"get_concrete_function of {self}", "functions are called, and not traced",
                           "Call the function.", kind=errors.MissingNameError)

    def _check(self, signature: Sequence[object], function: Callable[..., Any], args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> None:
        # A call with arguments that the function does not take is Python's error.
        values = tuple(inspect.signature(function).bind(*args, **kwargs).arguments.values()) if kwargs else args
        if len(values) != len(signature):
            raise errors.error("RD25", str(self), f"input_signature has {len(signature)}, and the call "
                               f"{errors.counted(len(values), 'argument')}", "Pass one argument for each.")
        for place, (wanted, value) in enumerate(zip(signature, values, strict=True)):
            if not _fits(wanted, value):
                raise errors.error("RD25", str(self), f"argument {place} is {_described(value)}, and input_signature "
                                   f"has {wanted}", "Pass what the signature says, or change it.")


class Method(Function):
    """The function as a method of an object."""

    def __init__(self, function: Function, instance: object) -> None:
        super().__init__(functools.partial(function.python_function, instance), function.input_signature)
        functools.update_wrapper(self, function, updated=())


def function(func: Callable[..., Any] | None = None, input_signature: Sequence[object] | None = None,
             autograph: bool = True, jit_compile: bool | None = None, reduce_retracing: bool = False,
             experimental_implements: object = None, experimental_autograph_options: object = None,
             experimental_attributes: object = None, experimental_relax_shapes: bool | None = None,
             experimental_compile: bool | None = None, experimental_follow_type_hints: bool | None = None) -> Any:
    """The function as it is; with `input_signature` each call is checked.

    Args:
        func: the function; None where this is a decorator with arguments.
        input_signature: a TensorSpec for each argument, or a nest of them.
        autograph, jit_compile, reduce_retracing, experimental_compile, experimental_relax_shapes: without effect.
        experimental_implements, experimental_autograph_options, experimental_attributes: without effect.
        experimental_follow_type_hints: without effect.

    >>> import refdist.tf as tf
    >>> @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    ... def double(x):
    ...     return 2 * x
    >>> double(tf.constant([1, 2])).tolist()
    [2, 4]

    Raises:
        RD25: not a function, or a signature that is not a sequence.  In a call: arguments that do not fit.

    Source: tf.function.
    """
    if input_signature is not None and not isinstance(input_signature, (list, tuple)):
        raise errors.error("RD25", "tf.function", f"input_signature is {errors.type_of(input_signature)}",
                           "Pass a list with a TensorSpec for each argument.")
    if func is None:
        return functools.partial(function, input_signature=input_signature)
    if not callable(func):
        raise errors.error("RD25", "tf.function", f"got {errors.type_of(func)}", "Pass a function.")
    return Function(func, input_signature)


def _fits(wanted: object, value: Any) -> bool:
    try:
        nest.assert_same_structure(wanted, value, check_types=False)
    except (TypeError, ValueError):
        return False
    return all(map(_leaf_fits, nest.flatten(wanted), nest.flatten(value)))


def _leaf_fits(spec: Any, leaf: Any) -> bool:
    parts = _parts(leaf)
    specs = _parts(spec) * (len(parts) if len(_parts(spec)) == 1 else 1)
    return len(specs) == len(parts) and all(
        wanted.shape in ((), None) if isinstance(part, (bool, int, float)) and isinstance(wanted, TensorSpec)
        else bool(wanted.is_compatible_with(part)) for wanted, part in zip(specs, parts, strict=True))


def _parts(leaf: Any) -> tuple[Any, ...]:
    # What each replica gets.
    return leaf.values if isinstance(leaf, PerReplica) else (leaf,)


def _described(value: Any) -> str:
    try:
        return str(spec_of(value))
    except (TypeError, ValueError):
        return errors.type_of(value)
