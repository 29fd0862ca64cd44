"""Bias, variance and bounds of the IPS estimator, computed over ALL cells, observed or not.

Arrays hold one value for each cell of the matrix, in any shape. Cells are observed independently
of one another, each with its propensity.
"""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.propensities import SMALLEST
from unskew.errors import BadPropensityError, UsageError
from unskew.settings import Number
from unskew.tables import count_noun
from unskew.types import BoolVector, Matrix


def ips_bias(delta: npt.ArrayLike, *, true: npt.ArrayLike, assumed: npt.ArrayLike) -> float:
    """Eq. (15), Lemma 5.1: 1/(U I) * sum of delta * (1 - P / P-hat).

    This is the true risk minus the expectation of IPS. It is positive if IPS comes out too low,
    which happens if the assumed propensities are too high.

    >>> ips_bias([1.0, 3.0], true=[0.5, 0.5], assumed=[0.5, 1.0])
    0.75
    """
    return estimator_bias(delta, true=true, weight=1.0 / as_propensity_cells("assumed", assumed))


def estimator_bias(
    delta: npt.ArrayLike,
    *,
    true: npt.ArrayLike,
    weight: npt.ArrayLike,
    imputed: npt.ArrayLike | float = 0.0,
) -> float:
    """1/(U I) * sum of (1 - P h) * (delta - delta-hat): the bias of an estimator divided by U I.

    The bias is the true risk minus the expectation of the estimator

        1/(U I) * [sum of delta-hat over all cells + sum of h * (delta - delta-hat) over the log]

    with ``weight`` h and ``imputed`` delta-hat (an array, or one number for all cells). This form
    covers IPS, clipped IPS, imputation (h = 1), doubly robust and SWITCH. It does not cover naive
    and SNIPS, because they divide by a random number.
    """
    delta, true = as_finite_cells("delta", delta), as_propensity_cells("true", true)
    weight, imputed = as_finite_cells("weight", weight), as_finite_cells("imputed", imputed)
    _check_same_shape("delta", delta, "true", true)
    _check_same_shape("delta", delta, "weight", weight)
    if imputed.ndim:
        _check_same_shape("delta", delta, "imputed", imputed)
    if (weight < 0).any():
        raise UsageError(
            f"`weight` has {count_noun(int((weight < 0).sum()), 'negative value')}; "
            f"the smallest is {weight.min()}.",
            parameter="weight",
            value=weight.min(),
        )
    return float(np.mean((1.0 - true * weight) * (delta - imputed)))


def ips_variance(delta: npt.ArrayLike, propensities: npt.ArrayLike) -> float:
    """1/(U I)^2 * sum of delta^2 * (1 - P) / P: the variance of IPS.

    >>> ips_variance([1.0, 3.0], [0.5, 1.0])
    0.25
    """
    delta, p = as_finite_cells("delta", delta), as_propensity_cells("propensities", propensities)
    _check_same_shape("delta", delta, "propensities", p)
    return float(np.sum(delta**2 * (1.0 - p) / p) / p.size**2)


def tail_bound(
    delta: npt.ArrayLike, propensities: npt.ArrayLike, *, failure_probability: float = 0.05
) -> float:
    """Prop. 3.1: 1/(U I) * sqrt(log(2 / eta) / 2 * sum of rho^2).

    rho is delta / P in cells with P < 1 and 0 in cells with P = 1. The distance between IPS and
    the true risk exceeds this bound with probability at most eta, ``failure_probability``.

    >>> round(tail_bound([[1.0, 1.0], [1.0, 1.0]], [[0.5, 0.5], [0.5, 1.0]]), 4)
    1.1762
    """
    delta, p = as_finite_cells("delta", delta), as_propensity_cells("propensities", propensities)
    _check_same_shape("delta", delta, "propensities", p)
    rho = np.where(p < 1, delta / p, 0.0)
    return _hoeffding_bound(rho, n_hypotheses=1, failure_probability=failure_probability)


