"""What recommenders that learn from all cells share: the fit, and a loss over all cells."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.errors import UsageError
from unskew.factorization.checkpoints import Checkpoint
from unskew.factorization.engine import AllCellsEngine, Engine
from unskew.factorization.initialization import check_initial_factors, small_random
from unskew.factorization.objective import Objective, SortedCells, sort_both_ways
from unskew.factorization.penalty import Penalty
from unskew.factorization.solution import Dtype, FitOptions, Report, Solution, Solver
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.factor_recommender import FactorRecommender
from unskew.settings import WholeNumber, setting
from unskew.threads import Workers
from unskew.types import Vector

MIN_EXTRA_SHARE = 1e-6
"""The smallest share of an observed cell's weight that must exceed the unobserved weight. Less
would cost the objective its precision."""


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
        engine: str | Engine = "auto",
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
        engine
            ``"local"``, or an engine that fits this model; the others are refused by name.
        """
        other_engine = self._find_engine(engine)
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
        start = self._make_start(log, initial_factors)
        if other_engine is not None:
            with self._show_steps() as report:
                solution = self._fit_by(other_engine, log, propensity, start, saved, report)
        else:
            solution = self._minimize(
                lambda workers: self._make_solver(log, propensity, workers), start, saved
            )
        self._record_parameters(log, solution.parameters)
        self._record_solution(solution)
        return self

    def _find_engine(self, engine: str | object) -> AllCellsEngine | None:
        """The engine to fit by; None is this process."""
        refuse_other_engines(self, engine)
        return None

    def _fit_by(
        self,
        engine: AllCellsEngine,
        log: Ratings,
        propensity: Vector | None,
        start: Factors,
        checkpoint: Checkpoint | None,
        report: Report | None,
    ) -> Solution[Factors]:
        """The fit by an engine, for models that other engines fit."""
        raise NotImplementedError

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


@dataclass(frozen=True, slots=True, eq=False)
class AllCellsLoss:
    """The sum of weight (Y - F)^2 on the log, and of unobserved_weight (fill - F)^2 elsewhere."""

    log: Ratings
    """Its ratings are the targets."""
    weight: Vector
    """The weight of each observed cell; it must exceed ``unobserved_weight``."""
    unobserved_weight: float
    fill: float
    """The target of all unobserved cells."""

    def make_objective(
        self, n_factors: int, ridge: float, *, scales_penalty: bool, dtype: Dtype, workers: Workers
    ) -> Objective:
        """The loss as an objective.

        With ``scales_penalty`` the penalty of a row is multiplied by the total weight of its cells.
        """
        log, (rating, extra, constant) = self.log, self.split_off_unobserved()
        shape = log.n_users, log.n_items
        by_user, by_item = sort_both_ways(
            log.user, log.item, rating, extra, shape=shape, dtype=dtype
        )
        if scales_penalty:
            by_user = self._scale_penalty(by_user, log.n_items)
            by_item = self._scale_penalty(by_item, log.n_users)
        return Objective(
            by_user=by_user,
            by_item=by_item,
            n_factors=n_factors,
            offsets="none",
            penalty=Penalty(ridge),
            workers=workers,
            unobserved_weight=self.unobserved_weight,
            constant=constant,
        )

    def split_off_unobserved(self) -> tuple[Vector, Vector, float]:
        """The same loss as extra weight on the log, plus a sum over all cells that rows share.

            c (t - f)^2 = (c - m) (t c / (c - m) - f)^2 + m f^2 - t^2 c m / (c - m)

        with c = weight and m = unobserved_weight. Returns the ratings and the weights of the first
        term, and the sum of the last one.
        """
        target, extra = self.log.rating - self.fill, self._extra_weight()
        constant = -self.unobserved_weight * float((np.square(target) * self.weight / extra).sum())
        return self.fill + target * self.weight / extra, extra, constant

    def _extra_weight(self) -> Vector:
        """The weight of observed cells minus that of unobserved cells."""
        extra = self.weight - self.unobserved_weight
        is_too_small = extra < MIN_EXTRA_SHARE * self.weight
        if is_too_small.any():
            row = int(is_too_small.argmax())
            cell = self.log.name_cell(row)
            raise UsageError(
                "the weight of every observed cell must exceed that of unobserved cells "
                f"({self.unobserved_weight:g}); {int(is_too_small.sum())} of {len(self.log)} do "
                f"not. The first is {cell} with weight {self.weight[row]:g}.",
                value=float(self.weight[row]),
                where=cell,
                remedy="Lower the weight of unobserved cells, or raise that of the log.",
            )
        return extra

    def _scale_penalty(self, cells: SortedCells, n_opposite: int) -> SortedCells:
        total = cells.row_weights + self.unobserved_weight * n_opposite
        return replace(cells, penalty_scale=total.astype(cells.penalty_scale.dtype))
