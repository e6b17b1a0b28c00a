"""`tf.print`, with TensorFlow's texts of numbers: the fewest digits of two lengths that give the number again.

Tensors, variables and arrays are printed as their numbers, everything else as `repr` has it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from refdist.array.convert import to_numpy
from refdist.tf.texts import TextTensor


def print_(*inputs: object, output_stream: Any = None, summarize: int = 3, sep: str = " ", end: str = "\n",
           name: str | None = None) -> None:
    """Prints values, to stderr unless `output_stream` says otherwise; of long arrays the first and last items.

    Args:
        inputs: what is printed: text as it is, tensors, variables and arrays as their numbers, also in lists, tuples
            and dicts.
        output_stream: a file, or "file://" and a path to append to; None for stderr.
        summarize: how many items of each end of a dimension; -1 for all.
        sep, end: as in `print`.
        name: without effect.

    >>> import sys, refdist.tf as tf
    >>> tf.print("loss", tf.constant([1.0, 0.25]), [True, "a"], output_stream=sys.stdout)
    loss [1 0.25] [True, 'a']

    Source: tf.print.
    """
    text = sep.join(value if type(value) is str else shown(value, summarize) for value in inputs) + end
    if isinstance(output_stream, str):
        with open(output_stream.removeprefix("file://"), "a", encoding="utf-8") as file:
            file.write(text)
    else:
        stream = sys.stderr if output_stream is None else output_stream
        stream.write(text)
        stream.flush()


def shown(value: Any, summarize: int) -> str:
    """The text of a value: of long arrays the first and last items."""
    if type(value) in (list, tuple):
        inner = ", ".join(shown(item, summarize) for item in value)
        return f"[{inner}]" if type(value) is list else f"({inner}{',' * (len(value) == 1)})"
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {shown(item, summarize)}" for key, item in value.items()) + "}"
    numbers = _numbers(value)
    return repr(value) if numbers is None else _rows(numbers, summarize, 0)


def _numbers(value: Any) -> Any:
    # None for what is no tensor, variable or array.
    if isinstance(value, (np.ndarray, np.generic, TextTensor)):
        return np.asarray(value)
    if not all(hasattr(value, name) for name in ("numpy", "dtype", "shape")) or isinstance(value, type):
        return None
    return np.asarray(to_numpy(value.detach() if hasattr(value, "detach") else value.numpy()))


def _rows(array: Any, summarize: int, depth: int) -> str:
    if not array.ndim:
        return _number(array[()])
    places = list(range(len(array) if array.size else 0))
    is_cut = 0 <= 2 * summarize < len(places)
    if is_cut:
        del places[summarize:len(places) - summarize]
    shown = [_rows(array[place, ...], summarize, depth + 1) for place in places]
    if is_cut:
        shown.insert(summarize, "...")
    between = " " if array.ndim == 1 else "\n" * (array.ndim - 1) + " " * (depth + 1)
    return f"[{between.join(shown)}]"


def _number(number: Any) -> str:
    if isinstance(number, (np.bool_, np.integer)):
        return str(int(number))
    if isinstance(number, (str, bytes)):
        return f'"{number.decode(errors="replace") if isinstance(number, bytes) else number}"'
    if number.dtype.kind == "c":
        return str(number)
    # C's DBL_DIG digits and 2 more; of all narrower ones FLT_DIG digits and 3 more.
    kind, few, many = (np.float64, 15, 17) if type(number) is np.float64 else (np.float32, 6, 9)
    short = f"{float(number):.{few}g}"
    return short if kind(short) == kind(number) or np.isnan(number) else f"{float(number):.{many}g}"
