from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from sklearn.linear_model import LogisticRegression

from unskew.diagnostics.calibration import Calibration, equal_count_bins, logistic_line
from unskew.diagnostics.cells import Chances
from unskew.types import Vector

RNG = np.random.default_rng(0)
P = RNG.beta(0.6, 4, 4000)
SEEN = RNG.random(4000) < special.expit(0.4 + 0.7 * special.logit(P))
CHANCES = Chances(P[SEEN], P[~SEEN], 1.0, is_sample=False)


def by_sklearn(p: Vector, seen: Vector, weight: Vector) -> tuple[float, float]:
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(
        special.logit(p)[:, None], seen, sample_weight=weight
    )
    return float(model.intercept_[0]), float(model.coef_[0, 0])


def test_slope_and_intercept_are_scikit_learns() -> None:
    found = Calibration.of(CHANCES)

    assert (found.intercept, found.slope) == pytest.approx(
        by_sklearn(P, SEEN, np.ones(P.size)), rel=1e-4
    )
    assert found.slope == pytest.approx(0.7, abs=0.1)


def test_weights_count_as_repetitions_do() -> None:
    weight = RNG.integers(1, 4, P.size).astype(np.float64)
    repeated = np.repeat(np.arange(P.size), weight.astype(int))

    found = logistic_line(P, SEEN.astype(np.float64), weight)
    assert found == pytest.approx(
        logistic_line(P[repeated], SEEN[repeated].astype(np.float64), np.ones(repeated.size))
    )
    assert found == pytest.approx(by_sklearn(P, SEEN, weight), rel=1e-4)


def test_right_propensities_have_slope_one_and_intercept_zero() -> None:
    p = np.repeat([0.1, 0.5, 0.8], 1000)
    seen = np.tile(np.arange(1000) / 1000, 3) < p
    found = Calibration.of(Chances(p[seen], p[~seen], 1.0, is_sample=False))

    assert (found.slope, found.intercept, found.error) == pytest.approx((1, 0, 0), abs=1e-9)
    assert list(found.warning_texts()) == []


@pytest.mark.parametrize(
    ("power", "fault"),
    [(3.0, "0.33 where 1 is right: the propensities are too extreme"), (0.3, "too much alike")],
)
def test_a_slope_far_from_one_is_named(power: float, fault: str) -> None:
    p = np.repeat([0.1, 0.5, 0.8], 1000)
    seen = np.tile(np.arange(1000) / 1000, 3) < p
    wrong = special.expit(power * special.logit(p))
    (complaint,) = Calibration.of(
        Chances(wrong[seen], wrong[~seen], 1.0, is_sample=False)
    ).warning_texts()

    assert fault in complaint


@pytest.mark.parametrize(
    ("p", "seen"),
    [
        ([0.2, 0.2, 0.2], [1, 0, 0]),
        ([0.9, 0.8, 0.1], [1, 1, 0]),
        ([0.9, 0.8], [1, 1]),
        ([1.0, 0.0], [1, 0]),
    ],
    ids=["one value", "told apart", "all observed", "certain"],
)
def test_no_line_is_best(p: list[float], seen: list[float]) -> None:
    assert logistic_line(np.array(p), np.array(seen, dtype=np.float64), np.ones(len(p))) is None


def test_certain_cells_are_left_out_of_the_line() -> None:
    line = logistic_line(P, SEEN.astype(np.float64), np.ones(P.size))
    p, seen = np.append(P, [0.0, 1.0]), np.append(SEEN, [False, True]).astype(np.float64)

    assert logistic_line(p, seen, np.ones(p.size)) == line


def test_a_curve_by_hand() -> None:
    found = Calibration.of(
        Chances(np.array([0.1, 0.9, 0.9]), np.array([0.1, 0.1, 0.1, 0.9]), 1.0, is_sample=False)
    )

    np.testing.assert_allclose(found.predicted, [0.1, 0.9])
    np.testing.assert_allclose(found.observed, [1 / 4, 2 / 3])
    np.testing.assert_allclose(found.count, [4, 3])
    assert found.error == pytest.approx((4 * 0.15 + 3 * (0.9 - 2 / 3)) / 7)


def test_distinct_propensities_fall_into_ten_equal_bins() -> None:
    found = Calibration.of(CHANCES)

    np.testing.assert_allclose(found.count, 400)
    for place, part in enumerate(np.array_split(np.argsort(P), 10)):
        assert found.predicted[place] == pytest.approx(P[part].mean())
        assert found.observed[place] == pytest.approx(SEEN[part].mean())


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
