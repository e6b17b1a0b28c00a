"""The wheel is made of what setup.cfg lists: a folder that is missing there is left out without a word."""

from __future__ import annotations

import configparser
from pathlib import Path

ROOT = Path(__file__).parents[1]


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
    assert there == listed


def test_the_versions_agree() -> None:
    import refdist

    assert setup_cfg()["metadata"]["version"] == refdist.__version__
