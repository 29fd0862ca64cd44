"""AllRank: unobserved cells count a little, as low ratings (Steck 2010)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.factorization.als import AlternatingLeastSquares
from unskew.models import RECOMMENDERS
from unskew.models.all_cells import AllCellsLoss, AllCellsRecommender
from unskew.settings import Number, setting
from unskew.threads import Workers
from unskew.types import Vector


@RECOMMENDERS.declare(
    "allrank",
    label="AllRank",
    summary="Unobserved cells count as low ratings with a small weight (Steck 2010).",
)
@dataclass(eq=False, repr=False)
class AllRank(AllCellsRecommender):
    """F_ui = r_m + v_u . w_i, fitted to ratings and to r_m in all unobserved cells.

        min  sum over all cells of  c { (Y - F)^2 + ridge_per_weight (||v_u||^2 + ||w_i||^2) }

    c = 1 on the log. Elsewhere Y = r_m and c = rho_m. The penalty is inside the sum, so a row
    counts by the weight of its cells. Evaluate it with ranking metrics over all items, and choose
    its settings by one (H. Steck, *Training and testing of recommender systems on data missing not
    at random*, KDD 2010). With propensities an observed cell has c = 1 / P.

    The other settings are those of :class:`MatrixFactorization`.

    Parameters
    ----------
    n_factors
        The number of columns of V and W.
    ridge_per_weight
        Strength of the penalty per unit of weight, as in the paper.
    missing_rating
        r_m, the target of unobserved cells. On a scale of 1 to 5 the paper found 2 best. It is
        also the prediction for unknown users and items.
    missing_weight
        rho_m, from 0 (only the log) to below 1. With a density of 1 % the paper found 0.005 best.
    """

    predicts_ratings: ClassVar[bool] = False

    ridge_per_weight: float = setting(0.04, Number(least=0))
    _: KW_ONLY
    missing_rating: float = setting(2.0, Number())
    missing_weight: float = setting(0.005, Number(least=0, below=1))

    def _make_solver(
        self, log: Ratings, propensity: Vector | None, workers: Workers
    ) -> AlternatingLeastSquares:
        weight = np.ones(len(log)) if propensity is None else 1 / propensity
        loss = AllCellsLoss(log, weight, self.missing_weight, self.missing_rating)
        return AlternatingLeastSquares(
            loss.make_objective(
                self.n_factors,
                self.ridge_per_weight,
                scales_penalty=True,
                dtype=self.dtype,
                workers=workers,
            )
        )

    def _make_start(self, log: Ratings, initial_factors: Factors | None) -> Factors:
        return self._start_factors(log, initial_factors).without_offsets(self.missing_rating)
