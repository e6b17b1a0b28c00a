"""Which cases other worlds carry out: recorded, on strict arrays, on GPU stand-ins, as answers of liars and testees.

`test_spec.py` carries out every case of the specification once, in a plain process.  Another world takes the cases
that can differ there: together they use every operation and argument that programs of the chapters have, every two
capabilities (docs/capabilities.md) that some program needs together, every capability on every strategy, and every
clause about numbers.  A case that adds none of these is left out.

    make worlds     every case in every world: REFDIST_WORLDS=every

This file is also a plugin of pytest: `python -m refdist.conformance -p worlds` runs the chosen cases.
"""

from __future__ import annotations

import functools
import heapq
import os
import re
import zlib
from collections.abc import Iterable
from typing import Any

from refdist.conformance.capabilities import needs, words
from refdist.conformance.chapters import Case, cases
from refdist.conformance.examples import program

EVERY = os.environ.get("REFDIST_WORLDS") == "every"
# For a command that runs the suite in another world.
OPTIONS: tuple[str, ...] = () if EVERY else ("-p", "worlds")


# Capabilities that are strategies, of which an example is carried out on several.
STRATEGIES = {"Default", "OneDevice", "Mirrored", "Central", "workers", "replicas on workers", "TPUs"}
# Where arithmetic may be another one, so that every clause about these counts.
NUMBERS = {"all_reduce", "all_gather", "reduce", "gather", "ON_READ", "scatter", "losses", "IndexedSlices", "dtypes"}


def used(case: Case) -> set[object]:
    """What a case uses, as far as a world could do it wrong."""
    concepts = needs(program(case)) - STRATEGIES
    operations = {word for word in words(program(case)) if word.startswith((".", "tf.")) or word.endswith("=")}
    return {*operations, *((case.strategy, concept) for concept in concepts),
            *((first, second) for first in concepts for second in concepts if first < second),
            *([case.clause.name] if concepts & NUMBERS else [])}


@functools.cache
def chosen() -> frozenset[str]:
    """The names of the cases that every world takes: few that use everything together."""
    uses = {case.name: used(case) for case in cases()}
    left: set[object] = set().union(*uses.values())
    # The case that adds most is next; what a case adds can only shrink, so a stale entry is put back with what it adds.
    # Of several that add as much, a checksum decides, so that no strategy is preferred.
    waiting = [(-len(uses[name]), zlib.crc32(name.encode()), name) for name in uses]
    heapq.heapify(waiting)
    names: set[str] = set()
    while left:
        count, tie, name = heapq.heappop(waiting)
        adds = len(uses[name] & left)
        if adds == -count:
            names.add(name)
            left -= uses[name]
        elif adds:
            heapq.heappush(waiting, (-adds, tie, name))
    return frozenset(names)


def some(of: Iterable[Case]) -> list[Case]:
    """Of these cases the chosen ones; all of them in `make worlds`."""
    return [case for case in of if EVERY or case.name in chosen()]


def clauses(strategy: str) -> list[str]:
    """Options for a command that takes clauses: those of the chosen cases on strategies that begin so."""
    kept = {case.clause.name for case in cases() if case.name in chosen() and case.strategy.startswith(strategy)}
    return [] if EVERY else [word for name in sorted(kept) for word in ("--clause", name)]


def counts(printed: str) -> dict[str, int]:
    """How many cases passed, were skipped and so on, of the last line that the suite prints."""
    return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", printed.splitlines()[-1])}


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leaves out the cases that are not chosen, where this is a plugin of the suite."""
    left_out = [item for item in items if item.callspec.params["conformance_case"].name not in chosen()]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
