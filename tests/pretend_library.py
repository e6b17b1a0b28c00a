"""A library whose arrays can be written to, in place of PyTorch, which `make test` does not install.

    with process.fresh():
        pretend_library.install()
        ...         # an array of `Pretend` is a guest
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refdist.array.backend import made
from refdist.backends.simulated.hosted import Hosted


class Pretend:
    """An array; its numbers are in `numbers`, and anybody may write to them."""

    __array_ufunc__ = None
    # refdist asks whose an array is by the package of its type.
    __module__ = "torch.pretend"

    def __init__(self, numbers: Any) -> None:
        self.numbers = np.array(numbers)
        self.dtype, self.shape, self.ndim = self.numbers.dtype, self.numbers.shape, self.numbers.ndim

    def __getitem__(self, key: Any) -> Pretend:
        return Pretend(self.numbers[key])

    def __len__(self) -> int:
        return len(self.numbers)

    def __mul__(self, number: float) -> Pretend:
        return Pretend(self.numbers * self.dtype.type(number))

    def __int__(self) -> int:
        return int(self.numbers)

    def __float__(self) -> float:
        return float(self.numbers)


class Library(Hosted):
    """The backend of these arrays."""

    array_types = (Pretend,)

    def xp(self, device: str = "") -> Any:
        return np

    def view(self, array: Any) -> Any:
        view = array.numbers.view()
        view.flags.writeable = False
        return view

    def made(self, array: Any, like: Any = None) -> Any:
        return Pretend(array)

    def freeze(self, array: Any) -> Any:
        return array

    def lend(self, array: Any) -> Any:
        return Pretend(array.numbers)

    def is_immutable(self, array: Any) -> bool:
        return False


def install() -> None:
    """Makes it the library named "torch" of this process."""
    made.value["torch"] = Library()
