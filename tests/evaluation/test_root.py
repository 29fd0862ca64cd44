"""RMSE: the root of the mean squared error, with its error by the delta method."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import unskew
from unskew.errors import UsageError
from unskew.propensity.popularity import PopularityPropensity

WORLD = unskew.simulate(60, 40, density=0.2, alpha=0.5, random_state=0)
RNG = np.random.default_rng(0)
MODELS = {
    name: WORLD.truth + noise * RNG.normal(size=WORLD.truth.shape)
    for name, noise in (("good", 0.5), ("bad", 0.9))
}
ESTIMATORS = ["naive", "ips", "snips", "user_normalized"]


def judge(**options: object) -> unskew.evaluation.Evaluation:
    settings = {"metrics": ["mse", "rmse"], "estimators": ESTIMATORS, "universe": "log"}
    return unskew.evaluate(
        WORLD.log, MODELS, **({"propensities": WORLD.propensities} | settings | options)
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("cluster", [None, "user", "both"])
def test_values_errors_and_differences_follow_from_those_of_mse(cluster: str | None) -> None:
    result = judge(cluster=cluster)

    for estimator in ESTIMATORS:
        squares, roots = (result.estimates[name, estimator] for name in ("mse", "rmse"))
        np.testing.assert_allclose(roots.value, np.sqrt(squares.value))
        slope = np.diag(0.5 / roots.value)
        np.testing.assert_allclose(roots.covariance, slope @ squares.covariance @ slope)
        difference = result.compare("good", "bad", metric="rmse", estimator=estimator)
        contrast = np.array([1.0, -1.0])
        assert difference.std_error == pytest.approx(
            np.sqrt(contrast @ roots.covariance @ contrast)
        )
        assert difference.difference < 0


def test_the_delta_method_is_the_derivative_of_the_root() -> None:
    """Moving one delta moves the root by its slope times what the mean moves."""
    squares, step = np.array([1.0, 4.0, 2.5]), 1e-6
    moved = squares + step * np.eye(3)[0]
    change = (np.sqrt(moved.mean()) - np.sqrt(squares.mean())) / step

    assert change == pytest.approx(0.5 / np.sqrt(squares.mean()) / 3, rel=1e-6)


def test_a_bootstrap_takes_the_root_of_each_resample() -> None:
    result = judge(bootstrap=50, estimators=["snips"])
    squares, roots = (result.estimates[name, "snips"].replicates for name in ("mse", "rmse"))
    assert squares is not None

    np.testing.assert_allclose(roots, np.sqrt(squares))


def test_the_error_of_estimated_propensities_is_scaled_too() -> None:
    fitted = PopularityPropensity().fit(WORLD.log, universe="log")
    result = judge(propensities=fitted, estimators=["snips"])
    squares, roots = (result.estimates[name, "snips"] for name in ("mse", "rmse"))

    assert roots.known_covariance is not None
    np.testing.assert_allclose(
        np.diag(roots.covariance), np.diag(squares.covariance) / (4 * squares.value)
    )


def test_a_frame_gives_the_same() -> None:
    log = WORLD.log
    frame = pd.DataFrame(
        {"user_id": log.user, "item_id": log.item, "rating": log.rating,
         "propensity": WORLD.propensities.values, "good": MODELS["good"][log.user, log.item]}
    )  # fmt: skip
    options = {"metrics": ["rmse"], "estimators": ["ips", "snips"]}
    universe = (log.n_users, log.n_items)
    here = judge(**options)
    there = unskew.evaluate_frame(frame, prediction="good", universe=universe, **options)  # type: ignore[arg-type]

    for estimator in ("ips", "snips"):
        ours, theirs = (
            each.risk("good", metric="rmse", estimator=estimator) for each in (here, there)
        )
        assert (ours.estimate, ours.std_error) == pytest.approx((theirs.estimate, theirs.std_error))


def test_perfect_predictions_have_no_error() -> None:
    perfect = WORLD.log.rating
    result = unskew.evaluate(WORLD.log, perfect, metrics=["rmse"], estimators=["naive"])

    assert (next(iter(result)).estimate, next(iter(result)).std_error) == (0.0, 0.0)


def test_the_range_of_a_difference_of_roots_is_refused() -> None:
    result = judge(estimators=["snips"])
    ranges = unskew.sensitivity(result)

    with pytest.raises(UsageError, match="the range of a difference of rmse is unknown"):
        ranges.compare("good", "bad", metric="rmse", estimator="snips")
    with pytest.raises(UsageError, match="'rmse' is not a sum over cells"):
        judge(estimators=["snips"], sequence=True, planned_size=60)
