"""What pytest collects: one test, which the plugin calls for every case."""

from __future__ import annotations

from typing import Any

import pytest

from refdist.conformance.case import Case
from refdist.conformance.plugin import check


def test_case(conformance_case: Case, adapter: Any, request: pytest.FixtureRequest) -> None:
    """A behaviour of tf.distribute."""
    check(conformance_case, adapter, request.config)
