"""Weighted factorisation of implicit feedback (Hu, Koren & Volinsky 2008)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import DataError
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.checkpoints import Checkpoint
from unskew.factorization.engine import AllCellsEngine, FitRequest
from unskew.factorization.penalty import Penalty
from unskew.factorization.solution import Report, Solution
from unskew.models import RECOMMENDERS
from unskew.models.all_cells import AllCellsLoss, AllCellsRecommender
from unskew.models.engine_choice import find_all_cells_engine
from unskew.settings import Number, OneOf, setting
from unskew.threads import Workers
from unskew.types import Vector

CONFIDENCES: Mapping[str, Callable[[Vector], Vector]] = {
    "linear": lambda signal: signal,
    "log": np.log1p,
}


@RECOMMENDERS.declare(
    "wmf",
    label="WMF",
    summary="Weighted factorisation of clicks or counts (Hu et al. 2008).",
)
@dataclass(eq=False, repr=False)
class WeightedFactorization(AllCellsRecommender):
    """F_ui = v_u . w_i, fitted to 1 where there is a signal and to 0 elsewhere.

        min  sum over all cells of  c (1{signal > 0} - F)^2  +  ridge (||V||^2 + ||W||^2)
        c = 1 + alpha signal

    The log's ratings are the signals: counts of plays, minutes watched, or 1 for each click. Every
    rating above 0 counts as a preference, so binarise star ratings first. Predictions only rank
    items: evaluate them with ranking metrics (Y. Hu, Y. Koren & C. Volinsky, *Collaborative
    filtering for implicit feedback datasets*, ICDM 2008). Propensities divide the signal:
    c = 1 + alpha signal / P.

    The other settings are those of :class:`MatrixFactorization`.

    Parameters
    ----------
    n_factors
        The number of columns of V and W.
    ridge
        The factor of the squared norms, as in the paper.
    alpha
        The confidence that one unit of the signal adds to the 1 of every cell.
    confidence
        ``"linear"`` in the signal, or ``"log"``: c = 1 + alpha log(1 + signal / unit).
    unit
        The unit of the signal, in both forms.
    tol
        The fit stops when the last sweeps lowered the objective by at most this share per sweep. It
        is larger than in other models, because the objective is flat: with 1e-6 a fit takes
        three times as many sweeps, and gains about a thousandth.
    """

    predicts_ratings: ClassVar[bool] = False

    ridge: float = setting(1.0, Number(least=0))
    _: KW_ONLY
    alpha: float = setting(40.0, Number(above=0))
    confidence: Literal["linear", "log"] = setting("linear", OneOf(tuple(CONFIDENCES)))
    unit: float = setting(1.0, Number(above=0))
    tol: float = setting(3e-5, Number(least=0))

    def _make_solver(
        self, log: Ratings, propensity: Vector | None, workers: Workers
    ) -> AlternatingLeastSquares:
        return AlternatingLeastSquares(
            self._make_loss(log, propensity).make_objective(
                self.n_factors,
                self.ridge,
                scales_penalty=False,
                dtype=self.dtype,
                workers=workers,
            )
        )

    def _find_engine(self, engine: str | object) -> AllCellsEngine | None:
        return find_all_cells_engine(self, engine)

    def _fit_by(
        self,
        engine: AllCellsEngine,
        log: Ratings,
        propensity: Vector | None,
        start: Factors,
        checkpoint: Checkpoint | None,
        report: Report | None,
    ) -> Solution[Factors]:
        loss = self._make_loss(log, propensity)
        rating, weight, constant = loss.split_off_unobserved()
        request = FitRequest(
            log=replace(loss.log, rating=rating),
            weight=weight,
            n_factors=self.n_factors,
            offsets="none",
            penalty=Penalty(self.ridge),
            loss="squared",
            dtype=self.dtype,
            make_start=lambda _: start,
            max_iter=self.max_iter,
            tol=self.tol,
            checkpoint=checkpoint,
            report=report,
            unobserved_weight=loss.unobserved_weight,
            constant=constant,
        )
        return engine.run(request).solution

    def _make_loss(self, log: Ratings, propensity: Vector | None) -> AllCellsLoss:
        _require_signals(log)
        has_signal = log.rating > 0
        preferred = log.take(has_signal)
        signal = preferred.rating / self.unit
        if propensity is not None:
            signal = signal / propensity[has_signal]
        weight = 1 + self.alpha * CONFIDENCES[self.confidence](signal)
        target = replace(preferred, rating=np.ones(len(preferred)))
        return AllCellsLoss(target, weight, unobserved_weight=1.0, fill=0.0)


def _require_signals(log: Ratings) -> None:
    is_negative = log.rating < 0
    if is_negative.any():
        row = int(is_negative.argmax())
        raise DataError(
            f"{int(is_negative.sum())} of {len(log)} signals are negative; the first is "
            f"{log.rating[row]:g} at {log.name_cell(row)}.",
            parameter="rating",
            value=float(log.rating[row]),
            where=log.name_cell(row),
            remedy="Signals count events and must be 0 or more: drop those rows, or shift the "
            "scale.",
        )
    if not log.rating.any():
        raise DataError(
            "every signal is 0, so there is no preference to learn from.",
            parameter="rating",
            remedy="Pass a column that is above 0 for events, such as the number of clicks.",
        )
