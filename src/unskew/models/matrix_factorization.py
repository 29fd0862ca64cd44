"""Propensity-scored matrix factorisation, Eq. (14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from unskew.data.clicks import binarize
from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.universe import Universe
from unskew.data.weights import (
    NORMALIZATIONS,
    Normalization,
    WeightTransform,
    drop_unweighted,
    training_weights,
    weighted_mean,
)
from unskew.errors import UnknownNameError, UsageError
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.engine import (
    Engine,
    FitRequest,
    FitResult,
    Frame,
    FrameEngine,
    FrameFitRequest,
)
from unskew.factorization.initialization import check_initial_factors, filled_svd, small_random
from unskew.factorization.lbfgs import JointLbfgs
from unskew.factorization.majorize import ReweightedLeastSquares
from unskew.factorization.objective import (
    Objective,
    Offsets,
    name_unsolved_rows,
    scaled_ridge,
    sort_both_ways,
)
from unskew.factorization.reduced import ReducedObjective
from unskew.factorization.solution import FitOptions, Solution, Solver, minimize
from unskew.models import RECOMMENDERS
from unskew.models.recommender import FactorRecommender
from unskew.registry import find_engine
from unskew.settings import Number, OneOf, WholeNumber, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import Vector

SOLVERS: Mapping[tuple[str, str], Callable[[Objective], Solver[Any, Factors]]] = {
    ("squared", "auto"): AlternatingLeastSquares,
    ("squared", "als"): AlternatingLeastSquares,
    ("squared", "reduced"): ReducedObjective.of,
    ("squared", "lbfgs"): JointLbfgs,
    ("absolute", "auto"): ReweightedLeastSquares,
    ("absolute", "reduced"): ReweightedLeastSquares,
    ("absolute", "lbfgs"): lambda objective: JointLbfgs(objective, is_absolute=True),
}
"""Solvers by loss and name."""


@dataclass(eq=False, repr=False)
class FactorizationOptions(FitOptions):
    """Settings of every model F_ui = v_u . w_i + a_u + b_i + c that is fitted to ratings."""

    n_factors: int = setting(20, WholeNumber(least=0))
    l2: float = setting(1.0, Number(least=0))
    _: KW_ONLY
    offsets: Offsets = setting("regularized", OneOf(("none", "free", "regularized")))

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.n_factors == 0 and self.offsets == "none":
            raise UsageError(
                "`n_factors=0` with `offsets='none'` leaves nothing to fit.",
                parameter="n_factors",
                value=0,
                remedy="Use at least one factor, or offsets.",
            )

    def _ridge(self, log: Ratings | Universe) -> float:
        return scaled_ridge(
            self.l2,
            log,
            n_factors=self.n_factors,
            penalizes_offsets=self.offsets == "regularized",
        )

    def _fallback(self, factors: Factors, mean: float) -> float:
        """The prediction for unknown users and items, but for their offsets."""
        return mean if self.offsets == "none" else factors.global_offset

    def _random_start(self, log: Ratings, mean: float, *, with_users: bool = False) -> Factors:
        """Small random factors; a solver that solves the users first needs none of them."""
        return small_random(
            (log.n_users, log.n_items),
            mean,
            n_factors=self.n_factors,
            has_offsets=self.offsets != "none",
            random_state=self.random_state,
            dtype=self.dtype,
            with_users=with_users,
        )


@RECOMMENDERS.declare(
    "mf",
    label="MF",
    summary="Matrix factorisation weighted by inverse propensities, Eq. (14).",
)
@dataclass(eq=False, repr=False)
class MatrixFactorization(FactorizationOptions, FactorRecommender):
    """F_ui = v_u . w_i + a_u + b_i + c, fitted to ratings weighted by inverse propensities.

        min  sum over the log of  loss(Y, F) / P  +  ridge (||V||^2 + ||W||^2 [+ ||a||^2 + ...])

    Parameters
    ----------
    n_factors
        The number of columns of V and W.
    l2
        Strength of the penalty, on the scale of the authors' code:
        ``ridge = l2 * U I / (U + I) / (d + 1)`` with penalised offsets, ``/ d`` otherwise. Weights
        add up to about U I, so the same ``l2`` has the same effect on any log.
    offsets
        ``"regularized"`` penalises a, b and c like the factors, ``"free"`` does not penalise them,
        ``"none"`` leaves them out.
    loss
        ``"squared"`` for MSE, ``"absolute"`` for MAE.
    solver
        ``"als"`` alternates between exact solutions of users and of items, with momentum. With 48
        factors or more it takes a few conjugate gradient steps instead of exact solutions, while a
        sweep gains more than 1e-4 of the objective. ``"reduced"`` runs L-BFGS over the smaller
        side and solves the other side exactly, after a few sweeps of ``"als"``. ``"lbfgs"`` is the
        solver of the paper: L-BFGS over all parameters, from the SVD of the mean-filled matrix.
        ``"auto"`` is ``"als"`` for squared loss; for absolute loss it is a sequence of weighted
        squared losses, each lowered by ``"reduced"``.
    normalize
        Rescale weights so that they add up to U I (``"self"``, MF-SNIPS), to I for each user
        (``"user"``) or to U for each item (``"item"``).
    weight_transform
        Replaces the weights 1 / P, as in :func:`unskew.evaluate`; for example
        ``unskew.estimators.Clip(30)``.
    relevance_threshold
        Fit 1 to ratings of at least this (clicks) and 0 to others. By default ratings are fitted.
    max_iter, tol
        The fit stops after ``max_iter`` steps, or when a step lowers the objective by at most
        ``tol`` times its size.
    dtype
        ``"float64"``, or ``"float32"`` for half the memory and twice the speed.
    n_threads
        The number of threads; by default one for each processor. The result does not depend on it.
    random_state
        A seed, a NumPy generator, or None for another start each time.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    factors_ : the fitted V, W, a, b and c.
    objective_, history_, n_iter_ : the objective at the end, after each step, and the number of
        steps. With solver ``"als"`` the start has no objective: ``history_[0]`` is inf.
    converged_, stop_reason_ : whether the fit converged, and why it stopped.
    """

    _: KW_ONLY
    loss: Literal["squared", "absolute"] = setting("squared", OneOf(("squared", "absolute")))
    solver: Literal["auto", "reduced", "als", "lbfgs"] = setting("auto")
    normalize: Normalization = setting("none", OneOf(tuple(NORMALIZATIONS)))
    weight_transform: WeightTransform | None = setting(None)
    relevance_threshold: float | None = setting(None)

    def fit(
        self,
        log: Ratings | Frame,
        propensities: PropensitiesLike | None = None,
        *,
        initial_factors: Factors | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        engine: str | Engine | FrameEngine = "auto",
    ) -> Self:
        """Fit to a log. Without propensities every rating weighs U I / n: the naive model.

        Parameters
        ----------
        log
            The ratings. With ``engine="spark"`` a Spark data frame, or the path of Parquet files.
        propensities
            One for each rating; with ``engine="spark"`` the name of a column.
        initial_factors
            Start at the ``factors_`` of another fit on the same users and items.
        checkpoint, checkpoint_every
            Write the state of the fit to this file every so many steps. A fit that finds its own
            file continues from it, to the same result bit for bit.
        engine
            ``"local"`` (also ``"auto"``), ``"gpu"`` (squared loss; needs the extra 'gpu'),
            ``"spark"`` (squared loss; needs the extra 'spark'), or an engine with settings such as
            :class:`unskew.engines.GpuEngine`. On Spark the user factors are also in
            ``user_factors_frame``, a Spark data frame that is not saved with the model.
        """
        self._check_settings()
        other_engine = find_engine(engine)
        if isinstance(other_engine, FrameEngine):
            checkpoint_arguments = checkpoint, checkpoint_every
            return self._fit_frame(
                other_engine, log, propensities, initial_factors, checkpoint_arguments
            )
        if other_engine is not None and not isinstance(other_engine, Engine):
            raise UsageError(
                "`engine` must be 'auto', 'local', 'gpu', 'spark' or an engine such as "
                f"GpuEngine(); got {engine!r}.",
                parameter="engine",
                value=engine,
            )
        require_log(log)
        check_initial_factors(initial_factors, (log.n_users, log.n_items, self.n_factors))
        threshold = self.relevance_threshold
        target = log if threshold is None else binarize(log, threshold)
        weight = training_weights(
            target,
            propensities,
            normalize=self.normalize,
            weight_transform=self.weight_transform,
        )
        target, weight = drop_unweighted(target, weight)
        saved = self._make_checkpoint(
            checkpoint,
            checkpoint_every,
            *(target.user, target.item, target.rating, weight),
            shape=(log.n_users, log.n_items),
            start=initial_factors,
        )
        with self._show_steps() as report:
            request = FitRequest(
                target,
                weight,
                self.n_factors,
                self.offsets,
                self._ridge(target),
                self.loss,
                self.dtype,
                lambda mean: initial_factors or self._make_start(target, mean),
                self.max_iter,
                self.tol,
                saved,
                report,
            )
            requests = [request]
            del request, weight  # so that the fit can free the weights once they are sorted
            with name_unsolved_rows(log, self.l2):
                fit = other_engine.run if other_engine else self._fit_locally
                result = fit(requests.pop())
        factors = result.solution.parameters
        fallback = self._fallback(factors, result.mean)
        seen = result.seen if len(target) == len(log) else None
        self._record_factors(log, factors, fallback, seen)
        self._record_solution(result.solution)
        return self

    def _fit_frame(
        self,
        engine: FrameEngine,
        frame: Frame,
        propensity: Any,
        initial_factors: Factors | None,
        checkpoint: tuple[Any, int],
    ) -> Self:
        if (
            self.loss != "squared"
            or self.solver not in ("auto", "reduced")
            or self.weight_transform is not None
        ):
            raise UsageError(
                "`engine='spark'` fits squared loss with the solver 'auto' or 'reduced' and "
                "without `weight_transform`.",
                parameter="engine",
                remedy="Transform the column of propensities instead, or leave `engine` out.",
            )
        with self._show_steps() as report:
            result = engine.fit_frame(
                FrameFitRequest(
                    frame,
                    propensity,
                    self.n_factors,
                    self.offsets,
                    self._ridge,
                    self.normalize,
                    self.relevance_threshold,
                    self.dtype,
                    initial_factors,
                    self.random_state,
                    self.max_iter,
                    self.tol,
                    lambda arrays: self._make_checkpoint(
                        *checkpoint, *arrays, shape=(0, 0), start=initial_factors
                    ),
                    report,
                )
            )
        factors = result.solution.parameters
        self.factors_ = factors
        self.fallback_ = self._fallback(factors, result.mean)
        self.users_, self.items_ = result.users, result.items
        self.seen_starts_, self.seen_items_ = result.seen
        self.user_factors_frame = result.user_factors
        self._record_solution(result.solution)
        return self

    def _fit_locally(self, request: FitRequest) -> FitResult:
        with Workers(self.n_threads) as workers, single_blas_thread():
            objective = self._make_objective(request.log, request.weight, workers)
            mean = weighted_mean(request.log.rating, request.weight)
            start, checkpoint, report = request.make_start(mean), request.checkpoint, request.report
            del request  # frees the weights
            solution = minimize(
                self._make_solver(objective),
                start,
                max_iter=self.max_iter,
                tol=self.tol,
                checkpoint=checkpoint,
                report=report,
            )
        by_user = objective.by_user
        del objective  # frees the items' cells before the users' codes are copied
        return FitResult(solution, mean, (by_user.starts, by_user.opposite.astype(np.int32)))

    def _solve(
        self,
        log: Ratings,
        weight: Vector,
        workers: Workers,
        *,
        initial_factors: Factors | None = None,
    ) -> Solution[Factors]:
        """Fit the ratings of ``log`` with these weights, as one step of another learner.

        The model itself does not change.
        """
        self._check_settings()
        log, weight = drop_unweighted(log, weight)
        mean = weighted_mean(log.rating, weight)
        start = initial_factors or self._make_start(log, mean)
        with name_unsolved_rows(log, self.l2):
            solver = self._make_solver(self._make_objective(log, weight, workers))
            return minimize(solver, start, max_iter=self.max_iter, tol=self.tol)

    def _check_settings(self) -> None:
        super()._check_settings()
        if not isinstance(self.solver, str) or (self.loss, self.solver) not in SOLVERS:
            names = [solver for loss, solver in SOLVERS if loss == self.loss]
            raise UnknownNameError(
                f"solver for {self.loss} loss", self.solver, names, parameter="solver"
            )

    def _make_objective(self, log: Ratings, weight: Vector, workers: Workers) -> Objective:
        by_user, by_item = sort_both_ways(
            *(log.user, log.item, log.rating, weight),
            shape=(log.n_users, log.n_items),
            dtype=self.dtype,
            workers=workers,
        )
        return Objective(by_user, by_item, self.n_factors, self.offsets, self._ridge(log), workers)

    def _make_solver(self, objective: Objective) -> Solver[Any, Factors]:
        return SOLVERS[self.loss, self.solver](objective)

    def _make_start(self, log: Ratings, mean: float) -> Factors:
        if self.solver == "lbfgs":
            return filled_svd(
                log,
                n_factors=self.n_factors,
                has_offsets=self.offsets != "none",
                random_state=self.random_state,
            ).astype(self.dtype)
        solves_users_first = self.loss == "squared" and self.solver in ("auto", "als")
        return self._random_start(log, mean, with_users=not solves_users_first)
