"""`python -m refdist.tf program.py`: runs a program written for TensorFlow, without TensorFlow."""

from __future__ import annotations

import sys
from pathlib import Path

from refdist.tf import programs

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m refdist.tf program.py [argument ...]")
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent.absolute())
    programs.run(Path(sys.argv[0]))
