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

from unskew.data import propensities as propensities_module
from unskew.data.propensities import SMALLEST, Propensities, as_propensities
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError, DuplicateCellError, UsageError
from unskew.types import Vector

vectors = arrays(np.float64, st.integers(1, 20), elements=st.floats(SMALLEST, 1))


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


@given(values=arrays(np.float64, st.integers(1, 20), elements=st.floats(SMALLEST, 1)))
def test_the_inverse_undoes_the_propensity(values: Vector) -> None:
    assert Propensities(values).inverse * values == pytest.approx(1.0)


def test_the_smallest_propensity_can_be_inverted_and_squared() -> None:
    assert np.isfinite(Propensities(np.full(9, SMALLEST)).inverse ** 2).all()


def test_take_is_in_step_with_the_log(log: Ratings) -> None:
    p = Propensities(np.array([0.1, 0.2, 0.3]))

    for rows in (np.array([2, 0]), np.array([-1, 0]), log.rating != 3):
        assert len(p.take(rows)) == len(log.take(rows)) == 2
    assert p.take(np.array([2, 0])).values.tolist() == [0.3, 0.1]
    with pytest.raises(
        DuplicateCellError, match=r"row 1 is taken 2 times, but a log holds each cell once"
    ):
        p.take(np.array([1, 1]))


@given(values=arrays(np.float64, 5, elements=st.floats(0.01, 1)), share=st.floats(0.01, 1))
def test_scaling_is_a_second_chance_to_be_dropped(values: Vector, share: float) -> None:
    assert Propensities(values).scaled(share).values == pytest.approx(values * share)


@pytest.mark.parametrize("share", [0.0, 1.1, -0.5, np.nan, "half", None])
def test_a_share_outside_0_to_1_is_refused(share: Any) -> None:
    with pytest.raises(
        UsageError, match=r"share must lie in \(0, 1\]: the part of the log that was kept; got"
    ):
        Propensities(np.array([0.5])).scaled(share)


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
        pd.Series([0.1, 0.2, 0.3], index=[0, 1, 2]),
        pd.Series([0.1, 0.2, 0.3], dtype="Float64"),
        pl.Series([0.1, 0.2, 0.3]),
        pa.chunked_array([[0.1, 0.2], [0.3]]),
        Fitted([0.1, 0.2, 0.3]),
    ],
    ids=lambda given: f"{type(given).__module__}.{type(given).__name__}",
)
def test_one_value_for_each_row_in_the_order_of_the_log(log: Ratings, given: Any) -> None:
    assert as_propensities(log, given).values.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("wrap", [np.asarray, Fitted, pd.DataFrame])
def test_a_matrix_is_read_at_the_logged_cells(log: Ratings, wrap: Any) -> None:
    of_ann, of_bob = [0.1, 0.2], [0.3, 0.4]  # columns: heat, up

    assert as_propensities(log, wrap([of_ann, of_bob])).values.tolist() == [0.4, 0.2, 0.1]


def test_a_matrix_may_hold_anything_at_cells_that_were_not_logged(log: Ratings) -> None:
    assert as_propensities(log, [[0.1, 0.2], [np.nan, 0.4]]).values.tolist() == [0.4, 0.2, 0.1]


@pytest.mark.parametrize(
    ("bad", "fault", "advice"),
    [
        (
            1.5,
            r"lie outside \(0, 1\], above 1",
            r"Percentages\? Divide by 100\. Inverse weights\? Pass 1/w\.",
        ),
        (np.inf, r"lie outside \(0, 1\], above 1", "Percentages"),
        (np.nextafter(1, 2), r"lie outside \(0, 1\], above 1", "Percentages"),
        (
            0.0,
            r"lie outside \(0, 1\], at 0 or less, or are too small to invert",
            r"Drop cells .* weight_transform=Clip",
        ),
        (
            -0.5,
            r"lie outside \(0, 1\], at 0 or less, or are too small to invert",
            "Drop cells that can never be observed",
        ),
        (
            1e-101,
            r"lie outside \(0, 1\], at 0 or less, or are too small to invert \(below 1e-100\)",
            "Drop cells that can never be observed",
        ),
        (
            np.nan,
            r"are missing \(NaN\)",
            r"Predict those too, or drop their rows with log\.take\(rows\)",
        ),
    ],
)
def test_a_bad_value_is_named_exactly_by_its_kind_of_fault(
    bad: float, fault: str, advice: str
) -> None:
    with pytest.raises(
        BadPropensityError,
        match=rf"2 of 3 propensities {fault}.*; the first is {bad} at row 1\. {advice}",
    ):
        Propensities(np.array([0.5, bad, bad]))


