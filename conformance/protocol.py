"""What the suite and an implementation say to each other: one JSON object on each line, in UTF-8.

The suite writes to the standard input of the implementation's process and reads its standard output. First each says
who it is, once, the suite first; then there is one answer for each question. `MESSAGES` has the fields of each:

    {"protocol": 1, "suite": "0.1.0", "schema": 1}
    {"protocol": 1, "name": "mine", "version": "1.0", "lacks": ["datasets", "variables"]}
    {"id": 7, "case": {"name": "run.results @ Mirrored 2", "observe": [1, 3], ...}}
    {"id": 7, "answers": [[[1, RESULT], [3, RESULT]]]}

RESULT is as `results.py` says; the results themselves, as the chapter has them, are not sent. An example that fails
before its first statement has a result of statement -1, the error. The implementation ends when its standard input
does.

What it writes to its standard error is kept and shown with the case, and so are lines of its standard output that are
not answers; they cost nothing. What breaks the conversation costs the case that is being run (`session.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, TypeAlias

from . import capabilities, results
from .chapters import Case
from .examples import BEFORE, Answer, Code, Program, program
from .notation import cut, on_one_line
from .programs import size

PROTOCOL = 1
# The version of the form of a case; see cases.schema.json.
SCHEMA = 1
# Every message and the objects in it, with their fields in the order in which they are written. `written` makes all
# that the suite says by it, what the other side says is read by it, and docs/protocol.md is printed from it.
MESSAGES = {
    "suite": {
        "protocol": "the version of the protocol",
        "suite": "the version of the suite",
        "schema": "the version of the form of a case",
    },
    "implementation": {
        "protocol": "the version of the protocol that it speaks; another one than the suite's is wrong usage",
        "name": "what it is called in reports",
        "version": "its version, a text; may be left out",
        "profile": "the profile that it claims; cases that need more are not its cases",
        "lacks": "the capabilities that it does not have, of the profile if it names one; without profile, `lacks` and "
                 "`has` it claims all",
        "has": "in place of `lacks`: those that it has, beside the profile if it names one",
    },
    "question": {
        "id": "the number of the question, from 1; none comes twice",
        "case": "what to run",
    },
    "case": {
        "name": "the clause and the strategy",
        "clause": "the identifier of the clause",
        "needs": "the capabilities that it needs; a case that needs one that is lacking is not asked",
        "strategy": "on which strategy",
        "python": "the example as it stands in its chapter, for an implementation that runs Python",
        "observe": "the numbers of the statements of the example, from 0, whose results are wanted",
        "programs": "the example as steps, for all other languages: the program of each worker, or one for all",
        "only_python": "in place of `programs`: why only Python can run the example; answer with `skip`",
    },
    "strategy": {
        "kind": "Default, OneDevice, Mirrored, Central, MultiWorker or TPU",
        "workers": "how many workers there are; 1 for every other kind than MultiWorker",
        "replicas": "how many replicas each worker has",
    },
    "python": {
        "file": "the name of the chapter",
        "preamble": "a block of code that is run first and has no results, or null",
        "example": "the block of code with the statements",
    },
    "code": {
        "line": "the number of its first line in the chapter",
        "source": "its text",
    },
    "answer": {
        "id": "that of the question",
        "answers": "for each worker, in their order, a list of pairs: the number of a statement, and its result; where "
                   "another statement (-1: the preamble, or making the strategy) ends the program, its error, too",
        "skip": "in place of `answers`: why this case is left out",
        "unsupported": "in place of `answers`: what of it is not implemented",
    },
}
# What an answer has beside its id, one of them.
ANSWERS = tuple(MESSAGES["answer"])[1:]

Message: TypeAlias = "dict[str, Any]"


class Unusable(Exception):
    """An implementation cannot be tested at all: it cannot be started, or does not speak the protocol of the suite."""


def written(kind: str, /, **fields: object) -> Message:
    """A message, or an object in one, with those of its fields that are given.

    Raises:
        KeyError: a field is not one of its own.
    """
    if unknown := set(fields) - set(MESSAGES[kind]):
        raise KeyError(f"{', '.join(sorted(unknown))}: not in MESSAGES[{kind!r}]")
    return {name: fields[name] for name in MESSAGES[kind] if name in fields}


# Who they are.

def suite(version: str) -> Message:
    """What the suite says first."""
    return written("suite", protocol=PROTOCOL, suite=version, schema=SCHEMA)


class Implementation(NamedTuple):
    """Who an implementation is.

    Attributes:
        name, version: for reports.
        lacks: the capabilities that it does not have.
        outside: those of them that its profile does not have.
        profile: its name, or "".
    """

    name: str
    version: str
    lacks: frozenset[str]
    outside: frozenset[str] = frozenset()
    profile: str = ""


def implementation(name: str, version: str, lacks: frozenset[str], profile: str = "") -> Message:
    """What an implementation says first."""
    claimed = {"profile": profile} if profile else {}
    return written("implementation", protocol=PROTOCOL, name=name, version=version, **claimed, lacks=sorted(lacks))


def _is_ours(stated: object) -> bool:
    return type(stated) is int and stated == PROTOCOL  # 1.0 and true are equal to 1


def read_suite(message: Message) -> None:
    """Checks what the suite said first.

    Raises:
        Unusable: it speaks another protocol.
    """
    if not _is_ours(message.get("protocol")):
        raise Unusable(f"the suite speaks protocol {message.get('protocol')!r}, and this is protocol {PROTOCOL}")


def read_implementation(message: Message) -> Implementation:
    """Reads the first message of an implementation, which says who it is and what it can do.

    Raises:
        Unusable: it speaks another protocol, or names capabilities or a profile that do not exist.
    """
    if not _is_ours(message.get("protocol")):
        raise Unusable(f"it speaks protocol {cut(message.get('protocol'))}, and this suite speaks protocol {PROTOCOL}")
    name, version = message.get("name"), message.get("version", "")
    if not isinstance(name, str) or not name or not isinstance(version, str):
        raise Unusable(f"its first line is {cut(message)}; write {{\"protocol\": {PROTOCOL}, \"name\": NAME, "
                       f"\"version\": VERSION, \"lacks\": [...]}}")
    if unknown := [key for key in message if key not in MESSAGES["implementation"]]:
        raise Unusable(f"its first line has {', '.join(map(cut, unknown))}; the fields of that line are "
                       f"{', '.join(MESSAGES['implementation'])}")
    if "lacks" in message and "has" in message:
        raise Unusable("its first line says both what it lacks and what it has; one of them is enough")
    named = message.get("lacks", message.get("has", []))
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise Unusable(f"its capabilities are {cut(named)}; they are a list of names")
    return claimed(on_one_line(name), on_one_line(version), named, message.get("profile", ""), "has" in message)


def claimed(name: str, version: str, names: Collection[str], profile: object = "", had: bool = False) -> Implementation:
    """An implementation that claims a profile, or everything, without the capabilities of these names.

    Args:
        name, version: of the implementation.
        names: those that it lacks.
        profile: that it claims, or "".
        had: whether it has those that are named, beside the profile, and nothing else.

    Raises:
        Unusable: a capability or the profile does not exist.
    """
    known = frozenset(capabilities.TABLE)
    if unknown := set(names) - known:
        raise Unusable(f"{', '.join(sorted(map(cut, unknown)))} is not a capability; there are "
                       f"{', '.join(capabilities.TABLE)}")
    if not isinstance(profile, str) or profile not in {"", *capabilities.PROFILES}:
        raise Unusable(f"{cut(profile)} is not a profile; there are {', '.join(capabilities.PROFILES)}")
    outside = known - capabilities.PROFILES[profile][1] if profile else frozenset[str]()
    if had:
        lacks = (outside or known) - set(names)
        return Implementation(name, version, lacks, outside & lacks, profile)
    return Implementation(name, version, outside | set(names), outside, profile)


# Questions.

def question(number: int, case: Message) -> Message:
    """What the suite asks."""
    return written("question", id=number, case=case)


def case_message(case: Case, **steps: object) -> Message:
    """A case as data, without its results; `steps` are its `programs`, or why there are none (`only_python`)."""
    sent = program(case)
    return written("case", name=case.name, clause=case.clause.name, needs=sorted(capabilities.needs(sent)),
                   **program_message(sent), **steps)


def program_message(program: Program) -> Message:
    """A program as data."""
    workers, replicas = size(program.strategy)
    preamble = program.preamble and _code_message(program.preamble)
    python = written("python", file=program.file, preamble=preamble, example=_code_message(program.example))
    strategy = written("strategy", kind=program.strategy.partition(" ")[0], workers=workers, replicas=replicas)
    return written("case", strategy=strategy, python=python, observe=list(program.observe))


def _code_message(code: Code) -> Message:
    return written("code", line=code.line, source=code.source)


def read_program(message: Message) -> Program:
    """The program of a question."""
    strategy, python = message["strategy"], message["python"]
    kind, workers, replicas = strategy["kind"], strategy["workers"], strategy["replicas"]
    name = f"{kind} {workers}x{replicas}" if kind == "MultiWorker" else \
        kind if kind in ("Default", "OneDevice") else f"{kind} {replicas}"
    preamble = python["preamble"]
    return Program(name, python["file"], Code(preamble["source"], preamble["line"]) if preamble else None,
                   Code(python["example"]["source"], python["example"]["line"]), tuple(message["observe"]))


# Answers.

def answers_message(answers: list[Answer]) -> list[list[list[Any]]]:
    """The answers of the workers as data."""
    return [[[statement, result] for statement, result in answer.items()] for answer in answers]


def read_answers(message: object, program: Program) -> list[Answer]:
    """The answers of the workers.

    Raises:
        ValueError: they do not have the form of answers to this program.
    """
    if not isinstance(message, list):
        raise ValueError(f"the answers are {cut(message)}; they are a list with the answer of each worker")
    return [_read_answer(pairs, f"worker {worker}", program) for worker, pairs in enumerate(message)]


def _read_answer(pairs: object, worker: str, program: Program) -> Answer:
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"{worker}: its answer is {cut(pairs)}; it is a list of [statement, result]")
    answer: Answer = {}
    for statement, result in pairs:
        where = f"{worker}, statement {cut(statement)}"
        if isinstance(statement, bool) or not isinstance(statement, int) or statement in answer:
            raise ValueError(f"{where}: a statement is a number, and has one result")
        if statement not in program.observe and not (isinstance(result, dict) and "error" in result):
            raise ValueError(f"{where}: its result was not asked for; write those of {list(program.observe)}, and an "
                             f"error where one ended the example too early, at {BEFORE} if before its first statement")
        if fault := results.fault(result):
            raise ValueError(f"{where}: {fault}")
        answer[statement] = result
    return answer
