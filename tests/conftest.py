"""What a run of the tests says at its top, how inputs are drawn, and the pretend GPUs of tests that need some."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Browser, why_no_browser
from gpu_world import stand_in, why_no_gpu
from hypothesis import settings

import refdist

# Keras computes on the CPU, as replicas do, also in a test that imports it before refdist.
os.environ.setdefault("KERAS_TORCH_DEVICE", "cpu")

# The same inputs in every run, and no test fails because the machine is busy; `make fuzz` tries other inputs.
settings.register_profile("test", derandomize=True, deadline=None, database=None, max_examples=60)
settings.register_profile("fuzz", deadline=None, database=None, max_examples=300, print_blob=True)
settings.load_profile("test")


def pytest_report_header() -> str:
    reason = why_no_gpu()
    return f"GPU tests: on a stand-in for CuPy; no GPU code runs ({reason})" if reason else "GPU tests: on a GPU too"


def pytest_collection() -> None:
    """Looks for no garbage among thousands of new tests, which took a quarter of the time to find them."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leaves thousands of tests out of each collection of garbage, above all in the forks that some tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(params=[1, 2, 3], ids=lambda n: f"{n} GPU{'s' * (n > 1)}")
def cupy(request: Any) -> Iterator[Any]:
    """The stand-in for CuPy with 1, 2 or 3 GPUs, divided into 4 logical ones."""
    with stand_in(request.param) as module:
        refdist.config.set_simulated_devices(gpu=4)
        yield module


@pytest.fixture
def two() -> Iterator[Any]:
    """The stand-in for CuPy with 2 GPUs."""
    with stand_in(2) as module:
        yield module


@pytest.fixture(scope="module", autouse=True)
def own_devices() -> Iterator[None]:
    """An adapter of the suite states the devices of the process; the next module begins without them."""
    yield
    refdist.config.reset_simulated_devices()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for tests of pages."""
    if reason := why_no_browser():
        pytest.skip(reason)
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
