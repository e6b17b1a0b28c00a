"""How many devices there are: STAND_IN_GPUS, 1 when it is not set."""

from __future__ import annotations

import os

_state = {"device": 0}


class CUDARuntimeError(RuntimeError):
    pass


def driverGetVersion():  # noqa: N802
    return int(os.environ.get("STAND_IN_DRIVER", "13000"))


def getDeviceCount():  # noqa: N802
    if os.environ.get("STAND_IN_BROKEN"):
        raise CUDARuntimeError(os.environ["STAND_IN_BROKEN"])
    return int(os.environ.get("STAND_IN_GPUS", "1"))


def getDevice():  # noqa: N802
    return _state["device"]


def setDevice(device):  # noqa: N802
    if not 0 <= device < getDeviceCount():
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    _state["device"] = device
