"""The check of types on what JAX computes: by its functions, their gradients, and in functions that it has compiled."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jax_losses import LOSSES, each, gradient, mean_of_squares, own_sum, train
from right_with_jax import RIGHT
from silent_mistakes import Aggregation, four, replica
from test_replica_types import findings

import refdist
from refdist.array import jax_types
from refdist.array.replica_types import type_of
from refdist.core.rules.replica_types import Of
from refdist.runtime import process

jax: Any = pytest.importorskip("jax", reason="JAX is not installed", exc_type=ImportError)
jnp = jax.numpy


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    with process.fresh(), refdist.config.checks(types=True):
        yield


def kind_of(compute: Callable[[Any, Any], Any]) -> Of:
    """What is known of what a replica computes of its rows and a weight that is the same everywhere."""
    strategy = four()
    with strategy.scope():
        weight = refdist.Variable(jnp.ones(3), aggregation=Aggregation.MEAN)
    kinds: list[Of] = []
    each(lambda x: kinds.append(type_of(compute(x, weight.read_value())).of), strategy=strategy)
    assert len({*kinds}) == 1
    return kinds[0]


@pytest.mark.parametrize(("compute", "of"), LOSSES)
def test_a_loss_of_jax_is_what_that_of_numpy_would_be(compute: Callable[[Any, Any], Any], of: Of) -> None:
    assert kind_of(compute) is of
    assert kind_of(jax.jit(compute)) is of


@pytest.mark.parametrize(("compute", "of"), LOSSES)
def test_the_gradient_is_what_the_loss_is(compute: Callable[[Any, Any], Any], of: Of) -> None:
    assert kind_of(gradient(compute)) is of
    assert kind_of(jax.jit(gradient(compute))) is of
    assert kind_of(gradient(jax.jit(compute))) is of
    assert kind_of(lambda x, w: jax.value_and_grad(lambda w: compute(x, w))(w)[1]) is of
    assert kind_of(gradient(jax.checkpoint(compute))) is of


@pytest.mark.parametrize(("compute", "of"), [
    (lambda x, w: x, Of.ROWS), (lambda x, w: w, Of.SAME), (lambda x, w: x @ w, Of.ROWS),
    (lambda x, w: x.sum(0), Of.SUM),
    (lambda x, w: x.mean(0), Of.MEAN), (lambda x, w: x.mean(1), Of.ROWS), (lambda x, w: x.sum(), Of.SUM),
    (lambda x, w: w * 2 + 1, Of.SAME), (lambda x, w: 0.1 * x.sum(0) * w, Of.SUM),
    (lambda x, w: x.sum(0) + w, Of.BOTH), (lambda x, w: x.sum(0) + w - w, Of.DIFFERS),
    (gradient(lambda x, w: (x @ w).sum() + jnp.abs(w).sum()), Of.BOTH),
    (gradient(jax.jit(lambda x, w: (x @ w).sum() + jnp.abs(w).sum())), Of.BOTH),
    (gradient(lambda x, w: (x @ w).sum() + jnp.abs(w).sum() - jnp.square(w).sum()), Of.DIFFERS),
    (lambda x, w: x.mean(0) + w, Of.MEAN), (lambda x, w: jnp.sqrt(x.mean(0)), Of.DIFFERS),
    (lambda x, w: x.sum() / x.shape[0], Of.MEAN), (lambda x, w: x.sum() / x.size, Of.MEAN),
    (lambda x, w: x.sum() / jnp.ones_like(x).sum(), Of.UNKNOWN), (lambda x, w: x.sum() / (x > 2).sum(), Of.MEAN),
    (lambda x, w: x.var(), Of.UNKNOWN), (lambda x, w: x.max(), Of.DIFFERS), (lambda x, w: jnp.median(x), Of.UNKNOWN),
    (lambda x, w: x.T, Of.ROWS), (lambda x, w: x.T @ x, Of.SUM), (lambda x, w: jnp.einsum("bi,bj->ij", x, x), Of.SUM),
    (lambda x, w: x.reshape(-1).mean(), Of.MEAN), (lambda x, w: x[:1], Of.ROWS),
    (lambda x, w: jnp.where(x > 1, x, 0).sum(), Of.SUM), (lambda x, w: jnp.mean(x, where=x > 1), Of.MEAN),
    (lambda x, w: jnp.stack([x.sum(), x.sum()]), Of.SUM), (lambda x, w: x.sum() * jnp.float32(2), Of.SUM),
    (lambda x, w: jax.lax.stop_gradient(x).sum(), Of.SUM),
    (lambda x, w: jax.random.normal(jax.random.key(0), (3,)) * w, Of.UNKNOWN),
    (lambda x, w: jax.lax.scan(lambda c, i: (c + (x * i).sum(), None), 0.0, jnp.arange(3.0))[0], Of.DIFFERS),
    (lambda x, w: jax.lax.scan(lambda c, _: (c + x.sum(), None), 0.0, None, length=3)[0], Of.SUM),
    (lambda x, w: jax.lax.fori_loop(0, 3, lambda i, c: c + x.sum(0), jnp.zeros(3)), Of.SUM),
    (lambda x, w: jax.lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] + x.sum(0), c[1] + 1), (jnp.zeros(3), 0))[0],
     Of.SUM),
    (lambda x, w: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + w, w), Of.SAME),
    (lambda x, w: jax.lax.while_loop(lambda c: c[1].sum() < 9, lambda c: (c[0] * 2, c[1] + x.sum(0)),
                                     (w, jnp.zeros(3)))[0], Of.UNKNOWN),
    (lambda x, w: jax.lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * x.sum(0), c[1] + 1), (x.mean(0), 0))[0],
     Of.DIFFERS),
    (lambda x, w: x[::-1].mean(), Of.MEAN), (lambda x, w: jnp.flip(x, 0).sum(0), Of.SUM),
    (lambda x, w: jnp.concatenate([x, jnp.ones((len(x), 1))], axis=1).mean(0), Of.MEAN),
    (lambda x, w: jnp.concatenate([x, jnp.ones((1, 3))]).mean(0), Of.UNKNOWN),
    (lambda x, w: jnp.take(x, jnp.arange(2), axis=1).mean(), Of.MEAN), (lambda x, w: x[:, ::-1].sum(0), Of.SUM),
    (lambda x, w: jax.lax.cond(w.sum() > 0, lambda: x.mean(), lambda: 2 * x.mean()), Of.MEAN),
    (lambda x, w: jax.lax.cond(w.sum() > 0, lambda: x.sum(0), lambda: x.mean(0)), Of.UNKNOWN)])
def test_functions_of_jax_make_of_types_what_numpys_do(compute: Callable[[Any, Any], Any], of: Of) -> None:
    assert kind_of(compute) is of
    if of is not Of.UNKNOWN:
        assert kind_of(jax.jit(compute)) is of


def compiled_gradient(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    compute: Callable[[Any, Any], Any] = jax.jit(gradient(loss))
    return compute


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_means_are_not_summed_nor_those_of_sums_averaged(compiled: bool) -> None:
    by = compiled_gradient if compiled else gradient
    [finding] = findings(train(lambda x, w: replica().all_reduce("SUM", by(mean_of_squares)(x, w))))
    assert "[RD38] all_reduce SUM: the means over the replicas' rows (2, 2, 2, 2)" in str(finding.message)
    assert "test_jax_types.py" in str(finding.message) and "-> gradient (" in str(finding.message)
    [finding] = findings(train(lambda x, w: replica().all_reduce("MEAN", by(own_sum)(x, w))))
    assert "[RD39]" in str(finding.message)
    [finding] = findings(train(lambda x, w: replica().all_reduce("MEAN", by(mean_of_squares)(x, w)), rows=7))
    assert "[RD40]" in str(finding.message)
    [finding] = findings(train(
        lambda x, w: replica().all_reduce("SUM", replica().all_reduce("SUM", by(own_sum)(x, w)))))
    assert "[RD37]" in str(finding.message)


@pytest.mark.parametrize("step", RIGHT)
def test_right_gradients_of_jax_are_left_alone(step: Callable[[Any, Any], Any]) -> None:
    assert not findings(train(step))


def test_what_a_replica_draws_or_chooses_is_never_the_same() -> None:
    def step(x: Any, w: Any) -> Any:
        number = replica().replica_id_in_sync_group
        key = jax.random.fold_in(jax.random.key(0), number)
        replica().all_reduce("SUM", jax.random.normal(key, (3,)) * w)
        replica().all_reduce("SUM", w * jnp.float32(number == 0))
        replica().all_reduce("SUM", jnp.where(number == 0, w, 0))
        replica().all_reduce("SUM", w[number % 3])
        replica().all_reduce("SUM", jax.nn.one_hot(number, 3) * w)
        return jnp.zeros(3)

    assert not findings(train(step))


def valued(loss: Callable[[Any, Any], Any], weight: Any) -> Callable[[Any], Any]:
    return lambda x: jax.value_and_grad(lambda w: loss(x, w))(weight)


def test_results_have_the_bits_that_they_have_without_the_check() -> None:
    weight = jnp.float32([0.1, 0.2, 0.3])

    def results() -> list[bytes]:
        return [np.asarray(part).tobytes() for loss, _ in LOSSES for result in each(valued(loss, weight))
                for item in result for part in item.values]

    checked = results()
    with refdist.config.checks(types=False):
        assert results() == checked


def test_jax_computes_by_itself_where_types_are_off() -> None:
    with refdist.config.checks(types=False):
        assert four().run(lambda: jax._src.core.trace_ctx.is_top_level()) is True


def test_an_array_of_numpys_keeps_its_type_in_a_function_of_jax() -> None:
    kinds: list[Of] = []

    def step(x: Any) -> None:
        rows = np.asarray(x)
        kinds.extend(type_of(value).of for value in (jnp.sum(rows), jax.jit(jnp.mean)(rows), jnp.asarray(rows).sum()))

    each(step)
    assert kinds == [Of.SUM, Of.MEAN, Of.SUM] * 4


def test_a_number_that_is_made_of_an_array_has_its_type() -> None:
    kinds: list[Of] = []
    each(lambda x: kinds.extend(refdist.replica_type(value).of for value in (
        float(x.mean()), x.sum().item(), float(x.mean()) * 1.0, x.mean().tolist())))
    assert kinds == [Of.MEAN, Of.SUM, Of.UNKNOWN, Of.UNKNOWN] * 4


def own_weights(step: Callable[[Any, Any], Any], reduced: bool) -> Callable[[], Any]:
    """A program in which each replica has a tree of weights of its own, with the gradients that it reduces or not."""
    trees = [{"kernel": jnp.zeros(3), "bias": jnp.zeros(())} for _ in range(4)]

    def train_own(x: Any) -> None:
        number = replica().replica_id_in_sync_group
        gradients = jax.grad(lambda tree: jnp.mean((x @ tree["kernel"] + tree["bias"] - 1) ** 2))(trees[number])
        trees[number] = step(trees[number], replica().all_reduce("MEAN", gradients) if reduced else gradients)

    return lambda: each(train_own, batch=4)


@pytest.mark.parametrize("compiled", [False, True])
def test_weights_of_each_replica_part_where_nothing_is_reduced(compiled: bool) -> None:
    def step(tree: Any, gradients: Any) -> Any:
        return jax.tree.map(lambda weight, gradient: weight - 0.01 * gradient, tree, gradients)

    update = jax.jit(step) if compiled else step
    [message] = [str(finding.message) for finding in findings(own_weights(update, False))]
    assert message.startswith("[RD52] training: each of 4 replicas changes weights of its own, by a mean over")
    assert not findings(own_weights(update, True))


def own_weights_by_optax(optimizer: Any, compiled: str) -> Callable[[], Any]:
    """A program in which each replica trains weights of its own by optax: nothing compiled, the update, or the step."""
    optax = pytest.importorskip("optax")
    trees = [{"kernel": jnp.zeros(3), "bias": jnp.zeros(())} for _ in range(4)]
    states = [optimizer.init(tree) for tree in trees]

    def update(tree: Any, gradients: Any, state: Any) -> Any:
        updates, state = optimizer.update(gradients, state, tree)
        return optax.apply_updates(tree, updates), state  # the sum

    def step(tree: Any, state: Any, x: Any) -> Any:
        gradients = jax.grad(lambda tree: jnp.mean((x @ tree["kernel"] + tree["bias"] - 1) ** 2))(tree)
        if compiled == "update":
            return jax.jit(update)(tree, gradients, state)  # compiled
        return update(tree, gradients, state)

    step_of = jax.jit(step) if compiled == "step" else step

    def train_own(x: Any) -> None:
        number = replica().replica_id_in_sync_group
        trees[number], states[number] = step_of(trees[number], states[number], x)  # compiled with the gradient

    return lambda: each(train_own, batch=4)


@pytest.mark.parametrize("compiled", ["nothing", "update", "step"])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_weights_of_each_replica_part_where_optax_adds_its_updates(name: str, compiled: str) -> None:
    optax = pytest.importorskip("optax")
    [finding] = findings(own_weights_by_optax(getattr(optax, name)(0.01), compiled))
    assert str(finding.message).startswith("[RD52] training: each of 4 replicas changes weights of its own, by ")
    line = Path(__file__).read_text().splitlines()[finding.lineno - 1]
    comments = {"nothing": "# the sum", "update": "# compiled", "step": "# compiled with the gradient"}
    assert line.endswith(comments[compiled])


def test_sums_that_a_replica_keeps_of_its_own_are_no_weights() -> None:
    weight, totals = jnp.ones(3), {}

    def accumulate(total: Any, x: Any) -> Any:
        gradient = jax.grad(lambda w: jnp.mean((x @ w - 1) ** 2))(weight)
        mean, count = total["mean"], total["count"] + 1
        return {"loss": total["loss"] + jnp.mean((x @ weight - 1) ** 2), "gradient": total["gradient"] + gradient,
                "count": count, "mean": mean + (x.mean(0) - mean) / count}

    for step in (accumulate, jax.jit(accumulate)):
        def keep(x: Any, step: Any = step) -> None:
            number = replica().replica_id_in_sync_group
            before = totals.get(number, {"loss": 0.0, "gradient": jnp.zeros(3), "count": 0, "mean": jnp.zeros(3)})
            totals[number] = step(before, x)

        totals.clear()
        assert not findings(lambda keep=keep: each(keep, batch=4))


def test_what_is_centred_in_each_step_is_no_weight() -> None:
    kept: dict[int, Any] = {}

    def step(x: Any) -> None:
        kept[replica().replica_id_in_sync_group] = x - x.mean(axis=0), jnp.zeros(3) - x.mean(axis=0)

    assert not findings(lambda: each(step, batch=4))


def test_what_is_donated_and_what_changes_in_place_is_computed_as_without_the_check() -> None:
    weights = jnp.float32([1, 2, 3]), jnp.zeros(3), jax.device_put(np.float32(4))
    update = jax.jit(lambda weights, x: [weight + x.sum(axis=0).mean() for weight in weights], donate_argnums=0)

    def step(x: Any) -> tuple[Any, Any]:
        total = jax.new_ref(jnp.zeros(3))
        total[...] += x.sum(axis=0)
        donated = jax.tree.map(jnp.copy, weights)
        results = update(donated, x), total[...]
        assert donated[0].is_deleted()
        return results

    def values() -> list[Any]:
        return [np.asarray(part).tolist() for part in jax.tree.leaves([
            refdist.nest.map_structure(lambda item: item.values, result) for result in each(step)])]

    checked = values()
    with refdist.config.checks(types=False):
        assert values() == checked


def warnings_of(program: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        program()
    return [warning for warning in given if isinstance(warning.message, refdist.errors.DifferenceWarning)]


def test_programs_of_nnx_run_and_it_is_said_once_that_they_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flax.nnx", ModuleType("flax.nnx"))
    messages = [str(warning.message) for warning in warnings_of(lambda: [
        each(lambda x: replica().all_reduce("SUM", x.mean(axis=0)), batch=4) for _ in range(2)])]
    [message] = messages
    assert message.startswith("[RD54] following what JAX computes: ")
    assert "flax.nnx is imported, whose modules refuse" in message


def another_trace(monkeypatch: pytest.MonkeyPatch, core: Any, infos: Any) -> None:
    class WithMore(core.EvalTrace):  # type: ignore[misc]
        def __init__(self, more: Any) -> None:
            raise AssertionError

    monkeypatch.setattr(core, "EvalTrace", WithMore)


def another_context(monkeypatch: pytest.MonkeyPatch, core: Any, infos: Any) -> None:
    monkeypatch.setattr(core, "set_current_trace", lambda: nullcontext())


def other_tracebacks(monkeypatch: pytest.MonkeyPatch, core: Any, infos: Any) -> None:
    monkeypatch.setattr(infos, "_source_info_context", SimpleNamespace(
        context=SimpleNamespace(traceback=object(), name_stack="")))


def another_place(monkeypatch: pytest.MonkeyPatch, core: Any, infos: Any) -> None:
    monkeypatch.setattr(infos, "_source_info_context", SimpleNamespace())


def other_arguments(monkeypatch: pytest.MonkeyPatch, core: Any, infos: Any) -> None:
    class Other(core.EvalTrace):  # type: ignore[misc]
        def process_primitive(self, primitive: Any, args: Any, more: Any, params: Any, /) -> Any:
            return super().process_primitive(primitive, args, params)

    def bind(self: Any, trace: Any, args: Any, *more: Any) -> Any:
        if isinstance(trace, Other):
            return trace.process_primitive(self, args, None, more[-1])
        return before(self, trace, args, *more)

    before = core.Primitive.bind_with_trace
    monkeypatch.setattr(core, "EvalTrace", Other)
    monkeypatch.setattr(core.Primitive, "bind_with_trace", bind)


def without(module: str, name: str) -> Callable[..., None]:
    def remove(monkeypatch: pytest.MonkeyPatch, core: Any, infos: Any) -> None:
        monkeypatch.delattr(f"jax._src.{module}.{name}")
    return remove


OTHER_VERSIONS = [*(without(*names) for names in [
    ("core", "EvalTrace"), ("core", "EvalTrace.process_primitive"), ("core", "take_current_trace"),
    ("core", "set_current_trace"), ("source_info_util", "_source_info_context"),
    ("dtypes", "canonicalize_value_handlers")]),
    another_trace, another_context, another_place, other_tracebacks, other_arguments]


@pytest.mark.parametrize("change", OTHER_VERSIONS)
def test_a_version_of_jax_that_has_other_parts_computes_as_before_and_has_no_types(
        change: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    core, infos = import_module("jax._src.core"), import_module("jax._src.source_info_util")
    sums: list[Any] = []

    def step(x: Any) -> Any:
        return replica().all_reduce("SUM", jax.jit(jnp.mean)(x) + gradient(mean_of_squares)(x, jnp.ones(3)))

    def program() -> None:
        with monkeypatch.context() as changed:
            change(changed, core, infos)
            four().run(lambda: None)  # where types begin
            if change is other_arguments:  # which stays
                sums.extend(part.values[0] for part in each(step, batch=4))
        sums.extend(part.values[0] for part in each(step, batch=4))

    jax_types.following.cache_clear()
    try:
        messages = [str(warning.message) for warning in warnings_of(program)]
    finally:
        jax_types.following.cache_clear()
    [message] = messages
    assert message.startswith(f"[RD54] following what JAX computes: JAX {jax.__version__}: ")
    with refdist.config.checks(types=False):
        expected = [part.values[0] for part in each(step, batch=4)]
    np.testing.assert_array_equal(sums, expected * (len(sums) // 2))


def test_what_is_computed_of_no_rows_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    before, looked = np.asarray, []
    table = jnp.ones((3, 4))
    monkeypatch.setattr(np, "asarray", lambda *args, **options: looked.append(args) or before(*args, **options))
    four().run(lambda: (table @ table.T).sum())
    assert not looked
