"""Tests an implementation of tf.distribute with the specification, or does one of these:

    python -m refdist.conformance [OPTION ...]                 tests an implementation, refdist itself if none is named
    python -m refdist.conformance dump FILE                    writes the cases as data for other languages
    python -m refdist.conformance random --against ADAPTER     compares two implementations on random programs
    python -m refdist.conformance compare A B --report FOLDER  puts several reports on one page
    python -m refdist.conformance promises --find WORDS        what becomes of a sentence of the documents
    python -m refdist.conformance new --language js FOLDER     writes a testee to begin with; also python, lua, go
    python -m refdist.conformance trainers --command COMMAND   tests a program that trains on several replicas
    python -m refdist.conformance versions FOLDER              TensorFlow 2.12 to 2.21, and what changed between them

Exit status:
    0  every case passed, failed as expected, or was skipped
    1  a case failed, or was expected to fail and did not
    2  interrupted
    3  the suite itself broke
    4  wrong usage, or an implementation that cannot be started
    5  no case was selected, or not one could be judged
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from refdist import errors

COMMANDS = {"dump": "recording.dump", "random": "random_programs.command", "compare": "compare", "promises": "promises",
            "new": "new", "trainers": "trainers.command", "versions": "adapters.versions"}
NEEDS = ("pytest", "hypothesis")
WITHOUT_THEM = {"new", "promises", "trainers"}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    command = COMMANDS.get(given[0]) if given else None
    if command is None and {"-h", "--help"} & set(given):
        from refdist.conformance.options import help_text

        print(help_text(__doc__ or ""))
        return 0
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing and not WITHOUT_THEM.intersection(given[:1]):
        raise errors.error("RD27", "refdist.conformance", f"{' and '.join(missing)} is not installed",
                           f"Run `pip install {' '.join(NEEDS)}`.")
    if command:
        return int(import_module(f"refdist.conformance.{command}").main(given[1:]))
    import pytest

    from refdist.conformance.options import memory

    folder = Path(__file__).parent
    return int(pytest.main([str(folder / "suite.py"), "-p", "refdist.conformance.plugin", "--import-mode=importlib",
                            "-c", str(folder / "pytest.ini"), f"--rootdir={folder}", "-o",
                            f"cache_dir={memory(given)}", "-q", "-rN", "--no-header", *given]))


if __name__ == "__main__":
    sys.exit(main())
