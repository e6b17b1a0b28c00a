"""`tf.tpu`: the TPU of this machine, which is simulated.

Source: tf.tpu.
"""

from typing import NamedTuple

from refdist import tpu_experimental as experimental
from refdist.strategies.placement import Placement
from refdist.strategies.tpu import placements

__all__ = ["Placement", "XLAOptions", "experimental", "placements"]


class XLAOptions(NamedTuple):
    """Options of a compiler, for RunOptions; they have no effect here.

    Source: tf.tpu.XLAOptions.
    """

    use_spmd_for_xla_partitioning: bool = True
    enable_xla_dynamic_padder: bool = True
    use_shardy_partitioner: bool = False
