"""Every public class and function has an example that is run.

It is in the docstring, or in ``docs/api-examples``, from where the pages of the reference have it.
``make check`` runs both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import unskew
from unskew.registry import Registry

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_extensions"))

from api_examples import FOLDER, has_example, read_examples  # noqa: E402

NOT_RUN = {
    "datasets": "the data may not be shipped; tests/datasets reads made-up files, and "
    "tests/test_guides_on_data.py Coat and MovieLens",
    "engines": "they need a GPU or Spark; tests/engines runs them",
}
"""Packages whose examples are shown but not run, and why."""


def public_names() -> Iterator[tuple[str, object]]:
    """Each public class and function once, by the name under which its page is."""
    names = {name: getattr(unskew, name) for name in unskew.__all__}
    modules = {name: each for name, each in names.items() if isinstance(each, ModuleType)}
    top = [name for name in names if name not in modules and name != "__version__"]
    yield from ((f"unskew.{name}", names[name]) for name in top)
    for package, module in modules.items():
        for name in getattr(module, "__all__", None) or _defined_in(module):
            if name not in top and not isinstance(getattr(module, name), (Registry, ModuleType)):
                yield f"unskew.{package}.{name}", getattr(module, name)


def _defined_in(module: ModuleType) -> list[str]:
    """Public errors and warnings, which have no list of names."""
    return [
        name
        for name, each in vars(module).items()
        if isinstance(each, type) and each.__module__ == module.__name__ and name[0] != "_"
    ]


NAMES = dict(public_names())
EXAMPLES = read_examples()


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    assert len(NAMES) > 200
    assert has_example(NAMES[name]) or name in EXAMPLES


def test_examples_are_of_public_names_without_one() -> None:
    assert [name for name in EXAMPLES if name not in NAMES or has_example(NAMES[name])] == []


def test_only_examples_that_cannot_run_everywhere_are_skipped() -> None:
    skipping = [path.stem for path in FOLDER.glob("*.md") if "+SKIP" in path.read_text()]

    assert sorted(skipping) == sorted(NOT_RUN)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.split(".")[1] not in NOT_RUN])
def test_an_example_uses_its_name(name: str) -> None:
    """By the class or function itself, or by the name that it is declared with."""
    package, _, last = name.removeprefix("unskew.").partition(".")
    code = EXAMPLES[name]
    declared = {
        entry.name
        for registry in vars(getattr(unskew, package)).values()
        if isinstance(registry, Registry)
        for entry in registry.values()
        if entry.target is NAMES[name]
    }
    quoted = {f"{mark}{each}{mark}" for each in declared for mark in "'\""}

    assert last in code or any(each in code for each in quoted) or last in RECORDS


RECORDS = frozenset(
    """
    Comparison CrossValidation Diagnosis DiagnosisRow Estimate Evaluation ExaminationCurve
    GroupedEvaluation ImpressionSimulation Interval Leaderboard LearnerComparison
    ListDescription Neighbors PolicyEvaluation PolicySensitivity Recommendations Risk Robustness
    SamplePlan Sensitivity
    Simulation SpecificationTest Watch
    """.split()
)
"""Records that functions return; their examples call these functions."""
