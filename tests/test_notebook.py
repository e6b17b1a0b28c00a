"""Notebooks: places in cells, and what is shown of objects, with IPython, with what it promises, and in a browser."""

from __future__ import annotations

import json
import linecache
import re
import subprocess
import sys
import traceback
import types
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, texts
from limits import HANG

import refdist
from refdist import notebook
from refdist.core import tracebacks
from refdist.variables.sharded import ShardedVariable

ROOT = Path(__file__).parents[1]
CELLS = ["""import warnings, numpy as np, refdist
strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
""", """def step():
    context = refdist.get_replica_context()
    if context.replica_id_in_sync_group:
        return context.all_reduce("SUM", 1.0)
    return context.all_reduce("SUM", 2.0)
""", """with strategy.scope():
    w = refdist.Variable(1.0)
with refdist.record() as recording:
    warnings.warn("mine")
    try:
        strategy.run(step)
    except RuntimeError as error:
        text = str(error)
""", """places = {event.kind: event["site"] for event in recording.events if "site" in event.fields}
told = {"text": text, "run": places["run"][:1], "meet": places["meet"], "warning": places["warning"],
        "sources": recording.sources, "made": str(w._primary._made)}
"""]
WITH_IPYTHON = f"""
import json
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {CELLS!r}:
    shell.run_cell(cell, store_history=True).raise_error()
print(json.dumps(shell.user_ns["told"]))
"""


class Shell:
    """What is asked of IPython: it compiles cells, and knows which one a file was."""

    def __init__(self) -> None:
        self.compile = self
        self.numbers: dict[str, int] = {}
        self.names: dict[str, Any] = {}

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", f"In[{self.numbers[name]}]") if name in self.numbers else None

    def run_cell(self, text: str) -> None:
        name = f"/tmp/ipykernel_71/{abs(hash(text))}.py"
        self.numbers[name] = len(self.numbers) + 1
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        exec(compile(text, name, "exec"), self.names)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    made, module = Shell(), types.ModuleType("IPython")
    module.get_ipython = lambda: made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    return made


def with_a_stand_in(shell: Shell) -> Any:
    with pytest.warns(UserWarning, match="mine"):
        for cell in CELLS:
            shell.run_cell(cell)
    return shell.names["told"]


