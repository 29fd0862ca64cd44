"""Propensities from Poisson factorisation of the observed cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, Self, get_args

import numpy as np
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln

from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.memory import require_memory
from unskew.progress import progress_line
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.low_rank import ObservedMatrix, pair_products
from unskew.propensity.model import PropensityModel, require_universe, warn_if_not_converged
from unskew.settings import Number, OneOf, WholeNumber, check_random_state, setting
from unskew.threads import single_blas_thread
from unskew.types import IntVector, Matrix, RandomState, Vector

MIN_SHAPE = 0.01
"""With a smaller shape, exp(E log x) underflows for users and items without observations."""

Likelihood = Literal["bernoulli", "poisson"]


@dataclass(frozen=True, slots=True, eq=False)
class GammaFactors:
    """q(x) = Gamma(shape, rate) for every entry x of a factor matrix."""

    shape: Matrix
    rate: Matrix
    """One row, if all rows have the same rates."""

    @property
    def mean(self) -> Matrix:
        return self.shape / self.rate

    @property
    def geometric_mean(self) -> Matrix:
        """exp(E log x), with E log x = digamma(shape) - log rate."""
        means: Matrix = np.exp(digamma(self.shape)) / self.rate
        return means

    def divergence(self, shape: float, rate: float) -> Matrix:
        """KL(q || Gamma(shape, rate)) of every entry."""
        divergence: Matrix = (
            (self.shape - shape) * digamma(self.shape)
            - gammaln(self.shape)
            + gammaln(shape)
            + shape * np.log(self.rate / rate)
            + self.shape * (rate / self.rate - 1)
        )
        return divergence


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
        Stop after this many sweeps, or when one raises the bound by no more than this share of it.
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
        with single_blas_thread(), progress_line(self.verbose) as report:
            users, items = self._maximize_bound(observed, report)
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
        self, observed: ObservedMatrix, report: Callable[[str], None]
    ) -> tuple[GammaFactors, GammaFactors]:
        """Sweep until the bound rises by no more than ``tol``."""
        rng = np.random.default_rng(self.random_state)
        users, items = random_factors(observed, self.n_factors, rng)
        history: list[float] = []
        while True:
            ratio, evidence = expected_counts(observed, users, items, self.likelihood)
            bound = evidence - penalty(observed, users, items, self.shape, self.rate_)
            history.append(bound)
            report(f"sweep {len(history) - 1}, bound {bound:.6g}")
            has_converged = len(history) > 1 and bound - history[-2] <= self.tol * abs(bound)
            if has_converged or len(history) > self.max_iter:
                break
            users, items = sweep(observed, users, items, ratio, self.shape, self.rate_)
        self.history_, self.n_iter_ = tuple(history), len(history) - 1
        self.converged_ = has_converged
        return users, items

    def _find_inconsistency(self) -> str | None:
        shapes = (self.user_factors_.shape, self.item_factors_.shape)
        if shapes != ((len(self.users_), self.n_factors), (len(self.items_), self.n_factors)):
            return (
                f"its factors have shapes {shapes[0]} and {shapes[1]}, but it has "
                f"{len(self.users_)} users, {len(self.items_)} items and {self.n_factors} factors."
            )
        return None


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


def expected_counts(
    observed: ObservedMatrix, users: GammaFactors, items: GammaFactors, likelihood: Likelihood
) -> tuple[csr_array, float]:
    """E[count_ui] / L_ui of the observed cells, and the sum of their log evidence.

    With L = sum_k exp(E log s_uk + E log t_ik), a count of at least 1 has mean L / (1 - e^-L) and
    evidence log(e^L - 1); a count of exactly 1 has mean 1 and evidence log L.
    """
    level = pair_products(users.geometric_mean, items.geometric_mean, observed.user, observed.item)
    if likelihood == "bernoulli":
        ratio = -1 / np.expm1(-level)
        evidence = level + np.log(-np.expm1(-level))
    else:
        ratio, evidence = 1 / level, np.log(level)
    shape = (observed.user_count.size, observed.item_count.size)
    return csr_array((ratio, observed.item, observed.starts), shape=shape), float(evidence.sum())


def penalty(
    observed: ObservedMatrix, users: GammaFactors, items: GammaFactors, shape: float, rate: float
) -> float:
    """What the bound subtracts: sum_D E[s_u] . E[t_i] + KL(q(s) || prior) + KL(q(t) || prior)."""
    sides = ((observed.user_count, users), (observed.item_count, items))
    mean = float((observed.user_count @ users.mean) @ (observed.item_count @ items.mean))
    return mean + sum(
        float(count @ factors.divergence(shape, rate).sum(axis=1)) for count, factors in sides
    )


def sweep(
    observed: ObservedMatrix,
    users: GammaFactors,
    items: GammaFactors,
    ratio: csr_array,
    shape: float,
    rate: float,
) -> tuple[GammaFactors, GammaFactors]:
    """Update q(s_uk) to shape a + sum_i E[count_uik] and rate b + sum_i E t_ik, then q(t).

    E[count_uik] = exp(E log s_uk + E log t_ik) E[count_ui] / L_ui, so its sums are two sparse
    products with ``ratio``, E[count_ui] / L_ui.
    """
    user_level, item_level = users.geometric_mean, items.geometric_mean
    user_sum = user_level * (ratio @ item_level)
    item_sum = item_level * (ratio.T @ user_level)
    new_users = GammaFactors(shape + user_sum, rate + (observed.item_count @ items.mean)[None])
    new_items = GammaFactors(shape + item_sum, rate + (observed.user_count @ new_users.mean)[None])
    return new_users, new_items
