"""What TensorFlow has and refdist lacks: what to write instead.  The porting table is in docs/porting.md."""

from __future__ import annotations

import sys

from refdist import errors

_NUMPY = "Use NumPy, or the framework of your choice, in the function that `strategy.run` calls."

INSTEAD = {
    "distribute": "Leave the word out: `refdist.X` is `tf.distribute.X`.",
    "function": "Call the function as it is: there are no graphs.",
    "GradientTape": "Write the gradient, or ask JAX, PyTorch or autograd for it; sum it with `all_reduce`.",
    "keras": _NUMPY,
    "losses": _NUMPY,
    "metrics": "Use a variable with synchronization ON_READ and aggregation SUM for each sum.",
    "optimizers": "Sum the gradient with `all_reduce`, and write the step with `variable.assign_sub`.",
}


def no_such_name(module: str, name: str) -> Exception:
    """The error for a name that a module does not have; with what to write instead where TensorFlow has it."""
    if name in INSTEAD:
        return errors.error("RD20", f"{module}.{name}", f"refdist has no {name}", INSTEAD[name],
                            kind=errors.MissingNameError)
    return AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
