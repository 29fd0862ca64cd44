from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from unskew import Propensities, Ratings, evaluate, simulate
from unskew.data import Universe
from unskew.errors import (
    BadPropensityError,
    PropensityWarning,
    UniverseError,
    UnknownNameError,
    UnskewWarning,
    UsageError,
)
from unskew.estimators import Clip, Switch
from unskew.estimators.point import SNIPS
from unskew.evaluation import Evaluation
from unskew.metrics.metric import Delta, MetricInput
from unskew.metrics.ranking import StratifiedRecall
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.weighted import WeightedFactorization
from unskew.types import Matrix, Vector

WORLD = simulate(40, 50, density=0.2, alpha=0.6, random_state=0)
LOG, TRUTH, P = WORLD.log, WORLD.truth.astype(float), WORLD.propensities.values
RNG = np.random.default_rng(7)
A: Matrix = TRUTH + RNG.normal(0, 1.0, TRUTH.shape)
B: Matrix = TRUTH + RNG.normal(0.3, 0.8, TRUTH.shape)
N_CELLS = TRUTH.size
MEANS = ("mse", "mae", "accuracy", "dcg@5", "cg@5", "precision@5")


def judge(**options: Any) -> Evaluation:
    return evaluate(
        LOG, {"a": A, "b": B}, **({"propensities": P, "relevance_threshold": 4} | options)
    )


def delta_of(metric: str, scores: Matrix) -> Matrix:
    """Every cell's delta, in plain NumPy; the scores have no ties."""
    place = np.argsort(np.argsort(-scores, axis=1), axis=1) + 1
    n_items, in_top = scores.shape[1], place <= 5
    return {
        "mse": lambda: (TRUTH - scores) ** 2,
        "mae": lambda: np.abs(TRUTH - scores),
        "accuracy": lambda: (np.clip(np.ceil(scores - 0.5), 1, 5) == TRUTH).astype(float),
        "dcg@5": lambda: n_items * in_top * TRUTH / np.log2(place + 1),
        "cg@5": lambda: n_items / 5 * in_top * TRUTH,
        "precision@5": lambda: n_items / 5 * in_top * (TRUTH >= 4),
    }[metric]()


def slots_of(metric: str, scores: Matrix) -> Matrix:
    """The base of self-normalised estimators: 1, or the slots of the list, with mean 1."""
    if not metric.endswith("@5"):
        return np.ones(scores.shape)
    place = np.argsort(np.argsort(-scores, axis=1), axis=1) + 1
    value = (place <= 5) * (1 / np.log2(place + 1) if metric == "dcg@5" else 1.0)
    slots: Matrix = value / value.mean()
    return slots


# Values and standard errors against the formulas written out


@pytest.mark.filterwarnings("ignore:few cells decide")
@pytest.mark.parametrize("metric", MEANS)
def test_naive_ips_and_snips_are_their_formulas(metric: str) -> None:
    result = judge(metrics=[metric], cluster=None)
    delta, base = (each[LOG.user, LOG.item] for each in (delta_of(metric, A), slots_of(metric, A)))
    naive, snips = delta.sum() / base.sum(), (delta / P).sum() / (base / P).sum()
    expected = {
        "naive": (
            naive,
            np.sqrt(((1 - P) * (delta - naive * base) ** 2).sum()) / base.sum(),
        ),
        "ips": ((delta / P).sum() / N_CELLS, np.sqrt(((1 - P) * (delta / P) ** 2).sum()) / N_CELLS),
        "snips": (
            snips,
            np.sqrt(((1 - P) * ((delta - snips * base) / P) ** 2).sum()) / (base / P).sum(),
        ),
    }

    for name, (value, std_error) in expected.items():
        risk = result.risk("a", metric=metric, estimator=name)
        assert (risk.estimate, risk.std_error) == pytest.approx((value, std_error))
        low, high = stats.norm.interval(0.95, value, std_error)
        if not metric.endswith("@5"):  # wider: heavy weights and skewness
            assert risk.ci_low <= low < high <= risk.ci_high
            assert risk.ci_high - risk.ci_low < 1.3 * (high - low)


