"""The imputation G of doubly robust learning: a factorisation of the log, weighted by a(P).

An imputation is too good on the ratings of its own fit. How far it can be trusted, alone or beside
others, shows only in ratings that were held out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.factorization.automatic import (
    LONG_LOG,
    MIN_RATINGS,
    N_PARTS,
    find_offset_ridges,
    fit_offsets,
)
from unskew.factorization.engine import Engine
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.settings import Instance
from unskew.threads import Workers
from unskew.types import BoolVector, Matrix, RandomState, Vector

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


def choose_imputer(imputer: MatrixFactorization | None, n_factors: int) -> MatrixFactorization:
    """The imputer that was passed, or the default one: as many factors as the model has."""
    Instance(MatrixFactorization, allow_none=True)("imputer", imputer)
    return MatrixFactorization(n_factors) if imputer is None else imputer


def fit_imputation(
    imputer: MatrixFactorization,
    log: Ratings,
    weight: Vector,
    workers: Workers,
    *,
    dtype: str,
    random_state: RandomState,
    least_tol: float = 0.0,
    initial_factors: Factors | None = None,
    engine: Engine | None = None,
) -> Factors:
    """G: a weighted factorisation of the ratings.

    ``least_tol`` replaces a smaller ``tol`` of the imputer.
    """
    tol = max(imputer.tol, least_tol)
    model = copy(imputer).set_params(dtype=dtype, random_state=random_state, tol=tol)
    return model._solve(
        log, weight, workers, initial_factors=initial_factors, engine=engine
    ).parameters


def imputation_weight(
    weighting: Weighting,
    propensity: Vector,
    n_cells: int,
    factor: Vector | float = 1.0,
    *,
    is_clipped: bool = True,
) -> Vector:
    """a(P) times ``factor``, clipped at a high quantile and scaled to add up to U I.

    If all weights are 0 (every P is 1), all ratings count equally.
    """
    weight = WEIGHTINGS[weighting](propensity) * factor
    if is_clipped:
        weight = np.minimum(weight, np.quantile(weight, CLIP_QUANTILE))
    total = float(weight.sum())
    return weight * (n_cells / total) if total > 0 else np.full(weight.size, n_cells / weight.size)


def find_imputation_weight(
    imputer: MatrixFactorization | None,
    weighting: Weighting,
    log: Ratings,
    propensity: Vector,
    factor: Vector | float = 1.0,
    *,
    random_state: RandomState,
) -> Vector:
    """a(P) of an imputer that was passed; of the default one a(P), or 1 / P if that is safer.

    a(P), 1 / P with the same clip and 1 / P as it is are compared by the squared errors of held-out
    ratings, weighted by 1 / P, of offsets alone: whether a few large weights add more noise than
    they are worth, or a clip more bias, shows in offsets, which take hardly any time.
    """
    if imputer is not None or weighting == "eib":
        return imputation_weight(weighting, propensity, log.n_cells, factor)
    candidates: list[tuple[Weighting, bool]] = [
        (weighting, True),
        ("dr-jl", True),
        ("dr-jl", False),
    ]
    parts = HeldOutParts.draw(log, random_state)

    def held_out_error(candidate: tuple[Weighting, bool]) -> float:
        name, is_clipped = candidate
        weight = imputation_weight(name, propensity, log.n_cells, is_clipped=is_clipped)
        error = 0.0
        for part in range(parts.n_used):
            is_left = parts.number != part
            rest, held_out = log.take(is_left), log.take(~is_left)
            rest_weight = weight[is_left] / is_left.mean()
            ridges = find_offset_ridges(rest, rest_weight)
            prediction = fit_offsets(rest, rest_weight, *ridges, predicts=held_out)
            error += float((1 / propensity[~is_left]) @ np.square(held_out.rating - prediction))
        return error

    name, is_clipped = min(dict.fromkeys(candidates), key=held_out_error)
    return imputation_weight(name, propensity, log.n_cells, factor, is_clipped=is_clipped)


def error_factor(rating: Vector, imputed: Vector, prediction: Vector) -> Vector:
    """(Y + G - 2 F)^2: times the squared error of G, it is that of the imputed loss (G - F)^2.

    (Y - F)^2 - (G - F)^2 = (Y - G) (Y + G - 2 F).
    """
    return np.square(rating + imputed - 2 * prediction)


SUM_WEIGHT = 1e4
"""How much the sum of shares counts when it is brought to 1; it is then divided out."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutParts:
    """Parts of a log that are held out in turn: all four, or one of them if the log is long."""

    number: npt.NDArray[np.int64]
    """The part of each rating."""
    n_used: int

    @classmethod
    def draw(cls, log: Ratings, random_state: RandomState) -> HeldOutParts:
        """No part is held out of a log that is too short to be split."""
        number = np.random.default_rng(random_state).permutation(len(log)) % N_PARTS
        n_used = 0 if len(log) < MIN_RATINGS else N_PARTS if len(log) < LONG_LOG else 1
        return cls(number, n_used)

    @property
    def is_held_out(self) -> BoolVector:
        """Of each rating: whether it is in one of these parts."""
        return np.asarray(self.number < self.n_used)


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutImputation:
    """G fitted to the whole log, and the predictions of held-out ratings by fits without them."""

    factors: Factors
    held_out: Vector
    """In the order of the log, of the ratings that were held out."""

    @classmethod
    def fit(
        cls,
        imputer: MatrixFactorization,
        log: Ratings,
        weight: Vector,
        parts: HeldOutParts,
        workers: Workers,
        *,
        dtype: str,
        random_state: RandomState,
    ) -> HeldOutImputation:
        """Fit the imputer, with one penalty for the whole log and for its parts."""
        model = copy(imputer).set_params(dtype=dtype, random_state=random_state)
        penalty = model._choose_penalty(log, weight, workers=workers)
        factors = model._solve(log, weight, workers, penalty=penalty).parameters
        values = np.empty(len(log))
        for part in range(parts.n_used):
            is_left = parts.number != part
            rest = model._solve(
                log.take(is_left),
                weight[is_left] / is_left.mean(),
                workers,
                penalty=penalty,
            ).parameters
            values[~is_left] = rest.predict(log.user[~is_left], log.item[~is_left])
        return cls(factors, values[parts.is_held_out])


def combine_factors(parts: Sequence[Factors], shares: Sequence[float]) -> Factors:
    """The factors whose predictions are the sum of ``shares`` times those of the parts."""
    used = [(part, float(share)) for part, share in zip(parts, shares, strict=True) if share]
    return Factors(
        np.hstack([share * part.user_factors for part, share in used]),
        np.hstack([part.item_factors for part, _ in used]),
        np.sum([share * part.user_offset for part, share in used], axis=0),
        np.sum([share * part.item_offset for part, share in used], axis=0),
        float(sum(share * part.global_offset for part, share in used)),
    )


def minimize_on_simplex(quadratic: Matrix) -> Vector:
    """The shares x of at least 0 with sum 1 that minimise x' A x, for A of full rank or not."""
    from scipy.optimize import nnls

    n = len(quadratic)
    if n == 1:
        return np.ones(1)
    values, vectors = np.linalg.eigh(quadratic)
    root = vectors.T * np.sqrt(np.maximum(values, 0.0))[:, None]
    scale = float(np.sqrt(np.trace(quadratic))) or 1.0
    rows = np.vstack([root / scale, np.eye(n) / SUM_WEIGHT, np.full((1, n), SUM_WEIGHT)])
    shares: Vector = nnls(rows, np.append(np.zeros(2 * n), SUM_WEIGHT))[0]
    return shares / float(shares.sum())
