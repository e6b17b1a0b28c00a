"""The level `trainer`: wrong trainers are caught, right ones are not, and one that misbehaves costs one job."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wrong_trainers
from schemas import fault

import refdist
import refdist.conformance
from refdist.conformance import excerpts, process
from refdist.conformance.__main__ import main
from refdist.conformance.trainers import clauses, jobs, reference, runner, table, verdicts

TESTEES = Path(refdist.conformance.__file__).parent / "trainers" / "testees"
LINE = clauses.LINE


# Which clauses catch which trainer.
CAUGHT: dict[type[wrong_trainers.Trainer], set[str]] = {
    wrong_trainers.ReportsTheFirstReplica: {"same-loss"},
    wrong_trainers.ReportsTheSum: {"same-loss", "loss-matches-gradient"},
    wrong_trainers.ReportsTheMeanOfLosses: {"loss-matches-gradient"},
    wrong_trainers.ReportsTheRegularizerOfEveryReplica: {"loss-matches-gradient"},
    wrong_trainers.AddsGradients: {
        "same-weights", "rows-once", "undivided-batch", "uneven-end", "shuffled-rows-once", "metrics-of-an-epoch",
        "masked-rows", "accumulation", "accumulation-short-group", "accumulation-unequal-parts",
        "accumulation-masked-rows", "clip-by-norm", "dropout-differs", "unused-parameters", "embedding-rows",
        "frozen-layers", "unfrozen-layers", "tied-weights", "schedule-by-steps", "loss-scale", "checkpoint-n-to-m",
        "early-stop"},
    wrong_trainers.CombinesNothing: {
        "same-weights", "weights-equal", "rows-once", "undivided-batch", "uneven-end", "shuffled-rows-once",
        "metrics-of-an-epoch", "masked-rows", "accumulation", "accumulation-short-group", "accumulation-unequal-parts",
        "accumulation-masked-rows", "clip-by-norm", "dropout-differs", "unused-parameters", "embedding-rows",
        "frozen-layers", "unfrozen-layers", "tied-weights", "schedule-by-steps", "loss-scale", "checkpoint-n-to-m",
        "early-stop"},
    wrong_trainers.CombinesOnlyMatrices: {"same-weights"},
    wrong_trainers.DrawsWeightsOfItsOwn: {"weights-equal"},
    wrong_trainers.TrainsOnAllRowsEverywhere: {"is-distributed"},
    wrong_trainers.TrainsOnTheFirstReplica: {"is-distributed"},
    wrong_trainers.RepeatsTheFirstRows: {
        "rows-once", "undivided-batch", "uneven-end", "empty-part", "validation-rows-once", "metrics-of-all-rows"},
    wrong_trainers.RepeatsRowsThatDoNotCount: {"rows-once"},
    wrong_trainers.DropsTheLastBatch: {
        "rows-once", "uneven-end", "empty-part", "validation-rows-once", "metrics-of-all-rows",
        "accumulation-unequal-parts"},
    wrong_trainers.AveragesThoseThatHaveRows: {"uneven-end"},
    wrong_trainers.TakesWhatReplicasCanShare: {"undivided-batch"},
    wrong_trainers.DropsTheRemainderOfABatch: {"undivided-batch"},
    wrong_trainers.CountsTheEmptyIfTheyAreMany: {"empty-part"},
    wrong_trainers.AveragesAverages: {"undivided-batch", "uneven-end", "empty-part", "masked-rows"},
    wrong_trainers.DividesByAFullBatch: {"uneven-end", "empty-part"},
    wrong_trainers.TakesTheMeanOfNoRows: {"empty-part", "undivided-batch"},
    wrong_trainers.HangsWithoutRows: {"empty-part"},
    wrong_trainers.ShufflesByASeedOfItsOwn: {"shuffled-rows-once"},
    wrong_trainers.ShufflesTargetsApart: {"shuffled-rows-once"},
    wrong_trainers.ShufflesAlikeInEveryEpoch: {"shuffles-differ-by-epoch"},
    wrong_trainers.RepeatsRowsOfValidation: {"validation-rows-once"},
    wrong_trainers.AveragesBatchesOfValidation: {"validation-rows-once"},
    wrong_trainers.MeasuresTheFirstReplica: {"metrics-of-all-rows"},
    wrong_trainers.AveragesMetricsOfBatches: {"metrics-of-all-rows"},
    wrong_trainers.NeverResetsMetrics: {"metrics-of-an-epoch"},
    wrong_trainers.EvaluatesFullBatches: {"validation-rows-once"},
    wrong_trainers.EvaluatesUnmasked: {"validation-masked-rows"},
    wrong_trainers.RegularizesOnEveryReplica: {"regularizer-once"},
    wrong_trainers.WeighsTokensByRows: {"masked-rows"},
    wrong_trainers.CountsMaskedTokens: {"masked-rows", "accumulation-masked-rows"},
    wrong_trainers.AddsBatches: {
        "accumulation", "accumulation-short-group", "accumulation-unequal-parts", "accumulation-masked-rows",
        "schedule-after-accumulation", "dropout-differs-by-batch"},
    wrong_trainers.KeepsWhatWasAccumulated: {"accumulation", "schedule-after-accumulation"},
    wrong_trainers.KeepsWhatTheOthersAccumulated: {"accumulation"},
    wrong_trainers.RegularizesEveryBatch: {"regularizer-after-accumulation"},
    wrong_trainers.DividesByTheExpectedNumberOfBatches: {"accumulation-short-group"},
    wrong_trainers.DropsAShortGroup: {"accumulation-short-group"},
    wrong_trainers.AveragesMeansOfBatches: {"accumulation-unequal-parts"},
    wrong_trainers.WeighsAccumulatedTokensByRows: {"accumulation-masked-rows"},
    wrong_trainers.ClipsEachReplica: {"clip-by-norm"},
    wrong_trainers.ClipsEachWeight: {"clip-by-norm"},
    wrong_trainers.LengthensShortGradients: {"clip-by-norm"},
    wrong_trainers.RegularizesAfterClipping: {"clip-by-norm"},
    wrong_trainers.ClipsNumbersOfEachReplica: {"clip-by-value"},
    wrong_trainers.ClipsEachBatch: {"clip-after-accumulation"},
    wrong_trainers.ClipsByTheNormOfAShard: {"clip-by-norm"},
    wrong_trainers.ClipsScaledGradients: {"clip-after-unscaling"},
    wrong_trainers.KeepsStatisticsOfTheFirstReplica: {"batch-norm-statistics"},
    wrong_trainers.DropsAlike: {"dropout-differs"},
    wrong_trainers.DropsAlikeInEveryStep: {"dropout-differs-by-step"},
    wrong_trainers.DropsAlikeInEveryBatch: {"dropout-differs-by-batch"},
    wrong_trainers.AveragesThoseThatUsedAWeight: {"unused-parameters"},
    wrong_trainers.HangsOverAnUnusedWeight: {"unused-parameters"},
    wrong_trainers.OverwritesRepeatedRows: {"embedding-rows"},
    wrong_trainers.MovesFrozenLayers: {"frozen-layers", "unfrozen-layers"},
    wrong_trainers.FreezesOnlyKernels: {"frozen-layers"},
    wrong_trainers.ClipsWithFrozenLayers: {"frozen-layers"},
    wrong_trainers.NeverUnfreezes: {"unfrozen-layers"},
    wrong_trainers.CombinesOnlyWhatWasTrainedAtFirst: {"unfrozen-layers"},
    wrong_trainers.LosesTheGradientOfATie: {"tied-weights"},
    wrong_trainers.MovesTheScheduleByReplicas: {"schedule-by-steps", "checkpoint-n-to-m"},
    wrong_trainers.MovesTheScheduleByBatches: {"schedule-after-accumulation"},
    wrong_trainers.MovesTheScheduleByEpochs: {
        "schedule-by-steps", "schedule-after-accumulation", "checkpoint-n-to-m"},
    wrong_trainers.LeavesOutAStepAlone: {"loss-scale"},
    wrong_trainers.KeepsTheScale: {"loss-scale"},
    wrong_trainers.BeginsTheScheduleWithEveryEpoch: {"schedule-by-steps"},
    wrong_trainers.BeginsTheMomentumWithEveryEpoch: {"same-weights", "checkpoint-n-to-m"},
    wrong_trainers.ForgetsTheMomentum: {"checkpoint-n-to-m"},
    wrong_trainers.RestoresTheMomentumOfTheFirstReplica: {"checkpoint-n-to-m"},
    wrong_trainers.ForgetsTheSchedule: {"checkpoint-n-to-m"},
    wrong_trainers.ForgetsTheStatistics: {"checkpoint-statistics"},
    wrong_trainers.ScalesTheRestoredRate: {"checkpoint-n-to-m"},
    wrong_trainers.StopsAlone: {"early-stop"},
    wrong_trainers.StopsAloneIfItIsTheFirst: {"early-stop"},
    wrong_trainers.AnswersForTheOneThatStopped: {"early-stop"},
    wrong_trainers.NeverStops: {"early-stop"},
    wrong_trainers.HangsWhenOneStops: {"early-stop"},
    wrong_trainers.GoesOnAfterAnException: {"exception-ends-all"},
    wrong_trainers.HangsAfterAnException: {"exception-ends-all"},
    wrong_trainers.HangsAfterAnExceptionOfTheFirst: {"exception-ends-all"},
    wrong_trainers.EndsWellAfterAnException: {"exception-ends-all"},
    wrong_trainers.KeepsAnExceptionToItself: {"exception-ends-all"},
    wrong_trainers.GoesOnAfterADeath: {"death-ends-all"},
    wrong_trainers.HangsAfterADeath: {"death-ends-all"},
    wrong_trainers.LeavesProcessesAfterADeath: {"death-ends-all"},
}


def outcomes(trainer: type[wrong_trainers.Trainer]) -> dict[str, str]:
    """The verdicts on a trainer, by clause, other than right."""
    todo, disk = clauses.jobs(), {}
    judged = verdicts.judge(clauses.CLAUSES, todo, {job["id"]: trainer(job, disk).answer() for job in todo})
    return {verdict.clause: verdict.outcome for verdict in judged if verdict.outcome != "right"}


@pytest.mark.parametrize("trainer", wrong_trainers.RIGHT)
def test_a_right_trainer_is_not_accused(trainer: type[wrong_trainers.Trainer]) -> None:
    assert outcomes(trainer) == {}


@pytest.mark.parametrize("trainer", CAUGHT)
def test_a_wrong_trainer_is_caught(trainer: type[wrong_trainers.Trainer]) -> None:
    judged = outcomes(trainer)
    assert {clause for clause, outcome in judged.items() if outcome == "WRONG"} == CAUGHT[trainer]
    if not trainer.__name__.startswith("Hangs"):  # what hangs answers nothing that other clauses could judge
        assert set(judged.values()) == {"WRONG"}


def test_every_clause_catches_what_no_other_does() -> None:
    assert {clause for caught in CAUGHT.values() if len(caught) == 1 for clause in caught} \
        == {clause.name for clause in clauses.CLAUSES}


def test_a_wrong_step_is_told_as_a_factor() -> None:
    todo = [job for job in clauses.jobs() if job["clause"] == "clip-by-value"]
    results = {job["id"]: wrong_trainers.ClipsNumbersOfEachReplica(job, {}).answer() for job in todo}
    [verdict] = verdicts.judge(clauses.chosen(["clip-by-value"]), todo, results)
    assert verdict.message == ("on 2 replicas: dense/kernel[0, 0] is 0, and 0.5 is right: it moved 0 times what is "
                               "right")


PAGE_OF_A_TRAINER = {"what": "rows are repeated", "page": "https://example.org/sampler"}


def verdict_on(clause: str, *results: runner.Result) -> verdicts.Verdict:
    """The verdict on a clause of as many jobs."""
    todo = [job for job in clauses.jobs() if job["clause"] == clause]
    numbered = {job["id"]: result for job, result in zip(todo, results, strict=True)}
    [verdict] = verdicts.judge(clauses.chosen([clause]), todo, numbered)
    return verdict


def answers(trainer: type[wrong_trainers.Trainer], clause: str, **fields: Any) -> list[runner.Result]:
    """What a trainer answers to the jobs of a clause, and more."""
    results = [trainer(job, {}).answer() for job in clauses.jobs() if job["clause"] == clause]
    return [dataclasses.replace(result, **fields) for result in results]


def test_what_a_page_of_the_trainer_says_is_documented_and_not_wrong() -> None:
    results = answers(wrong_trainers.RepeatsTheFirstRows, "rows-once", declared=PAGE_OF_A_TRAINER)
    verdict = verdict_on("rows-once", *results)
    assert verdict.outcome == "documented" and PAGE_OF_A_TRAINER["page"] in verdict.message
    assert verdicts.exit_status([verdict]) == 0


def test_a_page_that_says_what_is_not_so_is_stale() -> None:
    verdict = verdict_on("rows-once", *answers(wrong_trainers.Trainer, "rows-once", declared=PAGE_OF_A_TRAINER))
    assert verdict.outcome == "stale" and verdicts.exit_status([verdict]) == 1


def test_a_caveat_without_a_page_cannot_be_judged() -> None:
    results = answers(wrong_trainers.RepeatsTheFirstRows, "rows-once", declared={"what": "rows are repeated"})
    assert verdict_on("rows-once", *results).outcome == "errored"


def test_a_clause_is_judged_by_the_jobs_that_a_trainer_can_do() -> None:
    first, *_ = answers(wrong_trainers.Trainer, "same-loss")
    unsupported = runner.Result(unsupported="only 1 replica")
    verdict = verdict_on("same-loss", first, unsupported, unsupported)
    assert (verdict.outcome, verdict.message) == ("right", "1 of 3 jobs; only 1 replica")
    verdict = verdict_on("same-loss", *[unsupported] * 3)
    assert verdict.outcome == "unsupported" and verdicts.exit_status([verdict]) == 5


def test_a_failure_that_is_not_supported_is_not_right() -> None:
    trained, _ = answers(wrong_trainers.Trainer, "death-ends-all")
    assert verdict_on("death-ends-all", trained, runner.Result(unsupported="no")).outcome == "unsupported"


@pytest.mark.parametrize(("clause", "outcome"), [("empty-part", "WRONG"), ("clip-by-value", "errored")])
def test_silence_is_wrong_where_a_clause_says_so(clause: str, outcome: str) -> None:
    silence = runner.Result(broken="no answer within 60 s", silent=True)
    assert verdict_on(clause, *[silence] * len(clauses.chosen([clause])[0].jobs)).outcome == outcome


@pytest.mark.parametrize(("whole", "message"), [
    ({}, "the weights are not in the answer"), ({"weights": {}}, "have no 'dense/kernel'"),
    ({"weights": {"dense/kernel": 1.0}}, "have the shape ()"), ({"weights": {"dense/kernel": "much"}}, "not numbers")])
def test_an_answer_that_lacks_something_is_errored_and_says_what(whole: Any, message: str) -> None:
    verdict = verdict_on("clip-by-value", runner.Result(whole=whole))
    assert verdict.outcome == "errored" and message in verdict.message


def test_a_replica_that_says_the_rows_of_some_steps_is_errored() -> None:
    [result] = answers(wrong_trainers.Trainer, "is-distributed")
    result.each[1]["rows"].pop()
    verdict = verdict_on("is-distributed", result)
    assert verdict.outcome == "errored" and "replica 1 says the rows of 1 of 2 steps" in verdict.message


def with_a_nan(value: Any) -> Any:
    """A field of an answer in which the last number is not a number."""
    if isinstance(value, dict):
        return {name: with_a_nan(part) for name, part in value.items()}
    changed = np.array(value, float)
    changed.flat[changed.size - 1] = np.nan
    return changed.tolist()


@pytest.mark.parametrize(("clause", "field"), [
    (clause.name, field) for clause in clauses.CLAUSES for field in clause.jobs[0]["ask"] if clause.check != "failed"])
def test_what_is_not_a_number_is_never_right(clause: str, field: str) -> None:
    results, disk = [], dict[str, Any]()
    for job in clauses.jobs():
        if job["clause"] == clause:
            result = wrong_trainers.Trainer(job, disk).answer()
            result.whole[field] = with_a_nan(result.whole[field])
            results.append(result)
    assert verdict_on(clause, *results).outcome in ("WRONG", "errored")


@pytest.mark.parametrize("value", ["nan", float("inf")])
def test_a_weight_that_is_not_finite_is_wrong(value: Any) -> None:
    verdict = verdict_on("clip-by-value", runner.Result(whole={"weights": {"dense/kernel": [[value]]}}))
    assert verdict.outcome == "WRONG" and verdict.message.endswith(f"is {value}, and 0.5 is right")


# What is expected, computed three ways: by hand, by differences, and by a strategy of refdist


def test_the_reference_is_right_by_hand() -> None:
    # Outputs 2 and 0 for targets 3 and 2: errors -1 and -2, loss (1 + 4) / 2, and with 0.5 * (1 * 1) 3.
    # By the kernel: 2 * mean(-1 * 1, -2 * -1) + 2 * 0.5 * 1 = 2; by the bias: 2 * mean(-1, -2) = -3.
    # The first step moves them by -0.1 times that, to 0.8 and 1.3; the learning rate is then 0.05.
    # Outputs 2.1 and 0.5: errors -0.9 and -1.5, loss (0.81 + 2.25) / 2 + 0.5 * 0.64 = 1.85.
    # By the kernel: 2 * mean(-0.9, 1.5) + 0.8 = 1.4; by the bias: 2 * mean(-0.9, -1.5) = -2.4.
    # The second step moves them by 0.5 * -0.2 - 0.05 * 1.4 = -0.17 and by 0.5 * 0.3 + 0.05 * 2.4 = 0.27.
    job = jobs.job(jobs.rows([[1.0], [-1.0]], [[3.0], [2.0]]), [jobs.dense([[1.0]], bias=[1.0], l2=0.5)], epochs=2,
                   optimizer=jobs.sgd(0.1, momentum=0.5, decay=0.5))
    answer = reference.answer(job)
    assert answer.losses == pytest.approx([3.0, 1.85])
    assert answer.weights["dense/kernel"] == pytest.approx(np.array([[0.63]]))
    assert answer.weights["dense/bias"] == pytest.approx(np.array([1.57]))


MODELS: dict[str, list[Any]] = {
    "layers": [jobs.dense([[0.5, -0.3], [0.2, 0.7]], "first", bias=[0.1, 0.2], activation="relu"),
               jobs.dense([[0.4], [0.9]], "second", l2=0.3)],
    "batch_norm": [{"kind": "batch_norm", "name": "batch_norm", "features": 2, "momentum": 0.9, "epsilon": 1e-3},
                   jobs.dense([[0.4], [0.9]])],
    "before batch_norm": [jobs.dense([[0.5, -0.3], [0.2, 0.7]], "first"), {
        "kind": "batch_norm", "name": "batch_norm", "features": 2, "momentum": 0.9, "epsilon": 1e-3},
        jobs.dense([[0.4], [0.9]])],
    "embedding": [{"kind": "embedding", "name": "embedding", "table": [[0.5], [0.1], [0.3]]}],
    "experts": [{"kind": "experts", "name": "experts", "kernels": [[[0.3]], [[0.2]], [[0.4]]]}],
    "tied": [jobs.dense([[0.5, -0.3], [0.2, 0.7]], "first"),
             jobs.dense(None, "second", shape=[2, 2], tied="first", l2=0.2), jobs.dense([[0.4], [0.9]], "third")]}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mask", [None, [[1.0], [0.0], [1.0]]])
def test_gradients_of_the_reference_are_those_of_differences(name: str, mask: Any) -> None:
    rows = jobs.rows([[0.0, 1.0], [1.0, 2.0], [2.0, -1.5]], [[1.0], [0.5], [-1.0]], mask)
    job = jobs.job(rows, MODELS[name], loss="mse" if mask is None else "masked_mse")
    weights = reference.initial_weights(job["model"])
    _, gradients, _ = reference.gradients(job, dict(weights), rows)
    for weight, gradient in gradients.items():
        for place in np.ndindex(gradient.shape):
            away = np.zeros_like(gradient)
            away[place] = 1e-5
            above, _, _ = reference.gradients(job, {**weights, weight: weights[weight] + away}, rows)
            below, _, _ = reference.gradients(job, {**weights, weight: weights[weight] - away}, rows)
            assert (above - below) / 2e-5 == pytest.approx(gradient[place], abs=1e-8), (weight, place)


@pytest.mark.filterwarnings("ignore")  # a row of the clause on the scale of the loss overflows
def test_refdist_computes_what_is_expected(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(TESTEES))
    testee, loop = (importlib.import_module(name) for name in ("refdist_numpy", "refdist_loop"))
    survived = [clause for clause in clauses.CLAUSES if clause.check != "failed"]
    todo = [runner.in_folder(job, str(tmp_path)) for job in clauses.jobs() if job["clause"] in {
        clause.name for clause in survived}]
    results = {job["id"]: runner.Result() for job in todo}
    with refdist.config.temporary_devices():
        refdist.config.set_simulated_devices(gpu=4)
        for job in todo:
            loop.train(job, testee.initial, testee.derive, testee.penalties)
    for line in capsys.readouterr().out.splitlines():
        answer = json.loads(line)
        assert fault(answer, SCHEMAS["answers"]) is None
        results[answer["id"]].take(answer)
    judged = verdicts.judge(survived, todo, results)
    assert [verdict for verdict in judged if verdict.outcome != "right"] == []


# The table


def test_what_a_program_said_is_shown_and_not_the_pages_of_its_launcher() -> None:
    output = ("[1]: Traceback (most recent call last):\n[0]: Traceback (most recent call last):\n[1]:   File \"t.py\"\n"
              "[1]: KeyError: 7\n" + "a launcher\n" * 30)
    lines = list(table.table([verdicts.Verdict("same-loss", "errored", "it ended", output)]))
    shown = [line.partition("| ")[2] for line in lines if "| " in line]
    assert shown == ["[1]: Traceback (most recent call last):", '[1]:   File "t.py"', "[1]: KeyError: 7"]
    [*_, last, _] = table.table([verdicts.Verdict("same-loss", "errored", "it ended", "no traceback\nlast words")])
    assert last.endswith("| last words")


def test_a_deep_traceback_shows_the_line_of_the_testee_and_the_error() -> None:
    frames = [f'  File "lib.py", line {number}, in call\n    call()\n    ~~~~^^' for number in range(40)]
    own = '  File "mine.py", line 9, in <module>\n    train(job)\n    ^^^^^^^^^^'
    output = "\n".join(["Traceback (most recent call last):", own, *frames, "KeyError: 7"])
    lines = list(table.table([verdicts.Verdict("same-loss", "errored", "it ended", output)]))
    shown = [line.partition("| ")[2].strip() for line in lines if "| " in line]
    assert shown[:3] == ["Traceback (most recent call last):", 'File "mine.py", line 9, in <module>', "train(job)"]
    assert shown[-3:] == ['File "lib.py", line 39, in call', "call()", "KeyError: 7"]
    assert len(shown) == excerpts.LINES and shown.count("...") == 1


def test_a_long_line_of_what_was_printed_is_cut() -> None:
    lines = list(table.table([verdicts.Verdict("same-loss", "errored", "it ended", "=" * 64_000)]))
    assert "(64,000 characters)" in lines[1] and len(lines[1]) < 600


def test_what_many_clauses_share_is_said_once() -> None:
    given_up = [verdicts.Verdict(clause.name, "errored", "answered nothing") for clause in clauses.CLAUSES[:4]]
    lines = list(table.table([*given_up, verdicts.Verdict("early-stop", "right")], "it"))
    assert [line.split()[0] for line in lines] == ["same-loss", "run", "early-stop", "4"]
    assert lines[0].endswith("answered nothing; the same for 3 other clauses") and lines[-1] == "4 errored, 1 right"


# What testees have in common


@pytest.mark.parametrize(("can", "reason"), [
    ((), "no l2"), (("l2",), ""), (("layers", "l2"), "")])
def test_what_a_testee_cannot_do_is_named(
        can: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTEES))
    beyond = importlib.import_module("trainer_jobs").beyond
    assert beyond(jobs.job(LINE, [jobs.dense([[1.0]], l2=0.5)]), *can) == reason


@pytest.mark.parametrize(("layers", "can", "reason"), [
    (["dense", "dense"], (), "only one layer"), (["dense", "dropout"], ("layers",), "no dropout"),
    (["dense", "dropout"], ("layers", "dropout"), ""), (["embedding"], (), "no embedding")])
def test_a_kind_of_layer_that_a_testee_cannot_make_is_named(
        layers: list[str], can: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTEES))
    beyond = importlib.import_module("trainer_jobs").beyond
    assert beyond(jobs.job(LINE, [{"kind": kind, "name": kind} for kind in layers]), *can) == reason  # type: ignore


def test_a_testee_that_can_do_everything_named_is_told_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job may have that is not plain is all known under some name."""
    monkeypatch.syspath_prepend(str(TESTEES))
    testees = importlib.import_module("trainer_jobs")
    kinds = {layer["kind"] for job in clauses.jobs() for layer in job["model"]}
    assert {testees.beyond(job, "layers", *kinds, *testees.PLAIN) for job in clauses.jobs()} == {""}
    plain = jobs.job(LINE, [jobs.dense([[1.0]])])
    fields = {**plain, **plain["rows"], **plain["optimizer"], **plain["model"][0]}
    assert all(fields[name] == value for name, value in testees.PLAIN.items())