@pytest.mark.parametrize("metric", MEANS)
def test_everything_observed_is_the_truth_by_every_estimator(metric: str) -> None:
    full = Ratings.from_dense(TRUTH)
    result = evaluate(
        full,
        A,
        propensities=np.ones(N_CELLS),
        metrics=[metric],
        relevance_threshold=4,
        cluster=None,
    )

    assert [risk.estimate for risk in result] == pytest.approx([delta_of(metric, A).mean()] * 3)
    assert [risk.std_error for risk in result] == [0.0] * 3


@pytest.mark.parametrize("metric", ["recall@5", "stratified_recall@5", "atop"])
def test_ratios_weight_relevant_cells_alone(metric: str) -> None:
    place = (np.argsort(np.argsort(-A, axis=1), axis=1) + 1)[LOG.user, LOG.item]
    relevant = LOG.rating >= 4
    weight = relevant / P
    found = (place <= 5).astype(float)
    if metric == "recall@5":
        by_user = [
            np.bincount(LOG.user, weights=each, minlength=40) for each in (weight * found, weight)
        ]
        expected = (by_user[0][by_user[1] > 0] / by_user[1][by_user[1] > 0]).mean()
    elif metric == "atop":
        expected = (weight * (1 - (place - 1) / 49)).sum() / weight.sum()
    else:
        strata = (
            np.maximum(np.bincount(LOG.item, weights=relevant, minlength=50), 1)[LOG.item] ** -0.5
        )
        expected = (weight * strata * found).sum() / (weight * strata).sum()

    result = judge(metrics=[metric])
    assert result.risk("a", metric=metric, estimator="snips").estimate == pytest.approx(expected)
    assert result.risk("a", metric=metric, estimator="ips").estimate == pytest.approx(expected)


@pytest.mark.parametrize(
    ("estimator", "codes"), [("user_normalized", LOG.user), ("item_normalized", LOG.item)]
)
def test_normalised_by_user_or_item(estimator: str, codes: Vector) -> None:
    delta = delta_of("mae", A)[LOG.user, LOG.item]
    weighted, weight = np.bincount(codes, weights=delta / P), np.bincount(codes, weights=1 / P)

    found = (
        judge(metrics=["mae"], estimators=[estimator])
        .risk("a", metric="mae", estimator=estimator)
        .estimate
    )
    assert found == pytest.approx((weighted[weight > 0] / weight[weight > 0]).mean())


def test_cuts_asked_for_together_are_what_each_is_alone() -> None:
    """With so many items that only the first places are looked for where the metrics allow it."""
    wide = simulate(6, 3000, density=0.1, random_state=3)
    scores = wide.truth + np.random.default_rng(0).normal(0, 1, wide.truth.shape)

    def values(*metrics: str) -> list[float]:
        return [
            risk.estimate
            for risk in evaluate(
                wide.log, scores, metrics=metrics, estimators="naive", relevance_threshold=4
            )
        ]

    cut = ("dcg@6", "cg@9", "precision@30")
    alone = [values(metric)[0] for metric in (*cut, "atop", "dcg")]
    assert values(*cut) == alone[:3]
    assert values(*cut, "atop", "dcg") == alone
    assert min(alone) > 0


def test_constant_propensities_make_snips_the_naive_average() -> None:
    propensities = np.full(len(LOG), len(LOG) / N_CELLS)
    result = judge(propensities=propensities, metrics=["mae", "dcg@5"], cluster=None)

    for metric in ("mae", "dcg@5"):
        naive, ips, snips = (
            result.risk("a", metric=metric, estimator=name) for name in ("naive", "ips", "snips")
        )
        assert snips.estimate == pytest.approx(naive.estimate)
        if metric == "mae":  # for dcg@5, naive and snips divide by the slots
            assert ips.estimate == pytest.approx(naive.estimate)


def test_a_cluster_of_users_is_the_unit_of_its_standard_error() -> None:
    result = judge(metrics=["mae"], cluster="user")
    delta = delta_of("mae", A)[LOG.user, LOG.item]
    ips = np.bincount(LOG.user, weights=delta / P, minlength=40) / N_CELLS
    snips = (delta / P).sum() / (1 / P).sum()
    z = np.bincount(LOG.user, weights=(delta - snips) / P, minlength=40) / (1 / P).sum()

    found = {
        name: result.risk("a", metric="mae", estimator=name).std_error for name in ("ips", "snips")
    }
    assert found["ips"] == pytest.approx(np.sqrt(40 / 39 * ((ips - ips.mean()) ** 2).sum()))
    assert found["snips"] == pytest.approx(np.sqrt(40 / 39 * (z**2).sum()))


