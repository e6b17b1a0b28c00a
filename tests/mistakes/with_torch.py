"""Mistakes of training loops with PyTorch: losses, gradients and optimizers of its own."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from silent_mistakes import Aggregation, batches, each, four, replica, total, weights

import refdist

torch = pytest.importorskip("torch", reason="`make interop` installs it")


def gradient(x: Any, w: Any, loss: Any) -> Any:
    """Of a loss of the predictions and the labels, by the weights."""
    weight = torch.tensor(w.read_value()).requires_grad_()
    [of_weight] = torch.autograd.grad(loss(x @ weight, x[:, 0]), [weight])
    return of_weight


def mean_squares(prediction: Any, label: Any) -> Any:
    return torch.nn.functional.mse_loss(prediction, label)


def sum_of_squares(prediction: Any, label: Any) -> Any:
    return torch.nn.functional.mse_loss(prediction, label, reduction="sum")


def tensors(strategy: Any, step: Any, rows: int = 8) -> None:
    each(strategy, lambda x: step(torch.as_tensor(x)), rows)


def gradients_of_means_summed() -> None:
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> None:
        g = replica().all_reduce("SUM", gradient(x, w, mean_squares))  # here
        w.assign_sub(0.01 * np.asarray(g))

    tensors(strategy, step)


def mean_of_gradients_of_sums() -> None:
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> None:
        g = replica().all_reduce("MEAN", gradient(x, w, sum_of_squares))  # here
        w.assign_sub(0.01 * np.asarray(g))

    tensors(strategy, step)


def gradients_of_uneven_means() -> None:
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> None:
        g = replica().all_reduce("MEAN", gradient(x, w, mean_squares))  # here
        w.assign_sub(0.01 * np.asarray(g))

    tensors(strategy, step, rows=7)


def update_reduced_twice() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        g = replica().all_reduce("SUM", gradient(x, w, sum_of_squares))
        w.assign_sub(0.01 * np.asarray(g))  # here

    tensors(strategy, step)


def loss_reported_as_a_sum_of_means() -> None:
    strategy = four()

    def step(x: Any) -> Any:
        return replica().all_reduce("SUM", mean_squares(x[:, 1], x[:, 0]))  # here

    tensors(strategy, step)


def own_rows_updated() -> None:
    strategy = four()
    w = weights(strategy)
    tensors(strategy, lambda x: w.assign_sub(0.01 * np.asarray(gradient(x, w, sum_of_squares))))


def gradient_that_is_recorded() -> None:
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        weight = torch.tensor(w.read_value()).requires_grad_()
        return replica().all_reduce("SUM", mean_squares(x @ weight, x[:, 0]))

    tensors(strategy, step)


def other_shape_on_the_last() -> None:
    def step(x: Any) -> Any:
        return replica().all_reduce("SUM", x)

    tensors(four(), step, rows=7)


def dropout_of_one_seed() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        torch.manual_seed(7)
        kept = torch.nn.functional.dropout(x, 0.5)
        w.assign_sub(0.01 * kept.sum(dim=0).numpy())

    tensors(strategy, step)


def generator_of_one_seed() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(7))
        w.assign_sub(0.01 * (x + noise).sum(dim=0).numpy())

    tensors(strategy, step)


def dropout_without_a_seed_of_its_own() -> None:
    # The program seeds PyTorch once, and each replica goes on where the one before has stopped.
    torch.manual_seed(0)
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    tensors(strategy, lambda x: w.assign_sub(0.01 * torch.nn.functional.dropout(x, 0.5).sum(dim=0).numpy()))


def model_shared_by_replicas() -> None:
    # One module for all replicas: each of them steps it, and none knows.
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)
    model = torch.nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)

    def step(x: Any) -> None:
        [g] = torch.autograd.grad(model(x).mean(), list(model.parameters()))
        with torch.no_grad():
            model.weight -= 0.01 * g
        w.assign(model.weight.detach().numpy()[0].copy())

    tensors(strategy, step)


def norm_of_the_own_gradient() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        g = gradient(x, w, sum_of_squares) / 8
        w.assign_sub(np.asarray(g / torch.clamp(g.norm(), min=1.0)))

    tensors(strategy, step)


def part_of_a_metric_as_the_total() -> None:
    strategy = four()
    seen = total(strategy)
    with strategy.scope():
        best = refdist.Variable(0.0, name="best", aggregation=Aggregation.ONLY_FIRST_REPLICA)

    def step(x: Any) -> None:
        seen.assign_add(sum_of_squares(x[:, 1], x[:, 0]).numpy())
        best.assign(seen.read_value())  # here

    tensors(strategy, step)


def gradients_of_gathered_rows() -> None:
    # Each replica computes with all rows, and so all have the gradient of the whole batch.
    weight = torch.nn.Parameter(torch.ones(3))

    def step(x: Any) -> Any:
        weight.grad = None
        everything = replica().all_gather(x, axis=0)
        mean_squares(everything @ weight, everything[:, 0]).backward()
        return replica().all_reduce("SUM", weight.grad)  # here

    tensors(four(), step)


def penalty_of_a_model() -> None:
    model = torch.nn.Linear(3, 1)

    def step(x: Any) -> Any:
        model.zero_grad()
        (0.01 * model.weight.square().sum()).backward()
        return replica().all_reduce("SUM", model.weight.grad)  # here

    tensors(four(), step)


def losses_of_tokens() -> None:
    # Each row is a sentence, and the loss a mean over the tokens of all.
    model = torch.nn.Sequential(torch.nn.Embedding(30, 4), torch.nn.Linear(4, 30))

    def step(x: Any) -> Any:
        model.zero_grad()
        logits = model(x.long()[:, :-1])
        torch.nn.functional.cross_entropy(logits.view(-1, 30), x.long()[:, 1:].reshape(-1)).backward()
        return replica().all_reduce("SUM", model[1].weight.grad)  # here

    tensors(four(), step)


def losses_of_chosen_items() -> None:
    weight = torch.nn.Parameter(torch.ones(3, 5))

    def step(x: Any) -> Any:
        labels = x[:, 0].long() % 5
        likely = torch.nn.functional.log_softmax(x @ weight, dim=-1).gather(1, labels[:, None])
        return replica().all_reduce("SUM", -likely.mean().detach())  # here

    tensors(four(), step)


def accumulated_and_reduced_again() -> None:
    # Gradients of parts of the rows are reduced each, added up, and reduced once more.
    weight = torch.nn.Parameter(torch.ones(3))

    def step(x: Any) -> Any:
        total = torch.zeros_like(weight)
        for part in (x[:1], x[1:]):
            [g] = torch.autograd.grad(mean_squares(part @ weight, part[:, 0]), [weight])
            total += replica().all_reduce("MEAN", g) / 2
        return replica().all_reduce("SUM", total)  # here

    tensors(four(), step)


def generator_made_outside() -> None:
    strategy, generator = four(), torch.Generator().manual_seed(0)
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        kept = torch.bernoulli(torch.full(x.shape, 0.5), generator=generator)
        w.assign_sub(0.01 * (x * kept).sum(dim=0).numpy())

    tensors(strategy, step)


def gradients_of_a_shared_model_one_by_one() -> Any:
    # The sums are divided by the number of replicas; but where one replica waits, another computes its gradients.
    strategy, model = four(), torch.nn.Linear(3, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)

    def averaged(x: Any) -> Any:
        model.zero_grad()
        mean_squares(model(x)[:, 0], x[:, 0]).backward()
        return [replica().all_reduce("SUM", parameter.grad) / strategy.num_replicas_in_sync
                for parameter in model.parameters()]

    results = [strategy.run(lambda x: averaged(torch.as_tensor(x)), (x,)) for x in batches(strategy)]
    return [np.asarray(strategy.experimental_local_results(part)[0]) for part in results[0]]


def optimizer_that_reduces_again() -> None:
    # What is printed in the first step was computed before, and is right.
    strategy = four()
    torch.manual_seed(0)
    first = torch.nn.Linear(3, 1)
    models = [copy.deepcopy(first) for _ in range(4)]

    def step(x: Any) -> Any:
        model = models[replica().replica_id_in_sync_group]
        loss = sum_of_squares(model(x)[:, 0], x[:, 0]) / 8
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        gradients = [replica().all_reduce("SUM", one) for one in gradients]
        with torch.no_grad():
            for parameter, one in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.001 * torch.as_tensor(replica().all_reduce("SUM", one * 1.0))
        return loss.detach()

    for _ in range(2):
        for x in batches(strategy):
            print(strategy.reduce("SUM", strategy.run(lambda x: step(torch.tensor(np.asarray(x))), (x,)), axis=None))


def models_that_are_never_reduced() -> None:
    strategy = four()
    models = [torch.nn.Linear(3, 1) for _ in range(4)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]

    def step(x: Any) -> Any:
        number = replica().replica_id_in_sync_group
        optimizers[number].zero_grad()
        loss = models[number](torch.tensor(x)).square().mean()
        loss.backward()
        optimizers[number].step()
        return loss.item()

    for x in batches(strategy, batch=4):
        strategy.reduce("MEAN", strategy.run(step, (x,)), axis=None)


def accuracies_summed() -> None:
    strategy = four()
    for x in batches(strategy):
        right = strategy.run(lambda x: float((torch.tensor(x).argmax(1) == 2).float().mean()), (x,))
        strategy.reduce("SUM", right, axis=None)


MISTAKES = [
    (0, models_that_are_never_reduced, "warns RD52"),
    (0, accuracies_summed, "warns RD38"),
    (26, optimizer_that_reduces_again, "compare REDUCED TWICE"),
    (27, gradients_of_means_summed, "warns RD38"),
    (0, mean_of_gradients_of_sums, "warns RD39"),
    (28, gradients_of_uneven_means, "warns RD40"),
    (26, update_reduced_twice, "compare REDUCED TWICE"),
    (27, loss_reported_as_a_sum_of_means, "warns RD38"),
    (21, own_rows_updated, "raises RD12"),
    (0, gradient_that_is_recorded, "raises RD34"),
    (7, other_shape_on_the_last, "raises RD04"),
    (38, dropout_of_one_seed, "compare ONE SEED"),
    (38, generator_of_one_seed, "compare ONE SEED"),
    (37, dropout_without_a_seed_of_its_own, "compare GLOBAL RANDOM STATE"),
    (37, model_shared_by_replicas, "compare SHARED PYTHON STATE"),
    (0, norm_of_the_own_gradient, "compare ROWS OF ONE REPLICA"),
    (23, part_of_a_metric_as_the_total, "warns RD41"),
    (37, generator_made_outside, "compare SHARED GENERATOR"),
    (37, gradients_of_a_shared_model_one_by_one, "compare SHARED PYTHON STATE"),
    (26, accumulated_and_reduced_again, "warns RD37"),
    (30, gradients_of_gathered_rows, "warns RD37"),
    (0, penalty_of_a_model, "warns RD37"),
    (27, losses_of_tokens, "warns RD38"),
    (27, losses_of_chosen_items, "warns RD38"),
]
