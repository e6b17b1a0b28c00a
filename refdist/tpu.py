"""`tf.tpu`: the TPU of this machine, which is simulated."""

from typing import NamedTuple

from refdist import tpu_experimental as experimental

__all__ = ["XLAOptions", "experimental"]


class XLAOptions(NamedTuple):
    """Options of a compiler, for RunOptions; they have no effect here.

    Source: tf.tpu.XLAOptions.
    """

    use_spmd_for_xla_partitioning: bool = True
    enable_xla_dynamic_padder: bool = True
    use_shardy_partitioner: bool = False
