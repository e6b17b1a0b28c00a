"""The command `python -m refdist.conformance trainers --command "torchrun --nproc-per-node 2 mine.py"`.

Exit status: 0 where nothing is wrong, 1 where something is, 2 interrupted, 4 wrong usage or a trainer that cannot be
started, 5 where not one clause could be judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from refdist.conformance.options import quoted
from refdist.conformance.protocol import Unusable
from refdist.conformance.trainers import clauses, jobs, verdicts
from refdist.conformance.trainers.runner import LIMIT, run
from refdist.conformance.trainers.table import table


def main(arguments: Sequence[str]) -> int:
    """Judges a trainer; returns the exit status."""
    parser = argparse.ArgumentParser("python -m refdist.conformance trainers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", metavar="COMMAND", help="starts the trainer; the file of jobs becomes its last "
                        "argument, and {replicas} in it the number of replicas")
    parser.add_argument("--clause", action="append", default=[], metavar="NAME",
                        help="only this clause; may be repeated")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="that a job may take")
    parser.add_argument("--write-jobs", type=Path, metavar="FILE", help="only write the jobs there")
    try:
        given = parser.parse_args(arguments)
    except SystemExit as ended:
        return 4 if ended.code else 0
    try:
        chosen = clauses.chosen(given.clause)
        todo = [job for job in clauses.jobs() if job["clause"] in {clause.name for clause in chosen}]
        if given.write_jobs:
            jobs.write(given.write_jobs, todo)
            return 0
        results = run(given.command or "", todo, given.limit,
                      lambda job: print(".", end="", file=sys.stderr, flush=True))
    except (Unusable, ValueError, OSError) as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        return 2
    print(file=sys.stderr)
    judged = verdicts.judge(chosen, todo, results)
    limit = f" --limit {given.limit:g}" if given.limit != LIMIT else ""
    again = f"python -m refdist.conformance trainers --command {quoted(given.command)}{limit}"
    print("\n".join(table(judged, again)))
    return verdicts.exit_status(judged)
