"""Propensities from Poisson factorisation of the observed cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, NamedTuple, Self, get_args

import numpy as np

from unskew.data.cells import RowStarts, split_groups
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.memory import require_memory
from unskew.progress import progress_line
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.low_rank import ObservedMatrix, pair_products
from unskew.propensity.model import PropensityModel, require_universe, warn_if_not_converged
from unskew.settings import Number, OneOf, WholeNumber, check_random_state, setting
from unskew.threads import Workers
from unskew.types import ArrayShapes, Floats, IntVector, Matrix, RandomState, Vector

MIN_SHAPE = 0.01
"""With a smaller shape, exp(E log x) underflows for users and items without observations."""
WINDOW = 3
"""Sweeps over which convergence is checked: one after a restart of the momentum is short."""
MAX_TASKS = 8
WORK_PER_TASK = 25_000
"""Cells, or factors, of a task. Tasks depend on the log alone, and are added up in their order."""

Likelihood = Literal["bernoulli", "poisson"]


@dataclass(frozen=True, slots=True, eq=False)
class GammaFactors:
    """q(x) = Gamma(shape, rate) for every entry x of a factor matrix."""

    shape: Matrix
    rate: Matrix
    """One row: all rows have the same rates."""

    @property
    def mean(self) -> Matrix:
        return self.shape / self.rate

    def extrapolate(self, previous: GammaFactors, share: float, prior: Prior) -> GammaFactors:
        """Go on by ``share`` of the change since ``previous``; the prior is the least possible."""
        return GammaFactors(
            np.maximum(self.shape + share * (self.shape - previous.shape), prior.shape),
            np.maximum(self.rate + share * (self.rate - previous.rate), prior.rate),
        )


@dataclass(frozen=True, slots=True)
class Prior:
    """Gamma(shape, rate), the prior of all factors."""

    shape: float
    rate: float


@PROPENSITY_MODELS.declare(
    "poisson",
    label="Poisson factorisation",
    summary="Which cells were observed, as a Poisson factorisation, for large sparse logs.",
    traits={"learns_users": True},
)
@dataclass(eq=False, repr=False)
class PoissonPropensity(PropensityModel):
    """P = 1 - exp(-s_u . t_i) with s_uk and t_ik ~ Gamma(shape, rate).

    The posterior is approximated by coordinate-ascent variational inference, which maximises

        bound = sum_O log(e^L - 1) - sum_D E[s_u] . E[t_i] - KL(q(s) || prior) - KL(q(t) || prior),
        L_ui = sum_k exp(E log s_uk + E log t_ik)

    Every sweep raises the bound and costs O(n K + (U + I) K), because unobserved cells enter only
    through sums. The model needs neither covariates nor a random sample, and cannot see whether
    observation depends on the rating.

    Cells of the log get larger propensities than similar cells, because the fit has seen them:
    use SNIPS, not IPS, also inside CrossFittedPropensity.

    Parameters
    ----------
    n_factors
        K, the length of s_u and t_i.
    shape
        Shape of the prior. Below 1, it favours factors with few large entries.
    rate
        Rate of the prior. By default the one whose mean propensity is the density of the log:
        ``shape * sqrt(K / -log(1 - density))``.
    likelihood
        ``"bernoulli"``: a cell is observed if a Poisson count with mean s_u . t_i is at least 1,
        which has exactly the probability 1 - exp(-s_u . t_i). ``"poisson"``: an observed cell is
        a count of 1, with log L in place of log(e^L - 1), as in plain Poisson factorisation. Then
        propensities add up to less than the log, in particular if the log is dense.
    max_iter, tol
        Stop after this many sweeps, or when the last three raised the bound by no more than this
        share of it per sweep. Sweeps have momentum: they start beyond the last factors, as long as
        this raises the bound.
    n_threads
        One for each processor by default; the result does not depend on it.
    random_state
        Seed of the start.
    verbose
        Show progress on standard error.

    Attributes
    ----------
    user_factors_, item_factors_ : E[s_u] and E[t_i], one row for each user and item.
    rate_ : the rate of the prior.
    history_ : the bound at the start and after each sweep.
    n_iter_, converged_ : the sweeps, and whether the last one reached ``tol``.
    """

    n_factors: int = setting(20, WholeNumber(least=1))
    shape: float = setting(0.3, Number(least=MIN_SHAPE))
    rate: float | None = setting(None, Number(above=0, allow_none=True))
    _: KW_ONLY
    likelihood: Likelihood = setting("bernoulli", OneOf(get_args(Likelihood)))
    max_iter: int = setting(200, WholeNumber(least=1))
    tol: float = setting(1e-5, Number(least=0))
    n_threads: int | None = setting(None, WholeNumber(least=1, allow_none=True))
    random_state: RandomState = setting(0, check_random_state)
    verbose: bool = False

    user_factors_: Matrix = field(init=False)
    item_factors_: Matrix = field(init=False)
    rate_: float = field(init=False)
    history_: tuple[float, ...] = field(init=False)
    n_iter_: int = field(init=False)
    converged_: bool = field(init=False)

    learns_users = True

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Learn which cells were observed. The universe may be larger than the log's lists."""
        self._check_settings()
        size = require_universe(log, universe)
        observed = ObservedMatrix.of_log(log, size)
        self.rate_ = self.rate or prior_rate(self.n_factors, self.shape, observed.density)
        with Workers(self.n_threads) as workers, progress_line(self.verbose) as report:
            users, items = self._maximize_bound(observed, workers, report)
        self.user_factors_ = users.mean[: log.n_users]
        self.item_factors_ = items.mean[: log.n_items]
        self._record_log(log, size)
        warn_if_not_converged(self)
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        mean = pair_products(self.user_factors_, self.item_factors_, user, item)
        propensity: Vector = -np.expm1(-mean)
        return propensity

    def _maximize_bound(
        self, observed: ObservedMatrix, workers: Workers, report: Callable[[str], None]
    ) -> tuple[GammaFactors, GammaFactors]:
        """Sweep until the bound rises by no more than ``tol``.

        A sweep raises the bound. The next one starts beyond it, in the direction of the last change
        (Nesterov's momentum), unless the bound is lower there.
        """
        prior, rng = Prior(self.shape, self.rate_), np.random.default_rng(self.random_state)
        posterior = Posterior(observed, prior, self.likelihood, workers)
        last = start = random_factors(observed, self.n_factors, rng)
        counts, bound = posterior.evaluate(*start)
        history, momentum, has_converged = [bound], 1.0, False
        report(f"sweep 0, bound {bound:.6g}")
        while not has_converged and len(history) <= self.max_iter:
            swept = posterior.sweep(*start, counts)
            next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            share, momentum = (momentum - 1) / next_momentum, next_momentum
            start = (
                swept[0].extrapolate(last[0], share, prior),
                swept[1].extrapolate(last[1], share, prior),
            )
            counts, bound = posterior.evaluate(*start)
            if share > 0 and bound < history[-1]:
                start, momentum = swept, 1.0
                counts, bound = posterior.evaluate(*start)
            last = swept
            history.append(bound)
            report(f"sweep {len(history) - 1}, bound {bound:.6g}")
            window = history[-1 - WINDOW :]
            has_converged = len(window) > WINDOW and window[-1] - window[
                0
            ] <= WINDOW * self.tol * abs(bound)
        self.history_, self.n_iter_ = tuple(history), len(history) - 1
        self.converged_ = has_converged
        return start

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        return {
            "user_factors": (self.user_factors_, (len(self.users_), self.n_factors)),
            "item_factors": (self.item_factors_, (len(self.items_), self.n_factors)),
        }


