"""Traces: what a program does with an implementation, as data.

A program in Python means something only to Python.  What it *does* with an implementation is a list of calls, reads and
operators, and any language can carry that out.  So the examples of the chapters are run once on refdist, with objects
in between that write down each step before it is carried out (`recorder.py`), and the trace is what other languages are
given.  Branches and loops of the program are gone from it: they went the way they went.

What makes that sound:

* **A step says what the program relied on.**  Where the program went one way because of a value, or a value went into
  a number or text of Python's, the step that produced the value has it as `is`; a step whose exception the program
  caught has its kind as `raises`.  An implementation that differs there has failed, because the rest of the trace is
  about another program.
* **A function that the program passes to the implementation has a body for every call**, because each call may go
  another way.  Bodies belong to the replica that made the call, since the order in which replicas run is not promised;
  if all bodies are equal, there is one, for any number of calls.  A function that changes objects of the program (a
  list of what it has seen) keeps all bodies, is `exact`, and each must have been called by the end of the statement
  in which it was called here: else a program that counts calls would observe a constant.
* **Steps have keys that are the same in every run of the program**: their place in the tree of bodies.  So the body of
  a replica that was never started, because one before it raised, can be taken from a second run in which only that
  replica runs (`record.py`), and put into the tree of the first.

Values inside a body are known in that body and the bodies inside it.  A program can carry one out of it, in a list;
then the step has `keep`, a number under which its value is known everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from refdist.conformance.results import Result

# The place of a body or step: the body's, and its number in it.
Key: TypeAlias = tuple[int | str | None, ...]
# JSON, except that a value may be a `Reference` or a `Function` until it is emitted.
Tree: TypeAlias = object
NOTHING = object()


@dataclass(frozen=True)
class Reference:
    """The value of a step or parameter."""

    key: Key
    owner: Key


@dataclass
class Step:
    """One thing that a program did; `inner` are the steps inside a `with`."""

    reference: Reference
    what: dict[str, Tree]
    inner: list[Step] | None = None
    seen: Result | object = NOTHING
    raises: str | None = None


@dataclass
class Function:
    """A function that the program passes to the implementation; the same one of its text has the same name."""

    key: Key
    name: str
    bodies: list[Body] = field(default_factory=list)
    exact: bool = False


@dataclass
class Body:
    """What one call of a function did, or the program itself.

    Attributes:
        key: its place.
        replica: in whose context it was called; None for a cross-replica context.
        parameters, keywords: the values it was called with.
        steps: what it did.
        returns: what it returned; NOTHING if it did not.
        statement: of the program, during which it was called; None if no call has to be made (it was not made here).
    """

    key: Key
    replica: int | None = None
    parameters: list[Reference] = field(default_factory=list)
    keywords: dict[str, Reference] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    returns: Tree = NOTHING
    statement: int | None = None
    count: int = 0
    functions: int = 0
    failed: tuple[Step, BaseException, str] | None = None

    def __post_init__(self) -> None:
        self.blocks = [self.steps]

    def reference(self) -> Reference:
        """A new value of this body."""
        self.count += 1
        return Reference((*self.key, self.count), self.key)

    def function(self, name: str) -> Function:
        """A new function that this body passes to the implementation."""
        self.functions += 1
        return Function((*self.key, f"function {self.functions}"), name)

    def append(self, what: dict[str, Tree]) -> Step:
        """The next step, in the innermost `with`."""
        self.settle()
        step = Step(self.reference(), what)
        self.blocks[-1].append(step)
        return step

    def settle(self) -> None:
        """The program goes on, so what was raised last has been caught."""
        if self.failed is not None:
            self.failed[0].raises = self.failed[2]
            self.failed = None

    def ended(self, error: BaseException, kind: str) -> None:
        """An exception leaves a block: that of the last step, or one of the program's own."""
        if self.failed is None or self.failed[1] is not error:
            self.append({"raise": kind})


def emitted(program: Body, statements: list[tuple[int, int, Tree]]) -> list[dict[str, object]]:
    """The trace of a worker: its statements as JSON.

    Args:
        program: the body of the program.
        statements: of each, its number, the number of steps before its end, and its observed value, or NOTHING.
    """
    share(program)
    emission = _Emission()
    emission.find(program, (value for _, _, value in statements))
    emission.number(program, 0)
    done, start = [], 0
    for number, end, value in statements:
        entry: dict[str, object] = {"statement": number}
        if end > start:
            entry["steps"] = [emission.step(step, program) for step in program.steps[start:end]]
        if value is not NOTHING:
            entry["value"] = emission.tree(value, program.key)
        if len(entry) > 1:
            done.append(entry)
        start = end
    return done


def share(body: Body) -> None:
    """Gives the bodies of the function that was called to the functions that other replicas passed in its place.

    Where every replica passes a function of its own, as to `merge_call`, refdist calls one of them, and another
    implementation may call another: the trace must then tell it what that one does.
    """
    for function in _functions(body):
        for inner in function.bodies:
            share(inner)
        by_place: dict[Key, list[Function]] = {}
        for inner in function.bodies:
            for copied in _functions(inner):
                by_place.setdefault((*copied.key[len(inner.key):], copied.name), []).append(copied)
        for same in by_place.values():
            donor = next((copied for copied in same if copied.bodies and not copied.exact), None)
            for copied in same:
                if donor is not None and not copied.bodies:
                    moved = _Move(donor.key[:-1], copied.key[:-1])
                    copied.bodies = [moved.body(inner) for inner in donor.bodies]


