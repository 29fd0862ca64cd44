"""Logistic propensities: by hand, against other libraries, on known truths, and on Coat."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import (
    ConvergenceWarning,
    DataError,
    ModelFileError,
    PropensityWarning,
    UniverseError,
    UnknownNameError,
    UsageError,
)
from unskew.propensity import logistic_design
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.low_rank import shift_to_total

N_USERS, N_ITEMS = 30, 24
without_offsets = partial(LogisticPropensity, item_offsets=False)


def world(
    seed: int = 0, *, n_users: int = N_USERS, n_items: int = N_ITEMS, intercept: float = -1.0
) -> tuple[Any, ...]:
    """Covariates, true propensities with user x item pairs, and a log."""
    rng = np.random.default_rng(seed)
    x, z = (
        rng.integers(0, 2, (n_users, 2)).astype(float),
        rng.integers(0, 2, (n_items, 2)).astype(float),
    )
    propensity = expit(
        intercept
        + x @ [[0.5], [-0.5]]
        + z @ [1.0, 0.0]
        + x @ np.array([[0.8, 0.0], [0.0, -0.8]]) @ z.T
    )
    log = Ratings.from_dense((rng.random((n_users, n_items)) < propensity).astype(float))
    return x, z, propensity, log


def all_pairs(model: LogisticPropensity, log: Ratings) -> np.ndarray:
    user, item = np.divmod(np.arange(log.n_cells), log.n_items)
    return model.predict_pairs(log.users[user], log.items[item]).reshape(log.n_users, log.n_items)


def rows(x: np.ndarray, z: np.ndarray, *, within: bool) -> np.ndarray:
    """A row for every cell: covariates and their products; ``within``: also of one side."""
    n_users, n_items = len(x), len(z)
    u, i = np.divmod(np.arange(n_users * n_items), n_items)
    columns = [x[u], z[i], (x[u][:, :, None] * z[i][:, None, :]).reshape(u.size, -1)]
    if within:
        columns += [(x[u][:, :1] * x[u][:, 1:]), (z[i][:, :1] * z[i][:, 1:])]
    return np.hstack(columns)


def seen(log: Ratings) -> np.ndarray:
    observed = np.zeros((log.n_users, log.n_items))
    observed[log.user, log.item] = 1
    return observed


# Values by hand


def test_without_a_penalty_the_propensity_of_a_profile_is_its_share() -> None:
    log = Ratings.from_dense([[5, 0, 1], [4, 0, 0], [0, 3, 0], [2, 4, 0]])
    model = without_offsets(item_features=[[1], [1], [0]], ridge=0, tol=1e-9).fit(log)

    assert all_pairs(model, log)[0] == pytest.approx([5 / 8, 5 / 8, 1 / 4])
    assert model.coefficients_ == pytest.approx(
        {"intercept": logit(1 / 4), "item:0": logit(5 / 8) - logit(1 / 4)}, abs=1e-6
    )


def test_item_offsets_alone_give_every_item_its_share() -> None:
    log = Ratings.from_dense([[5, 1, 1], [4, 0, 0], [0, 3, 0], [2, 4, 0]])
    model = LogisticPropensity(item_offsets=True, ridge=0, tol=1e-9).fit(log)

    assert all_pairs(model, log)[0] == pytest.approx([3 / 4, 3 / 4, 1 / 4], abs=1e-6)
    assert model.item_offset_ == pytest.approx(
        np.array([1, 1, -2]) * (logit(3 / 4) - logit(1 / 4)) / 3, abs=1e-5
    )
    assert (model.user_offset_ == 0).all()


def test_a_strong_penalty_leaves_the_density() -> None:
    x, z, _, log = world()
    model = LogisticPropensity(x, z, user_offsets=True, item_offsets=True, ridge=1e9).fit(log)

    assert all_pairs(model, log) == pytest.approx(
        np.full((N_USERS, N_ITEMS), log.density), rel=1e-4
    )


def test_log_likelihood_is_that_of_all_cells() -> None:
    x, z, _, log = world()
    model = without_offsets(x, z, ridge=1.0).fit(log)
    propensity, observed = all_pairs(model, log), seen(log)

    assert model.log_likelihood_ == pytest.approx(
        np.sum(np.where(observed, np.log(propensity), np.log1p(-propensity)))
    )


# The same as other programs that are given all rows


@pytest.mark.parametrize("interactions", ["all", "user-item"])
@pytest.mark.parametrize("ridge", [0.1, 1.0, 30.0])
def test_the_fit_is_that_of_scikit_learn_to_all_rows(interactions: Any, ridge: float) -> None:
    x, z, _, log = world()
    model = without_offsets(x, z, interactions=interactions, ridge=ridge, tol=1e-8).fit(log)
    features = rows(x, z, within=interactions == "all")
    twin = LogisticRegression(C=1 / ridge, tol=1e-12, max_iter=10000).fit(
        features, seen(log).ravel()
    )

    assert all_pairs(model, log).ravel() == pytest.approx(
        twin.predict_proba(features)[:, 1], abs=1e-6
    )
    assert model.coefficients_["intercept"] == pytest.approx(twin.intercept_[0], abs=1e-4)
    crossed = [model.coefficients_[f"user:{j} x item:{k}"] for j in range(2) for k in range(2)]
    assert crossed == pytest.approx(twin.coef_[0, 4:8], abs=1e-4)


@pytest.mark.parametrize("ridge", [0.5, 5.0])
def test_offsets_are_penalised_marks_of_every_user_and_item(ridge: float) -> None:
    x, z, _, log = world()
    model = LogisticPropensity(
        x, z, user_offsets=True, item_offsets=True, ridge=ridge, tol=1e-8
    ).fit(log)
    u, i = np.divmod(np.arange(log.n_cells), log.n_items)
    features = np.hstack([rows(x, z, within=True), np.eye(N_USERS)[u], np.eye(N_ITEMS)[i]])
    twin = LogisticRegression(C=1 / ridge, tol=1e-12, max_iter=10000).fit(
        features, seen(log).ravel()
    )

    assert all_pairs(model, log).ravel() == pytest.approx(
        twin.predict_proba(features)[:, 1], abs=1e-6
    )
    assert model.user_offset_ == pytest.approx(
        twin.coef_[0, -N_USERS - N_ITEMS : -N_ITEMS], abs=1e-4
    )
    assert model.item_offset_ == pytest.approx(twin.coef_[0, -N_ITEMS:], abs=1e-4)


def test_without_a_penalty_the_fit_is_that_of_statsmodels() -> None:
    x, z, _, log = world()
    model = without_offsets(x, z, interactions="user-item", ridge=0, tol=1e-9).fit(log)
    twin = sm.GLM(
        seen(log).ravel(), sm.add_constant(rows(x, z, within=False)), family=sm.families.Binomial()
    ).fit(tol=1e-12)

    assert list(model.coefficients_.values()) == pytest.approx(twin.params, abs=1e-5)
    assert model.log_likelihood_ == pytest.approx(twin.llf)


def test_rasch_margins_are_met_without_a_penalty() -> None:
    _, _, _, log = world()
    model = LogisticPropensity(user_offsets=True, item_offsets=True, ridge=0, tol=1e-9).fit(log)
    propensity = all_pairs(model, log)

    assert propensity.sum(axis=1) == pytest.approx(seen(log).sum(axis=1), abs=1e-4)
    assert propensity.sum(axis=0) == pytest.approx(seen(log).sum(axis=0), abs=1e-4)


def test_numbers_come_back_in_their_own_units() -> None:
    rng = np.random.default_rng(1)
    x, z = rng.integers(1950, 2000, (N_USERS, 2)).astype(float), rng.normal(7, 0.1, (N_ITEMS, 2))
    _, _, _, log = world()
    model = without_offsets(x, z, ridge=1.0).fit(log)
    c = model.coefficients_
    twin = c["intercept"] + rows(x, z, within=True) @ [
        *(c[f"user:{j}"] for j in range(2)),
        *(c[f"item:{k}"] for k in range(2)),
        *(c[f"user:{j} x item:{k}"] for j in range(2) for k in range(2)),
        c["user:0 x user:1"],
        c["item:0 x item:1"],
    ]

    assert expit(twin) == pytest.approx(all_pairs(model, log).ravel(), rel=1e-6)


@pytest.mark.parametrize("has_offset", [(False, False), (False, True), (True, False), (True, True)])
def test_the_held_out_likelihood_is_that_of_fits_without_the_fold(
    has_offset: tuple[bool, bool],
) -> None:
    x, z, _, log = world()
    options = {
        "user_offsets": has_offset[0],
        "item_offsets": has_offset[1],
        "interactions": "none",
        "n_folds": 3,
    }
    model = LogisticPropensity(x, z, ridge=[1.0, 10.0], tol=1e-7, **options).fit(log)
    fold_rng = np.random.default_rng(0).spawn(3)[1]
    user, item = (log.n_users, log.n_items)
    splits_users, splits_items = not has_offset[0] or has_offset[1], has_offset[0]
    of_user = fold_rng.permutation(user) % 3 if splits_users else np.zeros(user, int)
    of_item = fold_rng.permutation(item) % 3 if splits_items else np.zeros(item, int)
    u, i = np.divmod(np.arange(log.n_cells), log.n_items)
    features = np.hstack(
        [x[u], z[i], np.eye(user)[u] * has_offset[0], np.eye(item)[i] * has_offset[1]]
    )
    label, fold = seen(log).ravel(), (of_user[u] + of_item[i]) % 3
    expected = []
    for ridge in (10.0, 1.0):
        total = 0.0
        for each in range(3):
            kept = fold != each
            twin = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10000).fit(
                features[kept], label[kept]
            )
            total += twin.predict_log_proba(features[~kept])[
                np.arange((~kept).sum()), label[~kept].astype(int)
            ].sum()
        expected.append(total)

    assert model.tried_ridges_.tolist() == [10.0, 1.0]
    assert model.held_out_log_likelihood_ == pytest.approx(
        expected, abs=0.05
    )  # the fits that choose are rough
    assert model.ridge_ == [10.0, 1.0][int(np.argmax(expected))]


# Samples of unobserved cells


def test_a_sample_of_all_cells_is_the_exact_fit() -> None:
    x, z, _, log = world()
    options = {"user_offsets": True, "item_offsets": True, "ridge": 1.0, "tol": 1e-8}
    exact = LogisticPropensity(x, z, **options).fit(log)
    sampled = LogisticPropensity(x, z, negatives=1000, **options).fit(log)

    assert sampled.sampled_share_ == 1
    assert all_pairs(sampled, log) == pytest.approx(all_pairs(exact, log), rel=1e-5)
    assert sampled.log_likelihood_ == pytest.approx(exact.log_likelihood_)


def test_a_sample_finds_the_exact_coefficients_within_its_error_and_adds_up() -> None:
    x, z, _, log = world(n_users=400, n_items=300, intercept=-4.0)
    exact = without_offsets(x, z, interactions="user-item", ridge=0).fit(log)
    sampled = [
        without_offsets(
            x, z, interactions="user-item", ridge=0, negatives=2, random_state=seed
        ).fit(log)
        for seed in range(8)
    ]
    found = np.array([list(model.coefficients_.values()) for model in sampled])
    truth = np.array(list(exact.coefficients_.values()))
    spread = found.std(axis=0, ddof=1)

    assert all(model.sampled_share_ < 0.2 for model in sampled)
    assert (np.abs(found.mean(axis=0) - truth) < 4 * spread / np.sqrt(8)).all()
    assert spread.max() < 0.25
    for model in sampled:
        assert all_pairs(model, log).sum() == pytest.approx(len(log), rel=1e-6)
        assert model.log_likelihood_ == pytest.approx(exact.log_likelihood_, rel=0.02)


def test_too_many_pairs_are_sampled_and_the_sum_is_right_within_a_percent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, z, _, log = world(n_users=300, n_items=200, intercept=-4.0)
    monkeypatch.setattr(logistic_design, "MAX_UNIT_PAIRS", 100)
    monkeypatch.setattr("unskew.propensity.logistic.MAX_CHECKED_CELLS", 40_000)
    model = LogisticPropensity(x, z, user_offsets=True, item_offsets=True, ridge=1.0).fit(log)

    assert model.sampled_share_ < 1
    assert all_pairs(model, log).sum() == pytest.approx(len(log), rel=0.01)
    assert model.expected_observations_ == pytest.approx(len(log))


@given(st.integers(0, 100), st.floats(1e-4, 0.99))
def test_a_shift_gives_the_mean_asked_for(seed: int, mean: float) -> None:
    logits = np.random.default_rng(seed).normal(-3, 4, 50)

    assert expit(logits + shift_to_total(logits, 50 * mean)).mean() == pytest.approx(mean)


# Properties


@settings(max_examples=25)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["all", "user-item", "none"]),
    st.booleans(),
    st.booleans(),
    st.floats(0.01, 100),
)
def test_propensities_add_up_to_the_log(
    seed: int, interactions: Any, user_offsets: bool, item_offsets: bool, ridge: float
) -> None:
    x, z, _, log = world(seed)
    model = LogisticPropensity(
        x,
        z,
        interactions=interactions,
        user_offsets=user_offsets,
        item_offsets=item_offsets,
        ridge=ridge,
        tol=1e-6,
    ).fit(log)

    assert all_pairs(model, log).sum() == pytest.approx(len(log), rel=1e-6)
    assert model.expected_observations_ == pytest.approx(len(log), rel=1e-6)
    assert model.user_offset_.mean() == pytest.approx(0, abs=1e-9)


def test_the_order_of_users_never_shows() -> None:
    x, z, _, log = world()
    order = np.random.default_rng(0).permutation(N_USERS)
    shuffled = Ratings.from_dense(seen(log)[order])
    options = {"user_offsets": True, "item_offsets": True, "ridge": 0.5, "tol": 1e-8}

    one, other = (
        LogisticPropensity(x, z, **options).fit(log),
        LogisticPropensity(x[order], z, **options).fit(shuffled),
    )
    assert all_pairs(other, shuffled) == pytest.approx(all_pairs(one, log)[order], abs=1e-7)


def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads() -> None:
    x, z, _, log = world(n_users=200, n_items=100)
    for negatives in (None, 2):
        models = [
            LogisticPropensity(
                x, z, item_offsets=True, ridge=[1, 10], negatives=negatives, n_threads=n
            ).fit(log)
            for n in (1, 2)
        ]
        assert (models[0].predict(log).values == models[1].predict(log).values).all()


def test_known_propensities_are_found_and_the_error_shrinks_with_data() -> None:
    errors = []
    for n_users, n_items in ((50, 40), (200, 160), (800, 640)):
        x, z, propensity, log = world(5, n_users=n_users, n_items=n_items)
        model = without_offsets(x, z, interactions="user-item", ridge=0.1).fit(log)
        errors.append(np.mean(np.abs(all_pairs(model, log) / propensity - 1)))

    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.02


def test_known_offsets_are_found() -> None:
    rng = np.random.default_rng(2)
    gamma, beta = rng.normal(0, 0.7, 300), rng.normal(0, 1.0, 400)
    propensity = expit(-2 + gamma[:, None] + beta)
    log = Ratings.from_dense((rng.random(propensity.shape) < propensity).astype(float))
    model = LogisticPropensity(user_offsets=True, item_offsets=True, ridge=0.5).fit(log)

    assert np.corrcoef(model.user_offset_, gamma)[0, 1] > 0.95
    assert np.corrcoef(model.item_offset_, beta)[0, 1] > 0.98
    assert np.median(np.abs(all_pairs(model, log) / propensity - 1)) < 0.15


# Frames and files


def test_frames_align_by_id_and_name_coefficients() -> None:
    x, z, _, log = world()
    frame = pd.DataFrame(
        {
            "user_id": np.arange(N_USERS),
            "young": x[:, 0],
            "city": np.where(x[:, 1] == 1, "rome", "oslo"),
        }
    )
    model = without_offsets(
        frame.sample(frac=1, random_state=0), z, interactions="none", ridge=1.0, tol=1e-8
    ).fit(log)
    twin = without_offsets(
        np.column_stack([x, 1 - x[:, 1]]), z, interactions="none", ridge=1.0, tol=1e-8
    ).fit(log)

    assert model.predict(log).values == pytest.approx(twin.predict(log).values)
    assert list(model.coefficients_) == [
        "intercept",
        "user:young",
        "user:city=oslo",
        "user:city=rome",
        "item:0",
        "item:1",
    ]


@pytest.mark.parametrize("as_frame", [False, True])
def test_a_saved_model_predicts_the_same(tmp_path: Path, as_frame: bool) -> None:
    x, z, _, log = world()
    users = (
        pd.DataFrame({"a": x[:, 0], "b": np.where(x[:, 1] == 1, "yes", "no")}) if as_frame else x
    )
    model = LogisticPropensity(users, z, item_offsets=True, ridge=[1.0, 10.0]).fit(log)
    model.save(tmp_path / "model.unskew")
    loaded = unskew.load(tmp_path / "model.unskew")

    assert (loaded.predict(log).values == model.predict(log).values).all()
    assert (all_pairs(loaded, log) == all_pairs(model, log)).all()
    assert loaded.coefficients_ == model.coefficients_
    assert (loaded.ridge_, loaded.converged_, loaded.log_likelihood_) == (
        model.ridge_,
        model.converged_,
        model.log_likelihood_,
    )
    assert loaded.fit(log).predict(log).values == pytest.approx(model.predict(log).values)


def test_a_file_whose_parts_do_not_belong_together_is_refused(tmp_path: Path) -> None:
    x, z, _, log = world()
    model = without_offsets(x, z, ridge=1.0).fit(log)
    model.user_profile_ = model.user_profile_ + 100
    model.save(tmp_path / "model.unskew")

    with pytest.raises(ModelFileError, match=r"a profile is missing"):
        unskew.load(tmp_path / "model.unskew")


def test_the_representation_shows_sizes() -> None:
    assert (
        repr(LogisticPropensity(np.ones((3, 2)), ridge=1.0))
        == "LogisticPropensity(user_features=<3 x 2>, ridge=1.0)"
    )


# What it refuses


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        (
            {"user_features": None, "item_features": None},
            UsageError,
            r"has no covariates, so all cells are alike. Pass user_features",
        ),
        (
            {"interactions": "some"},
            UnknownNameError,
            r"unknown value 'some' of interactions; valid values are: all, user-item, none",
        ),
        (
            {"ridge": -1.0},
            UsageError,
            r"ridge must be a finite number, at least 0; got -1.0",
        ),
        ({"ridge": "best"}, UnknownNameError, r"unknown value 'best' of ridge"),
        ({"ridge": []}, UsageError, r"ridge is an empty list"),
        ({"n_folds": 1}, UsageError, r"n_folds must be a whole number, at least 2"),
        (
            {"n_folds": 31, "ridge": "cv"},
            UsageError,
            r"ridge='cv' holds out users in n_folds=31 folds, but there are only 30 users",
        ),
        (
            {"negatives": 0},
            UsageError,
            r"negatives must be a finite number, above 0, or None; got 0",
        ),
        ({"tol": 0}, UsageError, r"tol must be a finite number, above 0; got 0"),
        (
            {"user_features": np.ones((5, 1))},
            DataError,
            r"user_features has 5 rows, but the log lists 30 users",
        ),
    ],
)
def test_what_cannot_be_fitted_is_named(
    settings: dict[str, Any], error: type[Exception], match: str
) -> None:
    x, z, _, log = world()
    with pytest.raises(error, match=match):
        without_offsets(**{"user_features": x, "item_features": z, "ridge": 1.0, **settings}).fit(
            log
        )


def test_an_item_never_observed_needs_a_penalty() -> None:
    log = Ratings.from_dense([[5, 1, 0], [4, 0, 0], [0, 3, 0]], items=["a", "b", "c"])

    with pytest.raises(
        DataError,
        match=r"item 'c' was observed 0 times of 3, so its offset is infinite without a penalty",
    ):
        LogisticPropensity(item_offsets=True, ridge=0).fit(log)
    assert all_pairs(LogisticPropensity(item_offsets=True, ridge=1.0).fit(log), log)[0, 2] > 0


def test_a_user_who_rated_everything_needs_a_penalty() -> None:
    log = Ratings.from_dense([[5, 1, 1], [4, 0, 1], [0, 3, 0]])

    with pytest.raises(DataError, match=r"user 0 was observed 3 times of 3"):
        without_offsets(user_offsets=True, ridge=[0, 1]).fit(log)


def test_a_pair_of_covariates_never_observed_needs_a_penalty() -> None:
    log = Ratings.from_dense([[0, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 1], [0, 1, 1, 0]])
    features = {"user_features": [[1], [1], [0], [0]], "item_features": [[1], [1], [0], [0]]}

    with pytest.raises(
        DataError,
        match=r"none of the 4 cells with 'user:0 x item:0' were observed, so its coeff",
    ):
        without_offsets(**features, ridge=0).fit(log)


def test_separation_by_a_number_is_warned_of() -> None:
    log = Ratings.from_dense([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]])

    with pytest.warns(
        PropensityWarning, match=r"covariates separate observed from unobserved cells"
    ):
        without_offsets(item_features=[[1], [2], [3], [4]], ridge=0, tol=1e-8).fit(log)


def test_a_fit_that_ends_too_early_is_warned_of() -> None:
    x, z, _, log = world()
    with pytest.warns(
        ConvergenceWarning,
        match=r"had not converged after 1 iteration. Raise max_iter \(now 1\) or ridge \(now 0.1\)",
    ):
        model = without_offsets(x, z, ridge=0.1, max_iter=1, tol=1e-9).fit(log)
    assert not model.converged_


def test_a_universe_that_the_log_does_not_list_is_refused() -> None:
    x, z, _, log = world()
    with pytest.raises(
        UniverseError,
        match=r"only 30 users and 24 items, and this model needs the ids of the whole universe",
    ):
        without_offsets(x, z, ridge=1.0).fit(log, universe=(100, 100))


# Coat


@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
def test_coat_is_fitted_as_well_as_the_published_propensities() -> None:
    coat = unskew.datasets.load_coat(os.environ["UNSKEW_DATA"])
    start = time.perf_counter()
    model = LogisticPropensity(coat.user_features, coat.item_features, item_offsets=True).fit(
        coat.train
    )
    taken = time.perf_counter() - start
    propensity, observed, published = (
        all_pairs(model, coat.train),
        seen(coat.train),
        coat.propensity_matrix,
    )
    loss, loss_of_published = (
        -np.mean(np.where(observed, np.log(p), np.log1p(-p))) for p in (propensity, published)
    )
    trained = unskew.MatrixFactorization(
        n_factors=40, l2=25, offsets="regularized", loss="squared"
    ).fit(coat.train, model)
    error = np.mean(np.square(trained.predict(coat.test.user, coat.test.item) - coat.test.rating))

    assert propensity.sum() == pytest.approx(len(coat.train), rel=0.01)
    assert loss <= loss_of_published
    assert taken < 60
    assert error == pytest.approx(1.094, abs=0.03)
    assert model.tried_ridges_.min() < model.ridge_ < model.tried_ridges_.max()
