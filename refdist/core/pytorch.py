"""PyTorch's modes and random numbers, of which each replica has its own.

PyTorch keeps for each thread whether gradients are recorded (`no_grad`, `inference_mode`), what `autocast` computes in
and where new tensors are made (`with torch.device(...)`), and for the process their dtype and the generators of random
numbers.  All replicas share a thread, so a replica that waits inside `with torch.no_grad():` would leave the mode to
the next one, and blocks that are not left in the reverse order would leave it behind after `run`.  Therefore the mode
is put back as a whole whenever a replica goes on.

PyTorch is never imported here, and nothing here is called before it is loaded (`states`).  A program may import it
inside a replica: a replica that began before has the mode of a new thread.

* `inference_mode` can only be entered and left, and leaving puts back what was there on entry.  Here it is entered and
  never left.  Dropping the object leaves it too, so that is done where everything is put back at once.
* How many `autocast` blocks are open decides when the copies of weights that they share are dropped, so the number
  belongs to the mode.  A replica does not see the copies of another one: a weight may have been changed in between.
  Where `autocast` was switched on without a block they are never dropped, so that is done at every turn.
* Streams of CUDA belong to the thread, too, as does the current GPU.  What a replica has issued to a stream of its own
  is waited for when it begins to wait, because the streams of others, which read its contribution, would not.
* What `torch.compile` compiles is run under a function that sees every frame of the thread, and would go on to see
  those of the next replica.  refdist's own code is left out of what is compiled, so that a collective parts it in two.
* A device for new tensors is one of the modes that see every function (`TorchFunctionMode`), which PyTorch keeps in a
  stack.  Beside it, `set_default_device` remembers what it has put there, and PyTorch which device is meant now.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeAlias

# Since PyTorch 2.4; older ones, and one that is just being imported, do not have it.
_NEEDED = "get_autocast_dtype", "inference_mode", "get_rng_state"
_DEVICES = "cpu", "cuda", "mps", "xpu"

Mode: TypeAlias = tuple[int, bool, bool, bool, bool, bool, bool, bool, object, object, object, object, object,
                        list[object], object, object, list[tuple[Any, Any]]]
"""How many `autocast` blocks are open; inference, gradients, and whether `autocast` keeps copies of weights; whether
each of `_DEVICES` is in autocast, and the dtype of each; the dtype of new tensors, the modes that see every function,
the device of new tensors, and what `set_default_device` has put there; what is done to the tensors that autograd saves
(`torch.autograd.graph.saved_tensors_hooks`, checkpoints)."""


class _Entered(threading.local):
    """The `inference_mode` block that this module entered last in this thread."""

    mode: AbstractContextManager[object] | None = None


_entered = _Entered()


@lru_cache(maxsize=1)
def _reader(torch: ModuleType) -> Callable[[], Mode]:
    # Every replica's mode is read at every rendezvous. Twice as fast as plain calls that fill a NamedTuple: functions
    # that are looked up once, arguments that are tuples already, and a plain tuple.
    for name in _NEEDED:
        getattr(torch, name)
    clear, cached = torch.clear_autocast_cache, torch.is_autocast_cache_enabled
    increment, decrement = torch.autocast_increment_nesting, torch.autocast_decrement_nesting
    inference, gradients = torch.is_inference_mode_enabled, torch.is_grad_enabled
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    # PyTorch 2.4 has no autocast on "mps"; in its place another device is read twice.
    default, modes, chosen = torch.get_default_dtype, _stack(), torch._GLOBAL_DEVICE_CONTEXT
    places, engine = sys.modules.get("torch.utils._device"), getattr(torch._C, "_autograd", None)
    top, pop, push = [getattr(engine, f"_{what}_saved_tensors_default_hooks", None) for what in ("top", "pop", "push")]
    cpu, cuda, mps, xpu = [(device if torch.amp.is_autocast_available(device) else "cpu",) for device in _DEVICES]

    def read() -> Mode:
        clear()
        increment()
        return (decrement(), inference(), gradients(), cached(),
                enabled(*cpu), enabled(*cuda), enabled(*mps), enabled(*xpu),
                dtype(*cpu), dtype(*cuda), dtype(*mps), dtype(*xpu),
                default(), modes(), getattr(places, "CURRENT_DEVICE", None), getattr(chosen, "device_context", None),
                _saved_tensors_hooks(top, pop, push))

    return read


def _stack() -> Callable[[], list[object]]:
    read: Callable[[], list[object]] = getattr(
        sys.modules.get("torch.overrides"), "_get_current_function_mode_stack", list)
    return read


def _saved_tensors_hooks(top: Any, pop: Any, push: Any) -> list[tuple[Any, Any]]:
    # PyTorch shows the innermost pair only, so all are popped and pushed again.
    stack: list[tuple[Any, Any]] = []
    while top is not None and (pair := top(False)) is not None:
        stack.insert(0, pair)
        pop()
    for pair in stack:
        push(*pair)
    return stack


def _loaded() -> Callable[[], Mode] | None:
    try:
        return _reader(sys.modules["torch"])
    except (KeyError, AttributeError):
        return None


def mode() -> Mode | None:
    """The modes of this thread, after autocast's cached copies of weights are dropped; None without PyTorch."""
    read = _loaded()
    return None if read is None else read()


def is_in_backward() -> bool:
    """Whether PyTorch's autograd engine has called what runs: a hook, or the `backward` of a function."""
    torch = sys.modules.get("torch")
    task: Callable[[], int] = getattr(getattr(torch, "_C", None), "_current_graph_task_id", lambda: -1)
    return task() != -1


