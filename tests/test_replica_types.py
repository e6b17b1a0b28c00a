"""The check of types: which programs it finds, which it leaves alone, and that it changes no result."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import survivors
from drawn_loops import MISTAKES as LOOP_MISTAKES
from drawn_loops import Loop, remarks
from limits import HANG
from looking_wrong import DIVIDING_LATER, RIGHT
from silent_mistakes import (
    CONSTANT,
    MISTAKES,
    ROWS,
    Aggregation,
    Mistake,
    batches,
    each,
    four,
    own_weights,
    replica,
    total,
    weights,
)

import refdist
from refdist.array import own_writes, replica_checks, replica_types
from refdist.array.convert import on_host
from refdist.array.replica_types import UNKNOWN, ReplicaType, type_of, typed
from refdist.core import checks as asked_checks
from refdist.core.rules.replica_types import (
    ADDING,
    ALONG,
    DIVIDING,
    MULTIPLYING,
    OTHERS,
    REPLICAS,
    Along,
    Of,
    Operand,
    Plain,
    Reducing,
)
from refdist.errors import ReplicaTypeWarning
from refdist.runtime import process

# More are drawn by `python tests/drawn_loops.py 1000`.
LOOPS = 40


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    with process.fresh(), refdist.config.checks(types=True):
        yield


def findings(program: Callable[[], object]) -> list[warnings.WarningMessage]:
    """What the check warns of."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        program()
    return [warning for warning in given if isinstance(warning.message, ReplicaTypeWarning)]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.program.__name__)
def test_a_mistake_is_found_once_at_its_line_with_its_factor(mistake: Mistake) -> None:
    [finding] = findings(mistake.program)
    assert isinstance(finding.message, ReplicaTypeWarning)
    assert finding.message.code == mistake.code
    assert mistake.text in str(finding.message)
    line = Path(finding.filename).read_text().splitlines()[finding.lineno - 1]
    assert mistake.line in line and f"silent_mistakes.py:{finding.lineno}" in str(finding.message)


@pytest.mark.parametrize("scales", [True, False], ids=["as it is", "whatever its file divides by"])
@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_a_right_program_that_looks_wrong_is_left_alone(program: Callable[[], None], scales: bool,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    if not scales:
        monkeypatch.setattr(replica_checks.divisors, "by_replicas", lambda *_: False)
    assert findings(program) == []


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, LOOPS, 20)], ids=str)
def test_drawn_correct_training_loops_are_left_alone(seeds: range) -> None:
    for seed in seeds:
        loop = Loop(seed)
        assert remarks(loop) == [], loop


@pytest.mark.parametrize("mistake", LOOP_MISTAKES)
def test_a_mistake_in_a_drawn_training_loop_is_found(mistake: str) -> None:
    missed = []
    for seed in range(20):
        loop = Loop(seed, mistake)
        with process.fresh(), refdist.config.checks(types=True):
            codes = [str(warning.message)[1:5] for warning in findings(loop.run)]
        if codes != [LOOP_MISTAKES[mistake]] * len(codes) or not codes:
            missed.append((loop, codes))
    assert missed == []


def sum_and_rows(x: Any) -> Any:
    sums, rows = replica().all_reduce("SUM", [x.sum(axis=0), np.float32(len(x))])
    return sums / rows


def read_outside() -> Any:
    strategy = four()
    seen = total(strategy)
    each(strategy, lambda x: seen.assign_add(x.sum()))
    return float(seen)


MEAN_OF_EIGHT, SUM_OF_EIGHT = [11.5, 12.5, 13.5], [92.0, 100.0, 108.0]
FOLLOWED = {
    "RD37": lambda: each(four(), lambda x: replica().all_reduce("MEAN", replica().all_reduce("SUM", x.sum(axis=0)))),
    "RD38": lambda: each(four(), sum_and_rows), "RD40": lambda: each(four(), sum_and_rows, rows=5),
    "RD39": lambda: each(four(), lambda x: replica().all_reduce("SUM", x.sum(axis=0))),
    "RD41": lambda: read_outside(), "RD51": lambda: each(four(), sum_and_rows),
    "RD52": lambda: each(four(), lambda x: replica().all_reduce("MEAN", x.mean(axis=0)))}
WANTED: dict[str, Any] = {"RD37": SUM_OF_EIGHT, "RD38": MEAN_OF_EIGHT, "RD39": SUM_OF_EIGHT, "RD40": [7.0, 8.0, 9.0],
                          "RD41": 300.0, "RD51": MEAN_OF_EIGHT, "RD52": MEAN_OF_EIGHT}


@pytest.mark.parametrize("code", [code for code, row in refdist.errors.CATALOGUE.items()
                                  if issubclass(row.error, ReplicaTypeWarning)])
