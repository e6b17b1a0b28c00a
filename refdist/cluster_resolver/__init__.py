"""`tf.distribute.cluster_resolver`: who the workers are, and which one this program is."""

from refdist.cluster_resolver.base import ClusterResolver, SimpleClusterResolver, UnionResolver
from refdist.cluster_resolver.cloud import (
    GCEClusterResolver,
    KubernetesClusterResolver,
    KubernetesExecutableLocation,
    TPUClusterResolver,
)
from refdist.cluster_resolver.launcher import MPIClusterResolver
from refdist.cluster_resolver.slurm import SlurmClusterResolver
from refdist.cluster_resolver.tfconfig import TFConfigClusterResolver
from refdist.workers.launcher import launched

__all__ = [
    "ClusterResolver",
    "GCEClusterResolver",
    "KubernetesClusterResolver",
    "KubernetesExecutableLocation",
    "MPIClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "UnionResolver",
    "launched",
]
