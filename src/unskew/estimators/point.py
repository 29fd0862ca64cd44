"""The estimators themselves, as functions of sums. Each formula stands here once."""

from __future__ import annotations

import numpy as np

from unskew.errors import UsageError
from unskew.estimators.estimate import Estimate
from unskew.estimators.sums import Sums
from unskew.types import Matrix, Vector


def self_normalized(sums: Sums) -> Estimate:
    """Eq. (11), SNIPS: sum h delta / sum h. With h = 1 it is Eq. (5), the naive average.

    By the delta method its error is the sum over cells of h (delta - R) / sum h.
    """
    if sums.weight == 0:
        raise UsageError(
            "the weights add up to zero: no cell is left to average over. Loosen the transform or the threshold."
        )
    risk = sums.weighted_delta / sums.weight
    influence = np.column_stack([np.eye(risk.size), -risk]) / sums.weight
    replicates = (
        None
        if sums.replicates is None
        else sums.replicates[:, :-1] / sums.replicates[:, -1:] + sums.shift
    )
    return _estimate(risk + sums.shift, sums, influence, replicates)


def ips(sums: Sums, *, n_cells: int) -> Estimate:
    """Eq. (10): inverse propensity scoring, sum h delta / (U * I). Unbiased; ``n_cells`` is U * I.

    Doubly robust estimation is this too, of sums of (delta - imputed delta) whose known part is the imputed deltas.
    """
    risk = sums.weighted_delta / n_cells
    influence = np.column_stack([np.eye(risk.size), np.zeros(risk.size)]) / n_cells
    replicates = None if sums.replicates is None else sums.replicates[:, :-1] / n_cells
    return _estimate(risk, sums, influence, replicates)


def _estimate(risk: Vector, sums: Sums, influence: Matrix, replicates: Matrix | None) -> Estimate:
    covariance = (
        sums.covariance(influence) if replicates is None else np.atleast_2d(np.cov(replicates.T))
    )
    return Estimate(risk, covariance, sums.n_clusters, sums.n_left_out, replicates)
