"""Penalties chosen from the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import unskew
from unskew.data.ratings import Ratings
from unskew.factorization.automatic import (
    LOSS_SHAPES,
    choose_penalty,
    find_correction_penalty,
    find_edge_penalty,
    find_noise_edge,
    find_offset_ridges,
    fit_offsets,
    shared_variance,
)
from unskew.factorization.penalty import Penalty
from unskew.models.baselines import OffsetsOnly
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.threads import Workers


def draw_log(
    seed: int,
    *,
    by_user: float = 0.5,
    by_item: float = 0.5,
    noise: float = 1.0,
    factors: float = 0.0,
    shape: tuple[int, int] = (300, 200),
    density: float = 0.1,
) -> tuple[Ratings, np.ndarray]:
    """A log of ratings with normal offsets, factors and noise, and the complete matrix."""
    rng = np.random.default_rng(seed)
    n_users, n_items = shape
    truth = 3 + by_user * rng.normal(size=(n_users, 1)) + by_item * rng.normal(size=n_items)
    truth = truth + factors * rng.normal(size=(n_users, 1)) * rng.normal(size=n_items)
    truth = truth + noise * rng.normal(size=shape)
    user, item = np.nonzero(rng.random(shape) < density)
    return Ratings.from_codes(user, item, truth[user, item], shape=shape), truth


def test_the_shared_variance_is_that_of_all_pairs_of_a_user() -> None:
    code, residual = np.array([0, 0, 0, 1, 2, 2]), np.array([1.0, -2.0, 3.0, 5.0, 4.0, 1.0])
    weight = np.array([1.0, 2.0, 1.0, 9.0, 3.0, 1.0])
    products, pairs = 0.0, 0.0
    for row in range(6):
        for other in range(6):
            if row != other and code[row] == code[other]:
                scale = weight[row] * weight[other] / np.sqrt(weight[code == code[row]].sum())
                products += scale * residual[row] * residual[other]
                pairs += scale

    assert shared_variance(code, 3, residual, weight) == pytest.approx(products / pairs)
    assert shared_variance(np.arange(6), 6, residual, weight) == 0


def test_offset_ridges_are_the_ratio_of_variances() -> None:
    """Equal weights of 1: the ridge is var(noise) / var(offset), here 4 and 1."""
    ridges = np.mean(
        [
            find_offset_ridges(log, np.ones(len(log)))
            for log, _ in (draw_log(seed, by_user=0.5, by_item=1.0) for seed in range(20))
        ],
        axis=0,
    )

    np.testing.assert_allclose(ridges, [4.0, 1.0], rtol=0.1)


def test_the_ridges_of_a_correction_expect_all_of_the_residual_to_be_noise() -> None:
    """An offset a that is fitted to w r in all cells has the noise sum(w^2 r^2) / cells."""
    log, _ = draw_log(4)
    residual = replace(log, rating=log.rating - log.rating.mean())
    weight = np.random.default_rng(1).uniform(1, 30, len(log))
    weight *= log.n_cells / weight.sum()

    penalty = find_correction_penalty(residual, weight, n_factors=2, random_state=0)

    noise = np.square(weight * residual.rating).sum() / log.n_cells
    centred = residual.rating - np.average(residual.rating, weights=weight)
    of_user = shared_variance(log.user, log.n_users, centred, weight)
    assert penalty.user_offset == pytest.approx(noise / of_user)


def test_no_factor_of_a_correction_follows_one_heavy_rating() -> None:
    """The noise edge is at least the largest pseudo-outcome, the singular value of its cell."""
    log, _ = draw_log(5, by_user=0.0, by_item=0.0)
    residual = replace(log, rating=log.rating - log.rating.mean())
    weight = np.full(len(log), 10.0)
    weight[7] = 20_000.0

    penalty = find_correction_penalty(residual, weight, n_factors=2, random_state=0)

    assert penalty.factors > 0.98 * weight[7] * abs(residual.rating[7])


def test_ridges_scale_with_the_weights() -> None:
    log, _ = draw_log(0)
    weight = np.random.default_rng(1).uniform(1, 5, len(log))

    first, second = (
        find_edge_penalty(log, scale * weight, n_factors=3, random_state=0) for scale in (1.0, 7.0)
    )

    assert second.factors == pytest.approx(7 * first.factors, rel=1e-6)
    assert second.user_offset == pytest.approx(7 * first.user_offset)


def test_the_noise_edge_is_where_the_factors_of_noise_vanish() -> None:
    """Without offsets, V = W = 0 is the minimum exactly from the largest singular value on."""
    log, _ = draw_log(3, by_user=0.0, by_item=0.0, shape=(60, 40), density=0.5)
    centred = Ratings.from_codes(log.user, log.item, log.rating - log.rating.mean(), shape=(60, 40))
    dense = np.zeros((60, 40))
    dense[centred.user, centred.item] = centred.rating
    largest = np.linalg.norm(dense, 2)
    edges = [find_noise_edge(centred, centred.rating, random_state=seed) for seed in range(20)]

    assert np.mean(edges) == pytest.approx(largest, rel=0.05)
    for share, is_zero in ((1.02, True), (0.9, False)):
        model = MatrixFactorization(3, 1.0, offsets="none", tol=1e-10, max_iter=5000)
        penalty = Penalty(share * largest)
        with Workers(1) as workers:
            found = model._solve(centred, np.ones(len(log)), workers, penalty=penalty).parameters
        size = np.abs(found.user_factors @ found.item_factors.T).max()
        assert (size < 1e-3) == is_zero


def test_offsets_are_fitted_exactly() -> None:
    log, _ = draw_log(4, shape=(40, 30), density=0.4)
    weight = np.random.default_rng(0).uniform(1, 3, len(log))
    design = np.zeros((len(log), 71))
    design[np.arange(len(log)), log.user] = 1
    design[np.arange(len(log)), 40 + log.item] = 1
    design[:, 70] = 1
    ridge = np.diag(np.r_[np.full(40, 5.0), np.full(30, 2.0), 0.0])
    exact = np.linalg.solve(
        design.T @ (weight[:, None] * design) + ridge, design.T @ (weight * log.rating)
    )

    np.testing.assert_allclose(fit_offsets(log, weight, 5.0, 2.0), design @ exact, atol=0.01)


@pytest.mark.parametrize("loss", list(LOSS_SHAPES))
def test_half_gradients_and_curvatures_are_derivatives(loss: str) -> None:
    rating = np.array([0.0, 1.0, 1.0, 0.0])
    value = {
        "squared": lambda f: np.square(rating - f),
        "absolute": lambda f: np.abs(rating - f),
        "log": lambda f: np.logaddexp(0, f) - rating * f,
    }[loss]
    at = np.array([0.3, 0.4, 0.7, 0.6])
    point = np.log(at / (1 - at)) if loss == "log" else at
    gradient = (value(point + 1e-6) - value(point - 1e-6)) / 2e-6

    np.testing.assert_allclose(
        LOSS_SHAPES[loss].half_gradient(rating, at), -gradient / 2, atol=1e-6
    )
    if loss != "absolute":
        bend = (value(point + 1e-3) - 2 * value(point) + value(point - 1e-3)) / 1e-6
        curvature = LOSS_SHAPES[loss].half_curvature(rating, at)
        assert curvature == pytest.approx(bend.mean() / 2, rel=1e-3)


def test_factors_are_found_where_there_are_some_and_nowhere_else() -> None:
    noise, structure = draw_log(0), draw_log(0, factors=1.0, noise=0.5)
    errors = []
    for log, truth in (noise, structure):
        settings: dict[str, Any] = {"clip_predictions": False}
        models = OffsetsOnly(**settings).fit(log), MatrixFactorization(5, **settings).fit(log)
        users, items = np.indices(truth.shape)
        predicted = [model.predict(users.ravel(), items.ravel()) for model in models]
        errors.append([np.square(values - truth.ravel()).mean() for values in predicted])

    assert errors[0][1] == pytest.approx(errors[0][0], rel=1e-3)
    assert errors[1][1] < 0.5 * errors[1][0]


def test_the_automatic_penalty_is_kept_and_saved(tmp_path: Any) -> None:
    log, _ = draw_log(1)
    model = MatrixFactorization(4).fit(log)
    again = MatrixFactorization(4, n_threads=1).fit(log)
    model.save(tmp_path / "model.unskew")
    loaded: Any = unskew.load(tmp_path / "model.unskew")

    unit = log.n_cells / (log.n_users + log.n_items) / 5
    assert model.get_params()["l2"] == "auto"
    assert model.l2_ == pytest.approx(model.penalty_.factors / unit)
    assert again.penalty_ == model.penalty_ == loaded.penalty_
    assert np.array_equal(again.factors_.user_factors, model.factors_.user_factors)
    assert loaded.l2_ == model.l2_
    assert model.penalty_.global_offset == 0


def test_a_number_is_one_ridge_for_factors_and_offsets() -> None:
    log, _ = draw_log(1)
    model = MatrixFactorization(4, 5.0).fit(log)
    ridge = 5 * log.n_cells / (log.n_users + log.n_items) / 5

    assert model.l2_ == 5
    assert model.penalty_ == Penalty(ridge, ridge, ridge, ridge)


def test_a_short_log_is_not_split() -> None:
    log, _ = draw_log(1, shape=(10, 8), density=0.3)

    def fit(*_: Any) -> Any:
        raise AssertionError("no fit is needed")

    edge = find_edge_penalty(log, np.ones(len(log)), n_factors=2, random_state=0)
    chosen = choose_penalty(
        log, np.ones(len(log)), fit, n_factors=2, offsets="regularized", random_state=0
    )

    assert len(log) < 50
    assert chosen == edge


def test_l2_must_be_a_number_or_auto() -> None:
    log, _ = draw_log(1)
    with pytest.raises(unskew.errors.UsageError, match="at least 0, or 'auto'; got 'none'"):
        MatrixFactorization(4, "none").fit(log)  # type: ignore[arg-type]
