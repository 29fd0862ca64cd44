"""How far a predicted rating is from the true one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.metrics.judged import Delta, Judged
from unskew.types import Vector


def squared_error(rating: Vector, prediction: Vector) -> Vector:
    """Eq. (3): (y - y_hat)^2."""
    return (rating - prediction) ** 2


def absolute_error(rating: Vector, prediction: Vector) -> Vector:
    """Eq. (2): abs(y - y_hat)."""
    errors: Vector = np.abs(rating - prediction)
    return errors


def hit(rating: Vector, prediction: Vector, levels: Vector) -> Vector:
    """Eq. (4): 1 where the level nearest to y_hat is y, the lower one if two are equally near. ``levels`` ascend."""
    middles = (levels[1:] + levels[:-1]) / 2
    nearest = levels[np.searchsorted(middles, prediction)]
    hits: Vector = (nearest == rating).astype(np.float64)
    return hits


@dataclass(frozen=True, slots=True)
class SquaredError:
    """Mean squared error."""

    name: str = "mse"
    higher_is_better: bool = False
    ranks: bool = False
    top: None = None

    def __call__(self, judged: Judged, /) -> Delta:
        """Eq. (3)."""
        return Delta(squared_error(judged.rating, judged.rated()))


@dataclass(frozen=True, slots=True)
class AbsoluteError:
    """Mean absolute error."""

    name: str = "mae"
    higher_is_better: bool = False
    ranks: bool = False
    top: None = None

    def __call__(self, judged: Judged, /) -> Delta:
        """Eq. (2)."""
        return Delta(absolute_error(judged.rating, judged.rated()))


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Share of cells whose prediction, taken to the nearest rating level of the log, is right."""

    name: str = "accuracy"
    higher_is_better: bool = True
    ranks: bool = False
    top: None = None

    def __call__(self, judged: Judged, /) -> Delta:
        """Eq. (4)."""
        return Delta(hit(judged.rating, judged.rated(), np.unique(judged.scale)))
