"""A correct program is never refused for where it meets: CPython rewrites instructions while a program runs.

Every construct that can call Python code from another place is one function below; each meets the other replicas
through it, again and again, so that CPython specializes the calls in it between one replica and the next.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist

REPEATS = 40
CONSTRUCTS: list[Callable[[], Any]] = []


def meet(*_: Any, **__: Any) -> Any:
    context = refdist.get_replica_context()
    assert context is not None
    return context.all_reduce("SUM", 1.0)


def construct(function: Callable[[], Any]) -> Callable[[], Any]:
    CONSTRUCTS.append(function)
    return function


class Meets:
    """Meets in every special method."""

    def __getattr__(self, name: str) -> Any:
        return meet() if name == "missing" else object.__getattribute__(self, name)

    @property
    def prop(self) -> Any:
        return meet()

    @prop.setter
    def prop(self, value: Any) -> None:
        meet()

    def method(self, *args: Any, **kwargs: Any) -> Any:
        return meet()

    @classmethod
    def of_class(cls) -> Any:
        return meet()

    @staticmethod
    def of_nothing() -> Any:
        return meet()

    def __getitem__(self, key: Any) -> Any:
        if key == 2:
            raise IndexError
        return meet()

    def __setitem__(self, key: Any, value: Any) -> None:
        meet()

    def __delitem__(self, key: Any) -> None:
        meet()

    def __call__(self) -> Any:
        return meet()

    def __enter__(self) -> Any:
        return meet()

    def __exit__(self, *error: object) -> None:
        meet()

    def __add__(self, *other: Any) -> Any:
        return meet()

    __radd__ = __iadd__ = __matmul__ = __neg__ = __lt__ = __gt__ = __eq__ = __add__  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(meet() > 0)

    def __contains__(self, item: Any) -> bool:
        return bool(meet() > 0)

    def __len__(self) -> int:
        return int(meet())

    def __index__(self) -> int:
        return int(meet())

    def __float__(self) -> float:
        return float(meet())

    def __format__(self, spec: str) -> str:
        return str(meet())

    def __repr__(self) -> str:
        return str(meet())

    def __hash__(self) -> int:
        return int(meet())


class Inherits(Meets):
    def method(self, *args: Any, **kwargs: Any) -> Any:
        return super().method()


class Counts:
    def __init__(self) -> None:
        self.left = 3

    def __iter__(self) -> Counts:
        meet()
        return self

    def __next__(self) -> Any:
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return meet()


class Described:
    def __get__(self, instance: Any, owner: Any) -> Any:
        return meet()


class Has:
    described = Described()


def numbers() -> Iterator[Any]:
    for _ in range(3):
        yield meet()


@contextlib.contextmanager
def entered() -> Iterator[None]:
    meet()
    yield
    meet()


async def awaited() -> Any:
    return meet()


@construct
def in_a_generator_expression() -> Any:
    return sum(meet() for _ in (1.0, 2.0))


@construct
def in_comprehensions() -> Any:
    return [meet() for _ in range(2)], {meet().tobytes() for _ in range(2)}, {i: meet() for i in range(2)}


@construct
def by_builtins() -> Any:
    return (list(map(meet, range(2))), list(filter(meet, range(2))), sorted(range(2), key=meet),
            max(range(2), key=meet), min([1, 2], key=meet), any(map(meet, range(2))),
            list(zip(map(meet, range(2)), range(2), strict=True)),
            next(map(meet, range(1))), next(iter(meet, None)), dict(enumerate(map(meet, range(2)))))


@construct
def by_libraries() -> Any:
    return (functools.reduce(meet, range(3)), functools.partial(meet, 1)(), list(itertools.starmap(meet, [(1,), (2,)])),
            operator.methodcaller("method")(Meets()), operator.attrgetter("prop")(Meets()),
            list(itertools.accumulate([1, 2, 3], meet)), np.vectorize(lambda x: float(meet()))([1.0, 2.0]))


@construct
def by_generators() -> Any:
    source = numbers()
    items = [next(source), source.send(None)]
    for item in source:
        items.append(item)
    first, *others = numbers()
    return items, first, others, list(numbers()), [*numbers()], (lambda: (yield from numbers()))().__next__()


@construct
def by_iterators() -> Any:
    for _ in Counts():
        pass
    a, b, c = Counts()
    return a, b, c, list(Counts()), sum(Counts())


@construct
def by_attributes() -> Any:
    this = Meets()
    this.prop = 1
    return this.prop, this.missing, Has().described, getattr(this, "prop")  # noqa: B009


@construct
def by_methods() -> Any:
    this = Inherits()
    bound = this.method
    return (this.method(), bound(), this.method(1, b=2), this.method(*[1]), this.method(a=1), this.of_class(),
            this.of_nothing(), Inherits.of_class(), this(), Meets.method(this))


@construct
def by_items() -> Any:
    this = Meets()
    this[0] = 1
    del this[0]
    return this[0], [1, 2, 3, 4][this], list(this), this[0:1]


@construct
def by_operators() -> Any:
    this = Meets()
    results = [this + 1, 1 + this, this @ 1, -this, this < 1, this == 1, 1 < this < 3, 1 in this, this in [1, this]]
    this += 1
    return results


@construct
def by_conversions() -> Any:
    this = Meets()
    results = [1 if this else 0, not this, this and 1, len(this), float(this), f"{this}", f"{this!r}", repr(this),
               hash(this), "{}".format(this), "%r" % this]  # noqa: UP031, UP032
    while this:
        break
    assert this
    return results


@construct
def by_with() -> Any:
    with Meets() as value, entered():
        meet()
    return value


@construct
def by_finally() -> Any:
    try:
        with contextlib.suppress(ValueError):
            meet()
            raise ValueError
    finally:
        meet()
    try:
        raise KeyError
    except KeyError:
        return meet()


def leaves_early(early: bool) -> Any:
    try:
        if early:
            return meet()
        return meet()
    finally:
        meet()


@construct
def by_finally_that_is_compiled_twice() -> Any:
    return leaves_early(True), leaves_early(False)


@construct
def by_coroutines() -> Any:
    coroutine = awaited()
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value


@construct
def by_other_kinds_of_call() -> Any:
    @functools.wraps(meet)
    def wrapped(*args: Any) -> Any:
        return meet(*args)

    class Made:
        value = meet()

    def with_default(value: Any = meet()) -> Any:  # noqa: B008
        return value

    return wrapped(), Made.value, with_default(), eval("meet()"), (lambda: meet())(), (named := meet()), named


@construct
def by_matching() -> Any:
    match Meets():
        case Meets(prop=value):
            return value


@construct
def with_other_types_in_one_place() -> Any:
    return [instance.method() for instance in (Meets(), Inherits(), Meets(), Inherits())]


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("call", CONSTRUCTS, ids=lambda call: call.__name__)
def test_replicas_meet_in_every_construct_however_often(call: Callable[[], Any], replicas: int) -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])

    def step() -> float:
        call()
        return float(meet())

    for _ in range(REPEATS):
        assert strategy.experimental_local_results(strategy.run(step))[0] == replicas


@pytest.mark.parametrize("call", CONSTRUCTS, ids=lambda call: call.__name__)
def test_workers_meet_in_every_construct(call: Callable[[], Any]) -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        for _ in range(12):
            strategy.run(lambda: call() and None)

    refdist.simulate_workers(program, 2)


def test_a_dataset_is_read_by_next_on_every_worker() -> None:
    def program() -> int:
        strategy = refdist.MultiWorkerMirroredStrategy()
        count = 0
        for _ in range(8):
            steps = iter(strategy.experimental_distribute_dataset(refdist.data.Dataset.range(18).batch(6)))
            while next(steps, None) is not None:
                count += 1
        return count

    assert refdist.simulate_workers(program, 3) == [24] * 3


def test_where_no_columns_are_kept_the_lines_still_count() -> None:
    program = """
