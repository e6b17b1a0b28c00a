"""At a meeting all replicas are compared before anything moves; errors name replicas and source lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refdist
from refdist.errors import RefdistError

STRATEGY = refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2"])


def me() -> Any:
    return refdist.get_replica_context()


def rank() -> int:
    number: int = me().replica_id_in_sync_group
    return number


def returned() -> Any:
    return 1 if rank() == 2 else me().all_reduce("SUM", 1.0)


def fewer_calls() -> Any:
    for _ in range(2 if rank() else 3):
        me().all_reduce("SUM", 1.0)


def other_kind() -> Any:
    if rank():
        return me().all_gather(np.ones(1), axis=0)
    return me().all_reduce("SUM", np.ones(1))


def other_op() -> Any:
    return me().all_reduce(["SUM", "MEAN", "SUM"][rank()], 1.0)


def other_axis() -> Any:
    return me().all_gather(np.ones((2, 2)), axis=min(rank(), 1))


def other_structure() -> Any:
    return me().all_reduce("SUM", [1.0] if rank() else (1.0,))


def other_keys() -> Any:
    return me().all_reduce("SUM", {f"k{min(rank(), 1)}": 1.0})


def other_shape() -> Any:
    return me().all_reduce("SUM", np.ones(rank() + 1))


def other_leaf() -> Any:
    return me().all_reduce("SUM", {"a": 1.0, "b": np.ones(rank() + 1)})


def other_dtype() -> Any:
    return me().all_reduce("SUM", np.ones(2, "float32" if rank() else "float64"))


def other_rows() -> Any:
    return me().all_gather(np.ones((1, rank() + 1)), axis=0)


def swapped() -> Any:
    a, b = np.zeros(2), np.ones(2)
    if rank() == 1:
        b = me().all_reduce("SUM", b)
        return me().all_reduce("SUM", a), b
    a = me().all_reduce("SUM", a)
    return a, me().all_reduce("SUM", b)


def sync(x: Any) -> Any:
    return me().all_reduce("SUM", x)


def swapped_in_a_helper() -> Any:
    if rank() == 1:
        return sync(np.zeros(2)), 1
    return sync(np.ones(2)), 2


def swapped_shapes() -> Any:
    if rank() == 1:
        return me().all_reduce("SUM", np.ones(3))
    return me().all_reduce("SUM", np.ones(2))


def one_in_a_branch() -> Any:
    if rank() == 1:
        me().all_reduce("SUM", 1.0)
    return me().all_reduce("MEAN", 1.0)


def two_on_a_line() -> Any:
    return me().all_reduce("SUM", 1.0) if rank() else me().all_reduce("SUM", 2.0)


def other_merge_fn() -> Any:
    return me().merge_call([np.sum, np.prod, np.sum][rank()], args=(1,))


def other_merge_structure() -> Any:
    return me().merge_call(lambda s, x: 1, args=([1] * (1 + rank()),))


def other_variable() -> Any:
    return V[min(rank(), 1)].assign(2.0)


def unequal_values() -> Any:
    return V[0].assign(float(rank()))


def other_name() -> Any:
    return refdist.Variable(1.0, name=f"v{rank()}")


with STRATEGY.scope():
    V = [refdist.Variable(1.0, name="a"), refdist.Variable(1.0, name="b")]

ALL_APART = ("replica 0 ", "replica 1 ", "replica 2 ")

# Program, code, class, the groups of replicas that the message tells apart, in its order.
FAULTS: list[tuple[Callable[[], Any], str, type, tuple[str, ...]]] = [
    (returned, "RD01", RuntimeError, ("replicas 0, 1 at all_reduce (", "replica 2 already returned")),
    (fewer_calls, "RD01", RuntimeError, ("replica 0 at all_reduce (", "replicas 1, 2 already returned")),
    (other_kind, "RD02", RuntimeError, ("replica 0 at all_reduce (", "replicas 1, 2 at all_gather (")),
    (other_op, "RD03", ValueError, ("replicas 0, 2 with reduce op SUM", "replica 1 with reduce op MEAN")),
    (other_axis, "RD03", ValueError, ("replica 0 with axis 0", "replicas 1, 2 with axis 1")),
    (other_structure, "RD21", ValueError, ("replica 0 with structure ", "replicas 1, 2 with structure ")),
    (other_keys, "RD21", ValueError, ("replica 0 with structure ", "replicas 1, 2 with structure ")),
    (other_shape, "RD04", ValueError, ("replica 0 with shape (1,)", "replica 1 with shape (2,)",
                                       "replica 2 with shape (3,)")),
    (other_dtype, "RD05", ValueError, ("replica 0 with dtype float64", "replicas 1, 2 with dtype float32")),
    (other_leaf, "RD04", ValueError, ("replica 0 with shape (1,) in leaf 1", "replica 1 with shape (2,) in leaf 1")),
    (other_rows, "RD07", ValueError, ("replica 0 with shape (None, 1);", "replica 1 with shape (None, 2);",
                                      "replica 2 with shape (None, 3)")),
    (swapped, "RD06", RuntimeError, ("replicas 0, 2 at ", "replica 1 at ")),
    (swapped_in_a_helper, "RD06", RuntimeError, ("replicas 0, 2 at ", ", called from ", "replica 1 at ",
                                                 ", called from ")),
    (swapped_shapes, "RD06", RuntimeError, ("replicas 0, 2 at ", "replica 1 at ",
                                            "the shape differs too: (2,), (3,)")),
    (one_in_a_branch, "RD06", RuntimeError, ("replicas 0, 2 at ", "replica 1 at ",
                                             "the reduce op differs too: MEAN, SUM")),
    (two_on_a_line, "RD06", RuntimeError, ("replica 0 at ", ", column ", "replicas 1, 2 at ", ", column ")),
    (other_merge_fn, "RD02", RuntimeError, ("replicas 0, 2 with merge_fn sum", "replica 1 with merge_fn prod")),
    (other_merge_structure, "RD21", ValueError, ("replica 0 ", "replica 1 ")),
    (other_variable, "RD02", RuntimeError, ("replica 0 at assign of variable a:0 (",
                                            "replicas 1, 2 at assign of variable b:0 (")),
    (unequal_values, "RD12", ValueError, ("replica 0 ", "replica 1 ")),
    (other_name, "RD02", RuntimeError, tuple(f"{group}with variable 'v{i}'" for i, group in enumerate(ALL_APART))),
]


@pytest.mark.parametrize(("program", "code", "kind", "groups"), FAULTS, ids=lambda item: getattr(item, "__name__", ""))
def test_replicas_that_disagree_are_named_with_their_lines_and_nothing_changes(
        program: Callable[[], Any], code: str, kind: type, groups: tuple[str, ...]) -> None:
    with pytest.raises(kind) as caught:
        STRATEGY.run(program)
    error = caught.value
    assert isinstance(error, RefdistError)
    assert error.code == code, error
    text = str(error)
    for group in groups:
        assert group in text, str(error)
        text = text[text.index(group) + len(group):]
    first = program.__code__.co_firstlineno
    named = [int(line) for line in re.findall(r"test_checks\.py:(\d+)", str(error))]
    assert named or code == "RD21"
    helper = sync.__code__.co_firstlineno
    assert all(first <= line <= first + 8 or helper <= line <= helper + 2 for line in named)
    assert [copy.numpy() for v in V for copy in v.values] == [1.0] * 6
    again = STRATEGY.run(lambda: me().all_reduce("SUM", 1.0))
    assert [float(value) for value in again.values] == [3.0] * 3


def test_the_lines_of_a_swap_are_those_of_the_two_calls() -> None:
    with pytest.raises(RuntimeError) as caught:
        STRATEGY.run(swapped)
    start = swapped.__code__.co_firstlineno
    lines = [int(line) - start for line in re.findall(r"test_checks\.py:(\d+)", str(caught.value))]
    assert lines == [5, 3]


SAME_ORDER = "Where every replica comes to both lines, make the calls in the same order on all."
ONCE = ("Where each comes to one of them only, write the call once, outside the branch, and let its argument depend on "
        "the replica.")
BOTH = "Where some come to both, make both calls on all."


def sum_of(value: float) -> float:
    return float(me().all_reduce("SUM", np.float32(value)))


def another_order() -> tuple[float, float]:
    if rank() % 2 == 0:
        loss = sum_of(rank())
        count = sum_of(100)
    else:
        count = sum_of(100)
        loss = sum_of(rank())
    return loss, count


def the_same_order() -> tuple[float, float]:
    loss = sum_of(rank())
    count = sum_of(100)
    return loss, count


def one_line_each() -> tuple[float, float]:
    loss = sum_of(rank()) if rank() % 2 == 0 else sum_of(-rank())
    return loss, sum_of(100)


def one_line() -> tuple[float, float]:
    loss = sum_of(rank() if rank() % 2 == 0 else -rank())
    return loss, sum_of(100)


def both_lines_on_some() -> tuple[float, float]:
    loss = sum_of(rank()) if rank() % 2 == 0 else 0.0
    return loss, sum_of(100)


def both_lines() -> tuple[float, float]:
    loss = sum_of(rank())
    return loss, sum_of(100)


@pytest.mark.parametrize(("wrong", "advice", "right", "loss"), [
    (another_order, SAME_ORDER, the_same_order, 3.0), (one_line_each, ONCE, one_line, 1.0),
    (both_lines_on_some, BOTH, both_lines, 3.0)])
def test_what_an_error_about_two_lines_advises_is_right(
        wrong: Callable[[], Any], advice: str, right: Callable[[], Any], loss: float) -> None:
    with pytest.raises(RuntimeError, match="RD06") as caught:
        STRATEGY.run(wrong)
    assert advice in str(caught.value)
    both = set(re.findall(r"called from \S*?(test_checks\.py:\d+(?:, column \d+)?)", str(caught.value)))
    assert len(both) == 2, caught.value
    assert STRATEGY.experimental_local_results(STRATEGY.run(right)) == ((loss, 300.0),) * 3


def test_the_first_replica_s_own_exception_wins_and_later_ones_do_not_start() -> None:
    started = []

    def program() -> None:
        started.append(rank())
        if rank() == 1:
            raise KeyError("boom")
        if rank() == 0:
            me().all_reduce("SUM", 1.0)

    with pytest.raises(KeyError, match="boom") as caught:
        STRATEGY.run(program)
    assert started == [0, 1]
    assert any("replica 1 of 3" in note for note in caught.value.__notes__)


def test_waiting_replicas_are_unwound_with_their_finally_blocks() -> None:
    cleaned = []

    def program() -> None:
        try:
            if rank() == 2:
                raise KeyError("boom")
            me().all_reduce("SUM", 1.0)
        finally:
            cleaned.append(rank())

    with pytest.raises(KeyError):
        STRATEGY.run(program)
    assert sorted(cleaned) == [0, 1, 2]


def test_a_replica_that_swallows_everything_and_meets_again_does_not_hang() -> None:
    seen: list[str] = []

    def program() -> None:
        for _ in range(2):
            try:
                me().merge_call(lambda s: 1 / 0)
            except BaseException as error:
                seen.append(getattr(error, "code", type(error).__name__))

    with pytest.raises(ZeroDivisionError):
        STRATEGY.run(program)
    assert seen == ["ReplicaStopped", "RD22"] * 3


def test_an_error_in_merge_fn_is_raised_by_run_and_the_program_goes_on() -> None:
    with pytest.raises(ZeroDivisionError):
        STRATEGY.run(lambda: me().merge_call(lambda s: 1 / 0))
    assert STRATEGY.run(lambda: me().merge_call(lambda s: 7)) == 7


def test_a_loop_and_a_condition_that_all_replicas_share_are_no_swap() -> None:
    def program() -> Any:
        total = 0.0
        for i in range(3):
            total = total + (me().all_reduce("SUM", 1.0) if i % 2 else me().all_reduce("SUM", 2.0))
        return total

    assert [float(value) for value in STRATEGY.run(program).values] == [15.0] * 3


def test_a_write_to_a_variable_from_outside_the_scope_is_refused_where_replicas_would_overwrite_each_other() -> None:
    v = refdist.Variable(1.0)
    with pytest.raises(ValueError, match="RD11"):
        STRATEGY.run(lambda: v.assign(2.0))
    assert float(v) == 1.0
    assert [float(value) for value in STRATEGY.run(lambda: v + 1.0).values] == [2.0] * 3
    alone = refdist.MirroredStrategy(["GPU:0"])
    alone.run(lambda: v.assign(2.0))
    assert float(v) == 2.0


def test_one_copy_of_a_mirrored_variable_is_not_written_alone() -> None:
    with pytest.raises(ValueError, match="RD12"):
        V[0].values[1].assign(5.0)
    with pytest.raises(ValueError, match="RD12"):
        STRATEGY.extended.update(V[0], lambda copy, x: copy.assign(x), args=(refdist.PerReplica([1.0, 2.0, 3.0]),))
    with pytest.raises(ValueError, match="RD12"):
        V[0].assign(refdist.PerReplica([1.0, 2.0, 3.0]))
    assert [copy.numpy() for copy in V[0].values] == [1.0] * 3


def test_an_update_that_raises_half_way_is_undone() -> None:
    seen = []

    def half(copy: Any) -> None:
        copy.assign(9.0)
        seen.append(1)
        if len(seen) == 2:
            raise KeyError("half")

    with pytest.raises(KeyError, match="half"):
        STRATEGY.extended.update(V[0], half)
    assert [copy.numpy() for copy in V[0].values] == [1.0] * 3
