"""Starts an adapter in a Python in which refdist is not installed: `PYTHON start.py package.module:Class`.

An implementation lives in an environment of its own, which may not hold what refdist needs: TensorFlow 2.12 wants
NumPy 1.  So the modules of the suite that an adapter's process imports (`child.py` and what it needs) use the standard
library only.  To import one by its name would still run `refdist/__init__.py` first, and with it all of refdist.  That
is why both packages are put in place here as bare ones, which know where their modules are and run nothing:
`refdist.conformance` has its modules, and `refdist` has none.

This file is read by whatever Python it is given to, so it is written in what older ones can read, too.
"""

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec

OLDEST = (3, 11)


def bare(name: str, *folders: str) -> None:
    """Puts a package with the modules of some folders in place, without running its `__init__`."""
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = list(folders)
    sys.modules[name] = module_from_spec(spec)


def main() -> None:
    """Runs `child.main` with the modules of this package and of that around it."""
    if sys.version_info < OLDEST:
        running, oldest = (".".join(map(str, version)) for version in (sys.version_info[:2], OLDEST))
        sys.exit(f"{sys.executable} is Python {running}; an adapter needs {oldest} or later")
    here = os.path.dirname(os.path.realpath(__file__))
    # What a script is run with first is its own folder, whose modules are called as some of the standard library are.
    sys.path[:] = [os.getcwd(), *(path for path in sys.path if os.path.realpath(path) != here)]
    bare("refdist")
    bare("refdist.conformance", os.path.dirname(here))
    from refdist.conformance.adapter import child

    child.main()


if __name__ == "__main__":
    main()
