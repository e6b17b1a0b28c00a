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
    "by a decorator":
        "def averaged(f):\n def wrapper(x):\n  return f(x) / replicas\n return wrapper\n\n"
        "@averaged\ndef step(g):\n return c.all_reduce(g)",
    "by a decorator with arguments":
        "def over(n):\n def decorate(f):\n  return lambda x: f(x) / n\n return decorate\n\n"
        "@over(replicas)\ndef step(g):\n return c.all_reduce(g)",
    "what a decorator reduces":
        "def reduced(f):\n def wrapper(x):\n  return c.all_reduce(f(x))\n return wrapper\n\n"
        "@reduced\ndef step(g):\n return g.mean()\n\nprint(step(x) / replicas)",
    "matched": "match c.all_reduce(g):\n case total:\n  print(total / replicas)",
    "matched in a sequence": "match (loss, c.all_reduce(g)):\n case [_, total]:\n  print(total / replicas)",
    "matched in a mapping": "match c.all_reduce({'g': g}):\n case {'g': total, **rest}:\n  print(total / replicas)",
    "matched as the rest": "match c.all_reduce([g, x]):\n case [_, *rest]:\n  print(rest[0] / replicas)",
    "matched in an object": "match c.all_reduce(g):\n case Total(value=(int() | float()) as x):\n  print(x / replicas)",
    "by a number that is matched":
        "def over(total):\n match replicas:\n  case n:\n   return total / n\n\nprint(over(c.all_reduce(g)))",
    "through a parameter with a function's name":
        "def step(x):\n return x.mean()\n\ndef apply(step, t):\n return step(t)\n\n"
        "g = c.all_reduce(g)\nprint(apply(lambda t: t.copy(), g) / replicas)",
    "through a function that is bound anew":
        "def step(x):\n return 0\n\nstep = compiled(c)\ng = c.all_reduce(g)\nprint(step(g) / replicas)",
    "through a partial function":
        "def over(n, x):\n return x / n\n\naverage = partial(over, replicas)\naverage(c.all_reduce(g))",
    "through a function under another name": "def over(x):\n return x / replicas\n\nf = over\nf(c.all_reduce(g))",
    "in the method of what keeps it":
        "class Mean:\n def __init__(self, total):\n  self.total = total\n def value(self):\n"
        "  return self.total / replicas\n\nprint(Mean(c.all_reduce(g)).value())",
    "by an object that is called":
        "class Mean:\n def __call__(self, x):\n  return x / replicas\n\nmean = Mean()\nmean(c.all_reduce(g))",
    "by a method of the class above":
        "class A:\n def over(self, x):\n  return x / replicas\n\nclass B(A):\n def f(self):\n"
        "  return self.over(c.all_reduce(g))",
    "by a method of the class below":
        "class A:\n def over(self, x):\n  return x\n def f(self):\n  return self.over(c.all_reduce(g))\n\n"
        "class B(A):\n def over(self, x):\n  return x / replicas",
    "by a parameter that a run may pass":
        "def over(x, n):\n return c.all_reduce(x) / n\n\nover(x, 32)\nstrategy.run(over, (x, k))",
    "by a default": "def over(x, n=replicas):\n return x / n\n\nover(c.all_reduce(g))",
    "in the condition of a redefinition":
        "if old:\n def over(x):\n  return x\nelse:\n def over(x):\n  return x / replicas\n\nover(c.all_reduce(g))",
    "by an attribute that a constructor is given by its place":
        "class Meter:\n def __init__(self, n):\n  self.n = n\n  self.total = 0\n def update(self, value):\n"
        "  self.total += value\n def result(self):\n  return self.total / self.n\n\n"
        "meter = Meter(strategy.num_replicas_in_sync)\nmeter.update(c.all_reduce(g))\nprint(meter.result())",
    "by an attribute that a constructor is given":
        "class A:\n def __init__(self, n):\n  self.n = n\n def f(self):\n  return c.all_reduce(g) / self.n\n\n"
        "A(n=replicas).f()",
}
NOT_DIVIDED = {
    "nothing": "g = c.all_reduce(g)",
    "another value": "g = c.all_reduce(g)\nprint(loss / replicas)",
    "rows of a batch": "batch = 64 / replicas\ng = c.all_reduce(g)\nfor x in data.batch(batch):\n run(g, x)",
    "steps": "steps = rows / (batch * replicas)\ng = c.all_reduce(g)",
    "another item that is matched": "match (loss, c.all_reduce(g)):\n case [other, _]:\n  print(other / replicas)",
    "the same name in another function":
        "def f(total):\n match c.all_reduce(g):\n  case total:\n   return 0\n\ndef h(total):\n return total / replicas",
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
    "by a function of the same name in another":
        "def train(x):\n def step(x):\n  return c.all_reduce(x)\n return step(x)\n\n"
        "def test(x):\n def step(x):\n  return x.mean()\n return step(x) / replicas",
    "by a lambda of the same name in another":
        "def train(x):\n step = lambda x: c.all_reduce(x)\n return step(x)\n\n"
        "def test(x):\n step = lambda x: x.mean()\n return step(x) / replicas",
    "by a method of the same name of another class":
        "class A:\n def step(self, x):\n  return c.all_reduce(x)\n def f(self, x):\n  return self.step(x)\n\n"
        "class B:\n def step(self, x):\n  return x.mean()\n def f(self, x):\n  return self.step(x) / replicas",
    "by a method of another object":
        "class A:\n def step(self, x):\n  return c.all_reduce(x)\n\nclass B:\n def step(self, x):\n"
        "  return x.mean()\n\na = A()\nb = B()\na.step(x)\nprint(b.step(x) / replicas)",
    "by a function with a method's name":
        "class A:\n def step(self, x):\n  return c.all_reduce(x)\n\ndef step(x):\n return x.mean()\n\n"
        "print(step(x) / replicas)",
    "by what redefines it":
        "def step(x):\n return c.all_reduce(x)\n\nstep(x)\n\ndef step(x):\n return x.mean()\n\n"
        "print(step(x) / replicas)",
    "by a number with the same name elsewhere":
        "def batches():\n n = replicas\n return rows.batch(8 * n)\n\ndef step(x):\n n = 32\n"
        " return c.all_reduce(x) / n",
    "by another attribute of a variable's name":
        "n = replicas\n\ndef step(x, norm):\n return c.all_reduce(x) / norm.n",
    "by another argument of a constructor":
        "class Meter:\n def __init__(self, n, size):\n  self.n = n\n  self.size = size\n def f(self):\n"
        "  return c.all_reduce(g) / self.size\n\nMeter(replicas, 32).f()",
    "another result of a function that is passed twice":
        "def step(x):\n return c.all_reduce(x), 1\n\ntotal, n = mapped(step, step)\nprint(n / replicas)",
    "by a name in a class":
        "class Settings:\n n = replicas\n\nn = 32\n\ndef step(x):\n return c.all_reduce(x) / n",
}


