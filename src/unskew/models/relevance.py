"""Rel-MF: clicks weighted by how likely they were to be seen (Saito et al. 2020)."""

from __future__ import annotations

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.data.ratings import Ratings
from unskew.errors import UnknownNameError, UsageError
from unskew.factorization.all_cells import (
    AllCellsRecommender,
    Dtype,
    clicked_cells,
    require_at_least,
)
from unskew.factorization.objective import Offsets
from unskew.factorization.parameters import Parameters
from unskew.factorization.pseudo_outcome import PseudoOutcome
from unskew.factorization.shared_gram import SharedGram
from unskew.factorization.weights import effective_l2
from unskew.threads import Workers
from unskew.types import Vector


class RelevanceFactorization(AllCellsRecommender):
    """F_ui = v_u . w_i [+ a_u + b_i + c], fitted to relevance, of which a click shows only what was exposed.

        min  sum over all cells of  (Y / theta) (1 - F)^2 + (1 - Y / theta) F^2  +  l2_eff (||V||^2 + ||W||^2 [+ offsets])

    Y is 1 for a click, and theta the chance that the item was seen at all, so that Y / theta is right on average. For squared
    loss this is sum (F - Y / theta)^2 up to a constant: the plain factorisation of Y / theta over all cells, whose objective is
    the one that is told (Y. Saito, S. Yaginuma, Y. Nishino, H. Sakata & K. Nakata, *Unbiased recommender learning from
    missing-not-at-random implicit feedback*, WSDM 2020).

    ``propensities`` are theta, one for each cell of the log. Without them theta is the item's popularity,
    ``max(floor, (clicks of the item / clicks of the most clicked one) ** power)``.

    Parameters
    ----------
    n_factors
        Rank of V and W.
    l2
        Strength of the penalty, on the scale of :class:`MatrixFactorization`: ``l2_eff = l2 * U I / (U + I) / d``, or
        ``/ (d + 1)`` with penalised offsets.
    threshold
        A rating of at least this is a click, and any other counts as none. Without one every cell of the log is a click.
    power, floor
        Of the popularity, where no propensities are given.
    offsets
        ``"none"``, as in the paper; ``"free"``; or ``"regularized"``, penalised like the factors.
    max_iter, tol
        Stop after so many sweeps, or when one lowers the objective by no more than this share of it.
    dtype
        ``"float64"``, or ``"float32"`` for half the memory.
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
        l2: float = 1.0,
        *,
        threshold: float | None = None,
        power: float = 0.5,
        floor: float = 0.01,
        offsets: Offsets = "none",
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Dtype = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_factors = n_factors
        self.l2 = l2
        self.threshold = threshold
        self.power = power
        self.floor = floor
        self.offsets: Offsets = offsets
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _solver(self, log: Ratings, propensity: Vector | None, workers: Workers) -> SharedGram:
        is_click = clicked_cells(log, self.threshold)
        clicks = log.take(is_click)
        exposure = (
            popularity(clicks, power=self.power, floor=self.floor)
            if propensity is None
            else propensity[is_click]
        )
        outcome = PseudoOutcome.of(clicks, 1 / exposure, dtype=self.dtype)
        l2 = effective_l2(
            self.l2, log, n_factors=self.n_factors, penalizes_offsets=self.offsets == "regularized"
        )
        return SharedGram(outcome, self.n_factors, self.offsets, l2, workers)

    def _begin(self, log: Ratings, warm_start: Parameters | None) -> Parameters:
        return self._first(log, warm_start)

    def _check(self) -> None:
        super()._check()
        if self.offsets not in ("none", "free", "regularized"):
            raise UnknownNameError("offsets", self.offsets, ("none", "free", "regularized"))
        require_at_least(0, "l2", self.l2)
        require_at_least(0, "power", self.power)
        if not (is_finite_number(self.floor) and 0 < self.floor <= 1):
            raise UsageError(
                f"floor must lie in (0, 1]: the least chance of being seen; got {self.floor!r}."
            )


def popularity(clicks: Ratings, *, power: float, floor: float) -> Vector:
    """max(floor, (n_i / max n) ** power) for each cell of ``clicks``."""
    counts = np.bincount(clicks.item, minlength=clicks.n_items)
    chance: Vector = np.maximum(floor, (counts / counts.max()) ** power)
    return chance[clicks.item]
