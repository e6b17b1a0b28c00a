"""Runs the cases of some chapters or clauses: `python -m refdist.conformance.check [--adapter A] [PREFIX ...]`."""

from __future__ import annotations

import functools
import importlib
import sys
from collections import Counter

from refdist.conformance import properties
from refdist.conformance.adapter import Adapter
from refdist.conformance.chapters import SPEC, Case, cases, read
from refdist.conformance.examples import program
from refdist.conformance.judging import Verdict, judge


def _run(adapter: Adapter, case: Case) -> Verdict:
    return judge(case, adapter.run(program(case)))


def main() -> None:
    """Prints every case that does not pass, and counts."""
    arguments = sys.argv[1:]
    name = "refdist.conformance.adapters.simulated:Simulated"
    if arguments[:1] == ["--adapter"]:
        name, arguments = arguments[1], arguments[2:]
    module, _, kind = name.partition(":")
    adapter = getattr(importlib.import_module(module), kind)()
    counts: Counter[str] = Counter()
    wanted = {argument.partition(".")[0] for argument in arguments}
    chapters = tuple(read(path) for path in sorted(SPEC.glob("*.md")) if not wanted or path.stem in wanted)
    for case in cases(chapters):
        if not arguments or case.name.startswith(tuple(arguments)):
            run = functools.partial(_run, adapter)
            verdict = properties.examine(case, run) if case.example.parameters else run(case)
            counts[verdict.outcome] += 1
            if verdict.outcome != "passed":
                print(f"{case.chapter.path.name}:{verdict.line}: {case.name}: {verdict.outcome}: {verdict.message}")
    print(dict(counts))


main()