def test_advice_that_is_followed_gives_the_right_number_and_no_warning(code: str) -> None:
    results: list[Any] = []
    assert findings(lambda: results.append(FOLLOWED[code]())) == []
    result = results[0] if code == "RD41" else results[0][0].values[3].tolist()
    assert result == WANTED[code]


def reduced_outside(mean: bool) -> Any:
    strategy = four()
    for batch in batches(strategy, 7):
        parts = strategy.run(lambda x: x.mean() if mean else (x[:, 0].sum(), np.float32(len(x))), (batch,))
        if mean:
            return strategy.reduce("MEAN", parts, axis=None)
        total, rows = [strategy.reduce("SUM", part, axis=None) for part in parts]
        return float(total / rows)
    return None


def assigned_with_an_aggregation(mean: bool) -> Any:
    strategy = four()
    w = weights(strategy, Aggregation.MEAN if mean else Aggregation.SUM)

    def step(x: Any) -> None:
        rows = refdist.get_replica_context().all_reduce("SUM", np.float32(len(x)))
        w.assign(x.mean(axis=0) if mean else x.sum(axis=0) / rows)

    each(strategy, step, 7)
    return w.numpy().tolist()


@pytest.mark.parametrize(("program", "written", "wanted"), [
    (reduced_outside, '`total, rows = [strategy.reduce("SUM", part, axis=None) for part in parts]`', 10.0),
    (assigned_with_an_aggregation, '`x.sum(axis=0) / rows` with `rows = get_replica_context().all_reduce("SUM", '
     'np.float32(len(x)))`, and let the aggregation be SUM.', [10.0, 11.0, 12.0]),
])
def test_the_advice_on_means_fits_the_call(program: Callable[[bool], Any], written: str, wanted: Any) -> None:
    [finding] = findings(lambda: program(True))
    assert "[RD40]" in str(finding.message) and written in str(finding.message)
    results: list[Any] = []
    assert findings(lambda: results.append(program(False))) == []
    assert results == [pytest.approx(wanted)]


# --- The tables ------------------------------------------------------------------------------------------------

def operand(of: Operand) -> Any:
    """Two rows of two items, of this type."""
    if of is Plain.NUMBER:
        return 3.0
    array = np.ones((2, 2), np.float32)
    return array if of is Of.UNKNOWN else typed(array, ReplicaType(of, "here", rows=2, back=2 * (of is Of.ROWS)))


def combined(function: np.ufunc) -> Callable[[tuple[Operand, Operand]], object]:
    def observe(cell: tuple[Operand, Operand]) -> object:
        return type_of(function(*map(operand, cell))).of
    return observe


def other_types(cell: object, value: Of) -> list[Of]:
    return [of for of in Of if of is not value]


def other_types_of_differences(cell: tuple[Operand, Operand], value: Of) -> list[Of]:
    # What was added to a sum may be taken away again: then a difference has the type differs in place of both.
    taken_away = value in (Of.BOTH, Of.DIFFERS) and Of.BOTH in cell and Of.SUM not in cell
    return [of for of in Of if of not in ((Of.BOTH, Of.DIFFERS) if taken_away else (value,))]


@pytest.mark.parametrize(("function", "others"), [(np.add, other_types), (np.subtract, other_types_of_differences)])
def test_what_adding_makes_of_types(function: np.ufunc, others: Callable[..., list[Of]]) -> None:
    assert survivors(ADDING, combined(function), others) == []


def test_what_multiplying_makes_of_types() -> None:
    assert survivors(MULTIPLYING, combined(np.multiply), other_types) == []


def test_what_dividing_makes_of_types() -> None:
    assert survivors(DIVIDING, combined(np.true_divide), other_types) == []


@pytest.mark.parametrize("function", [np.maximum, np.power])
def test_what_other_operations_make_of_types(function: np.ufunc) -> None:
    assert survivors(OTHERS, combined(function), other_types) == []


REDUCED: dict[Along, Callable[[Any], Any]] = {
    Along.SUM_OF_ROWS: lambda x: [x.sum(), x.sum(axis=0), np.sum(x, axis=0), np.add.reduce(x)],
    Along.MEAN_OF_ROWS: lambda x: [x.mean(), np.mean(x, axis=0)],
    Along.SUM_OF_ITEMS: lambda x: [x.sum(axis=1), np.sum(x, axis=-1)], Along.MEAN_OF_ITEMS: lambda x: [x.mean(axis=1)],
    Along.OTHER: lambda x: [x.max(), x.min(axis=0)]}


def test_what_reducing_one_array_makes_of_types() -> None:
    def observe(cell: tuple[Of, Along]) -> object:
        return [type_of(reduced).of for reduced in REDUCED[cell[1]](operand(cell[0]))]

    assert survivors(ALONG, observe, other_types) == []


