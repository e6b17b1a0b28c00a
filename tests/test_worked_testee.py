"""The worked testee: an implementation that knows the suite by its JSON only, and a table that is of use to it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import refdist.conformance
from refdist.conformance import session
from refdist.conformance.chapters import Case, cases

SOURCE = Path(refdist.conformance.__file__).parent / "testees" / "worked.py"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

CHAPTERS = ("contexts", "run", "merge_call", "all_reduce", "all_gather", "reduce", "gather", "variables")


def verdicts(source: Path, chosen: list[Case]) -> dict[str, str]:
    one = session.tester(f"testee:{sys.executable} {source}")
    try:
        return {case.name: one.run(case).outcome for case in chosen}
    finally:
        one.close()


def sample() -> list[Case]:
    return [case for case in cases() if case.chapter.name in CHAPTERS and not case.example.parameters][::4]


@pytest.fixture(autouse=True)
def devices() -> Iterator[None]:
    with refdist.config.temporary_devices():
        yield


def test_it_passes_what_it_does_and_says_what_it_does_not() -> None:
    counts = Counter(verdicts(SOURCE, sample()).values())
    assert set(counts) == {"passed", "skipped", "unsupported"}
    assert counts["passed"] > 120 and counts["skipped"] > 20 and counts["unsupported"] > 20


@pytest.mark.parametrize(("right", "wrong"), [
    ("np.add(total, one, dtype=one.dtype)", "np.add(total, total, dtype=one.dtype)"),
    ("total.dtype if total.dtype.kind in", "np.float64 if total.dtype.kind in"),
    ("np.concatenate(parts, place)", "np.concatenate(parts[::-1], place)"),
    ("FRAMES.all.pop()", "None"),
])
def test_what_it_does_wrong_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    text = SOURCE.read_text()
    assert right in text
    (tmp_path / "wrong.py").write_text(text.replace(right, wrong))
    assert "failed" in verdicts(tmp_path / "wrong.py", sample()).values()


def test_it_knows_nothing_of_the_suite() -> None:
    assert "refdist" not in SOURCE.read_text().replace("python -m refdist.conformance", "")
