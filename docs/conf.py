"""Configuration of Sphinx.

`make docs` builds a copy of this folder, so generated pages never lie next to the sources.
The reference is derived from the public names, and the tables of names from the registries.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import unskew
from unskew.models import PRESETS, Preset
from unskew.registry import Registry

project = "unskew"
author = "the unskew authors"
project_copyright = "the unskew authors, BSD-3-Clause"
version = release = unskew.__version__

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "api_examples",
    "glossary_links",
]
nitpicky = True
# A reference to a public name must resolve. Other references need not.
PUBLIC = "|".join(name for name in unskew.__all__ if name != "__version__")
nitpick_ignore_regex = [(r"py:.*", rf"(?!unskew(\.({PUBLIC}))?\.\w+$).*")]
templates_path = ["_templates"]
exclude_patterns = ["_templates", "api-examples"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "dollarmath", "substitution"]
myst_substitutions = {"version": version}
autosummary_generate = True
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: name.rsplit(".", maxsplit=1)[-1]
    for name in (
        "npt.ArrayLike",
        "CandidatesLike",
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
plot_formats = [("png", 144)]
plot_html_show_formats = plot_html_show_source_link = False
copybutton_prompt_text = r">>> |\.\.\. ?|\$ "  # the button copies code without prompts and results
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "thumbnail_size": (560, 400),
    "default_thumb_file": str(Path(__file__).parent / "_static" / "report.png"),
    "backreferences_dir": "gallery/uses",
    "doc_module": ("unskew",),
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
    "logo": {"text": f"unskew {version}"},
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
html_sidebars = {
    "index": [],
    "install": [],
    "quickstart": [],
    "concepts": [],
}  # pages without subpages

PACKAGES = {
    "evaluation": "Evaluate models",
    "propensity": "Estimate propensities",
    "diagnostics": "Check propensities",
    "models": "Train recommenders",
    "model_selection": "Split logs and choose settings",
    "policies": "Evaluate rankings from impressions",
    "data": "Logs and propensities",
    "datasets": "Public data sets",
    "simulation": "Simulate logs",
    "metrics": "Metrics",
    "estimators": "Estimators and weight transforms",
    "engines": "Engines",
}
"""Tasks, by package, in the order of the reference."""
SINGLE_PAGES = {"theory": "Theory", "errors": "Errors and warnings"}
"""Modules that are documented on one page."""


def find_public_packages() -> dict[str, ModuleType]:
    """The packages that ``unskew`` exports; a new one without a heading is an error."""
    exported = {name: getattr(unskew, name) for name in unskew.__all__}
    packages = {name: each for name, each in exported.items() if isinstance(each, ModuleType)}
    if packages.keys() != PACKAGES.keys() | SINGLE_PAGES.keys():
        raise ValueError(f"PACKAGES and SINGLE_PAGES must name exactly {sorted(packages)}")
    return packages


def list_names(module: str, heading: str, names: list[str]) -> list[str]:
    """A table of names of a module, each with a page of its own, under a heading of the sidebar."""
    if not names:
        return []
    table = [f".. currentmodule:: {module}", "", ".. autosummary::", "   :toctree: ."]
    table += [f"   :caption: {heading}"]
    return [*table, "   :nosignatures:", "", *(f"   {name}" for name in names), ""]


def find_task(name: str) -> str:
    """The package in which a name of ``unskew`` is defined; that of models for ``load``."""
    package = str(getattr(unskew, name).__module__).split(".")[1]
    return package if package in PACKAGES else "models"


def make_reference() -> str:
    """The page that lists all public names by task."""
    packages = find_public_packages()
    top = [name for name in unskew.__all__ if name not in packages and name != "__version__"]
    parts = ["API reference", "=============", ""]
    parts += ["Texts that functions and commands accept, such as ``snips``: :doc:`names`.", ""]
    parts += [".. toctree::", "   :hidden:", "", "   names", ""]
    for package, heading in PACKAGES.items():
        names = [
            name
            for name in packages[package].__all__
            if name not in top and not isinstance(getattr(packages[package], name), Registry)
        ]
        parts += [heading, "-" * len(heading), ""]
        main = [name for name in top if find_task(name) == package]
        parts += list_names("unskew", heading, main)
        parts += [f"In ``unskew.{package}``:", ""] if names else []
        parts += list_names(f"unskew.{package}", f"In unskew.{package}" if main else heading, names)
    modules = list_names("unskew", "Modules", [*SINGLE_PAGES])
    return "\n".join([*parts, "Modules", "-------", "", *modules])


def make_tables() -> str:
    """The page with one table for each registry of a public package."""
    packages = find_public_packages()
    parts = [
        "# Names",
        "",
        "Names that functions and the command line accept. The tables are made from the",
        "declarations in the code. A metric with a cut is written with `@k`, such as `dcg@10`.",
        "",
    ]
    for package in PACKAGES:
        for registry in vars(packages[package]).values():
            if isinstance(registry, Registry):
                parts += [f"## {registry.kind.capitalize()}s", "", registry.to_markdown(), ""]
    return "\n".join(parts)


def write_pages(app: Any, _config: Any) -> None:
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    (folder / "index.rst").write_text(make_reference())
    (folder / "names.md").write_text(make_tables())


SECTIONS = re.compile(r"^(Parameters|Attributes|Notes|Returns|Examples)$")


def plain_text_to_markup(
    _app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Turn plain docstrings into reStructuredText.

    Indented formulas become code blocks, and ``v_`` and ``||v||`` are shown as they are written.
    """
    markup: list[str] = []
    is_formula, in_section, in_session = False, False, False
    for number, line in enumerate(lines):
        in_section = in_section or bool(SECTIONS.match(line))
        indented = line.startswith("    ")
        after_gap = number == 0 or not lines[number - 1].strip()
        if indented and after_gap and not is_formula and not in_section:
            is_formula = True
            markup += [".. code-block:: text", ""]
        elif line.strip() and not indented:
            is_formula = False
        in_session = bool(line.strip()) and (in_session or line.lstrip().startswith(">>>"))
        markup.append(line if is_formula or in_session else escape_markup(line))
    lines[:] = markup


