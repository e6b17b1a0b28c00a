"""refdist: the semantics of tf.distribute, executable in NumPy.

A call goes strategy -> context -> variables and values -> collectives -> backend, and imports go the same
way, never back:

    names              those of tf.distribute, which are this package's; all of refdist but what launches it
    tf/                other names of TensorFlow, for programs that say `import tensorflow as tf`
    insight/           recordings of what happens, and what is made of them
    nn                 losses of programs with replicas
    coordinator/       functions on the workers of parameter servers
    strategies/        what users call: one file per strategy, the replica context, how values are reduced
    input/             which replica gets which rows of a dataset
    checkpoints/       variables in files
    random/            random numbers, a stream per replica
    variables/         distributed values and variables
    data/              the part of tf.data that distribution needs
    cluster_resolver/  who the workers are
    workers/           what connects processes: launchers, transports, channels
    array/             the contract with what holds arrays (backends/), conversion, collectives
    config             the devices of a machine
    core/              the semantics, without operations on arrays: the stack of contexts, rules, lock step
    nest, journal, missing, plugins, disk, runtime, errors, notebook, interrupts

Names are those of tf.distribute: `refdist.X` is `tf.distribute.X`, `refdist.experimental.X` the same there.
"""

import gc
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

# In a checkout, backends/ and conformance/ lie beside this folder; installed, they lie inside it.
_checkout = Path(__file__).parents[1]
if (_checkout / "setup.cfg").exists():
    class _Beside:
        # Only these two are found there: were it in `__path__`, refdist itself would be in refdist, and again in that.
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            if name not in ("refdist.backends", "refdist.conformance"):
                return None
            return PathFinder.find_spec(name, [str(_checkout)])

    sys.meta_path.insert(0, _Beside)  # before that of another checkout, which an environment may have installed

from refdist import interrupts  # noqa: E402

if interrupts.is_command():
    interrupts.end()

__version__ = "0.1.0"

if TYPE_CHECKING:
    from refdist.insight import breakpoint, compare, explore, record
if TYPE_CHECKING or not interrupts.is_launch():
    _collects = gc.isenabled()
    gc.disable()  # what imports make stays; looking for garbage among it took a tenth of their time
    try:
        from refdist import insight, missing, names
        from refdist.core import tracebacks
        from refdist.names import *  # noqa: F403
        from refdist.workers.launcher import SUPERVISED_VARIABLE as _SUPERVISED
    finally:
        if _collects:
            gc.enable()

    __all__: list[str] = ["breakpoint", "compare", "explore", "record"]
    __all__ += names.__all__

    if not TYPE_CHECKING:
        def __getattr__(name: str) -> object:
            # Imported when a program first asks for one of them.
            if name in ("breakpoint", "compare", "explore", "record"):
                return getattr(insight, name)
            return missing.refuse(sys.modules[__name__], name)

    names.cluster_resolver.launcher.set_tf_config()
    tracebacks.install(names.cluster_resolver.launcher.label())
    missing.explain(sys.modules)
    if os.environ.get(insight.VARIABLE):
        insight.start()
    if _SUPERVISED in os.environ:
        gc.freeze()  # a worker ends sooner, as below

if interrupts.is_command():
    interrupts.are_raised()
    gc.freeze()  # all of this stays until the process ends, when Python looks through what is not frozen