# The files

SCHEMAS = {name: json.loads((TESTEES.parent / f"{name}.schema.json").read_text(encoding="utf-8"))
           for name in ("jobs", "answers")}


def test_jobs_are_as_the_schema_says() -> None:
    for job in clauses.jobs():
        assert fault(json.loads(json.dumps(job)), SCHEMAS["jobs"]) is None


@pytest.mark.parametrize(("schema", "line"), [
    ("jobs", {**clauses.jobs()[0], "more": 1}), ("jobs", {**clauses.jobs()[0], "ask": ["gradients"]}),
    ("jobs", {**clauses.jobs()[0], "clip": {"by": "norm"}}), ("answers", {"losses": [1.0]}),
    ("answers", {"id": 1, "losses": "1.0"}), ("answers", {"id": 1, "declared": {"what": "no page"}})])
def test_the_schemas_refuse_what_is_wrong(schema: str, line: Any) -> None:
    assert fault(line, SCHEMAS[schema]) is not None


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
@pytest.mark.parametrize(("what", "message"), [
    ("print('last words', flush=True); os._exit(7)", "it ended with exit status 7 before it had answered"),
    ("os._exit(0)", "it ended with exit status 0 before it had answered"),
    ("time.sleep(1000)", "no answer within 0.5 s"),
])
def test_a_trainer_that_ends_or_is_silent_costs_one_job(
        what: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "START_LIMIT", 20.0)
    script = tmp_path / "trainer.py"
    script.write_text(MISBEHAVING.format(what=what))
    results = runner.run(f"{sys.executable} {script}", clauses.jobs(), 0.5)
    assert [number for number, result in results.items() if result.broken] == [2] and message in results[2].broken
    assert {result.unsupported for number, result in results.items() if number != 2} == {"for a test"}
    assert "a line of progress" in results[1].output


