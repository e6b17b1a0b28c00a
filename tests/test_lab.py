"""The exercises of `examples/lab.ipynb`: each shows its mistake, refdist names it, and the mended program is right."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_notebook import Tables

LAB = Path(__file__).parents[1] / "examples" / "lab.ipynb"
NOTEBOOK = json.loads(LAB.read_text(encoding="utf-8"))
CODE = {cell["id"]: cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"}

# Of each exercise: what its reader sees when the broken program runs, and what refdist says of it.
SEEN = {
    1: ("loss 102.0 and the mean of the squares is 25.5", "[RD38] all_reduce SUM: the means over the replicas' rows"),
    2: ("weight -21407", "REDUCED TWICE"),
    3: ("means of the batches [4.5, 10.25] of", "[RD40] all_reduce MEAN: the replicas have different numbers of rows"),
    4: ("rows until now 8\nrows until now 8\nrows until now 8\n", "variables 3"),
    5: ("[RD06] all_reduce: replica 0 at ", "InvalidContextError RD06"),
    6: ("variance 0.25 of 5.25", "a statistic of the batch"),
    7: ("1 steps: [62.0]", "step 1 rows on each replica [8, 8, 8, 8] which [[[0, 7]], [[8, 15]]"),
    8: (4 * "[0.001230153371579945, 0.2987455427646637]\n", "replicas 0-3 make a generator with the seed 7"),
    9: ("result 2.0", "LOST UPDATE"),
    10: ("before 8 after 16", "seen:0 copy 3 4"),
}


class Notebook:
    """What a notebook does with cells: names are kept, and what the last line of a cell comes to is shown."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, cell: dict[str, Any]) -> str:
        """What a reader sees of the cell: what it prints, warns of and shows, or the exception that it is to raise."""
        source = "".join(cell["source"])
        file = f"lab.ipynb {cell['id']}"
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        printed, shown = io.StringIO(), ""
        raises = "raises-exception" in cell["metadata"].get("tags", ())
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
            warnings.simplefilter("always")
            try:
                exec(compile(tree, file, "exec"), self.names)
                if isinstance(last, ast.Expr):
                    value = eval(compile(ast.Expression(last.value), file, "eval"), self.names)
                    shown = "" if value is None else as_text(value)
                assert not raises, f"{cell['id']} is marked to raise an exception, and does not"
            except Exception as error:
                if not raises or isinstance(error, AssertionError):
                    raise
                shown = str(error)
        return "\n".join([printed.getvalue(), *(str(warning.message) for warning in caught), shown])


def as_text(value: Any) -> str:
    """What a notebook shows of a value: the cells of its tables, or its text."""
    if not hasattr(value, "_repr_html_"):
        return repr(value)
    tables = Tables(value._repr_html_())
    assert tables.rows
    return "\n".join([*tables.captions, *(" ".join(row) for row in tables.rows)])


@pytest.fixture
def lab() -> Iterator[Notebook]:
    """A notebook in which the first cell has been run."""
    made = Notebook()
    made.run(CODE["imports"])
    yield made


@pytest.mark.parametrize("number", SEEN)
def test_an_exercise_shows_its_mistake_and_mended_it_is_right(number: int, lab: Notebook) -> None:
    seen, message = SEEN[number]
    broken, shown, mended = (CODE[f"{part}-{number}"] for part in ("broken", "shown", "mended"))
    assert seen in lab.run(broken)
    assert message in lab.run(shown)
    *_, check = ast.parse("".join(mended["source"])).body
    assert isinstance(check, ast.Assert)
    right = compile(ast.Expression(check.test), "the assertion", "eval")
    assert not eval(right, lab.names), "the assertion holds for the broken program, too"
    lab.run(mended)


def test_all_cells_run_one_after_another(lab: Notebook) -> None:
    """Nobody restarts a notebook between two exercises; here without those that take long."""
    for cell in CODE.values():
        if not re.search(r"refdist\.(compare|explore)\(", "".join(cell["source"])):
            lab.run(cell)


def test_the_notebook_has_no_outputs_and_says_which_cells_raise() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in CODE.values():
        assert cell["outputs"] == [] and cell["execution_count"] is None
    assert LAB.read_text(encoding="utf-8") == json.dumps(NOTEBOOK, indent=1, ensure_ascii=False) + "\n"


def test_each_exercise_has_its_parts_in_the_order_in_which_they_are_read() -> None:
    ids = [cell["id"] for cell in NOTEBOOK["cells"]]
    parts = ("look", "broken", "question", "shown", "mend", "mended")
    assert ids == ["title", "imports", *(f"{part}-{number}" for number in SEEN for part in parts), "end"]
    for number in SEEN:
        look = "".join(NOTEBOOK["cells"][ids.index(f"look-{number}")]["source"]).split("\n\n", 1)[1]
        assert len(re.findall(r"\.(?:\s|$)", look)) == 3, f"exercise {number} begins with three sentences"
        question = "".join(NOTEBOOK["cells"][ids.index(f"question-{number}")]["source"])
        assert question.startswith("**Question.**") and "?" in question
        assert CODE[f"mended-{number}"]["metadata"]["jupyter"] == {"source_hidden": True}


def test_links_of_the_notebook_lead_somewhere() -> None:
    texts = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "markdown"]
    links = {link for text in texts for link in re.findall(r"\]\(([^)#]+)\)", text)}
    assert links and [link for link in links if not (LAB.parent / link).exists()] == []
