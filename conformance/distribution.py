"""Which distribution this is, of the two that this folder is in.

In `refdist` it is the package `refdist.conformance`, and whole. In `refdist-conformance` it is `refdist_conformance`,
without the packages that carry out programs in Python (`adapter`, `adapters`, `random_programs`, `recording`): what
asks a testee the cases that are kept, and needs neither refdist nor NumPy, and what tests trainers, which judges them
with NumPy. So the modules beside this one and in `trainers` import each other by relative names, and those packages
only where `WHOLE` has been looked at.
"""

from __future__ import annotations

VERSION = "0.1.0"
PACKAGE = __name__.rpartition(".")[0]
WHOLE = PACKAGE == "refdist.conformance"
# What runs the suite, as it is printed. The script comes with both, and is that of the one that was installed last.
COMMAND = f"python -m {PACKAGE}" if WHOLE else "refdist-conformance"
