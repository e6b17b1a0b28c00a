"""The cases, one module per concept."""

from __future__ import annotations

import functools
import importlib

from refdist.conformance.old.case import Case

CONCEPTS = ("names", "contexts", "run", "merge_call", "all_reduce", "all_gather", "reduce", "gather", "values",
            "variables", "variable_updates", "update", "datasets", "resolvers")


@functools.cache
def load() -> list[Case]:
    """All cases; the name of each begins with its concept.

    Raises:
        ValueError: two cases have one name.
    """
    found: list[Case] = []
    for concept in CONCEPTS:
        module = importlib.import_module(f"refdist.conformance.old.cases.{concept}")
        for case in module.CASES:
            case.concept, case.name = concept, f"{concept}: {case.name}"
            found.append(case)
    names = [case.name for case in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"cases with one name: {sorted(twice)}")
    return found