class OfPairs:
    """A model of the other kind."""

    def predict(self, users: Any, items: Any, /) -> Any:
        return [0.5] * len(users)


@pytest.mark.parametrize("given", [OfPairs(), Fitted], ids=["pairs", "class"])
def test_a_model_that_does_not_predict_a_log_is_told_the_protocol(log: Ratings, given: Any) -> None:
    with pytest.raises(
        BadPropensityError,
        match=r"cannot be called as predict\(log\): missing .*method predict\(log\) that "
        r"returns one propensity",
    ):
        as_propensities(log, given)


def test_an_error_inside_a_model_is_its_own(log: Ratings) -> None:
    class Broken:
        def predict(self, log: Ratings, /) -> Any:
            raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        as_propensities(log, Broken())


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_data_frame_is_asked_for_one_column(log: Ratings, make: Any) -> None:
    frame = make({"user_id": ["a"] * 3, "item_id": [1, 2, 3], "propensity": [0.5] * 3})

    with pytest.raises(
        BadPropensityError,
        match=r"a data frame of 3 columns does not say .* Pass that column alone, such as "
        r"frame\['propensity'\]",
    ):
        as_propensities(log, frame)


def test_a_bad_value_is_named_with_its_cell(log: Ratings) -> None:
    with pytest.raises(
        BadPropensityError, match=r"the first is 0\.0 at row 1 \(user 'ann', item 'up'\)"
    ):
        as_propensities(log, [0.5, 0.0, 0.5])
    with pytest.raises(
        BadPropensityError, match=r"the first is nan at row 2 \(user 'ann', item 'heat'\)"
    ):
        as_propensities(log, Fitted(pd.Series([0.5, 0.5, None], dtype="Float64")))


@pytest.mark.parametrize(
    "given", [[0.5, 0.5], 0.5, None, np.ones((3, 1)), np.ones((3, 3)), Fitted([0.5])], ids=range(6)
)
def test_misaligned_values_are_refused(log: Ratings, given: Any) -> None:
    with pytest.raises(
        BadPropensityError,
        match=r"got propensities of shape \(.*\) for a log of 3 ratings\. Give one for each "
        r"row .* or a matrix of shape \(2, 2\)",
    ):
        as_propensities(log, given)


@pytest.mark.parametrize("given", ["nb", ["a", "b", "c"], {"propensity": 0.5}])
def test_what_is_not_a_number_is_refused(log: Ratings, given: Any) -> None:
    with pytest.raises(
        BadPropensityError,
        match=r"propensities must be numbers.* or a fitted model, such as NaiveBayesPropensity",
    ):
        as_propensities(log, given)


@pytest.mark.parametrize("values", [np.ones((2, 2)), np.zeros((2, 2)), np.float64(0.5)])
def test_propensities_form_one_column(values: Any) -> None:
    with pytest.raises(
        BadPropensityError,
        match=r"propensities must form one column, in the order of the log; got shape \(",
    ):
        Propensities(values)


def test_propensities_are_checked_once(log: Ratings, monkeypatch: pytest.MonkeyPatch) -> None:
    n_checks = 0
    check = propensities_module._require_valid

    def counted(*args: Any) -> None:
        nonlocal n_checks
        n_checks += 1
        check(*args)

    monkeypatch.setattr(propensities_module, "_require_valid", counted)
    checked = as_propensities(log, [0.5] * len(log))
    assert n_checks == 1

    assert as_propensities(log, checked) is checked
    taken = checked.take([0])
    assert n_checks == 1
    with pytest.raises(ValueError, match="read-only"):
        taken.values[0] = 2


def test_a_series_in_another_order_is_refused() -> None:
    frame = pd.DataFrame({"user_id": [1, 2], "item_id": [1, 2], "rating": [1, 2]}, index=["x", "y"])
    log, p = Ratings.from_frame(frame), pd.Series([0.2, 0.8], index=["y", "x"])

    with pytest.raises(BadPropensityError, match=r"at row 0: 'y', not 'x'.*\.reindex"):
        as_propensities(log, p)
    assert as_propensities(log, p.reindex(frame.index)).values.tolist() == [0.8, 0.2]
