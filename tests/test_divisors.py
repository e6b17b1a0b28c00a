"""Whether the text of a program divides what it reduces by the number of replicas, or only something else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from refdist.core import divisors
from refdist.core.call_site import Place

# Of each program the call of `all_reduce` or `assign` is asked about.
DIVIDED = {
    "at once": "g = c.all_reduce(g) / strategy.num_replicas_in_sync",
    "under its name": "g = c.all_reduce(g)\nw.assign_sub(rate * (g / replicas))",
    "in place": "g = c.all_reduce(g)\ng /= world_size",
    "by a method": "g = c.all_reduce(g)\ng.div_(world_size)",
    "as a product": "share = 1 / n_gpus\ng = c.all_reduce(g) * share",
    "after it was returned":
        "def step(g):\n return g, c.all_reduce(g)\n\n_, g = strategy.run(step)\nprint(g / replicas)",
    "of what a lambda returns": "total = strategy.run(lambda g: c.all_reduce(g)).values[0]\nprint(total / replicas)",
    "after it went through another function":
        "def total(g):\n return c.all_reduce(g)\n\ndef step(x):\n t = total(x)\n return t.copy()\n\n"
        "print(run(step) / replicas)",
    "in a function that it is passed to": "def shown(x):\n return x / replicas\n\nshown(c.all_reduce(g))",
    "by a parameter": "def over(x, n):\n return x / n\n\nover(c.all_reduce(g), parts)",
    "elsewhere": "from helpers import over\nover(c.all_reduce(g), strategy.num_replicas_in_sync)",
    "kept in a list": "seen = []\nfor g in rows:\n seen.append(c.all_reduce(g))\nprint(sum(seen) / replicas)",
    "kept in a dict": "told = {}\ntold['loss'] = c.all_reduce(g)\nprint({k: v / replicas for k, v in told.items()})",
    "kept in an object":
        "class A:\n def f(self):\n  self.g = c.all_reduce(g)\n def h(self):\n  return self.g / replicas",
    "as a global": "total = 0\ndef f():\n global total\n total += c.all_reduce(g)\n\nprint(total / replicas)",
    "of a variable": "loss.assign(c.all_reduce(g))\nprint(loss / replicas)",
    "of the variable that is assigned to": "loss.assign(g)  # seed\nprint(loss.read_value() / replicas)",
    "the rate": "rate = 0.1 / replicas\nw.assign_sub(rate * c.all_reduce(g))",
    "the rate in place": "rate /= replicas\nw.assign_sub(rate * c.all_reduce(g))",
    "the rate of an optimizer": "o = SGD(0.1 / replicas)\no.apply_gradients(zip(c.all_reduce(g), w))",
    "the rate of an optimizer of PyTorch's": "o = SGD(w, lr=0.1 / replicas)\nw.grad = c.all_reduce(g)\no.step()",
    "the rate in a group": "for group in o.param_groups:\n group['lr'] /= replicas\nw.grad = c.all_reduce(g)\no.step()",
    "the rate that a step is passed":
        "def step(g, rate):\n w.assign_sub(rate * c.all_reduce(g))\n\nrun(step, (g, 0.1 / replicas))",
    "what is reduced": "loss = loss / replicas\ng = tape.gradient(loss)\nc.all_reduce(g)",
    "by what was counted": "mean, count = c.all_reduce('SUM', [g, 1.0])\nprint(mean / count)",
    "by what was counted alone": "mean = c.all_reduce('SUM', g)\nn = c.all_reduce('SUM', 1.0)\nprint(mean / n)",
    "in a zip": "for p, g in zip(w, c.all_reduce(g)):\n p.grad = g / replicas",
}
NOT_DIVIDED = {
    "nothing": "g = c.all_reduce(g)",
    "another value": "g = c.all_reduce(g)\nprint(loss / replicas)",
    "rows of a batch": "batch = 64 / replicas\ng = c.all_reduce(g)\nfor x in data.batch(batch):\n run(g, x)",
    "steps": "steps = rows / (batch * replicas)\ng = c.all_reduce(g)",
    "another item":
        "def step(g):\n return loss, c.all_reduce(g)\n\nloss, g = strategy.run(step)\nprint(loss / replicas)",
    "what is computed with the new weights":
        "def step(x):\n g = c.all_reduce(x @ w)\n w.assign_sub(0.1 * g)\n return (x @ w).mean()\n\n"
        "print(strategy.run(step) / replicas)",
    "the same, otherwise written": "g = c.all_reduce(x @ w)\nw -= 0.1 * g\nprint((x @ w) / replicas)",
    "the same, written out": "g = c.all_reduce(x @ w)\nw.assign(w - 0.1 * g)\nprint((x @ w) / replicas)",
    "of the same name elsewhere": "def train():\n loss = c.all_reduce(g)\n\ndef test(loss):\n return loss / replicas",
    "by a parameter, of something else":
        "def scaled(x, std):\n return x / std\n\nx = scaled(x, 2)\ng = c.all_reduce(x)",
    "by another number": "g = c.all_reduce(g) / 32",
    "its length": "g = c.all_reduce(g)\nprint(len(g) / replicas)",
    "what is printed beside it": "share = loss / replicas\ng = c.all_reduce(g)\nprint(g, share)",
}


def divides(text: str, folder: Path, multiplied: bool = False) -> bool:
    file = folder / "program.py"
    file.write_text(text)
    [call] = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
              and isinstance(node.func, ast.Attribute) and node.func.attr == (
                  "assign" if "# seed" in text else "all_reduce")][:1]
    place = Place(str(file), "", call.lineno, call.end_lineno, call.col_offset, call.end_col_offset)
    return divisors.by_replicas([str(file)], (place,), 4, multiplied)


@pytest.mark.parametrize("case", DIVIDED)
def test_a_result_that_may_be_divided_by_the_replicas_is_seen(case: str, tmp_path: Path) -> None:
    assert divides(DIVIDED[case], tmp_path)


@pytest.mark.parametrize("case", NOT_DIVIDED)
def test_what_else_is_divided_by_the_replicas_does_not_count(case: str, tmp_path: Path) -> None:
    assert not divides(NOT_DIVIDED[case], tmp_path)


@pytest.mark.parametrize(("text", "wanted"), [
    ("g = c.all_reduce(g) * replicas", True), ("g = c.all_reduce(g)\ng *= replicas", True),
    ("g = c.all_reduce(g) / (batch // replicas)", True), ("rate = base * replicas\nw -= rate * c.all_reduce(g)", True),
    ("BATCH = 64 * replicas\ng = c.all_reduce(g)", False), ("g = c.all_reduce(g)\nprint(loss * replicas)", False)])
def test_a_product_counts_where_a_mean_is_meant_as_a_sum(text: str, wanted: bool, tmp_path: Path) -> None:
    assert divides(text, tmp_path, multiplied=True) == wanted


def test_of_what_cannot_be_read_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("g = c.all_reduce(g) if")
    place = Place(str(tmp_path / "program.py"), "", 1, 1, 4, 19)
    assert divisors.by_replicas([place.file], (place,), 4, False)


@pytest.mark.parametrize(("text", "wanted"), [
    ("x.sum() / len(x)", True), ("x.sum() / x.shape[0]", True), ("x.sum() / x.size(0)", True),
    ("x.sum() / y.numel()", True), ("x.sum() / max(len(x), 1)", True), ("x.sum() / x.size()[0]", True),
    ("x.sum().div(x.size(0))", True), ("x.sum() / np.float32(len(x))", True), ("x.sum() / 2", False),
    ("x.sum() / x.shape[1]", False), ("x.sum() / x.size(1)", False), ("x.sum() / weight.sum()", False)])
def test_what_is_a_number_of_rows(text: str, wanted: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"def f(x, y):\n    return {text}\n")
    assert divisors.is_by_length(Place(str(tmp_path / "program.py"), "f", 2, 2, 11, 11 + len(text))) == wanted
    (tmp_path / "named.py").write_text(f"n, m = x.shape\ny = {text}\nz = x / n\nz = x / m")
    assert divisors.is_by_length(Place(str(tmp_path / "named.py"), "", 3, 3, 4, 9))
    assert not divisors.is_by_length(Place(str(tmp_path / "named.py"), "", 4, 4, 4, 9))
