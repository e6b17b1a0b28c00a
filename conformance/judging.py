"""Judging: the verdict on what an implementation answered.

It is given the case, with its results, and the answers; it never meets the implementation (`examples.py` says why).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from .chapters import Case
from .comparison import differences
from .examples import BEFORE, Answer
from .notation import shown
from .programs import Expectation, size
from .results import INTS, Result, integer, kinds_of, real

# How the message of a case begins that is skipped because capabilities are missing; their names follow.
NEEDS = "needs "
# A property is asked with several values, and its outcome is the heaviest of theirs.
WEIGHTS = {"passed": 0, "skipped": 1, "unsupported": 2, "errored": 3, "failed": 3}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case.

    Attributes:
        case: which one.
        outcome: "passed", "failed" (the implementation is wrong), "unsupported" (it says that it does not do this),
            "skipped" (a capability is missing) or "errored" (no answer that could be judged: a crash, nonsense).
        message: what differs, where.
        line: of the statement in the chapter.
        expected, found: of that statement, in the notation of the chapters.
        output: what the implementation printed meanwhile.
    """

    case: Case
    outcome: str
    message: str = ""
    line: int = 0
    expected: str = ""
    found: str = ""
    output: str = ""


def judge(case: Case, answers: Sequence[Answer], bitwise: bool = False, output: str = "") -> Verdict:
    """Compares the answers of the workers of a case with what the chapter says.

    Args:
        case: what was run.
        answers: of each worker, well-formed (`results.fault`).
        bitwise: whether floats must be equal to the bit.
        output: what the implementation printed, for the verdict.
    """
    workers, _ = size(case.strategy)
    if len(answers) != workers:
        return Verdict(case, "errored", f"{len(answers)} answers for {workers} workers", output=output)
    bare = [comparable(answer, case.strategy) for answer in answers]
    for i, statement in [(BEFORE, None), *enumerate(case.example.statements)]:
        line = statement.line if statement else case.example.line
        expectations = statement.expected(case.strategy) if statement else None
        for worker, answer in enumerate(bare):
            who = f"worker {worker}: " if workers > 1 else ""
            wanted = wanted_of(expectations, worker, case.strategy) if expectations else None
            expected = _text(wanted) if wanted else ""
            if i not in answer:
                if wanted:
                    return Verdict(case, "errored", f"{who}no result of this statement, and no error of one before it",
                                   line, expected, "", output)
                continue
            result = answer[i]
            if _says_unsupported(result) and not (wanted and _says_unsupported(wanted.result)):
                return Verdict(case, "unsupported", f"{who}{result.get('message', '')}", line, expected, "", output)
            if not wanted:
                return Verdict(case, "failed", f"{who}{shown(result)}, and must not", line, "", shown(result), output)
            difference = None if wanted.holds else next(differences(wanted.result, result, bitwise), None)
            if difference is not None:
                return Verdict(case, "failed", who + difference, line, expected, shown(result), output)
        observed = [answer[i] for answer in bare if i in answer]
        holds = next((wanted.holds for wanted in (expectations or {}).values() if wanted.holds), "")
        if holds and (difference := _violated(holds, observed, case)):
            return Verdict(case, "failed", difference, line, f"holds {holds}", "; ".join(map(shown, observed)), output)
    return Verdict(case, "passed", output=output)


