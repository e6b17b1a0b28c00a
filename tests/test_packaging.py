"""The wheel is made of what setup.cfg lists: a folder that is missing there is left out without a word."""

from __future__ import annotations

import ast
import configparser
import sys
import tomllib
from pathlib import Path

from refdist.conformance import distribution

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "conformance"
# What builds the wheel of the suite alone.
OF_THE_SUITE_ALONE = {FOLDER / "pyproject.toml", FOLDER / "LICENSE"}


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_folder_with_modules_is_a_package_of_the_wheel() -> None:
    listed = set(setup_cfg()["options"]["packages"].split())
    folders = {path.parent for folder in ("refdist", "backends", "conformance")
               for path in (ROOT / folder).rglob("*.py")}
    names = set()
    for folder in folders:
        parts = folder.relative_to(ROOT).parts
        names.add(".".join(parts if parts[0] == "refdist" else ("refdist", *parts)))
    assert names == listed


def test_every_package_has_a_folder() -> None:
    places = dict(line.split(" = ") for line in setup_cfg()["options"]["package_dir"].strip().splitlines())
    assert all((ROOT / folder).is_dir() for folder in places.values())
    assert set(places) == set(setup_cfg()["options"]["packages"].split())


def test_every_file_that_is_not_a_module_is_data_of_its_package() -> None:
    cfg = setup_cfg()
    places = dict(line.split(" = ") for line in cfg["options"]["package_dir"].strip().splitlines())
    listed = {path for package, patterns in cfg["options.package_data"].items() for pattern in patterns.split()
              for path in (ROOT / places[package]).glob(pattern)}
    there = {path for folder in ("refdist", "backends", "conformance") for path in (ROOT / folder).rglob("*")
             if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert ROOT / "backends/gpu/kernels.cu" in there
    assert there - OF_THE_SUITE_ALONE == listed


def test_the_suite_alone_has_the_data_that_it_has_in_refdist() -> None:
    cfg, suite = setup_cfg(), tomllib.loads((FOLDER / "pyproject.toml").read_text())
    listed = suite["tool"]["setuptools"]["package-data"]["refdist_conformance"]
    whole = {pattern for pattern in cfg["options.package_data"]["refdist.conformance"].split()
             if pattern.partition("/")[0] not in ("expected", "testees")}
    assert set(listed) == whole and len(listed) == len(whole)
    packages = suite["tool"]["setuptools"]["packages"]
    assert {name.replace("refdist_conformance", "refdist.conformance") for name in packages} <= set(
        cfg["options"]["packages"].split())


def test_each_distribution_has_the_command_of_the_suite() -> None:
    suite = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    refdist = setup_cfg()["options.entry_points"]["console_scripts"].strip().splitlines()
    assert suite["name"] == distribution.PACKAGE.replace(".", "-") and list(suite["scripts"]) == ["refdist-conformance"]
    assert {line.partition(" = ")[0] for line in refdist} == {"refdist", *suite["scripts"]}


def test_the_suite_alone_needs_pytest_and_nothing_else() -> None:
    suite = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert suite["dependencies"] == ["pytest"]
    for path in FOLDER.glob("*.py"):
        names = {name.split(".")[0] for node in ast.parse(path.read_text()).body
                 for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else
                              [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else [])}
        assert names <= {*sys.stdlib_module_names, "pytest"}, path.name


def test_the_versions_agree() -> None:
    import refdist

    assert setup_cfg()["metadata"]["version"] == refdist.__version__ == distribution.VERSION
