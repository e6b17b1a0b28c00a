"""Warns of a strategy that knows one process only, in a program that several processes run."""

from __future__ import annotations

from contextlib import suppress

from refdist import errors
from refdist.array import connection
from refdist.cluster_resolver.tfconfig import TFConfigClusterResolver
from refdist.core import call_site
from refdist.strategies import job


def warn_of_copies(strategy: str) -> None:
    """Warns, on the first of several workers, that each of them trains a model of its own.

    None where a MultiWorkerMirroredStrategy was made before, in a job with parameter servers, and for an evaluator.
    """
    launcher = connection.launcher()
    group = None if launcher is None else launcher.group()
    if group is None or connection.joined() or job.current.value is not None:
        return
    rank, size, who = group
    if rank == 0 and size > 1 and not _evaluates():
        call_site.warn(f"{size} {who} train {size} models: {strategy} uses the devices of one process. Use "
                      "MultiWorkerMirroredStrategy() for one model; if several are meant, write "
                      f"warnings.filterwarnings('ignore', '.*train {size} models')")


def _evaluates() -> bool:
    # A malformed TF_CONFIG is an error of the strategies that need it.
    with suppress(errors.RefdistError):
        return TFConfigClusterResolver().task_type == "evaluator"
    return False
