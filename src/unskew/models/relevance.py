"""Rel-MF: clicks divided by their probability of exposure (Saito et al. 2020)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from unskew.data.clicks import find_clicks
from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.factorization.checkpoints import Checkpoint
from unskew.factorization.engine import AllCellsEngine, PseudoOutcomeRequest
from unskew.factorization.objective import scaled_ridge
from unskew.factorization.penalty import Offsets, Penalty
from unskew.factorization.pseudo_outcome import PseudoOutcome, PseudoOutcomeSolver
from unskew.factorization.solution import Report, Solution
from unskew.models import RECOMMENDERS
from unskew.models.all_cells import AllCellsRecommender
from unskew.models.engine_choice import find_all_cells_engine
from unskew.settings import Number, OneOf, setting
from unskew.threads import Workers
from unskew.types import Vector


@RECOMMENDERS.declare(
    "relmf",
    label="Rel-MF",
    summary="Clicks divided by the probability that the item was seen (Saito et al. 2020).",
)
@dataclass(eq=False, repr=False)
class RelevanceFactorization(AllCellsRecommender):
    """F_ui = v_u . w_i [+ a_u + b_i + c], fitted to relevance, which clicks show only if exposed.

        min  sum over all cells of  (Y / theta) (1 - F)^2 + (1 - Y / theta) F^2
             +  ridge (||V||^2 + ||W||^2 [+ offsets])

    Y is 1 for a click, and theta the probability that the user saw the item, so Y / theta is
    unbiased for relevance. Up to a constant this is sum (F - Y / theta)^2, which is the objective
    that the fit reports (Y. Saito, S. Yaginuma, Y. Nishino, H. Sakata & K. Nakata, *Unbiased
    recommender learning from missing-not-at-random implicit feedback*, WSDM 2020). Propensities
    are theta. Without them theta is the item's popularity,
    ``max(floor, (clicks of the item / clicks of the most clicked item) ** power)``.

    The other settings are those of :class:`MatrixFactorization`.

    Parameters
    ----------
    n_factors
        The number of columns of V and W.
    l2
        Strength of the penalty, on the scale of :class:`MatrixFactorization`.
    relevance_threshold
        Ratings of at least this are clicks, others are not. By default every cell of the log is.
    power, floor
        Parameters of the popularity, used without propensities.
    offsets
        ``"none"`` as in the paper, ``"free"``, or ``"regularized"``.
    """

    predicts_ratings: ClassVar[bool] = False

    l2: float = setting(1.0, Number(least=0))
    _: KW_ONLY
    relevance_threshold: float | None = setting(None)
    power: float = setting(0.5, Number(least=0))
    floor: float = setting(0.01, Number(above=0, most=1))
    offsets: Offsets = setting("none", OneOf(("none", "free", "regularized")))

    def _find_engine(self, engine: str | object) -> AllCellsEngine | None:
        return find_all_cells_engine(self, engine)

    def _make_solver(
        self, log: Ratings, propensity: Vector | None, workers: Workers
    ) -> PseudoOutcomeSolver:
        clicks, correction = self._divide_clicks(log, propensity)
        outcome = PseudoOutcome.of(clicks, correction, dtype=self.dtype)
        penalty = self._make_penalty(log)
        return PseudoOutcomeSolver(outcome, self.n_factors, self.offsets, penalty, workers)

    def _fit_by(
        self,
        engine: AllCellsEngine,
        log: Ratings,
        propensity: Vector | None,
        start: Factors,
        checkpoint: Checkpoint | None,
        report: Report | None,
    ) -> Solution[Factors]:
        clicks, correction = self._divide_clicks(log, propensity)
        request = PseudoOutcomeRequest(
            log=clicks,
            correction=correction,
            imputed=None,
            n_factors=self.n_factors,
            offsets=self.offsets,
            penalty=self._make_penalty(log),
            dtype=self.dtype,
            start=start,
            max_iter=self.max_iter,
            tol=self.tol,
            checkpoint=checkpoint,
            report=report,
        )
        return engine.run_pseudo_outcome(request)

    def _divide_clicks(self, log: Ratings, propensity: Vector | None) -> tuple[Ratings, Vector]:
        """The clicks, and 1 / theta of each."""
        is_click = find_clicks(log, self.relevance_threshold)
        clicks = log.take(is_click)
        if propensity is None:
            exposure = popularity_exposure(clicks, power=self.power, floor=self.floor)
        else:
            exposure = propensity[is_click]
        return clicks, 1 / exposure

    def _make_penalty(self, log: Ratings) -> Penalty:
        penalizes_offsets = self.offsets == "regularized"
        ridge = scaled_ridge(
            self.l2, log, n_factors=self.n_factors, penalizes_offsets=penalizes_offsets
        )
        return Penalty.equal(ridge, self.offsets)

    def _make_start(self, log: Ratings, initial_factors: Factors | None) -> Factors:
        return self._start_factors(log, initial_factors)


def popularity_exposure(clicks: Ratings, *, power: float, floor: float) -> Vector:
    """max(floor, (n_i / max n) ** power) for each cell of ``clicks``."""
    counts = np.bincount(clicks.item, minlength=clicks.n_items)
    exposure: Vector = np.maximum(floor, (counts / counts.max()) ** power)
    return exposure[clicks.item]
