"""Propensity-scored matrix factorisation, Eq. (14)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from unskew.data.clicks import binarize
from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import (
    NORMALIZATIONS,
    Normalization,
    WeightTransform,
    drop_unweighted,
    training_weights,
    weighted_mean,
)
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.automatic import choose_penalty, run_sweeps
from unskew.factorization.checkpoints import Checkpoint
from unskew.factorization.engine import (
    Engine,
    FitRequest,
    FitResult,
    Frame,
    FrameEngine,
    FrameFitRequest,
)
from unskew.factorization.initialization import check_initial_factors, filled_svd
from unskew.factorization.lbfgs import JointLbfgs
from unskew.factorization.majorize import ReweightedLeastSquares, ReweightedSweeps
from unskew.factorization.objective import (
    Objective,
    name_unsolved_rows,
    sort_both_ways,
)
from unskew.factorization.penalty import Penalty, Side
from unskew.factorization.reduced import ReducedObjective
from unskew.factorization.solution import Report, Solution, Solver, minimize
from unskew.models import RECOMMENDERS
from unskew.models.factor_recommender import RatingFactorization
from unskew.models.fold_in import add_rows, find_known, solve_new_rows
from unskew.registry import engine_for, find_engine
from unskew.settings import Flag, OneOf, require_fitted, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import Vector

SOLVERS: Mapping[tuple[str, str], Callable[[Objective], Solver[Any, Factors]]] = {
    ("squared", "auto"): AlternatingLeastSquares,
    ("squared", "als"): AlternatingLeastSquares,
    ("squared", "reduced"): ReducedObjective.of,
    ("squared", "lbfgs"): JointLbfgs,
    ("absolute", "auto"): ReweightedSweeps,
    ("absolute", "als"): ReweightedSweeps,
    ("absolute", "reduced"): ReweightedLeastSquares,
    ("absolute", "lbfgs"): lambda objective: JointLbfgs(objective, is_absolute=True),
}
"""Solvers by loss and name."""
SEARCH_STEPS, SEARCH_TOL = 50, 1e-4
"""Of the fits that only serve to choose a penalty."""


@RECOMMENDERS.declare(
    "mf",
    label="MF",
    summary="Matrix factorisation weighted by inverse propensities, Eq. (14).",
)
@dataclass(eq=False, repr=False)
class MatrixFactorization(RatingFactorization):
    """F_ui = v_u . w_i + a_u + b_i + c, fitted to ratings weighted by inverse propensities.

        min  sum over the log of  loss(Y, F) / P  +  ridge (||V||^2 + ||W||^2 [+ ||a||^2 + ...])

    Parameters
    ----------
    n_factors
        The number of columns of V and W.
    l2
        Strength of the penalty. ``"auto"`` chooses it from the log: ridges of user and item
        offsets by moments, that of the factors from the noise of the log, both adjusted by
        held-out ratings, weighted as the others (docs/decisions/023-defaults.md). On a log of
        fewer than 30,000 ratings this costs about 12 fits to three quarters of it, else about 3.
        A number is on the scale of the authors' code, and the same for factors and offsets:
        ``ridge = l2 * U I / (U + I) / (d + 1)`` with penalised offsets, ``/ d`` otherwise. A
        range to search is 0.2 to 125; ``l2_`` is a good centre.
    offsets
        ``"regularized"`` penalises a and b, and with a number ``l2`` also c; ``"free"`` does not
        penalise them, ``"none"`` leaves them out.
    clip_predictions
        Predictions outside the range of the log's ratings are set to its limits.
        ``count_outside`` says how many of some pairs are; recommendations keep their order.
    loss
        ``"squared"`` for MSE, ``"absolute"`` for MAE.
    solver
        ``"als"`` alternates between exact solutions of users and of items, with momentum. With 48
        factors or more it takes a few conjugate gradient steps instead of exact solutions, while a
        sweep gains more than 1e-4 of the objective. ``"reduced"`` runs L-BFGS over the smaller
        side and solves the other side exactly, after a few sweeps of ``"als"``. ``"lbfgs"`` is the
        solver of the paper: L-BFGS over all parameters, from the SVD of the mean-filled matrix.
        ``"auto"`` is ``"als"``. Absolute loss is bounded by a sequence of weighted squared losses:
        ``"als"`` takes a new one for each sweep, ``"reduced"`` for every ten steps.
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
    naive_weight_ : the weight of every rating in a fit without propensities; None otherwise.
    l2_, penalty_ : the ridge of the factors on the scale of ``l2``, and the ridges of the factors
        and of user, item and global offsets. Without factors, ``l2_`` is the mean of the offsets.
    objective_, history_, n_iter_ : the objective at the end, after each step, and the number of
        steps. With solver ``"als"`` the start has no objective: ``history_[0]`` is inf.
    converged_, stop_reason_ : whether the fit converged, and why it stopped.

    Examples
    --------
    >>> from unskew.simulation.simulator import simulate
    >>> world = simulate(60, 80, density=0.1, alpha=0.5, random_state=0)
    >>> model = MatrixFactorization(n_factors=2).fit(world.log, world.propensities)
    >>> model.converged_, model.predict([0, 1], [3, 3]).shape
    (True, (2,))
    >>> model.recommend([0, 1], k=3).items.shape
    (2, 3)
    """

    _: KW_ONLY
    loss: Literal["squared", "absolute"] = setting("squared", OneOf(("squared", "absolute")))
    solver: Literal["auto", "reduced", "als", "lbfgs"] = setting("auto")
    normalize: Normalization = setting("none", OneOf(tuple(NORMALIZATIONS)))
    weight_transform: WeightTransform | None = setting(None)
    relevance_threshold: float | None = setting(None)
    naive_weight_: float | None = field(init=False)
    mean_weight_: float = field(init=False)

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

        The naive model predicts what is logged. Where people rate what they like, even
        :data:`OffsetsOnly` with propensities is better for all cells.

        Parameters
        ----------
        log
            The ratings. With ``engine="spark"`` a Spark data frame, or the path of Parquet files;
            with ``engine="disk"`` such a path.
        propensities
            One for each rating; with these two engines the name of a column.
        initial_factors
            Start at the ``factors_`` of another fit on the same users and items.
        checkpoint, checkpoint_every
            Write the state of the fit to this file every so many steps. A fit that finds its own
            file continues from it, to the same result bit for bit.
        engine
            ``"local"``, ``"gpu"`` (squared loss; needs the extra 'gpu'), ``"spark"`` (squared
            loss; needs the extra 'spark'), ``"disk"`` (squared loss, a log that may be larger
            than memory; needs the extra 'duckdb'), or an engine with settings such as
            :class:`unskew.engines.GpuEngine`. ``"auto"`` is ``"spark"`` for a Spark data frame,
            ``"disk"`` for a path, and ``"local"`` otherwise. On Spark the user factors are also in
            ``user_factors_frame``, a Spark data frame that is not saved with the model.
        """
        self._check_settings()
        is_auto = isinstance(engine, str) and engine == "auto"
        other_engine = find_engine(engine_for(log) if is_auto else engine)
        if isinstance(other_engine, FrameEngine):
            checkpoint_arguments = checkpoint, checkpoint_every
            return self._fit_frame(
                other_engine, log, propensities, initial_factors, checkpoint_arguments
            )
        if other_engine is not None and not isinstance(other_engine, Engine):
            raise UsageError(
                "`engine` must be 'auto', 'local', 'gpu', 'spark', 'disk' or an engine such as "
                f"GpuEngine(); got {engine!r}.",
                parameter="engine",
                value=engine,
            )
        with self._show_steps() as report:
            requests = [
                self._prepare_fit(
                    log,
                    propensities,
                    initial_factors=initial_factors,
                    checkpoint=(checkpoint, checkpoint_every),
                    engine=other_engine,
                    report=report,
                )
            ]
            target = requests[0].log
            with name_unsolved_rows(log, self.l2_):
                fit = other_engine.run if other_engine else self._fit_locally
                result = fit(requests.pop())  # which can free the weights once they are sorted
        self._finish_fit(log, target, result)
        return self

    def _prepare_fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None,
        *,
        initial_factors: Factors | None = None,
        checkpoint: tuple[str | Path | None, int] = (None, 10),
        engine: Engine | None = None,
        report: Report | None = None,
    ) -> FitRequest:
        """The fit of this model to a log, with the penalty, which the model keeps."""
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
        self.naive_weight_ = float(weight[0]) if propensities is None else None
        self.mean_weight_ = float(weight.mean())
        target, weight = drop_unweighted(target, weight)
        saved = self._make_checkpoint(
            *checkpoint,
            target.user,
            target.item,
            target.rating,
            weight,
            shape=(log.n_users, log.n_items),
            start=initial_factors,
        )
        penalty = self._choose_penalty(target, weight, engine=engine)
        self._record_penalty(target, penalty)
        return self._make_request(
            target,
            weight,
            penalty,
            lambda mean: initial_factors or self._make_start(target, mean),
            saved,
            report,
        )

    def _finish_fit(self, log: Ratings, target: Ratings, result: FitResult) -> None:
        """Keep the result of a fit to ``target``, the part of ``log`` that has a weight."""
        seen = result.seen if len(target) == len(log) else None
        self._record_fit(log, result.solution, result.mean, fitted=target, seen=seen)

    def fold_in(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        side: Side = "user",
        keep_known: bool = True,
    ) -> Self:
        """A model that also knows the users of ``log``, or its items, without a new fit.

        Their rows minimise the objective of the fit while everything else stays fixed: exactly
        what a refit of these rows alone would give. The penalty is that of the fit.

        Parameters
        ----------
        log
            All ratings of the new users (or items), of items (or users) of the fit. A user who is
            already known gets a new row, from these ratings alone.
        propensities
            Of these ratings, if the model was fitted with propensities. Without them every rating
            gets the mean weight of the fit, and a warning says so.
        side
            ``"user"`` adds users, ``"item"`` adds items.
        keep_known
            False leaves out the users (or items) of the fit, which saves memory if many new ones
            are served block by block.
        """
        require_fitted(self)
        self._require_foldable(propensities)
        OneOf(("user", "item"))("side", side)
        Flag()("keep_known", keep_known)
        require_log(log)
        threshold = self.relevance_threshold
        target = log if threshold is None else binarize(log, threshold)
        if propensities is None:
            weight = np.full(len(target), self.mean_weight_)
        else:
            weight = training_weights(target, propensities, weight_transform=self.weight_transform)
        target, weight = drop_unweighted(target, weight)
        other = (log.items, self.items_) if side == "user" else (log.users, self.users_)
        known_code = find_known(*other, "item" if side == "user" else "user")
        with Workers(self.n_threads) as workers, single_blas_thread():
            rows = solve_new_rows(
                target,
                weight,
                self.factors_,
                known_code[target.item if side == "user" else target.user],
                side=side,
                offsets=self.offsets,
                penalty=self.penalty_,
                l2=self.l2_,
                workers=workers,
            )
        return add_rows(self, log, rows, known_code, side, keep_known=keep_known)

    def _require_foldable(self, propensities: object) -> None:
        if self.loss != "squared" or self.normalize in ("user", "item", "self"):
            raise UsageError(
                "fold_in solves rows of squared loss with weights 1 / P.",
                parameter="loss" if self.loss != "squared" else "normalize",
                remedy="Fit with `loss='squared'` and `normalize='none'`.",
            )
        if propensities is not None and self.naive_weight_ is not None:
            raise UsageError(
                "the model was fitted without propensities, so new rows need the same.",
                parameter="propensities",
                remedy="Call fold_in without propensities.",
            )
        if propensities is None and self.naive_weight_ is None:
            warnings.warn(
                PropensityWarning(
                    "the model was fitted with propensities, and the new ratings have none: each "
                    f"gets the mean weight of the fit, {self.mean_weight_:.4g}.",
                    parameter="propensities",
                    remedy="Pass those of the new ratings to correct for how they were selected.",
                ),
                stacklevel=3,
            )

    def _fit_frame(
        self,
        engine: FrameEngine,
        frame: Frame,
        propensity: Any,
        initial_factors: Factors | None,
        checkpoint: tuple[Any, int],
    ) -> Self:
        name = getattr(engine, "name", type(engine).__name__)
        if self.loss != "squared" or self.solver == "lbfgs" or self.weight_transform is not None:
            raise UsageError(
                f"`engine={name!r}` fits squared loss with the solver 'auto', 'als' or 'reduced' "
                "and without `weight_transform`.",
                parameter="engine",
                remedy="Transform the column of propensities instead, or leave `engine` out.",
            )
        if self.l2 == "auto":
            raise UsageError(
                f"`engine={name!r}` cannot choose `l2` from the log, as the default does.",
                parameter="l2",
                value="auto",
                remedy="Pass a number, such as the `l2_` of a local fit to a sample of the users.",
                shell_remedy="Pass a number as `l2=...`. With `engine='local'`, a sample of the "
                "users and no `l2`, the summary of the fit shows the one that was chosen.",
            )
        with self._show_steps() as report:
            result = engine.fit_frame(
                FrameFitRequest(
                    frame=frame,
                    propensity=propensity,
                    n_factors=self.n_factors,
                    offsets=self.offsets,
                    penalty=self._fixed_penalty,
                    normalize=self.normalize,
                    relevance_threshold=self.relevance_threshold,
                    dtype=self.dtype,
                    solver=self.solver,
                    initial_factors=initial_factors,
                    random_state=self.random_state,
                    max_iter=self.max_iter,
                    tol=self.tol,
                    make_checkpoint=lambda arrays: self._make_checkpoint(
                        *checkpoint, *arrays, shape=(0, 0), start=initial_factors
                    ),
                    report=report,
                )
            )
        is_naive, n_cells = propensity is None, result.universe.n_cells
        self.mean_weight_ = n_cells / result.n_ratings
        self.naive_weight_ = self.mean_weight_ if is_naive else None
        self._record_frame_fit(result)
        return self

    def _make_request(
        self,
        log: Ratings,
        weight: Vector,
        penalty: Penalty,
        make_start: Callable[[float], Factors],
        checkpoint: Checkpoint | None = None,
        report: Report | None = None,
    ) -> FitRequest:
        """A fit with the settings of this model, for an engine."""
        return FitRequest(
            log=log,
            weight=weight,
            n_factors=self.n_factors,
            offsets=self.offsets,
            penalty=penalty,
            loss=self._loss_name,
            dtype=self.dtype,
            make_start=make_start,
            max_iter=self.max_iter,
            tol=self.tol,
            checkpoint=checkpoint,
            report=report,
        )

    def _fit_locally(self, request: FitRequest) -> FitResult:
        with Workers(self.n_threads) as workers, single_blas_thread():
            objective = self._make_objective(request.log, request.weight, request.penalty, workers)
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

    @classmethod
    def _with_settings_of(cls, model: RatingFactorization) -> Self:
        """A factorisation with the settings that it shares with another model."""
        return cls(
            model.n_factors,
            model.l2,
            offsets=model.offsets,
            max_iter=model.max_iter,
            tol=model.tol,
            dtype=model.dtype,
            random_state=model.random_state,
        )

    def _solve(
        self,
        log: Ratings,
        weight: Vector,
        workers: Workers,
        *,
        initial_factors: Factors | None = None,
        penalty: Penalty | None = None,
        engine: Engine | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Solution[Factors]:
        """Fit the ratings of ``log`` with these weights, as one step of another learner.

        The model itself does not change. Without a ``penalty`` it is that of ``l2``.
        """
        self._check_settings()
        log, weight = drop_unweighted(log, weight)
        mean = weighted_mean(log.rating, weight)
        start = initial_factors or self._make_start(log, mean)
        if penalty is None:
            penalty = self._choose_penalty(log, weight, workers=workers, engine=engine)
        with name_unsolved_rows(log, penalty.factors / self._ridge_unit(log)):
            if engine is not None:
                request = self._make_request(log, weight, penalty, lambda _: start, checkpoint)
                return engine.run(request).solution
            solver = self._make_solver(self._make_objective(log, weight, penalty, workers))
            return minimize(
                solver, start, max_iter=self.max_iter, tol=self.tol, checkpoint=checkpoint
            )

    def _choose_penalty(
        self,
        log: Ratings,
        weight: Vector,
        *,
        engine: Engine | None = None,
        workers: Workers | None = None,
    ) -> Penalty:
        """The penalty that ``l2`` stands for; with ``"auto"`` it is chosen from the log."""
        if self.l2 != "auto":
            return self._fixed_penalty(log)

        def fit(part: Ratings, weight: Vector, penalty: Penalty, start: Factors | None) -> Factors:
            request = FitRequest(
                log=part,
                weight=weight,
                n_factors=self.n_factors,
                offsets="none" if self.offsets == "none" else "regularized",
                penalty=penalty,
                loss="squared",
                dtype=self.dtype,
                make_start=lambda mean: start or self._random_start(part, mean),
                max_iter=SEARCH_STEPS,
                tol=SEARCH_TOL,
                checkpoint=None,
                report=None,
            )
            if engine is not None:
                return engine.run(request).solution.parameters
            return run_sweeps(request, workers or own_workers)

        with Workers(self.n_threads) as own_workers, single_blas_thread():
            return choose_penalty(
                log,
                weight,
                fit,
                n_factors=self.n_factors,
                offsets=self.offsets,
                loss=self._loss_name,
                random_state=self.random_state,
            )

    @property
    def _loss_name(self) -> Literal["squared", "absolute", "log"]:
        """The loss as engines and :mod:`unskew.factorization.automatic` name it."""
        return self.loss

    def _check_settings(self) -> None:
        super()._check_settings()
        if not isinstance(self.solver, str) or (self.loss, self.solver) not in SOLVERS:
            names = [solver for loss, solver in SOLVERS if loss == self.loss]
            raise UnknownNameError(
                f"solver for {self.loss} loss", self.solver, names, parameter="solver"
            )

    def _make_objective(
        self, log: Ratings, weight: Vector, penalty: Penalty, workers: Workers
    ) -> Objective:
        by_user, by_item = sort_both_ways(
            log.user,
            log.item,
            log.rating,
            weight,
            shape=(log.n_users, log.n_items),
            dtype=self.dtype,
            workers=workers,
        )
        return Objective(by_user, by_item, self.n_factors, self.offsets, penalty, workers)

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
