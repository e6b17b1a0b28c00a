"""Which checks a program asks for that take time: by the environment, or by `refdist.config.checks`."""

from __future__ import annotations

import os
from collections.abc import Callable

from refdist import errors
from refdist.runtime import Field, Late

VARIABLE = "REFDIST_CHECKS"
# How workers compare their calls; the first level is the default.
LEVELS = ("all", "first", "off")
_TYPES, _WATCH = "types", "watch"


def asked() -> tuple[bool, bool, str]:
    """Whether the environment asks for types and watches, and how workers compare their calls: "types,watch,first".

    Raises:
        RD34: it asks for something else.
    """
    text = os.environ.get(VARIABLE, "")
    words = [word for word in text.split(",") if word]
    levels = [word for word in words if word not in (_TYPES, _WATCH)]
    if len(levels) > 1 or not {*levels} <= {*LEVELS}:
        raise errors.error("RD34", f"environment variable {VARIABLE}={text!r}", "it is not a level of checks",
                           f"Write one of {', '.join(LEVELS)}, or {_TYPES}, or {_WATCH}, or several with commas "
                           "between.")
    return _TYPES in words, _WATCH in words, levels[0] if levels else LEVELS[0]


types: Field[bool] = Field("whether values know what they are to the other replicas", lambda: asked()[0])
watch: Field[bool] = Field("whether it is watched what programs rarely do on purpose", lambda: asked()[1])
# What is called where a block ends for which types were on, or where they are switched off.
types_off: Late[Callable[[], None]] = Late()


def switch(types_wanted: bool | None, watch_wanted: bool | None) -> None:
    """Switches checks on or off; None leaves one as it is."""
    if watch_wanted is not None:
        watch.value = watch_wanted
    if types_wanted is not None:
        types.value = types_wanted
        if not types_wanted:
            types_off.value()
