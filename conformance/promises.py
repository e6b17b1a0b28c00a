"""Promises: what every sentence of the documents says, and which clauses hold it to that.

A specification that was read out of documents can have overlooked some.  So each sentence of the pages of tf.distribute
in TensorFlow's docstrings has a row in `promises/`, which are Markdown tables, one for each page:

    # ReplicaContext.all_reduce

    | sentences | section | what it promises | clauses |
    |---|---|---|---|
    | 3f2a91 0bc1d2 | Args | The op is a member of ReduceOp or its name. | all_reduce.op-is-a-reduce-op-or-its-name |
    | 77aa01 | description | Where to read about reduce operators. | refers |

The documents are not repeated here: a sentence is known by its fingerprint, a digest of its words, and what it promises
is said in other words. What cannot be a clause has one of the `REASONS` in the last column, with more words after a
colon where one is not enough. Where TensorFlow is installed, `python -m refdist.conformance promises` lists the
sentences that no row explains and the rows whose sentence is not there any more, which is also how the pages of another
version are compared with these.

Who reads a sentence asks what becomes of it: `promises --find "its first words"`. Words that are not kept cannot be
searched, so `first-words.txt` has the digest of the first three words of each sentence of the docstrings, with the
fingerprints of the sentences that begin so; a sentence that is given whole is known by its fingerprint, and any other
words are those of rows and of the rules of their clauses.

A page whose name begins with `web: ` is a web page of an older version. No installed TensorFlow has it, so its rows are
not compared; what it says in the same words as a docstring has its row there.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from . import chapters, distribution, options
from .chapters import Clause

FOLDER = Path(__file__).parent / "promises"
FIRST_WORDS = FOLDER / "first-words.txt"
FIRST = 3  # words, by which a sentence is found
MOST = 20  # rows that are printed
COMMAND = "testee:COMMAND"  # what a printed command tests where nothing else is named
HEAD = "| sentences | section | what it promises | clauses |"
# How the names of web pages begin.
WEB = "web: "
# Why a sentence has no clause.
REASONS = {
    "explains": "background, motivation or advice, which no program can contradict",
    "refers": "it says where to read on",
    "introduces": "it introduces an example, a list or a heading",
    "repeats": "another sentence of the same page, or of the page it overrides, says the same",
    "graphs": "tf.function, graphs, sessions, eager mode: an implementation without graphs has nothing to show",
    "hardware": "speed, memory, or hardware that a program of the specification cannot see",
    "outside": "a part of TensorFlow outside tf.distribute",
    "subclasses": "it asks something of those who write a subclass",
    "untestable": "no finite program decides it; the words after the colon say why",
}


class NotAPromise(ValueError):
    """A row has another form; the text says where and which."""


@dataclass(frozen=True)
class Promise:
    """A row: what one or more sentences of a page promise.

    Attributes:
        page: the name after `tf.distribute.`, as clauses cite it.
        section: of the docstring.
        sentences: fingerprints.
        text: what they promise.
        clauses: those that say so; none if there is a reason.
        reason: one of `REASONS`, or "".
        remark: what follows the reason.
    """

    page: str
    section: str
    sentences: tuple[str, ...]
    text: str
    clauses: tuple[str, ...]
    reason: str
    remark: str


class Sentence(NamedTuple):
    """A sentence of a document."""

    page: str
    section: str
    text: str

    @property
    def fingerprint(self) -> str:
        """Six hexadecimal digits of the SHA-256 of its words, without case, punctuation and mark-up."""
        return _digest(_words(self.text))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:6]


def read(path: Path) -> list[Promise]:
    """The rows of a file.

    Raises:
        NotAPromise: a row has not four columns, no fingerprint, no promise, or neither clauses nor a known reason.
    """
    promises = []
    page = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("# "):
            page = line[2:].strip().strip("`")
        if not line.startswith("|") or line == HEAD or not line.strip("|- "):
            continue
        where = f"{path.name}:{number}: {line!r}"
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 4 or not page:
            raise NotAPromise(f"{where} is not a row `{HEAD}` below a page's name")
        sentences, section, text, last = cells
        reason, _, remark = (part.strip() for part in last.partition(":"))
        clauses = () if reason in REASONS else tuple(last.replace(",", " ").split())
        if not clauses and reason not in REASONS:
            raise NotAPromise(f"{where} names no clause, and none of {', '.join(REASONS)}")
        if not re.fullmatch(r"[0-9a-f]{6}( [0-9a-f]{6})*", sentences) or not section:
            raise NotAPromise(f"{where} has not the fingerprints of its sentences, six digits each, and their section")
        if (clauses and not text) or (reason == "untestable" and not remark):
            raise NotAPromise(f"{where} does not say {'what is promised' if clauses else 'why it is untestable'}")
        promises.append(Promise(page, section, tuple(sentences.split()), text, clauses, reason if not clauses else "",
                             remark if not clauses else ""))
    return promises


def load() -> list[Promise]:
    """The rows of all files."""
    return [promise for path in sorted(FOLDER.glob("*.md")) for promise in read(path)]


# What TensorFlow's pages say.

_SECTION = re.compile(r"(Args?|Returns?|Raises|Yields|Attributes|Usage|Example|Note)s?:\s*$")
# Blocks end at blank lines, items of lists, `name: ` or `name (type): ` at the start of a line, and headings.
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=\s*[`*]*\w+[`*]*(?: \([^)]*\))?: )|\n(?=#)")
_END = re.compile(r"(?<=[.!?:])\s+(?=[\"'`*(A-Z])")
_SPECIAL = ("__init__", "__iter__", "__next__", "__call__", "__enter__")


def sentences(page: str, document: str) -> Iterator[Sentence]:
    """The sentences of a document, without its code."""
    section = "description"
    document = re.sub(r"```.*?(```|\Z)", "\n\n", inspect.cleandoc(document), flags=re.DOTALL)
    for block in _BLOCK.split(document):
        lines = [line for line in block.split("\n") if not re.match(r"\s*(>>>|\.\.\. |\.\.\.$)", line)]
        while lines and (heading := _SECTION.match(lines[0].strip())) and not lines[0].startswith(" "):
            section = heading[1]
            lines = lines[1:]
        # After a prompt comes what it prints.
        if block.lstrip().startswith(">>>"):
            continue
        for text in _END.split(" ".join(" ".join(lines).split())):
            if re.search(r"[A-Za-z]{2}", text):
                yield Sentence(page, section, text)


def pages(distribute: ModuleType) -> dict[str, str]:
    """The docstrings of the public names of tf.distribute, each by the name of the class that defines it."""
    names: dict[str, list[tuple[bool, int, str]]] = {}

    def visit(owner: object, name: str, depth: int) -> None:
        for attribute in dir(owner):
            if attribute.startswith("_") and attribute not in _SPECIAL:
                continue
            value = inspect.getattr_static(owner, attribute) if inspect.isclass(owner) else getattr(owner, attribute)
            value = getattr(value, "fget", None) or getattr(value, "__func__", value)
            path = f"{name}.{attribute}".lstrip(".")
            document = getattr(value, "__doc__", None)
            home = getattr(value, "__module__", None) or ""
            if document and (inspect.ismodule(value) or home.startswith("tensorflow")):
                inherited = inspect.isclass(owner) and attribute not in vars(owner)
                names.setdefault(inspect.cleandoc(document), []).append((inherited, len(path), path))
            if depth and (inspect.isclass(value) or inspect.ismodule(value)):
                visit(value, path, depth - 1)

    visit(distribute, "", 3)
    return {min(places)[2]: document for document, places in names.items()}


def documents() -> dict[str, str]:
    """The pages of the TensorFlow that is installed; that of the library is the docstring of another module."""
    import tensorflow
    from tensorflow.python.distribute import distribute_lib

    return {"tf.distribute": distribute_lib.__doc__ or "", **pages(tensorflow.distribute)}


def compared(promises: Sequence[Promise], texts: Mapping[str, str]) -> tuple[list[Sentence], list[Promise]]:
    """The sentences without a row, and the rows with a sentence that their page does not have; but for web pages."""
    known = {(promise.page, fingerprint) for promise in promises for fingerprint in promise.sentences}
    listed = [sentence for page, text in texts.items() for sentence in sentences(page, text)]
    present = {(sentence.page, sentence.fingerprint) for sentence in listed}
    return ([sentence for sentence in listed
             if (sentence.page, sentence.fingerprint) not in known],
            [promise for promise in promises if not promise.page.startswith(WEB)
             and any((promise.page, fingerprint) not in present for fingerprint in promise.sentences)])


# How a sentence is found.

def first_words(all_sentences: Iterable[Sentence]) -> str:
    """The text of `first-words.txt` for the sentences of all pages."""
    begin: defaultdict[str, set[str]] = defaultdict(set)
    for sentence in all_sentences:
        begin[_digest(_words(sentence.text)[:FIRST])].add(sentence.fingerprint)
    return "".join(f"{digest} {' '.join(sorted(whole))}\n" for digest, whole in sorted(begin.items()))


@functools.cache
def _beginnings() -> dict[str, list[str]]:
    return {line[0]: line[1:] for line in map(str.split, FIRST_WORDS.read_text(encoding="utf-8").splitlines())}


def find(text: str, promises: Sequence[Promise], clauses: Mapping[str, Clause]) -> list[Promise]:
    """The rows of the sentence that is given, of those that begin with these words, or else those with the most of
    the words, where a word weighs more that few rows have.

    Args:
        text: of a document: a sentence, or its first three words and as many more as one likes.
        promises: the rows.
        clauses: by name; their rules are searched, too.
    """
    words = _words(text)
    begin = _beginnings().get(_digest(words[:FIRST]), []) if len(words) >= FIRST else []
    for fingerprints in ([_digest(words)], begin):
        if known := [promise for promise in promises if not set(fingerprints).isdisjoint(promise.sentences)]:
            return known
    searched = [set(_words(" ".join([promise.page, promise.section, promise.text, *promise.clauses,
                                     *(clauses[name].rule for name in promise.clauses)]))) for promise in promises]
    weights = {word: 1 / count for word in words if (count := sum(word in there for there in searched))}
    scores = [sum(weight for word, weight in weights.items() if word in there) for there in searched]
    return [promise for promise, score in zip(promises, scores, strict=True) if score and score == max(scores)]


def described(promise: Promise, clauses: Mapping[str, Clause], command: str) -> Iterator[str]:
    """Lines that say of a row where its sentence stands, what it promises, and how each of its clauses is run alone.

    Args:
        promise: the row.
        clauses: by name.
        command: what runs the suite, to which a clause is added.
    """
    yield f"{promise.page}, {promise.section}: {promise.text or '(no promise)'}"
    if promise.reason:
        yield f"  no clause: {promise.remark or REASONS[promise.reason]}"
    for name in promise.clauses:
        clause = clauses[name]
        yield f"  {name} ({clause.level}; the page is {clause.standing}): {clause.rule}"
        if clause.tensorflow:
            yield f"    TensorFlow 2.21 differs: {clause.tensorflow}"
        yield f"    run alone: {command} --clause {name}"


def _print_rows(text: str, command: str) -> int:
    clauses = {clause.name: clause for chapter in chapters.load() for clause in chapter.clauses}
    rows = find(text, load(), clauses)
    for promise in rows[:MOST]:
        print(*described(promise, clauses, command), "", sep="\n")
    print(f"{len(rows)} rows; the first {MOST} are above, more words leave fewer" if len(rows) > MOST else
          f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}" if rows else
          f"no sentence begins with {' '.join(text.split()[:FIRST])!r}, and no row has one of these words")
    return 0 if rows else 1


def main(arguments: list[str]) -> int:
    """Finds what becomes of a sentence, or compares the rows with the pages of the TensorFlow that is installed; 0 if
    there is such a sentence, or if they agree."""
    parser = argparse.ArgumentParser(f"{distribution.COMMAND} promises", description=main.__doc__)
    parser.add_argument("page", nargs="*", help="only these pages, and those whose name begins so")
    parser.add_argument("--find", metavar="WORDS", help="a sentence of a page, its first words, or words of what it "
                        "promises: prints which clauses decide it, and how each is run alone on what is tested")
    for name, settings in options.OPTIONS:
        if name in options.TESTED:
            about = {"help": "what the printed commands test", "default": COMMAND if name == "--adapter" else ""}
            parser.add_argument(name, **{**settings, **about})
    parser.add_argument("--write-first-words", action="store_true",
                        help=f"write {FIRST_WORDS.name} of the TensorFlow that is installed, before the comparison")
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as ended:
        return 4 if ended.code else 0
    if parsed.find is not None:
        tested = {f"--{name}": value for name, value in vars(parsed).items()}
        return _print_rows(parsed.find, options.command(options.TESTED, tested.get))
    try:
        import tensorflow
    except ImportError:
        print("ERROR: TensorFlow is not installed, whose pages are compared; --find WORDS needs none", file=sys.stderr)
        return 4
    texts = documents()
    written = first_words(sentence for page, text in texts.items() for sentence in sentences(page, text))
    if parsed.write_first_words:
        FIRST_WORDS.write_text(written, encoding="utf-8")
    asked = tuple(parsed.page) or ("",)
    texts = {page: text for page, text in texts.items() if page.startswith(asked)}
    missing, gone = compared([promise for promise in load() if promise.page.startswith(asked)], texts)
    for sentence in missing:
        print(f"{sentence.page} | {sentence.fingerprint} | {sentence.section} | {sentence.text}")
    for promise in gone:
        print(f"{promise.page} | {' '.join(promise.sentences)} | {promise.section} | is not there: {promise.text}")
    print(f"{len(texts)} pages of TensorFlow {tensorflow.__version__}: {len(missing)} sentences without a row, "
          f"{len(gone)} rows without their sentence")
    return 1 if missing or gone else 0
