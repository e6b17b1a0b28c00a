"""The TPU of this process: initialized before it is used, and not used after it was shut down.

A TPU is one machine for the programs that use it.  Initializing it clears its memory and tells its topology.  A
strategy goes on when it is initialized again, as TensorFlow's do; on a real TPU variables from before may then be lost,
and a warning says so.  Here they are kept, because their memory is the program's own.
"""

from __future__ import annotations

from typing import NamedTuple

from refdist import config, errors
from refdist.cluster_resolver.cloud import TPUClusterResolver, initialize
from refdist.cluster_resolver.topology import Topology, of_mesh
from refdist.core import call_site
from refdist.core.devices import Mesh
from refdist.runtime import Field


class _System(NamedTuple):
    mesh: Mesh
    topology: Topology


_system: Field[_System | None] = Field("the TPU that was initialized", lambda: None)


def initialize_tpu_system(cluster_resolver: TPUClusterResolver | None = None) -> Topology:
    """Begins to use the TPU; on a real one the values of variables from before may be lost.

    Args:
        cluster_resolver: which TPU; None for that of this machine.

    Returns:
        Its topology.

    >>> import refdist
    >>> refdist.config.set_simulated_devices(tpu="2x2x1x2")
    >>> refdist.tpu.experimental.initialize_tpu_system().mesh_shape
    array([2, 2, 1, 2], dtype=int32)
    >>> refdist.tpu.experimental.shutdown_tpu_system()
    >>> refdist.config.reset_simulated_devices()

    Raises:
        RD17: the resolver's addresses are not those of the hosts.  RD24: there is no TPU.
        RD25: not a TPUClusterResolver.

    Source: tf.tpu.experimental.initialize_tpu_system.
    """
    _checked(cluster_resolver, "initialize_tpu_system").get_tpu_system_metadata()
    mesh = config.tpu_mesh()
    assert mesh is not None  # without a TPU there would be no metadata
    if topology() is not None:
        call_site.warn("the TPU was initialized before: on a real TPU variables made since then may be lost; "
                       "initialize it once, at the beginning")
    started = of_mesh(mesh.shape, mesh.hosts)
    _system.value = _System(mesh, started)
    return started


def shutdown_tpu_system(cluster_resolver: TPUClusterResolver | None = None) -> None:
    """Ends the use of the TPU.

    Args:
        cluster_resolver: which TPU; None for that of this machine.

    Raises:
        RD25: not a TPUClusterResolver.

    Source: tf.tpu.experimental.shutdown_tpu_system.
    """
    _checked(cluster_resolver, "shutdown_tpu_system")
    if topology() is None:
        call_site.warn("shutdown_tpu_system of a TPU that was not initialized")
    _system.value = None


def topology() -> Topology | None:
    """The topology of the TPU that was initialized; None where none was, or the machine has another one since then."""
    system = _system.value
    return system.topology if system is not None and system.mesh == config.tpu_mesh() else None


def _connect(resolver: TPUClusterResolver) -> None:
    config.experimental_connect_to_cluster(resolver)
    initialize_tpu_system(resolver)


initialize.value = _connect


def _checked(resolver: object, attempted: str) -> TPUClusterResolver:
    if resolver is None:
        return TPUClusterResolver()
    if not isinstance(resolver, TPUClusterResolver):
        raise errors.error("RD25", attempted, f"cluster_resolver is {resolver!r}",
                           "Pass a refdist.cluster_resolver.TPUClusterResolver, or None.")
    return resolver
