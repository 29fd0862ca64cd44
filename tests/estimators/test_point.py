"""Unbiasedness, bias and double robustness, proved by enumerating every observation pattern."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from enumeration import expectation, variance
from unskew.data.propensities import Propensities
from unskew.errors import UsageError
from unskew.estimators.observed import Clusters
from unskew.estimators.point import ips, self_normalized
from unskew.estimators.sums import Sums
from unskew.theory import estimator_bias, ips_bias, ips_variance
from unskew.types import Vector

N_CELLS = 6
losses = arrays(np.float64, N_CELLS, elements=st.floats(-100, 100))
probabilities = arrays(np.float64, N_CELLS, elements=st.floats(0.01, 1))
USERS = np.array([0, 0, 0, 1, 1, 1], dtype=np.int32)


def ips_of(delta: Vector, p: Vector) -> float:
    return float(ips(Sums.of(delta, Propensities(p)), n_cells=N_CELLS).value[0])


def dr_of(
    delta: Vector, p: Vector, imputed: Vector, seen: np.ndarray, weight: Vector | None = None
) -> float:
    known = np.array([[imputed.sum()]])
    sums = Sums.of(
        (delta - imputed)[seen], Propensities(p[seen]), weight=weight, imputed_by_cluster=known
    )
    return float(ips(sums, n_cells=N_CELLS).value[0])


@given(delta=losses, p=probabilities)
def test_ips_is_unbiased_for_any_loss_and_any_propensities(delta: Vector, p: Vector) -> None:
    mean = expectation(p, lambda seen: ips_of(delta[seen], p[seen]))

    assert mean == pytest.approx(delta.mean(), abs=1e-9)


@given(delta=losses, true=probabilities, assumed=probabilities)
def test_bias_under_wrong_propensities_is_lemma_5_1(
    delta: Vector, true: Vector, assumed: Vector
) -> None:
    mean = expectation(true, lambda seen: ips_of(delta[seen], assumed[seen]))

    assert delta.mean() - mean == pytest.approx(
        ips_bias(delta, true=true, assumed=assumed), abs=1e-8
    )


@given(delta=losses, p=probabilities, imputed=losses)
def test_doubly_robust_is_unbiased_when_the_propensities_are_right(
    delta: Vector, p: Vector, imputed: Vector
) -> None:
    mean = expectation(p, lambda seen: dr_of(delta, p, imputed, seen))

    assert mean == pytest.approx(delta.mean(), abs=1e-8)


@given(delta=losses, true=probabilities, assumed=probabilities)
def test_doubly_robust_is_exact_when_the_imputation_is_right(
    delta: Vector, true: Vector, assumed: Vector
) -> None:
    mean = expectation(true, lambda seen: dr_of(delta, assumed, delta, seen))

    assert mean == pytest.approx(delta.mean(), abs=1e-9)
    assert variance(true, lambda seen: dr_of(delta, assumed, delta, seen)) == pytest.approx(
        0.0, abs=1e-12
    )


@given(delta=losses, true=probabilities, assumed=probabilities, imputed=losses)
def test_doubly_robust_bias_is_a_product_of_two_errors(
    delta: Vector, true: Vector, assumed: Vector, imputed: Vector
) -> None:
    mean = expectation(true, lambda seen: dr_of(delta, assumed, imputed, seen))
    product = estimator_bias(delta, true=true, weight=1 / assumed, imputed=imputed)

    assert delta.mean() - mean == pytest.approx(product, abs=1e-7)


@given(delta=losses, p=probabilities)
def test_the_standard_error_of_ips_is_unbiased_for_its_variance(delta: Vector, p: Vector) -> None:
    estimated = expectation(
        p,
        lambda seen: float(
            ips(Sums.of(delta[seen], Propensities(p[seen])), n_cells=N_CELLS).covariance[0, 0]
        ),
    )

    assert estimated == pytest.approx(ips_variance(delta, p), rel=1e-9, abs=1e-9)


@given(delta=losses, imputed=losses, p=probabilities)
def test_the_standard_error_of_dr_is_unbiased_for_its_variance(
    delta: Vector, imputed: Vector, p: Vector
) -> None:
    estimated = expectation(
        p,
        lambda seen: float(
            ips(
                Sums.of((delta - imputed)[seen], Propensities(p[seen])), n_cells=N_CELLS
            ).covariance[0, 0]
        ),
    )

    assert estimated == pytest.approx(
        variance(p, lambda seen: dr_of(delta, p, imputed, seen)), rel=1e-7, abs=1e-7
    )


@given(delta=losses, p=st.floats(0.05, 1))
def test_snips_is_naive_at_constant_propensity(delta: Vector, p: float) -> None:
    snips = self_normalized(Sums.of(delta, Propensities(np.full(N_CELLS, p))))

    assert snips.value == pytest.approx(self_normalized(Sums.of(delta)).value, abs=1e-9)


def test_snips_by_hand() -> None:
    estimate = self_normalized(Sums.of(np.array([1.0, 4.0]), Propensities(np.array([0.5, 0.25]))))

    risk = (1 * 2 + 4 * 4) / (2 + 4)
    variance_by_hand = ((1 - risk) ** 2 * 4 * 0.5 + (4 - risk) ** 2 * 16 * 0.75) / 36
    assert estimate.value[0] == pytest.approx(risk)
    assert estimate.covariance[0, 0] == pytest.approx(variance_by_hand)


def test_clustered_ips_is_the_variance_of_user_totals() -> None:
    delta, p = np.array([1.0, 2, 3, 4]), np.array([0.5, 0.25, 0.5, 1.0])
    users = Clusters(np.array([0, 0, 1, 3], dtype=np.int32), n=5)

    estimate = ips(Sums.of(delta, Propensities(p), clusters=users), n_cells=20)

    totals = np.array([1 / 0.5 + 2 / 0.25, 3 / 0.5, 0, 4, 0]) / 20
    assert estimate.value[0] == pytest.approx(totals.sum())
    assert estimate.covariance[0, 0] == pytest.approx(5 / 4 * ((totals - totals.mean()) ** 2).sum())


@settings(max_examples=50)
@given(data=st.data())
def test_clustered_snips_agrees_with_weighted_least_squares(data: st.DataObject) -> None:
    """SNIPS is WLS on a constant; the factors of statsmodels are U/(U-1) and (n-1)/(n-1)."""
    import statsmodels.api as sm

    seed = data.draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    delta, p = rng.normal(size=40), rng.uniform(0.05, 1, 40)
    code = np.append(np.arange(7), rng.integers(0, 7, 33)).astype(np.int32)
    fit = sm.WLS(delta, np.ones(40), weights=1 / p).fit(
        cov_type="cluster", cov_kwds={"groups": code}
    )

    estimate = self_normalized(Sums.of(delta, Propensities(p), clusters=Clusters(code, 7)))

    assert estimate.value[0] == pytest.approx(fit.params[0])
    assert np.sqrt(estimate.covariance[0, 0]) == pytest.approx(fit.bse[0])


def test_weights_that_add_up_to_zero_are_refused() -> None:
    with pytest.raises(UsageError, match="every cell that this metric counts has weight 0"):
        self_normalized(Sums.of(np.ones(3), weight=np.zeros(3)))
