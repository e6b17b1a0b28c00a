"""Numbers that are remarked on without being asked: infinity, NaN, integers that wrap around."""

from __future__ import annotations

import runpy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import runtime


def mirrored(count: int = 4) -> refdist.MirroredStrategy:
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])


def number() -> int:
    return int(refdist.get_replica_context().replica_id_in_sync_group)


def warnings_of(program: Callable[[], object]) -> list[str]:
    # A line is told of once in a process.
    with runtime.process.fresh(), warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        program()
    return [str(warning.message) for warning in shown if issubclass(warning.category, refdist.errors.DifferenceWarning)]


def reduced(value: Callable[[int], Any], op: str = "SUM", times: int = 3) -> list[str]:
    def step() -> Any:
        return refdist.get_replica_context().all_reduce(op, value(number()))

    return warnings_of(lambda: [mirrored().run(step) for _ in range(times)])


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_replica_that_brings_it_is_named_once_for_a_line(op: str, bad: float, word: str, dtype: Any) -> None:
    [message] = reduced(lambda i: np.array([1, bad if i == 2 else 1], dtype), op)
    assert message.startswith(f"[RD42] all_reduce: replica 2 contributes {word}, the first at [1] of replica 2's array")
    assert "what the other replicas contribute is finite" in message


def test_every_float16_is_told_from_infinity_and_nan() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = every[abs(every) <= np.finfo(np.float16).max]  # neither infinity nor NaN
    assert reduced(lambda i: numbers if i == 0 else np.zeros_like(numbers), "SUM") == []
    others = every[~(abs(every) <= np.finfo(np.float16).max)]

    def of_replica_0(last: np.float16) -> Callable[[int], Any]:
        return lambda i: np.array([1, last if i == 0 else 0], np.float16)

    for last in [*others[:3], *others[-3:]]:
        [message] = reduced(of_replica_0(last))
        assert message.startswith("[RD42]")


@pytest.mark.parametrize(("bad", "ignored", "silent"), [
    (np.nan, "invalid", True), (np.inf, "over", True), (np.nan, "over", False), (np.inf, "invalid", False)])
def test_what_the_program_ignores_is_not_said(bad: float, ignored: str, silent: bool) -> None:
    with np.errstate(**{ignored: "ignore"}):
        assert (reduced(lambda i: np.float32(bad)) == []) == silent


def test_the_rows_of_the_replica_are_told() -> None:
    def program() -> None:
        strategy = mirrored(2)
        rows = refdist.data.Dataset.from_tensor_slices(np.arange(5, dtype=np.float32)).batch(4)
        for x in strategy.experimental_distribute_dataset(rows):
            losses = strategy.run(lambda x: x.mean() if len(x) else np.float32(np.nan), args=(x,))
            strategy.reduce("MEAN", losses, axis=None)

    [message] = warnings_of(program)
    assert "[RD42] a reduction outside replicas: replica 1 contributes NaN; the last batch gave it no rows" in message


def test_an_element_without_arrays_has_no_rows_to_count() -> None:
    assert next(iter(mirrored(2).experimental_distribute_dataset([{}]))) == {}


def test_an_update_of_a_variable_is_looked_at_too() -> None:
    def program() -> None:
        strategy = mirrored(2)
        with strategy.scope():
            v = refdist.Variable(0.0, aggregation=refdist.VariableAggregation.SUM)
        strategy.run(lambda: v.assign_add(np.float32(np.inf) if number() else np.float32(0)))

    [message] = warnings_of(program)
    assert "[RD42] assign_add of variable Variable:0: replica 1 contributes infinity" in message


@pytest.mark.parametrize(("dtype", "part", "total"), [
    (np.uint8, 100, 400), (np.int8, -100, -400), (np.int32, 2 ** 30, 2 ** 32), (np.uint32, 2 ** 31, 2 ** 33),
    (np.int64, 2 ** 62, 2 ** 64), (np.uint64, 2 ** 63, 2 ** 65)])
def test_integers_that_do_not_fit_are_named_with_their_sum(dtype: Any, part: int, total: int) -> None:
    [message] = reduced(lambda i: np.array([1, part], dtype))
    assert message.startswith(f"[RD43] all_reduce: the sum is {total}, and {np.dtype(dtype)} ends at ")


@pytest.mark.parametrize("value", [
    np.float32(1e38), np.full(2, 1e30, np.float32), np.float64(1e308) / 8, np.uint8(63), np.int32(-2 ** 29),
    np.int64(2 ** 60), np.uint64(2 ** 61), np.zeros((0, 3), np.float32), np.zeros(0, np.int32), np.complex64(1j)])
@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_numbers_that_fit_are_not_remarked_on(value: Any, op: str) -> None:
    assert reduced(lambda i: value * value.dtype.type(i == 0) if value.dtype.kind == "f" else value, op) == []


def test_each_line_is_told_of() -> None:
    def program() -> None:
        strategy = mirrored(2)
        for _ in range(2):
            strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.float32(np.nan)))
            strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.float32(np.nan)))

    assert len(warnings_of(program)) == 2


