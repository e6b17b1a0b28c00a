"""The test that pytest collects; the plugin parametrizes it with all cases."""

from __future__ import annotations

import pytest

from refdist.conformance.old.case import Case, Implementation
from refdist.conformance.old.plugin import check


def test_case(conformance_case: Case, adapter: Implementation, request: pytest.FixtureRequest) -> None:
    """A behaviour of tf.distribute."""
    check(conformance_case, adapter, request.config)
