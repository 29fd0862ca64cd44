"""Multiple robust learning, and what it shares with other learners of corrections."""

from __future__ import annotations

import numpy as np
import pytest

import unskew
from unskew.data.factors import Factors
from unskew.errors import UsageError
from unskew.models import DoublyRobustFactorization, MultipleRobustFactorization
from unskew.models.correction import fit_correction
from unskew.models.imputation import (
    HeldOutImputation,
    HeldOutParts,
    combine_factors,
    minimize_on_simplex,
)
from unskew.models.multiple_robust import list_propensities, share_imputations, share_weights
from unskew.threads import Workers
from unskew.types import Matrix


def draw(
    n_users: int = 120, n_items: int = 80, seed: int = 0
) -> tuple[unskew.Ratings, Matrix, Matrix]:
    """A log whose selection depends on users and items, with the truth and the propensities."""
    rng = np.random.default_rng(seed)
    by_user, by_item = rng.standard_normal((n_users, 1)), rng.standard_normal((1, n_items))
    truth = 3 + 0.7 * by_user + 0.7 * by_item
    propensity = 1 / (1 + np.exp(1.5 - 0.8 * by_user - 0.8 * by_item))
    seen = rng.random(truth.shape) < propensity
    user, item = np.nonzero(seen)
    rating = truth[seen] + 0.5 * rng.standard_normal(user.size)
    log = unskew.Ratings.from_arrays(
        user, item, rating, users=np.arange(n_users), items=np.arange(n_items)
    )
    return log, truth, propensity


@pytest.mark.parametrize("seed", range(3))
def test_the_simplex_minimum_is_that_of_a_grid(seed: int) -> None:
    root = np.random.default_rng(seed).standard_normal((5, 3))
    quadratic = root.T @ root

    shares = minimize_on_simplex(quadratic)

    steps = np.linspace(0, 1, 101)
    grid = [(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1 + 1e-12]
    least = min(float(np.array(point) @ quadratic @ np.array(point)) for point in grid)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert shares @ quadratic @ shares <= least + 1e-6


def test_combined_factors_predict_the_sum_of_shares() -> None:
    rng = np.random.default_rng(0)
    parts = [
        Factors(*(rng.standard_normal((4, n)) for _ in range(2)), *rng.standard_normal((2, 4)), 0.3)
        for n in (0, 2, 3)
    ]
    users = np.arange(4, dtype=np.int32)

    combined = combine_factors(parts, [0.2, 0.8, 0.0])

    assert combined.n_factors == 2
    assert combined(users) == pytest.approx(0.2 * parts[0](users) + 0.8 * parts[1](users))


def test_right_weights_are_found_among_wrong_ones() -> None:
    log, truth, propensity = draw(300, 200)
    right = 1 / propensity[log.user, log.item]
    wrong = np.full(len(log), log.n_cells / len(log))
    imputed = Factors(truth, np.eye(truth.shape[1]))

    shares = share_weights(log, [wrong, right, right[::-1]], [imputed])

    assert shares[1] > 0.97


def test_a_right_imputation_is_found_among_wrong_ones() -> None:
    log, truth, propensity = draw()
    parts = HeldOutParts.draw(log, 0)
    rows = parts.is_held_out
    right = HeldOutImputation(Factors(truth, np.eye(80)), truth[log.user, log.item][rows])
    wrong = HeldOutImputation(Factors(truth, np.eye(80)), np.full(int(rows.sum()), 3.0))

    shares = share_imputations(log, 1 / propensity[log.user, log.item], [wrong, right], parts)

    assert shares[1] > 0.95


def test_held_out_ratings_are_predicted_without_them() -> None:
    """A change of one held-out rating changes no prediction of its own part."""
    log, _, propensity = draw(30, 20)
    weight = 1 / propensity[log.user, log.item]
    parts, model = HeldOutParts.draw(log, 0), unskew.MatrixFactorization(0, 1.0)
    changed = log.rating.copy()
    changed[5] += 100
    other = unskew.Ratings.from_arrays(
        log.user, log.item, changed, users=log.users, items=log.items
    )
    found = []
    with Workers(1) as workers:
        for each in (log, other):
            fit = HeldOutImputation.fit(
                model, each, weight, parts, workers, dtype="float64", random_state=0
            )
            found.append(fit.held_out)

    same_part = parts.number == parts.number[5]
    assert found[0][same_part] == pytest.approx(found[1][same_part], abs=1e-6)
    assert np.abs(found[0] - found[1]).max() > 1


def test_the_correction_is_the_last_step_of_doubly_robust_learning() -> None:
    log, _, propensity = draw(40, 30)
    of_log = propensity[log.user, log.item]
    model = DoublyRobustFactorization(3, tol=1e-12, max_iter=500).fit(log, of_log)

    with Workers(1) as workers:
        fit = fit_correction(model, log, 1 / of_log, model.imputed_, workers, None)

    users = np.arange(40, dtype=np.int32)
    assert fit.factors(users) == pytest.approx(model.factors_(users), abs=1e-5)
    assert fit.risk == pytest.approx(model.risk_, rel=1e-6)


def test_several_propensities_are_combined() -> None:
    log, truth, propensity = draw(200, 120)
    uniform = np.full(len(log), len(log) / log.n_cells)

    model = MultipleRobustFactorization(2).fit(log, {"uniform": uniform, "right": propensity})

    assert model.propensity_shares_.shape == (2,)
    assert model.imputation_shares_.shape == (4,)
    assert model.propensity_shares_[1] > 0.8
    naive = np.square(truth - log.rating.mean()).mean()
    predicted = model.factors_(np.arange(200, dtype=np.int32))
    assert np.square(truth - predicted).mean() < 0.2 * naive


def test_one_propensity_may_be_given_in_any_form() -> None:
    log, _, propensity = draw(30, 20)
    of_log = propensity[log.user, log.item]

    fits = [
        MultipleRobustFactorization(0).fit(log, each).imputation_shares_
        for each in (of_log, of_log.tolist(), [of_log], propensity, (propensity,))
    ]

    assert all((fit == fits[0]).all() for fit in fits)


def test_errors() -> None:
    log, _, propensity = draw(30, 20)

    with pytest.raises(UsageError, match=r"needs propensities\. Pass one or several to fit"):
        MultipleRobustFactorization().fit(log)
    with pytest.raises(UsageError, match="needs propensities"):
        list_propensities([])
    with pytest.raises(UsageError, match="imputers must be a tuple of factorisations"):
        MultipleRobustFactorization(imputers=()).fit(log, propensity)
    with pytest.raises(UsageError, match="imputers must be"):
        MultipleRobustFactorization(imputers=("mf",)).fit(log, propensity)  # type: ignore[arg-type]