def test_a_wider_level_gives_a_wider_interval_around_the_same_value() -> None:
    narrow, wide = (
        judge(level=level).risk("a", metric="mae", estimator="snips") for level in (0.5, 0.99)
    )

    assert narrow.estimate == wide.estimate
    assert wide.ci_low < narrow.ci_low < narrow.estimate < narrow.ci_high < wide.ci_high


def test_the_bootstrap_is_seeded_and_near_the_clustered_interval() -> None:
    one, again, other = (judge(bootstrap=300, random_state=seed).to_columns() for seed in (1, 1, 2))
    clustered = judge(cluster="user").to_columns()

    assert one == again
    assert one["ci_low"] != other["ci_low"]
    assert one["std_error"] == pytest.approx(clustered["std_error"], rel=0.3)


@pytest.mark.parametrize("random_state", [None, 3, np.int64(3), np.random.default_rng(3)])
def test_every_kind_of_random_state(random_state: Any) -> None:
    result = judge(bootstrap=5, random_state=random_state, metrics=["mae"])

    if isinstance(random_state, (int, np.integer)):
        again = judge(bootstrap=5, random_state=3, metrics=["mae"])
        assert result.to_columns() == again.to_columns()
    assert np.isfinite(result.to_columns()["ci_low"]).all()
    with pytest.raises(UsageError, match="random_state must be a whole number"):
        judge(bootstrap=5, random_state=-1)


# What the log, the universe and the names mean


def test_the_order_of_rows_does_not_matter() -> None:
    order = np.random.default_rng(0).permutation(len(LOG))
    shuffled = evaluate(
        LOG.take(order),
        {"a": A, "b": B},
        propensities=P[order],
        relevance_threshold=4,
        metrics=list(MEANS),
    )

    assert shuffled.to_columns()["estimate"] == pytest.approx(
        judge(metrics=list(MEANS)).to_columns()["estimate"]
    )


@pytest.mark.parametrize(
    "given",
    [P, P.tolist(), Propensities(P), WORLD.observation.propensities(slice(0, 40))],
    ids=["array", "list", "checked", "matrix"],
)
def test_propensities_in_every_form(given: Any) -> None:
    assert judge(propensities=given).to_columns() == judge().to_columns()


def test_a_fitted_propensity_model_is_asked_for_the_log() -> None:
    class Known:
        def predict(self, log: Ratings) -> Vector:
            return WORLD.observation.propensities(slice(0, 40))[log.user, log.item]

    assert judge(propensities=Known()).to_columns() == judge().to_columns()


def test_a_larger_universe_makes_ips_smaller_and_leaves_snips_alone() -> None:
    with pytest.warns(PropensityWarning):
        twice = judge(universe=(80, 50), metrics=["mae"])
    once = judge(metrics=["mae"])

    for name, factor in (("ips", 2), ("snips", 1), ("naive", 1)):
        small, large = (
            result.risk("a", metric="mae", estimator=name).estimate for result in (once, twice)
        )
        assert small == pytest.approx(factor * large)


def test_a_log_of_its_own_has_a_universe_when_the_caller_says_so() -> None:
    alone = Ratings.from_frame(LOG.to_frame("pandas"))
    scores = A[np.ix_(alone.users, alone.items)]

    with pytest.raises(
        UniverseError,
        match=r"'ips' divides by the number of all cells.* Pass universe=\(n_users, n_items\)",
    ):
        evaluate(alone, scores, propensities=P, estimators=["ips"])
    assert evaluate(alone, scores, propensities=P, estimators=["naive", "snips"]).universe is None
    by_name, by_size = (
        evaluate(alone, scores, propensities=P, universe=universe)
        for universe in ("log", (alone.n_users, alone.n_items))
    )
    assert by_name.to_columns() == by_size.to_columns()
    assert by_name.universe == Universe(alone.n_users, alone.n_items)


