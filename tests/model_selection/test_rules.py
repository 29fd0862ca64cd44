"""Which settings are chosen from scores, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.model_selection.rules import choose, find_edges, find_values_beyond
from unskew.model_selection.scores import SettingScores


def scored(scores: list[float], **settings: object) -> SettingScores:
    return SettingScores(dict(settings), dict(enumerate(scores)))


BEST = scored([1.0, 1.2, 0.8, 1.0], l2=1.0, n_factors=5)


def test_the_best_score_wins() -> None:
    other = scored([2.0, 2.0, 2.0, 2.0], l2=10.0, n_factors=5)

    assert choose([BEST, other], "best", n_folds=4) is BEST


def test_the_simplest_within_one_paired_standard_error_wins() -> None:
    """Differences 0.3, -0.1, 0.1, 0.0: mean 0.075, standard error 0.0854."""
    near = scored([1.3, 1.1, 0.9, 1.0], l2=10.0, n_factors=5)
    differences = near.differences(BEST)
    assert differences.mean() <= np.std(differences, ddof=1) / 2

    assert choose([BEST, near], "one_standard_error", n_folds=4) is near


def test_pairing_decides_not_the_spread_over_folds() -> None:
    """Always worse by 0.01: far less than the spread of the scores, but without any doubt."""
    worse = scored([1.01, 1.21, 0.81, 1.01], l2=10.0, n_factors=5)

    assert choose([BEST, worse], "one_standard_error", n_folds=4) is BEST


def test_repetitions_are_not_more_data() -> None:
    """The same four differences twice: the standard error of eight folds would be too small."""
    best = scored([1.0, 1.2, 0.8, 1.0] * 2, l2=1.0)
    near = scored([1.3, 1.1, 0.9, 1.0] * 2, l2=10.0)

    assert choose([best, near], "one_standard_error", n_folds=4) is near


@pytest.mark.parametrize(
    "settings",
    [
        {"l2": 0.1, "n_factors": 5},  # weaker penalty
        {"l2": 10.0, "n_factors": 9},  # more factors
        {"l2": "auto", "n_factors": 5},  # cannot be ordered
    ],
)
def test_a_setting_that_is_not_simpler_is_never_preferred(settings: dict[str, object]) -> None:
    same = SettingScores(settings, dict(BEST.scores))

    assert choose([BEST, same], "one_standard_error", n_folds=4) is BEST


def test_settings_that_differ_otherwise_are_not_compared() -> None:
    best, other = (
        scored([1.0, 1.1], l2=1.0, offsets="free"),
        scored([1.0, 1.1], l2=9.0, offsets="x"),
    )

    assert choose([best, other], "one_standard_error", n_folds=2) is best


def test_a_setting_that_halving_dropped_is_not_chosen() -> None:
    dropped = scored([1.0], l2=10.0, n_factors=5)

    assert choose([BEST, dropped], "one_standard_error", n_folds=4) is BEST


def test_edges_are_those_of_grids_of_three_numbers() -> None:
    grid = {"l2": [1.0, 5.0, 25.0], "offsets": ["a", "b", "c"], "n_factors": [5, 10]}

    assert list(find_edges(grid, {"l2": 25.0, "offsets": "a", "n_factors": 5})) == ["l2"]
    assert list(find_edges(grid, {"l2": 5.0, "offsets": "a", "n_factors": 5})) == []


def test_one_step_beyond_the_edge_has_the_ratio_of_the_last_step() -> None:
    grid = {"l2": [5.0, 1.0, 20.0], "n_factors": [2, 4, 8]}

    assert find_values_beyond(grid, {"l2": 20.0, "n_factors": 8}) == {"l2": 80.0}
    assert find_values_beyond(grid, {"l2": 1.0, "n_factors": 4}) == {"l2": pytest.approx(0.2)}
    assert find_values_beyond(grid, {"l2": 5.0, "n_factors": 8}) == {}
    assert find_values_beyond({"l2": [0.0, 1.0, 2.0]}, {"l2": 0.0}) == {}
