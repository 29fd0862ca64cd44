"""What the paper proves, as numbers: bias, variance and bounds of the IPS estimator over ALL cells, observed or not.

Arrays hold one value for each cell of the matrix, in any shape; observations are independent given their propensities.
"""

from __future__ import annotations

from unskew.theory.bounds import bias_bound, erm_bound, erm_bound_estimated, tail_bound
from unskew.theory.moments import estimator_bias, ips_bias, ips_variance

__all__ = [
    "bias_bound",
    "erm_bound",
    "erm_bound_estimated",
    "estimator_bias",
    "ips_bias",
    "ips_variance",
    "tail_bound",
]
