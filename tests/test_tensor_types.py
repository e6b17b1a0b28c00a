"""The check of types on tensors of PyTorch, their gradients, values of Keras, and arrays of JAX."""

from __future__ import annotations

import linecache
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from silent_mistakes import ROWS, Aggregation, four, replica
from test_replica_types import findings

import refdist
from refdist.array.replica_types import type_of
from refdist.core.rules.replica_types import Of
from refdist.runtime import process

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
F = torch.nn.functional


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    with process.fresh(), refdist.config.checks(types=True):
        yield


def each(step: Callable[[Any], Any], rows: int = 8, strategy: Any = None) -> list[Any]:
    """What the replicas return of each batch of tensors."""
    strategy = strategy or four()
    dataset = refdist.data.Dataset.from_tensor_slices(torch.tensor(ROWS[:rows])).batch(8)
    return [strategy.run(step, (batch,)) for batch in strategy.experimental_distribute_dataset(dataset)]


def kind_of(compute: Callable[[Any, Any], Any]) -> Of:
    """What is known of what a replica computes of its rows and a weight that is the same everywhere."""
    strategy = four()
    with strategy.scope():
        weight = refdist.Variable(torch.ones(3), aggregation=Aggregation.MEAN)
    kinds: list[Of] = []
    each(lambda x: kinds.append(type_of(compute(x, weight.read_value())).of), strategy=strategy)
    assert len({*kinds}) == 1
    return kinds[0]


@pytest.mark.parametrize(("convert", "of"), [
    (lambda x: float(x.mean()), Of.MEAN), (lambda x: x.mean().item(), Of.MEAN), (lambda x: x.sum().tolist(), Of.SUM),
    (lambda x: x.mean().cpu().numpy(), Of.MEAN), (lambda x: torch.tensor(x.mean().item()), Of.MEAN),
    (lambda x: torch.tensor([x.mean().item(), float(x.mean())]), Of.MEAN),
    (lambda x: torch.tensor([x.mean().item(), 1.0]), Of.UNKNOWN), (lambda x: torch.as_tensor(x.numpy()).sum(), Of.SUM),
    (lambda x: torch.from_numpy(x.numpy().copy()).sum(), Of.SUM), (lambda x: torch.stack([x.sum(), x.sum()]), Of.SUM),
    (lambda x: torch.stack([x[0], x[1]]), Of.UNKNOWN), (lambda x: np.asarray(x).sum(), Of.SUM),
    (lambda x: torch.tensor(0.25), Of.UNKNOWN), (lambda x: x.mean().item() * 1.0, Of.UNKNOWN)])
def test_a_tensor_that_is_converted_keeps_its_type_or_is_unknown(convert: Callable[[Any], Any], of: Of) -> None:
    kinds: list[Of] = []
    each(lambda x: kinds.append(refdist.replica_type(convert(x)).of))
    assert {*kinds} == {of}


def test_an_array_of_jax_keeps_the_type_of_what_it_was_made_of() -> None:
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    kinds: list[Of] = []

    def step(x: Any) -> None:
        array = jnp.asarray(x.numpy().mean())
        kinds.extend(refdist.replica_type(value).of for value in (array, array.view(int), jnp.asarray(0.25)))

    each(step)
    assert kinds == [Of.MEAN, Of.UNKNOWN, Of.UNKNOWN] * 4
    [finding] = findings(lambda: each(lambda x: replica().all_reduce("SUM", replica().all_reduce("SUM", jnp.ones(2)))))
    assert "[RD37]" in str(finding.message)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("reduced", [False, True])