def test_what_replicas_may_reduce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_checks.divisors, "by_replicas", lambda *_: False)

    def observe(cell: tuple[Of, Reducing]) -> object:
        of, reducing = cell
        kinds = [ReplicaType(of, "here", rows=rows, reduced=True, variable="v") for rows in (2, 1)]

        def program() -> None:
            with process.fresh():
                replica_checks.check(reducing, kinds, "this", 2)

        return [str(warning.message)[:6] for warning in findings(program)]

    codes = {cell for row in REPLICAS.values() for cell in row.values()}
    assert survivors(REPLICAS, observe, lambda cell, value: codes - {value}) == []


EXECUTED = """
def summed(x):
    return replica().all_reduce("SUM", x.mean())

def summed_again(x):
    return replica().all_reduce("SUM", x.mean())

def counted(x):
    return replica().all_reduce("SUM", x.sum())

each(four(), summed), each(four(), summed_again), each(four(), counted)
"""


def test_of_a_program_whose_text_is_not_known_one_warning_says_so() -> None:
    names: dict[str, Any] = {"replica": replica, "each": each, "four": four}
    [warning] = findings(lambda: exec(compile(EXECUTED, "<cell 7>", "exec"), names))
    text = str(warning.message)
    assert text.startswith("[RD51] all_reduce SUM: the means over the replicas' rows (2, 2, 2, 2) are summed: the ")
    assert ("result is 4 times the mean over the batch, unless the program divides by the number of replicas; that was "
            "not looked at, because the text of <cell 7> cannot be read") in text
    assert "all_reduce SUM (<cell 7>:3)" in text
    assert (warning.filename, warning.lineno) == ("<cell 7>", 3)


