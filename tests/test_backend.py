"""Backends that packages offer: found through their entry points, chosen by name, and what is said when they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import packages
import pytest
from gpu_world import mirrored, program, replica
from packages import Offer

import refdist
from refdist.array import backend

TOY = """
from refdist.backends.simulated import Simulated

class Toy(Simulated):
    \"\"\"Adds one to every sum.\"\"\"

    def sum(self, arrays):
        return super().sum(arrays) + arrays[0].dtype.type(1)
"""


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Installs a package that offers backends: its name, its module's source, and its entry points."""
    yield from packages.offering(backend.GROUP, tmp_path, monkeypatch)


def total() -> float:
    return float(mirrored(2).run(lambda: replica().all_reduce("SUM", 1.0)).values[0])


def test_a_backend_of_a_package_is_found_and_used(offer: Offer) -> None:
    assert "toy" not in backend.names()
    offer("refdist-toy", TOY, toy="Toy")
    assert backend.names() == sorted({*backend.names(), *backend.BUILT_IN, "toy"})
    assert "refdist_toy" not in sys.modules, "looking for names imports nothing"
    before = mirrored(2)
    refdist.set_backend("toy")
    assert type(backend.current_backend()).__name__ == "Toy"
    assert total() == 3
    with pytest.raises(RuntimeError, match=r'\[RD27\].*made with the backend "simulated", and "toy" is in use now'):
        before.run(lambda: 1)
    refdist.set_backend("simulated")
    assert total() == 2


def test_the_environment_chooses_it_too(offer: Offer) -> None:
    site = offer("refdist-toy", TOY, toy="Toy")
    look = ("import refdist; s = refdist.MirroredStrategy(['GPU:0', 'GPU:1']); "
            "print(s.run(lambda: refdist.get_replica_context().all_reduce('SUM', 1.0)).values[0])")
    done = program(sys.executable, "-c", look, PYTHONPATH=str(site), REFDIST_BACKEND="toy")
    assert done.stdout.strip() == "3.0", done.stderr


def test_two_packages_that_offer_one_name_are_both_named(offer: Offer) -> None:
    offer("refdist-toy", TOY, toy="Toy")
    offer("other-toy", TOY, toy="Toy", second="Toy")
    with pytest.raises(LookupError, match=r"\[RD27\] backend 'toy': 2 packages offer it: other-toy, refdist-toy\. "
                       r"Uninstall all but one"):
        refdist.set_backend("toy")
    assert backend.names().count("toy") == 1
    assert total() == 2
    refdist.set_backend("second")
    assert total() == 3


@pytest.mark.parametrize(("source", "point", "message"), [
    ("import refdist_that_is_nowhere", "Toy", r"it cannot be imported: No module named 'refdist_that_is_nowhere'"),
    (TOY, "Tyo", r"it cannot be imported: module 'refdist_toy' has no attribute 'Tyo'"),
    ("Toy = 3", "Toy", r"3 is not a subclass of refdist\.array\.backend\.Backend"),
    ("class Toy: pass", "Toy", r"<class 'refdist_toy\.Toy'> is not a subclass of refdist\.array\.backend\.Backend"),
    ("from refdist.array.backend import Backend\nclass Toy(Backend): pass", "Toy",
     r"Toy lacks the methods freeze, put, to_numpy, xp\. "),
])
def test_a_backend_that_cannot_be_used_is_named_with_its_package(offer: Offer, source: str, point: str,
                                                                 message: str) -> None:
    offer("refdist-toy", source, toy=point)
    with pytest.raises(LookupError, match=rf"\[RD27\] backend 'toy' of refdist-toy: {message}"):
        refdist.set_backend("toy")
    assert refdist.array_module() is np
    assert total() == 2, "the backend in use stays in use"


def test_a_built_in_backend_cannot_be_replaced(offer: Offer) -> None:
    offer("refdist-toy", TOY, simulated="Toy", gpu="Toy")
    assert backend.names().count("simulated") == 1
    refdist.set_backend("simulated")
    assert total() == 2
    for name in ("gpu", "simulated"):  # the others import their libraries
        assert backend.find(name).__module__.startswith("refdist.backends.")


def test_a_name_that_nobody_offers_is_said_with_those_there_are(offer: Offer) -> None:
    offer("refdist-toy", TOY, toy="Toy")
    with pytest.raises(LookupError, match=r"\[RD27\] backend 'tyo': .*\. The backends here are .*gpu, jax, sim.*, toy"):
        refdist.set_backend("tyo")


def test_an_error_of_its_own_comes_out_as_it_is(offer: Offer) -> None:
    def choose() -> Any:
        return refdist.set_backend("toy")

    offer("refdist-toy", TOY + "    def __init__(self):\n        raise OSError('no card')\n", toy="Toy")
    with pytest.raises(OSError, match="no card"):
        choose()
    assert total() == 2
