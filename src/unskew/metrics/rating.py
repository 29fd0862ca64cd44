"""Rating metrics: how far a predicted rating is from the true one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.metrics import METRICS
from unskew.metrics.metric import MAX_LEVELS, Bounds, Delta, MetricInput
from unskew.types import Vector


def squared_error(rating: Vector, prediction: Vector) -> Vector:
    """Eq. (3): (y - y_hat)^2."""
    return (rating - prediction) ** 2


def absolute_error(rating: Vector, prediction: Vector) -> Vector:
    """Eq. (2): abs(y - y_hat)."""
    errors: Vector = np.abs(rating - prediction)
    return errors


def hit(rating: Vector, prediction: Vector, levels: Vector) -> Vector:
    """Eq. (4): 1 if the same level is nearest to y and to y_hat, else 0.

    Halfway between two levels, the lower one counts as nearest. ``levels`` are in ascending order.
    A rating of the log is a level; an imputed rating can be any number.
    """
    middles = (levels[1:] + levels[:-1]) / 2
    return np.where(
        np.searchsorted(middles, prediction) == np.searchsorted(middles, rating), 1.0, 0.0
    )


def rating_levels(scale: Vector) -> Vector:
    """The whole numbers from the smallest to the largest rating, if all are whole and few.

    Otherwise the distinct ratings.
    """
    distinct = np.unique(scale)
    low, high = distinct[0], distinct[-1]
    if high - low < MAX_LEVELS and (distinct == np.floor(distinct)).all():
        return np.arange(low, high + 1)
    return distinct


@METRICS.declare(
    "mse",
    label="MSE",
    summary="Mean squared error.",
    traits={"order": 1, "words": "mean squared error"},
)
@dataclass(frozen=True, slots=True)
class SquaredError:
    """Mean squared error, Eq. (3)."""

    name: ClassVar[str] = "mse"
    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[Bounds] = (0.0, math.inf)
    ranks: ClassVar[bool] = False
    top: ClassVar[int | None] = None
    rating_degree: ClassVar[int] = 2

    def __call__(self, cells: MetricInput, /) -> Delta:
        return Delta(squared_error(cells.rating, cells.require_predictions()))


@METRICS.declare(
    "rmse",
    label="RMSE",
    summary="Root of the mean squared error.",
    traits={"order": 1.5, "words": "root mean squared error"},
)
@dataclass(frozen=True, slots=True)
class RootSquaredError(SquaredError):
    """The square root of the mean squared error, which is on the scale of the ratings."""

    name: ClassVar[str] = "rmse"

    def __call__(self, cells: MetricInput, /) -> Delta:
        return Delta(squared_error(cells.rating, cells.require_predictions()), is_root=True)


@METRICS.declare(
    "mae",
    label="MAE",
    summary="Mean absolute error.",
    traits={"order": 2, "words": "mean absolute error"},
)
@dataclass(frozen=True, slots=True)
class AbsoluteError:
    """Mean absolute error, Eq. (2)."""

    name: ClassVar[str] = "mae"
    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[Bounds] = (0.0, math.inf)
    ranks: ClassVar[bool] = False
    top: ClassVar[int | None] = None

    def __call__(self, cells: MetricInput, /) -> Delta:
        return Delta(absolute_error(cells.rating, cells.require_predictions()))


@METRICS.declare(
    "accuracy",
    label="accuracy",
    summary="Share of cells whose prediction, rounded to the rating scale, is right.",
    traits={"order": 3, "words": "accuracy"},
)
@dataclass(frozen=True, slots=True)
class Accuracy:
    """Share of predictions that are right when rounded to the nearest level, Eq. (4)."""

    name: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = (0.0, 1.0)
    ranks: ClassVar[bool] = False
    top: ClassVar[int | None] = None

    def __call__(self, cells: MetricInput, /) -> Delta:
        levels = rating_levels(cells.distinct())
        return Delta(hit(cells.rating, cells.require_predictions(), levels))