@pytest.mark.parametrize(
    ("universe", "message"),
    [
        (
            (40, 49),
            "the universe has 40 users x 49 items, but the log alone has 40 users and 50 items",
        ),
        ((-40, 50), "whole number of users, at least 1; got -40"),
        ((40, 50.5), r"whole number of items, at least 1; got 50\.5"),
        ("all", r"universe must be a pair \(n_users, n_items\), .*, or 'log' .*; got 'all'"),
    ],
)
def test_a_universe_that_cannot_be(universe: Any, message: str) -> None:
    with pytest.raises(UniverseError, match=message):
        judge(universe=universe)


def test_one_name_alone_stands_for_a_list() -> None:
    assert (
        judge(metrics="mae", estimators="snips").to_columns()
        == judge(metrics=["mae"], estimators=["snips"]).to_columns()
    )


@dataclass(frozen=True)
class Overrated:
    """A metric of the caller's own."""

    name: str = "overrated"
    higher_is_better: bool = False
    ranks: bool = False
    top: None = None

    def __call__(self, cells: MetricInput, /) -> Delta:
        return Delta((cells.require_predictions() > cells.rating + 1).astype(float))


def test_a_metric_of_the_callers_own() -> None:
    result = judge(metrics=[Overrated()], estimators=[SNIPS()])
    over = (A > TRUTH + 1)[LOG.user, LOG.item]

    assert result.risk("a", metric="overrated", estimator="snips").estimate == pytest.approx(
        (over / P).sum() / (1 / P).sum()
    )


# Transforms


def test_a_transform_is_applied_and_counted() -> None:
    cap = 1.5 / P.max()
    result = judge(metrics=["mae"], weight_transform=Clip(cap))
    delta = delta_of("mae", A)[LOG.user, LOG.item]

    assert result.n_transformed == int((cap * P < 1).sum()) > 0
    assert f"{result.n_transformed} weights transformed" in " ".join(repr(result).split())
    assert result.risk("a", metric="mae", estimator="ips").estimate == pytest.approx(
        (delta * np.minimum(1 / P, cap)).sum() / N_CELLS
    )


def test_no_transform_touches_nothing() -> None:
    assert judge().n_transformed == 0
    assert judge(weight_transform=Clip(1e9)).n_transformed == 0
    assert "transformed" not in repr(judge())


def test_weights_that_are_all_switched_off() -> None:
    off = Switch(1.0)

    with pytest.raises(
        UsageError,
        match="every cell that this metric counts has weight 0, so there is nothing to average",
    ):
        judge(weight_transform=off, estimators=["snips"])
    with pytest.raises(UsageError, match="all weights are zero: 'ips' would be 0 for any data"):
        judge(weight_transform=off, estimators=["ips"])
    imputed = judge(weight_transform=off, estimators=["dr"], imputation=TRUTH, metrics=["mae"])
    assert imputed.risk("a", metric="mae", estimator="dr").estimate == pytest.approx(
        np.abs(A - TRUTH).mean()
    )
    assert imputed.weight_summary is None


# Warnings, each with its numbers


def judge_weights(chances: Vector, universe: tuple[int, int]) -> Evaluation:
    log = Ratings.from_codes(
        np.arange(chances.size),
        np.zeros(chances.size),
        np.ones(chances.size),
        shape=(chances.size, 1),
    )
    return evaluate(
        log, np.zeros(chances.size), propensities=chances, universe=universe, metrics=["mae"]
    )


def test_healthy_weights_bring_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        health = judge().weight_summary

    assert health is not None
    assert health.effective_sample_size == pytest.approx((1 / P).sum() ** 2 / (1 / P**2).sum())
    assert (health.n_observed, health.n_cells) == (len(LOG), N_CELLS)


def test_a_small_effective_sample_and_a_heavy_top_are_told() -> None:
    """One weight of 2,000 and 499 weights of 1.

    The effective sample size is 2499^2 / (2000^2 + 499) = 1.56 of 500; 5 rows hold 2004 of 2499.
    """
    chances = np.append(np.ones(499), 1 / 2000)

    with pytest.warns(PropensityWarning) as caught:
        judge_weights(chances, (2499, 1))
    texts = [str(each.message) for each in caught]
    assert any(
        re.search(r"the effective sample size is 2 of 500 rows \(0\.3%\)", text) for text in texts
    )
    assert any(
        re.search(r"the 1% of rows with the largest weights hold 80% of all weight", text)
        for text in texts
    )
    assert not any("add up to" in text for text in texts)


