from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass, replace
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from unskew import Ratings, evaluate, sensitivity, simulate
from unskew.data.estimation import Replicates
from unskew.data.propensities import Propensities
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.estimators import Clip, Shrink
from unskew.estimators.estimate import Estimate
from unskew.estimators.observed import Deltas, ObservedCells
from unskew.estimators.point import Estimator
from unskew.evaluation import Evaluation, Imputation, Sensitivity, odds_error_between
from unskew.propensity import NaiveBayesPropensity, PopularityPropensity
from unskew.report.sensitivity import build_robustness_page
from unskew.types import Vector

WORLD = simulate(40, 50, density=0.2, alpha=0.6, random_state=1)
LOG, P = WORLD.log, WORLD.propensities
RNG = np.random.default_rng(7)
A, B = (WORLD.truth + RNG.normal(0, spread, WORLD.truth.shape) for spread in (1.0, 0.9))
WEIGHTED = ("ips", "snips", "user_normalized", "item_normalized", "dr", "sndr")
CONSTRAINTS: tuple[Any, ...] = (None, "mass", "item", "user")
CLOSE_AND_FAR = {"a": (0, 0.3), "b": (1.5, 1.2)}
each_estimator = pytest.mark.parametrize("estimator", WEIGHTED)


def judge(**options: Any) -> Evaluation:
    given: dict[str, Any] = {
        "propensities": P,
        "metrics": ["mae"],
        "estimators": WEIGHTED,
        "imputation": Imputation(B + 0.3, is_independent=True),
    }
    return evaluate(LOG, {"a": A, "b": B}, **(given | options))


@pytest.fixture(scope="module")
def result() -> Evaluation:
    return judge()


@pytest.fixture(scope="module")
def found(result: Evaluation) -> Sensitivity:
    return sensitivity(result, max_weight=[2, 10, 50], odds_error=[1, 1.2, 2])


# Clipping


@each_estimator
def test_clipping_here_is_evaluating_with_a_clip(found: Sensitivity, estimator: str) -> None:
    clipped = judge(weight_transform=Clip(10))
    for model in ("a", "b"):
        expected = clipped.risk(model, metric="mae", estimator=estimator)
        (shift,) = (
            s
            for s in found.shifts
            if (s.model, s.estimator, s.change, s.amount) == (model, estimator, "clip", 10)
        )

        assert shift.low == shift.high == pytest.approx(expected.estimate)
        assert (shift.ci_low, shift.ci_high) == pytest.approx((expected.ci_low, expected.ci_high))
        assert shift.share_clipped == clipped.n_transformed / len(LOG)


def test_by_default_the_last_clip_clips_nothing(result: Evaluation) -> None:
    clips = [
        s
        for s in sensitivity(result, odds_error=[]).shifts
        if (s.model, s.estimator) == ("a", "snips")
    ]

    assert [s.change for s in clips] == ["clip"] * len(clips)
    assert clips[-1].amount == (1 / P.values).max()
    assert clips[-1].low == pytest.approx(
        result.risk("a", metric="mae", estimator="snips").estimate
    )


# Odds errors


@each_estimator
@pytest.mark.parametrize("cluster", [None, "user"])
def test_without_an_odds_error_nothing_moves(estimator: str, cluster: Any) -> None:
    evaluation = judge(cluster=cluster, estimators=[estimator])
    (shift,) = (
        s for s in sensitivity(evaluation, max_weight=[], odds_error=[1]).shifts if s.model == "a"
    )
    risk = evaluation.risk("a", metric="mae", estimator=estimator)

    assert (shift.low, shift.high) == pytest.approx((risk.estimate, risk.estimate))
    assert (shift.ci_low, shift.ci_high) == pytest.approx((risk.ci_low, risk.ci_high))


