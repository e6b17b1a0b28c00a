"""The site: `make site` makes one of the chapters, the specification, the promises and the docstrings.

The pages are those that are read in the repository, and none of them knows of the site: which chapters there are, and
in which order, is what `index.md` links to.  Only the pages of the API are written here, into `out/api`, one per public
module, from its `__all__`; their text is that of the docstrings.

Paths are the repository's (`sphinx-build -c docs . out/site`), because chapters link to the specification beside docs/.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

from docutils import nodes
from sphinx.application import Sphinx

import refdist

ROOT = Path(__file__).parents[1]
API = ROOT / "out" / "api"
MODULES = ["refdist", "refdist.experimental", "refdist.data", "refdist.data.experimental", "refdist.coordinator",
           "refdist.cluster_resolver", "refdist.train", "refdist.random", "refdist.nn", "refdist.tpu", "refdist.config",
           "refdist.errors", "refdist.insight", "refdist.nest"]

project = "refdist"
author = "The refdist authors"
release = version = refdist.__version__
html_title = f"refdist {release}"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["docs/*.md", "conformance/spec/*.md", "conformance/promises/*.md", "CHANGELOG.md",
                    "CONTRIBUTING.md", "out/api/*.rst"]
myst_heading_anchors = 4
default_role = "code"
napoleon_use_ivar = True
autodoc_typehints = "signature"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
highlight_language = "default"  # Python where it is, and nothing where it is not


def _contents() -> str:
    """What the sidebar shows, under captions."""
    chapters = re.findall(r"\]\(([\w-]+)\.md\)", (ROOT / "docs" / "index.md").read_text().split("## Chapters")[1])
    folders = {folder: [f"/conformance/{folder}/{page.stem}"
                        for page in sorted((ROOT / "conformance" / folder).glob("*.md"))]
               for folder in ("spec", "promises")}
    parts = {"Chapters": list(dict.fromkeys(chapters)), "API": [f"/out/api/{name}" for name in MODULES],
             "The specification": folders["spec"], "What the documents promise": folders["promises"],
             "Project": ["/CHANGELOG", "/CONTRIBUTING"]}
    return "".join(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
                   for caption, pages in parts.items())


def _api(name: str, first: dict[int, str]) -> str:
    """The page of a public module; what another module has shown before, `first`, is only named."""
    module = importlib.import_module(name)
    meaning = (inspect.getdoc(module) or "").split("\n\n")[0].splitlines()
    lines = [name, "=" * len(name), "", f".. py:module:: {name}", "", *meaning, ""]
    for member in getattr(module, "__all__", None) or _own(module):
        value, shown = getattr(module, member), f"{name}.{member}"
        if inspect.ismodule(value):
            continue
        described = inspect.isclass(value) or callable(value)
        if described and (before := first.setdefault(id(value), shown)) != shown:
            lines += [f"`{member}` is :py:obj:`{before}`.", ""]
        elif described:
            kind = "autoclass" if inspect.isclass(value) else "autofunction"
            lines += [f".. {kind}:: {shown}", *["   :members:", "   :show-inheritance:"] * inspect.isclass(value), ""]
        else:
            lines += [f".. autodata:: {shown}", ""]
    return "\n".join(lines)


def _own(module: ModuleType) -> list[str]:
    """The public names that a module without `__all__` defines itself."""
    return [name for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__]


def _public_bases(app: Sphinx, name: str, described: object, options: object, bases: list[type]) -> None:
    bases[:] = [base for base in bases if not base.__name__.startswith("_")] or [object]


def _contents_of_the_index(app: Sphinx, page: str, source: list[str]) -> None:
    if page == root_doc:
        source[0] += _contents()


def _examples_in_colours(app: Sphinx, page: nodes.document) -> None:
    if "/conformance/spec/" in page["source"]:
        for example in page.findall(nodes.literal_block):
            example["language"] = "default"


def setup(app: Sphinx) -> None:
    """Writes the pages of the API, and says what is done to pages as they are read."""
    API.mkdir(parents=True, exist_ok=True)
    first: dict[int, str] = {}
    for name in MODULES:
        (API / f"{name}.rst").write_text(_api(name, first))
    app.connect("source-read", _contents_of_the_index)
    app.connect("doctree-read", _examples_in_colours)
    app.connect("autodoc-process-bases", _public_bases)
