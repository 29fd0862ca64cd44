"""The hand-written tables of the documentation name everything that is declared, and links exist.

The tables have formulas and advice that a declaration does not have. The site also has tables that
are made from the declarations (``docs/conf.py``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from unskew.estimators import ESTIMATORS, WEIGHT_TRANSFORMS
from unskew.metrics import METRICS
from unskew.models import PRESETS, RECOMMENDERS
from unskew.propensity import PROPENSITY_MODELS
from unskew.registry import Registry

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PLAIN_LANGUAGE = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
OLD_WORDS = re.compile(
    r"\b(silence|partners?|slope of the loss|complaints?|rivals?|nobody said|as they stand"
    r"|warm_start|parameters_|n_seeds|transform=unskew)\b"
)


def table_cells(page: str) -> str:
    """The rows of all tables of a page."""
    text = (ROOT / page).read_text()
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def has_code(name: str, text: str) -> bool:
    """Whether a name is written as code, perhaps with a cut (``dcg@k``) or with arguments."""
    return re.search(rf"`[\w.]*\b{re.escape(name)}(@k|\([^`]*)?`", text) is not None


@pytest.mark.parametrize(
    ("page", "registry", "by_class"),
    [
        ("docs/metrics-and-estimators.md", METRICS, False),
        ("docs/metrics-and-estimators.md", ESTIMATORS, False),
        ("docs/metrics-and-estimators.md", WEIGHT_TRANSFORMS, True),
        ("docs/guides/which-estimator.md", ESTIMATORS, False),
        ("docs/guides/which-estimator.md", WEIGHT_TRANSFORMS, True),
        ("docs/guides/recommender.md", RECOMMENDERS, True),
        ("docs/propensities.md", PROPENSITY_MODELS, True),
    ],
    ids=lambda value: getattr(value, "kind", str(value)),
)
def test_tables_name_everything_that_is_declared(
    page: str, registry: Registry[Any], by_class: bool
) -> None:
    text = table_cells(page) if page != "docs/propensities.md" else (ROOT / page).read_text()

    missing = [
        declaration.name
        for declaration in registry.values()
        if not has_code(declaration.target.__name__ if by_class else declaration.name, text)
    ]

    assert missing == []


def test_the_guide_to_imputed_ratings_names_the_presets_of_its_models() -> None:
    text = table_cells("docs/guides/doubly-robust.md")
    models = {RECOMMENDERS[name].target for name in ("doubly-robust", "balanced")}

    missing = [
        preset.name
        for preset in PRESETS.values()
        if preset.target.model in models and not has_code(preset.target.name, text)
    ]

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    built = ("http", "gallery/", "../gallery/", "api/", "../api/")  # made by `make docs`

    wrong = [
        link for link in links if not link.startswith(built) and not (page.parent / link).exists()
    ]

    assert wrong == []


@pytest.mark.parametrize("page", PLAIN_LANGUAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_current_words(page: Path) -> None:
    assert OLD_WORDS.findall(page.read_text()) == []
