"""Properties: programs whose names take many values, drawn by Hypothesis, always the same ones.

A property that does not hold is reported with the simplest values for which it does not.  What fails once and passes
when it is asked again (a race, a crash, an answer that was late) has failed, and is reported with the values of then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from refdist.conformance.chapters import Case
from refdist.conformance.judging import WEIGHTS as _WEIGHTS
from refdist.conformance.judging import Verdict

DRAWS = 20


def examine(case: Case, run: Callable[[Case], Verdict], count: int = DRAWS) -> Verdict:
    """Runs a property with several values for its names: the verdict on the simplest that fails, or a passed one.

    Raises:
        Exception: what `run` raises, which is no verdict on the implementation.
    """
    worst = Verdict(case, "passed")

    @settings(max_examples=count, deadline=None, derandomize=True, database=None,
              phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck))
    @given(_values(case))
    def test(values: dict[str, object]) -> None:
        nonlocal worst
        verdict = run(case.drawn(values))
        if verdict.outcome != "passed" and _WEIGHTS[verdict.outcome] >= _WEIGHTS[worst.outcome]:
            said = ", ".join(f"{name} = {value!r}" for name, value in values.items())
            where = "" if verdict.outcome == "skipped" else f", where {said}"
            worst = replace(verdict, case=case, message=verdict.message + where)
        assert verdict.outcome == "passed"

    try:
        test()
    except (AssertionError, Flaky):
        if worst.outcome == "passed":  # it was the suite that failed, and once
            raise
    return worst


def drawn(case: Case, count: int) -> list[Case]:
    """The first cases of a property, with different values."""
    found: dict[str, Case] = {}

    @settings(max_examples=10 * count, deadline=None, derandomize=True, database=None, phases=(Phase.generate,),
              suppress_health_check=list(HealthCheck))
    @given(_values(case))
    def collect(values: dict[str, object]) -> None:
        one = case.drawn(values)
        found.setdefault(one.name, one)

    collect()
    return list(found.values())[:count]


def _values(case: Case) -> st.SearchStrategy[dict[str, object]]:
    names = {name: getattr(st, name) for name in st.__all__}
    return st.fixed_dictionaries({name: eval(text, {}, names) for name, text in case.example.parameters.items()})