def test_of_a_file_that_was_edited_since_it_was_imported_one_warning_says_so(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    file.write_text("\n\n\ndef summed(x):\n    return replica().all_reduce('SUM', x.mean()) / len(gpus)\n")
    names: dict[str, Any] = {"replica": replica, "each": each, "four": four}
    [warning] = findings(lambda: exec(compile(EXECUTED, str(file), "exec"), names))
    assert "[RD51]" in str(warning.message) and "or is not what runs" in str(warning.message)


def test_a_caller_whose_text_is_not_known_matters_if_it_gets_the_sum(tmp_path: Path) -> None:
    strategy = four()
    for returned in ("", "return "):
        file = tmp_path / f"called{bool(returned)}.py"
        file.write_text(f"def summed(losses):\n    {returned}strategy.reduce('SUM', losses, axis=None)\n")
        [batch] = batches(strategy)
        names: dict[str, Any] = {"strategy": strategy, "losses": strategy.run(lambda x: x.mean(), (batch,))}
        exec(compile(file.read_text(), str(file), "exec"), names)
        [warning] = findings(partial(exec, compile("summed(losses)", "<no text>", "exec"), names))
        assert ("[RD51]" if returned else "[RD38]") in str(warning.message)


# --- What values know ------------------------------------------------------------------------------------------


def rows_of_two() -> Any:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    return typed(array, ReplicaType(Of.ROWS, "rows", rows=2, back=2))


def labels_of_two() -> Any:
    return typed(np.array([1, 2]), ReplicaType(Of.ROWS, "rows", rows=2, back=1))


@pytest.mark.parametrize(("compute", "of"), [
    (lambda x, y: x.T @ (x[:, 0] - y), Of.SUM), (lambda x, y: x.T.dot(x), Of.SUM), (lambda x, y: x @ x.T, Of.DIFFERS),
    (lambda x, y: x @ np.ones(3, np.float32), Of.ROWS), (lambda x, y: -np.log(x[np.arange(2), y]).sum(), Of.SUM),
    (lambda x, y: x[:, None] - x, Of.DIFFERS), (lambda x, y: x[0], Of.DIFFERS),
    (lambda x, y: x[..., None].sum(), Of.SUM),
    (lambda x, y: (x > 1).astype(np.float32).mean(), Of.MEAN), (lambda x, y: (x > 1).sum(), Of.SUM),
    (lambda x, y: (x[:, 0] == y).all(), Of.UNKNOWN), (lambda x, y: np.where(x > 1, x, 0.0).mean(), Of.MEAN),
    (lambda x, y: x[y > 1].mean(), Of.MEAN),
    (lambda x, y: x.reshape(2, -1).mean(), Of.MEAN), (lambda x, y: x.reshape(-1).mean(), Of.MEAN),
    (lambda x, y: x.reshape(-1, 1).reshape(2, 3).mean(axis=1).sum(), Of.SUM),
    (lambda x, y: x.reshape(3, 2).mean(), Of.DIFFERS),
    (lambda x, y: x.reshape(-1).reshape(1, 6).mean(axis=0), Of.DIFFERS), (lambda x, y: x[x > 1].mean(), Of.MEAN),
    (lambda x, y: x.reshape(1, 2, 3).squeeze(), Of.DIFFERS), (lambda x, y: x[:, :1].squeeze().sum(), Of.SUM),
    (lambda x, y: x.view(np.ndarray).mean(), Of.UNKNOWN), (lambda x, y: np.concatenate([x, x]).sum(), Of.UNKNOWN),
    (lambda x, y: x.max(axis=1).sum(), Of.SUM), (lambda x, y: 0.1 * x.mean() + 1, Of.MEAN),
    (lambda x, y: x.sum() + 1, Of.DIFFERS), (lambda x, y: np.square(x.mean()), Of.DIFFERS),
    (lambda x, y: x.var(), Of.DIFFERS), (lambda x, y: np.max(x, axis=1).sum(), Of.SUM),
    (lambda x, y: np.linalg.norm(x, axis=1).mean(), Of.MEAN), (lambda x, y: np.linalg.norm(x), Of.DIFFERS),
    (lambda x, y: np.zeros_like(x[0]) + x.sum(axis=0), Of.SUM), (lambda x, y: np.zeros_like(y) + 1, Of.UNKNOWN),
    (lambda x, y: sum([x.sum(), x.sum()]), Of.SUM), (lambda x, y: 0.0 - x.mean(), Of.MEAN),
    (lambda x, y: np.zeros_like(x) - x[:, 0:1], Of.UNKNOWN), (lambda x, y: np.zeros_like(x[0]) * x.mean(), Of.UNKNOWN),
    (lambda x, y: np.std(x, dtype=np.float64), Of.UNKNOWN), (lambda x, y: np.clip(x, 0, 2).mean(), Of.MEAN),
    (lambda x, y: float(x.mean()), Of.UNKNOWN),
    (lambda x, y: (x.argmax(axis=1) == 2).mean(), Of.MEAN), (lambda x, y: np.argmin(x, 1).sum(), Of.SUM),
    (lambda x, y: x.argmax(), Of.DIFFERS), (lambda x, y: x.argmax(0), Of.DIFFERS),
    (lambda x, y: (x[:, 0] * y).sum() / y.sum(), Of.MEAN), (lambda x, y: x.sum() / x[y > 1].sum(), Of.DIFFERS),
    (lambda x, y: y.sum() - operand(Of.SAME)[0, 0], Of.BOTH),
    (lambda x, y: x.sum(axis=0) + operand(Of.SAME)[0, 0] - operand(Of.SAME)[0, 0], Of.DIFFERS),
    (lambda x, y: x.sum(axis=0) - (x.sum(axis=0) + operand(Of.SAME)[0, 0]), Of.BOTH),
    (lambda x, y: x.sum() / (y.sum() + 1e-6), Of.MEAN),
    (lambda x, y: x.sum() / np.maximum(y.sum(), 1), Of.MEAN),
    (lambda x, y: np.maximum(x.sum(axis=0), 0), Of.DIFFERS), (lambda x, y: x.sum() / (y.sum() + 1), Of.DIFFERS),
    (lambda x, y: np.average(x, axis=0), Of.MEAN), (lambda x, y: np.average(x[:, 0], weights=y), Of.MEAN),
    (lambda x, y: np.average(x, axis=1).sum(), Of.SUM),
    (lambda x, y: np.average(x[:, 0], weights=np.float32([1, 2])), Of.UNKNOWN),
    (lambda x, y: np.nanmean(x, axis=0), Of.MEAN),
    (lambda x, y: np.hstack([x, np.ones((2, 1), np.float32)]).sum(axis=0), Of.SUM),
    (lambda x, y: np.hstack(tup=[x, x]), Of.UNKNOWN),
    (lambda x, y: np.concatenate([x, y[:, None]], axis=1).mean(), Of.MEAN),
    (lambda x, y: np.vstack([x, x]), Of.UNKNOWN), (lambda x, y: np.stack([x[:, 0], y], axis=1), Of.UNKNOWN),
    (lambda x, y: np.concatenate([x[::2], x[:1]], axis=1), Of.ROWS),
    (lambda x, y: np.einsum("ni,n->i", x, y), Of.SUM), (lambda x, y: np.einsum("ni,nj->nij", x, x).mean(), Of.MEAN),
    (lambda x, y: np.einsum("ni,mi->nm", x, x), Of.UNKNOWN), (lambda x, y: np.einsum("ni,n", x, y), Of.UNKNOWN),
    (lambda x, y: np.einsum("ni,ij->nj", x, np.ones((3, 2), np.float32)).sum(), Of.SUM),
    (lambda x, y: np.einsum("ni,nj->ij", x, np.ones((2, 2), np.float32)), Of.UNKNOWN),
    (lambda x, y: np.zeros(3, np.float32) + x.mean(axis=0), Of.MEAN), (lambda x, y: np.float32(0) + x.sum(), Of.SUM),
    (lambda x, y: np.ones(3, np.float32) + x.mean(axis=0), Of.UNKNOWN),
    (lambda x, y: np.zeros((2, 2, 3), np.float32) + x, Of.UNKNOWN),
    (lambda x, y: np.flip(x).mean(), Of.MEAN), (lambda x, y: np.flip(x.sum(axis=0)), Of.SUM),
    (lambda x, y: np.flip(m=x), Of.UNKNOWN), (lambda x, y: np.fliplr(np.flipud(x)).sum(), Of.SUM),
    (lambda x, y: np.rot90(x).mean(axis=1), Of.MEAN), (lambda x, y: np.rot90(x).mean(axis=0), Of.ROWS),
    (lambda x, y: np.roll(x, 1, axis=0).sum(), Of.SUM), (lambda x, y: np.roll(x, 1), Of.DIFFERS),
    (lambda x, y: np.moveaxis(x, 0, 1).mean(axis=1), Of.MEAN), (lambda x, y: np.swapaxes(x, 0, 1).sum(1), Of.SUM),
    (lambda x, y: x.swapaxes(0, 1).mean(axis=0), Of.ROWS), (lambda x, y: np.expand_dims(x, 0).sum(axis=1), Of.SUM),
    (lambda x, y: np.broadcast_to(x, (4, 2, 3)).mean(axis=1), Of.MEAN),
    (lambda x, y: np.broadcast_to(x.mean(axis=0), (2, 3)), Of.MEAN), (lambda x, y: np.tile(x, 2).mean(), Of.MEAN),
    (lambda x, y: x.repeat(2, axis=1).sum(), Of.SUM), (lambda x, y: np.repeat(x, 2, axis=0), Of.DIFFERS),
    (lambda x, y: np.repeat(x, np.array([1, 2, 1]), axis=1), Of.UNKNOWN),
    (lambda x, y: np.diagonal(x[:, :2]).mean(), Of.MEAN),
    (lambda x, y: np.split(x, 2)[1].mean(), Of.MEAN), (lambda x, y: np.array_split(x, 3, axis=1)[2].sum(), Of.SUM),
    (lambda x, y: np.split(x[:1], 1)[0].mean(), Of.MEAN), (lambda x, y: np.expand_dims(x[:1], 0), Of.DIFFERS),
])
def test_numpys_operations_keep_what_they_can(compute: Callable[[Any, Any], Any], of: Of) -> None:
    computed = compute(rows_of_two(), labels_of_two())
    wanted = compute(np.asarray(rows_of_two()), np.asarray(labels_of_two()))
    assert type_of(computed).of is of
    assert np.asarray(computed).tobytes() == np.asarray(wanted).tobytes()
    if isinstance(wanted, (np.ndarray, np.generic)):
        assert isinstance(computed, type(wanted)) and computed.dtype == wanted.dtype and computed.shape == wanted.shape


@pytest.mark.parametrize("clear", [lambda array: array.fill(0), lambda array: np.copyto(array, 0)])
def test_what_was_written_over_is_not_the_same_any_more(clear: Callable[[Any], None]) -> None:
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        added = w.read_value().copy()
        clear(added)
        assert not added.any()
        added += x.sum(axis=0)
        return replica().all_reduce("SUM", added)

    assert findings(lambda: each(strategy, step)) == []


def through_its_base(w: Any, value: Any) -> Any:
    """A view of a copy of the weights, into which something else is written through the copy."""
    copy = w.read_value().copy()
    view = copy[:]
    copy[...] = value
    return view


@pytest.mark.parametrize("compute", [
    lambda w, x: through_its_base(w, x.sum(axis=0)), lambda w, x: through_its_base(w, x.sum(axis=0)) + x.sum(axis=0),
    lambda w, x: through_its_base(w, 0) + x.sum(axis=0), lambda w, x: (w.read_value() - w.read_value()) + x.sum(axis=0),
    lambda w, x: x.sum(axis=0) - 0 * w.read_value()])
def test_what_only_came_from_the_same_is_not_taken_for_it(compute: Callable[[Any, Any], Any]) -> None:
    strategy = four()
    w = weights(strategy)
    assert findings(lambda: each(strategy, lambda x: replica().all_reduce("SUM", compute(w, x)))) == []


@pytest.mark.parametrize(("local", "warned"), [(1, False), (2, True)])
def test_a_penalty_that_one_worker_may_add_alone_is_none_of_all(local: int, warned: bool) -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        w = weights(strategy)
        each(strategy, lambda x: replica().all_reduce("SUM", x.sum() / 8 + np.square(w).sum()))

    assert bool(findings(lambda: refdist.simulate_workers(program, 2, local))) is warned


def test_items_in_another_order_are_of_as_many_rows() -> None:
    assert type_of(np.flip(rows_of_two())).rows == 2
    assert [type_of(part).rows for part in np.split(rows_of_two(), 2)] == [1, 1]


@pytest.mark.parametrize(("move", "same"), [
    (lambda weight, number: np.roll(weight, number), False), (lambda weight, number: np.roll(weight, 1), True),
    (lambda weight, number: np.broadcast_to(weight, (number + 1, 3))[0], False),
    (lambda weight, number: np.split(weight, 3)[number % 3], False)])
def test_what_each_replica_takes_from_elsewhere_is_not_the_same(move: Callable[[Any, int], Any], same: bool) -> None:
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        return replica().all_reduce("SUM", move(w.read_value(), replica().replica_id_in_sync_group))

    assert bool(findings(lambda: each(strategy, step))) is same


def test_a_mask_takes_as_many_rows_as_it_has() -> None:
    x, rows = rows_of_two(), []
    for mask in (np.array([True, True]), np.array([True, False])):
        rows.append(type_of(x[mask]).rows)
    assert rows == [2, 1]


def test_what_is_added_to_zeros_in_place_has_its_type() -> None:
    total = before = np.zeros(3, np.float32)
    for _ in range(2):
        total += rows_of_two().sum(axis=0)
    assert type_of(total).of is Of.SUM
    assert before.tolist() == np.asarray(total).tolist() == [6.0, 10.0, 14.0]  # still one array
    total = np.ones(3, np.float32)
    total += rows_of_two().sum(axis=0)
    assert type_of(total) is UNKNOWN


def test_what_is_written_into_an_array_changes_its_type() -> None:
    total = typed(np.zeros(3, np.float32), ReplicaType(Of.SAME, "here"))
    total += rows_of_two().sum(axis=0)
    assert type_of(total).of is Of.BOTH
    total = typed(np.zeros(3, np.float32), ReplicaType(Of.SAME, "here"))
    total[0] = 1.0
    assert type_of(total) is UNKNOWN


def test_scalars_stay_numbers() -> None:
    mean = rows_of_two().mean()
    kept = mean
    mean += 1
    assert (float(kept), float(mean)) == (2.5, 3.5)
    assert isinstance(mean, np.float32) and hash(kept) == hash(np.float32(2.5)) and repr(kept) == "np.float32(2.5)"
    assert type(pickle.loads(pickle.dumps(kept))) is np.float32
    assert type(pickle.loads(pickle.dumps(rows_of_two()))) is np.ndarray


def test_a_chain_of_any_length_is_kept_short() -> None:
    value = rows_of_two()
    for _ in range(1000):
        value = np.minimum(value, value)
    assert len(type_of(value).chain()) < 12 and type_of(value).chain()[0] == "rows"


def test_a_value_says_what_it_is() -> None:
    shown: list[str] = []
    each(four(), lambda x: shown.append(repr(refdist.replica_type(np.square(x).mean()))), rows=7)
    assert shown[0].startswith("a mean over the replica's rows (2): rows of a distributed dataset -> square (")
    assert shown[3].startswith("a mean over the replica's rows (1)")
    assert repr(refdist.replica_type(1.0)) == "unknown"


def test_a_variable_says_what_a_read_of_it_is() -> None:
    strategy = four()
    w, seen = weights(strategy), total(strategy)
    kinds = strategy.run(lambda: [refdist.replica_type(w).of.name, refdist.replica_type(seen).of.name])
    assert kinds == ["SAME", "PART"]


@pytest.mark.parametrize(("divided", "noticed"), [
    (lambda x: x / 16, True), (lambda x: x / 4, False), (lambda x: x / (2 * len(CONSTANT) * 4), False)])
def test_a_batch_that_is_not_distributed_is_told_from_a_share(divided: Callable[[Any], Any], noticed: bool) -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        w.assign_sub(divided(((x @ w)[:, None] * x).sum(axis=0)))

    given = findings(lambda: strategy.run(step, (ROWS,)))
    assert [str(warning.message)[:6] for warning in given] == ["[RD37]"] * noticed


def test_numpys_warnings_name_the_line_of_the_program() -> None:
    # A function whose three lines each divide by zero in another way; each line is warned of once.
    def step(x: Any) -> None:
        x / (x * 0)  # first
        x.mean() / (x.sum() * 0)  # second
        np.log(x[:0].sum())  # third

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("default")
        each(four(), step)
    lines = [Path(warning.filename).read_text().splitlines()[warning.lineno - 1] for warning in given]
    assert [line.partition("# ")[2] for line in lines] == ["first", "second", "third"]


# --- Switching it on and off -----------------------------------------------------------------------------------


def test_what_is_off_gives_plain_arrays() -> None:
    with refdist.config.checks(types=False):
        strategy = four()
        w = weights(strategy, Aggregation.MEAN)
        kinds: list[type] = []

        def step(x: Any) -> None:
            kinds.extend(map(type, (x, w.read_value(), replica().all_reduce("SUM", x.sum()), x.mean())))

        each(strategy, step)
        assert {*kinds} == {np.ndarray, np.float32}
        assert findings(MISTAKES[0].program) == []


def test_a_finding_is_given_once_for_each_line() -> None:
    program = MISTAKES[0].program
    assert len(findings(lambda: [program() for _ in range(3)])) == 1


def test_a_value_without_its_type_is_never_warned_of() -> None:
    def program() -> None:
        each(four(), lambda x: replica().all_reduce("SUM", x.view(np.ndarray).mean()))

    assert findings(program) == []


@pytest.mark.parametrize(("convert", "of"), [
    (lambda x: float(x.mean()), Of.MEAN), (lambda x: x.mean().item(), Of.MEAN), (lambda x: x.mean().tolist(), Of.MEAN),
    (lambda x: float(x.sum(keepdims=True).squeeze()), Of.SUM), (lambda x: float(x.mean()) + 0, Of.UNKNOWN),
    (lambda x: [float(x.mean()), 0.25][1], Of.UNKNOWN), (lambda x: float(len(x)), Of.UNKNOWN),
    (lambda x: float(str(float(x.mean()))), Of.UNKNOWN), (lambda x: int(x.mean()), Of.UNKNOWN),
    (lambda x: np.array(x).mean(), Of.MEAN), (lambda x: np.asarray(x, np.float64).sum(axis=0), Of.SUM),
    (lambda x: np.ascontiguousarray(x.T).mean(axis=1), Of.MEAN), (lambda x: np.array(x.mean()), Of.MEAN),
    (lambda x: np.array(float(x.mean())), Of.MEAN), (lambda x: np.array([x.mean(), float(x[:, 0].mean())]), Of.MEAN),
    (lambda x: np.array([x.mean(), (x > 2).mean()]), Of.MEAN),
    (lambda x: np.array([x.sum() / 2, x.sum()]), Of.UNKNOWN), (lambda x: np.array([x.mean(), x.sum()]), Of.UNKNOWN),
    (lambda x: np.array([x.mean(), 1.0]), Of.UNKNOWN),
    (lambda x: np.array([x, x]).mean(), Of.UNKNOWN), (lambda x: np.array([float(row[0]) for row in x]), Of.UNKNOWN),
    (lambda x: np.array([]), Of.UNKNOWN), (lambda x: np.array(0.25), Of.UNKNOWN)])
def test_a_value_that_is_converted_keeps_its_type_or_is_unknown(convert: Callable[[Any], Any], of: Of) -> None:
    kinds: list[Of] = []
    each(four(), lambda x: kinds.append(refdist.replica_type(convert(x)).of))
    assert {*kinds} == {of}


def test_converting_does_not_change_what_is_computed() -> None:
    def converted(x: Any) -> Any:
        return np.array(x), np.asarray(x, np.float64), float(x.mean()), np.array([x.mean(), 1]).dtype, x.mean().item()

    with_types = each(four(), converted)
    with refdist.config.checks(types=False):
        assert repr(each(four(), converted)) == repr(with_types)


@pytest.mark.parametrize("types", [True, False])
def test_a_warning_of_a_conversion_has_the_line_of_the_program(types: bool) -> None:
    each(four(), lambda x: np.asarray(x))  # from now on refdist stands between the program and `np.asarray`
    with refdist.config.checks(types=types), pytest.warns(RuntimeWarning, match="invalid value") as raised:
        np.asarray(np.float32([np.nan]), np.int32)  # converted
    [warning] = raised
    assert "# converted" in Path(warning.filename).read_text().splitlines()[warning.lineno - 1]


def test_a_mean_that_became_a_float_is_not_summed() -> None:
    def program() -> None:
        strategy = four()
        for batch in batches(strategy):
            strategy.reduce("SUM", strategy.run(lambda x: float(x.mean()), (batch,)), axis=None)

    [finding] = findings(program)
    assert "[RD38] Strategy.reduce SUM" in str(finding.message)


def test_no_other_float_is_taken_for_one_that_has_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    # A float is known by its object, which is kept, so that none made later gets its id.
    monkeypatch.setattr(replica_types, "_KEPT", 5)
    replica_types._floats.clear()
    mean = typed(np.float32(0.25), ReplicaType(Of.MEAN, "mean", rows=2))
    for i in range(100):
        assert replica_types.type_of_contribution(float(mean)).of is Of.MEAN
        assert replica_types.type_of_contribution(i / 4 + 0.25) is UNKNOWN
    assert len(replica_types._floats) <= 5


def test_another_thread_may_train_while_weights_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def compared(array: Any) -> Any:
        if not threads:
            threads.append(threading.Thread(target=own_weights))
            threads[0].start()
            threads[0].join(HANG)
        return on_host(array)

    monkeypatch.setattr(own_writes, "on_host", compared)
    assert "[RD52]" in str(findings(own_weights)[0].message)
    assert threads and not threads[0].is_alive()


def test_one_replica_has_nobody_to_differ_from() -> None:
    strategy = refdist.OneDeviceStrategy("CPU:0")
    assert findings(lambda: each(strategy, lambda x: replica().all_reduce("SUM", x.mean()))) == []


@pytest.mark.parametrize("program", DIVIDING_LATER, ids=lambda program: program.__name__)
def test_a_file_that_divides_by_the_number_of_replicas_is_left_alone(program: Callable[[], None]) -> None:
    assert findings(program) == []


def test_simulated_workers_are_checked_too() -> None:
    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        return [strategy.run(lambda x: refdist.replica_type(replica().all_reduce("SUM", x.sum())).of.name, (batch,))
                for batch in batches(strategy)]

    assert refdist.simulate_workers(program, 2, 2) == [["SAME"], ["SAME"]]


def test_a_comment_silences_one_line() -> None:
    def program() -> None:
        strategy = four()
        [loss] = each(strategy, lambda x: np.square(x).mean())
        strategy.reduce("SUM", loss, axis=None)  # refdist: ignore[RD38]
        strategy.reduce(
            "SUM", loss,
            axis=None)  # refdist: ignore[RD38]
        strategy.reduce("SUM", loss, axis=None)  # refdist: ignore[RD37]

    [finding] = findings(program)
    assert "[RD38]" in str(finding.message)


def test_a_replica_does_not_switch_checks_for_the_others() -> None:
    def step() -> None:
        with refdist.config.checks(types=False):
            replica().all_reduce("SUM", CONSTANT)

    with pytest.raises(refdist.errors.RefdistError, match=r"RD09.*around `strategy.run`"):
        four().run(step)
    assert asked_checks.types.value


def test_checks_takes_a_bool() -> None:
    with pytest.raises(refdist.errors.RefdistError, match="RD25"):
        refdist.config.checks(types=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "wanted"), [("types", "RD37"), ("", ""), ("type", "RD34"), ("types,first", "RD37"),
                                                ("off", ""), ("first,off", "RD34")])
