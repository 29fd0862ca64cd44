"""The correction F - G of an imputation G: a factorisation of its weighted errors on the log."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.data.weights import weighted_mean
from unskew.errors import PropensityWarning
from unskew.factorization.automatic import find_correction_penalty
from unskew.factorization.penalty import Penalty
from unskew.factorization.pseudo_outcome import PseudoOutcomeSolver, make_pseudo_outcome
from unskew.factorization.solution import Report, Solution, minimize
from unskew.models.factor_recommender import RatingFactorization
from unskew.threads import Workers
from unskew.types import Vector

MAX_RANGES = 10
"""Pseudo-outcomes of more than this many rating ranges cause a warning."""


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedImputation:
    """F = G plus its correction, and how the correction was found."""

    factors: Factors
    """F, with the factors of G and of the correction."""
    solution: Solution[Factors]
    penalty: Penalty
    risk: float
    """The doubly robust estimate of the mean squared error over all cells."""


def fit_correction(
    model: RatingFactorization,
    log: Ratings,
    weight: Vector,
    imputed: Factors,
    workers: Workers,
    report: Report | None,
) -> CorrectedImputation:
    """Minimise  sum over all cells of (C - h (Y - G))^2 + penalty of C;  F = G + C.

    h (Y - G) is 0 outside the log. Up to a constant it is the doubly robust loss of F. The settings
    are those of ``model``; with ``l2="auto"`` the penalty is that of the noise of Y - G.
    """
    residual = replace(log, rating=log.rating - imputed.predict(log.user, log.item))
    penalty = choose_correction_penalty(model, residual, weight)
    if model.l2 != "auto":
        largest = float(np.abs(residual.rating * weight).max())
        warn_if_far(float(np.ptp(log.rating)), largest, stacklevel=4)
    outcome, constant = make_pseudo_outcome(
        residual, weight, np.zeros(len(log)), zero_factors(log), dtype=model.dtype
    )
    start = model._random_start(residual, weighted_mean(residual.rating, weight))
    solution = minimize(
        PseudoOutcomeSolver(outcome, model.n_factors, model.offsets, penalty, workers),
        start,
        max_iter=model.max_iter,
        tol=model.tol,
        report=report,
    )
    history = tuple(value + constant for value in solution.history)
    solved = solution.parameters
    factors = solved.plus(imputed)
    return CorrectedImputation(
        factors,
        Solution(factors, history, solution.stop_reason),
        penalty,
        (history[-1] - penalty.value(solved)) / log.n_cells,
    )


def choose_correction_penalty(
    model: RatingFactorization, residual: Ratings, weight: Vector, *, loss: str = "squared"
) -> Penalty:
    """The penalty of ``l2``; with ``"auto"`` that of the noise of the errors Y - G."""
    if model.l2 != "auto":
        return model._fixed_penalty(residual)
    edge = find_correction_penalty(
        residual,
        weight,
        n_factors=model.n_factors,
        loss=loss,
        random_state=model.random_state,
    )
    return edge if model.offsets == "regularized" else Penalty(edge.factors)


def zero_factors(log: Ratings) -> Factors:
    """Factors whose predictions are all 0."""
    return Factors(np.zeros((log.n_users, 0)), np.zeros((log.n_items, 0)))


def warn_if_far(target_range: float, largest: float, *, stacklevel: int) -> None:
    """Warn if the largest absolute pseudo-outcome is far outside the range of its targets.

    They are the ratings, or their differences to the imputed ratings. The penalty of ``l2="auto"``
    takes such pseudo-outcomes for noise, so this is told of other penalties only.
    """
    if largest > MAX_RANGES * target_range > 0:
        warnings.warn(
            PropensityWarning(
                f"pseudo-outcomes reach {largest:.3g}, more than {MAX_RANGES} times the range of "
                f"the values that they replace ({target_range:.3g}): some cells have both a large "
                "weight and a poorly imputed rating.",
                parameter="weight_transform",
                remedy="Leave `l2` at 'auto', which takes such cells for noise; or limit the "
                "weights with `weight_transform=Clip(...)`, which adds bias.",
            ),
            stacklevel=stacklevel,  # the line that called fit
        )
