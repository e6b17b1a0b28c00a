"""How many devices there are, STAND_IN_GPUS, 1 when it is not set; and the current one, of each thread."""

from __future__ import annotations

import os
import threading

# Whoever changes what all threads share has it; a finalizer may run in the midst of that, in the same thread.
lock = threading.RLock()


class _State(threading.local):
    device = 0


_state = _State()


class CUDARuntimeError(RuntimeError):
    pass


def driverGetVersion():  # noqa: N802
    return int(os.environ.get("STAND_IN_DRIVER", "13000"))


def getDeviceCount():  # noqa: N802
    if os.environ.get("STAND_IN_BROKEN"):
        raise CUDARuntimeError(os.environ["STAND_IN_BROKEN"])
    return int(os.environ.get("STAND_IN_GPUS", "1"))


def getDevice():  # noqa: N802
    return _state.device


def setDevice(device):  # noqa: N802
    if not 0 <= device < getDeviceCount():
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    _state.device = device
