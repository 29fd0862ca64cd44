from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

from unskew import theory
from unskew.diagnostics.cells import CellPropensities
from unskew.diagnostics.fit import (
    Calibration,
    PropensityAccuracy,
    PropensityFit,
    equal_count_bins,
    fit_logistic_line,
)
from unskew.errors import BadPropensityError
from unskew.types import Vector

# Scores of the forecast

FIT_RNG = np.random.default_rng(0)
FIT_P = FIT_RNG.beta(0.6, 6, 3000)
FIT_SEEN = FIT_RNG.random(3000) < FIT_P
FIT = PropensityFit.of(
    CellPropensities(FIT_P[FIT_SEEN], FIT_P[~FIT_SEEN], 1.0, is_sample=False), floor=0.001
)


def test_scores_are_scikit_learns() -> None:
    assert FIT.log_loss == pytest.approx(log_loss(FIT_SEEN, FIT_P))
    assert FIT.brier == pytest.approx(brier_score_loss(FIT_SEEN, FIT_P))
    assert (FIT.log_loss_error, FIT.brier_error, FIT.sum_of_propensities_error) == (
        None,
        None,
        None,
    )


def test_mass_and_reach_by_their_definitions() -> None:
    assert FIT.sum_of_propensities == pytest.approx(FIT_P.sum())
    assert FIT.mass_ratio == pytest.approx(FIT_P.sum() / FIT_SEEN.sum())
    assert FIT.share_below == pytest.approx((FIT_P < 0.001).mean())
    assert FIT.smallest == FIT_P.min()


def test_a_sample_weighs_unobserved_cells_as_scikit_learn_does() -> None:
    weight = np.where(FIT_SEEN, 1.0, 7.5)
    result = PropensityFit.of(
        CellPropensities(FIT_P[FIT_SEEN], FIT_P[~FIT_SEEN], 7.5, is_sample=True), floor=0.001
    )

    assert result.log_loss == pytest.approx(
        log_loss(FIT_SEEN, FIT_P, sample_weight=weight), rel=1e-3
    )  # n_cells is a whole number
    assert result.brier == pytest.approx(
        brier_score_loss(FIT_SEEN, FIT_P, sample_weight=weight), rel=1e-3
    )
    assert result.log_loss_error is not None
    assert result.log_loss_error > 0


def test_a_certain_cell_that_was_not_observed() -> None:
    result = PropensityFit.of(
        CellPropensities(np.array([0.5, 1.0]), np.array([0.0, 1.0]), 1.0, is_sample=False),
        floor=0.001,
    )

    assert result.log_loss == np.inf
    said = " ".join(map(str, result.warnings()))
    assert "1 of 2 unobserved cells that were examined have a propensity of 1" in said


def test_too_much_and_too_little_mass() -> None:
    doubled = PropensityFit.of(
        CellPropensities(np.full(10, 0.2), np.full(90, 0.2), 1.0, is_sample=False), floor=0.01
    )
    (warning,) = doubled.warnings()

    assert str(warning).startswith(
        "the propensities of all cells add up to 20, but 10 cells were observed (+100%)"
    )


def test_cells_below_the_floor() -> None:
    result = PropensityFit.of(
        CellPropensities(
            np.full(10, 0.9), np.r_[np.full(10, 0.1), np.full(5, 1e-4)], 1.0, is_sample=False
        ),
        floor=0.01,
    )
    (warning,) = result.warnings()

    assert str(warning).startswith("20.0% of all cells have a propensity below 0.01")
    assert result.smallest == 1e-4


# Calibration

RNG = np.random.default_rng(0)
P = RNG.beta(0.6, 4, 4000)
SEEN = RNG.random(4000) < special.expit(0.4 + 0.7 * special.logit(P))
CELLS = CellPropensities(P[SEEN], P[~SEEN], 1.0, is_sample=False)


def by_sklearn(p: Vector, seen: Vector, weight: Vector) -> tuple[float, float]:
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(
        special.logit(p)[:, None], seen, sample_weight=weight
    )
    return float(model.intercept_[0]), float(model.coef_[0, 0])


def test_slope_and_intercept_are_scikit_learns() -> None:
    result = Calibration.of(CELLS)

    assert (result.intercept, result.slope) == pytest.approx(
        by_sklearn(P, SEEN, np.ones(P.size)), rel=1e-4
    )
    assert result.slope == pytest.approx(0.7, abs=0.1)


def test_weights_count_as_repetitions_do() -> None:
    weight = RNG.integers(1, 4, P.size).astype(np.float64)
    repeated = np.repeat(np.arange(P.size), weight.astype(int))

    result = fit_logistic_line(P, SEEN.astype(np.float64), weight)
    assert result == pytest.approx(
        fit_logistic_line(P[repeated], SEEN[repeated].astype(np.float64), np.ones(repeated.size))
    )
    assert result == pytest.approx(by_sklearn(P, SEEN, weight), rel=1e-4)


def test_right_propensities_have_slope_one_and_intercept_zero() -> None:
    p = np.repeat([0.1, 0.5, 0.8], 1000)
    seen = np.tile(np.arange(1000) / 1000, 3) < p
    result = Calibration.of(CellPropensities(p[seen], p[~seen], 1.0, is_sample=False))

    assert (result.slope, result.intercept, result.error) == pytest.approx((1, 0, 0), abs=1e-9)
    assert list(result.warnings()) == []


