"""Weighted factorisation of implicit feedback (Hu, Koren & Volinsky 2008)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import DataError, UnknownNameError
from unskew.factorization.all_cells import (
    AllCellsRecommender,
    Dtype,
    Wanted,
    require_at_least,
    require_positive,
)
from unskew.factorization.als import Alternating
from unskew.threads import Workers
from unskew.types import Vector

CONFIDENCES: Mapping[str, Callable[[Vector], Vector]] = {
    "linear": lambda signal: signal,
    "log": np.log1p,
}


class WeightedFactorization(AllCellsRecommender):
    """F_ui = v_u . w_i, fitted to 1 wherever there was a signal and to 0 elsewhere, with more confidence in strong signals.

        min  sum over all cells of  c (1{signal > 0} - F)^2  +  l2 (||V||^2 + ||W||^2),     c = 1 + alpha signal

    The log's ratings are the signals: counts of plays, minutes watched, or 1 for each click. A rating log has to be turned into
    one first, since every rating above 0 counts as a preference. Predictions rank items and are no ratings: judge them by ranking
    metrics (Y. Hu, Y. Koren & C. Volinsky, *Collaborative filtering for implicit feedback datasets*, ICDM 2008).

    ``propensities``, where given, divide the signal, c = 1 + alpha signal / P: one that had little chance to be seen counts more.

    Parameters
    ----------
    n_factors
        Rank of V and W.
    l2
        The ridge itself, as in the paper: loss and penalty are plain sums.
    alpha
        How much confidence a unit of the signal adds to the 1 that every cell has.
    confidence
        ``"linear"`` in the signal, or ``"log"``: c = 1 + alpha log(1 + signal / unit).
    unit
        What the signal is measured in, in either form.
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
        l2: float = 1.0,
        *,
        alpha: float = 40.0,
        confidence: Literal["linear", "log"] = "linear",
        unit: float = 1.0,
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Dtype = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_factors = n_factors
        self.l2 = l2
        self.alpha = alpha
        self.confidence = confidence
        self.unit = unit
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _solver(self, log: Ratings, propensity: Vector | None, workers: Workers) -> Alternating:
        _refuse_negative(log)
        is_seen = log.rating > 0
        liked = log.take(is_seen)
        signal = liked.rating / self.unit / (1 if propensity is None else propensity[is_seen])
        weight = 1 + self.alpha * CONFIDENCES[self.confidence](signal)
        wanted = Wanted(replace(liked, rating=np.ones(len(liked))), weight, silence=1.0, fill=0.0)
        return Alternating(
            wanted.problem(
                self.n_factors, self.l2, weighs_penalty=False, dtype=self.dtype, workers=workers
            )
        )

    def _check(self) -> None:
        super()._check()
        if self.confidence not in CONFIDENCES:
            raise UnknownNameError("confidence", self.confidence, CONFIDENCES)
        require_at_least(0, "l2", self.l2)
        require_positive("alpha", self.alpha)
        require_positive("unit", self.unit)


def _refuse_negative(log: Ratings) -> None:
    negative = log.rating < 0
    if negative.any():
        row = int(negative.argmax())
        raise DataError(
            f"{int(negative.sum())} of {len(log)} signals are negative; "
            f"the first is {log.rating[row]:g} at {log.name_cell(row)}. A signal counts what happened, so that it is 0 or more: "
            "leave those rows out, or shift the scale."
        )
    if not log.rating.any():
        raise DataError("every signal is 0: there is no preference to learn from.")