@pytest.mark.parametrize(("universe", "share"), [((1500, 1), "-33.3%"), ((700, 1), "+42.9%")])
def test_weights_that_do_not_add_up_to_the_universe_are_told(
    universe: tuple[int, int], share: str
) -> None:
    message = (
        f"the inverse propensities add up to 1,000, but there are {universe[0]:,} cells ({share}, "
    )
    with pytest.warns(PropensityWarning, match=re.escape(message)) as caught:
        judge_weights(np.full(500, 0.5), universe)

    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_weights_within_three_standard_errors_of_the_universe_are_let_pass() -> None:
    summary = judge_weights(np.full(500, 0.5), (1050, 1)).weight_summary

    assert summary is not None
    assert summary.mass_z == pytest.approx(-50 / np.sqrt(1000))


def test_the_naive_average_alone_needs_no_propensities_and_warns_of_none() -> None:
    result = evaluate(LOG, A, estimators=["naive"])

    assert result.weight_summary is None
    assert "effective sample size" not in repr(result)


# Errors


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, float("nan"), 95])
def test_a_level_must_lie_between_0_and_1(level: float) -> None:
    with pytest.raises(
        UsageError, match=r"level must lie strictly between 0 and 1, such as 0\.95; got"
    ):
        judge(level=level)


