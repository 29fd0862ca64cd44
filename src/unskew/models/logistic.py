"""Factorisation of the log odds of a click."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from scipy import special

from unskew.data.clicks import binarize
from unskew.data.factors import Factors
from unskew.data.ids import Ids
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.errors import BadRatingError, UsageError
from unskew.factorization.engine import Engine, FitRequest, FitResult
from unskew.factorization.majorize import LogLoss, MajorizeMinimize
from unskew.factorization.objective import Objective
from unskew.factorization.solution import Solver
from unskew.models import RECOMMENDERS
from unskew.models.engine_choice import find_log_engine
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.types import IntVector, Scorer, Scores, Vector


@RECOMMENDERS.declare(
    "logistic",
    label="Logistic MF",
    summary="Factorisation of the log odds of a click, weighted by inverse propensities.",
    traits={"needs_clicks": True},
)
@dataclass(eq=False, repr=False)
class LogisticFactorization(MatrixFactorization):
    """P(click) = 1 / (1 + exp(-F_ui)) with F_ui = v_u . w_i + a_u + b_i + c.

        min  sum over the log of  (log(1 + exp F) - Y F) / P
             +  ridge (||V||^2 + ||W||^2 [+ ||a||^2 + ||b||^2 + c^2])

    ``predict`` gives probabilities. There is no doubly robust log loss: its pseudo-outcomes lie
    outside [0, 1], where log loss has no minimum. Use :class:`DoublyRobustFactorization` with a
    ``relevance_threshold`` instead.

    The other settings are those of :class:`MatrixFactorization`; ``loss`` and ``solver`` must keep
    their defaults.

    Parameters
    ----------
    relevance_threshold
        Ratings of at least this are clicks, others are not. By default ratings must be 0 and 1.
    """

    def fit(  # type: ignore[override]  # no engine that reads frames fits log loss
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        initial_factors: Factors | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        engine: str | Engine = "auto",
    ) -> Self:
        """Fit to a log; the arguments are those of :meth:`MatrixFactorization.fit`.

        Parameters
        ----------
        engine
            ``"local"``, ``"gpu"`` (needs the extra 'gpu'), or an engine with settings such as
            :class:`unskew.engines.GpuEngine`. ``"auto"`` is ``"local"``.
        """
        other_engine = find_log_engine(self, engine)
        return super().fit(
            log,
            propensities,
            initial_factors=initial_factors,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            engine=other_engine or "local",
        )

    def _prepare_fit(
        self, log: Ratings, propensities: PropensitiesLike | None, **options: Any
    ) -> FitRequest:
        require_log(log)
        threshold = self.relevance_threshold
        _require_clicks(log if threshold is None else binarize(log, threshold))
        return super()._prepare_fit(log, propensities, **options)

    def _finish_fit(self, log: Ratings, target: Ratings, result: FitResult) -> None:
        super()._finish_fit(log, target, result)
        if self.offsets == "none":
            self.fallback_ = float(special.logit(self.fallback_))

    def _require_foldable(self, propensities: object) -> None:
        raise UsageError(
            "fold_in solves rows of squared loss, and log loss has no exact row solution.",
            remedy="Use MatrixFactorization with `relevance_threshold`, or fit again.",
        )

    def _check_settings(self) -> None:
        super()._check_settings()
        for name, value, default in (
            ("loss", self.loss, "squared"),
            ("solver", self.solver, "auto"),
        ):
            if value != default:
                raise UsageError(
                    "LogisticFactorization always minimises log loss with its own solver; "
                    f"`{name}` cannot be {value!r}.",
                    parameter=name,
                    value=value,
                    remedy=f"Leave `{name}` out.",
                )

    @property
    def _loss_name(self) -> Literal["log"]:
        return "log"

    def _make_solver(self, objective: Objective) -> Solver[Any, Factors]:
        return MajorizeMinimize(
            LogLoss.of(objective),
            self.n_factors,
            self.offsets,
            objective.penalty,
            self.dtype,
            objective.workers,
        )

    def _make_start(self, log: Ratings, mean: float) -> Factors:
        start = super()._make_start(log, mean)
        if self.offsets == "none":
            return start
        return replace(start, global_offset=float(special.logit(start.global_offset)))

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        probability: Vector = special.expit(super()._predict_codes(user, item))
        return probability

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """Scores that are probabilities of clicks, as :meth:`predict` gives them."""
        score_logits = super().scorer(users, items)

        def score_probabilities(codes: IntVector, /) -> Scores:
            probabilities: Scores = special.expit(score_logits(codes))
            return probabilities

        return score_probabilities


def _require_clicks(log: Ratings) -> None:
    is_other = ~np.isin(log.rating, (0.0, 1.0))
    if is_other.any():
        row = int(is_other.argmax())
        raise BadRatingError(
            f"log loss needs ratings 0 and 1; there is {log.rating[row]:g} at "
            f"{log.name_cell(row)}.",
            parameter="relevance_threshold",
            value=float(log.rating[row]),
            where=log.name_cell(row),
            remedy="Pass `relevance_threshold=4`, for example, if ratings from 4 on are clicks.",
        )
    if np.ptp(log.rating) == 0:
        raise BadRatingError(
            f"every rating is {log.rating[0]:g}, but log loss needs clicks and cells without one.",
            parameter="rating",
            remedy="If the log has clicks only, use RelevanceFactorization.",
        )
