"""Comparisons of an answer with what is expected, each under the name by which a clause asks for it.

A check returns "" where the answer is right, and otherwise what is wrong, with the factor by which it is: half of a
step is an average of averages, twice a step is a sum in place of a mean, and the reader knows where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refdist.conformance.trainers.jobs import Job
from refdist.conformance.trainers.reference import Answer
from refdist.conformance.trainers.runner import Result

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


def factor(found: float, right: float, start: float = 0.0) -> str:
    """How far a number has come, as a factor of how far it should have.

    >>> factor(2.0, 1.0), factor(0.5, 0.0)
    ('2 times what is right', '')
    """
    if right == start or not np.isfinite(found):
        return ""
    ratio = (found - start) / (right - start)
    return f"{ratio:.4g} times what is right"


def differing(found: Mapping[str, Any], right: Mapping[str, Any], start: Mapping[str, Any]) -> str:
    """The weight that is furthest from where it should be, or ""."""
    worst, text = 1.0, ""
    for name, value in right.items():
        scale = TOLERANCE * max(float(np.abs(value).max()), float(np.abs(value - start[name]).max()), 1e-30)
        away = np.abs(found[name] - value) / scale
        place = np.unravel_index(int(np.argmax(np.where(np.isfinite(away), away, np.inf))), away.shape)
        if not away[place] <= worst:
            worst = away[place] if np.isfinite(away[place]) else np.inf
            moved = factor(found[name][place], value[place], start[name][place])
            text = (f"{name}{[int(i) for i in place]} is {found[name][place]:.6g}, and {value[place]:.6g} is right"
                    + (f": it moved {moved}" if moved else ""))
    return text


@check
def weights(job: Job, expected: Answer, result: Result) -> str:
    """Every weight is where one worker's is."""
    after = weights_of(result.whole.get("weights"), expected.weights, "the")
    return differing(after, expected.weights, expected.initial)


@check
def losses(job: Job, expected: Answer, result: Result) -> str:
    """The loss of every step is that of all its rows."""
    reported = numbers(result.whole.get("losses"), "the losses")
    if reported.shape != (len(expected.losses),):
        raise Incomplete(f"there are {reported.size} losses of {len(expected.losses)} steps")
    for step, (value, right) in enumerate(zip(reported, expected.losses, strict=True), 1):
        if not abs(value - right) <= TOLERANCE * max(abs(right), 1e-30):
            return f"the loss of step {step} is {value:.6g}, and {right:.6g} is right: {factor(value, right)}"
    return ""


@check
def eval_loss(job: Job, expected: Answer, result: Result) -> str:
    """The loss of validation is that of all its rows."""
    value, right = number(result.whole.get("eval_loss"), "eval_loss"), expected.eval_loss
    assert right is not None
    if abs(value - right) <= TOLERANCE * abs(right):
        return ""
    return f"eval_loss is {value:.6g}, and {right:.6g} is right: {factor(value, right)}"
