from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from enumeration import Cells, Pattern, probability_that
from unskew.errors import BadPropensityError, UsageError
from unskew.theory import bias_bound, erm_bound, erm_bound_estimated, ips_bias, tail_bound

SHAPE = (2, 3)
ROUNDING = 1e-9
losses = arrays(np.float64, SHAPE, elements=st.floats(-5, 5))
probabilities = arrays(np.float64, SHAPE, elements=st.floats(0.05, 1))
hypotheses = arrays(np.float64, (3, *SHAPE), elements=st.floats(0, 1))
failures = st.floats(0.05, 0.95)


def ips(delta: Cells, assumed: Cells, seen: Pattern) -> float:
    """Eq. (10)."""
    return float(np.sum((delta / assumed)[seen]) / delta.size)


def chosen(hypothesis_deltas: Cells, assumed: Cells, seen: Pattern) -> tuple[float, float]:
    """Eq. (12): the true risk and the IPS risk of the hypothesis with the least IPS risk."""
    risks = [(ips(delta, assumed, seen), float(delta.mean())) for delta in hypothesis_deltas]
    empirical, true_risk = min(risks, key=lambda risk: risk[0])
    return true_risk, empirical


def test_tail_bound_by_hand() -> None:
    bound = tail_bound([[3.0, 1.0], [2.0, 9.0]], [[0.5, 0.25], [0.2, 1.0]], failure_probability=0.1)

    assert bound == pytest.approx(math.sqrt(math.log(20) / 2 * (36 + 16 + 100)) / 4)


@given(delta=losses, p=probabilities, eta=failures)
@example(delta=np.ones(SHAPE), p=np.ones(SHAPE), eta=0.5)
def test_ips_leaves_the_tail_bound_with_at_most_the_stated_probability(
    delta: Cells, p: Cells, eta: float
) -> None:
    bound = tail_bound(delta, p, failure_probability=eta)

    assert (
        probability_that(p, lambda seen: abs(ips(delta, p, seen) - delta.mean()) > bound + ROUNDING)
        <= eta + ROUNDING
    )


@given(
    p=st.floats(0.01, 0.99), n_users=st.integers(1, 30), n_items=st.integers(1, 30), eta=failures
)
def test_for_uniform_propensities_the_tail_bound_is_of_order_one_over_p_root_cells(
    p: float, n_users: int, n_items: int, eta: float
) -> None:
    bound = tail_bound(
        np.ones((n_users, n_items)), np.full((n_users, n_items), p), failure_probability=eta
    )

    assert bound * p * math.sqrt(n_users * n_items) == pytest.approx(
        math.sqrt(math.log(2 / eta) / 2)
    )


def test_uneven_propensities_with_the_same_expected_count_have_the_larger_tail_bound() -> None:
    assert tail_bound(np.ones(4), [0.1, 0.3, 0.6, 0.6]) > tail_bound(np.ones(4), np.full(4, 0.4))


def test_erm_bound_by_hand() -> None:
    bound = erm_bound(0.7, [[0.5, 0.25]], max_delta=4.0, n_hypotheses=10, failure_probability=0.2)

    assert bound == pytest.approx(
        0.7 + 4 / 2 * math.sqrt(math.log(2 * 10 / 0.2) / 2) * math.sqrt(4 + 16)
    )


def test_erm_bound_estimated_by_hand() -> None:
    bound = erm_bound_estimated(
        0.7,
        true=[[0.5, 0.5]],
        assumed=[[0.25, 1.0]],
        max_delta=4.0,
        n_hypotheses=10,
        failure_probability=0.2,
    )

    assert bound == pytest.approx(
        0.7 + 4 / 2 * (1 + 0.5) + 4 / 2 * math.sqrt(math.log(2 * 10 / 0.2) / 2) * math.sqrt(16 + 1)
    )


@given(deltas=hypotheses, p=probabilities, eta=failures)
def test_the_risk_of_the_minimiser_exceeds_the_erm_bound_with_at_most_the_stated_probability(
    deltas: Cells, p: Cells, eta: float
) -> None:
    def fails(seen: Pattern) -> bool:
        risk, empirical = chosen(deltas, p, seen)
        bound = erm_bound(
            empirical, p, max_delta=1.0, n_hypotheses=len(deltas), failure_probability=eta
        )
        return risk > bound + ROUNDING

    assert probability_that(p, fails) <= eta + ROUNDING


@given(deltas=hypotheses, true=probabilities, assumed=probabilities, eta=failures)
@example(deltas=np.ones((3, *SHAPE)), true=np.full(SHAPE, 0.05), assumed=np.ones(SHAPE), eta=0.5)
def test_the_estimated_bound_keeps_its_promise_under_wrong_propensities(
    deltas: Cells, true: Cells, assumed: Cells, eta: float
) -> None:
    def fails(seen: Pattern) -> bool:
        risk, empirical = chosen(deltas, assumed, seen)
        bound = erm_bound_estimated(
            empirical,
            true=true,
            assumed=assumed,
            max_delta=1.0,
            n_hypotheses=len(deltas),
            failure_probability=eta,
        )
        return risk > bound + ROUNDING

    assert probability_that(true, fails) <= eta + ROUNDING


@given(
    p=probabilities,
    risk=st.floats(0, 5),
    max_delta=st.floats(0, 5),
    n_hypotheses=st.integers(1, 10**6),
    eta=failures,
)
def test_theorem_5_2_is_theorem_4_2_when_the_assumed_propensities_are_true(
    p: Cells, risk: float, max_delta: float, n_hypotheses: int, eta: float
) -> None:
    rest: dict[str, Any] = {
        "max_delta": max_delta,
        "n_hypotheses": n_hypotheses,
        "failure_probability": eta,
    }

    assert erm_bound_estimated(risk, true=p, assumed=p, **rest) == erm_bound(risk, p, **rest)


