"""Options for collectives: how values travel between workers.  Values only; nothing here communicates."""

from __future__ import annotations

from enum import Enum

from refdist import errors
from refdist.core.integers import as_integer, check_seconds


class CommunicationImplementation(Enum):
    """Which library carries values between workers.

    Source: tf.distribute.experimental.CommunicationImplementation.
    """

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


CollectiveCommunication = CommunicationImplementation


class CommunicationOptions:
    """Options that every collective takes.

    Args:
        bytes_per_pack: bytes that travel together, 0 for a size chosen for you.
        timeout_seconds: how long a collective may take, None or 0 for no limit of its own.
        implementation: AUTO, RING or NCCL.

    Raises:
        RD34: bytes or seconds below 0, or an implementation that does not exist.

    Source: tf.distribute.experimental.CommunicationOptions.
    """

    def __init__(self, bytes_per_pack: int = 0, timeout_seconds: float | None = None,
                 implementation: CommunicationImplementation = CommunicationImplementation.AUTO) -> None:
        size = as_integer(bytes_per_pack)
        if size is None or size < 0:
            raise errors.error("RD34", "CommunicationOptions", f"bytes_per_pack is {bytes_per_pack!r}",
                               "Pass an int of at least 0.")
        check_seconds(timeout_seconds, "timeout_seconds", "CommunicationOptions")
        if isinstance(implementation, str) and implementation.upper() in CommunicationImplementation.__members__:
            implementation = CommunicationImplementation[implementation.upper()]
        if not isinstance(implementation, CommunicationImplementation):
            raise errors.error("RD34", "CommunicationOptions", f"implementation is {implementation!r}",
                               "Pass a CommunicationImplementation.")
        self.bytes_per_pack = size
        self.timeout_seconds = timeout_seconds
        self.implementation = implementation

    def merge(self, options: CommunicationOptions | None) -> CommunicationOptions:
        """These options with those of `options` that are not the defaults.

        Args:
            options: a CommunicationOptions, or None for no others.
        """
        if options is None:
            return self
        return CommunicationOptions(
            options.bytes_per_pack or self.bytes_per_pack,
            self.timeout_seconds if options.timeout_seconds is None else options.timeout_seconds,
            self.implementation if options.implementation is CommunicationImplementation.AUTO
            else options.implementation)

    def __str__(self) -> str:
        return (f"Options(bytes_per_pack={self.bytes_per_pack},timeout_seconds={self.timeout_seconds}, "
                f"implementation={self.implementation})")


CollectiveHints = CommunicationOptions


def check_options(options: object, attempted: str) -> None:
    """Raises unless `options` are CommunicationOptions or None.

    Raises:
        RD25: anything else.
    """
    if options is not None and not hasattr(options, "bytes_per_pack"):
        raise errors.error("RD25", attempted, f"options is {options!r}",
                           "Pass refdist.experimental.CommunicationOptions(...) or None.")
