"""Propensities from 1-bit matrix completion of the observed cells (Ma & Chen 2019)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal, Self, TypeAlias

import numpy as np
from scipy.special import expit, logit

from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import UsageError
from unskew.progress import progress_line
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.low_rank import (
    CellSubset,
    LowRankFit,
    LowRankLogits,
    ObservedMatrix,
    PenalizedLoss,
    minimize_loss,
    pair_products,
    require_observed_and_unobserved,
    shift_to_total,
    sum_cells,
)
from unskew.propensity.model import PropensityModel, require_universe, warn_if_not_converged
from unskew.settings import Number, OneOf, WholeNumber, check_random_state, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import ArrayShapes, IntVector, Matrix, RandomState, Vector

MAX_DENSE_CELLS = 1 << 22
"""The convex solver holds several matrices of all cells, and computes an SVD in each step."""
NOISE_MULTIPLES = (1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125, 0.09, 0.0625)
"""What ``noise_multiple="cv"`` tries, until PATIENCE values in a row were not the best."""
PATIENCE = 2
ROUGH_TOL = 1e-5
"""``tol`` of the fits that only choose the penalty."""
SOLVER_SETTINGS = {
    "low_rank": ("n_factors", "noise_multiple", "n_threads"),
    "convex": ("max_nuclear", "max_logit"),
}
"""Settings that only one of the solvers has."""
LIPSCHITZ = 0.25
"""The derivative of sigma is at most 1/4."""
MAX_PROJECTIONS = 1000
"""Rounds of Dykstra's alternating projections."""

Report: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PenaltyChoice:
    """The penalty used, and the mean held-out log-loss of those it was chosen from."""

    noise_multiple: float | None
    tried: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()


def _check_noise_multiple(name: str, value: object) -> None:
    if not isinstance(value, str) or value != "cv":
        Number(above=0)(name, value)


