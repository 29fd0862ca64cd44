"""Propensity-scored matrix factorisation, Eq. (14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from unskew.data.binarize import binarize
from unskew.data.checks import is_finite_number, whole_number
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.universe import Universe
from unskew.errors import UnknownNameError, UsageError
from unskew.estimators.transforms import WeightTransform
from unskew.factorization import initialization
from unskew.factorization.als import Alternating
from unskew.factorization.engine import Engine, Fit, Fitted, Frame, FrameEngine, FrameFit
from unskew.factorization.joint import Joint
from unskew.factorization.objective import Objective, Offsets, SortedCells
from unskew.factorization.parameters import Parameters, require_parameters
from unskew.factorization.reduced import Reduced
from unskew.factorization.reweighted import Reweighted
from unskew.factorization.solution import Iterative, Solution, run
from unskew.factorization.solver import Solver
from unskew.factorization.weights import (
    Normalization,
    as_propensity,
    effective_l2,
    training_propensities,
    weighted_mean,
)
from unskew.models.factored import FactorRecommender
from unskew.plugins import find_engine
from unskew.progress import progress_line
from unskew.threads import Workers, single_blas_thread
from unskew.types import Vector

SOLVERS: Mapping[tuple[str, str], Callable[[Objective], Solver[Any, Parameters]]] = {
    ("squared", "auto"): Alternating,
    ("squared", "reduced"): Reduced.of,
    ("squared", "als"): Alternating,
    ("squared", "lbfgs"): Joint,
    ("absolute", "auto"): Reweighted,
    ("absolute", "reduced"): Reweighted,
    ("absolute", "lbfgs"): lambda problem: Joint(problem, is_absolute=True),
}


class MatrixFactorization(FactorRecommender, Iterative):
    """F_ui = v_u . w_i + a_u + b_i + c, fitted to ratings weighted by inverse propensities.

        min  sum over the log of  loss(Y, F) / P  +  l2_eff (||V||^2 + ||W||^2 [+ ||a||^2 + ||b||^2 + c^2])

    Parameters
    ----------
    n_factors
        Rank of V and W.
    l2
        Strength of the penalty, on the scale of the authors' code: ``l2_eff = l2 * U I / (U + I) / (d + 1)`` with penalised
        offsets, ``/ d`` otherwise. Weights add up to about U * I, so that the same ``l2`` means the same for any
        log. On Coat (290 x 300), ``l2=25`` with 40 factors and penalised offsets is a ridge of 89.9.
    offsets
        ``"regularized"`` penalises a, b and c like the factors; ``"free"`` leaves them alone; ``"none"`` has none.
    loss
        ``"squared"`` for MSE, ``"absolute"`` for MAE.
    solver
        ``"als"`` alternates between exact solutions of users and of items, with momentum; from 48 factors on, while a sweep takes
        off more than 1e-4 of the objective, between a few steps of conjugate gradients. ``"reduced"`` solves users exactly inside
        an L-BFGS over the items (or the other way round), after a few sweeps of ``"als"``. ``"lbfgs"`` is the paper's: joint,
        from the SVD of the mean-filled matrix. ``"auto"`` is ``"als"`` for squared loss, and for absolute loss a sequence of
        weighted squared problems, each improved by ``"reduced"``.
    normalize
        Rescale weights to add up to U * I (``"self"``, MF-SNIPS), to I for every user, or to U for every item.
    weight_transform
        What to weight by in place of 1 / P, as in :func:`unskew.evaluate`: ``unskew.Clip(30)``, ``unskew.Dynamic()``, ...
    threshold
        Fit 1 to ratings of at least this (clicks) and 0 to others; by default ratings are fitted as they are.
    max_iter, tol
        Stop after so many steps, or when one lowers the objective by no more than this share of it.
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
    parameters_ : the fitted V, W, a, b and c.
    objective_, history_, n_iter_, converged_ : the objective reached, after each step, their number, and whether it was flat.
        Users are solved first, so that the start has no objective: ``history_[0]`` is inf (solver ``"als"``).
    """

    SOLVES_USERS_FIRST: ClassVar = frozenset({("squared", "auto"), ("squared", "als")})
    """Losses and solvers that need no users to start from."""

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 1.0,
        *,
        offsets: Offsets = "regularized",
        loss: Literal["squared", "absolute"] = "squared",
        solver: Literal["auto", "reduced", "als", "lbfgs"] = "auto",
        normalize: Normalization = "none",
        weight_transform: WeightTransform | None = None,
        threshold: float | None = None,
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Literal["float64", "float32"] = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_factors = n_factors
        self.l2 = l2
        self.offsets = offsets
        self.loss = loss
        self.solver = solver
        self.normalize = normalize
        self.weight_transform = weight_transform
        self.threshold = threshold
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        log: Ratings | Frame,
        propensities: PropensitiesLike | None = None,
        *,
        warm_start: Parameters | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        engine: str | Engine | FrameEngine = "auto",
    ) -> Self:
        """Fit to a log. Without propensities every rating weighs U * I / n: the naive model.

        ``warm_start`` begins at the parameters of another fit on the same users and items. With ``checkpoint`` the state is
        written there every so many steps, and a run that finds its own file goes on from it, to the same result bit for bit.
        ``engine`` is where to fit: ``"local"`` (which ``"auto"`` takes), ``"gpu"`` (squared loss, by torch; needs the extra
        'gpu'), ``"spark"`` (squared loss; needs the extra 'spark'), or an engine with settings of its own, such as
        :class:`unskew.GpuEngine`. On Spark ``log`` is a Spark data frame, or the path of Parquet files, ``propensities`` the name
        of a column, and user factors are also in ``user_factors_frame``, a Spark data frame that is not saved with the model.
        """
        self._check()
        elsewhere = find_engine(engine)
        if isinstance(elsewhere, FrameEngine):
            return self._fit_frame(
                elsewhere, log, propensities, warm_start, (checkpoint, checkpoint_every)
            )
        if elsewhere is not None and not isinstance(elsewhere, Engine):
            raise UsageError(
                f"engine is 'auto', 'local', 'gpu', 'spark' or an engine such as GpuEngine(); got {engine!r}."
            )
        require_log(log)
        require_parameters(warm_start, (log.n_users, log.n_items, self.n_factors))
        wanted = binarize(log, self.threshold)
        propensity = training_propensities(
            wanted, propensities, self.normalize, self.weight_transform
        )
        if self.weight_transform is not None:
            wanted, propensity = _without_dropped(wanted, propensity)
        named = (wanted.user, wanted.item, wanted.rating, propensity)
        sizes = (log.n_users, log.n_items)
        saved = self._checkpoint(
            checkpoint, checkpoint_every, *named, sizes=sizes, begin=warm_start
        )
        with progress_line(self.verbose) as line:
            asked = Fit(
                wanted,
                propensity,
                self.n_factors,
                self.offsets,
                self._ridge(wanted),
                self.loss,
                self.dtype,
                lambda mean: warm_start or self._begin(wanted, mean),
                self.max_iter,
                self.tol,
                saved,
                lambda step, value: line(f"step {step}, objective {value:.6g}"),
            )
            fitted = self._run_here(asked) if elsewhere is None else elsewhere.run(asked)
        self._tell(fitted.outcome)
        found = fitted.outcome.parameters
        fallback = fitted.mean if self.offsets == "none" else found.constant
        self._remember(log, found, fallback, fitted.seen if len(wanted) == len(log) else None)
        return self

    def _fit_frame(
        self,
        engine: FrameEngine,
        frame: Frame,
        propensity: Any,
        warm_start: Parameters | None,
        saved: tuple[Any, int],
    ) -> Self:
        """Fit to a log that the engine reads where it lies."""
        if (
            self.loss != "squared"
            or self.solver not in ("auto", "reduced")
            or self.weight_transform is not None
        ):
            raise UsageError(
                "a log that stays on Spark is fitted with squared loss, solver 'auto' or 'reduced', and no weight_transform. "
                "Transform the column of propensities instead, or leave engine=... out."
            )
        with progress_line(self.verbose) as line:
            fitted = engine.fit_frame(
                FrameFit(
                    frame,
                    propensity,
                    self.n_factors,
                    self.offsets,
                    self._ridge,
                    self.normalize,
                    self.threshold,
                    self.dtype,
                    warm_start,
                    self.random_state,
                    self.max_iter,
                    self.tol,
                    lambda arrays: self._checkpoint(
                        *saved, *arrays, sizes=(0, 0), begin=warm_start
                    ),
                    lambda step, value: line(f"step {step}, objective {value:.6g}"),
                )
            )
        self._tell(fitted.outcome)
        self.parameters_ = fitted.outcome.parameters
        self.fallback_ = fitted.mean if self.offsets == "none" else self.parameters_.constant
        self.users_, self.items_, (self.seen_starts_, self.seen_items_) = (
            fitted.users,
            fitted.items,
            fitted.seen,
        )
        self.user_factors_frame = fitted.user_factors
        return self

    def _run_here(self, fit: Fit) -> Fitted:
        with Workers(self.n_threads) as workers, single_blas_thread():
            problem = self._problem(fit.log, fit.propensity, workers)
            solver = self._solver(problem)
            settings = {
                "max_iter": fit.max_iter,
                "tol": fit.tol,
                "checkpoint": fit.checkpoint,
                "report": fit.report,
            }
            mean = weighted_mean(fit.log.rating, fit.propensity)
            outcome = run(solver, lambda: fit.begin(mean), **settings)  # type: ignore[arg-type]
        by_user = problem.by_user
        del problem, solver  # the items' side has to go before the users' is copied
        return Fitted(outcome, mean, (by_user.starts, by_user.partner.astype(np.int32)))

    def solve(
        self,
        log: Ratings,
        weight: Vector,
        workers: Workers,
        *,
        warm_start: Parameters | None = None,
    ) -> Solution[Parameters]:
        """A run on ratings as they are that weigh ``weight``: one step of another learner. The model itself stays as it was."""
        self._check()
        wanted, propensity = _without_dropped(log, as_propensity(weight))
        solver = self._solver(self._problem(wanted, propensity, workers))
        mean = weighted_mean(wanted.rating, propensity)
        return run(
            solver,
            lambda: warm_start or self._begin(wanted, mean),
            max_iter=self.max_iter,
            tol=self.tol,
        )

    def _solver(self, problem: Objective) -> Solver[Any, Parameters]:
        return SOLVERS[self.loss, self.solver](problem)

    def _check(self) -> None:
        losses = dict.fromkeys(loss for loss, _ in SOLVERS)
        if self.loss not in losses:
            raise UnknownNameError("loss", self.loss, losses)
        if (self.loss, self.solver) not in SOLVERS:
            kind = f"solver for {self.loss} loss"
            raise UnknownNameError(
                kind, self.solver, (solver for loss, solver in SOLVERS if loss == self.loss)
            )
        if self.offsets not in ("none", "free", "regularized"):
            raise UnknownNameError("offsets", self.offsets, ("none", "free", "regularized"))
        if self.dtype not in ("float64", "float32"):
            raise UnknownNameError("dtype", self.dtype, ("float64", "float32"))
        if whole_number("n_factors", self.n_factors, least=0) == 0 and self.offsets == "none":
            raise UsageError(
                "n_factors must be at least 1 without offsets: there would be nothing to fit."
            )
        if not (is_finite_number(self.l2) and self.l2 >= 0):
            raise UsageError(f"l2 must be a finite number, at least 0; got {self.l2!r}.")
        self._check_run()

    def _problem(self, log: Ratings, propensity: Vector, workers: Workers) -> Objective:
        shape = log.n_users, log.n_items
        ways = ((log.user, log.item, shape), (log.item, log.user, shape[::-1]))
        by_user, by_item = workers.map(
            lambda way: SortedCells.of(
                *way[:2], log.rating, propensity, shape=way[2], dtype=self.dtype
            ),
            ways,
        )
        return Objective(by_user, by_item, self.n_factors, self.offsets, self._ridge(log), workers)

    def _ridge(self, log: Ratings | Universe) -> float:
        penalizes = self.offsets == "regularized"
        return effective_l2(self.l2, log, n_factors=self.n_factors, penalizes_offsets=penalizes)

    def _begin(self, log: Ratings, mean: float) -> Parameters:
        settings: dict[str, Any] = {
            "n_factors": self.n_factors,
            "has_offsets": self.offsets != "none",
            "random_state": self.random_state,
        }
        if self.solver == "lbfgs":
            return initialization.filled_svd(log, **settings).astype(self.dtype)
        with_users = (self.loss, self.solver) not in self.SOLVES_USERS_FIRST
        shape = log.n_users, log.n_items
        return initialization.small_random(
            shape, mean, dtype=self.dtype, with_users=with_users, **settings
        )


def _without_dropped(log: Ratings, propensity: Vector) -> tuple[Ratings, Vector]:
    """Without the ratings that weigh nothing."""
    kept = np.isfinite(propensity)
    return (log, propensity) if kept.all() else (log.take(kept), propensity[kept])
