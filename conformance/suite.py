"""The test that pytest collects; the plugin parametrizes it with the cases."""

from __future__ import annotations

import pytest

from refdist.conformance.chapters import Case
from refdist.conformance.plugin import check


def test_case(conformance_case: Case, request: pytest.FixtureRequest) -> None:
    """What a clause of the specification says, on one strategy."""
    check(conformance_case, request)
