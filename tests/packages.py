"""Packages installed for a test: a folder with a module and the metadata that pip would have written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refdist.runtime import process

Offer = Callable[..., Path]


def offering(group: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """For a fixture: installs packages with entry points of a group on the path of a fresh process.

    Yields:
        A function of a package's name, its module's source, and its entry points; it returns the package's folder.
    """
    modules: list[str] = []

    def offer(package: str, source: str, **points: str) -> Path:
        modules.append(package.replace("-", "_"))
        site = install(folder / package, package, source, group, **points)
        monkeypatch.syspath_prepend(str(site))
        return site

    with process.fresh():
        yield offer
    for module in modules:
        sys.modules.pop(module, None)


def install(site: Path, package: str, source: str, group: str, **points: str) -> Path:
    """Writes a package into `site`, a folder that is to be put on the path.

    Args:
        site: made here.
        package: its name.
        source: of its only module.
        group: of its entry points.
        points: its entry points; "toy='Toy'" is the class Toy of its module.
    """
    module = package.replace("-", "_")
    info = site / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {module}:{attribute}" for name, attribute in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    (site / f"{module}.py").write_text(source)
    return site