def heaviest(case: Case, verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a property: the first of the heaviest ones that it has with several values.

    Args:
        case: the property.
        verdicts: on it with values for its names; none is asked for after one that nothing outweighs.
    """
    worst = Verdict(case, "passed")
    for verdict in verdicts:
        if WEIGHTS[verdict.outcome] > WEIGHTS[worst.outcome]:
            values = ", ".join(f"{name} = {value!r}" for name, value in verdict.case.values)
            where = "" if verdict.outcome == "skipped" else f", where {values}"
            worst = replace(verdict, case=case, message=verdict.message + where)
        if WEIGHTS[worst.outcome] == max(WEIGHTS.values()):
            break
    return worst


def comparable(answer: Answer, strategy: str) -> Answer:
    """An answer without what implementations may choose: on several workers with one replica each, whether a value is
    distributed over that replica alone or is the value itself."""
    workers, replicas = size(strategy)
    return {i: _bare(result) for i, result in answer.items()} if workers > 1 and replicas == 1 else answer


def _says_unsupported(result: Result) -> TypeGuard[dict[str, Result]]:
    return isinstance(result, dict) and "error" in result and "unsupported" in kinds_of(result)


def _text(expectation: Expectation) -> str:
    return f"holds {expectation.holds}" if expectation.holds else shown(expectation.result)


def wanted_of(expectations: Mapping[int | None, Expectation], worker: int, strategy: str) -> Expectation:
    """What one worker must observe."""
    workers, replicas = size(strategy)
    if worker in expectations or workers == 1:
        return expectations[worker if worker in expectations else None]
    common = expectations[None]
    return Expectation(common.strategies, worker, _part(common.result, worker, workers, replicas), common.holds)


def _violated(holds: str, results: Sequence[Result], case: Case) -> str | None:
    """Why a property does not hold, or None; on several workers `result` is the list of their results."""
    wrong = next((result for result in results if isinstance(result, dict) and "error" in result), None)
    if wrong is not None:
        return shown(wrong)
    result = plain(results[0]) if size(case.strategy)[0] == 1 else list(map(plain, results))
    names = {**dict(case.values), "result": result, "numbers": numbers}
    try:
        is_true = eval(holds, names) is True
    except Exception as error:
        return f"{holds}: {type(error).__name__}: {error}"
    return None if is_true else f"found {'; '.join(map(shown, results))}; it does not hold that {holds}"


def plain(result: Result) -> Any:
    """A result as Python's numbers, texts, lists, tuples and dicts; a distributed value is the list of its parts."""
    if not isinstance(result, dict):
        return result
    if "dtype" in result:
        return _nested(result)
    for key in ("int", "float"):
        if key in result:
            return integer(result[key]) if key == "int" else real(result[key])
    for key in ("per_replica", "list", "tuple"):
        if key in result:
            items = result[key]
            assert isinstance(items, list)
            return tuple(map(plain, items)) if key == "tuple" else list(map(plain, items))
    entries = result.get("dict", result.get("slices"))
    return {key: plain(item) for key, item in entries.items()} if isinstance(entries, dict) else result


def _nested(array: dict[str, Result]) -> Any:
    shape, data, dtype = array["shape"], array["data"], str(array["dtype"])
    assert isinstance(shape, list) and isinstance(data, list)
    nested: list[Any] = [_element(element, dtype) for element in data]
    for size_ in reversed(shape):
        assert isinstance(size_, int)
        nested = [nested[i:i + size_] for i in range(0, len(nested), size_)] if size_ else [[]]
    return nested[0] if nested else []


def _element(element: Result, dtype: str) -> Any:
    if isinstance(element, list):
        return complex(real(element[0]) or 0.0, real(element[1]) or 0.0)
    return integer(element) if dtype in INTS else element if dtype in ("bool", "string") else real(element)


def numbers(value: object) -> list[Any]:
    """All numbers in a result, from left to right."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in numbers(item)]
    return [] if value is None else [value]


def _part(result: Result, worker: int, workers: int, replicas: int) -> Result:
    """What one worker sees of a value: of a distributed value the parts of its own replicas, alone if it has one."""
    if isinstance(result, list):
        return [_part(item, worker, workers, replicas) for item in result]
    if not isinstance(result, dict) or "dtype" in result:
        return result
    if "per_replica" in result:
        parts = result["per_replica"]
        assert isinstance(parts, list)
        if len(parts) == workers * replicas:
            own = parts[worker * replicas:(worker + 1) * replicas]
            return own[0] if replicas == 1 else {"per_replica": own}
    return {key: _part(item, worker, workers, replicas) for key, item in result.items()}


def _bare(result: object) -> Any:
    """A result whose distributed values of one part are that part."""
    if isinstance(result, list):
        return [_bare(item) for item in result]
    if not isinstance(result, dict):
        return result
    if "per_replica" in result and len(result["per_replica"]) == 1:
        return _bare(result["per_replica"][0])
    return {key: _bare(item) for key, item in result.items()}
