"""Imputed ratings: which errors of the imputation matter how much, and what it says of cells.

A doubly robust estimate is wrong by (1 - P / P-hat) (Y - G) in a cell and varies by (1 - P) / P times its square, so that the
imputation G is fitted with weights a(P) that make one or the other small. Estimating either from the log costs one more 1 / P.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Literal, TypeAlias

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import UnknownNameError
from unskew.factorization.parameters import Parameters
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.types import IntVector, Vector

Weighting: TypeAlias = Literal["eib", "dr-jl", "mrdr", "dr-bias", "dr-mse"]
MSE_MIX = 0.5
"""The share of squared bias in DR-MSE, the rest being variance."""
CLIP_QUANTILE = 0.99
"""Larger weights of an imputation are lowered to this quantile: a few ratings would decide it alone."""
BLOCK_CELLS = 1 << 18


def _variance(propensity: Vector) -> Vector:
    """(1 - P) / P^2."""
    return (1 - propensity) / propensity**2


def _squared_bias(propensity: Vector) -> Vector:
    """(1 - P)^2 / P^3."""
    return (1 - propensity) ** 2 / propensity**3


WEIGHTINGS: Mapping[str, Callable[[Vector], Vector]] = {
    "eib": np.ones_like,
    "dr-jl": lambda propensity: 1 / propensity,
    "mrdr": _variance,
    "dr-bias": _squared_bias,
    "dr-mse": lambda propensity: (
        MSE_MIX * _squared_bias(propensity) + (1 - MSE_MIX) * _variance(propensity)
    ),
}
"""a(P): alike (Steck 2010), DR-JL (Wang et al. 2019), MRDR (Guo et al. 2021), DR-BIAS and DR-MSE (Dai et al. 2022)."""


def require_weighting(weighting: str) -> None:
    """Refuse a name that is none of them."""
    if weighting not in WEIGHTINGS:
        raise UnknownNameError("weighting", weighting, WEIGHTINGS)


def chosen_imputer(
    given: MatrixFactorization | None, *, dtype: str, random_state: int
) -> MatrixFactorization:
    """A copy of the model that G is to be; where none was given, 5 factors with l2 = 1 and without offsets."""
    model = MatrixFactorization(5, 1.0, offsets="none") if given is None else copy(given)
    return model.set_params(dtype=dtype, random_state=random_state)


def imputation_weight(
    weighting: Weighting, propensity: Vector, n_cells: int, doubt: Vector | float = 1.0
) -> Vector:
    """a(P) ``doubt``, clipped at a high quantile and scaled to add up to U * I, so that a penalty means the same for all of them.

    Where every weight is 0 (nothing was left to chance) all ratings count alike.
    """
    weight = WEIGHTINGS[weighting](propensity) * doubt
    weight = np.minimum(weight, np.quantile(weight, CLIP_QUANTILE))
    total = float(weight.sum())
    return weight * (n_cells / total) if total > 0 else np.full(weight.size, n_cells / weight.size)


def error_doubt(rating: Vector, imputed: Vector, prediction: Vector) -> Vector:
    """(Y + G - 2 F)^2, as (Y - F)^2 - (G - F)^2 = (Y - G) (Y + G - 2 F): with it squared errors of G are imputed errors'."""
    return np.square(rating + imputed - 2 * prediction)


def values_at(parameters: Parameters, user: IntVector, item: IntVector) -> Vector:
    """v_u . w_i + a_u + b_i + c of pairs of codes, in blocks."""
    found, values = parameters, np.empty(user.size)
    for first in range(0, user.size, BLOCK_CELLS):
        u, i = user[first : first + BLOCK_CELLS], item[first : first + BLOCK_CELLS]
        product = np.einsum("kd,kd->k", found.user_factors[u], found.item_factors[i])
        values[first : first + BLOCK_CELLS] = (
            product + found.user_offset[u] + found.item_offset[i] + found.constant
        )
    return values


def values_on(parameters: Parameters, log: Ratings) -> Vector:
    """The same for the cells of a log."""
    return values_at(parameters, log.user, log.item)
