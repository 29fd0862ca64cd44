"""AllRank and weighted factorisation against dense linear algebra, and on simulated data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from factor_models import predict_matrix
from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import DataError, UsageError
from unskew.factorization import objective as problem
from unskew.models.all_cells import AllCellsRecommender
from unskew.models.all_rank import AllRank
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.weighted import WeightedFactorization

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")


@dataclass(frozen=True)
class Dense:
    """The weighted squared loss over all cells plus one penalty per row, as dense matrices."""

    target: np.ndarray
    weight: np.ndarray
    fill: float
    user_ridge: np.ndarray
    item_ridge: np.ndarray

    def objective(self, users: np.ndarray, items: np.ndarray) -> float:
        loss = (self.weight * np.square(self.target - self.fill - users @ items.T)).sum()
        penalty = self.user_ridge @ np.square(users).sum(axis=1) + self.item_ridge @ np.square(
            items
        ).sum(axis=1)
        return float(loss + penalty)

    def sweep(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        users = _rows(self.target - self.fill, self.weight, items, self.user_ridge)
        return users, _rows((self.target - self.fill).T, self.weight.T, users, self.item_ridge)


def _rows(target: np.ndarray, weight: np.ndarray, x: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Each row's normal equations, over all its cells; zeros where none has a weight."""

    def solved(t: np.ndarray, c: np.ndarray, r: float) -> np.ndarray:
        normal = (x * c[:, None]).T @ x + r * np.eye(x.shape[1])
        return np.linalg.solve(normal, x.T @ (c * t)) if c.any() else np.zeros(x.shape[1])

    return np.array([solved(t, c, r) for t, c, r in zip(target, weight, ridge, strict=True)])


def all_rank(log: Ratings, model: AllRank, propensities: np.ndarray | None) -> Dense:
    shape, cells = (log.n_users, log.n_items), (log.user, log.item)
    target, weight = np.full(shape, model.missing_rating), np.full(shape, model.missing_weight)
    target[cells] = log.rating
    weight[cells] = 1 if propensities is None else 1 / propensities
    return Dense(
        target,
        weight,
        model.missing_rating,
        model.ridge_per_weight * weight.sum(axis=1),
        model.ridge_per_weight * weight.sum(axis=0),
    )


def weighted(log: Ratings, model: WeightedFactorization, propensities: np.ndarray | None) -> Dense:
    signal = np.zeros((log.n_users, log.n_items))
    signal[log.user, log.item] = log.rating / (1 if propensities is None else propensities)
    signal = signal / model.unit
    weight = 1 + model.alpha * (np.log(1 + signal) if model.confidence == "log" else signal)
    ridges = np.full(log.n_users, model.ridge), np.full(log.n_items, model.ridge)
    return Dense((signal > 0).astype(float), weight, 0.0, *ridges)


TWINS: dict[type[AllCellsRecommender], Any] = {AllRank: all_rank, WeightedFactorization: weighted}
SETTINGS: list[tuple[type[AllCellsRecommender], dict[str, Any]]] = [
    (AllRank, {}),
    (AllRank, {"missing_weight": 0.3, "missing_rating": 1.5, "ridge_per_weight": 0.2}),
    (AllRank, {"missing_weight": 0.0, "ridge_per_weight": 0.5}),
    (WeightedFactorization, {}),
    (WeightedFactorization, {"alpha": 3.0, "ridge": 0.2}),
    (WeightedFactorization, {"confidence": "log", "unit": 0.5, "alpha": 2.0}),
]


def some_log(seed: int = 0, *, least: int = 1) -> Ratings:
    rng = np.random.default_rng(seed)
    seen = rng.random((20, 15)) < 0.25
    seen[3], seen[:, 4] = False, False
    user, item = np.nonzero(seen)
    return Ratings.from_codes(user, item, rng.integers(least, 6, user.size), shape=seen.shape)


