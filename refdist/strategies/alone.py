"""Checks of strategies for a single process: their lists of devices, and whether there are other workers."""

from __future__ import annotations

import json
from contextlib import suppress

from refdist import config, errors
from refdist.cluster_resolver.tfconfig import TFConfigClusterResolver
from refdist.core import call_site
from refdist.strategies import job
from refdist.workers import connection


def warn_of_copies(strategy: str) -> None:
    """Warns, on the first of several workers, that each worker trains a model of its own.

    None where a MultiWorkerMirroredStrategy was made before, in a job with parameter servers, and for an evaluator.
    """
    launcher = connection.launcher()
    group = None if launcher is None else launcher.group()
    if group is None or connection.joined() or job.current.value is not None:
        return
    rank, size, who = group
    if rank == 0 and size > 1 and not _evaluates():
        call_site.warn(f"{size} {who} train {size} models: {strategy} uses the devices of one process. For one model "
                       "start one worker (`python train.py`, or `python -m refdist run --workers 1 train.py`), or use "
                       "MultiWorkerMirroredStrategy(); if several are meant, write "
                       f"warnings.filterwarnings('ignore', '.*train {size} models')")


def _evaluates() -> bool:
    # A malformed TF_CONFIG is an error of the strategies that need it.
    with suppress(errors.RefdistError):
        return TFConfigClusterResolver().task_type == "evaluator"
    return False


def check_device_list(strategy: str, argument: str, stated: object) -> None:
    """Raises unless a strategy can take `stated` as a list of devices.

    Raises:
        RD25: neither a list or tuple, nor None.
    """
    if stated is None or (isinstance(stated, (list, tuple)) and not isinstance(stated, config.LogicalDevice)):
        return
    count = stated if isinstance(stated, int) and 1 <= stated <= 8 else 2
    listed = [stated] if isinstance(stated, str) else [f"GPU:{i}" for i in range(count)]
    raise errors.error("RD25", strategy, f"{argument} is {stated!r}",
                       f"Write {strategy}({json.dumps(listed)}), or {strategy}() after "
                       f"refdist.config.set_simulated_devices(gpu={len(listed)}).")