@given(p=arrays(np.float64, SHAPE, elements=st.floats(0.05, 0.99)), eta=failures)
def test_for_one_hypothesis_with_the_largest_loss_everywhere_the_erm_bound_is_the_tail_bound(
    p: Cells, eta: float
) -> None:
    widest = tail_bound(np.full(SHAPE, 4.0), p, failure_probability=eta)

    assert erm_bound(
        0.0, p, max_delta=4.0, n_hypotheses=1, failure_probability=eta
    ) == pytest.approx(widest)


def test_bias_bound_by_hand() -> None:
    assert bias_bound(true=[0.2, 0.5], assumed=[0.4, 0.25], max_delta=3) == pytest.approx(
        3 * (0.5 + 1) / 2
    )
    assert bias_bound(true=[0.2, 0.5], assumed=[0.4, 0.25], weight=[3, 1]) == pytest.approx(
        (3 * 0.5 + 1) / 4
    )


@given(
    delta=arrays(np.float64, SHAPE, elements=st.floats(0, 2)), p=probabilities, p_hat=probabilities
)
def test_no_loss_is_more_biased_than_the_bias_bound(delta: Cells, p: Cells, p_hat: Cells) -> None:
    assert (
        abs(ips_bias(delta, true=p, assumed=p_hat))
        <= bias_bound(true=p, assumed=p_hat, max_delta=2) + ROUNDING
    )


@given(p=probabilities, p_hat=probabilities)
def test_theorem_5_2_is_the_bias_bound_beside_the_bound_for_right_propensities(
    p: Cells, p_hat: Cells
) -> None:
    rest: dict[str, Any] = {"max_delta": 2.0, "n_hypotheses": 7}
    beside = erm_bound(1.0, p_hat, **rest) + bias_bound(true=p, assumed=p_hat, max_delta=2)

    assert erm_bound_estimated(1.0, true=p, assumed=p_hat, **rest) == pytest.approx(beside)


def test_raising_a_small_assumed_propensity_can_lower_the_estimated_bound() -> None:
    true = np.full(100, 0.5)
    true[0] = 0.001
    raised = np.maximum(true, 0.1)

    assert erm_bound_estimated(
        0.0, true=true, assumed=raised, max_delta=1, n_hypotheses=10
    ) < erm_bound(0.0, true, max_delta=1, n_hypotheses=10)


def test_the_number_of_hypotheses_may_be_larger_than_any_float() -> None:
    bound = erm_bound(0.0, [0.5], max_delta=1.0, n_hypotheses=2**5000)

    assert bound == pytest.approx(2 * math.sqrt((5000 * math.log(2) + math.log(40)) / 2))


@pytest.mark.parametrize("eta", [0.0, 1.0, -0.1, math.nan, None])
def test_failure_probability_must_be_a_proper_probability(eta: Any) -> None:
    with pytest.raises(
        UsageError,
        match=f"failure_probability must be a finite number, above 0 and below 1; got {eta}",
    ):
        tail_bound([1.0], [0.5], failure_probability=eta)


@pytest.mark.parametrize("max_delta", [-1.0, math.nan, math.inf, None])
def test_max_delta_must_be_a_number_of_at_least_zero(max_delta: Any) -> None:
    with pytest.raises(
        UsageError, match=f"max_delta must be a finite number, at least 0.*got {max_delta}"
    ):
        erm_bound(0.0, [0.5], max_delta=max_delta, n_hypotheses=1)


def test_there_must_be_a_hypothesis() -> None:
    with pytest.raises(UsageError, match="n_hypotheses must be at least 1; got 0"):
        erm_bound(0.0, [0.5], max_delta=1.0, n_hypotheses=0)
    with pytest.raises(UsageError, match="n_hypotheses must be at least 1; got 'many'"):
        erm_bound(0.0, [0.5], max_delta=1.0, n_hypotheses="many")  # type: ignore[arg-type]


def test_the_empirical_risk_must_be_finite() -> None:
    with pytest.raises(UsageError, match="empirical_risk must be a finite number; got nan"):
        erm_bound(math.nan, [0.5], max_delta=1.0, n_hypotheses=1)
    with pytest.raises(UsageError, match="empirical_risk must be a finite number; got 'low'"):
        erm_bound("low", [0.5], max_delta=1.0, n_hypotheses=1)  # type: ignore[arg-type]


def test_bad_propensities_are_named_as_the_caller_named_them() -> None:
    with pytest.raises(
        BadPropensityError,
        match=r"1 of 2 values of propensities are outside \(0, 1\]; .* 0.0 at cell \(1,\)",
    ):
        erm_bound(0.0, [0.5, 0.0], max_delta=1.0, n_hypotheses=1)
    with pytest.raises(
        BadPropensityError,
        match=r"1 of 1 values of assumed are outside \(0, 1\]; the first is 2.0 at cell \(0,\)",
    ):
        erm_bound_estimated(0.0, true=[0.5], assumed=[2.0], max_delta=1.0, n_hypotheses=1)


def test_shapes_must_agree() -> None:
    with pytest.raises(
        UsageError, match=r"delta has shape \(2,\), but propensities has shape \(2, 1\)"
    ):
        tail_bound([1.0, 1.0], [[0.5], [0.5]])
    with pytest.raises(UsageError, match=r"true has shape \(2,\), but assumed has shape \(1,\)"):
        erm_bound_estimated(0.0, true=[0.5, 0.5], assumed=[0.5], max_delta=1.0, n_hypotheses=1)
    with pytest.raises(UsageError, match=r"true has shape \(2,\), but weight has shape \(1,\)"):
        bias_bound(true=[0.5, 0.5], assumed=[0.5, 0.5], weight=[1.0])
