"""AllRank: silence counts as a low rating, a little (Steck 2010)."""

from __future__ import annotations

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.all_cells import AllCellsRecommender, Dtype, Wanted, require_at_least
from unskew.factorization.als import Alternating
from unskew.factorization.parameters import Parameters, without_offsets
from unskew.threads import Workers
from unskew.types import Vector


class AllRank(AllCellsRecommender):
    """F_ui = r_m + v_u . w_i, fitted to ratings and, with a small weight, to ``r_m`` wherever there is none.

        min  sum over all cells of  c { (Y - F)^2 + l2 (||v_u||^2 + ||w_i||^2) }

    where c = 1 on the log, and elsewhere Y = r_m and c = rho_m. The penalty lies inside the sum: a row counts by the weight of
    its cells. Judge it by ranking metrics over all items, and choose its settings by one (H. Steck, *Training and testing of
    recommender systems on data missing not at random*, KDD 2010).

    ``propensities`` make a logged cell weigh c = 1 / P instead of 1; those without a rating keep rho_m.

    Parameters
    ----------
    n_factors
        Rank of V and W.
    l2
        Strength of the penalty, per unit of weight, as in the paper.
    missing_rating
        r_m, imputed where nothing is logged: on a scale of 1 to 5 the paper found 2 best. It is also the prediction for unknown
        users and items.
    missing_weight
        rho_m, from 0 (the log alone) to below 1. At Netflix's density, 1 %, the paper found 0.005 best.
    max_iter, tol
        Stop after so many sweeps, or when one lowers the objective by no more than this share of it.
    dtype
        ``"float64"``, or ``"float32"`` for half the memory and twice the speed.
    n_threads
        One for each processor by default; the result never depends on it.
    random_state
        Seed of the start.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    objective_, history_, n_iter_, converged_ : the objective reached, after each sweep, their number, and whether it was flat.
        Users are solved first, so that the start has no objective: ``history_[0]`` is inf.
    """

    predicts_ratings = False

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 0.04,
        *,
        missing_rating: float = 2.0,
        missing_weight: float = 0.005,
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Dtype = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_factors = n_factors
        self.l2 = l2
        self.missing_rating = missing_rating
        self.missing_weight = missing_weight
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _solver(self, log: Ratings, propensity: Vector | None, workers: Workers) -> Alternating:
        weight = np.ones(len(log)) if propensity is None else 1 / propensity
        wanted = Wanted(log, weight, self.missing_weight, self.missing_rating)
        return Alternating(
            wanted.problem(
                self.n_factors, self.l2, weighs_penalty=True, dtype=self.dtype, workers=workers
            )
        )

    def _begin(self, log: Ratings, warm_start: Parameters | None) -> Parameters:
        return without_offsets(self._first(log, warm_start), self.missing_rating)

    def _check(self) -> None:
        super()._check()
        require_at_least(0, "l2", self.l2)
        require_at_least(0, "missing_weight", self.missing_weight)
        if not is_finite_number(self.missing_rating):
            raise UsageError(
                f"missing_rating must be the rating that silence stands for; got {self.missing_rating!r}."
            )
        if self.missing_weight >= 1:
            raise UsageError(
                f"missing_weight must be below 1, the weight of a rating; got {self.missing_weight!r}."
            )
