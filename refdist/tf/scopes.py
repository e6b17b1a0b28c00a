"""`tf.name_scope`, of which the names of summaries begin, and nothing else does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# The path of the innermost scope, and that of Keras's layers where it was entered.
_innermost: ContextVar[tuple[str, str]] = ContextVar("name scope", default=("", ""))


class name_scope:  # noqa: N801 - TensorFlow's name
    """A block whose name the summaries in it have before their own, `outer/inner/loss`; operations have no names here.

    Args:
        name: one that ends with "/" is taken as the whole path.

    Source: tf.name_scope.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._before: list[tuple[str, str]] = []

    def __enter__(self) -> str:
        layers = _layers()
        path = self.name[:-1] if self.name.endswith("/") else joined(current(), self.name) if self.name else ""
        self._before.append(_innermost.get())
        _innermost.set((path, layers))
        return f"{path}/" if path else ""

    def __exit__(self, *error: object) -> None:
        _innermost.set(self._before.pop())


def current() -> str:
    """The path of the scope around the code that runs; layers of Keras are scopes, too."""
    path, around = _innermost.get()
    layers = _layers()
    if around and (layers == around or layers.startswith(f"{around}/")):
        layers = layers[len(around) + 1:]
    return joined(path, layers)


@contextmanager
def of_function() -> Iterator[None]:
    """The block of a function, in which no scope is that was entered outside: on TensorFlow it is traced by itself."""
    token = _innermost.set(("", _layers() if "keras" in sys.modules else ""))
    try:
        yield
    finally:
        _innermost.reset(token)


def joined(path: str, name: str) -> str:
    """A path with one more name."""
    return f"{path}/{name}" if path and name else path or name


def _layers() -> str:
    # The path of the layer that is called.
    from keras.src.backend.common.name_scope import current_path

    path: str = current_path()
    return path
