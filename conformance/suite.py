"""The test that pytest collects; the plugin parametrizes it with the cases."""

from __future__ import annotations

from collections.abc import Callable


def test_case(conformance_case: object, check: Callable[[object], None]) -> None:
    """What a clause of the specification says, on one strategy."""
    check(conformance_case)
