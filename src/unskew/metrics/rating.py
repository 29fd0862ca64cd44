"""How far a predicted rating is from the true one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.metrics.metric import Delta, MetricInput
from unskew.types import Vector

MAX_LEVELS = 101
"""Of a scale of whole numbers, such as 0 to 100."""


def squared_error(rating: Vector, prediction: Vector) -> Vector:
    """Eq. (3): (y - y_hat)^2."""
    return (rating - prediction) ** 2


def absolute_error(rating: Vector, prediction: Vector) -> Vector:
    """Eq. (2): abs(y - y_hat)."""
    errors: Vector = np.abs(rating - prediction)
    return errors


def hit(rating: Vector, prediction: Vector, levels: Vector) -> Vector:
    """Eq. (4): 1 where the levels nearest to y and to y_hat are one, the lower one if two are equally near. ``levels`` ascend.

    A rating of the log is a level; an imputed one is any number.
    """
    middles = (levels[1:] + levels[:-1]) / 2
    return np.where(
        np.searchsorted(middles, prediction) == np.searchsorted(middles, rating), 1.0, 0.0
    )


def rating_levels(scale: Vector) -> Vector:
    """The whole numbers from the least to the largest rating where all are whole and few, else the distinct ratings."""
    distinct = np.unique(scale)
    low, high = distinct[0], distinct[-1]
    if high - low < MAX_LEVELS and (distinct == np.floor(distinct)).all():
        return np.arange(low, high + 1)
    return distinct


@dataclass(frozen=True, slots=True)
class SquaredError:
    """Mean squared error."""

    name: str = "mse"
    higher_is_better: bool = False
    ranks: bool = False
    top: None = None

    def __call__(self, judged: MetricInput, /) -> Delta:
        """Eq. (3)."""
        return Delta(squared_error(judged.rating, judged.require_predictions()))


@dataclass(frozen=True, slots=True)
class AbsoluteError:
    """Mean absolute error."""

    name: str = "mae"
    higher_is_better: bool = False
    ranks: bool = False
    top: None = None

    def __call__(self, judged: MetricInput, /) -> Delta:
        """Eq. (2)."""
        return Delta(absolute_error(judged.rating, judged.require_predictions()))


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Share of cells whose prediction, taken to the nearest level of the log's rating scale, is right."""

    name: str = "accuracy"
    higher_is_better: bool = True
    ranks: bool = False
    top: None = None

    def __call__(self, judged: MetricInput, /) -> Delta:
        """Eq. (4)."""
        return Delta(
            hit(judged.rating, judged.require_predictions(), rating_levels(judged.distinct()))
        )
