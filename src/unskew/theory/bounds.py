"""How far IPS and what is learnt with it can be from the truth, with a stated probability."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
import numpy.typing as npt

from unskew.data.checks import is_finite_number
from unskew.errors import UsageError
from unskew.theory.cells import finite_cells, propensity_cells, same_shape
from unskew.types import Matrix


def tail_bound(
    delta: npt.ArrayLike, propensities: npt.ArrayLike, *, failure_probability: float = 0.05
) -> float:
    """Prop. 3.1: 1/(U I) * sqrt(log(2 / eta) / 2 * sum of rho^2), with rho = delta / P where P < 1 and 0 elsewhere.

    IPS is farther than this from the true risk with probability at most ``failure_probability``.

    >>> round(tail_bound([[1.0, 1.0], [1.0, 1.0]], [[0.5, 0.5], [0.5, 1.0]]), 4)
    1.1762
    """
    delta, p = finite_cells("delta", delta), propensity_cells("propensities", propensities)
    same_shape("delta", delta, "propensities", p)
    rho = np.where(p < 1, delta / p, 0.0)
    return _deviation(rho, n_hypotheses=1, failure_probability=failure_probability)


def erm_bound(
    empirical_risk: float,
    propensities: npt.ArrayLike,
    *,
    max_delta: float,
    n_hypotheses: int,
    failure_probability: float = 0.05,
) -> float:
    """Eq. (13), Thm 4.2: R-hat + Delta/(U I) * sqrt(log(2 |H| / eta) / 2) * sqrt(sum of 1 / P^2).

    The true risk of the hypothesis with the least IPS risk, ``empirical_risk``, is above this with probability at most
    ``failure_probability``; every loss lies in [0, ``max_delta``].
    """
    return erm_bound_estimated(
        empirical_risk,
        true=propensity_cells("propensities", propensities),
        assumed=propensities,
        max_delta=max_delta,
        n_hypotheses=n_hypotheses,
        failure_probability=failure_probability,
    )


def erm_bound_estimated(
    empirical_risk: float,
    *,
    true: npt.ArrayLike,
    assumed: npt.ArrayLike,
    max_delta: float,
    n_hypotheses: int,
    failure_probability: float = 0.05,
) -> float:
    """Eq. (16), Thm 5.2: R-hat + Delta/(U I) * [sum of |1 - P / P-hat| + sqrt(log(2 |H| / eta) / 2) * sqrt(sum of 1 / P-hat^2)].

    As :func:`erm_bound`, for a hypothesis chosen by IPS with ``assumed`` propensities while ``true`` ones made the log.
    """
    if not is_finite_number(empirical_risk):
        raise UsageError(f"empirical_risk must be a finite number; got {empirical_risk!r}.")
    bias = bias_bound(true=true, assumed=assumed, max_delta=max_delta)
    ranges = max_delta / propensity_cells("assumed", assumed)
    return (
        empirical_risk
        + bias
        + _deviation(ranges, n_hypotheses=n_hypotheses, failure_probability=failure_probability)
    )


def bias_bound(
    *,
    true: npt.ArrayLike,
    assumed: npt.ArrayLike,
    max_delta: float = 1.0,
    weight: npt.ArrayLike | None = None,
) -> float:
    """Second term of Eq. (16), Thm 5.2: Delta/(U I) * sum of |1 - P / P-hat|: bounds Eq. (15) for all losses up to Delta.

    ``weight`` says how many cells each value stands for, where they are a sample of all cells.

    >>> bias_bound(true=[0.5, 0.5], assumed=[0.5, 1.0])
    0.25
    """
    p, p_hat = propensity_cells("true", true), propensity_cells("assumed", assumed)
    same_shape("true", p, "assumed", p_hat)
    if not (is_finite_number(max_delta) and max_delta >= 0):
        raise UsageError(
            f"max_delta must be a finite number, at least 0: the largest loss a cell can have; got {max_delta!r}."
        )
    weights = None if weight is None else finite_cells("weight", weight)
    if weights is not None:
        same_shape("true", p, "weight", weights)
    return float(max_delta * np.average(np.abs(1.0 - p / p_hat), weights=weights))


def _deviation(ranges: Matrix, *, n_hypotheses: int, failure_probability: float) -> float:
    """Hoeffding for a mean over all cells of independent terms, each within its range, at once for every hypothesis."""
    if not (is_finite_number(failure_probability) and 0 < failure_probability < 1):
        raise UsageError(
            f"failure_probability must lie strictly between 0 and 1; got {failure_probability!r}."
        )
    if not (isinstance(n_hypotheses, Real) and n_hypotheses >= 1):
        raise UsageError(f"n_hypotheses must be at least 1; got {n_hypotheses!r}.")
    log_term = (
        math.log(2) + math.log(n_hypotheses) - math.log(failure_probability)
    )  # summed: |H| may exceed any float
    return math.sqrt(log_term / 2) * float(np.linalg.norm(ranges.ravel())) / ranges.size