@PROPENSITY_MODELS.declare(
    "onebit",
    label="1-bit completion",
    summary="Which cells were observed, as a low-rank matrix of logits (Ma & Chen 2019).",
    aliases=("one_bit",),
    traits={"learns_users": True},
)
@dataclass(eq=False, repr=False)
class OneBitPropensity(PropensityModel):
    """P = sigma(c + A_ui) with A of low rank: 1-bit matrix completion of O.

        min  sum_D [log(1 + e^(c + A)) - O (c + A)]  +  penalty (||Q||^2 + ||S||^2) / 2,   A = Q S'

    O is known in every cell. The penalty is equivalent to a penalty on the nuclear norm of A:
    ||A||_* is the minimum of (||Q||^2 + ||S||^2) / 2 over all Q S' = A. The intercept c is not
    penalised, so propensities add up to n over all cells. The model needs neither covariates nor
    a random sample, and cannot see whether observation depends on the rating. An iteration costs
    O(U I K), in blocks of cells.

    Cells of the log get larger propensities than similar cells, because the fit has seen them:
    use SNIPS, not IPS, also inside CrossFittedPropensity.

    Parameters
    ----------
    n_factors
        Largest rank K of A; at most min(U, I) factors are used.
    noise_multiple
        The penalty as a multiple of the noise level sqrt(p (1 - p)) (sqrt(U) + sqrt(I)) for
        density p, about the largest singular value of O - p if all cells are alike. From 1 on,
        pure noise gives A = 0; smaller values follow the data more closely. ``"cv"`` uses the
        best of several values for the likelihood of a tenth of the cells, held out.
    solver
        ``"low_rank"``: L-BFGS on c, Q and S. ``"convex"``: the problem of Ma and Chen (2019), for
        matrices that fit into memory: no penalty, but ``||A||_* <= max_nuclear sqrt(U I)`` and
        ``max abs(A) <= max_logit``.
    max_nuclear, max_logit
        For ``solver="convex"`` only: limits of the nuclear norm and of the entries of A. With
        ``max_logit``, all propensities are between sigma(c - max_logit) and sigma(c + max_logit).
        Ma and Chen use 3 without an intercept, which keeps propensities above 0.047, more than the
        density of most logs.
    max_iter, tol
        Stop after this many iterations, or when one reduces the objective by no more than this
        share of it.
    n_threads
        One for each processor by default; the result does not depend on it.
    random_state
        Seed of the start and of the held-out cells.
    verbose
        Show progress on standard error.

    Attributes
    ----------
    intercept_, user_factors_, item_factors_ : c, Q and S; one row for each user and item.
    noise_multiple_ : the penalty used; None with ``solver="convex"``.
    tried_noise_multiples_, held_out_loss_ : with ``"cv"``, the values tried and the mean log-loss
        of the held-out cells.
    history_ : the objective at the start and after each iteration.
    n_iter_, converged_ : the iterations, and whether the last one reached ``tol``.
    """

    n_factors: int = setting(20, WholeNumber(least=1))
    noise_multiple: float | Literal["cv"] = setting(0.7, _check_noise_multiple)
    _: KW_ONLY
    solver: Literal["low_rank", "convex"] = setting("low_rank", OneOf(tuple(SOLVER_SETTINGS)))
    max_nuclear: float | None = setting(None, Number(above=0, allow_none=True))
    max_logit: float | None = setting(None, Number(above=0, allow_none=True))
    max_iter: int = setting(500, WholeNumber(least=1))
    tol: float = setting(1e-7, Number(least=0))
    n_threads: int | None = setting(None, WholeNumber(least=1, allow_none=True))
    random_state: RandomState = setting(0, check_random_state)
    verbose: bool = False

    intercept_: float = field(init=False)
    user_factors_: Matrix = field(init=False)
    item_factors_: Matrix = field(init=False)
    noise_multiple_: float | None = field(init=False)
    tried_noise_multiples_: tuple[float, ...] = field(init=False)
    held_out_loss_: tuple[float, ...] = field(init=False)
    history_: tuple[float, ...] = field(init=False)
    n_iter_: int = field(init=False)
    converged_: bool = field(init=False)

    learns_users = True

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Learn which cells were observed. The universe may be larger than the log's lists."""
        self._check_settings()
        size = require_universe(log, universe)
        observed = ObservedMatrix.of_log(log, size)
        with single_blas_thread(), progress_line(self.verbose) as report:
            solve = self._solve_convex if self.solver == "convex" else self._solve_low_rank
            choice, fitted = solve(observed, report)
        self.intercept_ = fitted.logits.intercept
        self.user_factors_ = fitted.logits.user[: log.n_users]
        self.item_factors_ = fitted.logits.item[: log.n_items]
        self.noise_multiple_, self.tried_noise_multiples_ = choice.noise_multiple, choice.tried
        self.held_out_loss_ = choice.losses
        self.history_, self.n_iter_ = fitted.history, len(fitted.history) - 1
        self.converged_ = fitted.has_converged
        self._record_log(log, size)
        warn_if_not_converged(self)
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        products = pair_products(self.user_factors_, self.item_factors_, user, item)
        propensity: Vector = expit(self.intercept_ + products)
        return propensity

    def _solve_low_rank(
        self, observed: ObservedMatrix, report: Report
    ) -> tuple[PenaltyChoice, LowRankFit]:
        rng = np.random.default_rng(self.random_state)
        rank = min(self.n_factors, observed.user_count.size, observed.item_count.size)
        with Workers(self.n_threads) as workers:
            loss = PenalizedLoss(CellSubset(observed), 0.0, rank, workers)
            start = loss.random_start(rng)
            if self.noise_multiple == "cv":
                choice = self._choose_penalty(loss, start, rng, report)
            else:
                choice = PenaltyChoice(self.noise_multiple)
            penalty = (choice.noise_multiple or 0.0) * observed.noise_level()
            return choice, self._minimize(replace(loss, penalty=penalty), start, self.tol, report)

    def _choose_penalty(
        self, loss: PenalizedLoss, start: Vector, rng: np.random.Generator, report: Report
    ) -> PenaltyChoice:
        """Try penalties from strong to weak; each fit starts from the last one."""
        training, held_out = loss.cells.split(rng)
        require_observed_and_unobserved(training, held_out)
        noise_level = training.observed.noise_level()
        losses: list[float] = []
        for multiple in NOISE_MULTIPLES:
            trial = replace(loss, cells=training, penalty=multiple * noise_level)
            tol, label = max(self.tol, ROUGH_TOL), f"noise multiple {multiple:g}, "
            fitted = self._minimize(trial, start, tol, report, label=label).logits
            losses.append(sum_cells(held_out, fitted, loss.workers).loss / held_out.n_cells)
            if len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE:
                break
            start = trial.perturbed_start(fitted, rng)
        best = NOISE_MULTIPLES[int(np.argmin(losses))]
        return PenaltyChoice(best, NOISE_MULTIPLES[: len(losses)], tuple(losses))

    def _minimize(
        self, loss: PenalizedLoss, start: Vector, tol: float, report: Report, *, label: str = ""
    ) -> LowRankFit:
        def report_step(step: int, value: float) -> None:
            report(f"{label}step {step}, objective {value:.6g}")

        return minimize_loss(loss, start, max_iter=self.max_iter, tol=tol, report=report_step)

    def _solve_convex(
        self, observed: ObservedMatrix, report: Report
    ) -> tuple[PenaltyChoice, LowRankFit]:
        if observed.n_cells > MAX_DENSE_CELLS:
            raise UsageError(
                f"`solver='convex'` holds all cells in memory, at most {MAX_DENSE_CELLS:,}; "
                f"there are {observed.n_cells:,.0f}.",
                parameter="solver",
                remedy="Use `solver='low_rank'`.",
            )
        fitted = solve_in_nuclear_ball(
            to_dense(observed),
            radius=float(self.max_nuclear or 0) * float(np.sqrt(observed.n_cells)),
            max_logit=self.max_logit,
            max_iter=self.max_iter,
            tol=self.tol,
            report=lambda step, value: report(f"step {step}, loss {value:.6g}"),
        )
        return PenaltyChoice(None), fitted

    def _check_settings(self) -> None:
        super()._check_settings()
        defaults = self._setting_defaults()
        for solver, names in SOLVER_SETTINGS.items():
            for name in names:
                if solver != self.solver and getattr(self, name) != defaults[name]:
                    raise UsageError(
                        f"`{name}` is a setting of `solver={solver!r}`; this is "
                        f"`solver={self.solver!r}`.",
                        parameter=name,
                        remedy="Leave one of them out.",
                    )
        if self.solver == "convex" and self.max_nuclear is None:
            raise UsageError(
                "`solver='convex'` needs `max_nuclear`, the limit of the nuclear norm of the "
                "logits.",
                parameter="max_nuclear",
                remedy="Pass a positive number, such as `max_nuclear=1`.",
            )

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        n_factors = self.user_factors_.shape[-1]
        return {
            "user_factors": (self.user_factors_, (len(self.users_), n_factors)),
            "item_factors": (self.item_factors_, (len(self.items_), n_factors)),
        }


