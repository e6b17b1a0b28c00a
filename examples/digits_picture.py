"""The picture that digits.py draws: loss curves, and what the replicas did during one training step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from refdist.insight import Event

COLORS = {"all_reduce": "tab:orange", "assign_sub": "tab:green"}


def draw(curves: dict[str, tuple[Sequence[float], Sequence[float]]], events: Sequence[Event], replicas: int,
         path: Path) -> Path:
    """Draws {model: (losses on many, losses on one)} and the events of one step; returns the path."""
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(10, 7.5), height_ratios=[3, 2])
    for name, (several, alone) in curves.items():
        line, = above.plot(range(1, len(several) + 1), several, linewidth=5, alpha=0.35,
                           label=f"{name}, {replicas} replicas")
        above.plot(range(1, len(alone) + 1), alone, color=line.get_color(), linewidth=1, label=f"{name}, one device")
    above.set(xlabel="epoch", ylabel="mean cross entropy", yscale="log", title="Training on handwritten digits")
    above.legend()
    timeline(below, events, replicas)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def timeline(axes: pyplot.Axes, events: Sequence[Event], replicas: int) -> None:
    """One row per replica: a bar while it runs, a mark where it meets the others."""
    begun: dict[int, int] = {}
    seen = set()
    for event in events:
        if event.replica is None or event.kind not in ("replica", "meet", "end"):
            continue
        row = event.replica
        if event.kind != "replica" and row in begun:
            axes.barh(row, event.id - begun[row], left=begun[row], height=0.5, color="tab:blue", alpha=0.5)
        begun[row] = event.id
        if event.kind == "meet":
            call = event["call"].split(" of ")[0]
            label = f"meets in {call}" if call not in seen else None
            seen.add(call)
            axes.plot(event.id, row, "o", markersize=7, color=COLORS.get(call, "tab:red"), label=label)
    axes.set(yticks=range(replicas), yticklabels=[f"replica {i}" for i in range(replicas)],
             xlabel="events of one training step, in order (a bar: the replica runs or waits until its next mark)",
             title="What the replicas did")
    axes.invert_yaxis()
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="center", bbox_to_anchor=(0.33, 0.5))