LOG = some_log()
P = np.random.default_rng(1).uniform(0.1, 1, len(LOG))
with_twins = pytest.mark.parametrize(
    ("kind", "settings", "propensities"), [(*s, p) for s, p in product(SETTINGS, (None, P))]
)


def factors(found: Factors) -> tuple[np.ndarray, np.ndarray]:
    return found.user_factors, found.item_factors


@with_twins
def test_the_first_sweep_solves_the_normal_equations_of_every_row(
    kind: Any, settings: dict[str, Any], propensities: Any
) -> None:
    model = kind(3, **settings, max_iter=1)
    twin = TWINS[kind](LOG, model, propensities)
    users, items = twin.sweep(model._make_start(LOG, None).item_factors)

    model.fit(LOG, propensities)

    np.testing.assert_allclose(model.factors_.user_factors, users, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(model.factors_.item_factors, items, rtol=1e-8, atol=1e-11)
    assert model.objective_ == pytest.approx(twin.objective(users, items), rel=1e-10)


@with_twins
def test_the_fit_is_a_stationary_point_that_dense_alternation_does_not_improve(
    kind: Any, settings: dict[str, Any], propensities: Any
) -> None:
    model = kind(3, **settings, tol=1e-15, max_iter=20_000).fit(LOG, propensities)
    twin = TWINS[kind](LOG, model, propensities)
    users, items = factors(model.factors_)

    assert model.objective_ == pytest.approx(twin.objective(users, items), rel=1e-10)
    assert twin.objective(*twin.sweep(items)) == pytest.approx(model.objective_, rel=1e-10)
    rng, step = np.random.default_rng(0), 1e-5
    for _ in range(10):
        to_users, to_items = rng.normal(size=users.shape), rng.normal(size=items.shape)
        ahead, behind = (
            twin.objective(users + h * to_users, items + h * to_items) for h in (step, -step)
        )
        assert (ahead - behind) / (2 * step) == pytest.approx(0, abs=1e-5 * model.objective_)


@with_twins
def test_long_rows_change_nothing_but_rounding(
    kind: Any, settings: dict[str, Any], propensities: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = kind(3, **settings, max_iter=10).fit(LOG, propensities)
    monkeypatch.setattr(problem, "MAX_CELLS", 3)

    found = kind(3, **settings, max_iter=10).fit(LOG, propensities)

    assert found.history_[1:] == pytest.approx(expected.history_[1:], rel=1e-9)


def test_without_missing_weight_all_rank_is_the_factorisation_of_the_log() -> None:
    """Its penalty counts each cell: rows of equal numbers of cells make it a plain ridge."""
    rng = np.random.default_rng(2)
    user = np.repeat(np.arange(20), 4)
    item = (user + np.tile(np.arange(4), 20)) % 20
    log = Ratings.from_codes(user, item, rng.normal(3, 1, user.size), shape=(20, 20))
    l2 = (
        0.3 * 4 / (400 / 40 / 3) * 400 / user.size
    )  # so that effective_l2, on weights that add up to U I, is the same
    moved = Ratings.from_codes(user, item, log.rating - 2.0, shape=(20, 20))

    plain = MatrixFactorization(3, l2, offsets="none", tol=1e-14, max_iter=20_000).fit(moved)
    model = AllRank(3, 0.3, missing_weight=0.0, missing_rating=2.0, max_iter=5).fit(
        log, initial_factors=plain.factors_
    )

    assert model.objective_ == pytest.approx(plain.objective_ * user.size / 400, rel=1e-9)
    np.testing.assert_allclose(predict_matrix(model), 2.0 + predict_matrix(plain), atol=1e-5)


def test_signals_of_zero_are_as_good_as_no_signal() -> None:
    log = some_log(4, least=0)
    heard = log.take(log.rating > 0)
    assert len(heard) < len(log)

    one, other = (
        WeightedFactorization(3, max_iter=5).fit(log),
        WeightedFactorization(3, max_iter=5).fit(heard),
    )

    assert one.history_ == other.history_
    assert len(one.seen_items_) == len(log)


@pytest.mark.parametrize(
    ("model", "rating"),
    [(AllRank(missing_weight=1 - 1e-9), 3.0), (WeightedFactorization(alpha=1e-3), 1e-9)],
)
def test_cells_that_weigh_hardly_more_than_unobserved_cells_are_refused(
    model: AllCellsRecommender, rating: float
) -> None:
    log = Ratings.from_codes([0, 1], [0, 1], [5000.0, rating], shape=(2, 2))

    with pytest.raises(
        UsageError,
        match=r"the weight of every observed cell must exceed .* of 2 do not\. The first is row \d",
    ):
        model.fit(log)


def test_negative_signals_and_all_zeros_are_refused() -> None:
    log = Ratings.from_codes([0, 1], [0, 1], [1.0, -2.0], shape=(2, 2))

    with pytest.raises(
        DataError, match=r"1 of 2 signals are negative; the first is -2 at row 1 \(user 1, item 1\)"
    ):
        WeightedFactorization().fit(log)
    with pytest.raises(DataError, match="every signal is 0"):
        WeightedFactorization().fit(Ratings.from_codes([0], [0], [0.0], shape=(2, 2)))


def ndcg_of_unlogged(scores: np.ndarray, worth: np.ndarray, log: Ratings, top: int = 10) -> float:
    """The mean over users of DCG@top / best DCG@top, over all cells that are not in the log."""
    hidden = np.ones(worth.shape, bool)
    hidden[log.user, log.item] = False
    discount = 1 / np.log2(np.arange(2, top + 2))
    found = []
    for score, value, open_ in zip(scores, worth, hidden, strict=True):
        gains = value[open_]
        best = np.sort(gains)[::-1][:top] @ discount
        if best > 0:
            found.append(gains[np.argsort(-score[open_], kind="stable")[:top]] @ discount / best)
    return float(np.mean(found))


def rivals(log: Ratings, propensities: np.ndarray) -> list[np.ndarray]:
    """Naive and weighted factorisation, each with the best of several penalties."""
    fits = [(l2, given) for l2 in (0.1, 1.0, 10.0) for given in (None, propensities)]
    return [predict_matrix(MatrixFactorization(4, l2).fit(log, given)) for l2, given in fits]


def tastes(n_users: int, n_items: int, rank: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_users, rank)) @ rng.normal(size=(rank, n_items)) / np.sqrt(rank)


def test_all_rank_ranks_unrated_items_best_where_people_rate_what_they_like() -> None:
    rng = np.random.default_rng(0)
    truth = np.clip(np.round(2.2 + tastes(300, 120, 3, 1) + rng.normal(0, 0.3, (300, 120))), 1, 5)
    chance = np.array([0.004, 0.01, 0.03, 0.15, 0.4])[truth.astype(int) - 1]
    seen = rng.random(truth.shape) < chance
    log = Ratings.from_dense(np.where(seen, truth, 0))

    ours = predict_matrix(AllRank(4, 0.02, missing_weight=0.05).fit(log))

    worth = 2.0**truth - 1
    assert ndcg_of_unlogged(ours, worth, log) > max(
        ndcg_of_unlogged(other, worth, log) for other in rivals(log, chance[log.user, log.item])
    )


def test_weighted_factorisation_finds_preferences_behind_signals_best() -> None:
    """Preferences have low rank; the number of plays is a Poisson count that they raise."""
    rng = np.random.default_rng(0)
    preference = tastes(300, 120, 3, 2) > 0.8
    signal = rng.poisson(0.6 * preference)
    log = Ratings.from_dense(signal)
    chance = np.where(preference, 1 - np.exp(-0.6), 1.0)

    ours = predict_matrix(WeightedFactorization(4, 10.0, alpha=10.0).fit(log))

    worth = preference.astype(float)
    assert ndcg_of_unlogged(ours, worth, log) > max(
        ndcg_of_unlogged(other, worth, log) for other in rivals(log, chance[log.user, log.item])
    )
