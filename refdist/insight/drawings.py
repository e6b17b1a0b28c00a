"""What a notebook shows of refdist's objects: one drawing for each class, which `_repr_html_` returns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

import numpy as np

from refdist.array.convert import is_array, to_numpy
from refdist.core import devices
from refdist.core.history import History, Rendezvous
from refdist.core.rules.options import VariableSynchronization
from refdist.core.rules.table import word
from refdist.core.rules.variables import CREATION, Kind
from refdist.data.dataset import Dataset
from refdist.errors import CATALOGUE, RefdistError
from refdist.input.distributed import DistributedDataset
from refdist.input.explanation import Explanation, spans
from refdist.insight.comparison import Comparison
from refdist.insight.comparison import Difference as Parting
from refdist.insight.difference import Difference
from refdist.insight.report import Finding, Report
from refdist.insight.summaries import in_words
from refdist.insight.summary import Summary
from refdist.notebook import drawing, shortened, table
from refdist.strategies.base import Strategy
from refdist.strategies.placement import SPLIT, Placement
from refdist.variables.sharded import ShardedVariable
from refdist.variables.values import DistributedValues
from refdist.variables.variable import Variable

_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
# Pixels: of the boxes of an explanation, and of the tiles of a placement.
_CELL, _LABEL, _LINE, _WIDTH = 110, 150, 26, 640
_TILE_WIDTH, _TILE_HEIGHT, _GAP = 120, 48, 24


@drawing.register
def _error(error: RefdistError) -> str:
    row = CATALOGUE.get(error.code)
    facts = [("what happened", str(error)), *([("in a correct program", row.rule)] if row else [])]
    tables = table(" ".join(filter(None, (type(error).__name__, error.code, row.title if row else ""))), facts)
    return tables + (_last(error.history, 8) if error.history else "")


@drawing.register
def _history(history: History) -> str:
    return _last(history, len(history))


def _last(history: Sequence[Rendezvous], count: int) -> str:
    caption = "the last rendezvous" if count >= len(history) else f"the last {count} of {len(history)} rendezvous"
    return table(caption, history[-count:], Rendezvous._fields)


@drawing.register
def _summary(summary: Summary) -> str:
    counts = [(noun, f"{number:,}") for noun, number in summary.counts.items()]
    moved = "bytes moved between devices", f"{summary.transferred:,}"
    return table("", [*counts, moved]) + "".join(table("", rows, heads) for heads, *rows in summary._tables() if rows)


@drawing.register
def _difference(difference: Difference) -> str:
    heads, *rows = difference._sides()
    return table(difference._head(), rows, heads)


@drawing.register
def _comparison(comparison: Comparison) -> str:
    facts = [("runs", "; ".join(comparison.runs)), *(("note", note) for note in comparison.notes),
             *comparison.failures]
    return table(comparison._head(), facts) + "".join(map(drawing, comparison.differences))


@drawing.register
def _parting(parting: Parting) -> str:
    return table(parting._head(), [("where", parting._where()), (parting.first, parting.values[0]),
                                   (parting.second, parting.values[1]), ("why", parting.why),
                                   ("write", parting.advice)])


@drawing.register
def _report(report: Report) -> str:
    facts = [*[("of", report._limits())] * report.proved, *(("note", note) for note in report._notes()),
             *((f"result {result}", f"in {count} of {report.classes} classes") for result, count in report.results)]
    return table(report._head(), shortened(facts)) + "".join(map(drawing, report.findings))


@drawing.register
def _finding(finding: Finding) -> str:
    schedule = finding._schedule()
    return (table(finding._head(), [("why", finding.why), *finding._what_to_do()])
            + (f"<pre>{escape(schedule)}</pre>" if schedule else ""))


@drawing.register
def _strategy(strategy: Strategy) -> str:
    extended = strategy.extended
    layout = extended.layout
    kind = CREATION[VariableSynchronization.AUTO].get(extended._keeps, Kind.PLAIN)
    facts = [("variables", f"{word(kind)}: {CREATION.actions[kind]}"),
             ("values are reduced by", type(extended.reduction.ops).__name__)]
    replicas = [(str(layout.first + i), devices.short(name)) for i, name in enumerate(layout.devices)]
    return (table(f"{type(strategy).__name__}: {strategy._size()}", facts)
            + table("", shortened(replicas), ("replica", "device")))


@drawing.register
def _values(values: DistributedValues) -> str:
    return table(type(values).__name__, shortened(_copies(values._values, values._devices)),
                 ("replica", "device", "value"))


@drawing.register
def _variable(variable: Variable) -> str:
    copies = variable._copies
    facts = [("dtype and shape", f"{variable.dtype} [{', '.join(map(str, variable.shape))}]"),
             ("trainable", "yes" if variable.trainable else "no"),
             ("synchronization", variable.synchronization.name),
             ("aggregation", variable.aggregation.name), *variable._reads_in_words()]
    made_at = variable._primary._made
    if made_at is not None:
        where = "outside any scope" if variable._strategy is None else f"in a {type(variable._strategy).__name__}"
        facts.append(("made", f"{where}, {made_at}"))
    values = _copies([copy._array for copy in copies], [copy._device for copy in copies])
    return (table(f"{type(variable).__name__} {variable.name}", facts)
            + table("", shortened(values), ("copy", "device", "value")))


@drawing.register
def _sharded_variable(variable: ShardedVariable) -> str:
    shards = [shard._primary for shard in variable._variables]
    values = _copies([shard._array for shard in shards], [shard._device for shard in shards])
    return table(f"{type(variable).__name__} {variable.name}: {variable.dtype} {list(variable.shape)}",
                 shortened(values), ("shard", "device", "value"))


def _copies(values: Sequence[object], component_devices: Sequence[str]) -> list[tuple[str, str, str]]:
    # (numbers, devices, value) of the copies; copies that share an array are one row.
    names = [devices.short(name) for name in component_devices] or [""] * len(values)
    rows, first = [], 0
    for i, value in enumerate(values):
        if i + 1 == len(values) or values[i + 1] is not value:
            numbers, where = (str(i), names[i]) if first == i else (f"{first}-{i}", f"{names[first]} .. {names[i]}")
            rows.append((numbers, where, in_words(to_numpy(value)) if is_array(value) else repr(value)))
            first = i + 1
    return rows


@drawing.register
def _distributed_dataset(dataset: DistributedDataset) -> str:
    split, source = dataset._split, dataset._split.pipelines[0]
    title = f"{type(dataset).__name__} of a {type(dataset._strategy).__name__}"
    facts = []
    if isinstance(source, Dataset) and not callable(source._pipeline.facts.spec):
        facts.append(("elements", f"{split.spec(source.element_spec)} on each replica"))
    # Draws the rows only if no function of the program has to be called for it.
    if all(origin is not None and not origin.calls for origin in dataset._origins()):
        return table(title, facts) + dataset.explain().svg()
    return table(title, [("rows", split.policy), *(("warning", str(problem)) for problem in split.problems), *facts])


@drawing.register
def _explanation(explanation: Explanation) -> str:
    steps = max((len(rows) for _, rows in explanation.shares), default=0)
    most = max((np.size(part) for _, rows in explanation.shares for part in rows), default=0) or 1
    width = max(_LABEL + _CELL * steps + 10, _WIDTH)
    texts = [line for text in [*explanation.head(), *(f"warning: {text}" for text in explanation.warnings)]
             for line in textwrap.wrap(text, width // 8)]
    top = _LINE * (len(texts) + 1)
    height = top + _LINE * len(explanation.shares) + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="13">', '<rect width="100%" height="100%" fill="white"/>']
    parts += [_text(8, _LINE * (i + 1) - 8, text) for i, text in enumerate(texts)]
    parts += [_text(_LABEL + _CELL * i, top - 8, f"step {i}") for i in range(steps)]
    for i, (label, rows) in enumerate(explanation.shares):
        y = top + _LINE * i
        parts.append(_text(8, y + 17, label))
        for step, part in enumerate(rows):
            x, wide = _LABEL + _CELL * step, (_CELL - 8) * np.size(part) / most
            if np.size(part):
                parts.append(f'<rect x="{x}" y="{y + 2}" width="{wide:.1f}" height="{_LINE - 6}" rx="3" '
                             f'fill="{_COLOURS[i % len(_COLOURS)]}" fill-opacity="0.35"/>')
            parts.append(_text(x + 4, y + 17, spans(part)))
    return "\n".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}">{escape(text)}</text>'


@drawing.register
def _placement(placement: Placement) -> str:
    # A box for every logical device, where its tile belongs.  The last two dimensions that are divided go down and
    # across, and what the others divide is side by side.
    logical = placement.devices
    divided = [parts for parts in placement.grid if parts > 1] if placement.kind == SPLIT else [len(logical)]
    *_, rows, columns = 1, 1, *divided
    panel = columns * _TILE_WIDTH + _GAP
    boxes = []
    for i, device in enumerate(logical):
        x = i // (rows * columns) * panel + i % columns * _TILE_WIDTH
        y = i // columns % rows * _TILE_HEIGHT
        fill = "none" if placement.tiles[i] is None else "#dbe9f6"
        boxes.append(f'<rect x="{x}" y="{y}" width="{_TILE_WIDTH}" height="{_TILE_HEIGHT}" fill="{fill}" '
                     f'stroke="#333"/><text x="{x + 6}" y="{y + 18}">{i}  {escape(devices.short(device))}</text>'
                     f'<text x="{x + 6}" y="{y + 36}">{placement.part_of(i)}</text>')
    width = len(logical) // (rows * columns) * panel
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{rows * _TILE_HEIGHT}" '
            f'font-family="monospace" font-size="11">{"".join(boxes)}</svg>')