def escape_markup(line: str) -> str:
    """Escape bars and trailing underscores, and write products with a middle dot.

    Text in backquotes is not changed.
    """
    pieces = re.split(r"(`+[^`]*`+)", line)
    plain = [piece.replace("|", r"\|").replace(" . ", " · ") for piece in pieces[::2]]
    pieces[::2] = [re.sub(r"(?<=\w)_(?=[\s,;:.)]|$)", r"\\_", piece) for piece in plain]
    return "".join(pieces)


def describe_preset(
    _app: Any, _what: str, _name: str, obj: Any, _options: Any, lines: list[str]
) -> None:
    """Add the summary of a preset to its page, and where its other settings are described."""
    if isinstance(obj, Preset):
        (summary,) = (each.summary for each in PRESETS.values() if each.target is obj)
        others = f"All other settings are those of {obj.model.__name__}."
        lines[:] = [summary, "", *lines, "", others, ""]


def show_alias_names(
    _app: Any,
    _what: str,
    _name: str,
    _obj: Any,
    _options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Show the name of a type alias; inside a union Sphinx shows it as a call."""
    alias = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
    return signature and alias.sub(r"\1", signature), returns and alias.sub(r"\1", returns)


def close_sessions(_app: Any, _name: str, source: list[str]) -> None:
    """Remove the empty line that ends a session for doctest."""
    source[0] = re.sub(r"\n\n```\n", "\n```\n", source[0])


def setup(app: Any) -> None:
    from pygments.lexers.special import TextLexer
    from sphinx.ext import autosummary

    # Without this, a summary that starts with an equation number would end there.
    autosummary.WELL_KNOWN_ABBREVIATIONS += ("Eq.",)
    app.add_lexer("csv", TextLexer)
    app.connect("config-inited", write_pages)
    app.connect("autodoc-process-docstring", plain_text_to_markup, priority=400)
    app.connect("autodoc-process-docstring", describe_preset)
    app.connect("autodoc-process-signature", show_alias_names)
    app.connect("source-read", close_sessions)
