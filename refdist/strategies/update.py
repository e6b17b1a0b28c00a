"""`update` and `update_non_slot`: one function called for every copy of a variable, or on every device.

The copies of a mirrored variable come out equal, or nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refdist import config, errors, nest
from refdist.core import context_stack, rules
from refdist.core.callers import require
from refdist.core.interfaces import Layout, Undo
from refdist.strategies.base import Strategy
from refdist.strategies.replica_context import call_arguments
from refdist.variables.access import foreign
from refdist.variables.values import check_components, regroup, splitter
from refdist.variables.variable import Variable, as_variable


class Updates:
    """The part of StrategyExtended that updates variables."""

    _strategy: Strategy
    layout: Layout
    _parameter_devices: tuple[str, ...]
    _keeps: str
    _scope_frame: Callable[[context_stack.Frame], context_stack.Frame]
    value_container: Callable[[Any], Any]

    def update(self, var: Any, fn: Callable[..., Any], args: Sequence[Any] = (),
               kwargs: dict[str, Any] | None = None, group: bool = True) -> Any:
        """Calls `fn(copy, *args, **kwargs)` for every copy of `var`, on its device.

        Args:
            var: a variable of this strategy.
            fn: the update; all copies of a mirrored variable must come out equal.
            args, kwargs: passed on; of a PerReplica or Mirrored each copy gets its own component.
            group: True puts the results together, leaf by leaf: arrays and IndexedSlices become Mirrored, the
                copies of a variable that variable, an object that is the same for every copy stays as it is,
                anything else becomes None.  False gives a tuple with the result for each copy.

        In a replica all replicas meet first and the update is made once.

        Raises:
            RD02: replicas update different variables.
            RD11: a variable of another strategy.
            RD12: the copies would differ.  RD21: results of different structure.  Nothing is changed then.
            RD25: not a variable.

        Source: tf.distribute.StrategyExtended.update.
        """
        require(self._strategy, "extended.update")
        var = as_variable(var, "update", "var", errors.InvalidValueError)
        if not callable(fn):
            raise errors.error("RD25", "update", f"fn is {fn!r}", "Pass a function of a variable.")
        args, kwargs = call_arguments(args, kwargs, "update")
        code = rules.FOREIGN_UPDATES["extended.update"][self._keeps]
        if var._strategy is not self._strategy and code != rules.OK:
            raise foreign(f"update of variable {var.name}", var, code)
        frame = context_stack.frame()
        if frame.replica is not None and frame.strategy is self._strategy:
            return frame.replica.merge_call(
                lambda strategy, one, *a, **k: self._update(_the_same(one), fn, a, k, group), (var, *args), kwargs)
        return self._update(var, fn, args, kwargs, group)

    def _update(self, var: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                group: bool) -> Any:
        copies = var._copies if hasattr(var, "_copies") else (var,)
        alone = len(copies) == 1
        check_components([args, kwargs], self.layout.count if alone else len(copies), "update")
        args_of, kwargs_of = splitter(args), splitter(kwargs)
        return self._call_for_each_copy(
            [component._device for component in copies],
            lambda i: fn(copies[i] if hasattr(var, "_copies") else var, *args_of(i), **kwargs_of(i)), group)

    def _call_for_each_copy(self, names: Sequence[str], call: Callable[[int], Any], group: bool) -> Any:
        undo: Undo = {}
        top = context_stack.frame()
        creators = self._scope_frame(top).creators
        results = []
        try:
            for i, name in enumerate(names):
                frame = context_stack.Frame(top, self._strategy, context_stack.UPDATE, None, i, None, name,
                                            creators, undo)
                with context_stack.pushed(frame), self._strategy.extended.backend.device(name):
                    results.append(call(i))
            for written in undo.values():
                written.settle()
            if group:
                return regroup(results, names, "results of update", rules.UPDATED, self.value_container)
            each = regroup(results, names, "results of update", rules.VALUES, self.value_container)
            return nest.map_structure(lambda leaf: leaf.values, each)
        except BaseException as error:
            for written in undo.values():
                written.restore()
            errors.explain_read_only(error)
            raise

    def update_non_slot(self, colocate_with: Any, fn: Callable[..., Any], args: Sequence[Any] = (),
                        kwargs: dict[str, Any] | None = None, group: bool = True) -> Any:
        """Calls `fn(*args, **kwargs)` once per device of `colocate_with`.

        Source: tf.compat.v1.distribute.StrategyExtended.update_non_slot.
        """
        require(self._strategy, "extended.update_non_slot")
        names = (colocate_with,) if isinstance(colocate_with, str) else colocate_with
        if not isinstance(names, (list, tuple)) or not names:
            raise errors.error("RD25", "update_non_slot", f"colocate_with is {colocate_with!r}",
                               "Pass device names, as `non_slot_devices` gives them.", kind=errors.InvalidValueError)
        names = [config.check_device(name) for name in names]
        if not callable(fn):
            raise errors.error("RD25", "update_non_slot", f"fn is {fn!r}", "Pass a function.")
        args, kwargs = call_arguments(args, kwargs, "update_non_slot")
        check_components([args, kwargs], len(names), "update_non_slot")
        args_of, kwargs_of = splitter(args), splitter(kwargs)
        return self._call_for_each_copy(names, lambda i: fn(*args_of(i), **kwargs_of(i)), group)

    def non_slot_devices(self, var_list: Any) -> tuple[str, ...]:
        """The devices for state that belongs to no variable.

        Source: tf.compat.v1.distribute.StrategyExtended.non_slot_devices.
        """
        return self._parameter_devices


def _the_same(var: Any) -> Variable:
    # Different variables come as a PerReplica of them.
    if isinstance(var, Variable):
        return var
    brought = ", ".join(str(one.name) for one in var.values)
    raise errors.error("RD02", "extended.update", f"the replicas bring different variables: {brought}",
                       "Update the same variable on every replica.")

