"""The command `python -m refdist.conformance`.

    python -m refdist.conformance [--adapter package.module:Class] ...   tests an implementation; pytest's options work
    python -m refdist.conformance dump cases.jsonl                       writes the cases as data for other languages
    python -m refdist.conformance random --against package.module:Class  compares two on random programs
    python -m refdist.conformance promises                               the documents' sentences without a clause

Exit status: 0 all passed, failed as expected, or were skipped; 1 a case failed; 2 interrupted; 3 the suite itself
broke; 4 wrong usage, or the implementation could not be started; 5 no case was selected, or not one could be judged.
"""

from __future__ import annotations

import sys
from pathlib import Path

from refdist import errors

try:
    import pytest
except ModuleNotFoundError as error:
    raise errors.error("RD27", "refdist.conformance", f"{error.name} is not installed",
                       "Run `pip install pytest hypothesis`.") from error


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["dump"]:
        from refdist.conformance import dump

        return dump.main(given[1:])
    if given[:1] == ["random"]:
        from refdist.conformance import random_programs

        return random_programs.main(given[1:])
    if given[:1] == ["promises"]:
        from refdist.conformance import promises

        return promises.main(given[1:])
    folder = Path(__file__).parent
    return int(pytest.main([str(folder / "suite.py"), "-p", "refdist.conformance.plugin", "--import-mode=importlib",
                            "-c", str(folder / "pytest.ini"), f"--rootdir={folder}", "-q", "--no-header", *given]))


if __name__ == "__main__":
    sys.exit(main())
