"""The page of a recording, looked at in a browser as its readers do: programs of each kind, wide and narrow."""

from __future__ import annotations

import base64
import json
import re
import runpy
import zlib
from dataclasses import replace
from pathlib import Path

import broken
import numpy as np
import pytest
from browser import Browser, choose, texts
from recorded import recorded
from recordings import PROGRAMS, steps
from test_workers import mpiexec

import refdist
from refdist.insight import Recording, layout, page
from refdist.insight.findings import findings

WIDE, NARROW = (1280, 1000), (390, 844)
# The page unpacks its data before it draws anything.
BUILT = """new Promise(done => (function look() {
  if (performance.getEntriesByName("built").length) done(); else setTimeout(look, 5);
})())"""
HOSTILE = "</script><img src=x onerror='window.hacked=1'><!--<script>window.hacked=1</script>"
# Two processes that reduce twice, or one of which is killed before the second time.
PROCESSES = """
import os, signal, sys, refdist
strategy = refdist.MultiWorkerMirroredStrategy()
def step():
    return refdist.get_replica_context().all_reduce("SUM", 1.0)
strategy.run(step)
if sys.argv[1] and strategy.cluster_resolver.task_id == 1:
    os.kill(os.getpid(), signal.SIGKILL)
strategy.run(step)
"""


# The text of the page.

def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    recorded().html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    own = text[:text.index('id="data"')] + text[text.index("</script>"):]
    assert len(own) < 100_000
    assert not re.search(r"https?:|\bsrc=|<link|@import|url\(|innerHTML|insertAdjacent|eval|fetch\(", own)
    inlined = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert inlined and "<" not in inlined[1]
    lanes = json.loads(zlib.decompress(base64.b64decode(inlined[1])))["lanes"]
    assert lanes[0] == [0, None, "", "worker 0", "worker", 0]


def test_a_page_grows_little_with_each_event() -> None:
    few, many = steps(20), steps(120)
    grown = len(page.render(many.events, {})) - len(page.render(few.events, {}))
    assert grown / (len(many) - len(few)) < 45, "a thousand steps of 60 to 115 events stay below 5 MB"


# The page in a browser.

@pytest.fixture
def shown(browser: Browser, tmp_path: Path):
    """Shows the page of a recording; no script on it may have failed."""
    def show(recording: Recording, size: tuple[int, int] = WIDE, dark: bool = False) -> Browser:
        recording.html(tmp_path / "page.html")
        browser.size(*size, dark)
        browser.open((tmp_path / "page.html").as_uri())
        browser.value(BUILT)
        return browser

    browser.errors.clear()
    yield show
    assert browser.errors == []


def text(browser: Browser, selector: str) -> str:
    return str(browser.value(f"document.querySelector({json.dumps(selector)}).textContent"))


def drawn(browser: Browser) -> tuple[str, int]:
    browser.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    counts = browser.value("(one => [one.slots, Number(one.events)])(document.querySelector('#view canvas').dataset)")
    return counts[0], counts[1]


