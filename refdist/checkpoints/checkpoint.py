"""`Checkpoint`: variables in files, restored to any strategy and number of replicas.

A file is complete or not there: it is written under another name and then renamed.  On several workers all call,
the first one writes, and everybody waits for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from refdist import errors
from refdist.array.transport import Transport, widest
from refdist.checkpoints import files
from refdist.checkpoints.files import State, file_of, path_of
from refdist.checkpoints.objects import Stateful, walk
from refdist.core import call_site, context_stack, rules
from refdist.variables.variable import Variable


class Checkpoint:
    """Variables that are saved and restored together, by the names of the attributes that lead to them.

    Args:
        root: an object whose attributes are tracked; None for this object's own.
        kwargs: attributes to set: variables, other objects with variables, lists, tuples and dicts of them, and
            objects with `state_dict` and `load_state_dict`, whose state must be what JSON can hold.

    >>> import os, tempfile, refdist
    >>> with refdist.MirroredStrategy(["GPU:0", "GPU:1"]).scope():
    ...     v = refdist.Variable(3.0)
    >>> path = refdist.train.Checkpoint(v=v).write(os.path.join(tempfile.mkdtemp(), "rows"))
    >>> w = refdist.Variable(0.0)
    >>> refdist.train.Checkpoint(v=w).read(path).assert_consumed() is not None, float(w)
    (True, 3.0)

    Source: tf.train.Checkpoint.
    """

    _pending: dict[str, object]
    # Where this one is inside others that were read: their `_pending`, and the names that lead here.
    _places: list[tuple[dict[str, object], str]]
    _root: Any
    _save_counter: Any

    def __init__(self, root: object = None, **kwargs: object) -> None:
        self._pending = {}
        self._places = []
        self._root = root
        self._save_counter = None
        for name, value in kwargs.items():
            if root is not None and getattr(root, name, value) is not value:
                raise errors.error("RD25", "Checkpoint", f"the root has another attribute {name!r} already",
                                   "Give it another name.", kind=errors.InvalidValueError)
            setattr(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        if not name.startswith("_"):
            self._give(name, value)

    def _give(self, name: str, value: object) -> None:
        # What was read before this attribute existed.
        for pending, prefix in [(self._pending, ""), *self._places]:
            if not pending:
                continue
            seen: dict[int, tuple[str, object]] = {}
            found = {key: one for key, one in walk({name: value}, prefix, seen) if key in pending}
            _assign(found, pending)
            for key in found:
                del pending[key]
            _place(seen, pending)

    @property
    def save_counter(self) -> Any:
        """How often it was saved: an int64 variable, which is saved and restored with the others.

        Source: tf.train.Checkpoint, "Attributes".
        """
        if self._save_counter is None:
            self._save_counter = counter()
            self._give("save_counter", self._save_counter)
        return self._save_counter

    def _own(self) -> dict[str, Any]:
        own = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return own if self._save_counter is None else {**own, "save_counter": self._save_counter}

    def _checkpoint_items(self) -> dict[str, Any]:
        return self._own() if self._root is None else {"root": self._root, **self._own()}

    def _tracked(self, seen: dict[int, tuple[str, object]] | None = None) -> dict[str, Variable | Stateful]:
        found: dict[str, Variable | Stateful] = {}
        for root in [self._own()] if self._root is None else [self._root, self._own()]:
            met: dict[int, tuple[str, object]] = {}
            found.update(walk(root, "", met))
            if seen is not None:
                seen.update(met)
        return found

    def _variables(self) -> list[Variable]:
        return [one for one in self._tracked().values() if isinstance(one, Variable)]

    def write(self, file_prefix: str | os.PathLike[str], options: object = None) -> str:
        """Writes the variables into a file and returns `file_prefix`; a folder that does not exist is made.

        Of a mirrored variable one copy is written, of one that is synchronized on read what reading it gives.

        Raises:
            RD01, RD02: on several workers, when not all of them come.
            RD09: in a replica.  RD13: a variable that cannot be read outside replicas.
            RD27: the package safetensors is not installed.
            RD31: a variable that is not a number, a state that JSON cannot hold, or a file that cannot be written.

        Source: tf.train.Checkpoint.write.
        """
        attempted = "Checkpoint.write"
        prefix = path_of(file_prefix, attempted)
        self._begin(attempted)
        return self._write(prefix, attempted)

    def _begin(self, attempted: str) -> None:
        _outside_replicas(attempted)
        transport = transport_of(self._variables())
        # A worker that does not save has its error here, and not where some variable is read.
        transport.barrier(transport.call(attempted))

    def _write(self, path: str, attempted: str) -> str:
        arrays: dict[str, Any] = {}
        states: dict[str, Any] = {}
        aliases: dict[str, str] = {}
        names: dict[int, str] = {}
        for key, one in self._tracked().items():
            if id(one) in names:
                aliases[key] = names[id(one)]
                continue
            names[id(one)] = key
            if not isinstance(one, Variable):
                states[key] = _state_of(one, key, attempted)
                continue
            array = np.asarray(one.numpy())
            code = rules.of_kind(rules.SAVED, array.dtype.kind)
            if code != "ok":
                raise errors.error(code, attempted, f"{key} has dtype {array.dtype}", "Keep text elsewhere.",
                                   kind=errors.InvalidTypeError)
            arrays[key] = array
        content = files.packed(arrays, aliases, states)
        by_first_worker(self._variables(), attempted, lambda: files.write(file_of(path), content))
        return path

    def read(self, save_path: str | os.PathLike[str], options: object = None) -> LoadStatus:
        """Gives the variables the values of a file; nothing changes unless all of them fit.

        Values of attributes that are set later are given to them then.  When nothing that is there already has a
        value in the file, a warning says so.

        Raises:
            RD09: in a replica.  RD27: the package safetensors is not installed.
            RD31: the file cannot be read, or a shape or dtype differs.

        Source: tf.train.Checkpoint.read.
        """
        return self._read(path_of(save_path, "Checkpoint.read"))

    def _read(self, path: str) -> LoadStatus:
        _outside_replicas("Checkpoint.read")
        values = files.read(file_of(path))
        seen: dict[int, tuple[str, object]] = {}
        tracked = self._tracked(seen)
        _assign({key: one for key, one in tracked.items() if key in values}, values)
        # The same dict, as it has places elsewhere.
        self._pending.clear()
        self._pending.update({key: value for key, value in values.items() if key not in tracked})
        _place(seen, self._pending)
        wanted, there = ({key for key in keys if key != "save_counter"} for keys in (tracked, values))
        if wanted and there and not wanted & there:
            call_site.warn(f"Checkpoint.read: {file_of(path)} has a value for none of {_brief(wanted)}; it has "
                           f"{_brief(there)}. Use the same names of attributes.")
        return LoadStatus(path, self, set(tracked) - set(values))

    def save(self, file_prefix: str | os.PathLike[str], options: object = None) -> str:
        """Writes `file_prefix` with the next number behind it, and notes it as the latest of its folder.

        Source: tf.train.Checkpoint.save.
        """
        attempted = "Checkpoint.save"
        prefix = path_of(file_prefix, attempted)
        self._begin(attempted)
        self.save_counter.assign_add(np.int64(1))
        path = self._write(f"{prefix}-{int(self.save_counter)}", attempted)
        folder, name = os.path.split(path)
        # Only this one: a manager of the folder must not take the others for its own, which it may delete.
        by_first_worker(self._variables(), attempted,
                        lambda: files.write_index(folder, {"latest": name, "all": [name]}))
        return path

    def restore(self, save_path: str | os.PathLike[str] | None, options: object = None) -> LoadStatus:
        """As `read`, with the number of saves; None does nothing, for `restore(latest_checkpoint(folder))`.

        Source: tf.train.Checkpoint.restore.
        """
        _ = self.save_counter
        if save_path is None:
            return LoadStatus("", self, set())
        return self._read(path_of(save_path, "Checkpoint.restore"))


class LoadStatus:
    """What became of a file that was read.

    Source: tf.train.Checkpoint.read, "Returns".
    """

    def __init__(self, path: str, checkpoint: Checkpoint, unmatched: set[str]) -> None:
        self._path = path
        self._checkpoint = checkpoint
        self._unmatched = unmatched - {"save_counter"}

    def assert_existing_objects_matched(self) -> LoadStatus:
        """Raises unless the file has a value for every variable.

        Raises:
            RD31: it has not.
        """
        if self._unmatched:
            raise errors.error("RD31", "assert_existing_objects_matched", f"{self._path} has no value for "
                               f"{', '.join(sorted(self._unmatched))}", "Use the same names of attributes.")
        return self

    def assert_consumed(self) -> LoadStatus:
        """Raises unless every value of the file has a variable too.

        Raises:
            RD31: one has not.
        """
        left = sorted(set(self._checkpoint._pending) - {"save_counter"})
        if left:
            raise errors.error("RD31", "assert_consumed", f"{self._path} has values for {', '.join(left)}, which no "
                               "variable takes", "Use the same names of attributes, or `expect_partial()`.")
        return self.assert_existing_objects_matched()

    def assert_nontrivial_match(self) -> LoadStatus:
        """Raises unless some variable got a value.

        Raises:
            RD31: none did.
        """
        if not set(self._checkpoint._tracked()) - self._unmatched - {"save_counter"}:
            raise errors.error("RD31", "assert_nontrivial_match", f"{self._path} has a value for no variable",
                               "Use the same names of attributes.")
        return self

    def expect_partial(self) -> LoadStatus:
        """Says that what is left over is meant to be."""
        return self


def _place(seen: dict[int, tuple[str, object]], pending: dict[str, object]) -> None:
    for path, one in seen.values():
        if isinstance(one, Checkpoint) and path and not any(
                known is pending and where == path for known, where in one._places):
            one._places.append((pending, path))


def _state_of(holder: Stateful, key: str, attempted: str) -> Any:
    state = holder.state_dict()
    try:
        # Tuples and keys that are no text would come back as something else.
        fits = repr(json.loads(json.dumps(state))) == repr(state)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise errors.error("RD31", attempted, f"the state of {key} is not what JSON can hold",
                           "Return numbers, text, lists and dicts with text as keys; keep arrays in variables.",
                           kind=errors.InvalidTypeError)
    return state


def _assign(tracked: Mapping[str, Variable | Stateful], values: Mapping[str, object]) -> None:
    attempted = "Checkpoint.read"
    for key, one in tracked.items():
        value: Any = values[key]
        if isinstance(value, State) == isinstance(one, Variable):
            raise errors.error("RD31", attempted, f"{key} is a {'state' if isinstance(value, State) else 'variable'} "
                               f"in the file and a {type(one).__name__} here", "Use the same names of attributes.",
                               kind=errors.InvalidValueError)
        if isinstance(one, Variable) and (value.dtype != one.dtype or value.shape != one.numpy().shape):
            raise errors.error("RD31", attempted, f"{key} has shape {value.shape} and dtype {value.dtype} in "
                               f"the file, the variable {one.numpy().shape} and {one.dtype}",
                               "Restore into a variable of the same shape and dtype.", kind=errors.InvalidValueError)
    contents = {key: value.content for key, value in values.items() if isinstance(value, State)}
    holders = [(one, contents[key]) for key, one in tracked.items() if not isinstance(one, Variable)]
    before = [one.state_dict() for one, _ in holders]
    try:
        for one, content in holders:
            one.load_state_dict(content)
    except Exception:
        # Only they can refuse a value now, so they go first and nothing has changed when one does.
        for (one, _), state in zip(holders, before, strict=True):
            one.load_state_dict(state)
        raise
    for key, one in tracked.items():
        if isinstance(one, Variable):
            one.assign(values[key])


def _outside_replicas(attempted: str) -> None:
    if context_stack.frame().kind in (context_stack.REPLICA, context_stack.UPDATE):
        raise errors.error("RD09", attempted, f"it was called {context_stack.describe()}",
                           "Call it outside `strategy.run`.")


def _brief(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown) if len(shown) <= 4 else f"{', '.join(shown[:3])}, ... ({len(shown)} in all)"


def counter() -> Any:
    """A variable that counts from 0, of no strategy: each worker counts by itself, without a meeting."""
    with context_stack.pushed(context_stack.BOTTOM):
        return Variable(np.int64(0), trainable=False)


def transport_of(variables: Iterable[Variable]) -> Transport:
    """What connects the workers that have these variables."""
    return widest(variable._strategy.extended.transport for variable in variables if variable._strategy)


def by_first_worker(variables: Iterable[Variable], attempted: str, act: Callable[[], None]) -> None:
    """The first worker acts; all wait for it, and have its error if it has one."""
    transport = transport_of(variables)
    failed: Exception | None = None
    if transport.rank == 0:
        try:
            act()
        except Exception as error:
            failed = error
    found = transport.all_gather_object(transport.call(attempted), None if failed is None else str(failed))
    if failed is not None:
        raise failed
    if found[0] is not None:
        raise errors.error("RD31", attempted, f"worker 0 could not write: {found[0]}")
