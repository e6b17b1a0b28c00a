"""Texts use the words of the field: docstrings, comments, messages and chapters."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What is not written, and what is written instead.
INSTEAD = {
    r"(?<!there )(?<!There )\b(?:is|are) no (?!longer\b|more\b)[a-z-]+": "is not a ..., does not exist",
    r"\banew\b": "again, from the beginning",
    r"\b(?:nobody|everybody|whoever)\b": "no replica, all workers, the caller, the process that ...",
    r"\bmeetings?\b": "rendezvous, or the collective call",
    r"\b(?:brings?|brought)\b": "contributes, combined, has",
    r"\boutside every\b": "outside any",
}
STRINGS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
TEXTS = [path for folder in ("refdist", "backends", "conformance") for path in sorted((ROOT / folder).rglob("*.py"))]
TEXTS += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS += sorted((ROOT / "conformance" / "spec").glob("*.md"))


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """The number of its first line, and the text, of every comment and string, or paragraph of a chapter."""
    text = path.read_text()
    if path.suffix == ".md":
        # Programs are checked by the code they use; their lines are kept for the numbers.
        text = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
        for match in re.finditer(r"(?:[^\n]+\n?)+", text):
            yield text.count("\n", 0, match.start()) + 1, match[0]
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in STRINGS:
            yield token.start[0], token.string


def foreign(text: str) -> list[tuple[str, str]]:
    """What is not written so, with what to write instead."""
    joined = " ".join(re.sub(r"\n\s*#?", " ", text).split())
    return [(match[0], instead) for pattern, instead in INSTEAD.items() for match in re.finditer(pattern, joined)]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_use_the_words_of_the_field(path: Path) -> None:
    found = [f"{path.name}:{line}: {words!r}: write {instead}"
             for line, text in paragraphs(path) for words, instead in foreign(text)]
    assert not found


@pytest.mark.parametrize(("text", "count"), [
    ("a value that is no array", 1), ("axes that are\n    no ints", 1), ("there is no batch", 0),
    ("There are no rows", 0), ("it is no longer there", 0), ("start it anew", 1), ("what everybody has", 1),
    ("a meeting of replicas", 1), ("meet", 0), ("what replica 0 brought", 1), ("outside every scope", 1),
    ("is not an array", 0), ("is nothing", 0)])
def test_what_is_found(text: str, count: int) -> None:
    assert len(foreign(text)) == count
