"""The sentences of the documents: each row well-formed, each clause there, and nothing left out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refdist.conformance import chapters, promises
from refdist.conformance.__main__ import main
from refdist.conformance.chapters import Clause
from refdist.conformance.promises import HEAD, NotAPromise, Promise, Sentence

CLAUSES = {clause.name: clause for chapter in chapters.load() for clause in chapter.clauses}


def test_every_row_names_clauses_that_are_there() -> None:
    rows = promises.load()
    assert rows
    assert not [(row.page, name) for row in rows for name in row.clauses if name not in CLAUSES]


# Names of pages that clauses cite and rows do not have: the same page under another name.
OTHER_NAMES = {
    "experimental.CommunicationImplementation": "experimental.CollectiveCommunication",
}


def test_every_clause_that_must_hold_is_named_by_a_row_of_its_page() -> None:
    """Pages outside tf.distribute have no rows, nor have the lists of names, which are not sentences; the page of a
    class has the arguments of its constructor, too."""
    named = {(row.page, name) for row in promises.load() for name in row.clauses}

    def is_named(clause: Clause) -> bool:
        page = OTHER_NAMES.get(clause.page, clause.page.removeprefix("tf.distribute."))
        outside = page.startswith("tf.") and page != "tf.distribute"
        without_rows = outside or clause.section in ("Classes", "Functions")
        return without_rows or not {(page, clause.name), (f"{page}.__init__", clause.name)}.isdisjoint(named)

    assert not [(clause.name, clause.page) for clause in CLAUSES.values()
                if clause.level == "MUST" and not is_named(clause)]


def test_no_sentence_of_a_page_has_two_rows() -> None:
    seen = [(row.page, sentence) for row in promises.load() for sentence in row.sentences]
    assert len(seen) == len(set(seen))


def file_of(tmp_path: Path, *rows: str, page: str = "# Strategy.run") -> Path:
    path = tmp_path / "rows.md"
    path.write_text("\n".join([page, "", HEAD, "|---|---|---|---|", *rows]) + "\n", encoding="utf-8")
    return path


def test_a_row_is_read(tmp_path: Path) -> None:
    assert promises.read(file_of(tmp_path, "| 3f2a91 0bc1d2 | Args | It runs. | run.a, run.b |",
                                 "| 3f2a92 | Args | | untestable: it says often |")) == [
        Promise("Strategy.run", "Args", ("3f2a91", "0bc1d2"), "It runs.", ("run.a", "run.b"), "", ""),
        Promise("Strategy.run", "Args", ("3f2a92",), "", (), "untestable", "it says often")]


@pytest.mark.parametrize(("row", "message"), [
    ("| 3f2a91 | Args | It runs. |", "is not a row"),
    ("| 3f2a91 | Args | It runs. | |", "names no clause"),
    ("| 3f2a9 | Args | It runs. | run.a |", "fingerprints"),
    ("| | Args | It runs. | run.a |", "fingerprints"),
    ("| 3f2a91 | | It runs. | run.a |", "section"),
    ("| 3f2a91 | Args | | run.a |", "what is promised"),
    ("| 3f2a91 | Args | | untestable |", "why it is untestable"),
    ("| * | Args | All of it. | explains |", "fingerprints"),
])
def test_what_is_not_a_row_is_refused(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(NotAPromise, match=message):
        promises.read(file_of(tmp_path, row))
    with pytest.raises(NotAPromise, match="below a page's name"):
        promises.read(file_of(tmp_path, "| 3f2a91 | Args | It runs. | run.a |", page=""))


DOCUMENT = """Runs a function. It is called once for each replica.

    >>> strategy.run(step)
    The result: 3.0

    ```python
    No sentence.
    ```

    Note: see the guide.

    Args:
      fn: The function. It may be any
        function.
      args: Its arguments.

    Returns:
      What the function returns.
    """


def test_the_sentences_of_a_document() -> None:
    listed = [(sentence.section, sentence.text) for sentence in promises.sentences("run", DOCUMENT)]
    assert listed == [
        ("description", "Runs a function."), ("description", "It is called once for each replica."),
        ("description", "Note: see the guide."), ("Args", "fn:"), ("Args", "The function."),
        ("Args", "It may be any function."), ("Args", "args:"), ("Args", "Its arguments."),
        ("Returns", "What the function returns.")]


def test_a_fingerprint_is_that_of_the_words() -> None:
    fingerprint = Sentence("a", "Args", "The `op`, in Upper case.").fingerprint
    assert fingerprint == Sentence("b", "Returns", "the op in\nupper case").fingerprint
    assert fingerprint != Sentence("a", "Args", "The op, in lower case.").fingerprint


def test_pages_are_named_after_the_class_that_defines_them() -> None:
    class Base:
        """A strategy."""

        def run(self) -> None:
            """Runs a function."""

        @property
        def extended(self) -> None:
            """More."""

        def _private(self) -> None:
            """Not public."""

    class A(Base):
        """Another strategy."""

    for documented in (Base, A, Base.run, Base.extended.fget, Base._private):
        documented.__module__ = "tensorflow.python"  # type: ignore[union-attr]
    module: Any = SimpleNamespace(Base=Base, A=A)
    assert promises.pages(module) == {"Base": "A strategy.", "A": "Another strategy.", "Base.run": "Runs a function.",
                                      "Base.extended": "More."}


def test_sentences_without_rows_and_rows_without_sentences_are_found() -> None:
    documents = {"run": "Runs. Returns."}
    runs, returns = promises.sentences("run", documents["run"])
    rows = [Promise("run", "description", (runs.fingerprint,), "It runs.", ("run.a",), "", "")]
    assert promises.compared(rows, documents) == ([returns], [])
    assert promises.compared(rows, {"run": "Returns."}) == ([returns], [rows[0]])


def test_web_pages_are_not_compared_and_other_pages_are_known_by_their_names() -> None:
    (runs,) = promises.sentences("run", "Runs.")
    web, typo = (Promise(page, "description", (runs.fingerprint,), "It runs.", ("run.a",), "", "")
                 for page in ("web: run (TensorFlow 2.0)", "rum"))
    assert promises.compared([web, typo], {"run": "Runs."}) == ([runs], [typo])


def test_every_sentence_of_tensorflow_has_a_row() -> None:
    pytest.importorskip("tensorflow")
    documents = promises.documents()
    assert promises.compared(promises.load(), documents) == ([], [])
    there = (sentence for page, text in documents.items() for sentence in promises.sentences(page, text))
    assert promises.first_words(there) == promises.FIRST_WORDS.read_text(encoding="utf-8")


# How a sentence is found.

def places(text: str) -> list[tuple[str, str]]:
    return [(row.page, row.section) for row in promises.find(text, promises.load(), CLAUSES)]


@pytest.mark.parametrize(("text", "page", "section"), [
    # As they stand in the docstrings; what the rows say in other words has few of these.
    ("All-reduces `value` across all replicas.", "ReplicaContext.all_reduce", "description"),
    ("all-reduces value across", "ReplicaContext.all_reduce", "description"),
    ("Invokes `fn` on each", "Strategy.run", "description"),
    # Words of what is promised and of rules.
    ("every replica receives the sum", "ReplicaContext.all_reduce", "description"),
])
def test_a_sentence_is_found_by_its_first_words_or_what_it_promises(text: str, page: str, section: str) -> None:
    assert (page, section) in places(text)
    assert len(places(text)) < 9


def test_a_sentence_that_is_given_whole_is_found_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Sentence("Strategy.run", "description", "It runs a function, on each replica.")
    other = Sentence("Strategy.run", "Args", "It runs a function or two.")
    rows = [Promise(sentence.page, sentence.section, (sentence.fingerprint,), "", ("run.results",), "", "")
            for sentence in (whole, other)]
    index = dict(line.split(" ", 1) for line in promises.first_words([whole, other]).splitlines())
    monkeypatch.setattr(promises, "_beginnings", lambda: {digest: both.split() for digest, both in index.items()})
    assert promises.find("It runs a FUNCTION on each `replica`", rows, CLAUSES) == rows[:1]
    assert promises.find("It runs a", rows, CLAUSES) == rows
    assert promises.find("It runs", rows, CLAUSES) == []


def test_every_fingerprint_of_first_words_has_a_row() -> None:
    known = {fingerprint for row in promises.load() for fingerprint in row.sentences}
    lines = promises.FIRST_WORDS.read_text().splitlines()
    assert {fingerprint for line in lines for fingerprint in line.split()[1:]} <= known


def test_what_is_found_says_how_each_clause_is_run_alone(capsys: pytest.CaptureFixture[str],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refdist.conformance.__main__.NEEDS", ("nothing_of_that_name",))
    assert main(["promises", "--find", "All-reduces value across", "--adapter", "testee:node 'my t.js'"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ReplicaContext.all_reduce, description: ")
    at = lines.index(f"  all_reduce.sum (MUST; the page is right): {CLAUSES['all_reduce.sum'].rule}")
    assert lines[at + 1] == ("    run alone: python -m refdist.conformance --adapter \"testee:node 'my t.js'\" "
                             "--clause all_reduce.sum")
    assert main(["promises", "--find", "xyzzy"]) == 1
    assert "no row has one of these words" in capsys.readouterr().out


def test_a_sentence_without_a_clause_says_why() -> None:
    rows = [row for row in promises.load() if row.reason == "hardware" and not row.remark]
    assert f"  no clause: {promises.REASONS['hardware']}" in promises.described(rows[0], CLAUSES, "")
