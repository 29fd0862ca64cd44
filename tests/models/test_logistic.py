from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special
from scipy.optimize import minimize

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import BadRatingError
from unskew.factorization.majorize import LogLoss
from unskew.factorization.objective import scaled_ridge
from unskew.models.logistic import LogisticFactorization
from unskew.threads import Workers

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

WORLD = unskew.simulate(n_users=30, n_items=20, density=0.25, alpha=0.5, random_state=5)
LOG, P = WORLD.log, WORLD.propensities
CLICK = (LOG.rating >= 4).astype(float)


def objective(model: LogisticFactorization, logit: np.ndarray) -> float:
    l2 = scaled_ridge(
        model.l2, LOG, n_factors=model.n_factors, penalizes_offsets=model.offsets == "regularized"
    )
    loss = np.logaddexp(0, logit) - CLICK * logit
    return float(
        P.inverse @ loss
        + l2 * model.factors_.squared_norm(with_offsets=model.offsets == "regularized")
    )


@pytest.mark.parametrize("offsets", ["none", "free", "regularized"])
def test_the_objective_is_the_weighted_log_loss_and_never_rises(offsets: Any) -> None:
    model = LogisticFactorization(2, 1.0, relevance_threshold=4, offsets=offsets).fit(LOG, P)

    probability = model.predict(LOG.users[LOG.user], LOG.items[LOG.item])

    assert ((probability > 0) & (probability < 1)).all()
    assert model.objective_ == pytest.approx(objective(model, special.logit(probability)), rel=1e-9)
    assert all(
        later <= earlier * (1 + 1e-12)
        for earlier, later in zip(model.history_, model.history_[1:], strict=False)
    )


def test_brute_force_finds_nothing_better() -> None:
    model = LogisticFactorization(0, 1.0, relevance_threshold=4, tol=1e-14, max_iter=5000).fit(
        LOG, P
    )
    l2 = scaled_ridge(1.0, LOG, n_factors=0, penalizes_offsets=True)

    def dense(point: np.ndarray) -> float:
        a, b, c = np.split(point, [30, 50])
        logit = a[LOG.user] + b[LOG.item] + c[0]
        return float(
            P.inverse @ (np.logaddexp(0, logit) - CLICK * logit) + l2 * np.square(point).sum()
        )

    best = minimize(dense, np.zeros(51), method="BFGS")

    assert model.objective_ == pytest.approx(best.fun, rel=1e-7)


def test_the_parabola_lies_above_the_log_loss_and_touches_it() -> None:
    rng = np.random.default_rng(0)
    with Workers(1) as workers:
        model = LogisticFactorization(2, 1.0)
        log = Ratings.from_codes(LOG.user, LOG.item, CLICK, shape=(30, 20))
        loss = LogLoss.of(
            model._make_objective(log, 1 / P.values, model._fixed_penalty(log), workers)
        )
    now = rng.normal(0, 3, len(LOG))
    target, weight = loss.quadratic_bound(now, 0)
    for scale in (1e-3, 1.0, 10.0):
        other = now + rng.normal(0, scale, len(LOG))
        rise = weight @ (np.square(other - target) - np.square(now - target))
        assert rise >= loss.loss(other) - loss.loss(now) - 1e-9


def test_scores_are_the_predicted_probabilities() -> None:
    model = LogisticFactorization(2, relevance_threshold=4).fit(LOG, P)

    block = model.scorer(LOG.users, LOG.items)(np.arange(30, dtype=np.int32))

    np.testing.assert_allclose(
        block[LOG.user, LOG.item], model.predict(LOG.users[LOG.user], LOG.items[LOG.item])
    )


def test_unknown_pairs_get_the_weighted_share_of_clicks_without_offsets() -> None:
    model = LogisticFactorization(2, relevance_threshold=4, offsets="none").fit(LOG, P)

    assert model.predict([-1], [-1], on_unknown="fallback")[0] == pytest.approx(
        P.inverse @ CLICK / P.inverse.sum()
    )


def test_ratings_that_are_no_clicks_are_refused() -> None:
    with pytest.raises(
        BadRatingError,
        match=r"log loss needs ratings 0 and 1; there is .* Pass relevance_threshold=4",
    ):
        LogisticFactorization(2).fit(LOG, P)


def test_a_log_of_clicks_alone_says_what_to_take() -> None:
    log = unskew.Ratings.from_arrays([0, 0, 1], [0, 1, 1], [1, 1, 1])

    with pytest.raises(BadRatingError, match=r"every rating is 1.*RelevanceFactorization"):
        unskew.models.LogisticFactorization(1).fit(log)
