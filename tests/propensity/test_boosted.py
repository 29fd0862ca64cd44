"""Boosted trees, stopped by balance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import ConvergenceWarning, UnknownNameError, UsageError
from unskew.propensity import boosted
from unskew.propensity.boosted import BoostedPropensity, WeightedBalance
from unskew.propensity.covariates import CovariateProfiles, ProfilePairs

QUICK = {"max_trees": 30, "check_every": 5, "learning_rate": 0.3}
pytestmark = pytest.mark.filterwarnings(
    "ignore:(asam|ks|deviance) was still decreasing:unskew.errors.ConvergenceWarning"
)


def world(n_users: int = 200, n_items: int = 150, *, seed: int = 0) -> tuple[Any, ...]:
    """Propensities that no sum of one-covariate terms can have: high where both marks agree."""
    rng = np.random.default_rng(seed)
    x, z = (
        rng.integers(0, 2, (n_users, 2)).astype(float),
        rng.integers(0, 3, (n_items, 2)).astype(float),
    )
    propensity = expit(-2.5 + 1.5 * ((x[:, :1] == 1) == (z[:, 0] >= 1)) + 0.3 * z[:, 1])
    return (
        x,
        z,
        propensity,
        Ratings.from_dense((rng.random(propensity.shape) < propensity).astype(float)),
    )


def all_pairs(model: Any, log: Ratings) -> np.ndarray:
    user, item = np.divmod(np.arange(log.n_cells), log.n_items)
    return model.predict_pairs(user, item).reshape(log.n_users, log.n_items)


def balance_of(
    x: np.ndarray, z: np.ndarray, log: Ratings, max_weight: float = 1e9
) -> WeightedBalance:
    user = CovariateProfiles.read(x, log.users, "user")
    profiles = ProfilePairs(user, CovariateProfiles.read(z, log.items, "item"))
    return WeightedBalance.of_cells(profiles, profiles.count_cells(log), max_weight)


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
    x, z, propensity, log = world(30, 20)
    phi = phis(x, z)
    weight = np.zeros_like(propensity)
    weight[log.user, log.item] = np.minimum(
        1 / propensity[log.user, log.item], max_weight * log.n_cells / len(log)
    )
    weighted = weight.ravel() @ phi / weight.sum()
    expected = np.mean(np.abs(weighted - phi.mean(axis=0)) / phi.std(axis=0))

    assert balance_of(x, z, log, max_weight).asam(on_profiles(propensity, x, z)) == pytest.approx(
        expected
    )


def test_ks_is_the_largest_distance_between_distribution_functions() -> None:
    x, z, propensity, log = world(30, 20)
    weight = np.zeros_like(propensity)
    weight[log.user, log.item] = 1 / propensity[log.user, log.item]
    share = weight.ravel() / weight.sum()
    phi = phis(x, z)[:, :4]  # no product of 0/1 covariates: those of items have three values
    distances = [
        max(
            abs(share[column <= value].sum() - np.mean(column <= value))
            for value in np.unique(column)
        )
        for column in phi.T
    ]

    assert balance_of(x, z, log).ks(on_profiles(propensity, x, z)) == pytest.approx(
        np.mean(distances)
    )


def test_ks_counts_products_of_marks() -> None:
    x, z, propensity, log = world(30, 20)
    marks = (z >= 1).astype(float)
    balance = balance_of(x, marks, log)
    phi = phis(x, marks)
    observed = np.zeros_like(propensity)
    observed[log.user, log.item] = 1
    expected = np.mean(np.abs(observed.ravel() @ phi / len(log) - phi.mean(axis=0)))

    assert balance.ks(np.full(balance.observed.size, log.density)) == pytest.approx(expected)


def test_a_log_that_shows_everything_alike_is_in_balance() -> None:
    x, z, _, _ = world(30, 20)
    log = Ratings.from_dense(np.ones((30, 20)) - np.eye(30, 20))
    balance = balance_of(x, z, log)
    all_shares = np.outer(balance.user_share, balance.item_share)
    everything = replace(balance, observed=all_shares, max_weight=1e9)

    assert everything.asam(np.full(everything.observed.size, 0.5)) == pytest.approx(0, abs=1e-12)
    assert everything.ks(np.full(everything.observed.size, 0.5)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("stop", ["asam", "ks", "deviance"])
def test_the_least_imbalance_is_kept(stop: Any) -> None:
    x, z, propensity, log = world()
    model = BoostedPropensity(x, z, stop=stop, **QUICK).fit(log)

    assert model.checked_.tolist() == [0, *range(5, 31, 5)]
    assert (
        model.imbalance_[model.checked_.tolist().index(model.n_trees_)]
        == model.imbalance_.min()
        < 0.97 * model.imbalance_[0]
    )
    assert np.mean(np.abs(all_pairs(model, log) / propensity - 1)) < 0.15
    assert all_pairs(model, log).sum() == pytest.approx(len(log), rel=0.02)


@pytest.mark.parametrize("stop", ["asam", "ks"])
def test_the_kept_propensities_have_the_reported_imbalance(stop: Any) -> None:
    x, z, _, log = world()
    model = BoostedPropensity(x, z, stop=stop, **QUICK).fit(log)
    measure = getattr(balance_of(x, z, log, model.max_relative_weight), stop)

    assert measure(model.profile_propensities_.ravel()) == pytest.approx(model.imbalance_.min())


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
    assert (model.profile_propensities_ == no_more.profile_propensities_).all()


def test_known_propensities_are_found_and_the_error_shrinks_with_data() -> None:
    errors = []
    for n_users, n_items in ((60, 40), (240, 160), (960, 640)):
        x, z, propensity, log = world(n_users, n_items, seed=4)
        errors.append(
            np.mean(
                np.abs(all_pairs(BoostedPropensity(x, z, **QUICK).fit(log), log) / propensity - 1)
            )
        )

    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.05


def test_a_saved_model_predicts_the_same(tmp_path: Path) -> None:
    x, z, _, log = world(40, 30)
    model = BoostedPropensity(x, z, **QUICK).fit(log)
    model.save(tmp_path / "model.unskew")
    loaded = unskew.load(tmp_path / "model.unskew")

    assert (loaded.predict(log).values == model.predict(log).values).all()
    assert (all_pairs(loaded, log) == all_pairs(model, log)).all()
    assert loaded.n_trees_ == model.n_trees_


def test_the_same_seed_gives_the_same_answer() -> None:
    x, z, _, log = world(40, 30)
    one, other = (
        BoostedPropensity(x, z, stop="deviance", random_state=7, **QUICK).fit(log) for _ in range(2)
    )

    assert (one.profile_propensities_ == other.profile_propensities_).all()


@pytest.mark.filterwarnings("default")
def test_a_balance_that_is_still_improving_causes_a_warning() -> None:
    x, z, _, log = world(40, 30)
    with pytest.warns(
        ConvergenceWarning,
        match=r"asam was still decreasing after 2 trees \(.*\). Raise max_trees or learning_rate",
    ):
        BoostedPropensity(x, z, max_trees=2, check_every=1).fit(log)


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        (
            {"stop": "soon"},
            UnknownNameError,
            r"unknown value 'soon' of stop; valid values are: asam, ks, deviance",
        ),
        (
            {"learning_rate": 0},
            UsageError,
            r"learning_rate must be a finite number, above 0 and at most 1; got 0",
        ),
        (
            {"max_relative_weight": 0.5},
            UsageError,
            r"max_relative_weight must be a finite number, at least 1; got 0.5",
        ),
        ({"leaf_penalty": -1}, UsageError, r"leaf_penalty must be a finite number, at least 0"),
        ({"max_trees": 0}, UsageError, r"max_trees must be a whole number, at least 1"),
        (
            {"user_features": None, "item_features": None},
            UsageError,
            r"has no covariates, so all cells are alike",
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
    monkeypatch.setattr(boosted, "MAX_PROFILE_PAIRS", 3)

    with pytest.raises(
        UsageError,
        match=r"pairs, more than 3. Put numeric covariates into .*, or use ClassifierPropensity",
    ):
        BoostedPropensity(x, z).fit(log)


def test_too_few_users_to_hold_out(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Ratings.from_dense([[1, 0, 0, 1]])
    with pytest.raises(UsageError, match=r"stop='deviance' holds out users, and 1 are too few"):
        BoostedPropensity(item_features=[[1], [0], [1], [0]], stop="deviance", **QUICK).fit(log)