def solve_in_nuclear_ball(
    observed: Matrix,
    *,
    radius: float,
    max_logit: float | None,
    max_iter: int,
    tol: float,
    report: Callable[[int, float], None],
) -> LowRankFit:
    """Minimise sum_D [log(1 + e^(c + A)) - O (c + A)] over c and A
    subject to ||A||_* <= radius and max abs(A) <= max_logit.

    Accelerated projected gradient on A, with the best intercept for every A: then propensities
    add up to n, and the gradient by A is P - O. The momentum is reset when the loss would rise.
    """
    current, ahead, momentum = np.zeros_like(observed), np.zeros_like(observed), 1.0
    intercept, value = best_intercept(observed, current, float(logit(observed.mean())))
    history, has_converged = [value], False
    while len(history) <= max_iter:
        intercept, _ = best_intercept(observed, ahead, intercept)
        gradient = expit(intercept + ahead) - observed
        stepped = project(ahead - gradient / LIPSCHITZ, radius, max_logit)
        intercept, value = best_intercept(observed, stepped, intercept)
        if value > history[-1] and momentum > 1:
            ahead, momentum = current, 1.0
            continue
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = stepped + (momentum - 1) / next_momentum * (stepped - current)
        current, momentum = stepped, next_momentum
        history.append(value)
        report(len(history) - 1, value)
        has_converged = history[-2] - value <= tol * abs(value)
        if has_converged:
            break
    logits = LowRankLogits(intercept, *factorize(current))
    return LowRankFit(logits, tuple(history), has_converged)


def project(matrix: Matrix, radius: float, max_abs: float | None) -> Matrix:
    """The nearest matrix with ||A||_* <= radius and max abs(A) <= max_abs.

    Dykstra's alternating projections.
    """
    if max_abs is None:
        return project_on_nuclear_ball(matrix, radius)
    point = matrix
    box_correction, ball_correction = np.zeros_like(matrix), np.zeros_like(matrix)
    for _ in range(MAX_PROJECTIONS):
        in_ball = project_on_nuclear_ball(point + ball_correction, radius)
        ball_correction = point + ball_correction - in_ball
        in_box = np.clip(in_ball + box_correction, -max_abs, max_abs)
        box_correction = in_ball + box_correction - in_box
        point = in_box
        if np.abs(in_box - in_ball).max() <= 1e-10 * max_abs:
            break
    return point


def project_on_nuclear_ball(matrix: Matrix, radius: float) -> Matrix:
    """The nearest matrix with ||A||_* <= radius: singular values are reduced by one amount."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    if values.sum() <= radius:
        return matrix
    projected: Matrix = (left * reduce_to_sum(values, radius)) @ right
    return projected


def reduce_to_sum(values: Vector, total: float) -> Vector:
    """Soft thresholding: max(values - threshold, 0), which adds up to ``total`` > 0.

    ``values`` are in descending order and add up to more than ``total``.
    """
    thresholds = (np.cumsum(values) - total) / np.arange(1, values.size + 1)
    threshold = thresholds[np.flatnonzero(values > thresholds)[-1]]
    reduced: Vector = np.maximum(values - threshold, 0)
    return reduced


def best_intercept(observed: Matrix, deviation: Matrix, start: float) -> tuple[float, float]:
    """The c at which sum_D sigma(c + A) = n, and the loss there."""
    intercept = shift_to_total(deviation, float(observed.sum()), start=start)
    x = intercept + deviation
    return intercept, float(np.logaddexp(0, x).sum() - np.vdot(observed, x))


def to_dense(observed: ObservedMatrix) -> Matrix:
    """O as a dense matrix of the whole universe; unlisted users and items are last."""
    shape = (int(observed.user_count.sum()), int(observed.item_count.sum()))
    dense = np.zeros(shape)
    dense[observed.user, observed.item] = 1
    return dense


def factorize(deviation: Matrix) -> tuple[Matrix, Matrix]:
    """A = Q S' with (||Q||^2 + ||S||^2) / 2 = ||A||_*.

    Both factors have the square roots of the positive singular values.
    """
    left, values, right = np.linalg.svd(deviation, full_matrices=False)
    rank = max(1, int((values > 1e-12 * max(values[0], 1e-300)).sum()))
    root = np.sqrt(values[:rank])
    return left[:, :rank] * root, right[:rank].T * root
