"""Factorisation of the logit of a click."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from scipy import special

from unskew.data.binarize import binarize
from unskew.data.ids import Ids
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.errors import BadRatingError
from unskew.estimators.transforms import WeightTransform
from unskew.factorization.majorize import Touching
from unskew.factorization.objective import Objective, Offsets
from unskew.factorization.parameters import Parameters, require_parameters
from unskew.factorization.solver import Solver
from unskew.factorization.weights import Normalization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.types import IntVector, Scorer, Scores, Vector


@dataclass(frozen=True, slots=True, eq=False)
class LogLoss:
    """sum of w (log(1 + exp F) - Y F) over the cells of a problem."""

    user: IntVector
    item: IntVector
    shape: tuple[int, int]
    click: Vector
    weight: Vector

    @classmethod
    def of(cls, problem: Objective) -> Self:
        """Its ratings are the clicks."""
        side = problem.by_user
        user = np.repeat(np.arange(side.n_rows, dtype=np.int32), np.diff(side.starts))
        shape, weight = (
            (side.n_rows, problem.by_item.n_rows),
            np.square(side.root_weight.astype(np.float64)),
        )
        return cls(
            user, side.partner.astype(np.int32), shape, side.rating.astype(np.float64), weight
        )

    def loss(self, prediction: Vector, /) -> float:
        """The log loss, summed."""
        return float(self.weight @ (np.logaddexp(0, prediction) - self.click * prediction))

    def above(self, prediction: Vector, _: int, /) -> tuple[Vector, Vector]:
        """The parabola of Jaakkola & Jordan (2000): log(1 + exp F) <= F / 2 + k F^2 + constant, k = tanh(F0 / 2) / (4 F0)."""
        size = np.maximum(np.abs(prediction), 1e-6)
        curvature = np.tanh(size / 2) / (4 * size)
        return (self.click - 0.5) / (2 * curvature), self.weight * curvature


class LogisticFactorization(MatrixFactorization):
    """P(click) = 1 / (1 + exp(-F_ui)), F_ui = v_u . w_i + a_u + b_i + c, fitted by log loss weighted by inverse propensities.

        min  sum over the log of  (log(1 + exp F) - Y F) / P  +  l2_eff (||V||^2 + ||W||^2 [+ ||a||^2 + ||b||^2 + c^2])

    ``predict`` gives probabilities. A doubly robust log loss is left out on purpose: its pseudo-outcomes lie outside [0, 1],
    where log loss has no least value; take :class:`DoublyRobustFactorization` with a ``threshold``.

    Parameters
    ----------
    threshold
        Ratings of at least this are clicks, and others none; without one the ratings must be 0 and 1.

    The other settings are those of :class:`MatrixFactorization`.
    """

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 1.0,
        *,
        threshold: float | None = None,
        offsets: Offsets = "regularized",
        normalize: Normalization = "none",
        weight_transform: WeightTransform | None = None,
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Literal["float64", "float32"] = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_factors,
            l2,
            offsets=offsets,
            normalize=normalize,
            weight_transform=weight_transform,
            threshold=threshold,
            max_iter=max_iter,
            tol=tol,
            dtype=dtype,
            n_threads=n_threads,
            random_state=random_state,
            verbose=verbose,
        )

    def fit(  # type: ignore[override]  # engines know squared loss alone
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        warm_start: Parameters | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
    ) -> Self:
        """As :meth:`MatrixFactorization.fit`."""
        require_log(log)
        require_parameters(warm_start, (log.n_users, log.n_items, self.n_factors))
        _require_clicks(binarize(log, self.threshold))
        saved = {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every}
        super().fit(log, propensities, warm_start=warm_start, **saved)  # type: ignore[arg-type]
        if self.offsets == "none":
            self.fallback_ = float(special.logit(self.fallback_))
        return self

    def _solver(self, problem: Objective) -> Solver[Any, Parameters]:
        return Touching(
            LogLoss.of(problem),
            self.n_factors,
            self.offsets,
            problem.l2,
            self.dtype,
            problem.workers,
        )

    def _begin(self, log: Ratings, mean: float) -> Parameters:
        begin = super()._begin(log, mean)
        return (
            replace(begin, constant=float(special.logit(begin.constant)))
            if self.offsets != "none"
            else begin
        )

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        probability: Vector = special.expit(super()._predict_codes(user, item))
        return probability

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """Probabilities of clicks, as :meth:`predict` gives them."""
        logits = super().scorer(users, items)

        def probabilities(codes: IntVector, /) -> Scores:
            found: Scores = special.expit(logits(codes))
            return found

        return probabilities


def _require_clicks(log: Ratings) -> None:
    other = ~np.isin(log.rating, (0.0, 1.0))
    if not other.any() and np.ptp(log.rating) == 0:
        raise BadRatingError(
            f"every rating is {log.rating[0]:g}: log loss needs cells with a click and others. "
            "For clicks alone take RelevanceFactorization."
        )
    if other.any():
        row = int(other.argmax())
        raise BadRatingError(
            f"log loss needs ratings of 0 and of 1; there is {log.rating[row]:g} at {log.name_cell(row)}. "
            "Pass threshold=4, for example, to take ratings of 4 and more as clicks."
        )
