"""Clusters of users over all cells, with a model of which of them are logged (Marlin & Zemel 2009)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.ids import Ids, as_ids, find_codes
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.factorization.solution import Iterative, run
from unskew.latent.mechanisms import (
    AtRandom,
    ByValue,
    ByValueAndItem,
    Effects,
    Mechanism,
    PseudoCells,
)
from unskew.latent.mixture import Cells, Clusters, Expectation, draw
from unskew.latent.value_effects import (
    Codes,
    ValuePropensities,
    given_value_propensities,
    levels_of,
    log_odds,
    require_listed,
)
from unskew.models.discrete import Distribution, DistributionRecommender, Statistic
from unskew.models.recommender import Shapes
from unskew.progress import progress_line
from unskew.settings import require_fitted
from unskew.threads import Workers, single_blas_thread
from unskew.types import IntVector, Matrix, Scorer, Scores, Vector

MECHANISMS: Mapping[str, Callable[[PseudoCells | None], Mechanism]] = {
    "mar": lambda _: AtRandom(),
    "cpt-v": ByValue,
    "logit-vd": ByValueAndItem,
}
VALUE_EFFECTS: Mapping[str, Callable[[Vector, float], PseudoCells | None]] = {
    "fixed": lambda *_: None,
    "prior": lambda chance, cells: PseudoCells(cells * chance, cells * (1 - chance)),
    "free": lambda chance, _: PseudoCells(np.ones_like(chance), np.ones_like(chance)),
}
"""The prior of each level, from its chance of being logged and the cells this counts as; one of each kind where it is free."""
NEVER = -1.0
"""A tolerance that no step meets: the solver itself knows when all its starts are flat."""


class MultinomialMixture(DistributionRecommender, Iterative):
    """Each user belongs to one of K clusters, which says how likely every rating of every item is; unlogged cells count too.

        z_u ~ theta,    P(Y_ui = r | z_u = k) = B_kir,    P(O_ui = 1 | Y_ui = r) = mu_ir

    Parameters
    ----------
    mechanism
        ``"cpt-v"``: mu depends on the rating alone. ``"logit-vd"``: mu_ir = sigma(s_r + t_i), on the item too, with
        t_i ~ N(0, 10). ``"mar"``: mu is the same for all cells, so that only logged ratings count.
    n_clusters
        K.
    value_effect
        What is done with the given P(O = 1 | Y = r), or with s_r: keep them (``"fixed"``), start from them and hold on to them
        as a ``"prior"``, or start from them where they are given and let go (``"free"``). A log alone hardly tells how likely
        a rating is to be logged: the free fit is more likely and often far worse.
    prior_strength
        Of ``"prior"``: the cells, as a share of all U * I, that the prior of each level counts as. The likelihood has U * I
        terms and overrules any prior that does not grow with them.
    smoothing
        Ratings added to each level of each item in each cluster, and users to each cluster: Dirichlet priors of 1 + smoothing.
    n_restarts
        Random starts. They go side by side, each with its own users x K shares in memory, and the best by posterior is kept.
    max_iter, tol
        Stop after so many sweeps, or when each start lowered its objective by no more than this share of it a sweep.
    statistic
        What ``predict`` gives: the ``"mean"``, for MSE, or the ``"median"``, for MAE.
    n_threads
        One for each processor by default; the result never depends on it.
    random_state
        Seed of the starts.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    levels_ : the rating levels.
    cluster_shares_, user_shares_ : theta, and the posterior of each user's cluster, users x clusters.
    rating_shares_ : B, clusters x items x levels.
    value_propensities_ : mu, items x levels.
    objective_, history_, n_iter_, converged_ : the negative log posterior up to a constant, after each sweep that of the best
        start so far, their number, and whether all starts were flat.

    Notes
    -----
    A cell is predicted as one that was not logged: P(Y = r) ~ sum_k q_uk B_kir (1 - mu_ir). An unknown user has the shares
    theta, and an unknown item the mean of all items in each cluster.
    """

    cluster_shares_: Vector
    user_shares_: Matrix
    rating_shares_: Matrix
    value_propensities_: Matrix

    def __init__(
        self,
        mechanism: Literal["mar", "cpt-v", "logit-vd"] = "cpt-v",
        n_clusters: int = 5,
        *,
        value_effect: Literal["fixed", "prior", "free"] = "fixed",
        prior_strength: float = 1.0,
        smoothing: float = 1.0,
        n_restarts: int = 5,
        max_iter: int = 200,
        tol: float = 1e-6,
        statistic: Statistic = "mean",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.mechanism = mechanism
        self.n_clusters = n_clusters
        self.value_effect = value_effect
        self.prior_strength = prior_strength
        self.smoothing = smoothing
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.statistic = statistic
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        value_propensities: ValuePropensities | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
    ) -> Self:
        """Fit to a log whose vocabularies list all users and items that could have been logged.

        Parameters
        ----------
        log
            Ratings of at most 100 levels.
        propensities
            One for each logged cell, as other models take them. Here they do not weight ratings: P(O = 1 | Y = r) is taken from
            them, as n_r over the sum of 1 / P of the log's ratings r. With ``mechanism="mar"`` they change nothing.
        value_propensities
            P(O = 1 | Y = r) itself: a fitted :class:`~unskew.NaiveBayesPropensity`, a table {rating: P}, or values in the order
            of the rating levels.
        checkpoint, checkpoint_every
            The state of all starts is written there every so many sweeps, and a run that finds its own file goes on from it, to
            the same result bit for bit.
        """
        require_log(log)
        self._check()
        levels, codes = levels_of(log)
        chance = self._chance(log, levels, codes, propensities, value_propensities)
        cells, effects = (
            Cells.of(log, codes, levels.size),
            Effects(log_odds(chance), np.zeros(log.n_items)),
        )
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as line,
        ):
            solver = Expectation(
                cells, self._mechanism(log, chance), self.smoothing, self.tol, workers
            )
            outcome = run(
                solver,
                lambda: self._starts(cells, effects),
                max_iter=self.max_iter,
                tol=NEVER,
                checkpoint=self._checkpoint(
                    checkpoint,
                    checkpoint_every,
                    log.user,
                    log.item,
                    log.rating,
                    chance,
                    sizes=(log.n_users, log.n_items),
                ),
                report=lambda step, value: line(
                    f"sweep {step}, negative log posterior {value:.8g}"
                ),
            )
            best = outcome.parameters[0]
            shares = solver.shares(best)
        self._tell(outcome)
        self._remember_log(log)
        self.levels_, self.cluster_shares_, self.user_shares_ = levels, best.sizes, shares
        self.rating_shares_ = np.ascontiguousarray(
            best.levels.reshape(log.n_items, levels.size, -1).transpose(2, 0, 1)
        )
        self.value_propensities_ = best.effects.logged
        return self

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """Codes index ``users``, columns are ``items``; scores are means, since medians have too many ties to rank."""
        require_fitted(self)
        user, item = find_codes(as_ids(users), self.users_), find_codes(as_ids(items), self.items_)
        known = self._unlogged()
        left = np.concatenate([known, known.mean(axis=1, keepdims=True)], axis=1)
        return _Means(
            self._shares_of(user), (left @ self.levels_)[:, item], left.sum(axis=2)[:, item]
        )

    def _distribution(self, user: IntVector, item: IntVector) -> Distribution:
        return lambda row, column: self._of_pairs(user[row], item[column])

    def _of_pairs(self, user: IntVector, item: IntVector) -> Matrix:
        shares = self._shares_of(user)
        chance = np.zeros((user.size, self.levels_.size))
        for of_cluster, of_items in zip(shares.T, self.rating_shares_, strict=True):
            chance += of_cluster[:, None] * of_items[item]
        chance *= 1 - self.value_propensities_[item]
        unknown = item < 0
        if unknown.any():
            chance[unknown] = shares[unknown] @ self._unlogged().mean(axis=1)
        chance /= chance.sum(axis=1, keepdims=True)
        return chance

    def _unlogged(self) -> Matrix:
        """P(Y = r, O = 0) of each cluster and item."""
        return self.rating_shares_ * (1 - self.value_propensities_)

    def _shares_of(self, user: IntVector) -> Matrix:
        """Shares in the clusters; an unknown user, -1, has those of all."""
        return np.where((user >= 0)[:, None], self.user_shares_[user], self.cluster_shares_)

    def _check(self) -> None:
        self._check_statistic()
        if self.mechanism not in MECHANISMS:
            raise UnknownNameError("mechanism", self.mechanism, MECHANISMS)
        if self.value_effect not in VALUE_EFFECTS:
            raise UnknownNameError("value_effect", self.value_effect, VALUE_EFFECTS)
        self._check_run()
        for name in ("n_clusters", "n_restarts"):
            whole_number(name, getattr(self, name), least=1)
        for name in ("smoothing", "prior_strength"):
            if not (is_finite_number(value := getattr(self, name)) and value > 0):
                raise UsageError(f"{name} must be a finite number above 0; got {value!r}.")

    def _chance(
        self,
        log: Ratings,
        levels: Vector,
        codes: Codes,
        propensities: PropensitiesLike | None,
        value_propensities: ValuePropensities | None,
    ) -> Vector:
        """P(O = 1 | Y = r) to begin with: as given, or the same for every level."""
        uniform = np.full(levels.size, (len(log) + 1) / (log.n_cells + 2))
        if self.mechanism == "mar":
            if value_propensities is not None:
                raise UsageError(
                    "mechanism='mar' has no use for value_propensities. Take 'cpt-v' or 'logit-vd', or leave them out."
                )
            return uniform
        require_listed(log)
        known = given_value_propensities(log, levels, codes, propensities, value_propensities)
        if self.value_effect == "free":
            _warn_of_freedom()
        elif known is None:
            raise UsageError(
                f"value_effect={self.value_effect!r} needs to know how likely each rating is to be logged. Pass "
                "value_propensities=... (a NaiveBayesPropensity fitted with a few ratings of cells picked at random, or a table "
                "{rating: P}) or propensities=...; without either there is mechanism='mar'."
            )
        return uniform if known is None else known

    def _mechanism(self, log: Ratings, chance: Vector) -> Mechanism:
        return MECHANISMS[self.mechanism](
            VALUE_EFFECTS[self.value_effect](chance, self.prior_strength * log.n_cells)
        )

    def _starts(self, cells: Cells, effects: Effects) -> tuple[Clusters, ...]:
        return tuple(
            draw(
                cells,
                effects,
                n_clusters=self.n_clusters,
                smoothing=self.smoothing,
                seeds=(self.random_state, start),
            )
            for start in range(self.n_restarts)
        )

    def _shapes(self) -> Shapes:
        n_clusters, n_levels = self.cluster_shares_.size, self.levels_.size
        return {
            **super()._shapes(),
            "user_shares": (self.user_shares_, (len(self.users_), n_clusters)),
            "rating_shares": (self.rating_shares_, (n_clusters, len(self.items_), n_levels)),
            "value_propensities": (self.value_propensities_, (len(self.items_), n_levels)),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Means:
    """The mean rating of an unlogged cell, in blocks of users: a ratio of two products."""

    shares: Matrix
    """Users x clusters."""
    rating: Matrix
    """sum_r r P(Y = r, O = 0), clusters x items."""
    chance: Matrix
    """P(O = 0), clusters x items."""

    def __call__(self, users: IntVector, /, *, out: Scores | None = None) -> Scores:
        return np.divide(
            self.shares[users] @ self.rating,
            self.shares[users] @ self.chance,
            out=out,
            casting="same_kind",
        )


def _warn_of_freedom() -> None:
    warnings.warn(
        "value_effect='free' learns from the log alone how likely each rating is to be logged, which a log hardly tells: the "
        "fit is not identified, and often far worse than one with mechanism='mar'. Fix the effect with a few ratings of cells "
        "picked at random (value_effect='fixed').",
        PropensityWarning,
        stacklevel=4,
    )
