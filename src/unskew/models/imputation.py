"""The imputation G of doubly robust learning: a factorisation of the log, weighted by a(P)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Literal, TypeAlias

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.factorization.engine import Engine
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.settings import Instance
from unskew.threads import Workers
from unskew.types import RandomState, Vector

Weighting: TypeAlias = Literal["eib", "dr-jl", "mrdr", "dr-bias", "dr-mse"]
BIAS_SHARE = 0.5
"""The share of squared bias in DR-MSE; the rest is variance."""
CLIP_QUANTILE = 0.99
"""Larger weights of an imputation are lowered to this quantile, so that a few ratings do not
dominate."""


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
        BIAS_SHARE * _squared_bias(propensity) + (1 - BIAS_SHARE) * _variance(propensity)
    ),
}
"""a(P), the weight of a rating when the imputation G is fitted.

A doubly robust estimate has the bias (1 - P / P-hat) (Y - G) in a cell, and its variance is
(1 - P) / P times the square of Y - G. The weights make one or the other small. Estimating them
from the log adds a factor of 1 / P. Equal weights: Steck 2010; DR-JL: Wang et al. 2019;
MRDR: Guo et al. 2021; DR-BIAS and DR-MSE: Dai et al. 2022.
"""


def fit_imputation(
    imputer: MatrixFactorization | None,
    log: Ratings,
    weight: Vector,
    workers: Workers,
    *,
    dtype: str,
    random_state: RandomState,
    initial_factors: Factors | None = None,
    engine: Engine | None = None,
) -> Factors:
    """G: a weighted factorisation of the ratings, by default with the settings of its class."""
    Instance(MatrixFactorization, allow_none=True)("imputer", imputer)
    model = MatrixFactorization() if imputer is None else copy(imputer)
    model.set_params(dtype=dtype, random_state=random_state)
    return model._solve(
        log, weight, workers, initial_factors=initial_factors, engine=engine
    ).parameters


def imputation_weight(
    weighting: Weighting, propensity: Vector, n_cells: int, factor: Vector | float = 1.0
) -> Vector:
    """a(P) times ``factor``, clipped at a high quantile and scaled to add up to U I.

    If all weights are 0 (every P is 1), all ratings count equally.
    """
    weight = WEIGHTINGS[weighting](propensity) * factor
    weight = np.minimum(weight, np.quantile(weight, CLIP_QUANTILE))
    total = float(weight.sum())
    return weight * (n_cells / total) if total > 0 else np.full(weight.size, n_cells / weight.size)


def error_factor(rating: Vector, imputed: Vector, prediction: Vector) -> Vector:
    """(Y + G - 2 F)^2: times the squared error of G, it is that of the imputed loss (G - F)^2.

    (Y - F)^2 - (G - F)^2 = (Y - G) (Y + G - 2 F).
    """
    return np.square(rating + imputed - 2 * prediction)
