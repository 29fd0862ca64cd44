"""How the documentation is built: `make docs`, which works on a copy, so that nothing generated lies beside the sources."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import unskew

project = "unskew"
author = "the unskew authors"
project_copyright = "the unskew authors, BSD-3-Clause"
version = release = unskew.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!unskew(\.theory)?\.\w+$).*")
]  # a public name that is written down must exist
templates_path = ["_templates"]
exclude_patterns = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}

myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: name.rsplit(".", maxsplit=1)[-1]
    for name in (
        "npt.ArrayLike",
        "PredictionsLike",
        "PropensitiesLike",
        "UniverseLike",
        "FrameUniverse",
        "SampleLike",
        "ValuePropensities",
        "PathLike",
        "Vector",
        "Matrix",
        "IntVector",
        "Ids",
        "WeightTransform",
    )
}
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
python_maximum_signature_line_length = 100
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_",
    "ignore_pattern": r"__init__\.py",
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": "matplotlib",
    "min_reported_time": 3600,
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "unskew"
html_static_path = ["_static"]
html_css_files = ["house.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "unskew"},
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "secondary_sidebar_items": {
        "[!agr]*": ["page-toc"],
        "guides/*": ["page-toc"],
    },  # all but api/, gallery/ and results
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": False,
}
html_sidebars = {"index": [], "quickstart": [], "concepts": []}  # nothing to list beside them

ROOMS = {
    "unskew.data": "Logs, propensities and simulated worlds",
    "unskew.propensity": "Propensity models",
    "unskew.diagnostics": "Trusting propensities",
    "unskew.evaluation": "Judging models",
    "unskew.estimators": "Weights and their transforms",
    "unskew.models": "Recommenders",
    "unskew.model_selection": "Choosing settings",
    "unskew.engines": "Engines",
    "unskew.loading": "Saved models",
    "unskew.datasets": "Public data sets",
    "unskew.errors": "Errors and warnings",
}
"""Headings of the reference, by the module that a public name lives in; the longest that fits."""


def reference() -> str:
    """The page that lists `unskew.__all__`, by rooms: a new public name needs no line here."""
    names: dict[str, list[str]] = {heading: [] for heading in ROOMS.values()}
    modules = []
    for name in unskew.__all__:
        if name == "__version__":
            continue
        public = getattr(unskew, name)
        if public is import_module("unskew.theory") or public is import_module("unskew.errors"):
            modules.append(name)
            continue
        home = public.__module__
        fitting = [room for room in ROOMS if home.startswith(room)]
        names.setdefault(ROOMS[max(fitting, key=len)] if fitting else "Other", []).append(name)
    parts = ["API reference", "=============", "", "Everything that ``import unskew`` offers.", ""]
    parts += [".. currentmodule:: unskew", ""]
    for heading, members in names.items():
        if members:
            parts += [
                heading,
                "-" * len(heading),
                "",
                ".. autosummary::",
                "   :toctree: .",
                "   :nosignatures:",
                "",
            ]
            parts += [*(f"   {member}" for member in members), ""]
    parts += [
        "Modules",
        "-------",
        "",
        ".. autosummary::",
        "   :toctree: .",
        "",
        *(f"   {name}" for name in modules),
        "",
    ]
    return "\n".join(parts)


def write_reference(app: Any, _config: Any) -> None:
    """Put it where Sphinx looks for pages."""
    page = Path(app.srcdir) / "api" / "index.rst"
    page.parent.mkdir(exist_ok=True)
    page.write_text(reference())


SECTIONS = re.compile(r"^(Parameters|Attributes|Notes|Returns|Examples)$")


def plain_text_to_markup(
    _app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Docstrings are written to be read as they stand: indented formulas stay as they are, ``v_`` and ``||v||`` are text."""
    told: list[str] = []
    is_formula, in_section, in_session = False, False, False
    for number, line in enumerate(lines):
        in_section = in_section or bool(SECTIONS.match(line))
        indented = line.startswith("    ")
        after_gap = number == 0 or not lines[number - 1].strip()
        if indented and after_gap and not is_formula and not in_section:
            is_formula = True
            told += [".. code-block:: text", ""]
        elif line.strip() and not indented:
            is_formula = False
        in_session = bool(line.strip()) and (in_session or line.lstrip().startswith(">>>"))
        told.append(line if is_formula or in_session else escaped(line))
    lines[:] = told


def escaped(line: str) -> str:
    """Bars and closing underscores of a line, made text, and the dot of a product no full stop; what is in backquotes stays."""
    pieces = re.split(r"(`+[^`]*`+)", line)
    plain = [piece.replace("|", r"\|").replace(" . ", " · ") for piece in pieces[::2]]
    pieces[::2] = [re.sub(r"(?<=\w)_(?=[\s,;:.)]|$)", r"\\_", piece) for piece in plain]
    return "".join(pieces)


def plain_names(
    _app: Any,
    _what: str,
    _name: str,
    _obj: Any,
    _options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Sphinx shows an alias inside a union as a call; show its name."""
    alias = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
    return signature and alias.sub(r"\1", signature), returns and alias.sub(r"\1", returns)


def close_sessions(_app: Any, _name: str, source: list[str]) -> None:
    """A session ends with an empty line, for doctest; on the page it need not."""
    source[0] = re.sub(r"\n\n```\n", "\n```\n", source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    from pygments.lexers.special import TextLexer
    from sphinx.ext import autosummary

    autosummary.WELL_KNOWN_ABBREVIATIONS += (
        "Eq.",
    )  # else a summary that opens with an equation ends there
    app.add_lexer("csv", TextLexer)
    app.connect("config-inited", write_reference)
    app.connect("autodoc-process-docstring", plain_text_to_markup, priority=400)
    app.connect("autodoc-process-signature", plain_names)
    app.connect("source-read", close_sessions)
