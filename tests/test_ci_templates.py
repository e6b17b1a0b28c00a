"""The templates in docs/ci: their shell lines run as they stand, on a worked testee and on one with a mistake, and
with the words for a trainer that they name, on a trainer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import apart
import pytest
import yaml

import refdist.conformance

TEMPLATES = Path(__file__).parents[1] / "docs" / "ci"
TESTEE = Path(refdist.conformance.__file__).parent / "testees" / "worked.py"
PAGE = TEMPLATES.parent / "testing-your-implementation.md"
TRAINER = re.compile("# A trainer: write `(.*)` in place of `(.*)`[.]")


def of_github(text: str) -> tuple[dict[str, str], list[str]]:
    """The variables, and the scripts of the steps, each of which has a shell of its own."""
    workflow: dict[str, Any] = yaml.safe_load(text)
    [job] = workflow["jobs"].values()
    return workflow["env"], [step["run"] for step in job["steps"] if "run" in step]


def of_gitlab(text: str) -> tuple[dict[str, str], list[str]]:
    """The variables, and the one script that is made of all lines."""
    [job] = yaml.safe_load(text).values()
    return job["variables"], ["\n".join([*job["before_script"], *job["script"]])]


READ = {"github.yml": of_github, "gitlab.yml": of_gitlab}
# The exit statuses of the scripts where a case fails: the table is shown all the same.
FAILED = {"github.yml": [0, 1, 0], "gitlab.yml": [1]}


def test_every_template_is_named_by_the_page() -> None:
    assert {path.name for path in TEMPLATES.iterdir()} == set(READ)
    assert all(f"docs/ci/{name}" in PAGE.read_text() for name in READ)


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_the_shell_lines_run_as_they_stand(name: str, tmp_path: Path) -> None:
    variables, scripts = READ[name]((TEMPLATES / name).read_text())
    assert set(variables) == {"SUITE", "TESTEE"}
    shutil.copy(TESTEE, tmp_path / "my testee.py")
    commands = apart.install(tmp_path / "apart")

    def run() -> list[int]:
        # The suite is there already, without refdist, so that pip has nothing to fetch; the options choose a few cases.
        env = {**os.environ, "SUITE": "pytest", "TESTEE": "python 'my testee.py'",
               "PYTEST_ADDOPTS": "--clause all_reduce.sum --clause gather.arrays",
               "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
               "PATH": os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])}
        return [subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=tmp_path,
                               env=env).returncode for script in scripts]

    assert not any(run())
    tests = list(ElementTree.parse(tmp_path / "conformance.xml").iter("testcase"))
    assert len(tests) > 10 and not [test for test in tests if test.find("failure") is not None]
    assert (tmp_path / "conformance-report" / "report.html").exists()
    right, wrong = "sum(rows[1:], rows[0])", "rows[0] * len(rows)"
    text = (tmp_path / "my testee.py").read_text()
    assert text.count(right) == 1
    (tmp_path / "my testee.py").write_text(text.replace(right, wrong))
    assert run() == FAILED[name]
    tests = list(ElementTree.parse(tmp_path / "conformance.xml").iter("testcase"))
    assert [test for test in tests if test.find("failure") is not None]
    if name == "github.yml":
        assert "all_reduce.sum #2 @ Mirrored 2" in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_the_shell_lines_run_on_a_trainer_with_the_words_that_they_name(name: str, tmp_path: Path) -> None:
    text = (TEMPLATES / name).read_text()
    [(words, instead)] = TRAINER.findall(text)
    text = TRAINER.sub("", text)
    assert text.count(instead) == 1 and "refdist-conformance[trainers]" in text
    _, scripts = READ[name](text.replace(instead, words))
    commands = apart.install(tmp_path / "apart", absent=("refdist", "greenlet"))  # NumPy is there
    env = {**os.environ, "SUITE": "pytest", "TESTEE": "python testee.py", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
           "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
           "PATH": os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])}
    subprocess.run(["refdist-conformance", "trainers", "--write-testee", "."], cwd=tmp_path, env=env, check=True)
    testee, expected = tmp_path / "testee.py", tmp_path / "expected-failures.txt"
    right, wrong = "sum(part * count for part, count in zip(parts, counts, strict=True)) / sum(counts)", \
        "sum(parts) / len(parts)"

    def run() -> list[int]:
        return [subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=tmp_path,
                               env=env).returncode for script in scripts]

    assert not any(run()) and expected.read_text() == ""
    assert (tmp_path / "conformance-report" / "report.html").exists()
    program = testee.read_text()
    assert program.count(right) == 1
    testee.write_text(program.replace(right, wrong))
    assert run() == FAILED[name]
    tests = ElementTree.parse(tmp_path / "conformance.xml").iter("testcase")
    failed = {test.get("name") for test in tests if test.find("failure") is not None}
    assert failed == {"uneven-end", "undivided-batch"}
    expected.write_text("".join(f"{clause} | 0.75 times | not yet\n" for clause in sorted(failed)))
    assert not any(run())
    testee.write_text(program)
    assert run() == FAILED[name]
