"""What recommenders that learn from all cells share, and which logged cells are clicks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unskew.data.binarize import require_threshold
from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.errors import UsageError
from unskew.factorization.initialization import check_initial_factors
from unskew.factorization.solution import FitOptions, Solver, minimize
from unskew.models.recommender import FactorRecommender
from unskew.progress import progress_line
from unskew.settings import WholeNumber, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import BoolVector, Vector

START_NORM = 0.1
"""The expected norm of an item's factors at the start."""


@dataclass(eq=False, repr=False)
class AllCellsRecommender(FitOptions, FactorRecommender):
    """Fitted step by step to all cells, observed or not. A subclass supplies the solver."""

    n_factors: int = setting(20, WholeNumber(least=1))

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        initial_factors: Factors | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
    ) -> Self:
        """Fit to all cells of the log's users and items.

        Parameters
        ----------
        log
            The observed cells.
        propensities
            One for each observed cell. The class says what they are used for.
        initial_factors
            Start at the ``factors_`` of another fit on the same users and items.
        checkpoint, checkpoint_every
            Write the state of the fit to this file every so many steps. A fit that finds its own
            file continues from it, to the same result bit for bit.
        """
        require_log(log)
        check_initial_factors(initial_factors, (log.n_users, log.n_items, self.n_factors))
        self._check_settings()
        arrays: list[npt.NDArray[Any]] = [log.user, log.item, log.rating]
        propensity = None
        if propensities is not None:
            propensity = as_propensities(log, propensities).values
            arrays.append(propensity)
        saved = self._make_checkpoint(
            checkpoint,
            checkpoint_every,
            *arrays,
            shape=(log.n_users, log.n_items),
            start=initial_factors,
        )
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as show,
        ):
            solution = minimize(
                self._make_solver(log, propensity, workers),
                self._make_start(log, initial_factors),
                max_iter=self.max_iter,
                tol=self.tol,
                checkpoint=saved,
                report=lambda step, value: show(f"step {step}, objective {value:.6g}"),
            )
        self._record_parameters(log, solution.parameters)
        self._record_solution(solution)
        return self

    @abstractmethod
    def _make_solver(
        self, log: Ratings, propensity: Vector | None, workers: Workers
    ) -> Solver[Any, Any]:
        """The solver of the model's objective."""

    def _make_start(self, log: Ratings, initial_factors: Factors | None) -> Any:
        """The parameters before the first step."""
        return self._start_factors(log, initial_factors).without_offsets()

    def _start_factors(self, log: Ratings, initial_factors: Factors | None) -> Factors:
        """``initial_factors``, or small random items, since zero is a saddle point.

        Users start at zero: they are solved first.
        """
        if initial_factors is not None:
            return initial_factors
        rng = np.random.default_rng(self.random_state)
        scale = START_NORM / np.sqrt(self.n_factors)
        items = rng.normal(0.0, scale, (log.n_items, self.n_factors))
        return Factors(np.zeros((log.n_users, self.n_factors)), items)

    def _record_parameters(self, log: Ratings, parameters: Any) -> None:
        """Keep what the solver found."""
        self._record_factors(log, parameters, parameters.global_offset)


def find_clicks(log: Ratings, relevance_threshold: float | None) -> BoolVector:
    """Which cells of the log are clicks: those rated at least the threshold, or all without one."""
    if relevance_threshold is None:
        if not log.rating.all():
            row = int((log.rating == 0).argmax())
            raise UsageError(
                f"the rating at {log.name_cell(row)} is 0, which is not a click.",
                parameter="relevance_threshold",
                where=log.name_cell(row),
                remedy="Pass `relevance_threshold=1`, or drop those rows.",
            )
        return np.ones(len(log), np.bool_)
    require_threshold(relevance_threshold)
    is_click: BoolVector = log.rating >= relevance_threshold
    if not is_click.any():
        raise UsageError(
            f"no rating reaches `relevance_threshold={relevance_threshold:g}`; the highest is "
            f"{log.rating.max():g}.",
            parameter="relevance_threshold",
            value=relevance_threshold,
            remedy="Lower it.",
        )
    return is_click
