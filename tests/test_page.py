"""The page of a report, looked at in a browser as its readers do: wide, narrow, with a keyboard, and distrustfully."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from browser import Browser, choose, texts

from refdist.conformance import page, report
from refdist.conformance.chapters import Case, cases
from refdist.conformance.judging import Verdict
from refdist.conformance.report import OUTCOMES, Report, Row

EVERYTHING = list(cases())
SOME = [case for case in EVERYTHING if case.chapter.name in ("all_reduce", "losses", "names")]
HOSTILE = "</script><img src=x onerror='window.hacked=1'><!--<script>window.hacked=1</script>"
WORD = "x" * 600
NONE = "\N{EN DASH}"
WIDE, NARROW = (1280, 900), (390, 844)


def row(case: Case, outcome: str, message: str = "", observed: str = "[2.0, 21.0] | raises value  float64") -> Row:
    """A row as the suite writes it."""
    if outcome in ("passed", "skipped"):
        return report.row(Verdict(case, outcome), outcome, message, "")
    line = case.example.statements[-1].line
    verdict = Verdict(case, "failed", "", line, "[2.0, 20.0] | [2.0, 20.0]  float32", observed)
    return report.row(verdict, outcome, message, "it adds one" if outcome == "expected failure" else "")


def made(runs: dict[str, Sequence[Row]]) -> Report:
    """A report with these runs."""
    data = report.empty()
    for name, rows in runs.items():
        report.add(data, name, rows, EVERYTHING, f"test {name}")
    return data


def outcome_of(number: int, shift: int = 0) -> str:
    """All outcomes, in turn."""
    return OUTCOMES[(number + shift) % len(OUTCOMES)] if number % 5 == 0 else "passed"


ONE = made({"mine 1.0": [row(case, outcome_of(i), "it is wrong") for i, case in enumerate(SOME)]})
# The second run is like the first, but expects what fails there to fail; the third differs.
THREE = made({
    "mine 1.0": [row(case, outcome_of(i)) for i, case in enumerate(SOME)],
    "mine 1.1": [row(case, outcome_of(i).replace("failed", "expected failure")) for i, case in enumerate(SOME)],
    "mine 2.0": [row(case, outcome_of(i, 2 * (i % 3 == 0))) for i, case in enumerate(SOME) if i % 7]})


# The text of the page.

def test_the_page_needs_nothing_else() -> None:
    text = page.render(THREE)
    assert not re.search(r"https?:|//[a-z]|\bsrc=|<link|@import|url\(", text.partition('id="data"')[0])
    inlined = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert inlined and "<" not in inlined[1] and json.loads(inlined[1])["runs"][0]["name"] == "mine 1.0"


def test_the_page_has_every_program_with_what_its_chapter_defines() -> None:
    shown = page.data(ONE)
    assert {clause["name"] for clause in shown["clauses"]} == {case.clause.name for case in SOME}
    for case in SOME:
        clause = next(clause for clause in shown["clauses"] if clause["name"] == case.clause.name)
        assert clause["examples"][case.example.number - 1]["source"] == case.example.source
        preamble = case.chapter.preamble
        assert shown["chapters"][case.chapter.name] == (preamble and {"source": preamble.source, "line": preamble.line})


def test_a_page_of_ten_versions_is_not_large() -> None:
    runs = {f"mine {v}": [row(case, "passed" if (7 * i + v) % 8 else "failed", f"found {i}, and not {v}")
                          for i, case in enumerate(EVERYTHING)] for v in range(10)}
    assert 1e6 < len(page.render(made(runs))) < 6e6


def test_what_versions_have_in_common_is_there_once() -> None:
    rows = [row(case, "failed", case.name) for case in SOME]
    shown = page.data(made({"mine 1": rows, "mine 2": rows, "mine 3": [{**rows[0], "message": "else"}, *rows[1:]]}))
    assert len(shown["details"]) == len(rows) + 1


def test_long_texts_are_cut() -> None:
    rows = [row(case, "failed", "m" * 10**6, "f" * 10**6) for case in SOME[:3]]
    rows[0]["output"] = "o" * 10**6 + "the end"
    text = page.render(made({"mine": rows}))
    assert len(text) < 200_000 and "the end" in text and "(1,000,000 characters)" in text


def test_a_program_s_own_traceback_is_shown_and_not_what_its_launcher_printed_afterwards() -> None:
    traceback = "Traceback (most recent call last):\n  File \"mine.py\", line 1\nKeyError: 'kernel'"
    whole, short = (f"step 1\n{traceback}\n" + "launcher: error 1\n" * count for count in (200, 1))
    rows = [{**row(case, "failed"), "output": output} for case, output in zip(SOME[:2], (whole, short), strict=True)]
    shown = [output for *_, output in page.data(made({"mine": rows}))["details"]]
    assert shown == [f"({len(whole):,} characters) ...\n{traceback}", short]


# The page in a browser.

@pytest.fixture
def shown(browser: Browser, tmp_path: Path):
    """Shows the page of a report; no script on it may have failed."""
    def show(data: Report, size: tuple[int, int] = WIDE, fragment: str = "", dark: bool = False) -> Browser:
        page.write(tmp_path, data)
        browser.size(*size, dark)
        browser.open((tmp_path / "report.html").as_uri() + fragment)
        return browser

    browser.errors.clear()
    yield show
    assert browser.errors == []


def visible(browser: Browser) -> set[str]:
    return set(browser.value("[...document.querySelectorAll('details.clause')].filter(one => !one.hidden)"
                             ".map(one => one.id)"))


def clauses_with(data: Report, *outcomes: str) -> set[str]:
    return {row["clause"] for rows in data["implementations"].values() for row in rows if row["outcome"] in outcomes}


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("data", [ONE, THREE], ids=["one run", "three runs"])
def test_the_page_does_not_scroll_sideways(shown, size: tuple[int, int], data: Report) -> None:
    long = json.loads(json.dumps(data))
    for name in list(long["runs"]):
        for row in long["implementations"][name]:
            if row["outcome"] != "passed":
                row.update(message=WORD, found=WORD, output=WORD, reason=WORD)
    browser = shown(long, size)
    for state in ("false", "true"):
        browser.value(f"document.querySelectorAll('details').forEach(one => {{ one.open = {state}; }})")
        # What is opened is built after the event, and laid out in the next frame.
        browser.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert browser.value("document.querySelectorAll('.body').length > 0") == (state == "true")
        assert browser.value("document.documentElement.scrollWidth") <= size[0]
        assert browser.value("innerWidth") == size[0]


def test_clauses_are_found_by_outcome_level_chapter_and_words(shown) -> None:
    browser = shown(ONE)
    assert texts(browser, "title, h1") == 2 * ["Conformance of mine 1.0"]
    everything = {case.clause.name for case in SOME}
    assert visible(browser) == everything
    for outcome in OUTCOMES:
        choose(browser, "outcome", outcome)
        assert visible(browser) == clauses_with(ONE, outcome) != everything
    choose(browser, "outcome", "")
    choose(browser, "level", "SHOULD")
    choose(browser, "chapter", "losses")
    wanted = {case.clause.name for case in SOME if case.clause.level == "SHOULD" and case.chapter.name == "losses"}
    assert visible(browser) == wanted
    assert browser.value("document.getElementById('count').textContent") == \
        f"{len(wanted)} of {len(everything)} clauses"
    assert texts(browser, "h3:not([hidden])") == ["losses"]
    choose(browser, "level", "")
    choose(browser, "chapter", "")
    choose(browser, "search", "MEAN  divides")
    assert visible(browser) == {case.clause.name for case in SOME for text in [
        f"{case.clause.rule} {case.clause.examples}".lower()] if "mean" in text and "divides" in text} != set()


def test_a_chapter_of_the_totals_chooses_it(shown) -> None:
    browser = shown(ONE)
    browser.value("[...document.querySelectorAll('#totals button')].find(one => one.textContent === 'losses').click()")
    assert visible(browser) == {case.clause.name for case in SOME if case.chapter.name == "losses"}


def test_totals_are_those_of_the_rows(shown) -> None:
    totals = shown(ONE).value("[...document.querySelectorAll('#totals tr')].map(one => [...one.children]"
                              ".map(cell => cell.textContent))")
    [rows] = ONE["implementations"].values()
    assert [name for name, *_ in totals[1:]] == ["MUST", "SHOULD", "names", "all_reduce", "losses", "all"]
    for name, *numbers in totals[1:]:
        some = [row for row in rows if name in ("all", row["level"], row["chapter"])]
        assert numbers == [*(str(sum(row["outcome"] == outcome for row in some) or NONE) for outcome in OUTCOMES),
                           str(len(some))]


@pytest.mark.parametrize(("outcomes", "summary"), [
    (("passed", "passed"), "passed by all"), (("passed", "skipped"), "passed by all (some cases were not judged)"),
    (("passed", "unsupported"), "passed by all (some cases were not judged)"), (("failed", "skipped"), "failed by all"),
    (("skipped", "skipped"), "skipped by all"), (("unsupported", "skipped"), "unsupported by all")])
def test_what_was_not_judged_does_not_hide_what_passed(shown, outcomes: tuple[str, str], summary: str) -> None:
    first, second = [case for case in SOME if case.clause.name == "all_reduce.mean"][:2]
    rows = [row(first, outcomes[0]), row(second, outcomes[1])]
    browser = shown(made({"mine 1.0": rows, "mine 1.1": rows}))
    [text] = texts(browser, ".told")
    assert text.partition(" ")[2] == summary


def test_only_what_differs(shown) -> None:
    browser = shown(THREE)
    choose(browser, "differ", True)
    first, second, third = ({row["case"]: row["outcome"] for row in rows} for rows in
                            THREE["implementations"].values())
    wrong = ("failed", "errored", "expected failure")
    different = {case for case in third if third[case] != first[case]
                 and not (third[case] in wrong and first[case] in wrong)}
    assert first != second and different
    assert visible(browser) == {case.clause.name for case in SOME if case.name in different}
    assert shown(ONE).value("document.getElementById('several').checkVisibility()") is False


def test_an_address_opens_its_clause_whatever_is_hidden(shown) -> None:
    state = "(one => [one.open, !one.hidden, document.activeElement === one.firstElementChild, " \
            "one.getBoundingClientRect().top >= 0 && one.getBoundingClientRect().top < innerHeight])" \
            "(document.getElementById('all_reduce.mean'))"
    browser = shown(ONE, fragment="#all_reduce.mean")
    assert browser.value(state) == [True, True, True, True]
    browser = shown(ONE, NARROW)
    assert browser.value(state)[0] is False
    choose(browser, "chapter", "losses")
    browser.value("new Promise(done => { addEventListener('hashchange', () => setTimeout(done)); "
                  "location.hash = '#all_reduce.mean'; })")
    assert browser.value(state) == [True, True, True, True]
    assert browser.value("document.getElementById('chapter').value") == ""
    assert browser.value("document.querySelector('details[open] .body a').href").endswith("#all_reduce.mean")
    shown(ONE, fragment="#%")
    shown(ONE, fragment="#nowhere")


def test_what_differs_is_marked_and_stands_beside_what_was_expected(shown) -> None:
    failed = next(case for case in SOME if case.clause.name == "all_reduce.mean")
    data = made({"mine": [row(failed, "failed", "it is wrong", "[2.0, 21.0] | [2.0, 20.0]  float64")]})
    browser = shown(data, fragment="#all_reduce.mean")
    assert texts(browser, ".pair pre") == [
        "[2.0, 20.0] | [2.0, 20.0]  float32", "[2.0, 21.0] | [2.0, 20.0]  float64"]
    assert texts(browser, "mark") == ["20.0", "float32", "21.0", "float64"]
    left, right = browser.value("[...document.querySelectorAll('.pair > div')].map(one => "
                                "one.getBoundingClientRect().y)")
    assert left == right
    assert texts(browser, ".at") == ["strategy.run(step)\n"]
    assert texts(browser, ".body > .result") == ["test mine --clause all_reduce.mean"]
    programs = texts(browser, ".body pre code")
    assert failed.chapter.preamble
    assert programs == [failed.chapter.preamble.source + "\n", failed.example.source + "\n"]


def test_hostile_text_is_shown_as_text(shown) -> None:
    rows = [row(case, "failed", HOSTILE) for case in SOME if case.clause.name == "all_reduce.mean"]
    for hostile in rows:
        hostile.update(reason=HOSTILE, expected=HOSTILE, found=HOSTILE + "!", output=HOSTILE)
    browser = shown(made({HOSTILE: rows, "another": rows[1:]}), fragment="#all_reduce.mean")
    assert browser.value("typeof window.hacked") == "undefined"
    assert browser.value("[document.images.length, document.scripts.length]") == [0, 2]
    assert browser.value("document.querySelector('.difference').textContent").count(HOSTILE) >= 5
    assert HOSTILE in browser.value("document.getElementById('runs').textContent")


def test_a_keyboard_is_enough(shown) -> None:
    browser = shown(ONE)
    browser.press("Tab")
    assert browser.value("document.activeElement.textContent") == "Skip to the clauses"
    browser.value("document.getElementById('search').focus()")
    browser.call("Input.insertText", text="divides")
    assert visible(browser) < {case.clause.name for case in SOME}
    for _ in range(4):
        browser.press("Tab")
    assert browser.value("document.activeElement.tagName") == "SUMMARY"
    browser.press("Enter", "\r")
    assert browser.value("document.activeElement.parentElement.open") is True


def test_a_screen_reader_finds_names_and_headings(shown) -> None:
    browser = shown(THREE)
    nodes = [(node["role"]["value"], node.get("name", {}).get("value", ""))
             for node in browser.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    for role, name in nodes:
        if role in ("searchbox", "combobox", "checkbox", "button", "link", "region", "heading", "DisclosureTriangle"):
            assert name.strip(), role
    assert ("searchbox", "Search in clauses, programs and messages") in nodes
    assert {"banner", "main", "search", "status", "table", "columnheader", "rowheader"} <= {role for role, _ in nodes}


def test_light_and_dark(shown) -> None:
    lightness = "(text => text.match(/\\d+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0))"
    for dark in (False, True):
        browser = shown(ONE, dark=dark)
        back, text = (browser.value(f"{lightness}(getComputedStyle(document.body).{name})")
                      for name in ("backgroundColor", "color"))
        assert (back < 100 and text > 600) if dark else (back > 600 and text < 150)