def go(browser: Browser, number: int) -> None:
    browser.value(f"stepTo({number})")


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_is_shown(shown, name: str) -> None:
    recording = PROGRAMS[name]()
    for size in (WIDE, NARROW):
        browser = shown(recording, size)
        assert text(browser, "#about").startswith(f"{len(recording):,} events")
        wanted = [finding.text for finding in findings(recording.events)]
        assert [label.partition(" ")[2].partition(" ")[2][:300] for label in texts(browser, "#findings button")] == [
            label[:300] for label in wanted]
        assert browser.value("document.documentElement.scrollWidth") <= size[0]
        assert drawn(browser)[1] > 0
        order = layout.in_order(recording.events, layout.slots_of(recording.events))
        for position in range(0, len(recording), max(1, len(recording) // 12)):
            go(browser, position)
            assert text(browser, "#now").startswith(f"Event {order[position].id} of {len(recording):,}: ")
        for number, finding in enumerate(findings(recording.events)):
            browser.value(f"document.querySelectorAll('#findings button')[{number}].click()")
            assert text(browser, "#now").startswith(f"Event {finding.event} of")
            assert texts(browser, "#source .at") or recording.events[finding.event].kind == "step", "a line is lit"


def test_the_values_are_those_of_the_event_forward_and_back(shown) -> None:
    recording = recorded()
    browser = shown(recording)
    expected: dict[int, str] = {}
    value = ""
    for event in recording.events:
        if event.worker == 0 and event.kind in ("variable", "write"):
            value = "float32 [3] [" + ", ".join(f"{item:g}" for item in event["copies"][0]["items"]) + "]"
        expected[event.id] = value
    for order in (1, -1):
        for number in list(expected)[::7 * order]:
            go(browser, number)
            rows = texts(browser, "#values tbody tr")
            assert (rows[0].endswith(expected[number]) if expected[number] else not rows)
    written = next(event for event in recording.events if event.kind == "write")
    go(browser, written.id)
    assert texts(browser, "#values .changed th") == ["weights:0, worker 0"]
    go(browser, written.id + 1)
    assert texts(browser, "#values .changed") == []


def test_a_copy_that_alone_was_written_differs_from_the_others(shown) -> None:
    recording = broken.recorded(broken.one_copy)
    browser = shown(recording)
    written = next(event for event in recording.events if event.kind == "write")
    go(browser, written.id)
    assert [re.sub(r"\s+", " ", row) for row in texts(browser, "#values tbody tr")] == [
        "w:0copy 0GPU:0not equalfloat32 [3] [1, 1, 1]", "w:0copy 1GPU:1not equalfloat32 [3] [0, 0, 0]"]
    assert len(texts(browser, "#values .changed")) == 1


def test_a_rendezvous_says_who_is_where_with_what(shown) -> None:
    recording = broken.recorded(broken.early)
    browser = shown(recording)
    error = next(finding for finding in findings(recording.events) if finding.text.startswith("Rendezvous"))
    go(browser, error.event)
    assert text(browser, "#call h2") == "Rendezvous 1: not carried out"
    rows = browser.value("[...document.querySelectorAll('#call tbody tr')].map(row => [...row.children]"
                         ".map(one => one.textContent))")
    assert [row[0] for row in rows] == ["replica 0", "replica 1", "replica 2"]
    where = "all_reduce MEANbroken.py:48"
    assert [row[1] for row in rows] == [where, where, "never arrives: its function has returned"]
    assert [row[2] for row in rows] == ["float32 [] 0", "float32 [] 1", "\N{EN DASH}"]
    go(browser, error.event - 2)
    assert "on its way" in text(browser, "#call tbody")
    good = shown(steps(2))
    go(good, next(event.id for event in steps(2).events if event.kind == "receive"))
    assert texts(good, "#call tbody tr td:last-child") == ["float32 [3] [4, 8, 12]"] + ["\N{EN DASH}"] * 3


def test_the_lines_where_each_replica_is_are_lit(shown) -> None:
    recording = recorded()
    browser = shown(recording)
    meets = [event for event in recording.events if event.kind == "meet"][-2:]
    go(browser, meets[-1].id)
    lit = dict(zip(texts(browser, "#source .at .number"), texts(browser, "#source .at .who"), strict=True))
    for event in meets:
        assert f"replica {event.replica}" in lit[event["site"][0].rpartition(":")[2]]
    source = Path(recorded.__code__.co_filename).read_text().splitlines()
    assert len(texts(browser, "#source li")) == len(source)
    over = steps(1)
    shown(over)
    go(browser, len(over) - 2)
    assert texts(browser, "#source .at .who") == ["program"], "the replicas have returned"
    go(browser, len(over) - 1)
    assert texts(browser, "#source .at") == []


def test_keys_step_forward_and_back_and_a_filter_leaves_events_out(shown) -> None:
    recording = recorded()
    browser = shown(recording)

    def now() -> int:
        shown_event = re.match(r"Event (\d+) of", text(browser, "#now"))
        assert shown_event
        return int(shown_event[1])

    browser.value("document.getElementById('view').focus()")
    end = len(recording) - 1
    for key, wanted in (("End", end), ("ArrowRight", end), ("ArrowLeft", end - 1), ("Home", 0), ("ArrowLeft", 0),
                        ("ArrowRight", 1)):
        browser.press(key)
        assert now() == wanted
    meets = [event.id for event in recording.events if event.kind == "meet" and event.replica == 2]
    choose(browser, "kind", "meet")
    choose(browser, "replica", "2")
    assert text(browser, "#count") == f"{len(meets)} events of {len(recording)}"
    passed = [now()]
    for _ in meets[1:]:
        browser.press("ArrowRight")
        passed.append(now())
    assert passed == meets
    for control in ("kind", "replica"):
        choose(browser, control, "")
    choose(browser, "worker", "1")
    assert text(browser, "#count").startswith(str(sum(event.worker == 1 for event in recording.events)))
    choose(browser, "worker", "")
    choose(browser, "replica", "3")
    choose(browser, "search", "ASSIGN_SUB  arrives")
    assert text(browser, "#count").startswith(str(sum(
        event.replica == 3 and event.kind == "meet" and "assign_sub" in event["call"] for event in recording.events)))
    choose(browser, "replica", "")
    choose(browser, "search", "nowhere to be found")
    assert text(browser, "#count") == f"0 events of {len(recording)}"
    browser.value("document.querySelector('#findings button').click()")
    assert now() == findings(recording.events)[0].event and text(browser, "#count") == f"{len(recording)} events"


def test_a_search_shows_what_it_has_found_until_it_is_through_and_another_one_ends_it(shown) -> None:
    recording = steps(5)
    browser = shown(recording)
    meets = [event.id for event in recording.events if event.kind == "meet"]
    browser.value(f"stepTo({meets[3]}), PATIENCE = 0, CHUNK = {meets[3] + 1}")
    choose(browser, "search", "writes")
    choose(browser, "search", "arrives at")
    # One task of the browser, so a slice cannot end between the two.
    assert browser.value("(() => { at('search').value = 'arrives'; filter(); return at('count').textContent; })()") == (
        f"4 events in the first {meets[3] + 1} of {len(recording)}")
    assert text(browser, "#now").startswith(f"Event {meets[3]} of")
    browser.value(f"""new Promise(done => (function look() {{
      if (at("count").textContent === "{len(meets)} events of {len(recording)}") done(); else setTimeout(look, 1);
    }})())""")
    assert text(browser, "#now").startswith(f"Event {meets[3]} of")
    assert browser.value("Array.from(matching)") == meets


def test_only_what_is_visible_is_drawn(shown) -> None:
    recording = steps(200)
    browser = shown(recording)
    first, some = drawn(browser)
    assert first.startswith("0-") and some < len(recording) / 20
    count = "document.querySelectorAll('*').length - document.querySelectorAll('#source *').length"
    elements = browser.value(count)
    browser.value("document.getElementById('view').scrollLeft = 20000")
    later, others = drawn(browser)
    begin, end = map(int, later.split("-"))
    assert begin > 500 and end - begin < 80 and 0 < others < len(recording) / 20
    browser.value("document.getElementById('list').scrollTop = 20000")
    drawn(browser)
    assert browser.value(count) < elements + 50 < 300
    rows = browser.value("[...document.querySelectorAll('#list li')].map(one => Number(one.ariaPosInSet))")
    assert rows[0] <= 20000 // 26 + 1 <= rows[0] + 5 and rows == list(range(rows[0], rows[0] + len(rows)))
    assert 17 * 15 / 26 < len(rows) < 40


def test_a_click_on_the_lanes_goes_to_the_event(shown) -> None:
    recording = recorded()
    browser = shown(recording)
    event = [event for event in recording.events if event.kind == "meet"][1]
    go(browser, event.id)
    place = browser.value(f"(box => [box.left + middle(slot[{event.id}]), box.top + height(lane[{event.id}])])"
                          "(document.getElementById('view').getBoundingClientRect())")
    go(browser, 0)
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
    assert text(browser, "#now").startswith(f"Event {event.id} of")


def test_variables_that_were_there_before_are_known_from_their_first_write(shown) -> None:
    strategy = broken.mirrored(2)
    w = broken.weights(strategy)
    with strategy.scope():
        on_read = refdist.Variable(1.0, name="r", synchronization=refdist.VariableSynchronization.ON_READ,
                                   aggregation=refdist.VariableAggregation.SUM)

    def step() -> None:
        if broken.replica().replica_id_in_sync_group:
            on_read.assign(7.0)
        w.assign(np.float32([2, 3, 4]))

    with refdist.record() as recording:
        strategy.run(step)
    browser = shown(recording)
    assert "2 variables" in text(browser, "#about")
    go(browser, 0)
    assert text(browser, "#values") == "None was created or written until here."
    writes = [event for event in recording.events if event.kind == "write"]
    assert [event["copy"] for event in writes] == [1, None]
    go(browser, writes[0].id)
    assert texts(browser, "#values tbody tr") == ["r:0copy 1float32 [] 7"]
    go(browser, writes[1].id)
    assert texts(browser, "#values tbody tr") == ["r:0copy 1float32 [] 7", "w:0copies 0-1float32 [3] [2, 3, 4]"]


def test_what_a_program_says_is_shown_as_text(shown) -> None:
    strategy = broken.mirrored(2)
    with pytest.raises(KeyError), refdist.record() as recording:
        with strategy.scope():
            w = refdist.Variable(1.0, name=HOSTILE)
        print(HOSTILE)
        w.assign(2.0)
        raise KeyError(HOSTILE)
    hostile = Recording([replace(event, device=HOSTILE, fields={**event.fields, **(
        {"site": [HOSTILE + ":1"]} if "site" in event.fields else {})}) for event in recording.events],
        {HOSTILE: HOSTILE})
    browser = shown(hostile)
    for number in range(len(hostile)):
        go(browser, number)
    assert browser.value("typeof window.hacked") == "undefined"
    assert browser.value("[document.images.length, document.scripts.length]") == [0, 4]
    for place in ("#values", "#list", "#source", "#findings", "#detail"):
        assert HOSTILE in text(browser, place), place


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_processes_that_were_recorded_are_shown_together(shown, tmp_path: Path, killed: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROCESSES)
    mpiexec(2, str(script), "killed" * killed, REFDIST_RECORD=str(tmp_path / "a"), REFDIST_TIMEOUT="20")
    recording = refdist.insight.load(tmp_path / "a")
    browser = shown(recording)
    assert text(browser, "#about") == f"{len(recording)} events, 2 workers, 2 replicas, 0 variables"
    listed = texts(browser, "#findings button")
    assert bool(listed) == killed
    if killed:
        assert re.search(r"Exchange 2 between workers was not carried out\. Replica 0 at script\.py:5: all_reduce SUM "
                         r"of float32 \[\]; worker 1 never arrives$", listed[0])
    meets = [event for event in recording.events if event.kind == "exchange" and event["call"] == "all_reduce"]
    order = layout.in_order(recording.events, layout.slots_of(recording.events))
    go(browser, [event.id for event in order].index(meets[-1].id))
    assert len(texts(browser, "#call tbody tr")) == 2, "both workers"
    if killed:
        browser.value("document.querySelector('#findings button').click()")
        assert texts(browser, "#call tbody tr")[-1].startswith("worker 1never arrives")


def test_a_recording_of_nothing_is_a_page(shown) -> None:
    assert text(shown(Recording()), "#now") == "Nothing was recorded."


def test_a_screen_reader_finds_names_and_the_current_event_in_words(shown) -> None:
    recording = recorded()
    browser = shown(recording)
    arrival = next(event.id for event in recording.events if event.kind == "meet")
    go(browser, arrival)
    nodes = [(node["role"]["value"], node.get("name", {}).get("value", ""))
             for node in browser.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    for role, name in nodes:
        if role in ("searchbox", "combobox", "slider", "button", "group", "region", "heading"):
            assert name.strip(), role
    assert ("slider", "Event") in nodes and ("searchbox", "Search in events") in nodes
    assert {"banner", "main", "search", "status", "table", "columnheader", "rowheader"} <= {role for role, _ in nodes}
    words = (f"Event {arrival} of {len(recording)}: replica 0 arrives at rendezvous 1: all_reduce SUM of float32 [3], "
             "recorded.py:")
    assert text(browser, "#now").startswith(words)
    assert browser.value("document.getElementById('slider').getAttribute('aria-valuetext')").startswith(words)


def test_light_and_dark(shown) -> None:
    lightness = "(text => text.match(/\\d+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0))"
    for dark in (False, True):
        browser = shown(recorded(), dark=dark)
        back, ink = (browser.value(f"{lightness}(getComputedStyle(document.body).{name})")
                     for name in ("backgroundColor", "color"))
        assert (back < 100 and ink > 600) if dark else (back > 600 and ink < 150)


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(browser: Browser, tmp_path: Path) -> None:
    browser.errors.clear()
    (tmp_path / "notebook.html").write_text("<body>" + recorded()._repr_html_())
    browser.size(*WIDE)
    browser.open((tmp_path / "notebook.html").as_uri())
    assert browser.value("document.querySelector('iframe').sandbox.value") == "allow-scripts"
    assert browser.value("document.querySelector('iframe').title") == f"Recording of {len(recorded())} events"
    assert browser.value("document.querySelector('iframe').srcdoc").startswith("<!doctype html>")
    assert browser.errors == []


def test_the_numbers_of_a_loss_are_a_curve_that_leads_to_the_step(shown) -> None:
    strategy = broken.mirrored(2)
    with refdist.record() as recording:
        for step in range(20):
            loss = np.float32(np.nan if step == 15 else 20 - step)
            strategy.reduce("MEAN", strategy.run(lambda loss=loss: loss), axis=None)
    browser = shown(recording)
    assert texts(browser, "#few figcaption b")[0].startswith("Strategy.reduce MEAN at test_recording_page.py")
    assert "20 numbers, 1 to 20, at first 20, here 20" in texts(browser, "#few figcaption")[0]
    browser.value("(one => one.onclick({clientX: one.getBoundingClientRect().right - 3}))"
                  "(document.querySelector('#few svg'))")
    assert text(browser, "#now").partition(": ")[2].startswith("program returns float32 [] from Strategy.reduce MEAN")
    assert "here 1" in texts(browser, "#few figcaption")[0]
    assert browser.value("document.querySelectorAll('#few figure:first-child circle').length") == 1


LESSON = """import numpy as np
import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2", "GPU:3"])
rows = refdist.data.Dataset.range(24).map(np.float32).batch(8)


def step(x):
    return {returned}


for batch in strategy.experimental_distribute_dataset(rows):
    losses = strategy.run(step, (batch,))
    print("loss", strategy.reduce("SUM", losses, axis=None))
"""


@pytest.mark.parametrize(("returned", "parts", "sums"), [
    ("x.mean()", ["0.5", "2.5", "4.5", "6.5"], ("14", "14 to 78")),
    ("x.sum() / np.float32(8)", ["0.125", "0.625", "1.125", "1.625"], ("3.5", "3.5 to 19.5"))], ids=["wrong", "mended"])
def test_why_a_loss_is_wrong_is_seen_on_the_page_alone(shown, tmp_path: Path, returned: str, parts: list[str],
                                                       sums: tuple[str, str]) -> None:
    (tmp_path / "loss.py").write_text(LESSON.format(returned=returned))
    with refdist.record() as recording:
        runpy.run_path(str(tmp_path / "loss.py"))
    browser = shown(recording)
    curve = texts(browser, "#few figcaption")[0]
    assert curve == f"Strategy.reduce SUM at loss.py:14 3 numbers, {sums[1]}, at first {sums[0]}, here {sums[0]}"
    browser.value("(one => one.onclick({clientX: one.getBoundingClientRect().left + 3}))"
                  "(document.querySelector('#few svg'))")
    assert texts(browser, "#call tbody tr") == [
        *(f"replica {i} contributesits last rows: {2 * i}-{2 * i + 1}float32 [] {part}"
          for i, part in enumerate(parts)),
        f"returnedfloat32 [] {sums[0]}"]
    assert texts(browser, "#source .at") == ['program14    print("loss", strategy.reduce("SUM", losses, axis=None))']
    # Before it, each replica returns its part, at the line that is to be mended.
    choose(browser, "kind", "return")
    choose(browser, "replica", "2")
    assert texts(browser, "#call tbody tr") == [f"returnedfloat32 [] {parts[2]}"]


def test_a_long_recording_is_seen_as_a_whole_and_at_any_size(shown) -> None:
    recording = steps(60)
    browser = shown(recording)
    first = browser.value("view.scrollWidth")
    browser.value("at('narrower').click(), at('narrower').click()")
    assert browser.value("view.scrollWidth") < first / 2
    browser.value("(one => one.onclick({clientX: one.getBoundingClientRect().right - 2}))(at('overview'))")
    drawn(browser)
    assert int(text(browser, "#now").split()[1]) > len(recording) * 0.95
    assert browser.value("at('seen').getBoundingClientRect().right") > WIDE[0] * 0.9


def test_a_name_is_not_cut_where_there_is_room(shown) -> None:
    strategy = broken.mirrored(2)
    with strategy.scope():
        v = refdist.Variable(0.0, name="layer_of_some_depth/kernel", aggregation=refdist.VariableAggregation.SUM)
    with refdist.record() as recording:
        strategy.run(lambda: v.assign_add(1.0))
    browser = shown(recording)
    name = "assign_add layer_of_some_depth/kernel:0"
    shown_name = browser.value(f"(name => (pen.font = '12px system-ui, sans-serif', [fitting(name, LONGEST), "
                               f"pen.measureText(name).width * .83 < HEAD]))({json.dumps(name)})")
    assert shown_name == [name, True]
