from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import unskew
from unskew.data.ratings import Ratings
from unskew.data.weights import training_weights
from unskew.errors import BadPropensityError, NotFittedError, UsageError
from unskew.factorization.objective import scaled_ridge
from unskew.models.baselines import GlobalMean, ItemAverage, OffsetsOnly, Popularity
from unskew.models.matrix_factorization import MatrixFactorization

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

LOG = Ratings.from_arrays(
    ["ann", "ann", "bob", "cat"],
    ["up", "heat", "up", "jaws"],
    [5, 1, 3, 2],
    items=["heat", "jaws", "up", "zodiac"],
)
P = np.array([0.5, 0.25, 1.0, 0.1])
WORLD = unskew.simulate(n_users=40, n_items=30, density=0.2, alpha=0.6, random_state=3)


def ridge(log: Ratings, weight: np.ndarray, l2: float) -> np.ndarray:
    """(a, b, c) by the normal equations of a dense design matrix."""
    rows = np.arange(len(log))
    design = np.zeros((len(log), log.n_users + log.n_items + 1))
    design[rows, log.user] = design[rows, log.n_users + log.item] = design[:, -1] = 1
    gram = design.T @ (weight[:, None] * design) + l2 * np.eye(design.shape[1])
    return np.linalg.solve(gram, design.T @ (weight * log.rating))


def test_the_global_mean_by_hand() -> None:
    assert GlobalMean().fit(LOG).predict(["ann", "cat"], ["up", "heat"]).tolist() == [2.75, 2.75]
    weighted = (2 * 5 + 4 * 1 + 1 * 3 + 10 * 2) / 17
    assert GlobalMean().fit(LOG, P).predict(["bob"], ["jaws"])[0] == pytest.approx(weighted)


def test_the_global_mean_is_the_snips_estimate_of_the_mean_rating() -> None:
    """The absolute error of predicting 0 is the rating itself."""
    log, propensities = WORLD.log, WORLD.propensities
    zero = np.zeros((log.n_users, log.n_items))

    result = unskew.evaluate(
        log, zero, propensities=propensities, metrics=["mae"], estimators=["ips", "snips"]
    )
    mean = GlobalMean().fit(log, propensities).factors_.global_offset

    assert mean == pytest.approx(result.risk("model", metric="mae", estimator="snips").estimate)
    whole = propensities.inverse.sum() / log.n_cells
    assert mean * whole == pytest.approx(
        result.risk("model", metric="mae", estimator="ips").estimate
    )


def test_no_constant_has_a_smaller_weighted_squared_error() -> None:
    def error(constant: float) -> float:
        return float(((LOG.rating - constant) ** 2 / P).sum())

    mean = GlobalMean().fit(LOG, P).factors_.global_offset

    assert error(mean) < min(error(mean - 1e-4), error(mean + 1e-4))


def test_popularity_by_hand() -> None:
    assert Popularity().fit(LOG).predict(["ann"] * 4, LOG.items).tolist() == [1, 1, 2, 0]
    np.testing.assert_allclose(
        Popularity().fit(LOG, P).predict(["ann"] * 4, LOG.items), [4, 10, 3, 0]
    )


def test_popularity_is_the_same_for_unknown_users_and_0_for_unknown_items() -> None:
    model = Popularity().fit(LOG, P)

    pairs = ["zoe", "ann", "zoe"], ["up", "alien", "alien"]
    assert model.predict(*pairs, on_unknown="fallback").tolist() == [3, 0, 0]
    best = model.recommend(["zoe"], k=2, on_unknown="fallback")
    assert best.items.tolist() == [["jaws", "heat"]]


def test_popularity_recommends_the_most_rated_unseen_items_and_ties_in_the_order_of_the_items() -> (
    None
):
    found = Popularity().fit(LOG).recommend(["ann", "bob", "cat"], k=2)

    assert found.items.tolist() == [["jaws", "zodiac"], ["heat", "jaws"], ["up", "heat"]]
    assert found.scores.tolist() == [[1, 0], [1, 1], [2, 1]]


@pytest.mark.parametrize("k", [1, 3, 7, 30])
def test_equal_scores_keep_the_order_of_the_items(k: int) -> None:
    log = WORLD.log
    unseen = [
        np.setdiff1d(np.arange(log.n_items), log.item[log.user == user])[:k]
        for user in range(log.n_users)
    ]

    found = GlobalMean().fit(log).recommend(log.users, k=k)

    for user, expected in enumerate(unseen):
        assert found.items[user, : len(expected)].tolist() == expected.tolist()
        assert np.isfinite(found.scores[user]).sum() == len(expected)


