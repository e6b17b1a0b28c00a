"""`tf.Module`: an object that knows the variables in its attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refdist import nest
from refdist.checkpoints.objects import AWAITED_BY
from refdist.tf.scopes import name_scope
from refdist.tf.tensors import keras
from refdist.variables.variable import Variable


class Module:
    """An object whose variables and modules are its attributes, or lie in lists, tuples and dicts that are.

    Attributes:
        name: what it is called.
        name_scope: a block whose summaries have the module's name before theirs.

    >>> import refdist.tf as tf
    >>> class Scale(tf.Module):                                                                     # doctest: +SKIP
    ...     def __init__(self):
    ...         super().__init__(name="scale")
    ...         self.factor = tf.Variable(2.0, name="factor")
    >>> [variable.name for variable in Scale().trainable_variables]                                 # doctest: +SKIP
    ['factor:0']

    Source: tf.Module.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name or type(self).__name__.lower()

    def _checkpoint_items(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != AWAITED_BY}

    @property
    def name_scope(self) -> name_scope:
        """A block whose summaries have the module's name before theirs.

        Source: tf.Module.name_scope.
        """
        return name_scope(self.name)

    @property
    def variables(self) -> tuple[Any, ...]:
        """All variables, those of modules in it among them, in the order of the attributes' names.

        Source: tf.Module.variables.
        """
        return tuple(self._below(Variable, keras().Variable))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """The variables that are trainable.

        Source: tf.Module.trainable_variables.
        """
        return tuple(variable for variable in self.variables if variable.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """The variables that are not trainable.

        Source: tf.Module.non_trainable_variables.
        """
        return tuple(variable for variable in self.variables if not variable.trainable)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The modules and layers in it, and in those.

        Source: tf.Module.submodules.
        """
        return tuple(self._below(Module, keras().Layer))

    @classmethod
    def with_name_scope(cls, method: Any) -> Any:
        """The method as it is.

        Source: tf.Module.with_name_scope.
        """
        return method

    def _below(self, *kinds: type) -> list[Any]:
        reached: dict[int, Any] = {}
        self._walk(kinds, reached, {id(self)})
        return list(reached.values())

    def _walk(self, kinds: tuple[type, ...], reached: dict[int, Any], seen: set[int]) -> None:
        inner = []
        for leaf in self._leaves():
            if id(leaf) in seen:
                continue
            seen.add(id(leaf))
            if isinstance(leaf, kinds):
                reached[id(leaf)] = leaf
            if isinstance(leaf, (Module, keras().Layer)):
                inner.append(leaf)
        for module in inner:
            if isinstance(module, Module):
                module._walk(kinds, reached, seen)
            else:
                below = module.variables if Variable in kinds else module._flatten_layers(include_self=False)
                reached.update((id(child), child) for child in below if isinstance(child, kinds))

    def _leaves(self) -> Iterator[Any]:
        for _, value in sorted(vars(self).items()):
            yield from nest.flatten(value)
