"""Runs a module of this folder that needs the standard library only: `python -I -S alone.py supervise ...`.

To import one by its name would run `refdist/__init__.py` first, and with it NumPy, which starts threads and takes half
a second.  So the packages are put in place here as bare ones, which know where their modules are and run nothing.
"""

import _signal  # type: ignore[import-not-found]  # to import `signal` takes long enough to be interrupted

if __name__ == "__main__":
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # an interrupt of what follows ends it without one

import json
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec


def bare(name: str, folder: str) -> None:
    """Puts a package with the modules of a folder in place, without running its `__init__`."""
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [folder]
    sys.modules[name] = module_from_spec(spec)


def main() -> None:
    """Runs one of the four programs."""
    here = os.path.dirname(os.path.realpath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    # In a checkout, backends/ lies beside refdist/; installed, inside of it.
    workers = os.path.join(root, "refdist", "workers") if os.path.isdir(os.path.join(root, "refdist")) else \
        os.path.join(root, "workers")
    bare("refdist", root)
    for name, folder in (("workers", workers), ("backends", os.path.dirname(here)), ("backends.mpi", here)):
        bare("refdist." + name, folder)
    from refdist.backends.mpi import processes

    processes.begin()
    program, *arguments = sys.argv[1:]
    # Each imports what it needs: a job has as many supervisors as workers.
    if program == "launch":
        from refdist.backends.mpi import launch
        sys.exit(launch.main(command=arguments[1:], **json.loads(arguments[0])))
    elif program == "serve":
        from refdist.backends.mpi import pmi
        pmi.serve(arguments[0])
    else:
        from refdist.backends.mpi import supervisor
        if program == "supervise":
            supervisor.supervise(arguments)
        else:
            supervisor.limit(int(arguments[0]), float(arguments[1]), arguments[2])


if __name__ == "__main__":
    main()
