"""Options of a dataset: how it is split over replicas and workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


class AutoShardPolicy(Enum):
    """How the rows of a dataset are divided among the replicas.

    AUTO and DATA split every batch into pieces of the same, rounded-up size.  OFF, FILE and HINT split the stream of
    rows, regardless of batch boundaries, into pieces whose sizes differ by at most one.

    Source: tf.data.experimental.AutoShardPolicy.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class UnevenEnd(Enum):
    """What happens where the replicas would get different numbers of rows.

    EMPTY is what TensorFlow does: some replicas get fewer rows, or none.  DROP leaves rows out until all have
    the same number.  PAD adds rows of zeros, and every element becomes a pair: the padded element, and a mask, bool
    of shape [rows], that is True for real rows.  ERROR raises RD18.
    """

    EMPTY = "EMPTY"
    DROP = "DROP"
    PAD = "PAD"
    ERROR = "ERROR"


@dataclass
class DistributeOptions:
    """The options that concern distribution.

    Source: tf.data.experimental.DistributeOptions.
    """

    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO


@dataclass
class Options:
    """Options of a dataset.

    >>> options = Options()
    >>> options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF

    Source: tf.data.Options.
    """

    experimental_distribute: DistributeOptions = field(default_factory=DistributeOptions)


def merged(options: Iterable[Options]) -> Options:
    """The options of a dataset that combines others: the last one that sets an option decides.

    Source: observed, TensorFlow 2.21.
    """
    policy = AutoShardPolicy.AUTO
    for one in options:
        found = one.experimental_distribute.auto_shard_policy
        policy = policy if found is AutoShardPolicy.AUTO else found
    return Options(DistributeOptions(policy))
