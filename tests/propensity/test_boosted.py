"""Boosted trees, stopped by balance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.propensity.covariate import boosted
from unskew.propensity.covariate.boosted import Balance, BoostedPropensity
from unskew.propensity.covariate.cells import count_cells
from unskew.propensity.covariate.covariates import Covariates

QUICK = {"max_trees": 30, "check_every": 5, "learning_rate": 0.3}
pytestmark = pytest.mark.filterwarnings(
    "ignore:(asam|ks|deviance) was still falling:unskew.errors.PropensityWarning"
)


def world(n_users: int = 200, n_items: int = 150, *, seed: int = 0) -> tuple[Any, ...]:
    """Propensities that no sum of one-covariate terms can have: high where both marks agree."""
    rng = np.random.default_rng(seed)
    x, z = (
        rng.integers(0, 2, (n_users, 2)).astype(float),
        rng.integers(0, 3, (n_items, 2)).astype(float),
    )
    chance = expit(-2.5 + 1.5 * ((x[:, :1] == 1) == (z[:, 0] >= 1)) + 0.3 * z[:, 1])
    return x, z, chance, Ratings.from_dense((rng.random(chance.shape) < chance).astype(float))


def all_pairs(model: Any, log: Ratings) -> np.ndarray:
    user, item = np.divmod(np.arange(log.n_cells), log.n_items)
    return model.predict_pairs(user, item).reshape(log.n_users, log.n_items)


def balance_of(x: np.ndarray, z: np.ndarray, log: Ratings, max_weight: float = 1e9) -> Balance:
    user, item = Covariates.of(x, log.users, "user"), Covariates.of(z, log.items, "item")
    return Balance.of(count_cells(log, user, item), user, item, max_weight)


def phis(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Every phi of every cell, written out: users' covariates, items', and products."""
    u, i = np.divmod(np.arange(len(x) * len(z)), len(z))
    return np.hstack([x[u], z[i], (x[u][:, :, None] * z[i][:, None, :]).reshape(u.size, -1)])