def is_in_a_transform() -> bool:
    """Whether a function runs that `torch.func` or `torch.vmap` transforms."""
    functorch = getattr(getattr(sys.modules.get("torch"), "_C", None), "_functorch", None)
    peek: Callable[[], object] = getattr(functorch, "peek_interpreter_stack", lambda: None)
    return peek() is not None


@lru_cache(maxsize=1)
def _compiler(dynamo: ModuleType) -> Any:
    # Its frames, once it leaves out this package, of which a checkout has the backends in another folder.
    package = __name__.partition(".")[0]
    for left_out in (package, f"{package}.backends"):
        dynamo.trace_rules.add(left_out)
    return sys.modules["torch"]._C._dynamo.eval_frame


def compiling() -> object:
    """The function that `torch.compile` has set to see every frame of this thread; None without one."""
    try:
        return _compiler(sys.modules["torch._dynamo"]).get_eval_frame_callback()
    except (KeyError, AttributeError):  # while it is being imported
        return None


def set_compiling(callback: object) -> None:
    """Puts back what `compiling` returned."""
    if callback is not compiling():
        sys.modules["torch"]._C._dynamo.eval_frame.set_eval_frame(callback)


def set_mode(wanted: Mode | None, now: Mode | None = None) -> None:
    """Puts back what `mode` returned.

    Args:
        wanted: the mode; None, from before PyTorch was imported, is that of a new thread.
        now: what `mode` has just returned in this thread; None where something else may have run since.
    """
    now = now or mode()
    if now is None or now == wanted:
        return
    torch = sys.modules["torch"]
    wanted = wanted or _of_a_new_thread()
    nesting, inference, gradients, cached = wanted[:4]
    if inference is not now[1]:
        _entered.mode = other = torch.inference_mode(inference)
        other.__enter__()
        now = mode() or now  # leaving the previous one has changed autocast's devices, too
    torch.set_grad_enabled(gradients)
    for _ in range(now[0], nesting):
        torch.autocast_increment_nesting()
    for _ in range(nesting, now[0]):
        torch.autocast_decrement_nesting()
    torch.set_autocast_cache_enabled(cached)
    if now[4:12] != wanted[4:12]:
        for device, enabled, dtype in zip(_DEVICES, wanted[4:8], wanted[8:12], strict=True):
            if torch.amp.is_autocast_available(device):
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)
    default, modes, place, chosen, hooks = wanted[12:]
    if now[12] != default:
        torch.set_default_dtype(default)
    if now[16] != hooks:
        for _ in now[16]:
            torch._C._autograd._pop_saved_tensors_default_hooks()
        for pair in hooks:
            torch._C._autograd._push_saved_tensors_default_hooks(*pair)
    if now[13:16] != wanted[13:16]:
        overrides, torch._GLOBAL_DEVICE_CONTEXT.device_context = sys.modules["torch.overrides"], chosen
        if places := sys.modules.get("torch.utils._device"):  # imported with the first device for new tensors
            places.CURRENT_DEVICE = place  # type: ignore[attr-defined]
        for _ in now[13]:
            overrides._pop_mode()
        for each in modes:
            overrides._push_mode(each)


def _of_a_new_thread() -> Mode:
    modes: list[Mode | None] = []
    thread = threading.Thread(target=lambda: modes.append(mode()))
    thread.start()
    thread.join()
    assert modes[0] is not None
    return modes[0]


def _cuda() -> Any:
    # `torch.cuda` once CUDA is in use; earlier calls of its functions would initialize CUDA.
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if getattr(cuda, "is_initialized", lambda: False)() else None


Streams: TypeAlias = tuple[int, list[Any]]
"""The current GPU, and the current stream of each GPU."""


def streams() -> Streams | None:
    """The current GPU and streams of this thread; None while CUDA is not in use."""
    cuda = _cuda()
    return None if cuda is None else (
        cuda.current_device(), [cuda.current_stream(gpu) for gpu in range(cuda.device_count())])


def wait_for_streams(current: Streams | None) -> None:
    """Waits for what was issued to streams other than the default ones, for which no replica's stream waits."""
    for gpu, stream in enumerate(current[1] if current is not None else []):
        if stream != _cuda().default_stream(gpu):
            stream.synchronize()


def set_streams(wanted: Streams | None) -> None:
    """Puts back what `streams` returned; None, from before CUDA was in use, is GPU 0 and the default streams."""
    cuda = _cuda()
    if cuda is None:
        return
    device, current = wanted or (0, [cuda.default_stream(gpu) for gpu in range(cuda.device_count())])
    if (device, current) != streams():
        for stream in current:
            cuda.set_stream(stream)
        cuda.set_device(device)


RandomState: TypeAlias = tuple[Any, list[Any]]
"""The state of the generator of the CPU, and of each GPU's."""


def random_state() -> RandomState | None:
    """The state of PyTorch's generators; None without PyTorch."""
    if _loaded() is None:
        return None
    generators = [] if _cuda() is None else _cuda().default_generators
    return sys.modules["torch"].get_rng_state(), [generator.get_state() for generator in generators]


def set_random_state(state: RandomState | None) -> None:
    """Puts back what `random_state` returned; None changes nothing.

    The generators of GPUs that were not in use then, or are not there now, stay as they are.
    """
    if state is not None:
        of_cpu, of_gpus = state
        torch = sys.modules["torch"]
        torch.set_rng_state(of_cpu)
        for gpu, of_gpu in enumerate(of_gpus[:torch.cuda.device_count()] if of_gpus else []):
            torch.cuda.set_rng_state(of_gpu, gpu)