@pytest.mark.parametrize("l2", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("propensities", [None, WORLD.propensities])
def test_offsets_only_solves_the_ridge_problem(l2: float, propensities: Any) -> None:
    log = WORLD.log
    strength = scaled_ridge(l2, log, n_factors=0, penalizes_offsets=True)
    assert strength == pytest.approx(l2 * 40 * 30 / 70)
    solution = ridge(log, training_weights(log, propensities), strength)

    found = OffsetsOnly(l2).fit(log, propensities).factors_

    np.testing.assert_allclose(found.user_offset, solution[: log.n_users], atol=1e-4)
    np.testing.assert_allclose(found.item_offset, solution[log.n_users : -1], atol=1e-4)
    assert found.global_offset == pytest.approx(solution[-1], abs=1e-4)


def test_offsets_only_is_a_factorisation_without_factors() -> None:
    one = OffsetsOnly(2.0).fit(WORLD.log, WORLD.propensities)
    other = MatrixFactorization(0, 2.0, tol=1e-12).fit(WORLD.log, WORLD.propensities)

    assert one.objective_ == other.objective_
    assert np.array_equal(one.factors_.item_offset, other.factors_.item_offset)


@pytest.mark.parametrize("model", [GlobalMean(), OffsetsOnly(3.0), Popularity()])
def test_constant_propensities_change_only_the_scale(model: Any) -> None:
    log = WORLD.log
    users, items = log.users[log.user], log.items[log.item]

    naive = clone(model).fit(log).predict(users, items)
    weighted = (
        clone(model).fit(log, np.full(len(log), len(log) / log.n_cells)).predict(users, items)
    )

    scale = log.n_cells / len(log) if isinstance(model, Popularity) else 1.0
    np.testing.assert_allclose(weighted, scale * naive, rtol=1e-6)


@pytest.mark.parametrize("model", [GlobalMean(), OffsetsOnly(3.0), Popularity()])
def test_a_saved_baseline_can_be_loaded(tmp_path: Path, model: Any) -> None:
    model.fit(LOG, P).save(tmp_path / "model")

    back = unskew.load(tmp_path / "model")

    assert type(back) is type(model)
    assert back.get_params() == model.get_params()
    pairs = ["ann", "bob", "ann"], ["heat", "zodiac", "up"]
    assert back.predict(*pairs).tolist() == model.predict(*pairs).tolist()
    assert (
        back.recommend(LOG.users, k=3).items.tolist()
        == model.recommend(LOG.users, k=3).items.tolist()
    )


@pytest.mark.filterwarnings("ignore:model .* was trained on")
@pytest.mark.parametrize("model", [GlobalMean(), OffsetsOnly(3.0), Popularity()])
def test_evaluate_accepts_baselines(model: Any) -> None:
    log = WORLD.log
    model = model.fit(log)

    metric = "mse" if model.predicts_ratings else "dcg@5"
    result = unskew.evaluate(
        log, model, propensities=WORLD.propensities, metrics=[metric], estimators=["snips"]
    )

    assert np.isfinite(result.risk("model", metric=metric, estimator="snips").estimate)


def test_settings() -> None:
    assert repr(GlobalMean()) == "GlobalMean()"
    settings = OffsetsOnly(3.0).get_params()
    assert (settings["n_factors"], settings["l2"], settings["tol"]) == (0, 3.0, 1e-12)
    assert repr(clone(OffsetsOnly(3.0).fit(LOG))) == (
        "MatrixFactorization(n_factors=0, l2=3.0, tol=1e-12)"
    )
    with pytest.raises(
        UsageError, match=r"OffsetsOnly fixes n_factors=0\. Use MatrixFactorization"
    ):
        OffsetsOnly(n_factors=3)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="l2 must be a finite number"):
        OffsetsOnly(-1.0).fit(LOG)
    with pytest.raises(BadPropensityError, match=r"shape \(2,\) for a log of 4 ratings"):
        Popularity().fit(LOG, [0.5, 0.5])
    with pytest.raises(NotFittedError, match=r"GlobalMean\(\) is not fitted yet"):
        GlobalMean().predict(["ann"], ["up"])


def test_the_item_average_by_hand() -> None:
    """Item 0 has ratings 5 and 1 with weights 1 and 4, item 1 has one rating, item 2 has none."""
    log = Ratings.from_codes([0, 1, 1], [0, 0, 1], [5.0, 1.0, 4.0], shape=(2, 3))
    model = ItemAverage().fit(log, np.array([1.0, 0.25, 0.5]))

    mean = (5 + 4 * 1 + 2 * 4) / 7
    assert model.predict([0, 1, 0], [0, 1, 2]) == pytest.approx([9 / 5, 4.0, mean])
    assert model.predict([0], [99], on_unknown="fallback") == pytest.approx([mean])
    assert ItemAverage().fit(log).predict([0], [0]) == pytest.approx([3.0])


@pytest.mark.parametrize("kind", [GlobalMean, Popularity])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_partial_fit_is_a_fit_to_both_logs(kind: Any, is_weighted: bool) -> None:
    world = unskew.simulate(n_users=40, n_items=30, density=0.2, alpha=0.5, random_state=1)
    users, items = world.log.users[world.log.user], world.log.items[world.log.item]
    p = world.propensities.values
    is_first = (users < 25) & (items < 20)

    def part(rows: np.ndarray) -> tuple[Ratings, Any]:
        log = Ratings.from_arrays(users[rows], items[rows], world.log.rating[rows])
        return log, p[rows] if is_weighted else None

    model = kind().partial_fit(*part(is_first)).partial_fit(*part(~is_first))
    whole = kind().fit(*part(np.ones(len(p), dtype=bool)))

    np.testing.assert_allclose(model.predict(users, items), whole.predict(users, items), rtol=1e-12)
    for user in (0, 24, 39):
        found, expected = (each.recommend([user], k=30) for each in (model, whole))
        n_unseen = int(np.isfinite(expected.scores).sum())
        assert int(np.isfinite(found.scores).sum()) == n_unseen < 30
    with pytest.raises(UsageError, match=r"are of cells that the model has seen"):
        model.partial_fit(*part(is_first))
