from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from enumeration import expectation
from unskew.data.propensities import Propensities
from unskew.data.weights import WeightTransform
from unskew.errors import UsageError
from unskew.estimators.point import ips
from unskew.estimators.sums import Sums
from unskew.estimators.transforms import Clip, Dynamic, Shrink, SubGaussian, Switch
from unskew.theory import estimator_bias
from unskew.types import Vector

WEIGHT = np.array([1.0, 2.0, 10.0, 200.0])
weights = arrays(np.float64, 5, elements=st.floats(1, 1e4))


def test_by_hand() -> None:
    np.testing.assert_allclose(Clip(10)(WEIGHT), [1, 2, 10, 10])
    np.testing.assert_allclose(Switch(10)(WEIGHT), [1, 2, 10, 0])
    np.testing.assert_allclose(
        Shrink(100)(WEIGHT), [100 / 101, 200 / 104, 1000 / 200, 20000 / 40100]
    )
    np.testing.assert_allclose(SubGaussian(0.5)(WEIGHT), [1, 4 / 3, 20 / 11, 400 / 201])


@given(weight=weights)
def test_limits(weight: Vector) -> None:
    np.testing.assert_allclose(Clip(1e9)(weight), weight)
    np.testing.assert_allclose(Switch(1e9)(weight), weight)
    np.testing.assert_allclose(Shrink(1e15)(weight), weight, rtol=1e-6)
    np.testing.assert_allclose(Shrink(np.inf)(weight), weight)
    np.testing.assert_allclose(SubGaussian(0)(weight), weight)
    np.testing.assert_allclose(SubGaussian(1)(weight), 1)
    assert (SubGaussian(0.1)(weight) <= 10 + 1e-9).all()


@given(p=arrays(np.float64, 5, elements=st.floats(1e-6, 1)), rho=st.floats(0.01, 0.49))
def test_dynamic_weights_are_those_of_the_best_power(p: Vector, rho: float) -> None:
    """As published: q^a for P, q = log2(1 + P), a = ln(2 rho (1 - P)) / ln q within [0, 1]."""
    q = np.log2(1 + p)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.clip(np.log(2 * rho * (1 - p)) / np.log(q), 0, 1)
    power = np.where(q == 1, 1.0, power)

    np.testing.assert_allclose(Dynamic(rho)(1 / p), 1 / q**power, rtol=1e-6)


def test_dynamic_weights_are_bounded_and_leave_sure_cells_alone() -> None:
    np.testing.assert_allclose(Dynamic()(np.array([1.0])), [1.0])
    assert Dynamic()(np.array([1e9]))[0] == pytest.approx(5.0)
    assert Dynamic(0.1)(np.array([2.0]))[0] == pytest.approx(1 / np.log2(1.5))


@pytest.mark.parametrize(
    "transform", [Clip(3), Switch(3), Shrink(5), SubGaussian(0.2), Dynamic(0.1)]
)
@given(
    delta=arrays(np.float64, 4, elements=st.floats(-10, 10)),
    p=arrays(np.float64, 4, elements=st.floats(0.02, 1)),
)
def test_bias_is_the_one_formula(transform: WeightTransform, delta: Vector, p: Vector) -> None:
    """Eq. (2) of the family: mean of (1 - P h) delta, by enumeration."""

    def estimate(seen: np.ndarray) -> float:
        sums = Sums.of(delta[seen], Propensities(p[seen]), weight=transform(1 / p[seen]))
        return float(ips(sums, n_cells=4).value[0])

    bias = delta.mean() - expectation(p, estimate)

    assert bias == pytest.approx(estimator_bias(delta, true=p, weight=transform(1 / p)), abs=1e-9)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Clip(0.5), "at least 1"),
        (lambda: Switch(0.0), "at least 1"),
        (lambda: Shrink(0.0), "strength must be a finite number, above 0"),
        (lambda: Dynamic(0.5), "above 0 and below 0.5"),
        (lambda: SubGaussian(1.5), "at least 0 and at most 1"),
    ],
)
def test_parameters_out_of_range_are_refused(make: object, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        make()  # type: ignore[operator]
