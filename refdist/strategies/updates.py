"""`update` and `update_non_slot`: one function called for every copy of a variable, or on every device.

The copies of a mirrored variable come out equal, or nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refdist import config, current, distributed_variables, errors, nest, rules
from refdist.arrays import is_array
from refdist.backend import current_backend
from refdist.values import Mirrored, check_components, splitter
from refdist.variables import Variable


class Updates:
    """The part of StrategyExtended that updates variables."""

    _strategy: Any
    _count: int
    _parameter_devices: tuple[str, ...]
    _create_variable: Callable[..., Any]

    def update(self, var: Any, fn: Callable[..., Any], args: Sequence[Any] = (),
               kwargs: dict[str, Any] | None = None, group: bool = True) -> Any:
        """Calls `fn(copy, *args, **kwargs)` for every copy of `var`, on its device.

        Args:
            var: a variable of this strategy.
            fn: the update; all copies of a mirrored variable must come out equal.
            args, kwargs: passed on; of a PerReplica or Mirrored each copy gets its own component.
            group: True puts the results together (Mirrored for arrays, None for anything else), False gives
                a tuple with the result for each copy.

        In a replica all replicas meet first and the update is made once.

        Raises:
            RD11: a variable of another strategy.  RD12: the copies would differ; nothing is changed.
            RD25: not a variable.

        Source: tf.distribute.StrategyExtended.update.
        """
        self._strategy._require("extended.update")
        if not isinstance(var, Variable):
            raise errors.error("RD25", "update", f"var is a {type(var).__name__}", "Pass a variable.",
                               kind=errors.InvalidValueError)
        if not callable(fn):
            raise errors.error("RD25", "update", f"fn is {fn!r}", "Pass a function of a variable.")
        if var._strategy is not self._strategy and not self._updates_foreign:
            raise errors.error("RD11", f"update of variable {var.name}", "it was created "
                               f"{'under another strategy' if var._strategy else 'outside every scope'}")
        frame = current.frame()
        if frame.kind == current.REPLICA and frame.strategy is self._strategy:
            return frame.replica.merge_call(
                lambda strategy, *a, **k: self._update(var, fn, a, k, group), tuple(args), kwargs)
        return self._update(var, fn, tuple(args), kwargs or {}, group)

    _updates_foreign = False

    def _update(self, var: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                group: bool) -> Any:
        copies = var._copies if hasattr(var, "_copies") else (var,)
        alone = len(copies) == 1
        check_components([args, kwargs], self._count if alone else len(copies), "update")
        args_of, kwargs_of = splitter(args), splitter(kwargs)
        results = self._call_for_each_copy(
            [component._device for component in copies],
            lambda i: fn(copies[i] if hasattr(var, "_copies") else var, *args_of(i), **kwargs_of(i)))
        return self._grouped(results, [component._device for component in copies], group)

    def _call_for_each_copy(self, names: Sequence[str], call: Callable[[int], Any]) -> list[Any]:
        undo: current.Undo = {}
        top = current.frame()
        creators = top.creators if top.strategy is self._strategy else (*top.creators, self._create_variable)
        results = []
        try:
            for i, name in enumerate(names):
                frame = current.Frame(top, self._strategy, current.UPDATE, None, i, None, name, creators, undo)
                with current.pushed(frame), current_backend().device(name):
                    results.append(call(i))
            for var, _ in undo.values():
                if var._kind == rules.MIRRORED:
                    arrays = [component._array for component in var._copies]
                    distributed_variables.check_equal(arrays, f"update of variable {var.name}", "RD12")
                    var._store_each(var._unite(arrays))
        except BaseException:
            for var, before in undo.values():
                var._store_each(before)
            raise
        return results

    def _grouped(self, results: Sequence[Any], names: Sequence[str], group: bool) -> Any:
        if len(results) == 1:
            return results[0] if group else nest.map_structure(lambda leaf: (leaf,), results[0])
        if not group:
            leaves = [nest.flatten(result) for result in results]
            return nest.pack_sequence_as(results[0], list(zip(*leaves, strict=True)))
        flat = [nest.flatten(result) for result in results]
        merged = [Mirrored(column, names) if all(is_array(leaf) for leaf in column) else None
                  for column in zip(*flat, strict=True)]
        return nest.pack_sequence_as(results[0], merged) if len(merged) == len(flat[0]) else None

    def update_non_slot(self, colocate_with: Any, fn: Callable[..., Any], args: Sequence[Any] = (),
                        kwargs: dict[str, Any] | None = None, group: bool = True) -> Any:
        """Calls `fn(*args, **kwargs)` once per device of `colocate_with`.

        Source: tf.compat.v1.distribute.StrategyExtended.update_non_slot.
        """
        self._strategy._require("extended.update_non_slot")
        names = (colocate_with,) if isinstance(colocate_with, str) else colocate_with
        if not isinstance(names, (list, tuple)) or not names:
            raise errors.error("RD25", "update_non_slot", f"colocate_with is {colocate_with!r}",
                               "Pass device names, as `non_slot_devices` gives them.", kind=errors.InvalidValueError)
        names = [config.check_device(name) for name in names]
        check_components([tuple(args), kwargs or {}], len(names), "update_non_slot")
        args_of, kwargs_of = splitter(tuple(args)), splitter(kwargs or {})
        results = self._call_for_each_copy(names, lambda i: fn(*args_of(i), **kwargs_of(i)))
        return self._grouped(results, names, group)

    def non_slot_devices(self, var_list: Any) -> tuple[str, ...]:
        """The devices for state that belongs to no variable.

        Source: tf.compat.v1.distribute.StrategyExtended.non_slot_devices.
        """
        return self._parameter_devices
