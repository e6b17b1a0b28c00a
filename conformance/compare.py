"""The command `python -m refdist.conformance compare A B --report FOLDER`: several reports on one page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import page, report
from .distribution import COMMAND


def main(arguments: Sequence[str]) -> int:
    """Writes one report from several; returns the exit status."""
    parser = argparse.ArgumentParser(f"{COMMAND} compare", description="Puts the runs of several "
                                     "reports into one, whose page shows them side by side, and where they differ.")
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="a report.json, or its folder")
    parser.add_argument("--report", required=True, type=Path, metavar="FOLDER",
                        help="write report.json, report.md and report.html there")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as ended:
        return 4 if ended.code else 0
    try:
        merged = report.merged({str(path): report.read(path) for path in options.reports})
        page.check(options.report)
        print(f"{', '.join(merged['runs'])}: {page.write(options.report, merged)}")
    except (ValueError, OSError) as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 4
    return 0
