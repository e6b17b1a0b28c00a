"""PyTorch's modes, of which each replica has its own, and its random numbers, of which each simulated worker has.

PyTorch keeps for each thread whether gradients are recorded (`no_grad`, `inference_mode`) and what `autocast` computes
in.  All replicas share a thread, so a replica that waits inside `with torch.no_grad():` would leave the mode to the
next one, and blocks that are not left in the reverse order would leave it behind after `run`.  Therefore the mode is
put back as a whole whenever a replica goes on.

PyTorch is never imported here.  Callers ask first whether it is in `sys.modules`; that is all that programs without it
pay.  A program may import it inside a replica: a replica that began before has the mode of a new thread.

* `inference_mode` can only be entered and left, and leaving puts back what was there on entry.  Here it is entered and
  never left.  Dropping the object leaves it too, so that is done where everything is put back at once.
* How many `autocast` blocks are open decides when the copies of weights that they share are dropped, so the number
  belongs to the mode.  A replica does not see the copies of another one: a weight may have been changed in between.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, NamedTuple

# Since PyTorch 2.4; older ones, and one that is just being imported, do not have it.
_NEEDED = "get_autocast_dtype", "inference_mode", "get_rng_state"
_DEVICES = "cpu", "cuda", "mps", "xpu"


class Mode(NamedTuple):
    """A mode: that of gradients, and for each type of device whether it is in autocast, and in which dtype."""

    inference: bool
    gradients: bool
    nesting: int
    cached: bool
    autocast: tuple[tuple[bool, Any], ...]


class _Entered(threading.local):
    """The `inference_mode` that was entered here last."""

    mode: Any = None


_entered = _Entered()


def _loaded() -> Any:
    torch = sys.modules.get("torch")
    return torch if all(hasattr(torch, name) for name in _NEEDED) else None


def mode() -> Mode | None:
    """The mode of this thread; None without PyTorch."""
    torch = _loaded()
    if torch is None:
        return None
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return Mode(torch.is_inference_mode_enabled(), torch.is_grad_enabled(), nesting, torch.is_autocast_cache_enabled(),
                tuple([(torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in _DEVICES]))


def set_mode(wanted: Mode | None) -> None:
    """Puts a mode back; None, from before PyTorch was imported, is that of a new thread."""
    now = mode()
    if now is None or (now == wanted and not now.nesting):
        return
    torch = sys.modules["torch"]
    wanted = wanted or _of_a_new_thread()
    if wanted.inference is not now.inference:
        _entered.mode = None
        _entered.mode = torch.inference_mode(wanted.inference)
        _entered.mode.__enter__()
    torch.set_grad_enabled(wanted.gradients)
    for _ in range(now.nesting, wanted.nesting):
        torch.autocast_increment_nesting()
    for _ in range(wanted.nesting, now.nesting):
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(wanted.cached)
    for device, (enabled, dtype) in zip(_DEVICES, wanted.autocast, strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


def _of_a_new_thread() -> Mode:
    found: list[Mode | None] = []
    thread = threading.Thread(target=lambda: found.append(mode()))
    thread.start()
    thread.join()
    assert found[0] is not None
    return found[0]


def random_state() -> Any:
    """The state of the generator of the CPU; None without PyTorch."""
    torch = _loaded()
    return None if torch is None else torch.get_rng_state()


def set_random_state(state: Any) -> None:
    """Puts back what `random_state` returned; None leaves the generator as it is."""
    if state is not None:
        sys.modules["torch"].set_rng_state(state)
