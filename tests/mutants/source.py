"""The source of the core, mutated by cosmic-ray; `pip install cosmic-ray`."""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mutants.forks import CHECKOUT, with_source

FILES = ("refdist/core/agreement.py", "refdist/core/context_stack.py", "refdist/core/lockstep.py",
         "refdist/array/collectives.py", "refdist/array/ordered_sum.py", "refdist/array/operators.py",
         "refdist/array/indexed_slices.py", "refdist/nest.py", "refdist/input/*.py", "refdist/strategies/*.py",
         "refdist/variables/*.py")


class Mutant(NamedTuple):
    """A file, and its source with one thing changed."""

    file: str
    operator: str
    source: str

    @property
    def name(self) -> str:
        """The lines that differ."""
        before = (CHECKOUT / self.file).read_text().splitlines()
        lines = [line for line in difflib.unified_diff(before, self.source.splitlines(), n=0, lineterm="")
                 if line[0] in "-+@" and not line.startswith(("---", "+++"))]
        return f"{self.file} ({self.operator}): " + " ".join(" ".join(line.split()) for line in lines)

    @property
    def lines(self) -> list[int] | None:
        """The lines of the statement that differs, if it is in a function; else None: it runs at import."""
        source = (CHECKOUT / self.file).read_text()
        matcher = difflib.SequenceMatcher(None, source.splitlines(), self.source.splitlines(), autojunk=False)
        changed = {line for tag, first, end, *_ in matcher.get_opcodes() if tag != "equal"
                   for line in range(first + 1, max(end, first + 1) + 1)}
        lines: set[int] = set()
        for line in changed:
            statement = _statement(ast.parse(source), line)
            if statement is None:
                return None
            lines |= statement
        return sorted(lines)

    @property
    def mutate(self) -> Callable[[], None]:
        """What makes a fork import it."""
        return with_source(self.file, self.source)


def sample(count: int, seed: int = 0, files: Sequence[str] = FILES) -> list[Mutant]:
    """So many mutants of these files, drawn from all of them, always the same ones.

    They are other programs than the source: a mutant of an annotation or a docstring is none, and of two that are the
    same program one counts.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    operators = {name: get_operator(name)() for name in operator_names() if not name.startswith("core/Variable")}
    sources = {path.relative_to(CHECKOUT).as_posix(): path.read_text()
               for pattern in files for path in sorted(CHECKOUT.glob(pattern))}
    places: list[tuple[str, str, int]] = []
    for file, source in sources.items():
        nodes = list(ast_nodes(get_ast(source)))
        for name, operator in operators.items():
            positions = sum(len(list(operator.mutation_positions(node))) for node in nodes)
            places += [(file, name, occurrence) for occurrence in range(positions)]
    random.Random(seed).shuffle(places)
    seen = {"", *map(_essence, sources.values())}
    drawn: list[Mutant] = []
    for file, name, occurrence in places:
        if len(drawn) == count:
            break
        mutated = mutate_code(sources[file], operators[name], occurrence)
        essence = _essence(mutated)
        if essence not in seen:
            seen.add(essence)
            drawn.append(Mutant(file, name.removeprefix("core/"), mutated))
    return drawn


def _statement(tree: ast.Module, line: int) -> set[int] | None:
    # The lines of the innermost statement around a line, without those of the statements in it.
    inner: ast.stmt | None = None
    function = False
    for node in ast.walk(tree):  # from the outside in
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            function = function or isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef))
            inner = node
    if inner is None or not function or isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
        return None
    end = min((child.lineno - 1 for child in ast.walk(inner) if isinstance(child, ast.stmt) and child is not inner
               and child.lineno > inner.lineno), default=inner.end_lineno or inner.lineno)
    return set(range(inner.lineno, max(end, line) + 1))


def _essence(source: str) -> str:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if (isinstance(node, ast.AnnAssign) and node.value is None) or isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(tree)
