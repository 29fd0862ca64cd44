from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from enumeration import Pattern, expectation
from unskew import Ratings, evaluate, simulate
from unskew.errors import BadPredictionError, PropensityWarning, UniverseError, UsageError
from unskew.estimators import Shrink, Switch
from unskew.evaluation import Evaluation
from unskew.types import Matrix

WORLD = simulate(30, 40, density=0.2, alpha=0.6, random_state=2)
LOG, TRUTH, P = WORLD.log, WORLD.truth.astype(float), WORLD.propensities.values
EVERYWHERE = WORLD.observation.propensities(slice(0, 30))
SEEN = np.zeros(TRUTH.shape, dtype=bool)
SEEN[LOG.user, LOG.item] = True
RNG = np.random.default_rng(5)
SCORES: Matrix = TRUTH + RNG.normal(0, 1, TRUTH.shape)
IMPUTED: Matrix = TRUTH + RNG.normal(0.5, 1, TRUTH.shape)
METRICS = ("mse", "mae", "accuracy", "dcg", "dcg@5", "cg@5", "precision@5")
PLACE = np.argsort(np.argsort(-SCORES, axis=1), axis=1) + 1


def judge(estimator: str = "dr", imputation: object = IMPUTED, **options: Any) -> Evaluation:
    given: dict[str, Any] = {
        "propensities": P,
        "metrics": METRICS,
        "relevance_threshold": 4,
    } | options
    return evaluate(
        LOG,
        {"a": SCORES, "b": SCORES + 0.1},
        estimators=[estimator],
        imputation=imputation,
        **given,
    )


def value(result: Evaluation, metric: str, estimator: str = "dr") -> float:
    return result.risk("a", metric=metric, estimator=estimator).estimate


def delta_of(metric: str, rating: Matrix) -> Matrix:
    """Every cell's delta if ``rating`` were the truth, in plain NumPy."""
    return {
        "mae": lambda: np.abs(rating - SCORES),
        "mse": lambda: (rating - SCORES) ** 2,
        "dcg": lambda: 40 * rating / np.log2(PLACE + 1),
        "dcg@5": lambda: 40 * rating / np.log2(PLACE + 1) * (PLACE <= 5),
        "cg@5": lambda: 40 / 5 * rating * (PLACE <= 5),
    }[metric]()


# Right on one side


@pytest.mark.parametrize("estimator", ["dr", "eib"])
@pytest.mark.parametrize("metric", METRICS)
def test_perfect_imputation_is_the_truth_without_error(estimator: str, metric: str) -> None:
    everything = evaluate(
        Ratings.from_dense(TRUTH),
        SCORES,
        metrics=[metric],
        estimators=["naive"],
        relevance_threshold=4,
    )
    risk = judge(estimator, imputation=TRUTH, metrics=[metric]).risk(
        "a", metric=metric, estimator=estimator
    )

    assert risk.estimate == pytest.approx(next(iter(everything)).estimate)
    assert risk.std_error == 0.0


tiny = arrays(np.float64, (2, 3), elements=st.integers(1, 5).map(float))
chances = arrays(np.float64, (2, 3), elements=st.floats(0.1, 0.9))


@settings(max_examples=8)
@given(truth=tiny, scores=tiny, imputed=tiny, chance=chances)
@pytest.mark.parametrize("metric", ["mae", "dcg@2"])
def test_right_propensities_make_up_for_a_wrong_imputation(
    metric: str, truth: Matrix, scores: Matrix, imputed: Matrix, chance: Matrix
) -> None:
    """The mean over all 64 observation patterns.

    The estimate of a log without a cell is the imputed mean.
    """

    def risk_of(rating: Matrix) -> float:
        return next(
            iter(
                evaluate(Ratings.from_dense(rating), scores, metrics=[metric], estimators=["naive"])
            )
        ).estimate

    def doubly_robust(seen: Pattern) -> float:
        if not seen.any():
            return risk_of(imputed)
        log = Ratings.from_dense(np.where(seen, truth, 0))
        return next(
            iter(
                evaluate(
                    log,
                    scores,
                    propensities=chance,
                    metrics=[metric],
                    estimators=["dr"],
                    imputation=imputed,
                )
            )
        ).estimate

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)
        assert expectation(chance, doubly_robust) == pytest.approx(risk_of(truth))


def test_a_wrong_imputation_and_wrong_propensities_together_are_wrong() -> None:
    """So that the two tests above say something."""
    with pytest.warns(PropensityWarning):
        off = judge(propensities=np.sqrt(P), metrics=["mae"])

    assert abs(value(off, "mae") - np.abs(TRUTH - SCORES).mean()) > 0.1


# The formulas written out


@pytest.mark.parametrize("metric", ["mse", "mae", "dcg", "dcg@5", "cg@5"])
def test_dr_and_eib_are_their_formulas(metric: str) -> None:
    real, filled = delta_of(metric, TRUTH), delta_of(metric, IMPUTED)
    dr = np.mean(filled + SEEN / EVERYWHERE * (real - filled))
    eib = np.mean(np.where(SEEN, real, filled))
    std_error = (
        np.sqrt((SEEN * (1 - EVERYWHERE) * ((real - filled) / EVERYWHERE) ** 2).sum()) / TRUTH.size
    )

    found = judge("dr").risk("a", metric=metric, estimator="dr")
    assert (found.estimate, found.std_error) == pytest.approx((dr, std_error))
    assert value(judge("eib"), metric, "eib") == pytest.approx(eib)


