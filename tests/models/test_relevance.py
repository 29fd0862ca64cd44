"""Rel-MF: the identity behind it, its exposures, and data of its own kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from factor_models import predict_matrix
from unskew.data.ratings import Ratings
from unskew.factorization.objective import scaled_ridge
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.relevance import RelevanceFactorization, popularity_exposure

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")


def clicks(shape: tuple[int, int] = (25, 18), seed: int = 0) -> Ratings:
    rng = np.random.default_rng(seed)
    user, item = np.nonzero(rng.random(shape) < 0.3 * rng.random(shape[1]))
    return Ratings.from_codes(user, item, rng.integers(1, 6, user.size), shape=shape)


LOG = clicks()
P = np.random.default_rng(1).uniform(0.1, 1, len(LOG))


def test_weighted_ones_and_zeros_are_one_square_but_for_a_constant() -> None:
    """(Y/t) (1 - F)^2 + (1 - Y/t) F^2 = (F - Y/t)^2 + Y/t - (Y/t)^2, cell by cell."""
    rng = np.random.default_rng(0)
    inverse = np.where(rng.random((9, 7)) < 0.4, 1 / rng.uniform(0.1, 1, (9, 7)), 0.0)
    for _ in range(3):
        f = rng.normal(size=inverse.shape)
        two_terms = inverse * (1 - f) ** 2 + (1 - inverse) * f**2
        np.testing.assert_allclose(two_terms, (f - inverse) ** 2 + inverse - inverse**2, atol=1e-10)


@pytest.mark.parametrize("offsets", ["none", "free", "regularized"])
def test_the_fit_minimises_the_two_weighted_terms(offsets: Any) -> None:
    model = RelevanceFactorization(3, 0.5, offsets=offsets, tol=1e-14, max_iter=5000).fit(LOG, P)
    inverse = np.zeros((LOG.n_users, LOG.n_items))
    inverse[LOG.user, LOG.item] = 1 / P
    f, found = predict_matrix(model), model.factors_
    l2 = scaled_ridge(0.5, LOG, n_factors=3, penalizes_offsets=offsets == "regularized")
    penalty = l2 * found.squared_norm(with_offsets=offsets == "regularized")
    two_terms = float((inverse * (1 - f) ** 2 + (1 - inverse) * f**2).sum()) + penalty
    slope = 2 * (inverse * (f - 1) + (1 - inverse) * f)

    assert model.objective_ == pytest.approx(
        two_terms + float((inverse**2 - inverse).sum()), rel=1e-10
    )
    np.testing.assert_allclose(
        slope @ found.item_factors + 2 * l2 * found.user_factors, 0, atol=1e-3
    )
    np.testing.assert_allclose(
        slope.T @ found.user_factors + 2 * l2 * found.item_factors, 0, atol=1e-3
    )


def test_exposure_is_the_popularity_of_items_by_hand() -> None:
    log = Ratings.from_codes([0, 1, 2, 3, 0, 0], [0, 0, 0, 0, 1, 2], np.ones(6), shape=(4, 4))

    assert popularity_exposure(log, power=0.5, floor=0.01) == pytest.approx([1, 1, 1, 1, 0.5, 0.5])
    assert popularity_exposure(log, power=1.0, floor=0.3) == pytest.approx([1, 1, 1, 1, 0.3, 0.3])


def test_popularity_is_what_is_used_without_propensities() -> None:
    assumed = popularity_exposure(LOG, power=0.7, floor=0.2)

    one, other = (
        RelevanceFactorization(3, power=0.7, floor=0.2, max_iter=5).fit(LOG, p)
        for p in (None, assumed)
    )

    assert one.history_ == other.history_


def test_ratings_below_the_threshold_are_no_clicks_but_are_not_recommended_again() -> None:
    clicked = LOG.take(LOG.rating >= 4)

    one = RelevanceFactorization(3, relevance_threshold=4, max_iter=5).fit(LOG, P)
    other = RelevanceFactorization(3, max_iter=5).fit(clicked, P[LOG.rating >= 4])

    assert one.history_ == other.history_
    assert len(one.seen_items_) == len(LOG)


@pytest.mark.filterwarnings("ignore:all .* ratings are 1:unskew.errors.UnskewWarning")
def test_relevance_is_recovered_where_clicks_are_relevance_times_exposure() -> None:
    """The true risk is less than half that of models that ignore exposure, and of constants."""
    rng = np.random.default_rng(0)
    n_users, n_items = 1000, 200
    relevance = rng.beta(1, 2, (n_users, 2)) @ rng.dirichlet([0.5, 0.5], n_items).T
    exposure = rng.uniform(0.1, 1, n_items)
    clicked = (rng.random(relevance.shape) < relevance) & (rng.random(relevance.shape) < exposure)
    log = Ratings.from_dense(clicked.astype(float))
    theta = exposure[log.item]

    def risk(model: Any) -> float:
        return float(np.square(predict_matrix(model) - relevance).mean())

    ours = RelevanceFactorization(2, 0.3).fit(log, theta)

    rivals = [
        MatrixFactorization(2, l2).fit(log, given) for l2 in (0.3, 3.0) for given in (None, theta)
    ]
    blind = RelevanceFactorization(2, 0.3).fit(log, np.ones(len(log)))
    assert risk(ours) < 0.5 * min(map(risk, [*rivals, blind]))
    assert risk(ours) < 0.5 * relevance.var()
