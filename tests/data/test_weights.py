from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LinearRegression

import unskew
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.weights import inverse_weights
from unskew.errors import BadPropensityError, UsageError
from unskew.propensity.popularity import PopularityPropensity
from unskew.types import Vector

LOG = Ratings.from_dense([[5, 0], [3, 1]])
P = np.array([0.5, 0.01, 1.0])


def test_by_hand() -> None:
    np.testing.assert_allclose(inverse_weights(LOG, P), [2, 100, 1])
    clipped = inverse_weights(LOG, P, weight_transform=unskew.estimators.Clip(10))
    np.testing.assert_allclose(clipped, [2, 10, 1])


def test_values_matrix_record_and_model_say_the_same() -> None:
    model = PopularityPropensity("both").fit(LOG)
    values = model.predict(LOG).values
    matrix = np.full((2, 2), 0.7)
    matrix[LOG.user, LOG.item] = values

    for form in (values, list(values), matrix, Propensities(values), model):
        np.testing.assert_array_equal(inverse_weights(LOG, form), 1 / values)


@given(p=arrays(np.float64, 3, elements=st.floats(0.001, 1)))
@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_the_weighted_mean_of_deltas_is_snips_and_their_sum_is_ips(p: Vector) -> None:
    weight = inverse_weights(LOG, p)
    zero = np.zeros((2, 2))

    result = unskew.evaluate(
        LOG, zero, propensities=p, metrics=["mae"], estimators=["ips", "snips"]
    )

    assert result.risk("model", metric="mae", estimator="snips").estimate == pytest.approx(
        np.average(LOG.rating, weights=weight)
    )
    assert result.risk("model", metric="mae", estimator="ips").estimate == pytest.approx(
        weight @ LOG.rating / 4
    )


def test_as_sample_weight_it_brings_a_regressor_to_the_fit_of_all_cells() -> None:
    """The best constant is the mean of all cells; the log alone has the mean of liked items."""
    world = unskew.simulate(300, 200, density=0.1, alpha=0.5)
    constant = np.ones((len(world.log), 1))

    naive, weighted = (
        LinearRegression(fit_intercept=False)
        .fit(constant, world.log.rating, sample_weight=weight)
        .coef_[0]
        for weight in (None, inverse_weights(world.log, world.propensities))
    )

    assert abs(naive - world.truth.mean()) > 0.5
    assert abs(weighted - world.truth.mean()) < 0.05


def test_what_are_no_propensities_or_no_weights_is_refused() -> None:
    with pytest.raises(BadPropensityError, match="lie outside"):
        inverse_weights(LOG, [0.5, 0, 1])
    with pytest.raises(
        BadPropensityError, match=r"got propensities of shape \(2,\) for a log of 3 ratings"
    ):
        inverse_weights(LOG, [0.5, 1])
    with pytest.raises(UsageError, match="must return one finite weight of at least 0"):
        inverse_weights(LOG, P, weight_transform=lambda weight: -weight)
