"""`update` and `update_non_slot`: a function called for every copy of a variable, or on every device.

Each call is made in a context of its own, in which that copy, and no other, may be written alone.  Nothing stops the
function from writing other variables there, or from failing half-way, so what it writes goes to drafts (`core/drafts`).
At the end the copies of every variable written must be as `COPIES_DIFFER` says; else, and on any error, all
drafts are dropped.  So either all copies are updated, or nothing has changed.

In a replica the update is a `merge_call`: all replicas arrive at it, and it is carried out once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refdist import config, errors, journal, nest
from refdist.core import context_stack
from refdist.core.callers import require
from refdist.core.drafts import Drafts
from refdist.core.interfaces import Layout
from refdist.core.rules.calls import Call
from refdist.core.rules.table import Refusal
from refdist.core.rules.values import Result
from refdist.core.rules.variables import FOREIGN_UPDATES, Keeps
from refdist.strategies.base import Strategy
from refdist.strategies.replica_context import call_arguments
from refdist.variables.access import different, foreign
from refdist.variables.values import PerReplica, check_components, regroup, splitter
from refdist.variables.variable import Variable, as_variable


class Updates:
    """The part of StrategyExtended that updates variables."""

    _strategy: Strategy
    layout: Layout
    _parameter_devices: tuple[str, ...]
    _keeps: Keeps
    _scope_frame: Callable[[context_stack.Frame], context_stack.Frame]
    value_container: Callable[[Any], Any]

    def update(self, var: object, fn: Callable[..., object], args: Sequence[object] = (),
               kwargs: dict[str, object] | None = None, group: bool = True) -> Any:
        """Calls `fn(copy, *args, **kwargs)` for every copy of `var`, on its device.

        Args:
            var: a variable of this strategy.
            fn: the update; afterwards all copies of a mirrored variable must be equal.
            args, kwargs: passed on; of a PerReplica or Mirrored each copy gets its own component.
            group: True puts the results together, leaf by leaf: arrays and IndexedSlices become Mirrored, the
                copies of a variable become that variable, an object that is the same for every copy stays as it
                is, and anything else becomes None.

        In a replica all replicas call it together, and the update is carried out once.

        Returns:
            The results put together; with `group=False`, a tuple with the result of each copy.

        Raises:
            RD02: replicas update different variables.
            RD11: a variable of another strategy.
            RD12: the copies would differ.  RD21: results of different structure.  Nothing is changed then.
            RD25, RD34: not a variable.

        Source: tf.distribute.StrategyExtended.update.
        """
        require(self._strategy, Call.UPDATE)
        variable = as_variable(var, "update", "var", "RD34")
        if not callable(fn):
            raise errors.error("RD25", "update", f"fn is {fn!r}", "Pass a function of a variable.")
        args, kwargs = call_arguments(args, kwargs, "update")
        cell = FOREIGN_UPDATES[variable._kind][self._keeps]
        if variable._strategy is not self._strategy and isinstance(cell, Refusal):
            by = f"{errors.type_of(self._strategy)} of {errors.counted(self.layout.count, 'replica')}"
            raise foreign(f"update of variable {variable.name} by {by}", variable, cell.code)
        frame = context_stack.frame()
        if frame.replica is not None and frame.strategy is self._strategy:
            return frame.replica.merge_call(
                lambda strategy, one, *a, **k: self._update(_the_same(one), fn, a, k, group), (variable, *args), kwargs)
        return self._update(variable, fn, args, kwargs, group)

    def _update(self, variable: Variable, fn: Callable[..., object], args: tuple[object, ...],
                kwargs: dict[str, object], group: bool) -> Any:
        copies = variable._copies
        # A single copy may be updated from arguments with a component for each replica.
        check_components([args, kwargs], len(copies) if len(copies) > 1 else self.layout.count, "update")
        args_of, kwargs_of = splitter(args), splitter(kwargs)
        return self._call_for_each_copy(
            [one._device for one in copies], lambda i: fn(copies[i], *args_of(i), **kwargs_of(i)), group)

    def _call_for_each_copy(self, names: Sequence[str], call: Callable[[int], object], group: bool) -> Any:
        top = context_stack.frame()
        drafts = Drafts()
        creators = self._scope_frame(top).creators
        results = []
        try:
            for i, name in enumerate(names):
                frame = context_stack.Frame(top, self._strategy, context_stack.UPDATE, None, i, None, name,
                                            creators, drafts)
                with context_stack.pushed(frame), self._strategy.extended.backend.device(name), \
                        journal.span("update", copy=i):
                    results.append(call(i))
            drafts.settle()
            if group:
                together = regroup(results, names, "results of update", Result.UPDATE, self.value_container)
            else:
                each = regroup(results, names, "results of update", Result.VALUES, self.value_container)
                together = nest.map_structure(lambda leaf: leaf.values, each)
            drafts.store()
            return together
        except BaseException as error:
            drafts.put_back()
            errors.explain_read_only(error)
            raise

    def update_non_slot(self, colocate_with: object, fn: Callable[..., object], args: Sequence[object] = (),
                        kwargs: dict[str, object] | None = None, group: bool = True) -> Any:
        """Calls `fn(*args, **kwargs)` once per device of `colocate_with`.

        Args:
            colocate_with: a device name, or a list of them, as `non_slot_devices` returns them.
            fn: the update.
            args, kwargs: passed on; of a PerReplica or Mirrored each device gets its own component.
            group: as for `update`.

        Returns:
            As `update`.

        Raises:
            RD12, RD21: as `update`.  RD25, RD34: no device, or not a function.

        Source: tf.compat.v1.distribute.StrategyExtended.update_non_slot.
        """
        require(self._strategy, Call.UPDATE_NON_SLOT)
        names = (colocate_with,) if isinstance(colocate_with, str) else colocate_with
        if not isinstance(names, (list, tuple)) or not names:
            raise errors.error("RD34", "update_non_slot", f"colocate_with is {colocate_with!r}",
                               "Pass device names, as `non_slot_devices` returns them.")
        names = [config.check_device(name) for name in names]
        if not callable(fn):
            raise errors.error("RD25", "update_non_slot", f"fn is {fn!r}", "Pass a function.")
        args, kwargs = call_arguments(args, kwargs, "update_non_slot")
        check_components([args, kwargs], len(names), "update_non_slot")
        args_of, kwargs_of = splitter(args), splitter(kwargs)
        return self._call_for_each_copy(names, lambda i: fn(*args_of(i), **kwargs_of(i)), group)

    def non_slot_devices(self, var_list: object) -> tuple[str, ...]:
        """The devices for state that belongs to no variable.

        Source: tf.compat.v1.distribute.StrategyExtended.non_slot_devices.
        """
        return self._parameter_devices


def _the_same(merged: Variable | PerReplica) -> Variable:
    # merge_call puts one variable together again, and different ones into a PerReplica.
    if isinstance(merged, Variable):
        return merged
    raise different("extended.update", merged.values)

