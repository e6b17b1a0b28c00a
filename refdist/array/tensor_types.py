"""What PyTorch's tensors are to the other replicas, for the check `types`; values of Keras on PyTorch are such tensors.

PyTorch shows each of its functions to the modes that are entered (`TorchFunctionMode`).  While the check is on, every
replica enters one, and what a function gives has the type that the same operation of NumPy would give.  Types are kept
beside the tensors, by weak references: a tensor is PyTorch's own, is saved as before, and no program can tell.

The gradient of a sum over rows is a sum over rows, and that of a mean is a mean; so a gradient by what is the same on
all replicas, or by a tensor that has nothing to do with the rows, has the type of the loss.  A function that has no
rule here gives what is unknown, and so does whatever PyTorch was not yet imported for when the replica began.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import lru_cache
from importlib import import_module
from types import FrameType
from typing import Any

import numpy as np

from refdist.array import jax_types
from refdist.array.replica_types import (
    UNKNOWN,
    ZEROS,
    Frame,
    ReplicaType,
    along,
    chosen,
    combined,
    computing,
    gradient,
    has_type,
    keep_through,
    keep_types_of,
    number,
    of_converted,
    of_items,
    own_write,
    product,
    program,
    rearranged,
    reshaped,
    transposed,
    type_of,
    typed,
)
from refdist.core.rules.replica_types import ADDING, Along, Of, Operation

_computes_for_the_program = True  # see core/tracebacks


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPERATIONS = {
    Operation.ADD: _names("add sub subtract __add__ __radd__ __sub__ add_ sub_ __iadd__ __isub__"),
    Operation.MULTIPLY: _names("mul multiply __mul__ __rmul__ mul_ __imul__"),
    Operation.DIVIDE: _names("div divide true_divide __truediv__ div_ __itruediv__"),
    Operation.OTHER: _names("""pow __pow__ maximum minimum eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__
        exp log log1p expm1 sqrt rsqrt square abs __abs__ tanh sigmoid relu relu6 leaky_relu elu selu gelu silu mish
        softplus logsigmoid hardswish hardsigmoid round floor ceil sin cos cosh sign clamp clip where reciprocal""")}
_OPERATION_OF = {name: operation for operation, names in _OPERATIONS.items() for name in names}
# With the second operand first.
_REFLECTED = {"__rsub__": Operation.ADD, "rsub": Operation.ADD, "__rdiv__": Operation.DIVIDE,
              "__rtruediv__": Operation.DIVIDE, "__rpow__": Operation.OTHER}
_KEEPING = _names("""neg __neg__ clone detach detach_ requires_grad_ to float double half bfloat16 long int contiguous
    alias cpu cuda""")
_CONVERTING = _names("as_tensor tensor asarray")
_CONVERTED = _CONVERTING | _names("to float double half bfloat16")
_TO_NUMBERS = _names("item tolist __float__")
_PRODUCTS = _names("matmul __matmul__ mm mv dot linear")
_ALONG = {"sum": Along.SUM_OF_ROWS, "mean": Along.MEAN_OF_ROWS, **dict.fromkeys(
    _names("amax amin argmax argmin max min std var prod median logsumexp"), Along.OTHER)}
# The same, with the order of the norm before the dimension.
_NORMS = _names("norm linalg_norm linalg_vector_norm")
# The same items in the same order.
_RESHAPING = _names("flatten reshape view unflatten squeeze ravel view_as reshape_as")
# Rows come first, and each gives a row; what is the same on all replicas stays so.
_LAYERS = _names("""conv1d conv2d conv3d max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool2d embedding
    one_hot layer_norm""")
# Rows come first, and each gives a row.
_DRAWING = _names("batch_norm dropout")
# The same, where the dimension is not that of the rows.
_ALONG_ITEMS = _names("softmax log_softmax gather take_along_dim index_select cumsum normalize")
# Of one array items in another order or shape, or several such tensors, whatever the items are.
_REARRANGING = _names("""flip fliplr flipud rot90 roll movedim moveaxis expand broadcast_to repeat tile
    repeat_interleave diagonal narrow unsqueeze select chunk split tensor_split unbind""")
_ZEROS = _names("zeros zeros_like new_zeros zero_")
# What optimizers, and programs in their place, write to parameters with.
_UPDATING = _names("""sub_ add_ addcdiv_ addcmul_ lerp_ __isub__ __iadd__ _foreach_add_ _foreach_sub_ _foreach_addcdiv_
    _foreach_lerp_""")
_CHOOSING = _names("__getitem__ masked_select")
_LOSSES = _names("""mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss binary_cross_entropy
    binary_cross_entropy_with_logits soft_margin_loss kl_div""")
# What writes to its first operand and gives no tensor, beside the functions whose names end in "_".
_WRITING = _names("__setitem__ __set__ backward")
_REDUCED = {"mean": Along.MEAN_OF_ROWS, "batchmean": Along.MEAN_OF_ROWS, "sum": Along.SUM_OF_ROWS}


def _swapped(ndim: int, args: Any, kwargs: Any) -> list[int]:
    order = list(range(ndim))
    first, second = args or (kwargs["dim0"], kwargs["dim1"])
    order[first], order[second] = order[second], order[first]
    return order


def _permuted(ndim: int, args: Any, kwargs: Any) -> list[int]:
    dims = args or (kwargs["dims"],)
    return [dim % ndim for dim in (dims[0] if isinstance(dims[0], (list, tuple)) else dims)]


# The same items with the axes in another order: which.
_TURNING: dict[str, Callable[[int, Any, Any], list[int]]] = {
    "transpose": _swapped, "swapaxes": _swapped, "swapdims": _swapped, "permute": _permuted,
    "t": lambda ndim, args, kwargs: list(range(ndim))[::-1]}
# Each parameter of a module that was seen: its number, its version and its type.
_parameters: MutableMapping[Any, tuple[int, int, ReplicaType]] = {}
# Each tensor without dimensions that was made of a number of Python's: the number.
_constants: MutableMapping[Any, float] = {}
_numbers = itertools.count(1)


def mode() -> Callable[[], AbstractContextManager[object]]:
    """Returns the context manager in which a replica runs, so that types of what libraries compute are followed."""
    keep_through(np, "array", "asarray", "ascontiguousarray")
    jax: Any = sys.modules.get("jax")
    torch = sys.modules.get("torch")
    following = []
    if hasattr(jax, "numpy") and hasattr(jax.numpy, "asarray"):
        jax_types.keep_types(jax.numpy)
        keep_through(jax.numpy, "array", "asarray")
        following.append(jax_types.following(jax))
    if hasattr(torch, "overrides"):
        keep_through(torch, "from_numpy")
        following.append(_mode(torch))
    return _all([enter for enter in following if enter is not None])


def _all(modes: Sequence[Callable[[], AbstractContextManager[object]]]) -> Callable[[], AbstractContextManager[object]]:
    # All of these, one in another.
    def enter() -> AbstractContextManager[object]:
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode())
            return stack.pop_all()
    return enter if len(modes) > 1 else modes[0] if modes else nullcontext


@lru_cache(maxsize=1)
def _mode(torch: Any) -> Any:
    # From here on its tensors have types.
    global _parameters, _constants
    kept = import_module("torch.utils.weak").WeakTensorKeyDictionary
    keep_types_of(torch.Tensor, kept())
    _parameters, _constants = kept(), kept()

    def see(self: Any, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name == "backward" and args and isinstance(args[0], torch.Tensor):
            return _backward(sys._getframe(1), function, args, kwargs)
        if name == "numpy":  # it computes nothing, and what it returns may depend on its caller
            return typed(function(*args, **kwargs), type_of(args[0]))
        if isinstance(getattr(function, "__self__", None), property):  # so does a dtype, a shape or a device
            return function(*args, **kwargs)
        result = computing(sys._getframe(1))(function, args, kwargs)
        written = args[0] if name in _UPDATING else None
        for parameter in written[:1] if isinstance(written, (list, tuple)) else (written,):
            if type(parameter) is torch.nn.Parameter and parameter.grad is not None:  # an optimizer's step
                own_write.value(program(sys._getframe(1)), parameter, type_of(parameter.grad))
        for argument in (*args, *kwargs.values()):
            if type(argument) is torch.nn.Parameter:
                _know(argument)
        if name in _TO_NUMBERS:
            return number(result, type_of(args[0]))
        if name == "grad" and not isinstance(result, torch.Tensor):
            _gradients(sys._getframe(1), torch, result, *args, **kwargs)
        elif name in _REARRANGING and args and type_of(args[0]) is not UNKNOWN:
            _rearranged(program(sys._getframe(1)), torch, function, args, kwargs, result)
        elif isinstance(result, torch.Tensor):
            _see(sys._getframe(1), name, args, kwargs, result)
        elif getattr(function, "__self__", None) is torch.Tensor.grad:
            pass  # x.grad = None writes nothing to x
        elif name in _WRITING or (name.endswith("_") and not name.endswith("__")):
            _forget(args)
        return result

    return type("TypesOfTensors", (torch.overrides.TorchFunctionMode,), {"__torch_function__": see})


def _see(frame: FrameType, name: str, args: Any, kwargs: Any, result: Any) -> None:
    # The type of the result of a function that returns one tensor.
    if name == "__get__" or not args:  # x.grad, x.data
        return
    operands = [*map(_number_of, args)] if name in _OPERATION_OF or name in _REFLECTED else args
    kind = _type_of_result(program(frame), name, operands, kwargs, result)
    changed = result is args[0] or "out" in kwargs
    if changed and name not in _KEEPING | _CONVERTING:
        _forget((result,))
    if kind is not UNKNOWN or changed:
        typed(result, kind)
    if kind is UNKNOWN and name in _CONVERTED and not (result.ndim or result.requires_grad):
        constant = _number_of(args[0])
        if type(constant) is int or (type(constant) is float and result.is_floating_point()):
            _constants[result] = constant


def _number_of(operand: Any) -> Any:
    # Of a tensor that was made of a number the number; anything else as it is.
    if not has_type(operand) or operand.ndim:
        return operand
    return _constants.get(operand, operand)


def _rearranged(frame: Frame, torch: Any, function: Any, args: Any, kwargs: Any, result: Any) -> None:
    # Of a function of _REARRANGING.
    name = function.__name__
    if name == "repeat_interleave" and len(args) + len(kwargs.keys() - {"output_size"}) == 1:
        return  # the numbers 0, 1, ..., each as often as its item says

    def parts(given: Any) -> Sequence[Any]:
        return [given] if isinstance(given, torch.Tensor) else given

    def rearrange(numbers: Any) -> Iterator[Any]:
        # Whatever the program's default device is.
        rearranged_numbers = function(torch.tensor(numbers, device="cpu"), *args[1:], **kwargs)
        return (part.numpy() for part in parts(rearranged_numbers))

    kinds = rearranged(frame, args[0], (name, args[1:], kwargs), len(parts(result)), rearrange)
    for part, kind in zip(parts(result), kinds, strict=True):
        typed(part, kind)


def _forget(args: Any) -> None:
    # What is written to has no type any more, and nor has what it is a view of.
    written = args[0] if args else ()
    for tensor in written if isinstance(written, (list, tuple)) else (written,):
        if has_type(tensor):
            for array in (tensor, tensor._base):
                if array is not None:
                    typed(array, UNKNOWN)
                    _constants.pop(array, None)


def _know(parameter: Any) -> None:
    # It is the same on all replicas where they compute with this one object, and none has written to it meanwhile.
    number, version, before = _parameters.get(parameter, (0, 0, None))
    kind = type_of(parameter)
    if kind is UNKNOWN:  # it is new, or something was written to it
        number = next(_numbers)
    elif kind is not before or parameter._version == version:
        return
    kind = ReplicaType(Of.SAME, "a parameter", captured=hash((number, parameter._version)))
    _parameters[parameter] = number, parameter._version, kind
    typed(parameter, kind)


def _type_of_result(frame: Frame, name: str, args: Any, kwargs: Any, result: Any) -> ReplicaType:
    first = type_of(args[0])
    if name in _KEEPING:
        return first
    if name in _CONVERTING:
        return of_converted(args[0])
    if name == "stack":
        return of_items(args[0])
    if name in _ZEROS:
        return ZEROS
    if all(type_of(argument) is UNKNOWN for argument in args):
        return UNKNOWN
    if name in ("clamp", "clamp_min", "clip") and len(args) == 1 and {*kwargs} == {"min"}:
        return combined(frame, Operation.OTHER, "maximum", (args[0], kwargs["min"]), result)
    if name in _OPERATION_OF and not any(kwargs.values()) and 0 < len(args) <= 3:
        return combined(frame, _OPERATION_OF[name], name.strip("_"), args, result)
    if name in _REFLECTED and len(args) == 2:
        return combined(frame, _REFLECTED[name], name.strip("_"), args[::-1], result)
    if name in _PRODUCTS and len(args) >= 2:
        return product(frame, args[:2], result)
    if name in _ALONG or name in _NORMS:
        at = 2 if name in _NORMS else 1
        axis = kwargs.get("dim", args[at] if len(args) > at else None)
        axis = tuple(axis) if isinstance(axis, (list, tuple)) else None if isinstance(axis, bool) else axis
        keeps = kwargs.get("keepdim", args[at + 1] if len(args) > at + 1 else False)
        return along(frame, args[0], _ALONG.get(name, Along.OTHER), axis if axis != () else None, keeps is True, name)
    if name in _RESHAPING:
        return reshaped(args[0], tuple(result.shape))
    if name in _CHOOSING:
        return chosen(frame, args[0], args[1], result)
    if name in _TURNING:
        return transposed(args[0], _TURNING[name](args[0].ndim, args[1:], kwargs))
    if first.of is Of.SAME:
        tensors = [argument for argument in (*args, *kwargs.values()) if has_type(argument)]
        same = name in _LAYERS | _LOSSES | _ALONG_ITEMS and all(type_of(tensor).of is Of.SAME for tensor in tensors)
        return combined(frame, Operation.OTHER, name, tensors, result) if same else UNKNOWN
    if first.of is not Of.ROWS or first.back != args[0].ndim:
        return UNKNOWN
    if name in _LOSSES:
        how = _REDUCED.get(kwargs.get("reduction", "mean"))
        if how is not None:
            return along(frame, args[0], how, None, False, name)
        return reshaped(args[0], tuple(result.shape))
    axis = kwargs.get("dim", next((one for one in args[1:] if type(one) is int), None))
    if name == "index_select" and axis == 0:
        return chosen(frame, args[0], kwargs.get("index", args[-1]), result)
    kept = name in _LAYERS or name in _DRAWING or (
        name in _ALONG_ITEMS and axis in (-1, *range(1, args[0].ndim)) and result.ndim > 1)
    return reshaped(args[0], tuple(result.shape)) if kept and result.ndim and result.shape[0] == first.rows else UNKNOWN


def _gradients(frame: Frame, torch: Any, gradients: Any, outputs: Any, inputs: Any, grad_outputs: Any = None,
               *_: Any, **__: Any) -> None:
    # Of torch.autograd.grad.
    losses = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    sources = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    seeds = [] if grad_outputs is None else [grad_outputs] if isinstance(grad_outputs, torch.Tensor) else grad_outputs
    if len(losses) != 1 or losses[0].ndim or any(seed is not None for seed in seeds):
        return
    kind = gradient(frame, type_of(losses[0]))
    for source, value in zip(sources, gradients, strict=True):
        if value is not None and _is_shared(source, kind.rows):
            typed(value, kind)


def _backward(frame: FrameType, function: Any, args: Any, kwargs: Any) -> Any:
    # Of a loss: what the leaves get, beside what they have.
    rows = type_of(args[0]).rows
    leaves = [leaf for leaf in _leaves(args[0].grad_fn) if _is_shared(leaf, rows)]
    before = [leaf.grad if leaf.grad is None else type_of(leaf.grad) for leaf in leaves]
    result = function(*args, **kwargs)
    kind = UNKNOWN if len(args) > 1 or args[0].ndim or kwargs.get("gradient") is not None else (
        gradient(frame, type_of(args[0])))
    for leaf, had in zip(leaves, before, strict=True):
        if leaf.grad is not None:
            if had is not None and had is not ZEROS and not ADDING[had.of].get(kind.of) is had.of is kind.of:
                typed(leaf.grad, UNKNOWN)
            else:
                typed(leaf.grad, kind)
    return result


def _is_shared(leaf: Any, rows: int | None) -> bool:
    # By which a gradient is what the loss is: what all replicas have, a parameter of a module, or a tensor that was
    # made without the rows, as far as its length tells.
    kind = type_of(leaf)
    if kind is not UNKNOWN or type(leaf).__name__ == "Parameter":
        return kind.of is Of.SAME or kind is UNKNOWN
    return bool(leaf.is_leaf) and (not leaf.ndim or leaf.shape[0] != rows)


def _leaves(node: Any) -> Iterator[Any]:
    seen, waiting = set(), [node]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [before for before, _ in node.next_functions]