@pytest.mark.slow
def test_a_message_is_found_before_pages_of_a_launcher(tmp_path: Path) -> None:
    script = tmp_path / "trainer.py"
    script.write_text("import sys\nprint('replica 1 was told to fail', file=sys.stderr)\n"
                      "print('a launcher has much to say\\n' * 1000, file=sys.stderr)\nsys.exit(1)\n")
    [result] = runner.run(f"{sys.executable} {script}", clauses.jobs()[:1]).values()
    assert "replica 1 was told to fail" in result.output


@pytest.mark.slow
def test_a_message_that_comes_before_the_last_answer_is_found_too(tmp_path: Path) -> None:
    """One process answers a job when another has failed in the next one already, and a launcher tells it at length."""
    script = tmp_path / "trainer.py"
    script.write_text("import sys\nprint('replica 1 was told to fail', file=sys.stderr, flush=True)\n"
                      "print('{\"id\": 1, \"done\": true}', flush=True)\n"
                      "print('a launcher has much to say\\n' * 1000, file=sys.stderr)\nsys.exit(1)\n")
    first, second = runner.run(f"{sys.executable} {script}", clauses.jobs()[:2]).values()
    assert first.over and "replica 1 was told to fail" in second.output


@pytest.mark.slow
def test_a_trainer_may_begin_what_it_prints_with_the_mark_of_its_encoding(tmp_path: Path) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(r"""print('\ufeff{"id": 1, "unsupported": "for a test"}')""")
    command = f"{sys.executable} -X utf8 {script}"
    assert [result.unsupported for result in runner.run(command, clauses.jobs()[:1]).values()] == ["for a test"]