def test_the_environment_asks_for_it(asked: str, wanted: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import numpy as np, refdist\n"
                      "x = np.float32([2])\n"
                      "strategy = refdist.MirroredStrategy(['GPU:0', 'GPU:1'])\n"
                      "strategy.run(lambda: refdist.get_replica_context().all_reduce('SUM', x))\n")
    done = subprocess.run([sys.executable, script], env={**os.environ, "REFDIST_CHECKS": asked}, capture_output=True,
                          text=True, check=False)
    assert wanted in done.stderr and bool(wanted) == bool(done.stderr)



@pytest.mark.parametrize("reduced", [False, True])
def test_weights_that_each_replica_makes_anew_part_where_nothing_is_reduced(reduced: bool) -> None:
    own = [{"kernel": np.zeros(3, np.float32), "bias": np.zeros(1, np.float32)} for _ in range(4)]

    def step(x: Any) -> None:
        weights = own[replica().replica_id_in_sync_group]
        error = x @ weights["kernel"] + weights["bias"] - 1
        gradients = {"kernel": x.T @ error / len(x), "bias": error.mean()}
        if reduced:
            gradients = {name: replica().all_reduce("MEAN", gradient) for name, gradient in gradients.items()}
        for name, gradient in gradients.items():
            weights[name] = weights[name] - 0.01 * gradient

    def program() -> None:
        strategy = four()
        for x in batches(strategy, batch=4):
            strategy.run(step, (x,))

    messages = [str(finding.message) for finding in findings(program)]
    assert len(messages) == (not reduced) and all(message.startswith("[RD52]") for message in messages)