def test_functions_of_two_files_are_told_apart(tmp_path: Path) -> None:
    # `from helpers import average as f`: a call of `f` is one of `average` in helpers.py, and not of this file's.
    text = "from helpers import {0} as f\n\ndef average(x):\n    return x.mean()\n\nf(c.all_reduce(g))\naverage(g)\n"
    helpers = tmp_path / "helpers.py"
    helpers.write_text("def total(x):\n    return x\n\ndef average(x):\n    return x / replicas\n")
    for name, wanted in (("average", True), ("total", False)):
        file = tmp_path / f"{name}.py"
        file.write_text(text.format(name))
        place = Place(str(file), "<module>", 6, 6, 2, 17)
        assert divisors.by_replicas([str(file), str(helpers)], (place,), 4, False) == wanted


def test_cells_of_a_notebook_share_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("g = c.all_reduce(g)\n")
    second.write_text("def over(x):\n return x / replicas\n\nmean = over(g)\n")
    place = Place(str(first), "<module>", 1, 1, 4, 19)
    for together in (True, False):
        monkeypatch.setattr(divisors.notebook, "is_cell", lambda file, together=together: together)
        assert divisors.by_replicas([str(first), str(second)], (place,), 4, False) == together


def test_a_text_that_is_not_what_runs_says_nothing(tmp_path: Path) -> None:
    # The file was edited meanwhile: another function stands where the code object says that `step` is.
    file = tmp_path / "program.py"
    file.write_text("def step(g):\n return c.all_reduce(g)\n")
    place = Place(str(file), "step", 2, 2, 8, 23)
    assert not divisors.by_replicas([str(file)], (place,), 4, False)
    assert divisors.by_replicas([str(file)], (place._replace(function="A.step"),), 4, False)


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