def test_a_worker_tells_of_its_own_replicas() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.float32([1, 1, 1, np.nan])[number()]))

    with warnings.catch_warnings(record=True):
        message = warnings_of(lambda: refdist.simulate_workers(program, 2, 2))
    assert [text.partition(";")[0] for text in message] == ["[RD42] all_reduce: replica 3 contributes NaN"]


def of_library(name: str) -> Callable[[Any], Any]:
    module: Any = pytest.importorskip(name, reason="`make interop` installs it", exc_type=ImportError)
    return module.tensor if name == "torch" else module.numpy.asarray  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_arrays_of_other_libraries_are_looked_at_in_the_memory_of_the_host(name: str) -> None:
    array = of_library(name)
    [message] = reduced(lambda i: array(np.float32([1, np.nan if i == 2 else 1])))
    assert message.startswith("[RD42] all_reduce: replica 2 contributes NaN, the first at [1] of replica 2's array")
    [message] = reduced(lambda i: array(np.float32(np.inf if i == 0 else 1)), "MEAN")
    assert message.startswith("[RD42] all_reduce: replica 0 contributes infinity; what the other")
    [message] = reduced(lambda i: array(np.int32([1, 2 ** 30])))
    assert message.startswith("[RD43] all_reduce: the sum is 4294967296, and int32 ends at 2147483647")
    assert reduced(lambda i: array(np.int32([1, 2 ** 28]))) == reduced(lambda i: array(np.float32([1e38, 0]))) == []


def test_bfloat16_of_pytorch_is_looked_at() -> None:
    array = of_library("torch")
    pytest.importorskip("ml_dtypes", reason="`make interop` installs it")
    import torch
    [message] = reduced(lambda i: array([1.0, np.nan if i == 3 else 1.0]).to(torch.bfloat16))
    assert message.startswith("[RD42] all_reduce: replica 3 contributes NaN, the first at [1]")
    assert reduced(lambda i: array([1e38]).to(torch.bfloat16) / 4) == []


def test_tensors_on_a_device_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    array = of_library("torch")
    from refdist.backends.torch.backend import Torch
    monkeypatch.setattr(Torch, "is_on_host", lambda self, array: False)  # as of a tensor on a GPU
    assert reduced(lambda i: array(np.float32(np.nan))) == []


@pytest.mark.parametrize(("step", "outside", "silent"), [
    ("g = loss / 1", "ok = np.isfinite(DATA)", False), ("g = loss", "from math import isinf", False),
    ("g = loss", "'Try isfinite.'", False), ("g = loss", "pass  # a GradScaler, or isfinite, would help", False),
    ("g = loss if np.isfinite(x[0]) else 0", "", False), ("y, z = x; g = loss if np.isfinite(y) else 0", "", False),
    ("g = loss", "np.isfinite(w)", False), ("g = loss + w * np.isfinite(w)", "", False),
    ("g = loss", "policy = 'mixed_float16'", True), ("g = loss", "torch.cuda.amp.GradScaler()", True),
    ("g = loss", "optax.apply_if_finite(optimizer, 5)", True),
    ("g = loss if np.isfinite(loss) else loss", "", True), ("g = loss; np.isfinite(g * 2)", "", True),
    ("g = loss if all_finite([loss]) else loss", "def all_finite(parts): return all(map(np.isfinite, parts))", True),
    ("g = loss", "if np.isfinite(step(c, (0, 0))): w = 1", True), ("g = loss", "skip = lambda g: g.isnan().any()\n"
                                                                  "    skip(step(c, (0, 0)))", True)])
def test_a_program_asks_whether_what_it_reduces_is_finite(step: str, outside: str, silent: bool,
                                                          tmp_path: Path) -> None:
    """Not where it asks of its data, its weights or another number, or only speaks of it."""
    file = tmp_path / "program.py"
    file.write_text("import numpy as np\n\nw, DATA = np.float32(np.nan), np.ones(2)\n\n\n"
                    f"def step(c, x):\n    loss = np.float32(2) * w\n    {step}\n"
                    "    return c.all_reduce('SUM', g)\n\n\n"
                    f"if not step:\n    pass\n    {outside}\nelse:\n"
                    "    def all_finite(parts):\n        return all(map(np.isfinite, parts))\n")
    function = runpy.run_path(str(file))["step"]
    texts = warnings_of(lambda: mirrored().run(lambda: function(refdist.get_replica_context(), (0.0, 0.0))))
    assert [text[:6] for text in texts] == ["[RD42]"] * (not silent)


@pytest.mark.parametrize(("asks", "silent"), [
    ("np.isfinite(total)", True), ("np.isfinite(losses.values[0])", True), ("np.isfinite(ROWS)", False)])
def test_a_program_asks_of_what_it_reduces_outside_of_replicas(asks: str, silent: bool, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import numpy as np\n\n\ndef train(strategy):\n    ROWS = np.ones(3)\n"
                    "    losses = strategy.run(lambda: np.float32(np.nan) * 1)\n"
                    f"    total = strategy.reduce('SUM', losses, axis=None)\n    return {asks}\n")
    function = runpy.run_path(str(file))["train"]
    assert [text[:6] for text in warnings_of(lambda: function(mirrored()))] == ["[RD42]"] * (not silent)
