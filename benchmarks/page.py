"""How fast the page of a long recording is: 4 replicas, 1,000 training steps, in a Chromium without a window.

    python benchmarks/page.py [--steps 1000]

The browser's own performance entries say when the page was read and first painted, from the file.  Frames are counted
while the lanes scroll for three seconds, and each frame draws others than the one before.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser import Browser, why_no_browser

import refdist

OPENED = """new Promise(done => new PerformanceObserver(list => {
  const painted = list.getEntriesByName("first-contentful-paint")[0];
  if (painted) done([performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd, painted.startTime]);
}).observe({type: "paint", buffered: true}))"""
SCROLLED = """new Promise(done => {
  const times = [], view = document.getElementById("view");
  view.scrollLeft = 1000;
  const frame = now => {
    times.push(now);
    view.scrollLeft += 40;
    if (now - times[0] < 3000) requestAnimationFrame(frame);
    else done(times.slice(1).map((time, i) => time - times[i]));
  };
  requestAnimationFrame(frame);
})"""
STEPPED = """(() => {
  const times = [];
  for (let n = 0; n < 200; n++) {
    const start = performance.now();
    stepTo(Math.floor(n * 7919 % COUNT));
    times.push(performance.now() - start);
  }
  return times;
})()"""


def recording(steps: int) -> refdist.insight.Recording:
    """A linear model that is trained on four replicas."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])
    mean = refdist.VariableAggregation.MEAN
    with refdist.record() as made:
        with strategy.scope():
            weights = refdist.Variable(np.zeros((8, 4), np.float32), name="weights", aggregation=mean)
            bias = refdist.Variable(np.zeros(4, np.float32), name="bias", aggregation=mean)
        rows = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
        dataset = refdist.data.Dataset.from_tensor_slices(rows).repeat().batch(16).take(steps)

        def step(x: np.ndarray) -> None:
            context = refdist.get_replica_context()
            assert context is not None
            error = x @ weights.value() + bias.value() - 1
            for variable, gradient in zip((weights, bias), context.all_reduce("SUM", [x.T @ error, error.sum(axis=0)]),
                                          strict=True):
                variable.assign_sub(0.01 * gradient)

        for batch in strategy.experimental_distribute_dataset(dataset):
            strategy.run(step, (batch,))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    if reason := why_no_browser():
        print(f"not measured: {reason}")
        return 1
    made = recording(options.steps)
    events = len(made)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        start = time.perf_counter()
        made.html(page)
        print(f"{events:,} events; written in {time.perf_counter() - start:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
        browser = Browser(Path(folder) / "profile")
        try:
            browser.size(1280, 900)
            opened = []
            for _ in range(5):
                browser.open(page.as_uri())
                opened.append(browser.value(OPENED))
            read, painted = (statistics.median(times) for times in zip(*opened, strict=True))
            print(f"DOMContentLoaded after {read:.0f} ms, first paint after {painted:.0f} ms (medians of 5)")
            frames = browser.value(SCROLLED)
            print(f"scrolling: {1000 / statistics.mean(frames):.0f} frames a second; "
                  f"median {statistics.median(frames):.1f} ms, longest {max(frames):.1f} ms")
            print(f"a step to any event: median {statistics.median(browser.value(STEPPED)):.1f} ms")
            print(f"elements in the page: {browser.value('document.querySelectorAll(`*`).length')}")
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