@pytest.mark.parametrize(
    ("power", "fault"),
    [(3.0, "0.33 and should be 1: the propensities vary too much"), (0.3, "vary too little")],
)
def test_a_slope_far_from_one_is_named(power: float, fault: str) -> None:
    p = np.repeat([0.1, 0.5, 0.8], 1000)
    seen = np.tile(np.arange(1000) / 1000, 3) < p
    wrong = special.expit(power * special.logit(p))
    (warning,) = Calibration.of(
        CellPropensities(wrong[seen], wrong[~seen], 1.0, is_sample=False)
    ).warnings()

    assert fault in str(warning)


@pytest.mark.parametrize(
    ("p", "seen"),
    [
        ([0.2, 0.2, 0.2], [1, 0, 0]),
        ([0.9, 0.8, 0.1], [1, 1, 0]),
        ([0.9, 0.8], [1, 1]),
        ([1.0, 0.0], [1, 0]),
    ],
    ids=["one value", "separated", "all observed", "certain"],
)
def test_no_line_is_best(p: list[float], seen: list[float]) -> None:
    assert fit_logistic_line(np.array(p), np.array(seen, dtype=np.float64), np.ones(len(p))) is None


def test_certain_cells_are_left_out_of_the_line() -> None:
    line = fit_logistic_line(P, SEEN.astype(np.float64), np.ones(P.size))
    p, seen = np.append(P, [0.0, 1.0]), np.append(SEEN, [False, True]).astype(np.float64)

    assert fit_logistic_line(p, seen, np.ones(p.size)) == line


def test_a_curve_by_hand() -> None:
    result = Calibration.of(
        CellPropensities(
            np.array([0.1, 0.9, 0.9]), np.array([0.1, 0.1, 0.1, 0.9]), 1.0, is_sample=False
        )
    )

    np.testing.assert_allclose(result.predicted, [0.1, 0.9])
    np.testing.assert_allclose(result.observed, [1 / 4, 2 / 3])
    np.testing.assert_allclose(result.count, [4, 3])
    assert result.error == pytest.approx((4 * 0.15 + 3 * (0.9 - 2 / 3)) / 7)


def test_distinct_propensities_fall_into_ten_equal_bins() -> None:
    result = Calibration.of(CELLS)

    np.testing.assert_allclose(result.count, 400)
    for number, part in enumerate(np.array_split(np.argsort(P), 10)):
        assert result.predicted[number] == pytest.approx(P[part].mean())
        assert result.observed[number] == pytest.approx(SEEN[part].mean())


@given(
    values=st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.7]), min_size=1, max_size=40),
    n_bins=st.integers(1, 12),
)
def test_equal_values_stay_together_and_bins_rise(values: list[float], n_bins: int) -> None:
    p = np.array(values)
    bins = equal_count_bins(p, np.ones(p.size), n_bins)

    assert sorted(set(bins.tolist())) == list(range(bins.max() + 1))
    assert bins.max() < n_bins
    assert all(len(set(bins[p == value])) == 1 for value in set(values))
    assert (np.diff(bins[np.argsort(p)]) >= 0).all()


# Against true propensities

TRUE_RNG = np.random.default_rng(0)
TRUE = TRUE_RNG.uniform(0.1, 0.9, 20_000)
ASSUMED = np.clip(TRUE * TRUE_RNG.uniform(0.5, 1.5, 20_000), 0, 1)
IS_OBSERVED = TRUE_RNG.random(20_000) < TRUE


def split(p: np.ndarray, multiplicity: float = 1.0) -> CellPropensities:
    return CellPropensities(
        p[IS_OBSERVED], p[~IS_OBSERVED], multiplicity, is_sample=multiplicity != 1
    )


def test_over_all_cells_by_definition() -> None:
    result = PropensityAccuracy.over_cells(split(ASSUMED), split(TRUE))

    assert result.relative_error == pytest.approx(np.mean(np.abs(ASSUMED - TRUE) / TRUE))
    assert result.bias_bound == pytest.approx(theory.bias_bound(true=TRUE, assumed=ASSUMED))
    assert not result.is_estimated


def test_the_bound_holds_for_any_loss_in_0_1() -> None:
    bound = PropensityAccuracy.over_cells(split(ASSUMED), split(TRUE)).bias_bound
    worst = (TRUE > ASSUMED).astype(float)

    for delta in (worst, 1 - worst, TRUE_RNG.random(20_000)):
        assert abs(theory.ips_bias(delta, true=TRUE, assumed=ASSUMED)) <= bound


def test_from_the_log_alone_it_is_estimated() -> None:
    assumed = np.sqrt(TRUE)  # more wrong where cells are rarer
    exact = PropensityAccuracy.over_cells(split(assumed), split(TRUE))
    result = PropensityAccuracy.over_log(assumed[IS_OBSERVED], TRUE[IS_OBSERVED])

    assert result.is_estimated
    assert result.relative_error == pytest.approx(exact.relative_error, rel=0.05)
    assert result.bias_bound == pytest.approx(exact.bias_bound, rel=0.05)


def test_a_propensity_of_zero_has_no_bound() -> None:
    zeros = np.where(IS_OBSERVED, ASSUMED, 0.0)

    assert math.isinf(PropensityAccuracy.over_cells(split(zeros), split(TRUE)).bias_bound)


def test_true_propensities_of_zero_are_refused() -> None:
    with pytest.raises(BadPropensityError, match=r"values of true are outside \(0, 1\]"):
        PropensityAccuracy.over_cells(split(ASSUMED), split(np.where(IS_OBSERVED, TRUE, 0.0)))
