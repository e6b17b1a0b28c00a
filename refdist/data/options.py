"""Options of a dataset: how it is split over replicas and workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, ClassVar

from refdist import errors
from refdist.core.rules.options import AutoShardPolicy


class _Checked:
    # Only options that exist can be set, and only to values of their types: a misspelt name would otherwise have no
    # effect on how rows are divided.
    _kinds: ClassVar[tuple[tuple[str, tuple[type, ...], str], ...]]  # name, types, description of the types
    _kept = False  # whether a dataset has these options, which are then read-only

    def __setattr__(self, name: str, value: object) -> None:
        attempted = f"setting {type(self).__name__}.{name}"
        known = [(types, named) for option, types, named in self._kinds if option == name]
        if not known:
            raise _no_option(attempted)
        if self._kept:
            raise errors.error("RD34", attempted, "these are the options of a dataset, which do not change",
                               "Make new Options, and pass them to `dataset.with_options`.")
        [(types, named)] = known
        if not isinstance(value, types):
            raise errors.error("RD25", attempted, f"got {value!r}", f"Pass {named}.")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise _no_option(f"{type(self).__name__}.{name}")


def _no_option(attempted: str) -> Exception:
    return errors.error("RD20", attempted, "there is no such option", "The option that there is, is `options."
                        "experimental_distribute.auto_shard_policy`; leave out those that make TensorFlow faster.",
                        kind=errors.MissingNameError)


@dataclass
class DistributeOptions(_Checked):
    """The options that concern distribution.

    Attributes:
        auto_shard_policy: how workers divide the dataset, an AutoShardPolicy.

    Raises:
        RD20: an option that does not exist.  RD25: a value of another type.

    Source: tf.data.experimental.DistributeOptions.
    """

    _kinds = (("auto_shard_policy", (AutoShardPolicy,), "an AutoShardPolicy"),)

    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO


@dataclass
class Options(_Checked):
    """Options of a dataset.

    Attributes:
        experimental_distribute: what concerns distribution.
        deterministic: without effect: the order is always kept.

    >>> options = Options()
    >>> options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF

    Raises:
        RD20: an option that does not exist.  RD25, RD34: a value of another type, or options that a dataset returned.

    Source: tf.data.Options.
    """

    _kinds = (("experimental_distribute", (DistributeOptions,), "DistributeOptions"),
              ("deterministic", (bool, NoneType), "a bool or None"))

    experimental_distribute: DistributeOptions = field(default_factory=DistributeOptions)
    deterministic: bool | None = None

    def merge(self, options: Options) -> Options:
        """New options: these, where the given ones do not set another.

        Args:
            options: the given ones.

        Source: tf.data.Options.merge.
        """
        return merged([self, options])


def merged(options: Iterable[Options]) -> Options:
    """The options of a dataset that combines others: the last one that sets an option decides.

    Source: observed, TensorFlow 2.21.
    """
    policy, deterministic = AutoShardPolicy.AUTO, None
    for each in options:
        own_policy = each.experimental_distribute.auto_shard_policy
        policy = policy if own_policy is AutoShardPolicy.AUTO else own_policy
        deterministic = deterministic if each.deterministic is None else each.deterministic
    return Options(DistributeOptions(policy), deterministic)


def kept(options: Options) -> Options:
    """Makes the options of a dataset read-only, because setting them would not change the dataset; returns them."""
    for part in (options, options.experimental_distribute):
        object.__setattr__(part, "_kept", True)
    return options
