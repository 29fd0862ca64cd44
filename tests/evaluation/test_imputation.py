from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from unskew import Ratings, evaluate, simulate
from unskew.errors import BadPredictionError, PropensityWarning, UniverseError, UsageError
from unskew.estimators import Shrink, Switch
from unskew.evaluation import Evaluation, Imputation
from unskew.types import Matrix, Vector

WORLD = simulate(30, 40, density=0.2, alpha=0.6, random_state=2)
LOG, TRUTH, P = WORLD.log, WORLD.truth.astype(float), WORLD.propensities.values
EVERYWHERE = WORLD.observation.propensities(slice(0, 30))
SEEN = np.zeros(TRUTH.shape, dtype=bool)
SEEN[LOG.user, LOG.item] = True
RNG = np.random.default_rng(5)
SCORES: Matrix = TRUTH + RNG.normal(0, 1, TRUTH.shape)
IMPUTED: Matrix = TRUTH + RNG.normal(0.5, 1, TRUTH.shape)
IMPUTING = ("eib", "dr", "sndr")
METRICS = ("mse", "mae", "accuracy", "dcg", "dcg@5", "cg@5", "precision@5")
PLACE = np.argsort(np.argsort(-SCORES, axis=1), axis=1) + 1


def judge(
    estimator: str = "dr", model: object = IMPUTED, *, folds: Any = None, **options: Any
) -> Evaluation:
    given: dict[str, Any] = {
        "propensities": P,
        "metrics": METRICS,
        "relevance_threshold": 4,
        "cluster": None,
    } | options
    return evaluate(
        LOG,
        {"a": SCORES, "b": SCORES + 0.1},
        estimators=[estimator],
        imputation=None if model is None else Imputation(model, folds, is_independent=True),
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


def weighted_residuals() -> tuple[Vector, Vector]:
    """Residuals of the logged cells around their weighted mean, and their weights."""
    weight = (1 / P) / (1 / P).sum()
    residual = TRUTH[SEEN] - IMPUTED[SEEN]
    return residual - residual @ weight, weight


def imputed_delta_of(metric: str) -> Matrix:
    """Every cell's expected delta: its imputed rating plus each logged residual, one by one."""
    residual, weight = weighted_residuals()
    mean = np.zeros(TRUTH.shape)
    for one, share in zip(residual, weight, strict=True):
        mean += share * delta_of(metric, IMPUTED + one)
    return mean


# Right on one side


@pytest.mark.parametrize("estimator", IMPUTING)
@pytest.mark.parametrize("metric", METRICS)
def test_perfect_imputation_is_the_truth_without_error(estimator: str, metric: str) -> None:
    everything = evaluate(
        Ratings.from_dense(TRUTH),
        SCORES,
        metrics=[metric],
        estimators=["naive"],
        relevance_threshold=4,
    )
    risk = judge(estimator, model=TRUTH, metrics=[metric]).risk(
        "a", metric=metric, estimator=estimator
    )

    assert risk.estimate == pytest.approx(next(iter(everything)).estimate)
    if estimator != "eib":
        assert risk.std_error == 0.0


def test_a_wrong_imputation_and_wrong_propensities_together_are_wrong() -> None:
    """So that the two tests above say something."""
    with pytest.warns(PropensityWarning):
        off = judge(propensities=np.sqrt(P), metrics=["mae"])

    assert abs(value(off, "mae") - np.abs(TRUTH - SCORES).mean()) > 0.1


# The formulas written out


@pytest.mark.parametrize("metric", ["mse", "mae", "dcg", "dcg@5", "cg@5"])
def test_eib_dr_and_sndr_are_their_formulas(metric: str) -> None:
    """Of MAE up to the 20 points that stand for the residuals."""
    real, filled = delta_of(metric, TRUTH), imputed_delta_of(metric)
    weight = SEEN / EVERYWHERE
    mean_error = (weight * (real - filled)).sum() / weight.sum()
    by_hand = {
        "eib": np.mean(np.where(SEEN, real, filled)),
        "dr": np.mean(filled + weight * (real - filled)),
        "sndr": np.mean(filled) + mean_error,
    }
    residual = {"dr": real - filled, "sndr": real - filled - mean_error}
    total = {"dr": TRUTH.size, "sndr": weight.sum()}
    exact = 2e-3 if metric == "mae" else 1e-9

    for estimator, expected in by_hand.items():
        risk = judge(estimator).risk("a", metric=metric, estimator=estimator)
        assert risk.estimate == pytest.approx(expected, rel=exact)
        if estimator in residual:
            spread = (1 - EVERYWHERE) * (weight * residual[estimator]) ** 2
            std_error = np.sqrt(spread.sum()) / total[estimator]
            assert risk.std_error == pytest.approx(std_error, rel=exact)


def test_dr_dcg_replaces_each_rating_by_its_corrected_imputation() -> None:
    """The mean over users of sum_k disc(k) [G + O h (Y - G)], user by user and place by place."""
    corrected = IMPUTED + SEEN / EVERYWHERE * (TRUTH - IMPUTED)
    best_first = np.take_along_axis(corrected, np.argsort(-SCORES, axis=1), axis=1)
    gains = [
        sum(rating / np.log2(place + 1) for place, rating in enumerate(row, start=1))
        for row in best_first
    ]

    assert value(judge(), "dcg") == pytest.approx(np.mean(gains))


@pytest.mark.parametrize("unit", ["user", "item"])
def test_clusters_carry_their_imputed_part(unit: str) -> None:
    real, filled = delta_of("mse", TRUTH), imputed_delta_of("mse")
    corrected = (filled + SEEN / EVERYWHERE * (real - filled)) / TRUTH.size
    by_unit = corrected.sum(axis=1 if unit == "user" else 0)
    expected = np.sqrt(by_unit.size / (by_unit.size - 1) * ((by_unit - by_unit.mean()) ** 2).sum())

    assert judge(cluster=unit).risk("a", metric="mse", estimator="dr").std_error == pytest.approx(
        expected
    )


@pytest.mark.filterwarnings("ignore:the weight transform decides")
def test_switch_and_shrinkage_put_their_weights_in_place_of_the_inverse() -> None:
    real, filled, inverse = delta_of("mse", TRUTH), imputed_delta_of("mse"), 1 / EVERYWHERE
    cap = float(np.median(1 / P))
    switched = np.mean(filled + SEEN * inverse * (inverse <= cap) * (real - filled))
    shrunk = np.mean(filled + SEEN * 3 * inverse / (inverse**2 + 3) * (real - filled))

    assert value(judge(weight_transform=Switch(cap)), "mse") == pytest.approx(switched)
    assert value(judge(weight_transform=Shrink(3)), "mse") == pytest.approx(shrunk)


def test_users_in_small_blocks_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = judge().to_columns()
    monkeypatch.setattr("unskew.evaluation.imputation.BLOCK_CELLS", 3 * 40 + 1)

    assert judge().to_columns()["estimate"] == pytest.approx(at_once["estimate"])


@pytest.mark.parametrize("form", ["matrix", "callable", "model"])
def test_an_imputation_in_every_form(form: str) -> None:
    class Model:
        def predict(self, users: np.ndarray, items: np.ndarray) -> Matrix:
            return IMPUTED[users, items]

    given = {
        "matrix": IMPUTED,
        "callable": lambda users, items: IMPUTED[np.ix_(users, items)],
        "model": Model(),
    }[form]
    assert judge(model=given).to_columns()["estimate"] == pytest.approx(
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


@pytest.mark.parametrize("estimator", IMPUTING)
def test_dr_needs_an_imputation(estimator: str) -> None:
    with pytest.raises(
        UsageError, match=f"'{estimator}' needs a model of the ratings .* Pass imputation="
    ):
        judge(estimator, model=None)


def test_what_covers_the_log_alone_imputes_nothing() -> None:
    frame = pd.DataFrame({"user_id": LOG.user, "item_id": LOG.item, "prediction": LOG.rating})

    for aligned in (LOG.rating, frame):
        with pytest.raises(
            BadPredictionError,
            match=r"needs predictions for every cell\. Pass a model, a users x items matrix",
        ):
            judge(model=aligned)
    with pytest.raises(BadPredictionError, match="estimation needs predictions for every cell"):
        evaluate(LOG, frame, propensities=P, estimators=["dr"], imputation=IMPUTED)


@pytest.mark.parametrize("who", ["model", "imputation"])
def test_a_cell_outside_the_log_without_a_number_is_named(who: str) -> None:
    user, item = np.argwhere(~SEEN)[17]
    holed = {"model": SCORES.copy(), "imputation": IMPUTED.copy()}
    holed[who][user, item] = np.nan

    with pytest.raises(
        BadPredictionError,
        match=rf"for 1 cell outside the log; the first is user {user}, item {item}\.",
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


def test_metrics_that_rank_logged_items_are_not_imputed() -> None:
    with pytest.raises(
        UsageError, match=r"'logged_auc' ranks the logged items .* estimated by 'eib'"
    ):
        judge("eib", metrics=["logged_auc"])


def test_the_result_says_what_it_takes_for_granted() -> None:
    alone = judge("dr", metrics=["mse"])
    folded = judge("eib", metrics=["mse"], folds=np.arange(len(LOG)) % 3)

    assert alone.notes == ("imputation taken as fitted to other ratings",)
    assert "\nimputation taken as fitted to other ratings\n" in repr(alone)
    assert folded.notes == ("imputation taken as cross-fitted in 3 folds",)
    assert folded.to_record()["notes"] == list(folded.notes)
    assert judge("snips", metrics=["mse"]).notes == ()


@pytest.mark.parametrize("metric", ["recall@5", "ndcg@5"])
def test_a_metric_that_cannot_be_imputed_is_named(metric: str) -> None:
    match = (
        f"the metric '{metric}' cannot be estimated by 'dr' of estimators: it divides by the number"
    )
    with pytest.raises(UsageError, match=match):
        judge(metrics=["mse", metric])
