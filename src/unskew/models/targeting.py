"""The targeting step of TDR, as weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.data.propensities import Propensities, PropensityPredictor
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError
from unskew.estimators.transforms import WeightTransform
from unskew.types import Vector

BLOCK_ROWS = 256


def targeted_weight(
    weight: Vector, propensities: Any, log: Ratings, transform: WeightTransform | None
) -> Vector:
    """1 + c (h - 1), which is what targeting makes of the weights h (H. Li et al., *TDR-CL*, ICLR 2023).

    Imputed losses l become l + e (h - 1), with the e that leaves sum_O (h - 1) (delta - l - e (h - 1)) = 0: doubly robust
    estimation and error imputation then say the same. As e is linear in the losses, so is the estimate:

        sum_D l + sum_O (1 + c (h - 1)) (delta - l),      c = (sum_D (h - 1) - sum_O (h - 1)) / sum_O (h - 1)^2

    If the propensities are right, c is near 1. Were the sum over all cells estimated from the log, c would be 1 exactly and
    nothing gained; therefore it needs the propensities of all cells.
    """
    beyond = weight - 1
    scale = float(beyond @ beyond)
    return (
        1 + (_total_beyond(propensities, log, transform) - float(beyond.sum())) / scale * beyond
        if scale
        else weight
    )


def _total_beyond(propensities: Any, log: Ratings, transform: WeightTransform | None) -> float:
    """The sum of h - 1 over all cells."""
    if isinstance(propensities, Propensities | PropensityPredictor) or np.shape(propensities) != (
        log.n_users,
        log.n_items,
    ):
        raise BadPropensityError(
            f"targeted=True adds up the weights of all cells: pass a matrix of shape {(log.n_users, log.n_items)}."
        )
    matrix, total = np.asarray(propensities), 0.0
    for first in range(0, log.n_users, BLOCK_ROWS):
        weight = Propensities(matrix[first : first + BLOCK_ROWS].ravel()).inverse
        total += float(((weight if transform is None else transform(weight)) - 1).sum())
    return total
