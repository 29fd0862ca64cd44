"""A quick part of ``make fuzz``: calls and files give results or typed errors, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.calls import Tally, find_targets, try_calls
from fuzz.files import try_files
from fuzz.impressions import try_impressions

SEED = 20261118


def assert_clean(tally: Tally) -> None:
    assert tally.raw == {}
    assert tally.silent == {}
    assert tally.slow == {}
    assert tally.typed > 0 < tally.finished


def test_public_calls_give_results_or_typed_errors() -> None:
    tally = try_calls(SEED, 2000)

    assert_clean(tally)
    assert tally.named / tally.typed > 0.7


def test_damaged_files_give_results_or_typed_errors(tmp_path: Path) -> None:
    assert_clean(try_files(SEED, 150, tmp_path))


def test_a_wrong_value_or_row_of_impressions_is_named(tmp_path: Path) -> None:
    tally = try_impressions(SEED, 70, tmp_path, damages_bytes=False)

    assert tally.raw == {}
    assert tally.slow == {}
    assert tally.named == tally.typed == tally.tried


def test_damaged_files_of_impressions_give_results_or_typed_errors(tmp_path: Path) -> None:
    assert_clean(try_impressions(SEED, 30, tmp_path, damages_bytes=True))


@pytest.mark.parametrize(
    "name", ["evaluate", "Ratings", "Ratings.from_codes", "models.EIB.fit", "estimators.Clip"]
)
def test_public_names_are_found_by_introspection(name: str) -> None:
    assert name in {target.name for target in find_targets()}