def on_profiles(matrix: np.ndarray, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """A U x I matrix that depends on profiles alone, as the vector over pairs of profiles."""
    users = np.unique(x, axis=0, return_index=True)[1]
    items = np.unique(z, axis=0, return_index=True)[1]
    return matrix[np.ix_(users, items)].ravel()


@pytest.mark.parametrize("max_weight", [1.5, 1e9])
def test_asam_is_the_formula_over_all_cells(max_weight: float) -> None:
    x, z, chance, log = world(30, 20)
    phi = phis(x, z)
    weight = np.zeros_like(chance)
    weight[log.user, log.item] = np.minimum(
        1 / chance[log.user, log.item], max_weight * log.n_cells / len(log)
    )
    weighted = weight.ravel() @ phi / weight.sum()
    expected = np.mean(np.abs(weighted - phi.mean(axis=0)) / phi.std(axis=0))

    assert balance_of(x, z, log, max_weight).asam(on_profiles(chance, x, z)) == pytest.approx(
        expected
    )


def test_ks_is_the_largest_distance_between_distribution_functions() -> None:
    x, z, chance, log = world(30, 20)
    weight = np.zeros_like(chance)
    weight[log.user, log.item] = 1 / chance[log.user, log.item]
    share = weight.ravel() / weight.sum()
    phi = phis(x, z)[:, :4]  # no product of 0/1 covariates: those of items have three values
    distances = [
        max(
            abs(share[column <= value].sum() - np.mean(column <= value))
            for value in np.unique(column)
        )
        for column in phi.T
    ]

    assert balance_of(x, z, log).ks(on_profiles(chance, x, z)) == pytest.approx(np.mean(distances))


def test_ks_counts_products_of_marks() -> None:
    x, z, chance, log = world(30, 20)
    marks = (z >= 1).astype(float)
    balance = balance_of(x, marks, log)
    phi = phis(x, marks)
    observed = np.zeros_like(chance)
    observed[log.user, log.item] = 1
    expected = np.mean(np.abs(observed.ravel() @ phi / len(log) - phi.mean(axis=0)))

    assert balance.ks(np.full(balance.observed.size, log.density)) == pytest.approx(expected)


def test_a_log_that_shows_everything_alike_is_in_balance() -> None:
    x, z, _, _ = world(30, 20)
    log = Ratings.from_dense(np.ones((30, 20)) - np.eye(30, 20))
    balance = balance_of(x, z, log)
    everything = Balance(np.outer(balance.user_share, balance.item_share), balance.user_share, balance.item_share, balance.user,
                         balance.item, 1e9)  # fmt: skip

    assert everything.asam(np.full(everything.observed.size, 0.5)) == pytest.approx(0, abs=1e-12)
    assert everything.ks(np.full(everything.observed.size, 0.5)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("stop", ["asam", "ks", "deviance"])
def test_the_least_imbalance_is_kept(stop: Any) -> None:
    x, z, chance, log = world()
    model = BoostedPropensity(x, z, stop=stop, **QUICK).fit(log)

    assert model.checked_.tolist() == [0, *range(5, 31, 5)]
    assert (
        model.imbalance_[model.checked_.tolist().index(model.n_trees_)]
        == model.imbalance_.min()
        < 0.97 * model.imbalance_[0]
    )
    assert np.mean(np.abs(all_pairs(model, log) / chance - 1)) < 0.15
    assert all_pairs(model, log).sum() == pytest.approx(len(log), rel=0.02)


@pytest.mark.parametrize("stop", ["asam", "ks"])
def test_what_is_kept_has_the_imbalance_that_is_told(stop: Any) -> None:
    x, z, _, log = world()
    model = BoostedPropensity(x, z, stop=stop, **QUICK).fit(log)
    measure = getattr(balance_of(x, z, log, model.max_weight), stop)

    assert measure(model.chances_.ravel()) == pytest.approx(model.imbalance_.min())


def test_held_out_deviance_stops_earlier_than_the_log_itself_would() -> None:
    x, z, _, log = world(40, 30)
    model = BoostedPropensity(
        x, z, stop="deviance", max_trees=60, check_every=5, learning_rate=0.5
    ).fit(log)

    assert model.n_trees_ < 60
    assert model.imbalance_[-1] > model.imbalance_.min()
    no_more = BoostedPropensity(
        x, z, max_trees=model.n_trees_, check_every=100, learning_rate=0.5
    ).fit(log)
    assert (model.chances_ == no_more.chances_).all()


def test_known_propensities_are_found_and_the_error_shrinks_with_data() -> None:
    errors = []
    for n_users, n_items in ((60, 40), (240, 160), (960, 640)):
        x, z, chance, log = world(n_users, n_items, seed=4)
        errors.append(
            np.mean(np.abs(all_pairs(BoostedPropensity(x, z, **QUICK).fit(log), log) / chance - 1))
        )

    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.05


def test_a_saved_model_predicts_the_same(tmp_path: Path) -> None:
    x, z, _, log = world(40, 30)
    model = BoostedPropensity(x, z, **QUICK).fit(log)
    model.save(tmp_path / "model.unskew")
    loaded = unskew.load(tmp_path / "model.unskew")

    assert (loaded.predict(log) == model.predict(log)).all()
    assert (all_pairs(loaded, log) == all_pairs(model, log)).all()
    assert loaded.n_trees_ == model.n_trees_


def test_the_same_seed_gives_the_same_answer() -> None:
    x, z, _, log = world(40, 30)
    one, other = (
        BoostedPropensity(x, z, stop="deviance", random_state=7, **QUICK).fit(log) for _ in range(2)
    )

    assert (one.chances_ == other.chances_).all()


@pytest.mark.filterwarnings("default")
def test_a_balance_that_is_still_improving_is_told() -> None:
    x, z, _, log = world(40, 30)
    with pytest.warns(
        PropensityWarning,
        match=r"asam was still falling after 2 trees \(.*\); raise max_trees or learning_rate",
    ):
        BoostedPropensity(x, z, max_trees=2, check_every=1).fit(log)


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        (
            {"stop": "soon"},
            UnknownNameError,
            r"unknown stop 'soon'; valid ones are: asam, ks, deviance",
        ),
        ({"learning_rate": 0}, UsageError, r"learning_rate must lie in \(0, 1\]; got 0"),
        (
            {"max_weight": 0.5},
            UsageError,
            r"max_weight must be at least 1, the mean weight; got 0.5",
        ),
        ({"l2": -1}, UsageError, r"l2 must be a finite number, at least 0; got -1"),
        ({"max_trees": 0}, UsageError, r"max_trees must be a whole number, at least 1"),
        (
            {"user_features": None, "item_features": None},
            UsageError,
            r"nothing to tell cells apart by",
        ),
    ],
)
def test_what_cannot_be_fitted_is_named(
    settings: dict[str, Any], error: type[Exception], match: str
) -> None:
    x, z, _, log = world(10, 10)
    with pytest.raises(error, match=match):
        BoostedPropensity(**{"user_features": x, "item_features": z, **settings}).fit(log)


def test_too_many_profiles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, z, _, log = world(10, 10)
    monkeypatch.setattr(boosted, "MOST_PAIRS", 3)

    with pytest.raises(
        UsageError,
        match=r"pairs, more than 3. Put numeric covariates into a few bins, or take ClassifierPropensity",
    ):
        BoostedPropensity(x, z).fit(log)


def test_too_few_users_to_hold_out(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Ratings.from_dense([[1, 0, 0, 1]])
    with pytest.raises(UsageError, match=r"stop='deviance' holds users out, and 1 are too few"):
        BoostedPropensity(item_features=[[1], [0], [1], [0]], stop="deviance", **QUICK).fit(log)
