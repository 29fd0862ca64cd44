"""Propensities from 1-bit matrix completion of the observed bits (Ma & Chen 2019)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

import numpy as np
from scipy.special import expit

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import UnknownNameError, UsageError
from unskew.progress import progress_line
from unskew.propensity.low_rank.bits import Bits, pair_products
from unskew.propensity.low_rank.logits import (
    Logits,
    Outcome,
    Part,
    Penalized,
    all_sums,
    descend,
    noise,
    require_both,
)
from unskew.propensity.low_rank.nuclear import dense_bits, in_factors, solve_in_nuclear_ball
from unskew.propensity.model import PropensityModel, known_universe
from unskew.threads import Workers, single_blas_thread
from unskew.types import IntVector, Matrix, Vector

MOST_DENSE_CELLS = 1 << 22
"""More are not held as a whole: 32 MiB for each of a handful of matrices, and as many singular value decompositions as steps."""
STRENGTHS = (1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125, 0.09, 0.0625)
"""What l2="cv" tries, in this order, until the best is PATIENCE steps behind."""
PATIENCE = 2
JUDGING_TOL = 1e-5
"""Fits that only judge a strength stop earlier."""
SETTINGS_OF = {"low_rank": ("n_factors", "l2", "n_threads"), "convex": ("max_nuclear", "max_logit")}

Report: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """The strength of the penalty, and the strengths it was chosen from with the mean log-loss of the cells held out."""

    l2: float | None
    tried: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()


class OneBitPropensity(PropensityModel):
    """P = sigma(c + A_ui) with A of low rank: 1-bit matrix completion of O, which is known in every cell.

        min  sum_D [log(1 + e^(c + A)) - O (c + A)]  +  l2_eff (||Q||^2 + ||S||^2) / 2,    A = Q S'

    The penalty is the nuclear norm of A in disguise: ||A||_* = min over Q S' = A of (||Q||^2 + ||S||^2) / 2. The intercept c is
    free, so that propensities add up to n over all cells. Needs neither covariates nor an MCAR sample, and cannot see whether
    what was observed depends on the rating. A step costs O(U I K), in blocks of cells.

    The cells of the log it was fitted to get larger propensities than cells like them, since the fit has seen them: prefer SNIPS
    to IPS there, or cross-fit.

    Parameters
    ----------
    n_factors
        Rank of A, at most; no more than min(U, I) is used.
    l2
        Strength of the penalty, in units of the noise: ``l2_eff = l2 * sqrt(p (1 - p)) (sqrt(U) + sqrt(I))`` with the density p,
        about the largest singular value of O - p where every cell is alike. From 1 on pure noise gives A = 0; smaller follows
        the data more closely. ``"cv"`` takes the best of a list, judged by the likelihood of a tenth of the cells, held out.
    solver
        ``"low_rank"``: L-BFGS on c, Q and S. ``"convex"``: the problem of Ma and Chen (2019) for small matrices, which are held
        as a whole: no penalty, but ``||A||_* <= max_nuclear sqrt(U I)`` and ``max abs(A) <= max_logit``.
    max_nuclear, max_logit
        Of ``solver="convex"`` only. A bound on the logit keeps all propensities between sigma(c - max_logit) and
        sigma(c + max_logit); their 3 without an intercept would keep them above 0.047, more than most logs' density.
    max_iter, tol
        Stop after so many steps, or when one lowers the objective by no more than this share of it.
    n_threads
        One for each processor by default; the result never depends on it.
    random_state
        Seed of the start and of the cells held out.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    intercept_, user_factors_, item_factors_ : c, Q and S, one row for each user and item of the log.
    l2_ : the strength used; None with ``solver="convex"``.
    tried_l2_, held_out_loss_ : with ``l2="cv"``, the strengths tried and the mean log-loss of the held-out cells.
    history_, n_iter_, converged_ : the objective at the start and after each step, their number, and whether it was flat.
    """

    intercept_: float
    user_factors_: Matrix
    item_factors_: Matrix
    l2_: float | None
    tried_l2_: tuple[float, ...]
    held_out_loss_: tuple[float, ...]
    history_: tuple[float, ...]
    n_iter_: int
    converged_: bool

    def __init__(
        self,
        n_factors: int = 20,
        l2: float | Literal["cv"] = 0.7,
        *,
        solver: Literal["low_rank", "convex"] = "low_rank",
        max_nuclear: float | None = None,
        max_logit: float | None = None,
        max_iter: int = 500,
        tol: float = 1e-7,
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_factors = n_factors
        self.l2 = l2
        self.solver = solver
        self.max_nuclear = max_nuclear
        self.max_logit = max_logit
        self.max_iter = max_iter
        self.tol = tol
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Fit to which cells were observed; ratings are not looked at. The universe may be larger than the log's lists."""
        self._check()
        known = known_universe(log, universe)
        bits = Bits.of(log, known)
        with single_blas_thread(), progress_line(self.verbose) as line:
            choice, outcome = (
                self._convex(bits, line) if self.solver == "convex" else self._low_rank(bits, line)
            )
        logits = outcome.logits
        self.intercept_ = logits.intercept
        self.user_factors_, self.item_factors_ = (
            logits.user[: log.n_users],
            logits.item[: log.n_items],
        )
        self.l2_, self.tried_l2_, self.held_out_loss_ = choice.l2, choice.tried, choice.losses
        self.history_, self.n_iter_, self.converged_ = (
            outcome.history,
            len(outcome.history) - 1,
            outcome.has_converged,
        )
        self._remember(log, known)
        return self

    @property
    def learns_users(self) -> bool:
        """It has factors of each."""
        return True

    def _find_inconsistency(self) -> str | None:
        """Factors of other sizes than the ids belong to another model."""
        user, item = self.user_factors_.shape, self.item_factors_.shape
        if (user[0], item[0]) != (len(self.users_), len(self.items_)) or user[1:] != item[1:]:
            ids = f"{len(self.users_)} users and {len(self.items_)} items"
            return f"its factors have shapes {user} and {item}, which its {ids} do not fit."
        return None

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:  # noqa: ARG002
        chances: Vector = expit(
            self.intercept_ + pair_products(self.user_factors_, self.item_factors_, user, item)
        )
        return chances

    def _low_rank(self, bits: Bits, line: Report) -> tuple[Choice, Outcome]:
        rng = np.random.default_rng(self.random_state)
        rank = min(self.n_factors, bits.user_count.size, bits.item_count.size)
        with Workers(self.n_threads) as workers:
            problem = Penalized(Part(bits), 0.0, rank, workers)
            start = problem.start(rng)
            choice = self._judge(problem, start, rng, line) if self.l2 == "cv" else Choice(self.l2)
            return choice, self._descend(
                replace(problem, l2=(choice.l2 or 0.0) * noise(bits)), start, self.tol, line
            )

    def _judge(
        self, problem: Penalized, start: Vector, rng: np.random.Generator, line: Report
    ) -> Choice:
        """Strengths from strong to weak, each from the last fit, and the mean log-loss of the cells held out."""
        kept, held_out = problem.cells.split(rng)
        require_both(kept, held_out)
        losses: list[float] = []
        for l2 in STRENGTHS:
            trial = replace(problem, cells=kept, l2=l2 * noise(kept.bits))
            fitted = self._descend(
                trial, start, max(self.tol, JUDGING_TOL), line, label=f"l2 {l2:g}, "
            ).logits
            losses.append(all_sums(held_out, fitted, problem.workers).loss / held_out.n_cells)
            if len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE:
                break
            start = trial.restart(fitted, rng)
        return Choice(STRENGTHS[int(np.argmin(losses))], STRENGTHS[: len(losses)], tuple(losses))

    def _descend(
        self, problem: Penalized, start: Vector, tol: float, line: Report, *, label: str = ""
    ) -> Outcome:
        def report(step: int, value: float) -> None:
            line(f"{label}step {step}, objective {value:.6g}")

        return descend(problem, start, max_iter=self.max_iter, tol=tol, report=report)

    def _convex(self, bits: Bits, line: Report) -> tuple[Choice, Outcome]:
        if bits.n_cells > MOST_DENSE_CELLS:
            raise UsageError(
                f"solver='convex' holds all cells, at most {MOST_DENSE_CELLS:,}; there are {bits.n_cells:,.0f}. "
                "Use solver='low_rank'."
            )
        found = solve_in_nuclear_ball(
            dense_bits(bits),
            radius=float(self.max_nuclear or 0) * float(np.sqrt(bits.n_cells)),
            max_logit=self.max_logit,
            max_iter=self.max_iter,
            tol=self.tol,
            report=lambda step, value: line(f"step {step}, loss {value:.6g}"),
        )
        logits = Logits(found.intercept, *in_factors(found.deviation))
        return Choice(None), Outcome(logits, found.history, found.has_converged)

    def _check(self) -> None:
        if self.solver not in SETTINGS_OF:
            raise UnknownNameError("solver", self.solver, SETTINGS_OF)
        for other, names in SETTINGS_OF.items():
            for name in names:
                if other != self.solver and self._is_changed(name, getattr(self, name)):
                    raise UsageError(
                        f"{name} belongs to solver={other!r}; this is solver={self.solver!r}. Leave one of them out."
                    )
        for name, least in (("n_factors", 1), ("max_iter", 1), ("random_state", 0)):
            whole_number(name, getattr(self, name), least=least)
        if not (self.l2 == "cv" or _is_positive(self.l2)):
            raise UsageError(
                f"l2 must be a positive number or 'cv'; got {self.l2!r}. Without a penalty logits grow without bound."
            )
        if self.solver == "convex" and (
            self.max_nuclear is None or not _is_positive(self.max_nuclear)
        ):
            raise UsageError(
                f"solver='convex' needs max_nuclear, a positive number, such as 1; got {self.max_nuclear!r}."
            )
        if self.max_logit is not None and not _is_positive(self.max_logit):
            raise UsageError(
                f"max_logit must be a positive number, such as 3, or None; got {self.max_logit!r}."
            )
        if not (is_finite_number(self.tol) and self.tol >= 0):
            raise UsageError(f"tol must be a number, at least 0; got {self.tol!r}.")


def _is_positive(value: float) -> bool:
    return is_finite_number(value) and value > 0