class _Move:
    """Copies of bodies, at another place of the tree."""

    def __init__(self, start: Key, to: Key) -> None:
        self._start, self._to = start, to

    def body(self, body: Body) -> Body:
        return Body(self._key(body.key), body.replica, [self._reference(reference) for reference in body.parameters],
                    {name: self._reference(reference) for name, reference in body.keywords.items()},
                    [self._step(step) for step in body.steps], self._tree(body.returns))

    def _key(self, key: Key) -> Key:
        return (*self._to, *key[len(self._start):]) if key[:len(self._start)] == self._start else key

    def _reference(self, reference: Reference) -> Reference:
        return Reference(self._key(reference.key), self._key(reference.owner))

    def _step(self, step: Step) -> Step:
        inner = None if step.inner is None else [self._step(inside) for inside in step.inner]
        what = {name: self._tree(value) for name, value in step.what.items()}
        return Step(self._reference(step.reference), what, inner, step.seen, step.raises)

    def _tree(self, tree: Tree) -> Tree:
        if isinstance(tree, Reference):
            return self._reference(tree)
        if isinstance(tree, Function):
            return Function(self._key(tree.key), tree.name, [self.body(inner) for inner in tree.bodies], tree.exact)
        if isinstance(tree, dict):
            return {key: self._tree(value) for key, value in tree.items()}
        return [self._tree(value) for value in tree] if isinstance(tree, list) else tree


def _functions(body: Body) -> list[Function]:
    return [leaf for tree in [*(step.what for step in _all(body.steps)), body.returns] for leaf in _leaves(tree)
            if isinstance(leaf, Function)]


class _Emission:
    """Writes a trace as data: values that are used get numbers, and equal bodies of a function are written once."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._used: set[Key] = set()
        self._kept: dict[Key, int] = {}
        self._starts: dict[Key, int] = {}

    def find(self, body: Body, more: Iterable[Tree] = ()) -> None:
        """Finds out which values are used, and which of them outside of their body."""
        for tree in [*(step.what for step in _all(body.steps)), body.returns, *more]:
            for leaf in _leaves(tree):
                if isinstance(leaf, Function):
                    for inner in leaf.bodies:
                        self.find(inner)
                else:
                    self._used.add(leaf.key)
                    if leaf.owner != body.key[:len(leaf.owner)]:
                        self._kept.setdefault(leaf.key, len(self._kept))

    def number(self, body: Body, start: int) -> None:
        """Gives numbers to the values of a body, then, from there on, to those of each body inside it."""
        references = [*body.parameters, *body.keywords.values(), *(step.reference for step in _all(body.steps))]
        for reference in references:
            if reference.key in self._used:
                self._numbers[reference.key] = start
                start += 1
        for tree in [*(step.what for step in _all(body.steps)), body.returns]:
            for function in _leaves(tree):
                if isinstance(function, Function):
                    for inner in function.bodies:
                        self.number(inner, start)

    def step(self, step: Step, body: Body) -> dict[str, object]:
        done: dict[str, object] = {key: self.tree(value, body.key) for key, value in step.what.items()
                                   if key not in ("args", "kwargs") or value}
        if step.inner is not None:
            done["steps"] = [self.step(inside, body) for inside in step.inner]
        if step.reference.key in self._numbers:
            done["id"] = self._numbers[step.reference.key]
        if step.reference.key in self._kept:
            done["keep"] = self._kept[step.reference.key]
        if step.seen is not NOTHING:
            done["is"] = step.seen
        if step.raises is not None:
            done["raises"] = step.raises
        return done

    def tree(self, tree: Tree, inside: Key) -> object:
        if isinstance(tree, Reference):
            if tree.owner == inside[:len(tree.owner)]:
                return {"ref": self._numbers[tree.key]}
            return {"kept": self._kept[tree.key]}
        if isinstance(tree, Function):
            return {"function": self._function(tree)}
        if isinstance(tree, dict):
            return {key: self.tree(value, inside) for key, value in tree.items()}
        return [self.tree(value, inside) for value in tree] if isinstance(tree, list) else tree

    def _function(self, function: Function) -> dict[str, object]:
        bodies = [self._body(body) for body in function.bodies]
        if not function.exact and bodies and all(body == bodies[0] for body in bodies):
            return {"name": function.name, "bodies": bodies[:1]}
        for done, body in zip(bodies, function.bodies, strict=True):
            done["replica"] = body.replica
            if function.exact and body.statement is not None:
                done["by"] = body.statement
        return {"name": function.name, "bodies": bodies}

    def _body(self, body: Body) -> dict[str, object]:
        done: dict[str, object] = {}
        if body.parameters:
            done["parameters"] = [self._parameter(parameter) for parameter in body.parameters]
        if body.keywords:
            done["keywords"] = {name: self._parameter(parameter) for name, parameter in body.keywords.items()}
        if names := {str(self._kept[reference.key]): self._numbers[reference.key]
                    for reference in [*body.parameters, *body.keywords.values()] if reference.key in self._kept}:
            done["keep"] = names
        if body.steps:
            done["steps"] = [self.step(step, body) for step in body.steps]
        if body.returns is not NOTHING:
            done["returns"] = self.tree(body.returns, body.key)
        return done

    def _parameter(self, reference: Reference) -> int | None:
        return self._numbers.get(reference.key)


def _all(steps: list[Step]) -> Iterator[Step]:
    """Steps in their order, with those inside; a `with` after what is inside it."""
    for step in steps:
        yield from _all(step.inner or [])
        yield step


def _leaves(tree: Tree) -> Iterator[Reference | Function]:
    if isinstance(tree, (Reference, Function)):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _leaves(value)