@pytest.mark.slow
def test_a_trainer_that_answers_nothing_is_given_up(tmp_path: Path) -> None:
    todo = clauses.jobs()
    results = runner.run(f"{sys.executable} -c pass", todo)
    assert all(result.broken for result in results.values())
    assert "started 3 times in a row" in results[max(results)].broken
    # That it ends is no sign that it ends when a replica fails.
    assert {verdict.outcome for verdict in verdicts.judge(clauses.CLAUSES, todo, results)} == {"errored"}


@pytest.mark.slow
def test_a_trainer_that_ends_again_and_again_costs_only_the_jobs_that_it_cannot_do(tmp_path: Path) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(MISBEHAVING.replace("== 2", "> 2").format(what="assert job['id'] % 5 == 0"))
    results = runner.run(f"{sys.executable} {script}", clauses.jobs()[:11])
    assert [number for number, result in results.items() if not result.broken] == [1, 2, 5, 10]
    assert all("AssertionError" in result.output for result in results.values() if result.broken)


class Scripted:
    """A process that answers some jobs, and is silent then, without the wait."""

    commands: list[list[str]]
    answered = frozenset(range(1000))

    def __init__(self, command: list[str], kept: int) -> None:
        self.commands.append(command)
        jobs = map(json.loads, Path(command[-1]).read_text().splitlines())
        self.jobs = [job for job in jobs if job["id"] in self.answered]
        assert len(command) == 2 or {str(job["replicas"]) for job in self.jobs} == {command[1]}

    def line(self, deadline: float, late: str) -> bytes:
        if not self.jobs:
            raise process.Broken(late)
        return json.dumps({"id": self.jobs.pop(0)["id"], "replica": 1, "done": True}).encode()

    def status(self) -> None:
        return None

    def printed(self) -> str:
        return ""

    def errors(self) -> str:
        return ""

    def end(self, now: bool) -> None:
        pass


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """Takes the place of processes."""
    monkeypatch.setattr(Scripted, "commands", [], raising=False)
    monkeypatch.setattr(runner, "Process", Scripted)
    return Scripted


