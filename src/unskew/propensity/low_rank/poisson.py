"""Propensities from Poisson factorisation of the observed bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import UnknownNameError, UsageError
from unskew.progress import progress_line
from unskew.propensity.low_rank.bits import Bits, pair_products
from unskew.propensity.model import PropensityModel, known_universe
from unskew.threads import single_blas_thread
from unskew.types import IntVector, Matrix, Vector

LEAST_SHAPE = 0.01
"""Below, exp(E log x) of a silent line leaves the range of floats."""

Likelihood = Literal["bernoulli", "poisson"]


@dataclass(frozen=True, slots=True, eq=False)
class Gammas:
    """q(x) = Gamma(shape, rate) of every entry of a factor matrix."""

    shape: Matrix
    rate: Matrix
    """One row for all lines where they share it."""

    @property
    def mean(self) -> Matrix:
        """E x."""
        return self.shape / self.rate

    @property
    def geometric_mean(self) -> Matrix:
        """exp(E log x), E log x = digamma(shape) - log rate."""
        means: Matrix = np.exp(digamma(self.shape)) / self.rate
        return means

    def divergence(self, shape: float, rate: float) -> Matrix:
        """KL(q || Gamma(shape, rate)) of every entry."""
        gap: Matrix = (
            (self.shape - shape) * digamma(self.shape)
            - gammaln(self.shape)
            + gammaln(shape)
            + shape * np.log(self.rate / rate)
            + self.shape * (rate / self.rate - 1)
        )
        return gap


class PoissonPropensity(PropensityModel):
    """P = 1 - exp(-s_u . t_i) with s_uk and t_ik ~ Gamma(shape, rate), by coordinate-ascent variational inference.

        bound = sum_O log(e^L - 1) - sum_D E[s_u] . E[t_i] - KL(q(s) || prior) - KL(q(t) || prior),
        L_ui = sum_k exp(E log s_uk + E log t_ik)

    Every sweep raises the bound and costs O(n K + (U + I) K): unobserved cells enter through sums alone. A user or item without
    observations keeps what the prior says of it, less what being silent tells. Needs neither covariates nor an MCAR sample, and
    cannot see whether what was observed depends on the rating.

    The cells of the log it was fitted to get larger propensities than cells like them, since the fit has seen them: prefer SNIPS
    to IPS there, or cross-fit.

    Parameters
    ----------
    n_factors
        K, the length of s_u and t_i.
    shape
        Of the prior. Below 1 it favours lines with few large entries.
    rate
        Of the prior. By default the one at which the prior's mean propensity is that of the log:
        ``shape * sqrt(K / -log(1 - density))``.
    likelihood
        ``"bernoulli"``: a cell is observed when a Poisson count with mean s_u . t_i is at least one, of which 1 - exp(-s_u . t_i)
        is the exact chance. ``"poisson"``: the bit is the count itself, log L in place of log(e^L - 1), as in plain Poisson
        factorisation; its propensities then add up to less than the log, the more so the denser it is.
    max_iter, tol
        Stop after so many sweeps, or when one raises the bound by no more than this share of it.
    random_state
        Seed of the start.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    user_factors_, item_factors_ : E[s_u] and E[t_i], one row for each user and item of the log.
    rate_ : the prior's rate.
    history_, n_iter_, converged_ : the bound at the start and after each sweep, their number, and whether it was flat.
    """

    user_factors_: Matrix
    item_factors_: Matrix
    rate_: float
    history_: tuple[float, ...]
    n_iter_: int
    converged_: bool

    def __init__(
        self,
        n_factors: int = 20,
        shape: float = 0.3,
        rate: float | None = None,
        *,
        likelihood: Likelihood = "bernoulli",
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_factors = n_factors
        self.shape = shape
        self.rate = rate
        self.likelihood = likelihood
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Fit to which cells were observed; ratings are not looked at. The universe may be larger than the log's lists."""
        self._check()
        known = known_universe(log, universe)
        bits = Bits.of(log, known)
        rate = (
            prior_rate(self.n_factors, self.shape, bits.density) if self.rate is None else self.rate
        )
        with single_blas_thread(), progress_line(self.verbose) as line:
            users, items, history, has_converged = self._ascend(bits, rate, line)
        self.user_factors_, self.item_factors_ = (
            users.mean[: log.n_users],
            items.mean[: log.n_items],
        )
        self.rate_ = rate
        self.history_, self.n_iter_, self.converged_ = history, len(history) - 1, has_converged
        self._remember(log, known)
        return self

    @property
    def learns_users(self) -> bool:
        """It has factors of each."""
        return True

    def _find_inconsistency(self) -> str | None:
        """Factors of other sizes than the ids belong to another model."""
        sizes = (self.user_factors_.shape, self.item_factors_.shape)
        if sizes != ((len(self.users_), self.n_factors), (len(self.items_), self.n_factors)):
            return f"its factors have shapes {sizes[0]} and {sizes[1]}, which its ids and n_factors={self.n_factors} do not fit."
        return None

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:  # noqa: ARG002
        chances: Vector = -np.expm1(
            -pair_products(self.user_factors_, self.item_factors_, user, item)
        )
        return chances

    def _ascend(
        self, bits: Bits, rate: float, line: Callable[[str], None]
    ) -> tuple[Gammas, Gammas, tuple[float, ...], bool]:
        """Sweeps until the bound is flat."""
        users, items = start(bits, self.n_factors, np.random.default_rng(self.random_state))
        history: list[float] = []
        while True:
            expected, evidence = explain(bits, users, items, self.likelihood)
            history.append(evidence + penalty(bits, users, items, self.shape, rate))
            line(f"sweep {len(history) - 1}, bound {history[-1]:.6g}")
            is_flat = len(history) > 1 and history[-1] - history[-2] <= self.tol * abs(history[-1])
            if is_flat or len(history) > self.max_iter:
                return users, items, tuple(history), is_flat
            users, items = sweep(bits, users, items, expected, self.shape, rate)

    def _check(self) -> None:
        whole_number("n_factors", self.n_factors, least=1)
        whole_number("max_iter", self.max_iter, least=1)
        whole_number("random_state", self.random_state, least=0)
        if self.likelihood not in ("bernoulli", "poisson"):
            raise UnknownNameError("likelihood", self.likelihood, ("bernoulli", "poisson"))
        if not (is_finite_number(self.shape) and self.shape >= LEAST_SHAPE):
            raise UsageError(
                f"shape must be a number, at least {LEAST_SHAPE}; got {self.shape!r}. About 0.3 is usual."
            )
        if self.rate is not None and not (is_finite_number(self.rate) and self.rate > 0):
            raise UsageError(
                f"rate must be a positive number, or None for one that fits the density; got {self.rate!r}."
            )
        if not (is_finite_number(self.tol) and self.tol >= 0):
            raise UsageError(f"tol must be a number, at least 0; got {self.tol!r}.")


