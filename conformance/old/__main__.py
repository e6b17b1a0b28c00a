"""The command `python -m refdist.conformance.old`: pytest on `suite.py` with the plugin and all options."""

from __future__ import annotations

import sys
from pathlib import Path

from refdist import errors

try:
    import pytest
except ModuleNotFoundError as error:
    raise errors.error("RD27", "refdist.conformance.old", f"{error.name} is not installed",
                       "Run `pip install pytest hypothesis`.") from error


def main(arguments: list[str] | None = None) -> int:
    """Runs the suite and returns pytest's exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    folder = Path(__file__).parent
    return int(pytest.main([str(folder / "suite.py"), "-p", "refdist.conformance.old.plugin", "--import-mode=importlib",
                            "-c", str(folder / "pytest.ini"), f"--rootdir={folder}", "-q", "--no-header", *given]))


if __name__ == "__main__":
    sys.exit(main())