def test_dr_dcg_replaces_each_rating_by_its_corrected_imputation() -> None:
    """The mean over users of sum_k disc(k) [G + O h (Y - G)], user by user and place by place."""
    corrected = IMPUTED + SEEN / EVERYWHERE * (TRUTH - IMPUTED)
    best_first = np.take_along_axis(corrected, np.argsort(-SCORES, axis=1), axis=1)
    gains = [
        sum(rating / np.log2(place + 1) for place, rating in enumerate(row, start=1))
        for row in best_first
    ]

    assert value(judge(), "dcg") == pytest.approx(np.mean(gains))


def test_clusters_of_users_carry_their_imputed_part() -> None:
    real, filled = delta_of("mae", TRUTH), delta_of("mae", IMPUTED)
    by_user = (filled + SEEN / EVERYWHERE * (real - filled)).sum(axis=1) / TRUTH.size
    expected = np.sqrt(30 / 29 * ((by_user - by_user.mean()) ** 2).sum())

    assert judge(cluster="user").risk("a", metric="mae", estimator="dr").std_error == pytest.approx(
        expected
    )


def test_switch_and_shrinkage_put_their_weights_in_place_of_the_inverse() -> None:
    real, filled, inverse = delta_of("mae", TRUTH), delta_of("mae", IMPUTED), 1 / EVERYWHERE
    cap = float(np.median(1 / P))
    switched = np.mean(filled + SEEN * inverse * (inverse <= cap) * (real - filled))
    shrunk = np.mean(filled + SEEN * 3 * inverse / (inverse**2 + 3) * (real - filled))

    assert value(judge(weight_transform=Switch(cap)), "mae") == pytest.approx(switched)
    assert value(judge(weight_transform=Shrink(3)), "mae") == pytest.approx(shrunk)


def test_users_in_small_blocks_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = judge().to_columns()
    monkeypatch.setattr("unskew.evaluation.imputation.BLOCK_CELLS", 3 * 40 + 1)

    assert judge().to_columns()["estimate"] == pytest.approx(at_once["estimate"])


@pytest.mark.parametrize("form", ["matrix", "callable", "model"])
def test_an_imputation_in_every_form(form: str) -> None:
    class Model:
        def predict(self, users: np.ndarray, items: np.ndarray) -> Matrix:
            return IMPUTED[users, items]

    given = {"matrix": IMPUTED, "callable": lambda users: IMPUTED[users], "model": Model()}[form]
    assert judge(imputation=given).to_columns()["estimate"] == pytest.approx(
        judge().to_columns()["estimate"]
    )


def test_a_comparison_is_paired_by_dr_too() -> None:
    compared = judge().compare("a", "b", metric="mae", estimator="dr")
    alone = judge().risk("a", metric="mae", estimator="dr")

    assert compared.difference == pytest.approx(
        alone.estimate - judge().risk("b", metric="mae", estimator="dr").estimate
    )
    assert compared.std_error < alone.std_error


# Errors


@pytest.mark.parametrize("estimator", ["dr", "eib"])
def test_dr_needs_an_imputation(estimator: str) -> None:
    with pytest.raises(
        UsageError, match=f"'{estimator}' needs a model of the ratings .* Pass imputation="
    ):
        judge(estimator, imputation=None)


def test_what_covers_the_log_alone_imputes_nothing() -> None:
    frame = pd.DataFrame({"user_id": LOG.user, "item_id": LOG.item, "prediction": LOG.rating})

    for aligned in (LOG.rating, frame):
        with pytest.raises(
            BadPredictionError,
            match=r"needs predictions for every cell\. Pass a model, a users x items matrix",
        ):
            judge(imputation=aligned)
    with pytest.raises(BadPredictionError, match="estimation needs predictions for every cell"):
        evaluate(LOG, frame, propensities=P, estimators=["dr"], imputation=IMPUTED)


@pytest.mark.parametrize("who", ["model", "imputation"])
def test_a_cell_outside_the_log_without_a_number_is_named(who: str) -> None:
    user, item = np.argwhere(~SEEN)[17]
    holed = {"model": SCORES.copy(), "imputation": IMPUTED.copy()}
    holed[who][user, item] = np.nan

    with pytest.raises(
        BadPredictionError,
        match=rf"for 1 cells outside the log; the first is user {user}, item {item}\.",
    ):
        evaluate(
            LOG,
            holed["model"],
            propensities=P,
            metrics=["mae"],
            estimators=["dr"],
            imputation=holed["imputation"],
        )


def test_cells_without_ids_cannot_be_imputed() -> None:
    with pytest.raises(
        UniverseError,
        match="the universe has 31 users x 40 items, but the log has the ids of only 30 users",
    ):
        judge(universe=(31, 40), metrics=["mae"])


def test_dr_has_no_standard_error_by_item() -> None:
    with pytest.raises(
        UsageError,
        match="for independent cells and for clusters of users, not for clusters of items",
    ):
        judge(cluster="item")
