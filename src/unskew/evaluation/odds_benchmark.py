"""How large an odds error is, in terms of two propensity models."""

from __future__ import annotations

import numpy as np

from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.settings import is_finite_number


def odds_error_between(
    first: PropensitiesLike, second: PropensitiesLike, log: Ratings, *, quantile: float = 0.95
) -> float:
    """The factor by which the odds P / (1 - P) of two propensities differ on the logged cells.

    It is a benchmark for :func:`unskew.sensitivity`: a model with and without a covariate says how
    strong an unknown covariate would have to be; naive Bayes and popularity say how strongly people
    select by rating. The factor of a cell is at least 1, whichever odds are larger.

    Parameters
    ----------
    first, second
        Propensities of the log: values in its order, a matrix, or a fitted model.
    log
        The logged cells.
    quantile
        The share of the cells whose odds differ by at most this factor.

    Examples
    --------
    >>> log = Ratings.from_dense([[5, 1, 0], [0, 5, 0]])
    >>> odds_error_between([0.5, 0.5, 0.5], [0.5, 0.6, 0.25], log, quantile=1)
    3.0
    """
    if not (is_finite_number(quantile) and 0 <= quantile <= 1):
        raise UsageError(
            f"`quantile` must be a number from 0 to 1, such as 0.95; got {quantile!r}.",
            parameter="quantile",
            value=quantile,
        )
    excess = [as_propensities(log, each).inverse - 1.0 for each in (first, second)]
    low, high = np.minimum(*excess), np.maximum(*excess)
    with np.errstate(divide="ignore"):
        factor = np.divide(high, low, out=np.ones_like(high), where=high > 0)
    return float(np.quantile(factor, quantile, method="inverted_cdf"))