@pytest.mark.parametrize(("text", "wanted"), [
    ("len(x) * p", True), ("p * (len(x) / 8)", True), ("rate * x.shape[0] / 8 * p", True), ("p.mul(n)", True),
    ("np.multiply(p, n)", True), ("share * p", True), ("p * float(len(x) / 8)", True), ("p * rate", False),
    ("p / len(x)", False), ("p * (rate / len(x))", False), ("p + len(x)", False), ("p * again", False)])
def test_what_multiplies_by_a_number_of_rows(text: str, wanted: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        f"def f(x, p, rate, again):\n    n = len(x)\n    share = rate * n / 8\n    again = again * 2\n    {text}\n")
    assert divisors.multiplies_by_length(Place(str(tmp_path / "program.py"), "f", 5, 5, 4, 4 + len(text))) == wanted
    (tmp_path / "program.py").write_text(f"{text} if")
    assert not divisors.multiplies_by_length(Place(str(tmp_path / "program.py"), "f", 1, 1, 0, len(text)))


@pytest.mark.parametrize(("text", "line"), [
    ("rate = 0.1 * strategy.num_replicas_in_sync\nc.all_reduce(rate * g)", 1), ("c.all_reduce(g * 0.5 * n_gpus)", 1),
    ("rate *= replicas\nc.all_reduce(\n  g *\n  rate)", 1), ("n = replicas\nlr = base * n\nc.all_reduce(lr * g)", 2),
    ("def f(loss):\n c.all_reduce(loss)\n\nf(loss * replicas)", 4),
    ("size = 8 * replicas\nc.all_reduce(g / size)", None), ("rows = each * replicas\nc.all_reduce(g / rows)", None),
    ("w -= 0.1 * replicas * c.all_reduce(g)", None), ("rate = 0.1 * replicas\nc.all_reduce(g)", None),
    ("rate = 0.1 * replicas\nc.all_gather(rate * g)", None), ("c.all_reduce(0.1 * g", None)])
def test_a_factor_of_replicas_in_what_is_reduced(text: str, line: int | None, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(text)
    call = next((at for at, part in enumerate(text.splitlines(), 1) if "all_reduce" in part), 1)
    assert divisors.multiplied_by_replicas(str(tmp_path / "program.py"), call, "all_reduce") == line


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
    (tmp_path / "apart.py").write_text(
        f"def other(x):\n n = {text}\n n = len(x)\n\ndef f(n):\n return x / n\n\nf(32)")
    assert not divisors.is_by_length(Place(str(tmp_path / "apart.py"), "f", 6, 6, 8, 13))
    (tmp_path / "named.py").write_text(f"n, m = x.shape\ny = {text}\nz = x / n\nz = x / m")
    assert divisors.is_by_length(Place(str(tmp_path / "named.py"), "", 3, 3, 4, 9))
    assert not divisors.is_by_length(Place(str(tmp_path / "named.py"), "", 4, 4, 4, 9))