def prior_rate(n_factors: int, shape: float, density: float) -> float:
    """The b with 1 - exp(-K (a / b)^2) = density: the prior's mean propensity is the log's."""
    return shape * float(np.sqrt(n_factors / -np.log1p(-density)))


def random_factors(
    observed: ObservedMatrix, n_factors: int, rng: np.random.Generator
) -> tuple[GammaFactors, GammaFactors]:
    """Random shapes around 1, and the rate at which products have the density as mean."""
    n_rows = observed.user_count.size + observed.item_count.size
    require_memory(
        24.0 * n_rows * n_factors,
        f"a fit of {n_rows:,} users and items with {n_factors:,} factors",
        parameter="n_factors",
        remedy="Use fewer factors.",
    )
    rate = np.full((1, n_factors), np.sqrt(n_factors / observed.density))
    users, items = (
        GammaFactors(rng.uniform(0.5, 1.5, (size, n_factors)), rate)
        for size in (observed.user_count.size, observed.item_count.size)
    )
    return users, items


class ExpectedCounts(NamedTuple):
    """The expected counts of each factor, added up by user and by item."""

    by_user: Matrix
    by_item: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """The bound of an approximate posterior, and the sweeps that raise it."""

    observed: ObservedMatrix
    prior: Prior
    likelihood: Likelihood
    workers: Workers

    def evaluate(self, users: GammaFactors, items: GammaFactors) -> tuple[ExpectedCounts, float]:
        """The expected counts of the observed cells, and the bound.

        With L = sum_k exp(E log s_uk + E log t_ik), a count of at least 1 has mean L / (1 - e^-L)
        and evidence log(e^L - 1); a count of exactly 1 has mean 1 and evidence log L.
        """
        observed = self.observed
        user_means, user_divergence = self._geometric_means(users, observed.user_count)
        item_means, item_divergence = self._geometric_means(items, observed.item_count)
        by_user, by_item, evidence = self._add_cells(user_means, item_means)
        n_factors = users.shape.shape[1]
        counts = ExpectedCounts(
            np.multiply(user_means, by_user, dtype=np.float64)[:, :n_factors],
            np.multiply(item_means, by_item, dtype=np.float64)[:, :n_factors],
        )
        mean = float((observed.user_count @ users.mean) @ (observed.item_count @ items.mean))
        return counts, evidence - mean - user_divergence - item_divergence

    def sweep(
        self, users: GammaFactors, items: GammaFactors, counts: ExpectedCounts
    ) -> tuple[GammaFactors, GammaFactors]:
        """New gamma posteriors: of the user factors s_uk, then of the item factors t_ik.

        That of s_uk has shape a + sum_i E[count_uik] and rate b + sum_i E[t_ik]; t_ik in turn.
        """
        observed, prior = self.observed, self.prior
        new_users = GammaFactors(
            prior.shape + counts.by_user, prior.rate + (observed.item_count @ items.mean)[None]
        )
        new_items = GammaFactors(
            prior.shape + counts.by_item, prior.rate + (observed.user_count @ new_users.mean)[None]
        )
        return new_users, new_items

    def _geometric_means(self, factors: GammaFactors, count: Vector) -> tuple[Floats, float]:
        """exp(E log x) in padded rows, and KL(q || prior) of all entries."""
        from unskew.kernels.poisson import fill_geometric_means
        from unskew.kernels.rows import padded_zeros

        prior, shapes, rates = self.prior, factors.shape, factors.rate[0]
        means = padded_zeros(len(shapes), shapes.shape[1], np.float64)

        def fill(rows: tuple[int, int]) -> float:
            return fill_geometric_means(rows, shapes, rates, count, prior.shape, prior.rate, means)

        ranges = _cut_rows(np.arange(len(means) + 1) * means.shape[1])
        return means, float(sum(self.workers.map(fill, ranges)))

    def _add_cells(self, user_means: Floats, item_means: Floats) -> tuple[Floats, Floats, float]:
        """What the kernel adds up for each user and item, and the evidence of all cells."""
        from unskew.kernels.poisson import add_expected_counts

        observed, by_user = self.observed, np.zeros_like(user_means)

        def add(rows: tuple[int, int]) -> tuple[Floats, float]:
            by_item = np.zeros_like(item_means)
            evidence = add_expected_counts(
                rows,
                observed.starts,
                observed.item,
                user_means,
                item_means,
                self.likelihood == "bernoulli",
                by_user,
                by_item,
            )
            return by_item, evidence

        parts, evidences = zip(*self.workers.map(add, _cut_rows(observed.starts)), strict=True)
        return by_user, np.add.reduce(parts), sum(evidences)


def _cut_rows(starts: RowStarts) -> list[tuple[int, int]]:
    """Ranges of rows with about equal work; they do not depend on the number of threads."""
    return list(split_groups(starts, int(np.clip(starts[-1] // WORK_PER_TASK, 1, MAX_TASKS))))