def test_a_trainer_that_is_silent_again_and_again_is_given_up(
        scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "answered", frozenset([1]))
    results = runner.run("trainer", clauses.jobs()[:8])
    assert [number for number, result in results.items() if result.silent] == [2, 3, 4, 5]
    assert all("started 3 times in a row" in results[number].broken for number in (6, 7, 8))


def test_a_command_with_a_place_is_started_for_each_number_of_replicas(scripted: type[Scripted]) -> None:
    results = runner.run("trainer {replicas}", clauses.jobs())
    assert all(result.over and not result.broken for result in results.values())
    # What two replicas have saved is read by one, and by four.
    assert [command[1] for command in scripted.commands] == ["2", "1", "4"]


PAGE = TESTEES.parents[2] / "docs" / "testing-a-trainer.md"


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="the package is installed without its pages")
def test_the_testee_of_the_page_does_what_the_page_says(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trainers", "--write-testee", str(tmp_path)]) == 0
    script = tmp_path / "testee.py"
    program = script.read_text()
    assert re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) == [program.partition("\n\n")[2]]
    assert main(["trainers", "--command", f"{sys.executable} {script}"]) == 0
    printed = capsys.readouterr().out
    assert "right" in printed and "errored" not in printed

    mistake = "sum(parts) / len(parts)"
    assert f"`{mistake}`" in PAGE.read_text()
    script.write_text(re.sub(r"return sum\(part \* count.*", f"return {mistake}", program))
    assert main(["trainers", "--command", f"{sys.executable} {script}", "--clause", "uneven-end"]) == 1
    printed = capsys.readouterr().out.replace(f"{sys.executable} {script}", "python testee.py")
    assert textwrap.indent(printed, "    ") in PAGE.read_text()


def test_a_testee_that_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "testee.py").write_text("mine")
    assert main(["trainers", "--write-testee", str(tmp_path)]) == 4
    assert "testee.py in " in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"testee.py": "mine"}


@pytest.mark.slow
def test_neither_pytest_nor_hypothesis_is_needed(tmp_path: Path) -> None:
    program = ("import sys; sys.modules |= {'pytest': None, 'hypothesis': None}; import importlib.util as util; "
               "real = util.find_spec; util.find_spec = lambda name: None if name in sys.modules and "
               "sys.modules[name] is None else real(name); from refdist.conformance.__main__ import main; "
               f"sys.exit(main(['trainers', '--write-jobs', {str(tmp_path / 'jobs.jsonl')!r}]))")
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert len((tmp_path / "jobs.jsonl").read_text().splitlines()) == len(clauses.jobs())


@pytest.mark.parametrize(("arguments", "text"), [
    (["--command", "/no/such/trainer"], "cannot be started"), ([], "there is none"),
    (["--command", "x", "--clause", "nosuch"], "there is no nosuch")])
def test_wrong_usage_has_a_status_and_a_reason(
        arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trainers", *arguments]) == 4
    assert text in capsys.readouterr().err
