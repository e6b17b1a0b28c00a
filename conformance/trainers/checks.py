"""Comparisons of an answer with what is expected, each under the name by which a clause asks for it.

A check returns "" where the answer is right, and otherwise what is wrong, with the factor by which it is: half of a
step is an average of averages, twice a step is a sum in place of a mean, and the reader knows where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .jobs import Job
from .reference import Answer
from .runner import Result

# Single precision has seven digits, of which a few steps on a few rows lose two; a slip is a factor of a tenth or more.
TOLERANCE = 1e-4

Check = Callable[[Job, Answer, Result], str]
CHECKS: dict[str, Check] = {}


class Incomplete(Exception):
    """An answer lacks what the job asks for, or has it in another form; the text says what."""


def check(function: Check) -> Check:
    """Enters a check under its name, with hyphens."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


def number(value: object, what: str) -> float:
    """A number of an answer, also one that JSON has no word for ("nan", "inf").

    Raises:
        Incomplete: it is none.
    """
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise Incomplete(f"{what} is {value!r}, not a number") from None


def numbers(value: object, what: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """An array of an answer.

    Raises:
        Incomplete: it is none.
    """
    try:
        return np.array(value, float)
    except (TypeError, ValueError):
        raise Incomplete(f"{what} are {str(value)[:80]}, not numbers") from None


def weights_of(answer: object, expected: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """The expected weights in an answer.

    Raises:
        Incomplete: one is missing, or has another shape.
    """
    if not isinstance(answer, dict):
        raise Incomplete(f"{whose} weights are not in the answer")
    arrays = {}
    for name, value in expected.items():
        if name not in answer:
            raise Incomplete(f"{whose} weights have no {name!r}; they have {', '.join(sorted(answer)) or 'none'}")
        arrays[name] = numbers(answer[name], f"{whose} weights {name}")
        if arrays[name].shape != np.shape(value):
            raise Incomplete(f"{whose} weights {name} have the shape {arrays[name].shape}, not {np.shape(value)}")
    return arrays


def factor(actual: float, right: float, start: float = 0.0) -> str:
    """How far a number has come, as a factor of how far it should have.

    >>> factor(2.0, 1.0), factor(0.5, 0.0)
    ('2 times what is right', '')
    """
    if right == start or not np.isfinite(actual):
        return ""
    ratio = (actual - start) / (right - start)
    return f"{ratio:.4g} times what is right"


def differing(actual: Mapping[str, Any], right: Mapping[str, Any], start: Mapping[str, Any]) -> str:
    """The weight that is furthest from where it should be, or ""."""
    worst, text = 1.0, ""
    for name, value in right.items():
        scale = TOLERANCE * max(float(np.abs(value).max()), float(np.abs(value - start[name]).max()), 1e-30)
        distance = np.abs(actual[name] - value) / scale
        index = np.unravel_index(int(np.argmax(np.where(np.isfinite(distance), distance, np.inf))), distance.shape)
        if not distance[index] <= worst:
            worst = distance[index] if np.isfinite(distance[index]) else np.inf
            moved = factor(actual[name][index], value[index], start[name][index])
            text = (f"{name}{[int(i) for i in index]} is {actual[name][index]:.6g}, and {value[index]:.6g} is right"
                    + (f": it moved {moved}" if moved else ""))
    return text


def every_replica(job: Job, result: Result, name: str) -> list[Any]:
    """What each replica says under a name, in their order.

    Raises:
        Incomplete: one says nothing.
    """
    for replica in range(job["replicas"]):
        if name not in result.each.get(replica, {}):
            raise Incomplete(f"replica {replica} does not say its {name}")
    return [result.each[replica][name] for replica in range(job["replicas"])]


def losses_of(expected: Answer, result: Result) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The losses of an answer.

    Raises:
        Incomplete: there are more or fewer than there are steps.
    """
    reported = numbers(result.whole.get("losses"), "the losses")
    if reported.shape != (len(expected.losses),):
        raise Incomplete(f"there are {reported.size} losses of {len(expected.losses)} steps")
    return reported


def compared(what: str, actual: float, right: float) -> str:
    """"" where a number is right, and else what it is."""
    if abs(actual - right) <= TOLERANCE * abs(right):
        return ""
    ratio = factor(actual, right)
    return f"{what} is {actual:.6g}, and {right:.6g} is right" + (f": {ratio}" if ratio else "")


def ledger(job: Job, expected: Answer, result: Result) -> tuple[Any, int]:
    """How often each row of a ledger counted, as a factor, and how many of the rows are in full batches."""
    [name] = expected.weights
    moved = weights_of(result.whole.get("weights"), expected.weights, "the")[name][:, 0]
    return moved / expected.weights[name][:, 0], len(moved) - len(moved) % job["batch"]


@check
def weights(job: Job, expected: Answer, result: Result) -> str:
    """Every weight is where one worker's is."""
    after = weights_of(result.whole.get("weights"), expected.weights, "the")
    return differing(after, expected.weights, expected.initial)


@check
def moving_mean(job: Job, expected: Answer, result: Result) -> str:
    """The moving mean is where one worker's is."""
    right = {name: value for name, value in expected.weights.items() if name.endswith("moving_mean")}
    return differing(weights_of(result.whole.get("weights"), right, "the"), right, expected.initial)


@check
def equal(job: Job, expected: Answer, result: Result) -> str:
    """All replicas have the same weights."""
    first, *others = (weights_of(answer, expected.weights, f"replica {replica}'s")
                      for replica, answer in enumerate(every_replica(job, result, "weights")))
    for replica, other in enumerate(others, 1):
        for name, value in first.items():
            if not np.allclose(other[name], value, rtol=1e-6, atol=1e-7):
                return f"{name} is {value.tolist()} on replica 0 and {other[name].tolist()} on replica {replica}"
    return ""


@check
def distributed(job: Job, expected: Answer, result: Result) -> str:
    """In every step, each replica has rows, and no two have the same."""
    each = every_replica(job, result, "rows")
    if short := [replica for replica, steps in enumerate(each) if len(steps) != expected.steps]:
        raise Incomplete(f"replica {short[0]} says the rows of {len(each[short[0]])} of {expected.steps} steps")
    for step, parts in enumerate(zip(*each, strict=True), 1):
        if empty := [replica for replica, part in enumerate(parts) if not part]:
            return f"in step {step}, replica {empty[0]} trains on no row"
        numbers = [row for part in parts for row in part]
        if repeated := sorted({row for row in numbers if numbers.count(row) > 1}):
            return f"in step {step}, row {repeated[0]} is trained on {numbers.count(repeated[0])} times"
    return ""


@check
def full_batches(job: Job, expected: Answer, result: Result) -> str:
    """Every row of a ledger that is in a full batch counts once, and the others count."""
    counted, full = ledger(job, expected, result)
    for row, times in enumerate(counted):
        if not (abs(times - 1) <= TOLERANCE if row < full else abs(times) > 0):
            return f"row {row} of {len(counted)} counts {times:.4g} times in batches of {job['batch']}"
    return ""


@check
def last_batch(job: Job, expected: Answer, result: Result) -> str:
    """Every row of a ledger that is in the last, smaller batch has its weight there."""
    counted, full = ledger(job, expected, result)
    for row, times in enumerate(counted[full:], full):
        if not abs(times - 1) <= TOLERANCE:
            return f"row {row}, one of {len(counted) - full} in the last batch, has {times:.4g} times its weight there"
    return ""


@check
def orders(job: Job, expected: Answer, result: Result) -> str:
    """Not all epochs have the same order: no weight moves, no two rows have the same loss, and so the losses tell."""
    epochs = losses_of(expected, result).reshape(job["epochs"], -1)
    if not np.isfinite(epochs).all():
        raise Incomplete("the losses are not all finite")
    if np.allclose(epochs, epochs[0], TOLERANCE, 0.0):
        return f"all {len(epochs)} epochs have the same order: the losses of their steps are {epochs[0].tolist()}"
    return ""


@check
def losses(job: Job, expected: Answer, result: Result) -> str:
    """The loss of every step is that of all its rows."""
    pairs = zip(losses_of(expected, result), expected.losses, strict=True)
    wrong = (compared(f"the loss of step {step}", loss, right) for step, (loss, right) in enumerate(pairs, 1))
    return next((message for message in wrong if message), "")


@check
def eval_loss(job: Job, expected: Answer, result: Result) -> str:
    """The loss of validation is that of all its rows."""
    assert expected.eval_loss is not None
    return compared("eval_loss", number(result.whole.get("eval_loss"), "eval_loss"), expected.eval_loss)


@check
def metrics(job: Job, expected: Answer, result: Result) -> str:
    """The metrics are those of all rows."""
    reported = result.whole.get("metrics")
    for name, right in expected.metrics.items():
        if not isinstance(reported, dict) or name not in reported:
            raise Incomplete(f"the answer has no metric {name}")
        if wrong := compared(name, number(reported[name], name), right):
            return wrong
    return ""


@check
def dropped(job: Job, expected: Answer, result: Result) -> str:
    """Of two rows of ones, some columns are dropped in one and not in the other.

    A weight has moved, for each row in which its column is not dropped, by as much as by both rows without dropout.  Of
    64 columns 32 are dropped in one of the rows, with a standard deviation of 4; fewer than 8, or more than 56, are not
    found by chance.
    """
    moved = weights_of(result.whole.get("weights"), expected.weights, "the")["dense/kernel"]
    moved = moved / expected.weights["dense/kernel"]
    counts = [int((np.abs(moved - times) < TOLERANCE).sum()) for times in range(3)]
    if sum(counts) < moved.size:
        strange = moved[~(np.min([np.abs(moved - times) for times in range(3)], axis=0) < TOLERANCE)][0]
        return f"a weight has moved by {strange:.6g} times what a row moves it by, and 0, 1 or 2 is right"
    if 8 <= counts[1] <= moved.size - 8:
        return ""
    both = "the two replicas have" if job["replicas"] > 1 else "both batches have"
    if counts[1] == 0:
        return f"{both} dropped the same columns"
    return f"{counts[1]} of {moved.size} columns are dropped in one row only, and about half is right"


@check
def scaled(job: Job, expected: Answer, result: Result) -> str:
    """Weights, also of every replica, and the scale of the loss are where one worker's are."""
    assert expected.scale is not None
    if wrong := weights(job, expected, result):
        return wrong
    for replica, answer in enumerate(every_replica(job, result, "weights")):
        after = weights_of(answer, expected.weights, f"replica {replica}'s")
        if wrong := differing(after, expected.weights, expected.initial):
            return f"on replica {replica}, {wrong}"
    return compared("the scale of the loss", number(result.whole.get("scale"), "scale"), expected.scale)


@check
def stopped(job: Job, expected: Answer, result: Result) -> str:
    """All replicas have taken the same number of steps, and the weights are those after them."""
    for replica, steps in enumerate(every_replica(job, result, "steps")):
        if steps != expected.steps:
            return f"replica {replica} took {steps} steps, and {expected.steps} is right"
    return weights(job, expected, result)


@check
def failed(job: Job, expected: Answer, result: Result) -> str:
    """The program has ended with all its processes, its exit status is not 0, and the message is named.

    The same job without a failure only has to be answered, so that the program has not ended for another reason.
    """
    if not job["fail"]:
        weights_of(result.whole.get("weights"), expected.weights, "the")
        return ""
    if result.broken and result.status is None and not result.silent:
        raise Incomplete(result.broken)
    if result.silent:
        return f"{result.broken}, after a replica failed: the program did not end"
    if not result.broken:
        return "a replica failed, and the program went on"
    if result.status == 0:
        return "a replica failed, and the exit status is 0"
    if result.left_over:
        return f"the program ended, and {result.left_over} of its processes did not"
    if job["fail"]["how"] == "exception" and job["fail"]["message"] not in result.output:
        return f"the message of the exception ({job['fail']['message']!r}) was not printed"
    return ""
