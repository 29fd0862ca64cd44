"""Tests that can show that propensities are wrong.

With right propensities the weighted log looks like all cells. So the weighted shares of groups of
items and of users must be the shares of these groups in the universe, and the weighted mean rating
must be the mean rating of a random sample. A test that passes does not show that the propensities
are right: the tests only see item popularity, user activity and, with a random sample, ratings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special

from unskew.data.estimation import Replicates, Strata, Unit
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import PropensityWarning
from unskew.estimators.observed import Clusters, Deltas, ObservedCells
from unskew.estimators.point import SNIPS
from unskew.tables import format_p_value
from unskew.types import Matrix, Vector

LEVEL = 0.05
"""Each test rejects right propensities with this probability."""
N_GROUPS = 5
MIN_CELLS = 50
"""A test needs at least this many observed cells in each half of the log."""
MAX_Z_OF_EQUAL_COUNTS = 3.0
"""How many standard errors below chance the variance of counts may be before it is by design."""
POWER_FACTOR = float(special.ndtri(1 - LEVEL / 2) + special.ndtri(0.8))
"""A difference of this many standard errors is found with a probability of 80 %."""


@dataclass(frozen=True, slots=True)
class SpecificationTest:
    """A comparison of the weighted log with what is known of all cells."""

    subject: str
    """What is compared: "item popularity", "user activity" or "mean rating"."""
    p_value: float
    largest_difference: float
    """The largest difference of a share, or the difference of the mean rating."""
    detectable: float
    """The smallest difference that the test finds with a probability of 80 %."""

    @property
    def rejects(self) -> bool:
        """Whether the difference is too large to be chance, at the level of 5 %."""
        return self.p_value < LEVEL

    def __str__(self) -> str:
        result = "fails" if self.rejects else "passes"
        unit = "" if self.subject == "mean rating" else " of a share"
        return (
            f"{result} the test of {self.subject} ({format_p_value(self.p_value)}; it would find a "
            f"difference{unit} of {self.detectable:.2g} with 80% power)"
        )

    def warnings(self) -> Iterator[PropensityWarning]:
        """A warning if the propensities do not pass the test."""
        if not self.rejects:
            return
        if self.subject == "mean rating":
            yield PropensityWarning(
                f"the weighted mean rating of the log differs from that of the random sample by "
                f"{self.largest_difference:+.3g} ({format_p_value(self.p_value)}): selection "
                "depends on the ratings in a way that these propensities miss.",
                remedy="Use NaiveBayesPropensity with this sample.",
            )
        else:
            yield PropensityWarning(
                f"the weighted log does not have the {self.subject} of all cells: the share of a "
                f"fifth of them is off by {self.largest_difference:+.1%} "
                f"({format_p_value(self.p_value)}).",
                remedy="Use propensities that depend on users and items: LogisticPropensity with "
                "`user_offsets=True` and `item_offsets=True`. If it has both, lower its `ridge`. "
                "Such propensities do not see ratings: if people rate what they like, score the "
                "models on random ratings instead (`unskew.evaluate_random_test`).",
            )


def run_tests(
    log: Ratings,
    propensities: Propensities,
    universe: Universe | None,
    sample: Ratings | None,
    rng: np.random.Generator,
) -> tuple[SpecificationTest, ...]:
    """All tests that the data allow.

    Shares of groups are tested only if a fitted model says that it has no parameters of single
    items (users). A model that has them reproduces the shares, whether it is right or wrong. They
    are not tested if the log has a set number of ratings for each user (item), because cells then
    depend on each other.
    """
    estimation = propensities.estimation
    if isinstance(estimation, Replicates):
        propensities = propensities.as_known()
    tests = [_test_mean_rating(log, propensities, sample)]
    if universe is not None and estimation is not None:
        units: tuple[Unit, ...] = ("item", "user")
        tests += [
            _test_groups(log, propensities, universe, unit, rng)
            for unit in units
            if unit not in estimation.learned
            and not _has_counts_by_design(log, propensities, universe, unit)
        ]
    return tuple(test for test in tests if test is not None)


def _has_counts_by_design(
    log: Ratings, propensities: Propensities, universe: Universe, unit: Unit
) -> bool:
    """Whether the numbers of ratings by user (item) vary less than independent cells allow.

    Counts of independent cells have a variance of at least the mean of sum (1 - P) over the
    observed cells of a unit. A smaller one means that the number was set: Coat has 24 a user.
    """
    code, n_units = (log.user, universe.n_users) if unit == "user" else (log.item, universe.n_items)
    under_independence = float((1 - propensities.values).sum()) / n_units
    if under_independence == 0 or n_units < 2:
        return False
    ratio = float(np.bincount(code, minlength=n_units).var(ddof=1)) / under_independence
    return ratio < 1 - MAX_Z_OF_EQUAL_COUNTS * math.sqrt(2 / (n_units - 1))


def _test_groups(
    log: Ratings,
    propensities: Propensities,
    universe: Universe,
    unit: Unit,
    rng: np.random.Generator,
) -> SpecificationTest | None:
    """Do fifths of the items (users), by popularity, have a fifth of the weight each?

    Popularity is counted in one random half of the log, and the weights are those of the other
    half. Otherwise items that are popular by chance would seem to have too much weight.
    """
    code, n_units = (log.user, universe.n_users) if unit == "user" else (log.item, universe.n_items)
    is_first = rng.random(len(log)) < 0.5
    counted, weighted = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    if min(counted.size, weighted.size) < MIN_CELLS or n_units < 2 * N_GROUPS:
        return None
    popularity = np.bincount(code[counted], minlength=n_units) + rng.random(n_units)
    group = np.empty(n_units, dtype=np.int32)
    group[np.argsort(popularity)] = np.arange(n_units) * N_GROUPS // n_units
    share = np.bincount(group, minlength=N_GROUPS) / n_units
    part, values = log.take(weighted), propensities.take(weighted).scaled(0.5)
    indicator = (group[code[weighted]] == np.arange(N_GROUPS)[:, None]).astype(np.float64)
    other: Unit = "item" if unit == "user" else "user"
    value, covariance = _estimate(part, values, indicator, cluster=other)
    difference = value - share
    statistic = float(difference @ np.linalg.pinv(covariance, hermitian=True) @ difference)
    errors = np.sqrt(np.diag(covariance))
    n_clusters = np.unique(log.user if unit == "item" else log.item).size
    rank, free = N_GROUPS - 1, max(n_clusters - N_GROUPS, 1)
    hotelling = statistic * free / (rank * max(n_clusters - 1, 1))
    return SpecificationTest(
        "item popularity" if unit == "item" else "user activity",
        float(special.fdtrc(rank, free, hotelling)),
        float(difference[np.abs(difference).argmax()]),
        POWER_FACTOR * float(errors.max()),
    )


def _test_mean_rating(
    log: Ratings, propensities: Propensities, sample: Ratings | None
) -> SpecificationTest | None:
    """Is the weighted mean rating that of the random sample?"""
    estimation = propensities.estimation
    is_fitted_to_sample = isinstance(estimation, Strata) and estimation.sample is not None
    if sample is None or is_fitted_to_sample or len(sample) < 2:
        return None
    value, covariance = _estimate(log, propensities, log.rating[None], cluster="user")
    sums = np.bincount(sample.user, weights=sample.rating - sample.rating.mean())
    by_user = float(np.square(sums).sum()) / len(sample) ** 2
    difference = float(value[0]) - float(sample.rating.mean())
    error = math.sqrt(float(covariance[0, 0]) + by_user)
    return SpecificationTest(
        "mean rating",
        float(2 * special.ndtr(-abs(difference) / error)) if error > 0 else 1.0,
        difference,
        POWER_FACTOR * error,
    )


def _estimate(
    log: Ratings, propensities: Propensities, deltas: Matrix, *, cluster: Unit
) -> tuple[Vector, Matrix]:
    """SNIPS of each row of ``deltas``, and the covariance."""
    users, items = Clusters(log.user, log.n_users), Clusters(log.item, log.n_items)
    cells = ObservedCells(users, items, propensities, cluster=cluster)
    estimate = SNIPS().estimate(Deltas(deltas), cells)
    return estimate.value, estimate.covariance