def erm_bound(
    empirical_risk: float,
    propensities: npt.ArrayLike,
    *,
    max_delta: float,
    n_hypotheses: int,
    failure_probability: float = 0.05,
) -> float:
    """Eq. (13), Thm 4.2: R-hat + Delta/(U I) * sqrt(log(2 |H| / eta) / 2) * sqrt(sum of 1 / P^2).

    Of ``n_hypotheses`` hypotheses, take the one with the smallest IPS risk, ``empirical_risk``.
    Its true risk exceeds this bound with probability at most ``failure_probability``. Every loss
    must lie in [0, ``max_delta``].
    """
    return erm_bound_estimated(
        empirical_risk,
        true=as_propensity_cells("propensities", propensities),
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
    """Eq. (16), Thm 5.2: the bound of :func:`erm_bound` with estimated propensities.

        R-hat + Delta/(U I) * [sum of |1 - P / P-hat|
                               + sqrt(log(2 |H| / eta) / 2) * sqrt(sum of 1 / P-hat^2)]

    The hypothesis is chosen by IPS with the ``assumed`` propensities P-hat, while the log was
    observed with the ``true`` propensities P.
    """
    Number()("empirical_risk", empirical_risk)
    bias = bias_bound(true=true, assumed=assumed, max_delta=max_delta)
    ranges = max_delta / as_propensity_cells("assumed", assumed)
    deviation = _hoeffding_bound(
        ranges, n_hypotheses=n_hypotheses, failure_probability=failure_probability
    )
    return empirical_risk + bias + deviation


def bias_bound(
    *,
    true: npt.ArrayLike,
    assumed: npt.ArrayLike,
    max_delta: float = 1.0,
    weight: npt.ArrayLike | None = None,
) -> float:
    """An upper bound on the bias of IPS with wrong propensities (second term of Eq. 16, Thm 5.2).

    It is ``max_delta`` * mean |1 - true / assumed|. The bias, Eq. (15), is at most this large for
    all losses in [0, ``max_delta``]. If the values belong to a sample of all cells, ``weight`` is
    the number of cells that each stands for.

    >>> bias_bound(true=[0.5, 0.5], assumed=[0.5, 1.0])
    0.25
    """
    p, p_hat = as_propensity_cells("true", true), as_propensity_cells("assumed", assumed)
    _check_same_shape("true", p, "assumed", p_hat)
    Number(least=0)("max_delta", max_delta)
    weights = None if weight is None else as_finite_cells("weight", weight)
    if weights is not None:
        _check_same_shape("true", p, "weight", weights)
    return float(max_delta * np.average(np.abs(1.0 - p / p_hat), weights=weights))


def _hoeffding_bound(ranges: Matrix, *, n_hypotheses: int, failure_probability: float) -> float:
    """Hoeffding's bound for a mean over all cells, simultaneously for every hypothesis.

    The terms of the mean are independent, and each lies within an interval of length ``ranges``.
    """
    Number(above=0, below=1)("failure_probability", failure_probability)
    if not (isinstance(n_hypotheses, Real) and n_hypotheses >= 1):
        raise UsageError(
            f"`n_hypotheses` must be at least 1; got {n_hypotheses!r}.",
            parameter="n_hypotheses",
            value=n_hypotheses,
        )
    # A sum of logarithms, because the number of hypotheses may exceed the range of floats.
    log_term = math.log(2) + math.log(n_hypotheses) - math.log(failure_probability)
    return math.sqrt(log_term / 2) * float(np.linalg.norm(ranges.ravel())) / ranges.size


def as_finite_cells(name: str, values: npt.ArrayLike) -> Matrix:
    """``values`` as float64; an empty array, NaN and infinity are refused."""
    cells = float_array(values, name)
    remedy = "Give a number for every cell, observed or not."
    _require_valid(name, cells, np.isfinite(cells), "not finite", UsageError, remedy)
    return cells


def as_propensity_cells(name: str, values: npt.ArrayLike) -> Matrix:
    """``values`` as float64; an empty array and values outside [1e-100, 1] are refused."""
    cells = float_array(values, name, BadPropensityError)
    is_tiny, fault = (cells > 0) & (cells < SMALLEST), f"too small to invert (below {SMALLEST:g})"
    remedy = "Give every cell the probability with which it is observed."
    if is_tiny.any():
        _require_valid(name, cells, ~is_tiny, fault, BadPropensityError, remedy)
    remedy = "Give one for every cell, and leave out cells that can never be observed."
    is_valid = (cells > 0) & (cells <= 1)
    _require_valid(name, cells, is_valid, "outside (0, 1]", BadPropensityError, remedy)
    return cells


def _require_valid(
    name: str,
    cells: Matrix,
    is_valid: BoolVector,
    fault: str,
    error: type[UsageError] | type[BadPropensityError],
    remedy: str,
) -> None:
    if cells.size and is_valid.all():
        return
    problem = f"`{name}` is empty."
    if cells.size:
        cell = tuple(int(index) for index in np.unravel_index(int(is_valid.argmin()), cells.shape))
        problem = (
            f"{int((~is_valid).sum())} of {cells.size} values of `{name}` are {fault}; "
            f"the first is {cells[cell]} at cell {cell}."
        )
    raise error(problem, parameter=name, remedy=remedy)


def _check_same_shape(first: str, one: Matrix, second: str, other: Matrix) -> None:
    if one.shape != other.shape:
        raise UsageError(
            f"`{first}` has shape {one.shape}, but `{second}` has shape {other.shape}; "
            "both need one value for each cell.",
            parameter=second,
            value=other.shape,
        )
