"""Exact bias and variance over all observation patterns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unskew.errors import UsageError
from unskew.theory.cells import finite_cells, propensity_cells, same_shape


def ips_bias(delta: npt.ArrayLike, *, true: npt.ArrayLike, assumed: npt.ArrayLike) -> float:
    """Eq. (15), Lemma 5.1: 1/(U I) * sum of delta * (1 - P / P-hat), the truth minus the expectation of IPS.

    Positive where IPS comes out too low, that is where the assumed propensities are too high.

    >>> ips_bias([1.0, 3.0], true=[0.5, 0.5], assumed=[0.5, 1.0])
    0.75
    """
    return estimator_bias(delta, true=true, weight=1.0 / propensity_cells("assumed", assumed))


def estimator_bias(
    delta: npt.ArrayLike,
    *,
    true: npt.ArrayLike,
    weight: npt.ArrayLike,
    imputed: npt.ArrayLike | float = 0.0,
) -> float:
    """1/(U I) * sum of (1 - P h) * (delta - delta-hat): the truth minus the expectation of any estimator divided by U I.

    The estimator is 1/(U I) * [sum of delta-hat over all cells + sum of h * (delta - delta-hat) over observed ones], with
    ``weight`` h and ``imputed`` delta-hat (an array, or one number for all cells): IPS, clipped IPS, imputation (h = 1),
    doubly robust and SWITCH. It does not cover naive and SNIPS, whose divisor is random.
    """
    delta, true = finite_cells("delta", delta), propensity_cells("true", true)
    weight, imputed = finite_cells("weight", weight), finite_cells("imputed", imputed)
    same_shape("delta", delta, "true", true)
    same_shape("delta", delta, "weight", weight)
    if imputed.ndim:
        same_shape("delta", delta, "imputed", imputed)
    if (weight < 0).any():
        raise UsageError(
            f"weight has {int((weight < 0).sum())} negative values; the smallest is {weight.min()}."
        )
    return float(np.mean((1.0 - true * weight) * (delta - imputed)))


def ips_variance(delta: npt.ArrayLike, propensities: npt.ArrayLike) -> float:
    """1/(U I)^2 * sum of delta^2 * (1 - P) / P: the variance of IPS under independent observation.

    >>> ips_variance([1.0, 3.0], [0.5, 1.0])
    0.25
    """
    delta, p = finite_cells("delta", delta), propensity_cells("propensities", propensities)
    same_shape("delta", delta, "propensities", p)
    return float(np.sum(delta**2 * (1.0 - p) / p) / p.size**2)
