"""`python -m refdist run --workers 4 script.py`: a program of several workers, simulated in this process."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

import refdist


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status, the largest one of all workers."""
    parser = argparse.ArgumentParser(prog="python -m refdist", description=__doc__)
    parser.add_argument("--version", action="version", version=f"refdist {refdist.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    run = commands.add_parser("run", help="run a script once per worker, in lock step, in one process")
    run.add_argument("--workers", type=int, default=2, help="how many workers (default 2)")
    run.add_argument("--replicas-per-worker", type=int, default=1, help="simulated devices of each (default 1)")
    run.add_argument("script", type=Path, help="the program")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="what it is given")
    options = parser.parse_args(arguments)
    if not options.script.is_file():
        parser.error(f"there is no file {options.script}")

    def program() -> int:
        try:
            runpy.run_path(str(options.script), run_name="__main__")
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                return ended.code or 0
            print(ended.code, file=sys.stderr)
            return 1
        return 0

    before = sys.argv, sys.path[:]
    sys.argv = [str(options.script), *options.arguments]
    sys.path.insert(0, str(options.script.parent))
    try:
        status: int = max(refdist.simulate_workers(program, options.workers, options.replicas_per_worker))
        return status
    finally:
        sys.argv, sys.path[:] = before


if __name__ == "__main__":
    sys.exit(main())
