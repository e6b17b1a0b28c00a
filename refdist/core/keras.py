"""Keras's scopes, of which each replica has its own.

Keras keeps for each thread which names, dtypes and stateless or symbolic scopes are open, and which layer is being
called.  All replicas share a thread, so what one of them has open is put away while another one runs.  What else Keras
keeps there (counters of names, the global generator of seeds) each simulated worker has of its own, as a process has.

Keras is never imported here.
"""

from __future__ import annotations

import sys
from typing import Any

_SCOPES = ("name_scope_stack", "autocast_scope", "stateless_scope", "symbolic_scope", "torch_device",
           "current_call_ctx", "tracking_on")

Scopes = tuple[Any, ...]


def _tracker() -> Any:
    # `keras.utils.clear_session` replaces it.
    module: Any = sys.modules.get("keras.src.backend.common.global_state")
    return getattr(module, "GLOBAL_STATE_TRACKER", None)


def scopes() -> Scopes | None:
    """What is open in this thread; None without Keras."""
    tracker = _tracker()
    return None if tracker is None else tuple(_own(getattr(tracker, name, None)) for name in _SCOPES)


def set_scopes(wanted: Scopes | None) -> None:
    """Opens what `scopes` returned and nothing else; with None, from before Keras was imported, opens nothing."""
    tracker = _tracker()
    if tracker is not None:
        for name, value in zip(_SCOPES, wanted or (None,) * len(_SCOPES), strict=True):
            setattr(tracker, name, _own(value))


def names() -> dict[str, Any]:
    """What Keras keeps in this thread beside scopes, such as how many layers have a name; its dicts are copied."""
    kept = getattr(_tracker(), "__dict__", {})
    return {name: value.copy() if isinstance(value, dict) else value for name, value in kept.items()
            if name not in _SCOPES}


def set_names(wanted: dict[str, Any] | None) -> None:
    """Puts back what `names` returned; does nothing with None, which is from before Keras was imported."""
    tracker = _tracker()
    if tracker is not None:
        for name in names():
            delattr(tracker, name)
        for name, value in (wanted or {}).items():
            setattr(tracker, name, value.copy() if isinstance(value, dict) else value)


def _own(value: Any) -> Any:
    # Keras changes the stack of names in place, so it is copied.
    return list(value) if type(value) is list else value
