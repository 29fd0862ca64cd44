"""Recommenders that learn from all cells of the matrix: those of the log, and the silence of the others."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.binarize import require_threshold
from unskew.data.checks import is_finite_number, whole_number
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.errors import UnknownNameError, UsageError
from unskew.factorization.objective import Objective, SortedCells
from unskew.factorization.parameters import Parameters, require_parameters, without_offsets
from unskew.factorization.solution import Iterative, run
from unskew.factorization.solver import Solver
from unskew.models.factored import FactorRecommender
from unskew.progress import progress_line
from unskew.threads import Workers, single_blas_thread
from unskew.types import BoolVector, Vector

Dtype: TypeAlias = Literal["float64", "float32"]
START = 0.1
"""About the length of an item's factors at the start."""
LEAST_EXTRA = 1e-6
"""The least share of its weight that a logged cell has beyond that of silence: less would cost the objective its digits."""


class AllCellsRecommender(FactorRecommender, Iterative):
    """Fitted step by step to every cell. A subclass says by which solver; its docstring, what propensities mean to it."""

    n_factors: int
    max_iter: int
    tol: float
    dtype: Dtype
    n_threads: int | None
    random_state: int
    verbose: bool

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        warm_start: Parameters | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
    ) -> Self:
        """Fit to a log: its cells, and all others of its users and items.

        ``warm_start`` begins at the parameters of another fit on the same users and items. With ``checkpoint`` the state is
        written there every so many steps, and a run that finds its own file goes on from it, to the same result bit for bit.
        """
        require_log(log)
        require_parameters(warm_start, (log.n_users, log.n_items, self.n_factors))
        self._check()
        given = None if propensities is None else as_propensities(log, propensities).values
        named: list[npt.NDArray[Any]] = [
            log.user,
            log.item,
            log.rating,
            *([] if given is None else [given]),
        ]
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as line,
        ):
            outcome = run(
                self._solver(log, given, workers),
                lambda: self._begin(log, warm_start),
                max_iter=self.max_iter,
                tol=self.tol,
                checkpoint=self._checkpoint(
                    checkpoint,
                    checkpoint_every,
                    *named,
                    sizes=(log.n_users, log.n_items),
                    begin=warm_start,
                ),
                report=lambda step, value: line(f"step {step}, objective {value:.6g}"),
            )
        self._tell(outcome)
        self._keep(log, outcome.parameters)
        return self

    @abstractmethod
    def _solver(
        self, log: Ratings, propensity: Vector | None, workers: Workers
    ) -> Solver[Any, Any]:
        """What brings the objective down."""

    def _begin(self, log: Ratings, warm_start: Parameters | None) -> Any:
        """Where the run starts."""
        return without_offsets(self._first(log, warm_start))

    def _first(self, log: Ratings, warm_start: Parameters | None) -> Parameters:
        """As given, or small random factors, as zero is a saddle; the users' are solved for first and need none."""
        if warm_start is not None:
            return warm_start
        rng = np.random.default_rng(self.random_state)
        items = rng.normal(0.0, START / np.sqrt(self.n_factors), (log.n_items, self.n_factors))
        users = np.zeros((log.n_users, self.n_factors))
        return Parameters(users, items, np.zeros(log.n_users), np.zeros(log.n_items), 0.0)

    def _keep(self, log: Ratings, found: Any) -> None:
        """Remember what the run found."""
        self._remember(log, found, found.constant)

    def _check(self) -> None:
        whole_number("n_factors", self.n_factors, least=1)
        self._check_run()
        if self.dtype not in ("float64", "float32"):
            raise UnknownNameError("dtype", self.dtype, ("float64", "float32"))


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What a model asks of all cells: weight * (target - F)^2 on those of ``log``, silence * (fill - F)^2 on the others."""

    log: Ratings
    """Its ratings are the targets."""
    weight: Vector
    """Of each of its cells, above ``silence``."""
    silence: float
    fill: float

    def problem(
        self, n_factors: int, l2: float, *, weighs_penalty: bool, dtype: Dtype, workers: Workers
    ) -> Objective:
        """The same as extra weight on the log, and a sum over all cells that every row shares.

            c (t - f)^2 = (c - m) (t c / (c - m) - f)^2 + m f^2 - t^2 c m / (c - m)

        With ``weighs_penalty`` a row's penalty counts once for each cell, by its weight: the penalty lies inside the sum.
        """
        target, extra = self.log.rating - self.fill, self._extra()
        log = replace(self.log, rating=self.fill + target * self.weight / extra)
        by_user = SortedCells.of(
            log.user, log.item, log.rating, 1 / extra, shape=(log.n_users, log.n_items), dtype=dtype
        )
        by_item = SortedCells.of(
            log.item, log.user, log.rating, 1 / extra, shape=(log.n_items, log.n_users), dtype=dtype
        )
        if weighs_penalty:
            by_user, by_item = (
                self._weighed(by_user, log.n_items),
                self._weighed(by_item, log.n_users),
            )
        fixed = -self.silence * float((np.square(target) * self.weight / extra).sum())
        return Objective(by_user, by_item, n_factors, "none", l2, workers, self.silence, fixed)

    def _extra(self) -> Vector:
        """What cells of the log weigh beyond the others."""
        extra = self.weight - self.silence
        little = extra < LEAST_EXTRA * self.weight
        if little.any():
            row = int(little.argmax())
            raise UsageError(
                f"{int(little.sum())} of {len(self.log)} cells weigh no more than silence does, or hardly so; "
                f"the first is {self.log.name_cell(row)}, which weighs {self.weight[row]:g} against {self.silence:g}. "
                "Give silence less weight, or the log more."
            )
        return extra

    def _weighed(self, side: SortedCells, n_partners: int) -> SortedCells:
        total = side.weight_of_rows + self.silence * n_partners
        return replace(side, row_ridge=total.astype(side.row_ridge.dtype))


def clicked_cells(log: Ratings, threshold: float | None) -> BoolVector:
    """Which cells are clicks: those rated ``threshold`` or better; without one, all of them."""
    if threshold is None:
        if not log.rating.all():
            raise UsageError(
                "some ratings are 0, which is no click. Pass threshold=1, or leave those rows out."
            )
        return np.ones(len(log), np.bool_)
    require_threshold(threshold)
    is_click: BoolVector = log.rating >= threshold
    if not is_click.any():
        raise UsageError(
            f"no rating reaches threshold={threshold:g}; the highest is {log.rating.max():g}. Lower it."
        )
    return is_click


def require_at_least(least: float, name: str, value: float) -> None:
    """Refuse a setting that is smaller, or no number."""
    if not (is_finite_number(value) and value >= least):
        raise UsageError(f"{name} must be a finite number, at least {least:g}; got {value!r}.")


def require_positive(name: str, value: float) -> None:
    """Refuse a setting that is 0 or less, or no number."""
    if not (is_finite_number(value) and value > 0):
        raise UsageError(f"{name} must be a finite number above 0; got {value!r}.")
