from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from enumeration import Cells, expectation, variance
from unskew.errors import BadPropensityError, UsageError
from unskew.theory import estimator_bias, ips_bias, ips_variance

SHAPE = (2, 2)
losses = arrays(np.float64, SHAPE, elements=st.floats(-5, 5))
probabilities = arrays(np.float64, SHAPE, elements=st.floats(0.05, 1))
weights = arrays(np.float64, SHAPE, elements=st.floats(0, 20))


def estimate(delta: Cells, weight: Cells, imputed: Cells | float = 0.0) -> Callable[[Cells], float]:
    """Eq. (10) with any weight, and with the losses of unobserved cells imputed."""
    return lambda seen: float(np.mean(imputed + np.where(seen, weight * (delta - imputed), 0.0)))


def test_bias_by_hand() -> None:
    assert ips_bias([[4.0, 1.0]], true=[[0.5, 0.1]], assumed=[[1.0, 0.2]]) == pytest.approx(
        (4 * 0.5 + 1 * 0.5) / 2
    )


def test_bias_is_positive_where_propensities_are_assumed_too_high() -> None:
    assert ips_bias([1.0, 1.0], true=[0.2, 0.2], assumed=[0.4, 0.4]) > 0
    assert ips_bias([1.0, 1.0], true=[0.4, 0.4], assumed=[0.2, 0.2]) < 0


@given(delta=losses, true=probabilities, assumed=probabilities)
def test_ips_bias_is_truth_minus_expectation(delta: Cells, true: Cells, assumed: Cells) -> None:
    mean = expectation(true, estimate(delta, 1 / assumed))

    assert ips_bias(delta, true=true, assumed=assumed) == pytest.approx(
        delta.mean() - mean, abs=1e-9
    )


@given(delta=losses, true=probabilities)
def test_ips_with_the_true_propensities_has_no_bias(delta: Cells, true: Cells) -> None:
    assert ips_bias(delta, true=true, assumed=true) == pytest.approx(0.0, abs=1e-12)


@given(delta=losses, true=probabilities, weight=weights, imputed=losses)
def test_estimator_bias_is_truth_minus_expectation(
    delta: Cells, true: Cells, weight: Cells, imputed: Cells
) -> None:
    mean = expectation(true, estimate(delta, weight, imputed))

    assert estimator_bias(delta, true=true, weight=weight, imputed=imputed) == pytest.approx(
        delta.mean() - mean, abs=1e-9
    )


@given(delta=losses, true=probabilities, weight=weights)
def test_right_imputation_leaves_no_bias_whatever_the_weights(
    delta: Cells, true: Cells, weight: Cells
) -> None:
    assert estimator_bias(delta, true=true, weight=weight, imputed=delta) == 0.0


@given(delta=losses, true=probabilities, cap=st.floats(1, 20))
def test_bias_of_clipping_is_what_the_cap_cuts_off(delta: Cells, true: Cells, cap: float) -> None:
    bias = estimator_bias(delta, true=true, weight=np.minimum(1 / true, cap))

    assert bias == pytest.approx(np.mean(delta * np.maximum(1 - true * cap, 0)), abs=1e-9)


def test_one_number_imputes_every_cell() -> None:
    delta, true, weight = np.array([1.0, 2.0]), np.array([0.5, 0.5]), np.array([1.0, 1.0])

    one = estimator_bias(delta, true=true, weight=weight, imputed=3.0)

    assert one == estimator_bias(delta, true=true, weight=weight, imputed=[3.0, 3.0])


@given(delta=losses, p=probabilities)
def test_ips_variance_is_the_variance_over_all_patterns(delta: Cells, p: Cells) -> None:
    assert ips_variance(delta, p) == pytest.approx(variance(p, estimate(delta, 1 / p)), abs=1e-9)


def test_cells_that_are_always_observed_add_no_variance() -> None:
    assert ips_variance([[7.0, 2.0]], [[1.0, 1.0]]) == 0.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            [[0.5, 0.0], [0.5, -0.1]],
            r"2 of 4 values of assumed are outside \(0, 1\]; the first is 0.0 at cell \(0, 1\)",
        ),
        (
            [[0.5, 0.5], [1.5, 0.5]],
            r"1 of 4 values of assumed are outside \(0, 1\]; the first is 1.5 at cell \(1, 0\)",
        ),
        (
            [[0.5, 0.5], [0.5, np.nan]],
            r"the first is nan at cell \(1, 1\)\. Give one for every cell",
        ),
        ([], r"assumed is empty"),
    ],
)
def test_bad_propensities_are_named(bad: list[list[float]], message: str) -> None:
    with pytest.raises(BadPropensityError, match=message):
        ips_bias(np.ones(SHAPE), true=np.full(SHAPE, 0.5), assumed=bad)


@pytest.mark.parametrize(
    "bad", [["0.5", "0.5"], [[0.5], [0.5, 0.5]], [0.5, 1j]], ids=["text", "ragged", "complex"]
)
def test_what_is_no_array_of_numbers_is_refused(bad: Any) -> None:
    with pytest.raises(BadPropensityError, match="propensities must be numbers"):
        ips_variance([1.0, 1.0], bad)
    with pytest.raises(UsageError, match="delta must be numbers"):
        ips_variance(bad, [0.5, 0.5])


def test_a_propensity_that_cannot_be_inverted_is_refused() -> None:
    with pytest.raises(
        BadPropensityError,
        match=r"1 of 2 values of assumed are too small to invert \(below 1e-100\); "
        r"the first is 1e-320 at cell \(1,\)\. Give",
    ):
        ips_bias([1.0, 1.0], true=[0.5, 0.5], assumed=[0.5, 1e-320])


def test_bad_true_propensities_are_named() -> None:
    with pytest.raises(BadPropensityError, match=r"1 of 2 values of true are outside \(0, 1\]"):
        ips_bias([1.0, 1.0], true=[0.5, 0.0], assumed=[0.5, 0.5])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_delta_that_is_not_finite_is_named(bad: float) -> None:
    with pytest.raises(
        UsageError,
        match=rf"1 of 2 values of delta are not finite; "
        rf"the first is {bad} at cell \(1,\)\. Give a number",
    ):
        ips_variance([1.0, bad], [0.5, 0.5])


def test_no_cells_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="delta is empty"):
        ips_variance([], [])


@pytest.mark.parametrize("name", ["true", "weight", "imputed"])
def test_shapes_must_agree(name: str) -> None:
    given_cells = {"true": [0.5, 0.5], "weight": [1.0, 1.0], "imputed": [0.0, 0.0]} | {
        name: [1.0, 1.0, 1.0]
    }

    with pytest.raises(
        UsageError,
        match=rf"delta has shape \(2,\), but {name} has shape \(3,\); "
        "both need one value for each cell",
    ):
        estimator_bias([1.0, 1.0], **given_cells)


def test_the_shape_of_assumed_and_of_propensities_must_agree_too() -> None:
    with pytest.raises(
        UsageError, match=r"delta has shape \(2,\), but propensities has shape \(1, 2\)"
    ):
        ips_variance([1.0, 1.0], [[0.5, 0.5]])


def test_negative_weights_are_refused() -> None:
    with pytest.raises(UsageError, match=r"weight has 1 negative value; the smallest is -2\.0"):
        estimator_bias([1.0, 1.0], true=[0.5, 0.5], weight=[1.0, -2.0])
