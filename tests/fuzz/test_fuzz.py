"""A quick part of ``make fuzz``: calls and files give results or typed errors, nothing else."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from fuzz.calls import Tally, try_calls
from fuzz.files import try_files
from fuzz.impressions import try_impressions
from fuzz.targets import find_public, find_targets, is_left_out, is_record_of_library
from unskew.data.result import Result
from unskew.errors import UnskewError

SEED = 20261118


def assert_clean(tally: Tally) -> None:
    assert tally.raw == {}
    assert tally.silent == {}
    assert tally.slow == {}
    assert tally.typed > 0 < tally.finished


def test_public_calls_give_results_or_typed_errors() -> None:
    tally = try_calls(SEED, 1500)

    assert_clean(tally)
    assert tally.named / tally.typed > 0.9


def test_damaged_files_give_results_or_typed_errors(tmp_path: Path) -> None:
    assert_clean(try_files(SEED, 150, tmp_path))


def test_a_wrong_value_or_row_of_impressions_is_named(tmp_path: Path) -> None:
    tally = try_impressions(SEED, 70, tmp_path, damages_bytes=False)

    assert tally.raw == {}
    assert tally.slow == {}
    assert tally.named == tally.typed == tally.tried


def test_damaged_files_of_impressions_give_results_or_typed_errors(tmp_path: Path) -> None:
    assert_clean(try_impressions(SEED, 30, tmp_path, damages_bytes=True))


REFUSES = re.compile(
    r"similar_items$|PolicyMixture$|similar_users$|predict_frame$|to_html$|log_to$|datasets|Ratings.examination_w"
    r"|partial_fit$|TargetProbability|TargetRanking|NaiveBayesPropensity.predict_pairs|LogisticFactorization.fold_in|fit_frame$|ClassifierPropensity.save"
)
"""Calls that some objects cannot answer: models without factors, results without a page, ..."""


def test_the_call_that_is_spoiled_works_before(tmp_path: Path, monkeypatch: Any) -> None:
    """A call that fails anyway would hide what a wrong argument does."""
    monkeypatch.chdir(tmp_path)
    refused = {}
    with warnings.catch_warnings(action="ignore"):
        for target in find_targets():
            try:
                target.run()
            except UnskewError as error:
                refused[target.name] = str(error)

    assert {name: text for name, text in refused.items() if not REFUSES.search(name)} == {}


def test_every_public_name_has_a_target() -> None:
    reached = {target.name for target in find_targets()}

    for name, thing in find_public():
        is_result = isinstance(thing, type) and issubclass(thing, Result)
        is_record = isinstance(thing, type) and is_record_of_library(name)
        found = any(each == name or each.startswith(f"{name}.") for each in reached)
        assert found or is_left_out(name, thing) or is_record or is_result, name


@pytest.mark.parametrize(
    "name",
    [
        "Impressions.from_arrays",
        "MatrixFactorization.fold_in",
        "MatrixFactorization.write_recommendations",
        "PositionBias.fit",
        "Ratings.from_codes",
        "evaluate_policies",
        "evaluate_random_test",
        "evaluation.Evaluation.compare",
        "evaluation.Monitor.update",
        "evaluation.wrap_model",
        "models.EIB",
        "propensity.BoostedPropensity.fit",
        "split",
    ],
)
def test_functions_and_methods_are_found_by_introspection(name: str) -> None:
    assert name in {target.name for target in find_targets()}
