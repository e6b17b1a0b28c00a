"""Options of a dataset: how it is split over replicas and workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, ClassVar, TypeVar

from refdist import errors
from refdist.core.rules.options import AutoShardPolicy

_T = TypeVar("_T")


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
    return errors.error("RD20", attempted, "there is no such option", "The option with an effect is `options."
                        "experimental_distribute.auto_shard_policy`; those that make TensorFlow faster are taken, and "
                        "change nothing.",
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


_BOOL = (bool, NoneType), "a bool or None"
_INT = (int, NoneType), "an int or None"


@dataclass
class _Threading(_Checked):
    # Source: tf.data.ThreadingOptions.
    _kinds = tuple((name, *_INT) for name in ("max_intra_op_parallelism", "private_threadpool_size"))

    max_intra_op_parallelism: int | None = None
    private_threadpool_size: int | None = None


@dataclass
class _Autotune(_Checked):
    # Source: tf.data.experimental.AutotuneOptions.
    _kinds = (("enabled", *_BOOL), ("cpu_budget", *_INT), ("ram_budget", *_INT), ("initial_parallelism", *_INT))

    enabled: bool | None = None
    cpu_budget: int | None = None
    ram_budget: int | None = None
    initial_parallelism: int | None = None


@dataclass
class _Optimization(_Checked):
    # Source: tf.data.experimental.OptimizationOptions.
    _kinds = tuple((name, *_BOOL) for name in (
        "apply_default_optimizations", "filter_fusion", "filter_parallelization", "inject_prefetch",
        "map_and_batch_fusion", "map_and_filter_fusion", "map_fusion", "map_parallelization", "noop_elimination",
        "parallel_batch", "shuffle_and_repeat_fusion"))

    apply_default_optimizations: bool | None = None
    filter_fusion: bool | None = None
    filter_parallelization: bool | None = None
    inject_prefetch: bool | None = None
    map_and_batch_fusion: bool | None = None
    map_and_filter_fusion: bool | None = None
    map_fusion: bool | None = None
    map_parallelization: bool | None = None
    noop_elimination: bool | None = None
    parallel_batch: bool | None = None
    shuffle_and_repeat_fusion: bool | None = None


@dataclass
class Options(_Checked):
    """Options of a dataset.

    Attributes:
        experimental_distribute: what concerns distribution.
        deterministic: without effect: the order is always kept.  So is `experimental_deterministic`, its older name.
        threading, autotune, experimental_optimization, experimental_slack: without effect: for speed in TensorFlow.

    >>> options = Options()
    >>> options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF

    Raises:
        RD20: an option that does not exist.  RD25, RD34: a value of another type, or options that a dataset returned.

    Source: tf.data.Options.
    """

    _kinds = (("experimental_distribute", (DistributeOptions,), "DistributeOptions"),
              ("deterministic", *_BOOL), ("experimental_slack", *_BOOL),
              ("threading", (_Threading,), "the options of threads"),
              ("autotune", (_Autotune,), "the options of tuning"),
              ("experimental_optimization", (_Optimization,), "the options of optimization"))

    experimental_distribute: DistributeOptions = field(default_factory=DistributeOptions)
    deterministic: bool | None = None
    experimental_slack: bool | None = field(default=None, repr=False, kw_only=True)
    threading: _Threading = field(default_factory=_Threading, repr=False, kw_only=True)
    autotune: _Autotune = field(default_factory=_Autotune, repr=False, kw_only=True)
    experimental_optimization: _Optimization = field(default_factory=_Optimization, repr=False, kw_only=True)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__("deterministic" if name == "experimental_deterministic" else name, value)

    @property
    def experimental_deterministic(self) -> bool | None:
        """The older name of `deterministic`."""
        return self.deterministic

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
    return _last([Options(), *options])


def _last(each: Sequence[_T]) -> _T:
    # The first are those of which nothing is set.
    made: dict[str, Any] = {}
    for option in fields(each[0]):  # type: ignore[arg-type]
        values = [getattr(options, option.name) for options in each]
        unset = values[0]
        made[option.name] = _last(values) if isinstance(unset, _Checked) else next(
            (value for value in reversed(values) if value != unset), unset)
    return type(each[0])(**made)


def kept(options: Options) -> Options:
    """Makes the options of a dataset read-only, because setting them would not change the dataset; returns them."""
    for part in (options, *(each for each in vars(options).values() if isinstance(each, _Checked))):
        object.__setattr__(part, "_kept", True)
    return options
