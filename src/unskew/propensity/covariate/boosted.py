"""Propensities from boosted trees, stopped where the weighted log looks most like all cells (McCaffrey et al. 2004)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.propensity.covariate.cells import ProfileCells, count_cells, labelled_rows, side_by_side
from unskew.propensity.covariate.covariates import (
    CovariatePropensity,
    Covariates,
    are_marks,
    require_covariates,
)
from unskew.propensity.model import listed_universe
from unskew.threads import single_openmp_thread
from unskew.types import IntVector, Matrix, Vector

Stop: TypeAlias = Literal["asam", "ks", "deviance"]
MOST_PAIRS = 2 * 10**6
"""Pairs of profiles whose propensities are kept."""
HELD_OUT = 5
"""One user of so many is held out to judge the deviance."""


class BoostedPropensity(CovariatePropensity):
    """logit P = a sum of small trees of (x_u, z_i), as many as make the weighted log look most like all cells.

        ASAM = mean_k | sum_O w phi_k / sum_O w - mean_D phi_k | / sd_D phi_k,    w = min(1 / P, max_weight U I / n)

    phi are the covariates of users, of items, and the products of one with the other. Cells with the same covariates are one
    row of the fit, weighted by their number. The propensities of all pairs of profiles are kept, and the trees are not.

    Parameters
    ----------
    user_features, item_features
        Covariates, as in :class:`LogisticPropensity`. At most 2 million distinct pairs of profiles.
    stop
        What to minimise over the number of trees: ``"asam"``; ``"ks"``, the mean over phi of the largest distance between the
        weighted distribution function and that of all cells (products only of 0/1 covariates); or ``"deviance"`` of a fifth of
        the users, held out.
    max_trees, learning_rate, max_depth
        Trees at most, how much of each is taken, and the questions in a row that one asks.
    l2
        Penalty of the square of a leaf's step, on the scale of the log-likelihood of all cells; it keeps rare profiles calm.
    check_every
        Trees from one look at the balance to the next. None at all (P = n / U I) is looked at, too.
    max_weight
        Where weights are clipped when looking, and only then, in units of the mean weight, U I / n.
    random_state
        Seed of the held-out users and of the trees.

    Attributes
    ----------
    n_trees_ : the number that was best.
    checked_, imbalance_ : the numbers of trees looked at, and what was minimised at each; the first is without any.
    """

    n_trees_: int
    checked_: IntVector
    imbalance_: Vector
    user_profile_: IntVector
    item_profile_: IntVector
    chances_: Matrix
    """P of all pairs of profiles."""

    def __init__(
        self,
        user_features: object = None,
        item_features: object = None,
        *,
        stop: Stop = "asam",
        max_trees: int = 500,
        learning_rate: float = 0.05,
        max_depth: int = 4,
        l2: float = 1.0,
        check_every: int = 10,
        max_weight: float = 20.0,
        random_state: int = 0,
    ) -> None:
        self.user_features = user_features
        self.item_features = item_features
        self.stop: Stop = stop
        self.max_trees = max_trees
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.l2 = l2
        self.check_every = check_every
        self.max_weight = max_weight
        self.random_state = random_state

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Learn which cells were observed. The log must list all users and items; ratings play no part."""
        self._check()
        size = listed_universe(log, universe)
        user, item = self._covariates(log)
        require_covariates(self, user, item)
        _require_few(user, item)
        cells = count_cells(log, user, item)
        judge = self._judge(log, cells, user, item)
        best, checked, imbalance = np.empty(0), list[int](), list[float]()
        for n_trees, chance in self._stages(cells, user, item):
            checked.append(n_trees)
            imbalance.append(judge(len(imbalance), chance))
            best = chance if imbalance[-1] < min(imbalance[:-1], default=np.inf) else best
        self.checked_, self.imbalance_ = np.array(checked, dtype=np.int32), np.array(imbalance)
        self.n_trees_ = checked[int(self.imbalance_.argmin())]
        self.chances_ = best.reshape(user.n_profiles, item.n_profiles)
        self.user_profile_, self.item_profile_ = user.profile, item.profile
        self._remember(log, size)
        if self.n_trees_ == self.max_trees:
            warnings.warn(
                f"{self.stop} was still falling after {self.max_trees} trees ({imbalance[-1]:.4g}, and {imbalance[0]:.4g} "
                "without any); raise max_trees or learning_rate to see where it ends, or, where diagnose "
                "shows that the weights add up to too little already, keep these trees.",
                PropensityWarning,
                stacklevel=2,
            )
        return self

    def _find_inconsistency(self) -> str | None:
        """Whether every user and item has a profile that is there."""
        if (
            self.user_profile_.size != self.users_.size
            or self.item_profile_.size != self.items_.size
        ):
            return "its users, items and profiles are of different numbers."
        if (
            self.user_profile_.max() >= self.chances_.shape[0]
            or self.item_profile_.max() >= self.chances_.shape[1]
        ):
            return "a profile is missing."
        return None

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:  # noqa: ARG002
        return self.chances_[self.user_profile_[user], self.item_profile_[item]]

    def _check(self) -> None:
        if self.stop not in get_args(Stop):
            raise UnknownNameError("stop", self.stop, get_args(Stop))
        for name, least in (
            ("max_trees", 1),
            ("max_depth", 1),
            ("check_every", 1),
            ("random_state", 0),
        ):
            whole_number(name, getattr(self, name), least=least)
        if not (is_finite_number(self.learning_rate) and 0 < self.learning_rate <= 1):
            raise UsageError(f"learning_rate must lie in (0, 1]; got {self.learning_rate!r}.")
        if not (is_finite_number(self.l2) and self.l2 >= 0):
            raise UsageError(f"l2 must be a finite number, at least 0; got {self.l2!r}.")
        if not (is_finite_number(self.max_weight) and self.max_weight >= 1):
            raise UsageError(
                f"max_weight must be at least 1, the mean weight; got {self.max_weight!r}."
            )

    def _stages(
        self, cells: ProfileCells, user: Covariates, item: Covariates
    ) -> Iterator[tuple[int, Vector]]:
        """P of all pairs of profiles without a tree, and after every so many."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        features, label, weight = labelled_rows(cells, user, item)
        everything = side_by_side(user, item, cells.user, cells.item)
        trees: Any = HistGradientBoostingClassifier(
            max_iter=self.max_trees,
            learning_rate=self.learning_rate,
            max_depth=self.max_depth,
            min_samples_leaf=1,  # rows are groups of cells, so that their number says little
            l2_regularization=self.l2,
            early_stopping=False,
            random_state=self.random_state,
        )
        yield 0, np.full(cells.user.size, cells.observed.sum() / weight.sum())
        with single_openmp_thread():
            trees.fit(features, label, sample_weight=weight)
            for place, chance in enumerate(trees.staged_predict_proba(everything), start=1):
                if place % self.check_every == 0 or place == self.max_trees:
                    yield place, chance[:, 1]

    def _judge(
        self, log: Ratings, cells: ProfileCells, user: Covariates, item: Covariates
    ) -> Callable[[int, Vector], float]:
        """What to minimise, given the number of the look and the propensities of all pairs of profiles."""
        if self.stop == "deviance":
            deviances = self._deviances(log, user, item)
            return lambda place, chance: deviances[place]  # noqa: ARG005
        balance = Balance.of(cells, user, item, self.max_weight)
        measure = {"asam": balance.asam, "ks": balance.ks}[self.stop]
        return lambda place, chance: measure(chance)  # noqa: ARG005

    def _deviances(self, log: Ratings, user: Covariates, item: Covariates) -> list[float]:
        """-2 log L of held-out users, by trees of the others."""
        held_out = np.random.default_rng(self.random_state).permutation(log.n_users) % HELD_OUT == 0
        if held_out.all() or not (~held_out)[log.user].any():
            raise UsageError(
                f"stop='deviance' holds users out, and {log.n_users} are too few. Take stop='asam'."
            )
        training, judged = (
            count_cells(log, user, item, among=users) for users in (~held_out, held_out)
        )
        stages = self._stages(training, user, item)
        return [
            -2 * float(judged.observed @ np.log(p) + judged.unobserved @ np.log1p(-p))
            for _, p in stages
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """How far the weighted log is from all cells, in the covariates of users, of items, and their products."""

    observed: Matrix
    """Observed cells of all pairs of profiles."""
    user_share: Vector
    item_share: Vector
    user: Matrix
    """Profiles x (1, covariates)."""
    item: Matrix
    largest: float
    """Where weights are clipped."""

    @classmethod
    def of(
        cls, cells: ProfileCells, user: Covariates, item: Covariates, max_weight: float
    ) -> Balance:
        """Of the observed cells to all."""
        observed = cells.observed.reshape(user.n_profiles, item.n_profiles)
        shares = [
            np.bincount(side.profile, minlength=side.n_profiles) / side.profile.size
            for side in (user, item)
        ]
        tables = [np.column_stack([np.ones(side.n_profiles), side.values]) for side in (user, item)]
        largest = max_weight * float(
            (cells.observed + cells.unobserved).sum() / cells.observed.sum()
        )
        return cls(observed, shares[0], shares[1], tables[0], tables[1], largest)

    def asam(self, chance: Vector) -> float:
        """The mean over phi of its weighted mean less its mean over all cells, in standard deviations over all cells."""
        gap, variance = self._gaps(self._mass(chance))
        return float(np.mean(np.abs(gap) / np.sqrt(variance)))

    def ks(self, chance: Vector) -> float:
        """The mean over phi of the largest distance between its weighted distribution function and that over all cells."""
        mass = self._mass(chance)
        users = [
            _distance(column, mass.sum(axis=1) - self.user_share) for column in self.user.T[1:]
        ]
        items = [
            _distance(column, mass.sum(axis=0) - self.item_share) for column in self.item.T[1:]
        ]
        gap, _ = self._gaps(mass)
        marks = np.outer(are_marks(self.user), are_marks(self.item))
        marks[0], marks[:, 0] = False, False
        return float(np.mean([*users, *items, *np.abs(gap[marks.ravel()[1:]])]))

    def _mass(self, chance: Vector) -> Matrix:
        """The share of all weight that each pair of profiles has."""
        mass = self.observed * np.minimum(1 / chance.reshape(self.observed.shape), self.largest)
        shares: Matrix = mass / mass.sum()
        return shares

    def _gaps(self, mass: Matrix) -> tuple[Vector, Vector]:
        """Weighted means less means over all cells, and variances over all cells, of every phi but the constant."""
        user_mean, item_mean = self.user_share @ self.user, self.item_share @ self.item
        squares = np.outer(
            self.user_share @ np.square(self.user), self.item_share @ np.square(self.item)
        )
        mean = np.outer(user_mean, item_mean)
        weighted = self.user.T @ mass @ self.item
        return (weighted - mean).ravel()[1:], (squares - mean**2).ravel()[1:]


def _distance(values: Vector, difference: Vector) -> float:
    """max_t | sum of ``difference`` where values <= t |."""
    _, place = np.unique(values, return_inverse=True)
    return float(np.abs(np.cumsum(np.bincount(place.ravel(), difference))).max())


def _require_few(user: Covariates, item: Covariates) -> None:
    n_pairs = user.n_profiles * item.n_profiles
    if n_pairs > MOST_PAIRS:
        raise UsageError(
            f"{user.n_profiles:,} user profiles x {item.n_profiles:,} item profiles are {n_pairs:,} pairs, more than "
            f"{MOST_PAIRS:,}. Put numeric covariates into a few bins, or take "
            "ClassifierPropensity(HistGradientBoostingClassifier(), ...)."
        )
