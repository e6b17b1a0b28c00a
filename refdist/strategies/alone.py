"""Warns of a strategy that knows one process only, in a program that several processes run."""

from __future__ import annotations

from contextlib import suppress

from refdist import errors
from refdist.cluster_resolver.tfconfig import TFConfigClusterResolver
from refdist.core import call_site
from refdist.core.launcher import launched
from refdist.runtime import process


def warn_of_copies(strategy: str) -> None:
    """Warns, on the first of several workers, that each of them trains a model of its own.

    Not where a MultiWorkerMirroredStrategy was made before, nor of an evaluator.
    """
    simulated, launch = process.simulated_worker, launched()
    if simulated is not None:
        rank, size, together, who = simulated.rank, simulated.size, simulated.joined, "simulated workers"
    elif launch is not None:
        rank, size, together, who = launch.rank, launch.size, process.transport is not None, "processes"
    else:
        return
    if rank == 0 and size > 1 and not together and not _evaluates():
        call_site.warn(f"{size} {who} train {size} models: {strategy} uses the devices of one process. Use "
                      "MultiWorkerMirroredStrategy() for one model; if several are meant, write "
                      f"warnings.filterwarnings('ignore', '.*train {size} models')")


def _evaluates() -> bool:
    # A malformed TF_CONFIG is an error of the strategies that need it.
    with suppress(errors.RefdistError):
        return TFConfigClusterResolver().task_type == "evaluator"
    return False
