"""The examples of the README, the chapters and the docstrings run; printed pages are up to date."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import linecache
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_workers import mpiexec

import refdist

ROOT = Path(__file__).parents[1]
LIBRARIES = {"jax": "jax", "keras": "keras", "pytorch": "torch"}  # that the programs of a page import
COPIED = {"testing-a-trainer": ROOT / "conformance" / "trainers" / "testees"}  # from where a page has a file copied
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_programs_of_a_page_run_one_after_another(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    if page.stem in LIBRARIES:
        pytest.importorskip(LIBRARIES[page.stem], reason="`make interop` installs it")
    if page.stem in COPIED:
        monkeypatch.syspath_prepend(str(COPIED[page.stem]))
    names: dict[str, Any] = {}
    try:
        for number, program in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            # Each program is a file of its own, whose loops can be read.
            file = f"{page.name}, program {number}"
            linecache.cache[file] = len(program), None, program.splitlines(keepends=True), file
            exec(compile(program, file, "exec"), names)
    finally:
        refdist.config.reset_simulated_devices()


def printed() -> Any:
    spec = importlib.util.spec_from_file_location("print_tables", ROOT / "docs" / "print_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAGES


@pytest.mark.parametrize("name", ["tables.md", "errors.md", "capabilities.md", "protocol.md", "specification.md",
                                  "differences.md", "promises.md", "trainer-clauses.md"])
def test_a_printed_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == printed()[name](), "run `make docs`"


# Of the suite only those with examples: its adapters are imported where what they adapt is installed.
MODULES = [".".join(["refdist", *[folder][:folder != "refdist"],
                     *path.relative_to(ROOT / folder).with_suffix("").parts])
           for folder in ("refdist", "backends", "conformance") for path in sorted((ROOT / folder).rglob("*.py"))
           if path.name != "__init__.py" and (folder != "conformance" or re.search("^ +>>> ", path.read_text(), re.M))]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_docstrings_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith(("refdist.backends.jax", "refdist.backends.torch")):
        pytest.importorskip(name.split(".")[2], reason="`make interop` installs it")
    if name.startswith("refdist.tf.keras.") or name in (
            "refdist.tf.computed", "refdist.tf.folders", "refdist.tf.groups", "refdist.tf.images",
            "refdist.tf.matrices", "refdist.tf.windows", "refdist.tf.tape",
            "refdist.tf.testing", "refdist.tf.vocabularies"):
        os.environ.setdefault("KERAS_BACKEND", "torch")
        pytest.importorskip("torch", reason="`make interop` installs it")
        pytest.importorskip("keras", reason="`make interop` installs it")
    elif "torch" in sys.modules:  # what imports it sees its texts, though another module has made tensors TensorFlow's
        monkeypatch.setitem(globals(), "torch", sys.modules["torch"])
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS
                             | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE)
    if name.startswith("refdist.tf.") and "torch" in sys.modules:
        sys.modules["torch"].set_grad_enabled(True)  # a program of TensorFlow's records in tapes only
    assert result.failed == 0


def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    sources = [path for folder in ("refdist", "backends", "conformance") for path in (ROOT / folder).rglob("*.py")]
    wrong = [f"{path.name}: {command}" for path in [*PAGES, *sources]
             for command in re.findall(r"pip install '?refdist.*", path.read_text())]
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("world", ["simulated", "mpi"])
def test_the_readme_s_program_runs_on_workers_with_the_change_it_names(world: str, tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text()
    [program] = re.findall(r"```python\n(import numpy.*?)```", page, re.DOTALL)
    [line] = [line for line in program.splitlines() if "MirroredStrategy" in line]
    named = "strategy = refdist.MultiWorkerMirroredStrategy()"
    assert f"`{named}`" in page
    script = tmp_path / "script.py"
    script.write_text(program.replace(line, named))
    if world == "mpi":
        done = mpiexec(4, str(script))
    else:
        done = subprocess.run([sys.executable, "-m", "refdist", "run", "--workers", "4", str(script)],
                              capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"worker:(\d) CPU:0: float32 scalar (\S+)", done.stdout)
    assert sorted(printed) == [(str(i), "3.") for i in range(4)]


def anchors(page: Path) -> set[str]:
    """The names that readers of Markdown give to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    # Underscores that are mark-up are not in the name: only code keeps those around a word.
    plain = [heading if "`" in heading else re.sub(r"\b__(\w+?)__\b|(?<=\.)__(\w+?)__", r"\1\2", heading)
             for heading in headings]
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in plain}


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*PAGES, *sorted((ROOT / "conformance").glob("*/*.md")), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    known = {page: anchors(page) for page in pages}
    links = [(page, page if not file else (page.parent / file).resolve(), anchor)
             for page in pages for file, anchor in re.findall(r"\]\(([\w./-]*)(?:#([^)]*))?\)", page.read_text())
             if file or anchor]
    assert [(page.name, str(to), anchor) for page, to, anchor in links
            if not to.exists() or (anchor and anchor not in known[to])] == []


def test_the_index_links_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "index.md").read_text())) == pages


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md"])
def test_files_and_functions_that_lead_through_the_code_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    files = {name: next((path for path in (ROOT / name, ROOT / "refdist" / name) if path.exists()), None)
             for name in re.findall(r"`([\w/-]+\.(?:py|md))`", text)}
    assert [name for name, path in files.items() if path is None and "/" in name] == []
    for function, name in re.findall(r"`([\w.]+)`\s+(?:in|\()\s*`([\w/]+\.py)`", text):
        path = files[name]
        assert path is not None and re.search(rf"\b{function.split('.')[-1]}\b", path.read_text()), (function, name)