def with_ipython(shell: Shell) -> Any:
    pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    done = subprocess.run([sys.executable, "-c", WITH_IPYTHON], capture_output=True, text=True, timeout=HANG, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("run", [with_a_stand_in, with_ipython])
def test_places_in_cells_are_said_by_the_number_of_the_cell(run: Callable[[Shell], Any], shell: Shell,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    if run is with_ipython:
        monkeypatch.undo()
    places = run(shell)
    assert places["text"].startswith(
        "[RD06] all_reduce: replica 0 at Cell In[2], line 5; replica 1 at Cell In[2], line 4. ")
    assert (places["run"], places["meet"]) == (["Cell In[3], line 6"], ["Cell In[2], line 4"])
    assert places["warning"] == ["Cell In[3], line 4"] and places["made"] == "Cell In[3], line 2"
    assert {**places["sources"], "Cell In[2]": CELLS[1], "Cell In[3]": CELLS[2]} == places["sources"]


FAILING = ["""import refdist
strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
def mine():
    raise KeyError("mine")
""", "strategy.run(mine)", """try:
    strategy.run(mine)
except KeyError as error:
    raise RuntimeError("again") from error
"""]


class Printer:
    """Prints the lines of a traceback and of its causes, as IPython's does."""

    def structured_traceback(self, etype: Any = None, evalue: Any = None, etb: Any = None) -> list[str]:
        cause = [] if evalue.__cause__ is None else self.structured_traceback(
            None, evalue.__cause__, (evalue.__cause__.__traceback__, [id(evalue)]))
        if isinstance(etb, tuple):
            etb = etb[0]
        return cause + [notebook.place(frame.filename, frame.lineno) for frame in traceback.extract_tb(etb)]


def cells_shown_by_a_stand_in(shell: Shell) -> list[list[str]]:
    printer = Printer()
    tracebacks._install_in(printer)
    shell.run_cell(FAILING[0])
    shown = []
    for cell in FAILING[1:]:
        with pytest.raises((KeyError, RuntimeError)) as raised:
            shell.run_cell(cell)
        error = raised.value
        shown.append(printer.structured_traceback(type(error), error, etb=error.__traceback__))
    return [[place for place in places if not place.startswith(__file__)] for places in shown]


def cells_shown_by_ipython(shell: Shell) -> list[list[str]]:
    pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    program = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("colors", "NoColor")
for cell in {FAILING!r}:
    print("next")
    shell.run_cell(cell, store_history=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG, cwd=ROOT,
                          check=True)
    return [re.findall(r"^(?:Cell In\[\d+\], line \d+|File .*)", text, re.MULTILINE)
            for text in done.stdout.split("next\n")[2:]]


@pytest.mark.parametrize("run", [cells_shown_by_a_stand_in, cells_shown_by_ipython])
def test_a_traceback_of_a_cell_has_no_lines_of_refdist(run: Callable[[Shell], list[list[str]]], shell: Shell,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFDIST_TRACEBACK", raising=False)
    if run is cells_shown_by_ipython:
        monkeypatch.undo()
    assert run(shell) == [["Cell In[2], line 1", "Cell In[1], line 4"],
                          ["Cell In[3], line 2", "Cell In[1], line 4", "Cell In[3], line 4"]]


def test_a_recording_of_cells_comes_back_from_its_file(shell: Shell, tmp_path: Path) -> None:
    with_a_stand_in(shell)
    recording = shell.names["recording"]
    recording.save(tmp_path / "a")
    loaded = refdist.insight.load(tmp_path / "a")
    assert loaded.sources == recording.sources and loaded.events == recording.events
    assert recording.summary().lines[0].what == "Cell In[2], line 4 all_reduce"
    assert ">5</text>" in recording.svg() and ">4</text>" in recording.svg()


@pytest.mark.parametrize("module", [None, types.ModuleType("IPython"), types.SimpleNamespace(get_ipython=lambda: None)])
def test_without_a_cell_a_place_is_a_line_of_a_file(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert notebook.place("/tmp/ipykernel_71/2.py", 5) == "/tmp/ipykernel_71/2.py:5"
    assert notebook.source_of(__file__) == Path(__file__).read_text() and notebook.source_of("Cell In[3]") == ""


@pytest.mark.parametrize(("place", "parts"), [
    ("a.py:3", ("a.py", 3)), ("C:\\a:b.py:12", ("C:\\a:b.py", 12)), ("Cell In[3], line 5", ("Cell In[3]", 5)),
    ("a, line 1.py:2", ("a, line 1.py", 2)), ("<string>:1", ("<string>", 1)), ("", ("", 0)),
])
def test_a_place_has_a_file_and_a_line(place: str, parts: tuple[str, int]) -> None:
    assert notebook.parts(place) == parts


# What is shown of objects.

class Tables(HTMLParser):
    """The cells of all tables of a text, by row, with the captions."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.captions: list[str] = []
        self._open: list[str] | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td", "caption"):
            self._open = self.rows[-1] if tag != "caption" else self.captions
            self._open.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td", "caption"):
            self._open = None

    def handle_data(self, text: str) -> None:
        if self._open is not None:
            self._open[-1] += text


def rank() -> Any:
    return refdist.get_replica_context().replica_id_in_sync_group  # type: ignore[union-attr]


def mirrored(count: int) -> Any:
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])


def test_values_are_shown_as_on_the_page_of_a_recording() -> None:
    value = mirrored(2).run(lambda: np.float32([0.5, rank()]))
    tables = Tables(value._repr_html_())
    assert tables.captions == ["PerReplica"]
    assert tables.rows == [["replica", "device", "value"], ["0", "GPU:0", "float32 [2] [0.5, 0]"],
                          ["1", "GPU:1", "float32 [2] [0.5, 1]"]]
    hostile = Tables(refdist.PerReplica(["<b>", None], ["GPU:0", "GPU:1"])._repr_html_())
    assert hostile.rows[1:] == [["0", "GPU:0", "'<b>'"], ["1", "GPU:1", "None"]]
    many = Tables(mirrored(12).run(rank)._repr_html_())
    assert [row[0] for row in many.rows] == ["replica", "0", "1", "2", "3", "...", "10", "11"]
    assert many.rows[5] == ["...", "6 more"]


VARIABLES = {
    ("MirroredVariable", "ON_WRITE", "SUM"): (
        ["first copy: the first copy on this worker",
         "own copy: the copy of the replica that reads, or the one that is updated"], [["0-1", "GPU:0 .. GPU:1"]]),
    ("SyncOnReadVariable", "ON_READ", "MEAN"): (
        ["mean: of the copies on all workers",
         "own copy: the copy of the replica that reads, or the one that is updated"], [["0", "GPU:0"], ["1", "GPU:1"]]),
    ("SyncOnReadVariable", "ON_READ", "NONE"): (
        ["an aggregation is needed (RD13)",
         "own copy: the copy of the replica that reads, or the one that is updated"], [["0", "GPU:0"], ["1", "GPU:1"]]),
}


@pytest.mark.parametrize(("kind", "synchronization", "aggregation"), VARIABLES)
def test_a_variable_says_what_it_is_and_what_a_read_gives(kind: str, synchronization: str, aggregation: str) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        v = refdist.Variable(1.0, name="v", synchronization=refdist.VariableSynchronization[synchronization],
                             aggregation=refdist.VariableAggregation[aggregation])
    strategy.run(lambda: v.assign_add(1.0 + rank()))
    tables = Tables(v._repr_html_())
    facts = dict(row for row in tables.rows if len(row) == 2)
    reads, copies = VARIABLES[kind, synchronization, aggregation]
    assert tables.captions == [f"{kind} v:0"]
    assert facts["dtype and shape"] == "float32 []" and facts["synchronization"] == synchronization
    assert facts["aggregation"] == aggregation
    assert facts["trainable"] == ("no" if synchronization == "ON_READ" else "yes")
    assert [facts["a read outside replicas"], facts["a read in a replica"]] == reads
    line = test_a_variable_says_what_it_is_and_what_a_read_gives.__code__.co_firstlineno + 4
    assert facts["made"] == f"in a MirroredStrategy, {__file__}:{line}"
    values = ["4"] if kind == "MirroredVariable" else ["2", "3"]
    assert [row for row in tables.rows if len(row) == 3][1:] == [
        [*copy, f"float32 [] {value}"] for copy, value in zip(copies, values, strict=True)]


def test_a_variable_without_a_strategy_and_one_in_shards() -> None:
    tables = Tables(refdist.Variable([1, 2], name="v")._repr_html_())
    assert tables.rows[-1] == ["0", "CPU:0", "int32 [2] [1, 2]"] and "a read in a replica" not in str(tables.rows)
    shards = ShardedVariable([refdist.Variable([1.0], name="a/part_0"), refdist.Variable([2.0], name="b")])
    assert Tables(shards._repr_html_()).captions == ["ShardedVariable a:0: float32 [2]"]
    assert [row[2] for row in Tables(shards._repr_html_()).rows[1:]] == ["float32 [1] [1]", "float32 [1] [2]"]


def test_a_strategy_says_where_it_runs_what() -> None:
    tables = Tables(mirrored(2)._repr_html_())
    assert tables.captions == ["MirroredStrategy: 2 replicas on 1 worker"]
    assert tables.rows == [["variables", "mirrored: a copy for each replica; all have the same value at all times"],
                          ["values are reduced by", "NcclAllReduce"], ["replica", "device"], ["0", "GPU:0"],
                          ["1", "GPU:1"]]
    shown: list[Any] = []
    refdist.simulate_workers(lambda: shown.append(Tables(refdist.MultiWorkerMirroredStrategy()._repr_html_())), 2, 2)
    assert shown[1].captions == ["MultiWorkerMirroredStrategy: 4 replicas on 2 workers"]
    assert shown[1].rows[-1] == ["3", "worker:1 GPU:1"]
    assert Tables(refdist.get_strategy()._repr_html_()).rows[0] == ["variables", "plain: one array"]


def test_a_dataset_shows_its_rows_where_that_calls_no_function_of_the_program() -> None:
    strategy, calls = mirrored(2), []
    plain = refdist.data.Dataset.range(10).shuffle(10, seed=1).batch(4)
    distributed = strategy.experimental_distribute_dataset(plain)
    html = distributed._repr_html_()
    assert Tables(html).captions == ["DistributedDataset of a MirroredStrategy"]
    assert Tables(html).rows == [["elements", "TensorSpec(shape=(None,), dtype=int64) on each replica"]]
    assert html.endswith(distributed.explain().svg())
    chosen = refdist.data.Dataset.range(10).filter(lambda n: calls.append(n) or True).batch(4)
    lazy = strategy.experimental_distribute_dataset(chosen)
    before = len(calls)
    tables = Tables(lazy._repr_html_())
    assert len(calls) == before and "<svg" not in lazy._repr_html_()
    assert tables.rows[0] == ["rows", "AUTO: every batch is cut into pieces of the same rounded-up size, as no files "
                                     "are read"]


def test_an_error_shows_its_rule_and_what_led_to_it() -> None:
    def step() -> Any:
        refdist.get_replica_context().all_reduce("SUM", np.ones(2))  # type: ignore[union-attr]
        return refdist.get_replica_context().all_reduce("SUM", np.ones(2 + rank()))  # type: ignore[union-attr]

    with pytest.raises(ValueError, match="RD04") as raised:
        mirrored(2).run(step)
    assert isinstance(raised.value, refdist.errors.RefdistError)
    tables = Tables(raised.value._repr_html_())
    title, last = tables.captions
    assert title == "InvalidArgumentError RD04 shapes differ"
    assert re.fullmatch(r"the last (8 of \d+ )?rendezvous", last)
    assert tables.rows[0] == ["what happened", str(raised.value)] and tables.rows[1][0] == "in a correct program"
    assert [row[:2] + row[4:5] for row in tables.rows[2:]] == [
        ["who", "call", "shape"], *[[*entry[:2], entry.shape] for entry in raised.value.history[-8:]]]
    assert tables.rows[-1][:2] == ["replica 1", "all_reduce"] and len(tables.rows) <= 2 + 1 + 8
    assert Tables(refdist.errors.RefdistError("<i>")._repr_html_()).rows == [["what happened", "<i>"]]


def test_a_history_shows_all_rendezvous_as_a_table() -> None:
    def step() -> Any:
        for _ in range(10):
            refdist.get_replica_context().all_reduce("SUM", np.ones(2))  # type: ignore[union-attr]
        return refdist.get_replica_context().all_gather(np.ones(1 + rank()), axis=rank())  # type: ignore[union-attr]

    with pytest.raises(refdist.errors.RefdistError) as raised:
        mirrored(2).run(step)
    history: Any = raised.value.history
    tables = Tables(history._repr_html_())
    assert tables.captions == ["the last rendezvous"]
    assert tables.rows == [["who", "call", "op", "dtype", "shape", "line"], *map(list, history)]
    assert len(tables.rows) > 11


def recorded(value: Any, name: str = "v") -> refdist.insight.Recording:
    strategy = mirrored(2)
    with refdist.record() as recording:
        with strategy.scope():
            v = refdist.Variable(0.0, name=name, aggregation=refdist.VariableAggregation.SUM)
        strategy.run(lambda: v.assign_add(value))
    return recording


def test_a_summary_shows_its_tables() -> None:
    recording = recorded(1.0)
    summary = recording.summary()
    tables = Tables(summary._repr_html_())
    assert ["variables", "1"] in tables.rows and ["replicas", "2"] in tables.rows
    assert ["call", "rendezvous", "bytes"] in tables.rows and ["assign_add", "1", "8"] in tables.rows
    [who] = [i for i, row in enumerate(tables.rows) if row[:1] == ["who"]]
    assert [row[:3] for row in tables.rows[who + 1:]] == [["replica 0", "1", "0"], ["replica 1", "1", "1"]]
    many = summary._replace(lines=[summary.lines[0]._replace(what=f"a.py:{i}") for i in range(15)])
    shown = [row[0] for row in Tables(many._repr_html_()).rows]
    assert "a.py:11" in shown and "a.py:12" not in shown and "and 3 more" in shown
    assert "and 3 more" in str(many)
    assert Tables(refdist.insight.Recording().summary()._repr_html_()).rows[0] == ["workers", "0"]


def test_a_difference_shows_both_sides_beside_each_other() -> None:
    recording = recorded(1.0)
    difference: Any = recording.diff(recorded(2.0))
    tables = Tables(difference._repr_html_())
    assert tables.captions == [f"event {difference.number} differs in contributed"]
    assert tables.rows[0] == ["", "this", "other"]
    assert tables.rows[-1] == ["contributed", "float32 [] 1.0", "float32 [] 2.0"]
    assert "assign_add of variable v:0" in tables.rows[1][1] == tables.rows[1][2]
    shorter: Any = recording.diff(refdist.insight.Recording(recording.events[:-1]))
    ended = Tables(shorter._repr_html_())
    assert ended.captions == [f"only this recording has event {shorter.number}"] and len(ended.rows) == 2
    hostile: Any = recorded(1.0, "<b>x</b>").diff(recorded(1.0, "y"))
    assert "<b>" not in hostile._repr_html_() and "<b>x</b>" in str(Tables(hostile._repr_html_()).rows)


def test_what_explore_finds_is_shown_with_its_schedule() -> None:
    spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
    resolver = refdist.cluster_resolver.SimpleClusterResolver(spec)

    def program(step: Any) -> Any:
        strategy = refdist.ParameterServerStrategy(resolver)
        with strategy.scope():
            v = refdist.Variable(0.0, name="<i>v")
        coordinator = refdist.coordinator.ClusterCoordinator(strategy)
        for _ in range(2):
            coordinator.schedule(step, args=(v,))
        coordinator.join()
        return float(v)

    report: Any = refdist.explore(lambda: program(lambda v: v.assign(v + 1.0)))
    html = report._repr_html_()
    tables = Tables(html)
    assert tables.captions[0].startswith("found 1 fault in 4 classes of schedules, the first after ")
    assert tables.captions[1].startswith("LOST UPDATE of <i>v (")
    assert ["result 1.0", "in 2 of 4 classes"] in tables.rows
    assert ["why", "the result is 1.0; of whole functions, in all orders, it is 2.0"] in tables.rows
    assert [row[1].partition(",")[0] for row in tables.rows if row[0] == "write"] == ["`<i>v.assign_add(...)`"]
    assert "<i>" not in html and "overwrites version 1" in html[html.index("<pre>"):]
    proved: Any = refdist.explore(lambda: program(lambda v: v.assign_add(1.0)))
    assert Tables(proved._repr_html_()).captions == [str(proved).split("\n")[0]]


class Display:
    """What IPython gives its front ends to show."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def publish(self, data: dict[str, str]) -> None:
        self.shown.append(data)


def test_an_error_that_nobody_catches_shows_its_tables_above_the_traceback(shell: Shell) -> None:
    shell.display_pub = Display()  # type: ignore[attr-defined]
    printer = Printer()
    tracebacks._install_in(printer)
    shell.run_cell(CELLS[0])
    shell.run_cell(CELLS[1])
    for cell in ("strategy.run(step)", "1 / 0"):
        with pytest.raises((refdist.errors.RefdistError, ZeroDivisionError)) as raised:
            shell.run_cell(cell)
        for _ in range(2):  # IPython keeps the text of each error, too
            printer.structured_traceback(type(raised.value), raised.value, etb=raised.value.__traceback__)
    [shown] = shell.display_pub.shown  # type: ignore[attr-defined]
    assert list(shown) == ["text/html"]  # a terminal, which prints "text/plain", shows the traceback alone
    tables = Tables(shown["text/html"])
    assert tables.captions[0].startswith("InvalidContextError RD06")
    assert tables.rows[-1][:2] == ["replica 1", "all_reduce"]


def test_a_notebook_shows_all_of_them(browser: Browser, tmp_path: Path) -> None:
    """Beside each other, light and dark, without a script that fails or a table that is wider than the window."""
    strategy = mirrored(4)
    with strategy.scope():
        v = refdist.Variable(np.ones((30, 40)), name="<script>window.hacked=1</script>")
    value = strategy.run(lambda: np.full(3, np.nan if rank() == 2 else 1.0))
    dataset = strategy.experimental_distribute_dataset(refdist.data.Dataset.range(10).batch(4))
    error = refdist.errors.error("RD04", "<img src=x onerror='window.hacked=1'>", "nothing")
    with refdist.record() as recording:
        strategy.run(lambda: v.value())
    with refdist.record() as other, pytest.raises(refdist.errors.RefdistError) as raised:
        strategy.run(lambda: refdist.get_replica_context().all_gather(np.ones(3), rank()))  # type: ignore[union-attr]
    objects: list[Any] = [strategy, v, value, dataset, error, recording, recording.summary(), recording.diff(other),
                          raised.value.history]
    shown = [html._repr_html_() for html in objects]
    page = '<!doctype html><meta charset="utf-8"><style>:root { color-scheme: light dark }</style>'
    (tmp_path / "notebook.html").write_text(page + "".join(f"<div>{html}</div>" for html in shown), encoding="utf-8")
    browser.errors.clear()
    for size in ((1000, 900), (500, 900)):
        browser.size(*size, dark=size[0] < 600)
        browser.open((tmp_path / "notebook.html").as_uri())
        wide = "Math.max(...[...document.querySelectorAll('table')].map(one => one.offsetWidth))"
        assert browser.value(wide) <= size[0]
        assert texts(browser, "caption")[0] == "MirroredStrategy: 4 replicas on 1 worker"
        assert "float64 [3] [NaN, NaN, NaN] 3 NaN" in texts(browser, "td")
    assert browser.value("typeof window.hacked") == "undefined" and browser.errors == []
    # Colors are the notebook's.
    assert browser.value("getComputedStyle(document.querySelector('td')).color") == "rgb(255, 255, 255)"


def test_strategies_and_datasets_show_what_they_are() -> None:
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    assert repr(two) == "<MirroredStrategy: 2 replicas on 1 worker, GPU:0, GPU:1>"
    assert repr(two.extended) == f"<MirroredExtended of {two!r}>"
    many = repr(refdist.MirroredStrategy([f"GPU:{i}" for i in range(100)]))
    assert many == "<MirroredStrategy: 100 replicas on 1 worker, GPU:0, GPU:1, GPU:2, GPU:3, ..., GPU:98, GPU:99>"
    assert repr(refdist.get_strategy()) == "<DefaultStrategy: 1 replica on 1 worker, CPU:0>"
    assert refdist.simulate_workers(lambda: repr(refdist.MultiWorkerMirroredStrategy()), 2) == [
        f"<MultiWorkerMirroredStrategy: 2 replicas on 2 workers, worker:{i} CPU:0>" for i in range(2)]
    batches = refdist.data.Dataset.range(6).batch(2)
    assert repr(batches) == "<Dataset of TensorSpec(shape=(None,), dtype=int64)>"
    assert repr(two.experimental_distribute_dataset(batches)) == f"<DistributedDataset for {two!r}>"
    called = []
    mapped = batches.map(called.append)
    assert repr(mapped) == "<Dataset of what a function of the program makes>" and not called
