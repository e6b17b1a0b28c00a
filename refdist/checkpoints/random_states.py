"""The states of random number generators that belong to a process: those of Python, NumPy and PyTorch.

A checkpoint has them where `refdist launch --max-restarts` has started the job, so that after a restart each worker
draws what it would have drawn.  Elsewhere they stay out of it: in TensorFlow, too, reading a checkpoint does not change
what a program draws next.

Only what JSON can hold is written, and nothing of it is executed when it is read.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from refdist import errors
from refdist.core import pytorch
from refdist.workers.launcher import RESTARTS_VARIABLE
from refdist.workers.transport import Transport

NAME = "_random"  # in a file; no attribute that is saved has such a name
_KINDS = ("python", "numpy", "torch")


def wanted() -> bool:
    """Whether this job is started again when it has lost a worker."""
    return RESTARTS_VARIABLE in os.environ


class RandomStates:
    """The states on all workers, as one object that a checkpoint saves.

    Args:
        transport: between the workers that save together.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _place(self) -> object:
        """The states of all workers, each of which calls this."""
        call = self._transport.call("saving the states of random number generators")
        return {"workers": self._transport.all_gather_object(call, _taken())}

    def _go_to(self, place: Any) -> Callable[[], None]:
        """Restores this worker's states; does nothing with another number of workers.

        Returns what undoes it.

        Raises:
            RD31: they are not what `_place` returned; then nothing has changed.
        """
        back = partial(_put_back, _taken())
        try:
            workers = place["workers"]
            if len(workers) == self._transport.size:
                _put_back(workers[self._transport.rank])
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, RuntimeError) as error:
            back()
            raise errors.error("RD31", "Checkpoint.read", "the states of random number generators do not fit: "
                               f"{errors.shown(str(error))}", "Restore an older checkpoint.",
                               kind=errors.InvalidValueError) from error
        return back


def _taken() -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state()
    torch = pytorch.random_state()
    return {"python": [version, list(numbers), gauss],
            # None where the program has given NumPy another algorithm.
            "numpy": [np.asarray(keys, "<u4").tobytes().hex(), *rest] if kind == "MT19937" else None,
            # Of the CPU, and of each GPU that is in use.
            "torch": None if torch is None else [bytes(state.tolist()).hex() for state in (torch[0], *torch[1])]}


def _put_back(states: Any) -> None:
    python, numpy, torch = (states[kind] for kind in _KINDS)
    version, numbers, gauss = python
    random.setstate((version, tuple(numbers), gauss))
    if numpy is not None:
        keys, *rest = numpy
        np.random.set_state(("MT19937", np.frombuffer(bytes.fromhex(keys), "<u4"), *rest))
    if torch is not None and (library := sys.modules.get("torch")) is not None:
        of_cpu, *of_gpus = [library.tensor(list(bytes.fromhex(state)), dtype=library.uint8) for state in torch]
        pytorch.set_random_state((of_cpu, of_gpus))
