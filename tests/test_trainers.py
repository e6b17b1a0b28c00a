"""The level `trainer`: wrong trainers are caught, right ones are not, and one that misbehaves costs one job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist.conformance
from refdist.conformance.__main__ import main
from refdist.conformance.trainers import clauses, reference, runner, verdicts

TESTEES = Path(refdist.conformance.__file__).parent / "trainers" / "testees"


class Trainer:
    """Trains on several replicas, and is right; those derived from it make one mistake each."""

    of_no_rows = 0.0  # what a replica computes that has no row

    def __init__(self, job: Any) -> None:
        self.job = job

    def answer(self) -> runner.Result:
        job, losses = self.job, []
        weights, velocity = reference.initial_weights(job["model"]), {}
        for _ in range(job["epochs"]):
            for batch in reference.groups(job):
                counts, of_replicas, gradients = zip(*self.parts(weights, batch), strict=True)
                losses.append(self.loss(of_replicas, counts))
                for name, gradient in self.combined(gradients, counts).items():
                    velocity[name] = job["optimizer"]["momentum"] * velocity.get(name, 0.0) \
                        - job["optimizer"]["learning_rate"] * gradient
                    weights[name] = weights[name] + velocity[name]
        whole = {"losses": losses, "weights": weights, "done": True}
        if job["evaluate"]:
            whole["eval_loss"] = self.evaluated(weights, job["evaluate"])
        return runner.Result(whole=whole)

    def parts(self, weights: Any, batch: Any) -> Any:
        """(rows, loss, gradient) of each replica."""
        size = -(-len(batch["x"]) // self.job["replicas"])
        for first in range(0, size * self.job["replicas"], size):
            part = {name: batch[name][first:first + size] for name in ("x", "y")}
            if part["x"]:
                loss, gradient, _ = reference.gradients(self.job, weights, {**part, "mask": None})
                yield len(part["x"]), loss, gradient
            else:
                yield 0, self.of_no_rows, {name: np.full_like(weight, self.of_no_rows)
                                           for name, weight in weights.items()}

    def loss(self, losses: Any, counts: Any) -> Any:
        return self.mean(losses, counts)

    def combined(self, gradients: Any, counts: Any) -> Any:
        return self.clipped({name: self.mean([gradient[name] for gradient in gradients], counts)
                             for name in gradients[0]})

    def mean(self, parts: Any, counts: Any) -> Any:
        return sum(part * count for part, count in zip(parts, counts, strict=True)) / sum(counts)

    def clipped(self, gradient: Any) -> Any:
        norm = np.sqrt(sum((part ** 2).sum() for part in gradient.values()))
        limit = self.job["clip"]["limit"] if self.job["clip"] else np.inf
        return {name: part * min(1.0, limit / norm) if norm else part for name, part in gradient.items()}

    def evaluated(self, weights: Any, rows: Any) -> Any:
        return reference.gradients(self.job, weights, rows)[0]


class ReportsTheFirstReplica(Trainer):
    def loss(self, losses: Any, counts: Any) -> Any:
        return losses[0]


class ReportsTheSum(Trainer):
    def loss(self, losses: Any, counts: Any) -> Any:
        return sum(losses)


class AddsGradients(Trainer):
    def combined(self, gradients: Any, counts: Any) -> Any:
        return self.clipped({name: sum(gradient[name] for gradient in gradients) for name in gradients[0]})


class CombinesNothing(Trainer):
    def combined(self, gradients: Any, counts: Any) -> Any:
        return self.clipped(gradients[0])


class AveragesAverages(Trainer):
    def mean(self, parts: Any, counts: Any) -> Any:
        return sum(parts) / len(parts)


class AveragesThoseThatHaveRows(Trainer):
    def mean(self, parts: Any, counts: Any) -> Any:
        return sum(part for part, count in zip(parts, counts, strict=True) if count) / sum(map(bool, counts))


class DividesByAFullBatch(Trainer):
    def mean(self, parts: Any, counts: Any) -> Any:
        return sum(part * count for part, count in zip(parts, counts, strict=True)) / self.job["batch"]


class TakesTheMeanOfNoRows(Trainer):
    of_no_rows = float("nan")


class ClipsEachReplica(Trainer):
    def combined(self, gradients: Any, counts: Any) -> Any:
        return super().combined([self.clipped(gradient) for gradient in gradients], counts)


class AveragesBatchesOfValidation(Trainer):
    def evaluated(self, weights: Any, rows: Any) -> Any:
        return np.mean([reference.gradients(self.job, weights, batch)[0]
                        for batch in reference.groups({**self.job, "rows": rows})])


class RepeatsRowsOfValidation(Trainer):
    def evaluated(self, weights: Any, rows: Any) -> Any:
        lacking = -len(rows["x"]) % self.job["batch"]
        padded = {**rows, "x": rows["x"] + rows["x"][:lacking], "y": rows["y"] + rows["y"][:lacking]}
        return super().evaluated(weights, padded)


PLAIN = ("same-loss", "same-weights", "uneven-end", "empty-part", "validation-rows-once", "clip-by-norm")


def wrong(trainer: type[Trainer]) -> set[str]:
    todo = [job for job in clauses.jobs() if job["clause"] in PLAIN]
    judged = verdicts.judge(clauses.chosen(PLAIN), todo, {job["id"]: trainer(job).answer() for job in todo})
    assert {verdict.outcome for verdict in judged} <= {"right", "WRONG"}
    return {verdict.clause for verdict in judged if verdict.outcome == "WRONG"}


def test_a_right_trainer_is_not_accused() -> None:
    assert wrong(Trainer) == set()


@pytest.mark.parametrize(("trainer", "caught"), [
    (ReportsTheFirstReplica, {"same-loss"}),
    (ReportsTheSum, {"same-loss"}),
    (AddsGradients, {"same-weights", "uneven-end"}),
    (CombinesNothing, {"same-weights", "uneven-end", "clip-by-norm"}),
    (AveragesAverages, {"uneven-end", "empty-part"}),
    (AveragesThoseThatHaveRows, {"uneven-end"}),
    (DividesByAFullBatch, {"uneven-end", "empty-part"}),
    (TakesTheMeanOfNoRows, {"empty-part"}),
    (ClipsEachReplica, {"clip-by-norm"}),
    (AveragesBatchesOfValidation, {"validation-rows-once"}),
    (RepeatsRowsOfValidation, {"validation-rows-once"}),
])
def test_a_wrong_trainer_is_caught(trainer: type[Trainer], caught: set[str]) -> None:
    assert wrong(trainer) == caught


def test_a_wrong_step_is_told_as_a_factor() -> None:
    todo = [job for job in clauses.jobs() if job["clause"] == "clip-by-norm"]
    [verdict] = verdicts.judge(clauses.chosen(["clip-by-norm"]), todo,
                               {job["id"]: ClipsEachReplica(job).answer() for job in todo})
    assert "on 2 replicas: dense/kernel[0, 0] is" in verdict.message and "times what is right" in verdict.message


# The first job is answered; the second one is not, the first time; whatever comes later is.
MISBEHAVING = """
import json, os, sys, time
jobs = [json.loads(line) for line in open(sys.argv[1])]
for job in jobs:
    if job["id"] == 2:
        {what}
    print('a line of progress', flush=True)
    print(json.dumps(dict(id=job["id"], unsupported="for a test")), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("what", "said"), [
    ("print('last words', flush=True); os._exit(7)", "7"),
    ("time.sleep(1000)", "no answer within 0.5 s"),
])
def test_a_trainer_that_ends_or_is_silent_costs_one_job(
        what: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "START_LIMIT", 20.0)
    script = tmp_path / "trainer.py"
    script.write_text(MISBEHAVING.format(what=what))
    results = runner.run(f"{sys.executable} {script}", clauses.jobs(), 0.5)
    assert [number for number, result in results.items() if result.broken] == [2] and said in results[2].broken
    assert {result.unsupported for number, result in results.items() if number != 2} == {"for a test"}
    assert "a line of progress" in results[1].output


@pytest.mark.slow
def test_a_trainer_that_answers_nothing_is_given_up(tmp_path: Path) -> None:
    results = runner.run(f"{sys.executable} -c pass", clauses.jobs())
    assert all(result.broken for result in results.values())
    assert "started 3 times in a row" in results[max(results)].broken


@pytest.mark.parametrize(("arguments", "text"), [
    (["--command", "/no/such/trainer"], "cannot be started"), ([], "there is none"),
    (["--command", "x", "--clause", "nosuch"], "there is no nosuch")])
def test_wrong_usage_has_a_status_and_a_reason(
        arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trainers", *arguments]) == 4
    assert text in capsys.readouterr().err


@pytest.mark.slow
def test_refdists_own_trainer_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["trainers", "--command", f"{sys.executable} {TESTEES / 'refdist_numpy.py'}"])
    printed = capsys.readouterr().out
    assert status == 0 and printed.splitlines()[-1] == f"{len(clauses.CLAUSES)} right", printed
