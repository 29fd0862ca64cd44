"""Propensities from boosted trees, stopped when covariates are balanced (McCaffrey et al. 2004)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import ConvergenceWarning, UsageError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.covariates import (
    CovariatePropensityModel,
    ProfilePairCounts,
    ProfilePairs,
    is_binary,
)
from unskew.propensity.model import require_listed_universe
from unskew.settings import Number, OneOf, WholeNumber, check_random_state, draw_seeds, setting
from unskew.threads import single_openmp_thread
from unskew.types import ArrayShapes, IntVector, Matrix, RandomState, Vector

Stop: TypeAlias = Literal["asam", "ks", "deviance"]
MAX_PROFILE_PAIRS = 2 * 10**6
"""Pairs of profiles whose propensities are kept."""
HELD_OUT = 5
"""For the deviance, one of this many users is held out."""


@PROPENSITY_MODELS.declare(
    "boosted",
    label="Boosted trees",
    summary="Covariates, by boosted trees that stop when the weighted log is balanced.",
    traits={"takes_features": True, "needs_features": True},
)
@dataclass(eq=False, repr=False)
class BoostedPropensity(CovariatePropensityModel):
    """logit P = a sum of small trees of (x_u, z_i), with the number of trees of the best balance.

        ASAM = mean_k | sum_O w phi_k / sum_O w - mean_D phi_k | / sd_D phi_k,
        w = min(1 / P, max_relative_weight U I / n)

    phi are the covariates of users, of items, and the products of one with the other. Cells with
    the same covariates are one row of the fit, with their number as weight. The propensities of
    all pairs of profiles are kept, the trees are not.

    Parameters
    ----------
    user_features, item_features
        Covariates, as in :class:`LogisticPropensity`; at most 2 million pairs of profiles.
    stop
        What the number of trees minimises: ``"asam"``; ``"ks"``, the mean over phi of the largest
        distance between its weighted distribution function and that of all cells (products only
        of 0/1 covariates); or ``"deviance"`` of a fifth of the users, held out.
    max_trees, learning_rate, max_depth
        The largest number of trees, the factor of each tree, and the depth of a tree.
    leaf_penalty
        Penalty on the squared value of a leaf, on the scale of the log-likelihood of all cells;
        it shrinks the values of profiles with few cells.
    check_every
        The balance is measured after every so many trees, and before the first (P = n / U I).
    max_relative_weight
        Weights are clipped at this multiple of the mean weight, U I / n, when the balance is
        measured, and only then.
    random_state
        Seed of the held-out users and of the trees.

    Attributes
    ----------
    n_trees_ : the best number of trees.
    checked_, imbalance_ : the numbers of trees at which the balance was measured, from 0 on, and
        the value of ``stop`` at each.
    profile_propensities_ : P of all pairs of profiles.
    """

    user_features: object = None
    item_features: object = None
    _: KW_ONLY
    stop: Stop = setting("asam", OneOf(get_args(Stop)))
    max_trees: int = setting(500, WholeNumber(least=1))
    learning_rate: float = setting(0.05, Number(above=0, most=1))
    max_depth: int = setting(4, WholeNumber(least=1))
    leaf_penalty: float = setting(1.0, Number(least=0))
    check_every: int = setting(10, WholeNumber(least=1))
    max_relative_weight: float = setting(20.0, Number(least=1))
    random_state: RandomState = setting(0, check_random_state)

    n_trees_: int = field(init=False)
    checked_: IntVector = field(init=False)
    imbalance_: Vector = field(init=False)
    user_profile_: IntVector = field(init=False)
    item_profile_: IntVector = field(init=False)
    profile_propensities_: Matrix = field(init=False)

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Learn which cells were observed. The log must list all users and items."""
        self._check_settings()
        size, seed = require_listed_universe(log, universe), draw_seeds(self.random_state)[0]
        profiles = self._read_covariates(log)
        _require_few_pairs(profiles)
        counts = profiles.count_cells(log)
        measure = self._choose_measure(log, profiles, counts, seed)
        best, checked, imbalance = np.empty(0), list[int](), list[float]()
        for n_trees, propensity in self._stages(profiles, counts, seed):
            value = measure(len(imbalance), propensity)
            if value < min(imbalance, default=np.inf):
                best = propensity
            checked.append(n_trees)
            imbalance.append(value)
        self.checked_, self.imbalance_ = np.array(checked, dtype=np.int32), np.array(imbalance)
        self.n_trees_ = checked[int(self.imbalance_.argmin())]
        self.profile_propensities_ = best.reshape(profiles.shape)
        self.user_profile_, self.item_profile_ = profiles.user.profile, profiles.item.profile
        self._record_log(log, size)
        self._warn_if_improving()
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return self.profile_propensities_[self.user_profile_[user], self.item_profile_[item]]

    def _stages(
        self, profiles: ProfilePairs, counts: ProfilePairCounts, seed: int
    ) -> Iterator[tuple[int, Vector]]:
        """P of all pairs of profiles, without trees and after every ``check_every`` trees."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        features, label, weight = profiles.labelled_rows(counts)
        all_pairs = profiles.covariates(counts.pair)
        trees: Any = HistGradientBoostingClassifier(
            max_iter=self.max_trees,
            learning_rate=self.learning_rate,
            max_depth=self.max_depth,
            min_samples_leaf=1,  # a row is a group of cells, so the number of rows says little
            l2_regularization=self.leaf_penalty,
            early_stopping=False,
            random_state=seed,
        )
        yield 0, np.full(counts.pair.size, counts.observed.sum() / weight.sum())
        with single_openmp_thread():
            trees.fit(features, label, sample_weight=weight)
            for n_trees, classes in enumerate(trees.staged_predict_proba(all_pairs), start=1):
                if n_trees % self.check_every == 0 or n_trees == self.max_trees:
                    yield n_trees, classes[:, 1]

    def _choose_measure(
        self, log: Ratings, profiles: ProfilePairs, counts: ProfilePairCounts, seed: int
    ) -> Callable[[int, Vector], float]:
        """What to minimise: a function of the stage and of P of all pairs of profiles."""
        if self.stop == "deviance":
            deviances = self._held_out_deviances(log, profiles, seed)
            return lambda stage, propensity: deviances[stage]  # noqa: ARG005
        balance = WeightedBalance.of_cells(profiles, counts, self.max_relative_weight)
        measure = {"asam": balance.asam, "ks": balance.ks}[self.stop]
        return lambda stage, propensity: measure(propensity)  # noqa: ARG005

    def _held_out_deviances(self, log: Ratings, profiles: ProfilePairs, seed: int) -> list[float]:
        """-2 log L of held-out users at each stage, for trees of the other users."""
        is_held_out = np.random.default_rng(seed).permutation(log.n_users) % HELD_OUT == 0
        if is_held_out.all() or not (~is_held_out)[log.user].any():
            raise UsageError(
                f"`stop='deviance'` holds out users, and {log.n_users} are too few.",
                parameter="stop",
                remedy="Use `stop='asam'`.",
            )
        training = profiles.count_cells(log, users=~is_held_out)
        held_out = profiles.count_cells(log, users=is_held_out)
        return [
            -2 * float(held_out.observed @ np.log(p) + held_out.unobserved @ np.log1p(-p))
            for _, p in self._stages(profiles, training, seed)
        ]

    def _warn_if_improving(self) -> None:
        if self.n_trees_ == self.max_trees:
            warnings.warn(
                ConvergenceWarning(
                    f"{self.stop} was still decreasing after {self.max_trees} trees "
                    f"(from {self.imbalance_[0]:.4g} without trees to {self.imbalance_[-1]:.4g}).",
                    parameter="max_trees",
                    remedy="Raise `max_trees` or `learning_rate`. If diagnose shows that the "
                    "weights already add up to too little, keep these trees.",
                ),
                stacklevel=3,
            )

    def _find_inconsistency(self) -> str | None:
        misfit = super()._find_inconsistency()
        if misfit is not None:
            return misfit
        profiles = self.user_profile_, self.item_profile_
        for profile, size in zip(profiles, self.profile_propensities_.shape, strict=True):
            if not 0 <= profile.min() <= profile.max() < size:
                return "a profile is missing."
        return None

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        return {
            "user_profile": (self.user_profile_, (len(self.users_),)),
            "item_profile": (self.item_profile_, (len(self.items_),)),
        }


@dataclass(frozen=True, slots=True, eq=False)
class WeightedBalance:
    """How much covariates differ between the weighted log and all cells.

    The covariates phi are those of users, of items, and their products.
    """

    observed: Matrix
    """Observed cells of all pairs of profiles."""
    user_share: Vector
    item_share: Vector
    user: Matrix
    """Profiles x (1, covariates)."""
    item: Matrix
    max_weight: float

    @classmethod
    def of_cells(
        cls, profiles: ProfilePairs, counts: ProfilePairCounts, max_relative_weight: float
    ) -> WeightedBalance:
        user, item = profiles.user, profiles.item
        n_cells = (counts.observed + counts.unobserved).sum()
        return cls(
            counts.observed.reshape(profiles.shape),
            user.profile_shares,
            item.profile_shares,
            np.column_stack([np.ones(user.n_profiles), user.values]),
            np.column_stack([np.ones(item.n_profiles), item.values]),
            max_relative_weight * float(n_cells / counts.observed.sum()),
        )

    def asam(self, propensity: Vector) -> float:
        """The mean over phi of |weighted mean - mean over all cells| / standard deviation."""
        difference, variance = self._differences(self._weight_shares(propensity))
        return float(np.mean(np.abs(difference) / np.sqrt(variance)))

    def ks(self, propensity: Vector) -> float:
        """The mean over phi of the largest distance between two distribution functions.

        They are those of the weighted log and of all cells. Of the products, only those of 0/1
        covariates count.
        """
        shares = self._weight_shares(propensity)
        user_distances = [
            _max_distance(column, shares.sum(axis=1) - self.user_share)
            for column in self.user.T[1:]
        ]
        item_distances = [
            _max_distance(column, shares.sum(axis=0) - self.item_share)
            for column in self.item.T[1:]
        ]
        difference, _ = self._differences(shares)
        is_product = np.outer(is_binary(self.user), is_binary(self.item))
        is_product[0], is_product[:, 0] = False, False
        products = np.abs(difference[is_product.ravel()[1:]])
        return float(np.mean([*user_distances, *item_distances, *products]))

    def _weight_shares(self, propensity: Vector) -> Matrix:
        """The share of the total weight that each pair of profiles has."""
        weight = np.minimum(1 / propensity.reshape(self.observed.shape), self.max_weight)
        total: Matrix = self.observed * weight
        shares: Matrix = total / total.sum()
        return shares

    def _differences(self, shares: Matrix) -> tuple[Vector, Vector]:
        """Weighted means minus means over all cells, and variances over all cells, of all phi."""
        mean = np.outer(self.user_share @ self.user, self.item_share @ self.item)
        squares = np.outer(
            self.user_share @ np.square(self.user), self.item_share @ np.square(self.item)
        )
        weighted = self.user.T @ shares @ self.item
        return (weighted - mean).ravel()[1:], (squares - mean**2).ravel()[1:]


def _max_distance(values: Vector, difference: Vector) -> float:
    """max_t | sum of ``difference`` over values <= t |."""
    _, group = np.unique(values, return_inverse=True)
    return float(np.abs(np.cumsum(np.bincount(group.ravel(), difference))).max())


def _require_few_pairs(profiles: ProfilePairs) -> None:
    if profiles.n_pairs > MAX_PROFILE_PAIRS:
        n_users, n_items = profiles.shape
        raise UsageError(
            f"{n_users:,} user profiles x {n_items:,} item profiles are {profiles.n_pairs:,} "
            f"pairs, more than {MAX_PROFILE_PAIRS:,}.",
            parameter="user_features",
            remedy="Put numeric covariates into a few bins, or use "
            "ClassifierPropensity(HistGradientBoostingClassifier(), ...).",
        )