def test_what_is_centred_in_each_step_is_no_weight_of_a_replica() -> None:
    kept: dict[int, Any] = {}

    def step(x: Any) -> None:
        kept[replica().replica_id_in_sync_group] = x - x.mean(axis=0), np.ones(3, np.float32) - x.mean(axis=0)

    strategy = four()
    assert not findings(lambda: [strategy.run(step, (x,)) for x in batches(strategy, batch=4)])


EARLIER = np.array


def test_functions_that_are_replaced_are_put_back_and_pickled_meanwhile() -> None:
    kept: list[Any] = []

    class Converter:
        convert = EARLIER

    def step(x: Any) -> None:
        kept.append(np.array)
        Converter.convert = np.array
        assert refdist.replica_type(Converter().convert(x)).of is Of.ROWS  # no method, as one of C
        assert all(pickle.loads(pickle.dumps(function)) is function for function in (EARLIER, np.array))

    with refdist.config.checks(types=False):
        assert np.array is EARLIER and EARLIER.__module__ == "numpy"
        with refdist.config.checks(types=True):
            each(four(), step)
            with refdist.config.checks(types=False):
                assert np.array is EARLIER
            each(four(), step)
            assert np.array is not EARLIER
        assert np.array is EARLIER and EARLIER.__module__ == "numpy"
        for function in (EARLIER, kept[0]):  # what the program has kept, too
            assert pickle.loads(pickle.dumps(function)) is EARLIER and function([1, 2]).tolist() == [1, 2]
