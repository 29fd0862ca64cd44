"""What recommenders that learn from all cells share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.factorization.initialization import check_initial_factors, small_random
from unskew.factorization.solution import FitOptions, Solver, minimize
from unskew.models.recommender import FactorRecommender
from unskew.settings import WholeNumber, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import Vector


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
            self._show_steps() as report,
        ):
            solution = minimize(
                self._make_solver(log, propensity, workers),
                self._make_start(log, initial_factors),
                max_iter=self.max_iter,
                tol=self.tol,
                checkpoint=saved,
                report=report,
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
        """``initial_factors``, or small random items; users are solved first, and start at zero."""
        return initial_factors or small_random(
            (log.n_users, log.n_items),
            n_factors=self.n_factors,
            random_state=self.random_state,
            with_users=False,
        )

    def _record_parameters(self, log: Ratings, parameters: Any) -> None:
        """Keep what the solver found."""
        self._record_factors(log, parameters, parameters.global_offset)
