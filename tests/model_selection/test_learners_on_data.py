"""Doubly robust learning on real ratings. Takes minutes; run with -m slow."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

import unskew
from unskew.errors import ConvergenceWarning, PropensityWarning
from unskew.model_selection.comparison import compare_learners
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.paper.completion import find_ground_truth
from unskew.paper.draws import sample_ratings
from unskew.paper.figure3 import mse_of_all_cells
from unskew.propensity.naive_bayes import NaiveBayesPropensity

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

needs_data = pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
FAST = {"tol": 1e-5, "max_iter": 200}


def imputers(*settings: tuple[int, float]) -> list[MatrixFactorization]:
    return [
        MatrixFactorization(n_factors, l2, offsets="none", **FAST) for n_factors, l2 in settings
    ]  # type: ignore[arg-type]


@pytest.mark.slow
@needs_data
@pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")
def test_coat_has_the_published_error_of_mf_ips_and_less_with_imputers_chosen_on_its_test() -> None:
    """MF-IPS has the error of the paper, 1.093.

    The imputers without offsets were chosen on this test, so their gain is no evidence for doubly
    robust learning (docs/results.md has the blind comparison). Cross-validation does not see the
    gain: its score is 1.264 for MRDR and 1.248 for MF-IPS.
    """
    coat = unskew.datasets.load_coat(os.environ["UNSKEW_DATA"])
    tests = {"all": coat.test, "clean": coat.test.take(~coat.overlap)}
    learners = {
        "MF-IPS": (
            MatrixFactorization(40, **FAST),
            {"l2": (10.0, 25.0, 50.0), "offsets": ("free", "regularized")},
        ),  # type: ignore[arg-type]
        "MRDR": (
            DoublyRobustFactorization(40, **FAST),  # type: ignore[arg-type]
            {"l2": (10.0, 25.0, 50.0), "imputer": imputers((5, 1.0), (20, 1.0), (20, 5.0))},
        ),
    }

    comparison = compare_learners(
        coat.train, learners, test=tests, propensities=coat.propensities, n_repeats=3
    )

    assert comparison.row("MF-IPS", metric="mse", test="all")["mean"] == pytest.approx(
        1.093, abs=0.005
    )
    assert comparison.row("MF-IPS", metric="mse", test="clean")["mean"] == pytest.approx(
        1.121, abs=0.005
    )
    for test in tests:
        row = comparison.row("MRDR", metric="mse", test=test)
        assert row["mean"] < comparison.row("MF-IPS", metric="mse", test=test)["mean"] - 0.04
        assert row["difference_high"] < 0


@pytest.mark.slow
@needs_data
def test_doubly_robust_learning_is_no_worse_with_propensities_of_a_small_sample() -> None:
    """Completed MovieLens 100K, naive Bayes with 1,000 random ratings; errors over all cells."""
    world = find_ground_truth(os.environ["UNSKEW_DATA"])
    observation = world.observation(0.25)
    small = {"tol": 3e-5, "max_iter": 100, "dtype": "float32"}
    weighted = MatrixFactorization(20, offsets="free", **small)  # type: ignore[arg-type]
    robust = DoublyRobustFactorization(20, weighting="dr-jl", **small)  # type: ignore[arg-type]
    grids = (
        {"l2": (0.5, 1.0, 2.0, 5.0)},
        {"l2": (1.0, 2.0), "imputer": imputers((20, 0.5), (20, 1.0))},
    )
    errors = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        for trial in range(2):
            rng = np.random.default_rng((0, 7, trial))
            log, _ = observation.draw(rng)
            bayes = NaiveBayesPropensity().fit(log, mcar=sample_ratings(world.ratings, 1000, rng))
            pairs = zip((weighted, robust), grids, strict=True)
            fits = [
                unskew.cross_validate(model, log, propensities=bayes, grid=grid, random_state=trial)
                for model, grid in pairs
            ]
            errors.append([mse_of_all_cells(fit.best_model, world.ratings) for fit in fits])

    assert all(robust <= weighted for weighted, robust in errors)
