"""An engine from another package: it predicts the weighted mean rating for every cell."""

import numpy as np

from unskew.data.cells import group_rows
from unskew.data.factors import Factors
from unskew.data.weights import weighted_mean
from unskew.factorization.engine import FitRequest, FitResult
from unskew.factorization.solution import Solution


class ToyEngine:
    """Predicts the weighted mean rating for every cell."""

    def run(self, request: FitRequest, /) -> FitResult:
        log = request.log
        mean = weighted_mean(log.rating, request.weight)
        shape = (log.n_users, request.n_factors), (log.n_items, request.n_factors)
        factors = Factors(np.zeros(shape[0]), np.zeros(shape[1]), global_offset=mean)
        starts, order = group_rows(log.user, log.n_users)
        return FitResult(
            Solution(factors, (0.0, 0.0), "converged"), mean, (starts, log.item[order])
        )
