from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.data.propensities import Propensities, propensities_of
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError
from unskew.types import Vector

vectors = arrays(np.float64, st.integers(1, 20), elements=st.floats(0, 1, exclude_min=True))


@pytest.fixture
def log() -> Ratings:
    return Ratings.from_arrays(["bob", "ann", "ann"], ["up", "up", "heat"], [5, 3, 1])


class Fitted:
    """A propensity model that answers with what it was given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def predict(self, log: Ratings, /) -> Any:
        return self.answer


@given(values=vectors)
def test_good_values_are_kept_to_the_last_bit(values: Vector) -> None:
    p = Propensities(values)

    assert np.array_equal(p.values, values)
    assert np.array_equal(np.asarray(p), values)
    assert len(p) == values.size


@given(values=arrays(np.float64, st.integers(1, 20), elements=st.floats(1e-300, 1)))
def test_the_inverse_undoes_the_propensity(values: Vector) -> None:
    assert Propensities(values).inverse * values == pytest.approx(1.0)


@given(values=vectors, low=st.floats(0.01, 1))
def test_clipping_raises_what_is_below_and_nothing_else(values: Vector, low: float) -> None:
    assert Propensities(values).clip(low=low).values.tolist() == [max(value, low) for value in values.tolist()]


def test_values_are_read_only_and_the_caller_s_array_is_left_alone() -> None:
    mine = np.array([0.5, 0.25])
    p = Propensities(mine)

    mine[0] = 0.75

    assert p.values.tolist() == [0.5, 0.25]
    with pytest.raises(ValueError, match="read-only"):
        p.values[0] = 1.0


def test_repr_gives_the_number_and_the_range() -> None:
    assert repr(Propensities(np.array([0.25, 0.5]))) == "Propensities(2 values, 0.25 to 0.5)"
    assert repr(Propensities(np.array([]))) == "Propensities(0 values, nan to nan)"


def test_it_converts_to_the_type_asked_for() -> None:
    assert np.asarray(Propensities(np.array([0.5])), dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize(
    "given",
    [
        [0.1, 0.2, 0.3],
        np.array([0.1, 0.2, 0.3]),
        Propensities(np.array([0.1, 0.2, 0.3])),
        pd.Series([0.1, 0.2, 0.3], index=[2, 0, 2]),
        pd.Series([0.1, 0.2, 0.3], dtype="Float64"),
        pl.Series([0.1, 0.2, 0.3]),
        pa.chunked_array([[0.1, 0.2], [0.3]]),
        Fitted([0.1, 0.2, 0.3]),
    ],
    ids=lambda given: f"{type(given).__module__}.{type(given).__name__}",
)
def test_one_value_for_each_row_in_the_order_of_the_log(log: Ratings, given: Any) -> None:
    assert propensities_of(log, given).values.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("wrap", [np.asarray, Fitted, pd.DataFrame])
def test_a_matrix_is_read_at_the_logged_cells(log: Ratings, wrap: Any) -> None:
    of_ann, of_bob = [0.1, 0.2], [0.3, 0.4]  # columns: heat, up

    assert propensities_of(log, wrap([of_ann, of_bob])).values.tolist() == [0.4, 0.2, 0.1]


def test_a_matrix_may_hold_anything_at_cells_that_were_not_logged(log: Ratings) -> None:
    assert propensities_of(log, [[0.1, 0.2], [np.nan, 0.4]]).values.tolist() == [0.4, 0.2, 0.1]


@pytest.mark.parametrize("bad", [0.0, -0.5, 1.5, np.nan, np.inf, np.nextafter(1, 2)])
def test_a_value_outside_the_unit_interval_is_named_exactly(bad: float) -> None:
    with pytest.raises(
        BadPropensityError, match=rf"2 of 3 propensities lie outside \(0, 1\]; the first is {bad} at row 1\. Raise small"
    ):
        Propensities(np.array([0.5, bad, bad]))


def test_a_bad_value_is_named_with_its_cell(log: Ratings) -> None:
    with pytest.raises(BadPropensityError, match=r"the first is 0\.0 at row 1 \(user 'ann', item 'up'\)"):
        propensities_of(log, [0.5, 0.0, 0.5])
    with pytest.raises(BadPropensityError, match=r"the first is nan at row 2 \(user 'ann', item 'heat'\)"):
        propensities_of(log, Fitted(pd.Series([0.5, 0.5, None], dtype="Float64")))


@pytest.mark.parametrize("given", [[0.5, 0.5], 0.5, None, np.ones((3, 1)), np.ones((3, 3)), Fitted([0.5])], ids=range(6))
def test_misaligned_values_are_refused(log: Ratings, given: Any) -> None:
    with pytest.raises(
        BadPropensityError,
        match=r"got propensities of shape \(.*\) for a log of 3 ratings; give one for each row .* or a matrix of shape \(2, 2\)",
    ):
        propensities_of(log, given)


@pytest.mark.parametrize("given", ["nb", ["a", "b", "c"], {"propensity": 0.5}])
def test_what_is_not_a_number_is_refused(log: Ratings, given: Any) -> None:
    with pytest.raises(BadPropensityError, match="propensities must be numbers, or a fitted model: "):
        propensities_of(log, given)


@pytest.mark.parametrize("values", [np.ones((2, 2)), np.zeros((2, 2)), np.float64(0.5)])
def test_propensities_form_one_column(values: Any) -> None:
    with pytest.raises(BadPropensityError, match=r"propensities must form one column, in the order of the log; got shape \("):
        Propensities(values)