def test_the_default_estimators_need_propensities() -> None:
    with pytest.raises(
        UsageError,
        match=r"propensities is missing; ips and snips cannot weight .* estimators=\['naive'\]",
    ):
        judge(propensities=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"metrics": ["mape"]},
            "unknown metric 'mape'; valid names are: .*mse, mae, accuracy",
        ),
        (
            {"estimators": ["naiv"]},
            "unknown estimator 'naiv'; valid names are: .*naive, ips, snips, user_normalized",
        ),
        (
            {"cluster": "movie"},
            "unknown value 'movie' of cluster; valid values are: None, auto, user, item, both",
        ),
    ],
)
def test_unknown_names_list_the_valid_ones(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        judge(**options)


def test_none_in_quotes_is_no_cluster() -> None:
    with pytest.raises(UsageError, match="cluster must be None without quotes, or one of auto"):
        judge(cluster="None")


@pytest.mark.parametrize("what", ["metrics", "estimators"])
def test_nothing_to_evaluate_by(what: str) -> None:
    with pytest.raises(UsageError, match=f"{what} is empty: there is nothing to evaluate"):
        judge(**{what: []})


@pytest.mark.parametrize(("what", "example"), [("metrics", "mse"), ("estimators", "snips")])
def test_what_is_no_list_of_names_is_refused_with_an_example(what: str, example: str) -> None:
    with pytest.raises(
        UsageError,
        match=rf"{what} must be a list of names; got 5\. Pass names of unskew\.{what}, such as "
        rf"{what}=\['{example}'\]\.",
    ):
        judge(**{what: 5})


def test_no_models() -> None:
    with pytest.raises(UsageError, match="predictions is empty: there is no model"):
        evaluate(LOG, {}, propensities=P)


def test_two_metrics_of_one_name_would_hide_one_another() -> None:
    with pytest.raises(
        UsageError, match="several metrics have the same name: 'stratified_recall@5'"
    ):
        judge(
            metrics=[
                StratifiedRecall(5, relevance_threshold=4, beta=0),
                StratifiedRecall(5, relevance_threshold=4, beta=1),
            ]
        )


def test_stars_do_not_say_what_is_relevant() -> None:
    with pytest.raises(
        UsageError, match=r"other than 0 and 1, such as \d\. Pass relevance_threshold=4"
    ):
        judge(metrics=["precision@5"], relevance_threshold=None)


def test_propensities_that_are_not_one_for_each_cell() -> None:
    with pytest.raises(
        BadPropensityError,
        match=rf"got propensities of shape \(3,\) for a log of {len(LOG)} ratings",
    ):
        judge(propensities=[0.1, 0.2, 0.3])


def test_a_bad_propensity_is_named_by_its_cell() -> None:
    bad = P.copy()
    bad[2] = 1.5
    with pytest.raises(
        BadPropensityError,
        match=rf"1 of {len(LOG)} propensities lie outside .* the first is 1\.5 at row 2 \(user",
    ):
        judge(propensities=bad)


def test_the_bootstrap_needs_resamples() -> None:
    with pytest.raises(UsageError, match="bootstrap must be a whole number, at least 2; got 1"):
        judge(bootstrap=1)


def test_a_frame_of_predictions_and_a_matrix_agree_in_one_call() -> None:
    frame = pd.DataFrame(
        {"user_id": LOG.user, "item_id": LOG.item, "prediction": A[LOG.user, LOG.item]}
    )
    result = evaluate(LOG, {"frame": frame, "matrix": A}, propensities=P)

    assert result.compare("frame", "matrix", metric="mae", estimator="snips").difference == 0.0


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
@pytest.mark.parametrize("cluster", [None, "user", "item"])
@pytest.mark.parametrize("estimator", ["naive", "snips", "user_normalized", "item_normalized"])
def test_a_constant_error_has_no_spread_at_all(estimator: str, cluster: Any) -> None:
    models = {"off": TRUTH + 0.1, "far": TRUTH + 0.7}
    constant = Judging("constant")
    found = evaluate(
        LOG, models, propensities=P, metrics=[constant], estimators=[estimator], cluster=cluster
    )

    assert {risk.estimate for risk in found} == {0.1}
    assert {risk.std_error for risk in found} == {0.0}


@dataclass(frozen=True)
class Judging:
    """The same delta everywhere, one that binary fractions do not have."""

    name: str
    higher_is_better: bool = False
    ranks: bool = False
    top: None = None

    def __call__(self, cells: MetricInput, /) -> Delta:
        return Delta(np.full(cells.rating.size, 0.1))


def test_the_bootstrap_of_a_constant_error_is_that_constant() -> None:
    (found,) = evaluate(LOG, A, metrics=[Judging("constant")], estimators=["naive"], bootstrap=20)

    assert (found.estimate, found.std_error, found.ci_low, found.ci_high) == (0.1, 0.0, 0.1, 0.1)


def test_errors_that_differ_by_rounding_alone_have_no_spread() -> None:
    for found in evaluate(
        LOG, TRUTH + 0.1, propensities=P, metrics=["mae"], estimators=["naive", "snips"]
    ):
        assert found.std_error == 0.0


def test_a_small_spread_that_is_real_stays_with_all_its_digits() -> None:
    off = TRUTH + 0.1
    off[::2] += 1e-8
    delta = np.abs(off - TRUTH)[LOG.user, LOG.item]
    (found,) = evaluate(LOG, off, metrics=["mae"], estimators=["naive"], cluster=None)

    assert found.std_error == pytest.approx(
        np.sqrt(np.square(delta - delta.mean()).sum()) / delta.size, rel=1e-6
    )


@pytest.mark.filterwarnings("ignore:model .* was trained on")
def test_scores_that_only_rank_are_not_compared_with_ratings_in_silence() -> None:
    model = WeightedFactorization(2, tol=0.1).fit(LOG)

    with pytest.warns(
        UnskewWarning,
        match="the scores of 'w' only rank items, but mse and mae would compare them with",
    ) as caught:
        evaluate(LOG, {"w": model, "a": A}, estimators=["naive"])
    assert caught[0].filename == __file__
    evaluate(LOG, {"w": model}, metrics=["dcg@5"], estimators=["naive"])


@pytest.mark.filterwarnings("ignore:model .* was trained on")
def test_a_model_of_clicks_is_not_compared_with_stars_in_silence() -> None:
    log = Ratings.from_dense([[5, 1, 4], [1, 5, 2]])
    model = MatrixFactorization(1, relevance_threshold=3).fit(log)

    with pytest.warns(UnskewWarning, match="predicts the probability of a rating of 3 or more"):
        evaluate(log, model, metrics=["mse"], estimators=["naive"])
    evaluate(
        replace(log, rating=(log.rating >= 3).astype(float)),
        model,
        metrics=["mse"],
        estimators=["naive"],
    )
