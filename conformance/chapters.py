"""Chapters: the text of the specification, read into clauses, examples and cases.

A chapter of `spec/` is Markdown that is written to be read from top to bottom. Its parts that matter to a machine are
few:

    # all_reduce                                    the chapter's name, as in its file name

    Prose.  A block of code before the first clause is the chapter's preamble: what it defines, every example may use.

    ## all_reduce.sum                               a clause and its identifier, which never changes

    **SUM adds the values of all replicas.**        its rule: one sentence in bold
    MUST. ReplicaContext.all_reduce, "Returns". The page is right.
    On Mirrored 2, Central 2, MultiWorker 2x1.      the strategies on which each example is run
    TensorFlow 2.21 differs: it ...                 where it does

    More prose, and one or more examples, each a block of code:

        strategy.run(step)
        # 3.0 | 3.0  float32

A block of code is indented by four spaces.  An example is an ordinary program in the names of tf.distribute, with `tf`,
the `strategy`, and `other`, a second strategy (Mirrored 2), already there; `programs.py` says how results stand in it.

MUST is said by a document; SHOULD is not, and is what a reasonable person expects. What the page says is one of
`STANDINGS`, after a colon with more words where one word is not enough. Levels, standings and strategies are checked
here, so that a chapter that can be loaded is well-formed. A page that does not speak of a rule, or can be read in
several ways, does not promise it, so that MUST does not stand beside it.

An error has the kind that the document names, or the only one that fits what is wrong. Where it names none and an
implementation may as well choose another one, the example lists them: `raises value or type`.

A *case* is an example on one strategy.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .programs import STRATEGY, Example, NotAProgram, size
from .programs import read as read_program

SPEC = Path(__file__).parent / "spec"
# In reading order.
CHAPTERS = ("names", "strategies", "contexts", "run", "merge_call", "all_reduce", "all_gather", "reduce", "gather",
            "values", "variables", "variable_updates", "variable_creators", "extended", "cross_device_ops", "datasets",
            "dataset_functions", "iterators", "cluster_resolvers", "checkpoints", "preemption", "random_numbers",
            "losses", "workers", "tpu", "parameter_servers", "coordinator", "remote_calls", "older_names")

LEVELS = {"MUST": "a document promises it", "SHOULD": "no document says so, and it is what a reasonable person expects"}
STANDINGS = {
    "right": "it says this",
    "silent": "it does not speak of this",
    "ambiguous": "it can be read in several ways",
    "wrong": "it says something else, which no implementation does or could do",
    "contradicted": "another page says something else",
}
NO_PROMISE = ("silent", "ambiguous")


class NotAChapter(ValueError):
    """A chapter does not have the form of one; the text says where."""


@dataclass(frozen=True)
class Clause:
    """A rule of the specification; see the head of the file."""

    name: str
    rule: str
    level: str
    page: str
    section: str
    standing: str
    remark: str
    strategies: tuple[str, ...]
    tensorflow: str
    prose: str
    examples: tuple[Example, ...]
    line: int


@dataclass(frozen=True)
class Chapter:
    """A concept: prose, what all examples share, and clauses."""

    name: str
    prose: str
    preamble: Example | None
    clauses: tuple[Clause, ...]
    path: Path


@dataclass(frozen=True)
class Case:
    """An example on one strategy: what an implementation runs, and what has a verdict.

    Attributes:
        values: what the names of a property are; none where it has not been drawn.
    """

    chapter: Chapter = field(repr=False)
    clause: Clause = field(repr=False)
    example: Example = field(repr=False)
    strategy: str
    values: tuple[tuple[str, object], ...] = ()

    @property
    def name(self) -> str:
        """`all_reduce.sum @ Mirrored 2`, with the number of the example where a clause has several."""
        number = f" #{self.example.number}" if len(self.clause.examples) > 1 else ""
        values = "".join(f", {name} = {value!r}" for name, value in self.values)
        return f"{self.clause.name}{number} @ {self.strategy}{values}"

    def drawn(self, values: Mapping[str, object]) -> Case:
        """The case of a property with a value for each of its names."""
        # Hypothesis draws the names in any order.
        ordered = tuple((name, values[name]) for name in self.example.parameters)
        return Case(self.chapter, self.clause, self.example.drawn(values), self.strategy, ordered)

    @property
    def identifier(self) -> str:
        """The name without spaces, as the tests of the suite are called: `all_reduce.sum@Mirrored-2`."""
        return self.name.replace(" @ ", "@").replace(" ", "-")

    @property
    def source(self) -> str:
        """The program, with what its chapter defines."""
        preamble = self.chapter.preamble.source + "\n\n" if self.chapter.preamble else ""
        return preamble + self.example.source


def read(path: Path) -> Chapter:
    """Reads a chapter.

    Raises:
        NotAChapter: it does not have the form of one.
    """
    return _Reader(path).chapter()


@functools.cache
def load() -> tuple[Chapter, ...]:
    """All chapters, in reading order.

    Raises:
        NotAChapter: a file in `spec/` is not a chapter, or two clauses have one name.
    """
    names = {path.stem for path in SPEC.glob("*.md")}
    if names - set(CHAPTERS):
        raise NotAChapter(f"{sorted(names - set(CHAPTERS))} is not among CHAPTERS")
    return tuple(_chapter(name) for name in CHAPTERS if name in names)


def having(clauses: Collection[str]) -> tuple[Chapter, ...]:
    """The chapters in which a clause may begin with one of these texts, in reading order; all if there is no text.

    No others are read: that takes longer than to carry out the cases of a clause.

    Raises:
        NotAChapter: as `load`.
    """
    if not clauses:
        return load()
    return tuple(_chapter(name) for name in CHAPTERS if (SPEC / f"{name}.md").exists() and any(
        f"{name}.".startswith(clause) or clause.startswith(f"{name}.") for clause in clauses))


@functools.cache
def _chapter(name: str) -> Chapter:
    return read(SPEC / f"{name}.md")


def cases(chapters: tuple[Chapter, ...] | None = None) -> Iterator[Case]:
    """All cases of the chapters, in reading order."""
    for chapter in load() if chapters is None else chapters:
        for clause in chapter.clauses:
            for example in clause.examples:
                for strategy in clause.strategies:
                    yield Case(chapter, clause, example, strategy)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = path.read_text(encoding="utf-8").splitlines()

    def _refuse(self, line: int, what: str) -> NotAChapter:
        return NotAChapter(f"{self._path.name}:{line}: {what}")

    def chapter(self) -> Chapter:
        name = self._path.stem
        if not self._lines or self._lines[0] != f"# {name}":
            raise self._refuse(1, f"the first line is not `# {name}`")
        starts = [i for i, line in enumerate(self._lines) if line.startswith("## ")]
        head = starts[0] if starts else len(self._lines)
        prose, blocks = self._blocks(1, head)
        if len(blocks) > 1:
            raise self._refuse(blocks[1][0], "one block of code is the preamble of a chapter")
        preamble = self._example(0, *blocks[0]) if blocks else None
        clauses = tuple(self._clause(name, start, end)
                        for start, end in zip(starts, [*starts[1:], len(self._lines)], strict=True))
        names = [clause.name for clause in clauses]
        for clause in clauses:
            if names.count(clause.name) > 1:
                raise self._refuse(clause.line, f"there are two clauses {clause.name}")
        return Chapter(name, prose, preamble, clauses, self._path)

    def _blocks(self, start: int, end: int) -> tuple[str, list[tuple[int, str]]]:
        """The prose between two lines, and its blocks of code as (number of the first line, text)."""
        prose, blocks, block, began = list[str](), list[tuple[int, str]](), list[str](), 0
        for i in range(start, end):
            line = self._lines[i]
            if line.startswith("    ") and (block or not prose or not prose[-1].strip()):
                began = began if block else i + 1
                block.append(line[4:])
            elif block and not line.strip():
                block.append("")
            else:
                if block:
                    blocks.append((began, "\n".join(block).rstrip()))
                    block = []
                prose.append(line)
        if block:
            blocks.append((began, "\n".join(block).rstrip()))
        return "\n".join(prose).strip(), blocks

    def _clause(self, chapter: str, start: int, end: int) -> Clause:
        name = self._lines[start][3:].strip()
        line = start + 1
        if not re.fullmatch(rf"{chapter}\.[a-z0-9]+(-[a-z0-9]+)*", name):
            raise self._refuse(line, f"{name!r} is not `{chapter}.words-with-hyphens`")
        prose, blocks = self._blocks(start + 1, end)
        paragraph, _, rest = prose.partition("\n\n")
        text = " ".join(paragraph.split())
        parts = re.fullmatch(r"\*\*(?P<rule>.+?)\*\* (?P<level>\w+)\. (?P<source>.+?)\. The page is (?P<standing>\w+)"
                             r"(?:: (?P<remark>.+?))?\. On (?P<on>.+?)\."
                             r"(?: TensorFlow 2\.21 differs: (?P<tf>.+))?", text)
        if parts is None:
            raise self._refuse(line + 1, f"{name} does not begin with **its rule.** LEVEL. PAGE, \"section\". The page "
                                         f"is STANDING. On STRATEGIES.")
        if parts["level"] not in LEVELS or parts["standing"] not in STANDINGS:
            raise self._refuse(line + 1, f"{name}: the level is one of {', '.join(LEVELS)}, and the page is one of "
                                         f"{', '.join(STANDINGS)}")
        if parts["level"] == "MUST" and parts["standing"] in NO_PROMISE:
            raise self._refuse(line + 1, f"{name}: a page that is {parts['standing']} promises nothing, so the level "
                                         f"is SHOULD")
        strategies = tuple(re.split(r", | and ", parts["on"]))
        for strategy in strategies:
            if not STRATEGY.fullmatch(strategy) or strategies.count(strategy) > 1:
                raise self._refuse(line + 1, f"{name}: {strategy!r} is not a strategy, or is there twice")
        page, _, section = parts["source"].partition(", ")
        examples = tuple(self._example(i + 1, *block) for i, block in enumerate(blocks))
        if not examples:
            raise self._refuse(line, f"{name} has no example")
        for example in examples:
            self._check(name, example, strategies)
        return Clause(name, parts["rule"], parts["level"], page, section.strip('"'), parts["standing"],
                      parts["remark"] or "", strategies, parts["tf"] or "", rest.strip(), examples, line)

    def _check(self, name: str, example: Example, strategies: tuple[str, ...]) -> None:
        for strategy in strategies:
            if not any(statement.expected(strategy) for statement in example.statements):
                raise self._refuse(example.line, f"{name}: no statement has a result on {strategy}")
        for statement in example.statements:
            for strategy in strategies:
                expected = statement.expected(strategy)
                if expected and None not in expected and not expected.keys() >= set(range(size(strategy)[0])):
                    raise self._refuse(statement.line, f"{name}: this statement has a result on some workers only")
            for expectation in statement.expectations:
                if unknown := set(expectation.strategies) - set(strategies):
                    raise self._refuse(statement.line, f"{name}: it is not run on {', '.join(sorted(unknown))}")
            if not all(statement.expected(strategy) for strategy in strategies) and statement.expectations:
                raise self._refuse(statement.line, f"{name}: this statement has results on some strategies only")

    def _example(self, number: int, line: int, source: str) -> Example:
        try:
            return read_program(source, line, number)
        except NotAProgram as error:
            raise self._refuse(error.line, str(error)) from None