import refdist
strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
def meet():
    return refdist.get_replica_context().all_reduce("SUM", 1.0)
for _ in range(20):
    strategy.run(lambda: sum(meet() for _ in range(2)))
def step():
    if refdist.get_replica_context().replica_id_in_sync_group:
        return meet()
    return meet()
try:
    strategy.run(step)
except RuntimeError as error:
    print(str(error)[:6])
"""
    done = subprocess.run([sys.executable, "-X", "no_debug_ranges", "-c", program], capture_output=True, text=True,
                          cwd=Path(__file__).parents[1])
    assert done.stdout == "[RD06]\n", done.stderr


def renamed(folder: Path) -> Any:
    refdist.train.CheckpointManager(refdist.train.Checkpoint(v=refdist.Variable(1.0)), folder, 1).save()
    return refdist.train.CheckpointManager(refdist.train.Checkpoint(w=refdist.Variable(1.0)), folder, 1)


def short(_: Path) -> Any:
    return refdist.data.Dataset.range(1).batch(1)


def two_on_one_port(_: Path) -> Any:
    return {"TF_CONFIG": '{"cluster": {"worker": ["a:1"], "evaluator": ["a:1"]}, "task": {"type": "evaluator", '
                         '"index": 0}}'}


WARNERS: list[tuple[Callable[[Path], Any], Callable[[Any], Any]]] = [
    (renamed, lambda manager: manager.restore_or_initialize()),
    (renamed, lambda manager: manager.checkpoint.restore(manager.latest_checkpoint)),
    (short, lambda dataset: refdist.MirroredStrategy(["GPU:0", "GPU:1"]).experimental_distribute_dataset(dataset)),
    (short, lambda dataset: refdist.MirroredStrategy(["GPU:0", "GPU:1"]).make_dataset_iterator(dataset)),
    (two_on_one_port, lambda _: refdist.cluster_resolver.TFConfigClusterResolver().cluster_spec()),
    (two_on_one_port, lambda _: refdist.cluster_resolver.TFConfigClusterResolver().master()),
    (two_on_one_port, lambda _: refdist.MultiWorkerMirroredStrategy()),
]


@pytest.mark.parametrize("number", range(len(WARNERS)))
def test_a_warning_names_the_users_line(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, call = WARNERS[number]
    prepared = prepare(tmp_path)
    if isinstance(prepared, dict):
        monkeypatch.setenv("TF_CONFIG", prepared["TF_CONFIG"])
    with pytest.warns(Warning) as caught:
        call(prepared)
    places = [(warning.filename, warning.lineno) for warning in caught if warning.category is not ResourceWarning]
    assert places and set(places) == {(__file__, call.__code__.co_firstlineno)}
