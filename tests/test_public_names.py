"""The public names: few at the top, each listed once, all loaded when first used."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import unskew

PACKAGES = (
    "data datasets diagnostics engines estimators evaluation metrics model_selection models "
    "policies propensity simulation theory"
).split()
CONTRACT = {
    "": "Ratings simulate NaiveBayesPropensity LogisticPropensity diagnose evaluate evaluate_frame "
    "MatrixFactorization load cross_validate Impressions simulate_impressions "
    "evaluate_policies",
    "datasets": "load_coat load_movielens_100k load_yahoo_r3",
    "models": "MatrixFactorization DoublyRobustFactorization OffsetsOnly GlobalMean EIB DRV2",
    "propensity": "PopularityPropensity UniformPropensity CrossFittedPropensity",
    "estimators": "Clip IPS SNIPS",
    "metrics": "SquaredError DiscountedGain",
    "engines": "GpuEngine SparkEngine",
    "theory": "tail_bound ips_bias erm_bound erm_bound_estimated",
}
"""Names that code outside this project relies on, by package."""


def test_the_top_level_has_at_most_thirty_names_beside_its_packages() -> None:
    names = {name for name in unskew.__all__ if not isinstance(getattr(unskew, name), ModuleType)}

    assert len(names - {"__version__"}) <= 30
    assert unskew.__all__ == dir(unskew)


@pytest.mark.parametrize("package", CONTRACT, ids=lambda name: name or "unskew")
def test_the_names_that_others_rely_on_exist(package: str) -> None:
    module = getattr(unskew, package) if package else unskew

    for name in CONTRACT[package].split():
        assert name in dir(module)
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_every_listed_name_can_be_loaded(package: str) -> None:
    module = getattr(unskew, package)

    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name).__doc__, f"{package}.{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'unskew' has no attribute 'evalute'"):
        _ = unskew.evalute  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("Clip", "estimators"),
        ("OffsetsOnly", "models"),
        ("UnskewError", "errors"),
        ("load_coat", "datasets"),
    ],
)
def test_a_name_that_was_at_the_top_in_0_1_0_is_found(name: str, place: str) -> None:
    with pytest.raises(AttributeError, match=rf"'{name}'\. It is unskew\.{place}\.{name}$"):
        getattr(unskew, name)


def test_names_are_looked_for_only_where_a_person_could_have_typed_them() -> None:
    code = "import sys, unskew; hasattr(unskew, '__wrapped__'); print('numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout == "False\n"


@pytest.mark.parametrize(
    "heavy",
    ["numba", "sklearn", "scipy", "matplotlib", "pandas", "polars", "pyarrow", "click", "rich"],
)
def test_import_loads_nothing_heavy(heavy: str) -> None:
    code = f"import sys, unskew; unskew.Ratings, unskew.errors; print({heavy!r} in sys.modules)"

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert answer.strip() == "False"
