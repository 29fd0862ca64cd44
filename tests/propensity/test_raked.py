"""Propensities raked to the totals of users and items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import unskew
from unskew.data.estimation import Replicates, TakenAsKnown
from unskew.errors import ConvergenceWarning
from unskew.propensity import (
    ClippedPropensity,
    NaiveBayesPropensity,
    PopularityPropensity,
    RakedPropensity,
    UniformPropensity,
)
from unskew.types import Matrix


def draw(propensity: Matrix, seed: int = 0) -> unskew.Ratings:
    rng = np.random.default_rng(seed)
    rating = rng.integers(1, 6, propensity.shape)
    return unskew.Ratings.from_dense(np.where(rng.random(propensity.shape) < propensity, rating, 0))


def product(n_users: int = 60, n_items: int = 50, spread: float = 0.5, seed: int = 0) -> Matrix:
    """Odds that are a product of a factor of the user and one of the item."""
    rng = np.random.default_rng(seed)
    logit = spread * rng.standard_normal((n_users, 1)) + spread * rng.standard_normal((1, n_items))
    return 1 / (1 + np.exp(1.0 - logit))


LOG = draw(product())


def test_weights_add_up_to_the_cells_of_each_user_and_item() -> None:
    raked = RakedPropensity(UniformPropensity(), ridge=0).fit(LOG)

    weight = 1 / raked.predict(LOG).values
    assert np.bincount(LOG.user, weight) == pytest.approx(np.full(60, 50.0), rel=1e-6)
    assert np.bincount(LOG.item, weight) == pytest.approx(np.full(50, 60.0), rel=1e-6)
    assert raked.largest_error_ < 1e-6
    assert raked.converged_


def test_it_is_the_minimum_of_the_penalised_function() -> None:
    """A slow twin: the convex function, minimised over all factors at once."""
    ridge, odds = 0.3, 1 / 0.25 - 1
    raked = RakedPropensity(UniformPropensity(), ridge=ridge).fit(LOG)
    uniform = 1 / UniformPropensity().fit(LOG).predict(LOG).values - 1
    assert odds > 0

    def loss(parameters: Matrix) -> tuple[float, Matrix]:
        x, y, c = parameters[:60], parameters[60:-1], parameters[-1]
        raked_odds = uniform * np.exp(c + x[LOG.user] + y[LOG.item])
        by_user = 50 - np.bincount(LOG.user, minlength=60)
        by_item = 60 - np.bincount(LOG.item, minlength=50)
        value = raked_odds.sum() - by_user @ x - by_item @ y - (3000 - len(LOG)) * c
        value += ridge / 2 * (50 * x @ x + 60 * y @ y)
        of_user = np.bincount(LOG.user, raked_odds) - by_user + ridge * 50 * x
        of_item = np.bincount(LOG.item, raked_odds) - by_item + ridge * 60 * y
        of_all = raked_odds.sum() - (3000 - len(LOG))
        return value, np.concatenate([of_user, of_item, [of_all]])

    twin = minimize(loss, np.zeros(111), jac=True, method="L-BFGS-B", options={"maxiter": 5000})

    expected = np.exp(twin.x[:60, None] + twin.x[None, 60:-1] + twin.x[-1])
    assert np.outer(raked.user_factor_, raked.item_factor_) == pytest.approx(expected, rel=2e-3)
    assert raked.predict(LOG).inverse.sum() == pytest.approx(3000)


def test_it_removes_an_error_that_is_a_product_of_factors() -> None:
    true = product(400, 300, seed=1)
    log = draw(true, seed=2)
    right = true[log.user, log.item]

    raked = RakedPropensity(UniformPropensity()).fit(log).predict(log).values
    uniform = UniformPropensity().fit(log).predict(log).values

    error = [np.square(np.log(each / right)).mean() for each in (raked, uniform)]
    assert error[0] < 0.1 * error[1]


def test_sums_that_vary_by_chance_are_left_alone_or_nearly_so() -> None:
    log = draw(np.full((300, 200), 0.1), seed=3)

    raked = RakedPropensity(UniformPropensity()).fit(log)

    assert min(raked.ridges_) > 5
    assert np.abs(np.log(raked.predict(log).values / 0.1)).max() < 0.2


def test_users_and_items_without_ratings_are_represented_by_the_others() -> None:
    dense = np.zeros((30, 20))
    dense[:20, :15] = np.where(np.random.default_rng(0).random((20, 15)) < 0.5, 3, 0)
    log = unskew.Ratings.from_dense(dense)

    raked = RakedPropensity(UniformPropensity(), ridge=0.1).fit(log)

    assert raked.predict(log).inverse.sum() == pytest.approx(600)
    assert raked.user_factor_[25] > 0
    assert np.isfinite(raked.predict_pairs(log.users, np.repeat(log.items[0], 30))).all()


def test_it_wraps_a_model_that_reads_ratings() -> None:
    bayes = NaiveBayesPropensity()

    raked = RakedPropensity(bayes, ridge=0).fit(LOG, mcar=[1, 2, 3, 4, 5])
    values = raked.predict(LOG)

    assert raked.sees_ratings
    assert isinstance(values.estimation, TakenAsKnown)
    assert "random ratings" in values.estimation.reason


def test_its_error_is_found_by_refits() -> None:
    fitted = RakedPropensity(PopularityPropensity("item"), ridge=0).fit(LOG)

    assert isinstance(fitted.predict(LOG).estimation, Replicates)
    beforehand = RakedPropensity(PopularityPropensity("item").fit(LOG), ridge=0).fit(LOG)
    assert isinstance(beforehand.predict(LOG).estimation, TakenAsKnown)


def test_with_a_ridge_weighted_estimates_have_no_interval_and_the_result_says_why() -> None:
    raked = RakedPropensity(UniformPropensity()).fit(LOG)

    result = unskew.evaluate(LOG, np.full(len(LOG), 3.0), propensities=raked, metrics=["mse"])

    rows = {row.estimator: row for row in result}
    assert np.isnan(rows["snips"].ci_low)
    assert np.isfinite(rows["naive"].ci_low)
    assert "weighted estimates have no interval, because raking with a ridge" in str(
        result.describe_propensities()
    )
    known = unskew.evaluate(
        LOG, np.full(len(LOG), 3.0), propensities=raked, metrics=["mse"], propensities_known=True
    )
    assert all(np.isfinite(row.ci_low) for row in known)


@pytest.mark.parametrize(
    "model",
    [
        RakedPropensity(UniformPropensity()),
        RakedPropensity(PopularityPropensity("item").fit(LOG), ridge=0),
    ],
    ids=["without an interval", "taken as known"],
)
def test_two_models_have_a_page_though_the_error_of_the_propensities_is_left_out(
    model: RakedPropensity,
) -> None:
    """The page says how wrong the odds may be, which distorts these propensities too."""
    rng = np.random.default_rng(2)
    models = {"a": LOG.rating, "b": LOG.rating + rng.normal(1, 0.1, len(LOG))}
    raked = model.fit(LOG)

    result = unskew.evaluate(LOG, models, propensities=raked, metrics=["mse"])

    assert result.to_record()["robustness"] == (
        "However wrong the odds of being logged are, the order of a and b stays; sampling error "
        "is not included."
    )


def test_totals_that_no_weights_have_cause_a_warning() -> None:
    dense = np.zeros((40, 5))
    dense[0, :4], dense[1:, 4] = 3, 3  # four items have one user only, who has 5 cells, not 160

    with pytest.warns(ConvergenceWarning, match="no weights may have these totals"):
        RakedPropensity(UniformPropensity(), ridge=0, max_iter=50).fit(
            unskew.Ratings.from_dense(dense)
        )


def test_it_can_be_saved_and_nested(tmp_path: Path) -> None:
    model = RakedPropensity(ClippedPropensity(PopularityPropensity("item"), min_propensity=0.1))
    model.fit(LOG).save(tmp_path / "raked.unskew")

    loaded = unskew.load(tmp_path / "raked.unskew")

    assert np.array_equal(loaded.predict(LOG).values, model.predict(LOG).values)
