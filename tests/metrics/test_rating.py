from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.errors import BadPredictionError
from unskew.metrics.metric import Metric, MetricInput
from unskew.metrics.rating import (
    AbsoluteError,
    Accuracy,
    SquaredError,
    absolute_error,
    hit,
    rating_levels,
    squared_error,
)
from unskew.types import Vector

LEVELS = np.arange(1.0, 6.0)
ratings = arrays(np.float64, 6, elements=st.integers(1, 5).map(float))
predictions = arrays(np.float64, 6, elements=st.floats(-10, 10))


def judged(
    rating: list[float], prediction: list[float] | None, scale: Vector = LEVELS
) -> MetricInput:
    return MetricInput(
        np.array(rating),
        np.arange(len(rating), dtype=np.int32),
        scale,
        None if prediction is None else np.array(prediction),
    )


@pytest.mark.parametrize(
    ("metric", "delta"),
    [
        (SquaredError(), [0.0, 4.0, 0.25]),
        (AbsoluteError(), [0.0, 2.0, 0.5]),
        (Accuracy(), [1.0, 0.0, 1.0]),
    ],
)
def test_deltas_by_hand(metric: Metric, delta: list[float]) -> None:
    found = metric(judged([5, 1, 3], [5, 3, 2.5 + 1e-9 if metric.name == "accuracy" else 2.5]))

    assert found.value == pytest.approx(delta)
    assert found.base is None
    assert not found.is_mean_of_users


def test_errors_are_losses_and_accuracy_is_a_gain() -> None:
    assert [
        metric.higher_is_better for metric in (SquaredError(), AbsoluteError(), Accuracy())
    ] == [False, False, True]
    assert not any(metric.ranks for metric in (SquaredError(), AbsoluteError(), Accuracy()))


@given(rating=ratings, prediction=predictions)
def test_squared_error_is_the_square_of_absolute_error(rating: Vector, prediction: Vector) -> None:
    assert squared_error(rating, prediction) == pytest.approx(
        absolute_error(rating, prediction) ** 2
    )


@given(rating=ratings, prediction=predictions, shift=st.floats(-5, 5))
def test_errors_see_only_the_difference(rating: Vector, prediction: Vector, shift: float) -> None:
    assert absolute_error(rating + shift, prediction + shift) == pytest.approx(
        absolute_error(rating, prediction), abs=1e-9
    )
    assert absolute_error(prediction, rating) == pytest.approx(absolute_error(rating, prediction))


# Accuracy takes a prediction to the nearest level


@pytest.mark.parametrize(
    ("prediction", "level"),
    [(-7.0, 1.0), (1.4, 1.0), (1.5, 1.0), (1.6, 2.0), (4.5, 4.0), (4.51, 5.0), (99.0, 5.0)],
)
def test_a_prediction_goes_to_the_nearest_level_and_to_the_lower_one_of_two(
    prediction: float, level: float
) -> None:
    assert (
        hit(LEVELS, np.full(5, prediction), LEVELS).tolist()
        == (level == LEVELS).astype(float).tolist()
    )


def test_an_imputed_rating_goes_to_the_nearest_level_too() -> None:
    assert hit(np.array([3.6, 3.6, 9.0]), np.array([4.2, 3.4, 5.1]), LEVELS).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("scale", "levels"),
    [
        ([5, 1, 1], [1, 2, 3, 4, 5]),
        ([0, 100], list(range(101))),
        ([0, 101], [0, 101]),
        ([0.5, 5, 1], [0.5, 1, 5]),
        ([3, 3], [3]),
        ([-1, 1], [-1, 0, 1]),
    ],
    ids=["whole", "percent", "too many", "halves", "one", "signs"],
)
def test_levels_are_the_whole_numbers_between_or_else_the_distinct_ratings(
    scale: list[float], levels: list[float]
) -> None:
    assert rating_levels(np.array(scale, dtype=float)).tolist() == levels


def test_a_level_that_nobody_used_is_a_level() -> None:
    """No rating of the log is a 4, but a prediction of 4 is not a 5."""
    found = Accuracy()(judged([5, 5, 3], [4.0, 4.6, 3.4], scale=np.array([5.0, 1.0, 3.0])))

    assert found.value.tolist() == [0, 1, 1]


def test_with_a_single_level_every_prediction_is_right() -> None:
    assert Accuracy()(judged([3, 3], [-1, 8], scale=np.array([3.0, 3.0]))).value.tolist() == [1, 1]


@given(rating=ratings, prediction=predictions)
def test_accuracy_is_the_absolute_error_of_the_nearest_level_being_zero(
    rating: Vector, prediction: Vector
) -> None:
    nearest = np.array(
        [min(LEVELS, key=lambda level: (abs(level - each), level)) for each in prediction]
    )

    assert hit(rating, prediction, LEVELS).tolist() == (nearest == rating).tolist()


@pytest.mark.parametrize("metric", [SquaredError(), AbsoluteError(), Accuracy()])
def test_a_rating_metric_without_predictions_says_so(metric: Metric) -> None:
    with pytest.raises(
        BadPredictionError, match="needs predicted ratings, but only positions were passed"
    ):
        metric(judged([1], None))