def test_models_of_each_replica_part_where_nothing_is_reduced(optimizer: Any, reduced: bool) -> None:
    models = [torch.nn.Linear(3, 1) for _ in range(4)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
    optimizers = [optimizer(model.parameters(), lr=0.01) for model in models]

    def step(x: Any) -> None:
        number = replica().replica_id_in_sync_group
        optimizers[number].zero_grad()
        models[number](x).square().mean().backward()
        if reduced:
            for parameter in models[number].parameters():
                parameter.grad = replica().all_reduce("MEAN", parameter.grad)
        optimizers[number].step()

    def program() -> None:
        strategy = four()
        for x in strategy.experimental_distribute_dataset(
                refdist.data.Dataset.from_tensor_slices(torch.tensor(ROWS)).batch(4)):
            strategy.run(step, (x,))

    messages = [str(finding.message) for finding in findings(program)]
    assert len(messages) == (not reduced)
    if not reduced:
        assert messages[0].startswith("[RD52] training: each of 4 replicas changes weights of its own, by a mean over")
        assert "-> gradient (" in messages[0] and "-> a write (" in messages[0]


def by_grad(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compute(x: Any, w: Any) -> Any:
        w = w.detach().clone().requires_grad_()
        return torch.autograd.grad(loss(x, w), [w])[0]
    return compute


def by_backward(loss: Callable[[Any, Any], Any], times: int = 1) -> Callable[[Any, Any], Any]:
    def compute(x: Any, w: Any) -> Any:
        w = w.detach().clone().requires_grad_()
        for _ in range(times):
            loss(x, w).backward()
        return w.grad
    return compute


def zeroed(x: Any, w: Any) -> Any:
    w = w.detach().clone().requires_grad_()
    (x @ w).sum().backward()
    w.grad.zero_()
    (x @ w).mean().backward()
    return w.grad


def on_another_device(compute: Callable[[], Any]) -> Any:
    """What is computed while new tensors are made elsewhere."""
    with torch.device("meta"):
        return compute()


def written(x: Any, w: Any) -> Any:
    w = w.clone()
    w.view(-1)[0] = 2.0
    return w


@pytest.mark.parametrize(("compute", "of"), [
    (lambda x, w: x, Of.ROWS), (lambda x, w: w, Of.SAME), (lambda x, w: x @ w, Of.ROWS),
    (lambda x, w: ((x @ w - 1) ** 2).sum(), Of.SUM), (lambda x, w: (2 * x).mean(), Of.MEAN),
    (lambda x, w: (1 - x).mean(dim=0), Of.MEAN), (lambda x, w: x.sum(dim=1), Of.ROWS),
    (lambda x, w: (x.shape, x.dtype, x.mean())[-1], Of.MEAN),
    (lambda x, w: (x > 2).float().mean(), Of.MEAN), (lambda x, w: x.sum() / x.sum(), Of.MEAN),
    (lambda x, w: x.sum() / (x > 2).sum().clamp(min=1), Of.MEAN),
    (lambda x, w: x.sum().clamp(min=0), Of.DIFFERS), (lambda x, w: x.mean(dim=0).numpy() * 2, Of.MEAN),
    (lambda x, w: F.mse_loss(x, torch.zeros_like(x)), Of.MEAN),
    (lambda x, w: F.mse_loss(x, torch.zeros_like(x), reduction="sum"), Of.SUM),
    (lambda x, w: F.cross_entropy(x, torch.zeros(2, dtype=torch.long)), Of.MEAN),
    (lambda x, w: F.log_softmax(x, dim=1).sum(), Of.SUM), (lambda x, w: F.log_softmax(x, dim=0).sum(), Of.UNKNOWN),
    (lambda x, w: torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())(x).mean(), Of.MEAN),
    (lambda x, w: (x.argmax(1) == 2).float().mean(), Of.MEAN), (lambda x, w: x.argmax(dim=0).sum(), Of.DIFFERS),
    (lambda x, w: torch.cumsum(x, 0).sum(), Of.UNKNOWN), (lambda x, w: torch.from_numpy(x.numpy()), Of.ROWS),
    (lambda x, w: x.view(-1).mean(), Of.MEAN), (lambda x, w: x.flatten().view(2, -1).mean(dim=1).sum(), Of.SUM),
    (lambda x, w: x.view(3, 2).mean(), Of.DIFFERS), (lambda x, w: x[torch.randperm(2)].mean(), Of.MEAN),
    (lambda x, w: x[torch.arange(2), torch.zeros(2, dtype=torch.long)].sum(), Of.SUM),
    (lambda x, w: x.gather(1, torch.zeros(2, 1, dtype=torch.long)).mean(), Of.MEAN),
    (lambda x, w: torch.gather(x, 0, torch.zeros(2, 3, dtype=torch.long)).mean(), Of.UNKNOWN),
    (lambda x, w: x.index_select(0, torch.zeros(1, dtype=torch.long)).sum(), Of.SUM),
    (lambda x, w: x.index_select(1, torch.zeros(1, dtype=torch.long)).mean(), Of.MEAN),
    (lambda x, w: x[x > 2].mean(), Of.MEAN), (lambda x, w: x.masked_select(x > 2).sum(), Of.SUM),
    (lambda x, w: x[:, None].transpose(1, 2).mean(), Of.MEAN), (lambda x, w: x.t().sum(dim=1), Of.SUM),
    (lambda x, w: x[:, None].permute(2, 0, 1).mean(dim=1), Of.MEAN), (lambda x, w: w.std(), Of.SAME),
    (lambda x, w: torch.linalg.norm(w) + w.norm(), Of.SAME), (lambda x, w: x.var(), Of.DIFFERS),
    (lambda x, w: F.layer_norm(w, (3,)).logsumexp(0), Of.SAME), (lambda x, w: F.dropout(w), Of.UNKNOWN),
    (lambda x, w: w[0], Of.SAME), (lambda x, w: w[torch.zeros(1, dtype=torch.long)], Of.UNKNOWN),
    (lambda x, w: F.mse_loss(w, w), Of.SAME), (lambda x, w: F.mse_loss(w, torch.zeros(3)), Of.UNKNOWN),
    (lambda x, w: torch.zeros(3) + w, Of.SAME), (lambda x, w: torch.zeros_like(w).add_(x.mean(dim=0)), Of.MEAN),
    (lambda x, w: torch.zeros(3) + 1, Of.UNKNOWN), (lambda x, w: torch.zeros(3), Of.UNKNOWN),
    (lambda x, w: torch.zeros(1) + x.sum() + x.mean(), Of.DIFFERS), (lambda x, w: sum([x.sum(), x.sum()]), Of.SUM),
    (lambda x, w: torch.zeros(5, 2) + x[:, 0], Of.UNKNOWN), (lambda x, w: x.sum() + 1, Of.DIFFERS),
    (lambda x, w: x.T @ x, Of.DIFFERS), (lambda x, w: w.clone().add_(x.sum(dim=0)), Of.BOTH),
    (written, Of.UNKNOWN),
    (by_grad(lambda x, w: (x @ w).sum()), Of.SUM), (by_grad(lambda x, w: (x @ w).mean()), Of.MEAN),
    (by_grad(lambda x, w: (w * w).sum()), Of.SAME), (by_grad(lambda x, w: torch.cumsum(x @ w, 0).sum()), Of.UNKNOWN),
    (lambda x, w: zeroed(x, w), Of.MEAN),
    (by_backward(lambda x, w: (x @ w).mean()), Of.MEAN), (by_backward(lambda x, w: (x @ w).sum(), 2), Of.SUM),
    (lambda x, w: torch.flip(x, [0]).mean(), Of.MEAN), (lambda x, w: x.flip(0, 1).sum(), Of.SUM),
    (lambda x, w: torch.flip(x.sum(dim=0), dims=[0]), Of.SUM), (lambda x, w: torch.flip(w, [0]), Of.SAME),
    (lambda x, w: x.roll(1, 0).mean(), Of.MEAN), (lambda x, w: x.roll(1).mean(), Of.DIFFERS),
    (lambda x, w: torch.movedim(x, 0, 1).mean(dim=1), Of.MEAN), (lambda x, w: x[:, None].expand(2, 4, 3), Of.ROWS),
    (lambda x, w: x.unsqueeze(0).sum(dim=1), Of.SUM), (lambda x, w: x.mean().expand(2), Of.MEAN),
    (lambda x, w: (x @ w).sum() + (w * w).sum(), Of.BOTH),
    (by_grad(lambda x, w: (x @ w).sum() + (w.detach() * w.detach()).sum()), Of.DIFFERS),
    (lambda x, w: x.chunk(2)[1].mean(), Of.MEAN), (lambda x, w: torch.split(x, [1, 1])[0].sum(), Of.SUM),
    (lambda x, w: x.unbind(1)[0].mean(), Of.MEAN), (lambda x, w: x.unbind(0)[0], Of.DIFFERS),
    (lambda x, w: x.repeat_interleave(2, dim=1).mean(), Of.MEAN), (lambda x, w: x.repeat(2, 1), Of.DIFFERS),
    (lambda x, w: x.repeat_interleave(torch.tensor([1, 2, 1]), dim=1), Of.UNKNOWN),
    (lambda x, w: torch.repeat_interleave((x[:, 0] * 0 + 2).long()), Of.UNKNOWN),
    (lambda x, w: on_another_device(lambda: x.flip(0)), Of.ROWS),
    (lambda x, w: x.select(1, 0).mean(), Of.MEAN), (lambda x, w: F.mish(F.relu6(x)).round().sum(), Of.SUM),
    (lambda x, w: F.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean"), Of.MEAN),
    (lambda x, w: F.kl_div(x.log_softmax(1), x.softmax(1), reduction="sum"), Of.SUM),
    (lambda x, w: torch.tensor(0.5) * x.sum(), Of.SUM), (lambda x, w: x.mean() * torch.as_tensor(2).double(), Of.MEAN),
    (lambda x, w: torch.tensor(0.5) * (w * w).sum(), Of.SAME), (lambda x, w: torch.tensor(0.0) + x.sum(), Of.SUM),
    (lambda x, w: torch.tensor(x.mean().item()) * 2, Of.MEAN),
    (lambda x, w: torch.tensor(2.5).int() * x.sum(), Of.UNKNOWN),
    (lambda x, w: torch.tensor(0.5).mul_(torch.ones(())) * x.sum(), Of.UNKNOWN),
    (lambda x, w: -torch.tensor(0.5) * x.sum(), Of.UNKNOWN),
])
def test_functions_of_pytorch_make_of_types_what_numpys_do(compute: Callable[[Any, Any], Any], of: Of) -> None:
    assert kind_of(compute) is of


def test_the_gradient_of_a_mean_is_not_summed() -> None:
    module = torch.nn.Linear(3, 1)

    def step(x: Any) -> Any:
        module.zero_grad()
        F.mse_loss(module(x), x.sum(dim=1, keepdim=True)).backward()
        return replica().all_reduce("SUM", module.weight.grad)

    [finding] = findings(lambda: each(step))
    assert "[RD38]" in str(finding.message) and "4 times the mean" in str(finding.message)
    assert "-> mse_loss (" in str(finding.message) and "-> gradient (" in str(finding.message)


@pytest.mark.parametrize("trees", ["torch.utils._pytree", "jax.tree_util"])
def test_a_finding_has_the_line_of_the_program_where_a_tree_calls_the_collective(trees: str) -> None:
    tree_map = pytest.importorskip(trees).tree_map
    [finding] = findings(lambda: each(lambda x: tree_map(partial(replica().all_reduce, "SUM"), {"loss": x.mean()})))
    assert finding.filename == __file__ and f"test_tensor_types.py:{finding.lineno}). " in str(finding.message)


def test_a_tensor_that_all_replicas_get_whole_is_not_summed() -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    [finding] = findings(lambda: four().run(lambda x: replica().all_reduce("SUM", x.square().sum(dim=0)), (rows,)))
    assert "[RD37]" in str(finding.message) and "an argument of strategy.run that every replica gets whole" in str(
        finding.message)


def test_a_tensor_from_outside_is_not_summed() -> None:
    weights, ones = torch.tensor([0.25, 0.75]), torch.ones(2)

    def step() -> Any:
        return replica().all_reduce("SUM", weights), replica().all_reduce("SUM", ones)

    [finding] = findings(lambda: four().run(step))
    assert "all 4 replicas contribute one and the same array" in str(finding.message)


def test_what_is_reduced_is_not_reduced_again() -> None:
    strategy = four()
    with strategy.scope():
        w = refdist.Variable(torch.ones(3), name="w", aggregation=Aggregation.SUM)
    [finding] = findings(lambda: each(lambda x: w.assign_sub(
        0.1 * replica().all_reduce("SUM", x.sum(dim=0))), strategy=strategy))
    assert "[RD37]" in str(finding.message)


def test_right_training_with_pytorch_is_left_alone() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    def gradients(x: Any) -> Any:
        loss = ((module(x) - 1) ** 2).sum()
        parts = torch.autograd.grad(loss, list(module.parameters()))
        rows = torch.tensor(float(len(x)))
        total, *sums = replica().all_reduce("SUM", [rows, *parts])
        mean = replica().all_reduce("SUM", ((module(x) - 1) ** 2).sum().detach() / 5)
        return [part / total for part in sums], mean

    def program() -> None:
        for result in each(gradients, rows=5):
            for parameter, gradient in zip(module.parameters(), result[0], strict=True):
                parameter.grad = gradient.values[0].clone()
            optimizer.step()

    assert findings(program) == []


@pytest.mark.parametrize("penalty", [False, True])
def test_the_gradient_of_gathered_rows_is_the_same_where_all_replicas_have_one_model(penalty: bool) -> None:
    def summed(model_of: Callable[[int], Any]) -> Callable[[Any], Any]:
        def step(x: Any) -> Any:
            model, rows = model_of(replica().replica_id_in_sync_group), replica().all_gather(x, axis=0)
            model.zero_grad()
            loss = model.weight.square().sum() if penalty else F.mse_loss(model(rows)[:, 0], rows[:, 0])
            loss.backward()
            return replica().all_reduce("SUM", model.weight.grad)
        return step

    shared, own = torch.nn.Linear(3, 1), [torch.nn.Linear(3, 1) for _ in range(4)]
    assert findings(lambda: each(summed(own.__getitem__))) == []
    [finding] = findings(lambda: each(summed(lambda i: shared)))
    assert "[RD37]" in str(finding.message) and "4 times as much" in str(finding.message)


def test_a_parameter_that_a_replica_has_written_to_is_not_the_same() -> None:
    def summed(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        w = torch.nn.Parameter(torch.ones(3))

        def step(x: Any) -> Any:
            w.grad = None
            with torch.no_grad():
                change(w)
            return replica().all_reduce("SUM", (w * w).sum().detach())
        return step

    def assigned(w: Any) -> None:
        w.data = w.data + 1

    for change in (lambda w: w.add_(1), assigned, lambda w: torch._foreach_add_([w], 1)):
        assert findings(lambda change=change: each(summed(change))) == []
    assert len(findings(lambda: each(summed(lambda w: None)))) == 1


@pytest.mark.parametrize("loss", [
    lambda x: x.view(-1).sum() / len(x), lambda x: x.view(-1).sum() / x.numel(), lambda x: x.view(-1).mean()])
def test_tokens_of_rows_are_averaged_as_rows_are(loss: Callable[[Any], Any]) -> None:
    [finding] = findings(lambda: each(lambda x: replica().all_reduce("SUM", loss(x))))
    assert "[RD38]" in str(finding.message) and "rows (2, 2, 2, 2)" in str(finding.message)
    assert findings(lambda: each(lambda x: replica().all_reduce("SUM", x.view(-1).mean() * len(x)))) == []
    assert findings(lambda: each(lambda x: replica().all_reduce("SUM", x.view(-1).sum() / 24))) == []


def test_what_only_looks_like_the_same_or_a_mean_is_left_alone() -> None:
    models = [torch.nn.Linear(3, 1) for _ in range(5)]

    def step(x: Any) -> list[Any]:
        own, shared = models[replica().replica_id_in_sync_group], models[4]
        everything = replica().all_gather(x, axis=0)
        loss = F.mse_loss(shared(x)[:, 0], x[:, 0], reduction="sum") / 5
        loss = loss + 0.0025 * shared.weight.square().sum()  # the replica's share
        count, hits = torch.zeros(()), torch.zeros(2)
        for i in range(len(x)):
            count += 1
            hits[0] += x[i, 0] > 2
        reduce = replica().all_reduce
        reduce("MEAN", torch.autograd.grad(F.mse_loss(shared(everything)[:, 0], everything[:, 0]), [shared.weight])[0])
        return [reduce("SUM", tensor) for tensor in (
            F.mse_loss(own(everything)[:, 0], everything[:, 0]).detach(), torch.autograd.grad(loss, [shared.weight])[0],
            count, hits, torch.ones(()), torch.full((2,), 2.0), torch.tensor(1.0))]

    assert findings(lambda: each(step, rows=5)) == []


@pytest.mark.parametrize("mean", [
    lambda loss, x: loss.sum() / x.size(0), lambda loss, x: loss.sum() / loss.numel(),
    lambda loss, x: loss.sum() / x.shape[0], lambda loss, x: loss.sum().div(len(x))])
def test_a_sum_that_is_divided_by_the_rows_is_a_mean(mean: Callable[[Any, Any], Any]) -> None:
    weight = torch.ones(3)  # of which nothing is known but that it has no rows

    def step(x: Any) -> Any:
        w = weight.clone().requires_grad_()
        return replica().all_reduce("SUM", torch.autograd.grad(mean((x @ w - x[:, 0]) ** 2, x), [w])[0])

    [finding] = findings(lambda: each(step))
    assert "[RD38]" in str(finding.message) and "4 times the mean" in str(finding.message)


@pytest.mark.parametrize("rows", [8, 7])
@pytest.mark.parametrize("weighed", [
    lambda loss, x: loss * len(x), lambda loss, x: loss.mul(x.size(0)), lambda loss, x: x.shape[0] * loss,
    lambda loss, x: loss * (len(x) / float(replica().all_reduce("SUM", len(x))))])
def test_a_mean_that_is_multiplied_by_its_rows_is_a_sum(weighed: Callable[[Any, Any], Any], rows: int) -> None:
    def step(x: Any) -> Any:
        w = torch.ones(3, requires_grad=True)
        loss = weighed(F.mse_loss(x @ w, x[:, 0]), x)
        return replica().all_reduce("SUM", [loss.detach(), *torch.autograd.grad(loss, [w])])

    assert findings(lambda: each(step, rows)) == []


def test_pytorchs_warnings_name_the_line_of_the_program() -> None:
    module = torch.nn.MSELoss()

    def step(x: Any) -> None:
        F.l1_loss(x[:, :1], x[:, 0])  # first
        module(x[:, :1], x[:, 0])  # second

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        each(step)
    lines = [Path(warning.filename).read_text().splitlines()[warning.lineno - 1] for warning in given]
    assert [line.partition("# ")[2] for line in lines] == ["first", "second"] * 4


def test_a_tensor_is_pytorchs_own() -> None:
    def step(x: Any) -> Any:
        assert type(x) is torch.Tensor and vars(x) == {}
        assert torch.equal(pickle.loads(pickle.dumps(x * 2)), x * 2)
        return x

    each(step)


def tf_on_pytorch() -> Any:
    """`refdist.tf`, where Keras computes with PyTorch."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    pytest.importorskip("keras", reason="Keras is not installed", exc_type=ImportError)
    if "keras" in sys.modules and sys.modules["keras"].backend.backend() != "torch":
        pytest.skip("Keras computes with another library")
    import refdist.tf as tf

    return tf


def test_right_training_with_a_tape_and_an_optimizer_of_keras_is_left_alone() -> None:
    tf, strategy = tf_on_pytorch(), four()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.SGD(0.01)

    def step(x: Any, scale: Callable[[Any], Any]) -> None:
        with tf.GradientTape() as tape:
            loss = scale(tf.square(model(x)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    assert findings(lambda: each(lambda x: step(x, lambda rows: rows.sum() / 8), strategy=strategy)) == []
    [finding] = findings(lambda: each(lambda x: step(x, lambda rows: rows.mean()), strategy=strategy))
    assert str(finding.message).startswith("[RD38] all_reduce SUM") and " -> gradient (" in str(finding.message)
    assert "Divide the loss by the size of the global batch: `tf.nn.compute_average_loss(" in str(finding.message)


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_a_loss_that_keras_has_scaled_is_a_part_of_a_sum(op: str) -> None:
    tf, strategy = tf_on_pytorch(), four()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.SGD(0.01)
    squares = tf.keras.losses.MeanSquaredError()

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = squares(x[:, :1], model(x))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    def program() -> None:
        [loss] = each(step, strategy=strategy)
        strategy.reduce(op, loss, axis=None)

    messages = [str(finding.message) for finding in findings(program)]
    assert len(messages) == (op == "MEAN")
    for message in messages:
        assert message.startswith("[RD39] Strategy.reduce MEAN: ") and "the result is 1/4 of the sum" in message
        assert "-> loss of Keras (" in message
        assert message.endswith("Use SUM: what each replica contributes is divided by the number of all rows.")


@pytest.mark.parametrize("mean", [False, True])
def test_the_logs_of_a_train_step_are_told_of_at_its_line(mean: bool) -> None:
    tf, strategy = tf_on_pytorch(), four()

    class Model(tf.keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:
            losses = tf.square(data[1] - self(data[0]))
            return {"loss": tf.reduce_mean(losses) if mean else tf.reduce_sum(losses) / 8}  # here

    with strategy.scope():
        model = Model()
        model.compile(optimizer=tf.keras.optimizers.SGD(0.01))
    warnings_of_fit = findings(lambda: model.fit(ROWS, ROWS[:, :1], batch_size=8, shuffle=False, verbose=0))
    assert len(warnings_of_fit) == (not mean)
    for finding in warnings_of_fit:
        assert "[RD39] Strategy.reduce MEAN of the logs of a step of fit" in str(finding.message)
        assert "Return a mean over the replica's rows" in str(finding.message)
        assert finding.filename == __file__ and "# here" in linecache.getline(__file__, finding.lineno)


@pytest.mark.parametrize("shared", [False, True])
def test_a_penalty_of_keras_that_each_replica_adds_is_found(shared: bool) -> None:
    tf, strategy = tf_on_pytorch(), four()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1, kernel_regularizer="l2")])
        optimizer = tf.keras.optimizers.SGD(0.01)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.reduce_sum(tf.square(model(x)), axis=1), global_batch_size=8)
            penalty = tf.add_n(model.losses)
            loss += tf.nn.scale_regularization_loss(penalty) if shared else penalty
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    def program() -> None:
        [loss] = each(step, strategy=strategy)
        strategy.reduce("SUM", loss, axis=None)

    messages = [str(finding.message) for finding in findings(program)]
    assert len(messages) == (not shared)
    if not shared:
        assert messages[0].startswith("[RD37] Strategy.reduce SUM") and "it counts 4 times. variable " in messages[0]