def prior_rate(n_factors: int, shape: float, density: float) -> float:
    """The b with 1 - exp(-K (a / b)^2) = density: the prior's mean propensity is the log's."""
    return shape * float(np.sqrt(n_factors / -np.log1p(-density)))


def start(bits: Bits, n_factors: int, rng: np.random.Generator) -> tuple[Gammas, Gammas]:
    """Random shapes around 1, and the rate at which products average the density."""
    rate = np.full((1, n_factors), np.sqrt(n_factors / bits.density))
    users, items = (
        Gammas(rng.uniform(0.5, 1.5, (size, n_factors)), rate)
        for size in (bits.user_count.size, bits.item_count.size)
    )
    return users, items


def explain(
    bits: Bits, users: Gammas, items: Gammas, likelihood: Likelihood
) -> tuple[csr_array, float]:
    """What each observed cell says: E[count_ui] / L_ui as a sparse matrix, and the sum of log P(O_ui = 1 | its best q).

    With L = sum_k exp(E log s_uk + E log t_ik), a count known to be at least 1 has mean L / (1 - e^-L) and total mass e^L - 1;
    one known to be 1 has mean 1 and mass L.
    """
    level = pair_products(users.geometric_mean, items.geometric_mean, bits.user, bits.item)
    at_least_one = likelihood == "bernoulli"
    share = -1 / np.expm1(-level) if at_least_one else 1 / level
    mass = level + np.log(-np.expm1(-level)) if at_least_one else np.log(level)
    shape = (bits.user_count.size, bits.item_count.size)
    return csr_array((share, bits.item, bits.starts), shape=shape), float(mass.sum())


def penalty(bits: Bits, users: Gammas, items: Gammas, shape: float, rate: float) -> float:
    """The rest of the bound: -sum_D E[s_u] . E[t_i] - KL(q(s) || prior) - KL(q(t) || prior)."""
    mean = float((bits.user_count @ users.mean) @ (bits.item_count @ items.mean))
    sides = ((bits.user_count, users), (bits.item_count, items))
    return -mean - sum(
        float(count @ each.divergence(shape, rate).sum(axis=1)) for count, each in sides
    )


def sweep(
    bits: Bits, users: Gammas, items: Gammas, expected: csr_array, shape: float, rate: float
) -> tuple[Gammas, Gammas]:
    """s_uk: shape a + sum_i E[count_uik], rate b + sum_i E t_ik; then items likewise, with the new users.

    E[count_uik] = exp(E log s_uk + E log t_ik) E[count_ui] / L_ui, so that its sums are two sparse products.
    """
    user_level, item_level = users.geometric_mean, items.geometric_mean
    user_sum, item_sum = (
        user_level * (expected @ item_level),
        item_level * (expected.T @ user_level),
    )
    new_users = Gammas(shape + user_sum, rate + (bits.item_count @ items.mean)[None])
    new_items = Gammas(shape + item_sum, rate + (bits.user_count @ new_users.mean)[None])
    return new_users, new_items
