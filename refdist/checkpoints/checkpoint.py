"""`Checkpoint`: saves variables to a file and restores them, under any strategy and number of replicas.

**Names.**  A variable has no identity that survives a restart, so it is saved under the names of the attributes that
lead to it from the checkpoint: `Checkpoint(model=m)` saves `m.layers[0].w` as "model/layers/0/w", as TensorFlow does.
A file holds one value per variable, not one per replica: a mirrored variable has one value anyway, and of one that
is synchronized on read the value is saved that reading it across replicas returns.  That is why a file fits any number
of replicas and workers.  An object that is reached by several names is saved once, under the shortest path, with the
others as aliases; it is restored from one value, under whichever of them the file has it.

**All or nothing.**  `read` compares names, shapes and dtypes before it assigns anything.  Objects with `state_dict` are
restored first, because only they can still refuse a value; if one does, those before it get their old state back.

**Deferred values.**  A model may create its variables in the first step, after `restore`.  Values of the file that no
variable took are kept (`_pending`), and what has their names when an attribute is set later takes them then.  A
checkpoint inside another one notes where it is (`_places`: the pending values of the outer one, and the names that lead
here), so that an attribute set on the inner one finds values that the outer one read.

**Workers.**  All workers call `save`, because reading a variable may need all of them.  Of those that save to one path
the first one writes the file, so that workers with folders of their own have a file each; the others wait, and all
raise if one of them could not write.  The workers tell each other their paths first, so that one that does not save is
an error that names `save`, and not one in the reading of some variable.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from refdist import data, errors
from refdist.array.convert import short
from refdist.checkpoints import files, random_states
from refdist.checkpoints.files import State, file_of, path_of
from refdist.checkpoints.objects import (
    AWAITED_BY,
    SEEDS,
    Placed,
    Saved,
    Seen,
    Stateful,
    Tracked,
    is_plain,
    names_its_items,
    tracked,
    walk,
)
from refdist.checkpoints.random_states import RandomStates
from refdist.core import call_site, context_stack, saved
from refdist.core.rules.table import Refusal
from refdist.core.rules.values import Use, of_kind
from refdist.variables.operations import fits
from refdist.variables.variable import Variable
from refdist.workers.transport import Transport, widest

# The content of a file, by name.
Values: TypeAlias = "dict[str, npt.NDArray[np.generic] | State]"
_T = TypeVar("_T")
# Checkpoints with values that no variable has taken yet.
_waiting: weakref.WeakSet[Checkpoint] = weakref.WeakSet()
# Names that `assert_consumed` and the like do not ask for.
_UNASKED = ("save_counter", random_states.NAME)
# What a checkpoint itself keeps; all other attributes are saved, also those whose names begin with "_".
_KEPT = frozenset(("_pending", "_places", "_root", "_save_counter"))
# What no keyword may be called; of other methods, such as `read`, it takes the place, as on TensorFlow.
_TAKEN = _KEPT | {"save", "save_counter"}
_SAME_NAMES = "Use the names of attributes under which the variables were saved."


class Checkpoint:
    """Variables that are saved and restored together, by the names of the attributes that lead to them.

    Args:
        root: an object whose attributes are tracked; None for this object's own.
        kwargs: attributes to set: variables, other objects with variables, lists, tuples and dicts of them, iterators
            of datasets, and objects with `state_dict` and `load_state_dict`, whose state must be what JSON can hold.

    >>> import os, tempfile, refdist
    >>> with refdist.MirroredStrategy(["GPU:0", "GPU:1"]).scope():
    ...     v = refdist.Variable(3.0)
    >>> path = refdist.train.Checkpoint(v=v).write(os.path.join(tempfile.mkdtemp(), "rows"))
    >>> w = refdist.Variable(0.0)
    >>> refdist.train.Checkpoint(v=w).read(path).assert_consumed() is not None, float(w)
    (True, 3.0)

    Raises:
        RD25, RD34: a number, text, an array, None, a function, a class or an iterator, which would not be saved; or an
            attribute that the root has already, or `save` or another name that Checkpoint needs.

    Source: tf.train.Checkpoint.
    """

    _pending: Values
    _places: list[tuple[Values, str]]
    _root: object
    _save_counter: Variable | None

    def __init__(self, root: object = None, **kwargs: object) -> None:
        named = kwargs if root is None else {"root": root, **kwargs}
        for name in kwargs:
            if name in _TAKEN or (name.startswith("_") and hasattr(Checkpoint, name)):
                raise errors.error("RD34", "Checkpoint", f"the name {name!r} is taken by an attribute of Checkpoint "
                                   "itself", f"Choose another name: `Checkpoint({name.strip('_')}_value=...)`.")
        for _ in walk(named, "", {}):
            pass  # called only to refuse at once what cannot be saved
        for name, value in named.items():
            if is_plain(value):
                called = getattr(value, "__qualname__", short(value))  # the repr of a function has its address
                raise errors.error("RD34", "Checkpoint", f"{name} is {called}, {errors.type_of(value)}, which would "
                                   "not be saved", "Pass a variable, `refdist.Variable(value)`, or an object "
                                   "with variables.")
        self._pending = {}
        self._places = []
        self._root = root
        self._save_counter = None
        for name, value in kwargs.items():
            if root is not None and getattr(root, name, value) is not value:
                raise errors.error("RD34", "Checkpoint", f"the root already has an attribute {name!r}",
                                   "Choose another name.")
            setattr(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        if name not in _KEPT:
            self._give()

    def _give(self) -> None:
        # Assigns values that were read before their variables existed.
        for pending, prefix in [(self._pending, ""), *self._places]:
            if not pending:
                continue
            seen: Seen = {}
            awaited = {key: value for key, value in tracked(self._roots(), prefix, seen).items() if key in pending}
            _refuse_counted(seen, pending)
            _assign(awaited, pending)
            _drop(pending, awaited)
            _place(seen, pending)

    @property
    def save_counter(self) -> Variable:
        """The number of saves: an int64 variable, which is saved and restored with the others.

        Source: tf.train.Checkpoint, "Attributes".
        """
        if self._save_counter is None:
            self._save_counter = counter()
            self._give()
        return self._save_counter

    def _own(self) -> dict[str, object]:
        own = {name: value for name, value in vars(self).items() if name not in _KEPT}
        return own if self._save_counter is None else {**own, "save_counter": self._save_counter}

    def _checkpoint_items(self) -> dict[str, object]:
        return self._own() if self._root is None else {"root": self._root, **self._own()}

    def _roots(self) -> list[object]:
        return [self._own()] if self._root is None else [self._root, self._own()]

    def _tracked(self, seen: Seen | None = None) -> dict[str, Tracked]:
        by_name = tracked(self._roots(), "", {} if seen is None else seen)
        if random_states.wanted():
            # Random states are restored last, because restoring other objects may draw numbers.
            by_name[random_states.NAME] = RandomStates(transport_of(_shared(by_name)))
        return by_name

    def _shared(self) -> list[Saved | data.Iterator]:
        # The variables and iterators that workers may share.
        return _shared(self._tracked())

    def write(self, file_prefix: str | os.PathLike[str], options: object = None) -> str:
        """Writes the variables into a file and returns `file_prefix`; creates the folder if necessary.

        Of a mirrored variable one copy is written; of one that is synchronized on read, what `read_value()` returns.

        Args:
            file_prefix: the path of the file, without its ending.
            options: without effect.

        Raises:
            RD01, RD02: not all workers make this call.
            RD09: called in a replica.  RD13: a variable that cannot be read outside replicas.
            RD25, RD34: not a path, or one that no file can have.
            RD27: the package safetensors is not installed.
            RD31: a variable is not numeric, JSON cannot hold a state, or the file cannot be written.

        Source: tf.train.Checkpoint.write.
        """
        attempted = "Checkpoint.write"
        prefix = path_of(file_prefix, attempted)
        writes, _ = self._begin(prefix, attempted)
        saved.tell(prefix, self._write(prefix, attempted, writes))
        return prefix

    def _begin(self, path: str, attempted: str) -> tuple[bool, bool]:
        """Whether this worker writes what is saved to the path, and the index of its folder."""
        _outside_replicas(attempted)
        transport = transport_of(self._shared())
        file = os.path.abspath(path)
        before = transport.all_gather_object(transport.call(attempted), file)[:transport.rank]
        return file not in before, os.path.dirname(file) not in map(os.path.dirname, before)

    def _write(self, path: str, attempted: str, writes: bool) -> int | None:
        """Writes the file if this worker does; returns the step, where a variable of that name has it."""
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        states: dict[str, object] = {}
        aliases: dict[str, str] = {}
        for (key, *others), value in _by_object(self._tracked()):
            aliases.update(dict.fromkeys(others, key))
            if not isinstance(value, Saved):
                states[key] = _state_of(value, key, attempted)
                continue
            array = np.asarray(value.numpy())
            cell = of_kind(Use.SAVED, array.dtype.kind)
            if isinstance(cell, Refusal):
                raise errors.error(cell.code, attempted, f"{key} has dtype {array.dtype}",
                                   "Keep only numbers and booleans in variables.",
                                   kind=errors.InvalidTypeError)
            arrays[key] = array
        content = files.packed(arrays, aliases, states)
        by_writers(self._shared(), attempted, writes, lambda: files.write(file_of(path), content))
        step = arrays.get("step")
        return int(step.item()) if step is not None and step.size == 1 and step.dtype.kind in "iu" else None

    def sync(self) -> None:
        """Returns at once: what was saved is in its file when `save` and `write` return.

        Source: tf.train.Checkpoint.sync.
        """

    def read(self, save_path: str | os.PathLike[str], options: object = None) -> LoadStatus:
        """Assigns the values of a file to the variables; nothing changes unless all of them fit.

        Attributes that are set later take their values then.  If not one of the existing variables has a value in
        the file, a warning says so.

        Args:
            save_path: what `write` or `save` returned.
            options: without effect.

        Raises:
            RD09: called in a replica.  RD25, RD34: not a path, or one that no file can have.
            RD27: the package safetensors is not installed.
            RD31: the file cannot be read, or a shape or dtype differs.

        Source: tf.train.Checkpoint.read.
        """
        return self._read(path_of(save_path, "Checkpoint.read"))

    def _read(self, path: str) -> LoadStatus:
        _outside_replicas("Checkpoint.read")
        values = files.read(file_of(path))
        if not random_states.wanted():
            values.pop(random_states.NAME, None)
        seen: Seen = {}
        by_name = self._tracked(seen)
        _refuse_counted(seen, values)
        _assign({key: value for key, value in by_name.items() if key in values}, values)
        # The same dict object, because checkpoints inside this one refer to it.
        self._pending.clear()
        self._pending.update(values)
        _drop(self._pending, by_name)
        _place(seen, self._pending)
        if self._pending:
            _waiting.add(self)
            for _, item in seen.values():
                if names_its_items(item) and not isinstance(item, Checkpoint):
                    vars(item)[AWAITED_BY] = self  # keeps this alive as long as the object that it has values for
        wanted, there = ({key for key in keys if _is_asked_for(key)} for keys in (by_name, values))
        if wanted and there and not wanted & there:
            call_site.warn(f"Checkpoint.read: {file_of(path)} has no value for any of {_brief(wanted)}; it has "
                           f"{_brief(there)}. {_SAME_NAMES}")
        return LoadStatus(path, self, frozenset(values))

    def save(self, file_prefix: str | os.PathLike[str], options: object = None) -> str:
        """Writes "file_prefix-N", where N is the number of saves, and makes it the latest checkpoint of its folder.

        Args:
            file_prefix: the beginning of the path, as "run/ckpt"; its folder is made if necessary.
            options: without effect.

        Raises:
            RD01, RD02, RD09, RD13, RD25, RD27, RD31, RD34: as `write`; RD31 also if `save_counter` cannot count
            further.

        Source: tf.train.Checkpoint.save.
        """
        attempted = "Checkpoint.save"
        prefix = path_of(file_prefix, attempted)
        writes, indexes = self._begin(prefix, attempted)
        number = self._next_number(attempted)
        self.save_counter.assign(np.int64(number))
        path = f"{prefix}-{number}"
        step = self._write(path, attempted, writes)
        folder, name = os.path.split(path)

        def write_index() -> None:
            # It lists this checkpoint alone, because a manager of the folder may delete those that it lists.
            files.write_index(folder, {"latest": name, "all": [name]})
            saved.tell(path, step)

        by_writers(self._shared(), attempted, indexes, write_index)
        if not indexes:
            saved.tell(path, step)
        return path

    def _next_number(self, attempted: str) -> int:
        number = int(self.save_counter) + 1
        if number > np.iinfo(np.int64).max:  # only from a malicious file
            raise errors.error("RD31", attempted, f"save_counter is {number - 1}, the largest number that it can hold",
                               "Assign the number of saves to it.")
        return number

    def restore(self, save_path: str | os.PathLike[str] | None, options: object = None) -> LoadStatus:
        """As `read`, and restores `save_counter`; None does nothing, as `latest_checkpoint` may return it.

        What is asserted of the status is then never so.

        Args:
            save_path: what `save` or `latest_checkpoint` returned.
            options: without effect.

        Raises:
            RD09, RD25, RD27, RD31, RD34: as `read`.

        Source: tf.train.Checkpoint.restore.
        """
        _ = self.save_counter
        if save_path is None:
            return LoadStatus(None, self, frozenset())
        return self._read(path_of(save_path, "Checkpoint.restore"))


class LoadStatus:
    """Which values of a file were restored; its methods raise an AssertionError if that is not what was expected.

    Args:
        path: the file; None if there was none to read.
        checkpoint: what was restored.
        names: those of the values in the file.

    Source: tf.train.Checkpoint.read, "Returns".
    """

    def __init__(self, path: str | None, checkpoint: Checkpoint, names: frozenset[str]) -> None:
        self._path = path
        self._checkpoint = checkpoint
        self._names = names

    def _objects(self, matched: bool) -> list[str]:
        # All names of the objects that there are now and that have, or have not, taken a value of the file.
        taken = self._names - self._checkpoint._pending.keys()
        return sorted(key for keys, _ in _by_object(self._checkpoint._tracked())
                      if taken.isdisjoint(keys) is not matched for key in keys if _is_asked_for(key))

    def _check(self, attempted: str, wrong: bool, complaint: str, fix: str = _SAME_NAMES) -> None:
        # Nothing was restored from None, so every assertion about it fails.
        if self._path is None:
            raise errors.error("RD31", attempted, "the path is None, and nothing was restored",
                               "Ask only if `latest_checkpoint` has found a checkpoint.", kind=errors.UnmatchedError)
        if wrong:
            raise errors.error("RD31", attempted, f"{self._path} {complaint}", fix, kind=errors.UnmatchedError)

    def assert_existing_objects_matched(self) -> LoadStatus:
        """Raises unless the file has a value for every variable.

        Raises:
            RD31: a variable has no value, or there is no file.
        """
        unmatched = self._objects(matched=False)
        self._check("assert_existing_objects_matched", bool(unmatched),
                    f"has no value for {', '.join(unmatched)}")
        return self

    def assert_consumed(self) -> LoadStatus:
        """Raises unless every variable has a value, and every value of the file a variable.

        Raises:
            RD31: a value was not used, a variable has none, or there is no file.
        """
        left = sorted(filter(_is_asked_for, self._checkpoint._pending))
        self._check("assert_consumed", bool(left),
                    f"has values for {', '.join(map(errors.shown, left))}, which no variable takes",
                    f"{_SAME_NAMES[:-1]}, or `expect_partial()`.")
        return self.assert_existing_objects_matched()

    def assert_nontrivial_match(self) -> LoadStatus:
        """Raises unless at least one variable was restored.

        Raises:
            RD31: none was, or there is no file.
        """
        self._check("assert_nontrivial_match", not self._objects(matched=True), "has no value for any variable")
        return self

    def expect_partial(self) -> LoadStatus:
        """Says that it is not an error if values of the file are not used; it checks nothing."""
        return self


def _is_asked_for(key: str) -> bool:
    return key not in _UNASKED and key.rpartition("/")[2] != SEEDS


def _drop(pending: Values, taken: Iterable[str]) -> None:
    """Removes values that were taken, under all their names."""
    values = {id(pending[key]) for key in taken if key in pending}
    for key in [key for key, value in pending.items() if id(value) in values]:
        del pending[key]


def _place(seen: Seen, pending: Values) -> None:
    for path, owner in seen.values():
        if isinstance(owner, Checkpoint) and path and not any(
                known is pending and where == path for known, where in owner._places):
            owner._places.append((pending, path))


def _by_object(by_name: Mapping[str, _T]) -> list[tuple[list[str], _T]]:
    """The names of each object, the shortest path first, and the object."""
    by_id: dict[int, tuple[list[str], _T]] = {}
    for key, shared in by_name.items():
        by_id.setdefault(id(shared), ([], shared))[0].append(key)
    return [(sorted(keys, key=lambda key: (key.count("/"), key)), shared) for keys, shared in by_id.values()]


def _state_of(holder: Stateful | Placed, key: str, attempted: str) -> object:
    state = holder._place() if isinstance(holder, Placed) else holder.state_dict()
    try:
        # What JSON would change, such as tuples and keys that are ints, cannot be restored.
        fits = repr(json.loads(json.dumps(state))) == repr(state)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise errors.error("RD31", attempted, f"JSON cannot hold the state of {key}",
                           "Return numbers, str, lists and dicts with str keys; keep arrays in variables.",
                           kind=errors.InvalidTypeError)
    return state


def _refuse_counted(seen: Seen, values: Values) -> None:
    # Files of versions that named the weights of Keras's objects by their order, which another model may not have.
    for path, item in seen.values():
        name = f"{path}/variables/0" if path else "variables/0"
        if name in values and names_its_items(item) and not isinstance(item, Checkpoint):
            raise errors.error("RD31", "Checkpoint.read", f"the file has {name}: it was written by an earlier version "
                               "of refdist, which counted the weights of Keras's objects, and a model with another "
                               "layer would get its neighbor's", "Restore it with that version and save with "
                               "`model.save_weights`, then call `model.load_weights` here; or assign what "
                               "`train.load_checkpoint` reads.",
                               kind=errors.InvalidValueError)


def _assign(by_name: Mapping[str, Tracked], values: Values) -> None:
    attempted = "Checkpoint.read"
    variables: list[tuple[Saved, npt.NDArray[np.generic]]] = []
    states: list[tuple[Stateful | Placed, object]] = []
    for (key, *_), target in _by_object(by_name):
        value = values[key]
        if isinstance(target, Saved) and not isinstance(value, State):
            target.numpy()  # what cannot be read cannot be assigned either; it is refused before anything is assigned
            if value.dtype != target.dtype or not fits(value.shape, target.shape):
                raise errors.error("RD31", attempted, f"{key} has shape {value.shape} and dtype {value.dtype} in the "
                                   f"file, the variable {target.shape} and {target.dtype}",
                                   "Restore into a variable of the same shape and dtype.",
                                   kind=errors.InvalidValueError)
            variables.append((target, value))
        elif isinstance(value, State) and not isinstance(target, Saved):
            states.append((target, value.content))
        else:
            raise errors.error("RD31", attempted, f"{key} is a {'state' if isinstance(value, State) else 'variable'} "
                               f"in the file and {errors.type_of(target)} here", _SAME_NAMES,
                               kind=errors.InvalidValueError)
    undo: list[Callable[[], object]] = []
    try:
        # Iterators first: a function of a dataset may draw numbers of a generator whose state comes after.
        for target, content in sorted(states, key=lambda pair: not isinstance(pair[0], data.Iterator)):
            if isinstance(target, Placed):
                undo.append(target._go_to(content))
            else:
                undo.append(partial(target.load_state_dict, target.state_dict()))
                target.load_state_dict(content)
    except Exception:
        # Variables have not been assigned yet; objects that were restored get their old state back.
        for back in reversed(undo):
            back()
        raise
    for variable, array in variables:
        variable.assign(array)


def take_up() -> None:
    """Assigns values that were read before their variables were created, to those created since then."""
    for checkpoint in list(_waiting):
        _waiting.discard(checkpoint)  # where a value does not fit, that is said once
        # Outside the replica that may have created the variables for all replicas.
        with context_stack.pushed(context_stack.BOTTOM):
            checkpoint._give()
        if checkpoint._pending:
            _waiting.add(checkpoint)


def _outside_replicas(attempted: str) -> None:
    if context_stack.frame().kind in (context_stack.REPLICA, context_stack.UPDATE):
        raise errors.error("RD09", attempted, f"it was called {context_stack.describe()}",
                           "Call it outside `strategy.run`.")


def _brief(names: Iterable[str]) -> str:
    shown = sorted(map(errors.shown, names))
    return ", ".join(shown) if len(shown) <= 4 else f"{', '.join(shown[:3])}, ... ({len(shown)} in all)"


def counter() -> Variable:
    """An int64 variable of value 0 that belongs to no strategy: each worker counts for itself."""
    with context_stack.pushed(context_stack.BOTTOM):
        return Variable(np.int64(0), trainable=False)


def _shared(by_name: Mapping[str, Tracked]) -> list[Saved | data.Iterator]:
    return [value for value in by_name.values() if isinstance(value, Saved | data.Iterator)]


def transport_of(shared: Iterable[Saved | data.Iterator]) -> Transport:
    """The transport between the workers that have these variables and iterators."""
    return widest(value._strategy.extended.transport for value in shared if value._strategy)


def by_writers(shared: Iterable[Saved | data.Iterator], attempted: str, writes: bool,
               act: Callable[[], None]) -> None:
    """Calls `act` on the workers that write, while the others wait; if it raises on one worker, all raise."""
    transport = transport_of(shared)
    failed: Exception | None = None
    if writes:
        try:
            act()
        except Exception as error:
            failed = error
    failures = transport.all_gather_object(transport.call(attempted), None if failed is None else str(failed))
    if failed is not None:
        raise failed
    for worker, failure in enumerate(failures):
        if failure is not None:
            raise errors.error("RD31", attempted, f"worker {worker} could not write: {failure}")
