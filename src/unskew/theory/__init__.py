"""What the paper proves, as numbers: bias, variance and bounds of the IPS estimator."""

from __future__ import annotations

from unskew.theory.bounds import (
    bias_bound,
    erm_bound,
    erm_bound_estimated,
    estimator_bias,
    ips_bias,
    ips_variance,
    tail_bound,
)

__all__ = [
    "bias_bound",
    "erm_bound",
    "erm_bound_estimated",
    "estimator_bias",
    "ips_bias",
    "ips_variance",
    "tail_bound",
]