@each_estimator
def test_ranges_hold_one_another_as_the_error_grows(found: Sensitivity, estimator: str) -> None:
    fan = [
        s
        for s in found.shifts
        if (s.model, s.estimator, s.change) == ("a", estimator, "odds_error")
    ]

    assert [s.amount for s in fan] == [1, 1.2, 2]
    assert all(wider.low < s.low <= s.high < wider.high for s, wider in pairwise(fan))
    has_interval = [s for s in fan if not math.isnan(s.ci_low + s.ci_high)]
    assert all(s.ci_low < s.low and s.high < s.ci_high for s in has_interval)
    assert len(has_interval) == len(fan) or estimator.endswith("_normalized")


SMALL = Ratings.from_codes(
    [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 1, 3, 0, 2, 3], [5, 1, 4, 2, 3, 1, 5, 4], shape=(3, 4)
)
TRUE_RANGE = st.lists(st.floats(0.05, 0.95), min_size=8, max_size=8)


small_weights = pytest.mark.filterwarnings(
    "ignore:the inverse propensities add up:unskew.errors.PropensityWarning"
)


def every_corner(p: Vector, odds_error: float) -> list[Vector]:
    odds = p / (1 - p)
    ends = (odds / odds_error, odds * odds_error)
    return [
        np.where(bits, *(end / (1 + end) for end in ends))
        for bits in product([False, True], repeat=p.size)
    ]


@small_weights
@pytest.mark.parametrize(
    ("metric", "estimator"),
    [
        *(("mae", name) for name in WEIGHTED),
        ("recall@2", "snips"),
        ("atop", "snips"),
        ("dcg@2", "ips"),
    ],
)
def test_the_range_is_that_of_every_corner_of_the_box(metric: str, estimator: str) -> None:
    """A distribution of ratings gives imputed deltas that do not depend on the weights."""
    rng = np.random.default_rng(3)
    p, scores = rng.uniform(0.05, 0.9, len(SMALL)), rng.normal(3, 1, (3, 4))
    share = rng.dirichlet(np.ones(5), (3, 4))
    imputed = SimpleNamespace(
        levels_=np.arange(1.0, 6.0), predict_distribution=lambda users, items: share[users, items]
    )
    options: dict[str, Any] = {
        "metrics": [metric],
        "estimators": [estimator],
        "relevance_threshold": 3,
        "imputation": Imputation(imputed, is_independent=True),
    }
    evaluation = evaluate(SMALL, scores, propensities=p, **options)
    (shift,) = sensitivity(evaluation, max_weight=[], odds_error=[1.6], constraint=None).shifts
    values = [
        next(iter(evaluate(SMALL, scores, propensities=corner, **options))).estimate
        for corner in every_corner(p, 1.6)
    ]

    assert shift.low == pytest.approx(min(values))
    assert shift.high == pytest.approx(max(values))


@small_weights
@pytest.mark.parametrize(
    ("metric", "estimator"),
    [
        ("mse", "ips"),
        ("mse", "snips"),
        ("mse", "user_normalized"),
        ("recall@2", "snips"),
        ("stratified_recall@2", "snips"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_range_of_a_difference_is_that_of_every_corner(
    metric: str, estimator: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    p, one, other = (
        rng.uniform(0.05, 0.9, len(SMALL)),
        rng.normal(3, 1, (3, 4)),
        rng.normal(3, 1, (3, 4)),
    )

    def judged(propensities: Vector) -> Evaluation:
        options: dict[str, Any] = {
            "metrics": [metric],
            "estimators": [estimator],
            "relevance_threshold": 1,
        }
        return evaluate(SMALL, {"a": one, "b": other}, propensities=propensities, **options)

    def compared(propensities: Vector) -> float:
        return judged(propensities).compare("a", "b", metric=metric, estimator=estimator).difference

    found = sensitivity(judged(p), max_weight=[], odds_error=[1.6], constraint=None)
    robust = found.compare("a", "b", metric=metric, estimator=estimator)
    values = [compared(corner) for corner in every_corner(p, 1.6)]
    (shift,) = robust.shifts

    assert robust.difference == pytest.approx(compared(p))
    assert (shift.low, shift.high) == pytest.approx((min(values), max(values)))


@small_weights
@given(p=TRUE_RANGE, seed=st.integers(0, 99), factor=st.floats(1.01, 3))
def test_any_propensities_within_the_odds_give_an_estimate_within_the_range(
    p: list[float], seed: int, factor: float
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(3, 1, (3, 4))
    options: dict[str, Any] = {"metrics": ["mse"], "estimators": ["ips", "snips"]}
    odds = np.array(p) / (1 - np.array(p)) * factor ** rng.uniform(-1, 1, len(p))
    within = evaluate(SMALL, scores, propensities=odds / (1 + odds), **options)
    evaluation = evaluate(SMALL, scores, propensities=p, **options)
    shifts = sensitivity(evaluation, max_weight=[], odds_error=[factor], constraint=None).shifts

    for risk, shift in zip(within, shifts, strict=True):
        assert shift.low - 1e-9 <= risk.estimate <= shift.high + 1e-9


# The order of two models


def test_the_order_turns_where_the_closed_form_says(result: Evaluation) -> None:
    """IPS and SNIPS have the sign of sum w x, whose best case is a quadratic in the odds error."""
    compared = result.compare("a", "b", metric="mae", estimator="ips")
    x = np.abs(LOG.rating - A[LOG.user, LOG.item]) - np.abs(LOG.rating - B[LOG.user, LOG.item])
    excess, lost = 1 / P.values - 1, np.sign(compared.difference) * x
    up, down = (excess * lost)[lost < 0].sum(), (excess * lost)[lost > 0].sum()
    expected = max(np.roots([up, lost.sum(), down]).real)

    for estimator in ("ips", "snips"):
        free = sensitivity(result, constraint=None)
        robust = free.compare("a", "b", metric="mae", estimator=estimator)
        assert robust.flips_at == pytest.approx(expected)
        assert 1 <= robust.unsure_at <= robust.flips_at


@each_estimator
def test_before_it_turns_the_range_keeps_off_zero_and_after_it_does_not(
    result: Evaluation, estimator: str
) -> None:
    flips_at = (
        sensitivity(result, max_weight=[])
        .compare("a", "b", metric="mae", estimator=estimator)
        .flips_at
    )
    around = sensitivity(result, max_weight=[], odds_error=[0.999 * flips_at, 1.001 * flips_at])
    before, after = around.compare("a", "b", metric="mae", estimator=estimator).shifts

    assert before.low * before.high > 0
    assert after.low < 0 < after.high


def test_turning_a_comparison_around_changes_signs_only(found: Sensitivity) -> None:
    one, other = (
        found.compare(*pair, metric="mae", estimator="snips") for pair in (("a", "b"), ("b", "a"))
    )

    assert (one.difference, one.better) == (pytest.approx(-other.difference), other.better)
    assert (one.flips_at, one.unsure_at) == pytest.approx((other.flips_at, other.unsure_at))
    assert [(s.low, s.high) for s in one.shifts] == [
        pytest.approx((-s.high, -s.low)) for s in other.shifts
    ]


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_limits_of_the_opposite_difference_are_the_opposite_limits(
    result: Evaluation, estimator: str, constraint: Any
) -> None:
    found = sensitivity(result, max_weight=[], odds_error=[1.3, 3], constraint=constraint)
    one, other = (
        found.compare(*pair, metric="mae", estimator=estimator) for pair in (("a", "b"), ("b", "a"))
    )

    for shift, opposite in zip(one.shifts, other.shifts, strict=True):
        limits, expected = (shift.ci_low, shift.ci_high), (-opposite.ci_high, -opposite.ci_low)
        assert limits == pytest.approx(expected)


def test_who_is_better_in_every_cell_is_better_at_any_odds_error() -> None:
    evaluation = evaluate(
        LOG, {"a": LOG.rating + 1.0, "b": LOG.rating + 2.0}, propensities=P, metrics=["mae"]
    )
    robust = sensitivity(evaluation).compare("a", "b", metric="mae", estimator="snips")

    assert math.isinf(robust.flips_at)
    assert str(robust) == (
        "a is ahead of b on mae by snips at any odds error; "
        "the 95% interval of the difference never includes zero; "
        "assumed: the weights of all cells keep their sum"
    )
    assert json.loads(robust.to_json())["flips_at"] is None


def test_a_model_is_not_ahead_of_itself(found: Sensitivity) -> None:
    robust = found.compare("a", "a", metric="mae", estimator="snips")

    assert (robust.difference, robust.better, robust.flips_at, robust.unsure_at) == (
        0.0,
        None,
        1.0,
        1.0,
    )
    assert str(robust) == "a and a are equal on mae by snips"


def test_a_verdict_in_words() -> None:
    close = evaluate(
        LOG, {"a": A, "b": A + 0.01}, propensities=P, metrics=["dcg@5"], estimators=["snips"]
    )
    clear = evaluate(
        LOG, {"a": A, "b": LOG.rating}, propensities=P, metrics=["mae"], estimators=["snips"]
    )
    shown = str(sensitivity(clear).compare("a", "b", metric="mae", estimator="snips"))

    assert shown.startswith("b is ahead of a on mae by snips ")
    assert "are equal on dcg@5" in str(
        sensitivity(close).compare("a", "b", metric="dcg@5", estimator="snips")
    )


def test_propensities_without_ratings_can_be_further_off_and_the_words_say_so() -> None:
    pair = {"metric": "mae", "estimator": "snips"}
    blind = judge(propensities=PopularityPropensity("both").fit(LOG), estimators=["snips"])
    robust = sensitivity(blind).compare("a", "b", **pair)
    page = build_robustness_page(json.loads(robust.to_json()))
    said = "These propensities never saw a rating. In a public log with ratings of random cells"

    assert said in str(robust)
    assert said in "".join(text for text, _ in page.headline)
    assert said not in str(sensitivity(judge(estimators=["snips"])).compare("a", "b", **pair))


def test_models_with_different_lists_have_no_common_range() -> None:
    result = evaluate(
        LOG, {"a": A, "b": B}, propensities=P, metrics=["dcg@20"], estimators=["snips", "ips"]
    )
    found = sensitivity(result)

    with pytest.raises(UsageError, match="the two models recommend different items"):
        found.compare("a", "b", metric="dcg@20", estimator="snips")
    assert found.compare("a", "b", metric="dcg@20", estimator="ips").flips_at > 1


def test_an_interval_that_holds_zero_is_unsure_from_the_start() -> None:
    near = A + np.random.default_rng(2).normal(0, 0.05, A.shape)
    evaluation = evaluate(
        LOG, {"a": A, "b": near}, propensities=P, metrics=["mae"], estimators=["snips"]
    )
    robust = sensitivity(evaluation).compare("a", "b", metric="mae", estimator="snips")

    assert evaluation.compare("a", "b", metric="mae", estimator="snips").better is None
    assert robust.unsure_at == 1 < robust.flips_at
    assert "and b cannot be told apart on mae" in str(robust) or "and a cannot" in str(robust)
    assert "even if the propensities are right" in str(robust)


@each_estimator
def test_at_the_last_sure_odds_error_the_interval_touches_zero(estimator: str) -> None:
    better = WORLD.truth + np.random.default_rng(1).normal(0, 0.5, A.shape)
    options: dict[str, Any] = {
        "metrics": ["mse"],
        "estimators": [estimator],
        "imputation": Imputation(better + 0.3, is_independent=True),
    }
    evaluation = evaluate(LOG, {"a": A, "b": better}, propensities=P, **options)
    unsure_at = (
        sensitivity(evaluation).compare("a", "b", metric="mse", estimator=estimator).unsure_at
    )
    there = sensitivity(evaluation, max_weight=[], odds_error=[unsure_at])
    (shift,) = there.compare("a", "b", metric="mse", estimator=estimator).shifts

    if estimator.endswith("_normalized"):  # at some odds error it is too biased for an interval
        assert unsure_at >= 1
        return
    assert unsure_at > 1
    assert min(abs(shift.ci_low), abs(shift.ci_high)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("constraint", ["mass", None])
@pytest.mark.parametrize("seed", [12, 46, 48])
def test_the_first_unsure_odds_error_is_found_where_the_limit_goes_up_and_down(
    seed: int, constraint: Any
) -> None:
    """Heavy weights in a small log, against the first zero on a fine grid."""
    rng = np.random.default_rng(seed)
    p = np.clip(rng.beta(0.5, 1.5, (8, 8)), 0.003, 1)
    seen = rng.random((8, 8)) < p
    ratings = rng.integers(1, 6, (8, 8)).astype(float)
    log = Ratings.from_codes(*np.nonzero(seen), ratings[seen], shape=(8, 8))
    models = {name: ratings + rng.normal(*noise, (8, 8)) for name, noise in CLOSE_AND_FAR.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)
        evaluation = evaluate(
            log, models, propensities=p[seen], metrics=["mae"], estimators=["snips"], cluster=None
        )
    grid = np.exp(np.linspace(0, np.log(20), 300))
    found = sensitivity(evaluation, max_weight=[], odds_error=list(grid), constraint=constraint)
    robust = found.compare("a", "b", metric="mae", estimator="snips")
    limit = np.array([shift.ci_high for shift in robust.shifts])
    first = grid[np.argmax(limit >= 0)]

    assert robust.difference < 0 < limit.max()
    assert (np.diff(limit) < 0).any()  # not monotone
    assert robust.unsure_at == pytest.approx(first, rel=0.02)


# Sums of weights that are kept


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_more_constraints_give_narrower_ranges(result: Evaluation, estimator: str) -> None:
    ranges = {
        constraint: [
            (shift.low, shift.high)
            for shift in sensitivity(
                result, max_weight=[], odds_error=[1, 1.2, 2], constraint=constraint
            ).shifts
            if shift.estimator == estimator
        ]
        for constraint in CONSTRAINTS
    }
    for wide, narrow in ((None, "mass"), ("mass", "item"), ("mass", "user")):
        for (low, high), (inner_low, inner_high) in zip(ranges[wide], ranges[narrow], strict=True):
            assert low - 1e-9 <= inner_low <= inner_high <= high + 1e-9
    assert ranges["item"][2][1] < ranges["mass"][2][1] <= ranges[None][2][1]


@pytest.mark.parametrize("estimator", ["ips", "snips"])
@pytest.mark.parametrize("constraint", ["mass", "item", "user"])
def test_ranges_with_kept_sums_are_those_of_a_linear_program(
    estimator: str, constraint: Any
) -> None:
    result = judge(estimators=[estimator])
    found = sensitivity(result, max_weight=[], odds_error=[1.7], constraint=constraint)
    delta = np.abs(LOG.rating - A[LOG.user, LOG.item])
    weight = 1 / P.values
    code = {"mass": np.zeros(len(LOG), int), "item": LOG.item, "user": LOG.user}[constraint]
    alone = np.bincount(code)[code] == 1
    groups = np.where(alone, -1, code) == np.unique(np.where(alone, -1, code))[:, None]
    # IPS of all cells may also add up to the number of all cells
    total = np.array([weight.sum(), LOG.n_users * LOG.n_items])
    is_interval = estimator == "ips" and constraint == "mass"
    limits: dict[str, Any] = {"A_eq": groups.astype(float), "b_eq": groups @ weight}
    if is_interval:
        one = np.ones((1, len(LOG)))
        limits = {"A_ub": np.vstack([one, -one]), "b_ub": [total.max(), -total.min()]}
    bounds = np.column_stack([1 + (weight - 1) / 1.7, 1 + (weight - 1) * 1.7])
    low, high = (
        sign * linprog(sign * delta, bounds=bounds, **limits).fun / total[int(estimator == "ips")]
        for sign in (1, -1)
    )
    (shift,) = (each for each in found.shifts if each.model == "a")

    assert (shift.low, shift.high) == pytest.approx((low, high), rel=1e-9)


def test_means_over_groups_leave_weights_free_and_say_so(result: Evaluation) -> None:
    found = sensitivity(result, max_weight=[], odds_error=[2])
    free = sensitivity(result, max_weight=[], odds_error=[2], constraint=None)

    def rows(each: Sensitivity) -> list[str]:  # as text, because limits may be NaN
        return [repr(shift) for shift in each.shifts if shift.estimator == "user_normalized"]

    assert rows(found) == rows(free)
    assert "not so for mae by user_normalized: the weights may add up to anything" in found.notes
    robust = found.compare("a", "b", metric="mae", estimator="user_normalized")
    assert robust.constraint is None
    assert str(robust).endswith("assumed: the weights may add up to anything")


def test_an_unknown_constraint_is_refused(result: Evaluation) -> None:
    with pytest.raises(
        UnknownNameError, match="unknown value 'level' of constraint; valid values are: mass"
    ):
        sensitivity(result, constraint="level")  # type: ignore[arg-type]


# Estimated propensities


@pytest.mark.parametrize("cluster", [None, "user"])
@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_limits_include_the_random_sample_of_naive_bayes(
    cluster: Any, estimator: str, constraint: Any
) -> None:
    sample = np.random.default_rng(1).choice(WORLD.truth.ravel(), 60)
    options: dict[str, Any] = {
        "metrics": ["mae"],
        "estimators": [estimator],
        "cluster": cluster,
        "imputation": Imputation(np.full_like(A, 4.0), is_independent=True),
    }
    small, large = (
        evaluate(
            LOG,
            {"a": np.full_like(A, 5.0)},
            propensities=NaiveBayesPropensity().fit(LOG, mcar=np.tile(sample, n)),
            **options,
        )
        for n in (1, 100)
    )
    amounts = [1.0, 1 + 1e-7, 2.0]
    shifts, shifts_of_large = (
        sensitivity(each, max_weight=[], odds_error=amounts, constraint=constraint).shifts[:3]
        for each in (small, large)
    )
    risk = small.risk("a", metric="mae", estimator=estimator)

    for shift in shifts[:2]:
        limits = (shift.ci_low, shift.low, shift.high, shift.ci_high)
        expected = (risk.ci_low, risk.estimate, risk.estimate, risk.ci_high)
        assert limits == pytest.approx(expected, abs=1e-5)
    for shift, other in zip(shifts, shifts_of_large, strict=True):
        assert (shift.low, shift.high) == pytest.approx((other.low, other.high), rel=0.02)
        assert shift.ci_high - shift.high > 1.1 * (other.ci_high - other.high)
        assert shift.low - shift.ci_low > 1.1 * (other.low - other.ci_low)
    assert "limits include the error of propensities by NaiveBayesPropensity" in found_notes(small)


def found_notes(evaluation: Evaluation) -> tuple[str, ...]:
    return sensitivity(evaluation, max_weight=[], odds_error=[2]).notes


def test_refitted_halves_are_fitted_once_for_all_odds_errors() -> None:
    calls: list[int] = []

    def refit(rows: Any) -> Vector:
        calls.append(rows.size)
        return 0.5 * P.values[rows] * (1 + 0.01 * rows.size / len(LOG))

    halves = Replicates(model="refit", refit=refit, n_pairs=3)
    evaluation = judge(propensities=Propensities(P.values, halves), estimators=["ips", "snips"])
    n_fits = len(calls)
    found = sensitivity(evaluation, odds_error=[1, 1 + 1e-7, 2], max_weight=[])
    found.compare("a", "b", metric="mae", estimator="snips")
    first, second, third = (s for s in found.shifts if (s.model, s.estimator) == ("a", "snips"))

    assert len(calls) == n_fits == 6
    assert (first.ci_low, first.ci_high) == pytest.approx((second.ci_low, second.ci_high), abs=1e-5)
    assert third.ci_low < third.low
    assert third.high < third.ci_high


# Benchmarks


def test_the_odds_error_between_two_propensities() -> None:
    odds = P.values / (1 - P.values)
    factor = np.where(np.arange(len(LOG)) < 0.9 * len(LOG), 1.5, 1 / 4)
    other = odds * factor / (1 + odds * factor)

    assert odds_error_between(P, P, LOG) == 1
    assert odds_error_between(P, other, LOG, quantile=0.5) == pytest.approx(1.5)
    assert odds_error_between(other, P, LOG) == pytest.approx(4)
    assert odds_error_between([1.0, 1.0], [1.0, 0.5], LOG.take(np.arange(2))) == math.inf
    with pytest.raises(UsageError, match="quantile must be a number from 0 to 1"):
        odds_error_between(P, P, LOG, quantile=95)


def test_a_benchmark_is_shown_beside_the_verdict(result: Evaluation) -> None:
    found = sensitivity(result, benchmark={"leaving out genre": 1.37})
    robust = found.compare("a", "b", metric="mae", estimator="snips")

    assert str(robust).endswith("\nodds errors for comparison: leaving out genre 1.37")
    assert json.loads(robust.to_json())["benchmark"] == {"leaving out genre": 1.37}
    assert "odds errors for comparison: leaving out genre 1.37" in repr(found)
    with pytest.raises(UsageError, match="benchmark must be a list of finite numbers"):
        sensitivity(result, benchmark={"none": 0.5})


# The table in its forms


def test_the_table_as_a_frame_and_as_json(found: Sensitivity) -> None:
    frame = found.to_frame("pandas")
    parsed = json.loads(found.to_json())

    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 2 * len(WEIGHTED) * 6 == len(parsed["rows"])
    assert list(frame.columns) == list(parsed["rows"][0])
    assert frame["low"].tolist() == [row["low"] for row in parsed["rows"]]
    assert (parsed["level"], parsed["n_observed"]) == (0.95, len(LOG))


def test_repr_fits_a_page_and_html_escapes() -> None:
    shown = sensitivity(evaluate(LOG, {"<b>": A}, propensities=P, metrics=["mae"]))

    assert max(map(len, repr(shown).splitlines())) <= 80
    assert repr(shown).endswith(
        "95% intervals, clustered by user\n"
        "under an odds error the weights of all cells keep their sum\n"
        "naive uses no weights and does not change\n"
        "rows of ips: to_frame()"
    )
    assert "&lt;b&gt;" in shown._repr_html_()
    assert "<b>" not in shown._repr_html_()
    assert "<b>" not in shown.compare("<b>", "<b>", metric="mae", estimator="ips")._repr_html_()


def test_repr_shows_odds_errors_by_snips_first(found: Sensitivity) -> None:
    header, *lines = repr(found).splitlines()
    rows = [line.split() for line in lines[: len(lines) - len(found._footer())]]

    assert header.split()[2:4] == ["estimator", "change"]
    assert {row[2] for row in rows} == {"snips"}
    changes = [row[3] for row in rows]
    assert changes == sorted(changes, reverse=True)
    assert {*changes} == {"odds_error", "clip"}
    assert "reverse two models: compare(first, second, ...)" in lines[-1]


def test_a_comparison_as_a_frame(found: Sensitivity) -> None:
    frame = found.compare("a", "b", metric="mae", estimator="dr").to_frame("pandas")

    assert frame["model"].unique().tolist() == ["a - b"]
    assert frame["change"].tolist() == ["clip"] * 3 + ["odds_error"] * 3


def test_the_evaluation_keeps_references_and_its_json_is_as_before(result: Evaluation) -> None:
    assert result.inputs is not None
    assert result.inputs.cells.propensities is not None
    assert set(json.loads(result.to_json())) >= {
        "level",
        "intervals",
        "n_observed",
        "universe",
        "weights",
        "rows",
    }
    assert set(json.loads(result.to_json())["weights"]) == {
        *("n_observed", "effective_sample_size", "mass", "top_share", "n_cells", "n_touched"),
        "is_balanced",
        "shared_variance",
        "n_clipped",
        "fits_universe",
        "mass_z",
    }


# Errors


@dataclass(frozen=True)
class Median(Estimator):
    """An estimator of the caller's own."""

    name: str = "median"
    is_weighted: bool = True

    def estimate(self, deltas: Deltas, cells: ObservedCells) -> Estimate:
        return Estimate(np.median(deltas.value * cells.weight, axis=1), np.eye(len(deltas.value)))


def test_an_estimator_of_ones_own_is_clipped_only() -> None:
    found = sensitivity(judge(estimators=[Median(), "snips"]))

    assert {s.change for s in found.shifts if s.estimator == "median"} == {"clip"}
    assert "the worst case of median under an odds error is unknown: clipping only" in found.notes
    with pytest.raises(
        UsageError,
        match=r"the worst case of 'median' under an odds error is unknown\. Compare by 'ips'",
    ):
        found.compare("a", "b", metric="mae", estimator="median")


def test_what_cannot_be_asked_again(result: Evaluation) -> None:
    with pytest.raises(
        UsageError, match=r"needs an Evaluation, the result of evaluate\(\); got dict"
    ):
        sensitivity({})  # type: ignore[arg-type]
    with pytest.raises(
        UsageError, match=r"did not keep the cells it was computed from.*Run unskew.evaluate"
    ):
        sensitivity(replace(result, inputs=None))
    with pytest.raises(
        UsageError,
        match=r"already transformed by Shrink\(strength=5\)\. Evaluate without weight_transform",
    ):
        sensitivity(judge(weight_transform=Shrink(5)))
    with pytest.raises(
        UsageError,
        match=r"nothing to vary: no weights are used by naive\. Evaluate with estimators=",
    ):
        sensitivity(judge(estimators=["naive"]))
    with pytest.raises(
        UsageError, match=r"did not keep the cells it was computed from\. Run unskew.sensitivity"
    ):
        replace(sensitivity(result), inputs=None).compare("a", "b", metric="mae", estimator="ips")


@pytest.mark.parametrize("name", ["max_weight", "odds_error"])
@pytest.mark.parametrize("bad", [[0.5], [2, float("nan")], [math.inf], "two", ["2"], 0])
def test_amounts_are_finite_and_at_least_one(result: Evaluation, name: str, bad: Any) -> None:
    with pytest.raises(
        UsageError,
        match=rf"{name} must be a list of finite numbers of at least 1, such as \[2, 10\]; got",
    ):
        sensitivity(result, **{name: bad})


def test_amounts_come_in_order_each_once(result: Evaluation) -> None:
    odds_error: Any = np.array([2.0, 1.5])
    found = sensitivity(result, max_weight=[9, 3, 3], odds_error=odds_error)

    assert [s.amount for s in found.shifts[:4]] == [3, 9, 1.5, 2.0]
    with pytest.raises(
        UsageError, match="there is nothing to vary: max_weight and odds_error are empty"
    ):
        sensitivity(result, max_weight=[], odds_error=[])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("c", "b", "mae", "ips"), "unknown model of this sensitivity 'c'; valid names are: a, b"),
        (("a", "b", "mse", "ips"), "unknown metric of this sensitivity 'mse'"),
        (("a", "b", "mae", "naive"), "unknown estimator of this sensitivity 'naive'"),
    ],
)
def test_what_was_not_evaluated_cannot_be_compared(
    found: Sensitivity, asked: tuple[str, ...], message: str
) -> None:
    first, second, metric, estimator = asked
    with pytest.raises(UnknownNameError, match=message):
        found.compare(first, second, metric=metric, estimator=estimator)
